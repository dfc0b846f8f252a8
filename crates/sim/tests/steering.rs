//! What may happen while a run goes: decisions by period, recordings, applications that wait for others.

mod common;

use common::{Logged, run, scenario};
use presagio_core::{Nanos, Op, Request};
use presagio_sched::{PolicyKind, Settings};
use presagio_sim::{Change, Place, Replay, Seen, Simulation, Steering, Step};

const BUSY: &str = "
    clients = { machines = 4 }
    ionodes = { count = 2, scheduler = { policy = \"TO\" } }
    servers = { count = 2, device = \"ssd\" }
    [[app]]
    processes = 16
    pattern = \"strided\"
    total = \"64MiB\"
";

/// Tries another policy, or none, in every period.
#[derive(Default)]
struct Restless {
    arrivals: u64,
    served: u64,
    periods: usize,
}

impl Steering for Restless {
    fn period(&self) -> Nanos {
        Nanos::from_millis(10)
    }

    fn arrived(&mut self, place: Place, _request: &Request, _now: Nanos) {
        self.arrivals += u64::from(place == Place::IoNode(0) || place == Place::IoNode(1));
    }

    fn decide(&mut self, now: Nanos, seen: &[Seen], changes: &mut Vec<Change>) {
        self.periods += 1;
        for seen in seen {
            assert!(seen.busy <= Nanos::from_millis(10));
            if let Place::Server(_) = seen.place {
                self.served += seen.served[0];
            }
            let policy = PolicyKind::ALL[self.periods % PolicyKind::ALL.len()];
            let settings = Settings {
                queues: 2,
                ..Settings::new(policy)
            };
            changes.push(Change {
                place: seen.place,
                settings: (!self.periods.is_multiple_of(3)).then_some(settings),
                at: now + Nanos::from_millis(1),
            });
        }
    }
}

#[test]
fn policies_can_change_in_every_period_and_nothing_is_lost() {
    let scenario = scenario(BUSY);
    let mut restless = Restless::default();
    let (devices, logs) = Logged::all(2);
    let report = Simulation::new(&scenario)
        .with_devices(devices)
        .steered_by(&mut restless)
        .run()
        .expect("it runs");
    assert!(restless.periods > 10, "{}", restless.periods);
    assert_eq!(report.devices.bytes, [64 << 20, 0]);
    assert!(restless.served > 60 << 20 && restless.served <= 64 << 20);
    assert_eq!(restless.arrivals, report.requests());
    for log in logs {
        common::covered(&log).expect("every byte once");
    }
}

#[test]
fn who_only_looks_on_changes_nothing() {
    struct Watch;
    impl Steering for Watch {
        fn period(&self) -> Nanos {
            Nanos::from_millis(7)
        }
        fn decide(&mut self, _: Nanos, _: &[Seen], _: &mut Vec<Change>) {}
    }
    let scenario = scenario(BUSY);
    let watched = Simulation::new(&scenario).steered_by(&mut Watch).run();
    assert_eq!(watched.expect("it runs").makespan, run(&scenario).makespan);
}

#[test]
fn a_recording_is_replayed_with_its_pauses() {
    let scenario = scenario("servers = { device = \"ssd\" }\n[[app]]\ntrace = \"recording\"");
    let step = |think: u64, offset: u64, op: Op| Step {
        think: Nanos::from_millis(think),
        file: 0,
        op,
        offset,
        len: 4096,
    };
    let replay = Replay {
        files: 1,
        processes: vec![
            vec![
                step(0, 0, Op::Write),
                step(500, 4096, Op::Write),
                step(300, 0, Op::Read),
            ],
            vec![step(100, 1 << 20, Op::Read)],
        ],
    };
    let report = Simulation::new(&scenario)
        .replaying(0, replay)
        .run()
        .expect("it runs");
    assert_eq!(report.devices.bytes, [2 * 4096, 2 * 4096]);
    let took = report.makespan;
    assert!(
        (Nanos::from_millis(800)..Nanos::from_millis(810)).contains(&took),
        "{took}"
    );
}

#[test]
fn an_application_begins_when_the_one_before_is_done() {
    let scenario = scenario(
        "
        [[app]]
        name = \"write\"
        op = \"write\"
        processes = 4
        total = \"4MiB\"
        [[app]]
        name = \"read\"
        after = \"write\"
        processes = 4
        total = \"4MiB\"
        ",
    );
    let report = run(&scenario);
    assert!(report.apps[1].begin >= report.apps[0].end);
    assert_eq!(report.devices.bytes, [4 << 20, 4 << 20]);
}

#[test]
fn at_the_stone_wall_nothing_new_begins() {
    let scenario = scenario(
        "
        [[app]]
        processes = 8
        pattern = \"random\"
        total = \"1GiB\"
        stonewall = \"1s\"
        ",
    );
    let report = run(&scenario);
    let took = report.makespan;
    assert!(
        (Nanos::from_secs(1)..Nanos::from_millis(1500)).contains(&took),
        "{took}"
    );
    assert!(report.bytes() < 1 << 30);
}

#[test]
fn a_run_that_would_take_too_long_is_given_up() {
    let scenario = scenario("limit = \"10ms\"\n[[app]]\ntotal = \"1GiB\"");
    let error = Simulation::new(&scenario)
        .run()
        .expect_err("too long")
        .to_string();
    assert!(
        error.contains("10.0 ms") && error.contains("limit"),
        "{error}"
    );
}
