//! The numbers of what must not be done twice.

use std::collections::BTreeSet;

/// How far the newest may be ahead of the oldest that is under way: a node keeps so many replies.
const WINDOW: u64 = 255;

/// Counts requests from 1, and knows up to which all replies were received.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    last: u64,
    open: BTreeSet<u64>,
}

impl Sequence {
    /// A new number, if there is room for it. Its reply has not been received.
    pub(super) fn draw(&mut self) -> Option<u64> {
        if self.last - self.settled() >= WINDOW {
            return None;
        }
        self.last += 1;
        self.open.insert(self.last);
        Some(self.last)
    }

    /// The reply to this number was received, or nobody wants it any more.
    pub(super) fn settle(&mut self, number: u64) {
        self.open.remove(&number);
    }

    /// All replies up to and including this one were received.
    pub(super) fn settled(&self) -> u64 {
        self.open.first().map_or(self.last, |first| first - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settled_stays_below_the_oldest_that_is_under_way() {
        let mut sequence = Sequence::default();
        assert_eq!(sequence.settled(), 0);
        for number in 1..4 {
            assert_eq!(sequence.draw(), Some(number));
        }
        sequence.settle(2);
        assert_eq!(sequence.settled(), 0);
        sequence.settle(1);
        assert_eq!(sequence.settled(), 2);
        sequence.settle(3);
        assert_eq!(sequence.settled(), 3);
        assert_eq!(sequence.draw(), Some(4));
        assert_eq!(sequence.settled(), 3);
    }

    #[test]
    fn no_number_is_further_ahead_than_replies_are_kept() {
        let mut sequence = Sequence::default();
        for _ in 0..WINDOW {
            sequence.draw().unwrap();
        }
        sequence.settle(2);
        assert_eq!(sequence.draw(), None);
        sequence.settle(1);
        assert_eq!(sequence.draw(), Some(WINDOW + 1));
        assert_eq!(sequence.draw(), Some(WINDOW + 2));
        assert_eq!(sequence.draw(), None);
    }
}
