//! One file or directory of the export, for one user.

mod attributes;
mod data;
mod locking;
mod names;
mod opening;

pub use crate::locks::Span;
pub use locking::Owner;
pub use names::Listed;
pub(crate) use opening::as_it_was;

use crate::held::{self, Held, Place, Walk};
use crate::link::{Connection, Link, next};
use crate::remote::Inner;
use presagio_ninep::client::{Answer, Ask, Error};
use presagio_ninep::{Attr, Errno, GetAttr, List, Name, Qid, Reply, Request, Step};
use std::fmt;
use std::sync::Arc;

/// What is asked for of a file's attributes.
const WANTED_ATTR: GetAttr = GetAttr(GetAttr::BASIC.0 | GetAttr::BTIME.0);

/// A file or directory, as one user has it; open if it comes from [`open`](File::open) or [`create`](File::create).
/// Many threads may use it at once. Dropping it lets the node forget it.
#[derive(Clone)]
pub struct File {
    pub(crate) held: Arc<Held>,
    pub(crate) remote: Arc<Inner>,
}

/// How far a walk went.
#[derive(Clone, Debug)]
pub struct Far {
    /// What the names that were walked are of: of the first that is missing here, nothing is known but that it could not
    /// be walked.
    pub qids: Vec<Qid>,
    /// The file of the last name, if all of them were walked.
    pub file: Option<File>,
}

/// Takes what is wanted out of a reply.
macro_rules! reply {
    ($answer:expr, $reply:pat => $wanted:expr) => {
        match $answer.reply() {
            $reply => $wanted,
            _ => unreachable!("{}", crate::link::CHECKED),
        }
    };
}
pub(crate) use reply;

impl File {
    pub(crate) fn new(remote: &Arc<Inner>, held: Arc<Held>) -> File {
        let remote = remote.clone();
        File { held, remote }
    }

    /// What the node calls it.
    pub fn qid(&self) -> Qid {
        self.held.place().qid
    }

    /// Its path from the root of the export when it was last seen. Only a hint where others rename too.
    pub fn path(&self) -> Vec<u8> {
        self.held.place().path.clone()
    }

    /// By what the node, or another one of the same export, finds it again; for [`Remote::reopen`](crate::Remote::reopen).
    pub fn handle(&self) -> Option<Arc<[u8]>> {
        self.held.place().handle.clone()
    }

    /// Whether the node can find it again whatever becomes of its name.
    pub fn has_handle(&self) -> bool {
        self.held.place().handle.is_some()
    }

    /// Asks something that may be asked twice.
    fn ask(&self, request: Request<'_>) -> Result<Answer, Errno> {
        let link = &self.held.link;
        link.repeat(&[&self.held], |connection| connection.call(request))
    }

    /// Makes sure that a node knows it, whatever that takes.
    pub fn check(&self) -> Result<(), Errno> {
        self.held.link.repeat(&[&self.held], |_| Ok(()))
    }

    /// What lies at a path from here; the same again if the path is empty.
    pub fn walk(&self, path: impl AsRef<[u8]>) -> Result<File, Errno> {
        Ok(self.walk_with(path.as_ref(), None)?.0)
    }

    /// The file of a name in this directory, and its attributes.
    pub fn lookup(&self, name: impl AsRef<[u8]>) -> Result<(File, Attr), Errno> {
        Name::new(&name).map_err(|_| Errno::INVAL)?;
        let (file, attr) = self.walk_with(name.as_ref(), Some(WANTED_ATTR))?;
        Ok((file, attr.ok_or(Errno::IO)?))
    }

