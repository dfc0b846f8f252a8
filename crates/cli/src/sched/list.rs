//! `presagio sched list`: what the ten policies do, one line each.

use crate::table::{Cell, Table};
use presagio_sched::PolicyKind;
use std::io::{self, Write};
use std::process::ExitCode;

/// Say what the scheduling policies do, one line each
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  presagio sched list
  presagio sched list --json | jq -r '.[] | select(.aggregates) | .policy'")]
pub struct Args {
    /// Print a JSON list instead of a table
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let table = table();
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(
            out,
            "{:#}",
            serde_json::Value::Array(PolicyKind::ALL.map(json).to_vec())
        )?;
    } else {
        table.write(&mut out)?;
        writeln!(
            out,
            "\naggregates: requests of a file that touch are served as one operation"
        )?;
        writeln!(
            out,
            "foresight:  can wait for requests that a trace or a model predicts"
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

fn json(policy: PolicyKind) -> serde_json::Value {
    serde_json::json!({
        "policy": policy.name(),
        "aggregates": policy.aggregates(),
        "uses_foresight": policy.uses_foresight(),
        "about": about(policy),
    })
}

fn table() -> Table {
    let yes = |yes| Cell::Text(if yes { "yes" } else { "" }.to_owned());
    let row = |policy: PolicyKind| {
        let (name, about) = (policy.name().to_owned(), about(policy).to_owned());
        vec![
            Cell::Text(name),
            yes(policy.aggregates()),
            yes(policy.uses_foresight()),
            Cell::Text(about),
        ]
    };
    Table {
        title: String::new(),
        columns: vec![
            ("policy", "policy"),
            ("aggregates", "aggregates"),
            ("uses_foresight", "foresight"),
            ("about", "what it does"),
        ],
        rows: PolicyKind::ALL.map(row).to_vec(),
    }
}

const fn about(policy: PolicyKind) -> &'static str {
    match policy {
        PolicyKind::Noop => "hands every request on at once: what no scheduling looks like",
        PolicyKind::To => "first come, first served",
        PolicyKind::ToAgg => "first come, first served; neighbours of the first come along",
        PolicyKind::Sjf => "shortest job first: the file with the fewest bytes queued",
        PolicyKind::Mlf => "files in turn, each with a quantum that grows while its requests wait",
        PolicyKind::Aioli => {
            "like MLF, but oldest first and one batch at a time; waits for better batches"
        }
        PolicyKind::Sw => "arrival windows one after the other, inside one ordered by application",
        PolicyKind::Twins => "one data server at a time, each for a time window",
        PolicyKind::Wfq => "queues share the device by their weights",
        PolicyKind::Hbrr => "files in turn, some batches from each",
    }
}
