//! Carries hints out on a few threads of their own, since one may block for as long as the device takes, or for ever.
//!
//! All that storage has to answer is done here, opening and closing files too: the manager's loop goes on whatever hangs, and
//! what hangs keeps the threads of its own device alone (`pool`).
//!
//! A file is opened when its first hint comes, and closed when no program has it open any more: until then a deleted
//! file would stay on its disk because of us. One that was opened ahead is closed again if no program comes for it. What
//! does not fit into the queue is not done, and said so.

use super::pool::Pool;
use super::threads;
use crate::blocks::FileKey;
use crate::hints::{Device, HintedFile, Hints, open_regular, reopen};
use crate::plan::{FileNumber, LoadDone, Reason};
use presagio_core::{Nanos, Range};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Files that are open for hints at the same time; more are opened for each hint anew.
const OPEN_MAX: usize = 256;
/// Files that are kept open ahead of programs, and for how long.
const AHEAD_MAX: usize = 16;
const AHEAD_KEPT: Nanos = Nanos::from_secs(30);
/// How long pages are waited for that are to be given back when the run is over, and how often it is looked whether they are.
const PATIENCE: Duration = Duration::from_millis(100);
const PATIENCE_STEP: Duration = Duration::from_micros(200);
/// The device of a file that was not opened yet, and that no other is known beside.
const SOMEWHERE: u64 = u64::MAX;

/// Where a file can be found.
#[derive(Clone, Debug)]
pub(super) struct Whereabouts {
    pub key: FileKey,
    /// A process and its descriptor, if one has it open.
    pub descriptor: Option<(u32, i32)>,
    pub path: PathBuf,
}

/// Something to do.
#[derive(Debug)]
pub(super) enum Work {
    Load(FileNumber, Range, Reason, Whereabouts),
    Release(FileNumber, Range, Whereabouts),
    /// Open a file that no program has opened yet, most likely on this device.
    OpenAhead {
        path: PathBuf,
        device: Option<u64>,
    },
    /// Find out where a file lies.
    Look(Whereabouts),
    Close(Arc<HintedFile>),
}

impl Work {
    /// The device that has to answer.
    fn device(&self) -> u64 {
        match self {
            Work::Load(.., at) | Work::Release(.., at) | Work::Look(at) => at.key.device,
            Work::Close(file) => file.target().key.device,
            Work::OpenAhead { device, .. } => device.unwrap_or(SOMEWHERE),
        }
    }

    /// Whether it is done before what waits already. A file is opened ahead shortly before it is needed, and what waits are loads of
    /// the files before.
    fn is_urgent(&self) -> bool {
        matches!(self, Work::OpenAhead { .. })
    }

    /// Whether it may be left undone where too much is to be done.
    fn can_wait(&self) -> bool {
        !matches!(self, Work::Look(_) | Work::Close(_))
    }
}

/// What came of it.
#[derive(Debug)]
pub(super) enum Done {
    Loaded(LoadDone),
    Opened(OpenedAhead),
    /// Where files with this device's number lie, if that could be seen.
    Looked {
        device: u64,
        found: Option<Arc<Device>>,
    },
}

/// A file that was opened ahead.
#[derive(Debug)]
pub(super) struct OpenedAhead {
    pub path: PathBuf,
    pub key: FileKey,
    pub size: u64,
    pub file: HintedFile,
}

/// See the module's header.
pub(super) struct Workers {
    /// For threads that are still to be started: many a program never has anything to do for them.
    sender: Sender<Done>,
    done: Receiver<Done>,
    shared: Arc<Shared>,
    /// Hints that found the queue full.
    pub refused: u64,
}

struct Shared {
    pool: Mutex<Pool<Work>>,
    work_came: Condvar,
    hints: Hints,
    kept: Mutex<Kept>,
    /// Releases that were taken on and are not done.
    releases: AtomicU64,
    began: Instant,
    offset: Nanos,
}

