//! The council's reasoning (paper 001, IV-A): nodes announce what they saw, each gets one arm.
//!
//! [`Council::announce`] is all there is: a node says what its last period was like, and the answer is there at once, so
//! nobody waits for anybody. Time is cut into rounds, as long as a period. The first announcement of a round
//!
//! 1. ends the one before: what nodes said about an arm in a context becomes one reward, their average without the greatest and least, which the
//!    context's bandit learns. One that lies is not heard in it; one that is far off from all others is not heard for a while.
//! 2. lets the bandit of each context that was announced in it choose once (nodes that are in the same context would otherwise draw
//!    each for themselves, and no majority would ever explore). A context that nobody was in has nothing to try: its choice stays;
//! 3. makes of these choices one for all ([`Consensus`]). If no context was announced, what was agreed on stays.
//!
//! A node in whose context the one for all is barred does not get it, but what its own context chose.
//!
//! Where contexts are patterns, all nodes share one knowledge base; what follows what is known for each node by itself. What can be
//! counted is learned about beside them: a pattern never seen begins with that.
//!
//! *Late words* ([`Council::context_of_late`], [`Council::learn_late`]) are what nodes saw while nobody heard them. They draw on the
//! same budgets, and what few say late of a situation that several others are in is not learned: those have told it.
//!
//! *Bounds.* Nodes, contexts, what a node may add to either, and what it may weigh have bounds; a node that is silent for a few
//! rounds, or has left, has no vote, but what is held against it is not forgotten by that. What cannot be true is refused with a reason. How far patterns can be from each other, by which all matches
//! are judged, is not for one node among several to say: what two have seen counts.

use crate::arm::Arm;
use crate::context::Context;
use crate::finder::{Feed, Finder, Joined, Past};
use crate::network::Detector;
use crate::tuner::{Candidate, Choice, Tuner, Why};
use crate::watch::{Nonsense, Observation};
use presagio_core::{Nanos, Op};
use presagio_pattern::{KnowledgeBase, Pattern, PatternId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

/// A node, by whatever number the service knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// How one arm comes of many choices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consensus {
    /// What most nodes chose (as published).
    #[default]
    Majority,
    /// The same, a node counting by the bytes it served, within bounds.
    ByLoad,
    /// None: each node gets what its context chose.
    PerContext,
}

impl Consensus {
    /// All of them.
    pub const ALL: [Consensus; 3] = [
        Consensus::Majority,
        Consensus::ByLoad,
        Consensus::PerContext,
    ];

    /// As texts have it.
    pub const fn name(self) -> &'static str {
        match self {
            Consensus::Majority => "majority",
            Consensus::ByLoad => "load",
            Consensus::PerContext => "context",
        }
    }
}

impl fmt::Display for Consensus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Consensus {
    type Err = String;

    fn from_str(text: &str) -> Result<Consensus, String> {
        let found = Consensus::ALL.into_iter().find(|it| it.name() == text);
        found.ok_or_else(|| format!("\"{text}\" is no consensus: use majority, load, or context"))
    }
}

/// How a council works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CouncilSettings {
    /// How long a round is: the nodes' period.
    pub period: Nanos,
    /// How one arm comes of many choices.
    pub consensus: Consensus,
    /// Nodes that can be there at a time.
    pub nodes_max: usize,
}

impl Default for CouncilSettings {
    fn default() -> CouncilSettings {
        CouncilSettings {
            period: Nanos::from_secs(1),
            consensus: Consensus::default(),
            nodes_max: 4096,
        }
    }
}

/// Rounds after which a silent node has no vote.
pub const SILENT_ROUNDS_MAX: u64 = 3;

/// Rounds after which it is not known any more what a node that is silent or has left was told, or that it lied.
const FORGOTTEN_ROUNDS: u64 = 60;

/// Contexts that a node may bring up which were never seen before, at a time and anew with each round.
const NEW_CONTEXTS_MAX: u32 = 32;

/// A node whose figures are this many times off from the median of the others is not heard for so many rounds.
const OUTLIER: f64 = 4.0;
const SUSPECT_ROUNDS: u64 = 30;

/// Known patterns that are compared anew in a round, while there are any to compare.
pub(crate) const RECOMPARED: usize = 4;

/// So many nodes tell the one apart that lies.
const SEVERAL: usize = 3;

/// What fewer of them say late, and is so many times off from what was known before they spoke, is not believed.
const FAR_OFF: f64 = 4.0;

/// What a node can weigh, in medians of all weights.
const WEIGHT_MAX: f64 = 4.0;

/// What a node says at the end of its period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Announcement {
    /// Who.
    pub node: NodeId,
    /// What is in force now.
    pub in_force: Arm,
    /// What was in force in the whole period; none if it was changed within it.
    pub realised: Option<Arm>,
    /// What the period was like.
    pub seen: Observation,
}

/// What nodes said late of an arm in a context.
#[derive(Clone, Debug, PartialEq)]
pub struct LateWords {
    /// Of what.
    pub about: (Context, Arm),
    /// Who spoke. Few are not believed what is far off from what was known before they spoke, nor anything about a situation
    /// that others are in, who have told it in time.
    pub speakers: Vec<NodeId>,
    /// A reward for each round that they missed, the oldest first.
    pub rewards: Vec<f64>,
}

/// Why nothing was learned from an announcement, or that something will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// It counts when the round ends.
    Counts,
    /// The arm was changed within the period, or at its beginning.
    Changed,
    /// Nothing can be told about the period.
    NoContext,
    /// The node was hardly busy.
    Idle,
    /// The arm is none of those that can be chosen.
    UnknownArm,
    /// The arm is not what the node was told to do: it decided alone, or is not to be believed.
    NotTold,
    /// The node's figures were far off from others'.
    Suspect,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Evidence::Counts => "counts",
            Evidence::Changed => "does not count: the arm or what arrived was new",
            Evidence::NoContext => "does not count: too little arrived",
            Evidence::Idle => "does not count: the node was hardly busy",
            Evidence::UnknownArm => "does not count: the arm is none to choose from",
            Evidence::NotTold => "does not count: it is not what the node was told to do",
            Evidence::Suspect => "does not count: the node's figures were far off from others'",
        })
    }
}

/// An answer, and all that it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// For whom.
    pub node: NodeId,
    /// In which round.
    pub round: u64,
    /// What the node should do from now on.
    pub arm: Arm,
    /// The node's context; none if nothing can be told.
    pub context: Option<Context>,
    /// What was in force, and how many bytes per busy second it gave.
    pub realised: Option<Arm>,
    /// See there.
    pub bytes_per_busy_s: Option<f64>,
    /// Whether that counts.
    pub evidence: Evidence,
    /// What the node's context chose, and why.
    pub own: Arm,
    /// Why it chose that.
    pub why: Why,
    /// What there was to choose from when the context chose.
    pub candidates: Vec<Candidate>,
    /// What there was for each arm when the round began: the heaviest first. Empty where nodes need not agree.
    pub votes: Vec<(Arm, f64)>,
    /// How votes were counted.
    pub consensus: Consensus,
}

impl Decision {
    /// In a sentence.
    pub fn reason(&self) -> String {
        let own = format!("{}: {}", self.own, self.why);
        match (self.consensus, self.votes.first()) {
            (Consensus::PerContext, _) | (_, None) => own,
            (by, Some((arm, weight))) => {
                let all: f64 = self.votes.iter().map(|(_, weight)| weight).sum();
                let here = match (self.arm == *arm, self.why) {
                    (true, Why::NoInformation) => "here too little is known".to_owned(),
                    (true, _) => format!("here {own}"),
                    (false, _) => format!("that is barred here, so {own}"),
                };
                format!("{arm} by {by} with {weight:.0} of {all:.0} votes; {here}")
            }
        }
    }
}

