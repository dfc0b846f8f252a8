//! Bars: what a bench promises, held against what it measured.

use crate::table::{self, Cell};
use serde_json::{Value, json};
use std::io::{self, Write};

/// One promise: a measured value and the limit that it must keep.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// What is measured.
    pub name: String,
    /// The measured value, or why there is none.
    pub value: Result<f64, String>,
    /// The unit of value and limit; empty for ratios.
    pub unit: &'static str,
    /// The limit.
    pub limit: f64,
    /// Whether the value may be at most the limit (otherwise: at least).
    pub at_most: bool,
}

impl Bar {
    /// A bar that holds while the value is not above the limit.
    pub fn at_most(name: impl Into<String>, value: f64, unit: &'static str, limit: f64) -> Bar {
        Bar {
            name: name.into(),
            value: Ok(value),
            unit,
            limit,
            at_most: true,
        }
    }

    /// A bar that holds while the value is not below the limit.
    pub fn at_least(name: impl Into<String>, value: f64, unit: &'static str, limit: f64) -> Bar {
        Bar {
            at_most: false,
            ..Bar::at_most(name, value, unit, limit)
        }
    }

    /// The same bar without a value, because of `why`.
    pub fn not_measured(self, why: impl Into<String>) -> Bar {
        Bar {
            value: Err(why.into()),
            ..self
        }
    }

    /// Whether it holds; `None` if it was not measured. A value that is no number holds nothing.
    pub fn holds(&self) -> Option<bool> {
        let value = *self.value.as_ref().ok()?;
        Some(if self.at_most {
            value <= self.limit
        } else {
            value >= self.limit
        })
    }

    fn verdict(&self) -> String {
        match (&self.value, self.holds()) {
            (Err(why), _) => format!("not measured: {why}"),
            (Ok(_), Some(true)) => "holds".to_owned(),
            (Ok(_), _) => "DOES NOT HOLD".to_owned(),
        }
    }

    fn cells(&self) -> Vec<Cell> {
        let value = self
            .value
            .as_ref()
            .map_or("-".to_owned(), |v| quantity(*v, self.unit));
        let relation = if self.at_most { "≤" } else { "≥" };
        let limit = format!("{relation} {}", quantity(self.limit, self.unit));
        [self.name.clone(), value, limit, self.verdict()]
            .map(Cell::Text)
            .to_vec()
    }

    /// The bar as an object; `value` and `holds` are null where nothing was measured.
    pub fn json(&self) -> Value {
        json!({
            "name": self.name,
            "value": self.value.as_ref().ok(),
            "unit": self.unit,
            "limit": self.limit,
            "at_most": self.at_most,
            "holds": self.holds(),
            "not_measured": self.value.as_ref().err(),
        })
    }
}

/// One bar a line, in columns; the verdict in colour where `colours`.
pub fn write(out: &mut impl Write, bars: &[Bar], colours: bool) -> io::Result<()> {
    let headings = ["bar", "measured", "limit", ""].map(|h| Cell::Text(h.to_owned()));
    let lines: Vec<Vec<Cell>> = std::iter::once(headings.to_vec())
        .chain(bars.iter().map(Bar::cells))
        .collect();
    let mut lines = table::aligned(&lines).into_iter();
    writeln!(out, "{}", lines.next().unwrap_or_default())?;
    for (line, bar) in lines.zip(bars) {
        writeln!(out, "{}", if colours { coloured(&line, bar) } else { line })?;
    }
    Ok(())
}

/// The verdict is the last column, so it is the end of the line.
fn coloured(line: &str, bar: &Bar) -> String {
    let verdict = bar.verdict();
    let head = line.strip_suffix(&verdict).unwrap_or(line);
    format!(
        "{head}{}",
        table::verdict_colour(&verdict, bar.holds() == Some(true))
    )
}

/// A number with as many digits as mean something, and its unit.
fn quantity(value: f64, unit: &str) -> String {
    let digits = if value.abs() >= 100.0 { 0 } else { 2 };
    format!("{value:.digits$} {unit}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bars: &[Bar], colours: bool) -> String {
        let mut out = Vec::new();
        write(&mut out, bars, colours).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_value_on_the_limit_holds() {
        assert_eq!(Bar::at_most("x", 1.5, "", 1.5).holds(), Some(true));
        assert_eq!(Bar::at_most("x", 1.51, "", 1.5).holds(), Some(false));
        assert_eq!(Bar::at_least("x", 1e6, "", 1e6).holds(), Some(true));
        assert_eq!(Bar::at_least("x", 999_999.0, "", 1e6).holds(), Some(false));
    }

    #[test]
    fn what_is_no_number_holds_nothing() {
        assert_eq!(Bar::at_most("x", f64::NAN, "", 1.5).holds(), Some(false));
        assert_eq!(Bar::at_least("x", f64::NAN, "", 1.5).holds(), Some(false));
    }

    #[test]
    fn every_bar_is_one_line_with_name_value_limit_and_verdict() {
        let bars = [
            Bar::at_least("requests/s", 2_345_678.9, "1/s", 1e6),
            Bar::at_most("ratio", 1.75, "", 1.5),
            Bar::at_most("instructions", 0.0, "", 2.5).not_measured("no valgrind"),
        ];
        let expected = "\
bar           measured     limit
requests/s    2345679 1/s  ≥ 1000000 1/s  holds
ratio         1.75         ≤ 1.50         DOES NOT HOLD
instructions  -            ≤ 2.50         not measured: no valgrind
";
        assert_eq!(text(&bars, false), expected);
    }

    #[test]
    fn colour_is_only_around_the_verdict() {
        let shown = text(&[Bar::at_most("ratio", 1.0, "", 1.5)], true);
        assert!(shown.contains("\x1b[32mholds\x1b[0m"), "{shown:?}");
        assert!(shown.starts_with("bar"), "{shown:?}");
    }

    #[test]
    fn json_says_null_where_nothing_was_measured() {
        let bar = Bar::at_most("instructions", 0.0, "", 2.5).not_measured("no valgrind");
        let json = bar.json();
        assert_eq!(
            (&json["value"], &json["holds"]),
            (&Value::Null, &Value::Null)
        );
        assert_eq!(json["not_measured"], "no valgrind");
        assert_eq!(Bar::at_most("r", 1.0, "", 1.5).json()["holds"], true);
    }
}
