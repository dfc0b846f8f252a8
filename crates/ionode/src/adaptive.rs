//! `--policy adaptive`: learns, while the node runs, which policy and which TWINS window suit what arrives.
//!
//! A period, from its beginning to the next:
//!
//! 1. The engine tells under its lock of each request that comes and that waits no longer ([`Watch`]), and counts bytes and busy time.
//! 2. When the period is over, what was seen and served is an [`Observation`]. It teaches the node's own tuner, and is
//!    announced to the council if there is one.
//! 3. The council's answer comes some milliseconds later and is carried out then. Without an answer for [`ALONE_AFTER`]
//!    periods, or without a council, the node's own tuner decides.
//! 4. After a switch the old policy runs dry. That time counts for neither: what is measured begins a while later. The first period
//!    does not count either, unless it was a disaster: clients that wait for their answers come in step, or out of it, by what was in
//!    force before, and an arm would be judged by what the last one left behind. A node that decides alone keeps the arm meanwhile.
//! 5. Within a period the node glances at what arrives. When that is not what it was (another operation, other sizes), the
//!    period would tell of two workloads: a short one begins at once, and its end is the decision.
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
    Alone, Arm, Candidate, Choice, Context, Detector, Observation, REQUESTS_MIN, Tuner,
    TunerSettings, WarmStart, Watch, Why,
};
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Periods without an answer after which a node decides alone.
pub const ALONE_AFTER: u64 = 3;

/// The share of a period for which nothing is measured after a switch.
const SETTLES: f64 = 0.1;

/// The share of a period that has to be measured for it to count.
const COUNTS: f64 = 0.5;

/// The first period of an arm counts if it gave less than this share of what the period before gave: clients that are out of step for a
/// while do not explain that, and there is no need to see more.
const DISASTER: f64 = 0.25;

/// The share of a period after which what arrives is glanced at, and the length of one that begins because of that.
const GLANCES: f64 = 0.125;
const SHORT: f64 = 0.25;

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
    glance: Glance,
    /// Makes a pattern of it, if somebody wants that.
    patterns: Option<presagio_pattern::Recorder>,
}

/// Requests since the last glance, and their bytes: by operation.
#[derive(Clone, Copy, Default)]
struct Glance {
    requests: [u64; 2],
    bytes: [u64; 2],
}

/// What a glance tells: the operation of most requests, and the power of two of their size.
type Look = (usize, u32);

impl Glance {
    /// None if too little arrived.
    fn look(&self) -> Option<Look> {
        let op = usize::from(self.requests[1] > self.requests[0]);
        let size = self.bytes[op].checked_div(self.requests[op])?;
        (self.requests[op] >= REQUESTS_MIN).then(|| (op, size.max(1).ilog2()))
    }
}

/// Tells of what arrives.
struct Watcher(Arc<Mutex<Eyes>>);

impl Recorder for Watcher {
    fn arrival(&mut self, request: &Request) {
        // Held by nobody but for the end of a period.
        let mut eyes = lock(&self.0);
        eyes.watch.arrived(request);
        let op = request.op.index();
        eyes.glance.requests[op] += 1;
        eyes.glance.bytes[op] += request.range.len();
        if let Some(patterns) = &mut eyes.patterns {
            patterns.observe(request.file, request.op, request.range);
        }
    }

    fn departure(&mut self, request: &Request) {
        lock(&self.0).watch.departed(request);
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
        Box::new(Watcher(self.watch.clone()))
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
    let mut pulse = Pulse::new(adaptive, node);
    loop {
        let mut waits = vec![PollFd::new(ending, PollFlags::IN)];
        if let Some(client) = &adaptive.client {
            waits.push(PollFd::from_borrowed_fd(client.came(), PollFlags::IN));
        }
        let timeout = pulse.next().saturating_duration_since(Instant::now());
        let timeout = rustix::time::Timespec::try_from(timeout).ok();
        let _ = poll(&mut waits, timeout.as_ref());
        if !waits[0].revents().is_empty() {
            return;
        }
        pulse.beat();
    }
}

/// A node's periods.
struct Pulse<'a> {
    adaptive: &'a Adaptive,
    node: &'a Shared,
    /// When this period is over.
    until: Instant,
    /// From when on it is measured, if that is still to come.
    settles: Option<Instant>,
    /// From when on it was measured, and what was done before.
    begun: Instant,
    before: Done,
    /// How often the settings had changed then.
    settings: u64,
    /// Whether nothing came between the last two glances.
    is_still: bool,
    /// Whether what is in force was not in force in the period before, and what that gave by busy second.
    is_first: bool,
    reward: Option<f64>,
    /// When to glance next, and what was seen when the workload was last known.
    glances: Instant,
    known: Option<Look>,
    /// Whether this period was begun because the workload changed.
    is_short: bool,
    /// Whether the next change begins one: a whole period is due between two, or what always changes would never be judged.
    may_cut: bool,
    /// Announcements count from 1.
    sequence: u64,
    /// The last one that was answered.
    answered: u64,
    /// What takes the place of that which makes a pattern, while that does.
    spare: Option<presagio_pattern::Recorder>,
}

