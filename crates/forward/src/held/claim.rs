//! After a loss: makes a node know a file again, one that is used or all that are open.

use super::proof::Proof;
use super::{Held, Place, walk};
use crate::link::{CHECKED, Connection};
use crate::locks::Lock;
use presagio_ninep::client::{Answer, BATCH_MAX, Error};
use presagio_ninep::extension::ReopenFlags;
use presagio_ninep::{
    Errno, Fid, Handle, LockFlags, LockStatus, OpenFlags, Qid, Reply, Request, Text,
};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

/// A file whose handle is being redeemed. Nobody else looks at it meanwhile.
struct Claim<'h> {
    held: &'h Held,
    place: MutexGuard<'h, Place>,
    root: Fid,
    handle: Arc<[u8]>,
}

/// Claims up to [`BATCH_MAX`] open files with their locks. Only a lost connection is an error: what cannot be had again is
/// the error of those who use it.
pub(crate) fn together(connection: &Arc<Connection>, files: &[Arc<Held>]) -> Result<(), Error> {
    let mut claims = Vec::with_capacity(files.len());
    for held in files {
        match held.by_handle(connection)? {
            Some(claim) => claims.push(claim),
            None => held.claim(connection)?,
        }
    }
    let requests: Result<Vec<Request>, Error> = claims.iter().map(Claim::request).collect();
    let answers = connection.all_at_once(&requests?)?;
    let mut found = Vec::with_capacity(claims.len());
    for (claim, answer) in claims.into_iter().zip(answers) {
        found.extend(claim.settle(connection, answer)?);
    }
    reclaim_together(connection, found)
}

