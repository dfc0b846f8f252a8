//! Events in the order of time, in bounded memory: what does not fit waits in temporary files.
//!
//! Events collect in memory; when there is no more room they are sorted and written as a *run* in the native
//! format. At the end the runs are merged. Runs that become too many are merged into one before.

use crate::names::{Apart, Budget, bytes_of};
use crate::native::{Reader, Writer};
use crate::{Frame, Place, Record, Source, TraceError};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::vec;

/// How much memory sorting takes, and where the rest goes.
#[derive(Clone, Debug)]
pub struct Spill {
    /// The events that are kept in memory, about 80 bytes each, and half as much again while they are sorted.
    pub events_max: usize,
    /// Where the others go.
    pub dir: PathBuf,
}

impl Default for Spill {
    /// A million events, and the system's directory for temporary files.
    fn default() -> Spill {
        Spill {
            events_max: 1_000_000,
            dir: std::env::temp_dir(),
        }
    }
}

impl Spill {
    pub(crate) fn error(&self, error: io::Error) -> TraceError {
        let problem = format!("cannot keep events in a temporary file here: {error}");
        let error = io::Error::new(error.kind(), problem);
        TraceError::new(&self.dir, Place::Byte(0), error)
    }

    /// A file without a name: it is gone when it is closed, also if we are killed.
    pub(crate) fn file(&self) -> Result<Writer<File>, TraceError> {
        tempfile::tempfile_in(&self.dir)
            .and_then(Writer::new)
            .map_err(|error| self.error(error))
    }

    /// Reads what was written to a file of [`Spill::file`].
    pub(crate) fn reopen(&self, mut writer: Writer<File>) -> Result<Reader<File>, TraceError> {
        let rewound = writer.finish().and_then(|()| {
            let mut file = writer.into_inner();
            file.rewind()?;
            Ok(file)
        });
        let file = rewound.map_err(|error| self.error(error))?;
        Reader::new(file, Path::new("temporary file"))
    }
}

/// A trace with its definitions first and its events in the order of time; those of the same time stay in their
/// order. A gap stays behind the event that it followed. Where a number is defined again as another file or call
/// stack, the second gets a number of its own; of a process, the last definition counts.
#[derive(Debug)]
pub struct Sorted<S> {
    source: S,
    spill: Spill,
    files: Apart<Arc<[u8]>>,
    contexts: Apart<Arc<[Frame]>>,
    budget: Budget,
    definitions: vec::IntoIter<Record>,
    /// Nothing as long as the source was not read.
    events: Option<InOrder>,
}

impl<S: Source> Sorted<S> {
    /// Sorts `source`, which is read to its end before the first record comes.
    pub fn new(source: S, spill: Spill) -> Sorted<S> {
        Sorted {
            source,
            spill,
            files: Apart::new(u64::MAX),
            contexts: Apart::new(u32::MAX.into()),
            budget: Budget::default(),
            definitions: Vec::new().into_iter(),
            events: None,
        }
    }

    fn read(&mut self) -> Result<InOrder, TraceError> {
        let mut definitions = Vec::new();
        let mut sorter = Sorter::new(self.spill.clone());
        let mut time = 0;
        while let Some(record) = self.source.next() {
            match record? {
                Record::Event(mut event) => {
                    time = event.time.0;
                    event.file.0 = self.files.number(event.file.0);
                    event.context.0 = self.contexts.number(event.context.0.into()) as u32;
                    sorter.push(time, Record::Event(event))?;
                }
                gap @ Record::Gap { .. } => sorter.push(time, gap)?,
                definition => definitions.extend(self.defined(definition)?),
            }
        }
        self.definitions = definitions.into_iter();
        sorter.finish()
    }

    /// The definition with its number, unless it is known.
    fn defined(&mut self, mut definition: Record) -> Result<Option<Record>, TraceError> {
        let is_new = match &mut definition {
            Record::File { id, name } => self
                .files
                .define(id.0, name.clone())
                .map(|number| id.0 = number)
                .is_some(),
            Record::Context { id, frames } => self
                .contexts
                .define(id.0.into(), frames.clone())
                .map(|number| id.0 = number as u32)
                .is_some(),
            _ => true,
        };
        if !is_new {
            return Ok(None);
        }
        let taken = self.budget.take(bytes_of(&definition));
        taken.map_err(|problem| self.too_many(problem))?;
        Ok(Some(definition))
    }

    fn too_many(&self, problem: String) -> TraceError {
        let place = Place::Byte(self.source.progress().0);
        TraceError::new(Path::new("trace to be sorted"), place, problem)
    }
}

