//! Threads for what may take long: reads that wait for the device, writes that wait for room, names that wait for a
//! server.
//!
//! Handing work to another core and back costs tens of microseconds, more than most operations on a healthy file system
//! take. So whoever has work asks [`Pace`] first: what was quick lately is done at once, where it came up; what was slow
//! goes to these threads. They are started as they are needed and stay.
//!
//! Storage may hang, for one file or for all that lie on one server, and whatever waits for it keeps its thread. Such threads do
//! not count: when all are busy, somebody watches, and for each that has been at one job for longer than anything healthy takes
//! another is started. Not without end: [`STUCK_MAX`] may be stuck before others wait for them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Something to do.
type Job = Box<dyn FnOnce() + Send>;

/// A thread that has been at one job for so long is stuck, for all that anybody knows.
const STUCK_AFTER: Duration = Duration::from_millis(500);

/// So many threads may be stuck and be replaced.
pub const STUCK_MAX: usize = 1024;

/// A pool of threads.
pub struct Jobs {
    state: Mutex<State>,
    wake: Condvar,
    /// Wakes who watches when the pool is closed.
    closing: Condvar,
    threads_max: usize,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
    /// When each thread that is at a job began with it.
    busy: BTreeMap<u64, Instant>,
    begun: u64,
    /// Whether somebody looks for threads that are stuck.
    is_watched: bool,
}

impl Jobs {
    /// Up to `threads_max` threads, none of which runs yet.
    pub fn new(threads_max: usize) -> Arc<Jobs> {
        Arc::new(Jobs {
            state: Mutex::default(),
            wake: Condvar::new(),
            closing: Condvar::new(),
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
        let short_of_threads = state.waiting.len() > state.idle;
        if short_of_threads && state.threads < self.allowed(&state) {
            state.threads += 1;
            drop(state);
            self.start_thread();
        } else {
            let watch = short_of_threads && !state.is_watched;
            state.is_watched |= watch;
            drop(state);
            self.wake.notify_one();
            if watch {
                self.start_watch();
            }
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
        self.closing.notify_all();
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

    fn start_watch(self: &Arc<Self>) {
        let jobs = self.clone();
        let builder = std::thread::Builder::new().name("presagio-watch".to_owned());
        if builder.spawn(move || jobs.watch()).is_err() {
            self.state().is_watched = false;
        }
    }

    /// Starts a thread for each that is stuck, while jobs wait.
    fn watch(self: &Arc<Self>) {
        let mut state = self.state();
        while !state.closed && !state.waiting.is_empty() {
            let room = self.allowed(&state).saturating_sub(state.threads);
            let more = state.waiting.len().min(room);
            state.threads += more;
            drop(state);
            (0..more).for_each(|_| self.start_thread());
            let woken = self.closing.wait_timeout(self.state(), STUCK_AFTER / 2);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.is_watched = false;
    }

    /// How many threads there may be now.
    fn allowed(&self, state: &State) -> usize {
        let now = Instant::now();
        // In the order in which they began.
        let is_stuck = |since: &&Instant| now.duration_since(**since) >= STUCK_AFTER;
        let stuck = state.busy.values().take_while(is_stuck).count();
        self.threads_max + stuck.min(STUCK_MAX)
    }

    fn work(&self) {
        let mut state = self.state();
        loop {
            if state.threads > self.threads_max && state.threads > self.allowed(&state) {
                // One that was stuck goes on, and this was there in its place. Who woke it meant somebody.
                state.threads -= 1;
                return self.wake.notify_one();
            }
            if let Some(job) = state.waiting.pop_front() {
                state.begun += 1;
                let number = state.begun;
                state.busy.insert(number, Instant::now());
                drop(state);
                unharmed(job);
                state = self.state();
                state.busy.remove(&number);
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

/// How long each kind of operation took lately, and how many of it hold a loop's thread up.
pub struct Pace {
    average_ns: [AtomicU32; Pace::KINDS],
    held_up: [AtomicU32; Pace::KINDS],
}

impl Default for Pace {
    fn default() -> Pace {
        let zeros = || std::array::from_fn(|_| AtomicU32::new(0));
        Pace {
            average_ns: zeros(),
            held_up: zeros(),
        }
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

    /// Whether operations of this kind were quick lately, and none of them hangs where it came up: the next one might too,
    /// however quick others are, and loops have only so many threads to lose.
    pub fn is_quick(&self, kind: u8) -> bool {
        let kind = usize::from(kind);
        self.average_ns[kind].load(Ordering::Relaxed) <= Pace::QUICK_NS
            && self.held_up[kind].load(Ordering::Relaxed) == 0
    }

    /// Does an operation that moves `bytes`, and remembers how long it took.
    pub fn measure<T>(&self, kind: u8, bytes: u64, operation: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = operation();
        let took = start.elapsed().as_nanos() as u64;
        self.took(kind, took.saturating_sub(bytes * Pace::BYTE_NS));
        result
    }

    /// An operation of this kind holds its loop up: they are for the threads, until that is over and some were quick there.
    pub fn is_held_up(&self, kind: u8) {
        let kind = usize::from(kind);
        self.average_ns[kind].store(Pace::WORST_NS, Ordering::Relaxed);
        self.held_up[kind].fetch_add(1, Ordering::Relaxed);
    }

    /// One that did is done.
    pub fn goes_on(&self, kind: u8) {
        self.held_up[usize::from(kind)].fetch_sub(1, Ordering::Relaxed);
    }

    /// An eighth of what is new: a single hiccup of a few milliseconds sends some dozens of operations to the threads.
    /// Two threads may overwrite each other's figure, which does no harm.
    fn took(&self, kind: u8, nanos: u64) {
        let nanos = nanos.min(u64::from(Pace::WORST_NS)) as u32;
        let cell = &self.average_ns[usize::from(kind)];
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
    fn jobs_that_hang_keep_nobody_waiting_and_their_replacements_go_when_they_do() {
        let jobs = Jobs::new(8);
        let (hang, hung) = mpsc::channel::<()>();
        let hung = Arc::new(Mutex::new(hung));
        // Each waits until the others are let go: none is before all were begun.
        for _ in 0..20 {
            let hung = hung.clone();
            jobs.run(move || hung.lock().unwrap().recv().unwrap_or(()));
        }
        let (send, done) = mpsc::channel();
        let again = send.clone();
        jobs.run(move || send.send(()).unwrap());
        let patience = std::time::Duration::from_secs(60);
        done.recv_timeout(patience).expect("others are done");
        assert!(jobs.state().threads > 20, "{}", jobs.state().threads);
        drop(hang);
        let late = Instant::now() + patience;
        while jobs.state().threads > 8 {
            assert!(Instant::now() < late, "they go");
            let again = again.clone();
            jobs.run(move || again.send(()).unwrap());
            std::thread::yield_now();
        }
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

    #[test]
    fn while_one_hangs_its_kind_is_for_the_threads_however_quick_others_are() {
        let pace = Pace::default();
        (0..2).for_each(|_| pace.is_held_up(5));
        (0..1000).for_each(|_| pace.took(5, 2_000));
        assert!(!pace.is_quick(5) && pace.is_quick(6));
        pace.goes_on(5);
        assert!(!pace.is_quick(5));
        pace.goes_on(5);
        assert!(pace.is_quick(5));
    }
}
