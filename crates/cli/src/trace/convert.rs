//! `presagio trace convert`: any trace that can be read, in any format that can be written.

use super::{exit_code, input, output};
use crate::size::Size;
use indicatif::ProgressBar;
use presagio_trace::sorted::{Sorted, Spill};
use presagio_trace::{Anonymous, Record, Source};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Convert a trace to another format, sorted by time
///
/// The format of the output is told by its name (.ptrace, .csv, .parquet, .agios) or by --to. It appears
/// under its name when it is complete: an error leaves no half file behind.
///
/// A recording that was cut short, because its program was killed say, is converted up to its last whole
/// chunk; a warning says so, and the exit status is 1. The same holds for damage that --salvage passed over.
///
/// With --anonymous the trace can be shown to others: parts of paths become words (/home/anna/out_0010.h5 is /a/b/c1.h5,
/// the same everywhere in the trace), and command lines, functions, machines, process ids and the date are left out.
/// Sizes, offsets and times stay.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  presagio trace convert run.darshan run.ptrace
  presagio trace convert run.ptrace run.parquet   for pandas, DuckDB, R
  presagio trace convert run.strace run.agios     for a scheduler
  presagio trace convert run.ptrace - --to csv | head
  presagio trace convert damaged.ptrace rest.ptrace --salvage
  presagio trace convert run.ptrace share.ptrace --anonymous")]
pub struct Args {
    /// The trace to read; - is the standard input
    input: PathBuf,
    /// The trace to write; - is the standard output
    output: PathBuf,
    #[command(flatten)]
    from: input::Reading,
    #[command(flatten)]
    to: output::Writing,
    /// Keep the order of the input, which Darshan's logs have by file and process
    #[arg(long)]
    unsorted: bool,
    /// Leave out the names of files, programs, functions and machines, and command lines
    #[arg(long)]
    anonymous: bool,
}

/// What was converted.
#[derive(Default)]
struct Converted {
    events: u64,
    /// Events that an AGIOS trace has no place for.
    left_out: u64,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let begin = Instant::now();
    let bar = input::bar_for(std::slice::from_ref(&args.input));
    bar.set_message("reading");
    let source = args.from.open(&args.input, &bar)?;
    let mut source: Box<dyn Source + Send> = match args.unsorted {
        true => Box::new(source),
        false => Box::new(Sorted::new(source, Spill::default())),
    };
    if args.anonymous {
        source = Box::new(Anonymous::new(source));
    }
    let mut output = args.to.create(&args.output)?;
    let converted = copy(&mut source, &mut output, args, &bar)?;
    let (to, is_stdout) = (output.format, output.is_stdout());
    let bytes_out = output.finish()?;
    bar.finish_and_clear();
    let from = source.format().map_or("trace", |format| format.name());
    let from = sized(from, input::size_of(&args.input));
    let to = sized(&to.name(), bytes_out);
    say(&converted.summary(&from, &to, begin.elapsed()), is_stdout)?;
    Ok(exit_code(args.from.warn(&args.input, &*source)))
}

fn copy(
    source: &mut dyn Source,
    output: &mut output::Output,
    args: &Args,
    bar: &ProgressBar,
) -> anyhow::Result<Converted> {
    let mut converted = Converted::default();
    let only_transfers = output.format == output::Format::Agios;
    for record in source {
        let record = record.map_err(|error| args.from.explain(error))?;
        if let Record::Event(event) = &record {
            if converted.events == 0 {
                bar.set_message("writing");
            }
            converted.events += 1;
            converted.left_out += u64::from(only_transfers && !event.action.is_transfer());
        }
        output.write(&record)?;
    }
    Ok(converted)
}

impl Converted {
    fn summary(&self, from: &str, to: &str, took: Duration) -> String {
        let kept = match self.left_out {
            0 => String::new(),
            left_out => format!("{} transfers of ", self.events - left_out),
        };
        let (events, seconds) = (self.events, took.as_secs_f64());
        format!("{kept}{events} events in {seconds:.2} s, {from} → {to}")
    }
}

/// `csv (1.5 MiB)`
fn sized(format: &str, bytes: Option<u64>) -> String {
    match bytes {
        Some(bytes) => format!("{format} ({})", Size(bytes)),
        None => format.to_owned(),
    }
}

/// What was done, on stdout unless that has the trace.
fn say(summary: &str, stdout_is_taken: bool) -> io::Result<()> {
    match stdout_is_taken {
        true => writeln!(io::stderr(), "presagio: {summary}"),
        false => writeln!(io::stdout(), "{summary}"),
    }
}
