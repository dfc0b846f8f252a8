//! What `presagio train` promises: a text that `--trees` or `--network` takes, the same from the same seed, and an evaluation whose bars
//! are the exit status. How good the trees are is for `presagio bench tune` to say.

mod common;

use common::{Said, TempDir, presagio, presagio_ok};
use presagio_tune::{Detector, Trees};

/// Whether a check failed exactly because a bar does not hold.
fn assert_bars_are_the_status(said: &Said) {
    let json = said.json();
    let bars = json["bars"].as_array().unwrap();
    assert!(!bars.is_empty(), "{json:#}");
    let broken = bars.iter().any(|bar| bar["holds"] != true);
    assert_eq!(said.code, Some(i32::from(broken)), "{json:#}");
}

#[test]
fn trees_are_written_to_a_file_judged_and_taken_by_auto() {
    let dir = TempDir::new("train");
    let [trees, scenario] =
        ["trees.txt", "scenario.toml"].map(|name| format!("{}/{name}", dir.path()));
    let said = presagio(&["train", "--quick", "--check", "--json", "-o", &trees]);
    assert_bars_are_the_status(&said);
    let text = std::fs::read_to_string(&trees).unwrap();
    assert!(text.contains("presagio train --seed 1 --quick"), "{text}");
    Trees::from_text(&text).expect("what was written can be read");
    let app = "[[app]]\nprocesses = 4\npattern = \"strided\"\ntotal = \"2MiB\"\n";
    std::fs::write(&scenario, app).unwrap();
    let auto = ["--set", "servers.scheduler.policy=auto", "--trees", &trees];
    presagio_ok(&[&["sim", &scenario][..], &auto].concat());
    // Without --check the text goes to stdout where no file is named, and the same seed makes the same.
    assert_eq!(presagio_ok(&["train", "--quick"]).out, text);
}

#[test]
fn a_network_is_written_and_judged_too() {
    let dir = TempDir::new("train-network");
    let path = format!("{}/network.txt", dir.path());
    let said = presagio(&[
        "train",
        "--network",
        "--quick",
        "--check",
        "--json",
        "-o",
        &path,
    ]);
    assert_bars_are_the_status(&said);
    let text = std::fs::read_to_string(&path).unwrap();
    Detector::from_text(&text).expect("what was written can be read");
}

#[test]
fn a_file_that_cannot_be_written_is_said() {
    let said = presagio(&[
        "train",
        "--quick",
        "--jobs",
        "2",
        "-o",
        "/nowhere/trees.txt",
    ]);
    assert_eq!(said.code, Some(2), "{}", said.err);
    assert!(
        said.err.contains("cannot write /nowhere/trees.txt"),
        "{}",
        said.err
    );
}
