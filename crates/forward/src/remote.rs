//! The files of an export, through whichever of its nodes can be reached.

use crate::file::{File, as_it_was};
use crate::held::{Held, Place};
use crate::link::{Link, Target, share};
use crate::options::{Dial, Instance, Options, Spread};
use crate::preference::preference;
use presagio_core::{Nanos, Op, Range};
use presagio_ninep::request::FORESEEN_MAX;
use presagio_ninep::{Errno, Fid, List, OpenFlags, Qid, Request, Text, extension};
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Users that may be attached at once.
const USERS_MAX: usize = 4096;

/// The files of an export. Clones are handles of the same.
#[derive(Clone)]
pub struct Remote {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) options: Arc<Options>,
    /// One, or one for each node when files are spread; `home` is for names and attributes.
    links: Vec<Arc<Link>>,
    home: usize,
    /// By link and user.
    roots: Mutex<HashMap<(usize, u32), Arc<Held>>>,
}

/// How a client stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The node that it talks to, if any.
    pub node: Option<String>,
    /// Whether that one knows Presagio's messages.
    pub extensions: bool,
    /// Connections that were made or tried so far: one, if none was ever lost.
    pub connections: u64,
    /// Files that nodes hold for it.
    pub files: usize,
}

/// A request that is about to come.
#[derive(Clone, Debug)]
pub struct Foreseen<'a> {
    /// Of which file: one that is open, or the path from the root of the export of one that will be.
    pub file: Result<&'a File, &'a [u8]>,
    /// Read or write.
    pub op: Op,
    /// Which bytes.
    pub range: Range,
    /// How long after the one before it was answered; of the first, how long from now.
    pub after: Nanos,
}

