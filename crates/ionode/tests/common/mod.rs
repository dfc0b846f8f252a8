//! A node in this process, on a directory and a socket that nobody else uses, and what the tests ask of it.

#![allow(dead_code, reason = "each test file uses a part of this")]

pub mod gate;
pub mod mounts;
pub mod raw;
#[path = "../../../core/tests/common/skips.rs"]
mod skips;
pub mod users;

use presagio_ionode::{Address, Config, Node};
use presagio_ninep::client::{Client, Error, Options};
use presagio_ninep::session::{File, Session};
use presagio_ninep::{Errno, OpenFlags};
use presagio_storage::{Directory, Storage, Striped, StripedSet};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[allow(unused_imports, reason = "each test file uses a part of this")]
pub use skips::{is_root, skipped};

/// How long anything may take before a test gives up: long, since the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A node with an export of its own. It ends with the value.
pub struct Exported {
    node: Option<Node>,
    addresses: Vec<Address>,
    directory: tempfile::TempDir,
}

impl Exported {
    /// With the defaults.
    pub fn start() -> Exported {
        Exported::with(|_| {})
    }

    /// With a configuration that `change` has changed.
    pub fn with(change: impl FnOnce(&mut Config)) -> Exported {
        Exported::on(Arc::new(Directory), change)
    }

    /// On another storage.
    pub fn on(storage: Arc<dyn Storage>, change: impl FnOnce(&mut Config)) -> Exported {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let export = directory.path().join("export");
        std::fs::create_dir(&export).expect("an export");
        Exported::of(directory, &export, storage, change)
    }

    /// On a directory that is there already.
    pub fn of(
        directory: tempfile::TempDir,
        export: &Path,
        storage: Arc<dyn Storage>,
        change: impl FnOnce(&mut Config),
    ) -> Exported {
        // Other users may come as far as the socket.
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(directory.path(), open).expect("a directory of ours");
        let mut config = Config::new(export);
        config.loops = 2;
        change(&mut config);
        let addresses = [
            Address::Unix(directory.path().join("socket")),
            Address::Tcp("127.0.0.1:0".to_owned()),
        ];
        let node = start(config, storage, &addresses);
        let addresses = node.addresses().to_vec();
        Exported {
            node: Some(node),
            addresses,
            directory,
        }
    }

    /// On a striped set of so many data servers.
    pub fn striped(servers: usize, stripe: u64) -> Exported {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let make = |name: String| {
            let path = directory.path().join(name);
            std::fs::create_dir(&path).expect("a directory");
            path
        };
        let set = StripedSet {
            namespace: make("export".to_owned()),
            servers: (0..servers).map(|i| make(format!("server{i}"))).collect(),
            stripe,
        };
        let storage = Arc::new(Striped::start(&set).expect("a new set"));
        Exported::of(directory, &set.namespace, storage, |_| {})
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// Where it listens over TCP: host and port.
    pub fn tcp(&self) -> &str {
        match &self.addresses[1] {
            Address::Tcp(host) => host,
            Address::Unix(_) => unreachable!("the second address is TCP"),
        }
    }

    /// What it exports.
    pub fn export(&self) -> PathBuf {
        self.directory.path().join("export")
    }

    /// A path in the export, as the host sees it.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.export().join(name)
    }

    /// The directory in which export and socket are.
    pub fn outside(&self) -> &Path {
        self.directory.path()
    }

    /// The node itself.
    pub fn node(&self) -> &Node {
        self.node.as_ref().expect("it runs")
    }

    /// The node, to open windows of it.
    pub fn node_mut(&mut self) -> &mut Node {
        self.node.as_mut().expect("it runs")
    }

    /// A new connection, and the root of the export.
    pub fn connect(&self) -> (Session, File) {
        self.connect_with(&options())
    }

    /// The same, with frames and times of another size.
    pub fn connect_with(&self, options: &Options) -> (Session, File) {
        let client = Client::unix(&self.socket(), options).expect("the node listens");
        attach(client, own_uid())
    }

    /// A new connection on which everything is done as `uid`; this process has to be that user or root.
    pub fn connect_as(&self, uid: u32) -> (Session, File) {
        let client = Client::unix(&self.socket(), &options()).expect("the node listens");
        attach(client, uid)
    }

