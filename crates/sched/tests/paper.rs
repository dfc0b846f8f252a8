//! What the papers say of each algorithm, as examples: thesis 3.1 (Tables 3.1 and 3.2), 4.1 and paper 001 §II.

mod common;

use common::stream::{Step, check, run, settings, steps};
use common::{Audited, numbers, read, write};
use presagio_core::{AppId, FileId, Nanos, Op, QueueId, Range, Request, RequestId};
use presagio_sched::PolicyKind::{Aioli, Hbrr, Mlf, Noop, Sjf, Sw, To, ToAgg, Twins, Wfq};
use presagio_sched::{Next, PolicyKind, Predicted, Scheduler, ServiceTime, Settings};
use proptest::prelude::Just;

const KIB: u64 = 1024;

/// The five algorithms of the thesis, as in its tables.
const THESIS: [PolicyKind; 5] = [Aioli, Mlf, Sjf, To, ToAgg];

fn scheduler(policy: PolicyKind) -> Audited {
    Audited::new(Settings::new(policy))
}

/// Submits reads of 4 KiB of a file at these offsets, in KiB.
fn reads(audited: &mut Audited, file: u64, offsets: &[u64]) {
    for offset in offsets {
        audited.submit(read(file, offset * KIB, 4 * KIB)).unwrap();
    }
}

/// The batches that leave now, one finished after the other.
fn served(audited: &mut Audited) -> Vec<Vec<usize>> {
    audited.serve_all()
}

// Table 3.1

#[test]
fn aioli_mlf_and_sjf_serve_a_file_in_offset_order_and_to_and_to_agg_do_not() {
    for policy in THESIS {
        let mut audited = scheduler(policy);
        reads(&mut audited, 1, &[80, 0, 40]);
        let by_offset = [Aioli, Mlf, Sjf].contains(&policy);
        let expected = if by_offset {
            [[1], [2], [0]]
        } else {
            [[0], [1], [2]]
        };
        assert_eq!(served(&mut audited), expected, "{policy}");
    }
}

#[test]
fn all_but_to_aggregate_requests_that_touch() {
    for policy in THESIS {
        let mut audited = scheduler(policy);
        reads(&mut audited, 1, &[4, 0, 8]);
        let expected = match policy {
            To => vec![vec![0], vec![1], vec![2]],
            _ => vec![vec![1, 0, 2]],
        };
        assert_eq!(served(&mut audited), expected, "{policy}");
    }
}

#[test]
fn aioli_and_mlf_have_waiting_times_and_the_others_do_not() {
    for policy in THESIS {
        let mut audited = scheduler(policy);
        reads(&mut audited, 1, &[0, 4]);
        served(&mut audited);
        // After a batch of two, one alone that does not continue it.
        reads(&mut audited, 1, &[100]);
        let waits = matches!(audited.next(), Next::WaitUntil(_));
        assert_eq!(waits, [Aioli, Mlf].contains(&policy), "{policy}");
    }
}

#[test]
fn aioli_waits_until_a_batch_is_served_and_the_others_do_not() {
    for policy in THESIS {
        let mut audited = scheduler(policy);
        reads(&mut audited, 1, &[0]);
        reads(&mut audited, 2, &[0]);
        assert!(matches!(audited.next(), Next::Dispatch(_)));
        let expected = policy == Aioli;
        assert_eq!(audited.next() == Next::Idle, expected, "{policy}");
    }
}

#[test]
fn aioli_can_be_asynchronous() {
    let mut audited = Audited::new(Settings {
        aioli_synchronous: false,
        ..Settings::new(Aioli)
    });
    (1..4).for_each(|file| reads(&mut audited, file, &[0]));
    assert_eq!(audited.dispatch_all().len(), 3);
}

// Table 3.2: the criterion between queues.

#[test]
fn between_queues_aioli_is_first_come_first_served_sjf_goes_by_size_and_mlf_takes_turns() {
    for policy in [Aioli, Sjf, Mlf] {
        let mut audited = scheduler(policy);
        // The files are known in the order 1, 2, 3.
        (1..4).for_each(|file| reads(&mut audited, file, &[0]));
        served(&mut audited);
        reads(&mut audited, 3, &[4, 20]);
        reads(&mut audited, 2, &[4, 20, 40]);
        reads(&mut audited, 1, &[4]);
        let firsts = match policy {
            // Request 3 is the oldest, and so on.
            Aioli => vec![3, 4, 5, 6, 7, 8],
            // File 1 has one request, file 3 two, file 2 three.
            Sjf => vec![8, 3, 4, 5, 6, 7],
            // One batch each, in the order of the files.
            _ => vec![8, 5, 3, 6, 4, 7],
        };
        let order: Vec<usize> = served(&mut audited).concat();
        assert_eq!(order, firsts, "{policy}");
    }
}

