//! Waiting: whoever waits for a reply reads, for all others too.
//!
//! A thread of its own would cost two wake-ups for each reply. Instead the first that waits becomes the *reader*; those
//! who come later sleep. The reader gives each reply to its slot and wakes who sleeps for it. When it has its own, it
//! leaves and wakes one sleeper, which reads on.
//!
//! *Invariants.* At most one thread reads: `Table::reading`. Whoever leaves wakes a sleeper if nobody reads. The turn to
//! send is taken before the table, never while it is held.

use super::error::{Error, Lost};
use super::incoming::{Incoming, Mine};
use super::outgoing::Turn;
use super::table::Table;
use super::{Fill, Options, Stream};
use crate::frame::Frames;
use crate::ids::Tag;
use crate::version::Agreed;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The longest that a reader waits at a time, in microseconds: about a second.
const PATIENCE_US_MAX: u64 = 1 << 20;

/// What all handles of a client share.
pub(super) struct Shared {
    pub(super) stream: Box<dyn Stream>,
    pub(super) agreed: Agreed,
    pub(super) timeout: Duration,
    pub(super) fill: Fill,
    pub(super) turn: Turn,
    incoming: Mutex<Incoming>,
    table: Mutex<Table>,
}

/// Why somebody stopped waiting without what it waited for.
pub(super) enum GaveUp {
    Late,
    Dead,
}

impl Shared {
    pub(super) fn new(
        stream: Box<dyn Stream>,
        frames: Frames,
        agreed: Agreed,
        options: &Options,
    ) -> Shared {
        let incoming = Incoming::new(frames, agreed.dialect, options.fill);
        Shared {
            stream,
            agreed,
            timeout: options.timeout,
            fill: options.fill,
            turn: Turn::default(),
            incoming: Mutex::new(incoming),
            table: Mutex::new(Table::new(options.in_flight_max)),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the connection: every request fails.
    pub(super) fn die(&self, why: Lost) {
        self.lock().die(why);
        self.stream.close();
    }

    /// The error of a request on a dead connection.
    pub(super) fn lost(&self, sent: bool) -> Error {
        let why = self.lock().dead.clone();
        let why = why.unwrap_or_else(|| Lost::ClosedHere.into());
        Error::Lost { sent, why }
    }

    /// Waits until `ready` gives something, reading or sleeping. As long as it does not, it says whose reply to sleep
    /// for (if of none, then for room).
    pub(super) fn wait_until<T>(
        &self,
        deadline: Instant,
        mine: &mut [Mine<'_>],
        mut ready: impl FnMut(&mut Table) -> Result<T, Option<Tag>>,
    ) -> Result<T, GaveUp> {
        let mut incoming: Option<MutexGuard<'_, Incoming>> = None;
        let mut table = self.lock();
        let outcome = loop {
            let tag = match ready(&mut table) {
                Ok(found) => break Ok(found),
                Err(tag) => tag,
            };
            if table.dead.is_some() {
                break Err(GaveUp::Dead);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break Err(GaveUp::Late);
            }
            if incoming.is_none() && table.reading {
                table = self.sleep(table, tag, left);
                continue;
            }
            table.reading = true;
            drop(table);
            let incoming = incoming.get_or_insert_with(|| self.incoming());
            table = self.read_once(incoming, patience(left), mine);
        };
        if let Some(mut incoming) = incoming {
            incoming.leave(mine);
            table.reading = false;
        }
        table.pass_on();
        outcome
    }

    /// Reads what has come, without waiting. Returns false if somebody else reads.
    pub(super) fn read_what_is_there(&self) -> bool {
        let mut table = self.lock();
        if table.reading {
            return false;
        }
        table.reading = true;
        drop(table);
        let mut table = self.read_once(&mut self.incoming(), Duration::ZERO, &mut []);
        table.reading = false;
        table.pass_on();
        true
    }

    /// Only who reads gets here, so that nobody ever waits for it.
    fn incoming(&self) -> MutexGuard<'_, Incoming> {
        self.incoming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Receives once and delivers what came.
    fn read_once(
        &self,
        incoming: &mut Incoming,
        patience: Duration,
        mine: &mut [Mine<'_>],
    ) -> MutexGuard<'_, Table> {
        let received = incoming.receive(&*self.stream, patience, mine);
        let mut table = self.lock();
        let delivered = match received {
            Ok(false) => Ok(()),
            Ok(true) => incoming.deliver(&mut table, mine),
            Err(why) => Err(why),
        };
        if let Err(why) = delivered {
            table.die(why);
            self.stream.close();
        }
        table
    }

    fn sleep<'s>(
        &'s self,
        mut table: MutexGuard<'s, Table>,
        tag: Option<Tag>,
        left: Duration,
    ) -> MutexGuard<'s, Table> {
        table.sleep(tag);
        drop(table);
        std::thread::park_timeout(left);
        let mut table = self.lock();
        table.awake();
        table
    }
}

/// How long to wait at a time when so much is left: a power of two, so that it is mostly the same as the last time. A
/// socket keeps its time-out, and setting it is a system call.
fn patience(left: Duration) -> Duration {
    let left = u64::try_from(left.as_micros()).unwrap_or(u64::MAX);
    let left = left.clamp(1, PATIENCE_US_MAX);
    Duration::from_micros(1 << left.ilog2())
}
