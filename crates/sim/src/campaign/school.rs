//! From a campaign to trees, and how good they are (thesis 4.3, 6.1 and 6.2).
//!
//! A [`Plan`] lists runs; a [`Part`] has what came of those to learn from, another of those to be asked about, which have other
//! numbers of processes and other seeds. [`Learned`] are the trees, [`Evaluation`] holds them against the oracle.

use super::{Outcome, PLATFORMS, POLICIES, Situation, thinned};
use crate::Cpu;
use crate::scenario::PolicyChoice;
use presagio_core::Op;
use presagio_device::Model;
use presagio_tune::evaluate::{Confusion, Verdict, judge, oracle};
use presagio_tune::learn::{Case, Options, cross_validate, train};
use presagio_tune::{
    Class, DETECTION, Drive, FileMetrics, Period, Random, Schema, Selection, Tree, Trees,
    TreesError, majority_of,
};

/// What is run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Where all randomness comes from.
    pub seed: u64,
    /// Processes of each application, to learn from.
    pub processes: Vec<u32>,
    /// Processes that trees are asked about and did not learn from.
    pub held_out: Vec<u32>,
    /// Bytes of each process in a shared file.
    pub bytes: u64,
    /// Runs of each situation under each policy; their mean counts.
    pub repeats: u32,
    /// Whose scheduler it is.
    pub cpu: Cpu,
}

impl Plan {
    /// The campaign of chapter 6, with the numbers of processes of chapter 3: 288 situations, and 192 to be asked about.
    pub fn full(seed: u64) -> Plan {
        Plan {
            seed,
            processes: vec![8, 16, 32],
            held_out: vec![12, 24],
            bytes: 4 << 20,
            repeats: 2,
            cpu: Cpu::Presagio,
        }
    }

    /// Enough to notice a disaster.
    pub fn quick(seed: u64) -> Plan {
        Plan {
            processes: vec![8],
            held_out: vec![12],
            bytes: 512 << 10,
            repeats: 1,
            ..Plan::full(seed)
        }
    }

    /// The situations to learn from, or to be asked about.
    pub fn situations(&self, held_out: bool) -> Vec<Situation> {
        let processes = if held_out {
            &self.held_out
        } else {
            &self.processes
        };
        Situation::all(processes, self.bytes, self.cpu)
    }

    /// All runs, in the order in which [`Part::new`] wants what came of them.
    pub fn tasks(&self, held_out: bool) -> Vec<Task> {
        let mut random = Random::new(self.seed.wrapping_mul(2).wrapping_add(u64::from(held_out)));
        let mut tasks = Vec::new();
        for situation in self.situations(held_out) {
            for repeat in 0..self.repeats.max(1) {
                // All policies get the same requests.
                let seed = random.number() ^ u64::from(repeat);
                tasks.extend(POLICIES.map(|policy| Task {
                    situation: situation.clone(),
                    policy,
                    seed,
                }));
            }
        }
        tasks
    }
}

/// A run to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// What.
    pub situation: Situation,
    /// Scheduled how.
    pub policy: PolicyChoice,
    /// From this seed.
    pub seed: u64,
}

impl Task {
    /// Runs it.
    pub fn run(&self) -> Result<Outcome, crate::Failed> {
        let mut outcome = super::run(&self.situation, self.policy, self.seed)?;
        outcome.periods = thinned(&outcome.periods, PERIODS);
        Ok(outcome)
    }
}

/// Periods that are kept of a run, and files of them.
const PERIODS: usize = 4;
const FILES: usize = 8;

/// What came of some situations.
#[derive(Clone, Debug)]
pub struct Part {
    situations: Vec<Situation>,
    /// What is known of each.
    known: Vec<Selection>,
    /// By situation, then by policy: the mean, in seconds.
    makespans: Vec<Vec<f64>>,
    /// Files of all runs, with the number of their situation.
    files: Vec<(FileMetrics, usize)>,
    /// Periods of the runs without a scheduler, with the number of their situation.
    periods: Vec<(Period, usize)>,
}

