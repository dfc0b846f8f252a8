//! `presagio sim SCENARIO`: tries schedulers on a virtual cluster.
//!
//! A scenario is a TOML file, a configuration of FORGE, or a preset; `presagio-sim` runs it. What happens here is around it:
//! parameters from the command line, recordings to replay ([`replay`]), profiles of devices ([`profiles`]), many runs on all cores ([`work`]), and what came of
//! them as a table or JSON ([`show`]), as a plot ([`plot`]), as Parquet ([`columns`]), or as traces of what schedulers saw
//! ([`record`]).

mod columns;
mod plot;
mod profiles;
mod record;
mod replay;
mod show;
mod work;

use crate::failure::failure;
use crate::terminal::{counted, prose};
use presagio_sim::{Level, PRESETS, Preset, Run, Sweep, preset};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Try schedulers on a virtual cluster: clients, I/O nodes, data servers, disks
///
/// SCENARIO is a file, or the name of a preset (--list). It says which machines there are and what runs on
/// them; --show prints a preset, to begin with. Time is simulated and the schedulers are the real ones: an
/// hour of a cluster takes seconds here, and the same seed gives the same figures everywhere.
///
/// A scenario may have cases and parameters with several values; every combination is a run. gain is how
/// much shorter a run is than the first one that is alike in all but its case (or policy).
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  presagio sim --list                        what did the papers try?
  presagio sim 001-fig2a                     TWINS and its windows
  presagio sim first --show > mine.toml      a scenario to change
  presagio sim mine.toml --set servers.count=8
  presagio sim mine.toml --sweep servers.scheduler.policy=none,aIOLi,SJF
  presagio sim mine.toml --set servers.scheduler.policy=auto
                                             whichever suits what arrives
  presagio sim mine.toml --sweep seed=1,2,3 --json | jq .runs
  presagio sim 001-fig2a --svg fig2a.svg     a plot
  presagio sim forge.json --set app.processes=512
                                             FORGE's configurations, too
  presagio sim mine.toml --record arrivals.ptrace --at servers
                                             what did the servers see?

Names are dotted: servers.device, ionodes.scheduler.window. app.op is
that of every application, app.0.op that of the first.")]
pub struct Args {
    /// A scenario file (TOML, or FORGE's JSON), or the name of a preset
    #[arg(required_unless_present = "list")]
    scenario: Option<String>,
    /// Name the presets and what they are
    #[arg(long, conflicts_with = "scenario")]
    list: bool,
    /// Print the scenario instead of running it
    #[arg(long)]
    show: bool,
    /// Give a parameter another value
    #[arg(long = "set", value_name = "NAME=VALUE")]
    sets: Vec<String>,
    /// Run with each of several values of a parameter
    #[arg(long = "sweep", value_name = "NAME=VALUE,...")]
    sweeps: Vec<String>,
    /// Runs at the same time [default: one for each core]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Print one JSON document, and nothing else
    #[arg(long)]
    json: bool,
    /// Also draw the makespans, as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Also write one row a run, as Parquet
    #[arg(long, value_name = "FILE")]
    parquet: Option<PathBuf>,
    /// What policy = "auto" decides by: a text that `presagio train` wrote [default: the one that comes with Presagio]
    #[arg(long, value_name = "FILE")]
    trees: Option<PathBuf>,
    /// What policy = "adaptive" tells accesses apart by: a network or tree that `presagio train --network` wrote [default: the one
    /// that comes with Presagio]
    #[arg(long, value_name = "FILE")]
    network: Option<PathBuf>,
    /// Also write a trace of the requests that arrive at schedulers (.ptrace, .csv, .parquet, .agios); one run only
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// At which schedulers --record listens
    #[arg(long, value_enum, default_value_t = At::Servers, requires = "record")]
    at: At,
}

/// Where a recording is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum At {
    /// The I/O nodes
    Ionodes,
    /// The data servers
    Servers,
}

