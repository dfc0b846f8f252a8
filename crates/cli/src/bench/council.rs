//! `presagio bench council`: how soon nodes are answered, what that costs in memory, what adapting costs the data path,
//! whether a node that adapts ends where the best static choices are, and what becomes of it all when the council is killed.

mod crowd;
mod known;
pub mod live;
mod outage;

use super::{Bar, Effort, Report, Scope};
use crate::table::{Cell, Table};
use crowd::Crowd;
use std::time::Duration;

/// Until the last of nodes that all announce at one moment, as after a power cut, is answered: a twentieth of a period of a second. A node
/// that is told something else leaves another tenth out of the account, and a period counts from half of it on: such nodes learn
/// as much as those that take turns. The slowest burst is judged: it is the promise, and the bench's own nodes have the same core.
const BURST_MS: f64 = 50.0;

const CROWD: &str = "384 nodes on loopback, council and nodes on one core";
const MATCHED: &str = "patterns: the same, contexts being matched patterns";
const KNOWN: &str = "memory: a council that knows 10 000 contexts";
const SOAK: &str = "soak: 384 nodes for ten minutes";
const OUTAGE: &str = "killed: a council that is killed and restarted under load";
const OVERHEAD: &str = "overhead: adapting with one arm beside the same policy";
const PHASES: &str = "phases: a workload that changes, on an emulated disk";

/// Nodes that announce to a council: what that is called, and what they are like.
struct Announcing {
    title: &'static str,
    /// Of its table.
    key: &'static str,
    /// What names of its bars begin with.
    of: &'static str,
    patterns: bool,
}

const CROWDED: Announcing = Announcing {
    title: CROWD,
    key: "crowd",
    of: "",
    patterns: false,
};

const MATCHING: Announcing = Announcing {
    title: MATCHED,
    key: "patterns",
    of: "patterns: ",
    patterns: true,
};

const SOAKING: Announcing = Announcing {
    title: SOAK,
    key: "soak",
    of: "soak: ",
    patterns: false,
};

/// How long, by effort.
struct Plan {
    nodes: usize,
    /// How long nodes announce.
    announce: Duration,
    rounds: usize,
    contexts: u32,
    kills: usize,
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
                contexts: 10_000,
                kills: 12,
                live: live::Plan {
                    period: seconds(0.5),
                    phase: seconds(10.0),
                    learning: 3,
                    judged: 5,
                },
            },
            Effort::Quick => Plan {
                nodes: 384,
                announce: seconds(10.0),
                rounds: 3,
                contexts: 10_000,
                kills: 4,
                live: live::Plan {
                    period: seconds(0.5),
                    phase: seconds(4.0),
                    learning: 2,
                    judged: 1,
                },
            },
            Effort::Tiny => Plan {
                nodes: 8,
                announce: seconds(0.4),
                rounds: 1,
                contexts: 50,
                kills: 1,
                live: live::Plan {
                    period: seconds(0.05),
                    phase: seconds(0.2),
                    learning: 1,
                    judged: 1,
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
        answers(
            &plan,
            &dir.path().join("crowd"),
            plan.announce,
            &CROWDED,
            &mut report,
        )?;
    }
    if scope.has(MATCHED) {
        answers(
            &plan,
            &dir.path().join("matched"),
            plan.announce / 2,
            &MATCHING,
            &mut report,
        )?;
    }
    if scope.has(KNOWN) {
        memory(&plan, &dir.path().join("known"), &mut report)?;
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
            &SOAKING,
            &mut report,
        )?;
    }
    if scope.has(OVERHEAD) {
        overhead(&plan, &dir.path().join("overhead"), &mut report)?;
    }
    if scope.has(PHASES) {
        phases(&plan, &dir.path().join("phases"), &mut report)?;
    }
    if scope.has(OUTAGE) {
        outage(&plan, &dir.path().join("outage"), &mut report)?;
    }
    Ok(report)
}

