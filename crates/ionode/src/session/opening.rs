//! Opening, creating, and making durable.

use super::{Answer, Held, Open, Session};
use crate::error::{OrErrno, Result};
use crate::export::{Place, open_flags};
use crate::files::OpenFile;
use presagio_ninep::{Errno, Fid, IO_HEADER, Name, OpenFlags, Qid, Reply};
use presagio_storage::{Access, Durable};
use rustix::fs::OFlags;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

impl Session {
    pub(super) fn open(&self, fid: Fid, flags: OpenFlags, answer: &mut Answer<'_>) -> Result<()> {
        let held = self.acting(fid)?;
        let qid = self.open_as(fid, &held, flags)?;
        answer.reply(Reply::Open {
            qid,
            iounit: self.io_unit(),
        })
    }

    /// Opens the place of `held`; `fid` stands for what is open from now on.
    fn open_as(&self, fid: Fid, held: &Held, flags: OpenFlags) -> Result<Qid> {
        let open = self.opened(held.closed()?, flags)?;
        let qid = self.node.export.qid(&held.place.stat()?);
        self.fids().replace(fid, held.opened(open))?;
        Ok(qid)
    }

    /// Opens a place.
    pub(super) fn opened(&self, place: &Place, flags: OpenFlags) -> Result<Open> {
        if access_of(flags)?.write || flags.contains(OpenFlags::TRUNC) {
            self.node.export.writable()?;
        }
        let opened = self
            .node
            .export
            .open(place, Session::kernel_flags(flags)?)?;
        match place.is_dir() {
            true => Ok(Open::Dir(Arc::new(Mutex::new(opened)))),
            false => {
                let file = self.file(place, opened, flags)?;
                match self.is_nowhere(place)? {
                    true => Err(Errno::STALE),
                    false => Ok(Open::File(Arc::new(file))),
                }
            }
        }
    }

    /// Whether a file that was found by a name lost the last of them before it was open, so that a client which comes back
    /// after the node has ended could not find it again.
    fn is_nowhere(&self, place: &Place) -> Result<bool> {
        let comes_back = self.greeting.get().is_some() && self.node.own.is_some();
        Ok(comes_back && place.stat()?.stx_nlink == 0)
    }

    /// What the kernel is asked to open with. Who cuts a file needs the right to write, also without saying so.
    fn kernel_flags(flags: OpenFlags) -> Result<OFlags> {
        let cuts_only = flags.contains(OpenFlags::TRUNC) && !access_of(flags)?.write;
        let flags = if cuts_only {
            flags | OpenFlags::RDWR
        } else {
            flags
        };
        open_flags(flags)
    }

    pub(super) fn create(
        &self,
        fid: Fid,
        name: Name<'_>,
        flags: OpenFlags,
        mode: u32,
        gid: u32,
        answer: &mut Answer<'_>,
    ) -> Result<()> {
        let dir = self.making(fid, gid)?;
        let opens = Session::kernel_flags(flags)?;
        let (place, stat, made) = self.node.export.create(dir.closed()?, name, opens, mode)?;
        let opened = place.fd().try_clone_to_owned().or_errno()?;
        if made {
            self.node.act_for_storage()?;
            self.node.export.storage().created(place.fd()).or_errno()?;
        }
        let file = self.file(&place, opened, flags)?;
        if !made && self.is_nowhere(&place)? {
            return Err(Errno::STALE);
        }
        let held = Held {
            place,
            user: dir.user.clone(),
            open: Open::File(Arc::new(file)),
        };
        self.fids().replace(fid, held)?;
        let qid = self.node.export.qid(&stat);
        answer.reply(Reply::Create {
            qid,
            iounit: self.io_unit(),
        })
    }

    fn file(&self, place: &Place, opened: OwnedFd, flags: OpenFlags) -> Result<OpenFile> {
        let access = access_of(flags)?;
        self.node.act_for_storage()?;
        if access.write {
            self.strip_setuid(place)?;
        }
        let bytes = self.node.export.storage().open(opened, access).or_errno()?;
        if flags.contains(OpenFlags::TRUNC) {
            bytes.set_len(0).or_errno()?;
        }
        let whole_path = || self.node.export.whole_path(place);
        let hold = self.node.files.opened(place.key(), whole_path);
        hold.file().set_bytes(&bytes);
        Ok(OpenFile {
            bytes,
            number: self.node.number(),
            hold,
            read: access.read,
            write: access.write,
            append: flags.contains(OpenFlags::APPEND),
            durable: durable_of(flags),
        })
    }

    /// What is written elsewhere does not make the kernel take the bits away that a file must not keep when it changes:
    /// then they go when it is opened to be changed.
    pub(super) fn strip_setuid(&self, place: &Place) -> Result<()> {
        if !self.node.export.storage().is_private() {
            return Ok(());
        }
        let mode = u32::from(place.stat()?.stx_mode);
        match mode & 0o6000 {
            0 => Ok(()),
            _ => self.node.export.set_mode(place, mode & 0o1777),
        }
    }

    pub(super) fn fsync(&self, fid: Fid, data_only: bool, answer: &mut Answer<'_>) -> Result<()> {
        let held = self.acting(fid)?;
        let how = if data_only {
            Durable::Data
        } else {
            Durable::All
        };
        match &held.open {
            Open::File(file) => {
                self.node.act_for_storage()?;
                file.bytes.sync(how).or_errno()?;
            }
            Open::Dir(dir) => {
                let dir = dir.lock().unwrap_or_else(PoisonError::into_inner);
                rustix::fs::fsync(&*dir).or_errno()?;
            }
            _ => return Err(Errno::BADF),
        }
        answer.reply(Reply::Fsync)
    }

    /// What one read or write can carry at most.
    pub(super) fn io_unit(&self) -> u32 {
        self.msize - IO_HEADER
    }
}

pub(super) fn access_of(flags: OpenFlags) -> Result<Access> {
    let (read, write) = match flags.0 & OpenFlags::ACCESS.0 {
        0 => (true, false),
        1 => (false, true),
        2 => (true, true),
        _ => return Err(Errno::INVAL),
    };
    Ok(Access { read, write })
}

fn durable_of(flags: OpenFlags) -> Option<Durable> {
    if flags.contains(OpenFlags::SYNC) {
        return Some(Durable::All);
    }
    flags.contains(OpenFlags::DSYNC).then_some(Durable::Data)
}
