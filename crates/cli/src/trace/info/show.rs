//! How the summary of a trace is shown: facts, what was done, request sizes, the busiest files.

use super::Found;
use crate::size::Size;
use crate::table::{self, Cell, Table, drawn};
use crate::terminal::{counted, prose, width};
use presagio_core::{Action, Histogram, Layer};
use presagio_page::readable;
use presagio_trace::info::{FileUse, ProcessUse, Summary, Tally};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{self, Write};

/// So many files are named.
const FILES: usize = 5;

/// A histogram has no more lines than this; a program gets more files and every bucket.
const LINES_MAX: usize = 12;
const FILES_IN_JSON: usize = 100;

pub fn show(out: &mut impl Write, found: &Found, json: bool) -> io::Result<()> {
    if json {
        return writeln!(out, "{:#}", document(found));
    }
    for (what, fact) in facts(found) {
        writeln!(out, "{what:<12}{}", begun(&fact, width().max(40) - 12))?;
    }
    let parts = [
        actions(found).lines(),
        size_lines(found, width()),
        file_lines(found, width()),
    ];
    for lines in parts.iter().filter(|lines| lines.len() > 1) {
        writeln!(out)?;
        lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    }
    for remark in remarks(found) {
        writeln!(out, "\n{}", prose(&readable::sentence(&remark)))?;
    }
    Ok(())
}

/// What holds for the whole trace, a line each.
fn facts(found: &Found) -> Vec<(&'static str, String)> {
    let all = &found.all;
    let mut facts = vec![("trace", trace(found))];
    if let Some(command) = command(all) {
        facts.push(("program", readable::name(command.as_bytes())));
    }
    let failed = match all.total().failed {
        0 => String::new(),
        failed => format!(", {failed} of them failed"),
    };
    facts.extend([
        ("duration", all.duration().to_string()),
        ("processes", processes(all)),
        ("files", all.file_count().to_string()),
        ("events", format!("{}{failed}", all.total().events)),
        ("call stacks", call_stacks(all)),
        ("order", order(all)),
    ]);
    if let (gaps @ 1.., lost) = all.gaps() {
        let lost = match lost {
            0 => "nobody knows how many".to_owned(),
            lost => lost.to_string(),
        };
        facts.push(("lost", format!("{lost}, in {}", counted(gaps, "gap"))));
    }
    facts
}

fn trace(found: &Found) -> String {
    let name = readable::name(found.path.as_os_str().as_encoded_bytes());
    let format = found.format.map_or("", |format| format.name());
    let what = match found.bytes {
        Some(bytes) => format!(" ({format}, {})", Size(bytes)),
        None => format!(" ({format})"),
    };
    let room = width().max(60) - 12 - what.len();
    format!("{}{what}", shortened(&name, room))
}

/// The program of the busiest process.
fn command(all: &Summary) -> Option<String> {
    let busiest = all.busiest_processes(1).into_iter().next()?;
    busiest.process.command
}

fn processes(all: &Summary) -> String {
    let known = all.busiest_processes(usize::MAX);
    let hosts: BTreeSet<&String> = known
        .iter()
        .filter_map(|used| used.process.host.as_ref())
        .collect();
    let on = match hosts.len() as u64 {
        0 => String::new(),
        hosts => format!(" on {}", counted(hosts, "host")),
    };
    let threads = counted(all.thread_count() as u64, "thread");
    format!("{}{on}, {threads}", all.process_count())
}

fn call_stacks(all: &Summary) -> String {
    match all.context_count() {
        0 => "not recorded".to_owned(),
        contexts => contexts.to_string(),
    }
}

fn order(all: &Summary) -> String {
    match all.out_of_order() {
        0 => "by time".to_owned(),
        _ => "not by time (presagio trace convert sorts it)".to_owned(),
    }
}

/// What was done: a row per layer and action.
fn actions(found: &Found) -> Table {
    let row = |layer: Layer, action: Action, tally: Tally| {
        let bytes = match action.is_transfer() {
            true => Cell::Bytes(tally.bytes),
            false => Cell::Missing,
        };
        vec![
            Cell::Text(layer.to_string()),
            Cell::Text(action.to_string()),
            Cell::Count(tally.events),
            Cell::Count(tally.failed),
            bytes,
            Cell::Span(tally.busy),
        ]
    };
    let rows = found
        .layers()
        .flat_map(|(layer, s)| s.actions().map(move |(action, t)| row(layer, action, t)));
    Table {
        title: String::new(),
        columns: vec![
            ("layer", "layer"),
            ("action", "action"),
            ("events", "events"),
            ("failed", "failed"),
            ("bytes", "bytes"),
            ("busy_ns", "time in it"),
        ],
        rows: rows.collect(),
    }
}

