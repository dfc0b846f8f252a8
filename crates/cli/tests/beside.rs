//! `presagio run` beside and inside other things that change how a program runs: debuggers, sanitizers, other preloaded
//! libraries, namespaces. docs/limits.md says the same in words.

mod common;

use common::skips::{is_root, skipped};
use common::{TempDir, library};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Reads a file by blocks, and says how many bytes that were.
const READER: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	char *block = malloc(4096);
	long sum = 0, got;
	int fd = open(argv[1], O_RDONLY);
	while ((got = read(fd, block, 4096)) > 0)
		sum += got;
	close(fd);
	printf("%ld bytes\n", sum);
	if (argc > 2)
		block[4096] = 1; /* for who looks at that */
	free(block);
	return 0;
}
"#;

const SIZE: usize = 1 << 20;

struct Place(TempDir);

impl Place {
    /// The program, compiled with these options, and a file for it.
    fn new(name: &str, options: &[&str]) -> Place {
        let place = Place(TempDir::new(name));
        fs::write(place.path("reader.c"), READER).unwrap();
        fs::write(place.path("in"), vec![7; SIZE]).unwrap();
        let compiled = Command::new("gcc")
            .args(["-g", "-o", "reader", "reader.c"])
            .args(options)
            .current_dir(place.0.path())
            .status();
        assert!(compiled.unwrap().success());
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new(self.0.path()).join(name)
    }

    /// Runs these words, for no longer than two minutes.
    fn run(&self, words: &[&str]) -> Output {
        Command::new("timeout")
            .args(["-k", "5", "120"])
            .args(words)
            .current_dir(self.0.path())
            .env("PRESAGIO_LIB", library())
            .output()
            .unwrap()
    }

    /// The same for what must succeed and have read the file: bytes that `presagio run --json summary` saw.
    fn seen(&self, words: &[&str]) -> usize {
        let output = self.run(words);
        let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        assert!(
            output.status.success() && out.contains(&format!("{SIZE} bytes")),
            "{words:?}: {}\n{out}{err}",
            output.status
        );
        let summary = fs::read(self.path("summary")).unwrap();
        let summary: Value = serde_json::from_slice(&summary).unwrap();
        summary["totals"]["bytes_read"].as_u64().unwrap() as usize
    }
}

/// The program.
const READ: [&str; 2] = ["./reader", "in"];

/// Watched.
const RUN: [&str; 6] = [
    env!("CARGO_BIN_EXE_presagio"),
    "run",
    "--no-model",
    "--json",
    "summary",
    "--",
];

#[test]
fn a_debugger_inside() {
    let place = Place::new("gdb", &[]);
    let gdb = [
        "gdb",
        "-batch",
        "-ex",
        "run",
        "-ex",
        "print $_exitcode",
        "--args",
        "./reader",
        "in",
    ];
    assert!(place.seen(&[&RUN[..], &gdb].concat()) >= SIZE);
    let stops = [
        "gdb",
        "-batch",
        "-ex",
        "break printf",
        "-ex",
        "run",
        "-ex",
        "backtrace",
        "-ex",
        "continue",
        "--args",
        "./reader",
        "in",
    ];
    let words = [&RUN[..], &stops].concat();
    assert!(place.seen(&words) >= SIZE);
    let out = place.run(&words).stdout;
    let out = String::from_utf8_lossy(&out);
    // It has several places with ours: which one it stopped at is no matter.
    assert!(out.contains("in main ("), "{out}");
}

#[test]
fn valgrind_inside() {
    let place = Place::new("valgrind", &[]);
    let valgrind = ["valgrind", "-q", "--error-exitcode=9", "./reader", "in"];
    assert!(place.seen(&[&RUN[..], &valgrind].concat()) >= SIZE);
    let finds = place.run(&[&RUN[..], &valgrind, &["overflow"]].concat());
    assert_eq!(finds.status.code(), Some(9), "{finds:?}");
}

#[test]
fn strace_inside_and_outside() {
    let place = Place::new("strace", &[]);
    let strace = ["strace", "-f", "-o", "calls"];
    assert!(place.seen(&[&RUN[..], &strace, &READ].concat()) >= SIZE);
    assert!(place.seen(&[&strace, &RUN[..], &READ].concat()) >= SIZE);
}

#[test]
fn a_program_with_the_address_sanitizer() {
    let place = Place::new("asan", &["-fsanitize=address"]);
    assert!(place.seen(&[&RUN[..], &READ].concat()) >= SIZE);
    let finds = place.run(&[&RUN[..], &["./reader", "in", "overflow"]].concat());
    let err = String::from_utf8_lossy(&finds.stderr);
    assert!(
        !finds.status.success() && err.contains("heap-buffer-overflow"),
        "{err}"
    );
}

#[test]
fn programs_with_other_sanitizers() {
    for kind in ["undefined", "thread", "leak"] {
        let place = Place::new(kind, &[&format!("-fsanitize={kind}")]);
        assert!(place.seen(&[&RUN[..], &READ].concat()) >= SIZE);
    }
}

/// Inside of one, all is as outside. From outside, process ids mean something else: nothing is watched, and the command runs.
#[test]
fn in_a_namespace_of_processes() {
    if !is_root("another namespace of processes") {
        return;
    }
    let place = Place::new("pids", &[]);
    let unshare = ["unshare", "--pid", "--fork", "--mount-proc"];
    assert_eq!(place.seen(&[&unshare, &RUN[..], &READ].concat()), SIZE);
    assert_eq!(place.seen(&[&RUN[..], &unshare, &READ].concat()), 0);
}

#[test]
fn in_namespaces_as_rootless_containers_have_them() {
    let place = Place::new("rootless", &[]);
    let unshare = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "--pid",
        "--fork",
        "--mount-proc",
    ];
    if !place
        .run(&[&unshare[..], &["true"]].concat())
        .status
        .success()
    {
        return skipped("no user namespaces are allowed here");
    }
    assert_eq!(place.seen(&[&unshare, &RUN[..], &READ].concat()), SIZE);
    assert_eq!(place.seen(&[&RUN[..], &unshare, &READ].concat()), 0);
}
