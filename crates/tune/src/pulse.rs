//! When a scheduler that learns decides, and which periods tell what its arm is worth. An I/O node and the simulator go by it alike.
//!
//! A period, from its beginning to the next:
//!
//! 1. After a switch the old policy runs dry. That time counts for neither: what is measured begins a while later ([`SETTLES`]).
//! 2. When the period is over ([`Pulse::end`]), it is known whether it tells anything. The first period of an arm does not, unless it was
//!    a disaster: clients that wait for their answers come in step, or out of it, by what was in force before, and an arm
//!    would be judged by what the last one left behind. The arm stays then.
//! 3. Where whoever asked has stopped nothing is tried: it would be in force for what comes after the pause.
//! 4. Within a period one glances at what arrives ([`Pulse::glance`]). When that is not what it was (another operation, other sizes), the
//!    period would tell of two workloads. So another one begins at once, a short one, and what was last found best for what arrives
//!    now is brought into force again.

use crate::arm::Arm;
use crate::watch::{Glance, Look, REQUESTS_MIN};
use presagio_core::Nanos;
use std::collections::BTreeMap;

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
    /// When to glance next, what was seen when the workload was last known, and whether nothing came before the last glance.
    glances: Nanos,
    look: Option<Look>,
    is_still: bool,
    /// Requests since this period began, as far as glances have told.
    came: u64,
    /// Whether this period was begun because the workload changed.
    is_short: bool,
    /// Whether the next change begins one: a whole period is due between two, or what always changes would never be judged.
    may_cut: bool,
    /// What was last found best, by what arrived.
    best: BTreeMap<Look, Arm>,
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
            look: None,
            is_still: true,
            came: 0,
            is_short: false,
            may_cut: true,
            best: BTreeMap::new(),
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

    /// Whether to glance at what arrives.
    pub fn glances(&self, now: Nanos) -> bool {
        now >= self.glances
    }

    /// For how long this period was measured.
    pub fn measured(&self, now: Nanos) -> Nanos {
        now.since(self.begun)
    }

    /// From now on it is measured.
    pub fn begin(&mut self, now: Nanos) {
        self.settles = None;
        self.begun = now;
        self.came = 0;
    }

    /// Is this still the same workload? If not, a period begins now. What was best when such came before should be in force in it.
    pub fn glance(&mut self, glance: Glance, now: Nanos) -> Option<Cut> {
        self.glances = now + share(self.period, GLANCES);
        self.is_still = glance.is_empty();
        self.came += glance.requests();
        let look = glance.look()?;
        let before = self.look.replace(look);
        if before.is_none_or(|before| before == look) || !self.may_cut {
            return None;
        }
        self.begin(now);
        // What came of another workload says nothing about this one.
        (self.is_first, self.reward) = (false, None);
        self.until = now + share(self.period, SHORT);
        (self.is_short, self.may_cut) = (true, false);
        Some(Cut {
            best: self.best.get(&look).copied(),
        })
    }

    /// Whether a short period has seen too little to be over.
    fn goes_on(&mut self, came: u64, now: Nanos) -> bool {
        let goes_on = self.is_short
            && came < REQUESTS_MIN
            && self.measured(now) + share(self.period, SHORT) <= self.period;
        if goes_on {
            self.until = now + share(self.period, SHORT);
        }
        goes_on
    }

    /// The period is over, unless it is a short one in which too little came: what it is good for, by what was served by busy second, what came since the last
    /// glance, whether something is still to be served, and whether the settings are what they were when it was first measured. The
    /// next one begins.
    pub fn end(&mut self, seen: Ended, now: Nanos) -> Option<Worth> {
        if self.goes_on(self.came + seen.glance.requests(), now) {
            return None;
        }
        let is_whole = self.settles.is_none()
            && seen.is_unchanged
            && self.measured(now) >= share(self.period, COUNTS);
        let is_first = std::mem::take(&mut self.is_first);
        let before = std::mem::replace(&mut self.reward, seen.reward);
        let both = before.zip(seen.reward);
        let is_telling = !is_first || both.is_some_and(|(before, now)| now < DISASTER * before);
        let is_quiet = self.is_still && seen.glance.is_empty() && !seen.is_waiting;
        self.until += self.period;
        self.may_cut |= !std::mem::take(&mut self.is_short);
        if self.until <= now {
            // The machine was asleep, or far too busy.
            self.until = now + self.period;
        }
        self.begin(now);
        Some(Worth {
            is_whole,
            is_telling,
            may_choose: is_telling && !is_quiet,
        })
    }

    /// An arm was found to be the best for what arrives.
    pub fn found_best(&mut self, arm: Arm) {
        if let Some(look) = self.look {
            self.best.insert(look, arm);
        }
    }

    /// Another arm is in force from now on, because that was decided.
    pub fn switched(&mut self, now: Nanos) {
        self.resumed(now);
        self.is_first = true;
    }

    /// The same, because of a [`Cut`]: at the end of the short period something is decided all the same.
    pub fn resumed(&mut self, now: Nanos) {
        self.settles = Some(now + share(self.period, SETTLES));
    }
}

/// Another workload has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// What was last found best for one that looks like it.
    pub best: Option<Arm>,
}

/// What there is to say about a period that is over.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Bytes served by busy second.
    pub reward: Option<f64>,
    /// What came since the last glance.
    pub glance: Glance,
    /// Whether something is queued or in service.
    pub is_waiting: bool,
    /// Whether the settings are what they were when it was first measured.
    pub is_unchanged: bool,
}

fn share(period: Nanos, share: f64) -> Nanos {
    Nanos((period.0 as f64 * share) as u64)
}
