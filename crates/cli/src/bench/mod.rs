//! `presagio bench PART`: measures a part of Presagio and holds it against its bars.
//!
//! A part is a module with a function that takes a [`Scope`] and returns a [`Report`]: tables for the
//! curious, notes on how it was measured, and bars, which decide. The frame here prints all of it, as
//! text or as one JSON document, and turns bars into an exit status. To add a part: a module, and one
//! line in [`PARTS`].

pub mod alloc;
mod bandit;
mod bars;
pub mod council;
pub mod ionode;
mod pattern;
mod predict;
pub mod preload;
mod profile;
mod report;
pub mod run;
pub mod sched;
pub mod scores;
mod sim;
mod trace;
mod tune;

pub use bars::Bar;

use crate::failure::failure;
use crate::table::{self, Cell, Table};
use crate::terminal::prose;
use clap::builder::PossibleValuesParser;
use serde_json::{Map, Value, json};
use std::io::{self, Write};
use std::process::ExitCode;

/// Measure a part of Presagio and hold it against its bars
///
/// Every bench ends with its bars, one a line: what was measured, the value, the limit, and whether it
/// holds. Timings are compared within one run on one machine; run on an otherwise idle machine.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  presagio bench --list                   which parts are there?
  presagio bench sched                    the scheduler; about 2 minutes
  presagio bench trace                    reading and merging traces
  presagio bench preload                  what watching costs a program
  presagio bench profile                  how exact are quick profiles?
  presagio bench run --only loop          one storage of several (as root)
  presagio bench sched --quick --strict   exits 1 if a bar does not hold
  presagio bench sched --json > sched.json")]
pub struct Args {
    /// The part to measure; --list says what each is
    #[arg(value_parser = PossibleValuesParser::new(PARTS.iter().map(|part| part.name)))]
    part: Option<String>,
    /// Name the parts and what they measure
    #[arg(long, conflicts_with = "part")]
    list: bool,
    /// Print one JSON document with the same tables and bars, and nothing else
    #[arg(long)]
    json: bool,
    /// Exit with status 1 when a bar does not hold, or could not be measured (unless --quick)
    #[arg(long)]
    strict: bool,
    /// Fewer samples and smaller cases: good enough to notice a disaster
    #[arg(long)]
    quick: bool,
    /// Only the cases whose name contains this; parts with few cases measure them all
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// The least that touches every step: for tests of the bench itself
    #[arg(long, hide = true)]
    tiny: bool,
}

/// How thoroughly to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// Checks that the bench works; its figures mean nothing.
    Tiny,
    /// Notices a disaster.
    Quick,
    /// What the promises are judged by.
    Full,
}

/// What to measure, and how thoroughly.
pub struct Scope {
    /// How thoroughly.
    pub effort: Effort,
    only: Option<String>,
}

impl Scope {
    /// Whether a case of that name is wanted.
    pub fn has(&self, name: &str) -> bool {
        let only = self.only.as_deref();
        only.is_none_or(|text| name.to_lowercase().contains(&text.to_lowercase()))
    }

    /// Whether a case of that name was asked for: for those that take too long to come with all others.
    pub fn asked(&self, name: &str) -> bool {
        self.only.is_some() && self.has(name)
    }
}

/// What a bench found.
pub struct Report {
    /// The tables, with their JSON keys.
    pub tables: Vec<(&'static str, Table)>,
    /// How it was measured, where that matters to a reader.
    pub notes: Vec<String>,
    /// The bars.
    pub bars: Vec<Bar>,
}

/// A part that can be measured.
struct Part {
    name: &'static str,
    about: &'static str,
    run: fn(&Scope) -> anyhow::Result<Report>,
}

const PARTS: &[Part] = &[
    Part {
        name: "sched",
        about: "the scheduler: cost of a request under every policy, live switches",
        run: sched::run,
    },
    Part {
        name: "trace",
        about: "traces: read and merge eight repetitions; size and speed of formats",
        run: trace::run,
    },
    Part {
        name: "run",
        about: "presagio run: what a program gains on slow and fast storage (root)",
        run: run::run,
    },
    Part {
        name: "preload",
        about: "the library inside programs: what a watched call, process or record costs",
        run: preload::run,
    },
    Part {
        name: "ionode",
        about: "the I/O node: throughput and processor time beside Debian's diod",
        run: ionode::run,
    },
    Part {
        name: "council",
        about: "the council: 384 nodes; what adapting costs, and gains (--only soak: ten minutes)",
        run: council::run,
    },
    Part {
        name: "predict",
        about: "the model: time and memory to learn, and to predict 16 operations",
        run: predict::run,
    },
    Part {
        name: "pattern",
        about: "recognising workloads: time to compare and to decide, precision and recall",
        run: pattern::run,
    },
    Part {
        name: "bandit",
        about: "learning what suits: curves, the papers' case studies, cost of a decision",
        run: bandit::run,
    },
    Part {
        name: "sim",
        about: "the simulator: speed, a growing cluster, memory; policies ranked as a live node does",
        run: sim::run,
    },
    Part {
        name: "profile",
        about: "profiling: error and time of the fast way beside the full one",
        run: profile::run,
    },
    Part {
        name: "report",
        about: "reports: time, memory and page of 10 million operations, and how they grow",
        run: report::run,
    },
    Part {
        name: "tune",
        about: "policies chosen by trees: against the oracle; what watching costs; accesses told apart",
        run: tune::run,
    },
];

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.list {
        return list(args.json);
    }
    let part = find(args.part.as_deref())?;
    let effort = match (args.tiny, args.quick) {
        (true, _) => Effort::Tiny,
        (false, true) => Effort::Quick,
        (false, false) => Effort::Full,
    };
    let only = args.only.clone();
    let report = (part.run)(&Scope { effort, only })?;
    if args.json {
        writeln!(
            io::stdout(),
            "{:#}",
            report.json(part.name, &format!("{effort:?}").to_lowercase())
        )?;
    } else {
        report.write(&mut io::stdout().lock(), table::colours())?;
    }
    Ok(exit_code(&report.bars, args.strict, effort))
}