/// Request sizes as bars, a column per layer and action that has any.
fn size_lines(found: &Found, width: usize) -> Vec<String> {
    let both = |(layer, s): (Layer, &Summary)| {
        [("reads", s.read_sizes()), ("writes", s.write_sizes())]
            .map(|(what, sizes)| (format!("{layer} {what}"), sizes.clone()))
    };
    let columns: Vec<(String, Histogram)> = found
        .layers()
        .flat_map(both)
        .filter(|(_, sizes)| sizes.count() > 0)
        .collect();
    let rows = rows_of(columns.iter().map(|(_, sizes)| sizes));
    let room = width.max(40).saturating_sub(9) / columns.len().max(1);
    let heading = columns
        .iter()
        .fold(format!("{:>9}", "size from"), |line, (name, _)| {
            format!("{line}  {name:<w$}", w = room - 2)
        });
    let mut lines = vec![heading.trim_end().to_owned()];
    lines.extend(rows.iter().map(|row| size_line(row, &columns, room)));
    lines
}

/// A range of buckets.
type Buckets = std::ops::Range<usize>;

/// Which buckets make a line: one each where that is not too many lines, or else several. Empty lines are left out.
fn rows_of<'a>(columns: impl Iterator<Item = &'a Histogram> + Clone) -> Vec<Buckets> {
    let is_filled = |row: &Buckets| {
        let counts = |sizes: &Histogram| sizes.buckets()[row.clone()].iter().sum::<u64>();
        columns.clone().any(|sizes| counts(sizes) > 0)
    };
    let rows = |step: usize| -> Vec<Buckets> {
        let begins = (0..Histogram::BUCKETS).step_by(step);
        let rows = begins.map(|begin| begin..(begin + step).min(Histogram::BUCKETS));
        rows.filter(is_filled).collect()
    };
    let mut finest_first = (1..Histogram::BUCKETS).map(rows);
    finest_first
        .find(|rows| rows.len() <= LINES_MAX)
        .unwrap_or_default()
}

/// The smallest value of a bucket.
fn least(bucket: usize) -> u64 {
    match bucket {
        0 => 0,
        bucket => 1 << (bucket - 1),
    }
}

fn size_line(row: &Buckets, columns: &[(String, Histogram)], room: usize) -> String {
    let mut line = format!("{:>9}", Size(least(row.start)).to_string());
    for (_, sizes) in columns {
        let (count, share) = share(sizes, row);
        let digits = sizes.count().to_string().len();
        let bar = drawn(share, room.saturating_sub(digits + 3));
        let count = if count > 0 {
            count.to_string()
        } else {
            "·".to_owned()
        };
        let cell = format!("{count:>digits$} {bar}");
        line.push_str(&format!("  {cell:<w$}", w = room - 2));
    }
    line.trim_end().to_owned()
}

/// How many values are in these buckets, and which share that is.
fn share(sizes: &Histogram, row: &Buckets) -> (u64, f64) {
    let count: u64 = sizes.buckets()[row.clone()].iter().sum();
    (count, count as f64 / sizes.count().max(1) as f64)
}

/// The busiest files of the first layer, which has all bytes.
fn file_lines(found: &Found, width: usize) -> Vec<String> {
    let Some((_, summary)) = found.layers().next() else {
        return Vec::new();
    };
    let busiest = summary.busiest_files(FILES);
    let heading = ["bytes", "events", "busiest files"].map(|text| Cell::Text(text.to_owned()));
    let row = |used: &FileUse| {
        let name = shortened(&name_of(used), width.max(40) - 25);
        vec![
            Cell::Bytes(used.tally.bytes),
            Cell::Count(used.tally.events),
            Cell::Text(name),
        ]
    };
    let rows: Vec<Vec<Cell>> = std::iter::once(heading.to_vec())
        .chain(busiest.iter().map(row))
        .collect();
    let mut lines = table::aligned(&rows);
    let more = summary.file_count().saturating_sub(FILES);
    if more > 0 {
        lines.push(format!(
            "and {}",
            counted(more as u64, "more file").replace("more files", "more")
        ));
    }
    lines
}

fn name_of(used: &FileUse) -> String {
    match &used.name {
        Some(name) => readable::name(name),
        None => format!("file {}", used.id),
    }
}

/// The end of a text that is too long: where paths differ.
fn shortened(text: &str, width: usize) -> String {
    let count = text.chars().count();
    match count > width {
        true => std::iter::once('…')
            .chain(text.chars().skip(count + 1 - width))
            .collect(),
        false => text.to_owned(),
    }
}

