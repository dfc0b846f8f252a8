//! The engine's promises to services, with real threads. The interleavings are in `model.rs`.
#![cfg(not(feature = "shuttle"))]

use presagio_core::{FileId, Op, QueueId, Range, Request, RequestId};
use presagio_engine::{
    DispatchBy, Engine, EngineConfig, EngineError, Recorder, Service, SubmitError, WhenFull,
};
use presagio_sched::{Batch, PolicyKind, Settings, Ticket};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

fn request(id: u64) -> Request {
    Request::new(
        RequestId(id),
        FileId(id % 7),
        Op::Read,
        Range::at(id * 4096, 4096),
    )
}

fn config(dispatch: DispatchBy) -> EngineConfig {
    EngineConfig {
        dispatch,
        ..EngineConfig::new(Settings::new(PolicyKind::To))
    }
}

/// A service that is a closure.
struct Does<F>(F);

impl<F: Fn(&Engine, Batch) + Send + Sync> Service for Does<F> {
    fn dispatch(&self, engine: &Engine, batch: Batch) {
        (self.0)(engine, batch);
    }
}

fn start(
    config: EngineConfig,
    dispatch: impl Fn(&Engine, Batch) + Send + Sync + 'static,
) -> Engine {
    Engine::start(config, Arc::new(Does(dispatch))).unwrap()
}

fn finish_all(engine: &Engine, batch: &Batch) {
    batch
        .parts()
        .iter()
        .for_each(|part| assert!(engine.finish(part.ticket)));
}

/// Ids that must each come once.
#[derive(Default)]
struct Once(Mutex<HashSet<u64>>);

impl Once {
    fn note(&self, id: RequestId) {
        assert!(
            self.0.lock().unwrap().insert(id.0),
            "request {} twice",
            id.0
        );
    }

    fn note_batch(&self, batch: &Batch) {
        batch
            .parts()
            .iter()
            .for_each(|part| self.note(part.request.id));
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

fn until(condition: impl Fn() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

const THREADS: u64 = 4;
const EACH: u64 = 20_000;

fn from_many_threads(submit: impl Fn(u64) + Sync) {
    let submit = &submit;
    thread::scope(|scope| {
        for t in 0..THREADS {
            scope.spawn(move || (t * EACH..(t + 1) * EACH).for_each(submit));
        }
    });
}

fn many_threads_each_request_once(config: EngineConfig, detached: bool) {
    let seen = Arc::new(Once::default());
    let noted = seen.clone();
    let engine = start(config, move |engine, batch| {
        noted.note_batch(&batch);
        finish_all(engine, &batch);
    });
    from_many_threads(|id| match detached {
        true => engine.submit_detached(request(id)).unwrap(),
        false => engine.submit(request(id)).map(|_| ()).unwrap(),
    });
    until(|| engine.queued() + engine.in_flight() == 0);
    assert!(engine.shutdown().is_empty());
    assert_eq!(seen.len() as u64, THREADS * EACH);
}

#[test]
fn each_request_is_dispatched_once_by_callers() {
    many_threads_each_request_once(config(DispatchBy::Caller), false);
}

#[test]
fn each_request_is_dispatched_once_by_the_thread() {
    many_threads_each_request_once(config(DispatchBy::Thread), false);
}

#[test]
fn each_detached_request_is_dispatched_once() {
    many_threads_each_request_once(config(DispatchBy::Thread), true);
    many_threads_each_request_once(config(DispatchBy::Caller), true);
}

#[test]
fn each_request_is_dispatched_once_through_a_narrow_queue() {
    for dispatch in [DispatchBy::Caller, DispatchBy::Thread] {
        let narrow = EngineConfig {
            queue_max: Some(3),
            in_flight_max: Some(2),
            ..config(dispatch)
        };
        many_threads_each_request_once(narrow, true);
    }
}

#[test]
fn completions_on_other_threads_keep_a_limited_engine_going() {
    for dispatch in [DispatchBy::Caller, DispatchBy::Thread] {
        let (sender, receiver) = mpsc::channel();
        let limited = EngineConfig {
            in_flight_max: Some(8),
            ..config(dispatch)
        };
        let engine = start(limited, move |engine, batch| {
            assert!(engine.in_flight() <= 8);
            sender.send(batch).unwrap();
        });
        let (engine, seen) = (&engine, &Once::default());
        thread::scope(|scope| {
            scope.spawn(move || {
                for batch in receiver.iter().take((THREADS * EACH) as usize) {
                    seen.note_batch(&batch);
                    finish_all(engine, &batch);
                }
            });
            from_many_threads(|id| engine.submit(request(id)).map(|_| ()).unwrap());
        });
        assert_eq!((seen.len() as u64, engine.in_flight()), (THREADS * EACH, 0));
    }
}

#[test]
fn takers_share_all_requests() {
    let narrow = EngineConfig {
        queue_max: Some(100),
        in_flight_max: Some(10),
        ..config(DispatchBy::Caller)
    };
    for config in [config(DispatchBy::Caller), narrow] {
        let engine = Engine::start_pull(config).unwrap();
        let seen = Once::default();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while let Some(batch) = engine.take(None) {
                        seen.note_batch(&batch);
                        finish_all(&engine, &batch);
                    }
                });
            }
            from_many_threads(|id| engine.submit(request(id)).map(|_| ()).unwrap());
            until(|| engine.queued() == 0);
            assert!(engine.shutdown().is_empty());
        });
        assert_eq!(seen.len() as u64, THREADS * EACH);
    }
}

