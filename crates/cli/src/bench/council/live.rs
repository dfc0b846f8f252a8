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
    /// How long a phase is.
    pub phase: Duration,
    /// How often all of them come while nodes learn, and the best static choice is found; and after that.
    pub learning: usize,
    pub judged: usize,
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
    pub fixed: Vec<Rounds>,
    /// By kind of context.
    pub adaptive: Vec<Rounds>,
}

/// What a node did in a phase, round by round: megabytes a second.
pub struct Rounds {
    pub node: &'static str,
    pub learning: Vec<f64>,
    /// Empty for static choices that were not the best while others learned.
    pub judged: Vec<f64>,
}

impl Rounds {
    fn new(node: &'static str) -> Rounds {
        Rounds {
            node,
            learning: Vec::new(),
            judged: Vec::new(),
        }
    }

    /// What counts; none of what was not measured.
    pub fn speed(&self) -> f64 {
        median(&self.judged)
    }
}

/// What contexts are.
pub const KINDS: [&str; 2] = ["parameters", "pattern"];

impl Outcome {
    fn new(phase: Phase) -> Outcome {
        Outcome {
            name: phase.name(),
            fixed: ARMS.map(Rounds::new).into(),
            adaptive: KINDS.map(Rounds::new).into(),
        }
    }

    /// The best static choice, by the rounds in which nodes learn. What it gives is measured in others: the best of several
    /// figures is too good to be compared with in the rounds that made it the best.
    pub fn best(&self) -> &Rounds {
        let speed = |rounds: &&Rounds| median(&rounds.learning);
        let best = self.fixed.iter();
        best.max_by(|a, b| speed(a).total_cmp(&speed(b)))
            .expect("there are arms")
    }
}

fn median(speeds: &[f64]) -> f64 {
    let mut speeds = speeds.to_vec();
    speeds.sort_by(f64::total_cmp);
    speeds.get(speeds.len() / 2).copied().unwrap_or(f64::NAN)
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
    let fixed = Server::presagio(
        &sub(dir, "fixed")?,
        &[&DEVICE[..], &["--policy", ONLY]].concat(),
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
    let adaptive = Server::presagio(&sub(dir, "adaptive")?, &[&DEVICE[..], &learning].concat())?;
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

/// Static choices and nodes that adapt, in turns, while phases come and go. Each has a node and an emulated disk of its own, of
/// which one works at a time.
pub fn phases(dir: &Path, plan: &Plan) -> anyhow::Result<Vec<Outcome>> {
    std::fs::create_dir_all(dir)?;
    let mut found = Phase::ALL.map(Outcome::new);
    let fixed = ARMS.iter().map(|arm| static_node(dir, arm));
    let fixed = fixed.collect::<anyhow::Result<Vec<_>>>()?;
    let adaptive = KINDS.iter();
    let adaptive = adaptive.map(|kind| adaptive_node(dir, kind, plan.period));
    let adaptive = adaptive.collect::<anyhow::Result<Vec<_>>>()?;
    let rounds = plan.learning + plan.judged;
    let progress = progress((rounds * Phase::ALL.len()) as u64);
    for round in 0..rounds {
        let is_judged = round >= plan.learning;
        for (phase, outcome) in Phase::ALL.into_iter().zip(&mut found) {
            progress.set_message(format!("{}, round {}", phase.name(), round + 1));
            let best = is_judged.then(|| outcome.best().node);
            let fixed = fixed.iter().zip(&mut outcome.fixed);
            let fixed = fixed.filter(|(_, rounds)| best.is_none_or(|best| best == rounds.node));
            let adaptive = adaptive.iter().zip(&mut outcome.adaptive);
            let mut turns: Vec<_> = fixed.chain(adaptive).collect();
            // Who is first changes: what the first leaves behind meets all.
            if round % 2 == 1 {
                turns.reverse();
            }
            for ((_, load), rounds) in turns {
                let speed = load.run(phase, plan.phase)?;
                match is_judged {
                    true => rounds.judged.push(speed),
                    false => rounds.learning.push(speed),
                }
            }
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    Ok(found.into())
}

const DEVICE: [&str; 4] = ["--emulate", "hdd", "--depth", "1"];

/// A node with this policy, and who loads it.
fn static_node(dir: &Path, arm: &str) -> anyhow::Result<(Server, Load)> {
    let policy = arm.split_once(':').map_or(arm, |(policy, _)| policy);
    let arguments = [&DEVICE[..], &["--policy", policy, "--window", "1000"]].concat();
    loaded(&sub(dir, &arm.replace(':', "-"))?, &arguments)
}

/// A node that adapts, by contexts of this kind.
fn adaptive_node(dir: &Path, kind: &str, period: Duration) -> anyhow::Result<(Server, Load)> {
    let (period, arms) = (period.as_secs_f64().to_string(), ARMS.join(","));
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
    loaded(&sub(dir, kind)?, &[&DEVICE[..], &learning].concat())
}

fn loaded(dir: &Path, arguments: &[&str]) -> anyhow::Result<(Server, Load)> {
    let server = Server::presagio(dir, arguments)?;
    let load = Load::new(&server)?;
    Ok((server, load))
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
