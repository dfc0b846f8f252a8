//! What was learned, on disk: a redb file, and a thread that writes to it.
//!
//! ```text
//! table      key                       value
//! contexts   a context's key           what was learned in it
//! patterns   a pattern's key           what is known of it
//! names      an I/O node's name        epoch and number of the last announcement that was learned from, and when that was
//! ```
//!
//! All are written in one transaction: what a node announced is in the store if and only if its number is. A node that
//! announces again what it does not know to be kept is therefore heard once. Nobody who decides waits for the disk:
//! changes are left with the [`Keeper`], which writes all that there is, and then again.
//!
//! A disk that is full or fails costs nothing that is in memory: what could not be written waits, the file is opened anew (the
//! library trusts none that failed once), and since nobody knows what is in it then, all that is known is written
//! ([`Keeper::keep_learned`]).
//!
//! A store that cannot be read is renamed and said so; the council begins anew. One that another process has open, or
//! that this user may not read, is an error: its knowledge is there.

use presagio_pattern::KnowledgeBase;
use presagio_tune::{Changed, Tuner};
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
const PATTERNS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("patterns");
const NAMES: TableDefinition<&str, (u64, u64, u64)> = TableDefinition::new("names");

/// Memory for pages of the file: what was learned is in memory already.
const CACHE: usize = 4 << 20;

/// Changes that come while a disk is slow wait for each other: more often than this, nobody needs them.
const WRITE_EVERY: Duration = Duration::from_millis(100);

/// How long to wait after a write that failed: at first, and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

/// For how long who ends waits for a disk that stands still. What it does not write by then is lost to a node that learns alone; to a
/// council its nodes say it again.
const PATIENCE: Duration = Duration::from_secs(30);

/// Which announcement of a node was the last: a node that starts anew has another epoch, and counts from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Which life of the node.
    pub epoch: u64,
    /// Its last announcement.
    pub sequence: u64,
    /// When it came: milliseconds since 1970.
    pub at_ms: u64,
}

/// By key, a value; none is to be removed.
type Values = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// What is to be written in one transaction.
#[derive(Debug, Default)]
pub struct Changes {
    /// What was learned, by context.
    pub contexts: Vec<Changed>,
    /// What is known, by pattern.
    pub patterns: Vec<Changed>,
    /// What was heard of nodes that it comes from; none is forgotten.
    pub nodes: BTreeMap<String, Option<Heard>>,
}

impl Changes {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.contexts.is_empty() && self.patterns.is_empty() && self.nodes.is_empty()
    }
}

/// All that a store has.
#[derive(Debug, Default)]
pub struct Kept {
    /// By a context's key, what was learned in it.
    pub contexts: Vec<(Vec<u8>, Vec<u8>)>,
    /// By a pattern's key, what is known of it.
    pub patterns: Vec<(Vec<u8>, Vec<u8>)>,
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
    let opener = {
        let path = path.to_owned();
        Box::new(move || reopen(&path))
    };
    let keeper =
        Keeper::start(database, opener, kept.nodes.clone()).map_err(|error| system(path, error))?;
    Ok((keeper, kept))
}

/// Opens a store that failed. One that cannot be read any more makes way for another: all that it had is in memory.
fn reopen(path: &Path) -> Result<Database, String> {
    let attempted = match attempt(path) {
        Err(Trouble::Corrupt(_)) => {
            set_aside(path).map_err(|error| error.to_string())?;
            attempt(path)
        }
        attempted => attempted,
    };
    match attempted {
        Ok((database, _)) => Ok(database),
        Err(Trouble::Corrupt(why)) => Err(why),
        Err(Trouble::Other(error)) => Err(error.to_string()),
    }
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
    change.open_table(PATTERNS)?;
    change.open_table(NAMES)?;
    change.commit()?;
    let mut kept = Kept::default();
    let read = database.begin_read()?;
    for (table, into) in [
        (CONTEXTS, &mut kept.contexts),
        (PATTERNS, &mut kept.patterns),
    ] {
        for entry in read.open_table(table)?.iter()? {
            let (key, value) = entry?;
            into.push((key.value().to_vec(), value.value().to_vec()));
        }
    }
    for entry in read.open_table(NAMES)?.iter()? {
        let (name, heard) = entry?;
        let (epoch, sequence, at_ms) = heard.value();
        let heard = Heard {
            epoch,
            sequence,
            at_ms,
        };
        kept.nodes.insert(name.value().to_owned(), heard);
    }
    Ok(kept)
}

