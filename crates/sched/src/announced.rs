//! Requests that clients announce while they run, and what is known of those who do.
//!
//! An announcement is a *chain*: what one program will ask for, in its order, each request a while after the one before it
//! was answered. So of each chain exactly one request can be about to arrive, the next, and only once the one before it
//! was answered; a program that waits for the very batch that we hold back is never waited for. A request that arrives is
//! looked for in all chains; those before it in its chain were skipped.
//!
//! A *source* (a client) has to prove itself: it is believed once enough of what it announced came, and came in time, and no
//! longer when waits for it are in vain. So wrong announcements change nothing.

use crate::arena::NONE;
use crate::foresight::WAITED;
use presagio_core::{FileId, IdHashMap, Nanos, Op, Range, Request};
use std::collections::{BTreeSet, VecDeque};

/// Requests that may be announced and not come yet, in all and by one source.
const ANNOUNCED_MAX: usize = 1 << 18;
const SOURCE_MAX: usize = 1 << 14;
/// Chains of one source: programs that it speaks of.
const CHAINS_MAX: usize = 1 << 10;
/// Sources that are remembered.
const SOURCES_MAX: usize = 1 << 12;
/// A chain that nothing came of for so long is forgotten.
const STALE: Nanos = Nanos::from_secs(30);
/// Requests of a chain that may be left out at a time: more, and it is another request that looks like one of it. Until the
/// first comes any may: the announcement was made a while ago.
const SKIP_MAX: u64 = 16;
/// Requests that are looked at where several are announced at one offset.
const LOOK_AT: usize = 64;
/// A source is believed from here on: after eleven requests that came in time.
const BELIEVED: f64 = 0.5;
const CAME: f64 = 1.0 / 16.0;
const SKIPPED: f64 = 15.0 / 16.0;
const IN_VAIN: f64 = 0.5;

/// In an entry's `foreseen`: it was announced; below is the chain's number.
const LIVE: u32 = 1 << 31;
const LIVE_WAITED: u32 = 1 << 30;
const CHAIN: u32 = (1 << 29) - 1;

/// Whether a mark is that of an announced request.
fn is_live(mark: u32) -> bool {
    mark & LIVE != 0 && mark < WAITED
}

/// Whether a request with this mark is part of a batch that has waited already.
pub(crate) fn has_waited(mark: u32) -> bool {
    mark == WAITED || is_live(mark) && mark & LIVE_WAITED != 0
}

/// The mark of a request that has waited from now on.
pub(crate) fn waited(mark: u32) -> u32 {
    match is_live(mark) {
        true => mark | LIVE_WAITED,
        false => WAITED,
    }
}

/// A request that a client says a program will make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announced {
    /// The file.
    pub file: FileId,
    /// Read or write.
    pub op: Op,
    /// Its bytes.
    pub range: Range,
    /// How long after the one before it in the announcement was answered; of the first, how long from now.
    pub after: Nanos,
}

/// What came of announcements so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Foretold {
    /// Requests that were announced.
    pub announced: u64,
    /// Those that came.
    pub came: u64,
    /// How often a batch was held back for one.
    pub waits: u64,
    /// How often not all came that it was held back for.
    pub in_vain: u64,
}

/// What one program will do.
#[derive(Clone, Debug)]
struct Chain {
    source: u64,
    items: VecDeque<Announced>,
    /// The place of the first of them, from the chain's beginning.
    first: u64,
    /// When the next is due, if the one before it was answered.
    due: Option<Nanos>,
    touched: Nanos,
    /// Whether any of it has come.
    begun: bool,
}

impl Chain {
    fn get(&self, place: u64) -> Option<&Announced> {
        let at = place.checked_sub(self.first)?;
        self.items.get(usize::try_from(at).ok()?)
    }

    fn place_behind(&self) -> u64 {
        self.first + self.items.len() as u64
    }
}

#[derive(Clone, Debug, Default)]
struct Source {
    trust: f64,
    /// Its chains, the one that was told of longest ago first.
    chains: VecDeque<u32>,
    items: usize,
}

/// The requests of a file and operation: start, chain and place in it.
type Starts = BTreeSet<(u64, u32, u64)>;

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Chains {
    chains: IdHashMap<u32, Chain>,
    starts: IdHashMap<(FileId, u8), Starts>,
    sources: IdHashMap<u64, Source>,
    next: u32,
    items: usize,
    pub foretold: Foretold,
}

