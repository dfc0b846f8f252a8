//! What `presagio profile` promises: a device's figures in one document, nothing left behind whatever happens, no data of
//! others touched, and errors that say what to do.

mod common;

use common::skips::skipped;
use common::{TempDir, presagio, presagio_ok};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A real measurement that takes a moment.
const SMALL: [&str; 8] = [
    "--size",
    "2MiB",
    "--interval",
    "4K-16K:4K",
    "--interval",
    "16K-64K:16K",
    "--budget",
    "1",
];

fn measured(place: &str, more: &[&str]) -> Value {
    presagio_ok(&[&["profile", place, "--json"], &SMALL[..], more].concat()).json()
}

#[test]
fn a_real_storage_has_times_and_ratios_for_every_size() {
    let dir = TempDir::new("profile");
    let json = measured(dir.path(), &["--depth", "4"]);
    assert_eq!((&json["depth"], &json["full"]), (&4.into(), &false.into()));
    for test in [
        "sequential read",
        "random read",
        "sequential write",
        "random write",
    ] {
        let points = json["tests"][test]["points"].as_array().unwrap();
        assert_eq!(points.len(), 3, "the ends of both intervals");
        assert!(points.iter().all(|point| point["ns"].as_f64() > Some(0.0)));
    }
    for op in ["read", "write"] {
        let ratios = &json["ratios"][op];
        let sizes = ratios["sizes"].as_array().unwrap();
        assert_eq!(sizes.len(), 7);
        let all = sizes.iter().map(|size| size["ratio"].as_f64().unwrap());
        let mean = all.sum::<f64>() / 7.0;
        assert!((ratios["average"].as_f64().unwrap() - mean).abs() < 1e-9);
    }
    assert!(dir.entries().is_empty());
}

#[test]
fn a_file_that_is_named_stays_as_it_is() {
    let dir = TempDir::new("profile-file");
    let file = Path::new(dir.path()).join("precious");
    std::fs::write(&file, "data").unwrap();
    measured(file.to_str().unwrap(), &[]);
    assert_eq!(std::fs::read(&file).unwrap(), b"data");
    assert_eq!(dir.entries(), ["precious"]);
}

/// How many files of a directory a process has open that have no name there.
fn nameless(process: u32, directory: &str) -> usize {
    let open = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let open = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    open.filter(|path| path.starts_with(directory) && path.to_string_lossy().ends_with("(deleted)"))
        .count()
}

#[test]
fn nothing_is_left_behind_after_a_kill() {
    let dir = TempDir::new("profile-kill");
    let at = |name| format!("{}/{name}", dir.path());
    let mut child = Command::new(common::program())
        .args(["profile", dir.path(), "--full", "--size", "64MiB"])
        .args(["-o", &at("kept.json"), "--svg", &at("drawn.svg")])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // The two files to be kept, and the one to measure with.
    let until = Instant::now() + Duration::from_secs(60);
    while nameless(child.id(), dir.path()) < 3 {
        assert!(child.try_wait().unwrap().is_none(), "it takes longer");
        assert!(
            Instant::now() < until,
            "files have no name until they are complete"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(dir.entries().is_empty());
}

#[test]
fn what_is_kept_can_be_shown_drawn_and_emulated() {
    let dir = TempDir::new("profile-keep");
    let at = |name: &str| {
        Path::new(dir.path())
            .join(name)
            .to_str()
            .unwrap()
            .to_owned()
    };
    let (kept, drawn) = (at("ssd.json"), at("ssd.svg"));
    let first = presagio_ok(&["profile", "--emulated", "ssd", "-o", &kept, "--json"]).json();
    let shown = presagio_ok(&["profile", "--show", &kept, "--svg", &drawn, "--json"]).json();
    assert_eq!(first, shown);
    let svg = std::fs::read_to_string(&drawn).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("random write"));
    let again = presagio_ok(&["profile", "--emulated", &kept, "--json"]).json();
    for op in ["read", "write"] {
        let average = |json: &Value| json["ratios"][op]["average"].as_f64().unwrap();
        let off = average(&again) / average(&first) - 1.0;
        assert!(off.abs() < 0.02, "{op}: {off}");
    }
    assert_eq!(dir.entries(), ["ssd.json", "ssd.svg"]);
}

#[test]
fn a_check_says_how_far_the_fast_way_is_off_and_how_long_both_take() {
    let small = ["--size", "64MiB", "--interval", "8K-64K:8K"];
    let args = [&["profile", "--emulated", "ssd", "--check"], &small[..]].concat();
    let json = presagio_ok(&[&args[..], &["--json"]].concat()).json();
    let comparison = &json["comparison"];
    assert!(comparison["full_seconds"].as_f64() > comparison["fast_seconds"].as_f64());
    assert_eq!(comparison["errors"].as_array().unwrap().len(), 7);
    assert!(json["full"]["full"] == true && json["fast"]["full"] == false);
    let text = presagio_ok(&args).out;
    assert!(
        text.contains("all ratios") && text.contains("The fast way took"),
        "{text}"
    );
}

#[test]
fn the_full_way_has_every_size_six_times() {
    let small = ["--size", "16MiB", "--interval", "8K-64K:8K", "--json"];
    let json =
        presagio_ok(&[&["profile", "--emulated", "hdd", "--full"], &small[..]].concat()).json();
    let points = json["tests"]["random read"]["points"].as_array().unwrap();
    assert_eq!(points.len(), 8);
    assert!(points.iter().all(|point| point["runs"].as_u64() >= Some(6)));
}

#[test]
fn what_cannot_be_measured_is_explained() {
    let wrong: [(&[&str], &str); 8] = [
        (&["/nowhere/at/all"], "name a directory"),
        (&["/dev/null"], "neither a directory nor a regular file"),
        (&["/tmp", "--size", "9000000T"], "smaller --size"),
        (&["/tmp", "--size", "1MiB"], "larger --size"),
        (&["/tmp", "--interval", "1K-8K:1K"], "multiples of 4 KiB"),
        (&["--emulated", "tape"], "hdd, raid0, ssd"),
        (&["--show", "Cargo.toml"], "not JSON"),
        (&["--emulated", "hdd", "-o", "/nowhere/x"], "cannot write"),
    ];
    for (args, says) in wrong {
        let said = presagio(&[&["profile"], args].concat());
        assert_eq!(said.code, Some(2), "{args:?}");
        assert!(said.err.contains(says), "{args:?}: {}", said.err);
    }
}

#[test]
fn memory_is_not_taken_for_a_device() {
    if !Path::new("/dev/shm").is_dir() {
        return skipped("there is no /dev/shm here");
    }
    let json = measured("/dev/shm", &[]);
    let notes = json["notes"].to_string();
    assert!(notes.contains("is memory"), "{notes}");
}
