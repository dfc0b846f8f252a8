//! A snapshot as tables, and as the words that the screen uses too.

use crate::table::{Cell, Table};
use crate::terminal::counted;
use presagio_core::Nanos;
use presagio_dashboard::{
    Context, Decision, Link, Node, NodeState, Pattern, Patterns, Sample, Snapshot,
};
use presagio_page::readable;
use std::io::{self, Write};

/// Decisions that are printed.
const DECISIONS: usize = 10;

/// Prints all of it.
pub fn print(snapshot: &Snapshot, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", headline(snapshot))?;
    writeln!(out, "{}", totals(snapshot))?;
    let tables = [
        nodes(snapshot),
        situations(snapshot),
        patterns(snapshot),
        decisions(snapshot),
    ];
    for table in tables {
        if !table.rows.is_empty() {
            writeln!(out)?;
            table.write(out)?;
        }
    }
    Ok(())
}

/// What it is, and how it decides.
pub fn headline(snapshot: &Snapshot) -> String {
    let mut parts = vec![match &*snapshot.service {
        "council" => format!("Council on {}", snapshot.name),
        _ => format!("I/O node {}", snapshot.name),
    }];
    let how = &snapshot.how;
    parts.push(
        match &*how.decides {
            "learned" => "learns",
            "trees" => "trees choose",
            _ => "the policy is given",
        }
        .to_owned(),
    );
    if let (Some(consensus), Some(agreed)) = (&how.consensus, &how.agreed) {
        parts.push(format!("{consensus} for {agreed}"));
    }
    if let Some(period) = how.period_s {
        parts.push(format!("every {period} s"));
    }
    parts.push(format!(
        "up {}",
        readable::span((snapshot.up_s as u64) * 1_000_000_000)
    ));
    parts.join(" · ")
}

/// The figures of all nodes.
pub fn totals(snapshot: &Snapshot) -> String {
    let totals = &snapshot.totals;
    let gone = match totals.nodes_gone {
        0 => String::new(),
        gone => format!(", {gone} gone"),
    };
    format!(
        "{}{gone} · read {} · write {} · {:.0} requests/s · {}+{} waiting · {}",
        counted(totals.nodes_here, "node"),
        rate(totals.read_bytes_per_s),
        rate(totals.write_bytes_per_s),
        totals.requests_per_s,
        totals.queued,
        totals.in_flight,
        counted(totals.decisions, "decision"),
    )
}

pub fn rate(bytes_per_s: f64) -> String {
    format!("{}/s", readable::bytes(bytes_per_s.round() as u64))
}

/// What is in force, as TWINS:0.5ms.
pub fn arm(node: &Node) -> String {
    match (&node.policy, node.window_us) {
        (Some(policy), Some(window)) => format!("{policy}:{}ms", window / 1e3),
        (Some(policy), None) => policy.clone(),
        (None, _) => "-".to_owned(),
    }
}

/// Who said so, or that it is not here.
pub fn by(node: &Node) -> String {
    match (node.state, &*node.by) {
        (NodeState::Gone, _) => "gone",
        (NodeState::Silent, _) => "silent",
        (NodeState::Here, "council") if node.explores => "council, a trial",
        (NodeState::Here, "node") if node.explores => "itself, a trial",
        (NodeState::Here, "council") => "council",
        (NodeState::Here, "node") => "itself",
        (NodeState::Here, "person") => "a person",
        (NodeState::Here, "trees") => "trees",
        (NodeState::Here, _) => "as started",
    }
    .to_owned()
}

fn span(ns: Option<u64>) -> Cell {
    ns.map_or(Cell::Missing, |ns| Cell::Span(Nanos(ns)))
}

fn nodes(snapshot: &Snapshot) -> Table {
    let row = |node: &Node| {
        let now = node.now.unwrap_or_default();
        vec![
            Cell::Text(node.name.clone()),
            Cell::Text(by(node)),
            Cell::Text(arm(node)),
            Cell::Text(rate(now.read_bytes_per_s)),
            Cell::Text(rate(now.write_bytes_per_s)),
            span(now.queue_ns_p99),
            span(now.service_ns_p99),
            Cell::Count(now.queued),
            Cell::Count(now.in_flight),
        ]
    };
    Table {
        title: "I/O nodes".to_owned(),
        columns: vec![
            ("name", "node"),
            ("by", "policy by"),
            ("arm", "policy"),
            ("read", "read"),
            ("write", "write"),
            ("queue_ns_p99", "queue p99"),
            ("service_ns_p99", "service p99"),
            ("queued", "waiting"),
            ("in_flight", "in service"),
        ],
        rows: snapshot.nodes.iter().map(row).collect(),
    }
}

fn situations(snapshot: &Snapshot) -> Table {
    let row = |it: &Context| {
        vec![
            Cell::Count(it.tries),
            Cell::Text(it.choice.clone().unwrap_or_else(|| best(it))),
            Cell::Text(rate(it.best_bytes_per_busy_s)),
            Cell::Text(it.context.clone()),
        ]
    };
    Table {
        title: "Situations".to_owned(),
        columns: vec![
            ("tries", "tries"),
            ("choice", "choice"),
            ("best", "best while busy"),
            ("context", "situation"),
        ],
        rows: snapshot.contexts.iter().map(row).collect(),
    }
}

