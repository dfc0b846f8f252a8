//! The order of a connection's requests: those that name the same fid are done one after the other, as they came. So a
//! client may send a walk, and what it does with the new fid, without waiting in between. Reads and writes of a file
//! wait for what came before them, and not for each other.

use presagio_core::IdBuildHasher;
use presagio_ninep::{Fid, Request, Tag};
use smallvec::{SmallVec, smallvec};
use std::collections::{HashMap, VecDeque};

/// The fids that a request names.
pub type Named = SmallVec<[Fid; 2]>;

/// Who waits for whom.
#[derive(Default)]
pub struct Order(HashMap<u32, VecDeque<Tag>, IdBuildHasher>);

impl Order {
    /// Whether somebody is at a fid, or waits for it.
    pub fn is_busy(&self, fid: Fid) -> bool {
        !self.0.is_empty() && self.0.contains_key(&fid.0)
    }

    /// A request comes. True if it is the first everywhere, and may be done.
    pub fn enter(&mut self, tag: Tag, fids: &[Fid]) -> bool {
        for fid in fids {
            self.0.entry(fid.0).or_default().push_back(tag);
        }
        self.is_first(tag, fids)
    }

    /// Whether a request that has come may be done.
    pub fn is_first(&self, tag: Tag, fids: &[Fid]) -> bool {
        let first = |fid: &Fid| self.0.get(&fid.0).and_then(VecDeque::front) == Some(&tag);
        fids.iter().all(first)
    }

    /// A request is done. Returns those that are the first somewhere now.
    pub fn leave(&mut self, tag: Tag, fids: &[Fid]) -> SmallVec<[Tag; 2]> {
        let mut next = SmallVec::new();
        for fid in fids {
            let Some(queue) = self.0.get_mut(&fid.0) else {
                continue;
            };
            queue.retain(|other| *other != tag);
            match queue.front() {
                Some(first) => next.push(*first),
                None => drop(self.0.remove(&fid.0)),
            }
        }
        next
    }

    /// Nobody waits for anything any more.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// The fids that a request names, each once.
pub fn named(request: &Request<'_>) -> Named {
    let mut fids: Named = match *request {
        Request::Walk { fid, new_fid, .. } | Request::XattrWalk { fid, new_fid, .. } => {
            smallvec![fid, new_fid]
        }
        Request::Rename { fid, dir, .. } | Request::Link { fid, dir, .. } => smallvec![fid, dir],
        Request::RenameAt {
            old_dir, new_dir, ..
        } => smallvec![old_dir, new_dir],
        Request::Reopen { root, fid, .. } => smallvec![root, fid],
        Request::Symlink { dir, .. }
        | Request::Mknod { dir, .. }
        | Request::Mkdir { dir, .. }
        | Request::UnlinkAt { dir, .. } => smallvec![dir],
        Request::Auth { auth_fid, .. } => smallvec![auth_fid],
        Request::Attach { fid, auth_fid, .. } => smallvec![fid, auth_fid],
        Request::StatFs { fid }
        | Request::Open { fid, .. }
        | Request::Create { fid, .. }
        | Request::ReadLink { fid }
        | Request::GetAttr { fid, .. }
        | Request::SetAttr { fid, .. }
        | Request::XattrCreate { fid, .. }
        | Request::ReadDir { fid, .. }
        | Request::Fsync { fid, .. }
        | Request::Lock { fid, .. }
        | Request::GetLock { fid, .. }
        | Request::Read { fid, .. }
        | Request::Write { fid, .. }
        | Request::Clunk { fid }
        | Request::Remove { fid }
        | Request::Handle { fid } => smallvec![fid],
        Request::Once { request, .. } => named(&request.request()),
        Request::Version { .. }
        | Request::Flush { .. }
        | Request::Hello { .. }
        | Request::Foresee { .. }
        | Request::Died { .. } => smallvec![],
    };
    fids.retain(|fid| *fid != Fid::NONE);
    fids.dedup();
    fids
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn requests_of_a_fid_are_done_as_they_came_and_none_is_forgotten(
            requests in proptest::collection::vec((0u32..4, 0u32..4), 1..40),
            picks in proptest::collection::vec(any::<usize>(), 40),
        ) {
            let all: Vec<Named> = requests.iter().map(|(a, b)| {
                let mut fids: Named = smallvec![Fid(*a), Fid(*b)];
                fids.dedup();
                fids
            }).collect();
            let mut order = Order::default();
            let mut running: Vec<usize> = (0..all.len())
                .filter(|at| order.enter(Tag(*at as u16), &all[*at]))
                .collect();
            let mut done = Vec::new();
            let mut picks = picks.into_iter();
            while !running.is_empty() {
                let at = running.swap_remove(picks.next().unwrap_or(0) % running.len());
                for next in order.leave(Tag(at as u16), &all[at]) {
                    let next = usize::from(next.0);
                    if order.is_first(Tag(next as u16), &all[next]) && !running.contains(&next) {
                        running.push(next);
                    }
                }
                done.push(at);
            }
            prop_assert_eq!(done.len(), all.len());
            for fid in (0..4).map(Fid) {
                let of_fid = done.iter().filter(|at| all[**at].contains(&fid));
                prop_assert!(of_fid.is_sorted());
            }
            prop_assert!(!order.is_busy(Fid(0)));
        }
    }
}
