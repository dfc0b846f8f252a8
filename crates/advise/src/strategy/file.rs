//! One file: its readers, and the decision which method is in force for it.
//!
//! A read passes the reader's window and tape, the ledger and the governor; every few reads the governor decides
//! with the estimates that are made here. `loads` then turns the method into loads.

use super::Followed;
use super::exact;
use super::governor::{Costs, Governor, METHODS, Method};
use super::ledger::Ledger;
use super::marks::Marks;
use super::reader::{LOOK_EVERY, Reader};
use super::speed::{Fit, Speed, wait_ns};
use super::tape::Cursor;
use super::told;
use crate::hints::Device;
use crate::plan::{Access, LoadDone};
use presagio_core::Nanos;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Operations that overlap, until it was measured: enough that a distant server is tried.
const OVERLAP: f64 = 4.0;
/// Where the kernel reads so far ahead, it serves sequential reads as well as we could.
const KERNEL_AHEAD_KB: u32 = 1024;
/// The kernel reads up to so many times what was asked for beyond a run of reads, within its limit.
const BEYOND_READS: f64 = 4.0;
/// Exact loads that cover so many reads each are blocks like those of sieving.
const READS_JOINED: usize = 8;
/// Loads that found more than this share in memory are of no use.
const ALREADY_MAX: f64 = 0.9;
/// So many of them are enough to tell.
const ALREADY_LOADS: u32 = 8;
/// So many loads in a row that left nothing in memory are enough, too.
const IN_VAIN_LOADS: u32 = 8;

/// A file that is open.
#[derive(Debug)]
pub(super) struct File {
    pub path: PathBuf,
    pub size: u64,
    pub device: Arc<Device>,
    /// Whether anything may be done.
    advises: bool,
    pub governor: Governor,
    pub ledger: Ledger,
    pub readers: BTreeMap<u32, Reader>,
    /// Reads on its tape that were asked for before it was opened.
    pub planned_before: usize,
    /// Why the method is what it is.
    pub why: String,
    /// The method that this is about.
    chosen: Method,
    /// What reads waited.
    waits: told::Waits,
    pub marks: Marks,
    already: Already,
    /// Loads in a row after which nothing was in memory.
    in_vain: u32,
    /// The gap up to which exact loads were joined when they were last measured; at first, that which comes nearest to it.
    gap_measured: Option<u64>,
}

/// How much of the last loads was in memory before.
#[derive(Clone, Copy, Debug, Default)]
struct Already {
    loads: u32,
    asked: u64,
    there: u64,
}

impl File {
    pub fn new(path: PathBuf, size: u64, device: Arc<Device>, advises: bool) -> File {
        File {
            path,
            size,
            device,
            advises,
            governor: Governor::default(),
            ledger: Ledger::default(),
            readers: BTreeMap::new(),
            planned_before: 0,
            why: String::new(),
            chosen: Method::Nothing,
            waits: told::Waits::default(),
            marks: Marks::default(),
            already: Already::default(),
            in_vain: 0,
            gap_measured: None,
        }
    }

    /// The largest operation of its device.
    pub fn operation_max(&self) -> u64 {
        let kb = self.device.max_sectors_kb.or(self.device.read_ahead_kb);
        u64::from(kb.unwrap_or(128).max(4)) << 10
    }

    /// How far the kernel reads ahead, in bytes.
    fn read_ahead(&self) -> u64 {
        u64::from(self.device.read_ahead_kb.unwrap_or(0)) << 10
    }

