//! The way to one node at a time, and to the next when that one is lost.
//!
//! ```text
//!               lost: a thread begins to reconnect
//!   connected ──────────────────────────────────────▶ none ──▶ patience over: calls fail at once
//!       ▲                                               │                      │
//!       └──── connected, said hello, open files back ───┴──────────────────────┘
//! ```
//!
//! *Invariants.* At most one thread reconnects. A connection is handed out only when every open file and every lock was
//! claimed on it, so that no lock is free for others longer than it takes to come back. Locks are taken in the order
//! state, then fids; none is held while talking to a node.

mod connection;
mod fids;
mod sequence;
mod trial;

use connection::Target;
pub(crate) use connection::{CHECKED, Connection};

use crate::address::mix;
use crate::held::{Freed, Held};
use crate::options::{Instance, Options};
use fids::Fids;
use presagio_ninep::client::{self, Error};
use presagio_ninep::{Dialect, Errno, Fid};
use sequence::Sequence;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Pauses between attempts to connect: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// How often somebody who talks to the last resort looks whether a node is back.
const WATCH_PAUSE: Duration = Duration::from_secs(1);

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
}

struct State {
    connection: Option<Arc<Connection>>,
    /// Since when there is none.
    without_since: Instant,
    /// The last one's number, reply cache and node.
    generation: u64,
    lineage: u64,
    node: Option<usize>,
    resume: [u8; 16],
    instance: Instance,
    reconnecting: bool,
    last_error: String,
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
            generation: 0,
            lineage: 0,
            node: None,
            resume: [0; 16],
            instance,
            reconnecting: false,
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
        })
    }

    /// The connection, if there is one.
    pub(crate) fn current(&self) -> Option<Arc<Connection>> {
        lock(&self.state).connection.clone()
    }

    pub(crate) fn generation(&self) -> u64 {
        lock(&self.state).generation
    }

    pub(crate) fn files(&self) -> usize {
        lock(&self.fids).len()
    }

    /// Waits for a connection: until `give_up`, but not when there has been none for longer than anybody waits.
    fn connection(self: &Arc<Self>, give_up: Option<Instant>) -> Result<Arc<Connection>, Errno> {
        let mut state = lock(&self.state);
        loop {
            match &state.connection {
                Some(connection) if connection.client.lost().is_none() => {
                    return Ok(connection.clone());
                }
                Some(_) => {
                    state.connection = None;
                    state.without_since = Instant::now();
                }
                None => {}
            }
            self.see_to_it(&mut state);
            let end = state.without_since + self.options.patience;
            let end = give_up.map_or(end, |give_up| end.min(give_up));
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Errno::IO);
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Starts a thread that reconnects, if there is none.
    fn see_to_it(self: &Arc<Self>, state: &mut State) {
        if state.reconnecting {
            return;
        }
        let link = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("reconnect".into());
        // Without a thread callers fail when their patience ends, and the next one tries again.
        state.reconnecting = thread.spawn(move || reconnect(&link)).is_ok();
    }

    /// Whom to try, in this order: the last node, the others, and what is there for want of a better one.
    fn candidates(&self) -> Vec<Target> {
        let state = lock(&self.state);
        let (last, without) = (state.node, state.without_since.elapsed());
        drop(state);
        let others = self.order.iter().copied();
        let others = others.filter(|node| Some(*node) != last);
        let nodes = last.into_iter().chain(others).map(Target::Node);
        // A node that only starts anew is worth a moment.
        let resort = self.options.last_resort.iter();
        let resort = resort.filter(|_| without >= self.options.patience / 4);
        nodes.chain(resort.map(|_| Target::LastResort)).collect()
    }

    /// Tries every candidate once. The first that can be reached, and on which every open file could be claimed, is for
    /// everybody to use.
    fn connect_once(self: &Arc<Self>) -> bool {
        for target in self.candidates() {
            match self.connect_to(target) {
                Ok(connection) => {
                    self.hand_out(connection);
                    return true;
                }
                Err(error) => {
                    tracing::debug!(?target, %error, "no connection");
                    lock(&self.state).last_error = error.to_string();
                }
            }
        }
        false
    }

    fn connect_to(self: &Arc<Self>, target: Target) -> Result<Arc<Connection>, Error> {
        let connection = Arc::new(Connection::establish(self, target)?);
        for held in self.all_held() {
            if held.is_open() {
                held.claim(&connection)?;
            }
        }
        connection.claimed();
        Ok(connection)
    }

    fn hand_out(self: &Arc<Self>, connection: Arc<Connection>) {
        tracing::info!(node = %connection.name, generation = connection.generation, "connected");
        let mut state = lock(&self.state);
        state.reconnecting = false;
        match connection.target {
            Target::Node(node) => state.node = Some(node),
            Target::LastResort => watch(self, &connection),
        }
        state.connection = Some(connection);
        self.changed.notify_all();
    }

    /// Why the last attempt to connect failed.
    pub(crate) fn last_error(&self) -> String {
        lock(&self.state).last_error.clone()
    }

    fn client_options(&self) -> client::Options {
        client::Options {
            msize: self.options.msize,
            dialect: Dialect::Presagio,
            in_flight_max: IN_FLIGHT_MAX,
            timeout: self.options.timeout,
            connect_timeout: self.options.connect_timeout,
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

    fn current_instance(&self) -> Instance {
        lock(&self.state).instance
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

    pub(crate) fn all_held(&self) -> Vec<Arc<Held>> {
        lock(&self.fids).all()
    }
}

/// Connects, however long that takes, unless nobody wants it any more.
fn reconnect(link: &Weak<Link>) {
    let mut pause = PAUSE_MIN;
    let mut seed = 0;
    loop {
        let Some(link) = link.upgrade() else {
            return;
        };
        if link.connect_once() {
            return;
        }
        seed = mix(seed ^ u64::from_le_bytes(*link.instance.0.first_chunk().expect("16 bytes")));
        drop(link);
        // Between half of it and all of it, so that a thousand clients of a node do not come back as one.
        std::thread::sleep(pause.mul_f64(0.5 + (seed >> 12) as f64 / (1u64 << 53) as f64));
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Ends a connection with the last resort when a node can be reached again; then everything goes there.
fn watch(link: &Arc<Link>, connection: &Arc<Connection>) {
    let (link, connection) = (Arc::downgrade(link), Arc::downgrade(connection));
    let watching = std::thread::Builder::new()
        .name("watch".into())
        .spawn(move || {
            loop {
                std::thread::sleep(WATCH_PAUSE);
                let (Some(link), Some(connection)) = (link.upgrade(), connection.upgrade()) else {
                    return;
                };
                let mut nodes = link.order.iter().map(|node| Target::Node(*node));
                if nodes.any(|node| connection::reach(&link, node).is_ok()) {
                    connection.client.close();
                    return;
                }
            }
        });
    if let Err(error) = watching {
        tracing::warn!(%error, "no thread to watch for a node: files stay with the last resort");
    }
}
