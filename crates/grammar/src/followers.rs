//! Where in the grammar we are: the predictors of the paper (§3.1.3–3.1.5).
//!
//! A *follower* is a place in the grammar that the stream may have come to again: a symbol that may come next,
//! the instance of the rule that it stands in, and so on up to the start rule. In exact mode that is a place in
//! the input, and if a symbol is repeated a range of places. The nesting of predictors within one another, and
//! that all lead to the start rule, holds by construction: a follower is such a chain.
//!
//! Each new symbol is compared with what the followers expect; those that were right go on. When none was, new
//! ones are looked for wherever the last symbol of the start rule occurs. When the grammar changes under its
//! followers they are told, and change with it.

use crate::grammar::{GAP, Mode};
use crate::runs::Runs;
use crate::series::SeriesAhead;
use crate::store::{COUNT_MAX, RULE, START, Store, is_rule, rule_of_value};
use smallvec::SmallVec;

/// So many symbols are passed at most on the way from places to the rules they are in.
const STEPS_MAX: usize = 1 << 14;

/// So many places are looked for at least.
const REACH_MIN: usize = 4;

/// In a grammar of so few symbols all places are looked for, as the paper has it: it never costs much.
const SMALL: usize = 256;

/// How many repetitions are expected has not been asked yet. Most followers are gone before it is.
const LATER: u32 = u32::MAX;

/// One link of the chain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Frame {
    pub node: u32,
    /// Which of its repetitions: in exact mode from here to `hi`. When folding, how many; 0 if not known.
    pub lo: u32,
    /// When folding: how many repetitions are expected; 0 if not known, or [`LATER`].
    pub hi: u32,
    /// When folding: how many runs of the node were over when this one began.
    pub pass: u32,
}

pub(crate) type Frames = SmallVec<[Frame; 6]>;

/// The chain from the start rule down to the terminal that may come next.
#[derive(Clone, Debug)]
pub(crate) struct Follower {
    pub frames: Frames,
    pub weight: f64,
}

/// See the module's header.
#[derive(Clone, Debug)]
pub(crate) struct Followers {
    mode: Mode,
    pub max: usize,
    pub list: Vec<Follower>,
    /// How many are looked for: in a large grammar fewer and fewer while what is found proves wrong at once. Input
    /// without structure would be searched in vain at every symbol.
    pub reach: usize,
    /// Whether what is followed has just been found.
    pub fresh: bool,
    /// When folding: whether two may have come to the same place.
    unsettled: bool,
    /// Reused between calls.
    spare: Vec<Follower>,
    path: Vec<Frame>,
}

impl Followers {
    pub(crate) fn new(mode: Mode, max: usize) -> Followers {
        Followers {
            mode,
            max,
            list: Vec::new(),
            reach: max,
            fresh: false,
            unsettled: true,
            spare: Vec::new(),
            path: Vec::new(),
        }
    }

    pub(crate) fn memory(&self) -> usize {
        let deep = self.list.iter().filter(|f| f.frames.spilled());
        let frames: usize = deep.map(|f| f.frames.capacity()).sum();
        (self.list.capacity() + self.spare.capacity()) * size_of::<Follower>()
            + (self.path.capacity() + frames) * size_of::<Frame>()
    }

    pub(crate) fn clear(&mut self) {
        self.list.clear();
        (self.reach, self.fresh) = (self.max, false);
    }

    /// Follows so many places from now on.
    pub(crate) fn follow(&mut self, max: usize) {
        self.max = max;
        self.clear();
    }

    /// Whether nothing is followed.
    pub(crate) fn are_lost(&self) -> bool {
        self.list.is_empty()
    }

    /// The place where this terminal was expected, if there is only one.
    pub(crate) fn only_place(&self, store: &Store, terminal: u32) -> Option<&Frames> {
        let places = self.list.iter().map(|f| &f.frames);
        let mut expected = places.filter(|frames| next_of(store, frames) == terminal);
        expected.next().filter(|_| expected.next().is_none())
    }

    /// Goes on with those that expected this terminal.
    pub(crate) fn observe(&mut self, store: &Store, terminal: u32) {
        let walk = Walk {
            store,
            mode: self.mode,
        };
        let (branches, unsettled) = (&mut self.spare, &mut self.unsettled);
        self.list.retain_mut(|follower| {
            if next_of(store, &follower.frames) != terminal {
                return false;
            }
            if walk.step_within(&mut follower.frames) {
                return true;
            }
            *unsettled = true;
            walk.step(follower, branches)
        });
        self.list.append(branches);
        if std::mem::take(&mut self.fresh) {
            self.reach = match self.are_lost() && store.len() > SMALL {
                true => (self.reach / 2).max(REACH_MIN).min(self.max),
                false => self.max,
            };
        }
        self.trim();
    }

