//! One file or directory of the export, for one user.

mod attributes;
mod data;
mod locking;
mod names;

pub use crate::locks::Span;
pub use locking::Owner;
pub use names::Listed;

use crate::held::{Held, Place, walk};
use crate::link::{CHECKED, Connection};
use crate::remote::Inner;
use presagio_ninep::client::{Answer, Ask, Error};
use presagio_ninep::{Attr, Errno, GetAttr, List, Name, OpenFlags, Qid, Reply, Request, Step};
use std::fmt;
use std::sync::Arc;

/// What of `open`'s flags means something to a node. O_DIRECT does not: what is aligned here is not aligned there.
const OPEN_FLAGS: OpenFlags = OpenFlags(
    OpenFlags::ACCESS.0
        | OpenFlags::EXCL.0
        | OpenFlags::TRUNC.0
        | OpenFlags::APPEND.0
        | OpenFlags::NONBLOCK.0
        | OpenFlags::SYNC.0
        | OpenFlags::DSYNC.0
        | OpenFlags::DIRECTORY.0
        | OpenFlags::NOFOLLOW.0
        | OpenFlags::NOATIME.0
        | OpenFlags::LARGEFILE.0,
);

/// What is asked for of a file's attributes.
const WANTED_ATTR: GetAttr = GetAttr(GetAttr::BASIC.0 | GetAttr::BTIME.0);

/// Flags that change a file, so that an open with them must not be repeated.
const ONCE_FLAGS: OpenFlags = OpenFlags(OpenFlags::TRUNC.0 | OpenFlags::EXCL.0);

/// Flags that make a file what it is, which it is by now.
const MAKING_FLAGS: OpenFlags = OpenFlags(ONCE_FLAGS.0 | OpenFlags::CREAT.0);

