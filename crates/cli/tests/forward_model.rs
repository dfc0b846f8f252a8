//! Random operations on a directory that is forwarded without a mount, on a plain one and in memory: all must always say
//! the same.
//!
//! The steps are those of the tests of the mount. Whoever does them is a process of its own: this test, started once more by
//! `presagio run --forward`.

mod common;
#[path = "../../forward/tests/common/steps.rs"]
mod steps;
#[path = "../../forward/tests/common/tree.rs"]
#[allow(dead_code, reason = "the tests of the mount use more of it")]
mod tree;

use common::TempDir;
use common::forwarded::{FAR, forwarded, succeeds};
use common::nodes::{Node, PROGRAMS, Random, pattern};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Tells the one that is started what to do: a seed, or nothing for files that stay open.
const SEED: &str = "PRESAGIO_TEST_SEED";

#[test]
#[ignore = "is started by the others, as a process of its own"]
fn stepper() {
    let outside = std::env::var("OUTSIDE").expect("a directory");
    let (here, plain) = (Path::new(FAR), Path::new(&outside).join("plain"));
    match std::env::var(SEED).expect("orders").parse() {
        Ok(seed) => steps::agree(here, &plain, seed, 700),
        Err(_) => steps::open_files_agree(here, &plain),
    }
}

/// Lets a program work in both directories, and compares what is there: as programs see it, and in the export.
fn run(work: impl FnOnce(&mut Command, &Path)) {
    let dir = TempDir::new("forward-model");
    let path = Path::new(dir.path());
    let (plain, export) = (path.join("plain"), path.join("export"));
    fs::create_dir(&plain).unwrap();
    fs::create_dir(&export).unwrap();
    let node = Node::unix(path, "socket", &export, &[]);
    let run = || forwarded(&node.at.text(), None, &[], path);
    work(&mut run(), &plain);
    let compare = r#"diff -r --no-dereference "$FAR" "$OUTSIDE/plain"
        diff -r --no-dereference -x .presagio "$OUTSIDE/export" "$OUTSIDE/plain""#;
    succeeds(run().args(["bash", "-euc", compare]));
    let names = fs::read_dir(&plain).unwrap().count();
    assert!(names > 0, "something is there to compare");
}

/// This test, started once more to do the steps.
fn step(seed: &str) {
    run(|stepper, _| {
        stepper.arg(std::env::current_exe().unwrap());
        stepper.args(["--exact", "stepper", "--ignored", "--nocapture"]);
        let said = succeeds(stepper.env(SEED, seed));
        assert!(said.contains("1 passed"), "{said}");
    });
}

#[test]
fn what_is_forwarded_a_plain_directory_and_the_model_agree() {
    ["1", "2", "3"].into_iter().for_each(step);
}

#[test]
fn open_files_are_the_same_whatever_becomes_of_their_names() {
    step("");
}

#[test]
fn descriptors_children_and_streams_do_what_they_do_in_a_plain_directory() {
    for seed in ["1", "2", "3", "4"] {
        run(|command, plain| {
            let script = format!("{PROGRAMS}/anycalls.py");
            command.args(["python3", &script, seed, "600", FAR]);
            assert_eq!(succeeds(command.arg(plain)), "the same\n");
        });
    }
}
