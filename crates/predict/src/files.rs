//! The files of a program: how far each has been used, and which were used last.
//!
//! A cursor that reads ahead has the same questions as the model, but must not change it: it keeps its own
//! changes in a [`Files`] on top of the model's.

use presagio_core::{Action, FileId, IdHashMap};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Files that are told apart by how recently they were used.
const RECENT_MAX: usize = 256;

/// Files whose position is remembered.
const KNOWN_MAX: usize = 1 << 16;

/// New files whose order is remembered: more than a look ahead comes upon.
const NEWEST_MAX: usize = 256;

/// The rank of a file that was not among the recent ones, but known.
pub(crate) const FAR: u64 = u64::MAX - 1;

/// The rank of a file that was not known.
pub(crate) const NEW: u64 = u64::MAX;

/// The file of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PredictedFile {
    /// One that has been used.
    Known(FileId),
    /// One that will be opened for the first time: the n-th of these that the cursor came upon.
    New(u32),
}

/// How far a file has been used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Where the next access is consecutive.
    pub position: u64,
    /// Behind the highest byte that was accessed.
    pub end: u64,
}

impl Extent {
    /// The same after an operation.
    pub(crate) fn after(self, action: Action, offset: u64, moved: u64) -> Extent {
        let behind = offset.saturating_add(moved);
        let (position, end) = match action {
            Action::Read | Action::Write => (behind, self.end.max(behind)),
            Action::Seek => (offset, self.end),
            Action::Open | Action::Close => (0, self.end),
            Action::Truncate => (self.position, offset),
            Action::Remove => (0, 0),
            Action::Sync | Action::Allocate | Action::Map => (self.position, self.end),
        };
        Extent { position, end }
    }
}

/// What is known of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// How many other files were used since this one was: 0 if it was used last. Else [`FAR`] or [`NEW`].
    pub rank: u64,
    pub extent: Extent,
}

/// What the model knows of files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files {
    /// Files and how far each was used, the last used first.
    recent: Vec<(FileId, Extent)>,
    /// Those that were used before these.
    older: IdHashMap<FileId, Extent>,
    /// How many have come up, and the last of them in that order.
    came_up: u64,
    newest: VecDeque<FileId>,
}

impl Files {
    /// What is known of a file.
    #[inline]
    pub(crate) fn look_up(&self, file: FileId) -> Known {
        if let Some(rank) = self.recent.iter().position(|f| f.0 == file) {
            let (rank, extent) = (rank as u64, self.recent[rank].1);
            return Known { rank, extent };
        }
        let older = self.older.get(&file);
        Known {
            rank: older.map_or(NEW, |_| FAR),
            extent: older.copied().unwrap_or_default(),
        }
    }

    /// How far a file was used.
    pub(crate) fn extent(&self, file: FileId) -> Extent {
        self.look_up(file).extent
    }

    /// Whether a file has been used.
    pub(crate) fn knows(&self, file: FileId) -> bool {
        self.look_up(file).rank != NEW
    }

    /// How many files have come up so far.
    pub(crate) fn came_up(&self) -> u64 {
        self.came_up
    }

    /// The how-many-th file this is, from 0, if it is a recent one or has not come up yet.
    pub(crate) fn number(&self, file: FileId) -> Option<u64> {
        if !self.knows(file) {
            return Some(self.came_up);
        }
        let age = self.newest.iter().rev().position(|f| *f == file)?;
        Some(self.came_up - 1 - age as u64)
    }

    /// A file, which had this rank, is used, so far.
    #[inline]
    pub(crate) fn used(&mut self, file: FileId, rank: u64, extent: Extent) {
        if rank > 0 {
            self.bring_up(file, rank);
        }
        self.recent[0].1 = extent;
    }

    /// Makes a file the last used.
    fn bring_up(&mut self, file: FileId, rank: u64) {
        if rank < FAR {
            return self.recent[..=rank as usize].rotate_right(1);
        }
        if self.older.remove(&file).is_none() {
            self.comes_up(file);
        }
        self.recent.insert(0, (file, Extent::default()));
        self.retire();
    }

    fn comes_up(&mut self, file: FileId) {
        if self.newest.len() == NEWEST_MAX {
            self.newest.pop_front();
        }
        self.newest.push_back(file);
        self.came_up += 1;
    }

