//! The reader of what `darshan-dxt-parser` prints: per file and process a few comment lines, then one line per
//! operation.
//!
//! ```text
//! # DXT, file_id: 9457796068806373448, file_name: /scratch/test.0
//! # DXT, rank: 0, hostname: node1
//! # DXT, write_count: 1, read_count: 0
//! # Module    Rank  Wt/Rd  Segment          Offset       Length    Start(s)      End(s)  [OST]     Pthread-ID
//!  X_POSIX       0  write        0               0         1024      0.0012      0.0013  [106]     140498826330816
//! ```
//!
//! The last two columns are not always there, nor is the offset: Darshan before 3.1.7 printed none for MPI-IO.

use super::{Definitions, HOW_TO_RECORD, NO_OFFSETS, moment, rank, size};
use crate::input::{Lines, number, shown};
use crate::{Format, Reason, Record, Source, TraceError};
use presagio_core::{Action, ContextId, Event, FileId, Layer, Nanos};
use std::io::BufRead;
use std::path::Path;
use std::str::FromStr;

/// A reader of `darshan-dxt-parser`'s output.
pub struct TextReader {
    lines: Lines,
    file: Option<FileId>,
    columns: Columns,
    /// There were operations without an offset.
    lacks_offsets: bool,
    definitions: Definitions,
    ended: bool,
}

impl TextReader {
    /// Reads from `from`, which is called `path` in errors.
    pub fn new(from: Box<dyn BufRead + Send>, path: &Path) -> TextReader {
        TextReader {
            lines: Lines::new(from, path),
            file: None,
            columns: Columns::of(b"Segment Offset"),
            lacks_offsets: false,
            definitions: Definitions::default(),
            ended: false,
        }
    }

    fn advance(&mut self) -> Result<Option<Record>, TraceError> {
        while self.definitions.due.is_empty() {
            let Some(line) = self.lines.next()? else {
                return self.end();
            };
            // The line borrows the reader; a copy is cheap beside parsing it.
            let line = line.trim_ascii().to_vec();
            self.line(&line)
                .map_err(|reason| self.lines.error(reason))?;
        }
        Ok(self.definitions.due.pop_front())
    }

    /// At the end there must have been something.
    fn end(&mut self) -> Result<Option<Record>, TraceError> {
        if std::mem::replace(&mut self.ended, true) || self.file.is_some() {
            return Ok(None);
        }
        Err(self.lines.error(Reason::Unsupported(format!(
            "there is no DXT trace in this text. {HOW_TO_RECORD}"
        ))))
    }

    fn line(&mut self, line: &[u8]) -> Result<(), Reason> {
        match line.strip_prefix(b"#") {
            Some(comment) => self.comment(comment.trim_ascii()),
            None if line.is_empty() => Ok(()),
            None => self.operation(line),
        }
    }

    fn comment(&mut self, comment: &[u8]) -> Result<(), Reason> {
        if let Some(command) = comment.strip_prefix(b"exe: ") {
            self.definitions.command = Some(String::from_utf8_lossy(command).into_owned());
        } else if let Some(start) = comment.strip_prefix(b"start_time: ") {
            let seconds = number(start.split(|&b| b == b'.').next().unwrap_or_default());
            self.definitions.start = seconds.filter(|&s| s > 0).map(Nanos::from_secs);
        } else if let Some(rest) = comment.strip_prefix(b"DXT, file_id: ") {
            self.begin_file(rest)?;
        } else if let Some(rest) = comment.strip_prefix(b"DXT, rank: ") {
            let id = rest.split(|&b| b == b',').next();
            let rank = rank(parse("rank", id)?)?;
            let host = split(rest, b", hostname: ").map_or(&b""[..], |(_, host)| host);
            self.definitions.process(rank, host)?;
        } else if comment.starts_with(b"Module ") {
            self.columns = Columns::of(comment);
        }
        Ok(())
    }

    fn begin_file(&mut self, rest: &[u8]) -> Result<(), Reason> {
        let (id, name) = split(rest, b", file_name: ").ok_or_else(|| bad("file_name", rest))?;
        let id = FileId(parse("file_id", Some(id))?);
        self.file = Some(id);
        self.definitions.file(id, || name.into())
    }

