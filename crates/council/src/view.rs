//! What the dashboard shows of a council, and of a node that decides alone: who is there, what it does, what was decided.

use crate::figures::Figures;
use crate::hall::{Unexplained, unix_ms};
use presagio_core::{Nanos, Op};
use presagio_dashboard::{
    self as dashboard, Decisions, FORMAT, History, How, Link, NodeState, Patterns, Sample, Seen,
    Situations, Snapshot, plain,
};
use presagio_pattern::{KnowledgeBase, PatternId};
use presagio_tune::{Arm, Context, Tuner};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// For how long a node that has left is shown.
const GONE_SHOWN: Duration = Duration::from_secs(60);

/// A node that is connected and says nothing for so long is silent; at least, and in periods.
const SILENT: (Duration, u32) = (Duration::from_secs(5), 4);

/// Nodes and situations of a snapshot.
const NODES_MAX: usize = 256;
const CONTEXTS_MAX: usize = 24;

/// Patterns of a snapshot, points of their shapes.
const PATTERNS_MAX: usize = 24;
const SHAPE: usize = 32;

/// Nodes that are named as being in a situation.
const NAMED: usize = 12;

/// The time for people: milliseconds since 1970, never going back.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    start_ms: u64,
}

impl Clock {
    /// Begins.
    pub fn start() -> Clock {
        Clock {
            start: Instant::now(),
            start_ms: unix_ms(),
        }
    }

    /// Now.
    pub fn now_ms(&self) -> u64 {
        self.start_ms + self.start.elapsed().as_millis() as u64
    }

    /// For how long it runs.
    pub fn up(&self) -> Duration {
        self.start.elapsed()
    }

    /// A snapshot of now that has nothing in it yet.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            format: FORMAT.to_owned(),
            presagio: env!("CARGO_PKG_VERSION").to_owned(),
            life: format!("{:x}-{:x}", self.start_ms, std::process::id()),
            at_ms: self.now_ms(),
            up_s: self.up().as_secs_f64(),
            ..Snapshot::default()
        }
    }
}

/// A node that is here, or was a short while ago.
#[derive(Clone, Default)]
pub(crate) struct Shown {
    is_here: bool,
    since_ms: u64,
    heard_ms: u64,
    arm: Option<Arm>,
    by_hand: bool,
    connections: Option<u64>,
    /// What was decided for it last.
    last: Option<Arc<Unexplained>>,
    history: History,
}

/// See the module's header.
pub(crate) struct View {
    clock: Clock,
    host: String,
    nodes: BTreeMap<String, Shown>,
    decisions: Decisions<Arc<Unexplained>>,
    situations: Situations<Context>,
}

impl View {
    pub fn new() -> View {
        View {
            clock: Clock::start(),
            host: host(),
            nodes: BTreeMap::new(),
            decisions: Decisions::default(),
            situations: Situations::default(),
        }
    }

    /// What this machine is called.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// A node is here.
    pub fn joined(&mut self, name: &str) {
        let now_ms = self.clock.now_ms();
        self.tidy(now_ms);
        let node = self.nodes.entry(name.to_owned()).or_default();
        (node.is_here, node.since_ms, node.heard_ms) = (true, now_ms, now_ms);
    }

    /// A node has left.
    pub fn left(&mut self, name: &str) {
        let now_ms = self.clock.now_ms();
        self.situations.leave(name);
        if let Some(node) = self.nodes.get_mut(name) {
            (node.is_here, node.since_ms) = (false, now_ms);
        }
        self.tidy(now_ms);
    }

    /// Drops those who left a while ago.
    fn tidy(&mut self, now_ms: u64) {
        let shown_ms = GONE_SHOWN.as_millis() as u64;
        self.nodes
            .retain(|_, node| node.is_here || node.since_ms + shown_ms > now_ms);
    }

    /// What a node does at the moment. Says whether somebody should hear of it at once.
    pub fn shown(&mut self, name: &str, figures: &Figures) -> bool {
        let now_ms = self.clock.now_ms();
        let Some(node) = self.nodes.get_mut(name) else {
            return false;
        };
        let is_news = node.arm != Some(figures.arm) || node.by_hand != figures.by_hand;
        node.heard_ms = now_ms;
        node.arm = Some(figures.arm);
        node.by_hand = figures.by_hand;
        node.connections = Some(figures.connections.into());
        if figures.span.0 > 0 {
            node.history.add(figures.sample(now_ms));
        }
        is_news
    }

