//! From requests to a pattern: offset distances (Eq. 1), averaged over buckets (IV-D), and counts.
//!
//! Which compression is right depends on the majority operation, which is known only at the end of a period. So two
//! series are made at once, and one is kept (VI-A).

use crate::extents::Extents;
use crate::{Representation, Settings};
use presagio_core::{FileId, IdHashMap, Op, Range};

/// What a server was asked in a period.
#[derive(Clone, Debug, PartialEq)]
pub struct Pattern {
    /// The series: means of offset distances.
    pub(crate) points: Box<[u32]>,
    /// The least and the greatest point: what bounds distances without looking at the series.
    pub(crate) least: u32,
    pub(crate) greatest: u32,
    pub(crate) files: u32,
    /// Requests by operation.
    pub(crate) requests: [u32; 2],
}

impl Pattern {
    /// A pattern from its parts. `points` are in units of the caller's choice; none is one that is 0.
    pub fn new(mut points: Vec<u32>, files: u32, reads: u32, writes: u32) -> Pattern {
        if points.is_empty() {
            points.push(0);
        }
        Pattern {
            least: points.iter().copied().min().unwrap_or(0),
            greatest: points.iter().copied().max().unwrap_or(0),
            points: points.into(),
            files,
            requests: [reads, writes],
        }
    }

    /// The series.
    pub fn points(&self) -> &[u32] {
        &self.points
    }

    /// How many files were accessed.
    pub fn files(&self) -> u32 {
        self.files
    }

    /// How many requests there were of an operation.
    pub fn requests(&self, op: Op) -> u32 {
        self.requests[op.index()]
    }

    /// Which operation is the more frequent one; reads where there are as many of both.
    pub fn majority(&self) -> Op {
        match self.requests[Op::Write.index()] > self.requests[Op::Read.index()] {
            true => Op::Write,
            false => Op::Read,
        }
    }

    /// How different two patterns are without their series, as their representation sees it.
    pub fn difference(&self, other: &Pattern, representation: Representation) -> f64 {
        match representation {
            Representation::Distances => self.difference_of_counts(other),
            Representation::Extents => (self.share_of_reads() - other.share_of_reads()).abs(),
        }
    }

    /// Eq. 2: the greatest relative difference of their numbers of
    /// files, reads and writes. What one has none of and the other has is infinitely different.
    fn difference_of_counts(&self, other: &Pattern) -> f64 {
        let counts = |p: &Pattern| [p.files, p.requests[0], p.requests[1]];
        let pairs = counts(self).into_iter().zip(counts(other));
        pairs.fold(0.0, |greatest, (a, b)| relative(a, b).max(greatest))
    }

    fn share_of_reads(&self) -> f64 {
        let [reads, writes] = self.requests.map(f64::from);
        reads / (reads + writes).max(1.0)
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        size_of::<Pattern>() + self.points.len() * size_of::<u32>()
    }
}

/// |a − b| / min(a, b), where x/0 is infinite and 0/0 is 0.
fn relative(a: u32, b: u32) -> f64 {
    match (a.abs_diff(b), a.min(b)) {
        (0, _) => 0.0,
        (_, 0) => f64::INFINITY,
        (apart, least) => f64::from(apart) / f64::from(least),
    }
}

/// Makes a pattern of each period.
#[derive(Clone, Debug)]
pub struct Recorder {
    infinite: u64,
    unit: u64,
    last: Option<(FileId, u64)>,
    files: IdHashMap<FileId, ()>,
    requests: [u32; 2],
    /// The series with the compression for reads, and the one with that for writes.
    series: [Buckets; 2],
    /// What is collected instead, if that is the representation.
    extents: Option<Extents>,
}

impl Recorder {
    /// A recorder for patterns of these settings.
    pub fn new(settings: &Settings) -> Recorder {
        let buckets = |op| Buckets::new(settings.of(op).compression);
        Recorder {
            infinite: settings.infinite,
            unit: settings.unit(),
            last: None,
            files: IdHashMap::default(),
            requests: [0; 2],
            series: Op::ALL.map(buckets),
            extents: match settings.representation {
                Representation::Distances => None,
                Representation::Extents => Some(Extents::default()),
            },
        }
    }

    /// A request arrived. The first of a period has none before it: its distance is 0.
    pub fn observe(&mut self, file: FileId, op: Op, range: Range) {
        let distance = match self.last {
            None => 0,
            Some((before, _)) if before != file => self.infinite,
            Some((_, end)) => range.start().abs_diff(end).min(self.infinite),
        };
        self.last = Some((file, range.end()));
        self.files.insert(file, ());
        let requests = &mut self.requests[op.index()];
        *requests = requests.saturating_add(1);
        if let Some(extents) = &mut self.extents {
            extents.add(file, range);
            return;
        }
        for series in &mut self.series {
            series.add(distance / self.unit);
        }
    }

    /// The period is over: its pattern, if there was any request. What comes now belongs to the next one.
    pub fn end(&mut self) -> Option<Pattern> {
        self.last.take()?;
        let files = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
        self.files.clear();
        let [reads, writes] = std::mem::take(&mut self.requests);
        let [of_reads, of_writes] = self.series.each_mut().map(Buckets::end);
        let points = match &mut self.extents {
            Some(extents) => extents.end(self.infinite),
            None if writes > reads => of_writes,
            None => of_reads,
        };
        Some(Pattern::new(points, files, reads, writes))
    }
}

