//! What `presagio bench` promises: parts that can be listed, bars at the end, one JSON document, an exit
//! status that can be relied on. What the bars say is not judged here: that takes an idle machine.

mod common;

use common::skips::skipped;
use common::{Said, presagio, presagio_at, presagio_ok};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// The smallest bench, strictly judged, run once for all tests here.
fn tiny_as_json() -> &'static Said {
    static SAID: LazyLock<Said> =
        LazyLock::new(|| presagio(&["bench", "sched", "--tiny", "--json", "--strict"]));
    &SAID
}

#[test]
fn the_list_names_every_part_with_a_line_about_it() {
    let text = presagio_ok(&["bench", "--list"]).out;
    let json = presagio_ok(&["bench", "--list", "--json"]).json();
    let parts = json.as_array().unwrap();
    assert_eq!(text.lines().count(), parts.len());
    for (line, part) in text.lines().zip(parts) {
        assert!(line.starts_with(part["part"].as_str().unwrap()), "{line}");
        assert!(line.ends_with(part["about"].as_str().unwrap()), "{line}");
    }
    assert!(parts.iter().any(|part| part["part"] == "sched"));
}

#[test]
fn an_unknown_or_missing_part_is_answered_with_the_known_ones() {
    for args in [&["bench", "nonsense"][..], &["bench"]] {
        let said = presagio(args);
        assert_eq!(said.code, Some(2));
        assert!(said.err.contains("sched"), "{}", said.err);
    }
}

#[test]
fn a_strict_run_fails_exactly_when_a_bar_does_not_hold() {
    let said = tiny_as_json();
    let json = said.json();
    let broken = json["bars"]
        .as_array()
        .unwrap()
        .iter()
        .any(|bar| bar["holds"] == false);
    assert_eq!(said.code, Some(i32::from(broken)), "{json:#}");
}

#[test]
fn the_scheduler_bench_covers_every_policy_and_case() {
    let json = tiny_as_json().json();
    let cases = json["tables"]["cases"].as_array().unwrap();
    let key = |case: &Value| ["policy", "files", "pattern", "backlog"].map(|k| case[k].to_string());
    let distinct: BTreeSet<[String; 4]> = cases.iter().map(key).collect();
    assert_eq!(
        (cases.len(), distinct.len()),
        (80, 80),
        "10 policies × 2 × 2 patterns × 2 backlogs"
    );
    for case in cases {
        assert!(case["ns_per_request"].as_f64() > Some(0.0), "{case}");
        assert!(case["ns_per_submit"].as_f64() > Some(0.0), "{case}");
        assert_eq!(
            case["bytes_per_queued_request"].is_null(),
            case["backlog"] == 0,
            "{case}"
        );
    }
    assert_eq!(json["tables"]["switches"].as_array().unwrap().len(), 9);
}

#[test]
fn text_ends_with_the_same_bars_as_json_one_a_line() {
    let json = tiny_as_json().json();
    let text = presagio_ok(&["bench", "sched", "--tiny"]).out;
    let bars = json["bars"].as_array().unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(bars.len(), 10 * 4 + 1);
    for (bar, line) in bars.iter().zip(&lines[lines.len() - bars.len()..]) {
        assert!(line.starts_with(bar["name"].as_str().unwrap()), "{line}");
        assert!(
            ["holds", "DOES NOT HOLD", "too small a run"]
                .iter()
                .any(|end| line.ends_with(end)),
            "{line}"
        );
        assert!(
            !line.contains('\x1b'),
            "no colours where there is no terminal"
        );
    }
}

#[test]
fn text_fits_a_terminal_of_80_columns_and_has_the_notes_of_json() {
    let said = presagio_at(80, &["bench", "sched", "--tiny"]);
    // Why something was not measured may be longer.
    let lines = said.out.lines().filter(|l| !l.contains("not measured"));
    let wide: Vec<&str> = lines.filter(|l| l.chars().count() > 80).collect();
    assert_eq!(wide, [""; 0]);
    let one_line = said.out.replace('\n', " ");
    for note in tiny_as_json().json()["notes"].as_array().unwrap() {
        assert!(one_line.contains(note.as_str().unwrap()), "{note}");
    }
}

#[test]
fn the_counted_run_works_without_anyone_counting() {
    let said = presagio_ok(&["bench-count", "aIOLi", "64", "sequential", "100", "10"]);
    assert_eq!((said.out.as_str(), said.err.as_str()), ("", ""));
}

