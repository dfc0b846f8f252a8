//! A server of our own for each test, and what tests do with it.
//!
//! An I/O node of ours (the example `node`), and Debian's diod: most tests are done with both.

#![allow(dead_code, reason = "not every test needs all of it")]

pub mod node;
#[path = "../../../core/tests/common/skips.rs"]
mod skips;
pub mod steps;
pub mod tree;

use presagio_forward::mount::{self, Mounted};
use presagio_forward::{Address, Options, Remote};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

#[allow(unused_imports, reason = "each test file uses a part of this")]
pub use skips::is_root;

/// Runs a test against a node of ours, and against diod. Debian's crashes once in some hundred runs, in a lock of its own
/// that it has freed: what fails then says nothing about us, and is done again with another one.
pub fn against(test: impl Fn(&mut Server)) {
    test(&mut Server::start());
    for _ in 0..3 {
        let mut server = Server::of(Kind::Diod);
        let Err(why) = catch_unwind(AssertUnwindSafe(|| test(&mut server))) else {
            return;
        };
        if !server.has_crashed() {
            resume_unwind(why);
        }
    }
    panic!("diod crashed each time");
}

/// Whose server it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ours,
    Diod,
}

/// A running server. It ends with the value.
pub struct Server {
    kind: Kind,
    child: Child,
    directory: tempfile::TempDir,
    killed: bool,
}

impl Server {
    /// Starts one of ours, and waits until it listens.
    pub fn start() -> Server {
        Server::of(Kind::Ours)
    }

    fn of(kind: Kind) -> Server {
        let directory = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(directory.path().join("export")).expect("an export");
        let child = spawn(kind, directory.path());
        let mut server = Server {
            kind,
            child,
            directory,
            killed: false,
        };
        server.wait_until_it_listens();
        server
    }

    fn wait_until_it_listens(&mut self) {
        let late = Instant::now() + Duration::from_secs(60);
        while UnixStream::connect(self.socket()).is_err() {
            assert!(Instant::now() < late, "the server does not listen");
            assert!(
                matches!(self.child.try_wait(), Ok(None)),
                "the server has ended"
            );
            sleep(Duration::from_millis(2));
        }
    }

    /// Whether it is an I/O node of ours.
    pub fn is_ours(&self) -> bool {
        self.kind == Kind::Ours
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// What it exports.
    pub fn export(&self) -> PathBuf {
        self.directory.path().join("export")
    }

    /// How to reach it.
    pub fn options(&self) -> Options {
        let mut options = Options::new(vec![Address::Unix(self.socket())]);
        options.export = self.export().to_str().expect("a path of text").into();
        options.patience = Duration::from_secs(10);
        options.threads = crate::THREADS;
        options
    }

    pub fn remote(&self) -> Remote {
        Remote::new(self.options()).expect("a client")
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        self.killed = true;
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again, on the same export and socket.
    pub fn start_again(&mut self) {
        let _ = std::fs::remove_file(self.socket());
        self.child = spawn(self.kind, self.directory.path());
        self.killed = false;
        self.wait_until_it_listens();
    }

    /// Whether it was ended by a signal that was not ours, or will be in a moment.
    fn has_crashed(&mut self) -> bool {
        let late = Instant::now() + Duration::from_secs(10);
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return status.signal().is_some() && !self.killed,
                _ if Instant::now() > late => return false,
                _ => sleep(Duration::from_millis(10)),
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(kind: Kind, directory: &Path) -> Child {
    let (export, socket) = (directory.join("export"), directory.join("socket"));
    let mut command = match kind {
        Kind::Ours => {
            let mut command = Command::new(example("node"));
            command.arg(export).arg(socket);
            command
        }
        Kind::Diod => {
            let mut command = Command::new(diod());
            command.args(["-f", "-n", "-c", "/dev/null", "-L"]);
            command.arg(directory.join("log"));
            command.arg("-e").arg(export).arg("-l").arg(socket);
            command
        }
    };
    // diod insists on leaving a core when it crashes: let that go with the directory.
    command.current_dir(directory).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
        .spawn()
        .expect("the server starts (Debian's package diod)")
}

/// Debian puts it where ordinary users do not look.
fn diod() -> PathBuf {
    let sbin = Path::new("/usr/sbin/diod");
    match sbin.exists() {
        true => sbin.to_owned(),
        false => "diod".into(),
    }
}

/// A mount of a server, on a directory of its own.
pub struct Mount {
    // Unmounted before its directory is removed.
    mounted: Option<Mounted>,
    directory: tempfile::TempDir,
}

impl Mount {
    pub fn of(server: &Server) -> Mount {
        Mount::with(mount::Options::new(server.options()))
    }

    pub fn with(options: mount::Options) -> Mount {
        let directory = tempfile::tempdir().expect("a mount point");
        let mounted = Mounted::start(options, directory.path()).expect("a mount (needs /dev/fuse)");
        Mount {
            mounted: Some(mounted),
            directory,
        }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn remote(&self) -> &Remote {
        self.mounted.as_ref().expect("it is mounted").remote()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let unmounted = self.mounted.take().map(Mounted::unmount);
        if !std::thread::panicking() {
            unmounted.expect("it was mounted").expect("unmounted");
        }
    }
}

/// Runs a command of the shell, and fails with what it says.
pub fn shell(script: &str, arguments: &[&Path]) -> String {
    let mut command = Command::new("sh");
    command.arg("-euc").arg(script).arg("sh").args(arguments);
    let output = command.output().expect("a shell");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Bytes that differ from block to block.
pub fn pattern(seed: u64, count: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let mut bytes = Vec::with_capacity(count + 8);
    while bytes.len() < count {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(count);
    bytes
}

/// Numbers that are the same for the same seed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// Cargo builds the examples beside the tests.
fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().expect("a test");
    let target = tests.ancestors().nth(2).expect("a target directory");
    target.join("examples").join(name)
}

/// A mount by a process of its own; returns when it is ready.
pub fn mount_process(server: &Server, dir: &Path) -> Child {
    let mut command = Command::new(example("mount"));
    command.arg(format!("unix:{}", server.socket().display()));
    command.arg(server.export()).arg(dir).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the example mount");
    let mut said = [0; 6];
    let output = child.stdout.as_mut().expect("a pipe");
    std::io::Read::read_exact(output, &mut said).expect("it gets ready");
    child
}
