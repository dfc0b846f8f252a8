//! The engine's promises under a model checker that tries thousands of interleavings of a few threads.
//!
//! Each scenario starts the real engine, lets some threads loose on it, and then settles the account:
//! every accepted request was dispatched once, or cancelled once, or given back by shutdown, and nobody
//! was left waiting (a deadlock fails by itself). Run with
//! `cargo test -p presagio-engine --features shuttle --test model`.

use presagio_core::{FileId, Op, QueueId, Range, Request, RequestId};
use presagio_engine::{DispatchBy, Engine, EngineConfig, Service, SubmitError, WhenFull};
use presagio_sched::{Batch, PolicyKind, Settings, Ticket};
use shuttle::sync::Mutex;
use shuttle::thread;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const RANDOM_SCHEDULES: usize = 5000;
const PCT_SCHEDULES: usize = 5000;
const PCT_DEPTH: usize = 4;

fn check(scenario: impl Fn() + Send + Sync + Copy + 'static) {
    shuttle::check_random(scenario, RANDOM_SCHEDULES);
    shuttle::check_pct(scenario, PCT_SCHEDULES, PCT_DEPTH);
}

/// What became of each request.
#[derive(Debug, Default)]
struct Fate {
    accepted: u32,
    dispatched: u32,
    cancelled: u32,
    returned: u32,
}

/// The account of all requests.
#[derive(Default)]
struct Ledger {
    fates: Mutex<BTreeMap<u64, Fate>>,
}

impl Ledger {
    fn note(&self, id: RequestId, change: impl FnOnce(&mut Fate)) {
        change(self.fates.lock().unwrap().entry(id.0).or_default());
    }

    fn shut(&self, engine: &Engine) {
        for request in engine.shutdown() {
            self.note(request.id, |f| f.returned += 1);
        }
    }

    /// Every request that was accepted met one end, the others none.
    fn settle(&self) {
        for (id, fate) in self.fates.lock().unwrap().iter() {
            let ends = fate.dispatched + fate.cancelled + fate.returned;
            assert_eq!(fate.accepted, ends, "request {id}: {fate:?}");
            assert!(fate.accepted <= 1, "request {id}: {fate:?}");
        }
    }
}

fn request(id: u64) -> Request {
    Request::new(RequestId(id), FileId(1), Op::Read, Range::at(id * 10, 10))
}

fn config(policy: PolicyKind, dispatch: DispatchBy) -> EngineConfig {
    EngineConfig {
        dispatch,
        ..EngineConfig::new(Settings::new(policy))
    }
}

/// Notes each part, checks the promises about calls, and finishes here or leaves it to others.
struct Noting {
    ledger: Arc<Ledger>,
    finish_here: bool,
    queue_max: usize,
    inside: Mutex<bool>,
    unfinished: Mutex<Vec<Ticket>>,
}

impl Noting {
    fn new(ledger: &Arc<Ledger>, finish_here: bool) -> Arc<Noting> {
        Noting::bounded(ledger, finish_here, usize::MAX)
    }

    fn bounded(ledger: &Arc<Ledger>, finish_here: bool, queue_max: usize) -> Arc<Noting> {
        Arc::new(Noting {
            ledger: ledger.clone(),
            finish_here,
            queue_max,
            inside: Mutex::new(false),
            unfinished: Mutex::default(),
        })
    }

    fn finish_what_is_left(&self, engine: &Engine) {
        let tickets = std::mem::take(&mut *self.unfinished.lock().unwrap());
        tickets.into_iter().for_each(|t| assert!(engine.finish(t)));
    }
}

impl Service for Noting {
    fn dispatch(&self, engine: &Engine, batch: Batch) {
        let was_inside = std::mem::replace(&mut *self.inside.lock().unwrap(), true);
        assert!(!was_inside, "two calls at the same time");
        assert!(engine.queued() <= self.queue_max);
        for part in batch.parts() {
            self.ledger.note(part.request.id, |f| f.dispatched += 1);
            match self.finish_here {
                true => assert!(engine.finish(part.ticket)),
                false => self.unfinished.lock().unwrap().push(part.ticket),
            }
        }
        *self.inside.lock().unwrap() = false;
    }
}

