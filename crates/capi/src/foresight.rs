//! Reads a trace back in as foresight: what came in one run is expected to come again in the next.
//!
//! `agios_init` ends here when the configuration names a `foresight_trace`. The format is the one that
//! `trace` writes; a backslash that begins none of its escapes stands for itself, since AGIOS's own traces
//! escape nothing. The file is read line by line into memory that does not depend on its length, and only
//! as far as the scheduler has room. Each request is predicted at its time since the first of its file,
//! which is by what the scheduler recognises it. Lines are in the order of time; one that is not counts as
//! arriving together with its file's first.

use crate::names::Names;
use presagio_core::{FileId, IdHashMap, Nanos, Op, Range};
use presagio_sched::Predicted;
use std::fs::{self, File};
use std::io::{self, BufRead, Read};
use std::path::Path;

/// A longer line is none of a trace: paths have 4 KiB, and a request's name should have no more.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// Names that only the trace knows take no more memory than this.
const NAME_BYTES_MAX: usize = 256 << 20;

/// How much of the trace the scheduler was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// All of its requests.
    All,
    /// The first so many: there is no room for more.
    First(u64),
}

/// A line that cannot be understood, or cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{line}: {problem}")]
pub struct TraceError {
    /// Which one, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What can be wrong with a line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The system cannot read it.
    #[error("cannot read it: {0}")]
    Unreadable(#[from] io::Error),
    /// It does not end.
    #[error("longer than {LINE_BYTES_MAX} bytes: this is no trace")]
    TooLong,
    /// It has more or fewer than five fields.
    #[error(
        "{0} fields instead of 5: nanoseconds, file, R or W, offset, length, separated by tabs"
    )]
    Fields(usize),
    /// Neither of the two operations.
    #[error("the operation is \"{0}\": it must be R or W")]
    Operation(String),
    /// A number should stand there.
    #[error("the {field} is \"{text}\": it must be a number")]
    NotANumber {
        /// The field.
        field: &'static str,
        /// What stands there.
        text: String,
    },
    /// Time and place have no sign.
    #[error("the {field} is {text}: it must not be negative")]
    Negative {
        /// The field.
        field: &'static str,
        /// What stands there.
        text: String,
    },
    /// More than the C API could have passed.
    #[error("the {field} is {text}: it must be below 2^63")]
    TooLarge {
        /// The field.
        field: &'static str,
        /// What stands there.
        text: String,
    },
    /// Each is a possible number; together they are not.
    #[error("{length} bytes from offset {offset} end beyond 2^63 - 1")]
    Overflow {
        /// The offset.
        offset: u64,
        /// The length.
        length: u64,
    },
}

/// Opens a trace. Only a file will do: reading a device or a pipe might never end.
pub fn open(path: &Path) -> io::Result<File> {
    // Looked at before it is opened, since opening a pipe waits for who writes into it.
    if !fs::metadata(path)?.is_file() {
        let reason = "it is not a file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    File::open(path)
}

/// Calls `foresee` with every request of a trace, until it returns false: there is no room for more.
pub fn read(
    from: impl BufRead,
    names: &Names,
    foresee: impl FnMut(Predicted) -> bool,
) -> Result<Told, TraceError> {
    read_bounded(from, names, NAME_BYTES_MAX, foresee)
}

fn read_bounded(
    from: impl BufRead,
    names: &Names,
    name_bytes_left: usize,
    mut foresee: impl FnMut(Predicted) -> bool,
) -> Result<Told, TraceError> {
    let mut lines = Lines::new(from);
    let mut files = Files {
        names,
        name_bytes_left,
        first: IdHashMap::default(),
    };
    while let Some(line) = lines.next()? {
        let told = files.predicted(&line).is_some_and(&mut foresee);
        if !told {
            return Ok(Told::First(lines.number - 1));
        }
    }
    Ok(Told::All)
}

/// A line, understood.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    time: Nanos,
    name: Vec<u8>,
    op: Op,
    range: Range,
}

/// The lines of a text, one in memory at a time.
struct Lines<R> {
    from: R,
    text: Vec<u8>,
    /// Which one was read last, from 1.
    number: u64,
}

impl<R: BufRead> Lines<R> {
    fn new(from: R) -> Lines<R> {
        Lines {
            from,
            text: Vec::new(),
            number: 0,
        }
    }

    fn next(&mut self) -> Result<Option<Line>, TraceError> {
        self.number += 1;
        let line = self.read().and_then(|text| text.map(parse).transpose());
        line.map_err(|problem| TraceError {
            line: self.number,
            problem,
        })
    }

