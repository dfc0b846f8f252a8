//! How the processes of one command reach the nodes: through the supervisor of the command.
//!
//! The supervisor runs a [`Switchboard`]: an abstract Unix socket that answers three questions, to processes of the same
//! user only. *What is forwarded?* (prefixes, and how their nodes are to be talked to); *a connection to this node, please*
//! (it connects, and hands the socket over; where there is TLS, one end of a pair whose other end it relays); *a
//! credential, please* (of MUNGE). So the programs of a command hold no key, and need no way of their own to a node.
//!
//! A program asks through a [`Line`], which connects for each question: nothing of it is left open, and nothing shared by
//! a fork. Both sides look at who the other one is (SO_PEERCRED), since anybody may take an abstract name.
//!
//! One packet is one question or answer; `wire` has their bytes.

mod line;
#[cfg(feature = "tls")]
mod relay;
mod server;
mod wire;

pub use line::Line;
pub use server::{Serving, Switchboard};

use crate::options::Options;
use std::path::PathBuf;

/// Where a program finds its switchboard: the name, and the prefixes, each with a colon before it.
pub const VARIABLE: &str = "PRESAGIO_FORWARD";

/// What is forwarded.
#[derive(Clone, Debug)]
pub struct Forwarded {
    /// All paths that begin with this, component by component: absolute, without a slash at its end.
    pub prefix: Vec<u8>,
    /// A directory that stands for the prefix where the kernel needs one, say as a working directory.
    pub shadow: PathBuf,
    /// How its files are reached.
    pub options: Options,
}
