//! A live node on an emulated disk: what adapting costs it, and where it ends.

use super::super::ionode::server::Server;
use crate::progress::progress;
use presagio_ninep::OpenFlags;
use presagio_ninep::session::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Clients that load a node.
pub const CLIENTS: usize = 32;
const BLOCK: usize = 32 << 10;
/// Blocks of the shared file, and of each client's own.
const SHARED: u64 = 8192;
const OWN: u64 = 256;

/// What can be chosen.
pub const ARMS: [&str; 5] = ["NOOP", "SJF", "TO-agg", "MLF", "TWINS:1ms"];

pub struct Plan {
    pub period: Duration,
    /// How long each static choice is measured in each phase.
    pub fixed: Duration,
    /// How long a phase is, and how often all of them come.
    pub phase: Duration,
    pub repetitions: usize,
}

/// What a node did.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    pub mb_per_s: f64,
    pub cpu_us: f64,
}

/// A round of both.
pub struct Pair {
    pub fixed: Speed,
    pub adaptive: Speed,
}

/// What clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// All read one file, taking turns.
    Strided,
    /// Each writes a file of its own, in order.
    OwnFiles,
}

impl Phase {
    const ALL: [Phase; 2] = [Phase::Strided, Phase::OwnFiles];

    const fn name(self) -> &'static str {
        match self {
            Phase::Strided => "strided reads of one file",
            Phase::OwnFiles => "writes to own files",
        }
    }
}

/// What came of a phase.
pub struct Outcome {
    pub name: &'static str,
    /// By arm, megabytes a second.
    pub fixed: Vec<(String, f64)>,
    /// By kind of context, by repetition.
    pub adaptive: [Vec<f64>; 2],
}

/// What contexts are.
pub const KINDS: [&str; 2] = ["parameters", "pattern"];

impl Outcome {
    pub fn best(&self) -> (&str, f64) {
        let best = self.fixed.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        best.map_or(("", f64::NAN), |(arm, speed)| (arm, *speed))
    }
}

/// After the first half of the repetitions: the middle of the others.
pub fn after_the_first(repetitions: &[f64]) -> f64 {
    let mut last = repetitions[repetitions.len() / 2..].to_vec();
    last.sort_by(f64::total_cmp);
    last[last.len() / 2]
}

/// The one arm of those whose speed is to tell of all else: a council that has others to try would try them.
pub const ONLY: &str = "TO-agg";

/// A council that runs until it is dropped.
pub struct Council(Child);

impl Council {
    pub fn start(dir: &Path, period: Duration) -> anyhow::Result<(Council, String)> {
        let socket = dir.join("council");
        let address = format!("unix:{}", socket.display());
        let child = Command::new(std::env::current_exe()?)
            .args(["council", "--listen", &address, "--seed", "1", "--store"])
            .arg(dir.join("store"))
            .args(["--period", &period.as_secs_f64().to_string()])
            .args(["--consensus", "context", "--arms", ONLY])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok((Council(child), address))
    }
}

