//! The advice manager: a process beside the programs that it watches.
//!
//! [`Manager::create`] makes the arena that programs report to, [`Manager::run`] works until the run is over, and what
//! comes back is a [`Summary`]. Between lies one loop, all on one thread:
//!
//! 1. *Look*: drain the arena. What the rings hold is put in the order of time (`batch`).
//!    What comes too fast to be helped is summed up (`skim`).
//! 2. *Understand* (`understand`): whose operation is it (`processes`), on which file (`files`), from which call stack
//!    (`contexts`)? Count it, write it to the trace (`recorder`), let the model of its process see it and hold it
//!    against what the model had expected (`judge`).
//! 3. *Decide* (`act`): tell the [`Mind`] what happened (`looks`) and what the models expect, and ask it what to do.
//! 4. *Act*: hand hints to the `workers` (`pool`), leave notes in the arena; what came of it is told to the mind (`gain`). Of files that
//!    I/O nodes serve, what the models expect is told to these instead (`foretell`, `teller`).
//! 5. *Rest* (`pace`).
//!
//! At the end all that was counted becomes the summary (`account`). What cannot be seen from inside a program is looked for from here
//! (`rings`).
//!
//! Whoever started a command is registered at the [`desk`]. Models are kept from run to run (`models`).

mod account;
mod act;
mod batch;
mod configured;
mod contexts;
pub mod desk;
mod elf;
mod files;
mod foretell;
mod gain;
mod looks;
mod memory;
mod merged;
mod mind;
mod models;
mod orders;
mod pace;
mod pool;
mod processes;
mod recorder;
mod rings;
mod skim;
mod summary;
mod teller;
mod threads;
mod understand;
mod workers;

pub use configured::Configured;
pub use elf::is_static;
pub use mind::{MakeMind, Mind};
pub use orders::Orders;
pub use presagio_predict::score::Judged;
pub use summary::{Foretold, Loads, Named, Summary, Totals, Waited};
pub use threads::each_begins_with;

use crate::plan::{Hint, Memory, Reason};
use batch::Batch;
use contexts::Contexts;
use files::Files;
use foretell::Foretelling;
use looks::Looks;
use models::{Identity, Models};
use pace::{Pace, Rest};
use presagio_arena::{Arena, ArenaOptions, Counter, Mode, PathFilter, Waker, sys};
use presagio_core::{IdHashMap, Nanos};
use processes::Processes;
use recorder::Recorder;
use rings::Rings;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use workers::Workers;

/// Between two times that we look who is gone.
const SWEEP: Duration = Duration::from_millis(100);
/// Between two times that what is in the trace is made sure of.
const FLUSH: Duration = Duration::from_secs(1);
/// Between two times that we look how much memory there is.
const MEMORY: Duration = Duration::from_secs(1);
/// The longest sleep, should nobody wake us.
const SLEEP: Duration = Duration::from_secs(10);
/// Sweeps after a loss that look for files whose closing was lost: an entry that the first finds closed is free when the
/// third comes.
const SUSPICIOUS_SWEEPS: u8 = 3;
/// What a manager is to do.
pub struct Options {
    /// Which files are followed.
    pub filter: PathFilter,
    /// Whether hints are given.
    pub advise: bool,
    /// What decides. It is made with what it remembered of an earlier run of the same command.
    pub mind: Box<MakeMind>,
    /// The trace: its name, and the file.
    pub trace: Option<(String, File)>,
    /// Where models are kept, if they are.
    pub models: Option<PathBuf>,
    /// The command that is run, if it is one: what the mind remembers belongs to it.
    pub command: Vec<Vec<u8>>,
    /// The job, where there is one.
    pub job: Option<String>,
    /// The switchboard, and the prefixes of files that I/O nodes serve, as [`Orders::forward`] has them.
    pub forward: Option<Vec<u8>>,
    /// Threads that can report at the same time.
    pub slots: u32,
}

/// Whoever a manager works for.
pub trait Host {
    /// Whether the run is over.
    fn is_over(&self) -> bool;

    /// Whether it wants to know what is known so far: the summary, and the trace up to here in its file.
    fn wants_summary(&self) -> bool {
        false
    }

    /// Takes what is known so far.
    fn take_summary(&self, _: &Summary) {}

    /// Rests for so long at most.
    fn rest(&self, time: Duration) {
        std::thread::sleep(time);
    }

    /// What the manager has taken so far.
    fn processor_time(&self) -> Nanos {
        processor_time()
    }
}