#[test]
fn the_library_bench_watches_real_programs_in_every_setting() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let test = std::env::current_exe().unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_presagio"))
        .args(["bench", "preload", "--tiny", "--json"])
        .env("PRESAGIO_LIB", test.with_file_name("libpresagio.so"))
        .current_dir(dir.path())
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let calls = json["tables"]["calls"].as_array().unwrap();
    let timed = |key: &str| calls.iter().filter(|c| c[key].as_f64() > Some(0.0)).count();
    assert_eq!((timed("loop_bare"), timed("mean_bare")), (6, 6), "{json:#}");
    let streams = json["tables"]["manager"].as_array().unwrap();
    assert!(streams.iter().all(|s| s["lost"] == 0), "{json:#}");
    assert!(
        json["bars"]
            .as_array()
            .unwrap()
            .iter()
            .all(|bar| bar["value"].is_number())
    );
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        0,
        "it cleans up"
    );
}

/// The bars of a tiny `bench run` of one part alone, all of which are about that.
fn bars_of_a_tiny_run(only: &str) -> Vec<Value> {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let test = std::env::current_exe().unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_presagio"))
        .args(["bench", "run", "--tiny", "--only", only, "--json"])
        .env("PRESAGIO_LIB", test.with_file_name("libpresagio.so"))
        .current_dir(dir.path())
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let left = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(left, 0, "it cleans up");
    let bars = json["bars"].as_array().unwrap().clone();
    let is_asked = |bar: &Value| bar["name"].as_str().unwrap().contains(only);
    assert!(!bars.is_empty() && bars.iter().all(is_asked), "{json:#}");
    bars
}

#[test]
fn the_run_bench_compares_plain_with_guided() {
    let bars = bars_of_a_tiny_run("hot cache");
    let is_measured = |bar: &Value| bar["value"].as_f64() > Some(0.0);
    assert!(bars.iter().all(is_measured), "{bars:#?}");
}

#[test]
fn the_run_bench_has_steps_through_many_files_on_a_device_of_its_own() {
    let bars = bars_of_a_tiny_run("steps");
    if let Some(why) = bars[0]["not_measured"].as_str() {
        return skipped(&format!("no device can be made here: {why}"));
    }
    assert_eq!(bars.len(), 3, "two runs, and what is between them");
    let is_measured = |bar: &Value| bar["value"].as_f64() > Some(0.0);
    assert!(bars[..2].iter().all(is_measured), "{bars:#?}");
}

#[test]
fn the_run_bench_tells_what_the_manager_takes_of_a_core() {
    let bars = bars_of_a_tiny_run("manager's share");
    assert_eq!(bars.len(), 2, "{bars:#?}");
    let is_measured = |bar: &Value| bar["value"].as_f64() > Some(0.0);
    assert!(bars.iter().all(is_measured), "{bars:#?}");
}

#[test]
fn the_demo_shows_a_program_and_a_node_and_leaves_a_report() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().to_str().unwrap();
    let size = ["--reads", "50", "--rounds", "1", "--periods", "6"];
    let said = presagio_ok(&[&["demo", path], &size[..]].concat());
    let parts = [
        "plain s",
        "presagio run s",
        "operations on",
        "nothing",
        "NOOP alone",
    ];
    for part in parts {
        assert!(said.out.contains(part), "no {part}: {}", said.out);
    }
    let report = dir.path().join("presagio-demo.html");
    assert!(said.out.contains(report.to_str().unwrap()), "{}", said.out);
    let page = std::fs::read_to_string(report).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>"), "{}", &page[..100]);
    let left = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(left, 1, "it cleans up");
}

#[test]
fn the_node_bench_measures_every_part_beside_its_baseline() {
    let test = std::env::current_exe().unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_presagio"))
        .args(["bench", "ionode", "--tiny", "--json"])
        .env("PRESAGIO_LIB", test.with_file_name("libpresagio.so"))
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let bars = json["bars"].as_array().unwrap();
    // Only root can make a device.
    let throttled = match rustix::process::geteuid().is_root() {
        true => 7,
        false => 0,
    };
    for (part, count) in [
        ("/ diod", 4),
        ("on a disk", 7),
        ("on a throttled device", throttled),
        ("scheduling", 2),
        ("memory", 5),
        ("a bare relay", 2),
    ] {
        let of_part = bars.iter().filter(|bar| {
            bar["name"].as_str().unwrap().contains(part) && bar["value"].as_f64() > Some(-1e9)
        });
        assert!(of_part.count() >= count, "{part}: {json:#}");
    }
}

#[test]
fn the_bandit_bench_judges_a_council_and_its_memory() {
    let json = presagio_ok(&["bench", "bandit", "--tiny", "--only", "cost", "--json"]).json();
    let bars = json["bars"].as_array().unwrap();
    assert_eq!(bars.len(), 2);
    let memory = &json["tables"]["cost"][0]["memory_mb"];
    assert!(memory.as_f64() > Some(0.0), "{json:#}");
}

