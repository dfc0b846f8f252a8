//! One figure is written in one way, whoever writes it: `readable.rs` in findings and terminals, `tools.js` in the pages.

use presagio_page::readable;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

const TABLE: &str = include_str!("figures.json");

/// A kind, a value, and what a person reads.
fn table() -> Vec<(String, Value, String)> {
    serde_json::from_str(TABLE).expect("a table")
}

/// A page keeps a figure and its unit on one line, and sets digits apart by narrow spaces.
fn with_plain_spaces(text: &str) -> String {
    text.replace(['\u{a0}', '\u{202f}'], " ")
}

fn written(kind: &str, value: &Value) -> String {
    let whole = || value.as_u64().expect("a whole number");
    match kind {
        "bytes" => readable::bytes(whole()),
        "time" => readable::span(whole()),
        "count" => readable::grouped(whole()),
        "times" => readable::times(value.as_f64().expect("a number")),
        "percent" => readable::percent(value.as_f64().expect("a number")),
        other => panic!("{other} is no kind of figure"),
    }
}

#[test]
fn findings_and_terminals_write_figures_like_the_table() {
    for (kind, value, text) in table() {
        let written = with_plain_spaces(&written(&kind, &value));
        assert_eq!(written, text, "{kind} {value}");
    }
}

#[test]
fn pages_write_figures_like_the_table() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let ran = Command::new("node")
        .arg(own.join("tests/figures.mjs"))
        .args([own.join("src/tools.js"), own.join("tests/figures.json")])
        .output()
        .expect("node is needed: apt-get install nodejs");
    let said = String::from_utf8_lossy(&ran.stderr);
    let written: Vec<String> = serde_json::from_slice(&ran.stdout).expect(&said);
    assert_eq!(written.len(), table().len());
    for ((kind, value, text), written) in table().into_iter().zip(written) {
        assert_eq!(with_plain_spaces(&written), text, "{kind} {value}");
    }
}