#[test]
fn take_gives_up_when_told_to() {
    let engine = Engine::start_pull(config(DispatchBy::Caller)).unwrap();
    assert_eq!(engine.take(Some(Duration::ZERO)), None);
    assert_eq!(engine.take(Some(Duration::from_millis(1))), None);
    engine.submit(request(5)).unwrap();
    assert_eq!(
        engine.take(Some(Duration::ZERO)).unwrap().parts()[0]
            .request
            .id,
        RequestId(5)
    );
}

/// Calls are never nested: were they, a thousand submissions from inside would exhaust the stack or the
/// depth would show.
#[test]
fn submitting_inside_dispatch_does_not_recurse() {
    for dispatch in [DispatchBy::Caller, DispatchBy::Thread] {
        let depth = AtomicUsize::new(0);
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        let engine = start(config(dispatch), move |engine, batch| {
            assert_eq!(depth.fetch_add(1, Ordering::SeqCst), 0);
            let id = batch.parts()[0].request.id.0;
            if id < 50_000 {
                engine.submit(request(id + 1)).unwrap();
            }
            finish_all(engine, &batch);
            counted.fetch_add(1, Ordering::SeqCst);
            depth.fetch_sub(1, Ordering::SeqCst);
        });
        engine.submit(request(0)).unwrap();
        until(|| count.load(Ordering::SeqCst) == 50_001);
    }
}

/// An engine whose service keeps all parts, so that with a limit of one in flight the rest stays queued.
fn stuck(config: EngineConfig) -> (Engine, Arc<Mutex<Vec<Ticket>>>) {
    let tickets = Arc::new(Mutex::new(Vec::new()));
    let kept = tickets.clone();
    let engine = start(
        EngineConfig {
            in_flight_max: Some(1),
            ..config
        },
        move |_, batch| {
            kept.lock()
                .unwrap()
                .extend(batch.parts().iter().map(|part| part.ticket));
        },
    );
    (engine, tickets)
}

fn fill(engine: &Engine, ids: std::ops::Range<u64>) {
    engine.submit(request(ids.start)).unwrap();
    until(|| engine.in_flight() == 1);
    for id in ids.start + 1..ids.end {
        engine.submit(request(id)).unwrap();
    }
}

#[test]
fn a_full_queue_fails_and_gives_the_request_back() {
    for dispatch in [DispatchBy::Caller, DispatchBy::Thread] {
        let (engine, tickets) = stuck(EngineConfig {
            queue_max: Some(2),
            when_full: WhenFull::Fail,
            ..config(dispatch)
        });
        fill(&engine, 0..3);
        assert_eq!(
            engine.submit(request(3)),
            Err(SubmitError::Full(request(3)))
        );
        assert_eq!(
            engine.submit_detached(request(3)),
            Err(SubmitError::Full(request(3)))
        );
        let first = tickets.lock().unwrap()[0];
        assert!(engine.finish(first));
        until(|| engine.queued() == 1);
        engine.submit(request(3)).unwrap();
    }
}

