//! Threads whose operations come so fast that they are only counted.
//!
//! In a hot loop operations are a microsecond apart: all they touch is in memory, and before a hint could be given a
//! hundred more are over. To think about each of them takes longer than that, so the manager would fall behind, its rings
//! run over, and where all cores are busy it would take the program's time besides. So a thread that is that fast for a
//! while is *skimmed*: per look and file its operations become one sum. What it opens and closes is still seen. When it
//! has slowed down, or paused, its model goes on after a gap.

use super::summary::Totals;
use presagio_arena::{Operation, Origin};
use presagio_core::Action;

/// Records that a thread can be ahead of us: eight milliseconds of a hot loop, more than any other process on our core
/// keeps us from it.
pub(super) const RING: u32 = 8192;
/// So many without a pause are no burst that is over soon: a program that writes out what it has computed is shorter.
pub(super) const MANY: u64 = RING as u64 / 4;
/// Operations that begin less than this apart, in nanoseconds, are too fast to be helped.
pub(super) const CLOSE_NS: u64 = 2_000;
/// A skimmed thread whose operations are this far apart has slowed down.
const APART_NS: u64 = 4_000;

/// What a skimmed thread did to one file, one operation after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Skimmed {
    pub origin: Origin,
    /// The last of them: it says which file.
    pub operation: Operation,
    pub totals: Totals,
    /// Behind the last byte that was moved.
    pub end: u64,
}

impl Skimmed {
    pub fn new(origin: Origin, operation: Operation) -> Skimmed {
        let mut new = Skimmed {
            origin,
            operation,
            totals: Totals::default(),
            end: 0,
        };
        new.count(&operation);
        new
    }

    /// Adds an operation, if it is the same thread's on the same file.
    pub fn add(&mut self, origin: &Origin, operation: &Operation) -> bool {
        let place = |o: &Operation| (o.file, o.generation);
        let fits = self.origin == *origin && place(&self.operation) == place(operation);
        if fits {
            self.count(operation);
        }
        fits
    }

    fn count(&mut self, operation: &Operation) {
        let Operation {
            action,
            duration,
            result,
            ..
        } = *operation;
        self.totals.count(action, duration, result);
        if action.is_transfer() {
            let moved = u64::try_from(result).unwrap_or(0);
            self.end = self.end.max(operation.offset.saturating_add(moved));
        }
    }
}

/// Whether an operation can be left out of the order of things: opening and closing cannot.
pub(super) fn is_plain(operation: &Operation) -> bool {
    !matches!(operation.action, Action::Open | Action::Close)
}

/// A thread in one look.
#[derive(Clone, Copy, Debug)]
struct Thread {
    origin: Origin,
    /// Operations that were as close as this before this look, without a pause.
    run: u64,
    /// When its last operation before this look began; of a thread without a run, the first one in it.
    since: u64,
    last: u64,
    count: u64,
}

impl Thread {
    fn is_skimmed(&self) -> bool {
        self.run >= MANY
    }

    /// How it stands after the look.
    fn known(&self) -> Known {
        let apart = match self.is_skimmed() {
            true => APART_NS,
            false => CLOSE_NS,
        };
        let is_close = self.last.saturating_sub(self.since) < apart.saturating_mul(self.count);
        Known {
            origin: self.origin,
            run: if is_close { self.run + self.count } else { 0 },
            last: self.last,
        }
    }
}

/// A thread that is fast, as of the last look.
#[derive(Clone, Copy, Debug)]
struct Known {
    origin: Origin,
    run: u64,
    /// When its last operation began.
    last: u64,
}

impl Known {
    fn is_skimmed(&self) -> bool {
        self.run >= MANY
    }
}

/// Which threads are skimmed.
#[derive(Debug, Default)]
pub(super) struct Skims {
    fast: Vec<Known>,
    /// Those of this look, in the order of the rings.
    threads: Vec<Thread>,
}