// 3.1.1 and 3.1.2: quanta and waits

#[test]
fn a_request_larger_than_the_quantum_lets_smaller_ones_pass_until_its_quantum_has_grown() {
    let mut audited = scheduler(Aioli);
    // Four steps at 64 KiB.
    audited.submit(read(1, 0, 256 * KIB)).unwrap();
    reads(&mut audited, 2, &[0, 100, 200, 300, 400, 500]);
    let order = served(&mut audited).concat();
    assert_eq!(order, [1, 2, 3, 0, 4, 5, 6]);
}

#[test]
fn a_virtual_request_has_the_quanta_of_all_its_parts() {
    let mut audited = scheduler(Aioli);
    // Four touching requests of 64 KiB grow by 64 KiB each: one step.
    (0..4).for_each(|part| drop(audited.submit(read(1, part * 64 * KIB, 64 * KIB))));
    reads(&mut audited, 2, &[0]);
    assert_eq!(served(&mut audited), [vec![0, 1, 2, 3], vec![4]]);
}

#[test]
fn what_follows_a_batch_and_fits_the_rest_of_its_quantum_is_served_in_the_same_turn() {
    let mut audited = scheduler(Aioli);
    reads(&mut audited, 1, &[0]);
    reads(&mut audited, 2, &[0]);
    let Next::Dispatch(first) = audited.next() else {
        panic!("nothing to do?");
    };
    assert_eq!(numbers(&first), [0]);
    // It arrives while its predecessor is served, later than the other file's request.
    reads(&mut audited, 1, &[4]);
    audited.finish_all();
    assert_eq!(served(&mut audited), [[2], [1]]);
}

/// Serves a batch at 40 KiB and then one before it, at 0: somebody was late.
fn shifted(policy: PolicyKind) -> Audited {
    let mut audited = scheduler(policy);
    reads(&mut audited, 1, &[40]);
    served(&mut audited);
    reads(&mut audited, 1, &[0]);
    served(&mut audited);
    audited
}

#[test]
fn a_suspected_shift_is_waited_for_once() {
    for policy in [Aioli, Mlf] {
        let mut audited = shifted(policy);
        // Behind the latecomer's end: what belongs between the two may be about to come.
        reads(&mut audited, 1, &[80]);
        let until = audited.now + audited.settings().wait;
        assert_eq!(audited.next(), Next::WaitUntil(until), "{policy}");
        // It does come, and goes first.
        reads(&mut audited, 1, &[4]);
        audited.now = until;
        assert_eq!(served(&mut audited), [[3], [2]], "{policy}");
    }
}

#[test]
fn a_request_that_continues_the_latecomer_is_no_shift() {
    for policy in [Aioli, Mlf] {
        let mut audited = shifted(policy);
        reads(&mut audited, 1, &[4]);
        assert_eq!(served(&mut audited), [[2]], "{policy}");
    }
}

#[test]
fn a_better_aggregation_is_waited_for_once_and_others_are_served_meanwhile() {
    for policy in [Aioli, Mlf] {
        let mut audited = scheduler(policy);
        reads(&mut audited, 1, &[0, 4, 8]);
        assert_eq!(served(&mut audited), [[0, 1, 2]]);
        reads(&mut audited, 1, &[100]);
        reads(&mut audited, 2, &[0]);
        let until = audited.now + audited.settings().wait;
        assert_eq!(
            served(&mut audited),
            [[4]],
            "{policy}: the other file goes on"
        );
        assert_eq!(audited.wake, Some(until));
        audited.now = until;
        assert_eq!(served(&mut audited), [[3]], "{policy}");
        // The last batch had one request: nothing better to hope for.
        reads(&mut audited, 1, &[200]);
        assert_eq!(served(&mut audited), [[5]], "{policy}");
    }
}

// 3.1.3 and 3.1.4

