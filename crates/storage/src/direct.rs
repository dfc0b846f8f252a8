//! Past the page cache: bytes go straight between the node's memory and the device (`O_DIRECT`).
//!
//! For devices that are faster than a copy, and for data that nobody reads twice: the page cache is left to others.
//! The kernel moves whole blocks only, from and to memory at certain addresses; what they have to be multiples of, the
//! file system says (`STATX_DIOALIGN`). Requests are not so. So
//!
//! * a read takes the blocks that it touches, into memory of its own if need be, and passes on what was asked for;
//! * a write of whole blocks goes straight to the device;
//! * any other write, and every append and cut, goes through the page cache.
//!
//! *Order.* Linux writes back what is in the page cache before it reads the same place directly, and throws away what it
//! has there when that place is written directly. What it does not exclude everywhere is a write through the cache that
//! has taken a block in just before somebody wrote that block directly, and puts the old bytes back. So in this
//! process writes of whole blocks share a lock of the file, and those through the cache have it alone. Between nodes, and
//! with programs beside the node, it is as the file system has it.
//!
//! A file that cannot be opened so (its file system cannot, or whoever made it took its own permissions away) goes
//! through the page cache.

use crate::directory::retry;
use crate::{Access, Bytes, Durable, Now, Pieces, Size, Storage};
use presagio_core::Range;
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

/// Where a file system does not say what it wants: a page satisfies all that are known.
const PAGE: usize = 4096;

/// A storage whose files are read and written past the page cache. The bytes have to be in the namespace's own files.
pub struct Direct {
    inner: Arc<dyn Storage>,
    files: Mutex<Files>,
}

/// The order of writes to each file that is open.
#[derive(Default)]
struct Files {
    open: HashMap<(u64, u64), Weak<RwLock<()>>>,
    /// How many there may be before those that are closed are looked for.
    enough: usize,
}

impl Direct {
    /// The same as `inner`, past the page cache.
    pub fn new(inner: Arc<dyn Storage>) -> Direct {
        let files = Mutex::default();
        Direct { inner, files }
    }

    /// Whether files in `directory` can be had so. Where the file system has no files without a name, that shows only with
    /// each file.
    pub fn is_possible(directory: &Path) -> io::Result<bool> {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let open = |flags| rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR);
        match open(flags | OFlags::DIRECT) {
            Ok(file) => Ok(Alignment::of(file.as_fd()).is_some()),
            Err(Errno::INVAL) => Ok(open(flags).is_err()),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::ROFS) => Ok(true),
            Err(other) => Err(other.into()),
        }
    }

    fn order(&self, file: BorrowedFd<'_>) -> io::Result<Arc<RwLock<()>>> {
        let stat = rustix::fs::fstat(file)?;
        let key = (stat.st_dev, stat.st_ino);
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(order) = files.open.get(&key).and_then(Weak::upgrade) {
            return Ok(order);
        }
        files.forget_closed();
        let order = Arc::default();
        files.open.insert(key, Arc::downgrade(&order));
        Ok(order)
    }
}

impl Files {
    fn forget_closed(&mut self) {
        if self.open.len() >= self.enough {
            self.open.retain(|_, order| order.strong_count() > 0);
            self.enough = (2 * self.open.len()).max(64);
        }
    }
}

impl Storage for Direct {
    fn is_private(&self) -> bool {
        self.inner.is_private()
    }

    fn servers(&self) -> u32 {
        self.inner.servers()
    }

    fn open(&self, opened: OwnedFd, access: Access) -> io::Result<Arc<dyn Bytes>> {
        let (order, straight) = (self.order(opened.as_fd())?, straight(&opened, access));
        let cached = self.inner.open(opened, access)?;
        Ok(match straight {
            Some((straight, alignment)) if cached.descriptor(0).is_some() => Arc::new(Straight {
                cached,
                straight,
                alignment,
                order,
            }),
            _ => cached,
        })
    }

    fn created(&self, opened: BorrowedFd<'_>) -> io::Result<()> {
        self.inner.created(opened)
    }

    fn size(&self, name: BorrowedFd<'_>) -> io::Result<Option<Size>> {
        self.inner.size(name)
    }

    fn removed(&self, name: BorrowedFd<'_>) -> io::Result<()> {
        self.inner.removed(name)
    }
}

/// The file of `opened`, opened once more, past the cache.
fn straight(opened: &OwnedFd, access: Access) -> Option<(OwnedFd, Alignment)> {
    let mode = match (access.read, access.write) {
        (_, false) => OFlags::RDONLY,
        (false, true) => OFlags::WRONLY,
        (true, true) => OFlags::RDWR,
    };
    let path = format!("/proc/self/fd/{}", opened.as_raw_fd());
    let flags = mode | OFlags::DIRECT | OFlags::CLOEXEC;
    let straight = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let alignment = Alignment::of(straight.as_fd())?;
    Some((straight, alignment))
}

