//! The brain on the compute node: what it is told, what it remembers of a file, and how it makes the kernel act.
//!
//! The [`manager`] is the process: it empties the arena, keeps models and trace, and tells a strategy, through the
//! seam [`plan`], what was read. The [`strategy`] that needs no configuration decides from the past and from what it
//! measures; where a person has written a configuration, a read passes through two other rooms. [`config`] says what a person (or a recording) wants for the
//! file: which regions will be needed, in blocks of what size, and which mode suits which region. [`blocks`]
//! remembers which blocks of the file are in memory on our behalf, shared by all processes that read it, and
//! decides what to load and what to release; it does no I/O. [`hints`] carries out what either has decided, in the way the file's
//! storage really understands, and checks what came of it.

pub mod blocks;
pub mod config;
pub mod hints;
pub mod manager;
pub mod plan;
pub mod strategy;
