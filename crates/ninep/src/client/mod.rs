//! The client: many requests under way on one connection, from one thread or from many.
//!
//! How a request travels: it gets a slot, and so a tag (`table`); its header is encoded, its payload stays where it is
//! (`batch`); both are sent with one system call (`outgoing`); whoever waits reads, for the others too (`shared`), and
//! gives each reply to its slot, a payload straight to its place (`incoming`). The client has no thread of its own.
//!
//! ```no_run
//! use presagio_ninep::client::{Ask, Client, Options};
//! use presagio_ninep::{Fid, Request};
//!
//! let client = Client::unix("/run/node.sock".as_ref(), &Options::default())?;
//! # let fid = Fid(1);
//! // One at a time, straight into our memory:
//! let mut block = vec![0; 4096];
//! let got = client.read(fid, 0, &mut block)?;
//! // Sixteen at a time, from one thread:
//! let asks = (0..16).map(|i| Ask::read(fid, i * 4096, vec![0; 4096]));
//! for ticket in client.submit_all(asks)? {
//!     let block = ticket.wait()?.into_data();
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod answer;
mod batch;
mod calls;
mod error;
mod handshake;
mod incoming;
mod outgoing;
mod shared;
mod stream;
mod table;
mod ticket;
#[cfg(feature = "tls")]
mod tls;

pub use answer::Answer;
pub use calls::BATCH_MAX;
pub use error::{Error, Lost};
pub use stream::{Socket, Stream};
pub(crate) use stream::{connect_tcp, connect_unix};
pub use ticket::Ticket;
#[cfg(feature = "tls")]
pub use tls::{TlsIdentity, TlsSocket};

use crate::frame::Frames;
use crate::ids::{Fid, Kind, Tag};
use crate::request::Request;
use crate::version::{Agreed, Dialect};
use crate::{IO_HEADER, MSIZE_MAX, MSIZE_MIN};
use incoming::Incoming;
use shared::Shared;
use std::net::ToSocketAddrs;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use table::Table;

/// How a client is to behave.
#[derive(Clone, Debug)]
pub struct Options {
    /// The size of the largest frame to offer: from 4096 bytes to [`MSIZE_MAX`].
    pub msize: u32,
    /// What to offer first; plain 9P2000.L is what remains if the server knows nothing else.
    pub dialect: Dialect,
    /// How many requests may be under way, collected or not.
    pub in_flight_max: usize,
    /// How long a request may take, unless it says otherwise.
    pub timeout: Duration,
    /// How long connecting and agreeing may take.
    pub connect_timeout: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            msize: 1 << 20,
            dialect: Dialect::Presagio,
            in_flight_max: 1024,
            timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(30),
        }
    }
}

/// A request, with what the client should know about it.
#[derive(Debug)]
pub struct Ask<'a> {
    /// The request.
    pub request: Request<'a>,
    /// A buffer for the data of the reply: it is returned with the answer, as long as the data.
    pub into: Option<Vec<u8>>,
    /// How long it may take, if not as long as others.
    pub timeout: Option<Duration>,
}

impl<'a> Ask<'a> {
    /// Any request.
    pub fn new(request: Request<'a>) -> Ask<'a> {
        Ask {
            request,
            into: None,
            timeout: None,
        }
    }

    /// A read that fills a buffer, which must not be longer than [`Client::io_max`].
    pub fn read(fid: Fid, offset: u64, into: Vec<u8>) -> Ask<'a> {
        let count = into.len().min(MSIZE_MAX as usize) as u32;
        Ask {
            into: Some(into),
            ..Ask::new(Request::Read { fid, offset, count })
        }
    }
}

impl<'a> From<Request<'a>> for Ask<'a> {
    fn from(request: Request<'a>) -> Ask<'a> {
        Ask::new(request)
    }
}

/// One of the reads of [`Client::read_many`].
#[derive(Debug)]
pub struct ReadInto<'b> {
    /// Which file.
    pub fid: Fid,
    /// From where.
    pub offset: u64,
    /// To where; as much as there is room for.
    pub to: &'b mut [u8],
}

/// A request without an answer.
#[derive(Clone, Copy, Debug)]
pub struct Outstanding {
    /// Its tag.
    pub tag: Tag,
    /// Its type.
    pub kind: Kind,
    /// How long it is under way.
    pub age: Duration,
}

/// A connection to a server. Clones are handles of the same connection, which ends with the last of them.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

impl Client {
    /// Agrees with the server at the other end of `stream`.
    pub fn connect(stream: impl Stream + 'static, options: &Options) -> Result<Client, Lost> {
        let offer = Agreed {
            dialect: options.dialect,
            msize: options.msize.clamp(MSIZE_MIN, MSIZE_MAX),
        };
        let mut frames = Frames::new(offer.msize);
        let deadline = Instant::now() + options.connect_timeout;
        let agreed = handshake::agree(&stream, &mut frames, offer, deadline)?;
        let incoming = Incoming::new(frames, agreed.dialect);
        let table = Table::new(options.in_flight_max);
        let shared = Shared::new(Box::new(stream), incoming, agreed, table, options.timeout);
        Ok(Client {
            shared: Arc::new(shared),
        })
    }

    /// Connects to a Unix socket.
    pub fn unix(path: &Path, options: &Options) -> Result<Client, Lost> {
        let stream = connect_unix(path, options.connect_timeout)?;
        Client::connect(Socket::new(stream)?, options)
    }

    /// Connects over TCP to the first address that answers.
    pub fn tcp(address: impl ToSocketAddrs, options: &Options) -> Result<Client, Lost> {
        let stream = connect_tcp(address, options.connect_timeout)?;
        Client::connect(Socket::new(stream)?, options)
    }

    /// What the two sides agreed on.
    pub fn agreed(&self) -> Agreed {
        self.shared.agreed
    }

    /// The most data that one read or write can carry.
    pub fn io_max(&self) -> u32 {
        self.shared.agreed.msize - IO_HEADER
    }

    /// What to wait for in an event loop: when it is readable, [`poll`](Self::poll).
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.shared.stream.as_fd()
    }

    /// Takes in the replies that have come, without waiting: then [`Ticket::is_done`] may be true of some.
    pub fn poll(&self) {
        self.shared.read_what_is_there();
    }

    /// What ended the connection, if something did.
    pub fn lost(&self) -> Option<Arc<Lost>> {
        self.shared.lock().dead.clone()
    }

    /// Ends the connection: what is under way fails.
    pub fn close(&self) {
        self.shared.die(Lost::ClosedHere);
    }

    /// The requests that have no answer, also when there will never be one: what somebody who reconnects has to settle.
    pub fn outstanding(&self) -> Vec<Outstanding> {
        let now = Instant::now();
        let table = self.shared.lock();
        let all = table.outstanding().map(|(tag, slot)| Outstanding {
            tag,
            kind: slot.kind,
            age: now.saturating_duration_since(slot.since),
        });
        all.collect()
    }
}
