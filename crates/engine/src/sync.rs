//! The only place that knows which locks, threads and clock are in use: the standard library's, or, under
//! the feature `shuttle`, the model checker's, which tries many interleavings.
//!
//! The model checker has no time. There the clock is a counter, and every wait that could time out does
//! so at once: the worst a timer can do.

use presagio_core::Nanos;
use std::sync::PoisonError;
use std::time::Duration;

#[cfg(not(feature = "shuttle"))]
pub(crate) use std::{
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{Builder, JoinHandle, ThreadId, current},
};

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::{
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{Builder, JoinHandle, ThreadId, current},
};

/// Takes a lock. A panic of somebody who held it would be a fault of ours, since foreign code that runs under
/// it is caught; it must not spread to every other thread of the service all the same.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits to be notified.
pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// The calling thread.
pub(crate) fn me() -> ThreadId {
    current().id()
}

#[cfg(not(feature = "shuttle"))]
mod time {
    use super::*;
    use std::time::{Instant, SystemTime};

    /// Monotonic time since the engine started.
    #[derive(Debug)]
    pub(crate) struct Clock(Instant);

    impl Clock {
        pub(crate) fn start() -> Clock {
            Clock(Instant::now())
        }

        pub(crate) fn now(&self) -> Nanos {
            Nanos(self.0.elapsed().as_nanos() as u64)
        }

        /// The time of day when the engine started, as far as can be told now: what machines agree on.
        pub(crate) fn origin(&self) -> Nanos {
            let day = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let origin = day.unwrap_or_default().saturating_sub(self.0.elapsed());
            Nanos(origin.as_nanos() as u64)
        }

        /// Waits to be notified, for `span` at most.
        pub(crate) fn wait_for<'a, T>(
            &self,
            condvar: &Condvar,
            _mutex: &'a Mutex<T>,
            guard: MutexGuard<'a, T>,
            span: Nanos,
        ) -> MutexGuard<'a, T> {
            let waited = condvar.wait_timeout(guard, Duration::from(span));
            waited.unwrap_or_else(PoisonError::into_inner).0
        }

        /// Spins until `moment`, or until somebody sets `stop`.
        pub(crate) fn spin_until(&self, moment: Nanos, stop: &AtomicBool) {
            // Reading the clock (26 ns where this was written) is dearer than looking at the flag.
            const LOOKS: usize = 16;
            while self.now() < moment {
                for _ in 0..LOOKS {
                    if stop.load(Ordering::Acquire) {
                        return;
                    }
                    std::hint::spin_loop();
                }
            }
        }
    }
}

#[cfg(feature = "shuttle")]
mod time {
    use super::*;
    use std::sync::atomic::AtomicU64;

    /// A counter: later at each reading.
    #[derive(Debug)]
    pub(crate) struct Clock(AtomicU64);

    impl Clock {
        pub(crate) fn start() -> Clock {
            Clock(AtomicU64::new(0))
        }

        pub(crate) fn now(&self) -> Nanos {
            Nanos(self.0.fetch_add(1, Ordering::SeqCst))
        }

        pub(crate) fn origin(&self) -> Nanos {
            Nanos::ZERO
        }

        pub(crate) fn wait_for<'a, T>(
            &self,
            _condvar: &Condvar,
            mutex: &'a Mutex<T>,
            guard: MutexGuard<'a, T>,
            span: Nanos,
        ) -> MutexGuard<'a, T> {
            drop(guard);
            shuttle::thread::yield_now();
            self.0
                .fetch_add(Duration::from(span).as_nanos() as u64, Ordering::SeqCst);
            lock(mutex)
        }

        pub(crate) fn spin_until(&self, moment: Nanos, _stop: &AtomicBool) {
            shuttle::thread::yield_now();
            self.0.fetch_max(moment.0, Ordering::SeqCst);
        }
    }
}

pub(crate) use time::Clock;
