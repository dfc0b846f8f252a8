//! How I/O nodes are reached, for `presagio mount` and `presagio run --forward` alike.

use crate::failure::failure;
use presagio_forward::{Address, Credential, Identity, Options, Remote, Spread};
use presagio_ninep::Errno;
use presagio_ninep::client::TlsIdentity;
use presagio_ninep::session::munge;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const HEADING: &str = "Nodes";

/// What both have in common.
#[derive(clap::Args, Clone, Debug, PartialEq)]
#[group(id = "nodes-args")]
pub struct Reach {
    /// The name of the export, for servers that have several
    #[arg(long, value_name = "NAME", default_value = "/", help_heading = HEADING)]
    aname: String,
    /// Open each file at a node of its own choice, so that all clients' requests to it meet in one scheduler
    #[arg(long, help_heading = HEADING)]
    spread_files: bool,
    /// Seconds that one request to a node may take
    #[arg(long, value_name = "S", default_value_t = 30.0, help_heading = HEADING)]
    timeout: f64,
    /// Seconds after which programs get an error while no node can be reached
    #[arg(long, value_name = "S", default_value_t = 30.0, help_heading = HEADING)]
    patience: f64,
    /// Where munged listens, for nodes that ask for a credential [default: where MUNGE was built to]
    #[arg(long, value_name = "PATH", help_heading = HEADING)]
    munge_socket: Option<PathBuf>,
    /// TLS 1.3 over TCP: the authority that signed the nodes' certificates
    #[arg(long, value_name = "FILE", requires_all = ["tls_cert", "tls_key"], help_heading = HEADING)]
    tls_ca: Option<PathBuf>,
    /// Your certificate for that, which names your user as URI:presagio:uid:NUMBER
    #[arg(long, value_name = "FILE", requires = "tls_ca", help_heading = HEADING)]
    tls_cert: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", requires = "tls_ca", help_heading = HEADING)]
    tls_key: Option<PathBuf>,
}

/// The longest that one attempt to connect takes, unless requests may take less.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Seconds that somebody gave.
pub fn seconds(value: f64, name: &str) -> anyhow::Result<Duration> {
    Duration::try_from_secs_f64(value)
        .map_err(|error| failure(format!("{name} {value}"), error, "use seconds"))
}

impl Reach {
    /// Seconds for which programs wait for a node.
    pub fn patience(&self) -> f64 {
        self.patience
    }

    /// How these nodes are to be reached, on behalf of `program`.
    pub fn options(&self, nodes: Vec<Address>, program: &str) -> anyhow::Result<Options> {
        let mut options = Options::new(nodes);
        options.export.clone_from(&self.aname);
        if self.spread_files {
            options.spread = Spread::Files;
        }
        options.identity = Identity::from_environment(program);
        options.timeout = seconds(self.timeout, "--timeout")?;
        options.patience = seconds(self.patience, "--patience")?;
        options.connect_timeout = CONNECT_MAX.min(options.timeout);
        options.tls = self.identity()?;
        let socket = self.munge_socket.clone();
        let credential = move || munge::credential(socket.as_deref());
        options.credential = Some(Credential(Arc::new(credential)));
        Ok(options)
    }

    fn identity(&self) -> anyhow::Result<Option<TlsIdentity>> {
        let files = (&self.tls_ca, &self.tls_cert, &self.tls_key);
        let (Some(ca), Some(certificate), Some(key)) = files else {
            return Ok(None);
        };
        let identity = TlsIdentity::from_files(certificate, key, ca).map_err(|error| {
            let advice = "--tls-cert and --tls-key are yours, --tls-ca is of the nodes";
            failure("cannot use TLS", error, advice)
        })?;
        Ok(Some(identity))
    }
}

/// That one of the nodes can be reached, and lets us in; else why none does.
pub fn answers(options: &Options) -> Result<(), String> {
    let mut said = Vec::new();
    for (index, node) in options.nodes.iter().enumerate() {
        match attempt(options, index) {
            Ok(()) => return Ok(()),
            Err(why) => said.push(format!("{node}: {why}")),
        }
    }
    Err(said.join(", "))
}

/// One attempt with one node.
pub fn attempt(options: &Options, node: usize) -> Result<(), String> {
    let mut options = options.clone();
    options.nodes = vec![options.nodes.swap_remove(node)];
    options.last_resort = None;
    // Nobody waits for one that is not there; and no thread may be left when this process forks.
    (options.patience, options.threads) = (Duration::ZERO, false);
    options.timeout = options.connect_timeout;
    let remote = Remote::new(options).map_err(|error| error.to_string())?;
    let uid = rustix::process::geteuid().as_raw();
    remote.root(uid).map(drop).map_err(|errno| {
        let why = remote.last_error();
        match errno {
            Errno::IO | Errno::ACCES if !why.is_empty() => why,
            errno => errno.to_string(),
        }
    })
}
