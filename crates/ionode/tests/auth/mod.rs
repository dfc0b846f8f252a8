//! What the tests of authentication need: a node whose figures can be read, and the lines of its audit.

#![allow(dead_code, reason = "each test file uses a part of this")]

pub mod munged;

use presagio_ionode::{Address, Config, Node, Opened};
use presagio_storage::{Directory, Storage};
use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// A node that listens on a Unix socket and over TCP, and shows its figures. It ends with the value.
pub struct Guarded {
    node: Node,
    window: String,
    directory: tempfile::TempDir,
}

impl Guarded {
    /// With a configuration that `change` has changed.
    pub fn with(change: impl FnOnce(&mut Config)) -> Guarded {
        Guarded::on(Arc::new(Directory), change)
    }

    /// On another storage.
    pub fn on(storage: Arc<dyn Storage>, change: impl FnOnce(&mut Config)) -> Guarded {
        listen_to_audit();
        let directory = tempfile::tempdir().expect("a temporary directory");
        // Other users may come as far as the socket.
        open_to_all(directory.path());
        let export = directory.path().join("export");
        std::fs::create_dir(&export).expect("an export");
        open_to_all(&export);
        let mut config = Config::new(&export);
        config.loops = 2;
        change(&mut config);
        let addresses = [
            Address::Unix(directory.path().join("socket")),
            Address::Tcp("127.0.0.1:0".to_owned()),
        ];
        let node = Node::start(config, storage, &addresses, false);
        let mut node = node.expect("a node");
        let window = node.open_window(&Address::Tcp("127.0.0.1:0".to_owned()), Opened::default());
        let Address::Tcp(window) = window.expect("a window") else {
            unreachable!("it was opened over TCP")
        };
        Guarded {
            node,
            window,
            directory,
        }
    }

    /// Host and port.
    pub fn tcp(&self) -> &str {
        match &self.node.addresses()[1] {
            Address::Tcp(host) => host,
            Address::Unix(_) => unreachable!("the second address is TCP"),
        }
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// A path in the export.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("export").join(name)
    }

    pub fn connections(&self) -> usize {
        self.node.connections()
    }

    /// Attempts that were refused.
    pub fn refused(&self) -> u64 {
        self.figure("presagio_ionode_refused_total")
    }

    /// Connections that were ended because of what they sent.
    pub fn ended(&self) -> u64 {
        self.figure("presagio_ionode_ended_total")
    }

    /// Memory of payloads under way.
    pub fn memory(&self) -> u64 {
        self.figure("presagio_ionode_memory_bytes")
    }

    /// The node itself.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// One of its figures, by name and labels.
    pub fn figure(&self, name: &str) -> u64 {
        let mut window = TcpStream::connect(&self.window).expect("the window");
        let ask = "GET /metrics HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n";
        window.write_all(ask.as_bytes()).expect("a question");
        let mut page = String::new();
        window.read_to_string(&mut page).expect("figures");
        let line = page.lines().find_map(|line| line.strip_prefix(name));
        let value = line.unwrap_or_else(|| panic!("no {name} in {page}"));
        value.trim().parse().expect("a number")
    }
}

/// Everybody may write there.
pub fn open_to_all(path: &Path) {
    std::fs::set_permissions(path, Permissions::from_mode(0o777)).expect("a directory of ours");
}

/// The lines of the audit of all nodes of this process that have this in them.
pub fn audited(what: &str) -> Vec<String> {
    lines(what, |target| target == "audit")
}

/// The warnings of all nodes of this process, the audit's too, that have this in them.
pub fn warned(what: &str) -> Vec<String> {
    lines(what, |_| true)
}

fn lines(what: &str, of: impl Fn(&str) -> bool) -> Vec<String> {
    let lines = LINES.lock().expect("lines");
    let lines = lines
        .iter()
        .filter(|(target, line)| of(target) && line.contains(what));
    lines.map(|(_, line)| line.clone()).collect()
}

static LINES: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// From now on lines are kept.
pub fn listen_to_audit() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| tracing::subscriber::set_global_default(Audit).expect("nobody else's"));
}

/// Hears what is said to the audit, and other warnings.
struct Audit;

impl Subscriber for Audit {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        let target = event.metadata().target().to_owned();
        LINES.lock().expect("lines").push((target, line.0));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, _: &Field, value: &dyn std::fmt::Debug) {
        self.0 += &format!("{value:?}");
    }
}
