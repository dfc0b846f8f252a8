//! What every policy promises, on random streams: see the auditor in `common`.
//!
//! Requests overlap, repeat, touch, are empty or huge; time comes in bursts and gaps; requests finish in any
//! order and are cancelled in any state.

mod common;

use common::stream::{
    Step, any_policy, check, crowded_steps, perform, run, settings, steps, steps_with_changes,
};
use common::{Audited, read, write};
use presagio_core::{Nanos, QueueId};
use presagio_sched::{Next, PolicyKind, Settings};
use proptest::prelude::*;

/// The random streams with the policy's default parameters but those that matter at this size.
fn check_policy(policy: PolicyKind) {
    let queues = |settings: Settings| Settings {
        queues: 5,
        ..settings
    };
    check(600, steps(), |steps| {
        drop(run(queues(Settings::new(policy)), &steps));
    });
    check(
        500,
        (settings(Just(policy)), steps()),
        |(settings, steps)| {
            drop(run(settings, &steps));
        },
    );
}

macro_rules! every_policy {
    ($($name:ident: $policy:ident,)*) => {$(
        #[test]
        fn $name() {
            check_policy(PolicyKind::$policy);
        }
    )*};
}

every_policy! {
    noop_keeps_all_promises: Noop,
    to_keeps_all_promises: To,
    to_agg_keeps_all_promises: ToAgg,
    sjf_keeps_all_promises: Sjf,
    mlf_keeps_all_promises: Mlf,
    aioli_keeps_all_promises: Aioli,
    sw_keeps_all_promises: Sw,
    twins_keeps_all_promises: Twins,
    wfq_keeps_all_promises: Wfq,
    hbrr_keeps_all_promises: Hbrr,
}

#[test]
fn every_policy_can_be_exchanged_for_every_other_in_mid_stream() {
    for from in PolicyKind::ALL {
        for to in PolicyKind::ALL.into_iter().filter(|to| *to != from) {
            let streams = (settings(Just(from)), settings(Just(to)), steps(), steps());
            check(60, streams, |(from, to, mut steps, rest)| {
                steps.push(Step::Configure(to));
                steps.extend(rest);
                drop(run(from, &steps));
            });
        }
    }
}

#[test]
fn a_switch_changes_nothing_but_the_policy() {
    for (from, to) in pairs() {
        check(80, (steps(), steps()), |(mut steps, rest)| {
            let from = Settings {
                queues: 5,
                ..Settings::new(from)
            };
            let to = Settings {
                policy: to,
                ..from.clone()
            };
            steps.push(Step::Configure(to));
            steps.extend(rest);
            drop(run(from, &steps));
        });
    }
}

fn pairs() -> impl Iterator<Item = (PolicyKind, PolicyKind)> {
    let all = PolicyKind::ALL;
    all.into_iter()
        .flat_map(move |a| all.map(|b| (a, b)))
        .filter(|(a, b)| a != b)
}

#[test]
fn every_parameter_can_change_at_any_time() {
    for policy in PolicyKind::ALL {
        let stream = proptest::collection::vec((settings(Just(policy)), steps()), 1..4);
        check(120, stream, |parts| {
            let first = parts[0].0.clone();
            let steps: Vec<Step> = parts
                .into_iter()
                .flat_map(|(settings, steps)| [vec![Step::Configure(settings)], steps].concat())
                .collect();
            drop(run(first, &steps));
        });
    }
}

#[test]
fn chains_of_switches_lose_repeat_and_overtake_nothing() {
    let streams = (settings(any_policy()), steps_with_changes());
    check(6000, streams, |(settings, steps)| {
        drop(run(settings, &steps));
    });
}

#[test]
fn promises_are_kept_where_hundreds_of_requests_overlap() {
    check(200, (any_policy(), crowded_steps()), |(policy, steps)| {
        drop(run(Settings::new(policy), &steps));
    });
}

#[test]
fn a_policy_that_returns_before_its_lane_has_run_dry_goes_on_with_it() {
    for (from, to) in pairs() {
        let mut audited = Audited::new(Settings::new(from));
        let there = Settings {
            policy: to,
            ..audited.settings()
        };
        let back = audited.settings();
        for round in 0..4u64 {
            for block in 0..8 {
                audited
                    .submit(write(block % 2, block * 8192 + round * 512, 512))
                    .unwrap();
            }
            audited.next();
            let settings = if round % 2 == 0 { &there } else { &back };
            audited.configure(settings.clone());
        }
        audited.settle();
    }
}

#[test]
fn the_same_calls_give_the_same_answers() {
    let streams = (settings(any_policy()), steps_with_changes());
    check(1000, streams, |(settings, steps)| {
        let first = run(settings.clone(), &steps).log;
        assert_eq!(first, run(settings, &steps).log);
    });
}

#[test]
fn a_clock_that_jumps_back_loses_nothing() {
    for policy in PolicyKind::ALL {
        let streams = proptest::collection::vec((steps(), 0..2_000_000_000u64), 1..4);
        check(80, streams, |parts| {
            let mut audited = Audited::new(Settings {
                queues: 5,
                ..Settings::new(policy)
            });
            for (steps, back) in parts {
                for step in steps {
                    match step {
                        Step::Submit(request) => drop(audited.submit(request)),
                        Step::Next => drop(audited.next()),
                        Step::Finish(pick) => audited.finish_some(pick),
                        Step::Advance(span) => audited.advance(span),
                        _ => audited.now = audited.now - Nanos(back),
                    }
                }
            }
            audited.settle();
        });
    }
}

