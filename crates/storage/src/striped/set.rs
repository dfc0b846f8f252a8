//! The directories of a striped set, and the check at start that they are the ones it was made of.
//!
//! Each directory of the set, the namespace's too, has `.presagio/striped-set`:
//!
//! ```text
//! presagio-striped-set 1
//! set 0d6f…                 random, made once
//! stripe 1048576
//! servers 4
//! server 2                  which one this is; - in the namespace
//! check 77aa02b4d5f39c1e
//! ```
//!
//! The namespace's is written last: where it is missing, the set was never used, and is made anew if all directories are
//! empty. Where it is there, every server must have its own: one without is not mounted, or not the right one.

use super::record::{ObjectId, SERVERS_MAX};
use crate::text::{self, Lines};
use presagio_core::IdHashMap;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::collections::hash_map::Entry;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use thiserror::Error;

const MAGIC: &str = "presagio-striped-set 1";
const OURS: &str = ".presagio";
const RECORD: &str = ".presagio/striped-set";

/// What a striped set is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripedSet {
    /// The directory with the names, owners and permissions.
    pub namespace: PathBuf,
    /// A directory for each data server, always in the same order.
    pub servers: Vec<PathBuf>,
    /// Bytes of a stripe: a multiple of 4096, 1 GiB at most.
    pub stripe: u64,
}

/// Why a striped set cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SetError {
    /// There is no such set.
    #[error("a striped set cannot be like that: {0}")]
    Unsound(String),
    /// The file system refused something.
    #[error("{path}: cannot {what}: {source}")]
    Refused {
        /// Of what.
        path: PathBuf,
        /// To do what.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// It is not the set that was made.
    #[error("{path}: {what}")]
    Differs {
        /// The directory.
        path: PathBuf,
        /// In what, and what to do.
        what: String,
    },
}

/// The servers' directories of a set that was checked.
#[derive(Debug)]
pub struct Servers {
    pub stripe: u64,
    directories: Vec<OwnedFd>,
    /// Directories of objects in which names may not be durable yet, and at which change.
    unsynced: Mutex<Unsynced>,
}

#[derive(Debug, Default)]
struct Unsynced {
    changes: u64,
    directories: IdHashMap<(u16, u8), u64>,
}

impl Servers {
    /// Checks the set, or makes it if there is none.
    pub fn start(set: &StripedSet) -> Result<Servers, SetError> {
        set.sound()?;
        set.check_or_make()?;
        let servers = Servers {
            stripe: set.stripe,
            directories: set
                .servers
                .iter()
                .map(|path| open(path))
                .collect::<Result<_, _>>()?,
            unsynced: Mutex::default(),
        };
        for (server, path) in (0..).zip(&set.servers) {
            servers.distrust(server).map_err(refused(path, "list it"))?;
        }
        Ok(servers)
    }

    /// How many there are.
    pub fn count(&self) -> u16 {
        // SERVERS_MAX at most.
        self.directories.len() as u16
    }

    /// A server's directory; `None` for a number that a record should not have.
    fn directory(&self, server: u16) -> io::Result<&OwnedFd> {
        self.directories
            .get(usize::from(server))
            .ok_or(Errno::IO.into())
    }

