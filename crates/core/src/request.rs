//! The request: what travels through every scheduler.

use crate::{AppId, FileId, HandleId, Nanos, QueueId, Range, RequestId};
use std::fmt;

/// What a request does with its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// From the file to the client.
    Read,
    /// From the client to the file.
    Write,
}

impl Op {
    /// Both operations, in the order of [`Op::index`].
    pub const ALL: [Op; 2] = [Op::Read, Op::Write];

    /// 0 for reads, 1 for writes.
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Op::Read => "read",
            Op::Write => "write",
        })
    }
}

/// One read or write of a byte range. Small and copied freely; the bytes stay with the submitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// The submitter's own name for it.
    pub id: RequestId,
    /// The file.
    pub file: FileId,
    /// The bytes of the file.
    pub range: Range,
    /// When it arrived.
    pub arrival: Nanos,
    /// Its data server (TWINS) or weight class (WFQ); 0 where that means nothing.
    pub queue: QueueId,
    /// The application that issued it (SW); 0 where unknown.
    pub app: AppId,
    /// The open file that it came through; 0 where unknown.
    pub handle: HandleId,
    /// Read or write.
    pub op: Op,
}

impl Request {
    /// A request of queue 0, application 0 and an unknown handle that arrives at time 0; set the fields to change that.
    pub const fn new(id: RequestId, file: FileId, op: Op, range: Range) -> Request {
        Request {
            id,
            file,
            range,
            arrival: Nanos::ZERO,
            queue: QueueId(0),
            app: AppId(0),
            handle: HandleId(0),
            op,
        }
    }
}
