//! What can be wrong with a trace.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// An error with the file and the position where it was met.
#[derive(Debug, thiserror::Error)]
#[error("{}: {place}: {reason}", path.display())]
pub struct TraceError {
    /// The file.
    pub path: PathBuf,
    /// Where in it.
    pub place: Place,
    /// What is wrong, and what to do about it where we know.
    pub reason: Reason,
}

impl TraceError {
    pub(crate) fn new(path: &Path, place: Place, reason: impl Into<Reason>) -> TraceError {
        TraceError {
            path: path.to_owned(),
            place,
            reason: reason.into(),
        }
    }
}

/// A position in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A byte of a binary file.
    Byte(u64),
    /// A line of a text file, counted from 1.
    Line(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Byte(byte) => write!(f, "byte {byte}"),
            Place::Line(line) => write!(f, "line {line}"),
        }
    }
}

/// What is wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The file could not be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The content is not what its format demands.
    #[error("{0}")]
    Malformed(String),
    /// The content is valid, but of a kind or version that is not supported.
    #[error("{0}")]
    Unsupported(String),
    /// The trace does not say when it began, and has to be laid beside others.
    #[error("it does not say when it began, so nobody knows how its times lie to those of others")]
    NoStart,
}

impl From<String> for Reason {
    /// Most of what is wrong is the content.
    fn from(problem: String) -> Reason {
        Reason::Malformed(problem)
    }
}
