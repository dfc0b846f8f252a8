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

/// The decisions that are wanted, oldest first. A log that is written meanwhile may be read.
pub fn read(log: &Path, wanted: &Wanted, mut each: impl FnMut(Value)) -> io::Result<()> {
    let mut last = VecDeque::new();
    let mut found = false;
    for number in (0..FILES).rev() {
        let file = match File::open(numbered(log, number)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        found = true;
        for line in BufReader::new(file).split(b'\n') {
            // What is no JSON was cut off.
            let Ok(entry) = serde_json::from_slice::<Value>(&line?) else {
                continue;
            };
            if !wanted.has(&entry) {
                continue;
            }
            match wanted.last {
                None => each(entry),
                Some(count) => {
                    last.push_back(entry);
                    if last.len() > count {
                        last.pop_front();
                    }
                }
            }
        }
    }
    last.into_iter().for_each(each);
    match found {
        true => Ok(()),
        false => Err(io::ErrorKind::NotFound.into()),
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
