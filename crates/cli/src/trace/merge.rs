//! `presagio trace merge`: one trace out of several: repetitions of the same run, or its parts.

use super::exit_code;
use super::input::{self, Watched};
use super::output::{self, Output};
use crate::failure::failure;
use crate::size::Size;
use crate::terminal::{counted, prose};
use indicatif::ProgressBar;
use presagio_core::Nanos;
use presagio_trace::join::{Align, JoinReport, Joiner};
use presagio_trace::merge::{MergeOptions, MergeReport, Merger};
use presagio_trace::sorted::Spill;
use presagio_trace::{Reason, Source, TraceError};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Merge repetitions of the same run into one typical trace, or join recordings of its parts
///
/// The same request arrives at a slightly different moment in each repetition. The k-th time that a repetition
/// does this to this part of this file is taken for the same request as the k-th time in the others; the
/// result has each request once, at the average of its arrival times. A request that only some repetitions have
/// is kept, with the average over those. The report says how many there are, and how far arrival times lay
/// apart: the standard deviation, and its share in the arrival time, which is what the 10 % margin of
/// AGIOS's predictions is about.
///
/// With --join the traces are no repetitions but parts of one run, recorded by several machines or processes: all
/// their events are kept, in the order of time. Their clocks tell how they lie to each other, so each has to say
/// when it began, which native traces, Darshan's logs and strace's output do; or --same-start.
///
/// A trace that was cut short is merged as far as it goes; the exit status is then 1.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  presagio trace merge --join node-*.ptrace -o job.ptrace
  presagio trace merge 1.agios 2.agios 3.agios -o typical.agios
  presagio trace merge run-*.darshan -o typical.ptrace --json")]
pub struct Args {
    /// The traces, at least two
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// The trace to write; - is the standard output
    #[arg(long, short, value_name = "OUT")]
    output: PathBuf,
    /// Join recordings of several machines or processes instead: keep all events, in the order of time
    #[arg(long)]
    join: bool,
    /// Join recordings as if they had begun at the same moment, whatever their clocks say
    #[arg(long, requires = "join")]
    same_start: bool,
    #[command(flatten)]
    from: input::Reading,
    #[command(flatten)]
    to: output::Writing,
    /// Print the report as one JSON document
    #[arg(long)]
    json: bool,
}

/// What came of it.
enum Report {
    Merged(MergeReport),
    Joined(JoinReport),
}

/// What to tell of it.
struct Done {
    report: Report,
    bytes_in: u64,
    bytes_out: Option<u64>,
    took: Duration,
    is_whole: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.traces.len() < 2 {
        let cause = "there is only one trace";
        let advice = "name at least two";
        return Err(failure("nothing to merge", cause, advice));
    }
    let begin = Instant::now();
    let bar = input::bar_for(&args.traces);
    let mut output = args.to.create(&args.output)?;
    let is_stdout = output.is_stdout();
    let (report, is_whole) = match args.join {
        true => join(args, &bar, &mut output)?,
        false => merge(args, &bar, &mut output)?,
    };
    let done = Done {
        report,
        bytes_in: bar.position(),
        bytes_out: output.finish()?,
        took: begin.elapsed(),
        is_whole,
    };
    bar.finish_and_clear();
    let text = match args.json {
        true => format!("{:#}", done.json()),
        false => done.text(),
    };
    match is_stdout {
        true => writeln!(io::stderr(), "{text}")?,
        false => writeln!(io::stdout(), "{text}")?,
    }
    Ok(exit_code(done.is_whole))
}

/// Merges repetitions; what came of it, and whether all of them are whole.
fn merge(args: &Args, bar: &ProgressBar, to: &mut Output) -> anyhow::Result<(Report, bool)> {
    let mut merger = Merger::new(MergeOptions::default());
    let is_whole = read_all(args, bar, |_, source| merger.add(source))?;
    let merged = merger.finish().map_err(|error| args.from.explain(error))?;
    let report = Report::Merged(merged.report());
    write_all(args, bar, merged, to)?;
    Ok((report, is_whole))
}

/// Joins parts; what came of it, and whether all of them are whole.
fn join(args: &Args, bar: &ProgressBar, to: &mut Output) -> anyhow::Result<(Report, bool)> {
    let align = match args.same_start {
        true => Align::SameStart,
        false => Align::Clock,
    };
    let mut joiner = Joiner::new(align, Spill::default());
    let is_whole = read_all(args, bar, |path, source| joiner.add(path, source))?;
    let joined = joiner.finish().map_err(|error| args.from.explain(error))?;
    let report = Report::Joined(joined.report());
    write_all(args, bar, joined, to)?;
    Ok((report, is_whole))
}

