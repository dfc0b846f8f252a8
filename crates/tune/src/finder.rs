//! In which context is a node? What can be counted tells it, or the pattern of its period.
//!
//! *Workloads.* What is in force changes what a period touches: an arm that serves ten times as much leaves longer runs, and
//! that is another pattern. By itself it would be a situation in which no other arm was ever tried. So patterns belong to
//! workloads, and a context is a workload. Two patterns are of one if a node went from the one to the other when its arm
//! changed, and back when the arm was what it had been before, a few periods later at most. A workload that changes by itself does
//! not come back with the arm.
//!
//! A pattern that was never seen says nothing about arms. What can be counted of the same period does: so that is learned about too
//! ([`Found::like`]), and a new pattern begins with it.

use crate::arm::Arm;
use crate::context::{Context, Magnitude};
use crate::network::Detector;
use crate::tuner::Tuner;
use crate::watch::{Nonsense, Observation};
use presagio_core::Op;
use presagio_pattern::{KnowledgeBase, Merged, Pattern, PatternId};
use std::collections::BTreeMap;

/// See the module's header.
#[derive(Clone, Debug)]
pub(crate) struct Finder {
    detector: Detector,
    pub known: Option<KnowledgeBase>,
}

/// Whose period it is.
#[derive(Default)]
pub(crate) struct Feed<'a> {
    /// What it did before; none where that does not matter.
    pub past: Option<&'a mut Past>,
    /// What was in force in all of the period.
    pub arm: Option<Arm>,
    /// Whether a pattern that is not known is not to become one.
    pub adds_nothing: bool,
}

/// What was found.
#[derive(Default)]
pub(crate) struct Found {
    pub context: Option<Context>,
    /// What can be counted of the period, where that is not the context itself.
    pub like: Option<Context>,
    /// The greatest distance to known patterns of this operation, if that is more than was known.
    pub distance: Option<(Op, u64)>,
    /// A context that will not come again.
    pub gone: Option<Context>,
    /// A context that turned out to be another one.
    pub joined: Option<Joined>,
}

/// Two contexts that are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Joined {
    pub gone: Context,
    pub into: Context,
}

/// Periods with one arm in force after which nothing is said any more about what was before it; and those that may lie
/// between in which arms changed.
const RUN_MAX: u32 = 3;

/// What a node did last: the last periods of its last two arms, the newer one first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Past {
    pub pattern: Option<PatternId>,
    periods: [Option<Period>; 2],
    /// For how many periods the newer arm was in force, and how many came after it that were no arm's.
    run: u32,
    between: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Period {
    pattern: PatternId,
    arm: Arm,
    op: Op,
    size: Magnitude,
}

impl Past {
    fn add(&mut self, pattern: PatternId, period: Option<Period>) {
        self.pattern = Some(pattern);
        let Some(period) = period else {
            self.between = self.between.saturating_add(1);
            return;
        };
        let [newer, older] = self.periods;
        let is_same = newer.is_some_and(|newer| newer.arm == period.arm);
        let is_long = self.run >= RUN_MAX || self.between >= RUN_MAX;
        self.periods = match is_same {
            true => [Some(period), older.filter(|_| !is_long)],
            false => [Some(period), newer.filter(|_| self.between < RUN_MAX)],
        };
        self.run = if is_same {
            self.run.saturating_add(1)
        } else {
            1
        };
        self.between = 0;
    }

    /// A period that was no arm's.
    fn pass(&mut self, pattern: Option<PatternId>) {
        self.pattern = pattern.or(self.pattern);
        self.between = self.between.saturating_add(1);
    }

    /// A pattern turned out to be another one.
    pub fn rename(&mut self, merged: Merged) {
        let periods = self.periods.iter_mut().flatten();
        let patterns = periods.map(|period| &mut period.pattern);
        for pattern in patterns.chain(&mut self.pattern) {
            if *pattern == merged.id {
                *pattern = merged.into;
            }
        }
    }

    /// The pattern that this one is another face of: the arm is what it was before the last, and so is the pattern.
    fn there_and_back(&self, now: Period) -> Option<PatternId> {
        let [there, before] = [self.periods[0]?, self.periods[1]?];
        if self.between >= RUN_MAX {
            return None;
        }
        let is_alike = |it: Period| (it.op, it.size) == (now.op, now.size);
        let is_back = (before.pattern, before.arm) == (now.pattern, now.arm);
        let was_away = there.pattern != now.pattern && there.arm != now.arm;
        (is_back && was_away && is_alike(there) && is_alike(before)).then_some(there.pattern)
    }
}

impl Finder {
    pub fn new(detector: Detector) -> Finder {
        Finder {
            detector,
            known: None,
        }
    }

