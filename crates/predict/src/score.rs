//! How good predictions are: what §4 of the paper measures, of one stream of operations.
//!
//! [`Score`] owns a model. Before the model sees an operation it is asked what will come, and what it says is held
//! against what came. Sums go to a [`Tally`], which can be added up over processes; what changes over time goes to
//! [`Curve`]s, which are of bounded size however long the stream. Nothing here reads a clock: what it costs to
//! predict is measured by whoever calls.
//!
//! Predictions that need a longer look at the future are tried at some operations only: how far ahead the symbols
//! hold ([`far`]), how many operations come within a time and until the phase ends ([`count`]).

pub mod count;
mod curve;
pub mod far;
mod judged;
mod tally;

pub use curve::Curve;
pub use judged::Judged;
pub use tally::{Bin, Calibrated, Counts, Tally};

use crate::cursor::Predicted;
use crate::files::PredictedFile;
use crate::model::{Model, Settings, comes_true};
use count::Counter;
use far::{Far, Reach};
use presagio_core::{Event, FileId, Nanos};
use presagio_grammar::{Grammar, Limits, Mode};
use std::collections::VecDeque;

/// How to score.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How the model learns.
    pub settings: Settings,
    /// How many operations the stream has, if that is known: trials are then spread over all of it.
    pub operations: Option<u64>,
    /// How many operations ahead confidences are judged.
    pub ahead: usize,
    /// At how many operations, about, the longer looks ahead are tried.
    pub trials: usize,
    /// The time within which operations are counted.
    pub window: Nanos,
    /// Whether grammars of the other modes are kept beside, to compare their sizes.
    pub compare: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            settings: Settings::default(),
            operations: None,
            ahead: 16,
            trials: 100,
            window: Nanos::from_secs(1),
            compare: false,
        }
    }
}

/// The curves of the figures of §4, over the number of operations.
#[derive(Clone, Debug, Default)]
pub struct Curves {
    /// Right contexts among the last ten, from 0 to 1 (Fig. 2).
    pub contexts: Curve,
    /// Symbols of the grammar (Fig. 4).
    pub grammar: Curve,
    /// The same for StarSequitur as published, if compared.
    pub exact: Curve,
    /// The same for plain Sequitur, if compared.
    pub sequitur: Curve,
    /// The relative error of sizes, at most [`SIZE_ERROR_MAX`] (Fig. 5).
    pub size_error: Curve,
    /// The hit ratio, from 0 to 1 (Fig. 6).
    pub hit: Curve,
}

/// Times between operations, as they were and as they were predicted (Fig. 7 and 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Between {
    /// The number of the operation.
    pub operation: u64,
    /// From the end of the one before.
    pub observed: Nanos,
    /// The same as it was predicted, if it was.
    pub predicted: Option<Nanos>,
}

/// Relative errors of sizes are cut here, as in Fig. 5: they can be in the thousands.
pub const SIZE_ERROR_MAX: f64 = 5.0;

/// Times between operations are kept for the last ones only, as in Fig. 8.
const BETWEEN_MAX: usize = 1000;

/// The sliding window of Fig. 2.
const WINDOW: usize = 10;

/// See the module's header.
#[derive(Clone, Debug)]
pub struct Score {
    model: Model,
    options: Options,
    tally: Tally,
    curves: Curves,
    right: VecDeque<f64>,
    between: VecDeque<Between>,
    far: Far,
    counter: Counter,
    pending: VecDeque<Pending>,
    /// Where the last transfer ended.
    transfer_end: Option<(FileId, u64)>,
    exact: Grammar,
    sequitur: Grammar,
}

/// A prediction that waits for its operation.
#[derive(Clone, Copy, Debug)]
struct Pending {
    /// The number of that operation.
    operation: u64,
    /// How many files were known when it was made.
    files: u64,
    predicted: Predicted,
}

impl Default for Score {
    fn default() -> Self {
        Score::new(Options::default())
    }
}

impl Score {
    /// A score of nothing yet.
    pub fn new(options: Options) -> Score {
        let limits = Limits::default();
        Score {
            model: Model::with_settings(options.settings),
            options,
            tally: Tally::default(),
            curves: Curves::default(),
            right: VecDeque::new(),
            between: VecDeque::new(),
            far: Far::new(options.trials, options.operations),
            counter: Counter::new(options.trials, options.operations, options.window),
            pending: VecDeque::new(),
            transfer_end: None,
            exact: Grammar::with_limits(Mode::Exact, limits),
            sequitur: Grammar::with_limits(Mode::Sequitur, limits),
        }
    }

    /// Judges what the model says about an operation, and lets it learn from it.
    pub fn observe(&mut self, event: &Event) {
        self.judge_next(event);
        let expected = self.model.next_symbols();
        self.judge_ahead(event);
        self.counter.observe(event, &mut self.tally);
        if event.action.is_transfer() {
            let end = event.offset.saturating_add(event.moved());
            self.transfer_end = Some((event.file, end));
        }
        self.model.observe(event);
        self.judge_symbol(&expected);
        self.tally.operations += 1;
        self.draw_grammars();
        self.look_ahead();
    }

