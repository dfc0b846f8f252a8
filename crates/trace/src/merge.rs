//! One trace out of several repetitions of the same run (thesis, section 4.2.1).
//!
//! When the same workload is traced several times, every request arrives at a slightly different moment each time;
//! their arithmetic average is what to expect. The thesis pairs requests by bounds on their times, and shows how
//! that goes wrong when times vary; knowing that traces are of the same workload, as it proposes, we pair by
//! what is requested: the k-th time that a repetition has this action on this file, offset and length is the same
//! request as the k-th time in another. A request that some repetitions lack is kept, with the average over those
//! that have it: which ones come is what varies least.
//!
//! Requests are found in a table of bounded size. What has no place in it waits in a temporary file, and is merged
//! when the table has become free.

use crate::native::Writer;
use crate::renumber::Renumber;
use crate::sorted::{InOrder, Sorter, Spill};
use crate::{Place, Record, Source, TraceError};
use presagio_core::Event;
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::vec;

/// What merging may use.
#[derive(Clone, Debug)]
pub struct MergeOptions {
    /// The requests that the table holds, about 160 bytes each.
    pub requests_max: usize,
    /// For sorting, and where requests wait that have no place in the table.
    pub spill: Spill,
}

impl Default for MergeOptions {
    /// Two million requests.
    fn default() -> MergeOptions {
        MergeOptions {
            requests_max: 2_000_000,
            spill: Spill::default(),
        }
    }
}

/// What was merged.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MergeReport {
    /// The traces.
    pub repetitions: u32,
    /// The events in all of them.
    pub events: u64,
    /// The requests of the result.
    pub requests: u64,
    /// Those of them that every repetition has.
    pub requests_in_all: u64,
    /// Those of them that at least two have.
    pub requests_paired: u64,
    /// How far the arrival times of paired requests lay apart.
    pub deviation: Deviation,
}

/// The standard deviation of a request's arrival times, over the paired requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Deviation {
    /// Its average, in nanoseconds.
    pub mean_ns: f64,
    /// The largest, in nanoseconds.
    pub max_ns: f64,
    /// The average of its share in the average arrival time, which the thesis calls variation (Fig. 4.6).
    pub mean_share: f64,
}

impl MergeReport {
    fn count(&mut self, request: &Request) {
        self.requests += 1;
        self.requests_in_all += u64::from(request.count == self.repetitions);
        if request.count < 2 {
            return;
        }
        self.requests_paired += 1;
        let (deviation, time) = (request.deviation(), request.average().time.0);
        let share = deviation / time.max(1) as f64;
        let nth = self.requests_paired as f64;
        self.deviation.mean_ns += (deviation - self.deviation.mean_ns) / nth;
        self.deviation.mean_share += (share - self.deviation.mean_share) / nth;
        self.deviation.max_ns = self.deviation.max_ns.max(deviation);
    }
}

/// Merges traces, one after the other.
#[derive(Debug)]
pub struct Merger {
    options: MergeOptions,
    names: Renumber,
    table: Table,
    /// What had no place in the table, by repetition.
    aside: Vec<Option<Writer<File>>>,
    report: MergeReport,
}

impl Merger {
    /// Begins with nothing.
    pub fn new(options: MergeOptions) -> Merger {
        Merger {
            table: Table::new(options.requests_max),
            options,
            names: Renumber::default(),
            aside: Vec::new(),
            report: MergeReport::default(),
        }
    }

    /// Adds a repetition.
    pub fn add(
        &mut self,
        trace: impl Iterator<Item = Result<Record, TraceError>>,
    ) -> Result<(), TraceError> {
        let repetition = self.report.repetitions;
        self.report.repetitions += 1;
        self.names.begin();
        self.aside.push(None);
        for record in trace {
            match record? {
                Record::Event(event) => {
                    self.report.events += 1;
                    let event = self.names.renamed(event).map_err(too_many)?;
                    self.place(repetition, event)?;
                }
                // What one repetition lost, the others have.
                Record::Gap { .. } => {}
                definition => self.names.define(definition).map_err(too_many)?,
            }
        }
        Ok(())
    }

    /// The merged trace, in the order of the average times.
    pub fn finish(mut self) -> Result<Merged, TraceError> {
        let mut sorter = Sorter::new(self.options.spill.clone());
        loop {
            self.empty_table(&mut sorter)?;
            if self.aside.iter().all(Option::is_none) {
                break;
            }
            self.merge_aside()?;
        }
        Ok(Merged {
            definitions: self.names.definitions(None).into_iter(),
            events: sorter.finish()?,
            report: self.report,
        })
    }

