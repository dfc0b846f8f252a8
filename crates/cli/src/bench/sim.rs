//! `presagio bench sim`: how fast is the simulator, how much memory does it take, how do both grow with the cluster, and
//! does it rank policies as a live node does?

pub(in crate::bench) mod live;
mod rank;

use super::{Bar, Effort, Report, Scope};
use crate::progress::progress;
use crate::table::{Cell, Table};
use indicatif::ProgressBar;
use presagio_sched::PolicyKind;
use presagio_sim::{PolicyChoice, Scenario, Simulation, Sweep, preset};
use std::time::Instant;

/// A second is a million requests, at least.
const REQUESTS_PER_S: f64 = 1e6;

/// What 4096 clients, 384 I/O nodes and 64 servers may take.
const MEMORY_MIB: f64 = 4096.0;

/// Clients, I/O nodes and servers, in proportion.
const SIZES: [(u32, u32, u32); 5] = [
    (64, 6, 1),
    (256, 24, 4),
    (1024, 96, 16),
    (2048, 192, 32),
    (4096, 384, 64),
];

/// The sizes, by effort.
struct Plan {
    /// How often each is measured; the fastest counts.
    rounds: u32,
    /// Bytes of Fig. 2a, and of each client of the growing cluster.
    total: u64,
    each: u64,
}

impl Plan {
    fn new(effort: Effort) -> Plan {
        let (rounds, total, each) = match effort {
            Effort::Full => (3, 4 << 30, 64 << 20),
            Effort::Quick => (1, 1 << 30, 16 << 20),
            Effort::Tiny => (1, 16 << 20, 256 << 10),
        };
        Plan {
            rounds,
            total,
            each,
        }
    }
}

/// What one scenario took.
struct Measured {
    requests: u64,
    events: u64,
    seconds: f64,
}

impl Measured {
    fn per_s(&self) -> f64 {
        self.requests as f64 / self.seconds.max(1e-9)
    }
}

/// What `--only` finds the others by.
const SPEED: &str = "speed by policy";
const SCALING: &str = "scaling with the cluster";

pub fn run(scope: &Scope) -> anyhow::Result<Report> {
    let plan = Plan::new(scope.effort);
    let mut report = Report {
        tables: Vec::new(),
        notes: Vec::new(),
        bars: Vec::new(),
    };
    let (has_speed, has_scaling) = (scope.has(SPEED), scope.has(SCALING));
    let bar = progress(steps(has_speed, has_scaling));
    if has_speed {
        speed(&plan, &bar, &mut report)?;
    }
    if has_scaling {
        scaling(&plan, &bar, &mut report)?;
    }
    bar.finish_and_clear();
    if has_speed || has_scaling {
        report.notes.extend(notes(&plan));
    }
    if scope.has(live::NAME) {
        live::run(scope.effort, &mut report)?;
    }
    Ok(report)
}

fn steps(has_speed: bool, has_scaling: bool) -> u64 {
    let policies = if has_speed {
        PolicyKind::ALL.len() + 1
    } else {
        0
    };
    let sizes = if has_scaling { SIZES.len() } else { 0 };
    (policies + sizes) as u64
}

fn speed(plan: &Plan, bar: &ProgressBar, report: &mut Report) -> anyhow::Result<()> {
    let speeds = speeds(plan, bar)?;
    let is_twins = |choice| choice == PolicyChoice::Policy(PolicyKind::Twins);
    let twins = speeds.iter().find(|(choice, _)| is_twins(*choice));
    let twins = twins.map_or(f64::NAN, |(_, measured)| measured.per_s());
    let name = "simulated requests with TWINS";
    let bar = Bar::at_least(name, twins, "1/s", REQUESTS_PER_S);
    report.tables.push(("policies", speed_table(&speeds)));
    report.bars.push(bar);
    Ok(())
}

fn scaling(plan: &Plan, bar: &ProgressBar, report: &mut Report) -> anyhow::Result<()> {
    let (table, memory) = grown(plan, bar)?;
    let name = "memory of the largest cluster";
    let bar = Bar::at_most(name, memory.unwrap_or(f64::NAN), "MiB", MEMORY_MIB);
    report.tables.push(("scaling", table));
    report.bars.push(match memory {
        Some(_) => bar,
        None => bar.not_measured("/proc/self/status does not say"),
    });
    Ok(())
}

