//! Time by the processor's counter: for a program it is a third of what the system's clock takes, and no memory that others
//! write to. The manager, which reads both, says what the counter meant.
//!
//! It is used where the kernel itself trusts it: where it is the system's clock source. It may go its own way all the same: while
//! the machine sleeps it goes on, stands still or begins anew, and a machine that moves to another host may get one of another
//! speed. So every look at both clocks is held against the one before.

use crate::record::Record;
use crate::sys;
use std::collections::VecDeque;

/// What the kernel reads the time from.
const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Whether the counter goes at one speed, on all processors alike, as the kernel has found out.
pub(crate) fn are_trusted() -> bool {
    cfg!(target_arch = "x86_64")
        && std::fs::read(SOURCE).is_ok_and(|name| name.trim_ascii() == b"tsc")
}

/// The counter now. To be asked only where it is trusted.
#[inline(always)]
pub(crate) fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads a register that every x86-64 processor has; who forbids it to a process forbids it the system's clock too.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}

/// When something began, on one clock or the other.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    at: u64,
    is_ticks: bool,
}

impl Stamp {
    /// Now: by the processor's counter, or on the system's clock.
    #[inline(always)]
    pub fn now(is_ticks: bool) -> Stamp {
        Stamp {
            at: if is_ticks { now() } else { sys::monotonic_ns() },
            is_ticks,
        }
    }

    /// How long ago that was, in the units of its clock.
    #[inline(always)]
    pub fn elapsed(self) -> u64 {
        let now = if self.is_ticks {
            now()
        } else {
            sys::monotonic_ns()
        };
        now.saturating_sub(self.at)
    }

    /// Writes the time down: it began then, and took as long as [`elapsed`](Stamp::elapsed) said.
    #[inline(always)]
    pub fn note(self, record: &mut Record, elapsed: u64) {
        record.start = self.at;
        record.duration = elapsed;
        record.flags |= if self.is_ticks { Record::TICKS } else { 0 };
    }
}

/// Both clocks at the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    ticks: u64,
    ns: u64,
}

/// Looks that are taken for a pair: between one look at the counter and the next, another process may have run.
const LOOKS: usize = 3;

impl Pair {
    fn look() -> Pair {
        let looks = [(); LOOKS].map(|()| {
            let before = now();
            let ns = sys::monotonic_ns();
            let took = now().wrapping_sub(before);
            let ticks = before.wrapping_add(took / 2);
            (took, Pair { ticks, ns })
        });
        let least = |a: (u64, Pair), b: (u64, Pair)| if b.0 < a.0 { b } else { a };
        looks.into_iter().reduce(least).map_or(looks[0].1, |x| x.1)
    }

    /// Ticks and nanoseconds from here to a later pair; `None` if the counter, or the clock, has not gone on.
    fn until(self, later: Pair) -> Option<(f64, f64)> {
        let ticks = later.ticks.wrapping_sub(self.ticks) as i64;
        let ns = later.ns.checked_sub(self.ns)?;
        (ticks > 0).then_some((ticks as f64, ns as f64))
    }
}

/// Nothing that a program tells while it is listened to is further ahead.
const AHEAD_MAX_NS: i64 = 1_000_000_000;

/// Less than this between two looks says nothing about the counter's speed.
const BASE_MIN_NS: f64 = 1_000_000.0;
/// The speed is that of the last second or two: the system's clock is made to go faster and slower, so that it is right.
const WINDOW_NS: u64 = 1_000_000_000;
/// Both clocks have gone side by side if they agree within this, and this share of the time between two looks.
const SLACK_NS: f64 = 20_000.0;
const SLACK_SHARE: f64 = 1.0 / 200.0;
/// Stretches that are kept. What a program tells was within the last, or began before it and was long.
const STRETCHES: usize = 4;

/// Whether the clocks went side by side at this speed.
fn agrees((ticks, ns): (f64, f64), ns_per_tick: f64) -> bool {
    (ns - ticks * ns_per_tick).abs() <= SLACK_NS + ns * SLACK_SHARE
}

/// A time over which both clocks went side by side.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    first: Pair,
    last: Pair,
    ns_per_tick: f64,
}

impl Stretch {
    fn new(first: Pair, ns_per_tick: f64) -> Stretch {
        Stretch {
            first,
            last: first,
            ns_per_tick,
        }
    }

