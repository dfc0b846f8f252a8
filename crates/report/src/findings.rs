//! What follows from the figures, in plain language, each with the figures that it follows from.
//!
//! A finding says what was observed, never more. Its evidence names the figures by their path in the document of the run
//! and the chart that shows them, so that a reader is one click away from checking it. Every number in a finding is one of
//! these figures (`tests/findings.rs`).

use crate::doc::{Access, Distribution, FileUse, Measure, Run, SMALL, Way};
use crate::readable::{bytes, counted, grouped, percent, span, times};
use serde::Serialize;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Weight {
    /// Most of the time goes here, or something is wrong.
    High,
    /// Worth a look.
    Medium,
    /// Good to know.
    Low,
    /// As it should be.
    Good,
}

/// Where the figures are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// The section of the page.
    pub section: &'static str,
    /// What to choose there: a file, an access, a process.
    pub select: Option<usize>,
    /// The figures, by their path within the run.
    pub figures: Vec<String>,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What kind of finding it is.
    pub id: &'static str,
    /// How much it matters.
    pub weight: Weight,
    /// What was found.
    pub text: String,
    /// What one could do about it, if anything.
    pub advice: Option<&'static str>,
    /// From what it follows.
    pub evidence: Evidence,
}

fn finding(
    id: &'static str,
    weight: Weight,
    text: String,
    section: &'static str,
    figures: &[&str],
) -> Finding {
    Finding {
        id,
        weight,
        text,
        advice: None,
        evidence: Evidence {
            section,
            select: None,
            figures: figures.iter().map(|f| (*f).to_owned()).collect(),
        },
    }
}

impl Finding {
    fn select(mut self, at: usize) -> Finding {
        self.evidence.select = Some(at);
        self
    }

    fn advise(mut self, advice: &'static str) -> Finding {
        self.advice = Some(advice);
        self
    }
}

/// All that is worth saying about a run, what matters most first.
pub(crate) fn of_run(run: &Run) -> Vec<Finding> {
    if run.totals.operations == 0 {
        let text = "There are no operations in this recording.".to_owned();
        return vec![finding(
            "empty",
            Weight::High,
            text,
            "overview",
            &["totals.operations"],
        )];
    }
    let makers: [fn(&Run) -> Vec<Finding>; 14] = [
        waits, hot_spots, prefetched, hidden, small, scattered, again, tail, metadata, balance,
        rhythm, foreseen, failures, unseen,
    ];
    let mut all: Vec<Finding> = makers.iter().flat_map(|make| make(run)).collect();
    all.sort_by_key(|finding| finding.weight);
    all
}

/// How much of the time goes to I/O at all.
fn waits(run: &Run) -> Vec<Finding> {
    let totals = &run.totals;
    if totals.time_share == 0.0 {
        return Vec::new();
    }
    let who = match totals.processes {
        1 => "The program".to_owned(),
        n => format!("On average, each of {} processes", grouped(n)),
    };
    let weight = match totals.time_share {
        share if share >= 0.3 => Weight::High,
        share if share >= 0.05 => Weight::Medium,
        _ => Weight::Low,
    };
    let text = format!(
        "{who} spent {} of the {} between the first operation and the last in I/O calls: {} in all.",
        percent(totals.time_share),
        span(totals.duration_ns),
        span(totals.time_ns),
    );
    let figures = [
        "totals.time_share",
        "totals.duration_ns",
        "totals.time_ns",
        "totals.processes",
        "totals.read_ns",
        "totals.write_ns",
        "totals.other_ns",
    ];
    vec![finding("io-share", weight, text, "timeline", &figures)]
}

/// How many places that took the most time are told.
const SPOTS: usize = 3;
/// Shares below this are not worth a sentence.
const SPOT_SHARE: f64 = 0.1;

/// What took the most time: which accesses, of which file, from where.
fn hot_spots(run: &Run) -> Vec<Finding> {
    let spots = run.accesses.iter().enumerate().take(SPOTS);
    let spots = spots.filter(|(_, access)| access.time_share >= SPOT_SHARE);
    spots
        .map(|(at, access)| hot_spot(run, at, access))
        .collect()
}

