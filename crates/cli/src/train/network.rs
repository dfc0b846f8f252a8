//! `presagio train --network`: the network of paper 001, or a tree, from what simulated I/O nodes see.
//!
//! There are three sets of scenarios: to learn from, to choose by (of networks that began with other weights the best), and,
//! with `--check`, to be asked about. Nothing is chosen by the last.

use super::{Args, jobs, on_all_cores, show, write_text};
use crate::bench::{Bar, Report};
use crate::failure::failure;
use crate::progress::progress;
use crate::table::{Cell, Table};
use presagio_sim::campaign::accesses::{self, AccessRun, Purpose, confusion};
use presagio_tune::teach::Lesson;
use presagio_tune::{Access, Detector, Figure};
use std::collections::BTreeMap;
use std::process::ExitCode;

/// Runs of each way to access files: to learn from, to choose by, and to be asked about.
pub const EACH: [u32; 3] = [100, 30, 50];
pub const EACH_QUICK: [u32; 3] = [24, 8, 12];

/// What the paper has in its own test set, in percent, is 99.8; here scenarios are new.
pub const RIGHT_LEAST: f64 = 99.0;

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let each = if args.quick { EACH_QUICK } else { EACH };
    let seen = |at: usize, purpose| Seen::of(each[at], purpose, args.seed, args.jobs);
    let learned = seen(0, Purpose::Learn)?;
    let chosen_by = seen(1, Purpose::Choose)?;
    let figures = match args.published {
        true => Figure::PUBLISHED,
        false => Figure::OURS,
    };
    let detector = |figures, is_tree| detector(&learned, &chosen_by, figures, is_tree, args.seed);
    let made = detector(figures, args.tree);
    write_text(args, &made.to_text(&about(args)))?;
    if !args.check {
        return Ok(ExitCode::SUCCESS);
    }
    let asked = seen(2, Purpose::Ask)?;
    let judged = KINDS.map(|(name, figures, is_tree)| (name, detector(figures, is_tree)));
    show(args, &report(&[learned, chosen_by, asked], &judged))
}

/// What can tell accesses apart: its name, by which figures, and whether it is a tree.
const KINDS: [(&str, [Figure; 5], bool); 4] = [
    ("network", Figure::OURS, false),
    ("tree", Figure::OURS, true),
    ("network, as published", Figure::PUBLISHED, false),
    ("tree, as published", Figure::PUBLISHED, true),
];

/// How much of what runs saw each of them takes for what it is, in percent: of those learned from, chosen by, and new.
pub fn rates(each: [u32; 3], seed: u64) -> anyhow::Result<Vec<(&'static str, [f64; 3])>> {
    let seen = |at: usize, purpose| Seen::of(each[at], purpose, seed, None);
    let learned = seen(0, Purpose::Learn)?;
    let chosen_by = seen(1, Purpose::Choose)?;
    let sets = [&learned, &chosen_by, &seen(2, Purpose::Ask)?];
    let rate = |(name, figures, is_tree)| {
        let detector = detector(&learned, &chosen_by, figures, is_tree, seed);
        (name, sets.map(|seen| right(&detector, &seen.lessons())))
    };
    Ok(KINDS.into_iter().map(rate).collect())
}

/// A network or a tree that has learned from some runs; of several networks the best by other runs.
fn detector(
    learned: &Seen,
    chosen_by: &Seen,
    figures: [Figure; 5],
    is_tree: bool,
    seed: u64,
) -> Detector {
    let (lessons, choosing) = (learned.lessons(), chosen_by.lessons());
    match is_tree {
        true => accesses::tree(&lessons, figures, seed),
        false => accesses::network(&lessons, &choosing, figures, seed),
    }
}

/// The network by our features and by the paper's, what they learned from, and runs that are new to them.
pub struct Taught {
    pub learned: Seen,
    pub asked: Seen,
    pub ours: Detector,
    pub published: Detector,
}

impl Taught {
    pub fn new(seed: u64) -> anyhow::Result<Taught> {
        let seen = |at: usize, purpose| Seen::of(EACH[at], purpose, seed, None);
        let (learned, chosen_by) = (seen(0, Purpose::Learn)?, seen(1, Purpose::Choose)?);
        let network = |figures| detector(&learned, &chosen_by, figures, false, seed);
        Ok(Taught {
            ours: network(Figure::OURS),
            published: network(Figure::PUBLISHED),
            asked: seen(2, Purpose::Ask)?,
            learned,
        })
    }
}

/// Runs, and what was seen of each.
pub struct Seen(pub Vec<(AccessRun, Vec<Lesson>)>);