/// Changes that are not written yet.
#[derive(Debug, Default)]
struct Unwritten {
    contexts: Values,
    patterns: Values,
    nodes: BTreeMap<String, Option<Heard>>,
}

impl Unwritten {
    fn is_empty(&self) -> bool {
        self.contexts.is_empty() && self.patterns.is_empty() && self.nodes.is_empty()
    }

    fn add(&mut self, changes: Changes) {
        self.contexts.extend(changes.contexts);
        self.patterns.extend(changes.patterns);
        self.nodes.extend(changes.nodes);
    }

    /// What failed is written with what has come since, unless that says something newer.
    fn put_back(&mut self, mut failed: Unwritten) {
        std::mem::swap(self, &mut failed);
        let newer = failed;
        self.contexts.extend(newer.contexts);
        self.patterns.extend(newer.patterns);
        self.nodes.extend(newer.nodes);
    }
}

#[derive(Debug, Default)]
struct State {
    changes: Unwritten,
    /// What is on disk.
    kept: BTreeMap<String, Heard>,
    ends: bool,
    failed: u64,
    written: u64,
    /// The file was opened anew: nobody knows what is in it.
    wants_everything: bool,
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

/// Opens the file anew.
type Opener = Box<dyn Fn() -> Result<Database, String> + Send>;

/// Writes changes to the store, on a thread of its own. When it is dropped, all that was left with it is written, unless the disk
/// stands still.
#[derive(Debug)]
pub struct Keeper {
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
    patience: Duration,
}

impl Keeper {
    fn start(
        database: Database,
        opener: Opener,
        kept: BTreeMap<String, Heard>,
    ) -> io::Result<Keeper> {
        let desk = Arc::<Desk>::default();
        desk.state().kept = kept;
        let mut writer = Writer {
            database: Some(database),
            opener,
            desk: desk.clone(),
            last: None,
            failures: 0,
        };
        let builder = std::thread::Builder::new().name("presagio-keeper".to_owned());
        let thread = builder.spawn(move || {
            crate::give_way();
            writer.run();
        })?;
        Ok(Keeper {
            desk,
            thread: Some(thread),
            patience: PATIENCE,
        })
    }

    /// What changed: it is written in one transaction, soon.
    pub fn keep(&self, changes: Changes) {
        self.desk.state().changes.add(changes);
        self.desk.changed.notify_one();
    }

    /// Keeps what changed of what was learned, and what was heard of nodes; or all that is known, if the file was opened anew.
    pub fn keep_learned(
        &self,
        (tuner, known): (&mut Tuner, Option<&mut KnowledgeBase>),
        nodes: BTreeMap<String, Option<Heard>>,
    ) {
        let mut changes = Changes {
            nodes,
            ..Changes::default()
        };
        if std::mem::take(&mut self.desk.state().wants_everything) {
            changes.contexts = tuner.everything();
            changes.patterns = known.map(KnowledgeBase::everything).unwrap_or_default();
            self.keep_names();
        } else {
            changes.contexts = tuner.changed();
            changes.patterns = known.map(KnowledgeBase::changed).unwrap_or_default();
        }
        if !changes.is_empty() {
            self.keep(changes);
        }
    }

    /// All names that were in the store are written again, unless something newer is to be.
    fn keep_names(&self) {
        let mut state = self.desk.state();
        let kept = state.kept.clone().into_iter();
        let kept = kept.map(|(name, heard)| (name, Some(heard)));
        let newer = std::mem::take(&mut state.changes.nodes);
        state.changes.nodes = kept.chain(newer).collect();
    }

