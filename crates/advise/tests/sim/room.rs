//! A virtual machine room: a program that reads, a page cache that reads ahead as Linux does, a device with a queue, and
//! a manager that polls and has one thread for hints. Computing takes now more, now less, and one read in 200 is
//! interrupted. Time is virtual; the same room always gives the same figures.

use presagio_advise::config::Mode;
use presagio_advise::hints::Device;
use presagio_advise::plan::{
    Access, FileNumber, Hint, Holder, LoadDone, OpenNumber, Opened, Reason, Strategy,
};
use presagio_core::{Nanos, Range};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Numbers from a seed (xorshift).
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound.max(1)
    }
}

pub const PAGE: u64 = 4096;
const ABSENT: u64 = u64::MAX;
/// What a page takes to read that is in memory, as measured.
const HIT_NS: u64 = 600;
const POLL_NS: u64 = 500_000;
/// A `WILLNEED` call, checked.
const HINT_NS: u64 = 5_000;

/// A device and how the kernel uses it.
#[derive(Clone, Copy)]
pub struct Disk {
    pub name: &'static str,
    pub latency_ns: u64,
    pub byte_ns: f64,
    /// The least time between two operations.
    pub interval_ns: u64,
    pub operation_max: u64,
    pub read_ahead: u64,
    /// Whether a hint returns only when the bytes are there.
    pub blocking: bool,
    /// Operations and bytes that a limit lets pass in each slice, as the kernel keeps such limits; 0 for any number.
    pub in_slice: (u64, u64),
}

/// A slice of the kernel's limits: what is left of one is let pass at once, and what is too much waits for the next.
const SLICE_NS: u64 = 100_000_000;

/// What a program does.
pub struct Program {
    /// Names and sizes.
    pub files: Vec<(PathBuf, u64)>,
    /// Files (by place) and ranges, in order.
    pub reads: Vec<(usize, Range)>,
    pub think_ns: u64,
    /// Processes that take turns.
    pub processes: u32,
    /// Before this read, all pages are dropped.
    pub drop_at: Option<usize>,
}

/// What came of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub time_ns: u64,
    pub device_bytes: u64,
    pub device_operations: u64,
    pub hints: u64,
    pub modes: u64,
    /// The device's bytes when half of the reads were done.
    pub half_bytes: u64,
}

struct Queue {
    disk: Disk,
    free_at: u64,
    bytes: u64,
    operations: u64,
    slice: Slice,
}

/// What a limit has let pass.
#[derive(Default)]
struct Slice {
    start: u64,
    operations: u64,
    bytes: u64,
}

impl Slice {
    /// When the limit lets an operation pass that comes now.
    fn pass(&mut self, now: u64, bytes: u64, (operations_max, bytes_max): (u64, u64)) -> u64 {
        if now >= self.start + SLICE_NS {
            *self = Slice {
                start: now,
                ..Slice::default()
            };
        }
        self.operations += 1;
        self.bytes += bytes;
        while operations_max > 0 && self.operations > operations_max
            || bytes_max > 0 && self.bytes > bytes_max
        {
            self.start += SLICE_NS;
            self.operations = self.operations.saturating_sub(operations_max);
            self.bytes = self.bytes.saturating_sub(bytes_max);
        }
        self.start.max(now)
    }
}

impl Queue {
    /// When the operation will have been done.
    fn submit(&mut self, now: u64, bytes: u64) -> u64 {
        let now = self.slice.pass(now, bytes, self.disk.in_slice);
        let service = ((bytes as f64 * self.disk.byte_ns) as u64).max(self.disk.interval_ns);
        self.free_at = self.free_at.max(now) + service;
        self.bytes += bytes;
        self.operations += 1;
        self.free_at + self.disk.latency_ns
    }
}

/// The pages of a file, and the state of the kernel's read-ahead for the program's descriptor.
struct Cached {
    ready: Vec<u64>,
    marked: Vec<bool>,
    start: u64,
    size: u64,
    async_size: u64,
    previous: u64,
    random: bool,
}

