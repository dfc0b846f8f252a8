//! The case studies of paper 000 (VI-C and VI-D): patterns that match tell what to do.
//!
//! Each period's pattern either matches one that came before, and then what is best for the benchmark that that one came from is
//! chosen, or it is new, and the baseline stays. What each choice gives was measured before, for every benchmark: its
//! makespan. Differences of 5 % or less do not count.

use crate::bench::pattern::accuracy::{self, Study};
use crate::bench::{Bar, Effort, Report};
use crate::failure::failure;
use crate::progress::progress;
use crate::table::{Cell, Table};
use crate::train::on_all_cores;
use anyhow::Context;
use presagio_pattern::{Judge, KnowledgeBase, Settings};
use presagio_sim::{Failed, Level, Run, Simulation, Sweep, preset};
use presagio_tune::Random;
use std::collections::BTreeMap;

/// What counts as a difference.
const ALIKE: f64 = 0.05;

const IMPROVED_LEAST: f64 = 92.0;
const WORSENED_MOST: f64 = 1.0;

/// What can be chosen at a level, the baseline first; and the parameter that it is.
struct Case {
    name: &'static str,
    parameter: &'static str,
    options: &'static [&'static str],
    /// Set in every run.
    fixed: &'static [(&'static str, &'static str)],
    level: Level,
}

const CASES: [Case; 2] = [
    Case {
        name: "scheduling algorithm (VI-C)",
        parameter: "servers.scheduler.policy",
        options: &["none", "TO", "TO-agg", "SJF", "SW", "MLF", "aIOLi"],
        fixed: &[],
        level: Level::Servers,
    },
    Case {
        name: "window (VI-D)",
        parameter: "ionodes.scheduler.window",
        options: &["1ms", "0.125ms", "0.25ms", "0.5ms", "2ms", "4ms", "8ms"],
        // The cluster is that of paper 001, on whose figures crowding is calibrated: without it windows have nothing to gain.
        fixed: &[
            ("ionodes.scheduler.policy", "TWINS"),
            ("servers.crowding", "10us"),
        ],
        level: Level::IoNodes,
    },
];

/// Periods, by what a choice made of them.
#[derive(Clone, Copy, Default)]
struct Count {
    periods: u64,
    /// That the oracle improves, and of these.
    possible: u64,
    improved: u64,
    worsened: u64,
}

impl Count {
    fn add(&mut self, makespans: &[f64], chosen: usize) {
        let baseline = makespans[0];
        let best = makespans.iter().copied().fold(f64::INFINITY, f64::min);
        let is_better = |makespan: f64| makespan * (1.0 + ALIKE) < baseline;
        self.periods += 1;
        self.possible += u64::from(is_better(best));
        self.improved += u64::from(is_better(best) && is_better(makespans[chosen]));
        self.worsened += u64::from(makespans[chosen] > baseline * (1.0 + ALIKE));
    }

    fn improved_percent(&self) -> f64 {
        100.0 * self.improved as f64 / self.possible.max(1) as f64
    }

    fn worsened_percent(&self) -> f64 {
        100.0 * self.worsened as f64 / self.periods.max(1) as f64
    }
}

pub fn measure(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for case in &CASES {
        let studies = accuracy::studies(effort).into_iter();
        let studies: Vec<Study> = studies.filter(|study| study.level == case.level).collect();
        let (mut ours, mut statics) =
            (Count::default(), vec![Count::default(); case.options.len()]);
        for study in &studies {
            judge(case, study, effort, &mut ours, &mut statics)?;
        }
        let (best, fixed) = statics
            .iter()
            .enumerate()
            .max_by_key(|(_, count)| (count.improved, std::cmp::Reverse(count.worsened)))
            .unwrap_or((0, &ours));
        rows.push(row(case.name, "matched patterns", &ours));
        rows.push(row(
            case.name,
            &format!("always {}", case.options[best]),
            fixed,
        ));
        report.notes.push(format!(
            "{}: an oracle improves {} of {} periods.",
            case.name, ours.possible, ours.periods
        ));
        report.bars.extend(bars(case, &ours, studies.is_empty()));
    }
    report.tables.push(("offline", table(rows)));
    report.notes.push(
        "Offline: periods of simulated benchmarks of paper 000; improved is of those that an oracle improves by more than \
         5 % over the baseline (no scheduler; windows of 1 ms), worsened of all. The paper has 88.6 % and 1.2 % for algorithms, 91.6 % \
         for windows."
            .to_owned(),
    );
    Ok(())
}

