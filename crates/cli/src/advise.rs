//! `presagio advise`: hints from a recording, as a configuration for `presagio run --config` or for MERCURY.

use crate::failure::failure;
use crate::trace::input::{self, Reading};
use presagio_advise::config::{Recorded, from_recording};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write hints from a recording: what to load ahead, file by file
///
/// Looks at how each file was read and writes MERCURY's JSON: regions that are read densely get WillNeed with blocks
/// that fit, sequential ones are left to the kernel, the rest is Random. The file can be edited by hand, and used with
/// `presagio run --config` or MERCURY_CONFIG.
///
/// You rarely need it: `presagio run` finds out by itself, and adapts when the pattern changes. It is for those who
/// want to see, correct or fix the advice.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  presagio run --observe --trace t.ptrace -- ./app
  presagio advise t.ptrace -o hints.json
  presagio run --config hints.json -- ./app
  presagio advise run.darshan                 from Darshan, to stdout")]
pub struct Args {
    /// The trace; - is the standard input
    trace: PathBuf,
    /// Where the hints go [default: the standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace the output file if it exists
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    from: Reading,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let bar = input::bar_for(std::slice::from_ref(&args.trace));
    let mut source = args.from.open(&args.trace, &bar)?;
    let recorded = from_recording(&mut source).map_err(|error| args.from.explain(error))?;
    bar.finish_and_clear();
    let is_whole = args.from.warn(&args.trace, &source);
    let text = format!("{}\n", recorded.config.to_string().trim_end());
    match &args.output {
        None => io::stdout().write_all(text.as_bytes())?,
        Some(path) => write(path, &text, args.force)?,
    }
    eprintln!("presagio: {}", told(&recorded));
    Ok(crate::trace::exit_code(is_whole))
}

/// What became of the files, in one line.
fn told(recorded: &Recorded) -> String {
    let mut parts = vec![format!(
        "hints for {} of {} files that were read",
        recorded.config.entries().len(),
        recorded.files_read
    )];
    for (count, why) in [
        (recorded.files_small, "too little was read from"),
        (recorded.files_unnamed, "have no full path"),
    ] {
        if count > 0 {
            parts.push(format!("{count} {why}"));
        }
    }
    parts.join(", ")
}

fn write(path: &Path, text: &str, force: bool) -> anyhow::Result<()> {
    let mut options = std::fs::File::options();
    let options = options
        .write(true)
        .create(true)
        .truncate(true)
        .create_new(!force);
    let written = options
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::AlreadyExists => "choose another name, or replace it with --force",
            io::ErrorKind::NotFound => "create the directory first",
            _ => "choose a place that you may write to",
        };
        failure(format!("cannot write {}", path.display()), error, advice)
    })
}