/// What addresses, offsets and lengths have to be multiples of: powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Alignment {
    memory: usize,
    offset: usize,
}

impl Alignment {
    /// What the file system says; `None` if it says that nothing will do.
    fn of(file: BorrowedFd<'_>) -> Option<Alignment> {
        let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
        if stat.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
            let (memory, offset) = (PAGE, PAGE);
            return Some(Alignment { memory, offset });
        }
        let (memory, offset) = (stat.stx_dio_mem_align, stat.stx_dio_offset_align);
        (memory > 0 && offset > 0).then_some(Alignment {
            memory: memory as usize,
            offset: offset as usize,
        })
    }

    fn fits<'a>(self, offset: u64, parts: impl IntoIterator<Item = &'a [u8]>) -> bool {
        let is_aligned = |part: &[u8]| {
            (part.as_ptr() as usize).is_multiple_of(self.memory)
                && part.len().is_multiple_of(self.offset)
        };
        offset.is_multiple_of(self.offset as u64) && parts.into_iter().all(is_aligned)
    }
}

/// An open file, past the cache and through it.
struct Straight {
    cached: Arc<dyn Bytes>,
    straight: OwnedFd,
    alignment: Alignment,
    /// Shared by writes past the cache, had alone by all that changes the file through it.
    order: Arc<RwLock<()>>,
}

impl Straight {
    fn shared(&self) -> RwLockReadGuard<'_, ()> {
        self.order.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn alone(&self) -> RwLockWriteGuard<'_, ()> {
        self.order.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the blocks that a range touches, and passes on what is wanted of them.
    fn read_around(&self, offset: u64, to: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let block = self.alignment.offset as u64;
        let wanted: usize = to.iter().map(|part| part.len()).sum();
        let head = (offset % block) as usize;
        let mut room = Room::new(
            (head + wanted).next_multiple_of(block as usize),
            self.alignment,
        );
        let start = offset - head as u64;
        let got = retry(|| rustix::io::pread(&self.straight, room.bytes(), start))?;
        let got = got.min(head + wanted);
        if got <= head && got > 0 && wanted > 0 && self.has_more_than(offset)? {
            // Something lies between that cannot be read: what, the cache finds out.
            return self.cached.read(0, offset, to);
        }
        let mut rest = room.bytes().get(head..got).unwrap_or(&[]);
        let all = rest.len();
        for part in to {
            let (now, later) = rest.split_at(rest.len().min(part.len()));
            part[..now.len()].copy_from_slice(now);
            rest = later;
        }
        Ok(all)
    }

    fn has_more_than(&self, bytes: u64) -> io::Result<bool> {
        let size = rustix::fs::fstat(&self.straight)?.st_size;
        Ok(u64::try_from(size).is_ok_and(|size| size > bytes))
    }
}

impl Bytes for Straight {
    fn pieces(&self, range: Range) -> Pieces {
        self.cached.pieces(range)
    }

    fn places(&self, object: u16, range: Range) -> Pieces {
        self.cached.places(object, range)
    }

    fn read_now(&self, _: u16, _: u64, _: &mut [IoSliceMut<'_>]) -> io::Result<Now> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn read(&self, object: u16, offset: u64, to: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let read = match self.alignment.fits(offset, to.iter().map(|part| &**part)) {
            true => retry(|| rustix::io::preadv(&self.straight, to, offset)).map_err(Into::into),
            false => self.read_around(offset, to),
        };
        match read {
            Err(error) if is_misaligned(&error) => self.cached.read(object, offset, to),
            read => read,
        }
    }

    fn write(&self, object: u16, offset: u64, from: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.alignment.fits(offset, from.iter().map(|part| &**part)) {
            let _shared = self.shared();
            match retry(|| rustix::io::pwritev(&self.straight, from, offset)) {
                Err(Errno::INVAL) => {}
                wrote => return Ok(wrote?),
            }
        }
        let _alone = self.alone();
        self.cached.write(object, offset, from)
    }

    fn append(&self, from: &[u8]) -> io::Result<usize> {
        let _alone = self.alone();
        self.cached.append(from)
    }

    fn size(&self) -> io::Result<Option<Size>> {
        self.cached.size()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let _alone = self.alone();
        self.cached.set_len(bytes)
    }

    fn sync(&self, how: Durable) -> io::Result<()> {
        self.cached.sync(how)
    }

    /// None: a ring would have to know what is aligned.
    fn descriptor(&self, _: u16) -> Option<BorrowedFd<'_>> {
        None
    }

    fn name(&self) -> BorrowedFd<'_> {
        self.cached.name()
    }
}

/// The file system wants other multiples than it said.
fn is_misaligned(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::INVAL.raw_os_error())
}

/// Memory for whole blocks.
struct Room {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Room {
    fn new(len: usize, alignment: Alignment) -> Room {
        let memory = vec![0; len + alignment.memory];
        let start = memory.as_ptr() as usize;
        let start = start.next_multiple_of(alignment.memory) - start;
        Room { memory, start, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}
