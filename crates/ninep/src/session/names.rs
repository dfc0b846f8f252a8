//! What is in a directory, and what can be done with names and extended attributes.

use super::CHECKED;
use super::file::{File, ask};
use crate::client::{Error, Lost};
use crate::entries::Entries;
use crate::error::WireError;
use crate::ids::Errno;
use crate::reply::Reply;
use crate::request::Request;
use crate::text::{Name, Text};
use crate::values::{OpenFlags, Qid, QidKind, UnlinkFlags, XattrFlags};

use std::sync::Arc;

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Its name.
    pub name: Vec<u8>,
    /// The file.
    pub qid: Qid,
    /// Linux's `d_type`.
    pub file_type: u8,
}

impl File {
    /// Everything in this directory, without `.` and `..`.
    pub fn read_dir(&self) -> Result<Vec<DirEntry>, Error> {
        let mut dir = self.walk("")?;
        dir.open(OpenFlags::DIRECTORY)?;
        let (mut listed, mut offset) = (Vec::new(), 0);
        loop {
            let request = Request::ReadDir {
                fid: dir.fid(),
                offset,
                count: self.session.client.io_max(),
            };
            let answer = self.session.client.call(request)?;
            let Reply::ReadDir { entries } = answer.reply() else {
                unreachable!("{CHECKED}");
            };
            if entries.bytes().is_empty() {
                return Ok(listed);
            }
            let before = offset;
            for entry in Entries::new(entries) {
                let entry = entry.map_err(|error| self.malformed(error))?;
                offset = entry.offset;
                if !matches!(entry.name.bytes(), b"." | b"..") {
                    listed.push(DirEntry {
                        name: entry.name.bytes().to_vec(),
                        qid: entry.qid,
                        file_type: entry.file_type,
                    });
                }
            }
            if offset == before {
                // It would go on so for ever.
                return Err(Error::Server(Errno::IO));
            }
        }
    }

    /// A server that lists what is no entry is left.
    fn malformed(&self, error: WireError) -> Error {
        self.session.client.close();
        Error::Lost {
            sent: true,
            why: Arc::new(Lost::Malformed(error)),
        }
    }

    /// Makes a directory in this one.
    pub fn mkdir(&self, name: impl AsRef<[u8]>, mode: u32) -> Result<Qid, Error> {
        let (dir, name, gid) = (self.fid(), Name::new(&name)?, 0);
        ask!(self, Request::Mkdir { dir, name, mode, gid }, Reply::Mkdir { qid } => qid)
    }

