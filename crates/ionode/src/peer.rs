//! As whom those who come may act.

use crate::identity::{Identity, NOBODY};
use crate::node::Shared;
pub use presagio_door::{Peer, Proof};
use std::sync::Arc;

/// As whom one acts who says that it is `claimed`; or why it may not.
pub fn may_be(
    proof: Proof,
    claimed: Option<u32>,
    node: &Shared,
) -> Result<Arc<Identity>, &'static str> {
    match (proof, node.power.is_root()) {
        (Proof::Awaited, _) => Err("it has not proved who it is, as this address demands"),
        (_, true) => as_user(proof, claimed, node),
        (_, false) => as_node(proof, node),
    }
}

fn as_user(
    proof: Proof,
    claimed: Option<u32>,
    node: &Shared,
) -> Result<Arc<Identity>, &'static str> {
    let allow_root = node.config.allow_root;
    match (proof, claimed) {
        (Proof::User { uid: 0, .. }, claimed) => Ok(node.users.find(claimed.unwrap_or(0), None)),
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
fn as_node(proof: Proof, node: &Shared) -> Result<Arc<Identity>, &'static str> {
    let own = rustix::process::geteuid().as_raw();
    match proof {
        Proof::User { uid, .. } if uid == own || uid == 0 => {}
        Proof::Vouched { uid, .. } if uid == own || (uid == 0 && node.config.allow_root) => {}
        _ if node.config.squash => {}
        _ => return Err("this node runs as another user, and does not act for others"),
    }
    Ok(node.nobody.clone())
}
