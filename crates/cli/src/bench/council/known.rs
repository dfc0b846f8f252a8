//! What a council that knows many contexts takes of memory: a store is filled, and a council started on it.

use super::crowd::{listening, memory};
use crate::ionode::control::ask;
use presagio_council::{STORE, store};
use presagio_ionode::Address;
use presagio_tune::{Context, Tuner, TunerSettings};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

pub struct Found {
    pub contexts: u64,
    pub empty_kib: f64,
    pub full_kib: f64,
    /// Bytes, as the council says.
    pub said: f64,
}

pub fn measure(dir: &Path, contexts: u32) -> anyhow::Result<Found> {
    let (full, empty) = (dir.join("full"), dir.join("empty"));
    std::fs::create_dir_all(&full)?;
    fill(&full, contexts)?;
    let (_, empty_kib) = council(&empty)?;
    let (status, full_kib) = council(&full)?;
    Ok(Found {
        contexts: status["contexts"].as_u64().unwrap_or(0),
        empty_kib,
        full_kib,
        said: status["memory_bytes"].as_f64().unwrap_or(f64::NAN),
    })
}

/// Every arm was tried in every context.
fn fill(dir: &Path, contexts: u32) -> anyhow::Result<()> {
    let mut tuner = Tuner::new(TunerSettings::default());
    let arms = TunerSettings::default().arms;
    for number in 0..contexts {
        for (at, arm) in arms.list().iter().enumerate() {
            tuner.learn(&Context::Pattern(number), *arm, 100.0 + at as f64);
        }
    }
    let (keeper, _) = store::open(&dir.join(STORE))?;
    keeper.keep_learned((&mut tuner, None), BTreeMap::new());
    Ok(())
}

/// What a council on a store says of itself, and how much memory it has.
fn council(store: &Path) -> anyhow::Result<(Value, f64)> {
    let control = Address::Unix(store.with_extension("control"));
    let mut council = Command::new(std::env::current_exe()?)
        .args(["council", "--listen", "tcp:127.0.0.1:0", "--store"])
        .arg(store)
        .args(["--control", &control.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let measured = listening(&mut council).and_then(|_| {
        let (_, status) = ask(&control, "GET", "/status")?;
        Ok((serde_json::from_str(&status)?, memory(council.id())?))
    });
    let _ = council.kill();
    let _ = council.wait();
    measured
}
