//! What requests tell about the application that makes them, while they arrive (thesis 4.3).
//!
//! For each file and operation: the *average request distance* (4.3.1), how far, in sizes of the request before, the next
//! one is from where that one ended; and the *average stripe access time difference* (4.3.2), how long it takes from the first
//! request for a stripe to the last. Requests that an application makes at once arrive at once.
//!
//! The thesis computes both from a whole trace. Here somebody decides at the end of each period, and memory has a bound: stripes
//! are remembered in a table of fixed size, and one that another needs the place of is over.
//!
//! *Windows.* A disk that seeks may serve two or three large requests in a period, which do not tell one process from
//! several that take turns. So sums go on over several periods, a *window*, until there are [`WINDOW_REQUESTS`] for each file or
//! it has [`WINDOW_PERIODS`]; each end of a period shows what the window has by then. Where much arrives, a window is a period.

use presagio_core::{FileId, IdHashMap, Nanos, Op, Request};

/// Files that are followed in a window. Of the others only requests and bytes are counted.
const FILES_MAX: usize = 8192;

/// Stripes that are remembered at a time: a power of two.
const STRIPES: usize = 4096;

/// A window is full when it has so many requests for each file.
const WINDOW_REQUESTS: u64 = 64;

/// A window never has more periods than this.
const WINDOW_PERIODS: u32 = 16;

/// Sums over the requests of a window. See the module's header.
#[derive(Clone, Debug)]
pub struct Metrics {
    stripe_bits: u32,
    /// By file and operation, the place in `files`.
    known: [IdHashMap<FileId, u32>; 2],
    files: Vec<Sums>,
    stripes: Vec<Stripe>,
    /// The window's number: stripes of another one are not there.
    window: u32,
    requests: [u64; 2],
    bytes: [u64; 2],
    /// Requests of this period alone.
    latest: [u64; 2],
    /// Periods that the window has.
    periods: u32,
}

#[derive(Clone, Copy, Debug)]
struct Sums {
    op: Op,
    requests: u64,
    bytes: u64,
    first: Nanos,
    last: Nanos,
    /// Where the request before ended, and its size.
    end: u64,
    size: u64,
    distances: f64,
    /// Bytes of all distances, and where the least and the last byte is.
    apart: f64,
    lowest: u64,
    highest: u64,
    /// Pairs without a distance.
    touching: u64,
    stripes: u64,
    stripe_ns: u64,
}

/// A stripe that requests still come for.
#[derive(Clone, Copy, Debug, Default)]
struct Stripe {
    number: u64,
    first: u64,
    last: u64,
    /// The place of its file.
    file: u32,
    window: u32,
}

/// What a window had of a file and an operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FileMetrics {
    /// Which operation.
    pub op: Op,
    /// How many requests.
    pub requests: u64,
    /// Of how many bytes.
    pub bytes: u64,
    /// The average distance between consecutive requests (Eq. 4.6).
    pub distance: f64,
    /// The share of requests that begin where the one before ended.
    pub touching: f64,
    /// The average distance as a share of what the requests lie in, from the lowest byte to the highest.
    pub reach: f64,
    /// The average stripe access time difference (Eq. 4.8), in microseconds.
    pub stripe_us: f64,
    /// The same, by the average time between two requests for the file.
    pub stripe_turns: f64,
    /// The share of what the requests lie in that they ask for.
    pub density: f64,
    /// Files that requests of the operation came for.
    pub files: u64,
    /// Whether the window is at its end: no more will come to this.
    pub is_whole: bool,
}

/// What a window had at the end of a period.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Period {
    /// Requests of the window: reads and writes.
    pub requests: [u64; 2],
    /// Their bytes.
    pub bytes: [u64; 2],
    /// Each file that there were at least two requests for, by operation, in the order in which they appeared.
    pub files: Vec<FileMetrics>,
    /// Files that requests came for: read and written.
    pub accessed: [u64; 2],
    /// Requests since the end of the period before.
    pub latest: [u64; 2],
}

impl Period {
    /// The operation of most requests since the period before; none if there was no request.
    pub fn op(&self) -> Option<Op> {
        match self.latest {
            [0, 0] => None,
            [reads, writes] if writes > reads => Some(Op::Write),
            _ => Some(Op::Read),
        }
    }
}

