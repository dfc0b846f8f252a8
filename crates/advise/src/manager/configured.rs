//! Advice by configuration, as MERCURY gave it (§III-B): blocks around and ahead of each read, modes by region. Files
//! that the configuration does not name are left to another mind.

use super::mind::Mind;
use super::summary::Waited;
use crate::blocks::{Caches, FileKey, ModeFollower};
use crate::config::{Advice, Config};
use crate::hints::whole_pages;
use crate::plan::{
    Access, Expected, FileNumber, Hint, Holder, LoadDone, Memory, OpenNumber, Opened, Reason,
    Strategy,
};
use crate::strategy::Followed;
use presagio_core::Nanos;
use std::collections::BTreeMap;
use std::sync::Arc;

/// See the module's header.
pub struct Configured {
    config: Config,
    /// What each entry advises, shared by the files it applies to.
    advice: Vec<Arc<Advice>>,
    caches: Caches,
    files: BTreeMap<FileNumber, File>,
    /// How many files each entry applied to.
    applied: Vec<u64>,
    hints: Vec<Hint>,
    rest: Box<dyn Mind>,
}

/// A file that the configuration names, while it is open.
struct File {
    size: u64,
    opens: u32,
    /// Each open file is in a mode of its own: ranks that read different regions leave each other alone.
    modes: BTreeMap<OpenNumber, ModeFollower>,
}

impl Configured {
    /// Advises what `config` names, and leaves all other files to `rest`.
    pub fn new(config: Config, rest: Box<dyn Mind>) -> Configured {
        let advice = config.entries().iter();
        let advice: Vec<_> = advice.map(|entry| Arc::new(entry.advice.clone())).collect();
        Configured {
            applied: vec![0; advice.len()],
            config,
            advice,
            caches: Caches::default(),
            files: BTreeMap::new(),
            hints: Vec::new(),
            rest,
        }
    }

    /// The number of the entry that applies to a path.
    fn entry(&self, opened: &Opened<'_>) -> Option<usize> {
        let found = self.config.lookup(opened.path)?;
        let entries = self.config.entries();
        entries.iter().position(|entry| std::ptr::eq(entry, found))
    }

    /// Changes the mode if the read came to a region of another one, then loads and releases.
    fn read(&mut self, access: &Access) {
        let Some(file) = self.files.get_mut(&access.file) else {
            return;
        };
        let Some(cache) = self.caches.get(key(access.file)) else {
            return;
        };
        file.size = file.size.max(access.range.end());
        let (file_number, reason) = (access.file, Reason::Configured);
        let open = access.by.open;
        let follower = file.modes.entry(open).or_default();
        if let Some(mode) = follower.follow(cache.advice(), access.range.start()) {
            self.hints.push(Hint::Mode {
                file: file_number,
                open,
                mode,
                reason,
            });
        }
        let plan = cache.read(access.range, file.size);
        let loads = plan.load.into_iter().map(|range| Hint::Load {
            file: file_number,
            range,
            reason,
        });
        self.hints.extend(loads);
        let releases = plan.release.into_iter().map(|range| Hint::Release {
            file: file_number,
            range,
            reason,
        });
        self.hints.extend(releases);
    }
}

/// The caches know files by device and inode; a number of ours does as well.
fn key(file: FileNumber) -> FileKey {
    FileKey {
        device: 0,
        inode: file.0.into(),
    }
}

impl Strategy for Configured {
    fn opened(&mut self, opened: &Opened<'_>) {
        let Some(entry) = self.entry(opened) else {
            return self.rest.opened(opened);
        };
        // A file that was opened ahead is not read yet.
        if opened.by.is_none() {
            return;
        }
        self.caches.open(key(opened.file), &self.advice[entry]);
        let fresh = || File {
            size: 0,
            opens: 0,
            modes: BTreeMap::new(),
        };
        let file = self.files.entry(opened.file).or_insert_with(fresh);
        self.applied[entry] += u64::from(file.opens == 0);
        file.opens += 1;
        file.size = file.size.max(opened.size);
    }

    fn closed(&mut self, file: FileNumber, by: Holder, now: Nanos) {
        let Some(open) = self.files.get_mut(&file) else {
            return self.rest.closed(file, by, now);
        };
        open.opens -= 1;
        open.modes.remove(&by.open);
        if open.opens == 0 {
            self.files.remove(&file);
        }
        let cache = self.caches.close(key(file));
        let left = cache.map(|cache| cache.passing());
        if let Some(range) = left.filter(|range| !range.is_empty()) {
            self.hints.push(Hint::Release {
                file,
                range,
                reason: Reason::Configured,
            });
        }
    }

    fn accessed(&mut self, access: &Access) {
        if !self.files.contains_key(&access.file) {
            self.rest.accessed(access);
        } else if !access.write && !access.range.is_empty() {
            self.read(access);
        }
    }

    fn expected(&mut self, process: u32, expected: &[Expected]) {
        let others = expected
            .iter()
            .filter(|e| !self.files.contains_key(&e.file));
        let others: Vec<Expected> = others.copied().collect();
        self.rest.expected(process, &others);
    }

