//! Random operations on the mount, on a plain directory and in memory: with a thread that reconnects.

mod common;

#[path = "cases/model.rs"]
mod cases;

/// Whether clients may have threads of their own.
pub const THREADS: bool = true;
