//! TLS on behalf of a program: it gets one end of a pair of sockets, and what goes through the other end goes through a
//! connection with TLS. Two threads for each connection, one for each direction; both end when either side does.

use presagio_ninep::client::Stream;
#[cfg(feature = "tls")]
use presagio_ninep::client::{self, TlsIdentity, TlsSocket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// What is taken at a time.
const ROOM: usize = 64 << 10;

/// How long a thread waits at a time.
const PATIENCE: Duration = Duration::from_secs(1);

/// Connects to `host:port` with TLS; the plain end of it.
#[cfg(feature = "tls")]
pub(super) fn dial(host: &str, identity: &TlsIdentity, timeout: Duration) -> io::Result<OwnedFd> {
    let options = client::Options {
        connect_timeout: timeout,
        ..client::Options::default()
    };
    relay(TlsSocket::connect(host, identity, &options)?)
}

/// Relays; the end for the program.
fn relay(far: impl Stream + AsFd + 'static) -> io::Result<OwnedFd> {
    let far = Arc::new(far);
    let (near, theirs) = UnixStream::pair()?;
    let (near, back) = (Arc::new(near.try_clone()?), near);
    let there = (far.clone(), near.clone());
    spawn("relay-out", move || outwards(&*there.0, &there.1))?;
    let started = spawn("relay-in", move || inwards(&*far, &back));
    if started.is_err() {
        // The other thread ends with it.
        let _ = near.shutdown(Shutdown::Both);
    }
    started?;
    Ok(theirs.into())
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = std::thread::Builder::new().name(name.into());
    thread.stack_size(4 * ROOM).spawn(work).map(drop)
}

/// From the program to the node, until one of them is gone.
fn outwards(far: &(impl Stream + AsFd), near: &UnixStream) {
    let mut room = vec![0; ROOM];
    while let Ok(count @ 1..) = (&*near).read(&mut room) {
        if send_all(far, near, &room[..count]).is_err() {
            break;
        }
    }
    part(far, near);
}

/// From the node to the program, until one of them is gone.
fn inwards(far: &impl Stream, near: &UnixStream) {
    let mut room = vec![0; ROOM];
    loop {
        match far.recv(&mut room, PATIENCE) {
            Ok(0) => break,
            Ok(count) if (&*near).write_all(&room[..count]).is_ok() => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => break,
        }
    }
    part(far, near);
}

/// Sends what a program asked for, as long as it is there: one that has hung up does it at another node by now, and this one,
/// when it goes on, must not do it after that.
fn send_all(far: &(impl Stream + AsFd), near: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        if has_hung_up(near)? {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        match far.send(&[IoSlice::new(bytes)]) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait(far, near)?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waits until the node takes more, or the program hangs up.
fn wait(far: &impl AsFd, near: &UnixStream) -> io::Result<()> {
    let mut both = [
        PollFd::new(far, PollFlags::OUT),
        PollFd::new(near, PollFlags::RDHUP),
    ];
    look(&mut both, PATIENCE)
}

fn has_hung_up(near: &UnixStream) -> io::Result<bool> {
    let mut near = [PollFd::new(near, PollFlags::RDHUP)];
    look(&mut near, Duration::ZERO)?;
    Ok(!near[0].revents().is_empty())
}

fn look(at: &mut [PollFd<'_>], patience: Duration) -> io::Result<()> {
    let patience = Timespec::try_from(patience).ok();
    match poll(at, patience.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Ends both. What the node has not received is thrown away.
fn part(far: &impl Stream, near: &UnixStream) {
    far.close();
    // It may be closed already.
    let _ = near.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;
    use presagio_ninep::client::Socket;
    use std::net::{TcpListener, TcpStream};
    use std::time::Instant;

    /// A node, and the program's end of the relay to it.
    fn relayed() -> (TcpStream, UnixStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (node, _) = listener.accept().unwrap();
        let program = relay(Socket::new(far).unwrap()).unwrap();
        (node, program.into())
    }

    /// Sends until nothing more is taken; returns how much was.
    fn fill(mut program: &UnixStream) -> usize {
        program.set_nonblocking(true).unwrap();
        let (mut sent, mut refused) = (0, 0);
        while refused < 100 {
            match program.write(&[1; ROOM]) {
                Ok(count) => (sent, refused) = (sent + count, 0),
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    refused += 1;
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
        sent
    }

    #[test]
    fn what_a_program_asked_of_a_frozen_node_is_gone_when_it_hangs_up() {
        let (mut node, program) = relayed();
        let sent = fill(&program);
        program.shutdown(Shutdown::Both).unwrap();
        let late = Instant::now() + Duration::from_secs(60);
        while node.take_error().unwrap().is_none() {
            assert!(Instant::now() < late, "the connection is not ended");
            std::thread::sleep(Duration::from_millis(1));
        }
        // It goes on: there is what had arrived, and no more.
        let mut arrived = Vec::new();
        let _ = node.read_to_end(&mut arrived);
        assert!(arrived.len() < sent, "all {sent} bytes arrived");
    }

    #[test]
    fn bytes_go_both_ways_until_one_side_is_gone() {
        let (mut node, mut program) = relayed();
        let mut bytes = [0; 7];
        program.write_all(b"request").unwrap();
        node.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"request");
        node.write_all(b"a reply").unwrap();
        program.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"a reply");
        drop(node);
        assert_eq!(program.read(&mut bytes).unwrap(), 0);
    }
}