impl Metrics {
    /// Metrics of a storage with stripes of so many bytes: the power of two that is not above.
    pub fn new(stripe: u64) -> Metrics {
        Metrics {
            stripe_bits: stripe.max(1).ilog2(),
            known: [IdHashMap::default(), IdHashMap::default()],
            files: Vec::new(),
            stripes: vec![Stripe::default(); STRIPES],
            window: 1,
            requests: [0; 2],
            bytes: [0; 2],
            latest: [0; 2],
            periods: 0,
        }
    }

    /// A request arrives. Empty ones tell nothing.
    #[inline]
    pub fn arrived(&mut self, request: &Request, now: Nanos) {
        if request.range.is_empty() {
            return;
        }
        let op = request.op.index();
        let (start, end, size) = (
            request.range.start(),
            request.range.end(),
            request.range.len(),
        );
        self.requests[op] += 1;
        self.latest[op] += 1;
        self.bytes[op] += size;
        let place = match self.known[op].get(&request.file) {
            Some(place) => *place,
            None if self.files.len() < FILES_MAX => self.add(request, now),
            None => return,
        };
        let sums = &mut self.files[place as usize];
        if sums.requests > 0 {
            let apart = start.abs_diff(sums.end);
            sums.touching += u64::from(apart == 0);
            sums.distances += apart as f64 / sums.size as f64;
            sums.apart += apart as f64;
        }
        sums.lowest = sums.lowest.min(start);
        sums.highest = sums.highest.max(end);
        sums.requests += 1;
        sums.bytes += size;
        (sums.end, sums.size, sums.last) = (end, size, now);
        let (first, last) = (start >> self.stripe_bits, (end - 1) >> self.stripe_bits);
        self.in_stripe(place, first, now.0);
        if last > first {
            // Nobody else is at those in between: all of them arrive with this request.
            self.files[place as usize].stripes += last - first - 1;
            self.in_stripe(place, last, now.0);
        }
    }

    /// What the window had up to now; the next period begins, and if the window is full, the next window.
    pub fn end_period(&mut self) -> Period {
        self.periods += 1;
        let is_full = self.is_full();
        let period = self.seen(is_full);
        self.latest = [0; 2];
        if is_full {
            self.forget();
        }
        period
    }

    /// What the window has so far, in the middle of a period.
    pub fn glance(&self) -> Period {
        self.seen(false)
    }

    /// Whether anything has arrived since the end of the period before.
    pub fn is_quiet(&self) -> bool {
        self.latest == [0; 2]
    }

    fn seen(&self, is_whole: bool) -> Period {
        let mut files = self.files.clone();
        let open = self.stripes.iter();
        for stripe in open.filter(|stripe| stripe.window == self.window) {
            files[stripe.file as usize].close(stripe);
        }
        let accessed = self.known.each_ref().map(|known| known.len() as u64);
        let paired = files.iter().filter(|sums| sums.requests > 1);
        Period {
            latest: self.latest,
            requests: self.requests,
            bytes: self.bytes,
            files: paired
                .map(|sums| sums.metrics(accessed, is_whole))
                .collect(),
            accessed,
        }
    }

    fn is_full(&self) -> bool {
        let requests = self.requests[0] + self.requests[1];
        let enough = WINDOW_REQUESTS * self.files.len() as u64;
        requests >= enough || self.periods >= WINDOW_PERIODS
    }

    /// The next window begins.
    pub(crate) fn forget(&mut self) {
        self.window = match self.window.wrapping_add(1) {
            0 => {
                self.stripes.fill(Stripe::default());
                1
            }
            next => next,
        };
        self.known.iter_mut().for_each(IdHashMap::clear);
        self.files.clear();
        (self.requests, self.bytes, self.periods) = ([0; 2], [0; 2], 0);
    }

    #[cold]
    fn add(&mut self, request: &Request, now: Nanos) -> u32 {
        let place = self.files.len() as u32; // Below FILES_MAX.
        self.known[request.op.index()].insert(request.file, place);
        self.files.push(Sums {
            op: request.op,
            requests: 0,
            bytes: 0,
            first: now,
            last: now,
            end: 0,
            size: 1,
            distances: 0.0,
            apart: 0.0,
            lowest: u64::MAX,
            highest: 0,
            touching: 0,
            stripes: 0,
            stripe_ns: 0,
        });
        place
    }

