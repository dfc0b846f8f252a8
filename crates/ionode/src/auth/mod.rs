//! How those who come prove who they are, and how many connections each user has.
//!
//! On Unix sockets, and within this machine, the kernel says who it is, and nothing is needed. From other machines a
//! user brings a MUNGE credential in the protocol's own way ([`munge`]) or a certificate before it ([`certificate`]).
//! Neither is a shared secret: what is brought says one uid, and proves no other.

pub mod certificate;
pub mod credential;
pub mod munge;
pub mod shares;

use crate::config::{Config, TcpProof};
use crate::peer::Proof;
use munge::Munge;
use rustls::ServerConfig;
use std::sync::Arc;

/// How connections are let in.
#[derive(Clone)]
pub struct Door {
    /// Those that come over TCP.
    pub tcp: Gate,
    /// The permissions of Unix sockets.
    pub socket_mode: u32,
}

/// What is asked of those who come over TCP.
#[derive(Clone)]
pub enum Gate {
    /// Nothing. Whoever can reach the address is believed, or only those of whom the kernel knows who they are.
    Plain {
        /// Whether they are believed.
        trusted: bool,
    },
    /// A MUNGE credential before they attach.
    Munge(Arc<Munge>),
    /// TLS, with a certificate.
    Tls(Arc<ServerConfig>),
}

/// What was asked for cannot be offered.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct DoorError(pub String);

impl Door {
    /// The door that a configuration describes.
    pub fn of(config: &Config, trusted: bool, is_root: bool) -> Result<Door, DoorError> {
        let tcp = match &config.tcp {
            TcpProof::Kernel => Gate::Plain { trusted },
            TcpProof::Munge { socket } => Gate::Munge(Arc::new(Munge::new(socket.as_deref())?)),
            TcpProof::Tls(files) => Gate::Tls(certificate::server(files)?),
        };
        // The kernel says who connects; but a node that acts for its own user alone has nothing to say to others.
        let for_all = is_root || config.squash;
        Ok(Door {
            tcp,
            socket_mode: if for_all { 0o666 } else { 0o600 },
        })
    }

    /// What checks credentials, where they are asked for.
    pub fn munge(&self) -> Option<Arc<Munge>> {
        match &self.tcp {
            Gate::Munge(munge) => Some(munge.clone()),
            Gate::Plain { .. } | Gate::Tls(_) => None,
        }
    }
}

impl Gate {
    /// Whether other machines may reach it: not if it would believe nobody, and could know nobody.
    pub fn is_open_to_others(&self) -> bool {
        !matches!(self, Gate::Plain { trusted: false })
    }

    /// What is known of those who come, if the kernel says `local` of them.
    pub fn proof(&self, local: impl FnOnce() -> Option<Proof>) -> Proof {
        match self {
            Gate::Plain { trusted: true } => Proof::Trusted,
            Gate::Plain { trusted: false } => local().unwrap_or(Proof::None),
            Gate::Munge(_) | Gate::Tls(_) => Proof::Awaited,
        }
    }
}
