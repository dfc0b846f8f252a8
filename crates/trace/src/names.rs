//! Numbers for names, for formats that name the file in every line; and names by number, for writers of such.

use crate::{Frame, Process, Record};
use presagio_core::{ContextId, FileId};
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

/// All definitions of a trace together take no more memory than this.
pub(crate) const DEFINITION_BYTES_MAX: usize = 256 << 20;

/// What a definition takes beside its bytes.
const OVERHEAD_BYTES: usize = 100;

/// An allowance for definitions.
#[derive(Debug)]
pub(crate) struct Budget {
    bytes_left: usize,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget {
            bytes_left: DEFINITION_BYTES_MAX,
        }
    }
}

impl Budget {
    #[cfg(test)]
    pub fn of(bytes_left: usize) -> Budget {
        Budget { bytes_left }
    }

    /// Takes what a definition of so many bytes needs.
    pub fn take(&mut self, bytes: usize) -> Result<(), String> {
        let left = self
            .bytes_left
            .checked_sub(bytes.saturating_add(OVERHEAD_BYTES));
        self.bytes_left = left.ok_or_else(|| {
            let most = DEFINITION_BYTES_MAX >> 20;
            format!(
                "the names of files and call stacks take more than {most} MiB: this is no trace"
            )
        })?;
        Ok(())
    }

    /// A definition of so many bytes is no longer needed.
    pub fn give_back(&mut self, bytes: usize) {
        self.bytes_left += bytes + OVERHEAD_BYTES;
    }
}

/// Gives every name a number, in the order of their first use. The hasher is the standard one, which no input
/// can make slow.
#[derive(Debug, Default)]
pub(crate) struct Names {
    ids: HashMap<Arc<[u8]>, FileId>,
    budget: Budget,
}

impl Names {
    /// The number of a name, and its definition if it is new.
    pub fn intern(&mut self, name: &[u8]) -> Result<(FileId, Option<Record>), String> {
        if let Some(id) = self.ids.get(name) {
            return Ok((*id, None));
        }
        self.budget.take(name.len())?;
        let id = FileId(self.ids.len() as u64);
        let name: Arc<[u8]> = name.into();
        self.ids.insert(name.clone(), id);
        Ok((id, Some(Record::File { id, name })))
    }
}

/// What a trace has defined so far. Its numbers are the input's choice, hence the standard hasher here too.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub files: HashMap<u64, Arc<[u8]>>,
    pub processes: HashMap<u32, Process>,
    pub contexts: HashMap<u32, Arc<[Frame]>>,
    budget: Budget,
}

impl Known {
    /// Learns a definition. Whether it was new, or differs from what was known.
    pub fn learn(&mut self, record: &Record) -> Result<bool, String> {
        let is_known = match record {
            Record::File { id, name } => self.files.get(&id.0) == Some(name),
            Record::Process(process) => self.processes.get(&process.id) == Some(process),
            Record::Context { id, frames } => self.contexts.get(&id.0) == Some(frames),
            Record::Gap { .. } | Record::Event(_) => true,
        };
        if !is_known {
            self.budget.take(bytes_of(record))?;
            let before = self.insert(record);
            before
                .iter()
                .for_each(|record| self.budget.give_back(bytes_of(record)));
        }
        Ok(!is_known)
    }

    /// Keeps a definition. The one that it replaces.
    fn insert(&mut self, record: &Record) -> Option<Record> {
        match record.clone() {
            Record::File { id, name } => {
                let before = self.files.insert(id.0, name);
                before.map(|name| Record::File { id, name })
            }
            Record::Process(p) => self.processes.insert(p.id, p).map(Record::Process),
            Record::Context { id, frames } => {
                let before = self.contexts.insert(id.0, frames);
                before.map(|frames| Record::Context { id, frames })
            }
            Record::Gap { .. } | Record::Event(_) => None,
        }
    }

    /// The name of a file, empty if it has none.
    pub fn file(&self, id: FileId) -> &[u8] {
        self.files.get(&id.0).map_or(&[], |name| name)
    }

    /// The call stack of a context, empty if it has none.
    pub fn frames(&self, id: ContextId) -> &[Frame] {
        self.contexts.get(&id.0).map_or(&[], |frames| frames)
    }
}

/// Tells apart what a trace calls by the same number, one after the other: for who brings definitions to the front.
#[derive(Debug)]
pub(crate) struct Apart<T> {
    numbers: HashMap<(u64, T), u64>,
    taken: HashSet<u64>,
    /// Where a number now means something else than at first.
    now: HashMap<u64, u64>,
    /// The numbers from here on were looked at when a free one was needed.
    free: u64,
}

impl<T: Eq + Hash> Apart<T> {
    /// Numbers that nobody uses are looked for from `numbers_max` downwards.
    pub fn new(numbers_max: u64) -> Apart<T> {
        Apart {
            numbers: HashMap::new(),
            taken: HashSet::new(),
            now: HashMap::new(),
            free: numbers_max,
        }
    }

    /// From here on `id` means `what`. The number for that, if it is new.
    pub fn define(&mut self, id: u64, what: T) -> Option<u64> {
        let key = (id, what);
        let known = self.numbers.get(&key).copied();
        let number = known.unwrap_or_else(|| self.free_number(id));
        match number == id {
            true => self.now.remove(&id),
            false => self.now.insert(id, number),
        };
        if known.is_some() {
            return None;
        }
        self.numbers.insert(key, number);
        self.taken.insert(number);
        Some(number)
    }

    fn free_number(&mut self, id: u64) -> u64 {
        let mut number = id;
        while self.taken.contains(&number) {
            number = self.free;
            self.free -= 1;
        }
        number
    }

    /// The number for what `id` means now.
    pub fn number(&self, id: u64) -> u64 {
        self.now.get(&id).copied().unwrap_or(id)
    }
}

/// About how much memory a definition takes.
pub(crate) fn bytes_of(record: &Record) -> usize {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    match record {
        Record::File { name, .. } => name.len(),
        Record::Process(process) => text(&process.host) + text(&process.command),
        Record::Context { frames, .. } => frames.iter().map(bytes_of_frame).sum(),
        Record::Gap { .. } | Record::Event(_) => 0,
    }
}

fn bytes_of_frame(frame: &Frame) -> usize {
    let symbol = frame.symbol.as_ref().map_or(0, |symbol| symbol.len());
    OVERHEAD_BYTES + frame.module.len() + symbol
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_defined_once() {
        let mut names = Names::default();
        let (a, first) = names.intern(b"a").unwrap();
        let (b, _) = names.intern(b"b").unwrap();
        assert_ne!(a, b);
        assert!(matches!(first, Some(Record::File { id, .. }) if id == a));
        assert_eq!(names.intern(b"a").unwrap(), (a, None));
    }

    #[test]
    fn a_number_may_change_its_meaning_as_often_as_it_likes() {
        let mut known = Known {
            budget: Budget::of(1000),
            ..Known::default()
        };
        for name in [b"a", b"b"].repeat(100) {
            let id = FileId(1);
            let name: Arc<[u8]> = Arc::from(&name[..]);
            assert_eq!(known.learn(&Record::File { id, name }), Ok(true));
        }
    }

    #[test]
    fn names_do_not_take_memory_without_end() {
        let mut names = Names {
            budget: Budget::of(1000),
            ..Names::default()
        };
        let all = (0..100u32).map(|n| names.intern(&n.to_le_bytes()).map(drop));
        let good = all.take_while(Result::is_ok).count();
        assert_eq!(good, 1000 / (OVERHEAD_BYTES + 4));
        assert!(names.intern(&0u32.to_le_bytes()).is_ok());
    }
}
