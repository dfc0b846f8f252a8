//! What windows give in simulated situations: the data that bandits are tried on (paper 001, VI-A and VI-B).

use crate::bench::Effort;
use crate::failure::failure;
use crate::progress::progress;
use crate::train::on_all_cores;
use anyhow::Context;
use presagio_core::Nanos;
use presagio_sim::{Change, Failed, Place, Run, Seen, Simulation, Steering, Sweep, preset};

/// A situation, and what each window gave in it, period by period: bytes per busy second of a node.
pub struct Situation {
    pub rewards: Vec<Vec<f64>>,
}

impl Situation {
    pub fn mean(&self, arm: usize) -> f64 {
        let rewards = &self.rewards[arm];
        rewards.iter().sum::<f64>() / rewards.len().max(1) as f64
    }

    pub fn best(&self) -> usize {
        let better = |best, at| {
            if self.mean(at) > self.mean(best) {
                at
            } else {
                best
            }
        };
        (1..self.rewards.len()).fold(0, better)
    }

    /// How much periods with the best arm differ: their standard deviation as a share of the average.
    pub fn scatter(&self) -> f64 {
        let best = self.best();
        let (rewards, mean) = (&self.rewards[best], self.mean(best));
        let squares: f64 = rewards.iter().map(|it| (it - mean).powi(2)).sum();
        (squares / rewards.len().max(1) as f64).sqrt() / mean.max(1.0)
    }

    /// How many times better the best is than the worst.
    pub fn spread(&self) -> f64 {
        let means = (0..self.rewards.len()).map(|arm| self.mean(arm));
        let worst = means.fold(f64::INFINITY, f64::min);
        self.mean(self.best()) / worst.max(1.0)
    }
}

/// How long a period is, and for how long a run is looked at.
const PERIOD: Nanos = Nanos::from_millis(100);
const LOOK: &str = "2500ms";

/// Periods at the beginning, in which processes start.
const BEGINNING: usize = 2;

/// The campaign of paper 001: windows from 0.125 to 8 ms.
pub fn campaign(effort: Effort) -> anyhow::Result<Vec<Situation>> {
    let text = preset("001-campaign").context("a preset is missing")?.toml;
    let mut sweep = Sweep::read(text)?;
    sweep.set("app.stonewall", LOOK.into())?;
    let (processes, nodes): (&[i64], &[i64]) = match effort {
        Effort::Full => (&[128, 512], &[1, 2, 8]),
        Effort::Quick => (&[128], &[2, 8]),
        Effort::Tiny => (&[128], &[8]),
    };
    let values = |list: &[i64]| list.iter().map(|value| (*value).into()).collect();
    // The window varies fastest: it is set last.
    let windows = ["0.125ms", "0.25ms", "0.5ms", "1ms", "2ms", "4ms", "8ms"];
    if effort == Effort::Tiny {
        sweep.set("app.stonewall", "500ms".into())?;
        sweep.set("app.request", "256KiB".into())?;
    }
    sweep.vary("app.processes", values(processes))?;
    sweep.vary("ionodes.count", values(nodes))?;
    sweep.vary(
        "ionodes.scheduler.window",
        windows.iter().map(|window| (*window).into()).collect(),
    )?;
    let runs = sweep.runs()?;
    let rewards = watched(&runs)?;
    let situation = |rewards: &[Vec<f64>]| Situation {
        rewards: rewards.to_vec(),
    };
    let groups = rewards.chunks(windows.len());
    let is_full = |one: &Situation| one.rewards.iter().all(|rewards| !rewards.is_empty());
    Ok(groups.map(situation).filter(is_full).collect())
}

fn watched(runs: &[Run]) -> anyhow::Result<Vec<Vec<f64>>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let bar = progress(runs.len() as u64);
    bar.set_message("windows in simulated situations");
    let done = on_all_cores(runs, cores, &bar, |run| {
        let mut watcher = Watcher(Vec::new());
        let simulation = Simulation::new(&run.scenario).steered_by(&mut watcher);
        simulation.run().map(|_| watcher.0)
    });
    bar.finish_and_clear();
    let rewards = |outcome: Option<Result<Vec<f64>, Failed>>| -> anyhow::Result<Vec<f64>> {
        let outcome = outcome.context("a run is missing")?;
        let advice = "this is a mistake of the bench: please report it";
        let all = outcome.map_err(|error| failure("a run failed", error, advice))?;
        // The last one is not whole.
        let end = all.len().saturating_sub(1).max(BEGINNING.min(all.len()));
        Ok(all[BEGINNING.min(all.len())..end].to_vec())
    };
    done.into_iter().map(rewards).collect()
}

/// What nodes served per busy second in each period, on average.
struct Watcher(Vec<f64>);

impl Steering for Watcher {
    fn period(&self) -> Nanos {
        PERIOD
    }

    fn decide(&mut self, _now: Nanos, seen: &[Seen], _changes: &mut Vec<Change>) {
        let nodes = seen
            .iter()
            .filter(|seen| matches!(seen.place, Place::IoNode(_)));
        let busy = nodes.filter(|seen| seen.busy > Nanos::ZERO);
        let rates: Vec<f64> = busy
            .map(|seen| seen.served.iter().sum::<u64>() as f64 / seen.busy.as_secs_f64())
            .collect();
        if !rates.is_empty() {
            self.0.push(rates.iter().sum::<f64>() / rates.len() as f64);
        }
    }
}
