//! `presagio bench council`: how soon nodes are answered, what that costs in memory, what adapting costs the data path, and
//! whether a node that adapts ends where the best static choices are.

mod crowd;
pub mod live;

use super::{Bar, Effort, Report, Scope};
use crate::table::{Cell, Table};
use crowd::Crowd;
use std::time::Duration;

const CROWD: &str = "384 nodes on loopback, council and nodes on one core";
const SOAK: &str = "soak: 384 nodes for ten minutes";
const OVERHEAD: &str = "overhead: adapting with one arm beside the same policy";
const PHASES: &str = "phases: a workload that changes, on an emulated disk";

/// How long, by effort.
struct Plan {
    nodes: usize,
    /// How long nodes announce.
    announce: Duration,
    rounds: usize,
    live: live::Plan,
}

impl Plan {
    fn new(effort: Effort) -> Plan {
        let seconds = Duration::from_secs_f64;
        match effort {
            Effort::Full => Plan {
                nodes: 384,
                announce: seconds(40.0),
                rounds: 11,
                live: live::Plan {
                    period: seconds(0.5),
                    fixed: seconds(4.0),
                    phase: seconds(12.0),
                    repetitions: 4,
                },
            },
            Effort::Quick => Plan {
                nodes: 384,
                announce: seconds(10.0),
                rounds: 3,
                live: live::Plan {
                    period: seconds(0.5),
                    fixed: seconds(1.0),
                    phase: seconds(4.0),
                    repetitions: 3,
                },
            },
            Effort::Tiny => Plan {
                nodes: 8,
                announce: seconds(0.4),
                rounds: 1,
                live: live::Plan {
                    period: seconds(0.05),
                    fixed: seconds(0.1),
                    phase: seconds(0.2),
                    repetitions: 1,
                },
            },
        }
    }
}

pub fn run(scope: &Scope) -> anyhow::Result<Report> {
    let plan = Plan::new(scope.effort);
    let dir = tempfile::tempdir()?;
    let mut report = Report {
        tables: Vec::new(),
        notes: Vec::new(),
        bars: Vec::new(),
    };
    if scope.has(CROWD) {
        answers(&plan, dir.path(), plan.announce, CROWD, &mut report)?;
    }
    if scope.asked(SOAK) {
        let ten_minutes = match scope.effort {
            Effort::Full => Duration::from_secs(600),
            _ => plan.announce,
        };
        answers(
            &plan,
            &dir.path().join("soak"),
            ten_minutes,
            SOAK,
            &mut report,
        )?;
    }
    if scope.has(OVERHEAD) {
        overhead(&plan, &dir.path().join("overhead"), &mut report)?;
    }
    if scope.has(PHASES) {
        phases(&plan, &dir.path().join("phases"), &mut report)?;
    }
    Ok(report)
}

