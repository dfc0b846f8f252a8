//! Written data that nobody reads again is let go, where memory is short (off by default).
//!
//! Only pages that the kernel has written back can be released, and it does so after about half a minute by itself.
//! We wait for that rather than make it write earlier: neither durability nor the order of writes changes.

use crate::plan::{FileNumber, Hint, Reason};
use presagio_core::{Nanos, Range};
use std::collections::VecDeque;

/// The kernel writes dirty pages back after 30 s (`dirty_expire_centisecs`), looking every 5 s.
const CLEAN_AFTER: Nanos = Nanos::from_secs(40);
/// More is not remembered, and stays in memory.
const RANGES_MAX: usize = 4096;

/// What was written, the oldest first.
#[derive(Clone, Debug, Default)]
pub struct Written {
    ranges: VecDeque<(Nanos, FileNumber, Range)>,
}

impl Written {
    /// Bytes were written: neighbours become one.
    pub fn wrote(&mut self, file: FileNumber, range: Range, now: Nanos) {
        if let Some((time, last_file, last)) = self.ranges.back_mut()
            && *last_file == file
            && last.end() == range.start()
        {
            *last = Range::at(last.start(), range.end() - last.start());
            *time = now;
            return;
        }
        self.ranges.push_back((now, file, range));
        if self.ranges.len() > RANGES_MAX {
            self.ranges.pop_front();
        }
    }

    /// Bytes were read: they are wanted.
    pub fn read(&mut self, file: FileNumber, range: Range) {
        self.ranges
            .retain(|(_, of, r)| *of != file || !r.overlaps(range));
    }

    /// Lets go what is clean by now.
    pub fn plan(&mut self, now: Nanos, hints: &mut Vec<Hint>) {
        while let Some(&(time, file, range)) = self.ranges.front()
            && now.since(time) >= CLEAN_AFTER
        {
            self.ranges.pop_front();
            hints.push(Hint::Release {
                file,
                range,
                reason: Reason::Written,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_released_once_clean_and_what_was_read_again_is_kept() {
        let mut written = Written::default();
        let file = FileNumber(1);
        (0..10).for_each(|i| written.wrote(file, Range::at(i * 100, 100), Nanos(i)));
        written.wrote(file, Range::at(5000, 10), Nanos(10));
        written.read(file, Range::at(5005, 1));
        let mut hints = Vec::new();
        written.plan(Nanos::from_secs(39), &mut hints);
        assert!(hints.is_empty());
        written.plan(Nanos::from_secs(41), &mut hints);
        let whole = Range::at(0, 1000);
        assert!(matches!(hints[..], [Hint::Release { range, .. }] if range == whole));
    }
}