    /// Whether a name in this directory still is of a file that we have: its attributes if so. Both are asked for at
    /// once, so that this takes half as long as [`lookup`](Self::lookup). Of nodes that go by paths it cannot be known.
    pub fn still(&self, name: &[u8], known: &File) -> Result<Option<Attr>, Errno> {
        let link = &self.held.link;
        if !known.has_handle() || !Arc::ptr_eq(link, &known.held.link) {
            return Ok(None);
        }
        let new = Held::new(link, Some(self.held.root()))?;
        let step = [Step::new(name).map_err(|_| Errno::INVAL)?];
        let walk = Request::Walk {
            fid: self.held.fid,
            new_fid: new.fid,
            steps: List::new(&step).map_err(|_| Errno::INVAL)?,
        };
        let getattr = Request::GetAttr {
            fid: known.held.fid,
            mask: WANTED_ATTR,
        };
        if known.check().is_err() {
            return Ok(None);
        }
        link.repeat(&[&self.held, &known.held], |connection| {
            new.begin(connection);
            let asks = [walk, getattr].map(Ask::new);
            let mut tickets = connection.client.submit_all(asks)?.into_iter();
            let mut wait = || tickets.next().expect("a ticket for each").wait();
            let (walked, attr) = (wait(), wait());
            let walked = new.unless_refused(walked)?;
            let qid = reply!(walked, Reply::Walk { qids } => qids.iter().last());
            let qid = qid.ok_or(Error::Server(Errno::NOENT))?;
            new.stands_for(connection, Place::at(qid, Vec::new()));
            let attr = match attr {
                // Gone, or whatever: the name says what is there now.
                Err(Error::Server(_)) => return Ok(None),
                attr => reply!(attr?, Reply::GetAttr { attr } => attr),
            };
            let same = (qid.kind, qid.path) == (attr.qid.kind, attr.qid.path);
            Ok((same && attr.nlink > 0).then_some(attr))
        })
    }

    fn walk_with(&self, path: &[u8], mask: Option<GetAttr>) -> Result<(File, Option<Attr>), Errno> {
        let link = &self.held.link;
        let new = Held::new(link, Some(self.held.root()))?;
        let steps = held::steps(path)?;
        let walk = Walk::new(&self.held, &new, &steps, self.path_of(path));
        let attr = link.repeat(&[&self.held], |connection| {
            new.begin(connection);
            match &walk {
                Some(walk) => walk_and_learn(connection, walk, mask),
                None => self.walk_on(connection, &new, path, mask),
            }
        })?;
        Ok((File::new(&self.remote, new), attr))
    }

    /// A walk that takes several messages.
    fn walk_on(
        &self,
        connection: &Arc<Connection>,
        new: &Held,
        path: &[u8],
        mask: Option<GetAttr>,
    ) -> Result<Option<Attr>, Error> {
        let walked = held::walk(connection, self.held.fid, new.fid, path);
        let qid = new.unless_refused(walked)?;
        let qid = qid.ok_or(Error::Server(Errno::NOENT))?;
        new.stands_for(connection, Place::at(qid, self.path_of(path)));
        let answers = connection.in_order(&questions(connection, new, mask))?;
        learn(connection, new, mask, &mut answers.into_iter())
    }

    /// As far along these names as there are any, in as few messages as possible. An error is one of the first step,
    /// unless that is only that there is no such name.
    pub fn walk_far(&self, names: &[&[u8]]) -> Result<Far, Errno> {
        let steps: Result<Vec<Step>, _> = names.iter().map(Step::new).collect();
        let steps = steps.map_err(|_| Errno::INVAL)?;
        let link = &self.held.link;
        let new = Held::new(link, Some(self.held.root()))?;
        let (qids, is_there) = link.repeat(&[&self.held], |connection| {
            new.begin(connection);
            match held::walk_far(connection, self.held.fid, new.fid, &steps)? {
                (qids, None) => {
                    let place = match qids.last() {
                        Some(qid) => Place::at(*qid, self.path_of(&names.join(&b'/'))),
                        None => self.held.copy_place(),
                    };
                    new.stands_for(connection, place);
                    Ok((qids, true))
                }
                (qids, Some(errno)) => {
                    new.stands_for_nothing();
                    match errno {
                        Errno::NOENT => Ok((qids, false)),
                        _ if !qids.is_empty() => Ok((qids, false)),
                        errno => Err(Error::Server(errno)),
                    }
                }
            }
        })?;
        let file = is_there.then(|| File::new(&self.remote, new));
        Ok(Far { qids, file })
    }

