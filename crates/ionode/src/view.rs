//! What the dashboard shows of a node: it samples itself once a second, and remembers what was decided.
//!
//! A thread of the node ([`run`]) takes the samples, and shows them to the council if there is one; when the policy changes, at
//! once. Nothing here is on the way of a request.

use crate::adaptive::Said;
use crate::node::Shared;
use presagio_core::{Histogram, Nanos};
use presagio_council::view::{Clock, fields, window_us};
use presagio_council::{Figures, observed};
use presagio_dashboard::{
    Bell, Decision, Decisions, History, How, NodeState, Seen, Situations, Snapshot, plain,
};
use presagio_engine::Done;
use presagio_tune::{Arm, Candidate, Class, Context};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use serde_json::json;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a sample is.
const SAMPLE: Duration = Duration::from_secs(1);

/// See the module's header.
pub struct View {
    clock: Clock,
    /// Rings when something happened that a person waits for.
    pub bell: Bell,
    /// Can be read when the policy was changed.
    switched: OwnedFd,
    /// Whether a person named the policy that is in force.
    by_hand: AtomicBool,
    explorations: AtomicU64,
    remembered: Mutex<Remembered>,
}

#[derive(Default)]
struct Remembered {
    history: History,
    decisions: Decisions<Decision>,
    situations: Situations<Context>,
}

impl View {
    pub fn new() -> io::Result<View> {
        Ok(View {
            clock: Clock::start(),
            bell: Bell::default(),
            switched: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            by_hand: AtomicBool::new(false),
            explorations: AtomicU64::new(0),
            remembered: Mutex::default(),
        })
    }

    fn remembered(&self) -> MutexGuard<'_, Remembered> {
        let locked = self.remembered.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }

    /// The policy was changed.
    pub fn switched(&self) {
        // It cannot fail but by being set already.
        let _ = rustix::io::write(&self.switched, &1_u64.to_ne_bytes());
        self.bell.ring();
    }

    /// A person named the policy, or said that it is chosen again.
    pub fn ordered(&self, node: &Shared, before: Arm, by_hand: bool) {
        self.by_hand.store(by_hand, Relaxed);
        if by_hand {
            self.add(Decision {
                by: "person".to_owned(),
                why: "a person said so".to_owned(),
                ..self.decision(node, before, node.arm())
            });
        }
        self.switched();
    }

    /// Something was said to be done, with what there was to choose from, if that is known.
    pub fn said(&self, node: &Shared, before: Arm, said: &Said, candidates: &[Candidate]) {
        self.explorations.fetch_add(said.explores.into(), Relaxed);
        let mut evidence = said.seen.as_ref().map(|seen| fields(observed(seen)));
        if let (Some(evidence), Some(seen)) = (&mut evidence, &said.seen) {
            evidence.insert("bytes_per_busy_s".to_owned(), seen.reward().into());
        }
        let context = Some(&said.context).filter(|it| !it.is_empty());
        self.add(Decision {
            by: said.by.to_owned(),
            context: context.cloned(),
            explores: said.explores,
            why: said.why.clone(),
            evidence: evidence.unwrap_or_default(),
            candidates: presagio_council::view::candidates(candidates),
            ..self.decision(node, before, said.arm)
        });
    }

    /// The trees have chosen.
    pub fn chosen(&self, node: &Shared, before: Arm, decision: &presagio_tune::Decision, arm: Arm) {
        let situation = &decision.situation;
        let class = situation.class.map(Class::name);
        self.add(Decision {
            by: "trees".to_owned(),
            context: Some(situation.to_string()),
            why: decision.reason.clone(),
            evidence: fields(json!({
                "class": class,
                "operation": situation.op.map(|op| op.to_string()),
                "files": situation.files,
                "ratio": situation.ratio,
                "tree": decision.tree,
            })),
            ..self.decision(node, before, arm)
        });
    }

    fn decision(&self, node: &Shared, before: Arm, chosen: Arm) -> Decision {
        Decision {
            at_ms: self.clock.now_ms(),
            node: node.config.name.clone(),
            before: Some(before.to_string()),
            chosen: chosen.to_string(),
            ..Decision::default()
        }
    }

    fn add(&self, decision: Decision) {
        self.remembered().decisions.add(decision);
    }

    /// The node is in this situation, in which it would do that by itself.
    pub fn entered(
        &self,
        node: &Shared,
        context: Context,
        choice: Arm,
        why: &dyn std::fmt::Display,
    ) {
        let seen = Seen {
            last_ms: self.clock.now_ms(),
            choice: choice.to_string(),
            why: why.to_string(),
        };
        let mut remembered = self.remembered();
        remembered
            .situations
            .enter(&node.config.name, context, seen);
    }

    /// All that the dashboard shows.
    pub fn snapshot(&self, node: &Shared) -> Snapshot {
        let remembered = self.remembered();
        let mut snapshot = Snapshot {
            service: "ionode".to_owned(),
            name: plain(&node.config.name),
            how: How {
                decides: "given".to_owned(),
                ..How::default()
            },
            decisions: remembered.decisions.list(),
            ..self.clock.snapshot()
        };
        let arm = node.arm();
        let mut shown = presagio_dashboard::Node {
            name: snapshot.name.clone(),
            state: NodeState::Here,
            since_ms: snapshot.at_ms - self.clock.up().as_millis() as u64,
            policy: Some(arm.policy.to_string()),
            window_us: window_us(arm),
            by: "start".to_owned(),
            connections: Some(node.connections() as u64),
            now: remembered.history.last(),
            recent: remembered.history.list(),
            ..presagio_dashboard::Node::default()
        };
        if let Some(auto) = &node.auto {
            snapshot.how.decides = "trees".to_owned();
            snapshot.how.period_s = Some(auto.period.as_secs_f64());
            snapshot.totals.decisions = auto.decisions.load(Relaxed);
            if let Some(last) = auto.last() {
                shown.by = "trees".to_owned();
                shown.why = Some(plain(&last.reason));
            }
        }
        if let Some(adaptive) = &node.adaptive {
            snapshot.totals.decisions = adaptive.decisions.load(Relaxed);
            snapshot.totals.explorations = self.explorations.load(Relaxed);
            adaptive.shown(&mut snapshot, &remembered.situations);
            shown.council = adaptive.is_heard();
            if let Some(last) = adaptive.last() {
                shown.by = last.by.to_owned();
                shown.context = Some(plain(&last.context)).filter(|it| !it.is_empty());
                shown.why = Some(plain(&last.why));
                shown.explores = last.explores;
            }
        }
        if self.by_hand.load(Relaxed) {
            (shown.by, shown.explores) = ("person".to_owned(), false);
            shown.why = Some("a person said so".to_owned());
        }
        snapshot.nodes = vec![shown];
        snapshot.totals.add_up(&snapshot.nodes);
        snapshot
    }
}

