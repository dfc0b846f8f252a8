//! Folding a grammar that was exact: when that is worth it, and how.
//!
//! What a grammar that folds knows of trip counts it has learned from their order. So the input is learned anew, but
//! not symbol by symbol: a repeated symbol is one step however often it is there, and of a repeated rule a few
//! repetitions are learned and the rest is counted. Of a very long input that leaves the beginning, which a second run
//! needs, and what came last, with a gap between them.

use crate::grammar::{GAP, Grammar, Mode};
use crate::store::{START, Store, is_rule, rule_of_value};
use smallvec::SmallVec;

/// So many different trip counts of one loop are more than a program's structure explains.
const VARIANTS: usize = 6;

/// So many symbols of the start rule tell what it grows by.
const NEWEST: usize = 128;

/// A grammar that may not have more symbols than this, as that of a series, is never folded.
const SMALL: usize = 1 << 10;

/// A grammar smaller than this is left as it is.
pub(crate) const TRIAL_MIN: usize = 32;

/// How many steps are learned of the beginning of an input, and how many of its end.
const STEPS_MAX: usize = 1 << 16;

/// So many repetitions of a symbol are followed, one after the other.
const FOLLOWED_MAX: u32 = 8;

/// So many repetitions of a rule are learned; then it is known what grows with each.
const LEARNED_MAX: u32 = 4;

/// Before so many last steps nothing is followed: it is what came last that says where we are.
const LAST_STEPS: usize = 64;

/// So many symbols at the end of the start rule may be what grows.
const END: usize = 4;

/// Part of an input.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    /// A symbol, so often.
    Symbol(u32, u32),
    /// The last repetition that is learned of a rule begins.
    Mark,
    /// That was it, but so many more follow.
    Rest(u32),
}

impl Grammar {
    /// The same input in a grammar that folds; of a very long one its beginning and its end.
    pub fn fold(&self) -> Grammar {
        if self.mode == Mode::Folding {
            return self.clone();
        }
        let mut exact = self.clone();
        exact.land();
        let mut folded = Grammar::with_limits(Mode::Folding, self.limits);
        // What is counted rather than learned would count twice what has been passed of a repetition.
        folded.set_gliding(false);
        let beginning = steps(&exact.store, 2 * STEPS_MAX, false);
        if beginning.len() < 2 * STEPS_MAX {
            folded.learn(&beginning);
        } else {
            folded.learn(&beginning[..STEPS_MAX]);
            folded.lose_track();
            let mut end = steps(&exact.store, STEPS_MAX, true);
            end.reverse();
            folded.learn(&end);
        }
        folded.set_gliding(true);
        folded.find_lost();
        folded
    }

    fn learn(&mut self, steps: &[Step]) {
        let mut marks = Vec::new();
        let unfollowed = steps.len().saturating_sub(LAST_STEPS);
        self.followers.follow(match unfollowed {
            0 => self.limits.followers,
            _ => 0,
        });
        for (at, step) in steps.iter().enumerate() {
            if at > 0 && at == unfollowed {
                self.followers.follow(self.limits.followers);
            }
            match *step {
                Step::Symbol(GAP, _) => self.lose_track(),
                Step::Symbol(symbol, count) => self.append_times(symbol, count),
                Step::Mark => marks.push(self.end()),
                // Of the end of an input the beginning may be missing.
                Step::Rest(more) => {
                    if let Some(before) = marks.pop() {
                        self.count_rest(&before, more);
                    }
                }
            }
        }
    }

    fn append_times(&mut self, symbol: u32, count: u32) {
        let followed = count.min(FOLLOWED_MAX);
        (0..followed).for_each(|_| self.append(symbol));
        if count > followed {
            self.repeat_last(symbol, count - followed);
        }
    }

    /// What the input ends with: the last symbols of the start rule, what these end with, and so on, with the number
    /// of repetitions of each.
    fn end(&self) -> End {
        let mut end = End::new();
        let mut at = self.store.rule(START).last;
        for _ in 0..END {
            if Store::is_end(at) {
                break;
            }
            end.push((at, self.store.current(at)));
            self.ends_of(at, |node| end.push((node, self.store.current(node))));
            at = self.store.node(at).prev;
        }
        end
    }

    /// If all that the last repetition did was to make one count greater, so do those that follow.
    fn count_rest(&mut self, before: &End, more: u32) {
        let after = self.end();
        let same =
            before.len() == after.len() && before.iter().zip(&after).all(|(b, a)| b.0 == a.0);
        let mut grown = after.iter().zip(before).filter(|(a, b)| a.1 != b.1);
        if let (true, Some((after, before)), None) = (same, grown.next(), grown.next())
            && after.1 == before.1 + 1
        {
            self.store.prolong(after.0, more);
        }
    }

