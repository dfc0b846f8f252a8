//! The way to one node at a time, and to the next when that one is lost.
//!
//! ```text
//!               lost: a thread begins to reconnect, or whoever needs a connection
//!   connected ──────────────────────────────────────▶ none ──▶ patience over: calls fail at once
//!       ▲                                               │                      │
//!       └──── connected, said hello, open files back ───┴──────────────────────┘
//! ```
//!
//! *Invariants.* At most one thread reconnects ([`reconnect`] says which). A connection is handed out only when every open file and every lock was
//! claimed on it, so that no lock is free for others longer than it takes to come back. Locks are taken in the order
//! state, then fids; none is held while talking to a node.

mod connection;
mod fids;
mod reconnect;
mod sequence;
mod trial;
mod unsynced;

pub(crate) use connection::{CHECKED, Connection, Target};
pub(crate) use trial::{Deed, Done, next};

use crate::held::{Freed, Held, claim};
use crate::options::{Instance, Options};
use fids::Fids;
use presagio_ninep::client::{self, BATCH_MAX, Error};
use presagio_ninep::{Dialect, Errno, Fid};
use reconnect::Backoff;
use sequence::Sequence;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use unsynced::Unsynced;

/// Who has no time left has so much, to be told so.
const LEAST: Duration = Duration::from_millis(1);

/// Requests that may be under way at once.
const IN_FLIGHT_MAX: usize = 1024;

pub(crate) struct Link {
    pub(crate) options: Arc<Options>,
    /// The number that we began with, which names the owners of our locks.
    pub(crate) instance: Instance,
    /// The nodes in the order of preference.
    order: Vec<usize>,
    state: Mutex<State>,
    changed: Condvar,
    fids: Mutex<Fids>,
    sequence: Mutex<Sequence>,
    /// Under which number the witness knows us.
    witnessed: Mutex<Option<Instance>>,
    unsynced: Mutex<Unsynced>,
    /// How often a sync took something from that, and one.
    syncs: AtomicU64,
}

struct State {
    connection: Option<Arc<Connection>>,
    /// Since when there is none.
    without_since: Instant,
    /// Since when one is looked for, this time.
    searching_since: Instant,
    /// The last one's number, reply cache and node.
    generation: u64,
    lineage: u64,
    node: Option<usize>,
    /// One that did not answer is tried last.
    silent: Option<usize>,
    resume: [u8; 16],
    instance: Instance,
    reconnecting: bool,
    backoff: Backoff,
    last_error: String,
}