    /// Goes on to this pair, at a speed that is measured from another one on; `false` if the clocks do not agree.
    fn go_on(&mut self, pair: Pair, step: (f64, f64), from: Pair) -> bool {
        if !agrees(step, self.ns_per_tick) {
            return false;
        }
        if let Some((ticks, ns)) = from.until(pair).filter(|base| base.1 >= BASE_MIN_NS) {
            self.ns_per_tick = ns / ticks;
        }
        self.last = pair;
        true
    }

    /// The same while it has to be shown what the speed is: as it was, or this other one.
    fn show(&mut self, pair: Pair, step: (f64, f64), other: Option<f64>) -> bool {
        let whole = self.first.until(pair).unwrap_or(step);
        let is_long = whole.1 >= BASE_MIN_NS;
        let fits = |speed: f64| agrees(step, speed) && (!is_long || agrees(whole, speed));
        if self.ns_per_tick == 0.0 || !fits(self.ns_per_tick) && other.is_some_and(fits) {
            self.ns_per_tick = whole.1 / whole.0;
        } else if !fits(self.ns_per_tick) {
            return false;
        }
        self.last = pair;
        true
    }

    /// How far a value of the counter is from those it had in this time.
    fn distance(&self, ticks: u64) -> u64 {
        let (since, all) = (
            ticks.wrapping_sub(self.first.ticks),
            self.last.ticks.wrapping_sub(self.first.ticks),
        );
        let to = |end: Pair| (ticks.wrapping_sub(end.ticks) as i64).unsigned_abs();
        match since <= all {
            true => 0,
            false => to(self.first).min(to(self.last)),
        }
    }

    fn moment(&self, ticks: u64) -> u64 {
        let since = ticks.wrapping_sub(self.last.ticks) as i64;
        let ns = (since as f64 * self.ns_per_tick) as i64;
        self.last.ns.saturating_add_signed(ns.min(AHEAD_MAX_NS))
    }
}

/// What is known of the counter's speed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Speed {
    /// A stretch has begun, which must show whether the speed is that of the one before. If not, it may be this one.
    Doubted { other: Option<f64> },
    /// It is measured from the first of these pairs on. The second will be the first.
    Known { from: Pair, next: Pair },
}

/// What the counter means, on CLOCK_MONOTONIC.
///
/// A moment between two looks is told to lie between them, give or take what [`agrees`] allows. That the clocks did not go side
/// by side is found by the first look after it; how they go from then on is known two looks later.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    /// The newest last; never empty.
    stretches: VecDeque<Stretch>,
    speed: Speed,
}

impl Scale {
    pub(crate) fn new() -> Scale {
        Scale::from(Pair::look())
    }

    fn from(first: Pair) -> Scale {
        Scale {
            stretches: VecDeque::from([Stretch::new(first, 0.0)]),
            speed: Speed::Doubted { other: None },
        }
    }

    /// Looks at both clocks again: what is told from here on is most exact for what has just been. The system's clock now.
    pub(crate) fn look(&mut self) -> u64 {
        let pair = Pair::look();
        self.take(pair);
        pair.ns
    }

    fn take(&mut self, pair: Pair) {
        let Some(stretch) = self.stretches.back_mut() else {
            return;
        };
        let Some(step) = stretch.last.until(pair) else {
            return self.begin(pair, None);
        };
        let goes_on = match self.speed {
            Speed::Known { from, next } => {
                self.speed = match pair.ns.saturating_sub(next.ns) >= WINDOW_NS {
                    true => Speed::Known {
                        from: next,
                        next: pair,
                    },
                    false => self.speed,
                };
                stretch.go_on(pair, step, from)
            }
            Speed::Doubted { other } => stretch.show(pair, step, other),
        };
        if !goes_on {
            return self.begin(pair, Some(step.1 / step.0));
        }
        let from = stretch.first;
        let is_long = pair.ns.saturating_sub(from.ns) as f64 >= BASE_MIN_NS;
        if is_long && !matches!(self.speed, Speed::Known { .. }) {
            self.speed = Speed::Known { from, next: from };
        }
    }

    /// The clocks did not go side by side: a new stretch begins, at the speed of the one before, or perhaps at another.
    #[cold]
    fn begin(&mut self, pair: Pair, other: Option<f64>) {
        let speed = self.stretches.back().map_or(0.0, |s| s.ns_per_tick);
        if self.stretches.len() >= STRETCHES {
            self.stretches.pop_front();
        }
        self.stretches.push_back(Stretch::new(pair, speed));
        self.speed = match self.speed {
            // The last step had the accident in it, and says nothing about the next.
            Speed::Known { .. } => Speed::Doubted { other: None },
            Speed::Doubted { .. } => Speed::Doubted { other },
        };
    }

