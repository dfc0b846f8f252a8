//! One process that reads a file: its last reads, its place on the tape, and what it was given so far.

use super::Followed;
use super::sieve::{Shape, Sieve, Window};
use super::tape::{Cursor, Tape};
use crate::config::Mode;
use crate::plan::{Access, Expected, OpenNumber};
use presagio_core::{Nanos, Range};
use std::path::PathBuf;
use std::sync::Arc;

/// The shape is looked at, and a decision made if due, every so many reads.
pub(super) const LOOK_EVERY: u64 = 4;
/// For an estimate, so many reads of the tape are looked at.
const ESTIMATE_READS: usize = 64;
/// Expected reads below this are guesses: they would waste as much as they gain.
const CONFIDENCE_MIN: f64 = 0.5;
/// Sieving loads at most four times what is read: the ledger's credit would end anything more wasteful.
const DENSITY_MIN: f64 = 0.25;
/// More reads than this are not asked for ahead.
pub(super) const READS_AHEAD_MAX: usize = 512;

/// A process that reads the file.
#[derive(Debug)]
pub(super) struct Reader {
    pub window: Window,
    pub shape: Option<Shape>,
    pub sieve: Sieve,
    pub cursor: Cursor,
    /// What is followed; without it, the recording itself.
    pub source: Option<Arc<Tape>>,
    pub recording: Tape,
    /// The reads on the tape up to this one were asked for.
    pub planned: usize,
    pub reads: u64,
    /// How the kernel should read ahead for it, and how it does for each time that it has the file open.
    pub mode: Mode,
    pub opens: Vec<(OpenNumber, Mode)>,
    last_end: Option<Nanos>,
    /// What a model expects, if there is no tape to follow.
    pub expected: Vec<Expected>,
    /// The file that will be opened after this one, and whether that was asked for.
    pub next: Option<PathBuf>,
    pub next_asked: bool,
}

impl Reader {
    pub fn new(source: Option<Arc<Tape>>, cursor: Cursor, planned: usize) -> Reader {
        Reader {
            window: Window::default(),
            shape: None,
            sieve: Sieve::default(),
            cursor,
            source,
            recording: Tape::default(),
            planned,
            reads: 0,
            mode: Mode::Normal,
            opens: Vec::new(),
            last_end: None,
            expected: Vec::new(),
            next: None,
            next_asked: false,
        }
    }

    /// It has opened the file, perhaps once more.
    pub fn open(&mut self, number: OpenNumber) {
        self.opens.push((number, Mode::Normal));
    }

    /// It has closed the file; whether that was the last time.
    pub fn close(&mut self, number: OpenNumber) -> bool {
        let at = self.opens.iter().position(|open| open.0 == number);
        at.map(|at| self.opens.swap_remove(at));
        self.opens.is_empty()
    }

    /// The tape that is followed.
    pub fn tape(&self) -> &Tape {
        self.source.as_deref().unwrap_or(&self.recording)
    }

    /// It has read. What the tape of an earlier run or file had told of that: its own recording is not counted.
    pub fn read(&mut self, access: &Access) -> Followed {
        let source = self.source.as_deref();
        let told = source.and_then(|tape| self.cursor.told(tape));
        let think = self
            .last_end
            .map_or(Nanos::ZERO, |end| access.time.since(end));
        self.window.read(access.range, think);
        let mut cursor = self.cursor;
        cursor.read(self.tape(), access.range);
        self.cursor = cursor;
        self.recording.push(access.range);
        self.last_end = Some(access.time + access.duration);
        self.reads += 1;
        if self.reads.is_multiple_of(LOOK_EVERY) {
            self.shape = self.window.shape();
        }
        Followed {
            reads: 1,
            told: u64::from(told.is_some()),
            right: u64::from(told == Some(access.range)),
        }
    }

    /// The reads that are known to come, the next first.
    pub fn coming(&self, now: Nanos) -> Vec<Range> {
        if self.cursor.is_sure() {
            let coming = self.tape().from(self.cursor.next());
            return coming.take(ESTIMATE_READS).collect();
        }
        let coming = self.expected.iter().filter(|e| e.time >= now);
        coming.map(|e| e.range).take(ESTIMATE_READS).collect()
    }

    /// What a model expects from now on. Guesses are left out.
    pub fn expect(&mut self, expected: impl Iterator<Item = Expected>) {
        self.expected.clear();
        let likely = expected.filter(|e| e.confidence >= CONFIDENCE_MIN);
        self.expected.extend(likely);
    }

    /// Whether its reads cover a moving window well enough for sieving.
    pub fn is_dense(&self) -> bool {
        self.shape.is_some_and(|s| s.density >= DENSITY_MIN)
    }

    /// Whether most reads begin where the one before ended.
    pub fn is_sequential(&self) -> bool {
        4 * self.window.adjacent() >= 3 * self.window.len()
    }

    /// Whether many reads begin where the one before ended: what makes the kernel read ahead.
    pub fn has_runs(&self) -> bool {
        4 * self.window.adjacent() >= self.window.len() && !self.is_sequential()
    }

    /// The first read on the tape that was not asked for yet. Even what is due at once is asked for: it would have to
    /// wait behind the rest.
    pub fn first_to_ask(&self) -> usize {
        let next = self.cursor.next();
        let known = (next..=next + READS_AHEAD_MAX).contains(&self.planned);
        if known { self.planned } else { next }
    }

    /// Another method is in force: nothing is underway.
    pub fn restart(&mut self) {
        self.planned = 0;
        self.sieve.reset();
    }
}
