//! Sums over operations, which can be added up over processes.

use super::{SIZE_ERROR_MAX, Seen};
use crate::model::has_offset;
use presagio_core::{Event, Nanos};

/// See the module's header.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Operations that were judged.
    pub operations: u64,
    /// Those for which there was a prediction at all.
    pub predicted: u64,
    /// Weight of right contexts (§4.2.1).
    pub context_right: f64,
    /// Weight of right files.
    pub file_right: f64,
    /// Operations that are at a place in a file: transfers, seeks and their like.
    pub places: u64,
    /// Weight of right offsets among them.
    pub place_right: f64,
    /// Reads and writes.
    pub transfers: u64,
    /// Those that begin where the last read or write ended (Table 7).
    pub contiguous: u64,
    /// Weight of right offsets of reads and writes (Table 7).
    pub offset_right: f64,
    /// Weight of right sizes of reads and writes.
    pub size_right: f64,
    /// Sum of relative errors of sizes (Eq. 2), each at most [`SIZE_ERROR_MAX`].
    pub size_error: f64,
    /// Sum of hit ratios, from 0 to 1 each (Eq. 3, Table 8).
    pub hit: f64,
    /// Operations that came after another.
    pub gaps: u64,
    /// Sum of the times between operations, which is how far off "at once" is (Table 9).
    pub gap_ns: f64,
    /// Sum of how far off the predicted ones were (Table 9).
    pub gap_error_ns: f64,
    /// Confidences of the next operation, and whether it came.
    pub next: Calibrated,
    /// Confidences of an operation some way ahead, and whether it came.
    pub ahead: Calibrated,
    /// Operations within a time window (§4.5).
    pub within: Counts,
    /// Operations until the end of the I/O phase (§4.5).
    pub phase: Counts,
}

/// Numbers of operations that were expected, and that came.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// How often this was tried.
    pub tries: u64,
    /// How often the number was right.
    pub right: u64,
    /// Sum of what was expected.
    pub expected: u64,
    /// Sum of what came.
    pub came: u64,
    /// Sum of the differences.
    pub error: u64,
}

impl Counts {
    pub(super) fn add(&mut self, expected: u64, came: u64) {
        self.tries += 1;
        self.right += u64::from(expected == came);
        self.expected += expected;
        self.came += came;
        self.error += expected.abs_diff(came);
    }

    fn merge(&mut self, other: &Counts) {
        self.tries += other.tries;
        self.right += other.right;
        self.expected += other.expected;
        self.came += other.came;
        self.error += other.error;
    }

    /// Share of tries that were exactly right.
    pub fn right_share(&self) -> f64 {
        share(self.right as f64, self.tries)
    }

    /// How far off the numbers were, in proportion to what came.
    pub fn error_share(&self) -> f64 {
        share(self.error as f64, self.came)
    }
}

/// Confidences that were said, in bins, and how often they came true.
#[derive(Clone, Debug, Default)]
pub struct Calibrated {
    bins: [Bin; BOUNDS.len()],
}

/// Where bins end; finer near 1, where most confidences are.
const BOUNDS: [f64; 12] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0];

/// Confidences of about the same height.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bin {
    /// How many.
    pub tries: u64,
    /// Their sum.
    pub said: f64,
    /// How many came true.
    pub came_true: u64,
}

impl Calibrated {
    pub(super) fn add(&mut self, confidence: f64, came_true: bool) {
        let at = BOUNDS.iter().position(|bound| confidence < *bound);
        let bin = &mut self.bins[at.unwrap_or(BOUNDS.len() - 1)];
        bin.tries += 1;
        bin.said += confidence;
        bin.came_true += u64::from(came_true);
    }

    /// The bins with the confidence at which each ends, from the lowest.
    pub fn bins(&self) -> impl Iterator<Item = (f64, Bin)> {
        BOUNDS.into_iter().zip(self.bins)
    }

    /// How many confidences were said.
    pub fn tries(&self) -> u64 {
        self.bins.iter().map(|b| b.tries).sum()
    }

    /// Share of the predictions that came true.
    pub fn true_share(&self) -> f64 {
        let came_true: u64 = self.bins.iter().map(|b| b.came_true).sum();
        share(came_true as f64, self.tries())
    }

