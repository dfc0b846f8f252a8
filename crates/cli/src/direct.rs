//! The direct way: where an export is mounted on this machine too, a node within this process serves it from there while no
//! other node can be reached. For `presagio mount --direct` and `presagio run --forward-direct`.
//!
//! A mount asks for it when it is time, and leaves it by itself. The programs of a run cannot: they have no thread that would
//! look. So here it is decided for all of them ([`Direct::until_back`]): the way is given to who has found no node for a while, then to all
//! alike, and it ends when a node answers again.

use crate::failure::failure;
use presagio_forward::{Connected, LastResort, Resort};
use presagio_ionode::{Config, Node};
use presagio_storage::{Directory, StripedSet};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often to look whether a node is back.
const LOOK: Duration = Duration::from_secs(1);

/// How long what was asked may take when the way ends.
const DRAIN: Duration = Duration::from_secs(10);

/// The way to a directory.
pub struct Direct {
    dir: PathBuf,
    state: Mutex<State>,
    /// When it may be used, if that is decided here.
    rule: Option<Rule>,
}

struct Rule {
    /// Who has found no node for so long may use it.
    after: Duration,
    /// Who has not asked for so long had found one.
    forgotten: Duration,
    /// Whether a node can be reached.
    is_back: Box<dyn Fn() -> bool + Send + Sync>,
}

#[derive(Default)]
struct State {
    node: Option<Node>,
    /// When it was asked for in vain, first and last.
    asked: Option<(Instant, Instant)>,
    /// No node was there from the beginning.
    at_once: bool,
    was_used: bool,
}

/// A directory with the names of a striped set is no way to its bytes. One that is not there yet is looked at when it is
/// needed.
pub fn has_bytes(dir: &Path, option: &str) -> anyhow::Result<()> {
    let cannot = |cause: &dyn std::fmt::Display| {
        let what = format!("cannot go to {} directly", dir.display());
        failure(what, cause, format!("leave {option} out"))
    };
    match StripedSet::around(dir) {
        Ok(Some(_)) => Err(cannot(
            &"it belongs to a striped set: its files say where their bytes are, and have none",
        )),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(cannot(&error)),
        _ => Ok(()),
    }
}

/// The way for one who knows when to use it.
pub fn last_resort(dir: &Path) -> LastResort {
    LastResort(Arc::new(Direct {
        dir: dir.to_owned(),
        state: Mutex::default(),
        rule: None,
    }))
}

impl Direct {
    /// A way for many, used when no node was found for `after`, until one is back. An attempt to find one takes at most `attempt`.
    pub fn until_back(
        dir: &Path,
        after: Duration,
        attempt: Duration,
        is_back: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Direct {
        Direct {
            dir: dir.to_owned(),
            state: Mutex::default(),
            rule: Some(Rule {
                after,
                forgotten: 4 * attempt + Duration::from_secs(2),
                is_back: Box::new(is_back),
            }),
        }
    }

    /// No node can be reached even now: nobody has to wait.
    pub fn at_once(&self) {
        self.state().at_once = true;
    }

    pub fn was_used(&self) -> bool {
        self.state().was_used
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends it, when all that was asked is answered.
    pub fn end(&self) {
        let mut state = self.state();
        let node = state.node.take();
        (state.asked, state.at_once) = (None, false);
        drop(state);
        if let Some(node) = node {
            node.drain(DRAIN);
        }
    }

    /// Ends it when a node is back; `false` when there is nothing to end any more.
    fn look(&self) -> bool {
        let is_back = self.rule.as_ref().is_some_and(|rule| (rule.is_back)());
        if is_back {
            self.end();
        }
        self.state().node.is_some()
    }
}

impl State {
    /// Whether it is time for the direct way.
    fn may(&mut self, rule: &Rule) -> bool {
        let now = Instant::now();
        let first = match self.asked {
            Some((first, last)) if now.duration_since(last) < rule.forgotten => first,
            _ => now,
        };
        self.asked = Some((first, now));
        self.at_once || now.duration_since(first) >= rule.after
    }

    fn start(&mut self, dir: &Path) -> io::Result<()> {
        let started = Node::start(Config::new(dir), Arc::new(Directory), &[], false);
        self.node = Some(started.map_err(io::Error::other)?);
        self.was_used = true;
        Ok(())
    }
}

impl Resort for Direct {
    fn connect(self: Arc<Self>) -> io::Result<Connected> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut state = self.state();
        if state.node.is_none() {
            if let Some(rule) = &self.rule {
                if !state.may(rule) {
                    return Err(io::Error::new(
                        io::ErrorKind::WouldBlock,
                        "a node may be back in a moment",
                    ));
                }
                watch(&self)?;
            }
            state.start(&self.dir)?;
        }
        if let Some(node) = &state.node {
            node.adopt(theirs)?;
        }
        Ok(Box::new(ours))
    }

    fn is_used(&self) -> bool {
        let state = self.state();
        state.at_once || state.node.is_some()
    }
}

/// Starts a thread that looks for a node for as long as the direct way is used.
fn watch(direct: &Arc<Direct>) -> io::Result<()> {
    let direct = direct.clone();
    let thread = std::thread::Builder::new().name("watch".into());
    let watching = thread.spawn(move || {
        loop {
            std::thread::sleep(LOOK);
            if !direct.look() {
                return;
            }
        }
    });
    watching.map(drop)
}
