//! Lustre: the client ignores `WILLNEED`, so ranges are read by force (which takes the locks they need); beforehand
//! `ladvise` tells the servers, so that their disks are at work when our reads arrive.
//!
//! `ladvise` is an ioctl with a header and a list of advices, of which we send one:
//!
//! ```text
//! header   0  u32  magic 0x1ADF1CE0        advice   0  u16  1: will read, 2: not needed
//!          4  u32  number of advices                2  u16  unused
//!          8  u64  flags, 1: do not wait            4  u32  flags of this advice
//!         16  u32  unused                           8  u64  first byte
//!         20  u32  unused                          16  u64  byte behind the last
//!         24  u64  unused                          24  u32  unused
//!                                                  28  u32  unused
//! ```

use super::{Counts, HintBackend, Loaded, Target};
use presagio_core::Range;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const MAGIC: u32 = 0x1ADF_1CE0;
/// Return at once; the servers read while we go on.
const ASYNC: u64 = 1;
const WILL_READ: u16 = 1;

/// `_IOR('f', 250, advice)`: its size is that of one advice, without the header.
const LADVISE: libc::Ioctl = {
    let (read, size) = (2_u32, size_of::<Advice>() as u32);
    (read << 30 | size << 16 | (b'f' as u32) << 8 | 250) as libc::Ioctl
};

#[repr(C)]
struct Header {
    magic: u32,
    count: u32,
    flags: u64,
    unused: [u32; 4],
}

#[repr(C)]
struct Advice {
    advice: u16,
    unused: u16,
    flags: u32,
    start: u64,
    end: u64,
    unused_too: [u32; 2],
}

#[repr(C)]
struct Ladvise {
    header: Header,
    advice: Advice,
}

impl Ladvise {
    fn will_read(range: Range) -> Ladvise {
        Ladvise {
            header: Header {
                magic: MAGIC,
                count: 1,
                flags: ASYNC,
                unused: [0; 4],
            },
            advice: Advice {
                advice: WILL_READ,
                unused: 0,
                flags: 0,
                start: range.start(),
                end: range.end(),
                unused_too: [0; 2],
            },
        }
    }

    fn send(&mut self, file: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: Lustre's client reads and writes the structure within its length, and it lives until the call
        // returns. Other file systems do not know the number and touch nothing.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), LADVISE, std::ptr::from_mut(self)) };
        if result < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }
}

/// See the module's header.
#[derive(Debug, Default)]
pub struct Lustre {
    counts: Counts,
    /// An old client or server, or no Lustre at all: not worth another call.
    no_ladvise: AtomicBool,
}

impl HintBackend for Lustre {
    fn name(&self) -> &'static str {
        "lustre"
    }

    fn will_need(&self, file: &Target, range: Range) -> Loaded {
        let Some(pages) = file.pages(range) else {
            return Loaded::default();
        };
        self.tell_servers(file, pages);
        self.counts.add(file.force(pages, &self.counts))
    }

    /// Only on the client: what the servers keep is for others too.
    fn dont_need(&self, file: &Target, range: Range) {
        file.release(range, &self.counts);
    }

    fn counts(&self) -> &Counts {
        &self.counts
    }
}

impl Lustre {
    /// Quietly: without it, reads are only slower.
    fn tell_servers(&self, file: &Target, pages: Range) {
        if self.no_ladvise.load(Relaxed) {
            return;
        }
        self.counts.calls.fetch_add(1, Relaxed);
        if Ladvise::will_read(pages).send(file.file.as_fd()).is_err() {
            self.no_ladvise.store(true, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hints::testing::{at_last, cold_file};
    use crate::hints::{Storage, residency};
    use std::mem::offset_of;

    #[test]
    fn the_layout_is_the_documented_one() {
        assert_eq!(
            (
                size_of::<Header>(),
                size_of::<Advice>(),
                size_of::<Ladvise>()
            ),
            (32, 32, 64)
        );
        assert_eq!(offset_of!(Header, flags), 8);
        assert_eq!(
            (
                offset_of!(Advice, flags),
                offset_of!(Advice, start),
                offset_of!(Advice, end)
            ),
            (4, 8, 16)
        );
        assert_eq!(offset_of!(Ladvise, advice), 32);
        assert_eq!(LADVISE as u32, 0x8020_66fa, "_IOR('f', 250, 32 bytes)");
    }

    #[test]
    fn an_advice_has_these_bytes() {
        let advice = Ladvise::will_read(Range::at(0x1000, 0x2000));
        // SAFETY: the structure has no padding, so all of its bytes are initialised.
        let bytes: [u8; 64] = unsafe { std::mem::transmute(advice) };
        let mut expected = [0; 64];
        expected[..8].copy_from_slice(&[0xe0, 0x1c, 0xdf, 0x1a, 1, 0, 0, 0]);
        expected[8] = 1;
        expected[32] = 1;
        expected[41] = 0x10;
        expected[49] = 0x30;
        assert_eq!(bytes, expected);
    }

    #[test]
    fn elsewhere_ladvise_is_tried_once_and_the_read_is_done() {
        assert!(at_last(|| {
            let (lustre, target) = (Lustre::default(), cold_file(3 << 20));
            let first = lustre.will_need(&target, Range::at(0, 1 << 20));
            let second = lustre.will_need(&target, Range::at(1 << 20, 9 << 20));
            assert_eq!((first.there, second.there), (1 << 20, 2 << 20));
            let done = lustre.counts().done();
            assert_eq!((done.hints, done.calls, done.errors), (2, 1, 0));
            let cold = target.device.storage != Storage::Memory;
            let there = residency(&target.file, Range::at(0, 3 << 20)).unwrap();
            there == 3 << 20 && (done.bytes_forced == 3 << 20 || !cold)
        }));
    }
}
