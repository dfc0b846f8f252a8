//! The files of a program: how far each has been accessed, and which were used last.
//!
//! A cursor that reads ahead has the same questions as the model, but must not change it: it keeps its own
//! changes in a [`Files`] on top of the model's.

use presagio_core::{FileId, IdHashMap};
use smallvec::SmallVec;

/// Files that are told apart by how recently they were used.
const RECENT_MAX: usize = 256;

/// Files whose position is remembered.
const KNOWN_MAX: usize = 1 << 16;

/// The rank of a file that was not among the recent ones, but known.
pub(crate) const FAR: u64 = u64::MAX - 1;

/// The rank of a file that was not known.
pub(crate) const NEW: u64 = u64::MAX;

/// What the model knows of files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files {
    /// Files and where the last access to each ended, the last used first.
    recent: Vec<(FileId, u64)>,
    /// Those that were used before these.
    older: IdHashMap<FileId, u64>,
}

impl Files {
    /// Where the last access to a file ended, 0 if there was none.
    pub(crate) fn position(&self, file: FileId) -> u64 {
        let recent = self.recent.iter().find(|f| f.0 == file);
        let known = recent.map(|f| f.1);
        known.unwrap_or_else(|| self.older.get(&file).copied().unwrap_or(0))
    }

    /// Whether a file has been used.
    pub(crate) fn knows(&self, file: FileId) -> bool {
        self.recent.iter().any(|f| f.0 == file) || self.older.contains_key(&file)
    }

    /// How many other files were used since this one was: 0 if it was used last.
    pub(crate) fn rank(&self, file: FileId) -> u64 {
        match self.recent.iter().position(|f| f.0 == file) {
            Some(rank) => rank as u64,
            None if self.older.contains_key(&file) => FAR,
            None => NEW,
        }
    }

    /// The file of a rank.
    pub(crate) fn at(&self, rank: usize) -> Option<FileId> {
        self.recent.get(rank).map(|f| f.0)
    }

    /// A file is used, up to `position`.
    pub(crate) fn used(&mut self, file: FileId, position: u64) {
        match self.recent.iter().position(|f| f.0 == file) {
            Some(0) => {}
            Some(rank) => self.recent[..=rank].rotate_right(1),
            None => {
                self.older.remove(&file);
                self.recent.insert(0, (file, position));
                self.retire();
            }
        }
        self.recent[0].1 = position;
    }

    /// Moves the file that was used longest ago to the older ones, if there are too many.
    fn retire(&mut self) {
        if self.recent.len() <= RECENT_MAX {
            return;
        }
        if self.older.len() >= KNOWN_MAX {
            // A program with so many files does not come back to all of them.
            self.older.clear();
        }
        self.older.extend(self.recent.pop());
    }
}

/// What a cursor has changed on top of what the model knows, by its own names for files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ahead {
    /// Files that the cursor has used, the last used first, with their positions.
    used: SmallVec<[(Name, u64); 4]>,
    new: u32,
}

/// A file, known or yet to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    Known(FileId),
    New(u32),
}

impl Ahead {
    /// The file of a rank, counting what the cursor has used.
    pub(crate) fn at(&self, files: &Files, rank: u64) -> Option<Name> {
        let used = self.used.len() as u64;
        if rank < used {
            return Some(self.used[rank as usize].0);
        }
        let names = files.recent.iter().map(|f| Name::Known(f.0));
        let mut unused = names.filter(|name| self.used.iter().all(|u| u.0 != *name));
        unused.nth(usize::try_from(rank - used).ok()?)
    }

    /// A file that nobody has seen yet.
    pub(crate) fn fresh(&mut self) -> Name {
        self.new += 1;
        Name::New(self.new - 1)
    }

    pub(crate) fn position(&self, files: &Files, name: Name) -> u64 {
        if let Some((_, position)) = self.used.iter().find(|u| u.0 == name) {
            return *position;
        }
        match name {
            Name::Known(file) => files.position(file),
            Name::New(_) => 0,
        }
    }

    pub(crate) fn use_up_to(&mut self, name: Name, position: u64) {
        match self.used.iter().position(|u| u.0 == name) {
            Some(at) => self.used[..=at].rotate_right(1),
            None => self.used.insert(0, (name, position)),
        }
        self.used[0].1 = position;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_count_the_files_used_since() {
        let mut files = Files::default();
        assert_eq!(files.rank(FileId(1)), NEW);
        (1..=3).for_each(|f| files.used(FileId(f), f * 10));
        let ranks: Vec<u64> = (1..=3).map(|f| files.rank(FileId(f))).collect();
        assert_eq!(ranks, [2, 1, 0]);
        files.used(FileId(1), 5);
        assert_eq!((files.rank(FileId(1)), files.position(FileId(1))), (0, 5));
    }

    #[test]
    fn a_cursor_sees_its_own_changes_first() {
        let mut files = Files::default();
        (1..=3).for_each(|f| files.used(FileId(f), f * 10));
        let mut ahead = Ahead::default();
        let second = ahead.at(&files, 1).unwrap();
        assert_eq!(second, Name::Known(FileId(2)));
        ahead.use_up_to(second, 99);
        assert_eq!(ahead.at(&files, 0), Some(second));
        assert_eq!(ahead.at(&files, 1), Some(Name::Known(FileId(3))));
        assert_eq!(ahead.position(&files, second), 99);
        let new = ahead.fresh();
        assert_eq!(ahead.position(&files, new), 0);
    }

    #[test]
    fn of_very_many_files_the_recent_ones_are_remembered() {
        let mut files = Files::default();
        (0..2 * KNOWN_MAX as u64).for_each(|f| files.used(FileId(f), 1));
        assert!(files.older.len() <= KNOWN_MAX && files.recent.len() == RECENT_MAX);
        assert!(files.knows(FileId(2 * KNOWN_MAX as u64 - 1)));
    }
}
