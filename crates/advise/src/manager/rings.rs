//! Rings of io_uring: programs use them by system calls of their own (liburing has the instructions in it), which nobody sees
//! from inside. From outside a ring is a descriptor that says so.
//!
//! Each process is looked at soon after it has begun, and then more and more rarely: most set their rings up early, and a
//! look takes some microseconds for each file that is open.

use presagio_core::Nanos;
use std::collections::BTreeMap;
use std::path::Path;

/// After the first look; each time as long as before, and again, up to the second.
const AGAIN: Nanos = Nanos::from_millis(200);
const AGAIN_DOUBLINGS_MAX: u32 = 8;
/// Processes that are looked at in one go, and descriptors of one.
const AT_ONCE: usize = 16;
const DESCRIPTORS_MAX: usize = 1024;

/// See the module's header.
#[derive(Debug, Default)]
pub(super) struct Rings {
    /// When each process is looked at next, and how often it was.
    due: BTreeMap<u32, (Nanos, u32)>,
    /// How many processes were found to have one.
    pub found: u64,
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
    pub fn look(&mut self, now: Nanos, has_ring: impl Fn(u32) -> bool) {
        let due = self.due.iter().filter(|(_, (at, _))| *at <= now);
        let due: Vec<(u32, u32)> = due.map(|(pid, (_, looks))| (*pid, *looks)).collect();
        for (pid, looks) in due.into_iter().take(AT_ONCE) {
            if has_ring(pid) {
                self.found += 1;
                self.due.remove(&pid);
            } else {
                let wait = Nanos(AGAIN.0 << looks.min(AGAIN_DOUBLINGS_MAX));
                self.due.insert(pid, (now + wait, looks + 1));
            }
        }
    }
}

/// Whether a process has a ring open.
pub(super) fn has_ring(pid: u32) -> bool {
    has_link(
        Path::new(&format!("/proc/{pid}/fd")),
        "anon_inode:[io_uring]",
    )
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
                pid == 2 && tenth > 20
            });
        }
        assert_eq!(rings.found, 1);
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
        (0..7).for_each(|round| rings.look(Nanos(round), |_| true));
        assert_eq!(rings.found, 100);
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
        assert!(!has_ring(std::process::id()));
        assert!(!has_ring(u32::MAX));
    }
}
