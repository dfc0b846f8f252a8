//! Why was that decided? Every decision is a line of JSON, for people and for tools, in files that do not grow for ever.
//!
//! The newest lines are in `decisions.jsonl`. When it is full it becomes `decisions.jsonl.1`, what was that `.2`, and the
//! oldest goes. Lines are written whole, with one call for all decisions of a moment; a line that was cut off by a crash is
//! the last of its file, and readers leave it out.
//!
//! | field | what |
//! |---|---|
//! | `at` | when: milliseconds since 1970 |
//! | `node` | for which I/O node |
//! | `context` | what it was taken for |
//! | `evidence` | what it announced |
//! | `candidates` | the arms with what is known of each |
//! | `own`, `chosen` | what its own bandit said, and what it was told |
//! | `why` | in words |

use serde_json::Value;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

/// The newest lines of a council.
const NAME: &str = "decisions.jsonl";

/// Files that are kept, the newest included.
const FILES: u64 = 4;

/// Lines that wait to be written together.
const WAITING_MAX: usize = 64 << 10;

/// Where decisions are explained. See the module's header.
#[derive(Debug)]
pub struct Log {
    /// The newest file.
    path: PathBuf,
    file: Option<File>,
    written: u64,
    /// Bytes of one file.
    file_max: u64,
    waiting: Vec<u8>,
    /// Lines that could not be written.
    lost: u64,
}

impl Log {
    /// A log whose newest file is `path`, of about `bytes_max` in all.
    pub fn open(path: &Path, bytes_max: u64) -> io::Result<Log> {
        let mut log = Log {
            path: path.to_owned(),
            file: None,
            written: 0,
            file_max: bytes_max / FILES,
            waiting: Vec::new(),
            lost: 0,
        };
        log.reopen()?;
        Ok(log)
    }

    fn reopen(&mut self) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(&self.path)?;
        self.written = file.metadata()?.len();
        if self.written > 0 && !ends_a_line(&mut file)? {
            // What was cut off by a crash stays a line of its own.
            file.write_all(b"\n")?;
            self.written += 1;
        }
        self.file = Some(file);
        Ok(())
    }

    /// One more decision. It is written with the next [`Log::flush`].
    pub fn add(&mut self, entry: &Value) {
        // Writing to memory cannot fail, and values of JSON can be written.
        let _ = serde_json::to_writer(&mut self.waiting, entry);
        self.waiting.push(b'\n');
        if self.waiting.len() > WAITING_MAX {
            self.flush();
        }
    }

    /// Writes what waits. A disk that is full costs explanations, not decisions.
    pub fn flush(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        if let Err(error) = self.write() {
            let lines = self.waiting.iter().filter(|byte| **byte == b'\n').count() as u64;
            if self.lost == 0 {
                tracing::warn!(
                    "decisions cannot be explained in {}: {error}",
                    self.path.display()
                );
            }
            self.lost += lines;
            self.file = None;
        }
        self.waiting.clear();
    }

    fn write(&mut self) -> io::Result<()> {
        if self.file.is_none() {
            self.reopen()?;
        }
        if self.written > 0 && self.written + self.waiting.len() as u64 > self.file_max {
            self.rotate()?;
        }
        if let Some(file) = &mut self.file {
            file.write_all(&self.waiting)?;
            self.written += self.waiting.len() as u64;
        }
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        for number in (1..FILES).rev() {
            let from = numbered(&self.path, number - 1);
            match std::fs::rename(from, numbered(&self.path, number)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        self.reopen()
    }

    /// Lines that could not be written.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.flush();
    }
}

fn numbered(path: &Path, number: u64) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    if number > 0 {
        name.push(format!(".{number}"));
    }
    name.into()
}

/// Where the log is that belongs to a council's directory, or to the store of a node.
pub fn beside(store: &Path) -> PathBuf {
    match store.is_dir() {
        true => store.join(NAME),
        false => {
            let mut name = store.as_os_str().to_owned();
            name.push(format!(".{NAME}"));
            name.into()
        }
    }
}

fn ends_a_line(file: &mut File) -> io::Result<bool> {
    use std::io::{Read, Seek, SeekFrom};
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// Which decisions somebody wants to see.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Those for this node.
    pub node: Option<String>,
    /// Those in contexts with this in them.
    pub context: Option<String>,
    /// Those since then: milliseconds since 1970.
    pub since: u64,
    /// The last so many.
    pub last: Option<usize>,
}

impl Wanted {
    /// The decision of a line, if it is wanted. What is no JSON was cut off.
    fn found_in(&self, line: &[u8]) -> Option<Value> {
        let entry = serde_json::from_slice(line).ok()?;
        self.has(&entry).then_some(entry)
    }

    /// Whether a decision was made before those that are wanted.
    fn is_past(&self, entry: &Value) -> bool {
        entry["at"].as_u64().is_some_and(|at| at < self.since)
    }