/// Claims the locks of all these files.
fn reclaim_together(connection: &Arc<Connection>, mut found: Vec<Claim<'_>>) -> Result<(), Error> {
    let locks = |claim: &Claim<'_>| claim.place.locks.all().to_vec();
    let wanted: Vec<(usize, Lock)> = found
        .iter()
        .enumerate()
        .flat_map(|(index, claim)| locks(claim).into_iter().map(move |lock| (index, lock)))
        .collect();
    for some in wanted.chunks(BATCH_MAX) {
        let owners: Vec<String> = some
            .iter()
            .map(|(index, lock)| lock.owner.client(&found[*index].held.link))
            .collect();
        let requests: Result<Vec<Request>, Error> = some
            .iter()
            .zip(&owners)
            .map(|((index, lock), owner)| {
                found[*index]
                    .held
                    .lock_request(lock, owner, LockFlags::RECLAIM)
            })
            .collect();
        let answers = connection.all_at_once(&requests?)?;
        for ((index, _), answer) in some.iter().zip(answers) {
            let claim = &mut found[*index];
            // The one that uses it is told.
            match claim
                .held
                .is_reclaimed(&mut claim.place, answer.map(status))
            {
                Ok(()) | Err(Error::Server(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

impl Claim<'_> {
    fn request(&self) -> Result<Request<'_>, Error> {
        self.held.reopening(self.root, &self.place, &self.handle)
    }

    /// Takes the answer: itself, if the node knows the file now.
    fn settle(
        mut self,
        connection: &Arc<Connection>,
        answer: Result<Answer, Error>,
    ) -> Result<Option<Self>, Error> {
        let found = answer.map(drop);
        match self.held.settle(&mut self.place, connection, found) {
            Ok(()) => Ok(Some(self)),
            Err(Error::Server(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// As what a file is opened again.
fn flags_of(place: &Place) -> ReopenFlags {
    ReopenFlags::new(place.open.unwrap_or(OpenFlags::PATH))
}

fn status(answer: Answer) -> LockStatus {
    match answer.reply() {
        Reply::Lock { status } => status,
        _ => unreachable!("{CHECKED}"),
    }
}

impl Held {
    /// The claim of a file that the node does not know and that has a handle, if its user's root could be attached.
    fn by_handle(&self, connection: &Arc<Connection>) -> Result<Option<Claim<'_>>, Error> {
        let Some(root) = self.root.as_ref().filter(|_| connection.is_presagio()) else {
            return Ok(None);
        };
        match root.ready(connection) {
            Ok(()) => {}
            Err(Error::Server(_)) => return Ok(None),
            Err(error) => return Err(error),
        }
        let mut place = self.place();
        let is_known = self.is_ready(connection);
        let is_spoilt = self.spoilt.load(Ordering::Acquire) != 0;
        let Some(handle) = place.handle.clone().filter(|_| !is_known && !is_spoilt) else {
            return Ok(None);
        };
        place.at = Arc::downgrade(connection);
        place.unsure = true;
        Ok(Some(Claim {
            held: self,
            place,
            root: root.fid,
            handle,
        }))
    }

    /// Claims an open file and its locks after a loss. Only a lost connection is an error: what cannot be had again is
    /// the error of those who use it.
    pub(crate) fn claim(&self, connection: &Arc<Connection>) -> Result<(), Error> {
        match self.ready(connection) {
            Err(Error::Server(_)) => Ok(()),
            other => other,
        }
    }

    pub(super) fn claim_now(&self, connection: &Arc<Connection>) -> Result<(), Error> {
        let mut place = self.place();
        if self.is_ready(connection) {
            return Ok(());
        }
        if place.moved && std::ptr::eq(place.at.as_ptr(), Arc::as_ptr(connection)) {
            let fid = self.fid;
            match connection.call(Request::Clunk { fid }) {
                Ok(_) | Err(Error::Server(_)) => {}
                Err(error) => return Err(error),
            }
        }
        place.at = Arc::downgrade(connection);
        place.unsure = true;
        let found = self.find(&mut place, connection);
        self.settle(&mut place, connection, found)?;
        self.reclaim(&mut place, connection)
    }

    /// The node knows the file, or does not.
    fn settle(
        &self,
        place: &mut Place,
        connection: &Arc<Connection>,
        found: Result<(), Error>,
    ) -> Result<(), Error> {
        match found {
            Ok(()) => {
                self.known(place, connection);
                Ok(())
            }
            Err(Error::Server(errno)) => {
                place.nowhere();
                Err(Error::Server(self.not_found(errno)))
            }
            Err(error) => Err(error),
        }
    }

    /// What users of a file get that could not be found again. One that is gone will not come back; one that is refused
    /// may be let in later.
    fn not_found(&self, errno: Errno) -> Errno {
        match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::STALE => {
                self.spoil(Errno::STALE);
                Errno::STALE
            }
            other => other,
        }
    }

    fn find(&self, place: &mut Place, connection: &Arc<Connection>) -> Result<(), Error> {
        let Some(root) = &self.root else {
            place.qid = self.attach(place, connection)?;
            return Ok(());
        };
        root.ready(connection)?;
        let handle = place.handle.clone();
        match handle.filter(|_| connection.is_presagio()) {
            Some(handle) => {
                connection.call(self.reopening(root.fid, place, &handle)?)?;
                Ok(())
            }
            None => self.walk_back(root, place, connection),
        }
    }

    fn attach(&self, place: &Place, connection: &Connection) -> Result<Qid, Error> {
        let uid = place.uid.unwrap_or(u32::MAX);
        let proof = match &self.link.options.credential {
            Some(credential) => Proof::give(&self.link, connection, uid, credential)?,
            None => None,
        };
        let answer = connection.call(Request::Attach {
            fid: self.fid,
            auth_fid: proof.as_ref().map_or(Fid::NONE, |proof| proof.fid),
            user: Text::new("")?,
            export: Text::new(&self.link.options.export)?,
            uid,
        })?;
        match answer.reply() {
            Reply::Attach { qid } => Ok(qid),
            _ => unreachable!("{CHECKED}"),
        }
    }

    fn reopening<'h>(
        &self,
        root: Fid,
        place: &Place,
        handle: &'h [u8],
    ) -> Result<Request<'h>, Error> {
        Ok(Request::Reopen {
            root,
            fid: self.fid,
            flags: flags_of(place),
            handle: Handle::new(handle)?,
        })
    }

    /// By its path, if that still leads to the same file; and opened as it was.
    fn walk_back(&self, root: &Held, place: &Place, connection: &Connection) -> Result<(), Error> {
        let fid = self.fid;
        let qid = walk::walk(connection, root.fid, fid, &place.path)?;
        let same = qid.is_none_or(|qid| qid.path == place.qid.path);
        let flags = place.open.map(|flags| ReopenFlags::new(flags).flags());
        let opened = match flags {
            _ if !same => Err(Error::Server(Errno::STALE)),
            Some(flags) => connection.call(Request::Open { fid, flags }).map(drop),
            None => Ok(()),
        };
        if let Err(Error::Server(_)) = opened {
            connection.call(Request::Clunk { fid })?;
        }
        opened
    }

    /// Claims the locks that were held; if one is lost, so is the file, for those who use it.
    fn reclaim(&self, place: &mut Place, connection: &Connection) -> Result<(), Error> {
        let locks = place.locks.all().to_vec();
        for lock in &locks {
            let status = match connection.is_presagio() {
                true => self.ask_lock(connection, lock, LockFlags::RECLAIM),
                // A plain node cannot say that nobody had it meanwhile.
                false => Ok(LockStatus::Error),
            };
            self.is_reclaimed(place, status)?;
        }
        Ok(())
    }

    fn is_reclaimed(
        &self,
        place: &mut Place,
        status: Result<LockStatus, Error>,
    ) -> Result<(), Error> {
        match status {
            Ok(LockStatus::Success) => Ok(()),
            Ok(_) | Err(Error::Server(_)) => {
                tracing::warn!(fid = %self.fid, "a lock was lost: its file answers EIO");
                place.locks.clear();
                self.spoil(Errno::IO);
                Err(Error::Server(Errno::IO))
            }
            Err(error) => {
                // The node may know the fid, and this connection is not to be used again.
                self.ready_on.store(0, Ordering::Release);
                Err(error)
            }
        }
    }

    pub(crate) fn ask_lock(
        &self,
        connection: &Connection,
        lock: &Lock,
        flags: LockFlags,
    ) -> Result<LockStatus, Error> {
        let owner = lock.owner.client(&self.link);
        let request = self.lock_request(lock, &owner, flags)?;
        connection.call(request).map(status)
    }

    fn lock_request<'r>(
        &self,
        lock: &Lock,
        owner: &'r str,
        flags: LockFlags,
    ) -> Result<Request<'r>, Error> {
        Ok(Request::Lock {
            fid: self.fid,
            lock_type: lock.kind,
            flags,
            start: lock.span.start,
            length: lock.span.length(),
            process: lock.owner.process,
            client: Text::new(owner)?,
        })
    }
}
