//! Traces as comma-separated values (RFC 4180), for spreadsheets, data frames and whatever people write themselves.
//!
//! The first row names the columns; each other row is an event with all that is known of it.
//!
//! | column | what it has | if missing or empty |
//! |---|---|---|
//! | `time_ns`, `duration_ns` | begin since the start of the recording, and duration | must be there; 0 |
//! | `process`, `thread` | numbers | 0 |
//! | `rank`, `pid` | of the process | not known |
//! | `layer` | `posix`, `mpiio`, `server` | `posix` |
//! | `action` | `open`, `close`, `read`, `write`, `seek`, `sync`, `truncate`, `allocate`, `map`, `remove` | must be there |
//! | `file` | the name; a byte that is not UTF-8 is `\xNN`, a backslash two of them | no name |
//! | `offset`, `length` | as the action has them | 0 |
//! | `result` | bytes moved, or the negated error number | all moved, or 0 |
//! | `file_id` | the file's number | if the column is missing: numbered by name |
//! | `context` | the call stack's number | 0, not known |
//! | `stack` | `module+0xoffset(symbol);…`, innermost first, in the first row of a context | as before, or not known |
//! | `host`, `command` | of the process, in its first row | as before, or not known |
//! | `start_ns` | the moment that its times count from, since 1970, in its first row | as before, or not known |
//!
//! A row with the action `gap` says that records of its process were lost, `length` how many. Columns may come
//! in any order, and those that we do not know are passed over. What no event uses is not written.

use crate::input::{LINE_BYTES_MAX, Lines, number, shown};
use crate::names::{Known, Names};
use crate::text;
use crate::{Format, Process, Record, Sink, Source, TraceError};
use presagio_core::{Action, ContextId, Event, FileId, Layer, Nanos};
use std::collections::{HashSet, VecDeque};
use std::io::{self, BufRead, Write};
use std::path::Path;

/// The columns, in the order in which they are written.
pub const COLUMNS: [&str; 18] = [
    "time_ns",
    "duration_ns",
    "process",
    "rank",
    "pid",
    "thread",
    "layer",
    "action",
    "file",
    "offset",
    "length",
    "result",
    "file_id",
    "context",
    "stack",
    "host",
    "command",
    "start_ns",
];

/// The action of a row that tells of lost records.
pub(crate) const GAP: &str = "gap";

/// More columns are none of a trace.
const COLUMNS_MAX: usize = 1000;

/// Writes a trace as comma-separated values.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    known: Known,
    /// The processes and contexts of which everything was written.
    said_processes: HashSet<u32>,
    said_contexts: HashSet<u32>,
    row: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Writes to `out`, which should have a buffer.
    pub fn new(mut out: W) -> io::Result<Writer<W>> {
        writeln!(out, "{}", COLUMNS.join(","))?;
        Ok(Writer {
            out,
            known: Known::default(),
            said_processes: HashSet::new(),
            said_contexts: HashSet::new(),
            row: Vec::new(),
        })
    }

    fn define(&mut self, record: &Record) -> io::Result<()> {
        if !self.known.learn(record).map_err(io::Error::other)? {
            return Ok(());
        }
        match record {
            Record::Process(process) => self.said_processes.remove(&process.id),
            Record::Context { id, .. } => self.said_contexts.remove(&id.0),
            _ => false,
        };
        Ok(())
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        let known = &self.known;
        let process = known.processes.get(&event.process);
        let row = &mut self.row;
        row.clear();
        write!(
            row,
            "{},{},{},",
            event.time.0, event.duration.0, event.process
        )?;
        push_number(row, process.and_then(|p| p.rank));
        row.push(b',');
        push_number(row, process.and_then(|p| p.pid));
        write!(row, ",{},{},{},", event.thread, event.layer, event.action)?;
        push_text(row, &text::name_to_text(known.file(event.file)));
        write!(row, ",{},{},{},", event.offset, event.len, event.result)?;
        write!(row, "{},{},", event.file.0, event.context.0)?;
        let frames = known.frames(event.context);
        if !frames.is_empty() && self.said_contexts.insert(event.context.0) {
            push_text(row, &text::stack_to_text(frames));
        }
        row.push(b',');
        let process = process.filter(|process| self.said_processes.insert(process.id));
        push_text(row, process.and_then(|p| p.host.as_deref()).unwrap_or(""));
        row.push(b',');
        push_text(
            row,
            process.and_then(|p| p.command.as_deref()).unwrap_or(""),
        );
        row.push(b',');
        push_number(row, process.and_then(|p| p.start).map(|start| start.0));
        row.push(b'\n');
        self.out.write_all(row)
    }
}

