//! AGIOS's traces: the requests that arrived at a server, one a line.
//!
//! A line is `nanoseconds<TAB>file<TAB>R|W<TAB>offset<TAB>length`. In the name `\t`, `\n` and `\\` stand for a
//! tab, a line end and a backslash; any other backslash stands for itself, since AGIOS itself escapes nothing.
//! Nothing tells who sent a request or how it went: all are of process 0, and take no time and succeed.

use crate::input::{Lines, number, shown};
use crate::names::{Known, Names};
use crate::{Format, Process, Record, Sink, Source, TraceError};
use memchr::memchr;
use presagio_core::{Action, ContextId, Event, FileId, Layer, Nanos};
use std::io::{self, BufRead, Write};
use std::path::Path;

/// Reads an AGIOS trace. Its memory is that of the file names.
pub struct Reader {
    lines: Lines,
    names: Names,
    /// The name of the last line as it stands there: most are the same as the one before.
    last_name: Vec<u8>,
    last_file: FileId,
    unescaped: Vec<u8>,
    next: Next,
}

enum Next {
    Process,
    Line,
    Event(Event),
    End,
}

impl Reader {
    /// Reads `from`; `path` is for messages.
    pub fn new(from: Box<dyn BufRead + Send>, path: &Path) -> Reader {
        Reader {
            lines: Lines::new(from, path),
            names: Names::default(),
            // No name has a line end.
            last_name: b"\n".to_vec(),
            last_file: FileId(0),
            unescaped: Vec::new(),
            next: Next::Process,
        }
    }

    fn line(&mut self) -> Result<Option<Record>, TraceError> {
        let Some(line) = self.lines.next()? else {
            return Ok(None);
        };
        let understood = parse(line).and_then(|(name, event)| {
            if name == self.last_name {
                return Ok((event, None));
            }
            let (file, definition) = self.names.intern(unescape(name, &mut self.unescaped))?;
            self.last_name.clear();
            self.last_name.extend_from_slice(name);
            self.last_file = file;
            Ok((event, definition))
        });
        match understood {
            Ok((mut event, definition)) => {
                event.file = self.last_file;
                Ok(Some(self.in_order(event, definition)))
            }
            Err(problem) => Err(self.lines.error(problem)),
        }
    }

    fn in_order(&mut self, event: Event, definition: Option<Record>) -> Record {
        match definition {
            None => Record::Event(event),
            Some(definition) => {
                self.next = Next::Event(event);
                definition
            }
        }
    }
}

impl Iterator for Reader {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        match std::mem::replace(&mut self.next, Next::Line) {
            Next::Process => Some(Ok(Record::Process(Process::default()))),
            Next::Event(event) => Some(Ok(Record::Event(event))),
            Next::Line => {
                let next = self.line().transpose();
                if !matches!(next, Some(Ok(_))) {
                    self.next = Next::End;
                }
                next
            }
            Next::End => {
                self.next = Next::End;
                None
            }
        }
    }
}

impl Source for Reader {
    fn progress(&self) -> (u64, Option<u64>) {
        self.lines.progress()
    }

    fn format(&self) -> Option<Format> {
        Some(Format::Agios)
    }
}

/// Whether a line has the shape of one of AGIOS's.
pub(crate) fn is_line(line: &[u8]) -> bool {
    parse(line).is_ok()
}

/// The name, still escaped, and the event without its file.
fn parse(line: &[u8]) -> Result<(&[u8], Event), String> {
    let mut rest = Some(line);
    let time = field(&mut rest)?;
    let name = field(&mut rest)?;
    let action = match field(&mut rest)? {
        b"R" => Action::Read,
        b"W" => Action::Write,
        other => {
            return Err(format!(
                "the operation is {}: it must be R or W",
                shown(other)
            ));
        }
    };
    let offset = field(&mut rest)?;
    let length = field(&mut rest)?;
    if rest.is_some() {
        return Err(FIELDS.to_owned());
    }
    let time = Nanos(number_of("time", time)?);
    let (offset, len) = (number_of("offset", offset)?, number_of("length", length)?);
    let end = offset
        .checked_add(len)
        .filter(|end| *end <= i64::MAX as u64);
    if end.is_none() {
        return Err(format!(
            "{len} bytes from offset {offset} end beyond 2^63 - 1"
        ));
    }
    Ok((name, arrival(time, action, offset, len)))
}

