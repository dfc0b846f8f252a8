//! One client alone in a directory: whatever it does, it knows what must come of it.
//!
//! After EIO nobody can tell whether a thing was done: then the directory, or the file, must be as it was before or as it is
//! after, and the model goes on with what is there.

use super::common::nodes::{Random, pattern};
use super::way::{Done, Files, Open};
use std::collections::BTreeMap;
use std::path::Path;

const EIO: i32 = 5;
const ENOENT: i32 = 2;
const EEXIST: i32 = 17;
const NAMES: u64 = 6;
const OPEN_MAX: usize = 5;
/// Files grow to about this.
const SIZE_MAX: usize = 40_000;
/// What each file begins with, so that no two are alike.
const HEAD: usize = 16;

/// What names stand for, and what is in the files that they, or descriptors, lead to.
#[derive(Clone, Default, PartialEq, Eq)]
struct State {
    names: BTreeMap<String, Option<usize>>,
    content: BTreeMap<usize, Vec<u8>>,
}

impl State {
    fn file(&self, name: &str) -> Option<usize> {
        self.names.get(name).copied().flatten()
    }

    /// What can be seen in the directory.
    fn seen(&self) -> Vec<(String, Option<Vec<u8>>)> {
        let content = |id: &Option<usize>| id.map(|id| self.content[&id].clone());
        let seen = self.names.iter();
        seen.map(|(name, id)| (name.clone(), content(id))).collect()
    }
}

struct Opened {
    id: usize,
    file: Box<dyn Open>,
    append: bool,
}

/// The client.
pub struct Model<'a> {
    files: &'a dyn Files,
    dir: String,
    random: Random,
    state: State,
    open: Vec<Opened>,
    made: usize,
    /// What it did so far.
    pub steps: u64,
    /// How often nobody could tell.
    pub unknown: u64,
}

impl<'a> Model<'a> {
    pub fn new(files: &'a dyn Files, dir: &str, seed: u64) -> Model<'a> {
        Model {
            files,
            dir: dir.into(),
            random: Random(seed),
            state: State::default(),
            open: Vec::new(),
            made: 0,
            steps: 0,
            unknown: 0,
        }
    }

    /// Does one thing.
    pub fn step(&mut self) {
        self.steps += 1;
        match self.random.below(24) {
            0..3 => self.create(),
            3..6 => self.open(),
            6..9 => self.write(),
            9..12 => self.append(),
            12..15 => self.read(),
            15 => self.truncate(),
            16..18 => self.rename(),
            18..20 => self.unlink(),
            20 => self.link(),
            21 => self.directory(),
            22 => self.sync(),
            _ => self.check_names(),
        }
        if self.open.len() > OPEN_MAX {
            let one = self.random.below(self.open.len() as u64) as usize;
            self.open.swap_remove(one);
        }
    }

    fn name(&mut self) -> String {
        format!("name{}", self.random.below(NAMES))
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.dir)
    }

    /// Bytes that nobody wrote before.
    fn bytes(&mut self) -> Vec<u8> {
        let count = 1 + self.random.below(3000) as usize;
        pattern(self.random.next(), count)
    }

    fn chosen(&mut self, append: bool) -> Option<usize> {
        let of_kind = |(at, open): (usize, &Opened)| (open.append == append).then_some(at);
        let all: Vec<usize> = self.open.iter().enumerate().filter_map(of_kind).collect();
        let at = self.random.below(all.len().max(1) as u64) as usize;
        all.get(at).copied()
    }

    /// Does something about names that must be done once. `after` is what must come of it, or the error that it must give.
    fn once<T>(
        &mut self,
        what: &str,
        after: Result<State, i32>,
        work: impl FnOnce(&dyn Files) -> Done<T>,
    ) -> Option<T> {
        match (work(self.files), after) {
            (Ok(done), Ok(after)) => {
                self.state = after;
                return Some(done);
            }
            (Err(EIO), after) => {
                self.unknown += 1;
                let (seen, after) = (self.look(), after.unwrap_or_else(|_| self.state.clone()));
                if seen != self.state.seen() {
                    self.same(what, &seen, &after.seen());
                    self.state = after;
                }
            }
            (Err(got), Err(expected)) => assert_eq!(got, expected, "{}: {what}", self.dir),
            (Ok(_), Err(expected)) => panic!("{}: {what}: not {expected}", self.dir),
            (Err(got), Ok(_)) => panic!("{}: {what}: error {got}", self.dir),
        }
        None
    }