    /// A process has read. What its tape had told of that.
    pub fn read(&mut self, access: &Access, speed: &mut Speed) -> Followed {
        let operation_max = self.operation_max();
        let stranger = || Reader::new(None, Cursor::stranger(), 0);
        let reader = self
            .readers
            .entry(access.by.process)
            .or_insert_with(stranger);
        let followed = reader.read(access);
        let found = self.ledger.read(access.range);
        let wait_ns = wait_ns(access.range.len(), access.duration.0);
        let asked = 2 * found.bytes >= access.range.len();
        let by = found.method.filter(|_| asked);
        self.waits
            .add(by.unwrap_or(self.governor.method()), wait_ns);
        self.governor.read(by, wait_ns as f64);
        if found.bytes == 0 && self.marks.is_idle() {
            let operations = access.range.len().div_ceil(operation_max);
            speed.took(operations, access.range.len(), access.duration.0);
        } else if wait_ns > 0 {
            let until = access.time + access.duration;
            let work = self.marks.waited(access.range, until, operation_max);
            work.inspect(|w| speed.took(w.operations, w.bytes, w.took.0));
        }
        if reader.reads.is_multiple_of(LOOK_EVERY) {
            self.decide(access, speed);
        }
        followed
    }

    /// What the method that was chosen was measured to do.
    pub fn wait(&self) -> Option<told::Wait> {
        self.waits.told(self.chosen)
    }

    /// A load was carried out.
    pub fn loaded(&mut self, done: &LoadDone) {
        let already = done.already.map(|already| already.min(done.range.len()));
        self.ledger.loaded(done.range, already, done.there);
        let already = already.unwrap_or(0);
        self.marks.found(done.range, already);
        self.mind_already(done.range.len(), already);
        self.mind_in_vain(done.there == 0);
    }

    /// And so are those that bring nothing into memory, whatever storage it is that keeps nothing there.
    fn mind_in_vain(&mut self, was_in_vain: bool) {
        self.in_vain = if was_in_vain { self.in_vain + 1 } else { 0 };
        if self.in_vain >= IN_VAIN_LOADS {
            self.in_vain = 0;
            self.give_up_useless();
        }
    }

    /// Loads of what is there anyway are given up.
    fn mind_already(&mut self, asked: u64, there: u64) {
        self.already.loads += 1;
        self.already.asked += asked;
        self.already.there += there;
        if self.already.loads >= ALREADY_LOADS {
            let already = std::mem::take(&mut self.already);
            if already.there as f64 > ALREADY_MAX * already.asked as f64 {
                self.give_up_useless();
            }
        }
    }

    fn give_up_useless(&mut self) {
        if matches!(self.governor.method(), Method::Exact | Method::Sieving) {
            self.governor.useless();
        }
    }

    /// Lets the governor decide if it is time, and notes why.
    fn decide(&mut self, access: &Access, speed: &Speed) {
        let possible = self
            .readers
            .values()
            .any(|r| self.can(r, self.governor.method()));
        if !possible {
            self.governor.give_up();
            self.restart();
        }
        let Some(reader) = self.readers.get(&access.by.process) else {
            return;
        };
        if possible && !self.governor.is_due() {
            return;
        }
        let (fit, think_ns) = (speed.fit(), reader.window.think_ns());
        let read_len = reader.window.read_len();
        let estimates = self.estimates(access, fit);
        let changed = self.governor.decide(think_ns, estimates);
        if !self.governor.is_trial() {
            self.chosen = self.governor.method();
            self.why = told::why(self.chosen, reader, fit, &self.governor, estimates);
        }
        self.mind_gap(self.gap(fit, read_len));
        if changed {
            self.restart();
        }
    }

    fn restart(&mut self) {
        self.ledger.stake();
        self.marks = match self.marks.is_idle() {
            true => Marks::idle(),
            false => Marks::default(),
        };
        self.readers.values_mut().for_each(Reader::restart);
    }

    /// Whether a method is possible for a reader.
    fn can(&self, reader: &Reader, method: Method) -> bool {
        match method {
            Method::Nothing => true,
            _ if !self.advises => false,
            _ if reader.is_sequential() && self.is_served() => false,
            Method::Exact => reader.cursor.is_sure() || !reader.expected.is_empty(),
            Method::Bare => self.read_ahead() > 0 && reader.has_runs(),
            Method::Sieving => reader.is_dense(),
        }
    }

    /// Whether the kernel does well for sequential reads.
    fn is_served(&self) -> bool {
        let kb = self.device.read_ahead_kb;
        kb.is_none_or(|kb| kb >= KERNEL_AHEAD_KB)
    }

