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
//! The last two columns are not always there.

use super::{Definitions, HOW_TO_RECORD, moment, rank, size};
use crate::input::{Lines, shown};
use crate::{Format, Reason, Record, Source, TraceError};
use presagio_core::{Action, ContextId, Event, FileId, Layer};
use std::io::BufRead;
use std::path::Path;
use std::str::FromStr;

/// A reader of `darshan-dxt-parser`'s output.
pub struct TextReader {
    lines: Lines,
    command: Option<String>,
    file: Option<FileId>,
    /// The last column is the thread.
    threads_shown: bool,
    definitions: Definitions,
    ended: bool,
}

impl TextReader {
    /// Reads from `from`, which is called `path` in errors.
    pub fn new(from: Box<dyn BufRead + Send>, path: &Path) -> TextReader {
        TextReader {
            lines: Lines::new(from, path),
            command: None,
            file: None,
            threads_shown: false,
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
            self.command = Some(String::from_utf8_lossy(command).into_owned());
        } else if let Some(rest) = comment.strip_prefix(b"DXT, file_id: ") {
            self.begin_file(rest)?;
        } else if let Some(rest) = comment.strip_prefix(b"DXT, rank: ") {
            let (id, host) = split(rest, b", hostname: ").ok_or_else(|| bad("hostname", rest))?;
            let rank = rank(parse("rank", Some(id))?)?;
            self.definitions.process(rank, host, &self.command);
        } else if comment.starts_with(b"Module ") {
            self.threads_shown = comment.ends_with(b"Pthread-ID");
        }
        Ok(())
    }

    fn begin_file(&mut self, rest: &[u8]) -> Result<(), Reason> {
        let (id, name) = split(rest, b", file_name: ").ok_or_else(|| bad("file_name", rest))?;
        let id = FileId(parse("file_id", Some(id))?);
        self.file = Some(id);
        self.definitions.file(id, || name.into());
        Ok(())
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
        let _: u64 = parse("segment", columns.next())?;
        let offset = size("offset", parse("offset", columns.next())?)?;
        let len = size("length", parse("length", columns.next())?)?;
        let time = moment(parse("start", columns.next())?)?;
        let end = moment(parse("end", columns.next())?)?;
        let thread = self.thread(process, columns.next_back())?;
        self.definitions.process(process, b"", &self.command);
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
        if !self.threads_shown || column == Some(b"-1") {
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
