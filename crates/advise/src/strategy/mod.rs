//! The strategy that adapts: which bytes to load, for which file, and when to leave it alone.
//!
//! For each file one of four methods is in force. *Exact*: what is known to come is loaded, from the file's own
//! history (`tape`), that of the file before it, or a model's expectation; gaps are read too where that is cheaper
//! (`exact`). *Sieving*: nothing is known, but reads cover a moving window densely (`sieve`). *Nothing*: the kernel
//! does as well; or even less, *bare*: its reading ahead is switched off (`random`). `speed` says what the device can do, `governor` measures what each method really gains and chooses,
//! `ledger` bounds what can be wasted, `tapes` keeps the histories from run to run, `told` says why.
//!
//! Everything is deterministic: the same calls give the same hints.
//!
//! ```
//! use presagio_advise::plan::Strategy;
//! use presagio_advise::strategy::{Adaptive, Options, Tapes};
//! use presagio_core::Nanos;
//!
//! let mut strategy = Adaptive::new(Options::default(), Tapes::default());
//! let mut hints = Vec::new();
//! strategy.plan(Nanos::ZERO, &mut hints);
//! assert!(hints.is_empty());
//! assert!(Tapes::load(&strategy.save()).unwrap().is_empty());
//! ```

mod exact;
mod file;
mod governor;
mod ledger;
mod loads;
mod marks;
mod random;
mod reader;
mod sieve;
mod speed;
mod tape;
mod tapes;
mod told;
mod written;

pub use tapes::{LoadError, Tapes};
pub use told::{TOO_FEW, Wait};

use crate::hints::{Device, Storage};
use crate::plan::{
    Access, Expected, FileNumber, Hint, Holder, LoadDone, Memory, Opened, Reason, Strategy,
};
use file::File;
use governor::{Governor, Method};
use loads::Turn;
use presagio_core::{Nanos, Range};
use reader::Reader;
use speed::Speed;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tape::{Cursor, Tape};
use written::Written;

/// Sentences about closed files that are kept for the summary.
const TOLD_MAX: usize = 256;

/// Files opened ahead that nobody has come for yet.
const AHEAD_FILES_MAX: usize = 16;
/// Processes whose last file is remembered: short ones come by the thousand.
const LAST_MAX: usize = 256;
/// Of the memory that is left, one part in so many may be taken by what was loaded and not read yet.
const MEMORY_SHARE: u64 = 8;

/// What can be chosen.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes that may be loaded and not read yet, in all files together, however much memory there is.
    pub memory_max: u64,
    /// Whether anything may be done. If not, it records and measures for the next run.
    pub advises: bool,
}

impl Default for Options {
    /// 128 MiB: four files at full depth.
    fn default() -> Options {
        Options {
            memory_max: 128 << 20,
            advises: true,
        }
    }
}

/// What came of all loads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Bytes that were asked for and then read.
    pub useful: u64,
    /// Bytes that were asked for and not read, gaps that were read on purpose among them.
    pub wasted: u64,
    /// Bytes that may still be read.
    pub unread: u64,
}

/// What the tapes told of reads before they came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// All reads.
    pub reads: u64,
    /// Those of which a tape that was believed said where they would be.
    pub told: u64,
    /// Those that came exactly so.
    pub right: u64,
}

impl Followed {
    /// Adds what others read.
    pub fn add(&mut self, other: Followed) {
        self.reads += other.reads;
        self.told += other.told;
        self.right += other.right;
    }
}

/// See the module's header.
#[derive(Debug)]
pub struct Adaptive {
    options: Options,
    tapes: Tapes,
    files: BTreeMap<FileNumber, File>,
    numbers: BTreeMap<PathBuf, FileNumber>,
    /// By the name of the device.
    speeds: BTreeMap<String, Speed>,
    /// The file that each process opened last, and what was learned from it.
    last: BTreeMap<u32, Last>,
    /// How many files were opened.
    opened: u64,
    /// Files that were read since the last plan.
    active: BTreeSet<(FileNumber, u32)>,
    hints: Vec<Hint>,
    /// Bytes that may be loaded and not read yet, as memory is now.
    memory_max: u64,
    /// Bytes that may still be loaded, while a plan is made.
    room: u64,
    written: Written,
    told: VecDeque<Told>,
    closed: Account,
    followed: Followed,
}

/// What is told of a file that was closed.
#[derive(Debug)]
struct Told {
    path: PathBuf,
    sentence: String,
    wait: Option<Wait>,
}

