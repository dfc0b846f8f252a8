//! Where connections come in, for all services that listen: the I/O node and the council.
//!
//! On Unix sockets, and within this machine, the kernel says who it is, and nothing is needed. From other machines a
//! user brings a MUNGE credential in the protocol's own way ([`munge`]) or a certificate before it ([`certificate`]).
//! Neither is a shared secret: what is brought says one uid, and proves no other. How many connections each user has is
//! counted by [`shares`].

#![deny(unsafe_code)]

pub mod certificate;
mod libmunge;
mod listener;
pub mod munge;
mod peer;
pub mod shares;
pub mod tls;

pub use listener::{Arrival, Listener, arrived, bind_unix};
pub use peer::{NOBODY, Origin, Peer, Proof};
pub use presagio_ninep::Address;

use munge::Munge;
use rustls::ServerConfig;
use std::path::PathBuf;
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

/// How those who come over TCP prove who they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TcpProof {
    /// They need not: the kernel knows those of this machine, and others are believed or do not come.
    #[default]
    Kernel,
    /// By a MUNGE credential, which they write before they attach, as diod's clients do.
    Munge {
        /// Where munged listens, if not at the usual place.
        socket: Option<PathBuf>,
    },
    /// By a certificate, over TLS 1.3.
    Tls(TlsFiles),
}

/// What TLS needs, as PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The service's certificate, and what leads from it to an authority that clients know.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authority that signs the certificates of clients.
    pub client_ca: PathBuf,
}

/// What was asked for cannot be offered.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct DoorError(pub String);

impl Door {
    /// A door where those who come over TCP prove who they are in this way, or are `trusted`; Unix sockets are for all
    /// users, or for this one alone.
    pub fn new(proof: &TcpProof, trusted: bool, for_all: bool) -> Result<Door, DoorError> {
        let tcp = match proof {
            TcpProof::Kernel => Gate::Plain { trusted },
            TcpProof::Munge { socket } => Gate::Munge(Arc::new(Munge::new(socket.as_deref())?)),
            TcpProof::Tls(files) => Gate::Tls(certificate::server(files)?),
        };
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
