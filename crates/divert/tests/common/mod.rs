//! What the tests share: an I/O node that can be killed, a switchboard, C programs, and the same program run on a plain
//! directory and on a forwarded one.

#![allow(dead_code, reason = "each test program uses a part of it")]

use presagio_forward::switchboard::{Forwarded, Serving, Switchboard, VARIABLE};
use presagio_forward::{Address, Options};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// What is forwarded: nothing is there in truth.
pub const PREFIX: &str = "/presagio-far";

/// No program of a test takes longer.
const LATE: Duration = Duration::from_secs(120);

/// A node, a switchboard and room.
pub struct Site {
    room: tempfile::TempDir,
    node: Child,
    switchboard: String,
    _serving: Serving,
}

impl Site {
    pub fn new() -> Site {
        let room = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        for name in ["export", "plain", "presagio-shadow"] {
            std::fs::create_dir(room.path().join(name)).unwrap();
        }
        let node = start_node(room.path());
        let socket = Address::Unix(room.path().join("socket"));
        let mut options = Options::new(vec![socket]);
        options.patience = Duration::from_secs(20);
        options.owners = Some(presagio_forward::Instance::draw().unwrap());
        let forwarded = Forwarded {
            prefix: PREFIX.into(),
            shadow: room.path().join("presagio-shadow"),
            options,
        };
        let switchboard = Switchboard::open(vec![forwarded]).unwrap();
        let name = switchboard.name().to_owned();
        Site {
            room,
            node,
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

    /// The node as by `kill -9`.
    pub fn kill_node(&mut self) {
        self.node.kill().unwrap();
        self.node.wait().unwrap();
    }

    pub fn start_node(&mut self) {
        self.node = start_node(self.room.path());
    }

    /// A command with the library.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .env("LD_PRELOAD", library())
            .env(VARIABLE, format!("{}:{PREFIX}", self.switchboard))
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        command
    }

    /// Compiles a program of `tests/c`.
    pub fn compile(&self, source: &str) -> PathBuf {
        let file = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/c")
            .join(source);
        let program = self.room.path().join(source.trim_end_matches(".c"));
        let mut gcc = Command::new("gcc");
        gcc.args(["-O1", "-Wall", "-Werror", "-D_GNU_SOURCE", "-pthread", "-o"]);
        succeed(gcc.arg(&program).arg(file));
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
        let _ = self.node.kill();
        let _ = self.node.wait();
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

fn start_node(room: &Path) -> Child {
    let socket = room.join("socket");
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

/// Waits for a program, which is killed if it takes too long.
pub fn finish(child: Child, what: &str) -> Output {
    let pid = child.id();
    let (done, waits) = std::sync::mpsc::channel::<()>();
    let guard = std::thread::spawn(move || {
        let late = waits.recv_timeout(LATE).is_err();
        if late {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        }
        late
    });
    let output = child.wait_with_output().unwrap();
    let _ = done.send(());
    assert!(!guard.join().unwrap(), "{what}: it hangs");
    output
}
