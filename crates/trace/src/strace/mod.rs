//! The reader of `strace -f -ttt -T -y -o FILE PROGRAM`: system calls on files, with the offsets that calls without
//! one have.
//!
//! `line` knows the syntax of a line, `world` the descriptors and positions behind it, `calls` what each call
//! means; here lines find the task that they belong to.
//!
//! Other options work too: -yy, output to the terminal (`[pid N]`), a single process, and without -y names are
//! those that the program used. What cannot be seen: I/O through memory maps (the map itself is an event),
//! `io_uring` and asynchronous I/O; positions of files that were open before strace began (we say 0); the end of
//! a file that is appended to, before the program asks for it or writes to it (we say 0). A `rename` is told as the
//! removal of the old name. Punching holes is no allocation and left out.

mod calls;
mod errno;
mod line;
mod world;

use crate::input::Lines;
use crate::{Format, Place, Process, Record, Source, TraceError};
use line::{Body, Line, Who};
use presagio_core::{Action, ContextId, Event, FileId, Layer, Nanos};
use std::collections::{HashMap, VecDeque};
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use world::{Group, OpenFile, Pending, Table, World};

/// Lines of tasks whose parents we do not know yet: more than this many, and they have to go without.
const HELD_MAX: usize = 10_000;
/// And no more than this many bytes of them.
const HELD_BYTES_MAX: usize = 16 << 20;
/// A clock shows no earlier moment, so times that do (2001) count from something else: with -r, from the last line.
const CLOCK_MIN: Nanos = Nanos::from_secs(1_000_000_000);
/// What it means if the last line has no end.
const CUT: &str = "the text ends within a line: strace was killed, or is still writing; what comes before is whole";
/// The number of the first task as long as no line names it; the system gives it to nobody.
const FIRST: u32 = 0;

/// A reader of strace's output.
pub struct Reader {
    lines: Lines,
    path: PathBuf,
    world: World,
    /// The moment of the first line.
    start: Option<Nanos>,
    /// The number of the first task, once a line named it.
    first: Option<u32>,
    /// Calls that are going to return a new task.
    births: usize,
    /// The task whose line a remark has torn in two.
    torn: Option<u32>,
    /// Lines of tasks that nobody has returned yet, with their numbers.
    held: HashMap<u32, Vec<(u64, Vec<u8>)>>,
    held_lines: usize,
    held_bytes: usize,
    /// Held lines that can be read now.
    ready: VecDeque<(u64, Vec<u8>)>,
    due: VecDeque<Record>,
    number: u64,
    cut: Option<TraceError>,
    ended: bool,
}

/// When a call was made, by whom, and how long it took.
#[derive(Clone, Copy)]
struct Moment {
    task: u32,
    time: Nanos,
    duration: Nanos,
}

impl Reader {
    /// Reads from `from`, which is called `path` in errors.
    pub fn new(from: Box<dyn BufRead + Send>, path: &Path) -> Reader {
        Reader {
            lines: Lines::new(from, path),
            path: path.to_owned(),
            world: World::default(),
            start: None,
            first: None,
            births: 0,
            torn: None,
            held: HashMap::new(),
            held_lines: 0,
            held_bytes: 0,
            ready: VecDeque::new(),
            due: VecDeque::new(),
            number: 0,
            cut: None,
            ended: false,
        }
    }

    fn advance(&mut self) -> Result<Option<Record>, TraceError> {
        while self.due.is_empty() {
            let (number, line) = match self.next_line()? {
                Some(line) => line,
                None => return Ok(None),
            };
            let read = self.read(number, &line);
            let read = read.and(self.world.problem.take().map_or(Ok(()), Err));
            let error = |problem| TraceError::new(&self.path, Place::Line(number), problem);
            match read {
                // Half a line behind good ones.
                Err(_) if self.lines.is_cut() && number == self.number && number > 1 => {
                    self.cut = Some(error(CUT.to_owned()));
                }
                read => read.map_err(error)?,
            }
        }
        Ok(self.due.pop_front())
    }

