//! Recordings (thesis, 4.2): how long it takes to read and combine them.

use super::finding::{Figure, Finding, Row, Wanted};
use super::measured;
use crate::bench::Effort;

pub fn table_4_3() -> anyhow::Result<Finding> {
    let merges = measured::rows("trace", Effort::Full, "", "merge")?;
    let eight = merges.with(&[("traces", "8")])?;
    Ok(Finding {
        rows: vec![Row::new(
            "reading 8 traces of 40 MB",
            Figure::Number(190.21, 2, "min"),
            Figure::Number(eight.number("seconds") / 60.0, 2, "min"),
            Wanted::AtMost,
        )],
        notes: vec![format!(
            "AGIOS's traces of one run of 16 processes, read, paired and written as one: {:.1} s here, {:.1} times as long as one trace takes. AGIOS \
             compares each request with all of the other traces, which is why twice the requests took it three to six times as long.",
            eight.number("seconds"),
            eight.number("times_one_trace"),
        )],
    })
}