    /// A new connection over TCP.
    pub fn connect_tcp(&self) -> (Session, File) {
        let client = Client::tcp(self.tcp(), &options()).expect("the node listens");
        attach(client, own_uid())
    }

    /// Ends the node: all its threads, and the socket. The files stay.
    pub fn stop(&mut self) {
        self.node = None;
    }

    /// That somebody who has done nothing wrong is served: new connections too, and bytes are right.
    #[track_caller]
    pub fn serves_others(&self, other: &File, seed: u64) {
        let (_session, root) = self.connect();
        for (who, dir) in [("old", other), ("new", &root)] {
            let name = format!("{who}-{seed}");
            let bytes = pattern(seed, 70_000);
            let file = rw_file(dir, &name);
            assert_eq!(file.write_at(0, &bytes).expect("a write"), bytes.len());
            let mut read = vec![0; bytes.len()];
            assert_eq!(file.read_at(0, &mut read).expect("a read"), bytes.len());
            assert!(read == bytes, "bytes of a client that did nothing wrong");
            assert!(std::fs::read(self.path(&name)).expect("the file") == bytes);
            dir.unlink(&name, presagio_ninep::UnlinkFlags(0))
                .expect("removed");
        }
    }
}

/// Starts a node as the command does, but one whose socket everybody can reach.
pub fn start(config: Config, storage: Arc<dyn Storage>, addresses: &[Address]) -> Node {
    // What clients ask for is what is made.
    rustix::process::umask(rustix::fs::Mode::empty());
    let node = Node::start(config, storage, addresses, false).expect("a node");
    for address in addresses {
        if let Address::Unix(path) = address {
            let anybody = std::fs::Permissions::from_mode(0o777);
            std::fs::set_permissions(path, anybody).expect("a socket of ours");
        }
    }
    node
}

pub fn attach(client: Client, uid: u32) -> (Session, File) {
    let session = Session::new(client);
    let root = session.attach("", "/", uid);
    (session, root.expect("the node lets its own user in"))
}

/// Options of a patient client.
pub fn options() -> Options {
    Options {
        timeout: PATIENCE,
        connect_timeout: PATIENCE,
        ..Options::default()
    }
}

/// This process's user.
pub fn own_uid() -> u32 {
    rustix::process::getuid().as_raw()
}

/// Waits until something is so.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let late = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < late, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Bytes that differ from block to block.
pub fn pattern(seed: u64, count: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut bytes = Vec::with_capacity(count + 8);
    while bytes.len() < count {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(count);
    bytes
}

/// The same numbers for the same seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    #[allow(clippy::should_implement_trait, reason = "it has no end")]
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

#[track_caller]
pub fn refused<T>(result: Result<T, Error>, errno: Errno) {
    assert_eq!(refusal(result), errno);
}

#[track_caller]
pub fn refusal<T>(result: Result<T, Error>) -> Errno {
    match result {
        Err(Error::Server(errno)) => errno,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("not refused"),
    }
}

/// Linux's errno, as clients get it.
pub fn errno(raw: i32) -> Errno {
    Errno(raw.unsigned_abs())
}

#[track_caller]
pub fn rw_file(root: &File, name: &str) -> File {
    let made = root.create(name, OpenFlags::RDWR, 0o640);
    made.expect("a new file")
}

#[track_caller]
pub fn opened(root: &File, path: &str, flags: OpenFlags) -> File {
    let mut file = root.walk(path).expect("a file");
    file.open(flags).expect("it can be opened");
    file
}

/// All that is in an open file.
#[track_caller]
pub fn read_all(file: &File) -> Vec<u8> {
    let size = file.getattr(presagio_ninep::GetAttr::BASIC).expect("stat");
    let mut bytes = vec![0; size.size as usize + 1];
    let got = file.read_at(0, &mut bytes).expect("a read");
    bytes.truncate(got);
    bytes
}

/// The names in a directory, sorted.
#[track_caller]
pub fn names(dir: &File) -> Vec<String> {
    let listed = dir.read_dir().expect("a listing").into_iter();
    let mut names: Vec<String> = listed
        .map(|entry| String::from_utf8_lossy(&entry.name).into_owned())
        .collect();
    names.sort();
    names
}
