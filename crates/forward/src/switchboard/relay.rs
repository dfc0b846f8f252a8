//! TLS on behalf of a program: it gets one end of a pair of sockets, and what goes through the other end goes through a
//! connection with TLS. Two threads for each connection, one for each direction; both end when either side does.

use presagio_ninep::client::{self, Stream, TlsIdentity, TlsSocket};
use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// What is taken at a time.
const ROOM: usize = 64 << 10;

/// How long a thread waits at a time.
const PATIENCE: Duration = Duration::from_secs(1);

/// Connects to `host:port` with TLS; the plain end of it.
pub(super) fn dial(host: &str, identity: &TlsIdentity, timeout: Duration) -> io::Result<OwnedFd> {
    let options = client::Options {
        connect_timeout: timeout,
        ..client::Options::default()
    };
    let far = Arc::new(TlsSocket::connect(host, identity, &options)?);
    let (near, theirs) = UnixStream::pair()?;
    let (near, back) = (Arc::new(near.try_clone()?), near);
    let there = (far.clone(), near.clone());
    spawn("relay-out", move || outwards(&there.0, &there.1))?;
    let started = spawn("relay-in", move || inwards(&far, &back));
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
fn outwards(far: &TlsSocket, near: &UnixStream) {
    let mut room = vec![0; ROOM];
    while let Ok(count @ 1..) = (&*near).read(&mut room) {
        if send_all(far, &room[..count]).is_err() {
            break;
        }
    }
    part(far, near);
}

/// From the node to the program, until one of them is gone.
fn inwards(far: &TlsSocket, near: &UnixStream) {
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

fn send_all(far: &TlsSocket, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match far.send(&[IoSlice::new(bytes)]) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                far.wait(false, PATIENCE)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn part(far: &TlsSocket, near: &UnixStream) {
    far.close();
    // It may be closed already.
    let _ = near.shutdown(Shutdown::Both);
}
