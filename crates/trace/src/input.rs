//! Where readers get their bytes from: a window over a binary stream, and the lines of a text, each with its
//! position and in bounded memory.

use crate::{Place, Reason, TraceError};
use memchr::memchr;
use std::fs;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};

/// A longer line is none of a trace.
pub(crate) const LINE_BYTES_MAX: usize = 1 << 20;

/// The size of the file at `path`, unless it is none.
pub(crate) fn size_of(path: &Path) -> Option<u64> {
    let metadata = fs::metadata(path).ok()?;
    metadata.is_file().then_some(metadata.len())
}

/// The next bytes of a stream. As many stay in memory as were asked for, and a little more.
#[derive(Debug)]
pub(crate) struct Window<R> {
    from: R,
    path: PathBuf,
    total: Option<u64>,
    bytes: Vec<u8>,
    /// The bytes before this index are consumed.
    begin: usize,
    position: u64,
}

const READ_BYTES: usize = 128 << 10;

impl<R: Read> Window<R> {
    pub fn new(from: R, path: &Path) -> Window<R> {
        Window {
            from,
            path: path.to_owned(),
            total: size_of(path),
            bytes: Vec::new(),
            begin: 0,
            position: 0,
        }
    }

    /// The next bytes, at least `wanted` unless the stream ends before.
    pub fn fill(&mut self, wanted: usize) -> Result<&[u8], TraceError> {
        while self.bytes.len() - self.begin < wanted {
            self.bytes.drain(..self.begin);
            self.begin = 0;
            match self.read(wanted) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => return Err(self.error(self.position, error)),
            }
        }
        Ok(&self.bytes[self.begin..])
    }

    fn read(&mut self, wanted: usize) -> io::Result<usize> {
        let lacking = wanted.saturating_sub(self.bytes.len());
        let mut bounded = self.from.by_ref().take(lacking.max(READ_BYTES) as u64);
        bounded.read_to_end(&mut self.bytes)
    }

    /// Moves on; no further than what [`Window::fill`] returned.
    pub fn consume(&mut self, count: usize) {
        let count = count.min(self.bytes.len() - self.begin);
        self.begin += count;
        self.position += count as u64;
    }

    /// How many bytes were consumed.
    pub fn position(&self) -> u64 {
        self.position
    }

    pub fn total(&self) -> Option<u64> {
        self.total
    }

    pub fn error(&self, byte: u64, reason: impl Into<Reason>) -> TraceError {
        TraceError::new(&self.path, Place::Byte(byte), reason)
    }
}

/// The lines of a text.
pub(crate) struct Lines {
    from: Box<dyn BufRead + Send>,
    path: PathBuf,
    total: Option<u64>,
    /// What the last line took of the buffer, if it was handed out of that.
    taken: usize,
    /// A line that the buffer has only in pieces.
    pieces: Vec<u8>,
    /// The text ended without ending its last line.
    is_cut: bool,
    number: u64,
    position: u64,
}

impl Lines {
    pub fn new(from: Box<dyn BufRead + Send>, path: &Path) -> Lines {
        Lines {
            from,
            path: path.to_owned(),
            total: size_of(path),
            taken: 0,
            pieces: Vec::new(),
            is_cut: false,
            number: 0,
            position: 0,
        }
    }

    /// The next line without its end, which may be missing on the last one.
    pub fn next(&mut self) -> Result<Option<&[u8]>, TraceError> {
        self.from.consume(std::mem::take(&mut self.taken));
        self.number += 1;
        match self.find_end() {
            Err(error) => Err(self.error(error)),
            Ok(Some(end)) => self.take_whole(end),
            Ok(None) => self.take_pieces(),
        }
    }

