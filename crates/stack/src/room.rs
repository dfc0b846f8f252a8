//! How much of the tables is in use. Most programs have few contexts, and each page that is touched costs them a microsecond or
//! two: so tables are small at first, and grow when something would have to be given up for something new.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The sets of each table.
pub(crate) const SETS: usize = 2048;
/// Those that are in use at first.
pub(crate) const FIRST: usize = 8;
const GROWTH: usize = 2;

/// How many sets are in use.
pub(crate) struct Room(AtomicUsize);

impl Room {
    pub(crate) const fn new() -> Room {
        Room(AtomicUsize::new(FIRST))
    }

    /// The set of a hash. As tables grow it is another one for most: they are found anew, which is all that it costs.
    #[inline(always)]
    pub(crate) fn set(&self, hash: u64) -> usize {
        hash as usize & (self.0.load(Relaxed) - 1) & (SETS - 1)
    }

    #[cold]
    pub(crate) fn grow(&self) {
        let now = self.0.load(Relaxed);
        if now < SETS {
            // Where two threads have no room at the same time, it grows once.
            let more = (now * GROWTH).min(SETS);
            let _ = self.0.compare_exchange(now, more, Relaxed, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_grows_to_all_there_is_and_no_further() {
        let room = Room::new();
        let used = |room: &Room| (0..1 << 16).map(|hash| room.set(hash)).max().unwrap() + 1;
        assert_eq!(used(&room), FIRST);
        for _ in 0..20 {
            room.grow();
        }
        assert_eq!(used(&room), SETS);
    }
}
