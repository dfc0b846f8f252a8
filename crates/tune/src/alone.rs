//! A node without a council: the same for one node, period by period. It learns from what it sees ([`Alone::hear`]), says what to do
//! ([`Alone::choose`]), and, when another workload begins, what that should begin with ([`Alone::begins`]).

use crate::arm::Arm;
use crate::context::Context;
use crate::council::{Evidence, RECOMPARED};
use crate::finder::{Feed, Finder, Past};
use crate::network::Detector;
use crate::tuner::{Choice, Tuner, Why};
use crate::watch::{Look, Observation};
use presagio_pattern::{KnowledgeBase, Pattern, PatternId};

/// See the module's header.
#[derive(Clone, Debug)]
pub struct Alone {
    tuner: Tuner,
    finder: Finder,
    past: Past,
    /// What is known of the beginnings of workloads, by what arrived; the last one first.
    begun: Vec<Begun>,
}

/// Of a workload that begins, told by what arrives.
#[derive(Clone, Debug)]
struct Begun {
    look: Look,
    /// What was last found best in it.
    best: Option<Arm>,
    /// What arms gave that were in force from its beginning on, for as long as they were: bytes per busy second. Clients that wait for their
    /// answers can keep what they met at first, so one that is tried later may give less.
    gave: Vec<(Arm, f64)>,
    /// The one that is in force since.
    since: Option<Arm>,
}

/// So many kinds of what arrives are told apart.
const LOOKS_MAX: usize = 32;

/// What a period adds to what an arm gave from the beginning on.
const NEWS: f64 = 0.25;

impl Alone {
    /// Decides by what this tuner has learned.
    pub fn new(tuner: Tuner, detector: Detector) -> Alone {
        Alone {
            tuner,
            finder: Finder::new(detector),
            past: Past::default(),
            begun: Vec::new(),
        }
    }

    /// Contexts are the patterns of this knowledge base, and not what can be counted.
    pub fn matching(mut self, known: KnowledgeBase) -> Alone {
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

    /// The last pattern, where contexts are patterns.
    pub fn pattern(&self) -> Option<PatternId> {
        self.past.pattern
    }

    /// What was learned.
    pub fn tuner(&self) -> &Tuner {
        &self.tuner
    }

    /// The same, to keep what changed.
    pub fn tuner_mut(&mut self) -> &mut Tuner {
        &mut self.tuner
    }

    /// A period is over: its context, and whether something was learned of the arm that was in force in all of it. The pattern is for a
    /// node whose contexts are patterns.
    pub fn hear(
        &mut self,
        seen: &Observation,
        pattern: Option<Pattern>,
        realised: Option<Arm>,
    ) -> (Option<Context>, Evidence) {
        if seen.check().is_err() {
            return (None, Evidence::NoContext);
        }
        let (context, like) = self.find(seen, pattern, realised);
        if let Some(context) = &context {
            self.tuner.meet(context, like.as_ref());
        }
        // A pattern that is none to remember: what can be counted says what suits it.
        let known = context.or(like);
        let evidence = match (known, realised, seen.reward()) {
            (_, None, _) => Evidence::Changed,
            (None, ..) => Evidence::NoContext,
            (_, _, None) => Evidence::Idle,
            (_, Some(arm), _) if self.tuner.settings().arms.place(arm).is_none() => {
                Evidence::UnknownArm
            }
            (_, Some(arm), Some(reward)) => {
                self.gave(arm, reward);
                for context in [context, like].iter().flatten() {
                    self.tuner.learn(context, arm, reward);
                }
                Evidence::Counts
            }
        };
        (known, evidence)
    }

    /// What to do in a context, where an arm is in force and this arrives.
    pub fn choose(
        &mut self,
        context: Option<&Context>,
        look: Option<Look>,
        in_force: Arm,
    ) -> Choice {
        let choice = self.tuner.choose(context, in_force);
        if let (Why::Best, Some(look)) = (choice.why, look) {
            self.begun_as(look).best = Some(choice.arm);
        }
        choice
    }

    /// The same where nothing is to be decided: the arm stays.
    pub fn stay(&self, context: Option<&Context>, in_force: Arm) -> Choice {
        Choice {
            arm: in_force,
            why: context.map_or(Why::NoInformation, |_| Why::Stays),
            candidates: context.map_or(Vec::new(), |it| self.tuner.candidates(it)),
        }
    }

    /// Something else arrives now: what should be in force, if such came before.
    pub fn begins(&mut self, look: Look) -> Option<Arm> {
        if let Some(last) = self.begun.first_mut() {
            last.since = None;
        }
        let begun = self.begun_as(look);
        let best = begun.best?;
        let untold = begun.gave.iter().all(|(arm, _)| *arm != best);
        let most = begun.gave.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let arm = most.filter(|_| !untold).map_or(best, |(arm, _)| *arm);
        begun.since = Some(arm);
        begun.since
    }

    /// What is known of the beginnings of such.
    fn begun_as(&mut self, look: Look) -> &mut Begun {
        let known = self.begun.iter().position(|it| it.look.is_like(look));
        let begun = match known {
            Some(at) => self.begun.remove(at),
            None => Begun {
                look,
                best: None,
                gave: Vec::new(),
                since: None,
            },
        };
        self.begun.truncate(LOOKS_MAX - 1);
        self.begun.insert(0, begun);
        &mut self.begun[0]
    }

    /// What an arm gave that was in force in a whole period.
    fn gave(&mut self, arm: Arm, reward: f64) {
        let Some(begun) = self.begun.first_mut().filter(|it| it.since.is_some()) else {
            return;
        };
        if begun.since != Some(arm) {
            begun.since = None;
            return;
        }
        match begun.gave.iter_mut().find(|(known, _)| *known == arm) {
            Some((_, gave)) => *gave += NEWS * (reward - *gave),
            None => begun.gave.push((arm, reward)),
        }
    }

    fn find(
        &mut self,
        seen: &Observation,
        pattern: Option<Pattern>,
        arm: Option<Arm>,
    ) -> (Option<Context>, Option<Context>) {
        let (finder, tuner) = (&mut self.finder, &mut self.tuner);
        for (merged, _) in finder.recompare(RECOMPARED, tuner) {
            self.past.rename(merged);
        }
        let feed = Feed {
            past: Some(&mut self.past),
            arm,
            // What is no arm's may be the end of one workload and the beginning of another.
            adds_nothing: arm.is_none(),
        };
        let found = finder.find((seen, pattern), 1, feed, tuner);
        if let (Some(known), Some((op, distance))) = (&mut finder.known, found.distance) {
            known.stretch(op, distance);
        }
        (found.context, found.like)
    }
}