/// What a file leaves to the one that is opened after it.
#[derive(Clone, Debug)]
struct Last {
    path: PathBuf,
    device: String,
    governor: Governor,
    tape: Option<Arc<Tape>>,
    /// How many files had been opened by all processes when this one was.
    opened: u64,
}

impl Adaptive {
    /// One that remembers these tapes.
    pub fn new(options: Options, tapes: Tapes) -> Adaptive {
        Adaptive {
            memory_max: options.memory_max,
            options,
            tapes,
            files: BTreeMap::new(),
            numbers: BTreeMap::new(),
            speeds: BTreeMap::new(),
            last: BTreeMap::new(),
            opened: 0,
            active: BTreeSet::new(),
            hints: Vec::new(),
            room: 0,
            written: Written::default(),
            told: VecDeque::new(),
            closed: Account::default(),
            followed: Followed::default(),
        }
    }

    /// The tapes as bytes, with those of files that are still open.
    pub fn save(&mut self) -> Vec<u8> {
        for file in self.files.values() {
            let longest = file.readers.values().max_by_key(|r| r.recording.len());
            if let Some(reader) = longest {
                let tape = Arc::new(reader.recording.clone());
                let costs = file.governor.costs();
                let fit = self.speeds.get(&file.device.name).and_then(Speed::known);
                self.tapes.keep(&file.path, file.size, tape, costs, fit);
            }
        }
        self.tapes.save()
    }

    /// What was chosen for each file and why, in a sentence; files that are open come last.
    pub fn explain(&self) -> Vec<(PathBuf, String)> {
        let closed = self.told.iter();
        let closed = closed.map(|told| (told.path.clone(), told.sentence.clone()));
        let open = self.open().map(|f| (f.path.clone(), told::sentence(f)));
        closed.chain(open).collect()
    }

    /// What reads waited with what was chosen, and without it, of files where both were measured in this run; in the same order.
    pub fn waits(&self) -> Vec<(PathBuf, Wait)> {
        let closed = self.told.iter().map(|told| (&told.path, told.wait));
        let all = closed.chain(self.open().map(|f| (&f.path, f.wait())));
        let measured = all.filter_map(|(path, wait)| Some((path.clone(), wait?)));
        measured.collect()
    }

    /// Files that somebody reads.
    fn open(&self) -> impl Iterator<Item = &File> {
        self.files.values().filter(|f| !f.readers.is_empty())
    }

    /// What came of the loads so far.
    pub fn account(&self) -> Account {
        self.files.values().fold(self.closed, |sum, file| Account {
            useful: sum.useful + file.ledger.useful,
            wasted: sum.wasted + file.ledger.wasted,
            unread: sum.unread + file.ledger.unread(),
        })
    }

    /// What the tapes told of the reads so far.
    pub fn followed(&self) -> Followed {
        self.followed
    }

    /// What a plan for a file is made with.
    fn turn(&self, device: &Device, now: Nanos) -> Turn {
        Turn {
            fit: self.speeds.get(&device.name).and_then(Speed::fit),
            now,
            room: self.room,
            loads: Vec::new(),
        }
    }

    /// A file that the process has just opened, or that was opened ahead.
    fn file_of(&mut self, opened: &Opened<'_>) -> &mut File {
        self.recall_speed(opened);
        self.numbers.insert(opened.path.to_owned(), opened.file);
        let advises = self.options.advises;
        let file = self.files.entry(opened.file).or_insert_with(|| {
            let device = opened.device.clone();
            File::new(opened.path.to_owned(), opened.size, device, advises)
        });
        file.size = opened.size;
        file
    }

    /// What an earlier run has found about the device, if nothing is known yet.
    fn recall_speed(&mut self, opened: &Opened<'_>) {
        let kept = self.tapes.get(opened.path, opened.size);
        let speed = kept.and_then(|kept| kept.fit).map(Speed::seeded);
        if let Some(speed) = speed {
            let name = opened.device.name.clone();
            self.speeds.entry(name).or_insert(speed);
        }
    }

    /// The next file of a series goes on as the one before; else an earlier run tells what to expect.
    fn governor_of(&self, opened: &Opened<'_>) -> Governor {
        let last = opened.by.and_then(|by| self.last.get(&by.process));
        let kin = last.filter(|last| {
            last.device == opened.device.name && last.path.parent() == opened.path.parent()
        });
        if let Some(last) = kin {
            return last.governor.heir();
        }
        let kept = self.tapes.get(opened.path, opened.size);
        kept.map_or_else(Governor::default, |kept| Governor::seeded(kept.costs))
    }