/// An announcement is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// It cannot be true.
    #[error(transparent)]
    Nonsense(#[from] Nonsense),
    /// There are too many nodes.
    #[error("there are {0} nodes already: raise the council's limit, or ask another one")]
    Full(usize),
}

#[derive(Clone, Debug)]
struct Node {
    /// Whether it announces: not one that has left, or has told only of what was.
    is_here: bool,
    heard: u64,
    /// The last that could be told, and in which round that was.
    context: Option<Context>,
    told_apart: u64,
    in_force: Arm,
    /// What it was told to do.
    told: Option<Arm>,
    /// Whether requests came in its last period.
    is_active: bool,
    served: u64,
    /// Until which round it is not heard.
    suspect_until: u64,
    new_contexts: u32,
    past: Past,
    /// The greatest distances between its patterns and known ones, of reads and of writes.
    stretched: [u64; 2],
}

impl Node {
    /// Whether it was heard of lately.
    fn has_vote(&self, round: u64) -> bool {
        self.is_here && self.heard + SILENT_ROUNDS_MAX >= round
    }

    /// Whether it may bring up another context that was never seen before.
    fn may_add(&self) -> bool {
        self.new_contexts < NEW_CONTEXTS_MAX
    }

    /// Whose choice is its vote: one that has had nothing to do for a while leaves the choice to those that have.
    fn votes_for(&self, round: u64) -> Option<Context> {
        let is_recent = self.told_apart + SILENT_ROUNDS_MAX >= round;
        self.context.filter(|_| is_recent)
    }

    fn new(in_force: Arm, round: u64) -> Node {
        Node {
            is_here: false,
            heard: round,
            context: None,
            told_apart: 0,
            in_force,
            told: None,
            is_active: false,
            served: 0,
            suspect_until: 0,
            new_contexts: 0,
            past: Past::default(),
            stretched: [0; 2],
        }
    }
}

/// See the module's header.
#[derive(Clone, Debug)]
pub struct Council {
    settings: CouncilSettings,
    tuner: Tuner,
    finder: Finder,
    nodes: BTreeMap<NodeId, Node>,
    round: u64,
    /// What nodes said in this round, by arm and by context; through how many nodes it was is known when the round is over.
    evidence: BTreeMap<(Context, Arm), Vec<(NodeId, f64)>>,
    /// How many nodes had something to do lately.
    active: u32,
    /// What each context chose when the round after its last announcement began.
    choices: BTreeMap<Context, Choice>,
    votes: Vec<(Arm, f64)>,
    /// Contexts that late words brought up, until these are learned.
    late: BTreeSet<Context>,
}

impl Council {
    /// A council that has what this tuner has learned.
    pub fn new(settings: CouncilSettings, tuner: Tuner, detector: Detector) -> Council {
        Council {
            settings,
            tuner,
            finder: Finder::new(detector),
            nodes: BTreeMap::new(),
            round: 0,
            evidence: BTreeMap::new(),
            active: 0,
            choices: BTreeMap::new(),
            votes: Vec::new(),
            late: BTreeSet::new(),
        }
    }

    /// Contexts are the patterns of this knowledge base, which all nodes share, and not what can be counted.
    pub fn matching(mut self, known: KnowledgeBase) -> Council {
        self.finder.known = Some(known);
        self
    }

    /// The patterns that are known, where contexts are patterns.
    pub fn known(&self) -> Option<&KnowledgeBase> {
        self.finder.known.as_ref()
    }

    /// What was learned and the patterns that are known, to keep what changed.
    pub fn learned_mut(&mut self) -> (&mut Tuner, Option<&mut KnowledgeBase>) {
        (&mut self.tuner, self.finder.known.as_mut())
    }

    /// The last pattern of a node, where contexts are patterns.
    pub fn pattern(&self, node: NodeId) -> Option<PatternId> {
        self.nodes.get(&node)?.past.pattern
    }

    /// What was learned.
    pub fn tuner(&self) -> &Tuner {
        &self.tuner
    }

    /// The same, to keep what changed.
    pub fn tuner_mut(&mut self) -> &mut Tuner {
        &mut self.tuner
    }

    /// How it works.
    pub fn settings(&self) -> &CouncilSettings {
        &self.settings
    }

    /// How many nodes have a vote.
    pub fn nodes(&self) -> usize {
        self.voters().count()
    }

    fn voters(&self) -> impl Iterator<Item = &Node> {
        let round = self.round;
        self.nodes.values().filter(move |node| node.has_vote(round))
    }

    /// What nodes of all contexts should do, if they agree on one and anything was decided yet.
    pub fn arm(&self) -> Option<Arm> {
        self.votes.first().map(|(arm, _)| *arm)
    }

    /// A node says what its period was like: what should it do now?
    pub fn announce(&mut self, said: &Announcement, now: Nanos) -> Result<Decision, Refused> {
        self.announce_with(said, None, now)
    }

    /// The same, with the pattern of the period: for a council whose contexts are patterns.
    pub fn announce_with(
        &mut self,
        said: &Announcement,
        pattern: Option<Pattern>,
        now: Nanos,
    ) -> Result<Decision, Refused> {
        said.seen.check()?;
        self.finder.check(pattern.as_ref())?;
        self.turn_to(now.0 / self.settings.period.0.max(1));
        self.make_room(said.node)?;
        let (context, like) = self.enter(said, pattern);
        let evidence = self.hear(said, context, like);
        let choice = self.choice(context, said.in_force);
        if self.votes.is_empty() && self.settings.consensus != Consensus::PerContext {
            self.votes = self.count();
        }
        let agreed = self.arm().filter(|arm| !self.is_barred(said.node, *arm));
        let arm = match self.settings.consensus {
            Consensus::PerContext => choice.arm,
            _ => agreed.unwrap_or(choice.arm),
        };
        if let Some(node) = self.nodes.get_mut(&said.node) {
            node.told = Some(arm);
        }
        Ok(Decision {
            node: said.node,
            round: self.round,
            arm,
            context,
            realised: said.realised,
            bytes_per_busy_s: said.seen.reward(),
            evidence,
            own: choice.arm,
            why: choice.why,
            candidates: choice.candidates,
            votes: self.votes.clone(),
            consensus: self.settings.consensus,
        })
    }

    /// Whether an arm was a disaster too often in the context that a node is in, or was in last.
    fn is_barred(&self, node: NodeId, arm: Arm) -> bool {
        let context = self.nodes.get(&node).and_then(|node| node.context);
        let bandit = context.and_then(|context| self.tuner.bandit(&context));
        let place = self.tuner.settings().arms.place(arm);
        let both = bandit.zip(place);
        both.is_some_and(|(bandit, place)| bandit.is_barred(place))
    }

    /// Whether there is room for a node. As many as can be there are remembered beside those that are; past that, the one that was
    /// silent for longest makes room.
    fn make_room(&mut self, node: NodeId) -> Result<(), Refused> {
        let (round, max) = (self.round, self.settings.nodes_max);
        if self.nodes.get(&node).is_some_and(|it| it.has_vote(round)) {
            return Ok(());
        }
        let voters = self.nodes();
        if voters >= max {
            return Err(Refused::Full(voters));
        }
        if self.nodes.len() >= max.saturating_mul(2) && !self.nodes.contains_key(&node) {
            let silent = self.nodes.iter().filter(|(_, it)| !it.has_vote(round));
            let longest = silent.min_by_key(|(_, it)| it.heard).map(|(id, _)| *id);
            longest.map(|id| self.nodes.remove(&id));
        }
        Ok(())
    }

    /// A node has said goodbye: it has no vote any more. What it was told, and what is held against it, stays for a while:
    /// else it would only have to come anew.
    pub fn leave(&mut self, node: NodeId) {
        if let Some(node) = self.nodes.get_mut(&node) {
            (node.is_here, node.is_active) = (false, false);
        }
    }

