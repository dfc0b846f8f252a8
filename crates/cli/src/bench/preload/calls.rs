//! The programs that `presagio bench preload` watches: each is one process, the hidden subcommand `bench-calls`, with the
//! library preloaded and a manager on the other side. It makes calls through the library and the same calls to the C
//! library itself, by turns, and leaves what they took in a file.

use super::clock::{Clock, compute};
use super::costs::{Cost, Samples, middle};
use anyhow::{Context, ensure};
use clap::ValueEnum;
use serde_json::{Value, json};
use std::ffi::{CStr, CString, c_int, c_void};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Make calls through the library and past it, and say what they took
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Which calls
    pub kind: Kind,
    /// Where there is a file named "data" of 1 MiB, and where the result goes
    pub dir: PathBuf,
    /// How often, relative to a full measurement, in per mille
    #[arg(long, default_value_t = 1000)]
    pub effort: u64,
    /// How many such processes run at the same time
    #[arg(long, default_value_t = 1)]
    pub ranks: u32,
}

/// Which calls are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// One thread, one process: all costs.
    One,
    /// Sixty-four threads.
    Threads,
    /// One of several processes that begin each round together.
    Rank,
    /// The same, with calls that are far apart.
    RankApart,
    /// As many records as can be.
    Flood,
    /// A million records a second.
    Paced,
}

/// Records of a flood.
const FLOOD: u64 = 5_000_000;
/// Between two records of a paced stream, in ns: a little more than a million a second.
const PACE_NS: u64 = 990;
const THREADS: usize = 64;
/// Between two calls that are far apart, in ns.
const PAUSE_NS: u64 = 300_000;

type Read = unsafe extern "C" fn(c_int, *mut c_void, usize) -> isize;
type Pread = unsafe extern "C" fn(c_int, *mut c_void, usize, i64) -> isize;
type Fwrite = unsafe extern "C" fn(*const c_void, usize, usize, *mut libc::FILE) -> usize;

/// The hidden subcommand.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let calls = Calls::new(args)?;
    let value = match args.kind {
        Kind::One => calls.one()?,
        Kind::Threads => calls.threads()?,
        Kind::Rank => calls.rank()?,
        Kind::RankApart => calls.rank_apart()?,
        Kind::Flood => calls.records(0)?,
        Kind::Paced => calls.records(PACE_NS)?,
    };
    let path = args.dir.join(format!("{}.result", std::process::id()));
    std::fs::write(path, value.to_string())?;
    Ok(ExitCode::SUCCESS)
}

struct Calls<'a> {
    args: &'a Args,
    clock: Clock,
    data: File,
}

