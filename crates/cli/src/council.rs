//! `presagio council`: decides for I/O nodes what to do, by what came of it; and answers what it decided, and why.

mod explain;

use crate::failure::failure;
use crate::ionode::control::ask;
use crate::learning::{self, Learning};
use crate::size::Size;
use presagio_core::Nanos;
use presagio_council::{
    DoorConfig, Hall, HallConfig, HallError, LATE_WAIT, ListenError, Server, Window,
};
use presagio_dashboard::COUNCIL_ADDRESS;
use presagio_door::{Address, TcpProof, TlsFiles};
use presagio_tune::{Consensus, CouncilSettings};
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Decide for I/O nodes which policy and window suit what they see, and remember what worked
///
/// I/O nodes (`presagio ionode --policy adaptive --council ADDRESS`) announce once a period what they saw and how fast they
/// served it. The council knows from that in which situation each is, chooses by what came of earlier choices, and tells all
/// nodes one thing by consensus. It only advises: nodes never wait for it, and without it they decide alone.
///
/// What was learned is in --store, and survives whatever happens to the council; so does why each thing was decided.
#[derive(clap::Args)]
#[group(id = "council")]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  presagio council --listen unix:/run/council.sock --store /var/lib/council
  presagio council --listen tcp:0.0.0.0:5650 --auth munge \\
      --store /var/lib/council --allow-uid 990 --metrics tcp:127.0.0.1:9650
  presagio ionode --export /lustre --listen tcp:0.0.0.0:5640 --auth munge \\
      --policy adaptive --council tcp:council:5650 \\
      --council-munge                                 a node of it
  presagio council --listen unix:/run/council.sock \\
      --store /var/lib/council --dashboard     look: http://127.0.0.1:9655/
  presagio council status unix:/run/council.sock.control
  presagio council explain --store /var/lib/council --node io3 --since 10m
  presagio council explain --store /var/lib/council --context write --json"
)]
pub struct Args {
    #[command(subcommand)]
    order: Option<Order>,
    /// Where I/O nodes come to: unix:PATH or tcp:HOST:PORT; may be given several times
    #[arg(long, value_name = "ADDRESS", required = true)]
    listen: Vec<Address>,
    /// The directory of what was learned and decided; it is made if it is not there
    #[arg(long, value_name = "DIR", required = true)]
    store: Option<PathBuf>,
    /// Where to be asked for its status [default: the first of --listen that is a Unix socket, with .control behind it]
    #[arg(long, value_name = "ADDRESS")]
    control: Option<Address>,
    /// Where Prometheus reads, for example tcp:127.0.0.1:9650 (and /metrics); also /status and /learned
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<Address>,
    /// The live dashboard, for a browser and for `presagio top`. It only shows, and everything to whoever reaches the address: by
    /// default that is this machine alone; from elsewhere, ssh -L 9655:127.0.0.1:9655
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = COUNCIL_ADDRESS)]
    dashboard: Option<Address>,
    /// How often nodes announce, in seconds: the same for all
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    period: f64,
    /// How one choice comes of many: majority, load (nodes count by what they served), or context (each as it suits it)
    #[arg(long, value_name = "HOW", default_value_t = Consensus::default())]
    consensus: Consensus,
    #[command(flatten)]
    learning: Learning,
    /// Begin in situations never seen as the trees say for this storage: a profile's file, or hdd, raid0, ssd, ...
    #[arg(long, value_name = "DEVICE")]
    profile: Option<String>,
    /// For that: other trees than those that come with Presagio, as `presagio train` wrote them
    #[arg(long, value_name = "FILE", requires = "profile")]
    trees: Option<PathBuf>,
    /// Explanations that are kept, in bytes
    #[arg(long, value_name = "SIZE", default_value = "512MiB")]
    log_max: Size,
    /// Users whose nodes are heard, besides root and this one; may be given several times
    #[arg(long, value_name = "UID")]
    allow_uid: Vec<u32>,
    /// Nodes that can be there at a time
    #[arg(long, value_name = "N", default_value_t = 4096)]
    nodes_max: usize,
    /// Nodes that one of the users of --allow-uid can have at a time; with --trust-network, one machine
    #[arg(long, value_name = "N", default_value_t = 1024)]
    nodes_per_user: usize,
    /// Believe whoever can reach a TCP address: only on a network that you trust
    #[arg(long)]
    trust_network: bool,
    /// How nodes that come over TCP prove who runs them: munge, by a credential
    #[arg(long, value_name = "HOW", conflicts_with_all = ["tls", "trust_network"])]
    auth: Option<Auth>,
    /// Where munged listens [default: where MUNGE was built to]
    #[arg(long, value_name = "PATH", requires = "auth")]
    munge_socket: Option<PathBuf>,
    /// TLS 1.3 over TCP: the council's certificate, its key, and the authority of the nodes' certificates, each of which
    /// names its user as URI:presagio:uid:NUMBER
    #[arg(long, value_name = "CERT,KEY,CLIENT_CA", value_parser = crate::ionode::tls_files, conflicts_with = "trust_network")]
    tls: Option<TlsFiles>,
    /// What to say on stderr: error, warn (refused attempts too), info, debug
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    log: tracing::level_filters::LevelFilter,
    /// Say it as JSON, one object a line
    #[arg(long)]
    log_json: bool,
}

