//! Why a call failed, and how its caller learns it: one line on standard error, and `agios_last_error`.
//!
//! A program that does the same wrong a hundred thousand times must not drown its log: only the first lines
//! of a kind are said, the others are counted for `agios_exit` to tell. The counts are atomics, since a
//! child of a fork may not wait for a lock that a thread of its parent held.

use crate::config::ConfigError;
use crate::foresight::TraceError;
use presagio_engine::EngineError;
use presagio_sched::{SettingsError, UnknownPolicy};
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a call comes to. Boxed, since a fault is large and rare, and this is passed through every call.
pub type Answer<T> = Result<T, Box<Fault>>;

/// Every reason for which a call of the C API returns false.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A call before `agios_init`, or after `agios_exit`.
    #[error("the library is not running: call agios_init first")]
    NotRunning,
    /// A second `agios_init`.
    #[error("the library is running already: call agios_exit first")]
    Running,
    /// A call in a child process of the one that initialised.
    #[error("the process was forked after agios_init: the child cannot use the library")]
    Forked,
    /// A pointer that must point to something does not.
    #[error("{0} is NULL")]
    Null(&'static str),
    /// Nobody to give requests to.
    #[error("both callbacks are NULL: there is nobody to give requests to")]
    NoCallback,
    /// An operation that is neither of the two.
    #[error("type is {0}: it must be RT_READ (0) or RT_WRITE (1)")]
    Type(i32),
    /// Bytes before the start of the file.
    #[error("{name} is {value}: it must not be negative")]
    Negative {
        /// The argument.
        name: &'static str,
        /// Its value.
        value: i64,
    },
    /// Bytes beyond what offsets can say.
    #[error("{length} bytes from offset {offset} end beyond 2^63 - 1")]
    Overflow {
        /// The offset.
        offset: i64,
        /// The length.
        length: i64,
    },
    /// A number of queues that makes no sense.
    #[error("max_queue_id is {0}: it must be from 0 to {limit}", limit = crate::session::QUEUE_ID_LIMIT)]
    MaxQueueId(i32),
    /// A queue that does not exist.
    #[error("queue_id is {queue_id}: agios_init was told that it is from 0 to {max_queue_id}")]
    QueueId {
        /// The queue id.
        queue_id: i32,
        /// The largest that was announced.
        max_queue_id: u32,
    },
    /// A release of what was not dispatched, or was released already.
    #[error("no dispatched {request} waits for its release")]
    NotDispatched {
        /// What was to be released.
        request: String,
    },
    /// A cancellation of what is not queued (any more).
    #[error("no queued {request} to cancel: it is unknown or was dispatched already")]
    NotQueued {
        /// What was to be cancelled.
        request: String,
    },
    /// More file names than the table can hold.
    #[error("there are too many file names (2^32)")]
    TooManyFiles,
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A parameter cannot be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The engine did not start.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// No algorithm of that name.
    #[error(transparent)]
    UnknownPolicy(#[from] UnknownPolicy),
    /// The trace cannot be written.
    #[error("trace: {0}")]
    Trace(io::Error),
    /// The trace to foresee by cannot be understood.
    #[error("{}:{error}", path.display())]
    ForesightTrace {
        /// The file.
        path: PathBuf,
        /// Which line, and why.
        error: TraceError,
    },
    /// The scheduler's memory for predictions is full.
    #[error("there is no room for more predictions: foresee fewer requests")]
    TooManyPredictions,
    /// A bug of ours.
    #[error("internal error: {0}; please report this")]
    Panic(String),
}

thread_local! {
    /// Why the last failed call of this thread failed.
    static LAST: RefCell<Option<CString>> = const { RefCell::new(None) };
}

impl Fault {
    /// Faults of one kind are counted together.
    fn kind(&self) -> usize {
        match self {
            Fault::NotRunning => 0,
            Fault::Running => 1,
            Fault::Forked => 2,
            Fault::Null(_) => 3,
            Fault::NoCallback => 4,
            Fault::Type(_) => 5,
            Fault::Negative { .. } => 6,
            Fault::Overflow { .. } => 7,
            Fault::MaxQueueId(_) => 8,
            Fault::QueueId { .. } => 9,
            Fault::NotDispatched { .. } => 10,
            Fault::NotQueued { .. } => 11,
            Fault::TooManyFiles => 12,
            Fault::Config(_) => 13,
            Fault::Settings(_) => 14,
            Fault::Engine(_) => 15,
            Fault::UnknownPolicy(_) => 16,
            Fault::Trace(_) => 17,
            Fault::ForesightTrace { .. } => 18,
            Fault::TooManyPredictions => 19,
            Fault::Panic(_) => KINDS - 1,
        }
    }
}

/// How many kinds there are.
const KINDS: usize = 21;

/// So many lines a process prints about each kind.
const LINES_MAX: u64 = 20;

/// How often each kind occurred, and what that kept back.
struct Counts {
    kinds: [AtomicU64; KINDS],
    kept_back: AtomicU64,
}

static COUNTS: Counts = Counts::new();

/// What becomes of a fault's line.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Say,
    /// The first one that is not said: a line says that there are more.
    Announce,
    Count,
}

