//! A striped set: names in one directory, bytes in one directory for each data server, dealt out in stripes.
//!
//! ```text
//!   namespace/results.h5           "presagio-striped 1 … object 5f0c2b7d…"         (record.rs)
//!   server 0/5f/5f0c2b7d…          stripes 2, 6, 10, …
//!   server 1/5f/5f0c2b7d…          stripes 3, 7, …
//!   server 2/5f/5f0c2b7d…          stripes 0, 4, 8, …                             (geometry.rs)
//! ```
//!
//! *Size.* A file ends behind the last byte of any of its objects. To extend it, the object that would have the last byte
//! is extended. What is missing of an object within the file reads as zeros; so a file can have holes, and an
//! object that nobody wrote to need not exist.
//!
//! *Removal.* First the name goes, then the objects. Another node may have the file open: it has all objects open that there
//! were when it looked last, and keeps them. Where one is missing of a file without a name nobody can tell a hole from what
//! was removed: that is ESTALE, never zeros.
//!
//! *Order.* Writes share a lock of the file, appends and cuts have it alone: within this process an append is one step.
//! Nodes that share the set exclude each other's appends and cuts by `flock` on the namespace's file, as far as its file
//! system knows that.
//!
//! *Crash.* The namespace's file gets its record when it is created, or, if it was opened for reading or somebody died
//! in between, when it is first written to. Without a record it is empty. [`Bytes::sync`] makes durable, in this order: the
//! objects, their names, the record. Objects whose name a crash took away stay behind, as waste and no more.
//!
//! *Identity.* Objects belong to whoever runs the node, and only its own identity can open them. Calls that come with a
//! client's identity on their thread fail where they have to open an object or the record of a file that client may not
//! read.

pub(crate) mod fuzzing;
mod geometry;
mod objects;
mod record;
mod set;

pub use set::{SetError, StripedSet};

use crate::directory::{retry, sync};
use crate::{Access, Bytes, Durable, Now, Piece, Pieces, Size, Storage};
use geometry::Geometry;
use objects::{EMPTY, LARGEST, Objects};
use presagio_core::{QueueId, Range};
use record::{Content, ObjectId, Record};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use set::Servers;
use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// A striped set of directories.
pub struct Striped(Arc<Set>);

impl Striped {
    /// Checks that the directories are those the set was made of, or makes a set of empty ones.
    pub fn start(set: &StripedSet) -> Result<Striped, SetError> {
        let servers = Servers::start(set)?;
        let files = Mutex::default();
        Ok(Striped(Arc::new(Set { servers, files })))
    }
}

impl Storage for Striped {
    fn is_private(&self) -> bool {
        true
    }

    fn servers(&self) -> u32 {
        self.0.servers.count().into()
    }

    fn open(&self, opened: OwnedFd, access: Access) -> io::Result<Arc<dyn Bytes>> {
        let reader = match access.read {
            true => None,
            false => Some(reopen(opened.as_fd())?),
        };
        let file = Striping {
            set: Arc::clone(&self.0),
            name: opened,
            reader,
            access,
            objects: OnceLock::new(),
            making: Mutex::new(()),
        };
        if let Some(objects) = file.known()? {
            objects.open_all();
        }
        Ok(Arc::new(file))
    }

    fn created(&self, opened: BorrowedFd<'_>) -> io::Result<()> {
        // Somebody else may have opened it meanwhile, and written.
        let _locked = Locked::new(opened)?;
        if read_record(reopen(opened)?.as_fd())?.is_some() {
            return Ok(());
        }
        match self.0.write_record(opened) {
            // Not opened for writing: its first writer will do it.
            Err(error) if error.raw_os_error() == Some(Errno::BADF.raw_os_error()) => Ok(()),
            other => other.map(drop),
        }
    }

    fn size(&self, name: BorrowedFd<'_>) -> io::Result<Option<Size>> {
        if !is_regular(name)? {
            return Ok(None);
        }
        match read_record(reopen(name)?.as_fd())? {
            Some(record) => self.0.objects(record)?.size_now().map(Some),
            None => Ok(Some(EMPTY)),
        }
    }