    /// Whether all that is known is to be kept, not only what changed.
    pub fn wants_everything(&self) -> bool {
        self.desk.state().wants_everything
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

    /// Names of nodes that are in the store.
    pub fn names(&self) -> usize {
        self.desk.state().kept.len()
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
        let Some(thread) = self.thread.take() else {
            return;
        };
        match crate::before(Instant::now() + self.patience, || thread.is_finished()) {
            true => {
                let _ = thread.join();
            }
            // A thread that waits for a disk cannot be ended: it is left alone, and goes with the process.
            false => {
                tracing::warn!("the store stands still: what was learned last is not in it");
            }
        }
    }
}

/// The thread that writes.
struct Writer {
    /// None if it failed, and was not opened anew yet.
    database: Option<Database>,
    opener: Opener,
    desk: Arc<Desk>,
    /// When it wrote last.
    last: Option<Instant>,
    /// Writes that failed, since one did not.
    failures: u32,
}

impl Writer {
    /// Writes until the end.
    fn run(&mut self) {
        while let Some(changes) = self.wait() {
            self.last = Some(Instant::now());
            match self.write(&changes) {
                Ok(()) => self.wrote(changes),
                Err(why) => {
                    self.failed(&why, changes);
                    if self.desk.state().ends {
                        tracing::warn!("what was learned last is not in the store: {why}");
                        return;
                    }
                }
            }
        }
    }

    /// How long nothing is written after the last time.
    fn pause(&self) -> Duration {
        match self.failures {
            0 => WRITE_EVERY,
            count => (RETRY.0 * 2_u32.saturating_pow(count.min(16) - 1)).min(RETRY.1),
        }
    }

    /// Waits for changes and takes them: `None` at the end.
    fn wait(&self) -> Option<Unwritten> {
        let mut state = self.desk.state();
        loop {
            let early = self.last.map_or(Duration::ZERO, |last| {
                self.pause().saturating_sub(last.elapsed())
            });
            match (state.changes.is_empty(), state.ends) {
                (true, true) => return None,
                (true, false) => {
                    state = self
                        .desk
                        .changed
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner);
                }
                (false, false) if !early.is_zero() => {
                    let waited = self.desk.changed.wait_timeout(state, early);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                (false, _) => return Some(std::mem::take(&mut state.changes)),
            }
        }
    }

    fn write(&mut self, changes: &Unwritten) -> Result<(), String> {
        let database = match self.database.take() {
            Some(database) => database,
            None => {
                let database = (self.opener)()?;
                self.desk.state().wants_everything = true;
                database
            }
        };
        // Pages that are damaged may make the library panic.
        let written = catch_unwind(AssertUnwindSafe(move || {
            write(&database, changes).map(|()| database)
        }));
        let written = written.map_err(|_| "its pages contradict each other".to_owned())?;
        self.database = Some(written.map_err(|error| error.to_string())?);
        Ok(())
    }

    fn wrote(&mut self, changes: Unwritten) {
        if std::mem::take(&mut self.failures) > 0 {
            tracing::warn!("what was learned can be written again, and is");
        }
        let mut state = self.desk.state();
        state.written += changes.contexts.len() as u64;
        for (name, heard) in changes.nodes {
            match heard {
                Some(heard) => state.kept.insert(name, heard),
                None => state.kept.remove(&name),
            };
        }
    }

