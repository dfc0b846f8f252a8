//! Walking: a new fid that stands for what lies some steps from another.

use super::{Held, Place};
use crate::link::{CHECKED, Connection};
use presagio_ninep::client::{Answer, Error};
use presagio_ninep::request::WALK_MAX;
use presagio_ninep::{Errno, Fid, List, Qid, Reply, Request, Step};
use std::sync::Arc;

/// The steps of a path.
pub(crate) fn steps(path: &[u8]) -> Result<Vec<Step<'_>>, Errno> {
    let names = path.split(|byte| *byte == b'/');
    let names = names.filter(|name| !name.is_empty());
    let steps: Result<_, _> = names.map(Step::new).collect();
    steps.map_err(|_| Errno::INVAL)
}

/// A walk of one message.
#[derive(Clone)]
pub(crate) struct Walk<'r> {
    of: &'r Held,
    pub(crate) new: &'r Arc<Held>,
    steps: List<'r, Step<'r>, WALK_MAX>,
    /// Where the new fid is then.
    path: Vec<u8>,
}

impl<'r> Walk<'r> {
    /// `None` if it takes more than one message.
    pub(crate) fn new(
        of: &'r Held,
        new: &'r Arc<Held>,
        steps: &'r [Step<'r>],
        path: Vec<u8>,
    ) -> Option<Walk<'r>> {
        let steps = List::new(steps).ok()?;
        Some(Walk {
            of,
            new,
            steps,
            path,
        })
    }

    /// Another fid of the same file.
    pub(crate) fn nowhere(of: &'r Held, new: &'r Arc<Held>) -> Walk<'r> {
        Walk::new(of, new, &[], Vec::new()).expect("no steps fit into a message")
    }

    pub(crate) fn is_nowhere(&self) -> bool {
        self.steps.is_empty()
    }

    pub(crate) fn request(&self) -> Request<'r> {
        Request::Walk {
            fid: self.of.fid,
            new_fid: self.new.fid,
            steps: self.steps,
        }
    }

    /// What the answer says: the qids, if the new fid stands for what was walked to; `None` if it ended early.
    pub(crate) fn arrived(
        &self,
        connection: &Arc<Connection>,
        answer: Result<Answer, Error>,
    ) -> Result<Option<Vec<Qid>>, Error> {
        let answer = self.new.unless_refused(answer)?;
        let Reply::Walk { qids } = answer.reply() else {
            unreachable!("{CHECKED}");
        };
        let place = match qids.iter().last() {
            _ if qids.len() < self.steps.len() => {
                self.new.stands_for_nothing();
                return Ok(None);
            }
            Some(qid) => Place::at(qid, self.path.clone()),
            None => self.of.copy_place(),
        };
        self.new.stands_for(connection, place);
        Ok(Some(qids.iter().collect()))
    }
}

/// Lets `new_fid` stand for what lies at `path` from `fid`; the qid of that, if there was a step to it.
pub(crate) fn walk(
    connection: &Connection,
    fid: Fid,
    new_fid: Fid,
    path: &[u8],
) -> Result<Option<Qid>, Error> {
    let steps = steps(path).map_err(Error::Server)?;
    match walk_far(connection, fid, new_fid, &steps)? {
        (_, Some(errno)) => Err(Error::Server(errno)),
        (qids, None) => Ok(qids.last().copied()),
    }
}

/// Lets `new_fid` stand for what lies so many steps from `fid`: the qids on the way, and why it ended early if it did.
/// Then the new fid stands for nothing.
pub(crate) fn walk_far(
    connection: &Connection,
    fid: Fid,
    new_fid: Fid,
    steps: &[Step<'_>],
) -> Result<(Vec<Qid>, Option<Errno>), Error> {
    let mut qids = Vec::with_capacity(steps.len());
    let mut from = fid;
    let (first, rest) = steps.split_at(steps.len().min(WALK_MAX));
    for some in std::iter::once(first).chain(rest.chunks(WALK_MAX)) {
        let ended = match take_steps(connection, from, new_fid, some) {
            Ok(answer) => {
                let before = qids.len();
                let Reply::Walk { qids: walked } = answer.reply() else {
                    unreachable!("{CHECKED}");
                };
                qids.extend(walked.iter());
                (qids.len() < before + some.len()).then_some(Errno::NOENT)
            }
            Err(Error::Server(errno)) => Some(errno),
            Err(error) => return Err(error),
        };
        if ended.is_some() {
            if from == new_fid {
                // It stays where it was.
                connection.call(Request::Clunk { fid: new_fid })?;
            }
            return Ok((qids, ended));
        }
        // A fid may walk on by itself.
        from = new_fid;
    }
    Ok((qids, None))
}

fn take_steps(
    connection: &Connection,
    fid: Fid,
    new_fid: Fid,
    steps: &[Step<'_>],
) -> Result<Answer, Error> {
    connection.call(Request::Walk {
        fid,
        new_fid,
        steps: List::new(steps)?,
    })
}
