//! `presagio trace replay`: the operations of a trace again, below a directory.

use super::{exit_code, input};
use crate::failure::failure;
use crate::progress::progress;
use crate::size::Size;
use crate::table::{self, Cell};
use crate::terminal::{counted, prose};
use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use presagio_core::{Histogram, Layer, Nanos};
use presagio_trace::replay::{Options, Replay, Report, Timing};
use presagio_trace::sorted::{Sorted, Spill};
use presagio_trace::{Record, TraceError};
use serde_json::{Value, json};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Do again what a trace tells, below a directory
///
/// Every file of the trace gets a place of its own below DIR, whatever it is called; nothing outside of DIR is
/// touched. Each thread of the trace has a thread here, which does the same opens, reads, writes, seeks and
/// syncs at the same offsets, in the same order; events of the trace that failed are left out. Files that are
/// read before anybody writes them are made as long as they have to be, before the clock runs: as holes, which
/// no device is asked for, or with data if --fill is given, which is what a measurement of reads needs.
///
/// Each byte that is written is a function of its file and offset. --verify compares what is read with that.
///
/// DIR must be new, empty, or that of an earlier replay. Its files stay, so that they can be looked at and used
/// again. Exit status 1: operations failed, bytes were wrong, or the trace is cut short.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  presagio trace replay run.ptrace /scratch/r             as fast as it can
  presagio trace replay run.ptrace /scratch/r --timing original
  presagio trace replay run.ptrace /scratch/r --speed 10  ten times as fast
  presagio trace replay run.darshan /scratch/r --fill --verify
  presagio trace replay run.darshan /scratch/r --layer mpiio --json")]
pub struct Args {
    /// The trace, a file
    trace: PathBuf,
    /// The directory; it is made if it is not there
    dir: PathBuf,
    #[command(flatten)]
    from: input::Reading,
    /// When operations are done [default: fast, or original with --speed]
    #[arg(long, value_enum)]
    timing: Option<Pace>,
    /// With the trace's own timing, so many times as fast
    #[arg(long, value_name = "X")]
    speed: Option<f64>,
    /// The layer whose operations are done [default: posix, or else what there is]
    #[arg(long, value_parser = layer_names())]
    layer: Option<Layer>,
    /// Threads at most; those of the trace share them if they are more
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    threads_max: u32,
    /// Write files that are read in full before the clock runs, instead of leaving holes
    #[arg(long)]
    fill: bool,
    /// Compare every byte that is read with what a replay writes
    #[arg(long)]
    verify: bool,
    /// Replay into a directory that has other files, which may be overwritten
    #[arg(long)]
    force: bool,
    /// Print one JSON document instead of a table
    #[arg(long)]
    json: bool,
}

/// When operations are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Pace {
    /// Each as soon as the one before it in its thread is done
    Fast,
    /// When it was done in the trace
    Original,
}

fn layer_names() -> impl TypedValueParser<Value = Layer> {
    PossibleValuesParser::new(Layer::ALL.map(Layer::name))
        .try_map(|name| Layer::from_name(&name).ok_or("no such layer"))
}

/// What was done, and how.
struct Done {
    report: Report,
    timing: Timing,
    verified: bool,
    dir: PathBuf,
    is_whole: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let options = options(args)?;
    if args.trace == Path::new("-") {
        let cause = "it is read twice, so it has to be a file";
        let advice = "convert it to a file first: presagio trace convert - run.ptrace";
        return Err(failure("cannot replay the standard input", cause, advice));
    }
    let (timing, verified) = (options.timing, options.verify);
    let bar = input::bar_for(std::slice::from_ref(&args.trace));
    bar.set_message("preparing files");
    let first_pass = args.from.open(&args.trace, &bar)?;
    let mut replay = claim(&args.dir, args.force)
        .and_then(|()| Replay::new(&args.dir, options))
        .map_err(|cause| cannot_use(&args.dir, &cause))?;
    let events = prepare(&mut replay, first_pass, args)?;
    bar.finish_and_clear();
    let (report, is_whole) = replay_all(&mut replay, events, args)?;
    let done = Done {
        report,
        timing,
        verified,
        dir: args.dir.clone(),
        is_whole,
    };
    let mut out = io::stdout().lock();
    match args.json {
        true => writeln!(out, "{:#}", done.json())?,
        false => done.write(&mut out)?,
    }
    Ok(exit_code(done.is_well()))
}

