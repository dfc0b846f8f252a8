//! Bytes: reading, writing and copying.

mod aio;
mod copying;
mod hooks;
mod ops;
