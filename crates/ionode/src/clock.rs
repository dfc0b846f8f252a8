//! The time of day, as it was when the node started and has gone on evenly since.
//!
//! What is decided while the node runs is decided by a clock that nobody sets ([`Instant`]). The time of day is for what
//! outlives a node: the age of its files, and of the handles that it gave. A time of day that is set while the node
//! runs, by a person or by a server of time, changes nothing here.

use std::time::{Duration, Instant, SystemTime};

/// A clock that was set once.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    set: Duration,
    start: Instant,
}

impl Default for Clock {
    fn default() -> Clock {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Clock::set_to(now.unwrap_or_default())
    }
}

impl Clock {
    /// One that says `now`, since 1970.
    pub fn set_to(now: Duration) -> Clock {
        Clock {
            set: now,
            start: Instant::now(),
        }
    }

    /// The time of day, since 1970.
    pub fn now(&self) -> Duration {
        self.set + self.start.elapsed()
    }

    /// How long ago a file was changed, by its time in seconds; nothing if that is in the future.
    pub fn age(&self, changed: i64) -> Duration {
        let changed = Duration::from_secs(u64::try_from(changed).unwrap_or(0));
        self.now().saturating_sub(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_from_where_it_was_set() {
        let clock = Clock::set_to(Duration::from_secs(1000));
        let first = clock.now();
        assert!(first >= Duration::from_secs(1000) && clock.now() >= first);
        assert!(clock.age(400) >= Duration::from_secs(600));
        assert_eq!(clock.age(1 << 40), Duration::ZERO);
    }
}
