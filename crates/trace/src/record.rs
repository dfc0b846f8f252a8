//! What a trace consists of.

use crate::{Format, TraceError};
use presagio_core::{ContextId, Event, FileId, Nanos};
use std::io;
use std::sync::Arc;

/// One item of a trace. Definitions come before the events that use them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The name of a file: a path, or whatever the recorder knew.
    File {
        /// Its number in this trace.
        id: FileId,
        /// Its name; not always UTF-8, as paths are not.
        name: Arc<[u8]>,
    },
    /// A process.
    Process(Process),
    /// A call stack.
    Context {
        /// Its number in this trace, not 0.
        id: ContextId,
        /// Its frames, innermost first.
        frames: Arc<[Frame]>,
    },
    /// Records were lost here, because whoever recorded could not keep up. Models reset their cursor.
    Gap {
        /// The process that lost them.
        process: u32,
        /// How many, 0 if not known.
        lost: u64,
    },
    /// An operation.
    Event(Event),
}

/// A process of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its number in this trace.
    pub id: u32,
    /// Its process id, if known.
    pub pid: Option<u32>,
    /// Its MPI rank, if known.
    pub rank: Option<u32>,
    /// The machine it ran on, if known.
    pub host: Option<String>,
    /// The program and its arguments, if known.
    pub command: Option<String>,
    /// The moment that its times count from, since 1970 by the clock of its machine, if known.
    pub start: Option<Nanos>,
}

/// One frame of a call stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The file name of the program or library.
    pub module: Arc<str>,
    /// The return address, from where that module begins.
    pub offset: u64,
    /// The function, if known.
    pub symbol: Option<Arc<str>>,
}

/// A reader of a trace in some format, or something that passes on what another reads.
pub trait Source: Iterator<Item = Result<Record, TraceError>> {
    /// The source behind this one, if there is one: it answers what this one does not.
    fn behind(&self) -> Option<&dyn Source> {
        None
    }

    /// How many bytes of the input have been read, and how many there are, if known: for a progress bar.
    fn progress(&self) -> (u64, Option<u64>) {
        self.behind().map_or((0, None), |source| source.progress())
    }

    /// Why the trace ended before its end, if it did: its recorder was killed, say. All records up to there
    /// are good, so this is no error of the iterator; known once that has returned `None`.
    fn cut_short(&self) -> Option<&TraceError> {
        self.behind()?.cut_short()
    }

    /// The format that is read, where it is one.
    fn format(&self) -> Option<Format> {
        self.behind()?.format()
    }

    /// What one should know before trusting the trace: its recorder ran out of memory, say. Complete once the
    /// iterator has returned `None`.
    fn warnings(&self) -> Vec<String> {
        self.behind()
            .map_or_else(Vec::new, |source| source.warnings())
    }
}

impl Source for Box<dyn Source + Send> {
    fn behind(&self) -> Option<&dyn Source> {
        Some(&**self)
    }
}

/// A writer of a trace in some format.
pub trait Sink {
    /// Adds a record. After an error the trace is given up, and whatever follows is an error too.
    fn write(&mut self, record: &Record) -> io::Result<()>;

    /// Completes the trace. One that was not finished is cut short.
    fn finish(&mut self) -> io::Result<()>;
}
