//! The fids of a session: what each number stands for.

use crate::accounts::{Account, Accounts, FileShare, MemoryShare};
use crate::auth::credential::Credential;
use crate::buffer::Counted;
use crate::error::Result;
use crate::export::Place;
use crate::files::OpenFile;
use crate::identity::Identity;
use presagio_ninep::{Errno, Fid, XattrFlags};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// What a fid stands for. It never changes: a fid that is opened stands for something new.
pub struct Held {
    /// Where in the tree it is.
    pub place: Place,
    /// Who holds it.
    pub user: Arc<Identity>,
    /// What was opened.
    pub open: Open,
}

/// What of a fid is open.
#[derive(Clone)]
pub enum Open {
    /// Nothing.
    No,
    /// A regular file.
    File(Arc<OpenFile>),
    /// A directory.
    Dir(Arc<Mutex<OwnedFd>>),
    /// The value of an extended attribute, or the list of their names.
    Xattr(Arc<Xattr>),
    /// An extended attribute that is being written, and set when the fid is clunked.
    NewXattr(Arc<Mutex<NewXattr>>),
}

/// An extended attribute that is being read.
pub struct Xattr {
    /// Its value.
    pub value: Vec<u8>,
    /// What that counts for.
    pub _memory: Memory,
}

/// What a fid holds of its user's memory, and of the node's.
pub type Memory = (MemoryShare, Counted);

/// An extended attribute on its way.
pub struct NewXattr {
    /// Its name.
    pub name: Vec<u8>,
    /// Its value so far.
    pub value: Vec<u8>,
    /// How long it will be.
    pub size: usize,
    /// How it is set.
    pub flags: XattrFlags,
    /// What it counts for.
    pub _memory: Memory,
}

impl Held {
    /// The open file.
    pub fn file(&self) -> Result<&Arc<OpenFile>> {
        match &self.open {
            Open::File(file) => Ok(file),
            Open::Dir(_) => Err(Errno::ISDIR),
            _ => Err(Errno::BADF),
        }
    }

    /// Its place, if nothing of it is open: what can be opened and created in.
    pub fn closed(&self) -> Result<&Place> {
        match self.open {
            Open::No => Ok(&self.place),
            _ => Err(Errno::BADF),
        }
    }

    /// Its place, unless it stands for an attribute. (The protocol lets nobody walk from an open fid; diod's clients do.)
    pub fn walkable(&self) -> Result<&Place> {
        match self.open {
            Open::No | Open::File(_) | Open::Dir(_) => Ok(&self.place),
            Open::Xattr(_) | Open::NewXattr(_) => Err(Errno::BADF),
        }
    }

    /// Its place, if it is a directory.
    pub fn dir(&self) -> Result<&Place> {
        match self.place.is_dir() {
            true => Ok(&self.place),
            false => Err(Errno::NOTDIR),
        }
    }

    /// The same, under another name.
    pub fn moved(&self, dir: &Place, name: &[u8]) -> Held {
        Held {
            place: self.place.moved(dir, name),
            user: self.user.clone(),
            open: self.open.clone(),
        }
    }

    /// The same place, with something open.
    pub fn opened(&self, open: Open) -> Held {
        Held {
            place: self.place.clone(),
            user: self.user.clone(),
            open,
        }
    }
}

/// Credentials that a session may have at a time: those who have proved nothing yet get little memory.
const CREDENTIALS_MAX: usize = 16;

/// The table of fids.
pub struct Fids {
    held: HashMap<Fid, (Arc<Held>, FileShare)>,
    /// Those that Tauth made, which stand for nothing else.
    credentials: HashMap<Fid, Arc<Credential>>,
    max: usize,
    all: Arc<AllFids>,
    accounts: Arc<Accounts>,
    /// The user of the last fid: mostly that of the next.
    last: Option<Arc<Account>>,
    /// The session is over: what is still under way gets no fids any more.
    ended: bool,
}

/// The fids of all sessions together, each of which costs the node descriptors.
///
/// A session may hold half of what the others leave, so that however many take what they can get, something is left for
/// the next.
#[derive(Debug)]
pub struct AllFids {
    in_use: AtomicUsize,
    max: usize,
}

impl AllFids {
    /// Descriptors that a fid may need: its place, the directory that it was reached through, what is open, what holds its
    /// locks in the file system. And when its client is lost, what holds those until that is back: while they wait,
    /// there may be as many fids as before.
    const EACH: usize = 5;
    /// Descriptors for all else: connections, rings, the node's own files.
    const OTHERS: usize = 256;
    /// What every session may hold.
    const LEAST: usize = 16;

