//! `presagio bench report`: how long a report takes to make, in how much memory, and how large the page becomes.
//!
//! Traces of growing length are written, and `presagio report` is run on each as a person would run it, in a process of
//! its own, whose time and peak memory the system tells. Half of each trace is regular (ranks that write checkpoints, and
//! one that reads in strides), half is without order, which is what models find hardest.

use super::{Bar, Effort, Report, Scope};
use crate::failure::failure;
use crate::progress::progress;
use crate::table::{Cell, Table};
use presagio_core::{Action, ContextId, Event, FileId, Layer, Nanos};
use presagio_trace::{Frame, Process, Record, native};
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// What the bars are about: so many operations in so many seconds, so much memory, and so large a page.
const BAR_OPERATIONS: u64 = 10_000_000;
const BAR_SECONDS: f64 = 30.0;
const BAR_MIB: f64 = 1024.0;
const BAR_PAGE_MIB: f64 = 8.0;
/// How much more the tenfold trace may take: of time tenfold and a little, of memory and page hardly more.
const BAR_GROWTH: f64 = 13.0;
const BAR_SAME: f64 = 1.5;

/// Processes and files of the traces.
const RANKS: u64 = 48;
const FILES: u64 = 4096;

/// What one report took.
struct Made {
    operations: u64,
    trace_mib: f64,
    seconds: f64,
    peak_mib: f64,
    page_mib: f64,
}