    fn removed(&self, name: BorrowedFd<'_>) -> io::Result<()> {
        if !is_regular(name)? {
            return Ok(());
        }
        match read_record(reopen(name)?.as_fd())? {
            Some(record) => self.0.remove(&record),
            None => Ok(()),
        }
    }
}

/// The set, and the files that are open.
struct Set {
    servers: Servers,
    files: Mutex<Files>,
}

#[derive(Default)]
struct Files {
    open: HashMap<ObjectId, Weak<Objects>>,
    /// How many there may be before those that are closed are looked for.
    enough: usize,
}

impl Set {
    /// The objects of a file, the same for all who have it open.
    fn objects(self: &Arc<Set>, record: Record) -> io::Result<Arc<Objects>> {
        if record
            .servers
            .iter()
            .any(|server| *server >= self.servers.count())
        {
            return Err(Errno::IO.into());
        }
        let mut files = self.files();
        let object = record.object;
        if let Some(objects) = files.open.get(&object).and_then(Weak::upgrade) {
            return Ok(objects);
        }
        let objects = Arc::new(Objects::new(Arc::clone(self), record));
        files.forget_closed();
        files.open.insert(object, Arc::downgrade(&objects));
        Ok(objects)
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        // A map is whole between any two of its steps.
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a file that has no record a new one.
    fn write_record(&self, name: BorrowedFd<'_>) -> io::Result<Record> {
        let servers = self.servers.count();
        let record = Record::new(ObjectId::random()?, self.servers.stripe, servers);
        let text = record.encode();
        // What was left of an unfinished one, should it be longer.
        rustix::fs::ftruncate(name, 0).map_err(not_writable)?;
        let wrote = retry(|| rustix::io::pwrite(name, text.as_bytes(), 0))?;
        if wrote < text.len() {
            return Err(Errno::NOSPC.into());
        }
        Ok(record)
    }

    fn remove(&self, record: &Record) -> io::Result<()> {
        self.files().open.remove(&record.object);
        for server in &record.servers {
            self.servers.remove(*server, record.object)?;
        }
        Ok(())
    }
}

impl Files {
    fn forget_closed(&mut self) {
        if self.open.len() >= self.enough {
            self.open.retain(|_, objects| objects.strong_count() > 0);
            self.enough = (2 * self.open.len()).max(64);
        }
    }
}

/// `ftruncate` says EINVAL where others say EBADF.
fn not_writable(error: Errno) -> io::Error {
    match error {
        Errno::INVAL => Errno::BADF.into(),
        other => other.into(),
    }
}

/// An open file of the set.
struct Striping {
    set: Arc<Set>,
    name: OwnedFd,
    /// Reads the record where `name` cannot.
    reader: Option<OwnedFd>,
    access: Access,
    /// Known once there is a record.
    objects: OnceLock<Arc<Objects>>,
    making: Mutex<()>,
}

impl Striping {
    /// The objects, if there is a record by now.
    fn known(&self) -> io::Result<Option<&Objects>> {
        if self.objects.get().is_none() {
            let reader = self.reader.as_ref().unwrap_or(&self.name);
            if let Some(record) = read_record(reader.as_fd())? {
                // If another thread was faster, it has found the same.
                let _ = self.objects.set(self.set.objects(record)?);
            }
        }
        Ok(self.objects.get().map(|objects| &**objects))
    }

    /// The objects of a file that is about to have bytes.
    fn made(&self) -> io::Result<&Objects> {
        if !self.access.write {
            return Err(Errno::BADF.into());
        }
        if let Some(objects) = self.objects.get() {
            return Ok(objects);
        }
        let _alone = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        let _locked = Locked::new(self.name.as_fd())?;
        if let Some(objects) = self.known()? {
            return Ok(objects);
        }
        let record = self.set.write_record(self.name.as_fd())?;
        let objects = self.set.objects(record)?;
        Ok(self.objects.get_or_init(|| objects))
    }

    /// The server of an object. A file without a record has none yet: any will do to wait in line for.
    fn queue(&self, object: u16) -> QueueId {
        let server = self
            .objects
            .get()
            .and_then(|objects| objects.server(object).ok());
        QueueId(server.unwrap_or(object).into())
    }

