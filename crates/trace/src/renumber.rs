//! The numbers of several traces become those of one: a file is the same if its name is, a call stack if its frames
//! are. Both merging and joining need that.

use crate::names::{Budget, bytes_of};
use crate::{Frame, Process, Record};
use presagio_core::{ContextId, Event, FileId, Nanos};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The names of all traces, and how the current one's numbers become those of the result.
#[derive(Debug, Default)]
pub(crate) struct Renumber {
    files: HashMap<Arc<[u8]>, FileId>,
    contexts: HashMap<Arc<[Frame]>, ContextId>,
    processes: BTreeMap<u32, Process>,
    /// Whether processes of different traces are different ones; else those of the same number are the same.
    processes_apart: bool,
    budget: Budget,
    budget_here: Budget,
    file_here: HashMap<FileId, FileId>,
    context_here: HashMap<ContextId, ContextId>,
    process_here: HashMap<u32, u32>,
    /// The last file asked for: most events are on the same one as the event before.
    last_file: Option<(FileId, FileId)>,
}

impl Renumber {
    pub fn with_processes_apart() -> Renumber {
        Renumber {
            processes_apart: true,
            ..Renumber::default()
        }
    }

    /// The next trace has numbers of its own.
    pub fn begin(&mut self) {
        self.budget_here = Budget::default();
        self.file_here.clear();
        self.context_here.clear();
        self.process_here.clear();
        self.last_file = None;
    }

    pub fn define(&mut self, definition: Record) -> Result<(), String> {
        self.budget_here.take(0)?;
        let bytes = bytes_of(&definition);
        match definition {
            Record::File { id, name } => {
                let merged = self.file(name)?;
                self.file_here.insert(id, merged);
                self.last_file = None;
            }
            Record::Context { id, frames } => {
                let merged = self.context(frames, bytes)?;
                self.context_here.insert(id, merged);
            }
            Record::Process(process) => {
                self.budget.take(bytes)?;
                let id = self.process(process.id)?;
                self.processes.insert(id, Process { id, ..process });
            }
            Record::Gap { .. } | Record::Event(_) => {}
        }
        Ok(())
    }

    fn file(&mut self, name: Arc<[u8]>) -> Result<FileId, String> {
        if let Some(id) = self.files.get(&name) {
            return Ok(*id);
        }
        self.budget.take(name.len())?;
        let id = FileId(self.files.len() as u64);
        self.files.insert(name, id);
        Ok(id)
    }

    fn context(&mut self, frames: Arc<[Frame]>, bytes: usize) -> Result<ContextId, String> {
        if let Some(id) = self.contexts.get(&frames) {
            return Ok(*id);
        }
        self.budget.take(bytes)?;
        let id = ContextId(self.contexts.len() as u32 + 1);
        self.contexts.insert(frames, id);
        Ok(id)
    }

    /// The number of a process in the result.
    pub fn process(&mut self, here: u32) -> Result<u32, String> {
        if !self.processes_apart {
            return Ok(here);
        }
        if let Some(id) = self.process_here.get(&here) {
            return Ok(*id);
        }
        self.budget.take(0)?;
        let id = self.processes.len() as u32;
        self.process_here.insert(here, id);
        let unknown = Process::default();
        self.processes.insert(id, Process { id, ..unknown });
        Ok(id)
    }

    /// When the times of a process of the result begin, if known.
    pub fn start(&self, process: u32) -> Option<Nanos> {
        self.processes.get(&process)?.start
    }

    /// The event with the numbers of the result. A file without a name is called by its number.
    pub fn renamed(&mut self, mut event: Event) -> Result<Event, String> {
        let here = event.file;
        event.file = match self.last_file {
            Some((last, merged)) if last == here => merged,
            _ => self.renamed_file(here)?,
        };
        self.last_file = Some((here, event.file));
        event.process = self.process(event.process)?;
        if event.context != ContextId::UNKNOWN {
            let merged = self.context_here.get(&event.context).copied();
            event.context = merged.unwrap_or(ContextId::UNKNOWN);
        }
        Ok(event)
    }

    fn renamed_file(&mut self, here: FileId) -> Result<FileId, String> {
        if let Some(merged) = self.file_here.get(&here) {
            return Ok(*merged);
        }
        self.budget_here.take(0)?;
        let merged = self.file(format!("file {here}").into_bytes().into())?;
        self.file_here.insert(here, merged);
        Ok(merged)
    }

    /// All definitions of the result, whose times count from `start`.
    pub fn definitions(self, start: Option<Nanos>) -> Vec<Record> {
        let processes = self.processes.into_values();
        let processes = processes.map(|process| Record::Process(Process { start, ..process }));
        let mut files: Vec<_> = self
            .files
            .into_iter()
            .map(|(name, id)| (id, name))
            .collect();
        files.sort_unstable();
        let files = files
            .into_iter()
            .map(|(id, name)| Record::File { id, name });
        let mut contexts: Vec<_> = self.contexts.into_iter().map(|(f, id)| (id, f)).collect();
        contexts.sort_unstable_by_key(|(id, _)| *id);
        let contexts = contexts
            .into_iter()
            .map(|(id, frames)| Record::Context { id, frames });
        processes.chain(files).chain(contexts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames have names of their own: what they take counts, not only how many they are.
    #[test]
    fn call_stacks_do_not_take_memory_without_end() {
        let stack = |id: u32| Record::Context {
            id: ContextId(id),
            frames: [Frame {
                module: format!("{id:010000}").into(),
                offset: 0,
                symbol: None,
            }]
            .into(),
        };
        let mut names = Renumber {
            budget: Budget::of(50_000),
            ..Renumber::default()
        };
        let taken = (0..100).take_while(|id| names.define(stack(*id)).is_ok());
        assert_eq!(taken.count(), 4);
    }
}
