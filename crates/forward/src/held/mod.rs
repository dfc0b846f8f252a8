//! A file that a node holds for us: what has to be known to hold it again on another connection.
//!
//! The fid keeps its number for as long as the value lives. `ready_on` is the connection on which the node knows it; on
//! any other it is claimed first: by its handle where the node has such a thing, else by its path, and then it must still
//! be the same file. Open files are claimed as soon as there is a connection, the others when they are used.

pub(crate) mod claim;
mod proof;
mod walk;

pub(crate) use walk::{Walk, steps, walk, walk_far};

use crate::link::{Connection, Link};
use crate::locks::Locks;
use presagio_ninep::client::{Answer, Error, Ticket};
use presagio_ninep::{Errno, Fid, OpenFlags, Qid, Request};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

pub(crate) struct Held {
    pub(crate) link: Arc<Link>,
    pub(crate) fid: Fid,
    /// What its user attached; a root has none.
    root: Option<Arc<Held>>,
    /// The generation of the connection on which the node knows the fid.
    ready_on: AtomicU64,
    /// The errno that every operation gets from now on; 0 if none.
    spoilt: AtomicU32,
    /// The epoch of the node that has acknowledged what was written first since the last sync; 0 if nothing was.
    unsynced: AtomicU64,
    /// The link's count of syncs when that was last said to the link, for those who sync the file through another fid.
    said_at: AtomicU64,
    /// The file through which the locks were taken that this one is used under: if they are lost, so is this.
    lead: OnceLock<Weak<Held>>,
    place: Mutex<Place>,
}

/// Where the file is, and how it is held.
#[derive(Default)]
pub(crate) struct Place {
    pub(crate) qid: Qid,
    /// From the root of the export, without a slash at either end.
    pub(crate) path: Vec<u8>,
    pub(crate) handle: Option<Arc<[u8]>>,
    /// As whom: of a root.
    uid: Option<u32>,
    pub(crate) open: Option<OpenFlags>,
    pub(crate) locks: Locks,
    /// The connection of `ready_on`.
    at: Weak<Connection>,
    /// A plain node finds a fid by its path, and the path has changed.
    moved: bool,
    /// A request for this fid got no answer: the node may know it or not.
    unsure: bool,
}

impl Place {
    /// A file that is not open, at `path`.
    pub(crate) fn at(qid: Qid, path: Vec<u8>) -> Place {
        Place {
            qid,
            path,
            ..Place::default()
        }
    }

    fn nowhere(&mut self) {
        self.at = Weak::new();
        self.unsure = false;
    }
}

impl Held {
    /// A fid that stands for nothing yet, of the user of `root`.
    pub(crate) fn new(link: &Arc<Link>, root: Option<Arc<Held>>) -> Result<Arc<Held>, Errno> {
        let fid = link.draw()?;
        let held = Arc::new(Held {
            link: link.clone(),
            fid,
            root,
            ready_on: AtomicU64::new(0),
            spoilt: AtomicU32::new(0),
            unsynced: AtomicU64::new(0),
            said_at: AtomicU64::new(0),
            lead: OnceLock::new(),
            place: Mutex::default(),
        });
        link.enter(fid, Arc::downgrade(&held));
        Ok(held)
    }

    /// The root of an export, to be attached when it is used.
    pub(crate) fn new_root(link: &Arc<Link>, uid: u32) -> Result<Arc<Held>, Errno> {
        let held = Held::new(link, None)?;
        held.place().uid = Some(uid);
        Ok(held)
    }

    pub(crate) fn root(self: &Arc<Self>) -> Arc<Held> {
        self.root.as_ref().unwrap_or(self).clone()
    }

