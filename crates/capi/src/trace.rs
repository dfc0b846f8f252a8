//! Writes the trace of all arrivals in AGIOS's format, when the configuration asks for one.
//!
//! One line a request: `nanoseconds<TAB>file<TAB>R|W<TAB>offset<TAB>length`, the nanoseconds since
//! `agios_init`. A tab, line end or backslash in a file's name is written `\t`, `\n` or `\\`, so that a
//! line always has five fields. The engine calls us at every arrival; a trace that cannot be written is
//! reported once and given up, the scheduler goes on.

use crate::config::Trace;
use crate::fault::say;
use crate::names::Names;
use presagio_core::{Op, Request};
use presagio_engine::Recorder;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Most numbers that are tried for a file's name. A directory with that many traces is an accident.
const NUMBER_MAX: u32 = 1_000_000;

/// A trace file being written. What is still in memory is written when it is dropped.
#[derive(Debug)]
pub struct TraceFile {
    path: PathBuf,
    file: File,
    names: Arc<Names>,
    lines: Vec<u8>,
    lines_bytes_max: usize,
    given_up: bool,
}

impl TraceFile {
    /// Creates `prefix.N.suffix` with the first N from 1 on that is not taken. No file is overwritten.
    pub fn create(trace: &Trace, names: Arc<Names>) -> io::Result<TraceFile> {
        for number in 1..=NUMBER_MAX {
            let path = numbered(trace, number);
            match File::create_new(&path) {
                Ok(file) => return Ok(TraceFile::on(path, file, trace.buffer_bytes, names)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let reason = format!("cannot create {}: {error}", path.display());
                    return Err(io::Error::new(error.kind(), reason));
                }
            }
        }
        let reason = format!("all {NUMBER_MAX} names are taken");
        Err(io::Error::new(io::ErrorKind::AlreadyExists, reason))
    }

    fn on(path: PathBuf, file: File, lines_bytes_max: usize, names: Arc<Names>) -> TraceFile {
        TraceFile {
            path,
            file,
            names,
            lines: Vec::new(),
            lines_bytes_max,
            given_up: false,
        }
    }

    fn flush(&mut self) {
        if self.given_up {
            return;
        }
        if let Err(error) = self.file.write_all(&self.lines) {
            let path = self.path.display();
            say(&format!(
                "cannot write the trace {path}: {error}; it ends here"
            ));
            self.given_up = true;
        }
        self.lines.clear();
    }
}

/// The trace as the engine and the session share it.
#[derive(Clone, Debug)]
pub struct SharedTrace(Arc<Mutex<TraceFile>>);

impl SharedTrace {
    /// Shares `file`.
    pub fn new(file: TraceFile) -> SharedTrace {
        SharedTrace(Arc::new(Mutex::new(file)))
    }

    /// Adds the line of a request that arrives at the moment that `request` gives it. That is asked for
    /// under the lock, so that lines are in the order of time.
    pub fn add(&self, request: impl FnOnce() -> Request) {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.add(&request());
    }

    /// Writes what is still in memory.
    pub fn flush(&self) {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.flush();
    }
}

impl Recorder for SharedTrace {
    fn arrival(&mut self, request: &Request) {
        self.add(|| *request);
    }
}

impl TraceFile {
    fn add(&mut self, request: &Request) {
        if self.given_up {
            return;
        }
        push_line(&mut self.lines, request, self.names.name(request.file));
        if self.lines.len() >= self.lines_bytes_max {
            self.flush();
        }
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        self.flush();
    }
}

fn numbered(trace: &Trace, number: u32) -> PathBuf {
    let number = number.to_string();
    let parts = [&trace.prefix[..], number.as_bytes(), &trace.suffix];
    PathBuf::from(OsString::from_vec(parts.join(&b'.')))
}

/// Adds the line of a request to a file of that name.
pub(crate) fn push_line(lines: &mut Vec<u8>, request: &Request, name: &[u8]) {
    let operation = match request.op {
        Op::Read => 'R',
        Op::Write => 'W',
    };
    let (offset, length) = (request.range.start(), request.range.len());
    // Writing into memory cannot fail.
    let _ = write!(lines, "{}\t", request.arrival.0);
    push_escaped(lines, name);
    let _ = writeln!(lines, "\t{operation}\t{offset}\t{length}");
}

fn push_escaped(lines: &mut Vec<u8>, name: &[u8]) {
    for &byte in name {
        match byte {
            b'\t' => lines.extend_from_slice(b"\\t"),
            b'\n' => lines.extend_from_slice(b"\\n"),
            b'\\' => lines.extend_from_slice(b"\\\\"),
            _ => lines.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use presagio_core::{Nanos, Range, RequestId};

    fn request(names: &Names, name: &[u8]) -> Request {
        let file = names.intern(name).unwrap();
        Request {
            arrival: Nanos(12),
            ..Request::new(RequestId(1), file, Op::Write, Range::at(4096, 512))
        }
    }

    fn scratch(name: &str) -> (PathBuf, Trace) {
        let dir = std::env::temp_dir().join(format!("agios-trace-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let trace = Trace {
            prefix: dir.join("t").into_os_string().into_vec(),
            suffix: b"out".to_vec(),
            buffer_bytes: 1024,
        };
        (dir, trace)
    }

    #[test]
    fn a_line_has_five_fields_whatever_the_file_is_called() {
        let names = Names::default();
        let mut lines = Vec::new();
        for name in [&b"/a"[..], b"a\tb\nc\\d", b"\xFF"] {
            push_line(&mut lines, &request(&names, name), name);
        }
        let expected =
            b"12\t/a\tW\t4096\t512\n12\ta\\tb\\nc\\\\d\tW\t4096\t512\n12\t\xFF\tW\t4096\t512\n";
        assert_eq!(lines, expected);
    }

    #[test]
    fn traces_take_the_next_number_and_never_overwrite() {
        let (dir, trace) = scratch("numbers");
        std::fs::write(dir.join("t.1.out"), "precious").unwrap();
        let names = Arc::new(Names::default());
        for _ in 0..2 {
            let mut file = TraceFile::create(&trace, names.clone()).unwrap();
            file.add(&request(&names, b"x"));
        }
        let text = |name| std::fs::read_to_string(dir.join(name)).unwrap();
        assert_eq!(text("t.1.out"), "precious");
        assert_eq!(
            (
                text("t.2.out").lines().count(),
                text("t.3.out").lines().count()
            ),
            (1, 1)
        );
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_full_buffer_is_written() {
        let (dir, trace) = scratch("buffer");
        let names = Arc::new(Names::default());
        let mut file = TraceFile::create(&trace, names.clone()).unwrap();
        let line = request(&names, b"0123456789");
        (0..100).for_each(|_| file.add(&line));
        let written = std::fs::metadata(dir.join("t.1.out")).unwrap().len();
        assert!((1024..3000).contains(&written), "{written}");
        assert!(file.lines.capacity() <= 4096);
        drop(file);
        let text = std::fs::read_to_string(dir.join("t.1.out")).unwrap();
        assert_eq!(text.lines().count(), 100);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_trace_that_cannot_be_written_is_given_up() {
        let names = Arc::new(Names::default());
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut file = TraceFile::on("/dev/full".into(), full, 1, names.clone());
        for _ in 0..3 {
            file.add(&request(&names, b"x"));
        }
        assert!(file.given_up && file.lines.is_empty());
    }
}
