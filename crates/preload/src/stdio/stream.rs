//! What a stream looks like inside, and what changed about it during a call.
//!
//! A call entered the kernel if the buffer does not account for what it did: bytes were taken that were not there, or
//! put that are not there now. Then the kernel is asked for the position, and what lies between the position before and the one
//! after was moved. Each byte is told exactly once that way, even where threads share a stream.

use super::exit;
use crate::descriptors::{self, Descriptor};
use crate::watch::Watch;
use libc::FILE;
use presagio_arena::sys;
use presagio_core::Action;

/// The beginning of glibc's `FILE`, whose layout is part of its binary interface.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Inside {
    flags: i32,
    read_ptr: usize,
    read_end: usize,
    read_base: usize,
    write_base: usize,
    write_ptr: usize,
    write_end: usize,
    buf_base: usize,
    buf_end: usize,
    save_base: usize,
    backup_base: usize,
    save_end: usize,
    markers: usize,
    chain: usize,
    fileno: i32,
    flags2: i32,
    old_offset: i64,
    column: u16,
    vtable_offset: i8,
    shortbuf: i8,
    lock: usize,
    offset: i64,
    codecvt: usize,
    wide: usize,
    freeres_list: usize,
    freeres_buf: usize,
    pad: usize,
    mode: i32,
}

/// The high half of `flags` of every stream.
const MAGIC: u32 = 0xfbad_0000;
const UNBUFFERED: i32 = 0x2;
const NO_READS: i32 = 0x4;
const IN_BACKUP: i32 = 0x100;
const LINE_BUFFERED: i32 = 0x200;
/// Bytes are being put; otherwise the pointers of writing mean nothing.
const PUTTING: i32 = 0x800;

impl Inside {
    /// Bytes that were put and not written yet.
    #[inline(always)]
    pub fn pending(&self) -> usize {
        if self.flags & PUTTING == 0 {
            return 0;
        }
        self.write_ptr.saturating_sub(self.write_base)
    }

    /// Bytes that were read and not taken yet. After an `ungetc` the pushed-back ones stand in a place of their own, before those
    /// of the buffer.
    #[inline(always)]
    fn available(&self) -> usize {
        let here = self.read_end.saturating_sub(self.read_ptr);
        if self.flags & IN_BACKUP != 0 {
            return here + self.save_end.saturating_sub(self.save_base);
        }
        here
    }

    /// Bytes of the file that the buffer holds.
    fn held(&self) -> usize {
        self.read_end.saturating_sub(self.read_base)
    }

    /// Whether bytes that are put can stay where they are.
    #[inline(always)]
    fn keeps(&self, n: usize) -> bool {
        self.flags & (UNBUFFERED | LINE_BUFFERED) == 0
            && self.write_end.saturating_sub(self.write_ptr) >= n
    }

    /// Where pending bytes will be written, if the kernel's position is this. A stream that has been read from goes back
    /// first, from the end of what was read to where writing began.
    pub fn writes_at(&self, position: u64) -> u64 {
        if self.read_end == 0 {
            return position;
        }
        position.wrapping_add(self.write_base.wrapping_sub(self.read_end) as u64)
    }

    /// How far the kernel's position is ahead of where the next write goes, because the stream was read from.
    #[inline(always)]
    fn ahead(&self) -> usize {
        let next = if self.pending() > 0 {
            self.write_base
        } else {
            self.read_ptr
        };
        self.read_end.saturating_sub(next)
    }

    /// What a seek to `position` read in vain: the block around it, where the file ends before it.
    fn read_in_vain(&self, position: u64, size: u64) -> (u64, usize) {
        let block = self.buf_end.saturating_sub(self.buf_base) as u64;
        if self.flags & NO_READS != 0 || !block.is_power_of_two() {
            return (0, 0);
        }
        let start = position & !(block - 1);
        let end = size.min(start.saturating_add(block));
        if end < position {
            (end, end.saturating_sub(start) as usize)
        } else {
            (0, 0)
        }
    }

    /// Whether it is a stream on this descriptor at all.
    pub fn is_on(&self, fd: i32) -> bool {
        self.flags as u32 & 0xffff_0000 == MAGIC && self.fileno == fd
    }

    /// Whether there is nothing to flush: neither bytes to be written nor such that could be given back.
    #[inline(always)]
    pub fn is_idle(&self) -> bool {
        self.pending() == 0 && self.available() == 0 && !self.is_wide()
    }

    /// Wide streams have another buffer before this one.
    #[inline(always)]
    fn is_wide(&self) -> bool {
        self.mode > 0
    }

