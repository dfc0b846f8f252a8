//! Records for tests: any, and likely ones.

use crate::names::Known;
use crate::{Frame, Process, Record, Source, TraceError};
use presagio_core::{Action, ContextId, Event, FileId, Layer, Nanos};
use proptest::prelude::*;
use std::sync::Arc;

/// A plain write.
pub(crate) fn event() -> Event {
    Event {
        time: Nanos(1_000),
        duration: Nanos(100),
        process: 1,
        thread: 0,
        file: FileId(3),
        action: Action::Write,
        layer: Layer::Posix,
        context: ContextId::UNKNOWN,
        offset: 0,
        len: 4096,
        result: 4096,
    }
}

/// Small numbers, which repeat, and any.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0u64..4, 2 => (0u64..8).prop_map(|n| n << 12), 1 => any::<u64>()]
}

fn small() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0u32..3, 1 => any::<u32>()]
}

pub(crate) fn any_event() -> impl Strategy<Value = Event> {
    let who = (small(), small(), number(), small(), 0usize..3);
    let what = (0usize..10, number(), number(), any::<bool>(), number());
    (number(), number(), who, what).prop_map(|(time, duration, who, what)| {
        let (process, thread, file, context, layer) = who;
        let (action, offset, len, full, result) = what;
        Event {
            time: Nanos(time),
            duration: Nanos(duration),
            process,
            thread,
            file: FileId(file),
            action: Action::ALL[action],
            layer: Layer::ALL[layer],
            context: ContextId(context),
            offset,
            len,
            result: if full { len as i64 } else { result as i64 },
        }
    })
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z/.]{1,12}", "[-+(),;\"\\\\\r\n\t \u{e9}x0-9]{0,8}"]
}

pub(crate) fn name() -> impl Strategy<Value = Arc<[u8]>> {
    prop_oneof![
        text().prop_map(|text| text.into_bytes().into()),
        prop::collection::vec(any::<u8>(), 0..12).prop_map(Arc::from),
    ]
}

fn frame() -> impl Strategy<Value = Frame> {
    (text(), number(), prop::option::of(text())).prop_map(|(module, offset, symbol)| Frame {
        module: module.into(),
        offset,
        symbol: symbol.map(Arc::from),
    })
}

pub(crate) fn frames() -> impl Strategy<Value = Vec<Frame>> {
    prop::collection::vec(frame(), 0..4)
}

fn process() -> impl Strategy<Value = Process> {
    use prop::option::of;
    let numbers = (small(), of(small()), of(small()), of(number()));
    (numbers, of(text()), of(text())).prop_map(|((id, pid, rank, start), host, command)| Process {
        id,
        pid,
        rank,
        host,
        command,
        start: start.map(Nanos),
    })
}

fn record() -> impl Strategy<Value = Record> {
    prop_oneof![
        8 => any_event().prop_map(Record::Event),
        2 => (number(), name()).prop_map(|(id, name)| Record::File { id: FileId(id), name }),
        1 => process().prop_map(Record::Process),
        1 => (small(), frames()).prop_map(|(id, frames)| Record::Context {
            id: ContextId(id),
            frames: frames.into(),
        }),
        1 => (small(), number()).prop_map(|(process, lost)| Record::Gap { process, lost }),
    ]
}

/// Any records, in any order, also such that no recorder would write.
pub(crate) fn records() -> impl Strategy<Value = Vec<Record>> {
    prop::collection::vec(record(), 0..100)
}

/// An event or a gap, with the name and the call stack that its numbers mean.
pub(crate) type Resolved = (Record, Vec<u8>, Vec<Frame>);

/// The events and gaps of a trace with what is known of them when they come.
pub(crate) fn resolved(records: &[Record]) -> Vec<Resolved> {
    let mut known = Known::default();
    let mut all = Vec::new();
    for record in records {
        match record {
            Record::Event(e) => {
                let (name, frames) = (known.file(e.file), known.frames(e.context));
                all.push((record.clone(), name.to_vec(), frames.to_vec()));
            }
            Record::Gap { .. } => all.push((record.clone(), Vec::new(), Vec::new())),
            definition => drop(known.learn(definition).unwrap()),
        }
    }
    all
}

/// A trace that is in memory.
pub(crate) struct List(std::vec::IntoIter<Record>);

impl List {
    pub fn new(records: &[Record]) -> List {
        List(Vec::from(records).into_iter())
    }
}

impl Iterator for List {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(Ok)
    }
}

impl Source for List {}