impl<W: Write> Sink for Writer<W> {
    fn write(&mut self, record: &Record) -> io::Result<()> {
        match record {
            Record::Event(event) => self.event(event),
            Record::Gap { process, lost } => {
                writeln!(self.out, ",,{process},,,,,{GAP},,,{lost},,,,,,,")
            }
            definition => self.define(definition),
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn push_number(row: &mut Vec<u8>, number: Option<impl ToString>) {
    if let Some(number) = number {
        row.extend_from_slice(number.to_string().as_bytes());
    }
}

fn push_text(row: &mut Vec<u8>, text: &str) {
    if memchr::memchr3(b',', b'"', b'\n', text.as_bytes()).is_none() && !text.contains('\r') {
        return row.extend_from_slice(text.as_bytes());
    }
    row.push(b'"');
    for byte in text.bytes() {
        if byte == b'"' {
            row.push(byte);
        }
        row.push(byte);
    }
    row.push(b'"');
}

/// Reads comma-separated values. Its memory is that of the definitions.
pub struct Reader {
    rows: Rows,
    columns: Option<Columns>,
    /// Numbers for files, where the rows have none.
    names: Names,
    known: Known,
    /// What a row tells: its definitions, then its event.
    ready: VecDeque<Record>,
    done: bool,
}

impl Reader {
    /// Reads `from`; `path` is for messages.
    pub fn new(from: Box<dyn BufRead + Send>, path: &Path) -> Reader {
        Reader {
            rows: Rows::new(Lines::new(from, path)),
            columns: None,
            names: Names::default(),
            known: Known::default(),
            ready: VecDeque::new(),
            done: false,
        }
    }

    fn record(&mut self) -> Result<Option<Record>, TraceError> {
        loop {
            if let Some(record) = self.ready.pop_front() {
                return Ok(Some(record));
            }
            if !self.rows.next()? {
                return match self.columns {
                    Some(_) => Ok(None),
                    None => Err(self
                        .rows
                        .lines
                        .error("there is no row with the names of the columns".to_owned())),
                };
            }
            self.row()
                .map_err(|problem| self.rows.lines.error(problem))?;
        }
    }

    fn row(&mut self) -> Result<(), String> {
        let Some(columns) = &self.columns else {
            self.columns = Some(Columns::of(&self.rows)?);
            return Ok(());
        };
        let row = Row {
            rows: &self.rows,
            columns,
        };
        row.check_len()?;
        let record = match row.text(Column::Action) {
            b"gap" => Record::Gap {
                process: row.number(Column::Process, 0)?,
                lost: row.number(Column::Length, 0)?,
            },
            action => {
                let event = row.event(action)?;
                let file = row.file_id(&mut self.names)?;
                let definitions = [
                    row.file(file, &self.known),
                    row.process(event.process, &self.known)?,
                    row.context(event.context)?,
                ];
                for record in definitions.into_iter().flatten() {
                    define(&mut self.known, &mut self.ready, record)?;
                }
                Record::Event(Event { file, ..event })
            }
        };
        self.ready.push_back(record);
        Ok(())
    }
}

/// Passes a definition on if it is not known.
fn define(known: &mut Known, ready: &mut VecDeque<Record>, record: Record) -> Result<(), String> {
    if known.learn(&record)? {
        ready.push_back(record);
    }
    Ok(())
}

impl Iterator for Reader {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.record().transpose();
        self.done = !matches!(next, Some(Ok(_)));
        next
    }
}

impl Source for Reader {
    fn progress(&self) -> (u64, Option<u64>) {
        self.rows.lines.progress()
    }

    fn format(&self) -> Option<Format> {
        Some(Format::Csv)
    }
}

/// Whether a line is a row with the names of our columns.
pub(crate) fn is_header(line: &[u8]) -> bool {
    let line = without_mark(line.strip_suffix(b"\r").unwrap_or(line));
    let has = |name: &str| {
        line.split(|b| *b == b',')
            .any(|field| unquoted(field) == name.as_bytes())
    };
    has("time_ns") && has("action")
}

/// What follows the mark by which some spreadsheets say that a text is UTF-8.
fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text)
}

