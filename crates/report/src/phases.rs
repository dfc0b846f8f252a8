//! I/O phases: operations with long pauses between them, and the rhythm in which they come.
//!
//! A pause is a time in which no operation is under way. Which pauses are long is known only in the end, so the longest are
//! kept, each with the sums of all that came before it: what a phase did is then a difference.

use presagio_core::Histogram;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Pauses that are kept.
const PAUSES_MAX: usize = 4096;
/// A pause is long if it is so many times as long as usual,
const LONG: u64 = 16;
/// and at least this part of the whole time.
const LEAST_PART: u64 = 1000;

/// Sums of operations up to a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sums {
    pub operations: u64,
    pub read: u64,
    pub written: u64,
    pub busy: u64,
}

/// What was done between two long pauses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Phase {
    /// When its first operation began, since the beginning of the trace.
    pub begin_ns: u64,
    /// When its last one ended.
    pub end_ns: u64,
    /// How many there are.
    pub operations: u64,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Bytes that were written.
    pub bytes_written: u64,
    /// The time in all operations.
    pub time_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pause {
    length: u64,
    begin: u64,
    before: Sums,
}

/// Takes operations in the order of time.
#[derive(Debug, Default)]
pub(crate) struct Phases {
    longest: BinaryHeap<Reverse<Pause>>,
    lengths: Histogram,
    sums: Sums,
    begin: Option<u64>,
    end: u64,
}

impl Phases {
    /// An operation from `begin` to `end`, with what it did.
    pub fn add(&mut self, begin: u64, end: u64, did: Sums) {
        if self.begin.is_none() {
            self.begin = Some(begin);
        } else if begin > self.end {
            self.pause(self.end, begin - self.end);
        }
        self.end = self.end.max(end);
        self.sums.operations += did.operations;
        self.sums.read = self.sums.read.saturating_add(did.read);
        self.sums.written = self.sums.written.saturating_add(did.written);
        self.sums.busy = self.sums.busy.saturating_add(did.busy);
    }

    fn pause(&mut self, begin: u64, length: u64) {
        self.lengths.record(length);
        if self.longest.len() == PAUSES_MAX {
            let shortest = self.longest.peek().map_or(0, |pause| pause.0.length);
            if length <= shortest {
                return;
            }
            self.longest.pop();
        }
        let before = self.sums;
        let pause = Pause {
            length,
            begin,
            before,
        };
        self.longest.push(Reverse(pause));
    }

    /// The phases in their order, with times since `origin`, and how long a pause between them is at least.
    pub fn finish(self, origin: u64) -> (Vec<Phase>, u64) {
        let Some(first) = self.begin else {
            return (Vec::new(), 0);
        };
        let usual = self.lengths.quantile(0.5).unwrap_or(0);
        let least = ((self.end - first) / LEAST_PART)
            .max(usual.saturating_mul(LONG))
            .max(1);
        let mut pauses: Vec<Pause> = self.longest.into_iter().map(|p| p.0).collect();
        pauses.retain(|pause| pause.length >= least);
        let shortest = pauses.iter().map(|pause| pause.length).min();
        let least = shortest.unwrap_or(least);
        pauses.sort_by_key(|pause| pause.begin);
        let mut phases = Vec::new();
        let (mut begin, mut before) = (first, Sums::default());
        for pause in &pauses {
            phases.push(phase(origin, begin, pause.begin, before, pause.before));
            (begin, before) = (pause.begin + pause.length, pause.before);
        }
        phases.push(phase(origin, begin, self.end, before, self.sums));
        (phases, least)
    }
}

fn phase(origin: u64, begin: u64, end: u64, before: Sums, after: Sums) -> Phase {
    Phase {
        begin_ns: begin - origin,
        end_ns: end - origin,
        operations: after.operations - before.operations,
        bytes_read: after.read - before.read,
        bytes_written: after.written - before.written,
        time_ns: after.busy - before.busy,
    }
}

