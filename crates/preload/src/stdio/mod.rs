//! Streams of the C library. They never reach the `read` and `write` symbols, so each function is followed: whether the
//! kernel was entered shows in the stream's buffer, and only then something is reported.

mod exit;
mod hooks;
mod ops;
mod stream;

pub use exit::at_exit;
pub use stream::descriptor;
