//! When a scheduler that learns decides, and which periods tell what its arm is worth. An I/O node and the simulator go by it alike.
//!
//! A period, from its beginning to the next:
//!
//! 1. After a switch the old policy runs dry. That time counts for neither: what is measured begins a while later ([`SETTLES`]).
//! 2. When the period is over ([`Pulse::end`]), it is known whether it tells anything. The first period of an arm does not, unless it was
//!    a disaster: clients that wait for their answers come in step, or out of it, by what was in force before, and an arm
//!    would be judged by what the last one left behind. The arm stays then.
//! 3. Where whoever asked has stopped nothing is tried: it would be in force for what comes after the pause.
//! 4. Within a period one glances at what arrives ([`Pulse::glance`]), now and then and as soon as that is not what it was (another operation,
//!    other sizes). Then the period would tell of two workloads. So another one begins at once, a short one. What was last found best for
//!    what arrives now should be in force in it: clients that wait for their answers can keep for long what their first requests met. Where
//!    that happens all the time it is done seldom.

use crate::watch::{Glance, Look, REQUESTS_MIN};
use presagio_core::Nanos;

/// The share of a period for which nothing is measured after a switch.
const SETTLES: f64 = 0.1;

/// The share of a period that has to be measured for it to count.
const COUNTS: f64 = 0.5;

/// The first period of an arm counts if it gave less than this share of what the period before gave: clients that are out of step for a
/// while do not explain that, and there is no need to see more.
const DISASTER: f64 = 0.25;

/// The share of a period after which what arrives is glanced at, and the length of one that begins because of that; longer, where
/// too little arrives to tell anything.
const GLANCES: f64 = 0.125;
const SHORT: f64 = 0.25;

/// Where changes keep coming sooner than that, so many periods that tell are due between two that are cut short, at most.
const DUE_MAX: u32 = 16;

/// See the module's header.
#[derive(Clone, Debug)]
pub struct Pulse {
    period: Nanos,
    /// When this period is over.
    until: Nanos,
    /// From when on it is measured, if that is still to come.
    settles: Option<Nanos>,
    /// From when on it was measured.
    begun: Nanos,
    /// Whether what is in force was not in force in the period before, and what that gave by busy second.
    is_first: bool,
    reward: Option<f64>,
    /// When to glance next at the latest, how many requests had come by the last such glance, and whether none had since the one before.
    glances: Nanos,
    came: u64,
    is_still: bool,
    /// What arrived when the workload was last known.
    look: Option<Look>,
    /// How many requests had come when this period was first measured.
    came_before: u64,
    /// Whether this period was begun because the workload changed.
    is_short: bool,
    /// Periods that told, since a change began one; how many are due before the next does, or what always changes would never be
    /// judged; and whether something changed sooner.
    told: u32,
    due: u32,
    is_early: bool,
}

/// What a moment asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing, or a glance.
    Nothing,
    /// From now on it is measured: [`Pulse::begin`].
    Settled,
    /// The period is over: [`Pulse::end`].
    Ended,
}

/// What a period is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worth {
    /// Whether one arm was in force in all of what was measured, and that was enough.
    pub is_whole: bool,
    /// Whether it tells, besides, what that arm is worth.
    pub is_telling: bool,
    /// Whether something is to be decided now.
    pub may_choose: bool,
}

impl Pulse {
    /// The first period begins now.
    pub fn new(period: Nanos, now: Nanos) -> Pulse {
        Pulse {
            period,
            until: now + period,
            settles: None,
            begun: now,
            is_first: false,
            reward: None,
            glances: now + share(period, GLANCES),
            came: 0,
            is_still: true,
            look: None,
            came_before: 0,
            is_short: false,
            told: 0,
            due: 0,
            is_early: false,
        }
    }

    /// When there is something to do.
    pub fn next(&self) -> Nanos {
        let settles = self.settles.unwrap_or(self.until);
        settles.min(self.until).min(self.glances)
    }

    /// What is due now, besides a glance.
    pub fn due(&self, now: Nanos) -> Due {
        if now >= self.until {
            Due::Ended
        } else if self.settles.is_some_and(|moment| now >= moment) {
            Due::Settled
        } else {
            Due::Nothing
        }
    }

