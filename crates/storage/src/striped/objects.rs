//! The objects of an open file: where its bytes really go.

use super::Set;
use super::geometry::Geometry;
use super::record::Record;
use crate::directory::{retry, sync};
use crate::{Durable, Now, Size};
use presagio_core::Range;
use rustix::fs::Stat;
use rustix::io::{Errno, ReadWriteFlags};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock, RwLock};

/// The largest file that any file system has.
pub const LARGEST: u64 = i64::MAX as u64;

/// Of a file without bytes.
pub const EMPTY: Size = Size {
    bytes: 0,
    blocks: 0,
};

/// The objects of a file.
pub struct Objects {
    set: Arc<Set>,
    record: Record,
    pub geometry: Geometry,
    open: Vec<OnceLock<OwnedFd>>,
    /// Shared by writes, had alone by appends and cuts.
    pub order: RwLock<()>,
}

impl Objects {
    pub fn new(set: Arc<Set>, record: Record) -> Objects {
        let open = record.servers.iter().map(|_| OnceLock::new()).collect();
        Objects {
            set,
            geometry: record.geometry(),
            record,
            open,
            order: RwLock::new(()),
        }
    }

    /// Opens those that are there: what is removed through another node later stays for those who have it open. A server that
    /// is not there is the error of those who need it.
    pub fn open_all(&self) {
        for (object, _) in self.all() {
            let _ = self.existing(object);
        }
    }

    /// The numbers of all objects and their servers.
    fn all(&self) -> impl Iterator<Item = (u16, u16)> {
        (0..).zip(self.record.servers.iter().copied())
    }

    pub fn server(&self, object: u16) -> io::Result<u16> {
        let server = self.record.servers.get(usize::from(object));
        server.copied().ok_or(Errno::INVAL.into())
    }