fn unquoted(field: &[u8]) -> &[u8] {
    let inside = field
        .strip_prefix(b"\"")
        .and_then(|f| f.strip_suffix(b"\""));
    inside.unwrap_or(field)
}

/// The columns by their position in [`COLUMNS`].
#[derive(Clone, Copy)]
enum Column {
    Time,
    Duration,
    Process,
    Rank,
    Pid,
    Thread,
    Layer,
    Action,
    File,
    Offset,
    Length,
    Result,
    FileId,
    Context,
    Stack,
    Host,
    Command,
    Start,
}

/// Where in a row each column is.
struct Columns {
    at: [Option<usize>; COLUMNS.len()],
    count: usize,
}

impl Columns {
    fn of(header: &Rows) -> Result<Columns, String> {
        let mut columns = Columns {
            at: [None; COLUMNS.len()],
            count: header.len(),
        };
        if columns.count > COLUMNS_MAX {
            return Err(format!("more than {COLUMNS_MAX} columns: this is no trace"));
        }
        for at in 0..columns.count {
            columns.name(header.field(at), at)?;
        }
        for needed in [Column::Time, Column::Action] {
            if columns.at[needed as usize].is_none() {
                let name = COLUMNS[needed as usize];
                return Err(format!(
                    "the first row names no column {name}: there must be one"
                ));
            }
        }
        Ok(columns)
    }