#[test]
fn tickets_of_finished_and_cancelled_requests_are_void_though_their_places_are_used_again() {
    for policy in PolicyKind::ALL {
        let mut audited = Audited::new(Settings::new(policy));
        for round in 0..50 {
            let a = audited.submit(write(1, 0, 4096)).unwrap();
            let b = audited.submit(write(1, 0, 4096)).unwrap();
            assert!(!audited.finish(a), "not dispatched yet");
            assert!(audited.cancel(b), "held by the guard, and taken back");
            assert!(matches!(audited.next(), Next::Dispatch(_)));
            assert!(!audited.cancel(a), "dispatched");
            assert!(audited.finish(a) && !audited.finish(a));
            // The auditor asserts what each of these must answer.
            for old in 0..2 * round {
                assert!(!audited.finish(old) && !audited.cancel(old));
            }
        }
        audited.settle();
    }
}

#[test]
fn requests_are_held_until_those_they_overlap_are_finished_not_merely_dispatched() {
    for policy in PolicyKind::ALL {
        let mut audited = Audited::new(Settings::new(policy));
        let first = audited.submit(write(1, 0, 8192)).unwrap();
        audited.submit(read(1, 4096, 8192)).unwrap();
        assert_eq!(audited.dispatch_all(), [[first]]);
        audited.finish(first);
        assert_eq!(audited.dispatch_all(), [[1]], "{policy}");
    }
}

/// Policies that hold nothing back of their own accord show what the guard holds. (A cancelled request may
/// keep others waiting for those before it, so nothing is cancelled here.)
#[test]
fn the_guard_holds_nothing_without_need() {
    use PolicyKind::{Hbrr, Noop, Sjf, Sw, To, ToAgg, Wfq};
    for policy in [Noop, To, ToAgg, Sjf, Sw, Wfq, Hbrr] {
        check(160, steps(), |steps| {
            let mut audited = Audited::new(Settings {
                queues: 5,
                ..Settings::new(policy)
            });
            audited.eager = true;
            let wanted = |s: &&Step| !matches!(s, Step::Cancel(_) | Step::Drain | Step::Foresee(_));
            for step in steps.iter().filter(wanted) {
                perform(&mut audited, step);
            }
            audited.settle();
        });
    }
}

#[test]
fn reads_of_the_same_bytes_do_not_hold_one_another() {
    for policy in PolicyKind::ALL
        .into_iter()
        .filter(|p| *p != PolicyKind::Aioli)
    {
        let mut audited = Audited::new(Settings::new(policy));
        (0..3).for_each(|_| drop(audited.submit(read(1, 0, 4096))));
        assert_eq!(audited.dispatch_all().len(), 3, "{policy}");
    }
}

#[test]
fn without_the_guard_nothing_is_held() {
    for policy in PolicyKind::ALL
        .into_iter()
        .filter(|p| *p != PolicyKind::Aioli)
    {
        let mut audited = Audited::new(Settings {
            guard: false,
            ..Settings::new(policy)
        });
        (0..3).for_each(|_| drop(audited.submit(write(1, 0, 4096))));
        assert_eq!(audited.dispatch_all().len(), 3, "{policy}");
    }
}

#[test]
fn a_request_that_has_waited_beyond_the_bound_is_served_though_its_policy_would_not() {
    let mut audited = Audited::new(Settings {
        queues: 4,
        starvation_bound: Some(Nanos::from_millis(5)),
        twins_window: Nanos::from_secs(10),
        ..Settings::new(PolicyKind::Twins)
    });
    let mut other = read(1, 0, 4096);
    other.queue = QueueId(3);
    audited.submit(other).unwrap();
    assert_eq!(
        audited.next(),
        Next::WaitUntil(audited.now + Nanos::from_millis(5))
    );
    audited.advance(Nanos::from_millis(5));
    assert!(matches!(audited.next(), Next::Dispatch(_)));
}

/// The bound comes into force for what is queued already, however much was there before.
#[test]
fn a_bound_that_is_set_later_holds_for_what_is_queued() {
    let calm = Settings {
        queues: 2,
        twins_window: Nanos::from_secs(3600),
        ..Settings::new(PolicyKind::Twins)
    };
    let mut audited = Audited::new(calm.clone());
    // They leave, and their places in the scheduler's books stay empty.
    (0..2000).for_each(|block| drop(audited.submit(read(1, block * 4096, 4096))));
    let mut last = read(1, 1 << 40, 4096);
    last.queue = QueueId(1);
    audited.submit(last).unwrap();
    (0..2000).for_each(|number| assert!(audited.cancel(number)));
    audited.configure(Settings {
        starvation_bound: Some(Nanos::from_millis(5)),
        ..calm
    });
    let limit = audited.now + Nanos::from_millis(6);
    while let Next::WaitUntil(moment) = audited.next() {
        assert!(moment < limit, "nobody would look before {moment}");
        audited.now = moment;
    }
    assert_eq!(audited.scheduler().in_flight(), 1);
}

#[test]
fn more_files_than_are_remembered_are_served_all_the_same() {
    for policy in PolicyKind::ALL {
        let mut audited = Audited::new(Settings::new(policy));
        for file in 0..70_000u64 {
            audited.submit(read(file, file % 7 * 4096, 4096)).unwrap();
            audited.submit(write(file / 2, 1 << 20, 4096)).unwrap();
            while let Next::Dispatch(_) = audited.next() {
                audited.finish_all();
            }
            if let Some(moment) = audited.wake {
                audited.now = moment;
            }
            audited.log.clear();
        }
        audited.finish_all();
        while audited.scheduler().queued() > 0 {
            audited.serve_all();
            audited.now = audited.wake.unwrap_or(audited.now);
        }
    }
}
