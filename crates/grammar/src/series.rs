//! A series of values that belongs to one place: trip counts of a loop, sizes of a context, offsets of a
//! transition.
//!
//! As in §3.2.1 of the paper: one value as long as there is only one, then a small grammar of its own, and where
//! more than [`DISTINCT_MAX`] different values have been seen, statistics: the value that comes most often, if one
//! does, and the mean. Programs change, so that is not for good: now and then the sequence is tried again.

use crate::followers::Cursor;
use crate::grammar::{Grammar, Limits, Mode};

/// How many different values a series may have and still be learned as a sequence.
pub const DISTINCT_MAX: usize = 24;

/// How long the grammar of a series may get.
const SYMBOLS_MAX: usize = 256;

/// Tries count half when there are more than this, so that what was long ago matters less.
const TRIES_MAX: u32 = 64;

/// A grammar counts repetitions; a thousand say no more than a few.
pub(crate) const REPEATS_MAX: u32 = 8;

/// See the module's header.
#[derive(Clone, Debug, Default)]
pub struct Series {
    pub(crate) state: State,
    pub(crate) tries: u32,
    pub(crate) hits: u32,
}

#[derive(Clone, Debug, Default)]
pub(crate) enum State {
    #[default]
    Empty,
    One {
        value: u64,
        times: u32,
    },
    Few(Box<Few>),
    Many(Box<Many>),
}

/// Many different values: what they are like, and whether one comes again and again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Many {
    pub spread: Spread,
    /// A value that makes up more than a third of what came lately, if there is one; a hit counts double.
    pub usual: u64,
    pub score: u32,
    /// The sequence as it is tried again, with how many values it has taken.
    pub trial: Option<(Box<Few>, u32)>,
    /// How many values come before the next trial, and how many do once that fails.
    pub pause: u32,
    pub pause_next: u32,
    /// Whether the sequence may be tried again at all: that takes memory.
    pub may_try: bool,
}

/// The score from which a value is the usual one, and the highest.
const SCORE_MIN: u32 = 4;
pub(crate) const SCORE_MAX: u32 = 64;

/// A trial that has taken so many values is the series from now on.
const TRIAL: u32 = 64;

/// Values between two trials: twice as many each time, up to this.
pub(crate) const PAUSE_MAX: u32 = 4096;

impl Many {
    /// Statistics of what has been seen, of a sequence that may be tried again.
    fn after(spread: Spread) -> Many {
        Many {
            spread,
            pause: TRIAL,
            pause_next: 2 * TRIAL,
            may_try: true,
            ..Many::default()
        }
    }

    /// The value that comes again and again.
    fn usual(&self) -> Option<u64> {
        (self.score >= SCORE_MIN).then_some(self.usual)
    }

    fn expected(&self) -> Option<u64> {
        let mean = (self.spread.count > 0).then(|| self.spread.mean.round() as u64);
        self.usual().or(mean)
    }

    /// Takes a value; the sequence, if a trial has shown that there is one again.
    fn observe(&mut self, value: u64) -> Option<Box<Few>> {
        self.spread.add(value);
        match value == self.usual {
            true => self.score = (self.score + 2).min(SCORE_MAX),
            false if self.score > 0 => self.score -= 1,
            false => (self.usual, self.score) = (value, 2),
        }
        self.may_try.then(|| self.attempt(value))?
    }

    fn attempt(&mut self, value: u64) -> Option<Box<Few>> {
        let Some((few, taken)) = &mut self.trial else {
            match self.pause {
                0 => self.trial = Some((Box::new(Few::of(value)), 1)),
                _ => self.pause -= 1,
            }
            return None;
        };
        *taken += 1;
        if !few.observe(value) {
            self.trial = None;
            self.pause = self.pause_next;
            self.pause_next = (self.pause_next * 2).min(PAUSE_MAX);
            return None;
        }
        (*taken >= TRIAL).then(|| self.trial.take().expect("there is one").0)
    }
}

