//! When loads were really done. A hint returns at once, so how long it took says nothing about the device; but a read
//! that had to wait for bytes which were asked for ends when they are there. Between two such moments the device has
//! done the loads that lie between them: a measurement of what it can do when it has enough to do.

use presagio_core::{Nanos, Range};
use std::collections::VecDeque;

/// Loads that are remembered: more than are ever underway.
const LOADS_MAX: usize = 256;

/// See the module's header.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    /// The loads that were asked for, in this order.
    loads: VecDeque<Load>,
    /// The one before the first of them was done then.
    done: Option<Nanos>,
    /// There is none before the first of them.
    is_first: bool,
}

#[derive(Clone, Copy, Debug)]
struct Load {
    range: Range,
    asked: Nanos,
    /// Bytes that were not in memory before.
    bytes: u64,
}

/// What the device did in some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    pub operations: u64,
    pub bytes: u64,
    pub took: Nanos,
}

impl Marks {
    /// For a device that has nothing to do.
    pub fn idle() -> Marks {
        Marks {
            is_first: true,
            ..Marks::default()
        }
    }

    /// A load is asked for.
    pub fn asked(&mut self, range: Range, now: Nanos) {
        let (asked, bytes) = (now, range.len());
        self.loads.push_back(Load {
            range,
            asked,
            bytes,
        });
        if self.loads.len() > LOADS_MAX {
            self.loads.pop_front();
            self.done = None;
            self.is_first = false;
        }
    }

    /// Whether nothing is underway, as far as is known.
    pub fn is_idle(&self) -> bool {
        self.loads.is_empty()
    }

    /// Some bytes of a load were in memory.
    pub fn found(&mut self, range: Range, already: u64) {
        let load = self.loads.iter_mut().rev().find(|l| l.range == range);
        if let Some(load) = load {
            load.bytes = load.bytes.saturating_sub(already);
        }
    }

    /// A read had to wait until then. What the device has done since the last one that had to, if that is known.
    pub fn waited(&mut self, range: Range, until: Nanos, operation_max: u64) -> Option<Work> {
        let last = self.loads.iter().rposition(|l| l.range.overlaps(range))?;
        let done: Vec<Load> = self.loads.drain(..=last).collect();
        let before = self.done.replace(until);
        let before = before.or(self.is_first.then_some(Nanos::ZERO))?;
        // If nothing was underway, the device waited for us.
        let began = before.max(done[0].asked);
        Some(Work {
            operations: done.iter().map(|l| l.bytes.div_ceil(operation_max)).sum(),
            bytes: done.iter().map(|l| l.bytes).sum(),
            took: until.since(began),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn load(number: u64) -> Range {
        Range::at(number * MIB, MIB)
    }

    #[test]
    fn two_reads_that_waited_tell_what_was_done_between_them() {
        let mut marks = Marks::default();
        (0..8).for_each(|n| marks.asked(load(n), Nanos(100)));
        assert_eq!(marks.waited(load(1), Nanos(1000), MIB), None, "since when?");
        let work = marks.waited(load(4), Nanos(1600), MIB).unwrap();
        let expected = Work {
            operations: 3,
            bytes: 3 * MIB,
            took: Nanos(600),
        };
        assert_eq!(work, expected);
        assert_eq!(marks.waited(load(3), Nanos(1700), MIB), None, "known");
    }

    #[test]
    fn the_first_read_that_waited_tells_something_if_nothing_was_underway_before() {
        let mut marks = Marks::idle();
        (0..8).for_each(|n| marks.asked(load(n), Nanos(100)));
        let work = marks.waited(load(1), Nanos(1000), MIB).unwrap();
        assert_eq!((work.took, work.bytes), (Nanos(900), 2 * MIB));
        let mut marks = Marks::idle();
        (0..=LOADS_MAX as u64).for_each(|n| marks.asked(load(n), Nanos(100)));
        assert_eq!(marks.waited(load(5), Nanos(1000), MIB), None);
    }

    #[test]
    fn a_device_that_had_nothing_to_do_is_not_called_slow() {
        let mut marks = Marks::default();
        marks.asked(load(0), Nanos(0));
        marks.waited(load(0), Nanos(100), MIB);
        marks.asked(load(1), Nanos(5000));
        let work = marks.waited(load(1), Nanos(5100), MIB / 2).unwrap();
        assert_eq!((work.took, work.operations), (Nanos(100), 2));
    }

    #[test]
    fn what_was_in_memory_does_not_count() {
        let mut marks = Marks::default();
        (0..3).for_each(|n| marks.asked(load(n), Nanos(0)));
        marks.found(load(1), MIB);
        marks.waited(load(0), Nanos(100), MIB);
        let work = marks.waited(load(2), Nanos(200), MIB).unwrap();
        assert_eq!((work.bytes, work.operations), (MIB, 1));
    }
}