#[test]
fn the_tune_bench_judges_what_tells_accesses_apart() {
    let json = presagio_ok(&["bench", "tune", "--tiny", "--only", "network", "--json"]).json();
    let bars = json["bars"].as_array().unwrap();
    assert_eq!(bars.len(), 2, "network and tree: {json:#}");
    assert!(bars.iter().all(|bar| bar["value"].as_f64() > Some(0.0)));
    assert_eq!(json["tables"]["network"].as_array().map(Vec::len), Some(4));
}

#[test]
fn the_tune_bench_judges_trees_and_what_watching_costs() {
    let json = presagio_ok(&["bench", "tune", "--tiny", "--only", "trees", "--json"]).json();
    let all = json["tables"]["held_out"].as_array().unwrap();
    let auto = all.iter().find(|row| row["solution"] == "auto, as it runs");
    assert!(auto.unwrap()["over_oracle_percent"].is_number(), "{json:#}");
    assert!(!json["bars"].as_array().unwrap().is_empty(), "{json:#}");
    let json = presagio_ok(&["bench", "tune", "--tiny", "--only", "cost", "--json"]).json();
    let costs = json["tables"]["cost"].as_array().unwrap();
    assert_eq!(costs.len(), 3, "{json:#}");
    assert!(costs.iter().all(|row| row["ns"].as_f64() > Some(0.0)));
}

#[test]
fn the_sim_bench_measures_speed_and_a_growing_cluster() {
    for (only, table, count) in [("speed", "policies", 11), ("scaling", "scaling", 5)] {
        let json = presagio_ok(&["bench", "sim", "--tiny", "--only", only, "--json"]).json();
        let rows = json["tables"][table].as_array().unwrap();
        assert_eq!(rows.len(), count, "{json:#}");
        assert!(rows.iter().all(|row| row["requests"].as_u64() > Some(0)));
        assert!(!json["bars"].as_array().unwrap().is_empty(), "{json:#}");
    }
}

#[test]
fn the_profile_bench_holds_the_fast_way_against_the_full_one() {
    let json = presagio_ok(&["bench", "profile", "--tiny", "--only", "ssd", "--json"]).json();
    let rows = json["tables"]["devices"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{json:#}");
    assert!(rows[0]["full_over_fast"].as_f64() > Some(1.0), "{json:#}");
    let bars = json["bars"].as_array().unwrap();
    assert!(
        !bars.is_empty() && bars.iter().all(|bar| bar["value"].is_number()),
        "{json:#}"
    );
}

#[test]
fn the_bandit_bench_plays_every_strategy_in_simulated_situations() {
    let json = presagio_ok(&["bench", "bandit", "--tiny", "--only", "curves", "--json"]).json();
    let rows = json["tables"]["curves"].as_array().unwrap();
    assert_eq!(rows.len(), 6, "{json:#}");
    assert!(
        rows.iter().all(|row| row["enough_100"].is_u64()),
        "{json:#}"
    );
    assert_eq!(json["bars"].as_array().unwrap().len(), 5);
}

#[test]
fn each_crowd_of_the_council_bench_has_a_table_and_bars_of_its_own() {
    for (only, key, of) in [
        ("384 nodes on loopback", "crowd", ""),
        ("patterns:", "patterns", "patterns: "),
        ("soak:", "soak", "soak: "),
    ] {
        let json = presagio_ok(&["bench", "council", "--tiny", "--only", only, "--json"]).json();
        let tables = json["tables"].as_object().unwrap();
        assert_eq!(tables.keys().collect::<Vec<_>>(), [key]);
        let bars = json["bars"].as_array().unwrap();
        let is_its_own = |bar: &Value| bar["name"].as_str().unwrap().starts_with(of);
        assert!(bars.len() == 4 && bars.iter().all(is_its_own), "{json:#}");
    }
}

#[test]
fn the_pattern_bench_says_what_long_series_cost() {
    let json = presagio_ok(&["bench", "pattern", "--tiny", "--only", "time", "--json"]).json();
    let rows = json["tables"]["decisions"].as_array().unwrap();
    let long = |row: &&Value| row["settings"].as_str().unwrap().starts_with("long");
    let long: Vec<&Value> = rows.iter().filter(long).collect();
    assert_eq!(long.len(), 2, "FastDTW and band: {json:#}");
    assert!(long.iter().all(|row| row["most_ms"].as_f64() > Some(0.0)));
}