impl Remote {
    /// A client of these nodes. It connects when it is first used.
    pub fn new(mut options: Options) -> io::Result<Remote> {
        if options.nodes.is_empty() {
            let what = "no I/O node is given: name at least one";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let instance = match options.instance {
            Some(instance) => instance,
            None => Instance::draw()?,
        };
        options.instance = Some(instance);
        // Clients that share owners are the processes of one run: they begin at the same node, and see what each other did.
        let run = options.owners.unwrap_or(instance);
        let by_client = preference(&options.nodes, &run.0);
        let orders: Vec<Vec<usize>> = match options.spread {
            Spread::Clients => vec![by_client.clone()],
            Spread::Files => (0..options.nodes.len())
                .map(|node| first(node, &by_client))
                .collect(),
        };
        let home = match options.spread {
            Spread::Clients => 0,
            Spread::Files => by_client[0],
        };
        let options = Arc::new(options);
        let links = orders.into_iter().enumerate();
        let links = links.map(|(i, order)| Link::new(options.clone(), instance.of_link(i), order));
        let inner = Inner {
            links: links.collect(),
            options,
            home,
            roots: Mutex::default(),
        };
        Ok(Remote {
            inner: Arc::new(inner),
        })
    }

    /// The root of the export for a user, attached: EACCES if the node does not believe that we are that user, EIO if
    /// no node can be reached.
    pub fn root(&self, uid: u32) -> Result<File, Errno> {
        let link = &self.inner.links[self.inner.home];
        let root = self.inner.root(link, uid)?;
        let file = File::new(&self.inner, root);
        file.check()?;
        Ok(file)
    }

    /// Tells all nodes that other clients of this user are dead, so that their locks end now and not after a while: a client
    /// may have been at any of them. Those that cannot be told keep nobody waiting for long, however many they are, nor the others
    /// from being told.
    pub fn died(&self, uid: u32, clients: &[Instance]) {
        let nodes = (0..self.inner.options.nodes.len()).map(Target::Node);
        let resort = self.inner.options.last_resort.iter();
        let all: Vec<Target> = nodes.chain(resort.map(|_| Target::LastResort)).collect();
        let until = Instant::now() + TOLD_WITHIN;
        let tell = |target, until| {
            if let Err(error) = self.tell(target, until, uid, clients) {
                tracing::debug!(?target, %error, "cannot be told that a client is dead");
            }
        };
        if !self.inner.options.threads {
            for (told, target) in all.iter().enumerate() {
                // Each has its share of the time, and what those before it have left.
                tell(*target, share(until, all.len() - told));
            }
            return;
        }
        std::thread::scope(|scope| {
            for target in all {
                let thread = std::thread::Builder::new().name("tell".into());
                if thread
                    .spawn_scoped(scope, move || tell(target, until))
                    .is_err()
                {
                    tell(target, until);
                }
            }
        });
    }

    /// Tells one of them.
    fn tell(
        &self,
        target: Target,
        until: Instant,
        uid: u32,
        clients: &[Instance],
    ) -> io::Result<()> {
        let mut options = Options::clone(&self.inner.options);
        // Another client than who tells: that one's connections go on.
        options.instance = None;
        (options.patience, options.threads) = (Duration::ZERO, false);
        let left = until.saturating_duration_since(Instant::now());
        options.connect_timeout = options.connect_timeout.min(left);
        options.timeout = options.connect_timeout;
        match target {
            Target::Node(node) => tell_node(options, node, uid, clients),
            Target::LastResort => {
                // A program has no other way to it than the one that it uses.
                let mut links = self.inner.links.iter();
                let used = |link: &&Arc<Link>| {
                    link.current()
                        .is_some_and(|now| now.target == Target::LastResort)
                };
                match links.find(used) {
                    Some(link) => {
                        let root = self.inner.root(link, uid).map_err(error)?;
                        all_died(&File::new(&self.inner, root), clients)
                    }
                    None => tell_resort(options, uid, clients),
                }
            }
        }
    }

    /// Files like this one are best had from this node of the list: one that has not talked to a node yet begins there.
    pub fn prefer(&self, qid: Qid, node: usize) {
        let inner = &self.inner;
        inner.link_of(&inner.links[inner.home], qid).prefer(node);
    }

    /// A file that another process has opened, as it has it: by its handle, or by its path where the node has no handles,
    /// if that still leads to the same file. ESTALE if it is gone.
    pub fn reopen(
        &self,
        uid: u32,
        flags: OpenFlags,
        qid: Qid,
        path: &[u8],
        handle: Option<&[u8]>,
    ) -> Result<File, Errno> {
        let inner = &self.inner;
        let link = inner.link_of(&inner.links[inner.home], qid);
        let held = Held::new(&link, Some(inner.root(&link, uid)?))?;
        let mut place = Place::at(qid, path.to_vec());
        place.handle = handle.map(Into::into);
        place.open = (!flags.contains(OpenFlags::PATH)).then(|| as_it_was(flags));
        held.set_place(place);
        let file = File::new(inner, held);
        file.check()?;
        if handle.is_none() {
            file.learn_handle();
        }
        Ok(file)
    }

    /// Why no node could be reached when one was last tried.
    pub fn last_error(&self) -> String {
        self.inner.links[self.inner.home].last_error()
    }

    /// How it stands with the node for names and attributes.
    pub fn status(&self) -> Status {
        let link = &self.inner.links[self.inner.home];
        let current = link.current();
        Status {
            extensions: current.as_ref().is_some_and(|now| now.is_presagio()),
            node: current.map(|now| now.name.clone()),
            connections: link.generation(),
            files: self.inner.links.iter().map(|link| link.files()).sum(),
        }
    }

    /// Announces requests to the nodes that will get them: those of one program, in their order. Nobody waits, and nothing
    /// depends on whether they arrive.
    pub fn foresee(&self, requests: &[Foreseen<'_>]) {
        for (index, link) in self.inner.links.iter().enumerate() {
            let Some(connection) = link.current().filter(|now| now.is_presagio()) else {
                continue;
            };
            let mine = requests.iter().filter_map(|request| {
                let fid = match request.file {
                    Ok(file) if Arc::ptr_eq(&file.held.link, link) => Ok(file.held.fid),
                    Err(path) if index == self.inner.home => Err(Text::new(path).ok()?),
                    _ => return None,
                };
                Some(announcement(fid, request))
            });
            let mine: Vec<_> = mine.collect();
            for some in mine.chunks(FORESEEN_MAX) {
                let Ok(requests) = List::new(some) else {
                    continue;
                };
                // The ticket is dropped: the reply goes nowhere.
                drop(connection.client.submit(Request::Foresee { requests }));
            }
        }
    }
}

/// How long telling all nodes that a client is dead may take.
const TOLD_WITHIN: Duration = Duration::from_secs(2);

/// Tells one node that these clients are dead.
fn tell_node(mut options: Options, node: usize, uid: u32, clients: &[Instance]) -> io::Result<()> {
    if let Some(dial) = options.dial.take() {
        options.dial = Some(Dial(Arc::new(move |_, left| (dial.0)(node, left))));
    }
    options.nodes = vec![options.nodes.swap_remove(node)];
    // That this node is gone does not mean that all are.
    options.last_resort = None;
    tell(options, uid, clients)
}

/// The same of what is there in the place of nodes. It is not begun for that.
fn tell_resort(mut options: Options, uid: u32, clients: &[Instance]) -> io::Result<()> {
    let resort = options.last_resort.take();
    let Some(socket) = resort.map_or(Ok(None), |resort| resort.0.visit())? else {
        return Ok(());
    };
    let once = Mutex::new(Some(socket));
    options.dial = Some(Dial(Arc::new(move |_, _| {
        let mut once = once.lock().unwrap_or_else(PoisonError::into_inner);
        once.take()
            .ok_or_else(|| io::ErrorKind::ConnectionRefused.into())
    })));
    options.nodes.truncate(1);
    tell(options, uid, clients)
}

/// The same of whoever answers first.
fn tell(options: Options, uid: u32, clients: &[Instance]) -> io::Result<()> {
    all_died(&Remote::new(options)?.root(uid).map_err(error)?, clients)
}

/// If it does not answer for one, it is not asked for the others.
fn all_died(root: &File, clients: &[Instance]) -> io::Result<()> {
    let mut clients = clients.iter();
    clients
        .try_for_each(|client| root.died(*client))
        .map_err(error)
}

fn error(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.0 as i32)
}

fn announcement<'a>(
    file: Result<Fid, Text<'a>>,
    request: &Foreseen<'_>,
) -> extension::Foreseen<'a> {
    extension::Foreseen {
        file: match file {
            Ok(fid) => extension::ForeseenFile::Fid(fid),
            Err(path) => extension::ForeseenFile::Path(path),
        },
        op: request.op,
        range: request.range,
        after: request.after,
    }
}