    fn operation(&mut self, line: &[u8]) -> Result<(), Reason> {
        let Some(file) = self.file else {
            return Err(Reason::Malformed(format!(
                "{} stands before the first \"# DXT, file_id\" line: this is no output of darshan-dxt-parser",
                shown(line)
            )));
        };
        let mut columns = line
            .split(u8::is_ascii_whitespace)
            .filter(|column| !column.is_empty());
        let layer = layer(columns.next().unwrap_or_default())?;
        let process = rank(parse("rank", columns.next())?)?;
        let action = action(columns.next().unwrap_or_default())?;
        if self.columns.segment {
            let _: u64 = parse("segment", columns.next())?;
        }
        let offset = match self.columns.offset {
            true => parse("offset", columns.next())?,
            false => -1,
        };
        self.lacks_offsets |= offset == -1;
        let offset = size("offset", offset)?;
        let len = size("length", parse("length", columns.next())?)?;
        let time = moment(parse("start", columns.next())?)?;
        let end = moment(parse("end", columns.next())?)?;
        let thread = self.thread(process, columns.next_back())?;
        self.definitions.process(process, b"")?;
        self.definitions.due.push_back(Record::Event(Event {
            time,
            duration: end.since(time),
            process,
            thread,
            file,
            action,
            layer,
            context: ContextId::UNKNOWN,
            offset,
            len,
            result: len as i64,
        }));
        Ok(())
    }

    /// The number, within its process, of the thread in the last column; −1 there stands for none.
    fn thread(&mut self, rank: u32, column: Option<&[u8]>) -> Result<u32, Reason> {
        if !self.columns.thread || column == Some(b"-1") {
            return Ok(0);
        }
        self.definitions.thread(rank, parse("Pthread-ID", column)?)
    }
}

impl Iterator for TextReader {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let result = self.advance();
        self.ended |= !matches!(result, Ok(Some(_)));
        result.transpose()
    }
}

impl Source for TextReader {
    fn progress(&self) -> (u64, Option<u64>) {
        self.lines.progress()
    }

    fn format(&self) -> Option<Format> {
        Some(Format::DarshanText)
    }

    fn warnings(&self) -> Vec<String> {
        let warning = self.lacks_offsets.then(|| NO_OFFSETS.to_owned());
        warning.into_iter().collect()
    }
}

/// Which columns there are, of those that not every version prints.
#[derive(Clone, Copy)]
struct Columns {
    segment: bool,
    offset: bool,
    thread: bool,
}

impl Columns {
    fn of(header: &[u8]) -> Columns {
        let has = |name: &[u8]| header.split(u8::is_ascii_whitespace).any(|n| n == name);
        Columns {
            segment: has(b"Segment"),
            offset: has(b"Offset"),
            thread: has(b"Pthread-ID"),
        }
    }
}

fn layer(text: &[u8]) -> Result<Layer, Reason> {
    match text {
        b"X_POSIX" => Ok(Layer::Posix),
        b"X_MPIIO" => Ok(Layer::MpiIo),
        _ => Err(Reason::Malformed(format!(
            "{} is neither X_POSIX nor X_MPIIO",
            shown(text)
        ))),
    }
}

fn action(text: &[u8]) -> Result<Action, Reason> {
    match text {
        b"read" => Ok(Action::Read),
        b"write" => Ok(Action::Write),
        _ => Err(Reason::Malformed(format!(
            "{} is neither read nor write",
            shown(text)
        ))),
    }
}

fn split<'a>(text: &'a [u8], separator: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = memchr::memmem::find(text, separator)?;
    Some((&text[..at], &text[at + separator.len()..]))
}

fn parse<T: FromStr>(what: &str, column: Option<&[u8]>) -> Result<T, Reason> {
    let Some(column) = column else {
        return Err(Reason::Malformed(format!(
            "the line ends before its {what}"
        )));
    };
    std::str::from_utf8(column)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| Reason::Malformed(format!("{} is no {what}", shown(column))))
}

fn bad(what: &str, rest: &[u8]) -> Reason {
    Reason::Malformed(format!("no {what} in {}", shown(rest)))
}
