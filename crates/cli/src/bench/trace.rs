//! `presagio bench trace`: how fast traces are read, merged and written, and how large they are.
//!
//! Two things are measured:
//!
//! - merging 1, 2, 4 and 8 repetitions of a run, as AGIOS traces on disk, into one: the growth, and the bar of
//!   thesis Table 4.3, where it took 190 minutes;
//! - what an event costs in each format, in time and bytes, beside CSV in the same run.

use super::{Bar, Effort, Report, Scope};
use crate::failure::failure;
use crate::progress::progress;
use crate::table::{Cell, Table};
use indicatif::ProgressBar;
use presagio_core::{Action, ContextId, Event, FileId, Layer, Nanos};
use presagio_trace::merge::{MergeOptions, Merger};
use presagio_trace::{Frame, Process, Record, Sink, TraceError, agios, csv, native, open};
use std::fs::File;
use std::io::{self, BufRead, BufWriter, Cursor};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// The repetitions that are merged.
const REPETITIONS: [usize; 4] = [1, 2, 4, 8];

/// What the bar is about: so many seconds for eight traces of so many bytes.
const BAR_SECONDS: f64 = 5.0;
const BAR_TRACE_BYTES: u64 = 40_000_000;

/// The sizes, by effort.
struct Plan {
    trace_bytes: u64,
    /// Events in each format, and how often they are written and read.
    events: u64,
    rounds: u32,
}

impl Plan {
    fn new(effort: Effort) -> Plan {
        let (trace_bytes, events, rounds) = match effort {
            Effort::Full => (BAR_TRACE_BYTES, 500_000, 5),
            Effort::Quick => (BAR_TRACE_BYTES / 5, 100_000, 3),
            Effort::Tiny => (BAR_TRACE_BYTES / 1000, 1_000, 1),
        };
        Plan {
            trace_bytes,
            events,
            rounds,
        }
    }

    /// Smaller traces have to be faster.
    fn limit_seconds(&self) -> f64 {
        BAR_SECONDS * self.trace_bytes as f64 / BAR_TRACE_BYTES as f64
    }
}

pub fn run(scope: &Scope) -> anyhow::Result<Report> {
    let effort = scope.effort;
    let plan = Plan::new(effort);
    let progress = progress((8 + REPETITIONS.len() + FORMATS.len()) as u64);
    let dir = tempfile::tempdir().map_err(|cause| no_room(&cause))?;
    let traces = generate(dir.path(), &plan, &progress).map_err(|cause| no_room(&cause))?;
    let mut merges = Vec::new();
    for count in REPETITIONS {
        progress.set_message(format!("merging {count}"));
        merges.push(merge(&traces[..count])?);
        progress.inc(1);
    }
    let formats = formats(&plan, &progress)?;
    progress.finish_and_clear();
    Ok(report(&plan, &merges, &formats))
}

fn no_room(cause: &io::Error) -> anyhow::Error {
    let what = "cannot make eight traces in the directory for temporary files";
    failure(what, cause, "name another one with TMPDIR")
}

/// Eight repetitions of a run: clients that read and write one shared file by turns.
fn generate(dir: &Path, plan: &Plan, progress: &ProgressBar) -> io::Result<Vec<PathBuf>> {
    let traces = (1..=8).map(|repetition| {
        progress.set_message(format!("writing trace {repetition}"));
        let path = dir.join(format!("{repetition}.agios"));
        write_repetition(&path, repetition, plan.trace_bytes)?;
        progress.inc(1);
        Ok(path)
    });
    traces.collect()
}

const CLIENTS: u64 = 16;
const REQUEST_BYTES: u64 = 32 << 10;

fn write_repetition(path: &Path, repetition: u64, bytes: u64) -> io::Result<()> {
    let mut options = File::options();
    options.read(true).write(true).create_new(true);
    let file = options.open(path)?;
    let mut writer = agios::Writer::new(BufWriter::new(&file));
    writer.write(&file_record(0, "/pfs/checkpoint.dat"))?;
    for step in 0.. {
        for event in arrivals(step, repetition) {
            writer.write(&Record::Event(event))?;
        }
        // Looked at now and then: what the buffer holds is not there yet.
        if step % 1024 == 0 && file.metadata()?.len() >= bytes {
            break;
        }
    }
    writer.finish()?;
    // All have the same length, whatever was in the buffer.
    cut(&file, bytes)
}

