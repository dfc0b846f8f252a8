//! One I/O node's connection, as the council's loop has it: what was received and not understood yet, what has to be sent.

use crate::lobby::Whence;
use crate::wire::{FRAME_MAX, Hello, Malformed, Message};
use presagio_door::tls::{Received, Tls, Trouble};
use presagio_door::{Arrival, Peer, Proof};
use presagio_ninep::Frames;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Bytes that wait for a node to read them; what is decided meanwhile it is not told.
const OUT_MAX: usize = 16 << 10;

/// Announcements that a node may have ready at once, and that it may make in a second.
const BURST: f64 = 1024.0;
const RATE: f64 = 200.0;

/// How far a connection has come.
#[derive(Debug)]
pub enum Phase {
    /// It has not said who it is.
    New,
    /// What it said is being checked.
    Proving(Hello),
    /// It announces.
    Open(Guest),
}

/// A node that is heard.
#[derive(Debug)]
pub struct Guest {
    pub name: String,
    /// Which life of it.
    pub epoch: u64,
    /// Among whose nodes it was counted.
    pub whence: Whence,
    /// When it announced last, or came.
    pub heard: Instant,
}

/// See the module's header.
pub struct Connection {
    pub socket: OwnedFd,
    pub peer: Peer,
    pub phase: Phase,
    /// Which connection it is that has this place: others had it before.
    pub number: u64,
    tls: Option<Tls>,
    frames: Frames,
    out: Vec<u8>,
    sent: usize,
    /// Since when it is here, or has left something unread.
    pub since: Instant,
    /// What epoll was told to look for; none if it was told to look away.
    pub watched: Option<EventFlags>,
    /// As whose it stands in the lobby, while it does.
    pub whence: Whence,
    /// It is to end when all is sent.
    pub ends: bool,
    tokens: f64,
    filled: Instant,
}

/// Why a connection ends.
#[derive(Debug)]
pub enum End {
    /// The other end has left.
    Left,
    /// The socket says so.
    #[allow(dead_code, reason = "for the log")]
    Broken(Errno),
    /// It sent what is no message.
    Malformed(Malformed),
    /// It did not prove who it is.
    Unproved(String),
    /// It announces without end.
    Floods,
}

impl Connection {
    /// A connection that arrived.
    pub fn new(arrival: Arrival, number: u64) -> Result<Connection, rustls::Error> {
        let now = Instant::now();
        Ok(Connection {
            watched: None,
            whence: Whence::of(&arrival.peer),
            socket: arrival.socket,
            peer: arrival.peer,
            phase: Phase::New,
            number,
            tls: arrival.tls.map(Tls::new).transpose()?,
            frames: Frames::new(FRAME_MAX),
            out: Vec::new(),
            sent: 0,
            since: now,
            ends: false,
            tokens: BURST,
            filled: now,
        })
    }

    /// Receives what is there: false if there is nothing for now.
    pub fn receive(&mut self) -> Result<bool, End> {
        let room = self.frames.space();
        let Some(tls) = &mut self.tls else {
            return match recv(&self.socket, room, RecvFlags::DONTWAIT) {
                Ok((0, _)) => Err(End::Left),
                Ok((count, _)) => {
                    self.frames.received(count);
                    Ok(true)
                }
                Err(Errno::AGAIN | Errno::INTR) => Ok(false),
                Err(error) => Err(End::Broken(error)),
            };
        };
        let received = tls.recv(&self.socket, room);
        let flushed = tls.flush(&self.socket);
        match received {
            Ok(Received::Bytes(0)) => return Err(End::Left),
            Ok(Received::Bytes(count)) => self.frames.received(count),
            Ok(Received::Proved(proof)) => self.peer.proof = proof,
            Err(Trouble::Socket(Errno::AGAIN | Errno::INTR)) => {
                return match flushed {
                    Ok(()) | Err(Errno::AGAIN) => Ok(false),
                    Err(error) => Err(End::Broken(error)),
                };
            }
            Err(Trouble::Socket(error)) => return Err(End::Broken(error)),
            Err(Trouble::Broken(_)) => return Err(End::Malformed(Malformed::Frame)),
            Err(Trouble::Unproved(why)) => return Err(End::Unproved(why)),
        }
        Ok(true)
    }

    /// Whether something was received that the socket knows nothing of any more.
    pub fn has_more(&self) -> bool {
        let buffered = self.tls.as_ref().is_some_and(Tls::has_pending);
        buffered
            || matches!(self.frames.head(), Ok(Some(head)) if self.frames.bytes().len() >= head.size as usize)
    }

    /// The next message, if it has come whole.
    pub fn next(&mut self) -> Result<Option<Message>, End> {
        let frame = self.frames.next().map_err(|_| Malformed::Frame);
        match frame.map_err(End::Malformed)? {
            None => {
                self.frames.release();
                Ok(None)
            }
            Some(frame) => Message::read(frame.kind.0, frame.body)
                .map(Some)
                .map_err(End::Malformed),
        }
    }

    /// One more announcement: an end, if there were too many.
    pub fn count(&mut self, now: Instant) -> Result<(), End> {
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + passed * RATE).min(BURST);
        self.filled = now;
        if self.tokens < 1.0 {
            return Err(End::Floods);
        }
        self.tokens -= 1.0;
        Ok(())
    }

    /// Leaves a message to be sent: not if too much waits already.
    pub fn say(&mut self, message: &Message) -> bool {
        if self.out.len() - self.sent > OUT_MAX {
            return false;
        }
        if self.out.len() == self.sent {
            self.since = Instant::now();
        }
        message.write(&mut self.out);
        true
    }

    /// Sends what waits, as far as the other end takes it.
    pub fn send(&mut self) -> Result<(), End> {
        while self.sent < self.out.len() {
            let piece = IoSlice::new(&self.out[self.sent..]);
            let sent = match &mut self.tls {
                Some(tls) => tls.send(&self.socket, &[piece]),
                None => {
                    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                    let nothing = &mut SendAncillaryBuffer::default();
                    sendmsg(&self.socket, &[piece], nothing, flags)
                }
            };
            match sent {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(End::Broken(error)),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(())
    }

    /// Whether something waits to be sent.
    pub fn has_output(&self) -> bool {
        let in_tls = self.tls.as_ref().is_some_and(Tls::wants_write);
        self.sent < self.out.len() || in_tls
    }

    /// What of it is of interest now. While its credential is checked nothing is, not even that it has gone: what is
    /// reported again and again, and cannot be acted upon, would keep the loop busy.
    pub fn interest(&self) -> Option<EventFlags> {
        if matches!(self.phase, Phase::Proving(_)) && !self.ends {
            return None;
        }
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, !self.ends);
        flags.set(EventFlags::OUT, self.has_output());
        Some(flags)
    }

    /// Whether it has been held up for longer than this: by not saying who it is, or by not reading.
    pub fn is_stalled(&self, now: Instant, patience: Duration) -> bool {
        let waits = !matches!(self.phase, Phase::Open(_)) || self.has_output();
        waits && now.saturating_duration_since(self.since) > patience
    }

    /// Whether it is a node that has announced nothing for longer than this.
    pub fn is_silent(&self, now: Instant, patience: Duration) -> bool {
        match &self.phase {
            Phase::Open(guest) => now.saturating_duration_since(guest.heard) > patience,
            Phase::New | Phase::Proving(_) => false,
        }
    }

    /// Whether it is known who is at the other end.
    pub fn is_proved(&self) -> bool {
        self.peer.proof != Proof::Awaited
    }
}
