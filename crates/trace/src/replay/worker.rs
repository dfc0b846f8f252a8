//! One thread of a replay: does what the threads of the trace did that it stands for, in their order.

use super::names::Target;
use super::pattern;
use super::{Failure, Options, Report, Timing};
use presagio_core::{Action, Event, FileId, Nanos};
use rustix::fs::{FallocateFlags, OFlags};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Longer transfers are done in pieces of this many bytes.
const PIECE: usize = 4 << 20;
/// How many failures are kept with their reasons.
pub(super) const FAILURES_MAX: usize = 8;
/// Sleeping ends late by about this much; the rest is waited for awake.
const SPIN: Duration = Duration::from_micros(100);

// The flags of open that a trace has, as x86-64 numbers them.
const O_TRUNC: u64 = 0o1000;
const O_DSYNC: u64 = 0o10_000;
const O_SYNC: u64 = 0o4_010_000;

/// An operation to be done.
pub(super) struct Job {
    pub(super) event: Event,
    pub(super) target: Arc<Target>,
    /// When, since the replay began.
    pub(super) due: Duration,
}

/// How many files may be open at a time, by all workers.
pub(super) struct Budget {
    open: AtomicUsize,
    max: usize,
}

impl Budget {
    pub(super) fn new(max: usize) -> Budget {
        let open = AtomicUsize::new(0);
        Budget { open, max }
    }
}

/// A file that a process has open, as often as it does.
struct Held {
    process: u32,
    file: FileId,
    handles: Vec<File>,
}

/// A thread's state.
pub(super) struct Worker<'a> {
    options: &'a Options,
    budget: &'a Budget,
    start: Instant,
    /// Most recently used last.
    held: Vec<Held>,
    buffer: Vec<u8>,
    expected: Vec<u8>,
    /// How much of the operation's time went into bytes that we made or checked, and not into the operation.
    aside: Duration,
    report: Report,
}