impl Part {
    /// From what came of the tasks, in their order.
    pub fn new(plan: &Plan, held_out: bool, outcomes: &[Outcome]) -> Part {
        let situations = plan.situations(held_out);
        let mut drives = PLATFORMS.map(|platform| {
            let model = Model::named(platform.device);
            (platform, Drive::new(model.expect("a preset of ours")))
        });
        let mut known = |situation: &Situation| {
            let drive = drives.iter_mut().find(|d| d.0 == situation.platform);
            situation.selection(&mut drive.expect("one of the four").1)
        };
        let mut part = Part {
            known: situations.iter().map(&mut known).collect(),
            makespans: vec![vec![0.0; POLICIES.len()]; situations.len()],
            files: Vec::new(),
            periods: Vec::new(),
            situations,
        };
        let runs = POLICIES.len() * plan.repeats.max(1) as usize;
        for (at, outcome) in outcomes.iter().enumerate() {
            let (situation, policy) = (at / runs, at % POLICIES.len());
            let share = outcome.makespan.as_secs_f64() / f64::from(plan.repeats.max(1));
            part.makespans[situation][policy] += share;
            let files = outcome.files(FILES).into_iter();
            part.files.extend(files.map(|file| (file, situation)));
            if POLICIES[policy] == PolicyChoice::None {
                let periods = outcome.periods.iter().cloned();
                part.periods
                    .extend(periods.map(|period| (period, situation)));
            }
        }
        part
    }

    /// Its situations, what is known of each, and the makespans in seconds, by policy.
    pub fn rows(&self) -> impl Iterator<Item = (&Situation, &Selection, &[f64])> {
        let both = self.situations.iter().zip(&self.known);
        both.zip(&self.makespans)
            .map(|((situation, known), makespans)| (situation, known, makespans.as_slice()))
    }

    /// Files of some situations, and the situation of each.
    fn detection_cases(&self, wanted: impl Fn(usize) -> bool) -> (Vec<Case>, Vec<usize>) {
        let case = |(file, situation): &(FileMetrics, usize)| Case {
            values: file.values(),
            class: self.situations[*situation].class as usize,
            costs: Vec::new(),
        };
        let files = self.files.iter().filter(|(_, at)| wanted(*at));
        files.map(|file| (case(file), file.1)).unzip()
    }

    fn selection_cases(&self, schema: &Schema) -> Vec<Case> {
        let known = self.known.iter().enumerate();
        known
            .map(|(at, known)| self.case(schema, known, at))
            .collect()
    }

    /// What is known of a situation, or thought to be, and what each policy costs in it.
    fn case(&self, schema: &Schema, known: &Selection, situation: usize) -> Case {
        let makespans = &self.makespans[situation];
        let best = makespans[oracle(makespans)];
        let costs: Vec<f64> = makespans.iter().map(|took| took / best - 1.0).collect();
        // The simplest of those that are as good as the best.
        let class = costs.iter().position(|cost| *cost <= ALIKE);
        Case {
            values: known.values(schema).unwrap_or_default(),
            class: class.unwrap_or(0),
            costs,
        }
    }

    /// The periods of some situations as whoever decides while requests arrive sees them: the class as it was detected, the
    /// files that were counted; and the number of the situation.
    fn seen(&self, detection: &Tree, wanted: impl Fn(usize) -> bool) -> Vec<(Selection, usize)> {
        let periods = self.periods.iter().filter(|(_, at)| wanted(*at));
        let seen = periods.filter_map(|(period, at)| {
            let op = self.situations[*at].op;
            let known = Selection {
                class: Some(majority_of(detection, period, op)?.0),
                files: Some(period.accessed[op.index()]),
                ..self.known[*at].clone()
            };
            Some((known, *at))
        });
        seen.collect()
    }
}

