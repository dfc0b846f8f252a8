//! `presagio ionode`: forwards a directory to clients, with the scheduler in the middle.

use crate::failure::failure;
use crate::size::Size;
use presagio_core::Nanos;
use presagio_ionode::{Address, Config, Node};
use presagio_sched::{PolicyKind, Settings};
use presagio_storage::{Directory, Storage};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// Forward a directory to clients over 9P2000.L, scheduling their requests
///
/// An I/O node stands between many clients and a file system that is mounted here. It keeps no data of its own: what
/// it has acknowledged is in the file system. Clients are `presagio mount`, `presagio run --forward`, Linux's own
/// `mount -t 9p`, and diod's tools.
///
/// As root, it does everything as the user who asks; else only for its own user. Who asks is told by the kernel on
/// Unix sockets and on TCP within this machine.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  presagio ionode --export /lustre --listen unix:/run/presagio.sock
  presagio ionode --export /scratch --listen tcp:127.0.0.1:5640 \\
      --policy aIOLi --depth 4
  diodcat -s 127.0.0.1:5640 -a /scratch file       read with diod's client
  mount -t 9p -o trans=unix,version=9p2000.L /run/presagio.sock /mnt
                                                   mount with Linux's own")]
pub struct Args {
    /// The directory to forward
    #[arg(long, value_name = "DIR")]
    export: PathBuf,
    /// Where to listen: unix:PATH or tcp:HOST:PORT; may be given several times
    #[arg(long, value_name = "ADDRESS", required = true)]
    listen: Vec<Address>,
    /// How requests are scheduled (`presagio sched list` explains each)
    #[arg(long, value_name = "NAME", ignore_case = true, default_value = "TO-agg", value_parser = crate::sched::compare::policy_names())]
    policy: PolicyKind,
    /// Requests that the storage gets at a time; the others wait in the scheduler
    #[arg(long, value_name = "N")]
    depth: Option<usize>,
    /// The number of this node among those that share the storage, from 0
    #[arg(long, value_name = "N", default_value_t = 0)]
    node_id: u32,
    /// How long TWINS serves one data server, in microseconds
    #[arg(long, value_name = "US", default_value_t = 1000)]
    window: u64,
    /// Let nothing be changed
    #[arg(long)]
    read_only: bool,
    /// Memory for data that is under way
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    memory: Size,
    /// Threads for what takes long
    #[arg(long, value_name = "N", default_value_t = 64)]
    threads: usize,
    /// Threads that serve connections [default: one per core]
    #[arg(long, value_name = "N")]
    loops: Option<usize>,
    /// Believe whoever can reach a TCP address: only on a network that you trust
    #[arg(long)]
    trust_network: bool,
    /// If not root: act as this user for everybody who can connect
    #[arg(long)]
    squash: bool,
}

impl Args {
    fn config(&self) -> Config {
        let mut config = Config::new(&self.export);
        config.settings = Settings::new(self.policy);
        config.settings.twins_node = self.node_id;
        config.settings.twins_window = Nanos::from_micros(self.window);
        config.depth = self.depth;
        config.read_only = self.read_only;
        config.memory_max = self.memory.0 as usize;
        config.threads_max = self.threads;
        config.loops = self.loops.unwrap_or(config.loops);
        config.squash = self.squash;
        config
    }
}

/// How long clients are answered after the node was told to end.
const DRAIN: Duration = Duration::from_secs(10);

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // Before there are threads: they inherit it.
    let signals = crate::advisor::ending_signals();
    // Permissions are the clients' to choose.
    rustix::process::umask(rustix::fs::Mode::empty());
    let storage: Arc<dyn Storage> = Arc::new(Directory);
    let node = Node::start(args.config(), storage, &args.listen, args.trust_network)
        .map_err(|error| failure("the node cannot start", error, "see presagio help ionode"))?;
    for address in node.addresses() {
        eprintln!("presagio ionode: {} on {address}", args.export.display());
    }
    crate::advisor::wait_for(&signals);
    node.drain(DRAIN);
    Ok(ExitCode::SUCCESS)
}
