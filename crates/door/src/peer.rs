//! Who is at the other end of a connection, and how that is known.

use std::fmt;
use std::net::SocketAddr;

/// The user that stands for none.
pub const NOBODY: u32 = 65534;

/// The other end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// A number of its own, for logs.
    pub number: u64,
    /// From where it came.
    pub from: Origin,
    /// What is known of who it is.
    pub proof: Proof,
}

/// From where a connection came.
#[derive(Clone, Debug)]
pub enum Origin {
    /// A Unix socket; the process that connected.
    Unix {
        /// Its process id.
        pid: i32,
    },
    /// TCP.
    Tcp(SocketAddr),
}

/// What is known of who a peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// It is this user: the kernel says so.
    User {
        /// User.
        uid: u32,
        /// Group, for users that this machine knows nothing of.
        gid: u32,
    },
    /// It is this user of some machine: its credential or its certificate says so.
    Vouched {
        /// User.
        uid: u32,
        /// Group, for users that this machine knows nothing of.
        gid: u32,
    },
    /// Nothing, but the administrator trusts whoever can reach this address.
    Trusted,
    /// Nothing yet: it has to prove it.
    Awaited,
    /// Nothing.
    None,
}

impl Proof {
    /// The user, if that is known.
    pub fn uid(self) -> Option<u32> {
        match self {
            Proof::User { uid, .. } | Proof::Vouched { uid, .. } => Some(uid),
            Proof::Trusted | Proof::Awaited | Proof::None => None,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection {} from ", self.number)?;
        match &self.from {
            Origin::Unix { pid } => write!(f, "process {pid}"),
            Origin::Tcp(address) => write!(f, "{address}"),
        }?;
        match self.proof.uid() {
            Some(uid) => write!(f, ", uid {uid}"),
            None => Ok(()),
        }
    }
}
