//! The node of a direct way, as a process of its own. Whoever waits for what a hung FUSE server has taken cannot be killed, and no
//! process ends that has such a thread: so it must not be one that somebody waits for.
//!
//! A *line* leads there, a pair of sockets that keep packets apart. The process says once that it is [`READY`], or why it never will be.
//! Then each packet to it brings the socket of a connection that it serves. When the other end of the line is closed it answers what
//! was asked, and ends; and it is killed when the thread is gone that started it.

use crate::failure::failure;
use crate::run::manager::{be_apart, close_all_but};
use presagio_ionode::{Config, Node};
use presagio_storage::Directory;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::sockopt::socket_type;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType, recv, recvmsg, send,
    sendmsg, shutdown, socketpair,
};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal,
    set_parent_process_death_signal, umask, waitid,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// The subcommand that becomes the process.
pub const NAME: &str = "direct-node";

/// What it is called in lists of processes.
const TITLE: &std::ffi::CStr = c"presagio-direct";

/// That it serves from now on. No error reads like this.
const READY: &[u8] = &[0];

/// Longer than any error.
const TEXT_MAX: usize = 4096;

/// What comes with a socket.
const CONNECTION: &[u8] = &[1];

/// How long it takes to answer what was asked before it ends, and how long it may take to end.
const ANSWER: Duration = Duration::from_secs(8);
const DRAIN: Duration = Duration::from_secs(10);

/// All that it is told by its environment: where the loader finds libraries. Not which ones are preloaded, since those of a
/// command that is watched or forwarded are not for it.
const LIBRARIES: &str = "LD_LIBRARY_PATH";

/// The process, as seen by who started it.
#[derive(Debug)]
pub struct Process {
    line: OwnedFd,
    /// Readable when it has ended.
    pidfd: OwnedFd,
}

impl Process {
    /// Starts it. It ends with the thread that calls this.
    pub fn start(dir: &Path) -> io::Result<Process> {
        let flags = SocketFlags::CLOEXEC;
        let (line, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let mut command = command(dir);
        command.stdin(theirs);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(pidfd) => Ok(Process { line, pidfd }),
            Err(error) => {
                let _ = child.kill();
                Err(error.into())
            }
        }
    }

    /// Waits until it serves, however long the directory takes; or says why it never will.
    pub fn ready(&self) -> Result<(), String> {
        let mut text = [0; TEXT_MAX];
        let said = loop {
            match recv(&self.line, &mut text, RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                Ok((count, _)) => break Ok(&text[..count]),
                Err(error) => break Err(error),
            }
        };
        match said {
            Ok(READY) => Ok(()),
            Ok([]) | Err(Errno::CONNRESET) => Err("its process has ended".into()),
            Ok(why) => Err(String::from_utf8_lossy(why).into_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// A connection. Nobody is waited for.
    pub fn visit(&self) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        let sockets = [theirs.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&sockets)) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(&self.line, &[IoSlice::new(CONNECTION)], &mut control, flags)?;
        Ok(ours)
    }

    /// Tells it to answer what was asked, and to end. Whoever keeps it sees to the latter.
    pub fn leave(&self) {
        let _ = shutdown(&self.line, Shutdown::Both);
    }

    /// Ends it at once. One that hangs ends when it wakes.
    pub fn kill(&self) {
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    /// Waits until it was left, or is gone.
    pub fn until_left(&self) {
        let mut line = [PollFd::new(&self.line, PollFlags::empty())];
        while poll(&mut line, None) == Err(Errno::INTR) {}
    }

    /// Waits until one is gone that was left: not for long, then it is killed. That may not help for as long as the directory
    /// hangs, and neither does this come back.
    pub fn see_out(&self) {
        if !self.has_ended(DRAIN) {
            self.kill();
        }
        let wait = || waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED);
        while let Err(Errno::INTR) = wait() {}
    }

    /// Whether it has ended; waits for that, so long at most.
    pub fn has_ended(&self, within: Duration) -> bool {
        let within = Timespec {
            tv_sec: within.as_secs() as i64,
            tv_nsec: within.subsec_nanos().into(),
        };
        let mut process = [PollFd::new(&self.pidfd, PollFlags::IN)];
        matches!(poll(&mut process, Some(&within)), Ok(1..))
    }
}

/// What becomes the process.
fn command(dir: &Path) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("presagio").env_clear();
    if let Some(libraries) = std::env::var_os(LIBRARIES) {
        command.env(LIBRARIES, libraries);
    }
    become_it(&mut command, dir);
    command
}

#[cfg(not(test))]
fn become_it(command: &mut Command, dir: &Path) {
    command.arg(NAME).arg(dir);
}