/// Reads all traces; whether all of them are whole.
fn read_all(
    args: &Args,
    bar: &ProgressBar,
    mut add: impl FnMut(&Path, &mut Watched) -> Result<(), TraceError>,
) -> anyhow::Result<bool> {
    let mut is_whole = true;
    for path in &args.traces {
        bar.set_message(path.display().to_string());
        let mut source = args.from.open(path, bar)?;
        add(path, &mut source).map_err(|error| args.explain(error))?;
        is_whole &= bar.suspend(|| args.from.warn(path, &source));
    }
    bar.set_message("merging");
    Ok(is_whole)
}

fn write_all(
    args: &Args,
    bar: &ProgressBar,
    mut records: impl Source,
    to: &mut Output,
) -> anyhow::Result<()> {
    bar.set_message("writing");
    records.try_for_each(|record| to.write(&record.map_err(|error| args.from.explain(error))?))
}

impl Args {
    fn explain(&self, error: TraceError) -> anyhow::Error {
        match &error.reason {
            Reason::NoStart => {
                let advice = "if all of them began at the same moment, say so with --same-start";
                failure(error.path.display(), &error.reason, advice)
            }
            _ => self.from.explain(error),
        }
    }
}

impl Done {
    fn text(&self) -> String {
        let size = self
            .bytes_out
            .map_or(String::new(), |b| format!(", {} written", Size(b)));
        let (what, events) = match &self.report {
            Report::Merged(report) => (
                counted(report.repetitions.into(), "repetition"),
                report.events,
            ),
            Report::Joined(report) => (counted(report.traces.into(), "recording"), report.events),
        };
        let first = format!(
            "{what} with {events} events in {:.2} s, {} read{size}.",
            self.took.as_secs_f64(),
            Size(self.bytes_in),
        );
        let rest = match &self.report {
            Report::Merged(report) => [requests(report), deviation(report)].join("\n"),
            Report::Joined(report) => {
                format!(
                    "The last one began {} after the first.",
                    report.starts_apart
                )
            }
        };
        prose(&[first, rest].join("\n"))
    }

    fn json(&self) -> Value {
        let mut document = match &self.report {
            Report::Merged(report) => merged_json(report),
            Report::Joined(report) => json!({
                "recordings": report.traces,
                "events": report.events,
                "starts_apart_ns": report.starts_apart.0,
            }),
        };
        document["bytes_read"] = json!(self.bytes_in);
        document["bytes_written"] = json!(self.bytes_out);
        document["seconds"] = json!(self.took.as_secs_f64());
        document["whole"] = json!(self.is_whole);
        document
    }
}

fn requests(report: &MergeReport) -> String {
    let in_some = report.requests - report.requests_in_all;
    let percent = |part: u64| 100.0 * part as f64 / report.requests.max(1) as f64;
    format!(
        "{} requests: {} in every repetition ({:.1} %), {in_some} in some only ({:.1} %).",
        report.requests,
        report.requests_in_all,
        percent(report.requests_in_all),
        percent(in_some),
    )
}

fn deviation(report: &MergeReport) -> String {
    let deviation = &report.deviation;
    if report.requests_in_all == 0 {
        return "No request is in every repetition: are they of the same run, in the same layer? Recordings of its \
                parts are joined with --join."
            .to_owned();
    }
    format!(
        "The arrival times of a request deviate by {} on average, which is {:.2} % of its time, and by {} \
         at most.",
        Nanos(deviation.mean_ns as u64),
        100.0 * deviation.mean_share,
        Nanos(deviation.max_ns as u64),
    )
}

fn merged_json(report: &MergeReport) -> Value {
    json!({
        "repetitions": report.repetitions,
        "events": report.events,
        "requests": report.requests,
        "requests_in_all": report.requests_in_all,
        "requests_in_some": report.requests - report.requests_in_all,
        "requests_paired": report.requests_paired,
        "deviation_mean_ns": report.deviation.mean_ns,
        "deviation_max_ns": report.deviation.max_ns,
        "deviation_mean_share": report.deviation.mean_share,
    })
}