    /// Whether it is wide, or will be if its first call makes it so.
    #[inline(always)]
    fn may_be_wide(&self) -> bool {
        self.mode >= 0
    }
}

/// Looks inside.
///
/// # Safety
///
/// A stream of the C library that is open.
#[inline(always)]
pub unsafe fn inside(stream: *mut FILE) -> &'static Inside {
    // SAFETY: as the caller vouches; read only, and only numbers.
    unsafe { &*stream.cast::<Inside>() }
}

/// The descriptor, negative for streams that have none.
///
/// # Safety
///
/// As for [`inside`], or null.
#[inline(always)]
pub unsafe fn descriptor(stream: *mut FILE) -> i32 {
    if stream.is_null() {
        return -1;
    }
    // SAFETY: as the caller vouches.
    unsafe { inside(stream) }.fileno
}

/// What a call did, as far as its result tells.
#[derive(Clone, Copy)]
pub enum Did {
    /// Put this many bytes.
    Put(usize),
    /// Took this many bytes.
    Took(usize),
    /// Put something.
    PutSome,
    /// Took something.
    TookSome,
}

/// What a call is going to do.
#[derive(Clone, Copy)]
pub enum Will {
    /// Put this many bytes, or about that.
    Put(usize),
    /// Take this many bytes at most.
    Take(usize),
    /// Write what is pending.
    Flush,
}

/// A call on the stream of a followed file, before it is made.
pub struct Before {
    stream: *mut FILE,
    fd: i32,
    pending: usize,
    available: usize,
    /// How far the kernel's position is ahead of where the next write goes.
    ahead: usize,
    /// Bytes that were to be put, or about that.
    put: usize,
    /// Where the next write goes, if neither the position nor the buffer will tell.
    start: Option<u64>,
    /// Only where the kernel is likely to be entered: a clock costs more than a small write.
    watch: Option<Watch>,
}

/// The call is about to be made; `None` if the file is not followed.
///
/// # Safety
///
/// As for [`descriptor`].
#[inline(always)]
pub unsafe fn before(stream: *mut FILE, will: Will) -> Option<Before> {
    // SAFETY: as the caller vouches.
    let fd = unsafe { descriptor(stream) };
    let file = descriptors::followed(fd)?;
    // SAFETY: not null, or it would have no followed file.
    let inside = unsafe { inside(stream) };
    let (enters, put) = match will {
        Will::Put(n) => {
            file.set_stream(fd, stream);
            (!inside.keeps(n), n)
        }
        Will::Take(n) => (inside.available() < n, 0),
        Will::Flush => {
            file.set_stream(fd, stream);
            (true, 0)
        }
    };
    let puts = !matches!(will, Will::Take(_));
    Some(Before {
        stream,
        fd,
        pending: inside.pending(),
        available: inside.available(),
        ahead: inside.ahead(),
        put,
        start: if puts && inside.may_be_wide() {
            start_of_wide(file, fd)
        } else {
            None
        },
        watch: if enters { Watch::begin(fd) } else { None },
    })
}

/// Where wide characters will be written, if that is not the position that we know: others move it, or the first bytes go to the
/// end, wherever it is.
#[cold]
#[inline(never)]
fn start_of_wide(file: &Descriptor, fd: i32) -> Option<u64> {
    (file.appends() || file.is_shared()).then(|| file.next_write(fd))
}

impl Before {
    /// The call was made.
    ///
    /// # Safety
    ///
    /// The stream is still open.
    #[inline(always)]
    pub unsafe fn after(self, did: Did) {
        // SAFETY: as the caller vouches.
        let inside = unsafe { inside(self.stream) };
        if exit::has_begun() {
            exit::put(&self, did);
        } else if self.entered(inside, did) {
            self.report(inside, did);
        }
    }

    /// Whether the buffer does not account for what the call did.
    #[inline(always)]
    fn entered(&self, inside: &Inside, did: Did) -> bool {
        if inside.is_wide() {
            return true;
        }
        match did {
            // Flushing a stream that was read from puts nothing, but gives back what was not taken.
            Did::Put(n) => {
                self.pending.wrapping_add(n) != inside.pending() || n == 0 && self.available > 0
            }
            Did::Took(n) => {
                n > self.available
                    || n.wrapping_add(inside.available()) != self.available
                    || self.pending != inside.pending()
            }
            Did::PutSome | Did::TookSome => true,
        }
    }

    /// The descriptor.
    pub fn fd(&self) -> i32 {
        self.fd
    }

