//! TLS on a connection: what is received is turned into plain bytes, and the other way round. It does not wait: the loop
//! that has the connection receives and sends when the socket is ready.
//!
//! *Invariant.* No plain byte comes out before it is known whose certificate it was.

use crate::certificate;
use crate::peer::Proof;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};
use rustls::{ServerConfig, ServerConnection};
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// What is received with one call: rustls itself would take 4 KiB.
const ROOM: usize = 64 << 10;

/// The state of TLS on one connection.
pub struct Tls {
    connection: ServerConnection,
    /// Whether it is known who is at the other end.
    is_known: bool,
    /// What was received and not taken apart yet.
    incoming: Vec<u8>,
    start: usize,
    /// Plain bytes that can be taken out.
    plain: usize,
}

/// What came of receiving.
pub enum Received {
    /// So many plain bytes; none if the other end has left.
    Bytes(usize),
    /// It is known who is at the other end.
    Proved(Proof),
}

/// Why nothing came.
pub enum Trouble {
    /// The socket says so.
    Socket(Errno),
    /// What came is no TLS as it was agreed on.
    Broken(rustls::Error),
    /// The other end did not show a certificate that counts.
    Unproved(String),
}

impl Tls {
    /// TLS that begins.
    pub fn new(config: Arc<ServerConfig>) -> Result<Tls, rustls::Error> {
        Ok(Tls {
            connection: ServerConnection::new(config)?,
            is_known: false,
            incoming: Vec::new(),
            start: 0,
            plain: 0,
        })
    }

    /// Receives what is there.
    pub fn recv(&mut self, socket: &OwnedFd, room: &mut [u8]) -> Result<Received, Trouble> {
        loop {
            if !self.is_known && !self.connection.is_handshaking() {
                self.is_known = true;
                return self.user().map(Received::Proved);
            }
            if self.is_known
                && let Some(count) = self.take(room)
            {
                return Ok(Received::Bytes(count));
            }
            if self.start == self.incoming.len() && self.fill(socket)? == 0 {
                return Ok(Received::Bytes(0));
            }
            self.feed()?;
        }
    }

    /// Takes plain bytes out; `None` if there are none yet.
    fn take(&mut self, room: &mut [u8]) -> Option<usize> {
        match self.connection.reader().read(room) {
            Ok(count) => {
                self.plain = self.plain.saturating_sub(count);
                Some(count)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(_) => Some(0),
        }
    }

    fn fill(&mut self, socket: &OwnedFd) -> Result<usize, Trouble> {
        self.incoming.resize(ROOM, 0);
        let received = recv(socket, &mut self.incoming[..], RecvFlags::DONTWAIT);
        let count = received.as_ref().map_or(0, |(count, _)| *count);
        self.incoming.truncate(count);
        self.start = 0;
        received.map(|_| count).map_err(Trouble::Socket)
    }

    fn feed(&mut self) -> Result<(), Trouble> {
        let mut rest = &self.incoming[self.start..];
        let taken = self.connection.read_tls(&mut rest);
        let taken =
            taken.map_err(|error| Trouble::Broken(rustls::Error::General(error.to_string())))?;
        self.start += taken;
        match self.connection.process_new_packets() {
            Ok(state) => {
                self.plain = state.plaintext_bytes_to_read();
                Ok(())
            }
            Err(rustls::Error::InvalidCertificate(why)) => Err(Trouble::Unproved(format!(
                "its certificate does not count: {why}"
            ))),
            Err(rustls::Error::NoCertificatesPresented) => {
                Err(Trouble::Unproved("it showed no certificate".to_owned()))
            }
            Err(error) => Err(Trouble::Broken(error)),
        }
    }

    fn user(&self) -> Result<Proof, Trouble> {
        let shown = self.connection.peer_certificates();
        let own = shown.and_then(|shown| shown.first());
        let user = own.map_or(Err("it showed no certificate"), certificate::user);
        user.map_err(|why| Trouble::Unproved(why.to_owned()))
    }

    /// Sends plain bytes, as many as there is room for, and what is left of others.
    pub fn send(&mut self, socket: &OwnedFd, pieces: &[IoSlice<'_>]) -> Result<usize, Errno> {
        self.flush(socket)?;
        let written = self.connection.writer().write_vectored(pieces);
        let count = written.map_err(|_| Errno::IO)?;
        match self.flush(socket) {
            Ok(()) | Err(Errno::AGAIN) => Ok(count),
            Err(error) => Err(error),
        }
    }

    /// Sends what has been made ready; an alert, too, if all is over.
    pub fn flush(&mut self, socket: &OwnedFd) -> Result<(), Errno> {
        while self.connection.wants_write() {
            let sent = self.connection.write_tls(&mut Wire(socket));
            sent.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        }
        Ok(())
    }

    /// Whether something is ready to be sent.
    pub fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Whether there is something to take out that the socket knows nothing of any more.
    pub fn has_pending(&self) -> bool {
        self.plain > 0 || self.start < self.incoming.len()
    }

    /// Gives memory back, if nothing is in it.
    pub fn release(&mut self) {
        if self.start == self.incoming.len() {
            (self.incoming, self.start) = (Vec::new(), 0);
        }
    }
}

/// The socket, as rustls writes to it.
struct Wire<'a>(&'a OwnedFd);

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let no_rights = &mut SendAncillaryBuffer::default();
        Ok(sendmsg(self.0, pieces, no_rights, flags)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
