//! The plain case: the bytes are in the namespace's own files, and one data server has them all.

use crate::{Access, Bytes, Durable, Now, Piece, Pieces, Size, Storage};
use presagio_core::{QueueId, Range};
use rustix::io::{Errno, ReadWriteFlags};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A directory of a mounted file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Directory;

impl Storage for Directory {
    fn servers(&self) -> u32 {
        1
    }

    fn open(&self, opened: OwnedFd, _: Access) -> io::Result<Arc<dyn Bytes>> {
        Ok(Arc::new(Plain(opened)))
    }

    fn created(&self, _: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }

    fn size(&self, _: BorrowedFd<'_>) -> io::Result<Option<Size>> {
        Ok(None)
    }

    fn removed(&self, _: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }
}

/// An open file.
#[derive(Debug)]
struct Plain(OwnedFd);

impl Bytes for Plain {
    fn pieces(&self, range: Range) -> Pieces {
        let (object, queue) = (0, QueueId(0));
        Pieces::from_iter([Piece {
            object,
            queue,
            range,
        }])
    }

    fn read_now(&self, _: u16, offset: u64, to: &mut [IoSliceMut<'_>]) -> io::Result<Now> {
        let wanted: usize = to.iter().map(|part| part.len()).sum();
        let bytes = self.at_once(offset, to)?;
        let end = bytes < wanted && self.ends_at(offset + bytes as u64);
        Ok(Now { bytes, end })
    }

    fn read(&self, _: u16, offset: u64, to: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        Ok(retry(|| rustix::io::preadv(&self.0, to, offset))?)
    }

    fn write(&self, _: u16, offset: u64, from: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(retry(|| rustix::io::pwritev(&self.0, from, offset))?)
    }

    fn append(&self, from: &[u8]) -> io::Result<usize> {
        let from = [IoSlice::new(from)];
        let flags = ReadWriteFlags::APPEND;
        Ok(retry(|| rustix::io::pwritev2(&self.0, &from, 0, flags))?)
    }

    fn size(&self) -> io::Result<Option<Size>> {
        Ok(None)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        Ok(rustix::fs::ftruncate(&self.0, bytes)?)
    }

    fn sync(&self, how: Durable) -> io::Result<()> {
        sync(self.0.as_fd(), how)
    }

    fn descriptor(&self, _: u16) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }

    fn name(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Plain {
    fn at_once(&self, offset: u64, to: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match rustix::io::preadv2(&self.0, to, offset, ReadWriteFlags::NOWAIT) {
            // Not every file system can say that it would wait: there, all reads are patient ones.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                Err(io::ErrorKind::Unsupported.into())
            }
            other => Ok(other?),
        }
    }

    /// Whether a byte there is missing because the file has no more, not because the cache has not.
    fn ends_at(&self, offset: u64) -> bool {
        let mut byte = [0];
        let mut to = [IoSliceMut::new(&mut byte)];
        self.at_once(offset, &mut to).is_ok_and(|bytes| bytes == 0)
    }
}

/// A signal is no reason to stop.
pub(crate) fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

pub(crate) fn sync(file: BorrowedFd<'_>, how: Durable) -> io::Result<()> {
    match how {
        Durable::Data => rustix::fs::fdatasync(file)?,
        Durable::All => rustix::fs::fsync(file)?,
    }
    Ok(())
}