/// What takes this much of the I/O time, and this much of the life of a process, matters most.
const SPOT_HIGH: f64 = 0.4;
const SPOT_OF_LIFE: f64 = 0.1;

fn hot_spot(run: &Run, at: usize, access: &Access) -> Finding {
    // Without a timeline nobody knows how much of their lives processes spend in I/O.
    let of_life = run
        .timeline
        .as_ref()
        .map_or(1.0, |_| access.time_share * run.totals.time_share);
    let weight = match access.time_share >= SPOT_HIGH && of_life >= SPOT_OF_LIFE {
        true => Weight::High,
        false => Weight::Medium,
    };
    let text = format!(
        "{} of the I/O time, {}, went to {} of {}{}.",
        percent(access.time_share),
        span(access.way.time_ns),
        kind_of(access),
        whose(access),
        from(run, access),
    );
    let path = |key: &str| format!("accesses.{at}.{key}");
    let mut figures = vec![
        path("time_share"),
        path("way.time_ns"),
        path("way.operations"),
        path("way.bytes"),
    ];
    figures.extend(usual_size(&access.way).map(|_| path("way.sizes.0.0")));
    figures.extend((access.files > 1).then(|| path("files")));
    let figures: Vec<&str> = figures.iter().map(String::as_str).collect();
    finding("hot-spot", weight, text, "accesses", &figures).select(at)
}

/// `16 KiB strided reads`
fn kind_of(access: &Access) -> String {
    let many = access.way.operations != 1;
    let noun = match (access.action, many) {
        ("read", true) => "reads",
        ("read", false) => "one read",
        ("write", true) => "writes",
        ("write", false) => "one write",
        (action, true) => return format!("{} calls", verb(action)),
        (action, false) => return format!("one {}", verb(action)),
    };
    let word = match access.way.word {
        "single" => String::new(),
        word => format!("{word} "),
    };
    let size = usual_size(&access.way).map(|size| format!("{} ", bytes(size)));
    format!("{}{word}{noun}", size.unwrap_or_default())
}

fn verb(action: &str) -> &str {
    match action {
        "sync" => "fsync",
        other => other,
    }
}

/// The size that most requests have.
fn usual_size(way: &Way) -> Option<u64> {
    let (size, times) = way.sizes.first()?;
    (times * 2 > way.operations).then_some(*size)
}

fn from(run: &Run, access: &Access) -> String {
    let site = access.site.and_then(|site| run.sites.get(site));
    site.map_or_else(String::new, |site| format!(", from {}", site.label))
}

fn whose(access: &Access) -> String {
    match access.files {
        0 | 1 => quoted(&access.name),
        n => format!("{} files {}", grouped(n), quoted(&access.name)),
    }
}

fn quoted(name: &str) -> String {
    format!("“{}”", crate::readable::last_part(name))
}

/// Many small requests.
fn small(run: &Run) -> Vec<Finding> {
    const MANY: f64 = 1000.0;
    let one = |(at, sizes): (usize, &Distribution)| {
        let share = sizes.small_share?;
        if share * (sizes.count as f64) < MANY || share < 0.6 {
            return None;
        }
        let text = format!(
            "{} of the {}s are smaller than {}; half of them ask for {} or less.",
            percent(share),
            sizes.of,
            bytes(SMALL),
            bytes(sizes.median),
        );
        let path = |key: &str| format!("sizes.{at}.{key}");
        let figures = ["small_share", "median", "count", "p90", "mean"].map(path);
        let figures: Vec<&str> = figures.iter().map(String::as_str).collect();
        let found = finding("small-requests", Weight::Medium, text, "sizes", &figures);
        Some(found.advise("Larger requests, or a library that collects them (collective buffering, a larger stdio buffer), would need fewer calls."))
    };
    run.sizes.iter().enumerate().filter_map(one).collect()
}

