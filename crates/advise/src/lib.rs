//! The brain on the compute node: what it is told, what it remembers of a file, and how it makes the kernel act.
//!
//! A read of a program passes through three rooms. [`config`] says what a person (or a recording) wants for the
//! file: which regions will be needed, in blocks of what size, and which mode suits which region. [`blocks`]
//! remembers which blocks of the file are in memory on our behalf, shared by all processes that read it, and
//! decides what to load and what to release; it does no I/O. [`hints`] carries that out, in the way the file's
//! storage really understands, and checks what came of it.

pub mod blocks;
pub mod config;
pub mod hints;
pub mod manager;
pub mod plan;
pub mod strategy;
