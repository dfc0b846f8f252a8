//! What every hook looks at, side by side. A program that computes between two calls finds nothing of ours in its caches: what
//! then counts is how many lines and pages are touched, not how many instructions run.

use crate::descriptors::{Chunk, Chunks};
use crate::life;
use presagio_arena::Client;
use presagio_stack::Contexts;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};

/// One line of memory; each module writes its own part.
#[repr(C, align(64))]
pub struct Hot {
    /// Whether we are here at all (`life`).
    pub phase: AtomicU32,
    /// Processes that may share positions of descriptors were started this many times (`life`).
    pub started: AtomicU32,
    /// The page that the kernel wipes in children of fork (`life`).
    pub page: AtomicPtr<AtomicU64>,
    /// The arena, null before there is one (`life`).
    pub client: AtomicPtr<Client>,
    /// What is known of call stacks, null before anything is (`context`).
    pub contexts: AtomicPtr<Contexts>,
    /// The first of many descriptors, null before there are more than a few (`descriptors`).
    pub descriptors: AtomicPtr<Chunk>,
    /// All others, null before there are any (`descriptors`).
    pub chunks: AtomicPtr<Chunks>,
    /// How many operations were named by their callers alone, before call stacks were looked at (`context`).
    pub named: AtomicU32,
    /// Whether processes were started, by other means than vfork, that run in our memory (`thread`).
    pub guests: AtomicBool,
    /// Whether the processor's counter tells the time, as far as we know (`life`).
    pub ticks: AtomicBool,
}

/// Before there is a page of its own: no incarnation that anything could have.
static NO_PAGE: AtomicU64 = AtomicU64::new(life::NO_INCARNATION);

/// See the module's header.
pub static HOT: Hot = Hot {
    phase: AtomicU32::new(life::UNBORN),
    started: AtomicU32::new(0),
    page: AtomicPtr::new((&raw const NO_PAGE).cast_mut()),
    client: AtomicPtr::new(std::ptr::null_mut()),
    contexts: AtomicPtr::new(std::ptr::null_mut()),
    descriptors: AtomicPtr::new(std::ptr::null_mut()),
    chunks: AtomicPtr::new(std::ptr::null_mut()),
    named: AtomicU32::new(0),
    guests: AtomicBool::new(false),
    ticks: AtomicBool::new(false),
};

const _: () = assert!(size_of::<Hot>() == 64);
