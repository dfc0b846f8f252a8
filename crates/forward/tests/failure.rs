//! Connections that break at the worst moments: with a thread that reconnects.

mod common;

#[path = "cases/failure.rs"]
mod cases;

/// Whether clients may have threads of their own.
pub const THREADS: bool = true;
