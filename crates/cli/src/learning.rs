//! How something that learns is set up, for `presagio council` and `presagio ionode --policy adaptive` alike.

use crate::failure::failure;
use presagio_tune::{Arms, Detector, Drive, Selector, Strategy, TunerSettings, WarmStart};
use std::path::PathBuf;

const HEADING: &str = "Learning";

/// What both have in common.
#[derive(clap::Args, Clone, Debug)]
#[group(id = "learning-args")]
pub struct Learning {
    /// What can be chosen, with commas between; the first is safe [default: NOOP, TWINS with windows of 0.125 to 8 ms, TO,
    /// TO-agg, SJF, MLF, aIOLi, HBRR]
    #[arg(long, value_name = "ARM,...", value_parser = Arms::parse, help_heading = HEADING)]
    arms: Option<Arms>,
    /// How: greedy:E, decaying:E:HALF, ucb1:WIDTH, thompson, or windowed:WINDOW:PATIENCE, which follows changes
    #[arg(long, value_name = "HOW", default_value_t = Strategy::default(), help_heading = HEADING)]
    strategy: Strategy,
    /// What a situation is: parameters (what can be counted, as paper 001 lists), or pattern (the access pattern that the period
    /// matches, as paper 000 has it; under a council one knowledge base serves all nodes)
    #[arg(long, value_name = "KIND", default_value = "parameters", help_heading = HEADING)]
    context: ContextKind,
    /// What tells accesses apart, for --context parameters: a network or tree that `presagio train --network` wrote [default: the
    /// one that comes with Presagio]
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    network: Option<PathBuf>,
    /// Situations that are remembered; past that the rarest is forgotten
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000), help_heading = HEADING)]
    contexts: u32,
    /// Where chance begins [default: another place each time]
    #[arg(long, value_name = "N", help_heading = HEADING)]
    seed: Option<u64>,
}

/// What a situation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ContextKind {
    Parameters,
    Pattern,
}

impl Learning {
    /// Whether situations are matched patterns.
    pub fn patterns(&self) -> bool {
        self.context == ContextKind::Pattern
    }

    /// Arms, and how they are chosen.
    pub fn settings(&self) -> TunerSettings {
        TunerSettings {
            arms: self.arms.clone().unwrap_or_default(),
            strategy: self.strategy,
            contexts_max: self.contexts as usize,
            seed: self.seed.unwrap_or_else(chance),
        }
    }

    /// What tells accesses apart.
    pub fn detector(&self) -> anyhow::Result<Detector> {
        crate::train::detector(self.network.as_ref())
    }
}

/// What suits a situation that was never seen: the trees, if the device is known.
pub fn warm_start(
    profile: Option<&str>,
    trees: Option<&PathBuf>,
) -> anyhow::Result<Option<WarmStart>> {
    let Some(profile) = profile else {
        return Ok(None);
    };
    let drive = Drive::new(crate::model::find(profile)?);
    let trees = crate::train::trees(trees)?;
    Ok(Some(WarmStart::new(trees, Some(drive), Selector::STRIPE)))
}

/// A number that nobody else has.
pub fn chance() -> u64 {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_le_bytes(bytes),
        _ => presagio_council::unix_ms() << 20 | u64::from(std::process::id()),
    }
}

/// A period that somebody gave in seconds.
pub fn period(seconds: f64) -> anyhow::Result<std::time::Duration> {
    let period = crate::nodes::seconds(seconds, "--period")?;
    match (0.01..=3600.0).contains(&seconds) {
        true => Ok(period),
        false => Err(failure(
            format!("--period {seconds}"),
            "a period has 10 ms to an hour",
            "use seconds, for example 1",
        )),
    }
}
