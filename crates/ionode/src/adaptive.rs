//! `--policy adaptive`: learns, while the node runs, which policy and which TWINS window suit what arrives.
//!
//! [`Pulse`] says when a period begins and ends, and what it is good for. In each:
//!
//! 1. The engine tells under its lock of each request that comes and that waits no longer ([`Watch`]), and counts bytes and busy time.
//! 2. When the period is over, what was seen and served is an [`Observation`]. It teaches the node's own tuner, and is
//!    announced to the council if there is one.
//! 3. The council's answer comes some milliseconds later and is carried out then. Without an answer for [`ALONE_AFTER`]
//!    periods, or without a council, the node's own tuner decides.
//! 4. When within a period something else begins to arrive, a node that decides alone goes back at once to what was best when such came
//!    before.
//!
//! The situation is what can be counted, or, with [`AdaptiveConfig::patterns`], the pattern that the period matches. A council
//! that matches patterns says so when it listens, and gets them.
//!
//! Whoever names a policy by hand switches all this off; naming `adaptive` switches it on again. Nothing here is on the way
//! of a request but [`Watcher`].

use crate::node::Shared;
use presagio_core::{Nanos, Request};
use presagio_council::log::Log;
use presagio_council::store::{self, Keeper, Kept, StoreError};
use presagio_council::{
    Client, ClientConfig, Figures, candidates, chain, observed, restore_patterns, unix_ms, view,
    wire,
};
use presagio_dashboard::{How, Situations, Snapshot};
use presagio_engine::{Done, Recorder};
use presagio_pattern::{Pattern, Settings};
use presagio_sched::SettingsError;
use presagio_tune::{
    Alone, Arm, Arrived, Candidate, Choice, Context, Detector, Due, Ended, Evidence, Glance, Look,
    Observation, Pulse, Tuner, TunerSettings, WarmStart, Watch, Why,
};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Periods without an answer after which a node decides alone.
pub const ALONE_AFTER: u64 = 3;

/// Bytes of explanations that a node keeps.
const LOG_MAX: u64 = 64 << 20;

/// How a node learns what suits it.
#[derive(Clone, Debug)]
pub struct AdaptiveConfig {
    /// Arms, and how they are chosen.
    pub tuner: TunerSettings,
    /// What suits contexts that were never seen.
    pub warm: Option<WarmStart>,
    /// What tells accesses apart.
    pub detector: Detector,
    /// Whether contexts are patterns, and not what can be counted.
    pub patterns: bool,
    /// How often is decided.
    pub period: Duration,
    /// Where what was learned is kept; else it is forgotten when the node ends.
    pub learned: Option<PathBuf>,
    /// Who decides for several nodes.
    pub council: Option<ClientConfig>,
}

/// A node cannot learn.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdaptiveError {
    /// Not from its store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The directory of its store cannot be made.
    #[error("what is learned cannot be kept in {}: {error}", path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The system does not let it.
    #[error("what was decided cannot be explained, nor the council be asked: {0}")]
    System(#[from] io::Error),
}

/// What a node that adapts keeps. See the module's header.
pub struct Adaptive {
    watch: Arc<Mutex<Eyes>>,
    /// Rings when something else arrives than before.
    bell: Arc<OwnedFd>,
    period: Duration,
    /// Held while something is switched, so that a decision does not come after an order.
    is_on: Mutex<bool>,
    client: Option<Client>,
    books: Mutex<Books>,
    /// Whether this node's own contexts are patterns.
    has_patterns: bool,
    last: Mutex<Option<Said>>,
    /// Periods for which something was decided.
    pub decisions: AtomicU64,
    /// Times that something was switched.
    pub changes: AtomicU64,
    /// Decisions of the node itself.
    pub alone: AtomicU64,
}

/// What was learned, and where it is kept.
struct Books {
    alone: Alone,
    keeper: Option<Keeper>,
    log: Option<Log>,
}

