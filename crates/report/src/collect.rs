//! One trace, counted: each event goes to the bins that it belongs to, and is forgotten.

use crate::axis::{Axis, Busy, Moved};
use crate::census::{Census, Counted, FileCount, Files, Kind, Layered};
use crate::foreseen::{Foreseen, STREAMS_MAX};
use crate::habits::{Habit, Positions};
use crate::heat::{COLUMNS, Heat};
use crate::phases::{Phases, Sums};
use presagio_core::{Action, Event, Histogram, IdHashMap, Layer};
use presagio_trace::sorted::{Sorted, Spill};
use presagio_trace::{Format, Frame, Process, Record, Source, TraceError};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::sync::Arc;

/// Bins of the whole.
const BINS: usize = 2048;
/// Processes that have a lane; the others share one.
const LANES_MAX: usize = 128;
/// Bins of all lanes together, and of each.
const LANE_CELLS: usize = 1 << 16;
const LANE_BINS: (usize, usize) = (256, 1024);
/// Files that have a map.
const HEATS_MAX: usize = 20;
/// Bins of predictions.
const FORESEEN_BINS: usize = 240;
/// Combinations of file, call stack and action that are told apart.
const GROUPS_MAX: usize = 1 << 17;
/// The slowest operations that are kept.
const SLOWEST_MAX: usize = 60;

/// Different errors that are told apart.
const ERRORS_MAX: usize = 256;

/// How to collect.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The layer that the report is about; without it, the system's calls, or else what there is.
    pub layer: Option<Layer>,
    /// Where events wait that do not fit into memory.
    pub spill: Spill,
}

/// Values by bin. An operation is counted where it begins; its time and its bytes are where they were spent.
#[derive(Debug)]
pub(crate) struct Series {
    pub axis: Axis,
    pub operations: [Vec<u64>; Kind::COUNT],
    pub read: Moved,
    pub written: Moved,
    pub busy: [Busy; Kind::COUNT],
}

impl Series {
    fn new(axis: Axis) -> Series {
        let zeros = || vec![0; axis.bins];
        Series {
            axis,
            operations: std::array::from_fn(|_| zeros()),
            read: Moved::new(&axis),
            written: Moved::new(&axis),
            busy: std::array::from_fn(|_| Busy::new(&axis)),
        }
    }

    fn add(&mut self, event: &Event) {
        let kind = Kind::of(event.action);
        let (begin, end) = (event.time.0, event.end().0);
        self.operations[kind as usize][self.axis.bin(begin)] += 1;
        match kind {
            Kind::Read => self.read.add(&self.axis, begin, end, event.moved()),
            Kind::Write => self.written.add(&self.axis, begin, end, event.moved()),
            Kind::Other => {}
        }
        self.busy[kind as usize].add(&self.axis, begin, end);
    }
}

/// What one process did, or those that have no lane of their own.
#[derive(Debug)]
pub(crate) struct Lane {
    /// Nothing for all others together.
    pub process: Option<u32>,
    pub processes: u64,
    pub series: Series,
    pub total: Habit,
    pub read: u64,
    pub written: u64,
}

/// What a trace says of its processes and call stacks.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub processes: BTreeMap<u32, Process>,
    pub contexts: HashMap<u32, Arc<[Frame]>>,
}

/// Counts of values and the time that belongs to them.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    pub histogram: Histogram,
    pub busy: Vec<u64>,
}

impl Latency {
    fn add(&mut self, ns: u64) {
        self.busy.resize(Histogram::BUCKETS, 0);
        let bucket = &mut self.busy[Histogram::bucket_of(ns)];
        *bucket = bucket.saturating_add(ns);
        self.histogram.record(ns);
    }
}

/// An operation and its file, ordered by how long it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slow {
    pub event: Event,
    pub file: u32,
}

impl Slow {
    fn key(&self) -> (u64, Reverse<u64>) {
        (self.event.duration.0, Reverse(self.event.time.0))
    }
}