/// See the module's header.
pub struct Manager {
    arena: Arena,
    began: u64,
    batch: Batch,
    processes: Processes,
    files: Files,
    contexts: Contexts,
    models: Models,
    identity: Option<Identity>,
    recorder: Option<(String, Recorder)>,
    wall: Nanos,
    host: Option<String>,
    mind: Box<dyn Mind>,
    advise: bool,
    workers: Workers,
    looks: Looks,
    hints: Vec<Hint>,
    /// The run is over: what is planned is counted, and not done.
    is_over: bool,
    loads: BTreeMap<Reason, Loads>,
    foretelling: Option<Foretelling>,
    /// Says how much memory there is.
    memory: fn() -> Memory,
    memory_asked: Option<Instant>,
    rings: Rings,
    notes_left: u16,
    pace: Pace,
    swept: Instant,
    flushed: Instant,
    /// What processes counted that have ended.
    counters: [u64; Counter::ALL.len()],
    turned_off: u64,
    lost: u64,
    /// Sweeps that still have to look for files whose closing was lost.
    suspicious: u8,
    /// Operations that no model saw: for want of time, and because they were too fast to be helped.
    unlearned: u64,
    skimmed: u64,
    job: Option<String>,
    /// Whether this is the manager of one node's ranks, and other nodes have theirs.
    is_of_ranks: bool,
}

impl Manager {
    /// Makes the arena, and all else that can fail.
    pub fn create(options: Options) -> io::Result<Manager> {
        let arena = Arena::create(&ArenaOptions {
            slots: options.slots,
            records: skim::RING,
            mode: Mode {
                advise: options.advise,
                complete: options.trace.is_some(),
            },
            filter: options.filter,
            ..ArenaOptions::default()
        })?;
        let is_traced = options.trace.is_some();
        let mut models = Models::new(options.models);
        let identity = identity_of(&options.command);
        let remembered = identity.as_ref().and_then(|id| models.read(id, "mind"));
        let recorder = match options.trace {
            Some((name, file)) => Some((name, Recorder::new(file)?)),
            None => None,
        };
        processes::places();
        let now = Instant::now();
        let forward = options.forward.as_deref().and_then(foretell::read_orders);
        let (switchboard, prefixes) = forward.unzip();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        Ok(Manager {
            arena,
            began: sys::monotonic_ns(),
            batch: Batch::new(recorder.is_some()),
            processes: Processes::default(),
            files: Files::new(prefixes.unwrap_or_default()),
            contexts: Contexts::new(recorder.is_some()),
            models,
            identity,
            recorder,
            wall: since_1970.unwrap_or_default().into(),
            host: host(),
            mind: (options.mind)(remembered.as_deref()),
            advise: options.advise,
            workers: Workers::start(Nanos::ZERO),
            looks: Looks::default(),
            hints: Vec::new(),
            is_over: false,
            loads: BTreeMap::new(),
            foretelling: switchboard
                .filter(|_| options.advise)
                .map(|name| Foretelling::new(&name)),
            memory: memory::now,
            memory_asked: None,
            rings: Rings::default(),
            notes_left: 0,
            pace: Pace::new(now, is_traced),
            swept: now,
            flushed: now,
            counters: [0; Counter::ALL.len()],
            turned_off: 0,
            lost: 0,
            suspicious: 0,
            unlearned: 0,
            skimmed: 0,
            job: options.job,
            is_of_ranks: processes::is_rank(std::process::id()),
        })
    }

    /// What the variable [`presagio_arena::VARIABLE`] has to say in the environment of a program.
    pub fn address(&self) -> String {
        self.arena.address()
    }

    /// What wakes the manager when there is news that does not come through the arena.
    pub fn waker(&self) -> Waker {
        self.arena.waker()
    }

    /// Works until the run is over; what came of it.
    pub fn run(mut self, host: &impl Host) -> Summary {
        self.work(host)
    }