/// What was decided last.
#[derive(Clone, Debug)]
pub struct Said {
    /// What is to be done.
    pub arm: Arm,
    /// In which situation.
    pub context: String,
    /// Why.
    pub why: String,
    /// Who said so: the council, or the node.
    pub by: &'static str,
    /// Whether it is tried rather than believed to be best.
    pub explores: bool,
    /// What was seen in the period before.
    pub seen: Option<Observation>,
}

/// What arrives.
#[derive(Default)]
struct Eyes {
    watch: Watch,
    /// Makes a pattern of it, if somebody wants that.
    patterns: Option<presagio_pattern::Recorder>,
    /// Whether to ring when something else arrives than before.
    rings: bool,
}

/// Tells of what arrives.
struct Watcher {
    eyes: Arc<Mutex<Eyes>>,
    bell: Arc<OwnedFd>,
}

impl Recorder for Watcher {
    fn arrival(&mut self, request: &Request) {
        // Held by nobody for long.
        let mut eyes = lock(&self.eyes);
        if eyes.watch.arrived(request) && std::mem::take(&mut eyes.rings) {
            // It can be full only if nobody has listened since.
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
        if let Some(patterns) = &mut eyes.patterns {
            patterns.observe(request.file, request.op, request.range);
        }
    }

    fn departure(&mut self, request: &Request) {
        lock(&self.eyes).watch.departed(request);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is learned may be the first thing that is kept there.
fn make_directory_of(path: &Path) -> Result<(), AdaptiveError> {
    let Some(directory) = path.parent() else {
        return Ok(());
    };
    std::fs::create_dir_all(directory).map_err(|error| AdaptiveError::Directory {
        path: directory.to_owned(),
        error,
    })
}

impl Adaptive {
    /// Opens what was learned before, and the line to the council.
    pub fn new(config: AdaptiveConfig) -> Result<Adaptive, AdaptiveError> {
        let mut tuner = Tuner::new(config.tuner);
        if let Some(warm) = config.warm {
            tuner = tuner.warmed(warm);
        }
        let (mut keeper, mut log, mut kept) = (None, None, Kept::default());
        if let Some(path) = &config.learned {
            make_directory_of(path)?;
            let (opened, found) = store::open(path)?;
            presagio_council::restore(&mut tuner, &found);
            (keeper, kept) = (Some(opened), found);
            log = Some(Log::open(&presagio_council::log::beside(path), LOG_MAX)?);
        }
        let known = config.patterns.then(|| restore_patterns(&mut tuner, &kept));
        let mut alone = Alone::new(tuner, config.detector);
        if let Some(known) = known {
            alone = alone.matching(known);
        }
        Ok(Adaptive {
            watch: Arc::default(),
            bell: Arc::new(
                eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                    .map_err(io::Error::from)?,
            ),
            period: config.period,
            is_on: Mutex::new(true),
            client: config.council.map(Client::start).transpose()?,
            books: Mutex::new(Books { alone, keeper, log }),
            has_patterns: config.patterns,
            last: Mutex::new(None),
            decisions: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            alone: AtomicU64::new(0),
        })
    }

    /// Who has to be told of arrivals.
    pub fn watcher(&self) -> Box<dyn Recorder> {
        Box::new(Watcher {
            eyes: self.watch.clone(),
            bell: self.bell.clone(),
        })
    }

    /// Whether decisions are carried out. While it is held, none is.
    pub fn is_on(&self) -> MutexGuard<'_, bool> {
        lock(&self.is_on)
    }

    /// What was decided last.
    pub fn last(&self) -> Option<Said> {
        lock(&self.last).clone()
    }

    /// For whoever asks what the node does.
    pub fn status(&self) -> Value {
        let last = self.last().map(|said| {
            json!({
                "arm": said.arm.to_string(),
                "context": said.context,
                "why": said.why,
                "by": said.by,
                "explores": said.explores,
                "seen": said.seen.as_ref().map(observed),
                "bytes_per_busy_s": said.seen.and_then(|seen| seen.reward()),
            })
        });
        let council = self.client.as_ref().map(|client| {
            let line = client.state();
            json!({
                "address": client.council().to_string(),
                "connected": line.connected,
                "trouble": line.trouble,
                "announced": line.sent,
                "decisions": line.decisions,
                "unkept": line.unkept,
            })
        });
        let patterns = {
            let books = lock(&self.books);
            let (known, pattern) = (books.alone.known(), books.alone.pattern());
            let next = pattern.and_then(|id| known?.after(id));
            known.map(|known| {
                json!({
                    "known": known.len(),
                    "last": pattern.map(|it| it.0),
                    "next": next.map(|it| json!({ "pattern": it.id.0, "probability": it.probability })),
                })
            })
        };
        json!({
            "patterns": patterns,
            "on": *self.is_on(),
            "decisions": self.decisions.load(Relaxed),
            "changes": self.changes.load(Relaxed),
            "alone": self.alone.load(Relaxed),
            "contexts": lock(&self.books).alone.tuner().len(),
            "council": council,
            "last": last,
        })
    }

    /// The patterns that this node knows by itself, and what follows what; nothing where its contexts are none.
    pub fn patterns(&self) -> Value {
        let books = lock(&self.books);
        let known = books.alone.known();
        known.map_or(Value::Null, |known| chain(known, books.alone.tuner()))
    }

    /// Whether somebody wants patterns: the node itself, or the council.
    fn wants_patterns(&self) -> bool {
        let client = self.client.as_ref();
        self.has_patterns || client.is_some_and(|client| client.state().patterns)
    }

    /// Puts what was learned into a snapshot.
    pub fn shown(&self, snapshot: &mut Snapshot, situations: &Situations<Context>) {
        let books = lock(&self.books);
        let tuner = books.alone.tuner();
        snapshot.how = How {
            period_s: Some(self.period.as_secs_f64()),
            ..view::how(tuner)
        };
        snapshot.totals.contexts = tuner.len() as u64;
        snapshot.patterns = books.alone.known().map(view::patterns);
        view::known(snapshot, tuner, situations);
    }

    /// Shows the council what the node does now.
    pub fn show(&self, figures: Figures) {
        if let Some(client) = &self.client {
            client.show(figures);
        }
    }

    /// Whether the council listens; none if there is none to listen.
    pub fn is_heard(&self) -> Option<bool> {
        self.client.as_ref().map(|client| client.state().connected)
    }
}

/// Decides until the node ends.
pub fn run(adaptive: &Adaptive, node: &Shared, ending: &OwnedFd) {
    let mut periods = Periods::new(adaptive, node);
    loop {
        let mut waits = vec![
            PollFd::new(ending, PollFlags::IN),
            PollFd::from_borrowed_fd(adaptive.bell.as_fd(), PollFlags::IN),
        ];
        if let Some(client) = &adaptive.client {
            waits.push(PollFd::from_borrowed_fd(client.came(), PollFlags::IN));
        }
        let timeout = periods.pulse.next().since(periods.now());
        let timeout = rustix::time::Timespec::try_from(Duration::from(timeout)).ok();
        let _ = poll(&mut waits, timeout.as_ref());
        if !waits[0].revents().is_empty() {
            return;
        }
        if !waits[1].revents().is_empty() {
            let _ = rustix::io::read(&adaptive.bell, &mut [0; 8]);
        }
        periods.beat();
    }
}

/// A node's periods.
struct Periods<'a> {
    adaptive: &'a Adaptive,
    node: &'a Shared,
    /// The node's clock for them, and when what begins and ends.
    clock: Instant,
    pulse: Pulse,
    /// What was done before this one was measured, and how often the settings had changed then.
    before: Done,
    settings: u64,
    /// Announcements count from 1.
    sequence: u64,
    /// The last one that was answered.
    answered: u64,
    /// What takes the place of that which makes a pattern, while that does.
    spare: Option<presagio_pattern::Recorder>,
}

impl<'a> Periods<'a> {
    fn new(adaptive: &'a Adaptive, node: &'a Shared) -> Periods<'a> {
        let patterns = || presagio_pattern::Recorder::new(&Settings::ours());
        lock(&adaptive.watch).patterns = adaptive.wants_patterns().then(patterns);
        Periods {
            adaptive,
            node,
            clock: Instant::now(),
            pulse: Pulse::new(adaptive.period.into(), Nanos::ZERO),
            before: node.data.engine().done(),
            settings: node.settings_changed(),
            sequence: 0,
            answered: 0,
            spare: None,
        }
    }

