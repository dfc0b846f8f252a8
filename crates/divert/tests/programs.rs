//! Real programs on a forwarded directory print and make what they do on a plain one.

#![cfg(target_arch = "x86_64")]

mod common;

use common::{PREFIX, Site, contents, succeed};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A script of `tests/scripts`.
fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/scripts")
        .join(name)
}

/// Runs a script with a plain directory and with the forwarded one, and compares all that it prints and makes.
fn alike(shell: &str, name: &str) {
    let site = Site::new();
    let plain = site.plain().display().to_string();
    let finished = |command: &mut Command, place: &str| {
        command.arg(script(name)).arg(place).current_dir("/");
        command
            .env("LC_ALL", "C")
            .env("PYTHONDONTWRITEBYTECODE", "1");
        let output = succeed(command.stdin(Stdio::null()));
        let printed = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&printed).replace(place, "DIR")
    };
    let expected = finished(&mut Command::new(shell), &plain);
    let found = finished(&mut site.command(shell, &[]), PREFIX);
    assert_eq!(expected, found);
    // What programs wrote down of where they were is to be the same too.
    let made = |directory: &Path, place: &str| {
        let mut all = contents(directory);
        for (_, bytes) in &mut all {
            if let Ok(text) = std::str::from_utf8(bytes) {
                *bytes = text.replace(place, "DIR").into_bytes();
            }
        }
        all
    };
    let (expected, found) = (made(&site.plain(), &plain), made(&site.export(), PREFIX));
    let names =
        |all: &[(PathBuf, Vec<u8>)]| all.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&expected), names(&found));
    for (one, other) in expected.iter().zip(&found) {
        assert!(one == other, "{} differs", one.0.display());
    }
}

#[test]
fn bash_redirects_pipes_globs_and_changes_directories() {
    alike("bash", "shell.sh");
}

#[test]
fn dash_does_the_same() {
    alike("dash", "shell.sh");
}

#[test]
fn files_are_copied_moved_archived_sorted_and_synchronised() {
    alike("bash", "files.sh");
}

#[test]
fn git_commits_clones_pushes_and_finds_nothing_wrong() {
    alike("bash", "git.sh");
}

#[test]
fn programs_are_compiled_and_run_and_a_database_is_filled() {
    alike("bash", "compile.sh");
}

#[test]
fn python_does_all_that_it_does_with_files() {
    alike("/usr/bin/python3", "python.py");
}