/// Access here and there.
fn scattered(run: &Run) -> Vec<Finding> {
    const MANY: u64 = 500;
    let one = |(at, lies): (usize, &crate::doc::Sequentiality)| {
        let all: u64 = lies.steps.iter().sum();
        let back = lies.back_share;
        if all < MANY {
            return None;
        }
        let path = |key: &str| format!("sequentiality.{at}.{key}");
        let paths = ["consecutive_share", "onward_share", "back_share"].map(path);
        let figures: Vec<&str> = paths.iter().map(String::as_str).collect();
        if lies.consecutive_share >= 0.9 {
            let text = format!(
                "{} of the {}s begin where the one before ended: the system reads ahead and writes behind by itself here.",
                percent(lies.consecutive_share),
                lies.of
            );
            return Some(finding(
                "sequential",
                Weight::Good,
                text,
                "sequentiality",
                &figures,
            ));
        }
        if back < 0.3 {
            return None;
        }
        let text = format!(
            "{} of the {}s go back, or to the same place again; only {} begin where the one before ended.",
            percent(back),
            lies.of,
            percent(lies.consecutive_share)
        );
        Some(finding(
            "scattered",
            Weight::Medium,
            text,
            "sequentiality",
            &figures,
        ))
    };
    run.sequentiality
        .iter()
        .enumerate()
        .filter_map(one)
        .collect()
}

/// Files that are read more than once.
fn again(run: &Run) -> Vec<Finding> {
    const LEAST: u64 = 1 << 20;
    const OFTEN: f64 = 1.9;
    let over = |file: &FileUse| file.read_times.filter(|times| *times >= OFTEN);
    let files = run.files.iter().enumerate();
    let files = files.filter(|(_, file)| file.reach >= LEAST && file.bytes_written == 0);
    let files = files.filter_map(|(at, file)| Some((at, file, over(file)?)));
    let most = files.max_by_key(|(_, file, _)| file.bytes_read - file.reach);
    let Some((at, file, often)) = most else {
        return Vec::new();
    };
    let sharing = match file.processes {
        0 | 1 => String::new(),
        n => format!(" by {} processes", grouped(n)),
    };
    let text = format!(
        "{} was read {} times over{sharing}: {} of a file that was used up to {}.",
        quoted(&file.name),
        times(often),
        bytes(file.bytes_read),
        bytes(file.reach),
    );
    let path = |key: &str| format!("files.{at}.{key}");
    let paths = ["read_times", "bytes_read", "reach", "processes", "time_ns"].map(path);
    let figures: Vec<&str> = paths.iter().map(String::as_str).collect();
    vec![finding("read-again", Weight::Medium, text, "files", &figures).select(at)]
}

/// A few operations that take most of the time.
fn tail(run: &Run) -> Vec<Finding> {
    let one = |(at, times): (usize, &Distribution)| {
        let tail = times.tail?;
        let what = match times.of {
            "other" => "calls that neither read nor write".to_owned(),
            of => format!("{of}s"),
        };
        let text = format!(
            "{} of the {what}, those of {} and more, took {} of their time; half of all took {} or less.",
            percent(tail.count_share),
            span(tail.from_ns),
            percent(tail.time_share),
            span(times.median),
        );
        let path = |key: &str| format!("latencies.{at}.{key}");
        let figures = [
            "tail.count_share",
            "tail.from_ns",
            "tail.time_share",
            "median",
            "p99",
            "max",
        ]
        .map(path);
        let figures: Vec<&str> = figures.iter().map(String::as_str).collect();
        let weight = Weight::Medium;
        Some(finding("slow-tail", weight, text, "latencies", &figures))
    };
    run.latencies.iter().enumerate().filter_map(one).collect()
}