    fn now(&self) -> Nanos {
        self.clock.elapsed().into()
    }

    fn beat(&mut self) {
        self.listen();
        let now = self.now();
        match self.pulse.due(now) {
            Due::Ended => self.end(now),
            Due::Settled => {
                self.pulse.begin(self.glance(), now);
                self.begin();
            }
            Due::Nothing => {}
        }
        let glance = {
            let mut eyes = lock(&self.adaptive.watch);
            eyes.rings = self.pulse.may_cut();
            eyes.watch.glance()
        };
        if let Some(look) = self.pulse.glance(glance, now) {
            self.begin();
            self.resume(look);
        }
    }

    fn glance(&self) -> Glance {
        lock(&self.adaptive.watch).watch.glance()
    }

    /// Whether the node decides by itself: nobody else does, or answers.
    fn is_alone(&self) -> bool {
        self.adaptive.client.is_none() || self.answered + ALONE_AFTER < self.sequence
    }

    /// Something else arrives now.
    fn resume(&mut self, look: Look) {
        // Whoever decides: what was in force since the last workload began is not in force since this one did.
        let known = lock(&self.adaptive.books).alone.begins(look);
        if !*self.adaptive.is_on() || !self.is_alone() {
            return;
        }
        let Some(arm) = known else { return };
        self.pulse.switched(self.now());
        if arm == self.node.arm() {
            return;
        }
        let choice = Choice {
            arm,
            why: Why::Returns,
            candidates: Vec::new(),
        };
        self.adaptive.alone.fetch_add(1, Relaxed);
        self.explain(None, None, &choice);
        let seen = lock(&self.adaptive.last).as_ref().and_then(|it| it.seen);
        self.carry_out(said_by_node(None, &choice, seen), &[]);
    }