    /// The next line without its end. The last one may have none.
    fn read(&mut self) -> Result<Option<&[u8]>, Problem> {
        self.text.clear();
        let mut bounded = self.from.by_ref().take(LINE_BYTES_MAX as u64 + 1);
        if bounded.read_until(b'\n', &mut self.text)? == 0 {
            return Ok(None);
        }
        let text = self.text.strip_suffix(b"\n").unwrap_or(&self.text);
        match text.len() > LINE_BYTES_MAX {
            true => Err(Problem::TooLong),
            false => Ok(Some(text)),
        }
    }
}

fn parse(line: &[u8]) -> Result<Line, Problem> {
    let fields = || line.split(|byte| *byte == b'\t');
    let mut each = fields();
    let [
        Some(time),
        Some(name),
        Some(op),
        Some(offset),
        Some(length),
        None,
    ] = std::array::from_fn(|_| each.next())
    else {
        return Err(Problem::Fields(fields().count()));
    };
    let time = Nanos(number("time", time)?);
    let op = match op {
        b"R" => Op::Read,
        b"W" => Op::Write,
        other => return Err(Problem::Operation(shown(other))),
    };
    let range = range(number("offset", offset)?, number("length", length)?)?;
    Ok(Line {
        time,
        name: unescaped(name),
        op,
        range,
    })
}

fn range(offset: u64, length: u64) -> Result<Range, Problem> {
    let range = Range::new(offset, length);
    range
        .filter(|range| range.end() <= i64::MAX as u64)
        .ok_or(Problem::Overflow { offset, length })
}

/// A number in plain digits, as large as the C API can pass.
fn number(field: &'static str, bytes: &[u8]) -> Result<u64, Problem> {
    let text = || shown(bytes);
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Problem::NotANumber {
            field,
            text: text(),
        });
    }
    if digits.len() < bytes.len() {
        return Err(Problem::Negative {
            field,
            text: text(),
        });
    }
    let number = std::str::from_utf8(digits).ok();
    match number.and_then(|digits| digits.parse::<i64>().ok()) {
        Some(number) => Ok(number.unsigned_abs()),
        None => Err(Problem::TooLarge {
            field,
            text: text(),
        }),
    }
}

/// The start of what stands in a field, fit for a line of text.
fn shown(bytes: &[u8]) -> String {
    const SHOWN_MAX: usize = 40;
    let start = &bytes[..bytes.len().min(SHOWN_MAX)];
    let dots = if start.len() < bytes.len() { "..." } else { "" };
    format!("{}{dots}", start.escape_ascii())
}

/// A file's name as it was before `trace` wrote it.
fn unescaped(mut text: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(text.len());
    while let Some((&first, rest)) = text.split_first() {
        let (byte, length) = match (first, rest.first()) {
            (b'\\', Some(b't')) => (b'\t', 2),
            (b'\\', Some(b'n')) => (b'\n', 2),
            (b'\\', Some(b'\\')) => (b'\\', 2),
            _ => (first, 1),
        };
        name.push(byte);
        text = &text[length..];
    }
    name
}

/// The files of a trace: which numbers they have, and when each came first.
struct Files<'a> {
    names: &'a Names,
    name_bytes_left: usize,
    first: IdHashMap<FileId, Nanos>,
}

