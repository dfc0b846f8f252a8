//! Where a server listens, or is to be reached.

use crate::client::{Client, Lost, Options, Socket};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// The address of a server: `unix:/path/of/socket` or `tcp:host:port`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A Unix socket of this machine.
    Unix(PathBuf),
    /// `host:port`, resolved anew at each connection; port 0 is any, for one who listens.
    Tcp(String),
}

/// A text that is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no address: write unix:PATH or tcp:HOST:PORT, for example tcp:127.0.0.1:5640")]
pub struct BadAddress(String);

impl Address {
    /// Reads the addresses of servers to connect to, with commas between them: at least one, none twice, each with a port.
    pub fn list(text: &str) -> Result<Vec<Address>, BadAddress> {
        let mut all = Vec::new();
        for one in text.split(',') {
            let address: Address = one.parse()?;
            if address.is_any_port() || all.contains(&address) {
                return Err(BadAddress(text.to_owned()));
            }
            all.push(address);
        }
        Ok(all)
    }

    /// Whether one who listens there is given a port.
    fn is_any_port(&self) -> bool {
        matches!(self, Address::Tcp(host) if host.ends_with(":0"))
    }

    /// A socket that is connected to it.
    pub fn dial(&self, timeout: Duration) -> io::Result<OwnedFd> {
        match self {
            Address::Unix(path) => Ok(crate::client::connect_unix(path, timeout)?.into()),
            Address::Tcp(host) => Ok(crate::client::connect_tcp(host, timeout)?.into()),
        }
    }

    /// Connects, and agrees on a protocol.
    pub fn connect(&self, options: &Options) -> Result<Client, Lost> {
        let socket = self.dial(options.connect_timeout)?;
        Client::connect(Socket::new(socket)?, options)
    }
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Address, BadAddress> {
        let bad = || BadAddress(text.to_owned());
        match text.split_once(':').ok_or_else(bad)? {
            ("unix", path) if !path.is_empty() => Ok(Address::Unix(path.into())),
            ("tcp", host) => {
                let (name, port) = host.rsplit_once(':').ok_or_else(bad)?;
                let good = !name.is_empty() && port.parse::<u16>().is_ok();
                good.then(|| Address::Tcp(host.to_owned())).ok_or_else(bad)
            }
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(host) => write!(f, "tcp:{host}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written_alike() {
        for good in ["unix:/run/node.sock", "tcp:node7:5640", "tcp:[::1]:0"] {
            assert_eq!(good.parse::<Address>().unwrap().to_string(), good);
        }
        for bad in [
            "", "unix:", "/run/x", "tcp:node", "tcp::1", "tcp:n:x", "ib:n:1",
        ] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_list_is_of_what_can_be_reached() {
        assert_eq!(Address::list("unix:/a,tcp:b:1").unwrap().len(), 2);
        for bad in ["", "unix:/a,", "unix:/a,unix:/a", "tcp:b:0"] {
            assert!(Address::list(bad).is_err(), "{bad}");
        }
    }
}
