//! Locks on byte ranges.

use super::{File, reply};
use crate::link::Link;
use crate::locks::{Lock, Span};
use crate::options::Instance;
use presagio_ninep::client::Error;
use presagio_ninep::extension::SHARED_OWNER;
use presagio_ninep::{Errno, LockFlags, LockStatus, LockType, Reply, Request, Text};

/// No locks available.
const NO_LOCKS: Errno = Errno(37);

/// Who has a lock: what the same owner asks for never stands in its own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The process, as others are told.
    pub process: u32,
    /// Tells the owners of one client apart.
    pub key: u64,
}

impl Owner {
    /// The name by which the node knows it. It is the same on all connections.
    pub(crate) fn client(&self, link: &Link) -> String {
        let (name, instance) = (&link.options.identity.client, link.instance);
        match link.options.owners {
            Some(owners) => format!("{SHARED_OWNER}{owners}/{name}/{:x}", self.key),
            None => format!("{name}/{instance}/{:x}", self.key),
        }
    }
}

impl File {
    /// Takes a lock on a file that is open, or gives it back, without waiting: `Blocked` if somebody has it, `Grace` if the
    /// node came back a moment ago and serves only those who had locks before.
    pub fn lock(&self, owner: Owner, kind: LockType, span: Span) -> Result<LockStatus, Errno> {
        match self.ask_for(&Lock { owner, kind, span }, LockFlags(0))? {
            LockStatus::Error => Err(NO_LOCKS),
            status => Ok(status),
        }
    }

    /// Takes part in a lock that its owner has had through another client without a break. `false` if it may have been
    /// somebody else's meanwhile, or the node cannot tell.
    pub fn share_lock(&self, owner: Owner, kind: LockType, span: Span) -> Result<bool, Errno> {
        let knows = self.held.link.current();
        if !knows.is_some_and(|connection| connection.is_presagio()) {
            return Ok(false);
        }
        let status = self.ask_for(&Lock { owner, kind, span }, LockFlags::RECLAIM)?;
        Ok(status == LockStatus::Success)
    }

    fn ask_for(&self, lock: &Lock, flags: LockFlags) -> Result<LockStatus, Errno> {
        let held = &self.held;
        let Lock { owner, kind, span } = *lock;
        if kind != LockType::Unlock {
            held.link.tell_witness();
        }
        held.link.repeat(&[held], |connection| {
            let was = held.place().locks.weaken(&owner, kind, span);
            let status = held.ask_lock(connection, lock, flags);
            let mut place = held.place();
            match &status {
                // Before anything can be lost: a connection that breaks now takes it along.
                Ok(LockStatus::Success) => place.locks.set(&owner, kind, span),
                // Not done, and not on its way. Who has claimed it elsewhere meanwhile has claimed it as it was then.
                Ok(_) | Err(Error::Server(_) | Error::Full(_)) if held.is_ready(connection) => {
                    place.locks.put_back(&was);
                }
                _ => {}
            }
            status
        })
    }

    /// The lock that would be in the way of such a one, if there is one: its type, span and process.
    pub fn get_lock(
        &self,
        owner: Owner,
        kind: LockType,
        span: Span,
    ) -> Result<Option<(LockType, Span, u32)>, Errno> {
        let client = owner.client(&self.held.link);
        let answer = self.ask(Request::GetLock {
            fid: self.held.fid,
            lock_type: kind,
            start: span.start,
            length: span.length(),
            process: owner.process,
            client: Text::new(&client).map_err(|_| Errno::INVAL)?,
        })?;
        Ok(
            reply!(answer, Reply::GetLock { lock_type, start, length, process, .. } => {
                let end = match length {
                    0 => u64::MAX,
                    length => start.saturating_add(length),
                };
                (lock_type != LockType::Unlock).then_some((lock_type, Span { start, end }, process))
            }),
        )
    }

    /// Tells the node that another client of this user is dead.
    pub(crate) fn died(&self, instance: Instance) -> Result<(), Errno> {
        let connection = self.held.link.current().ok_or(Errno::IO)?;
        if !connection.is_presagio() {
            return Ok(());
        }
        let answer = self.ask(Request::Died {
            instance: instance.0,
        })?;
        reply!(answer, Reply::Died => Ok(()))
    }

    /// Lets the node forget it, and waits until it has: what was locked through it is free then.
    pub fn close(self) {
        let held = &self.held;
        if let Some(connection) = held.connection() {
            held.clunked(&connection.call(Request::Clunk { fid: held.fid }));
        }
    }

    /// The number by which the node knows us as whoever holds these locks.
    pub fn client(&self) -> Instance {
        self.held.link.current_instance()
    }

    /// What an owner has locked through this open file.
    pub fn locks_of(&self, owner: Owner) -> Vec<(LockType, Span)> {
        let place = self.held.place();
        let all = place.locks.all().iter();
        let mine = all.filter(|lock| lock.owner == owner);
        mine.map(|lock| (lock.kind, lock.span)).collect()
    }

    /// Whether locks that were taken through it are lost, and it is of no use any more.
    pub fn has_lost_lock(&self) -> bool {
        self.held.is_spoilt_by(Errno::IO)
    }

    /// The node that we talk to about it, by its index in the list; `None` if that is the last resort.
    pub fn node(&self) -> Option<usize> {
        self.held.link.node()
    }

    /// The owners of locks that were taken through this open file.
    pub fn lock_owners(&self) -> Vec<Owner> {
        self.held.place().locks.owners()
    }
}
