//! The direct way: where an export is mounted on this machine too, a node of our own serves it from there while no
//! other node can be reached. For `presagio mount --direct` and `presagio run --forward-direct`.
//!
//! A mount asks for it when it is time, and leaves it by itself. The programs of a run cannot: they have no thread that would
//! look. So here it is decided for all of them ([`Direct::until_back`]): the way is given to who has found no node for a while, then to all
//! alike, and it ends when a node answers again.
//!
//! The directory may hang, as mounts do. So the node is a process of its own ([`process`]), and so is who looks at the directory before.
//! A thread starts it and stays with it; nobody else waits for it without a bound or holds a lock meanwhile: those who ask are told to
//! come again. If it is killed it is started again for who asks next.

pub mod process;

use crate::failure::failure;
use crate::run::manager::close_all_but;
use presagio_forward::{Connected, LastResort, Resort};
use presagio_storage::StripedSet;
use process::Process;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often to look whether a node is back.
const LOOK: Duration = Duration::from_secs(1);

/// How long who begins it waits for the node to start: less than a program waits for its switchboard.
const START: Duration = Duration::from_secs(3);

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
    /// With the process, when there is one.
    Starting(Option<Arc<Process>>),
    On(Arc<Process>),
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

/// What was found, as one process tells another.
const THERE: &str = "there";
const MISSING: &str = "missing";

/// Looks at a directory that `option` names, before this process has threads.
pub fn look_at(dir: &Path, option: &str) -> anyhow::Result<Local> {
    let cannot = |cause: &dyn std::fmt::Display| {
        let what = format!("cannot go to {} directly", dir.display());
        failure(what, cause, format!("leave {option} out"))
    };
    match looked(dir).map_err(|error| cannot(&error))?.as_deref() {
        None => Ok(Local::Silent),
        Some(THERE) => Ok(Local::There),
        Some(MISSING) => Ok(Local::Missing),
        Some("") => Err(cannot(&"who looked at it was killed")),
        Some(why) => Err(cannot(&why)),
    }
}

