//! `presagio bench sched`: what does the scheduler cost, and does it keep its promises?
//!
//! Three things are measured, for every policy:
//!
//! - the table ([`case`]): time and memory per request, by number of files, pattern and backlog, with a bare
//!   ordered map beside it in the same run;
//! - instructions per submit ([`count`]), to see the algorithm without the cache;
//! - live switches ([`switch`]) with the queue full.
//!
//! Submits with fewer requests queued than there are files have a bar of their own, with the same limit: there
//! every request opens a queue, which is another cost than finding a place in one. Memory is judged where the
//! fixed part no longer matters.
//!
//! [`stream`] makes the requests, [`drive`] takes them through a scheduler in virtual time.

mod case;
pub mod count;
mod drive;
mod stream;
mod switch;

use super::{Bar, Effort, Report, Scope};
use crate::failure::one_line;
use crate::progress::progress;
use crate::table::{Cell, Table};
use case::Measured;
use indicatif::ProgressBar;
use presagio_sched::PolicyKind;
use std::sync::Mutex;
use std::time::Duration;
use stream::Pattern;
use switch::Switch;

/// The cases, by effort.
struct Plan {
    files: &'static [u64],
    backlogs: &'static [u64],
    /// Chunks that are timed in each case without a backlog, and with one.
    samples: (u64, u64),
    /// The two backlogs between which instructions must not grow; `None`: not counted.
    count: Option<(u64, u64)>,
    switch_queued: u64,
    switch_repetitions: u32,
}

impl Plan {
    fn new(effort: Effort) -> Plan {
        match effort {
            Effort::Full => Plan {
                files: &[1, 64, 4096],
                backlogs: &[1_000, 100_000, 1_000_000],
                samples: (400, 150),
                count: Some((1_000, 1_000_000)),
                switch_queued: 1_000_000,
                switch_repetitions: 4,
            },
            Effort::Quick => Plan {
                files: &[1, 64, 4096],
                backlogs: &[1_000, 100_000],
                samples: (100, 60),
                count: Some((1_000, 100_000)),
                switch_queued: 100_000,
                switch_repetitions: 4,
            },
            Effort::Tiny => Plan {
                files: &[1, 64],
                backlogs: &[1_000],
                samples: (2, 2),
                count: None,
                switch_queued: 1_000,
                switch_repetitions: 1,
            },
        }
    }

    /// The least backlog at which memory is judged: where the fixed part no longer matters.
    fn memory_backlog(&self) -> u64 {
        self.backlogs
            .iter()
            .copied()
            .max()
            .unwrap_or(0)
            .min(100_000)
    }

    fn steps(&self) -> u64 {
        let streams = case::streams(self.files).len() * PolicyKind::ALL.len();
        let counts = if self.count.is_some() {
            2 * PolicyKind::ALL.len()
        } else {
            0
        };
        let switches = PolicyKind::ALL.len() - 1;
        (streams * (1 + self.backlogs.len()) + counts + switches) as u64
    }
}

pub fn run(scope: &Scope) -> anyhow::Result<Report> {
    let effort = scope.effort;
    let plan = Plan::new(effort);
    let progress = progress(plan.steps());
    let cases = cases(&plan, &progress)?;
    let switches = switches(&plan, &progress)?;
    let counts = counts(&plan, &progress);
    progress.finish_and_clear();
    Ok(report(&plan, &cases, &counts, &switches))
}

/// The whole table. Policies that share a stream and a backlog share the ordered map too.
fn cases(plan: &Plan, progress: &ProgressBar) -> anyhow::Result<Vec<Measured>> {
    let mut cases = Vec::new();
    for stream in case::streams(plan.files) {
        for policy in PolicyKind::ALL {
            progress.set_message(format!("{policy}: no backlog"));
            cases.push(case::without_backlog(policy, stream, plan.samples.0)?);
            progress.inc(1);
        }
        for backlog in plan.backlogs {
            let mut map = case::Map::filled(stream, *backlog);
            for policy in PolicyKind::ALL {
                progress.set_message(format!("{policy}: {} queued", short(*backlog)));
                cases.push(case::with_backlog(policy, &mut map, plan.samples.1)?);
                progress.inc(1);
            }
        }
    }
    cases.sort_by_key(|c| (c.policy, c.stream.files, c.stream.pattern as u8, c.backlog));
    Ok(cases)
}

