//! One connection: what was received and not understood yet, what is under way, what has to be sent.

use crate::accounts::Load;
use crate::auth::shares::Share;
use crate::buffer::{Buffer, Counted};
use crate::net::order::{Named, Order};
use crate::net::reply::Out;
use crate::net::tls::Tls;
use crate::peer::{Peer, Proof};
use crate::session::Session;
use presagio_core::IdBuildHasher;
use presagio_ninep::{Dialect, Fid, Frames, Kind, Tag};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use smallvec::SmallVec;
use std::collections::{HashMap, VecDeque};
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pieces that one call sends at most.
const PIECES_MAX: usize = 64;

/// Short replies are put together up to this.
const CHUNK: usize = 16 << 10;

/// How long the other end may take to prove who it is, where that is asked for.
const PROOF_MAX: Duration = Duration::from_secs(10);

/// A connection of a loop.
pub struct Connection {
    pub socket: Arc<OwnedFd>,
    /// What turns the socket's bytes into plain ones, if they are not.
    pub tls: Option<Box<Tls>>,
    pub peer: Arc<Peer>,
    /// Since when it has been there, or has begun another session than one in which it proved who it is.
    pub since: Instant,
    /// That it is counted among the connections of its user.
    pub share: Option<Share>,
    /// Taken out while its frames are being looked at.
    pub frames: Option<Frames>,
    pub session: Option<Arc<Session>>,
    pub dialect: Dialect,
    /// Which session it is, among all of the loop's.
    pub epoch: u64,
    /// The large write whose data is being received.
    pub arriving: Option<Arriving>,
    /// What is under way, by tag.
    pub under_way: HashMap<u16, UnderWay, IdBuildHasher>,
    /// Who waits for whom.
    pub order: Order,
    /// Bytes of payload under way.
    pub bytes: usize,
    out: VecDeque<Chunk>,
    /// Bytes of them.
    unsent: usize,
    /// Since when something has been waiting to be sent.
    pub stuck_since: Option<Instant>,
    /// What epoll was told to wait for.
    pub waits_for: Interest,
    /// It has complete frames that wait for others to be answered, or for memory.
    pub held_back: bool,
    /// Whether anything came since the last look.
    pub was_active: bool,
    /// Since when a frame has been there in part, and nothing more came.
    pub half_since: Option<Instant>,
    /// What a frame counts for that is there in part.
    pub half: Option<Counted>,
}

/// What epoll is to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    pub receive: bool,
    pub send: bool,
}

/// A request that has no reply yet.
#[derive(Default)]
pub struct UnderWay {
    /// What it counts for.
    pub bytes: usize,
    /// What it counts for until somebody is at it, who has that then.
    pub load: Load,
    /// Who wants to know when it is answered.
    pub flushed_by: SmallVec<[Tag; 1]>,
    /// The fids at which it stands in line.
    pub fids: Named,
    /// What it is, while it waits for others.
    pub waiting: Option<(Kind, Vec<u8>)>,
}

/// A large write on its way in.
pub struct Arriving {
    pub tag: Tag,
    pub fid: Fid,
    pub offset: u64,
    pub buffer: Buffer,
    pub received: usize,
    /// When something of it came last.
    pub last: Instant,
}

/// Something to send.
struct Chunk {
    bytes: Bytes,
    sent: usize,
    /// Data counts as its user's until it is sent.
    _load: Option<Load>,
}

enum Bytes {
    Encoded(Vec<u8>),
    Data(Buffer),
}

impl Bytes {
    fn as_slice(&self) -> &[u8] {
        match self {
            Bytes::Encoded(bytes) => bytes,
            Bytes::Data(buffer) => buffer.bytes(),
        }
    }
}

/// What sending came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// All is out.
    All,
    /// The other end has to read first.
    Some,
    /// There is no other end any more.
    Gone,
}

impl Connection {
    pub fn new(socket: OwnedFd, peer: Arc<Peer>, msize: u32, epoch: u64) -> Connection {
        Connection {
            socket: Arc::new(socket),
            tls: None,
            peer,
            since: Instant::now(),
            share: None,
            frames: Some(Frames::new(msize)),
            session: None,
            dialect: Dialect::Linux,
            epoch,
            arriving: None,
            under_way: HashMap::default(),
            order: Order::default(),
            bytes: 0,
            out: VecDeque::new(),
            unsent: 0,
            stuck_since: None,
            waits_for: Interest {
                receive: true,
                send: false,
            },
            held_back: false,
            was_active: true,
            half_since: None,
            half: None,
        }
    }