/// Makespans that differ by less are the same.
const ALIKE: f64 = 0.005;

/// The trees of a campaign.
#[derive(Clone, Debug, PartialEq)]
pub struct Learned {
    /// Tells classes apart.
    pub detection: Tree,
    detection_price: f64,
    /// T1 to T5 and the one for whoever knows nothing of the device, for classes as they are.
    pub selection: Vec<(Tree, f64)>,
    /// Those that are of use while requests arrive, for classes as they are detected: where detection errs, they know.
    pub live: Vec<Tree>,
    seed: u64,
}

impl Learned {
    /// Learns from a part.
    pub fn from(part: &Part, seed: u64) -> Learned {
        let (cases, groups) = part.detection_cases(|_| true);
        let schema = FileMetrics::schema();
        let options = detecting(seed, groups);
        let (detection, detection_price) = train(DETECTION, &schema, &cases, &options);
        let learn = |(name, features): &(&str, &[&str])| {
            let schema = selecting_schema(features);
            let cases = part.selection_cases(&schema);
            train(name, &schema, &cases, &selecting(seed))
        };
        Learned {
            live: live(part, seed),
            detection,
            detection_price,
            selection: Selection::TREES.iter().map(learn).collect(),
            seed,
        }
    }

    /// Those that are of use while requests arrive.
    pub fn trees(&self) -> Result<Trees, TreesError> {
        Trees::new(self.detection.clone(), self.live.clone())
    }
}

fn selecting_schema(features: &[&str]) -> Schema {
    Selection::schema(features, &POLICIES.map(PolicyChoice::name))
}

/// The trees for classes as they are detected. What detects for them must not have seen the situation, or it would be
/// taken for better than it is: situations are dealt to folds, and each fold's classes come from the others' files.
fn live(part: &Part, seed: u64) -> Vec<Tree> {
    let metrics = FileMetrics::schema();
    let mut known: Vec<(Selection, usize)> = (0..FOLDS)
        .flat_map(|fold| {
            let inside = |situation: usize| situation % FOLDS != fold;
            let (cases, groups) = part.detection_cases(inside);
            let options = detecting(seed, groups);
            let (honest, _) = train(DETECTION, &metrics, &cases, &options);
            part.seen(&honest, |situation| !inside(situation))
        })
        .collect();
    // And the classes as they are, which are what most periods show: few periods were kept of each situation.
    let is = part.known.iter().cloned().enumerate();
    let is: Vec<(Selection, usize)> = is.map(|(at, known)| (known, at)).collect();
    (0..PERIODS).for_each(|_| known.extend(is.iter().cloned()));
    let learn = |name: &&str| {
        let (name, features) = Selection::TREES.iter().find(|(tree, _)| tree == name)?;
        let schema = selecting_schema(features);
        let cases = known
            .iter()
            .map(|(known, at)| part.case(&schema, known, *at));
        let cases: Vec<Case> = cases.collect();
        let groups = known.iter().map(|(_, situation)| *situation);
        let options = seeing(seed, groups.collect());
        Some(train(name, &schema, &cases, &options).0)
    };
    Selection::LIVE.iter().filter_map(learn).collect()
}

/// Parts that situations are dealt to.
const FOLDS: usize = 5;

fn seeing(seed: u64, groups: Vec<usize>) -> Options {
    Options {
        leaf_min: 4,
        seed,
        groups,
        ..Options::default()
    }
}

fn detecting(seed: u64, groups: Vec<usize>) -> Options {
    Options {
        leaf_min: 8,
        seed,
        groups,
        ..Options::default()
    }
}

fn selecting(seed: u64) -> Options {
    Options {
        leaf_min: 1,
        seed,
        ..Options::default()
    }
}