fn switches(plan: &Plan, progress: &ProgressBar) -> anyhow::Result<Vec<Switch>> {
    let others = PolicyKind::ALL
        .into_iter()
        .filter(|policy| *policy != switch::FROM);
    let measure = |to| {
        progress.set_message(format!("{} to {to}", switch::FROM));
        let found = switch::best_of(
            plan.switch_repetitions,
            to,
            plan.switch_queued,
            SWITCH_LIMIT,
        );
        progress.inc(1);
        found
    };
    others.map(measure).collect()
}

/// Instructions per submit of one policy at the two backlogs, or why there are none.
type Counted = (PolicyKind, Result<(f64, f64), String>);

/// Counts policies, two at a time: valgrind runs on one core, and counts do not mind company.
fn counts(plan: &Plan, progress: &ProgressBar) -> Vec<Counted> {
    let Some(backlogs) = plan.count else {
        return PolicyKind::ALL
            .map(|policy| (policy, Err("too small a run".to_owned())))
            .to_vec();
    };
    let (todo, done) = (
        Mutex::new(PolicyKind::ALL.into_iter()),
        Mutex::new(Vec::new()),
    );
    let work = || {
        while let Some(policy) = next_of(&todo) {
            progress.set_message(format!("{policy}: counting instructions"));
            let counted = count_both(policy, backlogs).map_err(|error| one_line(&error));
            progress.inc(2);
            lock(&done).push((policy, counted));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
    let mut done = done
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    done.sort_by_key(|(policy, _)| *policy);
    done
}

fn count_both(policy: PolicyKind, (few, many): (u64, u64)) -> anyhow::Result<(f64, f64)> {
    let at = |backlog| count::Args {
        policy,
        files: 1,
        pattern: Pattern::Random,
        backlog,
        submits: 1_000,
    };
    Ok((
        count::instructions(&at(few))?,
        count::instructions(&at(many))?,
    ))
}

/// The next policy, with the lock held no longer than that takes.
fn next_of(todo: &Mutex<impl Iterator<Item = PolicyKind>>) -> Option<PolicyKind> {
    lock(todo).next()
}

/// A panic elsewhere leaves nothing half done in these.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

const REQUESTS_PER_SECOND: f64 = 1e6;
const SUBMIT_RATIO: f64 = 1.5;
const INSTRUCTIONS_RATIO: f64 = 2.5;
const BYTES: f64 = 160.0;
const SWITCH_LIMIT: Duration = Duration::from_millis(1);

fn report(plan: &Plan, cases: &[Measured], counts: &[Counted], switches: &[Switch]) -> Report {
    let mut bars: Vec<Bar> = PolicyKind::ALL
        .into_iter()
        .zip(counts)
        .flat_map(|(policy, counted)| policy_bars(plan, policy, cases, counted))
        .collect();
    bars.push(switch_bar(plan, switches));
    let mut tables = vec![
        ("cases", case_table(cases)),
        ("switches", switch_table(plan, switches)),
    ];
    if let Some(backlogs) = plan.count {
        tables.push(("instructions", count_table(backlogs, counts)));
    }
    Report {
        tables,
        notes: notes(plan),
        bars,
    }
}

fn policy_bars(plan: &Plan, policy: PolicyKind, cases: &[Measured], counted: &Counted) -> Vec<Bar> {
    let of = |backlog: u64| {
        cases
            .iter()
            .filter(move |c| c.policy == policy && c.backlog == backlog)
    };
    let slowest = largest(of(0).map(|c| c.request_ns));
    let rate = Bar::at_least(
        format!("{policy}: requests/s, no backlog"),
        1e9 / slowest,
        "/s",
        REQUESTS_PER_SECOND,
    );
    let ratios = |sparse: bool, backlog: u64| {
        of(backlog)
            .filter(move |c| opens_queues(c) == sparse)
            .filter_map(Measured::ratio)
    };
    let ratio = |backlog: &u64| {
        let name = format!("{policy}: submit / map insert at {}", short(*backlog));
        Bar::at_most(name, largest(ratios(false, *backlog)), "", SUBMIT_RATIO)
    };
    let sparse = |backlog: &u64| {
        let worst = ratios(true, *backlog).reduce(f64::max)?;
        let name = format!("{policy}: submit / map, {} in more files", short(*backlog));
        Some(Bar::at_most(name, worst, "", SUBMIT_RATIO))
    };
    let judged = plan
        .backlogs
        .iter()
        .filter(|backlog| **backlog >= plan.memory_backlog());
    let bytes = largest(
        judged
            .flat_map(|backlog| of(*backlog))
            .filter_map(|c| c.bytes),
    );
    let mut bars = vec![rate];
    bars.extend(plan.backlogs.iter().map(ratio));
    bars.extend(plan.backlogs.iter().filter_map(sparse));
    bars.push(instructions_bar(plan, policy, counted));
    bars.push(Bar::at_most(
        format!("{policy}: bytes per queued request"),
        bytes,
        "bytes",
        BYTES,
    ));
    bars
}

fn instructions_bar(plan: &Plan, policy: PolicyKind, (_, counted): &Counted) -> Bar {
    let (few, many) = plan.count.unwrap_or((1_000, 1_000_000));
    let name = format!(
        "{policy}: submit instructions {} / {}",
        short(many),
        short(few)
    );
    let bar = |value| Bar::at_most(name, value, "", INSTRUCTIONS_RATIO);
    match counted {
        Ok((at_few, at_many)) => bar(at_many / at_few),
        Err(why) => bar(f64::NAN).not_measured(why),
    }
}

fn switch_bar(plan: &Plan, switches: &[Switch]) -> Bar {
    let name = format!(
        "live switch, {} queued: longest call",
        short(plan.switch_queued)
    );
    Bar::at_most(
        name,
        largest(switches.iter().map(|s| ms(s.longest))),
        "ms",
        ms(SWITCH_LIMIT),
    )
}

fn case_table(cases: &[Measured]) -> Table {
    let row = |c: &Measured| {
        vec![
            Cell::Text(c.policy.to_string()),
            Cell::Count(c.stream.files),
            Cell::Text(c.stream.pattern.name().to_owned()),
            Cell::Count(c.backlog),
            Cell::Number(c.request_ns, 0),
            Cell::Number(c.submit_ns, 0),
            Cell::maybe(c.insert_ns, 0),
            Cell::maybe(c.ratio(), 2),
            Cell::maybe(c.bytes, 0),
        ]
    };
    Table {
        title: "Time and memory of a 4 KiB read through the scheduler, on one core".into(),
        columns: vec![
            ("policy", "policy"),
            ("files", "files"),
            ("pattern", "pattern"),
            ("backlog", "backlog"),
            ("ns_per_request", "ns/request"),
            ("ns_per_submit", "ns/submit"),
            ("ns_per_map_insert", "ns/map"),
            ("submit_per_map_insert", "ratio"),
            ("bytes_per_queued_request", "bytes"),
        ],
        rows: cases.iter().map(row).collect(),
    }
}

fn switch_table(plan: &Plan, switches: &[Switch]) -> Table {
    let row = |s: &Switch| {
        vec![
            Cell::Text(s.to.to_string()),
            Cell::Number(ms(s.longest), 3),
            Cell::Text(s.call.to_owned()),
        ]
    };
    Table {
        title: format!(
            "Live switch from {} with {} requests queued",
            switch::FROM,
            short(plan.switch_queued)
        ),
        columns: vec![
            ("to", "to"),
            ("longest_call_ms", "longest call, ms"),
            ("call", "call"),
        ],
        rows: switches.iter().map(row).collect(),
    }
}

fn count_table((few, many): (u64, u64), counts: &[Counted]) -> Table {
    let row = |(policy, counted): &Counted| {
        let pair = counted.as_ref().ok();
        vec![
            Cell::Text(policy.to_string()),
            Cell::maybe(pair.map(|(at_few, _)| *at_few), 0),
            Cell::maybe(pair.map(|(_, at_many)| *at_many), 0),
        ]
    };
    Table {
        title: format!(
            "Instructions per submit, one file, random, with {} and with {} queued",
            short(few),
            short(many)
        ),
        columns: vec![
            ("policy", "policy"),
            ("few_queued", "few queued"),
            ("many_queued", "many queued"),
        ],
        rows: counts.iter().map(row).collect(),
    }
}

/// Whether there are fewer requests than files, so that most submits open a queue of their own.
fn opens_queues(case: &Measured) -> bool {
    case.backlog < case.stream.files
}

fn notes(plan: &Plan) -> Vec<String> {
    let submits = "ns/request: submit, next and finish until the queue is empty. ns/submit and ns/map: medians of \
                   chunks that took turns in the same run; the map is an ordered map (BTreeMap) of the same \
                   requests, and ratio is submit / map insert.";
    let bytes = format!(
        "bytes: memory per queued request beyond the request itself; its bar is judged at {} queued and more.",
        short(plan.memory_backlog())
    );
    let switches = format!(
        "Live switch: the longest single call until the old policy is dry. The same calls are made up to {} times, and each \
         counts with its shortest time, since the machine itself may stop a process for milliseconds at any moment.",
        plan.switch_repetitions
    );
    vec![submits.to_owned(), bytes, switches]
}

/// The largest value; not a number if there is none, so that a bar on nothing does not hold.
fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::NAN, f64::max)
}

