//! `presagio sched`: the scheduling policies, for people who want to see them work before they embed them.

pub mod compare;
mod list;

use std::process::ExitCode;

/// The request scheduler: its policies, and how they compare on real storage
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  presagio sched list               what are the ten policies?
  presagio sched compare /scratch   which one suits this storage best?")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    List(list::Args),
    Compare(compare::Args),
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::List(args) => list::run(args),
        Command::Compare(args) => compare::run(args),
    }
}