    /// Notes whether a repetition that has just ended suggests that trip counts make the grammar large. What is costly
    /// to ask is asked last.
    pub(crate) fn look_for_variation(&mut self, ended: u32) {
        let len = self.store.len();
        if len < self.trial_at || self.mode != Mode::Exact || self.varies || Store::is_end(ended) {
            return;
        }
        let may_get_large = self.limits.symbols > SMALL;
        if !may_get_large || !self.came_with_many_counts(ended) {
            return;
        }
        self.trial_is_due = self.grows_by_repetitions();
        // A trial is costly: not again before the grammar has grown by half.
        self.trial_at = len
            + if self.trial_is_due {
                len / 2
            } else {
                len / 16 + 1
            };
    }

    /// Sees whether the grammar is smaller by a quarter if it is folded.
    pub(crate) fn try_folding(&mut self) {
        self.trial_is_due = false;
        let folded = self.fold();
        self.varies = folded.len() * 4 <= self.store.len() * 3;
        self.folded = self.varies.then(|| Box::new(folded));
    }

    /// The same input in a grammar that folds, if [trip counts vary](Grammar::trip_counts_vary).
    #[inline]
    pub fn take_folded(&mut self) -> Option<Box<Grammar>> {
        self.varies.then(|| self.trial_or_fold())
    }

    /// Right after the trial it is at hand.
    fn trial_or_fold(&mut self) -> Box<Grammar> {
        let trial = self.folded.take();
        trial.unwrap_or_else(|| Box::new(self.fold()))
    }

    fn came_with_many_counts(&self, ended: u32) -> bool {
        if self.store.node(ended).count() == 1 {
            return false;
        }
        let mut counts: SmallVec<[u32; 8]> = SmallVec::new();
        for node in self.store.all_of(self.store.value(ended)).take(32) {
            let count = self.store.node(node).count();
            if count > 1 && !counts.contains(&count) {
                counts.push(count);
            }
        }
        counts.len() >= VARIANTS
    }

    /// Whether two fifths of the newest symbols of the start rule are repeated. Around a loop whose trip count varies
    /// half of them are. Where chance makes some runs they are fewer, and to fold would lose more than it gains.
    fn grows_by_repetitions(&self) -> bool {
        let (mut seen, mut repeated) = (0, 0);
        let mut at = self.store.rule(START).last;
        while seen < NEWEST && !Store::is_end(at) {
            let node = self.store.node(at);
            seen += 1;
            repeated += usize::from(node.count() > 1);
            at = node.prev;
        }
        repeated * 5 >= seen * 2
    }
}

type End = SmallVec<[(u32, u32); 16]>;

/// What is still to be done of an input.
#[derive(Clone, Copy)]
enum Task {
    /// The symbols of a rule from a link on.
    From(u32),
    Rule(u32),
    Step(Step),
}

/// The first steps of an input, or the last ones in reverse order; at most so many.
fn steps(store: &Store, most: usize, backwards: bool) -> Vec<Step> {
    let mut out = Vec::new();
    let mut todo = vec![Task::Rule(START)];
    while let Some(task) = todo.pop().filter(|_| out.len() < most) {
        let at = match task {
            Task::Step(step) => {
                out.push(step);
                continue;
            }
            Task::Rule(rule) if backwards => store.rule(rule).last,
            Task::Rule(rule) => store.rule(rule).first,
            Task::From(link) => link,
        };
        if Store::is_end(at) {
            continue;
        }
        let node = store.node(at);
        todo.push(Task::From(if backwards { node.prev } else { node.next }));
        match is_rule(node.value) {
            false => out.push(Step::Symbol(store.symbol(node.value), node.count())),
            true => repeat(
                &mut todo,
                rule_of_value(node.value),
                node.count(),
                backwards,
            ),
        }
    }
    out
}

/// Adds what is to be done for a repeated rule, the first of it last.
fn repeat(todo: &mut Vec<Task>, rule: u32, count: u32, backwards: bool) {
    let begin = todo.len();
    let learned = count.min(LEARNED_MAX);
    todo.extend((1..learned).map(|_| Task::Rule(rule)));
    match count - learned {
        0 => todo.push(Task::Rule(rule)),
        rest => todo.extend([
            Task::Step(Step::Mark),
            Task::Rule(rule),
            Task::Step(Step::Rest(rest)),
        ]),
    }
    if !backwards {
        todo[begin..].reverse();
    }
}