/// Measures a part for somebody else: those of its cases whose name contains `only`.
pub fn measured(part: &str, effort: Effort, only: &str) -> anyhow::Result<Report> {
    let only = Some(only.to_owned());
    (find(Some(part))?.run)(&Scope { effort, only })
}

fn find(name: Option<&str>) -> anyhow::Result<&'static Part> {
    let known = PARTS
        .iter()
        .map(|part| part.name)
        .collect::<Vec<_>>()
        .join(", ");
    let Some(name) = name else {
        return Err(failure(
            "nothing to measure",
            "no part was named",
            format!("name one of: {known}"),
        ));
    };
    PARTS.iter().find(|part| part.name == name).ok_or_else(|| {
        failure(
            format!("cannot measure \"{name}\""),
            "there is no such part",
            format!("name one of: {known}"),
        )
    })
}

fn list(json: bool) -> anyhow::Result<ExitCode> {
    let row = |part: &Part| {
        [part.name, part.about]
            .map(|text| Cell::Text(text.to_owned()))
            .to_vec()
    };
    let columns = vec![("part", "part"), ("about", "what it measures")];
    let table = Table {
        title: String::new(),
        columns,
        rows: PARTS.iter().map(row).collect(),
    };
    if json {
        writeln!(io::stdout(), "{:#}", table.json())?;
    } else {
        let lines = table::aligned(&table.rows);
        lines
            .iter()
            .try_for_each(|line| writeln!(io::stdout(), "{line}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A bar that could not be measured fails a strict run too, except where speed was asked for.
fn exit_code(bars: &[Bar], strict: bool, effort: Effort) -> ExitCode {
    let may_be_missing = effort < Effort::Full;
    let all_hold = bars.iter().all(|bar| bar.holds().unwrap_or(may_be_missing));
    if strict && !all_hold {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

impl Report {
    /// The same as one document.
    pub fn json(&self, part: &str, effort: &str) -> Value {
        let tables: Map<String, Value> = self
            .tables
            .iter()
            .map(|(key, table)| ((*key).to_owned(), table.json()))
            .collect();
        json!({
            "bench": part,
            "effort": effort,
            "tables": tables,
            "notes": self.notes,
            "bars": self.bars.iter().map(Bar::json).collect::<Vec<_>>(),
        })
    }

    /// Tables, notes and bars.
    pub fn write(&self, out: &mut impl Write, colours: bool) -> io::Result<()> {
        for (_, table) in &self.tables {
            table.write(out)?;
            writeln!(out)?;
        }
        for note in &self.notes {
            writeln!(out, "{}", prose(note))?;
        }
        writeln!(out)?;
        bars::write(out, &self.bars, colours)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(values: &[Option<f64>]) -> Vec<Bar> {
        let bar = |value: &Option<f64>| match value {
            Some(value) => Bar::at_most("x", *value, "", 1.0),
            None => Bar::at_most("x", 0.0, "", 1.0).not_measured("it is a test"),
        };
        values.iter().map(bar).collect()
    }

    #[test]
    fn a_strict_run_fails_when_a_bar_does_not_hold() {
        let broken = bars(&[Some(0.5), Some(1.5)]);
        assert_eq!(exit_code(&broken, true, Effort::Full), ExitCode::FAILURE);
        assert_eq!(exit_code(&broken, true, Effort::Quick), ExitCode::FAILURE);
        assert_eq!(exit_code(&broken, false, Effort::Full), ExitCode::SUCCESS);
    }

    #[test]
    fn a_strict_run_fails_when_a_bar_was_not_measured_unless_it_is_quick() {
        let missing = bars(&[Some(0.5), None]);
        assert_eq!(exit_code(&missing, true, Effort::Full), ExitCode::FAILURE);
        assert_eq!(exit_code(&missing, true, Effort::Quick), ExitCode::SUCCESS);
    }

    #[test]
    fn an_unknown_part_is_answered_with_the_known_ones() {
        for name in [None, Some("nonsense")] {
            let error = find(name).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(error.contains("sched"), "{error}");
        }
    }
}