fn submit(engine: &Engine, ledger: &Ledger, id: u64) -> Option<Ticket> {
    // Noted before, since it may be dispatched before `submit` returns.
    ledger.note(RequestId(id), |f| f.accepted += 1);
    match engine.submit(request(id)) {
        Ok(ticket) => Some(ticket),
        Err(_) => {
            ledger.note(RequestId(id), |f| f.accepted -= 1);
            None
        }
    }
}

fn submit_detached(engine: &Engine, ledger: &Ledger, id: u64) {
    ledger.note(RequestId(id), |f| f.accepted += 1);
    if engine.submit_detached(request(id)).is_err() {
        ledger.note(RequestId(id), |f| f.accepted -= 1);
    }
}

fn spawn(
    engine: &Engine,
    ledger: &Arc<Ledger>,
    body: impl FnOnce(&Engine, &Ledger) + Send + 'static,
) -> thread::JoinHandle<()> {
    let (engine, ledger) = (engine.clone(), ledger.clone());
    thread::spawn(move || body(&engine, &ledger))
}

fn join(threads: impl IntoIterator<Item = thread::JoinHandle<()>>) {
    threads.into_iter().for_each(|t| t.join().unwrap());
}

/// Waits, without time, until nothing is queued: whoever has to dispatch must do so unasked.
fn until_empty(engine: &Engine) {
    while engine.queued() > 0 {
        thread::yield_now();
    }
}

fn all_submitted_is_dispatched(
    dispatch: DispatchBy,
    finish_here: bool,
    in_flight_max: Option<usize>,
) {
    let ledger = Arc::new(Ledger::default());
    let service = Noting::new(&ledger, finish_here);
    let config = EngineConfig {
        in_flight_max,
        ..config(PolicyKind::To, dispatch)
    };
    let engine = Engine::start(config, service.clone()).unwrap();
    let threads = [0u64, 10].map(|base| {
        let service = service.clone();
        spawn(&engine, &ledger, move |engine, ledger| {
            for id in base..base + 3 {
                submit(engine, ledger, id).unwrap();
                service.finish_what_is_left(engine);
            }
        })
    });
    join(threads);
    // With a limit in flight, what was dispatched last may still have to be finished for the rest to go.
    while engine.queued() > 0 || engine.in_flight() > 0 {
        service.finish_what_is_left(&engine);
        thread::yield_now();
    }
    assert!(engine.shutdown().is_empty());
    ledger.settle();
    assert_eq!(
        ledger
            .fates
            .lock()
            .unwrap()
            .values()
            .map(|f| f.dispatched)
            .sum::<u32>(),
        6
    );
}

#[test]
fn callers_leave_no_request_behind() {
    check(|| all_submitted_is_dispatched(DispatchBy::Caller, true, None));
}

#[test]
fn callers_leave_no_request_behind_at_a_limit_in_flight() {
    check(|| all_submitted_is_dispatched(DispatchBy::Caller, false, Some(1)));
}

#[test]
fn the_thread_leaves_no_request_behind() {
    check(|| all_submitted_is_dispatched(DispatchBy::Thread, true, None));
}

#[test]
fn the_thread_leaves_no_request_behind_at_a_limit_in_flight() {
    check(|| all_submitted_is_dispatched(DispatchBy::Thread, false, Some(1)));
}

/// A submitter that nobody helps: when it has returned, its requests are dispatched.
#[test]
fn a_caller_alone_dispatches_before_it_returns() {
    check(|| {
        let ledger = Arc::new(Ledger::default());
        let engine = Engine::start(
            config(PolicyKind::To, DispatchBy::Caller),
            Noting::new(&ledger, true),
        )
        .unwrap();
        for id in 0..3 {
            submit(&engine, &ledger, id).unwrap();
            assert_eq!(engine.queued() + engine.in_flight(), 0);
        }
        drop(engine);
        ledger.settle();
    });
}

