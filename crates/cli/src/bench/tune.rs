//! Bench of the automatic choice: how good the trees of a campaign are, `policy = "auto"` as it runs, and what watching costs a
//! request. A seed is a whole campaign: its trees are learned anew, and asked about situations that are not in it.

use super::{Bar, Effort, Report, Scope};
use crate::table::{Cell, Table};
use crate::train::{self, Judged};
use presagio_core::{FileId, Nanos, Op, Range, Request, RequestId};
use presagio_sim::campaign::{Learned, Plan};
use presagio_tune::{Metrics, Selector};
use std::hint::black_box;
use std::time::Instant;

/// Features were chosen with a look at the situations of seed 1: others are the fairer judges, and the worst of them counts.
fn seeds(effort: Effort) -> std::ops::RangeInclusive<u64> {
    match effort {
        Effort::Full => 2..=4,
        _ => 2..=2,
    }
}

fn plan(effort: Effort, seed: u64) -> Plan {
    match effort {
        Effort::Tiny => Plan {
            processes: vec![2],
            held_out: vec![3],
            bytes: 256 << 10,
            ..Plan::quick(seed)
        },
        Effort::Quick => Plan::quick(seed),
        Effort::Full => Plan::full(seed),
    }
}

fn judged(effort: Effort, seed: u64) -> anyhow::Result<Judged> {
    let plan = plan(effort, seed);
    let taught = train::part(&plan, false, None)?;
    let learned = Learned::from(&taught, plan.seed);
    Judged::of(&plan, &taught, &learned, None)
}

pub fn run(scope: &Scope) -> anyhow::Result<Report> {
    let all = seeds(scope.effort).map(|seed| judged(scope.effort, seed));
    let all: Vec<Judged> = all.collect::<anyhow::Result<_>>()?;
    let mut report = train::report_of_seeds(&all[0], &all);
    let costs = [1, 64, 4096].map(|files| (files, cost_ns(files, scope.effort)));
    let row = |(files, ns): &(u64, f64)| vec![Cell::Count(*files), Cell::Number(*ns, 1)];
    report.tables.push((
        "cost",
        Table {
            title: "What the metrics cost a request".to_owned(),
            columns: vec![("files", "files"), ("ns", "ns")],
            rows: costs.iter().map(row).collect(),
        },
    ));
    let most = costs.iter().map(|cost| cost.1).fold(0.0, f64::max);
    report
        .bars
        .push(Bar::at_most("metrics of a request", most, "ns", 100.0));
    Ok(report)
}

/// Nanoseconds a request, the best of five rounds: streams of 8 KiB that take turns, one for each file.
fn cost_ns(files: u64, effort: Effort) -> f64 {
    let count: u64 = match effort {
        Effort::Full => 4_000_000,
        _ => 200_000,
    };
    let mut metrics = Metrics::new(Selector::STRIPE);
    let mut round = || {
        let start = Instant::now();
        for at in 0..count {
            let range = Range::at((at / files) * 8192, 8192);
            let file = FileId(at.wrapping_mul(0x9e37_79b9) % files);
            let request = Request::new(RequestId(at), file, Op::Read, range);
            metrics.arrived(black_box(&request), Nanos(at * 1000));
        }
        black_box(metrics.end_period());
        start.elapsed().as_nanos() as f64 / count as f64
    };
    (0..5).map(|_| round()).fold(f64::INFINITY, f64::min)
}
