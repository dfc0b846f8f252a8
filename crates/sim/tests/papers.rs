//! What the papers found, in small: who wins, who loses, and by about how much.

mod common;

use common::run;
use presagio_sim::campaign::{POLICIES, Situation};
use presagio_sim::{Cpu, PRESETS, PolicyChoice, Report, Simulation, Sweep, preset};
use std::collections::BTreeMap;

/// The runs of a preset by name of the case.
fn cases(name: &str) -> BTreeMap<String, Report> {
    let sweep = Sweep::read(preset(name).expect(name).toml).expect(name);
    let runs = sweep.runs().expect(name);
    let named = |run: &presagio_sim::Run| {
        let values: Vec<&str> = run.varied.iter().map(|(_, value)| value.as_str()).collect();
        values.join(" ")
    };
    runs.iter().map(|r| (named(r), run(&r.scenario))).collect()
}

fn seconds(cases: &BTreeMap<String, Report>, name: &str) -> f64 {
    cases[name].makespan.as_secs_f64()
}

#[test]
fn the_right_window_beats_fifo_and_hbrr_on_strided_reads_through_eight_nodes() {
    let cases = cases("001-fig2a");
    let best_baseline = seconds(&cases, "FIFO").min(seconds(&cases, "HBRR"));
    let gain = |window: &str| 1.0 - seconds(&cases, &format!("TWINS {window} ms")) / best_baseline;
    // Published: 10 to 48 %, depending on the window.
    assert!((0.35..0.55).contains(&gain("8")), "{}", gain("8"));
    assert!(gain("8") > gain("1") && gain("1") > gain("0.125") - 0.02);
    assert!(
        gain("0.125") > -0.02,
        "the smallest window is no worse than FIFO"
    );
}

#[test]
fn a_wrong_window_loses_on_contiguous_writes_through_two_nodes() {
    let cases = cases("001-fig2b");
    let best_baseline = seconds(&cases, "FIFO").min(seconds(&cases, "HBRR"));
    let loss = |window: &str| seconds(&cases, &format!("TWINS {window} ms")) / best_baseline - 1.0;
    // Published: about 35 % with 8 ms, which a smaller window avoids.
    assert!((0.15..0.5).contains(&loss("8")), "{}", loss("8"));
    assert!(loss("0.25") < 0.1, "{}", loss("0.25"));
}