/// The ordering guard keeps their places until what they overlapped is finished: memory, like any other.
#[test]
fn cancelled_requests_that_others_wait_for_take_up_room() {
    let (engine, tickets) = stuck(EngineConfig {
        queue_max: Some(2),
        when_full: WhenFull::Fail,
        ..config(DispatchBy::Caller)
    });
    let write = Request::new(RequestId(0), FileId(1), Op::Write, Range::at(0, 512));
    engine.submit(write).unwrap();
    for _ in 0..2 {
        let behind = engine.submit(write).unwrap();
        assert!(engine.cancel(behind).is_some());
    }
    assert_eq!(engine.queued(), 0);
    assert_eq!(engine.submit(write), Err(SubmitError::Full(write)));
    let first = tickets.lock().unwrap()[0];
    assert!(engine.finish(first));
    engine.submit(write).unwrap();
}

#[test]
fn a_full_queue_blocks_until_there_is_room() {
    for dispatch in [DispatchBy::Caller, DispatchBy::Thread] {
        let (engine, tickets) = stuck(EngineConfig {
            queue_max: Some(1),
            ..config(dispatch)
        });
        fill(&engine, 0..2);
        let passed = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                engine.submit(request(2)).unwrap();
                passed.store(true, Ordering::SeqCst);
            });
            thread::sleep(Duration::from_millis(20));
            assert!(!passed.load(Ordering::SeqCst));
            let first = tickets.lock().unwrap()[0];
            assert!(engine.finish(first));
        });
        until(|| tickets.lock().unwrap().len() == 2);
        assert_eq!(engine.queued(), 1);
    }
}

#[test]
fn a_blocked_submitter_that_is_rejected_leaves_its_room_to_the_next() {
    let engine = Engine::start_pull(EngineConfig {
        queue_max: Some(1),
        ..config(DispatchBy::Caller)
    })
    .unwrap();
    let first = engine.submit(request(0)).unwrap();
    let bad = Request {
        queue: QueueId(99),
        ..request(1)
    };
    thread::scope(|scope| {
        let rejected = scope.spawn(|| engine.submit(bad));
        // The one that waits longest is woken first.
        thread::sleep(Duration::from_millis(20));
        let next = scope.spawn(|| engine.submit(request(2)));
        thread::sleep(Duration::from_millis(20));
        assert!(engine.cancel(first).is_some());
        assert!(matches!(
            rejected.join().unwrap(),
            Err(SubmitError::Rejected(_))
        ));
        assert!(next.join().unwrap().is_ok());
    });
    assert_eq!(engine.queued(), 1);
}

#[test]
fn shutdown_returns_what_was_queued_and_wakes_the_blocked() {
    for dispatch in [DispatchBy::Caller, DispatchBy::Thread] {
        let (engine, tickets) = stuck(EngineConfig {
            queue_max: Some(2),
            ..config(dispatch)
        });
        fill(&engine, 0..3);
        thread::scope(|scope| {
            let blocked = scope.spawn(|| engine.submit(request(3)));
            thread::sleep(Duration::from_millis(5));
            let left: Vec<_> = engine.shutdown().iter().map(|r| r.id.0).collect();
            assert_eq!(left, [1, 2]);
            assert_eq!(
                blocked.join().unwrap(),
                Err(SubmitError::Closed(request(3)))
            );
        });
        assert_eq!(
            engine.submit_detached(request(4)),
            Err(SubmitError::Closed(request(4)))
        );
        assert!(engine.shutdown().is_empty());
        let flying = tickets.lock().unwrap()[0];
        assert!(engine.finish(flying) && !engine.finish(flying));
        assert_eq!(engine.in_flight(), 0);
    }
}

#[test]
fn shutdown_returns_what_lay_in_the_inbox() {
    let (gate, closed) = mpsc::channel::<()>();
    let gate_of_service = Mutex::new(closed);
    let engine = start(config(DispatchBy::Thread), move |_, _| {
        let _ = gate_of_service.lock().unwrap().recv();
    });
    engine.submit_detached(request(0)).unwrap();
    until(|| engine.in_flight() == 1);
    (1..=100).for_each(|id| engine.submit_detached(request(id)).unwrap());
    assert_eq!(engine.queued(), 100);
    let closing = thread::spawn({
        let engine = engine.clone();
        move || engine.shutdown()
    });
    until(|| {
        matches!(
            engine.submit_detached(request(999)),
            Err(SubmitError::Closed(_))
        )
    });
    drop(gate);
    let left: Vec<_> = closing.join().unwrap().iter().map(|r| r.id.0).collect();
    assert!(left.iter().copied().take(100).eq(1..=100), "{left:?}");
}