/// Few different values, in an order that can be learned.
#[derive(Clone, Debug)]
pub struct Few {
    /// With the number of times each was seen, in the order in which they came.
    pub values: Vec<(u64, u32)>,
    /// Empty until a value comes back.
    pub grammar: Grammar,
    pub spread: Spread,
}

/// What is known of values that are too many to be learned one by one.
#[derive(Clone, Debug)]
pub struct Spread {
    /// How many there were.
    pub count: u64,
    /// The mean.
    pub mean: f64,
    /// The sum of squared distances from the mean.
    pub(crate) squares: f64,
    /// The least.
    pub least: u64,
    /// The greatest.
    pub greatest: u64,
    /// The last.
    pub last: u64,
}

impl Default for Spread {
    fn default() -> Self {
        Spread {
            count: 0,
            mean: 0.0,
            squares: 0.0,
            least: u64::MAX,
            greatest: 0,
            last: 0,
        }
    }
}

impl Spread {
    /// Adds a value (Welford's method).
    pub fn add(&mut self, value: u64) {
        self.count = self.count.saturating_add(1);
        let distance = value as f64 - self.mean;
        self.mean += distance / self.count as f64;
        self.squares += distance * (value as f64 - self.mean);
        self.least = self.least.min(value);
        self.greatest = self.greatest.max(value);
        self.last = value;
    }

    /// The spread of values of which this is known.
    pub fn from_parts(
        count: u64,
        mean: f64,
        variance: f64,
        extent: (u64, u64),
        last: u64,
    ) -> Spread {
        Spread {
            count,
            mean,
            squares: variance * count as f64,
            least: extent.0,
            greatest: extent.1,
            last,
        }
    }

    /// The variance.
    pub fn variance(&self) -> f64 {
        self.squares / (self.count.max(1) as f64)
    }
}

impl Series {
    /// A series that learns no order, only statistics: it is small.
    pub(crate) fn of_statistics() -> Series {
        Series {
            state: State::Many(Box::default()),
            ..Series::default()
        }
    }

    /// Whether the order of the values is learned.
    pub(crate) fn learns(&self) -> bool {
        matches!(self.state, State::Few(_))
    }

    /// Takes the next value.
    #[inline]
    pub fn observe(&mut self, value: u64) {
        match &mut self.state {
            // Most series of a program are one value.
            State::One { value: one, times } if *one == value => {
                *times = times.saturating_add(1);
                self.count_try(true);
            }
            _ => self.change(value),
        }
    }

    #[inline]
    fn count_try(&mut self, hit: bool) {
        self.tries += 1;
        self.hits += u32::from(hit);
        if self.tries > TRIES_MAX {
            (self.tries, self.hits) = (self.tries / 2, self.hits / 2);
        }
    }

    fn change(&mut self, value: u64) {
        if let Some(expected) = self.predict() {
            self.count_try(expected == value);
        }
        let state = std::mem::take(&mut self.state);
        self.state = state.observe(value);
    }

    /// The value that is expected next.
    pub fn predict(&self) -> Option<u64> {
        self.nth(0)
    }

    /// The value that is expected after `n` more.
    #[inline]
    pub fn nth(&self, n: usize) -> Option<u64> {
        match &self.state {
            State::Empty => None,
            State::One { value, .. } => Some(*value),
            State::Few(few) => Some(few.nth(n)),
            State::Many(many) => many.expected(),
        }
    }

    /// Whether what it expects is a value that has come before, not a mean.
    pub fn recurs(&self) -> bool {
        match &self.state {
            State::Empty => false,
            State::One { .. } | State::Few(_) => true,
            State::Many(many) => many.usual().is_some(),
        }
    }