    /// A decision was made.
    pub fn decided(&mut self, entry: Arc<Unexplained>) {
        let now_ms = self.clock.now_ms();
        if let Some(node) = self.nodes.get_mut(&entry.node) {
            node.heard_ms = now_ms;
            node.last = Some(entry.clone());
        }
        if let Some(context) = entry.decision.context {
            let seen = Seen {
                last_ms: now_ms,
                choice: entry.decision.own.to_string(),
                why: entry.decision.why.to_string(),
            };
            self.situations.enter(&entry.node, context, seen);
        }
        self.decisions.add(entry);
    }

    /// A snapshot of now that has nothing in it yet.
    pub fn begin(&mut self) -> Snapshot {
        let snapshot = self.clock.snapshot();
        self.tidy(snapshot.at_ms);
        snapshot
    }

    /// What counts in sums of some nodes, in the order of names from the one after this on.
    pub fn sums_after(&self, last: Option<&str>, count: usize) -> Vec<(String, Sum)> {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        let nodes = self.nodes.range::<str, _>((from, Bound::Unbounded));
        let sum = |(name, node): (&String, &Shown)| {
            let (is_here, heard_ms, now) = (node.is_here, node.heard_ms, node.history.last());
            let sum = Sum {
                is_here,
                heard_ms,
                now,
            };
            (name.clone(), sum)
        };
        nodes.take(count).map(sum).collect()
    }

    /// All of some nodes, as far as they are still there.
    pub fn copied(&self, names: &[String]) -> Vec<(String, Shown)> {
        let copied = |name: &String| Some((name.clone(), self.nodes.get(name)?.clone()));
        names.iter().filter_map(copied).collect()
    }

    /// What was decided lately. Texts are made of it when it is listed.
    pub fn decisions(&self) -> Decisions<Arc<Unexplained>> {
        self.decisions.clone()
    }

    /// The situations that were seen lately.
    pub fn situations(&self) -> &Situations<Context> {
        &self.situations
    }
}

/// What counts in sums of a node.
pub(crate) struct Sum {
    is_here: bool,
    heard_ms: u64,
    now: Option<Sample>,
}

/// Adds up what nodes do, and says which of them are shown: those that are here come first where not all can be.
pub(crate) fn chosen(
    snapshot: &mut Snapshot,
    all: Vec<(String, Sum)>,
    period: Nanos,
) -> Vec<String> {
    let now_ms = snapshot.at_ms;
    let counted = |(_, sum): &(String, Sum)| dashboard::Node {
        state: state(sum.is_here, sum.heard_ms, now_ms, period),
        now: sum.now,
        ..dashboard::Node::default()
    };
    let counted: Vec<dashboard::Node> = all.iter().map(counted).collect();
    snapshot.totals.add_up(&counted);
    snapshot.nodes_left_out = all.len().saturating_sub(NODES_MAX) as u64;
    let (here, gone): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, sum)| sum.is_here);
    let names = here.into_iter().chain(gone).map(|(name, _)| name);
    names.take(NODES_MAX).collect()
}

fn state(is_here: bool, heard_ms: u64, now_ms: u64, period: Nanos) -> NodeState {
    let silent = SILENT.0.max(Duration::from_nanos(period.0) * SILENT.1);
    match is_here {
        false => NodeState::Gone,
        true if heard_ms + (silent.as_millis() as u64) < now_ms => NodeState::Silent,
        true => NodeState::Here,
    }
}

impl Shown {
    /// For people.
    pub fn node(&self, name: &str, now_ms: u64, period: Nanos) -> dashboard::Node {
        let last = self.last.as_ref();
        dashboard::Node {
            name: plain(name),
            state: state(self.is_here, self.heard_ms, now_ms, period),
            since_ms: self.since_ms,
            policy: self.arm.map(|arm| arm.policy.to_string()),
            window_us: self.arm.and_then(window_us),
            by: if self.by_hand { "person" } else { "council" }.to_owned(),
            explores: !self.by_hand && last.is_some_and(|it| it.explores()),
            context: last.and_then(|it| Some(it.decision.context?.to_string())),
            why: last.map(|it| it.decision.reason()),
            connections: self.connections,
            council: Some(self.is_here),
            now: self.history.last(),
            recent: self.history.list(),
        }
    }
}

/// What this machine is called, as harmless text.
pub fn host() -> String {
    plain(&rustix::system::uname().nodename().to_string_lossy())
}