impl Ord for Slow {
    fn cmp(&self, other: &Slow) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Slow {
    fn partial_cmp(&self, other: &Slow) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// File, call stack, action; no file or call stack where there is no room for it.
pub(crate) type Group = (Option<u32>, Option<u32>, u8);

/// All that is known of a trace, in memory that does not grow with its length.
#[derive(Debug)]
pub struct Collected {
    pub(crate) layer: Layer,
    pub(crate) census: Census,
    pub(crate) known: Known,
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) all: Series,
    pub(crate) lanes: Vec<Lane>,
    lane_of: HashMap<u32, usize>,
    pub(crate) heats: BTreeMap<u32, Heat>,
    heat_axis: Axis,
    pub(crate) groups: IdHashMap<Group, Habit>,
    pub(crate) positions: Positions,
    pub(crate) sizes: [Histogram; 2],
    pub(crate) latencies: [Latency; Kind::COUNT],
    slowest: BinaryHeap<Reverse<Slow>>,
    pub(crate) errors: BTreeMap<i64, u64>,
    pub(crate) threads: HashMap<(u32, u32), ()>,
    pub(crate) phases: Phases,
    pub(crate) foreseen: Foreseen,
    pub(crate) gaps: (u64, u64),
    pub(crate) format: Option<Format>,
    pub(crate) warnings: Vec<String>,
    pub(crate) cut_short: Option<String>,
}

/// Reads a trace to its end and counts what is in it. Memory is bounded, whatever its length.
pub fn collect<S: Source>(source: &mut S, options: &Options) -> Result<Collected, TraceError> {
    let (counted, census) = Counted::new(source);
    let mut sorted = Sorted::new(counted, options.spill.clone());
    let mut known = Known::default();
    let mut collected: Option<Collected> = None;
    let mut is_first = true;
    for record in &mut sorted {
        let record = record?;
        // All was read by the time the first record comes; definitions come before events.
        if std::mem::take(&mut is_first) {
            census.borrow_mut().begin_again();
        }
        match &mut collected {
            Some(collected) => collected.take(&record),
            None if is_definition(&record) => {
                define(&mut known, &mut census.borrow_mut().files, &record);
            }
            None => {
                let mut begun = Collected::new(census.take(), std::mem::take(&mut known), options);
                begun.take(&record);
                collected = Some(begun);
            }
        }
    }
    let mut collected = collected.unwrap_or_else(|| Collected::new(census.take(), known, options));
    collected.format = sorted.format();
    collected.warnings = sorted.warnings();
    collected.cut_short = sorted.cut_short().map(TraceError::to_string);
    Ok(collected)
}

fn is_definition(record: &Record) -> bool {
    !matches!(record, Record::Event(_) | Record::Gap { .. })
}

fn define(known: &mut Known, files: &mut Files, record: &Record) {
    match record {
        Record::File { id, name } => files.define(id.0, name),
        Record::Process(process) => {
            known.processes.insert(process.id, process.clone());
        }
        Record::Context { id, frames } => {
            known.contexts.insert(id.0, frames.clone());
        }
        Record::Event(_) | Record::Gap { .. } => {}
    }
}

impl Collected {
    fn new(census: Census, known: Known, options: &Options) -> Collected {
        let layer = options.layer.unwrap_or_else(|| census.layer());
        let counts = &census.layers[layer as usize];
        let (begin, end) = (counts.begin.unwrap_or(0), counts.end);
        let processes = busiest_processes(counts);
        let lanes = lanes(&processes, &known, begin, end);
        let numbered = lanes.iter().enumerate();
        let lane_of = numbered.filter_map(|(n, lane)| Some((lane.process?, n)));
        let heat_axis = Axis::new(begin, end, COLUMNS);
        let judged = &processes[..processes.len().min(STREAMS_MAX)];
        Collected {
            layer,
            begin,
            end,
            all: Series::new(Axis::new(begin, end, BINS)),
            lane_of: lane_of.collect(),
            lanes,
            heats: heats(counts, &heat_axis),
            heat_axis,
            groups: IdHashMap::default(),
            positions: Positions::default(),
            sizes: Default::default(),
            latencies: Default::default(),
            slowest: BinaryHeap::new(),
            errors: BTreeMap::new(),
            threads: HashMap::new(),
            phases: Phases::default(),
            foreseen: Foreseen::new(Axis::new(begin, end, FORESEEN_BINS), judged),
            gaps: (0, 0),
            format: None,
            warnings: Vec::new(),
            cut_short: None,
            census,
            known,
        }
    }

    fn take(&mut self, record: &Record) {
        match record {
            Record::Event(event) if event.layer == self.layer => self.event(event),
            Record::Event(_) => {}
            Record::Gap { process, lost } => {
                self.gaps = (self.gaps.0 + 1, self.gaps.1.saturating_add(*lost));
                self.foreseen.lose_track(*process);
            }
            definition => define(&mut self.known, &mut self.census.files, definition),
        }
    }

    fn event(&mut self, event: &Event) {
        let file = self.census.files.number(event.file.0);
        self.all.add(event);
        self.count_lane(event);
        self.count_habit(event, file);
        self.count_values(event, file);
        let did = Sums {
            operations: 1,
            read: if event.action == Action::Read {
                event.moved()
            } else {
                0
            },
            written: if event.action == Action::Write {
                event.moved()
            } else {
                0
            },
            busy: event.duration.0,
        };
        self.phases.add(event.time.0, event.end().0, did);
        self.foreseen.observe(event, file);
    }