    pub(crate) fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.place().open.is_some()
    }

    /// From now on it stands for this, on this connection.
    pub(crate) fn stands_for(&self, connection: &Arc<Connection>, new: Place) {
        let mut place = self.place();
        let uid = place.uid;
        *place = new;
        place.uid = uid;
        self.known(&mut place, connection);
    }

    /// What this stands for, for another fid of it that is not open and that no node knows yet.
    pub(crate) fn copy_place(&self) -> Place {
        let place = self.place();
        Place {
            qid: place.qid,
            path: place.path.clone(),
            handle: place.handle.clone(),
            ..Place::default()
        }
    }

    pub(crate) fn set_place(&self, place: Place) {
        *self.place() = place;
    }

    /// A request is about to be sent after which the node may know the fid on this connection.
    pub(crate) fn begin(&self, connection: &Arc<Connection>) {
        let mut place = self.place();
        place.at = Arc::downgrade(connection);
        place.unsure = true;
    }

    /// The node refused: the fid stands for nothing.
    pub(crate) fn unless_refused<T>(&self, answer: Result<T, Error>) -> Result<T, Error> {
        if let Err(Error::Server(_)) = answer {
            self.stands_for_nothing();
        }
        answer
    }

    /// The node does not know the fid.
    pub(crate) fn stands_for_nothing(&self) {
        self.place().nowhere();
    }

    pub(crate) fn is_spoilt_by(&self, errno: Errno) -> bool {
        self.spoilt.load(Ordering::Acquire) == errno.0
    }

    /// Whether the node knows the fid on this connection, and none after it.
    pub(crate) fn is_ready(&self, connection: &Connection) -> bool {
        self.ready_on.load(Ordering::Acquire) == connection.generation
    }

    pub(crate) fn spoil(&self, errno: Errno) {
        self.spoilt.store(errno.0, Ordering::Release);
    }

    /// Something was written, and may be in no more than the memory of a machine that was booted then.
    /// Whoever syncs it next is told, through this fid or another. Each write asks, and after the first nothing is to be said until
    /// something was synced.
    pub(crate) fn wrote(&self, epoch: u64) {
        let syncs = self.link.syncs();
        let is_said = self.unsynced.load(Ordering::Relaxed) != 0
            && self.said_at.load(Ordering::Relaxed) == syncs;
        if epoch == 0 || is_said {
            return;
        }
        let place = self.place();
        let is_synced = |flags: OpenFlags| flags.contains(OpenFlags::DSYNC);
        if !place.open.is_some_and(is_synced) {
            let _ = self.wrote_since(epoch);
            self.link.changed(place.qid.path, epoch);
            self.said_at.store(syncs, Ordering::Relaxed);
        }
    }

    /// The same of its size or its attributes, which no flag makes durable at once.
    pub(crate) fn changed(&self, epoch: u64) {
        if self.is_open() {
            let _ = self.wrote_since(epoch);
        }
        self.link.changed(self.place().qid.path, epoch);
    }

    /// Names in this directory were changed.
    pub(crate) fn names_changed(&self, epoch: u64) {
        self.link.changed(self.place().qid.path, epoch);
    }

    /// From now on, if the locks of `lead` are lost, this is lost too.
    pub(crate) fn follows(&self, lead: &Arc<Held>) {
        let _ = self.lead.set(Arc::downgrade(lead));
    }

    fn has_lead_lost(&self) -> bool {
        let lead = self.lead.get().and_then(Weak::upgrade);
        lead.is_some_and(|lead| lead.is_spoilt_by(Errno::IO))
    }

    fn wrote_since(&self, epoch: u64) -> Result<u64, u64> {
        self.unsynced
            .compare_exchange(0, epoch, Ordering::Relaxed, Ordering::Relaxed)
    }

    /// Makes all that was written durable with `sync`, which returns the epoch of the node that did it. If that is another one than had
    /// acknowledged it, that one's memory may be lost, and what was in it: EIO, once.
    pub(crate) fn synced(&self, sync: impl FnOnce() -> Result<u64, Errno>) -> Result<(), Errno> {
        // What is written meanwhile belongs to the next sync.
        let since = self.unsynced.swap(0, Ordering::Relaxed);
        let file = self.place().qid.path;
        let before = self.link.take_changed(file);
        let epoch = sync().inspect_err(|_| {
            let _ = self.wrote_since(since);
            self.link.changed(file, before);
        })?;
        let is_kept = |since: u64| since == 0 || epoch == 0 || since == epoch;
        match is_kept(since) && is_kept(before) {
            true => Ok(()),
            false => Err(Errno::IO),
        }
    }

    /// The node has forgotten the fid, or the clunk that was to make it so got no answer.
    pub(crate) fn clunked(&self, answer: &Result<Answer, Error>) {
        if matches!(answer, Ok(_) | Err(Error::Server(_))) {
            self.gone();
        }
    }

    /// The connection on which the node may know it.
    pub(crate) fn connection(&self) -> Option<Arc<Connection>> {
        self.place().at.upgrade()
    }

    /// The node has forgotten the fid by itself.
    pub(crate) fn gone(&self) {
        self.place().nowhere();
        self.spoil(Errno::STALE);
    }

    /// Whose root it is.
    pub(crate) fn user(&self) -> u32 {
        self.place().uid.unwrap_or(u32::MAX)
    }

    fn known(&self, place: &mut Place, connection: &Arc<Connection>) {
        place.at = Arc::downgrade(connection);
        (place.moved, place.unsure) = (false, false);
        self.ready_on
            .store(connection.generation, Ordering::Release);
    }

    /// Makes sure that the node knows the fid on this connection.
    pub(crate) fn ready(&self, connection: &Arc<Connection>) -> Result<(), Error> {
        match self.spoilt.load(Ordering::Acquire) {
            0 => {}
            errno => return Err(Error::Server(Errno(errno))),
        }
        // What is open was claimed before anybody got the connection, the lead too.
        if self.has_lead_lost() {
            return Err(Error::Server(Errno::IO));
        }
        match self.is_ready(connection) {
            true => Ok(()),
            false => self.claim_now(connection),
        }
    }

    /// A plain node: the path of this file has changed with that of `old`, to `new`.
    pub(crate) fn follow(&self, old: &[u8], new: &[u8]) {
        let mut place = self.place();
        let Some(rest) = place.path.strip_prefix(old) else {
            return;
        };
        if !(rest.is_empty() || rest[0] == b'/') || place.uid.is_some() {
            return;
        }
        place.path = [new, rest].concat();
        if place.open.is_none() {
            place.moved = true;
            self.ready_on.store(0, Ordering::Release);
        }
    }

    /// Lets the node forget the fid, and says when its number may be used again.
    fn clunk(&self, place: &Place) -> Freed {
        let Some(connection) = place.at.upgrade() else {
            return Freed::Now;
        };
        let fid = self.fid;
        match connection.client.submit(Request::Clunk { fid }) {
            Ok(ticket) if !place.unsure => Freed::With(ticket),
            Err(Error::Lost { .. }) => Freed::Now,
            // The clunk may overtake the request of which nobody knows, or could not be sent.
            _ => Freed::Never,
        }
    }
}

/// When the number of a fid may be used again.
pub(crate) enum Freed {
    Now,
    With(Ticket),
    Never,
}

impl Drop for Held {
    fn drop(&mut self) {
        let place = self.place.get_mut().unwrap_or_else(PoisonError::into_inner);
        let place = std::mem::take(place);
        // Whoever opens it again, and syncs it, is told what became of it.
        self.link.changed(place.qid.path, *self.unsynced.get_mut());
        self.link.leave(self.fid, self.clunk(&place));
    }
}
