//! `presagio bench predict`: what does it cost to learn, and to predict?
//!
//! Two things are measured:
//!
//! - the growth curve of the grammar ([`growth`]): time and memory a symbol as the input gets longer, for input that
//!   repeats, loops whose trip counts vary, and noise; in all modes, beside a bare insert into a hash map in the
//!   same run;
//! - the model on recorded streams ([`recorded`]): the replicas of the paper's programs, and Darshan logs of real
//!   programs where they are at hand.

mod growth;
mod recorded;

use super::{Bar, Effort, Report, Scope};
use crate::progress::progress;

/// The sizes, by effort.
struct Plan {
    /// Lengths of the growth curve.
    lengths: &'static [usize],
    /// How often each is measured; the fastest counts.
    rounds: u32,
}

impl Plan {
    fn new(effort: Effort) -> Plan {
        let (lengths, rounds): (&[usize], u32) = match effort {
            Effort::Full => (&[10_000, 100_000, 500_000, 1_000_000], 3),
            Effort::Quick => (&[10_000, 100_000, 200_000], 1),
            Effort::Tiny => (&[1_000, 2_000], 1),
        };
        Plan { lengths, rounds }
    }
}

pub fn run(scope: &Scope) -> anyhow::Result<Report> {
    let effort = scope.effort;
    let plan = Plan::new(effort);
    let bar = progress(growth::steps(&plan) + recorded::STEPS);
    let grown = growth::measure(&plan, &bar);
    let streams = recorded::measure(&plan, effort, &bar);
    bar.finish_and_clear();
    let bars = [growth::bars(&plan, &grown), recorded::bars(&streams)].concat();
    Ok(Report {
        tables: vec![
            ("growth", growth::table(&grown)),
            ("streams", recorded::table(&streams)),
        ],
        notes: notes(&plan),
        bars,
    })
}

fn notes(plan: &Plan) -> Vec<String> {
    vec![
        format!(
            "Growth: appended one by one, predictions kept up to date; the fastest of {}. × map is the time in \
             proportion to that of as many inserts into a hash map.",
            plan.rounds
        ),
        "Streams: a model for each process; read 16 is to observe an operation and to read the 16 that are \
         expected next."
            .to_owned(),
    ]
}
