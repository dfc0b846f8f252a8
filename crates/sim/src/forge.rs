//! Scenarios of FORGE, the I/O forwarding explorer (github.com/jeanbez/forge): its JSON configuration as one of ours.
//!
//! FORGE is told the number of processes by `mpirun`, and runs on whatever file system its path is on: what its files do
//! not say has our defaults, which can be set (`app.processes`, `servers.count`, ...). `validation`, `path` and
//! `direct_io` mean nothing here.

use crate::read::ScenarioError;
use serde_json::{Map, Value as Json};
use toml::{Table, Value};

/// Processes, where nothing is said: what FORGE's authors ran most of their experiments with.
const PROCESSES: i64 = 128;

/// All names that FORGE's files have had.
const KNOWN: [&str; 13] = [
    "forwarders",
    "handlers",
    "listeners",
    "dispatchers",
    "path",
    "number_of_files",
    "spatiality",
    "total_size",
    "request_size",
    "validation",
    "operations",
    "direct_io",
    "stone_wall",
];

/// Turns the text of a FORGE configuration into that of a scenario.
pub(crate) fn to_toml(text: &str) -> Result<String, ScenarioError> {
    let json: Json = serde_json::from_str(text).map_err(|e| ScenarioError {
        line: Some(e.line()),
        field: None,
        reason: e.to_string(),
    })?;
    let Json::Object(fields) = json else {
        return Err(wrong(text, "", "a FORGE configuration is one JSON object"));
    };
    if let Some(name) = fields.keys().find(|name| !KNOWN.contains(&name.as_str())) {
        let known = format!("FORGE has no such parameter; it has {}", KNOWN.join(", "));
        return Err(wrong(text, name, &known));
    }
    let mut scenario = Table::new();
    scenario.insert("title".into(), "FORGE".into());
    scenario.insert("ionodes".into(), Value::Table(nodes(text, &fields)?));
    scenario.insert("servers".into(), Value::Table(servers()));
    let apps = apps(text, &fields)?.into_iter().map(Value::Table);
    scenario.insert("app".into(), Value::Array(apps.collect()));
    Ok(toml_text(&scenario))
}

fn nodes(text: &str, fields: &Map<String, Json>) -> Result<Table, ScenarioError> {
    let mut nodes = Table::new();
    nodes.insert(
        "count".into(),
        number(text, fields, "forwarders")?.unwrap_or(0).into(),
    );
    let handlers = number(text, fields, "handlers")?;
    let handlers = handlers.or(number(text, fields, "listeners")?);
    for (name, value) in [
        ("handlers", handlers),
        ("dispatchers", number(text, fields, "dispatchers")?),
    ] {
        if let Some(value) = value {
            nodes.insert(name.into(), value.into());
        }
    }
    Ok(nodes)
}

/// Four, as in the papers of its authors.
fn servers() -> Table {
    let mut servers = Table::new();
    servers.insert("count".into(), 4.into());
    servers
}

/// One application for each operation; where both are asked for, reading begins when all is written.
fn apps(text: &str, fields: &Map<String, Json>) -> Result<Vec<Table>, ScenarioError> {
    let mut app = Table::new();
    app.insert("processes".into(), PROCESSES.into());
    let files = word(
        text,
        fields,
        "number_of_files",
        &[("shared", "shared"), ("individual", "per-process")],
    )?;
    let pattern = word(
        text,
        fields,
        "spatiality",
        &[("contiguous", "contiguous"), ("strided", "strided")],
    )?;
    app.insert("files".into(), files.unwrap_or("shared").into());
    app.insert("pattern".into(), pattern.unwrap_or("contiguous").into());
    for (name, ours) in [("total_size", "total"), ("request_size", "request")] {
        let bytes = number(text, fields, name)?;
        let bytes = bytes.ok_or_else(|| wrong(text, name, "it is missing"))?;
        app.insert(ours.into(), bytes.into());
    }
    if let Some(seconds) = number(text, fields, "stone_wall")?.filter(|s| *s > 0) {
        app.insert("stonewall".into(), format!("{seconds}s").into());
    }
    let ops = [("write", "write"), ("read", "read"), ("both", "both")];
    let ops = match word(text, fields, "operations", &ops)?.unwrap_or("both") {
        "both" => vec!["write", "read"],
        one => vec![one],
    };
    let with = |op: &&str| {
        let mut app = app.clone();
        app.insert("op".into(), (*op).into());
        app.insert("name".into(), (*op).into());
        if *op == "read" && ops.len() > 1 {
            app.insert("after".into(), "write".into());
        }
        app
    };
    Ok(ops.iter().map(with).collect())
}

