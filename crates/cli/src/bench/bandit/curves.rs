//! Learning curves: how often is the best window chosen, and what share of its performance is had? (001, VI-B, Fig. 7.)
//!
//! As in the paper a step draws its reward from what was measured with the chosen window, in the situation; detection is
//! perfect. Only situations whose best and worst window differ by half or more count.

use super::rewards::{Situation, campaign};
use crate::bench::{Bar, Effort, Report};
use crate::table::{Cell, Table};
use presagio_tune::{Arms, Bandit, Context, Random, Strategy, Tuner, TunerSettings};

const SPREAD_LEAST: f64 = 1.5;
const SHARE_LEAST: f64 = 98.0;

/// In the situation where it is least: periods with the same window may differ by more than windows do, and then a hundred steps are
/// few to tell windows apart by.
const SHARE_LEAST_ALONE: f64 = 90.0;

/// Steps of a game, and those by which it is judged.
const STEPS: usize = 300;
const JUDGED: std::ops::Range<usize> = 50..100;

/// The paper's.
const PUBLISHED: Strategy = Strategy::Greedy { epsilon: 0.15 };

fn strategies() -> Vec<Strategy> {
    vec![
        PUBLISHED,
        Strategy::Greedy { epsilon: 0.05 },
        Strategy::Decaying {
            epsilon: 0.3,
            half: 20.0,
        },
        Strategy::Ucb1 { width: 0.1 },
        Strategy::Thompson,
        Strategy::default(),
    ]
}

/// What came of games: by step, sums over all of them.
#[derive(Clone)]
struct Curve {
    games: f64,
    /// Shares of the best arm's performance.
    shares: Vec<f64>,
    /// How often it was the best.
    right: Vec<f64>,
}

impl Curve {
    fn new(steps: usize) -> Curve {
        Curve {
            games: 0.0,
            shares: vec![0.0; steps],
            right: vec![0.0; steps],
        }
    }

    fn count(&mut self, step: usize, situation: &Situation, arm: usize) {
        let best = situation.best();
        self.shares[step] += situation.mean(arm) / situation.mean(best);
        self.right[step] += f64::from(u8::from(arm == best));
    }

    fn percent(&self, of: &[f64], steps: std::ops::Range<usize>) -> f64 {
        let count = steps.len() as f64;
        100.0 * of[steps].iter().sum::<f64>() / self.games.max(1.0) / count
    }

    fn share(&self, steps: std::ops::Range<usize>) -> f64 {
        self.percent(&self.shares, steps)
    }

    fn right(&self, steps: std::ops::Range<usize>) -> f64 {
        self.percent(&self.right, steps)
    }

    /// Steps' worth of the best arm that were lost until a step.
    fn regret(&self, until: usize) -> f64 {
        until as f64 - self.shares[..until].iter().sum::<f64>() / self.games.max(1.0)
    }

    fn add(&mut self, other: &Curve) {
        self.games += other.games;
        let add = |to: &mut Vec<f64>, from: &[f64]| {
            to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        };
        add(&mut self.shares, &other.shares);
        add(&mut self.right, &other.right);
    }
}

pub fn measure(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let all = campaign(effort)?;
    let count = all.len();
    let apart = |situation: &Situation| situation.spread() >= SPREAD_LEAST;
    let situations: Vec<Situation> = all.into_iter().filter(apart).collect();
    let games = match effort {
        Effort::Full => 100,
        Effort::Quick => 20,
        Effort::Tiny => 2,
    };
    report.notes.push(format!(
        "{} of {count} simulated situations of paper 001 have a best and a worst window that differ {SPREAD_LEAST} times or \
         more; {games} games in each.",
        situations.len()
    ));
    let curves: Vec<(Strategy, Vec<Curve>)> = strategies()
        .into_iter()
        .map(|strategy| (strategy, play_all(&situations, &strategy, games)))
        .collect();
    report.tables.push(("curves", table(&curves)));
    let mut all = bars(&curves);
    report.notes.extend(one_by_one(&situations, &curves));
    all.push(side_by_side(&situations, games));
    all.push(drift(&situations, games));
    report.bars.extend(judged(all, &situations));
    Ok(())
}

/// Without a situation nothing was measured, whatever the figures say.
fn judged(bars: Vec<Bar>, situations: &[Situation]) -> Vec<Bar> {
    let why = format!("no situation has windows that differ {SPREAD_LEAST} times");
    let judged = |bar: Bar| match situations.is_empty() {
        true => bar.not_measured(&*why),
        false => bar,
    };
    bars.into_iter().map(judged).collect()
}

