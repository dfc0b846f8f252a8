//! 9P2000.L, the protocol that diod and the Linux kernel speak, and what Presagio adds to it.
//!
//! * **Codec**, without I/O and without copies: a [`Request`] or [`Reply`] is parsed out of a [`Frame`] and borrows
//!   from it; whatever was parsed has been checked, and a [`WireError`] says what was wrong and where. [`Frames`] puts
//!   frames together again from a stream, however it is received. [`version`] is how the two sides agree,
//!   [`extension`] what they may then say.
//! * **[`Client`](client::Client)**: many requests under way at once, from one thread or from many, without a thread of
//!   its own: whoever waits reads, also for the others.
//! * **[`Session`](session::Session)**: files and directories on top of it, for tools and tests.
//!
//! *Invariants.* The codec allocates nothing when it parses. The client never waits without an end, holds a bounded
//! number of requests, and knows of each that failed whether it left the machine. It never reconnects: that is for
//! those above.

#![forbid(unsafe_code)]

mod address;
pub mod client;
mod entries;
mod error;
pub mod extension;
mod field;
mod frame;
#[doc(hidden)]
pub mod fuzzing;
mod ids;
mod message;
pub mod reply;
pub mod request;
#[cfg(test)]
mod sample;
pub mod session;
mod span;
#[cfg(test)]
mod tests;
mod text;
mod values;
pub mod version;

pub use address::{Address, BadAddress};
pub use entries::{Entries, Entry};
pub use error::{Reason, WireError};
pub use field::HEADER;
pub use frame::{Frame, Frames, Head};
pub use ids::{Errno, Fid, Kind, Tag};
pub use reply::Reply;
pub use request::Request;
pub use span::Span;
pub use text::{Data, EntryName, Handle, List, Name, Step, Text};
pub use values::{
    Attr, DataSync, GetAttr, LockFlags, LockStatus, LockType, OpenFlags, Qid, QidKind, SetAttr,
    SetMask, StatFs, Time, UnlinkFlags, XattrFlags,
};
pub use version::Dialect;

/// The largest frame that we take or make.
pub const MSIZE_MAX: u32 = 4 << 20;

/// The smallest msize that is worth a session: Linux asks for as much.
pub const MSIZE_MIN: u32 = 4096;

/// What a read or write leaves of msize to its header: `Twrite` needs 23 bytes, and diod refuses to be left fewer.
pub const IO_HEADER: u32 = 24;

/// The protocol's name of a type, if it has one.
pub(crate) fn kind_name(kind: Kind) -> Option<&'static str> {
    match kind.is_request() {
        true => Request::name_of(kind),
        false => Reply::name_of(kind),
    }
}
