//! What a node tells about a period: what arrived ([`Watch`]), and how fast it was served ([`Observation`]).
//!
//! [`Watch`] sees each request that arrives and keeps the five figures that paper 001 tells accesses apart by (V): file
//! handles, the least, greatest and average size of requests, and the average *handle distance*, how far in bytes a request
//! begins from where the one before it in the same file ended. The order in which processes come to a node is chance, so that
//! says little of a file that many of them share; the sixth, the *stride*, is the same within what one process has open.
//!
//! Between, one may [glance](Watch::glance) at what arrives, and is told when it is something else than before.
//!
//! A file is counted that requests came for, and one whose requests wait: a policy that serves one file after the other makes
//! all others silent, and what is in force must not make another situation of the same workload.

use crate::context::{Context, Load, Magnitude, Situation};
use crate::network::Detector;
use presagio_core::{FileId, HandleId, IdHashMap, Nanos, Op, Request};

/// Files that are followed in a period. Of the others only sizes count.
const FILES_MAX: usize = 8192;

/// The handle of a request of which it is not known.
const UNKNOWN: HandleId = HandleId(0);

/// Open files whose last request is remembered, of each operation.
const OPENED_MAX: usize = 16384;

/// Periods for which that is, where there are many: a disk that seeks may have one request of a process in a second.
const REMEMBERED: u32 = 16;

/// The same where requests wait, some of them for seconds: longer than any does.
const AWAITED: u32 = 4096;

/// Requests in a period below which they tell nothing about who makes them.
pub const REQUESTS_MIN: u64 = 16;

/// A node that was busy for less than this share of a period says nothing about its arm.
const BUSY_MIN: f64 = 0.02;

/// The five figures of paper 001, V, and the stride.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Features {
    /// Files that requests came for.
    pub handles: u64,
    /// The greatest request, in bytes.
    pub size_max: u64,
    /// The least.
    pub size_min: u64,
    /// The average.
    pub size_mean: f64,
    /// The average distance, in bytes, between consecutive requests of a file.
    pub distance: f64,
    /// The same between those of a file that came through the same handle: of one process, as far as can be told.
    pub stride: f64,
}

/// One of the [`Features`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are fields of Features")]
pub enum Figure {
    Handles,
    SizeMax,
    SizeMin,
    SizeMean,
    Distance,
    Stride,
}

impl Figure {
    /// All of them.
    pub const ALL: [Figure; 6] = [
        Figure::Handles,
        Figure::SizeMax,
        Figure::SizeMin,
        Figure::SizeMean,
        Figure::Distance,
        Figure::Stride,
    ];

    /// Those of paper 001.
    pub const PUBLISHED: [Figure; 5] = [
        Figure::Handles,
        Figure::SizeMax,
        Figure::SizeMin,
        Figure::SizeMean,
        Figure::Distance,
    ];

    /// Those that tell accesses apart in scenarios that nobody has seen.
    pub const OURS: [Figure; 5] = [
        Figure::Handles,
        Figure::SizeMax,
        Figure::SizeMin,
        Figure::SizeMean,
        Figure::Stride,
    ];

    /// As texts have it.
    pub const fn name(self) -> &'static str {
        match self {
            Figure::Handles => "handles",
            Figure::SizeMax => "size_max",
            Figure::SizeMin => "size_min",
            Figure::SizeMean => "size_mean",
            Figure::Distance => "distance",
            Figure::Stride => "stride",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Figure> {
        Figure::ALL.into_iter().find(|figure| figure.name() == name)
    }
}

impl Features {
    /// The value of a figure.
    pub fn value(&self, figure: Figure) -> f64 {
        match figure {
            Figure::Handles => self.handles as f64,
            Figure::SizeMax => self.size_max as f64,
            Figure::SizeMin => self.size_min as f64,
            Figure::SizeMean => self.size_mean,
            Figure::Distance => self.distance,
            Figure::Stride => self.stride,
        }
    }
}

/// What arrived in a period, of the operation that most of it was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrived {
    /// Which operation.
    pub op: Op,
    /// Requests of it.
    pub requests: u64,
    /// What they were like.
    pub features: Features,
}

/// See the module's header.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    ops: [Sums; 2],
    /// What came through each handle. It outlives periods.
    opened: [IdHashMap<(FileId, HandleId), Opened>; 2],
    period: u32,
    row: Row,
    glance: Glance,
}