#[test]
fn detached_requests_are_dispatched_whoever_looks_at_the_engine_meanwhile() {
    check(|| {
        let ledger = Arc::new(Ledger::default());
        let by_range = EngineConfig {
            by_range: true,
            ..config(PolicyKind::To, DispatchBy::Thread)
        };
        let engine = Engine::start(by_range, Noting::new(&ledger, true)).unwrap();
        let submitters = [0u64, 10].map(|base| {
            spawn(&engine, &ledger, move |engine, ledger| {
                (base..base + 3).for_each(|id| submit_detached(engine, ledger, id));
            })
        });
        // Each of these empties the inbox, and none of them dispatches.
        let onlooker = spawn(&engine, &ledger, |engine, ledger| {
            for id in [1, 11] {
                let range = request(id).range;
                if let Some(request) = engine.cancel_range(FileId(1), Op::Read, range) {
                    ledger.note(request.id, |f| f.cancelled += 1);
                }
                engine.record(None);
            }
        });
        join(submitters.into_iter().chain([onlooker]));
        until_empty(&engine);
        ledger.shut(&engine);
        ledger.settle();
        assert!(
            ledger
                .fates
                .lock()
                .unwrap()
                .values()
                .all(|f| f.returned == 0)
        );
    });
}

/// The second write waits for the first, which nobody finishes; the third must not wait with it.
#[test]
fn what_the_guard_holds_does_not_hide_what_arrives() {
    check(|| {
        let ledger = Arc::new(Ledger::default());
        let service = Noting::new(&ledger, false);
        let engine =
            Engine::start(config(PolicyKind::To, DispatchBy::Thread), service.clone()).unwrap();
        let submitter = spawn(&engine, &ledger, |engine, ledger| {
            for (id, start) in [(0, 0), (1, 0), (2, 50)] {
                ledger.note(RequestId(id), |f| f.accepted += 1);
                let write = Request::new(RequestId(id), FileId(1), Op::Write, Range::at(start, 10));
                engine.submit_detached(write).unwrap();
            }
        });
        join([submitter]);
        while ledger.fates.lock().unwrap()[&2].dispatched == 0 {
            thread::yield_now();
        }
        assert_eq!(ledger.fates.lock().unwrap()[&1].dispatched, 0);
        service.finish_what_is_left(&engine);
        until_empty(&engine);
        ledger.shut(&engine);
        ledger.settle();
    });
}

fn cancel_and_shutdown_race(dispatch: DispatchBy, detached: bool) {
    let ledger = Arc::new(Ledger::default());
    let service = Noting::new(&ledger, false);
    let limited = EngineConfig {
        in_flight_max: Some(1),
        by_range: true,
        ..config(PolicyKind::To, dispatch)
    };
    let engine = Engine::start(limited, service.clone()).unwrap();
    let submitter = spawn(&engine, &ledger, move |engine, ledger| {
        let tickets: Vec<_> = (0..3).filter_map(|id| submit(engine, ledger, id)).collect();
        for ticket in tickets {
            if let Some(request) = engine.cancel(ticket) {
                ledger.note(request.id, |f| f.cancelled += 1);
            }
        }
    });
    let other = spawn(&engine, &ledger, move |engine, ledger| {
        for id in 10..12 {
            match detached {
                true => submit_detached(engine, ledger, id),
                false => _ = submit(engine, ledger, id),
            }
        }
    });
    let finisher = {
        let service = service.clone();
        spawn(&engine, &ledger, move |engine, _| {
            (0..2).for_each(|_| service.finish_what_is_left(engine))
        })
    };
    let closer = spawn(&engine, &ledger, |engine, ledger| ledger.shut(engine));
    join([submitter, other, finisher, closer]);
    ledger.shut(&engine);
    service.finish_what_is_left(&engine);
    assert_eq!((engine.queued(), engine.in_flight()), (0, 0));
    ledger.settle();
}