    fn loaded(&mut self, done: &LoadDone) {
        let Some(file) = self.files.get(&done.file) else {
            return self.rest.loaded(done);
        };
        let wanted = whole_pages(done.range, file.size).len();
        let Some(cache) = self.caches.get(key(done.file)) else {
            return;
        };
        // What is not there is asked for again by the next read that wants it.
        if done.there == 0 {
            cache.forget(done.range);
        } else if done.there < wanted {
            cache.forget_once(done.range);
        }
    }

    fn memory(&mut self, memory: Memory, now: Nanos) {
        self.rest.memory(memory, now);
    }

    fn plan(&mut self, now: Nanos, hints: &mut Vec<Hint>) {
        hints.append(&mut self.hints);
        self.rest.plan(now, hints);
    }
}

impl Mind for Configured {
    fn explain(&self) -> Vec<String> {
        let used = self.config.entries().iter().zip(&self.applied);
        let mut lines: Vec<String> = used
            .map(|(entry, times)| match times {
                0 => format!("configured: {} was not opened", entry.path),
                1 => format!("configured: {} was advised", entry.path),
                _ => format!("configured: {} was advised {times} times", entry.path),
            })
            .collect();
        lines.extend(self.rest.explain());
        lines
    }

    fn waits(&self) -> Vec<Waited> {
        self.rest.waits()
    }

    fn followed(&self) -> Followed {
        self.rest.followed()
    }

