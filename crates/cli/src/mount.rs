//! `presagio mount`: the files of I/O nodes for any program, through FUSE.

use crate::direct::{Local, last_resort, look_at};
use crate::failure::failure;
use crate::nodes::{Reach, answers, seconds};
use presagio_forward::{Address, mount};
use std::path::PathBuf;
use std::process::ExitCode;

/// Mount what I/O nodes forward, for any program
///
/// All nodes of the list serve the same export. When the one in use goes away, the mount comes back to it or moves to
/// the next, opens its files again and repeats what was not answered; what must not be done twice is done once, or
/// fails with EIO if nobody can tell. Programs wait meanwhile, for at most --patience.
///
/// Nothing is cached unless you say so: what one client wrote, the next reads. It works until it is unmounted
/// (`umount DIR`), or until Ctrl-C or SIGTERM.
///
/// Where a node asks who you are, a credential of MUNGE is made; with the --tls options, a certificate says it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  presagio mount unix:/run/node.sock /mnt
  presagio mount tcp:io1:5640,tcp:io2:5640 /mnt --patience 60
  presagio mount tcp:io1:5640 /mnt --direct /lustre
                                 if no node is left, go there directly
  presagio mount tcp:server:564 /mnt --aname /export
                                 the files of a diod
  presagio mount tcp:io1:5640 /mnt --tls-ca nodes.pem \\
      --tls-cert me.pem --tls-key me.key")]
pub struct Args {
    /// The nodes, with commas between them: unix:PATH or tcp:HOST:PORT
    #[arg(value_name = "NODE[,NODE...]")]
    nodes: String,
    /// Where to mount
    dir: PathBuf,
    /// Where the export is mounted on this machine: used when no node can be reached
    #[arg(long, value_name = "DIR")]
    direct: Option<PathBuf>,
    /// Use the page cache: what others write is seen when a file is opened
    #[arg(long)]
    cache: bool,
    /// Seconds for which names and attributes may be old
    #[arg(long, value_name = "S", default_value_t = 0.0)]
    believe: f64,
    /// Threads that serve the kernel: so many calls may be under way, or hang, before others wait
    #[arg(long, value_name = "N", default_value_t = 64)]
    threads: usize,
    /// Let nothing be changed
    #[arg(long)]
    read_only: bool,
    /// Do not foretell the nodes what programs will read and write
    #[arg(long)]
    no_foresight: bool,
    #[command(flatten)]
    reach: Reach,
}

impl Args {
    fn options(&self) -> anyhow::Result<mount::Options> {
        let mut remote = self
            .reach
            .options(Address::list(&self.nodes)?, "presagio mount")?;
        if let Some(dir) = &self.direct {
            let found = match look_at(dir, "--direct")? {
                Local::There => "",
                Local::Missing => "is no directory yet",
                Local::Silent => "does not answer now",
            };
            if !found.is_empty() {
                eprintln!("presagio mount: --direct {} {found}", dir.display());
            }
            remote.last_resort = Some(last_resort(dir));
        }
        let mut options = mount::Options::new(remote);
        options.believe = seconds(self.believe, "--believe")?;
        options.threads = self.threads.max(1);
        options.read_only = self.read_only;
        options.foresight = !self.no_foresight;
        if self.cache {
            options.freshness = mount::Freshness::AtOpen;
        }
        Ok(options)
    }
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    rustix::process::umask(rustix::fs::Mode::empty());
    crate::ionode::more_descriptors();
    let (nodes, dir) = (args.nodes.clone(), args.dir.clone());
    let ready = || eprintln!("presagio mount: {nodes} on {}", dir.display());
    let options = args.options()?;
    if let Err(why) = answers(&options.remote) {
        let patience = args.reach.patience();
        eprintln!("presagio mount: no node answers yet ({why}); waiting for {patience} s");
    }
    mount::run(options, &args.dir, ready).map_err(|cause| {
        let what = format!("cannot mount {} on {}", args.nodes, args.dir.display());
        failure(
            what,
            cause,
            "is a node running there, and may you mount here?",
        )
    })?;
    Ok(ExitCode::SUCCESS)
}