impl<S: Source> Iterator for Sorted<S> {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.events.is_none() {
            let read = self.read();
            self.events = Some(InOrder::default());
            match read {
                Ok(events) => self.events = Some(events),
                Err(error) => return Some(Err(error)),
            }
        }
        match self.definitions.next() {
            Some(definition) => Some(Ok(definition)),
            None => self.events.as_mut()?.next(),
        }
    }
}

impl<S: Source> Source for Sorted<S> {
    fn behind(&self) -> Option<&dyn Source> {
        Some(&self.source)
    }
}

/// A record and the time by which it is sorted.
type Timed = (u64, Record);

/// So many runs are merged into one.
const RUNS_MAX: usize = 32;

/// Takes records in any order.
#[derive(Debug)]
pub(crate) struct Sorter {
    spill: Spill,
    memory: Vec<Timed>,
    /// Runs of level n are made of up to `RUNS_MAX`ⁿ. Higher levels, and within a level the first, are older.
    levels: Vec<Vec<Reader<File>>>,
}

impl Sorter {
    pub fn new(spill: Spill) -> Sorter {
        Sorter {
            spill,
            memory: Vec::new(),
            levels: Vec::new(),
        }
    }

    pub fn push(&mut self, time: u64, record: Record) -> Result<(), TraceError> {
        if self.memory.len() >= self.spill.events_max.max(1) {
            self.memory.sort_by_key(|(time, _)| *time);
            let records = std::mem::take(&mut self.memory);
            let run = self.write_run(records.into_iter().map(Ok))?;
            self.add_run(run, 0)?;
        }
        self.memory.push((time, record));
        Ok(())
    }

    /// All of them, in order.
    pub fn finish(mut self) -> Result<InOrder, TraceError> {
        self.memory.sort_by_key(|(time, _)| *time);
        let files = self
            .levels
            .into_iter()
            .rev()
            .flatten()
            .map(|run| Run::File(Box::new(run)));
        let memory = Run::Memory(self.memory.into_iter());
        InOrder::new(files.chain([memory]).collect())
    }

    fn add_run(&mut self, run: Reader<File>, level: usize) -> Result<(), TraceError> {
        if self.levels.len() == level {
            self.levels.push(Vec::new());
        }
        self.levels[level].push(run);
        if self.levels[level].len() < RUNS_MAX {
            return Ok(());
        }
        let runs = std::mem::take(&mut self.levels[level]);
        let mut merged = InOrder::new(
            runs.into_iter()
                .map(|run| Run::File(Box::new(run)))
                .collect(),
        )?;
        let run = self.write_run(std::iter::from_fn(|| merged.timed().transpose()))?;
        self.add_run(run, level + 1)
    }

    fn write_run(
        &self,
        records: impl Iterator<Item = Result<Timed, TraceError>>,
    ) -> Result<Reader<File>, TraceError> {
        let mut run = self.spill.file()?;
        for timed in records {
            let (time, record) = timed?;
            write_timed(&mut run, time, &record).map_err(|error| self.spill.error(error))?;
        }
        self.spill.reopen(run)
    }
}

/// In a run, a gap comes behind another that carries its time, as it has none itself.
fn write_timed(run: &mut Writer<File>, time: u64, record: &Record) -> io::Result<()> {
    if !matches!(record, Record::Event(_)) {
        run.write(&Record::Gap {
            process: 0,
            lost: time,
        })?;
    }
    run.write(record)
}

fn read_timed(run: &mut Reader<File>) -> Result<Option<Timed>, TraceError> {
    match run.next().transpose()? {
        Some(Record::Event(event)) => Ok(Some((event.time.0, Record::Event(event)))),
        Some(Record::Gap { lost: time, .. }) => {
            let gap = run.next().transpose()?;
            Ok(gap.map(|gap| (time, gap)))
        }
        _ => Ok(None),
    }
}

#[derive(Debug)]
enum Run {
    File(Box<Reader<File>>),
    Memory(vec::IntoIter<Timed>),
}

impl Run {
    fn next(&mut self) -> Result<Option<Timed>, TraceError> {
        match self {
            Run::File(run) => read_timed(run),
            Run::Memory(run) => Ok(run.next()),
        }
    }
}

/// Merges runs, each sorted. Of the same time, the older run's come first. After an error it has ended.
#[derive(Debug, Default)]
pub(crate) struct InOrder {
    runs: Vec<(Run, Option<Record>)>,
    /// The time of each run's next record, the earliest on top.
    next: BinaryHeap<Reverse<(u64, usize)>>,
}

