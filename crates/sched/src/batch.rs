//! What comes out of a scheduler: batches of requests, and the handles to talk about them.

use presagio_core::{FileId, Nanos, Op, Range, Request};
use smallvec::SmallVec;

/// The scheduler's handle of a submitted request, valid until it is finished or cancelled.
///
/// Handles of requests that are gone are recognised (until their place has been used 2³² times since).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// One request of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The handle to finish it with.
    pub ticket: Ticket,
    /// The request as it was submitted.
    pub request: Request,
}

/// Requests to be served together: one file, one operation, contiguous, in offset order.
///
/// Each part is finished on its own, in any order and whatever becomes of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    pub(crate) parts: SmallVec<[Part; 1]>,
}

impl Batch {
    /// The requests, in offset order; there is at least one.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The file of all parts.
    pub fn file(&self) -> FileId {
        self.parts[0].request.file
    }

    /// The operation of all parts.
    pub fn op(&self) -> Op {
        self.parts[0].request.op
    }

    /// The bytes of all parts together.
    pub fn range(&self) -> Range {
        let start = self.parts[0].request.range.start();
        let end = self.parts[self.parts.len() - 1].request.range.end();
        Range::at(start, end - start)
    }
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Serve this batch.
    Dispatch(Batch),
    /// Nothing to do before this moment, unless a request arrives or finishes.
    WaitUntil(Nanos),
    /// Nothing to do until a request arrives or finishes.
    Idle,
}