impl<'a> Worker<'a> {
    pub(super) fn new(options: &'a Options, budget: &'a Budget, start: Instant) -> Worker<'a> {
        Worker {
            options,
            budget,
            start,
            held: Vec::new(),
            buffer: Vec::new(),
            expected: Vec::new(),
            aside: Duration::ZERO,
            report: Report::default(),
        }
    }

    pub(super) fn run(mut self, jobs: impl Iterator<Item = Job>) -> Report {
        for job in jobs {
            // What is to be written is there when its time comes.
            self.make(&job.event, 0);
            self.wait(&job);
            self.aside = Duration::ZERO;
            let begin = Instant::now();
            let result = self.perform(&job);
            let took = begin.elapsed().saturating_sub(self.aside);
            self.report.latency.record(Nanos::from(took).0);
            self.report.operations += 1;
            if let Err(error) = result {
                self.fail(&job, &error);
            }
        }
        self.report
    }

    /// Waits until the job is due, and notes how late it is.
    fn wait(&mut self, job: &Job) {
        if let Timing::AsFast = self.options.timing {
            return;
        }
        let due = self.start + job.due;
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            match left.checked_sub(SPIN) {
                Some(sleep) if !sleep.is_zero() => std::thread::sleep(sleep),
                _ => std::hint::spin_loop(),
            }
        }
        self.report.slippage.record(Nanos::from(due.elapsed()).0);
    }

    fn fail(&mut self, job: &Job, error: &io::Error) {
        self.report.errors += 1;
        if self.report.failures.len() < FAILURES_MAX {
            self.report.failures.push(Failure {
                event: job.event,
                path: job.target.path.clone(),
                reason: error.to_string(),
            });
        }
    }

    fn perform(&mut self, job: &Job) -> io::Result<()> {
        let (event, target) = (&job.event, &*job.target);
        match event.action {
            Action::Open => self.open(event, target),
            Action::Close => self.close(event),
            Action::Read => self.read(event, target),
            Action::Write => self.write(event, target),
            Action::Seek => self
                .handle(event, target)?
                .seek(SeekFrom::Start(event.offset))
                .map(drop),
            Action::Sync => self.handle(event, target)?.sync_all(),
            Action::Truncate => self.handle(event, target)?.set_len(event.offset),
            Action::Allocate => self.allocate(event, target),
            Action::Remove => remove(target),
            // What a program did to a mapped file is not in the trace.
            Action::Map => Ok(()),
        }
    }

    fn open(&mut self, event: &Event, target: &Target) -> io::Result<()> {
        let file = open(target, event.len)?;
        self.room();
        self.budget.open.fetch_add(1, Relaxed);
        let at = match self.find(event) {
            Some(at) => at,
            None => {
                let (process, file) = (event.process, event.file);
                self.held.push(Held {
                    process,
                    file,
                    handles: Vec::new(),
                });
                self.held.len() - 1
            }
        };
        self.held[at].handles.push(file);
        Ok(())
    }

    fn find(&self, event: &Event) -> Option<usize> {
        let mine = |held: &Held| held.process == event.process && held.file == event.file;
        self.held.iter().rposition(mine)
    }

    /// Gives up the file that was unused for longest, if too many are open.
    fn room(&mut self) {
        if self.budget.open.load(Relaxed) >= self.budget.max && !self.held.is_empty() {
            let held = self.held.remove(0);
            self.budget.open.fetch_sub(held.handles.len(), Relaxed);
        }
    }

    fn close(&mut self, event: &Event) -> io::Result<()> {
        if let Some(at) = self.find(event) {
            self.held[at].handles.pop();
            self.budget.open.fetch_sub(1, Relaxed);
            if self.held[at].handles.is_empty() {
                self.held.remove(at);
            }
        }
        Ok(())
    }

    /// The open file of an event. Many traces do not say when files were opened.
    fn handle(&mut self, event: &Event, target: &Target) -> io::Result<&File> {
        let at = match self.find(event) {
            Some(at) => at,
            None => {
                self.open(&Event { len: 0, ..*event }, target)?;
                self.held.len() - 1
            }
        };
        let held = self.held.remove(at);
        self.held.push(held);
        let handles = self.held.last().and_then(|held| held.handles.last());
        handles.ok_or_else(|| io::Error::other("a file without a handle"))
    }

    /// Writes piece by piece; each was made before.
    fn write(&mut self, event: &Event, target: &Target) -> io::Result<()> {
        let mut done = 0;
        while done < event.moved() {
            let n = (event.moved() - done).min(PIECE as u64) as usize;
            let at = event.offset.saturating_add(done);
            let buffer = std::mem::take(&mut self.buffer);
            let file = self.handle(event, target);
            let written = file.and_then(|file| file.write_all_at(&buffer[..n], at));
            self.buffer = buffer;
            written?;
            done += n as u64;
            self.report.bytes_written += n as u64;
            let begin = Instant::now();
            self.make(event, done);
            self.aside += begin.elapsed();
        }
        Ok(())
    }

    /// Makes the piece that a write goes on with when so many bytes are done.
    fn make(&mut self, event: &Event, done: u64) {
        if event.action != Action::Write {
            return;
        }
        let n = (event.moved() - done).min(PIECE as u64) as usize;
        self.buffer.resize(n.max(self.buffer.len()), 0);
        let at = event.offset.saturating_add(done);
        pattern::fill(&mut self.buffer[..n], event.file, at);
    }

    /// Reads what was asked for. Where the file is shorter than it was, it is made as long first.
    fn read(&mut self, event: &Event, target: &Target) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let result = self.read_into(&mut buffer, event, target);
        self.buffer = buffer;
        result
    }

    fn read_into(
        &mut self,
        buffer: &mut Vec<u8>,
        event: &Event,
        target: &Target,
    ) -> io::Result<()> {
        let (mut done, mut grown) = (0, false);
        while done < event.len {
            let n = (event.len - done).min(PIECE as u64) as usize;
            let at = event.offset.saturating_add(done);
            buffer.resize(n.max(buffer.len()), 0);
            let got = match self.handle(event, target)?.read_at(&mut buffer[..n], at) {
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                other => other?,
            };
            self.account(&buffer[..got], event.file, at);
            done += got as u64;
            if got == 0 && (done >= event.moved() || grown) {
                break;
            }
            if got == 0 {
                self.grow(event, target)?;
                grown = true;
            }
        }
        if done < event.moved() {
            return Err(io::Error::new(
                ErrorKind::UnexpectedEof,
                format!("read {done} bytes where the program read {}", event.moved()),
            ));
        }
        Ok(())
    }

    /// Makes the file long enough for a read. To write one byte, the right one, never harms what others write.
    fn grow(&mut self, event: &Event, target: &Target) -> io::Result<()> {
        let last = event.offset.saturating_add(event.moved()).saturating_sub(1);
        let mut byte = [0];
        pattern::fill(&mut byte, event.file, last);
        self.handle(event, target)?.write_all_at(&byte, last)
    }

    fn account(&mut self, bytes: &[u8], file: FileId, offset: u64) {
        self.report.bytes_read += bytes.len() as u64;
        if self.options.verify {
            let begin = Instant::now();
            self.expected
                .resize(bytes.len().max(self.expected.len()), 0);
            let room = &mut self.expected[..bytes.len()];
            let verdict = pattern::check(bytes, room, file, offset);
            self.aside += begin.elapsed();
            self.report.bytes_right += verdict.right;
            self.report.bytes_holes += verdict.holes;
            self.report.bytes_wrong += verdict.wrong;
        }
    }

    fn allocate(&mut self, event: &Event, target: &Target) -> io::Result<()> {
        let file = self.handle(event, target)?;
        if event.len > 0 {
            rustix::fs::fallocate(file, FallocateFlags::empty(), event.offset, event.len)?;
        }
        Ok(())
    }
}

/// Opens a file for all that may come. Appending and direct I/O would change what a write at an offset means.
pub(super) fn open(target: &Target, flags: u64) -> io::Result<File> {
    target.reach()?;
    let mut custom = OFlags::NOFOLLOW;
    custom.set(OFlags::DSYNC, flags & O_DSYNC != 0);
    custom.set(OFlags::SYNC, flags & O_SYNC == O_SYNC);
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(flags & O_TRUNC != 0)
        .custom_flags(custom.bits() as i32)
        .open(&target.path)
}

/// What is not there was created by nobody in this replay, and is gone as it should be.
fn remove(target: &Target) -> io::Result<()> {
    target.reach()?;
    match std::fs::remove_file(&target.path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