#[test]
fn sjf_selects_the_queue_with_the_fewest_bytes() {
    let mut audited = scheduler(Sjf);
    audited.submit(read(1, 0, 30 * KIB)).unwrap();
    reads(&mut audited, 2, &[0, 20]);
    audited.submit(write(1, 90 * KIB, KIB)).unwrap();
    // Reads and writes of a file are two queues.
    assert_eq!(served(&mut audited), [[3], [1], [2], [0]]);
}

#[test]
fn to_agg_serves_the_oldest_first_with_all_that_touch_it() {
    let mut audited = scheduler(ToAgg);
    reads(&mut audited, 1, &[40]);
    reads(&mut audited, 2, &[0]);
    reads(&mut audited, 1, &[36, 0, 44]);
    // Request 3 has a lower offset but came later: it stays behind file 2's.
    assert_eq!(served(&mut audited), [vec![2, 0, 4], vec![1], vec![3]]);
}

// SW, TWINS, WFQ, HBRR

#[test]
fn sw_goes_window_by_window_and_inside_one_by_application() {
    let mut audited = Audited::new(Settings {
        sw_window: Nanos::from_millis(10),
        ..Settings::new(Sw)
    });
    for (ms, app) in [(1, 2), (2, 1), (3, 2), (12, 1), (13, 0)] {
        audited.now = Nanos::from_millis(ms);
        let mut request = read(app, ms * 100 * KIB, KIB);
        request.app = AppId(app as u32);
        audited.submit(request).unwrap();
    }
    assert_eq!(served(&mut audited).concat(), [1, 0, 2, 4, 3]);
}

/// A scheduler of TWINS with four servers, and one request for each of these.
fn twins(node: u32, servers: &[u32]) -> Audited {
    let mut audited = Audited::new(Settings {
        queues: 4,
        twins_node: node,
        twins_window: Nanos::from_millis(2),
        ..Settings::new(Twins)
    });
    for (at, server) in servers.iter().enumerate() {
        let mut request = read(1, 1000 * KIB - at as u64 * 50 * KIB, KIB);
        request.queue = QueueId(*server);
        audited.submit(request).unwrap();
    }
    audited
}

#[test]
fn twins_serves_one_server_at_a_time_first_come_first_served_in_windows() {
    let mut audited = twins(0, &[1, 0, 1, 0]);
    // Windows are counted from the beginning of time, not from the first request.
    let start = Nanos::ZERO;
    assert_eq!(served(&mut audited), [[1], [3]]);
    // The window is not over: it waits, although requests for server 1 are queued.
    assert_eq!(audited.wake, Some(start + Nanos::from_millis(2)));
    audited.now = start + Nanos::from_millis(1);
    assert_eq!(served(&mut audited), [[0; 0]; 0]);
    // A request for the current server is served at once.
    let mut request = read(2, 0, KIB);
    request.queue = QueueId(0);
    audited.submit(request).unwrap();
    assert_eq!(served(&mut audited), [[4]]);
    audited.now = start + Nanos::from_millis(2);
    assert_eq!(served(&mut audited), [[0], [2]]);
}

#[test]
fn twins_goes_round_robin_and_nodes_start_on_different_servers() {
    for node in 0..8 {
        let mut audited = twins(node, &[0, 1, 2, 3]);
        let mut order = Vec::new();
        while audited.scheduler().queued() > 0 {
            order.extend(served(&mut audited).concat());
            audited.now = audited.wake.unwrap_or(audited.now);
        }
        let expected: Vec<usize> = (0..4).map(|turn| (turn + node as usize) % 4).collect();
        assert_eq!(order, expected, "node {node}");
    }
}

/// The server whose request leaves when somebody looks now, if one does. Its request is finished at once, and another comes for it.
fn look(scheduler: &mut Scheduler, now: Nanos) -> Option<u32> {
    let Next::Dispatch(batch) = scheduler.next(now) else {
        return None;
    };
    let part = batch.parts()[0];
    assert!(scheduler.finish(part.ticket, now));
    scheduler.submit(part.request, now).unwrap();
    Some(part.request.queue.0)
}

