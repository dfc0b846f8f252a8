//! `presagio match TRACE…`: which workload is it, period by period?
//!
//! Recordings are read in the order of time and cut into periods; `presagio-pattern` makes a pattern of each and says which
//! known one it matches ([`study`]). What came of it is shown as a table or as JSON ([`show`]).

mod labels;
mod show;
mod study;

use crate::failure::failure;
use crate::trace::input;
use labels::Labels;
use presagio_core::Nanos;
use presagio_pattern::Settings;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use study::Study;

/// Recognise workloads in recordings: which pattern is each period, was it seen before?
///
/// Each recording is cut into periods of a second. The requests of a period are a pattern; it is compared with all patterns
/// that came before, in the order of the command line, and either matches one or is a new one. Each place (a server or an
/// I/O node of the recording) learns on its own; a recording of programs is one place.
///
/// Where it is known what ran, matches can be judged: precision is the share of matches that are right, recall the share
/// of periods that match a pattern of their own label, where there is one. Labels come from a CSV file with lines of
/// `trace,label`, or from the names of the recordings, up to the first @ or the last dot: ior@1.ptrace is ior.
///
/// ours represents a period by what it touched, whatever the order; the published way (Boito et al., HPCS 2019) by offset
/// distances in the order of arrival. docs/pattern.md explains both. --compare also says how often the published distance
/// (FastDTW) and exact warping in a band decide alike.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  presagio match monday.ptrace tuesday.ptrace
  presagio match node.ptrace --as published-ionodes --period 500
  presagio match ior@1.ptrace ior@2.ptrace btio@1.ptrace --labels names
  presagio match *.ptrace --labels what.csv --compare
  presagio match run.darshan --json | jq '.periods[] | select(.match)'
  presagio sim first --set servers.scheduler.policy=SJF --record a.ptrace
                                    a recording of simulated servers")]
pub struct Args {
    /// The recordings, in the order in which they are learned; - is the standard input
    #[arg(required = true)]
    traces: Vec<PathBuf>,
    #[command(flatten)]
    from: input::Reading,
    /// How periods are represented and compared
    #[arg(long = "as", value_enum, default_value_t = Way::Ours)]
    way: Way,
    /// Milliseconds of a period
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    period: u64,
    /// What ran: a CSV file with lines of trace,label; or `names`: the names of the recordings
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,
    /// All ways beside each other
    #[arg(long)]
    compare: bool,
    /// Join known patterns when the greatest distance has grown (recomparison)
    #[arg(long)]
    recompare: bool,
    /// Print one JSON document, with every period, and nothing else
    #[arg(long)]
    json: bool,
}

/// How periods are represented and compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Way {
    /// What a period touched, whatever the order
    Ours,
    /// The paper's for data servers
    PublishedServers,
    /// The paper's for I/O nodes
    PublishedIonodes,
    /// The paper's for data servers, compared by exact warping in a band
    BandServers,
    /// The paper's for I/O nodes, compared by exact warping in a band
    BandIonodes,
}

impl Way {
    const ALL: [Way; 5] = [
        Way::Ours,
        Way::PublishedServers,
        Way::PublishedIonodes,
        Way::BandServers,
        Way::BandIonodes,
    ];

    fn settings(self, period: Nanos) -> Settings {
        let settings = match self {
            Way::Ours => Settings::ours(),
            Way::PublishedServers => Settings::published_servers(),
            Way::PublishedIonodes => Settings::published_ionodes(1),
            Way::BandServers => Settings::published_servers().banded(),
            Way::BandIonodes => Settings::published_ionodes(1).banded(),
        };
        Settings { period, ..settings }
    }

    fn name(self) -> &'static str {
        match self {
            Way::Ours => "ours",
            Way::PublishedServers => "published-servers",
            Way::PublishedIonodes => "published-ionodes",
            Way::BandServers => "band-servers",
            Way::BandIonodes => "band-ionodes",
        }
    }

    /// The way that differs from this one only in what the distance of two series is.
    fn counterpart(name: &str) -> Option<Way> {
        match name {
            "band-servers" => Some(Way::PublishedServers),
            "band-ionodes" => Some(Way::PublishedIonodes),
            _ => None,
        }
    }
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let labels = Labels::read(args.labels.as_deref(), &args.traces)?;
    let ways: Vec<Way> = match args.compare {
        true => Way::ALL.into(),
        false => vec![args.way],
    };
    let period = Nanos::from_millis(args.period);
    let new = |way: &Way| Study::new(way.name(), way.settings(period), args.recompare);
    let mut studies: Vec<Study> = ways.iter().map(new).collect();
    let mut is_whole = true;
    for (number, path) in args.traces.iter().enumerate() {
        is_whole &= study::read(path, &args.from, labels.of(number), &mut studies)?;
    }
    if studies.iter().all(|study| study.periods.is_empty()) {
        let cause = "there is no read or write in it";
        let advice = "`presagio trace info` says what it has";
        return Err(failure("nothing to match", cause, advice));
    }
    show::show(&mut io::stdout().lock(), &studies, args)?;
    Ok(crate::trace::exit_code(is_whole))
}