/// Fig. 2a of paper 001 with every policy at the I/O nodes.
fn speeds(plan: &Plan, bar: &ProgressBar) -> anyhow::Result<Vec<(PolicyChoice, Measured)>> {
    let mut scenario = first_run("001-fig2a")?;
    scenario.apps[0].total.0 = plan.total;
    let kinds = PolicyKind::ALL.map(PolicyChoice::Policy);
    let choices = [PolicyChoice::None].into_iter().chain(kinds);
    choices
        .map(|choice| {
            scenario.ionodes.scheduler.policy = choice;
            let measured = measure(&scenario, plan.rounds)?;
            bar.inc(1);
            Ok((choice, measured))
        })
        .collect()
}

/// A cluster that grows, with TWINS; the table, and the memory of the largest in MiB.
fn grown(plan: &Plan, bar: &ProgressBar) -> anyhow::Result<(Table, Option<f64>)> {
    let mut rows = Vec::new();
    let mut memory = None;
    for (clients, nodes, servers) in SIZES {
        let mut scenario = first_run("large")?;
        scenario.clients.machines = clients;
        scenario.ionodes.count = nodes;
        scenario.servers.count = servers;
        scenario.apps[0].processes = clients;
        scenario.apps[0].bytes.0 = plan.each;
        let measured = measure(&scenario, plan.rounds)?;
        memory = peak_mib();
        bar.inc(1);
        rows.push(vec![
            Cell::Count(clients.into()),
            Cell::Count(nodes.into()),
            Cell::Count(servers.into()),
            Cell::Count(measured.requests),
            Cell::Number(measured.events as f64 / measured.requests as f64, 1),
            Cell::Number(measured.per_s() / 1e6, 2),
            Cell::Number(measured.seconds * 1e9 / measured.events as f64, 0),
            Cell::maybe(memory, 0),
        ]);
    }
    let table = Table {
        title: "A growing cluster, TWINS at the I/O nodes".to_owned(),
        columns: vec![
            ("clients", "clients"),
            ("ionodes", "I/O nodes"),
            ("servers", "servers"),
            ("requests", "requests"),
            ("events_per_request", "events each"),
            ("million_requests_per_s", "M requests/s"),
            ("ns_per_event", "ns/event"),
            ("peak_mib", "peak MiB"),
        ],
        rows,
    };
    Ok((table, memory))
}

fn speed_table(speeds: &[(PolicyChoice, Measured)]) -> Table {
    let row = |(choice, measured): &(PolicyChoice, Measured)| {
        vec![
            Cell::Text(choice.name().to_owned()),
            Cell::Count(measured.requests),
            Cell::Number(measured.events as f64 / measured.requests as f64, 1),
            Cell::Number(measured.per_s() / 1e6, 2),
        ]
    };
    Table {
        title: "128 clients, 8 I/O nodes, 4 servers (001, Fig. 2a), by policy of the I/O nodes"
            .to_owned(),
        columns: vec![
            ("policy", "policy"),
            ("requests", "requests"),
            ("events_per_request", "events each"),
            ("million_requests_per_s", "M requests/s"),
        ],
        rows: speeds.iter().map(row).collect(),
    }
}

fn first_run(name: &str) -> anyhow::Result<Scenario> {
    let toml = preset(name).map_or("", |preset| preset.toml);
    let runs = Sweep::read(toml)?.runs()?;
    let first = runs.into_iter().next();
    first
        .map(|run| run.scenario)
        .ok_or_else(|| anyhow::anyhow!("the preset {name} has no run"))
}

fn measure(scenario: &Scenario, rounds: u32) -> anyhow::Result<Measured> {
    let mut fastest = f64::INFINITY;
    let mut report = None;
    for _ in 0..rounds {
        let begin = Instant::now();
        report = Some(Simulation::new(scenario).run()?);
        fastest = fastest.min(begin.elapsed().as_secs_f64());
    }
    let report = report.ok_or_else(|| anyhow::anyhow!("nothing was measured"))?;
    Ok(Measured {
        requests: report.requests(),
        events: report.events,
        seconds: fastest,
    })
}

/// The most memory that this process ever had.
fn peak_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024.0)
}

fn notes(plan: &Plan) -> Vec<String> {
    vec![
        format!(
            "One core, the fastest of {}. A request is one that reaches an I/O node's scheduler; an event is a step on \
             its way.",
            plan.rounds
        ),
        "Peak memory is that of the whole process up to then.".to_owned(),
    ]
}
