//! The side of the programs: asks, and waits for the answer for a bounded time.

use super::Forwarded;
use super::wire::{ANSWER_MAX, NOWHERE, Question, garbage, read_answer, read_exports};
use crate::options::{Connected, Credential, Dial, LastResort, Others, Spread, Witness};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, send, socket_with,
};
use rustix::process::geteuid;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a switchboard may take for what it knows.
const PATIENCE: Duration = Duration::from_secs(5);

/// A way to ask a switchboard.
#[derive(Clone, Debug)]
pub struct Line {
    name: Arc<str>,
}

impl Line {
    /// To the switchboard of this name, if it is there and ours.
    pub fn call(name: &str) -> io::Result<Line> {
        let line = Line { name: name.into() };
        line.connect(Instant::now() + PATIENCE)?;
        Ok(line)
    }

    /// What is forwarded, with options that reach the nodes through the switchboard and start no thread.
    pub fn exports(&self) -> io::Result<Vec<Forwarded>> {
        let (bytes, _) = self.ask(Question::Exports, PATIENCE)?;
        let all = read_exports(&bytes)?.into_iter().zip(0..);
        let wired = all.map(|((one, through), export)| {
            let mut one = self.wired(one, export);
            let credential = through.credential.then(|| self.credential(export));
            let direct = through.direct.then(|| self.direct(export));
            (one.options.credential, one.options.last_resort) = (credential, direct);
            let node = through.went.map(|node| node as usize);
            one.options.others =
                (one.options.spread == Spread::Clients).then(|| self.others(export, node));
            one
        });
        Ok(wired.collect())
    }

    fn wired(&self, mut one: Forwarded, export: u32) -> Forwarded {
        let line = self.clone();
        let patience = one.options.connect_timeout + PATIENCE;
        let dial = move |node, left: Duration| line.dial(export, node, patience.min(left));
        one.options.dial = Some(Dial(Arc::new(dial)));
        let line = self.clone();
        one.options.witness = Some(Witness(Arc::new(move |instance| {
            let question = Question::Witness { export, instance };
            line.ask(question, PATIENCE).map(drop)
        })));
        one.options.threads = false;
        one
    }

    fn others(&self, export: u32, node: Option<usize>) -> Others {
        let line = self.clone();
        let told = move |node| {
            let node = u32::try_from(node).unwrap_or(NOWHERE);
            // Who is not told begins where it would have begun.
            let _ = line.ask(Question::Went { export, node }, PATIENCE);
        };
        let told = Arc::new(told);
        Others { node, told }
    }

    fn dial(&self, export: u32, node: usize, patience: Duration) -> io::Result<Connected> {
        let node = u32::try_from(node).map_err(|_| garbage())?;
        let (_, socket) = self.ask(Question::Dial { export, node }, patience)?;
        Ok(Box::new(socket.ok_or_else(garbage)?))
    }

    fn credential(&self, export: u32) -> Credential {
        let line = self.clone();
        Credential(Arc::new(move || {
            let question = Question::Credential { export };
            Ok(line.ask(question, 2 * PATIENCE)?.0)
        }))
    }

    fn direct(&self, export: u32) -> LastResort {
        let line = self.clone();
        LastResort(Arc::new(move |without| -> io::Result<Connected> {
            let question = Question::Direct { export, without };
            let (_, socket) = line.ask(question, PATIENCE)?;
            Ok(Box::new(socket.ok_or_else(garbage)?))
        }))
    }

    /// One question, on a connection of its own.
    fn ask(
        &self,
        question: Question,
        patience: Duration,
    ) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
        let deadline = Instant::now() + patience;
        let socket = self.connect(deadline)?;
        send(&socket, &question.bytes(), SendFlags::NOSIGNAL)?;
        let left = deadline.saturating_duration_since(Instant::now());
        // None would be for ever.
        let left = left.max(Duration::from_millis(1));
        set_socket_timeout(&socket, Timeout::Recv, Some(left))?;
        let (packet, descriptor) = receive(&socket)?;
        Ok((read_answer(&packet)?.to_vec(), descriptor))
    }

    fn connect(&self, deadline: Instant) -> io::Result<OwnedFd> {
        let address = SocketAddrUnix::new_abstract_name(self.name.as_bytes())?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        // Its queue may be full for a moment.
        while let Err(error) = connect(&socket, &address) {
            match error {
                Errno::AGAIN | Errno::INTR if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                error => return Err(error.into()),
            }
        }
        rustix::io::ioctl_fionbio(&socket, false)?;
        match socket_peercred(&socket)?.uid == geteuid() {
            true => Ok(socket),
            false => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the switchboard is of another user",
            )),
        }
    }
}

/// One packet, and the descriptor that came along.
fn receive(socket: &OwnedFd) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let mut bytes = vec![0; ANSWER_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let received = loop {
        match recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            received => break received?,
        }
    };
    let mut descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptor = descriptors.next().and_then(|mut some| some.next());
    if received.bytes == 0 || received.flags.contains(ReturnFlags::TRUNC) {
        return Err(garbage());
    }
    bytes.truncate(received.bytes);
    Ok((bytes, descriptor))
}
