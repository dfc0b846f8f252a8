//! `presagio report`: what a program did to its files, as one page that explains itself.
//!
//! An input is a trace, or the summary of a run (`presagio run --json`), whose trace is then looked for where the summary
//! says it is. `presagio_report` counts and draws; here files are found and read, call stacks get the names that debug
//! information has for them ([`symbols`]), and the page is written.

mod inputs;
mod symbols;

use crate::failure::failure;
use crate::terminal::prose;
use crate::trace::input;
use inputs::Found;
use presagio_core::Layer;
use presagio_report::doc::Document;
use presagio_report::readable::without_controls;
use presagio_report::{Input, Options, Run, Weight, collect, document, page};
use presagio_trace::OpenOptions;
use serde_json::Value;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use symbols::DebugInfo;

/// Write a report of recordings and runs: one HTML file that opens from disk
///
/// Reads traces in any format that `presagio trace` reads, and summaries that `presagio run --json` wrote; a summary
/// brings its trace with it. Several of them are compared, each against the first.
///
/// The page shows when each process did what, where in files bytes were moved, how large and how slow requests were, the
/// program as nested loops with the places in its source, what a model foresees, what was loaded ahead, and what all of
/// that means, with the evidence beside it. It needs no network. --json prints the figures that the page is drawn from.
///
/// Functions and lines come from the programs' own debug information, if they are still where they were. A report holds
/// paths and command lines.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  presagio report app.ptrace                 writes app.report.html
  presagio report run.json                   a run's summary, and its trace
  presagio report job.darshan -o job.html
  presagio report before.json after.json --name before --name after
                                             two runs compared
  presagio report app.ptrace --json | jq '.runs[0].findings[].text'
  presagio run --report app.html -- ./app    run, record, report at once")]
pub struct Args {
    /// Traces and summaries of runs; - is a trace on the standard input
    #[arg(required = true)]
    inputs: Vec<PathBuf>,
    #[command(flatten)]
    from: input::Reading,
    /// Where the page goes; - is the standard output [default: beside you, named after the first input]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the figures as one JSON document instead; with --output, as well
    #[arg(long)]
    json: bool,
    /// What to call a run, in the order of the inputs [default: the file's name]
    #[arg(long, value_name = "NAME")]
    name: Vec<String>,
    /// Only what was recorded at this layer [default: the system's calls, or else what there is]
    #[arg(long, value_parser = layer)]
    layer: Option<Layer>,
    /// Do not look into programs for the names of functions and lines
    #[arg(long)]
    no_symbols: bool,
}

fn layer(name: &str) -> Result<Layer, String> {
    let known = Layer::ALL.map(Layer::name).join(", ");
    Layer::from_name(name).ok_or_else(|| format!("name one of: {known}"))
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.json && args.output.as_deref() == Some(Path::new("-")) {
        return Err(failure(
            "cannot print the figures and the page",
            "--json and --output - both mean the standard output",
            "name a file for the page with --output, or leave one of both out",
        ));
    }
    let found = inputs::find(&args.inputs, &args.name)?;
    let mut is_whole = true;
    let mut runs = Vec::new();
    for found in &found {
        let (run, whole) = one(args, found)?;
        is_whole &= whole;
        runs.push(run);
    }
    let document = document(runs);
    if args.json {
        serde_json::to_writer(io::stdout().lock(), &document).map_err(io::Error::from)?;
        writeln!(io::stdout())?;
    }
    match (&args.output, args.json) {
        (None, true) => {}
        (Some(path), _) if path == Path::new("-") => {
            io::stdout().write_all(page(&document)?.as_bytes())?;
        }
        (path, is_json) => {
            let path = path
                .clone()
                .unwrap_or_else(|| default_output(&args.inputs[0]));
            write_page(&path, &document)?;
            if !is_json {
                show(&mut io::stdout().lock(), &path, &document)?;
            }
        }
    }
    Ok(crate::trace::exit_code(is_whole))
}

