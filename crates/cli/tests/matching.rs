//! What `presagio match` promises: recordings cut into periods, patterns that are found again, a judgement where labels are
//! known, the same as text and as JSON.

mod common;

use common::{TempDir, presagio, presagio_ok};
use presagio_sim::campaign::accesses::{AccessRun, Purpose};
use presagio_tune::Detector;
use std::fmt::Write as _;
use std::fs;

/// Requests to one file, `step` bytes from one to the next, 200 a second for five seconds.
fn trace(dir: &TempDir, name: &str, action: &str, step: u64) -> String {
    let mut text = "time_ns,duration_ns,process,layer,action,file,offset,length\n".to_owned();
    for n in 0..1000u64 {
        let (time, offset) = (n * 5_000_000, n * step);
        writeln!(text, "{time},1000,0,server,{action},/data,{offset},65536").unwrap();
    }
    let path = format!("{}/{name}", dir.path());
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_workload_that_comes_again_is_recognised_and_judged() {
    let dir = TempDir::new("match-again");
    let a = trace(&dir, "whole@1.csv", "read", 65_536);
    let b = trace(&dir, "sparse@1.csv", "read", 1 << 24);
    let c = trace(&dir, "whole@2.csv", "read", 65_536);
    let json = presagio_ok(&["match", &a, &b, &c, "--labels", "names", "--json"]).json();
    let periods = json["periods"].as_array().unwrap();
    assert_eq!(periods.len(), 15);
    let pattern = |n: usize| periods[n]["pattern"].as_u64().unwrap();
    assert_eq!(pattern(1), pattern(11), "{json:#}");
    assert_ne!(pattern(1), pattern(6), "{json:#}");
    assert_eq!(periods[11]["verdict"], "right");
    assert_eq!(json["ways"][0]["precision_percent"], 100.0);
}

#[test]
fn all_ways_can_be_compared_with_labels_of_a_file() {
    let dir = TempDir::new("match-compare");
    let a = trace(&dir, "a.csv", "write", 65_536);
    let b = trace(&dir, "b.csv", "write", 65_536);
    let labels = format!("{}/labels.csv", dir.path());
    fs::write(&labels, "a.csv,same\nb.csv,same\n").unwrap();
    let json = presagio_ok(&["match", &a, &b, "--labels", &labels, "--compare", "--json"]).json();
    let ways = json["ways"].as_array().unwrap();
    assert_eq!(ways.len(), 5);
    assert_eq!(ways[3]["agrees_percent"], 100.0);
    for way in ways {
        assert_eq!(way["periods"], 10);
        assert_eq!(way["precision_percent"], 100.0, "{way}");
        assert_eq!(way["recall_percent"], 100.0, "{way}");
    }
    let text = presagio_ok(&["match", &a, &b, "--labels", &labels, "--compare"]).out;
    assert!(
        text.contains("published-servers") && text.contains("precision"),
        "{text}"
    );
}

/// Sizes, numbers of processes and devices that nothing was learned from. `presagio train --network --check` asks about many more.
#[test]
fn the_shipped_network_tells_accesses_apart_in_scenarios_never_seen() {
    let network = Detector::shipped();
    let (mut all, mut right) = (0, 0);
    for run in AccessRun::all(6, Purpose::Ask, 1) {
        for lesson in run.run().unwrap() {
            all += 1;
            right += u32::from(network.access(&lesson.features) == lesson.access);
        }
    }
    assert!(all >= 100, "{all} lessons");
    assert!(100 * right >= 99 * all, "{right} of {all}");
}

#[test]
fn without_labels_nothing_is_judged() {
    let dir = TempDir::new("match-plain");
    let a = trace(&dir, "a.csv", "write", 65_536);
    let text = presagio_ok(&["match", &a]).out;
    assert!(!text.contains("precision"), "{text}");
    assert!(text.contains("0-4") || text.contains("1-4"), "{text}");
}

#[test]
fn what_cannot_be_matched_is_said() {
    let dir = TempDir::new("match-nothing");
    let path = format!("{}/empty.csv", dir.path());
    fs::write(
        &path,
        "time_ns,process,action,file,offset,length\n1,0,open,/x,0,0\n",
    )
    .unwrap();
    let said = presagio(&["match", &path]);
    assert_eq!(said.code, Some(2), "{}", said.err);
    assert!(said.err.contains("nothing to match"), "{}", said.err);
    let said = presagio(&["match", &path, "--labels", "/nowhere"]);
    assert!(said.err.contains("labels"), "{}", said.err);
}