    // ── Late words ───────────────────────────────────────────────────────────────────────────────────────────────────

    /// The context of a period of which a node tells later than it should: it is not what the node does now. Through how many
    /// I/O nodes that was is known when it is learned. None where it teaches nothing, or the node is not heard.
    pub fn context_of_late(
        &mut self,
        id: NodeId,
        arm: Arm,
        seen: &Observation,
        pattern: Option<Pattern>,
    ) -> Option<Context> {
        seen.check().ok()?;
        seen.reward()?;
        self.tuner.settings().arms.place(arm)?;
        self.finder.check(pattern.as_ref()).ok()?;
        self.make_room(id).ok()?;
        let (round, safe) = (self.round, self.tuner.settings().arms.safe());
        let entry = self.nodes.entry(id);
        let node = entry.or_insert_with(|| Node::new(safe, round));
        if !node.is_here {
            node.heard = round;
        }
        if node.suspect_until > round {
            return None;
        }
        let may_add = node.may_add();
        let feed = Feed {
            adds_nothing: !may_add,
            ..Feed::default()
        };
        let found = self.finder.find((seen, pattern), 0, feed, &mut self.tuner);
        self.forget(found.gone);
        let context = found.context?;
        if !self.is_known(context) && !self.late.contains(&context) {
            let node = self.nodes.get_mut(&id).filter(|_| may_add)?;
            node.new_contexts += 1;
            self.late.insert(context);
        }
        Some(context)
    }

    /// Whether anything was learned in a context, through however many I/O nodes.
    fn is_known(&self, context: Context) -> bool {
        let most = self.settings.nodes_max.max(1).ilog2() + 1;
        let through = |power| context.through(1_u32.checked_shl(power).unwrap_or(u32::MAX));
        let known = |power| self.tuner.bandit(&through(power)).is_some();
        (0..=most).any(known)
    }

    /// Whether nothing is learned from a node for now: its figures were far off from others'.
    pub fn is_suspect(&self, node: NodeId) -> bool {
        let node = self.nodes.get(&node);
        node.is_some_and(|node| node.suspect_until > self.round)
    }

    /// Learns what nodes said late: each arm of each context once.
    pub fn learn_late(&mut self, all: impl IntoIterator<Item = LateWords>) {
        all.into_iter().for_each(|words| self.learn_some(&words));
        self.late.clear();
    }

    fn learn_some(&mut self, words: &LateWords) {
        let (context, arm) = words.about;
        let are_few = words.speakers.len() < SEVERAL;
        if self.is_gone(context) || (are_few && self.is_told_by_others(context, &words.speakers)) {
            return;
        }
        let context = context.through(self.through());
        let known = self.average(&context, arm).filter(|_| are_few);
        let is_far_off =
            |reward: f64| known.is_some_and(|it| reward > FAR_OFF * it || reward * FAR_OFF < it);
        for reward in words.rewards.iter().filter(|reward| !is_far_off(**reward)) {
            self.tuner.learn(&context, arm, *reward);
        }
    }

    /// Whether it is a pattern's that is not known any more.
    fn is_gone(&self, context: Context) -> bool {
        match (context, &self.finder.known) {
            (Context::Pattern(id), Some(known)) => !known.has_workload(PatternId(id)),
            _ => false,
        }
    }

    /// Whether so many others announce this context now that with one of these they would be several.
    fn is_told_by_others(&self, context: Context, speakers: &[NodeId]) -> bool {
        let others = self.nodes.iter().filter(|(id, node)| {
            let told = node
                .votes_for(self.round)
                .filter(|_| node.has_vote(self.round));
            told.is_some_and(|it| it.through(0) == context.through(0)) && !speakers.contains(id)
        });
        others.count() + 1 >= SEVERAL
    }

    /// What is known of an arm, in bytes per busy second.
    fn average(&self, context: &Context, arm: Arm) -> Option<f64> {
        let place = self.tuner.settings().arms.place(arm)?;
        let bandit = self.tuner.bandit(context)?;
        Some(bandit.value(place)? * bandit.best())
    }

    /// Through how many I/O nodes it goes now. Before the first round has ended, those that said anything count.
    fn through(&self) -> u32 {
        match self.active {
            0 => self.nodes.len().max(1) as u32,
            active => active,
        }
    }

    // ── Rounds ───────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Begins this round, unless it or a later one has begun.
    fn turn_to(&mut self, round: u64) {
        if round <= self.round {
            return;
        }
        let ended = std::mem::replace(&mut self.round, round);
        // One that announces near the edge of rounds is heard twice in one and not in the next: it is there all the same.
        let is_active = |node: &&Node| node.heard + 1 >= ended && node.is_active;
        self.active = self.nodes.values().filter(is_active).count() as u32;
        self.learn();
        let is_known = |node: &Node| node.heard + FORGOTTEN_ROUNDS >= round;
        self.nodes.retain(|_, node| is_known(node));
        for (merged, joined) in self.finder.recompare(RECOMPARED, &mut self.tuner) {
            for node in self.nodes.values_mut() {
                node.past.rename(merged);
            }
            self.join(joined);
        }
        for node in self.nodes.values_mut() {
            node.new_contexts = node.new_contexts.saturating_sub(1);
        }
        self.choose_anew(ended);
    }

    /// Contexts that were announced in the round that ended choose anew, and votes are counted. Without any, all stays as it was:
    /// idle nodes would otherwise try one arm after the other, and nobody would learn from it.
    fn choose_anew(&mut self, ended: u64) {
        let round = self.round;
        let voting = |node: &Node| Some((node.votes_for(round)?, node.in_force));
        let voting: Vec<(Context, Arm)> = self.voters().filter_map(voting).collect();
        let is_new = |node: &&Node| node.told_apart >= ended;
        let announced = self.voters().filter(is_new).filter_map(|node| node.context);
        let announced: BTreeSet<Context> = announced.collect();
        if announced.is_empty() {
            return;
        }
        let kept: BTreeSet<Context> = voting.iter().map(|(context, _)| *context).collect();
        self.choices
            .retain(|context, _| kept.contains(context) && !announced.contains(context));
        for (context, in_force) in voting {
            self.choice(Some(context), in_force);
        }
        self.votes = match self.settings.consensus {
            Consensus::PerContext => Vec::new(),
            _ => self.count(),
        };
    }

    /// What was said in the round is one reward for each context and arm.
    fn learn(&mut self) {
        for ((context, arm), mut said) in std::mem::take(&mut self.evidence) {
            said.sort_by(|a, b| a.1.total_cmp(&b.1));
            let median = said[(said.len() - 1) / 2].1; // There is a list only where something was said.
            // Of what can be counted alike, the patterns may differ.
            let is_only_like = self.finder.known.is_some() && context.is_situation();
            if said.len() >= SEVERAL && !is_only_like {
                let is_off = |value: f64| value > OUTLIER * median || value * OUTLIER < median;
                for (node, _) in said.iter().filter(|(_, value)| is_off(*value)) {
                    if let Some(node) = self.nodes.get_mut(node) {
                        node.suspect_until = self.round + SUSPECT_ROUNDS;
                    }
                }
            }
            self.tuner
                .learn(&context.through(self.active), arm, middle(&said));
        }
    }

    /// Votes of all nodes that can tell their context, the heaviest first; of equal ones the first in order.
    fn count(&self) -> Vec<(Arm, f64)> {
        let heaviest = self.weight_max();
        let mut votes: BTreeMap<Arm, f64> = BTreeMap::new();
        for node in self.voters() {
            let context = node.votes_for(self.round);
            let choice = context.and_then(|context| self.choices.get(&context));
            let Some(choice) = choice else { continue };
            let weight = match self.settings.consensus {
                Consensus::ByLoad => (node.served as f64).clamp(1.0, heaviest),
                _ => 1.0,
            };
            *votes.entry(choice.arm).or_default() += weight;
        }
        let mut votes: Vec<(Arm, f64)> = votes.into_iter().collect();
        votes.sort_by(|a, b| b.1.total_cmp(&a.1));
        votes
    }

