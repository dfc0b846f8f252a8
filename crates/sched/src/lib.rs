//! wip
#![forbid(unsafe_code)]
#![allow(dead_code)]
mod arena;
mod batch;
mod heap;
mod settings;
mod tree;
mod scheduler;

pub use batch::{Batch, Next, Part, Ticket};
pub use settings::{PolicyKind, Settings, SettingsError, UnknownPolicy};
pub use scheduler::*;