impl Drop for Council {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The same policy, given and kept by adapting under a council, in turns.
pub fn overhead(dir: &Path, rounds: usize) -> anyhow::Result<Vec<Pair>> {
    std::fs::create_dir_all(dir)?;
    let device = ["--emulate", "hdd", "--depth", "1"];
    let fixed = Server::presagio(
        &sub(dir, "fixed")?,
        &[&device[..], &["--policy", ONLY]].concat(),
    )?;
    let (_council, address) = Council::start(dir, Duration::from_millis(250))?;
    let learning = [
        "--policy",
        "adaptive",
        "--arms",
        ONLY,
        "--period",
        "0.25",
        "--council",
        &address,
    ];
    let adaptive = Server::presagio(&sub(dir, "adaptive")?, &[&device[..], &learning].concat())?;
    let (one, other) = (Load::new(&fixed)?, Load::new(&adaptive)?);
    let long = Duration::from_millis(1500);
    let mut pairs = Vec::new();
    let progress = progress(rounds as u64);
    for round in 0..rounds {
        progress.set_message("adapting with one arm");
        let measure = |server: &Server, load: &Load| {
            let (cpu, requests) = (server.cpu(), load.requests.load(Relaxed));
            let mb_per_s = load.run(Phase::Strided, long)?;
            let requests = load.requests.load(Relaxed) - requests;
            let cpu_us = (server.cpu() - cpu).as_secs_f64() * 1e6 / requests.max(1) as f64;
            anyhow::Ok(Speed { mb_per_s, cpu_us })
        };
        // Who is first changes: what the first leaves behind meets both.
        let pair = match round % 2 {
            0 => {
                let fixed = measure(&fixed, &one)?;
                let adaptive = measure(&adaptive, &other)?;
                Pair { fixed, adaptive }
            }
            _ => {
                let adaptive = measure(&adaptive, &other)?;
                let fixed = measure(&fixed, &one)?;
                Pair { fixed, adaptive }
            }
        };
        pairs.push(pair);
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(pairs)
}

/// Each static choice in each phase, then a node that adapts while phases come and go.
pub fn phases(dir: &Path, plan: &Plan) -> anyhow::Result<Vec<Outcome>> {
    std::fs::create_dir_all(dir)?;
    let steps = ARMS.len() + KINDS.len() * plan.repetitions;
    let progress = progress(steps as u64);
    let mut found: Vec<Outcome> = Phase::ALL
        .iter()
        .map(|phase| Outcome {
            name: phase.name(),
            fixed: Vec::new(),
            adaptive: Default::default(),
        })
        .collect();
    let device = ["--emulate", "hdd", "--depth", "1"];
    for arm in ARMS {
        progress.set_message(format!("{arm} on a disk"));
        let (policy, window) = match arm.split_once(':') {
            Some((policy, _)) => (policy, "1000"),
            None => (arm, "1000"),
        };
        let arguments = [&device[..], &["--policy", policy, "--window", window]].concat();
        let server = Server::presagio(&sub(dir, &arm.replace(':', "-"))?, &arguments)?;
        let load = Load::new(&server)?;
        for (phase, outcome) in Phase::ALL.into_iter().zip(&mut found) {
            outcome
                .fixed
                .push((arm.to_owned(), load.run(phase, plan.fixed)?));
        }
        progress.inc(1);
    }
    let (period, arms) = (plan.period.as_secs_f64().to_string(), ARMS.join(","));
    for (at, kind) in KINDS.into_iter().enumerate() {
        let learning = [
            "--policy",
            "adaptive",
            "--period",
            &period,
            "--arms",
            &arms,
            "--seed",
            "1",
            "--context",
            kind,
        ];
        let server = Server::presagio(&sub(dir, kind)?, &[&device[..], &learning].concat())?;
        let load = Load::new(&server)?;
        for _ in 0..plan.repetitions {
            progress.set_message(format!("adapting by {kind}"));
            for (phase, outcome) in Phase::ALL.into_iter().zip(&mut found) {
                outcome.adaptive[at].push(load.run(phase, plan.phase)?);
            }
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    Ok(found)
}

pub fn sub(dir: &Path, name: &str) -> anyhow::Result<std::path::PathBuf> {
    let path = dir.join(name);
    std::fs::create_dir_all(&path)?;
    Ok(path)
}

/// Clients that are connected to a node.
pub struct Load {
    clients: Vec<(File, File, presagio_ninep::session::Session)>,
    requests: AtomicU64,
}

impl Load {
    pub fn new(server: &Server) -> anyhow::Result<Load> {
        let shared = std::fs::File::create(server.export().join("shared"))?;
        shared.set_len(SHARED * BLOCK as u64)?;
        let client = |number: usize| -> anyhow::Result<_> {
            let (session, root) = server.connect()?;
            let mut shared = root.walk("shared")?;
            shared.open(OpenFlags::RDONLY)?;
            let own = root.create(format!("own-{number}"), OpenFlags::RDWR, 0o600)?;
            Ok((shared, own, session))
        };
        Ok(Load {
            clients: (0..CLIENTS).map(client).collect::<anyhow::Result<_>>()?,
            requests: AtomicU64::new(0),
        })
    }

    /// Loads the node for so long; megabytes a second.
    pub fn run(&self, phase: Phase, long: Duration) -> anyhow::Result<f64> {
        let (stop, bytes) = (AtomicBool::new(false), AtomicU64::new(0));
        let start = Instant::now();
        std::thread::scope(|scope| {
            let turns: Vec<_> = self
                .clients
                .iter()
                .enumerate()
                .map(|(number, (shared, own, _))| {
                    let (stop, bytes) = (&stop, &bytes);
                    scope.spawn(move || turn(phase, number, (shared, own), stop, bytes))
                })
                .collect();
            std::thread::sleep(long);
            stop.store(true, Relaxed);
            for turn in turns {
                turn.join().expect("a client does not panic")?;
            }
            anyhow::Ok(())
        })?;
        let bytes = bytes.load(Relaxed);
        self.requests.fetch_add(bytes / BLOCK as u64, Relaxed);
        Ok(bytes as f64 / 1e6 / start.elapsed().as_secs_f64())
    }
}

fn turn(
    phase: Phase,
    number: usize,
    (shared, own): (&File, &File),
    stop: &AtomicBool,
    bytes: &AtomicU64,
) -> anyhow::Result<()> {
    let mut block = vec![7; BLOCK];
    let mut row = 0;
    while !stop.load(Relaxed) {
        let count = match phase {
            Phase::Strided => {
                let at = (row * CLIENTS as u64 + number as u64) % SHARED;
                shared.read_at(at * BLOCK as u64, &mut block)?
            }
            Phase::OwnFiles => own.write_at(row % OWN * BLOCK as u64, &block)?,
        };
        anyhow::ensure!(count == BLOCK, "a short one");
        bytes.fetch_add(count as u64, Relaxed);
        row += 1;
    }
    Ok(())
}
