//! What is in a trace, in one pass and in bounded memory.

use crate::names::Known;
use crate::{Process, Record, Source, TraceError};
use presagio_core::{Action, Event, FileId, Histogram, Layer, Nanos};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// So many files, and so many processes and threads, are told apart; what others do is counted in the totals only.
const APART_MAX: usize = 1 << 20;

/// Counts of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many.
    pub events: u64,
    /// How many of them failed.
    pub failed: u64,
    /// The bytes that transfers moved.
    pub bytes: u64,
    /// How long they took together.
    pub busy: Nanos,
}

impl Tally {
    fn add(&mut self, event: &Event) {
        self.events += 1;
        self.failed += u64::from(event.result < 0);
        self.bytes = self.bytes.saturating_add(event.moved());
        self.busy += event.duration;
    }
}

/// What was done to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileUse {
    /// Its number.
    pub id: FileId,
    /// Its name, if it has one.
    pub name: Option<Arc<[u8]>>,
    /// What was done.
    pub tally: Tally,
}

/// What a process did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessUse {
    /// The process, as far as it is known.
    pub process: Process,
    /// What it did.
    pub tally: Tally,
}

/// A summary of a trace.
#[derive(Debug, Default)]
pub struct Summary {
    total: Tally,
    actions: [Tally; Action::ALL.len()],
    layers: [Tally; Layer::ALL.len()],
    begin: Option<Nanos>,
    end: Nanos,
    /// The time of the event before.
    last: Nanos,
    out_of_order: u64,
    read_sizes: Histogram,
    write_sizes: Histogram,
    gaps: u64,
    lost: u64,
    known: Known,
    known_full: bool,
    files: Apart<FileId>,
    processes: Apart<u32>,
    threads: Apart<(u32, u32)>,
    contexts: Apart<u32>,
    cut_short: Option<String>,
}

/// Counts told apart by a key.
#[derive(Debug)]
struct Apart<K> {
    tallies: HashMap<K, Tally>,
    is_full: bool,
}

impl<K> Default for Apart<K> {
    fn default() -> Apart<K> {
        Apart {
            tallies: HashMap::new(),
            is_full: false,
        }
    }
}

impl<K: Hash + Eq + Copy + Ord> Apart<K> {
    fn add(&mut self, key: K, event: &Event) {
        if let Some(tally) = self.tallies.get_mut(&key) {
            tally.add(event);
        } else if self.tallies.len() < APART_MAX {
            self.tallies.entry(key).or_default().add(event);
        } else {
            self.is_full = true;
        }
    }

    /// The busiest first, by bytes, then by events.
    fn busiest(&self) -> Vec<(K, Tally)> {
        let mut all: Vec<_> = self.tallies.iter().map(|(k, t)| (*k, *t)).collect();
        all.sort_unstable_by_key(|(key, tally)| {
            (std::cmp::Reverse((tally.bytes, tally.events)), *key)
        });
        all
    }
}

impl Summary {
    /// The summary of a whole trace.
    pub fn of(source: &mut (impl Source + ?Sized)) -> Result<Summary, TraceError> {
        let mut summary = Summary::default();
        for record in &mut *source {
            summary.add(&record?);
        }
        summary.end_of(source);
        Ok(summary)
    }

    /// Counts a record.
    pub fn add(&mut self, record: &Record) {
        match record {
            Record::Event(event) => self.event(event),
            Record::Gap { lost, .. } => {
                self.gaps += 1;
                self.lost = self.lost.saturating_add(*lost);
            }
            definition => self.known_full |= self.known.learn(definition).is_err(),
        }
    }

    /// Notes how the trace ended; after its last record.
    pub fn end_of(&mut self, source: &(impl Source + ?Sized)) {
        self.cut_short = source.cut_short().map(TraceError::to_string);
    }

    fn event(&mut self, event: &Event) {
        self.total.add(event);
        self.actions[event.action as usize].add(event);
        self.layers[event.layer as usize].add(event);
        self.files.add(event.file, event);
        self.processes.add(event.process, event);
        self.threads.add((event.process, event.thread), event);
        self.contexts.add(event.context.0, event);
        match event.action {
            Action::Read => self.read_sizes.record(event.len),
            Action::Write => self.write_sizes.record(event.len),
            _ => {}
        }
        self.time(event);
    }

    fn time(&mut self, event: &Event) {
        self.out_of_order += u64::from(event.time < self.last);
        self.last = event.time;
        self.begin = Some(self.begin.map_or(event.time, |begin| begin.min(event.time)));
        self.end = self.end.max(event.end());
    }

    /// All events together.
    pub fn total(&self) -> Tally {
        self.total
    }

    /// The events of each action that occurs.
    pub fn actions(&self) -> impl Iterator<Item = (Action, Tally)> {
        let all = Action::ALL.into_iter().zip(self.actions);
        all.filter(|(_, tally)| tally.events > 0)
    }

    /// The events of each layer that occurs.
    pub fn layers(&self) -> impl Iterator<Item = (Layer, Tally)> {
        let all = Layer::ALL.into_iter().zip(self.layers);
        all.filter(|(_, tally)| tally.events > 0)
    }

    /// When the first event began, if there is one.
    pub fn begin(&self) -> Option<Nanos> {
        self.begin
    }

    /// From the begin of the first event to the end of the last.
    pub fn duration(&self) -> Nanos {
        self.end - self.begin.unwrap_or(self.end)
    }

    /// Events that began before the event that they follow in the trace.
    pub fn out_of_order(&self) -> u64 {
        self.out_of_order
    }

