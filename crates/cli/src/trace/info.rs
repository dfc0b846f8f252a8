//! `presagio trace info`: what is in a trace, for a person with ten seconds.
//!
//! The same bytes can be seen at several layers: an MPI-IO write becomes POSIX writes. Each layer is therefore
//! summed up on its own, beside what holds for all.

mod show;

use super::input;
use presagio_core::Layer;
use presagio_trace::info::Summary;
use presagio_trace::{Format, Record, Source};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

/// Say what is in a trace: who did what to which files, in which sizes
///
/// Shows how long the recording is, its processes, files and call stacks, what was done at each layer, how large
/// the requests were, and which files were busiest; and what to know before trusting it: records that were
/// lost, a recording that was cut short, a Darshan that ran out of memory.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  presagio trace info run.darshan
  strace -f -ttt -T -y -o /dev/stdout true | presagio trace info -
  presagio trace info run.ptrace --json | jq '.layers[].actions'")]
pub struct Args {
    /// The trace; - is the standard input
    trace: PathBuf,
    #[command(flatten)]
    from: input::Reading,
    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
}

/// What was found.
struct Found {
    path: PathBuf,
    bytes: Option<u64>,
    format: Option<Format>,
    all: Summary,
    layers: [Summary; Layer::ALL.len()],
    warnings: Vec<String>,
}

impl Found {
    /// The layers that occur.
    fn layers(&self) -> impl Iterator<Item = (Layer, &Summary)> {
        let all = Layer::ALL.into_iter().zip(&self.layers);
        all.filter(|(_, summary)| summary.total().events > 0)
    }
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let bar = input::bar_for(std::slice::from_ref(&args.trace));
    let mut source = args.from.open(&args.trace, &bar)?;
    let mut found = Found {
        path: args.trace.clone(),
        bytes: input::size_of(&args.trace),
        format: source.format(),
        all: Summary::default(),
        layers: Default::default(),
        warnings: Vec::new(),
    };
    for record in &mut source {
        let record = record.map_err(|error| args.from.explain(error))?;
        found.add(&record);
    }
    found.all.end_of(&source);
    found.warnings = source.warnings();
    bar.finish_and_clear();
    show::show(&mut io::stdout().lock(), &found, args.json)?;
    Ok(ExitCode::SUCCESS)
}

impl Found {
    fn add(&mut self, record: &Record) {
        self.all.add(record);
        match record {
            Record::Event(event) => self.layers[event.layer as usize].add(record),
            definition => self.layers.iter_mut().for_each(|l| l.add(definition)),
        }
    }
}
