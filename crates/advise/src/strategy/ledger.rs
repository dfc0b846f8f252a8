//! The ledger of a file: what was asked to be loaded and is not read yet, and what became of the rest.
//!
//! It holds the hard bounds of the governor. Loads are made on *credit*: each byte that is asked for takes one from
//! it, each loaded byte that is then read gives [`WORTH`] back, up to [`CREDIT_MAX`]. So a pattern whose loads
//! are read to a quarter or more never runs out, and whatever a program does, no more than the credit is loaded
//! without being read, besides what was underway when it changed ([`AHEAD_MAX`]). No clock is needed for that.

use super::governor::Method;
use presagio_core::Range;
use std::collections::{BTreeMap, VecDeque};

/// What can be loaded without any of it being read. With [`AHEAD_MAX`] and a few [`STAKE`]s it stays below 64 MiB.
pub const CREDIT_MAX: u64 = 32 << 20;
/// How far loading goes ahead of a reader.
pub const AHEAD_MAX: u64 = 16 << 20;
/// What a method is given for a new trial when the credit is used up: at first after so many bytes that the program has
/// read, then each time after twice as many.
const STAKE: u64 = 2 << 20;
const STAKE_FIRST_AT: u64 = 64 << 20;
/// A byte that was read pays for so many: at a density below one in four, sieving loads more than it is worth.
pub const WORTH: u64 = 4;
/// When so much was asked for after it, what is not read yet is called wasted. Twice [`AHEAD_MAX`], so that what lies
/// ahead of the reader never is; the other half is for reads that come back (§IV-B).
const KEPT_MAX: u64 = 2 * AHEAD_MAX;
/// Bounds the memory of the ledger itself.
const ASKED_MAX: usize = 4096;
/// And that for what can be given back: of more, the oldest stays in memory until the kernel takes it.
const EXPIRED_MAX: usize = 256;

/// See the module's header.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// What was asked for and not read, by its start; pieces do not overlap.
    unread: BTreeMap<u64, Piece>,
    /// Everything asked for, the oldest first, until it is read or wasted.
    asked: VecDeque<(u64, Range)>,
    asked_bytes: u64,
    unread_bytes: u64,
    /// What was loaded, and wasted: nobody had it in memory before, and nobody has read it since.
    expired: VecDeque<(Range, Method)>,
    clock: u64,
    credit: u64,
    /// What the program has read, and when there is a stake again.
    read_bytes: u64,
    stake_at: u64,
    /// Bytes that were asked for, and then read.
    pub useful: u64,
    /// Bytes that were asked for, and not read.
    pub wasted: u64,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    end: u64,
    method: Method,
    /// Which request it belongs to.
    number: u64,
    /// Whether all of it that was loaded is known not to have been in memory before, if a load was reported.
    fresh: Option<bool>,
}

/// What a read found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// So many of its bytes had been asked for.
    pub bytes: u64,
    /// By which method (the last, if several).
    pub method: Option<Method>,
}

impl Default for Ledger {
    fn default() -> Ledger {
        Ledger {
            unread: BTreeMap::new(),
            asked: VecDeque::new(),
            asked_bytes: 0,
            unread_bytes: 0,
            expired: VecDeque::new(),
            clock: 0,
            credit: CREDIT_MAX,
            read_bytes: 0,
            stake_at: STAKE_FIRST_AT,
            useful: 0,
            wasted: 0,
        }
    }
}

impl Ledger {
    /// Bytes that were asked for and not read yet: the memory that this file holds on our account.
    pub fn unread(&self) -> u64 {
        self.unread_bytes
    }

    /// A method is tried anew: the stake is there for it, if the program has read twice as much as the last time.
    pub fn stake(&mut self) {
        if self.credit < STAKE && self.read_bytes >= self.stake_at {
            self.credit = STAKE;
            self.stake_at = self.read_bytes.saturating_mul(2);
        }
    }

    /// A range was loaded, of which so many bytes turned out to be in memory already, if that is known: nothing was spent for
    /// them. And so many are there now: none if nothing was done, and then whatever comes to be there is not ours.
    pub fn loaded(&mut self, range: Range, already: Option<u64>, there: u64) {
        self.credit = (self.credit + already.unwrap_or(0)).min(CREDIT_MAX);
        for (start, piece) in self.overlapping(range) {
            let fresh = Some(already == Some(0) && there > 0 && piece.fresh != Some(false));
            self.unread.insert(start, Piece { fresh, ..piece });
        }
    }

    /// What was loaded in vain and can be given back.
    pub fn take_expired(&mut self) -> impl Iterator<Item = (Range, Method)> {
        std::mem::take(&mut self.expired).into_iter()
    }

