//! Several clients in one directory, and their histories: what each of them knows, put together in the end.

use super::common::nodes::pattern;
use super::way::{Done, Files, Open};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const EIO: i32 = 5;
const ENOENT: i32 = 2;
const EEXIST: i32 = 17;
const ESTALE: i32 = 116;
/// Records of the log: who, which, and bytes that only that one has.
const RECORD: usize = 64;

/// What one client did to what all share.
#[derive(Default)]
pub struct History {
    /// Records that it appended.
    pub appended: Vec<u64>,
    /// Records of which nobody can tell.
    pub maybe_appended: Vec<u64>,
    /// What it wrote to the counter while it had the lock.
    pub counted: Vec<u64>,
    /// Files that it was the one to make.
    pub made: Vec<u64>,
    /// Files of which nobody can tell.
    pub maybe_made: Vec<u64>,
    /// Steps of the other part.
    pub steps: u64,
    /// How often nobody could tell.
    pub unknown: u64,
    /// Open files that were gone when others had replaced them.
    pub stale: u64,
    /// How often it heard that the lock that it kept was lost.
    pub lost: u64,
    /// How often it got the lock that another one kept.
    pub got: u64,
}

impl History {
    pub fn text(&self, steps: u64, unknown: u64) -> String {
        let line = |numbers: &[u64]| -> String {
            let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
            numbers.join(" ") + "\n"
        };
        let totals = [steps, unknown, self.stale, self.lost, self.got];
        let lines = [
            &self.appended[..],
            &self.maybe_appended,
            &self.counted,
            &self.made,
            &self.maybe_made,
            &totals,
        ];
        lines.map(line).concat()
    }

    pub fn read(text: &str) -> History {
        let numbers = |line: &str| -> Vec<u64> {
            let numbers = line.split_whitespace();
            numbers
                .map(|text| text.parse().expect("a number"))
                .collect()
        };
        let mut lines = text.lines().map(numbers);
        let mut next = || lines.next().expect("a line");
        let mut history = History {
            appended: next(),
            maybe_appended: next(),
            counted: next(),
            made: next(),
            maybe_made: next(),
            ..History::default()
        };
        let totals = next();
        (history.steps, history.unknown) = (totals[0], totals[1]);
        (history.stale, history.lost, history.got) = (totals[2], totals[3], totals[4]);
        history
    }
}

/// One of the clients.
pub struct Shared<'a> {
    files: &'a dyn Files,
    dir: String,
    me: u64,
    /// Where marks are.
    outside: PathBuf,
    turn: u64,
    log: Option<Box<dyn Open>>,
    counter: Option<Box<dyn Open>>,
    held: Option<Box<dyn Open>>,
    /// The head that was there when we looked last, still open.
    old_head: Option<(Box<dyn Open>, Vec<u8>)>,
    pub history: History,
}

impl<'a> Shared<'a> {
    pub fn new(files: &'a dyn Files, dir: &str, me: u64, outside: &Path) -> Shared<'a> {
        Shared {
            files,
            dir: dir.into(),
            me,
            outside: outside.into(),
            turn: 0,
            log: None,
            counter: None,
            held: None,
            old_head: None,
            history: History::default(),
        }
    }

    pub fn step(&mut self) {
        self.turn += 1;
        self.append();
        self.count();
        self.hold();
        self.make();
        self.replace();
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.dir)
    }

    /// Opens what the first of us makes.
    fn open_or_make(&self, name: &str, append: bool) -> Box<dyn Open> {
        let path = self.path(name);
        loop {
            match self.files.create(&path).map(drop) {
                Ok(()) | Err(EEXIST) => break,
                Err(EIO) => {}
                Err(errno) => panic!("{path}: error {errno}"),
            }
        }
        self.files.open(&path, append).expect("it is there")
    }

    fn append(&mut self) {
        let log = match self.log.take() {
            Some(log) => log,
            None => self.open_or_make("log", true),
        };
        match log.append(&record(self.me, self.turn)) {
            Ok(count) => {
                assert_eq!(count, RECORD, "an append in one piece");
                self.history.appended.push(self.turn);
            }
            Err(EIO) => {
                self.history.unknown += 1;
                self.history.maybe_appended.push(self.turn);
            }
            Err(errno) => panic!("append: error {errno}"),
        }
        self.log = Some(log);
    }