/// Node `node` of several that share a clock, with something to do for each of so many servers.
fn loaded(servers: u32, node: u32, origin: u64) -> Scheduler {
    let mut scheduler = Scheduler::new(Settings {
        queues: servers,
        twins_node: node,
        twins_window: Nanos::from_millis(1),
        twins_origin: Nanos(origin),
        ..Settings::new(Twins)
    })
    .unwrap();
    for server in 0..servers {
        let mut request = read(server.into(), 0, KIB);
        request.queue = QueueId(server);
        scheduler.submit(request, Nanos(0)).unwrap();
    }
    scheduler
}

/// As published: who finds a window over begins the next one then, whatever the clock shows.
#[test]
fn twins_without_a_shared_clock_gives_every_server_a_whole_window_in_turn() {
    for node in 0..4 {
        let mut scheduler = loaded(4, node, 7_777_700_123);
        let mut settings = scheduler.settings().clone();
        settings.twins_shared_clock = false;
        scheduler.configure(settings, Nanos(0)).unwrap();
        // (when somebody looks, whose turn it is from the node's first on)
        let looks = [
            (300_000, 0),
            (1_299_999, 0),
            (1_700_000, 1),
            (2_699_999, 1),
            (2_700_000, 2),
            (40_000_000, 3),
            (40_999_999, 3),
            (41_000_000, 4),
        ];
        for (now, turn) in looks {
            let served = look(&mut scheduler, Nanos(now));
            assert_eq!(served, Some((node + turn) % 4), "node {node} at {now}");
        }
    }
}

#[test]
fn twins_finds_the_server_of_the_window_again_after_nobody_looked_for_long() {
    // The clock that nodes share is far ahead of this node's, and not on the border of a window.
    let origin = 7_777_700_123;
    for node in 0..4 {
        let mut scheduler = loaded(4, node, origin);
        for now in [
            0, 1_000, 900_000, 3_600_000, 3_700_000, 40_000_000, 41_800_000,
        ] {
            let window = (now + origin) / 1_000_000;
            let expected = (window + u64::from(node)) % 4;
            let served = look(&mut scheduler, Nanos(now));
            assert_eq!(served, Some(expected as u32), "node {node} at {now}");
        }
    }
}

#[test]
fn twins_nodes_that_look_in_every_window_are_always_on_different_servers() {
    // Looks that are closer than a window, in runs of more than one round of windows; between runs nobody looks for a while.
    let run = proptest::collection::vec(500_000..1_000_000_u64, 10..30);
    let runs = proptest::collection::vec((run, 0..90_000_000_u64), 1..8);
    check(200, (runs, 0..10_000_000_000_u64), |(runs, origin)| {
        let mut nodes: Vec<Scheduler> = (0..4).map(|node| loaded(4, node, origin)).collect();
        let mut now = 0;
        for (run, pause) in runs {
            for gap in run {
                now += gap;
                let on = |scheduler: &mut Scheduler| look(scheduler, Nanos(now));
                let mut on: Vec<_> = nodes.iter_mut().map(on).collect();
                on.sort_unstable();
                on.dedup();
                assert_eq!(on.len(), 4, "at {now}");
            }
            now += pause;
        }
    });
}

#[test]
fn twins_serves_every_server_however_looks_and_windows_coincide() {
    let spans = proptest::collection::vec(
        proptest::sample::select(vec![
            1, 900_000, 1_000_000, 2_000_000, 3_000_000, 4_000_000, 8_000_001,
        ]),
        1..9,
    );
    check(
        400,
        (spans, 1..9_u32, 0..9_u32),
        |(spans, servers, node)| {
            let mut scheduler = loaded(servers, node, 0);
            let mut last = vec![0; servers as usize];
            let (mut now, mut windows, mut window) = (0, 0, None);
            for span in spans.iter().cycle().take(400) {
                if window.replace(now / 1_000_000) != Some(now / 1_000_000) {
                    windows += 1;
                }
                let server = look(&mut scheduler, Nanos(now)).expect("each has something");
                last[server as usize] = windows;
                let longest = windows - last.iter().min().unwrap();
                assert!(
                    longest <= 3 * servers,
                    "{longest} windows, {servers} servers"
                );
                now += span;
            }
        },
    );
}

