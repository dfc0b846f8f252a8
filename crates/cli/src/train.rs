//! `presagio train`: learns from a simulated campaign which policy suits which application and device.
//!
//! `presagio-sim` has the campaign and makes the trees; here it runs on all cores, and what came of it is shown.

mod judged;
pub mod network;

pub use judged::Judged;

use crate::bench::Report;
use crate::failure::failure;
use crate::progress::progress;
use crate::table::{self, Cell, Table};
use crate::whole::Place;
use presagio_sim::campaign::{Evaluation, Learned, Outcome, PLATFORMS, Part, Plan, Task};
use presagio_sim::{Cpu, Failed};
use presagio_tune::evaluate::{Confusion, Verdict};
use presagio_tune::{Class, Detector, Trees};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Learn which policy suits which application and device, from a simulated campaign
///
/// Simulates every situation of the thesis that AGIOS comes from: four clusters, one or four applications, shared
/// files or own ones, contiguous or not, small and large requests, reads and writes, under six policies.
/// From what the servers saw and how long it took it makes decision trees: one that tells access patterns
/// apart, and some that select a policy. The text that comes out is what --policy auto uses
/// (--trees FILE). The same seed gives the same text.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  presagio train -o trees.txt               a minute or two on two cores
  presagio train --check                    how good are they?
  presagio train --quick --check            less exactly, in seconds
  presagio train --check --json | jq .bars
  presagio train --network --check          the network of adaptive
  presagio train --network -o network.txt   for --policy adaptive --network
  presagio ionode --export /scratch --listen unix:/run/node.sock \\
      --policy auto --trees trees.txt --profile disk.json")]
pub struct Args {
    /// Where all randomness comes from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where to write the trees [default: stdout, unless --check]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Hold the trees against situations that they have not seen; exits 1 if a bar does not hold
    #[arg(long)]
    check: bool,
    /// Fewer and smaller runs: good enough to notice a disaster
    #[arg(long)]
    quick: bool,
    /// What deciding costs: that of our scheduler, or of AGIOS
    #[arg(long, value_enum, default_value_t = Cost::Presagio)]
    cpu: Cost,
    /// Runs at the same time [default: one for each core]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Learn something else: to tell the three ways to access files apart that --policy adaptive learns by (a neural network)
    #[arg(long, conflicts_with = "cpu")]
    network: bool,
    /// The same as a decision tree
    #[arg(long, requires = "network")]
    tree: bool,
    /// By the five features of the paper alone: distances within a file, whoever made the requests
    #[arg(long, requires = "network")]
    published: bool,
    /// Print the evaluation as one JSON document, and nothing else
    #[arg(long, requires = "check")]
    json: bool,
}

/// Whose scheduler it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Cost {
    Presagio,
    Agios,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.output {
        // What cannot be written should be known before minutes have passed.
        Place::open(path, true).map_err(|cause| cannot_write(path, cause))?;
    }
    if args.network {
        return network::run(args);
    }
    let mut plan = match args.quick {
        true => Plan::quick(args.seed),
        false => Plan::full(args.seed),
    };
    plan.cpu = match args.cpu {
        Cost::Presagio => Cpu::Presagio,
        Cost::Agios => Cpu::Agios,
    };
    let taught = part(&plan, false, args.jobs)?;
    let learned = Learned::from(&taught, plan.seed);
    let text = learned.trees()?.to_text(&about(args));
    write_text(args, &text)?;
    if !args.check {
        return Ok(ExitCode::SUCCESS);
    }
    let judged = Judged::of(&plan, &taught, &learned, args.jobs)?;
    show(args, &report(&judged))
}

/// Writes what was made to where it belongs.
fn write_text(args: &Args, text: &str) -> anyhow::Result<()> {
    match &args.output {
        Some(path) => {
            let written = Place::open(path, true).and_then(|place| {
                place.file().write_all(text.as_bytes())?;
                place.keep()
            });
            written.map_err(|cause| cannot_write(path, cause))?;
        }
        None if !args.check => write!(io::stdout(), "{text}")?,
        None => {}
    }
    Ok(())
}

fn cannot_write(path: &Path, cause: io::Error) -> anyhow::Error {
    let what = format!("cannot write {}", path.display());
    failure(what, cause, "choose a place that you may write to")
}