    /// The value that is expected after `n` more, if `value` comes before them.
    pub fn nth_after(&self, value: u64, n: usize) -> u64 {
        match &self.state {
            State::Few(few) => few.nth_after(value, n),
            State::Many(many) => many.expected().unwrap_or(value),
            // One that differs from many is the exception.
            State::One { value, times } if *times > 1 => *value,
            State::Empty | State::One { .. } => value,
        }
    }

    /// The values that are expected, one after the other.
    pub fn ahead(&self) -> SeriesAhead<'_> {
        match &self.state {
            State::Few(few) => SeriesAhead::Few(few, None),
            _ => SeriesAhead::One(self.nth(0).unwrap_or(0)),
        }
    }

    /// The value that is expected next, again and again: found sooner, if no other is asked for.
    pub fn once(&self) -> SeriesAhead<'_> {
        SeriesAhead::One(self.predict().unwrap_or(0))
    }

    /// The values that are expected if `value` comes before them.
    pub(crate) fn ahead_after(&self, value: u64) -> SeriesAhead<'_> {
        match &self.state {
            State::Few(few) => few.ahead_after(value),
            _ => SeriesAhead::One(self.nth_after(value, 0)),
        }
    }

    /// How often it was right lately, from 0 to 1.
    ///
    /// Before anything is known it is 3/4: most series of a program are one value.
    pub fn confidence(&self) -> f64 {
        f64::from(self.hits + 3) / f64::from(self.tries + 4)
    }

    /// Whether all values so far were the same.
    pub fn is_constant(&self) -> bool {
        matches!(self.state, State::Empty | State::One { .. })
    }

    /// Bytes of memory beyond itself.
    pub fn memory(&self) -> usize {
        match &self.state {
            State::Empty | State::One { .. } => 0,
            State::Few(few) => size_of::<Few>() + few.memory(),
            State::Many(many) => {
                let trial = |trial: &(Box<Few>, u32)| size_of::<Few>() + trial.0.memory();
                size_of::<Many>() + many.trial.as_ref().map_or(0, trial)
            }
        }
    }
}

/// The values that a series expects. It never ends.
#[derive(Clone, Debug)]
pub enum SeriesAhead<'a> {
    /// Always the same.
    #[doc(hidden)]
    One(u64),
    /// From a grammar; the way through it is found when it is needed.
    #[doc(hidden)]
    Few(&'a Few, Option<Box<Cursor<'a>>>),
}

impl Iterator for SeriesAhead<'_> {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        match self {
            SeriesAhead::One(value) => Some(*value),
            SeriesAhead::Few(few, way) => Some(few.next_on(way)),
        }
    }
}

impl State {
    fn observe(self, new: u64) -> State {
        match self {
            State::Empty => State::One {
                value: new,
                times: 1,
            },
            State::One { value, times } => State::Few(Box::new(Few::new(value, times, new))),
            State::Few(mut few) => match few.observe(new) {
                true => State::Few(few),
                false => State::Many(Box::new(Many::after(few.spread))),
            },
            State::Many(mut many) => match many.observe(new) {
                Some(few) => State::Few(few),
                None => State::Many(many),
            },
        }
    }
}

impl Few {
    pub(crate) const LIMITS: Limits = Limits {
        symbols: SYMBOLS_MAX,
        followers: 8,
    };

    pub(crate) fn memory(&self) -> usize {
        self.values.capacity() * size_of::<(u64, u32)>() + self.grammar.memory()
    }

    /// A sequence of one value so far.
    fn of(value: u64) -> Few {
        let mut spread = Spread::default();
        spread.add(value);
        Few {
            values: vec![(value, 1)],
            grammar: Grammar::with_limits(Mode::Exact, Few::LIMITS),
            spread,
        }
    }

    fn new(value: u64, times: u32, new: u64) -> Few {
        let mut few = Few::of(value);
        let times = times.min(REPEATS_MAX);
        (1..times).for_each(|_| few.spread.add(value));
        few.values[0].1 = times;
        few.values.push((new, 1));
        few.spread.add(new);
        few
    }