    fn place(&mut self, repetition: u32, event: Event) -> Result<(), TraceError> {
        if self.table.place(repetition, &event) {
            return Ok(());
        }
        let spill = &self.options.spill;
        let aside = &mut self.aside[repetition as usize];
        let file = match aside {
            Some(file) => file,
            None => aside.insert(spill.file()?),
        };
        let written = file.write(&Record::Event(event));
        written.map_err(|error| spill.error(error))
    }

    fn empty_table(&mut self, sorter: &mut Sorter) -> Result<(), TraceError> {
        for request in self.table.empty() {
            self.report.count(&request);
            let event = request.average();
            sorter.push(event.time.0, Record::Event(event))?;
        }
        Ok(())
    }

    fn merge_aside(&mut self) -> Result<(), TraceError> {
        for repetition in 0..self.aside.len() {
            let Some(file) = self.aside[repetition].take() else {
                continue;
            };
            for record in self.options.spill.reopen(file)? {
                if let Record::Event(event) = record? {
                    self.place(repetition as u32, event)?;
                }
            }
        }
        Ok(())
    }
}

fn too_many(problem: String) -> TraceError {
    TraceError::new(Path::new("merged trace"), Place::Byte(0), problem)
}

/// What makes two requests the same, but for how often they came before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    offset: u64,
    len: u64,
    file: u32,
    /// The action and the layer.
    kind: u16,
}

impl Key {
    fn of(event: &Event) -> Key {
        Key {
            offset: event.offset,
            len: event.len,
            file: event.file.0 as u32,
            kind: u16::from(event.action as u8) << 8 | u16::from(event.layer as u8),
        }
    }
}

/// A request, as it first came, and what its other occurrences differ by.
#[derive(Clone, Copy, Debug)]
struct Request {
    event: Event,
    time_later: i64,
    /// The squares of what `time_later` sums up.
    time_squares: f64,
    duration_longer: i64,
    count: u32,
    /// The first request with the same key, and the next.
    first: u32,
    next: u32,
    /// In the first one: which of its list was met last, and by which repetition.
    last_met: u32,
    met_by: u32,
}

const NONE: u32 = u32::MAX;

/// How far from the last one a request is looked for.
const NEAR: usize = 12;

impl Request {
    fn meet(&mut self, event: &Event) {
        let difference = |a: u64, b: u64| a.wrapping_sub(b) as i64;
        let later = difference(event.time.0, self.event.time.0);
        let longer = difference(event.duration.0, self.event.duration.0);
        self.time_later = self.time_later.saturating_add(later);
        self.time_squares += later as f64 * later as f64;
        self.duration_longer = self.duration_longer.saturating_add(longer);
        self.count += 1;
    }

    /// The standard deviation of its arrival times, in nanoseconds.
    fn deviation(&self) -> f64 {
        let mean = self.time_later as f64 / f64::from(self.count);
        let squares = self.time_squares / f64::from(self.count);
        (squares - mean * mean).max(0.0).sqrt()
    }

    fn average(&self) -> Event {
        let mean = |sum: i64| sum.div_euclid(self.count.into());
        let mut event = self.event;
        event.time.0 = event.time.0.saturating_add_signed(mean(self.time_later));
        event.duration.0 = event
            .duration
            .0
            .saturating_add_signed(mean(self.duration_longer));
        event
    }
}

/// The requests that are being merged, in the order in which they first came.
#[derive(Debug)]
struct Table {
    /// The first request of each key, by a hash that no input can make slow.
    firsts: HashMap<Key, u32>,
    requests: Vec<Request>,
    requests_max: usize,
    last_met: usize,
}

impl Table {
    fn new(requests_max: usize) -> Table {
        Table {
            firsts: HashMap::new(),
            requests: Vec::new(),
            requests_max: requests_max.clamp(1, NONE as usize - 1),
            last_met: 0,
        }
    }

    /// Counts an event of a repetition, if there is place. Once the table is full, no list gets longer, so that
    /// what is set aside of a key are the same occurrences in all repetitions.
    fn place(&mut self, repetition: u32, event: &Event) -> bool {
        let key = Key::of(event);
        let Some(first) = self.find(key) else {
            return self.add(repetition, event, None);
        };
        let next = self.next_of(first, repetition);
        if next == NONE {
            return self.add(repetition, event, Some(first));
        }
        self.requests[next as usize].meet(event);
        self.mark(first, next, repetition);
        true
    }

