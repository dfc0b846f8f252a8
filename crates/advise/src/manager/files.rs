//! The files of all programs: which they are, who has them open, and what was done to them.

use super::foretell;
use super::gain::Gain;
use super::summary::Totals;
use crate::blocks::FileKey;
use crate::plan::{FileNumber, Holder, OpenNumber};
use presagio_arena::{FileEntry, Operation};
use presagio_core::{Event, IdHashMap};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Past so many, those that are closed are summed up and forgotten, the small ones first.
const FILES_MAX: usize = 16_384;
/// What a small one is.
const SMALL: u64 = 1 << 20;
/// Files among which one in the same directory is looked for: the file before is the last one, or one of few processes that take
/// turns.
const LATELY: usize = 256;

/// An open file of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Open {
    /// Its entry in the arena.
    pub index: u32,
    pub generation: u32,
    pub number: OpenNumber,
    /// The process, as the manager counts them.
    pub process: u32,
    /// Where it can be found to be opened again.
    pub pid: u32,
    pub descriptor: i32,
    /// Whether the strategy was told.
    pub told: bool,
    /// Looks at its device that were begun by way of it.
    pub looks: u8,
    pub writes: bool,
    /// Whether what goes through it passes the page cache by (`O_DIRECT`).
    pub direct: bool,
}

impl Open {
    pub fn holder(&self) -> Holder {
        Holder {
            process: self.process,
            open: self.number,
        }
    }
}

/// A file.
#[derive(Debug)]
pub(super) struct File {
    pub key: FileKey,
    pub path: Arc<[u8]>,
    pub size: u64,
    pub opens: Vec<Open>,
    pub totals: Totals,
    pub gain: Gain,
    /// Whether the trace has its name.
    pub traced: bool,
    /// The prefix that it lies below, if an I/O node serves it.
    pub forwarded: Option<usize>,
    /// Whether it was read or written past the page cache, and nothing was done about that.
    pub passed_by: bool,
}

impl File {
    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.path))
    }
}

/// See the module's header.
#[derive(Debug, Default)]
pub(super) struct Files {
    files: BTreeMap<FileNumber, File>,
    by_key: IdHashMap<(u64, u64), FileNumber>,
    /// By entry and generation in the arena. Most operations are on the file of the one before.
    by_entry: IdHashMap<(u32, u32), FileNumber>,
    /// The entries that a process has open: processes come and go by the thousand, and most files are not theirs.
    by_process: IdHashMap<u32, BTreeSet<(u32, u32)>>,
    next: u32,
    next_open: u64,
    /// What lies below these, I/O nodes serve.
    pub prefixes: Vec<Vec<u8>>,
    /// How many were forgotten, and what was done to them.
    pub forgotten: u64,
    pub forgotten_gain: Gain,
}

impl Files {
    /// None yet; what lies below these prefixes, I/O nodes serve.
    pub fn new(prefixes: Vec<Vec<u8>>) -> Files {
        Files {
            prefixes,
            ..Files::default()
        }
    }

    /// The file of an operation, which `entry` describes if it is new here.
    pub fn find(
        &mut self,
        operation: &Operation,
        process: u32,
        entry: impl FnOnce() -> Option<FileEntry>,
    ) -> FileNumber {
        let place = (operation.file, operation.generation);
        if let Some(number) = self.by_entry.get(&place) {
            return *number;
        }
        let Some(entry) = entry() else {
            return self.nameless();
        };
        let number = self.identify(&entry);
        self.by_entry.insert(place, number);
        let Some(file) = self.files.get_mut(&number) else {
            return number;
        };
        self.by_process.entry(process).or_default().insert(place);
        file.size = file.size.max(entry.size);
        file.opens.push(Open {
            index: place.0,
            generation: place.1,
            number: OpenNumber(self.next_open),
            process,
            pid: entry.pid,
            descriptor: entry.descriptor,
            told: false,
            looks: 0,
            writes: entry.flags & libc::O_ACCMODE != libc::O_RDONLY,
            direct: entry.flags & libc::O_DIRECT != 0,
        });
        self.next_open += 1;
        number
    }

    /// A file whose entry was lost: all of these are one.
    fn nameless(&mut self) -> FileNumber {
        let entry = FileEntry {
            pid: 0,
            descriptor: -1,
            device: 0,
            inode: 0,
            size: 0,
            flags: 0,
            inherited: false,
            path: b"(unknown)".to_vec(),
            cut: false,
        };
        self.identify(&entry)
    }

    fn identify(&mut self, entry: &FileEntry) -> FileNumber {
        self.known_or_new((entry.device, entry.inode), &entry.path, entry.size)
    }

