//! The files that some client has open: each once, however many have it.
//!
//! This is where a file gets its number for the scheduler, so that requests of different clients to one file meet in
//! one queue; and where it is known that a file which loses its name is still in use.

use crate::export::FileKey;
use presagio_core::FileId;
use presagio_storage::Bytes;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// All open files of a node.
#[derive(Debug, Default)]
pub struct Files {
    table: Mutex<Table>,
    /// A file is no longer about to lose its last name.
    settled: Condvar,
    /// Who wants to know of files without a name that nobody has open any more.
    reaper: OnceLock<Reaper>,
}

/// What is done with a file without a name that nobody has open any more.
pub struct Reaper(pub Box<dyn Fn(FileKey) + Send + Sync>);

impl std::fmt::Debug for Reaper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reaper")
    }
}

#[derive(Debug, Default)]
struct Table {
    by_key: HashMap<FileKey, Entry>,
    /// Files that nobody had open, and that are about to lose their last name.
    losing: HashSet<FileKey>,
}

#[derive(Debug)]
struct Entry {
    file: Arc<File>,
    opens: usize,
}

/// A file that is open.
#[derive(Debug)]
pub struct File {
    /// Which it is.
    pub key: FileKey,
    /// Where it was when it was opened first, from the root of the machine: for people.
    pub path: Box<[u8]>,
    /// How it lies on data servers, while it is open.
    bytes: Mutex<Option<Weak<dyn Bytes>>>,
    /// Whether its last name is gone.
    nameless: AtomicBool,
}

impl File {
    /// What the scheduler calls one of its objects.
    pub fn id(&self, object: u16) -> FileId {
        id_of(self.key, object)
    }

    /// Its bytes, as somebody has them open.
    pub fn bytes(&self) -> Option<Arc<dyn Bytes>> {
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        bytes.as_ref().and_then(Weak::upgrade)
    }

    /// Somebody has opened its bytes.
    pub fn set_bytes(&self, bytes: &Arc<dyn Bytes>) {
        let mut known = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some(Arc::downgrade(bytes));
    }

    /// Whether its last name is gone, and it lives on only because it is open.
    pub fn is_nameless(&self) -> bool {
        self.nameless.load(Ordering::Relaxed)
    }
}

/// What the scheduler calls an object of a file. It follows from the file alone, so that what is foreseen of a file can
/// be told before anybody has opened it. Two files may share an id, which is most unlikely, and does no harm: who serves
/// a batch looks whether all of it is of one file.
pub fn id_of(key: FileKey, object: u16) -> FileId {
    let mixed = (key.inode ^ key.device.rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    FileId(
        (mixed ^ mixed >> 29).wrapping_add(u64::from(object).wrapping_mul(0xd6e8_feb8_6659_fd93)),
    )
}

impl Files {
    /// From now on, `reaper` is told of files without a name that nobody has open any more.
    pub fn tell(&self, reaper: Reaper) {
        assert!(self.reaper.set(reaper).is_ok(), "one reaper");
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody opened the file of `key`. Waits for one that is about to lose its last name, so that whoever looks after
    /// this whether it has a name is told the truth for as long as the file is open.
    pub fn opened(self: &Arc<Self>, key: FileKey, path: impl FnOnce() -> Vec<u8>) -> Hold {
        let table = self.table();
        let waited = self
            .settled
            .wait_while(table, |table| table.losing.contains(&key));
        let mut table = waited.unwrap_or_else(PoisonError::into_inner);
        let entry = table.by_key.entry(key).or_insert_with(|| {
            let file = File {
                key,
                path: path().into(),
                bytes: Mutex::default(),
                nameless: AtomicBool::new(false),
            };
            Entry {
                file: Arc::new(file),
                opens: 0,
            }
        });
        entry.opens += 1;
        Hold {
            file: entry.file.clone(),
            files: self.clone(),
        }
    }

    /// The file of `key` is about to lose its last name. `None` if it is open; else nobody opens it until what is returned
    /// is dropped.
    pub fn losing(&self, key: FileKey) -> Option<Losing<'_>> {
        let mut table = self.table();
        if table.by_key.contains_key(&key) {
            return None;
        }
        // Two that take its last two names at once need no more than one mark.
        let first = table.losing.insert(key);
        Some(Losing {
            files: self,
            key: first.then_some(key),
        })
    }

    /// The file of `key` lost its last name: is it open?
    pub fn lost_name(&self, key: FileKey) -> bool {
        let table = self.table();
        let file = table.by_key.get(&key);
        if let Some(entry) = file {
            entry.file.nameless.store(true, Ordering::Relaxed);
        }
        file.is_some()
    }

    /// The file of `key`, if it is open.
    pub fn find(&self, key: FileKey) -> Option<Arc<File>> {
        self.table()
            .by_key
            .get(&key)
            .map(|entry| entry.file.clone())
    }

    /// The open files that have no name any more.
    pub fn nameless(&self) -> Vec<FileKey> {
        let table = self.table();
        let files = table.by_key.values().map(|entry| &entry.file);
        let nameless = files.filter(|file| file.is_nameless());
        nameless.map(|file| file.key).collect()
    }

    /// How many files are open.
    pub fn len(&self) -> usize {
        self.table().by_key.len()
    }
}

/// A file that nobody has open is about to lose its last name.
pub struct Losing<'a> {
    files: &'a Files,
    key: Option<FileKey>,
}

impl Drop for Losing<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.files.table().losing.remove(&key);
            self.files.settled.notify_all();
        }
    }
}

