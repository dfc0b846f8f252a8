//! What a program did to a file: the word that recordings, readers of other tools' traces, and the model that
//! predicts the next operation share.

use crate::{FileId, Nanos};
use std::fmt;

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Action {
    /// A file was opened. `len` has the Linux open flags of the call, 0 where they are not known.
    Open = 0,
    /// A file was closed.
    Close = 1,
    /// Bytes were read at `offset`.
    Read = 2,
    /// Bytes were written at `offset`.
    Write = 3,
    /// The position was moved; `offset` is the new one.
    Seek = 4,
    /// Written bytes were made durable.
    Sync = 5,
    /// The file got the size `offset`.
    Truncate = 6,
    /// Space was reserved at `offset`.
    Allocate = 7,
    /// A part of the file was mapped into memory.
    Map = 8,
    /// The file lost its name.
    Remove = 9,
}

impl Action {
    /// All of them, in the order of their numbers.
    pub const ALL: [Action; 10] = [
        Action::Open,
        Action::Close,
        Action::Read,
        Action::Write,
        Action::Seek,
        Action::Sync,
        Action::Truncate,
        Action::Allocate,
        Action::Map,
        Action::Remove,
    ];

    /// Its name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Action::Open => "open",
            Action::Close => "close",
            Action::Read => "read",
            Action::Write => "write",
            Action::Seek => "seek",
            Action::Sync => "sync",
            Action::Truncate => "truncate",
            Action::Allocate => "allocate",
            Action::Map => "map",
            Action::Remove => "remove",
        }
    }

    /// The action of this name.
    pub fn from_name(name: &str) -> Option<Action> {
        Action::ALL.into_iter().find(|a| a.name() == name)
    }

    /// The action of this number.
    pub fn from_number(number: u8) -> Option<Action> {
        Action::ALL.get(number as usize).copied()
    }

    /// Whether it moves bytes of the file.
    pub const fn is_transfer(self) -> bool {
        matches!(self, Action::Read | Action::Write)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Where an operation was seen. The same bytes can be seen at several: an MPI-IO write becomes POSIX writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Layer {
    /// System calls, or the functions of the C library that make them.
    #[default]
    Posix = 0,
    /// Calls of MPI-IO.
    MpiIo = 1,
    /// Requests that reached a server or an I/O node.
    Server = 2,
}

impl Layer {
    /// All of them, in the order of their numbers.
    pub const ALL: [Layer; 3] = [Layer::Posix, Layer::MpiIo, Layer::Server];

    /// Its name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Layer::Posix => "posix",
            Layer::MpiIo => "mpiio",
            Layer::Server => "server",
        }
    }

    /// The layer of this name.
    pub fn from_name(name: &str) -> Option<Layer> {
        Layer::ALL.into_iter().find(|l| l.name() == name)
    }

    /// The layer of this number.
    pub fn from_number(number: u8) -> Option<Layer> {
        Layer::ALL.get(number as usize).copied()
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The call stack from which an operation was issued, as a number that its recording gave it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContextId(pub u32);

impl ContextId {
    /// The call stack is not known.
    pub const UNKNOWN: ContextId = ContextId(0);
}

/// One operation of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it began, since the start of the recording.
    pub time: Nanos,
    /// How long it took.
    pub duration: Nanos,
    /// The process that issued it, as a number of its recording.
    pub process: u32,
    /// The thread within that process, as a number of its recording.
    pub thread: u32,
    /// The file.
    pub file: FileId,
    /// What was done.
    pub action: Action,
    /// Where it was seen.
    pub layer: Layer,
    /// The call stack that it came from.
    pub context: ContextId,
    /// See [`Action`].
    pub offset: u64,
    /// The bytes asked for.
    pub len: u64,
    /// The bytes moved by a transfer, 0 for other actions; or the negated error number.
    pub result: i64,
}

impl Event {
    /// When it ended.
    pub fn end(&self) -> Nanos {
        self.time + self.duration
    }

    /// The bytes that were really moved.
    pub fn moved(&self) -> u64 {
        if self.action.is_transfer() {
            u64::try_from(self.result).unwrap_or(0)
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_lead_back_to_what_they_name() {
        for (number, action) in Action::ALL.into_iter().enumerate() {
            assert_eq!(action as usize, number);
            assert_eq!(Action::from_number(number as u8), Some(action));
            assert_eq!(Action::from_name(action.name()), Some(action));
        }
        for (number, layer) in Layer::ALL.into_iter().enumerate() {
            assert_eq!(layer as usize, number);
            assert_eq!(Layer::from_number(number as u8), Some(layer));
            assert_eq!(Layer::from_name(layer.name()), Some(layer));
        }
        assert_eq!(Action::from_number(Action::ALL.len() as u8), None);
        assert_eq!(Layer::from_number(Layer::ALL.len() as u8), None);
    }
}
