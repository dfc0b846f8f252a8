//! `presagio repro`: what the papers published, beside what this build finds.
//!
//! An experiment is a table or a figure of one of the five papers that simulation, a bench or a replica of its programs
//! can repeat here. It is a function that returns a [`Finding`]: one row a figure, each with the
//! published value, ours, and what would count as agreement; and the reasons where they differ. To add one: a function,
//! and one line in [`EXPERIMENTS`]. What cannot be repeated is in [`MISSING`]. `docs/results.md` is what `--markdown` writes.

mod agios;
mod council;
mod finding;
mod matching;
mod measured;
mod missing;
mod omniscio;
mod page;
mod scores;
mod serra;
mod traces;
mod trees;
mod twins;

use crate::failure::failure;
use crate::table::{self, Cell};
use crate::terminal::prose;
use finding::Finding;
use missing::MISSING;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Repeat the papers' experiments: published figures beside ours
///
/// Each experiment is a table or a figure of one of the papers that Presagio is built on, repeated by simulation, by
/// replicas of the programs, or by measuring. A row that differs from what was published says so, and the notes below
/// the table say why.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  presagio repro --list              what can be repeated, and what cannot?
  presagio repro 001-fig2a           one figure
  presagio repro 003                 everything of a paper
  presagio repro all                 everything
  presagio repro all --strict        exits 1 if a row differs
  presagio repro 003 --json | jq '.[].rows[] | select(.agrees == false)'
  presagio repro all --markdown results.md
                                     the results page")]
pub struct Args {
    /// Experiments, or how their names begin; \"all\" is each of them
    #[arg(required_unless_present = "list", value_name = "EXPERIMENT")]
    names: Vec<String>,
    /// Name the experiments and what they repeat, and what is not repeated and why
    #[arg(long, conflicts_with = "names")]
    list: bool,
    /// Print one JSON document, and nothing else
    #[arg(long)]
    json: bool,
    /// Also write a page with all of it
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Exit with status 1 when a row differs from what was published
    #[arg(long)]
    strict: bool,
}

/// Something a paper published that can be repeated.
struct Experiment {
    /// The paper's number, and the table or figure.
    name: &'static str,
    about: &'static str,
    /// How it is repeated here.
    how: &'static str,
    /// Whether its figures are times of this machine; the others are the same everywhere.
    is_timed: bool,
    run: fn() -> anyhow::Result<Finding>,
}

const REPLICAS: &str = "replicas of the paper's programs, as far as its text describes them";
const VIRTUAL: &str = "the virtual cluster, with the schedulers of the I/O node inside";
const MODELS: &str = "the device models, in virtual time";
const CAMPAIGN: &str = "the campaign of `presagio train`, on the virtual cluster";
const MEASURED: &str = "measuring here, as `presagio bench` does";