/// Time that is neither reading nor writing.
fn metadata(run: &Run) -> Vec<Finding> {
    let totals = &run.totals;
    if totals.other_share < 0.25 {
        return Vec::new();
    }
    let others = totals.actions.iter().enumerate();
    let others = others.filter(|(_, a)| !matches!(a.action, "read" | "write"));
    let Some((at, most)) = others.max_by_key(|(_, a)| a.time_ns) else {
        return Vec::new();
    };
    let text = format!(
        "{} of the I/O time went to calls that neither read nor write; most of it to {}: {} in {}.",
        percent(totals.other_share),
        verb(most.action),
        counted(most.operations, "call", "calls"),
        span(most.time_ns),
    );
    let path = |key: &str| format!("totals.actions.{at}.{key}");
    let paths = [
        "totals.other_share".to_owned(),
        "totals.other_ns".to_owned(),
        "totals.time_ns".to_owned(),
        path("operations"),
        path("time_ns"),
        path("time_share"),
    ];
    let figures: Vec<&str> = paths.iter().map(String::as_str).collect();
    let found = finding("not-moving", Weight::Medium, text, "overview", &figures);
    vec![match most.action {
        "sync" => found.advise("Each fsync waits until the storage has the data: fewer of them, or one for several files, wait less."),
        "open" => found.advise("Fewer files, or files that stay open, need fewer calls to the metadata servers of a parallel file system."),
        _ => found,
    }]
}

/// Processes that do much more than others.
fn balance(run: &Run) -> Vec<Finding> {
    let Some(timeline) = &run.timeline else {
        return Vec::new();
    };
    let lanes = timeline.lanes.iter().enumerate();
    let lanes = lanes.filter(|(_, lane)| lane.processes == 1);
    let (Some(median), Some(more), Some((at, most))) = (
        timeline.lane_median_ns,
        timeline.lane_most_times,
        lanes.max_by_key(|(_, lane)| lane.time_ns),
    ) else {
        return Vec::new();
    };
    if timeline.lanes_own < 3 || more < 2.0 {
        return Vec::new();
    }
    let path = |key: &str| format!("timeline.lanes.{at}.{key}");
    let paths = [
        path("time_ns"),
        "timeline.lane_median_ns".to_owned(),
        "timeline.lane_most_times".to_owned(),
        "timeline.lanes_own".to_owned(),
        path("operations"),
        path("bytes_read"),
        path("bytes_written"),
    ];
    let figures: Vec<&str> = paths.iter().map(String::as_str).collect();
    let text = format!(
        "{} spent {} in I/O, {} times as long as the process in the middle of {}, which spent {}.",
        most.label,
        span(most.time_ns),
        times(more),
        counted(timeline.lanes_own, "process", "processes"),
        span(median),
    );
    vec![finding("imbalance", Weight::Medium, text, "timeline", &figures).select(at)]
}

/// The rhythm of phases.
fn rhythm(run: &Run) -> Vec<Finding> {
    let Some((period, every)) = run
        .phases
        .period
        .as_ref()
        .and_then(|p| Some((p, p.period_ns?)))
    else {
        return Vec::new();
    };
    let figures = [
        "phases.period.period_ns",
        "phases.period.confidence",
        "phases.period.phase_ns",
        "phases.period.in_phases",
    ];
    let text = match period.method {
        Some("phases") => format!(
            "I/O comes in phases: one every {}, about {} long; {} of the time lies in them.",
            span(every),
            span(period.phase_ns),
            percent(period.in_phases),
        ),
        _ => format!(
            "I/O has a rhythm of {}: its activity is {} alike to itself after that time.",
            span(every),
            percent(period.confidence),
        ),
    };
    vec![finding("rhythm", Weight::Low, text, "phases", &figures)]
}

