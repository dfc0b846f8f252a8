//! A layout that a person has configured: `stripe=1MiB servers=4 first=hash`.
//!
//! Every file has stripes of that size on all servers in turn. `first` is the server of the first stripe: a number, or
//! `hash` (also when it is not said), which follows from the file, so that small files spread.

use super::{Layout, LayoutError, STRIPE_MIN, Servers, number_of};
use std::str::FromStr;

/// The most data servers that can be told apart.
pub(crate) const SERVERS_MAX: u32 = 65_536;

/// How all files are striped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configured {
    stripe: u64,
    servers: u32,
    first: First,
}

/// Which server has the first stripe of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// One that follows from the file.
    Hash,
    /// Always this one.
    Server(u32),
}

impl Configured {
    /// How many servers there are.
    pub fn servers(&self) -> u32 {
        self.servers
    }

    /// The layout of the file with that number.
    pub fn layout(&self, file: u64) -> Layout<u32> {
        let first = match self.first {
            First::Hash => number_of(&file.to_le_bytes(), self.servers),
            First::Server(server) => server,
        };
        let servers = (0..self.servers).map(|i| (first + i) % self.servers);
        Layout::whole(Servers::Turns {
            stripe: self.stripe,
            servers: servers.collect(),
        })
    }
}

impl FromStr for Configured {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<Configured, LayoutError> {
        let (mut stripe, mut servers, mut first) = (None, None, None);
        for word in words(text) {
            match word.key {
                "stripe" => word.set(&mut stripe, word.stripe()?)?,
                "servers" => word.set(&mut servers, word.servers()?)?,
                "first" => word.set(&mut first, word.first()?)?,
                _ => return Err(word.wrong("stripe=…, servers=… or first=…")),
            }
        }
        let missing = |what| LayoutError::new(text.len(), format!("{what} is missing"));
        let configured = Configured {
            stripe: stripe.ok_or_else(|| missing("stripe=SIZE, such as stripe=1MiB,"))?,
            servers: servers.ok_or_else(|| missing("servers=NUMBER"))?,
            first: first.unwrap_or(First::Hash),
        };
        configured.sound(text)
    }
}

impl Configured {
    fn sound(self, text: &str) -> Result<Configured, LayoutError> {
        match self.first {
            First::Server(server) if server >= self.servers => {
                let servers = self.servers;
                let what = format!("first={server}, but there are {servers} servers, from 0");
                Err(LayoutError::new(text.find("first").unwrap_or(0), what))
            }
            _ => Ok(self),
        }
    }
}

/// `key=value`, and where it begins.
#[derive(Clone, Copy)]
pub(crate) struct Word<'a> {
    at: usize,
    pub key: &'a str,
    pub value: &'a str,
}

/// The words of a text; one without `=` has an empty value.
pub(crate) fn words(text: &str) -> impl Iterator<Item = Word<'_>> {
    text.split_whitespace().map(move |word| {
        let at = word.as_ptr() as usize - text.as_ptr() as usize;
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        Word { at, key, value }
    })
}

impl Word<'_> {
    pub fn wrong(&self, right: &str) -> LayoutError {
        let (key, value) = (self.key, self.value);
        let found: String = format!("{key}={value}").chars().take(100).collect();
        LayoutError::new(self.at, format!("{found:?} is not {right}"))
    }

    /// Each is said once.
    pub fn set<T>(&self, to: &mut Option<T>, value: T) -> Result<(), LayoutError> {
        match to.replace(value) {
            None => Ok(()),
            Some(_) => Err(LayoutError::new(
                self.at,
                format!("{} is said twice", self.key),
            )),
        }
    }

    pub fn number(&self) -> Result<u64, LayoutError> {
        self.value.parse().map_err(|_| self.wrong("a number"))
    }

    pub fn servers(&self) -> Result<u32, LayoutError> {
        let servers = self.value.parse().ok();
        let servers = servers.filter(|servers| (1..=SERVERS_MAX).contains(servers));
        servers.ok_or_else(|| self.wrong("servers=N with N from 1 to 65536"))
    }

    fn stripe(&self) -> Result<u64, LayoutError> {
        let stripe = bytes(self.value).filter(|stripe| *stripe >= STRIPE_MIN);
        stripe.ok_or_else(|| self.wrong("stripe=SIZE with 4096, 64KiB, 1MiB or the like"))
    }

    fn first(&self) -> Result<First, LayoutError> {
        if self.value == "hash" {
            return Ok(First::Hash);
        }
        let server = self.value.parse().map(First::Server);
        server.map_err(|_| self.wrong("first=hash or first=NUMBER"))
    }
}

/// `4096`, `64KiB`, `1MiB`, `2GiB`.
fn bytes(text: &str) -> Option<u64> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30)];
    for (unit, shift) in units {
        if let Some(number) = text.strip_suffix(unit) {
            return number.parse::<u64>().ok()?.checked_mul(1 << shift);
        }
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Configured, LayoutError> {
        text.parse()
    }

    #[test]
    fn what_a_person_writes_is_understood() {
        let configured = parse("stripe=1MiB servers=4").expect("a layout");
        let (stripe, servers, first) = (1 << 20, 4, First::Hash);
        assert_eq!(
            configured,
            Configured {
                stripe,
                servers,
                first
            }
        );
        let fixed = parse("  first=2 servers=3   stripe=65536 ").expect("a layout");
        let servers = vec![2, 0, 1];
        let stripe = 65536;
        assert_eq!(
            fixed.layout(9),
            Layout::whole(Servers::Turns { stripe, servers })
        );
    }

    #[test]
    fn files_begin_on_different_servers_each_on_its_own() {
        let configured = parse("stripe=1MiB servers=4").expect("a layout");
        let mut seen = std::collections::BTreeSet::new();
        for file in 0..50 {
            let layout = format!("{:?}", configured.layout(file));
            assert_eq!(layout, format!("{:?}", configured.layout(file)));
            seen.insert(layout);
        }
        assert_eq!(seen.len(), 4);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let wrong = [
            ("", 0, "stripe=SIZE"),
            ("stripe=1MiB", 11, "servers=NUMBER is missing"),
            ("stripe=1MiB servers=0", 12, "\"servers=0\" is not"),
            ("stripe=1MB servers=4", 0, "\"stripe=1MB\" is not"),
            ("stripe=100 servers=4", 0, "\"stripe=100\" is not"),
            ("servers=4 stripe=99999999999999999999GiB", 10, "is not"),
            (
                "stripe=1MiB servers=4 servers=4",
                22,
                "servers is said twice",
            ),
            ("stripe=1MiB servers=4 first=4", 22, "4 servers, from 0"),
            ("stripe=1MiB servers=4 depth=4", 22, "\"depth=4\" is not"),
        ];
        for (text, at, what) in wrong {
            let error = parse(text).expect_err(text);
            assert!(error.what.contains(what), "{text}: {error}");
            assert_eq!(error.at, at, "{text}: {error}");
        }
    }
}
