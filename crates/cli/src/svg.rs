//! Line charts as SVG: axes with round numbers, a legend, nothing else.

use std::fmt::Write;

/// A chart.
pub struct Chart {
    pub title: String,
    pub x: &'static str,
    pub y: &'static str,
    /// Whether the x axis is logarithmic.
    pub x_is_log: bool,
    /// Whether the y axis is logarithmic; values at or below zero are then drawn at the bottom.
    pub is_log: bool,
    /// The end of the y axis, if it is not to follow from the values.
    pub y_max: Option<f64>,
    pub lines: Vec<Line>,
}

/// A line of a chart.
pub struct Line {
    pub name: &'static str,
    pub colour: &'static str,
    pub points: Vec<(f64, f64)>,
}

pub const BLUE: &str = "#1f5fbf";
pub const GREY: &str = "#9a9a9a";
pub const ORANGE: &str = "#d9822b";
pub const GREEN: &str = "#2e8b57";

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 48.0;

/// Ticks of an axis, about.
const TICKS: f64 = 6.0;

/// Several charts in one document, one below the other.
pub fn stacked(charts: &[Chart]) -> String {
    let height = HEIGHT * charts.len() as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\">\n"
    );
    for (index, chart) in charts.iter().enumerate() {
        let place = format!("<svg y=\"{}\" ", HEIGHT * index as f64);
        out += &chart.svg().replacen("<svg ", &place, 1);
    }
    out + "</svg>\n"
}

/// Where values stand on an axis.
struct Axis {
    low: f64,
    high: f64,
    is_log: bool,
}

impl Axis {
    /// From 0, or a round number, to one that is not below any value; or from one power of ten to another.
    fn over(values: impl Iterator<Item = f64> + Clone, is_log: bool, max: Option<f64>) -> Axis {
        let high = max.unwrap_or_else(|| values.clone().fold(0.0, f64::max));
        if !is_log {
            let low = values.fold(high, f64::min);
            // What is far from zero need not show it.
            let low = if low > high / 2.0 { low } else { 0.0 };
            let step = round_step((high - low).max(1e-9) / TICKS);
            let low = (low / step).floor() * step;
            let high = max.unwrap_or((high / step).ceil() * step);
            return Axis {
                low,
                high: high.max(low + step),
                is_log,
            };
        }
        let low = values.filter(|v| *v > 0.0).fold(f64::INFINITY, f64::min);
        let low = if low.is_finite() { low } else { 1.0 };
        let (low, high) = (low.log10().floor(), high.max(low).log10().ceil());
        Axis {
            low,
            high: high.max(low + 1.0),
            is_log,
        }
    }

    /// From 0 to 1.
    fn share(&self, value: f64) -> f64 {
        let value = match self.is_log {
            true if value > 0.0 => value.log10(),
            true => self.low,
            false => value,
        };
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// Where ticks are, and what is written there.
    fn ticks(&self) -> Vec<(f64, String)> {
        let step = match self.is_log {
            true => ((self.high - self.low) / 10.0).ceil().max(1.0),
            false => round_step((self.high - self.low) / TICKS),
        };
        let count = ((self.high - self.low) / step + 1e-6) as usize;
        let at = |n: usize| self.low + step * n as f64;
        let label = |value: f64| match self.is_log {
            true => format!("1e{value:.0}"),
            false => number(value),
        };
        (0..=count)
            .map(|n| ((at(n) - self.low) / (self.high - self.low), label(at(n))))
            .collect()
    }
}

/// 1, 2 or 5 times a power of ten, at least `step`.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let times = [1.0, 2.0, 5.0, 10.0].into_iter();
    let rounded = times.map(|t| t * power).find(|s| *s >= step * 0.999_999);
    rounded.unwrap_or(10.0 * power)
}

