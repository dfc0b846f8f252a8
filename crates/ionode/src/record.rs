//! Recording: each read and write that was answered becomes an event of a trace.
//!
//! Loops and threads leave events in a channel; one thread writes them. A channel that is full loses events: the trace says
//! so where they should be, and how many of which client, and the log does when it ends. A trace that cannot be written any
//! more, on a full disk say, ends there.

use crate::files::File;
use presagio_core::{Action, ContextId, Event, FileId, Layer, Nanos, Op};
use presagio_trace::native::Writer;
use presagio_trace::{Process, Record};
use std::collections::{BTreeMap, HashMap, HashSet};
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
    send: SyncSender<Said>,
    thread: JoinHandle<io::Result<u64>>,
    /// What was lost since the last event that was not, by client.
    missing: BTreeMap<u32, (Arc<Client>, u64)>,
}

/// What the thread that writes is told.
enum Said {
    Answered(Answered),
    /// So many events of a client are missing here.
    Lost(Arc<Client>, u64),
}

/// Why an event is not in the trace.
#[derive(Debug, PartialEq, Eq)]
enum Lost {
    /// The thread that writes does not keep up.
    Late,
    /// It has ended.
    Over,
}

impl Tape {
    fn new(path: &Path, waiting_max: usize) -> io::Result<Tape> {
        let writer = Writer::new(std::fs::File::create(path)?)?;
        let (send, receive) = sync_channel(waiting_max);
        let builder = std::thread::Builder::new().name("presagio-record".to_owned());
        let file = path.to_owned();
        let thread = builder.spawn(move || {
            let written = write_all(writer, &receive);
            if let Err(error) = &written {
                tracing::error!("the trace {} ends here: {error}", file.display());
            }
            written
        })?;
        Ok(Tape {
            path: path.to_owned(),
            send,
            thread,
            missing: BTreeMap::new(),
        })
    }

    /// Leaves an event to be written, after what is to be said of those before it.
    fn add(&mut self, what: Answered) -> Result<(), Lost> {
        let client = what.client.clone();
        let added = self.tell_missing();
        let added = added.and_then(|()| self.tell(Said::Answered(what)));
        if let Err(Lost::Late) = added {
            self.miss(client, 1);
        }
        added
    }

    fn miss(&mut self, client: Arc<Client>, events: u64) {
        let entry = self.missing.entry(client.number);
        entry.or_insert((client, 0)).1 += events;
    }

    fn tell_missing(&mut self) -> Result<(), Lost> {
        while let Some((_, (client, events))) = self.missing.pop_first() {
            if let Err(lost) = self.tell(Said::Lost(client.clone(), events)) {
                self.miss(client, events);
                return Err(lost);
            }
        }
        Ok(())
    }

    fn tell(&self, what: Said) -> Result<(), Lost> {
        self.send.try_send(what).map_err(|error| match error {
            TrySendError::Full(_) => Lost::Late,
            TrySendError::Disconnected(_) => Lost::Over,
        })
    }

    /// Ends it, however long that takes. Returns how many events it has.
    fn end(self) -> io::Result<u64> {
        for (client, events) in self.missing.into_values() {
            // If nobody takes it, the thread says why.
            let _ = self.send.send(Said::Lost(client, events));
        }
        drop(self.send);
        let written = self.thread.join();
        written.unwrap_or_else(|_| {
            let what = "the thread that wrote the trace panicked";
            Err(io::Error::other(what))
        })
    }
}