    /// Looks for places where the last symbol of the start rule occurs too, and goes on from there.
    pub(crate) fn discover(&mut self, store: &Store) {
        let last = store.rule(START).last;
        if Store::is_end(last) || self.max == 0 {
            return;
        }
        let walk = Walk {
            store,
            mode: self.mode,
        };
        let mut found = std::mem::take(&mut self.spare);
        let mut steps = STEPS_MAX;
        for node in store.all_of(store.value(last)) {
            if let Some(frame) = walk.occurrence(node, last) {
                walk.climb(frame, self.reach, &mut steps, &mut self.path, &mut found);
            }
            if found.len() >= self.reach || steps == 0 {
                break;
            }
        }
        self.list.append(&mut found);
        self.spare = found;
        let branches = &mut self.spare;
        self.list.retain_mut(|f| walk.step(f, branches));
        self.list.append(branches);
        self.fresh = !self.list.is_empty();
        self.unsettled = true;
        self.trim();
    }

    /// Follows from the very beginning.
    pub(crate) fn begin(&mut self, store: &Store) {
        let first = store.rule(START).first;
        self.list.clear();
        if !Store::is_end(first) && self.max > 0 {
            let walk = Walk {
                store,
                mode: self.mode,
            };
            let mut frames = SmallVec::from_slice(&[walk.enter(first)]);
            walk.descend(&mut frames);
            let weight = 1.0;
            self.list.push(Follower { frames, weight });
        }
    }

    /// Drops doubles, and the least of those that are too many.
    #[inline]
    fn trim(&mut self) {
        if self.mode == Mode::Folding && self.list.len() > 1 {
            self.share_out();
        }
        if self.list.len() > self.max {
            self.list.sort_by(|a, b| b.weight.total_cmp(&a.weight));
            self.list.truncate(self.max);
        }
    }

    /// Those that are left share what is certain: that one of them is right.
    fn share_out(&mut self) {
        if std::mem::take(&mut self.unsettled) {
            self.drop_doubles();
        }
        let total: f64 = self.list.iter().map(|f| f.weight).sum();
        if total > 0.0 {
            let weights = self.list.iter_mut().map(|f| &mut f.weight);
            weights.for_each(|weight| *weight = positive(*weight / total));
        }
    }

    /// When folding, two ways can lead to the same place.
    fn drop_doubles(&mut self) {
        let same = |a: &Follower, b: &Follower| {
            let (a, b) = (&a.frames, &b.frames);
            // From within: most differ in the terminal already.
            a.len() == b.len()
                && a.iter()
                    .rev()
                    .zip(b.iter().rev())
                    .all(|(x, y)| x.node == y.node)
        };
        let mut at = 1;
        while at < self.list.len() {
            let before = self.list[..at].iter().position(|f| same(f, &self.list[at]));
            match before {
                Some(first) => self.list[first].weight += self.list.swap_remove(at).weight,
                None => at += 1,
            }
        }
    }

    /// What may come next, with weights.
    pub(crate) fn predictions(&self, store: &Store) -> Vec<(u32, f64)> {
        let mut predicted: Vec<(u32, f64)> = Vec::new();
        for follower in &self.list {
            let symbol = store.symbol(next_of(store, &follower.frames));
            if symbol == GAP {
                continue;
            }
            match predicted.iter_mut().find(|p| p.0 == symbol) {
                Some(known) => known.1 += follower.weight,
                None => predicted.push((symbol, follower.weight)),
            }
        }
        predicted.sort_by(|a, b| b.1.total_cmp(&a.1));
        predicted
    }

    /// The symbols with which the ways to read on begin, with the weight of each way, the weightiest first.
    pub(crate) fn ways(&self, store: &Store) -> SmallVec<[(u32, f64); 8]> {
        let begin = |f: &Follower| (store.symbol(next_of(store, &f.frames)), f.weight);
        let mut ways: SmallVec<[(u32, f64); 8]> = self.list.iter().map(begin).collect();
        ways.retain(|way| way.0 != GAP);
        ways.sort_by(|a, b| b.1.total_cmp(&a.1));
        ways
    }