/// Samples until the node ends.
pub fn run(node: &Shared, ending: &OwnedFd) {
    let view = &node.view;
    let mut meter = Meter::new(node);
    loop {
        let mut waits = [
            PollFd::new(ending, PollFlags::IN),
            PollFd::new(&view.switched, PollFlags::IN),
        ];
        let left = (meter.begun + SAMPLE).saturating_duration_since(Instant::now());
        let timeout = rustix::time::Timespec::try_from(left).ok();
        let _ = poll(&mut waits, timeout.as_ref());
        if !waits[0].revents().is_empty() {
            return;
        }
        let mut number = [0; 8];
        let _ = rustix::io::read(&view.switched, &mut number);
        let figures = meter.read(node);
        if figures.span.0 > 0 {
            let at_ms = view.clock.now_ms();
            view.remembered().history.add(figures.sample(at_ms));
        }
        if let Some(adaptive) = &node.adaptive {
            adaptive.show(figures);
        }
    }
}

/// What was counted when the last sample ended.
struct Meter {
    begun: Instant,
    done: Done,
    in_queue: Histogram,
    in_service: Histogram,
}

impl Meter {
    fn new(node: &Shared) -> Meter {
        let (in_queue, in_service) = node.data.engine().statistics().times();
        Meter {
            begun: Instant::now(),
            done: node.data.engine().done(),
            in_queue,
            in_service,
        }
    }

    /// What was done since the last sample; before it is due, only what is in force, with a span of 0.
    fn read(&mut self, node: &Shared) -> Figures {
        let engine = node.data.engine();
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let mut figures = Figures {
            arm: node.arm(),
            by_hand: node.view.by_hand.load(Relaxed),
            span: Nanos(0),
            bytes: [0; 2],
            requests: 0,
            queued: count(engine.queued()),
            in_flight: count(engine.in_flight()),
            connections: count(node.connections()),
            queue_ns: None,
            service_ns: None,
        };
        if self.begun.elapsed() < SAMPLE {
            return figures;
        }
        let now = Meter::new(node);
        let served = now.in_service.since(&self.in_service);
        figures.span = Nanos::from(now.begun - self.begun);
        figures.bytes = now.done.since(self.done).bytes;
        figures.requests = served.count();
        figures.queue_ns = quantiles(&now.in_queue.since(&self.in_queue));
        figures.service_ns = quantiles(&served);
        *self = now;
        figures
    }
}

/// The median and the 99th percentile.
fn quantiles(times: &Histogram) -> Option<[u64; 2]> {
    Some([times.quantile(0.5)?, times.quantile(0.99)?])
}
