//! Opens a trace whatever its format: told by the first bytes, not by the file's name.

use crate::{Place, Reason, Source, TraceError, agios, csv, darshan, native, strace};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

/// The formats that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Our own.
    Native,
    /// A `.darshan` log.
    Darshan,
    /// What `darshan-dxt-parser` prints.
    DarshanText,
    /// What `strace -f -ttt -T -y` prints.
    Strace,
    /// A trace of AGIOS.
    Agios,
    /// Comma-separated values.
    Csv,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 6] = [
        Format::Native,
        Format::Darshan,
        Format::DarshanText,
        Format::Strace,
        Format::Agios,
        Format::Csv,
    ];

    /// Its name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Native => "native",
            Format::Darshan => "darshan",
            Format::DarshanText => "darshan-text",
            Format::Strace => "strace",
            Format::Agios => "agios",
            Format::Csv => "csv",
        }
    }

    /// The format of this name.
    pub fn from_name(name: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.name() == name)
    }

    /// The format of a file that begins with these bytes.
    pub fn of(head: &[u8]) -> Option<Format> {
        if head.starts_with(&native::format::MAGIC) {
            return Some(Format::Native);
        }
        if is_darshan_log(head) {
            return Some(Format::Darshan);
        }
        let mut lines = head.split(|byte| *byte == b'\n');
        let is_comment = |line: &&[u8]| line.starts_with(b"#");
        if lines.clone().take_while(is_comment).any(is_darshan_text) {
            return Some(Format::DarshanText);
        }
        of_line(lines.find(|line| !line.trim_ascii().is_empty())?)
    }
}

fn of_line(line: &[u8]) -> Option<Format> {
    if csv::is_header(line) {
        Some(Format::Csv)
    } else if agios::is_line(line) {
        Some(Format::Agios)
    } else if is_strace(line) {
        Some(Format::Strace)
    } else {
        None
    }
}

/// The number by which Darshan marks its logs; the bytes are in the order of the machine that wrote it.
const DARSHAN_MAGIC: u64 = 6_567_223;

fn is_darshan_log(head: &[u8]) -> bool {
    let magic = head.get(8..).and_then(|rest| rest.first_chunk::<8>());
    magic.is_some_and(|magic| {
        *magic == DARSHAN_MAGIC.to_le_bytes() || *magic == DARSHAN_MAGIC.to_be_bytes()
    })
}

fn is_darshan_text(line: &[u8]) -> bool {
    line.starts_with(b"# darshan log version") || line.starts_with(b"# DXT")
}

/// Whether a line has a task or none, a time with a fraction, and then something of strace's.
fn is_strace(line: &[u8]) -> bool {
    if line.starts_with(b"strace: ") || line.starts_with(b"[ Process PID=") {
        return true;
    }
    let line = line.strip_prefix(b"[pid").unwrap_or(line);
    let words = line.split(|byte| matches!(byte, b' ' | b']'));
    let mut words = words.filter(|word| !word.is_empty());
    let is_number = |word: &[u8]| word.iter().all(u8::is_ascii_digit);
    let mut time = words.next().unwrap_or_default();
    if is_number(time) {
        time = words.next().unwrap_or_default();
    }
    let is_time = time
        .split(|byte| *byte == b'.')
        .all(|part| !part.is_empty() && is_number(part));
    let what = words.next().unwrap_or_default();
    let is_call = what.contains(&b'(') && what.first().is_some_and(u8::is_ascii_lowercase);
    let is_other = [&b"<..."[..], b"---", b"+++"].contains(&what);
    is_time && time.contains(&b'.') && (is_call || is_other)
}

/// How to open a trace.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// The format, if it is not to be found out.
    pub format: Option<Format>,
    /// Whether to go on behind damaged parts, where the format allows that.
    pub salvage: bool,
}

/// Opens the trace at `path`, or on the standard input for `-`.
pub fn open(path: &Path) -> Result<Box<dyn Source + Send>, TraceError> {
    open_with(path, OpenOptions::default())
}

/// Opens the trace at `path`, or on the standard input for `-`.
pub fn open_with(path: &Path, options: OpenOptions) -> Result<Box<dyn Source + Send>, TraceError> {
    if path == Path::new("-") {
        let path = Path::new("standard input");
        return Opening::new(Box::new(io::stdin()), path)?.source(options, false);
    }
    match File::open(path) {
        Ok(file) => {
            let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
            Opening::new(Box::new(file), path)?.source(options, is_file)
        }
        Err(error) => Err(TraceError::new(path, Place::Byte(0), error)),
    }
}

/// Enough to tell any format.
const HEAD_BYTES: usize = 8 << 10;
const BUFFER_BYTES: usize = 128 << 10;

/// A file, and its first bytes.
struct Opening<'a> {
    head: Vec<u8>,
    rest: Box<dyn Read + Send>,
    path: &'a Path,
}

impl<'a> Opening<'a> {
    fn new(mut from: Box<dyn Read + Send>, path: &'a Path) -> Result<Opening<'a>, TraceError> {
        let mut head = Vec::new();
        let read = from.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head);
        match read {
            Ok(_) => Ok(Opening {
                head,
                rest: from,
                path,
            }),
            Err(error) => Err(TraceError::new(path, Place::Byte(0), error)),
        }
    }

