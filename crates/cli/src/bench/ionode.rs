//! `presagio bench ionode`: the I/O node beside Debian's diod, with the same client and the same frames.
//!
//! Both serve a directory of the same file system over a Unix socket. The client is ours for both, and both have to take
//! frames of the size that diod takes. Rounds alternate between the two, so that whatever the machine does meets both;
//! the ratio of a round pair is what counts, and the median of them.

mod crowd;
pub mod forwarded;
mod latency;
mod load;
pub mod server;
mod strided;
mod throttled;

use super::{Bar, Effort, Report, Scope};
use crate::progress::progress;
use crate::table::{Cell, Table};
use load::{Load, Outcome};
use presagio_sched::PolicyKind;
use server::Server;
use std::path::PathBuf;
use std::time::Duration;

/// How long, by effort.
struct Plan {
    rounds: usize,
    round: Duration,
    /// Blocks that each of the strided clients reads.
    blocks: usize,
    /// Reads, to find out how long one takes.
    reads: usize,
    /// Connections: idle and busy.
    crowd: (usize, usize),
}

impl Plan {
    fn new(effort: Effort) -> Plan {
        let (rounds, millis, blocks, reads, crowd) = match effort {
            Effort::Full => (9, 700, 8, 2_000, (1000, 200)),
            Effort::Quick => (3, 300, 2, 1_000, (1000, 200)),
            Effort::Tiny => (1, 20, 1, 100, (20, 5)),
        };
        Plan {
            rounds,
            round: Duration::from_millis(millis),
            blocks,
            reads,
            crowd,
        }
    }
}

pub fn run(scope: &Scope) -> anyhow::Result<Report> {
    let bench = Bench {
        plan: Plan::new(scope.effort),
        dir: tempfile::tempdir()?,
    };
    let mut report = Report {
        tables: Vec::new(),
        notes: Vec::new(),
        bars: Vec::new(),
    };
    bench.beside_diod(scope, &mut report)?;
    if scope.has(STRIDED) {
        bench.strided(&mut report)?;
    }
    if scope.has(THROTTLED) {
        bench.throttled(&mut report)?;
    }
    if scope.has(LATENCY) {
        bench.latency(&mut report)?;
    }
    if scope.has(CROWD) {
        bench.crowd(&mut report)?;
    }
    if scope.has(FORWARDED) {
        bench.forwarded(&mut report)?;
    }
    Ok(report)
}

const STRIDED: &str = "128 strided clients of 32 KiB, emulated disk";
const THROTTLED: &str = "128 strided clients of 32 KiB, O_DIRECT on a throttled device";
const LATENCY: &str = "what scheduling adds to one read of 4 KiB";
const CROWD: &str = "memory with many connections";
const FORWARDED: &str = "1 MiB sequential through the preload path";

struct Bench {
    plan: Plan,
    dir: tempfile::TempDir,
}

impl Bench {
    fn sub(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.dir.path().join(name);
        std::fs::create_dir(&path)?;
        Ok(path)
    }

    fn beside_diod(&self, scope: &Scope, report: &mut Report) -> anyhow::Result<()> {
        let loads: Vec<Load> = Load::ALL
            .into_iter()
            .filter(|load| scope.has(load.name))
            .collect();
        if loads.is_empty() {
            return Ok(());
        }
        let progress = progress((loads.len() * self.plan.rounds) as u64);
        let ours = Server::presagio(&self.sub("ours")?, &[])?;
        let diod = Server::diod(&self.sub("diod")?);
        let mut table = Table {
            title: "operations a second, and the server's processor time for each".to_owned(),
            columns: COLUMNS.to_vec(),
            rows: Vec::new(),
        };
        for load in loads {
            progress.set_message(load.name);
            let mut pairs = Vec::new();
            for _ in 0..self.plan.rounds {
                let one = load.run(&ours, self.plan.round)?;
                let other = diod
                    .as_ref()
                    .ok()
                    .map(|diod| load.run(diod, self.plan.round));
                pairs.push((one, other.transpose()?));
                progress.inc(1);
            }
            table.rows.push(row(&load, &pairs));
            report.bars.extend(bars(&load, &pairs, &diod));
        }
        progress.finish_and_clear();
        report.tables.push(("diod", table));
        report.notes.push(NOTE.to_owned());
        Ok(())
    }

