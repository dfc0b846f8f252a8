//! Extended attributes: read through a fid that stands for the value, written through one that is set when clunked.

use super::fids::{Memory, NewXattr, Xattr};
use super::{Answer, Held, Open, Session};
use crate::error::{OrErrno, Result};
use presagio_ninep::{Data, Errno, Fid, Reply, Text, XattrFlags};
use rustix::fs::{getxattr, listxattr, removexattr, setxattr};
use std::sync::{Arc, Mutex, PoisonError};

/// The largest value and the longest list that Linux has.
const VALUE_MAX: usize = 64 << 10;

impl Session {
    pub(super) fn xattr_walk(
        &self,
        fid: Fid,
        new_fid: Fid,
        name: Text<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<()> {
        let held = self.acting(fid)?;
        let path = self.node.export.path_of(&held.place)?;
        let mut value = vec![0; VALUE_MAX];
        let size = match name.bytes() {
            b"" => listxattr(&path, &mut value),
            name => getxattr(&path, name, &mut value),
        };
        value.truncate(size.or_errno()?);
        value.shrink_to_fit();
        let (size, _memory) = (value.len() as u64, self.hold(value.len())?);
        let open = Open::Xattr(Arc::new(Xattr { value, _memory }));
        self.fids().insert(new_fid, held.opened(open))?;
        answer.reply(Reply::XattrWalk { size })
    }

    pub(super) fn xattr_create(
        &self,
        fid: Fid,
        name: Text<'_>,
        size: u64,
        flags: XattrFlags,
        answer: &mut Answer<'_>,
    ) -> Result<()> {
        let held = self.acting(fid)?;
        self.node.export.writable()?;
        held.closed()?;
        if size > VALUE_MAX as u64 {
            return Err(Errno(libc::E2BIG as u32));
        }
        let new = NewXattr {
            name: name.bytes().to_vec(),
            value: Vec::with_capacity(size as usize),
            size: size as usize,
            flags,
            _memory: self.hold(size as usize)?,
        };
        self.fids()
            .replace(fid, held.opened(Open::NewXattr(Arc::new(Mutex::new(new)))))?;
        answer.reply(Reply::XattrCreate)
    }

    /// Memory until a fid is clunked.
    fn hold(&self, bytes: usize) -> Result<Memory> {
        let account = self.account().ok_or(Errno::BADF)?;
        let held = account.hold(bytes).zip(self.node.data.buffers.hold(bytes));
        held.ok_or(Errno(libc::ENOMEM as u32))
    }

    /// To replace a value by an empty one removes the attribute: so Linux's client asks for that.
    pub(super) fn set_xattr(&self, held: &Held, new: &Mutex<NewXattr>) -> Result<()> {
        self.node.power.act_as(&held.user)?;
        let new = new.lock().unwrap_or_else(PoisonError::into_inner);
        if new.value.len() != new.size {
            return Err(Errno::INVAL);
        }
        let path = self.node.export.path_of(&held.place)?;
        let flags = rustix::fs::XattrFlags::from_bits_truncate(new.flags.0);
        match new.size {
            0 if new.flags == XattrFlags::REPLACE => removexattr(&path, &*new.name).or_errno(),
            _ => setxattr(&path, &*new.name, &new.value, flags).or_errno(),
        }
    }

    /// Reads what a fid stands for that is no file.
    pub(super) fn read_value(
        &self,
        fid: Fid,
        offset: u64,
        count: u32,
        answer: &mut Answer<'_>,
    ) -> Result<()> {
        let held = self.held(fid)?;
        let Open::Xattr(xattr) = &held.open else {
            return Err(held.file().err().unwrap_or(Errno::BADF));
        };
        let value = &xattr.value;
        let start = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(value.len());
        let count = count.min(self.msize - presagio_ninep::IO_HEADER) as usize;
        let end = value.len().min(start.saturating_add(count));
        let data = Data::new(&value[start..end]).map_err(|_| Errno::IO)?;
        answer.reply(Reply::Read { data })
    }

    /// Writes what a fid stands for that is no file.
    pub(super) fn write_value(
        &self,
        fid: Fid,
        offset: u64,
        data: Data<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<()> {
        let held = self.held(fid)?;
        let Open::NewXattr(new) = &held.open else {
            return Err(held.file().err().unwrap_or(Errno::BADF));
        };
        let mut new = new.lock().unwrap_or_else(PoisonError::into_inner);
        let (data, room) = (data.bytes(), new.size - new.value.len());
        if offset != new.value.len() as u64 || data.len() > room {
            return Err(Errno::INVAL);
        }
        new.value.extend_from_slice(data);
        answer.reply(Reply::Write {
            count: data.len() as u32,
        })
    }
}
