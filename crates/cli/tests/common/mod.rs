//! Runs the command the way a person does, and looks at what comes back.

#![allow(dead_code)] // Each test file uses its own part of this.

pub mod apart;
pub mod forwarded;
pub mod gluster;
pub mod nodes;
#[path = "../../../core/tests/common/skips.rs"]
pub mod skips;

use serde_json::Value;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// What the command said and how it ended.
pub struct Said {
    pub out: String,
    pub err: String,
    pub code: Option<i32>,
}

impl Said {
    /// Stdout as the one JSON document that it must be.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out)
            .unwrap_or_else(|e| panic!("no JSON: {e}\n{}\n{}", self.out, self.err))
    }
}

/// Runs `presagio` with `args`; stdout and stderr are no terminals here.
pub fn presagio(args: &[&str]) -> Said {
    run(Command::new(program())
        .args(args)
        .env("PRESAGIO_LIB", library())
        .env_remove("COLUMNS"))
}

/// Like `presagio`, with a terminal that claims to be so many columns wide.
pub fn presagio_at(columns: usize, args: &[&str]) -> Said {
    run(Command::new(program())
        .args(args)
        .env("COLUMNS", columns.to_string()))
}

fn run(command: &mut Command) -> Said {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("presagio starts");
    let text = |bytes| String::from_utf8(bytes).expect("presagio speaks UTF-8");
    Said {
        out: text(stdout),
        err: text(stderr),
        code: status.code(),
    }
}

/// Like `presagio`, for runs that must succeed.
pub fn presagio_ok(args: &[&str]) -> Said {
    let said = presagio(args);
    assert_eq!(
        said.code,
        Some(0),
        "presagio {args:?}\n{}{}",
        said.out,
        said.err
    );
    said
}

/// The library that was built for the tests: it lies beside them.
pub fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let library = test.with_file_name("libpresagio.so");
    assert!(library.is_file(), "no {}", library.display());
    library
}

pub fn program() -> &'static str {
    env!("CARGO_BIN_EXE_presagio")
}

/// A port that nobody has: not one of those that the system gives to whoever asks for any, since a service has to get it again.
pub fn free_port() -> u16 {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(31);
    loop {
        let port = 20_000 + first.wrapping_add(TRIED.fetch_add(1, Ordering::Relaxed)) % 12_000;
        let port = u16::try_from(port).expect("a port");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// The root of the repository.
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../..").canonicalize().expect("it is there")
}

/// An empty directory of a test's own, gone when the test is over.
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new(name: &str) -> TempDir {
        static MADE: AtomicU32 = AtomicU32::new(0);
        // The path of a socket has a hundred characters at most, wherever this is built.
        let short: String = name.chars().take(16).collect();
        let (process, number) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let unique = format!("{short}-{process}-{number}");
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(unique);
        std::fs::create_dir_all(&path).expect("a temporary directory");
        TempDir(path)
    }

    pub fn path(&self) -> &str {
        self.0.to_str().expect("a path in UTF-8")
    }

    pub fn entries(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("the directory is there");
        let mut names: Vec<String> = entries
            .map(|e| {
                e.expect("an entry")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        names.sort();
        names
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
