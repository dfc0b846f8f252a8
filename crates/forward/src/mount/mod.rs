//! The mount: the same files for every program, through FUSE.
//!
//! How an operation travels: the kernel → one of several threads that read /dev/fuse (`fs`) → the file of the caller's
//! user (`inodes`) → [`crate::File`] → the node; the thread waits for the answer and gives it to the kernel. Locks that
//! somebody has wait elsewhere (`waiting`), since the one who has them needs a thread to give them back. What programs
//! will ask for next is learned (`observer`) and foretold to the node.
//!
//! **What is cached.** By default nothing: names and attributes are asked for each time, and reads and writes go past the
//! kernel's page cache (`FOPEN_DIRECT_IO`), so that whatever one client was told is written is what any other client of
//! the node reads next. mmap works all the same, shared too: the kernel drops its pages of the file at each `mmap`, and
//! what is written to the mapping reaches the node at `msync`, `munmap` or when the kernel likes. Two machines do not share
//! memory through it. [`Freshness::AtOpen`] is for programs that read in small pieces: the page cache and its read-ahead
//! are used, and dropped when the file is opened or when its time of modification or its size is seen to change
//! (close-to-open, as with NFS). Writes go through to the node at once in both.
//!
//! **Who asks.** A mount by root serves everybody and attaches once for each user who comes; the node decides whether it
//! believes that. A mount by a user serves that user.
//!
//! **Limits.** `renameat2` with flags is EINVAL and `fallocate` is not supported: the protocol has no word for them. An
//! append is in one piece as far as it fits into one message (a megabyte less a page, since the kernel splits what begins within one;
//! 64 KiB with diod). `flock` and `fcntl` locks of
//! the same file exclude each other, as over NFS, and who waits for a lock asks again every few milliseconds. An extended
//! attribute cannot be empty. With servers that go by paths (diod), a file that was removed or replaced while it is
//! open can be read and written, but `fstat` and `ftruncate` of it are ESTALE; and permissions are checked by this
//! machine's kernel, since diod does not.

mod attributes;
mod caller;
mod fs;
mod inodes;
mod observer;
mod place;
mod waiting;

use crate::options::Options as RemoteOptions;
use crate::remote::Remote;
use fs::Forwarded;
use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long those who still use files may go on when the mount is told to end.
const GRACE: Duration = Duration::from_secs(2);

/// What reads may come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Freshness {
    /// The node, each of them.
    #[default]
    Always,
    /// The page cache, which is dropped when a file is opened.
    AtOpen,
}

/// How to mount.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which nodes, and how to reach them.
    pub remote: RemoteOptions,
    /// What reads may come from.
    pub freshness: Freshness,
    /// For how long the kernel may believe a name or an attribute; nothing by default, so that it asks each time.
    pub believe: Duration,
    /// Threads that serve the kernel, each one request at a time.
    pub threads: usize,
    /// Whether other users may come. Needs root, or `user_allow_other` in /etc/fuse.conf.
    pub allow_other: bool,
    /// Nothing may be changed.
    pub read_only: bool,
    /// Whether what programs will read and write, as far as it can be learned, is foretold to the nodes.
    pub foresight: bool,
}

impl Options {
    /// The defaults, for these nodes.
    pub fn new(remote: RemoteOptions) -> Options {
        Options {
            remote,
            freshness: Freshness::default(),
            believe: Duration::ZERO,
            threads: 64,
            allow_other: rustix::process::geteuid().is_root(),
            read_only: false,
            foresight: true,
        }
    }
}

/// Mounts on `dir` and serves until it is unmounted or SIGTERM or SIGINT comes. `on_ready` is called when programs can
/// use it.
pub fn run(options: Options, dir: &Path, on_ready: impl FnOnce()) -> io::Result<()> {
    // Before there are other threads, which the signals would end.
    let signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
    signals.thread_block()?;
    let served = serve(options, dir, &signals, on_ready);
    signals.thread_unblock()?;
    served
}

fn serve(
    options: Options,
    dir: &Path,
    signals: &SigSet,
    on_ready: impl FnOnce(),
) -> io::Result<()> {
    let signal = SignalFd::with_flags(signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let mounted = Mounted::start(options, dir)?;
    on_ready();
    let mut events = [
        PollFd::new(&signal, PollFlags::IN),
        PollFd::new(&mounted.ended, PollFlags::IN),
    ];
    while matches!(poll(&mut events, None), Err(rustix::io::Errno::INTR)) {}
    let ended = mounted.unmount();
    // What came is taken, so that it does not end the caller.
    while matches!(signal.read_signal(), Ok(Some(_))) {}
    ended
}

/// A mount that is served by threads of this process. Dropping it unmounts.
pub struct Mounted {
    dir: PathBuf,
    session: Option<BackgroundSession>,
    /// Its other end is closed when the session is over.
    ended: UnixStream,
    remote: Remote,
}

impl Mounted {
    /// Reaches a node, mounts on `dir`, and returns when programs can use it.
    pub fn start(options: Options, dir: &Path) -> io::Result<Mounted> {
        place::clear_dead(dir)?;
        let dir = dir.canonicalize()?;
        let mut config = config(&options);
        let remote = Remote::new(options.remote.clone())?;
        let (ended, ends) = UnixStream::pair()?;
        let forwarded = Forwarded::new(remote.clone(), options, ends)?;
        if !remote.status().extensions {
            // Nodes of ours check each operation as the user's own. diod leaves that to the kernel of the client.
            config.mount_options.push(MountOption::DefaultPermissions);
        }
        let session = Session::new(forwarded, &dir, &config)?.spawn()?;
        Ok(Mounted {
            dir,
            session: Some(session),
            ended,
            remote,
        })
    }

    /// The files underneath.
    pub fn remote(&self) -> &Remote {
        &self.remote
    }

    /// Unmounts: nobody comes in any more; those who are inside have a moment to finish.
    pub fn unmount(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        let Some(session) = self.session.take() else {
            return Ok(());
        };
        let detached = match session.guard.is_finished() {
            // Somebody else has unmounted it.
            true => Ok(()),
            false => place::detach(&self.dir),
        };
        let late = Instant::now() + GRACE;
        while detached.is_ok() && !session.guard.is_finished() && Instant::now() < late {
            std::thread::sleep(Duration::from_millis(2));
        }
        // Dropped, it would unmount once more, and that might be what was mounted here before us.
        std::mem::forget(session);
        detached
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!(dir = %self.dir.display(), %error, "not unmounted");
        }
    }
}

fn config(options: &Options) -> Config {
    let nodes: Vec<String> = options
        .remote
        .nodes
        .iter()
        .map(ToString::to_string)
        .collect();
    // A comma would end the option.
    let name = format!("{}{}", place::SOURCE, nodes.join("+").replace(',', "+"));
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(name),
        MountOption::NoSuid,
        MountOption::NoDev,
    ];
    if options.read_only {
        config.mount_options.push(MountOption::RO);
    }
    if options.allow_other {
        config.acl = SessionACL::All;
    }
    config.n_threads = Some(options.threads.clamp(1, 256));
    config.clone_fd = true;
    config
}
