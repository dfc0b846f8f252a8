//! Many runs on all cores. Each is one thread's from begin to end, so the figures do not depend on how many there are.

use super::Done;
use super::replay::Replays;
use crate::failure::failure;
use crate::progress::progress;
use presagio_sim::{Failed, Report, Run, Simulation};
use presagio_tune::{Detector, Trees};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use toml::Value;

/// The value of a parameter on the command line: a number, true or false, or else a text.
pub fn value(text: &str) -> Value {
    let number = text.parse().map(Value::Integer);
    let truth = || text.parse().map(Value::Boolean);
    number
        .or_else(|_| truth())
        .unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// What schedulers that choose go by: `auto` by trees, `adaptive` by what tells accesses apart.
pub struct Deciding {
    trees: Trees,
    detector: Detector,
}

impl Deciding {
    /// By these files, or else by what comes with Presagio.
    pub fn by(trees: Option<&PathBuf>, network: Option<&PathBuf>) -> anyhow::Result<Deciding> {
        Ok(Deciding {
            trees: crate::train::trees(trees)?,
            detector: crate::train::detector(network)?,
        })
    }
}

/// Runs all of them, some at a time, and shows how far it is.
pub fn run_all(
    runs: &[Run],
    replays: &Replays,
    deciding: &Deciding,
    jobs: Option<usize>,
) -> anyhow::Result<Vec<Done>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = jobs.unwrap_or(cores).clamp(1, runs.len().max(1));
    let bar = progress(runs.len() as u64);
    let next = AtomicUsize::new(0);
    let reports: Vec<Mutex<Option<Result<Report, Failed>>>> =
        runs.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        loop {
            let at = next.fetch_add(1, Relaxed);
            let Some(run) = runs.get(at) else { break };
            let report = simulation(run, replays, deciding).run();
            let failed = report.is_err();
            *reports[at].lock().unwrap_or_else(|e| e.into_inner()) = Some(report);
            bar.inc(1);
            if failed {
                next.store(runs.len(), Relaxed);
            }
        }
    };
    std::thread::scope(|scope| (0..jobs).for_each(|_| drop(scope.spawn(work))));
    bar.finish_and_clear();
    let finished = runs.iter().zip(reports).filter_map(|(run, report)| {
        let report = report.into_inner().unwrap_or_else(|e| e.into_inner())?;
        Some((run, report))
    });
    finished.map(|(run, report)| done(run, report)).collect()
}

/// A run with the recordings that it replays.
pub fn simulation<'a>(run: &'a Run, replays: &Replays, deciding: &Deciding) -> Simulation<'a> {
    let mut simulation = Simulation::new(&run.scenario)
        .choosing_by(deciding.trees.clone())
        .telling_apart_by(deciding.detector.clone());
    for (app, settings) in run.scenario.apps.iter().enumerate() {
        if let Some(replay) = settings.trace.as_ref().and_then(|name| replays.get(name)) {
            simulation = simulation.replaying(app, replay.clone());
        }
    }
    simulation
}

fn done(run: &Run, report: Result<Report, Failed>) -> anyhow::Result<Done> {
    let varied: Vec<String> = run
        .varied
        .iter()
        .map(|(n, v)| format!("{n} = {v}"))
        .collect();
    let report = report.map_err(|error| match varied.is_empty() {
        true => anyhow::anyhow!("the run failed; {error}"),
        false => failure("a run failed", varied.join(", "), error),
    })?;
    Ok(Done {
        run: run.clone(),
        report,
    })
}