/// How nodes prove who runs them.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Auth {
    Munge,
}

#[derive(clap::Subcommand)]
enum Order {
    /// What does a council do now?
    #[command(after_help = "\
Examples:
  presagio council status unix:/run/council.sock.control
  presagio council status unix:/run/council.sock.control --learned")]
    Status {
        /// Its control socket, or where Prometheus reads
        #[arg(value_name = "ADDRESS")]
        council: Address,
        /// All figures, in Prometheus's format
        #[arg(long, conflicts_with = "learned")]
        metrics: bool,
        /// What was learned, situation by situation
        #[arg(long)]
        learned: bool,
        /// The patterns that are known, and what follows what
        #[arg(long, conflicts_with_all = ["metrics", "learned"])]
        patterns: bool,
    },
    Explain(explain::Args),
}

impl Args {
    fn hall(&self) -> anyhow::Result<HallConfig> {
        let period = learning::period(self.period)?;
        Ok(HallConfig {
            council: CouncilSettings {
                period: Nanos::from(period),
                consensus: self.consensus,
                nodes_max: self.nodes_max,
            },
            tuner: self.learning.settings(),
            warm: learning::warm_start(self.profile.as_deref(), self.trees.as_ref())?,
            detector: self.learning.detector()?,
            patterns: self.learning.patterns(),
            store: self.store.clone().expect("clap asks for it"),
            log_max: self.log_max.0,
            late_wait: LATE_WAIT,
        })
    }

    fn door(&self) -> DoorConfig {
        let tcp = match (&self.tls, self.auth) {
            (Some(files), _) => TcpProof::Tls(files.clone()),
            (None, Some(Auth::Munge)) => TcpProof::Munge {
                socket: self.munge_socket.clone(),
            },
            (None, None) => TcpProof::Kernel,
        };
        DoorConfig {
            tcp,
            trusted: self.trust_network,
            users: self.allow_uid.clone(),
            connections_max: 2 * self.nodes_max,
            nodes_per_user_max: self.nodes_per_user,
            ..DoorConfig::default()
        }
    }

    fn control(&self) -> Option<Address> {
        let beside = self.listen.iter().find_map(|address| match address {
            Address::Unix(path) => {
                let mut path = path.clone().into_os_string();
                path.push(".control");
                Some(Address::Unix(path.into()))
            }
            Address::Tcp(_) => None,
        });
        self.control.clone().or(beside)
    }
}

/// What to do about a council that cannot open its books.
fn advice(error: &HallError) -> &'static str {
    match error {
        HallError::Directory { .. } => "name a directory that this user may write to",
        _ => "see presagio help council",
    }
}

