//! What is counted while a trace is read: how long it is, and which files and processes matter.
//!
//! A trace is read once. It comes back in the order of time only when all of it was read, and by then the census says what
//! the axes of all charts are and who is worth a chart of his own. So the second look at each event has fixed bins to
//! go to, and nothing is kept of an event after that.

use presagio_core::{Action, Event, Layer};
use presagio_trace::{Record, Source, TraceError};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// So many files and processes are told apart; what others do is counted in the totals only.
pub(crate) const APART_MAX: usize = 1 << 20;

/// The number of a file in a report: one for each name, or for each number of the trace where there is no name.
#[derive(Debug, Default)]
pub(crate) struct Files {
    by_name: HashMap<Arc<[u8]>, u32>,
    unnamed: HashMap<u64, u32>,
    /// What the numbers of the trace mean now.
    now: HashMap<u64, u32>,
    pub names: Vec<Option<Arc<[u8]>>>,
    last: Option<(u64, u32)>,
}

impl Files {
    /// From here on, `id` is the file of this name.
    pub fn define(&mut self, id: u64, name: &Arc<[u8]>) {
        let fresh = self.names.len() as u32;
        let number = *self.by_name.entry(name.clone()).or_insert(fresh);
        if number == fresh {
            self.names.push(Some(name.clone()));
        }
        self.now.insert(id, number);
        self.last = None;
    }

    /// The number of a file.
    #[inline]
    pub fn number(&mut self, id: u64) -> u32 {
        match self.last {
            Some((last, number)) if last == id => number,
            _ => {
                let number = self.look_up(id);
                self.last = Some((id, number));
                number
            }
        }
    }

    fn look_up(&mut self, id: u64) -> u32 {
        if let Some(number) = self.now.get(&id) {
            return *number;
        }
        let fresh = self.names.len() as u32;
        let number = *self.unnamed.entry(id).or_insert(fresh);
        if number == fresh {
            self.names.push(None);
        }
        number
    }

    /// The trace is looked at again, from its beginning.
    fn begin_again(&mut self) {
        self.now.clear();
        self.last = None;
    }
}

/// What is known of a file before the second look.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FileCount {
    pub bytes: u64,
    pub events: u64,
    pub busy: u64,
    /// Where its last known byte ends.
    pub reach: u64,
}

/// The counts of one layer.
#[derive(Debug, Default)]
pub(crate) struct Layered {
    pub events: u64,
    pub bytes: u64,
    pub busy: u64,
    pub begin: Option<u64>,
    pub end: u64,
    pub files: HashMap<u32, FileCount>,
    pub processes: HashMap<u32, u64>,
    pub is_full: bool,
}

impl Layered {
    fn add(&mut self, event: &Event, file: u32) {
        self.events += 1;
        self.bytes = self.bytes.saturating_add(event.moved());
        self.busy = self.busy.saturating_add(event.duration.0);
        let time = event.time.0;
        self.begin = Some(self.begin.map_or(time, |begin| begin.min(time)));
        self.end = self.end.max(event.end().0);
        match room(&self.files, file) {
            true => self.files.entry(file).or_default().add(event),
            false => self.is_full = true,
        }
        match room(&self.processes, event.process) {
            true => *self.processes.entry(event.process).or_default() += 1,
            false => self.is_full = true,
        }
    }
}

fn room<V>(map: &HashMap<u32, V>, key: u32) -> bool {
    map.len() < APART_MAX || map.contains_key(&key)
}

impl FileCount {
    fn add(&mut self, event: &Event) {
        self.events += 1;
        self.bytes = self.bytes.saturating_add(event.moved());
        self.busy = self.busy.saturating_add(event.duration.0);
        let end = event.offset.saturating_add(event.moved());
        if event.action.is_transfer() && event.result > 0 {
            self.reach = self.reach.max(end);
        }
    }
}

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Census {
    pub layers: [Layered; Layer::ALL.len()],
    pub files: Files,
    pub out_of_order: u64,
    last: u64,
}

impl Census {
    fn take(&mut self, record: &Record) {
        match record {
            Record::File { id, name } => self.files.define(id.0, name),
            Record::Event(event) => {
                let file = self.files.number(event.file.0);
                self.layers[event.layer as usize].add(event, file);
                self.out_of_order += u64::from(event.time.0 < self.last);
                self.last = event.time.0;
            }
            _ => {}
        }
    }

    /// All was read; it comes again from its beginning.
    pub fn begin_again(&mut self) {
        self.files.begin_again();
    }

    /// The layer that a report is about if nobody says which: what reached the system, or else what there is.
    pub fn layer(&self) -> Layer {
        let has = |layer: &Layer| {
            let layered = &self.layers[*layer as usize];
            layered.events > 0
        };
        Layer::ALL.into_iter().find(has).unwrap_or_default()
    }
}

/// A trace whose census is taken while it is read.
pub(crate) struct Counted<'a, S> {
    source: &'a mut S,
    census: Rc<RefCell<Census>>,
}

impl<'a, S: Source> Counted<'a, S> {
    pub fn new(source: &'a mut S) -> (Counted<'a, S>, Rc<RefCell<Census>>) {
        let census = Rc::new(RefCell::new(Census::default()));
        let counted = Counted {
            source,
            census: Rc::clone(&census),
        };
        (counted, census)
    }
}

impl<S: Source> Iterator for Counted<'_, S> {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = self.source.next()?;
        if let Ok(record) = &record {
            self.census.borrow_mut().take(record);
        }
        Some(record)
    }
}

impl<S: Source> Source for Counted<'_, S> {
    fn behind(&self) -> Option<&dyn Source> {
        Some(&*self.source)
    }
}

/// What kind of operation it is, where reads, writes and all others are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Kind {
    Read = 0,
    Write = 1,
    Other = 2,
}

impl Kind {
    pub const COUNT: usize = 3;

    pub fn of(action: Action) -> Kind {
        match action {
            Action::Read => Kind::Read,
            Action::Write => Kind::Write,
            _ => Kind::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_apart_by_name_and_else_by_number() {
        let mut files = Files::default();
        let name = |text: &str| -> Arc<[u8]> { text.as_bytes().into() };
        files.define(1, &name("a"));
        files.define(2, &name("b"));
        files.define(3, &name("a"));
        assert_eq!(files.number(1), files.number(3));
        assert_ne!(files.number(1), files.number(2));
        let unnamed = files.number(9);
        assert_eq!(files.number(9), unnamed);
        assert_eq!(files.names[unnamed as usize], None);
        files.define(1, &name("b"));
        assert_eq!(files.number(1), files.number(2));
        files.begin_again();
        files.define(7, &name("a"));
        assert_eq!(files.number(7), 0);
        assert_eq!(files.number(9), unnamed);
    }
}