/// An announced request that may be about to arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub range: Range,
    pub at: Nanos,
    /// How long it was said to take: what it may be late depends on that.
    pub after: Nanos,
}

impl Chains {
    pub(crate) fn is_empty(&self) -> bool {
        self.chains.is_empty()
    }

    /// Takes an announcement; how much of it there was room for. One whose first request is still to come in another chain
    /// of its source goes on from there, whatever that chain said about what follows.
    pub(crate) fn announce(&mut self, source: u64, requests: &[Announced], now: Nanos) -> usize {
        let Some((first, rest)) = requests.split_first() else {
            return 0;
        };
        self.make_room(source, now);
        let (taken, anchored) = match self.find_own(source, first) {
            Some((number, place)) => {
                self.cut(number, place + 1);
                (self.extend(number, rest, now), 1)
            }
            None => match self.begin(source, first, now) {
                Some(number) => (self.extend(number, requests, now), 0),
                None => (0, 0),
            },
        };
        self.foretold.announced += taken as u64;
        taken + anchored
    }

    fn begin(&mut self, source: u64, first: &Announced, now: Nanos) -> Option<u32> {
        if self.sources.len() >= SOURCES_MAX && !self.sources.contains_key(&source) {
            return None;
        }
        let number = self.next & CHAIN;
        self.next = self.next.wrapping_add(1);
        // After half a billion chains a number comes again.
        self.forget(number);
        self.sources.entry(source).or_default();
        let chain = Chain {
            source,
            items: VecDeque::new(),
            first: 0,
            due: Some(now + first.after),
            touched: now,
            begun: false,
        };
        self.chains.insert(number, chain);
        Some(number)
    }

    /// Adds to a chain what there is room for; how much that was.
    fn extend(&mut self, number: u32, requests: &[Announced], now: Nanos) -> usize {
        let Some(chain) = self.chains.get_mut(&number) else {
            return 0;
        };
        chain.touched = now;
        let source = self.sources.entry(chain.source).or_default();
        source.chains.retain(|other| *other != number);
        source.chains.push_back(number);
        let room = SOURCE_MAX.saturating_sub(source.items);
        let room = room.min(ANNOUNCED_MAX.saturating_sub(self.items));
        let taken = requests.len().min(room);
        for request in &requests[..taken] {
            let key = (request.file, request.op as u8);
            let start = (request.range.start(), number, chain.place_behind());
            self.starts.entry(key).or_default().insert(start);
            chain.items.push_back(*request);
        }
        source.items += taken;
        self.items += taken;
        taken
    }

    /// A request that is announced already, in a chain of this source: the first such in its newest chain.
    fn find_own(&self, source: u64, request: &Announced) -> Option<(u32, u64)> {
        let found = self.at(request.file, request.op, request.range.start());
        let own = found.filter(|(number, place)| {
            let chain = &self.chains[number];
            chain.source == source && chain.get(*place).is_some_and(|i| i.range == request.range)
        });
        own.max_by_key(|(number, place)| (*number, std::cmp::Reverse(*place)))
    }

    /// All that is announced at an offset, as far as it is looked at.
    fn at(&self, file: FileId, op: Op, start: u64) -> impl Iterator<Item = (u32, u64)> {
        let starts = self.starts.get(&(file, op as u8));
        let found = starts.map(|s| s.range((start, 0, 0)..=(start, NONE, u64::MAX)));
        let found = found.into_iter().flatten().rev().take(LOOK_AT);
        found.map(|(_, number, place)| (*number, *place))
    }

    /// A request arrived: its mark, if it was announced.
    pub(crate) fn observe(
        &mut self,
        request: &Request,
        now: Nanos,
        late: impl Fn(Nanos) -> Nanos,
    ) -> Option<u32> {
        let (number, place) = self.find(request)?;
        let chain = self.chains.get_mut(&number)?;
        let skipped = place - chain.first;
        let is_in_time = chain.due.is_some_and(|due| {
            skipped == 0
                && chain
                    .items
                    .front()
                    .is_some_and(|i| now <= due + late(i.after))
        });
        (chain.due, chain.touched) = (None, now);
        let source = self.sources.entry(chain.source).or_default();
        if std::mem::replace(&mut chain.begun, true) {
            source.trust *= SKIPPED.powi(skipped as i32);
        }
        if is_in_time {
            source.trust += (1.0 - source.trust) * CAME;
        }
        self.foretold.came += 1;
        self.drop_front(number, skipped + 1);
        Some(LIVE | number)
    }

