//! Time as an argument.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A moment, or a span, in nanoseconds. Moments count from an origin that the caller picks and keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The origin, and the empty span.
    pub const ZERO: Nanos = Nanos(0);
    /// Later than every moment that occurs.
    pub const MAX: Nanos = Nanos(u64::MAX);

    /// A span of `us` microseconds.
    pub const fn from_micros(us: u64) -> Nanos {
        Nanos(us.saturating_mul(1_000))
    }

    /// A span of `ms` milliseconds.
    pub const fn from_millis(ms: u64) -> Nanos {
        Nanos(ms.saturating_mul(1_000_000))
    }

    /// A span of `s` seconds.
    pub const fn from_secs(s: u64) -> Nanos {
        Nanos(s.saturating_mul(1_000_000_000))
    }

    /// The span since `earlier`; zero if `earlier` is in fact later (a clock that jumped back).
    pub const fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    /// The span in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, span: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(span.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, span: Nanos) {
        *self = *self + span;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    /// Same as [`Nanos::since`].
    fn sub(self, earlier: Nanos) -> Nanos {
        self.since(earlier)
    }
}

impl From<std::time::Duration> for Nanos {
    fn from(d: std::time::Duration) -> Nanos {
        Nanos(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for std::time::Duration {
    fn from(n: Nanos) -> std::time::Duration {
        std::time::Duration::from_nanos(n.0)
    }
}

impl fmt::Display for Nanos {
    /// The span with the unit a person would pick: `850 ns`, `1.5 µs`, `12.0 ms`, `3.2 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0 as f64;
        match self.0 {
            0..1_000 => write!(f, "{} ns", self.0),
            1_000..1_000_000 => write!(f, "{:.1} µs", n / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.1} ms", n / 1e6),
            _ => write!(f, "{:.1} s", n / 1e9),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_never_go_negative_or_wrap() {
        assert_eq!(Nanos(3) - Nanos(5), Nanos::ZERO);
        assert_eq!(Nanos::MAX + Nanos(1), Nanos::MAX);
    }

    #[test]
    fn a_span_prints_in_the_unit_a_person_would_pick() {
        let shown: Vec<String> = [850, 1_500, 12_000_000, 3_200_000_000]
            .map(|n| Nanos(n).to_string())
            .to_vec();
        assert_eq!(shown, ["850 ns", "1.5 µs", "12.0 ms", "3.2 s"]);
    }
}