/// Prints an evaluation; its bars are the exit status.
fn show(args: &Args, report: &Report) -> anyhow::Result<ExitCode> {
    let effort = if args.quick { "quick" } else { "full" };
    match args.json {
        true => writeln!(io::stdout(), "{:#}", report.json("train", effort))?,
        false => report.write(&mut io::stdout().lock(), table::colours())?,
    }
    let holds = report.bars.iter().all(|bar| bar.holds() == Some(true));
    Ok(if holds {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// What a reader of the text has to know.
fn about(args: &Args) -> String {
    let mut command = format!("presagio train --seed {}", args.seed);
    if args.quick {
        command += " --quick";
    }
    if args.cpu == Cost::Agios {
        command += " --cpu agios";
    }
    format!("Made by: {command}\nWhich policy suits what arrives, and why: see docs/tune.md.")
}

/// The trees of a file, or those that come with Presagio.
pub fn trees(path: Option<&PathBuf>) -> anyhow::Result<Trees> {
    let Some(path) = path else {
        return Ok(Trees::shipped());
    };
    let what = || format!("cannot use the trees of {}", path.display());
    let advice = "write them with presagio train -o FILE";
    let text = std::fs::read_to_string(path).map_err(|cause| failure(what(), cause, advice))?;
    Trees::from_text(&text).map_err(|cause| failure(what(), cause, advice))
}

/// What tells accesses apart: the network or tree of a file, or the network that comes with Presagio.
pub fn detector(path: Option<&PathBuf>) -> anyhow::Result<Detector> {
    let Some(path) = path else {
        return Ok(Detector::shipped());
    };
    let what = || format!("cannot use the network of {}", path.display());
    let advice = "write one with presagio train --network -o FILE";
    let text = std::fs::read_to_string(path).map_err(|cause| failure(what(), cause, advice))?;
    Detector::from_text(&text).map_err(|cause| failure(what(), cause, advice))
}

/// Runs a part of a campaign. Each run is one thread's from begin to end, so the figures do not depend on how many there are.
pub fn part(plan: &Plan, held_out: bool, jobs: Option<usize>) -> anyhow::Result<Part> {
    Ok(Part::new(plan, held_out, &outcomes(plan, held_out, jobs)?))
}

/// What came of each task of a part, in their order.
pub fn outcomes(plan: &Plan, held_out: bool, given: Option<usize>) -> anyhow::Result<Vec<Outcome>> {
    let tasks = plan.tasks(held_out);
    let bar = progress(tasks.len() as u64);
    bar.set_message(if held_out {
        "situations not seen before"
    } else {
        "situations to learn from"
    });
    let outcomes = on_all_cores(&tasks, jobs(given), &bar, Task::run);
    bar.finish_and_clear();
    let outcomes = tasks.iter().zip(outcomes).map(|(task, outcome)| {
        let outcome: Option<Result<Outcome, Failed>> = outcome;
        let outcome = outcome.ok_or_else(|| anyhow::anyhow!("a run is missing"))?;
        outcome.map_err(|error| failure("a run failed", task.situation.name(), error))
    });
    outcomes.collect()
}

/// As many as were asked for, or one for each core.
fn jobs(given: Option<usize>) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    given.unwrap_or_else(cores).max(1)
}

/// Does all tasks on so many threads; what came of each, in their order.
pub fn on_all_cores<T: Sync, R: Send>(
    tasks: &[T],
    jobs: usize,
    bar: &indicatif::ProgressBar,
    run: impl Fn(&T) -> R + Sync,
) -> Vec<Option<R>> {
    let next = AtomicUsize::new(0);
    let done: Vec<Mutex<Option<R>>> = tasks.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        while let Some((at, task)) = take(&next, tasks) {
            let outcome = run(task);
            *done[at].lock().unwrap_or_else(|e| e.into_inner()) = Some(outcome);
            bar.inc(1);
        }
    };
    std::thread::scope(|scope| (0..jobs).for_each(|_| drop(scope.spawn(work))));
    let done = done.into_iter();
    done.map(|one| one.into_inner().unwrap_or_else(|e| e.into_inner()))
        .collect()
}

fn take<'a, T>(next: &AtomicUsize, tasks: &'a [T]) -> Option<(usize, &'a T)> {
    let at = next.fetch_add(1, Relaxed);
    tasks.get(at).map(|task| (at, task))
}

/// The evaluation as tables, and its bars.
pub fn report(judged: &Judged) -> Report {
    let mut report = tables(judged);
    judged::add_groups(&mut report, judged);
    report.bars = judged::bars(judged);
    report
}

/// The same of several seeds: the tables of one of them, a row for each, and the worst of each bar.
pub fn report_of_seeds(first: &Judged, all: &[Judged]) -> Report {
    let mut report = report(first);
    report.notes.push(format!(
        "Tables are of seed {}; bars are the worst of all seeds.",
        first.seed
    ));
    report.tables.push(("seeds", judged::seeds_table(all)));
    let bars: Vec<_> = all.iter().map(judged::bars).collect();
    let among = match all {
        [_] => String::new(),
        _ => format!(", worst of {} seeds", all.len()),
    };
    report.bars = judged::worst(&bars, &among);
    report
}