    #[inline]
    fn in_stripe(&mut self, file: u32, number: u64, now: u64) {
        let mixed = (number ^ (u64::from(file) << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let at = (mixed >> 32) as usize & (STRIPES - 1);
        let stripe = &mut self.stripes[at];
        if (stripe.file, stripe.number, stripe.window) == (file, number, self.window) {
            stripe.last = stripe.last.max(now);
            stripe.first = stripe.first.min(now);
            return;
        }
        let old = std::mem::replace(
            stripe,
            Stripe {
                number,
                first: now,
                last: now,
                file,
                window: self.window,
            },
        );
        if old.window == self.window {
            self.files[old.file as usize].close(&old);
        }
    }
}

impl Sums {
    /// No more requests come for a stripe.
    fn close(&mut self, stripe: &Stripe) {
        self.stripes += 1;
        self.stripe_ns = self.stripe_ns.saturating_add(stripe.last - stripe.first);
    }

    /// Of at least two requests, in a window in which so many files were accessed, by operation.
    fn metrics(&self, accessed: [u64; 2], is_whole: bool) -> FileMetrics {
        let pairs = (self.requests - 1) as f64;
        let stripe_ns = self.stripe_ns as f64 / self.stripes.max(1) as f64;
        let turn_ns = (self.last.since(self.first).0 as f64 / pairs).max(1.0);
        FileMetrics {
            op: self.op,
            requests: self.requests,
            bytes: self.bytes,
            distance: self.distances / pairs,
            touching: self.touching as f64 / pairs,
            reach: self.apart / pairs / (self.highest - self.lowest).max(1) as f64,
            stripe_us: stripe_ns / 1e3,
            stripe_turns: stripe_ns / turn_ns,
            density: (self.bytes as f64 / (self.highest - self.lowest).max(1) as f64).min(1.0),
            files: accessed[self.op.index()],
            is_whole,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use presagio_core::{Range, RequestId};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn request(file: u64, op: Op, start: u64, len: u64) -> Request {
        Request::new(RequestId(0), FileId(file), op, Range::at(start, len))
    }

    #[test]
    fn requests_in_sequence_have_no_distance_and_gaps_count_in_sizes() {
        let mut metrics = Metrics::new(32 << 10);
        for (at, start) in [0, 8, 16, 40].into_iter().enumerate() {
            let request = request(1, Op::Read, start << 10, 8 << 10);
            metrics.arrived(&request, Nanos(at as u64));
        }
        let period = metrics.end_period();
        // 0, 0, and 16 KiB beyond the end: two sizes.
        assert_eq!(period.files[0].distance, 2.0 / 3.0);
        assert_eq!(period.files[0].touching, 2.0 / 3.0);
        assert_eq!((period.requests, period.op()), ([4, 0], Some(Op::Read)));
    }

    #[test]
    fn a_window_that_tells_little_goes_on_and_a_full_one_is_forgotten() {
        let mut metrics = Metrics::new(4096);
        metrics.arrived(&request(1, Op::Write, 0, 4096), Nanos(0));
        metrics.arrived(&request(1, Op::Write, 1 << 30, 4096), Nanos(1));
        assert!(metrics.end_period().files[0].distance > 1000.0);
        metrics.arrived(&request(1, Op::Write, 8192, 4096), Nanos(2));
        let period = metrics.end_period();
        assert_eq!((period.files[0].requests, period.latest), (3, [0, 1]));
        for at in 0..WINDOW_REQUESTS {
            metrics.arrived(&request(1, Op::Write, at * 4096, 4096), Nanos(3 + at));
        }
        assert_eq!(metrics.end_period().requests[1], 3 + WINDOW_REQUESTS);
        metrics.arrived(&request(1, Op::Write, 0, 2048), Nanos(1000));
        metrics.arrived(&request(1, Op::Write, 2048, 2048), Nanos(4000));
        let file = metrics.end_period().files[0];
        assert_eq!(
            (file.requests, file.distance, file.stripe_us),
            (2, 0.0, 3.0)
        );
    }

    #[test]
    fn a_window_ends_however_little_comes() {
        let mut metrics = Metrics::new(4096);
        metrics.arrived(&request(1, Op::Read, 0, 4096), Nanos(0));
        metrics.arrived(&request(1, Op::Read, 4096, 4096), Nanos(1));
        for _ in 0..WINDOW_PERIODS {
            assert_eq!(metrics.end_period().files.len(), 1);
        }
        assert_eq!(metrics.end_period(), Period::default());
    }

    #[test]
    fn processes_that_take_turns_fill_what_they_lie_in() {
        let density = |stride: u64| {
            let mut metrics = Metrics::new(4096);
            for at in 0..8 {
                metrics.arrived(&request(1, Op::Read, at * stride, 4096), Nanos(at));
            }
            metrics.end_period().files[0].density
        };
        assert_eq!(density(4096), 1.0);
        assert!(density(1 << 20) < 0.01);
    }

    #[test]
    fn files_beyond_the_bound_are_counted_and_not_followed() {
        let mut metrics = Metrics::new(4096);
        for file in 0..FILES_MAX as u64 + 10 {
            metrics.arrived(&request(file, Op::Read, 0, 1), Nanos(0));
            metrics.arrived(&request(file, Op::Read, 1, 1), Nanos(0));
        }
        let period = metrics.end_period();
        assert_eq!(period.files.len(), FILES_MAX);
        assert_eq!(period.requests[0], 2 * (FILES_MAX as u64 + 10));
    }

    proptest! {
        /// Against the definitions, applied to all requests at once. Few stripes, so that none is given up early.
        #[test]
        fn the_sums_are_what_the_equations_say(
            requests in prop::collection::vec((0_u64..2, 0_u64..64, 1_u64..5000), 2..200),
        ) {
            let mut metrics = Metrics::new(4096);
            let mut pairs: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
            let mut before: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
            let mut stripes: BTreeMap<(u64, u64), (u64, u64)> = BTreeMap::new();
            for (at, (file, block, len)) in requests.iter().enumerate() {
                let (start, now) = (block * 1000, at as u64 * 1000);
                metrics.arrived(&request(*file, Op::Read, start, *len), Nanos(now));
                if let Some((end, size)) = before.insert(*file, (start + len, *len)) {
                    let distance = start.abs_diff(end) as f64 / size as f64;
                    pairs.entry(*file).or_default().push(distance);
                }
                for stripe in start / 4096..=(start + len - 1) / 4096 {
                    stripes.entry((*file, stripe)).or_insert((now, now)).1 = now;
                }
            }
            // Two stripes may want one place of the table; then the metric is an approximation.
            let mut places: Vec<(u64, usize)> = Vec::new();
            let order: Vec<u64> = {
                let mut seen = Vec::new();
                requests.iter().for_each(|r| if !seen.contains(&r.0) { seen.push(r.0) });
                seen
            };
            for (file, number) in stripes.keys() {
                let place = order.iter().position(|f| f == file).unwrap() as u64;
                let mixed = (number ^ (place << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                places.push((0, (mixed >> 32) as usize & (STRIPES - 1)));
            }
            places.sort_unstable();
            prop_assume!(places.windows(2).all(|two| two[0] != two[1]));
            let period = metrics.end_period();
            let followed = order.iter().filter(|file| pairs.contains_key(file));
            for (file, ours) in followed.zip(&period.files) {
                let mean = pairs[file].iter().sum::<f64>() / pairs[file].len() as f64;
                prop_assert!((ours.distance - mean).abs() <= 1e-9 * mean.max(1.0));
                let of: Vec<f64> = stripes.iter().filter(|(key, _)| key.0 == *file)
                    .map(|(_, (first, last))| (last - first) as f64 / 1e3).collect();
                let mean = of.iter().sum::<f64>() / of.len() as f64;
                // Stripes inside one request are counted as arrived with it alone.
                if requests.iter().all(|r| r.2 <= 4096) {
                    prop_assert!((ours.stripe_us - mean).abs() <= 1e-6 * mean.max(1.0));
                }
            }
        }
    }
}
