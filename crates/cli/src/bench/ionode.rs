//! `presagio bench ionode`: the I/O node beside Debian's diod, with the same client and the same frames.
//!
//! Both serve a directory of the same file system over a Unix socket. The client is ours for both, and both have to take
//! frames of the size that diod takes. Rounds alternate between the two, so that whatever the machine does meets both;
//! the ratio of a round pair is what counts, and the median of them.

mod load;
mod server;

use super::{Bar, Effort, Report, Scope};
use crate::progress::progress;
use crate::table::{Cell, Table};
use load::{Load, Outcome};
use server::Server;
use std::path::Path;
use std::time::Duration;

/// How long, by effort.
struct Plan {
    rounds: usize,
    round: Duration,
}

impl Plan {
    fn new(effort: Effort) -> Plan {
        let (rounds, millis) = match effort {
            Effort::Full => (9, 700),
            Effort::Quick => (3, 300),
            Effort::Tiny => (1, 20),
        };
        Plan {
            rounds,
            round: Duration::from_millis(millis),
        }
    }
}

pub fn run(scope: &Scope) -> anyhow::Result<Report> {
    let plan = Plan::new(scope.effort);
    let dir = tempfile::tempdir()?;
    let loads: Vec<Load> = Load::ALL
        .into_iter()
        .filter(|load| scope.has(load.name))
        .collect();
    let progress = progress((loads.len() * plan.rounds) as u64);
    let ours = Server::presagio(&sub(dir.path(), "ours")?, &[])?;
    let diod = Server::diod(&sub(dir.path(), "diod")?);
    let mut report = Report {
        tables: Vec::new(),
        notes: vec![NOTE.to_owned()],
        bars: Vec::new(),
    };
    let mut table = Table {
        title: "operations a second, and the server's processor time for each".to_owned(),
        columns: COLUMNS.to_vec(),
        rows: Vec::new(),
    };
    for load in loads {
        progress.set_message(load.name);
        let mut pairs = Vec::new();
        for _ in 0..plan.rounds {
            let one = load.run(&ours, plan.round)?;
            let other = diod
                .as_ref()
                .ok()
                .map(|diod| load.run(diod, plan.round))
                .transpose()?;
            pairs.push((one, other));
            progress.inc(1);
        }
        table.rows.push(row(&load, &pairs));
        report.bars.extend(bars(&load, &pairs, &diod));
    }
    progress.finish_and_clear();
    report.tables.push(("diod", table));
    Ok(report)
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

fn sub(dir: &Path, name: &str) -> anyhow::Result<std::path::PathBuf> {
    let path = dir.join(name);
    std::fs::create_dir(&path)?;
    Ok(path)
}

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