    /// The place of a request that arrived: in a chain whose next it is if there is one, the newest first.
    fn find(&self, request: &Request) -> Option<(u32, u64)> {
        let found = self.at(request.file, request.op, request.range.start());
        let alike = found.filter_map(|(number, place)| {
            let chain = &self.chains[&number];
            let is_it = chain.get(place)?.range == request.range;
            let skipped = place - chain.first;
            let is_near = skipped <= SKIP_MAX || !chain.begun;
            (is_it && is_near).then_some((skipped == 0, number, place))
        });
        let best = alike.max_by_key(|(next, number, place)| (*next, *number, !*place));
        best.map(|(_, number, place)| (number, place))
    }

    /// A request with this mark was answered: the next of its chain can come.
    pub(crate) fn answered(&mut self, mark: u32, now: Nanos) {
        if !is_live(mark) {
            return;
        }
        let number = mark & CHAIN;
        let Some(chain) = self.chains.get_mut(&number) else {
            return;
        };
        match chain.items.front() {
            Some(next) => chain.due = Some(now + next.after),
            None => self.forget(number),
        }
    }

    /// A request that may be about to arrive and starts at `start`.
    pub(crate) fn starting(&self, file: FileId, op: Op, start: u64) -> Option<Due> {
        let mut found = self.at(file, op, start);
        found.find_map(|(number, place)| self.due(number, place))
    }

    /// One that ends at `end`.
    pub(crate) fn ending(&self, file: FileId, op: Op, end: u64) -> Option<Due> {
        let starts = self.starts.get(&(file, op as u8))?;
        let before = starts.range(..(end, 0, 0)).rev().take(LOOK_AT);
        let mut due = before.filter_map(|(_, number, place)| self.due(*number, *place));
        due.find(|due| due.range.end() == end)
    }

    fn due(&self, number: u32, place: u64) -> Option<Due> {
        let chain = self.chains.get(&number)?;
        let at = chain.due.filter(|_| place == chain.first)?;
        let item = chain.get(place).filter(|i| !i.range.is_empty())?;
        let is_believed = self.sources.get(&chain.source)?.trust >= BELIEVED;
        is_believed.then_some(Due {
            range: item.range,
            at,
            after: item.after,
        })
    }

    /// A batch was held back for requests within `run` that did not come in time.
    pub(crate) fn disappointed(&mut self, file: FileId, op: Op, run: Range) {
        self.foretold.in_vain += 1;
        let Some(starts) = self.starts.get(&(file, op as u8)) else {
            return;
        };
        for (_, number, place) in starts.range((run.start(), 0, 0)..(run.end(), 0, 0)) {
            let Some(chain) = self.chains.get_mut(number) else {
                continue;
            };
            if *place == chain.first && chain.due.take().is_some() {
                self.sources.entry(chain.source).or_default().trust *= IN_VAIN;
            }
        }
    }

    /// Forgets what a source has announced, and the source.
    pub(crate) fn forget_source(&mut self, source: u64) {
        let known = self.sources.get(&source);
        let chains: Vec<u32> = known.map_or_else(Vec::new, |s| s.chains.iter().copied().collect());
        chains.into_iter().for_each(|number| self.forget(number));
        self.sources.remove(&source);
    }

    /// Forgets all that was announced; who was believed still is.
    pub(crate) fn clear(&mut self) {
        let all: Vec<u32> = self.chains.keys().copied().collect();
        all.into_iter().for_each(|number| self.forget(number));
    }

    /// Forgets chains of a source that nothing comes of, and its oldest ones while it has announced too much.
    fn make_room(&mut self, source: u64, now: Nanos) {
        while let Some(known) = self.sources.get(&source)
            && let Some(oldest) = known.chains.front().copied()
            && (known.items >= SOURCE_MAX / 2
                || known.chains.len() >= CHAINS_MAX
                || now.since(self.chains[&oldest].touched) > STALE)
        {
            self.forget(oldest);
        }
    }

    fn forget(&mut self, number: u32) {
        self.cut(number, 0);
        let Some(chain) = self.chains.remove(&number) else {
            return;
        };
        if let Some(source) = self.sources.get_mut(&chain.source) {
            source.chains.retain(|other| *other != number);
        }
    }

    /// Forgets a chain's requests from a place on.
    fn cut(&mut self, number: u32, from: u64) {
        while let Some(chain) = self.chains.get_mut(&number)
            && chain.place_behind() > from
            && let Some(last) = chain.items.pop_back()
        {
            let place = chain.place_behind();
            let source = chain.source;
            self.unlist(number, place, &last, source);
        }
    }