/// `25000` as `25k`.
fn number(value: f64) -> String {
    let (value, unit) = match value.abs() {
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = if value.fract().abs() < 1e-9 { 0 } else { 2 };
    let text = format!("{value:.digits$}");
    let text = match digits {
        0 => text.as_str(),
        _ => text.trim_end_matches('0').trim_end_matches('.'),
    };
    format!("{text}{unit}")
}

impl Chart {
    /// The chart as a document of its own.
    pub fn svg(&self) -> String {
        let all = self.lines.iter().flat_map(|l| l.points.iter().copied());
        let x = Axis::over(all.clone().map(|p| p.0), self.x_is_log, None);
        let y = all.map(|p| p.1).chain((!self.is_log).then_some(0.0));
        let y = Axis::over(y, self.is_log, self.y_max);
        let body = [self.frame(&x, &y), self.drawn(&x, &y), self.legend()].concat();
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
             height=\"{HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
        )
    }

    /// Title, axes and what they mean.
    fn frame(&self, x: &Axis, y: &Axis) -> String {
        let mut out = text(
            LEFT,
            20.0,
            "start",
            &self.title,
            "font-size=\"14\" font-weight=\"bold\"",
        );
        for (share, label) in y.ticks() {
            let at = down(share);
            out += &line(LEFT, at, WIDTH - RIGHT, at, "#e4e4e4");
            out += &text(LEFT - 6.0, at + 4.0, "end", &label, "");
        }
        for (share, label) in x.ticks() {
            let at = across(share);
            out += &line(at, HEIGHT - BOTTOM, at, HEIGHT - BOTTOM + 4.0, "#333");
            out += &text(at, HEIGHT - BOTTOM + 18.0, "middle", &label, "");
        }
        out += &line(
            LEFT,
            HEIGHT - BOTTOM,
            WIDTH - RIGHT,
            HEIGHT - BOTTOM,
            "#333",
        );
        out += &line(LEFT, TOP, LEFT, HEIGHT - BOTTOM, "#333");
        out += &text(
            (LEFT + WIDTH - RIGHT) / 2.0,
            HEIGHT - 10.0,
            "middle",
            self.x,
            "",
        );
        let turn = format!("transform=\"rotate(-90 16 {})\"", HEIGHT / 2.0);
        out += &text(16.0, HEIGHT / 2.0, "middle", self.y, &turn);
        out
    }

    fn drawn(&self, x: &Axis, y: &Axis) -> String {
        let mut out = String::new();
        for line in &self.lines {
            let mut points = String::new();
            for (px, py) in &line.points {
                let at = (across(x.share(*px)), down(y.share(*py)));
                let _ = write!(points, "{:.1},{:.1} ", at.0, at.1);
            }
            let _ = writeln!(
                out,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.3\"/>",
                points.trim_end(),
                line.colour
            );
        }
        out
    }

    /// What each line is, if there are several.
    fn legend(&self) -> String {
        let mut out = String::new();
        let mut at = LEFT;
        for entry in self.lines.iter().filter(|_| self.lines.len() > 1) {
            let _ = writeln!(
                out,
                "<rect x=\"{at}\" y=\"32\" width=\"14\" height=\"4\" fill=\"{}\"/>",
                entry.colour
            );
            out += &text(at + 20.0, 38.0, "start", entry.name, "");
            at += 40.0 + 7.0 * entry.name.chars().count() as f64;
        }
        out
    }
}

fn across(share: f64) -> f64 {
    LEFT + share * (WIDTH - LEFT - RIGHT)
}

fn down(share: f64) -> f64 {
    HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
}

fn line(x1: f64, y1: f64, x2: f64, y2: f64, colour: &str) -> String {
    format!(
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\"/>\n"
    )
}

fn text(x: f64, y: f64, anchor: &str, text: &str, more: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {more}>{text}</text>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<(f64, f64)>, is_log: bool) -> String {
        let line = Line {
            name: "a < b",
            colour: BLUE,
            points,
        };
        let chart = Chart {
            title: "1 & 2".to_owned(),
            x: "x",
            y: "y",
            x_is_log: false,
            is_log,
            y_max: None,
            lines: vec![line],
        };
        chart.svg()
    }

    #[test]
    fn every_value_is_inside_the_frame() {
        for is_log in [false, true] {
            let svg = chart(vec![(0.0, 0.0), (5.0, 1e-6), (7.0, 3e9)], is_log);
            let points = svg
                .split("points=\"")
                .nth(1)
                .unwrap()
                .split('"')
                .next()
                .unwrap();
            for point in points.split(' ') {
                let (x, y) = point.split_once(',').unwrap();
                let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
                assert!((LEFT..=WIDTH - RIGHT).contains(&x), "{point}");
                assert!((TOP..=HEIGHT - BOTTOM).contains(&y), "{point}");
            }
        }
    }

    #[test]
    fn text_is_escaped_and_nothing_is_drawn_of_nothing() {
        let svg = chart(Vec::new(), false);
        assert!(svg.contains("1 &amp; 2") && svg.contains("points=\"\""));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn ticks_are_round_numbers() {
        let axis = Axis::over([3.0, 27_000.0].into_iter(), false, None);
        let labels: Vec<String> = axis.ticks().into_iter().map(|t| t.1).collect();
        assert_eq!(labels, ["0", "5000", "10k", "15k", "20k", "25k", "30k"]);
    }
}
