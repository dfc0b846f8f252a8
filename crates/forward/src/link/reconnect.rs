//! Who connects again, and when.
//!
//! Usually a thread does, one for each outage. A process that may have no threads of ours ([`Options::threads`]) has none:
//! there, whoever needs a connection makes the next attempt when it is due, and the others wait for that one.
//!
//! [`Options::threads`]: crate::Options::threads

use super::connection::{self, Connection, Target};
use super::{Link, State, lock};
use crate::options::Instance;
use crate::preference::mix;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Pauses between attempts to connect: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// How often somebody who talks to the last resort looks whether a node is back.
const WATCH_PAUSE: Duration = Duration::from_secs(1);

/// When to try again.
pub(super) struct Backoff {
    pause: Duration,
    seed: u64,
    /// Not before.
    due: Instant,
    /// Nor nodes before this, where there is something else to try.
    nodes_due: Instant,
}

impl Backoff {
    pub(super) fn new(instance: Instance) -> Backoff {
        Backoff {
            pause: PAUSE_MIN,
            seed: u64::from_le_bytes(*instance.0.first_chunk().expect("16 bytes")),
            due: Instant::now(),
            nodes_due: Instant::now(),
        }
    }

    pub(super) fn are_nodes_due(&self) -> bool {
        self.nodes_due <= Instant::now()
    }

    /// An attempt has failed: how long to wait. Between half of the pause and all of it, so that a thousand clients of a
    /// node do not come back as one.
    fn failed(&mut self) -> Duration {
        self.seed = mix(self.seed);
        let part = 0.5 + (self.seed >> 12) as f64 / (1u64 << 53) as f64;
        let pause = self.pause.mul_f64(part);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        self.due = Instant::now() + pause;
        pause
    }
}

impl State {
    /// Whether who needs a connection has to try itself. Also when nobody waits any more, since there is nobody else who
    /// would find out that a node is back.
    pub(super) fn is_attempt_due(&self, give_up: Option<Instant>) -> bool {
        let now = Instant::now();
        let has_time = give_up.is_none_or(|give_up| now < give_up);
        has_time && !self.reconnecting && self.backoff.due <= now
    }

    /// How long to sleep when so much is left: while nobody tries, no longer than until the next attempt is due.
    pub(super) fn nap(&self, left: Duration) -> Duration {
        match self.reconnecting {
            true => left,
            false => left.min(self.backoff.due.saturating_duration_since(Instant::now())),
        }
    }
}

/// An attempt of one who needs a connection. However it ends, it does: others can begin the next.
struct Attempt<'a> {
    link: &'a Link,
    began: Instant,
    failed: bool,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.link.state);
        if self.failed {
            state.reconnecting = false;
            state.backoff.failed();
            // One that took long is not made all the time: calls fail at once in between. But the last resort may be there soon.
            let backoff = &mut state.backoff;
            let later = backoff.due.max(Instant::now() + self.began.elapsed());
            match self.link.options.last_resort {
                None => backoff.due = later,
                Some(_) if backoff.are_nodes_due() => backoff.nodes_due = later,
                Some(_) => {}
            }
        }
        self.link.changed.notify_all();
    }
}

impl Link {
    /// Tries every candidate once, for no longer than this call or anybody has patience.
    pub(super) fn attempt(self: &Arc<Self>, give_up: Option<Instant>) {
        let began = Instant::now();
        let mut state = lock(&self.state);
        if state.reconnecting || state.connection.is_some() {
            return;
        }
        state.reconnecting = true;
        let patience = state.without_since + self.options.patience;
        drop(state);
        let mut attempt = Attempt {
            link: self,
            began,
            failed: true,
        };
        let until = patience.max(began + self.options.connect_timeout);
        let until = give_up.map_or(until, |give_up| until.min(give_up));
        attempt.failed = !self.connect_once(Some(until));
    }

    /// Starts a thread that reconnects, if there is none.
    pub(super) fn see_to_it(self: &Arc<Self>, state: &mut State) {
        if state.reconnecting {
            return;
        }
        let link = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("reconnect".into());
        // Without a thread callers fail when their patience ends, and the next one tries again.
        state.reconnecting = thread.spawn(move || reconnect(&link)).is_ok();
    }
}

/// Connects, however long that takes, unless nobody wants it any more.
fn reconnect(link: &Weak<Link>) {
    loop {
        let Some(link) = link.upgrade() else {
            return;
        };
        if link.connect_once(None) {
            return;
        }
        let pause = lock(&link.state).backoff.failed();
        drop(link);
        std::thread::sleep(pause);
    }
}

/// Ends a connection with the last resort when a node can be reached again; then everything goes there.
pub(super) fn watch(link: &Arc<Link>, connection: &Arc<Connection>) {
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
                if nodes.any(|node| connection::reach(&link, node, None).is_ok()) {
                    connection.client.close();
                    return;
                }
            }
        });
    if let Err(error) = watching {
        tracing::warn!(%error, "no thread to watch for a node: files stay with the last resort");
    }
}
