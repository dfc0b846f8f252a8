//! What a line of strace does not say but a call depends on: which file a descriptor means and where it stands.
//!
//! A task (a thread, or a process with one) has a table of descriptors, which `CLONE_FILES` shares and `fork`
//! copies. A descriptor refers to an open file, which `dup` and `fork` share: its position lives there.

use super::line::Target;
use crate::names::Budget;
use presagio_core::FileId;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// More tasks at a time, or descriptors in their tables, are a sign of damage.
const TASKS_MAX: usize = 1 << 16;
const DESCRIPTORS_MAX: usize = 1 << 22;

/// What `open` made and `dup` shares. The reader is one thread; atomics only let it travel to another.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) file: FileId,
    position: AtomicU64,
    append: AtomicBool,
}

impl OpenFile {
    pub(super) fn new(file: FileId, append: bool) -> Arc<OpenFile> {
        Arc::new(OpenFile {
            file,
            position: AtomicU64::new(0),
            append: AtomicBool::new(append),
        })
    }

    pub(super) fn position(&self) -> u64 {
        self.position.load(Relaxed)
    }

    pub(super) fn seek(&self, position: u64) {
        self.position.store(position, Relaxed);
    }

    pub(super) fn appends(&self) -> bool {
        self.append.load(Relaxed)
    }

    pub(super) fn set_append(&self, append: bool) {
        self.append.store(append, Relaxed);
    }
}

/// A descriptor.
#[derive(Clone, Debug)]
pub(super) struct Descriptor {
    pub(super) open: Arc<OpenFile>,
    pub(super) close_on_exec: bool,
}

/// The descriptors of a task, maybe shared with others.
#[derive(Clone, Debug, Default)]
pub(super) struct Table(Arc<Mutex<BTreeMap<i64, Descriptor>>>);

impl Table {
    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<i64, Descriptor>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A table of its own with the same descriptors.
    fn copy(&self) -> Table {
        Table(Arc::new(Mutex::new(self.lock().clone())))
    }
}

/// A call that has not returned.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) name: Vec<u8>,
    pub(super) text: Vec<u8>,
    pub(super) time: presagio_core::Nanos,
    /// What a pending `close` closes: the number is free for others before the call returns.
    pub(super) closing: Option<Arc<OpenFile>>,
}

/// A thread.
#[derive(Debug)]
pub(super) struct Task {
    /// A key of [`World::processes`].
    pub(super) process: u32,
    pub(super) table: Table,
    pub(super) pending: Option<Pending>,
}

/// A process: its tasks share these.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    pub(super) pid: Option<u32>,
    pub(super) command: Option<Arc<str>>,
    pub(super) directory: Option<Arc<[u8]>>,
    /// Its record has been handed out, and nothing has changed since.
    pub(super) defined: bool,
    /// How many it has.
    pub(super) tasks: usize,
}

/// A file that occurred.
#[derive(Debug)]
struct Known {
    /// What the file is called now; a rename does not make it another one for who has it open.
    path: Arc<[u8]>,
    size: u64,
}

/// All that is known.
#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) tasks: HashMap<u32, Task>,
    /// Those that have tasks.
    pub(super) processes: HashMap<u32, Group>,
    /// How many processes there were.
    begun: u32,
    ids: HashMap<Arc<[u8]>, FileId>,
    files: Vec<Known>,
    budget: Budget,
    /// Why no more can be known, if it cannot.
    pub(super) problem: Option<String>,
}

impl World {
    /// Lets a task begin in a process of its own.
    pub(super) fn begin(&mut self, task: u32, group: Group, table: Table) {
        let process = self.begun;
        self.begun += 1;
        self.processes.insert(process, Group { tasks: 0, ..group });
        self.join(task, process, table);
    }

    /// Lets a task begin in a process that is there.
    pub(super) fn join(&mut self, task: u32, process: u32, table: Table) {
        if self.tasks.len() >= TASKS_MAX {
            self.problem = Some(format!("more than {TASKS_MAX} tasks at a time"));
        }
        if let Some(group) = self.processes.get_mut(&process) {
            group.tasks += 1;
        }
        let pending = None;
        let task_there = Task {
            process,
            table,
            pending,
        };
        self.tasks.insert(task, task_there);
    }

