//! `presagio run --forward`: what lies under a prefix is served by I/O nodes, to a program that knows nothing of it.
//!
//! A library in the command (libpresagio_divert.so) serves the calls. It reaches the nodes through a switchboard that
//! this process keeps for as long as the command runs, so that programs hold no key and need no way to a node.

use super::library::Preload;
use super::place::Place;
use super::supervise::say;
use crate::failure::failure;
use crate::nodes::Reach;
use presagio_forward::switchboard::{Forwarded, Serving, Switchboard, VARIABLE};
use presagio_forward::{Address, Instance, Options, Remote};
use presagio_ninep::Errno;
use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::DirBuilderExt;
use std::time::Duration;

/// What to forward, and how.
#[derive(clap::Args, Clone, Debug)]
#[group(id = "forward-args")]
pub struct Args {
    /// Serve what lies under PREFIX from these I/O nodes (unix:PATH or tcp:HOST:PORT) instead of from this machine;
    /// may be given several times, and the longest prefix wins
    #[arg(
        long,
        value_name = "PREFIX=NODE[,NODE...]",
        value_parser = request,
        help_heading = "Nodes"
    )]
    forward: Vec<Request>,
    #[command(flatten)]
    reach: Reach,
}

/// One `--forward`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Request {
    prefix: String,
    nodes: Vec<Address>,
}

/// How the directories are called that stand for prefixes, and the file that says that one is in use.
const PLACE: &str = "presagio-forward-";
const LOCK: &str = "lock";

/// All that a command needs whose files are forwarded.
pub struct Forward {
    switchboard: Switchboard,
    place: Place,
    requests: Vec<Request>,
}

/// What goes on while the command runs.
pub struct Forwarding {
    _serving: Serving,
    _place: Place,
}

impl Args {
    /// Checks that every prefix has a node, and gets ready. No thread is started.
    pub fn prepare(&self) -> anyhow::Result<Option<Forward>> {
        if self.forward.is_empty() {
            return Ok(None);
        }
        if std::env::var_os(VARIABLE).is_some() {
            let what = "--forward within another presagio run that forwards";
            let cause = "a program has one switchboard";
            return Err(failure(what, cause, "name all prefixes with the outer one"));
        }
        let requests = sorted(self.forward.clone())?;
        let place = Place::make(PLACE, LOCK, b"locked while it is in use\n")?;
        let owners = Instance::draw()?;
        let mut exports = Vec::new();
        for (index, request) in requests.iter().enumerate() {
            let mut options = self.reach.options(request.nodes.clone(), "presagio run")?;
            options.owners = Some(owners);
            check(&request.prefix, &options)?;
            let shadow = place.path().join(index.to_string());
            DirBuilder::new().mode(0o700).create(&shadow)?;
            exports.push(Forwarded {
                prefix: request.prefix.clone().into_bytes(),
                shadow,
                options,
            });
        }
        Ok(Some(Forward {
            switchboard: Switchboard::open(exports)?,
            place,
            requests,
        }))
    }

    /// Says that nothing is forwarded, if something should be.
    pub fn say_switched_off(&self) {
        if !self.forward.is_empty() {
            say("presagio: nothing is forwarded: presagio is switched off here\n");
        }
    }

    /// What the summary says of it.
    pub fn notes(&self) -> Vec<String> {
        let notes = self.forward.iter().map(|request| {
            let nodes: Vec<String> = request.nodes.iter().map(ToString::to_string).collect();
            format!("{} was served by {}", request.prefix, nodes.join(", "))
        });
        notes.collect()
    }
}

impl Forward {
    /// Lets programs reach the nodes from here on.
    pub fn begin(self) -> io::Result<Forwarding> {
        Ok(Forwarding {
            _serving: self.switchboard.serve()?,
            _place: self.place,
        })
    }

    /// For the environment: the switchboard, and the prefixes in its order.
    pub fn value(&self) -> OsString {
        let mut value = self.switchboard.name().as_bytes().to_vec();
        for request in &self.requests {
            value.push(b':');
            value.extend_from_slice(request.prefix.as_bytes());
        }
        OsString::from_vec(value)
    }
}