    fn geometry(&self) -> Geometry {
        let set = &self.set.servers;
        let (stripe, objects) = (set.stripe, set.count());
        let known = self.objects.get();
        known.map_or(Geometry { stripe, objects }, |objects| objects.geometry)
    }
}

impl Bytes for Striping {
    fn pieces(&self, range: Range) -> Pieces {
        let pieces = self.geometry().split(range);
        pieces
            .map(|(object, range)| Piece {
                object,
                queue: self.queue(object),
                range,
            })
            .collect()
    }

    fn places(&self, object: u16, range: Range) -> Pieces {
        let queue = self.queue(object);
        Pieces::from_iter([Piece {
            object,
            queue,
            range,
        }])
    }

    fn read_now(&self, object: u16, offset: u64, to: &mut [IoSliceMut<'_>]) -> io::Result<Now> {
        match self.objects.get() {
            Some(objects) if self.access.read => objects.read_now(object, offset, to),
            _ => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn read(&self, object: u16, offset: u64, to: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if !self.access.read {
            return Err(Errno::BADF.into());
        }
        match self.known()? {
            Some(objects) => objects.read(self.name.as_fd(), object, offset, to),
            None => Ok(0),
        }
    }

    fn write(&self, object: u16, offset: u64, from: &[IoSlice<'_>]) -> io::Result<usize> {
        let objects = self.made()?;
        let _shared = objects.order.read().unwrap_or_else(PoisonError::into_inner);
        objects.write(self.name.as_fd(), object, offset, from)
    }

    fn append(&self, from: &[u8]) -> io::Result<usize> {
        let objects = self.made()?;
        let _alone = objects
            .order
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let _locked = Locked::new(self.name.as_fd())?;
        let end = objects.size()?.bytes;
        objects.write_at(self.name.as_fd(), end, from)
    }

    fn size(&self) -> io::Result<Option<Size>> {
        match self.known()? {
            Some(objects) => objects.size().map(Some),
            None => Ok(Some(EMPTY)),
        }
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        if bytes > LARGEST {
            return Err(Errno::FBIG.into());
        }
        let objects = self.made()?;
        let _alone = objects
            .order
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let _locked = Locked::new(self.name.as_fd())?;
        objects.set_len(self.name.as_fd(), bytes)
    }

    fn sync(&self, how: Durable) -> io::Result<()> {
        if let Some(objects) = self.known()? {
            objects.sync(how)?;
        }
        sync(self.name.as_fd(), how)
    }

    fn descriptor(&self, _: u16) -> Option<BorrowedFd<'_>> {
        None
    }

    fn name(&self) -> BorrowedFd<'_> {
        self.name.as_fd()
    }
}

/// Excludes other nodes, where the file system knows how.
struct Locked<'a>(BorrowedFd<'a>);

impl<'a> Locked<'a> {
    fn new(name: BorrowedFd<'a>) -> io::Result<Locked<'a>> {
        match retry(|| rustix::fs::flock(name, FlockOperation::LockExclusive)) {
            Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => Ok(Locked(name)),
            Err(other) => Err(other.into()),
        }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // Nothing to be done if it fails: it was not locked, and closing the file unlocks it anyway.
        let _ = rustix::fs::flock(self.0, FlockOperation::Unlock);
    }
}

/// What the record of a file says; `None` if it has none yet.
fn read_record(name: BorrowedFd<'_>) -> io::Result<Option<Record>> {
    let mut bytes = vec![0; 512];
    loop {
        let got = retry(|| rustix::io::pread(name, &mut bytes, 0))?;
        if got < bytes.len() || bytes.len() >= record::LONGEST {
            bytes.truncate(got);
            break;
        }
        bytes.resize(record::LONGEST, 0);
    }
    match record::read(&bytes) {
        Content::Whole(record) => Ok(Some(record)),
        Content::Unfinished => Ok(None),
        Content::Damaged => Err(Errno::IO.into()),
    }
}

/// A descriptor of the same file that reads.
fn reopen(name: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", name.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

fn is_regular(name: BorrowedFd<'_>) -> io::Result<bool> {
    let mode = rustix::fs::fstat(name)?.st_mode;
    Ok(FileType::from_raw_mode(mode) == FileType::RegularFile)
}