fn cannot_listen(error: ListenError) -> anyhow::Error {
    let advice = match &error {
        ListenError::Address { error, .. } => match error.kind() {
            ErrorKind::PermissionDenied => {
                "use a socket that you may make; over TCP let nodes prove who runs them, with --auth munge or --tls, or give --trust-network"
            }
            ErrorKind::AddrInUse => "is a council running there already?",
            _ => "name an address of this machine, or a socket in a directory that is there",
        },
        _ => "see presagio help council",
    };
    failure("the council cannot start", &error, advice)
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.order {
        Some(Order::Explain(explain)) => return explain.run(),
        Some(Order::Status {
            council,
            metrics,
            learned,
            patterns,
        }) => {
            let target = match (metrics, learned, patterns) {
                (true, ..) => "/metrics",
                (_, true, _) => "/learned",
                (.., true) => "/patterns",
                _ => "/status",
            };
            return status(council, target);
        }
        None => {}
    }
    crate::ionode::log_to_stderr(args.log, args.log_json);
    // Before there are threads: they inherit it.
    let signals = crate::advisor::ending_signals();
    crate::ionode::more_descriptors();
    let hall = Hall::open(args.hall()?);
    let hall = hall.map_err(|error| failure("the council cannot start", &error, advice(&error)))?;
    let server = Server::start(hall, &args.listen, args.door()).map_err(cannot_listen)?;
    let say = |what: &str| crate::ionode::say("council", args.log_json, what);
    let mut windows = Vec::new();
    if let Some(address) = &args.dashboard {
        crate::dashboard::check(address, false)?;
    }
    // The control socket shows the dashboard too, to `presagio top`.
    let control = args.control();
    let all = control
        .iter()
        .map(|it| (it, true))
        .chain(args.metrics.iter().map(|it| (it, false)));
    for (address, dashboard) in all.chain(args.dashboard.iter().map(|it| (it, true))) {
        let window = Window::open(address, server.hall().clone(), dashboard).map_err(|error| {
            cannot_listen(ListenError::Address {
                address: address.clone(),
                error,
            })
        })?;
        say(&match args.dashboard.as_ref() == Some(address) {
            true => crate::dashboard::where_it_is(&window.address()),
            false => format!("status on {}", window.address()),
        });
        windows.push(window);
    }
    for address in server.addresses() {
        say(&format!("{} on {address}", server.hall().dir().display()));
    }
    crate::advisor::wait_for(&signals);
    Ok(ExitCode::SUCCESS)
}

fn status(council: &Address, target: &str) -> anyhow::Result<ExitCode> {
    let answer = ask(council, "GET", target).map_err(|cause| {
        failure(
            format!("cannot talk to {council}"),
            cause,
            "is the council running, and this its control socket?",
        )
    })?;
    match answer {
        (200, body) => {
            io::stdout().write_all(body.as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
        (_, why) => Err(failure(
            "the council refused",
            why.trim(),
            "see presagio help council",
        )),
    }
}

/// A span of time as people write it: 90s, 10m, 2h, 1d; a number alone is seconds.
fn span(text: &str) -> Result<Duration, String> {
    let unit = text.trim_start_matches(|it: char| it.is_ascii_digit() || it == '.');
    let number = &text[..text.len() - unit.len()];
    let seconds = match unit {
        "s" | "" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return Err(format!("\"{text}\" is no time: write 90s, 10m, 2h or 1d")),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| format!("\"{text}\" is no time: write 90s, 10m, 2h or 1d"))?;
    Duration::try_from_secs_f64(number * seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_as_people_write_them() {
        assert_eq!(span("90"), Ok(Duration::from_secs(90)));
        assert_eq!(span("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(span("2h"), Ok(Duration::from_secs(7200)));
        for bad in ["", "m", "5y", "1e9999", "-3s"] {
            assert!(span(bad).is_err(), "{bad}");
        }
    }
}