const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "000-fig2",
        about: "precision and recall at data servers",
        how: VIRTUAL,
        is_timed: false,
        run: matching::fig2,
    },
    Experiment {
        name: "000-fig3",
        about: "choosing a scheduler by patterns that match",
        how: VIRTUAL,
        is_timed: false,
        run: matching::fig3,
    },
    Experiment {
        name: "000-fig4",
        about: "choosing a window by patterns that match",
        how: VIRTUAL,
        is_timed: false,
        run: matching::fig4,
    },
    Experiment {
        name: "000-table2",
        about: "scores of patterns at one I/O node",
        how: VIRTUAL,
        is_timed: false,
        run: scores::table2,
    },
    Experiment {
        name: "000-table3",
        about: "scores of reads at one I/O node, by compression",
        how: VIRTUAL,
        is_timed: false,
        run: scores::table3,
    },
    Experiment {
        name: "000-table4",
        about: "scores of patterns at data servers",
        how: VIRTUAL,
        is_timed: false,
        run: scores::table4,
    },
    Experiment {
        name: "000-table5",
        about: "scores of reads at data servers, by the bound of distances",
        how: VIRTUAL,
        is_timed: false,
        run: scores::table5,
    },
    Experiment {
        name: "000-table6",
        about: "precision and recall at I/O nodes",
        how: VIRTUAL,
        is_timed: false,
        run: matching::table6,
    },
    Experiment {
        name: "000-6e",
        about: "what a comparison takes, and a pattern's memory",
        how: MEASURED,
        is_timed: true,
        run: matching::section6e,
    },
    Experiment {
        name: "001-fig2a",
        about: "TWINS on 1-D strided reads: what the window decides",
        how: VIRTUAL,
        is_timed: false,
        run: twins::fig2a,
    },
    Experiment {
        name: "001-fig2b",
        about: "TWINS on contiguous writes: what a wrong window costs",
        how: VIRTUAL,
        is_timed: false,
        run: twins::fig2b,
    },
    Experiment {
        name: "001-fig6",
        about: "the network that tells accesses apart",
        how: VIRTUAL,
        is_timed: false,
        run: council::fig6,
    },
    Experiment {
        name: "001-fig7",
        about: "learning the best window",
        how: VIRTUAL,
        is_timed: false,
        run: council::fig7,
    },
    Experiment {
        name: "001-table1",
        about: "accesses that are told apart, by operation",
        how: VIRTUAL,
        is_timed: false,
        run: council::table1,
    },
    Experiment {
        name: "001-table2",
        about: "accesses that are told apart, by access",
        how: VIRTUAL,
        is_timed: false,
        run: council::table2,
    },
    Experiment {
        name: "001-6e",
        about: "how soon a council answers, and what it costs",
        how: MEASURED,
        is_timed: true,
        run: council::section6e,
    },
    Experiment {
        name: "002-fig4.7",
        about: "how much alike recordings are",
        how: VIRTUAL,
        is_timed: false,
        run: agios::fig_4_7,
    },
    Experiment {
        name: "002-fig6.1",
        about: "situations that a choice makes faster and slower",
        how: CAMPAIGN,
        is_timed: false,
        run: trees::fig_6_1,
    },
    Experiment {
        name: "002-table3.4",
        about: "sequential to random throughput of four storages, 8 KiB",
        how: MODELS,
        is_timed: false,
        run: serra::table_3_4,
    },
    Experiment {
        name: "002-table3.7",
        about: "what a scheduler costs that changes nothing",
        how: VIRTUAL,
        is_timed: false,
        run: trees::table_3_7,
    },
    Experiment {
        name: "002-table3.8",
        about: "which scheduler is best where",
        how: VIRTUAL,
        is_timed: false,
        run: agios::table_3_8,
    },
    Experiment {
        name: "002-table4.2",
        about: "aIOLi (Table 4.1), and what foresight adds",
        how: VIRTUAL,
        is_timed: false,
        run: agios::table_4_2,
    },
    Experiment {
        name: "002-table4.3",
        about: "reading recordings",
        how: MEASURED,
        is_timed: true,
        run: traces::table_4_3,
    },
    Experiment {
        name: "002-table4.4",
        about: "what recording costs",
        how: "the virtual cluster, and traces that are written here",
        is_timed: true,
        run: agios::table_4_4,
    },
    Experiment {
        name: "002-table4.5",
        about: "access patterns by distance and size",
        how: CAMPAIGN,
        is_timed: false,
        run: trees::table_4_5,
    },
    Experiment {
        name: "002-table4.6",
        about: "access patterns by stripe access times",
        how: CAMPAIGN,
        is_timed: false,
        run: trees::table_4_6,
    },
    Experiment {
        name: "002-table4.7",
        about: "access patterns by both metrics, and by ours",
        how: CAMPAIGN,
        is_timed: false,
        run: trees::table_4_7,
    },
    Experiment {
        name: "002-table5.3",
        about: "SeRRa: errors of straight lines",
        how: MODELS,
        is_timed: false,
        run: serra::table_5_3,
    },
    Experiment {
        name: "002-table5.4",
        about: "SeRRa: errors of quick profiles",
        how: MODELS,
        is_timed: false,
        run: serra::table_5_4,
    },
    Experiment {
        name: "002-table5.5",
        about: "SeRRa: minutes that profiles take",
        how: MODELS,
        is_timed: false,
        run: serra::table_5_5,
    },
    Experiment {
        name: "002-table5.6",
        about: "sequential to random throughput of four storages, all sizes",
        how: MODELS,
        is_timed: false,
        run: serra::table_5_6,
    },
    Experiment {
        name: "002-table6.2",
        about: "selection trees: answers that are wrong",
        how: CAMPAIGN,
        is_timed: false,
        run: trees::table_6_2,
    },
    Experiment {
        name: "002-table6.3",
        about: "selection trees: choices as the oracle's",
        how: CAMPAIGN,
        is_timed: false,
        run: trees::table_6_3,
    },
    Experiment {
        name: "002-table6.4",
        about: "selection trees: other numbers of processes",
        how: CAMPAIGN,
        is_timed: false,
        run: trees::table_6_4,
    },
    Experiment {
        name: "002-table6.6",
        about: "access patterns, by most of the files",
        how: CAMPAIGN,
        is_timed: false,
        run: trees::table_6_6,
    },
    Experiment {
        name: "002-table6.7",
        about: "selection trees beside aIOLi alone",
        how: CAMPAIGN,
        is_timed: false,
        run: trees::table_6_7,
    },
    Experiment {
        name: "002-table6.8",
        about: "selection trees beside SJF alone",
        how: CAMPAIGN,
        is_timed: false,
        run: trees::table_6_8,
    },
    Experiment {
        name: "003-fig2",
        about: "contexts that were predicted, once a program is known",
        how: REPLICAS,
        is_timed: false,
        run: omniscio::fig2,
    },
    Experiment {
        name: "003-fig3",
        about: "how far ahead contexts are known",
        how: REPLICAS,
        is_timed: false,
        run: omniscio::fig3,
    },
    Experiment {
        name: "003-fig4",
        about: "how large grammars get",
        how: REPLICAS,
        is_timed: false,
        run: omniscio::fig4,
    },
    Experiment {
        name: "003-fig5",
        about: "how far off predicted sizes are, once a program is known",
        how: REPLICAS,
        is_timed: false,
        run: omniscio::fig5,
    },
    Experiment {
        name: "003-table2",
        about: "Sequitur's and StarSequitur's grammars of a periodic sequence",
        how: "the grammars",
        is_timed: false,
        run: omniscio::table2,
    },
    Experiment {
        name: "003-table7",
        about: "offsets that were predicted",
        how: REPLICAS,
        is_timed: false,
        run: omniscio::table7,
    },
    Experiment {
        name: "003-table8",
        about: "hit ratios of predictions",
        how: REPLICAS,
        is_timed: false,
        run: omniscio::table8,
    },
    Experiment {
        name: "003-table9",
        about: "times between operations that were predicted",
        how: REPLICAS,
        is_timed: false,
        run: omniscio::table9,
    },
    Experiment {
        name: "003-table10",
        about: "what an operation costs that is observed",
        how: REPLICAS,
        is_timed: true,
        run: omniscio::table10,
    },
];

