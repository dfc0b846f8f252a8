//! The fids of a session: what each number stands for.

use crate::error::Result;
use crate::export::Place;
use crate::files::OpenFile;
use crate::identity::Identity;
use presagio_ninep::{Errno, Fid, XattrFlags};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
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
pub enum Open {
    /// Nothing.
    No,
    /// A regular file.
    File(Arc<OpenFile>),
    /// A directory.
    Dir(Mutex<OwnedFd>),
    /// The value of an extended attribute, or the list of their names.
    Xattr(Vec<u8>),
    /// An extended attribute that is being written, and set when the fid is clunked.
    NewXattr(Mutex<NewXattr>),
}

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

    /// The same place, with something open.
    pub fn opened(&self, open: Open) -> Held {
        Held {
            place: self.place.clone(),
            user: self.user.clone(),
            open,
        }
    }
}

/// The table of fids.
pub struct Fids {
    held: HashMap<Fid, Arc<Held>>,
    max: usize,
}

impl Fids {
    /// Up to `max` at a time.
    pub fn new(max: usize) -> Fids {
        let held = HashMap::new();
        Fids { held, max }
    }

    /// What a fid stands for.
    pub fn get(&self, fid: Fid) -> Result<Arc<Held>> {
        self.held.get(&fid).cloned().ok_or(Errno::BADF)
    }

    /// A fid that was free stands for something.
    pub fn insert(&mut self, fid: Fid, held: Held) -> Result<()> {
        if fid == Fid::NONE || self.held.contains_key(&fid) {
            return Err(Errno::BADF);
        }
        if self.held.len() >= self.max {
            return Err(Errno(libc::EMFILE as u32));
        }
        self.held.insert(fid, Arc::new(held));
        Ok(())
    }

    /// A fid in use stands for something else.
    pub fn replace(&mut self, fid: Fid, held: Held) -> Result<()> {
        match self.held.get_mut(&fid) {
            Some(place) => {
                *place = Arc::new(held);
                Ok(())
            }
            None => Err(Errno::BADF),
        }
    }

    /// A fid is free again.
    pub fn remove(&mut self, fid: Fid) -> Result<Arc<Held>> {
        self.held.remove(&fid).ok_or(Errno::BADF)
    }

    /// All of them are.
    pub fn clear(&mut self) -> Vec<Arc<Held>> {
        self.held.drain().map(|(_, held)| held).collect()
    }
}
