//! Figures that benches measure, for experiments that are such a bench with what was published beside it.

use super::finding::Figure;
use crate::bench::{self, Effort};
use crate::failure::failure;
use serde_json::Value;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, PoisonError};

/// Rows of a bench's table, by the keys of its columns.
pub struct Rows {
    table: String,
    rows: Vec<Value>,
}

/// What was measured already: several experiments may be about one bench.
static DONE: Mutex<BTreeMap<(&str, &str, Effort), Value>> = Mutex::new(BTreeMap::new());

/// A table of a bench, of those of its cases whose names contain `only`.
pub fn rows(
    part: &'static str,
    effort: Effort,
    only: &'static str,
    table: &str,
) -> anyhow::Result<Rows> {
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    let tables = match done.entry((part, only, effort)) {
        Entry::Occupied(done) => done.into_mut(),
        Entry::Vacant(empty) => {
            let report = bench::measured(part, effort, only)?;
            empty.insert(report.json(part, "")["tables"].take())
        }
    };
    let rows = tables[table].as_array().cloned();
    Ok(Rows {
        table: format!("{table} of `presagio bench {part}`"),
        rows: rows.unwrap_or_default(),
    })
}

impl Rows {
    /// The one whose column has this text or number.
    pub fn with(&self, wanted: &[(&str, &str)]) -> anyhow::Result<Row<'_>> {
        let is = |cell: &Value, wanted: &str| match cell {
            Value::String(text) => text == wanted,
            other => format!("{other}") == wanted,
        };
        let all = |row: &&Value| wanted.iter().all(|(key, value)| is(&row[*key], value));
        self.found(self.rows.iter().find(all), &format!("{wanted:?}"))
    }

    /// The one whose column begins with this text, beside another that has that one.
    pub fn beginning(&self, key: &str, text: &str, other: (&str, &str)) -> anyhow::Result<Row<'_>> {
        let begins = |row: &Value| row[key].as_str().is_some_and(|it| it.starts_with(text));
        let found = self.rows.iter();
        let mut found = found.filter(|row| row[other.0] == other.1 && begins(row));
        self.found(found.next(), &format!("{text}, {}", other.1))
    }

    fn found<'a>(&'a self, row: Option<&'a Value>, wanted: &str) -> anyhow::Result<Row<'a>> {
        let row = row.ok_or_else(|| {
            let what = format!("no {wanted} in {}", self.table);
            let advice = "this is a mistake of ours: please report it";
            failure(what, "the bench has changed", advice)
        })?;
        Ok(Row(row))
    }
}

/// See [`Rows`].
pub struct Row<'a>(&'a Value);

impl Row<'_> {
    /// A figure; none where the bench has none.
    pub fn number(&self, key: &str) -> f64 {
        self.0[key].as_f64().unwrap_or(f64::NAN)
    }

    pub fn text(&self, key: &str) -> &str {
        self.0[key].as_str().unwrap_or_default()
    }

    pub fn percent(&self, key: &str) -> Figure {
        Figure::Number(self.number(key), 1, "%")
    }
}
