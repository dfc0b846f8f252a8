//! Requests about names: walking, linking, renaming, removing, listing.

use super::{Answer, Held, Open, Session};
use crate::error::Result;
use crate::export;
use crate::export::Place;
use presagio_ninep::reply::readdir_head;
use presagio_ninep::{Errno, Fid, List, Name, Qid, Reply, Step, UnlinkFlags};
use smallvec::SmallVec;
use std::sync::{Arc, PoisonError};

/// Bytes before the entries of an `Rreaddir`.
pub const LIST_HEAD: usize = 11;

/// The largest `Rreaddir`, however much is asked for: who wants more asks again, and what nobody reads stays small.
const LIST_MAX: u32 = 64 << 10;

impl Session {
    pub(super) fn walk<const N: usize>(
        &self,
        fid: Fid,
        new_fid: Fid,
        steps: List<'_, Step<'_>, N>,
        answer: &mut Answer<'_>,
    ) -> Result<()> {
        let from = self.acting(fid)?;
        let wanted = steps.len();
        let mut at = from.walkable()?.clone();
        let mut qids = SmallVec::<[Qid; 4]>::new();
        for step in steps.iter() {
            match self.node.export.step(&at, step) {
                Ok((next, stat)) => {
                    qids.push(self.node.export.qid(&stat));
                    at = next;
                }
                // Only the first step's failure is an error: later ones show in the number of qids.
                Err(error) if qids.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        if qids.len() == wanted {
            self.arrive(fid, new_fid, &from, at)?;
        }
        let qids = List::new(&qids).map_err(|_| Errno::PROTO)?;
        answer.reply(Reply::Walk { qids })
    }

    fn arrive(&self, fid: Fid, new_fid: Fid, from: &Held, place: Place) -> Result<()> {
        let held = Held {
            place,
            user: from.user.clone(),
            open: Open::No,
        };
        if fid != new_fid {
            return self.fids().insert(new_fid, held);
        }
        // It may have been open.
        let before = self.fids().replace(fid, held)?;
        self.closed(&before);
        Ok(())
    }

    pub(super) fn clunk(&self, fid: Fid, answer: &mut Answer<'_>) -> Result<()> {
        let held = self.fids().remove(fid)?;
        if let Open::NewXattr(value) = &held.open {
            self.set_xattr(&held, value)?;
        }
        self.closed(&held);
        answer.reply(Reply::Clunk)
    }

    pub(super) fn read_dir(
        &self,
        fid: Fid,
        offset: u64,
        count: u32,
        answer: &mut Answer<'_>,
    ) -> Result<()> {
        let held = self.acting(fid)?;
        let Open::Dir(dir) = &held.open else {
            return Err(Errno::BADF);
        };
        // One reader at a time: the descriptor has one position.
        let dir = dir.lock().unwrap_or_else(PoisonError::into_inner);
        let count = self.list_max(count);
        let start = answer.out.len();
        answer.out.extend_from_slice(&[0; LIST_HEAD]);
        let limit = start + LIST_HEAD + count;
        let root = self.node.export.root().key();
        let out = &mut *answer.out;
        export::list(
            std::os::fd::AsFd::as_fd(&*dir),
            &held.place,
            root,
            offset,
            out,
            limit,
        )?;
        let bytes = answer.out.len() - start - LIST_HEAD;
        let head = readdir_head(answer.tag, bytes as u32);
        answer.out[start..start + LIST_HEAD].copy_from_slice(&head);
        Ok(())
    }

    /// Bytes of entries that are given to who asks for `count`.
    pub fn list_max(&self, count: u32) -> usize {
        let whole = self.msize.min(LIST_MAX) as usize;
        whole.saturating_sub(LIST_HEAD).min(count as usize)
    }

    /// The directory in which something is made, by a thread that acts as its holder, for a group of the holder's.
    pub(super) fn making(&self, dir: Fid, gid: u32) -> Result<Arc<Held>> {
        let held = self.held(dir)?;
        match gid == held.user.gid || gid == u32::MAX {
            true => self.node.power.act_as(&held.user)?,
            false => self
                .node
                .power
                .act_as(&Arc::new(held.user.with_group(gid)))?,
        }
        Ok(held)
    }

    pub(super) fn link(
        &self,
        dir: Fid,
        fid: Fid,
        name: Name<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<()> {
        let held = self.held(fid)?;
        let dir = self.acting(dir)?;
        if self.node.is_nameless(held.place.key()) {
            return Err(Errno::NOENT);
        }
        self.node.export.link(&held.place, dir.dir()?, name)?;
        answer.reply(Reply::Link)
    }

    /// Renames a fid: what it was reached by, if that is still it.
    pub(super) fn rename(
        &self,
        fid: Fid,
        dir: Fid,
        name: Name<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<()> {
        let held = self.held(fid)?;
        let new_dir = self.acting(dir)?;
        let (old_dir, old) = self.still_at(&held.place)?;
        let old = Name::new(&old).map_err(|_| Errno::INVAL)?;
        self.node
            .move_name(&new_dir.user, (&old_dir, old), (new_dir.dir()?, name))?;
        self.fids()
            .replace(fid, held.moved(new_dir.dir()?, name.bytes()))?;
        answer.reply(Reply::Rename)
    }

    pub(super) fn rename_at(&self, old: (Fid, Name<'_>), new: (Fid, Name<'_>)) -> Result<()> {
        let old_dir = self.acting(old.0)?;
        let new_dir = self.held(new.0)?;
        let (from, to) = ((old_dir.dir()?, old.1), (new_dir.dir()?, new.1));
        self.node.move_name(&old_dir.user, from, to)
    }

    pub(super) fn unlink_at(
        &self,
        dir: Fid,
        name: Name<'_>,
        flags: UnlinkFlags,
        answer: &mut Answer<'_>,
    ) -> Result<()> {
        let dir = self.acting(dir)?;
        let is_dir = flags.contains(UnlinkFlags::REMOVEDIR);
        self.node.remove_name(&dir.user, dir.dir()?, name, is_dir)?;
        answer.reply(Reply::UnlinkAt)
    }

    /// Removes what a fid stands for, and the fid in any case.
    pub(super) fn remove(&self, fid: Fid, answer: &mut Answer<'_>) -> Result<()> {
        let held = self.fids().remove(fid)?;
        self.closed(&held);
        self.node.power.act_as(&held.user)?;
        let (dir, name) = self.still_at(&held.place)?;
        let name = Name::new(&name).map_err(|_| Errno::INVAL)?;
        self.node
            .remove_name(&held.user, &dir, name, held.place.is_dir())?;
        answer.reply(Reply::Remove)
    }

    /// The directory and name of a place, if they still lead there.
    fn still_at(&self, place: &Place) -> Result<(Place, Vec<u8>)> {
        let reached = place.reached().ok_or(Errno(libc::EBUSY as u32))?;
        let dir = Place::again(&reached.dir)?;
        let name = Name::new(&*reached.name).map_err(|_| Errno::INVAL)?;
        let now = self.node.export.find(&dir, name)?;
        match now.key() == place.key() {
            true => Ok((dir, reached.name.to_vec())),
            false => Err(Errno::STALE),
        }
    }
}
