//! `presagio run --forward`: what lies under a prefix is served by I/O nodes, to a program that knows nothing of it.
//!
//! A library in the command (libpresagio_divert.so) serves the calls. It reaches the nodes through a switchboard that
//! this process keeps for as long as the command runs, so that programs hold no key and need no way to a node.

use super::library::Preload;
use super::place::Place;
use super::supervise::{is_in_a_hurry, say};
use crate::direct::{Direct, Local, look_at};
use crate::failure::failure;
use crate::nodes::{Reach, answers, attempt};
use presagio_forward::switchboard::{Forwarded, Serving, Switchboard, VARIABLE};
use presagio_forward::{Address, Instance, LastResort, Options, Resort};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

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
    /// Where the export behind PREFIX is mounted on this machine: used while none of its nodes can be reached
    #[arg(
        long,
        value_name = "PREFIX=DIR",
        value_parser = direct,
        requires = "forward",
        help_heading = "Nodes"
    )]
    forward_direct: Vec<(String, PathBuf)>,
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

/// How long the direct ways may take to end, and how often to look whether somebody is in a hurry.
const END: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(100);

/// All that a command needs whose files are forwarded.
pub struct Forward {
    switchboard: Switchboard,
    /// Where programs make directories that stand for forwarded ones.
    shadows: PathBuf,
    place: Place,
    requests: Vec<Request>,
    direct: Vec<(String, Arc<Direct>)>,
}

/// What goes on while the command runs.
pub struct Forwarding {
    serving: Serving,
    _place: Place,
    direct: Vec<(String, Arc<Direct>)>,
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
        let shadows = shadows(&place)?;
        let owners = Instance::draw()?;
        self.check_direct(&requests)?;
        let (mut exports, mut direct) = (Vec::new(), Vec::new());
        for request in &requests {
            let mut options = self.reach.options(request.nodes.clone(), "presagio run")?;
            options.owners = Some(owners);
            match self.direct(&request.prefix, &options) {
                None => explained(&request.prefix, answers_soon(&options))?,
                Some(way) => {
                    if let Err(error) = explained(&request.prefix, answers(&options)) {
                        say(&format!(
                            "presagio: going to {} directly; {error:#}\n",
                            way.dir().display()
                        ));
                        way.at_once();
                    }
                    options.last_resort = Some(LastResort(way.clone()));
                    direct.push((request.prefix.clone(), way));
                }
            }
            exports.push(Forwarded {
                prefix: request.prefix.clone().into_bytes(),
                options,
            });
        }
        Ok(Some(Forward {
            switchboard: Switchboard::open(exports)?,
            shadows,
            place,
            requests,
            direct,
        }))
    }

    /// The direct way to what lies under a prefix, if there is one.
    fn direct(&self, prefix: &str, options: &Options) -> Option<Arc<Direct>> {
        let mut all = self.forward_direct.iter();
        let (_, dir) = all.find(|(of, _)| of == prefix)?;
        let after = options.patience / 4;
        let options = options.clone();
        let is_back = move || any_answers(&options);
        Some(Arc::new(Direct::until_back(dir, after, is_back)))
    }

    /// That every direct way is one to what is forwarded, and leads somewhere.
    fn check_direct(&self, requests: &[Request]) -> anyhow::Result<()> {
        for (prefix, dir) in &self.forward_direct {
            let what = format!("--forward-direct {prefix}={}", dir.display());
            if !requests.iter().any(|request| request.prefix == *prefix) {
                let advice = "give --forward with the same prefix";
                return Err(failure(what, "that prefix is not forwarded", advice));
            }
            match look_at(dir, "--forward-direct")? {
                Local::There => {}
                Local::Missing => {
                    let advice = "name where the export is mounted on this machine";
                    return Err(failure(what, "that is no directory here", advice));
                }
                Local::Silent => say(&format!(
                    "presagio: {} does not answer now\n",
                    dir.display()
                )),
            }
        }
        Ok(())
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
        for (_, way) in self.direct.iter().filter(|(_, way)| way.is_used()) {
            way.watch()?;
        }
        Ok(Forwarding {
            serving: self.switchboard.serve()?,
            _place: self.place,
            direct: self.direct,
        })
    }

    /// For the environment: the switchboard, the place for shadows, and the prefixes in the switchboard's order.
    pub fn value(&self) -> OsString {
        let mut value = self.switchboard.name().as_bytes().to_vec();
        value.push(b':');
        value.extend_from_slice(self.shadows.as_os_str().as_bytes());
        for request in &self.requests {
            value.push(b':');
            value.extend_from_slice(request.prefix.as_bytes());
        }
        OsString::from_vec(value)
    }
}