    /// Opens an object, if there is one.
    pub fn open(&self, server: u16, object: ObjectId) -> io::Result<Option<OwnedFd>> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let directory = self.directory(server)?;
        let opened = rustix::fs::openat(directory, object.path(), flags, Mode::empty());
        self.unless_missing(server, opened)
    }

    /// Opens an object, and makes it if there is none.
    pub fn make(&self, server: u16, object: ObjectId) -> io::Result<OwnedFd> {
        let directory = self.directory(server)?;
        let create = || {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let mode = Mode::RUSR | Mode::WUSR;
            rustix::fs::openat(directory, object.path(), flags, mode)
        };
        let made = match create() {
            Err(Errno::NOENT) => {
                self.make_directory(directory, object)?;
                create()?
            }
            other => other?,
        };
        self.unsynced().add(server, object.directory());
        Ok(made)
    }

    fn make_directory(&self, within: &OwnedFd, object: ObjectId) -> io::Result<()> {
        let name = format!("{:02x}", object.directory());
        match rustix::fs::mkdirat(within, name, Mode::RWXU) {
            Ok(()) => Ok(rustix::fs::fsync(within)?),
            Err(Errno::EXIST) => Ok(()),
            Err(other) => Err(other.into()),
        }
    }

    /// Length and blocks of an object, if there is one.
    pub fn stat(&self, server: u16, object: ObjectId) -> io::Result<Option<rustix::fs::Stat>> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let stat = rustix::fs::statat(self.directory(server)?, object.path(), flags);
        self.unless_missing(server, stat)
    }

    /// Deletes an object, if there is one.
    pub fn remove(&self, server: u16, object: ObjectId) -> io::Result<()> {
        let gone = rustix::fs::unlinkat(self.directory(server)?, object.path(), AtFlags::empty());
        self.unless_missing(server, gone).map(drop)
    }

    /// An object that is not there is a hole, unless its server is not there either: that is an error, not zeros.
    fn unless_missing<T>(&self, server: u16, got: rustix::io::Result<T>) -> io::Result<Option<T>> {
        match got {
            Ok(got) => Ok(Some(got)),
            Err(Errno::NOENT) => {
                rustix::fs::statat(self.directory(server)?, RECORD, AtFlags::empty())?;
                Ok(None)
            }
            Err(other) => Err(other.into()),
        }
    }

    /// Makes the name of an object durable.
    pub fn sync_name(&self, server: u16, object: ObjectId) -> io::Result<()> {
        let key = (server, object.directory());
        let Some(change) = self.unsynced().directories.get(&key).copied() else {
            return Ok(());
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let name = format!("{:02x}", object.directory());
        let directory = rustix::fs::openat(self.directory(server)?, name, flags, Mode::empty())?;
        rustix::fs::fsync(directory)?;
        self.unsynced().remove(key, change);
        Ok(())
    }

    /// Who was here before us may have died before it could sync.
    fn distrust(&self, server: u16) -> io::Result<()> {
        let directory = self.directory(server)?;
        rustix::fs::fsync(directory)?;
        for prefix in 0..=u8::MAX {
            let name = format!("{prefix:02x}");
            match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => self.unsynced().add(server, prefix),
                Err(Errno::NOENT) => {}
                Err(other) => return Err(other.into()),
            }
        }
        Ok(())
    }

    fn unsynced(&self) -> MutexGuard<'_, Unsynced> {
        // It is whole between any two of its steps.
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Unsynced {
    fn add(&mut self, server: u16, directory: u8) {
        self.changes += 1;
        self.directories.insert((server, directory), self.changes);
    }

    /// Unless it has changed since.
    fn remove(&mut self, key: (u16, u8), change: u64) {
        if let Entry::Occupied(entry) = self.directories.entry(key)
            && *entry.get() == change
        {
            entry.remove();
        }
    }
}

impl StripedSet {
    /// The directory of a striped set that `path` is, or lies in. Files there have no bytes, only records of where those
    /// are: nobody may take the records for bytes.
    pub fn around(path: &Path) -> io::Result<Option<PathBuf>> {
        let path = path.canonicalize()?;
        if path.join(RECORD).try_exists()? {
            return Ok(Some(path));
        }
        // What we may not look into is not ours either.
        let mut above = path.ancestors().skip(1);
        let set = above.find(|above| above.join(RECORD).exists());
        Ok(set.map(Path::to_owned))
    }

    fn sound(&self) -> Result<(), SetError> {
        let unsound = |what: String| Err(SetError::Unsound(what));
        let servers = self.servers.len();
        if servers == 0 || servers > SERVERS_MAX {
            return unsound(format!("{servers} servers; 1 to {SERVERS_MAX} can be"));
        }
        if self.stripe == 0 || !self.stripe.is_multiple_of(4096) || self.stripe > 1 << 30 {
            let stripe = self.stripe;
            return unsound(format!(
                "stripes of {stripe} bytes; they are multiples of 4096, 1 GiB at most"
            ));
        }
        Ok(())
    }

    fn check_or_make(&self) -> Result<(), SetError> {
        let ours = self.namespace.join(OURS);
        // Nobody else's business: an I/O node keeps here what it must not forget, and trusts no other directory.
        let make = fs::DirBuilder::new().mode(0o700).create(&ours);
        if let Err(error) = make
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(refused(&ours, "make it")(error));
        }
        // One node checks or makes at a time.
        let lock = open(&ours)?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)
            .map_err(|error| refused(&ours, "lock it")(error.into()))?;
        match read(&self.namespace)? {
            Some(made) => self.check(&made),
            None => self.make(),
        }
    }

    fn check(&self, made: &SetRecord) -> Result<(), SetError> {
        let stripe = self.stripe;
        made.agree(&self.namespace, "stripes of bytes:", made.stripe, stripe)?;
        let servers = self.servers.len() as u64;
        made.agree(&self.namespace, "servers:", made.servers, servers)?;
        for (number, path) in (0_u64..).zip(&self.servers) {
            let Some(here) = read(path)? else {
                let what = format!(
                    "is not server {number} of the set in {}: it has no {RECORD}. Is it mounted?",
                    self.namespace.display()
                );
                return Err(differs(path, what));
            };
            here.is_server(path, number, made)?;
        }
        Ok(())
    }

    fn make(&self) -> Result<(), SetError> {
        for path in self.servers.iter().chain([&self.namespace]) {
            vacant(path)?;
        }
        let set = ObjectId::random().map_err(refused(&self.namespace, "make an id"))?;
        let record = |server| SetRecord {
            set: set.0,
            stripe: self.stripe,
            servers: self.servers.len() as u64,
            server,
        };
        for (number, path) in (0_u64..).zip(&self.servers) {
            record(Some(number)).write(path)?;
        }
        record(None).write(&self.namespace)
    }
}