    /// By how much confidences differ from how often they came true, on average.
    pub fn error(&self) -> f64 {
        let off = |b: &Bin| (b.said - b.came_true as f64).abs();
        share(self.bins.iter().map(off).sum(), self.tries())
    }

    fn merge(&mut self, other: &Calibrated) {
        for (bin, more) in self.bins.iter_mut().zip(&other.bins) {
            bin.tries += more.tries;
            bin.said += more.said;
            bin.came_true += more.came_true;
        }
    }
}

/// A part of a whole; of nothing, nothing.
fn share(part: f64, whole: u64) -> f64 {
    part / whole.max(1) as f64
}

impl Tally {
    pub(super) fn add_next(
        &mut self,
        event: &Event,
        seen: &Seen,
        contiguous: bool,
        gap: Option<Nanos>,
    ) {
        self.file_right += seen.file;
        self.hit += seen.hit;
        if let Some((confidence, came_true)) = seen.best {
            self.predicted += 1;
            self.next.add(confidence, came_true);
        }
        if has_offset(event.action) {
            self.places += 1;
            self.place_right += seen.offset;
        }
        if event.action.is_transfer() {
            self.transfers += 1;
            self.contiguous += u64::from(contiguous);
            self.offset_right += seen.offset;
            self.size_right += seen.size;
            self.size_error += seen.size_error().min(SIZE_ERROR_MAX);
        }
        if let Some(gap) = gap {
            self.gaps += 1;
            self.gap_ns += gap.0 as f64;
            // Who predicts nothing says "at once".
            let rest = (1.0 - seen.weight).max(0.0);
            self.gap_error_ns += seen.gap_error + rest * gap.0 as f64;
        }
    }

    /// Adds the sums of another stream.
    pub fn merge(&mut self, other: &Tally) {
        self.operations += other.operations;
        self.predicted += other.predicted;
        self.context_right += other.context_right;
        self.file_right += other.file_right;
        self.places += other.places;
        self.place_right += other.place_right;
        self.transfers += other.transfers;
        self.contiguous += other.contiguous;
        self.offset_right += other.offset_right;
        self.size_right += other.size_right;
        self.size_error += other.size_error;
        self.hit += other.hit;
        self.gaps += other.gaps;
        self.gap_ns += other.gap_ns;
        self.gap_error_ns += other.gap_error_ns;
        self.next.merge(&other.next);
        self.ahead.merge(&other.ahead);
        self.within.merge(&other.within);
        self.phase.merge(&other.phase);
    }

    /// Share of right contexts.
    pub fn contexts(&self) -> f64 {
        share(self.context_right, self.operations)
    }

    /// Share of right files.
    pub fn files(&self) -> f64 {
        share(self.file_right, self.operations)
    }

    /// Share of right offsets of reads and writes (Table 7).
    pub fn offsets(&self) -> f64 {
        share(self.offset_right, self.transfers)
    }

    /// Share of right offsets of all operations that are at a place, with seeks.
    pub fn all_offsets(&self) -> f64 {
        share(self.place_right, self.places)
    }

    /// Share of reads and writes that follow the last one (Table 7).
    pub fn contiguous_share(&self) -> f64 {
        share(self.contiguous as f64, self.transfers)
    }

    /// The average hit ratio (Table 8), from 0 to 1.
    pub fn hit_ratio(&self) -> f64 {
        share(self.hit, self.operations)
    }

    /// Share of right sizes.
    pub fn sizes(&self) -> f64 {
        share(self.size_right, self.transfers)
    }

    /// The average relative error of sizes, each cut at [`SIZE_ERROR_MAX`].
    pub fn mean_size_error(&self) -> f64 {
        share(self.size_error, self.transfers)
    }

    /// By how much predicted times between operations were off on average (Table 9).
    pub fn gap_error(&self) -> Nanos {
        Nanos(share(self.gap_error_ns, self.gaps) as u64)
    }

    /// The same for who says "at once" (Table 9).
    pub fn gap_mean(&self) -> Nanos {
        Nanos(share(self.gap_ns, self.gaps) as u64)
    }
}