    /// Counts one on, if the lock can be had. Whoever lost it hears EIO, and may not have counted.
    fn count(&mut self) {
        let counter = match self.counter.take() {
            Some(counter) => counter,
            None => self.open_or_make("counter", false),
        };
        match self.count_in(&*counter) {
            Ok(()) => self.counter = Some(counter),
            // The lock is lost: this file says so until it is closed.
            Err(EIO) => self.history.unknown += 1,
            Err(errno) => panic!("count: error {errno}"),
        }
    }

    fn count_in(&mut self, counter: &dyn Open) -> Done<()> {
        if !counter.try_lock()? {
            return Ok(());
        }
        let bytes = counter.read_at(0, 8)?;
        let now = bytes.try_into().map_or(0, u64::from_le_bytes);
        // The wider the gap, the sooner somebody steps into it.
        std::thread::sleep(Duration::from_millis(self.turn % 4));
        let next = now + 1;
        counter.write_at(0, &next.to_le_bytes())?;
        self.history.counted.push(next);
        counter.unlock()
    }

    /// The first of us takes a lock and keeps it. Nobody else gets it, unless the first hears that it is lost.
    fn hold(&mut self) {
        let taken = self.outside.join("taken");
        let held = match self.held.take() {
            Some(held) => held,
            None => self.open_or_make("held", false),
        };
        let done = match (self.me, taken.exists()) {
            (0, false) => held.try_lock().map(|got| {
                if got {
                    fs::write(taken, "").expect("a mark");
                }
            }),
            (0, true) => held.write_at(0, &self.turn.to_le_bytes()).map(drop),
            (_, false) => Ok(()),
            (_, true) => held
                .try_lock()
                .map(|got| self.history.got += u64::from(got)),
        };
        match done {
            Ok(()) => self.held = Some(held),
            Err(EIO) if self.me == 0 => self.history.lost += 1,
            Err(EIO) => self.history.unknown += 1,
            Err(errno) => panic!("hold: error {errno}"),
        }
    }

    /// Tries to be the one who makes a file.
    fn make(&mut self) {
        let path = self.path(&format!("made{}", self.turn));
        match self.files.create(&path) {
            Ok(file) => {
                let written = file.write_at(0, &self.me.to_le_bytes());
                assert_eq!(written, Ok(8), "{path}");
                self.history.made.push(self.turn);
            }
            Err(EEXIST) => {}
            Err(EIO) => {
                self.history.unknown += 1;
                self.history.maybe_made.push(self.turn);
            }
            Err(errno) => panic!("{path}: error {errno}"),
        }
    }

    /// Replaces a file that others read: each sees one or the other, whole, and the one that it has open stays as it was.
    fn replace(&mut self) {
        if let Some((file, content)) = &self.old_head {
            match file.all() {
                Ok(now) => assert!(now == *content, "a file that is open is another one"),
                Err(ESTALE) => self.history.stale += 1,
                Err(errno) => panic!("an open file: error {errno}"),
            }
        }
        self.old_head = None;
        let (new, head) = (self.path(&format!("new{}", self.me)), self.path("head"));
        match self.files.create(&new) {
            Ok(file) => {
                let content = whole(self.me << 32 | self.turn);
                assert_eq!(file.write_at(0, &content), Ok(content.len()));
            }
            Err(EIO) => self.history.unknown += 1,
            Err(errno) => panic!("{new}: error {errno}"),
        }
        // What could not be told apart begins anew.
        if self
            .files
            .open(&new, false)
            .is_ok_and(|file| file.len() != Ok(0))
        {
            match self.files.rename(&new, &head) {
                Ok(()) => {}
                Err(EIO) => self.history.unknown += 1,
                Err(errno) => panic!("{new}: error {errno}"),
            }
        }
        match self.files.unlink(&new) {
            Err(ENOENT) => {}
            Ok(()) => {}
            Err(EIO) => self.history.unknown += 1,
            Err(errno) => panic!("{new}: error {errno}"),
        }
        self.look_at(&head);
    }

    fn look_at(&mut self, head: &str) {
        match self.files.open(head, false) {
            Ok(file) => {
                let content = match file.all() {
                    Err(ESTALE) => return self.history.stale += 1,
                    read => read.expect("it can be read"),
                };
                let seed = content.first_chunk().map(|seed| u64::from_le_bytes(*seed));
                let is_whole = seed.is_some_and(|seed| content == whole(seed));
                assert!(is_whole, "{} bytes that are not one head", content.len());
                self.old_head = Some((file, content));
            }
            Err(ENOENT) => {}
            Err(errno) => panic!("{head}: error {errno}"),
        }
    }
}

