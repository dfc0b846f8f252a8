//! What was found, as tables or as JSON.

use super::study::{Period, Study};
use super::{Args, Way};
use crate::table::{Cell, Table};
use presagio_core::Op;
use presagio_pattern::{Tally, Verdict};
use serde_json::{Value, json};
use std::io::{self, Write};

pub fn show(out: &mut impl Write, studies: &[Study], args: &Args) -> io::Result<()> {
    let summary = summary(studies, args.labels.is_some());
    if args.json {
        let periods = |study: &Study| -> Vec<Value> {
            study
                .periods
                .iter()
                .map(|period| object(study, period))
                .collect()
        };
        let periods: Vec<Value> = studies.iter().flat_map(periods).collect();
        let document = json!({ "ways": summary.json(), "periods": periods });
        return writeln!(out, "{document:#}");
    }
    if let [study] = studies {
        stretches(study).write(out)?;
        writeln!(out)?;
    }
    summary.write(out)
}

fn object(study: &Study, period: &Period) -> Value {
    json!({
        "way": study.name,
        "trace": period.trace,
        "place": period.place,
        "period": period.number,
        "reads": period.requests[0],
        "writes": period.requests[1],
        "files": period.files,
        "pattern": period.id.0,
        "match": period.score.is_some(),
        "score": period.score,
        "compared": period.compared,
        "label": period.label,
        "matched_label": period.matched_label,
        "verdict": period.verdict.map(name),
    })
}

fn name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::TruePositive => "right",
        Verdict::FalsePositive => "wrong",
        Verdict::FalseNegative => "missed",
        Verdict::TrueNegative => "new",
    }
}

/// Periods of a place one after the other that were decided alike are one row.
fn stretches(study: &Study) -> Table {
    let mut periods: Vec<&Period> = study.periods.iter().collect();
    // Stable: the recordings stay in their order.
    periods.sort_by_key(|period| period.place);
    let alike = |a: &&Period, b: &&Period| {
        (a.place, &a.trace, a.id, a.verdict) == (b.place, &b.trace, b.id, b.verdict)
            && a.score.is_some() == b.score.is_some()
    };
    let row = |stretch: &[&Period]| {
        let (first, last) = (stretch[0], stretch[stretch.len() - 1]);
        let scores = stretch.iter().filter_map(|period| period.score);
        let text = |text: Option<&str>| text.map_or(Cell::Missing, |t| Cell::Text(t.to_owned()));
        let requests = stretch
            .iter()
            .flat_map(|period| period.requests)
            .map(u64::from);
        vec![
            Cell::Text(first.trace.clone()),
            Cell::Count(first.place.into()),
            Cell::Text(match stretch.len() {
                1 => first.number.to_string(),
                _ => format!("{}-{}", first.number, last.number),
            }),
            Cell::Count(requests.sum::<u64>() / stretch.len() as u64),
            Cell::Count(first.files.into()),
            Cell::Count(first.id.0.into()),
            Cell::maybe(scores.reduce(f64::min), 4),
            text(first.matched_label.as_deref()),
            text(first.verdict.map(name)),
        ]
    };
    Table {
        title: format!("Periods, matched as {}", study.name),
        columns: vec![
            ("trace", "trace"),
            ("place", "place"),
            ("periods", "periods"),
            ("requests", "requests"),
            ("files", "files"),
            ("pattern", "pattern"),
            ("score", "least score"),
            ("matched_label", "matches"),
            ("verdict", "which is"),
        ],
        rows: periods.chunk_by(alike).map(row).collect(),
    }
}

fn summary(studies: &[Study], is_judged: bool) -> Table {
    let row = |study: &Study| {
        let matches = study
            .periods
            .iter()
            .filter(|period| period.score.is_some())
            .count();
        let mut row = vec![
            Cell::Text(study.name.to_owned()),
            Cell::Count(study.periods.len() as u64),
            Cell::Count(matches as u64),
            Cell::Count(study.known() as u64),
        ];
        if studies.len() > 1 {
            row.push(Cell::maybe(agreement(study, studies), 1));
        }
        if is_judged {
            let mut all = study.tallies[0];
            all.add(study.tallies[1]);
            let [reads, writes] = Op::ALL.map(|op| study.tallies[op.index()]);
            row.extend([all, reads, writes].iter().flat_map(percents));
        }
        row
    };
    let mut columns = vec![
        ("way", "way"),
        ("periods", "periods"),
        ("matches", "matches"),
        ("known", "known patterns"),
    ];
    if studies.len() > 1 {
        columns.push(("agrees_percent", "as by FastDTW %"));
    }
    if is_judged {
        columns.extend([
            ("precision_percent", "precision %"),
            ("recall_percent", "recall %"),
            ("read_precision_percent", "reads: precision %"),
            ("read_recall_percent", "recall %"),
            ("write_precision_percent", "writes: precision %"),
            ("write_recall_percent", "recall %"),
        ]);
    }
    Table {
        title: "In all".into(),
        columns,
        rows: studies.iter().map(row).collect(),
    }
}

/// Percent of periods of which the same way with the published distance says the same: a match, or none.
fn agreement(study: &Study, studies: &[Study]) -> Option<f64> {
    let name = Way::counterpart(study.name)?.name();
    let other = studies.iter().find(|other| other.name == name)?;
    let pairs = study.periods.iter().zip(&other.periods);
    let same = pairs
        .filter(|(a, b)| a.score.is_some() == b.score.is_some())
        .count();
    Some(100.0 * same as f64 / study.periods.len().max(1) as f64)
}

fn percents(tally: &Tally) -> [Cell; 2] {
    [tally.precision(), tally.recall()].map(|share| Cell::maybe(share.map(|s| 100.0 * s), 1))
}
