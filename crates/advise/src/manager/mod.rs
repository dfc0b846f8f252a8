//! The advice manager: a process beside the programs that it watches.
//!
//! [`Manager::create`] makes the arena that programs report to, [`Manager::run`] works until the run is over, and what
//! comes back is a [`Summary`]. Between lies one loop, all on one thread:
//!
//! 1. *Look*: drain the arena. What the rings hold is put in the order of time (`batch`).
//! 2. *Understand*: whose operation is it (`processes`), on which file (`files`), from which call stack
//!    (`contexts`)? Count it, write it to the trace (`recorder`), let the model of its process see it and hold it
//!    against what the model had expected (`judge`).
//! 3. *Decide*: tell the [`Mind`] what happened and what the models expect, and ask it what to do.
//! 4. *Act*: hand hints to the `workers`, leave notes in the arena; what came of it is told to the mind (`gain`).
//! 5. *Rest* (`pace`).
//!
//! Whoever started a command is registered at the [`desk`]. Models are kept from run to run (`models`).

mod batch;
mod configured;
mod contexts;
pub mod desk;
mod elf;
mod files;
mod gain;
mod judge;
mod memory;
mod merged;
mod mind;
mod models;
mod orders;
mod pace;
mod processes;
mod recorder;
mod summary;
mod threads;
mod workers;

pub use configured::Configured;
pub use elf::is_static;
pub use judge::Judged;
pub use memory::memory_left;
pub use mind::{MakeMind, Mind, Nothing};
pub use orders::Orders;
pub use summary::{Loads, Named, Summary, Totals};
pub use threads::each_begins_with;

use crate::config::Mode as FileMode;
use crate::hints::Device;
use crate::plan::{Access, Expected, FileNumber, Hint, LoadDone, Opened, Reason};
use batch::{Batch, Item};
use contexts::Contexts;
use files::{Files, Open};
use models::{Identity, Models};
use pace::{Pace, Rest};
use presagio_arena::{
    Advice, Arena, ArenaOptions, Counter, Mode, Note, Operation, PathFilter, ProcessEntry, Waker,
    sys,
};
use presagio_core::{Action, Event, FileId, IdHashMap, Layer, Nanos, Range};
use presagio_predict::PredictedFile;
use presagio_trace::{Process as TraceProcess, Record};
use processes::{Processes, Sums};
use recorder::Recorder;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use workers::{Done, Whereabouts, Work, Workers};

/// Between two times that we look who is gone.
const SWEEP: Duration = Duration::from_millis(100);
/// Between two times that what is in the trace is made sure of.
const FLUSH: Duration = Duration::from_secs(1);
/// The longest sleep, should nobody wake us.
const SLEEP: Duration = Duration::from_secs(10);
/// How far ahead models are read: in time, and in operations.
const AHEAD: Nanos = Nanos::from_secs(2);
const AHEAD_MAX: usize = 128;
/// Processes whose models are read in one look.
const ASKED_MAX: usize = 16;
/// Sweeps after a loss that look for files whose closing was lost: an entry that the first finds closed is free when the
/// third comes.
const SUSPICIOUS_SWEEPS: u8 = 3;
/// What a hint costs before the first byte comes: at least this is taken off what is due soon.
const HINT_COST: Nanos = Nanos::from_micros(300);

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
    workers: Option<Workers>,
    devices: BTreeMap<u64, Arc<Device>>,
    hints: Vec<Hint>,
    loads: BTreeMap<Reason, Loads>,
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
    /// Operations that no model saw.
    unlearned: u64,
    job: Option<String>,
}