    /// A task is gone, and its process with the last one. The call that it had not finished.
    pub(super) fn exit(&mut self, task: u32) -> Option<Pending> {
        let task = self.tasks.remove(&task)?;
        if let Entry::Occupied(mut group) = self.processes.entry(task.process) {
            group.get_mut().tasks -= 1;
            if group.get().tasks == 0 {
                group.remove();
            }
        }
        task.pending
    }

    /// A table with the same descriptors as that of a task.
    pub(super) fn copy_table(&mut self, task: u32) -> Option<Table> {
        let table = &self.tasks.get(&task)?.table;
        let all = table.lock().len().saturating_mul(self.tasks.len() + 1);
        if all > DESCRIPTORS_MAX {
            self.problem = Some(format!("more than {DESCRIPTORS_MAX} open descriptors"));
            return None;
        }
        Some(table.copy())
    }

    /// The file of this path, and whether that path is new.
    pub(super) fn file(&mut self, path: &[u8]) -> (FileId, Option<Arc<[u8]>>) {
        if let Some(&id) = self.ids.get(path) {
            return (id, None);
        }
        if let Err(problem) = self.budget.take(path.len()) {
            self.problem = Some(problem);
        }
        let path: Arc<[u8]> = path.into();
        let id = FileId(self.files.len() as u64);
        self.ids.insert(path.clone(), id);
        self.files.push(Known {
            path: path.clone(),
            size: 0,
        });
        (id, Some(path))
    }

    /// The file keeps its number with who has it open, and whoever opens the new name gets that one's.
    pub(super) fn rename(&mut self, from: FileId, to: FileId, path: &[u8]) {
        let size = self.size(from);
        self.set_size(to, size);
        self.set_size(from, 0);
        if let Some(known) = self.files.get_mut(from.0 as usize) {
            known.path = path.into();
        }
    }

    /// How long the file is, as far as one could see.
    pub(super) fn size(&self, file: FileId) -> u64 {
        self.files
            .get(file.0 as usize)
            .map_or(0, |known| known.size)
    }

    pub(super) fn set_size(&mut self, file: FileId, size: u64) {
        if let Some(known) = self.files.get_mut(file.0 as usize) {
            known.size = size;
        }
    }

    pub(super) fn grow(&mut self, file: FileId, end: u64) {
        self.set_size(file, end.max(self.size(file)));
    }

    /// The open file behind a descriptor, if we know it and the path beside the descriptor agrees.
    pub(super) fn open(&self, task: u32, fd: i64, target: &Target) -> Option<Arc<OpenFile>> {
        let table = &self.tasks.get(&task)?.table;
        let open = table.lock().get(&fd)?.open.clone();
        let known = self.files.get(open.file.0 as usize)?;
        match target {
            Target::Unsaid => Some(open),
            Target::Path(path) => {
                // A file keeps its number when it is renamed, and one that gets the old name then has it too.
                let named =
                    known.path[..] == path[..] || self.ids.get(&path[..]) == Some(&open.file);
                named.then_some(open)
            }
            Target::Other => None,
        }
    }

    pub(super) fn group(&self, task: u32) -> Option<&Group> {
        self.processes.get(&self.tasks.get(&task)?.process)
    }

    pub(super) fn group_mut(&mut self, task: u32) -> Option<&mut Group> {
        self.processes.get_mut(&self.tasks.get(&task)?.process)
    }
}

/// `path` as seen from `directory`, without `.` and `..`; links are taken for what they are called.
pub(super) fn join(directory: Option<&[u8]>, path: &[u8]) -> Vec<u8> {
    let base = match directory {
        Some(directory) if !path.starts_with(b"/") => directory,
        _ => b"",
    };
    let absolute = base.starts_with(b"/") || path.starts_with(b"/");
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in base.split(|&b| b == b'/').chain(path.split(|&b| b == b'/')) {
        match part {
            b"" | b"." => {}
            b".." if absolute => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    let mut joined = if absolute { b"/".to_vec() } else { Vec::new() };
    joined.extend(parts.join(&b'/'));
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_joined_as_the_system_would() {
        let join = |directory: &str, path: &str| {
            String::from_utf8(join(Some(directory.as_bytes()), path.as_bytes())).unwrap()
        };
        assert_eq!(join("/a/b", "c"), "/a/b/c");
        assert_eq!(join("/a/b", "../c/./d"), "/a/c/d");
        assert_eq!(join("/a/b", "/c//d"), "/c/d");
        assert_eq!(join("/", "../../c"), "/c");
        assert_eq!(super::join(None, b"../c"), b"../c");
    }
}
