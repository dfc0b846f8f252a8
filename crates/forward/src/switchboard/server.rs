//! The side of the supervisor.
//!
//! What goes on longer than a question is the watch over processes that have locks ([`super::witness`]).
//!
//! Each question is answered on a thread of its own, since connecting may take long; so many at a time, and the others
//! wait in the socket's queue.

use super::Forwarded;
use super::wire::{ANSWER_MAX, NOWHERE, Question, answer, exports};
use super::witness::Watch;
use crate::options::{Connected, Instance, Options};
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown,
    SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, recv, sendmsg, shutdown,
    socket_with,
};
use rustix::process::{Pid, geteuid};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Questions that are answered at once.
const ANSWERING_MAX: usize = 64;

/// How long who has connected may take to ask.
const PATIENCE: Duration = Duration::from_secs(2);

/// Connections that may wait.
const QUEUE: i32 = 1024;

/// Stack of a thread that answers: it calls the resolver, which is not modest.
const STACK: usize = 512 << 10;

/// A socket that will answer, and takes questions already.
#[derive(Debug)]
pub struct Switchboard {
    name: String,
    socket: OwnedFd,
    exports: Vec<Forwarded>,
}

/// A switchboard at work; it stops with the value.
#[derive(Debug)]
pub struct Serving {
    socket: Arc<OwnedFd>,
    desk: Arc<Desk>,
    witness: Option<JoinHandle<()>>,
}

impl Switchboard {
    /// Takes a name of its own. No thread is started yet.
    pub fn open(exports: Vec<Forwarded>) -> io::Result<Switchboard> {
        if super::wire::exports(&exports, |_| NOWHERE).len() >= ANSWER_MAX {
            let what = "more is to be forwarded than a program can be told: name fewer nodes";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let name = format!("presagio-forward-{}", Instance::draw()?);
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        bind(
            &socket,
            &SocketAddrUnix::new_abstract_name(name.as_bytes())?,
        )?;
        listen(&socket, QUEUE)?;
        Ok(Switchboard {
            name,
            socket,
            exports,
        })
    }

    /// What [`Line::call`](super::Line::call) takes.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Answers from here on. The threads inherit the caller's mask of signals.
    pub fn serve(self) -> io::Result<Serving> {
        let socket = Arc::new(self.socket);
        let desk = Arc::new(Desk {
            went: self
                .exports
                .iter()
                .map(|_| AtomicU32::new(NOWHERE))
                .collect(),
            exports: self.exports,
            answering: Mutex::new(0),
            done: Condvar::new(),
            watch: Watch::new()?,
        });
        let (listener, clerk) = (socket.clone(), desk.clone());
        std::thread::Builder::new()
            .name("switchboard".into())
            .spawn(move || attend(&listener, &clerk))?;
        let watcher = desk.clone();
        let witness = std::thread::Builder::new()
            .name("witness".into())
            .spawn(move || watcher.watch.attend(&watcher.exports))?;
        Ok(Serving {
            socket,
            desk,
            witness: Some(witness),
        })
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Whoever accepts returns; who still answers may do so.
        let _ = shutdown(&self.socket, Shutdown::Both);
        self.desk.watch.end();
        if let Some(witness) = self.witness.take() {
            // A thread that panicked has said so.
            let _ = witness.join();
        }
    }
}

/// What those who answer share.
#[derive(Debug)]
struct Desk {
    exports: Vec<Forwarded>,
    /// To which node of each a process went last that had lost another.
    went: Vec<AtomicU32>,
    answering: Mutex<usize>,
    done: Condvar,
    watch: Watch,
}

/// One of those that may answer at once.
struct Seat(Arc<Desk>);

impl Seat {
    fn take(desk: &Arc<Desk>) -> Seat {
        let lock = desk.answering.lock();
        let mut answering = lock.unwrap_or_else(PoisonError::into_inner);
        while *answering >= ANSWERING_MAX {
            let waited = desk.done.wait(answering);
            answering = waited.unwrap_or_else(PoisonError::into_inner);
        }
        *answering += 1;
        Seat(desk.clone())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let lock = self.0.answering.lock();
        *lock.unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.done.notify_one();
    }
}

/// Takes whoever comes, until the socket is shut.
fn attend(listener: &OwnedFd, desk: &Arc<Desk>) {
    loop {
        let guest = match accept_with(listener, SocketFlags::CLOEXEC) {
            Ok(guest) => guest,
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::BADF) => return,
            Err(error) => {
                // Interrupted, or no descriptor is left for the moment.
                tracing::debug!(%error, "the switchboard cannot accept");
                std::thread::sleep(Duration::from_millis(10));
                continue;
            }
        };
        let seat = Seat::take(desk);
        let thread = std::thread::Builder::new().name("operator".into());
        // Without a thread nobody answers, and the guest finds its connection closed.
        let _ = thread
            .stack_size(STACK)
            .spawn(move || serve(&seat.0, &guest));
    }
}