/// How good trees are.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// Files, by trees that were made without them (Tables 4.5 to 4.7).
    pub detection_validated: Confusion,
    /// Files of runs that nothing was learned from.
    pub detection_held_out: Confusion,
    /// By platform, then by operation: the share of periods whose majority is right (Table 6.6).
    pub majority: Vec<[f64; 2]>,
    /// By tree: its size in nodes and leaves, and what trees that were made without the case get wrong (Tables 6.1, 6.2).
    pub sizes: Vec<(String, usize, usize, f64)>,
    /// Each policy alone, and each tree, on what was learned from (Table 6.3).
    pub taught: Vec<(String, Verdict)>,
    /// On what was not, with the class as it is; and the tree T3 with the class as it was detected (6.2.2).
    pub held_out: Vec<(String, Verdict)>,
}

/// The solution whose classes were detected.
const DETECTED: &str = "T3, detected";

impl Evaluation {
    /// Holds what was learned against what it was learned from, and against what it was not.
    pub fn of(learned: &Learned, taught: &Part, held_out: &Part) -> Evaluation {
        let (cases, groups) = taught.detection_cases(|_| true);
        let answers = cross_validate(
            &FileMetrics::schema(),
            &cases,
            learned.detection_price,
            &detecting(learned.seed, groups),
        );
        let mut detection_validated = Confusion::new(Class::ALL.len());
        for (case, answer) in cases.iter().zip(answers) {
            detection_validated.add(case.class, answer);
        }
        let mut detection_held_out = Confusion::new(Class::ALL.len());
        for case in held_out.detection_cases(|_| true).0 {
            detection_held_out.add(case.class, learned.detection.classify(&case.values));
        }
        let size = |(tree, price): &(Tree, f64)| {
            let cases = taught.selection_cases(&tree.schema);
            let answers = cross_validate(&tree.schema, &cases, *price, &selecting(learned.seed));
            let wrong = |(case, answer): &(&Case, usize)| case.costs[*answer] > ALIKE;
            let wrong = cases.iter().zip(answers).filter(wrong).count();
            let rate = wrong as f64 / cases.len().max(1) as f64;
            (
                tree.name.clone(),
                tree.root.nodes(),
                tree.root.leaves(),
                rate,
            )
        };
        let mut after = solutions(learned, held_out);
        after.push((DETECTED.to_owned(), detected(learned, held_out)));
        Evaluation {
            detection_validated,
            detection_held_out,
            majority: majority(learned, held_out),
            sizes: learned.selection.iter().map(size).collect(),
            taught: solutions(learned, taught),
            held_out: after,
        }
    }

    /// The verdict on a solution for what was held out.
    pub fn verdict(&self, name: &str) -> Option<&Verdict> {
        let found = self.held_out.iter().find(|(other, _)| other == name);
        found.map(|(_, verdict)| verdict)
    }