    /// From now on it counts; what came before.
    fn begin(&mut self) -> (Option<Arrived>, Option<Pattern>) {
        self.before = self.node.data.engine().done();
        self.settings = self.node.settings_changed();
        let arrived = lock(&self.adaptive.watch).watch.end_period();
        (arrived, self.end_pattern())
    }

    /// The pattern of what came until now, if somebody wants it. It is made while others go on.
    fn end_pattern(&mut self) -> Option<Pattern> {
        if !self.adaptive.wants_patterns() {
            self.spare = None;
            lock(&self.adaptive.watch).patterns = None;
            return None;
        }
        let fresh = self.spare.take();
        let fresh = fresh.unwrap_or_else(|| presagio_pattern::Recorder::new(&Settings::ours()));
        self.spare = lock(&self.adaptive.watch).patterns.replace(fresh);
        self.spare
            .as_mut()
            .and_then(presagio_pattern::Recorder::end)
    }

    /// Carries out what the council has decided, if that answers what was announced lately.
    fn listen(&mut self) {
        let decision = self.adaptive.client.as_ref().and_then(Client::take);
        let Some(decision) = decision else { return };
        if !answers(decision.sequence, self.sequence) {
            return;
        }
        self.answered = decision.sequence;
        let said = Said {
            arm: decision.arm,
            context: decision.context,
            why: decision.why,
            by: "council",
            explores: decision.explores,
            seen: lock(&self.adaptive.last).as_ref().and_then(|it| it.seen),
        };
        if self.carry_out(said, &[]) {
            self.pulse.switched(self.now());
        }
    }

