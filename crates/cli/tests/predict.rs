//! What `presagio predict` promises: a verdict on any trace, the same numbers as text and as JSON, curves that can be
//! opened, and a clear word where there is nothing to predict.

mod common;

use common::{TempDir, presagio, presagio_at, presagio_ok, program};
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

/// A program that writes a header and twenty blocks to a new file, again and again; `layers` see it.
fn trace(phases: u64, ranks: u64, layers: &[&str]) -> String {
    let mut text =
        "time_ns,duration_ns,process,rank,layer,action,file,offset,length,context\n".to_owned();
    let mut time = 0u64;
    for phase in 0..phases {
        for n in 0..22u64 {
            time += if n == 0 { 5_000_000_000 } else { 100_000 };
            let (action, offset, length, context) = match n {
                0 => ("open", 0, 0, 1),
                1 => ("write", 0, 100, 2),
                _ => ("write", 100 + (n - 2) * 4096, 4096, 3),
            };
            for (rank, layer) in (0..ranks).flat_map(|r| layers.iter().map(move |l| (r, l))) {
                let file = format!("/out/{rank}.{phase}");
                let row = format!(
                    "{time},20000,{rank},{rank},{layer},{action},{file},{offset},{length},{context}"
                );
                writeln!(text, "{row}").unwrap();
            }
        }
    }
    text
}

fn file(dir: &TempDir, content: &str) -> String {
    let path = format!("{}/trace.csv", dir.path());
    fs::write(&path, content).unwrap();
    path
}

fn number(row: &Value, key: &str) -> f64 {
    row[key]
        .as_f64()
        .unwrap_or_else(|| panic!("no {key} in {row}"))
}

#[test]
fn a_program_that_repeats_itself_is_found_predictable() {
    let dir = TempDir::new("predict-repeats");
    let path = file(&dir, &trace(20, 1, &["posix"]));
    let json = presagio_ok(&["predict", &path, "--json", "--sequitur"]).json();
    let tables = &json["tables"];
    let place = &tables["where"][0];
    assert_eq!(place["operations"], 440);
    for key in [
        "context_percent",
        "file_percent",
        "offset_percent",
        "hit_percent",
    ] {
        assert!(number(place, key) > 90.0, "{key}: {place}");
    }
    assert!(number(place, "contiguous_percent") < number(place, "offset_percent"));
    let ahead = &tables["ahead"][0];
    assert!(number(ahead, "perfect_from") < 60.0, "{ahead}");
    assert!(
        number(ahead, "time_error_ns") < number(ahead, "at_once_error_ns") / 2.0,
        "{ahead}"
    );
    let model = &tables["model"][0];
    assert!(
        number(model, "grammar") < number(model, "grammar_sequitur"),
        "{model}"
    );
    assert!(number(model, "observe_ns") > 0.0);
}

#[test]
fn each_layer_and_process_is_judged_on_its_own() {
    let dir = TempDir::new("predict-layers");
    let path = file(&dir, &trace(4, 6, &["posix", "mpiio"]));
    let of = |args: &[&str]| -> Vec<(String, String)> {
        let args = [&["predict", &path, "--json"], args].concat();
        let json = presagio_ok(&args).json();
        let rows = json["tables"]["where"].as_array().unwrap().clone();
        let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
        rows.iter()
            .map(|r| (text(r, "layer"), text(r, "process")))
            .collect()
    };
    assert_eq!(
        of(&[]).len(),
        2 * 7,
        "six processes and their sum, at two layers"
    );
    assert_eq!(of(&["--layer", "mpiio"]).len(), 7);
    let one = [("posix".to_owned(), "rank 3".to_owned())];
    assert_eq!(of(&["--layer", "posix", "--process", "3"]), one);
}

#[test]
fn text_fits_80_columns_and_names_the_busiest_processes() {
    let dir = TempDir::new("predict-text");
    let path = file(&dir, &trace(4, 150, &["posix"]));
    let said = presagio_at(80, &["predict", &path, "--sequitur"]);
    let wide: Vec<&str> = said
        .out
        .lines()
        .filter(|l| l.chars().count() > 80)
        .collect();
    assert_eq!(wide, [""; 0]);
    for name in ["all 150", "rank 0", "146 others"] {
        assert!(said.out.contains(name), "{name}: {}", said.out);
    }
}

#[test]
fn plots_are_whole_svg_documents_one_for_each_figure() {
    let dir = TempDir::new("predict-plots");
    let path = file(&dir, &trace(10, 1, &["posix"]));
    let plots = format!("{}/plots", dir.path());
    presagio_ok(&["predict", &path, "--plot", &plots, "--sequitur"]);
    let mut names: Vec<_> = fs::read_dir(&plots)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    names.sort();
    assert_eq!(names.len(), 7, "{names:?}");
    for name in names {
        let svg = fs::read_to_string(&name).unwrap();
        assert!(
            svg.starts_with("<svg") && svg.ends_with("</svg>\n"),
            "{name:?}"
        );
        assert!(
            svg.contains("<polyline") && !svg.contains("NaN"),
            "{name:?}"
        );
    }
}

#[test]
fn the_standard_input_is_a_trace_too() {
    let mut command = Command::new(program());
    let pipes = command
        .args(["predict", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = pipes.spawn().unwrap();
    let text = trace(5, 1, &["posix"]);
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8(output.stdout).unwrap().contains("rank 0"));
}

#[test]
fn where_there_is_nothing_to_predict_it_says_so() {
    let dir = TempDir::new("predict-nothing");
    let path = file(&dir, &trace(2, 1, &["posix"]));
    for args in [
        &["predict", &path, "--layer", "mpiio"][..],
        &["predict", &path, "--process", "9"],
        &["predict", "/nonexistent"],
    ] {
        let said = presagio(args);
        assert_eq!(said.code, Some(2), "{args:?}");
        assert!(said.err.starts_with("presagio: "), "{}", said.err);
    }
    let said = presagio(&["predict", &path, "--layer", "nonsense"]);
    assert!(said.err.contains("posix, mpiio"), "{}", said.err);
}

/// Lost records are not taken for a change of the program.
#[test]
fn a_trace_with_a_gap_is_judged_on() {
    let dir = TempDir::new("predict-gap");
    let whole = trace(20, 1, &["posix"]);
    let mut lines: Vec<&str> = whole.lines().collect();
    lines.drain(208..222);
    lines.insert(208, "0,0,0,0,posix,gap,,0,14,0");
    let path = file(&dir, &(lines.join("\n") + "\n"));
    let json = presagio_ok(&["predict", &path, "--json"]).json();
    let place = &json["tables"]["where"][0];
    assert_eq!(place["operations"], 440 - 14);
    assert!(number(place, "hit_percent") > 90.0, "{place}");
}

#[test]
fn the_bench_has_every_kind_of_input_and_program() {
    let json = presagio_ok(&["bench", "predict", "--tiny", "--json"]).json();
    let rows = |key: &str| json["tables"][key].as_array().unwrap().len();
    assert_eq!(rows("growth"), 3 * 3 * 2, "inputs × modes × lengths");
    assert_eq!(rows("streams"), 6);
    assert_eq!(json["bars"].as_array().unwrap().len(), 9);
}
