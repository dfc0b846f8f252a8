//! Files that I/O nodes serve: nothing is loaded here for them, but what models expect of them is foretold to the nodes, so
//! that requests of several programs which belong together are served together.
//!
//! Each request that is expected is held against what then happens; where too little comes true, nothing is told until
//! that is better ([`Ahead`]). A thread of its own does the telling (`teller`).

use super::teller::{Request, Teller};
use crate::plan::FileNumber;
use presagio_core::{IdHashMap, Nanos, Op, Range};
use presagio_forward::Ahead;
use std::sync::Arc;

/// Requests of a process that are told ahead, at most.
pub(super) const AHEAD: usize = Ahead::<Coming>::MAX;
/// A larger one goes to a node in several pieces, and gains nothing by company.
pub(super) const LENGTH_MAX: u64 = 1 << 20;

/// A request for bytes of a forwarded file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Coming {
    pub file: FileNumber,
    pub op: Op,
    pub range: Range,
}

/// One that is expected, and when it begins and ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Soon {
    pub coming: Coming,
    pub begin: Nanos,
    pub end: Nanos,
}

/// See the module's header.
pub(super) struct Foretelling {
    teller: Teller,
    expected: IdHashMap<u32, Ahead<Coming>>,
    /// Requests that were told, and those of them that came.
    pub told: u64,
    pub came: u64,
    /// How often telling was given up.
    pub given_up: u64,
}

impl Foretelling {
    /// For a switchboard of this name.
    pub fn new(switchboard: &str) -> Foretelling {
        Foretelling {
            teller: Teller::new(switchboard),
            expected: IdHashMap::default(),
            told: 0,
            came: 0,
            given_up: 0,
        }
    }

    /// A process has read or written bytes of a forwarded file.
    pub fn happened(&mut self, process: u32, coming: &Coming) {
        self.teller.start();
        if let Some(expected) = self.expected.get_mut(&process) {
            let told_before = expected.tells();
            self.came += u64::from(expected.happened(coming) == Some(true));
            self.given_up += u64::from(told_before && !expected.tells());
        }
    }

    /// A model expects this of a process. `path` of a file is its prefix, its inode, and its path below the prefix.
    pub fn expects(
        &mut self,
        process: u32,
        soon: &[Soon],
        path: impl Fn(FileNumber) -> Option<(usize, u64, Arc<[u8]>)>,
    ) {
        let expected = self.expected.entry(process).or_default();
        let coming: Vec<Coming> = soon.iter().map(|soon| soon.coming).collect();
        let Some(from) = expected.renew(&coming) else {
            return;
        };
        let some = &soon[from..soon.len().min(AHEAD)];
        let requests: Vec<Request> = some
            .iter()
            .filter_map(|soon| {
                let (prefix, inode, path) = path(soon.coming.file)?;
                Some(Request {
                    prefix,
                    inode,
                    path,
                    op: soon.coming.op,
                    range: soon.coming.range,
                    begin: soon.begin,
                    end: soon.end,
                })
            })
            .collect();
        self.told += (requests.len() - usize::from(from > 0).min(requests.len())) as u64;
        self.teller.tell(requests);
    }

    /// A process is gone.
    pub fn ended(&mut self, process: u32) {
        self.expected.remove(&process);
    }

    /// Why nodes cannot be told anything, if they cannot.
    pub fn trouble(&self) -> Option<String> {
        self.teller.trouble()
    }
}

/// The switchboard and the prefixes that orders name: `switchboard:prefix[:prefix…]`.
pub(super) fn read_orders(value: &[u8]) -> Option<(String, Vec<Vec<u8>>)> {
    let mut parts = value.split(|byte| *byte == b':');
    let name = String::from_utf8(parts.next()?.to_vec()).ok()?;
    let prefixes: Vec<Vec<u8>> = parts.map(<[u8]>::to_vec).collect();
    (!name.is_empty() && !prefixes.is_empty()).then_some((name, prefixes))
}

/// What of a path is below a prefix.
pub(super) fn below<'a>(path: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(prefix)?;
    rest.strip_prefix(b"/").filter(|rest| !rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_name_the_switchboard_and_the_prefixes() {
        let (name, prefixes) = read_orders(b"board:/a:/b/c").unwrap();
        assert_eq!((name.as_str(), prefixes.len()), ("board", 2));
        assert_eq!(below(b"/b/c/d/e", &prefixes[1]), Some(&b"d/e"[..]));
        assert_eq!(below(b"/b/cd", &prefixes[1]), None);
        assert_eq!(read_orders(b"board"), None);
    }
}