impl Manager {
    /// Makes the arena, and all else that can fail.
    pub fn create(options: Options) -> io::Result<Manager> {
        let arena = Arena::create(&ArenaOptions {
            slots: options.slots,
            mode: Mode {
                advise: options.advise,
                complete: options.trace.is_some(),
            },
            filter: options.filter,
            ..ArenaOptions::default()
        })?;
        let mut models = Models::new(options.models);
        let identity = identity_of(&options.command);
        let remembered = identity.as_ref().and_then(|id| models.read(id, "mind"));
        let recorder = match options.trace {
            Some((name, file)) => Some((name, Recorder::new(file)?)),
            None => None,
        };
        processes::places();
        let now = Instant::now();
        let workers = options.advise.then(|| Workers::start(Nanos::ZERO));
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        Ok(Manager {
            arena,
            began: sys::monotonic_ns(),
            batch: Batch::default(),
            processes: Processes::default(),
            files: Files::default(),
            contexts: Contexts::new(recorder.is_some()),
            models,
            identity,
            recorder,
            wall: since_1970.unwrap_or_default().into(),
            host: host(),
            mind: (options.mind)(remembered.as_deref()),
            advise: options.advise,
            workers: workers.transpose()?,
            devices: BTreeMap::new(),
            hints: Vec::new(),
            loads: BTreeMap::new(),
            notes_left: 0,
            pace: Pace::new(now),
            swept: now,
            flushed: now,
            counters: [0; Counter::ALL.len()],
            turned_off: 0,
            lost: 0,
            suspicious: 0,
            unlearned: 0,
            job: options.job,
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
        loop {
            // Asked first: what was reported before is then drained.
            let (is_over, wants_summary) = (host.is_over(), host.wants_summary());
            let began = Instant::now();
            let found = self.look();
            let shown = match (is_over, wants_summary) {
                (true, _) => Some(self.finish()),
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
            match self.pace.next(began, Instant::now(), found) {
                Rest::For(time) => std::thread::sleep(time),
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

    /// One round; how much was found.
    fn look(&mut self) -> usize {
        let mut batch = std::mem::take(&mut self.batch);
        batch.fill(&mut self.arena, &mut self.contexts);
        self.write_contexts();
        let found = batch.len();
        let allowance = self.pace.allowance(found, self.processes.live());
        let mut seen: IdHashMap<u32, u32> = IdHashMap::default();
        for item in batch.items() {
            self.take(item, allowance, &mut seen);
        }
        batch.clear();
        self.batch = batch;
        if self.advise {
            self.hear_workers();
            self.expect();
            self.plan();
        }
        if self.swept.elapsed() >= SWEEP {
            self.sweep();
        }
        if self.flushed.elapsed() >= FLUSH {
            self.flush();
        }
        found
    }

    fn write_contexts(&mut self) {
        let fresh = self.contexts.take_fresh();
        if let Some((_, recorder)) = &mut self.recorder {
            fresh.iter().for_each(|record| recorder.write(record));
        }
    }

    /// Understands one item, and passes it on to all that want to know.
    fn take(&mut self, item: &Item, allowance: u32, seen: &mut IdHashMap<u32, u32>) {
        let (process, is_new) = self
            .processes
            .find(&item.origin, &self.arena, &mut self.models);
        if is_new {
            self.introduce(process);
        }
        let operation = match &item.what {
            batch::What::Gap(lost) => return self.lose(process, *lost),
            batch::What::Operation(operation) => operation,
        };
        let arena = &self.arena;
        let file = self.files.find(operation, process, || {
            arena.file(operation.file, operation.generation)
        });
        let event = self.event(item, operation, process, file);
        self.files.count(file, &event);
        self.record(&event, file);
        if let Some(known) = self.processes.get_mut(process) {
            known.totals.count(&event);
            let seen = seen.entry(process).or_insert(0);
            *seen += 1;
            match *seen <= allowance {
                true => known.learn(&event, operation.context, allowance < u32::MAX),
                false => {
                    known.is_behind = true;
                    self.unlearned += 1;
                }
            }
        }
        if self.advise {
            self.tell(&event, file, operation);
        }
        if event.action == Action::Close {
            self.close(operation.file, operation.generation, event.end());
        }
    }

    fn event(
        &mut self,
        item: &Item,
        operation: &Operation,
        process: u32,
        file: FileNumber,
    ) -> Event {
        Event {
            time: Nanos(operation.start.saturating_sub(self.began)),
            duration: Nanos(operation.duration),
            process,
            thread: item.origin.tid,
            file: FileId(file.0.into()),
            action: operation.action,
            layer: Layer::Posix,
            context: self.contexts.number(operation.context),
            offset: operation.offset,
            len: operation.len,
            result: operation.result,
        }
    }

    /// Writes who a process is.
    fn introduce(&mut self, number: u32) {
        let Some(process) = self.processes.get_mut(number) else {
            return;
        };
        if let Some((_, recorder)) = &mut self.recorder {
            recorder.write(&Record::Process(TraceProcess {
                id: number,
                pid: Some(process.pid),
                rank: process.rank,
                host: self.host.clone(),
                command: Some(process.command.clone()),
                start: Some(self.wall),
            }));
        }
    }

    fn lose(&mut self, process: u32, lost: u64) {
        self.lost = self.lost.saturating_add(lost);
        self.suspicious = SUSPICIOUS_SWEEPS;
        if let Some(known) = self.processes.get_mut(process) {
            known.is_behind = true;
        }
        if let Some((_, recorder)) = &mut self.recorder {
            recorder.write(&Record::Gap { process, lost });
        }
    }

    fn record(&mut self, event: &Event, number: FileNumber) {
        let Some((_, recorder)) = &mut self.recorder else {
            return;
        };
        if let Some(file) = self.files.get_mut(number)
            && !std::mem::replace(&mut file.traced, true)
        {
            recorder.write(&Record::File {
                id: event.file,
                name: file.path.clone(),
            });
        }
        recorder.write(&Record::Event(*event));
    }

    /// Tells the mind about a transfer, and before the first one that the file is open.
    fn tell(&mut self, event: &Event, number: FileNumber, operation: &Operation) {
        if !event.action.is_transfer() || event.moved() == 0 {
            return;
        }
        let range = Range::at(event.offset, event.moved());
        let write = event.action == Action::Write;
        let Some(file) = self.files.get_mut(number) else {
            return;
        };
        if !write {
            file.gain.read(range);
        }
        let place = (operation.file, operation.generation);
        let Some(open) = file.opens.iter_mut().find(|open| is_at(open, place)) else {
            return;
        };
        let is_first = !std::mem::replace(&mut open.tried, true);
        let is_told = open.told || is_first && self.tell_opened(number, place, event.time);
        if !is_told {
            return;
        }
        self.mind.accessed(&Access {
            file: number,
            process: event.process,
            time: event.time,
            duration: event.duration,
            range,
            write,
        });
    }

    /// Tells the mind that a file is open, if it can be found out where it lies.
    fn tell_opened(&mut self, number: FileNumber, place: (u32, u32), time: Nanos) -> bool {
        let device = self.device(number);
        let (Some(device), Some(file)) = (device, self.files.get_mut(number)) else {
            return false;
        };
        let Some(open) = file.opens.iter_mut().find(|open| is_at(open, place)) else {
            return false;
        };
        open.told = true;
        let (process, writes) = (Some(open.process), open.writes);
        self.mind.opened(&Opened {
            file: number,
            process,
            path: file.path(),
            size: file.size,
            writes,
            device: &device,
            time,
        });
        true
    }

    /// The device of a file. One file of each is opened for a look at it.
    fn device(&mut self, number: FileNumber) -> Option<Arc<Device>> {
        let at = self.whereabouts(number)?;
        if let Some(device) = self.devices.get(&at.key.device) {
            return Some(device.clone());
        }
        let device = self.workers.as_ref()?.device(&at)?;
        self.devices.insert(at.key.device, device.clone());
        Some(device)
    }

    fn whereabouts(&self, number: FileNumber) -> Option<Whereabouts> {
        let file = self.files.get(number)?;
        let open = file.opens.first();
        Some(Whereabouts {
            key: file.key,
            descriptor: open.map(|open| (open.pid, open.descriptor)),
            path: file.path().to_owned(),
        })
    }

    fn close(&mut self, index: u32, generation: u32, now: Nanos) {
        let Some((number, open)) = self.files.close(index, generation) else {
            return;
        };
        if open.told {
            self.mind.closed(number, open.process, now);
        }
        let is_last = self.files.get(number).is_none_or(|f| f.opens.is_empty());
        if is_last && let Some(workers) = &self.workers {
            workers.closed(number);
        }
    }

    fn hear_workers(&mut self) {
        let results = self.workers.as_ref().map(Workers::results);
        for done in results.unwrap_or_default() {
            match done {
                Done::Loaded(done) => self.loaded(&done),
                Done::Opened {
                    path,
                    key,
                    size,
                    device,
                    file,
                } => {
                    let number = self.files.ahead(key, &path, size);
                    if let Some(workers) = &self.workers {
                        workers.keep(number, file);
                    }
                    self.devices.insert(key.device, device.clone());
                    let time = self.now();
                    self.mind.opened(&Opened {
                        file: number,
                        process: None,
                        path: &path,
                        size,
                        writes: false,
                        device: &device,
                        time,
                    });
                }
            }
        }
    }

    fn loaded(&mut self, done: &LoadDone) {
        let fresh = done.there.saturating_sub(done.already);
        let loads = self.loads.entry(done.reason).or_default();
        loads.already += done.already;
        loads.loaded += fresh;
        if let Some(file) = self.files.get_mut(done.file) {
            file.gain.load(done.range, fresh);
        }
        self.mind.loaded(done);
    }

    /// Reads the models of processes that did something: what is due too soon is left out, since no hint would be in
    /// time.
    fn expect(&mut self) {
        let earliest = self.now() + HINT_COST;
        for number in self.processes.touched(ASKED_MAX) {
            let Some(process) = self.processes.get_mut(number) else {
                continue;
            };
            let Some(cursor) = process.model.best() else {
                continue;
            };
            let last_end = process.last_end;
            let expected: Vec<Expected> = cursor
                .take(AHEAD_MAX)
                .map(|predicted| (last_end + predicted.after, predicted))
                .take_while(|(time, _)| *time < earliest + AHEAD)
                .filter(|(time, p)| p.action == Action::Read && p.len > 0 && *time >= earliest)
                .filter_map(|(time, predicted)| {
                    let PredictedFile::Known(file) = predicted.file else {
                        return None;
                    };
                    Some(Expected {
                        file: FileNumber(u32::try_from(file.0).ok()?),
                        range: Range::at(predicted.offset, predicted.len),
                        time,
                        confidence: predicted.confidence,
                    })
                })
                .collect();
            self.mind.expected(number, &expected);
        }
    }

    fn plan(&mut self) {
        let now = self.now();
        let mut hints = std::mem::take(&mut self.hints);
        self.mind.plan(now, &mut hints);
        for hint in hints.drain(..) {
            self.carry_out(hint);
        }
        self.hints = hints;
    }

    fn carry_out(&mut self, hint: Hint) {
        let work = match hint {
            Hint::Mode { file, mode, .. } => return self.leave_notes(file, mode),
            Hint::OpenAhead { path } => Work::OpenAhead(path),
            Hint::Load {
                file,
                range,
                reason,
            } => {
                let loads = self.loads.entry(reason).or_default();
                loads.hints += 1;
                loads.asked += range.len();
                let Some(at) = self.whereabouts(file) else {
                    return;
                };
                Work::Load(file, range, reason, at)
            }
            Hint::Release { file, range, .. } => {
                let Some(at) = self.whereabouts(file) else {
                    return;
                };
                Work::Release(file, range, at)
            }
        };
        let refused = self.workers.as_mut().and_then(|w| w.submit(work));
        if let Some(done) = refused {
            self.loaded(&done);
        }
    }

    /// Mode advice acts on the open file itself: only the program can give it.
    fn leave_notes(&mut self, number: FileNumber, mode: FileMode) {
        self.notes_left = self.notes_left.wrapping_add(1);
        let note = Note {
            advice: match mode {
                FileMode::Normal => Advice::Normal,
                FileMode::Random => Advice::Random,
                FileMode::Sequential => Advice::Sequential,
            },
            region: 0,
            serial: self.notes_left,
        };
        for open in self.files.get(number).map_or(&[][..], |f| &f.opens) {
            self.arena.leave_note(open.index, open.generation, note);
        }
    }

    /// Gives back what the dead had, and ends what they began.
    fn sweep(&mut self) {
        self.swept = Instant::now();
        let mut gone = Vec::new();
        self.arena.sweep(|entry| gone.push(entry.clone()));
        let now = self.now();
        for entry in gone {
            self.count(&entry);
            self.contexts.forget(entry.pid);
            for process in self.processes.end(entry.pid, &mut self.models) {
                for (index, generation) in self.files.opened_by(process) {
                    self.close(index, generation, now);
                }
            }
        }
        self.close_lost(now);
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

    /// Adds up what a process counted.
    fn count(&mut self, entry: &ProcessEntry) {
        for counter in Counter::ALL {
            let sum = &mut self.counters[counter as usize];
            *sum = sum.saturating_add(entry.counter(counter));
        }
        self.turned_off += u64::from(entry.counter(Counter::TurnedOff) > 0);
    }

    fn flush(&mut self) {
        self.flushed = Instant::now();
        if let Some((_, recorder)) = &mut self.recorder {
            recorder.flush();
        }
    }

    /// What is known while the run goes on.
    fn glimpse(&mut self) -> Summary {
        let ended = (self.counters, self.turned_off);
        let live: Vec<ProcessEntry> = self.arena.processes().collect();
        live.iter().for_each(|entry| self.count(entry));
        let trace = self.recorder.as_mut().map(|(name, recorder)| {
            recorder.settle();
            (name.clone(), recorder.records())
        });
        let summary = self.summary(0, trace, self.models.notes.clone());
        (self.counters, self.turned_off) = ended;
        summary
    }

    /// The run is over.
    fn finish(&mut self) -> Summary {
        self.sweep();
        let left: Vec<ProcessEntry> = self.arena.processes().collect();
        // Exiting ones are as good as gone; and so is the one that we are in.
        let myself = std::process::id();
        let running = left
            .iter()
            .filter(|entry| !entry.exiting && entry.pid != myself);
        let running = running.count() as u64;
        left.iter().for_each(|entry| self.count(entry));
        if self.advise {
            self.hear_workers();
        }
        self.processes.end_all(&mut self.models);
        self.models.save();
        self.keep_mind();
        self.models.tidy();
        let mut notes = std::mem::take(&mut self.models.notes);
        let trace = self.end_trace(&mut notes);
        let summary = self.summary(running, trace, notes);
        if let Some(workers) = &mut self.workers {
            workers.stop();
        }
        summary
    }

    fn keep_mind(&mut self) {
        if self.processes.count() == 0 {
            return;
        }
        if let (Some(identity), Some(bytes)) = (&self.identity, self.mind.remember()) {
            self.models.write(identity, "mind", &bytes);
        }
    }

    fn summary(
        &self,
        still_running: u64,
        trace: Option<(String, u64)>,
        mut notes: Vec<String>,
    ) -> Summary {
        let sums = self.processes.sums();
        self.note_overload(&sums, &mut notes);
        if still_running > 0 {
            let count = summary::counted_es(still_running, "process");
            notes.push(format!(
                "{count} still ran when the command ended: what came later is not counted"
            ));
        }
        let mut gain = self.files.forgotten_gain.clone();
        self.files.iter().for_each(|(_, file)| gain.add(&file.gain));
        Summary {
            elapsed: self.now(),
            job: self.job.clone(),
            processes: self.processes.count(),
            still_running,
            files: self.files.count_all(),
            contexts: self.contexts.len() as u64,
            totals: sums.totals,
            programs: programs(&sums),
            busiest: self.busiest(),
            judged: sums.judged,
            models_begun: self.models.begun,
            models_saved: self.models.saved,
            advised: self.advise,
            loads: self.loads.iter().map(|(r, l)| (*r, *l)).collect(),
            useful: gain.useful,
            wasted: gain.wasted(),
            backends: self.workers.as_ref().map_or(Vec::new(), Workers::summary),
            decided: self.mind.explain(),
            unseen: self.unseen(),
            notes,
            trace,
            manager_time: Nanos::ZERO,
        }
    }

    fn end_trace(&mut self, notes: &mut Vec<String>) -> Option<(String, u64)> {
        let (name, recorder) = self.recorder.take()?;
        match recorder.finish() {
            Ok(records) => Some((name, records)),
            Err(error) => {
                notes.push(format!(
                    "the trace {name} is cut short: {error}; choose another place for it"
                ));
                None
            }
        }
    }

    fn note_overload(&self, sums: &Sums, notes: &mut Vec<String>) {
        if self.unlearned > 0 {
            let (all, unlearned) = (sums.totals.all(), self.unlearned);
            notes.push(format!(
                "more was reported than the manager could think about: models saw {} of {all} operations, counts and trace have all",
                all.saturating_sub(unlearned)
            ));
        }
        let refused = self.workers.as_ref().map_or(0, |w| w.refused);
        if refused > 0 {
            let note = format!("{refused} hints were not given because too many waited");
            notes.push(note);
        }
    }

    /// What the library could not see, as far as it noticed.
    fn unseen(&self) -> Vec<String> {
        let of = |counter: Counter| self.counters[counter as usize];
        let losses = self.arena.losses();
        let mib = of(Counter::MappedBytes) >> 20;
        let lost = losses.dropped.max(self.lost);
        let cases = [
            (
                of(Counter::IoUring),
                "calls of io_uring: what went through it",
            ),
            (
                of(Counter::RawCalls),
                "reads and writes that the program made as raw system calls",
            ),
            (
                mib,
                "MiB of files that were mapped into memory: page faults do their I/O",
            ),
            (of(Counter::Interrupted), "operations of signal handlers"),
            (
                lost,
                "operations that were lost because the manager was too slow (--trace makes programs wait for it)",
            ),
            (
                of(Counter::LostOperations),
                "operations of threads that found no place to report to",
            ),
            (
                of(Counter::LostFiles),
                "files that were open beyond what can be followed at a time",
            ),
            (
                losses.no_process,
                "processes beyond what can be told apart at a time",
            ),
            (
                losses.nonsense,
                "records that made no sense: a program overwrote them",
            ),
            (
                self.turned_off,
                "processes in which the library turned itself off, because they forbid themselves system calls",
            ),
        ];
        let seen = cases.into_iter().filter(|(count, _)| *count > 0);
        seen.map(|(count, what)| format!("{count} {what}"))
            .collect()
    }

    fn busiest(&self) -> Vec<Named> {
        let files = self.files.iter().map(|(_, file)| Named {
            name: file.path().display().to_string(),
            processes: 0,
            totals: file.totals,
        });
        let mut files = busiest_first(files.collect());
        files.truncate(10);
        files
    }
}

fn programs(sums: &Sums) -> Vec<Named> {
    let programs = sums.programs.iter().map(|(name, p)| Named {
        name: name.clone(),
        processes: p.processes,
        totals: p.totals,
    });
    busiest_first(programs.collect())
}

fn is_at(open: &Open, place: (u32, u32)) -> bool {
    (open.index, open.generation) == place
}

fn busiest_first(mut list: Vec<Named>) -> Vec<Named> {
    list.sort_by_key(|n| std::cmp::Reverse((n.totals.time(), n.totals.read + n.totals.written)));
    list
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
mod tests {
    use super::*;
    use presagio_arena::{Client, FileSlot, Found, Kind, Writer};
    use std::ffi::CString;

    fn manager() -> Manager {
        Manager::create(Options {
            filter: PathFilter::default(),
            advise: false,
            mind: Box::new(|_| Box::new(Nothing)),
            trace: None,
            models: None,
            command: Vec::new(),
            job: None,
            slots: 4,
        })
        .unwrap()
    }

    /// A program with a file open, as the manager's arena has it.
    struct Program {
        client: Client,
        writer: Writer,
        slot: FileSlot,
    }

    impl Program {
        fn new(manager: &Manager) -> Program {
            let path = CString::new(manager.address()).unwrap();
            let client = Client::attach(&path, [&b"app"[..]].into_iter()).unwrap();
            let mut writer = Writer::new();
            assert!(writer.open(&client));
            let found = Found {
                descriptor: 3,
                device: 1,
                inode: 2,
                size: 100,
                flags: libc::O_RDONLY,
                inherited: false,
                path: b"/data",
            };
            let slot = client.open_file(&found).unwrap();
            Program {
                client,
                writer,
                slot,
            }
        }

        fn tell(&mut self, kind: Kind, len: u64) {
            let mut record = presagio_arena::Record::new(kind);
            (record.file, record.generation) = (self.slot.index, self.slot.generation);
            record.len = len;
            assert!(self.writer.push(&self.client, &record));
        }
    }

    fn opens(manager: &Manager) -> usize {
        manager.files.iter().map(|(_, file)| file.opens.len()).sum()
    }

    /// As often as a loss is looked into; each sweep comes after a look, however long that takes.
    fn look_and_sweep(manager: &mut Manager) {
        for _ in 0..SUSPICIOUS_SWEEPS {
            manager.swept -= SWEEP;
            manager.look();
        }
    }

    #[test]
    fn what_a_program_lost_is_counted_wherever_the_manager_is() {
        let mut manager = manager();
        let mut program = Program::new(&manager);
        program.tell(Kind::Gap, 7);
        manager.look();
        assert_eq!(manager.lost, 7);
    }

    #[test]
    fn a_file_whose_closing_was_lost_does_not_stay_open() {
        let mut manager = manager();
        let mut program = Program::new(&manager);
        program.tell(Kind::Operation(Action::Open), 0);
        manager.look();
        assert_eq!(opens(&manager), 1);
        program.client.close_file(program.slot); // and its record found no room
        program.tell(Kind::Gap, 1);
        look_and_sweep(&mut manager);
        assert_eq!(opens(&manager), 0);
    }

    #[test]
    fn a_file_that_is_open_stays_so_whatever_else_was_lost() {
        let mut manager = manager();
        let mut program = Program::new(&manager);
        program.tell(Kind::Operation(Action::Open), 0);
        program.tell(Kind::Gap, 1);
        look_and_sweep(&mut manager);
        assert_eq!((opens(&manager), manager.suspicious), (1, 0));
    }
}