    fn drop_front(&mut self, number: u32, count: u64) {
        for _ in 0..count {
            let Some(chain) = self.chains.get_mut(&number) else {
                return;
            };
            let Some(first) = chain.items.pop_front() else {
                return;
            };
            let (place, source) = (chain.first, chain.source);
            chain.first += 1;
            self.unlist(number, place, &first, source);
        }
    }

    fn unlist(&mut self, number: u32, place: u64, item: &Announced, source: u64) {
        let key = (item.file, item.op as u8);
        if let Some(starts) = self.starts.get_mut(&key) {
            starts.remove(&(item.range.start(), number, place));
            if starts.is_empty() {
                self.starts.remove(&key);
            }
        }
        if let Some(source) = self.sources.get_mut(&source) {
            source.items -= 1;
        }
        self.items -= 1;
    }
}

/// What serving a batch takes, learned from those that were served: so long for each, and so long for a byte. What is old
/// counts less and less.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    weight: f64,
    bytes: f64,
    time: f64,
    bytes_bytes: f64,
    bytes_time: f64,
    time_time: f64,
}

/// What each new batch leaves of the weight of the others: about the last hundred count.
const FADES: f64 = 0.99;
/// What so few batches of another size say is half as sure.
const FEW: f64 = 4.0;
/// How many standard errors below what was found is sure.
const SURE: f64 = 2.0;
/// From so many on there is something to say.
const MEASURED_MIN: f64 = 8.0;

impl Measured {
    /// A batch of so many bytes took so long.
    pub(crate) fn add(&mut self, bytes: u64, time: Nanos) {
        let (bytes, time) = (bytes as f64, time.0 as f64);
        for (sum, value) in [
            (&mut self.weight, 1.0),
            (&mut self.bytes, bytes),
            (&mut self.time, time),
            (&mut self.bytes_bytes, bytes * bytes),
            (&mut self.bytes_time, bytes * time),
            (&mut self.time_time, time * time),
        ] {
            *sum = *sum * FADES + value;
        }
    }

    /// What a batch of so many bytes takes, in nanoseconds, if enough were seen.
    pub(crate) fn time(&self, bytes: u64) -> Option<f64> {
        if self.weight < MEASURED_MIN {
            return None;
        }
        let (mean_bytes, mean_time) = (self.bytes / self.weight, self.time / self.weight);
        let slope = self.slope(mean_bytes, mean_time);
        Some(mean_time + slope * (bytes as f64 - mean_bytes))
    }

