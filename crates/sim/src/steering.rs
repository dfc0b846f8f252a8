//! Who may look on and decide while a run goes: the seam for matchers, tuners and the council.
//!
//! A [`Steering`] sees every request that arrives at a scheduler, and at the end of every period what each scheduler did in
//! it. It answers with changes, which come into force when it says: a council is asked over a network, too.

use crate::scenario::Level;
use presagio_core::{Nanos, Request};
use presagio_sched::Settings;

/// A scheduler: of an I/O node or of a data server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// Of this I/O node.
    IoNode(u32),
    /// Of this data server.
    Server(u32),
}

impl Place {
    /// Whether it is an I/O node or a server.
    pub fn level(self) -> Level {
        match self {
            Place::IoNode(_) => Level::IoNodes,
            Place::Server(_) => Level::Servers,
        }
    }
}

/// What a scheduler did in a period.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// Which one.
    pub place: Place,
    /// Its settings at the end of the period; none where there is no scheduler.
    pub settings: Option<Settings>,
    /// Requests that arrived: reads and writes.
    pub arrived: [u64; 2],
    /// Bytes of the requests that were finished: reads and writes.
    pub served: [u64; 2],
    /// How long something was queued or in service. The reward of paper 001 as we define it is bytes by busy second.
    pub busy: Nanos,
    /// What is queued or in service at the end.
    pub present: u64,
}

/// What a scheduler is to do from a moment on.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Which one.
    pub place: Place,
    /// Its settings; none is no scheduler: what arrives is served as it comes. Tolerance and longest wait of foresight are those
    /// of the scenario in any case.
    pub settings: Option<Settings>,
    /// From when. The past is now.
    pub at: Nanos,
}

/// See the module's header.
pub trait Steering {
    /// How long a period is.
    fn period(&self) -> Nanos;

    /// A request arrived at a scheduler.
    fn arrived(&mut self, _place: Place, _request: &Request, _now: Nanos) {}

    /// Whether something has arrived that cannot wait for the end of the period.
    fn is_due(&mut self) -> bool {
        false
    }

    /// A request waits no longer at a scheduler: it is being served.
    fn departed(&mut self, _place: Place, _request: &Request) {}

    /// A period is over, or something is due: what to change.
    fn decide(&mut self, now: Nanos, seen: &[Seen], changes: &mut Vec<Change>);
}