    /// Makes a symbolic link in this directory.
    pub fn symlink(&self, name: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Result<Qid, Error> {
        let (dir, name, gid) = (self.fid(), Name::new(&name)?, 0);
        let target = Text::new(&target)?;
        ask!(self, Request::Symlink { dir, name, target, gid }, Reply::Symlink { qid } => qid)
    }

    /// Makes a device, a pipe or a socket in this directory.
    pub fn mknod(
        &self,
        name: impl AsRef<[u8]>,
        mode: u32,
        (major, minor): (u32, u32),
    ) -> Result<Qid, Error> {
        let (dir, name, gid) = (self.fid(), Name::new(&name)?, 0);
        let request = Request::Mknod {
            dir,
            name,
            mode,
            major,
            minor,
            gid,
        };
        ask!(self, request, Reply::Mknod { qid } => qid)
    }

    /// Gives a file a name in this directory.
    pub fn link(&self, file: &File, name: impl AsRef<[u8]>) -> Result<(), Error> {
        let (dir, fid, name) = (self.fid(), file.fid(), Name::new(&name)?);
        ask!(self, Request::Link { dir, fid, name }, Reply::Link => ())
    }

    /// Where this symbolic link leads.
    pub fn readlink(&self) -> Result<Vec<u8>, Error> {
        let fid = self.fid();
        ask!(self, Request::ReadLink { fid }, Reply::ReadLink { target } => target.bytes().to_vec())
    }

    /// Moves a name of this directory to another directory.
    pub fn rename_at(
        &self,
        old: impl AsRef<[u8]>,
        to: &File,
        new: impl AsRef<[u8]>,
    ) -> Result<(), Error> {
        let request = Request::RenameAt {
            old_dir: self.fid(),
            old_name: Name::new(&old)?,
            new_dir: to.fid(),
            new_name: Name::new(&new)?,
        };
        match ask!(self, request, Reply::RenameAt => ()) {
            // Debian's diod knows only the older message, which Linux falls back to as well.
            Err(Error::Server(Errno::OPNOTSUPP)) => self.walk(old)?.rename(to, new),
            renamed => renamed,
        }
    }

    /// Moves this file to a directory.
    pub fn rename(&self, to: &File, name: impl AsRef<[u8]>) -> Result<(), Error> {
        let (fid, dir, name) = (self.fid(), to.fid(), Name::new(&name)?);
        ask!(self, Request::Rename { fid, dir, name }, Reply::Rename => ())
    }

    /// Removes a name from this directory; a directory if `flags` say so.
    pub fn unlink(&self, name: impl AsRef<[u8]>, flags: UnlinkFlags) -> Result<(), Error> {
        let (dir, known) = (self.fid(), Name::new(&name)?);
        let request = Request::UnlinkAt {
            dir,
            name: known,
            flags,
        };
        match ask!(self, request, Reply::UnlinkAt => ()) {
            Err(Error::Server(Errno::OPNOTSUPP)) => self.unlink_by_fid(name.as_ref(), flags),
            removed => removed,
        }
    }

    /// With the older message, which removes files and directories alike.
    fn unlink_by_fid(&self, name: &[u8], flags: UnlinkFlags) -> Result<(), Error> {
        let file = self.walk(name)?;
        let is_directory = file.qid().kind.contains(QidKind::DIR);
        match (is_directory, flags.contains(UnlinkFlags::REMOVEDIR)) {
            (true, false) => Err(Error::Server(Errno::ISDIR)),
            (false, true) => Err(Error::Server(Errno::NOTDIR)),
            _ => file.remove(),
        }
    }

    /// Removes this file.
    pub fn remove(self) -> Result<(), Error> {
        let fid = self.fid();
        let removed = ask!(self, Request::Remove { fid }, Reply::Remove => ());
        // Removed or not, the server has forgotten the fid.
        self.forgotten();
        removed
    }

    /// The value of an extended attribute; without a name, the names of all, each with a NUL behind it.
    pub fn xattr(&self, name: &str) -> Result<Vec<u8>, Error> {
        let new_fid = self.session.draw();
        let (fid, name) = (self.fid(), Text::new(name)?);
        let answer = self
            .session
            .client
            .call(Request::XattrWalk { fid, new_fid, name });
        let answer = self.session.unless_refused(new_fid, answer)?;
        let Reply::XattrWalk { size } = answer.reply() else {
            unreachable!("{CHECKED}");
        };
        let attribute = File::new(self.session.clone(), new_fid, Qid::default());
        let mut value = vec![0; size.min(crate::MSIZE_MAX.into()) as usize];
        let got = attribute.read_at(0, &mut value)?;
        value.truncate(got);
        Ok(value)
    }

    /// Sets an extended attribute.
    pub fn set_xattr(&self, name: &str, value: &[u8], flags: XattrFlags) -> Result<(), Error> {
        let attribute = self.walk("")?;
        let (fid, name, size) = (attribute.fid(), Text::new(name)?, value.len() as u64);
        let request = Request::XattrCreate {
            fid,
            name,
            size,
            flags,
        };
        ask!(self, request, Reply::XattrCreate => ())?;
        if !value.is_empty() {
            attribute.write_at(0, value)?;
        }
        // Only now is it set.
        attribute.close()
    }
}
