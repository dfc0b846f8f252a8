//! Who is at the other end of a connection, how that is known, and as whom it may act.

use crate::identity::{Identity, NOBODY};
use crate::node::Shared;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// The other end of a connection.
#[derive(Debug)]
pub struct Peer {
    /// A number of its own, for logs.
    pub number: u64,
    /// From where it came.
    pub from: Origin,
    /// What is known of who it is.
    pub proof: Proof,
}

/// From where a connection came.
#[derive(Debug)]
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
    /// Nothing, but the administrator trusts whoever can reach this address.
    Trusted,
    /// Nothing.
    None,
}

impl Peer {
    /// The user that it was proved to be, or nobody.
    pub fn uid(&self) -> u32 {
        match self.proof {
            Proof::User { uid, .. } => uid,
            Proof::Trusted | Proof::None => NOBODY,
        }
    }

    /// As whom the peer acts if it says that it is `claimed`; or why it may not.
    pub fn may_be(
        &self,
        claimed: Option<u32>,
        node: &Shared,
    ) -> Result<Arc<Identity>, &'static str> {
        match node.power.is_root() {
            true => self.as_user(claimed, node),
            false => self.as_node(node),
        }
    }

    fn as_user(&self, claimed: Option<u32>, node: &Shared) -> Result<Arc<Identity>, &'static str> {
        match (self.proof, claimed) {
            (Proof::User { uid: 0, .. }, claimed) => {
                Ok(node.users.find(claimed.unwrap_or(0), None))
            }
            (Proof::User { uid, gid }, None) => Ok(node.users.find(uid, Some(gid))),
            (Proof::User { uid, gid }, Some(claimed)) if claimed == uid => {
                Ok(node.users.find(uid, Some(gid)))
            }
            (Proof::User { .. }, Some(_)) => Err("it is another user"),
            // Root of another machine is nobody here, unless that was allowed.
            (Proof::Trusted, Some(0)) if !node.config.allow_root => Ok(node.nobody.clone()),
            (Proof::Trusted, Some(claimed)) => Ok(node.users.find(claimed, None)),
            (Proof::Trusted, None) | (Proof::None, None | Some(NOBODY)) => Ok(node.nobody.clone()),
            (Proof::None, Some(_)) => Err("nothing proves that it is this user"),
        }
    }

    /// A node that is not root can only act as its own user, for that user and for root.
    fn as_node(&self, node: &Shared) -> Result<Arc<Identity>, &'static str> {
        let own = rustix::process::geteuid().as_raw();
        match self.proof {
            Proof::User { uid, .. } if uid == own || uid == 0 => {}
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
        match self.proof {
            Proof::User { uid, .. } => write!(f, ", uid {uid}"),
            Proof::Trusted | Proof::None => Ok(()),
        }
    }
}