impl Cached {
    fn new(bytes: u64) -> Cached {
        let pages = bytes.div_ceil(PAGE) as usize;
        Cached {
            ready: vec![ABSENT; pages],
            marked: vec![false; pages],
            start: 0,
            size: 0,
            async_size: 0,
            previous: 0,
            random: false,
        }
    }

    /// Submits the pages of `from..to` that are absent. When the last of them will be there.
    fn load(&mut self, from: u64, to: u64, now: u64, queue: &mut Queue) -> u64 {
        let to = to.min(self.ready.len() as u64);
        let pages_max = (queue.disk.operation_max / PAGE).max(1);
        let (mut at, mut last, mut time) = (from, now, now);
        while at < to {
            if self.ready[at as usize] != ABSENT {
                at += 1;
                continue;
            }
            let end = (at..to.min(at + pages_max))
                .find(|p| self.ready[*p as usize] != ABSENT)
                .unwrap_or(to.min(at + pages_max));
            last = queue.submit(time, (end - at) * PAGE);
            if queue.disk.blocking {
                time = last;
            }
            (at..end).for_each(|p| self.ready[p as usize] = last);
            at = end;
        }
        last
    }

    /// Loads a window, and marks where the next one is to be begun.
    fn window(&mut self, now: u64, queue: &mut Queue) {
        self.load(self.start, self.start + self.size, now, queue);
        let mark = (self.start + self.size).saturating_sub(self.async_size);
        if let Some(marked) = self.marked.get_mut(mark as usize) {
            *marked = true;
        }
    }

    /// A page is absent: a new window where it looks sequential, else just what was asked for.
    fn sync(&mut self, page: u64, wanted: u64, now: u64, queue: &mut Queue) {
        let most = (queue.disk.read_ahead / PAGE).max(wanted.min(queue.disk.operation_max / PAGE));
        if self.random {
            self.load(page, page + wanted, now, queue);
            return;
        }
        if page == 0 || wanted > most || page.wrapping_sub(self.previous) <= 1 {
            self.start = page;
            self.size = initial_size(wanted, most);
            self.async_size = if self.size > wanted {
                self.size - wanted
            } else {
                self.size / 2
            };
            return self.window(now, queue);
        }
        let before = page.saturating_sub(most)..page;
        let history = before
            .rev()
            .take_while(|p| self.ready[*p as usize] != ABSENT)
            .count() as u64;
        if history <= wanted {
            self.load(page, page + wanted, now, queue);
            return;
        }
        self.start = page;
        self.size = (history + wanted).min(most);
        self.async_size = 1;
        self.window(now, queue);
    }

    /// A marked page is reached: the next window.
    fn next_window(&mut self, page: u64, wanted: u64, now: u64, queue: &mut Queue) {
        let most = (queue.disk.read_ahead / PAGE).max(wanted.min(queue.disk.operation_max / PAGE));
        if page == (self.start + self.size).wrapping_sub(self.async_size) {
            self.start += self.size;
        } else {
            let ahead = (page + 1..page + 1 + most)
                .find(|p| self.ready.get(*p as usize).is_none_or(|r| *r == ABSENT));
            let Some(start) = ahead else { return };
            self.start = start;
            self.size = start - page + wanted;
        }
        self.size = next_size(self.size, most);
        self.async_size = self.size;
        self.window(now, queue);
    }

    /// The program reads. When it has its bytes.
    fn read(&mut self, range: Range, now: u64, queue: &mut Queue) -> u64 {
        let (first, last) = (range.start() / PAGE, (range.end() - 1) / PAGE);
        let mut time = now;
        for page in first..=last {
            if self.ready[page as usize] == ABSENT {
                self.sync(page, last - page + 1, time, queue);
            }
            if std::mem::take(&mut self.marked[page as usize]) {
                self.next_window(page, last - page + 1, time, queue);
            }
            time = time.max(self.ready[page as usize]) + HIT_NS;
        }
        self.previous = last;
        time
    }
}

fn initial_size(wanted: u64, most: u64) -> u64 {
    match wanted.next_power_of_two() {
        size if size <= most / 32 => size * 4,
        size if size <= most / 4 => size * 2,
        _ => most,
    }
}

