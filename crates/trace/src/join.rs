//! One trace out of recordings of one run that were made apart: by the nodes of a job, or by its processes.
//!
//! All events are kept, in the order of time, and every process stays one of its own; files of the same name are the
//! same. The times of a recording count from its start. So recordings are laid side by side by the moments at which
//! they began ([`Process::start`](crate::Process::start)): what happened at the same time on two machines then lies
//! as far apart as their clocks do, which is for their administrators to keep small. Recordings that do not say
//! when they began are refused, unless they are to be taken as begun at the same moment.

use crate::renumber::Renumber;
use crate::sorted::{InOrder, Sorter, Spill};
use crate::{Place, Reason, Record, Source, TraceError};
use presagio_core::{Event, Nanos};
use std::path::Path;
use std::vec;

/// How recordings are laid side by side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Align {
    /// By the clocks of their machines.
    #[default]
    Clock,
    /// As if all had begun at the same moment.
    SameStart,
}

/// What was joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JoinReport {
    /// The recordings.
    pub traces: u32,
    /// Their events.
    pub events: u64,
    /// How much later the last recording began than the first.
    pub starts_apart: Nanos,
}

/// Joins recordings, one after the other.
#[derive(Debug)]
pub struct Joiner {
    names: Renumber,
    sorter: Sorter,
    align: Align,
    /// The first and the last moment at which a recording began.
    starts: Option<(Nanos, Nanos)>,
    report: JoinReport,
}

impl Joiner {
    /// Begins with nothing.
    pub fn new(align: Align, spill: Spill) -> Joiner {
        Joiner {
            names: Renumber::with_processes_apart(),
            sorter: Sorter::new(spill),
            align,
            starts: None,
            report: JoinReport::default(),
        }
    }

    /// Adds the recording at `path`, which is for messages.
    pub fn add(
        &mut self,
        path: &Path,
        trace: impl Iterator<Item = Result<Record, TraceError>>,
    ) -> Result<(), TraceError> {
        self.report.traces += 1;
        self.names.begin();
        let mut time = Nanos::ZERO;
        let wrong = |reason| TraceError::new(path, Place::Byte(0), reason);
        for record in trace {
            match record? {
                Record::Event(event) => {
                    let event = self.placed(event).map_err(wrong)?;
                    time = event.time;
                    self.sorter.push(time.0, Record::Event(event))?;
                }
                Record::Gap { process, lost } => {
                    let process = self.names.process(process);
                    let process = process.map_err(|problem| wrong(problem.into()))?;
                    self.sorter.push(time.0, Record::Gap { process, lost })?;
                }
                definition => {
                    let defined = self.names.define(definition);
                    defined.map_err(|problem| wrong(problem.into()))?;
                }
            }
        }
        Ok(())
    }

    /// The event as it is in the result, but for the moment that times count from.
    fn placed(&mut self, event: Event) -> Result<Event, Reason> {
        self.report.events += 1;
        let event = self.names.renamed(event)?;
        if self.align == Align::SameStart {
            return Ok(event);
        }
        let start = self.names.start(event.process).ok_or(Reason::NoStart)?;
        let (first, last) = self.starts.unwrap_or((start, start));
        self.starts = Some((first.min(start), last.max(start)));
        let time = start + event.time;
        Ok(Event { time, ..event })
    }

    /// The joined trace, in the order of time.
    pub fn finish(mut self) -> Result<Joined, TraceError> {
        let start = self.starts.map(|(first, _)| first);
        if let Some((first, last)) = self.starts {
            self.report.starts_apart = last.since(first);
        }
        Ok(Joined {
            definitions: self.names.definitions(start).into_iter(),
            events: self.sorter.finish()?,
            start: start.unwrap_or_default(),
            report: self.report,
        })
    }
}

/// The joined trace.
#[derive(Debug)]
pub struct Joined {
    definitions: vec::IntoIter<Record>,
    events: InOrder,
    start: Nanos,
    report: JoinReport,
}

