//! Schedulers that learn while a run goes, alone and with a council.

use presagio_sim::{Memory, PolicyChoice, Report, Scenario, Simulation, Sweep, Verdict};

/// 1-D strided reads through 8 I/O nodes (001, Fig. 2a), smaller; the rest of the scheduler's table.
fn scenario(scheduler: &str) -> Scenario {
    let text = format!(
        r#"
        [clients]
        machines = 32
        [ionodes]
        count = 8
        scheduler = {{ batch_requests = 16, {scheduler} }}
        [servers]
        count = 4
        stripe = "64KiB"
        device = {{ model = "ssd", channels = 1, unit = "1GiB", bytes_per_s = "180MB", read_overhead = "0" }}
        crowding = "10us"
        [[app]]
        processes = 128
        request = "32KiB"
        total = "2GiB"
        pattern = "strided"
        op = "read"
        "#
    );
    Scenario::from_toml(&text).expect("a good scenario")
}

const ADAPTIVE: &str = r#"policy = "adaptive", arms = "windows", period = "100ms""#;

fn run(scheduler: &str) -> Report {
    let scenario = scenario(scheduler);
    Simulation::new(&scenario).run().expect("it runs")
}

/// Makespans of runs one after the other with the same memory, and those of all windows.
fn runs(nodes: u32, more: &str) -> (Vec<f64>, Vec<f64>) {
    let with = |scheduler: &str| {
        let mut scenario = scenario(scheduler);
        scenario.ionodes.count = nodes;
        scenario
    };
    let scenario = with(&format!("{ADAPTIVE}, {more}"));
    let mut memory = Memory::default();
    let learning = (0..6).map(|_| {
        let run = Simulation::new(&scenario).remembering(&mut memory).run();
        run.expect("it runs").makespan.as_secs_f64()
    });
    let learning = learning.collect();
    assert!(memory.tuners().all(|tuner| !tuner.is_empty()));
    let fixed = |window: &&str| {
        let scenario = with(&format!(r#"policy = "TWINS", window = "{window}""#));
        let run = Simulation::new(&scenario).run();
        run.expect("it runs").makespan.as_secs_f64()
    };
    let windows = ["0.125ms", "0.25ms", "0.5ms", "1ms", "2ms", "4ms", "8ms"];
    (learning, windows.iter().map(fixed).collect())
}

#[test]
fn what_is_learned_in_one_run_serves_the_next() {
    // Patterns are many, and each is learned by itself: that takes longer than six runs.
    let all = [
        ("council = false", 1.03),
        ("council = true", 1.03),
        ("patterns = true", 1.2),
    ];
    for (more, most) in all {
        let (learning, fixed) = runs(1, more);
        let best = fixed.iter().copied().fold(f64::INFINITY, f64::min);
        let said = format!("{more}: {learning:?}, fixed {fixed:?}");
        assert!(learning[5] < most * best, "{said}");
    }
}

/// How many processes come in a period depends on what is in force. It must not choose the situation that it is judged in: arms
/// that are tried in different situations are never compared.
#[test]
fn what_is_tried_does_not_change_the_number_of_processes() {
    let mut scenario = scenario(
        r#"policy = "adaptive", arms = "NOOP,SJF,TO-agg,MLF", period = "10ms", strategy = "greedy:1""#,
    );
    // A disk that serves a few of 128 processes in a period.
    scenario.servers.device = presagio_sim::DeviceChoice::named("hdd");
    scenario.ionodes.count = 1;
    let mut memory = Memory::default();
    let run = Simulation::new(&scenario).remembering(&mut memory).run();
    run.expect("it runs");
    let contexts = memory.tuners().flat_map(|tuner| tuner.contexts());
    let processes = contexts.map(|(context, _)| match context {
        presagio_tune::Context::Situation(it) => (it.processes.number(), it.clients.number()),
        pattern @ presagio_tune::Context::Pattern(_) => panic!("{pattern}"),
    });
    let processes: std::collections::BTreeSet<_> = processes.collect();
    assert_eq!(processes.into_iter().collect::<Vec<_>>(), [(128, 32)]);
}

/// Windows that differ from node to node coordinate nothing, so several nodes need the council.
#[test]
fn with_a_council_many_nodes_find_the_best_window() {
    let (learning, fixed) = runs(8, "council = true");
    let (safe, best) = (
        fixed[3],
        fixed.iter().copied().fold(f64::INFINITY, f64::min),
    );
    let late = learning[3..].iter().sum::<f64>() / (learning.len() - 3) as f64;
    let said = format!("{learning:?}, fixed {fixed:?}");
    assert!(late < 0.8 * safe && late < 1.03 * best, "{said}");
}

#[test]
fn a_run_that_learns_is_the_same_every_time() {
    for council in ["council = false", r#"council = true, consensus = "load""#] {
        let scheduler = format!("{ADAPTIVE}, {council}");
        assert_eq!(run(&scheduler), run(&scheduler));
    }
}

#[test]
fn with_a_council_all_nodes_do_the_same_and_later_by_the_network() {
    let report = run(&format!("{ADAPTIVE}, council = true"));
    assert!(!report.decisions.is_empty());
    for decided in &report.decisions {
        let Verdict::Council(decision) = &decided.verdict else {
            panic!("not by the council: {decided:?}");
        };
        assert_eq!(decision.votes[0].0, decision.arm);
        let mut same = report
            .decisions
            .iter()
            .filter(|other| other.at == decided.at);
        assert!(same.all(|other| other.verdict.arm() == decision.arm));
    }
}

/// What tells accesses apart can be another network or tree; here one that takes everything for the same.
#[test]
fn accesses_are_told_apart_by_what_somebody_has_made() {
    let text = "presagio trees 1\ntree access\nfeature handles: number\nclass own-files\nclass shared-contiguous\nclass shared-strided\n\
                choose own-files (1)\nend\n";
    let detector = presagio_tune::Detector::from_text(text).expect("a tree");
    for council in ["council = false", "council = true"] {
        let scenario = scenario(&format!("{ADAPTIVE}, {council}"));
        let abouts = |simulation: Simulation<'_>| -> Vec<String> {
            let report = simulation.run().expect("it runs");
            let abouts = report.decisions.iter().map(|it| it.verdict.about());
            abouts.filter(|about| about != "unknown").collect()
        };
        let shipped = abouts(Simulation::new(&scenario));
        assert!(shipped.iter().any(|it| it.starts_with("shared-strided")));
        let ours = abouts(Simulation::new(&scenario).telling_apart_by(detector.clone()));
        assert!(!ours.is_empty() && ours.iter().all(|it| it.starts_with("own-files")));
    }
}

/// The servers of 000, V-A, with less to do, and these in their schedulers' table.
fn servers(scheduler: &[(&str, toml::Value)]) -> Scenario {
    let text = presagio_sim::preset("000-servers").expect("a preset").toml;
    let (plain, _cases) = text.split_once("[[case]]").expect("there are cases");
    let mut sweep = Sweep::read(plain).expect("a good scenario");
    let mut set = |name: &str, value: toml::Value| sweep.set(name, value).expect("a parameter");
    set("app.pattern", "strided".into());
    set("app.request", "32KiB".into());
    set("app.bytes", "4MiB".into());
    set("app.op", "read".into());
    set("app.1.processes", 32.into());
    for (name, value) in scheduler {
        set(&format!("servers.scheduler.{name}"), value.clone());
    }
    let mut runs = sweep.runs().expect("good scenarios").into_iter();
    runs.next().expect("one").scenario
}

#[test]
fn servers_learn_by_patterns_under_a_council_and_the_same_every_time() {
    const ARMS: [&str; 3] = ["NOOP", "SJF", "TO-agg"];
    let makespan = |report: Report| report.makespan.as_secs_f64();
    let fixed = ARMS.map(|arm| {
        let scenario = servers(&[("policy", arm.into())]);
        makespan(Simulation::new(&scenario).run().expect("it runs"))
    });
    let learning = || {
        let scenario = servers(&[
            ("policy", "adaptive".into()),
            ("arms", ARMS.join(",").into()),
            ("patterns", true.into()),
            ("council", true.into()),
        ]);
        let mut memory = Memory::default();
        let runs = (0..4).map(|_| {
            let run = Simulation::new(&scenario).remembering(&mut memory).run();
            run.expect("it runs")
        });
        runs.collect::<Vec<Report>>()
    };
    let (once, twice) = (learning(), learning());
    assert_eq!(once, twice);
    let decided = once.iter().flat_map(|report| &report.decisions);
    let mut by_pattern = decided.filter(|it| it.verdict.about().starts_with("pattern"));
    assert!(by_pattern.next().is_some(), "it knows what it sees");
    let learned = makespan(once.into_iter().next_back().expect("four"));
    let worst = fixed.iter().copied().fold(0.0, f64::max);
    assert!(learned < worst, "{learned} s, {ARMS:?} {fixed:?}");
}

#[test]
fn two_levels_that_decide_do_so_at_the_same_moments() {
    for policy in ["auto", "adaptive"] {
        let with = |nodes: &str, servers: &str, count: u32| {
            let text = format!(
                "[ionodes]\ncount = {count}\nscheduler = {{ policy = \"{policy}\"{nodes} }}\n\
                 [servers]\nscheduler = {{ policy = \"{policy}\"{servers} }}\n[[app]]\nbytes = \"1MiB\"\n"
            );
            Scenario::from_toml(&text)
        };
        let (short, long) = (", period = \"10ms\"", ", period = \"20ms\"");
        let error = with(short, long, 1).expect_err("two periods");
        let field = error.field.as_deref();
        let place = (Some(5), Some("servers.scheduler.period"));
        assert_eq!((error.line, field), place, "{error}");
        assert!(error.to_string().contains("same moments"), "{error}");
        for (nodes, servers, count) in [(short, short, 1), ("", long, 1), (short, long, 0)] {
            with(nodes, servers, count).expect("one period, or one level");
        }
    }
}

#[test]
fn what_cannot_be_chosen_is_said() {
    let wrong = [
        (r#"policy = "adaptive", arms = "LIFO""#, "unknown policy"),
        (
            r#"policy = "adaptive", strategy = "luck""#,
            "unknown strategy",
        ),
        (r#"policy = "adaptive", consensus = "dice""#, "no consensus"),
    ];
    for (scheduler, said) in wrong {
        let text = format!(
            "[ionodes]\ncount = 1\nscheduler = {{ {scheduler} }}\n[[app]]\nbytes = \"1MiB\"\n"
        );
        let error = Scenario::from_toml(&text).expect_err(scheduler).to_string();
        assert!(error.contains(said), "{error}");
    }
    let mut both = scenario(ADAPTIVE);
    both.servers.scheduler.policy = PolicyChoice::Auto;
    let error = Simulation::new(&both).run().expect_err("both").to_string();
    assert!(error.contains("use one of both"), "{error}");
}

/// A disk behind one scheduler, and two phases in turns: 32 processes read strided from one file, then each writes a file of its own.
/// What each phase gave, by the megabytes a second of its rounds.
fn phases(scheduler: &str, rounds: usize) -> [Vec<f64>; 2] {
    let mut text = format!(
        r#"
        [clients]
        machines = 32
        [servers]
        count = 1
        device = {{ model = "hdd" }}
        scheduler = {{ {scheduler} }}
        "#
    );
    for round in 0..rounds {
        let after = |name: &str, before: usize| match (name, round) {
            ("reads", 0) => String::new(),
            _ => format!(
                "after = \"{}{before}\"",
                if name == "reads" { "writes" } else { "reads" }
            ),
        };
        for (name, files, op, pattern, before) in [
            ("reads", "shared", "read", "strided", round.wrapping_sub(1)),
            ("writes", "per-process", "write", "contiguous", round),
        ] {
            text += &format!(
                r#"
                [[app]]
                name = "{name}{round}"
                {after}
                processes = 32
                request = "32KiB"
                bytes = "1GiB"
                stonewall = "10s"
                files = "{files}"
                op = "{op}"
                pattern = "{pattern}"
                "#,
                after = after(name, before)
            );
        }
    }
    let scenario = Scenario::from_toml(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let report = Simulation::new(&scenario).run().expect("it runs");
    let speed = |app: &presagio_sim::AppReport| app.bytes as f64 / 1e6 / app.time().as_secs_f64();
    let of = |at: usize| report.apps.iter().skip(at).step_by(2).map(speed).collect();
    [of(0), of(1)]
}

#[test]
fn a_workload_that_changes_phase_is_served_as_by_the_best_static_choice_for_each() {
    const ROUNDS: usize = 8;
    let median = |speeds: &[f64]| {
        let mut speeds = speeds[2..].to_vec();
        speeds.sort_by(f64::total_cmp);
        speeds[speeds.len() / 2]
    };
    let arms = ["NOOP", "SJF", "TO-agg", "MLF", "TWINS"];
    let fixed = arms.map(|arm| phases(&format!("policy = \"{arm}\", window = \"1ms\""), ROUNDS));
    for more in ["", ", patterns = true"] {
        let learns = phases(
            &format!(
                r#"policy = "adaptive", arms = "NOOP,SJF,TO-agg,MLF,TWINS:1ms", period = "500ms"{more}"#
            ),
            ROUNDS,
        );
        for phase in [0, 1] {
            let best = fixed
                .iter()
                .map(|it| median(&it[phase]))
                .fold(0.0, f64::max);
            let learned = median(&learns[phase]);
            let said = format!(
                "{more} {phase}: {learned} of {best}; {:?} {fixed:?}",
                learns[phase]
            );
            assert!(learned >= 0.97 * best, "{said}");
        }
    }
}
