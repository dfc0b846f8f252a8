//! Request scheduling at file level, to embed in any service that reads and writes files for others: file
//! servers, forwarding daemons, burst buffers.
//!
//! Give a [`Scheduler`] your requests as they arrive, ask it what to do [`next`](Scheduler::next), and tell it
//! when a request is [`finished`](Scheduler::finish). It decides the order and puts requests that touch
//! together into [`Batch`]es. Ten policies ([`PolicyKind`]) can be exchanged while it runs; overlapping
//! requests never overtake one another where one of them writes; and predicted requests
//! ([`Scheduler::foresee`], [`Scheduler::announce`]) tell it when waiting for a larger batch pays.
//!
//! It is a state machine: no threads, no clock, no I/O. Time is an argument, and the same calls always give
//! the same answers. Submitting, choosing, cancelling and finishing a request take O(log n) in the number of
//! requests and of files, amortised, and once more for each unfinished request that it conflicts with.
//! `presagio-engine` puts threads and a clock around it.
//!
//! Where things are: `scheduler` is the way of a request; `policy` has one file per algorithm; `book`
//! holds the requests; `guard` keeps the order of overlapping ones; `offsets`, `tree`, `heap` and `arena` are
//! the structures below; `foresight`, `announced` and `stats` are what they say.

#![forbid(unsafe_code)]

mod announced;
mod arena;
mod batch;
mod book;
mod foresight;
mod guard;
mod heap;
mod offsets;
mod overdue;
mod policy;
mod scheduler;
mod settings;
mod stats;
mod tree;

pub use announced::{Announced, Foretold};
pub use batch::{Batch, Next, Part, Ticket};
pub use foresight::{Predicted, ServiceTime};
pub use scheduler::{Rejected, Scheduler};
pub use settings::{PolicyKind, Settings, SettingsError, UnknownPolicy};
pub use stats::{CellKey, Figures, Statistics};