/// The best arm of a situation.
fn best(context: &Context) -> String {
    let tried = context.arms.iter().filter(|arm| arm.value.is_some());
    let best = tried.max_by(|a, b| a.value.unwrap_or(0.0).total_cmp(&b.value.unwrap_or(0.0)));
    best.map_or_else(|| "-".to_owned(), |arm| arm.arm.clone())
}

fn patterns(snapshot: &Snapshot) -> Table {
    let none = Patterns::default();
    let known = snapshot.patterns.as_ref().unwrap_or(&none);
    let row = |it: &Pattern| {
        let mut after = followers(&known.chain, &pattern_name(it)).into_iter();
        vec![
            Cell::Text(pattern_name(it)),
            Cell::Count(it.times),
            Cell::Count(it.requests),
            Cell::Text(shape(it)),
            after.next().map_or(Cell::Missing, Cell::Text),
        ]
    };
    Table {
        title: format!("Patterns: {} known", known.known),
        columns: vec![
            ("pattern", "pattern"),
            ("times", "times"),
            ("requests", "requests"),
            ("shape", "shape"),
            ("next", "most often followed by"),
        ],
        rows: known.list.iter().map(row).collect(),
    }
}

/// What a pattern is called in chains.
pub fn pattern_name(pattern: &Pattern) -> String {
    format!("pattern {}", pattern.id)
}

/// What came after something, the most frequent first: `75 % pattern 3 (12 times)`.
pub fn followers(chain: &[Link], from: &str) -> Vec<String> {
    let mut links: Vec<&Link> = chain.iter().filter(|link| link.from == from).collect();
    links.sort_by_key(|link| std::cmp::Reverse(link.times));
    let words = |link: &&Link| {
        let times = counted(link.times, "time");
        format!("{} {} ({times})", readable::percent(link.share), link.to)
    };
    links.iter().map(words).collect()
}

/// A pattern's requests over its period.
pub fn shape(pattern: &Pattern) -> String {
    let bar = |height: &f64| BARS[((height.clamp(0.0, 1.0) * 7.0).round() as usize).min(7)];
    pattern.shape.iter().map(bar).collect()
}

fn decisions(snapshot: &Snapshot) -> Table {
    let row = |it: &Decision| {
        vec![
            Cell::Text(format!("{} ago", ago(snapshot.at_ms, it.last_ms))),
            Cell::Count(it.times),
            Cell::Text(it.node.clone()),
            Cell::Text(change(it)),
            Cell::Text(it.why.clone()),
        ]
    };
    Table {
        title: "Decisions".to_owned(),
        columns: vec![
            ("ago", "last"),
            ("times", "times"),
            ("node", "node"),
            ("chosen", "chosen"),
            ("why", "why"),
        ],
        rows: snapshot.decisions.iter().take(DECISIONS).map(row).collect(),
    }
}

/// How long ago something was.
pub fn ago(now_ms: u64, then_ms: u64) -> String {
    match now_ms.saturating_sub(then_ms) / 1000 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

/// `NOOP → SJF`, or `SJF` where it was in force already.
pub fn change(decision: &Decision) -> String {
    match &decision.before {
        Some(before) if *before != decision.chosen => format!("{before} → {}", decision.chosen),
        _ => decision.chosen.clone(),
    }
}

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The last samples as bars, the newest to the right; as many as fit into so many columns.
pub fn sparkline(samples: &[Sample], columns: usize, get: impl Fn(&Sample) -> f64) -> String {
    let shown = &samples[samples.len().saturating_sub(columns)..];
    let greatest = shown.iter().map(&get).fold(0.0, f64::max);
    let bar = |sample: &Sample| match greatest > 0.0 {
        true => BARS[((get(sample) / greatest * 7.0).round() as usize).min(7)],
        false => BARS[0],
    };
    let bars: String = shown.iter().map(bar).collect();
    format!("{bars:>columns$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_high_as_the_greatest_of_them() {
        let sample = |read: f64| Sample {
            read_bytes_per_s: read,
            ..Sample::default()
        };
        let samples: Vec<Sample> = [9.0, 0.0, 7.0, 14.0].into_iter().map(sample).collect();
        let get = |it: &Sample| it.read_bytes_per_s;
        assert_eq!(sparkline(&samples, 3, get), "▁▅█");
        assert_eq!(sparkline(&samples[1..2], 3, get), "  ▁");
        assert_eq!(sparkline(&[], 3, get), "   ");
    }

    #[test]
    fn it_is_printed_whatever_is_missing() {
        let mut out = Vec::new();
        let snapshot = Snapshot {
            nodes: vec![Node::default()],
            contexts: vec![Context::default()],
            decisions: vec![Decision::default()],
            patterns: Some(Patterns {
                known: 2,
                list: vec![Pattern::default()],
                ..Patterns::default()
            }),
            ..Snapshot::default()
        };
        print(&snapshot, &mut out).unwrap();
        print(&Snapshot::default(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.contains("I/O nodes")
                && text.contains("Situations")
                && text.contains("Patterns: 2 known"),
            "{text}"
        );
    }
}
