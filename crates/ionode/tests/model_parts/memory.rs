//! The same operations in memory: a map from paths to files, which says what succeeds and with what. Which error comes of
//! what fails is for the plain directory to say.

use super::{HELD, Operation, Outcome};
use std::collections::BTreeMap;

/// What a path stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Directory,
    File(usize),
}

/// A tree, its files, and which of them each client has open.
#[derive(Default)]
pub struct Model {
    entries: BTreeMap<Vec<&'static str>, Entry>,
    files: Vec<Vec<u8>>,
    held: [[Option<usize>; HELD]; 3],
}

impl Model {
    /// Does it; `None` if that fails.
    pub fn act(&mut self, operation: &Operation, client: usize) -> Option<Outcome> {
        match operation {
            Operation::Create { path, exclusive } => self.create(path, *exclusive)?,
            Operation::Write {
                path,
                offset,
                bytes,
            } => {
                let file = self.file(path)?;
                self.write(file, *offset, bytes);
            }
            Operation::Append { path, bytes } => {
                let file = self.file(path)?;
                self.files[file].extend_from_slice(bytes);
            }
            Operation::Truncate { path, size } => {
                let file = self.file(path)?;
                self.files[file].resize(*size as usize, 0);
            }
            Operation::Read {
                path,
                offset,
                count,
            } => return Some(self.read(self.file(path)?, *offset, *count)),
            Operation::Rename { from, to } => self.rename(from, to)?,
            Operation::Unlink { path } => {
                self.file(path)?;
                self.entries.remove(path);
            }
            Operation::Mkdir { path } => {
                self.is_free(path).then_some(())?;
                self.entries.insert(path.clone(), Entry::Directory);
            }
            Operation::Rmdir { path } => {
                let is_there = self.entries.get(path) == Some(&Entry::Directory);
                (is_there && self.names(path).is_empty()).then_some(())?;
                self.entries.remove(path);
            }
            Operation::Link { from, to } => {
                let file = self.file(from)?;
                self.is_free(to).then_some(())?;
                self.entries.insert(to.clone(), Entry::File(file));
            }
            Operation::ReadDir { path } => {
                let is_there = self.entries.get(path) == Some(&Entry::Directory);
                return is_there.then(|| Outcome::Names(self.names(path)));
            }
            Operation::GetAttr { path } => return self.attributes(path),
            Operation::Hold { path, held } => {
                self.held[client][*held] = Some(self.file(path)?);
            }
            Operation::WriteHeld {
                held,
                offset,
                bytes,
            } => match self.held[client][*held] {
                Some(file) => self.write(file, *offset, bytes),
                None => return Some(Outcome::NotHeld),
            },
            Operation::ReadHeld {
                held,
                offset,
                count,
            } => match self.held[client][*held] {
                Some(file) => return Some(self.read(file, *offset, *count)),
                None => return Some(Outcome::NotHeld),
            },
        }
        Some(Outcome::Done)
    }

    fn file(&self, path: &[&'static str]) -> Option<usize> {
        match self.entries.get(path) {
            Some(Entry::File(file)) => Some(*file),
            _ => None,
        }
    }

    fn has_parent(&self, path: &[&'static str]) -> bool {
        let parent = &path[..path.len() - 1];
        parent.is_empty() || self.entries.get(parent) == Some(&Entry::Directory)
    }

    /// Whether something can be made there.
    fn is_free(&self, path: &[&'static str]) -> bool {
        self.has_parent(path) && !self.entries.contains_key(path)
    }

    fn names(&self, path: &[&'static str]) -> Vec<String> {
        let below = self.entries.keys();
        let below = below.filter(|it| it.len() == path.len() + 1 && it.starts_with(path));
        below.map(|it| it[path.len()].to_owned()).collect()
    }

    fn create(&mut self, path: &[&'static str], exclusive: bool) -> Option<()> {
        if !exclusive && self.file(path).is_some() {
            return Some(());
        }
        self.is_free(path).then_some(())?;
        self.files.push(Vec::new());
        let file = Entry::File(self.files.len() - 1);
        self.entries.insert(path.to_vec(), file);
        Some(())
    }

    fn write(&mut self, file: usize, offset: u64, bytes: &[u8]) {
        let file = &mut self.files[file];
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        if !bytes.is_empty() {
            file.resize(file.len().max(end), 0);
            file[start..end].copy_from_slice(bytes);
        }
    }

    fn read(&self, file: usize, offset: u64, count: usize) -> Outcome {
        let file = &self.files[file];
        let start = file.len().min(offset as usize);
        let end = file.len().min(start + count.max(1));
        Outcome::Bytes(file[start..end].to_vec())
    }

    fn attributes(&self, path: &[&'static str]) -> Option<Outcome> {
        let entry = *self.entries.get(path)?;
        Some(match entry {
            Entry::Directory => Outcome::Directory,
            Entry::File(file) => Outcome::File {
                size: self.files[file].len() as u64,
                links: self.entries.values().filter(|it| **it == entry).count() as u64,
            },
        })
    }

    fn rename(&mut self, from: &[&'static str], to: &[&'static str]) -> Option<()> {
        let moved = *self.entries.get(from)?;
        self.has_parent(to).then_some(())?;
        if from == to {
            return Some(());
        }
        match (moved, self.entries.get(to).copied()) {
            // Two names of one file: both stay.
            (Entry::File(one), Some(Entry::File(other))) if one == other => return Some(()),
            (Entry::File(_), None | Some(Entry::File(_))) => {}
            (Entry::Directory, _) if to.starts_with(from) => return None,
            (Entry::Directory, None) => {}
            (Entry::Directory, Some(Entry::Directory)) if self.names(to).is_empty() => {}
            _ => return None,
        }
        self.move_all(from, to);
        Some(())
    }

    fn move_all(&mut self, from: &[&'static str], to: &[&'static str]) {
        let all = std::mem::take(&mut self.entries).into_iter();
        let (moved, mut rest): (BTreeMap<_, _>, BTreeMap<_, _>) =
            all.partition(|(path, _)| path.starts_with(from));
        for (path, entry) in moved {
            rest.insert([to, &path[from.len()..]].concat(), entry);
        }
        self.entries = rest;
    }
}
