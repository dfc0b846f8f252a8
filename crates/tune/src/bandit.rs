//! One bandit: which arm, in one context, by what came of those that were tried.
//!
//! What is kept of an arm is in bytes per busy second; whoever compares divides by the best arm's average, so a best that
//! rises or falls needs no second look at what was learned before. Noise is taken as a share of the level, the same for all
//! arms of a context, and estimated from all of them together.
//!
//! [`Strategy`] says how to choose. ε-greedy is as published (paper 001, IV: sample averages that begin at 0); the others try
//! every arm once. [`Strategy::Windowed`] is Thompson sampling for a world that changes: an average follows the last tries
//! only, what was long not tried is less certain, and an arm that twice in a row is not what it was is learned anew. If it was
//! the best, or is now, the others are *doubted*. Mostly it is not the arm that has changed but all there is, as when storage is slow for a
//! while: so what is expected of doubted arms moves with what is measured of others, and those among them that may be good are tried once more; hopeless
//! ones when that costs little. A change need not show in the best arm: so the second best is tried now and then, the oftener the less that
//! costs ([`PROBE_COST`]), and half as often each time that the best arm was worse right after it.
//!
//! *Expectations* from a similar context spare tries, and may be wrong here. So an arm that is expected to be bad is tried once all the
//! same, as soon as all first tries have cost [`FIRST_COST`] of the steps at most, by what was expected: after a hundred steps for each arm at the latest.
//!
//! *Guard rail.* An arm below half of the best is a disaster. After [`DISASTERS_MAX`] disasters it is barred: no strategy chooses
//! it again, save once after each time that the context has changed, which is allowed [`PARDONS_MAX`] times in all.

use crate::Random;
use std::fmt;
use std::str::FromStr;

/// How to choose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Strategy {
    /// The best by sample averages; any arm with probability ε (as published).
    Greedy {
        /// ε.
        epsilon: f64,
    },
    /// The same with an ε that falls to half in so many steps, to a third in twice as many, and so on.
    Decaying {
        /// ε at first.
        epsilon: f64,
        /// Steps until half of it.
        half: f64,
    },
    /// The greatest upper confidence bound: average + width √(2 ln t / n) (UCB1; Auer, Cesa-Bianchi, Fischer 2002).
    Ucb1 {
        /// 1 is for rewards that are anywhere in 0..1; ours lie closer together.
        width: f64,
    },
    /// As likely as it is the best (Thompson 1933), by averages that are normally distributed.
    Thompson,
    /// Thompson sampling that follows a world that changes.
    Windowed {
        /// An average is over about so many tries.
        window: u32,
        /// After so many steps without a try an arm is half as certain.
        patience: u32,
    },
}

/// What a service uses.
impl Default for Strategy {
    fn default() -> Strategy {
        Strategy::Windowed {
            window: 32,
            patience: 500,
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Strategy::Greedy { epsilon } => write!(f, "greedy:{epsilon}"),
            Strategy::Decaying { epsilon, half } => write!(f, "decaying:{epsilon}:{half}"),
            Strategy::Ucb1 { width } => write!(f, "ucb1:{width}"),
            Strategy::Thompson => f.write_str("thompson"),
            Strategy::Windowed { window, patience } => write!(f, "windowed:{window}:{patience}"),
        }
    }
}

/// A text is no strategy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown strategy \"{0}\": use greedy:EPSILON, decaying:EPSILON:HALF, ucb1:WIDTH, thompson, or windowed:WINDOW:PATIENCE"
)]
pub struct UnknownStrategy(pub String);

impl FromStr for Strategy {
    type Err = UnknownStrategy;

    fn from_str(text: &str) -> Result<Strategy, UnknownStrategy> {
        let unknown = || UnknownStrategy(text.to_owned());
        let mut words = text.split(':');
        let name = words.next().unwrap_or_default();
        let numbers: Vec<f64> = words
            .map(|word| word.parse().map_err(|_| unknown()))
            .collect::<Result<_, _>>()?;
        let is_chance = |number: f64| (0.0..=1.0).contains(&number);
        let is_count = |number: f64| (1.0..=1e9).contains(&number);
        match (name, &numbers[..]) {
            ("greedy", [epsilon]) if is_chance(*epsilon) => {
                Ok(Strategy::Greedy { epsilon: *epsilon })
            }
            ("decaying", [epsilon, half]) if is_chance(*epsilon) && is_count(*half) => {
                let (epsilon, half) = (*epsilon, *half);
                Ok(Strategy::Decaying { epsilon, half })
            }
            ("ucb1", []) => Ok(Strategy::Ucb1 { width: 1.0 }),
            ("ucb1", [width]) if (0.0..=100.0).contains(width) => {
                Ok(Strategy::Ucb1 { width: *width })
            }
            ("thompson", []) => Ok(Strategy::Thompson),
            ("windowed", []) => Ok(Strategy::default()),
            ("windowed", [window, patience]) if is_count(*window) && is_count(*patience) => {
                Ok(Strategy::Windowed {
                    window: *window as u32,
                    patience: *patience as u32,
                })
            }
            _ => Err(unknown()),
        }
    }
}