impl Files<'_> {
    /// What a line predicts. `None`: there is no room for its file's name.
    fn predicted(&mut self, line: &Line) -> Option<Predicted> {
        let file = self.file(&line.name)?;
        let first = *self.first.entry(file).or_insert(line.time);
        Some(Predicted {
            file,
            op: line.op,
            range: line.range,
            after: line.time.since(first),
        })
    }

    fn file(&mut self, name: &[u8]) -> Option<FileId> {
        if let Some(known) = self.names.find(name) {
            return Some(known);
        }
        self.name_bytes_left = self.name_bytes_left.checked_sub(name.len())?;
        self.names.intern(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace;
    use presagio_core::{Request, RequestId};
    use proptest::prelude::*;

    /// What a text predicts, and with which names.
    fn predictions(text: &[u8]) -> Result<(Vec<Predicted>, Names), TraceError> {
        let (names, mut all) = (Names::default(), Vec::new());
        let told = read(text, &names, |predicted| {
            all.push(predicted);
            true
        })?;
        assert_eq!(told, Told::All);
        Ok((all, names))
    }

    fn error(text: &[u8]) -> String {
        predictions(text).map(drop).unwrap_err().to_string()
    }

    fn written(requests: &[(u64, Vec<u8>, bool, u64, u64)]) -> Vec<u8> {
        let mut lines = Vec::new();
        for (time, name, write, offset, length) in requests {
            let op = if *write { Op::Write } else { Op::Read };
            let range = Range::at(*offset, *length);
            let request = Request {
                arrival: Nanos(*time),
                ..Request::new(RequestId(0), FileId(0), op, range)
            };
            trace::push_line(&mut lines, &request, name);
        }
        lines
    }

    #[test]
    fn requests_are_predicted_at_their_time_since_the_first_of_their_file() {
        let text =
            b"100\t/a\tR\t0\t4096\n130\t/b\tW\t7\t1\n190\t/a\tW\t4096\t512\n150\t/b\tR\t0\t0";
        let (all, names) = predictions(text).unwrap();
        let (a, b) = (names.find(b"/a").unwrap(), names.find(b"/b").unwrap());
        let expect = |file, op, offset, length, after| Predicted {
            file,
            op,
            range: Range::at(offset, length),
            after: Nanos(after),
        };
        let expected = [
            expect(a, Op::Read, 0, 4096, 0),
            expect(b, Op::Write, 7, 1, 0),
            expect(a, Op::Write, 4096, 512, 90),
            expect(b, Op::Read, 0, 0, 20),
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn a_trace_without_lines_predicts_nothing() {
        assert_eq!(predictions(b"").unwrap().0, []);
    }

    #[test]
    fn time_that_goes_back_does_not_go_below_the_first() {
        let (all, _) = predictions(b"9\tf\tR\t0\t1\n3\tf\tR\t1\t1\n").unwrap();
        assert_eq!(all[1].after, Nanos::ZERO);
    }

    #[test]
    fn names_of_agios_keep_backslashes_that_escape_nothing() {
        let (_, names) = predictions(b"0\ta\\b\\tc\\\\t\\\tR\t0\t1\n").unwrap();
        assert_eq!(names.name(FileId(0)), b"a\\b\tc\\t\\");
    }

    #[test]
    fn errors_name_the_line_and_the_reason() {
        let good = "1\tf\tR\t0\t1\n";
        for (line, expected) in [
            ("", "2: 1 fields instead of 5"),
            ("1\tf\tR\t0", "2: 4 fields instead of 5"),
            ("1\tf\tR\t0\t1\t", "2: 6 fields instead of 5"),
            ("1\tf\tR\t0\t1\t2\t3\t4", "2: 8 fields instead of 5"),
            ("\tf\tR\t0\t1", "2: the time is \"\": it must be a number"),
            ("1.5\tf\tR\t0\t1", "2: the time is \"1.5\": it must be"),
            (
                "+1\tf\tR\t0\t1",
                "2: the time is \"+1\": it must be a number",
            ),
            (
                "-1\tf\tR\t0\t1",
                "2: the time is -1: it must not be negative",
            ),
            (
                "1\tf\tR\t-\t1",
                "2: the offset is \"-\": it must be a number",
            ),
            (
                "1\tf\tR\t-4096\t1",
                "2: the offset is -4096: it must not be",
            ),
            ("1\tf\tR\t0\t1\r", "2: the length is \"1\\r\": it must be"),
            (
                "1\tf\tR\t0\t-1",
                "2: the length is -1: it must not be negative",
            ),
            (
                "1\tf\tR\t9223372036854775808\t1",
                "2: the offset is 9223372036854775808: it must be below 2^63",
            ),
            (
                "1\tf\tR\t9223372036854775807\t1",
                "2: 1 bytes from offset 9223372036854775807 end beyond 2^63 - 1",
            ),
            (
                "1\tf\tr\t0\t1",
                "2: the operation is \"r\": it must be R or W",
            ),
            (
                "1\tf\t\t0\t1",
                "2: the operation is \"\": it must be R or W",
            ),
        ] {
            let got = error(format!("{good}{line}\n{good}").as_bytes());
            assert!(got.starts_with(expected), "{line:?} gave {got:?}");
        }
    }

    #[test]
    fn the_largest_request_of_the_c_api_is_read() {
        let max = i64::MAX;
        let text = format!("{max}\tf\tW\t0\t{max}\n{max}\tf\tW\t{max}\t0\n");
        assert_eq!(predictions(text.as_bytes()).unwrap().0.len(), 2);
    }

    #[test]
    fn a_line_may_be_long_but_not_longer_than_the_limit() {
        let name = "x".repeat(LINE_BYTES_MAX - "1\t\tR\t0\t1".len());
        assert!(predictions(format!("1\t{name}\tR\t0\t1\n").as_bytes()).is_ok());
        assert!(predictions(format!("1\t{name}\tR\t0\t1").as_bytes()).is_ok());
        let long = format!("1\tf\tR\t0\t1\n1\t{name}\tR\t0\t11\n");
        assert!(error(long.as_bytes()).starts_with("2: longer than 65536 bytes"));
    }

    #[test]
    fn a_text_without_end_is_given_up_at_the_limit() {
        let endless = io::BufReader::new(io::repeat(b'7'));
        let mut lines = Lines::new(endless);
        assert!(matches!(
            lines.next().unwrap_err().problem,
            Problem::TooLong
        ));
        assert!(lines.text.capacity() <= 4 * LINE_BYTES_MAX);
    }

    #[test]
    fn what_cannot_be_read_is_an_error_of_its_line() {
        let broken = io::BufReader::new(File::open("/").unwrap());
        let names = Names::default();
        let error = read(broken, &names, |_| true).unwrap_err().to_string();
        assert!(error.starts_with("1: cannot read it"), "{error}");
    }

    #[test]
    fn only_files_are_opened() {
        for path in ["/", "/dev/zero"] {
            let error = open(Path::new(path)).unwrap_err().to_string();
            assert_eq!(error, "it is not a file");
        }
        let missing = open(Path::new("/no/such/trace")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn reading_ends_where_there_is_no_room_for_more() {
        let text = b"1\tf\tR\t0\t1\n2\tf\tR\t1\t1\n3\tf\tR\t2\t1\nnever looked at";
        let (names, mut room) = (Names::default(), 2);
        let told = read(&text[..], &names, |_| {
            room -= 1;
            room >= 0
        });
        assert_eq!(told.unwrap(), Told::First(2));
    }

    #[test]
    fn names_take_bounded_memory() {
        let text = b"1\tabcd\tR\t0\t1\n1\tabcd\tR\t1\t1\n1\tef\tR\t0\t1\n1\tghi\tR\t0\t1\n";
        let names = Names::default();
        let told = read_bounded(&text[..], &names, 8, |_| true);
        assert_eq!(told.unwrap(), Told::First(3));
        assert_eq!(names.find(b"ghi"), None);
    }

    type Written = (u64, Vec<u8>, bool, u64, u64);

    fn requests() -> impl Strategy<Value = Vec<Written>> {
        let name = proptest::collection::vec(
            prop_oneof![
                Just(b'\\'),
                Just(b'\t'),
                Just(b'\n'),
                Just(b't'),
                any::<u8>()
            ],
            0..6,
        );
        let half = 0..=(i64::MAX as u64) / 2;
        let request = (half.clone(), name, any::<bool>(), half.clone(), half);
        proptest::collection::vec(request, 0..20)
    }

    /// Whatever the text, every line before the wrong one was told, and the wrong one exists.
    fn gives_a_result(text: &[u8]) -> Result<(), TestCaseError> {
        let (names, mut told) = (Names::default(), 0);
        let result = read(text, &names, |predicted| {
            told += 1;
            predicted.range.end() <= i64::MAX as u64
        });
        let ended = text.split_inclusive(|byte| *byte == b'\n').count() as u64;
        match result {
            Ok(all) => prop_assert_eq!((all, told), (Told::All, ended)),
            Err(error) => {
                prop_assert_eq!(error.line, told + 1);
                prop_assert!(error.line <= ended);
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn what_a_trace_writes_is_read_back(requests in requests()) {
            let (all, names) = predictions(&written(&requests)).unwrap();
            prop_assert_eq!(all.len(), requests.len());
            for (predicted, (_, name, write, offset, length)) in all.iter().zip(&requests) {
                prop_assert_eq!(names.name(predicted.file), &name[..]);
                prop_assert_eq!(predicted.op == Op::Write, *write);
                prop_assert_eq!(predicted.range, Range::at(*offset, *length));
            }
        }

        #[test]
        fn any_bytes_give_a_result(text in proptest::collection::vec(any::<u8>(), 0..400)) {
            gives_a_result(&text)?;
        }

        #[test]
        fn any_mixture_of_fields_gives_a_result(text in "([0-9]{1,20}|-1|[RW]|\\\\|f|\t|\n){0,80}") {
            gives_a_result(text.as_bytes())?;
        }

        #[test]
        fn damaged_traces_give_a_result(
            requests in requests(),
            damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3u8), 1..6)
        ) {
            let mut text = written(&requests);
            for (at, byte, how) in damage {
                let at = at.index(text.len() + 1);
                match how {
                    0 => text.insert(at, byte),
                    1 => text.truncate(at),
                    _ => if let Some(old) = text.get_mut(at) { *old = byte },
                }
            }
            gives_a_result(&text)?;
        }
    }
}
