//! Bugs that once were, each as the smallest stream that showed it.

mod common;

use common::{Audited, read, write};
use presagio_core::{FileId, Nanos, Op, QueueId, Range};
use presagio_sched::{Next, PolicyKind, Predicted, Scheduler, Settings};

const QUANTA: [PolicyKind; 2] = [PolicyKind::Aioli, PolicyKind::Mlf];

/// A read that the guard held comes to its queue later than a younger one of the same offset, which is part
/// of a virtual request already: the batch once took the older one instead, beyond the limits, and the
/// younger was passed by.
#[test]
fn an_older_duplicate_that_was_held_does_not_slip_into_a_batch() {
    for policy in QUANTA {
        let mut audited = Audited::new(Settings {
            batch_bytes_max: 2048,
            aioli_synchronous: false,
            ..Settings::new(policy)
        });
        let blocker = audited.submit(write(1, 2048, 512)).unwrap();
        assert_eq!(audited.dispatch_all(), [[blocker]]);
        for (offset, len) in [(1024, 2048), (1024, 512), (0, 1024)] {
            audited.submit(read(1, offset, len)).unwrap();
        }
        audited.finish(blocker);
        assert_eq!(audited.scheduler().queued(), 3);
        // The auditor checks that batches keep to the limits.
        audited.settle();
    }
}

/// The same without the guard's help: more reads of one offset than are looked at when a batch is made.
#[test]
fn many_duplicates_of_one_offset_do_not_confuse_a_batch() {
    for policy in QUANTA {
        let mut audited = Audited::new(Settings {
            batch_bytes_max: 1536,
            ..Settings::new(policy)
        });
        // Their places in the books, which are lower, are used again by the requests after the next two.
        (0..20).for_each(|block| drop(audited.submit(read(2, block * 9000, 512))));
        audited.submit(read(1, 0, 1024)).unwrap();
        audited.submit(read(1, 1024, 512)).unwrap();
        (0..20).for_each(|number| assert!(audited.cancel(number)));
        (0..20).for_each(|_| drop(audited.submit(read(1, 1024, 1024))));
        audited.settle();
    }
}

#[test]
fn a_smaller_limit_holds_for_virtual_requests_that_exist_already() {
    for policy in PolicyKind::ALL {
        let mut audited = Audited::new(Settings::new(policy));
        (0..8).for_each(|block| drop(audited.submit(read(1, block * 512, 512))));
        audited.configure(Settings {
            batch_requests_max: 3,
            batch_bytes_max: 1024,
            ..audited.settings()
        });
        // The auditor checks that batches keep to the limits.
        audited.settle();
    }
}

/// It was accepted when there were four queues, held by the guard, and freed when there was one.
#[test]
fn a_request_of_a_queue_that_is_gone_when_the_guard_frees_it_is_served() {
    for policy in PolicyKind::ALL {
        let mut audited = Audited::new(Settings {
            queues: 4,
            ..Settings::new(PolicyKind::Sjf)
        });
        let first = audited.submit(write(1, 0, 512)).unwrap();
        let mut held = write(1, 0, 512);
        held.queue = QueueId(3);
        audited.submit(held).unwrap();
        assert_eq!(audited.dispatch_all(), [[first]]);
        audited.configure(Settings::new(policy));
        audited.finish(first);
        audited.settle();
    }
}

#[test]
fn twins_takes_over_another_node_id() {
    let settings = Settings {
        queues: 4,
        ..Settings::new(PolicyKind::Twins)
    };
    let mut audited = Audited::new(settings.clone());
    audited.configure(Settings {
        twins_node: 2,
        ..settings
    });
    for queue in 0..4 {
        let mut request = read(1, u64::from(queue) * 9000, 512);
        request.queue = QueueId(queue);
        audited.submit(request).unwrap();
    }
    assert_eq!(
        audited.dispatch_all(),
        [[2]],
        "server 2 has the first window"
    );
}

/// Sizes of 2⁶² bytes add up to more than 64 bits, and need more steps of a quantum of one byte than 64
/// bits can count.
#[test]
fn absurdly_large_requests_do_not_overflow() {
    for policy in PolicyKind::ALL {
        let mut audited = Audited::new(Settings {
            queues: 4,
            aioli_quantum: 1,
            mlf_quantum: 1,
            wfq_weight: 1,
            batch_bytes_max: 1,
            ..Settings::new(policy)
        });
        for number in 0..80u64 {
            let mut request = read(number % 5, (number % 4) << 62, u64::MAX >> 1);
            request.queue = QueueId(number as u32 % 4);
            audited.submit(request).unwrap();
            let mut small = read(number % 5, number * 7, 1);
            small.queue = QueueId(number as u32 % 3);
            audited.submit(small).unwrap();
            if number % 3 == 0 {
                audited.next();
                audited.finish_all();
            }
        }
        audited.settle();
    }
}

#[test]
fn absurdly_large_predictions_do_not_overflow() {
    let mut audited = Audited::new(Settings::new(PolicyKind::ToAgg));
    for part in 0..4u64 {
        audited.foresee(Predicted {
            file: FileId(1),
            op: Op::Read,
            range: Range::at(part << 62, 1 << 62),
            after: Nanos(u64::MAX - part % 2 * (u64::MAX / 2)),
        });
    }
    audited.submit(read(1, 0, 1 << 62)).unwrap();
    audited.settle();
}