#[test]
fn shutdown_inside_dispatch_ends_the_engine() {
    for dispatch in [DispatchBy::Caller, DispatchBy::Thread] {
        let left = Arc::new(Mutex::new(None));
        let noted = left.clone();
        let engine = start(config(dispatch), move |engine, batch| {
            assert!(
                noted.lock().unwrap().replace(engine.shutdown()).is_none(),
                "dispatched after shutdown"
            );
            finish_all(engine, &batch);
        });
        let accepted = (0..100)
            .filter(|id| engine.submit(request(*id)).is_ok())
            .count();
        until(|| left.lock().unwrap().is_some());
        assert_eq!(left.lock().unwrap().as_ref().unwrap().len(), accepted - 1);
    }
}

/// The service goes when the engine goes, so its going shows that no thread holds on to either.
#[test]
fn dropping_the_last_handle_ends_the_thread_and_frees_the_service() {
    for dispatch in [DispatchBy::Caller, DispatchBy::Thread] {
        let witness = Arc::new(());
        let held = witness.clone();
        let engine = start(config(dispatch), move |engine, batch| {
            let _keep = (&held, engine.clone());
            finish_all(engine, &batch);
        });
        engine.submit(request(0)).unwrap();
        let second = engine.clone();
        drop(engine);
        second.submit(request(1)).unwrap();
        assert_eq!(Arc::strong_count(&witness), 2);
        drop(second);
        assert_eq!(Arc::strong_count(&witness), 1);
    }
}

#[test]
fn a_service_that_panics_on_the_thread_closes_the_engine() {
    let engine = start(config(DispatchBy::Thread), |_, batch| {
        // Unwinds like a panic, without its message on the screen.
        std::panic::resume_unwind(Box::new(batch.file()));
    });
    engine.submit(request(0)).unwrap();
    until(|| matches!(engine.submit(request(1)), Err(SubmitError::Closed(_))));
    engine.shutdown();
}

#[test]
fn what_is_queued_when_a_service_panics_is_given_back_by_shutdown() {
    let (started, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let engine = start(config(DispatchBy::Thread), move |_, batch| {
        let _ = wait.lock().unwrap().recv();
        std::panic::resume_unwind(Box::new(batch.file()));
    });
    for id in 0..100 {
        engine.submit(request(id)).unwrap();
    }
    until(|| engine.in_flight() == 1);
    started.send(()).unwrap();
    let late = AtomicUsize::new(0);
    until(|| match engine.submit(request(100)) {
        Ok(_) => late.fetch_add(1, Ordering::SeqCst) == usize::MAX,
        Err(_) => true,
    });
    assert_eq!(engine.shutdown().len(), 99 + late.into_inner());
}

/// Panics at the third request.
struct Fragile(usize);

impl Recorder for Fragile {
    fn arrival(&mut self, _request: &Request) {
        self.0 += 1;
        if self.0 == 3 {
            std::panic::resume_unwind(Box::new(()));
        }
    }
}

#[test]
fn a_recorder_that_panics_is_dropped_and_nothing_else_is_lost() {
    for dispatch in [DispatchBy::Caller, DispatchBy::Thread] {
        let served = Arc::new(AtomicUsize::new(0));
        let counted = served.clone();
        let engine = start(config(dispatch), move |engine, batch| {
            counted.fetch_add(1, Ordering::SeqCst);
            finish_all(engine, &batch);
        });
        engine.record(Some(Box::new(Fragile(0))));
        for id in 0..10 {
            engine.submit_detached(request(id)).unwrap();
        }
        until(|| served.load(Ordering::SeqCst) == 10);
        assert!(engine.record(None).is_none());
        assert!(engine.shutdown().is_empty());
    }
}

#[test]
fn a_service_that_panics_in_a_caller_leaves_the_engine_working() {
    let served = Arc::new(AtomicUsize::new(0));
    let counted = served.clone();
    let engine = start(config(DispatchBy::Caller), move |engine, batch| {
        if batch.parts()[0].request.id.0 == 0 {
            std::panic::resume_unwind(Box::new(()));
        }
        counted.fetch_add(1, Ordering::SeqCst);
        finish_all(engine, &batch);
    });
    let attempt =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| engine.submit(request(0))));
    assert!(attempt.is_err());
    engine.submit(request(1)).unwrap();
    until(|| served.load(Ordering::SeqCst) == 1);
}

