//! The direct way: where an export is mounted on this machine too, a node within this process serves it from there while no
//! other node can be reached. For `presagio mount --direct` and `presagio run --forward-direct`.
//!
//! A mount asks for it when it is time, and leaves it by itself. The programs of a run cannot: they have no thread that would
//! look. So here it is decided for all of them ([`Direct::until_back`]): the way is given to who has found no node for a while, then to all
//! alike, and it ends when a node answers again.
//!
//! The directory may hang, as mounts do. So the node starts, and ends, on a thread of its own, and nobody waits for that without a
//! bound or holds a lock meanwhile: those who ask are told to come again.

use crate::failure::failure;
use presagio_forward::{Connected, LastResort, Resort};
use presagio_ionode::{Config, Node};
use presagio_storage::{Directory, StripedSet};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often to look whether a node is back.
const LOOK: Duration = Duration::from_secs(1);

/// How long who begins it waits for the node to start: less than a program waits for its switchboard.
const START: Duration = Duration::from_secs(3);

/// How long what was asked may take when the way ends.
const DRAIN: Duration = Duration::from_secs(10);

/// The way to a directory.
pub struct Direct {
    dir: PathBuf,
    state: Mutex<State>,
    /// A start has ended.
    started: Condvar,
    /// When it may be used, if that is decided here.
    rule: Option<Rule>,
    /// No node was there from the beginning. Changes with the state locked, as the next two.
    at_once: AtomicBool,
    has_node: AtomicBool,
    was_used: AtomicBool,
}

struct Rule {
    /// Who has found no node for so long may use it.
    after: Duration,
    /// Whether a node can be reached.
    is_back: Box<dyn Fn() -> bool + Send + Sync>,
}

#[derive(Default)]
struct State {
    phase: Phase,
    /// Since when those who have asked for it find no node, and nobody who looked has.
    without_since: Option<Instant>,
    /// A thread looks for nodes.
    is_watched: bool,
    /// Why the last start failed.
    failure: String,
}

#[derive(Default)]
enum Phase {
    #[default]
    Off,
    Starting,
    On(Node),
    /// Never again.
    Over,
}

/// What a directory is found to be before it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Local {
    There,
    Missing,
    /// It hangs. What it is shows when it is needed.
    Silent,
}

/// How long a directory may take to be looked at.
const LOOK_AT: Duration = Duration::from_secs(5);

/// Looks at a directory that `option` names, before this process has threads. One with the names of a striped set is no way to
/// its bytes.
pub fn look_at(dir: &Path, option: &str) -> anyhow::Result<Local> {
    if !answers(dir)? {
        return Ok(Local::Silent);
    }
    let cannot = |cause: &dyn std::fmt::Display| {
        let what = format!("cannot go to {} directly", dir.display());
        failure(what, cause, format!("leave {option} out"))
    };
    match StripedSet::around(dir) {
        Ok(Some(_)) => Err(cannot(
            &"it belongs to a striped set: its files say where their bytes are, and have none",
        )),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(cannot(&error)),
        _ if dir.is_dir() => Ok(Local::There),
        _ => Ok(Local::Missing),
    }
}

/// Whether looking at a directory comes to an end. Another process tries, since who hangs can only be left.
fn answers(dir: &Path) -> io::Result<bool> {
    let (end, child_end) = UnixStream::pair()?;
    // SAFETY: this process has no other thread that could hold a lock which the child needs.
    let child = match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {
            let _ = StripedSet::around(dir);
            // SAFETY: ends the child at once; nothing of the parent's is flushed or undone there.
            unsafe { libc::_exit(0) }
        }
        child => child,
    };
    drop(child_end);
    end.set_read_timeout(Some(LOOK_AT))?;
    // It says nothing: its end is closed when it has ended.
    let ended = (&end).read(&mut [0]).is_ok();
    // SAFETY: no memory is involved, and a child that was not waited for is still ours.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        // One that hangs may not even be killed: whoever comes after us waits for it.
        let options = if ended { 0 } else { libc::WNOHANG };
        libc::waitpid(child, std::ptr::null_mut(), options);
    }
    Ok(ended)
}

/// The way for one who knows when to use it.
pub fn last_resort(dir: &Path) -> LastResort {
    LastResort(Arc::new(Direct::new(dir, None)))
}

impl Direct {
    fn new(dir: &Path, rule: Option<Rule>) -> Direct {
        Direct {
            dir: dir.to_owned(),
            state: Mutex::default(),
            started: Condvar::new(),
            rule,
            at_once: AtomicBool::new(false),
            has_node: AtomicBool::new(false),
            was_used: AtomicBool::new(false),
        }
    }

