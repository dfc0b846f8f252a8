//! `presagio bench pattern`: what does it cost to recognise a workload, and how often is it right?
//!
//! Three things are measured:
//!
//! - time ([`time`]): comparing two series with our warping and with a straightforward FastDTW, in turns, at growing
//!   lengths; and deciding with a full knowledge base;
//! - accuracy ([`accuracy`]): precision and recall as in paper 000, on what servers and I/O nodes see of its benchmarks
//!   in the simulator, by the published settings and by ours;
//! - live ([`live`]): the same on what an I/O node recorded that really ran.

pub(in crate::bench) mod accuracy;
mod agreement;
mod live;
mod time;

use super::{Report, Scope};

pub fn run(scope: &Scope) -> anyhow::Result<Report> {
    let mut report = Report {
        tables: Vec::new(),
        notes: Vec::new(),
        bars: Vec::new(),
    };
    if scope.has("time") {
        time::measure(scope.effort, &mut report);
    }
    if scope.has("accuracy") {
        accuracy::measure(scope.effort, &mut report)?;
    }
    if scope.has("live") {
        live::measure(scope.effort, &mut report)?;
    }
    Ok(report)
}