    /// Operations are missing here.
    pub fn lose_track(&mut self) {
        self.model.lose_track();
        self.exact.lose_track();
        self.sequitur.lose_track();
        self.pending.clear();
        self.counter.lose_track();
        self.far.lose_track();
    }

    /// The model that is judged.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The model that is judged, for those who name its contexts.
    pub fn model_mut(&mut self) -> &mut Model {
        &mut self.model
    }

    /// The sums.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// What changed over time.
    pub fn curves(&self) -> &Curves {
        &self.curves
    }

    /// The last times between operations.
    pub fn between(&self) -> impl Iterator<Item = &Between> {
        self.between.iter()
    }

    /// How far ahead symbols were right, if the stream ends here.
    pub fn reach(&self) -> Reach {
        self.far.reach()
    }

    /// Sizes of the grammars in symbols: the model's, and if compared, as published and of plain Sequitur.
    pub fn grammars(&self) -> (usize, Option<(usize, usize)>) {
        let others = (self.exact.len(), self.sequitur.len());
        (
            self.model.grammar().len(),
            self.options.compare.then_some(others),
        )
    }

    /// Holds all predictions for the next operation against it, by their weights.
    fn judge_next(&mut self, event: &Event) {
        let gap = self.model.last.map(|last| event.time.since(last.end));
        let mut seen = Seen::default();
        for (mut cursor, share) in self.model.predictions() {
            if let Some(predicted) = cursor.next() {
                seen.add(&predicted, share, event, gap, &self.model);
            }
        }
        // What the model itself would act on.
        let best = self.model.best().and_then(|mut cursor| cursor.next());
        let files = &self.model.files;
        seen.best = best.map(|predicted| {
            let came_true = comes_true(&predicted, files.came_up(), event, files);
            (predicted.confidence, came_true)
        });
        let contiguous = self.transfer_end == Some((event.file, event.offset));
        self.tally.add_next(event, &seen, contiguous, gap);
        self.draw_next(event, &seen, gap);
    }

    fn draw_next(&mut self, event: &Event, seen: &Seen, gap: Option<Nanos>) {
        self.curves.hit.push(seen.hit);
        if event.action.is_transfer() {
            self.curves.size_error.push(seen.size_error());
        }
        let Some(observed) = gap else { return };
        if self.between.len() == BETWEEN_MAX {
            self.between.pop_front();
        }
        self.between.push_back(Between {
            operation: self.tally.operations,
            observed,
            predicted: seen.expected_gap(),
        });
    }

    /// Whether what was said about this operation some time ago came true.
    fn judge_ahead(&mut self, event: &Event) {
        let now = self.tally.operations;
        while let Some(pending) = self.pending.front().copied() {
            if pending.operation > now {
                return;
            }
            self.pending.pop_front();
            let came_true = comes_true(&pending.predicted, pending.files, event, &self.model.files);
            let confidence = pending.predicted.confidence;
            self.tally.ahead.add(confidence, came_true);
        }
    }

    fn judge_symbol(&mut self, expected: &[(u32, f64)]) {
        let symbol = self.model.last_symbol();
        let right = expected.iter().filter(|e| Some(e.0) == symbol);
        let share: f64 = right.map(|e| e.1).sum();
        self.tally.context_right += share;
        if self.right.len() == WINDOW {
            self.right.pop_front();
        }
        self.right.push_back(share);
        let sum: f64 = self.right.iter().sum();
        self.curves.contexts.push(sum / self.right.len() as f64);
        if let Some(symbol) = symbol {
            self.far.observe(symbol);
        }
    }

    fn draw_grammars(&mut self) {
        let size = |grammar: &Grammar| grammar.len() as f64;
        self.curves.grammar.push(size(self.model.grammar()));
        let symbol = self.model.last_symbol();
        if let Some(symbol) = symbol.filter(|_| self.options.compare) {
            self.exact.append(symbol);
            self.sequitur.append(symbol);
            self.curves.exact.push(size(&self.exact));
            self.curves.sequitur.push(size(&self.sequitur));
        }
    }

    /// Makes the predictions that will be judged later.
    fn look_ahead(&mut self) {
        let ahead = self.options.ahead.max(1);
        let nth = self.model.best().and_then(|mut c| c.nth(ahead - 1));
        if let Some(predicted) = nth {
            self.pending.push_back(Pending {
                operation: self.tally.operations + ahead as u64 - 1,
                files: self.model.files.came_up(),
                predicted,
            });
        }
        self.far.try_from_here(&self.model);
        self.counter.try_from_here(&self.model);
    }
}

/// What all predictions for one operation were worth, weighted.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// The confidence of the likeliest, and whether it came true.
    best: Option<(f64, bool)>,
    weight: f64,
    file: f64,
    offset: f64,
    size: f64,
    hit: f64,
    error: f64,
    gap_error: f64,
    gap: f64,
}

