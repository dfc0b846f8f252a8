//! What scheduling adds to a request that finds nobody else there.
//!
//! One node, one connection, one read at a time. The policy is switched while they run, so that whatever the machine does
//! to this pair of processes (a wake-up to another core costs more than all of scheduling) it does under every policy.

use super::server::Server;
use crate::ionode::control::ask;
use presagio_core::{FileId, Op, Range, Request, RequestId};
use presagio_engine::{Engine, EngineConfig, Service};
use presagio_ninep::OpenFlags;
use presagio_sched::{Batch, PolicyKind, Settings};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

/// What one hot 4 KiB read took.
pub struct Latency {
    /// Median microseconds under each policy, by round.
    pub rounds: Vec<[f64; 10]>,
    /// Median microseconds from a read's arrival to its dispatch, under the slowest policy.
    pub queued: f64,
}

/// Measures, with so many reads a policy and round.
pub fn run(dir: &Path, rounds: usize, reads: usize) -> anyhow::Result<Latency> {
    let server = Server::presagio(dir, &[])?;
    std::fs::write(server.export().join("file"), vec![7; 1 << 20])?;
    let (session, root) = server.connect()?;
    let mut file = root.walk("file")?;
    file.open(OpenFlags::RDONLY)?;
    let (client, mut block) = (session.client(), vec![0; 4096]);
    let mut all = Vec::new();
    for _ in 0..rounds {
        let mut medians = [0.0; 10];
        for (policy, median) in PolicyKind::ALL.iter().zip(&mut medians) {
            let (status, why) = ask(&server.control(), "POST", &format!("/policy?name={policy}"))?;
            anyhow::ensure!(status == 200, "{why}");
            let mut times = Vec::with_capacity(reads);
            for at in 0..reads as u64 {
                let start = Instant::now();
                client.read(file.fid(), at * 7919 % 256 * 4096, &mut block)?;
                times.push(start.elapsed().as_nanos() as f64 / 1e3);
            }
            times.sort_by(f64::total_cmp);
            *median = times[reads / 2];
        }
        all.push(medians);
    }
    Ok(Latency {
        rounds: all,
        queued: queued(reads)?,
    })
}

/// What the engine of a node takes from a request's arrival to its dispatch, under the policy that takes longest. The node's own
/// figures do not tell: there, one reading of the clock serves for both, where nothing had to wait. Here each has its own.
fn queued(reads: usize) -> anyhow::Result<f64> {
    let mut worst = 0.0f64;
    for policy in PolicyKind::ALL {
        let (sender, stamps) = channel();
        let engine = Engine::start(
            EngineConfig::new(Settings::new(policy)),
            Arc::new(Stamp(sender)),
        )?;
        let mut times = Vec::with_capacity(reads);
        for at in 0..reads as u64 {
            let range = Range::at(at * 7919 % 256 * 4096, 4096);
            let read = Request::new(RequestId(at), FileId(1), Op::Read, range);
            let start = Instant::now();
            let ticket = engine.submit(read)?;
            let dispatched = stamps.recv()?;
            engine.finish(ticket);
            times.push(dispatched.duration_since(start).as_nanos() as f64 / 1e3);
        }
        engine.shutdown();
        times.sort_by(f64::total_cmp);
        worst = worst.max(times[reads / 2]);
    }
    Ok(worst)
}

/// Says when something is dispatched.
struct Stamp(Sender<Instant>);

impl Service for Stamp {
    fn dispatch(&self, _: &Engine, _: Batch) {
        // Whoever measures is there until the last.
        let _ = self.0.send(Instant::now());
    }
}
