//! Locks on byte ranges.

use super::{File, reply};
use crate::link::Link;
use crate::locks::{Lock, Span};
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
        let name = &link.options.identity.client;
        let owners = link.options.owners.unwrap_or(link.instance);
        format!("{name}/{owners}/{:x}", self.key)
    }
}

impl File {
    /// Takes a lock on a file that is open, or gives it back, without waiting: `Blocked` if somebody has it, `Grace` if the
    /// node came back a moment ago and serves only those who had locks before.
    pub fn lock(&self, owner: Owner, kind: LockType, span: Span) -> Result<LockStatus, Errno> {
        let held = &self.held;
        let lock = Lock { owner, kind, span };
        let status = held.link.repeat(&[held], |connection| {
            let status = held.ask_lock(connection, &lock, LockFlags(0))?;
            if status == LockStatus::Success {
                // Before anything can be lost: a connection that breaks now takes it along.
                held.place().locks.set(&owner, kind, span);
            }
            Ok(status)
        });
        if status.is_err() && kind == LockType::Unlock {
            held.forget_locks(&owner);
        }
        match status? {
            LockStatus::Error => Err(NO_LOCKS),
            status => Ok(status),
        }
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

    /// The owners of locks that were taken through this open file.
    pub fn lock_owners(&self) -> Vec<Owner> {
        self.held.place().locks.owners()
    }
}
