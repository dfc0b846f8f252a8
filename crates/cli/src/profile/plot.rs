//! The curves of a profile: the time of a request, and the ratio, over its size.

use crate::svg::{BLUE, Chart, GREEN, GREY, Line, ORANGE, stacked};
use presagio_core::Op;
use presagio_device::Profile;
use presagio_device::profile::Test;

const COLOURS: [&str; 4] = [BLUE, GREEN, GREY, ORANGE];

/// Both charts in one document.
pub fn svg(profile: &Profile) -> String {
    let device = &profile.about().device;
    let times = Test::ALL.into_iter().zip(COLOURS).map(|(test, colour)| {
        line(profile, test.name(), colour, |size| {
            profile.ns(test, size) / 1e6
        })
    });
    let ratios = [(Op::Read, "read", BLUE), (Op::Write, "write", ORANGE)];
    let ratios = ratios
        .into_iter()
        .map(|(op, name, colour)| line(profile, name, colour, move |size| profile.ratio(op, size)));
    stacked(&[
        chart(
            format!("Time of a request: {device}"),
            "ms",
            times.collect(),
        ),
        chart(
            format!("Sequential to random throughput: {device}"),
            "times as fast",
            ratios.collect(),
        ),
    ])
}

fn chart(title: String, y: &'static str, lines: Vec<Line>) -> Chart {
    Chart {
        title,
        x: "size of a request (KiB)",
        y,
        x_is_log: true,
        is_log: true,
        y_max: None,
        lines,
    }
}

fn line(
    profile: &Profile,
    name: &'static str,
    colour: &'static str,
    value: impl Fn(u64) -> f64,
) -> Line {
    let points = profile
        .sizes()
        .map(|size| (size as f64 / 1024.0, value(size)));
    Line {
        name,
        colour,
        points: points.collect(),
    }
}
