//! The loads that follow from the method in force: how large, how far ahead, and which.

use super::exact::{self, LOAD_MAX};
use super::file::File;
use super::governor::Method;
use super::ledger::{AHEAD_MAX, WORTH};
use super::reader::{READS_AHEAD_MAX, Reader};
use super::sieve::Shape;
use super::speed::{Fit, hit_ns};
use super::tape::Tape;
use presagio_core::{Nanos, Range};

/// The manager looks every 0.2–1 ms, and a hint takes some 0.1 ms to be carried out.
const REACTION_NS: f64 = 1_100_000.0;
/// Loading goes ahead by so many times what reaction and device take: a reader that is faster for a while still finds
/// its bytes, and the device has more than one operation to do.
const AHEAD_FACTOR: f64 = 8.0;
/// And by at least so many blocks, so that a new one is loaded while others are read.
const BLOCKS_AHEAD: u64 = 4;
/// Less while it is only tried whether loading pays: if it does not, it is in the way.
const AHEAD_FACTOR_TRIED: f64 = 2.0;
const BLOCKS_AHEAD_TRIED: u64 = 2;
/// A block takes so many times as long as an operation without bytes, so that an eighth of the time goes to those at most.
const BLOCK_FACTOR: u64 = 8;
/// Blocks are at least this large: what a program reads while the manager sleeps.
const BLOCK_MIN: u64 = 256 << 10;

/// Gaps that are worth reading where sieving gains, or where nobody knows what an operation costs: the kernel reads as much ahead by
/// default.
const GAP_USUAL: u64 = 128 << 10;

/// What a plan is made with, and the loads it comes to.
pub(super) struct Turn {
    /// What the device can do.
    pub fit: Option<Fit>,
    /// When.
    pub now: Nanos,
    /// How many bytes there is memory for.
    pub room: u64,
    /// The result.
    pub loads: Vec<Range>,
}

impl File {
    /// The loads for one reader. Returns how many bytes could be asked for of the next file, if the tape is at its end.
    pub fn plan(&mut self, process: u32, turn: &mut Turn) -> u64 {
        let Some(reader) = self.readers.get(&process) else {
            return 0;
        };
        match self.governor.method() {
            Method::Nothing | Method::Bare => {}
            Method::Sieving => self.plan_sieving(process, turn),
            Method::Exact if reader.cursor.is_sure() => return self.plan_tape(process, turn),
            Method::Exact => self.plan_expected(process, turn),
        }
        0
    }

    fn plan_sieving(&mut self, process: u32, turn: &mut Turn) {
        let reader = self.readers.get(&process);
        let Some((reader, shape)) = reader.and_then(|r| Some((r, r.shape?))) else {
            return;
        };
        if !reader.is_dense() {
            return;
        }
        let shape = Shape {
            head: reader.window.head(shape.forward),
            ..shape
        };
        let ahead = self.ahead(reader, turn.fit, shape.read_len / shape.density);
        let block = self.block(turn.fit).min(ahead);
        let mut sieve = reader.sieve;
        if let Some(range) = sieve.next(&shape, block, ahead, self.size) {
            self.ask(range, Method::Sieving, turn);
        }
        if let Some(reader) = self.readers.get_mut(&process) {
            reader.sieve = sieve;
        }
    }

    /// Asks for the next reads of the tape, half of what is loaded ahead at a time: so that there is something to join.
    /// Returns what is left for the next file when the tape ends.
    fn plan_tape(&mut self, process: u32, turn: &mut Turn) -> u64 {
        let Some(reader) = self.readers.get(&process) else {
            return 0;
        };
        let read_len = reader.window.read_len();
        let ahead = self.ahead(reader, turn.fit, read_len);
        let (gap, most) = (self.gap(turn.fit, read_len), self.load_max());
        let (next, first, tape) = (reader.cursor.next(), reader.first_to_ask(), reader.tape());
        let mut bytes = joined_bytes(tape.from(next).take(first - next).collect(), gap, most);
        let reads = READS_AHEAD_MAX - (first - next);
        if bytes > ahead / 2 || reads < READS_AHEAD_MAX / 2 {
            return 0;
        }
        let coming = take_bytes(tape.from(first).take(reads), ahead - bytes, gap, most);
        bytes += joined_bytes(coming.clone(), gap, most);
        let planned = first + coming.len();
        let ended = planned >= tape.len() && reader.source.is_some();
        self.ask_all(coming, gap, turn);
        if let Some(reader) = self.readers.get_mut(&process) {
            reader.planned = planned;
        }
        if ended {
            ahead.saturating_sub(bytes)
        } else {
            0
        }
    }