fn answers(
    plan: &Plan,
    dir: &std::path::Path,
    long: Duration,
    announcing: &Announcing,
    report: &mut Report,
) -> anyhow::Result<()> {
    let Announcing {
        title,
        key,
        of,
        patterns,
    } = *announcing;
    let found = Crowd::start(dir, plan.nodes, patterns)?.run(long)?;
    let ms = |ns: f64| ns / 1e6;
    let quantile = |q: f64| found.answers.quantile(q).unwrap_or(0) as f64;
    let name = format!("{of}from announcement to decision received, p99");
    report
        .bars
        .push(Bar::at_most(name, ms(quantile(0.99)), "ms", 5.0));
    let name = format!("{of}a decision, p99");
    report
        .bars
        .push(Bar::at_most(name, ms(found.decision_ns_p99), "ms", 1.0));
    let name = format!("{of}memory of the council at the end / after a quarter of the time");
    report.bars.push(Bar::at_most(
        name,
        found.memory_end / found.memory_early,
        "",
        1.05,
    ));
    let name = format!(
        "{of}all {} announce at one moment, until the last is answered",
        plan.nodes
    );
    report
        .bars
        .push(Bar::at_most(name, ms(found.burst_ns_max()), "ms", BURST_MS));
    let row = |what: &str, value: f64, digits| {
        vec![Cell::Text(what.to_owned()), Cell::Number(value, digits)]
    };
    report.tables.push((
        key,
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
                    "all at one moment: the last answer, median, ms",
                    ms(found.burst_ns()),
                    2,
                ),
                row(
                    "all at one moment: the last answer, slowest, ms",
                    ms(found.burst_ns_max()),
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

fn memory(plan: &Plan, dir: &std::path::Path, report: &mut Report) -> anyhow::Result<()> {
    let found = known::measure(dir, plan.contexts)?;
    let mb = |kib: f64| kib * 1024.0 / 1e6;
    let name = format!("memory of a council with {} contexts", found.contexts);
    report
        .bars
        .push(Bar::at_most(name, mb(found.full_kib), "MB", 64.0));
    let row = |what: &str, value: f64| vec![Cell::Text(what.to_owned()), Cell::Number(value, 1)];
    report.tables.push((
        "memory",
        Table {
            title: KNOWN.to_owned(),
            columns: vec![("what", "what"), ("value", "value")],
            rows: vec![
                row("contexts", found.contexts as f64),
                row("a council that knows nothing, MB", mb(found.empty_kib)),
                row("one that knows them all, MB", mb(found.full_kib)),
                row("of that, what it says itself, MB", found.said / 1e6),
            ],
        },
    ));
    Ok(())
}

fn outage(plan: &Plan, dir: &std::path::Path, report: &mut Report) -> anyhow::Result<()> {
    let found = outage::measure(dir, plan.kills)?;
    let name = "throughput while the council is killed and restarted / while it is left alone";
    report
        .bars
        .push(Bar::at_least(name, found.share(), "", 0.99));
    let name = "blocks that were not what was written";
    report
        .bars
        .push(Bar::at_most(name, found.wrong as f64, "", 0.0));
    let name = "announcements that were not learned from, or twice";
    let lost = found.announced.abs_diff(found.learned);
    report.bars.push(Bar::at_most(name, lost as f64, "", 0.0));
    let row = |what: &str, value: f64| vec![Cell::Text(what.to_owned()), Cell::Number(value, 2)];
    report.tables.push((
        "killed",
        Table {
            title: OUTAGE.to_owned(),
            columns: vec![("what", "what"), ("value", "value")],
            rows: vec![
                row("times it was killed", found.kills as f64),
                row("left alone, MB/s", found.calm()),
                row("killed and restarted, MB/s", found.killed()),
                row("blocks written and read back", found.blocks as f64),
                row("announcements", found.announced as f64),
                row("learned from", found.learned as f64),
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
    report.notes.push(
"Phases: nodes take turns within each round, each for as long. The best static choice is found while others learn, and \
         compared with after that, by medians."
            .to_owned(),
    );
    let mut rows = Vec::new();
    for phase in &found {
        let best = phase.best();
        for adaptive in &phase.adaptive {
            let name = format!(
                "{}: adaptive by {} / the best static choice ({})",
                phase.name, adaptive.node, best.node
            );
            let share = adaptive.speed() / best.speed();
            report.bars.push(Bar::at_least(name, share, "", 0.97));
        }
        let text = |speeds: &[f64]| {
            let all = speeds.iter().map(|speed| format!("{speed:.1}"));
            Cell::Text(all.collect::<Vec<_>>().join(" "))
        };
        let fixed = phase.fixed.iter().map(|it| (it.node.to_owned(), it));
        let adaptive = phase.adaptive.iter();
        let adaptive = adaptive.map(|it| (format!("adaptive by {}", it.node), it));
        for (choice, rounds) in fixed.chain(adaptive) {
            rows.push(vec![
                Cell::Text(phase.name.to_owned()),
                Cell::Text(choice),
                text(&rounds.learning),
                text(&rounds.judged),
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
                ("learning_mb_per_s", "MB/s while they learn"),
                ("judged_mb_per_s", "MB/s after that"),
            ],
            rows,
        },
    ));
    Ok(())
}