    /// A line that had to wait, or the next of the file; at its end, the lines that still wait.
    fn next_line(&mut self) -> Result<Option<(u64, Vec<u8>)>, TraceError> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Ok(Some(line));
            }
            if self.births == 0 && !self.held.is_empty() {
                // Nobody is left who could return them.
                self.release_all();
                continue;
            }
            if let Some(line) = self.lines.next()? {
                self.number += 1;
                return Ok(Some((self.number, line.to_vec())));
            }
            if self.held.is_empty() {
                return Ok(None);
            }
            self.release_all();
        }
    }

    fn read(&mut self, number: u64, text: &[u8]) -> Result<(), String> {
        if let Some(task) = self.torn.take() {
            return self.mend(task, text);
        }
        let Some(line) = line::parse(text)? else {
            return Ok(());
        };
        let start = *self.start.get_or_insert(line.time);
        let Some(task) = self.task(&line) else {
            let Who::Task(task) = line.who else {
                return Ok(());
            };
            match line.body {
                // Its second half says no more than this.
                Body::Torn { .. } => self.hold(task, number, untorn(text)),
                _ => self.hold(task, number, text.to_vec()),
            }
            return Ok(());
        };
        self.act(task, line.time.since(start), line.body)
    }

    /// The task that a line belongs to; `None` if we have to wait until somebody returns it.
    fn task(&mut self, line: &Line<'_>) -> Option<u32> {
        let task = match line.who {
            Who::Unsaid => self.only_task(),
            Who::Task(task) => task,
        };
        if self.world.tasks.contains_key(&task) {
            return Some(task);
        }
        if self.is_first(task, &line.body) {
            self.name_first(task);
        } else if self.births > 0 {
            return None;
        } else {
            self.begin(task);
        }
        Some(task)
    }

    /// The task that strace does not name: the only one, or the first.
    fn only_task(&self) -> u32 {
        let mut tasks = self.world.tasks.keys();
        match (tasks.next(), tasks.next()) {
            (Some(&task), None) => task,
            _ => self.first.unwrap_or(FIRST),
        }
    }

    /// Whether an unknown number is that of the first task, which went without until there was a second.
    fn is_first(&self, task: u32, body: &Body<'_>) -> bool {
        let Some(first) = self.world.tasks.get(&FIRST) else {
            return false;
        };
        let resumes = match (body, &first.pending) {
            (Body::Resumed { name, .. }, Some(pending)) => pending.name == *name,
            _ => false,
        };
        task != FIRST && (resumes || self.births == 0)
    }

    fn name_first(&mut self, task: u32) {
        if let Some(first) = self.world.tasks.remove(&FIRST) {
            self.first = Some(task);
            self.world.tasks.insert(task, first);
            if let Some(group) = self.world.group_mut(task) {
                group.pid = Some(task);
            }
        }
    }

    /// A task without a parent that we know of.
    fn begin(&mut self, task: u32) {
        self.first.get_or_insert(task);
        let group = Group {
            pid: (task != FIRST).then_some(task),
            ..Group::default()
        };
        self.world.begin(task, group, Table::default());
    }

    fn hold(&mut self, task: u32, number: u64, text: Vec<u8>) {
        self.held_lines += 1;
        self.held_bytes += text.len();
        let lines = self.held.entry(task).or_default();
        lines.push((number, text));
        if self.held_lines > HELD_MAX || self.held_bytes > HELD_BYTES_MAX {
            self.release_all();
        }
    }

    /// Lets the lines of a task be read, before all others.
    fn release(&mut self, task: u32) {
        let lines = self.held.remove(&task).unwrap_or_default();
        self.held_lines -= lines.len();
        self.held_bytes -= lines.iter().map(|(_, text)| text.len()).sum::<usize>();
        for line in lines.into_iter().rev() {
            self.ready.push_front(line);
        }
    }

    /// Lets all held lines be read, of tasks without parents.
    fn release_all(&mut self) {
        let mut tasks: Vec<u32> = self.held.keys().copied().collect();
        tasks.sort_unstable();
        for task in tasks {
            self.begin(task);
            self.release(task);
        }
    }

    fn act(&mut self, task: u32, time: Nanos, body: Body<'_>) -> Result<(), String> {
        match body {
            Body::Nothing => {}
            Body::Exited => self.exit(task),
            Body::Unfinished { name, text } => self.suspend(task, time, name, text),
            Body::Torn { name, text } => {
                self.suspend(task, time, name, text);
                self.torn = Some(task);
            }
            Body::Resumed { name, text } => return self.resume(task, name, text),
            Body::Call { name, text } => return self.call(task, time, name, text),
        }
        Ok(())
    }

    /// The second half of a torn line: that the call is not finished, or how it ended.
    fn mend(&mut self, task: u32, text: &[u8]) -> Result<(), String> {
        if text.trim_ascii() == b"<unfinished ...>" {
            return Ok(());
        }
        let pending = self
            .world
            .tasks
            .get(&task)
            .and_then(|task| task.pending.as_ref());
        let name = pending
            .map(|pending| pending.name.clone())
            .unwrap_or_default();
        self.resume(task, &name, text)
    }

    fn suspend(&mut self, task: u32, time: Nanos, name: &[u8], text: &[u8]) {
        self.births += usize::from(calls::bears(name));
        let pending = Pending {
            closing: (name == b"close")
                .then(|| self.take_closing(task, text))
                .flatten(),
            name: name.to_vec(),
            text: text.to_vec(),
            time,
        };
        let old = self
            .world
            .tasks
            .get_mut(&task)
            .and_then(|task| task.pending.replace(pending));
        self.forget(old);
    }

    fn resume(&mut self, task: u32, name: &[u8], rest: &[u8]) -> Result<(), String> {
        let pending = self
            .world
            .tasks
            .get_mut(&task)
            .and_then(|task| task.pending.take());
        // Without its beginning, which was before strace attached, nothing is known of a call.
        let Some(pending) = pending.filter(|pending| pending.name == name) else {
            return Ok(());
        };
        let text = [&pending.text[..], rest].concat();
        let result = match &pending.closing {
            Some(open) => self.closed(task, pending.time, open, &text),
            None => self.call(task, pending.time, name, &text),
        };
        self.forget(Some(pending));
        result
    }

    /// A pending call is over, whatever came of it.
    fn forget(&mut self, pending: Option<Pending>) {
        if pending.is_some_and(|pending| calls::bears(&pending.name)) {
            self.births -= 1;
        }
    }

    fn exit(&mut self, task: u32) {
        let pending = self.world.exit(task);
        self.forget(pending);
    }

    /// The file of this path; its record goes out before the first event on it.
    fn file(&mut self, path: &[u8]) -> FileId {
        let (id, new) = self.world.file(path);
        if let Some(name) = new {
            self.due.push_back(Record::File { id, name });
        }
        id
    }

    fn event(
        &mut self,
        moment: Moment,
        file: FileId,
        action: Action,
        (offset, len): (u64, u64),
        result: i64,
    ) {
        let Some(task) = self.world.tasks.get(&moment.task) else {
            return;
        };
        let process = task.process;
        self.define_process(process);
        self.due.push_back(Record::Event(Event {
            time: moment.time,
            duration: moment.duration,
            process,
            thread: moment.task,
            file,
            action,
            layer: Layer::Posix,
            context: ContextId::UNKNOWN,
            offset,
            len,
            result,
        }));
    }

    fn define_process(&mut self, id: u32) {
        let Some(group) = self.world.processes.get_mut(&id) else {
            return;
        };
        if !std::mem::replace(&mut group.defined, true) {
            self.due.push_back(Record::Process(Process {
                id,
                pid: group.pid,
                rank: None,
                host: None,
                command: group.command.as_deref().map(str::to_owned),
                start: self.start.filter(|&start| start > CLOCK_MIN),
            }));
        }
    }

    /// Takes the file of a `close` that has not returned out of the table.
    fn take_closing(&mut self, task: u32, text: &[u8]) -> Option<Arc<OpenFile>> {
        let text = text.trim_ascii();
        let text = text.strip_suffix(b")").unwrap_or(text);
        let fd = line::integer(text.split(|&b| b == b'<').next()?)?;
        let open = self.world.open(task, fd, &line::target(text))?;
        self.world.tasks.get(&task)?.table.lock().remove(&fd);
        Some(open)
    }
}

/// A torn line as it would be without the remark.
fn untorn(text: &[u8]) -> Vec<u8> {
    let at = memchr::memmem::rfind(text, b"strace: ").unwrap_or(text.len());
    [&text[..at], b" <unfinished ...>"].concat()
}

impl Iterator for Reader {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let result = self.advance();
        self.ended = !matches!(result, Ok(Some(_)));
        result.transpose()
    }
}

impl Source for Reader {
    fn progress(&self) -> (u64, Option<u64>) {
        self.lines.progress()
    }

    fn cut_short(&self) -> Option<&TraceError> {
        self.cut.as_ref()
    }

    fn format(&self) -> Option<Format> {
        Some(Format::Strace)
    }
}