/// Answers one question, of a process of this user.
fn serve(desk: &Desk, guest: &OwnedFd) {
    let Ok(peer) = socket_peercred(guest) else {
        return;
    };
    if peer.uid != geteuid() || set_socket_timeout(guest, Timeout::Recv, Some(PATIENCE)).is_err() {
        return;
    }
    let mut bytes = [0; 2 * Question::SIZE];
    let Ok((count, _)) = recv(guest, &mut bytes, RecvFlags::empty()) else {
        return;
    };
    let Some(question) = Question::read(&bytes[..count]) else {
        return;
    };
    let (said, socket) = match desk.reply(question, peer.pid) {
        Ok((said, socket)) => (Ok(said), socket),
        Err(error) => (Err(error), None),
    };
    if let Err(error) = send(guest, &answer(&said), socket.as_ref()) {
        tracing::debug!(%error, "who asked has left");
    }
}

impl Desk {
    /// To the process `pid`, which waits meanwhile.
    fn reply(&self, question: Question, pid: Pid) -> io::Result<(Vec<u8>, Option<Connected>)> {
        match question {
            Question::Exports => {
                let went = |export: usize| self.went[export].load(Ordering::Relaxed);
                Ok((exports(&self.exports, went), None))
            }
            Question::Went { export, node } => {
                self.options(export)?;
                self.went[export as usize].store(node, Ordering::Relaxed);
                Ok((Vec::new(), None))
            }
            Question::Dial { export, node } => {
                let socket = dial(self.options(export)?, node as usize)?;
                Ok((Vec::new(), Some(socket)))
            }
            Question::Credential { export } => match &self.options(export)?.credential {
                Some(credential) => Ok(((credential.0)()?, None)),
                None => Err(io::ErrorKind::NotFound.into()),
            },
            Question::Witness { export, instance } => {
                self.options(export)?;
                self.watch.add(pid, export as usize, instance)?;
                Ok((Vec::new(), None))
            }
            Question::Direct { export, without } => match self.options(export)?.last_resort.clone()
            {
                Some(resort) => Ok((Vec::new(), Some(resort.0.connect(without)?))),
                None => Err(io::ErrorKind::NotFound.into()),
            },
        }
    }

    fn options(&self, export: u32) -> io::Result<&Options> {
        let one = self.exports.get(export as usize);
        one.map(|one| &one.options)
            .ok_or_else(|| rustix::io::Errno::INVAL.into())
    }
}

/// A connected socket for somebody else.
fn dial(options: &Options, node: usize) -> io::Result<Connected> {
    if let Some(resort) = &options.last_resort
        && resort.0.is_used()
    {
        // A node that does not answer would keep each new program waiting.
        return Err(rustix::io::Errno::CONNREFUSED.into());
    }
    if let Some(dial) = &options.dial {
        return (dial.0)(node, options.connect_timeout);
    }
    let Some(address) = options.nodes.get(node) else {
        return Err(rustix::io::Errno::INVAL.into());
    };
    #[cfg(feature = "tls")]
    if let (Some(identity), presagio_ninep::Address::Tcp(host)) = (&options.tls, address) {
        let socket = super::relay::dial(host, identity, options.connect_timeout)?;
        return Ok(Box::new(socket));
    }
    Ok(Box::new(address.dial(options.connect_timeout)?))
}

fn send(guest: &OwnedFd, bytes: &[u8], socket: Option<&Connected>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = socket.map(AsFd::as_fd);
    if descriptors.is_some()
        && !control.push(SendAncillaryMessage::ScmRights(descriptors.as_slice()))
    {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    sendmsg(
        guest,
        &[IoSlice::new(bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}
