//! The council itself, between the network and its reasoning (`presagio-tune`): who is there, what is kept, what is explained.
//!
//! An announcement is answered at once. What was learned when a round ended goes to the thread of the store, and what was decided to
//! that of the log ([`Scribe`]), after the answers have left ([`Hall::flush`]). Whoever asks what the council does gets copies,
//! a few entries at a time ([`AT_ONCE`]), and texts are made of these: nobody who decides waits for them.
//!
//! *Nothing is lost.* The store notes which announcements it has learned from. A node that comes back says again what it
//! does not know to be kept; these late words ([`Late`]) are learned as the round would have done: from several nodes the
//! median, so that one that lies is not heard more than it would have been.

use crate::figures::Figures;
use crate::late::Late;
use crate::log::Log;
use crate::scribe::{self, Scribe};
use crate::store::{self, Heard, Keeper, StoreError};
use crate::view::{self, Looked, View, Wanted};
use crate::wire::{self, Hello};
use presagio_core::{Histogram, Nanos, Op};
use presagio_dashboard::{Bell, Decided, Decision, How, Snapshot};
use presagio_door::{Peer, Proof};
use presagio_pattern::{KnowledgeBase, PatternId, Settings};
use presagio_tune::{
    Announcement, Candidate, Context, Council, CouncilDecision, CouncilSettings, Detector,
    Evidence, NodeId, Observation, Tuner, TunerSettings, WarmStart, Why,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Names of nodes that are remembered, here and in the store. Past that, those that were gone for longest are forgotten.
const NAMES_MAX: usize = 16_384;

/// Late words that a node may say at once. It gets another for each period that passes without a word from it; before our
/// own beginning anything may have been.
const LATE_MAX: u64 = 256;

/// Nodes, contexts or patterns that are copied at once for somebody who asks.
const AT_ONCE: usize = 64;

/// A node's periods are others than the council's if they are so many times longer or shorter, so often in a row.
const OTHER_PERIOD: f64 = 1.5;
const OTHER_PERIODS: u32 = 3;

/// How a council reasons, and where it keeps what it learns.
#[derive(Clone, Debug)]
pub struct HallConfig {
    /// Rounds, consensus, how many nodes.
    pub council: CouncilSettings,
    /// Arms and how they are chosen.
    pub tuner: TunerSettings,
    /// What suits contexts that were never seen.
    pub warm: Option<WarmStart>,
    /// What tells accesses apart.
    pub detector: Detector,
    /// Whether contexts are patterns that all nodes share, and not what can be counted.
    pub patterns: bool,
    /// The directory of the store and the log.
    pub store: PathBuf,
    /// Bytes of explanations that are kept, about.
    pub log_max: u64,
    /// How long nodes have, after the first of them, to say what nobody heard in time: [`LATE_WAIT`].
    pub late_wait: Duration,
}

/// Nodes that lost a council come back within so much time of each other, most of them.
pub const LATE_WAIT: Duration = Duration::from_secs(3);

/// The name of the store in its directory.
pub const STORE: &str = "learned.redb";

/// A council cannot open its books.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HallError {
    /// Not the store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Not the directory, or the log in it.
    #[error("{path} cannot be used: {error}")]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// A node that is or was here.
struct Member {
    id: NodeId,
    heard: Heard,
    uid: Option<u32>,
    is_here: bool,
    /// Late words that it may still say, and until when periods were counted for that.
    late_left: u64,
    late_counted: Instant,
    /// Whether it has not been told anything yet on this connection.
    is_new: bool,
    announcements: u64,
    /// How long its last whole period was, how many in a row were not as long as the council's, and whether that was said.
    period: Option<Nanos>,
    other_periods: u32,
    is_warned_of: bool,
    last: Option<Arc<Told>>,
}

/// What a node was told last.
struct Told {
    at: Instant,
    chosen: String,
    context: String,
    why: String,
    explores: bool,
}

/// A decision that is not in the log yet.
pub(crate) struct Unexplained {
    at_ms: u64,
    pub node: String,
    sequence: u64,
    seen: Observation,
    in_force: String,
    pub decision: CouncilDecision,
}

struct Inner {
    council: Council,
    keeper: Keeper,
    members: BTreeMap<String, Member>,
    ids: u64,
    round: u64,
    /// What was heard in this round: it is learned when the round ends.
    hearing: BTreeMap<String, Heard>,
    /// What was learned from, and is not in the store yet.
    learned: BTreeMap<String, Heard>,
    /// Names that are to go from the store.
    forgotten: BTreeSet<String>,
    has_learned: bool,
    late: Late,
    unexplained: Vec<Unexplained>,
    times: Histogram,
    view: View,
}

/// Counts for Prometheus.
#[derive(Default)]
pub(crate) struct Counts {
    pub announcements: AtomicU64,
    pub again: AtomicU64,
    pub decisions: AtomicU64,
    pub explorations: AtomicU64,
    pub refused: AtomicU64,
    pub ended: AtomicU64,
    pub suspect: AtomicU64,
    /// Turns of the loop.
    pub turns: AtomicU64,
    /// Times that it was looked who is held up.
    pub looks: AtomicU64,
}

/// See the module's header.
pub struct Hall {
    inner: Mutex<Inner>,
    scribe: Scribe<Unexplained>,
    pub(crate) counts: Counts,
    /// Rings when something happened that a person waits for.
    pub(crate) bell: Bell,
    start: Instant,
    dir: PathBuf,
    own_uid: u32,
}

/// What is to be said about a council as a whole.
pub(crate) struct Totals {
    pub here: usize,
    pub known: usize,
    pub contexts: usize,
    pub patterns: usize,
    pub bytes: usize,
    pub lost: u64,
    pub write_failures: u64,
    pub contexts_written: u64,
    pub times: Histogram,
    pub arms: BTreeMap<String, u64>,
}

impl Hall {
    /// Opens the store and the log.
    pub fn open(config: HallConfig) -> Result<Hall, HallError> {
        let dir = config.store;
        let unusable = |error: io::Error| HallError::Directory {
            path: dir.clone(),
            error,
        };
        std::fs::create_dir_all(&dir).map_err(unusable)?;
        let (keeper, kept) = store::open(&dir.join(STORE))?;
        let log = Log::open(&crate::log::beside(&dir), config.log_max).map_err(unusable)?;
        let scribe = Scribe::start(log, Unexplained::explanation, scribe::WAITING_MAX);
        let scribe = scribe.map_err(unusable)?;
        let mut tuner = Tuner::new(config.tuner);
        if let Some(warm) = config.warm {
            tuner = tuner.warmed(warm);
        }
        restore(&mut tuner, &kept.contexts);
        let known = config.patterns.then(|| restore_patterns(&mut tuner, &kept));
        let round = Duration::from_nanos(config.council.period.0);
        let mut council = Council::new(config.council, tuner, config.detector);
        if let Some(known) = known {
            council = council.matching(known);
        }
        let mut inner = Inner {
            council,
            keeper,
            members: BTreeMap::new(),
            ids: 0,
            round: 0,
            hearing: BTreeMap::new(),
            learned: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            has_learned: false,
            late: Late::new(config.late_wait, round),
            unexplained: Vec::new(),
            times: Histogram::default(),
            view: View::new(),
        };
        for (name, heard) in kept.nodes {
            inner.remember(name, heard, None);
        }
        inner.make_room(NAMES_MAX);
        Ok(Hall {
            inner: Mutex::new(inner),
            scribe,
            counts: Counts::default(),
            bell: Bell::default(),
            start: Instant::now(),
            own_uid: rustix::process::geteuid().as_raw(),
            dir,
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the store and the log are.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// How long a round is.
    pub(crate) fn period(&self) -> Duration {
        Duration::from_nanos(self.inner().council.settings().period.0)
    }

    /// Whether nodes should say what patterns they see.
    pub(crate) fn wants_patterns(&self) -> bool {
        self.inner().council.known().is_some()
    }

    /// Whether one who comes is root, or whoever runs the council.
    pub(crate) fn is_own(&self, peer: &Peer) -> bool {
        let uid = peer.proof.uid();
        uid.is_some_and(|uid| uid == 0 || uid == self.own_uid)
    }

    /// Somebody tried what is not allowed.
    pub(crate) fn audit(&self, peer: &Peer, why: &dyn Display) {
        self.counts.refused.fetch_add(1, Relaxed);
        tracing::warn!(target: "audit", "{peer} refused: {why}");
    }

    /// A connection ended because of what it did.
    pub(crate) fn ended(&self) {
        self.counts.ended.fetch_add(1, Relaxed);
    }

    /// Whether one who comes is heard; or why not.
    pub(crate) fn may_come(&self, peer: &Peer, users: &[u32]) -> Result<(), String> {
        match peer.proof {
            Proof::Trusted => Ok(()),
            Proof::None | Proof::Awaited => Err("nothing proves who it is".to_owned()),
            Proof::User { uid, .. } | Proof::Vouched { uid, .. } => {
                match self.is_own(peer) || users.contains(&uid) {
                    true => Ok(()),
                    false => Err(format!(
                        "uid {uid} has no I/O nodes here: name it with --allow-uid if it has"
                    )),
                }
            }
        }
    }

    /// A node is here; the last announcement of this life of it that is kept.
    pub(crate) fn joined(&self, hello: &Hello, peer: &Peer) -> Result<u64, String> {
        let mut inner = self.inner();
        let here = inner.members.values().filter(|member| member.is_here);
        let (here, max) = (here.count(), inner.council.settings().nodes_max);
        if here >= max.min(NAMES_MAX) {
            return Err(format!("there are {here} nodes: raise --nodes-max"));
        }
        if !inner.members.contains_key(&hello.name) {
            inner.make_room(NAMES_MAX - 1);
        }
        let kept = inner.kept(&hello.name, hello.epoch);
        let heard = Heard {
            epoch: hello.epoch,
            sequence: kept,
            at_ms: unix_ms(),
        };
        let uid = peer.proof.uid();
        match inner.members.get_mut(&hello.name) {
            None => inner.remember(hello.name.clone(), heard, uid),
            Some(member) => {
                // What was heard in this life of ours, and is not kept yet, need not be heard again.
                if member.heard.epoch != hello.epoch {
                    member.heard = heard;
                    (member.period, member.other_periods) = (None, 0);
                    member.is_warned_of = false;
                }
                member.uid = uid;
            }
        }
        inner.forgotten.remove(&hello.name);
        if let Some(member) = inner.members.get_mut(&hello.name) {
            (member.is_here, member.is_new) = (true, true);
        }
        inner.view.joined(&hello.name);
        self.bell.ring();
        tracing::info!("node {} is here: {peer}", hello.name);
        Ok(kept)
    }

    /// A node has left.
    pub(crate) fn left(&self, name: &str) {
        let mut inner = self.inner();
        let inner = &mut *inner;
        if let Some(member) = inner.members.get_mut(name) {
            member.is_here = false;
            inner.council.leave(member.id);
            inner.view.left(name);
            self.bell.ring();
            tracing::info!("node {name} has left");
        }
    }

    /// A node says what it does at the moment.
    pub(crate) fn shown(&self, name: &str, figures: &Figures) {
        if self.inner().view.shown(name, figures) {
            self.bell.ring();
        }
    }

    /// A node says what its period was like: what it should do.
    pub(crate) fn announced(
        &self,
        name: &str,
        mut said: wire::Announcement,
    ) -> Option<wire::Decision> {
        let begin = Instant::now();
        self.counts.announcements.fetch_add(1, Relaxed);
        let mut inner = self.inner();
        let inner = &mut *inner;
        let ours = inner.council.settings().period;
        let member = inner.members.get_mut(name)?;
        let is_news = said.sequence > member.heard.sequence;
        if is_news {
            member.heard.sequence = said.sequence;
            member.heard.at_ms = unix_ms();
        }
        if said.again {
            self.counts.again.fetch_add(1, Relaxed);
            if is_news && member.takes_a_word(ours) {
                inner.heard_late(name, &said, None);
            }
            return None;
        }
        let announcement = Announcement {
            node: member.id,
            in_force: said.arm,
            // What was said before is not learned a second time.
            realised: (said.settled && is_news).then_some(said.arm),
            seen: said.observation,
        };
        member.announcements += 1;
        let is_within = is_news && member.takes_a_word(ours);
        let theirs = said.observation.period;
        // A period that was cut short, or in which the arm changed, says nothing about how long they are.
        if said.settled && member.is_to_be_warned_of(theirs, ours) {
            tracing::warn!(
                "node {name} announces periods of {theirs}, the council's are {ours}: give both the same --period"
            );
        }
        let (heard, is_first) = (member.heard, std::mem::take(&mut member.is_new));
        let now = Nanos::from(self.start.elapsed());
        let pattern = said.pattern.take();
        let decision = match inner.council.announce_with(&announcement, pattern, now) {
            Ok(decision) => decision,
            Err(why) => {
                tracing::debug!("node {name} is not heard: {why}");
                return None;
            }
        };
        inner.turned(decision.round);
        inner.hearing.insert(name.to_owned(), heard);
        // It could not be told yet: what it did was decided before this connection.
        if is_first && is_within && decision.evidence == Evidence::NotTold {
            inner.heard_late(name, &said, decision.context);
        }
        self.count(&decision);
        let told = inner.tell(name, &said, &decision);
        inner.unexplained.push(Unexplained {
            at_ms: unix_ms(),
            node: name.to_owned(),
            sequence: said.sequence,
            seen: said.observation,
            in_force: said.arm.to_string(),
            decision,
        });
        inner.times.record(begin.elapsed().as_nanos() as u64);
        Some(told)
    }

    fn count(&self, decision: &CouncilDecision) {
        self.counts.decisions.fetch_add(1, Relaxed);
        if explores(decision.why) {
            self.counts.explorations.fetch_add(1, Relaxed);
        }
        if decision.evidence == Evidence::Suspect {
            self.counts.suspect.fetch_add(1, Relaxed);
        }
    }

    /// After the answers have left: what came late is learned when all had time to say it, what was learned is given to the store,
    /// and what was decided to the log.
    pub(crate) fn flush(&self) {
        let mut inner = self.inner();
        let inner = &mut *inner;
        inner.learn_late();
        inner.keep();
        for entry in std::mem::take(&mut inner.unexplained) {
            let entry = Arc::new(entry);
            self.scribe.note(entry.clone());
            inner.view.decided(entry);
        }
    }

    /// Waits until what was decided is in the log.
    pub(crate) fn catch_up(&self) {
        self.scribe.catch_up();
    }

    /// How long until what came late is to be learned, if anything came.
    pub(crate) fn due(&self) -> Option<Duration> {
        self.inner().late.due(Instant::now())
    }

    /// Once in a while, when it was looked who is held up: the store may have failed before.
    pub(crate) fn look(&self) {
        self.counts.looks.fetch_add(1, Relaxed);
        self.inner().keep();
    }

    /// The figures of all of it.
    pub(crate) fn totals(&self) -> Totals {
        let inner = self.inner();
        let (write_failures, contexts_written) = inner.keeper.counts();
        let here = inner.members.values().filter(|member| member.is_here);
        let mut arms = BTreeMap::new();
        for told in here.clone().filter_map(|member| member.last.as_ref()) {
            *arms.entry(told.chosen.clone()).or_default() += 1;
        }
        Totals {
            here: here.count(),
            known: inner.members.len(),
            contexts: inner.council.tuner().len(),
            patterns: inner.council.known().map_or(0, KnowledgeBase::len),
            bytes: inner.council.tuner().bytes()
                + inner.council.known().map_or(0, KnowledgeBase::bytes),
            lost: self.scribe.lost(),
            write_failures,
            contexts_written,
            times: inner.times.clone(),
            arms,
        }
    }

    /// For a person who asks what the council does.
    pub fn status(&self) -> Value {
        let totals = self.totals();
        let nodes = self.nodes();
        let inner = self.inner();
        let settings = *inner.council.settings();
        let strategy = inner.council.tuner().settings().strategy;
        let (arm, has_patterns) = (inner.council.arm(), inner.council.known().is_some());
        drop(inner);
        json!({
            "store": self.dir,
            "period_s": settings.period.as_secs_f64(),
            "consensus": settings.consensus.name(),
            "strategy": strategy.to_string(),
            "arm": arm.map(|arm| arm.to_string()),
            "nodes_here": totals.here,
            "contexts": totals.contexts,
            "contexts_are": if has_patterns { "patterns" } else { "parameters" },
            "patterns": totals.patterns,
            "memory_bytes": totals.bytes,
            "decisions": self.counts.decisions.load(Relaxed),
            "explorations": self.counts.explorations.load(Relaxed),
            "explanations_lost": totals.lost,
            "decision_ns_p50": totals.times.quantile(0.5),
            "decision_ns_p99": totals.times.quantile(0.99),
            "decision_ns_max": totals.times.max(),
            "refused": self.counts.refused.load(Relaxed),
            "loop_turns": self.counts.turns.load(Relaxed),
            "loop_looks": self.counts.looks.load(Relaxed),
            "nodes": nodes,
        })
    }

    /// Each node, by name.
    fn nodes(&self) -> serde_json::Map<String, Value> {
        let (mut all, mut last) = (serde_json::Map::new(), None);
        loop {
            let some = self.nodes_after(last.as_deref());
            let Some((name, _)) = some.last() else {
                return all;
            };
            last = Some(name.clone());
            all.extend(some.into_iter().map(|(name, node)| (name, node.shown())));
        }
    }

    /// A few nodes, in the order of names.
    fn nodes_after(&self, last: Option<&str>) -> Vec<(String, Glimpse)> {
        let inner = self.inner();
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        let members = inner.members.range::<str, _>((from, Bound::Unbounded));
        let some = members.take(AT_ONCE);
        some.map(|(name, it)| (name.clone(), inner.glimpse(it)))
            .collect()
    }

    /// All that the dashboard shows.
    pub fn snapshot(&self) -> Snapshot {
        let totals = self.totals();
        let mut inner = self.inner();
        let settings = *inner.council.settings();
        let mut snapshot = Snapshot {
            service: "council".to_owned(),
            name: inner.view.host().to_owned(),
            how: How {
                period_s: Some(settings.period.as_secs_f64()),
                consensus: Some(settings.consensus.name().to_owned()),
                agreed: inner.council.arm().map(|arm| arm.to_string()),
                ..view::how(inner.council.tuner())
            },
            patterns: inner.council.known().map(view::patterns),
            ..inner.view.begin()
        };
        drop(inner);
        self.show_nodes(&mut snapshot, settings.period);
        self.show_situations(&mut snapshot);
        let decisions = self.inner().view.decisions();
        snapshot.decisions = decisions.list();
        let all = &mut snapshot.totals;
        all.contexts = totals.contexts as u64;
        all.decisions = self.counts.decisions.load(Relaxed);
        all.explorations = self.counts.explorations.load(Relaxed);
        all.decision_ns_p50 = totals.times.quantile(0.5);
        all.decision_ns_p99 = totals.times.quantile(0.99);
        snapshot
    }

    /// Which nodes are shown is known before any is copied.
    fn show_nodes(&self, snapshot: &mut Snapshot, period: Nanos) {
        let mut all = Vec::new();
        loop {
            let last = all.last().map(|(name, _): &(String, _)| &**name);
            let some = self.inner().view.sums_after(last, AT_ONCE);
            if some.is_empty() {
                break;
            }
            all.extend(some);
        }
        let names = view::chosen(snapshot, all, period);
        let at_ms = snapshot.at_ms;
        for names in names.chunks(AT_ONCE) {
            let copied = self.inner().view.copied(names);
            let shown = copied
                .iter()
                .map(|(name, node)| node.node(name, at_ms, period));
            snapshot.nodes.extend(shown);
        }
    }

    /// The same of situations.
    fn show_situations(&self, snapshot: &mut Snapshot) {
        let mut all: Vec<(u32, Context)> = Vec::new();
        loop {
            let inner = self.inner();
            let last = all.last().map(|(_, context)| context);
            let some = inner.council.tuner().contexts_after(last).take(AT_ONCE);
            let some: Vec<_> = some.map(|(it, bandit)| (bandit.steps(), *it)).collect();
            if some.is_empty() {
                break;
            }
            all.extend(some);
        }
        let wanted = Wanted::of(self.inner().view.situations(), all);
        let mut looked = Vec::new();
        for (context, seen) in &wanted.list {
            let inner = self.inner();
            let (tuner, situations) = (inner.council.tuner(), inner.view.situations());
            looked.push(Looked::at(tuner, situations, *context, seen));
        }
        wanted.show(looked, snapshot);
    }

    /// What was learned, for those who want to see all of it: contexts whose name has this in it.
    pub fn learned(&self, part: &str) -> Value {
        let (mut all, mut last) = (Vec::new(), None);
        loop {
            let some = self.learned_after(last.as_ref());
            let Some(end) = some.last() else {
                return all.into();
            };
            last = Some(end.context);
            all.extend(some.iter().filter_map(|it| it.shown(part)));
        }
    }

    /// What was learned in a few contexts, in their order.
    fn learned_after(&self, last: Option<&Context>) -> Vec<Learned> {
        let inner = self.inner();
        let tuner = inner.council.tuner();
        let some = tuner.contexts_after(last).take(AT_ONCE);
        let learned = some.map(|(context, bandit)| Learned {
            context: *context,
            steps: bandit.steps(),
            best: bandit.best(),
            candidates: tuner.candidates(context),
        });
        learned.collect()
    }
}

/// What was learned in a context.
struct Learned {
    context: Context,
    steps: u32,
    best: f64,
    candidates: Vec<Candidate>,
}

impl Learned {
    /// For people, if its name has this in it.
    fn shown(&self, part: &str) -> Option<Value> {
        let name = self.context.to_string();
        name.contains(part).then(|| {
            json!({
                "context": name,
                "steps": self.steps,
                "best_bytes_per_busy_s": self.best,
                "candidates": candidates(&self.candidates),
            })
        })
    }
}

/// What is to be said about a node.
struct Glimpse {
    is_here: bool,
    uid: Option<u32>,
    announcements: u64,
    period: Option<Nanos>,
    has_other_period: bool,
    last: Option<Arc<Told>>,
    pattern: Option<PatternId>,
    next: Option<presagio_pattern::Next>,
}

impl Glimpse {
    fn shown(&self) -> Value {
        let last = self.last.as_ref().map(|told| {
            json!({
                "age_s": told.at.elapsed().as_secs_f64(),
                "chosen": told.chosen,
                "explores": told.explores,
                "context": told.context,
                "why": told.why,
            })
        });
        let next = self
            .next
            .map(|it| json!({ "pattern": it.id.0, "probability": it.probability }));
        json!({
            "here": self.is_here,
            "uid": self.uid,
            "announcements": self.announcements,
            "period_s": self.period.map(Nanos::as_secs_f64),
            "other_period": self.has_other_period,
            "last": last,
            "pattern": self.pattern.map(|it| it.0),
            "next": next,
        })
    }
}

impl Member {
    /// Whether it may tell of another period. There is one for each that has passed, and some that were before.
    fn takes_a_word(&mut self, period: Nanos) -> bool {
        let period = Duration::from_nanos(period.0.max(1));
        let passed = self.late_counted.elapsed().as_nanos() / period.as_nanos();
        let passed = u32::try_from(passed).unwrap_or(u32::MAX);
        self.late_counted += period
            .saturating_mul(passed)
            .min(self.late_counted.elapsed());
        let left = self.late_left.saturating_add(passed.into()).min(LATE_MAX);
        self.late_left = left.saturating_sub(1);
        left > 0
    }

    /// Whether its periods are not as long as the council's.
    fn has_other_period(&self) -> bool {
        self.other_periods >= OTHER_PERIODS
    }

    /// Notes how long a period of its was: whether it is to be said, for the first time, that they are not as long as the
    /// council's. It is heard all the same, but rounds are not its periods.
    fn is_to_be_warned_of(&mut self, theirs: Nanos, ours: Nanos) -> bool {
        self.period = Some(theirs);
        let ratio = theirs.as_secs_f64() / ours.as_secs_f64().max(1e-9);
        self.other_periods = match (1.0 / OTHER_PERIOD..=OTHER_PERIOD).contains(&ratio) {
            true => 0,
            false => self.other_periods.saturating_add(1),
        };
        self.has_other_period() && !std::mem::replace(&mut self.is_warned_of, true)
    }
}

impl Hall {
    /// The patterns that are known and what follows what, where contexts are patterns; else none.
    pub fn patterns(&self) -> Value {
        let ids: Option<Vec<PatternId>> = {
            let inner = self.inner();
            inner.council.known().map(|known| known.ids().collect())
        };
        let Some(ids) = ids else {
            return Value::Null;
        };
        let some = |ids: &[PatternId]| {
            let inner = self.inner();
            let (known, tuner) = (inner.council.known(), inner.council.tuner());
            known.map_or_else(Vec::new, |known| links(known, tuner, ids))
        };
        ids.chunks(AT_ONCE).flat_map(some).collect()
    }
}

/// Known patterns, what came after each, and what suits it best: for people, and for whoever draws it.
pub fn chain(known: &KnowledgeBase, tuner: &Tuner) -> Value {
    let ids: Vec<PatternId> = known.ids().collect();
    links(known, tuner, &ids).into()
}

/// The same of some patterns.
fn links(known: &KnowledgeBase, tuner: &Tuner, ids: &[PatternId]) -> Vec<Value> {
    let one = |id: PatternId| {
        let pattern = known.pattern(id);
        let workload = known.workload(id).unwrap_or(id);
        let context = Context::Pattern(workload.0);
        let all: u64 = known
            .successors(id)
            .map(|(_, times)| u64::from(times))
            .sum();
        let next = |(to, times): (PatternId, u32)| {
            json!({
                "pattern": to.0,
                "times": times,
                "probability": f64::from(times) / all as f64,
            })
        };
        let best = tuner.candidates(&context).into_iter();
        let best = best.filter_map(|it| Some((it.value?, it.arm)));
        let best = best.max_by(|a, b| a.0.total_cmp(&b.0));
        json!({
            "pattern": id.0,
            "workload": workload.0,
            "occurrences": known.occurrences(id),
            "operation": pattern.map(|it| it.majority().to_string()),
            "files": pattern.map(presagio_pattern::Pattern::files),
            "requests": pattern.map(|it| Op::ALL.map(|op| it.requests(op)).iter().sum::<u32>()),
            "points": pattern.map(presagio_pattern::Pattern::points),
            "steps": tuner.bandit(&context).map(presagio_tune::Bandit::steps),
            "best": best.map(|(_, arm)| arm.to_string()),
            "next": known.successors(id).map(next).collect::<Vec<_>>(),
        })
    };
    let is_known = |id: &PatternId| known.pattern(*id).is_some();
    ids.iter().copied().filter(is_known).map(one).collect()
}

/// Takes known patterns back, as they were kept. What was learned with one that is not known any more is forgotten: its
/// name may stand for another now.
pub fn restore_patterns(tuner: &mut Tuner, kept: &store::Kept) -> KnowledgeBase {
    let entries = kept.patterns.iter().map(|(key, value)| (&**key, &**value));
    let (known, wrong) = KnowledgeBase::restore(Settings::ours(), entries);
    if let Some(first) = wrong.first() {
        tracing::warn!("{} patterns are left out: {first}", wrong.len());
    }
    let contexts = tuner.contexts().map(|(context, _)| *context);
    let is_lost = |context: &Context| match context {
        Context::Pattern(id) => !known.has_workload(PatternId(*id)),
        Context::Situation(_) => false,
    };
    let lost: Vec<_> = contexts.filter(is_lost).collect();
    lost.iter().for_each(|context| tuner.forget(context));
    known
}

/// Takes back what was kept; what cannot be read is left out, and said.
pub(crate) fn restore(tuner: &mut Tuner, contexts: &[(Vec<u8>, Vec<u8>)]) {
    let mut failed = None;
    let mut count = 0;
    for (key, value) in contexts {
        if let Err(error) = tuner.restore(key, value) {
            count += 1;
            failed = Some(error);
        }
    }
    if let Some(error) = failed {
        tracing::warn!(
            "{count} of {} contexts are left out: {error}",
            contexts.len()
        );
    }
}

impl Inner {
    fn remember(&mut self, name: String, heard: Heard, uid: Option<u32>) {
        self.ids += 1;
        let member = Member {
            id: NodeId(self.ids),
            heard,
            uid,
            is_here: false,
            late_left: LATE_MAX,
            late_counted: Instant::now(),
            is_new: true,
            announcements: 0,
            period: None,
            other_periods: 0,
            is_warned_of: false,
            last: None,
        };
        self.members.insert(name, member);
    }

    /// What is to be said about a node.
    fn glimpse(&self, member: &Member) -> Glimpse {
        let pattern = self.council.pattern(member.id);
        Glimpse {
            is_here: member.is_here,
            uid: member.uid,
            announcements: member.announcements,
            period: member.period,
            has_other_period: member.has_other_period(),
            last: member.last.clone(),
            pattern,
            next: pattern.and_then(|id| self.council.known()?.after(id)),
        }
    }

    /// Forgets those that were gone for longest until there are at most so many.
    fn make_room(&mut self, max: usize) {
        let Some(count) = self.members.len().checked_sub(max).filter(|it| *it > 0) else {
            return;
        };
        // A few more at once: it takes a walk over all.
        let count = count.max(NAMES_MAX / 64);
        let gone = self.members.iter().filter(|(_, member)| !member.is_here);
        let mut gone: Vec<(u64, &String)> = gone.map(|(name, it)| (it.heard.at_ms, name)).collect();
        gone.sort_unstable();
        let gone: Vec<String> = gone
            .into_iter()
            .take(count)
            .map(|it| it.1.clone())
            .collect();
        for name in gone {
            self.members.remove(&name);
            self.hearing.remove(&name);
            self.learned.remove(&name);
            self.forgotten.insert(name);
        }
        self.has_learned = true;
    }

    /// What the store has of a node, if it is of this life.
    fn kept(&self, name: &str, epoch: u64) -> u64 {
        let kept = self.keeper.kept(name);
        if kept.epoch == epoch {
            kept.sequence
        } else {
            0
        }
    }

    /// A round may have ended: what was heard in it is learned.
    fn turned(&mut self, round: u64) {
        if round != self.round {
            self.round = round;
            self.has_learned = true;
            self.learned.append(&mut self.hearing);
        }
    }

    /// A node tells of a period that nobody heard of in time; its context, if that is known already.
    fn heard_late(&mut self, name: &str, said: &wire::Announcement, context: Option<Context>) {
        let Some(member) = self.members.get(name) else {
            return;
        };
        if !said.settled || self.council.is_suspect(member.id) {
            return;
        }
        let seen = &said.observation;
        let context = context.map(|it| it.through(0)).or_else(|| {
            let pattern = said.pattern.clone();
            let council = &mut self.council;
            council.context_of_late(member.id, said.arm, seen, pattern)
        });
        if let Some((context, reward)) = context.zip(seen.reward()) {
            let who = (name, member.id);
            self.late
                .add(who, member.heard, (context, said.arm), reward);
        }
    }

    /// Learns what came late, when all had time to say it.
    fn learn_late(&mut self) {
        let Some(heard) = self.late.learn(Instant::now(), &mut self.council) else {
            return;
        };
        for (name, late) in heard {
            let known = self.learned.entry(name).or_insert(late);
            // Rounds that ended meanwhile know more.
            if known.epoch == late.epoch && known.sequence < late.sequence {
                *known = late;
            }
        }
        self.has_learned = true;
    }

    /// Gives what was learned to the store.
    fn keep(&mut self) {
        // What came late is older than what came since, and is noted first.
        if !self.late.is_empty() {
            return;
        }
        if !std::mem::take(&mut self.has_learned) && !self.keeper.wants_everything() {
            return;
        }
        let gone = std::mem::take(&mut self.forgotten).into_iter();
        let heard = std::mem::take(&mut self.learned).into_iter();
        let heard = heard.map(|(name, heard)| (name, Some(heard)));
        let nodes = gone.map(|name| (name, None)).chain(heard).collect();
        self.keeper.keep_learned(self.council.learned_mut(), nodes);
    }

    fn tell(
        &mut self,
        name: &str,
        said: &wire::Announcement,
        decision: &CouncilDecision,
    ) -> wire::Decision {
        let context = decision
            .context
            .map(|it| it.to_string())
            .unwrap_or_default();
        let told = wire::Decision {
            sequence: said.sequence,
            kept: 0,
            arm: decision.arm,
            explores: explores(decision.why),
            context,
            why: decision.reason(),
        };
        let member = self.members.get_mut(name).expect("it has announced");
        member.last = Some(Arc::new(Told {
            at: Instant::now(),
            chosen: told.arm.to_string(),
            context: told.context.clone(),
            why: told.why.clone(),
            explores: told.explores,
        }));
        let epoch = member.heard.epoch;
        wire::Decision {
            kept: self.kept(name, epoch),
            ..told
        }
    }
}

fn explores(why: Why) -> bool {
    matches!(why, Why::Untried | Why::Explored)
}

impl Decided for Unexplained {
    fn node(&self) -> &str {
        &self.node
    }

    fn at_ms(&self) -> u64 {
        self.at_ms
    }

    /// The same said to the same; that votes were counted otherwise is no news.
    fn repeats(&self, earlier: &Unexplained) -> bool {
        let said = |it: &Unexplained| {
            let it = &it.decision;
            (it.arm, it.own, it.context, it.why)
        };
        said(self) == said(earlier)
    }

    fn shown(&self) -> Decision {
        let decision = &self.decision;
        let text = |arm: presagio_tune::Arm| arm.to_string();
        Decision {
            at_ms: self.at_ms,
            node: self.node.clone(),
            by: "council".to_owned(),
            context: decision.context.map(|it| it.to_string()),
            before: Some(self.in_force.clone()),
            chosen: text(decision.arm),
            own: Some(text(decision.own)),
            explores: explores(decision.why),
            why: decision.reason(),
            consensus: Some(decision.consensus.name().to_owned()),
            evidence: view::fields(evidence(&self.seen, decision, &self.in_force)),
            candidates: view::candidates(&decision.candidates),
            votes: decision
                .votes
                .iter()
                .map(|(arm, weight)| (text(*arm), *weight))
                .collect(),
            ..Decision::default()
        }
    }
}

impl Unexplained {
    /// Whether it tries something.
    pub(crate) fn explores(&self) -> bool {
        explores(self.decision.why)
    }

    /// A line of the log; `log.rs` has the fields.
    fn explanation(&self) -> Value {
        let decision = &self.decision;
        json!({
            "at": self.at_ms,
            "node": self.node,
            "sequence": self.sequence,
            "round": decision.round,
            "context": decision.context.map(|it| it.to_string()),
            "evidence": evidence(&self.seen, decision, &self.in_force),
            "candidates": candidates(&decision.candidates),
            "votes": votes(&decision.votes),
            "consensus": decision.consensus.name(),
            "own": decision.own.to_string(),
            "chosen": decision.arm.to_string(),
            "explores": explores(decision.why),
            "why": decision.reason(),
        })
    }
}

fn evidence(seen: &Observation, decision: &CouncilDecision, in_force: &str) -> Value {
    let mut evidence = observed(seen);
    evidence["in_force"] = in_force.into();
    evidence["bytes_per_busy_s"] = decision.bytes_per_busy_s.into();
    evidence["learned"] = decision.evidence.to_string().into();
    evidence
}

/// What a node saw, for the log.
pub fn observed(seen: &Observation) -> Value {
    let arrived = seen.arrived.as_ref();
    json!({
        "period_s": seen.period.as_secs_f64(),
        "busy_s": seen.busy.as_secs_f64(),
        "served_bytes": seen.served,
        "servers": seen.servers,
        "clients": seen.clients,
        "processes": seen.processes,
        "operation": arrived.map(|it| it.op.to_string()),
        "requests": arrived.map(|it| it.requests),
        "handles": arrived.map(|it| it.features.handles),
        "size_mean": arrived.map(|it| it.features.size_mean),
        "distance": arrived.map(|it| it.features.distance),
        "stride": arrived.map(|it| it.features.stride),
    })
}

/// Candidates as a list: arm, value, tries, and whether it is barred.
pub fn candidates(all: &[Candidate]) -> Value {
    let one = |it: &Candidate| {
        let value = it.value.map(|value| (value * 1e4).round() / 1e4);
        match it.barred {
            true => json!([it.arm.to_string(), value, it.tries, "barred"]),
            false => json!([it.arm.to_string(), value, it.tries]),
        }
    };
    all.iter().map(one).collect()
}

fn votes(all: &[(presagio_tune::Arm, f64)]) -> Value {
    all.iter()
        .map(|(arm, weight)| json!([arm.to_string(), weight]))
        .collect()
}

/// Now, as logs have it.
pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use presagio_tune::{Arrived, Features};

    fn hall(dir: &Path) -> Hall {
        hall_by(dir, Nanos::from_secs(1))
    }

    fn hall_by(dir: &Path, period: Nanos) -> Hall {
        let hall = Hall::open(HallConfig {
            council: CouncilSettings {
                period,
                ..CouncilSettings::default()
            },
            tuner: TunerSettings::default(),
            warm: None,
            detector: Detector::shipped(),
            patterns: false,
            store: dir.to_owned(),
            log_max: 1 << 20,
            late_wait: LATE_WAIT,
        });
        hall.expect("it opens")
    }

    #[test]
    fn all_that_is_known_is_shown_once_however_much_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let hall = hall(dir.path());
        let count = 2 * AT_ONCE as u32 + 1;
        {
            let mut inner = hall.inner();
            for number in 0..count {
                let tuner = inner.council.tuner_mut();
                let safe = tuner.settings().arms.safe();
                tuner.learn(&Context::Pattern(number), safe, 1e6);
                inner.remember(format!("io{number:04}"), Heard::default(), None);
            }
        }
        let learned = hall.learned("");
        let names: Vec<&str> = learned
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["context"].as_str().unwrap())
            .collect();
        let expected: Vec<String> = (0..count)
            .map(|number| format!("pattern {number}"))
            .collect();
        assert_eq!(names, expected);
        assert_eq!(
            hall.learned("pattern 128").as_array().map(Vec::len),
            Some(1)
        );
        let status = hall.status();
        let nodes = status["nodes"].as_object().unwrap();
        assert_eq!(nodes.len(), count as usize);
        assert!(nodes.contains_key("io0000") && nodes.contains_key(&format!("io{:04}", count - 1)));
    }

    /// What a node says of a period of a second that nobody heard of in time.
    fn again(sequence: u64) -> wire::Announcement {
        let features = Features {
            handles: 1,
            size_max: 4096,
            size_min: 4096,
            size_mean: 4096.0,
            distance: 0.0,
            stride: 0.0,
        };
        wire::Announcement {
            sequence,
            arm: "SJF".parse().unwrap(),
            settled: true,
            again: true,
            observation: Observation {
                period: Nanos::from_secs(1),
                busy: Nanos::from_secs(1),
                served: 1 << 30,
                servers: 1,
                clients: 1,
                processes: 1,
                arrived: Some(Arrived {
                    op: Op::Read,
                    requests: 100,
                    features,
                }),
            },
            pattern: None,
        }
    }

    /// What is to be learned, of words that nobody heard in time.
    fn late(hall: &Hall) -> u64 {
        hall.inner().late.len() as u64
    }

    #[test]
    fn one_that_only_says_again_is_heard_no_more_often_for_coming_anew() {
        let dir = tempfile::tempdir().unwrap();
        let hall = hall_by(dir.path(), Nanos::from_secs(3600));
        let heard = Heard {
            epoch: 1,
            ..Heard::default()
        };
        hall.inner().remember("liar".to_owned(), heard, None);
        let mut sequence = 0;
        for _ in 0..20 {
            for _ in 0..100 {
                sequence += 1;
                assert_eq!(hall.announced("liar", again(sequence)), None);
            }
            hall.left("liar");
        }
        assert_eq!(late(&hall), LATE_MAX);
        // What was said before is none of them, and what is said in time is one.
        let mut inner = hall.inner();
        let member = inner.members.get_mut("liar").unwrap();
        assert!(!member.takes_a_word(Nanos::from_secs(3600)));
        assert!(member.takes_a_word(Nanos(1)), "a period has passed");
    }

    #[test]
    fn a_node_that_is_not_believed_is_not_believed_what_was_either() {
        let dir = tempfile::tempdir().unwrap();
        let hall = hall_by(dir.path(), Nanos::from_millis(50));
        let names = ["a", "b", "c", "liar"];
        for name in names {
            let heard = Heard::default();
            hall.inner().remember(name.to_owned(), heard, None);
        }
        let mut arms = [again(0).arm; 4];
        let mut sequence = 0;
        let is_suspect = |hall: &Hall| {
            let inner = hall.inner();
            inner.council.is_suspect(inner.members["liar"].id)
        };
        // All within a round, as often as that takes.
        while !is_suspect(&hall) {
            assert!(sequence < 100_000, "it lies in every round");
            sequence += 1;
            for (name, arm) in names.iter().zip(&mut arms) {
                let mut said = again(sequence);
                (said.again, said.arm) = (false, *arm);
                if *name == "liar" {
                    said.observation.served = 1 << 40;
                }
                *arm = hall.announced(name, said).expect("it is answered").arm;
            }
        }
        for name in ["liar", "a"] {
            hall.left(name);
            let mut inner = hall.inner();
            inner.members.get_mut(name).unwrap().late_left = LATE_MAX;
        }
        let before = late(&hall);
        hall.announced("liar", again(sequence + 1));
        assert_eq!(late(&hall), before);
        hall.announced("a", again(sequence + 1));
        assert_eq!(late(&hall), before + 1);
    }

    #[test]
    fn a_node_with_another_period_is_warned_of_once() {
        let dir = tempfile::tempdir().unwrap();
        let hall = hall(dir.path());
        let mut inner = hall.inner();
        inner.remember("io1".to_owned(), Heard::default(), None);
        let member = inner.members.get_mut("io1").unwrap();
        let mut warnings = |periods_ms: &[u64]| {
            let warned = periods_ms.iter().filter(|ms| {
                member.is_to_be_warned_of(Nanos::from_millis(**ms), Nanos::from_secs(1))
            });
            (warned.count(), member.has_other_period())
        };
        assert_eq!(warnings(&[1000, 900, 1100, 1400, 700]), (0, false));
        assert_eq!(warnings(&[5000, 300, 1000]), (0, false), "a busy moment");
        assert_eq!(warnings(&[5000, 5000, 5000, 5000]), (1, true));
        assert_eq!(warnings(&[1000, 250, 250, 250]), (0, true), "it was said");
    }
}