/// Games of a strategy in each situation.
fn play_all(situations: &[Situation], strategy: &Strategy, games: u64) -> Vec<Curve> {
    let of = |situation: &Situation| {
        let mut curve = Curve::new(STEPS);
        for game in 0..games {
            let mut bandit = Bandit::new(situation.rewards.len());
            play(&mut bandit, strategy, situation, game, &mut curve);
        }
        curve
    };
    situations.iter().map(of).collect()
}

fn play(
    bandit: &mut Bandit,
    strategy: &Strategy,
    situation: &Situation,
    game: u64,
    curve: &mut Curve,
) {
    let mut random = Random::new(game);
    curve.games += 1.0;
    let safe = Arms::windows().place(Arms::windows().safe()).unwrap_or(0);
    for step in 0..curve.shares.len() {
        let (arm, _) = bandit.pick(strategy, &[safe], &mut random);
        bandit.learn(strategy, arm, drawn(situation, arm, &mut random));
        curve.count(step, situation, arm);
    }
}

fn drawn(situation: &Situation, arm: usize, random: &mut Random) -> f64 {
    let rewards = &situation.rewards[arm];
    rewards[random.below(rewards.len() as u64) as usize]
}

fn together(curves: &[Curve]) -> Curve {
    let mut all = Curve::new(STEPS);
    curves.iter().for_each(|curve| all.add(curve));
    all
}

fn table(curves: &[(Strategy, Vec<Curve>)]) -> Table {
    let row = |(strategy, curves): &(Strategy, Vec<Curve>)| {
        let all = together(curves);
        vec![
            Cell::Text(strategy.to_string()),
            Cell::Number(all.share(0..25), 1),
            Cell::Number(all.share(25..50), 1),
            Cell::Number(all.share(JUDGED), 1),
            Cell::Number(all.share(100..STEPS), 1),
            Cell::maybe(Some(least(curves)).filter(|it| it.is_finite()), 1),
            Cell::Count(enough(curves) as u64),
            Cell::Number(all.right(JUDGED), 1),
            Cell::Number(all.right(100..STEPS), 1),
            Cell::Number(all.regret(100), 2),
            Cell::Number(all.regret(STEPS), 2),
        ]
    };
    Table {
        title: "Share of the best window's performance, and how often it is chosen, in percent"
            .into(),
        columns: vec![
            ("strategy", "strategy"),
            ("share_25", "steps 1-25"),
            ("share_50", "26-50"),
            ("share_100", "51-100"),
            ("share_300", "101-300"),
            ("share_100_least", "least 51-100"),
            ("enough_100", "situations with 98 %"),
            ("right_100", "right 51-100"),
            ("right_300", "101-300"),
            ("regret_100", "regret 100"),
            ("regret_300", "300"),
        ],
        rows: curves.iter().map(row).collect(),
    }
}

/// The curves of a strategy, one for each situation.
fn of(curves: &[(Strategy, Vec<Curve>)], wanted: Strategy) -> &[Curve] {
    let found = curves.iter().find(|(strategy, _)| *strategy == wanted);
    found.map_or(&[], |(_, curves)| curves)
}

/// The least share of the best window in any situation.
fn least(curves: &[Curve]) -> f64 {
    let shares = curves.iter().map(|curve| curve.share(JUDGED));
    shares.fold(f64::INFINITY, f64::min)
}

/// In how many situations enough of the best window is had.
fn enough(curves: &[Curve]) -> usize {
    let enough = curves.iter().filter(|it| it.share(JUDGED) >= SHARE_LEAST);
    enough.count()
}

/// In how many situations ours has what it has on average, and how much rewards scatter where it has least.
fn one_by_one(situations: &[Situation], curves: &[(Strategy, Vec<Curve>)]) -> Option<String> {
    let ours = of(curves, Strategy::default());
    let both = situations.iter().zip(ours);
    let worst = both.min_by(|a, b| a.1.share(JUDGED).total_cmp(&b.1.share(JUDGED)));
    let (situation, curve) = worst?;
    Some(format!(
        "Ours has {SHARE_LEAST} % of the best window in {} of {} situations in steps 51 to 100, and {:.1} % in the one where it has \
         least: there periods with the best window differ by {:.0} % (standard deviation), and the best window gives {:.2} times what the \
         worst does.",
        enough(ours),
        ours.len(),
        curve.share(JUDGED),
        100.0 * situation.scatter(),
        situation.spread(),
    ))
}

