//! The results page: every experiment with its table, as Markdown.

use super::finding::Finding;
use super::{EXPERIMENTS, Experiment};
use std::fmt::Write;

const PAPERS: [(&str, &str); 5] = [
    ("000", "Access pattern matching by time warping"),
    ("001", "TWINS and the council"),
    ("002", "AGIOS, SeRRa and selection trees (the thesis)"),
    ("003", "Omnisc'IO"),
    ("004", "MERCURY"),
];

pub fn markdown(done: &[(&Experiment, Finding)]) -> String {
    let mut text = String::from(HEAD);
    let rows: Vec<_> = done.iter().flat_map(|(_, finding)| &finding.rows).collect();
    let agree = rows.iter().filter(|row| row.agrees()).count();
    let (count, all) = (done.len(), EXPERIMENTS.len());
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "\n{agree} of {} figures agree with what was published or are better, in {count} of {all} experiments.",
        rows.len()
    );
    for (number, paper) in PAPERS {
        let of_paper = done.iter().filter(|(e, _)| e.name.starts_with(number));
        let mut of_paper = of_paper.peekable();
        if of_paper.peek().is_some() {
            let _ = writeln!(text, "\n## {paper}");
        }
        for (experiment, finding) in of_paper {
            section(&mut text, experiment, finding);
        }
    }
    text
}

const HEAD: &str = "\
# What the papers found, and what we find

The page that `presagio repro all --markdown` writes: each figure as it was published, and as this build finds it. *Better*
is more than what was asked for; what *differs* is explained below its table. Figures marked as timed are of the machine that
wrote the page, all others are the same on every machine.
";

fn section(text: &mut String, experiment: &Experiment, finding: &Finding) {
    let Experiment {
        name, about, how, ..
    } = experiment;
    let timed = if experiment.is_timed { " Timed." } else { "" };
    let _ = writeln!(text, "\n### {name}: {about}\n\nBy {how}.{timed}\n");
    let row = |cells: [String; 4]| format!("| {} |", cells.join(" | "));
    let _ = writeln!(text, "{}", row(Finding::HEADINGS.map(str::to_owned)));
    let _ = writeln!(text, "|---|---|---|---|");
    for found in &finding.rows {
        let _ = writeln!(text, "{}", row(found.shown()));
    }
    for note in &finding.notes {
        let _ = writeln!(text, "\n{note}");
    }
}