fn next_size(size: u64, most: u64) -> u64 {
    match size {
        size if size < most / 16 => 4 * size,
        size if size <= most / 2 => 2 * size,
        _ => most,
    }
}

/// Runs a program, with a strategy or without.
pub fn run(disk: Disk, program: &Program, strategy: Option<&mut dyn Strategy>) -> Outcome {
    Room::new(disk, program).run(strategy, false)
}

/// The same with everything in memory.
pub fn run_hot(disk: Disk, program: &Program, strategy: Option<&mut dyn Strategy>) -> Outcome {
    Room::new(disk, program).run(strategy, true)
}

struct Room<'a> {
    program: &'a Program,
    device: Arc<Device>,
    queue: Queue,
    cached: Vec<Cached>,
    numbers: BTreeMap<PathBuf, usize>,
    /// What the manager has not seen yet, with the time from which it can.
    news: VecDeque<(u64, News)>,
    hints: VecDeque<(FileNumber, Range, Reason)>,
    loader_at: u64,
    outcome: Outcome,
}

enum News {
    Opened(usize, u32),
    OpenedAhead(usize),
    Closed(usize, u32),
    Read(Access),
    Loaded(LoadDone),
}

impl<'a> Room<'a> {
    fn new(disk: Disk, program: &'a Program) -> Room<'a> {
        let numbers = program.files.iter().enumerate();
        Room {
            program,
            device: Arc::new(device(&disk)),
            queue: Queue {
                disk,
                free_at: 0,
                bytes: 0,
                operations: 0,
                slice: Slice::default(),
            },
            cached: program.files.iter().map(|f| Cached::new(f.1)).collect(),
            numbers: numbers.map(|(i, f)| (f.0.clone(), i)).collect(),
            news: VecDeque::new(),
            hints: VecDeque::new(),
            loader_at: 0,
            outcome: Outcome::default(),
        }
    }

    fn run(mut self, mut strategy: Option<&mut dyn Strategy>, hot: bool) -> Outcome {
        if hot {
            self.cached.iter_mut().for_each(|c| c.ready.fill(0));
        }
        let (mut now, mut poll_at, mut open) = (1_000_000u64, 1_000_000u64, None);
        let mut dice = Dice(99);
        for (done, &(file, range)) in self.program.reads.iter().enumerate() {
            now += self.program.think_ns * (80 + dice.below(41)) / 100;
            let process = done as u32 % self.program.processes;
            if self.program.drop_at == Some(done) {
                self.cached.iter_mut().for_each(|c| c.ready.fill(ABSENT));
            }
            if let Some(strategy) = strategy.as_deref_mut() {
                self.catch_up(now, &mut poll_at, strategy);
            }
            if open != Some(file) {
                self.close(now, open);
                (0..self.program.processes).for_each(|p| self.tell(now, News::Opened(file, p)));
                open = Some(file);
            }
            let interrupted = if dice.below(200) == 0 { 1_000_000 } else { 0 };
            let end = interrupted + self.cached[file].read(range, now, &mut self.queue);
            let access = Access {
                file: FileNumber(file as u32),
                by: holder(process),
                time: Nanos(now),
                duration: Nanos(end - now),
                range,
                write: false,
            };
            self.tell(end, News::Read(access));
            now = end;
            if 2 * done <= self.program.reads.len() {
                self.outcome.half_bytes = self.queue.bytes;
            }
        }
        self.close(now, open);
        if let Some(strategy) = strategy {
            self.catch_up(now + 2 * POLL_NS, &mut poll_at, strategy);
        }
        Outcome {
            time_ns: now - 1_000_000,
            device_bytes: self.queue.bytes,
            device_operations: self.queue.operations,
            ..self.outcome
        }
    }

    fn close(&mut self, now: u64, file: Option<usize>) {
        for process in 0..self.program.processes {
            file.into_iter()
                .for_each(|f| self.tell(now, News::Closed(f, process)));
        }
    }

    fn tell(&mut self, time: u64, news: News) {
        self.news.push_back((time, news));
    }

    /// What the manager and its thread do until `now`.
    fn catch_up(&mut self, now: u64, poll_at: &mut u64, strategy: &mut dyn Strategy) {
        loop {
            let load_at = self.loader_at.max(*poll_at - POLL_NS);
            if !self.hints.is_empty() && load_at < *poll_at && load_at < now {
                self.load(load_at);
            } else if *poll_at < now {
                self.poll(*poll_at, strategy);
                *poll_at += POLL_NS;
            } else {
                return;
            }
        }
    }

    fn poll(&mut self, now: u64, strategy: &mut dyn Strategy) {
        for (time, news) in std::mem::take(&mut self.news) {
            if time > now {
                self.tell(time, news);
            } else {
                self.deliver(&news, now, strategy);
            }
        }
        let mut hints = Vec::new();
        strategy.plan(Nanos(now), &mut hints);
        self.outcome.hints += hints.len() as u64;
        hints.into_iter().for_each(|hint| self.take(hint, now));
    }

    fn take(&mut self, hint: Hint, now: u64) {
        match hint {
            Hint::Load {
                file,
                range,
                reason,
            } => self.hints.push_back((file, range, reason)),
            Hint::Mode { file, mode, .. } => {
                self.outcome.modes += 1;
                self.cached[file.0 as usize].random = mode == Mode::Random;
            }
            Hint::OpenAhead { path } => {
                if let Some(file) = self.numbers.get(&path) {
                    self.tell(now + 1, News::OpenedAhead(*file));
                }
            }
            Hint::Release { .. } => {}
        }
    }

    fn deliver(&self, news: &News, now: u64, strategy: &mut dyn Strategy) {
        match news {
            News::Opened(file, process) => {
                strategy.opened(&self.opened(*file, Some(*process), now));
            }
            News::OpenedAhead(file) => strategy.opened(&self.opened(*file, None, now)),
            News::Closed(file, process) => {
                let file = FileNumber(*file as u32);
                strategy.closed(file, holder(*process), Nanos(now));
            }
            News::Read(access) => strategy.accessed(access),
            News::Loaded(done) => strategy.loaded(done),
        }
    }

    fn opened(&self, file: usize, process: Option<u32>, now: u64) -> Opened<'_> {
        let (path, size) = &self.program.files[file];
        Opened {
            file: FileNumber(file as u32),
            by: process.map(holder),
            path,
            size: *size,
            writes: false,
            device: &self.device,
            time: Nanos(now),
        }
    }

