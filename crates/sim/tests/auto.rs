//! `policy = "auto"`: the real selector inside a simulated cluster.

mod common;

use common::{run, scenario};
use presagio_core::{Nanos, Op};
use presagio_sched::{PolicyKind, Settings};
use presagio_sim::campaign::POLICIES;
use presagio_sim::{Change, Decided, Place, Seen, Simulation, Steering, Verdict};
use presagio_tune::{Decision, Trees};

fn by_trees(decided: &Decided) -> &Decision {
    match &decided.verdict {
        Verdict::Trees(decision) => decision,
        other => panic!("not by trees: {other:?}"),
    }
}

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
    let decision = by_trees(first);
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

/// Trees for which a disk wants MLF whatever comes, but for writes, which want SJF.
const TREES: &str = "\
presagio trees 1
tree detection
feature distance: number
feature touching: number
feature reach: number
feature density: number
feature stripe_us: number
feature stripe_turns: number
feature files: number
class contiguous-small
class contiguous-large
class noncontiguous-small
class noncontiguous-large
choose noncontiguous-large (7)
end
tree T3
feature operation: read, write
feature ratio: number
class none
class MLF
class SJF
if ratio <= 2
  choose none (9)
else
  if operation is read
    choose MLF (9)
  if operation is write
    choose SJF (5)
end
";

#[test]
fn it_begins_with_what_suits_the_device_and_looks_early_at_what_comes() {
    let mut scenario = busy("auto");
    for app in &mut scenario.apps {
        app.op = Op::Write;
    }
    let trees = Trees::from_text(TREES).expect("good trees");
    let report = Simulation::new(&scenario).choosing_by(trees).run();
    let decisions = report.expect("it runs").decisions;
    // All four servers begin alike.
    for first in &decisions[..4] {
        let decision = by_trees(first);
        assert_eq!((first.at, decision.name()), (Nanos::ZERO, "MLF"));
        assert!(
            decision.reason.contains("nothing has arrived"),
            "{decision}"
        );
    }
    // A sixteenth of a period after the first request, at most an eighth.
    for next in &decisions[4..8] {
        assert_eq!(by_trees(next).name(), "SJF");
        assert!(next.at.0 <= Nanos::from_millis(50).0 / 4, "{}", next.at);
    }
    assert_eq!(decisions.len(), 8);
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

/// Trees that want TO-agg whatever comes.
fn always_to_agg() -> Trees {
    let (detection, _) = TREES.split_once("tree T3").expect("both are there");
    let tree = "tree T3\nfeature ratio: number\nclass TO-agg\nchoose TO-agg (9)\nend\n";
    Trees::from_text(&format!("{detection}{tree}")).expect("good trees")
}

/// Neighbours that ask within a millisecond, again and again, and what is foreseen of them.
fn neighbours(policy: &str, foresight: &str) -> presagio_sim::Scenario {
    scenario(&format!(
        "
        foresight = {{ {foresight} }}
        servers = {{ scheduler = {{ policy = \"{policy}\" }} }}
        [[app]]
        processes = 4
        pattern = \"strided\"
        request = \"8KiB\"
        bytes = \"160KiB\"
        burst = 1
        think = \"50ms\"
        "
    ))
}

/// What a scenario says of foresight's waits holds whoever says which policy it is.
#[test]
fn the_longest_wait_of_foresight_holds_for_a_policy_that_was_chosen() {
    let aggregation = |foresight: &str| {
        let scenario = neighbours("auto", foresight);
        let run = Simulation::new(&scenario).choosing_by(always_to_agg());
        run.run().expect("it runs").servers.aggregation()
    };
    let never = aggregation("repetitions = 0");
    let waits = aggregation("repetitions = 6");
    assert!(
        waits > 1.25 * never,
        "{waits} is not much more than {never}"
    );
    let short = aggregation("repetitions = 6, wait_max = \"1ns\"");
    assert!(short < 1.05 * never, "{short} is more than {never}");
    let exact = aggregation("repetitions = 6, tolerance_percent = 0");
    assert!(exact < 0.9 * waits, "{exact} is as much as {waits}");
}

/// The same where somebody else decides.
#[test]
fn what_a_scenario_says_of_foresight_holds_in_settings_that_come_later() {
    struct ToAgg(Vec<Settings>);
    impl Steering for ToAgg {
        fn period(&self) -> Nanos {
            Nanos::from_millis(100)
        }
        fn decide(&mut self, now: Nanos, seen: &[Seen], changes: &mut Vec<Change>) {
            self.0.extend(seen[0].settings.clone());
            changes.push(Change {
                place: seen[0].place,
                settings: Some(Settings::new(PolicyKind::ToAgg)),
                at: now,
            });
        }
    }
    let foresight = "repetitions = 1, tolerance_percent = 25, wait_max = \"3us\"";
    let scenario = neighbours("SJF", foresight);
    let mut steered = ToAgg(Vec::new());
    let run = Simulation::new(&scenario).steered_by(&mut steered).run();
    run.expect("it runs");
    let policies: Vec<PolicyKind> = steered.0.iter().map(|it| it.policy).collect();
    assert_eq!(policies[..2], [PolicyKind::Sjf, PolicyKind::ToAgg]);
    for settings in steered.0 {
        let said = (settings.foresight_tolerance, settings.foresight_wait_max);
        assert_eq!(said, (0.25, Some(Nanos::from_micros(3))));
    }
}

/// Strided reads of 1 MiB: whole at a server, or as large as its stripes.
fn large(device: &str, stripe: &str, policy: &str) -> presagio_sim::Scenario {
    scenario(&format!(
        "
        clients = {{ machines = 8 }}
        [servers]
        count = 4
        workers = 64
        stripe = \"{stripe}\"
        device = \"{device}\"
        scheduler = {{ policy = \"{policy}\", period = \"1s\" }}
        [[app]]
        processes = 16
        pattern = \"strided\"
        request = \"1MiB\"
        bytes = \"24MiB\"
        "
    ))
}

/// Nearly as fast at random as in sequence is every disk with requests of 1 MiB. Its own are aggregated with gain all the same.
#[test]
fn large_requests_do_not_make_an_ssd_of_a_disk() {
    for stripe in ["64KiB", "1MiB"] {
        for disk in ["hdd", "pastel", "graphene", "suno"] {
            let auto = run(&large(disk, stripe, "auto"));
            let name = by_trees(auto.decisions.last().expect("it decided")).name();
            let each = POLICIES.map(|policy| {
                let makespan = run(&large(disk, stripe, policy.name())).makespan;
                (policy.name(), makespan.as_secs_f64())
            });
            let oracle = each.iter().map(|(_, took)| *took).fold(f64::NAN, f64::min);
            let chosen = each.iter().find(|(policy, _)| *policy == name);
            let chosen = chosen.expect("one of the six").1;
            for took in [chosen, auto.makespan.as_secs_f64()] {
                let longer = took / oracle;
                assert!(longer < 1.15, "{disk}, {stripe}, {name} {longer}: {each:?}");
            }
        }
    }
}
