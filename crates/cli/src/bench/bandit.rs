//! `presagio bench bandit`: how fast is the best arm found, and what does a decision cost?
//!
//! - curves ([`curves`]): every strategy on rewards of simulated campaigns, as Fig. 7 of paper 001; contexts side by side; a world that
//!   changes;
//! - offline ([`offline`]): the two case studies of paper 000 (VI-C, VI-D): what is chosen by matched patterns, beside an
//!   oracle;
//! - cost ([`cost`]): the council's decision with 384 nodes, and the memory of what was learned.

mod cost;
mod curves;
mod offline;
mod rewards;

use super::{Report, Scope};

pub fn run(scope: &Scope) -> anyhow::Result<Report> {
    let mut report = Report {
        tables: Vec::new(),
        notes: Vec::new(),
        bars: Vec::new(),
    };
    if scope.has("cost") {
        cost::measure(scope.effort, &mut report);
    }
    if scope.has("curves") {
        curves::measure(scope.effort, &mut report)?;
    }
    if scope.has("offline") {
        offline::measure(scope.effort, &mut report)?;
    }
    Ok(report)
}