#[test]
fn requests_are_finished_and_cancelled_by_range() {
    for dispatch in [DispatchBy::Caller, DispatchBy::Thread] {
        let (engine, _) = stuck(EngineConfig {
            by_range: true,
            ..config(dispatch)
        });
        // Three alike: one flies, two wait; and another range behind them.
        let alike = |id| Request {
            id: RequestId(id),
            ..request(0)
        };
        engine.submit_detached(alike(0)).unwrap();
        until(|| engine.in_flight() == 1);
        engine.submit_detached(alike(1)).unwrap();
        engine.submit(alike(2)).unwrap();
        engine.submit_detached(request(3)).unwrap();
        let (file, op, range) = (request(0).file, Op::Read, request(0).range);
        assert_eq!(engine.cancel_range(file, Op::Write, range), None);
        assert_eq!(
            engine.cancel_range(file, op, Range::at(range.start(), 1)),
            None
        );
        assert_eq!(
            engine.cancel_range(file, op, range).map(|r| r.id),
            Some(RequestId(2))
        );
        assert!(engine.finish_range(file, op, range));
        until(|| engine.in_flight() == 1);
        assert_eq!(engine.cancel_range(file, op, range), None);
        assert!(engine.finish_range(file, op, range));
        until(|| engine.in_flight() == 1);
        assert!(!engine.finish_range(file, op, range));
        assert!(engine.finish_range(request(3).file, op, request(3).range));
        assert_eq!((engine.queued(), engine.in_flight()), (0, 0));
    }
}

#[test]
fn without_a_directory_nothing_is_found_by_range() {
    let (engine, tickets) = stuck(config(DispatchBy::Caller));
    fill(&engine, 0..2);
    let r = request(1);
    assert_eq!(engine.cancel_range(r.file, r.op, r.range), None);
    assert!(!engine.finish_range(request(0).file, r.op, request(0).range));
    let first = tickets.lock().unwrap()[0];
    assert_eq!(engine.cancel(first), None);
    assert!(engine.finish(first));
}

#[test]
fn cancelled_requests_are_never_dispatched() {
    let (engine, tickets) = stuck(config(DispatchBy::Caller));
    fill(&engine, 0..2);
    let ticket = engine.submit(request(2)).unwrap();
    assert_eq!(engine.cancel(ticket).map(|r| r.id), Some(RequestId(2)));
    assert_eq!(engine.cancel(ticket), None);
    assert!(!engine.finish(ticket));
    let first = tickets.lock().unwrap()[0];
    assert!(engine.finish(first));
    assert_eq!((engine.queued(), engine.in_flight()), (0, 1));
    assert!(!tickets.lock().unwrap().contains(&ticket));
}

/// Writes down the ids and moments it is told.
struct Tape(Arc<Mutex<Vec<Request>>>);

impl Recorder for Tape {
    fn arrival(&mut self, request: &Request) {
        self.0.lock().unwrap().push(*request);
    }
}

#[test]
fn recording_starts_and_stops_at_any_time_and_keeps_the_order_of_arrival() {
    for dispatch in [DispatchBy::Caller, DispatchBy::Thread] {
        let engine = start(config(dispatch), |engine, batch| finish_all(engine, &batch));
        let tape = Arc::new(Mutex::new(Vec::new()));
        engine.submit_detached(request(0)).unwrap();
        assert!(engine.record(Some(Box::new(Tape(tape.clone())))).is_none());
        (1..500).for_each(|id| engine.submit_detached(request(id)).unwrap());
        engine.submit(request(500)).unwrap();
        let rejected = Request {
            queue: QueueId(9),
            ..request(501)
        };
        assert!(matches!(
            engine.submit(rejected),
            Err(SubmitError::Rejected(_))
        ));
        assert!(engine.record(None).is_some());
        engine.submit_detached(request(502)).unwrap();
        assert!(engine.record(None).is_none());
        let tape = tape.lock().unwrap();
        assert!(
            tape.iter().map(|r| r.id.0).eq(1..=500),
            "{} arrivals",
            tape.len()
        );
        assert!(tape.is_sorted_by_key(|r| r.arrival) && tape[499].arrival <= engine.now());
    }
}