/// Names that are being taken from files. Which file a name stands for must not change between the moment when it is looked
/// at and the moment when the name is gone: one file would be kept, and another lost.
///
/// Each waits for those who are at the same name, and for nobody else: a file system that hangs with one name holds no other up.
#[derive(Debug, Default)]
pub struct Moving {
    names: Mutex<HashSet<DirName>>,
    /// A name is free again.
    freed: Condvar,
}

/// A name in a directory.
type DirName = (FileKey, Box<[u8]>);

/// Names that nobody else takes or moves for as long as this is there.
#[derive(Debug)]
pub struct Alone<'a, const N: usize> {
    moving: &'a Moving,
    names: [DirName; N],
}

impl Moving {
    /// Nobody else takes or moves these names until what is returned is dropped. All are had at once or none, so that no two wait
    /// for each other.
    pub fn hold<const N: usize>(&self, names: [(FileKey, &[u8]); N]) -> Alone<'_, N> {
        let names = names.map(|(dir, name)| (dir, Box::from(name)));
        let is_taken = |taken: &mut HashSet<DirName>| names.iter().any(|name| taken.contains(name));
        let waited = self.freed.wait_while(self.names(), is_taken);
        let mut taken = waited.unwrap_or_else(PoisonError::into_inner);
        taken.extend(names.iter().cloned());
        drop(taken);
        let moving = self;
        Alone { moving, names }
    }

    fn names(&self) -> MutexGuard<'_, HashSet<DirName>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<const N: usize> Drop for Alone<'_, N> {
    fn drop(&mut self) {
        let mut taken = self.moving.names();
        for name in &self.names {
            taken.remove(name);
        }
        drop(taken);
        self.moving.freed.notify_all();
    }
}

/// Keeps a file known for as long as it is open.
#[derive(Debug)]
pub struct Hold {
    file: Arc<File>,
    files: Arc<Files>,
}

impl Hold {
    /// The file.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }
}

impl Clone for Hold {
    fn clone(&self) -> Hold {
        self.files.opened(self.file.key, || self.file.path.to_vec())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut table = self.files.table();
        let Some(entry) = table.by_key.get_mut(&self.file.key) else {
            return;
        };
        entry.opens -= 1;
        if entry.opens > 0 {
            return;
        }
        table.by_key.remove(&self.file.key);
        drop(table);
        if self.file.is_nameless()
            && let Some(reaper) = self.files.reaper.get()
        {
            (reaper.0)(self.file.key);
        }
    }
}

/// A regular file that a client has open.
pub struct OpenFile {
    /// A number that no other open file of this node has.
    pub number: u64,
    /// Its bytes.
    pub bytes: Arc<dyn Bytes>,
    /// Its place among all that are open.
    pub hold: Hold,
    /// Whether it may be read.
    pub read: bool,
    /// Whether it may be written.
    pub write: bool,
    /// Whether each write goes to its end.
    pub append: bool,
    /// Whether each write is to be durable before it is acknowledged.
    pub durable: Option<presagio_storage::Durable>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(inode: u64) -> FileKey {
        FileKey { device: 1, inode }
    }

    #[test]
    fn a_file_has_one_id_however_many_open_it() {
        let files = Arc::new(Files::default());
        let (first, second) = (
            files.opened(key(7), Vec::new),
            files.opened(key(7), Vec::new),
        );
        assert_eq!(first.file().id(3), second.file().id(3));
        assert_ne!(
            first.file().id(0),
            files.opened(key(8), Vec::new).file().id(0)
        );
        drop(first);
        assert_eq!(files.len(), 1);
        drop(second);
        assert_eq!(files.len(), 0);
    }

    #[test]
    fn a_file_is_open_before_it_loses_its_name_or_after() {
        let files = Arc::new(Files::default());
        let losing = files.losing(key(7)).unwrap();
        let (sent, opened) = std::sync::mpsc::channel();
        let other = files.clone();
        let opener = std::thread::spawn(move || {
            let hold = other.opened(key(7), Vec::new);
            sent.send(()).unwrap();
            hold
        });
        let soon = std::time::Duration::from_millis(50);
        assert!(opened.recv_timeout(soon).is_err(), "it waits");
        drop(losing);
        let hold = opener.join().unwrap();
        assert!(files.losing(key(7)).is_none(), "it is open");
        drop(hold);
        assert!(files.losing(key(7)).is_some());
    }

    #[test]
    fn a_file_without_a_name_is_known_while_it_is_open() {
        let files = Arc::new(Files::default());
        assert!(!files.lost_name(key(7)));
        let hold = files.opened(key(7), Vec::new);
        assert!(!hold.file().is_nameless() && files.lost_name(key(7)));
        assert!(hold.file().is_nameless());
    }

    #[test]
    fn a_name_waits_for_those_who_are_at_it_and_for_no_other() {
        let moving = Moving::default();
        let (dir, other) = (key(1), key(2));
        let hangs = moving.hold([(dir, b"name"), (other, b"name")]);
        // More than there could be locks to share.
        let many = (0..1000).map(|i| format!("name{i}"));
        let held: Vec<_> = many.map(|it| moving.hold([(dir, it.as_bytes())])).collect();
        // Two names may be one.
        let same = moving.hold([(key(3), b"name"), (key(3), b"name")]);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| moving.hold([(dir, b"free"), (other, b"name")]));
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!waits.is_finished());
            drop(moving.hold([(dir, b"free")]));
            drop(hangs);
            drop(waits.join().unwrap());
        });
        drop((held, same));
        assert!(moving.names().is_empty());
    }
}
