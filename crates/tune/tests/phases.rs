//! A node that decides alone, whose workload changes every so many periods: what it gets of what the best arm of each phase gives.

use presagio_core::{FileId, Nanos, Op, Range, Request, RequestId};
use presagio_tune::{
    Alone, Arms, Arrived, Detector, Due, Ended, Features, Observation, Pulse, Tuner, TunerSettings,
    Watch,
};

const PERIOD: Nanos = Nanos::from_secs(1);
/// Moments of a period at which requests arrive and one looks what is due.
const TICKS: u64 = 64;
const PERIODS: u64 = 2000;

/// What each arm gives in each of two phases.
const READS: [f64; 7] = [80e6, 90e6, 100e6, 130e6, 90e6, 70e6, 60e6];
const WRITES: [f64; 7] = [80e6, 60e6, 70e6, 70e6, 120e6, 90e6, 60e6];

/// The share of the best in the second half, where phases are so many periods long. Both are one situation if their arms give the same.
/// Whatever is switched to later than at the beginning of a phase can leave clients out of step: all of it gives so much then.
fn share(phase: f64, gives: [[f64; 7]; 2], out_of_step: f64) -> f64 {
    let arms = Arms::windows();
    let tuner = Tuner::new(TunerSettings {
        arms: arms.clone(),
        ..TunerSettings::default()
    });
    let mut alone = Alone::new(tuner, Detector::shipped());
    let (mut watch, mut pulse) = (Watch::new(), Pulse::new(PERIOD, Nanos::ZERO));
    let (mut in_force, mut served, mut came) = (arms.safe(), Vec::new(), [0; 2]);
    let (mut got, mut best) = (0.0, 0.0);
    let is_one = gives[0] == gives[1];
    let (mut last, mut step) = (0, 1.0);
    for tick in 1..PERIODS * TICKS {
        let now = Nanos(tick * PERIOD.0 / TICKS);
        let number = (tick as f64 / TICKS as f64 / phase) as usize;
        let at = number % 2;
        if std::mem::replace(&mut last, number) != number {
            step = 1.0;
        }
        for _ in 0..20 {
            let range = Range::at(0, 4096);
            watch.arrived(&Request::new(RequestId(0), FileId(1), Op::ALL[at], range));
        }
        came[if is_one { 0 } else { at }] += 1;
        let speed = step * gives[at][arms.place(in_force).expect("one of them")];
        served.push(speed);
        if tick > PERIODS * TICKS / 2 {
            got += speed;
            best += gives[at].iter().copied().fold(0.0, f64::max);
        }
        let mut begin = || {
            let speeds = std::mem::take(&mut served);
            let mean = speeds.iter().sum::<f64>() / speeds.len().max(1) as f64;
            (mean, std::mem::take(&mut came))
        };
        match pulse.due(now) {
            Due::Settled => {
                pulse.begin(watch.glance(), now);
                begin();
            }
            Due::Ended => {
                let (speed, came) = begin();
                let ended = Ended {
                    reward: Some(speed),
                    glance: watch.glance(),
                    is_waiting: true,
                    is_unchanged: true,
                };
                let worth = pulse.end(ended, now).expect("enough comes");
                let seen = seen(Op::ALL[usize::from(came[1] > came[0])], speed);
                let realised = (worth.is_whole && worth.is_telling).then_some(in_force);
                let (context, _) = alone.hear(&seen, None, realised);
                if worth.may_choose {
                    let choice = alone.choose(context.as_ref(), pulse.look(), in_force);
                    if std::mem::replace(&mut in_force, choice.arm) != choice.arm {
                        pulse.switched(now);
                        step = out_of_step;
                    }
                }
            }
            Due::Nothing => {}
        }
        if let Some(look) = pulse.glance(watch.glance(), now) {
            (served, came) = (Vec::new(), [0; 2]);
            if let Some(known) = alone.begins(look) {
                in_force = known;
                pulse.switched(now);
            }
        }
    }
    got / best
}

fn seen(op: Op, speed: f64) -> Observation {
    Observation {
        period: PERIOD,
        busy: Nanos::from_secs(1),
        served: speed as u64,
        servers: 4,
        clients: 32,
        processes: 128,
        arrived: Some(Arrived {
            op,
            requests: 1280,
            features: Features {
                handles: 1,
                size_max: 4096,
                size_min: 4096,
                size_mean: 4096.0,
                distance: 1e6,
                stride: 1e6,
            },
        }),
    }
}

#[test]
fn phases_of_several_periods_each_get_their_best_arm() {
    for (phase, least) in [(2.6, 0.95), (3.0, 0.95), (10.0, 0.97), (50.0, 0.98)] {
        let share = share(phase, [READS, WRITES], 1.0);
        assert!(share > least, "phases of {phase} periods: {share}");
    }
}

#[test]
fn bursts_of_one_situation_do_not_keep_its_arms_from_being_judged() {
    for burst in [0.1, 0.5, 0.9, 1.5, 3.5] {
        let share = share(burst, [READS; 2], 1.0);
        assert!(share > 0.98, "bursts of {burst} periods: {share}");
    }
}

/// What is too short to be told apart gets what suits both.
#[test]
fn phases_that_are_too_short_get_what_suits_both() {
    for phase in [0.3, 0.7, 1.6, 2.0] {
        let share = share(phase, [READS, WRITES], 1.0);
        assert!(share > 0.75, "phases of {phase} periods: {share}");
    }
}

#[test]
fn what_is_lost_by_trying_is_not_lost_in_each_phase() {
    let share = share(20.0, [READS, WRITES], 0.6);
    assert!(share > 0.95, "{share}");
}