    /// The number of a file. One that has another name by now, and that nobody has open, is another file with the
    /// inode of a deleted one.
    fn known_or_new(&mut self, key: (u64, u64), path: &[u8], size: u64) -> FileNumber {
        if let Some(number) = self.by_key.get(&key)
            && let Some(known) = self.files.get(number)
            && (!known.opens.is_empty() || *known.path == *path)
        {
            return *number;
        }
        self.add(key, path.into(), size)
    }

    fn add(&mut self, key: (u64, u64), path: Arc<[u8]>, size: u64) -> FileNumber {
        self.make_room();
        let number = FileNumber(self.next);
        self.next += 1;
        self.by_key.insert(key, number);
        let below = |prefix: &Vec<u8>| foretell::below(&path, prefix).is_some();
        let file = File {
            key: FileKey {
                device: key.0,
                inode: key.1,
            },
            forwarded: self.prefixes.iter().position(below),
            path,
            size,
            opens: Vec::new(),
            totals: Totals::default(),
            gain: Gain::default(),
            traced: false,
            passed_by: false,
        };
        self.files.insert(number, file);
        number
    }

    /// A file that was opened ahead of the program.
    pub fn ahead(&mut self, key: FileKey, path: &Path, size: u64) -> FileNumber {
        self.known_or_new((key.device, key.inode), path.as_os_str().as_bytes(), size)
    }

    /// The device of another file in the same directory, if one was used lately.
    pub fn device_beside(&self, path: &Path) -> Option<u64> {
        let directory = path.parent()?;
        let mut latest = self.files.values().rev().take(LATELY);
        let beside = latest.find(|file| file.path().parent() == Some(directory));
        beside.map(|file| file.key.device)
    }

    pub fn get(&self, number: FileNumber) -> Option<&File> {
        self.files.get(&number)
    }

    pub fn get_mut(&mut self, number: FileNumber) -> Option<&mut File> {
        self.files.get_mut(&number)
    }

    /// Counts an operation.
    pub fn count(&mut self, number: FileNumber, event: &Event) {
        if let Some(file) = self.files.get_mut(&number) {
            let (action, time, result) = (event.action, event.duration.0, event.result);
            file.totals.count(action, time, result);
            if event.action.is_transfer() {
                file.size = file.size.max(event.offset.saturating_add(event.moved()));
            }
        }
    }

    /// Counts many at once, which moved bytes up to `end`.
    pub fn count_many(&mut self, number: FileNumber, totals: &Totals, end: u64) {
        if let Some(file) = self.files.get_mut(&number) {
            file.totals.add(totals);
            file.size = file.size.max(end);
        }
    }

    /// An entry was closed; what it was.
    pub fn close(&mut self, index: u32, generation: u32) -> Option<(FileNumber, Open)> {
        let number = self.by_entry.remove(&(index, generation))?;
        let file = self.files.get_mut(&number)?;
        let at = file
            .opens
            .iter()
            .position(|o| (o.index, o.generation) == (index, generation))?;
        let open = file.opens.swap_remove(at);
        if let Some(entries) = self.by_process.get_mut(&open.process) {
            entries.remove(&(index, generation));
            if entries.is_empty() {
                self.by_process.remove(&open.process);
            }
        }
        Some((number, open))
    }

    /// An open file that is open still.
    pub fn open_mut(&mut self, number: FileNumber, open: OpenNumber) -> Option<&mut Open> {
        let file = self.files.get_mut(&number)?;
        file.opens.iter_mut().find(|o| o.number == open)
    }

    /// What a process that is gone had open.
    pub fn opened_by(&self, process: u32) -> Vec<(u32, u32)> {
        let entries = self.by_process.get(&process);
        entries.into_iter().flatten().copied().collect()
    }

    /// All that are known still, by number.
    pub fn iter(&self) -> impl Iterator<Item = (FileNumber, &File)> {
        self.files.iter().map(|(number, file)| (*number, file))
    }

    /// How many were used: one that was opened ahead may never have been.
    pub fn count_all(&self) -> u64 {
        let used = self.files.values().filter(|file| is_used(file));
        self.forgotten + used.count() as u64
    }

    fn make_room(&mut self) {
        if self.files.len() < FILES_MAX {
            return;
        }
        self.forget(|file| file.totals.read + file.totals.written < SMALL);
        // If there is room for a few only, this would be done again and again.
        if self.files.len() > FILES_MAX / 2 {
            self.forget(|_| true);
        }
    }

    fn forget(&mut self, which: impl Fn(&File) -> bool) {
        let gone = |file: &File| file.opens.is_empty() && which(file);
        let (mut forgotten, mut gain) = (0, Gain::default());
        self.files.retain(|_, file| {
            let gone = gone(file);
            if gone {
                forgotten += u64::from(is_used(file));
                gain.add(&file.gain);
            }
            !gone
        });
        self.forgotten += forgotten;
        self.forgotten_gain.add(&gain);
        let files = &self.files;
        self.by_key.retain(|_, number| files.contains_key(number));
        self.by_entry.retain(|_, number| files.contains_key(number));
    }
}