/// The rhythm of I/O.
#[derive(Clone, Debug, Serialize)]
pub struct Period {
    /// From the beginning of a phase to that of the next; nothing if there is no rhythm.
    pub period_ns: Option<u64>,
    /// How sure that is, from 0 to 1: how even the phases are, or how alike the activity is after one period.
    pub confidence: f64,
    /// How it was found: `phases`, `correlation`, or nothing.
    pub method: Option<&'static str>,
    /// How long a phase takes, in the middle of all.
    pub phase_ns: u64,
    /// The share of the time that lies within phases.
    pub in_phases: f64,
    /// How alike the activity is to itself, so much later: steps of this length.
    pub lag_ns: u64,
    /// The correlations, from −1 to 1, for one step, two, and so on.
    pub correlation: Vec<f64>,
}

/// Fewer phases have no rhythm.
const RHYTHM_PHASES: usize = 4;
/// Phases are even if their distances differ by less than this, relative to their mean.
const EVEN: f64 = 0.25;
/// Activity that is less alike to itself has no rhythm.
const ALIKE: f64 = 0.3;
/// So many standard deviations of noise are no chance any more.
const NOISE: f64 = 4.5;
/// Of peaks nearly as high as the highest, the first is the period, and the others are multiples of it.
const NEARLY: f64 = 0.85;

/// Widths at which a rhythm is looked for, in bins: what comes a little early or late at one is on time at another.
const COARSER: [usize; 4] = [2, 6, 16, 40];
/// Fewer bins have no shape.
const BINS_MIN: usize = 24;

/// What counting by bins does to something even: where bins and events do not fit, one bin has one more than the next. Events that
/// come evenly, one by one or few together, vary by no more than this: so much variance, in events,
const UNEVEN_VARIANCE: f64 = 0.5;
/// and so much of the mean, however many come together, if no bin is without any.
const UNEVEN_PART: f64 = 0.36;

/// Activity by bins.
pub(crate) struct Activity<'a> {
    pub values: &'a [u64],
    /// What one event adds, on average.
    pub unit: f64,
}

impl Activity<'_> {
    /// In bins so many times as wide; nothing if that leaves no shape.
    fn coarser(&self, factor: usize) -> Option<Vec<u64>> {
        let bins = self.values.chunks(factor);
        let bins: Vec<u64> = bins.map(|bin| bin.iter().sum()).collect();
        (bins.len() >= BINS_MIN && self.is_uneven(&bins)).then_some(bins)
    }

    /// Whether it varies by more than bins make of what is even.
    fn is_uneven(&self, bins: &[u64]) -> bool {
        // The last bin is narrower than the others.
        let whole = &bins[..bins.len() - 1];
        let count = whole.len() as f64;
        let mean = whole.iter().map(|v| *v as f64).sum::<f64>() / count;
        let squares = whole
            .iter()
            .map(|v| (*v as f64 - mean).powi(2))
            .sum::<f64>();
        let variance = squares / count;
        variance > UNEVEN_VARIANCE * self.unit.powi(2) && variance.sqrt() > UNEVEN_PART * mean
    }
}

/// Finds the rhythm: from phases where these are even, else in the series of activity, by bins of `width_ns`.
pub(crate) fn period(
    phases: &[Phase],
    series: &[Activity],
    width_ns: u64,
    duration_ns: u64,
) -> Period {
    let (lag_ns, correlation, peak) = clearest(series, width_ns);
    let (period_ns, confidence, method) = match (even(phases, duration_ns), peak) {
        (Some((period, evenness)), _) => (Some(period), evenness, Some("phases")),
        (None, Some((lag, height))) => {
            let period = lag_ns.saturating_mul(lag as u64);
            (Some(period), height, Some("correlation"))
        }
        (None, None) => (None, 0.0, None),
    };
    let mut lengths: Vec<u64> = phases.iter().map(|p| p.end_ns - p.begin_ns).collect();
    lengths.sort_unstable();
    let within: u64 = lengths.iter().sum();
    Period {
        period_ns,
        confidence: rounded(confidence),
        method,
        phase_ns: lengths.get(lengths.len() / 2).copied().unwrap_or(0),
        in_phases: rounded((within as f64 / duration_ns.max(1) as f64).min(1.0)),
        lag_ns,
        correlation: correlation.into_iter().map(rounded).collect(),
    }
}

/// A peak: its lag and its height.
type Peak = Option<(usize, f64)>;

