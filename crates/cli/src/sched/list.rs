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
            "\nA: aggregates: requests of a file that touch are served as one operation"
        )?;
        writeln!(
            out,
            "F: foresight: can wait for requests that a trace or a model predicts"
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
    let letter = |yes: bool, letter: &str| Cell::Text(if yes { letter } else { "" }.to_owned());
    let row = |policy: PolicyKind| {
        let (name, about) = (policy.name().to_owned(), about(policy).to_owned());
        vec![
            Cell::Text(name),
            letter(policy.aggregates(), "A"),
            letter(policy.uses_foresight(), "F"),
            Cell::Text(about),
        ]
    };
    Table {
        title: String::new(),
        columns: vec![
            ("policy", "policy"),
            ("aggregates", "A"),
            ("uses_foresight", "F"),
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
        PolicyKind::Mlf => "files in turn, each with a quantum that grows while it waits",
        PolicyKind::Aioli => "quanta like MLF, oldest first, one batch at a time, may wait",
        PolicyKind::Sw => "by arrival window, inside a window by application",
        PolicyKind::Twins => "one data server at a time, each for a time window",
        PolicyKind::Wfq => "queues share the device by their weights",
        PolicyKind::Hbrr => "files in turn, some batches from each",
    }
}
