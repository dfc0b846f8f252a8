//! Operations through a node.

use super::{HELD, Operation, Outcome, Path};
use crate::common::Exported;
use presagio_ninep::client::Error;
use presagio_ninep::session::{File, Session};
use presagio_ninep::{Errno, GetAttr, OpenFlags, QidKind, SetAttr, SetMask, UnlinkFlags};

/// A client of a node.
pub struct Through {
    _session: Session,
    root: File,
    held: [Option<File>; HELD],
}

impl Through {
    pub fn new(node: &Exported, directory: &str) -> Through {
        let (session, root) = node.connect();
        let root = root.walk(directory).expect("the case's directory");
        Through {
            _session: session,
            root,
            held: Default::default(),
        }
    }

    /// Does it; an errno if that fails.
    pub fn act(&mut self, operation: &Operation, _: usize) -> Result<Outcome, i32> {
        self.try_act(operation).map_err(|error| match error {
            Error::Server(errno) => errno.0 as i32,
            other => panic!("{other}"),
        })
    }

    fn try_act(&mut self, operation: &Operation) -> Result<Outcome, Error> {
        match operation {
            Operation::Create { path, exclusive } => {
                let flags = match exclusive {
                    true => OpenFlags::RDWR | OpenFlags::EXCL,
                    false => OpenFlags::RDWR,
                };
                let (parent, name) = self.parent(path)?;
                parent.create(name, flags, 0o644)?;
            }
            Operation::Write {
                path,
                offset,
                bytes,
            } => write(&self.open(path, OpenFlags::RDWR)?, *offset, bytes)?,
            Operation::Append { path, bytes } => {
                let flags = OpenFlags::WRONLY | OpenFlags::APPEND;
                write(&self.open(path, flags)?, 0, bytes)?;
            }
            Operation::Truncate { path, size } => self.reach(path)?.setattr(SetAttr {
                valid: SetMask::SIZE,
                size: *size,
                ..SetAttr::default()
            })?,
            Operation::Read {
                path,
                offset,
                count,
            } => return read(&self.open(path, OpenFlags::RDONLY)?, *offset, *count),
            Operation::Rename { from, to } => {
                let (from, old) = self.parent(from)?;
                let (to, new) = self.parent(to)?;
                from.rename_at(old, &to, new)?;
            }
            Operation::Unlink { path } => {
                let (parent, name) = self.parent(path)?;
                parent.unlink(name, UnlinkFlags(0))?;
            }
            Operation::Mkdir { path } => {
                let (parent, name) = self.parent(path)?;
                parent.mkdir(name, 0o755)?;
            }
            Operation::Rmdir { path } => {
                let (parent, name) = self.parent(path)?;
                parent.unlink(name, UnlinkFlags::REMOVEDIR)?;
            }
            Operation::Link { from, to } => {
                let file = self.reach(from)?;
                let (parent, name) = self.parent(to)?;
                parent.link(&file, name)?;
            }
            Operation::ReadDir { path } => {
                let listed = self.reach(path)?.read_dir()?.into_iter();
                let mut names: Vec<String> = listed
                    .map(|entry| String::from_utf8(entry.name).expect("a name of ours"))
                    .collect();
                names.sort();
                return Ok(Outcome::Names(names));
            }
            Operation::GetAttr { path } => return self.attributes(path),
            Operation::Hold { path, held } => {
                self.held[*held] = Some(self.open(path, OpenFlags::RDWR)?);
            }
            Operation::WriteHeld {
                held,
                offset,
                bytes,
            } => match &self.held[*held] {
                Some(file) => write(file, *offset, bytes)?,
                None => return Ok(Outcome::NotHeld),
            },
            Operation::ReadHeld {
                held,
                offset,
                count,
            } => match &self.held[*held] {
                Some(file) => return read(file, *offset, *count),
                None => return Ok(Outcome::NotHeld),
            },
        }
        Ok(Outcome::Done)
    }

    /// Step by step, so that the error is that of the step which fails.
    fn reach(&self, path: &[&str]) -> Result<File, Error> {
        let mut at = self.root.walk("")?;
        for name in path {
            at = at.walk(name)?;
        }
        Ok(at)
    }

    /// A client knows of what it has walked to whether it is a directory, and asks for nothing in what is none.
    fn parent(&self, path: &Path) -> Result<(File, &'static str), Error> {
        let (name, parent) = path.split_last().expect("a path has a name");
        let parent = self.reach(parent)?;
        match parent.qid().kind.contains(QidKind::DIR) {
            true => Ok((parent, name)),
            false => Err(Error::Server(Errno::NOTDIR)),
        }
    }

    fn open(&self, path: &Path, flags: OpenFlags) -> Result<File, Error> {
        let mut file = self.reach(path)?;
        file.open(flags)?;
        Ok(file)
    }

    fn attributes(&self, path: &Path) -> Result<Outcome, Error> {
        let attr = self.reach(path)?.getattr(GetAttr::BASIC)?;
        Ok(match attr.mode & 0o170_000 {
            0o040_000 => Outcome::Directory,
            _ => Outcome::File {
                size: attr.size,
                links: attr.nlink,
            },
        })
    }
}

fn write(file: &File, offset: u64, bytes: &[u8]) -> Result<(), Error> {
    assert_eq!(file.write_at(offset, bytes)?, bytes.len());
    Ok(())
}

fn read(file: &File, offset: u64, count: usize) -> Result<Outcome, Error> {
    let mut bytes = vec![0; count.max(1)];
    let got = file.read_at(offset, &mut bytes)?;
    bytes.truncate(got);
    Ok(Outcome::Bytes(bytes))
}