/// Four neighbours ask within a millisecond, again and again: whoever serves the first at once serves it alone.
#[test]
fn foresight_waits_for_neighbours_that_come_a_moment_later() {
    let text = "
        servers = { scheduler = { policy = \"TO-agg\" } }
        [[app]]
        processes = 4
        pattern = \"strided\"
        request = \"8KiB\"
        bytes = \"160KiB\"
        burst = 1
        think = \"50ms\"
    ";
    let without = run(&common::scenario(text)).servers.aggregation();
    let foreseeing = format!("foresight = {{ repetitions = 6 }}\n{text}");
    let with = run(&common::scenario(&foreseeing)).servers.aggregation();
    // Published: 25.1 % larger on average.
    assert!(
        with > 1.25 * without,
        "{with} is not much more than {without}"
    );
}

/// The same, from a recording of what those neighbours do: runs of it are recorded with it, and it is foreseen as the pattern is.
#[test]
fn foresight_waits_for_neighbours_of_a_recording_too() {
    let pattern = "
        [[app]]
        processes = 4
        pattern = \"strided\"
        request = \"8KiB\"
        bytes = \"160KiB\"
        burst = 1
        think = \"50ms\"
    ";
    let recorded = common::scenario(pattern).operations().remove(0);
    let recorded = recorded.expect("a pattern has its operations");
    let aggregation = |repetitions: u32| {
        let scenario = common::scenario(&format!(
            "foresight = {{ repetitions = {repetitions} }}
            servers = {{ scheduler = {{ policy = \"TO-agg\" }} }}
            [[app]]
            trace = \"recording\"
            "
        ));
        let run = Simulation::new(&scenario).replaying(0, recorded.clone());
        run.run().expect("it runs").servers.aggregation()
    };
    let (without, with) = (aggregation(0), aggregation(6));
    assert!(
        with > 1.25 * without,
        "{with} is not much more than {without}"
    );
}

/// Thesis 4.1.3 with servers that take in nothing of a file while they serve it: aggregations are then about as small as published,
/// though the server is behind, and foresight makes them larger and runs shorter. By less than published; and where there is
/// nothing to aggregate but the two halves of a request, its short waits cost a little.
#[test]
fn where_nothing_comes_in_of_a_file_in_service_foresight_aggregates_more_and_runs_are_shorter() {
    let mut sweep = Sweep::read(preset("thesis-4.1").expect("preset").toml).expect("preset");
    sweep
        .vary("app.processes", vec![16.into()])
        .expect("a field");
    let runs = sweep.runs().expect("runs");
    let mut found: BTreeMap<String, [Option<Report>; 3]> = BTreeMap::new();
    for each in &runs {
        let values: Vec<&str> = each.varied.iter().map(|(_, v)| v.as_str()).collect();
        let cases = ["no scheduler", "aIOLi", "aIOLi + foresight"];
        let at = cases
            .iter()
            .position(|case| *case == values[0])
            .expect("a case");
        found.entry(values[1..].join(" ")).or_default()[at] = Some(run(&each.scenario));
    }
    let (mut larger, mut shorter) = (Vec::new(), Vec::new());
    for (name, reports) in &found {
        let [Some(none), Some(aioli), Some(with)] = reports else {
            panic!("{name} has all three");
        };
        let spans = [none, aioli, with].map(|report| report.makespan.as_secs_f64());
        // Table 4.1: from 13 to 40 %.
        assert!(
            (0.13..0.5).contains(&(1.0 - spans[1] / spans[0])),
            "{name}: {spans:?}"
        );
        assert!(spans[2] < 1.05 * spans[1], "{name}: {spans:?}");
        let sizes = [aioli, with].map(|report| report.servers.aggregation());
        if name.contains("contiguous 16KiB") {
            assert!(
                (1.85..=2.0).contains(&sizes[0]),
                "{name}: {sizes:?} of 2 at most"
            );
            continue;
        }
        // Published: 2.7 for small strided reads, where 8 could be.
        assert!((1.8..4.0).contains(&sizes[0]), "{name}: {sizes:?}");
        larger.push(sizes[1] / sizes[0] - 1.0);
        shorter.push(1.0 - spans[2] / spans[1]);
    }
    let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
    // Published: 25.1 %, and 20.7 (reads) to 29.5 % (writes).
    assert!(
        mean(&larger) > 0.251,
        "aggregations are larger by {larger:?}"
    );
    assert!(mean(&shorter) > 0.1, "runs are shorter by {shorter:?}");
}

/// Table 3.8 by the summaries that end 3.2.3.2 to 3.2.3.5: where aIOLi is named on the two clusters with disks, it is the
/// fastest, or slower by less than the 10 % that the thesis calls negligible, in most cells. (`presagio repro 002-table3.8` has
/// all of them, larger.)
#[test]
fn aioli_wins_most_of_its_cells_on_disks() {
    let mut cells = Situation::all(&[8], 512 << 10, Cpu::Agios);
    cells.retain(|s| ["pastel", "graphene"].contains(&s.platform.device) && s.is_aiolis());
    let seconds = |situation: &Situation, policy: &PolicyChoice| {
        let mut scenario = situation.scenario(*policy, 1);
        scenario.relays.count = 1;
        scenario.clients.slots = 16;
        run(&scenario).makespan.as_secs_f64()
    };
    let wins = |situation: &&Situation| {
        let all: Vec<f64> = POLICIES.iter().map(|p| seconds(situation, p)).collect();
        let (aioli, others) = all.split_last().expect("the last is aIOLi");
        others.iter().all(|other| *aioli <= 1.1 * other)
    };
    let (won, all) = (cells.iter().filter(wins).count(), cells.len());
    assert_eq!(all, 20);
    assert!(2 * won > all, "{won} of {all}");
}

/// Thesis 4.1.3. aIOLi alone aggregates almost all that can be here, so little is left to gain; waiting for processes that
/// wait for us made runs several times as long.
#[test]
fn foresight_aggregates_what_can_be_and_costs_next_to_nothing_where_nothing_can_be_gained() {
    let toml = preset("thesis-4.1-disk").expect("preset").toml;
    let mut sweep = Sweep::read(toml).expect("preset");
    sweep
        .vary("app.processes", vec![16.into()])
        .expect("a field");
    let runs = sweep.runs().expect("runs");
    let mut found: BTreeMap<String, [Option<Report>; 2]> = BTreeMap::new();
    for each in &runs {
        let values: Vec<&str> = each.varied.iter().map(|(_, v)| v.as_str()).collect();
        let at = match values[0] {
            "aIOLi" => 0,
            "aIOLi + foresight" => 1,
            _ => continue,
        };
        found.entry(values[1..].join(" ")).or_default()[at] = Some(run(&each.scenario));
    }
    assert_eq!(found.len(), 8);
    for (name, reports) in &found {
        let [Some(without), Some(with)] = reports else {
            panic!("{name} has both");
        };
        let longer = with.makespan.as_secs_f64() / without.makespan.as_secs_f64();
        assert!(longer < 1.05, "{name}: {longer} times as long");
        let (with, without) = (with.servers.aggregation(), without.servers.aggregation());
        assert!(with > 0.99 * without, "{name}: {with} after {without}");
        let reads_most = match name.as_str() {
            "read contiguous 16KiB 16" => 2.0,
            "read contiguous 256KiB 16" | "read strided 16KiB 16" => 8.0,
            "read strided 256KiB 16" => 128.0,
            _ => continue,
        };
        assert!(with > 0.995 * reads_most, "{name}: {with} of {reads_most}");
    }
}

#[test]
fn every_preset_can_be_run() {
    for preset in PRESETS {
        let sweep = Sweep::read(preset.toml).unwrap_or_else(|e| panic!("{}: {e}", preset.name));
        let runs = sweep
            .runs()
            .unwrap_or_else(|e| panic!("{}: {e}", preset.name));
        assert!(
            runs.iter().all(|run| !run.scenario.title.is_empty()),
            "{}",
            preset.name
        );
        let mut small = runs[0].scenario.clone();
        for app in &mut small.apps {
            app.total.0 = 0;
            app.bytes.0 = app.request.0 * 2;
        }
        assert!(run(&small).bytes() > 0, "{}", preset.name);
    }
}