/// What a directory of a set says about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetRecord {
    set: u128,
    stripe: u64,
    servers: u64,
    server: Option<u64>,
}

impl SetRecord {
    fn agree(&self, path: &Path, what: &str, made: u64, asked: u64) -> Result<(), SetError> {
        if made == asked {
            return Ok(());
        }
        let what = format!("the set was made with other {what} {made}, not {asked}");
        Err(differs(path, what))
    }

    fn is_server(&self, path: &Path, number: u64, made: &SetRecord) -> Result<(), SetError> {
        if self.set != made.set {
            let (here, set) = (self.set, made.set);
            let what = format!("belongs to the set {here:032x}, not to {set:032x}");
            return Err(differs(path, what));
        }
        if self.server != Some(number) {
            let here = self
                .server
                .map_or("the namespace".into(), |n| format!("server {n}"));
            let what = format!("is {here} of the set, not server {number}: mind the order");
            return Err(differs(path, what));
        }
        self.agree(path, "stripes of bytes:", self.stripe, made.stripe)?;
        self.agree(path, "servers:", self.servers, made.servers)
    }

    fn encode(&self) -> String {
        let SetRecord {
            set,
            stripe,
            servers,
            server,
        } = self;
        let server = server.map_or("-".into(), |number| number.to_string());
        text::seal(format!(
            "{MAGIC}\nset {set:032x}\nstripe {stripe}\nservers {servers}\nserver {server}\n"
        ))
    }

    /// A record as it was written; `None` if it is none.
    pub fn parse(text: &str) -> Option<SetRecord> {
        let mut lines = Lines::sealed(text)?;
        lines.exactly(MAGIC)?;
        let set = lines.hex("set")?;
        let stripe = lines.number("stripe")?;
        let servers = lines.number("servers")?;
        let server = match lines.field("server")? {
            "-" => None,
            number => Some(number.parse().ok()?),
        };
        lines.end().then_some(SetRecord {
            set,
            stripe,
            servers,
            server,
        })
    }

    /// As a whole or not at all.
    fn write(&self, directory: &Path) -> Result<(), SetError> {
        let (ours, path) = (directory.join(OURS), directory.join(RECORD));
        let attempt = || -> io::Result<()> {
            fs::create_dir_all(&ours)?;
            let unfinished = path.with_extension("new");
            fs::write(&unfinished, self.encode())?;
            fs::File::open(&unfinished)?.sync_all()?;
            fs::rename(&unfinished, &path)?;
            fs::File::open(&ours)?.sync_all()?;
            fs::File::open(directory)?.sync_all()
        };
        attempt().map_err(refused(&path, "write it"))
    }
}

/// What a directory says; `None` if it says nothing.
fn read(directory: &Path) -> Result<Option<SetRecord>, SetError> {
    let path = directory.join(RECORD);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // The directory itself has to be there.
            return fs::metadata(directory)
                .map(|_| None)
                .map_err(refused(directory, "find it"));
        }
        Err(error) => return Err(refused(&path, "read it")(error)),
    };
    let record = String::from_utf8(text).ok();
    match record.as_deref().and_then(SetRecord::parse) {
        Some(record) => Ok(Some(record)),
        None => Err(differs(&path, "is damaged, or of another version".into())),
    }
}

/// An error unless there is nothing in the directory but what is always there, and ours.
fn vacant(path: &Path) -> Result<(), SetError> {
    let entries = fs::read_dir(path).map_err(refused(path, "list it"))?;
    for entry in entries {
        let name = entry.map_err(refused(path, "list it"))?.file_name();
        if name != OURS && name != "lost+found" {
            let what = format!(
                "has {name:?} in it, but no whole record of a striped set; \
                 a new set wants empty directories"
            );
            return Err(differs(path, what));
        }
    }
    Ok(())
}

fn open(path: &Path) -> Result<OwnedFd, SetError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty());
    opened.map_err(|error| refused(path, "open it")(error.into()))
}

fn refused(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> SetError {
    move |source| SetError::Refused {
        path: path.to_owned(),
        what,
        source,
    }
}

fn differs(path: &Path, what: String) -> SetError {
    let path = path.to_owned();
    SetError::Differs { path, what }
}
