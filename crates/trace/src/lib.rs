//! Traces of I/O: reading them whoever recorded them, and writing our own.
//!
//! A trace is a stream of [`Record`]s: definitions of the files, processes and call stacks that occur, each
//! before its first use, and events. Every reader is an iterator over records and needs memory for its
//! definitions only, not for its events; every error says what is wrong and where.
//!
//! [`open`] tells the format of a file and reads it: [`native`], our own; Darshan's logs and their text; strace's
//! output; AGIOS's traces; comma-separated values. From there on all are alike. [`info`] says what is in a trace,
//! [`sorted`] brings it into the order of time, [`merge`] makes one out of several repetitions, [`join`] out of the
//! recordings of several machines; [`Anonymous`] leaves names out; [`replay`] does it again; a [`Sink`] writes it: [`native`], [`csv`], [`agios`], or
//! `parquet` if built with that feature.

#![forbid(unsafe_code)]

pub mod agios;
mod anonymous;
pub mod csv;
pub mod darshan;
mod error;
#[doc(hidden)]
pub mod fuzzing;
pub mod info;
mod input;
pub mod join;
pub mod merge;
mod names;
pub mod native;
mod open;
#[cfg(feature = "parquet")]
pub mod parquet;
mod record;
mod renumber;
pub mod replay;
pub mod sorted;
pub mod strace;
#[cfg(test)]
mod strategies;
mod text;

pub use anonymous::Anonymous;
pub use error::{Place, Reason, TraceError};
pub use open::{Format, OpenOptions, open, open_with};
pub use record::{Frame, Process, Record, Sink, Source};