impl Forwarding {
    /// The command is over: says what went around the nodes. A directory that hangs is not waited for.
    pub fn end(self) {
        // Whoever was used instead of the nodes is still told which programs are dead.
        drop(self.serving);
        let ends = self.direct.iter().map(|(prefix, way)| {
            if way.was_used() {
                say(&format!(
                    "presagio: while no node could be reached, {prefix} was served from {} directly\n",
                    way.dir().display()
                ));
            }
            (way.dir(), way.end())
        });
        let (ends, late): (Vec<_>, _) = (ends.collect(), Instant::now() + END);
        for (dir, process) in ends {
            while process.as_ref().is_some_and(|it| !it.has_ended(LOOK)) {
                if Instant::now() > late || is_in_a_hurry() {
                    let dir = dir.display();
                    say(&format!("presagio: {dir} does not answer, and is left\n"));
                    break;
                }
            }
        }
    }
}

/// Puts the library and what it has to know into the environment of what is started next.
pub fn enter(forward: Option<&Forward>, preload: &Preload) -> anyhow::Result<()> {
    match forward {
        Some(forward) => preload.enter_divert(&forward.value()),
        None => Ok(()),
    }
}

/// A place as the kernel calls it, since by that a working directory is known.
fn shadows(place: &Place) -> anyhow::Result<PathBuf> {
    let path = place.path().canonicalize()?;
    if path.as_os_str().as_bytes().contains(&b':') {
        let what = format!("{} has a colon in it", path.display());
        let advice = "set XDG_RUNTIME_DIR to another directory of your own";
        return Err(failure(
            what,
            "a colon divides what programs are told",
            advice,
        ));
    }
    Ok(path)
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

/// Reads `PREFIX=DIR`.
fn direct(text: &str) -> Result<(String, PathBuf), String> {
    let Some((of, dir)) = text.split_once("=/") else {
        return Err("write PREFIX=DIR, where both begin with a slash".into());
    };
    Ok((prefix(of)?, Path::new("/").join(dir)))
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

/// How long a node that is just being started again may take, when a command begins.
const RESTART_MAX: Duration = Duration::from_secs(5);
const ASK_EVERY: Duration = Duration::from_millis(250);

/// What to do about nodes that cannot be reached, or do not let us in.
fn explained(prefix: &str, answered: Result<(), String>) -> anyhow::Result<()> {
    answered.map_err(|why| {
        let what = format!("cannot forward {prefix}");
        let advice = "is `presagio ionode` running there, and does it let you in?";
        failure(what, why, advice)
    })
}

/// Asks until one of them answers. Nodes that were there get the time that a restart takes: a job may begin in one.
fn answers_soon(options: &Options) -> Result<(), String> {
    let until = Instant::now() + options.patience.min(RESTART_MAX);
    loop {
        let answered = answers(options);
        let may_come = options.nodes.iter().any(was_there);
        if answered.is_ok() || !may_come || Instant::now() + ASK_EVERY > until {
            return answered;
        }
        std::thread::sleep(ASK_EVERY);
    }
}

/// Whether there is more than a name: the socket of a node that is killed stays.
fn was_there(node: &Address) -> bool {
    match node {
        Address::Unix(path) => path.exists(),
        Address::Tcp(_) => true,
    }
}

/// Whether any of the nodes can be reached: all are asked at the same time.
fn any_answers(options: &Options) -> bool {
    std::thread::scope(|scope| {
        let ask = |node| {
            let thread = std::thread::Builder::new();
            thread.spawn_scoped(scope, move || attempt(options, node).is_ok())
        };
        let all: Vec<_> = (0..options.nodes.len()).map(ask).collect();
        all.into_iter()
            .flatten()
            .any(|one| one.join().unwrap_or(false))
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
    fn a_direct_way_has_two_absolute_ends() {
        let parsed = direct("/far/=/mnt/x").unwrap();
        assert_eq!(parsed, ("/far".to_owned(), PathBuf::from("/mnt/x")));
        for bad in ["/far", "/far=mnt", "far=/mnt", "/=/mnt"] {
            assert!(direct(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_longest_prefix_is_the_first_and_none_is_there_twice() {
        let requests = |list: &[&str]| sorted(list.iter().map(|t| request(t).unwrap()).collect());
        let both = requests(&["/a=unix:/s", "/a/b=unix:/t"]).unwrap();
        assert_eq!(both[0].prefix, "/a/b");
        assert!(requests(&["/a=unix:/s", "/a/=unix:/t"]).is_err());
    }
}