/// Below this share of the best a try is a disaster.
pub const DISASTER: f64 = 0.5;

/// After so many disasters an arm is barred.
pub const DISASTERS_MAX: u8 = 3;

/// How often a context that changed lets barred arms be tried once more.
pub const PARDONS_MAX: u8 = 8;

/// Noise, as a share of the level, before anything is known, and how many tries that counts for.
const NOISE: f64 = 0.05;
const NOISE_TRIES: f64 = 4.0;

/// How far what is expected of an arm may be off.
const NOISE_EXPECTED: f64 = 0.2;

/// A try that is off by so many standard deviations is a surprise.
const SURPRISE: f64 = 4.0;

/// No try counts for more than this many times the best, once there is one to speak of.
const BEST_GROWTH_MAX: f64 = 4.0;

/// After so many steps with the best arm alone another one is tried, or later: all that may cost this share of the best. A step is
/// what was learned from; to try an arm may take twice as long, since the first period of a new arm tells nothing.
const PROBE: u32 = 16;
pub const PROBE_COST: f64 = 0.005;

/// And what all first tries may cost of arms that little is expected of.
const FIRST_COST: f64 = 0.01;

/// Tries that do harm are made this many times half as often at most.
const HARM_MAX: u8 = 5;

/// Steps for which an arm that could not be judged is left alone.
const GIVEN_UP: u32 = 256;

/// Bytes per busy second between which a reward is believed.
const REWARDS: (f64, f64) = (1.0, 1e15);

/// What is known of an arm.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ArmState {
    /// How often it was tried.
    pub tries: u32,
    /// For how many tries the average counts.
    pub(crate) weight: f64,
    /// The average, in bytes per busy second.
    pub(crate) mean: f64,
    /// Squared deviations from it.
    pub(crate) squares: f64,
    /// The step of the last try, or of one that was never tried, when it was given up; 0 before.
    pub(crate) last: u32,
    /// What share of the best is expected of it before it is tried; 0 is nothing.
    pub(crate) expected: f64,
    pub(crate) disasters: u8,
    /// Surprises in a row.
    pub(crate) surprises: u8,
    /// Whether another arm has changed since it was last tried.
    pub(crate) doubted: bool,
}

/// Why an arm was picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It was never tried here.
    Untried,
    /// It is the best of those that were tried.
    Best,
    /// To learn more about it.
    Explored,
}

/// What a try said about an arm.
enum Followed {
    /// It is what it was, or was hardly known.
    AsBefore,
    /// It is not what it was.
    Changed,
    /// The same, of one that was doubted.
    WasDoubted,
}

/// See the module's header.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bandit {
    pub(crate) steps: u32,
    pub(crate) pardons: u8,
    /// How much oftener tries were followed by a fall of the best arm than not: in halves of how often one is tried.
    pub(crate) harm: u8,
    pub(crate) arms: Vec<ArmState>,
}

impl Bandit {
    /// Takes over what another bandit knows of arms that were not tried here, and what disasters there were: they are one workload's.
    pub(crate) fn take_over(&mut self, other: &Bandit) {
        let steps = self.steps;
        let tried = other.arms.iter().filter(|theirs| theirs.tries > 0);
        self.steps = steps.saturating_add(tried.count() as u32);
        for (own, theirs) in self.arms.iter_mut().zip(&other.arms) {
            if own.tries == 0 && theirs.tries > 0 {
                *own = ArmState {
                    last: steps,
                    ..*theirs
                };
            } else {
                own.disasters = own.disasters.saturating_add(theirs.disasters);
            }
        }
    }

    /// So many arms, about which nothing is known.
    pub fn new(arms: usize) -> Bandit {
        Bandit {
            steps: 0,
            pardons: 0,
            harm: 0,
            arms: vec![ArmState::default(); arms],
        }
    }

    /// What is known of each arm.
    pub fn arms(&self) -> &[ArmState] {
        &self.arms
    }

    /// How many tries there were.
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// The best average so far; 0 before the first try.
    pub fn best(&self) -> f64 {
        self.arms.iter().map(|arm| arm.mean).fold(0.0, f64::max)
    }

    /// The average of an arm as a share of the best; none if it was never tried.
    pub fn value(&self, arm: usize) -> Option<f64> {
        let state = self.arms.get(arm).filter(|state| state.tries > 0)?;
        Some(state.mean / self.best().max(f64::MIN_POSITIVE))
    }

    /// Whether it is not to be chosen any more.
    pub fn is_barred(&self, arm: usize) -> bool {
        let is_disaster = self.value(arm).is_some_and(|value| value < DISASTER);
        is_disaster && self.arms[arm].disasters >= DISASTERS_MAX
    }

