//! What `presagio sim` promises: scenarios and presets run as they say, the same figures every time, results in every form,
//! and a wrong scenario is explained by line, field and reason.

mod common;

use common::{TempDir, presagio, presagio_ok};
use parquet::file::reader::SerializedFileReader;
use serde_json::Value;
use std::collections::HashMap;

/// A scenario that takes a moment.
const SMALL: &str = "\
title = \"small\"
[ionodes]
count = 2
scheduler = { policy = \"TWINS\", window = \"1ms\" }
[servers]
count = 2
[[app]]
processes = 4
pattern = \"strided\"
request = \"32KiB\"
total = \"2MiB\"
";

fn written(dir: &TempDir, name: &str, text: &str) -> String {
    let path = format!("{}/{name}", dir.path());
    std::fs::write(&path, text).unwrap();
    path
}

fn json(args: &[&str]) -> Value {
    presagio_ok(&[&["sim"], args, &["--json"]].concat()).json()
}

#[test]
fn every_preset_is_listed_and_can_be_shown_and_read_again() {
    let list = presagio_ok(&["sim", "--list", "--json"]).json();
    let text = presagio_ok(&["sim", "--list"]).out;
    let dir = TempDir::new("sim-presets");
    for preset in list.as_array().unwrap() {
        let name = preset["preset"].as_str().unwrap();
        assert!(text.contains(name), "{name}");
        let shown = presagio_ok(&["sim", name, "--show"]).out;
        assert!(shown.contains("[[app]]"), "{name}");
        written(&dir, &format!("{name}.toml"), &shown);
    }
    let copy = format!("{}/first.toml", dir.path());
    assert_eq!(json(&["first"])["runs"], json(&[&copy])["runs"]);
}

#[test]
fn the_same_scenario_gives_the_same_figures_on_one_core_and_on_many() {
    let dir = TempDir::new("sim-same");
    let path = written(&dir, "small.toml", SMALL);
    let sweep = [
        "--sweep",
        "seed=1,2,3",
        "--sweep",
        "ionodes.scheduler.policy=none,HBRR,TWINS",
    ];
    let one = json(&[&[path.as_str(), "--jobs", "1"], &sweep[..]].concat());
    let many = json(&[&[path.as_str(), "--jobs", "4"], &sweep[..]].concat());
    assert_eq!(one, many);
    let runs = one["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 9);
    assert!(
        runs.iter()
            .all(|run| run["devices"]["read_bytes"] == 2 << 20)
    );
    assert_ne!(
        runs[0]["makespan_ns"], runs[3]["makespan_ns"],
        "another seed"
    );
}

#[test]
fn parameters_can_be_set_and_what_cannot_be_is_said() {
    let dir = TempDir::new("sim-set");
    let path = written(&dir, "small.toml", SMALL);
    let run = json(&[
        &path,
        "--set",
        "app.op=write",
        "--set",
        "servers.device=ssd",
    ]);
    let run = &run["runs"][0];
    assert_eq!(
        (&run["devices"]["written_bytes"], &run["device"]),
        (&Value::from(2 << 20), &Value::from("ssd"))
    );
    for (set, reason) in [
        ("servers.count=0", "from 1"),
        ("servers.count", "no ="),
        ("servers.colour=red", "colour"),
        ("servers.device=tape", "tape"),
    ] {
        let said = presagio(&["sim", &path, "--set", set]);
        assert_eq!(said.code, Some(2), "{set}");
        assert!(said.err.contains(reason), "{set}: {}", said.err);
    }
}

#[test]
fn a_network_that_was_trained_can_be_given_and_what_is_none_is_said() {
    let dir = TempDir::new("sim-network");
    let path = written(&dir, "small.toml", SMALL);
    let shipped = presagio_tune::Detector::shipped().to_text("");
    let network = written(&dir, "network.txt", &shipped);
    assert_eq!(json(&[&path, "--network", &network]), json(&[&path]));
    let wrong = written(&dir, "wrong.txt", "tree access\n");
    let said = presagio(&["sim", &path, "--network", &wrong]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("train --network -o FILE"), "{}", said.err);
}

#[test]
fn a_wrong_file_is_explained_by_line_field_and_reason() {
    let dir = TempDir::new("sim-wrong");
    let path = written(
        &dir,
        "wrong.toml",
        &SMALL.replace("count = 2\nscheduler", "count = \"two\"\nscheduler"),
    );
    let said = presagio(&["sim", &path]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("line 3: ionodes.count: "), "{}", said.err);
    let several =
        format!("{SMALL}[sweep]\n\"servers.count\" = [1, 0]\n[[case]]\n\"app.op\" = \"append\"\n");
    let count = several.lines().count();
    let path = written(&dir, "several.toml", &several);
    let case = format!("line {count}: case[0].app.op: ");
    let sweep = format!("line {}: sweep.servers.count: ", count - 2);
    for (options, expected) in [
        (&[][..], case.as_str()),
        (&["--set", "app.op=read"], &sweep),
        (
            &["--set", "app.op=read", "--set", "servers.count=0"],
            "--set servers.count: ",
        ),
    ] {
        let said = presagio(&[&["sim", path.as_str()], options].concat());
        assert_eq!(said.code, Some(2), "{}", said.err);
        assert!(said.err.contains(expected), "{}", said.err);
    }
    let said = presagio(&["sim", "no-such-scenario"]);
    assert!(said.err.contains("--list"), "{}", said.err);
}

#[test]
fn results_come_as_table_plot_and_parquet() {
    let dir = TempDir::new("sim-forms");
    let path = written(&dir, "small.toml", SMALL);
    let (svg, parquet) = (
        format!("{}/p.svg", dir.path()),
        format!("{}/p.parquet", dir.path()),
    );
    let policies = "servers.scheduler.policy=none,SJF";
    let args = [
        "sim",
        &path,
        "--sweep",
        policies,
        "--svg",
        &svg,
        "--parquet",
        &parquet,
    ];
    let said = presagio_ok(&args);
    assert!(
        said.out.contains("SJF") && said.out.contains("gain %"),
        "{}",
        said.out
    );
    let drawn = std::fs::read_to_string(&svg).unwrap();
    assert!(drawn.starts_with("<svg") && drawn.contains("SJF"));
    let rows = SerializedFileReader::try_from(parquet.as_str()).unwrap();
    let rows: Vec<HashMap<String, String>> = rows
        .into_iter()
        .map(|row| {
            let row = row.unwrap();
            let columns = row.get_column_iter();
            columns
                .map(|(name, value)| (name.clone(), value.to_string()))
                .collect()
        })
        .collect();
    let shown = json(&[&path, "--sweep", policies]);
    let runs = shown["runs"].as_array().unwrap();
    assert_eq!((rows.len(), runs.len()), (2, 2));
    for (row, run) in rows.iter().zip(runs) {
        let policy = &run["varied"]["servers.scheduler.policy"];
        assert_eq!(row["servers_scheduler_policy"], policy.to_string());
        for column in ["makespan_ns", "bytes", "requests"] {
            assert_eq!(row[column], run[column].to_string(), "{column}: {row:?}");
        }
    }
}

#[test]
fn what_servers_saw_is_a_trace_that_can_be_simulated_again() {
    let dir = TempDir::new("sim-record");
    let path = written(&dir, "small.toml", SMALL);
    let trace = format!("{}/seen.ptrace", dir.path());
    presagio_ok(&["sim", &path, "--record", &trace, "--at", "servers"]);
    let info = presagio_ok(&["trace", "info", &trace, "--json"]).json();
    assert!(info.to_string().contains("server-1"), "{info:#}");
    let replay = written(
        &dir,
        "replay.toml",
        "[servers]\ncount = 2\n[[app]]\ntrace = \"seen.ptrace\"\n",
    );
    let run = &json(&[&replay])["runs"][0];
    assert_eq!(run["bytes"], 2 << 20);
}

#[test]
fn a_device_can_be_one_that_was_profiled() {
    let dir = TempDir::new("sim-profile");
    let profile = format!("{}/disk.json", dir.path());
    presagio_ok(&[
        "profile",
        "--emulated",
        "hdd",
        "--size",
        "64MiB",
        "-o",
        &profile,
    ]);
    let fitted = SMALL.replace(
        "[servers]",
        "[servers]\ndevice = { profile = \"disk.json\" }",
    );
    let fitted = written(&dir, "fitted.toml", &fitted);
    let run = &json(&[&fitted])["runs"][0];
    assert_eq!(run["device"], "disk.json");
    assert_eq!(run["devices"]["read_bytes"], 2 << 20);
    let swept = ["--sweep", "servers.device.profile=disk.json,other.json"];
    std::fs::copy(&profile, format!("{}/other.json", dir.path())).unwrap();
    let both = json(&[&[written(&dir, "small.toml", SMALL).as_str()], &swept[..]].concat());
    assert_eq!(both["runs"][0]["makespan_ns"], run["makespan_ns"]);
    assert_eq!(both["runs"][1]["makespan_ns"], run["makespan_ns"]);
    let ssd = json(&[&fitted, "--set", "servers.device=ssd"]);
    assert_ne!(ssd["runs"][0]["makespan_ns"], run["makespan_ns"]);
}

#[test]
fn a_profile_that_cannot_be_read_is_named() {
    let dir = TempDir::new("sim-no-profile");
    let with = |device: &str| SMALL.replace("[servers]", &format!("[servers]\ndevice = {device}"));
    let missing = written(&dir, "missing.toml", &with("{ profile = \"gone.json\" }"));
    let said = presagio(&["sim", &missing]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("gone.json"), "{}", said.err);
    let both = with("{ profile = \"gone.json\", rpm = 7200 }");
    let said = presagio(&["sim", &written(&dir, "both.toml", &both)]);
    assert!(
        said.err.contains("line 6: servers.device.rpm: "),
        "{}",
        said.err
    );
}

#[test]
fn a_configuration_of_forge_runs() {
    let dir = TempDir::new("sim-forge");
    let forge = r#"{ "forwarders": "1", "handlers": "16", "dispatchers": "16", "path": "/mnt/pfs/test",
        "number_of_files": "shared", "spatiality": "strided", "total_size": "4194304", "request_size": "32768",
        "validation": "0" }"#;
    let path = written(&dir, "forge.json", forge);
    let run = &json(&[&path, "--set", "app.processes=8"])["runs"][0];
    assert_eq!(run["bytes"], 8 << 20, "written, then read");
}
