//! What came of the runs: a table for a person, a document for a program.

use super::Done;
use crate::table::{Cell, Table};
use crate::terminal::prose;
use presagio_core::Histogram;
use presagio_sim::{AppReport, Decided, LevelReport, Place, PolicyChoice, Verdict};
use presagio_tune::Class;
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// Title, the table of runs, and for a single run what each application saw.
pub fn write(out: &mut impl Write, done: &[Done]) -> io::Result<()> {
    let Some(first) = done.first() else {
        return Ok(());
    };
    let scenario = &first.run.scenario;
    for line in [&scenario.title, &scenario.about] {
        if !line.is_empty() {
            writeln!(out, "{}", prose(line))?;
        }
    }
    writeln!(out)?;
    runs(done).write(out)?;
    if done.len() == 1 {
        writeln!(out)?;
        apps(first).write(out)?;
        if !first.report.decisions.is_empty() {
            writeln!(out)?;
            decisions(first).write(out)?;
        }
    }
    Ok(())
}

/// One row a run. Columns that say nothing are left out.
fn runs(done: &[Done]) -> Table {
    let mut columns: Vec<(&'static str, &'static str)> = names(done)
        .into_iter()
        // A few names, once in the life of the process.
        .map(|name| {
            let name: &'static str = name.leak();
            (name, short(name))
        })
        .collect();
    let compared = done.len() > 1;
    let forwarded = done.iter().any(|d| d.report.ionodes.is_some());
    columns.extend([("makespan_s", "makespan s"), ("mb_per_s", "MB/s")]);
    if compared {
        columns.push(("gain_percent", "gain %"));
    }
    columns.extend([("latency_ms", "latency ms"), ("p99_ms", "99 % ms")]);
    if forwarded {
        columns.push(("ionode_aggregation", "batch/node"));
    }
    columns.extend([
        ("server_aggregation", "batch/server"),
        ("device_operations", "device ops"),
        ("device_busy_percent", "busy %"),
    ]);
    let row = |at: usize| {
        let Done { run, report } = &done[at];
        let values = run
            .varied
            .iter()
            .map(|(_, value)| Cell::Text(value.clone()));
        let mut row: Vec<Cell> = values.collect();
        row.push(Cell::Number(report.makespan.as_secs_f64(), 3));
        row.push(Cell::Number(report.bytes_per_s() / 1e6, 1));
        if compared {
            row.push(Cell::maybe(gain(done, at), 1));
        }
        let latency = latency(&report.apps);
        row.push(Cell::maybe(latency.mean().map(|ns| ns / 1e6), 2));
        row.push(Cell::maybe(
            latency.quantile(0.99).map(|ns| ns as f64 / 1e6),
            2,
        ));
        if forwarded {
            row.push(aggregation(report.ionodes.as_ref()));
        }
        row.push(aggregation(Some(&report.servers)));
        row.push(Cell::Count(report.devices.operations.iter().sum()));
        row.push(Cell::Number(busy_percent(&done[at]), 1));
        row
    };
    Table {
        title: String::new(),
        rows: (0..done.len()).map(row).collect(),
        columns,
    }
}

/// What `policy = "auto"` or `"adaptive"` decided, where something changed.
fn decisions(done: &Done) -> Table {
    let row = |decided: &Decided| {
        vec![
            Cell::Text(place(decided.place)),
            Cell::Span(decided.at),
            Cell::Text(in_words(&decided.verdict)),
        ]
    };
    Table {
        title: "Decisions".to_owned(),
        columns: vec![
            ("place", "where"),
            ("at", "when"),
            ("decision", "what, and why"),
        ],
        rows: done.report.decisions.iter().map(row).collect(),
    }
}

fn place(place: Place) -> String {
    match place {
        Place::IoNode(number) => format!("I/O node {number}"),
        Place::Server(number) => format!("server {number}"),
    }
}

fn in_words(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Trees(decision) => decision.to_string(),
        learned => format!("{}; {}", learned.reason(), learned.about()),
    }
}

fn decision_json(decided: &Decided) -> Value {
    let (place, at_ns) = (place(decided.place), decided.at.0);
    match &decided.verdict {
        Verdict::Trees(decision) => json!({
            "place": place, "at_ns": at_ns, "policy": decision.name(),
            "class": decision.situation.class.map(Class::name), "tree": decision.tree,
            "reason": decision.reason,
        }),
        learned => json!({
            "place": place, "at_ns": at_ns, "policy": learned.name(),
            "context": learned.about(), "reason": learned.reason(),
        }),
    }
}

fn aggregation(level: Option<&LevelReport>) -> Cell {
    Cell::maybe(level.map(LevelReport::aggregation), 2)
}

pub fn busy_percent(done: &Done) -> f64 {
    let report = &done.report;
    100.0 * report.devices.busy.as_secs_f64() / report.makespan.as_secs_f64().max(1e-9)
}