/// What arrives, at a glance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Glance {
    /// Requests so far.
    pub requests: u64,
    /// What the last ones were like; none before some in a row were alike.
    pub look: Option<Look>,
}

/// What requests are like: their operation, and the power of two of their size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Look(usize, u32);

impl Look {
    /// Sizes that lie about a power of two are no change.
    pub(crate) fn is_like(self, other: Look) -> bool {
        self.0 == other.0 && self.1.abs_diff(other.1) <= 1
    }
}

/// Requests of one operation in a row.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    op: usize,
    requests: u64,
    bytes: u64,
}

impl Row {
    /// One more; what they are like once they are enough to tell.
    fn add(&mut self, op: usize, size: u64) -> Option<Look> {
        if self.op != op {
            *self = Row::default();
        }
        self.op = op;
        self.requests += 1;
        self.bytes = self.bytes.saturating_add(size);
        if self.requests < REQUESTS_MIN {
            return None;
        }
        let size = self.bytes / self.requests;
        *self = Row::default();
        Some(Look(op, size.max(1).ilog2()))
    }
}

/// What came through a handle.
#[derive(Clone, Copy, Debug)]
struct Opened {
    /// Where the last request ended, and in which period it came.
    end: u64,
    period: u32,
    /// Requests that came and wait, and in which period the last one ceased to.
    waiting: u32,
    left: u32,
}

impl Opened {
    /// Whether it still counts in a period.
    fn is_remembered(&self, now: u32) -> bool {
        let most = if self.waiting > 0 {
            AWAITED
        } else {
            REMEMBERED
        };
        now.wrapping_sub(self.period) <= most
    }
}

#[derive(Clone, Debug, Default)]
struct Sums {
    requests: u64,
    bytes: u64,
    size_max: u64,
    size_min: u64,
    files: Files,
    distance: f64,
    pairs: u64,
    stride: f64,
    strides: u64,
}

/// Files of a period. One that lies on several data servers is as many to a scheduler, but what came through one open file is
/// of one file: so many of them are counted as can be told apart.
#[derive(Clone, Debug, Default)]
struct Files {
    /// Where the last request of each ended, and its place below.
    ends: IdHashMap<FileId, (u64, u32)>,
    /// What else the file is, by its place; itself if that is not known.
    same: Vec<u32>,
    /// A file that each handle is of.
    handles: IdHashMap<HandleId, u32>,
    /// How many turned out to be one with another.
    joined: u64,
}

impl Watch {
    /// Has seen nothing.
    pub fn new() -> Watch {
        Watch::default()
    }

    /// A request arrives. Empty ones tell nothing. Says whether now something else arrives than before.
    #[inline]
    pub fn arrived(&mut self, request: &Request) -> bool {
        if request.range.is_empty() {
            return false;
        }
        self.count(request);
        self.glance.requests += 1;
        let row = &mut self.row;
        let Some(look) = row.add(request.op.index(), request.range.len()) else {
            return false;
        };
        let is_other = self.glance.look.is_none_or(|known| !known.is_like(look));
        if is_other {
            self.glance.look = Some(look);
        }
        is_other
    }

    fn count(&mut self, request: &Request) {
        let sums = &mut self.ops[request.op.index()];
        let size = request.range.len();
        if sums.requests == 0 {
            sums.size_min = size;
        }
        sums.requests += 1;
        sums.bytes = sums.bytes.saturating_add(size);
        sums.size_max = sums.size_max.max(size);
        sums.size_min = sums.size_min.min(size);
        let (file, before) = sums.files.came(request.file, request.range.end());
        if let Some(end) = before {
            sums.distance += request.range.start().abs_diff(end) as f64;
            sums.pairs += 1;
        }
        if request.handle == UNKNOWN {
            return;
        }
        let opened = &mut self.opened[request.op.index()];
        let key = (request.file, request.handle);
        let is_first = if let Some(known) = opened.get_mut(&key) {
            sums.stride += request.range.start().abs_diff(known.end) as f64;
            sums.strides += 1;
            known.end = request.range.end();
            known.waiting = known.waiting.saturating_add(1);
            std::mem::replace(&mut known.period, self.period) != self.period
        } else if opened.len() < OPENED_MAX {
            let first = Opened {
                end: request.range.end(),
                period: self.period,
                waiting: 1,
                left: self.period,
            };
            opened.insert(key, first);
            true
        } else {
            false
        };
        if let Some(file) = file.filter(|_| is_first) {
            sums.files.came_through(file, request.handle);
        }
    }

