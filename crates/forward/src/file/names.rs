//! Directories: what is in them, and what becomes of it.

use super::{File, reply};
use crate::link::Done;
use presagio_ninep::client::{Answer, Error};
use presagio_ninep::{Entries, Errno, Name, Qid, QidKind, Reply, Request, Text, UnlinkFlags};

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name; `.` and `..` are listed too.
    pub name: Vec<u8>,
    /// The file.
    pub qid: Qid,
    /// Linux's `d_type`.
    pub file_type: u8,
    /// Where to go on behind it.
    pub offset: u64,
}

fn name(name: &[u8]) -> Result<Name<'_>, Errno> {
    Name::new(name).map_err(|_| Errno::INVAL)
}

impl File {
    /// Entries of this directory, which is open, behind `offset`: none at its end.
    pub fn read_dir(&self, offset: u64, size: u32) -> Result<Vec<Listed>, Errno> {
        let (link, fid) = (&self.held.link, self.held.fid);
        link.repeat(&[&self.held], |connection| {
            let count = size.min(connection.client.io_max());
            let answer = connection.call(Request::ReadDir { fid, offset, count })?;
            let entries = reply!(answer, Reply::ReadDir { entries } => entries);
            let mut listed = Vec::new();
            for entry in Entries::new(entries) {
                let entry = entry.map_err(|_| Error::Server(Errno::PROTO))?;
                listed.push(Listed {
                    name: entry.name.bytes().to_vec(),
                    qid: entry.qid,
                    file_type: entry.file_type,
                    offset: entry.offset,
                });
            }
            Ok(listed)
        })
    }

    /// Asks something about names in this directory that must not be done twice.
    fn change(&self, request: &Request<'_>) -> Result<Answer, Errno> {
        let (answer, done) = self.held.link.once(&[&self.held], request)?;
        self.held.names_changed(done.epoch);
        Ok(answer)
    }

    /// Makes a directory in this one.
    pub fn mkdir(&self, new: impl AsRef<[u8]>, mode: u32, gid: u32) -> Result<Qid, Errno> {
        let (dir, name) = (self.held.fid, name(new.as_ref())?);
        let answer = self.change(&Request::Mkdir {
            dir,
            name,
            mode,
            gid,
        })?;
        Ok(reply!(answer, Reply::Mkdir { qid } => qid))
    }

    /// Makes a symbolic link in this directory.
    pub fn symlink(&self, new: impl AsRef<[u8]>, target: &[u8], gid: u32) -> Result<Qid, Errno> {
        let (dir, name) = (self.held.fid, name(new.as_ref())?);
        let target = Text::new(target).map_err(|_| Errno::INVAL)?;
        let answer = self.change(&Request::Symlink {
            dir,
            name,
            target,
            gid,
        })?;
        Ok(reply!(answer, Reply::Symlink { qid } => qid))
    }

    /// Makes a device, a pipe, a socket or a plain file in this directory.
    pub fn mknod(
        &self,
        new: impl AsRef<[u8]>,
        mode: u32,
        (major, minor): (u32, u32),
        gid: u32,
    ) -> Result<Qid, Errno> {
        let answer = self.change(&Request::Mknod {
            dir: self.held.fid,
            name: name(new.as_ref())?,
            mode,
            major,
            minor,
            gid,
        })?;
        Ok(reply!(answer, Reply::Mknod { qid } => qid))
    }

    /// Where this symbolic link leads.
    pub fn readlink(&self) -> Result<Vec<u8>, Errno> {
        let fid = self.held.fid;
        let answer = self.ask(Request::ReadLink { fid })?;
        Ok(reply!(answer, Reply::ReadLink { target } => target.bytes().to_vec()))
    }

    /// Gives a file a name in this directory.
    pub fn link(&self, file: &File, new: impl AsRef<[u8]>) -> Result<(), Errno> {
        // Fids are a link's own: where files are spread, the directory's node has to be told which file that is.
        let file = file.on(&self.held.link)?;
        let request = Request::Link {
            dir: self.held.fid,
            fid: file.held.fid,
            name: name(new.as_ref())?,
        };
        let both = [&*self.held, &*file.held];
        let (_, done) = self.held.link.once(&both, &request)?;
        self.held.names_changed(done.epoch);
        file.held.changed(done.epoch);
        Ok(())
    }

    /// Moves a name of this directory to a name in another one of the same user, over what is there.
    pub fn rename(
        &self,
        old: impl AsRef<[u8]>,
        to: &File,
        new: impl AsRef<[u8]>,
    ) -> Result<(), Errno> {
        let (old, new) = (old.as_ref(), new.as_ref());
        let request = Request::RenameAt {
            old_dir: self.held.fid,
            old_name: name(old)?,
            new_dir: to.held.fid,
            new_name: name(new)?,
        };
        let link = &self.held.link;
        let done = match link.once(&[&self.held, &to.held], &request) {
            Err(Errno::OPNOTSUPP) => self.rename_by_fid(old, to, new)?,
            renamed => renamed?.1,
        };
        self.held.names_changed(done.epoch);
        to.held.names_changed(done.epoch);
        if !done.connection.is_presagio() {
            let (old, new) = (self.path_of(old), to.path_of(new));
            let all = link.all_held();
            all.iter().for_each(|held| held.follow(&old, &new));
        }
        Ok(())
    }

    /// With the older message, the only one that Debian's diod knows.
    fn rename_by_fid(&self, old: &[u8], to: &File, new: &[u8]) -> Result<Done, Errno> {
        let file = self.walk(old)?;
        let request = Request::Rename {
            fid: file.held.fid,
            dir: to.held.fid,
            name: name(new)?,
        };
        let both = [&*file.held, &*to.held];
        Ok(self.held.link.once(&both, &request)?.1)
    }

    /// Removes a file from this directory.
    pub fn unlink(&self, old: impl AsRef<[u8]>) -> Result<(), Errno> {
        self.remove(old.as_ref(), UnlinkFlags(0))
    }

    /// Removes an empty directory from this one.
    pub fn rmdir(&self, old: impl AsRef<[u8]>) -> Result<(), Errno> {
        self.remove(old.as_ref(), UnlinkFlags::REMOVEDIR)
    }

    fn remove(&self, old: &[u8], flags: UnlinkFlags) -> Result<(), Errno> {
        let (dir, name) = (self.held.fid, name(old)?);
        match self.change(&Request::UnlinkAt { dir, name, flags }) {
            Err(Errno::OPNOTSUPP) => self.remove_by_fid(old, flags),
            removed => removed.map(drop),
        }
    }

    /// With the older message, which removes files and directories alike.
    fn remove_by_fid(&self, old: &[u8], flags: UnlinkFlags) -> Result<(), Errno> {
        let file = self.walk(old)?;
        let is_directory = file.qid().kind.contains(QidKind::DIR);
        match (is_directory, flags.contains(UnlinkFlags::REMOVEDIR)) {
            (true, false) => return Err(Errno::ISDIR),
            (false, true) => return Err(Errno::NOTDIR),
            _ => {}
        }
        let fid = file.held.fid;
        let removed = file.held.link.once(&[&file.held], &Request::Remove { fid });
        // Removed or not, the node has forgotten the fid.
        file.held.gone();
        self.held.names_changed(removed?.1.epoch);
        Ok(())
    }
}