/// The figures of one run, and whether all of its trace was there.
fn one(args: &Args, found: &Found) -> anyhow::Result<(Run, bool)> {
    let mut is_whole = true;
    let mut symbols = DebugInfo::new(!args.no_symbols, found.trace.as_deref());
    let trace = match &found.trace {
        None => None,
        Some(path) => {
            let bar = input::bar_for(std::slice::from_ref(path));
            let mut source = args.from.open(path, &bar)?;
            let options = Options {
                layer: args.layer,
                ..Options::default()
            };
            let collected = collect(&mut source, &options);
            bar.finish_and_clear();
            let collected = collected.map_err(|error| args.from.explain(error))?;
            is_whole = args.from.warn(path, &source);
            Some((path.display().to_string(), collected))
        }
    };
    let summary = found.summary.clone();
    let input = Input {
        name: found.name(),
        trace,
        summary: summary.map(|(path, value)| (path.display().to_string(), value)),
    };
    Ok((presagio_report::run(input, &mut symbols), is_whole))
}

/// Writes the report of a run that has just ended: for `presagio run --report`.
pub fn write_of_run(to: &Path, trace: &Path, summary: Value, name: String) -> anyhow::Result<()> {
    let mut source = presagio_trace::open_with(trace, OpenOptions::default())?;
    let collected = collect(&mut source, &Options::default())?;
    // A trace that is only there for the report has no name worth telling.
    let named = summary["trace"]["path"].as_str().map(str::to_owned);
    let input = Input {
        name,
        trace: Some((named.unwrap_or_else(|| "not kept".to_owned()), collected)),
        summary: Some(("this run".to_owned(), summary)),
    };
    let mut symbols = DebugInfo::new(true, Some(trace));
    let run = presagio_report::run(input, &mut symbols);
    write_page(to, &document(vec![run]))
}

/// `app.ptrace` becomes `app.report.html` here.
fn default_output(input: &Path) -> PathBuf {
    let stem = input.file_stem().filter(|stem| *stem != "-");
    let mut name = stem.unwrap_or("trace".as_ref()).to_owned();
    name.push(".report.html");
    name.into()
}

/// Writes the page, whole or not at all.
fn write_page(path: &Path, document: &Document) -> anyhow::Result<()> {
    let explain = |error: &dyn std::fmt::Display| {
        let what = format!("cannot write the report {}", path.display());
        failure(
            what,
            error,
            "choose a place that you may write to with --output",
        )
    };
    let page = page(document)?;
    // Neither a device nor a pipe can be replaced.
    if path.exists() && !path.is_file() {
        return std::fs::write(path, page).map_err(|error| explain(&error));
    }
    let directory = path.parent().filter(|p| !p.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new()
        .prefix(".presagio-")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .tempfile_in(directory)
        .map_err(|error| explain(&error))?;
    file.write_all(page.as_bytes())
        .map_err(|error| explain(&error))?;
    file.persist(path).map_err(|error| explain(&error.error))?;
    Ok(())
}

/// Findings that a terminal shows.
const SHOWN: usize = 6;

/// What was written, and what matters most in it.
fn show(out: &mut impl Write, path: &Path, document: &Document) -> io::Result<()> {
    let compared = document.comparison.iter().flat_map(|c| &c.findings);
    let runs = document.runs.iter().flat_map(|run| &run.findings);
    let findings: Vec<_> = compared.chain(runs).collect();
    for finding in findings.iter().take(SHOWN) {
        let mark = match finding.weight {
            Weight::High => "!",
            Weight::Medium => "*",
            Weight::Low => "-",
            Weight::Good => "+",
        };
        writeln!(out, "{}", prose(&format!("{mark} {}", finding.text)))?;
    }
    let more = findings.len().saturating_sub(SHOWN);
    let more = if more > 0 {
        format!(" ({more} more findings)")
    } else {
        String::new()
    };
    let path = path.display().to_string();
    writeln!(out, "{}{more}", without_controls(&path))
}