    /// Whether a pattern can be one.
    pub fn check(&self, pattern: Option<&Pattern>) -> Result<(), Nonsense> {
        match (&self.known, pattern) {
            (Some(known), Some(pattern)) if !known.settings().can_be(pattern) => Err(Nonsense {
                what: "the pattern",
                value: format!("{} points", pattern.points().len()),
            }),
            _ => Ok(()),
        }
    }

    /// The context of a period, through so many I/O nodes. What turns out to be one is one for the tuner, too.
    pub fn find(
        &mut self,
        (seen, pattern): (&Observation, Option<Pattern>),
        ionodes: u32,
        feed: Feed<'_>,
        tuner: &mut Tuner,
    ) -> Found {
        if self.known.is_none() {
            return Found {
                context: seen.context(&self.detector, ionodes),
                ..Found::default()
            };
        }
        // What tells nothing about who asks is no pattern either.
        let Some((pattern, arrived)) = pattern.zip(seen.arrived) else {
            return Found::default();
        };
        let size = Magnitude::of(arrived.features.size_mean as u64);
        Found {
            like: seen.context(&self.detector, ionodes),
            ..self.recognise(pattern, (arrived.op, size), feed, tuner)
        }
    }

    fn recognise(
        &mut self,
        pattern: Pattern,
        (op, size): (Op, Magnitude),
        feed: Feed<'_>,
        tuner: &mut Tuner,
    ) -> Found {
        let Some(known) = &mut self.known else {
            return Found::default();
        };
        if feed.adds_nothing {
            let id = known.recognise(&pattern);
            if let Some(past) = feed.past {
                past.pass(id);
            }
            return Found {
                context: id.map(|id| context(known, id)),
                ..Found::default()
            };
        }
        let majority = pattern.majority();
        let before = feed.past.as_ref().and_then(|past| past.pattern);
        let (decision, distance) = known.decide_after(pattern, before);
        let gone = decision.evicted.map(|it| it.workload);
        let gone = gone.filter(|workload| !known.has_workload(*workload));
        let mut found = Found {
            distance: (distance > known.distance_max(majority)).then_some((majority, distance)),
            gone: gone.map(|workload| Context::Pattern(workload.0)),
            ..Found::default()
        };
        if let Some(gone) = &found.gone {
            tuner.forget(gone);
        }
        let period = feed.arm.map(|arm| Period {
            pattern: decision.id,
            arm,
            op,
            size,
        });
        if let Some(past) = feed.past {
            let other = period.and_then(|now| past.there_and_back(now));
            past.add(decision.id, period);
            found.joined = other.and_then(|other| join(known, decision.id, other, tuner));
        }
        found.context = Some(context(known, decision.id));
        found
    }

    /// Compares some known patterns with each other, if that is due: which are one, and which contexts therefore.
    pub fn recompare(&mut self, most: usize, tuner: &mut Tuner) -> Vec<(Merged, Option<Joined>)> {
        let Some(known) = self.known.as_mut().filter(|known| known.may_recompare()) else {
            return Vec::new();
        };
        let workload = |id| Some((id, known.workload(id)?));
        let workloads: BTreeMap<PatternId, PatternId> = known.ids().filter_map(workload).collect();
        let merged = known.recompare(most).into_iter();
        let joined = |merged: Merged| {
            let into = known.workload(merged.into);
            let both = workloads.get(&merged.id).copied().zip(into);
            let joined = both.and_then(|(gone, into)| join_workloads(known, gone, into, tuner));
            (merged, joined)
        };
        merged.map(joined).collect()
    }
}

fn context(known: &KnowledgeBase, id: PatternId) -> Context {
    Context::Pattern(known.workload(id).unwrap_or(id).0)
}

/// Two patterns are of one workload: if that is new, which one is gone.
fn join(
    known: &mut KnowledgeBase,
    one: PatternId,
    other: PatternId,
    tuner: &mut Tuner,
) -> Option<Joined> {
    let (one, other) = (known.workload(one)?, known.workload(other)?);
    join_workloads(known, one, other, tuner)
}

/// What less is known of becomes the other.
fn join_workloads(
    known: &mut KnowledgeBase,
    one: PatternId,
    other: PatternId,
    tuner: &mut Tuner,
) -> Option<Joined> {
    if one == other {
        return None;
    }
    let steps = |id: PatternId| {
        let bandit = tuner.bandit(&Context::Pattern(id.0));
        bandit.map_or(0, |bandit| bandit.steps())
    };
    let (gone, into) = match steps(one).cmp(&steps(other)).then(other.cmp(&one)) {
        std::cmp::Ordering::Less => (one, other),
        _ => (other, one),
    };
    known.join_workloads(gone, into);
    let joined = Joined {
        gone: Context::Pattern(gone.0),
        into: Context::Pattern(into.0),
    };
    tuner.join(&joined.gone, &joined.into);
    Some(joined)
}
