//! What a comparison found: a table that can be read in ten seconds, and a conclusion.

use super::judge::{self, Tried};
use super::{Comparison, Pattern, Policy, Workload};
use crate::size::Size;
use crate::table::{Cell, Table, drawn};
use crate::terminal::{self, counted, prose};
use clap::ValueEnum;
use presagio_sched::PolicyKind;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::time::Duration;

/// A shorter bar would not show a difference.
const BAR_WIDTH_MIN: usize = 8;

pub fn show(comparison: &Comparison, json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        return writeln!(out, "{:#}", document(comparison));
    }
    writeln!(out, "{}\n", prose(&headline(comparison)))?;
    for line in with_bars(comparison, terminal::width()) {
        writeln!(out, "{line}")?;
    }
    if let Some(note) = note(&comparison.results) {
        writeln!(out, "\n{}", prose(note))?;
    }
    if let Some(decided) = &comparison.decided {
        writeln!(out, "\n{}", prose(decided))?;
    }
    writeln!(out, "\n{}", prose(&judge::conclusion(&comparison.results)))
}

fn headline(comparison: &Comparison) -> String {
    let workload = &comparison.workload;
    let (size, request) = (Size(workload.bytes()), Size(workload.request));
    format!(
        "{} one shared file of {size} in {} of {request}, {}.\n\
         {} ({}). {}, every byte verified.",
        asking(workload),
        counted(workload.blocks, "request"),
        pattern_name(workload.pattern),
        served_by(workload.workers),
        comparison.path,
        rounds(comparison.rounds),
    )
}

/// `64 clients read`, `1 client writes`.
fn asking(workload: &Workload) -> String {
    let ending = if workload.clients == 1 { "s" } else { "" };
    let clients = counted(workload.clients, "client");
    format!("{clients} {}{ending}", workload.op)
}

fn served_by(workers: u64) -> String {
    match workers {
        1 => "1 worker serves them, one operation at a time".to_owned(),
        _ => format!("{workers} workers serve them, each one operation at a time"),
    }
}

fn rounds(rounds: u32) -> String {
    match rounds {
        1 => "1 round".to_owned(),
        _ => format!("Median of {rounds} rounds"),
    }
}

fn pattern_name(pattern: Pattern) -> String {
    pattern
        .to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned())
}

/// What the figures of some policies cannot show here, where any of those ran.
fn note(results: &[Tried]) -> Option<&'static str> {
    let idle = [PolicyKind::Sw, PolicyKind::Twins, PolicyKind::Wfq].map(Policy::Given);
    let any = results.iter().any(|tried| idle.contains(&tried.policy));
    any.then_some(
        "With one file, one queue and one application, TWINS, WFQ and SW have nothing to choose from.",
    )
}

/// The table, and behind it a bar for each policy's speed in what is left of `width`.
fn with_bars(comparison: &Comparison, width: usize) -> Vec<String> {
    let least = |least: f64, tried: &Tried| least.min(tried.seconds);
    let fastest = comparison.results.iter().fold(f64::INFINITY, least);
    let mut lines = table(comparison).lines();
    let taken = lines.iter().map(|line| line.chars().count()).max();
    let width = width.saturating_sub(taken.unwrap_or(0) + 2);
    for (line, tried) in lines.iter_mut().skip(1).zip(&comparison.results) {
        let bar = drawn(fastest / tried.seconds, width.max(BAR_WIDTH_MIN));
        line.push_str("  ");
        line.push_str(&bar);
    }
    lines
}

fn table(comparison: &Comparison) -> Table {
    let bytes = comparison.workload.bytes();
    let noop = judge::noop(&comparison.results);
    let row = |tried: &Tried| {
        vec![
            Cell::Text(tried.policy.to_string()),
            Cell::Number(tried.seconds, 3),
            Cell::maybe(tried.spread.map(|spread| spread * 100.0), 0),
            Cell::Number(rate(bytes, tried), 0),
            Cell::Count(tried.operations),
            Cell::Number(per_operation(tried), 1),
            Cell::maybe(noop.map(|noop| tried.gain(noop)), 2),
        ]
    };
    Table {
        title: String::new(),
        columns: vec![
            ("policy", "policy"),
            ("seconds", "seconds"),
            ("spread", "± %"),
            ("mb_per_second", "MB/s"),
            ("operations", "operations"),
            ("requests_per_operation", "requests/op"),
            ("gain", "× NOOP"),
        ],
        rows: comparison.results.iter().map(row).collect(),
    }
}

fn document(comparison: &Comparison) -> Value {
    let workload = &comparison.workload;
    let noop = judge::noop(&comparison.results);
    let policy = |tried: &Tried| {
        let rounds = tried.rounds.iter().map(Duration::as_secs_f64);
        json!({
            "policy": tried.policy.name(),
            "seconds": tried.seconds,
            "seconds_by_round": rounds.collect::<Vec<_>>(),
            "spread": tried.spread,
            "mb_per_second": rate(workload.bytes(), tried),
            "requests": tried.requests,
            "operations": tried.operations,
            "requests_per_operation": per_operation(tried),
            "gain": noop.map(|noop| tried.gain(noop)),
        })
    };
    json!({
        "clients": workload.clients,
        "workers": workload.workers,
        "op": workload.op.to_string(),
        "pattern": pattern_name(workload.pattern),
        "request_bytes": workload.request,
        "file_bytes": workload.bytes(),
        "rounds": comparison.rounds,
        "storage_path": comparison.path,
        // A wrong byte anywhere ends the comparison with an error.
        "verified": true,
        "policies": comparison.results.iter().map(policy).collect::<Vec<_>>(),
        "note": note(&comparison.results),
        "auto": comparison.decided,
        "conclusion": judge::conclusion(&comparison.results),
    })
}

fn rate(bytes: u64, tried: &Tried) -> f64 {
    bytes as f64 / 1e6 / tried.seconds
}

fn per_operation(tried: &Tried) -> f64 {
    tried.requests as f64 / tried.operations.max(1) as f64
}