fn record(who: u64, which: u64) -> Vec<u8> {
    let mut record = pattern(who << 32 | which, RECORD);
    record[..8].copy_from_slice(&who.to_le_bytes());
    record[8..16].copy_from_slice(&which.to_le_bytes());
    record
}

/// A content that says whether it is whole.
fn whole(seed: u64) -> Vec<u8> {
    let mut content = pattern(seed, 1000 + seed as usize % 3000);
    content[..8].copy_from_slice(&seed.to_le_bytes());
    content
}

/// Holds what is in the directory against what everybody knows.
pub fn judge(dir: &Path, histories: &[History]) {
    judge_log(&fs::read(dir.join("log")).expect("the log"), histories);
    let counter = fs::read(dir.join("counter")).expect("the counter");
    judge_counter(
        u64::from_le_bytes(counter.try_into().expect("a number")),
        histories,
    );
    judge_made(dir, histories);
    let lost: u64 = histories.iter().map(|history| history.lost).sum();
    let got: u64 = histories.iter().map(|history| history.got).sum();
    let counted: usize = histories.iter().map(|history| history.counted.len()).sum();
    println!(
        "counted {counted} times; the lock that was kept was lost {lost} times, got {got} times"
    );
    assert!(got == 0 || lost > 0, "somebody got a lock that another had");
}

/// Every record that was acknowledged is there once, in the order of its writer; others, if at all, once too.
fn judge_log(log: &[u8], histories: &[History]) {
    assert_eq!(log.len() % RECORD, 0, "whole records");
    let mut found: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for bytes in log.chunks(RECORD) {
        let number = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("8 bytes"));
        let (who, which) = (number(0), number(8));
        assert!(bytes == record(who, which), "a record in pieces");
        found.entry(who).or_default().push(which);
    }
    for (who, history) in (0..).zip(histories) {
        let found = found.remove(&who).unwrap_or_default();
        assert!(found.is_sorted_by(|a, b| a < b), "{who}: {found:?}");
        let found: BTreeSet<u64> = found.into_iter().collect();
        let acknowledged: BTreeSet<u64> = history.appended.iter().copied().collect();
        let lost: Vec<_> = acknowledged.difference(&found).collect();
        assert!(lost.is_empty(), "{who}: acknowledged and lost: {lost:?}");
        let unasked = found.difference(&acknowledged);
        let unasked: Vec<_> = unasked
            .filter(|which| !history.maybe_appended.contains(which))
            .collect();
        assert!(unasked.is_empty(), "{who}: {unasked:?}");
    }
    assert!(found.is_empty(), "by nobody: {:?}", found.keys());
}

/// No two who had the lock counted the same, and nothing that was counted is lost.
fn judge_counter(counter: u64, histories: &[History]) {
    let mut all: Vec<u64> = Vec::new();
    for history in histories {
        assert!(history.counted.is_sorted_by(|a, b| a < b), "it went back");
        all.extend(&history.counted);
    }
    let times = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), times, "two had the lock at the same time");
    let last = all.last().copied().unwrap_or(0);
    assert!(counter >= last, "{counter} is less than {last}");
    let unknown: u64 = histories.iter().map(|history| history.unknown).sum();
    assert!(counter <= times as u64 + unknown, "{counter} for {times}");
}

/// Every file was made by one of those who tried.
fn judge_made(dir: &Path, histories: &[History]) {
    let mut makers: BTreeMap<u64, u64> = BTreeMap::new();
    for (who, history) in (0..).zip(histories) {
        for which in &history.made {
            let other = makers.insert(*which, who);
            assert_eq!(
                other, None,
                "made{which} was made by two: {other:?} and {who}"
            );
        }
    }
    let maybe: BTreeSet<u64> = histories
        .iter()
        .flat_map(|history| history.maybe_made.clone())
        .collect();
    let turns = makers.keys().max().copied().unwrap_or(0);
    for which in 1..=turns {
        let content = fs::read(dir.join(format!("made{which}")));
        match (makers.get(&which), content) {
            (Some(who), Ok(content)) => assert_eq!(content, who.to_le_bytes(), "made{which}"),
            (None, _) if maybe.contains(&which) => {}
            (who, content) => panic!("made{which}: {who:?}, {content:?}"),
        }
    }
}