    /// Where the line ends in the buffer, if it does.
    fn find_end(&mut self) -> io::Result<Option<usize>> {
        loop {
            match self.from.fill_buf() {
                Ok(buffer) => return Ok(memchr(b'\n', buffer)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn take_whole(&mut self, end: usize) -> Result<Option<&[u8]>, TraceError> {
        if end > LINE_BYTES_MAX {
            return Err(self.too_long());
        }
        self.taken = end + 1;
        self.position += self.taken as u64;
        let (path, number) = (&self.path, self.number);
        match self.from.fill_buf() {
            Ok(buffer) => Ok(Some(&buffer[..end])),
            Err(error) => Err(TraceError::new(path, Place::Line(number), error)),
        }
    }

    fn take_pieces(&mut self) -> Result<Option<&[u8]>, TraceError> {
        self.pieces.clear();
        let mut bounded = self.from.by_ref().take(LINE_BYTES_MAX as u64 + 1);
        match bounded.read_until(b'\n', &mut self.pieces) {
            Err(error) => return Err(self.error(error)),
            Ok(0) => {
                self.number -= 1;
                return Ok(None);
            }
            Ok(bytes) => self.position += bytes as u64,
        }
        if self.pieces.last() == Some(&b'\n') {
            self.pieces.pop();
        } else if self.pieces.len() > LINE_BYTES_MAX {
            return Err(self.too_long());
        } else {
            self.is_cut = true;
        }
        Ok(Some(&self.pieces))
    }

    fn too_long(&self) -> TraceError {
        self.error(format!(
            "longer than {LINE_BYTES_MAX} bytes: this is no trace"
        ))
    }

    /// An error in the line that was read last, or is being read.
    pub fn error(&self, reason: impl Into<Reason>) -> TraceError {
        TraceError::new(&self.path, Place::Line(self.number), reason)
    }

    /// Whether the line that was read last has no end.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// How many bytes were read, and how many there are.
    pub fn progress(&self) -> (u64, Option<u64>) {
        (self.position, self.total)
    }
}

/// A decimal number in plain digits.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 20 {
        return None;
    }
    // Nineteen digits cannot overflow.
    let (head, tail) = text.split_at(text.len().min(19));
    let mut number = 0u64;
    for byte in head {
        number = number * 10 + u64::from(digit(*byte)?);
    }
    match tail {
        [] => Some(number),
        [last, ..] => number.checked_mul(10)?.checked_add(digit(*last)?.into()),
    }
}

fn digit(byte: u8) -> Option<u8> {
    let digit = byte.wrapping_sub(b'0');
    (digit <= 9).then_some(digit)
}

/// A piece of input as it is shown in a message.
pub(crate) fn shown(text: &[u8]) -> String {
    const SHOWN_MAX: usize = 40;
    let more = if text.len() > SHOWN_MAX { "…" } else { "" };
    let text = &text[..text.len().min(SHOWN_MAX)];
    format!("\"{}{more}\"", text.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufReader, Cursor};

    fn lines(text: &[u8], capacity: usize) -> Lines {
        let from = BufReader::with_capacity(capacity, Cursor::new(text.to_vec()));
        Lines::new(Box::new(from), Path::new("text"))
    }

    #[test]
    fn lines_do_not_depend_on_how_they_fall_into_the_buffer() {
        let text = b"one\n\ntwenty one\nlast";
        for capacity in 1..30 {
            let mut lines = lines(text, capacity);
            let mut all = Vec::new();
            while let Some(line) = lines.next().unwrap() {
                all.push(line.to_vec());
            }
            assert_eq!(all, [&b"one"[..], b"", b"twenty one", b"last"]);
            assert_eq!(lines.progress().0, text.len() as u64);
        }
    }

    #[test]
    fn a_line_without_end_is_refused_before_it_fills_the_memory() {
        for capacity in [100, 4 << 20] {
            let mut lines = lines(&vec![b'x'; 3 << 20], capacity);
            let error = lines.next().unwrap_err();
            assert!(
                error.to_string().starts_with("text: line 1: longer"),
                "{error}"
            );
            assert!(lines.pieces.capacity() <= 4 << 20);
        }
        let mut long = vec![b'x'; LINE_BYTES_MAX];
        long.push(b'\n');
        assert!(lines(&long, 100).next().is_ok());
        assert!(lines(&long, 4 << 20).next().is_ok());
    }

    #[test]
    fn numbers_are_plain_digits_of_at_most_64_bits() {
        let max = u64::MAX.to_string();
        assert_eq!(number(max.as_bytes()), Some(u64::MAX));
        assert_eq!(number(b"0042"), Some(42));
        for bad in [
            &b""[..],
            b"-1",
            b"+1",
            b"1 ",
            b"18446744073709551616",
            b"x",
            &[b'9'; 21],
        ] {
            assert_eq!(number(bad), None, "{}", shown(bad));
        }
    }

    #[test]
    fn a_window_gives_what_was_asked_for_and_forgets_what_was_consumed() {
        let bytes: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
        let mut window = Window::new(&bytes[..], Path::new("bytes"));
        for at in 0..bytes.len() / 1000 {
            assert_eq!(
                window.fill(1000).unwrap()[..1000],
                bytes[at * 1000..][..1000]
            );
            window.consume(1000);
        }
        assert!(window.bytes.capacity() < 512 << 10);
        assert_eq!(window.fill(5000).unwrap().len(), bytes.len() % 1000);
    }
}