    /// The tape to follow: the file's own, else that of the file before.
    fn tape_of(&self, path: &Path, size: u64, process: u32) -> (Option<Arc<Tape>>, Cursor) {
        if let Some(kept) = self.tapes.get(path, size) {
            return (Some(kept.tape.clone()), Cursor::same_file());
        }
        let last = self.last.get(&process).filter(|last| last.path != path);
        let sibling = last.and_then(|last| last.tape.clone());
        (sibling, Cursor::stranger())
    }

    /// The file that will be opened next: as in the last run, else the next number if the last step was one, too.
    fn next_of(&self, path: &Path, process: u32) -> Option<PathBuf> {
        if let Some(next) = self.tapes.after(path) {
            return Some(next.to_owned());
        }
        let last = &self.last.get(&process)?.path;
        (tapes::counted_up(last)? == path).then(|| tapes::counted_up(path))?
    }

    /// What the file that a process opened last has taught by now, if it is still open.
    fn refresh_last(&mut self, process: u32) {
        let Some(last) = self.last.get_mut(&process) else {
            return;
        };
        let file = self.numbers.get(&last.path).and_then(|n| self.files.get(n));
        let reader = file.and_then(|f| Some((f, f.readers.get(&process)?)));
        if let Some((file, reader)) = reader {
            last.governor = file.governor.clone();
            last.tape = Some(Arc::new(reader.recording.clone()));
        }
    }

    /// Plans for one reader.
    fn plan_reader(&mut self, number: FileNumber, process: u32, now: Nanos) {
        let device = self.files.get(&number).map(|f| f.device.clone());
        let Some(mut turn) = device.map(|d| self.turn(&d, now)) else {
            return;
        };
        let Some(file) = self.files.get_mut(&number) else {
            return;
        };
        let left = file.plan(process, &mut turn);
        let loads = turn.loads.iter();
        loads.for_each(|range| file.marks.asked(*range, now));
        let reason = reason(file.governor.method());
        self.hints.extend(random::modes(file, number, process));
        self.hint(number, &turn, reason);
        if left > 0 {
            self.plan_next(number, process, left, now);
        }
    }

    /// The tape of a file is at its end: goes on with the next file, which is opened ahead.
    fn plan_next(&mut self, number: FileNumber, process: u32, bytes: u64, now: Nanos) {
        let file = self.files.get_mut(&number);
        let reader = file.and_then(|f| f.readers.get_mut(&process));
        let Some((reader, path)) = reader.and_then(|r| r.next.clone().map(|n| (r, n))) else {
            return;
        };
        let sibling = reader.source.clone();
        if !std::mem::replace(&mut reader.next_asked, true) {
            self.hints.push(Hint::OpenAhead { path });
        } else if let Some(next) = self.numbers.get(&path) {
            self.plan_before(*next, sibling, bytes, now);
        }
    }

    /// Loads the beginning of a file that nobody has opened yet, by its own tape or that of the file before.
    fn plan_before(
        &mut self,
        number: FileNumber,
        sibling: Option<Arc<Tape>>,
        bytes: u64,
        now: Nanos,
    ) {
        let file = self.files.get(&number).filter(|f| f.readers.is_empty());
        let Some((path, size, device)) = file.map(|f| (&f.path, f.size, &f.device)) else {
            return;
        };
        let own = self.tapes.get(path, size).map(|kept| kept.tape.clone());
        let mut turn = self.turn(device, now);
        if let (Some(tape), Some(file)) = (own.or(sibling), self.files.get_mut(&number)) {
            file.plan_before(&tape, bytes, &mut turn);
            self.hint(number, &turn, Reason::Exact);
        }
    }

    /// Gives back what was loaded in vain.
    fn release_expired(&mut self) {
        for (number, file) in &mut self.files {
            let expired = file.ledger.take_expired();
            self.hints
                .extend(expired.map(|(range, method)| Hint::Release {
                    file: *number,
                    range,
                    reason: reason(method),
                }));
        }
    }

    fn hint(&mut self, file: FileNumber, turn: &Turn, reason: Reason) {
        self.room = turn.room;
        let hints = turn.loads.iter().map(|range| Hint::Load {
            file,
            range: *range,
            reason,
        });
        self.hints.extend(hints);
    }