#[test]
fn a_bad_queue_id_is_refused_and_good_ones_follow_the_settings() {
    for dispatch in [DispatchBy::Caller, DispatchBy::Thread] {
        let engine = start(config(dispatch), |engine, batch| finish_all(engine, &batch));
        let second = Request {
            queue: QueueId(1),
            ..request(1)
        };
        assert!(matches!(
            engine.submit_detached(second),
            Err(SubmitError::Rejected(_))
        ));
        assert!(matches!(
            engine.submit(second),
            Err(SubmitError::Rejected(_))
        ));
        engine
            .configure(Settings {
                queues: 2,
                ..Settings::new(PolicyKind::To)
            })
            .unwrap();
        engine.submit_detached(second).unwrap();
        engine.submit(second).unwrap();
        assert!(
            engine
                .configure(Settings {
                    queues: 0,
                    ..Settings::new(PolicyKind::To)
                })
                .is_err()
        );
        engine.submit_detached(second).unwrap();
        until(|| engine.queued() + engine.in_flight() == 0);
    }
}

#[test]
fn noop_ignores_the_limit_in_flight() {
    let (engine, tickets) = stuck(EngineConfig::new(Settings::new(PolicyKind::Noop)));
    (0..10).for_each(|id| assert!(engine.submit(request(id)).is_ok()));
    assert_eq!(tickets.lock().unwrap().len(), 10);
}

#[test]
fn limits_of_zero_are_refused() {
    for config in [
        EngineConfig {
            queue_max: Some(0),
            ..config(DispatchBy::Caller)
        },
        EngineConfig {
            in_flight_max: Some(0),
            ..config(DispatchBy::Caller)
        },
    ] {
        assert!(matches!(
            Engine::start_pull(config),
            Err(EngineError::Zero { .. })
        ));
    }
}

/// Switches policies under load, TWINS with short windows among them, so that deadlines occur.
#[test]
fn nothing_is_lost_when_the_policy_changes_under_load() {
    for dispatch in [DispatchBy::Caller, DispatchBy::Thread] {
        let seen = Arc::new(Once::default());
        let noted = seen.clone();
        let engine = start(
            EngineConfig {
                in_flight_max: Some(16),
                ..config(dispatch)
            },
            move |engine, batch| {
                noted.note_batch(&batch);
                finish_all(engine, &batch);
            },
        );
        thread::scope(|scope| {
            scope.spawn(|| from_many_threads(|id| engine.submit_detached(request(id)).unwrap()));
            for policy in PolicyKind::ALL.into_iter().cycle().take(40) {
                engine.configure(Settings::new(policy)).unwrap();
                thread::yield_now();
            }
        });
        until(|| engine.queued() + engine.in_flight() == 0);
        assert_eq!(seen.len() as u64, THREADS * EACH);
    }
}

/// TWINS holds a queue's requests until its window comes: with nobody else to arrive, only the engine's
/// own thread, or the taker, can keep that moment.
#[test]
fn deadlines_are_kept_without_anybody_arriving() {
    let twins = || Settings {
        queues: 4,
        ..Settings::new(PolicyKind::Twins)
    };
    let to_queue = |id: u64| Request {
        queue: QueueId(id as u32 % 4),
        ..request(id)
    };
    for dispatch in [DispatchBy::Caller, DispatchBy::Thread] {
        let seen = Arc::new(Once::default());
        let noted = seen.clone();
        let engine = start(
            EngineConfig {
                dispatch,
                ..EngineConfig::new(twins())
            },
            move |engine, batch| {
                noted.note_batch(&batch);
                finish_all(engine, &batch);
            },
        );
        (0..20).for_each(|id| engine.submit_detached(to_queue(id)).unwrap());
        until(|| seen.len() == 20);
    }
    let engine = Engine::start_pull(EngineConfig::new(twins())).unwrap();
    (0..20).for_each(|id| engine.submit_detached(to_queue(id)).unwrap());
    (0..20).for_each(|_| finish_all(&engine, &engine.take(None).unwrap()));
}
