//! I/O nodes and mounts as processes: started, killed, frozen, drained, and started again.

use super::program;
use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Longer than anything that works takes on a machine that is busy with other things.
const LONG: Duration = Duration::from_secs(60);

/// Says something on the test's stderr, also when that is captured.
pub fn say(what: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{what}");
}

/// Waits until something is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let late = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < late, "{what}");
        sleep(Duration::from_millis(5));
    }
}

/// A process that ends with the value.
pub struct Running(Child);

impl Running {
    /// Starts `presagio`, in a network of that name if one is given.
    pub fn presagio(network: Option<&str>, arguments: &[String]) -> Running {
        Running::presagio_with(&[], network, arguments)
    }

    /// The same, with these in its environment.
    pub fn presagio_with(
        environment: &[(&str, &str)],
        network: Option<&str>,
        arguments: &[String],
    ) -> Running {
        let mut command = match network {
            // Not `ip netns exec`: that has mounts of its own, where nobody would see ours.
            Some(name) => {
                let mut command = Command::new("nsenter");
                command
                    .arg(format!("--net=/run/netns/{name}"))
                    .arg(program());
                command
            }
            None => Command::new(program()),
        };
        command.args(arguments).envs(environment.iter().copied());
        Running::start(command)
    }

    pub fn start(mut command: Command) -> Running {
        command.stdin(Stdio::null());
        Running(command.spawn().expect("it starts"))
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it runs");
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// Waits until it ends by itself; its exit code.
    pub fn ended(&mut self, what: &str) -> Option<i32> {
        let mut code = None;
        until(what, || {
            code = self.0.try_wait().expect("a child");
            code.is_some()
        });
        code.and_then(|status| status.code())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Where a node listens.
#[derive(Clone, Debug)]
pub enum At {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

impl At {
    /// As the command line has it.
    pub fn text(&self) -> String {
        match self {
            At::Unix(path) => format!("unix:{}", path.display()),
            At::Tcp(address) => format!("tcp:{address}"),
        }
    }

    pub fn answers(&self) -> bool {
        match self {
            At::Unix(path) => UnixStream::connect(path).is_ok(),
            At::Tcp(address) => TcpStream::connect_timeout(address, Duration::from_secs(1)).is_ok(),
        }
    }
}

/// An I/O node that can be started again with the same arguments.
pub struct Node {
    pub at: At,
    network: Option<String>,
    arguments: Vec<String>,
    process: Running,
}

impl Node {
    /// Starts a node on an export, and waits until it listens.
    pub fn start(export: &Path, at: At, network: Option<&str>, more: &[&str]) -> Node {
        let export = export.to_str().expect("a path in UTF-8").to_owned();
        let mut arguments = vec!["ionode".into(), "--export".into(), export];
        arguments.extend(["--listen".into(), at.text()]);
        arguments.extend(more.iter().map(|text| (*text).to_owned()));
        let process = Running::presagio(network, &arguments);
        let network = network.map(str::to_owned);
        let mut node = Node {
            at,
            network,
            arguments,
            process,
        };
        node.listens();
        node
    }

    /// One on a Unix socket in `dir`.
    pub fn unix(dir: &Path, name: &str, export: &Path, more: &[&str]) -> Node {
        Node::start(export, At::Unix(dir.join(name)), None, more)
    }

    fn listens(&mut self) {
        until("the node listens", || {
            let ended = self.process.0.try_wait().expect("a child");
            assert!(ended.is_none(), "the node has ended: {ended:?}");
            self.at.answers()
        });
    }

    /// kill -9.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    pub fn start_again(&mut self) {
        self.process = Running::presagio(self.network.as_deref(), &self.arguments);
        self.listens();
    }

    /// Tells it to answer what was asked and end, and waits for that.
    pub fn drain(&mut self) {
        self.process.signal(Signal::TERM);
        assert_eq!(self.process.ended("the node is drained"), Some(0));
    }

    pub fn freeze(&self) {
        self.process.signal(Signal::STOP);
    }

    pub fn thaw(&self) {
        self.process.signal(Signal::CONT);
    }
}

/// A mount by a process of its own. Unmounted when it is dropped.
pub struct Mounted {
    dir: PathBuf,
    process: Running,
}

impl Mounted {
    /// Mounts what these nodes serve on `dir`, which is made.
    pub fn start(nodes: &[&At], dir: &Path, network: Option<&str>, more: &[&str]) -> Mounted {
        Mounted::start_with(&[], nodes, dir, network, more)
    }

    /// The same, with these in its environment.
    pub fn start_with(
        environment: &[(&str, &str)],
        nodes: &[&At],
        dir: &Path,
        network: Option<&str>,
        more: &[&str],
    ) -> Mounted {
        fs::create_dir_all(dir).expect("a mount point");
        let before = fs::metadata(dir).expect("a directory").dev();
        let nodes: Vec<String> = nodes.iter().map(|at| at.text()).collect();
        let point = dir.to_str().expect("a path in UTF-8").to_owned();
        let mut arguments = vec!["mount".into(), nodes.join(","), point];
        arguments.extend(more.iter().map(|text| (*text).to_owned()));
        let mut process = Running::presagio_with(environment, network, &arguments);
        until("it is mounted", || {
            let ended = process.0.try_wait().expect("a child");
            assert!(ended.is_none(), "the mount has ended: {ended:?}");
            fs::metadata(dir).is_ok_and(|now| now.dev() != before)
        });
        let dir = dir.to_owned();
        Mounted { dir, process }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub fn freeze(&self) {
        self.process.signal(Signal::STOP);
    }

    pub fn thaw(&self) {
        self.process.signal(Signal::CONT);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Whoever waits for it gets an error.
            self.process.kill();
            return;
        }
        self.process.signal(Signal::TERM);
        assert_eq!(self.process.ended("the mount ends"), Some(0));
    }
}

/// The process that serves a directory where no node does (`--direct`, `--forward-direct`), if there is one.
pub fn beside(dir: &Path) -> Option<Pid> {
    let arguments = format!("presagio\0direct-node\0{}\0", dir.display());
    let mut all = fs::read_dir("/proc").unwrap().flatten();
    all.find_map(|one| {
        let pid = one.file_name().to_str()?.parse().ok()?;
        let said = fs::read(one.path().join("cmdline")).ok()?;
        (said == arguments.as_bytes()).then(|| Pid::from_raw(pid).unwrap())
    })
}

/// Programs for tests to run.
pub const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs");

/// Does some work, and kills the node meanwhile, again and again, until `seconds` are over. Then there is a file "stop" in
/// `dir`. What came of the work.
pub fn killed_while<T: Send>(
    node: &mut Node,
    dir: &Path,
    seconds: u64,
    work: impl FnOnce() -> T + Send,
) -> T {
    std::thread::scope(|scope| {
        let work = scope.spawn(work);
        let (stop, mut kills) = (Instant::now() + Duration::from_secs(seconds), 0);
        while !work.is_finished() {
            sleep(Duration::from_millis(250 + 130 * (kills % 5)));
            match Instant::now() < stop {
                true => {
                    node.kill();
                    node.start_again();
                    kills += 1;
                }
                false => fs::write(dir.join("stop"), "").expect("a mark"),
            }
        }
        let done = work.join().unwrap();
        assert!(kills > 0, "the node was killed while it was used");
        println!("{kills} kills");
        done
    })
}

/// Runs a script in a directory, for no longer than `bound`; what it said, if it succeeded.
pub fn script(dir: &Path, environment: &[(&str, &Path)], bound: Duration, text: &str) -> String {
    let mut command = Command::new("timeout");
    command
        .args(["-k", "5", &bound.as_secs().to_string()])
        .args(["bash", "-euo", "pipefail", "-c", text])
        .current_dir(dir)
        .envs(environment.iter().copied())
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .stdin(Stdio::null());
    let output = command.output().expect("timeout");
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{text}\n{}\n{out}{err}",
        output.status
    );
    out
}

/// Bytes that are the same for the same seed, and no others.
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
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
