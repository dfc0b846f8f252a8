//! The client side of forwarding: files that I/O nodes serve, for the mount and for whoever forwards.
//!
//! How a call travels: a [`File`] asks its `link` for the connection, waiting for one if there is none; makes sure that
//! the node knows the file's fid on this connection (`held`); asks; and if the connection breaks meanwhile, begins again
//! with the next one: as it is if it can be repeated, under its number (`Tonce`) if it must not be done twice. One thread
//! per outage reconnects, to the same node first and then to the others of the list, in the order of [`preference`].
//!
//! `mount` shows the same files to every program, through FUSE. [`switchboard`] lets the processes of one command reach
//! the nodes, for the library that serves them from inside.
//!
//! *Invariants.* A call returns within `patience` and one time-out, whatever happens. What was acknowledged is in the
//! back-end, so only what was not is repeated. A lost lock, and an operation of which nobody can tell whether it was
//! done, are EIO, never silence. Fids keep their numbers over all connections.

#![forbid(unsafe_code)]

mod ahead;
mod file;
mod held;
mod link;
mod locks;
#[cfg(feature = "mount")]
pub mod mount;
mod options;
mod preference;
mod remote;
pub mod switchboard;

pub use ahead::Ahead;
pub use file::{Far, File, Listed, Owner, Span};
pub use options::{
    Connected, Credential, Dial, Identity, Instance, LastResort, Options, Others, Resort, Spread,
    Witness,
};
pub use preference::preference;
pub use presagio_ninep::{Address, BadAddress};
pub use remote::{Foreseen, Remote, Status};

/// What ended a call that got no answer in time from a node that lives.
pub const TIMED_OUT: presagio_ninep::Errno = presagio_ninep::Errno(110);
