//! The strided clients on a real device that does so many operations a second: a loop device with a file system, whose
//! node leaves the page cache alone (`--direct`) and lives in a cgroup that is throttled. What reaches the device is the
//! kernel's own count.

use super::server::Server;
use super::strided;
use crate::bench::run::place::{Place, Storage, Throttle};
use std::path::Path;

/// Operations a second: as a few disks, or a share of a file server. So few that they are what is waited for, and not the
/// processors that 128 clients need.
pub const IOPS: u64 = 500;

/// What one policy came to.
pub struct Found {
    pub mb_per_s: f64,
    /// Reads at the device, and their average size.
    pub reads: u64,
    pub kib: f64,
}

/// The device.
pub struct Device {
    place: Place,
    blocks: usize,
}

impl Device {
    /// Sets it up below a directory; each client will read `blocks` blocks.
    pub fn new(below: &Path, blocks: usize) -> anyhow::Result<Device> {
        let place = Place::new(Storage::Loop, below)?;
        Ok(Device { place, blocks })
    }

    /// Measures one policy.
    pub fn run(&self, dir: &Path, policy: &str) -> anyhow::Result<Found> {
        let throttle = Throttle {
            iops: IOPS,
            ..Throttle::default()
        };
        let cgroup = self.place.limited(throttle)?;
        let command = cgroup.command(&std::env::current_exe()?);
        let arguments = ["--direct", "--policy", policy, "--depth", "1"];
        let export = self.place.dir.join("export");
        let server = Server::presagio_on(command, dir, &export, &arguments)?;
        strided::fill(&server, self.blocks)?;
        crate::bench::run::place::drop_caches()?;
        let before = self.place.counters()?;
        let mb_per_s = strided::run(&server, self.blocks)?;
        let after = self.place.counters()?;
        let (reads, bytes) = (after.reads - before.reads, after.bytes - before.bytes);
        Ok(Found {
            mb_per_s,
            reads,
            kib: bytes as f64 / 1024.0 / reads.max(1) as f64,
        })
    }
}
