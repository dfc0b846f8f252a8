//! `presagio ionode`: forwards a directory to clients, with the scheduler in the middle; and talks to such a node.

pub mod control;
mod storage;

use crate::failure::failure;
use crate::learning::{self, Learning};
use crate::sched::compare::{Policy, policy_or};
use crate::size::Size;
use presagio_core::Nanos;
use presagio_council::{ClientConfig, Proof};
use presagio_dashboard::{NODE_ADDRESS, Opened, Token};
use presagio_device::Model;
use presagio_ionode::{
    AdaptiveConfig, Address, AutoConfig, Config, Node, StartError, TcpProof, TlsFiles,
};
use presagio_ninep::client::TlsIdentity;
use presagio_sched::Settings;
use presagio_tune::{Chooser, Drive};
use serde_json::json;
use std::io::ErrorKind;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Forward a directory to clients over 9P2000.L, scheduling their requests
///
/// An I/O node stands between many clients and a file system that is mounted here. It keeps no data of its own: what
/// it has acknowledged is in the file system. Clients are `presagio mount`, `presagio run --forward`, diod's tools, and
/// whatever else speaks 9P2000.L, as Linux's own `mount -t 9p` does.
///
/// As root, it does everything as the user who asks; else only for its own user. Who asks is told by the kernel on
/// Unix sockets and on TCP within this machine, and by MUNGE or a certificate from other machines. SIGTERM lets it answer
/// what was asked, and end.
#[derive(clap::Args)]
// Its parts are called Args too, and clap tells groups of arguments apart by that name.
#[group(id = "ionode")]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  presagio ionode --export /lustre --listen unix:/run/node.sock
  presagio ionode --export /scratch --listen tcp:127.0.0.1:5640 \\
      --policy aIOLi --depth 4
  presagio ionode --export /names --listen unix:/run/node.sock \\
      --server /ost0 --server /ost1 --stripe 1MiB --policy TWINS
  presagio ionode --export /tmp/x --listen unix:/tmp/s --emulate hdd
                                               how would it do on a disk?
  presagio ionode --export /lustre --listen tcp:0.0.0.0:5640 --auth munge
  presagio ionode --export /lustre --listen tcp:0.0.0.0:5640 \\
      --tls node.pem,node.key,users-ca.pem
  presagio ionode --export /scratch --listen unix:/run/node.sock \\
      --policy auto --profile disk.json        chosen by what arrives
  presagio ionode --export /scratch --listen unix:/run/node.sock \\
      --policy adaptive --learned /var/lib/presagio/node.redb   learned
  presagio ionode --export /scratch --listen unix:/run/node.sock \\
      --policy adaptive --context pattern      situations are patterns
  presagio ionode --export /lustre --listen unix:/run/node.sock \\
      --policy adaptive --council tcp:council:5650
  presagio ionode --export /scratch --listen unix:/run/node.sock \\
      --dashboard                              http://127.0.0.1:9645/
  presagio ionode status unix:/run/node.sock.control
  presagio ionode policy SJF unix:/run/node.sock.control
  diodcat -s 127.0.0.1:5640 -a /scratch file   read with diod's client
  mount -t 9p -o trans=unix,version=9p2000.L /run/node.sock /mnt"
)]
pub struct Args {
    #[command(subcommand)]
    order: Option<control::Order>,
    /// The directory to forward
    #[arg(long, value_name = "DIR", required = true)]
    export: Option<PathBuf>,
    /// Where to listen: unix:PATH or tcp:HOST:PORT; may be given several times
    #[arg(long, value_name = "ADDRESS", required = true)]
    listen: Vec<Address>,
    /// Where to be told what to do, and asked for its status: a Unix socket, since only that takes orders [default: the
    /// first of --listen that is one, with .control behind it; with none, no orders]
    #[arg(long, value_name = "unix:PATH", value_parser = unix_socket)]
    control: Option<Address>,
    /// Where Prometheus reads, for example tcp:127.0.0.1:9640 (and /metrics); also /status
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<Address>,
    /// The live dashboard, for a browser and for `presagio top`. It shows everything to whoever reaches the address: by default
    /// that is this machine alone; from elsewhere, ssh -L 9645:127.0.0.1:9645
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = NODE_ADDRESS)]
    dashboard: Option<Address>,
    /// Let who has this file's token set the policy over the dashboard; without it, that only shows
    #[arg(long, value_name = "FILE", requires = "dashboard")]
    dashboard_token: Option<PathBuf>,
    /// How requests are scheduled (`presagio sched list` explains each); auto chooses by what arrives, adaptive learns
    /// from what comes of it
    #[arg(long, value_name = "NAME", ignore_case = true, default_value = "TO-agg", value_parser = policy_or(&["auto", "adaptive"]))]
    policy: Policy,
    /// What the storage is like: a profile's file, or hdd, raid0, ssd, pastel, graphene, suno, edel. Foresight then knows how
    /// long it takes, which is else learned from what is served, and --policy auto and adaptive how sensitive it is
    #[arg(long, value_name = "DEVICE")]
    profile: Option<String>,
    /// --policy auto, adaptive: what decides (at first), as `presagio train` wrote it [default: the one that comes with Presagio]
    #[arg(long, value_name = "FILE")]
    trees: Option<PathBuf>,
    /// --policy auto, adaptive: how often is decided, in seconds
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    period: f64,
    #[command(flatten)]
    learning: Learning,
    /// --policy adaptive: where what was learned is kept [default: it is forgotten when the node ends]
    #[arg(long, value_name = "FILE", help_heading = "Learning")]
    learned: Option<PathBuf>,
    /// --policy adaptive: the council that decides for this node and others
    #[arg(long, value_name = "ADDRESS", help_heading = "Learning")]
    council: Option<Address>,
    /// --council: what this node is called [default: the name of this machine]
    #[arg(
        long,
        value_name = "NAME",
        requires = "council",
        help_heading = "Learning"
    )]
    council_name: Option<String>,
    /// --council: the council asks for a MUNGE credential
    #[arg(long, requires = "council", help_heading = "Learning")]
    council_munge: bool,
    /// --council: TLS: this node's certificate, its key, and the authority of the council's certificate
    #[arg(long, value_name = "CERT,KEY,CA", value_parser = tls_files, requires = "council", conflicts_with = "council_munge", help_heading = "Learning")]
    council_tls: Option<TlsFiles>,
    /// Requests that the storage gets at a time; the others wait in the scheduler
    #[arg(long, value_name = "N")]
    depth: Option<NonZeroUsize>,
    /// The number of this node among those that share the storage, from 0: TWINS starts on another server in each
    #[arg(long, value_name = "N", default_value_t = 0)]
    node_id: u32,
    /// How many nodes share the storage
    #[arg(long, value_name = "N", default_value_t = 1)]
    nodes: u32,
    /// How long TWINS serves one data server, in microseconds
    #[arg(long, value_name = "US", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    window: u64,
    #[command(flatten)]
    storage: storage::Args,
    /// Write a trace of all reads and writes
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Expect what a trace of an earlier run has
    #[arg(long, value_name = "TRACE")]
    foresight: Option<PathBuf>,
    /// Let nothing be changed
    #[arg(long)]
    read_only: bool,
    /// Memory for data that is under way
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    memory: Size,
    /// How long locks, and files without a name, wait for clients to come back, in seconds
    #[arg(long, value_name = "S", default_value_t = 20.0)]
    grace: f64,
    /// Let threads do what would go through io_uring
    #[arg(long)]
    no_ring: bool,
    /// Threads for what takes long
    #[arg(long, value_name = "N", default_value_t = 64)]
    threads: usize,
    /// Threads that serve connections [default: one per core]
    #[arg(long, value_name = "N")]
    loops: Option<usize>,
    /// Believe whoever can reach a TCP address: only on a network that you trust
    #[arg(long)]
    trust_network: bool,
    /// How those who come over TCP prove who they are: munge, by a credential, as diod's clients do
    #[arg(long, value_name = "HOW", conflicts_with_all = ["tls", "trust_network"])]
    auth: Option<Auth>,
    /// Where munged listens [default: where MUNGE was built to]
    #[arg(long, value_name = "PATH", requires = "auth")]
    munge_socket: Option<PathBuf>,
    /// TLS 1.3 over TCP: the node's certificate, its key, and the authority of the clients' certificates, each of which
    /// names its user as URI:presagio:uid:NUMBER
    #[arg(long, value_name = "CERT,KEY,CLIENT_CA", value_parser = tls_files, conflicts_with = "trust_network")]
    tls: Option<TlsFiles>,
    /// Let root of other machines be root here, and anybody; else it is nobody
    #[arg(long)]
    allow_root: bool,
    /// Connections that one user may have at a time
    #[arg(long, value_name = "N", default_value_t = 16384)]
    connections_per_user: usize,
    /// Files and directories that one user may have open or walked to [default: any number]
    #[arg(long, value_name = "N")]
    files_per_user: Option<usize>,
    /// Requests that one user may have under way; further ones wait
    #[arg(long, value_name = "N", default_value_t = 65_536)]
    requests_per_user: usize,
    /// Memory for data of one user that is under way; further data waits [default: half of --memory]
    #[arg(long, value_name = "SIZE")]
    memory_per_user: Option<Size>,
    /// If not root: act as this user for everybody who can connect
    #[arg(long)]
    squash: bool,
    /// What to say on stderr: error, warn (refused attempts too), info, debug
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    log: tracing::level_filters::LevelFilter,
    /// Say it as JSON, one object a line
    #[arg(long)]
    log_json: bool,
}