impl Joined {
    /// What was joined.
    pub fn report(&self) -> JoinReport {
        self.report
    }
}

impl Iterator for Joined {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(definition) = self.definitions.next() {
            return Some(Ok(definition));
        }
        let mut record = self.events.next()?;
        if let Ok(Record::Event(event)) = &mut record {
            event.time = event.time.since(self.start);
        }
        Some(record)
    }
}

impl Source for Joined {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Process;
    use crate::strategies::event;
    use presagio_core::FileId;

    const NODE: Process = Process {
        id: 1,
        pid: Some(77),
        rank: None,
        host: None,
        command: None,
        start: None,
    };

    /// A recording of process 1 with writes of file 5 at these times, and what it lost before its end.
    fn recording(name: &str, start: Option<u64>, times: &[u64]) -> Vec<Record> {
        let file = Record::File {
            id: FileId(5),
            name: name.as_bytes().into(),
        };
        let start = start.map(Nanos);
        let process = Record::Process(Process { start, ..NODE });
        let at = |&time: &u64| {
            Record::Event(Event {
                time: Nanos(time),
                file: FileId(5),
                ..event()
            })
        };
        let gap = Record::Gap {
            process: 1,
            lost: 3,
        };
        let events = times.iter().map(at);
        [file, process]
            .into_iter()
            .chain(events)
            .chain([gap])
            .collect()
    }

    fn joined(align: Align, traces: &[Vec<Record>]) -> Result<(Vec<Record>, JoinReport), String> {
        let mut joiner = Joiner::new(align, Spill::default());
        for trace in traces {
            let records = trace.iter().cloned().map(Ok);
            let added = joiner.add(Path::new("node"), records);
            added.map_err(|error| error.to_string())?;
        }
        let joined = joiner.finish().unwrap();
        let report = joined.report();
        Ok((joined.map(Result::unwrap).collect(), report))
    }

    /// Time, process and file of the events; −1 stands for what was lost.
    fn brief(records: &[Record]) -> Vec<(i64, u32, u64)> {
        let brief = |record: &Record| match record {
            Record::Event(e) => Some((e.time.0 as i64, e.process, e.file.0)),
            Record::Gap { process, .. } => Some((-1, *process, 0)),
            _ => None,
        };
        records.iter().filter_map(brief).collect()
    }

    #[test]
    fn recordings_of_several_machines_lie_as_their_clocks_say() {
        let now = 1_700_000_000_000_000_000;
        let traces = [
            recording("shared", Some(now + 100), &[0, 50]),
            recording("shared", Some(now), &[10, 120, 200]),
        ];
        let (records, report) = joined(Align::Clock, &traces).unwrap();
        let events = [(10, 1, 0), (100, 0, 0), (120, 1, 0), (150, 0, 0)];
        let rest = [(-1, 0, 0), (200, 1, 0), (-1, 1, 0)];
        assert_eq!(brief(&records), [&events[..], &rest].concat());
        let of = |id| {
            Record::Process(Process {
                id,
                start: Some(Nanos(now)),
                ..NODE
            })
        };
        assert_eq!(records[..2], [of(0), of(1)]);
        let expected = JoinReport {
            traces: 2,
            events: 5,
            starts_apart: Nanos(100),
        };
        assert_eq!(report, expected);
    }

    #[test]
    fn a_recording_without_a_start_is_joined_only_as_begun_with_the_others() {
        let traces = [
            recording("a", Some(1 << 60), &[0, 50]),
            recording("b", None, &[10]),
        ];
        let error = joined(Align::Clock, &traces).unwrap_err();
        assert!(error.contains("it does not say when it began"), "{error}");
        let (records, _) = joined(Align::SameStart, &traces).unwrap();
        let expected = [(0, 0, 0), (10, 1, 1), (-1, 1, 0), (50, 0, 0), (-1, 0, 0)];
        assert_eq!(brief(&records), expected);
        let is_unknown =
            |record: &Record| matches!(record, Record::Process(p) if p.start.is_none());
        assert!(records[..2].iter().all(is_unknown));
    }
}