/// How predictable it is.
fn foreseen(run: &Run) -> Vec<Finding> {
    let Some(prediction) = &run.prediction else {
        return Vec::new();
    };
    let Some(right) = prediction.all.right_share else {
        return Vec::new();
    };
    // What was not judged was not foreseen.
    let all = prediction.all.operations + prediction.operations_without;
    let weight = match prediction.all.right as f64 >= 0.9 * all as f64 {
        true => Weight::Good,
        false => Weight::Low,
    };
    // A run may have begun with the model of an earlier one.
    let whose = match prediction.from {
        "trace" => "by a model that knew nothing at first",
        _ => "as the run itself judged it",
    };
    let mut text = format!(
        "{} of {} were foreseen exactly, {whose}",
        percent(right),
        counted(prediction.all.operations, "operation", "operations"),
    );
    let mut figures = vec![
        "prediction.all.right_share",
        "prediction.all.operations",
        "prediction.all.right",
        "prediction.all.hit_ratio",
    ];
    if prediction.operations_without > 0 {
        let without = prediction.operations_without;
        text += &format!(" ({} more were not judged)", grouped(without));
        figures.push("prediction.operations_without");
    }
    let busiest = prediction.processes.first();
    match busiest.and_then(|p| Some((p, p.perfect_after?))) {
        Some((process, after)) if process.all.operations > 4 * after.max(8) => {
            text += &format!(
                "; of {}, everything after the first {}.",
                process.process,
                grouped(after)
            );
            figures.push("prediction.processes.0.perfect_after");
        }
        _ => text.push('.'),
    }
    vec![finding("foreseen", weight, text, "prediction", &figures)]
}

/// What loading ahead came to.
fn prefetched(run: &Run) -> Vec<Finding> {
    let Some(prefetch) = run.prefetch.as_ref() else {
        return Vec::new();
    };
    let figures = [
        "prefetch.bytes_loaded",
        "prefetch.bytes_useful",
        "prefetch.bytes_wasted",
        "prefetch.useful_share",
        "prefetch.read_share",
    ];
    let Some(useful) = prefetch.useful_share else {
        let text = match prefetch.advised {
            true => {
                "Nothing was loaded ahead: it would not have paid, or there was nothing to load."
            }
            false => "Nothing was loaded ahead: the run was only watched.",
        };
        return vec![finding(
            "prefetch",
            Weight::Low,
            text.to_owned(),
            "prefetch",
            &figures[..1],
        )];
    };
    let weight = if useful >= 0.7 {
        Weight::Good
    } else {
        Weight::Medium
    };
    let of_reads = prefetch.read_share.map_or_else(String::new, |share| {
        format!(": {} of all bytes that were read", percent(share))
    });
    let text = format!(
        "{} were loaded before the program asked for them; {} of that ({}) were then read{of_reads}.",
        bytes(prefetch.bytes_loaded),
        bytes(prefetch.bytes_useful),
        percent(useful),
    );
    vec![finding("prefetch", weight, text, "prefetch", &figures)]
}

/// How much less reads waited than with nothing done, where the run has measured both.
fn hidden(run: &Run) -> Vec<Finding> {
    const FILES: usize = 3;
    const LEAST: f64 = 0.1;
    let waits = run.prefetch.iter().flat_map(|prefetch| &prefetch.waits);
    let waits = waits.enumerate().take(FILES);
    let waits = waits.filter(|(_, wait)| wait.hidden_share >= LEAST);
    let one = |(at, wait): (usize, &crate::doc::Wait)| {
        let what = match wait.method.as_str() {
            "no reading ahead" => "Not letting the system read ahead",
            _ => "Loading ahead",
        };
        let text = format!(
            "{what} hid {} of the time that reads of {} wait: {} a read with {}, {} with nothing.",
            percent(wait.hidden_share),
            quoted(&wait.name),
            span(wait.with_ns),
            wait.method,
            span(wait.without_ns),
        );
        let path = |key: &str| format!("prefetch.waits.{at}.{key}");
        let figures = ["hidden_share", "with_ns", "without_ns"].map(path);
        let figures: Vec<&str> = figures.iter().map(String::as_str).collect();
        finding("hidden", Weight::Good, text, "prefetch", &figures)
    };
    waits.map(one).collect()
}

/// Operations that failed.
fn failures(run: &Run) -> Vec<Finding> {
    let totals = &run.totals;
    let share = totals.failed as f64 / totals.operations as f64;
    if totals.failed == 0 {
        return Vec::new();
    }
    let weight = if share >= 0.05 {
        Weight::Medium
    } else {
        Weight::Low
    };
    let most = totals.errors.first().map_or_else(String::new, |error| {
        format!(", most often with {}", error_name(error.error))
    });
    let text = format!(
        "{} of {} operations failed{most}.",
        grouped(totals.failed),
        grouped(totals.operations)
    );
    let mut figures = vec!["totals.failed", "totals.operations"];
    if !totals.errors.is_empty() {
        figures.extend(["totals.errors.0.error", "totals.errors.0.times"]);
    }
    vec![finding("failures", weight, text, "overview", &figures)]
}