    /// Picks an arm. Those that were never tried come in this order of preference; what is missing in it comes last.
    pub fn pick(
        &self,
        strategy: &Strategy,
        order: &[usize],
        random: &mut Random,
    ) -> (usize, Reason) {
        let best = self.best_arm();
        let fresh = || self.untried(order).map(|arm| (arm, Reason::Untried));
        match *strategy {
            Strategy::Greedy { epsilon } => self.greedy(best, order, epsilon, random),
            Strategy::Decaying { epsilon, half } => {
                let epsilon = epsilon * half / (half + f64::from(self.steps));
                fresh().unwrap_or_else(|| self.greedy(best, order, epsilon, random))
            }
            Strategy::Ucb1 { width } => fresh().unwrap_or_else(|| {
                let log = libm::log(f64::from(self.steps.max(1)));
                let bound = |arm: usize, state: &ArmState| match self.value(arm) {
                    Some(share) => share + width * (2.0 * log / state.weight.max(1e-9)).sqrt(),
                    None => f64::NEG_INFINITY, // It was given up for now.
                };
                self.greatest(best, bound)
            }),
            Strategy::Thompson => self
                .unexpected(order)
                .or_else(|| self.overlooked())
                .unwrap_or_else(|| self.drawn(best, u32::MAX, random)),
            Strategy::Windowed { patience, .. } => self
                .unexpected(order)
                .or_else(|| self.surprising())
                .or_else(|| self.doubtful(best, random))
                .or_else(|| self.overlooked())
                .or_else(|| self.probed(best))
                .unwrap_or_else(|| self.drawn(best, patience, random)),
        }
    }

    /// A try of an arm gave so many bytes per busy second. What is no such number is not learned; says whether it was.
    pub fn learn(&mut self, strategy: &Strategy, arm: usize, value: f64) -> bool {
        if !(value.is_finite() && value > 0.0) || arm >= self.arms.len() {
            return false;
        }
        let best = self.best();
        let value = value.clamp(REWARDS.0, self.reward_max());
        let noise = self.noise();
        self.steps = self.steps.saturating_add(1);
        let state = &mut self.arms[arm];
        state.last = self.steps;
        state.tries = state.tries.saturating_add(1);
        if value < DISASTER * best {
            state.disasters = state.disasters.saturating_add(1);
        }
        match strategy {
            Strategy::Windowed { window, .. } => self.follow(arm, value, noise, f64::from(*window)),
            _ => self.arms[arm].average(value, f64::INFINITY),
        }
        true
    }

    /// An average that follows what changes, and what a change says about the others.
    fn follow(&mut self, arm: usize, value: f64, noise: f64, window: f64) {
        let (best, before) = (self.best(), self.arms[arm].mean);
        let was_best = before >= best;
        let followed = self.arms[arm].follow(value, noise, window);
        if was_best {
            self.weigh_harm(arm, &followed, value < before);
        }
        match followed {
            Followed::AsBefore => {}
            // Only it is known to be so for now: what is thought of the others comes from before.
            Followed::Changed if was_best => {
                self.doubt_others(arm);
                self.move_doubted(arm, value / before);
            }
            // One that was not the best and has not become it says nothing about who is.
            Followed::Changed if value > best => self.doubt_others(arm),
            Followed::Changed => {}
            Followed::WasDoubted => self.move_doubted(arm, value / before),
        }
    }

    /// To try an arm can cost more than what it gives less: clients that came out of step by it may stay so for as long as they go on. Then
    /// the best arm falls right after a try.
    fn weigh_harm(&mut self, best: usize, followed: &Followed, fell: bool) {
        let others = (0..self.arms.len()).filter(|at| *at != best);
        let last = others.map(|at| self.arms[at].last).max().unwrap_or(0);
        let since = self.steps.saturating_sub(last);
        match followed {
            Followed::Changed if fell && since <= 3 => self.harm = HARM_MAX.min(self.harm + 1),
            Followed::AsBefore if since == 1 && self.arms[best].surprises == 0 => {
                self.harm = self.harm.saturating_sub(1);
            }
            _ => {}
        }
    }

    /// What is thought of arms that are doubted changes as this one has: it is the same world.
    fn move_doubted(&mut self, changed: usize, factor: f64) {
        let others = self.arms.iter_mut().enumerate();
        let others = others.filter(|(at, state)| *at != changed && state.doubted);
        for (_, state) in others {
            state.mean = (state.mean * factor).clamp(REWARDS.0, REWARDS.1);
            state.squares *= factor * factor;
        }
    }

    /// What a try can count for: there is a best to speak of after a few steps, if any arm was tried that is still offered.
    fn reward_max(&self) -> f64 {
        let best = self.best();
        match self.steps >= 5 && best >= REWARDS.0 {
            true => BEST_GROWTH_MAX * best,
            false => REWARDS.1,
        }
    }

