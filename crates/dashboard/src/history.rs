//! The last minutes of a node: a sample a second, and no more of them than fit on a chart.

use crate::Sample;
use std::collections::VecDeque;

/// Samples that are kept of a node.
pub const KEPT: usize = 180;

/// See the module's header.
#[derive(Clone, Debug, Default)]
pub struct History(VecDeque<Sample>);

impl History {
    /// One more. A clock that was set back does not turn the order around.
    pub fn add(&mut self, mut sample: Sample) {
        if let Some(last) = self.0.back() {
            sample.at_ms = sample.at_ms.max(last.at_ms + 1);
        }
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(sample);
    }

    /// The newest.
    pub fn last(&self) -> Option<Sample> {
        self.0.back().copied()
    }

    /// All of them, the oldest first.
    pub fn list(&self) -> Vec<Sample> {
        self.0.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_bounded_and_in_order_whatever_the_clock_does() {
        let mut history = History::default();
        for at_ms in [5, 9, 3, 3].into_iter().chain(100..400) {
            history.add(Sample {
                at_ms,
                ..Sample::default()
            });
        }
        let list = history.list();
        assert_eq!(list.len(), KEPT);
        assert!(list.is_sorted_by(|a, b| a.at_ms < b.at_ms));
        assert_eq!(history.last().map(|it| it.at_ms), Some(399));
    }
}