const FIELDS: &str =
    "there must be 5 fields, separated by tabs: nanoseconds, file, R or W, offset, length";

fn field<'a>(rest: &mut Option<&'a [u8]>) -> Result<&'a [u8], String> {
    let line = rest.ok_or(FIELDS)?;
    match memchr(b'\t', line) {
        Some(end) => {
            *rest = Some(&line[end + 1..]);
            Ok(&line[..end])
        }
        None => {
            *rest = None;
            Ok(line)
        }
    }
}

fn number_of(what: &str, text: &[u8]) -> Result<u64, String> {
    number(text).ok_or_else(|| format!("the {what} is {}: it must be a number", shown(text)))
}

fn arrival(time: Nanos, action: Action, offset: u64, len: u64) -> Event {
    Event {
        time,
        duration: Nanos::ZERO,
        process: 0,
        thread: 0,
        file: FileId(0),
        action,
        layer: Layer::Server,
        context: ContextId::UNKNOWN,
        offset,
        len,
        result: len as i64,
    }
}

fn unescape<'a>(name: &'a [u8], room: &'a mut Vec<u8>) -> &'a [u8] {
    if memchr(b'\\', name).is_none() {
        return name;
    }
    room.clear();
    let mut bytes = name.iter();
    while let Some(&byte) = bytes.next() {
        let escaped = match (byte, bytes.as_slice().first()) {
            (b'\\', Some(b't')) => b'\t',
            (b'\\', Some(b'n')) => b'\n',
            (b'\\', Some(b'\\')) => b'\\',
            _ => {
                room.push(byte);
                continue;
            }
        };
        room.push(escaped);
        bytes.next();
    }
    room
}

/// Writes reads and writes as an AGIOS trace, which a scheduler can take as foresight. It has no place for
/// anything else, so other records are left out.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    known: Known,
    line: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Writes to `out`, which should have a buffer.
    pub fn new(out: W) -> Writer<W> {
        Writer {
            out,
            known: Known::default(),
            line: Vec::new(),
        }
    }
}