    fn source(
        self,
        options: OpenOptions,
        is_file: bool,
    ) -> Result<Box<dyn Source + Send>, TraceError> {
        let format = options.format.or_else(|| Format::of(&self.head));
        let format = format.ok_or_else(|| self.unknown())?;
        let path = self.path;
        Ok(match format {
            Format::Native => {
                let reader = native::Reader::new(self.bytes(), path)?;
                Box::new(if options.salvage {
                    reader.salvage()
                } else {
                    reader
                })
            }
            Format::Darshan if is_file => Box::new(darshan::LogReader::open(path)?),
            Format::Darshan => return Err(self.not_a_file()),
            Format::DarshanText => Box::new(darshan::TextReader::new(self.bytes(), path)),
            Format::Strace => Box::new(strace::Reader::new(self.bytes(), path)),
            Format::Agios => Box::new(agios::Reader::new(self.bytes(), path)),
            Format::Csv => Box::new(csv::Reader::new(self.bytes(), path)),
        })
    }

    /// All bytes, also those that were looked at.
    fn bytes(self) -> Box<dyn BufRead + Send> {
        let rest = BufReader::with_capacity(BUFFER_BYTES, self.rest);
        Box::new(Cursor::new(self.head).chain(rest))
    }

    fn unknown(&self) -> TraceError {
        let known = Format::ALL.map(Format::name).join(", ");
        let problem = match self.head.is_empty() {
            true => "it is empty".to_owned(),
            false => {
                format!("this is no trace that we know: {known}; name its format if it is one")
            }
        };
        TraceError::new(self.path, Place::Byte(0), Reason::Unsupported(problem))
    }

    fn not_a_file(&self) -> TraceError {
        let problem = "a Darshan log must be a file, since it is not read from front to back";
        TraceError::new(
            self.path,
            Place::Byte(0),
            Reason::Unsupported(problem.to_owned()),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategies::event;
    use crate::{Record, Sink};
    use std::io::Write;
    use std::os::fd::AsRawFd;

    #[test]
    fn formats_are_told_by_their_content() {
        let mut log = b"3.41\0\0\0\0".to_vec();
        log.extend(DARSHAN_MAGIC.to_be_bytes());
        let heads: [(&[u8], Option<Format>); 14] = [
            (b"\x89PTRACE\n\x01\0", Some(Format::Native)),
            (&log, Some(Format::Darshan)),
            (
                b"# darshan log version: 3.41\n# compression",
                Some(Format::DarshanText),
            ),
            (
                b"# *****\n# DXT, file_id: 1, file_name: /x\n",
                Some(Format::DarshanText),
            ),
            (
                b"4711  1700000000.123456 openat(AT_FDCWD, \"x\")",
                Some(Format::Strace),
            ),
            (
                b"[pid  4711] 1700000000.1 <... read resumed>",
                Some(Format::Strace),
            ),
            (
                b"1700000000.123456 --- SIGCHLD {} ---",
                Some(Format::Strace),
            ),
            (b"strace: Process 12 attached\n", Some(Format::Strace)),
            (b"12\t/a\tW\t4096\t512\n", Some(Format::Agios)),
            (b"offset,action,time_ns\r\n", Some(Format::Csv)),
            (b"", None),
            (b"hello\n", None),
            (b"# a comment\n", None),
            (b"1 2 3 4 5\n", None),
        ];
        for (head, format) in heads {
            assert_eq!(Format::of(head), format, "{}", head.escape_ascii());
        }
    }

    #[test]
    fn names_lead_back_to_formats() {
        for format in Format::ALL {
            assert_eq!(Format::from_name(format.name()), Some(format));
        }
    }

    #[test]
    fn any_format_is_opened_and_read() {
        let mut binary = native::Writer::new(Vec::new()).unwrap();
        binary.write(&Record::Event(event())).unwrap();
        binary.finish().unwrap();
        let mut table = csv::Writer::new(Vec::new()).unwrap();
        table.write(&Record::Event(event())).unwrap();
        drop(table);
        let texts: [&[u8]; 3] = [
            &binary.into_inner(),
            b"time_ns,action\n1,read\n",
            b"12\t/a\tW\t4096\t512\n",
        ];
        for text in texts {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(text).unwrap();
            let mut source = open(file.path()).unwrap();
            let records: Result<Vec<Record>, TraceError> = source.by_ref().collect();
            let is_event = |record: &Record| matches!(record, Record::Event(_));
            assert_eq!(records.unwrap().iter().filter(|r| is_event(r)).count(), 1);
            assert_eq!(
                source.progress(),
                (text.len() as u64, Some(text.len() as u64))
            );
        }
    }

    #[test]
    fn what_cannot_be_opened_says_why() {
        let error = |path: &str| open(Path::new(path)).err().unwrap().to_string();
        assert!(error("/nonexistent").contains("No such file"));
        assert!(error("/").contains("directory"));
        assert!(error("/dev/null").contains("it is empty"));
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"hello").unwrap();
        assert!(error(file.path().to_str().unwrap()).contains("no trace that we know: native"));
        let (reader, mut writer) = io::pipe().unwrap();
        let head = [&b"3.41\0\0\0\0"[..], &DARSHAN_MAGIC.to_le_bytes()].concat();
        writer.write_all(&head).unwrap();
        drop(writer);
        let pipe = format!("/proc/self/fd/{}", reader.as_raw_fd());
        assert!(error(&pipe).contains("a Darshan log must be a file"));
    }
}
