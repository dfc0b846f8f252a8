//! `--policy auto` in a comparison: what suits the device, and once a period the policy that suits what arrived, as in `presagio
//! ionode`. What was decided in one round holds in the next.

use super::Policy;
use presagio_core::Request;
use presagio_engine::{Engine, Recorder};
use presagio_sched::{PolicyKind, Settings};
use presagio_tune::{Chooser, Decision, Lookout, Selector};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Rounds take seconds, not days: a node decides once a second.
const PERIOD: Duration = Duration::from_millis(100);

/// What decides, and what it decided. See the module's header.
pub struct Auto {
    lookout: Arc<Mutex<Lookout>>,
    chooser: Mutex<Chooser>,
    state: Mutex<State>,
    ended: Condvar,
}

struct State {
    policy: PolicyKind,
    last: Option<Decision>,
    /// Whether the round is over.
    is_over: bool,
}

/// Tells of what arrives.
struct Watcher(Arc<Mutex<Lookout>>);

impl Recorder for Watcher {
    fn arrival(&mut self, request: &Request) {
        lock(&self.0).arrived(request, request.arrival);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Auto {
    /// It begins with what suits the device; with TO-agg where that is not known, as a node does.
    pub fn new(mut chooser: Chooser) -> Auto {
        let first = chooser.begin();
        let policy = |first: &Decision| first.policy.unwrap_or(PolicyKind::Noop);
        let state = State {
            policy: first.as_ref().map_or(PolicyKind::ToAgg, policy),
            last: first,
            is_over: false,
        };
        Auto {
            lookout: Arc::new(Mutex::new(Lookout::new(Selector::STRIPE))),
            chooser: Mutex::new(chooser),
            state: Mutex::new(state),
            ended: Condvar::new(),
        }
    }

    /// The policy in force.
    pub fn policy(&self) -> PolicyKind {
        lock(&self.state).policy
    }

    /// What was decided last, and why.
    pub fn last(&self) -> Option<Decision> {
        lock(&self.state).last.clone()
    }

    /// A round begins: the engine tells of what arrives.
    pub fn watch(&self, engine: &Engine) {
        lock(&self.state).is_over = false;
        // What arrived in the round before is of another engine's time, and tells nothing of this one.
        *lock(&self.lookout) = Lookout::new(Selector::STRIPE);
        engine.record(Some(Box::new(Watcher(self.lookout.clone()))));
    }

    /// Decides until the round is over.
    pub fn run(&self, engine: &Engine) -> io::Result<()> {
        let mut state = lock(&self.state);
        loop {
            let part = PERIOD / Lookout::PARTS;
            let waited = self.ended.wait_timeout_while(state, part, |s| !s.is_over);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.is_over {
                return Ok(());
            }
            let Some(period) = lock(&self.lookout).part_over() else {
                continue;
            };
            let Some(decision) = lock(&self.chooser).decide(&period) else {
                continue;
            };
            // An engine always has a scheduler: NOOP keeps the order of arrival and costs least.
            let policy = decision.policy.unwrap_or(PolicyKind::Noop);
            state.last = Some(decision);
            if policy != std::mem::replace(&mut state.policy, policy) {
                let settings = Settings::new(policy);
                engine.configure(settings).map_err(io::Error::other)?;
            }
        }
    }

    /// The round is over.
    pub fn end(&self) {
        lock(&self.state).is_over = true;
        self.ended.notify_all();
    }
}

/// The policies of a comparison, and what decides for the one that is none.
pub struct Contest {
    /// NOOP first.
    pub policies: Vec<Policy>,
    /// Where one of them is `auto`.
    pub auto: Option<Auto>,
}

impl Contest {
    /// What decides for this policy, if anything does.
    pub fn auto_of(&self, policy: Policy) -> Option<&Auto> {
        self.auto.as_ref().filter(|_| policy == Policy::Auto)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use presagio_core::{FileId, Nanos, Op, Range, RequestId};
    use presagio_engine::EngineConfig;
    use presagio_tune::Trees;

    #[test]
    fn a_round_knows_nothing_of_what_arrived_in_the_one_before() {
        let auto = Auto::new(Chooser::new(Trees::shipped(), None));
        let arrives = |file| {
            let range = Range::at(0, 8192);
            let request = Request::new(RequestId(0), FileId(file), Op::Read, range);
            lock(&auto.lookout).arrived(&request, Nanos(0));
        };
        let settings = Settings::new(PolicyKind::Noop);
        let engine = Engine::start_pull(EngineConfig::new(settings)).expect("it starts");
        auto.watch(&engine);
        arrives(1);
        auto.end();
        auto.watch(&engine);
        arrives(2);
        let period = lock(&auto.lookout).part_over().expect("a round begins");
        assert_eq!((period.requests[0], period.accessed[0]), (1, 1));
    }
}