#[test]
fn every_request_has_one_end_when_callers_cancel_and_shut_down() {
    check(|| cancel_and_shutdown_race(DispatchBy::Caller, false));
}

#[test]
fn every_request_has_one_end_when_the_thread_is_cancelled_and_shut_down() {
    check(|| cancel_and_shutdown_race(DispatchBy::Thread, true));
}

fn blocked_submitters_go_on(dispatch: DispatchBy) {
    let ledger = Arc::new(Ledger::default());
    let service = Noting::bounded(&ledger, false, 1);
    let tight = EngineConfig {
        queue_max: Some(1),
        in_flight_max: Some(1),
        ..config(PolicyKind::To, dispatch)
    };
    let engine = Engine::start(tight, service.clone()).unwrap();
    let submitters = [0u64, 10].map(|base| {
        spawn(&engine, &ledger, move |engine, ledger| {
            for id in base..base + 2 {
                submit(engine, ledger, id).unwrap();
                assert!(engine.queued() <= 1);
            }
        })
    });
    let finisher = spawn(&engine, &ledger, move |engine, ledger| {
        let dispatched = || {
            ledger
                .fates
                .lock()
                .unwrap()
                .values()
                .map(|f| f.dispatched)
                .sum::<u32>()
        };
        while dispatched() < 4 || engine.in_flight() > 0 {
            service.finish_what_is_left(engine);
            thread::yield_now();
        }
    });
    join(submitters.into_iter().chain([finisher]));
    assert!(engine.shutdown().is_empty());
    ledger.settle();
}

#[test]
fn blocked_submitters_go_on_when_callers_dispatch() {
    check(|| blocked_submitters_go_on(DispatchBy::Caller));
}

#[test]
fn blocked_submitters_go_on_when_the_thread_dispatches() {
    check(|| blocked_submitters_go_on(DispatchBy::Thread));
}

#[test]
fn shutdown_wakes_blocked_submitters() {
    check(|| {
        let ledger = Arc::new(Ledger::default());
        let tight = EngineConfig {
            queue_max: Some(1),
            in_flight_max: Some(1),
            ..config(PolicyKind::To, DispatchBy::Caller)
        };
        let engine = Engine::start(tight, Noting::bounded(&ledger, false, 1)).unwrap();
        let submitters = [0u64, 10].map(|base| {
            spawn(&engine, &ledger, move |engine, ledger| {
                for id in base..base + 2 {
                    submit(engine, ledger, id);
                }
            })
        });
        let closer = spawn(&engine, &ledger, |engine, ledger| ledger.shut(engine));
        join(submitters.into_iter().chain([closer]));
        assert!(matches!(
            engine.submit(request(99)),
            Err(SubmitError::Closed(_))
        ));
        ledger.settle();
    });
}

fn taken(engine: &Engine, ledger: &Ledger, timeout: Option<Duration>) -> bool {
    let Some(batch) = engine.take(timeout) else {
        return false;
    };
    for part in batch.parts() {
        ledger.note(part.request.id, |f| f.dispatched += 1);
        assert!(engine.finish(part.ticket));
    }
    true
}

fn takers_get_everything(in_flight_max: Option<usize>, queue_max: Option<usize>) {
    let ledger = Arc::new(Ledger::default());
    let config = EngineConfig {
        in_flight_max,
        queue_max,
        ..config(PolicyKind::To, DispatchBy::Caller)
    };
    let engine = Engine::start_pull(config).unwrap();
    let takers = [(); 2].map(|()| {
        spawn(
            &engine,
            &ledger,
            |engine, ledger| while taken(engine, ledger, None) {},
        )
    });
    let submitters = [0u64, 10].map(|base| {
        spawn(&engine, &ledger, move |engine, ledger| {
            for id in base..base + 3 {
                submit(engine, ledger, id).unwrap();
                assert!(queue_max.is_none_or(|max| engine.queued() <= max));
            }
        })
    });
    join(submitters);
    until_empty(&engine);
    assert!(engine.shutdown().is_empty());
    join(takers);
    ledger.settle();
}