    /// Ways to read on, the weightiest first.
    pub(crate) fn cursors<'a>(
        &'a self,
        store: &'a Store,
    ) -> impl Iterator<Item = (Cursor<'a>, f64)> {
        let going_on = |f: &&Follower| store.symbol(next_of(store, &f.frames)) != GAP;
        let mut order: Vec<&Follower> = self.list.iter().filter(going_on).collect();
        order.sort_by(|a, b| b.weight.total_cmp(&a.weight));
        let mode = self.mode;
        order
            .into_iter()
            .map(move |f| (Cursor::new(store, mode, &f.frames), f.weight))
    }

    /// The symbol that is expected most, and its share of all weights.
    pub(crate) fn best_symbol(&self, store: &Store) -> Option<(u32, f64)> {
        let (terminal, weight, total) = self.best_terminal(store)?;
        Some((store.symbol(terminal), weight / total))
    }

    /// The terminal that is expected most, its weight, and that of all.
    fn best_terminal(&self, store: &Store) -> Option<(u32, f64, f64)> {
        let mut total = 0.0;
        let mut sums: SmallVec<[(u32, f64); 8]> = SmallVec::new();
        for follower in &self.list {
            let terminal = next_of(store, &follower.frames);
            total += follower.weight;
            match sums.iter_mut().find(|sum| sum.0 == terminal) {
                Some(sum) => sum.1 += follower.weight,
                None => sums.push((terminal, follower.weight)),
            }
        }
        let mut real = sums.iter().filter(|sum| store.symbol(sum.0) != GAP);
        let first = real.next()?;
        // Of equal ones the first: it was seen last.
        let best = real.fold(first, |best, sum| if sum.1 > best.1 { sum } else { best });
        Some((best.0, best.1, total))
    }

    /// The weightiest way to read on of those on which the symbol comes next that is expected most.
    pub(crate) fn best<'a>(&self, store: &'a Store) -> Option<Cursor<'a>> {
        let (terminal, ..) = self.best_terminal(store)?;
        self.best_through(store, terminal)
    }

    /// The weightiest way to read on of those on which a terminal comes next.
    pub(crate) fn best_through<'a>(&self, store: &'a Store, terminal: u32) -> Option<Cursor<'a>> {
        let mut wanted = self
            .list
            .iter()
            .filter(|f| next_of(store, &f.frames) == terminal);
        let first = wanted.next()?;
        let best = wanted.fold(
            first,
            |best, f| if f.weight > best.weight { f } else { best },
        );
        Some(Cursor::new(store, self.mode, &best.frames))
    }

    /// Two neighbours were moved into a rule of which `instance` took their place. Whether one is followed.
    pub(crate) fn wrapped(&mut self, store: &Store, first: u32, last: u32, instance: u32) -> bool {
        let level = Level::of(store, instance);
        let mut concerned = false;
        for follower in &mut self.list {
            let inside = |node: u32| node == first || node == last;
            if let Some(at) = level.position(&follower.frames, inside) {
                follower.frames.insert(at, Frame::once(instance));
                concerned = true;
            }
        }
        concerned
    }

    /// What was said of one node is said of another from now on.
    pub(crate) fn renamed(&mut self, gone: u32, stays: u32) {
        self.unsettled = true;
        for follower in &mut self.list {
            let frame = follower.frames.iter_mut().find(|f| f.node == gone);
            if let Some(frame) = frame {
                frame.node = stays;
            }
        }
    }

    /// The body of a rule has taken the place of its instance, which is still there.
    pub(crate) fn inlined(&mut self, store: &Store, instance: u32) {
        let level = Level::of(store, instance);
        for follower in &mut self.list {
            if let Some(at) = level.position(&follower.frames, |node| node == instance) {
                follower.frames.remove(at);
            }
        }
    }

    /// A node became part of its equal neighbour, which has been there `count` times.
    pub(crate) fn joined(&mut self, store: &Store, node: u32, twin: u32, count: u32) {
        self.unsettled = true;
        let level = Level::of(store, node);
        let exact = self.mode != Mode::Folding;
        for follower in &mut self.list {
            let either = |n: u32| n == node || n == twin;
            let Some(at) = level.position(&follower.frames, either) else {
                continue;
            };
            let frame = &mut follower.frames[at];
            if frame.node == twin {
                frame.node = node;
                let behind = |at: u32| at.saturating_add(count).min(COUNT_MAX);
                (frame.lo, frame.hi) = (behind(frame.lo), behind(frame.hi));
            }
            if !exact {
                // How often it stood there until now is not what is expected any more.
                frame.hi = 0;
            }
        }
    }

    /// A node became part of a repetition at the end of the one before it, to which `way` leads.
    pub(crate) fn absorbed(&mut self, store: &Store, more: u32, way: &[u32], count: u32) {
        self.unsettled = true;
        let level = Level::of(store, more);
        for follower in &mut self.list {
            let Some(at) = level.position(&follower.frames, |node| node == more) else {
                continue;
            };
            let old = follower.frames[at];
            let inner: Frames = follower.frames[at + 1..].into();
            follower.frames.truncate(at);
            follower
                .frames
                .extend(way.iter().map(|&node| Frame::unknown(node)));
            if let Some(deep) = follower.frames.last_mut() {
                deep.lo = old.lo.saturating_add(count);
            }
            follower.frames.extend(inner);
        }
    }

    /// The instance of a rule of one symbol, `only`, which stood there `inner` times, became that symbol.
    pub(crate) fn dissolved(&mut self, instance: u32, only: u32, inner: u32) {
        self.unsettled = true;
        let mut more = Vec::new();
        for follower in &mut self.list {
            let Some(at) = follower.frames.iter().position(|f| f.node == instance) else {
                continue;
            };
            let (outer, nested) = (follower.frames[at], follower.frames[at + 1]);
            debug_assert_eq!(nested.node, only);
            follower.frames.remove(at + 1);
            if self.mode == Mode::Folding {
                follower.frames[at] = Frame::unknown(instance);
                continue;
            }
            let within = |outer: u32, nested: u32| {
                let before = (outer - 1).saturating_mul(inner);
                before.saturating_add(nested).min(COUNT_MAX)
            };
            if (nested.lo, nested.hi) == (1, inner) {
                follower.frames[at] = Frame {
                    lo: within(outer.lo, 1),
                    hi: within(outer.hi, inner),
                    ..outer
                };
                continue;
            }
            // Each repetition of the outer one has its own range; the first stays with this follower. There may be
            // very many, and no more than the limit would be kept anyway.
            let share = positive(follower.weight / (f64::from(outer.hi - outer.lo) + 1.0));
            let range = |repetition: u32| Frame {
                lo: within(repetition, nested.lo),
                hi: within(repetition, nested.hi),
                ..outer
            };
            follower.weight = share;
            follower.frames[at] = range(outer.lo);
            let room = self.max.saturating_sub(more.len());
            for repetition in (outer.lo + 1..=outer.hi).take(room) {
                let mut other = follower.clone();
                other.frames[at] = range(repetition);
                more.push(other);
            }
        }
        self.list.append(&mut more);
    }

    /// A node is no more.
    pub(crate) fn gone(&mut self, node: u32) {
        self.list
            .retain(|follower| follower.frames.iter().all(|f| f.node != node));
    }

    /// Whether every follower is a chain of places that are there, each in the rule before it.
    /// `homes` are the rules that nodes are in.
    pub(crate) fn verify(&self, store: &Store, homes: &[u32]) -> Result<(), String> {
        let mut followers = self.list.iter();
        followers.try_for_each(|follower| self.verify_chain(store, homes, &follower.frames))
    }

    /// The same of one chain.
    pub(crate) fn verify_chain(
        &self,
        store: &Store,
        homes: &[u32],
        frames: &[Frame],
    ) -> Result<(), String> {
        let mut value = RULE | START;
        for frame in frames {
            let lost = !store.is_live(frame.node) || RULE | homes[frame.node as usize] != value;
            if lost {
                return Err(format!("a follower is lost: {frames:?}"));
            }
            let count = store.node(frame.node).count();
            let exact = self.mode != Mode::Folding;
            if exact && !(1 <= frame.lo && frame.lo <= frame.hi && frame.hi <= count) {
                return Err(format!("{frame:?} is not within {count} repetitions"));
            }
            value = store.value(frame.node);
        }
        if is_rule(value) {
            return Err(format!("a follower expects no terminal: {frames:?}"));
        }
        Ok(())
    }
}