    /// Asks for a range: what of it was not asked for before, as far as the credit goes and there is room.
    pub fn ask(&mut self, range: Range, method: Method, room: u64) -> Vec<Range> {
        self.expired.retain(|(expired, _)| !expired.overlaps(range));
        let mut parts = self.missing(range);
        let mut left = self.credit.min(room);
        for part in &mut parts {
            *part = Range::at(part.start(), part.len().min(left));
            left -= part.len();
            self.credit -= part.len();
            self.note(*part, method);
        }
        parts.retain(|part| !part.is_empty());
        self.expire();
        parts
    }

    /// The program read a range.
    pub fn read(&mut self, range: Range) -> Found {
        let mut found = Found::default();
        self.read_bytes = self.read_bytes.saturating_add(range.len());
        self.expired.retain(|(expired, _)| !expired.overlaps(range));
        for (start, piece) in self.overlapping(range) {
            let cut = self.cut(start, piece, range);
            found.bytes += cut;
            found.method = Some(piece.method);
        }
        self.useful += found.bytes;
        self.credit = (self.credit + WORTH * found.bytes).min(CREDIT_MAX);
        found
    }

    /// The program wrote a range: what is in memory there is its own now, and letting it go would write it to the device early.
    pub fn wrote(&mut self, range: Range) {
        self.expired.retain(|(expired, _)| !expired.overlaps(range));
        for (start, piece) in self.overlapping(range) {
            let fresh = Some(false);
            self.unread.insert(start, Piece { fresh, ..piece });
        }
    }

    /// Nothing more will be read: what is left is wasted.
    pub fn close(&mut self) {
        self.wasted += self.unread_bytes;
        self.unread.clear();
        self.asked.clear();
        (self.asked_bytes, self.unread_bytes) = (0, 0);
    }

    /// The parts of a range that are not waiting to be read.
    fn missing(&self, range: Range) -> Vec<Range> {
        let mut parts = Vec::new();
        let mut at = range.start();
        for (start, piece) in self.overlapping(range) {
            if start > at {
                parts.push(Range::at(at, start - at));
            }
            at = at.max(piece.end);
        }
        if at < range.end() {
            parts.push(Range::at(at, range.end() - at));
        }
        parts
    }

    fn note(&mut self, part: Range, method: Method) {
        if part.is_empty() {
            return;
        }
        self.clock += 1;
        let (end, number) = (part.end(), self.clock);
        self.unread.insert(
            part.start(),
            Piece {
                end,
                method,
                number,
                fresh: None,
            },
        );
        self.unread_bytes += part.len();
        self.asked.push_back((self.clock, part));
        self.asked_bytes += part.len();
    }

    fn note_expired(&mut self, start: u64, piece: &Piece) {
        if piece.fresh != Some(true) {
            return;
        }
        let range = Range::at(start, piece.end - start);
        self.expired.push_back((range, piece.method));
        if self.expired.len() > EXPIRED_MAX {
            self.expired.pop_front();
        }
    }

    fn overlapping(&self, range: Range) -> Vec<(u64, Piece)> {
        let before = self.unread.range(..range.start()).next_back();
        let inside = self.unread.range(range.start()..range.end());
        let found = before.into_iter().chain(inside);
        let found = found.filter(|(_, piece)| piece.end > range.start());
        found.map(|(start, piece)| (*start, *piece)).collect()
    }

    /// Takes what overlaps `range` out of a piece: how much that is.
    fn cut(&mut self, start: u64, piece: Piece, range: Range) -> u64 {
        self.unread.remove(&start);
        let (from, to) = (start.max(range.start()), piece.end.min(range.end()));
        if start < from {
            self.unread.insert(start, Piece { end: from, ..piece });
        }
        if to < piece.end {
            self.unread.insert(to, piece);
        }
        self.unread_bytes -= to - from;
        to - from
    }