    /// Bytes of memory beyond itself.
    pub(crate) fn memory(&self) -> usize {
        let entry = size_of::<(FileId, Extent)>();
        self.recent.capacity() * entry
            + self.older.capacity() * (entry + 1)
            + self.newest.capacity() * size_of::<FileId>()
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

/// What a cursor has changed on top of what the model knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ahead {
    /// Files that the cursor has used and how far, the last used first.
    used: SmallVec<[(PredictedFile, Extent); 4]>,
    new: u32,
}

impl Ahead {
    /// The file of a rank, counting what the cursor has used.
    #[inline]
    pub(crate) fn at(&self, files: &Files, rank: u64) -> Option<PredictedFile> {
        let used = self.used.len() as u64;
        if rank < used {
            return Some(self.used[rank as usize].0);
        }
        let names = files.recent.iter().map(|f| PredictedFile::Known(f.0));
        let mut unused = names.filter(|name| self.used.iter().all(|u| u.0 != *name));
        unused.nth(usize::try_from(rank - used).ok()?)
    }

    /// A file that nobody has seen yet.
    pub(crate) fn fresh(&mut self) -> PredictedFile {
        self.new += 1;
        PredictedFile::New(self.new - 1)
    }

    pub(crate) fn extent(&self, files: &Files, name: PredictedFile) -> Extent {
        if let Some((_, extent)) = self.used.iter().find(|u| u.0 == name) {
            return *extent;
        }
        match name {
            PredictedFile::Known(file) => files.extent(file),
            PredictedFile::New(_) => Extent::default(),
        }
    }

    #[inline]
    pub(crate) fn use_file(&mut self, name: PredictedFile, extent: Extent) {
        match self.used.first_mut() {
            Some(first) if first.0 == name => first.1 = extent,
            _ => self.bring_up(name, extent),
        }
    }

    /// Makes another file the last used.
    fn bring_up(&mut self, name: PredictedFile, extent: Extent) {
        match self.used.iter().position(|u| u.0 == name) {
            Some(at) => self.used[..=at].rotate_right(1),
            None => {
                // As many as the model tells apart by how recently they were used.
                self.used.truncate(RECENT_MAX - 1);
                self.used.insert(0, (name, extent));
            }
        }
        self.used[0].1 = extent;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn up_to(position: u64) -> Extent {
        Extent::default().after(Action::Write, 0, position)
    }

    fn use_file(files: &mut Files, file: u64, extent: Extent) {
        let rank = files.look_up(FileId(file)).rank;
        files.used(FileId(file), rank, extent);
    }

    #[test]
    fn ranks_count_the_files_used_since() {
        let mut files = Files::default();
        assert_eq!(files.look_up(FileId(1)).rank, NEW);
        (1..=3).for_each(|f| use_file(&mut files, f, up_to(f * 10)));
        let ranks: Vec<u64> = (1..=3).map(|f| files.look_up(FileId(f)).rank).collect();
        assert_eq!(ranks, [2, 1, 0]);
        use_file(&mut files, 1, up_to(5));
        assert_eq!(
            (files.look_up(FileId(1)).rank, files.extent(FileId(1))),
            (0, up_to(5))
        );
    }

    #[test]
    fn files_are_numbered_as_they_come_up() {
        let mut files = Files::default();
        for file in [7, 9, 7] {
            use_file(&mut files, file, up_to(1));
        }
        assert_eq!(files.came_up(), 2);
        let numbers = [7, 9, 11].map(|f| files.number(FileId(f)));
        assert_eq!(numbers, [Some(0), Some(1), Some(2)]);
    }

    #[test]
    fn what_failed_or_was_cut_off_does_not_move_the_end() {
        let extent = up_to(100).after(Action::Seek, 500, 0);
        assert_eq!((extent.position, extent.end), (500, 100));
        let cut = extent.after(Action::Truncate, 40, 0);
        assert_eq!((cut.position, cut.end), (500, 40));
    }

    #[test]
    fn a_cursor_sees_its_own_changes_first() {
        let mut files = Files::default();
        (1..=3).for_each(|f| use_file(&mut files, f, up_to(f * 10)));
        let mut ahead = Ahead::default();
        let second = ahead.at(&files, 1).unwrap();
        assert_eq!(second, PredictedFile::Known(FileId(2)));
        ahead.use_file(second, up_to(99));
        assert_eq!(ahead.at(&files, 0), Some(second));
        assert_eq!(ahead.at(&files, 1), Some(PredictedFile::Known(FileId(3))));
        assert_eq!(ahead.extent(&files, second), up_to(99));
        let new = ahead.fresh();
        assert_eq!(ahead.extent(&files, new), Extent::default());
    }

    #[test]
    fn of_very_many_files_the_recent_ones_are_remembered() {
        let mut files = Files::default();
        (0..2 * KNOWN_MAX as u64).for_each(|f| use_file(&mut files, f, up_to(1)));
        assert!(files.older.len() <= KNOWN_MAX && files.recent.len() == RECENT_MAX);
        assert!(files.knows(FileId(2 * KNOWN_MAX as u64 - 1)));
    }
}