    /// The first request of a key. It is looked for where the last one was met, before the hash is computed:
    /// repetitions have nearly the same order, and far places in memory are slow.
    fn find(&self, key: Key) -> Option<u32> {
        let begin = self.last_met.saturating_sub(NEAR).min(self.requests.len());
        let end = (self.last_met + NEAR).min(self.requests.len());
        let is_same = |request: &&Request| {
            request.event.offset == key.offset && Key::of(&request.event) == key
        };
        match self.requests[begin..end].iter().find(is_same) {
            Some(request) => Some(request.first),
            None => self.firsts.get(&key).copied(),
        }
    }

    /// The first request of a list that this repetition has not met.
    fn next_of(&self, first: u32, repetition: u32) -> u32 {
        let head = &self.requests[first as usize];
        match head.met_by == repetition {
            true => self.requests[head.last_met as usize].next,
            false => first,
        }
    }

    fn mark(&mut self, first: u32, met: u32, repetition: u32) {
        let head = &mut self.requests[first as usize];
        head.last_met = met;
        head.met_by = repetition;
        self.last_met = met as usize;
    }

    /// Adds a request at the end of its list, if there is place.
    fn add(&mut self, repetition: u32, event: &Event, first: Option<u32>) -> bool {
        let new = self.requests.len() as u32;
        if self.requests.len() >= self.requests_max {
            return false;
        }
        match first {
            // The list was met to its end, or there would be no need for another.
            Some(first) => {
                let last = self.requests[first as usize].last_met;
                self.requests[last as usize].next = new;
            }
            None => drop(self.firsts.insert(Key::of(event), new)),
        }
        let first = first.unwrap_or(new);
        self.requests.push(Request {
            event: *event,
            time_later: 0,
            time_squares: 0.0,
            duration_longer: 0,
            count: 1,
            first,
            next: NONE,
            last_met: new,
            met_by: repetition,
        });
        self.mark(first, new, repetition);
        true
    }

    fn empty(&mut self) -> Vec<Request> {
        self.firsts = HashMap::new();
        self.last_met = 0;
        std::mem::take(&mut self.requests)
    }
}

/// The merged trace.
#[derive(Debug)]
pub struct Merged {
    definitions: vec::IntoIter<Record>,
    events: InOrder,
    report: MergeReport,
}

impl Merged {
    /// What was merged.
    pub fn report(&self) -> MergeReport {
        self.report
    }
}

impl Iterator for Merged {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.definitions.next() {
            Some(definition) => Some(Ok(definition)),
            None => self.events.next(),
        }
    }
}

impl Source for Merged {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Frame;
    use crate::strategies::event;
    use presagio_core::{ContextId, FileId, Nanos};
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    /// A request at a time, to one of a few blocks of a few files.
    type Arrival = (u64, u8, u64);

    fn trace(arrivals: &[Arrival], first_id: u64) -> Vec<Result<Record, TraceError>> {
        let files = (0..4u8).map(|n| Record::File {
            id: FileId(first_id + u64::from(n)),
            name: Arc::from([n]),
        });
        let events = arrivals.iter().map(|&(time, file, block)| {
            Record::Event(Event {
                time: Nanos(time),
                file: FileId(first_id + u64::from(file)),
                offset: block,
                ..event()
            })
        });
        files.chain(events).map(Ok).collect()
    }

    fn merged(traces: &[Vec<Arrival>], requests_max: usize) -> (Vec<Arrival>, MergeReport) {
        let mut merger = Merger::new(MergeOptions {
            requests_max,
            ..MergeOptions::default()
        });
        for (at, arrivals) in traces.iter().enumerate() {
            // The same file has another number in each trace.
            merger
                .add(trace(arrivals, at as u64 * 100).into_iter())
                .unwrap();
        }
        let merged = merger.finish().unwrap();
        let report = merged.report();
        let mut names = HashMap::new();
        let mut arrivals = Vec::new();
        for record in merged {
            match record.unwrap() {
                Record::File { id, name } => drop(names.insert(id, name[0])),
                Record::Event(e) => arrivals.push((e.time.0, names[&e.file], e.offset)),
                _ => {}
            }
        }
        (arrivals, report)
    }