    /// What failed waits for the next attempt, with another database.
    fn failed(&mut self, why: &str, changes: Unwritten) {
        self.failures += 1;
        if self.failures == 1 {
            tracing::warn!("what was learned cannot be written, and is tried again: {why}");
        }
        let mut state = self.desk.state();
        state.failed += 1;
        state.changes.put_back(changes);
    }
}

fn write(database: &Database, changes: &Unwritten) -> Result<(), redb::Error> {
    let change = database.begin_write()?;
    for (table, values) in [(CONTEXTS, &changes.contexts), (PATTERNS, &changes.patterns)] {
        let mut table = change.open_table(table)?;
        for (key, value) in values {
            match value {
                Some(value) => table.insert(&**key, &**value)?,
                None => table.remove(&**key)?,
            };
        }
    }
    {
        let mut names = change.open_table(NAMES)?;
        for (name, heard) in &changes.nodes {
            match heard {
                Some(it) => names.insert(&**name, (it.epoch, it.sequence, it.at_ms))?,
                None => names.remove(&**name)?,
            };
        }
    }
    change.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use redb::StorageBackend;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    fn path() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("learned.redb");
        (dir, path)
    }

    fn heard(epoch: u64, sequence: u64) -> Heard {
        Heard {
            epoch,
            sequence,
            at_ms: 1000 + sequence,
        }
    }

    fn context(key: u8, value: u8) -> Changed {
        (vec![key], Some(vec![value]))
    }

    fn contexts(all: Vec<Changed>) -> Changes {
        Changes {
            contexts: all,
            ..Changes::default()
        }
    }

    #[test]
    fn what_was_learned_is_there_again() {
        let (_dir, path) = path();
        let (keeper, kept) = open(&path).unwrap();
        assert!(kept.contexts.is_empty());
        keeper.keep(Changes {
            contexts: vec![context(1, 10)],
            patterns: vec![context(3, 30), context(4, 40)],
            nodes: [
                ("io1".to_owned(), Some(heard(7, 3))),
                ("io2".to_owned(), Some(heard(8, 4))),
            ]
            .into(),
        });
        keeper.keep(contexts(vec![context(2, 20)]));
        keeper.keep(Changes {
            contexts: vec![(vec![2], None)],
            patterns: vec![(vec![4], None)],
            nodes: [("io2".to_owned(), None)].into(),
        });
        drop(keeper);
        let (_keeper, kept) = open(&path).unwrap();
        assert_eq!(kept.contexts, [(vec![1], vec![10])]);
        assert_eq!(kept.patterns, [(vec![3], vec![30])]);
        assert_eq!(kept.nodes, [("io1".to_owned(), heard(7, 3))].into());
        assert!(kept.set_aside.is_none());
    }

    #[test]
    fn what_is_kept_is_said_only_when_it_is() {
        let (_dir, path) = path();
        let (keeper, _) = open(&path).unwrap();
        let heard = heard(1, 1);
        keeper.keep(Changes {
            nodes: [("io1".to_owned(), Some(heard))].into(),
            ..contexts(vec![context(1, 10)])
        });
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

    /// A file on a disk that can be full.
    #[derive(Debug)]
    struct Disk {
        file: redb::backends::FileBackend,
        is_full: Arc<AtomicBool>,
    }

    impl Disk {
        fn open(path: &Path, is_full: &Arc<AtomicBool>) -> Result<Database, String> {
            let file = std::fs::OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(path);
            let file = redb::backends::FileBackend::new(file.map_err(|it| it.to_string())?);
            let disk = Disk {
                file: file.map_err(|error| error.to_string())?,
                is_full: is_full.clone(),
            };
            let database = Database::builder().create_with_backend(disk);
            let database = database.map_err(|error| error.to_string())?;
            tables(&database).map_err(|error| error.to_string())?;
            Ok(database)
        }

        fn takes(&self) -> io::Result<()> {
            match self.is_full.load(Relaxed) {
                true => Err(io::ErrorKind::StorageFull.into()),
                false => Ok(()),
            }
        }
    }

    impl StorageBackend for Disk {
        fn len(&self) -> io::Result<u64> {
            self.file.len()
        }
        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.file.read(offset, out)
        }
        fn set_len(&self, len: u64) -> io::Result<()> {
            self.takes()?;
            self.file.set_len(len)
        }
        fn sync_data(&self) -> io::Result<()> {
            self.takes()?;
            self.file.sync_data()
        }
        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.takes()?;
            self.file.write(offset, data)
        }
        fn close(&self) -> io::Result<()> {
            self.file.close()
        }
    }