/// `order` with `node` before all others.
fn first(node: usize, order: &[usize]) -> Vec<usize> {
    let others = order.iter().copied().filter(|other| *other != node);
    std::iter::once(node).chain(others).collect()
}

impl Inner {
    /// The root of a user on a link.
    pub(crate) fn root(&self, link: &Arc<Link>, uid: u32) -> Result<Arc<Held>, Errno> {
        let index = self.links.iter().position(|other| Arc::ptr_eq(other, link));
        let key = (index.unwrap_or(0), uid);
        let mut roots = self.roots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(root) = roots.get(&key) {
            return Ok(root.clone());
        }
        if roots.len() >= USERS_MAX {
            // Those that nobody uses come back when they are needed.
            roots.retain(|_, root| Arc::strong_count(root) > 1);
        }
        if roots.len() >= USERS_MAX {
            return Err(Errno(11));
        }
        let root = Held::new_root(link, uid)?;
        roots.insert(key, root.clone());
        Ok(root)
    }

    /// All links but this one.
    pub(crate) fn others(&self, link: &Arc<Link>) -> impl Iterator<Item = &Arc<Link>> {
        let others = self.links.iter();
        others.filter(move |other| !Arc::ptr_eq(other, link))
    }

    /// Whose a file is.
    pub(crate) fn user_of(&self, held: &Arc<Held>) -> u32 {
        held.root().user()
    }

    /// Where a file is to be opened.
    pub(crate) fn link_of(&self, here: &Arc<Link>, qid: Qid) -> Arc<Link> {
        if self.options.spread == Spread::Clients || qid.kind != presagio_ninep::QidKind::FILE {
            return here.clone();
        }
        let order = preference(&self.options.nodes, &qid.path.to_le_bytes());
        self.links[order[0]].clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processes_of_a_run_prefer_the_same_node_and_runs_do_not() {
        let nodes = || (0..4).map(|i| format!("unix:/node{i}").parse().unwrap());
        let first = |run: u8| {
            let mut options = Options::new(nodes().collect());
            options.owners = Some(Instance([run; 16]));
            let remote = Remote::new(options).unwrap();
            remote.inner.links[0].order().to_vec()
        };
        for run in 1..20 {
            assert_eq!(first(run), first(run), "each is a process of its own");
        }
        assert!((2..20).any(|run| first(run) != first(1)));
    }
}