    fn has(&self, entry: &Value) -> bool {
        let text = |key: &str| entry[key].as_str().unwrap_or_default();
        let at = entry["at"].as_u64().unwrap_or(0);
        at >= self.since
            && self.node.as_deref().is_none_or(|node| text("node") == node)
            && self
                .context
                .as_deref()
                .is_none_or(|part| text("context").contains(part))
    }
}

/// The decisions that are wanted, oldest first. A log that is written meanwhile may be read. Of the last so many no more is
/// read than it takes to find them.
pub fn read(log: &Path, wanted: &Wanted, mut each: impl FnMut(Value)) -> io::Result<()> {
    let files = files(log)?;
    if let Some(count) = wanted.last {
        newest(files, wanted, count)?.into_iter().for_each(each);
        return Ok(());
    }
    for file in files.into_iter().rev() {
        for line in BufReader::new(file).split(b'\n') {
            if let Some(entry) = wanted.found_in(&line?) {
                each(entry);
            }
        }
    }
    Ok(())
}

/// When the oldest decision was made that the log still has: milliseconds since 1970. None where it has none.
pub fn reaches_back_to(log: &Path) -> io::Result<Option<u64>> {
    let all = Wanted::default();
    for file in files(log)?.into_iter().rev() {
        for line in BufReader::new(file).split(b'\n') {
            if let Some(entry) = all.found_in(&line?) {
                return Ok(entry["at"].as_u64());
            }
        }
    }
    Ok(None)
}