    /// The same, for who does not want to wait until all memory is given back.
    pub fn work(&mut self, host: &impl Host) -> Summary {
        loop {
            // Asked first: what was reported before is then drained.
            let (is_over, wants_summary) = (host.is_over(), host.wants_summary());
            self.is_over = is_over;
            let began = Instant::now();
            let (found, helps) = self.look();
            let shown = match (is_over, wants_summary) {
                (true, _) => {
                    self.await_looks();
                    // What they told is planned for too: the summary says what would have been done.
                    if self.advise {
                        self.plan();
                    }
                    Some(self.finish())
                }
                (_, true) => Some(self.glimpse()),
                _ => None,
            };
            if let Some(mut summary) = shown {
                summary.manager_time = host.processor_time();
                if is_over {
                    return summary;
                }
                host.take_summary(&summary);
            }
            match self.pace.next(began, Instant::now(), found, helps) {
                Rest::For(time) => host.rest(time),
                Rest::Asleep => {
                    self.flush();
                    self.sweep();
                    self.arena.sleep(SLEEP);
                }
            }
        }
    }

    fn now(&self) -> Nanos {
        Nanos(sys::monotonic_ns().saturating_sub(self.began))
    }

    /// One round; how much was found that had to be thought about, at least one if there was anything, and whether some of it was of
    /// a process that can be helped.
    fn look(&mut self) -> (usize, bool) {
        if self.advise && self.memory_asked.is_none_or(|at| at.elapsed() >= MEMORY) {
            self.mind_memory();
        }
        let mut batch = std::mem::take(&mut self.batch);
        let found = batch.fill(&mut self.arena, &mut self.contexts);
        self.write_contexts();
        batch.changed().iter().for_each(|origin| self.miss(origin));
        batch.sums().iter().for_each(|sum| self.skim(sum));
        let items = batch.items().len();
        let allowance = self.pace.allowance(items, self.processes.live());
        let mut seen: IdHashMap<u32, u32> = IdHashMap::default();
        for item in batch.items() {
            self.take(item, allowance, &mut seen);
        }
        let mut origins = batch.items().iter().map(|item| &item.origin);
        let helps = !batch.sums().is_empty() || origins.any(|o| !self.processes.is_stranger(o));
        batch.clear();
        self.batch = batch;
        self.hear_workers();
        if self.advise {
            self.expect();
            self.plan();
        }
        if self.swept.elapsed() >= SWEEP {
            self.sweep();
        }
        if self.flushed.elapsed() >= FLUSH {
            self.flush();
        }
        (items.max(found.min(1)), helps)
    }

    /// Gives back what the dead had, and ends what they began.
    fn sweep(&mut self) {
        self.swept = Instant::now();
        let mut gone = Vec::new();
        self.arena.sweep(|entry| gone.push(entry.clone()));
        let now = self.now();
        for entry in gone {
            self.count(&entry);
            self.end(entry.pid, now);
        }
        for pid in self.processes.gone_unseen(sys::thread_lives) {
            self.end(pid, now);
        }
        self.close_lost(now);
        self.rings.look(now, rings::ring_of);
        self.workers.close_unwanted(now);
    }

    /// A process is gone.
    fn end(&mut self, pid: u32, now: Nanos) {
        self.contexts.forget(pid);
        self.rings.ended(pid);
        for process in self.processes.end(pid, &mut self.models) {
            if let Some(foretelling) = &mut self.foretelling {
                foretelling.ended(process);
            }
            for (index, generation) in self.files.opened_by(process) {
                self.close(index, generation, now);
            }
        }
    }

    /// Where records were lost, a file may have been closed without our knowing: its entry is no longer there.
    fn close_lost(&mut self, now: Nanos) {
        if self.suspicious == 0 {
            return;
        }
        self.suspicious -= 1;
        let opens = self.files.iter().flat_map(|(_, file)| &file.opens);
        let places = opens.map(|open| (open.index, open.generation));
        let gone = places.filter(|at| self.arena.file(at.0, at.1).is_none());
        for (index, generation) in gone.collect::<Vec<_>>() {
            self.close(index, generation, now);
        }
    }

    fn flush(&mut self) {
        self.flushed = Instant::now();
        if let Some((_, recorder)) = &mut self.recorder {
            recorder.flush();
        }
    }
}

/// Whether this process is a rank of a job that has ranks on other nodes too, as far as its launcher says so.
pub fn has_ranks_elsewhere() -> bool {
    processes::has_ranks_elsewhere(std::process::id())
}

fn identity_of(command: &[Vec<u8>]) -> Option<Identity> {
    let arguments: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
    let program = String::from_utf8_lossy(arguments.first()?).into_owned();
    Some(Identity::new(&PathBuf::from(program), &arguments, None))
}

fn host() -> Option<String> {
    let name = rustix::system::uname();
    name.nodename().to_str().ok().map(str::to_owned)
}

/// What this process has taken so far.
fn processor_time() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests;
