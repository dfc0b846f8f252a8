//! `presagio predict`: how predictable is this program's I/O?
//!
//! What §4 of the Omnisc'IO paper measures, on any trace. Each process, at each layer at which it was recorded, is
//! a *stream* with a model of its own ([`stream`]); `presagio_predict::score` judges it. [`show`] makes tables of
//! that, [`plot`] curves, which [`crate::svg`] draws.

mod plot;
mod show;
mod stream;

use crate::failure::failure;
use crate::progress::progress;
use crate::trace::input;
use presagio_core::{Layer, Nanos};
use presagio_trace::Record;
use presagio_trace::sorted::{Sorted, Spill};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use stream::{Selected, Selection, Streams};

/// Say how well the I/O of a recorded program can be predicted
///
/// Reads a trace in the order of time. Before each operation the model of its process says what will come, and
/// what came is held against that: which operation, file, offset and size, when, how far ahead all of it is known,
/// how large the model gets and what it costs. These are the measures of the Omnisc'IO paper (Dorier et al.,
/// RR-8725, section 4); docs/prediction.md explains them.
///
/// The same bytes can be seen at several layers: an MPI-IO write becomes POSIX writes. Each layer is judged on its
/// own.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  presagio predict run.darshan
  presagio predict run.darshan --layer mpiio --process 0
  presagio predict run.darshan --sequitur --plot plots
  strace -f -ttt -T -y -o /dev/stdout true | presagio predict -
  presagio predict run.ptrace --json | jq '.tables.where[0].hit_percent'")]
pub struct Args {
    /// The trace; - is the standard input
    trace: PathBuf,
    #[command(flatten)]
    from: input::Reading,
    /// Only what was recorded at this layer
    #[arg(long, value_parser = layer)]
    layer: Option<Layer>,
    /// Only this process: its rank, or else its process id, or else its number in the trace
    #[arg(long, value_name = "N")]
    process: Option<u32>,
    /// A model for each thread, instead of one for each process
    #[arg(long)]
    threads_apart: bool,
    /// How many operations ahead confidences are judged
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    ahead: u32,
    /// Milliseconds within which operations are counted
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    window: u64,
    /// Keep a plain Sequitur grammar and one of StarSequitur as published too, to compare their sizes
    #[arg(long)]
    sequitur: bool,
    /// Print one JSON document with the same tables, of all processes
    #[arg(long)]
    json: bool,
    /// Draw the curves of the busiest process of each layer into this directory, as SVG
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
}

fn layer(name: &str) -> Result<Layer, String> {
    let known = Layer::ALL.map(Layer::name).join(", ");
    Layer::from_name(name).ok_or_else(|| format!("name one of: {known}"))
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let bar = input::bar_for(std::slice::from_ref(&args.trace));
    let selection = Selection {
        layer: args.layer,
        process: args.process,
        threads_apart: args.threads_apart,
    };
    let source = args.from.open(&args.trace, &bar)?;
    let selected = Selected::new(source, selection);
    let counts = selected.counts();
    let mut sorted = Sorted::new(selected, Spill::default());
    let mut streams = Streams::new(args.options(), selection, counts.clone());
    let mut judging = None;
    for record in &mut sorted {
        let record = record.map_err(|error| args.from.explain(error))?;
        let judging = judging.get_or_insert_with(|| {
            bar.finish_and_clear();
            progress(counts.borrow().values().sum())
        });
        judging.inc(u64::from(matches!(record, Record::Event(_))));
        streams.take(&record);
    }
    bar.finish_and_clear();
    judging.iter().for_each(|bar| bar.finish_and_clear());
    let is_whole = args.from.warn(&args.trace, &sorted);
    finish(args, streams)?;
    Ok(crate::trace::exit_code(is_whole))
}

fn finish(args: &Args, streams: Streams) -> anyhow::Result<()> {
    let judged = streams.finish();
    if judged.streams.is_empty() {
        let what = format!("nothing to predict in {}", args.trace.display());
        let cause = "it has no operations of this kind";
        let advice = "`presagio trace info` says what it has";
        return Err(failure(what, cause, advice));
    }
    if judged.left_out > 0 {
        eprintln!(
            "presagio: {} operations of more than {} processes are left out; choose one with --process",
            judged.left_out,
            stream::STREAMS_MAX
        );
    }
    if let Some(dir) = &args.plot {
        plot::draw(dir, &judged.streams)?;
    }
    show::show(&mut io::stdout().lock(), &judged.streams, args.json)?;
    Ok(())
}

impl Args {
    fn options(&self) -> presagio_predict::score::Options {
        presagio_predict::score::Options {
            ahead: self.ahead as usize,
            window: Nanos::from_millis(self.window),
            compare: self.sequitur,
            ..Default::default()
        }
    }
}