    /// The arm is not what it was: the others need not be either.
    fn doubt_others(&mut self, changed: usize) {
        let may_pardon = self.pardons < PARDONS_MAX;
        self.pardons += u8::from(may_pardon);
        let others = self.arms.iter_mut().enumerate();
        for (_, state) in others.filter(|(at, state)| *at != changed && state.tries > 0) {
            state.doubted = true;
            if may_pardon && state.disasters >= DISASTERS_MAX {
                state.disasters = DISASTERS_MAX - 1;
            }
        }
    }

    fn greedy(
        &self,
        best: usize,
        order: &[usize],
        epsilon: f64,
        random: &mut Random,
    ) -> (usize, Reason) {
        // What was never seen is no place to explore.
        if self.steps == 0 {
            return (order.first().copied().unwrap_or(0), Reason::Untried);
        }
        if chance(random) < epsilon {
            let open: Vec<usize> = (0..self.arms.len())
                .filter(|at| !self.is_barred(*at))
                .collect();
            let at = random.below(open.len() as u64) as usize;
            return (open.get(at).copied().unwrap_or(best), Reason::Explored);
        }
        (best, Reason::Best)
    }

    fn untried(&self, order: &[usize]) -> Option<usize> {
        let mut all = order.iter().copied().chain(0..self.arms.len());
        all.find(|at| self.arms.get(*at).is_some_and(|it| self.is_open(it)))
    }

    /// Whether it was never tried, and not given up lately.
    fn is_open(&self, arm: &ArmState) -> bool {
        let given_up = arm.last > 0 && self.steps - arm.last.min(self.steps) < GIVEN_UP;
        arm.tries == 0 && !given_up
    }

    /// An arm cannot be judged here: it is left alone for now, as if it had just been tried. Where nothing was judged at all there is nothing
    /// better.
    pub(crate) fn give_up(&mut self, arm: usize) {
        let now = self.steps;
        if let Some(state) = self.arms.get_mut(arm) {
            state.last = now;
            (state.doubted, state.surprises) = (false, 0);
        }
    }

    /// An arm that was never tried and that nothing is expected of either; the very first in any case.
    fn unexpected(&self, order: &[usize]) -> Option<(usize, Reason)> {
        let mut all = order.iter().copied().chain(0..self.arms.len());
        let is_one = |at: &usize| {
            let state = self.arms.get(*at);
            state.is_some_and(|it| self.is_open(it) && (self.steps == 0 || it.expected == 0.0))
        };
        all.find(is_one).map(|at| (at, Reason::Untried))
    }

    /// An arm that so little is expected of that it may never be drawn, once there were steps enough to afford a look at it: the
    /// most promising one first.
    fn overlooked(&self) -> Option<(usize, Reason)> {
        let untried = (0..self.arms.len()).filter(|at| self.is_open(&self.arms[*at]));
        let better =
            |best: usize, at: usize| match self.arms[at].expected > self.arms[best].expected {
                true => at,
                false => best,
            };
        let next = untried.reduce(better)?;
        let is_paid = |(at, arm): &(usize, &ArmState)| arm.tries > 0 || *at == next;
        let paid = self.arms.iter().enumerate().filter(is_paid);
        let cost: f64 = paid.map(|(_, arm)| 1.0 - arm.expected).sum();
        let is_due = FIRST_COST * f64::from(self.steps) >= cost;
        is_due.then_some((next, Reason::Untried))
    }

    /// The arm whose true average is drawn the greatest, by what is known of it or expected.
    fn drawn(&self, best: usize, patience: u32, random: &mut Random) -> (usize, Reason) {
        let (noise, scale) = (self.noise(), self.scale());
        let (picked, reason) = self.greatest(best, |_, state| match state.tries {
            0 if !self.is_open(state) => f64::NEG_INFINITY,
            0 => draw(scale * state.expected, NOISE_EXPECTED, 1.0, random),
            _ => draw(
                state.mean,
                noise,
                state.certainty(self.steps, patience),
                random,
            ),
        });
        match self.arms[picked].tries {
            0 => (picked, Reason::Untried),
            _ => (picked, reason),
        }
    }

    /// Bytes per busy second of what is expected to be 1, by the arms that were tried.
    fn scale(&self) -> f64 {
        let both = self
            .arms
            .iter()
            .filter(|arm| arm.tries > 0 && arm.expected > 0.0);
        let (means, expected) = both.fold((0.0, 0.0), |(means, expected), arm| {
            (means + arm.mean, expected + arm.expected)
        });
        match expected > 0.0 {
            true => means / expected,
            false => self.best(),
        }
    }