    fn name(&mut self, name: &[u8], at: usize) -> Result<(), String> {
        let column = COLUMNS.iter().position(|c| c.as_bytes() == name);
        match column.map(|column| &mut self.at[column]) {
            Some(Some(_)) => Err(format!("two columns are called {}", shown(name))),
            Some(place) => {
                *place = Some(at);
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// A row, by the names of its columns.
struct Row<'a> {
    rows: &'a Rows,
    columns: &'a Columns,
}

impl<'a> Row<'a> {
    fn check_len(&self) -> Result<(), String> {
        let (here, header) = (self.rows.len(), self.columns.count);
        match here == header {
            true => Ok(()),
            false => Err(format!(
                "{here} fields, but the first row names {header} columns"
            )),
        }
    }

    /// The text in a column, empty if there is none.
    fn text(&self, column: Column) -> &'a [u8] {
        let at = self.columns.at[column as usize];
        at.map_or(b"", |at| self.rows.field(at))
    }

    fn utf8(&self, column: Column) -> Result<&'a str, String> {
        std::str::from_utf8(self.text(column)).map_err(|_| self.bad(column, "must be UTF-8"))
    }

    fn bad(&self, column: Column, demand: &str) -> String {
        let (name, text) = (COLUMNS[column as usize], shown(self.text(column)));
        format!("{name} is {text}: it {demand}")
    }

    fn number<N: TryFrom<u64>>(&self, column: Column, default: N) -> Result<N, String> {
        Ok(self.number_if_any(column)?.unwrap_or(default))
    }

    fn number_if_any<N: TryFrom<u64>>(&self, column: Column) -> Result<Option<N>, String> {
        let text = self.text(column);
        if text.is_empty() {
            return Ok(None);
        }
        let fitting = number(text).and_then(|number| N::try_from(number).ok());
        let demand = "must be a number without sign, and not too large";
        fitting.map(Some).ok_or_else(|| self.bad(column, demand))
    }

    /// The event, still without its file.
    fn event(&self, action: &[u8]) -> Result<Event, String> {
        let action = std::str::from_utf8(action).ok().and_then(Action::from_name);
        let action =
            action.ok_or_else(|| self.bad(Column::Action, "must be the name of an action"))?;
        let time = self.number_if_any(Column::Time)?;
        let len = self.number(Column::Length, 0)?;
        Ok(Event {
            time: Nanos(time.ok_or("there is no time_ns: every event has one")?),
            duration: Nanos(self.number(Column::Duration, 0)?),
            process: self.number(Column::Process, 0)?,
            thread: self.number(Column::Thread, 0)?,
            file: FileId(0),
            action,
            layer: self.layer()?,
            context: ContextId(self.number(Column::Context, 0)?),
            offset: self.number(Column::Offset, 0)?,
            len,
            result: self.result(if action.is_transfer() { len as i64 } else { 0 })?,
        })
    }

    fn layer(&self) -> Result<Layer, String> {
        match self.text(Column::Layer) {
            b"" => Ok(Layer::Posix),
            name => std::str::from_utf8(name)
                .ok()
                .and_then(Layer::from_name)
                .ok_or_else(|| self.bad(Column::Layer, "must be posix, mpiio or server")),
        }
    }

    fn result(&self, default: i64) -> Result<i64, String> {
        match self.utf8(Column::Result)? {
            "" => Ok(default),
            text => text
                .parse()
                .map_err(|_| self.bad(Column::Result, "must be a number")),
        }
    }

    /// The name of the file, if there is one and it is not what is known.
    fn file(&self, id: FileId, known: &Known) -> Option<Record> {
        let text = self.text(Column::File);
        let is_plain = memchr::memchr(b'\\', text).is_none();
        if text.is_empty() || (is_plain && known.file(id) == text) {
            return None;
        }
        let name = text::name_from_text(text).into();
        Some(Record::File { id, name })
    }

    fn file_id(&self, names: &mut Names) -> Result<FileId, String> {
        if self.columns.at[Column::FileId as usize].is_none() {
            return Ok(names.intern(self.text(Column::File))?.0);
        }
        let id = self.number_if_any(Column::FileId)?;
        id.map(FileId)
            .ok_or_else(|| self.bad(Column::FileId, "must be a number"))
    }

    /// What is known of the process with what this row adds, if it adds something.
    fn process(&self, id: u32, known: &Known) -> Result<Option<Record>, String> {
        let (pid, rank) = (
            self.number_if_any(Column::Pid)?,
            self.number_if_any(Column::Rank)?,
        );
        let (host, command) = (self.utf8(Column::Host)?, self.utf8(Column::Command)?);
        let start = self.number_if_any(Column::Start)?.map(Nanos);
        let known = known.processes.get(&id);
        let adds = |here: Option<u32>, before: Option<u32>| here.is_some() && here != before;
        let adds_nothing = known.is_some_and(|p| !adds(pid, p.pid) && !adds(rank, p.rank));
        if adds_nothing && host.is_empty() && command.is_empty() && start.is_none() {
            return Ok(None);
        }
        let before = known.cloned().unwrap_or_default();
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Ok(Some(Record::Process(Process {
            id,
            pid: pid.or(before.pid),
            rank: rank.or(before.rank),
            host: text(host).or(before.host),
            command: text(command).or(before.command),
            start: start.or(before.start),
        })))
    }

    fn context(&self, id: ContextId) -> Result<Option<Record>, String> {
        let text = self.utf8(Column::Stack)?;
        if text.is_empty() {
            return Ok(None);
        }
        let frames = text::stack_from_text(text);
        let frames =
            frames.ok_or_else(|| self.bad(Column::Stack, "must be module+0xoffset(symbol);…"))?;
        let frames = frames.into();
        Ok(Some(Record::Context { id, frames }))
    }
}

/// The rows of a table, one in memory at a time.
struct Rows {
    lines: Lines,
    /// The fields of the row, one behind the other, and where each ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    state: State,
}

/// Where we are in a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// At the begin of a field.
    Begin,
    /// In a field without quotes.
    Plain,
    /// In quotes, where commas and line ends are part of the field.
    Quoted,
    /// Behind a quote within quotes: it ends them, or is the first of two that stand for one.
    Quote,
}