fn ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

/// `1 k`, `100 k`, `1 M`.
fn short(count: u64) -> String {
    match count {
        0..1_000 => count.to_string(),
        1_000..1_000_000 => format!("{} k", count / 1_000),
        _ => format!("{} M", count / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_on_nothing_does_not_hold() {
        let plan = Plan::new(Effort::Full);
        let counted = (PolicyKind::Sjf, Err("no valgrind".to_owned()));
        let bars = policy_bars(&plan, PolicyKind::Sjf, &[], &counted);
        assert!(bars.iter().all(|bar| bar.holds() != Some(true)));
        assert_eq!(switch_bar(&plan, &[]).holds(), Some(false));
    }

    fn case(files: u64, backlog: u64, submit_ns: f64, bytes: f64) -> Measured {
        Measured {
            policy: PolicyKind::To,
            stream: stream::Stream {
                files,
                pattern: Pattern::Random,
            },
            backlog,
            request_ns: 1.0,
            submit_ns,
            insert_ns: Some(100.0),
            bytes: Some(bytes),
        }
    }

    /// The value of the one bar of TO whose name contains `part`.
    fn value(cases: &[Measured], part: &str) -> Result<f64, String> {
        let counted = (PolicyKind::To, Ok((10.0, 30.0)));
        let plan = Plan::new(Effort::Quick);
        let bars = policy_bars(&plan, PolicyKind::To, cases, &counted);
        let named = bars.into_iter().find(|bar| bar.name.contains(part));
        named.unwrap().value
    }

    #[test]
    fn the_worst_case_decides() {
        let cases = [case(1, 100_000, 120.0, 80.0), case(1, 100_000, 160.0, 70.0)];
        assert_eq!(value(&cases, "insert at 100 k"), Ok(1.6));
        assert_eq!(value(&cases, "bytes"), Ok(80.0));
        assert_eq!(value(&cases, "instructions 100 k / 1 k"), Ok(3.0));
    }

    #[test]
    fn fewer_requests_than_files_have_a_bar_of_their_own() {
        let cases = [
            case(1000, 1_000, 140.0, 80.0),
            case(4096, 1_000, 180.0, 300.0),
            case(4096, 1_000, 210.0, 300.0),
        ];
        assert_eq!(value(&cases, "insert at 1 k"), Ok(1.4));
        assert_eq!(value(&cases, "1 k in more files"), Ok(2.1));
    }

    #[test]
    fn the_notes_say_where_memory_is_judged() {
        let notes = notes(&Plan::new(Effort::Full));
        assert!(
            notes
                .iter()
                .any(|note| note.contains("at 100 k queued and more"))
        );
    }

    #[test]
    fn the_bar_for_progress_counts_every_step() {
        assert_eq!(Plan::new(Effort::Full).steps(), 6 * 4 * 10 + 20 + 9);
        assert_eq!(Plan::new(Effort::Tiny).steps(), 4 * 2 * 10 + 9);
    }
}