/// What was matched with a prediction that is forgotten since must not be taken for another that came later.
#[test]
fn forgotten_predictions_are_not_confused_with_new_ones() {
    let predicted = |file, block: u64, after| Predicted {
        file: FileId(file),
        op: Op::Write,
        range: Range::at(block * 4096, 4096),
        after: Nanos(after),
    };
    let mut scheduler = Scheduler::new(Settings::new(PolicyKind::ToAgg)).unwrap();
    scheduler.foresee(predicted(1, 0, 0));
    scheduler.submit(write(1, 0, 4096), Nanos(0)).unwrap();
    scheduler.forget_predictions();
    scheduler.foresee(predicted(2, 0, 0));
    scheduler.foresee(predicted(2, 1, 50_000));
    let next = scheduler.next(Nanos(1));
    assert!(matches!(next, Next::Dispatch(_)), "{next:?}");
}

/// What is waited for may be forgotten meanwhile: the end of the wait found no forecast, and panicked.
#[test]
fn predictions_may_be_forgotten_while_they_are_waited_for() {
    let mut waited = false;
    for after in [1_000, 20_000, 100_000] {
        let mut scheduler = Scheduler::new(Settings::new(PolicyKind::ToAgg)).unwrap();
        for block in 0..8 {
            scheduler.foresee(Predicted {
                file: FileId(1),
                op: Op::Write,
                range: Range::at(block * 4096, 4096),
                after: Nanos(block * after),
            });
        }
        scheduler.submit(write(1, 0, 4096), Nanos(0)).unwrap();
        let next = scheduler.next(Nanos(1));
        waited |= matches!(next, Next::WaitUntil(_));
        scheduler.forget_predictions();
        let end = Nanos::from_secs(10);
        if !matches!(next, Next::Dispatch(_)) {
            assert!(matches!(scheduler.next(end), Next::Dispatch(_)));
        }
    }
    assert!(waited, "nothing was waited for");
}

/// TWINS and WFQ keep something for each queue up to the highest used: four billion queues were accepted, and
/// the first request of the last took 34 GB.
#[test]
fn more_queues_than_memory_could_hold_are_refused() {
    for policy in [PolicyKind::Twins, PolicyKind::Wfq] {
        let settings = Settings {
            queues: u32::MAX,
            ..Settings::new(policy)
        };
        assert!(settings.check().is_err());
    }
}

/// aIOLi looked at one virtual request to see whether it fits the rest of the turn's quantum, and a larger one
/// left, with an older read that the guard had just freed: the rest fell below zero.
#[test]
fn a_turn_is_not_overdrawn_by_an_older_read_that_is_freed_meanwhile() {
    let mut audited = Audited::new(Settings {
        batch_bytes_max: 33,
        aioli_quantum: 14,
        aioli_synchronous: false,
        wait: Nanos(0),
        ..Settings::new(PolicyKind::Aioli)
    });
    let blocker = audited.submit(write(1, 28, 21)).unwrap();
    audited.submit(read(1, 14, 21)).unwrap();
    audited.next();
    for (offset, len) in [(14, 7), (0, 14), (14, 3)] {
        audited.submit(read(1, offset, len)).unwrap();
    }
    audited.next();
    audited.submit(read(1, 0, 7)).unwrap();
    audited.finish(blocker);
    audited.next();
    audited.submit(read(1, 7, 7)).unwrap();
    audited.next();
    audited.settle();
}

/// The oldest request was in a lane that waits for its batch; that hid the bound from all other lanes.
#[test]
fn a_lane_that_waits_for_its_batch_does_not_hide_the_bound_from_the_others() {
    let settings = Settings {
        queues: 2,
        starvation_bound: Some(Nanos(10)),
        ..Settings::new(PolicyKind::Aioli)
    };
    let mut scheduler = Scheduler::new(settings.clone()).unwrap();
    scheduler.submit(read(1, 0, 512), Nanos(0)).unwrap();
    assert!(matches!(scheduler.next(Nanos(1)), Next::Dispatch(_)));
    scheduler.submit(read(1, 9000, 512), Nanos(2)).unwrap();
    let twins = Settings {
        policy: PolicyKind::Twins,
        twins_window: Nanos::from_secs(10),
        ..settings
    };
    scheduler.configure(twins, Nanos(3)).unwrap();
    let mut other = read(2, 0, 512);
    other.queue = QueueId(1);
    scheduler.submit(other, Nanos(4)).unwrap();
    assert!(matches!(scheduler.next(Nanos(1000)), Next::Dispatch(_)));
}

/// With a longer window, newcomers fell into a window that began before those that were queued.
#[test]
fn a_longer_sw_window_lets_nobody_overtake() {
    let settings = Settings {
        sw_window: Nanos(300),
        ..Settings::new(PolicyKind::Sw)
    };
    let mut audited = Audited::new(settings.clone());
    audited.now = Nanos(1500);
    let older = audited.submit(read(1, 0, 512)).unwrap();
    audited.configure(Settings {
        sw_window: Nanos(1000),
        ..settings
    });
    audited.now = Nanos(1600);
    let newer = audited.submit(read(1, 9000, 512)).unwrap();
    assert_eq!(audited.dispatch_all(), [[older], [newer]]);
}