impl Seen {
    fn of(each: u32, purpose: Purpose, seed: u64, given: Option<usize>) -> anyhow::Result<Seen> {
        let runs = AccessRun::all(each, purpose, seed);
        let bar = progress(runs.len() as u64);
        bar.set_message(match purpose {
            Purpose::Learn => "scenarios to learn from",
            Purpose::Choose => "scenarios to choose by",
            Purpose::Ask => "scenarios not seen before",
        });
        let done = on_all_cores(&runs, jobs(given), &bar, AccessRun::run);
        bar.finish_and_clear();
        let lessons = done.into_iter().map(|outcome| {
            let outcome = outcome.ok_or_else(|| anyhow::anyhow!("a run is missing"))?;
            let advice = "this is a mistake of the campaign: please report it";
            outcome.map_err(|error| failure("a run failed", error, advice))
        });
        let lessons: Vec<Vec<Lesson>> = lessons.collect::<anyhow::Result<_>>()?;
        Ok(Seen(runs.into_iter().zip(lessons).collect()))
    }

    pub fn lessons(&self) -> Vec<Lesson> {
        let all = self.0.iter().flat_map(|(_, lessons)| lessons);
        all.copied().collect()
    }
}

fn about(args: &Args) -> String {
    let mut command = "presagio train --network".to_owned();
    let options = [
        (args.tree, " --tree"),
        (args.published, " --published"),
        (args.quick, " --quick"),
    ];
    for (is_set, option) in options {
        if is_set {
            command += option;
        }
    }
    let seed = args.seed;
    format!("Made by: {command} --seed {seed}\nWho shares files, and how: see docs/tune.md.")
}

fn report(sets: &[Seen; 3], judged: &[(&'static str, Detector)]) -> Report {
    let rates: Vec<[f64; 3]> = judged
        .iter()
        .map(|(_, detector)| sets.each_ref().map(|seen| right(detector, &seen.lessons())))
        .collect();
    let asked = &sets[2];
    let bar = |at: usize| {
        let name = format!("{}, scenarios not seen before", judged[at].0);
        Bar::at_least(name, rates[at][2], "%", RIGHT_LEAST)
    };
    let [learned, chosen_by, new] = sets
        .each_ref()
        .map(|seen| (seen.lessons().len(), seen.0.len()));
    Report {
        tables: vec![
            ("rates", rates_table(judged, &rates)),
            ("network", confusion_table(&judged[0].1, asked)),
            ("traits", traits_table(judged, asked)),
        ],
        notes: vec![format!(
            "{} observations of {} runs to learn from, {} of {} to choose the best of several networks by, {} of {} to be asked \
             about. The three share no size of requests or files, number of processes, or device. As published is with the \
             distance between requests of a file, instead of those of one process.",
            learned.0, learned.1, chosen_by.0, chosen_by.1, new.0, new.1,
        )],
        bars: vec![bar(0), bar(1)],
    }
}

/// The share that is taken for what it is, in percent.
pub fn right(detector: &Detector, lessons: &[Lesson]) -> f64 {
    let right = lessons
        .iter()
        .filter(|it| detector.access(&it.features) == it.access);
    100.0 * right.count() as f64 / lessons.len().max(1) as f64
}

fn rates_table(judged: &[(&'static str, Detector)], rates: &[[f64; 3]]) -> Table {
    let row = |((name, _), rates): (&(&'static str, Detector), &[f64; 3])| {
        let mut row = vec![Cell::Text((*name).to_owned())];
        row.extend(rates.iter().map(|rate| Cell::Number(*rate, 2)));
        row
    };
    Table {
        title: "Observations that are taken for what they are, in percent".to_owned(),
        columns: vec![
            ("detector", "detector"),
            ("learned_percent", "learned from"),
            ("chosen_by_percent", "chosen by"),
            ("asked_percent", "not seen before"),
        ],
        rows: judged.iter().zip(rates).map(row).collect(),
    }
}

fn confusion_table(network: &Detector, asked: &Seen) -> Table {
    let cells = confusion(network, &asked.lessons());
    let row = |(at, access): (usize, Access)| {
        let mut row = vec![Cell::Text(access.name().to_owned())];
        row.extend(cells[at].iter().map(|count| Cell::Count(*count)));
        let all: u64 = cells[at].iter().sum();
        let right = 100.0 * cells[at][at] as f64 / all.max(1) as f64;
        row.push(Cell::Number(right, 2));
        row
    };
    Table {
        title: "Scenarios not seen before, as the network takes them".to_owned(),
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

/// Where the networks err: by everything that scenarios differ in.
fn traits_table(judged: &[(&'static str, Detector)], asked: &Seen) -> Table {
    let mut groups: BTreeMap<(&str, String), Vec<Lesson>> = BTreeMap::new();
    for (run, lessons) in &asked.0 {
        for group in run.traits() {
            groups.entry(group).or_default().extend(lessons);
        }
    }
    let row = |((what, value), lessons): (&(&str, String), &Vec<Lesson>)| {
        vec![
            Cell::Text((*what).to_owned()),
            Cell::Text(value.clone()),
            Cell::Count(lessons.len() as u64),
            Cell::Number(right(&judged[0].1, lessons), 2),
            Cell::Number(right(&judged[2].1, lessons), 2),
        ]
    };
    Table {
        title: "The same by what scenarios are like: right, in percent".to_owned(),
        columns: vec![
            ("what", "what"),
            ("value", "value"),
            ("observations", "observations"),
            ("network_percent", "network"),
            ("published_percent", "as published"),
        ],
        rows: groups.iter().map(row).collect(),
    }
}
