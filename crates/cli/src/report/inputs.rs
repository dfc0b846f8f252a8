//! What was named on the command line: traces, summaries, and which belong together.

use crate::failure::failure;
use presagio_report::readable;
use serde_json::Value;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A summary is text that a person could read; what is larger is none.
const SUMMARY_BYTES_MAX: u64 = 64 << 20;

/// One run: its trace, its summary, or both.
#[derive(Debug, Default)]
pub struct Found {
    /// What it is called, if somebody said that.
    pub called: Option<String>,
    pub trace: Option<PathBuf>,
    pub summary: Option<(PathBuf, Value)>,
}

impl Found {
    /// What it is called: what somebody said, or else the name of its file.
    pub fn name(&self) -> String {
        self.called.clone().unwrap_or_else(|| self.stem())
    }

    fn stem(&self) -> String {
        let summary = self.summary.as_ref().map(|(path, _)| path);
        let path = summary.or(self.trace.as_ref());
        let stem = path.and_then(|path| path.file_stem());
        stem.map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
    }
}

/// The runs that were named, and what they are called: the first path by the first name, and so on. A trace that a summary brings along
/// is not a run of its own, and has no name.
pub fn find(paths: &[PathBuf], names: &[String]) -> anyhow::Result<Vec<Found>> {
    if names.len() > paths.len() {
        let named = crate::terminal::counted(names.len() as u64, "name");
        let given = crate::terminal::counted(paths.len() as u64, "input");
        let what = format!("{named} for {given}");
        let cause = "each --name is for one of them, in their order";
        return Err(failure(what, cause, "leave out those that are too many"));
    }
    let mut runs = Vec::new();
    for (number, path) in paths.iter().enumerate() {
        let called = names.get(number).cloned();
        runs.push(Found {
            called,
            ..find_one(path)?
        });
    }
    let brought: Vec<PathBuf> = runs
        .iter()
        .filter(|run| run.summary.is_some())
        .filter_map(|run| run.trace.as_ref()?.canonicalize().ok())
        .collect();
    let is_brought = |run: &Found| {
        let own = run.trace.as_ref().and_then(|path| path.canonicalize().ok());
        run.summary.is_none() && own.is_some_and(|own| brought.contains(&own))
    };
    if let Some(run) = runs.iter().find(|run| is_brought(run))
        && let (Some(called), Some(path)) = (&run.called, &run.trace)
    {
        let what = format!("“{called}” would be the name of {}", path.display());
        let cause = "a summary that is named too brings that trace along: they are one run";
        let advice = "leave that trace out, or its name";
        return Err(failure(what, cause, advice));
    }
    runs.retain(|run| !is_brought(run));
    Ok(runs)
}

fn find_one(path: &Path) -> anyhow::Result<Found> {
    let Some(text) = summary_text(path) else {
        return Ok(Found {
            trace: Some(path.to_owned()),
            ..Found::default()
        });
    };
    let not_ours = |cause: &str| {
        let what = format!("cannot make a report of {}", path.display());
        let advice = "name a trace, or what `presagio run --json` wrote";
        failure(what, cause, advice)
    };
    let value: Value = serde_json::from_str(&text)
        .map_err(|error| not_ours(&format!("it looks like JSON, but is none: {error}")))?;
    if !value["totals"].is_object() || !value["prefetch"].is_object() {
        return Err(not_ours("it is JSON, but not the summary of a run"));
    }
    let trace = value["trace"]["path"].as_str().map(PathBuf::from);
    Ok(Found {
        trace: trace.and_then(|trace| trace_of(path, &trace)),
        summary: Some((path.to_owned(), value)),
        ..Found::default()
    })
}

/// The text of a summary; nothing if it does not look like one.
fn summary_text(path: &Path) -> Option<String> {
    if path == Path::new("-") || !path.is_file() {
        return None;
    }
    let mut file = File::open(path).ok()?;
    let mut first = [0; 64];
    let got = file.read(&mut first).ok()?;
    let begins = first[..got].trim_ascii_start().first() == Some(&b'{');
    if !begins || file.metadata().ok()?.len() > SUMMARY_BYTES_MAX {
        return None;
    }
    let rest = std::fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&rest).into_owned())
}

/// Where the trace of a summary is: where it says, or beside it under that name.
fn trace_of(summary: &Path, trace: &Path) -> Option<PathBuf> {
    let beside = summary.parent().map(|parent| parent.join(trace));
    let named = || Some(summary.parent()?.join(trace.file_name()?));
    let places = [Some(trace.to_owned()), beside, named()];
    let found = places.into_iter().flatten().find(|place| place.is_file());
    if found.is_none() {
        eprintln!(
            "presagio: {}: its trace {} is not there; the report is of the summary alone",
            readable::name(summary.as_os_str().as_bytes()),
            // The name comes from whoever wrote the summary.
            readable::name(trace.as_os_str().as_bytes())
        );
    }
    found
}
