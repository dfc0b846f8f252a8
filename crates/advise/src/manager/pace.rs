//! How long the manager rests between two looks at the arena, and how much it may think about what it finds.
//!
//! While programs are active it looks every 0.2 to 1 ms, more often the more it finds; less often where all that it finds is
//! of strangers, who may be gone before they can be helped, or where it finds nothing: each look takes the core away from somebody.
//! After a second of silence it sleeps until a program wakes it. When looking and thinking take most of its time, it lets models see a share of the
//! operations only, less and less until it keeps up. Where a complete trace is wanted programs wait for it, and it thinks about all that
//! they do, however long others keep it from the core.

use std::time::{Duration, Instant};

const REST_MIN: Duration = Duration::from_micros(200);
const REST_MAX: Duration = Duration::from_millis(1);
/// The same where there is nobody to be helped: half of what a ring holds of a hot loop.
const REST_IDLE: Duration = Duration::from_millis(4);
/// Silence that is long enough to fall asleep.
const SILENCE: Duration = Duration::from_secs(1);
/// Records of one look that call for an earlier next one; fewer than the other call for a later one.
const MANY: usize = 512;
const FEW: usize = 64;
/// More records than these are a crowd.
const CROWD: usize = 1024;
/// Work is measured over so long.
const SPAN: Duration = Duration::from_millis(50);
/// Of the time, in per cent: above this models see less, below that more.
const BUSY: u128 = 70;
const EASY: u128 = 40;
/// Operations of one process and look that models always see; where they may see this many, they may see all.
const ALLOWANCE_MIN: u32 = 16;
const ALLOWANCE_MAX: u32 = 4096;

/// What to do until the next look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// Look again after this time.
    For(Duration),
    /// Sleep until a program wakes us.
    Asleep,
}

/// See the module's header.
#[derive(Debug)]
pub(super) struct Pace {
    rest: Duration,
    last_heard: Instant,
    span_began: Instant,
    worked: Duration,
    allowance: u32,
    /// Whether programs wait for us.
    is_waited_for: bool,
}

impl Pace {
    pub fn new(now: Instant, is_waited_for: bool) -> Pace {
        Pace {
            is_waited_for,
            rest: REST_MAX,
            last_heard: now,
            span_began: now,
            worked: Duration::ZERO,
            allowance: u32::MAX,
        }
    }

    /// How many operations of each process the models may see of what was found; all, if that is the greatest number.
    /// A crowd must be through before the rings are full again.
    pub fn allowance(&self, found: usize, processes: usize) -> u32 {
        if self.is_waited_for {
            return u32::MAX;
        }
        if found <= CROWD {
            return self.allowance;
        }
        let each = (CROWD / 2 / processes.max(1)) as u32;
        self.allowance.min(each.max(ALLOWANCE_MIN))
    }

    /// A look from `began` to `now` found so many records, of somebody who can be helped or only of others; what to do next.
    pub fn next(&mut self, began: Instant, now: Instant, found: usize, helps: bool) -> Rest {
        self.weigh(now - began, now);
        if found > 0 {
            self.last_heard = now;
        } else if now - self.last_heard > SILENCE {
            self.rest = REST_MIN;
            return Rest::Asleep;
        }
        let wanted = match found {
            0..FEW => self.rest * 5 / 4,
            FEW..MANY => self.rest,
            _ => self.rest / 2,
        };
        let most = if helps { REST_MAX } else { REST_IDLE };
        self.rest = wanted.clamp(REST_MIN, most);
        Rest::For(self.rest)
    }

    /// Gives models less when work takes most of the time, and more when it does not.
    fn weigh(&mut self, worked: Duration, now: Instant) {
        self.worked += worked;
        let span = now - self.span_began;
        if span < SPAN {
            return;
        }
        let busy = self.worked.as_nanos() * 100 / span.as_nanos().max(1);
        if busy > BUSY {
            self.allowance = (self.allowance.min(ALLOWANCE_MAX) / 2).max(ALLOWANCE_MIN);
        } else if busy < EASY {
            let more = self.allowance.saturating_mul(2);
            self.allowance = if more < ALLOWANCE_MAX { more } else { u32::MAX };
        }
        self.span_began = now;
        self.worked = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn it_looks_more_often_the_more_it_finds_and_sleeps_after_a_second_of_silence() {
        let start = Instant::now();
        let mut pace = Pace::new(start, false);
        let mut now = start;
        for _ in 0..10 {
            now += MS;
            pace.next(now, now, 10_000, true);
        }
        assert_eq!(pace.next(now, now, 10_000, true), Rest::For(REST_MIN));
        for _ in 0..20 {
            now += MS;
            pace.next(now, now, 1, true);
        }
        assert_eq!(pace.next(now, now, 1, true), Rest::For(REST_MAX));
        now += Duration::from_millis(999);
        assert!(matches!(pace.next(now, now, 0, false), Rest::For(_)));
        now += Duration::from_millis(2);
        assert_eq!(pace.next(now, now, 0, false), Rest::Asleep);
        assert!(matches!(pace.next(now, now, 1, true), Rest::For(_)));
    }

    #[test]
    fn it_looks_less_often_while_nobody_can_be_helped() {
        let now = Instant::now();
        let mut pace = Pace::new(now, false);
        for _ in 0..20 {
            pace.next(now, now, 1, false);
        }
        assert_eq!(pace.next(now, now, 0, false), Rest::For(REST_IDLE));
        assert_eq!(pace.next(now, now, 1, true), Rest::For(REST_MAX));
    }

    /// The pace after two seconds of nothing but work, and the time.
    fn busy(is_waited_for: bool) -> (Pace, Instant) {
        let mut now = Instant::now();
        let mut pace = Pace::new(now, is_waited_for);
        for _ in 0..2000 {
            let began = now;
            now += MS;
            pace.next(began, now, 1000, true);
        }
        (pace, now)
    }

    #[test]
    fn models_see_less_while_work_takes_all_the_time_and_all_again_afterwards() {
        let (mut pace, mut now) = busy(false);
        assert_eq!(pace.allowance(1, 1), ALLOWANCE_MIN);
        for _ in 0..4000 {
            now += MS;
            pace.next(now, now, 1, true);
        }
        assert_eq!(pace.allowance(1, 1), u32::MAX);
        assert_eq!(pace.allowance(2 * CROWD, 4), CROWD as u32 / 8, "a crowd");
    }

    #[test]
    fn one_busy_moment_is_over_after_an_easy_one() {
        let start = Instant::now();
        let mut pace = Pace::new(start, false);
        let busy = start + SPAN;
        pace.next(start, busy, 1, true);
        assert_eq!(pace.allowance(1, 1), ALLOWANCE_MAX / 2);
        let easy = busy + SPAN;
        pace.next(easy, easy, 1, true);
        assert_eq!(pace.allowance(1, 1), u32::MAX);
    }

    #[test]
    fn where_programs_wait_models_see_all() {
        let (pace, _) = busy(true);
        assert_eq!(pace.allowance(10 * CROWD, 4), u32::MAX);
    }
}
