//! The I/O node: forwards the files of a directory to any number of clients, with a request scheduler in the middle.
//!
//! ```text
//!  clients ── 9P2000.L ──▶ net (loops, one per core) ──▶ session (fids, what a request means)
//!                                                          │                      │
//!                                        names, attributes │                      │ reads and writes
//!                                                          ▼                      ▼
//!                                                       export                   data ──▶ engine, sched
//!                                                          │                      │         batches
//!                                                          ▼                      ▼
//!                                                  the mounted file system     storage
//! ```
//!
//! *Invariants.* The node holds no data that the storage does not have: a write is acknowledged when the storage's own
//! write has returned. No name leads out of the export. An operation is done as the user who asked for it, or not at all.
//! What one client sends can end that client's connection, and nobody else's. Memory is bounded; who asks for more waits.

#![deny(unsafe_code)]

mod accounts;
mod adaptive;
mod auth;
mod auto;
mod buffer;
mod clock;
mod config;
mod control;
mod data;
mod error;
mod export;
mod files;
mod guests;
mod handles;
mod identity;
mod jobs;
mod locks;
mod metrics;
mod net;
mod node;
mod once;
mod own;
mod peer;
mod record;
mod ring;
mod seal;
mod session;
mod sys;
mod users;
mod view;

pub use adaptive::{ALONE_AFTER, AdaptiveConfig, AdaptiveError};
pub use auto::AutoConfig;
pub use config::Config;
pub use net::Address;
pub use node::{Node, StartError};
pub use presagio_dashboard::{Opened, Token};
pub use presagio_door::{TcpProof, TlsFiles};
