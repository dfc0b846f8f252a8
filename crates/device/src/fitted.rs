//! A device that takes as long as a profile says.
//!
//! It has one request at a time. One that goes on where the last of its operation ended takes the time of a sequential
//! request, any other that of a random one. A profile that was measured with several requests under way has what each
//! adds to the time of all of them, so that throughput is right then too.

use crate::Device;
use crate::profile::{Pattern, Profile, Test};
use presagio_core::{Nanos, Op, Range};

/// A profile at work.
#[derive(Clone, Debug)]
pub struct Fitted {
    profile: Profile,
    /// Behind the last byte of each operation.
    ends: [u64; 2],
    free: Nanos,
}

impl Fitted {
    /// A device at rest.
    pub fn new(profile: Profile) -> Fitted {
        Fitted {
            profile,
            ends: [0; 2],
            free: Nanos::ZERO,
        }
    }
}

impl Device for Fitted {
    fn serve(&mut self, op: Op, at: Range, now: Nanos) -> Nanos {
        if at.is_empty() {
            return now;
        }
        let goes_on = std::mem::replace(&mut self.ends[op.index()], at.end()) == at.start();
        let pattern = if goes_on {
            Pattern::Sequential
        } else {
            Pattern::Random
        };
        self.free = now.max(self.free) + self.profile.time(Test::of(op, pattern), at.len());
        self.free
    }

    /// A profile knows of no cache.
    fn flush(&mut self, now: Nanos) -> Nanos {
        now.max(self.free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::straight;

    #[test]
    fn requests_take_the_time_of_their_test_one_after_the_other() {
        let profile = straight([1e3, 1e6, 2e3, 5e5], [1.0, 1.0, 1.0, 1.0]);
        let mut device = Fitted::new(profile.clone());
        let size = 1 << 20;
        let mut last = Nanos::ZERO;
        let asked = [
            (Op::Read, 0, Test::SequentialRead),
            (Op::Read, size, Test::SequentialRead),
            (Op::Write, 7 * size, Test::RandomWrite),
            (Op::Write, 8 * size, Test::SequentialWrite),
            (Op::Read, 2 * size, Test::SequentialRead),
            (Op::Read, 9 * size, Test::RandomRead),
        ];
        for (op, start, test) in asked {
            let done = device.serve(op, Range::at(start, size), Nanos::ZERO);
            assert_eq!(done - last, profile.time(test, size), "{test}");
            last = done;
        }
        assert_eq!(device.flush(Nanos::ZERO), last);
    }
}