impl Rows {
    fn new(lines: Lines) -> Rows {
        Rows {
            lines,
            bytes: Vec::new(),
            ends: Vec::new(),
            state: State::Begin,
        }
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn field(&self, at: usize) -> &[u8] {
        let begin = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.bytes[begin..self.ends[at]]
    }

    /// Reads the next row, if there is one. Empty lines are none.
    fn next(&mut self) -> Result<bool, TraceError> {
        self.bytes.clear();
        self.ends.clear();
        self.state = State::Begin;
        let mut is_first = self.lines.progress().0 == 0;
        loop {
            let Some(line) = self.lines.next()? else {
                return self.end_of_text();
            };
            let line = if is_first { without_mark(line) } else { line };
            is_first = false;
            let line = line
                .strip_suffix(b"\r")
                .map_or((line, false), |line| (line, true));
            if line.0.is_empty() && self.state == State::Begin {
                continue;
            }
            match split(line, &mut self.bytes, &mut self.ends, self.state) {
                Ok(State::Quoted) if self.bytes.len() <= LINE_BYTES_MAX => {
                    self.state = State::Quoted
                }
                Ok(State::Quoted) => {
                    let problem = format!(
                        "a row of more than {LINE_BYTES_MAX} bytes: is a quote not closed?"
                    );
                    return Err(self.lines.error(problem));
                }
                Ok(_) => return Ok(true),
                Err(problem) => return Err(self.lines.error(problem.to_owned())),
            }
        }
    }

    fn end_of_text(&self) -> Result<bool, TraceError> {
        match self.state {
            State::Quoted => Err(self.lines.error("the text ends within quotes".to_owned())),
            _ => Ok(false),
        }
    }
}

/// Adds the fields of a line, which may begin and end within quotes. The flag says whether a carriage return was
/// taken off its end.
fn split(
    (line, had_return): (&[u8], bool),
    bytes: &mut Vec<u8>,
    ends: &mut Vec<usize>,
    mut state: State,
) -> Result<State, &'static str> {
    for &byte in line {
        state = match (state, byte) {
            (State::Quoted, b'"') => State::Quote,
            (State::Begin, b'"') => State::Quoted,
            (State::Begin | State::Plain | State::Quote, b',') => {
                ends.push(bytes.len());
                State::Begin
            }
            (State::Plain, b'"') => {
                return Err("a quote within a field: quote the field, and double it");
            }
            (State::Quote, other) if other != b'"' => {
                return Err("text behind a field's closing quote");
            }
            (state, byte) => {
                bytes.push(byte);
                match state {
                    State::Quoted | State::Quote => State::Quoted,
                    State::Begin | State::Plain => State::Plain,
                }
            }
        };
    }
    match state {
        State::Quoted => bytes.extend_from_slice(if had_return { b"\r\n" } else { b"\n" }),
        _ => ends.push(bytes.len()),
    }
    Ok(state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategies::{event, records, resolved};
    use proptest::prelude::*;
    use std::io::Cursor;
    use std::sync::Arc;

    fn reader(text: &[u8]) -> Reader {
        Reader::new(Box::new(Cursor::new(text.to_vec())), Path::new("t.csv"))
    }

    fn written(records: &[Record]) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new()).unwrap();
        records.iter().for_each(|r| writer.write(r).unwrap());
        writer.finish().unwrap();
        writer.out
    }

    fn says_something(record: &Record) -> bool {
        match record {
            Record::File { name, .. } => !name.is_empty(),
            Record::Context { frames, .. } => !frames.is_empty(),
            _ => true,
        }
    }

    proptest! {
        #[test]
        fn any_events_come_back_with_their_names_and_stacks(mut records in records()) {
            records.retain(says_something);
            let got: Vec<Record> = reader(&written(&records)).map(Result::unwrap).collect();
            prop_assert_eq!(resolved(&got), resolved(&records));
        }

        #[test]
        fn any_text_is_a_trace_or_an_error(text in "[a-z0-9,\"\r\n]{0,60}", bytes: Vec<u8>) {
            reader(text.as_bytes()).for_each(drop);
            let header = "time_ns,action,file,stack\n";
            reader(&[header.as_bytes(), text.as_bytes()].concat()).for_each(drop);
            reader(&bytes).for_each(drop);
        }
    }

    #[test]
    fn what_is_known_of_a_process_comes_back() {
        let process = |host: Option<&str>, command: Option<&str>| Process {
            id: 1,
            pid: Some(77),
            rank: Some(3),
            host: host.map(str::to_owned),
            command: command.map(str::to_owned),
            start: Some(Nanos(1_700_000_000_000_000_005)),
        };
        let records = [
            Record::Process(process(Some("node,1"), Some("a \"b\"\n"))),
            Record::Event(event()),
            Record::Event(event()),
        ];
        let got: Vec<Record> = reader(&written(&records)).map(Result::unwrap).collect();
        assert_eq!(got, records);
    }

    #[test]
    fn a_table_that_people_write_needs_few_columns() {
        let text = b"\xEF\xBB\xBFoffset,action,file,length,colour,time_ns\r\n0,write,a,10,red,5\r\n\r\n10,read,b,1,,6\r\n10,read,a,1,,7";
        let got: Vec<Record> = reader(text).map(Result::unwrap).collect();
        let events: Vec<Event> = got
            .iter()
            .filter_map(|r| {
                if let Record::Event(e) = r {
                    Some(*e)
                } else {
                    None
                }
            })
            .collect();
        assert!(is_header(text.split(|b| *b == b'\n').next().unwrap()));
        assert_eq!(events.len(), 3);
        assert_eq!(events[1].offset, 10);
        assert_eq!(
            (events[0].result, events[0].len, events[0].time),
            (10, 10, Nanos(5))
        );
        assert!(events[0].file == events[2].file && events[0].file != events[1].file);
        let name =
            |record: &Record| matches!(record, Record::File { name, .. } if name[..] == *b"b");
        assert!(got.iter().any(name));
    }

    #[test]
    fn names_may_have_anything_in_them() {
        let names: [&[u8]; 5] = [
            b"a,b",
            b"say \"hi\"",
            b"two\nlines\r\nor three",
            b"\xFF\\xFF",
            b" \r",
        ];
        for name in names {
            let file = Record::File {
                id: FileId(3),
                name: Arc::from(name),
            };
            let records = [file.clone(), Record::Event(event())];
            let got: Vec<Record> = reader(&written(&records)).map(Result::unwrap).collect();
            assert!(got.contains(&file), "{got:?}");
        }
    }

    #[test]
    fn a_bad_row_is_named_with_what_is_wrong() {
        let header = "time_ns,action,offset,stack,layer";
        for (row, problem) in [
            ("x,read,0,,", "time_ns is \"x\""),
            (",read,0,,", "no time_ns"),
            ("1,eat,0,,", "action is \"eat\""),
            ("1,read,-3,,", "offset is \"-3\""),
            ("1,read,0,main,", "stack is \"main\""),
            ("1,read,0,,moon", "layer is \"moon\""),
            ("1,read,0", "3 fields, but the first row names 5"),
            ("1,read,\"0\"1,,", "behind a field's closing quote"),
            ("1,re\"ad,0,,", "a quote within a field"),
            ("1,read,\"0", "ends within quotes"),
        ] {
            let text = format!("{header}\n1,read,0,,\n{row}");
            let error = reader(text.as_bytes()).find_map(Result::err);
            let error = error.expect(row).to_string();
            assert!(error.contains(problem), "{error}");
            assert!(
                error.starts_with("t.csv: line 3") || row.ends_with("\"0"),
                "{error}"
            );
        }
        for header in ["", "time_ns,file", "time_ns,action,action"] {
            let error = reader(header.as_bytes()).find_map(Result::err);
            assert!(error.is_some(), "{header}");
        }
    }

    #[test]
    fn a_quote_that_is_never_closed_does_not_fill_the_memory() {
        let mut text = b"time_ns,action\n\"".to_vec();
        text.extend(b"0123456789\n".repeat(300_000));
        let mut reader = reader(&text);
        let error = reader.find_map(Result::err).unwrap().to_string();
        assert!(error.contains("is a quote not closed?"), "{error}");
        assert!(reader.rows.bytes.capacity() <= 4 * LINE_BYTES_MAX);
    }
}