#[test]
fn wfq_gives_each_queue_bytes_in_proportion_to_its_weight() {
    let weights = [8, 16, 32].map(|w| w * KIB);
    let settings = Settings {
        queues: 3,
        wfq_weights: weights.to_vec(),
        ..Settings::new(Wfq)
    };
    let mut scheduler = Scheduler::new(settings).unwrap();
    for number in 0..9000u64 {
        let (queue, size) = (number % 3, number % 7 + 1);
        let mut request = read(queue, number * 100 * KIB, size * KIB);
        request.queue = QueueId(queue as u32);
        scheduler.submit(request, Nanos(0)).unwrap();
    }
    // While all are queued: a third of all bytes is gone before the heaviest queue could run empty.
    let mut bytes = [0u64; 3];
    for _ in 0..4000 {
        let Next::Dispatch(batch) = scheduler.next(Nanos(1)) else {
            panic!("nothing to do?");
        };
        bytes[batch.parts()[0].request.queue.0 as usize] += batch.range().len();
    }
    for queue in 0..3 {
        let turns = bytes[queue] as f64 / weights[queue] as f64;
        let others = bytes.iter().sum::<u64>() as f64 / weights.iter().sum::<u64>() as f64;
        // Never more than a turn and a request ahead or behind.
        assert!((turns - others).abs() < 2.0, "{bytes:?} for {weights:?}");
    }
}

#[test]
fn hbrr_takes_its_quantum_of_batches_from_a_file_and_turns_to_the_next() {
    let mut audited = Audited::new(Settings {
        hbrr_quantum: 2,
        ..Settings::new(Hbrr)
    });
    reads(&mut audited, 1, &[40, 20, 0]);
    reads(&mut audited, 2, &[0, 20, 24, 60]);
    let batches = served(&mut audited);
    let expected = [vec![2], vec![1], vec![3], vec![4, 5], vec![0], vec![6]];
    assert_eq!(batches, expected);
}

#[test]
fn noop_and_to_and_twins_never_aggregate() {
    for policy in [Noop, To, Twins] {
        let mut audited = scheduler(policy);
        reads(&mut audited, 1, &[0, 4, 8]);
        assert_eq!(served(&mut audited), [[0], [1], [2]], "{policy}");
    }
}

// 4.1: foresight

const FORESIGHTED: [PolicyKind; 4] = [Aioli, Mlf, Sjf, ToAgg];

/// The five requests of Fig. 4.2 as predicted: 4 KiB each, one behind the other, a millisecond apart.
fn predictions() -> impl Iterator<Item = Predicted> {
    (0..5).map(|part| Predicted {
        file: FileId(1),
        op: Op::Write,
        range: Range::at(part * 4 * KIB, 4 * KIB),
        after: Nanos::from_millis(part),
    })
}

fn part(number: u64) -> Request {
    write(1, number * 4 * KIB, 4 * KIB)
}

/// A scheduler that knows what is to come, with a storage on which every request costs 10 ms, so that
/// waiting a few for another pays.
fn foresighted(policy: PolicyKind, predictions: impl Iterator<Item = Predicted>) -> Scheduler {
    let settings = Settings {
        foresight_slack: Nanos::from_micros(700),
        ..Settings::new(policy)
    };
    let mut scheduler = Scheduler::new(settings).unwrap();
    let service_time = ServiceTime::linear(Nanos::from_millis(10), 1_000_000_000);
    scheduler.set_service_time(service_time);
    predictions.for_each(|p| assert!(scheduler.foresee(p)));
    scheduler
}

const fn us(us: u64) -> Nanos {
    Nanos::from_micros(us)
}

/// Dispatches and finishes the next batch; the number of its requests.
fn serve_one(scheduler: &mut Scheduler, now: Nanos) -> Result<usize, Next> {
    match scheduler.next(now) {
        Next::Dispatch(batch) => {
            for part in batch.parts() {
                assert!(scheduler.finish(part.ticket, now));
            }
            Ok(batch.parts().len())
        }
        other => Err(other),
    }
}

/// Fig. 4.2 from `start` on: three requests have arrived when the scheduler decides. What it decides.
fn three_arrive(scheduler: &mut Scheduler, start: Nanos) -> Result<usize, Next> {
    for number in 0..3 {
        let arrival = start + Nanos::from_millis(number);
        scheduler.submit(part(number), arrival).unwrap();
    }
    serve_one(scheduler, start + us(2_000))
}