    /// An object, if there is one.
    fn existing(&self, object: u16) -> io::Result<Option<BorrowedFd<'_>>> {
        let server = self.server(object)?;
        let slot = &self.open[usize::from(object)];
        if slot.get().is_none()
            && let Some(opened) = self.set.servers.open(server, self.record.object)?
        {
            // If another thread was faster, its descriptor is as good.
            let _ = slot.set(opened);
        }
        Ok(slot.get().map(AsFd::as_fd))
    }

    /// An object that is made if there is none.
    fn made(&self, name: BorrowedFd<'_>, object: u16) -> io::Result<BorrowedFd<'_>> {
        let server = self.server(object)?;
        if let Some(existing) = self.existing(object)? {
            return Ok(existing);
        }
        is_hole(name)?;
        let made = self.set.servers.make(server, self.record.object)?;
        Ok(self.open[usize::from(object)].get_or_init(|| made).as_fd())
    }

    fn stat(&self, object: u16, server: u16) -> io::Result<Option<Stat>> {
        match self.open[usize::from(object)].get() {
            Some(opened) => Ok(Some(rustix::fs::fstat(opened)?)),
            None => self.set.servers.stat(server, self.record.object),
        }
    }

    /// It ends where the last of its objects does. What others have added since it was opened is opened, and stays.
    pub fn size(&self) -> io::Result<Size> {
        self.open_all();
        self.size_now()
    }

    /// The same, of a file that nobody need have open.
    pub fn size_now(&self) -> io::Result<Size> {
        let mut size = EMPTY;
        for (object, server) in self.all() {
            if let Some(stat) = self.stat(object, server)? {
                let end = self.geometry.file_len(object, length(&stat));
                size.bytes = size.bytes.max(end);
                size.blocks += u64::try_from(stat.st_blocks).unwrap_or(0);
            }
        }
        Ok(size)
    }

    /// Reads what is there; zeros up to the end of the file.
    pub fn read(
        &self,
        name: BorrowedFd<'_>,
        object: u16,
        offset: u64,
        to: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        let wanted = total(to.iter().map(|part| part.len()));
        let got = self.read_existing(object, offset, to)?;
        if got == wanted {
            return Ok(got);
        }
        // Once more, now that the size is known: what was written before it grew must not be read as zeros.
        let end = self.geometry.object_len(object, self.size()?.bytes);
        let got = self.read_existing(object, offset, to)?;
        let within = end.saturating_sub(offset).min(wanted as u64) as usize;
        if within > 0 && self.existing(object)?.is_none() {
            is_hole(name)?;
        }
        zero(to, got, within);
        Ok(got.max(within))
    }

    fn read_existing(
        &self,
        object: u16,
        offset: u64,
        to: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        match self.existing(object)? {
            Some(existing) => Ok(retry(|| rustix::io::preadv(existing, to, offset))?),
            None => Ok(0),
        }
    }

    /// Reads from the page cache. Where an object ends, the file need not: that is for those who can wait to find out.
    pub fn read_now(&self, object: u16, offset: u64, to: &mut [IoSliceMut<'_>]) -> io::Result<Now> {
        let would_block = || io::Error::from(io::ErrorKind::WouldBlock);
        let slot = self.open.get(usize::from(object));
        let opened = slot.and_then(OnceLock::get).ok_or_else(would_block)?;
        match rustix::io::preadv2(opened, to, offset, ReadWriteFlags::NOWAIT) {
            Ok(0) if to.iter().any(|part| !part.is_empty()) => Err(would_block()),
            Ok(bytes) => Ok(Now { bytes, end: false }),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                Err(io::ErrorKind::Unsupported.into())
            }
            Err(other) => Err(other.into()),
        }
    }

    pub fn write(
        &self,
        name: BorrowedFd<'_>,
        object: u16,
        offset: u64,
        from: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        let bytes = total(from.iter().map(|part| part.len())) as u64;
        if self.geometry.file_len(object, offset.saturating_add(bytes)) > LARGEST {
            return Err(Errno::FBIG.into());
        }
        let made = self.made(name, object)?;
        Ok(retry(|| rustix::io::pwritev(made, from, offset))?)
    }

    /// Writes in the order of bytes, so that the file never ends behind what is not written yet.
    pub fn write_at(&self, name: BorrowedFd<'_>, offset: u64, from: &[u8]) -> io::Result<usize> {
        let mut done = 0;
        for (object, range) in self.geometry.split(Range::at(offset, from.len() as u64)) {
            let part = &from[done..done + range.len() as usize];
            match self.write(name, object, range.start(), &[IoSlice::new(part)]) {
                Ok(wrote) => done += wrote,
                Err(error) if done == 0 => return Err(error),
                Err(_) => return Ok(done),
            }
            if done < from.len() && self.is_short(offset + done as u64) {
                return Ok(done);
            }
        }
        Ok(done)
    }

    /// Whether a write stopped there although its stripe goes on.
    fn is_short(&self, end: u64) -> bool {
        !end.is_multiple_of(self.geometry.stripe)
    }

    pub fn set_len(&self, name: BorrowedFd<'_>, bytes: u64) -> io::Result<()> {
        for (object, _) in self.all() {
            let len = self.geometry.object_len(object, bytes);
            if let Some(existing) = self.existing(object)?
                && length(&rustix::fs::fstat(existing)?) > len
            {
                rustix::fs::ftruncate(existing, len)?;
            }
        }
        match bytes.checked_sub(1) {
            Some(last) => self.extend(name, last),
            None => Ok(()),
        }
    }

    /// Makes the object long enough that has this byte, the last.
    fn extend(&self, name: BorrowedFd<'_>, last: u64) -> io::Result<()> {
        let Some((object, byte)) = self.geometry.split(Range::at(last, 1)).next() else {
            return Ok(());
        };
        let made = self.made(name, object)?;
        if length(&rustix::fs::fstat(made)?) < byte.end() {
            rustix::fs::ftruncate(made, byte.end())?;
        }
        Ok(())
    }

    pub fn sync(&self, how: Durable) -> io::Result<()> {
        for (object, server) in self.all() {
            if let Some(existing) = self.existing(object)? {
                sync(existing, how)?;
                self.set.servers.sync_name(server, self.record.object)?;
            }
        }
        Ok(())
    }
}

/// An object that is not there is a hole; not if the file, of this `name`, was removed, through another node: then it may
/// have been there.
fn is_hole(name: BorrowedFd<'_>) -> io::Result<()> {
    match rustix::fs::fstat(name)?.st_nlink {
        0 => Err(Errno::STALE.into()),
        _ => Ok(()),
    }
}

fn length(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

fn total(parts: impl Iterator<Item = usize>) -> usize {
    parts.sum()
}

/// Sets the bytes `from..to` of all parts together to zero.
fn zero(parts: &mut [IoSliceMut<'_>], from: usize, to: usize) {
    let mut start = 0;
    for part in parts {
        let end = start + part.len();
        let (first, last) = (from.clamp(start, end), to.clamp(start, end));
        if first < last {
            part[first - start..last - start].fill(0);
        }
        start = end;
    }
}
