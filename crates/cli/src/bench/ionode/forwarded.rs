//! The preload path beside a bare relay.
//!
//! A program under `presagio run --forward` reads and writes a forwarded file, a megabyte after the other, and by turns
//! sends the same bytes through a Unix socket behind which there is a process that knows nothing but the file: no
//! protocol, no scheduler, one call for the file and one for the socket. Both files are in the page cache.

use super::server::Server;
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const BLOCK: usize = 1 << 20;
const FILE: u64 = 64 << 20;
const READ: u64 = 0;
const WRITE: u64 = 1;

/// Read and write a file that is forwarded, and the same through a relay
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The socket of the relay
    socket: PathBuf,
    /// The file: of the relay, or of the program
    file: PathBuf,
    /// Be the relay
    #[arg(long)]
    relay: bool,
    /// How many rounds of each kind
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// How long each of them takes, in milliseconds
    #[arg(long, default_value_t = 100)]
    millis: u64,
}

/// Megabytes a second in each round: forwarded, and through the relay.
pub struct Found {
    pub reads: Vec<(f64, f64)>,
    pub writes: Vec<(f64, f64)>,
}

/// Measures, with a node and a relay of its own.
pub fn run(dir: &Path, rounds: usize, round: Duration) -> anyhow::Result<Found> {
    let server = Server::presagio(dir, &[])?;
    let blocks = vec![7; FILE as usize];
    std::fs::write(server.export().join("load"), &blocks)?;
    std::fs::write(dir.join("bare"), &blocks)?;
    let relay = Relay::start(dir)?;
    let prefix = dir.join("forwarded");
    let output = Command::new(std::env::current_exe()?)
        .args(["run", "--quiet", "--no-model", "--forward"])
        .arg(format!("{}={}", prefix.display(), server.address()))
        .arg("--")
        .arg(std::env::current_exe()?)
        .arg("bench-forwarded")
        .args([&relay.socket, &prefix.join("load")])
        .args(["--rounds", &rounds.to_string()])
        .args(["--millis", &round.as_millis().to_string()])
        .stdin(Stdio::null())
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the program failed: {said}");
    found(&output.stdout).context("the program said something else than its figures")
}

fn found(output: &[u8]) -> anyhow::Result<Found> {
    let value: Value = serde_json::from_slice(output)?;
    let of = |kind: &str| serde_json::from_value(value[kind].clone());
    Ok(Found {
        reads: of("reads")?,
        writes: of("writes")?,
    })
}

/// A relay that runs until it is dropped.
struct Relay {
    child: Child,
    socket: PathBuf,
}

impl Relay {
    fn start(dir: &Path) -> anyhow::Result<Relay> {
        let socket = dir.join("relay");
        let mut child = Command::new(std::env::current_exe()?)
            .args(["bench-forwarded", "--relay"])
            .args([&socket, &dir.join("bare")])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        // It says so when it listens.
        let mut said = [0];
        let out = child.stdout.as_mut().expect("it is piped");
        out.read_exact(&mut said)
            .context("the relay did not start")?;
        Ok(Relay { child, socket })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The hidden subcommand.
pub fn work(args: &Args) -> anyhow::Result<ExitCode> {
    match args.relay {
        true => relay(args)?,
        false => program(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn relay(args: &Args) -> anyhow::Result<()> {
    let file = File::options().read(true).write(true).open(&args.file)?;
    let listener = UnixListener::bind(&args.socket)?;
    std::io::stdout().write_all(b"!")?;
    std::io::stdout().flush()?;
    let (mut client, _) = listener.accept()?;
    let mut block = vec![0; BLOCK];
    let mut words = [0; 16];
    while client.read_exact(&mut words).is_ok() {
        let (kind, offset) = words.split_at(8);
        let [kind, offset] =
            [kind, offset].map(|w| u64::from_le_bytes(w.try_into().expect("8 bytes")));
        if kind == READ {
            file.read_exact_at(&mut block, offset)?;
            client.write_all(&block)?;
        } else {
            client.read_exact(&mut block)?;
            file.write_all_at(&block, offset)?;
            client.write_all(&[1])?;
        }
    }
    Ok(())
}

fn program(args: &Args) -> anyhow::Result<()> {
    let file = File::options().read(true).write(true).open(&args.file)?;
    let mut socket = UnixStream::connect(&args.socket)?;
    let mut block = vec![7; BLOCK];
    let long = Duration::from_millis(args.millis);
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    for _ in 0..args.rounds {
        let forwarded = rate(long, |at| Ok(file.read_exact_at(&mut block, at)?))?;
        let bare = rate(long, |at| relayed(&mut socket, READ, at, &mut block))?;
        reads.push((forwarded, bare));
        let forwarded = rate(long, |at| Ok(file.write_all_at(&block, at)?))?;
        let bare = rate(long, |at| relayed(&mut socket, WRITE, at, &mut block))?;
        writes.push((forwarded, bare));
    }
    ensure!(block.iter().all(|byte| *byte == 7), "other bytes came back");
    println!("{}", json!({ "reads": reads, "writes": writes }));
    Ok(())
}

fn relayed(socket: &mut UnixStream, kind: u64, at: u64, block: &mut [u8]) -> anyhow::Result<()> {
    let words = [kind.to_le_bytes(), at.to_le_bytes()].concat();
    socket.write_all(&words)?;
    if kind == READ {
        socket.read_exact(block)?;
    } else {
        socket.write_all(block)?;
        socket.read_exact(&mut [0])?;
    }
    Ok(())
}

/// Megabytes a second, from the beginning of the file again and again.
fn rate(long: Duration, mut block: impl FnMut(u64) -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let (start, mut count) = (Instant::now(), 0u64);
    while start.elapsed() < long {
        block(count * BLOCK as u64 % FILE)?;
        count += 1;
    }
    Ok(count as f64 * BLOCK as f64 / 1e6 / start.elapsed().as_secs_f64())
}