    /// The average of each arm as a share of the best; 0 of those that were never tried.
    pub(crate) fn shares(&self) -> impl Iterator<Item = f64> + '_ {
        (0..self.arms.len()).map(|at| self.value(at).unwrap_or(0.0))
    }

    /// The same as [`Bandit::expect`], of arms that were not tried and that something is known of by now.
    pub(crate) fn expect_of_untried(&mut self, shares: impl IntoIterator<Item = f64>) {
        let arms = self.arms.iter_mut().zip(shares);
        for (arm, share) in arms.filter(|(arm, share)| arm.tries == 0 && *share > 0.0) {
            arm.expected = share.min(1.0);
        }
    }

    /// What shares of the best are expected of arms, from a similar context. 0 is nothing.
    pub fn expect(&mut self, shares: impl IntoIterator<Item = f64>) {
        for (arm, share) in self.arms.iter_mut().zip(shares) {
            arm.expected = share.clamp(0.0, 1.0);
        }
    }

    /// An arm that has just been a surprise: was it one?
    fn surprising(&self) -> Option<(usize, Reason)> {
        let is_one = |state: &ArmState| state.surprises == 1 && state.last == self.steps;
        let at = self.arms.iter().position(is_one)?;
        (!self.is_barred(at)).then_some((at, Reason::Explored))
    }

    /// The second best, if nothing but the best was tried for long.
    fn probed(&self, best: usize) -> Option<(usize, Reason)> {
        let others = (0..self.arms.len()).filter(|at| *at != best && !self.is_barred(*at));
        let second = others.reduce(|one, at| self.better(one, at))?;
        let others = (0..self.arms.len()).filter(|at| *at != best);
        self.is_affordable(second, others)
            .then_some((second, Reason::Explored))
    }

    /// The most promising of the arms that are doubted, if there are any: every other time if it may be good, else when that can be
    /// afforded.
    fn doubtful(&self, best: usize, random: &mut Random) -> Option<(usize, Reason)> {
        let doubted = |at: &usize| self.arms[*at].doubted && !self.is_barred(*at);
        let others = (0..self.arms.len()).filter(|at| *at != best);
        let most = others
            .filter(doubted)
            .reduce(|one, at| self.better(one, at))?;
        let is_hopeless = |at: usize| self.value(at).is_none_or(|value| value < DISASTER);
        let is_due = match is_hopeless(most) {
            true => {
                // However often good ones are tried in between.
                let hopeless = (0..self.arms.len()).filter(|at| is_hopeless(*at));
                self.is_affordable(most, hopeless)
            }
            false => chance(random) < 0.5,
        };
        is_due.then_some((most, Reason::Explored))
    }

    /// Whether none of these was tried for long enough to try this one.
    fn is_affordable(&self, arm: usize, others: impl Iterator<Item = usize>) -> bool {
        let last = others.map(|at| self.arms[at].last).max().unwrap_or(0);
        let loss = 1.0 - self.value(arm).unwrap_or(0.0);
        let patience = f64::from(PROBE).max(loss / PROBE_COST) * f64::from(1 << self.harm);
        f64::from(self.steps.saturating_sub(last)) >= patience
    }

    /// The one of two arms with the greater average; of equal ones the first.
    fn better(&self, one: usize, other: usize) -> usize {
        match self.arms[other].mean > self.arms[one].mean {
            true => other,
            false => one,
        }
    }

    /// The best average; of equal ones the first.
    fn best_arm(&self) -> usize {
        (1..self.arms.len()).fold(0, |one, at| self.better(one, at))
    }

    /// The arm that is not barred with the greatest of something. The best arm is never barred.
    fn greatest(
        &self,
        best: usize,
        mut of: impl FnMut(usize, &ArmState) -> f64,
    ) -> (usize, Reason) {
        let mut chosen = (best, f64::NEG_INFINITY);
        for (at, state) in self.arms.iter().enumerate() {
            let this = of(at, state);
            if this > chosen.1 && !self.is_barred(at) {
                chosen = (at, this);
            }
        }
        let reason = match chosen.0 == best {
            true => Reason::Best,
            false => Reason::Explored,
        };
        (chosen.0, reason)
    }

    /// The standard deviation of a try, as a share of the arm's average.
    fn noise(&self) -> f64 {
        let prior = (NOISE * NOISE * NOISE_TRIES, NOISE_TRIES);
        let tried = self.arms.iter().filter(|arm| arm.weight > 1.0);
        let (squares, tries) = tried.fold(prior, |(squares, tries), arm| {
            let relative = arm.squares / (arm.mean * arm.mean).max(f64::MIN_POSITIVE);
            (squares + relative, tries + arm.weight - 1.0)
        });
        (squares / tries).sqrt()
    }
}

impl ArmState {
    /// One more for the average, which is over at most `window` tries.
    fn average(&mut self, value: f64, window: f64) {
        let kept = match self.weight + 1.0 > window {
            true => (window - 1.0) / self.weight,
            false => 1.0,
        };
        self.weight = self.weight * kept + 1.0;
        self.squares *= kept;
        let off = value - self.mean;
        self.mean += off / self.weight;
        self.squares += off * (value - self.mean);
    }

