//! What `presagio repro` promises: every experiment can be listed and run, what differs is explained, and the results
//! page in docs/ is what this build would write.
//!
//! Figures of the page are held against this build where that takes a second; the others, those of whole campaigns, by `make trained`. What the page says about itself is always looked at.

mod common;

use common::{presagio, presagio_ok};
use serde_json::Value;
use std::path::Path;

/// Those that take a second or so in a debug build, and whose figures are the same everywhere.
const QUICK: [&str; 11] = [
    "001-fig2a",
    "001-fig2b",
    "002-table3.4",
    "002-table5.6",
    "003-fig2",
    "003-fig3",
    "003-fig5",
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

fn list() -> Vec<Value> {
    let json = presagio_ok(&["repro", "--list", "--json"]).json();
    json.as_array().unwrap().clone()
}

/// The experiments of the list, without what is not repeated.
fn listed() -> Vec<Value> {
    let mut all = list();
    all.retain(|it| it["not_repeated"].is_null());
    all
}

fn text<'a>(of: &'a Value, key: &str) -> &'a str {
    of[key].as_str().unwrap()
}

/// The rows of a section's table, cell by cell, without its head.
fn rows(lines: &[String]) -> Vec<Vec<String>> {
    let rows = lines.iter().filter(|line| line.starts_with("| "));
    let cells = |line: &String| {
        let inner = line.trim_start_matches("| ").trim_end_matches(" |");
        inner.split(" | ").map(str::to_owned).collect()
    };
    rows.skip(1).map(cells).collect()
}

#[test]
fn the_list_names_every_experiment_with_a_line_about_it() {
    let shown = presagio_ok(&["repro", "--list"]).out;
    let experiments = listed();
    let (repeated, missing) = shown.split_once("\nNot repeated:\n").unwrap();
    assert_eq!(repeated.lines().count(), experiments.len());
    for (line, experiment) in repeated.lines().zip(&experiments) {
        assert!(line.starts_with(text(experiment, "experiment")));
        assert!(line.ends_with(text(experiment, "about")));
    }
    let all = list();
    assert_eq!(missing.lines().count(), all.len() - experiments.len());
    for (line, it) in missing.lines().zip(&all[experiments.len()..]) {
        assert!(line.starts_with(text(it, "experiment")), "{line}");
        assert!(line.ends_with(text(it, "not_repeated")), "{line}");
    }
}

#[test]
fn an_unknown_experiment_is_answered_with_where_to_look() {
    let said = presagio(&["repro", "006-fig1"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("repro --list"), "{}", said.err);
}

const OLD: &str = "docs/results.md is old: `presagio repro all --markdown docs/results.md`";

#[test]
fn the_results_page_has_every_experiment_and_nothing_else() {
    let sections = sections(&page());
    let found: Vec<(&str, &str)> = sections
        .iter()
        .map(|(heading, lines)| (heading.as_str(), lines[0].trim_end_matches(" Timed.")))
        .collect();
    let experiments = listed();
    let expected: Vec<(String, String)> = experiments
        .iter()
        .map(|it| {
            let heading = format!("{}: {}", text(it, "experiment"), text(it, "about"));
            (heading, format!("By {}.", text(it, "how")))
        })
        .collect();
    let expected: Vec<(&str, &str)> = expected.iter().map(|(h, by)| (&h[..], &by[..])).collect();
    assert_eq!(found, expected, "{OLD}");
}

#[test]
fn the_results_page_counts_its_own_figures() {
    let page = page();
    let all = sections(&page);
    let rows: Vec<Vec<String>> = all.iter().flat_map(|(_, lines)| rows(lines)).collect();
    let verdict = |row: &[String]| row.last().unwrap().clone();
    let count = |wanted: &str| rows.iter().filter(|row| verdict(row) == wanted).count();
    let counts = ["agrees", "better", "differs"].map(count);
    assert_eq!(
        counts.iter().sum::<usize>(),
        rows.len(),
        "a verdict of another name"
    );
    let said = format!(
        "Of {} figures of {} experiments, {} agree with what was published, {} are better, and {} differ.",
        rows.len(),
        all.len(),
        counts[0],
        counts[1],
        counts[2],
    );
    assert!(page.contains(&said), "{OLD}\nshould say: {said}");
}

#[test]
fn the_results_page_explains_what_differs_and_says_what_is_not_repeated() {
    let page = page();
    for (heading, lines) in sections(&page) {
        let differs = rows(&lines)
            .iter()
            .any(|row| row.last().unwrap() == "differs");
        let is_explained = lines[1..].iter().any(|line| !line.starts_with('|'));
        assert!(!differs || is_explained, "{heading}");
    }
    for it in list().iter().filter(|it| !it["not_repeated"].is_null()) {
        let row = ["experiment", "about", "not_repeated"].map(|key| text(it, key));
        assert!(
            page.contains(&format!("| {} |", row.join(" | "))),
            "{OLD}: {row:?}"
        );
    }
}

/// The sections that a run of these writes are in the page, word by word.
fn is_as_in_the_page(names: &[&str]) -> Vec<Value> {
    let written = tempfile::NamedTempFile::new().unwrap();
    let path = written.path().to_str().unwrap();
    let args = [&["repro", "--json", "--markdown", path], names].concat();
    let found = presagio_ok(&args).json();
    let now = sections(&std::fs::read_to_string(path).unwrap());
    let page = sections(&page());
    assert_eq!(now.len(), names.len());
    for section in &now {
        assert!(page.contains(section), "{OLD}\n{section:#?}");
    }
    found.as_array().unwrap().clone()
}

#[test]
fn the_results_page_says_what_this_build_finds() {
    for experiment in is_as_in_the_page(&QUICK) {
        let rows = experiment["rows"].as_array().unwrap();
        assert!(!rows.is_empty(), "{experiment}");
        let differs = rows.iter().any(|row| row["agrees"] == false);
        let explained = !experiment["notes"].as_array().unwrap().is_empty();
        assert!(explained || !differs, "{experiment:#}");
    }
}

/// Those whose figures are times of the machine that wrote the page are no promise.
#[test]
#[ignore = "whole campaigns: minutes, in a release build"]
fn the_results_page_says_what_this_build_finds_of_everything_that_is_not_timed() {
    let timed: Vec<String> = sections(&page())
        .into_iter()
        .filter(|(_, lines)| lines[0].ends_with(" Timed."))
        .map(|(heading, _)| heading.split(": ").next().unwrap().to_owned())
        .collect();
    let experiments = listed();
    let names = experiments.iter().map(|it| text(it, "experiment"));
    let names: Vec<&str> = names
        .filter(|name| !timed.iter().any(|it| it == name))
        .collect();
    is_as_in_the_page(&names);
}

#[test]
fn a_strict_run_fails_when_something_differs() {
    assert_eq!(presagio(&["repro", "003-table2", "--strict"]).code, Some(0));
    assert_eq!(presagio(&["repro", "001-fig2a", "--strict"]).code, Some(1));
}