    fn count_lane(&mut self, event: &Event) {
        let others = self.lanes.len() - 1;
        let at = self.lane_of.get(&event.process).copied().unwrap_or(others);
        let lane = &mut self.lanes[at];
        lane.series.add(event);
        lane.total.add(event);
        match event.action {
            Action::Read => lane.read = lane.read.saturating_add(event.moved()),
            Action::Write => lane.written = lane.written.saturating_add(event.moved()),
            _ => {}
        }
        if self.threads.len() < crate::census::APART_MAX {
            self.threads.insert((event.process, event.thread), ());
        }
    }

    fn count_habit(&mut self, event: &Event, file: u32) {
        let action = event.action as u8;
        let key = (Some(file), Some(event.context.0), action);
        let is_full = self.groups.len() >= GROUPS_MAX;
        let key = match is_full && !self.groups.contains_key(&key) {
            true => (None, None, action),
            false => key,
        };
        let habit = self.groups.entry(key).or_default();
        habit.add(event);
        // A failed call moved nothing, and says nothing about where the next one will be.
        if event.action.is_transfer() && event.result >= 0 {
            let (step, stride) = self.positions.step(event.process, file, event);
            habit.step(step, stride);
        }
        if let Some(heat) = self
            .heats
            .get_mut(&file)
            .filter(|_| event.action.is_transfer())
        {
            heat.add(&self.heat_axis, event);
        }
    }

    fn count_values(&mut self, event: &Event, file: u32) {
        match event.action {
            Action::Read => self.sizes[0].record(event.len),
            Action::Write => self.sizes[1].record(event.len),
            _ => {}
        }
        self.latencies[Kind::of(event.action) as usize].add(event.duration.0);
        if event.result < 0 && self.errors.len() < ERRORS_MAX {
            *self.errors.entry(-event.result).or_default() += 1;
        }
        let slow = Slow {
            event: *event,
            file,
        };
        if self.slowest.len() < SLOWEST_MAX {
            self.slowest.push(Reverse(slow));
        } else if self.slowest.peek().is_some_and(|least| least.0 < slow) {
            self.slowest.pop();
            self.slowest.push(Reverse(slow));
        }
    }

    /// The slowest operations, the slowest first.
    pub(crate) fn slowest(&self) -> Vec<Slow> {
        let mut all: Vec<Slow> = self.slowest.iter().map(|slow| slow.0).collect();
        all.sort_by(|a, b| b.cmp(a));
        all
    }

    /// What the census says of the layer that this is about.
    pub(crate) fn counts(&self) -> &Layered {
        &self.census.layers[self.layer as usize]
    }
}

/// Processes by how much they did, the busiest first.
fn busiest_processes(counts: &Layered) -> Vec<u32> {
    let mut all: Vec<(u64, u32)> = counts.processes.iter().map(|(p, n)| (*n, *p)).collect();
    all.sort_unstable_by_key(|(events, process)| (Reverse(*events), *process));
    all.into_iter().map(|(_, process)| process).collect()
}

/// A lane for each of the busiest, in the order of ranks and numbers, and one for all others, which is the last.
fn lanes(processes: &[u32], known: &Known, begin: u64, end: u64) -> Vec<Lane> {
    let (shown, rest) = processes.split_at(processes.len().min(LANES_MAX));
    let mut shown = shown.to_vec();
    let rank = |process: &u32| known.processes.get(process).and_then(|p| p.rank);
    shown.sort_unstable_by_key(|process| (rank(process).unwrap_or(u32::MAX), *process));
    let bins = (LANE_CELLS / (shown.len() + 1)).clamp(LANE_BINS.0, LANE_BINS.1);
    let axis = Axis::new(begin, end, bins);
    let lane = |process, processes| Lane {
        process,
        processes,
        series: Series::new(axis),
        total: Habit::default(),
        read: 0,
        written: 0,
    };
    let mut lanes: Vec<Lane> = shown.into_iter().map(|p| lane(Some(p), 1)).collect();
    lanes.push(lane(None, rest.len() as u64));
    lanes
}

/// Maps of the files with the most bytes moved.
fn heats(counts: &Layered, axis: &Axis) -> BTreeMap<u32, Heat> {
    let moved = counts.files.iter().filter(|(_, count)| count.reach > 0);
    let mut files: Vec<(&u32, &FileCount)> = moved.collect();
    files.sort_unstable_by_key(|(file, count)| (Reverse((count.bytes, count.busy)), **file));
    files.truncate(HEATS_MAX);
    let heat = |(file, count): (&u32, &FileCount)| (*file, Heat::new(axis, count.reach));
    files.into_iter().map(heat).collect()
}