    /// A way for many, used when no node was found for `after`, until one is back.
    pub fn until_back(
        dir: &Path,
        after: Duration,
        is_back: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Direct {
        let rule = Rule {
            after,
            is_back: Box::new(is_back),
        };
        Direct::new(dir, Some(rule))
    }

    /// No node can be reached even now: nobody has to wait.
    pub fn at_once(&self) {
        self.at_once.store(true, SeqCst);
    }

    pub fn was_used(&self) -> bool {
        self.was_used.load(SeqCst)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends it for good, when all that was asked is answered. Who waits for that should not do so for ever: the other end of the
    /// channel is dropped then.
    pub fn end(&self) -> Receiver<()> {
        let (done, ended) = channel();
        let phase = std::mem::replace(&mut self.state().phase, Phase::Over);
        self.has_node.store(false, SeqCst);
        if let Phase::On(node) = phase {
            // Without a thread it ends with the process.
            let _ = spawn("direct-end", move || {
                node.drain(DRAIN);
                drop(done);
            });
        }
        ended
    }

    /// Whether it is time for it.
    fn is_time(&self, state: &State) -> bool {
        self.rule.as_ref().is_none_or(|rule| {
            let without = state.without_since.map(|since| since.elapsed());
            self.at_once.load(SeqCst) || without.is_some_and(|without| without >= rule.after)
        })
    }

    /// A node is back, or was: who finds none from now on waits from now on. Leaves the node to be drained.
    fn leave(&self, state: &mut State) -> Option<Node> {
        state.without_since = None;
        state.failure.clear();
        self.at_once.store(false, SeqCst);
        if !matches!(state.phase, Phase::On(_)) {
            return None;
        }
        self.has_node.store(false, SeqCst);
        match std::mem::take(&mut state.phase) {
            Phase::On(node) => Some(node),
            _ => None,
        }
    }

    /// Starts the node, however long the directory takes for that, unless another is back by now. The caller has set the phase.
    fn start(&self) {
        let rule = self.rule.as_ref().filter(|_| !self.at_once.load(SeqCst));
        let is_back = rule.is_some_and(|rule| (rule.is_back)());
        let started = match is_back {
            true => Err("a node is back".to_owned()),
            false => self.start_node(),
        };
        let mut state = self.state();
        if is_back {
            // There is no node yet to be left.
            self.leave(&mut state);
        }
        let is_wanted = matches!(state.phase, Phase::Starting) && self.is_time(&state);
        if let Phase::Starting = state.phase {
            state.phase = Phase::Off;
        }
        let unwanted = match started {
            Ok(node) if is_wanted => {
                self.was_used.store(true, SeqCst);
                self.has_node.store(true, SeqCst);
                state.phase = Phase::On(node);
                None
            }
            Ok(node) => Some(node),
            Err(why) => {
                state.failure = why;
                None
            }
        };
        self.started.notify_all();
        drop(state);
        drop(unwanted);
    }

    fn start_node(&self) -> Result<Node, String> {
        let node = Node::start(Config::new(&self.dir), Arc::new(Directory), &[], false);
        node.map_err(|error| error.to_string())
    }

    /// Looks for a node for as long as this matters; one at a time.
    pub fn watch(self: &Arc<Self>) -> io::Result<()> {
        let mut state = self.state();
        if self.rule.is_some() && !state.is_watched {
            let direct = self.clone();
            spawn("watch", move || {
                while direct.look() {
                    std::thread::sleep(LOOK);
                }
            })?;
            state.is_watched = true;
        }
        Ok(())
    }

    /// Ends the way when a node is back; `false` when there is nothing to look for any more.
    fn look(&self) -> bool {
        let Some(rule) = &self.rule else {
            return false;
        };
        let is_back = (rule.is_back)();
        let mut state = self.state();
        let node = match is_back {
            true => self.leave(&mut state),
            false => None,
        };
        state.is_watched = match state.phase {
            Phase::Off => state.without_since.is_some() || self.at_once.load(SeqCst),
            Phase::Starting | Phase::On(_) => true,
            Phase::Over => false,
        };
        let goes_on = state.is_watched;
        drop(state);
        if let Some(node) = node {
            node.drain(DRAIN);
        }
        goes_on
    }
}

impl State {
    /// Somebody asks, and has found no node for so long.
    fn note(&mut self, without: Duration) {
        let now = Instant::now();
        let since = now.checked_sub(without).unwrap_or(now);
        self.without_since = Some(self.without_since.map_or(since, |known| known.min(since)));
    }
}

impl Resort for Direct {
    fn connect(self: Arc<Self>, without: Duration) -> io::Result<Connected> {
        if self.rule.is_some() && !self.has_node.load(SeqCst) {
            self.state().note(without);
            self.watch()?;
        }
        let mut state = self.state();
        if matches!(state.phase, Phase::Off) && self.is_time(&state) {
            let direct = self.clone();
            spawn("direct", move || {
                without_umask();
                direct.start();
            })?;
            (state.phase, state.failure) = (Phase::Starting, "it does not answer".into());
            // Who comes meanwhile is sent away: those who wait here would keep others from being answered.
            let is_starting = |state: &mut State| matches!(state.phase, Phase::Starting);
            let waited = self.started.wait_timeout_while(state, START, is_starting);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let why = match state.failure.as_str() {
            "" => "a node may be back in a moment",
            why => why,
        };
        let later = io::Error::new(
            io::ErrorKind::WouldBlock,
            format!("{}: {why}", self.dir.display()),
        );
        state.visit()?.ok_or(later)
    }

    fn is_used(&self) -> bool {
        self.at_once.load(SeqCst) || self.has_node.load(SeqCst)
    }

    fn visit(self: Arc<Self>) -> io::Result<Option<Connected>> {
        self.state().visit()
    }
}

impl State {
    /// A connection, if the node is there.
    fn visit(&self) -> io::Result<Option<Connected>> {
        let Phase::On(node) = &self.phase else {
            return Ok(None);
        };
        let (ours, theirs) = UnixStream::pair()?;
        node.adopt(theirs)?;
        Ok(Some(Box::new(ours)))
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = std::thread::Builder::new().name(name.into());
    thread.spawn(work).map(drop)
}

/// Clients say with which permissions files are to be made, after a umask of their own. Ours must not count once more: not for this
/// thread and those that it starts, while it stays what it was for all others.
fn without_umask() {
    // SAFETY: only the umask, working directory and root are no longer shared, and no thread that does so looks at the last two.
    match unsafe { libc::unshare(libc::CLONE_FS) } {
        0 => drop(rustix::process::umask(rustix::fs::Mode::empty())),
        // Containers may forbid it. Files then have fewer permissions than were asked for, never more.
        _ => tracing::warn!("files that are made directly have the umask of this process too"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// A way to an empty directory, used after an hour, and what says whether a node is back.
    fn way() -> (tempfile::TempDir, Arc<Direct>, Arc<AtomicBool>) {
        let dir = tempfile::tempdir().unwrap();
        let is_back = Arc::new(AtomicBool::new(false));
        let back = is_back.clone();
        let way = Direct::until_back(dir.path(), HOUR, move || back.load(SeqCst));
        (dir, Arc::new(way), is_back)
    }

    /// Whoever asks is told to come again.
    fn is_refused(way: &Arc<Direct>) {
        let asked = way.clone().connect(Duration::ZERO);
        let error = asked.err().expect("no connection");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
    }

    /// More than an hour passes since it was first asked for.
    fn an_hour_passes(way: &Direct) {
        let mut state = way.state();
        let since = state.without_since.expect("somebody has asked");
        state.without_since = since.checked_sub(2 * HOUR);
        assert!(state.without_since.is_some());
    }

    fn until(what: &str, is_so: impl Fn() -> bool) {
        let late = Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(Instant::now() < late, "{what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn it_begins_when_no_node_was_there_for_a_while_and_ends_when_one_is() {
        let (_dir, way, is_back) = way();
        is_refused(&way);
        assert!(way.clone().visit().unwrap().is_none());
        an_hour_passes(&way);
        way.clone().connect(Duration::ZERO).expect("it is time");
        assert!(way.is_used() && way.was_used());
        assert!(way.clone().visit().unwrap().is_some());
        is_back.store(true, SeqCst);
        until("it ends", || !way.is_used());
        assert!(way.was_used() && way.clone().visit().unwrap().is_none());
    }

    #[test]
    fn a_node_that_is_back_when_it_is_time_is_used_and_the_next_outage_begins_anew() {
        let (_dir, way, is_back) = way();
        // Nobody looks but who asks.
        way.state().is_watched = true;
        is_refused(&way);
        an_hour_passes(&way);
        is_back.store(true, SeqCst);
        is_refused(&way);
        is_back.store(false, SeqCst);
        is_refused(&way);
        assert!(!way.was_used());
        an_hour_passes(&way);
        way.clone().connect(Duration::ZERO).expect("it is time");
    }

    #[test]
    fn it_counts_from_when_who_asks_began_to_look() {
        let (_dir, way, _) = way();
        way.state().is_watched = true;
        is_refused(&way);
        way.clone().connect(2 * HOUR).expect("it is time");
    }

    #[test]
    fn an_outage_goes_on_for_as_long_as_who_looks_finds_no_node() {
        let (_dir, way, is_back) = way();
        way.state().is_watched = true;
        is_refused(&way);
        an_hour_passes(&way);
        assert!(way.look(), "there is something to look for");
        assert!(way.state().without_since.is_some());
        is_back.store(true, SeqCst);
        assert!(!way.look());
        assert!(way.state().without_since.is_none());
    }

    #[test]
    fn short_outages_do_not_add_up() {
        let (_dir, way, is_back) = way();
        is_refused(&way);
        an_hour_passes(&way);
        is_back.store(true, SeqCst);
        until("that a node was back is seen", || {
            way.state().without_since.is_none()
        });
        is_back.store(false, SeqCst);
        is_refused(&way);
        assert!(!way.was_used());
    }

    #[test]
    fn what_has_ended_does_not_begin_again() {
        let (_dir, way, _) = way();
        way.at_once();
        way.clone()
            .connect(Duration::ZERO)
            .expect("no node from the beginning");
        let ended = way.end();
        let patience = Duration::from_secs(60);
        let error = ended.recv_timeout(patience).unwrap_err();
        assert_eq!(error, std::sync::mpsc::RecvTimeoutError::Disconnected);
        is_refused(&way);
    }
}