impl Counts {
    const fn new() -> Counts {
        Counts {
            kinds: [const { AtomicU64::new(0) }; KINDS],
            kept_back: AtomicU64::new(0),
        }
    }

    fn add(&self, kind: usize) -> Line {
        let before = self.kinds[kind].fetch_add(1, Ordering::Relaxed);
        if before < LINES_MAX {
            return Line::Say;
        }
        self.kept_back.fetch_add(1, Ordering::Relaxed);
        match before {
            LINES_MAX => Line::Announce,
            _ => Line::Count,
        }
    }

    fn take_kept_back(&self) -> u64 {
        self.kept_back.swap(0, Ordering::Relaxed)
    }

    fn clear(&self) {
        let all = self.kinds.iter().chain([&self.kept_back]);
        all.for_each(|count| count.store(0, Ordering::Relaxed));
    }
}

/// Keeps `fault` for `agios_last_error` and says it, unless that kind was said often enough.
pub fn report(function: &str, fault: &Fault) {
    let line = format!("{function}: {fault}");
    match COUNTS.add(fault.kind()) {
        Line::Say => say(&line),
        Line::Announce => say(&format!(
            "{function}: this kind of fault was told {LINES_MAX} times: further ones are only counted"
        )),
        Line::Count => {}
    }
    keep(line);
}

/// Says how many lines were kept back since this was said last, if any were.
pub fn say_kept_back() {
    let lines = COUNTS.take_kept_back();
    if lines > 0 {
        say(&format!(
            "agios_exit: {lines} further faults like those told before were only counted"
        ));
    }
}

/// Counts from 0, in a child process that inherited its parent's counts. Called between `fork` and its
/// return.
pub fn forget() {
    COUNTS.clear();
}

fn keep(line: String) {
    let without_nul = line.replace('\0', "?");
    let text = CString::new(without_nul).ok();
    // A thread that is being torn down has no place to keep it any more.
    let _ = LAST.try_with(|last| last.replace(text));
}

/// What `report` kept last on this thread (empty: nothing); valid until the next fault of the thread.
pub fn last() -> *const c_char {
    let kept = LAST.try_with(|last| last.borrow().as_ref().map(|text| text.as_ptr()));
    kept.ok().flatten().unwrap_or(c"".as_ptr())
}

/// One line on standard error, unless AGIOS_QUIET is set. Never fails: there is nobody left to tell.
pub fn say(line: &str) {
    static QUIET: LazyLock<bool> = LazyLock::new(|| std::env::var_os("AGIOS_QUIET").is_some());
    if !*QUIET {
        let line = format!("agios: {}\n", line.replace('\n', " "));
        let _ = io::stderr().write_all(line.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn not_dispatched() -> usize {
        let request = String::new();
        Fault::NotDispatched { request }.kind()
    }

    fn repeat(counts: &Counts) {
        for _ in 0..100 {
            counts.add(not_dispatched());
        }
    }

    #[test]
    fn a_kind_is_said_20_times_announced_once_and_then_counted() {
        let counts = Counts::new();
        let lines: Vec<Line> = (0..100).map(|_| counts.add(not_dispatched())).collect();
        let how_many = |kind: Line| lines.iter().filter(|line| **line == kind).count();
        assert!(lines[..20].iter().all(|line| *line == Line::Say));
        assert_eq!(lines[20], Line::Announce);
        assert_eq!(how_many(Line::Count), 79);
        assert_eq!((counts.take_kept_back(), counts.take_kept_back()), (80, 0));
    }

    #[test]
    fn other_kinds_are_still_said() {
        let counts = Counts::new();
        repeat(&counts);
        for fault in [
            Fault::NotRunning,
            Fault::Type(2),
            Fault::Panic(String::new()),
        ] {
            assert_eq!(counts.add(fault.kind()), Line::Say, "{fault}");
        }
    }

    #[test]
    fn a_child_counts_from_zero() {
        let counts = Counts::new();
        repeat(&counts);
        counts.clear();
        assert_eq!(counts.add(not_dispatched()), Line::Say);
        assert_eq!(counts.take_kept_back(), 0);
    }
}
