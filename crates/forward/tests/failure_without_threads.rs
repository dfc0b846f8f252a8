//! Connections that break at the worst moments: with no thread of ours: whoever needs a connection makes it.

mod common;

#[path = "cases/failure.rs"]
mod cases;

/// Whether clients may have threads of their own.
pub const THREADS: bool = false;