    /// As many as this process can have, if what is open of each may be kept in so many private files besides.
    pub fn of_this_process(private_files: usize) -> Arc<AllFids> {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let descriptors = limit.map_or(usize::MAX, |limit| limit as usize);
        Arc::new(AllFids {
            in_use: AtomicUsize::new(0),
            max: descriptors.saturating_sub(AllFids::OTHERS) / (AllFids::EACH + private_files),
        })
    }

    /// How many there may be.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Whether a session that holds `mine` may hold one more.
    fn has_room(&self, mine: usize) -> bool {
        let left = self.max.saturating_sub(self.in_use.load(Ordering::Relaxed));
        left > 0 && (mine < left / 2 || mine < AllFids::LEAST)
    }
}

impl Fids {
    /// Up to `max` at a time.
    pub fn new(max: usize, all: Arc<AllFids>, accounts: Arc<Accounts>) -> Fids {
        Fids {
            held: HashMap::new(),
            credentials: HashMap::new(),
            max,
            all,
            accounts,
            last: None,
            ended: false,
        }
    }

    /// What a fid stands for.
    pub fn get(&self, fid: Fid) -> Result<Arc<Held>> {
        let held = self.held.get(&fid).map(|(held, _)| held.clone());
        held.ok_or(Errno::BADF)
    }

    /// A fid that was free stands for something.
    pub fn insert(&mut self, fid: Fid, held: Held) -> Result<()> {
        self.is_free(fid)?;
        if self.ended {
            return Err(Errno::BADF);
        }
        if self.held.len() + self.credentials.len() >= self.max
            || !self.all.has_room(self.held.len())
        {
            return Err(Errno(libc::EMFILE as u32));
        }
        let share = self.account(held.user.uid).file();
        let share = share.ok_or(Errno(libc::EMFILE as u32))?;
        self.all.in_use.fetch_add(1, Ordering::Relaxed);
        self.held.insert(fid, (Arc::new(held), share));
        Ok(())
    }

    fn account(&mut self, uid: u32) -> &Arc<Account> {
        let last = self.last.take().filter(|account| account.uid == uid);
        let account = last.unwrap_or_else(|| self.accounts.of(uid));
        self.last.insert(account)
    }

    fn is_free(&self, fid: Fid) -> Result<()> {
        let in_use = self.held.contains_key(&fid) || self.credentials.contains_key(&fid);
        match fid == Fid::NONE || in_use {
            true => Err(Errno::BADF),
            false => Ok(()),
        }
    }

    /// A fid that was free takes a credential.
    pub fn begin_credential(&mut self, fid: Fid) -> Result<()> {
        self.is_free(fid)?;
        if self.credentials.len() >= CREDENTIALS_MAX.min(self.max) {
            return Err(Errno(libc::EMFILE as u32));
        }
        self.credentials.insert(fid, Arc::default());
        Ok(())
    }

    /// The credential that a fid takes.
    pub fn credential(&self, fid: Fid) -> Option<Arc<Credential>> {
        self.credentials.get(&fid).cloned()
    }

    /// The fid of a credential is free again; false if it is none.
    pub fn end_credential(&mut self, fid: Fid) -> bool {
        self.credentials.remove(&fid).is_some()
    }

    /// A fid in use stands for something else. Returns what it stood for.
    pub fn replace(&mut self, fid: Fid, held: Held) -> Result<Arc<Held>> {
        let (place, _) = self.held.get_mut(&fid).ok_or(Errno::BADF)?;
        Ok(std::mem::replace(place, Arc::new(held)))
    }

    /// Whether the session is over.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// A fid is free again.
    pub fn remove(&mut self, fid: Fid) -> Result<Arc<Held>> {
        let (held, _) = self.held.remove(&fid).ok_or(Errno::BADF)?;
        self.all.in_use.fetch_sub(1, Ordering::Relaxed);
        Ok(held)
    }

    /// All of them are.
    pub fn clear(&mut self) -> Vec<Arc<Held>> {
        self.ended = true;
        self.all
            .in_use
            .fetch_sub(self.held.len(), Ordering::Relaxed);
        self.credentials.clear();
        self.held.drain().map(|(_, (held, _))| held).collect()
    }
}
