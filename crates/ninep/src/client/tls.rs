//! TLS 1.3 as something that a client talks through.
//!
//! One thread may receive while another sends, but TLS has one state: it is locked while bytes are turned, never while
//! anybody waits. Bytes that a sender has turned and the socket does not take at once stay in that state; whoever
//! receives then sends them, and is woken to do so.

use super::stream::abort;
use super::{Client, Lost, Options, Stream, connect_tcp};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What is received with one call.
const ROOM: usize = 64 << 10;

/// Who we are, and whom we believe: the same for any number of connections.
#[derive(Clone, Debug)]
pub struct TlsIdentity(Arc<ClientConfig>);

impl TlsIdentity {
    /// From PEM files: our certificate, which names our user, its key, and the authority that signed the servers'.
    pub fn from_files(certificate: &Path, key: &Path, server_ca: &Path) -> io::Result<TlsIdentity> {
        let own = certificates(certificate)?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, error))?;
        let config = TlsIdentity::believing(server_ca)?
            .with_client_auth_cert(own, key)
            .map_err(|error| unusable(certificate, error))?;
        Ok(TlsIdentity(Arc::new(config)))
    }

    /// Nobody: no server of ours lets in who has no certificate.
    pub fn anonymous(server_ca: &Path) -> io::Result<TlsIdentity> {
        let config = TlsIdentity::believing(server_ca)?.with_no_client_auth();
        Ok(TlsIdentity(Arc::new(config)))
    }

    fn believing(
        server_ca: &Path,
    ) -> io::Result<rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>> {
        let mut roots = RootCertStore::empty();
        for root in certificates(server_ca)? {
            roots
                .add(root)
                .map_err(|error| unusable(server_ca, error))?;
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(io::Error::other)?;
        Ok(config.with_root_certificates(roots))
    }
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| unusable(path, error))
}

fn unusable(path: &Path, why: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("{} is of no use for TLS: {why}", path.display()))
}

impl Client {
    /// Connects over TLS to `host:port`; the server's certificate has to be of that host.
    pub fn tls(address: &str, identity: &TlsIdentity, options: &Options) -> Result<Client, Lost> {
        Client::connect(TlsSocket::connect(address, identity, options)?, options)
    }
}

/// A TCP socket with TLS on it.
#[derive(Debug)]
pub struct TlsSocket {
    socket: TcpStream,
    state: Mutex<State>,
    /// Wakes who waits to receive: there is something to send.
    nudge: OwnedFd,
}

#[derive(Debug)]
struct State {
    tls: ClientConnection,
    /// What was received and not taken apart yet.
    incoming: Vec<u8>,
    start: usize,
    has_ended: bool,
}

impl TlsSocket {
    /// Connects to `host:port`, and agrees on keys.
    pub fn connect(
        address: &str,
        identity: &TlsIdentity,
        options: &Options,
    ) -> io::Result<TlsSocket> {
        let deadline = Instant::now() + options.connect_timeout;
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let tls = ClientConnection::new(identity.0.clone(), name).map_err(io::Error::other)?;
        let socket = TlsSocket {
            socket: connect_tcp(address, options.connect_timeout)?,
            state: Mutex::new(State {
                tls,
                incoming: Vec::new(),
                start: 0,
                has_ended: false,
            }),
            nudge: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        };
        socket.shake_hands(deadline)?;
        Ok(socket)
    }

    fn shake_hands(&self, deadline: Instant) -> io::Result<()> {
        loop {
            let mut state = self.state();
            state.flush(&self.socket)?;
            if !state.tls.is_handshaking() {
                return Ok(());
            }
            let turned = state.turn_what_came(&self.socket);
            drop(state);
            match turned {
                Ok(()) if self.state().has_ended => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    self.wait_to_receive(left)?;
                }
                other => other?,
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something came, or what waits to be sent can be.
    fn wait_to_receive(&self, patience: Duration) -> io::Result<()> {
        let mut wanted = PollFlags::IN;
        wanted.set(PollFlags::OUT, self.state().tls.wants_write());
        let mut both = [
            PollFd::new(&self.socket, wanted),
            PollFd::new(&self.nudge, PollFlags::IN),
        ];
        match poll(&mut both, Some(&timespec(patience))) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !both[1].revents().is_empty() {
            let _ = rustix::io::read(&self.nudge, &mut [0; 8]);
        }
        Ok(())
    }
}

impl State {
    /// Plain bytes, if there are any: 0 if there will be none any more.
    fn take(&mut self, to: &mut [u8]) -> Option<usize> {
        match self.tls.reader().read(to) {
            Ok(count) => Some(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !self.has_ended => None,
            Err(_) => Some(0),
        }
    }

    /// Receives, if nothing is left of the last time, and turns it into plain bytes.
    fn turn_what_came(&mut self, socket: &TcpStream) -> io::Result<()> {
        if self.start == self.incoming.len() {
            self.incoming.resize(ROOM, 0);
            let received = recv(socket, &mut self.incoming[..], RecvFlags::DONTWAIT);
            let count = received.as_ref().map_or(0, |(count, _)| *count);
            self.incoming.truncate(count);
            self.start = 0;
            received?;
            self.has_ended = count == 0;
        }
        let mut rest = &self.incoming[self.start..];
        if rest.is_empty() {
            return Ok(());
        }
        self.start += self.tls.read_tls(&mut rest)?;
        let processed = self.tls.process_new_packets();
        // What it has to say to that, an alert perhaps, goes as far as it goes.
        let flushed = self.flush(socket);
        processed.map_err(io::Error::other)?;
        flushed
    }

    /// Sends what was turned, as far as the socket takes it.
    fn flush(&mut self, socket: &TcpStream) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut Wire(socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Stream for TlsSocket {
    fn recv(&self, to: &mut [u8], patience: Duration) -> io::Result<usize> {
        let deadline = Instant::now() + patience;
        loop {
            let mut state = self.state();
            if let Some(count) = state.take(to) {
                return Ok(count);
            }
            let turned = state.turn_what_came(&self.socket);
            drop(state);
            match turned {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(error);
                    }
                    self.wait_to_receive(left)?;
                    self.state().flush(&self.socket)?;
                }
                other => other?,
            }
        }
    }

    fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut state = self.state();
        state.flush(&self.socket)?;
        if state.tls.wants_write() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = state.tls.writer().write_vectored(parts)?;
        state.flush(&self.socket)?;
        if state.tls.wants_write() {
            // It cannot fail but by being set already.
            let _ = rustix::io::write(&self.nudge, &1u64.to_ne_bytes());
        }
        Ok(count)
    }

    fn wait(&self, or_receive: bool, patience: Duration) -> io::Result<()> {
        let mut wanted = PollFlags::OUT;
        if or_receive {
            let state = self.state();
            if state.start < state.incoming.len() {
                return Ok(());
            }
            wanted |= PollFlags::IN;
        }
        let mut socket = [PollFd::new(&self.socket, wanted)];
        poll(&mut socket, Some(&timespec(patience)))?;
        Ok(())
    }

    fn close(&self) {
        // No word of parting: it would only wait behind what is not to arrive.
        abort(&self.socket);
    }
}

/// The socket below: to wait until it takes more. What is in it is nobody's but this.
impl AsFd for TlsSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The socket, as rustls writes to it.
struct Wire<'a>(&'a TcpStream);

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let mut nothing = SendAncillaryBuffer::default();
        Ok(sendmsg(self.0, parts, &mut nothing, flags)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn timespec(patience: Duration) -> Timespec {
    Timespec::try_from(patience).unwrap_or(Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    })
}