/// Where in a chain a node can be: its first link is in the start rule, and no other is.
#[derive(Clone, Copy)]
enum Level {
    Start,
    Below,
}

impl Level {
    fn of(store: &Store, node: u32) -> Level {
        match store.node(node).is_in_start() {
            true => Level::Start,
            false => Level::Below,
        }
    }

    /// Where the node is, of which there is at most one: rules do not contain themselves.
    #[inline]
    fn position(self, frames: &Frames, is_it: impl Fn(u32) -> bool) -> Option<usize> {
        match self {
            Level::Start => is_it(frames[0].node).then_some(0),
            Level::Below => (1..frames.len()).find(|at| is_it(frames[*at].node)),
        }
    }
}

/// A weight that has become less. It does not vanish: the place is one that was seen.
fn positive(weight: f64) -> f64 {
    weight.max(f64::MIN_POSITIVE)
}

/// The terminal that a chain ends with.
fn next_of(store: &Store, frames: &Frames) -> u32 {
    store.value(frames[frames.len() - 1].node)
}

/// Whether a place is the very beginning of a repetition of the symbol of the start rule that it is in.
pub(crate) fn begins_repetition(store: &Store, frames: &Frames) -> bool {
    let first = |outer: &Frame| store.rule(rule_of_value(store.value(outer.node))).first;
    let nested = frames.windows(2);
    frames[0].lo > 0
        && nested
            .into_iter()
            .all(|f| f[1].node == first(&f[0]) && f[1].lo == 1)
}

