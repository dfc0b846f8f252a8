//! Opening and making files: what it takes travels in one message each way, where the node keeps the order.

use super::{File, reply, take_handle};
use crate::held::{self, Held, Place, Walk};
use crate::link::{Connection, Deed, next};
use presagio_ninep::client::{Answer, Error};
use presagio_ninep::{Errno, Name, OpenFlags, Qid, Reply, Request};
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

/// What a node says to who opens a symbolic link.
const ELOOP: Errno = Errno(40);

/// Flags that change a file, so that an open with them must not be repeated.
const ONCE_FLAGS: OpenFlags = OpenFlags(OpenFlags::TRUNC.0 | OpenFlags::EXCL.0);

/// Flags that make a file what it is, which it is by now.
const MAKING_FLAGS: OpenFlags = OpenFlags(ONCE_FLAGS.0 | OpenFlags::CREAT.0);

/// What is left of the flags that a file was opened with, to open it once more.
pub(crate) fn as_it_was(flags: OpenFlags) -> OpenFlags {
    OpenFlags(flags.0 & OPEN_FLAGS.0).without(MAKING_FLAGS)
}

impl File {
    /// Opens it: a new file that is open, at the node that the spreading gives it to.
    pub fn open(&self, flags: OpenFlags) -> Result<File, Errno> {
        let flags = OpenFlags(flags.0 & OPEN_FLAGS.0);
        let link = self.remote.link_of(&self.held.link, self.qid());
        if Arc::ptr_eq(&link, &self.held.link) {
            let new = Held::new(&link, Some(self.held.root()))?;
            let walk = Walk::nowhere(&self.held, &new);
            self.open_new(&new, Some(&walk), flags)?
                .ok_or(Errno::NOENT)?;
            return Ok(File::new(&self.remote, new));
        }
        let file = self.on(&link)?;
        file.open_new(&file.held, None, flags)?
            .ok_or(Errno::NOENT)?;
        Ok(file)
    }

