//! Random operations on the mount, on a plain directory and in memory: with no thread of ours: whoever needs a connection makes it.

mod common;

#[path = "cases/model.rs"]
mod cases;

/// Whether clients may have threads of their own.
pub const THREADS: bool = false;