impl Skims {
    /// A thread's operation began then; whether it is only to be counted.
    pub fn sees(&mut self, origin: &Origin, start: u64) -> bool {
        match self.threads.last_mut() {
            Some(thread) if thread.origin == *origin => {
                thread.count += 1;
                thread.last = start;
                thread.is_skimmed()
            }
            _ => self.begin(origin, start),
        }
    }

    fn begin(&mut self, origin: &Origin, start: u64) -> bool {
        let known = self.fast.iter().find(|known| known.origin == *origin);
        let thread = Thread {
            origin: *origin,
            run: known.map_or(0, |known| known.run),
            since: known.map_or(start, |known| known.last),
            last: start,
            count: 1,
        };
        self.threads.push(thread);
        thread.is_skimmed()
    }

    /// Whether a thread is skimmed, as of the last decision.
    pub fn is_skimmed(&self, origin: &Origin) -> bool {
        is_skimmed(&self.fast, origin)
    }

    /// All rings were looked at: decides who is skimmed from now on. Returns those for whom that is new, or over.
    pub fn decide(&mut self) -> Vec<Origin> {
        let now = self.threads.drain(..).map(|thread| thread.known());
        let now: Vec<Known> = now.filter(|known| known.run > 0).collect();
        let before = std::mem::replace(&mut self.fast, now);
        let skimmed = |list: &[Known]| -> Vec<Origin> {
            let list = list.iter().filter(|known| known.is_skimmed());
            list.map(|known| known.origin).collect()
        };
        let mut begun = skimmed(&self.fast);
        begun.retain(|origin| !is_skimmed(&before, origin));
        let mut ended = skimmed(&before);
        ended.retain(|origin| !is_skimmed(&self.fast, origin));
        begun.extend(ended);
        begun
    }
}

fn is_skimmed(list: &[Known], origin: &Origin) -> bool {
    let mut list = list.iter();
    list.any(|known| known.is_skimmed() && known.origin == *origin)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Origin = Origin {
        process: 0,
        image: 0,
        pid: 7,
        tid: 7,
    };

    /// A look that finds so many operations, each so long after the other; whether they were skimmed, and who changed.
    fn look(skims: &mut Skims, clock: &mut u64, count: u64, apart_ns: u64) -> (bool, Vec<Origin>) {
        let mut skimmed = false;
        for _ in 0..count {
            *clock += apart_ns;
            skimmed = skims.sees(&ME, *clock);
        }
        (skimmed, skims.decide())
    }

    #[test]
    fn who_is_fast_for_a_while_is_skimmed_until_it_slows_down() {
        let (mut skims, mut clock) = (Skims::default(), 0);
        for _ in 0..7 {
            let part = MANY / 8;
            assert_eq!(look(&mut skims, &mut clock, part, 1000), (false, vec![]));
        }
        let last = MANY / 8;
        assert_eq!(look(&mut skims, &mut clock, last, 1000), (false, vec![ME]));
        assert_eq!(look(&mut skims, &mut clock, 10, 1000), (true, vec![]));
        let not_slow_enough = look(&mut skims, &mut clock, 10, 3000);
        assert_eq!(not_slow_enough, (true, vec![]));
        assert_eq!(look(&mut skims, &mut clock, 10, 5000), (true, vec![ME]));
        assert_eq!(look(&mut skims, &mut clock, 10, 1000), (false, vec![]));
    }

    #[test]
    fn a_pause_ends_it_and_who_is_slow_or_pauses_is_not_skimmed() {
        let (mut skims, mut clock) = (Skims::default(), 0);
        look(&mut skims, &mut clock, MANY, 1000);
        assert_eq!(skims.decide(), [ME], "nothing came");
        look(&mut skims, &mut clock, MANY, 1000);
        clock += 1_000_000_000;
        assert_eq!(look(&mut skims, &mut clock, 10, 1000), (true, vec![ME]));
        assert_eq!(look(&mut skims, &mut clock, MANY, 3000), (false, vec![]));
        for _ in 0..10 {
            let burst = look(&mut skims, &mut clock, MANY - 1, 1000);
            assert_eq!(burst, (false, vec![]));
            assert_eq!(skims.decide(), []);
        }
    }
}
