//! `presagio train --network`: the network of paper 001, or a tree, from what simulated I/O nodes see.

use super::{Args, on_all_cores, show, write_text};
use crate::bench::{Bar, Report};
use crate::failure::failure;
use crate::progress::progress;
use crate::table::{Cell, Table};
use presagio_sim::campaign::accesses::{AccessRun, confusion, detectors};
use presagio_tune::teach::{Lesson, loss};
use presagio_tune::{Access, Detector};
use std::process::ExitCode;

/// Runs of each way to access files: to learn from, and to be asked about.
const EACH: (u32, u32) = (100, 50);
const EACH_QUICK: (u32, u32) = (24, 12);

/// What the paper has in its own test set, in percent, is 99.8; here scenarios are new.
const RIGHT_LEAST: f64 = 99.0;

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (taught, held_out) = if args.quick { EACH_QUICK } else { EACH };
    let lessons = lessons(taught, false, args)?;
    let (network, tree) = detectors(&lessons, args.seed);
    let chosen = match args.tree {
        true => Detector::Tree(tree.clone()),
        false => Detector::Network(Box::new(network.clone())),
    };
    write_text(args, &chosen.to_text(&about(args)))?;
    if !args.check {
        return Ok(ExitCode::SUCCESS);
    }
    let asked = self::lessons(held_out, true, args)?;
    let mut report = Report {
        tables: Vec::new(),
        notes: vec![format!(
            "{} observations of {} runs to learn from; {} of {} runs with other sizes of requests and files, numbers of \
             processes, nodes and servers, devices and policies. Loss of the network: {:.4} and {:.4}.",
            lessons.len(),
            3 * taught,
            asked.len(),
            3 * held_out,
            loss(&network, &lessons),
            loss(&network, &asked),
        )],
        bars: Vec::new(),
    };
    for (key, name, detector) in [
        ("network", "network", Detector::Network(Box::new(network))),
        ("tree", "tree", Detector::Tree(tree)),
    ] {
        let cells = confusion(&detector, &asked);
        let title = format!("Scenarios not seen before, as the {name} takes them");
        report.tables.push((key, table(&title, &cells)));
        report.bars.push(Bar::at_least(
            format!("{name}, scenarios not seen before"),
            100.0 * right(&cells),
            "%",
            RIGHT_LEAST,
        ));
    }
    show(args, &report)
}

fn lessons(each: u32, held_out: bool, args: &Args) -> anyhow::Result<Vec<Lesson>> {
    let runs = AccessRun::all(each, held_out, args.seed);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let bar = progress(runs.len() as u64);
    bar.set_message(if held_out {
        "scenarios not seen before"
    } else {
        "scenarios to learn from"
    });
    let done = on_all_cores(
        &runs,
        args.jobs.unwrap_or(cores).max(1),
        &bar,
        AccessRun::run,
    );
    bar.finish_and_clear();
    let mut lessons = Vec::new();
    for outcome in done {
        let outcome = outcome.ok_or_else(|| anyhow::anyhow!("a run is missing"))?;
        let advice = "this is a mistake of the campaign: please report it";
        lessons.extend(outcome.map_err(|error| failure("a run failed", error, advice))?);
    }
    Ok(lessons)
}

fn about(args: &Args) -> String {
    let quick = if args.quick { " --quick" } else { "" };
    let tree = if args.tree { " --tree" } else { "" };
    format!(
        "Made by: presagio train --network{tree} --seed {}{quick}\nWho shares files, and how: see docs/tune.md.",
        args.seed
    )
}

fn right(cells: &[[u64; 3]; 3]) -> f64 {
    let all: u64 = cells.iter().flatten().sum();
    let right: u64 = (0..3).map(|at| cells[at][at]).sum();
    right as f64 / all.max(1) as f64
}

fn table(title: &str, cells: &[[u64; 3]; 3]) -> Table {
    let row = |(at, access): (usize, Access)| {
        let mut row = vec![Cell::Text(access.name().to_owned())];
        row.extend(cells[at].iter().map(|count| Cell::Count(*count)));
        let all: u64 = cells[at].iter().sum();
        row.push(Cell::Number(
            100.0 * cells[at][at] as f64 / all.max(1) as f64,
            2,
        ));
        row
    };
    Table {
        title: title.to_owned(),
        columns: vec![
            ("access", "access"),
            ("own_files", "as own files"),
            ("shared_contiguous", "shared contiguous"),
            ("shared_strided", "shared strided"),
            ("recall_percent", "right %"),
        ],
        rows: Access::ALL.into_iter().enumerate().map(row).collect(),
    }
}