/// Cuts a trace behind the last line that ends within so many bytes.
fn cut(file: &File, bytes: u64) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let mut tail = [0; 256];
    let begin = bytes
        .min(file.metadata()?.len())
        .saturating_sub(tail.len() as u64);
    let got = file.read_at(&mut tail, begin)?;
    let end = tail[..got].iter().rposition(|byte| *byte == b'\n');
    file.set_len(begin + end.map_or(0, |end| end as u64 + 1))
}

/// One request of each client, in the order in which they happen to arrive in this repetition.
fn arrivals(step: u64, repetition: u64) -> Vec<Event> {
    let mut events: Vec<Event> = (0..CLIENTS)
        .map(|client| {
            let block = step * CLIENTS + client;
            let late = mixed(block ^ repetition << 40) % 20_000;
            transfer(step * 100_000 + client * 5_000 + late, block)
        })
        .collect();
    events.sort_by_key(|event| event.time);
    events
}

fn transfer(time: u64, block: u64) -> Event {
    Event {
        time: Nanos(time),
        duration: Nanos::ZERO,
        process: 0,
        thread: 0,
        file: FileId(0),
        action: match block / 65_536 % 2 {
            0 => Action::Write,
            _ => Action::Read,
        },
        layer: Layer::Server,
        context: ContextId::UNKNOWN,
        offset: block * REQUEST_BYTES,
        len: REQUEST_BYTES,
        result: REQUEST_BYTES as i64,
    }
}

/// A number that looks random: the finaliser of SplitMix64.
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

fn file_record(id: u64, name: &str) -> Record {
    Record::File {
        id: FileId(id),
        name: name.as_bytes().into(),
    }
}

/// What a merge took.
struct MergeTime {
    traces: usize,
    bytes: u64,
    events: u64,
    requests: u64,
    seconds: f64,
}

/// Reads the traces, merges them and writes the result where it costs nothing.
fn merge(traces: &[PathBuf]) -> anyhow::Result<MergeTime> {
    let begin = Instant::now();
    let mut merger = Merger::new(MergeOptions::default());
    for trace in traces {
        merger.add(open(trace)?)?;
    }
    let merged = merger.finish()?;
    let report = merged.report();
    let mut writer = native::Writer::new(io::sink())?;
    for record in merged {
        writer.write(&record?)?;
    }
    writer.finish()?;
    let seconds = begin.elapsed().as_secs_f64();
    let sizes: io::Result<Vec<u64>> = traces.iter().map(|t| Ok(t.metadata()?.len())).collect();
    Ok(MergeTime {
        traces: traces.len(),
        bytes: sizes?.iter().sum(),
        events: report.events,
        requests: report.requests,
        seconds,
    })
}

/// Reads a trace and counts its events.
type Read = fn(Vec<u8>) -> Result<u64, TraceError>;

/// A format: its name, how a trace is written in it, and how it is read, if it is.
struct Format {
    name: &'static str,
    write: fn(&[Record], &mut Vec<u8>) -> io::Result<()>,
    read: Option<Read>,
}

const FORMATS: &[Format] = &[
    Format {
        name: "native",
        write: |records, out| write_all(native::Writer::new(out)?, records),
        read: Some(|bytes| count(native::Reader::new(&bytes[..], Path::new("native"))?)),
    },
    Format {
        name: "csv",
        write: |records, out| write_all(csv::Writer::new(out)?, records),
        read: Some(|bytes| count(csv::Reader::new(boxed(bytes), Path::new("csv")))),
    },
    Format {
        name: "agios",
        write: |records, out| write_all(agios::Writer::new(out), records),
        read: Some(|bytes| count(agios::Reader::new(boxed(bytes), Path::new("agios")))),
    },
    #[cfg(feature = "parquet")]
    Format {
        name: "parquet",
        write: |records, out| write_all(presagio_trace::parquet::Writer::new(out)?, records),
        read: None,
    },
];