    /// The same, unless the arm is not what it was: then it is learned anew.
    fn follow(&mut self, value: f64, noise: f64, window: f64) -> Followed {
        let spread = SURPRISE * noise * self.mean * (1.0 + 1.0 / self.weight.max(1.0)).sqrt();
        let is_surprise = self.tries > 1 && (value - self.mean).abs() > spread;
        self.surprises = if is_surprise {
            self.surprises.saturating_add(1)
        } else {
            0
        };
        let was_doubted = std::mem::take(&mut self.doubted);
        if self.surprises < 2 && !(is_surprise && was_doubted) {
            // A surprise that stays alone leaves no mark on an average that many tries have made.
            if !(is_surprise && self.weight >= 4.0) {
                self.average(value, window);
            }
            return Followed::AsBefore;
        }
        let is_news = self.weight >= 4.0;
        (self.weight, self.mean, self.squares) = (1.0, value, 0.0);
        self.surprises = 0;
        match (was_doubted, is_news) {
            (true, _) => Followed::WasDoubted,
            (false, true) => Followed::Changed,
            (false, false) => Followed::AsBefore,
        }
    }

    /// For how many tries it counts now.
    fn certainty(&self, now: u32, patience: u32) -> f64 {
        let idle = f64::from(now.saturating_sub(self.last)) / f64::from(patience.max(1));
        self.weight * libm::exp2(-idle)
    }
}

/// A number from 0 up to 1.
fn chance(random: &mut Random) -> f64 {
    (random.number() >> 11) as f64 / (1_u64 << 53) as f64
}

/// A draw of what an arm's true average may be.
fn draw(mean: f64, noise: f64, weight: f64, random: &mut Random) -> f64 {
    mean * (1.0 + noise * normal(random) / weight.max(1e-6).sqrt())
}

