//! Contexts, each with its bandit: what to do now, and what came of it.
//!
//! [`Tuner::choose`] answers with an arm and with what it was chosen from; [`Tuner::learn`] takes the reward. Where nothing can be
//! told the arm in force stays. A context that was never seen gets the arm of a warm start, if there is one (the
//! selection tree's, for the device's profile), else what is best in the most similar context that is well known, else the safe
//! arm. What is known of a similar context is also what is expected of the other arms: hopeless ones are tried late, and once.
//!
//! What was chosen in a context stays until something was learned there, for [`ASKED_MAX`] times: what an arm is worth may be known a
//! period later only. An arm that is chosen so often and never judged, because it is another context whenever it is in force, is left
//! alone for a while.
//!
//! Everything learned can be kept: [`Tuner::changed`] gives keys and values of what changed since it was last asked, and
//! [`Tuner::restore`] takes one back. Values are bytes:
//!
//! ```text
//! value of a context    1  version
//!                       4  steps                  all numbers little endian
//!                       1  pardons
//!                       2  arms, then for each:   1  length of its name, and the name
//!                                                 4  tries
//!                                                 8  weight   8  average   8  squares   8  expected: IEEE 754
//!                                                 4  step of the last try   1  disasters   1  surprises   1  doubted
//! ```

use crate::Random;
use crate::arm::{Arm, Arms};
use crate::bandit::{ArmState, Bandit, Reason, Strategy};
use crate::context::{Access, Context, Situation};
use crate::select::{Class, Drive, Selection, Trees};
use presagio_sched::PolicyKind;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;

/// How a tuner learns.
#[derive(Clone, Debug, PartialEq)]
pub struct TunerSettings {
    /// What can be chosen.
    pub arms: Arms,
    /// How.
    pub strategy: Strategy,
    /// Contexts that are kept. Beyond that the rarest is forgotten.
    pub contexts_max: usize,
    /// Where all randomness comes from.
    pub seed: u64,
}

impl Default for TunerSettings {
    fn default() -> TunerSettings {
        TunerSettings {
            arms: Arms::default(),
            strategy: Strategy::default(),
            contexts_max: 10_000,
            seed: 1,
        }
    }
}

/// Why an arm was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Too little is known about the period: the arm in force stays.
    NoInformation,
    /// The arm in force has not been so for long enough to be judged, or nothing is to be done for now: it stays.
    Stays,
    /// Something else arrives now: what was last found best for what looks like it is in force again, until more is known.
    Returns,
    /// The context is new: the safe arm.
    Safe,
    /// The context is new: what the selection tree says.
    WarmStart,
    /// The context is new: what is best in this similar one.
    Similar(Context),
    /// It was not tried here yet.
    Untried,
    /// It is the best of what was tried here.
    Best,
    /// To learn more about it.
    Explored,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::NoInformation => f.write_str("too little is known: what is in force stays"),
            Why::Stays => f.write_str("it stays until it can be judged"),
            Why::Returns => f.write_str("it was best when such came before"),
            Why::Safe => f.write_str("never seen before: the safe arm"),
            Why::WarmStart => f.write_str("never seen before: as the selection tree says"),
            Why::Similar(context) => write!(f, "never seen before: as in {context}"),
            Why::Untried => f.write_str("not tried here yet"),
            Why::Best => f.write_str("the best of what was tried here"),
            Why::Explored => f.write_str("tried again to learn more"),
        }
    }
}

/// An arm that could have been chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Which.
    pub arm: Arm,
    /// Its average as a share of the best; none if it was never tried.
    pub value: Option<f64>,
    /// How often it was tried.
    pub tries: u32,
    /// Whether it was so bad that it is not tried any more.
    pub barred: bool,
}

/// What was chosen, from what, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The arm.
    pub arm: Arm,
    /// Why.
    pub why: Why,
    /// What there was to choose from; empty where nothing was known.
    pub candidates: Vec<Candidate>,
}

/// What suits a context that was never seen, by the trees of `--policy auto` and the device, if it is known.
#[derive(Clone, Debug)]
pub struct WarmStart {
    trees: Trees,
    drive: Option<Drive>,
    stripe: u64,
}

impl WarmStart {
    /// These trees, for this device; requests larger than a stripe are large.
    pub fn new(trees: Trees, drive: Option<Drive>, stripe: u64) -> WarmStart {
        WarmStart {
            trees,
            drive,
            stripe,
        }
    }

    /// The policy for a context, with the tree's reason; none where the context tells nothing to a tree.
    pub fn policy(&mut self, context: &Context) -> Option<(Arm, String)> {
        let Context::Situation(situation) = context else {
            return None;
        };
        let selection = self.selection(situation);
        let mut trees = self.trees.selection().iter();
        let (tree, values) =
            trees.find_map(|tree| Some((tree, selection.values(&tree.schema)?)))?;
        let policy = match tree.answer(&values) {
            "none" => PolicyKind::Noop,
            name => name.parse().ok()?,
        };
        Some((Arm::of(policy), tree.reason(&values)))
    }

