//! What `presagio repro` promises: every experiment can be listed and run, what differs is explained, and the results
//! page in docs/ is what this build would write.

mod common;

use common::{presagio, presagio_ok};
use serde_json::Value;
use std::path::Path;

/// Those that take a second or so in a debug build, and whose figures are the same everywhere.
const QUICK: [&str; 8] = [
    "001-fig2a",
    "001-fig2b",
    "002-table3.4",
    "002-table5.6",
    "003-table2",
    "003-table7",
    "003-table8",
    "003-table9",
];

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results.md");
    std::fs::read_to_string(path).unwrap()
}

/// The sections of a results page: the heading of each, and the lines below it.
fn sections(page: &str) -> Vec<(String, Vec<String>)> {
    let mut sections: Vec<(String, Vec<String>)> = Vec::new();
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("### ") {
            sections.push((heading.to_owned(), Vec::new()));
        } else if line.starts_with("## ") {
            sections.push((String::new(), Vec::new()));
        } else if let Some((_, lines)) = sections.last_mut()
            && !line.is_empty()
        {
            lines.push(line.to_owned());
        }
    }
    sections.retain(|(heading, _)| !heading.is_empty());
    sections
}

fn listed() -> Vec<Value> {
    let json = presagio_ok(&["repro", "--list", "--json"]).json();
    json.as_array().unwrap().clone()
}

#[test]
fn the_list_names_every_experiment_with_a_line_about_it() {
    let text = presagio_ok(&["repro", "--list"]).out;
    let experiments = listed();
    assert_eq!(text.lines().count(), experiments.len());
    for (line, experiment) in text.lines().zip(&experiments) {
        assert!(line.starts_with(experiment["experiment"].as_str().unwrap()));
        assert!(line.ends_with(experiment["about"].as_str().unwrap()));
    }
}

#[test]
fn an_unknown_experiment_is_answered_with_where_to_look() {
    let said = presagio(&["repro", "006-fig1"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("repro --list"), "{}", said.err);
}

#[test]
fn the_results_page_has_every_experiment() {
    let headings: Vec<String> = sections(&page()).into_iter().map(|(h, _)| h).collect();
    let expected: Vec<String> = listed()
        .iter()
        .map(|e| {
            format!(
                "{}: {}",
                e["experiment"].as_str().unwrap(),
                e["about"].as_str().unwrap()
            )
        })
        .collect();
    assert_eq!(headings, expected);
}

#[test]
fn the_results_page_says_what_this_build_finds() {
    let written = tempfile::NamedTempFile::new().unwrap();
    let path = written.path().to_str().unwrap();
    let args = [&["repro", "--json", "--markdown", path], &QUICK[..]].concat();
    let found = presagio_ok(&args).json();
    let now = sections(&std::fs::read_to_string(path).unwrap());
    let page = sections(&page());
    assert_eq!(now.len(), QUICK.len());
    for section in &now {
        assert!(
            page.contains(section),
            "docs/results.md is old: `presagio repro all --markdown docs/results.md`\n{section:#?}"
        );
    }
    for experiment in found.as_array().unwrap() {
        let rows = experiment["rows"].as_array().unwrap();
        assert!(!rows.is_empty(), "{experiment}");
        let differs = rows.iter().any(|row| row["agrees"] == false);
        let explained = !experiment["notes"].as_array().unwrap().is_empty();
        assert!(explained || !differs, "{experiment:#}");
    }
}

#[test]
fn a_strict_run_fails_when_something_differs() {
    assert_eq!(presagio(&["repro", "003-table2", "--strict"]).code, Some(0));
    assert_eq!(presagio(&["repro", "001-fig2a", "--strict"]).code, Some(1));
}
