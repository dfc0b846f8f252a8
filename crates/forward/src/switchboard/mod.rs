//! How the processes of one command reach the nodes: through the supervisor of the command.
//!
//! The supervisor runs a [`Switchboard`]: an abstract Unix socket that answers six questions, to processes of the same
//! user only. *What is forwarded?* (prefixes, and how their nodes are to be talked to); *a connection to this node, please*
//! (it connects, and hands the socket over; where there is TLS, one end of a pair whose other end it relays); *a
//! credential, please* (of MUNGE); *will you see to it that my locks end with me?* (it waits for the end of the process, and
//! tells the nodes); *a way around the nodes, please* (where there is a last resort); *will you tell those who begin later
//! where I went?* (it had lost its node, and all are to be at one). So the programs of a command hold no key, and need no
//! way of their own to a node.
//!
//! A program asks through a [`Line`], which connects for each question: nothing of it is left open, and nothing shared by
//! a fork. Both sides look at who the other one is (SO_PEERCRED), since anybody may take an abstract name.
//!
//! One packet is one question or answer; `wire` has their bytes.

mod line;
#[cfg(any(test, feature = "tls"))]
mod relay;
mod server;
mod wire;
mod witness;

pub use line::Line;
pub use server::{Serving, Switchboard};

use crate::options::Options;

/// Where a program finds its switchboard: the name, a directory for its library to make directories in, and the prefixes, each
/// with a colon before it.
pub const VARIABLE: &str = "PRESAGIO_FORWARD";

/// What is forwarded.
#[derive(Clone, Debug)]
pub struct Forwarded {
    /// All paths that begin with this, component by component: absolute, without a slash at its end.
    pub prefix: Vec<u8>,
    /// How its files are reached.
    pub options: Options,
}
