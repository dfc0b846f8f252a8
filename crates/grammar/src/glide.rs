//! Gliding: a loop that repeats once more changes nothing.
//!
//! When the start rule ends with a repeated rule and what comes is that rule again, symbol by symbol, there is
//! nothing to learn but the counts. Building it up from its symbols, only to find at its end that it is one more
//! repetition, would be most of the cost of a periodic stream. So the grammar is left alone as long as the one
//! follower that is left is right; a whole repetition is one count more. At the first surprise, what has been
//! passed of the repetition is appended: whole symbols of the rule, not those of the input.
//!
//! It is also better: built up anew, part of a repetition can be taken for part of something else.

use crate::followers::{Frame, Frames, begins_repetition};
use crate::store::{Store, rule_of_value};

/// A repetition in the making.
#[derive(Clone, Debug, Default)]
pub(crate) struct Glide {
    /// Where its last symbol is, from the start rule down; nothing if no repetition is in the making.
    place: Vec<Frame>,
}

impl Glide {
    pub(crate) fn at(place: Vec<Frame>) -> Glide {
        Glide { place }
    }

    pub(crate) fn memory(&self) -> usize {
        self.place.capacity() * size_of::<Frame>()
    }

    pub(crate) fn place(&self) -> &[Frame] {
        &self.place
    }

    /// Whether no repetition is in the making.
    pub(crate) fn is_over(&self) -> bool {
        self.place.is_empty()
    }

    /// Whether a terminal at `place` can be passed: it must begin a repetition, or go on with one.
    pub(crate) fn takes(&self, store: &Store, place: &Frames) -> bool {
        !self.is_over() || begins_repetition(store, place)
    }

    /// Passes the terminal at `place`. Counts the runs that ended before it, and the repetition itself if that is
    /// over.
    pub(crate) fn take(&mut self, store: &mut Store, place: &Frames) {
        if !self.is_over() {
            self.count_ended(store, place);
            if !self.place[0].is_same(&place[0]) {
                store.prolong(place[0].node, 1);
            }
        }
        self.place.clear();
        self.place.extend_from_slice(place);
    }

    /// Ends the glide: gives the values and counts of what was passed, after having counted the runs that have
    /// not ended.
    pub(crate) fn end(&mut self, store: &mut Store) -> Vec<(u32, u32)> {
        let place = std::mem::take(&mut self.place);
        let levels = levels(store, &place);
        let passed = passed(store, &levels);
        for level in levels {
            // The first of its rule stands alone for now. It is counted when it becomes part of that.
            if level.over > 0 && store.rule(level.rule).first != level.node {
                store.begin_run(level.node, level.over);
            }
        }
        passed
    }

    /// Ends the glide of an exact grammar: gives the values and counts of what was passed.
    pub(crate) fn end_exact(&mut self, store: &Store) -> Vec<(u32, u32)> {
        let place = std::mem::take(&mut self.place);
        let mut out = Vec::new();
        for (depth, frame) in place.iter().enumerate().skip(1) {
            let outer = &place[depth - 1];
            let body = store.body(rule_of_value(store.value(outer.node)));
            let before = body.take_while(|n| *n != frame.node);
            out.extend(before.map(|n| (store.value(n), store.node(n).count())));
            // Of the innermost its own repetition has been passed too.
            let over = frame.lo - u32::from(depth + 1 < place.len());
            if over > 0 {
                out.push((store.value(frame.node), over));
            }
        }
        out
    }

    /// Counts the runs that were not over at the last place and are at this one.
    fn count_ended(&self, store: &mut Store, place: &Frames) {
        let pairs = self.place.iter().zip(place);
        let same = pairs.take_while(|(was, is)| was.is_same(is)).count();
        // A node that is repeated once more goes on; what is within it begins again.
        let goes_on = matches!((self.place.get(same), place.get(same)), (Some(a), Some(b)) if a.node == b.node);
        let ended = same + usize::from(goes_on);
        count_runs(store, self.place.get(ended..).unwrap_or_default());
    }
}

fn count_runs(store: &mut Store, ended: &[Frame]) {
    for frame in ended {
        store.begin_run(frame.node, frame.lo);
    }
}

/// Part of a rule that has been passed: what is before a node, and repetitions of that.
struct Level {
    rule: u32,
    node: u32,
    over: u32,
}

/// How far each rule has been passed at a place whose terminal has been passed too.
fn levels(store: &Store, place: &[Frame]) -> Vec<Level> {
    let ends = |frame: &Frame| Store::is_end(store.node(frame.node).next);
    // What is within the first of those that only ends follow has been passed as a whole.
    let within = place.iter().rev().take_while(|f| ends(f)).count();
    let whole = (place.len() - within).saturating_sub(1).max(1);
    let level = |(at, pair): (usize, &[Frame])| Level {
        rule: rule_of_value(store.value(pair[0].node)),
        node: pair[1].node,
        over: pair[1].lo.saturating_sub(u32::from(at + 1 != whole)),
    };
    place
        .windows(2)
        .take(whole)
        .enumerate()
        .map(level)
        .collect()
}

/// The values and counts of that.
fn passed(store: &Store, levels: &[Level]) -> Vec<(u32, u32)> {
    let mut out = Vec::new();
    for level in levels {
        let before = store.body(level.rule).take_while(|n| *n != level.node);
        out.extend(before.map(|n| (store.value(n), store.current(n))));
        if level.over > 0 {
            out.push((store.value(level.node), level.over));
        }
    }
    out
}
