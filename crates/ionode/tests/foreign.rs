//! Debian's own clients, of the package diod, read and list from our node.

mod common;

use common::{Exported, pattern};
use std::fs;
use std::process::{Command, Output};

/// Runs one of diod's programs against the node, over TCP.
fn run(node: &Exported, program: &str, arguments: &[&str]) -> Output {
    Command::new(format!("/usr/sbin/{program}"))
        .args(["-s", node.tcp(), "-a"])
        .arg(node.export())
        .args(arguments)
        .output()
        .expect("Debian's package diod")
}

#[test]
fn diodcat_reads_what_is_there() {
    let node = Exported::start();
    fs::create_dir_all(node.path("dir/inner")).unwrap();
    for (number, size) in [0, 1, 4096, 65_536, 1_000_000].into_iter().enumerate() {
        let bytes = pattern(number as u64, size);
        fs::write(node.path("dir/inner/file"), &bytes).unwrap();
        let output = run(&node, "diodcat", &["dir/inner/file"]);
        assert!(output.status.success(), "{output:?}");
        assert!(output.stdout == bytes, "{size} bytes");
    }
}

#[test]
fn diodcat_reads_several_files_in_small_frames() {
    let node = Exported::start();
    fs::write(node.path("one"), pattern(1, 30_000)).unwrap();
    fs::write(node.path("two"), pattern(2, 50_000)).unwrap();
    let output = run(&node, "diodcat", &["-m", "8192", "one", "two"]);
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout == [pattern(1, 30_000), pattern(2, 50_000)].concat());
}

#[test]
fn diodcat_says_what_is_not_there() {
    let node = Exported::start();
    let output = run(&node, "diodcat", &["nothing"]);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("No such file"), "{said}");
}

#[test]
fn diodls_lists_what_is_there() {
    let node = Exported::start();
    fs::create_dir(node.path("dir")).unwrap();
    let mut expected: Vec<String> = (0..500).map(|i| format!("entry-{i}")).collect();
    for name in &expected {
        fs::write(node.path("dir").join(name), "x").unwrap();
    }
    let output = run(&node, "diodls", &["dir"]);
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let printed = printed.split_ascii_whitespace();
    let mut printed: Vec<&str> = printed.filter(|name| name.starts_with("entry")).collect();
    printed.sort_unstable();
    expected.sort_unstable();
    assert!(printed == expected, "{} of 500", printed.len());
}

#[test]
fn diodls_shows_sizes_and_kinds() {
    let node = Exported::start();
    fs::create_dir(node.path("sub")).unwrap();
    fs::write(node.path("file"), pattern(1, 12_345)).unwrap();
    let output = run(&node, "diodls", &["-l", "."]);
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let line = |name: &str| {
        let mut lines = printed.lines();
        let line = lines.find(|line| line.ends_with(name));
        line.unwrap_or_else(|| panic!("no {name} in\n{printed}"))
            .to_owned()
    };
    assert!(line("file").contains("12345") && line("file").starts_with('-'));
    assert!(line("sub").starts_with('d'));
}