/// A file or directory, as one user has it; open if it comes from [`open`](File::open) or [`create`](File::create).
/// Many threads may use it at once. Dropping it lets the node forget it.
#[derive(Clone)]
pub struct File {
    pub(crate) held: Arc<Held>,
    pub(crate) remote: Arc<Inner>,
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
        let attr = link.repeat(&[&self.held], |connection| {
            new.begin(connection);
            let walked = walk(connection, self.held.fid, new.fid, path);
            match new.unless_refused(walked)? {
                Some(qid) => {
                    new.stands_for(connection, Place::at(qid, self.path_of(path)));
                    learn(&new, connection, mask)
                }
                // The same file again, of which we know what there is to know.
                None => {
                    new.stands_for(connection, self.held.copy_place());
                    Ok(None)
                }
            }
        })?;
        Ok((File::new(&self.remote, new), attr))
    }

    fn path_of(&self, below: &[u8]) -> Vec<u8> {
        let mut path = self.path();
        for name in below
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty())
        {
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name);
        }
        path
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

    /// Opens it: a new file that is open, at the node that the spreading gives it to.
    pub fn open(&self, flags: OpenFlags) -> Result<File, Errno> {
        let flags = OpenFlags(flags.0 & OPEN_FLAGS.0);
        let file = self.second()?;
        match flags.intersects(ONCE_FLAGS) {
            true => file.open_once(flags)?,
            false => file.open_now(flags)?,
        }
        Ok(file)
    }

    /// Asks for its handle together with the open: one of an open file tells the node what it was open for.
    fn open_now(&self, flags: OpenFlags) -> Result<(), Errno> {
        let fid = self.held.fid;
        self.held.link.repeat(&[&self.held], |connection| {
            let open = Ask::new(Request::Open { fid, flags });
            let handle = connection.is_presagio().then_some(Request::Handle { fid });
            let asks = [open].into_iter().chain(handle.map(Ask::new));
            let mut tickets = connection.client.submit_all(asks)?.into_iter();
            let opened = tickets.next().expect("a ticket for each").wait();
            let handle = tickets.next().map(|ticket| ticket.wait());
            let answer = opened?;
            let qid = reply!(answer, Reply::Open { qid, .. } => qid);
            self.now_open(connection, qid, flags);
            handle.map_or(Ok(()), |handle| take_handle(&self.held, handle))
        })
    }

    fn open_once(&self, flags: OpenFlags) -> Result<(), Errno> {
        let fid = self.held.fid;
        let request = Request::Open { fid, flags };
        let (answer, connection) = self.held.link.once(&[&self.held], &request)?;
        let qid = reply!(answer, Reply::Open { qid, .. } => qid);
        self.now_open(&connection, qid, flags);
        self.learn_handle();
        Ok(())
    }

    /// Another fid of the same file, not open, where an open one belongs.
    fn second(&self) -> Result<File, Errno> {
        let link = self.remote.link_of(&self.held.link, self.qid());
        if Arc::ptr_eq(&link, &self.held.link) {
            return self.walk("");
        }
        let uid = self.remote.user_of(&self.held);
        let new = Held::new(&link, Some(self.remote.root(&link, uid)?))?;
        new.set_place(self.held.copy_place());
        Ok(File::new(&self.remote, new))
    }

    fn now_open(&self, connection: &Arc<Connection>, qid: Qid, flags: OpenFlags) {
        let mut place = self.held.copy_place();
        place.qid = qid;
        place.open = Some(flags);
        self.held.stands_for(connection, place);
    }

    /// Makes a file in this directory, or opens the one that is there unless `flags` exclude that; and opens it.
    pub fn create(
        &self,
        name: impl AsRef<[u8]>,
        flags: OpenFlags,
        mode: u32,
        gid: u32,
    ) -> Result<File, Errno> {
        let flags = OpenFlags(flags.0 & OPEN_FLAGS.0) | OpenFlags::CREAT;
        let file = self.walk("")?;
        let held = &file.held;
        let request = Request::Create {
            fid: held.fid,
            name: Name::new(&name).map_err(|_| Errno::INVAL)?,
            flags,
            mode,
            gid,
        };
        let (answer, connection) = held.link.once(&[held], &request)?;
        let qid = reply!(answer, Reply::Create { qid, .. } => qid);
        let mut place = Place::at(qid, self.path_of(name.as_ref()));
        place.open = Some(flags);
        held.stands_for(&connection, place);
        file.learn_handle();
        Ok(file.where_it_belongs(flags))
    }

    /// A file that was made belongs to a node like any other; if it cannot be opened there it stays where it was made.
    fn where_it_belongs(self, flags: OpenFlags) -> File {
        let link = self.remote.link_of(&self.held.link, self.qid());
        match Arc::ptr_eq(&link, &self.held.link) {
            true => self,
            false => self.open(flags.without(MAKING_FLAGS)).unwrap_or(self),
        }
    }

    /// Learns by what the file can be found again. If that fails it is found by its path.
    fn learn_handle(&self) {
        let link = &self.held.link;
        let learnt = link.repeat(&[&self.held], |connection| {
            learn(&self.held, connection, None)
        });
        if let Err(errno) = learnt {
            tracing::debug!(%errno, "no handle");
        }
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path();
        write!(f, "{} ({})", path.escape_ascii(), self.held.fid)
    }
}

/// Asks for what one wants to know about a new fid, all at once: its handle, if the node has such things, and its
/// attributes.
fn learn(
    held: &Held,
    connection: &Arc<Connection>,
    mask: Option<GetAttr>,
) -> Result<Option<Attr>, Error> {
    let fid = held.fid;
    let handle = connection.is_presagio().then_some(Request::Handle { fid });
    let attr = mask.map(|mask| Request::GetAttr { fid, mask });
    let asks: Vec<Ask> = handle.into_iter().chain(attr).map(Ask::new).collect();
    if asks.is_empty() {
        return Ok(None);
    }
    let mut tickets = connection.client.submit_all(asks)?.into_iter();
    if handle.is_some() {
        take_handle(held, tickets.next().expect("a ticket for each").wait())?;
    }
    let Some(ticket) = tickets.next() else {
        return Ok(None);
    };
    match ticket.wait()?.reply() {
        Reply::GetAttr { attr } => Ok(Some(attr)),
        _ => unreachable!("{CHECKED}"),
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