    /// The bytes that reads ask for.
    pub fn read_sizes(&self) -> &Histogram {
        &self.read_sizes
    }

    /// The bytes that writes ask for.
    pub fn write_sizes(&self) -> &Histogram {
        &self.write_sizes
    }

    /// How often records were lost, and how many as far as known.
    pub fn gaps(&self) -> (u64, u64) {
        (self.gaps, self.lost)
    }

    /// The files that events are on, how many.
    pub fn file_count(&self) -> usize {
        self.files.tallies.len()
    }

    /// The processes that have events, how many.
    pub fn process_count(&self) -> usize {
        self.processes.tallies.len()
    }

    /// The threads that have events, how many.
    pub fn thread_count(&self) -> usize {
        self.threads.tallies.len()
    }

    /// The call stacks that events come from, how many; not counting that it is not known.
    pub fn context_count(&self) -> usize {
        let unknown = self.contexts.tallies.contains_key(&0);
        self.contexts.tallies.len() - usize::from(unknown)
    }

    /// The `count` files with the most bytes moved, the first the busiest.
    pub fn busiest_files(&self, count: usize) -> Vec<FileUse> {
        let busiest = self.files.busiest().into_iter().take(count);
        let named = busiest.map(|(id, tally)| FileUse {
            id,
            name: self.known.files.get(&id.0).cloned(),
            tally,
        });
        named.collect()
    }

    /// The `count` processes with the most bytes moved, the first the busiest.
    pub fn busiest_processes(&self, count: usize) -> Vec<ProcessUse> {
        let busiest = self.processes.busiest().into_iter().take(count);
        let unknown = |id| Process {
            id,
            ..Process::default()
        };
        let named = busiest.map(|(id, tally)| ProcessUse {
            process: self
                .known
                .processes
                .get(&id)
                .cloned()
                .unwrap_or(unknown(id)),
            tally,
        });
        named.collect()
    }

    /// Whether there were more files, processes, threads or call stacks than are told apart, so that their
    /// numbers are lower bounds.
    pub fn is_capped(&self) -> bool {
        self.known_full
            || self.files.is_full
            || self.processes.is_full
            || self.threads.is_full
            || self.contexts.is_full
    }

    /// Why the trace ended before its end, if it did.
    pub fn cut_short(&self) -> Option<&str> {
        self.cut_short.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::{Reader, Writer};
    use crate::strategies::{List, event};
    use std::path::Path;

    fn records() -> Vec<Record> {
        let at = |time, file, action, len| {
            let (time, file, result) = (Nanos(time), FileId(file), len as i64);
            Record::Event(Event {
                time,
                file,
                action,
                len,
                result,
                ..event()
            })
        };
        vec![
            Record::File {
                id: FileId(1),
                name: Arc::from(&b"one"[..]),
            },
            at(1000, 1, Action::Read, 10),
            at(2000, 2, Action::Write, 4096),
            at(1500, 2, Action::Write, 5),
            Record::Event(Event {
                time: Nanos(3000),
                result: -5,
                ..event()
            }),
            Record::Gap {
                process: 1,
                lost: 7,
            },
        ]
    }

    #[test]
    fn everything_is_counted_where_it_belongs() {
        let summary = Summary::of(&mut List::new(&records())).unwrap();
        let total = Tally {
            events: 4,
            failed: 1,
            bytes: 4111,
            busy: Nanos(400),
        };
        assert_eq!(summary.total(), total);
        let actions: Vec<_> = summary
            .actions()
            .map(|(a, t)| (a, t.events, t.bytes))
            .collect();
        assert_eq!(actions, [(Action::Read, 1, 10), (Action::Write, 3, 4101)]);
        assert_eq!(summary.layers().count(), 1);
        assert_eq!(
            (summary.begin(), summary.duration()),
            (Some(Nanos(1000)), Nanos(2100))
        );
        assert_eq!((summary.out_of_order(), summary.gaps()), (1, (1, 7)));
        assert_eq!((summary.file_count(), summary.process_count()), (3, 1));
        assert_eq!((summary.thread_count(), summary.context_count()), (1, 0));
        assert_eq!(
            (summary.read_sizes().count(), summary.write_sizes().count()),
            (1, 3)
        );
        assert!(!summary.is_capped() && summary.cut_short().is_none());
    }

    #[test]
    fn the_busiest_come_first_with_what_is_known_of_them() {
        let summary = Summary::of(&mut List::new(&records())).unwrap();
        let busiest = summary.busiest_files(2);
        assert_eq!((busiest[0].id, &busiest[0].name), (FileId(2), &None));
        assert_eq!(busiest[1].name.as_deref(), Some(&b"one"[..]));
        assert_eq!(summary.busiest_processes(9)[0].process.id, event().process);
    }

    #[test]
    fn a_trace_that_is_cut_says_so() {
        let mut writer = Writer::new(Vec::new()).unwrap();
        records().iter().for_each(|r| writer.write(r).unwrap());
        writer.flush().unwrap();
        let bytes = writer.into_inner();
        let mut reader = Reader::new(&bytes[..], Path::new("t")).unwrap();
        let summary = Summary::of(&mut reader).unwrap();
        assert_eq!(summary.total().events, 4);
        assert!(
            summary
                .cut_short()
                .is_some_and(|why| why.contains("ends early"))
        );
    }

    #[test]
    fn an_empty_trace_has_a_summary() {
        let summary = Summary::of(&mut List::new(&[])).unwrap();
        assert_eq!(
            (summary.total(), summary.duration()),
            (Tally::default(), Nanos::ZERO)
        );
        assert!(summary.busiest_files(3).is_empty());
    }
}