impl At {
    fn level(self) -> Level {
        match self {
            At::Ionodes => Level::IoNodes,
            At::Servers => Level::Servers,
        }
    }
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Some(name) = &args.scenario else {
        return list(args.json);
    };
    let (text, folder) = read(name)?;
    if args.show {
        write!(io::stdout(), "{text}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let sweep = Sweep::read(&text).map_err(|e| explain(name, &e))?;
    let sweep = changed(args, name, sweep)?;
    let mut runs = sweep.runs().map_err(|e| explain(name, &e))?;
    profiles::read_all(&mut runs, &folder)?;
    let replays = replay::read_all(&runs, &folder)?;
    let deciding = work::Deciding::by(args.trees.as_ref(), args.network.as_ref())?;
    if let Some(path) = &args.record {
        record::only_one(&runs)?;
        record::write(&runs[0], &replays, &deciding, args.at.level(), path)?;
    }
    let done = work::run_all(&runs, &replays, &deciding, args.jobs)?;
    if let Some(path) = &args.svg {
        save(path, plot::svg(&done).as_bytes())?;
    }
    if let Some(path) = &args.parquet {
        save(path, &columns::parquet(&done)?)?;
    }
    if args.json {
        writeln!(io::stdout(), "{:#}", show::json(&done))?;
    } else {
        show::write(&mut io::stdout().lock(), &done)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A run and what came of it.
pub struct Done {
    run: Run,
    report: presagio_sim::Report,
}

/// What came of every run of a preset, each by the values that it differs in.
pub fn preset_reports(name: &str) -> anyhow::Result<Vec<(String, presagio_sim::Report)>> {
    let (text, folder) = read(name)?;
    let sweep = Sweep::read(&text).map_err(|e| explain(name, &e))?;
    let mut runs = sweep.runs().map_err(|e| explain(name, &e))?;
    profiles::read_all(&mut runs, &folder)?;
    let replays = replay::read_all(&runs, &folder)?;
    let deciding = work::Deciding::by(None, None)?;
    let done = work::run_all(&runs, &replays, &deciding, None)?;
    let named = |done: Done| {
        let values = done.run.varied.iter().map(|(_, value)| value.as_str());
        (values.collect::<Vec<_>>().join(" "), done.report)
    };
    Ok(done.into_iter().map(named).collect())
}

/// The text of a scenario, and the folder that its recordings are looked for in.
fn read(name: &str) -> anyhow::Result<(String, PathBuf)> {
    let path = Path::new(name);
    if !path.exists()
        && let Some(Preset { toml, .. }) = preset(name)
    {
        return Ok(((*toml).to_owned(), PathBuf::from(".")));
    }
    let text = std::fs::read_to_string(path).map_err(|cause| {
        let advice = "name a file, or a preset of `presagio sim --list`";
        failure(format!("cannot read the scenario {name}"), cause, advice)
    })?;
    let folder = path.parent().unwrap_or(Path::new(".")).to_owned();
    Ok((text, folder))
}

fn explain(name: &str, error: &presagio_sim::ScenarioError) -> anyhow::Error {
    let advice = "`presagio sim first --show` is one that explains itself";
    failure(format!("the scenario {name} cannot be run"), error, advice)
}

/// What the command line says of the scenario.
fn changed(args: &Args, scenario: &str, mut sweep: Sweep) -> anyhow::Result<Sweep> {
    for set in &args.sets {
        let (name, value) = parameter(set)?;
        let set = sweep.set(name, work::value(value));
        set.map_err(|e| explain(scenario, &e))?;
    }
    for vary in &args.sweeps {
        let (name, values) = parameter(vary)?;
        let vary = sweep.vary(name, values.split(',').map(work::value).collect());
        vary.map_err(|e| explain(scenario, &e))?;
    }
    Ok(sweep)
}

fn parameter(text: &str) -> anyhow::Result<(&str, &str)> {
    text.split_once('=').ok_or_else(|| {
        let advice = "write it as in `--set servers.count=8`";
        failure(format!("\"{text}\" sets nothing"), "there is no =", advice)
    })
}

fn save(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    std::fs::write(path, bytes).map_err(|cause| {
        let what = format!("cannot write {}", path.display());
        failure(what, cause, "choose a place that you may write to")
    })
}

fn list(json: bool) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    let mut all = Vec::new();
    for preset in PRESETS {
        let runs = Sweep::read(preset.toml)?.runs()?;
        let scenario = &runs[0].scenario;
        all.push(serde_json::json!({
            "preset": preset.name, "title": scenario.title, "about": scenario.about, "runs": runs.len(),
        }));
        if !json {
            let runs = counted(runs.len() as u64, "run");
            writeln!(out, "{}: {} ({runs})", preset.name, scenario.title)?;
            let about = prose(&format!("    {}", scenario.about));
            about
                .lines()
                .try_for_each(|line| writeln!(out, "    {line}"))?;
        }
    }
    if json {
        writeln!(out, "{:#}", serde_json::Value::Array(all))?;
    }
    Ok(ExitCode::SUCCESS)
}
