//! The curves of the paper's figures 2 to 8, of the busiest process of each layer.

use super::stream::Stream;
use crate::failure::failure;
use crate::svg::{BLUE, Chart, GREY, Line, ORANGE};
use presagio_core::{Layer, Nanos};
use presagio_predict::score::{Between, Curve, SIZE_ERROR_MAX, Score};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

pub fn draw(dir: &Path, streams: &[Stream]) -> anyhow::Result<()> {
    let explain = |error| failure(dir.display(), error, "name a directory that can be written");
    fs::create_dir_all(dir).map_err(explain)?;
    let mut layers = BTreeSet::new();
    // The busiest come first.
    let busiest = streams.iter().filter(|s| layers.insert(s.layer));
    for stream in busiest {
        for (figure, chart) in charts(stream) {
            let path = dir.join(file_name(stream.layer, figure));
            fs::write(path, chart.svg()).map_err(explain)?;
        }
    }
    Ok(())
}

fn file_name(layer: Layer, figure: &str) -> String {
    format!("{layer}-{figure}.svg")
}

fn charts(stream: &Stream) -> Vec<(&'static str, Chart)> {
    let score = &stream.score;
    let curves = score.curves();
    let of = |title: &str| format!("{title}: {}, {}", stream.name, stream.layer);
    let percent = |name: &str, curve: &Curve| {
        let lines = vec![line("", BLUE, curve, 100.0)];
        chart(of(name), "right (%)", lines).up_to(100.0)
    };
    let (contexts, hit) = (
        percent("Next context", &curves.contexts),
        percent("Hit ratio", &curves.hit),
    );
    let sizes = vec![line("", BLUE, &curves.size_error, 1.0)];
    let sizes = chart(of("Relative error of sizes"), "error", sizes).up_to(SIZE_ERROR_MAX);
    let sizes = Chart {
        x: "reads and writes",
        ..sizes
    };
    vec![
        ("2-next-context", contexts),
        (
            "3-known-ahead",
            chart(of("Known ahead"), "operations", known_ahead(score)),
        ),
        (
            "4-grammar",
            chart(of("Size of the grammar"), "symbols", grammars(score)),
        ),
        ("5-size-error", sizes),
        ("6-hit-ratio", hit),
        (
            "7-times",
            chart(of("Time between operations"), "seconds", times(score)),
        ),
        (
            "8-time-difference",
            chart(of("Time off by"), "seconds", differences(score)).log(),
        ),
    ]
}

fn chart(title: String, y: &'static str, lines: Vec<Line>) -> Chart {
    Chart {
        title,
        x: "operations",
        y,
        x_is_log: false,
        is_log: false,
        y_max: None,
        lines,
    }
}

impl Chart {
    fn up_to(self, max: f64) -> Chart {
        let y_max = Some(max);
        Chart { y_max, ..self }
    }

    fn log(self) -> Chart {
        let is_log = true;
        Chart { is_log, ..self }
    }
}

fn line(name: &'static str, colour: &'static str, curve: &Curve, times: f64) -> Line {
    let points = curve.points().map(|(at, value)| (at as f64, value * times));
    Line {
        name,
        colour,
        points: points.collect(),
    }
}

fn known_ahead(score: &Score) -> Vec<Line> {
    let reach = score.reach();
    let end = reach.operations as f64;
    let trials = reach.trials.iter();
    let known = trials.map(|t| (t.operation as f64, t.right as f64));
    let remaining = Line {
        name: "remaining",
        colour: GREY,
        points: vec![(0.0, end), (end, 0.0)],
    };
    let known = Line {
        name: "known",
        colour: BLUE,
        points: known.collect(),
    };
    vec![remaining, known]
}

fn grammars(score: &Score) -> Vec<Line> {
    let curves = score.curves();
    let mut lines = vec![line("ours", BLUE, &curves.grammar, 1.0)];
    if score.grammars().1.is_some() {
        lines.insert(0, line("Sequitur", GREY, &curves.sequitur, 1.0));
        lines.insert(
            1,
            line("StarSequitur as published", ORANGE, &curves.exact, 1.0),
        );
    }
    lines
}

fn between(score: &Score, value: impl Fn(&Between) -> Option<Nanos>) -> Vec<(f64, f64)> {
    let point = |b: &Between| value(b).map(|v| (b.operation as f64, v.as_secs_f64()));
    score.between().filter_map(point).collect()
}

fn times(score: &Score) -> Vec<Line> {
    let observed = Line {
        name: "observed",
        colour: GREY,
        points: between(score, |b| Some(b.observed)),
    };
    let predicted = Line {
        name: "predicted",
        colour: BLUE,
        points: between(score, |b| b.predicted),
    };
    vec![observed, predicted]
}

fn differences(score: &Score) -> Vec<Line> {
    let difference = |b: &Between| {
        let predicted = b.predicted.unwrap_or(Nanos::ZERO);
        Some(Nanos(predicted.0.abs_diff(b.observed.0)))
    };
    vec![Line {
        name: "",
        colour: BLUE,
        points: between(score, difference),
    }]
}