    /// A request waits no longer: it is served now, or was taken back.
    #[inline]
    pub fn departed(&mut self, request: &Request) {
        if request.handle == UNKNOWN || request.range.is_empty() {
            return;
        }
        let key = (request.file, request.handle);
        if let Some(known) = self.opened[request.op.index()].get_mut(&key) {
            known.waiting = known.waiting.saturating_sub(1);
            known.left = self.period;
        }
    }

    /// Counts the files whose requests waited in the period, none of which came in it.
    fn count_waiting(&mut self, op: Op) {
        let sums = &mut self.ops[op.index()];
        let now = self.period;
        let is_silent = |it: &Opened| {
            let waited = it.left == now || it.waiting > 0 && it.is_remembered(now);
            waited && it.period != now
        };
        let opened = self.opened[op.index()].iter();
        for ((file, handle), known) in opened.filter(|(_, known)| is_silent(known)) {
            if let (Some(file), _) = sums.files.came(*file, known.end) {
                sums.files.came_through(file, *handle);
            }
        }
    }

    /// What arrived; none if it was too little to tell anything. The next period begins.
    pub fn end_period(&mut self) -> Option<Arrived> {
        let [reads, writes] = [self.ops[0].requests, self.ops[1].requests];
        let op = if writes > reads { Op::Write } else { Op::Read };
        if self.ops[op.index()].requests >= REQUESTS_MIN {
            self.count_waiting(op);
        }
        let sums = &self.ops[op.index()];
        let arrived = (sums.requests >= REQUESTS_MIN).then(|| Arrived {
            op,
            requests: sums.requests,
            features: sums.features(),
        });
        self.ops.iter_mut().for_each(Sums::clear);
        self.forget();
        arrived
    }

    /// What arrives.
    pub fn glance(&self) -> Glance {
        self.glance
    }

    /// Makes room for handles to come, of those that nothing came through for long.
    fn forget(&mut self) {
        self.period = self.period.wrapping_add(1);
        let now = self.period;
        let many = self.opened.iter_mut();
        for opened in many.filter(|opened| opened.len() > OPENED_MAX / 2) {
            opened.retain(|_, known| known.is_remembered(now));
        }
    }
}

impl Files {
    /// A request of a file, which ends there: the file's place, and where the one before it ended. Neither is known of one too
    /// many.
    #[inline]
    fn came(&mut self, file: FileId, end: u64) -> (Option<u32>, Option<u64>) {
        if let Some((last, place)) = self.ends.get_mut(&file) {
            return (Some(*place), Some(std::mem::replace(last, end)));
        }
        if self.ends.len() >= FILES_MAX {
            return (None, None);
        }
        let place = self.same.len() as u32; // At most FILES_MAX.
        self.ends.insert(file, (end, place));
        self.same.push(place);
        (Some(place), None)
    }

    /// What comes through a handle is of one file.
    fn came_through(&mut self, file: u32, handle: HandleId) {
        let other = *self.handles.entry(handle).or_insert(file);
        let (file, other) = (self.first(file), self.first(other));
        if file != other {
            self.same[file as usize] = other;
            self.joined += 1;
        }
    }

    /// The one that stands for a file and all that are one with it.
    fn first(&mut self, mut file: u32) -> u32 {
        while self.same[file as usize] != file {
            let next = self.same[file as usize];
            // The way is half as long for who comes next.
            self.same[file as usize] = self.same[next as usize];
            file = next;
        }
        file
    }

    fn count(&self) -> u64 {
        self.ends.len() as u64 - self.joined
    }

    fn clear(&mut self) {
        self.ends.clear();
        self.same.clear();
        self.handles.clear();
        self.joined = 0;
    }
}

impl Sums {
    fn features(&self) -> Features {
        Features {
            // Nobody believes in more files than requests.
            handles: self.files.count().min(self.requests),
            size_max: self.size_max,
            size_min: self.size_min,
            size_mean: self.bytes as f64 / self.requests.max(1) as f64,
            distance: self.distance / self.pairs.max(1) as f64,
            stride: match self.strides {
                // Nobody came twice: what can be told is in the distance.
                0 => self.distance / self.pairs.max(1) as f64,
                strides => self.stride / strides as f64,
            },
        }
    }

    fn clear(&mut self) {
        let mut files = std::mem::take(&mut self.files);
        files.clear();
        *self = Sums {
            files,
            ..Sums::default()
        };
    }
}