#[test]
fn a_larger_predicted_aggregation_is_waited_for_as_long_as_eq_4_3_says_and_leaves_as_one_batch() {
    for policy in FORESIGHTED {
        let mut scheduler = foresighted(policy, predictions());
        // Time_diff is 4 ms, the first request arrived 2 ms ago: W = 2 ms. One may be 0.7 ms late.
        let decision = three_arrive(&mut scheduler, us(5));
        assert_eq!(decision, Err(Next::WaitUntil(us(4_705))), "{policy}");
        scheduler.submit(part(3), us(3_100)).unwrap();
        assert_eq!(scheduler.next(us(3_100)), Next::WaitUntil(us(4_705)));
        scheduler.submit(part(4), us(4_300)).unwrap();
        assert_eq!(serve_one(&mut scheduler, us(4_300)), Ok(5), "{policy}");
    }
}

#[test]
fn a_wait_ends_early_when_the_last_missing_request_arrives() {
    for policy in FORESIGHTED {
        let mut scheduler = foresighted(policy, predictions());
        assert!(three_arrive(&mut scheduler, us(5)).is_err());
        scheduler.submit(part(4), us(3_500)).unwrap();
        scheduler.submit(part(3), us(3_550)).unwrap();
        assert_eq!(serve_one(&mut scheduler, us(3_550)), Ok(5), "{policy}");
    }
}

#[test]
fn a_batch_waits_once_and_what_comes_too_late_goes_by_itself() {
    for policy in FORESIGHTED {
        // The time step is not over: they are late, and not the beginning of the next.
        let later = Predicted {
            file: FileId(1),
            op: Op::Write,
            range: Range::at(1 << 30, KIB),
            after: Nanos::from_secs(1),
        };
        let mut scheduler = foresighted(policy, predictions().chain([later]));
        assert!(three_arrive(&mut scheduler, us(5)).is_err());
        assert_eq!(serve_one(&mut scheduler, us(4_705)), Ok(3), "{policy}");
        scheduler.submit(part(3), us(9_000)).unwrap();
        scheduler.submit(part(4), us(9_000)).unwrap();
        assert_eq!(serve_one(&mut scheduler, us(9_000)), Ok(2), "{policy}");
    }
}

#[test]
fn a_wait_that_has_brought_some_of_the_missing_requests_is_not_repeated() {
    for policy in FORESIGHTED {
        let mut scheduler = foresighted(policy, predictions());
        assert!(three_arrive(&mut scheduler, us(5)).is_err());
        scheduler.submit(part(3), us(3_000)).unwrap();
        assert_eq!(serve_one(&mut scheduler, us(4_705)), Ok(4), "{policy}");
    }
}

/// Eq. 4.3 alone would let the rest wait again: it has not waited as long as the whole takes to arrive.
#[test]
fn a_batch_whose_oldest_request_is_cancelled_while_it_waits_does_not_wait_again() {
    for policy in FORESIGHTED {
        let mut scheduler = foresighted(policy, predictions());
        let oldest = scheduler.submit(part(0), us(5)).unwrap();
        scheduler.submit(part(1), us(1_005)).unwrap();
        scheduler.submit(part(2), us(2_005)).unwrap();
        assert_eq!(scheduler.next(us(2_005)), Next::WaitUntil(us(4_705)));
        assert!(scheduler.cancel(oldest, us(2_500)).is_some());
        assert_eq!(serve_one(&mut scheduler, us(4_705)), Ok(2), "{policy}");
    }
}

#[test]
fn others_are_served_during_a_wait() {
    for policy in FORESIGHTED {
        let mut scheduler = foresighted(policy, predictions());
        assert!(three_arrive(&mut scheduler, us(5)).is_err());
        scheduler.submit(read(2, 0, 4 * KIB), us(2_500)).unwrap();
        assert_eq!(serve_one(&mut scheduler, us(2_500)), Ok(1), "{policy}");
    }
}

#[test]
fn predictions_serve_again_in_the_next_time_step() {
    for policy in FORESIGHTED {
        let mut scheduler = foresighted(policy, predictions());
        for step in 0..3 {
            let start = Nanos::from_secs(step) + us(5);
            let decision = three_arrive(&mut scheduler, start);
            assert_eq!(
                decision,
                Err(Next::WaitUntil(start + us(4_700))),
                "{policy}, time step {step}"
            );
            scheduler.submit(part(3), start + us(3_000)).unwrap();
            scheduler.submit(part(4), start + us(4_000)).unwrap();
            assert_eq!(serve_one(&mut scheduler, start + us(4_000)), Ok(5));
        }
    }
}