/// Files that are open for the hints to come.
#[derive(Default)]
struct Kept {
    files: BTreeMap<FileNumber, Arc<HintedFile>>,
    /// Those that a program has open. A hint may be carried out when that is over, and its file is then not kept.
    programs: BTreeSet<FileNumber>,
    /// Those that were opened ahead, and when; the first one first.
    ahead: VecDeque<(Nanos, FileNumber)>,
}

impl Kept {
    /// Gives the file back if it is not kept.
    fn keep(&mut self, number: FileNumber, file: Arc<HintedFile>) -> Option<Arc<HintedFile>> {
        if self.files.len() >= OPEN_MAX || self.files.contains_key(&number) {
            return Some(file);
        }
        self.files.insert(number, file);
        None
    }

    /// Takes out those that were opened ahead, before too many others or too long ago, and that no program has open.
    fn take_unwanted(&mut self, now: Nanos) -> Vec<Arc<HintedFile>> {
        let over = self.ahead.len().saturating_sub(AHEAD_MAX);
        let is_old = |(time, _): &&(Nanos, FileNumber)| now.since(*time) >= AHEAD_KEPT;
        let old = self.ahead.iter().take_while(is_old).count();
        let unwanted = self.ahead.drain(..over.max(old));
        let unwanted = unwanted.filter(|(_, number)| !self.programs.contains(number));
        unwanted
            .filter_map(|(_, number)| self.files.remove(&number))
            .collect()
    }
}

impl Shared {
    fn now(&self) -> Nanos {
        self.offset + self.began.elapsed().into()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pool(&self) -> MutexGuard<'_, Pool<Work>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What to do next; `None` when there will be nothing any more.
    fn next(&self) -> Option<(u64, Work)> {
        let mut pool = self.pool();
        loop {
            if let Some(next) = pool.take() {
                return Some(next);
            }
            if pool.is_over {
                return None;
            }
            pool.idle += 1;
            let waited = self.work_came.wait(pool);
            pool = waited.unwrap_or_else(PoisonError::into_inner);
            pool.idle -= 1;
        }
    }

    fn file(&self, number: FileNumber, at: &Whereabouts) -> Option<Arc<HintedFile>> {
        if let Some(open) = self.kept().files.get(&number) {
            return Some(open.clone());
        }
        let file = Arc::new(self.hints.open(find(at)?).ok()?);
        let mut kept = self.kept();
        if kept.programs.contains(&number) {
            kept.keep(number, file.clone());
        }
        Some(file)
    }

    fn load(&self, number: FileNumber, range: Range, reason: Reason, at: &Whereabouts) -> LoadDone {
        let started = self.now();
        let loaded = self.file(number, at).map(|file| file.will_need(range));
        let loaded = loaded.unwrap_or_default();
        LoadDone {
            file: number,
            range,
            reason,
            started,
            ended: self.now(),
            already: loaded.already,
            there: loaded.there,
        }
    }

    fn open_ahead(&self, path: PathBuf) -> Option<OpenedAhead> {
        let file = open_regular(&path).ok()?;
        let metadata = file.metadata().ok()?;
        let file = self.hints.open(file).ok()?;
        Some(OpenedAhead {
            key: FileKey {
                device: metadata.dev(),
                inode: metadata.ino(),
            },
            size: metadata.len(),
            file,
            path,
        })
    }

    /// Where a file lies. It is opened for a moment.
    fn look(&self, at: &Whereabouts) -> Option<Arc<Device>> {
        let file = self.hints.open(find(at)?).ok()?;
        Some(file.target().device.clone())
    }

    fn carry_out(&self, work: Work) -> Option<Done> {
        match work {
            Work::Load(file, range, reason, at) => {
                Some(Done::Loaded(self.load(file, range, reason, &at)))
            }
            Work::Release(file, range, at) => {
                if let Some(file) = self.file(file, &at) {
                    file.dont_need(range);
                }
                self.releases.fetch_sub(1, Relaxed);
                None
            }
            Work::OpenAhead { path, .. } => Some(Done::Opened(self.open_ahead(path)?)),
            Work::Look(at) => Some(Done::Looked {
                device: at.key.device,
                found: self.look(&at),
            }),
            Work::Close(file) => {
                drop(file);
                None
            }
        }
    }
}

/// Opens a file through a process that has it open, or by its name if that still leads to it.
fn find(at: &Whereabouts) -> Option<File> {
    let through = |(pid, fd)| reopen(pid, fd, at.key).ok();
    at.descriptor.and_then(through).or_else(|| {
        let file = open_regular(&at.path).ok()?;
        let metadata = file.metadata().ok()?;
        let is_same = (metadata.dev(), metadata.ino()) == (at.key.device, at.key.inode);
        is_same.then_some(file)
    })
}

impl Workers {
    /// Threads that count their time from `now`.
    pub fn start(now: Nanos) -> Workers {
        let shared = Arc::new(Shared {
            pool: Mutex::default(),
            work_came: Condvar::new(),
            hints: Hints::default(),
            kept: Mutex::default(),
            releases: AtomicU64::new(0),
            began: Instant::now(),
            offset: now,
        });
        let (sender, done) = channel();
        Workers {
            sender,
            done,
            refused: 0,
            shared,
        }
    }