    fn weight_max(&self) -> f64 {
        let is_voting = |node: &&Node| node.votes_for(self.round).is_some();
        let voting = self.voters().filter(is_voting);
        let mut served: Vec<u64> = voting.map(|node| node.served).collect();
        served.sort_unstable();
        let median = served.get(served.len() / 2).copied().unwrap_or(0);
        (median as f64 * WEIGHT_MAX).max(1.0)
    }

    // ── An announcement ──────────────────────────────────────────────────────────────────────────────────────────────

    /// Notes that a node is there, and finds its context, and what can be counted of it.
    fn enter(
        &mut self,
        said: &Announcement,
        pattern: Option<Pattern>,
    ) -> (Option<Context>, Option<Context>) {
        let ionodes = match self.active {
            0 => self.nodes().max(1) as u32,
            active => active,
        };
        let entry = self.nodes.entry(said.node);
        let node = entry.or_insert_with(|| Node::new(said.in_force, 0));
        let may_add = node.may_add();
        let feed = Feed {
            past: Some(&mut node.past),
            arm: said.realised,
            adds_nothing: !may_add,
        };
        let found = self
            .finder
            .find((&said.seen, pattern), ionodes, feed, &mut self.tuner);
        let is_new = found
            .context
            .is_some_and(|it| self.tuner.bandit(&it).is_none());
        node.new_contexts += u32::from(is_new && may_add);
        (node.is_here, node.heard) = (true, self.round);
        node.in_force = said.in_force;
        node.served = said.seen.served;
        node.is_active = said.seen.arrived.is_some();
        let context = found.context.filter(|_| may_add || !is_new);
        let like = found.like.filter(|_| context.is_some());
        if let Some(context) = &context {
            self.tuner.meet(context, like.as_ref());
        }
        // Where nothing can be told, the last vote stands for a few rounds.
        if context.is_some() {
            (node.context, node.told_apart) = (context, self.round);
        }
        if let Some((op, distance)) = found.distance {
            let stretched = &mut node.stretched[op.index()];
            *stretched = distance.max(*stretched);
            self.stretch(op);
        }
        self.forget(found.gone);
        self.join(found.joined);
        (context, like)
    }

    /// Patterns can be as far from each other as two nodes have seen, or one where there are few.
    fn stretch(&mut self, op: Op) {
        let (mut greatest, mut second) = (0, 0);
        for stretched in self.nodes.values().map(|node| node.stretched[op.index()]) {
            second = second.max(stretched.min(greatest));
            greatest = greatest.max(stretched);
        }
        let distance = match self.nodes.len() < SEVERAL {
            true => greatest,
            false => second,
        };
        if let Some(known) = &mut self.finder.known {
            known.stretch(op, distance);
        }
    }

    /// A context will not come again.
    fn forget(&mut self, gone: Option<Context>) {
        let Some(gone) = gone else { return };
        self.choices.remove(&gone);
        self.evidence.retain(|(context, _), _| *context != gone);
        let nodes = self.nodes.values_mut();
        for node in nodes.filter(|node| node.context == Some(gone)) {
            node.context = None;
        }
    }

    /// A context turned out to be another one: so is what was said of it in this round.
    fn join(&mut self, joined: Option<Joined>) {
        let Some(Joined { gone, into }) = joined else {
            return;
        };
        self.choices.remove(&gone);
        let is_gone = |(context, _): &(Context, Arm)| *context == gone;
        let said: Vec<(Context, Arm)> = self.evidence.keys().copied().filter(is_gone).collect();
        for key in said {
            let words = self.evidence.remove(&key).unwrap_or_default();
            self.evidence
                .entry((into, key.1))
                .or_default()
                .extend(words);
        }
        let nodes = self.nodes.values_mut();
        for node in nodes.filter(|node| node.context == Some(gone)) {
            node.context = Some(into);
        }
    }

    /// Keeps what was said for the end of the round.
    fn hear(
        &mut self,
        said: &Announcement,
        context: Option<Context>,
        like: Option<Context>,
    ) -> Evidence {
        let Some(arm) = said.realised else {
            return Evidence::Changed;
        };
        let Some(context) = context else {
            return Evidence::NoContext;
        };
        let Some(reward) = said.seen.reward() else {
            return Evidence::Idle;
        };
        if self.tuner.settings().arms.place(arm).is_none() {
            return Evidence::UnknownArm;
        }
        match self.nodes.get(&said.node) {
            Some(node) if node.suspect_until > self.round => return Evidence::Suspect,
            Some(node) if node.told == Some(arm) => {}
            _ => return Evidence::NotTold,
        }
        let like = like.filter(|like| self.may_teach(said.node, *like));
        for context in [Some(context), like].into_iter().flatten() {
            let heard = self.evidence.entry((context.through(0), arm)).or_default();
            // A node that announces twice in a round has said the last.
            match heard.iter_mut().find(|(node, _)| *node == said.node) {
                Some(earlier) => earlier.1 = reward,
                None => heard.push((said.node, reward)),
            }
        }
        Evidence::Counts
    }

    /// Whether something is learned of what a node says of a context; if nobody knew of it, that draws on the node's budget.
    fn may_teach(&mut self, node: NodeId, context: Context) -> bool {
        let is_said = self
            .evidence
            .keys()
            .any(|(it, _)| *it == context.through(0));
        if is_said || self.is_known(context) {
            return true;
        }
        let node = self.nodes.get_mut(&node).filter(|node| node.may_add());
        node.map(|node| node.new_contexts += 1).is_some()
    }

    /// What a context chose.
    fn choice(&mut self, context: Option<Context>, in_force: Arm) -> Choice {
        let Some(context) = context else {
            return self.tuner.choose(None, in_force);
        };
        if let Some(choice) = self.choices.get(&context) {
            return choice.clone();
        }
        let choice = self.tuner.choose(Some(&context), in_force);
        self.choices.insert(context, choice.clone());
        choice
    }
}