/// How users prove over TCP who they are.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Auth {
    Munge,
}

/// An address that takes orders.
fn unix_socket(text: &str) -> Result<Address, String> {
    match text.parse::<Address>() {
        Ok(address @ Address::Unix(_)) => Ok(address),
        Ok(Address::Tcp(_)) => {
            Err("orders are taken on a Unix socket only: write unix:PATH".into())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Three paths with commas between them.
pub fn tls_files(text: &str) -> Result<TlsFiles, String> {
    let paths: Vec<PathBuf> = text.split(',').map(PathBuf::from).collect();
    match <[PathBuf; 3]>::try_from(paths) {
        Ok([certificate, key, client_ca]) => Ok(TlsFiles {
            certificate,
            key,
            client_ca,
        }),
        Err(paths) => Err(format!(
            "three files are needed, and {} given: the certificate, its key, and the authority of the clients",
            paths.len()
        )),
    }
}

/// More often is no decision but a busy thread.
const PERIOD_MIN: Duration = Duration::from_millis(10);

/// How long clients are answered after the node was told to end.
const DRAIN: Duration = Duration::from_secs(10);

/// How long the node itself may take to end after that.
const END: Duration = Duration::from_secs(5);

impl Args {
    fn config(&self, export: &PathBuf, servers: u32) -> anyhow::Result<Config> {
        if self.node_id >= self.nodes {
            let what = format!("--node-id {} of {} nodes", self.node_id, self.nodes);
            return Err(failure(
                what,
                "ids count from 0",
                "name the number of nodes with --nodes",
            ));
        }
        let mut config = Config::new(export);
        let begin = match self.policy {
            Policy::Auto | Policy::Adaptive => config.settings.policy,
            Policy::Given(policy) => policy,
        };
        config.settings = Settings::new(begin);
        config.auto = self.auto()?;
        config.adaptive = self.adaptive(&config.name)?;
        config.settings.twins_node = first_server(self.node_id, self.nodes, servers);
        config.settings.twins_window = Nanos::from_micros(self.window);
        if self.policy == Policy::Adaptive {
            let safe = self.learning.settings().arms.safe();
            config.settings = safe.applied_to(&config.settings);
        }
        config.depth = self.depth.map(NonZeroUsize::get);
        config.read_only = self.read_only;
        config.memory_max = self.memory.0 as usize;
        config.grace = crate::nodes::seconds(self.grace, "--grace")?;
        config.ring = !self.no_ring;
        config.threads_max = self.threads;
        config.loops = self.loops.unwrap_or(config.loops);
        config.squash = self.squash;
        config.allow_root = self.allow_root;
        config.connections_per_user_max = self.connections_per_user;
        config.files_per_user_max = self.files_per_user.unwrap_or(usize::MAX);
        config.requests_per_user_max = self.requests_per_user;
        let memory = self.memory_per_user.as_ref();
        config.memory_per_user_max = memory.unwrap_or(&Size(self.memory.0 / 2)).0 as usize;
        config.tcp = self.tcp_proof();
        Ok(config)
    }

    /// How the policy is chosen, if it is.
    fn auto(&self) -> anyhow::Result<Option<AutoConfig>> {
        if self.policy != Policy::Auto {
            return Ok(None);
        }
        let period = crate::nodes::seconds(self.period, "--period")?;
        let device = self.model()?;
        let trees = crate::train::trees(self.trees.as_ref())?;
        Ok(Some(AutoConfig {
            chooser: Chooser::new(trees, device.map(Drive::new)),
            period: period.max(PERIOD_MIN),
        }))
    }

    /// How the node learns, if it does.
    fn adaptive(&self, host: &str) -> anyhow::Result<Option<AdaptiveConfig>> {
        if self.policy != Policy::Adaptive {
            let given = self.learned.is_some() || self.council.is_some();
            return match given {
                false => Ok(None),
                true => Err(failure(
                    "--learned and --council",
                    "a policy that is given needs neither",
                    "use them with --policy adaptive",
                )),
            };
        }
        let council = self.council.clone().map(|council| {
            anyhow::Ok(ClientConfig {
                council,
                name: self.council_name.clone().unwrap_or_else(|| host.to_owned()),
                epoch: learning::chance(),
                proof: self.council_proof()?,
            })
        });
        Ok(Some(AdaptiveConfig {
            tuner: self.learning.settings(),
            warm: learning::warm_start(self.profile.as_deref(), self.trees.as_ref())?,
            detector: self.learning.detector()?,
            patterns: self.learning.patterns(),
            period: learning::period(self.period)?,
            learned: self.learned.clone(),
            council: council.transpose()?,
        }))
    }

    fn council_proof(&self) -> anyhow::Result<Proof> {
        let Some(files) = &self.council_tls else {
            return Ok(match self.council_munge {
                true => Proof::Munge(self.munge_socket.clone()),
                false => Proof::Kernel,
            });
        };
        TlsIdentity::from_files(&files.certificate, &files.key, &files.client_ca)
            .map(Proof::Tls)
            .map_err(|cause| {
                failure(
                    "the council cannot be asked over TLS",
                    cause,
                    "name the node's certificate, its key, and the authority of the council's certificate",
                )
            })
    }

    /// What the storage is like, if that was said.
    fn model(&self) -> anyhow::Result<Option<Model>> {
        let name = self.profile.as_deref();
        name.map(crate::model::find).transpose()
    }

    fn tcp_proof(&self) -> TcpProof {
        match (&self.tls, self.auth) {
            (Some(files), _) => TcpProof::Tls(files.clone()),
            (None, Some(Auth::Munge)) => TcpProof::Munge {
                socket: self.munge_socket.clone(),
            },
            (None, None) => TcpProof::Kernel,
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

    /// Who may give orders over the dashboard.
    fn token(&self) -> anyhow::Result<Option<Token>> {
        if let Some(address) = &self.dashboard {
            crate::dashboard::check(address, self.dashboard_token.is_some())?;
        }
        let token = self.dashboard_token.as_deref().map(Token::read);
        token.transpose().map_err(|error| {
            failure(
                "--dashboard-token",
                error,
                "name a file of 16 bytes or more that only you may read (chmod 600)",
            )
        })
    }

    /// Windows for orders, for Prometheus, and for people.
    fn open_windows(&self, node: &mut Node, token: Option<Token>) -> anyhow::Result<()> {
        let cannot = |error: StartError| failure("the node cannot start", &error, advice(&error));
        let mut open = |address: &Address, dashboard, token| {
            let opened = Opened { dashboard, token };
            node.open_window(address, opened).map_err(cannot)
        };
        // The control socket shows the dashboard too, to `presagio top`.
        if let Some(address) = self.control() {
            self.say(&format!("status on {}", open(&address, true, None)?));
        }
        if let Some(address) = &self.metrics {
            self.say(&format!("status on {}", open(address, false, None)?));
        }
        if let Some(address) = &self.dashboard {
            let at = open(address, true, token)?;
            self.say(&crate::dashboard::where_it_is(&at));
        }
        Ok(())
    }

    fn say(&self, what: &str) {
        say("ionode", self.log_json, what);
    }
}

/// Says on stderr what is to be said from this level on.
pub fn log_to_stderr(level: tracing::level_filters::LevelFilter, as_json: bool) {
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr);
    match as_json {
        true => log.json().init(),
        false => log.with_ansi(false).init(),
    }
}

/// Says what whoever started a service has to know, whatever the log leaves out.
pub fn say(service: &str, as_json: bool, what: &str) {
    match as_json {
        true => {
            let line =
                json!({ "level": "INFO", "fields": { "message": what }, "target": "presagio" });
            eprintln!("{line}");
        }
        false => eprintln!("presagio {service}: {what}"),
    }
}

/// The data server that TWINS serves first: those of all nodes are as far from each other as they can be.
fn first_server(node: u32, nodes: u32, servers: u32) -> u32 {
    let first = u64::from(node) * u64::from(servers) / u64::from(nodes.max(1));
    first as u32 // Less than the servers.
}

/// Each fid of a client needs some: as many as the system lets us have.
pub fn more_descriptors() {
    let limits = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let most = rustix::process::Rlimit {
        current: limits.maximum,
        maximum: limits.maximum,
    };
    // If not, there are fewer fids.
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, most);
}

/// What to do about a node that cannot start.
fn advice(error: &StartError) -> &'static str {
    match error {
        StartError::Export { .. } => "name a directory that is there, and that this user may read",
        StartError::Listen { error, .. } => match error.kind() {
            ErrorKind::PermissionDenied => {
                "use a socket that you may make; over TCP let clients prove who they are, with --auth munge or --tls, or give --trust-network"
            }
            ErrorKind::AddrInUse => "is a node running there already?",
            _ => "name an address of this machine, or a socket in a directory that is there",
        },
        StartError::Adaptive(_) => "name another file with --learned",
        _ => "see presagio help ionode",
    }
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(order) = &args.order {
        return order.run();
    }
    let export = args.export.as_ref().expect("clap asks for it");
    log_to_stderr(args.log, args.log_json);
    // Before there are threads: they inherit it.
    let signals = crate::advisor::ending_signals();
    // Permissions are the clients' to choose.
    rustix::process::umask(rustix::fs::Mode::empty());
    more_descriptors();
    let storage = args.storage.open(export)?;
    let cannot = |error: StartError| failure("the node cannot start", &error, advice(&error));
    let config = args.config(export, storage.servers())?;
    let token = args.token()?;
    let model = args.model()?;
    let times = model.as_ref().map(crate::model::service_time).transpose()?;
    let mut node =
        Node::start(config, storage, &args.listen, args.trust_network).map_err(cannot)?;
    if let Some(times) = times {
        node.engine().set_service_time(times);
    }
    args.open_windows(&mut node, token)?;
    if let Some(trace) = &args.foresight {
        let cannot = |error| {
            failure(
                "nothing can be foreseen",
                error,
                "name a trace that is there",
            )
        };
        let taken = node.foresee(trace).map_err(cannot)?;
        args.say(&format!("{taken} requests are foreseen"));
    }
    if let Some(trace) = &args.record {
        let cannot = |error| {
            failure(
                format!("cannot record to {}", trace.display()),
                error,
                "name another file",
            )
        };
        node.record(trace).map_err(cannot)?;
    }
    for address in node.addresses() {
        args.say(&format!("{} on {address}", export.display()));
    }
    crate::advisor::wait_for(&signals);
    if !node.end(DRAIN, END) {
        tracing::warn!("the storage hangs: what waits for it is left");
        // Without waiting for anything more, such as a last message that nobody takes.
        std::process::exit(0);
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_begin_on_servers_far_from_each_other() {
        let firsts = |nodes, servers| -> Vec<u32> {
            let all = 0..nodes;
            all.map(|node| first_server(node, nodes, servers)).collect()
        };
        assert_eq!(firsts(2, 4), [0, 2]);
        assert_eq!(firsts(4, 4), [0, 1, 2, 3]);
        assert_eq!(firsts(3, 8), [0, 2, 5]);
        assert_eq!(firsts(4, 2), [0, 0, 1, 1]);
        assert_eq!(firsts(2, 1), [0, 0]);
    }

    #[test]
    fn one_user_may_have_half_of_the_memory_unless_somebody_says_otherwise() {
        let config = |more: &[&str]| {
            let all = ["ionode", "--export", "/x", "--listen", "unix:/y"];
            let command = <Args as clap::Args>::augment_args(clap::Command::new("ionode"));
            let matches = command.get_matches_from(all.iter().chain(more));
            let args = <Args as clap::FromArgMatches>::from_arg_matches(&matches).unwrap();
            args.config(&PathBuf::from("/x"), 1).unwrap()
        };
        let of_one = |more: &[&str]| config(more).memory_per_user_max;
        assert_eq!(of_one(&["--memory", "64MiB"]), 32 << 20);
        assert_eq!(of_one(&["--memory-per-user", "1GiB"]), 1 << 30);
    }
}