    fn until(mut is_so: impl FnMut() -> bool) {
        let late = Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(Instant::now() < late);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn a_disk_that_was_full_is_written_again_and_nothing_is_lost() {
        let (_dir, path) = path();
        let is_full = Arc::<AtomicBool>::default();
        let opener = {
            let (path, is_full) = (path.clone(), is_full.clone());
            Box::new(move || Disk::open(&path, &is_full))
        };
        let database = Disk::open(&path, &is_full).unwrap();
        let keeper = Keeper::start(database, opener, BTreeMap::new()).unwrap();
        let say = |key: u8, sequence: u64| {
            keeper.keep(Changes {
                nodes: [("io1".to_owned(), Some(heard(1, sequence)))].into(),
                ..contexts(vec![context(key, key)])
            });
        };
        say(1, 1);
        until(|| keeper.kept("io1").sequence == 1);
        is_full.store(true, Relaxed);
        say(2, 2);
        until(|| keeper.counts().0 >= 1);
        say(3, 3);
        until(|| keeper.counts().0 >= 2);
        assert_eq!(keeper.kept("io1").sequence, 1, "it is not claimed");
        assert!(!keeper.wants_everything());
        is_full.store(false, Relaxed);
        until(|| keeper.kept("io1").sequence == 3);
        assert!(keeper.wants_everything(), "the file may be another one");
        drop(keeper);
        let (_keeper, kept) = open(&path).unwrap();
        assert!(kept.set_aside.is_none());
        let keys: Vec<u8> = kept.contexts.iter().map(|(key, _)| key[0]).collect();
        assert_eq!(keys, [1, 2, 3]);
        assert_eq!(kept.nodes["io1"].sequence, 3);
    }

    #[test]
    fn a_store_that_is_gone_when_it_is_opened_anew_gets_all_that_is_known() {
        let (_dir, path) = path();
        let is_full = Arc::<AtomicBool>::default();
        let opener = {
            let path = path.clone();
            Box::new(move || reopen(&path))
        };
        let database = Disk::open(&path, &is_full).unwrap();
        let keeper = Keeper::start(database, opener, BTreeMap::new()).unwrap();
        let mut tuner = Tuner::new(presagio_tune::TunerSettings::default());
        let mut learn = |pattern: u32, nodes| {
            let context = presagio_tune::Context::Pattern(pattern);
            assert!(tuner.learn(&context, "SJF".parse().unwrap(), 5.0));
            keeper.keep_learned((&mut tuner, None), nodes);
        };
        learn(1, [("io1".to_owned(), Some(heard(1, 1)))].into());
        until(|| keeper.kept("io1").sequence == 1);
        is_full.store(true, Relaxed);
        std::fs::rename(&path, path.with_extension("elsewhere")).unwrap();
        learn(2, BTreeMap::new());
        until(|| keeper.wants_everything());
        learn(3, BTreeMap::new());
        assert!(!keeper.wants_everything());
        drop(keeper);
        let (_keeper, kept) = open(&path).unwrap();
        assert_eq!(kept.contexts.len(), 3);
        assert_eq!(kept.nodes["io1"].sequence, 1);
    }

    #[test]
    fn a_store_that_stands_still_keeps_nobody_from_ending() {
        let (_dir, path) = path();
        let is_full = Arc::<AtomicBool>::default();
        let database = Disk::open(&path, &is_full).unwrap();
        is_full.store(true, Relaxed);
        // The file is opened anew when it has failed, and that never ends.
        let opener = Box::new(|| {
            loop {
                std::thread::park();
            }
        });
        let mut keeper = Keeper::start(database, opener, BTreeMap::new()).unwrap();
        keeper.patience = Duration::from_millis(20);
        keeper.keep(contexts(vec![context(1, 1)]));
        until(|| keeper.counts().0 >= 1);
        // That it returns is what is to be shown.
        drop(keeper);
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
            keeper.keep(contexts(vec![context(round, 1)]));
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
        keeper.keep(contexts(changed.collect()));
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
