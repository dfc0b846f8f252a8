//! What was learned, on disk: a redb file, and a thread that writes to it.
//!
//! ```text
//! table      key                       value
//! contexts   a context's key           what was learned in it
//! nodes      an I/O node's name        epoch and number of the last announcement that was learned from
//! ```
//!
//! Both are written in one transaction: what a node announced is in the store if and only if its number is. A node that
//! announces again what it does not know to be kept is therefore heard once. Nobody who decides waits for the disk:
//! changes are left with the [`Keeper`], which writes all that there is, and then again.
//!
//! A store that cannot be read is renamed and said so; the council begins anew. One that another process has open, or
//! that this user may not read, is an error: its knowledge is there.

use presagio_tune::Changed;
use redb::{
    Database, DatabaseError, ReadableDatabase, ReadableTable, StorageError, TableDefinition,
};
use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const CONTEXTS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("contexts");
const NODES: TableDefinition<&str, (u64, u64)> = TableDefinition::new("nodes");

/// Memory for pages of the file: what was learned is in memory already.
const CACHE: usize = 4 << 20;

/// Changes that come while a disk is slow wait for each other: more often than this, nobody needs them.
const WRITE_EVERY: Duration = Duration::from_millis(100);

/// Which announcement of a node was the last: a node that starts anew has another epoch, and counts from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Which life of the node.
    pub epoch: u64,
    /// Its last announcement.
    pub sequence: u64,
}

/// All that a store has.
#[derive(Debug, Default)]
pub struct Kept {
    /// By a context's key, what was learned in it.
    pub contexts: Vec<(Vec<u8>, Vec<u8>)>,
    /// By name, what was heard of a node.
    pub nodes: BTreeMap<String, Heard>,
    /// Where a store that could not be read is now, and why it could not.
    pub set_aside: Option<(PathBuf, String)>,
}

/// A store cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Somebody else has it.
    #[error(
        "{0} is in use by another process: each council, and each node, needs a store of its own"
    )]
    InUse(PathBuf),
    /// Another version of Presagio wrote it.
    #[error("{0} was written by an older Presagio (format {1}): move it away, or use that version")]
    Old(PathBuf, u8),
    /// The system says so.
    #[error("{path} cannot be opened: {error}")]
    System {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// Why an attempt to open a store failed.
enum Trouble {
    Corrupt(String),
    Other(StoreError),
}

/// Opens the store at `path`, or makes one, and reads all of it.
pub fn open(path: &Path) -> Result<(Keeper, Kept), StoreError> {
    let (database, kept) = match attempt(path) {
        Ok(opened) => opened,
        Err(Trouble::Other(error)) => return Err(error),
        Err(Trouble::Corrupt(why)) => {
            let aside = set_aside(path).map_err(|error| system(path, error))?;
            tracing::warn!(
                "{} cannot be read ({why}): it is now {}, and what was learned begins anew",
                path.display(),
                aside.display()
            );
            let (database, mut kept) = attempt(path).map_err(|trouble| match trouble {
                Trouble::Other(error) => error,
                Trouble::Corrupt(why) => system(path, io::Error::other(why)),
            })?;
            kept.set_aside = Some((aside, why));
            (database, kept)
        }
    };
    let keeper =
        Keeper::start(database, kept.nodes.clone()).map_err(|error| system(path, error))?;
    Ok((keeper, kept))
}

fn system(path: &Path, error: io::Error) -> StoreError {
    let path = path.to_owned();
    StoreError::System { path, error }
}

/// A name beside it that is free.
fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let mut number = 1;
    loop {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".corrupt-{number}"));
        let aside = PathBuf::from(name);
        if !aside.try_exists()? {
            std::fs::rename(path, &aside)?;
            return Ok(aside);
        }
        number += 1;
    }
}

/// Pages that are damaged may make the library panic: that is an answer, too.
fn attempt(path: &Path) -> Result<(Database, Kept), Trouble> {
    let opened = catch_unwind(AssertUnwindSafe(|| read_all(path)));
    opened.unwrap_or_else(|_| {
        Err(Trouble::Corrupt(
            "its pages contradict each other".to_owned(),
        ))
    })
}

fn read_all(path: &Path) -> Result<(Database, Kept), Trouble> {
    let trouble = |error: DatabaseError| trouble_of(path, error);
    let mut database = Database::builder()
        .set_cache_size(CACHE)
        .create(path)
        .map_err(trouble)?;
    // Nothing else would compare the checksums of pages after an orderly end.
    database.check_integrity().map_err(trouble)?;
    let kept = tables(&database).map_err(|error| match error {
        redb::Error::Io(error) => Trouble::Other(system(path, error)),
        error => Trouble::Corrupt(error.to_string()),
    })?;
    Ok((database, kept))
}

