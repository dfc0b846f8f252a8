//! The model on streams of operations as programs make them.

use super::{Bar, Effort, Plan};
use crate::table::{Cell, Table};
use indicatif::ProgressBar;
use presagio_core::Event;
use presagio_predict::{Model, apps};
use presagio_trace::sorted::{Sorted, Spill};
use presagio_trace::{Record, open};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Where logs of real programs lie, seen from where the project is.
const LOGS: &str = "../shared/data/darshan";

/// Operations that are read ahead.
const AHEAD: usize = 16;

/// The replicas, and the logs together.
pub const STEPS: u64 = 7;

/// What was measured of one program.
pub struct Timed {
    name: String,
    is_replica: bool,
    operations: usize,
    processes: usize,
    observe_ns: f64,
    read_ns: f64,
    bytes: usize,
}

pub fn measure(plan: &Plan, effort: Effort, bar: &ProgressBar) -> Vec<Timed> {
    let mut timed = Vec::new();
    for (name, mut events) in apps::all() {
        bar.set_message(name);
        if effort == Effort::Tiny {
            events.truncate(1000);
        }
        timed.push(time(plan, name.to_owned(), true, &[events]));
        bar.inc(1);
    }
    bar.set_message("Darshan logs");
    for path in logs() {
        let streams = streams(&path).unwrap_or_default();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if !streams.is_empty() && effort != Effort::Tiny {
            timed.push(time(plan, shortened(&name), false, &streams));
        }
    }
    bar.inc(1);
    timed
}

fn shortened(name: &str) -> String {
    name.chars().take(20).collect()
}

fn logs() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(LOGS).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// The operations of each process at each layer. A log without single operations has none.
fn streams(path: &Path) -> Option<Vec<Vec<Event>>> {
    let mut streams: BTreeMap<(u8, u32), Vec<Event>> = BTreeMap::new();
    for record in Sorted::new(open(path).ok()?, Spill::default()) {
        if let Record::Event(event) = record.ok()? {
            let key = (event.layer as u8, event.process);
            streams.entry(key).or_default().push(event);
        }
    }
    Some(streams.into_values().collect())
}

fn time(plan: &Plan, name: String, is_replica: bool, streams: &[Vec<Event>]) -> Timed {
    let operations = streams.iter().map(Vec::len).sum();
    let fastest = |work: &dyn Fn(&[Event])| {
        let once = || {
            let begin = Instant::now();
            streams.iter().for_each(|events| work(events));
            begin.elapsed().as_nanos() as f64 / operations as f64
        };
        (0..plan.rounds)
            .map(|_| once())
            .fold(f64::INFINITY, f64::min)
    };
    Timed {
        name,
        is_replica,
        operations,
        processes: streams.len(),
        observe_ns: fastest(&|events| {
            black_box(observed(events));
        }),
        read_ns: fastest(&observe_and_read),
        bytes: streams.iter().map(|events| observed(events).memory()).sum(),
    }
}

fn observed(events: &[Event]) -> Model {
    let mut model = Model::new();
    events.iter().for_each(|event| model.observe(event));
    model
}

fn observe_and_read(events: &[Event]) {
    let mut model = Model::new();
    for event in events {
        model.observe(event);
        for predicted in model.best().into_iter().flat_map(|c| c.take(AHEAD)) {
            black_box(predicted);
        }
    }
}

pub fn table(timed: &[Timed]) -> Table {
    let row = |t: &Timed| {
        vec![
            Cell::Text(t.name.clone()),
            Cell::Count(t.processes as u64),
            Cell::Count(t.operations as u64),
            Cell::Number(t.observe_ns, 0),
            Cell::Number(t.read_ns, 0),
            Cell::Bytes(t.bytes as u64),
        ]
    };
    Table {
        title: "The model on recorded streams".to_owned(),
        columns: vec![
            ("stream", "stream"),
            ("processes", "processes"),
            ("operations", "operations"),
            ("observe_ns", "observe ns"),
            ("observe_and_read_ns", "read 16 ns"),
            ("bytes", "memory"),
        ],
        rows: timed.iter().map(row).collect(),
    }
}

pub fn bars(timed: &[Timed]) -> Vec<Bar> {
    let of = |is_replica| timed.iter().filter(move |t| t.is_replica == is_replica);
    let mut bars = Vec::new();
    for (what, is_replica) in [("replicas", true), ("Darshan logs", false)] {
        let operations: usize = of(is_replica).map(|t| t.operations).sum();
        let mean = |ns: fn(&Timed) -> f64| {
            let sum: f64 = of(is_replica).map(|t| ns(t) * t.operations as f64).sum();
            sum / operations.max(1) as f64
        };
        let pair = [
            Bar::at_most(
                format!("{what}: observe"),
                mean(|t| t.observe_ns),
                "ns",
                300.0,
            ),
            Bar::at_most(
                format!("{what}: observe, read 16"),
                mean(|t| t.read_ns),
                "ns",
                2000.0,
            ),
        ];
        bars.extend(pair.map(|bar| match operations {
            0 => bar.not_measured(format!("nothing in {LOGS}")),
            _ => bar,
        }));
    }
    bars
}