    /// Has something done. What finds no room comes back as an error; a load, as one that did nothing.
    pub fn submit(&mut self, work: Work) -> Result<(), Option<LoadDone>> {
        if let Work::Load(number, .., at) | Work::Release(number, .., at) = &work
            && at.descriptor.is_some()
        {
            self.shared.kept().programs.insert(*number);
        }
        let device = work.device();
        let mut pool = self.shared.pool();
        if work.can_wait() && !pool.has_room(device) || !self.has_thread(&mut pool) {
            drop(pool);
            return Err(self.refuse(&work));
        }
        if matches!(work, Work::Release(..)) {
            self.shared.releases.fetch_add(1, Relaxed);
        }
        if work.is_urgent() {
            pool.push_first(device, work);
        } else {
            pool.push(device, work);
        }
        if pool.wants_thread() {
            self.start_thread(&mut pool);
        }
        drop(pool);
        self.shared.work_came.notify_one();
        Ok(())
    }

    /// Whether there is a thread at all: where there can be none, nothing is done.
    fn has_thread(&self, pool: &mut Pool<Work>) -> bool {
        pool.threads > 0 || self.start_thread(pool)
    }

    fn start_thread(&self, pool: &mut Pool<Work>) -> bool {
        let (shared, sender) = (self.shared.clone(), self.sender.clone());
        let started = threads::spawn("hints", move || serve(&shared, &sender)).is_ok();
        pool.threads += usize::from(started);
        started
    }

    fn refuse(&mut self, work: &Work) -> Option<LoadDone> {
        self.refused += 1;
        let Work::Load(file, range, reason, _) = *work else {
            return None;
        };
        let now = self.shared.now();
        Some(LoadDone {
            file,
            range,
            reason,
            started: now,
            ended: now,
            already: None,
            there: 0,
        })
    }

    /// What was done since the last time.
    pub fn results(&self) -> Vec<Done> {
        self.done.try_iter().collect()
    }

    /// What is done next, if it is within this time.
    pub fn wait(&self, time: Duration) -> Option<Done> {
        self.done.recv_timeout(time).ok()
    }

    /// Keeps a file that was opened ahead, for the hints that will come.
    pub fn keep(&mut self, number: FileNumber, file: HintedFile, now: Nanos) {
        let mut kept = self.shared.kept();
        let left = kept.keep(number, Arc::new(file));
        kept.ahead.push_back((now, number));
        drop(kept);
        self.close(left);
        self.close_unwanted(now);
    }

    /// Closes files that were opened ahead and that no program came for.
    pub fn close_unwanted(&mut self, now: Nanos) {
        let unwanted = self.shared.kept().take_unwanted(now);
        self.close(unwanted);
    }

    /// Nobody has the file open any more.
    pub fn closed(&mut self, number: FileNumber) {
        let mut kept = self.shared.kept();
        kept.programs.remove(&number);
        let file = kept.files.remove(&number);
        drop(kept);
        self.close(file);
    }

