//! Streams of operations: one for each process and layer, judged as they come.

use presagio_core::{Event, IdHashMap, Layer, Nanos};
use presagio_predict::Model;
use presagio_predict::score::{Options, Score};
use presagio_trace::{Process, Record, Source, TraceError};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Streams that are judged; each takes some hundred kilobytes.
pub const STREAMS_MAX: usize = 1024;

/// Streams of a layer whose cost is measured: that takes two more models each.
const TIMED_MAX: usize = 64;

/// Operations between two looks at the clock, which would otherwise cost more than what it measures.
const BATCH: usize = 256;

/// Which operations are wanted, and whose model sees them.
#[derive(Clone, Copy, Debug)]
pub struct Selection {
    pub layer: Option<Layer>,
    pub process: Option<u32>,
    pub threads_apart: bool,
}

/// Layer, process, thread.
pub type Key = (u8, u32, u32);

impl Selection {
    fn key(&self, event: &Event) -> Key {
        let thread = if self.threads_apart { event.thread } else { 0 };
        (event.layer as u8, event.process, thread)
    }
}

/// The number by which a person knows a process.
fn number(process: &Process) -> u32 {
    process.rank.or(process.pid).unwrap_or(process.id)
}

/// How many operations each stream has.
pub type Counts = Rc<RefCell<IdHashMap<Key, u64>>>;

/// A trace without what is not wanted. What does not come does not have to be sorted. Sorting reads all of it
/// before the first record comes out again, so that by then streams are counted.
pub struct Selected<S> {
    source: S,
    selection: Selection,
    numbers: IdHashMap<u32, u32>,
    counts: Counts,
}

impl<S: Source> Selected<S> {
    pub fn new(source: S, selection: Selection) -> Selected<S> {
        Selected {
            source,
            selection,
            numbers: IdHashMap::default(),
            counts: Counts::default(),
        }
    }

    pub fn counts(&self) -> Counts {
        Rc::clone(&self.counts)
    }

    fn is_wanted(&self, event: &Event) -> bool {
        let number = self.numbers.get(&event.process);
        let number = number.copied().unwrap_or(event.process);
        self.selection
            .layer
            .is_none_or(|layer| layer == event.layer)
            && self
                .selection
                .process
                .is_none_or(|process| process == number)
    }
}

impl<S: Source> Iterator for Selected<S> {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let record = self.source.next()?;
            match &record {
                Ok(Record::Event(event)) if !self.is_wanted(event) => continue,
                Ok(Record::Event(event)) => {
                    let key = self.selection.key(event);
                    *self.counts.borrow_mut().entry(key).or_default() += 1;
                }
                Ok(Record::Process(process)) => {
                    self.numbers.insert(process.id, number(process));
                }
                _ => {}
            }
            return Some(record);
        }
    }
}

impl<S: Source> Source for Selected<S> {
    fn behind(&self) -> Option<&dyn Source> {
        Some(&self.source)
    }
}

/// All streams of a trace.
pub struct Streams {
    options: Options,
    selection: Selection,
    counts: Counts,
    names: IdHashMap<u32, String>,
    streams: BTreeMap<Key, Stream>,
    /// Streams of each layer whose cost is measured.
    timed: [usize; Layer::ALL.len()],
    left_out: u64,
}

/// One stream and what was found.
pub struct Stream {
    pub name: String,
    pub layer: Layer,
    pub score: Score,
    timed: Option<Timed>,
}

/// What was found, the busiest stream first.
pub struct Judged {
    pub streams: Vec<Stream>,
    pub left_out: u64,
}

impl Streams {
    pub fn new(options: Options, selection: Selection, counts: Counts) -> Streams {
        Streams {
            options,
            selection,
            counts,
            names: IdHashMap::default(),
            streams: BTreeMap::new(),
            timed: [0; Layer::ALL.len()],
            left_out: 0,
        }
    }

    pub fn take(&mut self, record: &Record) {
        match record {
            Record::Process(process) => {
                self.names.insert(process.id, name(process));
            }
            Record::Gap { process, .. } => self.lose_track(*process),
            Record::Event(event) => self.judge(event),
            Record::File { .. } | Record::Context { .. } => {}
        }
    }

