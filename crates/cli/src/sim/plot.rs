//! The makespans as a drawing: one bar a run, in the order of the table.

use super::Done;
use super::show::{gain, seconds};
use std::fmt::Write;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 330.0;
const RIGHT: f64 = 130.0;
const TOP: f64 = 44.0;
const ROW: f64 = 20.0;

/// Those that are compared with others, and those that others are compared with.
const BLUE: &str = "#1f5fbf";
const RED: &str = "#c0392b";

/// The drawing as an SVG document.
pub fn svg(done: &[Done]) -> String {
    let height = TOP + ROW * done.len() as f64 + 16.0;
    let longest = done.iter().map(seconds).fold(1e-9, f64::max);
    let title = done.first().map_or("", |d| d.run.scenario.title.as_str());
    let mut body = String::new();
    let _ = writeln!(
        body,
        "<text x=\"16\" y=\"24\" font-size=\"14\" font-weight=\"bold\">{}: makespan</text>",
        escaped(title)
    );
    for (at, run) in done.iter().enumerate() {
        body += &row(done, run, at, longest);
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
    )
}

fn row(done: &[Done], run: &Done, at: usize, longest: f64) -> String {
    let top = TOP + ROW * at as f64;
    let width = seconds(run) / longest * (WIDTH - LEFT - RIGHT);
    let values: Vec<&str> = run.run.varied.iter().map(|(_, v)| v.as_str()).collect();
    let gain = gain(done, at);
    let colour = if gain.is_some() { BLUE } else { RED };
    let gain = gain.map_or_else(String::new, |gain| format!(" ({gain:+.1} %)"));
    format!(
        "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{}</text>\n\
         <rect x=\"{LEFT}\" y=\"{top:.0}\" width=\"{width:.1}\" height=\"{:.0}\" fill=\"{colour}\"/>\n\
         <text x=\"{:.0}\" y=\"{:.0}\">{:.3} s{gain}</text>\n",
        LEFT - 8.0,
        top + 12.0,
        escaped(&values.join(", ")),
        ROW - 5.0,
        LEFT + width + 6.0,
        top + 12.0,
        seconds(run),
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
