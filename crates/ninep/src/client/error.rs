//! Why a request got no answer.

use crate::error::{Reason, WireError};
use crate::ids::{Errno, Kind, Tag};
use std::io;
use std::sync::Arc;

/// Why a request failed. Where it says `sent`, that is whether the whole frame left the machine: if not, the server
/// cannot have done it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server says no.
    #[error("the server answers: {0}")]
    Server(Errno),
    /// No answer within the time of the request. The client has asked the server to forget it.
    #[error("no answer in time (the request was {})", if *.sent { "sent" } else { "not sent" })]
    TimedOut {
        /// Whether the server may have done it.
        sent: bool,
    },
    /// The connection is gone, and with it all its requests.
    #[error("the connection is lost: {why}")]
    Lost {
        /// Whether the server may have done it.
        sent: bool,
        /// What happened to the connection.
        why: Arc<Lost>,
    },
    /// As many requests as may be are under way: collect some.
    #[error("{0} requests are under way, and that is the limit: collect some first")]
    Full(usize),
    /// The request, or the reply that it asks for, does not fit into a frame of the agreed size.
    #[error("a frame of {size} bytes, where {msize} were agreed on")]
    TooLarge {
        /// What it needs.
        size: usize,
        /// What was agreed on.
        msize: u32,
    },
    /// There is no credential to prove who we are with.
    #[error("no credential: {0}")]
    Credential(Arc<io::Error>),
    /// A name or a payload that no request can carry.
    #[error("an argument {0}")]
    Argument(#[from] Reason),
    /// The memory to read into cannot be written, or that to write from cannot be read.
    #[error("the memory for the data is not there")]
    Fault,
}

impl Error {
    /// Whether the server may have done what was asked, so that asking again could do it twice.
    pub fn may_have_happened(&self) -> bool {
        matches!(
            self,
            Error::TimedOut { sent: true } | Error::Lost { sent: true, .. }
        )
    }

    /// The errno to hand to a program.
    pub fn errno(&self) -> Errno {
        match self {
            Error::Server(errno) => *errno,
            Error::TimedOut { .. } => Errno(110),
            Error::Lost { .. } => Errno::IO,
            Error::Full(_) => Errno::AGAIN,
            Error::Credential(_) => Errno::ACCES,
            Error::TooLarge { .. } | Error::Argument(_) => Errno::INVAL,
            Error::Fault => Errno(14),
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        match error {
            Error::Server(errno) => errno.into(),
            other => io::Error::new(io::Error::from(other.errno()).kind(), other),
        }
    }
}

/// What ended a connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Lost {
    /// It could not be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The server closed it.
    #[error("the server closed it")]
    Closed,
    /// We closed it.
    #[error("it was closed here")]
    ClosedHere,
    /// The server sent something that is no message.
    #[error("the server sent a malformed frame: {0}")]
    Malformed(#[from] WireError),
    /// The server answered what nobody asked.
    #[error("the server sent {kind} with {tag}, which nobody waits for")]
    NotAsked {
        /// The type of the reply.
        kind: Kind,
        /// Its tag.
        tag: Tag,
    },
    /// The server answered another question.
    #[error("the server sent {got} with {tag}, where {wanted} was due")]
    OtherKind {
        /// The tag.
        tag: Tag,
        /// The type of the reply.
        got: Kind,
        /// The type that the request asks for.
        wanted: Kind,
    },
    /// The server sent more data than was asked for.
    #[error("the server sent {got} bytes of data with {tag}, and {limit} were asked for")]
    TooMuch {
        /// The tag.
        tag: Tag,
        /// How many came.
        got: u32,
        /// How many were asked for.
        limit: u32,
    },
    /// The two sides have no protocol in common.
    #[error("the server does not speak 9P2000.L with frames of 4096 bytes or more: {0}")]
    NoCommonVersion(String),
    /// No answer to the first message.
    #[error("the server did not answer the first message in time")]
    Silent,
}

/// Whether the kernel could not get at the memory that it was given: then nothing was moved, and the connection is fine.
pub(super) fn is_fault(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::FAULT.raw_os_error())
}