    /// The manager's thread carries out one hint.
    fn load(&mut self, now: u64) {
        let Some((file, range, reason)) = self.hints.pop_front() else {
            return;
        };
        let cached = &mut self.cached[file.0 as usize];
        let (from, to) = (range.start() / PAGE, range.end().div_ceil(PAGE));
        let to = to.min(cached.ready.len() as u64);
        let there = (from..to).filter(|p| cached.ready[*p as usize] != ABSENT);
        let already = there.count() as u64 * PAGE;
        let done = cached.load(from, to, now, &mut self.queue);
        let operations = range.len().div_ceil(self.queue.disk.operation_max);
        self.loader_at = now + HINT_NS * operations;
        if self.queue.disk.blocking {
            self.loader_at = self.loader_at.max(done);
        }
        let done = LoadDone {
            file,
            range,
            reason,
            started: Nanos(now),
            ended: Nanos(self.loader_at),
            already: Some(already),
            there: (to - from) * PAGE,
        };
        self.tell(self.loader_at, News::Loaded(done));
    }
}

/// As the strategy sees it.
fn device(disk: &Disk) -> Device {
    let here = std::fs::File::open(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
    let mut device = Device::of(&here).unwrap();
    device.name = disk.name.to_owned();
    device.storage = presagio_advise::hints::Storage::Local;
    device.read_ahead_kb = Some((disk.read_ahead >> 10) as u32);
    device.max_sectors_kb = (!disk.blocking).then_some((disk.operation_max >> 10) as u32);
    device
}

/// Each process has one file open at a time.
fn holder(process: u32) -> Holder {
    let open = OpenNumber(process.into());
    Holder { process, open }
}