#[test]
fn takers_get_everything_and_leave_at_shutdown() {
    check(|| takers_get_everything(None, None));
}

#[test]
fn takers_get_everything_through_narrow_limits() {
    check(|| takers_get_everything(Some(1), Some(1)));
}

/// Nobody finishes anything here: both takers must be told of a change that readies two batches.
#[test]
fn one_change_can_help_several_takers() {
    check(|| {
        let ledger = Arc::new(Ledger::default());
        let one_at_a_time = EngineConfig {
            in_flight_max: Some(1),
            ..config(PolicyKind::To, DispatchBy::Caller)
        };
        let engine = Engine::start_pull(one_at_a_time).unwrap();
        for id in 0..3 {
            submit(&engine, &ledger, id);
        }
        assert!(engine.take(None).is_some());
        let takers = [(); 2].map(|()| {
            spawn(&engine, &ledger, |engine, _| {
                assert!(engine.take(None).is_some());
            })
        });
        engine.configure(Settings::new(PolicyKind::Noop)).unwrap();
        join(takers);
        assert_eq!((engine.queued(), engine.in_flight()), (0, 3));
    });
}

#[test]
fn takers_that_give_up_strand_nothing() {
    check(|| {
        let ledger = Arc::new(Ledger::default());
        let engine = Engine::start_pull(config(PolicyKind::To, DispatchBy::Caller)).unwrap();
        let patient = spawn(
            &engine,
            &ledger,
            |engine, ledger| while taken(engine, ledger, None) {},
        );
        let hasty = spawn(&engine, &ledger, |engine, ledger| {
            for _ in 0..3 {
                taken(engine, ledger, Some(Duration::from_nanos(1)));
            }
        });
        for id in 0..3 {
            submit(&engine, &ledger, id);
        }
        join([hasty]);
        until_empty(&engine);
        ledger.shut(&engine);
        join([patient]);
        ledger.settle();
    });
}

/// Submits again from inside `dispatch`, fails nothing, and shuts down from there in the end.
struct Nesting {
    ledger: Arc<Ledger>,
}

impl Service for Nesting {
    fn dispatch(&self, engine: &Engine, batch: Batch) {
        for part in batch.parts() {
            let id = part.request.id.0;
            self.ledger.note(part.request.id, |f| f.dispatched += 1);
            if id % 10 < 3 {
                submit(engine, &self.ledger, id + 1);
            } else {
                self.ledger.shut(engine);
            }
            assert!(engine.finish(part.ticket));
        }
    }
}

fn nested(dispatch: DispatchBy) {
    let ledger = Arc::new(Ledger::default());
    let engine = Engine::start(
        config(PolicyKind::To, dispatch),
        Arc::new(Nesting {
            ledger: ledger.clone(),
        }),
    )
    .unwrap();
    let threads = [0u64, 10].map(|id| spawn(&engine, &ledger, move |e, l| _ = submit(e, l, id)));
    join(threads);
    ledger.shut(&engine);
    ledger.settle();
}

#[test]
fn callers_may_submit_and_shut_down_inside_dispatch() {
    check(|| nested(DispatchBy::Caller));
}

#[test]
fn the_thread_may_submit_and_shut_down_inside_dispatch() {
    check(|| nested(DispatchBy::Thread));
}

/// The queue is full and the one who could make room is asking for it: it must be told, not wait.
struct Greedy {
    ledger: Arc<Ledger>,
}

