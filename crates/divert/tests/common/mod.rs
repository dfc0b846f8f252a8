//! What the tests share: an I/O node that can be killed, a switchboard, C programs, and the same program run on a plain
//! directory and on a forwarded one.

#![allow(dead_code, reason = "each test program uses a part of it")]

use presagio_forward::switchboard::{Forwarded, Serving, Switchboard, VARIABLE};
use presagio_forward::{Address, Options, Spread};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What is forwarded: nothing is there in truth.
pub const PREFIX: &str = "/presagio-far";

/// No program of a test takes longer.
const LATE: Duration = Duration::from_secs(120);

/// A node or several, a switchboard and room.
pub struct Site {
    room: tempfile::TempDir,
    nodes: Vec<(Child, &'static str)>,
    switchboard: String,
    _serving: Serving,
}

impl Site {
    pub fn new() -> Site {
        Site::reached_by(&["socket"], &["socket"], Spread::Clients)
    }

    /// One with two nodes: each process takes one of them by chance, or each file is at one of them.
    pub fn with_two_nodes(spread: Spread) -> Site {
        let sockets = ["socket", "socket2"];
        Site::reached_by(&sockets, &sockets, spread)
    }

    /// One whose node is reached by that many names, so that a process that uses many files has as many connections.
    pub fn with_many_names(count: usize) -> Site {
        let names: Vec<String> = (0..count).map(|number| format!("name{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let site = Site::reached_by(&["socket"], &names, Spread::Files);
        for name in names {
            std::os::unix::fs::symlink("socket", site.room().join(name)).unwrap();
        }
        site
    }

    /// One whose node answers reads with half of what was asked for, wherever the file ends.
    pub fn with_short_reads() -> Site {
        Site::relayed(|frame| frame, halved)
    }

    /// One that notes the fid of each request to make a file durable.
    pub fn with_noted_syncs() -> (Site, Arc<Mutex<Vec<u32>>>) {
        let noted: Arc<Mutex<Vec<u32>>> = Arc::default();
        let notes = noted.clone();
        let note = move |frame: Vec<u8>| {
            notes.lock().unwrap().extend(synced_fid(&frame));
            frame
        };
        (Site::relayed(note, |frame| frame), noted)
    }

    /// One that passes on what becomes of each message.
    fn relayed(
        request: impl Fn(Vec<u8>) -> Vec<u8> + Clone + Send + 'static,
        reply: impl Fn(Vec<u8>) -> Vec<u8> + Clone + Send + 'static,
    ) -> Site {
        let site = Site::reached_by(&["socket"], &["relay"], Spread::Clients);
        let listener = UnixListener::bind(site.room().join("relay")).unwrap();
        let node = site.room().join("socket");
        std::thread::spawn(move || {
            for client in listener.incoming().map(Result::unwrap) {
                let node = UnixStream::connect(&node).unwrap();
                let (back, forth) = (node.try_clone().unwrap(), client.try_clone().unwrap());
                relay(client, node, request.clone());
                relay(back, forth, reply.clone());
            }
        });
        site
    }

    fn reached_by(nodes: &[&'static str], dialled: &[&str], spread: Spread) -> Site {
        let room = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        for name in ["export", "plain", "shadows"] {
            std::fs::create_dir(room.path().join(name)).unwrap();
        }
        let start = |socket: &&'static str| (start_node(room.path(), socket), *socket);
        let nodes = nodes.iter().map(start).collect();
        let address = |socket: &&str| Address::Unix(room.path().join(socket));
        let mut options = Options::new(dialled.iter().map(address).collect());
        options.patience = Duration::from_secs(20);
        options.spread = spread;
        options.owners = Some(presagio_forward::Instance::draw().unwrap());
        let forwarded = Forwarded {
            prefix: PREFIX.into(),
            options,
        };
        let switchboard = Switchboard::open(vec![forwarded]).unwrap();
        let name = switchboard.name().to_owned();
        Site {
            room,
            nodes,
            switchboard: name,
            _serving: switchboard.serve().unwrap(),
        }
    }

    /// The directory that is exported.
    pub fn export(&self) -> PathBuf {
        self.room.path().join("export")
    }

    /// A directory that is not.
    pub fn plain(&self) -> PathBuf {
        self.room.path().join("plain")
    }

    pub fn room(&self) -> &Path {
        self.room.path()
    }

    /// The nodes as by `kill -9`.
    pub fn kill_node(&mut self) {
        for (node, _) in &mut self.nodes {
            node.kill().unwrap();
            node.wait().unwrap();
        }
    }

    pub fn start_node(&mut self) {
        for (node, socket) in &mut self.nodes {
            *node = start_node(self.room.path(), socket);
        }
    }

    /// What a program has to know.
    fn forwarded(&self) -> String {
        let shadows = self.room.path().join("shadows");
        format!("{}:{}:{PREFIX}", self.switchboard, shadows.display())
    }

    /// A command with the library.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .env("LD_PRELOAD", library())
            .env(VARIABLE, self.forwarded())
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .process_group(0);
        command
    }

    /// Compiles a program of `tests/c`.
    pub fn compile(&self, source: &str) -> PathBuf {
        self.compile_with(&["-O1"], source)
    }

    /// A library.
    pub fn compile_library(&self, source: &str) -> PathBuf {
        self.compile_with(&["-O1", "-shared", "-fPIC"], source)
    }

    fn compile_with(&self, flags: &[&str], source: &str) -> PathBuf {
        let file = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/c")
            .join(source);
        let program = self.room.path().join(source.trim_end_matches(".c"));
        let mut gcc = Command::new("gcc");
        gcc.args(["-Wall", "-Werror", "-D_GNU_SOURCE", "-pthread", "-o"]);
        succeed(gcc.arg(&program).args(flags).arg(file));
        program
    }

    /// Runs a program with a plain directory and with the forwarded one as its first argument: what it prints and makes
    /// must be the same.
    pub fn same(&self, source: &str, args: &[&str]) -> String {
        let program = self.compile(source);
        let plain = self.plain().display().to_string();
        let mut command = Command::new(&program);
        let expected = succeed(command.arg(&plain).args(args).stdin(Stdio::null()));
        let mut command = self.command(&program, &[PREFIX]);
        let found = succeed(command.args(args));
        let expected = String::from_utf8_lossy(&expected.stdout).replace(&plain, "DIR");
        let found = String::from_utf8_lossy(&found.stdout).replace(PREFIX, "DIR");
        pretty_eq(&expected, &found);
        assert_eq!(contents(&self.plain()), contents(&self.export()));
        found
    }

    /// Runs a program on the forwarded directory; what it printed.
    pub fn run(&self, source: &str, args: &[&str]) -> String {
        let program = self.compile(source);
        let mut command = self.command(program, &[PREFIX]);
        let output = succeed(command.args(args));
        String::from_utf8(output.stdout).unwrap()
    }

    /// A script for bash, in a working directory that is not forwarded.
    pub fn script(&self, text: &str) -> Output {
        let mut command = self.command("bash", &["-euo", "pipefail", "-c", text]);
        succeed(command.current_dir(self.room.path()).env("FAR", PREFIX))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for (node, _) in &mut self.nodes {
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

fn pretty_eq(expected: &str, found: &str) {
    for (line, (expected, found)) in expected.lines().zip(found.lines()).enumerate() {
        assert_eq!(expected, found, "line {}", line + 1);
    }
    assert_eq!(expected, found);
}

/// Every path below a directory, and what is there.
pub fn contents(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(next) = left.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(directory).unwrap().to_owned();
            if name.starts_with(".presagio") {
                continue;
            }
            let kind = path.symlink_metadata().unwrap().file_type();
            if kind.is_dir() {
                left.push(path);
                all.push((name, Vec::new()));
            } else if kind.is_file() {
                all.push((name, std::fs::read(path).unwrap()));
            }
        }
    }
    all.sort();
    all
}

fn start_node(room: &Path, socket: &str) -> Child {
    let socket = room.join(socket);
    let _ = std::fs::remove_file(&socket);
    let mut child = Command::new(beside("examples/divert_node"))
        .arg(room.join("export"))
        .arg(&socket)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let late = Instant::now() + Duration::from_secs(20);
    while UnixStream::connect(&socket).is_err() {
        assert!(Instant::now() < late, "the node does not listen");
        assert!(matches!(child.try_wait(), Ok(None)), "the node has ended");
        std::thread::sleep(Duration::from_millis(2));
    }
    child
}

/// Passes on what one says to the other, until either is gone.
fn relay(
    mut from: UnixStream,
    mut to: UnixStream,
    change: impl Fn(Vec<u8>) -> Vec<u8> + Send + 'static,
) {
    std::thread::spawn(move || {
        while let Some(frame) = next_frame(&mut from) {
            if to.write_all(&change(frame)).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Both);
    });
}

fn next_frame(from: &mut UnixStream) -> Option<Vec<u8>> {
    let mut frame = vec![0; 4];
    from.read_exact(&mut frame).ok()?;
    let size = u32::from_le_bytes(*frame.first_chunk()?) as usize;
    frame.resize(size, 0);
    from.read_exact(&mut frame[4..]).ok()?;
    Some(frame)
}

/// size\[4\] type\[1\] tag\[2\] fid\[4\] datasync\[4\]
fn synced_fid(frame: &[u8]) -> Option<u32> {
    const TFSYNC: u8 = 50;
    let fid = frame.get(7..)?.first_chunk()?;
    (frame[4] == TFSYNC).then_some(u32::from_le_bytes(*fid))
}

/// size\[4\] type\[1\] tag\[2\] count\[4\] data
fn halved(mut frame: Vec<u8>) -> Vec<u8> {
    const RREAD: u8 = 117;
    if frame[4] == RREAD && frame.len() > 100 {
        let count = (frame.len() - 11) / 2;
        frame.truncate(11 + count);
        frame[..4].copy_from_slice(&(11 + count as u32).to_le_bytes());
        frame[7..11].copy_from_slice(&(count as u32).to_le_bytes());
    }
    frame
}

/// The library that was built for this test.
pub fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().join("libpresagio_divert.so");
    assert!(library.is_file(), "no {}", library.display());
    library
}

fn beside(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().join(name)
}

/// Runs a command that must succeed, and in time.
pub fn succeed(command: &mut Command) -> Output {
    let what = format!("{command:?}");
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let output = finish(child, &what);
    assert!(
        output.status.success(),
        "{what}: {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Waits for a program that leads a process group, and for whoever else of that has its output. All are killed if it takes
/// too long.
pub fn finish(child: Child, what: &str) -> Output {
    finish_within(LATE, child, what)
}

pub fn finish_within(time: Duration, child: Child, what: &str) -> Output {
    let group = format!("-{}", child.id());
    let (done, waits) = std::sync::mpsc::channel::<()>();
    let guard = std::thread::spawn(move || {
        let late = waits.recv_timeout(time).is_err();
        if late {
            let _ = Command::new("kill").args(["-9", "--", &group]).status();
        }
        late
    });
    let output = child.wait_with_output().unwrap();
    let _ = done.send(());
    assert!(!guard.join().unwrap(), "{what}: it hangs");
    output
}