/// A series that is being made: the mean of every so many values.
#[derive(Clone, Debug)]
struct Buckets {
    size: u32,
    filled: u32,
    sum: u64,
    means: Vec<u32>,
}

impl Buckets {
    fn new(size: u32) -> Buckets {
        Buckets {
            size: size.max(1),
            filled: 0,
            sum: 0,
            means: Vec::new(),
        }
    }

    fn add(&mut self, value: u64) {
        self.sum += value;
        self.filled += 1;
        if self.filled == self.size {
            self.close();
        }
    }

    fn close(&mut self) {
        let mean = self.sum / u64::from(self.filled);
        self.means.push(u32::try_from(mean).unwrap_or(u32::MAX));
        (self.sum, self.filled) = (0, 0);
    }

    /// All means. What is in the last bucket counts as if it were full: short patterns are patterns, too.
    fn end(&mut self) -> Vec<u32> {
        if self.filled > 0 {
            self.close();
        }
        std::mem::take(&mut self.means)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::OpSettings;
    use proptest::prelude::*;

    fn settings(compression: [u32; 2], infinite: u64) -> Settings {
        let op = |compression| OpSettings {
            compression,
            difference_max: 0.4,
            threshold: 0.9,
        };
        Settings {
            infinite,
            ops: compression.map(op),
            ..Settings::published_servers()
        }
    }

    fn pattern(settings: &Settings, requests: &[(u64, Op, u64, u64)]) -> Pattern {
        let mut recorder = Recorder::new(settings);
        for &(file, op, start, len) in requests {
            recorder.observe(FileId(file), op, Range::at(start, len));
        }
        recorder.end().unwrap()
    }

    #[test]
    fn distances_are_from_the_end_of_the_request_before_and_bounded() {
        let requests = [
            (1, Op::Read, 500, 100),
            (1, Op::Read, 600, 100),
            (1, Op::Read, 650, 10),
            (1, Op::Read, 90_000, 10),
            (2, Op::Read, 0, 10),
            (2, Op::Read, 0, 10),
        ];
        let made = pattern(&settings([1, 1], 5000), &requests);
        assert_eq!(made.points(), [0, 0, 50, 5000, 5000, 10]);
        assert_eq!((made.files(), made.requests), (2, [6, 0]));
    }

    #[test]
    fn the_series_of_the_majority_operation_is_kept() {
        let steps = |op| (0..7).map(move |i| (1, op, i * 30, 10)).collect::<Vec<_>>();
        let settings = settings([2, 4], 5000);
        let mut reads = steps(Op::Read);
        assert_eq!(pattern(&settings, &reads).points(), [10, 20, 20, 20]);
        assert_eq!(pattern(&settings, &steps(Op::Write)).points(), [15, 20]);
        reads.truncate(3);
        let both = [reads, steps(Op::Write)].concat();
        assert_eq!(pattern(&settings, &both).majority(), Op::Write);
    }

    #[test]
    fn a_period_without_requests_has_no_pattern_and_the_next_begins_anew() {
        let mut recorder = Recorder::new(&settings([1, 1], 5000));
        assert_eq!(recorder.end(), None);
        recorder.observe(FileId(1), Op::Read, Range::at(0, 10));
        recorder.end().unwrap();
        recorder.observe(FileId(1), Op::Read, Range::at(700, 10));
        let second = recorder.end().unwrap();
        assert_eq!((second.points(), second.files()), (&[0][..], 1));
        assert_eq!(recorder.end(), None);
    }

    #[test]
    fn an_infinite_distance_larger_than_a_point_is_kept_in_larger_units() {
        let settings = settings([1, 1], 100_000_000_000);
        let made = pattern(&settings, &[(1, Op::Read, 0, 1), (2, Op::Read, 0, 1)]);
        let infinite = u64::from(made.points()[1]) * settings.unit();
        assert!(infinite.abs_diff(settings.infinite) < settings.unit());
    }

    #[test]
    fn difference_is_relative_to_the_smaller_and_infinite_where_one_has_none() {
        let of = |files, reads, writes| Pattern::new(vec![0], files, reads, writes);
        let by = Representation::Distances;
        assert_eq!(of(2, 10, 0).difference(&of(2, 14, 0), by), 0.4);
        assert_eq!(of(2, 14, 0).difference(&of(3, 10, 0), by), 0.5);
        assert_eq!(of(1, 10, 0).difference(&of(1, 10, 1), by), f64::INFINITY);
        assert_eq!(of(1, 10, 0).difference(&of(1, 10, 0), by), 0.0);
    }

    proptest! {
        #[test]
        fn a_pattern_takes_four_bytes_a_point_and_at_most_128_more(
            starts in proptest::collection::vec(0_u64..1 << 40, 1..3000),
            compression in 1_u32..200,
        ) {
            let settings = settings([compression; 2], 10_000_000_000);
            let requests: Vec<_> = starts.iter().map(|s| (s % 7, Op::Write, *s, 4096)).collect();
            let made = pattern(&settings, &requests);
            let points = starts.len() as f64 / f64::from(compression);
            prop_assert!(crate::base::bytes(&made) as f64 <= 4.0 * points + 128.0);
        }
    }
}