/// TWINS's window in microseconds.
pub fn window_us(arm: Arm) -> Option<f64> {
    arm.window.map(|window| window.0 as f64 / 1e3)
}

/// How a tuner chooses, and from what.
pub fn how(tuner: &Tuner) -> How {
    let settings = tuner.settings();
    How {
        decides: "learned".to_owned(),
        strategy: Some(settings.strategy.to_string()),
        arms: settings.arms.list().iter().map(Arm::to_string).collect(),
        ..How::default()
    }
}

/// Puts what is known of situations into a snapshot.
pub fn known(snapshot: &mut Snapshot, tuner: &Tuner, situations: &Situations<Context>) {
    let steps = tuner.contexts();
    let steps = steps.map(|(context, bandit)| (bandit.steps(), *context));
    let wanted = Wanted::of(situations, steps.collect());
    let looked = wanted.list.iter();
    let looked = looked.map(|(context, seen)| Looked::at(tuner, situations, *context, seen));
    let looked = looked.collect();
    wanted.show(looked, snapshot);
}

/// The situations that are shown: those that were seen lately, and as many of the others, by how well they are known, as there is
/// room for.
pub(crate) struct Wanted {
    pub list: Vec<(Context, Option<Seen>)>,
    /// How often one followed the other.
    links: Vec<(Context, Context, u64)>,
    left_out: u64,
}

impl Wanted {
    /// Of all situations, with how well each is known.
    pub fn of(situations: &Situations<Context>, mut all: Vec<(u32, Context)>) -> Wanted {
        let seen = situations.list().into_iter().take(CONTEXTS_MAX);
        let seen = seen.map(|(context, seen)| (context, Some(seen)));
        let mut list: Vec<(Context, Option<Seen>)> = seen.collect();
        let there: BTreeSet<Context> = list.iter().map(|(context, _)| *context).collect();
        all.retain(|(_, context)| !there.contains(context));
        let room = CONTEXTS_MAX - list.len();
        let left_out = all.len().saturating_sub(room) as u64;
        if left_out > 0 {
            all.select_nth_unstable_by_key(room, |(steps, _)| std::cmp::Reverse(*steps));
            all.truncate(room);
        }
        list.extend(all.into_iter().map(|(_, context)| (context, None)));
        let shown: BTreeSet<Context> = list.iter().map(|(context, _)| *context).collect();
        let is_shown =
            |(from, to, _): &(Context, Context, u64)| shown.contains(from) && shown.contains(to);
        Wanted {
            links: situations.links().filter(is_shown).collect(),
            list,
            left_out,
        }
    }

    /// Makes texts of what was found.
    pub fn show(self, mut looked: Vec<Looked>, snapshot: &mut Snapshot) {
        let links = self.links.into_iter();
        let links = links.map(|(from, to, times)| (from.to_string(), to.to_string(), times));
        snapshot.chain = Link::all(links);
        snapshot.contexts_left_out = self.left_out;
        // In an order that does not change whenever a node goes from one to the next.
        looked.sort_by_key(|it| (std::cmp::Reverse(it.steps), it.context));
        snapshot.contexts = looked.into_iter().map(Looked::shown).collect();
    }
}

/// What is known of a situation, before texts are made of it.
pub(crate) struct Looked {
    context: Context,
    seen: Option<Seen>,
    steps: u32,
    best: f64,
    nodes: Vec<String>,
    candidates: Vec<presagio_tune::Candidate>,
}

impl Looked {
    pub fn at(
        tuner: &Tuner,
        situations: &Situations<Context>,
        context: Context,
        seen: &Option<Seen>,
    ) -> Looked {
        let bandit = tuner.bandit(&context);
        let nodes = situations.nodes_in(context).take(NAMED);
        Looked {
            context,
            seen: seen.clone(),
            steps: bandit.map_or(0, |bandit| bandit.steps()),
            best: bandit.map_or(0.0, |bandit| bandit.best()),
            nodes: nodes.map(str::to_owned).collect(),
            candidates: tuner.candidates(&context),
        }
    }

    fn shown(self) -> dashboard::Context {
        let best = self.best;
        let arm = |it: presagio_tune::Candidate| dashboard::Arm {
            arm: it.arm.to_string(),
            value: it.value,
            tries: it.tries.into(),
            bytes_per_busy_s: it.value.map(|value| value * best),
            barred: it.barred,
        };
        let last_ms = self.seen.as_ref().map(|it| it.last_ms);
        let (choice, why) = self.seen.map(|it| (it.choice, it.why)).unzip();
        dashboard::Context {
            context: self.context.to_string(),
            tries: self.steps.into(),
            best_bytes_per_busy_s: best,
            choice,
            why,
            last_ms,
            nodes: self.nodes.iter().map(|name| plain(name)).collect(),
            arms: self.candidates.into_iter().map(arm).collect(),
        }
    }
}