    fn selection(&mut self, situation: &Situation) -> Selection {
        let size = situation.size.number();
        let is_shared = situation.access != Access::OwnFiles;
        Selection {
            op: Some(situation.op),
            files: Some(if is_shared {
                1
            } else {
                situation.processes.number()
            }),
            class: Some(Class::of(
                situation.access != Access::SharedStrided,
                size > self.stripe,
            )),
            file_bytes: None,
            ratio: self
                .drive
                .as_mut()
                .map(|drive| drive.ratio(situation.op, size)),
            memory: None,
        }
    }
}

/// A value of a store is none of a context.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what was kept of a context cannot be read: {0}")]
pub struct Corrupt(&'static str);

/// A key, and its value; none is to be removed.
pub type Changed = (Vec<u8>, Option<Vec<u8>>);

#[derive(Clone, Debug)]
struct Known {
    bandit: Bandit,
    /// The number of the call that it was last used in.
    last_used: u64,
    /// In which order arms are tried at first.
    order: Vec<u8>,
    first: Why,
    asked: Option<Asked>,
}

/// What was chosen last in a context.
#[derive(Clone, Copy, Debug)]
struct Asked {
    place: usize,
    reason: Reason,
    /// What had been learned by then, and how often of this arm.
    steps: u32,
    tries: u32,
    /// How often it was chosen without having been judged in between.
    times: u8,
}

/// So often an arm is chosen again that was not judged.
const ASKED_MAX: u8 = 3;

impl Known {
    /// Whether it is known what comes first. One that was kept with none of the arms that are offered now is as one never seen.
    fn has_begun(&self) -> bool {
        self.bandit.steps() > 0 || !self.order.is_empty()
    }
}

/// See the module's header.
#[derive(Clone, Debug)]
pub struct Tuner {
    settings: TunerSettings,
    warm: Option<WarmStart>,
    random: Random,
    contexts: BTreeMap<Context, Known>,
    changed: BTreeSet<Context>,
    calls: u64,
}

/// Steps after which a context is known well enough to advise a similar one.
const WELL_KNOWN: u32 = 30;

/// How far a context may be from a similar one: the sum of differences of its powers of two.
const SIMILAR: u32 = 4;

impl Tuner {
    /// Knows nothing.
    pub fn new(settings: TunerSettings) -> Tuner {
        Tuner {
            random: Random::new(settings.seed),
            settings,
            warm: None,
            contexts: BTreeMap::new(),
            changed: BTreeSet::new(),
            calls: 0,
        }
    }

    /// Begins in contexts that were never seen as the selection tree says.
    pub fn warmed(self, warm: WarmStart) -> Tuner {
        Tuner {
            warm: Some(warm),
            ..self
        }
    }

    /// How it learns.
    pub fn settings(&self) -> &TunerSettings {
        &self.settings
    }

    /// How many contexts are known.
    pub fn len(&self) -> usize {
        self.contexts.len()
    }

    /// Whether none is known.
    pub fn is_empty(&self) -> bool {
        self.contexts.is_empty()
    }

    /// What is known, in the order of contexts.
    pub fn contexts(&self) -> impl Iterator<Item = (&Context, &Bandit)> {
        self.contexts
            .iter()
            .map(|(context, known)| (context, &known.bandit))
    }

    /// The same from the one after this on.
    pub fn contexts_after(
        &self,
        last: Option<&Context>,
    ) -> impl Iterator<Item = (&Context, &Bandit)> {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        self.contexts
            .range::<Context, _>((from, Bound::Unbounded))
            .map(|(context, known)| (context, &known.bandit))
    }

    /// The bandit of a context, if it is known.
    pub fn bandit(&self, context: &Context) -> Option<&Bandit> {
        self.contexts.get(context).map(|known| &known.bandit)
    }

    /// What to do in a context, where `in_force` is what is done now.
    pub fn choose(&mut self, context: Option<&Context>, in_force: Arm) -> Choice {
        let Some(context) = context else {
            return Choice {
                arm: in_force,
                why: Why::NoInformation,
                candidates: Vec::new(),
            };
        };
        self.know(context, None);
        let (place, reason) = self.pick(context);
        let known = &self.contexts[context];
        let preferred = known.order.first().map(|at| usize::from(*at));
        // What happened to be in force was judged at most.
        let is_first = match known.bandit.steps() {
            0 => true,
            1 => preferred == Some(place),
            _ => false,
        };
        let why = match reason {
            Reason::Untried if is_first => known.first,
            Reason::Untried => Why::Untried,
            Reason::Best => Why::Best,
            Reason::Explored => Why::Explored,
        };
        Choice {
            arm: self.settings.arms.list()[place],
            why,
            candidates: self.candidates(context),
        }
    }

    /// The same again as long as nothing was learned of it, within bounds; else what the bandit picks.
    fn pick(&mut self, context: &Context) -> (usize, Reason) {
        let Some(known) = self.contexts.get_mut(context) else {
            return (0, Reason::Untried);
        };
        let steps = known.bandit.steps();
        let asked = known.asked.filter(|it| it.times < ASKED_MAX);
        if let Some(asked) = asked.filter(|it| it.steps == steps) {
            known.asked = Some(Asked {
                times: asked.times + 1,
                ..asked
            });
            return (asked.place, asked.reason);
        }
        let tries = |place: usize| known.bandit.arms()[place].tries;
        let unjudged = known.asked.filter(|it| it.tries == tries(it.place));
        let is_tried = |it: &Asked| it.times >= ASKED_MAX && it.reason != Reason::Best;
        if let Some(asked) = unjudged.filter(is_tried) {
            known.bandit.give_up(asked.place);
        }
        let order: Vec<usize> = known.order.iter().map(|at| usize::from(*at)).collect();
        let strategy = &self.settings.strategy;
        let (place, reason) = known.bandit.pick(strategy, &order, &mut self.random);
        let again = unjudged.filter(|it| it.place == place);
        known.asked = Some(Asked {
            place,
            reason,
            steps,
            tries: known.bandit.arms()[place].tries,
            times: again.map_or(1, |it| it.times.saturating_add(1)),
        });
        (place, reason)
    }

    /// A context has come, of which another one says less: what that knows of arms that were not tried here is expected of them, and it
    /// says what comes first as long as nothing was tried here.
    pub fn meet(&mut self, context: &Context, like: Option<&Context>) {
        self.know(context, like);
        let is_new = self.bandit(context).is_some_and(|it| it.steps() == 0);
        if is_new && like.is_some() {
            let (order, first, _) = self.beginning(context, like);
            if let Some(known) = self.contexts.get_mut(context) {
                (known.order, known.first) = (order, first);
            }
        }
        let like = like.and_then(|like| self.bandit(like));
        let expected = like.map(|like| like.shares().collect::<Vec<f64>>());
        if let (Some(known), Some(expected)) = (self.contexts.get_mut(context), expected) {
            known.bandit.expect_of_untried(expected);
        }
    }

    /// An arm was in force for a whole period in this context and served so many bytes per busy second. Says whether something
    /// was learned: not from an arm that is not in the list, nor from what is no reward.
    pub fn learn(&mut self, context: &Context, arm: Arm, bytes_per_busy_s: f64) -> bool {
        let Some(place) = self.settings.arms.place(arm) else {
            return false;
        };
        if !(bytes_per_busy_s.is_finite() && bytes_per_busy_s > 0.0) {
            return false;
        }
        self.know(context, None);
        let Some(known) = self.contexts.get_mut(context) else {
            return false;
        };
        let strategy = &self.settings.strategy;
        let is_learned = known.bandit.learn(strategy, place, bytes_per_busy_s);
        if is_learned {
            self.changed.insert(*context);
        }
        is_learned
    }

    /// What there is to choose from in a context.
    pub fn candidates(&self, context: &Context) -> Vec<Candidate> {
        let Some(bandit) = self.bandit(context) else {
            return Vec::new();
        };
        let candidate = |(at, arm): (usize, &Arm)| Candidate {
            arm: *arm,
            value: bandit.value(at),
            tries: bandit.arms()[at].tries,
            barred: bandit.is_barred(at),
        };
        self.settings
            .arms
            .list()
            .iter()
            .enumerate()
            .map(candidate)
            .collect()
    }

    /// A context will not come again.
    pub fn forget(&mut self, gone: &Context) {
        if self.contexts.remove(gone).is_some() {
            self.changed.insert(*gone);
        }
    }

    /// A context turned out to be another one: what was tried in either is known.
    pub fn join(&mut self, gone: &Context, into: &Context) {
        let Some(mut known) = self.contexts.remove(gone) else {
            return;
        };
        self.changed.extend([*gone, *into]);
        match self.contexts.get_mut(into) {
            Some(other) => other.bandit.take_over(&known.bandit),
            None => {
                known.last_used = self.calls;
                self.contexts.insert(*into, known);
            }
        }
    }

    /// All that there is to keep, as if nothing was kept yet; with what is forgotten.
    pub fn everything(&mut self) -> Vec<Changed> {
        let learned = self.contexts.iter();
        let learned = learned.filter(|(_, known)| known.bandit.steps() > 0);
        self.changed.extend(learned.map(|(context, _)| *context));
        self.changed()
    }

    /// What changed since this was last asked: keys and values for a store, a value of none for what is forgotten.
    pub fn changed(&mut self) -> Vec<Changed> {
        let changed = std::mem::take(&mut self.changed);
        let entry = |context: Context| {
            let known = self.contexts.get(&context);
            let value = known.map(|known| encode(&known.bandit, &self.settings.arms));
            (context.encode(), value)
        };
        changed.into_iter().map(entry).collect()
    }

    /// Takes back what [`Tuner::changed`] gave. Arms that are not in the list any more are left out, new ones were never tried.
    pub fn restore(&mut self, key: &[u8], value: &[u8]) -> Result<(), Corrupt> {
        let context = Context::decode(key).ok_or(Corrupt("its key is of no context"))?;
        let bandit = decode(value, &self.settings.arms)?;
        self.make_room();
        self.calls += 1;
        let known = Known {
            bandit,
            last_used: self.calls,
            order: Vec::new(),
            first: Why::Safe,
            asked: None,
        };
        self.contexts.insert(context, known);
        Ok(())
    }

    /// Bytes of memory, about: what was asked for, without what an allocator adds.
    pub fn bytes(&self) -> usize {
        let of = |known: &Known| {
            let order = known.order.capacity();
            known.bandit.arms.capacity() * size_of::<ArmState>() + order
        };
        // A node of the tree is at least half full.
        let nodes = self.contexts.len() * 2 * size_of::<(Context, Known)>();
        let changed = self.changed.len() * 2 * size_of::<Context>();
        nodes + changed + self.contexts.values().map(of).sum::<usize>()
    }

    /// Makes sure that there is a bandit for a context, and that it was used now.
    fn know(&mut self, context: &Context, like: Option<&Context>) {
        self.calls += 1;
        if let Some(known) = self.contexts.get_mut(context) {
            known.last_used = self.calls;
            if known.has_begun() {
                return;
            }
            self.contexts.remove(context);
        }
        let (order, first, expected) = self.beginning(context, like);
        self.make_room();
        let mut bandit = Bandit::new(self.settings.arms.len());
        bandit.expect(expected);
        let known = Known {
            bandit,
            last_used: self.calls,
            order,
            first,
            asked: None,
        };
        self.contexts.insert(*context, known);
    }

    /// In which order to try arms in a context that was never seen, why the first comes first, and what is expected of all.
    fn beginning(&mut self, context: &Context, like: Option<&Context>) -> (Vec<u8>, Why, Vec<f64>) {
        let arms = &self.settings.arms;
        let place = |arm: Arm| arms.place(arm).map(|at| at as u8); // At most Arms::MAX.
        let warm = self.warm.as_mut().and_then(|warm| warm.policy(context));
        let warm = warm.and_then(|(arm, _)| place(arm));
        let like = like.and_then(|like| self.contexts.get_key_value(like));
        let like = like.map(|(like, known)| (like, &known.bandit));
        let like = like.filter(|(_, bandit)| bandit.steps() > 0);
        let similar = like.or_else(|| self.similar(context));
        let mut order: Vec<u8> = Vec::with_capacity(arms.len());
        order.extend(warm);
        if let Some((_, bandit)) = similar {
            order.extend(by_value(bandit));
        }
        order.extend(place(arms.safe()));
        order.extend(0..arms.len() as u8);
        let mut seen = BTreeSet::new();
        order.retain(|at| seen.insert(*at));
        let first = match (warm, similar) {
            (Some(_), _) => Why::WarmStart,
            (None, Some((context, _))) => Why::Similar(*context),
            (None, None) => Why::Safe,
        };
        let expected = similar.map(|(_, bandit)| bandit.shares().collect());
        (order, first, expected.unwrap_or_default())
    }

    /// The nearest context that is known well.
    fn similar(&self, to: &Context) -> Option<(&Context, &Bandit)> {
        let well_known = self
            .contexts()
            .filter(|(_, bandit)| bandit.steps() >= WELL_KNOWN);
        let near = well_known.filter_map(|(context, bandit)| {
            let apart = apart(context, to).filter(|apart| *apart <= SIMILAR)?;
            Some((apart, context, bandit))
        });
        near.min_by_key(|(apart, context, _)| (*apart, **context))
            .map(|(_, context, bandit)| (context, bandit))
    }

    /// Forgets the rarest context if there is no room for another: of equally rare ones that which was not used for the longest
    /// time.
    fn make_room(&mut self) {
        while self.contexts.len() >= self.settings.contexts_max.max(1) {
            let rarity = |(_, known): &(&Context, &Known)| (known.bandit.steps(), known.last_used);
            let Some(rarest) = self.contexts.iter().min_by_key(rarity).map(|(it, _)| *it) else {
                return;
            };
            self.contexts.remove(&rarest);
            self.changed.insert(rarest);
        }
    }
}

/// Arms that were tried, the best first, those that were not before disasters.
fn by_value(bandit: &Bandit) -> Vec<u8> {
    let mut places: Vec<u8> = (0..bandit.arms().len() as u8).collect();
    let value = |at: &u8| {
        bandit
            .value((*at).into())
            .unwrap_or(crate::bandit::DISASTER)
    };
    places.sort_by(|a, b| value(b).total_cmp(&value(a)));
    places
}

/// How many powers of two lie between two situations of the same operation and access; none if they are of another kind.
fn apart(a: &Context, b: &Context) -> Option<u32> {
    let (Context::Situation(a), Context::Situation(b)) = (a, b) else {
        return None;
    };
    if (a.op, a.access) != (b.op, b.access) {
        return None;
    }
    let magnitudes = |it: &Situation| [it.servers, it.ionodes, it.clients, it.processes, it.size];
    let pairs = magnitudes(a).into_iter().zip(magnitudes(b));
    let apart = pairs.map(|(a, b)| a.steps_to(b)).sum::<u32>();
    Some(apart + (a.load as u32).abs_diff(b.load as u32))
}

const VERSION: u8 = 1;

fn encode(bandit: &Bandit, arms: &Arms) -> Vec<u8> {
    let mut out = vec![VERSION];
    out.extend(bandit.steps.to_le_bytes());
    out.push(bandit.pardons);
    let tried = || {
        bandit
            .arms
            .iter()
            .zip(arms.list())
            .filter(|(state, _)| state.tries > 0 || state.expected > 0.0)
    };
    out.extend((tried().count() as u16).to_le_bytes());
    for (state, arm) in tried() {
        let name = arm.to_string();
        out.push(name.len() as u8); // A policy and a window: a dozen letters.
        out.extend(name.as_bytes());
        out.extend(state.tries.to_le_bytes());
        for number in [state.weight, state.mean, state.squares, state.expected] {
            out.extend(number.to_le_bytes());
        }
        out.extend(state.last.to_le_bytes());
        out.extend([state.disasters, state.surprises, state.doubted.into()]);
    }
    out
}

fn decode(value: &[u8], arms: &Arms) -> Result<Bandit, Corrupt> {
    let mut left = Reader(value);
    if left.byte()? != VERSION {
        return Err(Corrupt("its version is unknown"));
    }
    let mut bandit = Bandit::new(arms.len());
    bandit.steps = left.number()?;
    bandit.pardons = left.byte()?;
    for _ in 0..u16::from_le_bytes(left.take()?) {
        let length = left.byte()?.into();
        let name = left.bytes(length)?;
        let name = std::str::from_utf8(name).map_err(|_| Corrupt("an arm's name is no text"))?;
        let arm: Arm = name.parse().map_err(|_| Corrupt("it names no arm"))?;
        let state = left.state()?;
        if let Some(place) = arms.place(arm) {
            bandit.arms[place] = state;
        }
    }
    // Steps with arms that are not offered any more are none.
    if bandit.arms.iter().all(|state| state.tries == 0) {
        bandit.steps = 0;
    }
    match left.0.is_empty() {
        true => Ok(bandit),
        false => Err(Corrupt("it is longer than it says")),
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Corrupt> {
        let (taken, left) = self
            .0
            .split_at_checked(count)
            .ok_or(Corrupt("it ends early"))?;
        self.0 = left;
        Ok(taken)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Corrupt> {
        let bytes = self.bytes(N)?;
        bytes.try_into().map_err(|_| Corrupt("it ends early"))
    }

    fn byte(&mut self) -> Result<u8, Corrupt> {
        Ok(self.take::<1>()?[0])
    }

    fn number(&mut self) -> Result<u32, Corrupt> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    /// A number that an average or a weight can be.
    fn float(&mut self) -> Result<f64, Corrupt> {
        let number = f64::from_le_bytes(self.take()?);
        let can_be = (0.0..=1e40).contains(&number);
        can_be
            .then_some(number)
            .ok_or(Corrupt("a number cannot be"))
    }

    fn state(&mut self) -> Result<ArmState, Corrupt> {
        Ok(ArmState {
            tries: self.number()?,
            weight: self.float()?,
            mean: self.float()?,
            squares: self.float()?,
            expected: self.float()?.min(1.0),
            last: self.number()?,
            disasters: self.byte()?,
            surprises: self.byte()?,
            doubted: self.byte()? != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{Load, Magnitude, tests::contexts};
    use presagio_core::Op;
    use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};

    fn situation(processes: u64, size: u64) -> Context {
        Context::Situation(Situation {
            servers: Magnitude::of(4),
            ionodes: Magnitude::of(8),
            clients: Magnitude::of(32),
            processes: Magnitude::of(processes),
            op: Op::Read,
            access: Access::SharedStrided,
            size: Magnitude::of(size),
            load: Load::Full,
        })
    }

    fn tuner() -> Tuner {
        Tuner::new(TunerSettings {
            arms: Arms::windows(),
            ..TunerSettings::default()
        })
    }

    /// Windows around `best`, the worse the farther from it.
    fn reward(arm: Arm, best: usize) -> f64 {
        let at = Arms::windows().place(arm).expect("a window");
        1e8 * (1.0 - 0.1 * at.abs_diff(best) as f64)
    }

    fn play(tuner: &mut Tuner, context: &Context, best: usize, steps: usize) -> Choice {
        let mut in_force = tuner.settings().arms.safe();
        for _ in 0..steps {
            let choice = tuner.choose(Some(context), in_force);
            in_force = choice.arm;
            tuner.learn(context, in_force, reward(in_force, best));
        }
        tuner.choose(Some(context), in_force)
    }

    #[test]
    fn without_information_the_arm_in_force_stays() {
        let choice = tuner().choose(None, Arm::of(PolicyKind::Sjf));
        assert_eq!(
            (choice.arm.policy, choice.why),
            (PolicyKind::Sjf, Why::NoInformation)
        );
    }

    #[test]
    fn a_context_never_seen_gets_the_safe_arm() {
        let mut tuner = tuner();
        let choice = tuner.choose(Some(&situation(128, 32 << 10)), Arm::of(PolicyKind::Sjf));
        assert_eq!(
            (choice.arm, choice.why),
            (Arms::windows().safe(), Why::Safe)
        );
        assert_eq!(choice.candidates.len(), 7);
        assert!(
            choice
                .candidates
                .iter()
                .all(|it| it.value.is_none() && it.tries == 0)
        );
    }

    #[test]
    fn a_similar_context_begins_with_what_is_best_in_a_known_one() {
        let mut tuner = tuner();
        let known = situation(128, 32 << 10);
        play(&mut tuner, &known, 6, 60);
        let similar = situation(256, 32 << 10);
        let choice = tuner.choose(Some(&similar), Arms::windows().safe());
        assert_eq!(
            (choice.arm.to_string().as_str(), choice.why),
            ("TWINS:8ms", Why::Similar(known))
        );
        let other = tuner.choose(Some(&situation(1 << 20, 1 << 30)), Arms::windows().safe());
        assert_eq!(other.why, Why::Safe);
    }

    #[test]
    fn a_neighbour_whose_best_arm_is_hopeless_next_door_finds_it() {
        let mut tuner = tuner();
        play(&mut tuner, &situation(128, 32 << 10), 0, 60);
        let (neighbour, last) = (situation(256, 32 << 10), Arms::windows().list()[6]);
        for _ in 0..300 {
            let arm = tuner.choose(Some(&neighbour), Arms::windows().safe()).arm;
            let value = if arm == last { 1.5e8 } else { reward(arm, 0) };
            tuner.learn(&neighbour, arm, value);
        }
        let bandit = tuner.bandit(&neighbour).expect("known");
        assert_eq!(bandit.value(6), Some(1.0));
        assert!(bandit.arms()[6].tries > 50, "{}", bandit.arms()[6].tries);
    }

    #[test]
    fn a_pattern_never_seen_begins_as_what_can_be_counted_says() {
        let mut tuner = tuner();
        let (counted, pattern) = (situation(128, 32 << 10), Context::Pattern(1));
        // Known a little: two arms are not.
        for (place, arm) in Arms::windows().list().iter().enumerate().take(5) {
            tuner.learn(&counted, *arm, reward(Arms::windows().list()[place], 3));
        }
        tuner.meet(&pattern, Some(&counted));
        let choice = tuner.choose(Some(&pattern), Arms::windows().safe());
        assert_eq!(choice.arm, Arms::windows().list()[3]);
        assert_eq!(choice.why, Why::Similar(counted));
        tuner.learn(&pattern, choice.arm, 1e8);
        // What nothing is known of is still looked at.
        let next = tuner.choose(Some(&pattern), choice.arm);
        assert_eq!(
            (next.arm, next.why),
            (Arms::windows().list()[5], Why::Untried)
        );
        let safe = Arms::windows().safe();
        tuner.meet(&Context::Pattern(2), Some(&situation(1, 1)));
        let choice = tuner.choose(Some(&Context::Pattern(2)), safe);
        assert_eq!((choice.arm, choice.why), (safe, Why::Safe));
    }

    #[test]
    fn what_a_pattern_expects_grows_with_what_can_be_counted() {
        let mut tuner = tuner();
        let (counted, pattern) = (situation(128, 32 << 10), Context::Pattern(1));
        tuner.meet(&pattern, Some(&counted));
        tuner.learn(&pattern, Arms::windows().safe(), 1e8);
        play(&mut tuner, &counted, 4, 60);
        tuner.meet(&pattern, Some(&counted));
        let bandit = tuner.bandit(&pattern).expect("known");
        let expected: Vec<f64> = bandit.arms().iter().map(|arm| arm.expected).collect();
        assert_eq!((expected[4], bandit.steps()), (1.0, 1));
        let safe = Arms::windows()
            .place(Arms::windows().safe())
            .expect("a window");
        assert_eq!(expected[safe], 0.0, "it was tried");
        assert!(
            expected
                .iter()
                .enumerate()
                .all(|(at, it)| at == safe || *it > 0.0)
        );
    }

    #[test]
    fn what_was_chosen_stays_until_something_was_learned_of_it() {
        let mut tuner = tuner();
        let context = situation(128, 32 << 10);
        play(&mut tuner, &context, 2, 100);
        for step in 0..200 {
            let first = tuner.choose(Some(&context), Arms::windows().safe());
            for _ in 1..=step % 3 {
                let again = tuner.choose(Some(&context), Arms::windows().safe());
                assert_eq!((again.arm, again.why), (first.arm, first.why), "{step}");
            }
            tuner.learn(&context, first.arm, reward(first.arm, 2));
        }
    }

    /// With the best window in force, every third period looks like another context, and only with that one.
    #[test]
    fn an_arm_that_is_never_judged_where_it_is_chosen_is_left_alone() {
        let mut tuner = tuner();
        let (usual, rare) = (situation(128, 32 << 10), Context::Pattern(9));
        let best = Arms::windows().list()[6];
        let (mut in_force, mut in_a_row) = (best, 0);
        let mut others = [0; 4];
        for step in 0..400 {
            in_a_row = if in_force == best { in_a_row + 1 } else { 0 };
            let context = match in_a_row % 3 == 2 {
                true => rare,
                false => usual,
            };
            tuner.learn(&context, in_force, reward(in_force, 6));
            in_force = tuner.choose(Some(&context), in_force).arm;
            others[step / 100] += u32::from(in_force != best);
        }
        assert!(others[0] < 40, "{others:?}");
        // What is left is the look at the second best now and then.
        assert!(others[1..].iter().all(|it| *it <= 10), "{others:?}");
    }

    #[test]
    fn a_warm_start_begins_as_the_selection_tree_says() {
        let drive = Drive::new(presagio_device::Model::named("pastel").expect("a preset"));
        let mut warm = WarmStart::new(Trees::shipped(), Some(drive), 64 << 10);
        let context = situation(32, 16 << 10);
        let (arm, reason) = warm.policy(&context).expect("a situation");
        assert!(!reason.is_empty());
        let mut tuner = Tuner::new(TunerSettings::default()).warmed(warm);
        let choice = tuner.choose(Some(&context), Arm::of(PolicyKind::To));
        assert_eq!((choice.arm, choice.why), (arm, Why::WarmStart));
        let pattern = tuner.choose(Some(&Context::Pattern(7)), Arm::of(PolicyKind::To));
        assert_eq!(pattern.why, Why::Safe);
    }

    #[test]
    fn contexts_do_not_disturb_one_another() {
        let (a, b) = (situation(128, 32 << 10), situation(1 << 12, 1 << 20));
        let (mut alone, mut both) = (tuner(), tuner());
        play(&mut alone, &a, 1, 100);
        for _ in 0..100 {
            play(&mut both, &a, 1, 1);
            play(&mut both, &b, 5, 1);
        }
        for (context, best) in [(a, 1), (b, 5)] {
            let bandit = both.bandit(&context).expect("known");
            assert_eq!(bandit.value(best), Some(1.0), "{context}");
        }
        assert_eq!(alone.bandit(&a).and_then(|it| it.value(1)), Some(1.0));
    }

    #[test]
    fn what_was_learned_survives_and_only_changes_are_given() {
        let mut first = tuner();
        let (a, b) = (situation(128, 32 << 10), Context::Pattern(3));
        play(&mut first, &a, 2, 50);
        play(&mut first, &b, 4, 50);
        let kept = first.changed();
        assert_eq!(kept.len(), 2);
        assert!(first.changed().is_empty());
        let mut second = tuner();
        for (key, value) in &kept {
            second
                .restore(key, value.as_ref().expect("not forgotten"))
                .expect("good");
        }
        for context in [a, b] {
            assert_eq!(second.bandit(&context), first.bandit(&context));
        }
        assert!(second.changed().is_empty());
        let mut others = Tuner::new(TunerSettings::default());
        let (key, value) = &kept[0];
        others
            .restore(key, value.as_ref().expect("not forgotten"))
            .expect("good");
        assert_eq!(others.candidates(&a)[0].tries, 0, "NOOP is new");
        assert!(
            others.candidates(&a)[3].tries > 0,
            "a window that is in both lists"
        );
    }

    /// Offered are other arms than those that were learned about: what is kept is no knowledge, and no harm.
    #[test]
    fn with_other_arms_a_context_begins_as_one_never_seen() {
        let mut windows = tuner();
        let context = situation(128, 32 << 10);
        play(&mut windows, &context, 2, 50);
        let (key, value) = windows.changed().remove(0);
        let arms = Arms::new(
            [PolicyKind::Sjf, PolicyKind::Noop].map(Arm::of).to_vec(),
            Arm::of(PolicyKind::Noop),
        );
        let arms = arms.expect("two arms");
        let mut policies = Tuner::new(TunerSettings {
            arms,
            ..TunerSettings::default()
        });
        let value = value.expect("not forgotten");
        policies.restore(&key, &value).expect("good");
        let choice = policies.choose(Some(&context), Arm::of(PolicyKind::Sjf));
        assert_eq!(
            (choice.arm.policy, choice.why),
            (PolicyKind::Noop, Why::Safe)
        );
        for _ in 0..10 {
            assert!(policies.learn(&context, Arm::of(PolicyKind::Sjf), 1e6));
        }
        assert_eq!(policies.bandit(&context).map(Bandit::steps), Some(10));
    }

    #[test]
    fn the_rarest_context_is_forgotten_and_said_to_be() {
        let mut tuner = Tuner::new(TunerSettings {
            contexts_max: 2,
            ..TunerSettings::default()
        });
        let safe = tuner.settings().arms.safe();
        for (number, times) in [(1, 3), (2, 1), (3, 1)] {
            for _ in 0..times {
                assert!(tuner.learn(&Context::Pattern(number), safe, 1e6));
            }
        }
        let kept: Vec<&Context> = tuner.contexts().map(|(context, _)| context).collect();
        assert_eq!(kept, [&Context::Pattern(1), &Context::Pattern(3)]);
        let forgotten = tuner
            .changed()
            .into_iter()
            .filter(|(_, value)| value.is_none());
        let forgotten: Vec<Vec<u8>> = forgotten.map(|(key, _)| key).collect();
        assert_eq!(forgotten, [Context::Pattern(2).encode()]);
    }

    #[test]
    fn ten_thousand_contexts_need_less_than_64_mb() {
        let mut tuner = Tuner::new(TunerSettings::default());
        let arms = tuner.settings().arms.list().to_vec();
        for number in 0..10_000 {
            for arm in &arms {
                tuner.learn(&Context::Pattern(number), *arm, 1e6);
            }
        }
        assert_eq!(tuner.len(), 10_000);
        assert!(tuner.bytes() < 64 << 20, "{} bytes", tuner.bytes());
        let kept: usize = tuner
            .changed()
            .iter()
            .map(|(_, v)| v.as_ref().map_or(0, Vec::len))
            .sum();
        assert!(kept < 64 << 20, "{kept} bytes in a store");
    }

    proptest! {
        #[test]
        fn whatever_was_learned_is_read_back(
            tries in prop::collection::vec((contexts(), 0_usize..7, 1.0..1e12), 1..60),
        ) {
            let (mut first, mut second) = (tuner(), tuner());
            for (context, arm, value) in &tries {
                first.learn(context, Arms::windows().list()[*arm], *value);
            }
            for (key, value) in first.changed() {
                second.restore(&key, &value.expect("nothing was forgotten")).expect("good");
            }
            let all = |tuner: &Tuner| {
                let both = tuner.contexts().map(|(context, bandit)| (*context, bandit.clone()));
                both.collect::<Vec<_>>()
            };
            prop_assert_eq!(all(&first), all(&second));
        }

        #[test]
        fn a_corrupt_value_is_refused_or_harmless(
            tries in prop::collection::vec((0_usize..7, 1.0..1e12), 1..20),
            at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>(),
        ) {
            let mut first = tuner();
            for (arm, value) in tries {
                first.learn(&Context::Pattern(1), Arms::windows().list()[arm], value);
            }
            let (key, value) = first.changed().remove(0);
            let mut value = value.expect("not forgotten");
            let at = at.index(value.len());
            if cut { value.truncate(at) } else { value[at] = byte }
            let mut second = tuner();
            if second.restore(&key, &value).is_ok() {
                for (step, arm) in Arms::windows().list().iter().cycle().take(20).enumerate() {
                    let choice = second.choose(Some(&Context::Pattern(1)), Arms::windows().safe());
                    prop_assert!(Arms::windows().place(choice.arm).is_some());
                    prop_assert!(second.learn(&Context::Pattern(1), *arm, 1e6 * (step + 1) as f64));
                }
            }
        }
    }
}