/// The program is that of the tests: one of them becomes the process.
#[cfg(test)]
fn become_it(command: &mut Command, dir: &Path) {
    command.args(["--exact", tests::ITSELF, "--nocapture"]);
    command.env(tests::DIR, dir);
}

/// The process itself.
#[derive(clap::Args)]
pub struct Args {
    /// The directory that it serves
    dir: PathBuf,
}

/// Serves a directory to whom the line at stdin brings.
pub fn serve(args: &Args) -> anyhow::Result<ExitCode> {
    let line = settle().map_err(|cause| {
        let what = format!("`presagio {NAME}` is a part of other commands");
        failure(what, cause, "use `presagio run --forward-direct`")
    })?;
    let node = match Node::start(Config::new(&args.dir), Arc::new(Directory), &[], false) {
        Ok(node) => node,
        Err(error) => {
            let text = error.to_string().into_bytes();
            let text = &text[..text.len().min(TEXT_MAX)];
            send(&line, text, SendFlags::NOSIGNAL)?;
            return Ok(ExitCode::FAILURE);
        }
    };
    send(&line, READY, SendFlags::NOSIGNAL)?;
    while let Some(stream) = next(&line) {
        // If it cannot be served, who is at the other end finds it closed.
        let _ = node.adopt(stream);
    }
    node.drain(ANSWER);
    Ok(ExitCode::SUCCESS)
}

/// Takes the line from stdin, and leaves everything else that was inherited.
fn settle() -> io::Result<OwnedFd> {
    let line = io::stdin().as_fd().try_clone_to_owned()?;
    if socket_type(&line)? != SocketType::SEQPACKET {
        return Err(Errno::NOTSOCK.into());
    }
    be_apart(TITLE);
    close_all_but(&[line.as_raw_fd()].into());
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // Clients say with which permissions files are to be made, after a umask of their own.
    umask(Mode::empty());
    crate::ionode::more_descriptors();
    let mut other = [PollFd::new(&line, PollFlags::empty())];
    match poll(&mut other, Some(&Timespec::default()))? {
        0 => Ok(line),
        // Who started this was gone before it could be a reason to end.
        _ => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

/// The next connection; `None` when there will be no more.
fn next(line: &OwnedFd) -> Option<UnixStream> {
    loop {
        let mut byte = [0];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut byte)];
        match recvmsg(line, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => continue,
            Ok(received) if received.bytes > 0 => {}
            _ => return None,
        }
        let mut sockets = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
            _ => None,
        });
        // Where no descriptor was left for it, it is closed already.
        if let Some(socket) = sockets.next().and_then(|mut some| some.next()) {
            return Some(socket.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    /// The test that is the process, and how it knows of which directory.
    pub const ITSELF: &str = "direct::process::tests::is_the_process_of_other_tests";
    pub const DIR: &str = "PRESAGIO_TEST_DIRECT";

    #[test]
    fn is_the_process_of_other_tests() {
        if let Some(dir) = std::env::var_os(DIR) {
            let ended = serve(&Args { dir: dir.into() });
            std::process::exit(ended.map_or(2, |_| 0));
        }
    }

    /// Whoever is at the other end has closed it.
    fn is_closed(mut stream: &UnixStream) -> bool {
        !matches!(stream.read(&mut [0]), Ok(1..))
    }

    #[test]
    fn it_serves_until_it_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let process = Process::start(dir.path()).unwrap();
        process.ready().unwrap();
        let visit = process.visit().unwrap();
        assert!(!process.has_ended(Duration::ZERO));
        process.leave();
        process.until_left();
        process.see_out();
        assert!(process.has_ended(Duration::ZERO) && is_closed(&visit));
        assert!(process.visit().is_err());
    }

    #[test]
    fn it_says_why_it_cannot_begin() {
        let dir = tempfile::tempdir().unwrap();
        let process = Process::start(&dir.path().join("missing")).unwrap();
        let why = process.ready().unwrap_err();
        assert!(why.contains("missing"), "{why}");
        process.until_left();
        process.see_out();
    }

    #[test]
    fn one_that_is_killed_has_left_everybody() {
        let dir = tempfile::tempdir().unwrap();
        let process = Process::start(dir.path()).unwrap();
        process.ready().unwrap();
        let visit = process.visit().unwrap();
        process.kill();
        process.until_left();
        process.see_out();
        assert!(process.visit().is_err() && is_closed(&visit));
    }

    #[test]
    fn it_ends_with_the_thread_that_started_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        let start = std::thread::spawn(move || {
            let process = Process::start(&path).unwrap();
            process.ready().unwrap();
            process
        });
        let process = start.join().unwrap();
        // The line is still there.
        process.until_left();
        process.see_out();
    }
}