/// A number, which FORGE writes with or without quotes.
fn number(
    text: &str,
    fields: &Map<String, Json>,
    name: &str,
) -> Result<Option<i64>, ScenarioError> {
    let Some(value) = fields.get(name) else {
        return Ok(None);
    };
    let number = match value {
        Json::Number(number) => number.as_i64(),
        Json::String(number) => number.trim().parse().ok(),
        _ => None,
    };
    match number.filter(|n| *n >= 0) {
        Some(number) => Ok(Some(number)),
        None => Err(wrong(text, name, "it must be a whole number, 0 or more")),
    }
}

fn word(
    text: &str,
    fields: &Map<String, Json>,
    name: &str,
    words: &[(&str, &'static str)],
) -> Result<Option<&'static str>, ScenarioError> {
    let Some(value) = fields.get(name) else {
        return Ok(None);
    };
    let known = words.iter().find(|(word, _)| value.as_str() == Some(word));
    let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    match known {
        Some((_, ours)) => Ok(Some(ours)),
        None => Err(wrong(
            text,
            name,
            &format!("it must be one of {}", all.join(", ")),
        )),
    }
}

fn wrong(text: &str, name: &str, reason: &str) -> ScenarioError {
    let quoted = format!("\"{name}\"");
    let line = text.lines().position(|line| line.contains(&quoted));
    ScenarioError {
        line: line.map(|line| line + 1),
        field: (!name.is_empty()).then(|| name.to_owned()),
        reason: reason.to_owned(),
    }
}

/// The table as TOML: what is in it are numbers, words and tables of these.
fn toml_text(table: &Table) -> String {
    let lines = table
        .iter()
        .map(|(name, value)| format!("{name} = {value}\n"));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use crate::{Files, Sweep};

    #[test]
    fn a_configuration_of_forge_is_a_scenario() {
        let text = r#"{ "forwarders": "8", "listeners": "16", "dispatchers": 4, "path": "/pfs/test",
            "number_of_files": "individual", "spatiality": "contiguous", "total_size": 4294967296,
            "request_size": "32768", "validation": 0, "stone_wall": 60 }"#;
        let runs = Sweep::read(text)
            .and_then(|sweep| sweep.runs())
            .expect("FORGE");
        let scenario = &runs[0].scenario;
        assert_eq!(
            (
                scenario.ionodes.count,
                scenario.ionodes.handlers,
                scenario.ionodes.dispatchers
            ),
            (8, 16, 4)
        );
        assert_eq!(scenario.apps.len(), 2, "it writes, then it reads");
        assert_eq!(scenario.apps[1].after.as_deref(), Some("write"));
        assert_eq!(scenario.apps[0].files, Files::PerProcess);
        assert_eq!(scenario.apps[0].requests(), 1024);
        assert_eq!(scenario.apps[0].stonewall.0, 60_000_000_000);
    }

    #[test]
    fn what_forge_would_not_take_is_said_with_line_and_field() {
        let good = "{\n\"forwarders\": 1,\n\"total_size\": 65536,\n\"request_size\": 512\n}";
        assert!(Sweep::read(good).is_ok());
        for (from, to, line, field) in [
            ("1,", "\"one\",", Some(2), "forwarders"),
            ("total_size", "size", Some(3), "size"),
            ("512", "-5", Some(4), "request_size"),
            ("512", "512,", Some(5), ""),
        ] {
            let error = Sweep::read(&good.replacen(from, to, 1)).expect_err(to);
            assert_eq!(error.line, line, "{error}");
            assert_eq!(error.field.as_deref().unwrap_or(""), field, "{error}");
        }
        let error = Sweep::read(&good.replacen("65536", "5", 1)).expect_err("too little");
        assert!(
            error.to_string().contains("less than one request"),
            "{error}"
        );
    }
}
