//! A profile in tables, or as one JSON document.

use super::Found;
use crate::size::Size;
use crate::table::{Cell, Table};
use crate::terminal::{counted, prose};
use presagio_core::{Nanos, Op};
use presagio_device::Profile;
use presagio_device::profile::{Pattern, Ratios, Test};
use presagio_profile::compare::{Comparison, Errors};
use serde_json::{Map, Value, json};
use std::io::{self, Write};

pub fn show(found: &Found, is_json: bool) -> io::Result<()> {
    let out = &mut io::stdout().lock();
    if is_json {
        return writeln!(out, "{:#}", json(found));
    }
    let shown = found
        .checked
        .as_ref()
        .map_or(&found.profile, |(full, _)| full);
    writeln!(out, "{}\n", prose(&heading(shown)))?;
    speeds(shown).write(out)?;
    writeln!(out)?;
    for op in Op::ALL {
        writeln!(out, "{}", prose(&sentence(op, shown.ratios(op))))?;
    }
    if !shown.is_full() {
        writeln!(out)?;
        measured(shown).write(out)?;
    }
    if let Some((_, comparison)) = &found.checked {
        writeln!(out)?;
        comparison_table(comparison).write(out)?;
        writeln!(out, "\n{}", prose(&verdict(comparison)))?;
    }
    for note in &found.profile.about().notes {
        writeln!(out, "\n{}", prose(&format!("Note: {note}.")))?;
    }
    Ok(())
}

fn heading(profile: &Profile) -> String {
    let about = profile.about();
    format!(
        "{}: {} {}, a file of {}, {} at a time, measured in {}",
        about.device,
        counted(profile.sizes().count() as u64, "size"),
        if profile.is_full() {
            "one by one"
        } else {
            "from a few"
        },
        Size(about.file_bytes.max(1)),
        counted(about.depth.into(), "request"),
        span(about.seconds),
    )
}

/// Seconds as a person says them.
fn span(seconds: f64) -> String {
    match seconds {
        s if s < 100.0 => format!("{s:.1} s"),
        s if s < 6000.0 => format!("{:.1} minutes", s / 60.0),
        s => format!("{:.1} hours", s / 3600.0),
    }
}

/// Sizes that have a line: each power of two, and the ends of intervals.
fn sizes(profile: &Profile) -> Vec<u64> {
    let is_end = |size: u64| {
        let mut intervals = profile.intervals().iter();
        intervals.any(|i| i.least() == size || i.most() == size)
    };
    let all = profile.sizes();
    all.filter(|size| size.is_power_of_two() || is_end(*size))
        .collect()
}

fn speeds(profile: &Profile) -> Table {
    let speed = |test, size: u64| Cell::Number(size as f64 * 1e3 / profile.ns(test, size), 1);
    let row = |size: u64| {
        let mut row = vec![Cell::Bytes(size)];
        for op in Op::ALL {
            row.push(speed(Test::of(op, Pattern::Sequential), size));
            row.push(speed(Test::of(op, Pattern::Random), size));
            row.push(Cell::Number(profile.ratio(op, size), 2));
        }
        row
    };
    Table {
        title: "MB/s by the size of requests, and how many times as fast sequence is".to_owned(),
        columns: vec![
            ("size", "size"),
            ("sequential_read", "seq. read"),
            ("random_read", "random"),
            ("read_ratio", "ratio"),
            ("sequential_write", "seq. write"),
            ("random_write", "random"),
            ("write_ratio", "ratio"),
        ],
        rows: sizes(profile).into_iter().map(row).collect(),
    }
}

fn sentence(op: Op, ratios: Ratios) -> String {
    format!(
        "{op}s: in sequence {:.2} times as fast as at random on average, from {:.2} ({}) to {:.2} ({})",
        ratios.average,
        ratios.least.1,
        Size(ratios.least.0),
        ratios.most.1,
        Size(ratios.most.0),
    )
}

fn measured(profile: &Profile) -> Table {
    let rows = Test::ALL.into_iter().flat_map(|test| {
        let row = move |point: &presagio_device::profile::Point| {
            vec![
                Cell::Text(test.name().to_owned()),
                Cell::Bytes(point.size),
                Cell::Span(Nanos(point.ns as u64)),
                Cell::Number(100.0 * point.plus_minus_ns / point.ns, 1),
                Cell::Count(point.runs.into()),
                Cell::Count(point.requests),
            ]
        };
        profile.points(test).iter().map(row)
    });
    Table {
        title: format!(
            "What was measured, with confidence intervals of {:.0} %",
            profile.about().confidence_percent
        ),
        columns: vec![
            ("test", "test"),
            ("size", "size"),
            ("time", "time"),
            ("plus_minus_percent", "± %"),
            ("runs", "runs"),
            ("requests", "requests"),
        ],
        rows: rows.collect(),
    }
}

fn comparison_table(comparison: &Comparison) -> Table {
    let row = |name: &str, errors: Errors| {
        vec![
            Cell::Text(name.to_owned()),
            Cell::Number(100.0 * errors.median, 2),
            Cell::Number(100.0 * errors.most, 1),
        ]
    };
    let times = Test::ALL.iter().zip(comparison.times);
    let mut rows: Vec<Vec<Cell>> = times
        .map(|(test, errors)| row(&format!("time of a {test}"), errors))
        .collect();
    let ratios = Op::ALL.iter().zip(comparison.ratios);
    rows.extend(ratios.map(|(op, errors)| row(&format!("ratio of {op}s"), errors)));
    rows.push(row("all ratios", comparison.all_ratios));
    Table {
        title: "How far the fast way is from the full one, over all sizes".to_owned(),
        columns: vec![
            ("figure", "figure"),
            ("median_percent", "median %"),
            ("most_percent", "most %"),
        ],
        rows,
    }
}

fn verdict(comparison: &Comparison) -> String {
    format!(
        "The fast way took {}, the full one {}: 1/{:.0} of the time, with a median error of {:.2} % in the ratios.",
        span(comparison.fast_s),
        span(comparison.full_s),
        comparison.speed_up(),
        100.0 * comparison.all_ratios.median
    )
}

fn json(found: &Found) -> Value {
    let Some((full, comparison)) = &found.checked else {
        return profile_json(&found.profile);
    };
    json!({
        "fast": profile_json(&found.profile),
        "full": profile_json(full),
        "comparison": {
            "errors": comparison_table(comparison).json(),
            "fast_seconds": comparison.fast_s,
            "full_seconds": comparison.full_s,
            "speed_up": comparison.speed_up(),
        },
    })
}

/// What a profile's file has, and the ratios.
fn profile_json(profile: &Profile) -> Value {
    let ratios: Map<String, Value> = Op::ALL
        .iter()
        .map(|op| (op.to_string(), ratios_json(profile, *op)))
        .collect();
    let mut json = profile.to_json();
    json["full"] = json!(profile.is_full());
    json["ratios"] = Value::Object(ratios);
    json
}

fn ratios_json(profile: &Profile, op: Op) -> Value {
    let ratios = profile.ratios(op);
    let extreme = |(size, ratio): (u64, f64)| json!({ "size": size, "ratio": ratio });
    let sizes = profile
        .sizes()
        .map(|size| extreme((size, profile.ratio(op, size))));
    json!({
        "average": ratios.average,
        "least": extreme(ratios.least),
        "most": extreme(ratios.most),
        "sizes": sizes.collect::<Vec<_>>(),
    })
}