    /// The policy that is best alone on what was held out, and how much longer than the oracle it takes.
    pub fn best_alone(&self) -> Option<(&str, f64)> {
        let alone = self.held_out.iter().take(POLICIES.len());
        let over = alone.map(|(name, verdict)| (name.as_str(), verdict.over_oracle));
        over.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// How much longer than the oracle T3 takes, with classes as they are and as they were detected.
    pub fn t3(&self) -> Option<(f64, f64)> {
        let of = |name| self.verdict(name).map(|verdict| verdict.over_oracle);
        Some((of("T3")?, of(DETECTED)?))
    }
}

/// Each policy alone, then each tree.
fn solutions(learned: &Learned, part: &Part) -> Vec<(String, Verdict)> {
    let alone = POLICIES.iter().enumerate().map(|(at, policy)| {
        let choices = vec![at; part.situations.len()];
        (
            policy.name().to_owned(),
            judge(&part.makespans, &choices, 0),
        )
    });
    let trees = learned.selection.iter().map(|(tree, _)| {
        let values = |known: &Selection| known.values(&tree.schema).unwrap_or_default();
        let choices: Vec<usize> = part
            .known
            .iter()
            .map(|k| tree.classify(&values(k)))
            .collect();
        (tree.name.clone(), judge(&part.makespans, &choices, 0))
    });
    alone.chain(trees).collect()
}

/// T3 with the class of each period as it was detected: every period is a decision.
fn detected(learned: &Learned, part: &Part) -> Verdict {
    let seen = part.seen(&learned.detection, |_| true);
    let t3 = learned.live.iter().find(|tree| tree.name == "T3");
    let choice = |tree: &Tree, known: &Selection| {
        tree.classify(&known.values(&tree.schema).unwrap_or_default())
    };
    let choices = seen
        .iter()
        .map(|(known, _)| t3.map_or(0, |tree| choice(tree, known)));
    let choices: Vec<usize> = choices.collect();
    let makespans = seen.iter().map(|seen| part.makespans[seen.1].clone());
    judge(&makespans.collect::<Vec<_>>(), &choices, 0)
}

fn majority(learned: &Learned, part: &Part) -> Vec<[f64; 2]> {
    let found = part.seen(&learned.detection, |_| true);
    let share = |device: &str, op: Op| {
        let of = found.iter().filter(|(_, at)| {
            let situation = &part.situations[*at];
            situation.platform.device == device && situation.op == op
        });
        let right = of.map(|(known, at)| known.class == Some(part.situations[*at].class));
        let right: Vec<bool> = right.collect();
        let count = right.iter().filter(|right| **right).count();
        count as f64 / right.len().max(1) as f64
    };
    PLATFORMS
        .map(|platform| {
            [
                share(platform.device, Op::Read),
                share(platform.device, Op::Write),
            ]
        })
        .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two platforms' worth of what a campaign is, small enough for a test.
    fn plan(seed: u64) -> Plan {
        Plan {
            processes: vec![4],
            held_out: vec![6],
            bytes: 512 << 10,
            repeats: 1,
            ..Plan::full(seed)
        }
    }

    fn part(plan: &Plan, held_out: bool) -> Part {
        let outcomes: Result<Vec<Outcome>, _> =
            plan.tasks(held_out).iter().map(Task::run).collect();
        Part::new(plan, held_out, &outcomes.expect("they run"))
    }

    #[test]
    fn a_campaign_is_repeated_from_its_seed_and_its_trees_beat_any_policy_alone() {
        let plan = plan(3);
        let taught = part(&plan, false);
        let learned = Learned::from(&taught, plan.seed);
        let again = Learned::from(&part(&plan, false), plan.seed);
        assert_eq!(learned, again);
        let trees = learned.trees().expect("they can be used");
        assert_eq!(Trees::from_text(&trees.to_text("")), Ok(trees));

        let evaluation = Evaluation::of(&learned, &taught, &part(&plan, true));
        let right = evaluation.detection_held_out.right();
        assert!(right > 0.8, "{right}: {:?}", evaluation.detection_held_out);
        let (t3, _) = evaluation.t3().expect("it was judged");
        let (name, alone) = evaluation.best_alone().expect("they were judged");
        assert!(t3 < 0.1 && t3 <= alone + 1e-9, "T3 {t3}, {name} {alone}");
        for (_, verdict) in &evaluation.taught[POLICIES.len()..] {
            assert!(verdict.over_oracle < 0.5, "{verdict:?}");
        }
    }

    #[test]
    fn another_seed_is_another_campaign() {
        let seeds = |seed| -> Vec<u64> { plan(seed).tasks(false).iter().map(|t| t.seed).collect() };
        assert_eq!(seeds(1), seeds(1));
        assert_ne!(seeds(1), seeds(2));
        let (learn, ask) = (plan(1).tasks(false), plan(1).tasks(true));
        assert!(
            learn
                .iter()
                .all(|task| ask.iter().all(|other| other.seed != task.seed))
        );
    }
}
