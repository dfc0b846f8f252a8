//! The live dashboard: what a council or an I/O node does now, as one page, as JSON, and in a terminal.
//!
//! ```text
//!  council, I/O node ── Service::snapshot ──▶ Snapshot ──▶ GET /snapshot ──▶ presagio top, --json
//!        │                                       └───────▶ GET /events   ──▶ the page (GET /)
//!        └── History, Decisions, Situations: what they remember for it
//! ```
//!
//! A [`Window`] serves it, and what else a service answers over HTTP. Every figure of the page and of the terminal is one of the
//! [`Snapshot`]. It takes no orders but from who has the token, or through a Unix socket, if the service takes any.
//!
//! *Invariants.* Who watches costs the service a snapshot a second at most four times over, however many watch; who does not read
//! what is sent is let go. Everything that is remembered has a bound. No name becomes markup, or an escape of a terminal.

#![forbid(unsafe_code)]

mod decisions;
mod feed;
mod history;
mod http;
mod page;
mod situations;
mod snapshot;
mod token;
mod window;

pub use decisions::{Decided, Decisions};
pub use feed::{Bell, UPDATE_EVERY};
pub use history::{History, KEPT};
pub use http::{Request, Response};
pub use situations::{Seen, Situations};
pub use snapshot::{
    Arm, Candidate, Context, Decision, FORMAT, How, Link, Node, NodeState, Pattern, Patterns,
    Sample, Snapshot, Totals, plain,
};
pub use token::{Token, TokenError};
pub use window::{Access, Opened, Service, Window, is_loopback};

/// Where a council's dashboard is if nobody says where.
pub const COUNCIL_ADDRESS: &str = "tcp:127.0.0.1:9655";

/// Where an I/O node's is.
pub const NODE_ADDRESS: &str = "tcp:127.0.0.1:9645";