#[test]
fn only_the_four_policies_of_the_thesis_use_foresight() {
    for policy in PolicyKind::ALL {
        let mut scheduler = foresighted(policy, predictions());
        let waited = three_arrive(&mut scheduler, us(5)).is_err();
        assert_eq!(waited, FORESIGHTED.contains(&policy), "{policy}");
        assert_eq!(waited, policy.uses_foresight(), "{policy}");
    }
}

#[test]
fn nothing_is_waited_for_when_aggregating_does_not_pay() {
    for policy in FORESIGHTED {
        let mut scheduler = foresighted(policy, predictions());
        // Next to nothing per request: two cost as much as one of twice the size.
        scheduler.set_service_time(ServiceTime::linear(Nanos(1), 1_000_000_000));
        assert_eq!(three_arrive(&mut scheduler, us(5)), Ok(3), "{policy}");
    }
}

#[test]
fn a_prediction_that_is_too_early_or_of_another_size_changes_nothing() {
    let wrong: [fn(Predicted) -> Predicted; 4] = [
        |p| Predicted {
            after: p.after + Nanos::from_secs(1),
            ..p
        },
        |p| Predicted {
            range: Range::at(p.range.start(), KIB),
            ..p
        },
        |p| Predicted { op: Op::Read, ..p },
        |p| Predicted {
            file: FileId(9),
            ..p
        },
    ];
    for policy in FORESIGHTED {
        for (at, change) in wrong.into_iter().enumerate() {
            let mut scheduler = foresighted(policy, predictions().map(change));
            assert_eq!(three_arrive(&mut scheduler, us(5)), Ok(3), "{policy}, {at}");
        }
    }
}

#[test]
fn with_predictions_that_never_come_true_every_decision_is_the_plain_policys() {
    for policy in FORESIGHTED {
        check(
            60,
            (settings(Just(policy)), steps()),
            |(settings, steps)| {
                let plain: Vec<Step> = steps
                    .into_iter()
                    .filter(|s| !matches!(s, Step::Foresee(_) | Step::ForgetPredictions))
                    .collect();
                // The files of the stream, at offsets and sizes that it does not use.
                let wrong = (0..60u64).map(|n| {
                    Step::Foresee(Predicted {
                        file: FileId(n % 3),
                        op: Op::ALL[n as usize / 3 % 2],
                        range: Range::at((1 << 30) + n / 6 * 7, 7),
                        after: Nanos(n * 1000),
                    })
                });
                let misled: Vec<Step> = wrong.chain(plain.clone()).collect();
                let misled = run(settings.clone(), &misled).log;
                assert_eq!(misled, run(settings, &plain).log);
            },
        );
    }
}

// Live switch

#[test]
fn a_switch_with_a_million_queued_goes_on_dispatching_and_loses_nothing() {
    const QUEUED: u64 = 1_000_000;
    let mut scheduler = Scheduler::new(Settings::new(Sjf)).unwrap();
    for number in 0..QUEUED {
        let mut request = read(number % 64, number / 64 * 8 * KIB, 4 * KIB);
        request.id = RequestId(number);
        scheduler.submit(request, Nanos(number)).unwrap();
    }
    let mut seen = vec![false; QUEUED as usize + 64];
    let mut next_id = QUEUED;
    let mut now = Nanos(QUEUED);
    let mut strike = |id: u64| assert!(!std::mem::replace(&mut seen[id as usize], true));
    for policy in PolicyKind::ALL {
        scheduler.configure(Settings::new(policy), now).unwrap();
        for _ in 0..4 {
            let mut request = write(100, next_id * 8 * KIB, 4 * KIB);
            request.id = RequestId(next_id);
            next_id += 1;
            scheduler.submit(request, now).unwrap();
            now += Nanos(1);
            let Next::Dispatch(batch) = scheduler.next(now) else {
                panic!("{policy}: nothing to do?");
            };
            for part in batch.parts() {
                strike(part.request.id.0);
                assert!(scheduler.finish(part.ticket, now));
            }
        }
    }
    let left = scheduler.drain();
    left.iter().for_each(|request| strike(request.id.0));
    let accepted = next_id as usize;
    assert!(seen[..accepted].iter().all(|s| *s));
}
