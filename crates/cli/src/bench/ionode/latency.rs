//! What scheduling adds to a request that finds nobody else there.
//!
//! One node, one connection, one read at a time. The policy is switched while they run, so that whatever the machine does
//! to this pair of processes (a wake-up to another core costs more than all of scheduling) it does under every policy.

use super::server::Server;
use crate::ionode::control::ask;
use anyhow::Context;
use presagio_ninep::OpenFlags;
use presagio_sched::PolicyKind;
use std::path::Path;
use std::time::Instant;

/// What one hot 4 KiB read took.
pub struct Latency {
    /// Median microseconds under each policy, by round.
    pub rounds: Vec<[f64; 10]>,
    /// Median microseconds from a read's arrival to its dispatch, as the node itself saw them, over all policies.
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
        queued: queued(&server)?,
    })
}

fn queued(server: &Server) -> anyhow::Result<f64> {
    let (_, status) = ask(&server.control(), "GET", "/status")?;
    let status: serde_json::Value = serde_json::from_str(&status)?;
    let median = status.pointer("/operations/read/queue_ns_p50");
    let median = median.and_then(|ns| ns.as_f64());
    Ok(median.context("the node's status does not say how long reads were queued")? / 1e3)
}
