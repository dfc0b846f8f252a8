//! Threads for what may take long: reads that wait for the device, writes that wait for room, names that wait for a
//! server.
//!
//! Handing work to another core and back costs tens of microseconds, more than most operations on a healthy file system
//! take. So whoever has work asks [`Pace`] first: what was quick lately is done at once, where it came up; what was slow
//! goes to these threads. They are started as they are needed and stay.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Something to do.
type Job = Box<dyn FnOnce() + Send>;

/// A pool of threads.
pub struct Jobs {
    state: Mutex<State>,
    wake: Condvar,
    threads_max: usize,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Jobs {
    /// Up to `threads_max` threads, none of which runs yet.
    pub fn new(threads_max: usize) -> Arc<Jobs> {
        Arc::new(Jobs {
            state: Mutex::default(),
            wake: Condvar::new(),
            threads_max: threads_max.max(1),
        })
    }

    /// Does `job` on one of the threads. After [`close`](Self::close) it is done by the caller.
    pub fn run(self: &Arc<Self>, job: impl FnOnce() + Send + 'static) {
        let mut state = self.state();
        if state.closed {
            drop(state);
            return job();
        }
        state.waiting.push_back(Box::new(job));
        let short_of_threads = state.waiting.len() > state.idle && state.threads < self.threads_max;
        if short_of_threads {
            state.threads += 1;
            drop(state);
            self.start_thread();
        } else {
            drop(state);
            self.wake.notify_one();
        }
    }

    /// Jobs that wait for a thread.
    pub fn waiting(&self) -> usize {
        self.state().waiting.len()
    }

    /// No more jobs come. The threads end when those that wait are done.
    pub fn close(&self) {
        self.state().closed = true;
        self.wake.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_thread(self: &Arc<Self>) {
        let jobs = self.clone();
        let builder = std::thread::Builder::new().name("presagio-job".to_owned());
        if builder.spawn(move || jobs.work()).is_ok() {
            return;
        }
        // The system gives no thread: those that run have to do it, or, if there is none, we.
        let mut state = self.state();
        state.threads -= 1;
        if state.threads == 0 {
            while let Some(job) = state.waiting.pop_front() {
                drop(state);
                unharmed(job);
                state = self.state();
            }
        }
    }

    fn work(&self) {
        let mut state = self.state();
        loop {
            if let Some(job) = state.waiting.pop_front() {
                drop(state);
                unharmed(job);
                state = self.state();
            } else if state.closed {
                state.threads -= 1;
                return;
            } else {
                state.idle += 1;
                state = self
                    .wake
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }
}

/// Does something that may panic, and goes on; `None` if it did. (The panic's own message was printed where it arose.)
///
/// A panic is a fault of ours, in one operation: who asked for it is told EIO, and nobody else notices. What others
/// share is locked, and whole between any two steps.
pub fn unharmed<T>(work: impl FnOnce() -> T) -> Option<T> {
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    done.map_err(|_| tracing::error!("an operation panicked: this is a bug of the node"))
        .ok()
}

/// How long each kind of operation took lately.
pub struct Pace([AtomicU32; Pace::KINDS]);

impl Default for Pace {
    fn default() -> Pace {
        Pace(std::array::from_fn(|_| AtomicU32::new(0)))
    }
}

impl Pace {
    const KINDS: usize = 256;
    /// Longer than this on average, and a kind is for the threads: about what handing over and back costs.
    const QUICK_NS: u32 = 40_000;
    /// One that took as long as this is remembered for some hundred operations.
    const WORST_NS: u32 = 10_000_000;
    /// Bytes that are moved take time on whatever thread: a nanosecond each is not slow.
    const BYTE_NS: u64 = 1;

    /// Whether operations of this kind were quick lately.
    pub fn is_quick(&self, kind: u8) -> bool {
        self.0[usize::from(kind)].load(Ordering::Relaxed) <= Pace::QUICK_NS
    }

    /// Does an operation that moves `bytes`, and remembers how long it took.
    pub fn measure<T>(&self, kind: u8, bytes: u64, operation: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = operation();
        let took = start.elapsed().as_nanos() as u64;
        self.took(kind, took.saturating_sub(bytes * Pace::BYTE_NS));
        result
    }

    /// Operations of this kind are for the threads, until some were quick there.
    pub fn is_slow(&self, kind: u8) {
        self.0[usize::from(kind)].store(Pace::WORST_NS, Ordering::Relaxed);
    }

    /// An eighth of what is new: a single hiccup of a few milliseconds sends some dozens of operations to the threads.
    /// Two threads may overwrite each other's figure, which does no harm.
    fn took(&self, kind: u8, nanos: u64) {
        let nanos = nanos.min(u64::from(Pace::WORST_NS)) as u32;
        let cell = &self.0[usize::from(kind)];
        let average = cell.load(Ordering::Relaxed);
        let next = average - average / 8 + nanos / 8;
        cell.store(next, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc;

    #[test]
    fn every_job_is_done_also_when_all_threads_are_busy() {
        let jobs = Jobs::new(3);
        let done = Arc::new(AtomicUsize::new(0));
        let (send, all) = mpsc::channel();
        for _ in 0..200 {
            let (done, send) = (done.clone(), send.clone());
            jobs.run(move || {
                done.fetch_add(1, Ordering::Relaxed);
                send.send(()).unwrap();
            });
        }
        (0..200).for_each(|_| all.recv().unwrap());
        assert_eq!(done.load(Ordering::Relaxed), 200);
        assert!(jobs.state().threads <= 3);
        jobs.close();
        let (send, last) = mpsc::channel();
        jobs.run(move || send.send(()).unwrap());
        last.recv().unwrap();
    }

    #[test]
    fn a_job_that_panics_takes_no_thread_with_it() {
        let jobs = Jobs::new(1);
        let (send, done) = mpsc::channel();
        jobs.run(|| panic!("as the test wants it"));
        jobs.run(move || send.send(()).unwrap());
        let patience = std::time::Duration::from_secs(60);
        done.recv_timeout(patience).expect("the thread goes on");
        jobs.close();
    }

    #[test]
    fn what_is_slow_is_for_the_threads_until_it_is_quick_again() {
        let pace = Pace::default();
        assert!(pace.is_quick(5));
        (0..8).for_each(|_| pace.took(5, 1_000_000));
        assert!(!pace.is_quick(5) && pace.is_quick(6));
        (0..64).for_each(|_| pace.took(5, 2_000));
        assert!(pace.is_quick(5));
        pace.took(5, u64::MAX);
        assert!(!pace.is_quick(5));
    }
}
