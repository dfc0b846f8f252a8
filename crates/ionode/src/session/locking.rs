//! Locks, as the protocol asks for them.

use super::{Answer, Session};
use crate::error::Result;
use crate::locks::{Client, Known, Owner, Wanted};
use crate::once::Instance;
use presagio_ninep::extension::SHARED_OWNER;
use presagio_ninep::{Dialect, Errno, Fid, LockFlags, LockStatus, LockType, Reply, Text};
use rustix::fs::OFlags;

/// The longest name of an owner. The node keeps it for as long as a lock.
const NAME_MAX: usize = 1024;

/// A range, as the protocol has it: no length means to the end, whatever that will be.
pub struct LockRange {
    pub start: u64,
    pub length: u64,
}

/// Who asks, as the protocol has it.
pub struct Asker<'a> {
    pub process: u32,
    pub client: Text<'a>,
}

impl Session {
    pub(super) fn lock(
        &self,
        fid: Fid,
        kind: LockType,
        flags: LockFlags,
        range: &LockRange,
        asker: &Asker<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<()> {
        let reclaim = flags.contains(LockFlags::RECLAIM);
        let (held, wanted) = self.wanted(fid, kind, range, asker, reclaim)?;
        self.node.act_as_node()?;
        let open = || {
            let both = self.node.export.open(&held.place, OFlags::RDWR);
            let fd = both.or_else(|_| self.node.export.open(&held.place, OFlags::RDONLY))?;
            Ok(fd)
        };
        // The client may have been lost while others had the file, and may have come again. It repeats what it still wants.
        let still_asked = || self.enter().is_some() && !self.fids().has_ended();
        let (key, own) = (held.place.key(), self.node.own.as_ref());
        let locks = &self.node.locks;
        let status = locks.set(key, &wanted, own, still_asked, open);
        // A lock that was given when its session was over waits for its client like those before it.
        if self.fids().has_ended() {
            self.lost(&held);
        }
        answer.reply(Reply::Lock {
            status: self.understood(status),
        })
    }

    /// Linux's client takes "grace" for "cannot be had".
    fn understood(&self, status: LockStatus) -> LockStatus {
        match (status, self.dialect) {
            (LockStatus::Grace, Dialect::Linux) => LockStatus::Blocked,
            (status, _) => status,
        }
    }

    pub(super) fn get_lock(
        &self,
        fid: Fid,
        kind: LockType,
        range: &LockRange,
        asker: &Asker<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<()> {
        let (held, wanted) = self.wanted(fid, kind, range, asker, false)?;
        let Some(lock) = self.node.locks.conflict(held.place.key(), &wanted) else {
            return answer.reply(Reply::GetLock {
                lock_type: LockType::Unlock,
                start: range.start,
                length: range.length,
                process: asker.process,
                client: asker.client,
            });
        };
        answer.reply(Reply::GetLock {
            lock_type: if lock.exclusive {
                LockType::Write
            } else {
                LockType::Read
            },
            start: lock.start,
            length: if lock.end == u64::MAX {
                0
            } else {
                lock.end - lock.start
            },
            process: lock.owner.process,
            client: Text::new(&lock.owner.name).map_err(|_| Errno::IO)?,
        })
    }

    fn wanted(
        &self,
        fid: Fid,
        kind: LockType,
        range: &LockRange,
        asker: &Asker<'_>,
        reclaim: bool,
    ) -> Result<(std::sync::Arc<super::Held>, Wanted)> {
        let held = self.held(fid)?;
        let file = held.file()?;
        let may = match kind {
            LockType::Read => file.read,
            LockType::Write => file.write,
            LockType::Unlock => true,
        };
        if !may {
            return Err(Errno::BADF);
        }
        let end = match range.length {
            0 => u64::MAX,
            length => range.start.checked_add(length).ok_or(Errno::INVAL)?,
        };
        let name = asker.client.bytes();
        if name.len() > NAME_MAX {
            return Err(Errno::INVAL);
        }
        let client = match self.known() {
            Some(known) => Client::Known(known),
            None => Client::Session(self.number),
        };
        let is_shared = self.known().is_some() && name.starts_with(SHARED_OWNER.as_bytes());
        let owner = Owner {
            uid: held.user.uid,
            client: (!is_shared).then_some(client),
            name: name.into(),
            process: asker.process,
        };
        let wanted = Wanted {
            owner,
            client,
            through: file.number,
            kind,
            start: range.start,
            end,
            reclaim,
        };
        Ok((held, wanted))
    }

    /// A client of whose session this is is dead: nobody has to wait for what it held for the user that attached first here.
    pub(super) fn died(&self, instance: Instance, answer: &mut Answer<'_>) -> Result<()> {
        let user = self.user.get().ok_or(Errno::PERM)?;
        let uid = self.owner().ok_or(Errno::PERM)?;
        self.node.act_as_node()?;
        self.node.locks.died(Known { instance, uid }, user.uid);
        answer.reply(Reply::Died)
    }
}
