//! A clock for single calls: the processor's own, since the one of the system would bring memory into the caches that hooks
//! read the time from.

use std::time::Instant;

/// The processor's counter and how fast it goes.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    ticks_per_ns: f64,
    /// What looking at it twice takes.
    look: u64,
}

impl Clock {
    /// Looks for 20 ms how fast the counter goes.
    pub fn new() -> Clock {
        let (began, first) = (Instant::now(), ticks());
        while began.elapsed().as_millis() < 20 {
            std::hint::spin_loop();
        }
        let (last, took) = (ticks(), began.elapsed());
        let mut looks: Vec<u64> = (0..1001).map(|_| ticks().abs_diff(ticks())).collect();
        looks.sort_unstable();
        Clock {
            ticks_per_ns: ((last - first) as f64 / took.as_nanos() as f64).max(f64::MIN_POSITIVE),
            look: looks[looks.len() / 2],
        }
    }

    /// The counter, after all that was asked of the processor before.
    #[inline(always)]
    pub fn now(&self) -> u64 {
        ticks()
    }

    /// As many ticks as there are in a time.
    pub fn ticks(&self, ns: u64) -> u64 {
        (ns as f64 * self.ticks_per_ns) as u64
    }

    /// What was timed, without what the clock took itself.
    pub fn ns(&self, ticks: u64) -> f64 {
        ticks.saturating_sub(self.look) as f64 / self.ticks_per_ns
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn ticks() -> u64 {
    use std::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: every x86-64 processor has both.
    unsafe {
        _mm_lfence();
        let now = _rdtsc();
        _mm_lfence();
        now
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    use std::sync::OnceLock;
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Computes for a while, over memory that does not fit into the nearest cache: what a program does between two reads.
pub fn compute(clock: &Clock, ns: u64, memory: &mut [u64]) {
    if ns == 0 {
        return;
    }
    let until = clock.now() + clock.ticks(ns);
    while clock.now() < until {
        for word in memory.iter_mut().step_by(8) {
            *word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
            if clock.now() >= until {
                return;
            }
        }
    }
}