/// What a node says about a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// How long it was.
    pub period: Nanos,
    /// For how much of it something was queued or in service.
    pub busy: Nanos,
    /// Bytes of requests that were finished.
    pub served: u64,
    /// Data servers behind the node.
    pub servers: u32,
    /// Machines that requests came from.
    pub clients: u32,
    /// Processes that they came from.
    pub processes: u32,
    /// What arrived; none if too little to tell anything.
    pub arrived: Option<Arrived>,
}

/// An observation cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} cannot be: {value}")]
pub struct Nonsense {
    /// Which figure.
    pub what: &'static str,
    /// What it was said to be.
    pub value: String,
}

/// No node serves more than this in a second.
const BYTES_PER_S_MAX: f64 = 1e14;

impl Observation {
    /// Whether all of it can be true.
    pub fn check(&self) -> Result<(), Nonsense> {
        let claim = |what, value: String, can_be: bool| match can_be {
            true => Ok(()),
            false => Err(Nonsense { what, value }),
        };
        let length_can_be = (1_000..=3_600_000_000_000).contains(&self.period.0);
        claim(
            "the period's length",
            self.period.to_string(),
            length_can_be,
        )?;
        // A period ends a little late, and what was busy is counted then.
        let busy_can_be = self.busy.0 <= self.period.0.saturating_mul(2);
        claim("the busy time", self.busy.to_string(), busy_can_be)?;
        let bytes_max = BYTES_PER_S_MAX * self.period.as_secs_f64();
        let served_can_be = self.served as f64 <= bytes_max;
        claim("bytes served", self.served.to_string(), served_can_be)?;
        let Some(Arrived {
            features, requests, ..
        }) = &self.arrived
        else {
            return Ok(());
        };
        let sizes = [
            features.size_min as f64,
            features.size_mean,
            features.size_max as f64,
        ];
        let sizes_can_be = features.size_mean.is_finite()
            && sizes[0] <= sizes[1] + 1.0
            && sizes[1] <= sizes[2] + 1.0
            && sizes[2] <= bytes_max;
        claim("sizes of requests", format!("{sizes:?}"), sizes_can_be)?;
        for (what, distance) in [
            ("the distance", features.distance),
            ("the stride", features.stride),
        ] {
            let can_be = (0.0..=1.9e19).contains(&distance);
            claim(what, distance.to_string(), can_be)?;
        }
        let handles_can_be = (1..=*requests).contains(&features.handles);
        claim("file handles", features.handles.to_string(), handles_can_be)
    }

    /// Bytes served per busy second; none if the node was hardly busy.
    pub fn reward(&self) -> Option<f64> {
        let busy_min = self.period.as_secs_f64() * BUSY_MIN;
        let busy = self.busy.as_secs_f64();
        (self.served > 0 && busy >= busy_min).then(|| self.served as f64 / busy)
    }

