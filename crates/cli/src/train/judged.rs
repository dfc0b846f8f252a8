//! What was learned, held against situations that nothing was learned from.
//!
//! Trees choose once and for a whole run: what that takes is looked up. `policy = "auto"` is run, from begin to end: it begins
//! with what suits the device and decides in every period by what has arrived so far, as it does in an I/O node.

use super::{jobs, on_all_cores, part};
use crate::bench::{Bar, Report};
use crate::failure::failure;
use crate::progress::progress;
use crate::table::{Cell, Table};
use presagio_core::Op;
use presagio_sim::campaign::{Evaluation, Learned, PLATFORMS, POLICIES, Part, Plan, Task};
use presagio_sim::{Failed, PolicyChoice, Simulation};
use presagio_tune::Trees;
use presagio_tune::evaluate::{Verdict, judge, oracle};

/// How good what was learned from one seed is.
pub struct Judged {
    pub seed: u64,
    pub evaluation: Evaluation,
    /// `policy = "auto"`, beside the oracle and no scheduler.
    pub auto: Verdict,
    /// By platform and operation.
    pub groups: Vec<Group>,
}

/// The situations of a platform and an operation: how much longer than the oracle's makespans are, on average, as shares.
pub struct Group {
    pub device: &'static str,
    pub op: Op,
    /// The policy that is best alone here, which nobody knows beforehand.
    pub alone: (&'static str, f64),
    pub t3: f64,
    pub auto: f64,
}

impl Group {
    /// How many times as long as with T3 it takes with the best policy alone.
    pub fn alone_over_t3(&self) -> f64 {
        (1.0 + self.alone.1) / (1.0 + self.t3)
    }
}

impl Judged {
    pub fn of(
        plan: &Plan,
        taught: &Part,
        learned: &Learned,
        jobs: Option<usize>,
    ) -> anyhow::Result<Judged> {
        let held_out = part(plan, true, jobs)?;
        let auto = closed_loop(plan, &learned.trees()?, jobs)?;
        Ok(Judged {
            seed: plan.seed,
            evaluation: Evaluation::of(learned, taught, &held_out),
            auto: beside_all(&held_out, &auto),
            groups: groups(learned, &held_out, &auto),
        })
    }

    /// How much longer than the oracle the best policy alone is.
    fn alone(&self) -> (&str, f64) {
        self.evaluation.best_alone().unwrap_or(("none", f64::NAN))
    }