fn write_all(mut sink: impl Sink, records: &[Record]) -> io::Result<()> {
    records.iter().try_for_each(|record| sink.write(record))?;
    sink.finish()
}

fn boxed(bytes: Vec<u8>) -> Box<dyn BufRead + Send> {
    Box::new(Cursor::new(bytes))
}

/// How many events there are.
fn count(trace: impl Iterator<Item = Result<Record, TraceError>>) -> Result<u64, TraceError> {
    let mut events = 0;
    for record in trace {
        events += u64::from(matches!(record?, Record::Event(_)));
    }
    Ok(events)
}

/// What an event costs in a format.
struct FormatCost {
    name: &'static str,
    bytes: f64,
    write_ns: f64,
    read_ns: Option<f64>,
}

/// All formats, the fastest of several rounds each.
fn formats(plan: &Plan, progress: &ProgressBar) -> anyhow::Result<Vec<FormatCost>> {
    let records = run_of_a_program(plan.events);
    let cost = |format: &Format| {
        progress.set_message(format.name);
        let cost = cost(format, &records, plan);
        progress.inc(1);
        cost
    };
    FORMATS.iter().map(cost).collect()
}

fn cost(format: &Format, records: &[Record], plan: &Plan) -> anyhow::Result<FormatCost> {
    let (mut bytes, mut write_ns, mut read_ns) = (Vec::new(), f64::INFINITY, None);
    for _ in 0..plan.rounds {
        bytes.clear();
        let begin = Instant::now();
        (format.write)(records, &mut bytes)?;
        write_ns = write_ns.min(per_event(begin, plan.events));
        if let Some(read) = format.read {
            let copy = bytes.clone();
            let begin = Instant::now();
            let events = read(copy)?;
            anyhow::ensure!(events == plan.events, "{} lost events", format.name);
            let ns = per_event(begin, plan.events);
            read_ns = Some(read_ns.map_or(ns, |best: f64| best.min(ns)));
        }
    }
    Ok(FormatCost {
        name: format.name,
        bytes: bytes.len() as f64 / plan.events as f64,
        write_ns,
        read_ns,
    })
}

fn per_event(begin: Instant, events: u64) -> f64 {
    begin.elapsed().as_nanos() as f64 / events as f64
}

/// Sixteen processes that write and read back blocks of eight files, from ten places in the program.
fn run_of_a_program(events: u64) -> Vec<Record> {
    let files = (0..8).map(|id| file_record(id, &format!("/scratch/run/output-{id}.h5")));
    let processes = (0..16).map(|id| {
        Record::Process(Process {
            id,
            rank: Some(id),
            host: Some(format!("node-{}", id / 4)),
            command: Some("./simulation --steps 100".to_owned()),
            ..Process::default()
        })
    });
    let contexts = (1..=10).map(|id| Record::Context {
        id: ContextId(id),
        frames: stack(u64::from(id)),
    });
    let events = (0..events).map(|number| Record::Event(event_of_a_program(number)));
    files
        .chain(processes)
        .chain(contexts)
        .chain(events)
        .collect()
}

fn stack(place: u64) -> Arc<[Frame]> {
    let frame = |depth: u64| Frame {
        module: "simulation".into(),
        offset: 4096 * depth + place * 24,
        symbol: Some(format!("write_level_{depth}").into()),
    };
    (0..8).map(frame).collect()
}

fn event_of_a_program(number: u64) -> Event {
    let (process, block) = ((number % 16) as u32, number / 16);
    Event {
        time: Nanos(number * 7_000 + mixed(number) % 5_000),
        duration: Nanos(20_000 + mixed(number + 1) % 30_000),
        process,
        thread: 0,
        file: FileId(block / 64 % 8),
        action: match block / 512 % 4 {
            3 => Action::Read,
            _ => Action::Write,
        },
        layer: Layer::Posix,
        context: ContextId(1 + (block % 10) as u32),
        offset: (block * 16 + u64::from(process)) * 65_536,
        len: 65_536,
        result: 65_536,
    }
}

