//! Where connections come from: Unix sockets and TCP.

use crate::peer::{Origin, Peer, Proof};
use crate::shares::Share;
use crate::{Address, Door, Gate};
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use rustls::ServerConfig;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Connections that wait to be taken.
const BACKLOG: i32 = 128;

/// A connection that has just come.
pub struct Arrival {
    /// It.
    pub socket: OwnedFd,
    /// Who is at its other end.
    pub peer: Peer,
    /// That it is counted among the connections of its user, if that is known.
    pub share: Option<Share>,
    /// How to speak TLS on it, if that is what is spoken.
    pub tls: Option<Arc<ServerConfig>>,
}

/// A socket that connections come to.
pub struct Listener {
    kind: Kind,
    /// What is asked of those who come over TCP.
    gate: Gate,
}

enum Kind {
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener),
}

impl Listener {
    /// Listens. Over TCP where nobody would be known, only on this machine's own addresses.
    pub fn bind(address: &Address, door: &Door) -> io::Result<Listener> {
        let kind = match address {
            Address::Unix(path) => Kind::Unix(bind_unix(path, door.socket_mode)?, path.clone()),
            Address::Tcp(host) => Kind::Tcp(bind_tcp(host, &door.tcp)?),
        };
        let gate = door.tcp.clone();
        let listener = Listener { kind, gate };
        rustix::io::ioctl_fionbio(listener.as_fd(), true)?;
        Ok(listener)
    }

    /// Where it listens, with the port that the system chose if it was asked to.
    pub fn address(&self) -> io::Result<Address> {
        Ok(match &self.kind {
            Kind::Unix(_, path) => Address::Unix(path.clone()),
            Kind::Tcp(listener) => Address::Tcp(listener.local_addr()?.to_string()),
        })
    }

    /// The next connection, if one has come.
    pub fn accept(&self, number: u64) -> io::Result<Option<Arrival>> {
        let arrival = match &self.kind {
            Kind::Unix(listener, _) => listener.accept().and_then(|(it, _)| arrived(it, number)),
            Kind::Tcp(listener) => listener
                .accept()
                .and_then(|(it, from)| self.tcp(it, from, number)),
        };
        match arrival {
            Ok(arrival) => Ok(Some(arrival)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn tcp(&self, stream: TcpStream, from: SocketAddr, number: u64) -> io::Result<Arrival> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, std::time::Duration::from_secs(60))?;
        let proof = self.gate.proof(|| local_owner(&stream));
        let peer = Peer {
            number,
            from: Origin::Tcp(from),
            proof,
        };
        Ok(Arrival {
            socket: stream.into(),
            peer,
            share: None,
            tls: match &self.gate {
                Gate::Tls(tls) => Some(tls.clone()),
                Gate::Plain { .. } | Gate::Munge(_) => None,
            },
        })
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.kind {
            Kind::Unix(listener, _) => listener.as_fd(),
            Kind::Tcp(listener) => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Kind::Unix(_, path) = &self.kind {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Listens on a Unix socket that has these permissions from its first moment on: whoever connects before they are
/// changed stays connected.
pub fn bind_unix(path: &Path, mode: u32) -> io::Result<UnixListener> {
    clear_socket(path)?;
    let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    // Linux gives the name that a socket is bound to the mode of the socket itself, less the umask.
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(mode))?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// A socket that nobody listens to is left over from a node that was killed.
fn clear_socket(path: &Path) -> io::Result<()> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket());
    match is_socket.then(|| UnixStream::connect(path)) {
        None => Ok(()),
        Some(Ok(_)) => Err(io::ErrorKind::AddrInUse.into()),
        Some(Err(_)) => std::fs::remove_file(path),
    }
}

fn bind_tcp(host: &str, gate: &Gate) -> io::Result<TcpListener> {
    let addresses: Vec<SocketAddr> = host.to_socket_addrs()?.collect();
    let open = addresses.iter().find(|address| !address.ip().is_loopback());
    if let Some(address) = open
        && !gate.is_open_to_others()
    {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "{address} can be reached from other machines, and plain TCP proves nobody's identity"
            ),
        ));
    }
    TcpListener::bind(&*addresses)
}

/// A connection through a Unix socket: the kernel says whose it is.
pub fn arrived(stream: UnixStream, number: u64) -> io::Result<Arrival> {
    stream.set_nonblocking(true)?;
    let who = sockopt::socket_peercred(&stream)?;
    let peer = Peer {
        number,
        from: Origin::Unix {
            pid: who.pid.as_raw_nonzero().get(),
        },
        proof: Proof::User {
            uid: who.uid.as_raw(),
            gid: who.gid.as_raw(),
        },
    };
    Ok(Arrival {
        socket: stream.into(),
        peer,
        share: None,
        tls: None,
    })
}