fn options(args: &Args) -> anyhow::Result<Options> {
    let timing = match (args.timing, args.speed) {
        (Some(Pace::Fast), Some(_)) => {
            let cause = "--timing fast does not wait for anything";
            return Err(failure(
                "cannot keep a --speed",
                cause,
                "use one of the two",
            ));
        }
        (_, Some(speed)) if !(speed.is_finite() && speed > 0.0) => {
            let what = format!("cannot replay {speed} times as fast");
            return Err(failure(what, "that is no pace", "use a --speed above 0"));
        }
        (_, Some(speed)) => Timing::Original { speed },
        (Some(Pace::Original), None) => Timing::Original { speed: 1.0 },
        (Some(Pace::Fast) | None, None) => Timing::AsFast,
    };
    Ok(Options {
        timing,
        threads_max: args.threads_max as usize,
        layer: args.layer,
        fill: args.fill,
        verify: args.verify,
    })
}

/// The file by which a directory of a replay is known.
const MARK: &str = ".presagio-replay";

/// Makes sure that the directory is there and that nobody's files are in it.
fn claim(dir: &Path, force: bool) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let mark = dir.join(MARK);
    let is_empty = fs::read_dir(dir)?.next().is_none();
    if !is_empty && !mark.exists() && !force {
        return Err(io::ErrorKind::DirectoryNotEmpty.into());
    }
    if is_empty {
        fs::write(mark, "presagio trace replay overwrites what is here\n")?;
    }
    Ok(())
}

fn cannot_use(dir: &Path, cause: &io::Error) -> anyhow::Error {
    let what = format!("cannot replay into {}", dir.display());
    match cause.kind() {
        io::ErrorKind::DirectoryNotEmpty => failure(
            what,
            "it has files of others, which could be overwritten",
            "name a new directory, or say --force",
        ),
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            failure(what, "it is no directory", "name one")
        }
        _ => failure(what, cause, "name a directory that you may write to"),
    }
}

/// Makes the files that are read; how many events there are.
fn prepare(replay: &mut Replay, source: input::Watched, args: &Args) -> anyhow::Result<u64> {
    let mut events = 0;
    let counted = source.inspect(|record| events += u64::from(is_event(record)));
    let prepared = replay.prepare(counted);
    prepared.map_err(|error| args.from.explain(error))?;
    Ok(events)
}

fn is_event(record: &Result<Record, TraceError>) -> bool {
    matches!(record, Ok(Record::Event(_)))
}

/// Does it all; whether the trace is whole.
fn replay_all(replay: &mut Replay, events: u64, args: &Args) -> anyhow::Result<(Report, bool)> {
    let bar = progress(events);
    bar.set_message("replaying");
    let hidden = indicatif::ProgressBar::hidden();
    let source = args.from.open(&args.trace, &hidden)?;
    let mut sorted = Sorted::new(source, Spill::default());
    // Sorting is over when the first record is there; only then the clock may run.
    let first = sorted.next();
    let records = first.into_iter().chain(&mut sorted);
    let watched = records.inspect(|record| bar.inc(u64::from(is_event(record))));
    let report = replay.run(watched);
    bar.finish_and_clear();
    let report = report.map_err(|error| args.from.explain(error))?;
    Ok((report, args.from.warn(&args.trace, &sorted)))
}

impl Done {
    fn is_well(&self) -> bool {
        self.is_whole && self.report.errors == 0 && self.report.bytes_wrong == 0
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{}\n", prose(&self.headline()))?;
        let rows = self.rows();
        let rows: Vec<Vec<Cell>> = rows
            .into_iter()
            .map(|(what, value)| vec![Cell::Text(what.to_owned()), Cell::Text(value)])
            .collect();
        for line in table::aligned(&rows) {
            writeln!(out, "{line}")?;
        }
        for failure in &self.report.failures {
            let event = &failure.event;
            let (path, reason) = (failure.path.display(), &failure.reason);
            let (action, len, offset) = (event.action, event.len, event.offset);
            let text = format!("failed: {action} of {len} bytes at {offset} in {path}: {reason}");
            writeln!(out, "\n{}", prose(&text))?;
        }
        Ok(())
    }