impl Service for Greedy {
    fn dispatch(&self, engine: &Engine, batch: Batch) {
        for part in batch.parts() {
            self.ledger.note(part.request.id, |f| f.dispatched += 1);
            if part.request.id.0 < 100 {
                for n in 1..4 {
                    submit(engine, &self.ledger, 100 * n + part.request.id.0);
                }
            }
            assert!(engine.queued() <= 2);
            assert!(engine.finish(part.ticket));
        }
    }
}

fn greedy(dispatch: DispatchBy) {
    let ledger = Arc::new(Ledger::default());
    let bounded = EngineConfig {
        queue_max: Some(2),
        when_full: WhenFull::Block,
        ..config(PolicyKind::To, dispatch)
    };
    let engine = Engine::start(
        bounded,
        Arc::new(Greedy {
            ledger: ledger.clone(),
        }),
    )
    .unwrap();
    let threads = [0u64, 10].map(|base| {
        spawn(&engine, &ledger, move |e, l| {
            (base..base + 2).for_each(|id| assert!(submit(e, l, id).is_some()))
        })
    });
    join(threads);
    until_empty(&engine);
    ledger.shut(&engine);
    ledger.settle();
}

#[test]
fn a_full_queue_does_not_block_the_one_who_empties_it() {
    check(|| greedy(DispatchBy::Caller));
    check(|| greedy(DispatchBy::Thread));
}

/// Requests for several data servers under TWINS, whose windows end at deadlines.
fn twins() -> EngineConfig {
    EngineConfig::new(Settings {
        queues: 2,
        ..Settings::new(PolicyKind::Twins)
    })
}

fn submit_to_queues(engine: &Engine, ledger: &Ledger, base: u64) {
    for id in base..base + 3 {
        ledger.note(RequestId(id), |f| f.accepted += 1);
        let queue = QueueId(id as u32 % 2);
        engine
            .submit_detached(Request {
                queue,
                ..request(id)
            })
            .unwrap();
    }
}

fn deadlines(dispatch: DispatchBy) {
    let ledger = Arc::new(Ledger::default());
    let engine = Engine::start(
        EngineConfig {
            dispatch,
            ..twins()
        },
        Noting::new(&ledger, true),
    )
    .unwrap();
    let threads =
        [0u64, 10].map(|base| spawn(&engine, &ledger, move |e, l| submit_to_queues(e, l, base)));
    join(threads);
    until_empty(&engine);
    assert!(engine.shutdown().is_empty());
    ledger.settle();
}

#[test]
fn deadlines_are_kept_when_nobody_arrives() {
    check(|| deadlines(DispatchBy::Caller));
    check(|| deadlines(DispatchBy::Thread));
}

#[test]
fn takers_keep_deadlines_even_when_one_gives_up() {
    check(|| {
        let ledger = Arc::new(Ledger::default());
        let engine = Engine::start_pull(twins()).unwrap();
        let patient = spawn(
            &engine,
            &ledger,
            |engine, ledger| while taken(engine, ledger, None) {},
        );
        let hasty = spawn(&engine, &ledger, |engine, ledger| {
            taken(engine, ledger, Some(Duration::from_nanos(1)));
        });
        submit_to_queues(&engine, &ledger, 0);
        join([hasty]);
        until_empty(&engine);
        assert!(engine.shutdown().is_empty());
        join([patient]);
        ledger.settle();
    });
}

#[test]
fn the_last_handle_ends_the_thread() {
    check(|| {
        let ledger = Arc::new(Ledger::default());
        let engine = Engine::start(
            config(PolicyKind::To, DispatchBy::Thread),
            Noting::new(&ledger, true),
        )
        .unwrap();
        let threads =
            [0u64, 10].map(|id| spawn(&engine, &ledger, move |e, l| submit_detached(e, l, id)));
        drop(engine);
        join(threads);
        // What the thread had not reached yet went down with the last handle, which keeps no account;
        // that the thread ended is checked by the scheduler: it reports threads that wait for ever.
    });
}
