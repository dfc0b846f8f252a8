//! What can be chosen when an engine starts, and what can go wrong with it.

use presagio_core::Request;
use presagio_sched::{Rejected, Settings, SettingsError};

/// Who calls [`Service::dispatch`](crate::Service::dispatch).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DispatchBy {
    /// Whoever submits or finishes: no hand-off between threads, the lowest latency.
    Caller,
    /// Only the engine's own thread: submitting is as cheap as can be and never runs the service.
    Thread,
}

/// What submitting does when `queue_max` requests are queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// Waits for room. Inside `dispatch`, where waiting could never end, it fails instead.
    Block,
    /// Fails with [`SubmitError::Full`].
    Fail,
}

/// How an engine works. `EngineConfig::new(settings)` has the defaults; change fields as needed.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The scheduler's settings; they can change while it runs.
    pub settings: Settings,
    /// Who dispatches (not looked at by [`Engine::start_pull`](crate::Engine::start_pull)).
    pub dispatch: DispatchBy,
    /// No batch is dispatched while this many requests are in flight or more. It does not hold while the
    /// policy is NOOP, also not for what an earlier policy had queued.
    pub in_flight_max: Option<usize>,
    /// Most requests that may be queued: submitted and not dispatched.
    /// Requests that were cancelled while others wait behind them count until those they overlapped are finished:
    /// a thread that submits with [`WhenFull::Block`] should finish what it has served first.
    pub queue_max: Option<usize>,
    /// What submitting does at that limit.
    pub when_full: WhenFull,
    /// Whether requests can be finished and cancelled by file, operation and range.
    pub by_range: bool,
}

impl EngineConfig {
    /// Callers dispatch, nothing is limited, nothing is found by range.
    pub fn new(settings: Settings) -> EngineConfig {
        EngineConfig {
            settings,
            dispatch: DispatchBy::Caller,
            in_flight_max: None,
            queue_max: None,
            when_full: WhenFull::Block,
            by_range: false,
        }
    }

    pub(crate) fn check(&self) -> Result<(), EngineError> {
        if self.in_flight_max == Some(0) {
            return Err(EngineError::Zero {
                name: "in_flight_max",
            });
        }
        if self.queue_max == Some(0) {
            return Err(EngineError::Zero { name: "queue_max" });
        }
        Ok(())
    }
}

/// An engine could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The scheduler does not accept its settings.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// With a limit of zero nothing would ever move.
    #[error(
        "{name} is 0, so nothing would ever be dispatched: use at least 1, or None for no limit"
    )]
    Zero {
        /// The limit.
        name: &'static str,
    },
    /// The system gives no thread.
    #[error(
        "cannot start the engine's thread ({0}): raise the limit on threads, or use start_pull, which needs none"
    )]
    Thread(std::io::Error),
}

/// A request was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The queue is full; here is the request again.
    #[error("the queue is full: submit again when some requests have been dispatched")]
    Full(Request),
    /// The engine was shut down; here is the request again.
    #[error("the engine is shut down: serve the request without it, or start another")]
    Closed(Request),
    /// The scheduler cannot place such a request.
    #[error(transparent)]
    Rejected(#[from] Rejected),
}
