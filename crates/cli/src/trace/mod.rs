//! `presagio trace`: recordings of I/O, whoever made them: convert, look, merge, do again.
//!
//! `presagio_trace` does the work; here it meets files and people. [`input`] opens traces and shows how far they
//! are read, [`output`] writes new ones that are either complete or not there; the rest is one file a subcommand.

mod convert;
mod info;
pub mod input;
mod merge;
pub mod output;
mod replay;

use std::process::ExitCode;

/// Recordings of I/O: convert them, look into them, merge repetitions, replay them
///
/// Reads native traces (.ptrace), Darshan logs with DXT and what darshan-dxt-parser prints of them, the output
/// of `strace -f -ttt -T -y`, AGIOS traces and CSV. The content of a file tells its format, not its name.
/// Traces of any length are read in constant memory; what has to be sorted goes to files in TMPDIR.
///
/// Exit status: 0 all is well; 1 it was done, but a trace is cut short or damaged, or operations of a replay
/// failed; 2 it could not be done.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  strace -f -ttt -T -y -o run.strace ./program    record a program
  presagio trace info run.strace                  what did it do?
  presagio trace convert run.strace run.ptrace    smaller, faster to read
  presagio trace convert run.ptrace run.parquet   for data frames
  presagio trace merge 1.ptrace 2.ptrace 3.ptrace -o typical.ptrace
  presagio trace replay run.ptrace /scratch/r     the same I/O again, there")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Convert(convert::Args),
    Info(info::Args),
    Merge(merge::Args),
    Replay(replay::Args),
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Convert(args) => convert::run(args),
        Command::Info(args) => info::run(args),
        Command::Merge(args) => merge::run(args),
        Command::Replay(args) => replay::run(args),
    }
}

/// The exit status of what was done: 1 where something is missing or did not work.
pub fn exit_code(is_whole: bool) -> ExitCode {
    match is_whole {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