    /// The stretch that a value of the counter belongs to: the newest that had it, or had one close to it.
    fn place(&self, ticks: u64) -> usize {
        let numbered = self.stretches.iter().enumerate().rev();
        let nearest = numbered.min_by_key(|(_, stretch)| stretch.distance(ticks));
        nearest.map_or(0, |(number, _)| number)
    }

    /// The moment at which the counter stood there, whatever a program says. Between two stretches nobody knows, but it was not before
    /// the one nor after the other.
    pub(crate) fn moment(&self, ticks: u64) -> u64 {
        let number = self.place(ticks);
        let at = |number: usize| self.stretches.get(number);
        let moment = at(number).map_or(0, |stretch| stretch.moment(ticks));
        let before = number.checked_sub(1).and_then(at);
        let moment = moment.max(before.map_or(0, |stretch| stretch.last.ns));
        moment.min(at(number + 1).map_or(u64::MAX, |stretch| stretch.first.ns))
    }

    /// How long so many ticks were, from the first of them on.
    pub(crate) fn span(&self, from: u64, ticks: u64) -> u64 {
        let end = self.moment(from.wrapping_add(ticks));
        end.saturating_sub(self.moment(from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A machine whose clocks are simulated: one that goes on, and a counter that does what counters do.
    #[derive(Clone, Copy, Debug)]
    struct Machine {
        now: Pair,
        ticks_per_us: u64,
    }

    /// What happens to the counter, after so many microseconds.
    #[derive(Clone, Copy, Debug)]
    enum Accident {
        /// Nothing.
        None,
        /// The machine sleeps; the counter counts so many microseconds of that.
        Sleep(u64),
        /// The same, and the counter begins anew.
        Anew,
        /// It has another speed from now on.
        Speed(u64),
    }

    impl Machine {
        fn new(ticks: u64, ticks_per_us: u64) -> Machine {
            Machine {
                now: Pair { ticks, ns: 5_000 },
                ticks_per_us,
            }
        }

        fn run(&mut self, us: u64) {
            let ticks = us * self.ticks_per_us;
            self.now.ticks = self.now.ticks.wrapping_add(ticks);
            self.now.ns += us * 1000;
        }

        fn suffer(&mut self, accident: Accident) {
            match accident {
                Accident::None => {}
                Accident::Sleep(us) => {
                    self.now.ticks = self.now.ticks.wrapping_add(us * self.ticks_per_us);
                }
                Accident::Anew => self.now.ticks = 7,
                Accident::Speed(ticks_per_us) => self.ticks_per_us = ticks_per_us,
            }
        }
    }

    fn accident() -> impl Strategy<Value = Accident> {
        prop_oneof![
            Just(Accident::None),
            (1u64..1 << 36).prop_map(Accident::Sleep),
            (500u64..5000).prop_map(Accident::Speed),
        ]
    }

    /// By how much a time may be wrong that lies between two looks so far apart.
    fn slack(from: Pair, to: Pair) -> u64 {
        let ns = to.ns - from.ns;
        SLACK_NS as u64 + (ns as f64 * SLACK_SHARE) as u64 + 1000
    }

    proptest! {
        #[test]
        fn moments_and_spans_are_those_of_the_clock(
            ticks_per_us in 500u64..5000, begin in any::<u64>(), ns in 0u64..1 << 60, after_us in 1000u64..1 << 40, back_us in 0u64..100_000,
        ) {
            let at = |us: u64| Pair { ticks: begin.wrapping_add(us * ticks_per_us), ns: ns + us * 1000 };
            let mut scale = Scale::from(at(0));
            scale.take(at(after_us));
            let asked = at(after_us.saturating_sub(back_us));
            prop_assert!(scale.moment(asked.ticks).abs_diff(asked.ns) <= 1 + back_us / 1000);
            prop_assert!(scale.span(asked.ticks, back_us * ticks_per_us).abs_diff(back_us * 1000) <= 1 + back_us / 1000);
        }

        #[test]
        fn nonsense_is_a_time_too(pairs in prop::collection::vec(any::<[u64; 2]>(), 1..9), ticks: u64, span: u64) {
            let pair = |[ticks, ns]: [u64; 2]| Pair { ticks, ns };
            let mut scale = Scale::from(pair(pairs[0]));
            pairs[1..].iter().for_each(|p| scale.take(pair(*p)));
            let _ = (scale.moment(ticks), scale.span(ticks, span));
            prop_assert!(scale.stretches.len() <= STRETCHES);
        }

        /// Whatever the counter does, and whenever: an operation between two looks is told to have been between them, and
        /// to have taken no longer than they are apart.
        #[test]
        fn what_is_between_two_looks_is_told_to_be_there(
            speed in 500u64..5000,
            steps in prop::collection::vec((1u64..20_000, accident(), 1u64..20_000, 0u64..1000), 1..40),
            anew in 0usize..40,
        ) {
            let mut machine = Machine::new(1 << 60, speed);
            let mut scale = Scale::from(machine.now);
            for (number, (before, accident, after, part)) in steps.into_iter().enumerate() {
                let looked = machine.now;
                machine.run(before * part / 1000);
                let first = machine.now;
                machine.run(before - before * part / 1000);
                machine.suffer(if number == anew { Accident::Anew } else { accident });
                machine.run(after - after * part / 1000);
                let second = machine.now;
                machine.run(after * part / 1000);
                scale.take(machine.now);
                let slack = slack(looked, machine.now);
                for operation in [first, second] {
                    let told = scale.moment(operation.ticks);
                    prop_assert!(told + slack >= looked.ns && told <= machine.now.ns + slack, "{told} of {looked:?} {machine:?}");
                }
                if number != anew {
                    let span = scale.span(first.ticks, second.ticks.wrapping_sub(first.ticks));
                    prop_assert!(span <= machine.now.ns - looked.ns + 2 * slack, "{span} ns: {looked:?} {machine:?}");
                }
            }
        }

        /// After a few looks without an accident times are right again, and after some seconds exact.
        #[test]
        fn times_are_not_off_for_long(
            speed in 500u64..5000, accidents in prop::collection::vec((accident(), 100u64..50_000), 1..6), anew: bool, us in 1000u64..20_000,
        ) {
            let mut machine = Machine::new(1 << 60, speed);
            let mut scale = Scale::from(machine.now);
            for (accident, us) in accidents {
                machine.suffer(accident);
                machine.run(us);
                scale.take(machine.now);
            }
            if anew {
                machine.suffer(Accident::Anew);
            }
            for look in 0..4_000_000 / us {
                let looked = machine.now;
                machine.run(us / 3);
                let operation = machine.now;
                machine.run(us - us / 3);
                scale.take(machine.now);
                if look < 4 {
                    continue;
                }
                let is_exact = look * us > 3_000_000;
                let slack = if is_exact { 2 + us } else { slack(looked, machine.now) };
                let took = machine.now.ticks.wrapping_sub(operation.ticks);
                let (told, span) = (scale.moment(operation.ticks), scale.span(operation.ticks, took));
                prop_assert!(told.abs_diff(operation.ns) <= slack, "look {look}: {told} of {operation:?}");
                prop_assert!(span.abs_diff(machine.now.ns - operation.ns) <= slack, "look {look}: {span}");
            }
        }
    }

    #[test]
    fn an_operation_during_which_the_machine_sleeps_takes_as_long_as_it_was_awake() {
        let mut machine = Machine::new(1 << 60, 3000);
        let mut scale = Scale::from(machine.now);
        let mut look = |machine: &mut Machine| {
            machine.run(1000);
            scale.take(machine.now);
            scale.clone()
        };
        (0..10).for_each(|_| drop(look(&mut machine)));
        let began = machine.now;
        machine.run(400);
        machine.suffer(Accident::Sleep(3_600_000_000));
        let scale = look(&mut machine);
        let ticks = machine.now.ticks.wrapping_sub(began.ticks);
        assert!(scale.span(began.ticks, ticks).abs_diff(1_400_000) < 500_000);
        assert!(scale.moment(began.ticks).abs_diff(began.ns) < 1000);
    }

    #[test]
    fn the_counter_tells_the_same_time_as_the_clock() {
        if !are_trusted() {
            return;
        }
        let mut scale = Scale::new();
        let (before, ticks) = (sys::monotonic_ns(), now());
        sys::sleep_ns(2_000_000);
        let after = sys::monotonic_ns();
        scale.look();
        let moment = scale.moment(ticks);
        assert!((before.saturating_sub(1_000_000)..after).contains(&moment));
    }
}
