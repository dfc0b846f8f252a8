//! Time by the processor's counter: for a program it is a third of what the system's clock takes, and no memory that others
//! write to. The manager, which reads both, says what the counter meant.
//!
//! It is used where the kernel itself trusts it: where it is the system's clock source.

use crate::record::Record;
use crate::sys;

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
    #[inline(always)]
    pub(crate) fn by_ticks() -> Stamp {
        Stamp {
            at: now(),
            is_ticks: true,
        }
    }

    /// Now, on the system's clock: for who has no manager to ask yet.
    #[inline(always)]
    pub fn by_clock() -> Stamp {
        Stamp {
            at: sys::monotonic_ns(),
            is_ticks: false,
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
}

/// Nothing that a program tells while it is listened to is further ahead.
const AHEAD_MAX_NS: i64 = 1_000_000_000;

/// What the counter means, on CLOCK_MONOTONIC.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    first: Pair,
    last: Pair,
    ns_per_tick: f64,
}

impl Scale {
    pub(crate) fn new() -> Scale {
        let first = Pair::look();
        Scale {
            first,
            last: first,
            ns_per_tick: 0.0,
        }
    }

    /// Looks at both clocks again: what is told from here on is most exact for what has just been.
    pub(crate) fn look(&mut self) {
        self.take(Pair::look());
    }

    fn take(&mut self, last: Pair) {
        let ticks = last.ticks.wrapping_sub(self.first.ticks);
        let ns = last.ns.saturating_sub(self.first.ns);
        if ticks as i64 > 0 {
            self.ns_per_tick = ns as f64 / ticks as f64;
        }
        self.last = last;
    }

    /// The moment at which the counter stood there, whatever a program says.
    pub(crate) fn moment(&self, ticks: u64) -> u64 {
        let since = ticks.wrapping_sub(self.last.ticks) as i64;
        let ns = (since as f64 * self.ns_per_tick) as i64;
        self.last.ns.saturating_add_signed(ns.min(AHEAD_MAX_NS))
    }

    /// How long so many ticks are.
    pub(crate) fn span(&self, ticks: u64) -> u64 {
        (ticks as f64 * self.ns_per_tick) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn moments_and_spans_are_those_of_the_clock(
            ticks_per_us in 500u64..5000, begin in any::<u64>(), ns in 0u64..1 << 60, after_us in 1000u64..1 << 40, back_us in 0u64..100_000,
        ) {
            let at = |us: u64| Pair { ticks: begin.wrapping_add(us * ticks_per_us), ns: ns + us * 1000 };
            let mut scale = Scale { first: at(0), last: at(0), ns_per_tick: 0.0 };
            scale.take(at(after_us));
            let asked = at(after_us.saturating_sub(back_us));
            prop_assert!(scale.moment(asked.ticks).abs_diff(asked.ns) <= 1 + back_us / 1000);
            prop_assert!(scale.span(back_us * ticks_per_us).abs_diff(back_us * 1000) <= 1 + back_us / 1000);
        }

        #[test]
        fn nonsense_is_a_time_too(first in any::<[u64; 2]>(), last in any::<[u64; 2]>(), ticks: u64) {
            let pair = |[ticks, ns]: [u64; 2]| Pair { ticks, ns };
            let mut scale = Scale { first: pair(first), last: pair(first), ns_per_tick: 0.0 };
            scale.take(pair(last));
            let _ = (scale.moment(ticks), scale.span(ticks));
        }
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
