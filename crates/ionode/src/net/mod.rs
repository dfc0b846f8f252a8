//! The network: loops that own connections.
//!
//! A [`turner`](turner::Turner) is a thread with an epoll set. It owns its connections: it alone receives from them,
//! sends to them, and knows which tags are in use. Everybody else reaches it through its [`Mailbox`].

mod connection;
mod listener;
mod mailbox;
mod reply;
mod turner;

pub use listener::{Address, Arrival, Listener, clear_socket};
pub use mailbox::{Done, Mailbox, ReplyTo};
pub use reply::Out;
pub use turner::Turner;

use std::sync::Arc;

/// The mailboxes of all loops.
pub type Mailboxes = Arc<[Mailbox]>;