    /// Past so many processes, the one that has opened nothing for longest is forgotten: a parent of many short ones stays.
    fn forget_idlest(&mut self) {
        if self.last.len() > LAST_MAX {
            let idlest = self.last.iter().min_by_key(|(_, last)| last.opened);
            let idlest = idlest.map(|(process, _)| *process);
            idlest.map(|process| self.last.remove(&process));
        }
    }

    /// Lets go files that were opened ahead and that nobody came for.
    fn forget_unwanted(&mut self) {
        let unread = self.files.iter().filter(|(_, f)| f.readers.is_empty());
        let unread: Vec<FileNumber> = unread.map(|(number, _)| *number).collect();
        let over = unread.len().saturating_sub(AHEAD_FILES_MAX);
        unread[..over].iter().for_each(|n| self.forget(*n));
    }

    /// Nobody reads the file any more.
    fn forget(&mut self, number: FileNumber) {
        let Some(mut file) = self.files.remove(&number) else {
            return;
        };
        if self.numbers.get(&file.path) == Some(&number) {
            self.numbers.remove(&file.path);
        }
        if !file.why.is_empty() {
            self.told.push_back(Told {
                path: file.path.clone(),
                sentence: told::sentence(&file),
                wait: file.wait(),
            });
        }
        if self.told.len() > TOLD_MAX {
            self.told.pop_front();
        }
        file.ledger.close();
        self.closed.useful += file.ledger.useful;
        self.closed.wasted += file.ledger.wasted;
    }
}

impl Strategy for Adaptive {
    fn opened(&mut self, opened: &Opened<'_>) {
        if opened.device.storage == Storage::Memory {
            return;
        }
        let Some(Holder { process, open }) = opened.by else {
            self.file_of(opened);
            self.forget_unwanted();
            return;
        };
        self.refresh_last(process);
        let (tape, cursor) = self.tape_of(opened.path, opened.size, process);
        let next = self.next_of(opened.path, process);
        let governor = self.governor_of(opened);
        let file = self.file_of(opened);
        if file.readers.is_empty() {
            file.governor = governor;
        }
        if let Some(reader) = file.readers.get_mut(&process) {
            reader.open(open);
        } else {
            let mut reader = Reader::new(tape, cursor, file.planned_before);
            reader.open(open);
            reader.next = next;
            file.readers.insert(process, reader);
        }
        let last = Last {
            path: opened.path.to_owned(),
            device: opened.device.name.clone(),
            governor: file.governor.clone(),
            tape: None,
            opened: self.opened,
        };
        self.opened += 1;
        if let Some(before) = self.last.insert(process, last) {
            self.tapes.opened_after(&before.path, opened.path);
        }
        self.forget_idlest();
    }

    fn closed(&mut self, number: FileNumber, by: Holder, _now: Nanos) {
        let Some(file) = self.files.get_mut(&number) else {
            return;
        };
        let reader = file.readers.get_mut(&by.process);
        if reader.is_none_or(|reader| !reader.close(by.open)) {
            return;
        }
        let Some(reader) = file.readers.remove(&by.process) else {
            return;
        };
        let tape = Arc::new(reader.recording);
        let costs = file.governor.costs();
        if let Some(last) = self
            .last
            .get_mut(&by.process)
            .filter(|l| l.path == file.path)
        {
            last.governor = file.governor.clone();
            last.tape = Some(tape.clone());
        }
        let fit = self.speeds.get(&file.device.name).and_then(Speed::known);
        self.tapes.keep(&file.path, file.size, tape, costs, fit);
        if file.readers.is_empty() {
            self.forget(number);
        }
    }

    fn accessed(&mut self, access: &Access) {
        if !is_plausible(access.range) {
            return;
        }
        let Some(file) = self.files.get_mut(&access.file) else {
            return;
        };
        if access.write {
            file.ledger.wrote(access.range);
            return self.written.wrote(access.file, access.range, access.time);
        }
        self.written.read(access.file, access.range);
        let speed = self.speeds.entry(file.device.name.clone()).or_default();
        self.followed.add(file.read(access, speed));
        if self.options.advises {
            self.active.insert((access.file, access.by.process));
        }
    }

    fn expected(&mut self, process: u32, expected: &[Expected]) {
        for (number, file) in &mut self.files {
            let Some(reader) = file.readers.get_mut(&process) else {
                continue;
            };
            let here = expected.iter();
            let here = here.filter(|e| e.file == *number && is_plausible(e.range));
            reader.expect(here.copied());
        }
    }

