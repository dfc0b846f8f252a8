//! `policy = "auto"`: the real selector inside a simulated cluster.

mod common;

use common::{run, scenario};
use presagio_core::Nanos;
use presagio_sim::{Change, Place, Seen, Simulation, Steering, Verdict};

/// What a thesis server sees of large strided reads on a disk, long enough for several periods.
fn busy(policy: &str) -> presagio_sim::Scenario {
    scenario(&format!(
        "
        clients = {{ machines = 8 }}
        network = {{ transmission = \"8KiB\", bandwidth = \"125MB/s\", latency = \"50us\", jitter = \"50us\" }}
        [servers]
        count = 4
        workers = 64
        stripe = \"32KiB\"
        device = \"pastel\"
        scheduler = {{ policy = \"{policy}\", period = \"50ms\" }}
        [[app]]
        processes = 16
        pattern = \"strided\"
        request = \"256KiB\"
        bytes = \"4MiB\"
        "
    ))
}

#[test]
fn auto_finds_a_policy_says_why_and_is_faster_than_none() {
    let (none, auto) = (run(&busy("none")), run(&busy("auto")));
    assert!(none.decisions.is_empty());
    let first = auto.decisions.first().expect("it decided");
    assert!(matches!(first.place, Place::Server(_)));
    assert!(first.at >= Nanos::from_millis(50));
    let Verdict::Trees(decision) = &first.verdict else {
        panic!("not by trees: {first:?}");
    };
    assert_eq!(decision.tree, "T3", "the device is known");
    assert!(decision.reason.contains("cases"), "{decision}");
    assert!(decision.policy.is_some(), "{decision}");
    assert_eq!(auto.devices.bytes, none.devices.bytes);
    assert!(
        auto.makespan < none.makespan,
        "{} and {}",
        auto.makespan,
        none.makespan
    );
}

#[test]
fn the_same_seed_gives_the_same_decisions() {
    assert_eq!(run(&busy("auto")), run(&busy("auto")));
}

#[test]
fn only_one_can_decide_and_whoever_looks_on_may() {
    struct Other(Nanos);
    impl Steering for Other {
        fn period(&self) -> Nanos {
            self.0
        }
        fn decide(&mut self, _: Nanos, _: &[Seen], _: &mut Vec<Change>) {}
    }
    let scenario = busy("auto");
    let decides = &mut Other(Nanos::from_millis(10));
    let error = Simulation::new(&scenario).steered_by(decides).run();
    assert!(error.expect_err("two decide").to_string().contains("auto"));
    let looks = &mut Other(Nanos::MAX);
    let report = Simulation::new(&scenario).steered_by(looks).run();
    assert_eq!(report.expect("it runs"), run(&scenario));
}

#[test]
fn a_period_of_nothing_is_refused() {
    let text = "[servers]\nscheduler = { policy = \"auto\", period = \"0ms\" }\n[[app]]\nbytes = \"1MiB\"\n";
    let error = presagio_sim::Scenario::from_toml(text).expect_err("no period");
    assert!(error.to_string().contains("period"), "{error}");
}