/// A number that is normally distributed: twelve uniform ones, which needs no function that machines compute differently.
fn normal(random: &mut Random) -> f64 {
    (0..12).map(|_| chance(random)).sum::<f64>() - 6.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, prop, prop_assert, proptest};

    const ALL: [Strategy; 5] = [
        Strategy::Greedy { epsilon: 0.15 },
        Strategy::Decaying {
            epsilon: 0.3,
            half: 20.0,
        },
        Strategy::Ucb1 { width: 0.1 },
        Strategy::Thompson,
        Strategy::Windowed {
            window: 32,
            patience: 500,
        },
    ];

    /// Plays so many steps against arms of these means with this noise; the share of the best that was got in the last half.
    fn play(bandit: &mut Bandit, strategy: &Strategy, means: &[f64], steps: u32, seed: u64) -> f64 {
        let mut random = Random::new(seed);
        let best = means.iter().copied().fold(0.0, f64::max);
        let mut got = 0.0;
        for step in 0..steps {
            let (arm, _) = bandit.pick(strategy, &[], &mut random);
            let value = means[arm] * (1.0 + 0.03 * normal(&mut random));
            bandit.learn(strategy, arm, value);
            got += if step >= steps / 2 {
                means[arm] / best
            } else {
                0.0
            };
        }
        got / f64::from(steps - steps / 2)
    }

    const MEANS: [f64; 7] = [60e6, 75e6, 90e6, 100e6, 80e6, 55e6, 40e6];

    #[test]
    fn every_strategy_finds_the_best_arm() {
        for strategy in ALL {
            for seed in 0..20 {
                let mut bandit = Bandit::new(7);
                play(&mut bandit, &strategy, &MEANS, 400, seed);
                assert_eq!(bandit.best_arm(), 3, "{strategy} {seed}");
            }
        }
    }

    #[test]
    fn ours_gets_98_percent_within_100_steps() {
        for strategy in &ALL[2..] {
            for seed in 0..50 {
                let share = play(&mut Bandit::new(7), strategy, &MEANS, 100, seed);
                assert!(share > 0.98, "{strategy} {seed}: {share}");
            }
        }
    }

    #[test]
    fn sample_averages_are_as_published() {
        let greedy = Strategy::Greedy { epsilon: 0.1 };
        let mut bandit = Bandit::new(2);
        for value in [4.0, 8.0, 6.0] {
            assert!(bandit.learn(&greedy, 1, value));
        }
        assert_eq!((bandit.arms[1].mean, bandit.value(0)), (6.0, None));
        assert_eq!((bandit.value(1), bandit.steps()), (Some(1.0), 3));
    }

    #[test]
    fn what_is_no_reward_is_not_learned() {
        let mut bandit = Bandit::new(2);
        for value in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
            assert!(!bandit.learn(&Strategy::Thompson, 0, value));
        }
        assert!(!bandit.learn(&Strategy::Thompson, 2, 1.0));
        assert_eq!(bandit, Bandit::new(2));
    }

    #[test]
    fn one_huge_reward_does_not_move_what_many_have_told() {
        let strategy = Strategy::default();
        let mut bandit = Bandit::new(7);
        play(&mut bandit, &strategy, &MEANS, 200, 1);
        bandit.learn(&strategy, 6, 1e300);
        play(&mut bandit, &strategy, &MEANS, 60, 2);
        assert_eq!(bandit.best_arm(), 3);
    }

    #[test]
    fn a_disaster_is_repeated_a_bounded_number_of_times() {
        for strategy in ALL {
            let mut bandit = Bandit::new(3);
            play(&mut bandit, &strategy, &[100e6, 95e6, 20e6], 3000, 3);
            // What was tried before anything better was known is none.
            let disasters = bandit.arms[2].disasters;
            assert!(disasters <= DISASTERS_MAX, "{strategy}: {disasters}");
        }
    }

    #[test]
    fn a_disaster_is_bounded_even_where_the_world_changes_for_ever() {
        let strategy = Strategy::default();
        let mut bandit = Bandit::new(3);
        for turn in 0..200 {
            let factor = if turn % 2 == 0 { 1.0 } else { 0.3 };
            let means = [100e6, 95e6, 20e6].map(|mean| mean * factor);
            play(&mut bandit, &strategy, &means, 50, turn);
        }
        let most = u32::from(DISASTERS_MAX + 2 * PARDONS_MAX) + 2;
        assert!(bandit.arms[2].tries <= most, "{}", bandit.arms[2].tries);
    }

    #[test]
    fn drift_is_followed_by_the_windowed_one_and_not_by_sample_averages() {
        let moved: Vec<f64> = MEANS.iter().rev().copied().collect();
        let after = |strategy: &Strategy, seed| {
            let mut bandit = Bandit::new(7);
            play(&mut bandit, strategy, &MEANS, 1000, seed);
            play(&mut bandit, strategy, &moved, 200, seed + 1);
            play(&mut bandit, strategy, &moved, 100, seed + 2)
        };
        for seed in 0..20 {
            // The arm that was best gives 100 % in both: its neighbours changed places. So move the best one as well.
            let share = after(&Strategy::default(), seed);
            assert!(share > 0.97, "{seed}: {share}");
        }
        let mut turned = MEANS;
        turned.swap(3, 0);
        for seed in 0..20 {
            let mut ours = Bandit::new(7);
            play(&mut ours, &Strategy::default(), &MEANS, 1000, seed);
            play(&mut ours, &Strategy::default(), &turned, 100, seed + 1);
            let share = play(&mut ours, &Strategy::default(), &turned, 100, seed + 2);
            assert!(share > 0.97, "{seed}: {share}");
        }
    }

    #[test]
    fn a_change_that_does_not_show_in_the_best_arm_is_noticed() {
        // The fourth arm gives what it gave; the third, which is looked at now and then, does not.
        let after = [60e6, 75e6, 160e6, 100e6, 80e6, 55e6, 40e6];
        let strategy = Strategy::default();
        let share = |seed: u64| {
            let mut bandit = Bandit::new(MEANS.len());
            play(&mut bandit, &strategy, &MEANS, 300, seed);
            play(&mut bandit, &strategy, &after, 200, seed + 100)
        };
        let mean = (0..20).map(share).sum::<f64>() / 20.0;
        assert!(mean > 0.98, "{mean}");
    }

    #[test]
    fn a_hopeless_arm_that_is_the_best_of_a_changed_world_is_found() {
        let mut after = MEANS.map(|mean| mean / 2.0);
        after[6] = 80e6;
        let strategy = Strategy::default();
        for seed in 0..20 {
            let mut bandit = Bandit::new(MEANS.len());
            play(&mut bandit, &strategy, &MEANS, 300, seed);
            play(&mut bandit, &strategy, &after, 500, seed + 100);
            assert_eq!(bandit.best_arm(), 6, "{seed}");
        }
    }

    #[test]
    fn an_arm_that_gets_worse_below_the_best_makes_nobody_doubt_the_others() {
        let strategy = Strategy::default();
        let mut bandit = Bandit::new(MEANS.len());
        play(&mut bandit, &strategy, &MEANS, 300, 1);
        let before = bandit.clone();
        for _ in 0..6 {
            bandit.learn(&strategy, 2, 30e6);
        }
        assert!((bandit.arms[2].mean - 30e6).abs() < 1e6, "it is learned");
        assert_eq!(bandit.pardons, before.pardons);
        assert!(bandit.arms.iter().all(|arm| !arm.doubted));
        // The same arm above the best is news for all.
        for _ in 0..2 {
            bandit.learn(&strategy, 2, 150e6);
        }
        assert!(bandit.arms[3].doubted);
    }

    #[test]
    fn an_arm_that_is_wrongly_expected_to_be_bad_is_found() {
        let expected = [1.0, 0.9, 0.8, 0.6, 0.5, 0.3];
        let mut means = expected.map(|share| share * 100e6);
        means[5] = 150e6;
        let strategies = [Strategy::Thompson, Strategy::default()];
        for (strategy, seed) in strategies
            .iter()
            .flat_map(|it| (0..20).map(move |seed| (it, seed)))
        {
            let mut bandit = Bandit::new(6);
            bandit.expect(expected);
            play(&mut bandit, strategy, &means, 250, seed);
            assert_eq!(bandit.best_arm(), 5, "{strategy} {seed}");
        }
    }

    #[test]
    fn what_is_rightly_expected_to_be_bad_is_tried_once_and_costs_little() {
        let expected = [1.0, 0.9, 0.8, 0.6, 0.5, 0.3];
        let means = expected.map(|share| share * 100e6);
        for strategy in [Strategy::Thompson, Strategy::default()] {
            let share = |seed: u64| {
                let mut bandit = Bandit::new(6);
                bandit.expect(expected);
                let share = play(&mut bandit, &strategy, &means, 100, seed);
                play(&mut bandit, &strategy, &means, 300, seed + 100);
                assert!(bandit.arms.iter().all(|arm| arm.tries > 0));
                assert!(bandit.arms[5].tries <= 2, "{}", bandit.arms[5].tries);
                share
            };
            let mean = (0..20).map(share).sum::<f64>() / 20.0;
            assert!(mean > 0.98, "{strategy}: {mean}");
        }
    }

    #[test]
    fn disasters_of_what_turns_out_to_be_one_workload_add_up() {
        let strategy = Strategy::default();
        let bandit = |disasters: u8| {
            let mut bandit = Bandit::new(2);
            bandit.learn(&strategy, 0, 100e6);
            (0..disasters).for_each(|_| _ = bandit.learn(&strategy, 1, 10e6));
            bandit
        };
        let (mut one, other) = (bandit(2), bandit(1));
        assert!(!one.is_barred(1) && !other.is_barred(1));
        one.take_over(&other);
        assert!(one.is_barred(1));
    }

    #[test]
    fn slow_periods_that_whatever_is_in_force_suffers_cost_little() {
        // Now and then the storage is slow for two or three periods, as another program's backup makes it.
        let strategy = Strategy::default();
        let share = |seed: u64| {
            let mut bandit = Bandit::new(MEANS.len());
            let (mut random, mut slow, mut got) = (Random::new(seed), 0, 0.0);
            for step in 0..1000 {
                if slow == 0 && chance(&mut random) < 0.02 {
                    slow = 2 + random.below(2);
                }
                let (arm, _) = bandit.pick(&strategy, &[], &mut random);
                let factor = if slow > 0 { 0.6 } else { 1.0 };
                slow = slow.saturating_sub(1);
                let value = MEANS[arm] * factor * (1.0 + 0.03 * normal(&mut random));
                bandit.learn(&strategy, arm, value);
                got += if step >= 500 { MEANS[arm] / 100e6 } else { 0.0 };
            }
            got / 500.0
        };
        let mean = (0..20).map(share).sum::<f64>() / 20.0;
        assert!(mean > 0.96, "{mean}");
    }

    #[test]
    fn what_was_never_seen_gets_the_first_in_order_whatever_the_strategy() {
        let explores_always = Strategy::Greedy { epsilon: 1.0 };
        for strategy in ALL.into_iter().chain([explores_always]) {
            for seed in 0..100 {
                let picked = Bandit::new(7).pick(&strategy, &[3, 1], &mut Random::new(seed));
                assert_eq!(picked, (3, Reason::Untried), "{strategy} {seed}");
            }
        }
    }

    #[test]
    fn a_bandit_none_of_whose_arms_was_tried_learns_all_the_same() {
        for strategy in ALL {
            let mut bandit = Bandit::new(2);
            bandit.steps = 5;
            assert!(bandit.learn(&strategy, 1, 1e6), "{strategy}");
            assert_eq!(bandit.best(), 1e6, "{strategy}");
        }
    }

    #[test]
    fn strategies_are_written_as_they_are_read() {
        for strategy in ALL {
            assert_eq!(strategy.to_string().parse(), Ok(strategy));
        }
        for text in [
            "",
            "greedy",
            "greedy:2",
            "greedy:x",
            "ucb1:-1",
            "windowed:0:1",
            "best",
        ] {
            assert!(text.parse::<Strategy>().is_err(), "{text}");
        }
    }

    proptest! {
        /// Whatever comes in: an arm of the list comes out, values stay finite, no barred arm is picked.
        #[test]
        fn no_reward_breaks_a_bandit(
            which in 0_usize..5,
            tries in prop::collection::vec((0_usize..4, prop::num::f64::ANY), 0..200),
            seed in any::<u64>(),
        ) {
            let (mut bandit, mut random) = (Bandit::new(4), Random::new(seed));
            for (arm, value) in tries {
                bandit.learn(&ALL[which], arm, value);
                let (picked, _) = bandit.pick(&ALL[which], &[2, 9], &mut random);
                prop_assert!(picked < 4 && !bandit.is_barred(picked));
                prop_assert!(bandit.arms.iter().all(|arm| arm.mean.is_finite() && arm.mean >= 0.0));
            }
        }
    }
}