    fn loaded(&mut self, done: &LoadDone) {
        let file = self.files.get_mut(&done.file);
        if let Some(file) = file.filter(|_| is_plausible(done.range)) {
            file.loaded(done);
        }
    }

    fn memory(&mut self, memory: Memory, now: Nanos) {
        self.memory_max = self.options.memory_max.min(memory.left / MEMORY_SHARE);
        if memory.is_short {
            self.written.release(now, &mut self.hints);
            self.release_expired();
        }
    }

    fn plan(&mut self, now: Nanos, hints: &mut Vec<Hint>) {
        let unread = self.account().unread;
        self.room = self.memory_max.saturating_sub(unread);
        for (file, process) in std::mem::take(&mut self.active) {
            self.plan_reader(file, process, now);
        }
        hints.append(&mut self.hints);
    }
}

/// What a read can be: bytes, at an offset that a file can have, and no more than Linux moves at once (2 GiB).
fn is_plausible(range: Range) -> bool {
    !range.is_empty() && range.end() <= i64::MAX as u64 && range.len() <= 1 << 31
}

fn reason(method: Method) -> Reason {
    match method {
        Method::Sieving => Reason::Sieving,
        _ => Reason::Exact,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Mode;
    use crate::plan::OpenNumber;
    use proptest::prelude::{Just, any, prop, prop_assert, prop_oneof, proptest};
    use proptest::strategy::Strategy as _;

    const MIB: u64 = 1 << 20;

    fn device() -> Arc<Device> {
        let here = std::fs::File::open(env!("CARGO_MANIFEST_DIR")).unwrap();
        let mut device = Device::of(&here).unwrap();
        device.storage = Storage::Local;
        Arc::new(device)
    }

    /// Open files are told apart by their process here.
    fn holder(process: u32) -> Holder {
        let open = OpenNumber(process.into());
        Holder { process, open }
    }

    fn open(
        strategy: &mut Adaptive,
        file: u32,
        process: Option<u32>,
        size: u64,
        device: &Arc<Device>,
    ) {
        let path = PathBuf::from(format!("/data/step_{file:03}.dat"));
        strategy.opened(&Opened {
            file: FileNumber(file),
            by: process.map(holder),
            path: &path,
            size,
            writes: false,
            device,
            time: Nanos::ZERO,
        });
    }

    fn read(file: u32, process: u32, start: u64, len: u64, time_us: u64, us: u64) -> Access {
        Access {
            file: FileNumber(file),
            by: holder(process),
            time: Nanos::from_micros(time_us),
            duration: Nanos::from_micros(us),
            range: Range::at(start, len),
            write: false,
        }
    }

    #[test]
    fn what_a_model_expects_is_loaded_once() {
        let mut strategy = Adaptive::new(Options::default(), Tapes::default());
        open(&mut strategy, 1, Some(0), 1 << 40, &device());
        let start = |i: u64| (i * 7919 % 1009) << 24;
        let mut hints = Vec::new();
        for i in 0..60 {
            strategy.accessed(&read(1, 0, start(i), 65536, i * 1000, 500));
            let expected = [1, 2, 3].map(|n| Expected {
                file: FileNumber(1),
                range: Range::at(start(i + n), 65536),
                time: Nanos::from_micros((i + n) * 1000),
                confidence: if n == 3 { 0.2 } else { 0.9 },
            });
            strategy.expected(0, &expected);
            strategy.plan(Nanos::from_micros(i * 1000 + 600), &mut hints);
        }
        let mut loads: Vec<u64> = Vec::new();
        for hint in &hints {
            if let Hint::Load { range, reason, .. } = hint {
                assert_eq!(*reason, Reason::Exact);
                loads.push(range.start());
            }
        }
        let known: Vec<u64> = (0..62).map(start).collect();
        assert!(
            loads.len() > 30 && loads.iter().all(|l| known.contains(l)),
            "{hints:?}"
        );
        loads.sort_unstable();
        loads.dedup();
        assert_eq!(loads.len(), hints.len());
    }

    /// The modes that were asked for, and for which open file.
    fn modes(hints: &[Hint]) -> Vec<(u64, Mode)> {
        let modes = hints.iter().filter_map(|hint| match hint {
            Hint::Mode { open, mode, .. } => Some((open.0, *mode)),
            _ => None,
        });
        modes.collect()
    }

    #[test]
    fn who_reads_at_random_and_who_reads_on_have_a_mode_each() {
        let mut strategy = Adaptive::new(Options::default(), Tapes::default());
        let mut device = device();
        // So far that nothing is left to be done for who reads on.
        Arc::get_mut(&mut device).unwrap().read_ahead_kb = Some(1024);
        (0..2).for_each(|process| open(&mut strategy, 1, Some(process), 1 << 40, &device));
        let mut hints = Vec::new();
        for i in 0..300 {
            let (now, far) = (i * 20_000, (i * 7919 % 1009) << 24);
            strategy.accessed(&read(1, 0, far, 4096, now, 5000));
            strategy.accessed(&read(1, 1, i * 65536, 65536, now + 6000, 5000));
            strategy.plan(Nanos::from_micros(now + 12_000), &mut hints);
        }
        assert_eq!(modes(&hints), [(0, Mode::Random)]);
        hints.clear();
        // Opened once more, by the same process: another open file, which has no mode yet.
        let again = OpenNumber(100);
        strategy.opened(&Opened {
            file: FileNumber(1),
            by: Some(Holder {
                process: 0,
                open: again,
            }),
            path: Path::new("/data/step_001.dat"),
            size: 1 << 40,
            writes: false,
            device: &device,
            time: Nanos::ZERO,
        });
        strategy.accessed(&read(1, 0, 5 << 24, 4096, 7_000_000, 5000));
        strategy.plan(Nanos::from_secs(8), &mut hints);
        assert_eq!(modes(&hints), [(100, Mode::Random)]);
    }

    #[test]
    fn a_mode_ends_with_its_reason() {
        let mut strategy = Adaptive::new(Options::default(), Tapes::default());
        let mut device = device();
        Arc::get_mut(&mut device).unwrap().read_ahead_kb = Some(1024);
        open(&mut strategy, 1, Some(0), 1 << 40, &device);
        let mut hints = Vec::new();
        let mut reads = |from: u64, at: &dyn Fn(u64) -> u64| {
            hints.clear();
            for i in from..from + 300 {
                let now = i * 20_000;
                strategy.accessed(&read(1, 0, at(i), 4096, now, 5000));
                strategy.plan(Nanos::from_micros(now + 12_000), &mut hints);
            }
            modes(&hints)
        };
        let far = |i: u64| (i * 7919 % 1009) << 24;
        assert_eq!(reads(0, &far), [(0, Mode::Random)]);
        // Every other block: none begins where the one before ended, and reading ahead would find them.
        let dense = |i: u64| i * 8192;
        assert_eq!(reads(300, &dense), [(0, Mode::Normal)]);
    }

    #[test]
    fn loads_that_bring_nothing_into_memory_are_given_up() {
        // Every other block, each of which takes as long as before, whatever is loaded.
        let run = |is_kept: bool| {
            let mut strategy = Adaptive::new(Options::default(), Tapes::default());
            open(&mut strategy, 1, Some(0), 1 << 40, &device());
            let mut loads = 0;
            for i in 0..900 {
                let now = i * 6000;
                strategy.accessed(&read(1, 0, i * 131_072, 65536, now, 5000));
                let mut hints = Vec::new();
                strategy.plan(Nanos::from_micros(now + 5500), &mut hints);
                for hint in hints {
                    let Hint::Load { range, reason, .. } = hint else {
                        continue;
                    };
                    loads += 1;
                    strategy.loaded(&LoadDone {
                        file: FileNumber(1),
                        range,
                        reason,
                        started: Nanos::from_micros(now + 5600),
                        ended: Nanos::from_micros(now + 5700),
                        already: Some(0),
                        there: if is_kept { range.len() } else { 0 },
                    });
                }
            }
            (loads, strategy.explain().pop().unwrap().1)
        };
        let (loads, why) = run(false);
        assert!((1..=8).contains(&loads), "{loads} {why}");
        assert!(why.starts_with("nothing: "), "{why}");
        let (usual, _) = run(true);
        assert!(usual > 2 * loads, "{usual}");
    }

    fn memory(left: u64, is_short: bool) -> Memory {
        Memory { left, is_short }
    }

    #[test]
    fn writes_get_no_hints_until_memory_is_short() {
        let mut strategy = Adaptive::new(Options::default(), Tapes::default());
        open(&mut strategy, 1, Some(0), 0, &device());
        for i in 0..1000 {
            let mut access = read(1, 0, i * 65536, 65536, i * 100, 50);
            access.write = true;
            strategy.accessed(&access);
        }
        let mut hints = Vec::new();
        for (seconds, is_short) in [(60, false), (100, true)] {
            let now = Nanos::from_secs(seconds);
            strategy.memory(memory(MIB, is_short), now);
            strategy.plan(now, &mut hints);
            assert_eq!(hints.len(), usize::from(is_short), "{hints:?}");
        }
    }

    #[test]
    fn what_was_loaded_in_vain_is_given_back_when_memory_is_short() {
        let mut strategy = Adaptive::new(Options::default(), Tapes::default());
        open(&mut strategy, 1, Some(0), 1 << 40, &device());
        let (mut hints, mut loads) = (Vec::new(), Vec::new());
        // Every other block of 256 KiB, so that as much is loaded in vain.
        for i in 0..600 {
            let now = i * 6000;
            strategy.accessed(&read(1, 0, i << 19, 1 << 18, now, 5000));
            strategy.plan(Nanos::from_micros(now + 5500), &mut hints);
            for hint in hints.drain(..) {
                let Hint::Load { range, reason, .. } = hint else {
                    continue;
                };
                loads.push(range);
                strategy.loaded(&LoadDone {
                    file: FileNumber(1),
                    range,
                    reason,
                    started: Nanos::from_micros(now + 5600),
                    ended: Nanos::from_micros(now + 5700),
                    already: Some(0),
                    there: range.len(),
                });
            }
        }
        let now = Nanos::from_secs(10);
        strategy.memory(memory(MIB, false), now);
        strategy.plan(now, &mut hints);
        assert!(hints.is_empty(), "{hints:?}");
        // What is written meanwhile is the program's.
        let written = Range::at(500 << 19, 100 << 19);
        let mut access = read(1, 0, written.start(), written.len(), 9_000_000, 5);
        access.write = true;
        strategy.accessed(&access);
        strategy.memory(memory(MIB, true), now);
        strategy.plan(now, &mut hints);
        assert!(hints.len() > 10, "{hints:?}");
        for hint in &hints {
            let Hint::Release { range, .. } = hint else {
                panic!("{hint:?}");
            };
            let loaded = loads.iter().any(|load| load.overlaps(*range));
            let was_read = (0..600).any(|i| Range::at(i << 19, 1 << 18).overlaps(*range));
            assert!(loaded && !was_read, "{hint:?}");
            assert!(!written.overlaps(*range), "{hint:?}");
        }
    }

    #[test]
    fn as_memory_gets_less_so_does_what_may_be_loaded() {
        let mut strategy = Adaptive::new(Options::default(), Tapes::default());
        let now = Nanos::ZERO;
        strategy.memory(memory(u64::MAX, false), now);
        assert_eq!(strategy.memory_max, 128 * MIB);
        strategy.memory(memory(8 * MIB, false), now);
        assert_eq!(strategy.memory_max, MIB);
        strategy.memory(memory(u64::MAX, false), now);
        assert_eq!(strategy.memory_max, 128 * MIB);
    }

    #[test]
    fn a_driver_of_many_short_processes_is_remembered() {
        let mut strategy = Adaptive::new(Options::default(), Tapes::default());
        let device = device();
        for i in 0..2 * LAST_MAX as u32 {
            // The driver came first, and opens a file for each hundred that it starts.
            if i % 100 == 0 {
                let is_known = strategy.last.contains_key(&0);
                assert_eq!(is_known, i > 0, "before the {i}th");
                open(&mut strategy, i, Some(0), 1000, &device);
            }
            open(&mut strategy, 10_000 + i, Some(1 + i), 1000, &device);
        }
        assert_eq!(strategy.last.len(), LAST_MAX);
    }

    #[test]
    fn files_in_memory_are_left_alone() {
        let mut strategy = Adaptive::new(Options::default(), Tapes::default());
        let mut device = device();
        Arc::get_mut(&mut device).unwrap().storage = Storage::Memory;
        open(&mut strategy, 1, Some(0), MIB, &device);
        strategy.accessed(&read(1, 0, 0, 65536, 0, 50));
        assert!(strategy.files.is_empty());
    }

    #[test]
    fn processes_and_files_that_come_and_go_leave_nothing_behind() {
        let mut strategy = Adaptive::new(Options::default(), Tapes::default());
        let device = device();
        for i in 0..3000 {
            open(&mut strategy, i, Some(i), 1000, &device);
            open(&mut strategy, i + 10_000, None, 1000, &device);
            strategy.accessed(&read(i, i, 0, 1000, u64::from(i), 1));
            strategy.closed(FileNumber(i), holder(i), Nanos::ZERO);
        }
        assert!(
            strategy.files.len() <= AHEAD_FILES_MAX && strategy.numbers.len() <= AHEAD_FILES_MAX
        );
        assert!(strategy.last.len() <= LAST_MAX && strategy.told.len() <= TOLD_MAX);
    }

    #[test]
    fn a_file_that_is_open_twice_is_forgotten_when_it_is_closed_twice() {
        let mut strategy = Adaptive::new(Options::default(), Tapes::default());
        let device = device();
        (0..2).for_each(|_| open(&mut strategy, 1, Some(0), MIB, &device));
        strategy.accessed(&read(1, 0, 0, 65536, 0, 50));
        strategy.closed(FileNumber(1), holder(0), Nanos::ZERO);
        assert_eq!((strategy.files.len(), strategy.tapes.len()), (1, 0));
        strategy.closed(FileNumber(1), holder(0), Nanos::ZERO);
        assert_eq!((strategy.files.len(), strategy.tapes.len()), (0, 1));
    }

    #[derive(Clone, Debug)]
    enum Call {
        Open(u32, Option<u32>, u64),
        Close(u32, u32),
        Read(u32, u32, u64, u64, u64),
        Expect(u32, u64, u64),
        Loaded(u32, u64, u64, u64),
        Plan,
    }

    fn call() -> impl proptest::strategy::Strategy<Value = Call> {
        let at = prop_oneof![4 => 0u64..64 * MIB, 1 => any::<u64>()];
        let len = prop_oneof![4 => 0u64..MIB, 1 => any::<u64>()];
        prop_oneof![
            1 => (0u32..3, prop::option::of(0u32..2), at.clone()).prop_map(|(f, p, s)| Call::Open(f, p, s)),
            1 => (0u32..3, 0u32..2).prop_map(|(f, p)| Call::Close(f, p)),
            20 => (0u32..3, 0u32..2, at.clone(), len.clone(), 0u64..5000)
                .prop_map(|(f, p, s, l, t)| Call::Read(f, p, s, l, t)),
            2 => (0u32..3, at.clone(), len.clone()).prop_map(|(f, s, l)| Call::Expect(f, s, l)),
            2 => (0u32..3, at.clone(), len, at).prop_map(|(f, s, l, t)| Call::Loaded(f, s, l, t)),
            4 => Just(Call::Plan),
        ]
    }

    proptest! {
        #[test]
        fn whatever_happens_the_bounds_hold(calls in prop::collection::vec(call(), 1..400), stride in 0u64..MIB) {
            let memory_max = 4 * MIB;
            let options = Options { memory_max, ..Options::default() };
            let mut strategy = Adaptive::new(options, Tapes::default());
            let device = device();
            let (mut hints, mut now) = (Vec::new(), 0);
            for (i, call) in calls.into_iter().enumerate() {
                now += 500;
                match call {
                    Call::Open(f, p, size) => open(&mut strategy, f, p, size, &device),
                    Call::Close(f, p) => strategy.closed(FileNumber(f), holder(p), Nanos::from_micros(now)),
                    // Every other read moves on regularly, so that there is something to find.
                    Call::Read(f, p, _, l, us) if i % 2 == 0 => {
                        strategy.accessed(&read(f, p, i as u64 * stride, l.min(MIB), now, us));
                    }
                    Call::Read(f, p, s, l, us) => strategy.accessed(&read(f, p, s, l, now, us)),
                    Call::Expect(f, s, l) => strategy.expected(0, &[Expected {
                        file: FileNumber(f), range: Range::at(s, l), time: Nanos::MAX, confidence: 1.0,
                    }]),
                    Call::Loaded(f, s, l, t) => strategy.loaded(&LoadDone {
                        file: FileNumber(f), range: Range::at(s, l), reason: Reason::Exact,
                        started: Nanos(t), ended: Nanos::from_micros(now), already: Some(t), there: l,
                    }),
                    Call::Plan => strategy.plan(Nanos::from_micros(now), &mut hints),
                }
                prop_assert!(strategy.account().unread <= memory_max);
            }
            for hint in hints {
                if let Hint::Load { range, .. } = hint {
                    prop_assert!(!range.is_empty() && range.len() <= exact::LOAD_MAX);
                }
            }
            prop_assert!(Tapes::load(&strategy.save()).is_ok());
        }
    }
}
