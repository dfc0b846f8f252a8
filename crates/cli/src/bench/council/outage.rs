//! A council that is killed and started again while a node serves, and while others announce: does data suffer, is anything
//! forgotten?
//!
//! The node has one arm, so that its speed tells of the council alone. Those that announce are clients as nodes have them, each
//! in a context of its own: each announcement is one step of one bandit, and they can be counted.

use super::super::ionode::server::Server;
use super::live::{Council, ONLY, sub};
use crate::progress::progress;
use presagio_core::{Nanos, Op};
use presagio_council::wire::Announcement;
use presagio_council::{Client, ClientConfig, Proof, STORE, restore, store};
use presagio_ninep::OpenFlags;
use presagio_tune::{
    Arm, Arrived, Context, Features, Magnitude, Observation, Tuner, TunerSettings,
};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const PERIOD: Duration = Duration::from_millis(100);

/// Nodes that announce, besides the one that serves.
const ANNOUNCERS: u64 = 8;

/// Data servers that they have, so that their contexts are told from the node's.
const SERVERS: u32 = 1 << 20;

/// Clients that load the node.
const CLIENTS: usize = 8;
const BLOCK: usize = 32 << 10;

#[derive(Default)]
pub struct Found {
    pub kills: usize,
    /// Megabytes a second, in slices that take turns: left alone, and killed.
    slices: [Vec<f64>; 2],
    pub blocks: u64,
    pub wrong: u64,
    pub announced: u64,
    pub learned: u64,
}

impl Found {
    pub fn calm(&self) -> f64 {
        middle(&self.slices[0])
    }

    pub fn killed(&self) -> f64 {
        middle(&self.slices[1])
    }

    /// The middle of what pairs of slices give.
    pub fn share(&self) -> f64 {
        let [calm, killed] = &self.slices;
        let pairs = calm.iter().zip(killed).map(|(calm, killed)| killed / calm);
        middle(&pairs.collect::<Vec<_>>())
    }
}

fn middle(all: &[f64]) -> f64 {
    let mut all = all.to_vec();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

pub fn measure(dir: &Path, kills: usize) -> anyhow::Result<Found> {
    std::fs::create_dir_all(dir)?;
    let (council, address) = Council::start(dir, PERIOD)?;
    let period = PERIOD.as_secs_f64().to_string();
    let arguments = [
        "--emulate",
        "hdd",
        "--depth",
        "1",
        "--policy",
        "adaptive",
        "--arms",
        ONLY,
        "--period",
        &period,
        "--council",
        &address,
        "--council-name",
        "serves",
    ];
    let server = Server::presagio(&sub(dir, "export")?, &arguments)?;
    let load = Counted::default();
    let mut found = Found::default();
    std::thread::scope(|scope| {
        let stops = Stops(&load.stop);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (server, load) = (&server, &load);
                scope.spawn(move || write_and_read(server, number, load))
            })
            .collect();
        let announcers: Vec<_> = (0..ANNOUNCERS)
            .map(|number| {
                let (address, load) = (&address, &load);
                scope.spawn(move || announce(address, number, load))
            })
            .collect();
        let mut council = Some(council);
        let progress = progress(kills as u64);
        for _ in 0..kills {
            progress.set_message("killing a council");
            found.slices[0].push(load.slice(|| Ok(()))?);
            let killed = load.slice(|| {
                council = None;
                std::thread::sleep(4 * PERIOD);
                council = Some(Council::start(dir, PERIOD)?.0);
                Ok(())
            })?;
            found.slices[1].push(killed);
            found.kills += 1;
            progress.inc(1);
        }
        progress.finish_and_clear();
        drop(stops);
        for client in clients {
            client.join().expect("a client does not panic")?;
        }
        for announcer in announcers {
            found.announced += announcer.join().expect("an announcer does not panic")?;
        }
        anyhow::Ok(())
    })?;
    found.blocks = load.blocks.load(Relaxed);
    found.wrong = load.wrong.load(Relaxed);
    drop(server);
    found.learned = steps(&dir.join("store").join(STORE))?;
    Ok(found)
}

/// What clients have done.
#[derive(Default)]
struct Counted {
    stop: AtomicBool,
    blocks: AtomicU64,
    wrong: AtomicU64,
}

/// How long a slice is. A council lives for nearly two: long enough to have written what its nodes said late (`LATE_WAIT`), so that
/// the next one finds a store that some of it is in.
const SLICE: Duration = Duration::from_secs(4);