    /// Asks for the first reads of a tape, up to so many bytes, before anyone has opened the file.
    pub fn plan_before(&mut self, tape: &Tape, bytes: u64, turn: &mut Turn) {
        let first: Vec<Range> = tape.from(0).take(READS_AHEAD_MAX).collect();
        let read_bytes: u64 = first.iter().map(|range| range.len()).sum();
        let read_len = read_bytes as f64 / first.len().max(1) as f64;
        let (gap, most) = (self.gap(turn.fit, read_len), self.load_max());
        let done = joined_bytes(tape.from(0).take(self.planned_before).collect(), gap, most);
        if 2 * done > bytes {
            return;
        }
        let coming = take_bytes(tape.from(self.planned_before), bytes - done, gap, most);
        self.planned_before += coming.len();
        self.ask_all(coming, gap, turn);
    }

    /// Asks for what a model expects.
    fn plan_expected(&mut self, process: u32, turn: &mut Turn) {
        let Some(reader) = self.readers.get(&process) else {
            return;
        };
        let read_len = reader.window.read_len();
        let ahead = self.ahead(reader, turn.fit, read_len);
        let gap = self.gap(turn.fit, read_len);
        let coming = reader.coming(turn.now).into_iter();
        let coming = take_bytes(coming, ahead, gap, self.load_max());
        self.ask_all(coming, gap, turn);
    }

    fn ask_all(&mut self, coming: Vec<Range>, gap: u64, turn: &mut Turn) {
        for range in exact::merge(coming, gap, self.load_max()) {
            self.ask(range, Method::Exact, turn);
        }
    }

    /// Asks the ledger; what it grants becomes loads, none too large.
    fn ask(&mut self, range: Range, method: Method, turn: &mut Turn) {
        let most = self.load_max();
        for part in self.ledger.ask(range, method, turn.room) {
            turn.room -= part.len();
            let starts = (part.start()..part.end()).step_by(most as usize);
            let loads = starts.map(|s| Range::at(s, most.min(part.end() - s)));
            turn.loads.extend(loads);
        }
    }

    /// The size of a block: whole operations of the device.
    pub fn block(&self, fit: Option<Fit>) -> u64 {
        let operation = self.operation_max().min(LOAD_MAX);
        let even = |f: Fit| f.break_even(operation).saturating_mul(BLOCK_FACTOR);
        let wanted = fit.map_or(BLOCK_MIN, even).clamp(BLOCK_MIN, LOAD_MAX);
        (wanted.div_ceil(operation) * operation).min(self.load_max())
    }

    /// The largest load: whole operations, too, since what is left over would cost one of its own.
    pub fn load_max(&self) -> u64 {
        let operation = self.operation_max().min(LOAD_MAX);
        LOAD_MAX / operation * operation
    }

    /// Gaps up to this are read: by what the device can do, and where that is not known or sieving was measured to gain, at least
    /// those that the kernel would read, too, as far as reads of this length pay for them in the ledger: else its credit would
    /// soon be used up, and most of what is known to come never asked for.
    pub fn gap(&self, fit: Option<Fit>, read_len: f64) -> u64 {
        let gap = fit.map_or(0, |f| f.break_even(self.operation_max()));
        let is_known = fit.is_some_and(|f| f.apart);
        match is_known && !self.governor.gains(Method::Sieving) {
            true => gap,
            false => gap.max(GAP_USUAL.min((WORTH - 1) * read_len as u64)),
        }
    }