    /// The obvious way.
    fn expected(traces: &[Vec<Arrival>]) -> Vec<Arrival> {
        let mut times: BTreeMap<(u8, u64, usize), Vec<u64>> = BTreeMap::new();
        for arrivals in traces {
            let mut counts = BTreeMap::new();
            for &(time, file, block) in arrivals {
                let count = counts.entry((file, block)).or_insert(0);
                times.entry((file, block, *count)).or_default().push(time);
                *count += 1;
            }
        }
        let mut all: Vec<Arrival> = times
            .into_iter()
            .map(|((file, block, _), t)| (t.iter().sum::<u64>() / t.len() as u64, file, block))
            .collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn the_same_request_is_paired_and_its_times_averaged() {
        let traces = [
            vec![(100, 0, 7), (200, 1, 7)],
            vec![(120, 0, 7), (220, 1, 7)],
        ];
        let (arrivals, report) = merged(&traces, 100);
        assert_eq!(arrivals, [(110, 0, 7), (210, 1, 7)]);
        let whole = MergeReport {
            repetitions: 2,
            events: 4,
            requests: 2,
            requests_in_all: 2,
            requests_paired: 2,
            deviation: Deviation {
                mean_ns: 10.0,
                max_ns: 10.0,
                mean_share: (10.0 / 110.0 + 10.0 / 210.0) / 2.0,
            },
        };
        assert_eq!(report, whole);
    }

    #[test]
    fn a_request_that_comes_again_is_paired_with_its_like() {
        let traces = [vec![(0, 0, 7), (100, 0, 7)], vec![(10, 0, 7), (120, 0, 7)]];
        assert_eq!(merged(&traces, 100).0, [(5, 0, 7), (110, 0, 7)]);
    }

    #[test]
    fn a_request_that_some_repetitions_lack_is_kept() {
        let traces = [
            vec![(0, 0, 1), (50, 0, 2)],
            vec![(10, 0, 1)],
            vec![(20, 0, 1), (60, 0, 2)],
        ];
        let (arrivals, report) = merged(&traces, 100);
        assert_eq!(arrivals, [(10, 0, 1), (55, 0, 2)]);
        assert_eq!((report.requests, report.requests_in_all), (2, 1));
    }

    #[test]
    fn times_of_day_do_not_overflow() {
        let now = 1_700_000_000_000_000_000;
        let traces: Vec<Vec<Arrival>> = (0..30).map(|i| vec![(now + i * 2, 0, 0)]).collect();
        assert_eq!(merged(&traces, 10).0, [(now + 29, 0, 0)]);
        assert_eq!(
            merged(&[vec![(u64::MAX, 0, 0)], vec![(0, 0, 0)]], 9)
                .0
                .len(),
            1
        );
    }

    #[test]
    fn call_stacks_are_told_by_their_frames_and_not_by_their_numbers() {
        let frames = |offset| -> Arc<[Frame]> {
            let module = "a".into();
            [Frame {
                module,
                offset,
                symbol: None,
            }]
            .into()
        };
        let mut merger = Merger::new(MergeOptions::default());
        for (id, offset) in [(1, 10), (1, 20), (9, 10)] {
            let id = ContextId(id);
            let event = Event {
                context: id,
                offset,
                ..event()
            };
            let trace = [
                Record::Context {
                    id,
                    frames: frames(offset),
                },
                Record::Event(event),
            ];
            merger.add(trace.into_iter().map(Ok)).unwrap();
        }
        let mut stacks = HashMap::new();
        for record in merger.finish().unwrap() {
            match record.unwrap() {
                Record::Context { id, frames } => drop(stacks.insert(id, frames)),
                Record::Event(e) => assert_eq!(stacks[&e.context], frames(e.offset)),
                _ => {}
            }
        }
        assert_eq!(stacks.len(), 2);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]
        #[test]
        fn a_small_table_gives_what_a_large_one_does(
            mut traces in prop::collection::vec(
                prop::collection::vec((0u64..1000, 0u8..3, 0u64..4), 0..30), 1..5
            ),
            requests_max in 1usize..40,
        ) {
            traces.iter_mut().for_each(|t| t.sort_unstable());
            for requests_max in [requests_max, 1000] {
                let (mut arrivals, report) = merged(&traces, requests_max);
                prop_assert!(arrivals.is_sorted_by_key(|a| a.0));
                arrivals.sort_unstable();
                prop_assert_eq!(&arrivals, &expected(&traces));
                prop_assert_eq!(report.requests, arrivals.len() as u64);
            }
        }
    }
}