    /// Whether the other end should have proved by now who it is.
    pub fn owes_proof(&self) -> bool {
        let has_proved = |session: &Arc<Session>| session.has_proved();
        self.peer.proof == Proof::Awaited
            && !self.session.as_ref().is_some_and(has_proved)
            && self.since.elapsed() > PROOF_MAX
    }

    /// Whether the other end has sent a part of a frame, and it is for it to go on.
    pub fn owes_rest(&self) -> bool {
        let is_half = |frames: &Frames| !frames.bytes().is_empty();
        !self.held_back && self.frames.as_ref().is_some_and(is_half)
    }

    /// Queues a reply.
    pub fn push(&mut self, out: Out, load: Load) {
        match out {
            Out::Short(bytes) => self.encode(|out| out.extend_from_slice(&bytes)),
            Out::Encoded(bytes) => self.encode(|out| out.extend_from_slice(&bytes)),
            Out::Data(buffer) => self.push_data(buffer, Some(load)),
            Out::Parts(mut parts) => {
                let last = parts.pop();
                let others = parts.into_iter();
                others.for_each(|part| self.push_data(part, None));
                if let Some(last) = last {
                    self.push_data(last, Some(load));
                }
            }
        }
    }

    fn push_data(&mut self, buffer: Buffer, load: Option<Load>) {
        self.unsent += buffer.len();
        let bytes = Bytes::Data(buffer);
        self.out.push_back(Chunk {
            bytes,
            sent: 0,
            _load: load,
        });
    }

    /// Encodes a short reply.
    pub fn encode(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        let tail = self.tail();
        let before = tail.len();
        encode(tail);
        let grown = tail.len() - before;
        self.unsent += grown;
    }

    fn tail(&mut self) -> &mut Vec<u8> {
        let is_open = matches!(
            self.out.back(),
            Some(Chunk { bytes: Bytes::Encoded(bytes), .. }) if bytes.len() < CHUNK
        );
        if !is_open {
            let bytes = Bytes::Encoded(Vec::with_capacity(256));
            self.out.push_back(Chunk {
                bytes,
                sent: 0,
                _load: None,
            });
        }
        match self.out.back_mut() {
            Some(Chunk {
                bytes: Bytes::Encoded(bytes),
                ..
            }) => bytes,
            _ => unreachable!("it was made just now"),
        }
    }

    /// Bytes that wait to be sent.
    pub fn unsent(&self) -> usize {
        self.unsent
    }

    /// Whether something waits to be sent.
    pub fn has_output(&self) -> bool {
        !self.out.is_empty() || self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Sends what the other end takes.
    pub fn send(&mut self) -> Sent {
        while self.has_output() {
            match self.send_once() {
                Ok(count) => {
                    self.stuck_since = None;
                    self.sent(count);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.stuck_since.get_or_insert_with(Instant::now);
                    return Sent::Some;
                }
                Err(_) => return Sent::Gone,
            }
        }
        Sent::All
    }

    fn send_once(&mut self) -> rustix::io::Result<usize> {
        let pieces = self.out.iter().take(PIECES_MAX);
        let pieces: SmallVec<[IoSlice<'_>; 16]> = pieces
            .map(|chunk| IoSlice::new(&chunk.bytes.as_slice()[chunk.sent..]))
            .collect();
        if let Some(tls) = &mut self.tls {
            return tls.send(&self.socket, &pieces);
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let no_rights = &mut SendAncillaryBuffer::default();
        sendmsg(&self.socket, &pieces, no_rights, flags)
    }

    fn sent(&mut self, mut count: usize) {
        while let Some(chunk) = self.out.front_mut() {
            let left = chunk.bytes.as_slice().len() - chunk.sent;
            if count < left {
                chunk.sent += count;
                return;
            }
            count -= left;
            self.unsent -= chunk.bytes.as_slice().len();
            self.out.pop_front();
        }
    }
}