    fn strided(&self, report: &mut Report) -> anyhow::Result<()> {
        let progress = progress(PolicyKind::ALL.len() as u64);
        let mut rows = Vec::new();
        for policy in PolicyKind::ALL {
            progress.set_message(format!("{policy} on a disk"));
            let dir = self.sub(&format!("strided-{policy}"))?;
            let arguments = [
                "--emulate",
                "hdd",
                "--policy",
                policy.name(),
                "--depth",
                "1",
            ];
            let server = Server::presagio(&dir, &arguments)?;
            strided::fill(&server, self.plan.blocks)?;
            rows.push((policy, strided::run(&server, self.plan.blocks)?));
            progress.inc(1);
        }
        progress.finish_and_clear();
        let noop = rows[0].1;
        for (policy, speed) in rows.iter().filter(|(policy, _)| policy.aggregates()) {
            let name = format!("strided on a disk: {policy} / NOOP");
            report.bars.push(Bar::at_least(name, speed / noop, "", 5.0));
        }
        let cells = |(policy, speed): &(PolicyKind, f64)| {
            let name = Cell::Text(policy.to_string());
            vec![name, Cell::Number(*speed, 1), Cell::Number(speed / noop, 2)]
        };
        report.tables.push((
            "strided",
            Table {
                title: STRIDED.to_owned(),
                columns: vec![
                    ("policy", "policy"),
                    ("mb_per_s", "MB/s"),
                    ("gain", "/ NOOP"),
                ],
                rows: rows.iter().map(cells).collect(),
            },
        ));
        Ok(())
    }

    fn throttled(&self, report: &mut Report) -> anyhow::Result<()> {
        let bar = |policy: PolicyKind, gain: f64| {
            let name = format!("strided on a throttled device: {policy} / NOOP");
            Bar::at_least(name, gain, "", 5.0)
        };
        let aggregating = || PolicyKind::ALL.into_iter().filter(|it| it.aggregates());
        let rows = match self.throttled_rows() {
            Ok(rows) => rows,
            Err(why) => {
                let why = format!("{why:#}");
                let missing = aggregating().map(|policy| bar(policy, 0.0).not_measured(&*why));
                report.bars.extend(missing);
                return Ok(());
            }
        };
        let noop = rows[0].1.mb_per_s;
        let of = |policy| rows.iter().find(|row| row.0 == policy);
        let measured: Vec<_> = aggregating().filter_map(of).collect();
        let bars = measured.iter();
        let bars = bars.map(|(policy, found)| bar(*policy, found.mb_per_s / noop));
        report.bars.extend(bars);
        let most = measured.iter().map(|(_, found)| found.reads).max();
        let fewer = rows[0].1.reads as f64 / most.unwrap_or(0).max(1) as f64;
        let name = "reads at the throttled device: NOOP's / the most of an aggregating policy";
        report.bars.push(Bar::at_least(name, fewer, "", 5.0));
        let cells = |(policy, found): &(PolicyKind, throttled::Found)| {
            vec![
                Cell::Text(policy.to_string()),
                Cell::Number(found.mb_per_s, 1),
                Cell::Number(found.mb_per_s / noop, 2),
                Cell::Number(found.reads as f64, 0),
                Cell::Number(found.kib, 0),
            ]
        };
        report.tables.push((
            "throttled",
            Table {
                title: format!("{THROTTLED} ({} reads a second)", throttled::IOPS),
                columns: vec![
                    ("policy", "policy"),
                    ("mb_per_s", "MB/s"),
                    ("gain", "/ NOOP"),
                    ("device_reads", "reads at the device"),
                    ("kib_per_read", "KiB each"),
                ],
                rows: rows.iter().map(cells).collect(),
            },
        ));
        Ok(())
    }

    fn throttled_rows(&self) -> anyhow::Result<Vec<(PolicyKind, throttled::Found)>> {
        anyhow::ensure!(
            rustix::process::geteuid().is_root(),
            "only root can make and throttle a device"
        );
        // What may pass before the throttle begins to count is little of that.
        let blocks = 4 * self.plan.blocks;
        let device = throttled::Device::new(&self.sub("device")?, blocks)?;
        let progress = progress(PolicyKind::ALL.len() as u64);
        let mut rows = Vec::new();
        for policy in PolicyKind::ALL {
            progress.set_message(format!("{policy} on a throttled device"));
            let dir = self.sub(&format!("throttled-{policy}"))?;
            rows.push((policy, device.run(&dir, policy.name())?));
            progress.inc(1);
        }
        progress.finish_and_clear();
        Ok(rows)
    }

    fn latency(&self, report: &mut Report) -> anyhow::Result<()> {
        let measured = latency::run(&self.sub("latency")?, self.plan.rounds, self.plan.reads)?;
        let rounds = measured.rounds;
        let of = |policy: usize| median(rounds.iter().map(|round| round[policy]));
        let added = |policy: usize| median(rounds.iter().map(|round| round[policy] - round[0]));
        let all = 0..PolicyKind::ALL.len();
        let worst = all.clone().map(added).fold(f64::MIN, f64::max);
        let name = "scheduling: from arrival to dispatch, slowest policy, median";
        report
            .bars
            .push(Bar::at_most(name, measured.queued, "us", 5.0));
        let name = "scheduling: the slowest policy adds to NOOP, median";
        report.bars.push(Bar::at_most(name, worst, "us", 5.0));
        let cells = |policy: usize| {
            let name = Cell::Text(PolicyKind::ALL[policy].to_string());
            vec![
                name,
                Cell::Number(of(policy), 1),
                Cell::Number(added(policy), 1),
            ]
        };
        report.tables.push((
            "latency",
            Table {
                title: LATENCY.to_owned(),
                columns: vec![
                    ("policy", "policy"),
                    ("median_us", "us"),
                    ("added_us", "more than NOOP"),
                ],
                rows: all.map(cells).collect(),
            },
        ));
        Ok(())
    }

