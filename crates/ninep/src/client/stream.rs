//! What a client talks through.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrUnix,
    SocketFlags, SocketType, connect, recv, sendmsg, shutdown, socket_with,
};
use std::io::{self, IoSlice};
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

/// Connects to a Unix socket until `deadline`: a server that is stopped and whose queue is full would hold us for ever.
pub(super) fn connect_unix(path: &Path, deadline: Instant) -> io::Result<UnixStream> {
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
        // It may be closed already.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}