fn answers(
    plan: &Plan,
    dir: &std::path::Path,
    long: Duration,
    title: &str,
    report: &mut Report,
) -> anyhow::Result<()> {
    let found = Crowd::start(dir, plan.nodes)?.run(long)?;
    let ms = |ns: f64| ns / 1e6;
    let quantile = |q: f64| found.answers.quantile(q).unwrap_or(0) as f64;
    let name = "from announcement to decision received, p99";
    report
        .bars
        .push(Bar::at_most(name, ms(quantile(0.99)), "ms", 5.0));
    let name = "a decision, p99";
    report
        .bars
        .push(Bar::at_most(name, ms(found.decision_ns_p99), "ms", 1.0));
    let name = "memory of the council at the end / after a quarter of the time";
    report.bars.push(Bar::at_most(
        name,
        found.memory_end / found.memory_early,
        "",
        1.05,
    ));
    let row = |what: &str, value: f64, digits| {
        vec![Cell::Text(what.to_owned()), Cell::Number(value, digits)]
    };
    report.tables.push((
        "crowd",
        Table {
            title: format!("{title}, {} s", long.as_secs_f64()),
            columns: vec![("what", "what"), ("value", "value")],
            rows: vec![
                row("decisions", found.answers.count() as f64, 0),
                row("answered after, p50, ms", ms(quantile(0.5)), 3),
                row("answered after, p99, ms", ms(quantile(0.99)), 3),
                row(
                    "answered after, max, ms",
                    ms(found.answers.max().unwrap_or(0) as f64),
                    3,
                ),
                row("a decision, p50, ms", ms(found.decision_ns_p50), 4),
                row("a decision, p99, ms", ms(found.decision_ns_p99), 4),
                row("a decision, max, ms", ms(found.decision_ns_max), 4),
                row(
                    "all 384 at one moment: the last answer, ms",
                    ms(found.burst_ns),
                    2,
                ),
                row(
                    "the council's processor time, share of one core",
                    found.cpu_share,
                    3,
                ),
                row(
                    "memory after a quarter, MiB",
                    found.memory_early / 1024.0,
                    1,
                ),
                row("memory at the end, MiB", found.memory_end / 1024.0, 1),
                row(
                    "told the best arm in the last quarter, share",
                    found.best_share,
                    3,
                ),
            ],
        },
    ));
    Ok(())
}

fn overhead(plan: &Plan, dir: &std::path::Path, report: &mut Report) -> anyhow::Result<()> {
    let rounds = live::overhead(dir, plan.rounds)?;
    let median = |of: fn(&live::Pair) -> f64| {
        let mut all: Vec<f64> = rounds.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let loss = 1.0 - median(|pair| pair.adaptive.mb_per_s / pair.fixed.mb_per_s);
    let name = "throughput lost by adapting, emulated disk";
    report.bars.push(Bar::at_most(name, 100.0 * loss, "%", 1.0));
    let row = |name: &str, of: fn(&live::Pair) -> f64, cpu: fn(&live::Pair) -> f64| {
        vec![
            Cell::Text(name.to_owned()),
            Cell::Number(median(of), 2),
            Cell::Number(median(cpu), 2),
        ]
    };
    report.tables.push((
        "overhead",
        Table {
            title: OVERHEAD.to_owned(),
            columns: vec![
                ("node", "node"),
                ("mb_per_s", "MB/s"),
                ("cpu_us", "CPU us per request"),
            ],
            rows: vec![
                row("TO-agg", |it| it.fixed.mb_per_s, |it| it.fixed.cpu_us),
                row(
                    "adaptive, under a council",
                    |it| it.adaptive.mb_per_s,
                    |it| it.adaptive.cpu_us,
                ),
            ],
        },
    ));
    Ok(())
}

fn phases(plan: &Plan, dir: &std::path::Path, report: &mut Report) -> anyhow::Result<()> {
    let found = live::phases(dir, &plan.live)?;
    let mut rows = Vec::new();
    for phase in &found {
        let (best, speed) = phase.best();
        let share = phase.adapted() / speed;
        let name = format!("{}: adaptive / the best static choice ({best})", phase.name);
        report.bars.push(Bar::at_least(name, share, "", 0.97));
        for (arm, speed) in &phase.fixed {
            rows.push(vec![
                Cell::Text(phase.name.to_owned()),
                Cell::Text(arm.clone()),
                Cell::Number(*speed, 2),
            ]);
        }
        for (at, speed) in phase.adaptive.iter().enumerate() {
            rows.push(vec![
                Cell::Text(phase.name.to_owned()),
                Cell::Text(format!("adaptive, repetition {}", at + 1)),
                Cell::Number(*speed, 2),
            ]);
        }
    }
    report.tables.push((
        "phases",
        Table {
            title: PHASES.to_owned(),
            columns: vec![
                ("phase", "phase"),
                ("choice", "choice"),
                ("mb_per_s", "MB/s"),
            ],
            rows,
        },
    ));
    Ok(())
}