    /// Whether a glance is welcome that shows something else than the last one.
    pub fn may_cut(&self) -> bool {
        self.told >= self.due
    }

    /// For how long this period was measured.
    pub fn measured(&self, now: Nanos) -> Nanos {
        now.since(self.begun)
    }

    /// From now on it is measured.
    pub fn begin(&mut self, glance: Glance, now: Nanos) {
        self.settles = None;
        self.begun = now;
        self.came_before = glance.requests;
    }

    /// What arrived when the workload was last known.
    pub fn look(&self) -> Option<Look> {
        self.look
    }

    /// Is this still the same workload? If not, a period begins now: what arrives in it.
    pub fn glance(&mut self, glance: Glance, now: Nanos) -> Option<Look> {
        if now >= self.glances {
            self.glances = now + share(self.period, GLANCES);
            self.is_still = glance.requests == self.came;
            self.came = glance.requests;
        }
        self.look = self.look.or(glance.look);
        if glance.look == self.look {
            return None;
        }
        if !self.may_cut() {
            self.is_early = true;
            return None;
        }
        self.look = glance.look;
        let due = match std::mem::take(&mut self.is_early) {
            true => DUE_MAX.min(2 * self.due),
            false => 1,
        };
        (self.told, self.due) = (0, due.max(1));
        // What has just been switched to has its beginning still to come.
        if self.settles.is_none() {
            self.begin(glance, now);
            self.is_first = false;
        }
        // What came of another workload says nothing about this one.
        self.reward = None;
        self.until = now + share(self.period, SHORT);
        self.is_short = true;
        self.look
    }

    /// Whether something else arrives that begins a period.
    fn is_other(&self, glance: Glance) -> bool {
        let both = self.look.zip(glance.look);
        self.may_cut() && both.is_some_and(|(known, seen)| known != seen)
    }

    /// Whether a short period has seen too little to be over.
    fn goes_on(&mut self, glance: Glance, now: Nanos) -> bool {
        let goes_on = self.is_short
            && glance.requests < self.came_before + REQUESTS_MIN
            && self.measured(now) + share(self.period, SHORT) <= self.period;
        if goes_on {
            self.until = now + share(self.period, SHORT);
        }
        goes_on
    }

    /// The period is over, unless it is a short one in which too little came: what it is good for. The next one begins.
    pub fn end(&mut self, seen: Ended, now: Nanos) -> Option<Worth> {
        if self.goes_on(seen.glance, now) {
            return None;
        }
        let is_settled = self.settles.is_none();
        let is_whole =
            is_settled && seen.is_unchanged && self.measured(now) >= share(self.period, COUNTS);
        let is_first = self.is_first;
        // What has just been switched to has its first period still to come.
        self.is_first &= !is_settled;
        let before = std::mem::replace(&mut self.reward, seen.reward);
        let both = before.zip(seen.reward);
        let is_telling = !is_first || both.is_some_and(|(before, now)| now < DISASTER * before);
        let is_quiet = self.is_still && seen.glance.requests == self.came && !seen.is_waiting;
        self.until += self.period;
        let is_short = std::mem::take(&mut self.is_short);
        self.told = self.told.saturating_add((is_telling && !is_short).into());
        if self.until <= now {
            // The machine was asleep, or far too busy.
            self.until = now + self.period;
        }
        if is_settled {
            self.begin(seen.glance, now);
        }
        Some(Worth {
            is_whole,
            is_telling,
            may_choose: is_telling && !is_quiet && !self.is_other(seen.glance),
        })
    }

    /// Another arm is in force from now on, or the same to begin another workload with.
    pub fn switched(&mut self, now: Nanos) {
        self.settles = Some(now + share(self.period, SETTLES));
        self.is_first = true;
    }
}

/// What there is to say about a period that is over.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Bytes served by busy second.
    pub reward: Option<f64>,
    /// What arrives.
    pub glance: Glance,
    /// Whether something is queued or in service.
    pub is_waiting: bool,
    /// Whether the settings are what they were when it was first measured.
    pub is_unchanged: bool,
}