    /// How far ahead of a reader to load, where a read passes over `span` bytes: by the pace of the program if it did not
    /// wait, or of the device if that is slower. A longer queue would only be in the way of what comes unexpectedly.
    fn ahead(&self, reader: &Reader, fit: Option<Fit>, span: f64) -> u64 {
        let read_ns = reader.window.think_ns() + hit_ns(reader.window.read_len() as u64) as f64;
        let device = fit.map_or(f64::MAX, |f| f.rate(self.operation_max()));
        let lead_ns = REACTION_NS + fit.map_or(0.0, |f| f.operation_ns);
        let (factor, blocks) = match self.governor.is_tried() {
            true => (AHEAD_FACTOR_TRIED, BLOCKS_AHEAD_TRIED),
            false => (AHEAD_FACTOR, BLOCKS_AHEAD),
        };
        let wanted = factor * lead_ns * device.min(span / read_ns.max(1.0));
        let most = AHEAD_MAX / (self.readers.len().max(1) as u64);
        (wanted as u64).max(blocks * self.block(fit)).min(most)
    }
}

/// The bytes of the loads that these ranges come to, with the gaps that would be read.
fn joined_bytes(ranges: Vec<Range>, gap: u64, load_max: u64) -> u64 {
    let loads = exact::merge(ranges, gap, load_max);
    loads.iter().map(|load| load.len()).sum()
}

/// The first ranges, as long as they come to no more than so many bytes with the gaps that would be read.
fn take_bytes(
    ranges: impl Iterator<Item = Range>,
    bytes: u64,
    gap: u64,
    load_max: u64,
) -> Vec<Range> {
    let mut taken: Vec<Range> = Vec::new();
    let mut sum = 0;
    for range in ranges.take(READS_AHEAD_MAX) {
        let before = taken.last().map_or(range.start(), |last| last.end());
        let skipped = range.start().checked_sub(before).filter(|s| *s <= gap);
        sum += range.len() + skipped.unwrap_or(0);
        if sum > bytes && !taken.is_empty() {
            break;
        }
        taken.push(range);
    }
    // Reads that come in another order than that of their offsets have their gaps between others than these.
    while taken.len() > 1 && joined_bytes(taken.clone(), gap, load_max) > bytes {
        taken.truncate(taken.len() / 2);
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GAP: u64 = 60 << 10;

    #[test]
    fn gaps_count_in_whatever_order_the_reads_come() {
        let at = |i: u64| Range::at(i << 16, 4096);
        let forward: Vec<Range> = (0..400).map(at).collect();
        let backward = forward.iter().rev().copied();
        let two = (0..200).flat_map(|i| [at(i), at(10_000 + i)]);
        let bytes = 4 << 20;
        for ranges in [forward.clone(), backward.collect(), two.collect()] {
            let taken = take_bytes(ranges.into_iter(), bytes, GAP, LOAD_MAX);
            let joined = joined_bytes(taken.clone(), GAP, LOAD_MAX);
            assert!((bytes / 4..=bytes).contains(&joined), "{joined} {taken:?}");
        }
    }

    proptest! {
        #[test]
        fn no_more_is_taken_than_asked_for_but_one_at_least(
            ranges in prop::collection::vec((0u64..1 << 24, 1u64..1 << 16), 1..64),
            bytes in 0u64..1 << 22,
        ) {
            let ranges: Vec<Range> = ranges.into_iter().map(|(s, l)| Range::at(s, l)).collect();
            let taken = take_bytes(ranges.iter().copied(), bytes, GAP, LOAD_MAX);
            prop_assert!(!taken.is_empty() && ranges.starts_with(&taken));
            let joined = joined_bytes(taken.clone(), GAP, LOAD_MAX);
            prop_assert!(taken.len() == 1 || joined <= bytes);
        }
    }
}
