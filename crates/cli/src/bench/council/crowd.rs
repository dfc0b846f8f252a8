//! Many nodes on one thread: each announces once a period at a moment of its own, and does what it is told.
//!
//! What an arm gives in a situation is made up, with some noise; so the council has something to learn, and it can be said
//! how often it told nodes the best. Where contexts are patterns, each situation has one, with some noise too.

use crate::ionode::control::ask;
use presagio_core::{FileId, Histogram, Nanos, Op, Range};
use presagio_council::wire::{Announcement, FRAME_MAX, Hello, Message};
use presagio_ionode::Address;
use presagio_ninep::Frames;
use presagio_pattern::{Pattern, Recorder, Settings};
use presagio_tune::{Arm, Arms, Arrived, Features, Observation, Random};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The nodes' period.
const PERIOD: Duration = Duration::from_secs(1);

/// Situations that nodes are in.
const SITUATIONS: usize = 12;

/// How often all nodes announce at one moment.
const BURSTS: usize = 9;

/// How much a reward is off from what the arm gives.
const NOISE: f64 = 0.02;

pub struct Crowd {
    council: Child,
    control: Address,
    nodes: Vec<Node>,
    epoll: OwnedFd,
    random: Random,
    /// Makes patterns, where contexts are such.
    recorder: Option<Recorder>,
    _one_core: OneCore,
}

struct Node {
    stream: TcpStream,
    frames: Frames,
    sequence: u64,
    arm: Arm,
    settled: bool,
    situation: usize,
    next: Instant,
    asked: Option<Instant>,
}

pub struct Found {
    pub answers: Histogram,
    pub decision_ns_p50: f64,
    pub decision_ns_p99: f64,
    pub decision_ns_max: f64,
    /// When all announce at one moment, until the last is answered: a few times, in order of time that it took.
    bursts_ns: Vec<f64>,
    pub cpu_share: f64,
    /// In KiB.
    pub memory_early: f64,
    pub memory_end: f64,
    pub best_share: f64,
}

impl Found {
    /// When all announce at one moment, until the last is answered: the median.
    pub fn burst_ns(&self) -> f64 {
        self.bursts_ns[self.bursts_ns.len() / 2]
    }

    /// The same, the slowest.
    pub fn burst_ns_max(&self) -> f64 {
        self.bursts_ns.iter().copied().fold(0.0, f64::max)
    }
}

