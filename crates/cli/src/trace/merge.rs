//! `presagio trace merge`: one trace out of several repetitions of the same run.

use super::{exit_code, input, output};
use crate::failure::failure;
use crate::size::Size;
use crate::terminal::prose;
use indicatif::ProgressBar;
use presagio_core::Nanos;
use presagio_trace::merge::{MergeOptions, MergeReport, Merged, Merger};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Merge repetitions of the same run into one typical trace
///
/// The same request arrives at a slightly different moment in each repetition. The k-th time that a repetition
/// does this to this part of this file is taken for the same request as the k-th time in the others; the
/// result has each request once, at the average of its arrival times. A request that only some repetitions have
/// is kept, with the average over those. The report says how many there are, and how far arrival times lay
/// apart: the standard deviation, and its share in the arrival time, which is what the 10 % margin of
/// AGIOS's predictions is about.
///
/// A repetition that was cut short is merged as far as it goes; the exit status is then 1.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  presagio trace merge 1.agios 2.agios 3.agios -o typical.agios
  presagio trace merge run-*.darshan -o typical.ptrace --json")]
pub struct Args {
    /// The repetitions, at least two
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// The trace to write; - is the standard output
    #[arg(long, short, value_name = "OUT")]
    output: PathBuf,
    #[command(flatten)]
    from: input::Reading,
    #[command(flatten)]
    to: output::Writing,
    /// Print the report as one JSON document
    #[arg(long)]
    json: bool,
}

/// What to tell of it.
struct Done {
    report: MergeReport,
    bytes_in: u64,
    bytes_out: Option<u64>,
    took: Duration,
    is_whole: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.traces.len() < 2 {
        let cause = "there is only one trace";
        let advice = "name at least two repetitions of the same run";
        return Err(failure("nothing to merge", cause, advice));
    }
    let begin = Instant::now();
    let bar = input::bar_for(&args.traces);
    let mut output = args.to.create(&args.output)?;
    let is_stdout = output.is_stdout();
    let (merged, is_whole) = read_all(args, &bar)?;
    let report = merged.report();
    bar.set_message("writing");
    for record in merged {
        output.write(&record.map_err(|error| args.from.explain(error))?)?;
    }
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

/// Reads all repetitions; whether all of them are whole.
fn read_all(args: &Args, bar: &ProgressBar) -> anyhow::Result<(Merged, bool)> {
    let mut merger = Merger::new(MergeOptions::default());
    let mut is_whole = true;
    for path in &args.traces {
        bar.set_message(path.display().to_string());
        let mut source = args.from.open(path, bar)?;
        let added = merger.add(&mut source);
        added.map_err(|error| args.from.explain(error))?;
        is_whole &= bar.suspend(|| args.from.warn(path, &source));
    }
    bar.set_message("merging");
    let merged = merger.finish();
    Ok((merged.map_err(|error| args.from.explain(error))?, is_whole))
}

impl Done {
    fn text(&self) -> String {
        let report = &self.report;
        let in_some = report.requests - report.requests_in_all;
        let percent = |part: u64| 100.0 * part as f64 / report.requests.max(1) as f64;
        let size = self
            .bytes_out
            .map_or(String::new(), |b| format!(", {} written", Size(b)));
        let first = format!(
            "{} repetitions with {} events in {:.2} s, {} read{size}.",
            report.repetitions,
            report.events,
            self.took.as_secs_f64(),
            Size(self.bytes_in),
        );
        let second = format!(
            "{} requests: {} in every repetition ({:.1} %), {in_some} in some only ({:.1} %).",
            report.requests,
            report.requests_in_all,
            percent(report.requests_in_all),
            percent(in_some),
        );
        prose(&[first, second, self.deviation()].join("\n"))
    }

    fn deviation(&self) -> String {
        let deviation = &self.report.deviation;
        if self.report.requests_in_all == 0 {
            return "No request is in every repetition: are they of the same run, in the same layer?".to_owned();
        }
        format!(
            "The arrival times of a request deviate by {} on average, which is {:.2} % of its time, and by {} \
             at most.",
            Nanos(deviation.mean_ns as u64),
            100.0 * deviation.mean_share,
            Nanos(deviation.max_ns as u64),
        )
    }

    fn json(&self) -> Value {
        let report = &self.report;
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
            "bytes_read": self.bytes_in,
            "bytes_written": self.bytes_out,
            "seconds": self.took.as_secs_f64(),
            "whole": self.is_whole,
        })
    }
}
