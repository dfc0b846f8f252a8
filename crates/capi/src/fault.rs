//! Why a call failed, and how its caller learns it: one line on standard error, and `agios_last_error`.

use crate::config::ConfigError;
use crate::foresight::TraceError;
use presagio_engine::EngineError;
use presagio_sched::{SettingsError, UnknownPolicy};
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::LazyLock;

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

/// Keeps `fault` for `agios_last_error` and says it.
pub fn report(function: &str, fault: &Fault) {
    let line = format!("{function}: {fault}");
    say(&line);
    keep(line);
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