    fn crowd(&self, report: &mut Report) -> anyhow::Result<()> {
        let (idle, busy) = self.plan.crowd;
        let memory = crowd::run(&self.sub("crowd")?, idle, busy)?;
        let per_idle = (memory.idle - memory.empty) / idle as f64;
        report.bars.push(Bar::at_most(
            "memory of an idle connection",
            per_idle,
            "KiB",
            24.0,
        ));
        let growth = |(_, peak): &(&str, f64)| (peak - memory.idle) / 1024.0;
        for load in &memory.busy {
            let name = format!("more memory when busy, limit 64 MiB: {}", load.0);
            report
                .bars
                .push(Bar::at_most(name, growth(load), "MiB", 96.0));
        }
        let row =
            |name: String, value: f64| vec![Cell::Text(name), Cell::Number(value / 1024.0, 1)];
        let loads = memory.busy.iter();
        let loads = loads.map(|(load, peak)| row(format!("and {busy} busy: {load}"), *peak));
        report.tables.push((
            "crowd",
            Table {
                title: CROWD.to_owned(),
                columns: vec![("connections", "connections"), ("mib", "MiB")],
                rows: [
                    row("none".to_owned(), memory.empty),
                    row(format!("{idle} idle"), memory.idle),
                ]
                .into_iter()
                .chain(loads)
                .collect(),
            },
        ));
        Ok(())
    }

    fn forwarded(&self, report: &mut Report) -> anyhow::Result<()> {
        let found = forwarded::run(&self.sub("forwarded")?, self.plan.rounds, self.plan.round)?;
        let mut rows = Vec::new();
        for (name, rounds) in [("reads", &found.reads), ("writes", &found.writes)] {
            let ratio = median(rounds.iter().map(|(forwarded, bare)| forwarded / bare));
            let bar = format!("1 MiB {name} through the preload path / a bare relay");
            report.bars.push(Bar::at_least(bar, ratio, "", 0.8));
            rows.push(vec![
                Cell::Text(name.to_owned()),
                Cell::Number(median(rounds.iter().map(|round| round.0)), 0),
                Cell::Number(median(rounds.iter().map(|round| round.1)), 0),
                Cell::Number(ratio, 2),
            ]);
        }
        report.tables.push((
            "forwarded",
            Table {
                title: FORWARDED.to_owned(),
                columns: vec![
                    ("operation", ""),
                    ("mb_per_s", "MB/s"),
                    ("relay_mb_per_s", "relay"),
                    ("ratio", "ratio"),
                ],
                rows,
            },
        ));
        Ok(())
    }
}

const COLUMNS: [(&str, &str); 7] = [
    ("load", "load"),
    ("rate", "presagio /s"),
    ("diod_rate", "diod /s"),
    ("rate_ratio", "ratio"),
    ("cpu_us", "CPU us"),
    ("diod_cpu_us", "diod's"),
    ("cpu_ratio", "ratio"),
];

const NOTE: &str =
    "hot cache, Unix sockets, frames of 64 KiB (diod's largest); CPU: of the server, per operation";

type Pair = (Outcome, Option<Outcome>);

fn row(load: &Load, pairs: &[Pair]) -> Vec<Cell> {
    let own = |of: fn(&Outcome) -> f64| median(pairs.iter().map(|pair| of(&pair.0)));
    let theirs =
        |of: fn(&Outcome) -> f64| median(pairs.iter().filter_map(|pair| pair.1.as_ref().map(of)));
    vec![
        Cell::Text(load.name.to_owned()),
        Cell::Number(own(|it| it.rate), 0),
        Cell::Number(theirs(|it| it.rate), 0),
        Cell::Number(ratio(pairs, |it| it.rate), 2),
        Cell::Number(own(|it| it.cpu_us), 2),
        Cell::Number(theirs(|it| it.cpu_us), 2),
        Cell::Number(ratio(pairs, |it| it.cpu_us), 2),
    ]
}

fn bars(load: &Load, pairs: &[Pair], diod: &anyhow::Result<Server>) -> [Bar; 2] {
    let rate = Bar::at_least(
        format!("{} / diod", load.name),
        ratio(pairs, |it| it.rate),
        "",
        load.bar,
    );
    let cpu = Bar::at_most(
        format!("{}: CPU / diod's", load.name),
        ratio(pairs, |it| it.cpu_us),
        "",
        1.0,
    );
    match diod {
        Ok(_) => [rate, cpu],
        Err(why) => [
            rate.not_measured(why.to_string()),
            cpu.not_measured(why.to_string()),
        ],
    }
}

fn ratio(pairs: &[Pair], of: fn(&Outcome) -> f64) -> f64 {
    let ratios = pairs
        .iter()
        .filter_map(|(one, other)| Some(of(one) / of(other.as_ref()?)));
    median(ratios)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