    /// Opens what lies at these names from here, without looking at what is on the way: `None` if that is not enough,
    /// because a name is missing or a symbolic link is among them, the last one too.
    pub fn open_far(&self, names: &[&[u8]], flags: OpenFlags) -> Result<Option<File>, Errno> {
        let flags = OpenFlags(flags.0 & OPEN_FLAGS.0) | OpenFlags::NOFOLLOW;
        let path = names.join(&b'/');
        let steps = held::steps(&path)?;
        let new = Held::new(&self.held.link, Some(self.held.root()))?;
        let Some(walk) = Walk::new(&self.held, &new, &steps, self.path_of(&path)) else {
            return Ok(None);
        };
        match self.open_new(&new, Some(&walk), flags) {
            Ok(Some(_)) => {
                let file = File::new(&self.remote, new);
                Ok(Some(file.where_it_belongs(flags)))
            }
            Ok(None) | Err(ELOOP | Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Opens what a new fid was made to stand for: `None` if the walk, which is made in the same breath, did not get there.
    /// Asks for the handle too: one of an open file tells the node what it was open for.
    fn open_new(
        &self,
        new: &Arc<Held>,
        walk: Option<&Walk<'_>>,
        flags: OpenFlags,
    ) -> Result<Option<()>, Errno> {
        let (link, fid) = (&self.held.link, new.fid);
        let (open, handle) = (Request::Open { fid, flags }, Request::Handle { fid });
        if flags.intersects(ONCE_FLAGS) {
            let deed = Deed {
                walk: walk.cloned(),
                request: &open,
                then: Some(handle),
            };
            let done = link.do_once(&[&self.held], &deed)?;
            let Some(answer) = done.answer else {
                return Ok(None);
            };
            now_open(new, &done.connection, &answer, flags);
            now_cut(new, flags, done.epoch);
            self.handle_behind(new, done.then);
            return Ok(Some(()));
        }
        let opened = link.repeat(&[&self.held], |connection| {
            if walk.is_some() {
                new.begin(connection);
            }
            let handle = connection.is_presagio().then_some(handle);
            let walking = walk.map(Walk::request).into_iter();
            let requests: Vec<Request> = walking.chain([open]).chain(handle).collect();
            let mut answers = connection.in_order(&requests)?.into_iter();
            if let Some(walk) = walk
                && walk.arrived(connection, next(&mut answers))?.is_none()
            {
                return Ok(None);
            }
            let open = next(&mut answers)?;
            let handle = match answers.next() {
                // Without a handle it would be gone if it were replaced now. So all of it is done again.
                Some(Err(error)) if !matches!(error, Error::Server(_)) => return Err(error),
                handle => handle,
            };
            now_open(new, connection, &open, flags);
            // It is open, and will be claimed as such on the next connection: nothing of this may be repeated.
            Ok(Some(handle))
        })?;
        Ok(opened.map(|handle| self.handle_behind(new, handle)))
    }

    /// This is `first`, opened once more in another way: when locks that were taken through that one are lost, this is of no use either.
    pub fn under_locks_of(self, first: &File) -> File {
        self.held.follows(&first.held);
        self
    }

    /// Makes a file in this directory, or opens the one that is there unless `flags` exclude that; and opens it.
    pub fn create(
        &self,
        name: impl AsRef<[u8]>,
        flags: OpenFlags,
        mode: u32,
        gid: u32,
    ) -> Result<File, Errno> {
        let new = Held::new(&self.held.link, Some(self.held.root()))?;
        let walk = Walk::nowhere(&self.held, &new);
        self.create_walked(&walk, name.as_ref(), flags, mode, gid)?
            .ok_or(Errno::NOENT)?;
        Ok(File::new(&self.remote, new).where_it_belongs(flags))
    }

    /// The same in the directory that lies at these names from here, without looking at what is on the way: `None` if that
    /// is not enough, because a name is missing or a symbolic link is among them.
    pub fn create_far(
        &self,
        names: &[&[u8]],
        name: &[u8],
        flags: OpenFlags,
        mode: u32,
        gid: u32,
    ) -> Result<Option<File>, Errno> {
        let path = names.join(&b'/');
        let steps = held::steps(&path)?;
        let new = Held::new(&self.held.link, Some(self.held.root()))?;
        let Some(walk) = Walk::new(&self.held, &new, &steps, self.path_of(&path)) else {
            return Ok(None);
        };
        let flags = flags | OpenFlags::NOFOLLOW;
        match self.create_walked(&walk, name, flags, mode, gid) {
            Ok(Some(())) => {
                let file = File::new(&self.remote, new);
                Ok(Some(file.where_it_belongs(flags)))
            }
            Ok(None) | Err(ELOOP | Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn create_walked(
        &self,
        walk: &Walk<'_>,
        name: &[u8],
        flags: OpenFlags,
        mode: u32,
        gid: u32,
    ) -> Result<Option<()>, Errno> {
        let flags = OpenFlags(flags.0 & OPEN_FLAGS.0) | OpenFlags::CREAT;
        let (new, fid) = (walk.new, walk.new.fid);
        let request = Request::Create {
            fid,
            name: Name::new(name).map_err(|_| Errno::INVAL)?,
            flags,
            mode,
            gid,
        };
        let deed = Deed {
            walk: Some(walk.clone()),
            request: &request,
            then: Some(Request::Handle { fid }),
        };
        let done = self.held.link.do_once(&[&self.held], &deed)?;
        let Some(answer) = done.answer else {
            return Ok(None);
        };
        let qid = reply!(answer, Reply::Create { qid, .. } => qid);
        // Until now it stood for the directory.
        new.names_changed(done.epoch);
        let mut path = new.copy_place().path;
        super::push_name(&mut path, name);
        let mut place = Place::at(qid, path);
        place.open = Some(flags);
        new.stands_for(&done.connection, place);
        now_cut(new, flags, done.epoch);
        self.handle_behind(new, done.then);
        Ok(Some(()))
    }

    /// Takes the handle of what was opened just now, if one was asked for; if the answer was lost it is asked for again.
    fn handle_behind(&self, new: &Arc<Held>, answer: Option<Result<Answer, Error>>) {
        if let Some(Err(_)) = answer.map(|answer| take_handle(new, answer)) {
            File::new(&self.remote, new.clone()).learn_handle();
        }
    }

    /// A file that was made belongs to a node like any other; if it cannot be opened there it stays where it was made.
    fn where_it_belongs(self, flags: OpenFlags) -> File {
        let link = self.remote.link_of(&self.held.link, self.qid());
        match Arc::ptr_eq(&link, &self.held.link) {
            true => self,
            false => self.open(flags.without(MAKING_FLAGS)).unwrap_or(self),
        }
    }
}

/// The node may have cut this when it was opened.
fn now_cut(held: &Held, flags: OpenFlags, epoch: u64) {
    if flags.contains(OpenFlags::TRUNC) {
        held.changed(epoch);
    }
}

/// The node has opened this.
fn now_open(held: &Held, connection: &Arc<Connection>, answer: &Answer, flags: OpenFlags) {
    let qid: Qid = reply!(answer, Reply::Open { qid, .. } => qid);
    let mut place = held.copy_place();
    place.qid = qid;
    place.open = Some(flags);
    held.stands_for(connection, place);
}