    /// A period is over, unless it goes on.
    fn end(&mut self, now: Nanos) {
        let engine = self.node.data.engine();
        let seen = self.observe(now);
        let ended = Ended {
            reward: seen.reward(),
            glance: self.glance(),
            is_waiting: engine.queued() + engine.in_flight() > 0,
            is_unchanged: self.settings == self.node.settings_changed(),
        };
        let Some(worth) = self.pulse.end(ended, now) else {
            return;
        };
        let in_force = self.node.arm();
        let whole = worth.is_whole.then_some(in_force);
        let realised = whole.filter(|_| worth.is_telling);
        let (arrived, pattern) = self.begin();
        let seen = Observation { arrived, ..seen };
        self.sequence += 1;
        if let Some(client) = &self.adaptive.client {
            client.announce(wire::Announcement {
                sequence: self.sequence,
                arm: in_force,
                settled: realised.is_some(),
                again: false,
                observation: seen,
                pattern: pattern.clone().filter(|_| client.state().patterns),
            });
        }
        if let Some(said) = lock(&self.adaptive.last).as_mut() {
            said.seen = Some(seen);
        }
        let is_alone = self.is_alone();
        let (context, evidence, choice) = self.learn(
            (&seen, pattern),
            realised,
            in_force,
            is_alone && worth.may_choose,
        );
        if let Some(context) = context {
            let view = &self.node.view;
            view.entered(self.node, context, choice.arm, &choice.why);
        }
        if is_alone {
            self.adaptive.alone.fetch_add(1, Relaxed);
            // An idle node has nothing to explain.
            if seen.served > 0 || seen.arrived.is_some() || choice.arm != in_force {
                self.explain(context, Some((&seen, whole, evidence)), &choice);
            }
            let said = said_by_node(context, &choice, Some(seen));
            if self.carry_out(said, &choice.candidates) {
                self.pulse.switched(self.now());
            }
        }
    }

    /// What was served and by whom; what arrived is told when the period is over.
    fn observe(&self, now: Nanos) -> Observation {
        let node = self.node;
        let done = node.data.engine().done().since(self.before);
        let connections = node.connections();
        Observation {
            period: self.pulse.measured(now),
            busy: done.busy,
            served: done.bytes.iter().sum(),
            servers: node.export.storage().servers(),
            clients: node.guests.machines(connections) as u32,
            // All of them: how many came in a period depends on what was in force, and what is tried must not choose the situation
            // in which it is judged.
            processes: connections as u32,
            arrived: None,
        }
    }

    /// Teaches the node's own tuner, whoever decides, and asks it what to do if it `chooses`. The arms are what was in force in all that
    /// is to be learned from, and what is now.
    fn learn(
        &self,
        (seen, pattern): (&Observation, Option<Pattern>),
        realised: Option<Arm>,
        in_force: Arm,
        chooses: bool,
    ) -> (Option<Context>, Evidence, Choice) {
        let mut books = lock(&self.adaptive.books);
        let books = &mut *books;
        let alone = &mut books.alone;
        let (context, evidence) = alone.hear(seen, pattern, realised);
        let choice = match chooses {
            true => alone.choose(context.as_ref(), self.pulse.look(), in_force),
            false => alone.stay(context.as_ref(), in_force),
        };
        if let Some(keeper) = &books.keeper {
            keeper.keep_learned(alone.learned_mut(), BTreeMap::new());
        }
        (context, evidence, choice)
    }

    /// Writes down why the node decides so: what was seen in the period, if one is over, what was in force in all of it, and whether
    /// that was learned from.
    fn explain(
        &self,
        context: Option<Context>,
        period: Option<(&Observation, Option<Arm>, Evidence)>,
        choice: &Choice,
    ) {
        let mut books = lock(&self.adaptive.books);
        let Some(log) = &mut books.log else { return };
        let evidence = period.map(|(seen, whole, learned)| {
            let mut evidence = observed(seen);
            evidence["in_force"] = whole.map(|arm| arm.to_string()).into();
            evidence["bytes_per_busy_s"] = seen.reward().into();
            evidence["learned"] = learned.to_string().into();
            evidence
        });
        log.add(&explanation(
            &self.node.config.name,
            context,
            evidence,
            choice,
        ));
        log.flush();
    }