impl Seen {
    fn add(
        &mut self,
        predicted: &Predicted,
        share: f64,
        event: &Event,
        gap: Option<Nanos>,
        model: &Model,
    ) {
        let is_file = match predicted.file {
            PredictedFile::Known(file) => file == event.file,
            PredictedFile::New(_) => !model.files.knows(event.file),
        };
        let is_right = |right: bool| f64::from(u8::from(right)) * share;
        self.weight += share;
        self.file += is_right(is_file);
        self.offset += is_right(is_file && predicted.offset == event.offset);
        self.size += is_right(predicted.len == event.len);
        self.hit += share * hit_ratio(predicted, event, is_file);
        self.error += share * size_error(predicted.len, event.len).min(SIZE_ERROR_MAX);
        self.gap += share * predicted.after.0 as f64;
        if let Some(gap) = gap {
            self.gap_error += share * predicted.after.0.abs_diff(gap.0) as f64;
        }
    }

    /// Who predicts nothing is off by all of it.
    fn size_error(&self) -> f64 {
        self.error + (1.0 - self.weight).max(0.0)
    }

    fn expected_gap(&self) -> Option<Nanos> {
        (self.weight > 0.0).then_some(Nanos(self.gap as u64))
    }
}

/// Eq. 2; of nothing, what is more than nothing is off by all of it.
fn size_error(predicted: u64, observed: u64) -> f64 {
    match observed {
        0 => f64::from(u8::from(predicted > 0)),
        _ => predicted.abs_diff(observed) as f64 / observed as f64,
    }
}

/// Eq. 3, from 0 to 1: the common part of both segments in the span from the first to the last byte of either.
fn hit_ratio(predicted: &Predicted, event: &Event, is_file: bool) -> f64 {
    let bytes = |is_transfer: bool, len: u64| if is_transfer { len } else { 0 };
    let p_len = bytes(predicted.action.is_transfer(), predicted.len);
    let o_len = bytes(event.action.is_transfer(), event.len);
    if p_len == 0 && o_len == 0 {
        return 1.0;
    }
    if !is_file || p_len == 0 || o_len == 0 {
        return 0.0;
    }
    let p_end = predicted.offset.saturating_add(p_len);
    let o_end = event.offset.saturating_add(o_len);
    let begin = predicted.offset.max(event.offset);
    let common = p_end.min(o_end).saturating_sub(begin);
    let span = p_end.max(o_end) - predicted.offset.min(event.offset);
    common as f64 / span as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apps;
    use presagio_core::Action;

    fn predicted(action: Action, offset: u64, len: u64) -> Predicted {
        Predicted {
            action,
            file: PredictedFile::Known(FileId(1)),
            offset,
            len,
            after: Nanos::ZERO,
            confidence: 1.0,
        }
    }

    fn written(offset: u64, len: u64) -> Event {
        let mut event = apps::round_robin(1, 1)[1];
        (event.offset, event.len) = (offset, len);
        event
    }

    #[test]
    fn the_hit_ratio_is_the_common_part_of_the_span() {
        let ratio = |p: (u64, u64), o: (u64, u64)| {
            let predicted = predicted(Action::Write, p.0, p.1);
            hit_ratio(&predicted, &written(o.0, o.1), true)
        };
        assert_eq!(ratio((100, 50), (100, 50)), 1.0);
        assert_eq!(ratio((100, 100), (150, 100)), 50.0 / 150.0);
        assert_eq!(ratio((0, 10), (90, 10)), 0.0);
        assert_eq!(ratio((0, 0), (90, 10)), 0.0);
        assert_eq!(ratio((u64::MAX, 10), (0, 10)), 0.0);
    }

    #[test]
    fn nothing_expected_and_nothing_accessed_is_a_hit_wherever() {
        let mut event = written(70, 0);
        event.action = Action::Seek;
        let seek = predicted(Action::Seek, 5, 0);
        assert_eq!(hit_ratio(&seek, &event, true), 1.0);
        let write = predicted(Action::Write, 70, 10);
        assert_eq!(hit_ratio(&write, &event, true), 0.0);
    }

    #[test]
    fn size_errors_are_relative_to_what_came() {
        assert_eq!(size_error(5000, 2), 2499.0);
        assert_eq!(size_error(90, 100), 0.1);
        assert_eq!((size_error(0, 0), size_error(7, 0)), (0.0, 1.0));
    }

    /// Curves, trials and waiting predictions are bounded, so a long stream takes no more than a short one.
    #[test]
    fn a_score_takes_no_more_memory_for_a_longer_stream() {
        let mut score = Score::default();
        for event in apps::gtc_with(60, 100, 0) {
            score.observe(&event);
            assert!(score.pending.len() <= 16 && score.between.len() <= BETWEEN_MAX);
        }
        assert!(score.reach().trials.len() <= 2 * score.options.trials);
        let points = score.curves().hit.points().count();
        assert!((400..=1000).contains(&points), "{points}");
    }
}