/// What a directory is, or why it is none that could be served: one with the names of a striped set is no way to its bytes.
fn look(dir: &Path) -> String {
    match StripedSet::around(dir) {
        Ok(Some(_)) => {
            "it belongs to a striped set: its files say where their bytes are, and have none".into()
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => error.to_string(),
        _ if dir.is_dir() => THERE.into(),
        _ => MISSING.into(),
    }
}

/// What [`look`] says, if it comes to an end. Another process does it, since who hangs can only be left.
fn looked(dir: &Path) -> io::Result<Option<String>> {
    let (end, child_end) = UnixStream::pair()?;
    // SAFETY: this process has no other thread that could hold a lock which the child needs.
    let child = match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {
            // Who reads what this process writes must not wait for one that hangs.
            close_all_but(&[child_end.as_raw_fd()].into());
            // SAFETY: both are open.
            unsafe { libc::dup2(1, 2) };
            let _ = (&child_end).write_all(look(dir).as_bytes());
            // SAFETY: ends the child at once; nothing of the parent's is flushed or undone there.
            unsafe { libc::_exit(0) }
        }
        child => child,
    };
    drop(child_end);
    end.set_read_timeout(Some(LOOK_AT))?;
    let mut said = String::new();
    let ended = (&end).read_to_string(&mut said).is_ok();
    // SAFETY: no memory is involved, and a child that was not waited for is still ours.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        // One that hangs may not even be killed: whoever comes after us waits for it.
        let options = if ended { 0 } else { libc::WNOHANG };
        libc::waitpid(child, std::ptr::null_mut(), options);
    }
    Ok(ended.then_some(said))
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

    /// Ends it for good. The process that there is answers what was asked, and ends, or is killed soon: nobody should wait for it for
    /// ever.
    pub fn end(&self) -> Option<Arc<Process>> {
        let phase = std::mem::replace(&mut self.state().phase, Phase::Over);
        self.has_node.store(false, SeqCst);
        match phase {
            Phase::On(process) => {
                process.leave();
                Some(process)
            }
            // Nobody has asked it for anything yet.
            Phase::Starting(Some(process)) => {
                process.kill();
                None
            }
            Phase::Starting(None) | Phase::Off | Phase::Over => None,
        }
    }

    /// Whether it is time for it.
    fn is_time(&self, state: &State) -> bool {
        self.rule.as_ref().is_none_or(|rule| {
            let without = state.without_since.map(|since| since.elapsed());
            self.at_once.load(SeqCst) || without.is_some_and(|without| without >= rule.after)
        })
    }

    /// A node is back, or was: who finds none from now on waits from now on.
    fn leave(&self, state: &mut State) {
        state.without_since = None;
        state.failure.clear();
        self.at_once.store(false, SeqCst);
        if let Phase::On(process) = &state.phase {
            process.leave();
            self.turn_off(state);
        }
    }

    fn turn_off(&self, state: &mut State) {
        state.phase = Phase::Off;
        self.has_node.store(false, SeqCst);
    }

    /// The life of a node, unless another is back by now. The caller has set the phase, on another thread: this one stays for as
    /// long as the process is there, which would end with it.
    fn keep(&self) {
        let rule = self.rule.as_ref().filter(|_| !self.at_once.load(SeqCst));
        let is_back = rule.is_some_and(|rule| (rule.is_back)());
        if is_back {
            // There is no node yet to be left.
            self.leave(&mut self.state());
            return self.failed("a node is back".into());
        }
        let process = match Process::start(&self.dir) {
            Ok(process) => Arc::new(process),
            Err(error) => return self.failed(error.to_string()),
        };
        self.begins(&process);
        match process.ready() {
            Ok(()) => self.serves(&process),
            Err(why) => {
                process.leave();
                self.failed(why);
            }
        }
        process.until_left();
        self.lost(&process);
        process.see_out();
    }

    /// There is a process.
    fn begins(&self, process: &Arc<Process>) {
        match &mut self.state().phase {
            Phase::Starting(starting) => *starting = Some(process.clone()),
            // It is over.
            _ => process.kill(),
        }
    }

    /// It can be asked, if it is still wanted.
    fn serves(&self, process: &Arc<Process>) {
        let mut state = self.state();
        let is_starting = matches!(state.phase, Phase::Starting(_));
        if is_starting && self.is_time(&state) {
            state.phase = Phase::On(process.clone());
            self.was_used.store(true, SeqCst);
            self.has_node.store(true, SeqCst);
        } else {
            if is_starting {
                state.phase = Phase::Off;
            }
            process.leave();
        }
        self.started.notify_all();
    }

    /// There is no node.
    fn failed(&self, why: String) {
        let mut state = self.state();
        if let Phase::Starting(_) = state.phase {
            state.phase = Phase::Off;
        }
        state.failure = why;
        self.started.notify_all();
    }

    /// A process is gone, or will be: if it was not told to, whoever needs it next has it started again.
    fn lost(&self, process: &Arc<Process>) {
        let mut state = self.state();
        if matches!(&state.phase, Phase::On(now) if Arc::ptr_eq(now, process)) {
            self.turn_off(&mut state);
            state.failure = "its process has ended".into();
        }
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
        if is_back {
            self.leave(&mut state);
        }
        state.is_watched = match state.phase {
            Phase::Off => state.without_since.is_some() || self.at_once.load(SeqCst),
            Phase::Starting(_) | Phase::On(_) => true,
            Phase::Over => false,
        };
        state.is_watched
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
            spawn("direct", move || direct.keep())?;
            (state.phase, state.failure) = (Phase::Starting(None), "it does not answer".into());
            // Who comes meanwhile is sent away: those who wait here would keep others from being answered.
            let is_starting = |state: &mut State| matches!(state.phase, Phase::Starting(_));
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
        match &self.phase {
            Phase::On(process) => Ok(Some(Box::new(process.visit()?))),
            _ => Ok(None),
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = std::thread::Builder::new().name(name.into());
    thread.spawn(work).map(drop)
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

    /// Whoever asks gets a connection, as soon as the node has started. That it was time must have been so before.
    fn is_given(way: &Arc<Direct>, without: Duration) -> Connected {
        let mut given = None;
        until("there is a connection", || {
            given = way.clone().connect(without).ok();
            given.is_some()
        });
        given.expect("a connection")
    }

    /// More than an hour passes since it was first asked for.
    fn an_hour_passes(way: &Direct) {
        let mut state = way.state();
        let since = state.without_since.expect("somebody has asked");
        state.without_since = since.checked_sub(2 * HOUR);
        assert!(state.without_since.is_some());
    }

    fn until(what: &str, mut is_so: impl FnMut() -> bool) {
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
        is_given(&way, Duration::ZERO);
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
        is_given(&way, Duration::ZERO);
    }

    #[test]
    fn it_counts_from_when_who_asks_began_to_look() {
        let (_dir, way, _) = way();
        way.state().is_watched = true;
        is_refused(&way);
        is_given(&way, 2 * HOUR);
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
        // There was no node from the beginning.
        let _connection = is_given(&way, Duration::ZERO);
        let process = way.end().expect("a process");
        assert!(process.has_ended(Duration::from_secs(60)));
        is_refused(&way);
    }

    #[test]
    fn one_that_was_killed_is_started_again_for_who_asks_next() {
        let (_dir, way, _) = way();
        way.at_once();
        let _connection = is_given(&way, Duration::ZERO);
        match &way.state().phase {
            Phase::On(process) => process.kill(),
            _ => panic!("it is used"),
        }
        until("that it is gone is seen", || !way.has_node.load(SeqCst));
        is_given(&way, Duration::ZERO);
        assert!(way.has_node.load(SeqCst));
    }

    #[test]
    fn what_ends_before_it_has_begun_does_not_begin() {
        let (_dir, way, _) = way();
        way.at_once();
        spawn("asks", {
            let way = way.clone();
            move || drop(way.connect(Duration::ZERO))
        })
        .unwrap();
        until("it begins", || !matches!(way.state().phase, Phase::Off));
        drop(way.end());
        is_refused(&way);
        until("nobody keeps a process", || Arc::strong_count(&way) == 1);
    }

    #[test]
    fn a_directory_is_there_or_missing() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(look(dir.path()), THERE);
        assert_eq!(look(&dir.path().join("not")), MISSING);
    }
}