    /// What to report with.
    pub fn watch(self) -> Option<Watch> {
        self.watch.or_else(|| Watch::begin(self.fd))
    }

    #[cold]
    #[inline(never)]
    fn report(self, inside: &Inside, did: Did) {
        let (pending, available, ahead) = (self.pending, self.available, self.ahead);
        let (put, start) = (self.put, self.start);
        let Some(watch) = self.watch() else {
            return;
        };
        let file = watch.descriptor;
        let (was, now) = file.settle(watch.fd);
        let was = start.unwrap_or(was);
        let moved = now.saturating_sub(was) as usize;
        // Where others move the position too, or the first write goes to the end, the buffer has to tell.
        let by_buffer = file.is_shared() || file.appends();
        match did {
            // What the other buffer held is in neither count.
            Did::Put(_) | Did::PutSome if inside.is_wide() => {
                watch.placed(Action::Write, now, moved);
            }
            Did::Put(n) => {
                let flushed = pending.saturating_add(n).saturating_sub(inside.pending());
                let written = if by_buffer || ahead > 0 {
                    flushed
                } else {
                    moved
                };
                watch.placed(Action::Write, now, written);
            }
            // It failed: no more was written than there was.
            Did::PutSome if by_buffer => {
                let most = pending.saturating_add(put);
                watch.placed(Action::Write, now, moved.min(most));
            }
            Did::PutSome => watch.placed(Action::Write, now, moved),
            Did::Took(_) | Did::TookSome => {
                let read = match did {
                    Did::Took(n) if by_buffer => n
                        .saturating_add(inside.available())
                        .saturating_sub(available),
                    // What is pending is written before, and for that the position goes back.
                    _ if pending > 0 => now
                        .saturating_add(ahead as u64)
                        .saturating_sub(was.saturating_add(pending as u64))
                        as usize,
                    _ => moved,
                };
                // What was put before was written before.
                let flushed = pending.saturating_sub(inside.pending());
                watch.placed(Action::Write, now.saturating_sub(read as u64), flushed);
                watch.placed(Action::Read, now, read);
            }
        }
    }
}

/// Where the stream's pending bytes go when it is flushed.
pub fn flushes_at(inside: &Inside, file: &Descriptor, fd: i32) -> u64 {
    let place = file.next_write(fd);
    if file.appends() {
        place
    } else {
        inside.writes_at(place)
    }
}

/// The stream of a followed file before a seek, which writes what is pending and may read a block at the new place.
pub struct BeforeSeek {
    stream: *mut FILE,
    watch: Watch,
    pending: usize,
    flushes_at: u64,
    read_end: usize,
    /// What the C library thinks the position is, negative if it does not know.
    offset: i64,
}

/// A seek is about to be made; `None` if the file is not followed.
///
/// # Safety
///
/// As for [`descriptor`].
pub unsafe fn before_seek(stream: *mut FILE) -> Option<BeforeSeek> {
    // SAFETY: as the caller vouches.
    let watch = Watch::begin(unsafe { descriptor(stream) })?;
    // SAFETY: not null, or it would have no followed file.
    let inside = unsafe { inside(stream) };
    let pending = inside.pending();
    let flushes_at = if pending > 0 {
        flushes_at(inside, watch.descriptor, watch.fd)
    } else {
        0
    };
    Some(BeforeSeek {
        stream,
        pending,
        flushes_at,
        read_end: inside.read_end,
        offset: inside.offset,
        watch,
    })
}

impl BeforeSeek {
    /// The call was made.
    ///
    /// # Safety
    ///
    /// The stream is still open.
    pub unsafe fn after(self) {
        if exit::has_begun() {
            return;
        }
        // SAFETY: as the caller vouches.
        let inside = unsafe { inside(self.stream) };
        let flushed = self.pending.saturating_sub(inside.pending());
        let (was, now) = self.watch.descriptor.settle(self.watch.fd);
        let end = self.flushes_at.saturating_add(flushed as u64);
        self.watch.placed(Action::Write, end, flushed);
        // A place that the buffer has is found without the kernel: then nothing about it changed.
        let before = if flushed > 0 { end } else { was };
        let is_same = now == before && inside.read_end == self.read_end && self.offset >= 0;
        if is_same {
            return;
        }
        if inside.held() > 0 {
            return self.watch.placed(Action::Read, now, inside.held());
        }
        let size = sys::status(self.watch.fd).map_or(0, |stat| stat.st_size as u64);
        let (end, len) = inside.read_in_vain(now, size);
        self.watch.placed(Action::Read, end, len);
    }
}