pub fn run(scope: &Scope) -> anyhow::Result<Report> {
    let most = match scope.effort {
        Effort::Full => BAR_OPERATIONS,
        Effort::Quick => BAR_OPERATIONS / 10,
        Effort::Tiny => BAR_OPERATIONS / 1000,
    };
    let sizes = [most / 10, most];
    let progress = progress(2 * sizes.len() as u64);
    let place = tempfile::tempdir().map_err(|cause| no_room(&cause))?;
    let mut made = Vec::new();
    for operations in sizes {
        let trace = place.path().join(format!("{operations}.ptrace"));
        progress.set_message(format!("writing {operations} operations"));
        write(&trace, operations).map_err(|cause| no_room(&cause))?;
        progress.inc(1);
        progress.set_message(format!("a report of {operations} operations"));
        made.push(make(&trace, operations)?);
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(report(&made))
}

fn no_room(cause: &io::Error) -> anyhow::Error {
    let what = "cannot write traces in the directory for temporary files";
    failure(what, cause, "name another one with TMPDIR")
}

fn make(trace: &Path, operations: u64) -> anyhow::Result<Made> {
    let page = trace.with_extension("html");
    let began = Instant::now();
    let mut command = Command::new(std::env::current_exe()?);
    let command = command.arg("report").arg(trace).arg("--output").arg(&page);
    let status = command.stdout(Stdio::null()).status()?;
    let seconds = began.elapsed().as_secs_f64();
    if !status.success() {
        let what = format!("no report of {}", trace.display());
        return Err(failure(
            what,
            status,
            "run `presagio report` on a trace of yours",
        ));
    }
    let mib = |path: &Path| path.metadata().map(|m| m.len() as f64 / (1 << 20) as f64);
    Ok(Made {
        operations,
        trace_mib: mib(trace)?,
        seconds,
        peak_mib: peak_mib(),
        page_mib: mib(&page)?,
    })
}

/// The most memory that a child of ours has had so far. The longest trace comes last, and needs the most.
fn peak_mib() -> f64 {
    // SAFETY: all zeros is a valid value; the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    usage.ru_maxrss as f64 / 1024.0
}

fn report(made: &[Made]) -> Report {
    let row = |m: &Made| {
        vec![
            Cell::Count(m.operations),
            Cell::Number(m.trace_mib, 1),
            Cell::Number(m.seconds, 2),
            Cell::Number(m.seconds * 1e9 / m.operations as f64, 0),
            Cell::Number(m.peak_mib, 0),
            Cell::Number(m.page_mib, 2),
        ]
    };
    let table = Table {
        title: "Reports of traces that grow".to_owned(),
        columns: vec![
            ("operations", "operations"),
            ("trace_mib", "trace MiB"),
            ("seconds", "seconds"),
            ("ns_per_operation", "ns each"),
            ("peak_mib", "peak MiB"),
            ("page_mib", "page MiB"),
        ],
        rows: made.iter().map(row).collect(),
    };
    let notes = vec![format!(
        "{RANKS} processes and {FILES} files; half of the operations have no order. Written and read where temporary files are."
    )];
    Report {
        tables: vec![("reports", table)],
        notes,
        bars: bars(&made[0], &made[made.len() - 1]),
    }
}

fn bars(small: &Made, large: &Made) -> Vec<Bar> {
    let operations = large.operations;
    let limit = BAR_SECONDS * operations as f64 / BAR_OPERATIONS as f64;
    let name = |what: &str| format!("{what}, {operations} operations");
    vec![
        Bar::at_most(name("time to make a report"), large.seconds, "s", limit),
        Bar::at_most(name("peak memory"), large.peak_mib, "MiB", BAR_MIB),
        Bar::at_most(
            name("size of the page"),
            large.page_mib,
            "MiB",
            BAR_PAGE_MIB,
        ),
        Bar::at_most(
            "time for ten times as many operations",
            large.seconds / small.seconds,
            "",
            BAR_GROWTH,
        ),
        Bar::at_most(
            "page for ten times as many operations",
            large.page_mib / small.page_mib,
            "",
            BAR_SAME,
        ),
    ]
}

/// Writes a trace of so many operations.
fn write(path: &Path, operations: u64) -> io::Result<()> {
    let mut writer = native::Writer::new(File::create(path)?)?;
    for definition in definitions() {
        writer.write(&definition)?;
    }
    for n in 0..operations {
        writer.write(&Record::Event(operation(n)))?;
    }
    writer.finish()
}

fn definitions() -> Vec<Record> {
    let files = (0..FILES).map(|n| Record::File {
        id: FileId(n),
        name: format!("/scratch/run/part-{n:04}.dat").into_bytes().into(),
    });
    let processes = (0..RANKS as u32).map(|n| {
        Record::Process(Process {
            id: n,
            rank: Some(n),
            command: Some("/opt/bench/app --long run".into()),
            ..Process::default()
        })
    });
    let stacks = (1..=STACKS).map(|n| Record::Context {
        id: ContextId(n),
        frames: [Frame {
            module: "/opt/bench/app".into(),
            offset: 4096 * u64::from(n),
            symbol: Some(format!("stage_{n}").as_str().into()),
        }]
        .into(),
    });
    files.chain(processes).chain(stacks).collect()
}

const STACKS: u32 = 64;

/// A number that looks like chance, the same in every run.
fn mixed(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20
}

/// The n-th operation: ranks by turns, the first half of them regular.
fn operation(n: u64) -> Event {
    let (rank, step, chance) = (n % RANKS, n / RANKS, mixed(n));
    let plain = Event {
        time: Nanos(n * 2_000 + chance % 1_500),
        duration: Nanos(2_000 + chance % 60_000),
        process: rank as u32,
        thread: 0,
        file: FileId(rank),
        action: Action::Read,
        layer: Layer::Posix,
        context: ContextId(1),
        offset: 0,
        len: 0,
        result: 0,
    };
    match rank < RANKS / 2 {
        true => regular(plain, step),
        false => random(plain, chance),
    }
}

/// A checkpoint of 64 operations: open, a header, blocks, close.
fn regular(plain: Event, step: u64) -> Event {
    let (round, at) = (step / 64, step % 64);
    let (action, context, len) = match at {
        0 => (Action::Open, 2, 0),
        1 => (Action::Write, 3, 512),
        63 => (Action::Close, 5, 0),
        _ => (Action::Write, 4, 65_536),
    };
    Event {
        action,
        context: ContextId(context),
        file: FileId((u64::from(plain.process) * 61 + round) % FILES),
        offset: if len == 65_536 {
            512 + (at - 2) * 65_536
        } else {
            0
        },
        len,
        result: len as i64,
        ..plain
    }
}

/// Any call stack, any file, anywhere in it.
fn random(plain: Event, chance: u64) -> Event {
    let len = 512 << (chance % 8);
    Event {
        action: if chance & 256 == 0 {
            Action::Read
        } else {
            Action::Write
        },
        context: ContextId(6 + (chance >> 9) as u32 % (STACKS - 6)),
        file: FileId((chance >> 15) % FILES),
        offset: (chance >> 27) % (1 << 15) * 4096,
        len,
        result: len as i64,
        ..plain
    }
}