impl<'a> Calls<'a> {
    fn new(args: &'a Args) -> anyhow::Result<Calls<'a>> {
        Ok(Calls {
            args,
            clock: Clock::new(),
            data: File::open(args.dir.join("data"))?,
        })
    }

    fn times(&self, full: u64) -> u64 {
        (full * self.args.effort / 1000).max(4)
    }

    /// How many rounds of each kind are made.
    fn rounds(&self) -> u64 {
        self.times(21).min(21)
    }

    fn one(&self) -> anyhow::Result<Value> {
        let zero = File::open("/dev/zero")?;
        let (bare, hooked) = both::<Read>(c"read")?;
        let ignored = self.whole(20_000, || read(bare, &zero, 1), || read(hooked, &zero, 1));
        let (bare, hooked) = both::<Pread>(c"pread")?;
        let of = |f: Pread| {
            let mut turn = Turn::default();
            move || turn.pread(f, &self.data)
        };
        let mut hot = self.each(20_000, 0, of(bare), of(hooked));
        hot.whole = self.whole(20_000, of(bare), of(hooked));
        let apart = self.each(800, PAUSE_NS, of(bare), of(hooked));
        Ok(json!({
            "ignored": Cost::of_whole(ignored).json(),
            "hot": hot.json(),
            "apart": apart.json(),
            "stream": Cost::of_whole(self.stream()?).json(),
            "start": self.start()?.json(),
        }))
    }

    /// Sixty-four threads on one file: each call by itself, then all of them together.
    fn threads(&self) -> anyhow::Result<Value> {
        let (bare, hooked) = both::<Pread>(c"pread")?;
        let calls = self.times(3_000);
        let mut cost = Cost::middle((0..self.rounds().min(9)).map(|_| {
            let samples = self.together(|barrier| {
                let (mut first, mut second) = (Turn::default(), Turn::default());
                barrier.wait();
                self.samples(
                    calls,
                    0,
                    || first.pread(bare, &self.data),
                    || second.pread(hooked, &self.data),
                )
            });
            Samples::joined(samples).cost(&self.clock)
        }));
        let round = |f: Pread| {
            let spans = self.together(|barrier| {
                let mut turn = Turn::default();
                barrier.wait();
                let began = Instant::now();
                (0..calls).for_each(|_| turn.pread(f, &self.data));
                (began, Instant::now())
            });
            let began = spans.iter().map(|s| s.0).min();
            let ended = spans.iter().map(|s| s.1).max();
            let took = ended.zip(began).map_or(Duration::ZERO, |(e, b)| e - b);
            took.as_nanos() as f64 / (calls * THREADS as u64) as f64
        };
        cost.whole = by_turns(self.rounds(), || round(bare), || round(hooked));
        Ok(json!({ "hot": cost.json() }))
    }

    /// Runs something in all threads at once.
    fn together<R: Send>(&self, work: impl Fn(&Barrier) -> R + Sync) -> Vec<R> {
        let barrier = Barrier::new(THREADS);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|_| scope.spawn(|| work(&barrier)))
                .collect();
            let done = threads.into_iter().filter_map(|thread| thread.join().ok());
            done.collect()
        })
    }

    /// What one of several processes does, all of them at once.
    fn rank(&self) -> anyhow::Result<Value> {
        let meeting = Meeting::new(&self.args.dir.join("meeting"), self.args.ranks)?;
        let (bare, hooked) = both::<Pread>(c"pread")?;
        let mut turn = Turn::default();
        let mut call = |f: Pread| turn.pread(f, &self.data);
        let calls = self.times(20_000);
        let rounds = self.rounds();
        let mut hot = Vec::new();
        let mut whole = Vec::new();
        for _ in 0..rounds {
            meeting.wait();
            let mut other = Turn::default();
            let samples = self.samples(calls, 0, || other.pread(bare, &self.data), || call(hooked));
            hot.push(samples.cost(&self.clock));
            let mut round = |f: Pread| {
                meeting.wait();
                let began = Instant::now();
                (0..calls).for_each(|_| call(f));
                began.elapsed().as_nanos() as f64 / calls as f64
            };
            whole.push((round(bare), round(hooked)));
        }
        let mut hot = Cost::middle(hot.into_iter());
        hot.whole = pairs_middle(whole);
        Ok(json!({ "hot": hot.json() }))
    }

    /// The same, 0.3 ms apart: by itself, since of these no call may go unreported.
    fn rank_apart(&self) -> anyhow::Result<Value> {
        let meeting = Meeting::new(&self.args.dir.join("meeting"), self.args.ranks)?;
        let (bare, hooked) = both::<Pread>(c"pread")?;
        let calls = self.times(800);
        let rounds = (0..self.rounds().min(15)).map(|_| {
            meeting.wait();
            let (mut first, mut second) = (Turn::default(), Turn::default());
            let samples = self.samples(
                calls,
                PAUSE_NS,
                || first.pread(bare, &self.data),
                || second.pread(hooked, &self.data),
            );
            samples.cost(&self.clock)
        });
        Ok(json!({ "apart": Cost::middle(rounds).json() }))
    }

    /// As many records as there are to be, not faster than one in `pace_ns`.
    fn records(&self, pace_ns: u64) -> anyhow::Result<Value> {
        let (_, hooked) = both::<Pread>(c"pread")?;
        leave_the_managers_core();
        let count = self.times(FLOOD);
        let pace = self.clock.ticks(pace_ns);
        let mut byte = 0u8;
        let began = Instant::now();
        let mut next = self.clock.now();
        for i in 0..count {
            while pace > 0 && self.clock.now() < next {
                std::hint::spin_loop();
            }
            next += pace;
            // SAFETY: one byte of ours.
            unsafe {
                hooked(
                    self.data.as_raw_fd(),
                    (&raw mut byte).cast(),
                    1,
                    (i & 0xf_ffff) as i64,
                )
            };
        }
        Ok(json!({ "records": count, "seconds": began.elapsed().as_secs_f64() }))
    }

    /// Small writes into a stream of the C library.
    fn stream(&self) -> anyhow::Result<(f64, f64)> {
        let path = CString::new(self.args.dir.join("stream").as_os_str().as_bytes())?;
        // SAFETY: strings that end with a zero.
        let stream = unsafe { libc::fopen(path.as_ptr(), c"w".as_ptr()) };
        ensure!(!stream.is_null(), "a file cannot be written to");
        let (bare, hooked) = both::<Fwrite>(c"fwrite")?;
        let word = 7u64;
        // SAFETY: eight bytes, and an open stream.
        let put = |f: Fwrite| move || unsafe { _ = f((&raw const word).cast(), 8, 1, stream) };
        let cost = self.whole(20_000, put(bare), put(hooked));
        // SAFETY: open until now.
        unsafe { libc::fclose(stream) };
        Ok(cost)
    }

    /// The start and end of a program that touches nothing that is followed, with and without what we have in our environment.
    fn start(&self) -> anyhow::Result<Cost> {
        let run = |watched: bool| {
            let mut command = Command::new("/bin/true");
            command.stdin(Stdio::null());
            if !watched {
                command
                    .env_remove("LD_PRELOAD")
                    .env_remove(presagio_arena::VARIABLE);
            }
            let began = self.clock.now();
            let status = command.status();
            (status.is_ok_and(|s| s.success()), self.clock.now() - began)
        };
        ensure!(run(true).0 && run(false).0, "/bin/true cannot be run");
        let mut samples = Samples::default();
        for pair in 0..self.times(400) {
            for watched in [pair % 2 == 0, pair % 2 == 1] {
                samples.add(watched, run(watched).1);
            }
        }
        let mut cost = samples.cost(&self.clock);
        cost.whole = samples.middles(&self.clock);
        Ok(cost)
    }

    /// Each call by itself, bare and hooked by turns, in rounds of which the middle counts.
    fn each(
        &self,
        calls: u64,
        pause_ns: u64,
        mut bare: impl FnMut(),
        mut hooked: impl FnMut(),
    ) -> Cost {
        let calls = self.times(calls);
        let rounds = (0..self.rounds().min(15)).map(|_| {
            self.samples(calls, pause_ns, &mut bare, &mut hooked)
                .cost(&self.clock)
        });
        Cost::middle(rounds)
    }

    /// Which one comes first changes with every pair, lest one be favoured.
    fn samples(
        &self,
        pairs: u64,
        pause_ns: u64,
        mut bare: impl FnMut(),
        mut hooked: impl FnMut(),
    ) -> Samples {
        let mut samples = Samples::with_room(pairs as usize);
        let mut scratch = vec![1u64; 32 << 10];
        for pair in 0..pairs {
            for watched in [pair % 2 == 0, pair % 2 == 1] {
                compute(&self.clock, pause_ns, &mut scratch);
                let began = self.clock.now();
                if watched {
                    hooked();
                } else {
                    bare();
                }
                samples.add(watched, self.clock.now() - began);
            }
        }
        samples
    }

    /// Loops of one and of the other by turns, ns a call: all that a program waits for, whoever is to blame.
    fn whole(&self, calls: u64, mut bare: impl FnMut(), mut hooked: impl FnMut()) -> (f64, f64) {
        let calls = self.times(calls);
        fn round(calls: u64, call: &mut dyn FnMut()) -> f64 {
            let began = Instant::now();
            (0..calls).for_each(|_| call());
            began.elapsed().as_nanos() as f64 / calls as f64
        }
        by_turns(
            self.rounds(),
            || round(calls, &mut bare),
            || round(calls, &mut hooked),
        )
    }
}

