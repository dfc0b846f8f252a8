//! Precision and recall on what a live I/O node records: the I/O nodes' benchmarks of paper 000 (V-A), smaller.
//!
//! Each benchmark runs several times on a `presagio ionode --emulate ssd --record FILE` of its own process, with a connection for
//! each process of the scenario. Sockets, threads, the kernel and two real cores decide in which order requests arrive. The
//! recordings are then judged as those of the simulator are.

use super::accuracy::{self, Run, Study};
use super::agreement;
use crate::bench::ionode::server::Server;
use crate::bench::sim::live::{Work, arguments};
use crate::bench::{Effort, Report};
use crate::progress::progress;
use anyhow::Context;
use presagio_core::{Action, Nanos, Op, Range};
use presagio_pattern::{Pattern, Recorder, Settings};
use presagio_sim::{Bytes, DeviceChoice, Level, Scenario, Sweep, preset};
use presagio_trace::Record;
use std::path::{Path, PathBuf};

/// Much less data than the paper's, hence shorter periods.
const PERIOD: Nanos = Nanos::from_millis(250);
const PROCESSES: u32 = 16;

/// Files get their size by a write of so many bytes, which is none of the benchmark's.
const FILLING: u64 = 1;

/// Runs are short, and a benchmark has patterns that come once in a run, as at its beginning and end: until they have come once, each of
/// them counts as a miss. So the second half of the runs is also judged by itself.
const LATER: &str = "a live I/O node, later half of the runs";

/// Repetitions of each benchmark, and bytes of each process.
fn size(effort: Effort) -> (u64, u64) {
    match effort {
        Effort::Full => (5, 48 << 20),
        Effort::Quick => (3, 24 << 20),
        Effort::Tiny => (1, 1 << 20),
    }
}

pub fn measure(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let (repetitions, bytes) = size(effort);
    let study = Study {
        name: "a live I/O node",
        preset: "000-ionodes",
        level: Level::IoNodes,
        ionodes: 1,
        places: 1,
        repetitions,
        processes: (1, 1),
        published: Settings::published_ionodes(1),
        paper: None,
        least: [95.0, 99.0],
    };
    let dir = tempfile::tempdir()?;
    let scenarios = scenarios(&study, bytes)?;
    let bar = progress(scenarios.len() as u64 * repetitions);
    bar.set_message("benchmarks on a live node");
    let mut recordings: Vec<(&Scenario, PathBuf)> = Vec::new();
    for repetition in 0..repetitions {
        for (number, scenario) in scenarios.iter().enumerate() {
            let below = dir.path().join(format!("{repetition}-{number}"));
            std::fs::create_dir(&below)?;
            recordings.push((scenario, record(scenario, &below)?));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let mut rows = Vec::new();
    for (name, settings) in [
        ("published", study.published.clone()),
        ("ours", Settings::ours()),
    ] {
        let settings = Settings {
            period: PERIOD,
            ..settings
        };
        let runs = recordings.iter().map(|(scenario, trace)| {
            Ok(Run {
                labels: accuracy::labels(scenario),
                places: vec![patterns(trace, &settings)?],
            })
        });
        let runs = runs.collect::<anyhow::Result<Vec<Run>>>()?;
        if name == "published" {
            let row = agreement::row(study.name, &settings, &runs);
            let of = agreement::table(vec![row]);
            report.tables.push(("live_agreement", of));
        }
        for (what, learned) in [(study.name, 0), (LATER, runs.len() / 2)] {
            let orders = accuracy::orders(effort);
            let (tallies, known) = accuracy::judge(&study, &settings, &runs, orders, learned);
            let study = Study {
                name: what,
                ..study.clone()
            };
            // There is one number of processes, so both methods are the same.
            rows.push(accuracy::row(&study, name, 1, &tallies[1], known));
            if name == "ours" {
                let bars = accuracy::bars(&study, &tallies[1], effort);
                report.bars.extend(bars);
            }
        }
    }
    let title = "Recorded by a live I/O node: precision and recall, in percent";
    report.tables.push(("live", accuracy::table(title, rows)));
    report.notes.push(format!(
        "Live: {} benchmarks, {repetitions} runs of each with {PROCESSES} processes on an emulated SSD, periods of {PERIOD}.",
        scenarios.len()
    ));
    Ok(())
}

/// The benchmarks, with few processes and little data, on a node of this machine.
fn scenarios(study: &Study, bytes: u64) -> anyhow::Result<Vec<Scenario>> {
    let text = preset(study.preset).context("a preset is missing")?.toml;
    let runs = Sweep::read(text)?.runs()?.into_iter();
    let with_one = runs
        .map(|run| run.scenario)
        .filter(|scenario| scenario.ionodes.count == study.ionodes);
    let small = |mut scenario: Scenario| {
        scenario.servers.count = 1;
        scenario.servers.device = DeviceChoice::named("ssd");
        for app in &mut scenario.apps {
            app.processes = PROCESSES;
            (app.bytes, app.total) = (Bytes(bytes), Bytes(0));
        }
        scenario
    };
    Ok(with_one.map(small).collect())
}

/// Runs a benchmark on a node of its own: what that recorded.
fn record(scenario: &Scenario, below: &Path) -> anyhow::Result<PathBuf> {
    let trace = below.join("node.ptrace");
    let mut arguments = arguments(scenario, below)?;
    arguments.extend(["--record".to_owned(), trace.display().to_string()]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let server = Server::presagio(below, &arguments)?;
    let work = Work::of(scenario)?;
    work.fill(&server)?;
    work.run(&server)?;
    std::fs::remove_dir_all(server.export())?;
    server.end()?;
    Ok(trace)
}

/// The patterns of a recording, period by period.
fn patterns(trace: &Path, settings: &Settings) -> anyhow::Result<Vec<Pattern>> {
    let mut events = Vec::new();
    for record in presagio_trace::open(trace)? {
        if let Record::Event(event) = record? {
            events.push(event);
        }
    }
    events.sort_by_key(|event| event.time);
    let mut recorder = Recorder::new(settings);
    let (mut end, mut all) = (Nanos::ZERO, Vec::new());
    for event in events {
        let op = match event.action {
            Action::Read => Op::Read,
            Action::Write => Op::Write,
            _ => continue,
        };
        if event.len <= FILLING {
            continue;
        }
        while event.time >= end {
            all.extend(recorder.end());
            end = match end {
                Nanos::ZERO => event.time + settings.period,
                end => end + settings.period,
            };
        }
        recorder.observe(event.file, op, Range::at(event.offset, event.len));
    }
    all.extend(recorder.end());
    Ok(all)
}