/// The series and the width at which the rhythm is clearest: the width, how alike it is to itself, and the peak. Where all is
/// even there is none.
fn clearest(series: &[Activity], width_ns: u64) -> (u64, Vec<f64>, Peak) {
    let mut best: (u64, Vec<f64>, Peak) = (width_ns, Vec::new(), None);
    for activity in series {
        for factor in COARSER {
            let Some(coarse) = activity.coarser(factor) else {
                continue;
            };
            let correlation = correlation(&coarse);
            let peak = peak(&correlation);
            let height = |peak: Peak| peak.map_or(0.0, |(_, height)| height);
            if best.1.is_empty() || height(peak) > height(best.2) {
                best = (width_ns * factor as u64, correlation, peak);
            }
        }
    }
    best
}

/// Four digits behind the point are enough for any share.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

/// Where nearly all of the time lies in phases, their borders mean little.
const IN_PHASES_MAX: f64 = 0.9;

/// The mean distance of phases and how even it is, if it is: of all, or of those that read or write the most.
fn even(phases: &[Phase], duration_ns: u64) -> Option<(u64, f64)> {
    let within: u64 = phases.iter().map(|p| p.end_ns - p.begin_ns).sum();
    if within as f64 > IN_PHASES_MAX * duration_ns as f64 {
        return None;
    }
    let kinds: [fn(&Phase) -> u64; 3] = [|p| p.operations, |p| p.bytes_written, |p| p.bytes_read];
    let evens = kinds.iter().filter_map(|kind| even_of(phases, *kind));
    evens.max_by(|a, b| a.1.total_cmp(&b.1))
}

fn even_of(phases: &[Phase], kind: fn(&Phase) -> u64) -> Option<(u64, f64)> {
    let most = phases.iter().map(kind).max()?;
    let large = phases.iter().filter(|p| kind(p) > 0 && kind(p) >= most / 4);
    let starts: Vec<f64> = large.map(|p| p.begin_ns as f64).collect();
    if starts.len() < RHYTHM_PHASES {
        return None;
    }
    let distances: Vec<f64> = starts.windows(2).map(|w| w[1] - w[0]).collect();
    let mean = distances.iter().sum::<f64>() / distances.len() as f64;
    let squares = distances.iter().map(|d| (d - mean).powi(2)).sum::<f64>();
    let spread = (squares / distances.len() as f64).sqrt() / mean;
    (spread < EVEN).then_some((mean as u64, 1.0 - spread))
}

/// How alike a series is to itself, one step later, two, and so on up to half of its length.
fn correlation(values: &[u64]) -> Vec<f64> {
    let mean = values.iter().map(|v| *v as f64).sum::<f64>() / values.len().max(1) as f64;
    let off: Vec<f64> = values.iter().map(|v| *v as f64 - mean).collect();
    let square: f64 = off.iter().map(|o| o * o).sum();
    if square == 0.0 {
        return Vec::new();
    }
    let at = |lag: usize| -> f64 {
        let pairs = off.iter().zip(&off[lag..]);
        let sum: f64 = pairs.map(|(a, b)| a * b).sum();
        // As if all lags had as many pairs.
        sum / square * off.len() as f64 / (off.len() - lag) as f64
    };
    (1..=values.len() / 2).map(at).collect()
}