/// Stays on the first processor: the manager, which is to have one for itself, is kept on the second.
fn leave_the_managers_core() {
    // SAFETY: a set on the stack, and a processor within it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

/// The middle of what the first gives, and of how much more the second does in the same round.
fn by_turns(
    rounds: u64,
    mut bare: impl FnMut() -> f64,
    mut hooked: impl FnMut() -> f64,
) -> (f64, f64) {
    pairs_middle((0..rounds).map(|_| (bare(), hooked())).collect())
}

fn pairs_middle(pairs: Vec<(f64, f64)>) -> (f64, f64) {
    let more = pairs.iter().map(|(bare, hooked)| hooked - bare).collect();
    (
        middle(pairs.iter().map(|pair| pair.0).collect()),
        middle(more),
    )
}

/// A function of the C library itself, and the one that a program gets.
fn both<F: Copy>(name: &CStr) -> anyhow::Result<(F, F)> {
    // SAFETY: looks up two functions of the same type, which the caller names.
    unsafe {
        let libc = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        let bare = libc::dlsym(libc, name.as_ptr());
        let hooked = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        ensure!(
            !bare.is_null() && bare != hooked,
            "{name:?} is the C library's: nothing is preloaded"
        );
        Ok((
            std::mem::transmute_copy(&bare),
            std::mem::transmute_copy(&hooked),
        ))
    }
}

fn read(f: Read, file: &File, len: usize) {
    let mut buffer = [0u8; 64];
    // SAFETY: a buffer of ours that is large enough.
    unsafe {
        f(
            file.as_raw_fd(),
            buffer.as_mut_ptr().cast(),
            len.min(buffer.len()),
        )
    };
}

/// Pages of a file, one after the other, from the beginning again at its end.
struct Turn {
    page: i64,
    buffer: Vec<u8>,
}

impl Default for Turn {
    fn default() -> Turn {
        Turn {
            page: 0,
            buffer: vec![0; 4096],
        }
    }
}

impl Turn {
    fn pread(&mut self, f: Pread, file: &File) {
        self.page = (self.page + 1) % 256;
        let buffer = self.buffer.as_mut_ptr().cast();
        // SAFETY: a buffer of ours that is large enough.
        unsafe {
            f(
                file.as_raw_fd(),
                buffer,
                self.buffer.len(),
                self.page * 4096,
            )
        };
    }
}

/// A place where several processes wait for each other, without a system call.
struct Meeting {
    arrived: &'static AtomicU32,
    ranks: u32,
}

impl Meeting {
    fn new(path: &Path, ranks: u32) -> anyhow::Result<Meeting> {
        let mut options = File::options();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        file.set_len(4096).context("no room for a meeting")?;
        // SAFETY: a new mapping, which stays; the kernel chooses where.
        let memory = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                protection,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        ensure!(memory != libc::MAP_FAILED, "no memory for a meeting");
        // SAFETY: a page of zeros, used as atomic numbers only, by all.
        let arrived = unsafe { AtomicU32::from_ptr(memory.cast()) };
        Ok(Meeting {
            arrived,
            ranks: ranks.max(1),
        })
    }

    /// Comes back when all have come as often as we have; who dies leaves the others waiting ten seconds.
    fn wait(&self) {
        let began = Instant::now();
        let mine = self.arrived.fetch_add(1, Ordering::AcqRel);
        let all = (mine / self.ranks + 1) * self.ranks;
        while self.arrived.load(Ordering::Acquire) < all && began.elapsed().as_secs() < 10 {
            std::hint::spin_loop();
        }
    }
}