impl Counted {
    /// Megabytes a second in a slice in which something is done.
    fn slice(&self, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
        let (start, blocks) = (Instant::now(), self.blocks.load(Relaxed));
        work()?;
        std::thread::sleep(SLICE.saturating_sub(start.elapsed()));
        let blocks = self.blocks.load(Relaxed) - blocks;
        Ok(2.0 * blocks as f64 * BLOCK as f64 / 1e6 / start.elapsed().as_secs_f64())
    }
}

/// Says stop when it is dropped, whatever went wrong.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Writes blocks that are all different, and reads each back.
fn write_and_read(server: &Server, number: usize, load: &Counted) -> anyhow::Result<()> {
    let (_session, root) = server.connect()?;
    let file = root.create(format!("own-{number}"), OpenFlags::RDWR, 0o600)?;
    let (mut block, mut back) = (vec![0; BLOCK], vec![0; BLOCK]);
    let mut count = 0_u64;
    while !load.stop.load(Relaxed) {
        let mark = (count << 8 | number as u64).to_le_bytes();
        block
            .chunks_exact_mut(8)
            .for_each(|chunk| chunk.copy_from_slice(&mark));
        let at = count % 256 * BLOCK as u64;
        let written = file.write_at(at, &block)?;
        let read = file.read_at(at, &mut back)?;
        let is_right = (written, read) == (BLOCK, BLOCK) && back == block;
        load.wrong.fetch_add(u64::from(!is_right), Relaxed);
        load.blocks.fetch_add(1, Relaxed);
        count += 1;
    }
    Ok(())
}

/// Announces until the end, and until all of it is kept; how often it was something to learn from.
fn announce(address: &str, number: u64, load: &Counted) -> anyhow::Result<u64> {
    let client = Client::start(ClientConfig {
        council: address.parse()?,
        name: format!("announces-{number}"),
        epoch: 1 + number,
        proof: Proof::Kernel,
    })?;
    let (mut sequence, mut settled) = (0, 0);
    let mut arm: Arm = ONLY.parse()?;
    let patience = Duration::from_secs(60);
    let mut ended: Option<Instant> = None;
    loop {
        let is_over = load.stop.load(Relaxed);
        if is_over && client.state().unkept == 0 {
            return Ok(settled);
        }
        let since = ended.get_or_insert_with(Instant::now);
        if !is_over {
            *since = Instant::now();
        }
        anyhow::ensure!(since.elapsed() < patience, "what was announced is not kept");
        sequence += 1;
        settled += u64::from(!is_over);
        // What came after a while away: a node does at once as it is told.
        arm = client.take().map_or(arm, |it| it.arm);
        client.announce(announcement(sequence, number, arm, !is_over));
        arm = answered(&client, sequence).unwrap_or(arm);
        // Longer than a round, in which each is heard once.
        std::thread::sleep(PERIOD.mul_f64(1.2));
    }
}

/// What the council says, unless it is away: what it has said and was not heard would be missed as a lesson.
fn answered(client: &Client, sequence: u64) -> Option<Arm> {
    let late = Instant::now() + Duration::from_secs(10);
    while client.state().connected && Instant::now() < late {
        if let Some(decision) = client.take().filter(|it| it.sequence == sequence) {
            return Some(decision.arm);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

fn announcement(sequence: u64, number: u64, arm: Arm, settled: bool) -> Announcement {
    let size = 4096 << number;
    Announcement {
        sequence,
        arm,
        settled,
        again: false,
        observation: Observation {
            period: Nanos::from(PERIOD),
            busy: Nanos::from(PERIOD),
            served: 10 << 20,
            servers: SERVERS,
            clients: 8,
            processes: 32,
            arrived: Some(Arrived {
                op: Op::Write,
                requests: 320,
                features: Features {
                    handles: 32,
                    size_max: size,
                    size_min: size,
                    size_mean: size as f64,
                    distance: 0.0,
                    stride: 0.0,
                },
            }),
        },
        pattern: None,
    }
}

/// What was learned in the contexts of those that announce.
fn steps(path: &Path) -> anyhow::Result<u64> {
    let (_keeper, kept) = store::open(path)?;
    anyhow::ensure!(kept.set_aside.is_none(), "a kill has damaged the store");
    let mut tuner = Tuner::new(TunerSettings::default());
    restore(&mut tuner, &kept);
    let theirs = |context: &Context| match context {
        Context::Situation(it) => it.servers == Magnitude::of(SERVERS.into()),
        Context::Pattern(_) => false,
    };
    let contexts = tuner.contexts().filter(|(context, _)| theirs(context));
    Ok(contexts.map(|(_, bandit)| u64::from(bandit.steps())).sum())
}
