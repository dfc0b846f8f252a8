//! A diod of our own: Debian's server, on a socket and an export that nobody else uses.

use presagio_ninep::client::{Client, Lost, Options};
use presagio_ninep::session::{File, Session};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Runs a test against a diod. Debian's crashes once in some hundred runs, in a lock of its own that it has freed: what
/// fails then says nothing about us, and is done again with another one.
#[allow(dead_code, reason = "not everybody does")]
pub fn against(start: fn() -> Diod, test: impl Fn(&Diod)) {
    for _ in 0..3 {
        let mut diod = start();
        let Err(why) = catch_unwind(AssertUnwindSafe(|| test(&diod))) else {
            return;
        };
        if !diod.has_crashed() {
            resume_unwind(why);
        }
    }
    panic!("diod crashed each time");
}

/// A running diod. It ends with the value.
pub struct Diod {
    child: Child,
    directory: tempfile::TempDir,
    port: Option<u16>,
}

impl Diod {
    /// Starts one, and waits until it listens on a Unix socket.
    pub fn start() -> Diod {
        Diod::listening(None).expect("diod listens")
    }

    /// Starts one that listens over TCP too. Somebody else may take the port first, so this tries more than one.
    #[allow(dead_code, reason = "not everybody does")]
    pub fn start_tcp() -> Diod {
        let mut tries = (0..20).map(|_| Diod::listening(Some(free_port())));
        tries.find_map(|diod| diod).expect("diod listens")
    }

    /// `None` if it gave up.
    fn listening(port: Option<u16>) -> Option<Diod> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(directory.path().join("export")).expect("an export");
        let mut command = Command::new(find());
        // It insists on leaving a core when it crashes: let that go with the directory.
        command.current_dir(directory.path());
        command.args(["-f", "-n", "-c", "/dev/null", "-L"]);
        command.arg(directory.path().join("log"));
        command.arg("-e").arg(directory.path().join("export"));
        command.arg("-l").arg(directory.path().join("socket"));
        if let Some(port) = port {
            command.arg("-l").arg(format!("127.0.0.1:{port}"));
        }
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut diod = Diod {
            child: child.expect("diod starts (Debian's package diod)"),
            directory,
            port,
        };
        diod.listens().then_some(diod)
    }

    /// Waits until it takes connections, or ends.
    fn listens(&mut self) -> bool {
        let late = Instant::now() + Duration::from_secs(20);
        while UnixStream::connect(self.socket()).is_err() {
            assert!(Instant::now() < late, "diod does not listen");
            if !matches!(self.child.try_wait(), Ok(None)) {
                return false;
            }
            sleep(Duration::from_millis(2));
        }
        true
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// What it exports.
    pub fn export(&self) -> PathBuf {
        self.directory.path().join("export")
    }

    /// A new connection, and the root of the export.
    #[allow(dead_code, reason = "not everybody does")]
    pub fn connect(&self, options: &Options) -> (Session, File) {
        self.attach(Client::unix(&self.socket(), options))
    }

    /// The same over TCP.
    #[allow(dead_code, reason = "not everybody does")]
    pub fn connect_tcp(&self, options: &Options) -> (Session, File) {
        let port = self.port.expect("it was started for TCP");
        self.attach(Client::tcp(("127.0.0.1", port), options))
    }

    fn attach(&self, client: Result<Client, Lost>) -> (Session, File) {
        let session = Session::new(client.expect("diod listens"));
        let export = self.export();
        let uid = rustix::process::getuid().as_raw();
        let root = session.attach("", export.to_str().expect("a path of text"), uid);
        (session, root.expect("diod lets its own user in"))
    }

    /// Whether it was ended by a signal, or will be in a moment.
    #[allow(dead_code, reason = "not everybody does")]
    fn has_crashed(&mut self) -> bool {
        let late = Instant::now() + Duration::from_secs(2);
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return status.signal().is_some(),
                _ if Instant::now() > late => return false,
                _ => sleep(Duration::from_millis(10)),
            }
        }
    }

    /// Stops it at once.
    #[allow(dead_code, reason = "not every test kills it")]
    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Diod {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Debian puts it where ordinary users do not look.
fn find() -> PathBuf {
    let sbin = Path::new("/usr/sbin/diod");
    match sbin.exists() {
        true => sbin.to_owned(),
        false => "diod".into(),
    }
}

/// A port that nobody listened on a moment ago.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its number").port()
}