/// Gives all runs of a study to fresh knowledge bases, in several orders.
fn judge(
    case: &Case,
    study: &Study,
    effort: Effort,
    ours: &mut Count,
    statics: &mut [Count],
) -> anyhow::Result<()> {
    let settings = Settings::ours();
    let makespans = makespans(case, study)?;
    let runs = accuracy::simulate(study, &settings)?;
    let greatest = accuracy::distance_max(&settings, &runs);
    let mut random = Random::new(1);
    for _ in 0..accuracy::orders(effort) {
        let mut order: Vec<usize> = (0..runs.len()).collect();
        random.shuffle(&mut order);
        for place in 0..study.places {
            let mut base = KnowledgeBase::new(settings.clone()).with_distance_max(greatest);
            let mut judge: Judge<String> = Judge::new();
            for run in order.iter().map(|at| &runs[*at]) {
                let took = makespans
                    .get(&run.labels[0])
                    .context("a benchmark is missing")?;
                for pattern in &run.places[place] {
                    let decision = base.decide(pattern.clone());
                    judge.judge(&decision, &run.labels[0]);
                    let matched = decision.score.and(judge.label(decision.id));
                    let matched = matched.and_then(|label| makespans.get(label));
                    ours.add(took, matched.map_or(0, |of| best(of)));
                    for (option, count) in statics.iter_mut().enumerate() {
                        count.add(took, option);
                    }
                }
            }
        }
    }
    Ok(())
}

/// The baseline where nothing is clearly better.
fn best(makespans: &[f64]) -> usize {
    let better = |best: usize, at: usize| {
        if makespans[at] < makespans[best] {
            at
        } else {
            best
        }
    };
    let best = (1..makespans.len()).fold(0, better);
    if makespans[best] * (1.0 + ALIKE) < makespans[0] {
        best
    } else {
        0
    }
}

/// The makespan of each benchmark with each option, in seconds.
fn makespans(case: &Case, study: &Study) -> anyhow::Result<BTreeMap<String, Vec<f64>>> {
    let mut sweep = Sweep::read(preset(study.preset).context("a preset is missing")?.toml)?;
    for (name, value) in case.fixed {
        sweep.set(name, (*value).into())?;
    }
    let options = case.options.iter().map(|option| (*option).into());
    sweep.vary(case.parameter, options.collect())?;
    let runs: Vec<Run> = sweep.runs()?;
    let runs: Vec<_> = runs
        .into_iter()
        .filter(|run| run.scenario.ionodes.count == study.ionodes)
        .map(|run| study.adapted(run.scenario))
        .collect();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let bar = progress(runs.len() as u64);
    bar.set_message(format!("{} for {}", case.name, study.name));
    let done = on_all_cores(&runs, cores, &bar, |scenario| {
        Simulation::new(scenario).run()
    });
    bar.finish_and_clear();
    let mut all: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (scenario, outcome) in runs.iter().zip(done) {
        let outcome: Result<_, Failed> = outcome.context("a run is missing")?;
        let advice = "this is a mistake of the bench: please report it";
        let outcome = outcome.map_err(|error| failure("a run failed", error, advice))?;
        let label = accuracy::labels(scenario)[0].clone();
        all.entry(label)
            .or_default()
            .push(outcome.makespan.as_secs_f64());
    }
    Ok(all)
}

fn row(case: &str, chosen: &str, count: &Count) -> Vec<Cell> {
    vec![
        Cell::Text(case.to_owned()),
        Cell::Text(chosen.to_owned()),
        Cell::Count(count.periods),
        Cell::Count(count.possible),
        Cell::Number(count.improved_percent(), 1),
        Cell::Number(count.worsened_percent(), 2),
    ]
}

fn table(rows: Vec<Vec<Cell>>) -> Table {
    Table {
        title: "Choosing by what came before, beside an oracle".into(),
        columns: vec![
            ("case", "case"),
            ("chosen", "chosen by"),
            ("periods", "periods"),
            ("possible", "oracle improves"),
            ("improved_percent", "improved %"),
            ("worsened_percent", "worsened %"),
        ],
        rows,
    }
}

fn bars(case: &Case, count: &Count, is_missing: bool) -> [Bar; 2] {
    let bars = [
        Bar::at_least(
            format!("{}: improved, of what the oracle improves", case.name),
            count.improved_percent(),
            "%",
            IMPROVED_LEAST,
        ),
        Bar::at_most(
            format!("{}: worsened", case.name),
            count.worsened_percent(),
            "%",
            WORSENED_MOST,
        ),
    ];
    bars.map(|bar| match is_missing {
        true => bar.not_measured("this was not tried"),
        false => bar,
    })
}
