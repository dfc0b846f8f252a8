//! Who writes the log of explanations: a thread of its own, so that no node waits for words about another's decision.
//!
//! The loop leaves what it decided here ([`Scribe::note`]), which costs it a place in a queue. The thread makes lines of that and
//! writes them, in the same order; it gives way to whoever answers. The queue has a bound: what finds it full is not
//! explained, and counted ([`Scribe::lost`]). All that was left with a scribe is written when it is dropped, unless its disk
//! stands still for [`PATIENCE`]: then that is said, and what was not written is lost.

use crate::before;
use crate::log::Log;
use serde_json::Value;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Decisions that wait to be explained: what thousands of nodes are told in a second, and some megabytes at most.
pub const WAITING_MAX: usize = 8192;

/// For how long who ends waits for what is not written yet.
const PATIENCE: Duration = Duration::from_secs(5);

enum Note<T> {
    Decision(Arc<T>),
    /// Somebody waits until all that came before is written.
    Asked(SyncSender<()>),
}

/// See the module's header.
pub struct Scribe<T> {
    /// None at the end.
    notes: Option<SyncSender<Note<T>>>,
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
    patience: Duration,
    /// Whether somebody has waited in vain.
    is_stuck: AtomicBool,
}

#[derive(Default)]
struct Counts {
    /// Decisions that found the queue full.
    refused: AtomicU64,
    /// Lines that could not be written.
    unwritten: AtomicU64,
}

impl<T: Send + Sync + 'static> Scribe<T> {
    /// Writes to `log` what `explain` makes of decisions, of which at most so many wait.
    pub fn start(log: Log, explain: fn(&T) -> Value, waiting_max: usize) -> io::Result<Scribe<T>> {
        let (send, notes) = sync_channel(waiting_max);
        let counts = Arc::<Counts>::default();
        let mut writer = Writer {
            log,
            explain,
            counts: counts.clone(),
        };
        let builder = std::thread::Builder::new().name("presagio-scribe".to_owned());
        let thread = builder.spawn(move || writer.run(&notes))?;
        Ok(Scribe {
            notes: Some(send),
            counts,
            thread: Some(thread),
            patience: PATIENCE,
            is_stuck: AtomicBool::new(false),
        })
    }

    /// One more decision. Nobody waits for it to be written.
    pub fn note(&self, decision: Arc<T>) {
        let sent = self.notes.as_ref();
        let is_taken = sent.is_some_and(|it| it.try_send(Note::Decision(decision)).is_ok());
        if !is_taken && self.counts.refused.fetch_add(1, Relaxed) == 0 {
            tracing::warn!("decisions come faster than they can be logged: some are not explained");
        }
    }

    /// Waits until all that was noted is written, but not for ever.
    pub fn catch_up(&self) {
        let Some(notes) = &self.notes else { return };
        let deadline = Instant::now() + self.patience;
        let (done, wait) = sync_channel(1);
        let ask = || {
            let asked = notes.try_send(Note::Asked(done.clone()));
            !matches!(asked, Err(TrySendError::Full(_)))
        };
        let is_asked = before(deadline, ask);
        drop(done);
        let left = deadline.saturating_duration_since(Instant::now());
        // Nobody answers if the thread has panicked, which has said so.
        if !is_asked || wait.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
            self.is_stuck.store(true, Relaxed);
        }
    }

    /// Decisions that are not explained: they found the queue full, or could not be written.
    pub fn lost(&self) -> u64 {
        self.counts.refused.load(Relaxed) + self.counts.unwritten.load(Relaxed)
    }
}

impl<T> Drop for Scribe<T> {
    fn drop(&mut self) {
        self.notes = None;
        let Some(thread) = self.thread.take() else {
            return;
        };
        // Who waited once knows enough.
        let patience = match *self.is_stuck.get_mut() {
            true => Duration::ZERO,
            false => self.patience,
        };
        match before(Instant::now() + patience, || thread.is_finished()) {
            true => {
                let _ = thread.join();
            }
            // A thread that waits for a disk cannot be ended: it is left alone, and goes with the process.
            false => tracing::warn!(
                "the log of decisions cannot be written: the last ones are not explained"
            ),
        }
    }
}

/// The thread that writes.
struct Writer<T> {
    log: Log,
    explain: fn(&T) -> Value,
    counts: Arc<Counts>,
}

impl<T> Writer<T> {
    fn run(&mut self, notes: &Receiver<Note<T>>) {
        crate::give_way();
        while let Ok(note) = notes.recv() {
            self.take(note);
            // What came meanwhile is written with the same call.
            while let Ok(note) = notes.try_recv() {
                self.take(note);
            }
            self.flush();
        }
    }

    fn take(&mut self, note: Note<T>) {
        match note {
            Note::Decision(decision) => self.log.add(&(self.explain)(&decision)),
            Note::Asked(done) => {
                self.flush();
                let _ = done.send(());
            }
        }
    }

    fn flush(&mut self) {
        self.log.flush();
        self.counts.unwritten.store(self.log.lost(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, mkfifoat};
    use serde_json::json;
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::unix::fs::OpenOptionsExt;
    use std::path::Path;

    fn scribe(path: &Path, waiting_max: usize) -> Scribe<u64> {
        let log = Log::open(path, 1 << 40).unwrap();
        Scribe::start(log, |number| json!({ "at": number }), waiting_max).unwrap()
    }

    fn numbers(text: &str) -> Vec<u64> {
        let number = |line: &str| {
            let value: Value = serde_json::from_str(line).unwrap();
            value["at"].as_u64().unwrap()
        };
        text.lines().map(number).collect()
    }

    #[test]
    fn what_was_noted_is_written_in_order_when_somebody_asks_and_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let scribe = scribe(&path, 1000);
        let note = |range: std::ops::Range<u64>| range.for_each(|at| scribe.note(Arc::new(at)));
        let written = || numbers(&std::fs::read_to_string(&path).unwrap());
        note(0..500);
        scribe.catch_up();
        assert_eq!(written(), (0..500).collect::<Vec<_>>());
        note(500..900);
        assert_eq!(scribe.lost(), 0);
        drop(scribe);
        assert_eq!(written(), (0..900).collect::<Vec<_>>());
    }

    #[test]
    fn a_log_that_stands_still_holds_nobody_up_and_what_is_lost_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        // A pipe that nobody reads is full at some time.
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        let scribe = scribe(&path, 4);
        let mut noted = 0;
        while scribe.lost() < 10 {
            scribe.note(Arc::new(noted));
            noted += 1;
        }
        let mut pipe = File::open(&path).unwrap();
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            pipe.read_to_string(&mut text).unwrap();
            text
        });
        scribe.catch_up();
        let lost = scribe.lost();
        drop(scribe);
        let written = numbers(&reader.join().unwrap());
        assert!(written.is_sorted());
        assert_eq!(written.len() as u64 + lost, noted);
    }

    #[test]
    fn a_log_that_stands_still_for_ever_does_not_keep_a_council_from_ending() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        let full = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let mut pipe = std::fs::OpenOptions::new();
        let pipe = pipe.read(true).write(true).custom_flags(full);
        let mut pipe = pipe.open(&path).unwrap();
        while pipe.write(&[b' '; 4096]).is_ok() {}
        for asks in [true, false] {
            let mut scribe = scribe(&path, 4);
            scribe.patience = Duration::from_millis(20);
            (0..10).for_each(|at| scribe.note(Arc::new(at)));
            if asks {
                scribe.catch_up();
                assert!(*scribe.is_stuck.get_mut());
            }
            // That both return is what is to be shown.
            drop(scribe);
        }
    }
}