    /// The context: what arrived through so many I/O nodes. None where nothing can be told.
    pub fn context(&self, detector: &Detector, ionodes: u32) -> Option<Context> {
        let Arrived { op, features, .. } = self.arrived.as_ref()?;
        let busy = self.busy.as_secs_f64() / self.period.as_secs_f64().max(1e-9);
        Some(Context::Situation(Situation {
            servers: Magnitude::of(self.servers.into()),
            ionodes: Magnitude::of(ionodes.into()),
            clients: Magnitude::of(self.clients.into()),
            processes: Magnitude::of(self.processes.into()),
            op: *op,
            access: detector.access(features),
            size: Magnitude::of(features.size_mean as u64),
            load: Load::of(busy),
        }))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use presagio_core::{Range, RequestId};

    pub(crate) fn request(file: u64, op: Op, start: u64, len: u64) -> Request {
        Request::new(RequestId(0), FileId(file), op, Range::at(start, len))
    }

    /// A busy second in which 100 MB were served.
    pub(crate) fn observation() -> Observation {
        Observation {
            period: Nanos::from_secs(1),
            busy: Nanos::from_secs(1),
            served: 100_000_000,
            servers: 4,
            clients: 32,
            processes: 128,
            arrived: Some(Arrived {
                op: Op::Read,
                requests: 3000,
                features: Features {
                    handles: 1,
                    size_max: 32 << 10,
                    size_min: 32 << 10,
                    size_mean: 32768.0,
                    distance: 1e6,
                    stride: 1e6,
                },
            }),
        }
    }

    #[test]
    fn what_arrives_in_a_row_tells_at_once_when_it_is_something_else() {
        let mut watch = Watch::new();
        // After how many of these it is said that they are something else.
        let mut arrive = |op: Op, sizes: &[u64], count: u64| {
            let said = (0..count).find(|at| {
                let size = sizes[(at % sizes.len() as u64) as usize];
                watch.arrived(&request(1, op, at * size, size))
            });
            said.map(|at| at + 1)
        };
        assert_eq!(arrive(Op::Read, &[4096], 100), Some(REQUESTS_MIN));
        assert_eq!(arrive(Op::Read, &[4096], 100), None);
        assert_eq!(arrive(Op::Read, &[5000, 3000, 9000], 100), None);
        assert_eq!(arrive(Op::Write, &[5000], 100), Some(REQUESTS_MIN));
        assert_eq!(arrive(Op::Write, &[0], 100), None);
        let much = arrive(Op::Write, &[1 << 20], 100);
        assert!(much.is_some_and(|it| it <= 2 * REQUESTS_MIN));
        assert_eq!(watch.glance().look, Some(Look(1, 20)));
        // A mixture is nothing else than what it is a part of.
        let mixed = (0..100).any(|at| {
            let op = if at % 4 == 0 { Op::Read } else { Op::Write };
            watch.arrived(&request(1, op, at << 20, 1 << 20))
        });
        assert!(!mixed);
    }

    #[test]
    fn distances_are_within_a_file_and_sizes_over_all() {
        let mut watch = Watch::new();
        for at in 0..16 {
            watch.arrived(&request(1, Op::Write, at * 3000, 1000));
            watch.arrived(&request(2, Op::Write, at * 500, 500));
        }
        watch.arrived(&request(3, Op::Read, 0, 7));
        watch.arrived(&request(3, Op::Read, 0, 0));
        let arrived = watch.end_period().expect("enough arrived");
        assert_eq!((arrived.op, arrived.requests), (Op::Write, 32));
        let expected = Features {
            handles: 2,
            size_max: 1000,
            size_min: 500,
            size_mean: 750.0,
            distance: 1000.0,
            stride: 1000.0,
        };
        assert_eq!(arrived.features, expected);
        assert_eq!(watch.end_period(), None, "a period forgets the one before");
    }

    /// Ten processes go through their parts of a file or take turns in it, in an order that changes; one request of each in a period.
    fn shared(take_turns: bool) -> Features {
        let mut watch = Watch::new();
        let mut last = None;
        for step in 0..4 {
            for turn in 0..10 {
                let process = (turn * 7 + step * 3) % 10;
                let start = match take_turns {
                    true => (step * 10 + process) * 1000,
                    false => (process * 10 + step) * 1000,
                };
                for half in [0, 500] {
                    let request = request(1, Op::Read, start + half, 500);
                    watch.arrived(&Request {
                        handle: HandleId(process as u32 + 1),
                        ..request
                    });
                }
            }
            last = watch.end_period();
        }
        last.expect("enough arrived").features
    }

    #[test]
    fn a_stride_is_within_what_one_process_has_open_and_outlives_a_period() {
        let (turns, parts) = (shared(true), shared(false));
        assert_eq!((turns.handles, parts.handles), (1, 1));
        // Of two halves of a request one follows the other.
        assert_eq!((turns.stride, parts.stride), (4500.0, 0.0));
        assert!(parts.distance > turns.distance && turns.distance > 0.0);
    }

    /// Processes with a handle each on a file that lies on four data servers, or on files of their own there.
    fn striped(processes: u32, is_shared: bool) -> u64 {
        let mut watch = Watch::new();
        let mut last = None;
        for period in 0..3 {
            for step in 0..8 {
                for process in 0..processes {
                    let file = if is_shared { 0 } else { u64::from(process) };
                    let object = (step + u64::from(process)) % 4;
                    watch.arrived(&Request {
                        handle: HandleId(process + 1),
                        ..request(file * 4 + object, Op::Read, (period * 8 + step) * 100, 100)
                    });
                }
            }
            last = watch.end_period();
        }
        last.expect("enough arrived").features.handles
    }

    #[test]
    fn a_file_on_several_servers_is_one_file() {
        for processes in [2, 3, 30] {
            assert_eq!(striped(processes, true), 1);
            assert_eq!(striped(processes, false), u64::from(processes));
        }
    }

    /// Ten processes wait for a request each, and one by one is served until its file is done.
    #[test]
    fn files_whose_requests_wait_are_counted_though_nothing_comes_for_them() {
        let mut watch = Watch::new();
        let write = |process: u32, at: u64| Request {
            handle: HandleId(process + 1),
            ..request(process.into(), Op::Write, at * 100, 100)
        };
        (0..10).for_each(|process| _ = watch.arrived(&write(process, 0)));
        for _ in 0..2 * REMEMBERED {
            watch.end_period();
        }
        let mut period = |process: u32, of: std::ops::Range<u64>| {
            for at in of {
                watch.departed(&write(process, at));
                watch.arrived(&write(process, at + 1));
            }
            watch.end_period().expect("enough arrived").features
        };
        let all = [period(0, 0..20), period(0, 20..40), period(3, 0..20)];
        assert_eq!(all.map(|it| it.handles), [10; 3]);
        assert_eq!(
            all.map(|it| (it.distance, it.stride)),
            [(0.0, 0.0); 3],
            "who waits is no distance"
        );
        // Those that are served, or have been taken back, are there no more.
        for process in 0..10 {
            let at = [40, 0, 0, 20].get(process as usize).copied();
            watch.departed(&write(process, at.unwrap_or(0)));
        }
        (0..20).for_each(|at| _ = watch.arrived(&write(5, at)));
        let last = watch.end_period().map(|it| it.features.handles);
        assert_eq!(last, Some(10), "they waited until then");
        (0..20).for_each(|at| _ = watch.arrived(&write(5, at)));
        assert_eq!(watch.end_period().map(|it| it.features.handles), Some(1));
    }

    #[test]
    fn where_nothing_is_known_of_open_files_the_stride_is_the_distance() {
        let mut watch = Watch::new();
        for at in 0..2 * REQUESTS_MIN {
            watch.arrived(&request(at % 4, Op::Read, at * at * 10, 10));
            if at == REQUESTS_MIN - 1 {
                watch.end_period();
            }
        }
        let features = watch.end_period().expect("enough arrived").features;
        assert_eq!((features.handles, features.stride), (4, features.distance));
    }

    #[test]
    fn handles_that_are_no_longer_used_make_room() {
        let mut watch = Watch::new();
        for handle in 0..u32::try_from(2 * OPENED_MAX).unwrap() {
            watch.arrived(&Request {
                handle: HandleId(handle + 1),
                ..request(1, Op::Read, 0, 10)
            });
        }
        assert_eq!(watch.opened[0].len(), OPENED_MAX);
        for handle in 0..u32::try_from(OPENED_MAX).unwrap() - 1 {
            watch.departed(&Request {
                handle: HandleId(handle + 1),
                ..request(1, Op::Read, 0, 10)
            });
        }
        for _ in 0..=REMEMBERED {
            watch.end_period();
        }
        assert_eq!(watch.opened[0].len(), 1, "the one whose request waits");
    }

    #[test]
    fn too_little_tells_nothing() {
        let mut watch = Watch::new();
        for at in 0..REQUESTS_MIN - 1 {
            watch.arrived(&request(1, Op::Read, at * 10, 10));
        }
        assert_eq!(watch.end_period(), None);
        let idle = Observation {
            busy: Nanos::from_millis(10),
            ..observation()
        };
        assert_eq!((idle.reward(), idle.check()), (None, Ok(())));
        assert_eq!(observation().reward(), Some(1e8));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        type Lie = fn(&mut Observation);
        let lies: [(Lie, &str); 9] = [
            (|o| o.period = Nanos(0), "the period's length"),
            (|o| o.busy = Nanos(u64::MAX), "the busy time"),
            (|o| o.served = u64::MAX, "bytes served"),
            (|o| features(o).size_mean = f64::NAN, "sizes of requests"),
            (|o| features(o).size_min = 1 << 40, "sizes of requests"),
            (|o| features(o).distance = f64::INFINITY, "the distance"),
            (|o| features(o).distance = -1.0, "the distance"),
            (|o| features(o).stride = -1.0, "the stride"),
            (|o| features(o).handles = 1 << 40, "file handles"),
        ];
        for (lie, said) in lies {
            let mut told = observation();
            lie(&mut told);
            assert_eq!(told.check().expect_err(said).what, said);
        }
    }

    fn features(observation: &mut Observation) -> &mut Features {
        &mut observation
            .arrived
            .as_mut()
            .expect("something arrived")
            .features
    }
}