/// The begin of a text that is too long.
fn begun(text: &str, width: usize) -> String {
    match text.chars().count() > width {
        true => text.chars().take(width - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// What one should know before trusting the rest.
fn remarks(found: &Found) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some(why) = found.all.cut_short() {
        remarks.push(format!("Cut short: {why}."));
    }
    remarks.extend(
        found
            .warnings
            .iter()
            .map(|warning| format!("Warning: {warning}.")),
    );
    if found.all.is_capped() {
        remarks.push(
            "There are more files, processes or call stacks than are told apart: their numbers are lower bounds."
                .to_owned(),
        );
    }
    remarks
}

fn document(found: &Found) -> Value {
    let all = &found.all;
    let (gaps, lost) = all.gaps();
    let layers = found.layers().map(|(layer, s)| layer_json(layer, s));
    let processes = all.busiest_processes(FILES_IN_JSON);
    json!({
        "trace": found.path,
        "format": found.format.map(|format| format.name()),
        "size_bytes": found.bytes,
        "begin_ns": all.begin().map(|begin| begin.0),
        "duration_ns": all.duration().0,
        "events": all.total().events,
        "failed": all.total().failed,
        "processes": all.process_count(),
        "threads": all.thread_count(),
        "files": all.file_count(),
        "call_stacks": all.context_count(),
        "counts_are_lower_bounds": all.is_capped(),
        "out_of_order": all.out_of_order(),
        "gaps": gaps,
        "lost": lost,
        "cut_short": all.cut_short(),
        "warnings": found.warnings,
        "layers": layers.collect::<Vec<_>>(),
        "busiest_processes": processes.iter().map(process_json).collect::<Vec<_>>(),
    })
}

fn tally_json(tally: Tally) -> Value {
    json!({
        "events": tally.events,
        "failed": tally.failed,
        "bytes": tally.bytes,
        "busy_ns": tally.busy.0,
    })
}

/// An object with the members of both.
fn joined(mut one: Value, other: Value) -> Value {
    if let (Value::Object(one), Value::Object(other)) = (&mut one, other) {
        one.extend(other);
    }
    one
}

fn layer_json(layer: Layer, summary: &Summary) -> Value {
    let actions = summary
        .actions()
        .map(|(action, tally)| joined(json!({"action": action.name()}), tally_json(tally)));
    let files = summary.busiest_files(FILES_IN_JSON);
    let file = |used: &FileUse| joined(json!({"file": name_of(used)}), tally_json(used.tally));
    let whole = json!({
        "layer": layer.name(),
        "actions": actions.collect::<Vec<_>>(),
        "read_sizes": sizes_json(summary.read_sizes()),
        "write_sizes": sizes_json(summary.write_sizes()),
        "busiest_files": files.iter().map(file).collect::<Vec<_>>(),
    });
    joined(whole, tally_json(summary.total()))
}

fn sizes_json(sizes: &Histogram) -> Value {
    let buckets = sizes.buckets().iter().enumerate();
    let filled = buckets.filter(|(_, count)| **count > 0);
    let object = |(bucket, count): (usize, &u64)| json!({"from": least(bucket), "count": count});
    json!({
        "count": sizes.count(),
        "min": sizes.min(),
        "median": sizes.quantile(0.5),
        "mean": sizes.mean(),
        "max": sizes.max(),
        "buckets": filled.map(object).collect::<Vec<_>>(),
    })
}

fn process_json(used: &ProcessUse) -> Value {
    let process = &used.process;
    let who = json!({
        "process": process.id,
        "pid": process.pid,
        "rank": process.rank,
        "host": process.host,
        "command": process.command,
    });
    joined(who, tally_json(used.tally))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_keep_their_end() {
        assert_eq!(shortened("/home/me/data", 8), "…me/data");
        assert_eq!(shortened("data", 4), "data");
    }

    #[test]
    fn a_histogram_has_few_lines_however_far_sizes_lie_apart() {
        let mut sizes = Histogram::new();
        for size in [0, 1, 4096, 1 << 38] {
            sizes.record(size);
        }
        let rows = rows_of([&sizes].into_iter());
        assert_eq!(rows, [0..1, 1..2, 13..14, 39..40]);
        (0..40).for_each(|power| sizes.record(1 << power));
        let rows = rows_of([&sizes].into_iter());
        assert!(rows.len() <= LINES_MAX, "{rows:?}");
        let counted: u64 = rows.iter().map(|row| share(&sizes, row).0).sum();
        assert_eq!(counted, 44);
        assert_eq!(rows_of([&Histogram::new()].into_iter()), []);
    }

    #[test]
    fn a_bucket_begins_with_its_least_value() {
        for size in [0, 1, 2, 3, 4096, 1 << 30] {
            let bucket = Histogram::bucket_of(size);
            assert!(least(bucket) <= size && size < least(bucket + 1));
        }
    }
}
