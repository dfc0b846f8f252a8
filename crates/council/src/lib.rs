//! The council: the service around `presagio-tune`'s reasoning (paper 001, IV).
//!
//! ```text
//!  I/O nodes ── announcements ──▶ server (one loop) ──▶ hall ──▶ presagio_tune::Council
//!      ▲                             ▲      │            │  └──▶ store (redb), by a thread of its own
//!      └──────── decisions ──────────┼──────┘            └─────▶ log of explanations, by another (scribe)
//!                                    └── door: who is it?
//! ```
//!
//! One announcement: an I/O node's [`Client`] sends what a period was like; the loop ([`Server`]) parses it ([`wire`]); the
//! [`Hall`] asks the reasoning, and the answer leaves in the same turn of the loop. Then what was learned goes to the
//! [`store`] and the explanation to the [`log`].
//!
//! *Invariants.* A council advises: a node never waits for it, and without it decides alone. What one node sends, or does
//! not read, touches that node alone. Everything that grows has a bound. What was learned from is known to be so exactly
//! once, whenever a council is killed.

#![forbid(unsafe_code)]

mod client;
mod connection;
mod figures;
mod hall;
mod late;
mod lobby;
pub mod log;
mod scribe;
mod server;
pub mod store;
pub mod view;
mod window;
pub mod wire;

pub use client::{Client, ClientConfig, LineState, Proof};
pub use figures::Figures;
pub use hall::{
    Hall, HallConfig, HallError, LATE_WAIT, STORE, candidates, chain, observed, restore_patterns,
    unix_ms,
};
pub use server::{DoorConfig, ListenError, Server};
pub use window::Window;

use presagio_tune::Tuner;
use std::time::{Duration, Instant};

/// How much a thread that writes gives way to those that answer: about a tenth of what they get, where both want a core.
const NICE: i32 = 10;

/// This thread is not one that a node waits for. (In Linux that is said of a thread, not of its process.)
fn give_way() {
    // A system that does not allow it has them take turns.
    let _ = rustix::process::nice(NICE);
}

/// How often it is looked whether a thread has ended, or got on.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Whether something was done before it was too late.
fn before(deadline: Instant, mut is_done: impl FnMut() -> bool) -> bool {
    loop {
        if is_done() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Takes back what a store has; what cannot be read is left out, and said.
pub fn restore(tuner: &mut Tuner, kept: &store::Kept) {
    hall::restore(tuner, &kept.contexts);
}
