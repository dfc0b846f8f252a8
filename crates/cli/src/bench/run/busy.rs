//! What of a processor the manager takes: of a program that reads as fast as it can, and of one that computes between reads.
//!
//! Everything is in memory: what the manager does is then all its own, and no work of the system's that the program would else
//! have done.

use super::load::make_file;
use super::{Effort, Plan, load_of, median};
use crate::bench::Bar;
use anyhow::{Context, ensure};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// What is measured.
pub const NAME: &str = "manager's share of a core";

/// A program: what it is called, the microseconds that it computes between reads, how many reads, and the share at most.
struct Pace(&'static str, &'static str, u64, f64);

/// What a flood is made of is only counted: to think about all of it takes half of a core.
const PACES: [Pace; 2] = [
    Pace("flooded", "0", 2_000_000, 0.15),
    Pace("0.3 ms apart", super::COMPUTE, 5_000, 0.1),
];

/// A read, and the file.
const SIZE: u64 = 4096;
const FILE: u64 = 64 << 20;

impl Plan {
    /// A bar for each pace: the middle of some rounds.
    pub fn busy(&self) -> Vec<Bar> {
        let dir = tempfile::tempdir_in(&self.dir).context("no directory");
        let file = dir.and_then(|dir| {
            make_file(&dir.path().join("data"), FILE)?;
            Ok(dir)
        });
        let bar = |pace: &Pace| {
            let Pace(name, .., limit) = *pace;
            let bar = |share| Bar::at_most(format!("{NAME}, {name}"), share, "", limit);
            let dir = file.as_ref().map_err(|why| format!("{why:#}"));
            let shares = dir.and_then(|dir| {
                let shares = (0..self.rounds().min(3)).map(|_| self.share(dir.path(), pace));
                let shares: anyhow::Result<Vec<f64>> = shares.collect();
                shares.map_err(|why| crate::failure::one_line(&why))
            });
            match shares {
                Ok(shares) => bar(median(shares)),
                Err(why) => bar(0.0).not_measured(why),
            }
        };
        PACES.iter().map(bar).collect()
    }

    /// The manager's processor time over that of the clock.
    fn share(&self, dir: &Path, Pace(_, compute, reads, _): &Pace) -> anyhow::Result<f64> {
        let reads = match self.effort {
            Effort::Full => *reads,
            Effort::Quick => *reads / 2,
            Effort::Tiny => *reads / 100,
        };
        let json = dir.join("summary.json");
        let mut command = Command::new(&self.presagio);
        command.args(["run", "--quiet", "--no-model", "--json"]);
        command.arg(&json).arg("--").arg(&self.presagio);
        command.args(load_of("random", &dir.join("data"), (SIZE, reads), compute));
        let output = command.stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the load failed: {}", said.trim());
        let summary: Value = serde_json::from_slice(&std::fs::read(json)?)?;
        let number = |name: &str| summary[name].as_f64().unwrap_or(f64::NAN);
        Ok(number("manager_cpu_ns") / number("elapsed_ns"))
    }
}