impl<W: Write> Sink for Writer<W> {
    fn write(&mut self, record: &Record) -> io::Result<()> {
        let (event, operation) = match record {
            Record::Event(event) if event.action == Action::Read => (event, 'R'),
            Record::Event(event) if event.action == Action::Write => (event, 'W'),
            other => {
                return self.known.learn(other).map(drop).map_err(io::Error::other);
            }
        };
        self.line.clear();
        write!(self.line, "{}\t", event.time.0)?;
        match self.known.files.get(&event.file.0) {
            Some(name) => push_escaped(&mut self.line, name),
            // Files that nobody named stay different ones.
            None => write!(self.line, "file {}", event.file)?,
        }
        writeln!(self.line, "\t{operation}\t{}\t{}", event.offset, event.len)?;
        self.out.write_all(&self.line)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn push_escaped(line: &mut Vec<u8>, name: &[u8]) {
    for &byte in name {
        match byte {
            b'\t' => line.extend_from_slice(b"\\t"),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\\' => line.extend_from_slice(b"\\\\"),
            _ => line.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Cursor;
    use std::sync::Arc;

    fn reader(text: &[u8]) -> Reader {
        Reader::new(Box::new(Cursor::new(text.to_vec())), Path::new("a.trace"))
    }

    fn error(text: &[u8]) -> String {
        let error = reader(text).find_map(Result::err);
        error.expect("an error").to_string()
    }

    #[test]
    fn a_line_is_a_request_that_arrived_at_a_server() {
        let text = b"12\t/a b\tW\t4096\t512\n15\t/c\tR\t0\t8\n20\t/a b\tR\t1\t2";
        let records: Vec<Record> = reader(text).map(Result::unwrap).collect();
        let file = |id, name: &[u8]| Record::File {
            id: FileId(id),
            name: Arc::from(name),
        };
        let event = |time, file, action, offset, len| {
            let file = FileId(file);
            Record::Event(Event {
                file,
                ..arrival(Nanos(time), action, offset, len)
            })
        };
        assert_eq!(
            records,
            [
                Record::Process(Process::default()),
                file(0, b"/a b"),
                event(12, 0, Action::Write, 4096, 512),
                file(1, b"/c"),
                event(15, 1, Action::Read, 0, 8),
                event(20, 0, Action::Read, 1, 2),
            ]
        );
    }

    #[test]
    fn a_bad_line_is_named_with_what_is_wrong() {
        let good = "1\tf\tR\t0\t1\n";
        for (bad, problem) in [
            ("1\tf\tR\t0", "5 fields"),
            ("1\tf\tR\t0\t1\t2", "5 fields"),
            ("", "5 fields"),
            ("x\tf\tR\t0\t1", "the time is \"x\""),
            ("1\tf\tread\t0\t1", "must be R or W"),
            ("1\tf\tR\t-5\t1", "the offset is \"-5\""),
            ("1\tf\tR\t9223372036854775807\t1", "beyond 2^63"),
        ] {
            let error = error(format!("{good}{bad}\n{good}").as_bytes());
            assert!(error.starts_with("a.trace: line 2: "), "{error}");
            assert!(error.contains(problem), "{error}");
        }
    }

    #[test]
    fn files_that_nobody_named_stay_different_ones() {
        let mut writer = Writer::new(Vec::new());
        for file in [7, 8].map(FileId) {
            let event = arrival(Nanos(1), Action::Read, 0, 1);
            writer
                .write(&Record::Event(Event { file, ..event }))
                .unwrap();
        }
        assert_eq!(writer.out, b"1\tfile 7\tR\t0\t1\n1\tfile 8\tR\t0\t1\n");
    }

    #[test]
    fn after_an_error_the_reader_has_ended() {
        let mut reader = reader(b"x\n1\tf\tR\t0\t1\n");
        assert!(reader.any(|record| record.is_err()));
        assert!(reader.next().is_none() && reader.next().is_none());
    }

    #[test]
    fn a_backslash_of_agios_stands_for_itself() {
        let mut room = Vec::new();
        assert_eq!(unescape(b"a\\x\\", &mut room), b"a\\x\\");
        assert_eq!(unescape(b"\\\\t\\t\\n", &mut room), b"\\t\t\n");
    }

    proptest! {
        #[test]
        fn transfers_come_back(
            transfers in prop::collection::vec((0usize..3, any::<u64>(), any::<bool>(), 0u64..1 << 40), 0..50),
            names in prop::array::uniform3(prop::collection::vec(any::<u8>(), 0..8)),
        ) {
            let mut writer = Writer::new(Vec::new());
            let mut sent = Vec::new();
            for (id, name) in names.iter().enumerate() {
                let (id, name) = (FileId(id as u64), Arc::from(&name[..]));
                writer.write(&Record::File { id, name }).unwrap();
            }
            for (file, time, is_read, offset) in transfers {
                let action = if is_read { Action::Read } else { Action::Write };
                let event = Event { file: FileId(file as u64), ..arrival(Nanos(time), action, offset, 9) };
                writer.write(&Record::Event(event)).unwrap();
                sent.push((names[file].clone(), Event { file: FileId(0), ..event }));
            }
            let (mut known, mut got) = (Known::default(), Vec::new());
            for record in reader(&writer.out) {
                match record.unwrap() {
                    Record::Event(e) => {
                        got.push((known.file(e.file).to_vec(), Event { file: FileId(0), ..e }));
                    }
                    definition => { known.learn(&definition).unwrap(); }
                }
            }
            prop_assert_eq!(got, sent);
        }
    }
}
