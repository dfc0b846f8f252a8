//! The `presagio` command: the one door through which a person meets Presagio.
//!
//! This file only wires. Each subcommand is a module with an `Args` type, which is its part of the help,
//! and a `run` function, which does the work and returns what the process should exit with:
//!
//! | subcommand | module | what happens there |
//! |---|---|---|
//! | `run` | [`mod@run`] | runs a command, watched and advised |
//! | `advisor` | [`advisor`] | keeps one manager standing for many commands |
//! | `advise` | [`advise`] | writes hints from a recording |
//! | `demo` | [`mod@demo`] | shows what `run` gains on a storage |
//! | `council` | [`council`] | decides for I/O nodes what to do, by what came of it |
//! | `ionode` | [`ionode`] | forwards a directory to clients, with the scheduler in the middle |
//! | `mount` | [`mod@mount`] | mounts what I/O nodes forward |
//! | `bench` | [`mod@bench`] | measures a part of Presagio and holds it against its bars |
//! | `match` | [`matching`] | says which workload each period of a recording is |
//! | `predict` | [`predict`] | says how well a recorded program's I/O can be predicted |
//! | `profile` | [`profile`] | measures a storage device, for schedulers and simulators |
//! | `report` | [`report`] | writes a page of recordings and runs |
//! | `repro` | [`repro`] | repeats what the papers published |
//! | `sched` | [`sched`] | shows the scheduling policies, compares them on real storage |
//! | `sim` | [`sim`] | tries schedulers on a virtual cluster |
//! | `top` | [`top`] | shows in a terminal what a council or an I/O node does now |
//! | `train` | [`train`] | learns which policy suits which application and device |
//! | `trace` | [`trace`] | converts, shows, merges and replays recordings of I/O |
//! | `completions`, `man` | [`generate`] | writes what is generated from the command itself |
//!
//! Results go to stdout, everything else to stderr. Exit status: 0 all is well, 1 it was done, but something
//! does not hold (a bar of `bench --strict`, a trace that is cut short, an operation of a replay), 2 it could
//! not be done. `run` ends as its command ended.

mod advise;
mod advisor;
mod bench;
mod council;
mod dashboard;
mod demo;
mod direct;
mod failure;
mod generate;
mod ionode;
mod learning;
mod matching;
mod model;
mod mount;
mod nodes;
mod predict;
mod profile;
mod progress;
mod report;
mod repro;
mod run;
mod sched;
mod sim;
mod size;
mod svg;
mod table;
mod terminal;
mod top;
mod trace;
mod train;
mod whole;

use clap::{Parser, Subcommand};
use std::io;
use std::process::ExitCode;

/// The bench of memory needs to know what is allocated; counting is off except while it looks.
#[global_allocator]
static ALLOCATOR: bench::alloc::Counting = bench::alloc::Counting;

/// Watch and guide the I/O of programs, schedule that of services, look into recordings
#[derive(Parser)]
#[command(name = "presagio", version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  presagio run -- ./app input       let a program wait less for its I/O
  presagio demo /scratch            what does that gain on this storage?
  presagio sched compare /scratch   which policy suits this storage best?
  presagio ionode --export /scratch --listen unix:/run/node.sock
                                    forward files, scheduling requests
  presagio mount unix:/run/node.sock /mnt
                                    use them
  presagio council --listen tcp:0.0.0.0:5650 --store /var/lib/council
                                    tune I/O nodes by what works
  presagio top                      what do they do now?
  presagio profile /scratch         what is this storage like?
  presagio sched list               what are the ten policies?
  presagio sim 001-fig2a            which would suit a whole cluster?
  presagio repro --list             what of the papers can be repeated?
  presagio trace info run.darshan   what did this program do?
  presagio report run.darshan       a page that shows all of it
  presagio predict run.darshan      can its I/O be predicted?
  presagio match a.ptrace b.ptrace  is it the same workload again?
  presagio bench sched              what does the scheduler cost?
  presagio completions bash         tab completion; also zsh, fish, ...

`presagio help COMMAND` explains a command, with its own examples.";

#[derive(Subcommand)]
enum Command {
    Run(run::Args),
    Advisor(advisor::Args),
    Advise(advise::Args),
    Bench(bench::Args),
    Council(Box<council::Args>),
    Demo(demo::Args),
    Ionode(Box<ionode::Args>),
    Match(matching::Args),
    Mount(mount::Args),
    Predict(predict::Args),
    Profile(profile::Args),
    Report(report::Args),
    Repro(repro::Args),
    Sched(sched::Args),
    Sim(sim::Args),
    Top(top::Args),
    Trace(trace::Args),
    Train(train::Args),
    Completions(generate::CompletionsArgs),
    Man(generate::ManArgs),
    /// What `bench sched` runs under valgrind: fills a scheduler, then submits under the counter.
    #[command(name = "bench-count", hide = true)]
    BenchCount(bench::sched::count::Args),
    /// What `bench run` makes faster: a program that reads files in some way.
    #[command(name = "bench-load", hide = true)]
    BenchLoad(bench::run::load::Args),
    /// What `bench preload` watches: calls through the library and past it.
    #[command(name = "bench-calls", hide = true)]
    BenchCalls(bench::preload::calls::Args),
    /// What `bench ionode` forwards: a program that reads and writes, and the relay beside the node.
    #[command(name = "bench-forwarded", hide = true)]
    BenchForwarded(bench::ionode::forwarded::Args),
    /// What `run --forward-direct` and `mount --direct` go to when no node is left.
    #[command(name = direct::process::NAME, hide = true)]
    DirectNode(direct::process::Args),
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(code) => code,
        // `presagio … | head` closed our stdout: it has what it wanted.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("presagio: {}", failure::one_line(&error));
            ExitCode::from(2)
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Advisor(args) => advisor::run(&args),
        Command::Advise(args) => advise::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Council(args) => council::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Ionode(args) => ionode::run(&args),
        Command::Match(args) => matching::run(&args),
        Command::Mount(args) => mount::run(&args),
        Command::Predict(args) => predict::run(&args),
        Command::Profile(args) => profile::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Repro(args) => repro::run(&args),
        Command::Sched(args) => sched::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Train(args) => train::run(&args),
        Command::Completions(args) => generate::completions(&args),
        Command::Man(args) => generate::man(&args),
        Command::BenchCount(args) => bench::sched::count::run(&args),
        Command::BenchLoad(args) => bench::run::load::run(&args),
        Command::BenchCalls(args) => bench::preload::calls::run(&args),
        Command::BenchForwarded(args) => bench::ionode::forwarded::work(&args),
        Command::DirectNode(args) => direct::process::serve(&args),
    }
}

/// Rust ignores SIGPIPE, so a closed pipe comes back as an error from the write. Output therefore goes
/// through `writeln!` and `?`, never through `println!`, which would panic.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_reader_that_left_is_no_error() {
        let left = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(is_broken_pipe(&left.context("writing the table")));
        assert!(!is_broken_pipe(&anyhow::anyhow!("broken")));
    }
}
