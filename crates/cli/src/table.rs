//! Tables: the same rows as aligned text for a person and as JSON for a program.

use crate::size::Size;
use presagio_core::Nanos;
use serde_json::{Map, Value, json};
use std::io::{self, IsTerminal, Write};

/// One value of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A name; aligned left.
    Text(String),
    /// A count; aligned right.
    Count(u64),
    /// A measured value and how many digits behind the point are worth showing; aligned right.
    Number(f64, usize),
    /// Bytes: `1.5 GiB` for a person, a count for a program; aligned right.
    Bytes(u64),
    /// A span of time: `1.5 ms` for a person, nanoseconds for a program; aligned right.
    Span(Nanos),
    /// Nothing to say here: a dash, JSON's null.
    Missing,
}

impl Cell {
    /// A number where there is one.
    pub fn maybe(value: Option<f64>, digits: usize) -> Cell {
        value.map_or(Cell::Missing, |value| Cell::Number(value, digits))
    }

    fn text(&self) -> String {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Count(count) => count.to_string(),
            Cell::Number(value, digits) => format!("{value:.digits$}"),
            Cell::Bytes(bytes) => Size(*bytes).to_string(),
            Cell::Span(span) => span.to_string(),
            Cell::Missing => "-".to_owned(),
        }
    }

    fn json(&self) -> Value {
        match self {
            Cell::Text(text) => json!(text),
            Cell::Count(count) => json!(count),
            Cell::Number(value, _) => json!(value),
            Cell::Bytes(bytes) => json!(bytes),
            Cell::Span(span) => json!(span.0),
            Cell::Missing => Value::Null,
        }
    }
}

/// A titled table.
#[derive(Clone, Debug)]
pub struct Table {
    /// What the rows are.
    pub title: String,
    /// The columns: the JSON key, and the heading that a person reads.
    pub columns: Vec<(&'static str, &'static str)>,
    /// The rows; each has one cell per column.
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    /// The rows as a list of objects.
    pub fn json(&self) -> Value {
        let object = |row: &Vec<Cell>| -> Map<String, Value> {
            let keys = self.columns.iter().map(|(key, _)| (*key).to_owned());
            keys.zip(row.iter().map(Cell::json)).collect()
        };
        Value::Array(
            self.rows
                .iter()
                .map(|row| Value::Object(object(row)))
                .collect(),
        )
    }

    /// The table as aligned text, with its title above where it has one.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        if !self.title.is_empty() {
            writeln!(out, "{}", self.title)?;
        }
        for line in self.lines() {
            writeln!(out, "{line}")?;
        }
        Ok(())
    }

    /// The headings and the rows, aligned.
    pub fn lines(&self) -> Vec<String> {
        let headings = self
            .columns
            .iter()
            .map(|(_, heading)| Cell::Text((*heading).into()));
        let lines: Vec<Vec<Cell>> = [headings.collect()]
            .into_iter()
            .chain(self.rows.clone())
            .collect();
        aligned(&lines)
    }
}

/// Lines whose columns stand below each other: a column of numbers to the right, with its heading.
pub fn aligned(lines: &[Vec<Cell>]) -> Vec<String> {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |c: usize| {
        lines
            .iter()
            .map(|l| l[c].text().chars().count())
            .max()
            .unwrap_or(0)
    };
    let is_text = |c: usize| lines.iter().skip(1).any(|l| matches!(l[c], Cell::Text(_)));
    let layout: Vec<(usize, bool)> = (0..columns).map(|c| (width(c), is_text(c))).collect();
    lines.iter().map(|line| align(line, &layout)).collect()
}

fn align(line: &[Cell], layout: &[(usize, bool)]) -> String {
    let cells = line.iter().zip(layout).map(|(cell, (width, is_text))| {
        let text = cell.text();
        if *is_text {
            format!("{text:<width$}")
        } else {
            format!("{text:>width$}")
        }
    });
    cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

/// A bar of blocks, exact to an eighth of one; `width` blocks are the whole.
pub fn drawn(share: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share * width as f64 * 8.0).round() as usize;
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

/// Whether stdout wants colours: a terminal, and nobody said no (<https://no-color.org>).
pub fn colours() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// `text` in green where `good`, in red where not.
pub fn verdict_colour(text: &str, good: bool) -> String {
    let code = if good { 32 } else { 31 };
    format!("\x1b[{code}m{text}\x1b[0m")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Table {
        Table {
            title: "Two rows".into(),
            columns: vec![("policy", "policy"), ("ns", "ns/request")],
            rows: vec![
                vec![Cell::Text("TO-agg".into()), Cell::Number(7.25, 1)],
                vec![Cell::Text("µ".into()), Cell::Missing],
            ],
        }
    }

    #[test]
    fn names_stand_left_and_numbers_right_below_their_heading() {
        let mut out = Vec::new();
        example().write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "Two rows\npolicy  ns/request\nTO-agg         7.2\nµ                -\n"
        );
    }

    #[test]
    fn json_has_the_same_rows_with_full_precision() {
        let expected = json!([{"policy": "TO-agg", "ns": 7.25}, {"policy": "µ", "ns": null}]);
        assert_eq!(example().json(), expected);
    }

    #[test]
    fn bars_are_as_long_as_their_share() {
        assert_eq!(drawn(1.0, 24).chars().count(), 24);
        assert_eq!(drawn(0.5, 24).chars().count(), 12);
        assert_eq!(drawn(1.0 / 192.0, 24), "▏");
        assert_eq!(drawn(0.0, 24), "");
    }

    #[test]
    fn quantities_have_units_for_a_person_and_none_for_a_program() {
        let cells = [Cell::Bytes(1536), Cell::Span(Nanos(1_500_000))];
        assert_eq!(cells.each_ref().map(Cell::text), ["1.5 KiB", "1.5 ms"]);
        assert_eq!(cells.each_ref().map(Cell::json), [1536, 1_500_000]);
    }
}
