//! Traces of what schedulers saw, as if each I/O node or server had recorded: one process of the trace for each.

use super::replay::Replays;
use super::work::{Deciding, simulation};
use crate::failure::failure;
use crate::trace::output::{Output, Writing};
use presagio_core::{Action, ContextId, Event, FileId, Layer, Nanos, Op, Request};
use presagio_sim::{Change, Level, Place, Run, Seen, Steering};
use presagio_trace::{Process, Record};
use std::collections::HashSet;
use std::path::Path;

/// An error where there is not just one run to record.
pub fn only_one(runs: &[Run]) -> anyhow::Result<()> {
    match runs.len() {
        1 => Ok(()),
        many => Err(failure(
            "cannot record",
            format!("there are {many} runs, and a trace is of one"),
            "give what varies one value, with --set",
        )),
    }
}

/// Runs it once more, with someone who writes down what arrives.
pub fn write(
    run: &Run,
    replays: &Replays,
    deciding: &Deciding,
    level: Level,
    path: &Path,
) -> anyhow::Result<()> {
    let mut scribe = Scribe {
        level,
        out: Writing::plain().create(path)?,
        places: HashSet::new(),
        files: HashSet::new(),
        failed: None,
    };
    simulation(run, replays, deciding)
        .steered_by(&mut scribe)
        .run()?;
    match scribe.failed {
        Some(error) => Err(error),
        None => scribe.out.finish().map(drop),
    }
}

struct Scribe {
    level: Level,
    out: Output,
    places: HashSet<u32>,
    files: HashSet<FileId>,
    failed: Option<anyhow::Error>,
}

impl Steering for Scribe {
    fn period(&self) -> Nanos {
        Nanos::MAX
    }

    fn arrived(&mut self, place: Place, request: &Request, now: Nanos) {
        if place.level() == self.level && self.failed.is_none() {
            self.failed = self.note(place, request, now).err();
        }
    }

    fn decide(&mut self, _now: Nanos, _seen: &[Seen], _changes: &mut Vec<Change>) {}
}

impl Scribe {
    fn note(&mut self, place: Place, request: &Request, now: Nanos) -> anyhow::Result<()> {
        let (process, host) = match place {
            Place::IoNode(number) => (number, format!("ionode-{number}")),
            Place::Server(number) => (number, format!("server-{number}")),
        };
        if self.places.insert(process) {
            let process = Process {
                id: process,
                host: Some(host),
                ..Process::default()
            };
            self.out.write(&Record::Process(process))?;
        }
        if self.files.insert(request.file) {
            let name = format!("file-{}", request.file.0).into_bytes().into();
            let id = request.file;
            self.out.write(&Record::File { id, name })?;
        }
        self.out.write(&Record::Event(Event {
            time: now,
            duration: Nanos::ZERO,
            process,
            thread: 0,
            file: request.file,
            action: match request.op {
                Op::Read => Action::Read,
                Op::Write => Action::Write,
            },
            layer: Layer::Server,
            context: ContextId::UNKNOWN,
            offset: request.range.start(),
            len: request.range.len(),
            result: request.range.len() as i64,
        }))
    }
}
