//! Where requests are left for the engine's own thread, and the bell that it sleeps by.
//!
//! A small lock of its own, apart from the engine's: a submitter that needs no ticket pays for one push.
//! Waking a sleeper costs the producer a system call of several microseconds, so the thread says under the
//! lock what it is doing, and only a real sleeper is woken; one that spins sees a flag instead. Since
//! everything that could matter to the thread is said under the lock, nothing can be said in the moment
//! between its last look and its sleep.

use crate::sync::{AtomicBool, Clock, Condvar, Mutex, MutexGuard, Ordering, lock, wait};
use presagio_core::{Nanos, QueueId, Request};
use presagio_sched::Rejected;

/// The last stretch before a deadline is spun: the system wakes sleepers this much too late.
pub(crate) const SPIN: Nanos = Nanos::from_micros(60);

/// Why a request was not taken in.
pub(crate) enum Refusal {
    Closed,
    Rejected(Rejected),
}

/// What the engine's own thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thread {
    /// Working: it will look here before it rests.
    Awake,
    /// Resting with open eyes: it looks at the flag.
    Spinning,
    /// Resting in the system: it must be woken.
    Asleep,
}

/// What the lock protects.
#[derive(Debug)]
struct State {
    requests: Vec<Request>,
    /// The thread has to look at the engine before it rests. A request sets this too, and it stays set
    /// when another thread takes the request to the engine: the thread still has to dispatch it.
    rung: bool,
    /// When the thread is to look at the engine by itself.
    deadline: Option<Nanos>,
    thread: Thread,
    /// The scheduler's number of queues, so that bad queue ids are refused here and now.
    queues: u32,
    closed: bool,
}

/// How the thread passes the time until something happens.
enum Pause {
    Over,
    Spin(Nanos),
    SleepFor(Nanos),
    Sleep,
}

/// The inbox and its bell.
#[derive(Debug)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    bell: Condvar,
    /// Set when something happens while the thread spins.
    flag: AtomicBool,
}

impl Inbox {
    pub(crate) fn new(queues: u32) -> Inbox {
        let state = State {
            requests: Vec::new(),
            rung: false,
            deadline: None,
            thread: Thread::Awake,
            queues,
            closed: false,
        };
        Inbox {
            state: Mutex::new(state),
            bell: Condvar::new(),
            flag: AtomicBool::new(false),
        }
    }

    /// Leaves a request for the thread.
    pub(crate) fn push(&self, request: Request) -> Result<(), Refusal> {
        let mut state = lock(&self.state);
        if state.closed {
            return Err(Refusal::Closed);
        }
        if request.queue >= QueueId(state.queues) {
            let (queue, queues) = (request.queue, state.queues);
            return Err(Refusal::Rejected(Rejected::QueueOutOfRange {
                queue,
                queues,
            }));
        }
        state.requests.push(request);
        state.rung = true;
        self.stir(state);
        Ok(())
    }

    /// Swaps what was left here with `empty`.
    pub(crate) fn swap(&self, empty: &mut Vec<Request>) {
        debug_assert!(empty.is_empty());
        std::mem::swap(&mut lock(&self.state).requests, empty);
    }

    /// The same, and from now on queue ids must be below `queues`.
    pub(crate) fn swap_and_limit(&self, empty: &mut Vec<Request>, queues: u32) {
        let mut state = lock(&self.state);
        std::mem::swap(&mut state.requests, empty);
        state.queues = queues;
    }

    /// How many requests lie here.
    pub(crate) fn len(&self) -> usize {
        lock(&self.state).requests.len()
    }

    /// Makes the thread look at the engine.
    pub(crate) fn ring(&self) {
        let mut state = lock(&self.state);
        state.rung = true;
        self.stir(state);
    }

    /// Makes the thread look at the engine at `moment`, or earlier.
    pub(crate) fn arm(&self, moment: Nanos) {
        let mut state = lock(&self.state);
        if state.deadline.is_none_or(|d| moment < d) {
            state.deadline = Some(moment);
            self.stir(state);
        }
    }

    /// Takes in nothing any more, and wakes the thread for good.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        self.stir(state);
    }

    fn stir(&self, mut state: MutexGuard<'_, State>) {
        match std::mem::replace(&mut state.thread, Thread::Awake) {
            Thread::Awake => {}
            Thread::Spinning => self.flag.store(true, Ordering::Release),
            Thread::Asleep => {
                drop(state);
                self.bell.notify_one();
            }
        }
    }

    /// Rests until something happens or the deadline comes; spins for the first `linger` of it, since
    /// work that comes at once is then had without a system call. Only the engine's own thread calls this.
    pub(crate) fn rest(&self, clock: &Clock, linger: Nanos) {
        let end_of_linger = clock.now() + linger;
        let mut state = lock(&self.state);
        loop {
            let pause = match state.rung || state.closed {
                true => Pause::Over,
                false => pause(clock.now(), state.deadline, end_of_linger),
            };
            state = match pause {
                Pause::Over => break,
                Pause::Spin(until) => self.spin(clock, state, until),
                Pause::SleepFor(span) => {
                    state.thread = Thread::Asleep;
                    clock.wait_for(&self.bell, &self.state, state, span)
                }
                Pause::Sleep => {
                    state.thread = Thread::Asleep;
                    wait(&self.bell, state)
                }
            };
        }
        state.thread = Thread::Awake;
        state.rung = false;
        state.deadline = None;
    }

    fn spin<'a>(
        &'a self,
        clock: &Clock,
        mut state: MutexGuard<'a, State>,
        until: Nanos,
    ) -> MutexGuard<'a, State> {
        state.thread = Thread::Spinning;
        self.flag.store(false, Ordering::Relaxed);
        drop(state);
        clock.spin_until(until, &self.flag);
        lock(&self.state)
    }
}

fn pause(now: Nanos, deadline: Option<Nanos>, end_of_linger: Nanos) -> Pause {
    match deadline {
        Some(d) if d <= now => Pause::Over,
        Some(d) if d - now <= SPIN => Pause::Spin(d),
        _ if now < end_of_linger => Pause::Spin(end_of_linger.min(deadline.unwrap_or(Nanos::MAX))),
        Some(d) => Pause::SleepFor(d - now - SPIN),
        None => Pause::Sleep,
    }
}