impl InOrder {
    fn new(runs: Vec<Run>) -> Result<InOrder, TraceError> {
        let mut merged = InOrder {
            runs: runs.into_iter().map(|run| (run, None)).collect(),
            next: BinaryHeap::new(),
        };
        for run in 0..merged.runs.len() {
            merged.advance(run)?;
        }
        Ok(merged)
    }

    fn advance(&mut self, run: usize) -> Result<(), TraceError> {
        let (records, head) = &mut self.runs[run];
        if let Some((time, record)) = records.next()? {
            *head = Some(record);
            self.next.push(Reverse((time, run)));
        }
        Ok(())
    }

    fn timed(&mut self) -> Result<Option<Timed>, TraceError> {
        let Some(Reverse((time, run))) = self.next.pop() else {
            return Ok(None);
        };
        let record = self.runs[run].1.take();
        if let Err(error) = self.advance(run) {
            self.next.clear();
            return Err(error);
        }
        Ok(record.map(|record| (time, record)))
    }
}

impl Iterator for InOrder {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let timed = self.timed().transpose()?;
        Some(timed.map(|(_, record)| record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Known;
    use crate::strategies::{List, Resolved, event, records, resolved};
    use presagio_core::{ContextId, Event, FileId, Nanos};
    use proptest::prelude::*;

    fn sorted(records: &[Record], events_max: usize) -> Vec<Record> {
        let spill = Spill {
            events_max,
            ..Spill::default()
        };
        let sorted = Sorted::new(List::new(records), spill);
        sorted.map(Result::unwrap).collect()
    }

    /// Whether everything was defined before it is used, as it should be.
    fn is_defined(known: &mut Known, record: &Record) -> bool {
        let Record::Event(event) = record else {
            return known.learn(record).is_ok();
        };
        known.files.contains_key(&event.file.0) && known.contexts.contains_key(&event.context.0)
    }

    /// The obvious way: events with what their numbers mean, which are not compared themselves.
    fn expected(records: &[Record]) -> Vec<Resolved> {
        let mut time = 0;
        let mut all: Vec<(u64, Resolved)> = Vec::new();
        for mut resolved in resolved(records) {
            if let Record::Event(event) = &mut resolved.0 {
                time = event.time.0;
                event.file = FileId(0);
                event.context = ContextId(0);
            }
            all.push((time, resolved));
        }
        all.sort_by_key(|(time, _)| *time);
        all.into_iter().map(|(_, resolved)| resolved).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn memory_or_not_the_order_is_the_same(mut records in records(), events_max in 1usize..60) {
            let mut known = Known::default();
            records.retain(|record| is_defined(&mut known, record));
            let sorted = sorted(&records, events_max);
            let is_event = |r: &Record| matches!(r, Record::Event(_) | Record::Gap { .. });
            let first = sorted.iter().position(is_event).unwrap_or(sorted.len());
            prop_assert!(sorted[first..].iter().all(is_event));
            prop_assert_eq!(expected(&sorted), expected(&records));
        }
    }

    #[test]
    fn runs_that_become_too_many_are_merged() {
        let count = 2 * RUNS_MAX as u64 * RUNS_MAX as u64 + 17;
        let at = |i: u64| Event {
            time: Nanos(i * 7919 % 100),
            offset: i,
            ..event()
        };
        let records: Vec<Record> = (0..count).map(|i| Record::Event(at(i))).collect();
        let mut sorter = Sorter::new(Spill {
            events_max: 1,
            ..Spill::default()
        });
        for record in &records {
            let Record::Event(event) = record else {
                continue;
            };
            sorter.push(event.time.0, record.clone()).unwrap();
        }
        assert!(sorter.levels.len() == 3 && sorter.levels.iter().all(|l| l.len() < RUNS_MAX));
        let got: Vec<Record> = sorter.finish().unwrap().map(Result::unwrap).collect();
        assert!(got.is_sorted_by_key(|record| match record {
            Record::Event(event) => (event.time, event.offset),
            _ => panic!("{record:?}"),
        }));
        assert_eq!(got.len(), records.len());
    }

    #[test]
    fn no_room_for_runs_is_an_error_with_the_place() {
        let spill = Spill {
            events_max: 1,
            dir: "/nonexistent".into(),
        };
        let records = [Record::Event(event()), Record::Event(event())];
        let mut sorted = Sorted::new(List::new(&records), spill);
        let error = sorted.next().unwrap().unwrap_err().to_string();
        assert!(
            error.starts_with("/nonexistent: ") && error.contains("temporary file"),
            "{error}"
        );
        assert!(sorted.next().is_none());
    }
}