impl State {
    /// The connection, unless it is lost by now.
    fn usable(&mut self) -> Option<Arc<Connection>> {
        let lost = self.connection.as_ref()?.client.lost().is_some();
        if lost {
            self.connection = None;
            self.without_since = Instant::now();
        }
        self.connection.clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    /// A link without a connection yet.
    pub(crate) fn new(options: Arc<Options>, instance: Instance, order: Vec<usize>) -> Arc<Link> {
        let fids = Fids::new(options.files_max);
        let state = State {
            connection: None,
            without_since: Instant::now(),
            searching_since: Instant::now(),
            generation: 0,
            lineage: 0,
            node: None,
            silent: None,
            resume: [0; 16],
            instance,
            reconnecting: false,
            backoff: Backoff::new(instance),
            last_error: String::new(),
        };
        Arc::new(Link {
            options,
            instance,
            order,
            state: Mutex::new(state),
            changed: Condvar::new(),
            fids: Mutex::new(fids),
            sequence: Mutex::default(),
            witnessed: Mutex::default(),
            unsynced: Mutex::default(),
            syncs: AtomicU64::new(1),
        })
    }

    /// The connection, if there is one.
    pub(crate) fn current(&self) -> Option<Arc<Connection>> {
        lock(&self.state).connection.clone()
    }

    pub(crate) fn generation(&self) -> u64 {
        lock(&self.state).generation
    }

    /// The node that the connection is with, or the last one was; `None` for the last resort.
    pub(crate) fn node(&self) -> Option<usize> {
        let state = lock(&self.state);
        match state.connection.as_ref().map(|now| now.target) {
            Some(Target::Node(node)) => Some(node),
            Some(Target::LastResort) => None,
            None => state.node,
        }
    }

    /// Tries this node first, if none was tried yet.
    pub(crate) fn prefer(&self, node: usize) {
        let mut state = lock(&self.state);
        if state.generation == 0 && self.order.contains(&node) {
            state.node.get_or_insert(node);
        }
    }

    pub(crate) fn files(&self) -> usize {
        lock(&self.fids).len()
    }

    /// Waits for a connection: until `give_up`, but not when there has been none for longer than anybody waits.
    fn connection(self: &Arc<Self>, give_up: Option<Instant>) -> Result<Arc<Connection>, Errno> {
        let mut state = lock(&self.state);
        loop {
            if let Some(connection) = state.usable() {
                return Ok(connection);
            }
            if self.options.threads {
                self.see_to_it(&mut state);
            } else if state.is_attempt_due(give_up) {
                drop(state);
                self.attempt(give_up);
                state = lock(&self.state);
                continue;
            }
            let end = state.without_since + self.options.patience;
            let end = give_up.map_or(end, |give_up| end.min(give_up));
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Errno::IO);
            }
            let nap = state.nap(left);
            let waited = self.changed.wait_timeout(state, nap);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The nodes in the order of preference.
    #[cfg(test)]
    pub(crate) fn order(&self) -> &[usize] {
        &self.order
    }

    /// Where the other processes of this run went.
    fn others_node(&self) -> Option<usize> {
        self.options.others.as_ref()?.node
    }

    /// Whom to try, in this order: the last node, or where others of this run went; the others; one that was silent; and what
    /// is there for want of a better one. Only the latter if it is too early for the nodes.
    fn candidates(&self) -> Vec<Target> {
        let state = lock(&self.state);
        let (last, silent) = (state.node.or_else(|| self.others_node()), state.silent);
        let without = state.without_since.elapsed();
        let is_too_early = !state.backoff.are_nodes_due();
        drop(state);
        if is_too_early {
            return vec![Target::LastResort];
        }
        let mut nodes = self.order.clone();
        // The sort is stable: the others keep their order.
        nodes.sort_by_key(|node| match Some(*node) {
            node if node == silent => 2,
            node if node == last => 0,
            _ => 1,
        });
        let nodes = nodes.into_iter().map(Target::Node);
        // A node that only starts anew is worth a moment. Without a thread nobody would see that one is back: then whoever
        // gives the last resort says when it is time, and ends it.
        let resort = self.options.last_resort.iter();
        let is_time = !self.options.threads || without >= self.options.patience / 4;
        let resort = resort.filter(|_| is_time);
        nodes.chain(resort.map(|_| Target::LastResort)).collect()
    }

    /// Tries every candidate once, while there is time. The first that can be reached, and on which every open file could be
    /// claimed, is for everybody to use.
    fn connect_once(self: &Arc<Self>, until: Option<Instant>) -> bool {
        lock(&self.state).searching_since = Instant::now();
        let candidates = self.candidates();
        for (tried, target) in candidates.iter().enumerate() {
            if until.is_some_and(|until| until <= Instant::now()) {
                break;
            }
            // To be reached each has its share, so that the last has one too, whoever swallows what is sent before it.
            let share = until.map(|until| share(until, candidates.len() - tried));
            if self.connects_to(*target, share, until) {
                return true;
            }
            // Whoever gives the last resort counts from when it is first asked for, and many nodes may be silent for long.
            let is_between = tried + 2 < candidates.len();
            if is_between
                && !self.options.threads
                && self.options.last_resort.is_some()
                && self.connects_to(Target::LastResort, until, until)
            {
                return true;
            }
        }
        false
    }

    /// Tries one.
    fn connects_to(
        self: &Arc<Self>,
        target: Target,
        reach_until: Option<Instant>,
        until: Option<Instant>,
    ) -> bool {
        match self.connect_to(target, reach_until, until) {
            Ok(connection) => {
                self.hand_out(connection);
                true
            }
            Err(error) => {
                tracing::debug!(?target, %error, "no connection");
                self.note_error(match &error {
                    Error::Lost { why, .. } => why.to_string(),
                    error => error.to_string(),
                });
                false
            }
        }
    }

    fn connect_to(
        self: &Arc<Self>,
        target: Target,
        reach_until: Option<Instant>,
        until: Option<Instant>,
    ) -> Result<Arc<Connection>, Error> {
        let connection = Connection::establish(self, target, reach_until, until)?;
        let connection = Arc::new(connection);
        // One that is of no use ends before the next begins, whoever else may hold its socket.
        self.claim_all(&connection)
            .inspect_err(|_| connection.client.close())?;
        connection.claimed();
        Ok(connection)
    }

    /// Claims every open file, so that no lock of ours is free for longer than this takes.
    fn claim_all(&self, connection: &Arc<Connection>) -> Result<(), Error> {
        let mut held = self.all_held();
        held.retain(|held| held.is_open());
        let mut some = held.chunks(BATCH_MAX);
        some.try_for_each(|some| claim::together(connection, some))
    }

    fn hand_out(self: &Arc<Self>, connection: Arc<Connection>) {
        tracing::info!(node = %connection.name, generation = connection.generation, "connected");
        let mut state = lock(&self.state);
        state.reconnecting = false;
        state.backoff = Backoff::new(self.instance);
        let (target, before) = (connection.target, state.node);
        match target {
            Target::Node(node) => (state.node, state.silent) = (Some(node), None),
            Target::LastResort if self.options.threads => reconnect::watch(self, &connection),
            Target::LastResort => {}
        }
        state.connection = Some(connection);
        self.changed.notify_all();
        drop(state);
        if let Target::Node(node) = target {
            self.went_to(node, before);
        }
    }

    /// Those that begin later are told if this is not the node where they would.
    fn went_to(&self, node: usize, before: Option<usize>) {
        let expected = before
            .or_else(|| self.others_node())
            .unwrap_or(self.order[0]);
        // Who knows of one node only has not chosen it.
        if let Some(others) = &self.options.others
            && node != expected
            && self.order.len() > 1
        {
            (others.told)(node);
        }
    }

    /// A node has not answered in time.
    fn was_silent(&self, connection: &Connection) {
        if let Target::Node(node) = connection.target {
            lock(&self.state).silent = Some(node);
        }
    }

    /// For how long a node is being looked for.
    fn has_searched(&self) -> Duration {
        lock(&self.state).searching_since.elapsed()
    }

    /// Why the last attempt to connect failed.
    pub(crate) fn last_error(&self) -> String {
        lock(&self.state).last_error.clone()
    }

    /// What a user should know of who could not prove who it is.
    pub(crate) fn note_error(&self, error: String) {
        lock(&self.state).last_error = error;
    }

    fn client_options(&self, until: Option<Instant>) -> client::Options {
        client::Options {
            msize: self.options.msize,
            dialect: Dialect::Presagio,
            in_flight_max: IN_FLIGHT_MAX,
            timeout: self.options.timeout,
            connect_timeout: within(self.options.connect_timeout, until),
            fill: self.options.fill,
        }
    }

    /// The number of the connection that is being made, and the lineage of the last that had a reply cache.
    fn next_generation(&self) -> (u64, u64) {
        let mut state = lock(&self.state);
        state.generation += 1;
        (state.generation, state.lineage)
    }

    fn resume(&self) -> [u8; 16] {
        lock(&self.state).resume
    }

    pub(crate) fn current_instance(&self) -> Instance {
        lock(&self.state).instance
    }

    /// Before a lock is asked for: whoever will see us end knows under which number a node has it. Without a witness, or if
    /// it cannot be told, our locks end a while after us.
    pub(crate) fn tell_witness(&self) {
        let Some(witness) = &self.options.witness else {
            return;
        };
        let instance = self.current_instance();
        let mut witnessed = lock(&self.witnessed);
        if *witnessed != Some(instance) && (witness.0)(instance).is_ok() {
            *witnessed = Some(instance);
        }
    }

    /// A node knows our instance, and we cannot prove that it is ours: its answer to our first hello was lost, before
    /// anything was asked under that number. Another will do.
    fn came_twice(&self) {
        let mut state = lock(&self.state);
        if state.resume == [0; 16] {
            state.instance = Instance::draw().unwrap_or(state.instance);
        }
    }

    /// What the last hello brought, also if the connection breaks before it is used.
    fn set_resume(&self, resume: [u8; 16], lineage: u64) {
        let mut state = lock(&self.state);
        (state.resume, state.lineage) = (resume, lineage);
    }

    pub(crate) fn draw(&self) -> Result<Fid, Errno> {
        lock(&self.fids).draw()
    }

    pub(crate) fn enter(&self, fid: Fid, held: Weak<Held>) {
        lock(&self.fids).enter(fid, held);
    }

    pub(crate) fn leave(&self, fid: Fid, freed: Freed) {
        lock(&self.fids).leave(fid, freed);
    }

    /// Something of a file may be in no more than the memory of a machine that was booted then.
    pub(crate) fn changed(&self, file: u64, epoch: u64) {
        lock(&self.unsynced).add(file, epoch);
    }

    /// Whether something of a file was changed that nobody has synced.
    pub(crate) fn has_changed(&self, file: u64) -> bool {
        lock(&self.unsynced).has(file)
    }

    /// The epoch of what was changed first of a file that is being synced; 0 if nothing was.
    pub(crate) fn take_changed(&self, file: u64) -> u64 {
        let mut unsynced = lock(&self.unsynced);
        // Before the node is asked: what it acknowledges from then on is for the next sync, and has to be said again.
        self.syncs.fetch_add(1, Ordering::Release);
        unsynced.take(file)
    }

    /// A number, not 0, that is another one after each sync of any file: what was said before it may have been taken.
    pub(crate) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Acquire)
    }

    pub(crate) fn all_held(&self) -> Vec<Arc<Held>> {
        lock(&self.fids).all()
    }
}

/// The end of a part of the time that is left, one of so many.
pub(crate) fn share(until: Instant, parts: usize) -> Instant {
    let now = Instant::now();
    now + until.saturating_duration_since(now) / u32::try_from(parts).unwrap_or(1).max(1)
}

/// A time-out, or what is left of it.
fn within(timeout: Duration, until: Option<Instant>) -> Duration {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    left.map_or(timeout, |left| timeout.min(left).max(LEAST))
}