fn report(plan: &Plan, merges: &[MergeTime], formats: &[FormatCost]) -> Report {
    let eight = merges.last().map_or(f64::NAN, |merge| merge.seconds);
    let megabytes = plan.trace_bytes as f64 / 1e6;
    let name = match megabytes {
        1.0.. => format!("read and merge eight {megabytes:.0} MB traces"),
        _ => format!("read and merge eight {:.0} KB traces", megabytes * 1e3),
    };
    Report {
        tables: vec![
            ("merge", merge_table(merges)),
            ("formats", format_table(formats)),
        ],
        notes: vec![
            "Merging: AGIOS traces of one run whose arrival times differ, read from files that were just written \
             (page cache), merged, and written as a native trace that goes nowhere."
                .to_owned(),
            "Formats: the same events in memory, with call stacks where the format has them; the fastest of \
             several rounds. An AGIOS trace has neither durations, processes nor call stacks."
                .to_owned(),
        ],
        bars: vec![Bar::at_most(name, eight, "s", plan.limit_seconds())],
    }
}

fn merge_table(merges: &[MergeTime]) -> Table {
    let one = merges.first().map_or(f64::NAN, |merge| merge.seconds);
    let row = |merge: &MergeTime| {
        vec![
            Cell::Count(merge.traces as u64),
            Cell::Number(merge.bytes as f64 / 1e6, 1),
            Cell::Count(merge.events),
            Cell::Count(merge.requests),
            Cell::Number(merge.seconds, 3),
            Cell::Number(merge.seconds * 1e9 / merge.events.max(1) as f64, 0),
            Cell::Number(merge.seconds / one, 2),
        ]
    };
    Table {
        title: "Read and merge repetitions of a run".to_owned(),
        columns: vec![
            ("traces", "traces"),
            ("megabytes", "MB"),
            ("events", "events"),
            ("requests", "requests"),
            ("seconds", "seconds"),
            ("ns_per_event", "ns/event"),
            ("times_one_trace", "× one trace"),
        ],
        rows: merges.iter().map(row).collect(),
    }
}

fn format_table(formats: &[FormatCost]) -> Table {
    let csv = formats.iter().find(|format| format.name == "csv");
    let share = |part: fn(&FormatCost) -> f64, format: &FormatCost| {
        Cell::maybe(csv.map(|csv| part(csv) / part(format)), 1)
    };
    let row = |format: &FormatCost| {
        vec![
            Cell::Text(format.name.to_owned()),
            Cell::Number(format.bytes, 1),
            share(|format| format.bytes, format),
            Cell::Number(format.write_ns, 0),
            share(|format| format.write_ns, format),
            Cell::maybe(format.read_ns, 0),
            match format.read_ns {
                Some(_) => share(|format| format.read_ns.unwrap_or(f64::NAN), format),
                None => Cell::Missing,
            },
        ]
    };
    Table {
        title: "What an event costs in each format; CSV ÷: how many times as much CSV takes"
            .to_owned(),
        columns: vec![
            ("format", "format"),
            ("bytes_per_event", "bytes"),
            ("csv_bytes_ratio", "CSV ÷"),
            ("write_ns_per_event", "write ns"),
            ("csv_write_ratio", "CSV ÷"),
            ("read_ns_per_event", "read ns"),
            ("csv_read_ratio", "CSV ÷"),
        ],
        rows: formats.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_have_the_same_requests_at_other_times() {
        let sorted = |repetition| {
            let mut offsets: Vec<u64> = arrivals(7, repetition).iter().map(|e| e.offset).collect();
            offsets.sort_unstable();
            offsets
        };
        assert_eq!(sorted(1), sorted(2));
        let times =
            |repetition| -> Vec<Nanos> { arrivals(7, repetition).iter().map(|e| e.time).collect() };
        assert_ne!(times(1), times(2));
        assert!(times(1).is_sorted());
    }

    #[test]
    fn traces_are_as_large_as_they_are_said_to_be_and_end_with_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        write_repetition(&path, 1, 50_000).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert!(
            bytes.len() <= 50_000 && bytes.len() > 49_900,
            "{}",
            bytes.len()
        );
        assert!(bytes.ends_with(b"\n"));
    }
}
