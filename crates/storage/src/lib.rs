//! Where an I/O node keeps the bytes of files, and which data server each byte lives on.
//!
//! The node works on a *namespace*: a directory of a mounted file system, with its names, owners and permissions. A
//! [`Storage`] says where the bytes of its regular files are:
//!
//! * [`Directory`]: in those files themselves.
//! * [`Located`]: in those files too, but a parallel file system keeps them, and which of its servers has which bytes
//!   is known.
//! * [`Striped`]: in objects, one on each data server, with stripes of the file in turn.
//! * [`Direct`]: in those files too, but past the page cache.
//! * [`Emulated`]: wherever another storage has them, but as slowly as on a given device.
//!
//! How a read travels: the node has opened the file in the namespace as its client may, and gave the descriptor to
//! [`Storage::open`]. [`Bytes::pieces`] splits the range at the borders of data servers; each piece goes through the
//! scheduler on its own, and comes back as [`Bytes::read_now`], which never waits, or [`Bytes::read`], which may.
//!
//! *Invariants.* Nothing is kept here that the file system below does not have: what `write` has returned is in it.
//! Permissions are not looked at: who has [`Bytes`] was allowed to open the file.

#![forbid(unsafe_code)]

mod direct;
mod directory;
mod emulated;
#[doc(hidden)]
pub mod fuzzing;
mod layout;
mod located;
mod striped;
mod text;

pub use direct::Direct;
pub use directory::Directory;
pub use emulated::{APART, Counters, Emulated};
pub use layout::{Configured, First, LayoutError};
pub use located::{FileSystem, LayoutSource, Located, Problems};
pub use striped::{SetError, Striped, StripedSet};

use presagio_core::{QueueId, Range};
use smallvec::SmallVec;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// What keeps the bytes of a namespace's regular files.
pub trait Storage: Send + Sync {
    /// Whether the bytes are in files of the node's own, which its clients' users have no rights to: then the calls here
    /// and those of [`Bytes`] have to be made as the node.
    fn is_private(&self) -> bool {
        false
    }

    /// How many data servers there are: the queue of a [`Piece`] is less.
    fn servers(&self) -> u32;

    /// The bytes of a file of the namespace. `opened` was opened for `access`, without `O_APPEND` and without `O_TRUNC`.
    fn open(&self, opened: OwnedFd, access: Access) -> io::Result<Arc<dyn Bytes>>;

    /// A regular file was created in the namespace, nobody else has seen it yet, and this is how it was opened.
    fn created(&self, opened: BorrowedFd<'_>) -> io::Result<()>;

    /// How large the file of `name`, an `O_PATH` descriptor, is; `None` if it is as the namespace says.
    fn size(&self, name: BorrowedFd<'_>) -> io::Result<Option<Size>>;

    /// The file of `name`, an `O_PATH` descriptor, has no other name, will lose that one now, and nobody has it open.
    fn removed(&self, name: BorrowedFd<'_>) -> io::Result<()>;
}

/// What a file was opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Its bytes may be read.
    pub read: bool,
    /// They may be changed.
    pub write: bool,
}

/// How much there is of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Its length.
    pub bytes: u64,
    /// Blocks of 512 bytes that it takes.
    pub blocks: u64,
}

/// A part of a range that lies on one data server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which of the file's objects it is in: files that are not striped have one, the first.
    pub object: u16,
    /// The data server.
    pub queue: QueueId,
    /// Where it lies within the object. Pieces that touch here can be served by one call.
    pub range: Range,
}

/// Pieces of a range, in the order of the file's bytes; together they are as long as the range.
pub type Pieces = SmallVec<[Piece; 2]>;

/// How durable [`Bytes::sync`] makes a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    /// What was written can be read again.
    Data,
    /// And all attributes.
    All,
}

/// What could be read without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// So many bytes.
    pub bytes: usize,
    /// If fewer than asked for: the file ends there. Else the rest has to be waited for.
    pub end: bool,
}

/// The bytes of an open file. All calls may come from many threads at once.
pub trait Bytes: Send + Sync {
    /// Splits a range of the file.
    fn pieces(&self, range: Range) -> Pieces;

    /// Which data servers a range of an object lies on: the range of a piece is its place among all bytes that its server
    /// has of the file. Files with more than one object, or whose servers keep their parts closer together, say so.
    fn places(&self, object: u16, range: Range) -> Pieces {
        debug_assert_eq!(object, 0, "this file has one object");
        self.pieces(range)
    }

    /// Reads from an object what can be had without waiting; `WouldBlock` if nothing can, `Unsupported` if nobody can tell: then a
    /// ring is of no use either.
    fn read_now(&self, object: u16, offset: u64, to: &mut [IoSliceMut<'_>]) -> io::Result<Now>;

    /// Reads from an object. Fewer bytes than asked for, or none, mean that the *file* ends there: what is missing of an
    /// object within the file reads as zeros.
    fn read(&self, object: u16, offset: u64, to: &mut [IoSliceMut<'_>]) -> io::Result<usize>;

    /// Writes to an object; may write less, but not nothing.
    fn write(&self, object: u16, offset: u64, from: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Writes at the end of the file, as one step: nothing of another append comes between. May write less.
    fn append(&self, from: &[u8]) -> io::Result<usize>;

    /// How large the file is now; `None` if it is as the namespace's own file says.
    fn size(&self) -> io::Result<Option<Size>>;

    /// Cuts or extends the file.
    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// Makes durable what was written.
    fn sync(&self, how: Durable) -> io::Result<()>;

    /// The descriptor that `read` and `write` of an object come down to, for rings; `None` if there is more to it.
    fn descriptor(&self, object: u16) -> Option<BorrowedFd<'_>>;

    /// The descriptor of the namespace's own file.
    fn name(&self) -> BorrowedFd<'_>;
}
