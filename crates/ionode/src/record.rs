//! Recording: each read and write that was answered becomes an event of a trace.
//!
//! Loops and threads leave events in a channel; one thread writes them. A channel that is full loses events, which the
//! trace says.

use crate::files::File;
use presagio_core::{Action, ContextId, Event, FileId, Layer, Nanos, Op};
use presagio_trace::native::Writer;
use presagio_trace::{Process, Record};
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Events that may wait to be written.
const WAITING_MAX: usize = 1 << 16;

/// A client, as a trace describes it.
#[derive(Debug, Default)]
pub struct Client {
    /// A number that no other client of this node has.
    pub number: u32,
    /// What it calls itself.
    pub host: String,
    /// The program.
    pub program: String,
    /// Its rank in its job.
    pub rank: Option<u32>,
}

/// A read or write that was answered.
#[derive(Clone, Debug)]
pub struct Answered {
    /// Who asked.
    pub client: Arc<Client>,
    /// Of which file.
    pub file: Arc<File>,
    /// What.
    pub op: Op,
    /// From where.
    pub offset: u64,
    /// How much.
    pub len: u64,
    /// When it came.
    pub since: Nanos,
    /// When it was answered.
    pub until: Nanos,
    /// Bytes moved, or a negated error number.
    pub result: i64,
}

/// What records, if anything does.
#[derive(Default)]
pub struct Recording {
    is_on: AtomicBool,
    lost: AtomicU64,
    state: Mutex<Option<Tape>>,
}

struct Tape {
    path: PathBuf,
    send: SyncSender<Answered>,
    thread: JoinHandle<io::Result<u64>>,
}

impl Recording {
    /// Whether something records: cheap enough to ask for each request.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// The trace that is being written.
    pub fn path(&self) -> Option<PathBuf> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.as_ref().map(|tape| tape.path.clone())
    }

    /// Begins a trace.
    pub fn start(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tape) = &*state {
            let what = format!("{} is being recorded: stop that first", tape.path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        let writer = Writer::new(std::fs::File::create(path)?)?;
        let (send, receive) = sync_channel(WAITING_MAX);
        let builder = std::thread::Builder::new().name("presagio-record".to_owned());
        let thread = builder.spawn(move || write_all(writer, &receive))?;
        self.lost.store(0, Ordering::Relaxed);
        *state = Some(Tape {
            path: path.to_owned(),
            send,
            thread,
        });
        self.is_on.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Ends the trace. Returns how many events it has.
    pub fn stop(&self) -> io::Result<Option<u64>> {
        self.is_on.store(false, Ordering::Relaxed);
        let tape = self
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(tape) = tape else {
            return Ok(None);
        };
        drop(tape.send);
        match tape.thread.join() {
            Ok(written) => written.map(Some),
            Err(_) => Err(io::Error::other("the thread that wrote the trace panicked")),
        }
    }

    /// Something was answered.
    pub fn answered(&self, what: Answered) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tape) = &*state
            && let Err(TrySendError::Full(_)) = tape.send.try_send(what)
        {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Events that the trace does not have.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            tracing::warn!("the trace is cut short: {error}");
        }
    }
}

fn write_all(mut writer: Writer<std::fs::File>, events: &Receiver<Answered>) -> io::Result<u64> {
    let (mut known, mut count) = (Known::default(), 0);
    for answered in events {
        for definition in known.definitions(&answered) {
            writer.write(&definition)?;
        }
        writer.write(&Record::Event(event(&answered, known.file(&answered))))?;
        count += 1;
    }
    writer.finish()?;
    Ok(count)
}

fn event(answered: &Answered, file: FileId) -> Event {
    Event {
        time: answered.since,
        duration: answered.until - answered.since,
        process: answered.client.number,
        thread: 0,
        file,
        action: match answered.op {
            Op::Read => Action::Read,
            Op::Write => Action::Write,
        },
        layer: Layer::Server,
        context: ContextId::UNKNOWN,
        offset: answered.offset,
        len: answered.len,
        result: answered.result,
    }
}

/// What the trace knows already.
#[derive(Default)]
struct Known {
    files: HashMap<Box<[u8]>, FileId>,
    clients: HashSet<u32>,
}

impl Known {
    fn file(&self, answered: &Answered) -> FileId {
        self.files
            .get(&answered.file.path)
            .copied()
            .unwrap_or_default()
    }

    fn definitions(&mut self, answered: &Answered) -> Vec<Record> {
        let mut new = Vec::new();
        let client = &answered.client;
        if self.clients.insert(client.number) {
            let text = |text: &String| (!text.is_empty()).then(|| text.clone());
            new.push(Record::Process(Process {
                id: client.number,
                rank: client.rank,
                host: text(&client.host),
                command: text(&client.program),
                ..Process::default()
            }));
        }
        if !self.files.contains_key(&answered.file.path) {
            let id = FileId(self.files.len() as u64 + 1);
            self.files.insert(answered.file.path.clone(), id);
            let name = Arc::from(&*answered.file.path);
            new.push(Record::File { id, name });
        }
        new
    }
}