    /// Exact loads that are joined quite differently from when they were measured deserve a new judgement.
    fn mind_gap(&mut self, gap: u64) {
        if !self.advises {
            return; // what an earlier run has measured is for the next one
        }
        let before = *self.gap_measured.get_or_insert(gap);
        if self.governor.method() == Method::Exact {
            self.gap_measured = Some(gap);
        } else if gap > 2 * before || 2 * gap < before {
            self.gap_measured = Some(gap);
            self.governor.forget(Method::Exact);
        }
    }

    /// How long a read would wait with each method that is possible now, for the process that has just read, or for
    /// another if it is possible only there.
    fn estimates(&self, access: &Access, fit: Option<Fit>) -> Costs {
        let estimate = |method: Method| {
            let this = self.readers.get(&access.by.process);
            let mut all = this.into_iter().chain(self.readers.values());
            let reader = all.find(|r| self.can(r, method))?;
            let device_ns = match method {
                Method::Nothing => None,
                Method::Bare => return self.bare_ns(reader, fit),
                Method::Exact => return self.exact_ns(reader, fit, access.time),
                // A larger operation might take no longer.
                Method::Sieving if !fit.is_some_and(|fit| fit.apart) => {
                    return self.governor.cost_or_hope(method);
                }
                Method::Sieving => self.sieving_ns(reader, fit),
            };
            Some((device_ns? - reader.window.think_ns()).max(0.0))
        };
        METHODS.map(estimate)
    }

    /// How long a read would wait if it is asked for exactly.
    fn exact_ns(&self, reader: &Reader, fit: Option<Fit>, now: Nanos) -> Option<f64> {
        let Some(fit) = fit else {
            return Some(0.0); // unknown: worth a try
        };
        let coming = reader.coming(now);
        if coming.is_empty() && !reader.cursor.is_sure() {
            return None;
        }
        let count = coming.len().max(1);
        let gap = self.gap(Some(fit), reader.window.read_len());
        let loads = exact::merge(coming, gap, self.load_max());
        let device_ns = exact::time(&loads, &overlapped(fit), self.operation_max()) / count as f64;
        let wait_ns = (device_ns - reader.window.think_ns()).max(0.0);
        // Who asks for the same blocks as sieving waits no longer than was measured of that, whatever is thought of the device.
        let sieving = self.governor.costs()[Method::Sieving as usize];
        let known = sieving.filter(|_| READS_JOINED * loads.len() <= count);
        Some(known.map_or(wait_ns, |ns| ns.min(wait_ns)))
    }

    /// How long a read would wait if no byte were read beyond the ends of runs.
    fn bare_ns(&self, reader: &Reader, fit: Option<Fit>) -> Option<f64> {
        let Some(fit) = fit.filter(|fit| fit.apart) else {
            return Some(0.0); // who knows what bytes cost: worth a try
        };
        let read_len = reader.window.read_len();
        let ends = 1.0 - reader.window.adjacent() as f64 / reader.window.len().max(1) as f64;
        let beyond = ends * (BEYOND_READS * read_len).min(self.read_ahead() as f64);
        let operations = (read_len / self.operation_max() as f64).ceil();
        let saved = beyond / (read_len + beyond) * fit.byte_ns * read_len
            / fit.time(operations, read_len).max(1.0);
        let nothing = self.governor.costs()[Method::Nothing as usize]?;
        Some(nothing * (1.0 - saved))
    }

    /// The same if everything ahead is loaded.
    fn sieving_ns(&self, reader: &Reader, fit: Option<Fit>) -> Option<f64> {
        let (shape, fit) = (reader.shape?, fit?);
        let span = shape.read_len / shape.density;
        let operations = span / self.block(Some(fit)).min(self.operation_max()) as f64;
        Some(overlapped(fit).time(operations, span))
    }
}

/// What operations cost when several are underway.
fn overlapped(fit: Fit) -> Fit {
    Fit {
        operation_ns: fit.operation_ns / OVERLAP,
        ..fit
    }
}