    /// What a byte adds, as far as that is sure. While all batches are of one size it is nothing, and while few were larger
    /// it is what those cost beyond all chance: a disk takes 0 to 8 ms for the same request, and two large batches that it had
    /// to turn for would else say that size is all that costs. Then no larger batch would be tried, and nobody would find out.
    fn slope(&self, mean_bytes: f64, mean_time: f64) -> f64 {
        let spread = self.bytes_bytes / self.weight - mean_bytes * mean_bytes;
        if spread <= mean_bytes * mean_bytes * 1e-3 {
            return 0.0;
        }
        let together = self.bytes_time / self.weight - mean_bytes * mean_time;
        let slope = together / spread;
        let variance = self.time_time / self.weight - mean_time * mean_time;
        let unexplained = (variance - slope * together).max(0.0);
        let error = (unexplained / (spread * self.weight)).sqrt();
        // Counted as batches that are twice as large as the mean: few of them may all have been unlucky.
        let others = spread * self.weight / (mean_bytes * mean_bytes);
        let sure = SURE * (1.0 + FEW / others);
        (slope - sure * error).clamp(0.0, mean_time / mean_bytes.max(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Next, PolicyKind, Scheduler, Settings, Ticket};
    use presagio_core::RequestId;

    const BLOCK: u64 = 64 << 10;
    const MS: fn(u64) -> Nanos = Nanos::from_millis;
    const US: fn(u64) -> Nanos = Nanos::from_micros;
    const READS: u64 = 300;

    /// Two programs that read one file by turns, each waiting for its answer and then a while.
    struct World {
        scheduler: Scheduler,
        now: Nanos,
        /// When each asks next, and for which of its blocks.
        asks: [Option<(Nanos, u64)>; 2],
        serving: Option<(Nanos, Vec<(Ticket, usize)>)>,
        batches: u64,
    }

    impl World {
        fn new(policy: PolicyKind) -> World {
            World {
                scheduler: Scheduler::new(Settings::new(policy)).unwrap(),
                now: Nanos::ZERO,
                asks: [Some((US(10), 0)), Some((US(300), 0))],
                serving: None,
                batches: 0,
            }
        }

        /// Runs both to their end, with `say` told of each answer, so that it can announce; how long that took.
        fn run(
            mut self,
            think: Nanos,
            mut say: impl FnMut(&mut Scheduler, usize, u64, Nanos),
        ) -> (u64, Nanos, Foretold) {
            loop {
                let wait = self.serve();
                let asks = self.asks.iter().flatten().map(|ask| ask.0);
                let done = self.serving.as_ref().map(|s| s.0);
                let Some(next) = asks.chain(done).chain(wait).min() else {
                    return (self.batches, self.now, self.scheduler.foretold());
                };
                self.now = next;
                self.ask();
                if done.is_some_and(|done| done <= self.now) {
                    self.answer(think, &mut say);
                }
            }
        }

        /// A disk: 8 ms for each batch, and one at a time.
        fn serve(&mut self) -> Option<Nanos> {
            if self.serving.is_some() {
                return None;
            }
            match self.scheduler.next(self.now) {
                Next::Dispatch(batch) => {
                    self.batches += 1;
                    let parts = batch.parts().iter();
                    let parts = parts.map(|part| (part.ticket, part.request.id.0 as usize));
                    self.serving = Some((self.now + MS(8), parts.collect()));
                    None
                }
                Next::WaitUntil(moment) => Some(moment),
                Next::Idle => None,
            }
        }

        fn ask(&mut self) {
            for who in 0..2 {
                if let Some((at, block)) = self.asks[who]
                    && at <= self.now
                {
                    self.asks[who] = None;
                    let range = block_of(who, block);
                    let request = Request::new(
                        RequestId(block * 2 + who as u64),
                        FileId(1),
                        Op::Read,
                        range,
                    );
                    self.scheduler.submit(request, self.now).unwrap();
                }
            }
        }

        fn answer(
            &mut self,
            think: Nanos,
            say: &mut impl FnMut(&mut Scheduler, usize, u64, Nanos),
        ) {
            let (_, parts) = self.serving.take().unwrap();
            for (ticket, id) in parts {
                assert!(self.scheduler.finish(ticket, self.now));
                let (who, block) = (id % 2, id as u64 / 2 + 1);
                if block < READS {
                    self.asks[who] = Some((self.now + Nanos(think.0 * (who as u64 + 1)), block));
                    say(&mut self.scheduler, who, block, self.now);
                }
            }
        }
    }

    fn block_of(who: usize, block: u64) -> Range {
        Range::at((2 * block + who as u64) * BLOCK, BLOCK)
    }

    fn plain(policy: PolicyKind, think: Nanos) -> (u64, Nanos) {
        let (batches, time, _) = World::new(policy).run(think, |_, _, _, _| {});
        (batches, time)
    }

    /// Tells in time what each will do, some requests at a time, from a source of its own or from one.
    fn announces(distance: u64, after: Nanos) -> impl FnMut(&mut Scheduler, usize, u64, Nanos) {
        let mut told = [0, 0];
        move |scheduler, who, block, now| {
            if told[who] >= block + distance / 2 {
                return;
            }
            // From the last that was told on.
            let from = told[who].max(block);
            let chain: Vec<Announced> = (from..block + distance)
                .map(|block| Announced {
                    file: FileId(1),
                    op: Op::Read,
                    range: block_of(who, block),
                    after: Nanos(after.0 * (who as u64 + 1)),
                })
                .collect();
            assert_eq!(scheduler.announce(7, &chain, now), chain.len());
            told[who] = block + distance - 1;
        }
    }

    #[test]
    fn two_readers_that_miss_each_other_are_served_together_once_they_are_announced() {
        for policy in [
            PolicyKind::ToAgg,
            PolicyKind::Sjf,
            PolicyKind::Mlf,
            PolicyKind::Aioli,
        ] {
            let think = US(200);
            let (alone, slow) = plain(policy, think);
            let (batches, fast, foretold) = World::new(policy).run(think, announces(16, think));
            assert!(alone >= 2 * READS - 20, "{policy}: {alone}");
            assert!(
                batches < READS + 40,
                "{policy}: {batches} batches of {}",
                2 * READS
            );
            assert!(fast.0 * 10 < slow.0 * 7, "{policy}: {fast} against {slow}");
            assert!(foretold.in_vain < 10, "{policy}: {foretold:?}");
        }
    }

    #[test]
    fn announcements_of_what_never_comes_change_nothing() {
        let think = US(200);
        let wrong = |scheduler: &mut Scheduler, who: usize, block: u64, now: Nanos| {
            // Always what the other one has read just now, or will much later: beside what comes, and never it.
            let chain = [0, 1, 2].map(|i| Announced {
                file: FileId(1),
                op: Op::Read,
                range: Range::at(block_of(who, block + i).end(), BLOCK / 2),
                after: think,
            });
            scheduler.announce(7, &chain, now);
        };
        for policy in [PolicyKind::ToAgg, PolicyKind::Aioli] {
            let (batches, time, foretold) = World::new(policy).run(think, wrong);
            assert_eq!((batches, time), plain(policy, think), "{policy}");
            assert_eq!((foretold.came, foretold.waits), (0, 0));
        }
    }

    #[test]
    fn who_is_right_but_always_late_is_not_waited_for() {
        // What is announced to come at once comes after 5 ms.
        let (batches, time, foretold) =
            World::new(PolicyKind::ToAgg).run(MS(5), announces(16, Nanos::ZERO));
        let (alone, slow) = plain(PolicyKind::ToAgg, MS(5));
        assert!(foretold.waits < 5, "{foretold:?}");
        assert!(batches.abs_diff(alone) < 10 && time.0 < slow.0 + MS(10).0);
    }

    #[test]
    fn a_liar_who_was_right_for_long_costs_little() {
        let think = US(200);
        let mut right = announces(16, think);
        let say = |scheduler: &mut Scheduler, who: usize, block: u64, now: Nanos| {
            if block < READS / 2 {
                return right(scheduler, who, block, now);
            }
            let chain = [Announced {
                file: FileId(1),
                op: Op::Read,
                range: Range::at(block_of(who, block).end(), BLOCK / 2),
                after: think,
            }];
            scheduler.announce(7, &chain, now);
        };
        let (_, _, foretold) = World::new(PolicyKind::ToAgg).run(think, say);
        assert!(foretold.came > 200, "{foretold:?}");
        assert!(foretold.in_vain < 8, "{foretold:?}");
    }

    #[test]
    fn what_one_source_announces_is_bounded_and_goes_with_it() {
        let mut chains = Chains::default();
        for n in 0..SOURCE_MAX as u64 * 2 {
            let request = Announced {
                file: FileId(n % 100),
                op: Op::Write,
                range: Range::at(n * 10, 10),
                after: Nanos(n),
            };
            chains.announce(n % 2, &[request], Nanos(n));
        }
        assert!(chains.items <= 2 * SOURCE_MAX, "{}", chains.items);
        chains.forget_source(0);
        chains.forget_source(1);
        assert_eq!(
            (chains.items, chains.starts.len(), chains.chains.len()),
            (0, 0, 0)
        );
    }

    /// A disk of 1 to 9 ms, and a machine that was busy when the first large batch was served.
    #[test]
    fn one_large_batch_that_took_long_does_not_mean_that_size_is_all_that_costs() {
        let mut measured = Measured::default();
        for turn in 0..64 {
            measured.add(BLOCK, US(1000 + turn * 37 % 64 * 125));
        }
        measured.add(2 * BLOCK, MS(30));
        let [one, two] = [BLOCK, 2 * BLOCK].map(|bytes| measured.time(bytes).unwrap());
        assert!(two < 1.5 * one, "{one} and {two}");
        // Many of them do.
        (0..64).for_each(|_| measured.add(2 * BLOCK, MS(30)));
        let [one, two] = [BLOCK, 2 * BLOCK].map(|bytes| measured.time(bytes).unwrap());
        assert!(two > 1.9 * one, "{one} and {two}");
    }

    #[test]
    fn the_cost_of_a_batch_is_told_from_that_of_its_bytes() {
        let mut measured = Measured::default();
        for n in 0..100 {
            let bytes = BLOCK * (1 + n % 3);
            measured.add(bytes, MS(8) + Nanos(bytes * 10));
        }
        let per_batch = measured.time(0).unwrap();
        assert!(
            (per_batch / MS(8).0 as f64 - 1.0).abs() < 0.01,
            "{per_batch}"
        );
    }
}