    fn remember(&mut self) -> Option<Vec<u8>> {
        self.rest.remember()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Nothing;
    use super::*;
    use crate::config::Mode;
    use crate::hints::Device;
    use presagio_core::Range;
    use std::path::Path;

    const FILE: FileNumber = FileNumber(7);
    const SIZE: u64 = 1 << 20;

    /// A mind that counts what it is asked.
    #[derive(Default)]
    struct Counting(std::rc::Rc<std::cell::Cell<u32>>);

    impl Strategy for Counting {
        fn opened(&mut self, _: &Opened<'_>) {
            self.0.set(self.0.get() + 1);
        }
        fn closed(&mut self, _: FileNumber, _: Holder, _: Nanos) {
            self.0.set(self.0.get() + 10);
        }
        fn accessed(&mut self, _: &Access) {
            self.0.set(self.0.get() + 100);
        }
        fn expected(&mut self, _: u32, expected: &[Expected]) {
            self.0.set(self.0.get() + 1000 * expected.len() as u32);
        }
        fn loaded(&mut self, _: &LoadDone) {}
        fn memory(&mut self, memory: Memory, _: Nanos) {
            self.0.set(self.0.get() + 10_000 * memory.left as u32);
        }
        fn plan(&mut self, _: Nanos, _: &mut Vec<Hint>) {}
    }

    impl Mind for Counting {
        fn followed(&self) -> Followed {
            let reads = self.0.get().into();
            Followed {
                reads,
                ..Followed::default()
            }
        }
    }

    fn configured(rest: Box<dyn Mind>) -> Configured {
        let text = r#"{ "File": [ { "Path": "/d/a", "BlockSize": 4096, "CacheSize": 4, "ReadAheadSize": 2,
            "WillNeed": [ { "Offset": 0, "Length": 0 } ] } ] }"#;
        Configured::new(text.parse().unwrap(), rest)
    }

    /// Each process has the file open once.
    fn holder(process: u32) -> Holder {
        let open = OpenNumber(process.into());
        Holder { process, open }
    }

    fn open(mind: &mut Configured, path: &str, process: u32) {
        let device = Arc::new(Device::of(&std::fs::File::open("/").unwrap()).unwrap());
        mind.opened(&Opened {
            file: FILE,
            by: Some(holder(process)),
            path: Path::new(path),
            size: SIZE,
            writes: false,
            device: &device,
            time: Nanos(0),
        });
    }

    /// Of a range so many bytes are there.
    fn loaded(range: Range, there: u64) -> LoadDone {
        LoadDone {
            file: FILE,
            range,
            reason: Reason::Configured,
            started: Nanos(3),
            ended: Nanos(4),
            already: Some(0),
            there,
        }
    }

    fn read(mind: &mut Configured, offset: u64) -> Vec<Hint> {
        read_by(mind, 0, offset)
    }

    fn read_by(mind: &mut Configured, process: u32, offset: u64) -> Vec<Hint> {
        mind.accessed(&Access {
            file: FILE,
            by: holder(process),
            time: Nanos(1),
            duration: Nanos(1),
            range: Range::at(offset, 100),
            write: false,
        });
        let mut hints = Vec::new();
        mind.plan(Nanos(2), &mut hints);
        hints
    }

    #[test]
    fn a_read_loads_its_block_and_those_ahead_and_sets_the_mode_once() {
        let mut mind = configured(Box::new(Nothing));
        open(&mut mind, "/d/a", 0);
        let hints = read(&mut mind, 10);
        let load = |range| Hint::Load {
            file: FILE,
            range,
            reason: Reason::Configured,
        };
        assert!(matches!(hints[0], Hint::Mode { .. }), "{hints:?}");
        assert_eq!(hints[1..], [load(Range::at(0, 3 * 4096))]);
        assert_eq!(read(&mut mind, 200), []);
        assert_eq!(read(&mut mind, 4096), [load(Range::at(3 * 4096, 4096))]);
    }

    #[test]
    fn what_could_not_be_loaded_is_asked_for_again() {
        let mut mind = configured(Box::new(Nothing));
        open(&mut mind, "/d/a", 0);
        let range = Range::at(0, 3 * 4096);
        read(&mut mind, 10);
        for there in [0, 0, range.len() - 4096] {
            mind.loaded(&loaded(range, there));
            let hints = read(&mut mind, 200);
            assert!(
                matches!(hints[..], [Hint::Load { range: r, .. }] if r == range),
                "{there}: {hints:?}"
            );
        }
        mind.loaded(&loaded(range, 4096));
        assert_eq!(read(&mut mind, 200), [], "memory is short");
    }

    #[test]
    fn behind_the_end_nothing_is_missing() {
        let mut mind = configured(Box::new(Nothing));
        open(&mut mind, "/d/a", 0);
        read(&mut mind, SIZE - 100);
        // The last block has a page and a bit.
        mind.loaded(&loaded(Range::at(SIZE - 100, 3 * 4096), 4096));
        assert_eq!(read(&mut mind, SIZE - 100), []);
    }

    #[test]
    fn when_the_last_one_closes_a_file_what_it_left_is_released() {
        let text =
            r#"{ "File": [ { "Path": "/d/a", "DontNeed": [ { "Offset": 0, "Length": 0 } ] } ] }"#;
        let mut mind = Configured::new(text.parse().unwrap(), Box::new(Nothing));
        (0..2).for_each(|process| open(&mut mind, "/d/a", process));
        let release = |start, len| Hint::Release {
            file: FILE,
            range: Range::at(start, len),
            reason: Reason::Configured,
        };
        assert_eq!(read(&mut mind, 0), []);
        assert_eq!(
            read(&mut mind, SIZE - 100),
            [release(0, 100), release(SIZE - 100, 100)],
            "its blocks are larger than the file"
        );
        assert_eq!(read(&mut mind, 4096), []);
        let mut hints = Vec::new();
        for (process, all) in [(0, 0), (1, 1)] {
            mind.closed(FILE, holder(process), Nanos(3));
            mind.plan(Nanos(4), &mut hints);
            assert_eq!(hints.len(), all);
        }
        assert_eq!(hints, [release(4096, 100)]);
    }

    /// The modes that are to be set, and by whom.
    fn modes(hints: &[Hint]) -> Vec<(u64, Mode)> {
        let modes = hints.iter().filter_map(|hint| match hint {
            Hint::Mode { open, mode, .. } => Some((open.0, *mode)),
            _ => None,
        });
        modes.collect()
    }

    #[test]
    fn a_process_that_comes_later_gets_the_mode_too() {
        let mut mind = configured(Box::new(Nothing));
        open(&mut mind, "/d/a", 0);
        assert_eq!(modes(&read_by(&mut mind, 0, 0)), [(0, Mode::Random)]);
        open(&mut mind, "/d/a", 1);
        assert_eq!(modes(&read_by(&mut mind, 1, 0)), [(1, Mode::Random)]);
        mind.closed(FILE, holder(1), Nanos(3));
        assert_eq!(modes(&read_by(&mut mind, 0, 100)), []);
    }

    #[test]
    fn processes_in_regions_of_different_modes_do_not_change_each_others() {
        let text = r#"{ "File": [ { "Path": "/d/a", "Random": [ { "Offset": 0, "Length": 1000 } ],
            "Sequential": [ { "Offset": 1000, "Length": 0 } ] } ] }"#;
        let mut mind = Configured::new(text.parse().unwrap(), Box::new(Nothing));
        (0..2).for_each(|process| open(&mut mind, "/d/a", process));
        let mut all = Vec::new();
        for i in 0..5 {
            all.extend(read_by(&mut mind, 0, i * 100));
            all.extend(read_by(&mut mind, 1, 1000 + i * 100));
        }
        assert_eq!(modes(&all), [(0, Mode::Random), (1, Mode::Sequential)]);
    }

    #[test]
    fn other_files_are_left_to_the_rest() {
        let asked = std::rc::Rc::default();
        let mut mind = configured(Box::new(Counting(std::rc::Rc::clone(&asked))));
        open(&mut mind, "/d/b", 0);
        assert_eq!(read(&mut mind, 0), []);
        mind.closed(FILE, holder(0), Nanos(5));
        assert_eq!(asked.get(), 111);
        open(&mut mind, "/d/a", 0);
        read(&mut mind, 0);
        mind.closed(FILE, holder(0), Nanos(6));
        assert_eq!(asked.get(), 111, "this one is ours");
        let memory = Memory {
            left: 2,
            is_short: true,
        };
        mind.memory(memory, Nanos(7));
        assert_eq!(asked.get(), 20_111);
        assert_eq!(mind.followed().reads, 20_111);
    }
}
