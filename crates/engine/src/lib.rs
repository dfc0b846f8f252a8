//! The threaded front of the scheduler: what an I/O service embeds.
//!
//! [`presagio_sched::Scheduler`] decides and knows neither threads nor clocks; this crate owns both. How
//! one request travels:
//!
//! 1. A thread calls [`Engine::submit`]. Under the one lock of the engine, held for a fraction
//!    of a microsecond, the request is stamped, handed to the scheduler and written to the trace if one is on.
//! 2. Still under that lock, the thread looks whether somebody *serves* already. If so it leaves: the
//!    one who serves looks again before stopping. If not, it serves itself ([`DispatchBy::Caller`]),
//!    rings for the engine's own thread ([`DispatchBy::Thread`]), or wakes a taker ([`Engine::start_pull`]).
//! 3. Whoever serves asks the scheduler for one batch at a time and calls [`Service::dispatch`] with no
//!    lock held. Calls come one after the other, in the order of the decisions, so a service passes the
//!    batch on (to a ring, to a pool) rather than doing slow I/O itself; workers that block use `take`.
//! 4. Any thread calls [`Engine::finish`] for each part, inside `dispatch` or later: step 2 again.
//!
//! In `Thread` mode [`Engine::submit_detached`] leaves the request in an inbox without touching the
//! engine's lock at all. When the scheduler waits for a moment, the engine's own thread keeps it.
//!
//! *Invariants.* The engine's lock is never held while a service runs. Every change that could make
//! something dispatchable is followed, under the same hold of the lock, by somebody being responsible for
//! it. Locks are taken in one order: engine, then inbox. An engine with nothing to do uses no processor
//! time.

#![forbid(unsafe_code)]

mod busy;
mod config;
mod core;
mod directory;
mod engine;
mod inbox;
mod pull;
mod serve;
mod sync;

pub use config::{DispatchBy, EngineConfig, EngineError, SubmitError, WhenFull};
pub use engine::{Done, Engine, Recorder, Service};

/// The examples of the guide are compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
mod documents {}
