//! Several runs side by side.

use crate::doc::{Comparison, Document, FORMAT, Measure, Run, VERSION};
use crate::findings;
use crate::phases::rounded;

/// A report of these runs.
pub fn document(runs: Vec<Run>) -> Document {
    let comparison = (runs.len() > 1).then(|| compare(&runs));
    Document {
        format: FORMAT,
        version: VERSION,
        presagio: env!("CARGO_PKG_VERSION"),
        runs,
        comparison,
    }
}

type Of = fn(&Run) -> Option<f64>;

const MEASURES: &[(&str, &str, &str, Of)] = &[
    ("elapsed_ns", "Whole run", "ns", |run| {
        run.totals.elapsed_ns.map(|ns| ns as f64)
    }),
    ("duration_ns", "First to last operation", "ns", |run| {
        Some(run.totals.duration_ns as f64)
    }),
    ("time_ns", "I/O time, all processes", "ns", |run| {
        Some(run.totals.time_ns as f64)
    }),
    ("read_ns", "of it reading", "ns", |run| {
        Some(run.totals.read_ns as f64)
    }),
    ("write_ns", "of it writing", "ns", |run| {
        Some(run.totals.write_ns as f64)
    }),
    ("other_ns", "of it neither", "ns", |run| {
        Some(run.totals.other_ns as f64)
    }),
    ("operations", "Operations", "count", |run| {
        Some(run.totals.operations as f64)
    }),
    ("bytes_read", "Bytes read", "bytes", |run| {
        Some(run.totals.bytes_read as f64)
    }),
    ("bytes_written", "Bytes written", "bytes", |run| {
        Some(run.totals.bytes_written as f64)
    }),
    ("read_median_ns", "Median read", "ns", |run| {
        latency(run, "read", |d| d.median)
    }),
    ("read_p99_ns", "99 % of reads below", "ns", |run| {
        latency(run, "read", |d| d.p99)
    }),
    ("write_median_ns", "Median write", "ns", |run| {
        latency(run, "write", |d| d.median)
    }),
    ("files", "Files", "count", |run| {
        Some(run.totals.files as f64)
    }),
    ("processes", "Processes", "count", |run| {
        Some(run.totals.processes as f64)
    }),
    ("right_share", "Foreseen exactly", "share", |run| {
        run.prediction.as_ref()?.all.right_share
    }),
    ("bytes_useful", "Loaded ahead and read", "bytes", |run| {
        Some(run.prefetch.as_ref()?.bytes_useful as f64)
    }),
    ("bytes_wasted", "Loaded ahead in vain", "bytes", |run| {
        Some(run.prefetch.as_ref()?.bytes_wasted as f64)
    }),
];

fn latency(run: &Run, of: &str, value: fn(&crate::doc::Distribution) -> u64) -> Option<f64> {
    let found = run.latencies.iter().find(|d| d.of == of)?;
    Some(value(found) as f64)
}

fn compare(runs: &[Run]) -> Comparison {
    let measures = MEASURES.iter().map(|(key, name, unit, of)| {
        let values: Vec<Option<f64>> = runs.iter().map(of).collect();
        let first = values[0].filter(|first| *first > 0.0);
        let ratio = |value: &Option<f64>| Some(rounded((*value)? / first?));
        let differs = |value: &Option<f64>| Some(rounded(((*value)? / first? - 1.0).abs()));
        Measure {
            key,
            name,
            unit,
            ratios: values.iter().map(ratio).collect(),
            differs: values.iter().map(differs).collect(),
            values,
        }
    });
    let is_known = |measure: &Measure| measure.values.iter().any(|v| v.is_some_and(|v| v > 0.0));
    let measures: Vec<Measure> = measures.filter(is_known).collect();
    Comparison {
        findings: findings::of_comparison(runs, &measures),
        measures,
    }
}
