//! Rings: what io_uring and the kernel's older asynchronous I/O (libaio's `io_submit`) are used by. Programs do so by system calls
//! of their own (liburing and libaio have the instructions in them), which nobody sees from inside. From outside a ring of io_uring
//! is a descriptor that says so, and one of the other a mapping.
//!
//! Each process is looked at soon after it has begun, and then more and more rarely: most set their rings up early, and a
//! look takes some microseconds for each file that is open.

use presagio_core::Nanos;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// After the first look; each time as long as before, and again, up to the second.
const AGAIN: Nanos = Nanos::from_millis(200);
const AGAIN_DOUBLINGS_MAX: u32 = 8;
/// Processes that are looked at in one go, and descriptors and mappings (bytes about them) of one.
const AT_ONCE: usize = 16;
const DESCRIPTORS_MAX: usize = 1024;
const MAPPINGS_MAX: u64 = 1 << 20;

/// What a ring is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ring {
    IoUring,
    Aio,
}

/// See the module's header.
#[derive(Debug, Default)]
pub(super) struct Rings {
    /// When each process is looked at next, and how often it was.
    due: BTreeMap<u32, (Nanos, u32)>,
    /// How many processes were found to have one of io_uring.
    pub io_uring: u64,
    /// And one of the older kind.
    pub aio: u64,
}

impl Rings {
    /// A process has begun.
    pub fn began(&mut self, pid: u32, now: Nanos) {
        self.due.entry(pid).or_insert((now, 0));
    }

    /// A process is gone.
    pub fn ended(&mut self, pid: u32) {
        self.due.remove(&pid);
    }

    /// Looks at those whose turn it is.
    pub fn look(&mut self, now: Nanos, ring_of: impl Fn(u32) -> Option<Ring>) {
        let due = self.due.iter().filter(|(_, (at, _))| *at <= now);
        let due: Vec<(u32, u32)> = due.map(|(pid, (_, looks))| (*pid, *looks)).collect();
        for (pid, looks) in due.into_iter().take(AT_ONCE) {
            let Some(ring) = ring_of(pid) else {
                let wait = Nanos(AGAIN.0 << looks.min(AGAIN_DOUBLINGS_MAX));
                self.due.insert(pid, (now + wait, looks + 1));
                continue;
            };
            self.due.remove(&pid);
            match ring {
                Ring::IoUring => self.io_uring += 1,
                Ring::Aio => self.aio += 1,
            }
        }
    }
}

/// The ring that a process has, if it has one.
pub(super) fn ring_of(pid: u32) -> Option<Ring> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    if has_link(&process.join("fd"), "anon_inode:[io_uring]") {
        return Some(Ring::IoUring);
    }
    let maps = File::open(process.join("maps")).ok()?;
    maps_aio(maps).then_some(Ring::Aio)
}

/// Whether there is a mapping that the kernel names so: an address, rights and the like, and a name.
fn maps_aio(maps: impl Read) -> bool {
    // Of a process that has ended meanwhile each try is an error.
    let lines = BufReader::new(maps.take(MAPPINGS_MAX)).split(b'\n');
    let is_aio = |line: Vec<u8>| {
        let mut fields = line.split(|byte| *byte == b' ').filter(|f| !f.is_empty());
        fields.nth(5).is_some_and(|name| name == b"/[aio]")
    };
    lines.map_while(Result::ok).any(is_aio)
}

fn has_link(directory: &Path, target: &str) -> bool {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut links = entries
        .take(DESCRIPTORS_MAX)
        .filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.any(|link| link.as_os_str() == target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn a_process_is_looked_at_soon_and_then_rarely_until_it_has_one() {
        let mut rings = Rings::default();
        rings.began(1, Nanos::ZERO);
        rings.began(2, Nanos::ZERO);
        let looked = RefCell::new(Vec::new());
        for tenth in 0..600u64 {
            rings.look(Nanos::from_millis(100 * tenth), |pid| {
                looked.borrow_mut().push(pid);
                (pid == 2 && tenth > 20).then_some(Ring::IoUring)
            });
        }
        assert_eq!((rings.io_uring, rings.aio), (1, 0));
        let looked = looked.into_inner();
        assert_eq!(looked[..2], [1, 2]);
        let first = looked.iter().filter(|pid| **pid == 1).count();
        assert!((8..=10).contains(&first), "{first}");
        rings.ended(1);
        assert!(rings.due.is_empty());
    }

    #[test]
    fn of_many_all_have_their_turn() {
        let mut rings = Rings::default();
        (0..100).for_each(|pid| rings.began(pid, Nanos::ZERO));
        (0..7).for_each(|round| rings.look(Nanos(round), |_| Some(Ring::Aio)));
        assert_eq!((rings.io_uring, rings.aio), (0, 100));
    }

    #[test]
    fn a_descriptor_says_what_it_is() {
        let here = tempfile::tempdir().unwrap();
        let link = |to: &str, name: &str| {
            std::os::unix::fs::symlink(to, here.path().join(name)).unwrap();
        };
        link("/data", "3");
        assert!(!has_link(here.path(), "anon_inode:[io_uring]"));
        link("anon_inode:[io_uring]", "4");
        assert!(has_link(here.path(), "anon_inode:[io_uring]"));
        assert_eq!(ring_of(u32::MAX), None);
    }

    struct Gone;

    impl Read for Gone {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::NotFound.into())
        }
    }

    #[test]
    fn a_mapping_says_what_it_is() {
        let other = "7f0000000000-7f0000001000 rw-p 00000000 00:10 7   /data/[aio] (deleted)\n\n";
        assert!(!maps_aio(other.as_bytes()));
        let aio = "7f0000002000-7f0000004000 rw-s 00000000 00:0f 9   /[aio] (deleted)\n";
        assert!(maps_aio([other, aio].concat().as_bytes()));
        assert!(!maps_aio(&b""[..]));
        assert!(!maps_aio(Gone), "it has ended");
    }

    #[test]
    fn a_process_that_submits_to_the_kernel_by_itself_is_noticed() {
        let myself = std::process::id();
        let before = ring_of(myself);
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes the context, which lives until the call returns.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, 4, &raw mut context) };
        if made != 0 || before.is_some() {
            println!("skipped: this kernel has no such rings, or somebody else here has one");
            return;
        }
        assert_eq!(ring_of(myself), Some(Ring::Aio));
        // SAFETY: made above, and nothing is under way in it.
        unsafe { libc::syscall(libc::SYS_io_destroy, context) };
        assert_eq!(ring_of(myself), None);
    }
}