/// Whether a place is the very end of such a repetition, in exact mode.
pub(crate) fn ends_repetition(store: &Store, frames: &Frames) -> bool {
    let ends = |frame: &Frame| {
        let node = store.node(frame.node);
        Store::is_end(node.next) && frame.lo == node.count()
    };
    frames[1..].iter().all(ends)
}

impl Frame {
    /// Whether it is the same repetition of the same node.
    pub(crate) fn is_same(&self, other: &Frame) -> bool {
        (self.node, self.lo, self.pass) == (other.node, other.lo, other.pass)
    }

    fn once(node: u32) -> Frame {
        let (lo, hi, pass) = (1, 1, 0);
        Frame { node, lo, hi, pass }
    }

    fn unknown(node: u32) -> Frame {
        let (lo, hi, pass) = (0, 0, 0);
        Frame { node, lo, hi, pass }
    }
}

/// How to get from one place to the next.
#[derive(Clone, Copy)]
struct Walk<'a> {
    store: &'a Store,
    mode: Mode,
}

impl Walk<'_> {
    /// Goes on without leaving the rule or entering another, where that is certain: most steps are such. False if
    /// it is not, and then nothing has changed. Different places lead to different ones.
    #[inline]
    fn step_within(self, frames: &mut Frames) -> bool {
        let last = frames.len() - 1;
        let top = &mut frames[last];
        let node = self.store.node(top.node);
        if node.count() > 1 {
            let all_go_on = self.mode != Mode::Folding && top.hi < node.count();
            if all_go_on {
                (top.lo, top.hi) = (top.lo + 1, top.hi + 1);
            }
            return all_go_on;
        }
        if Store::is_end(node.next) || is_rule(self.store.value(node.next)) {
            return false;
        }
        *top = self.enter(node.next);
        true
    }

    /// The symbol that a follower ends with has come: goes to the place that is next; false if there is none.
    /// Where several may be next, the others are added to `branches`.
    fn step(self, follower: &mut Follower, branches: &mut Vec<Follower>) -> bool {
        let frames = &mut follower.frames;
        while let Some(frame) = frames.pop() {
            let (again, over) = self.after(frame);
            if let Some((frame, share)) = again {
                if over == 0.0 {
                    follower.weight = positive(follower.weight * share);
                    frames.push(frame);
                    self.descend(frames);
                    return true;
                }
                let mut frames = Frames::from_slice(frames);
                frames.push(frame);
                self.descend(&mut frames);
                let weight = positive(follower.weight * share);
                branches.push(Follower { frames, weight });
            }
            if over == 0.0 {
                return false;
            }
            follower.weight = positive(follower.weight * over);
            let next = self.store.node(frame.node).next;
            if !Store::is_end(next) {
                frames.push(self.enter(next));
                self.descend(frames);
                return true;
            }
        }
        false
    }

    /// After one more repetition: the frame if it is repeated again, with its share of the weight, and the share
    /// of its being over.
    #[inline]
    fn after(self, frame: Frame) -> (Option<(Frame, f64)>, f64) {
        match self.mode {
            Mode::Folding => self.after_folded(frame),
            _ => self.after_exact(frame),
        }
    }

    #[inline]
    fn after_exact(self, frame: Frame) -> (Option<(Frame, f64)>, f64) {
        let count = self.store.node(frame.node).count();
        if count == 1 {
            return (None, 1.0);
        }
        let places = |f: &Frame| f64::from(f.hi - f.lo + 1);
        let again = (frame.lo < count).then(|| {
            let lo = frame.lo + 1;
            let hi = count.min(frame.hi.saturating_add(1));
            let again = Frame { lo, hi, ..frame };
            (again, places(&again) / places(&frame))
        });
        let over = if frame.hi == count {
            1.0 / places(&frame)
        } else {
            0.0
        };
        (again, over)
    }

    fn after_folded(self, frame: Frame) -> (Option<(Frame, f64)>, f64) {
        let Some(runs) = self.store.runs(frame.node) else {
            return (None, 1.0);
        };
        let frame = self.resolved(frame);
        let share = runs.goes_on(frame.lo, frame.hi);
        let lo = if frame.lo == 0 {
            0
        } else {
            frame.lo.saturating_add(1)
        };
        (Some((Frame { lo, ..frame }, share)), 1.0 - share)
    }

    /// The first repetition of a node.
    #[inline]
    fn enter(self, node: u32) -> Frame {
        if self.mode != Mode::Folding {
            return Frame::once(node);
        }
        match self.store.runs(node) {
            Some(runs) => Frame {
                node,
                lo: 1,
                hi: LATER,
                pass: runs.passes(),
            },
            None => Frame::once(node),
        }
    }

    /// The same with the number of repetitions that are expected.
    fn resolved(self, frame: Frame) -> Frame {
        if frame.hi != LATER || self.mode != Mode::Folding {
            return frame;
        }
        let hi = self.store.runs(frame.node).map_or(1, Runs::target);
        Frame { hi, ..frame }
    }

    /// Goes down to the terminal that a chain begins with.
    fn descend(self, frames: &mut Frames) {
        loop {
            let value = next_of(self.store, frames);
            if !is_rule(value) {
                return;
            }
            let first = self.store.rule(rule_of_value(value)).first;
            frames.push(self.enter(first));
        }
    }

    /// A place where the symbol `last`, with which the input ends, has occurred before.
    fn occurrence(self, node: u32, last: u32) -> Option<Frame> {
        let count = self.store.node(node).count();
        if self.mode == Mode::Folding {
            return self.folded_occurrence(node, last);
        }
        // The very last repetition is where we are: nothing has followed it.
        let hi = if node == last { count - 1 } else { count };
        let (lo, pass) = (1, 0);
        (hi > 0).then_some(Frame { node, lo, hi, pass })
    }

    fn folded_occurrence(self, node: u32, last: u32) -> Option<Frame> {
        let lo = self.store.current(last);
        let Some(runs) = self.store.runs(node) else {
            return (node != last).then(|| Frame::once(node));
        };
        let (hi, pass) = match node == last {
            // It goes on as long as it does: there is nothing to compare it with, but what it was before.
            true => (0, runs.passes().wrapping_sub(1)),
            false => (runs.target(), runs.passes()),
        };
        Some(Frame { node, lo, hi, pass })
    }

    /// Adds the chains that lead from the start rule to a place, the newest first, until there are `max`, or no
    /// steps are left.
    fn climb(
        self,
        frame: Frame,
        max: usize,
        steps: &mut usize,
        path: &mut Vec<Frame>,
        out: &mut Vec<Follower>,
    ) {
        path.clear();
        path.push(frame);
        while let Some(top) = path.last() {
            let Some(rule) = self.store.rule_of(top.node, steps) else {
                return;
            };
            if let Some(instance) = self.store.newest(RULE | rule) {
                path.push(self.anywhere(instance));
                continue;
            }
            out.push(self.rooted(path));
            if out.len() >= max {
                return;
            }
            self.sidestep(path);
        }
    }

    /// From one way up to the next: to an older instance of the same rule, as near to the start rule as there is
    /// one. None is left if the path is empty then.
    fn sidestep(self, path: &mut Vec<Frame>) {
        while let Some(top) = path.pop().filter(|_| !path.is_empty()) {
            if let Some(older) = self.store.older(top.node) {
                path.push(self.anywhere(older));
                return;
            }
        }
        path.clear();
    }

    /// All repetitions of a node.
    fn anywhere(self, node: u32) -> Frame {
        match self.mode {
            Mode::Folding => Frame::unknown(node),
            _ => Frame {
                node,
                lo: 1,
                hi: self.store.node(node).count(),
                pass: 0,
            },
        }
    }

    /// A chain, found from within.
    fn rooted(self, path: &[Frame]) -> Follower {
        let mut frames = Frames::from_slice(path);
        frames.reverse();
        let weight = |f: &Frame| match self.mode {
            Mode::Folding => f64::from(self.store.current(f.node)),
            _ => f64::from(f.hi - f.lo + 1),
        };
        let weight: f64 = frames.iter().map(weight).product();
        // So that sums stay finite, whatever the counts.
        let weight = weight.min(1e200);
        Follower { frames, weight }
    }
}

