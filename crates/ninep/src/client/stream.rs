//! What a client talks through.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_linger, set_socket_timeout, socket_domain};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrUnix,
    SocketFlags, SocketType, connect, connect_unspec, recv, sendmsg, shutdown, socket_with,
};
use std::io::{self, IoSlice};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A connection whose two directions are used by different threads at once: at most one receives and one sends.
pub trait Stream: Send + Sync {
    /// Receives what is there, waiting for it no longer than `patience` (not at all if that is zero): `WouldBlock` if
    /// nothing came, 0 bytes if the other side has closed.
    fn recv(&self, to: &mut [u8], patience: Duration) -> io::Result<usize>;

    /// Sends as much as can be sent without waiting: `WouldBlock` if that is nothing.
    fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Waits until something can be sent or, if `or_receive`, received, but no longer than `patience`.
    fn wait(&self, or_receive: bool, patience: Duration) -> io::Result<()>;

    /// Ends both directions; whoever waits in `recv` returns.
    fn close(&self);

    /// What to wait for in an event loop, where there is such a thing.
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Connects to a Unix socket in time: a server that is stopped and whose queue is full would hold us for ever.
pub(crate) fn connect_unix(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let deadline = Instant::now() + timeout;
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let address = SocketAddrUnix::new(path)?;
    loop {
        match connect(&socket, &address) {
            Ok(()) => return Ok(socket.into()),
            Err(Errno::AGAIN | Errno::INTR) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Connects over TCP in time, to the first address that answers.
pub(crate) fn connect_tcp(address: impl ToSocketAddrs, timeout: Duration) -> io::Result<TcpStream> {
    let deadline = Instant::now() + timeout;
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in address.to_socket_addrs()? {
        let left = deadline.saturating_duration_since(Instant::now());
        match TcpStream::connect_timeout(&address, left.max(Duration::from_millis(1))) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                return Ok(socket);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Ends a connection so that nothing more of it arrives. What TCP has not delivered yet is thrown away: else a server that
/// was cut off for a while would do, when it is back, what we have done since in another way.
pub(super) fn abort(socket: impl AsFd) {
    // All of these may fail: it may be closed already, or be no TCP socket. Whoever waits returns.
    let _ = set_socket_linger(&socket, Some(Duration::ZERO));
    let _ = shutdown(&socket, Shutdown::Both);
    if socket_domain(&socket).is_ok_and(|domain| domain != AddressFamily::UNIX) {
        // If another thread still receives this may be refused; then it happens with the last handle.
        let _ = connect_unspec(&socket);
    }
}

/// A Unix or TCP socket, or anything that is one underneath.
#[derive(Debug)]
pub struct Socket<F> {
    socket: F,
    /// The time-out of the last `recv` in nanoseconds: it stays set in the kernel, where it costs nothing.
    armed_ns: AtomicU64,
}

impl<F: AsFd> Socket<F> {
    /// Takes a connected stream socket, and makes it one that blocks.
    pub fn new(socket: F) -> io::Result<Socket<F>> {
        rustix::io::ioctl_fionbio(&socket, false)?;
        Ok(Socket {
            socket,
            armed_ns: AtomicU64::new(0),
        })
    }

    fn arm(&self, patience: Duration) -> io::Result<()> {
        // The kernel takes microseconds, and none of them would mean for ever.
        let patience = patience.max(Duration::from_micros(1));
        let ns = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
        if self.armed_ns.load(Ordering::Relaxed) != ns {
            set_socket_timeout(&self.socket, Timeout::Recv, Some(patience))?;
            self.armed_ns.store(ns, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl<F: AsFd> AsFd for Socket<F> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl<F: AsFd + Send + Sync> Stream for Socket<F> {
    fn recv(&self, to: &mut [u8], patience: Duration) -> io::Result<usize> {
        let flags = match patience.is_zero() {
            true => RecvFlags::DONTWAIT,
            false => {
                self.arm(patience)?;
                RecvFlags::empty()
            }
        };
        let (received, _) = recv(&self.socket, to, flags)?;
        Ok(received)
    }

    fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let mut nothing = SendAncillaryBuffer::default();
        Ok(sendmsg(&self.socket, parts, &mut nothing, flags)?)
    }

    fn wait(&self, or_receive: bool, patience: Duration) -> io::Result<()> {
        let wanted = match or_receive {
            true => PollFlags::OUT | PollFlags::IN,
            false => PollFlags::OUT,
        };
        let timeout = Timespec::try_from(patience).unwrap_or(Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        });
        poll(&mut [PollFd::new(&self.socket, wanted)], Some(&timeout))?;
        Ok(())
    }

    fn close(&self) {
        abort(&self.socket);
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}