/// The usual errors by name.
fn error_name(error: i64) -> String {
    let name = match error {
        1 => "“operation not permitted”",
        2 => "“no such file or directory”",
        4 => "“interrupted”",
        5 => "“input/output error”",
        9 => "“bad file descriptor”",
        11 => "“try again”",
        13 => "“permission denied”",
        17 => "“file exists”",
        20 => "“not a directory”",
        21 => "“is a directory”",
        22 => "“invalid argument”",
        28 => "“no space left on device”",
        29 => "“illegal seek”",
        122 => "“quota exceeded”",
        n => return format!("error {n}"),
    };
    name.to_owned()
}

/// What nobody saw.
fn unseen(run: &Run) -> Vec<Finding> {
    let count = run.not_seen_count as u64;
    if count == 0 {
        return Vec::new();
    }
    let text = format!(
        "{} could not be seen, and {} not in these figures.",
        counted(count, "thing", "things"),
        if count == 1 { "is" } else { "are" },
    );
    vec![finding(
        "not-seen",
        Weight::Low,
        text,
        "unseen",
        &["not_seen_count"],
    )]
}

/// What several runs differ in: each against the first.
pub(crate) fn of_comparison(runs: &[Run], measures: &[Measure]) -> Vec<Finding> {
    let Some((first, others)) = runs.split_first() else {
        return Vec::new();
    };
    let others = others.iter().enumerate();
    others
        .flat_map(|(n, run)| differences(first, n + 1, run, measures))
        .collect()
}

/// Ratios nearer to 1 are no difference.
const SAME: f64 = 0.05;

/// What runs are said to differ in: how long they took, and how long they waited.
const TOLD: [&str; 4] = ["elapsed_ns", "duration_ns", "read_ns", "write_ns"];

fn differences(first: &Run, at: usize, run: &Run, measures: &[Measure]) -> Vec<Finding> {
    let has_elapsed = first.totals.elapsed_ns.is_some() && run.totals.elapsed_ns.is_some();
    let measures = measures.iter().enumerate();
    let told = measures.filter(|(_, measure)| TOLD.contains(&measure.key));
    // One of both says how long a run took.
    let told = told.filter(|(_, measure)| !(measure.key == "duration_ns" && has_elapsed));
    told.filter_map(|(number, measure)| difference(first, at, run, number, measure))
        .collect()
}

fn difference(
    first: &Run,
    at: usize,
    run: &Run,
    number: usize,
    measure: &Measure,
) -> Option<Finding> {
    let change = measure.differs[at].filter(|change| *change >= SAME)?;
    let (before, after) = (measure.values[0]? as u64, measure.values[at]? as u64);
    let less = after < before;
    let sentence = match measure.key {
        "elapsed_ns" | "duration_ns" => format!("“{}” took {}", run.name, span(after)),
        "read_ns" => format!("“{}” waited {} for reads", run.name, span(after)),
        _ => format!("“{}” waited {} for writes", run.name, span(after)),
    };
    let text = format!(
        "{sentence}: {} {} than “{}”, where it was {}.",
        percent(change),
        if less { "less" } else { "more" },
        first.name,
        span(before),
    );
    let weight = match (less, change > 0.2) {
        (true, _) => Weight::Good,
        (false, true) => Weight::High,
        (false, false) => Weight::Medium,
    };
    let figures = [
        format!("runs.0.totals.{}", measure.key),
        format!("runs.{at}.totals.{}", measure.key),
        format!("comparison.measures.{number}.differs.{at}"),
    ];
    let figures: Vec<&str> = figures.iter().map(String::as_str).collect();
    let found = finding("difference", weight, text, "comparison", &figures);
    Some(found.select(at))
}