    fn create(&mut self) {
        let name = self.name();
        self.made += 1;
        let id = self.made;
        let after = match self.state.names.contains_key(&name) {
            true => Err(EEXIST),
            false => {
                let mut after = self.state.clone();
                after.names.insert(name.clone(), Some(id));
                after.content.insert(id, Vec::new());
                Ok(after)
            }
        };
        let path = self.path(&name);
        let made = self.once(&format!("create {name}"), after, |files| {
            files.create(&path)
        });
        if let Some(file) = made {
            let append = false;
            self.open.push(Opened { id, file, append });
            let head = pattern(id as u64, HEAD);
            self.write_to(self.open.len() - 1, 0, head);
        }
    }

    fn open(&mut self) {
        let (name, append) = (self.name(), self.random.below(2) == 0);
        let opened = self.files.open(&self.path(&name), append);
        match (opened, self.state.names.get(&name)) {
            (Ok(file), Some(Some(id))) => {
                let id = *id;
                self.open.push(Opened { id, file, append });
            }
            (Err(ENOENT), None) => {}
            (Err(errno), Some(None)) if errno != EIO => {}
            (opened, known) => {
                let got = opened.map(drop);
                panic!("{}: open {name} gave {got:?}, is {known:?}", self.dir);
            }
        }
    }

    fn write(&mut self) {
        if let Some(at) = self.chosen(false) {
            let len = self.state.content[&self.open[at].id].len();
            // Now and then it leaves a hole.
            let offset = HEAD as u64 + self.random.below(len.min(SIZE_MAX) as u64 + 500);
            let bytes = self.bytes();
            self.write_to(at, offset, bytes);
        }
    }

    /// Writes can be repeated: whatever happens they succeed.
    fn write_to(&mut self, at: usize, offset: u64, bytes: Vec<u8>) {
        let id = self.open[at].id;
        let wrote = self.open[at].file.write_at(offset, &bytes);
        assert_eq!(wrote, Ok(bytes.len()), "{}: write", self.dir);
        let content = self.state.content.get_mut(&id).expect("it is known");
        let end = offset as usize + bytes.len();
        content.resize(content.len().max(end), 0);
        content[offset as usize..end].copy_from_slice(&bytes);
    }

    /// Changes what is in an open file, in a way that must be done once.
    fn change(&mut self, at: usize, what: &str, after: Vec<u8>, done: Done<()>) {
        let id = self.open[at].id;
        match done {
            Ok(()) => {}
            Err(EIO) => {
                self.unknown += 1;
                let now = self.open[at].file.all().expect("it can be read");
                if now == self.state.content[&id] {
                    return;
                }
                assert!(now == after, "{}: {what}, then neither", self.dir);
            }
            Err(errno) => panic!("{}: {what}: error {errno}", self.dir),
        }
        self.state.content.insert(id, after);
    }

    fn append(&mut self) {
        let Some(at) = self.chosen(true) else {
            return;
        };
        let mut after = self.state.content[&self.open[at].id].clone();
        if after.len() > SIZE_MAX {
            return self.cut(at);
        }
        let bytes = self.bytes();
        after.extend_from_slice(&bytes);
        let done = self.open[at].file.append(&bytes);
        let done = done.map(|count| assert_eq!(count, bytes.len(), "{}: append", self.dir));
        self.change(at, "append", after, done);
    }

    fn truncate(&mut self) {
        let append = self.random.below(2) == 0;
        if let Some(at) = self.chosen(append) {
            self.cut(at);
        }
    }

    fn cut(&mut self, at: usize) {
        let mut after = self.state.content[&self.open[at].id].clone();
        let size = HEAD + self.random.below(after.len() as u64 + 100) as usize;
        after.resize(size, 0);
        let done = self.open[at].file.set_len(size as u64);
        self.change(at, "truncate", after, done);
    }

    fn read(&mut self) {
        let append = self.random.below(2) == 0;
        if let Some(at) = self.chosen(append) {
            self.check_open(at);
        }
    }

    fn rename(&mut self) {
        let (old, new) = (self.name(), self.name());
        if self.state.names.get(&new) == Some(&None) || self.state.names.get(&old) == Some(&None) {
            return;
        }
        let after = match self.state.file(&old) {
            None => Err(ENOENT),
            Some(id) if self.state.file(&new) == Some(id) => Ok(self.state.clone()),
            Some(_) => {
                let mut after = self.state.clone();
                let id = after.names.remove(&old).expect("it is there");
                after.names.insert(new.clone(), id);
                Ok(after)
            }
        };
        let (from, to) = (self.path(&old), self.path(&new));
        let what = format!("rename {old} {new}");
        self.once(&what, after, |files| files.rename(&from, &to));
    }

