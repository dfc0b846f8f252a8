//! `presagio run --in-process`: no manager beside the command, but one on a thread inside of it.
//!
//! A directory of this run holds the orders for libpresagio_inside.so, and takes the summary of each manager: one for the
//! first process that the library finds itself in, another one where that process execs. This process, which supervises
//! the command as ever, makes one summary and one trace of them.

use super::forward::{self, Forward};
use super::library::Preload;
use super::place::Place;
use super::settings::Plan;
use super::{manager, supervise};
use presagio_advise::manager::Summary;
use presagio_trace::join::{Align, Joiner};
use presagio_trace::sorted::Spill;
use presagio_trace::{Sink, native};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tempfile::NamedTempFile;

/// What a manager inside left.
struct Left {
    end: String,
    pid: u64,
    summary: Summary,
}

/// How the directories of runs are called.
const PREFIX: &str = "presagio-run-";

/// What the manager is to do. Whoever made the directory has it locked for as long as it is needed.
const ORDERS: &str = "orders";

/// Runs a command with a manager inside.
pub fn run(
    command: &[OsString],
    preload: &Preload,
    mut plan: Plan,
    forward: Option<Forward>,
) -> anyhow::Result<ExitCode> {
    let directory = Place::make(PREFIX, ORDERS, &plan.orders.to_bytes())?;
    preload.enter_inside(directory.path())?;
    forward::enter(forward.as_ref(), preload)?;
    let summary = move || {
        let (mut summary, is_there) = sum_up(directory.path(), plan.orders.trace.as_deref());
        manager::complete(&mut summary, std::mem::take(&mut plan.known));
        if let Some(report) = plan.report.take() {
            report.write(&mut summary);
        }
        if let Some(file) = plan.json.take() {
            manager::write_json(&summary, file);
        }
        match is_there {
            true => manager::shown(&summary, plan.quiet),
            false => "presagio: there was no manager: the command cannot be preloaded, or may start no thread\n".into(),
        }
    };
    Ok(supervise::supervise(command, forward, summary))
}

/// One summary of all that managers left, and whether there was any.
fn sum_up(directory: &Path, trace: Option<&Path>) -> (Summary, bool) {
    let numbers = (1..).map(|number: u32| directory.join(number.to_string()));
    let texts = numbers.map_while(|path| fs::read_to_string(path).ok());
    let left: Vec<Left> = texts.filter_map(|text| read(&text)).collect();
    let had_no_room = directory.join(presagio_arena::NO_ROOM).exists();
    let is_there = !left.is_empty() || had_no_room;
    let traces: Vec<PathBuf> = left
        .iter()
        .filter_map(|l| l.summary.trace.as_ref())
        .filter(|(_, records)| *records > 0)
        .map(|(path, _)| path.into())
        .collect();
    let mut all = Summary::default();
    for (number, mut one) in left.into_iter().enumerate() {
        note_end(&mut one);
        match number {
            0 => all = one.summary,
            _ => all.add(one.summary),
        }
    }
    if had_no_room {
        let note = "a program ran without a manager: it may have less than 2 GiB of memory (ulimit -v, ulimit -d)";
        all.notes.push(note.into());
    }
    if let Some(path) = trace {
        join_traces(path, &traces, &mut all);
    }
    (all, is_there)
}

fn read(text: &str) -> Option<Left> {
    let value: Value = serde_json::from_str(text).ok()?;
    let mut summary = Summary::from_json(&value["summary"]);
    if let Some(error) = value["error"].as_str() {
        let note = format!("the manager could not begin: {error}; the program ran without it");
        summary.notes.push(note);
    }
    Some(Left {
        end: value["end"].as_str().unwrap_or_default().to_owned(),
        pid: value["pid"].as_u64().unwrap_or_default(),
        summary,
    })
}

/// Says what is missing where a manager could not end.
fn note_end(left: &mut Left) {
    if left.end != "working" {
        return;
    }
    if Path::new(&format!("/proc/{}", left.pid)).exists() {
        left.summary.still_running += 1;
        let note = "a process with a manager still ran when the command ended: what came later is not counted";
        return left.summary.notes.push(note.into());
    }
    let note = "the program ended early, by a signal or past the C library: its last second may be missing, and what was learned is not kept";
    left.summary.notes.push(note.into());
}

/// Makes one trace of several. Where that fails, they stay as they are.
fn join_traces(path: &Path, traces: &[PathBuf], summary: &mut Summary) {
    let parts: Vec<&PathBuf> = traces.iter().filter(|t| *t != path).collect();
    if parts.is_empty() {
        return;
    }
    let Some((name, _)) = &mut summary.trace else {
        return;
    };
    *name = path.display().to_string();
    match join(path, traces) {
        Ok(()) => parts.iter().for_each(|part| drop(fs::remove_file(part))),
        Err(error) => {
            let names: Vec<String> = traces.iter().map(|t| t.display().to_string()).collect();
            summary.notes.push(format!(
                "the trace is in {} files, {}, which could not be joined: {error:#}",
                traces.len(),
                names.join(", ")
            ));
        }
    }
}

fn join(path: &Path, traces: &[PathBuf]) -> anyhow::Result<()> {
    let mut joiner = Joiner::new(Align::Clock, Spill::default());
    for trace in traces {
        joiner.add(trace, &mut presagio_trace::open(trace)?)?;
    }
    let beside = path.parent().filter(|p| !p.as_os_str().is_empty());
    let file = NamedTempFile::new_in(beside.unwrap_or(Path::new(".")))?;
    let permissions = fs::metadata(path)?.permissions();
    file.as_file().set_permissions(permissions)?;
    let mut writer = native::Writer::new(file.as_file().try_clone()?)?;
    for record in joiner.finish()? {
        Sink::write(&mut writer, &record?)?;
    }
    Sink::finish(&mut writer)?;
    file.persist(path)?;
    Ok(())
}