fn tables(judged: &Judged) -> Report {
    let evaluation = &judged.evaluation;
    let auto = ("auto, as it runs".to_owned(), judged.auto.clone());
    let held_out: Vec<(String, Verdict)> =
        evaluation.held_out.iter().cloned().chain([auto]).collect();
    Report {
        tables: vec![
            (
                "detection_validated",
                confusion_table("Detection, 10-fold cross-validation (Tables 4.5 to 4.7)", &evaluation.detection_validated),
            ),
            (
                "detection_held_out",
                confusion_table("Detection, runs that nothing was learned from", &evaluation.detection_held_out),
            ),
            ("majority", majority_table(evaluation)),
            ("trees", sizes_table(evaluation)),
            (
                "taught",
                verdict_table("Situations that were learned from (Table 6.3, Fig. 6.1)", &evaluation.taught),
            ),
            (
                "held_out",
                verdict_table("Situations with other numbers of processes and other seeds (Tables 6.4, 6.7, 6.8)", &held_out),
            ),
        ],
        notes: vec![
            "The oracle knows all makespans and takes the shortest. Faster and slower count situations that differ by more \
             than 10 % from no scheduler; a median beside each. auto decides in each period by what arrived until then, and begins \
             with what suits the device."
                .to_owned(),
        ],
        bars: Vec::new(),
    }
}

fn confusion_table(title: &str, confusion: &Confusion) -> Table {
    let row = |(at, class): (usize, Class)| {
        let mut row = vec![Cell::Text(class.name().to_owned())];
        row.extend(confusion.cells[at].iter().map(|count| Cell::Count(*count)));
        row.push(Cell::Number(100.0 * confusion.precision(at), 1));
        row.push(Cell::Number(100.0 * confusion.recall(at), 1));
        row
    };
    Table {
        title: title.to_owned(),
        columns: vec![
            ("class", "class"),
            ("contiguous_small", "as cont. small"),
            ("contiguous_large", "cont. large"),
            ("noncontiguous_small", "non. small"),
            ("noncontiguous_large", "non. large"),
            ("precision_percent", "precision %"),
            ("recall_percent", "recall %"),
        ],
        rows: Class::ALL.into_iter().enumerate().map(row).collect(),
    }
}

fn majority_table(evaluation: &Evaluation) -> Table {
    let row = |(platform, [read, write]): (&presagio_sim::campaign::Platform, &[f64; 2])| {
        vec![
            Cell::Text(platform.device.to_owned()),
            Cell::Number(100.0 * write, 1),
            Cell::Number(100.0 * read, 1),
        ]
    };
    Table {
        title: "Periods whose majority of files is taken for what it is (Table 6.6)".to_owned(),
        columns: vec![
            ("platform", "platform"),
            ("write_percent", "write %"),
            ("read_percent", "read %"),
        ],
        rows: PLATFORMS
            .iter()
            .zip(&evaluation.majority)
            .map(row)
            .collect(),
    }
}

fn sizes_table(evaluation: &Evaluation) -> Table {
    let row = |(name, nodes, leaves, wrong): &(String, usize, usize, f64)| {
        vec![
            Cell::Text(name.clone()),
            Cell::Count(*nodes as u64),
            Cell::Count(*leaves as u64),
            Cell::Number(100.0 * wrong, 1),
        ]
    };
    Table {
        title: "Trees, and what 10-fold cross-validation gets wrong (Tables 6.1, 6.2)".to_owned(),
        columns: vec![
            ("tree", "tree"),
            ("nodes", "nodes"),
            ("leaves", "leaves"),
            ("wrong_percent", "wrong %"),
        ],
        rows: evaluation.sizes.iter().map(row).collect(),
    }
}

fn verdict_table(title: &str, all: &[(String, Verdict)]) -> Table {
    let row = |(name, verdict): &(String, Verdict)| {
        vec![
            Cell::Text(name.clone()),
            Cell::Number(100.0 * verdict.right, 1),
            Cell::Number(100.0 * verdict.over_oracle, 1),
            Cell::Number(100.0 * verdict.over_oracle_most, 1),
            Cell::Count(verdict.increased.0),
            Cell::Number(100.0 * verdict.increased.1, 1),
            Cell::Count(verdict.decreased.0),
            Cell::Number(100.0 * verdict.decreased.1, 1),
        ]
    };
    Table {
        title: title.to_owned(),
        columns: vec![
            ("solution", "solution"),
            ("right_percent", "as the oracle %"),
            ("over_oracle_percent", "longer %"),
            ("over_oracle_most_percent", "at most %"),
            ("faster", "faster"),
            ("faster_median_percent", "by %"),
            ("slower", "slower"),
            ("slower_median_percent", "by %"),
        ],
        rows: all.iter().map(row).collect(),
    }
}
