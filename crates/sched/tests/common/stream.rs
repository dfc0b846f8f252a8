//! Random streams of calls, and how they are run against an [`Audited`] scheduler.

use super::{Audited, request};
use presagio_core::{AppId, FileId, Nanos, Op, QueueId, Range, Request};
use presagio_sched::{PolicyKind, Predicted, Settings};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};

/// Runs `test` on random values and reports the smallest that fails. `cases` is how many; the environment's
/// PROPTEST_CASES, 256 if not set, makes it more or fewer in proportion.
pub fn check<S: Strategy>(cases: u32, strategy: S, test: impl Fn(S::Value)) {
    let default = Config::default();
    let config = Config {
        cases: (u64::from(cases) * u64::from(default.cases) / 256).max(1) as u32,
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..default
    };
    let outcome = TestRunner::new(config).run(&strategy, |value| {
        test(value);
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

/// One call.
#[derive(Clone, Debug)]
pub enum Step {
    Submit(Request),
    Next,
    Finish(usize),
    /// Of any request that was ever submitted.
    Cancel(usize),
    Advance(Nanos),
    /// Goes on to the moment that the last `WaitUntil` named.
    Wake,
    Configure(Settings),
    Foresee(Predicted),
    ForgetPredictions,
    Drain,
}

/// Makes the calls, then serves what is left.
pub fn run(settings: Settings, steps: &[Step]) -> Audited {
    let mut audited = Audited::new(settings);
    steps.iter().for_each(|step| perform(&mut audited, step));
    audited.settle();
    audited
}

/// Makes one call.
pub fn perform(audited: &mut Audited, step: &Step) {
    match step {
        // Queue ids that are out of range are part of the game: the auditor checks that they are rejected.
        Step::Submit(request) => drop(audited.submit(*request)),
        Step::Next => drop(audited.next()),
        Step::Finish(pick) => audited.finish_some(*pick),
        Step::Cancel(pick) => {
            if let Some(number) = pick.checked_rem(audited.accepted()) {
                audited.cancel(number);
            }
        }
        Step::Advance(span) => audited.advance(*span),
        Step::Wake => audited.now = audited.now.max(audited.wake.unwrap_or_default()),
        Step::Configure(settings) => audited.configure(settings.clone()),
        Step::Foresee(predicted) => audited.foresee(*predicted),
        Step::ForgetPredictions => audited.forget_predictions(),
        Step::Drain => audited.drain(),
    }
}

/// Streams without changes of settings: bursts and gaps, overlapping and touching requests of a few files.
pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    vec(step(), 1..160)
}

/// Streams in which the settings change too.
pub fn steps_with_changes() -> impl Strategy<Value = Vec<Step>> {
    let change = settings(any_policy()).prop_map(Step::Configure);
    vec(prop_oneof![12 => step(), 1 => change], 1..160)
}

/// Streams in which far more requests than the guard waits for one by one overlap: small ones and ones over the
/// whole file, of both operations.
pub fn crowded_steps() -> impl Strategy<Value = Vec<Step>> {
    let small = (0..100u64).prop_map(|at| Range::at(at * 512, 512));
    let large = (0..3u64, 97..100u64).prop_map(|(at, len)| Range::at(at * 512, len * 512));
    let range = prop_oneof![small, large];
    let submission = (operation(), range).prop_map(|(op, range)| request(0, op, range));
    let burst = (operation(), any::<bool>()).prop_map(|(op, large)| burst(op, large));
    let one = prop_oneof![
        30 => submission.prop_map(|request| vec![Step::Submit(request)]),
        5 => burst,
        8 => any::<usize>().prop_map(|pick| vec![Step::Cancel(pick)]),
        10 => Just(vec![Step::Next]),
        10 => any::<usize>().prop_map(|pick| vec![Step::Finish(pick)]),
        2 => Just(vec![Step::Wake]),
    ];
    vec(one, 1..60).prop_map(|parts| parts.concat())
}

/// A hundred requests of an operation, each of its own block or of the whole file.
fn burst(op: Op, large: bool) -> Vec<Step> {
    let range = |at: u64| match large {
        true => Range::at(at % 3 * 512, 97 * 512),
        false => Range::at(at * 512, 512),
    };
    let submit = |at| Step::Submit(request(0, op, range(at)));
    (0..100).map(submit).collect()
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        40 => submission().prop_map(Step::Submit),
        16 => Just(Step::Next),
        14 => any::<usize>().prop_map(Step::Finish),
        5 => any::<usize>().prop_map(Step::Cancel),
        10 => span().prop_map(Step::Advance),
        5 => Just(Step::Wake),
        4 => prediction().prop_map(Step::Foresee),
        1 => Just(Step::ForgetPredictions),
        1 => Just(Step::Drain),
    ]
}

fn submission() -> impl Strategy<Value = Request> {
    let ids = (0..3u64, operation(), 0..5u32, 0..3u32);
    (ids, range()).prop_map(|((file, op, queue, app), range)| Request {
        queue: QueueId(queue),
        app: AppId(app),
        ..request(file, op, range)
    })
}

fn operation() -> impl Strategy<Value = Op> {
    select(Op::ALL.as_slice())
}

/// Mostly blocks of a small file, so that requests touch, overlap and repeat; sometimes odd or absurd ones.
fn range() -> impl Strategy<Value = Range> {
    let block = 512u64;
    prop_oneof![
        20 => (0..24u64, 1..4u64).prop_map(move |(at, len)| Range::at(at * block, len * block)),
        6 => (0..4u64, 0..4u64).prop_map(move |(at, len)| Range::at(at * block, len * block)),
        3 => (0..4096u64, 0..2048u64).prop_map(|(at, len)| Range::at(at, len)),
        2 => (0..8u64, 0..8u64).prop_map(move |(at, len)| Range::at(u64::MAX - at * block, len * block)),
        1 => (0..4u64, 1..5u64).prop_map(|(at, len)| Range::at(at << 62, len.saturating_mul(1 << 62))),
    ]
}

fn span() -> impl Strategy<Value = Nanos> {
    select([1, 700, 40_000, 900_000, 2_500_000, 1_100_000_000].as_slice()).prop_map(Nanos)
}

/// Of the blocks that [`range`] makes, so that some come true.
fn prediction() -> impl Strategy<Value = Predicted> {
    (0..3u64, operation(), range(), span()).prop_map(|(file, op, range, after)| Predicted {
        file: FileId(file),
        op,
        range,
        after,
    })
}

pub fn any_policy() -> impl Strategy<Value = PolicyKind> {
    select(PolicyKind::ALL.as_slice())
}

/// Settings for a policy with every parameter drawn, from absurdly small to beyond all effect.
pub fn settings(policy: impl Strategy<Value = PolicyKind>) -> impl Strategy<Value = Settings> {
    let requests = select([1, 2, 3, 8, 1024].as_slice());
    let bytes = select([1, 512, 1536, 4096, 16 << 20, u64::MAX].as_slice());
    let bound = option::of(select([0, 1_000, 2_000_000, 1_000_000_000].as_slice()));
    let general = (requests, bytes, any::<bool>(), bound, 1..6u32);
    let amount = || select([1, 100, 1024, 65_536, u64::MAX].as_slice());
    let time = || select([1, 1_000, 900_000, 2_000_000, 1_000_000_000].as_slice());
    let wait = select([0, 1, 1_000, 900_000, 1_000_000_000].as_slice());
    let quanta = (wait, amount(), any::<bool>(), amount());
    let windows = (time(), time(), any::<u32>(), any::<u64>(), any::<bool>());
    let shares = (
        vec(amount(), 0..4),
        amount(),
        select([1, 2, 8, u32::MAX].as_slice()),
    );
    let most = select([None, Some(0), Some(500_000)].as_slice());
    let foresight = (select([0.0, 0.1, 1e6].as_slice()), time(), most);
    (policy, general, quanta, windows, shares, foresight).prop_map(
        |(policy, general, quanta, windows, shares, foresight)| Settings {
            policy,
            batch_requests_max: general.0,
            batch_bytes_max: general.1,
            guard: general.2,
            starvation_bound: general.3.map(Nanos),
            queues: general.4,
            wait: Nanos(quanta.0),
            aioli_quantum: quanta.1,
            aioli_synchronous: quanta.2,
            mlf_quantum: quanta.3,
            sw_window: Nanos(windows.0),
            twins_window: Nanos(windows.1),
            twins_node: windows.2,
            twins_origin: Nanos(windows.3),
            twins_shared_clock: windows.4,
            wfq_weights: shares.0,
            wfq_weight: shares.1,
            hbrr_quantum: shares.2,
            foresight_tolerance: foresight.0,
            foresight_slack: Nanos(foresight.1),
            foresight_wait_max: foresight.2.map(Nanos),
        },
    )
}