    /// Switches, unless somebody said by hand what to do; says whether it did.
    fn carry_out(&mut self, said: Said, candidates: &[Candidate]) -> bool {
        let adaptive = self.adaptive;
        let before = self.node.arm();
        self.node.view.said(self.node, before, &said, candidates);
        adaptive.decisions.fetch_add(1, Relaxed);
        *lock(&adaptive.last) = Some(said.clone());
        let is_on = adaptive.is_on();
        if !*is_on || said.arm == self.node.arm() {
            return false;
        }
        if let Err(error) = self.node.set_arm(said.arm) {
            let error: &SettingsError = &error;
            tracing::warn!("{} was chosen and cannot be used: {error}", said.arm);
            return false;
        }
        adaptive.changes.fetch_add(1, Relaxed);
        let Said {
            arm,
            by,
            why,
            context,
            ..
        } = said;
        tracing::info!("{arm}, chosen by the {by}: {why}; {context}");
        true
    }
}

fn said_by_node(context: Option<Context>, choice: &Choice, seen: Option<Observation>) -> Said {
    Said {
        arm: choice.arm,
        context: context.map(|it| it.to_string()).unwrap_or_default(),
        why: choice.why.to_string(),
        by: "node",
        explores: explores(choice.why),
        seen,
    }
}

/// Whether a decision about announcement `decided` answers the last that was made, or the one before it. One about what was never
/// announced answers nothing: believed, it would keep the node from ever deciding alone.
fn answers(decided: u64, announced: u64) -> bool {
    (announced.saturating_sub(1)..=announced).contains(&decided)
}

fn explores(why: Why) -> bool {
    matches!(why, Why::Untried | Why::Explored)
}

/// A line of the node's own log, with the fields of the council's.
fn explanation(
    name: &str,
    context: Option<Context>,
    evidence: Option<Value>,
    choice: &Choice,
) -> Value {
    json!({
        "at": unix_ms(),
        "node": name,
        "context": context.map(|it| it.to_string()),
        "evidence": evidence,
        "candidates": candidates(&choice.candidates),
        "own": choice.arm.to_string(),
        "chosen": choice.arm.to_string(),
        "explores": explores(choice.why),
        "why": choice.why.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use presagio_core::{FileId, Op, Range, RequestId};

    #[test]
    fn something_else_that_arrives_rings_once_where_somebody_listens() {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("a bell");
        let (eyes, bell) = (Arc::<Mutex<Eyes>>::default(), Arc::new(bell));
        let mut watcher = Watcher {
            eyes: eyes.clone(),
            bell: bell.clone(),
        };
        let mut rang = |op: Op, listens: bool| {
            lock(&eyes).rings = listens;
            for at in 0..100 {
                let range = Range::at(at * 4096, 4096);
                watcher.arrival(&Request::new(RequestId(at), FileId(1), op, range));
            }
            let mut times = [0; 8];
            rustix::io::read(&bell, &mut times).map_or(0, |_| u64::from_ne_bytes(times))
        };
        assert_eq!(rang(Op::Read, true), 1);
        assert_eq!(rang(Op::Read, true), 0);
        assert_eq!(rang(Op::Write, true), 1);
        assert_eq!(rang(Op::Read, false), 0);
    }

    #[test]
    fn only_what_was_announced_lately_is_answered() {
        let answered: Vec<u64> = (0..9).filter(|decided| answers(*decided, 5)).collect();
        assert_eq!(answered, [4, 5]);
        assert!(!answers(u64::MAX, 5) && answers(0, 0));
    }
}
