//! What `presagio sched` promises: ten policies explained, and a comparison on real storage in which every
//! byte is right and nothing is left behind.

mod common;

use common::{TempDir, presagio, presagio_at, presagio_ok};
use serde_json::Value;

const POLICIES: [&str; 10] = [
    "NOOP", "TO", "TO-agg", "SJF", "MLF", "aIOLi", "SW", "TWINS", "WFQ", "HBRR",
];

/// A comparison that takes a moment: 8 clients, 128 requests.
fn compare(dir: &TempDir, more: &[&str]) -> Value {
    let small = [
        "sched",
        "compare",
        dir.path(),
        "--clients",
        "8",
        "--request",
        "4K",
        "--size",
        "512K",
        "--json",
    ];
    presagio_ok(&[&small, more].concat()).json()
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["policy"].as_str().unwrap())
        .collect()
}

#[test]
fn the_list_explains_the_ten_policies() {
    let json = presagio_ok(&["sched", "list", "--json"]).json();
    assert_eq!(names(&json), POLICIES);
    let text = presagio_ok(&["sched", "list"]).out;
    for entry in json.as_array().unwrap() {
        assert!(text.contains(entry["about"].as_str().unwrap()), "{entry}");
        assert!(
            entry["aggregates"].is_boolean() && entry["uses_foresight"].is_boolean(),
            "{entry}"
        );
    }
}

#[test]
fn all_ten_policies_serve_every_request_with_the_right_bytes() {
    let dir = TempDir::new("compare");
    for op in ["read", "write"] {
        for pattern in ["strided", "contiguous", "random"] {
            let json = compare(&dir, &["--op", op, "--pattern", pattern, "--workers", "2"]);
            assert_eq!(names(&json["policies"]), POLICIES, "{op} {pattern}");
            assert_eq!(
                (&json["verified"], &json["op"]),
                (&Value::Bool(true), &Value::from(op))
            );
            for policy in json["policies"].as_array().unwrap() {
                assert_eq!(policy["requests"], 128, "{policy}");
                let operations = policy["operations"].as_u64().unwrap();
                assert!((1..=128).contains(&operations), "{policy}");
            }
            assert_eq!(dir.entries(), [""; 0], "the scratch file is gone");
        }
    }
}

#[test]
fn noop_serves_each_request_with_an_operation_of_its_own() {
    let dir = TempDir::new("noop");
    let json = compare(&dir, &["--policy", "NOOP"]);
    assert_eq!(json["policies"][0]["operations"], 128);
    assert_eq!(json["policies"][0]["gain"], 1.0);
}

#[test]
fn only_the_policies_asked_for_run_besides_noop() {
    let dir = TempDir::new("some");
    let json = compare(&dir, &["--policy", "aioli", "--policy", "SJF"]);
    assert_eq!(names(&json["policies"]), ["NOOP", "SJF", "aIOLi"]);
}

#[test]
fn auto_is_compared_like_any_policy_and_says_what_it_chose() {
    let dir = TempDir::new("auto");
    let json = compare(
        &dir,
        &["--policy", "auto", "--policy", "SJF", "--profile", "hdd"],
    );
    assert_eq!(names(&json["policies"]), ["NOOP", "SJF", "auto"]);
    assert_eq!(json["policies"][2]["requests"], 128);
    let said = json["auto"].as_str().unwrap();
    assert!(
        said.starts_with("auto ended with ") || said.starts_with("auto stayed with "),
        "{said}"
    );
    assert!(compare(&dir, &["--policy", "SJF"])["auto"].is_null());
    let said = presagio(&["sched", "compare", dir.path(), "--profile", "hdd"]);
    assert!(said.err.contains("--policy auto"), "{}", said.err);
}

#[test]
fn requests_that_direct_io_cannot_take_go_through_the_page_cache() {
    let dir = TempDir::new("odd");
    let args = [
        "sched",
        "compare",
        dir.path(),
        "--clients",
        "3",
        "--request",
        "1001",
        "--size",
        "50000",
        "--json",
    ];
    let json = presagio_ok(&args).json();
    assert!(
        json["storage_path"]
            .as_str()
            .unwrap()
            .contains("page cache, dropped"),
        "{json:#}"
    );
    assert_eq!(json["file_bytes"], 49 * 1001, "whole requests only");
}