/// Puts the library and what it has to know into the environment of what is started next.
pub fn enter(forward: Option<&Forward>, preload: &Preload) -> anyhow::Result<()> {
    match forward {
        Some(forward) => preload.enter_divert(&forward.value()),
        None => Ok(()),
    }
}

/// Reads `PREFIX=NODE[,NODE...]`.
fn request(text: &str) -> Result<Request, String> {
    let kinds = ["=unix:", "=tcp:"].into_iter();
    let at = kinds.filter_map(|kind| text.find(kind)).min();
    let Some(at) = at else {
        return Err("write PREFIX=unix:PATH or PREFIX=tcp:HOST:PORT".into());
    };
    Ok(Request {
        prefix: prefix(&text[..at])?,
        nodes: Address::list(&text[at + 1..]).map_err(|error| error.to_string())?,
    })
}

/// A prefix as paths are compared with it.
fn prefix(text: &str) -> Result<String, String> {
    if !text.starts_with('/') {
        return Err(format!(
            "the prefix {text:?} is not absolute: begin it with a slash"
        ));
    }
    if text.contains(':') {
        return Err(format!(
            "the prefix {text:?} has a colon, which divides prefixes"
        ));
    }
    let names: Vec<&str> = text
        .split('/')
        .filter(|n| !matches!(*n, "" | "."))
        .collect();
    match names.as_slice() {
        [] => Err("all files cannot be forwarded: name a directory below /".into()),
        names if names.contains(&"..") => Err(format!("the prefix {text:?} has .. in it")),
        names => Ok(format!("/{}", names.join("/"))),
    }
}

/// The longest first, each once.
fn sorted(mut requests: Vec<Request>) -> anyhow::Result<Vec<Request>> {
    requests.sort_by_key(|request| std::cmp::Reverse(request.prefix.len()));
    for (index, one) in requests.iter().enumerate() {
        if requests[..index]
            .iter()
            .any(|other| other.prefix == one.prefix)
        {
            let what = format!("{} is to be forwarded twice", one.prefix);
            let advice = "name all its nodes at once, with commas between them";
            return Err(failure(what, "a prefix belongs to one export", advice));
        }
    }
    Ok(requests)
}

/// That one of the nodes can be reached, and lets us in.
fn check(prefix: &str, options: &Options) -> anyhow::Result<()> {
    let mut said = Vec::new();
    for (index, node) in options.nodes.iter().enumerate() {
        match attempt(options, index) {
            Ok(()) => return Ok(()),
            Err(why) => said.push(format!("{node}: {why}")),
        }
    }
    let what = format!("cannot forward {prefix}");
    let advice = "is `presagio ionode` running there, and does it let you in?";
    Err(failure(what, said.join(", "), advice))
}

/// One attempt with one node.
fn attempt(options: &Options, node: usize) -> Result<(), String> {
    let mut options = options.clone();
    options.nodes = vec![options.nodes.swap_remove(node)];
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_absolute_plain_and_below_the_root() {
        let parsed = |text: &str| request(text).map(|request| request.prefix);
        assert_eq!(parsed("/far=unix:/s").unwrap(), "/far");
        assert_eq!(parsed("/far//x/./=tcp:n:1").unwrap(), "/far/x");
        assert_eq!(parsed("/a=b=unix:/s=t").unwrap(), "/a=b");
        for bad in [
            "far=unix:/s",
            "/=unix:/s",
            "/a/..=unix:/s",
            "/a:b=unix:/s",
            "/a",
            "/a=ib:x",
        ] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
        assert!(request("/a=tcp:n:0").is_err());
        assert_eq!(request("/a=unix:/s,tcp:n:1").unwrap().nodes.len(), 2);
    }

    #[test]
    fn the_longest_prefix_is_the_first_and_none_is_there_twice() {
        let requests = |list: &[&str]| sorted(list.iter().map(|t| request(t).unwrap()).collect());
        let both = requests(&["/a=unix:/s", "/a/b=unix:/t"]).unwrap();
        assert_eq!(both[0].prefix, "/a/b");
        assert!(requests(&["/a=unix:/s", "/a/=unix:/t"]).is_err());
    }
}