/// What there was to choose from, for the dashboard.
pub fn candidates(all: &[presagio_tune::Candidate]) -> Vec<dashboard::Candidate> {
    let one = |it: &presagio_tune::Candidate| dashboard::Candidate {
        arm: it.arm.to_string(),
        value: it.value,
        tries: it.tries.into(),
        barred: it.barred,
    };
    all.iter().map(one).collect()
}

/// The fields of a JSON object.
pub fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// The patterns that came most often, and the chain between them.
pub fn patterns(known: &KnowledgeBase) -> Patterns {
    let mut ids: Vec<(u32, PatternId)> = known
        .ids()
        .map(|id| (known.occurrences(id).unwrap_or(0), id))
        .collect();
    ids.sort_by_key(|(times, id)| (std::cmp::Reverse(*times), *id));
    ids.truncate(PATTERNS_MAX);
    let shown: BTreeSet<PatternId> = ids.iter().map(|(_, id)| *id).collect();
    let name = |id: PatternId| Context::Pattern(id.0).to_string();
    let chain = shown.iter().flat_map(|from| {
        let successors = known.successors(*from);
        let successors = successors.filter(|(to, _)| shown.contains(to));
        successors.map(|(to, times)| (name(*from), name(to), u64::from(times)))
    });
    Patterns {
        known: known.len() as u64,
        next: known
            .next()
            .map(|next| (next.id.0.into(), next.probability)),
        chain: Link::all(chain),
        list: ids
            .iter()
            .filter_map(|(times, id)| pattern(known, *id, *times))
            .collect(),
    }
}

fn pattern(known: &KnowledgeBase, id: PatternId, times: u32) -> Option<dashboard::Pattern> {
    let pattern = known.pattern(id)?;
    Some(dashboard::Pattern {
        id: id.0.into(),
        times: times.into(),
        requests: Op::ALL
            .iter()
            .map(|op| u64::from(pattern.requests(*op)))
            .sum(),
        shape: shape(pattern.points()),
    })
}