#[test]
fn every_round_is_reported_with_the_spread() {
    let dir = TempDir::new("rounds");
    let json = compare(&dir, &["--rounds", "4", "--policy", "TO"]);
    assert_eq!(json["rounds"], 4);
    for policy in json["policies"].as_array().unwrap() {
        let rounds = policy["seconds_by_round"].as_array().unwrap();
        assert_eq!(rounds.len(), 4, "{policy}");
        assert!(policy["spread"].as_f64() >= Some(0.0), "{policy}");
    }
    let once = compare(&dir, &["--rounds", "1", "--policy", "TO"]);
    assert!(once["policies"][0]["spread"].is_null());
}

#[test]
fn lines_are_no_wider_than_the_terminal() {
    let dir = TempDir::new("width");
    let small = ["--clients", "1", "--request", "4K", "--size", "64K"];
    let compare = [&["sched", "compare", dir.path()][..], &small].concat();
    for columns in [80, 120] {
        for args in [&["sched", "list"][..], &compare] {
            let said = presagio_at(columns, args);
            assert_eq!(said.code, Some(0), "{}", said.err);
            let widest = said.out.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(columns), "{columns} columns\n{}", said.out);
        }
    }
}

#[test]
fn one_client_reads_and_many_read() {
    let dir = TempDir::new("one");
    let small = ["--request", "4K", "--size", "64K", "--rounds", "1"];
    for (clients, start) in [("1", "1 client reads one"), ("2", "2 clients read one")] {
        let asked = ["sched", "compare", dir.path(), "--clients", clients];
        let said = presagio_ok(&[&asked[..], &small].concat());
        assert!(said.out.starts_with(start), "{}", said.out);
    }
}

#[test]
fn the_table_shows_every_policy_and_ends_with_a_conclusion() {
    let dir = TempDir::new("table");
    let said = presagio_ok(&[
        "sched",
        "compare",
        dir.path(),
        "--clients",
        "4",
        "--request",
        "4K",
        "--size",
        "256K",
    ]);
    for policy in POLICIES {
        assert!(
            said.out.lines().any(|line| line.starts_with(policy)),
            "{policy}\n{}",
            said.out
        );
    }
    let conclusion = said.out.split("\n\n").last().unwrap();
    assert!(conclusion.contains("NOOP"), "{conclusion}");
    let note = "TWINS, WFQ and SW have nothing to choose from";
    assert!(said.out.replace('\n', " ").contains(note), "{}", said.out);
}

#[test]
fn what_cannot_be_compared_is_explained() {
    let dir = TempDir::new("errors");
    let missing = format!("{}/missing", dir.path());
    let cases: [(&[&str], &str); 10] = [
        (&[&missing], "create the directory first"),
        (&["/dev/null"], "name a directory"),
        (
            &[dir.path(), "--size", "64K", "--request", "32K"],
            "use a larger --size",
        ),
        (&[dir.path(), "--size", "8000000T"], "free some space"),
        (
            &[dir.path(), "--request", "1G", "--size", "100G"],
            "use a smaller --request",
        ),
        (&[dir.path(), "--request", "511"], "use a larger --request"),
        (&[dir.path(), "--rounds", "0"], "--rounds"),
        (&["/proc"], "name a directory on the storage in question"),
        (&[dir.path(), "--request", "4X"], "is no unit"),
        (
            &[dir.path(), "--policy", "CFQ"],
            "possible values: NOOP, TO, TO-agg",
        ),
    ];
    for (args, advice) in cases {
        let said = presagio(&[&["sched", "compare"], args].concat());
        assert_eq!(said.code, Some(2), "{args:?}");
        assert!(said.err.contains(advice), "{args:?}: {}", said.err);
        assert_eq!(said.out, "");
    }
    assert_eq!(dir.entries(), [""; 0]);
}
