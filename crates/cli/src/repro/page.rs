//! The results page: every experiment with its table, as Markdown.

use super::finding::Finding;
use super::missing::MISSING;
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
    // Writing to a string cannot fail.
    let _ = writeln!(text, "\n{}", summary(done));
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
    let _ = writeln!(
        text,
        "\n## What is not repeated\n\n| | what | why not |\n|---|---|---|"
    );
    for it in MISSING {
        let _ = writeln!(text, "| {} | {} | {} |", it.name, it.about, it.why);
    }
    text
}

/// What came of all of it, in one sentence.
fn summary(done: &[(&Experiment, Finding)]) -> String {
    let verdicts = done.iter().flat_map(|(_, finding)| &finding.rows);
    let verdicts: Vec<String> = verdicts.map(|row| row.shown()[4].clone()).collect();
    let count = |wanted: &str| verdicts.iter().filter(|it| *it == wanted).count();
    let experiments = match done.len() {
        all if all == EXPERIMENTS.len() => format!("{all} experiments"),
        some => format!("{some} of {} experiments", EXPERIMENTS.len()),
    };
    format!(
        "Of {} figures of {experiments}, {} agree with what was published, {} are better, and {} differ.",
        verdicts.len(),
        count("agrees"),
        count("better"),
        count("differs"),
    )
}

const HEAD: &str = "\
# What the papers found, and what we find

The page that `presagio repro all --markdown` writes: each figure as it was published, what counts as agreement with it, and as this
build finds it. *Better* is more than what was asked for; what *differs* is explained below its table. Figures marked as timed are of the machine that
wrote the page, all others are the same on every machine.
";

fn section(text: &mut String, experiment: &Experiment, finding: &Finding) {
    let Experiment {
        name, about, how, ..
    } = experiment;
    let timed = if experiment.is_timed { " Timed." } else { "" };
    let _ = writeln!(text, "\n### {name}: {about}\n\nBy {how}.{timed}\n");
    let row = |cells: [String; 5]| format!("| {} |", cells.join(" | "));
    let _ = writeln!(text, "{}", row(Finding::HEADINGS.map(str::to_owned)));
    let _ = writeln!(text, "|---|---|---|---|---|");
    for found in &finding.rows {
        let _ = writeln!(text, "{}", row(found.shown()));
    }
    for note in &finding.notes {
        let _ = writeln!(text, "\n{note}");
    }
}