    fn expire(&mut self) {
        while self.asked_bytes > KEPT_MAX || self.asked.len() > ASKED_MAX {
            let Some((number, range)) = self.asked.pop_front() else {
                return;
            };
            self.asked_bytes -= range.len();
            for (start, piece) in self.overlapping(range) {
                if piece.number == number {
                    self.wasted += self.cut(start, piece, range);
                    self.note_expired(start, &piece);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ask(ledger: &mut Ledger, range: Range) -> u64 {
        let parts = ledger.ask(range, Method::Sieving, u64::MAX);
        parts.iter().map(|p| p.len()).sum()
    }

    #[test]
    fn nothing_is_asked_for_twice_and_the_rest_of_a_read_stays_known() {
        let mut ledger = Ledger::default();
        assert_eq!(ask(&mut ledger, Range::at(1000, 1000)), 1000);
        assert_eq!(ask(&mut ledger, Range::at(500, 2000)), 1000);
        assert_eq!(ledger.read(Range::at(900, 200)).bytes, 200);
        assert_eq!(ledger.unread(), 1800);
        assert_eq!(ledger.read(Range::at(0, 9000)).bytes, 1800);
        assert_eq!(
            (ledger.useful, ledger.wasted, ledger.unread()),
            (2000, 0, 0)
        );
    }

    #[test]
    fn a_quarter_that_is_read_keeps_the_credit_and_less_uses_it_up() {
        let mut ledger = Ledger::default();
        for i in 0..1000u64 {
            assert_eq!(ask(&mut ledger, Range::at(i << 20, 1 << 20)), 1 << 20);
            ledger.read(Range::at(i << 20, 1 << 18));
        }
        let unread: u64 = (1000..2000u64)
            .map(|i| ask(&mut ledger, Range::at(i << 20, 1 << 20)))
            .sum();
        assert_eq!(unread, CREDIT_MAX);
    }

    #[test]
    fn a_pattern_that_stays_hostile_is_tried_ever_more_rarely() {
        let mut ledger = Ledger::default();
        let mut asked = 0;
        for i in 0..64 * 1024u64 {
            ledger.stake();
            asked += ask(&mut ledger, Range::at(i << 20, 1 << 20));
            ledger.read(Range::at((1 << 50) + (i << 20), 1 << 20));
        }
        // 64 GiB were read: a stake at 64 MiB, 128 MiB, and so on to 32 GiB.
        assert_eq!(asked, CREDIT_MAX + 10 * STAKE);
    }

    #[test]
    fn what_was_loaded_and_expired_can_be_given_back_unless_somebody_had_or_wants_it() {
        let mut ledger = Ledger::default();
        let block = |number: u64| Range::at(number * STAKE, STAKE);
        let reports = [
            Some((Some(0), STAKE)),
            Some((Some(0), STAKE)),
            Some((Some(4096), STAKE)), // something was there
            Some((None, STAKE)),       // nobody may look
            Some((Some(0), 0)),        // nothing was done
            None,                      // nobody knows
        ];
        for (number, report) in (0..).zip(reports) {
            ask(&mut ledger, block(number));
            if let Some((already, there)) = report {
                ledger.loaded(block(number), already, there);
            }
        }
        // A second load does not make one's own what the first may have found.
        ledger.loaded(block(3), Some(0), STAKE);
        ledger.read(Range::at(STAKE, 4096));
        // So much is asked for after these that they expire.
        for number in 6..6 + KEPT_MAX / STAKE {
            ask(&mut ledger, block(number));
            ledger.read(Range::at(number * STAKE, STAKE / 2));
        }
        let rest = Range::at(STAKE + 4096, STAKE - 4096);
        assert_eq!(
            ledger.expired,
            [(block(0), Method::Sieving), (rest, Method::Sieving)]
        );
        ledger.read(Range::at(100, 1));
        assert!(ledger.take_expired().eq([(rest, Method::Sieving)]));
        assert!(ledger.take_expired().eq([]));
    }

    #[test]
    fn what_was_written_since_is_not_given_back_whenever_it_expires() {
        let mut ledger = Ledger::default();
        let block = |number: u64| Range::at(number * STAKE, STAKE);
        for number in 0..3 {
            ask(&mut ledger, block(number));
            if number < 2 {
                ledger.loaded(block(number), Some(0), STAKE);
            }
        }
        ledger.wrote(Range::at(STAKE + 5, 1)); // waiting to be read
        ledger.wrote(block(2)); // and before its load is over
        ledger.loaded(block(2), Some(0), STAKE);
        for number in 3..3 + KEPT_MAX / STAKE {
            ask(&mut ledger, block(number));
            ledger.read(Range::at(number * STAKE, STAKE / 2));
        }
        assert_eq!(ledger.expired, [(block(0), Method::Sieving)]);
        ledger.wrote(Range::at(STAKE, 100));
        assert_eq!(ledger.expired.len(), 1, "the next to it");
        ledger.wrote(Range::at(STAKE - 1, 1));
        assert!(ledger.take_expired().eq([]));
    }

    proptest! {
        #[test]
        fn every_byte_is_useful_wasted_or_waiting(
            steps in prop::collection::vec((any::<bool>(), 0u64..1 << 26, 1u64..1 << 22), 1..200)
        ) {
            let mut ledger = Ledger::default();
            let mut asked = 0;
            for (read, start, len) in steps {
                let range = Range::at(start, len);
                if read {
                    ledger.read(range);
                } else {
                    asked += ask(&mut ledger, range);
                }
                let pieces: u64 = ledger.unread.iter().map(|(s, p)| p.end - s).sum();
                prop_assert_eq!(pieces, ledger.unread());
                prop_assert_eq!(asked, ledger.useful + ledger.wasted + ledger.unread());
                prop_assert!(ledger.unread() <= KEPT_MAX);
                prop_assert!(ledger.useful * WORTH + CREDIT_MAX >= asked);
            }
        }
    }
}
