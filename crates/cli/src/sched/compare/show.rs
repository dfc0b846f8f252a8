//! What a comparison found: a table that can be read in ten seconds, and one sentence.

use super::{Comparison, Pattern};
use crate::size::Size;
use crate::table::{Cell, Table};
use clap::ValueEnum;
use presagio_sched::PolicyKind;
use serde_json::{Value, json};
use std::io::{self, Write};

use super::serve::Served;

/// A drawn bar's width where a policy is the fastest.
const BAR_WIDTH: f64 = 24.0;

pub fn show(comparison: &Comparison, json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        return writeln!(out, "{:#}", document(comparison));
    }
    writeln!(out, "{}\n", headline(comparison))?;
    table(comparison).write(&mut out)?;
    writeln!(out, "\n{}", conclusion(&comparison.results))
}

fn headline(comparison: &Comparison) -> String {
    let workload = &comparison.workload;
    let (size, request) = (Size(workload.bytes()), Size(workload.request));
    format!(
        "{} clients {} one shared file of {size} in {} requests of {request}, {}.\n\
         {} ({}). Every byte was verified.",
        workload.clients,
        workload.op,
        workload.blocks,
        pattern_name(workload.pattern),
        served_by(workload.workers),
        comparison.path,
    )
}

fn served_by(workers: u64) -> String {
    match workers {
        1 => "1 worker serves them, one operation at a time".to_owned(),
        _ => format!("{workers} workers serve them, each one operation at a time"),
    }
}

fn pattern_name(pattern: Pattern) -> String {
    pattern
        .to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned())
}

fn table(comparison: &Comparison) -> Table {
    let bytes = comparison.workload.bytes();
    let fastest = comparison
        .results
        .iter()
        .map(|(_, served)| rate(bytes, served))
        .fold(0.0, f64::max);
    let noop = noop(&comparison.results);
    let row = |(policy, served): &(PolicyKind, Served)| {
        vec![
            Cell::Text(policy.to_string()),
            Cell::Number(served.took.as_secs_f64(), 2),
            Cell::Number(rate(bytes, served), 0),
            Cell::Count(served.operations),
            Cell::Number(per_operation(served), 1),
            Cell::Number(gain(noop, served), 2),
            Cell::Text(drawn(rate(bytes, served) / fastest)),
        ]
    };
    Table {
        title: String::new(),
        columns: vec![
            ("policy", "policy"),
            ("seconds", "seconds"),
            ("mb_per_second", "MB/s"),
            ("operations", "operations"),
            ("requests_per_operation", "requests/operation"),
            ("gain", "× NOOP"),
            ("bar", "MB/s"),
        ],
        rows: comparison.results.iter().map(row).collect(),
    }
}

fn document(comparison: &Comparison) -> Value {
    let workload = &comparison.workload;
    let noop = noop(&comparison.results);
    let policy = |(policy, served): &(PolicyKind, Served)| {
        json!({
            "policy": policy.name(),
            "seconds": served.took.as_secs_f64(),
            "mb_per_second": rate(workload.bytes(), served),
            "requests": served.requests,
            "operations": served.operations,
            "requests_per_operation": per_operation(served),
            "gain": gain(noop, served),
        })
    };
    json!({
        "clients": workload.clients,
        "workers": workload.workers,
        "op": workload.op.to_string(),
        "pattern": pattern_name(workload.pattern),
        "request_bytes": workload.request,
        "file_bytes": workload.bytes(),
        "storage_path": comparison.path,
        // A wrong byte anywhere ends the comparison with an error.
        "verified": true,
        "policies": comparison.results.iter().map(policy).collect::<Vec<_>>(),
        "conclusion": conclusion(&comparison.results),
    })
}

/// The comparison in one sentence.
fn conclusion(results: &[(PolicyKind, Served)]) -> String {
    let noop = noop(results);
    let fastest = results.iter().min_by_key(|(_, served)| served.took);
    match fastest {
        Some((policy, served)) if gain(noop, served) >= 1.1 => format!(
            "{policy} served {} requests with {} operations: {:.1} × faster than NOOP.",
            served.requests,
            served.operations,
            gain(noop, served)
        ),
        _ => "No policy was clearly faster than NOOP: this storage does not mind these requests as they come."
            .to_owned(),
    }
}

/// NOOP always runs; were it missing, nothing would be compared with anything.
fn noop(results: &[(PolicyKind, Served)]) -> Option<&Served> {
    results
        .iter()
        .find(|(policy, _)| *policy == PolicyKind::Noop)
        .map(|(_, served)| served)
}

fn gain(noop: Option<&Served>, served: &Served) -> f64 {
    noop.map_or(f64::NAN, |noop| {
        noop.took.as_secs_f64() / served.took.as_secs_f64()
    })
}

fn rate(bytes: u64, served: &Served) -> f64 {
    bytes as f64 / 1e6 / served.took.as_secs_f64()
}

fn per_operation(served: &Served) -> f64 {
    served.requests as f64 / served.operations.max(1) as f64
}

/// A bar of blocks, exact to an eighth of one.
fn drawn(share: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share * BAR_WIDTH * 8.0).round() as usize;
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn served(ms: u64, operations: u64) -> Served {
        Served {
            took: Duration::from_millis(ms),
            requests: 8192,
            operations,
        }
    }

    #[test]
    fn the_conclusion_names_the_fastest_policy_and_its_gain() {
        let results = [
            (PolicyKind::Noop, served(1060, 8192)),
            (PolicyKind::Aioli, served(200, 151)),
        ];
        let expected = "aIOLi served 8192 requests with 151 operations: 5.3 × faster than NOOP.";
        assert_eq!(conclusion(&results), expected);
    }

    #[test]
    fn where_nothing_is_gained_the_conclusion_says_so() {
        let results = [
            (PolicyKind::Noop, served(1000, 8192)),
            (PolicyKind::Sjf, served(990, 900)),
        ];
        assert!(conclusion(&results).starts_with("No policy"));
        assert!(conclusion(&results[..1]).starts_with("No policy"));
    }

    #[test]
    fn bars_are_as_long_as_their_share() {
        assert_eq!(drawn(1.0).chars().count(), 24);
        assert_eq!(drawn(0.5).chars().count(), 12);
        assert_eq!(drawn(1.0 / 192.0), "▏");
        assert_eq!(drawn(0.0), "");
    }
}