impl Recording {
    /// Whether something records: cheap enough to ask for each request.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// The trace that is being written; none if it could not be written to its end.
    pub fn path(&self) -> Option<PathBuf> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let tape = state.as_ref().filter(|_| self.is_on());
        tape.map(|tape| tape.path.clone())
    }

    /// Begins a trace.
    pub fn start(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tape) = state.as_ref().filter(|_| self.is_on()) {
            let what = format!("{} is being recorded: stop that first", tape.path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        *state = Some(Tape::new(path, WAITING_MAX)?);
        self.lost.store(0, Ordering::Relaxed);
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
        let path = tape.path.clone();
        let written = tape.end();
        let lost = self.lost();
        if lost > 0 {
            let path = path.display();
            tracing::warn!(
                "the trace {path} lacks {lost} events, which came when it could not be written"
            );
        }
        written.map(Some)
    }

    /// Something was answered.
    pub fn answered(&self, what: Answered) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Err(lost)) = state.as_mut().map(|tape| tape.add(what)) else {
            return;
        };
        self.lost.fetch_add(1, Ordering::Relaxed);
        if lost == Lost::Over {
            self.is_on.store(false, Ordering::Relaxed);
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

fn write_all(mut writer: Writer<std::fs::File>, said: &Receiver<Said>) -> io::Result<u64> {
    let (mut known, mut count) = (Known::default(), 0);
    for said in said {
        for definition in known.definitions(&said) {
            writer.write(&definition)?;
        }
        match said {
            Said::Answered(answered) => {
                writer.write(&Record::Event(event(&answered, known.file(&answered))))?;
                count += 1;
            }
            Said::Lost(client, lost) => {
                let process = client.number;
                writer.write(&Record::Gap { process, lost })?;
            }
        }
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

    fn definitions(&mut self, said: &Said) -> Vec<Record> {
        let mut new = Vec::new();
        let (client, file) = match said {
            Said::Answered(answered) => (&answered.client, Some(&answered.file)),
            Said::Lost(client, _) => (client, None),
        };
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
        if let Some(file) = file
            && !self.files.contains_key(&file.path)
        {
            let id = FileId(self.files.len() as u64 + 1);
            self.files.insert(file.path.clone(), id);
            let name = Arc::from(&*file.path);
            new.push(Record::File { id, name });
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::FileKey;
    use crate::files::Files;
    use std::sync::mpsc::{Sender, channel};
    use std::time::{Duration, Instant};

    fn answered(client: u32, offset: u64) -> Answered {
        let key = FileKey {
            device: 1,
            inode: 1,
        };
        let hold = Arc::<Files>::default().opened(key, || b"/file".to_vec());
        let client = Client {
            number: client,
            ..Client::default()
        };
        Answered {
            client: Arc::new(client),
            file: hold.file().clone(),
            op: Op::Read,
            offset,
            len: 1,
            since: Nanos(1),
            until: Nanos(2),
            result: 1,
        }
    }

    /// A recording whose thread does not write before it is told to.
    fn held_back(path: &Path, waiting_max: usize) -> (Recording, Sender<()>) {
        let writer = Writer::new(std::fs::File::create(path).unwrap()).unwrap();
        let (send, receive) = sync_channel(waiting_max);
        let (go, goes) = channel();
        let thread = std::thread::spawn(move || {
            goes.recv().unwrap();
            write_all(writer, &receive)
        });
        let recording = Recording::default();
        *recording.state.lock().unwrap() = Some(Tape {
            path: path.to_owned(),
            send,
            thread,
            missing: BTreeMap::new(),
        });
        recording.is_on.store(true, Ordering::Relaxed);
        (recording, go)
    }

    /// As if its disk had become full.
    #[test]
    fn a_trace_that_ended_early_is_not_being_recorded_and_keeps_no_other_back() {
        let directory = tempfile::tempdir().unwrap();
        let (ended, next) = (
            directory.path().join("ended"),
            directory.path().join("next"),
        );
        let (send, receive) = sync_channel(1);
        drop(receive);
        let recording = Recording::default();
        *recording.state.lock().unwrap() = Some(Tape {
            path: ended,
            send,
            thread: std::thread::spawn(|| Err(io::ErrorKind::StorageFull.into())),
            missing: BTreeMap::new(),
        });
        recording.is_on.store(true, Ordering::Relaxed);
        recording.answered(answered(1, 0));
        assert_eq!(recording.path(), None);
        recording.start(&next).unwrap();
        assert_eq!(recording.path(), Some(next));
        assert_eq!(recording.stop().unwrap(), Some(0));
    }

    #[test]
    fn the_trace_says_where_events_were_lost_and_whose() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace");
        let (recording, go) = held_back(&path, 2);
        // Two are kept, and four of two clients are not.
        for (client, offset) in [(7, 0), (8, 1), (7, 2), (8, 3), (7, 4), (7, 5)] {
            recording.answered(answered(client, offset));
        }
        assert_eq!(recording.lost(), 4);
        go.send(()).unwrap();
        assert_eq!(recording.stop().unwrap(), Some(2));
        assert_eq!(recording.lost(), 4);
        let records = presagio_trace::open(&path).unwrap();
        let said = records.filter_map(|record| match record.unwrap() {
            Record::Event(event) => Some((event.process, event.offset, 0)),
            Record::Gap { process, lost } => Some((process, u64::MAX, lost)),
            _ => None,
        });
        let said: Vec<_> = said.collect();
        let gap = u64::MAX;
        assert_eq!(said, [(7, 0, 0), (8, 1, 0), (7, gap, 3), (8, gap, 1)]);
    }

    #[test]
    fn events_after_a_gap_come_after_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace");
        let (recording, go) = held_back(&path, 1);
        recording.answered(answered(7, 0));
        recording.answered(answered(7, 1));
        go.send(()).unwrap();
        // Told again and again, until there is room for the gap and for it.
        let late = Instant::now() + Duration::from_secs(60);
        let mut lost = recording.lost();
        loop {
            recording.answered(answered(7, 2));
            if recording.lost() == lost {
                break;
            }
            lost = recording.lost();
            assert!(Instant::now() < late, "nothing is written");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(recording.stop().unwrap(), Some(2));
        let records = presagio_trace::open(&path).unwrap();
        let (mut gaps, mut events) = (Vec::new(), Vec::new());
        for record in records {
            match record.unwrap() {
                Record::Event(event) => events.push(event.offset),
                Record::Gap { lost, .. } => {
                    assert_eq!(events, [0], "it is where they are missing");
                    gaps.push(lost);
                }
                _ => {}
            }
        }
        assert_eq!((gaps.iter().sum::<u64>(), events), (lost, vec![0, 2]));
    }

    #[test]
    fn a_trace_that_cannot_be_written_any_more_ends_and_the_rest_is_lost() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace");
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
        let mode = mode | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
        let reader = std::fs::File::options().read(true).write(true).open(&path);
        let recording = Recording::default();
        recording.start(&path).unwrap();
        // Nobody reads it any more.
        drop(reader.unwrap());
        let late = Instant::now() + Duration::from_secs(60);
        while recording.is_on() {
            assert!(Instant::now() < late, "it goes on");
            recording.answered(answered(7, 0));
        }
        assert!(recording.lost() > 0);
        let error = recording.stop().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
