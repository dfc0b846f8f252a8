//! The words that all of Presagio shares.
//!
//! A [`Request`] is one read or write of a [`Range`] of a file, named by opaque identifiers. It carries
//! no buffer: whoever submitted it keeps the bytes. An [`Event`] is what a program did to a file, as it was
//! recorded. Time is [`Nanos`] and always an argument, so that
//! every decision above can be replayed. [`Histogram`] is how we count what varies.
//!
//! Nothing here does I/O, reads a clock, or knows who uses it.

#![forbid(unsafe_code)]

mod event;
mod hash;
mod histogram;
mod ids;
mod range;
mod request;
mod time;

pub use event::{Action, ContextId, Event, Layer};
pub use hash::{IdBuildHasher, IdHashMap};
pub use histogram::Histogram;
pub use ids::{AppId, FileId, HandleId, QueueId, RequestId};
pub use range::Range;
pub use request::{Op, Request};
pub use time::Nanos;