    fn link(&mut self) {
        let (old, new) = (self.name(), self.name());
        if self.state.names.get(&old) == Some(&None) {
            return;
        }
        let after = match (self.state.file(&old), self.state.names.contains_key(&new)) {
            (None, _) => Err(ENOENT),
            (_, true) => Err(EEXIST),
            (id, false) => {
                let mut after = self.state.clone();
                after.names.insert(new.clone(), id);
                Ok(after)
            }
        };
        let (from, to) = (self.path(&old), self.path(&new));
        let what = format!("link {old} {new}");
        self.once(&what, after, |files| files.link(&from, &to));
    }

    fn unlink(&mut self) {
        let name = self.name();
        let after = match self.state.names.get(&name) {
            None => Err(ENOENT),
            Some(None) => return,
            Some(_) => Ok(self.without(&name)),
        };
        let path = self.path(&name);
        self.once(&format!("unlink {name}"), after, |files| {
            files.unlink(&path)
        });
    }

    fn without(&self, name: &str) -> State {
        let mut after = self.state.clone();
        after.names.remove(name);
        after
    }

    /// Makes a directory, or removes it.
    fn directory(&mut self) {
        let name = self.name();
        let path = self.path(&name);
        if self.state.names.get(&name) == Some(&None) {
            let after = Ok(self.without(&name));
            self.once(&format!("rmdir {name}"), after, |files| files.rmdir(&path));
            return;
        }
        let after = match self.state.names.contains_key(&name) {
            true => Err(EEXIST),
            false => {
                let mut after = self.state.clone();
                after.names.insert(name.clone(), None);
                Ok(after)
            }
        };
        self.once(&format!("mkdir {name}"), after, |files| files.mkdir(&path));
    }

    fn sync(&mut self) {
        if let Some(at) = self.chosen(false) {
            assert_eq!(self.open[at].file.sync(), Ok(()), "{}: sync", self.dir);
        }
    }

    /// An open file has what it must have, whatever became of its names.
    fn check_open(&self, at: usize) {
        let (open, dir) = (&self.open[at], &self.dir);
        let expected = &self.state.content[&open.id];
        assert_eq!(open.file.len(), Ok(expected.len() as u64), "{dir}: length");
        let read = open.file.all().expect("it can be read");
        assert!(read == *expected, "{dir}: bytes");
    }

    fn check_names(&self) {
        let names = self.files.list(&self.dir).expect("it can be listed");
        let expected: Vec<&String> = self.state.names.keys().collect();
        assert_eq!(names.iter().collect::<Vec<_>>(), expected, "{}", self.dir);
    }

    /// What is in the directory, through the node.
    fn look(&self) -> Vec<(String, Option<Vec<u8>>)> {
        let look = |name: String| {
            let is_directory = self.files.list(&self.path(&name)).is_ok();
            let content = (!is_directory).then(|| {
                let opened = self.files.open(&self.path(&name), false);
                let read = opened.and_then(|file| file.all());
                read.unwrap_or_else(|errno| panic!("{}: {name}: {errno}", self.dir))
            });
            (name, content)
        };
        let names = self.files.list(&self.dir).expect("it can be listed");
        names.into_iter().map(look).collect()
    }

    fn same(
        &self,
        what: &str,
        seen: &[(String, Option<Vec<u8>>)],
        expected: &[(String, Option<Vec<u8>>)],
    ) {
        let short = |all: &[(String, Option<Vec<u8>>)]| -> Vec<(String, Option<usize>)> {
            let len = |bytes: &Option<Vec<u8>>| bytes.as_ref().map(Vec::len);
            all.iter()
                .map(|(name, bytes)| (name.clone(), len(bytes)))
                .collect()
        };
        let (got, wanted) = (short(seen), short(expected));
        assert!(
            seen == expected,
            "{}: {what}: {got:?}, not {wanted:?}",
            self.dir
        );
    }

    /// Everything is as it must be, through the node.
    pub fn check_all(&self) {
        (0..self.open.len()).for_each(|at| self.check_open(at));
        self.same("in the end", &self.look(), &self.state.seen());
    }

    /// And so it is where the node keeps it.
    pub fn check_against(&self, dir: &Path) {
        let plain = super::way::Plain::new(dir.to_str().expect("a path in UTF-8"));
        let there = Model {
            files: &plain,
            dir: ".".into(),
            random: Random(0),
            state: self.state.clone(),
            open: Vec::new(),
            made: 0,
            steps: 0,
            unknown: 0,
        };
        there.check_all();
    }
}