fn bars(curves: &[(Strategy, Vec<Curve>)]) -> Vec<Bar> {
    let (one_by_one, published) = (of(curves, Strategy::default()), of(curves, PUBLISHED));
    let (ours, published) = (together(one_by_one), together(published));
    vec![
        Bar::at_least(
            "ours: share of the best window, steps 51 to 100",
            ours.share(JUDGED),
            "%",
            SHARE_LEAST,
        ),
        Bar::at_least(
            "ours, where it has least: share of the best window, steps 51 to 100",
            least(one_by_one),
            "%",
            SHARE_LEAST_ALONE,
        ),
        Bar::at_most(
            "cumulative regret of ours over plain ε-greedy's, 300 steps",
            ours.regret(STEPS) / published.regret(STEPS),
            "",
            1.0,
        ),
    ]
}

/// Three contexts take turns: does each learn as it does alone?
fn side_by_side(situations: &[Situation], games: u64) -> Bar {
    let alone = together(&play_all(situations, &Strategy::default(), games));
    let mut beside = Curve::new(STEPS);
    for three in situations.chunks(3) {
        for game in 0..games {
            let mut tuner = Tuner::new(TunerSettings {
                arms: Arms::windows(),
                seed: game,
                ..TunerSettings::default()
            });
            let mut random = Random::new(game);
            beside.games += three.len() as f64;
            for step in 0..STEPS {
                for (number, situation) in three.iter().enumerate() {
                    turn(
                        &mut tuner,
                        number as u32,
                        situation,
                        step,
                        &mut random,
                        &mut beside,
                    );
                }
            }
        }
    }
    let apart = (alone.share(JUDGED) - beside.share(JUDGED)).abs();
    Bar::at_most(
        "three contexts in turns beside each alone, steps 51 to 100",
        apart,
        "points",
        1.0,
    )
}

fn turn(
    tuner: &mut Tuner,
    number: u32,
    situation: &Situation,
    step: usize,
    random: &mut Random,
    curve: &mut Curve,
) {
    let context = Context::Pattern(number);
    let chosen = tuner.choose(Some(&context), Arms::windows().safe()).arm;
    let arm = Arms::windows().place(chosen).unwrap_or(0);
    tuner.learn(&context, chosen, drawn(situation, arm, random));
    curve.count(step, situation, arm);
}

/// After 300 steps the same context gives what another situation with another best window gives.
fn drift(situations: &[Situation], games: u64) -> Bar {
    let mut after = Curve::new(STEPS);
    let strategy = Strategy::default();
    for (at, before) in situations.iter().enumerate() {
        let mut others = situations
            .iter()
            .cycle()
            .skip(at + 1)
            .take(situations.len());
        let Some(then) = others.find(|other| other.best() != before.best()) else {
            continue;
        };
        for game in 0..games {
            let mut bandit = Bandit::new(before.rewards.len());
            play(&mut bandit, &strategy, before, game, &mut Curve::new(STEPS));
            play(&mut bandit, &strategy, then, game + 1000, &mut after);
        }
    }
    let bar = Bar::at_least(
        "ours, after the context has changed: share of the new best window, steps 51 to 100",
        after.share(JUDGED),
        "%",
        SHARE_LEAST,
    );
    match after.games > 0.0 {
        true => bar,
        false => bar.not_measured("all situations have the same best window"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows around `best`, the worse the farther from it.
    fn situation(best: usize) -> Situation {
        let reward = |arm: usize| 1e8 * (1.0 - 0.12 * arm.abs_diff(best) as f64);
        Situation {
            rewards: (0..7).map(|arm| vec![reward(arm)]).collect(),
        }
    }

    fn all_bars(situations: &[Situation]) -> Vec<Bar> {
        let of = |strategy| (strategy, play_all(situations, &strategy, 2));
        let curves: Vec<(Strategy, Vec<Curve>)> = strategies().into_iter().map(of).collect();
        let mut all = bars(&curves);
        all.push(side_by_side(situations, 2));
        all.push(drift(situations, 2));
        judged(all, situations)
    }

    #[test]
    fn without_a_situation_no_bar_holds_or_breaks() {
        assert!(all_bars(&[]).iter().all(|bar| bar.holds().is_none()));
        let measured = all_bars(&[situation(1), situation(5)]);
        assert!(measured.iter().all(|bar| bar.holds().is_some()));
        let drift = all_bars(&[situation(1)]).pop().expect("the last one");
        assert_eq!(drift.holds(), None, "there is no other best window");
    }

    #[test]
    fn situations_in_which_enough_is_had_are_counted() {
        let curves = play_all(&[situation(1), situation(5)], &Strategy::default(), 2);
        assert_eq!(enough(&curves), 2);
        let worst = Curve {
            games: 1.0,
            ..Curve::new(STEPS)
        };
        assert_eq!(enough(&[worst]), 0);
    }
}