    fn judge(&mut self, event: &Event) {
        let key = self.selection.key(event);
        if !self.streams.contains_key(&key) && self.streams.len() == STREAMS_MAX {
            self.left_out += 1;
            return;
        }
        let is_timed = self.timed[event.layer as usize] < TIMED_MAX;
        let stream = self.streams.entry(key).or_insert_with(|| {
            self.timed[event.layer as usize] += usize::from(is_timed);
            let known = self.names.get(&event.process).cloned();
            let mut name = known.unwrap_or_else(|| format!("process {}", event.process));
            if self.selection.threads_apart {
                name = format!("{name}.{}", event.thread);
            }
            Stream {
                name,
                layer: event.layer,
                score: Score::new(options(self.options, &self.counts, key)),
                timed: is_timed.then(|| Timed::new(self.options.ahead)),
            }
        });
        stream.score.observe(event);
        stream.timed.iter_mut().for_each(|t| t.observe(event));
    }

    fn lose_track(&mut self, process: u32) {
        let of_process = self.streams.iter_mut().filter(|(key, _)| key.1 == process);
        for (_, stream) in of_process {
            stream.score.lose_track();
            stream.timed.iter_mut().for_each(Timed::lose_track);
        }
    }

    pub fn finish(self) -> Judged {
        let mut streams: Vec<Stream> = self.streams.into_values().collect();
        for stream in &mut streams {
            stream.timed.iter_mut().for_each(Timed::flush);
        }
        streams.sort_by_key(|s| std::cmp::Reverse(s.score.tally().operations));
        Judged {
            streams,
            left_out: self.left_out,
        }
    }
}

/// Longer looks ahead that are tried in all streams together, and in each.
const TRIALS: usize = 6400;
const TRIALS_LEAST: usize = 16;

/// The more streams, the fewer trials in each.
fn options(options: Options, counts: &Counts, key: Key) -> Options {
    let counts = counts.borrow();
    let trials = TRIALS / counts.len().max(1);
    Options {
        operations: counts.get(&key).copied(),
        trials: trials.clamp(TRIALS_LEAST, options.trials),
        ..options
    }
}

fn name(process: &Process) -> String {
    match (process.rank, process.pid) {
        (Some(rank), _) => format!("rank {rank}"),
        (None, Some(pid)) => format!("pid {pid}"),
        (None, None) => format!("process {}", process.id),
    }
}

impl Stream {
    /// What it costs to observe an operation, and to read ahead after each, if that was measured.
    pub fn costs(&self) -> Option<(Nanos, Nanos)> {
        let timed = self.timed.as_ref().filter(|t| t.operations > 0)?;
        let each = |took: Duration| Nanos(took.as_nanos() as u64 / timed.operations);
        Some((each(timed.observing), each(timed.reading)))
    }
}

/// Two models that see the same operations, to know what that costs.
struct Timed {
    batch: Vec<Event>,
    ahead: usize,
    observer: Model,
    reader: Model,
    operations: u64,
    observing: Duration,
    reading: Duration,
}

impl Timed {
    fn new(ahead: usize) -> Timed {
        Timed {
            batch: Vec::with_capacity(BATCH),
            ahead,
            observer: Model::new(),
            reader: Model::new(),
            operations: 0,
            observing: Duration::ZERO,
            reading: Duration::ZERO,
        }
    }

    fn observe(&mut self, event: &Event) {
        self.batch.push(*event);
        if self.batch.len() == BATCH {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let begin = Instant::now();
        for event in &self.batch {
            self.observer.observe(event);
        }
        let between = Instant::now();
        for event in &self.batch {
            self.reader.observe(event);
            for predicted in self
                .reader
                .best()
                .into_iter()
                .flat_map(|c| c.take(self.ahead))
            {
                black_box(predicted);
            }
        }
        self.reading += between.elapsed();
        self.observing += between - begin;
        self.operations += self.batch.len() as u64;
        self.batch.clear();
    }

    fn lose_track(&mut self) {
        self.flush();
        self.observer.lose_track();
        self.reader.lose_track();
    }
}