    fn t3(&self) -> (f64, f64) {
        self.evaluation.t3().unwrap_or((f64::NAN, f64::NAN))
    }
}

/// The makespan of each situation that was held out under `policy = "auto"`, in seconds: the mean of its repetitions.
fn closed_loop(plan: &Plan, trees: &Trees, given: Option<usize>) -> anyhow::Result<Vec<f64>> {
    // The tasks of any one policy are each situation with each of its seeds.
    let one_policy = |task: &Task| task.policy == PolicyChoice::None;
    let tasks: Vec<Task> = plan.tasks(true).into_iter().filter(one_policy).collect();
    let bar = progress(tasks.len() as u64);
    bar.set_message("policy = \"auto\"");
    let done = on_all_cores(&tasks, jobs(given), &bar, |task| seconds(task, trees));
    bar.finish_and_clear();
    let seconds = tasks.iter().zip(done).map(|(task, outcome)| {
        let outcome = outcome.ok_or_else(|| anyhow::anyhow!("a run is missing"))?;
        outcome.map_err(|error| failure("a run failed", task.situation.name(), error))
    });
    let seconds: Vec<f64> = seconds.collect::<anyhow::Result<_>>()?;
    let mean = |runs: &[f64]| runs.iter().sum::<f64>() / runs.len() as f64;
    Ok(seconds
        .chunks(plan.repeats.max(1) as usize)
        .map(mean)
        .collect())
}

fn seconds(task: &Task, trees: &Trees) -> Result<f64, Failed> {
    let scenario = task.situation.scenario(PolicyChoice::Auto, task.seed);
    let simulation = Simulation::new(&scenario).choosing_by(trees.clone());
    Ok(simulation.run()?.makespan.as_secs_f64())
}

/// The verdict on it, as if it were one more policy. Where it is faster than all others, the oracle takes it too.
fn beside_all(held_out: &Part, auto: &[f64]) -> Verdict {
    let makespans = held_out.rows().zip(auto);
    let makespans = makespans.map(|((_, _, each), auto)| [each, &[*auto]].concat());
    let makespans: Vec<Vec<f64>> = makespans.collect();
    judge(&makespans, &vec![POLICIES.len(); makespans.len()], 0)
}

fn groups(learned: &Learned, held_out: &Part, auto: &[f64]) -> Vec<Group> {
    let each = PLATFORMS.iter().flat_map(|platform| {
        let of = |op| group(learned, held_out, auto, platform.device, op);
        Op::ALL.map(of)
    });
    each.collect()
}

fn group(learned: &Learned, held_out: &Part, auto: &[f64], device: &'static str, op: Op) -> Group {
    let t3 = learned.selection.iter().find(|(tree, _)| tree.name == "T3");
    let (mut count, mut alone, mut chosen, mut live) = (0.0, [0.0; POLICIES.len()], 0.0, 0.0);
    for ((situation, known, each), auto) in held_out.rows().zip(auto) {
        if situation.platform.device != device || situation.op != op {
            continue;
        }
        let best = each[oracle(each)];
        let over = |seconds: f64| seconds / best - 1.0;
        let choice = t3.map_or(0, |(tree, _)| {
            tree.classify(&known.values(&tree.schema).unwrap_or_default())
        });
        count += 1.0;
        alone
            .iter_mut()
            .zip(each)
            .for_each(|(sum, s)| *sum += over(*s));
        chosen += over(each[choice]);
        live += over(*auto);
    }
    let best = oracle(&alone);
    Group {
        device,
        op,
        alone: (POLICIES[best].name(), alone[best] / count),
        t3: chosen / count,
        auto: live / count,
    }
}

/// What must hold for a seed.
pub fn bars(judged: &Judged) -> Vec<Bar> {
    let (t3, detected) = judged.t3();
    let (name, alone) = judged.alone();
    let auto = judged.auto.over_oracle;
    let beside = |over: f64| (1.0 + alone) / (1.0 + over);
    let right = judged.evaluation.detection_held_out.right();
    let groups = judged.groups.iter().map(Group::alone_over_t3);
    vec![
        Bar::at_least(
            "detection of four classes, held out",
            100.0 * right,
            "%",
            95.0,
        ),
        Bar::at_most("T3 over the oracle, held out", 100.0 * t3, "%", 3.0),
        Bar::at_most("the same, classes as detected", 100.0 * detected, "%", 3.0),
        Bar::at_most(
            "the same, policy = \"auto\" as it runs",
            100.0 * auto,
            "%",
            3.0,
        ),
        Bar::at_least(
            format!("best policy alone ({name}) over T3"),
            beside(t3),
            "",
            1.0,
        ),
        Bar::at_least("the same, classes as detected", beside(detected), "", 1.0),
        Bar::at_least(
            "the same, policy = \"auto\" as it runs",
            beside(auto),
            "",
            1.0,
        ),
        Bar::at_least(
            "best policy alone over T3, each platform and operation",
            groups.fold(f64::INFINITY, f64::min),
            "",
            1.0,
        ),
    ]
}

/// The worst of each bar, and the name with what it is the worst of.
pub fn worst(of_seeds: &[Vec<Bar>], among: &str) -> Vec<Bar> {
    let count = of_seeds.first().map_or(0, Vec::len);
    let worst = (0..count).filter_map(|at| {
        let bars = of_seeds.iter().filter_map(|bars| bars.get(at));
        let worst = bars.max_by(|a, b| badness(a).total_cmp(&badness(b)))?;
        let name = format!("{}{among}", worst.name);
        Some(Bar {
            name,
            ..worst.clone()
        })
    });
    worst.collect()
}

/// What is no number is worse than anything.
fn badness(bar: &Bar) -> f64 {
    match (&bar.value, bar.at_most) {
        (Ok(value), _) if value.is_nan() => f64::INFINITY,
        (Ok(value), true) => *value,
        (Ok(value), false) => -value,
        (Err(_), _) => f64::INFINITY,
    }
}

/// One row a seed: the figures that the bars are about.
pub fn seeds_table(all: &[Judged]) -> Table {
    let row = |judged: &Judged| {
        let (t3, detected) = judged.t3();
        let percent = |share: f64| Cell::Number(100.0 * share, 1);
        vec![
            Cell::Count(judged.seed),
            percent(judged.evaluation.detection_held_out.right()),
            percent(t3),
            percent(detected),
            percent(judged.auto.over_oracle),
            Cell::Text(judged.alone().0.to_owned()),
            percent(judged.alone().1),
        ]
    };
    Table {
        title: "By seed: classes detected, and makespans longer than the oracle's".to_owned(),
        columns: vec![
            ("seed", "seed"),
            ("detected_percent", "detected %"),
            ("t3_percent", "T3 longer %"),
            ("t3_detected_percent", "as detected %"),
            ("auto_percent", "auto as it runs %"),
            ("alone", "best alone"),
            ("alone_percent", "longer %"),
        ],
        rows: all.iter().map(row).collect(),
    }
}

/// Adds what is known of groups to a report.
pub fn add_groups(report: &mut Report, judged: &Judged) {
    let row = |group: &Group| {
        let percent = |share: f64| Cell::Number(100.0 * share, 1);
        vec![
            Cell::Text(group.device.to_owned()),
            Cell::Text(group.op.to_string()),
            Cell::Text(group.alone.0.to_owned()),
            percent(group.alone.1),
            percent(group.t3),
            percent(group.auto),
            Cell::Number(group.alone_over_t3(), 3),
        ]
    };
    let table = Table {
        title: "By platform and operation, held out: longer than the oracle".to_owned(),
        columns: vec![
            ("platform", "platform"),
            ("operation", "operation"),
            ("alone", "best alone here"),
            ("alone_percent", "longer %"),
            ("t3_percent", "T3 %"),
            ("auto_percent", "auto %"),
            ("alone_over_t3", "alone / T3"),
        ],
        rows: judged.groups.iter().map(row).collect(),
    };
    report.tables.push(("groups", table));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_of_several_bars_counts_whichever_way_it_is_meant() {
        let seed = |most: f64, least: f64| {
            vec![
                Bar::at_most("a", most, "", 3.0),
                Bar::at_least("b", least, "", 1.0),
            ]
        };
        let bars = worst(&[seed(1.0, 2.0), seed(2.5, 0.9), seed(2.0, 1.5)], ", worst");
        let values: Vec<f64> = bars.iter().map(|bar| bar.value.clone().unwrap()).collect();
        assert_eq!(values, [2.5, 0.9]);
        assert_eq!(bars[0].name, "a, worst");
        assert_eq!(bars[1].holds(), Some(false));
    }

    #[test]
    fn what_is_no_number_is_the_worst() {
        let seed = |value| vec![Bar::at_least("a", value, "", 1.0)];
        let bars = worst(&[seed(f64::NAN), seed(0.1)], "");
        assert_eq!(bars[0].holds(), Some(false));
        assert!(bars[0].value.clone().unwrap().is_nan());
    }
}