impl<'a> Pulse<'a> {
    fn new(adaptive: &'a Adaptive, node: &'a Shared) -> Pulse<'a> {
        let now = Instant::now();
        let patterns = || presagio_pattern::Recorder::new(&Settings::ours());
        lock(&adaptive.watch).patterns = adaptive.wants_patterns().then(patterns);
        Pulse {
            adaptive,
            node,
            until: now + adaptive.period,
            settles: None,
            begun: now,
            before: node.data.engine().done(),
            settings: node.settings_changed(),
            is_still: true,
            is_first: false,
            reward: None,
            glances: now + adaptive.period.mul_f64(GLANCES),
            known: None,
            is_short: false,
            may_cut: true,
            sequence: 0,
            answered: 0,
            spare: None,
        }
    }

    /// When there is something to do.
    fn next(&self) -> Instant {
        let settles = self.settles.unwrap_or(self.until);
        settles.min(self.until).min(self.glances)
    }

    fn beat(&mut self) {
        self.listen();
        let now = Instant::now();
        if now >= self.until {
            self.end(now);
        } else if self.settles.is_some_and(|moment| now >= moment) {
            self.begin(now);
        }
        if now >= self.glances {
            self.glance(now);
        }
    }

    /// Is this still the same workload?
    fn glance(&mut self, now: Instant) {
        self.glances = now + self.adaptive.period.mul_f64(GLANCES);
        let glance = std::mem::take(&mut lock(&self.adaptive.watch).glance);
        self.is_still = glance.requests == [0; 2];
        let Some(look) = glance.look() else { return };
        let before = self.known.replace(look);
        if before.is_none_or(|before| before == look) || !self.may_cut {
            return;
        }
        self.begin(now);
        // What came of another workload says nothing about this one.
        (self.is_first, self.reward) = (false, None);
        self.until = now + self.adaptive.period.mul_f64(SHORT);
        (self.is_short, self.may_cut) = (true, false);
    }

    /// From now on it counts; the pattern of what came before.
    fn begin(&mut self, now: Instant) -> Option<Pattern> {
        self.settles = None;
        self.begun = now;
        self.before = self.node.data.engine().done();
        self.settings = self.node.settings_changed();
        lock(&self.adaptive.watch).watch.end_period();
        self.end_pattern()
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
        self.carry_out(said, &[]);
    }

    /// A period is over.
    fn end(&mut self, now: Instant) {
        let (seen, whole) = self.observe(now);
        let is_telling = self.is_telling(&seen);
        let realised = whole.filter(|_| is_telling);
        let may_decide = is_telling && !self.is_quiet();
        let in_force = self.node.arm();
        self.until += self.adaptive.period;
        self.may_cut |= !std::mem::take(&mut self.is_short);
        if self.until <= now {
            // The machine was asleep, or far too busy.
            self.until = now + self.adaptive.period;
        }
        let pattern = self.begin(now);
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
        let is_alone =
            self.adaptive.client.is_none() || self.answered + ALONE_AFTER < self.sequence;
        let choosing = is_alone.then_some(may_decide);
        let arms = (whole, realised, in_force);
        let (context, choice) = self.learn((&seen, pattern), arms, choosing);
        if let Some(context) = context {
            let view = &self.node.view;
            view.entered(self.node, context, choice.arm, &choice.why);
        }
        if is_alone {
            self.adaptive.alone.fetch_add(1, Relaxed);
            let said = Said {
                arm: choice.arm,
                context: context.map(|it| it.to_string()).unwrap_or_default(),
                why: choice.why.to_string(),
                by: "node",
                explores: explores(choice.why),
                seen: Some(seen),
            };
            self.carry_out(said, &choice.candidates);
        }
    }

    /// What was seen and served, and what was in force for all of it.
    fn observe(&self, now: Instant) -> (Observation, Option<Arm>) {
        let node = self.node;
        let measured = now.saturating_duration_since(self.begun);
        let done = node.data.engine().done().since(self.before);
        let connections = node.connections();
        let seen = Observation {
            period: Nanos::from(measured),
            busy: done.busy,
            served: done.bytes.iter().sum(),
            servers: node.export.storage().servers(),
            clients: node.guests.machines(connections) as u32,
            // All of them: how many came in a period depends on what was in force, and what is tried must not choose the situation
            // in which it is judged.
            processes: connections as u32,
            arrived: lock(&self.adaptive.watch).watch.end_period(),
        };
        let is_settled = self.settles.is_none()
            && self.settings == node.settings_changed()
            && measured >= self.adaptive.period.mul_f64(COUNTS);
        (seen, is_settled.then(|| node.arm()))
    }

    /// Whether whoever asked has stopped: to try something would leave it in force for what comes after the pause.
    fn is_quiet(&self) -> bool {
        let engine = self.node.data.engine();
        let came = lock(&self.adaptive.watch).glance.requests;
        self.is_still && came == [0; 2] && engine.queued() + engine.in_flight() == 0
    }

    /// Whether a period says what its arm is worth, and not what was in force before.
    fn is_telling(&mut self, seen: &Observation) -> bool {
        let is_first = std::mem::take(&mut self.is_first);
        let before = std::mem::replace(&mut self.reward, seen.reward());
        let both = before.zip(self.reward);
        !is_first || both.is_some_and(|(before, now)| now < DISASTER * before)
    }

    /// Teaches the node's own tuner, whoever decides: the node, if it is `choosing`, and then it may be that nothing is to be
    /// decided. The arms are what was in force in the whole period, the same if that is to be learned from, and what is now.
    fn learn(
        &self,
        (seen, pattern): (&Observation, Option<Pattern>),
        (whole, realised, in_force): (Option<Arm>, Option<Arm>, Arm),
        choosing: Option<bool>,
    ) -> (Option<Context>, Choice) {
        let mut books = lock(&self.adaptive.books);
        let books = &mut *books;
        let alone = &mut books.alone;
        let (context, choice) = match choosing {
            Some(false) => alone.wait_with(seen, pattern, in_force),
            _ => alone.decide_with(seen, pattern, realised, in_force),
        };
        if let Some(keeper) = &books.keeper {
            keeper.keep_learned(alone.learned_mut(), BTreeMap::new());
        }
        if let Some(log) = books.log.as_mut().filter(|_| choosing.is_some()) {
            log.add(&explanation(
                &self.node.config.name,
                seen,
                whole,
                context,
                &choice,
            ));
            log.flush();
        }
        (context, choice)
    }

    /// Switches, unless somebody said by hand what to do.
    fn carry_out(&mut self, said: Said, candidates: &[Candidate]) {
        let adaptive = self.adaptive;
        let before = self.node.arm();
        self.node.view.said(self.node, before, &said, candidates);
        adaptive.decisions.fetch_add(1, Relaxed);
        *lock(&adaptive.last) = Some(said.clone());
        let is_on = adaptive.is_on();
        if !*is_on || said.arm == self.node.arm() {
            return;
        }
        match self.node.set_arm(said.arm) {
            Ok(()) => {
                adaptive.changes.fetch_add(1, Relaxed);
                self.settles = Some(Instant::now() + adaptive.period.mul_f64(SETTLES));
                self.is_first = true;
                let Said {
                    arm,
                    by,
                    why,
                    context,
                    ..
                } = said;
                tracing::info!("{arm}, chosen by the {by}: {why}; {context}");
            }
            Err(error) => {
                let error: &SettingsError = &error;
                tracing::warn!("{} was chosen and cannot be used: {error}", said.arm);
            }
        }
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
    seen: &Observation,
    whole: Option<Arm>,
    context: Option<Context>,
    choice: &Choice,
) -> Value {
    let mut evidence = observed(seen);
    evidence["in_force"] = whole.map(|arm| arm.to_string()).into();
    evidence["bytes_per_busy_s"] = seen.reward().into();
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
    fn only_what_was_announced_lately_is_answered() {
        let answered: Vec<u64> = (0..9).filter(|decided| answers(*decided, 5)).collect();
        assert_eq!(answered, [4, 5]);
        assert!(!answers(u64::MAX, 5) && answers(0, 0));
    }

    #[test]
    fn a_glance_tells_operation_and_size_of_what_arrives() {
        let eyes = Arc::<Mutex<Eyes>>::default();
        let mut watcher = Watcher(eyes.clone());
        let mut arrive = |op: Op, size: u64, count: u64| {
            for at in 0..count {
                let range = Range::at(at * size, size);
                watcher.arrival(&Request::new(RequestId(at), FileId(1), op, range));
            }
            std::mem::take(&mut lock(&eyes).glance).look()
        };
        assert_eq!(arrive(Op::Read, 4096, REQUESTS_MIN - 1), None);
        assert_eq!(arrive(Op::Read, 4096, REQUESTS_MIN), Some((0, 12)));
        assert_eq!(arrive(Op::Write, 5000, 100), Some((1, 12)));
        assert_eq!(arrive(Op::Write, 0, 100), Some((1, 0)));
    }
}
