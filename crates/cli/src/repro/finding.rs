//! What came of an experiment: rows with what was published, what is asked for, what was found, and whether they agree.

use crate::table::{self, Cell};
use serde_json::{Value, json};
use std::io::{self, Write};

/// What came of an experiment.
pub struct Finding {
    /// One figure a row.
    pub rows: Vec<Row>,
    /// How it was done where that matters, and why what differs differs.
    pub notes: Vec<String>,
}

/// A published figure and ours.
pub struct Row {
    /// What it is a figure of.
    pub what: String,
    /// As published.
    pub published: Figure,
    /// As found.
    pub ours: Figure,
    /// When they agree.
    pub wanted: Wanted,
}

/// A figure, or what stands for one.
#[derive(Clone, Debug, PartialEq)]
pub enum Figure {
    /// A number, the digits behind the point that are worth showing, and its unit.
    Number(f64, usize, &'static str),
    /// From, to, digits and unit.
    Span(f64, f64, usize, &'static str),
    /// Words.
    Text(String),
}

/// What counts as agreement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wanted {
    /// At least what was published, as it is rounded there.
    AtLeast,
    /// At most what was published, as it is rounded there.
    AtMost,
    /// As published, give or take this share of it; within the span where it is one.
    Within(f64),
    /// Word by word.
    Same,
}

impl Figure {
    pub fn text(text: impl Into<String>) -> Figure {
        Figure::Text(text.into())
    }

    fn shown(&self) -> String {
        match self {
            Figure::Number(value, digits, unit) => with_unit(format!("{value:.digits$}"), unit),
            Figure::Span(from, to, digits, unit) => {
                with_unit(format!("{from:.digits$} to {to:.digits$}"), unit)
            }
            Figure::Text(text) => text.clone(),
        }
    }

    fn json(&self) -> Value {
        match self {
            Figure::Number(value, _, unit) => json!({"value": value, "unit": unit}),
            Figure::Span(from, to, _, unit) => json!({"from": from, "to": to, "unit": unit}),
            Figure::Text(text) => json!(text),
        }
    }
}

fn with_unit(number: String, unit: &str) -> String {
    match unit {
        "" => number,
        _ => format!("{number} {unit}"),
    }
}

impl Row {
    pub fn new(what: impl Into<String>, published: Figure, ours: Figure, wanted: Wanted) -> Row {
        Row {
            what: what.into(),
            published,
            ours,
            wanted,
        }
    }

    /// Whether ours agrees with what was published.
    pub fn agrees(&self) -> bool {
        match (&self.published, &self.ours) {
            (Figure::Number(published, digits, _), Figure::Number(ours, ..)) => {
                let ours = rounded(*ours, *digits);
                match self.wanted {
                    Wanted::AtLeast => ours >= *published,
                    Wanted::AtMost => ours <= *published,
                    Wanted::Within(share) => (ours - published).abs() <= share * published.abs(),
                    Wanted::Same => ours == *published,
                }
            }
            (Figure::Span(from, to, ..), Figure::Number(ours, ..)) => {
                let reach = match self.wanted {
                    Wanted::Within(share) => share * to.abs().max(from.abs()),
                    _ => 0.0,
                };
                let is_low = *ours < from - reach && self.wanted != Wanted::AtMost;
                let is_high = *ours > to + reach && self.wanted != Wanted::AtLeast;
                !is_low && !is_high
            }
            (published, ours) => published == ours,
        }
    }

    /// What counts as agreement, in words.
    fn asked(&self) -> String {
        match (self.wanted, &self.published) {
            (Wanted::AtLeast, Figure::Span(from, _, digits, unit)) => {
                format!("at least {}", with_unit(format!("{from:.digits$}"), unit))
            }
            (Wanted::AtMost, Figure::Span(_, to, digits, unit)) => {
                format!("at most {}", with_unit(format!("{to:.digits$}"), unit))
            }
            (Wanted::AtLeast, _) => "at least that".to_owned(),
            (Wanted::AtMost, _) => "at most that".to_owned(),
            (Wanted::Within(share), Figure::Number(..)) => {
                format!("± {:.0} % of it", 100.0 * share)
            }
            (Wanted::Within(_) | Wanted::Same, _) => "the same".to_owned(),
        }
    }

    fn verdict(&self) -> &'static str {
        if !self.agrees() {
            return "differs";
        }
        match (self.wanted, &self.published, &self.ours) {
            (
                Wanted::AtLeast | Wanted::AtMost,
                Figure::Number(published, digits, _),
                Figure::Number(ours, ..),
            ) if rounded(*ours, *digits) != *published => "better",
            _ => "agrees",
        }
    }