/// A way to read on from a place, as far as one likes: where the grammar ends it begins again at that place
/// (§3.1.5).
#[derive(Clone)]
pub struct Cursor<'a> {
    walk: Walk<'a>,
    start: Frames,
    /// The chain to where it is, but for the last link, which is `top`: most steps change nothing else.
    outer: Frames,
    top: Frame,
    /// The symbol there.
    symbol: u32,
    confidence: f64,
    /// The trip counts of repeated nodes that were entered, from there on.
    entered: SmallVec<[(u32, SeriesAhead<'a>); 4]>,
}

impl std::fmt::Debug for Cursor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursor")
            .field("outer", &self.outer)
            .field("top", &self.top)
            .finish_non_exhaustive()
    }
}

impl<'a> Cursor<'a> {
    fn new(store: &'a Store, mode: Mode, frames: &Frames) -> Cursor<'a> {
        let walk = Walk { store, mode };
        let mut start = Frames::from_slice(frames);
        match mode {
            Mode::Folding => start.iter_mut().for_each(|f| *f = walk.resolved(*f)),
            // Of a range the first: most of the repetition is still to come.
            _ => start.iter_mut().for_each(|f| f.hi = f.lo),
        }
        let (outer, top) = without_top(&start);
        let mut cursor = Cursor {
            walk,
            start,
            outer,
            top,
            symbol: GAP,
            confidence: 1.0,
            entered: SmallVec::new(),
        };
        cursor.symbol = cursor.symbol_here();
        cursor
    }

    /// The symbol that comes next on this way.
    #[inline]
    pub fn peek(&self) -> u32 {
        self.symbol
    }

    #[inline]
    fn symbol_here(&self) -> u32 {
        let store = self.walk.store;
        store.symbol(store.value(self.top.node))
    }

    /// How likely it is that everything read so far comes, given that the place is right.
    #[inline]
    pub fn confidence(&self) -> f64 {
        self.confidence
    }

    /// Leaves the rules that are over, goes on behind them, and down to a terminal.
    fn advance(&mut self) {
        let mut frame = self.top;
        loop {
            let (again, over) = self.walk.after(frame);
            let prefers = |(_, share): &(Frame, f64)| self.prefers(frame, *share);
            if let Some((next, share)) = again.filter(prefers) {
                self.confidence *= share;
                return self.descend(next);
            }
            if over < 1.0 {
                self.confidence *= over;
            }
            let node = self.walk.store.node(frame.node);
            if !Store::is_end(node.next) {
                let entered = self.enter(node.next);
                return self.descend(entered);
            }
            if self.is_our_loop(frame) && node.count() > 1 && is_rule(node.value) {
                // Nothing has followed it yet: it is entered once more.
                return self.descend(frame);
            }
            let Some(outer) = self.outer.pop() else {
                return self.begin_again();
            };
            frame = outer;
        }
    }

    /// Goes on without leaving the rule or entering another, where that is certain: most steps are such.
    #[inline]
    fn advance_within(&mut self) -> bool {
        let (store, top) = (self.walk.store, &mut self.top);
        let node = store.node(top.node);
        if self.walk.mode == Mode::Folding && node.count() > 1 {
            return false;
        }
        if top.lo < node.count() {
            (top.lo, top.hi) = (top.lo + 1, top.lo + 1);
            return true;
        }
        if Store::is_end(node.next) {
            return false;
        }
        let next = store.node(node.next);
        let certain = !is_rule(next.value) && next.count() == 1;
        if certain {
            *top = Frame::once(node.next);
        }
        certain
    }

    fn begin_again(&mut self) {
        (self.outer, self.top) = without_top(&self.start);
    }

    /// Whether a frame, with all within it taken off, is the loop at the end of the start rule, and we began within
    /// it.
    fn is_our_loop(&self, frame: Frame) -> bool {
        self.outer.is_empty()
            && self.start[0].node == frame.node
            && Store::is_end(self.walk.store.node(frame.node).next)
    }

    /// Whether a repetition rather goes on.
    fn prefers(&self, frame: Frame, share: f64) -> bool {
        if self.is_our_loop(frame) {
            // Nothing has come behind it yet.
            return true;
        }
        match self.walk.mode {
            Mode::Folding if frame.lo != 0 && frame.hi != 0 => frame.lo < frame.hi,
            Mode::Folding => share > 0.5,
            _ => true,
        }
    }

    /// Goes from a frame, which is the innermost, down to the terminal that it begins with.
    fn descend(&mut self, mut frame: Frame) {
        let store = self.walk.store;
        loop {
            let value = store.value(frame.node);
            if !is_rule(value) {
                break;
            }
            self.outer.push(frame);
            frame = self.enter(store.rule(rule_of_value(value)).first);
        }
        self.top = frame;
    }

    /// Whether a node, about to be entered, is the last of everything.
    fn is_at_the_end(&self, node: u32) -> bool {
        let is_last = |node: u32| Store::is_end(self.walk.store.node(node).next);
        is_last(node) && self.outer.iter().all(|f| is_last(f.node))
    }

    fn enter(&mut self, node: u32) -> Frame {
        let frame = self.walk.enter(node);
        if frame.hi != LATER {
            return frame;
        }
        let Some(runs) = self.walk.store.runs(node) else {
            return frame;
        };
        if self.is_at_the_end(node) {
            // The run in which we are: this is as far as it has come.
            let hi = runs.current();
            return Frame { hi, ..frame };
        }
        let known = self.entered.iter_mut().find(|e| e.0 == node);
        let count = match known {
            Some((_, counts)) => counts.next(),
            None => {
                let mut counts = self.counts_from_here(node, runs);
                let count = counts.next();
                self.entered.push((node, counts));
                count
            }
        };
        let count = count.map(|c| u32::try_from(c).unwrap_or(COUNT_MAX));
        let hi = count.unwrap_or_else(|| runs.target());
        Frame { hi, ..frame }
    }

    /// The trip counts of a node that are to come. If we are within a run of it, that one comes before them.
    fn counts_from_here(&self, node: u32, runs: &'a Runs) -> SeriesAhead<'a> {
        let within = self.start.iter().find(|f| f.node == node && f.hi != 0);
        match within {
            Some(run) if run.pass != runs.passes() => runs.ahead_after(run.hi),
            Some(_) => {
                let mut counts = runs.ahead_after(runs.current());
                counts.next();
                counts
            }
            None => runs.ahead_after(runs.current()),
        }
    }
}

impl Iterator for Cursor<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        let symbol = self.symbol;
        if !self.advance_within() {
            self.advance();
        }
        self.symbol = self.symbol_here();
        if self.symbol == GAP {
            self.begin_again();
            self.symbol = self.symbol_here();
        }
        Some(symbol)
    }
}

