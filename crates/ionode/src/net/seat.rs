//! The seat of a loop: a thread sits on it and turns, and leaves it when it is held up.
//!
//! What a loop has understood, it does itself if such things were quick lately ([`crate::jobs::Pace`]). Sometimes that is
//! wrong: the file system hangs. So a thread gets up from the loop's state before it does anything that could wait, and
//! sits down again after that. A watchman looks round: where somebody has been away for too long, another thread takes
//! the seat, and what held the first one up is for the threads as long as that lasts. When the first comes back, it finds
//! its seat taken, and ends.

use super::turner::{Task, Turner};
use crate::node::Shared;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Who is away for so long is held up.
const HELD_UP: Duration = Duration::from_millis(20);

/// How often the watchman looks while loops turn, and while they do not.
const LOOK_EVERY: Duration = Duration::from_millis(10);
const LOOK_EVERY_IDLE: Duration = Duration::from_millis(200);

/// Threads of a loop that may be held up at a time; with more, nobody takes their seats: everything hangs then. That takes
/// as many different things that hang, or that begin to hang at once: of one that does, the threads do the rest.
const HELD_UP_MAX: usize = 256;

/// A loop, and who turns it.
pub struct Seat {
    number: usize,
    node: Arc<Shared>,
    turner: Mutex<Turner>,
    /// What the loop has found to be done.
    tasks: Mutex<VecDeque<Task>>,
    /// The thread that turns; those before it left.
    term: AtomicU64,
    /// Since when it has been away, in nanoseconds from `start`; 0 if it is not.
    away_since: AtomicU64,
    /// With what.
    away_with: AtomicU8,
    /// What the threads do that were held up and have not come back.
    held_up: Mutex<Vec<u8>>,
    turns: AtomicU64,
    start: Instant,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Seat {
    /// The seat of loop `number`; nobody turns yet.
    pub fn new(number: usize, node: Arc<Shared>) -> std::io::Result<Arc<Seat>> {
        let turner = Turner::new(number, node.clone())?;
        Ok(Arc::new(Seat {
            number,
            node,
            turner: Mutex::new(turner),
            tasks: Mutex::default(),
            term: AtomicU64::new(0),
            away_since: AtomicU64::new(0),
            away_with: AtomicU8::new(0),
            held_up: Mutex::default(),
            turns: AtomicU64::new(0),
            start: Instant::now(),
            thread: Mutex::new(None),
        }))
    }

    /// A thread sits down; the one before, if there was one, is not waited for any more.
    pub fn take(self: &Arc<Self>) -> std::io::Result<()> {
        let seat = self.clone();
        let name = format!("presagio-loop{}", self.number);
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || seat.turn())?;
        *self.thread() = Some(thread);
        Ok(())
    }

    /// Waits until whoever sits there has ended: not for those who were held up.
    pub fn join(&self) {
        loop {
            let done = self.thread().as_ref().is_none_or(JoinHandle::is_finished);
            if done {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn thread(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self) {
        let term = self.term.fetch_add(1, Ordering::SeqCst) + 1;
        self.away_since.store(0, Ordering::SeqCst);
        self.node.data.mailbox(self.number).own(term);
        let mut last = 0;
        while self.do_tasks(term, &mut last) {
            let mut turner = self.turner.lock().unwrap_or_else(PoisonError::into_inner);
            self.turns.fetch_add(1, Ordering::Relaxed);
            match turner.turn() {
                Some(tasks) => self.tasks().extend(tasks),
                None => return turner.stop(),
            }
        }
        // Somebody took over while this one was held up.
        self.came_back(last);
    }

    /// Does what has to be done, one after the other, and says what that is: whoever takes over goes on with the next. False if
    /// somebody did.
    fn do_tasks(&self, term: u64, last: &mut u8) -> bool {
        loop {
            let task = self.tasks().pop_front();
            let Some(task) = task else {
                break;
            };
            *last = task.kind();
            if self.term.load(Ordering::SeqCst) == term {
                self.away(&task);
            }
            task.run(&self.node);
            if self.term.load(Ordering::SeqCst) != term {
                return false;
            }
        }
        self.away_since.store(0, Ordering::SeqCst);
        // Somebody may have taken over just before.
        self.term.load(Ordering::SeqCst) == term
    }

    fn tasks(&self) -> MutexGuard<'_, VecDeque<Task>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn away(&self, task: &Task) {
        let since = self.start.elapsed().as_nanos() as u64;
        self.away_with.store(task.kind(), Ordering::Relaxed);
        self.away_since.store(since.max(1), Ordering::SeqCst);
    }

    fn held_up(&self) -> MutexGuard<'_, Vec<u8>> {
        self.held_up.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever sits here is held up; false if that is one too many.
    fn gets_held_up(&self, kind: u8) -> bool {
        let mut held_up = self.held_up();
        if held_up.len() >= HELD_UP_MAX {
            return false;
        }
        held_up.push(kind);
        self.node.pace.is_held_up(kind);
        true
    }

    /// One who was held up goes on; it had been doing this when it found out. By a hair's breadth that is not what the watchman
    /// saw it do: then it is any, so that none is left in the end.
    fn came_back(&self, kind: u8) {
        let mut held_up = self.held_up();
        let at = held_up.iter().position(|held| *held == kind).unwrap_or(0);
        if at < held_up.len() {
            self.node.pace.goes_on(held_up.swap_remove(at));
        }
    }

    /// Whether whoever sits here is held up: since when, and with what.
    fn is_held_up(&self) -> Option<(u64, u8)> {
        let since = self.away_since.load(Ordering::SeqCst);
        let now = self.start.elapsed().as_nanos() as u64;
        let is_held_up = since > 0 && now.saturating_sub(since) > HELD_UP.as_nanos() as u64;
        is_held_up.then(|| (since, self.away_with.load(Ordering::Relaxed)))
    }
}

/// Looks round until it is told to end.
pub fn watch(seats: &[Arc<Seat>], ending: &AtomicBool) {
    let mut turns = 0;
    while !ending.load(Ordering::SeqCst) {
        let now: u64 = seats
            .iter()
            .map(|seat| seat.turns.load(Ordering::Relaxed))
            .sum();
        let busy = now != turns
            || seats
                .iter()
                .any(|seat| seat.away_since.load(Ordering::Relaxed) > 0);
        turns = now;
        std::thread::park_timeout(if busy { LOOK_EVERY } else { LOOK_EVERY_IDLE });
        for seat in seats {
            let Some((since, kind)) = seat.is_held_up() else {
                continue;
            };
            if !seat.gets_held_up(kind) {
                continue;
            }
            tracing::warn!("loop {} is held up: another thread takes over", seat.number);
            match seat.take() {
                // The next one may be away by now, or may not even sit: this is not looked at again.
                Ok(()) => {
                    let (away, order) = (&seat.away_since, Ordering::SeqCst);
                    let _ = away.compare_exchange(since, 0, order, order);
                }
                // It is, unless it comes back.
                Err(error) => {
                    seat.came_back(kind);
                    tracing::warn!("no thread to take over loop {}: {error}", seat.number);
                }
            }
        }
    }
}
