//! The network: loops that own connections.
//!
//! A loop ([`turner`]) has an epoll set and owns its connections: it alone receives from them, sends to them, and knows
//! which tags are in use. One thread at a time turns it ([`seat`]). Everybody else reaches it through its [`Mailbox`].

mod connection;
mod mailbox;
mod order;
mod reply;
mod seat;
mod turner;

pub use mailbox::{Done, Mailbox, ReplyTo};
pub use presagio_door::{Address, Arrival, Listener, arrived, tls};
pub use reply::Out;
pub use seat::{Seat, watch};

use std::sync::Arc;

/// The mailboxes of all loops.
pub type Mailboxes = Arc<[Mailbox]>;