/// What has no experiment of its own, and the one that has its figures.
const ELSEWHERE: &[(&str, &str)] = &[
    ("001-fig7a", "001-fig7"),
    ("001-fig7b", "001-fig7"),
    ("001-fig7c", "001-fig7"),
    ("002-table4.1", "002-table4.2"),
];

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.list {
        return list(args.json);
    }
    let chosen = chosen(&args.names)?;
    let mut done = Vec::new();
    let mut failed = None;
    for experiment in chosen {
        // One that cannot be repeated here leaves the others as they are.
        let finding = match (experiment.run)() {
            Ok(finding) => finding,
            Err(error) => {
                eprintln!("{}: could not be repeated", experiment.name);
                failed = failed.or(Some(error));
                continue;
            }
        };
        if !args.json {
            write(&mut io::stdout().lock(), experiment, &finding)?;
        }
        done.push((experiment, finding));
    }
    if args.json {
        let all: Vec<Value> = done.iter().map(|(e, f)| json(e, f)).collect();
        writeln!(io::stdout(), "{:#}", Value::Array(all))?;
    }
    // A page without what failed would replace one that has it.
    if let Some(path) = args.markdown.as_ref().filter(|_| failed.is_none()) {
        std::fs::write(path, page::markdown(&done)).map_err(|cause| {
            let what = format!("cannot write {}", path.display());
            failure(what, cause, "choose a place that you may write to")
        })?;
    }
    if let Some(error) = failed {
        return Err(error);
    }
    let differs = done.iter().any(|(_, finding)| finding.differs());
    Ok(match args.strict && differs {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

/// Those whose names are, or begin with, one of `names`, or have its figures; in the order of the list, each once.
fn chosen(names: &[String]) -> anyhow::Result<Vec<&'static Experiment>> {
    // "003-table1" means that one where there is one, and else all that begin so.
    let fits = |name: &str, experiment: &Experiment| {
        let elsewhere = ELSEWHERE.iter().find(|(part, _)| *part == name);
        let name = elsewhere.map_or(name, |(_, whole)| whole);
        let is_one = EXPERIMENTS.iter().any(|e| e.name == name);
        name == "all" || experiment.name == name || (!is_one && experiment.name.starts_with(name))
    };
    for name in names {
        if !EXPERIMENTS.iter().any(|experiment| fits(name, experiment)) {
            let what = format!("cannot repeat \"{name}\"");
            let advice = "`presagio repro --list` names those that can be repeated";
            let missing = MISSING.iter().find(|it| stands_for(it.name, name));
            let cause = missing.map_or("there is no such experiment", |it| it.why);
            return Err(failure(what, cause, advice));
        }
    }
    let wanted = |e: &&Experiment| names.iter().any(|name| fits(name, e));
    Ok(EXPERIMENTS.iter().filter(wanted).collect())
}

/// Whether an entry of the list is that of this name: "003-fig7, 8" is that of 003-fig8 too.
fn stands_for(entry: &str, name: &str) -> bool {
    let mut parts = entry
        .split(", ")
        .map(|part| part.split(" to ").next().unwrap_or(part));
    let first = parts.next().unwrap_or_default();
    let stem = first.trim_end_matches(|it: char| it.is_ascii_digit() || it == '.');
    let is_other = |part: &str| name.strip_prefix(stem) == Some(part);
    first == name || entry == name || parts.any(is_other)
}

fn list(json: bool) -> anyhow::Result<ExitCode> {
    match json {
        true => writeln!(io::stdout(), "{:#}", list_json())?,
        false => write_list(&mut io::stdout().lock())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Names and what they are about, in columns.
fn columns<'a>(rows: impl Iterator<Item = [&'a str; 2]>) -> Vec<String> {
    let cells = rows.map(|row| row.map(|text| Cell::Text(text.to_owned())).to_vec());
    table::aligned(&cells.collect::<Vec<_>>())
}

fn write_list(out: &mut impl Write) -> io::Result<()> {
    for line in columns(EXPERIMENTS.iter().map(|it| [it.name, it.about])) {
        writeln!(out, "{line}")?;
    }
    writeln!(out, "\nNot repeated:")?;
    for it in MISSING {
        writeln!(out, "{}: {}; {}", it.name, it.about, it.why)?;
    }
    Ok(())
}

/// Both in one list: what has a reason is not repeated.
fn list_json() -> Value {
    let repeated = EXPERIMENTS.iter().map(|it| {
        json!({"experiment": it.name, "about": it.about, "how": it.how, "not_repeated": Value::Null})
    });
    let missing = MISSING.iter().map(|it| {
        json!({"experiment": it.name, "about": it.about, "how": Value::Null, "not_repeated": it.why})
    });
    repeated.chain(missing).collect()
}

fn write(out: &mut impl Write, experiment: &Experiment, finding: &Finding) -> io::Result<()> {
    writeln!(out, "{}: {}", experiment.name, experiment.about)?;
    writeln!(out, "{}", prose(&format!("By {}.", experiment.how)))?;
    finding.write(out, table::colours())?;
    for note in &finding.notes {
        writeln!(out, "{}", prose(note))?;
    }
    writeln!(out)
}

fn json(experiment: &Experiment, finding: &Finding) -> Value {
    json!({
        "experiment": experiment.name,
        "about": experiment.about,
        "how": experiment.how,
        "is_timed": experiment.is_timed,
        "rows": finding.rows.iter().map(finding::Row::json).collect::<Vec<_>>(),
        "notes": finding.notes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(given: &[&str]) -> Vec<&'static str> {
        let given: Vec<String> = given.iter().map(|name| (*name).to_owned()).collect();
        chosen(&given).unwrap().iter().map(|e| e.name).collect()
    }

    #[test]
    fn a_name_means_itself_a_beginning_means_all_that_begin_so() {
        assert_eq!(names(&["001-fig2a"]), ["001-fig2a"]);
        assert_eq!(names(&["001-fig2"]), ["001-fig2a", "001-fig2b"]);
        assert_eq!(
            names(&["001-fig2b", "001-fig2"]),
            ["001-fig2a", "001-fig2b"]
        );
        assert_eq!(names(&["all"]).len(), EXPERIMENTS.len());
    }

    #[test]
    fn what_is_not_there_is_an_error_that_says_where_to_look() {
        let error = |name: &str| chosen(&[name.to_owned()]).err().unwrap().to_string();
        let unknown = error("005");
        assert!(unknown.contains("--list"), "{unknown}");
        let missing = error("001-fig8");
        assert!(missing.contains("takes a cluster"), "{missing}");
        let several = error("003-fig8");
        assert_eq!(several.replace("fig8", "fig7"), error("003-fig7"));
        assert!(!several.contains("no such experiment"), "{several}");
    }

    #[test]
    fn what_is_in_another_experiment_is_found_there() {
        assert_eq!(names(&["002-table4.1"]), ["002-table4.2"]);
        for (part, whole) in ELSEWHERE {
            assert_eq!(names(&[part]), [*whole]);
            assert!(!EXPERIMENTS.iter().any(|e| e.name == *part), "{part}");
        }
    }

    #[test]
    fn names_are_sorted_and_each_is_there_once() {
        // By paper, then by kind, then by number: tables 10 after 9.
        let mut seen = std::collections::BTreeSet::new();
        assert!(EXPERIMENTS.iter().all(|e| seen.insert(e.name)));
        let papers: Vec<&str> = EXPERIMENTS.iter().map(|e| &e.name[..3]).collect();
        assert!(papers.is_sorted(), "{papers:?}");
    }

    #[test]
    fn every_paper_is_repeated_or_said_not_to_be() {
        for paper in ["000", "001", "002", "003", "004"] {
            let mut names = EXPERIMENTS.iter().map(|e| e.name);
            let mut missing = MISSING.iter().map(|it| it.name);
            let is_named = |name: &str| name.starts_with(paper);
            assert!(names.any(is_named) || missing.any(is_named), "{paper}");
        }
        let both = |name: &str| EXPERIMENTS.iter().any(|e| e.name == name);
        assert!(!MISSING.iter().any(|it| both(it.name)));
    }
}
