//! Carries hints out on a few threads of their own, since one may block for as long as the device takes.
//!
//! A file is opened when its first hint comes, and closed when no program has it open any more: until then a deleted
//! file would stay on its disk because of us. One that was opened ahead is closed again if no program comes for it. What
//! does not fit into the queue is not done, and said so.

use super::threads;
use crate::blocks::FileKey;
use crate::hints::{Device, HintedFile, Hints, open_regular, reopen};
use crate::plan::{FileNumber, LoadDone, Reason};
use presagio_core::{Nanos, Range};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Hints that are carried out at the same time.
const THREADS: usize = 4;
/// Hints that wait.
const QUEUE_MAX: usize = 512;
/// Files that are open for hints at the same time; more are opened for each hint anew.
const OPEN_MAX: usize = 256;
/// Files that are kept open ahead of programs, and for how long.
const AHEAD_MAX: usize = 16;
const AHEAD_KEPT: Nanos = Nanos::from_secs(30);

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
    OpenAhead(PathBuf),
}

/// What came of it.
#[derive(Debug)]
pub(super) enum Done {
    Loaded(LoadDone),
    /// A file was opened ahead.
    Opened {
        path: PathBuf,
        key: FileKey,
        size: u64,
        device: Arc<Device>,
        file: HintedFile,
    },
}

/// Where threads get work from, and where they say what came of it.
type Ends = (Arc<Mutex<Receiver<Work>>>, Sender<Done>);

/// See the module's header.
pub(super) struct Workers {
    queue: Option<SyncSender<Work>>,
    done: Receiver<Done>,
    shared: Arc<Shared>,
    threads: Vec<std::thread::JoinHandle<()>>,
    /// What the threads will need, until there is something to do for them: many a program never has anything.
    waiting: Option<Ends>,
    /// Hints that found the queue full.
    pub refused: u64,
}

