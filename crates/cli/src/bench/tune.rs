//! Bench of the automatic choice: how good the trees of a campaign are, `policy = "auto"` as it runs, what watching costs a
//! request, and how well the network tells accesses apart. A seed is a whole campaign: trees and network are learned anew, and
//! asked about situations that are not in it.

use super::{Bar, Effort, Report, Scope};
use crate::table::{Cell, Table};
use crate::train::{self, Judged, network};
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

const TREES: &str = "trees: situations not seen before, and auto as it runs";
const COST: &str = "cost: the metrics of a request";
const NETWORK: &str = "network: accesses told apart in scenarios not seen before";

pub fn run(scope: &Scope) -> anyhow::Result<Report> {
    let mut report = match scope.has(TREES) {
        true => {
            let all = seeds(scope.effort).map(|seed| judged(scope.effort, seed));
            let all: Vec<Judged> = all.collect::<anyhow::Result<_>>()?;
            train::report_of_seeds(&all[0], &all)
        }
        false => Report {
            tables: Vec::new(),
            notes: Vec::new(),
            bars: Vec::new(),
        },
    };
    if scope.has(COST) {
        costs(scope, &mut report);
    }
    if scope.has(NETWORK) {
        accesses(scope, &mut report)?;
    }
    Ok(report)
}

/// The network and the tree that takes its place, by our features: the worst seed counts.
fn accesses(scope: &Scope, report: &mut Report) -> anyhow::Result<()> {
    let each = match scope.effort {
        Effort::Full => network::EACH,
        Effort::Quick => network::EACH_QUICK,
        Effort::Tiny => [4, 2, 2],
    };
    let rates = seeds(scope.effort).map(|seed| anyhow::Ok((seed, network::rates(each, seed)?)));
    let rates = rates.collect::<anyhow::Result<Vec<_>>>()?;
    for at in 0..2 {
        let new = rates.iter().map(|(_, of)| of[at].1[2]);
        let name = format!(
            "{}, scenarios not seen before: taken for what they are",
            rates[0].1[at].0
        );
        let worst = new.fold(f64::INFINITY, f64::min);
        report
            .bars
            .push(Bar::at_least(name, worst, "%", network::RIGHT_LEAST));
    }
    let row = |(seed, of): &(u64, Vec<(&str, [f64; 3])>)| {
        let row = |(name, rates): &(&str, [f64; 3])| {
            let mut row = vec![Cell::Count(*seed), Cell::Text((*name).to_owned())];
            row.extend(rates.iter().map(|rate| Cell::Number(*rate, 2)));
            row
        };
        of.iter().map(row).collect::<Vec<_>>()
    };
    report.tables.push((
        "network",
        Table {
            title: "Observations that are taken for what they are, in percent".to_owned(),
            columns: vec![
                ("seed", "seed"),
                ("detector", "detector"),
                ("learned_percent", "learned from"),
                ("chosen_by_percent", "chosen by"),
                ("asked_percent", "not seen before"),
            ],
            rows: rates.iter().flat_map(row).collect(),
        },
    ));
    Ok(())
}

fn costs(scope: &Scope, report: &mut Report) {
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
