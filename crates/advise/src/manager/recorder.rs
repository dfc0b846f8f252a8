//! The trace that is written while programs run. Writing may block, on a slow or full disk: it happens on a thread of
//! its own, with a bounded queue before it.

use super::threads;
use presagio_trace::Record;
use presagio_trace::native::Writer;
use std::fs::File;
use std::io::{self, Write};
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Chunks that wait to be written, of some 64 KiB each.
const CHUNKS_MAX: usize = 64;

/// A trace that is being written. After an error it is given up, and says why.
pub(super) struct Recorder {
    writer: Writer<Pipe>,
    marks: Option<SyncSender<Chunk>>,
    thread: Option<JoinHandle<()>>,
    trouble: Trouble,
    records: u64,
}

/// What went wrong, told by the thread that writes.
type Trouble = Arc<Mutex<Option<io::Error>>>;

/// What the thread that writes is sent.
enum Chunk {
    Bytes(Vec<u8>),
    /// Dropped when all before it is written.
    Mark {
        _waiting: Sender<()>,
    },
}

/// What the writer of the format writes to: the queue before the thread.
struct Pipe {
    chunks: Option<SyncSender<Chunk>>,
    trouble: Trouble,
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let is_broken = lock(&self.trouble).is_some();
        let sent = self.chunks.as_ref().is_some_and(|c| {
            // The thread goes on to take chunks when it cannot write any more, so this does not wait for ever.
            c.send(Chunk::Bytes(bytes.to_vec())).is_ok()
        });
        match sent && !is_broken {
            true => Ok(bytes.len()),
            false => Err(io::Error::other("the trace could not be written")),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn lock(trouble: &Trouble) -> std::sync::MutexGuard<'_, Option<io::Error>> {
    trouble.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recorder {
    /// Begins a trace.
    pub fn new(file: File) -> io::Result<Recorder> {
        let trouble = Trouble::default();
        let (chunks, queue) = sync_channel::<Chunk>(CHUNKS_MAX);
        let told = trouble.clone();
        let thread = threads::spawn("trace", move || {
            let mut file = file;
            for chunk in queue {
                let Chunk::Bytes(bytes) = chunk else {
                    continue; // whoever waited sees its end dropped
                };
                // The first error is the one that counts; a chunk behind a hole would be worth nothing.
                if lock(&told).is_none()
                    && let Err(error) = file.write_all(&bytes)
                {
                    *lock(&told) = Some(error);
                }
            }
        })?;
        let pipe = Pipe {
            chunks: Some(chunks.clone()),
            trouble: trouble.clone(),
        };
        let mut recorder = Recorder {
            writer: Writer::new(pipe)?,
            marks: Some(chunks),
            thread: Some(thread),
            trouble,
            records: 0,
        };
        // Programs begin after this: a manager that is killed at once leaves a trace of nothing, not an empty file.
        recorder.settle();
        Ok(recorder)
    }

    /// Adds a record; what was given up stays so.
    pub fn write(&mut self, record: &Record) {
        self.records += u64::from(self.writer.write(record).is_ok());
    }

    /// All records up to here can then be read, whatever happens.
    pub fn flush(&mut self) {
        let _ = self.writer.flush(); // told at the end
    }

    /// The same, and waits until they are in the file.
    pub fn settle(&mut self) {
        self.flush();
        let (waiting, written) = channel();
        let mark = Chunk::Mark { _waiting: waiting };
        let sent = self.marks.as_ref().is_some_and(|m| m.send(mark).is_ok());
        if sent {
            let _ = written.recv(); // ends with an error, when the mark is dropped
        }
    }

    /// How many were added.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Completes the trace; why it is not complete, if it is not.
    pub fn finish(mut self) -> Result<u64, io::Error> {
        let finished = self.writer.finish();
        self.writer.into_inner().chunks.take();
        self.marks.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        match lock(&self.trouble).take() {
            Some(error) => Err(error),
            None => finished.map(|()| self.records),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use presagio_core::FileId;

    fn name(number: u64) -> Record {
        Record::File {
            id: FileId(number),
            name: format!("/data/{number}").into_bytes().into(),
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.ptrace");
        let mut recorder = Recorder::new(File::create(&path).unwrap()).unwrap();
        (0..50_000).for_each(|n| recorder.write(&name(n)));
        assert_eq!(recorder.finish().unwrap(), 50_000);
        let mut source = presagio_trace::open(&path).unwrap();
        let read: Vec<Record> = source.by_ref().map(Result::unwrap).collect();
        assert_eq!(read.len(), 50_000);
        assert_eq!(read[49_999], name(49_999));
        assert!(presagio_trace::Source::cut_short(&source).is_none());
    }

    #[test]
    fn what_has_just_begun_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.ptrace");
        let _killed = std::mem::ManuallyDrop::new(Recorder::new(File::create(&path).unwrap()));
        assert_eq!(presagio_trace::open(&path).unwrap().count(), 0);
    }

    #[test]
    fn what_is_settled_is_in_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.ptrace");
        let mut recorder = Recorder::new(File::create(&path).unwrap()).unwrap();
        (0..5_000).for_each(|n| recorder.write(&name(n)));
        recorder.settle();
        let read = presagio_trace::open(&path).unwrap();
        assert_eq!(read.filter(Result::is_ok).count(), 5_000);
    }

    #[test]
    fn a_full_disk_is_told_at_the_end_and_blocks_nobody() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut recorder = Recorder::new(full).unwrap();
        (0..2_000_000).for_each(|n| recorder.write(&name(n)));
        let error = recorder.finish().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