fn share(period: Nanos, share: f64) -> Nanos {
    Nanos((period.0 as f64 * share) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Watch;
    use crate::watch::tests::request;
    use presagio_core::Op;

    const PERIOD: Nanos = Nanos(1_000);

    fn at(now: u64) -> Nanos {
        Nanos(now)
    }

    /// So many requests have come, the last ones of an operation.
    fn came(requests: u64, op: Op) -> Glance {
        let mut watch = Watch::new();
        (0..REQUESTS_MIN).for_each(|at| _ = watch.arrived(&request(1, op, at * 4096, 4096)));
        let look = watch.glance().look;
        Glance { requests, look }
    }

    fn reads(requests: u64) -> Glance {
        came(requests, Op::Read)
    }

    fn writes(requests: u64) -> Glance {
        came(requests, Op::Write)
    }

    fn ended(reward: f64, glance: Glance) -> Ended {
        Ended {
            reward: Some(reward),
            glance,
            is_waiting: true,
            is_unchanged: true,
        }
    }

    const TELLS: Option<Worth> = Some(Worth {
        is_whole: true,
        is_telling: true,
        may_choose: true,
    });

    #[test]
    fn a_period_tells_of_its_arm_and_the_first_of_an_arm_does_not() {
        let mut pulse = Pulse::new(PERIOD, at(0));
        assert_eq!(pulse.due(at(999)), Due::Nothing);
        assert_eq!(pulse.due(at(1_000)), Due::Ended);
        assert_eq!(pulse.end(ended(10.0, reads(100)), at(1_000)), TELLS);
        pulse.switched(at(1_000));
        assert_eq!(pulse.due(at(1_099)), Due::Nothing);
        assert_eq!(pulse.due(at(1_100)), Due::Settled);
        pulse.begin(reads(100), at(1_100));
        assert_eq!(pulse.measured(at(2_000)), at(900));
        let first = pulse.end(ended(9.0, reads(100)), at(2_000)).expect("over");
        assert!(first.is_whole && !first.is_telling && !first.may_choose);
        assert_eq!(pulse.end(ended(9.0, reads(100)), at(3_000)), TELLS);
    }

    #[test]
    fn a_disaster_is_told_at_once() {
        let mut pulse = Pulse::new(PERIOD, at(0));
        pulse.end(ended(10.0, reads(100)), at(1_000));
        pulse.switched(at(1_000));
        pulse.begin(reads(100), at(1_100));
        assert_eq!(pulse.end(ended(2.4, reads(100)), at(2_000)), TELLS);
    }

    #[test]
    fn what_was_changed_or_hardly_measured_is_not_whole() {
        let mut pulse = Pulse::new(PERIOD, at(0));
        let changed = Ended {
            is_unchanged: false,
            ..ended(10.0, reads(100))
        };
        assert!(!pulse.end(changed, at(1_000)).expect("over").is_whole);
        // It settled late in the period, or not at all.
        pulse.begin(reads(100), at(1_600));
        assert!(
            !pulse
                .end(ended(10.0, reads(100)), at(2_000))
                .expect("over")
                .is_whole
        );
        pulse.switched(at(2_950));
        let worth = pulse.end(ended(10.0, reads(100)), at(3_000)).expect("over");
        assert!(!worth.is_whole && !worth.may_choose);
        assert_eq!(pulse.due(at(3_050)), Due::Settled);
        pulse.begin(reads(100), at(3_050));
        let first = pulse.end(ended(10.0, reads(100)), at(4_000)).expect("over");
        assert!(first.is_whole && !first.is_telling);
    }

    #[test]
    fn nothing_is_tried_where_nobody_asks_any_more() {
        let mut pulse = Pulse::new(PERIOD, at(0));
        pulse.glance(reads(100), at(750));
        pulse.glance(reads(100), at(875));
        let quiet = |requests: u64| Ended {
            is_waiting: false,
            ..ended(10.0, reads(requests))
        };
        let worth = pulse.end(quiet(100), at(1_000)).expect("over");
        assert!(worth.is_whole && worth.is_telling && !worth.may_choose);
        // Something waits, or has just come: it goes on.
        let waits = ended(10.0, reads(100));
        assert!(pulse.end(waits, at(2_000)).expect("over").may_choose);
        assert!(pulse.end(quiet(101), at(3_000)).expect("over").may_choose);
    }

    #[test]
    fn another_workload_begins_a_short_period() {
        let mut pulse = Pulse::new(PERIOD, at(0));
        let first = pulse.glance(reads(100), at(125));
        assert_eq!(first, None, "the first is no change");
        // A glance between the regular ones will do.
        assert_eq!(pulse.glance(writes(100), at(200)), writes(0).look);
        assert_eq!(pulse.next(), at(250));
        assert_eq!(pulse.due(at(450)), Due::Ended);
        let short = pulse.end(ended(5.0, writes(200)), at(450));
        let short = short.expect("enough came");
        assert!(!short.is_whole && short.may_choose);
        // One that is not cut ends a period after the short one.
        assert_eq!(pulse.due(at(1_449)), Due::Nothing);
        assert_eq!(pulse.end(ended(5.0, writes(300)), at(1_450)), TELLS);
        assert!(pulse.may_cut());
        assert!(pulse.glance(reads(400), at(1_625)).is_some());
        // What such begins with is not judged by a short period.
        pulse.switched(at(1_625));
        assert_eq!(pulse.due(at(1_725)), Due::Settled);
        pulse.begin(reads(400), at(1_725));
        let short = pulse.end(ended(5.0, reads(500)), at(1_875));
        assert!(!short.expect("over").may_choose);
        assert_eq!(pulse.end(ended(5.0, reads(600)), at(2_875)), TELLS);
    }

    #[test]
    fn a_change_waits_for_a_whole_period_that_tells() {
        let mut pulse = Pulse::new(PERIOD, at(0));
        pulse.glance(reads(100), at(125));
        assert!(pulse.glance(writes(100), at(200)).is_some());
        pulse.end(ended(5.0, writes(200)), at(450));
        pulse.switched(at(450));
        pulse.begin(writes(200), at(550));
        // The first period of an arm does not tell: it is not cut short, nor is the one that tells of it.
        assert_eq!(pulse.glance(reads(300), at(700)), None);
        let first = pulse.end(ended(5.0, reads(300)), at(1_450)).expect("over");
        assert!(!first.is_telling && !pulse.may_cut());
        assert_eq!(pulse.glance(reads(400), at(1_500)), None);
        assert_eq!(pulse.look(), writes(0).look, "that is what was decided for");
        // Nothing is decided for what is over.
        let second = pulse.end(ended(5.0, reads(500)), at(2_450)).expect("over");
        assert!(second.is_whole && second.is_telling && !second.may_choose);
        assert_eq!(pulse.glance(reads(500), at(2_450)), reads(0).look);
    }

    #[test]
    fn what_has_just_been_switched_to_settles_in_a_period_that_is_cut_short_too() {
        let mut pulse = Pulse::new(PERIOD, at(0));
        pulse.glance(reads(100), at(125));
        assert_eq!(pulse.end(ended(5.0, reads(200)), at(1_000)), TELLS);
        pulse.switched(at(1_000));
        assert!(pulse.glance(writes(300), at(1_050)).is_some());
        assert_eq!(pulse.due(at(1_100)), Due::Settled);
        pulse.begin(writes(300), at(1_100));
        let short = pulse.end(ended(5.0, writes(400)), at(1_300)).expect("over");
        assert!(!short.is_whole && !short.is_telling);
    }

    #[test]
    fn a_short_period_goes_on_until_enough_came() {
        let mut pulse = Pulse::new(PERIOD, at(0));
        pulse.glance(reads(100), at(125));
        assert!(pulse.glance(writes(200), at(250)).is_some());
        let little = || ended(5.0, writes(201));
        assert_eq!(pulse.end(little(), at(500)), None);
        assert_eq!(pulse.due(at(749)), Due::Nothing);
        assert_eq!(pulse.end(little(), at(750)), None);
        assert_eq!(pulse.end(little(), at(1_000)), None);
        // As long as a period it is one, whatever came.
        let whole = pulse.end(little(), at(1_250)).expect("over");
        assert!(whole.is_whole);
    }

    #[test]
    fn a_machine_that_slept_begins_anew() {
        let mut pulse = Pulse::new(PERIOD, at(0));
        pulse.end(ended(10.0, reads(100)), at(9_500));
        assert_eq!(pulse.due(at(10_499)), Due::Nothing);
        assert_eq!(pulse.due(at(10_500)), Due::Ended);
    }
}
