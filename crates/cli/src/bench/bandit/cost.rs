//! What deciding costs: an announcement at a council of 384 nodes (as many as Mira had; 001, IV-A), and memory.

use crate::bench::{Bar, Effort, Report};
use crate::table::{Cell, Table};
use presagio_core::{Nanos, Op};
use presagio_tune::{
    Announcement, Arm, Arrived, Context, Council, CouncilSettings, Detector, Features, NodeId,
    Observation, Tuner, TunerSettings,
};
use std::time::Instant;

const NODES: u64 = 384;
const DECISION_MS_MOST: f64 = 1.0;
const CONTEXTS: u32 = 10_000;
const MEMORY_MB_MOST: f64 = 64.0;

pub fn measure(effort: Effort, report: &mut Report) {
    let rounds = match effort {
        Effort::Full => 200,
        Effort::Quick => 40,
        Effort::Tiny => 4,
    };
    let mut took_us = decisions(rounds);
    took_us.sort_by(f64::total_cmp);
    let quantile = |share: f64| took_us[((took_us.len() - 1) as f64 * share) as usize];
    let memory_mb = full_tuner().bytes() as f64 / 1e6;
    report.tables.push((
        "cost",
        Table {
            title: format!("A decision at a council of {NODES} nodes and {CONTEXTS} contexts"),
            columns: vec![
                ("median_us", "median µs"),
                ("p99_us", "99 % µs"),
                ("most_us", "most µs"),
                ("memory_mb", "memory MB"),
            ],
            rows: vec![vec![
                Cell::Number(quantile(0.5), 1),
                Cell::Number(quantile(0.99), 1),
                Cell::Number(quantile(1.0), 1),
                Cell::Number(memory_mb, 1),
            ]],
        },
    ));
    report.bars.push(Bar::at_most(
        format!("a decision with {NODES} nodes, 99 % of them"),
        quantile(0.99) / 1e3,
        "ms",
        DECISION_MS_MOST,
    ));
    report.bars.push(Bar::at_most(
        format!("what is known of {CONTEXTS} contexts"),
        memory_mb,
        "MB",
        MEMORY_MB_MOST,
    ));
}

/// A tuner that knows as many contexts as it may.
fn full_tuner() -> Tuner {
    let mut tuner = Tuner::new(TunerSettings::default());
    let arms = tuner.settings().arms.list().to_vec();
    for number in 0..CONTEXTS {
        for arm in &arms {
            tuner.learn(&Context::Pattern(number), *arm, 1e8);
        }
    }
    tuner
}

/// Microseconds of every announcement: nodes are in a dozen contexts, and each does as it is told.
fn decisions(rounds: u64) -> Vec<f64> {
    let mut council = Council::new(
        CouncilSettings::default(),
        full_tuner(),
        Detector::shipped(),
    );
    let safe = council.tuner().settings().arms.safe();
    let mut in_force = vec![safe; NODES as usize];
    let mut took = Vec::with_capacity((rounds * NODES) as usize);
    for round in 1..=rounds {
        for node in 0..NODES {
            let said = announcement(node, in_force[node as usize], round);
            let now = Nanos(round * 1_000_000_000 + node * 1_000_000);
            let begin = Instant::now();
            let decision = council.announce(&said, now);
            took.push(begin.elapsed().as_secs_f64() * 1e6);
            if let Ok(decision) = decision {
                in_force[node as usize] = decision.arm;
            }
        }
    }
    took
}

fn announcement(node: u64, arm: Arm, round: u64) -> Announcement {
    let size = 4096_u64 << (node % 6);
    let seen = Observation {
        period: Nanos::from_secs(1),
        busy: Nanos::from_millis(950),
        served: 100_000_000 + (node * 7919 + round * 104_729) % 10_000_000,
        servers: 16,
        clients: 128,
        processes: 128,
        arrived: Some(Arrived {
            op: Op::ALL[(node % 2) as usize],
            requests: 3000,
            features: Features {
                handles: 1,
                size_max: size,
                size_min: size,
                size_mean: size as f64,
                distance: 1e9,
                stride: 0.0,
            },
        }),
    };
    Announcement {
        node: NodeId(node),
        in_force: arm,
        realised: Some(arm),
        seen,
    }
}