/// The files of a log, the newest first; at least one.
fn files(log: &Path) -> io::Result<Vec<File>> {
    let mut files: Vec<File> = Vec::new();
    for number in 0..FILES {
        match File::open(numbered(log, number)) {
            // One that has got its next name meanwhile comes again under that.
            Ok(file) if is_same(files.last(), &file)? => {}
            Ok(file) => files.push(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    match files.is_empty() {
        true => Err(io::ErrorKind::NotFound.into()),
        false => Ok(files),
    }
}

fn is_same(last: Option<&File>, file: &File) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let identity = |file: &File| file.metadata().map(|it| (it.dev(), it.ino()));
    last.map_or(Ok(false), |last| Ok(identity(last)? == identity(file)?))
}

/// The last so many that are wanted, oldest first. Lines are in the order of time: before one that is too old there is nothing.
fn newest(files: Vec<File>, wanted: &Wanted, count: usize) -> io::Result<VecDeque<Value>> {
    let mut found = VecDeque::new();
    for file in files {
        let mut lines = Backwards::new(file)?;
        while found.len() < count {
            let Some(line) = lines.next()? else { break };
            let Ok(entry) = serde_json::from_slice(&line) else {
                continue; // It was cut off.
            };
            if wanted.is_past(&entry) {
                return Ok(found);
            }
            if wanted.has(&entry) {
                found.push_front(entry);
            }
        }
    }
    Ok(found)
}

/// The lines of a file, the last one first.
struct Backwards {
    file: File,
    /// Bytes before those that were read.
    left: u64,
    /// What was read and is no whole line yet, or was not asked for.
    read: Vec<u8>,
}

/// Bytes that are read at a time, backwards.
const CHUNK: u64 = 64 << 10;

impl Backwards {
    fn new(file: File) -> io::Result<Backwards> {
        let left = file.metadata()?.len();
        let read = Vec::new();
        Ok(Backwards { file, left, read })
    }

    /// The line before; none at the beginning of the file.
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.read.iter().rposition(|byte| *byte == b'\n') {
                let line = self.read.split_off(end + 1);
                self.read.truncate(end);
                return Ok(Some(line));
            }
            if self.left == 0 {
                let first = std::mem::take(&mut self.read);
                return Ok((!first.is_empty()).then_some(first));
            }
            self.read_more()?;
        }
    }

    fn read_more(&mut self) -> io::Result<()> {
        use std::io::{Read, Seek, SeekFrom};
        let count = self.left.min(CHUNK);
        self.left -= count;
        self.file.seek(SeekFrom::Start(self.left))?;
        let mut more = vec![0; count as usize];
        self.file.read_exact(&mut more)?;
        more.append(&mut self.read);
        self.read = more;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn numbers(log: &Path, wanted: &Wanted) -> Vec<u64> {
        let mut all = Vec::new();
        read(log, wanted, |entry| all.push(entry["at"].as_u64().unwrap())).unwrap();
        all
    }

    fn entry(at: u64) -> Value {
        let node = if at.is_multiple_of(2) { "even" } else { "odd" };
        json!({ "at": at, "node": node, "context": format!("reads {}", at % 3) })
    }

    #[test]
    fn decisions_are_found_by_node_context_and_time() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::open(&dir.path().join(NAME), 1 << 20).unwrap();
        (0..10).for_each(|at| log.add(&entry(at)));
        log.flush();
        let all = Wanted::default();
        assert_eq!(
            numbers(&dir.path().join(NAME), &all),
            (0..10).collect::<Vec<_>>()
        );
        let odd = Wanted {
            node: Some("odd".to_owned()),
            since: 4,
            ..all.clone()
        };
        assert_eq!(numbers(&dir.path().join(NAME), &odd), [5, 7, 9]);
        let one = Wanted {
            context: Some("reads 1".to_owned()),
            last: Some(2),
            ..all
        };
        assert_eq!(numbers(&dir.path().join(NAME), &one), [4, 7]);
    }

    #[test]
    fn the_log_is_bounded_and_keeps_the_newest() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::open(&dir.path().join(NAME), 8000).unwrap();
        for at in 0..2000 {
            log.add(&entry(at));
            log.flush();
        }
        let size = |number| {
            std::fs::metadata(numbered(&dir.path().join(NAME), number)).map_or(0, |it| it.len())
        };
        let total: u64 = (0..FILES + 3).map(size).sum();
        assert!((4000..=8000).contains(&total), "{total}");
        let kept = numbers(&dir.path().join(NAME), &Wanted::default());
        assert_eq!(kept.last(), Some(&1999));
        assert!(kept.windows(2).all(|two| two[1] == two[0] + 1));
    }

    #[test]
    fn the_last_ones_are_the_same_wherever_files_and_chunks_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        let mut log = Log::open(&path, 1 << 20).unwrap();
        // Three files and a part of one, each of some chunks.
        for at in 0..3000 {
            let filling = "x".repeat(200 + at as usize % 97);
            let mut entry = entry(at);
            entry["filling"] = filling.into();
            log.add(&entry);
        }
        log.flush();
        for context in [None, Some("reads 1".to_owned())] {
            let all = Wanted {
                context,
                ..Wanted::default()
            };
            let whole = numbers(&path, &all);
            for count in [0, 1, 10, 700, 2000, whole.len(), whole.len() + 1] {
                let last = Wanted {
                    last: Some(count),
                    ..all.clone()
                };
                let expected = &whole[whole.len().saturating_sub(count)..];
                assert_eq!(numbers(&path, &last), expected, "the last {count}");
            }
        }
    }

    #[test]
    fn the_last_ones_are_found_without_reading_what_is_older() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        let mut log = Log::open(&path, 1 << 30).unwrap();
        for at in 0..5000 {
            log.add(&entry(at));
        }
        log.flush();
        let mut lines = Backwards::new(File::open(&path).unwrap()).unwrap();
        for at in (4995..5000).rev() {
            let line = loop {
                let line = lines.next().unwrap().unwrap();
                if !line.is_empty() {
                    break line;
                }
            };
            assert_eq!(serde_json::from_slice::<Value>(&line).unwrap(), entry(at));
        }
        assert!(lines.left > 0, "the beginning is not read");
    }

    #[test]
    fn of_the_last_ones_since_a_time_nothing_older_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        let mut log = Log::open(&path, 1 << 20).unwrap();
        // Somebody has put the clock back: what is before the older line is not looked at.
        for at in [100, 101, 50, 102, 103] {
            log.add(&entry(at));
        }
        log.flush();
        let wanted = Wanted {
            since: 60,
            last: Some(10),
            ..Wanted::default()
        };
        assert_eq!(numbers(&path, &wanted), [102, 103]);
    }

    #[test]
    fn a_log_says_how_far_back_it_reaches() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        assert!(reaches_back_to(&path).is_err(), "there is none");
        let mut log = Log::open(&path, 8000).unwrap();
        assert_eq!(reaches_back_to(&path).unwrap(), None);
        for at in 7..2000 {
            log.add(&entry(at));
            log.flush();
        }
        let kept = numbers(&path, &Wanted::default());
        assert_eq!(reaches_back_to(&path).unwrap(), kept.first().copied());
    }

    #[test]
    fn a_line_that_was_cut_off_is_left_out_and_the_next_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::open(&dir.path().join(NAME), 1 << 20).unwrap();
        log.add(&entry(1));
        drop(log);
        let mut file = OpenOptions::new()
            .append(true)
            .open(dir.path().join(NAME))
            .unwrap();
        file.write_all(br#"{"at": 2, "no"#).unwrap();
        let mut log = Log::open(&dir.path().join(NAME), 1 << 20).unwrap();
        log.add(&entry(3));
        drop(log);
        assert_eq!(numbers(&dir.path().join(NAME), &Wanted::default()), [1, 3]);
    }

    #[test]
    fn a_disk_that_takes_nothing_loses_lines_and_says_how_many() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::open(&dir.path().join(NAME), 1 << 20).unwrap();
        log.file = Some(OpenOptions::new().write(true).open("/dev/full").unwrap());
        log.add(&entry(1));
        log.add(&entry(2));
        log.flush();
        assert_eq!(log.lost(), 2);
        log.add(&entry(3));
        log.flush();
        assert_eq!(numbers(&dir.path().join(NAME), &Wanted::default()), [3]);
    }
}