impl Crowd {
    /// Starts a council, and connects the nodes; all on one core, where that can be had.
    pub fn start(dir: &Path, nodes: usize, patterns: bool) -> anyhow::Result<Crowd> {
        std::fs::create_dir_all(dir)?;
        let control = Address::Unix(dir.join("control"));
        let one_core = OneCore::new();
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args([
                "council",
                "--listen",
                "tcp:127.0.0.1:0",
                "--seed",
                "1",
                "--store",
            ])
            .arg(dir.join("store"))
            .args(["--control", &control.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if patterns {
            command.args(["--context", "pattern"]);
        }
        let mut council = command.spawn()?;
        let address = listening(&mut council)?;
        let random = Random::new(7);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut all = Vec::new();
        for number in 0..nodes {
            let node = Node::connect(&address, number)?;
            let data = EventData::new_u64(number as u64);
            epoll::add(&epoll, &node.stream, data, EventFlags::IN)?;
            all.push(node);
        }
        Ok(Crowd {
            council,
            control,
            nodes: all,
            epoll,
            random,
            recorder: patterns.then(|| Recorder::new(&Settings::ours())),
            _one_core: one_core,
        })
    }

    /// Announces for so long.
    pub fn run(mut self, long: Duration) -> anyhow::Result<Found> {
        let mut answers = Histogram::default();
        let (start, cpu) = (Instant::now(), cpu(self.council.id())?);
        for node in &mut self.nodes {
            // Each at a moment of its own: what came due while others connected would come at once.
            node.next = start + PERIOD.mul_f64(self.random.below(1000) as f64 / 1000.0);
        }
        self.announce_until(start + long / 4, &mut answers, &mut Told::default())?;
        let memory_early = memory(self.council.id())?;
        self.announce_until(start + long * 3 / 4, &mut answers, &mut Told::default())?;
        let mut told = Told::default();
        self.announce_until(start + long, &mut answers, &mut told)?;
        let elapsed = start.elapsed().as_secs_f64();
        let cpu_share = (cpu_after(self.council.id(), cpu)?) / elapsed;
        let memory_end = memory(self.council.id())?;
        let bursts = (0..BURSTS).map(|_| self.burst());
        let mut bursts_ns = bursts.collect::<anyhow::Result<Vec<f64>>>()?;
        bursts_ns.sort_by(f64::total_cmp);
        let (_, status) = ask(&self.control, "GET", "/status")?;
        let status: Value = serde_json::from_str(&status)?;
        let figure = |name: &str| status[name].as_f64().unwrap_or(f64::NAN);
        Ok(Found {
            answers,
            decision_ns_p50: figure("decision_ns_p50"),
            decision_ns_p99: figure("decision_ns_p99"),
            decision_ns_max: figure("decision_ns_max"),
            bursts_ns,
            cpu_share,
            memory_early,
            memory_end,
            best_share: told.share(),
        })
    }

    fn announce_until(
        &mut self,
        until: Instant,
        answers: &mut Histogram,
        told: &mut Told,
    ) -> anyhow::Result<()> {
        let mut events = Vec::with_capacity(512);
        loop {
            let now = Instant::now();
            if now >= until {
                return Ok(());
            }
            let mut next = until;
            for node in &mut self.nodes {
                if node.next <= now {
                    node.announce(&mut self.random, self.recorder.as_mut())?;
                }
                next = next.min(node.next);
            }
            let wait = next.saturating_duration_since(Instant::now());
            self.hear(&mut events, wait, answers, told)?;
        }
    }

    fn hear(
        &mut self,
        events: &mut Vec<epoll::Event>,
        wait: Duration,
        answers: &mut Histogram,
        told: &mut Told,
    ) -> anyhow::Result<()> {
        let wait = rustix::time::Timespec::try_from(wait)?;
        let room = rustix::buffer::spare_capacity(events);
        let _ = epoll::wait(&self.epoll, room, Some(&wait));
        for event in events.drain(..) {
            let number = event.data.u64() as usize;
            self.nodes[number].hear(answers, told)?;
        }
        Ok(())
    }

    /// All announce at one moment.
    fn burst(&mut self) -> anyhow::Result<f64> {
        let (mut answers, mut told) = (Histogram::default(), Told::default());
        let mut events = Vec::with_capacity(512);
        let start = Instant::now();
        for node in &mut self.nodes {
            node.announce(&mut self.random, self.recorder.as_mut())?;
        }
        while self.nodes.iter().any(|node| node.asked.is_some()) {
            anyhow::ensure!(start.elapsed() < Duration::from_secs(10), "no answer");
            self.hear(
                &mut events,
                Duration::from_millis(5),
                &mut answers,
                &mut told,
            )?;
        }
        Ok(start.elapsed().as_nanos() as f64)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        let _ = self.council.kill();
        let _ = self.council.wait();
    }
}

/// How often the best arm was told.
#[derive(Default)]
struct Told {
    best: u64,
    all: u64,
}

impl Told {
    fn share(&self) -> f64 {
        self.best as f64 / self.all.max(1) as f64
    }
}

impl Node {
    fn connect(address: &str, number: usize) -> anyhow::Result<Node> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut node = Node {
            stream,
            frames: Frames::new(FRAME_MAX),
            sequence: 0,
            arm: Arms::default().safe(),
            settled: true,
            situation: number % SITUATIONS,
            next: Instant::now(),
            asked: None,
        };
        node.say(&Message::Hello(Hello {
            epoch: 1,
            name: format!("io{number}"),
            credential: Vec::new(),
        }))?;
        match node.next_message()? {
            Some(Message::Welcome { .. }) => {}
            other => anyhow::bail!("a hello was answered with {other:?}"),
        }
        node.stream.set_nonblocking(true)?;
        Ok(node)
    }

    fn say(&mut self, message: &Message) -> io::Result<()> {
        let mut bytes = Vec::new();
        message.write(&mut bytes);
        self.stream.write_all(&bytes)
    }

    fn announce(
        &mut self,
        random: &mut Random,
        recorder: Option<&mut Recorder>,
    ) -> anyhow::Result<()> {
        self.sequence += 1;
        let announcement = Announcement {
            sequence: self.sequence,
            arm: self.arm,
            settled: self.settled,
            again: false,
            observation: observation(self.situation, self.arm, random),
            pattern: recorder.and_then(|it| pattern(self.situation, it, random)),
        };
        self.settled = true;
        self.next += PERIOD;
        self.asked = Some(Instant::now());
        self.say(&Message::Announcement(announcement))?;
        Ok(())
    }

    fn hear(&mut self, answers: &mut Histogram, told: &mut Told) -> anyhow::Result<()> {
        while let Some(message) = self.next_message()? {
            let Message::Decision(decision) = message else {
                anyhow::bail!("the council says {message:?}");
            };
            if let Some(asked) = self.asked.take() {
                answers.record(asked.elapsed().as_nanos() as u64);
            }
            told.all += 1;
            told.best += u64::from(decision.arm == best());
            self.arm = decision.arm;
        }
        Ok(())
    }

    fn next_message(&mut self) -> anyhow::Result<Option<Message>> {
        loop {
            if let Some(frame) = self.frames.next()? {
                return Ok(Some(Message::read(frame.kind.0, frame.body)?));
            }
            match self.stream.read(self.frames.space()) {
                Ok(0) => anyhow::bail!("the council has closed a connection"),
                Ok(count) => self.frames.received(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// What suits all situations best.
fn best() -> Arm {
    "TWINS:2ms".parse().expect("an arm")
}

/// What a node sees that is in a situation and has an arm in force.
fn observation(situation: usize, arm: Arm, random: &mut Random) -> Observation {
    let op = Op::ALL[situation % 2];
    let size = 4096_u64 << (situation % 6);
    let place = Arms::default().place(arm).unwrap_or(0) as f64;
    let gives = if arm == best() {
        1.0
    } else {
        0.9 - 0.03 * place
    };
    let noise = 1.0 + NOISE * (random.below(2001) as f64 / 1000.0 - 1.0);
    Observation {
        period: Nanos::from_secs(1),
        busy: Nanos::from_secs(1),
        served: (100e6 * gives * noise) as u64,
        servers: 8,
        clients: 16,
        processes: 64,
        arrived: Some(Arrived {
            op,
            requests: 2000,
            features: Features {
                handles: 64,
                size_max: size,
                size_min: size,
                size_mean: size as f64,
                distance: 0.0,
                stride: 0.0,
            },
        }),
    }
}

/// The pattern of a situation: as many requests as suffice to tell it.
fn pattern(situation: usize, recorder: &mut Recorder, random: &mut Random) -> Option<Pattern> {
    let size = 4096_u64 << situation;
    for at in 0..40 {
        let file = FileId(at % (1 + situation as u64));
        let gap = size * (1 + situation as u64 % 3) + random.below(512);
        let range = Range::at(at * (size + gap), size);
        recorder.observe(file, Op::ALL[situation % 2], range);
    }
    recorder.end()
}

/// What the council says of where it listens.
pub fn listening(council: &mut Child) -> anyhow::Result<String> {
    use std::io::{BufRead, BufReader};
    let stderr = council.stderr.take().expect("a pipe");
    let mut lines = BufReader::new(stderr).lines();
    loop {
        let Some(line) = lines.next() else {
            anyhow::bail!("the council does not listen");
        };
        let line = line?;
        if let Some((_, address)) = line.split_once(" on tcp:") {
            // Nobody reads the rest, and it says nothing.
            std::thread::spawn(move || lines.for_each(drop));
            return Ok(address.to_owned());
        }
    }
}

/// While it is there, this thread has one core, as have processes that it starts.
struct OneCore(Option<CpuSet>);

impl OneCore {
    fn new() -> OneCore {
        let before = sched_getaffinity(None).ok();
        let cores = 0..CpuSet::MAX_CPU;
        let first = before.and_then(|all| cores.into_iter().find(|core| all.is_set(*core)));
        let mut one = CpuSet::new();
        one.set(first.unwrap_or(0));
        // If not, there are more.
        let _ = sched_setaffinity(None, &one);
        OneCore(before)
    }
}

impl Drop for OneCore {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = sched_setaffinity(None, before);
        }
    }
}

/// Kilobytes of memory that a process has.
pub fn memory(pid: u32) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let figure = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    figure.ok_or_else(|| anyhow::anyhow!("the kernel does not say how much memory a process has"))
}

/// Seconds of processor time that a process has used.
fn cpu(pid: u32) -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name, in parentheses, may have spaces in it.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: f64 = ticks.filter_map(|it| it.parse::<f64>().ok()).sum();
    Ok(ticks / rustix::param::clock_ticks_per_second() as f64)
}

fn cpu_after(pid: u32, before: f64) -> anyhow::Result<f64> {
    Ok(cpu(pid)? - before)
}