fn trouble_of(path: &Path, error: DatabaseError) -> Trouble {
    let in_file = [io::ErrorKind::InvalidData, io::ErrorKind::UnexpectedEof];
    match error {
        DatabaseError::DatabaseAlreadyOpen => Trouble::Other(StoreError::InUse(path.to_owned())),
        DatabaseError::UpgradeRequired(version) => {
            Trouble::Other(StoreError::Old(path.to_owned(), version))
        }
        DatabaseError::Storage(StorageError::Io(error)) if !in_file.contains(&error.kind()) => {
            Trouble::Other(system(path, error))
        }
        error => Trouble::Corrupt(error.to_string()),
    }
}

/// Makes the tables if they are not there, and reads them.
fn tables(database: &Database) -> Result<Kept, redb::Error> {
    let change = database.begin_write()?;
    change.open_table(CONTEXTS)?;
    change.open_table(NODES)?;
    change.commit()?;
    let mut kept = Kept::default();
    let read = database.begin_read()?;
    for entry in read.open_table(CONTEXTS)?.iter()? {
        let (key, value) = entry?;
        kept.contexts
            .push((key.value().to_vec(), value.value().to_vec()));
    }
    for entry in read.open_table(NODES)?.iter()? {
        let (name, heard) = entry?;
        let (epoch, sequence) = heard.value();
        kept.nodes
            .insert(name.value().to_owned(), Heard { epoch, sequence });
    }
    Ok(kept)
}

/// Changes that are not written yet.
#[derive(Debug, Default)]
struct Changes {
    contexts: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    nodes: BTreeMap<String, Heard>,
}

impl Changes {
    fn is_empty(&self) -> bool {
        self.contexts.is_empty() && self.nodes.is_empty()
    }
}

#[derive(Debug, Default)]
struct State {
    changes: Changes,
    /// What is on disk.
    kept: BTreeMap<String, Heard>,
    ends: bool,
    failed: u64,
    written: u64,
}

#[derive(Debug, Default)]
struct Desk {
    state: Mutex<State>,
    changed: Condvar,
}

impl Desk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes changes to the store, on a thread of its own. When it is dropped, all that was left with it is written.
#[derive(Debug)]
pub struct Keeper {
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    fn start(database: Database, kept: BTreeMap<String, Heard>) -> io::Result<Keeper> {
        let desk = Arc::<Desk>::default();
        desk.state().kept = kept;
        let shared = desk.clone();
        let builder = std::thread::Builder::new().name("presagio-keeper".to_owned());
        let thread = builder.spawn(move || keep(&database, &shared))?;
        Ok(Keeper {
            desk,
            thread: Some(thread),
        })
    }

    /// What changed, and what was heard of nodes that it comes from: one transaction, soon. A value of none is forgotten.
    pub fn keep(&self, changed: Vec<Changed>, heard: BTreeMap<String, Heard>) {
        let mut state = self.desk.state();
        state.changes.contexts.extend(changed);
        state.changes.nodes.extend(heard);
        drop(state);
        self.desk.changed.notify_one();
    }

    /// The last announcement of a node that is in the store.
    pub fn kept(&self, node: &str) -> Heard {
        self.desk
            .state()
            .kept
            .get(node)
            .copied()
            .unwrap_or_default()
    }