/// The lag of the first high peak behind the first valley, and its height.
fn peak(correlation: &[f64]) -> Option<(usize, f64)> {
    let valley = correlation.iter().position(|c| *c < 0.1)?;
    let is_peak = |at: &usize| {
        let here = correlation[*at];
        here > correlation[at - 1] && correlation.get(at + 1).is_none_or(|next| here >= *next)
    };
    // Noise is alike to itself by one over the root of the pairs that are compared, and we look at many lags.
    let is_high = |at: &usize| {
        let pairs = (2 * correlation.len() - at) as f64;
        correlation[*at] >= ALIKE.max(NOISE / pairs.sqrt())
    };
    let peaks = (valley + 1..correlation.len())
        .filter(is_peak)
        .filter(is_high);
    let peaks: Vec<usize> = peaks.collect();
    let highest = peaks.iter().map(|at| correlation[*at]).fold(0.0, f64::max);
    let first = peaks
        .into_iter()
        .find(|at| correlation[*at] >= NEARLY * highest)?;
    Some((first + 1, correlation[first].min(1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(read: u64) -> Sums {
        Sums {
            operations: 1,
            read,
            ..Sums::default()
        }
    }

    /// Bursts of 20 operations of 10 ns, 5 ns apart; a burst every `every` ns.
    fn bursts(count: u64, every: u64) -> (Vec<Phase>, u64) {
        let mut phases = Phases::default();
        for burst in 0..count {
            for n in 0..20 {
                let begin = 1000 + burst * every + n * 15;
                phases.add(begin, begin + 10, op(7));
            }
        }
        phases.finish(1000)
    }

    #[test]
    fn bursts_are_phases_with_their_own_sums() {
        let (phases, least) = bursts(6, 10_000);
        assert_eq!(phases.len(), 6);
        assert!(
            phases
                .iter()
                .all(|p| (p.operations, p.bytes_read) == (20, 140))
        );
        assert_eq!((phases[1].begin_ns, phases[1].end_ns), (10_000, 10_295));
        assert!(least > 5);
    }

    #[test]
    fn many_phases_are_all_counted_and_their_rhythm_is_theirs() {
        let (phases, _) = bursts(900, 10_000);
        assert_eq!(phases.len(), 900);
        let found = period(&phases, &[], 1, 9_000_000);
        assert_eq!(found.period_ns, Some(10_000));
        assert_eq!(found.phase_ns, 295);
    }

    #[test]
    fn what_never_pauses_is_one_phase() {
        let (phases, _) = bursts(1, 0);
        assert_eq!(phases.len(), 1);
        assert_eq!(Phases::default().finish(0).0, []);
    }

    #[test]
    fn even_phases_have_a_period() {
        let (phases, _) = bursts(6, 10_000);
        let found = period(&phases, &[], 1, 60_000);
        assert_eq!(
            (found.period_ns, found.method),
            (Some(10_000), Some("phases"))
        );
        assert!(found.confidence > 0.99);
    }

    fn of_events(values: &[u64]) -> Activity<'_> {
        Activity { values, unit: 1.0 }
    }

    #[test]
    fn a_rhythm_without_pauses_is_found_in_the_activity() {
        let activity: Vec<u64> = (0..500).map(|n| if n % 20 < 4 { 90 } else { 3 }).collect();
        let found = period(&[], &[of_events(&activity)], 100, 50_000);
        assert_eq!(found.method, Some("correlation"));
        assert_eq!(found.period_ns, Some(2000));
    }

    #[test]
    fn noise_has_no_rhythm() {
        let noise = |n: u64| {
            let mixed = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            (mixed ^ mixed >> 31) % 100
        };
        let activity: Vec<u64> = (0..500).map(noise).collect();
        let found = period(&[], &[of_events(&activity)], 100, 50_000);
        assert_eq!(found.period_ns, None);
        let found = period(&[], &[of_events(&[5; 100])], 100, 10_000);
        assert_eq!(found.period_ns, None);
    }

    /// So many events, one as far from the next as any other, `together` of them at a time, each worth `size`.
    fn even(events: u64, together: u64, size: u64, bins: usize) -> Vec<u64> {
        let mut values = vec![0; bins];
        for n in 0..events {
            values[(n * bins as u64 / events) as usize] += together * size;
        }
        values
    }

    #[test]
    fn what_comes_evenly_has_no_rhythm_however_it_is_counted() {
        for bins in [48, 97, 500, 1365, 2047, 2048] {
            for events in (bins / 7..6 * bins).step_by(29) {
                let one_by_one = even(events as u64, 1, 1, bins);
                let found = period(&[], &[of_events(&one_by_one)], 100, 1);
                assert_eq!(found.period_ns, None, "{events} events in {bins} bins");
                let values = even(events as u64, 1, 65_536, bins);
                let unit = 65_536.0;
                let values = &values;
                let found = period(&[], &[Activity { values, unit }], 100, 1);
                assert_eq!(found.period_ns, None, "{events} reads in {bins} bins");
            }
        }
    }

    #[test]
    fn a_loop_that_is_quicker_than_bins_has_no_rhythm_that_they_could_show() {
        for bins in [48, 500, 2048] {
            for times in (bins..6 * bins).step_by(31) {
                let values = even(times as u64, 3, 1, bins);
                let found = period(&[], &[of_events(&values)], 100, 1);
                assert_eq!(found.period_ns, None, "{times} times in {bins} bins");
            }
        }
    }
}