    /// Has files closed: that, too, may take as long as the storage likes.
    fn close(&mut self, files: impl IntoIterator<Item = Arc<HintedFile>>) {
        for file in files {
            let _ = self.submit(Work::Close(file));
        }
    }

    /// How many threads were needed so far.
    #[cfg(test)]
    pub fn threads(&self) -> usize {
        self.shared.pool().threads
    }

    /// One line for each back-end that did something.
    pub fn summary(&self) -> Vec<String> {
        self.shared.hints.summary()
    }

    /// Takes no more work. What is being done is not waited for, as it may take as long as the device likes; only what is given
    /// back has a moment, since this process may end before.
    pub fn stop(&mut self) {
        let kept = std::mem::take(&mut *self.shared.kept());
        self.close(kept.files.into_values());
        let mut pool = self.shared.pool();
        pool.keep_only(|work| matches!(work, Work::Close(_) | Work::Release(..)));
        pool.is_over = true;
        drop(pool);
        self.shared.work_came.notify_all();
        let until = Instant::now() + PATIENCE;
        while self.shared.releases.load(Relaxed) > 0 && Instant::now() < until {
            std::thread::sleep(PATIENCE_STEP);
        }
    }
}

fn serve(shared: &Shared, done: &Sender<Done>) {
    while let Some((device, work)) = shared.next() {
        let result = shared.carry_out(work);
        let mut pool = shared.pool();
        pool.done(device);
        let is_over = pool.is_over;
        drop(pool);
        // When it is over nobody asks, and what is in it is closed here.
        if let Some(result) = result.filter(|_| !is_over) {
            let _ = done.send(result);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::path::Path;
    use std::time::Duration;

    fn file(dir: &Path) -> (PathBuf, Whereabouts) {
        let path = dir.join("data");
        let mut file = File::create(&path).unwrap();
        file.write_all(&[7; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        let metadata = file.metadata().unwrap();
        let key = FileKey {
            device: metadata.dev(),
            inode: metadata.ino(),
        };
        let at = Whereabouts {
            key,
            descriptor: None,
            path: path.clone(),
        };
        (path, at)
    }

    fn open_ahead(path: impl Into<PathBuf>) -> Work {
        Work::OpenAhead {
            path: path.into(),
            device: None,
        }
    }

    fn wait(workers: &Workers) -> Done {
        workers.done.recv_timeout(Duration::from_secs(60)).unwrap()
    }

    #[test]
    fn a_load_is_carried_out_and_told() {
        let dir = tempfile::tempdir().unwrap();
        let (_, at) = file(dir.path());
        let mut workers = Workers::start(Nanos(5));
        let range = Range::at(0, 1 << 20);
        let work = Work::Load(FileNumber(1), range, Reason::Exact, at);
        workers.submit(work).unwrap();
        let Done::Loaded(done) = wait(&workers) else {
            panic!("not a load");
        };
        assert_eq!((done.file, done.range), (FileNumber(1), range));
        assert!(done.there > 0 && done.ended >= done.started);
    }

    #[test]
    fn a_file_stays_open_only_while_a_program_has_it_open() {
        use std::os::fd::AsRawFd;
        let dir = tempfile::tempdir().unwrap();
        let (path, mut at) = file(dir.path());
        let open = File::open(&path).unwrap();
        let number = FileNumber(1);
        let load =
            |at: &Whereabouts| Work::Load(number, Range::at(0, 4096), Reason::Exact, at.clone());
        let mut workers = Workers::start(Nanos(0));
        let shared = workers.shared.clone();
        let kept = || shared.kept().files.len();
        at.descriptor = Some((std::process::id(), open.as_raw_fd()));
        workers.submit(load(&at)).unwrap();
        wait(&workers);
        assert_eq!(kept(), 1);
        workers.closed(number);
        assert_eq!(kept(), 0);
        shared.carry_out(load(&at)); // a hint that had waited
        assert_eq!(kept(), 0);
    }

    #[test]
    fn a_file_that_was_opened_ahead_is_closed_when_nobody_comes_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let (path, _) = file(dir.path());
        let mut workers = Workers::start(Nanos(0));
        let mut keep = |number: u32, now: Nanos| {
            workers.submit(open_ahead(&path)).unwrap();
            let Done::Opened(ahead) = wait(&workers) else {
                panic!("not opened");
            };
            workers.keep(FileNumber(number), ahead.file, now);
        };
        let many = AHEAD_MAX as u32 + 1;
        (0..many).for_each(|number| keep(number, Nanos(number.into())));
        let shared = workers.shared.clone();
        let kept = || shared.kept().files.keys().map(|n| n.0).collect::<Vec<_>>();
        assert_eq!(
            kept(),
            (1..many).collect::<Vec<_>>(),
            "the first was one too many"
        );
        shared.kept().programs.insert(FileNumber(5));
        workers.close_unwanted(AHEAD_KEPT + Nanos(3));
        assert_eq!(kept(), (4..many).collect::<Vec<_>>());
        workers.close_unwanted(Nanos::MAX);
        assert_eq!(kept(), [5], "a program has it open");
    }

    #[test]
    fn what_is_refused_says_nothing_of_what_was_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        let (_, at) = file(dir.path());
        let mut workers = Workers::start(Nanos(0));
        let work = Work::Load(FileNumber(1), Range::at(0, 4096), Reason::Exact, at);
        let refused = workers.refuse(&work).unwrap();
        assert_eq!((refused.already, refused.there), (None, 0));
    }

    #[test]
    fn a_name_that_leads_elsewhere_by_now_loads_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (path, at) = file(dir.path());
        std::fs::rename(&path, dir.path().join("moved")).unwrap();
        std::fs::write(&path, [0; 8192]).unwrap();
        let mut workers = Workers::start(Nanos(0));
        let work = Work::Load(FileNumber(1), Range::at(0, 8192), Reason::Exact, at);
        workers.submit(work).unwrap();
        let Done::Loaded(done) = wait(&workers) else {
            panic!("not a load");
        };
        assert_eq!((done.already, done.there), (None, 0));
    }

    #[test]
    fn a_file_is_opened_ahead_and_what_is_no_file_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (path, at) = file(dir.path());
        let mut workers = Workers::start(Nanos(0));
        for path in [dir.path(), Path::new("/dev/zero"), &path] {
            workers.submit(open_ahead(path)).unwrap();
        }
        let Done::Opened(ahead) = wait(&workers) else {
            panic!("not opened");
        };
        assert_eq!((ahead.path, ahead.key, ahead.size), (path, at.key, 1 << 20));
    }

    #[test]
    fn where_a_file_lies_is_found_out_behind_the_loop() {
        let dir = tempfile::tempdir().unwrap();
        let (path, at) = file(dir.path());
        let mut workers = Workers::start(Nanos(0));
        workers.submit(Work::Look(at.clone())).unwrap();
        let Done::Looked { device, found } = wait(&workers) else {
            panic!("not a look");
        };
        assert!(device == at.key.device && found.is_some());
        std::fs::remove_file(path).unwrap();
        workers.submit(Work::Look(at)).unwrap();
        assert!(matches!(wait(&workers), Done::Looked { found: None, .. }));
    }

    #[test]
    fn files_are_closed_by_others_than_the_loop_even_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let (path, _) = file(dir.path());
        let mut workers = Workers::start(Nanos(0));
        workers.submit(open_ahead(path)).unwrap();
        let Done::Opened(ahead) = wait(&workers) else {
            panic!("not opened");
        };
        workers.keep(FileNumber(1), ahead.file, Nanos(0));
        let kept = Arc::downgrade(&workers.shared.kept().files[&FileNumber(1)]);
        workers.stop();
        while kept.strong_count() > 0 {
            std::thread::yield_now();
        }
        assert!(workers.submit(open_ahead("/")).is_err());
    }
}
