//! Who is at the other end of a connection, how that is known, and as whom it may act.

use crate::identity::{Identity, NOBODY};
use crate::node::Shared;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

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

    /// As whom one acts who says that it is `claimed`; or why it may not.
    pub fn may_be(
        self,
        claimed: Option<u32>,
        node: &Shared,
    ) -> Result<Arc<Identity>, &'static str> {
        match (self, node.power.is_root()) {
            (Proof::Awaited, _) => Err("it has not proved who it is, as this address demands"),
            (_, true) => self.as_user(claimed, node),
            (_, false) => self.as_node(node),
        }
    }

    fn as_user(self, claimed: Option<u32>, node: &Shared) -> Result<Arc<Identity>, &'static str> {
        let allow_root = node.config.allow_root;
        match (self, claimed) {
            (Proof::User { uid: 0, .. }, claimed) => {
                Ok(node.users.find(claimed.unwrap_or(0), None))
            }
            (Proof::Vouched { uid: 0, .. }, claimed) if allow_root => {
                Ok(node.users.find(claimed.unwrap_or(0), None))
            }
            // Root of another machine is nobody here, unless that was allowed.
            (Proof::Vouched { uid: 0, .. }, None | Some(0)) => Ok(node.nobody.clone()),
            (Proof::Trusted, Some(0)) if !allow_root => Ok(node.nobody.clone()),
            (Proof::User { uid, gid } | Proof::Vouched { uid, gid }, claimed) => {
                match claimed.is_none_or(|claimed| claimed == uid) {
                    true => Ok(node.users.find(uid, Some(gid))),
                    false => Err("it is another user"),
                }
            }
            (Proof::Trusted, Some(claimed)) => Ok(node.users.find(claimed, None)),
            (Proof::Trusted, None) | (Proof::None, None | Some(NOBODY)) => Ok(node.nobody.clone()),
            (Proof::None | Proof::Awaited, _) => Err("nothing proves that it is this user"),
        }
    }

    /// A node that is not root can only act as its own user, for that user and for root.
    fn as_node(self, node: &Shared) -> Result<Arc<Identity>, &'static str> {
        let own = rustix::process::geteuid().as_raw();
        match self {
            Proof::User { uid, .. } if uid == own || uid == 0 => {}
            Proof::Vouched { uid, .. } if uid == own || (uid == 0 && node.config.allow_root) => {}
            _ if node.config.squash => {}
            _ => return Err("this node runs as another user, and does not act for others"),
        }
        Ok(node.nobody.clone())
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