    /// Takes a value; whether there is still room for all that differ.
    fn observe(&mut self, value: u64) -> bool {
        self.spread.add(value);
        let Some(symbol) = self.position(value) else {
            self.values.push((value, 1));
            if !self.grammar.is_empty() {
                self.grammar.append(self.values.len() as u32 - 1);
            }
            return self.values.len() <= DISTINCT_MAX;
        };
        if self.grammar.is_empty() {
            self.begin_grammar();
        }
        self.values[symbol].1 = self.values[symbol].1.saturating_add(1);
        self.grammar.append(symbol as u32);
        true
    }

    /// A value comes back: only now there is an order to learn. Many series never come to that.
    fn begin_grammar(&mut self) {
        for (symbol, (_, times)) in self.values.iter().enumerate() {
            for _ in 0..*times {
                self.grammar.append(symbol as u32);
            }
        }
    }

    fn position(&self, value: u64) -> Option<usize> {
        self.values.iter().position(|v| v.0 == value)
    }

    fn nth(&self, n: usize) -> u64 {
        let symbol = match n {
            0 => self.grammar.best_symbol().map(|best| best.0),
            _ => self.grammar.best().and_then(|mut cursor| cursor.nth(n)),
        };
        symbol.map_or_else(|| self.usual(), |s| self.values[s as usize].0)
    }

    /// The next value on a way, which begins here if there is none yet.
    fn next_on<'a>(&'a self, way: &mut Option<Box<Cursor<'a>>>) -> u64 {
        if way.is_none() {
            *way = self.grammar.best().map(Box::new);
        }
        let symbol = way.as_mut().and_then(|cursor| cursor.next());
        symbol.map_or_else(|| self.usual(), |s| self.values[s as usize].0)
    }

    fn nth_after(&self, value: u64, n: usize) -> u64 {
        let through = self
            .position(value)
            .and_then(|symbol| self.grammar.best_through(symbol as u32));
        let symbol = through.and_then(|mut cursor| cursor.nth(n + 1));
        symbol.map_or_else(|| self.usual(), |s| self.values[s as usize].0)
    }

    fn ahead_after(&self, value: u64) -> SeriesAhead<'_> {
        let symbol = self.position(value);
        let Some(mut cursor) = symbol.and_then(|s| self.grammar.best_through(s as u32)) else {
            return SeriesAhead::One(self.usual());
        };
        cursor.next();
        SeriesAhead::Few(self, Some(Box::new(cursor)))
    }

    /// The value that was seen most often; of several the last.
    fn usual(&self) -> u64 {
        let usual = self.values.iter().max_by_key(|v| v.1);
        usual.map_or(self.spread.last, |v| v.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn predicted(values: impl IntoIterator<Item = u64>) -> Option<u64> {
        let mut series = Series::default();
        values.into_iter().for_each(|v| series.observe(v));
        series.predict()
    }

    #[test]
    fn one_value_is_expected_again() {
        assert_eq!(predicted([]), None);
        assert_eq!(predicted([7, 7, 7]), Some(7));
    }

    #[test]
    fn an_order_that_repeats_is_followed() {
        let values = || [3u64, 5, 5, 9].into_iter().cycle();
        for n in 6..40 {
            assert_eq!(predicted(values().take(n)), values().nth(n), "after {n}");
        }
    }

    #[test]
    fn the_values_after_the_next_ones_are_known_too() {
        let mut series = Series::default();
        [3u64, 5, 9]
            .into_iter()
            .cycle()
            .take(20)
            .for_each(|v| series.observe(v));
        let next: Vec<_> = (0..6).map(|n| series.nth(n).unwrap()).collect();
        assert_eq!(next, [9, 3, 5, 9, 3, 5]);
        assert_eq!(series.nth_after(9, 1), 5);
    }

    #[test]
    fn many_different_values_leave_their_mean() {
        assert_eq!(predicted((0..101).map(|v| v * 10)), Some(500));
    }
}
