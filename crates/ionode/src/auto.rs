//! `--policy auto`: the policy that suits the device, and once a period the one that suits what arrived (`presagio-tune`).
//!
//! The engine tells of each request under its lock; a thread of the node ends periods and their parts, asks the trees and switches.
//! Whoever names a policy by hand switches this off; naming `auto` switches it on again.

use crate::node::Shared;
use presagio_core::Request;
use presagio_engine::Recorder;
use presagio_sched::PolicyKind;
use presagio_tune::{Arm, Chooser, Class, Decision, Lookout, Selector};
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::{Value, json};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How the policy is chosen.
#[derive(Clone, Debug)]
pub struct AutoConfig {
    /// What decides: trees, and the device if it is known.
    pub chooser: Chooser,
    /// How often.
    pub period: Duration,
}

/// What a node that chooses keeps. See the module's header.
pub struct Auto {
    lookout: Arc<Mutex<Lookout>>,
    chooser: Mutex<Chooser>,
    pub period: Duration,
    /// Held while a policy is set, so that a decision does not come after an order.
    is_on: Mutex<bool>,
    pub decisions: AtomicU64,
    pub changes: AtomicU64,
    last: Mutex<Option<Decision>>,
}

/// Tells of what arrives.
struct Watcher(Arc<Mutex<Lookout>>);

impl Recorder for Watcher {
    fn arrival(&mut self, request: &Request) {
        // Held by nobody but for the end of a period.
        lock(&self.0).arrived(request, request.arrival);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Auto {
    pub fn new(config: AutoConfig) -> Auto {
        Auto {
            lookout: Arc::new(Mutex::new(Lookout::new(Selector::STRIPE))),
            chooser: Mutex::new(config.chooser),
            period: config.period,
            is_on: Mutex::new(true),
            decisions: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            last: Mutex::new(None),
        }
    }

    /// Who has to be told of arrivals.
    pub fn watcher(&self) -> Box<dyn Recorder> {
        Box::new(Watcher(self.lookout.clone()))
    }

    /// Whether decisions are carried out. While it is held, none is.
    pub fn is_on(&self) -> MutexGuard<'_, bool> {
        lock(&self.is_on)
    }

    /// What was decided last.
    pub fn last(&self) -> Option<Decision> {
        lock(&self.last).clone()
    }

    /// Nothing has arrived yet: what suits the device, if it is known.
    fn begin(&self) -> Option<Decision> {
        let decision = lock(&self.chooser).begin()?;
        Some(self.noted(decision))
    }

    /// A part of a period is over: what suits what has arrived, if it is time to look and that tells anything.
    fn decide(&self) -> Option<Decision> {
        let period = lock(&self.lookout).part_over()?;
        let decision = lock(&self.chooser).decide(&period)?;
        Some(self.noted(decision))
    }

    fn noted(&self, decision: Decision) -> Decision {
        self.decisions.fetch_add(1, Relaxed);
        *lock(&self.last) = Some(decision.clone());
        decision
    }

    /// For whoever asks what the node does.
    pub fn status(&self) -> Value {
        let decision = self.last().map(|decision| {
            json!({
                "policy": decision.name(),
                "class": decision.situation.class.map(Class::name),
                "operation": decision.situation.op.map(|op| op.to_string()),
                "files": decision.situation.files,
                "ratio": decision.situation.ratio,
                "tree": decision.tree,
                "reason": decision.reason,
            })
        });
        json!({
            "on": *self.is_on(),
            "decisions": self.decisions.load(Relaxed),
            "changes": self.changes.load(Relaxed),
            "last": decision,
        })
    }
}

/// Decides until the node ends.
pub fn run(auto: &Auto, node: &Shared, ending: &OwnedFd) {
    let part = auto.period / Lookout::PARTS;
    if let Some(first) = auto.begin() {
        carry_out(auto, node, &first);
    }
    loop {
        let mut waits = [PollFd::new(ending, PollFlags::IN)];
        let timeout = rustix::time::Timespec::try_from(part).ok();
        let _ = poll(&mut waits, timeout.as_ref());
        if !waits[0].revents().is_empty() {
            return;
        }
        if let Some(decision) = auto.decide() {
            carry_out(auto, node, &decision);
        }
    }
}

fn carry_out(auto: &Auto, node: &Shared, decision: &Decision) {
    let is_on = auto.is_on();
    // An I/O node always has a scheduler: NOOP keeps the order of arrival and costs least.
    let policy = decision.policy.unwrap_or(PolicyKind::Noop);
    let arm = Arm::of(policy);
    node.view.chosen(node, node.arm(), decision, arm);
    if !*is_on || policy == node.policy() {
        return;
    }
    match node.set_policy(policy) {
        Ok(()) => {
            auto.changes.fetch_add(1, Relaxed);
            tracing::info!("policy {policy}, chosen: {decision}");
        }
        Err(error) => tracing::warn!("policy {policy} was chosen and cannot be used: {error}"),
    }
}
