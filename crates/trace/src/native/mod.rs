//! Our own format, `.ptrace`: small, and readable up to the moment when its recorder was killed.
//!
//! A [`Writer`] collects records into chunks of some 64 KiB, each coded and checked on its own ([`mod@format`] has
//! the bytes); a [`Reader`] takes them one by one. `docs/trace-format.md` is the same for people who write a
//! reader of their own.

pub mod format;
mod reader;
mod record;
mod writer;

pub use reader::Reader;
pub use writer::Writer;

#[cfg(test)]
mod tests;