/// A series in so many points, from 0 to 1.
fn shape(points: &[u32]) -> Vec<f64> {
    let greatest = points.iter().copied().max().unwrap_or(0).max(1);
    let count = points.len().min(SHAPE);
    let mean = |at: usize| {
        let part = &points[at * points.len() / count..(at + 1) * points.len() / count];
        let sum: u64 = part.iter().map(|it| u64::from(*it)).sum();
        sum as f64 / part.len().max(1) as f64 / f64::from(greatest)
    };
    (0..count).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::tests::figures;
    use presagio_pattern::{Pattern, Settings};
    use presagio_tune::TunerSettings;

    fn tuner() -> Tuner {
        Tuner::new(TunerSettings::default())
    }

    /// The nodes as they are shown.
    fn snapshot(view: &mut View) -> Snapshot {
        let (mut snapshot, period) = (view.begin(), Nanos::from_secs(1));
        let names = chosen(&mut snapshot, view.sums_after(None, usize::MAX), period);
        let node = |(name, it): &(String, Shown)| it.node(name, snapshot.at_ms, period);
        snapshot.nodes = view.copied(&names).iter().map(node).collect();
        snapshot
    }

    #[test]
    fn of_many_nodes_those_that_are_here_are_shown_and_all_are_counted() {
        let mut view = View::new();
        let name = |number: usize| format!("io{number:04}");
        for number in 0..NODES_MAX + 50 {
            view.joined(&name(number));
            view.shown(&name(number), &figures());
        }
        let before = snapshot(&mut view).totals;
        view.left(&name(3));
        let shown = snapshot(&mut view);
        assert_eq!((shown.nodes.len(), shown.nodes_left_out), (NODES_MAX, 50));
        assert!(shown.nodes.iter().all(|node| node.name != name(3)));
        assert!(shown.nodes.is_sorted_by_key(|node| node.name.clone()));
        assert_eq!((shown.totals.nodes_here, shown.totals.nodes_gone), (305, 1));
        assert_eq!(before.read_bytes_per_s, 200.0 * 306.0);
        assert_eq!(shown.totals.read_bytes_per_s, 200.0 * 305.0);
        let some = view.sums_after(Some(&name(3)), 2);
        let names: Vec<&String> = some.iter().map(|(name, _)| name).collect();
        assert_eq!(names, [&name(4), &name(5)]);
    }

    #[test]
    fn a_node_is_shown_while_it_is_here_and_a_while_after() {
        let mut view = View::new();
        let states = |view: &mut View| -> Vec<NodeState> {
            let snapshot = snapshot(view);
            snapshot.nodes.iter().map(|node| node.state).collect()
        };
        assert!(!view.shown("io1", &figures()), "nobody knows it");
        view.joined("io1");
        assert!(view.shown("io1", &figures()), "its policy is news");
        assert!(!view.shown("io1", &figures()), "not for the second time");
        assert_eq!(states(&mut view), [NodeState::Here]);
        view.nodes.get_mut("io1").unwrap().heard_ms -= 6_000;
        assert_eq!(states(&mut view), [NodeState::Silent]);
        view.left("io1");
        assert_eq!(states(&mut view), [NodeState::Gone]);
        view.joined("io1");
        assert_eq!(states(&mut view), [NodeState::Here], "with its history");
        assert_eq!(view.nodes["io1"].history.list().len(), 2);
        view.left("io1");
        view.nodes.get_mut("io1").unwrap().since_ms -= 61_000;
        assert_eq!(states(&mut view), []);
    }

    #[test]
    fn what_a_node_shows_is_what_it_says() {
        let mut view = View::new();
        view.joined("a\u{202e}<b>");
        view.shown("a\u{202e}<b>", &figures());
        let snapshot = snapshot(&mut view);
        let node = &snapshot.nodes[0];
        assert_eq!(node.name, "a\\u{202e}<b>");
        assert_eq!(
            (node.policy.as_deref(), node.window_us),
            (Some("TWINS"), Some(500.0))
        );
        assert_eq!((&*node.by, node.connections), ("person", Some(9)));
        assert_eq!(snapshot.totals.read_bytes_per_s, 200.0);
        assert_eq!(node.now, node.recent.last().copied());
    }

    #[test]
    fn situations_that_were_seen_are_there_and_of_the_others_those_known_best() {
        let (mut tuner, mut situations) = (tuner(), Situations::default());
        let safe = tuner.settings().arms.safe();
        for number in 0..100_u32 {
            for _ in 0..number {
                tuner.learn(&Context::Pattern(number), safe, 1e6);
            }
        }
        for (number, last_ms) in [(3, 1), (5, 2), (3, 3)] {
            let seen = Seen {
                last_ms,
                choice: safe.to_string(),
                why: String::new(),
            };
            situations.enter("io1", Context::Pattern(number), seen);
        }
        let mut snapshot = Snapshot::default();
        known(&mut snapshot, &tuner, &situations);
        let names: Vec<&str> = snapshot.contexts.iter().map(|it| &*it.context).collect();
        assert_eq!(names[..2], ["pattern 99", "pattern 98"]);
        assert_eq!(names[CONTEXTS_MAX - 2..], ["pattern 5", "pattern 3"]);
        assert_eq!(names.len(), CONTEXTS_MAX);
        assert_eq!(snapshot.contexts_left_out, 99 - CONTEXTS_MAX as u64);
        assert_eq!(snapshot.chain.len(), 2);
        assert_eq!(snapshot.contexts[CONTEXTS_MAX - 1].nodes, ["io1"]);
        let best = &snapshot.contexts[0].arms[0];
        assert_eq!((best.tries, best.bytes_per_busy_s), (99, Some(1e6)));
    }

    #[test]
    fn patterns_are_shown_with_their_chain() {
        let mut base = KnowledgeBase::new(Settings::published_ionodes(1));
        let wave =
            |height: u32| Pattern::new((0..100).map(|at| at % 2 * height).collect(), 1, 100, 0);
        for height in [10, 1_000_000, 10, 1_000_000] {
            base.decide(wave(height));
        }
        let shown = patterns(&base);
        assert_eq!(shown.known, base.len() as u64);
        assert!(shown.list.iter().all(|it| it.requests == 100));
        assert!(
            shown
                .list
                .iter()
                .all(|it| it.shape.iter().all(|at| (0.0..=1.0).contains(at)))
        );
        let steps: u64 = shown.chain.iter().map(|it| it.times).sum();
        assert_eq!(steps, 3);
    }
}