    fn headline(&self) -> String {
        let pace = match self.timing {
            Timing::AsFast => "as fast as possible".to_owned(),
            Timing::Original { speed: 1.0 } => "at the trace's own pace".to_owned(),
            Timing::Original { speed } => format!("{speed} times as fast as the trace"),
        };
        let layer = self.report.layer.map_or("no", Layer::name);
        let threads = counted(self.report.threads as u64, "thread");
        let dir = self.dir.display();
        format!("Replayed {layer} operations in {dir}, {pace}, by {threads}.")
    }

    fn rows(&self) -> Vec<(&'static str, String)> {
        let report = &self.report;
        let mut rows = vec![
            ("operations", self.operations()),
            ("read", Size(report.bytes_read).to_string()),
            ("written", Size(report.bytes_written).to_string()),
            ("time", self.time()),
        ];
        if report.skipped > 0 {
            let why = "they failed in the trace, or are of other layers";
            rows.insert(1, ("left out", format!("{}: {why}", report.skipped)));
        }
        if let Some(latency) = quantiles(&report.latency) {
            rows.push(("each took", latency));
        }
        if let Some(slippage) = quantiles(&report.slippage) {
            rows.push(("began late by", slippage));
        }
        if self.verified {
            let [right, holes, wrong] =
                [report.bytes_right, report.bytes_holes, report.bytes_wrong].map(Size);
            let verdict = format!("{right} right, {holes} never written, {wrong} wrong");
            rows.push(("bytes read", verdict));
        }
        rows
    }

    fn operations(&self) -> String {
        let (done, failed) = (self.report.operations, self.report.errors);
        format!("{done}, {failed} of them failed")
    }

    fn time(&self) -> String {
        let (took, then) = (Nanos::from(self.report.elapsed), self.report.original);
        let ratio = then.as_secs_f64() / took.as_secs_f64().max(1e-9);
        format!("{took}, in the trace {then} ({ratio:.1} times as fast)")
    }

    fn json(&self) -> Value {
        let report = &self.report;
        let failures = report.failures.iter().map(|failure| {
            json!({
                "action": failure.event.action.name(),
                "time_ns": failure.event.time.0,
                "offset": failure.event.offset,
                "length": failure.event.len,
                "file": failure.path,
                "reason": failure.reason,
            })
        });
        json!({
            "layer": report.layer.map(Layer::name),
            "speed": match self.timing {
                Timing::AsFast => None,
                Timing::Original { speed } => Some(speed),
            },
            "threads": report.threads,
            "operations": report.operations,
            "failed": report.errors,
            "skipped": report.skipped,
            "bytes_read": report.bytes_read,
            "bytes_written": report.bytes_written,
            "bytes_right": self.verified.then_some(report.bytes_right),
            "bytes_never_written": self.verified.then_some(report.bytes_holes),
            "bytes_wrong": self.verified.then_some(report.bytes_wrong),
            "elapsed_ns": Nanos::from(report.elapsed).0,
            "original_ns": report.original.0,
            "latency_ns": spread_json(&report.latency),
            "slippage_ns": spread_json(&report.slippage),
            "failures": failures.collect::<Vec<_>>(),
            "whole": self.is_whole,
        })
    }
}

/// Median, 99 % and maximum, where there is anything.
fn quantiles(times: &Histogram) -> Option<String> {
    let [half, most] = [0.5, 0.99].map(|q| times.quantile(q).map(Nanos));
    let (half, most, max) = (half?, most?, Nanos(times.max()?));
    Some(format!("median {half}, 99 % {most}, at most {max}"))
}

fn spread_json(times: &Histogram) -> Value {
    json!({
        "mean": times.mean(),
        "median": times.quantile(0.5),
        "p99": times.quantile(0.99),
        "max": times.max(),
    })
}