fn is_used(file: &File) -> bool {
    !file.opens.is_empty() || file.totals.all() > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use presagio_core::Action;

    fn entry(inode: u64, path: &str) -> FileEntry {
        FileEntry {
            pid: 9,
            descriptor: 3,
            device: 1,
            inode,
            size: 100,
            flags: libc::O_RDONLY,
            inherited: false,
            path: path.into(),
            cut: false,
        }
    }

    fn operation(file: u32) -> Operation {
        Operation {
            action: Action::Open,
            flags: 0,
            file,
            generation: 0,
            context: 0,
            start: 0,
            duration: 0,
            offset: 0,
            len: 0,
            result: 0,
        }
    }

    #[test]
    fn one_file_has_one_number_however_often_it_is_open() {
        let mut files = Files::default();
        let a = files.find(&operation(0), 0, || Some(entry(5, "/a")));
        let b = files.find(&operation(1), 1, || Some(entry(5, "/link-to-a")));
        assert_eq!(a, b);
        assert_eq!(files.get(a).unwrap().opens.len(), 2);
        assert_eq!(files.find(&operation(0), 0, || unreachable!()), a);
        assert_eq!(files.close(0, 0).unwrap().0, a);
        assert_eq!(files.opened_by(1), [(1, 0)]);
        assert!(files.opened_by(0).is_empty(), "it was closed");
        files.close(1, 0);
        assert!(files.by_process.is_empty(), "processes come and go");
    }

    #[test]
    fn an_inode_that_was_used_again_is_another_file() {
        let mut files = Files::default();
        let a = files.find(&operation(0), 0, || Some(entry(5, "/a")));
        files.close(0, 0);
        let again = files.find(&operation(1), 0, || Some(entry(5, "/a")));
        assert_eq!(a, again, "the same file, opened again");
        files.close(1, 0);
        assert_ne!(a, files.find(&operation(2), 0, || Some(entry(5, "/b"))));
    }

    #[test]
    fn an_inode_that_was_used_again_is_another_file_when_it_is_opened_ahead_too() {
        let mut files = Files::default();
        let a = files.find(&operation(0), 0, || Some(entry(5, "/a")));
        let key = files.get(a).unwrap().key;
        assert_eq!(
            a,
            files.ahead(key, Path::new("/link"), 100),
            "a program has it open"
        );
        files.close(0, 0);
        assert_eq!(a, files.ahead(key, Path::new("/a"), 100));
        let b = files.ahead(key, Path::new("/b"), 100);
        assert_ne!(a, b);
        assert_eq!(&*files.get(b).unwrap().path, b"/b");
    }

    #[test]
    fn a_million_files_are_forgotten_but_counted() {
        let mut files = Files::default();
        let mut totals = Totals::default();
        totals.count(Action::Open, 1, 0);
        for n in 0..50_000 {
            let number = files.find(&operation(n), 0, || Some(entry(n.into(), "/f")));
            files.count_many(number, &totals, 0);
            files.close(n, 0);
        }
        assert!(files.iter().count() <= FILES_MAX);
        assert_eq!(files.count_all(), 50_000);
    }

    #[test]
    fn a_file_that_was_opened_ahead_counts_once_a_program_uses_it() {
        let mut files = Files::default();
        let key = FileKey {
            device: 1,
            inode: 5,
        };
        let ahead = files.ahead(key, Path::new("/a"), 100);
        assert_eq!(files.count_all(), 0);
        let opened = files.find(&operation(0), 0, || Some(entry(5, "/a")));
        assert_eq!((opened, files.count_all()), (ahead, 1));
    }

    #[test]
    fn the_device_of_a_file_to_come_is_that_of_one_beside_it() {
        let mut files = Files::default();
        let on = |device: u64| FileKey { device, inode: 5 };
        files.ahead(on(1), Path::new("/a/step_1"), 0);
        files.ahead(on(2), Path::new("/a/b/step_1"), 0);
        let beside = |path: &str| files.device_beside(Path::new(path));
        assert_eq!(beside("/a/step_2"), Some(1));
        assert_eq!(beside("/a/b/step_2"), Some(2));
        assert_eq!(beside("/elsewhere/step_2"), None);
    }

    #[test]
    fn files_without_an_entry_are_one() {
        let mut files = Files::default();
        let a = files.find(&operation(0), 0, || None);
        assert_eq!(a, files.find(&operation(1), 0, || None));
    }
}