    fn path_of(&self, below: &[u8]) -> Vec<u8> {
        let mut path = self.path();
        let names = below.split(|byte| *byte == b'/');
        for name in names.filter(|name| !name.is_empty()) {
            push_name(&mut path, name);
        }
        path
    }

    /// The same file at the node of a link, where it is not open unless it is this one; that node knows it when it is used.
    pub(crate) fn on(&self, link: &Arc<Link>) -> Result<File, Errno> {
        if Arc::ptr_eq(link, &self.held.link) {
            return Ok(self.clone());
        }
        let uid = self.remote.user_of(&self.held);
        let there = Held::new(link, Some(self.remote.root(link, uid)?))?;
        there.set_place(self.held.copy_place());
        Ok(File::new(&self.remote, there))
    }

    /// The same file for another user: by its path, since handles are for one user only; ESTALE if that leads elsewhere.
    pub fn for_user(&self, uid: u32) -> Result<File, Errno> {
        let root = self.remote.root(&self.held.link, uid)?;
        let file = File::new(&self.remote, root).walk(self.path())?;
        match file.qid().path == self.qid().path {
            true => Ok(file),
            false => Err(Errno::STALE),
        }
    }

    /// Learns by what the file can be found again. If that fails it is found by its path.
    pub(crate) fn learn_handle(&self) {
        let link = &self.held.link;
        let learnt = link.repeat(&[&self.held], |connection| {
            let questions = questions(connection, &self.held, None);
            let answers = connection.in_order(&questions)?;
            learn(connection, &self.held, None, &mut answers.into_iter())
        });
        if let Err(errno) = learnt {
            tracing::debug!(%errno, "no handle");
        }
    }
}

fn push_name(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path();
        write!(f, "{} ({})", path.escape_ascii(), self.held.fid)
    }
}

/// What one wants to know about a new fid: its handle, if the node has such things and we have none yet, and its
/// attributes.
fn questions(connection: &Connection, new: &Held, mask: Option<GetAttr>) -> Vec<Request<'static>> {
    let fid = new.fid;
    let handle = connection.is_presagio().then_some(Request::Handle { fid });
    let attr = mask.map(|mask| Request::GetAttr { fid, mask });
    handle.into_iter().chain(attr).collect()
}

/// Takes the answers to these.
fn learn(
    connection: &Connection,
    new: &Held,
    mask: Option<GetAttr>,
    answers: &mut impl Iterator<Item = Result<Answer, Error>>,
) -> Result<Option<Attr>, Error> {
    if connection.is_presagio() {
        let answer = answers.next().expect("an answer for each");
        take_handle(new, answer)?;
    }
    if mask.is_none() {
        return Ok(None);
    }
    Ok(reply!(next(answers)?, Reply::GetAttr { attr } => Some(attr)))
}

/// A walk of one message, and all that one wants to know in the same breath.
fn walk_and_learn(
    connection: &Arc<Connection>,
    walk: &Walk<'_>,
    mask: Option<GetAttr>,
) -> Result<Option<Attr>, Error> {
    let more = match walk.is_nowhere() {
        // The same file again, of which we know what there is to know.
        true => Vec::new(),
        false => questions(connection, walk.new, mask),
    };
    let requests: Vec<Request> = [walk.request()].into_iter().chain(more).collect();
    let mut answers = connection.in_order(&requests)?.into_iter();
    let walked = walk.arrived(connection, next(&mut answers))?;
    walked.ok_or(Error::Server(Errno::NOENT))?;
    match walk.is_nowhere() {
        true => Ok(None),
        false => learn(connection, walk.new, mask, &mut answers),
    }
}

/// Keeps a handle, if the node has such a thing for this file.
fn take_handle(held: &Held, answer: Result<Answer, Error>) -> Result<(), Error> {
    match answer {
        Ok(answer) => {
            let handle = reply!(answer, Reply::Handle { handle } => handle.bytes().into());
            held.place().handle = Some(handle);
            Ok(())
        }
        Err(Error::Server(_)) => Ok(()),
        Err(error) => Err(error),
    }
}
