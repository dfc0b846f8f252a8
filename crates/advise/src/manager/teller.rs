//! Tells I/O nodes what will be asked of them, on a thread of its own, so that the manager never waits for a node.
//!
//! The nodes are reached as the programs reach them, through the switchboard. The programs of a run begin at one of them, and
//! may have lost it since, so all are told; where files are spread, the node of the file is.

use super::threads;
use presagio_core::{Nanos, Op, Range};
use presagio_forward::switchboard::Line;
use presagio_forward::{Dial, Foreseen, Options, Remote, Spread, preference};
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Announcements that wait; more are not made.
const QUEUE_MAX: usize = 64;
/// Nodes of one prefix that are told; where there are more, nobody is.
const NODES_MAX: usize = 8;
/// How long a node may take to let us in, and how long one that did not is left alone.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_secs(5);

/// A request that a program will make.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub prefix: usize,
    pub inode: u64,
    /// Below the prefix.
    pub path: Arc<[u8]>,
    pub op: Op,
    pub range: Range,
    /// From when it was told.
    pub begin: Nanos,
    pub end: Nanos,
}

/// What one program will ask for, in its order.
struct Announcement {
    requests: Vec<Request>,
    made: Instant,
}

/// See the module's header.
pub(super) struct Teller {
    switchboard: String,
    queue: Option<SyncSender<Announcement>>,
    trouble: Arc<Mutex<Option<String>>>,
}

impl Teller {
    /// The thread begins with [`Teller::start`].
    pub fn new(switchboard: &str) -> Teller {
        Teller {
            switchboard: switchboard.to_owned(),
            queue: None,
            trouble: Arc::default(),
        }
    }

    /// Gets ready: there will be something to tell.
    pub fn start(&mut self) {
        if self.queue.is_some() {
            return;
        }
        let (queue, announcements) = sync_channel(QUEUE_MAX);
        let (switchboard, trouble) = (self.switchboard.clone(), self.trouble.clone());
        let work = move || serve(&switchboard, &announcements, &trouble);
        // Where there can be no thread, the queue has no end.
        let _ = threads::spawn("foresight", work);
        self.queue = Some(queue);
    }

    /// Tells of what one program will ask for. Nothing depends on whether that arrives.
    pub fn tell(&mut self, requests: Vec<Request>) {
        let made = Instant::now();
        if let Some(queue) = &self.queue {
            let _ = queue.try_send(Announcement { requests, made });
        }
    }

    /// What was last in the way, if anything is.
    pub fn trouble(&self) -> Option<String> {
        lock(&self.trouble).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(
    switchboard: &str,
    announcements: &Receiver<Announcement>,
    trouble: &Mutex<Option<String>>,
) {
    let mut prefixes = match prefixes(switchboard) {
        Ok(prefixes) => prefixes,
        Err(error) => return *lock(trouble) = Some(error.to_string()),
    };
    for node in prefixes.iter_mut().flat_map(|prefix| &mut prefix.nodes) {
        *lock(trouble) = node.enter().err();
    }
    while let Ok(announcement) = announcements.recv() {
        for (number, prefix) in prefixes.iter_mut().enumerate() {
            for node in 0..prefix.nodes.len() {
                let wanted = |r: &&Request| r.prefix == number && prefix.is_for(r.inode, node);
                let requests: Vec<&Request> = announcement.requests.iter().filter(wanted).collect();
                if !requests.is_empty() {
                    let told = prefix.nodes[node].tell(&requests, announcement.made.elapsed());
                    *lock(trouble) = told.err();
                }
            }
        }
    }
}

/// The nodes of each prefix.
fn prefixes(switchboard: &str) -> io::Result<Vec<Prefix>> {
    let exports = Line::call(switchboard)?.exports()?;
    exports
        .into_iter()
        .map(|e| Prefix::new(&e.options))
        .collect()
}

/// Files that several nodes serve.
struct Prefix {
    options: Options,
    nodes: Vec<Node>,
}

impl Prefix {
    fn new(options: &Options) -> io::Result<Prefix> {
        let all = options.nodes.len();
        let nodes = if all > NODES_MAX && options.spread == Spread::Clients {
            0
        } else {
            all
        };
        let nodes = (0..nodes).map(|node| Node::new(options, node));
        Ok(Prefix {
            nodes: nodes.collect::<io::Result<_>>()?,
            options: options.clone(),
        })
    }

    /// Whether requests for a file go to this node, or may.
    fn is_for(&self, inode: u64, node: usize) -> bool {
        match self.options.spread {
            Spread::Clients => true,
            Spread::Files => preference(&self.options.nodes, &inode.to_le_bytes())[0] == node,
        }
    }
}

/// A node.
struct Node {
    remote: Remote,
    /// When we may try again to be let in.
    not_before: Instant,
}

impl Node {
    fn new(options: &Options, node: usize) -> io::Result<Node> {
        let dial = options.dial.clone();
        let dial = dial.map(|dial| Dial(Arc::new(move |_, left| (dial.0)(node, left))));
        let remote = Remote::new(Options {
            nodes: vec![options.nodes[node].clone()],
            spread: Spread::Clients,
            instance: None,
            patience: PATIENCE,
            connect_timeout: PATIENCE,
            last_resort: None,
            threads: true,
            dial,
            ..options.clone()
        })?;
        Ok(Node {
            remote,
            not_before: Instant::now(),
        })
    }

    /// Tells what will be asked for, as it stood so long ago.
    fn tell(&mut self, requests: &[&Request], ago: Duration) -> Result<(), String> {
        self.enter()?;
        let mut before = Nanos::from(ago);
        let foreseen: Vec<Foreseen<'_>> = requests
            .iter()
            .map(|request| {
                let after = request.begin.since(before);
                before = request.end;
                Foreseen {
                    file: Err(&request.path),
                    op: request.op,
                    range: request.range,
                    after,
                }
            })
            .collect();
        self.remote.foresee(&foreseen);
        Ok(())
    }

    /// Sees to it that there is a connection.
    fn enter(&mut self) -> Result<(), String> {
        if self.remote.status().node.is_some() {
            return Ok(());
        }
        let now = Instant::now();
        if now < self.not_before {
            return Err(self.remote.last_error());
        }
        let user = rustix::process::geteuid().as_raw();
        self.remote.root(user).map(drop).map_err(|error| {
            self.not_before = Instant::now() + PAUSE;
            format!("{error}: {}", self.remote.last_error())
        })
    }
}