    /// Changes that could not be written, and those that were.
    pub fn counts(&self) -> (u64, u64) {
        let state = self.desk.state();
        (state.failed, state.written)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.desk.state().ends = true;
        self.desk.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Writes until the end.
fn keep(database: &Database, desk: &Desk) {
    let mut last: Option<Instant> = None;
    while let Some(changes) = wait(desk, last) {
        last = Some(Instant::now());
        let written = write(database, &changes);
        let mut state = desk.state();
        match written {
            Ok(()) => {
                state.written += changes.contexts.len() as u64;
                state.kept.extend(changes.nodes);
            }
            Err(error) => {
                state.failed += 1;
                if state.failed == 1 {
                    tracing::warn!(
                        "what was learned cannot be written, and is tried again: {error}"
                    );
                }
                put_back(&mut state, changes);
                if state.ends {
                    return;
                }
            }
        }
    }
}

/// Changes that failed are written with the next ones, unless those say something newer.
fn put_back(state: &mut State, failed: Changes) {
    for (key, value) in failed.contexts {
        state.changes.contexts.entry(key).or_insert(value);
    }
    for (name, heard) in failed.nodes {
        state.changes.nodes.entry(name).or_insert(heard);
    }
}

/// Waits for changes and takes them: `None` at the end.
fn wait(desk: &Desk, last: Option<Instant>) -> Option<Changes> {
    let mut state = desk.state();
    loop {
        let early = last.map_or(Duration::ZERO, |last| {
            WRITE_EVERY.saturating_sub(last.elapsed())
        });
        match (state.changes.is_empty(), state.ends) {
            (true, true) => return None,
            (true, false) => {
                state = desk
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            (false, false) if !early.is_zero() => {
                let waited = desk.changed.wait_timeout(state, early);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            (false, _) => return Some(std::mem::take(&mut state.changes)),
        }
    }
}

fn write(database: &Database, changes: &Changes) -> Result<(), redb::Error> {
    let change = database.begin_write()?;
    {
        let mut contexts = change.open_table(CONTEXTS)?;
        for (key, value) in &changes.contexts {
            match value {
                Some(value) => contexts.insert(&**key, &**value)?,
                None => contexts.remove(&**key)?,
            };
        }
        let mut nodes = change.open_table(NODES)?;
        for (name, heard) in &changes.nodes {
            nodes.insert(&**name, (heard.epoch, heard.sequence))?;
        }
    }
    change.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("learned.redb");
        (dir, path)
    }

    #[test]
    fn what_was_learned_is_there_again() {
        let (_dir, path) = path();
        let (keeper, kept) = open(&path).unwrap();
        assert!(kept.contexts.is_empty());
        let heard = Heard {
            epoch: 7,
            sequence: 3,
        };
        keeper.keep(
            vec![(vec![1], Some(vec![10]))],
            [("io1".to_owned(), heard)].into(),
        );
        keeper.keep(vec![(vec![2], Some(vec![20]))], BTreeMap::new());
        keeper.keep(vec![(vec![2], None)], BTreeMap::new());
        drop(keeper);
        let (_keeper, kept) = open(&path).unwrap();
        assert_eq!(kept.contexts, [(vec![1], vec![10])]);
        assert_eq!(kept.nodes["io1"], heard);
        assert!(kept.set_aside.is_none());
    }

    #[test]
    fn what_is_kept_is_said_only_when_it_is() {
        let (_dir, path) = path();
        let (keeper, _) = open(&path).unwrap();
        let heard = Heard {
            epoch: 1,
            sequence: 1,
        };
        keeper.keep(
            vec![(vec![1], Some(vec![10]))],
            [("io1".to_owned(), heard)].into(),
        );
        while keeper.kept("io1") != heard {
            std::thread::yield_now();
        }
        assert_eq!(keeper.kept("io2"), Heard::default());
        // As another process would find it.
        let copy = path.with_extension("copy");
        std::fs::copy(&path, &copy).unwrap();
        let (_other, kept) = open(&copy).unwrap();
        assert_eq!(kept.nodes["io1"], heard);
    }

    #[test]
    fn a_store_in_use_is_an_error_and_stays() {
        let (_dir, path) = path();
        let (_keeper, _) = open(&path).unwrap();
        assert!(matches!(open(&path), Err(StoreError::InUse(_))));
        assert!(path.exists());
    }

    #[test]
    fn a_corrupt_store_is_set_aside() {
        let (_dir, path) = path();
        for round in 1..=2 {
            std::fs::write(&path, vec![b'x'; 9000]).unwrap();
            let (keeper, kept) = open(&path).unwrap();
            let (aside, _) = kept.set_aside.expect("said");
            assert!(
                aside
                    .to_string_lossy()
                    .ends_with(&format!(".corrupt-{round}"))
            );
            assert_eq!(std::fs::read(aside).unwrap().len(), 9000);
            keeper.keep(vec![(vec![round], Some(vec![1]))], BTreeMap::new());
            drop(keeper);
            assert_eq!(open(&path).unwrap().1.contexts.len(), 1);
        }
    }

    /// Wherever a byte is wrong: the store opens, and has what it had or says that it was set aside. What our own codec
    /// would not notice is checked by those who decode.
    #[test]
    fn a_damaged_store_never_stops_anybody() {
        let (_dir, path) = path();
        let (keeper, _) = open(&path).unwrap();
        let all: Vec<_> = (0..50_u8).map(|at| (vec![at], vec![at; 200])).collect();
        let changed = all
            .iter()
            .map(|(key, value)| (key.clone(), Some(value.clone())));
        keeper.keep(changed.collect(), BTreeMap::new());
        drop(keeper);
        let good = std::fs::read(&path).unwrap();
        let step = good.len() / 16 + 1;
        for at in (0..good.len()).step_by(step).chain([0, 9, 12, 33]) {
            let mut bad = good.clone();
            bad[at] ^= 0xff;
            std::fs::write(&path, &bad).unwrap();
            let (keeper, kept) = open(&path).unwrap_or_else(|error| panic!("byte {at}: {error}"));
            match kept.set_aside {
                None => assert_eq!(kept.contexts, all, "byte {at}"),
                Some((aside, _)) => std::fs::remove_file(aside).unwrap(),
            }
            drop(keeper);
        }
        std::fs::write(&path, &good[..good.len() / 2]).unwrap();
        assert!(open(&path).unwrap().1.set_aside.is_some());
    }

    #[test]
    fn a_place_where_nothing_can_be_written_is_an_error() {
        let error = open(Path::new("/proc/no/such/place.redb")).expect_err("no such place");
        assert!(error.to_string().contains("/proc/no/such"), "{error}");
    }
}