/// A chain and its last link, apart.
fn without_top(frames: &Frames) -> (Frames, Frame) {
    let (outer, top) = frames.split_at(frames.len() - 1);
    (Frames::from_slice(outer), top[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S → a d³ e A b A e c, A → c d; all places of d are marked, and one of e (§3.1.4).
    #[test]
    fn weights_count_the_ways_from_the_start_rule() {
        let mut store = Store::new(Mode::Exact);
        let terminal = |store: &mut Store, letter: char| store.terminal(letter.into());
        let rule = store.add_rule();
        for (into, text) in [(rule, "cd"), (START, "adeAbAec")] {
            for letter in text.chars() {
                let value = match letter {
                    'A' => RULE | rule,
                    _ => terminal(&mut store, letter),
                };
                let last = store.rule(into).last;
                store.insert(last, RULE | into, value, into == START);
            }
        }
        let d = terminal(&mut store, 'd');
        let e = terminal(&mut store, 'e');
        let cubed = store
            .all_of(d)
            .find(|n| store.node(*n).is_in_start())
            .unwrap();
        store.set_count(cubed, 3);
        let mut followers = Followers::new(Mode::Exact, 32);
        let store = &store;
        let walk = Walk {
            store,
            mode: Mode::Exact,
        };
        for node in store.all_of(d).chain(store.all_of(e).take(1)) {
            walk.climb(
                walk.anywhere(node),
                32,
                &mut 100,
                &mut Vec::new(),
                &mut followers.list,
            );
        }
        let predictions = followers.predictions(store);
        assert_eq!(predictions, [('d'.into(), 5.0), ('e'.into(), 1.0)]);
    }

    /// S → A A, A is long: near its ends places are found, in its middle no longer than is worth it.
    #[test]
    fn the_way_to_the_start_rule_is_not_looked_for_without_end() {
        let mut store = Store::new(Mode::Exact);
        let rule = store.add_rule();
        let length = 4 * STEPS_MAX as u32;
        for value in 0..length {
            let last = store.rule(rule).last;
            store.insert(last, RULE | rule, value, false);
        }
        for value in [RULE | rule, RULE | rule] {
            let last = store.rule(START).last;
            store.insert(last, RULE | START, value, true);
        }
        let store = &store;
        let mode = Mode::Exact;
        let climb = |symbol: u32| {
            let (mut steps, mut found) = (STEPS_MAX, Vec::new());
            let node = store.newest(symbol).unwrap();
            let walk = Walk { store, mode };
            let frame = walk.anywhere(node);
            walk.climb(frame, 32, &mut steps, &mut Vec::new(), &mut found);
            (steps, found.len())
        };
        assert_eq!(climb(10), (STEPS_MAX - 11, 2));
        assert_eq!(climb(length - 1), (STEPS_MAX - 1, 2));
        assert_eq!(climb(length / 2), (0, 0));
    }

    /// A rule of one symbol, a⁷, that stands there two thousand million times, becomes that symbol.
    #[test]
    fn a_range_that_falls_apart_leaves_no_more_than_the_limit() {
        let frame = |node, lo, hi| {
            let pass = 0;
            Frame { node, lo, hi, pass }
        };
        let dissolved = |nested: Frame| {
            let mut followers = Followers::new(Mode::Exact, 32);
            let frames = SmallVec::from_slice(&[frame(0, 1, COUNT_MAX), nested]);
            let weight = 1.0;
            followers.list.push(Follower { frames, weight });
            followers.dissolved(0, 1, 7);
            followers.list
        };
        let part = dissolved(frame(1, 2, 3));
        assert_eq!(part.len(), 33);
        assert_eq!(part[2].frames[0], frame(0, 16, 17));
        let whole = dissolved(frame(1, 1, 7));
        assert_eq!(whole.len(), 1);
        assert_eq!(whole[0].frames[0], frame(0, 1, COUNT_MAX));
    }
}