/// The user whose socket is the other end of a connection within this machine: the kernel lists it.
fn local_owner(stream: &TcpStream) -> Option<Proof> {
    let (here, there) = (stream.local_addr().ok()?, stream.peer_addr().ok()?);
    let table = match here {
        SocketAddr::V4(_) => "/proc/net/tcp",
        SocketAddr::V6(_) => "/proc/net/tcp6",
    };
    let table = std::fs::read_to_string(table).ok()?;
    let (local, remote) = (hex(there), hex(here));
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, from, to, state, _, _, _, uid, _, inode, ..] = *fields else {
            return None;
        };
        // A socket that was closed is nobody's any more, and listed as root's.
        let is_open = state == ESTABLISHED && inode != "0";
        let is_it = from == local && to == remote && is_open;
        is_it
            .then(|| uid.parse().ok())
            .flatten()
            .map(|uid| Proof::User {
                uid,
                gid: crate::NOBODY,
            })
    })
}

/// The state of a connection whose both ends are open, in that table.
const ESTABLISHED: &str = "01";

/// An address as the kernel's table writes it: words of the machine's own order, in hexadecimal.
fn hex(address: SocketAddr) -> String {
    let words: Vec<u32> = match address {
        SocketAddr::V4(address) => vec![u32::from_ne_bytes(address.ip().octets())],
        SocketAddr::V6(address) => {
            let octets = address.ip().octets();
            let words = octets.chunks_exact(4);
            words
                .map(|word| u32::from_ne_bytes(word.try_into().expect("four bytes")))
                .collect()
        }
    };
    let words: String = words.iter().map(|word| format!("{word:08X}")).collect();
    format!("{words}:{:04X}", address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    const PLAIN: Door = Door {
        tcp: Gate::Plain { trusted: false },
        socket_mode: 0o600,
    };

    #[test]
    fn plain_tcp_is_not_offered_to_other_machines() {
        let refused = Listener::bind(&Address::Tcp("0.0.0.0:0".to_owned()), &PLAIN);
        assert_eq!(
            refused.err().unwrap().kind(),
            io::ErrorKind::PermissionDenied
        );
        assert!(Listener::bind(&Address::Tcp("127.0.0.1:0".to_owned()), &PLAIN).is_ok());
        let trusting = Door {
            tcp: Gate::Plain { trusted: true },
            ..PLAIN
        };
        assert!(Listener::bind(&Address::Tcp("0.0.0.0:0".to_owned()), &trusting).is_ok());
    }

    #[test]
    fn the_owner_of_a_local_connection_is_known() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = Listener::bind(&Address::Tcp(host.to_owned()), &PLAIN) else {
                continue; // No IPv6 here.
            };
            let Ok(Address::Tcp(at)) = listener.address() else {
                unreachable!()
            };
            let _client = TcpStream::connect(at).unwrap();
            let arrival = std::iter::repeat_with(|| listener.accept(1).unwrap()).find_map(|it| it);
            let uid = rustix::process::getuid().as_raw();
            let proof = arrival.unwrap().peer.proof;
            assert!(
                matches!(proof, Proof::User { uid: it, .. } if it == uid),
                "{proof:?}"
            );
        }
    }

    #[test]
    fn a_private_socket_is_private_from_its_first_moment_on() {
        rustix::process::umask(Mode::empty());
        let dir = tempfile::tempdir().unwrap();
        let (path, over) = (dir.path().join("socket"), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let looking = scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let seen = std::fs::metadata(&path).map_or(0o600, |it| it.permissions().mode());
                    assert_eq!(seen & 0o777, 0o600);
                }
            });
            for _ in 0..500 {
                drop(bind_unix(&path, 0o600).unwrap());
            }
            over.store(true, Ordering::Relaxed);
            looking.join().unwrap();
        });
    }

    #[test]
    fn a_socket_left_over_is_replaced_and_one_in_use_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node.sock");
        drop(UnixListener::bind(&path).unwrap());
        let address = Address::Unix(path);
        let listener = Listener::bind(&address, &PLAIN).unwrap();
        assert!(Listener::bind(&address, &PLAIN).is_err());
        drop(listener);
        assert!(Listener::bind(&address, &PLAIN).is_ok());
    }
}