/// The average without the greatest and the least eighth, at least one of each where there are enough.
fn middle(sorted: &[(NodeId, f64)]) -> f64 {
    let off = match sorted.len() {
        0..3 => 0,
        count => (count / 8).max(1),
    };
    let kept = &sorted[off..sorted.len() - off];
    kept.iter().map(|(_, value)| value).sum::<f64>() / kept.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Alone;
    use crate::arm::Arms;
    use crate::bandit::Bandit;
    use crate::tuner::TunerSettings;
    use crate::watch::tests::observation;
    use presagio_core::Op;
    use proptest::prelude::{any, prop, prop_assert, proptest};

    fn council(consensus: Consensus) -> Council {
        let tuner = Tuner::new(TunerSettings {
            arms: Arms::windows(),
            ..TunerSettings::default()
        });
        let settings = CouncilSettings {
            consensus,
            ..CouncilSettings::default()
        };
        Council::new(settings, tuner, Detector::shipped())
    }

    fn said(node: u64, arm: Arm) -> Announcement {
        Announcement {
            node: NodeId(node),
            in_force: arm,
            realised: Some(arm),
            seen: observation(),
        }
    }

    /// A reward for a window: the best is the one at this place.
    fn served(arm: Arm, best: usize) -> u64 {
        let at = Arms::windows().place(arm).expect("a window");
        100_000_000 - 10_000_000 * at.abs_diff(best) as u64
    }

    /// Rounds of nodes that do as they are told; what each does in the end.
    fn play(
        council: &mut Council,
        nodes: &mut [(u64, Arm, Op, usize)],
        rounds: std::ops::Range<u64>,
    ) {
        for round in rounds {
            for (at, (node, arm, op, best)) in nodes.iter_mut().enumerate() {
                let mut said = said(*node, *arm);
                said.seen.served = served(*arm, *best);
                said.seen.arrived.as_mut().expect("something").op = *op;
                let now = Nanos(round * 1_000_000_000 + at as u64 * 1_000_000);
                *arm = council.announce(&said, now).expect("true").arm;
            }
        }
    }

    fn nodes(count: u64, of: impl Fn(u64) -> (Op, usize)) -> Vec<(u64, Arm, Op, usize)> {
        let node = |number| {
            let (op, best) = of(number);
            (number, Arms::windows().safe(), op, best)
        };
        (0..count).map(node).collect()
    }

    #[test]
    fn nodes_of_one_context_learn_its_best_arm_together() {
        for consensus in Consensus::ALL {
            let mut council = council(consensus);
            let mut all = nodes(8, |_| (Op::Read, 5));
            play(&mut council, &mut all, 1..50);
            // One round may be a try of another arm, for all of them.
            let mut right = 0;
            for round in 50..60 {
                play(&mut council, &mut all, round..round + 1);
                let of = |(_, arm, ..): &(_, Arm, _, _)| *arm == Arms::windows().list()[5];
                right += u32::from(all.iter().all(of));
            }
            assert!(right >= 8, "{consensus}: {right} of 10");
        }
    }

    #[test]
    fn the_majority_decides_for_all_and_contexts_for_themselves() {
        let of = |number: u64| {
            if number < 6 {
                (Op::Read, 1)
            } else {
                (Op::Write, 5)
            }
        };
        let mut by_majority = council(Consensus::Majority);
        let mut all = nodes(8, of);
        play(&mut by_majority, &mut all, 1..100);
        let first = Arms::windows().list()[1];
        assert!(all.iter().all(|(_, arm, ..)| *arm == first));
        let mut each = council(Consensus::PerContext);
        let mut all = nodes(8, of);
        play(&mut each, &mut all, 1..100);
        for (number, arm, ..) in all {
            let best = of(number).1;
            assert_eq!(arm, Arms::windows().list()[best], "node {number}");
        }
    }

    #[test]
    fn load_counts_within_bounds() {
        let mut council = council(Consensus::ByLoad);
        for (node, op, served) in [
            (0, Op::Read, 1_000_000),
            (1, Op::Read, 1_000_000),
            (2, Op::Write, 60_000_000_000),
        ] {
            let mut said = said(node, Arms::windows().safe());
            said.seen.served = served;
            said.seen.arrived.as_mut().expect("something").op = op;
            council.announce(&said, Nanos(1)).expect("it could be");
        }
        council.turn_to(1);
        let heaviest: f64 = council
            .votes
            .iter()
            .map(|(_, weight)| *weight)
            .fold(0.0, f64::max);
        assert!(heaviest <= (2.0 + WEIGHT_MAX) * 1e6, "{heaviest}");
    }

    /// A node in whose period hardly anything came.
    fn idle(node: u64, arm: Arm) -> Announcement {
        let mut said = said(node, arm);
        (said.seen.arrived, said.seen.served) = (None, 0);
        said
    }

    #[test]
    fn where_all_are_idle_what_was_agreed_on_stays() {
        for consensus in Consensus::ALL {
            let mut council = council(consensus);
            let mut all = nodes(4, |_| (Op::Read, 5));
            play(&mut council, &mut all, 1..12);
            let (mut told, mut votes) = (Vec::new(), Vec::new());
            for round in 12..80 {
                for (node, arm, ..) in &mut all {
                    let now = Nanos(round * 1_000_000_000 + *node);
                    *arm = council.announce(&idle(*node, *arm), now).expect("true").arm;
                    told.push((*node, *arm));
                }
                votes.push(council.votes.clone());
            }
            told.sort();
            told.dedup();
            assert_eq!(told.len(), 4, "{consensus}: each is told one thing");
            votes.dedup();
            assert_eq!(votes.len(), 1, "{consensus}");
        }
    }

    #[test]
    fn those_that_have_something_to_do_decide_also_for_one_that_is_idle() {
        for consensus in [Consensus::Majority, Consensus::ByLoad] {
            let mut council = council(consensus);
            let mut all = nodes(6, |number| match number {
                0 => (Op::Read, 5),
                _ => (Op::Write, 0),
            });
            play(&mut council, &mut all, 1..12);
            let (busy, waiting) = all.split_at_mut(1);
            let (mut choices, mut best) = (Vec::new(), 0);
            for round in 12..120 {
                play(&mut council, busy, round..round + 1);
                for (node, arm, ..) in waiting.iter_mut() {
                    let now = Nanos(round * 1_000_000_000 + 500_000_000 + *node);
                    let decision = council.announce(&idle(*node, *arm), now).expect("true");
                    assert_eq!(decision.evidence, Evidence::NoContext);
                    assert_eq!(decision.arm, busy[0].1, "one for all");
                    *arm = decision.arm;
                }
                let context = council.nodes[&NodeId(1)].context.expect("it wrote");
                choices.extend(council.choices.get(&context).cloned());
                best += u32::from(round >= 80 && busy[0].1 == Arms::windows().list()[5]);
                let voted: f64 = council.votes.iter().map(|(_, weight)| weight).sum();
                let has_ended = round > 12 + SILENT_ROUNDS_MAX;
                assert!(!has_ended || consensus == Consensus::ByLoad || voted == 1.0);
            }
            choices.dedup();
            assert!(choices.len() <= 1, "nothing is chosen anew for the idle");
            assert!(best >= 32, "{consensus}: {best} of 40");
        }
    }

    #[test]
    fn what_is_barred_in_a_nodes_own_context_it_is_not_told() {
        let mut council = council(Consensus::Majority);
        let windows = Arms::windows();
        let mut all = nodes(8, |number| match number {
            0..6 => (Op::Read, 0),
            _ => (Op::Write, 5),
        });
        let mut barred = 0;
        for round in 1..100_u64 {
            for (node, arm, op, best) in &mut all {
                let mut said = said(*node, *arm);
                let is_disaster = *op == Op::Write && *arm == windows.list()[0];
                said.seen.served = match is_disaster {
                    true => 10_000_000,
                    false => served(*arm, *best),
                };
                said.seen.arrived.as_mut().expect("something").op = *op;
                let now = Nanos(round * 1_000_000_000 + *node);
                let decision = council.announce(&said, now).expect("true");
                *arm = decision.arm;
                if *op == Op::Write && round > 50 {
                    assert_ne!(*arm, windows.list()[0]);
                    let agreed = decision.votes[0].0;
                    let is_kept_off = agreed == windows.list()[0];
                    assert_eq!(decision.reason().contains("barred here"), is_kept_off);
                    barred += u32::from(is_kept_off);
                }
            }
        }
        assert!(barred > 50, "{barred} of 98");
        assert_eq!(all[0].1, windows.list()[0], "the others are told it");
    }

    #[test]
    fn one_that_lies_harms_nobody_else() {
        let mut council = council(Consensus::Majority);
        let mut honest = nodes(4, |_| (Op::Read, 2));
        for round in 1..80 {
            play(&mut council, &mut honest, round..round + 1);
            let now = Nanos(round * 1_000_000_000 + 900_000_000);
            // It says that the worst arm is the best by far, whatever is in force.
            let mut lie = said(99, Arms::windows().list()[6]);
            lie.seen.served = 90_000_000_000_000;
            council.announce(&lie, now).expect("it could be");
            lie.seen.served = u64::MAX;
            assert!(matches!(
                council.announce(&lie, now),
                Err(Refused::Nonsense(_))
            ));
        }
        for (_, arm, ..) in honest {
            assert_eq!(arm, Arms::windows().list()[2]);
        }
    }

    /// What one says about the worst window, and how good it is.
    fn late_lie(council: &mut Council, node: u64, reward: f64) -> LateWords {
        let worst = Arms::windows().list()[6];
        let seen = observation();
        let context = council.context_of_late(NodeId(node), worst, &seen, None);
        LateWords {
            about: (context.expect("it could be"), worst),
            speakers: vec![NodeId(node)],
            rewards: vec![reward; 4],
        }
    }

    #[test]
    fn one_that_lies_about_what_was_harms_nobody_else() {
        let mut council = council(Consensus::Majority);
        let mut honest = nodes(3, |_| (Op::Read, 2));
        for round in 1..80 {
            play(&mut council, &mut honest, round..round + 1);
            let lie = late_lie(&mut council, 99, 90_000_000.0 * 3.9_f64.powi(round as i32));
            council.learn_late([lie]);
            council.leave(NodeId(99));
        }
        for (_, arm, ..) in honest {
            assert_eq!(arm, Arms::windows().list()[2]);
        }
    }

    #[test]
    fn one_that_lies_and_comes_anew_is_not_heard_all_the_same() {
        let mut council = council(Consensus::Majority);
        let mut honest = nodes(3, |_| (Op::Read, 2));
        play(&mut council, &mut honest, 1..4);
        let mut heard = 0;
        for round in 4..34 {
            play(&mut council, &mut honest, round..round + 1);
            let now = Nanos(round * 1_000_000_000 + 900_000_000);
            // It does as it is told, and lies about what came of it.
            let arm = council.arm().expect("something was decided");
            let mut lie = said(99, arm);
            lie.seen.served = 90_000_000_000_000;
            let decision = council.announce(&lie, now).expect("it could be");
            heard += u32::from(decision.evidence == Evidence::Counts);
            let seen = observation();
            let late = council.context_of_late(NodeId(99), arm, &seen, None);
            assert_eq!(late.is_none(), council.is_suspect(NodeId(99)));
            council.leave(NodeId(99));
        }
        assert!((1..=2).contains(&heard), "{heard} times");
    }

    #[test]
    fn a_lone_word_about_what_was_does_not_climb_by_the_words_before_it() {
        let mut council = council(Consensus::Majority);
        let mut alone = nodes(1, |_| (Op::Read, 2));
        play(&mut council, &mut alone, 1..60);
        let worst = Arms::windows().list()[6];
        let average = |council: &Council, context: &Context| council.average(context, worst);
        let seen = observation();
        let context = council.context_of_late(NodeId(99), worst, &seen, None);
        let context = context.expect("it could be");
        let here = context.through(1);
        let before = average(&council, &here).expect("it was tried");
        let climbing: Vec<f64> = (1..20).map(|at| before * 3.9_f64.powi(at)).collect();
        council.learn_late([LateWords {
            about: (context, worst),
            speakers: vec![NodeId(99)],
            rewards: climbing,
        }]);
        let after = average(&council, &here).expect("it was tried");
        assert!(after <= FAR_OFF * before, "{before} {after}");
    }

    #[test]
    fn words_about_what_was_are_learned_through_the_nodes_that_there_are() {
        let mut council = council(Consensus::Majority);
        let arm = Arms::windows().safe();
        let mut contexts = BTreeSet::new();
        for node in 0..8 {
            let seen = observation();
            let context = council.context_of_late(NodeId(node), arm, &seen, None);
            contexts.insert(context.expect("it could be"));
        }
        assert_eq!(contexts.len(), 1, "whoever came first: {contexts:?}");
        let context = contexts.pop_first().expect("one");
        let mut all = nodes(8, |_| (Op::Read, 2));
        play(&mut council, &mut all, 1..3);
        let steps = |council: &Council| {
            let bandit = council.tuner().bandit(&context.through(8));
            (bandit.map_or(0, Bandit::steps), council.tuner().len())
        };
        let (before, known) = steps(&council);
        council.learn_late([LateWords {
            about: (context, arm),
            speakers: (0..8).map(NodeId).collect(),
            rewards: vec![1e8; 5],
        }]);
        assert_eq!(steps(&council), (before + 5, known));
    }

    #[test]
    fn one_that_makes_contexts_up_and_comes_anew_cannot_fill_the_memory() {
        let mut council = council(Consensus::Majority);
        let mut honest = nodes(3, |_| (Op::Read, 2));
        for round in 1..200 {
            play(&mut council, &mut honest, round..round + 1);
            let mut late = Vec::new();
            for at in 0..20 {
                let mut lie = said(99, Arms::windows().safe());
                lie.seen.processes = 1 << (at % 30);
                lie.seen.clients = 1 << ((round + at) % 30);
                lie.seen.servers = 1 << (round % 7);
                let now = Nanos(round * 1_000_000_000 + 900_000_000);
                council.announce(&lie, now).expect("it could be");
                council.leave(NodeId(99));
                lie.seen.served += 1 << 20;
                lie.seen.servers += 1 << 9;
                let arm = lie.in_force;
                let context = council.context_of_late(NodeId(99), arm, &lie.seen, None);
                late.extend(context.map(|context| LateWords {
                    about: (context, arm),
                    speakers: vec![NodeId(99)],
                    rewards: vec![1e8],
                }));
            }
            council.learn_late(late);
        }
        let bound = u64::from(NEW_CONTEXTS_MAX) + 200 + 10;
        let known = council.tuner().len() as u64;
        assert!(known < bound, "{known}");
    }

    #[test]
    fn what_a_node_brings_up_late_is_counted_once() {
        let mut council = council(Consensus::Majority);
        let arm = Arms::windows().safe();
        for _ in 0..4 * NEW_CONTEXTS_MAX {
            let seen = observation();
            let context = council.context_of_late(NodeId(1), arm, &seen, None);
            assert!(context.is_some(), "the same is no other context");
        }
        let mut others = 0;
        for clients in 0..60 {
            let seen = Observation {
                clients: 1 << (clients % 30),
                servers: 1 << (clients / 30),
                ..observation()
            };
            let context = council.context_of_late(NodeId(1), arm, &seen, None);
            others += u32::from(context.is_some());
        }
        assert!(others <= NEW_CONTEXTS_MAX, "{others}");
        let nonsense = Observation {
            served: u64::MAX,
            ..observation()
        };
        let context = council.context_of_late(NodeId(1), arm, &nonsense, None);
        assert_eq!(context, None);
    }

    #[test]
    fn one_that_makes_contexts_up_cannot_fill_the_memory() {
        let mut council = council(Consensus::Majority);
        let mut honest = nodes(3, |_| (Op::Read, 2));
        for round in 1..200 {
            play(&mut council, &mut honest, round..round + 1);
            for at in 0..20 {
                let mut lie = said(99, Arms::windows().safe());
                lie.seen.processes = 1 << (at % 30);
                lie.seen.clients = 1 << ((round + at) % 30);
                let now = Nanos(round * 1_000_000_000 + 900_000_000);
                council.announce(&lie, now).expect("it could be");
            }
        }
        let bound = u64::from(NEW_CONTEXTS_MAX) + 200 + 10;
        assert!(
            (council.tuner().len() as u64) < bound,
            "{}",
            council.tuner().len()
        );
    }

    #[test]
    fn one_that_is_silent_has_no_vote() {
        let mut council = council(Consensus::Majority);
        let mut gone = nodes(5, |_| (Op::Write, 6));
        play(&mut council, &mut gone, 1..50);
        let mut there = nodes(2, |number| (Op::Read, number as usize));
        there
            .iter_mut()
            .for_each(|node| (node.0, node.3) = (node.0 + 100, 0));
        play(&mut council, &mut there, 50..50 + SILENT_ROUNDS_MAX + 2);
        assert_eq!(council.nodes(), 2);
        play(&mut council, &mut there, 60..120);
        assert!(
            there
                .iter()
                .all(|(_, arm, ..)| *arm == Arms::windows().list()[0])
        );
    }

    #[test]
    fn a_node_that_announces_near_the_edge_of_rounds_changes_nobodys_context() {
        let mut council = council(Consensus::Majority);
        let announce = |council: &mut Council, node: u64, at_ms: u64| {
            let said = said(node, Arms::windows().safe());
            let decision = council.announce(&said, Nanos::from_millis(at_ms));
            decision.expect("true").context
        };
        let mut contexts = Vec::new();
        for round in 1..40_u64 {
            // By nearest powers of two, five are as four and six as eight.
            for node in 0..5 {
                let context = announce(&mut council, node, round * 1000 + 100 + node);
                contexts.extend(context.filter(|_| round > 4));
            }
            // Every other period of the sixth ends a moment before the round does, the next one a moment after the next has begun.
            let edges: &[u64] = if round % 2 == 0 { &[1, 999] } else { &[] };
            for edge in edges {
                announce(&mut council, 5, round * 1000 + edge);
            }
        }
        contexts.sort();
        contexts.dedup();
        assert_eq!(contexts.len(), 1, "{contexts:?}");
    }

    #[test]
    fn what_a_node_was_told_and_that_it_lied_outlives_its_silence() {
        let mut council = council(Consensus::Majority);
        let announce = |council: &mut Council, node: u64, arm: Arm, served: u64, round: u64| {
            let mut said = said(node, arm);
            said.seen.served = served;
            let now = Nanos(round * 1_000_000_000 + node);
            council.announce(&said, now).expect("true")
        };
        let mut arms = [Arms::windows().safe(); 4];
        for round in 1..3 {
            for (node, arm) in arms.iter_mut().enumerate() {
                let served = if node == 3 {
                    90_000_000_000
                } else {
                    100_000_000
                };
                *arm = announce(&mut council, node as u64, *arm, served, round).arm;
            }
        }
        // All are silent for longer than they have a vote.
        let round = 4 + 2 * SILENT_ROUNDS_MAX;
        let honest = announce(&mut council, 0, arms[0], 100_000_000, round);
        assert_eq!(honest.evidence, Evidence::Counts);
        let liar = announce(&mut council, 3, arms[3], 90_000_000_000, round);
        assert_eq!(liar.evidence, Evidence::Suspect);
        assert_eq!(council.nodes(), 2, "the others have no vote");
    }

    #[test]
    fn a_switch_within_the_period_does_not_count() {
        let mut council = council(Consensus::Majority);
        let mut said = said(1, Arms::windows().safe());
        said.realised = None;
        let decision = council.announce(&said, Nanos::from_secs(1)).expect("true");
        assert_eq!(decision.evidence, Evidence::Changed);
        said.realised = Some(Arm::of(presagio_sched::PolicyKind::Sjf));
        let decision = council.announce(&said, Nanos::from_secs(2)).expect("true");
        assert_eq!(decision.evidence, Evidence::UnknownArm);
        let heard = council
            .tuner()
            .contexts()
            .all(|(_, bandit)| bandit.steps() == 0);
        assert!(heard);
    }

    #[test]
    fn a_decision_says_all_that_it_comes_from() {
        let mut council = council(Consensus::Majority);
        let mut all = nodes(4, |_| (Op::Read, 5));
        play(&mut council, &mut all, 1..80);
        let said = said(0, all[0].1);
        let decision = council.announce(&said, Nanos::from_secs(80)).expect("true");
        assert_eq!(decision.candidates.len(), 7);
        assert_eq!(decision.candidates[5].value, Some(1.0));
        let voted: f64 = decision.votes.iter().map(|(_, weight)| weight).sum();
        assert_eq!((decision.votes[0].0, voted), (decision.arm, 4.0));
        assert!(
            decision.reason().contains("by majority with 4 of 4 votes"),
            "{}",
            decision.reason()
        );
        assert!(decision.context.is_some() && decision.bytes_per_busy_s == Some(1e8));
    }

    #[test]
    fn there_are_no_more_nodes_than_allowed() {
        let mut council = council(Consensus::Majority);
        council.settings.nodes_max = 2;
        for node in 0..2 {
            council
                .announce(&said(node, Arms::windows().safe()), Nanos(1))
                .expect("room");
        }
        let refused = council.announce(&said(2, Arms::windows().safe()), Nanos(1));
        assert_eq!(refused.expect_err("full"), Refused::Full(2));
        for (leaves, comes) in (0..20).map(|node| (node, node + 2)) {
            council.leave(NodeId(leaves));
            let said = said(comes, Arms::windows().safe());
            council.announce(&said, Nanos(1)).expect("room again");
            let refused = council.announce(&said_by(leaves), Nanos(1));
            assert_eq!(refused.expect_err("full"), Refused::Full(2));
            assert!(council.nodes.len() <= 4, "those that left are few");
        }
    }

    fn said_by(node: u64) -> Announcement {
        said(node, Arms::windows().safe())
    }

    #[test]
    fn alone_a_node_learns_the_same() {
        let tuner = council(Consensus::Majority).tuner;
        let mut alone = Alone::new(tuner, Detector::shipped());
        let mut arm = Arms::windows().safe();
        for _ in 0..100 {
            let seen = Observation {
                served: served(arm, 0),
                ..observation()
            };
            let (context, _) = alone.hear(&seen, None, Some(arm));
            arm = alone.choose(context.as_ref(), None, arm).arm;
        }
        assert_eq!(arm, Arms::windows().list()[0]);
        let nothing = Observation {
            arrived: None,
            ..observation()
        };
        let (context, evidence) = alone.hear(&nothing, None, Some(arm));
        assert_eq!(evidence, Evidence::NoContext);
        assert_eq!(
            alone.choose(context.as_ref(), None, arm).why,
            Why::NoInformation
        );
    }

    /// A pattern of our kind whose points are these many powers of two.
    fn pattern(powers: u32) -> Pattern {
        Pattern::new(vec![powers << 16; 24], 1, 100, 0)
    }

    fn matching(consensus: Consensus) -> Council {
        council(consensus).matching(KnowledgeBase::new(presagio_pattern::Settings::ours()))
    }

    /// Nodes whose patterns take turns, each in its own way: what each does next is known all the same.
    #[test]
    fn what_follows_what_is_known_for_each_node() {
        let mut council = matching(Consensus::Majority);
        let ways = [[1, 20, 40], [40, 20, 1]];
        for round in 1..40_u64 {
            for (node, way) in ways.iter().enumerate() {
                let said = said(node as u64, Arms::windows().safe());
                let now = Nanos(round * 1_000_000_000 + node as u64);
                let seen = pattern(way[round as usize % 3]);
                council.announce_with(&said, Some(seen), now).expect("true");
            }
        }
        let known = council.known().expect("patterns");
        let id = |powers: u32| {
            let points = [powers << 16; 24];
            let of = |id: &PatternId| known.pattern(*id).expect("known").points() == points;
            known.ids().find(of).expect("it came")
        };
        let follow = |powers: u32| -> Vec<PatternId> {
            let mut all: Vec<PatternId> = known.successors(id(powers)).map(|it| it.0).collect();
            all.sort();
            all
        };
        // Each is followed by one in the first way and by the other in the second, never by itself.
        assert_eq!(known.len(), 3);
        for (one, others) in [(1, [20, 40]), (20, [1, 40]), (40, [1, 20])] {
            let mut expected = others.map(id);
            expected.sort();
            assert_eq!(follow(one), expected, "after {one}");
        }
        assert_eq!(council.pattern(NodeId(0)), Some(id(1)));
    }

    #[test]
    fn one_node_among_several_cannot_make_all_patterns_look_alike() {
        let mut council = matching(Consensus::PerContext);
        let mut contexts = Vec::new();
        for round in 1..30_u64 {
            contexts.clear();
            for node in 0..4 {
                let said = said(node, Arms::windows().safe());
                let now = Nanos(round * 1_000_000_000 + node);
                let seen = pattern(10 + 4 * ((node + round) % 3) as u32);
                let decision = council.announce_with(&said, Some(seen), now);
                contexts.extend(decision.expect("true").context);
            }
            // It says whatever is farthest from all others.
            let lie = said(99, Arms::windows().safe());
            let now = Nanos(round * 1_000_000_000 + 900_000_000);
            let extreme = pattern(64 * (round % 2) as u32);
            council
                .announce_with(&lie, Some(extreme), now)
                .expect("it could be");
        }
        contexts.sort();
        contexts.dedup();
        assert_eq!(contexts.len(), 3, "honest nodes' patterns are told apart");
        let made_up = Pattern::new(vec![u32::MAX; 24], 1, 100, 0);
        let lie = said(99, Arms::windows().safe());
        let refused = council.announce_with(&lie, Some(made_up), Nanos::from_secs(31));
        assert!(matches!(refused, Err(Refused::Nonsense(_))), "{refused:?}");
    }

    #[test]
    fn one_that_makes_patterns_up_does_not_push_out_those_of_others() {
        let mut council = matching(Consensus::PerContext);
        let mut honest = None;
        for round in 1..400_u64 {
            let good = said(1, Arms::windows().safe());
            let now = Nanos(round * 1_000_000_000);
            let decision = council.announce_with(&good, Some(pattern(10)), now);
            let context = decision.expect("true").context;
            assert!(honest.is_none() || honest == context);
            honest = context;
            for at in 0..20_u32 {
                let lie = said(99, Arms::windows().safe());
                let point = (round as u32 * 20 + at) * 300;
                let seen = Pattern::new(vec![point; 24], 1, 100, 0);
                let said = council.announce_with(&lie, Some(seen), now);
                said.expect("it could be");
            }
        }
        let known = council.known().map_or(0, KnowledgeBase::len);
        assert!(known <= NEW_CONTEXTS_MAX as usize + 400 + 10, "{known}");
    }

    #[test]
    fn one_that_makes_patterns_up_that_were_does_not_push_out_those_of_others() {
        let mut council = matching(Consensus::PerContext);
        let arm = Arms::windows().safe();
        for round in 1..400_u64 {
            let good = said(1, arm);
            let now = Nanos(round * 1_000_000_000);
            let decision = council.announce_with(&good, Some(pattern(10)), now);
            assert!(decision.expect("true").context.is_some());
            let mut late = Vec::new();
            for at in 0..20_u32 {
                let point = (round as u32 * 20 + at) * 300;
                let seen = Pattern::new(vec![point; 24], 1, 100, 0);
                let context = council.context_of_late(NodeId(99), arm, &observation(), Some(seen));
                late.extend(context.map(|context| LateWords {
                    about: (context, arm),
                    speakers: vec![NodeId(99)],
                    rewards: vec![1e8],
                }));
                council.leave(NodeId(99));
            }
            council.learn_late(late);
        }
        let known = council.known().map_or(0, KnowledgeBase::len);
        assert!(known <= NEW_CONTEXTS_MAX as usize + 400 + 10, "{known}");
    }

    /// Each arm leaves a pattern of its own, and each workload others: still each workload learns its best arm.
    #[test]
    fn what_is_in_force_may_change_the_pattern() {
        let tuner = council(Consensus::Majority).tuner;
        let known = KnowledgeBase::new(presagio_pattern::Settings::ours());
        let mut alone = Alone::new(tuner, Detector::shipped()).matching(known);
        let windows = Arms::windows();
        let mut arm = windows.safe();
        let mut right = [0; 2];
        for step in 0..560_usize {
            let workload = step / 40 % 2;
            let best = [1, 5][workload];
            let at = windows.place(arm).expect("a window");
            let seen = Observation {
                served: served(arm, best),
                ..observation()
            };
            let powers = 2 + 30 * workload as u32 + 4 * at as u32;
            let pattern = pattern(powers);
            let (context, _) = alone.hear(&seen, Some(pattern), Some(arm));
            arm = alone.choose(context.as_ref(), None, arm).arm;
            if step >= 400 {
                right[workload] += u32::from(arm == windows.list()[best]);
            }
        }
        assert!(right.iter().all(|it| *it >= 70), "{right:?} of 80 each");
        // Of 14 patterns; what can be counted is a context more.
        assert!(alone.tuner().len() <= 7, "{}", alone.tuner().len());
    }

    #[test]
    fn patterns_that_turn_out_to_be_the_same_share_what_was_learned() {
        let tuner = council(Consensus::Majority).tuner;
        let known = KnowledgeBase::new(presagio_pattern::Settings::ours());
        let mut alone = Alone::new(tuner, Detector::shipped()).matching(known);
        let arm = Arms::windows().safe();
        let near = Pattern::new(vec![10 << 16 | 9; 24], 1, 100, 0);
        let mut decide = |pattern: Pattern| {
            let (context, _) = alone.hear(&observation(), Some(pattern), Some(arm));
            let contexts = alone.tuner().contexts();
            (
                context,
                contexts.filter(|(it, _)| !it.is_situation()).count(),
            )
        };
        // Nothing is known of how far patterns can be apart: these two are as far as that.
        let (first, _) = decide(pattern(10));
        let (second, count) = decide(near.clone());
        assert!(first != second && count == 2);
        for _ in 0..4 {
            decide(near.clone());
        }
        decide(pattern(40));
        let (joined, count) = decide(near);
        assert_eq!(
            (joined, count),
            (second, 2),
            "the one that came more often, and the far one"
        );
        let bandit = alone.tuner().bandit(&joined.expect("a pattern"));
        assert!(
            bandit.is_some_and(|it| it.steps() >= 5),
            "what more is known of"
        );
    }

    #[test]
    fn contexts_can_be_patterns_that_all_nodes_share() {
        let mut council = matching(Consensus::PerContext);
        let mut arms = [Arms::windows().safe(); 4];
        for round in 1..80 {
            for (node, arm) in arms.iter_mut().enumerate() {
                let (kind, best) = if node < 2 { (1, 0) } else { (40, 6) };
                let mut said = said(node as u64, *arm);
                said.seen.served = served(*arm, best);
                let now = Nanos(round * 1_000_000_000 + node as u64);
                let decision = council.announce_with(&said, Some(pattern(kind)), now);
                *arm = decision.expect("true").arm;
            }
        }
        let all = Arms::windows();
        assert_eq!(
            arms,
            [all.list()[0], all.list()[0], all.list()[6], all.list()[6]]
        );
        assert_eq!(council.known().map(KnowledgeBase::len), Some(2));
    }

    proptest! {
        /// Whatever nodes say, and however time goes: an arm of the list, and no panic.
        #[test]
        fn no_announcement_breaks_a_council(
            which in 0_usize..3,
            all in prop::collection::vec(
                (0_u64..5, any::<u64>(), any::<u64>(), any::<(u32, u32)>(), prop::num::f64::ANY, 0_usize..7, any::<u64>()),
                0..60,
            ),
        ) {
            let mut council = council(Consensus::ALL[which]);
            for (node, served, busy, (clients, processes), distance, arm, now) in all {
                let mut said = said(node, Arms::windows().list()[arm]);
                said.seen.served = served % 1_000_000_000;
                said.seen.busy = Nanos(busy % 2_000_000_000);
                (said.seen.clients, said.seen.processes) = (clients, processes);
                said.seen.arrived.as_mut().expect("something").features.distance = distance;
                if let Ok(decision) = council.announce(&said, Nanos(now)) {
                    prop_assert!(Arms::windows().place(decision.arm).is_some());
                }
            }
        }
    }
}
