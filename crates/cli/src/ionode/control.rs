//! Talking to a node that runs: over its control socket, in HTTP.

use crate::failure::failure;
use presagio_ionode::Address;
use std::io::{self, Error, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// How long a node may be silent.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(clap::Subcommand)]
pub enum Order {
    /// What does a node do now?
    #[command(after_help = "\
Examples:
  presagio ionode status unix:/run/node.sock.control
  presagio ionode status unix:/run/node.sock.control --metrics")]
    Status {
        /// Its control socket, or where Prometheus reads
        #[arg(value_name = "ADDRESS")]
        node: Address,
        /// All figures, in Prometheus's format
        #[arg(long)]
        metrics: bool,
        /// The patterns that it knows by itself, and what follows what, with --context pattern
        #[arg(long, conflicts_with = "metrics")]
        patterns: bool,
    },
    /// Schedule requests by another policy from now on
    #[command(after_help = "\
Examples:
  presagio ionode policy SJF unix:/run/node.sock.control
  presagio ionode policy TWINS:0.5ms unix:/run/node.sock.control
  presagio ionode policy adaptive unix:/run/node.sock.control")]
    Policy {
        /// Which
        #[arg(value_name = "NAME")]
        name: String,
        /// The control socket
        #[arg(value_name = "unix:PATH")]
        node: Address,
    },
    /// Begin a trace, or end it if no file is named
    #[command(after_help = "\
Examples:
  presagio ionode record unix:/run/node.sock.control day.ptrace
  presagio ionode record unix:/run/node.sock.control          that is all")]
    Record {
        /// The control socket
        #[arg(value_name = "unix:PATH")]
        node: Address,
        /// Where the node writes it
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Expect what a trace of an earlier run has, or nothing if none is named
    #[command(after_help = "\
Examples:
  presagio ionode foresight unix:/run/node.sock.control day.ptrace
  presagio ionode foresight unix:/run/node.sock.control --clients off")]
    Foresight {
        /// The control socket
        #[arg(value_name = "unix:PATH")]
        node: Address,
        /// The trace
        #[arg(value_name = "TRACE")]
        trace: Option<PathBuf>,
        /// Leave that, and hear what clients foretell, or hear it no more
        #[arg(long, value_name = "on|off", value_parser = ["on", "off"], conflicts_with = "trace")]
        clients: Option<String>,
    },
}

impl Order {
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let absolute = |path: &PathBuf| -> anyhow::Result<String> {
            Ok(escaped(&std::path::absolute(path)?.to_string_lossy()))
        };
        let (node, method, target) = match self {
            Order::Status {
                node,
                metrics: true,
                ..
            } => (node, "GET", "/metrics".to_owned()),
            Order::Status {
                node,
                patterns: true,
                ..
            } => (node, "GET", "/patterns".to_owned()),
            Order::Status { node, .. } => (node, "GET", "/status".to_owned()),
            Order::Policy { name, node } => {
                (node, "POST", format!("/policy?name={}", escaped(name)))
            }
            Order::Record {
                node,
                file: Some(file),
            } => (node, "POST", format!("/record?file={}", absolute(file)?)),
            Order::Record { node, .. } => (node, "DELETE", "/record".to_owned()),
            Order::Foresight {
                node,
                clients: Some(how),
                ..
            } => (node, "POST", format!("/foresight?clients={how}")),
            Order::Foresight {
                node,
                trace: Some(trace),
                ..
            } => (
                node,
                "POST",
                format!("/foresight?file={}", absolute(trace)?),
            ),
            Order::Foresight { node, .. } => (node, "DELETE", "/foresight".to_owned()),
        };
        let answer = ask(node, method, &target).map_err(|cause| {
            failure(
                format!("cannot talk to {node}"),
                cause,
                "is the node running, and this its control socket?",
            )
        })?;
        match answer {
            (200, body) => {
                io::stdout().write_all(body.as_bytes())?;
                Ok(ExitCode::SUCCESS)
            }
            (_, why) => Err(failure(
                "the node refused",
                why.trim(),
                "see presagio help ionode",
            )),
        }
    }
}

/// One request, one connection.
pub fn ask(node: &Address, method: &str, target: &str) -> io::Result<(u16, String)> {
    let request =
        format!("{method} {target} HTTP/1.0\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    let mut answer = Vec::new();
    match node {
        Address::Unix(path) => {
            let mut stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(request.as_bytes())?;
            stream.read_to_end(&mut answer)
        }
        Address::Tcp(host) => {
            let mut stream = TcpStream::connect(host)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(request.as_bytes())?;
            stream.read_to_end(&mut answer)
        }
    }
    .map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => Error::other(format!("no answer within {PATIENCE:?}")),
        _ => error,
    })?;
    let answer = String::from_utf8_lossy(&answer);
    let malformed = || Error::other("it does not answer in HTTP");
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(malformed)?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    Ok((status.ok_or_else(malformed)?, body.to_owned()))
}

/// A value that may stand in a query.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    let bytes = text.bytes().map(|byte| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    bytes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_query_are_escaped() {
        assert_eq!(escaped("/tmp/a b&c=1%"), "/tmp/a%20b%26c%3D1%25");
    }
}
