//! The same operations on a plain directory, by the host's own calls.

use super::{HELD, Operation, Outcome, Path};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

/// A directory, and the files that each client has open.
pub struct Plain {
    root: PathBuf,
    held: Vec<[Option<File>; HELD]>,
}

impl Plain {
    pub fn new(root: &std::path::Path) -> Plain {
        Plain {
            root: root.to_owned(),
            held: (0..3).map(|_| Default::default()).collect(),
        }
    }

    /// Does it; an errno if that fails.
    pub fn act(&mut self, operation: &Operation, client: usize) -> Result<Outcome, i32> {
        let result = self.try_act(operation, client);
        result.map_err(|error| error.raw_os_error().expect("an error of the system"))
    }

    fn at(&self, path: &Path) -> PathBuf {
        let mut all = self.root.clone();
        all.extend(path);
        all
    }

    fn try_act(&mut self, operation: &Operation, client: usize) -> io::Result<Outcome> {
        match operation {
            Operation::Create { path, exclusive } => {
                let mut options = rw();
                match exclusive {
                    true => options.create_new(true),
                    false => options.create(true),
                };
                options.open(self.at(path))?;
            }
            Operation::Write {
                path,
                offset,
                bytes,
            } => rw().open(self.at(path))?.write_all_at(bytes, *offset)?,
            Operation::Append { path, bytes } => {
                let mut options = OpenOptions::new();
                let mut file = options.append(true).open(self.at(path))?;
                file.write_all(bytes)?;
            }
            Operation::Truncate { path, size } => {
                let mut options = OpenOptions::new();
                let file = options.write(true).open(self.at(path))?;
                file.set_len(*size)?;
            }
            Operation::Read {
                path,
                offset,
                count,
            } => return read(&File::open(self.at(path))?, *offset, *count),
            Operation::Rename { from, to } => fs::rename(self.at(from), self.at(to))?,
            Operation::Unlink { path } => fs::remove_file(self.at(path))?,
            Operation::Mkdir { path } => fs::create_dir(self.at(path))?,
            Operation::Rmdir { path } => fs::remove_dir(self.at(path))?,
            Operation::Link { from, to } => fs::hard_link(self.at(from), self.at(to))?,
            Operation::ReadDir { path } => return Ok(Outcome::Names(names(&self.at(path))?)),
            Operation::GetAttr { path } => {
                let stat = fs::metadata(self.at(path))?;
                return Ok(match stat.is_dir() {
                    true => Outcome::Directory,
                    false => Outcome::File {
                        size: stat.size(),
                        links: stat.nlink(),
                    },
                });
            }
            Operation::Hold { path, held } => {
                self.held[client][*held] = Some(rw().open(self.at(path))?);
            }
            Operation::WriteHeld {
                held,
                offset,
                bytes,
            } => match &self.held[client][*held] {
                Some(file) => file.write_all_at(bytes, *offset)?,
                None => return Ok(Outcome::NotHeld),
            },
            Operation::ReadHeld {
                held,
                offset,
                count,
            } => match &self.held[client][*held] {
                Some(file) => return read(file, *offset, *count),
                None => return Ok(Outcome::NotHeld),
            },
        }
        Ok(Outcome::Done)
    }
}

fn rw() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options
}

fn read(file: &File, offset: u64, count: usize) -> io::Result<Outcome> {
    let mut bytes = vec![0; count.max(1)];
    let got = file.read_at(&mut bytes, offset)?;
    bytes.truncate(got);
    Ok(Outcome::Bytes(bytes))
}

fn names(at: &std::path::Path) -> io::Result<Vec<String>> {
    let listed = fs::read_dir(at)?;
    let names = listed.map(|entry| Ok(entry?.file_name().into_string().expect("a name of ours")));
    let mut names = names.collect::<io::Result<Vec<String>>>()?;
    names.sort();
    Ok(names)
}

/// All files below a directory, with their bytes; directories without.
pub fn tree(root: &std::path::Path) -> Vec<(String, Option<Vec<u8>>)> {
    let mut all = Vec::new();
    for name in names(root).expect("a directory") {
        let at = root.join(&name);
        if at.is_dir() {
            let below = tree(&at).into_iter();
            all.push((name.clone(), None));
            all.extend(below.map(|(below, bytes)| (format!("{name}/{below}"), bytes)));
        } else {
            all.push((name, Some(fs::read(&at).expect("a file"))));
        }
    }
    all
}