struct Shared {
    hints: Hints,
    kept: Mutex<Kept>,
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
    fn keep(&mut self, number: FileNumber, file: Arc<HintedFile>) {
        if self.files.len() < OPEN_MAX {
            self.files.entry(number).or_insert(file);
        }
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

    fn open_ahead(&self, path: PathBuf) -> Option<Done> {
        let file = open_regular(&path).ok()?;
        let metadata = file.metadata().ok()?;
        let file = self.hints.open(file).ok()?;
        Some(Done::Opened {
            key: FileKey {
                device: metadata.dev(),
                inode: metadata.ino(),
            },
            size: metadata.len(),
            device: file.target().device.clone(),
            file,
            path,
        })
    }

    fn carry_out(&self, work: Work) -> Option<Done> {
        match work {
            Work::Load(file, range, reason, at) => {
                Some(Done::Loaded(self.load(file, range, reason, &at)))
            }
            Work::Release(file, range, at) => {
                self.file(file, &at)?.dont_need(range);
                None
            }
            Work::OpenAhead(path) => self.open_ahead(path),
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
    pub fn start(now: Nanos) -> io::Result<Workers> {
        let shared = Arc::new(Shared {
            hints: Hints::default(),
            kept: Mutex::default(),
            began: Instant::now(),
            offset: now,
        });
        let (queue, work) = sync_channel(QUEUE_MAX);
        let (sender, done) = channel();
        let work = Arc::new(Mutex::new(work));
        Ok(Workers {
            queue: Some(queue),
            done,
            threads: Vec::new(),
            waiting: Some((work, sender)),
            refused: 0,
            shared,
        })
    }

    /// Where there can be no thread, the queue finds nobody at its end.
    fn start_threads(&mut self) {
        let Some((work, sender)) = self.waiting.take() else {
            return;
        };
        let thread = |_| {
            let (shared, work, sender) = (self.shared.clone(), work.clone(), sender.clone());
            threads::spawn("hints", move || serve(&shared, &work, &sender)).ok()
        };
        self.threads = (0..THREADS).filter_map(thread).collect();
    }

    /// Has something done. A load that finds no room is told at once as one that did nothing.
    pub fn submit(&mut self, work: Work) -> Option<LoadDone> {
        self.start_threads();
        let queue = self.queue.as_ref()?;
        if let Work::Load(number, .., at) | Work::Release(number, .., at) = &work
            && at.descriptor.is_some()
        {
            self.shared.kept().programs.insert(*number);
        }
        let (TrySendError::Full(work) | TrySendError::Disconnected(work)) =
            queue.try_send(work).err()?;
        self.refused += 1;
        let Work::Load(file, range, reason, _) = work else {
            return None;
        };
        let now = self.shared.now();
        Some(LoadDone {
            file,
            range,
            reason,
            started: now,
            ended: now,
            already: 0,
            there: 0,
        })
    }

    /// What was done since the last time.
    pub fn results(&self) -> Vec<Done> {
        self.done.try_iter().collect()
    }

    /// Keeps a file that was opened ahead, for the hints that will come.
    pub fn keep(&self, number: FileNumber, file: HintedFile, now: Nanos) {
        let mut kept = self.shared.kept();
        kept.keep(number, Arc::new(file));
        kept.ahead.push_back((now, number));
        drop(kept);
        self.close_unwanted(now);
    }

    /// Closes files that were opened ahead and that no program came for.
    pub fn close_unwanted(&self, now: Nanos) {
        let unwanted = self.shared.kept().take_unwanted(now);
        drop(unwanted); // behind the lock
    }

    /// Nobody has the file open any more.
    pub fn closed(&self, number: FileNumber) {
        let mut kept = self.shared.kept();
        kept.programs.remove(&number);
        let file = kept.files.remove(&number);
        drop(kept);
        drop(file); // behind the lock
    }

    /// Where a file lies. It is opened for a moment.
    pub fn device(&self, at: &Whereabouts) -> Option<Arc<Device>> {
        let file = self.shared.hints.open(find(at)?).ok()?;
        Some(file.target().device.clone())
    }

    /// One line for each back-end that did something.
    pub fn summary(&self) -> Vec<String> {
        self.shared.hints.summary()
    }

    /// Takes no more work. What is being done is not waited for: it may take as long as the device likes.
    pub fn stop(&mut self) {
        self.queue = None;
        self.threads.clear();
    }
}

fn serve(shared: &Shared, work: &Mutex<Receiver<Work>>, done: &Sender<Done>) {
    loop {
        let next = work.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(next) = next else {
            return;
        };
        if let Some(result) = shared.carry_out(next)
            && done.send(result).is_err()
        {
            return;
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

    fn wait(workers: &Workers) -> Done {
        workers.done.recv_timeout(Duration::from_secs(60)).unwrap()
    }

    #[test]
    fn a_load_is_carried_out_and_told() {
        let dir = tempfile::tempdir().unwrap();
        let (_, at) = file(dir.path());
        let mut workers = Workers::start(Nanos(5)).unwrap();
        let range = Range::at(0, 1 << 20);
        let work = Work::Load(FileNumber(1), range, Reason::Exact, at);
        assert!(workers.submit(work).is_none());
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
        let mut workers = Workers::start(Nanos(0)).unwrap();
        let shared = workers.shared.clone();
        let kept = || shared.kept().files.len();
        at.descriptor = Some((std::process::id(), open.as_raw_fd()));
        workers.submit(load(&at));
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
        let mut workers = Workers::start(Nanos(0)).unwrap();
        let mut keep = |number: u32, now: Nanos| {
            workers.submit(Work::OpenAhead(path.clone()));
            let Done::Opened { file, .. } = wait(&workers) else {
                panic!("not opened");
            };
            workers.keep(FileNumber(number), file, now);
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
    fn a_name_that_leads_elsewhere_by_now_loads_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (path, at) = file(dir.path());
        std::fs::rename(&path, dir.path().join("moved")).unwrap();
        std::fs::write(&path, [0; 8192]).unwrap();
        let mut workers = Workers::start(Nanos(0)).unwrap();
        workers.submit(Work::Load(
            FileNumber(1),
            Range::at(0, 8192),
            Reason::Exact,
            at,
        ));
        assert!(matches!(wait(&workers), Done::Loaded(done) if done.there == 0));
    }

    #[test]
    fn a_file_is_opened_ahead_and_what_is_no_file_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (path, at) = file(dir.path());
        let mut workers = Workers::start(Nanos(0)).unwrap();
        workers.submit(Work::OpenAhead(dir.path().into()));
        workers.submit(Work::OpenAhead("/dev/zero".into()));
        workers.submit(Work::OpenAhead(path.clone()));
        let Done::Opened {
            path: found,
            key,
            size,
            ..
        } = wait(&workers)
        else {
            panic!("not opened");
        };
        assert_eq!((found, key, size), (path, at.key, 1 << 20));
    }
}