    /// The row as text, cell by cell.
    pub fn shown(&self) -> [String; 5] {
        let verdict = self.verdict().to_owned();
        [
            self.what.clone(),
            self.published.shown(),
            self.asked(),
            self.ours.shown(),
            verdict,
        ]
    }

    pub fn json(&self) -> Value {
        json!({
            "what": self.what,
            "published": self.published.json(),
            "asked": self.asked(),
            "ours": self.ours.json(),
            "agrees": self.agrees(),
        })
    }
}

fn rounded(value: f64, digits: usize) -> f64 {
    let scale = 10_f64.powi(i32::try_from(digits).unwrap_or(0));
    (value * scale).round() / scale
}

impl Finding {
    /// Whether any row differs from what was published.
    pub fn differs(&self) -> bool {
        self.rows.iter().any(|row| !row.agrees())
    }

    pub const HEADINGS: [&str; 5] = ["", "published", "asked for", "ours", ""];

    /// The rows in columns; the verdict in colour where `colours`.
    pub fn write(&self, out: &mut impl Write, colours: bool) -> io::Result<()> {
        let cells = |texts: [String; 5]| texts.map(Cell::Text).to_vec();
        let headings = cells(Finding::HEADINGS.map(str::to_owned));
        let rows = self.rows.iter().map(|row| cells(row.shown()));
        let lines: Vec<Vec<Cell>> = std::iter::once(headings).chain(rows).collect();
        let mut lines = table::aligned(&lines).into_iter();
        writeln!(out, "{}", lines.next().unwrap_or_default())?;
        for (line, row) in lines.zip(&self.rows) {
            let verdict = row.verdict();
            match line.strip_suffix(verdict).filter(|_| colours) {
                Some(head) => writeln!(
                    out,
                    "{head}{}",
                    table::verdict_colour(verdict, row.agrees())
                )?,
                None => writeln!(out, "{line}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(published: f64, ours: f64, wanted: Wanted) -> Row {
        let number = |value| Figure::Number(value, 1, "%");
        Row::new("x", number(published), number(ours), wanted)
    }

    #[test]
    fn figures_are_compared_as_they_are_rounded_in_the_paper() {
        assert!(row(92.4, 92.36, Wanted::AtLeast).agrees());
        assert!(!row(92.4, 92.34, Wanted::AtLeast).agrees());
        assert!(row(5.2, 5.24, Wanted::AtMost).agrees());
        assert!(row(10.0, 10.9, Wanted::Within(0.1)).agrees());
        assert!(!row(10.0, 11.1, Wanted::Within(0.1)).agrees());
    }

    #[test]
    fn a_row_says_what_is_asked_for() {
        let asked = |wanted| row(92.4, 95.0, wanted).shown()[2].clone();
        assert_eq!(asked(Wanted::AtLeast), "at least that");
        assert_eq!(asked(Wanted::AtMost), "at most that");
        assert_eq!(asked(Wanted::Within(0.15)), "± 15 % of it");
        assert_eq!(asked(Wanted::Same), "the same");
    }

    #[test]
    fn what_is_more_than_asked_for_is_better() {
        assert_eq!(row(92.4, 95.0, Wanted::AtLeast).verdict(), "better");
        assert_eq!(row(92.4, 92.4, Wanted::AtLeast).verdict(), "agrees");
        assert_eq!(row(92.4, 80.0, Wanted::AtLeast).verdict(), "differs");
        assert_eq!(row(92.4, 91.0, Wanted::Within(0.1)).verdict(), "agrees");
    }

    #[test]
    fn a_figure_lies_in_a_published_span() {
        let span = |ours, wanted| {
            let published = Figure::Span(10.0, 48.0, 0, "%");
            Row::new("x", published, Figure::Number(ours, 0, "%"), wanted).agrees()
        };
        assert!(span(12.0, Wanted::Within(0.0)) && span(50.0, Wanted::Within(0.1)));
        assert!(!span(5.0, Wanted::Within(0.0)) && !span(60.0, Wanted::Within(0.1)));
        assert!(span(60.0, Wanted::AtLeast) && !span(5.0, Wanted::AtLeast));
        assert!(span(5.0, Wanted::AtMost) && !span(60.0, Wanted::AtMost));
    }

    #[test]
    fn a_figure_that_is_no_number_agrees_with_nothing() {
        for wanted in [Wanted::AtLeast, Wanted::AtMost, Wanted::Within(9.0)] {
            assert!(!row(1.0, f64::NAN, wanted).agrees(), "{wanted:?}");
        }
    }
}