fn names(done: &[Done]) -> Vec<String> {
    let varied = done.first().map(|d| d.run.varied.as_slice());
    let names = varied.unwrap_or_default().iter();
    names.map(|(name, _)| name.clone()).collect()
}

/// The last two words of a dotted name are enough to know it by.
fn short(name: &'static str) -> &'static str {
    let dots: Vec<usize> = name.match_indices('.').map(|(at, _)| at).collect();
    match dots.len() {
        0 | 1 => name,
        many => &name[dots[many - 2] + 1..],
    }
}

/// Which of the varied names runs are compared by: their case, or else a policy, or else the last.
fn compared_by(done: &[Done]) -> Option<usize> {
    let names = names(done);
    let case = names.iter().position(|name| name == "case");
    let policy = || names.iter().position(|name| name.ends_with("policy"));
    case.or_else(policy).or(names.len().checked_sub(1))
}

/// How much shorter a run is than the first that differs from it in nothing else, in percent.
pub fn gain(done: &[Done], at: usize) -> Option<f64> {
    let by = compared_by(done)?;
    let others = |of: &Done| {
        let mut varied = of.run.varied.clone();
        varied.remove(by);
        varied
    };
    let wanted = others(&done[at]);
    let base = done.iter().position(|d| others(d) == wanted)?;
    let (base_s, own_s) = (seconds(&done[base]), seconds(&done[at]));
    (base != at && base_s > 0.0).then(|| 100.0 * (1.0 - own_s / base_s))
}

pub fn seconds(done: &Done) -> f64 {
    done.report.makespan.as_secs_f64()
}

fn latency(apps: &[AppReport]) -> Histogram {
    let mut all = Histogram::new();
    apps.iter().for_each(|app| all.merge(&app.latency));
    all
}

fn apps(done: &Done) -> Table {
    let row = |app: &AppReport| {
        vec![
            Cell::Text(app.name.clone()),
            Cell::Number(app.begin.as_secs_f64(), 3),
            Cell::Number(app.time().as_secs_f64(), 3),
            Cell::Count(app.operations),
            Cell::Bytes(app.bytes),
            Cell::maybe(app.latency.mean().map(|ns| ns / 1e6), 2),
            Cell::maybe(app.latency.quantile(0.99).map(|ns| ns as f64 / 1e6), 2),
        ]
    };
    Table {
        title: String::new(),
        columns: vec![
            ("app", "application"),
            ("begin_s", "begins s"),
            ("time_s", "takes s"),
            ("operations", "requests"),
            ("bytes", "bytes"),
            ("latency_ms", "latency ms"),
            ("p99_ms", "99 % ms"),
        ],
        rows: done.report.apps.iter().map(row).collect(),
    }
}

/// Everything that is known of the runs.
pub fn json(done: &[Done]) -> Value {
    let first = done.first().map(|d| &d.run.scenario);
    let runs: Vec<Value> = (0..done.len()).map(|at| run_json(done, at)).collect();
    json!({
        "title": first.map(|s| s.title.as_str()),
        "about": first.map(|s| s.about.as_str()),
        "runs": runs,
    })
}

fn run_json(done: &[Done], at: usize) -> Value {
    let Done { run, report } = &done[at];
    let varied: Map<String, Value> = run
        .varied
        .iter()
        .map(|(name, value)| (name.clone(), json!(value)))
        .collect();
    let policy = |choice: PolicyChoice| choice.name();
    json!({
        "varied": varied,
        "seed": run.scenario.seed,
        "ionode_policy": policy(run.scenario.ionodes.scheduler.policy),
        "server_policy": policy(run.scenario.servers.scheduler.policy),
        "device": run.scenario.servers.device.name(),
        "makespan_ns": report.makespan.0,
        "bytes": report.bytes(),
        "requests": report.requests(),
        "gain_percent": gain(done, at),
        "apps": report.apps.iter().map(app_json).collect::<Vec<_>>(),
        "ionodes": report.ionodes.as_ref().map(level_json),
        "servers": level_json(&report.servers),
        "devices": {
            "reads": report.devices.operations[0], "writes": report.devices.operations[1],
            "read_bytes": report.devices.bytes[0], "written_bytes": report.devices.bytes[1],
            "busy_ns": report.devices.busy.0,
        },
        "decisions": report.decisions.iter().map(decision_json).collect::<Vec<_>>(),
        "events": report.events,
    })
}

fn app_json(app: &AppReport) -> Value {
    json!({
        "name": app.name, "begin_ns": app.begin.0, "end_ns": app.end.0, "first_done_ns": app.first_done.0,
        "requests": app.operations, "bytes": app.bytes,
        "latency_ns": {
            "mean": app.latency.mean(), "p50": app.latency.quantile(0.5), "p99": app.latency.quantile(0.99),
            "max": app.latency.max(),
        },
    })
}

fn level_json(level: &LevelReport) -> Value {
    json!({
        "requests": level.requests, "batches": level.batches, "aggregation": level.aggregation(),
        "cpu_ns": level.cpu.0,
    })
}
