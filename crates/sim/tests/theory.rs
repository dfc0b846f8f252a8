//! What theory says of any such cluster, whatever its policies: nothing is lost, nothing is faster than the device, and
//! the same seed gives the same run.

mod common;

use common::{Logged, covered, run, scenario};
use presagio_core::{Nanos, Op, Range};
use presagio_device::Model;
use presagio_sim::{Report, Scenario, Simulation};
use proptest::prelude::*;

fn stream(more: &str) -> Report {
    run(&scenario(&format!(
        "
        network = {{ latency = \"0\", jitter = \"0\", bandwidth = \"10GB/s\" }}
        clients = {{ overhead = \"0\" }}
        servers = {{ stripe = \"1MiB\", handling = \"0\", device = \"hdd\" }}
        [[app]]
        request = \"1MiB\"
        total = \"256MiB\"
        {more}
        "
    )))
}

#[test]
fn one_sequential_stream_runs_at_the_speed_of_the_device() {
    let ideal = f64::from(256 << 20) / 150e6;
    // A reader finds the next bytes in the disk's buffer; a writer has to be there in time, so it works ahead.
    for more in ["depth = 1", "depth = 4", "op = \"write\"\ndepth = 4"] {
        let took = stream(more).makespan.as_secs_f64();
        assert!((ideal..ideal * 1.02).contains(&took), "{more}: {took} s");
    }
}

/// Where nothing else takes time, a process that waits for each answer takes exactly what the device does.
#[test]
fn one_sequential_stream_takes_what_its_device_alone_takes() {
    for device in ["hdd", "raid0", "ssd", "pastel", "graphene", "suno", "edel"] {
        for op in Op::ALL {
            let report = run(&scenario(&format!(
                "
                network = {{ latency = \"0\", jitter = \"0\", header = 0, bandwidth = \"1000000GB/s\" }}
                clients = {{ overhead = \"0\", skew = \"0\" }}
                servers = {{ stripe = \"1MiB\", handling = \"0\", device = \"{device}\" }}
                [[app]]
                op = \"{op}\"
                request = \"64KiB\"
                total = \"32MiB\"
                "
            )));
            let mut alone = Model::named(device).expect(device).device().expect(device);
            let request = |number: u64| Range::at(number * (64 << 10), 64 << 10);
            let done = (0..512).fold(Nanos::ZERO, |now, n| alone.serve(op, request(n), now));
            let (took, ideal) = (report.makespan.as_secs_f64(), done.as_secs_f64());
            assert!(
                (took / ideal - 1.0).abs() < 0.001,
                "{device} {op}: {took} s, not {ideal}"
            );
        }
    }
}

/// A relay passes requests on one at a time, with what they write, and answers do not come back through it.
#[test]
fn what_a_relay_can_pass_on_is_what_all_servers_together_get() {
    let time = |op: &str, handling_us: u64, relays: u32| {
        let text = format!(
            "
            network = {{ bandwidth = \"125MB/s\", transmission = \"8KiB\", header = 0 }}
            relays = {{ count = {relays}, handling = \"{handling_us}us\" }}
            servers = {{ count = 4, device = \"ssd\" }}
            [[app]]
            processes = 64
            request = \"64KiB\"
            total = \"64MiB\"
            op = \"{op}\"
            "
        );
        run(&scenario(&text)).makespan.as_secs_f64()
    };
    // All that is written passes its link; of reads, 8192 requests its only thread.
    let (written, asked) = (f64::from(64 << 20) / 125e6, 8192.0 * 100e-6);
    for (op, handling_us, least) in [("write", 20, written), ("read", 100, asked)] {
        let [through, around] = [1, 0].map(|relays| time(op, handling_us, relays));
        let expected = least..least * 1.1;
        assert!(
            expected.contains(&through),
            "{op}: {through} s, not {least}"
        );
        assert!(
            around < 0.9 * through,
            "{op}: {around} s without, {through} s with it"
        );
    }
}

/// What a machine has under way is bounded, so a far server gets one round trip's worth at a time.
#[test]
fn a_machine_with_few_slots_waits_for_answers_before_it_sends_more() {
    let time = |slots: u32| {
        let text = format!(
            "
            network = {{ latency = \"5ms\", jitter = \"0\", transmission = \"8KiB\" }}
            clients = {{ slots = {slots} }}
            servers = {{ device = \"ssd\" }}
            [[app]]
            request = \"256KiB\"
            total = \"1MiB\"
            "
        );
        run(&scenario(&text)).makespan.as_secs_f64()
    };
    // 32 messages each time: all at once, or 16 and 16, or 4 eight times.
    let trip = 0.010;
    for (slots, trips) in [(0, 4.0), (32, 4.0), (16, 8.0), (4, 32.0)] {
        let took = time(slots);
        let expected = trips * trip;
        assert!(
            (expected..expected * 1.25 + 0.01).contains(&took),
            "{slots}: {took} s"
        );
    }
}

#[test]
fn a_writer_that_waits_for_each_answer_pays_a_turn_for_each() {
    let took = stream("op = \"write\"\ndepth = 1").makespan;
    let turns = Nanos(256 * 8_333_333);
    assert!(took > turns, "{took} is less than {turns}");
}

#[test]
fn a_network_that_is_slower_than_the_device_is_what_a_stream_runs_at() {
    let report = run(&scenario(
        "
        network = { bandwidth = \"20MB/s\" }
        servers = { device = \"ssd\" }
        [[app]]
        request = \"1MiB\"
        total = \"64MiB\"
        depth = 4
        ",
    ));
    let ideal = f64::from(64 << 20) / 20e6;
    let took = report.makespan.as_secs_f64();
    assert!((ideal..ideal * 1.02).contains(&took), "{took} s");
}

#[test]
fn four_servers_serve_four_times_as_fast_as_one() {
    let time = |servers: u32| {
        let text = format!(
            "
            servers = {{ count = {servers}, device = \"ssd\" }}
            [[app]]
            processes = 64
            request = \"256KiB\"
            total = \"512MiB\"
            depth = 4
            "
        );
        run(&scenario(&text)).makespan.as_secs_f64()
    };
    let ratio = time(1) / time(4);
    assert!((3.8..4.1).contains(&ratio), "{ratio}");
}

#[test]
fn the_result_of_a_seed_is_written_in_stone() {
    let text = "
        seed = 42
        clients = { machines = 4 }
        network = { transmission = \"8KiB\" }
        ionodes = { count = 2, scheduler = { policy = \"TWINS\", window = \"1ms\" } }
        servers = { count = 3, stripe = \"32KiB\", scheduler = { policy = \"aIOLi\" } }
        [[app]]
        processes = 8
        pattern = \"strided\"
        request = \"48KiB\"
        bytes = \"960KiB\"
        [[app]]
        processes = 3
        files = \"per-process\"
        pattern = \"random\"
        op = \"write\"
        request = \"10000\"
        bytes = \"1MB\"
        depth = 3
        burst = 10
        think = \"5ms\"
    ";
    let report = Simulation::new(&scenario(text))
        .with_devices(Logged::all(3).0)
        .run()
        .expect("it runs");
    // Whoever changes these changes what a seed means: say so in the changelog.
    let figures = (report.makespan.0, report.events, report.devices.operations);
    assert_eq!(figures, GOLDEN);
}

const GOLDEN: (u64, u64, [u64; 2]) = (119_221_027, 7_485, [264, 456]);

/// Any small cluster with any policies and any work.
fn any_scenario() -> impl Strategy<Value = (String, u32)> {
    let policies = || {
        prop::sample::select(vec![
            "none", "NOOP", "TO", "TO-agg", "SJF", "MLF", "aIOLi", "SW", "TWINS", "WFQ", "HBRR",
        ])
    };
    let cluster = (
        (0_u32..4, 1_u32..5, 1_u32..4, 1_u32..4),
        (policies(), policies()),
        prop::sample::select(vec!["0", "3000", "8KiB"]),
        (any::<u64>(), any::<bool>(), 0_u32..30, any::<[bool; 3]>()),
        prop::sample::select(vec!["none", "agios", "presagio"]),
    );
    let app = (
        (1_u32..7, 1_u32..4, 1_u32..3),
        prop::sample::select(vec![
            ("shared", "contiguous"),
            ("shared", "strided"),
            ("shared", "random"),
            ("per-process", "contiguous"),
            ("per-process", "random"),
        ]),
        prop::sample::select(vec!["read", "write"]),
        (1_u64..100_000, 1_u64..12),
        (0_u64..4, 0_u64..3),
    );
    (cluster, prop::collection::vec(app, 1..4)).prop_map(|(cluster, apps)| {
        let ((nodes, servers, workers, dispatchers), (above, below), transmission, rest, cpu) = cluster;
        let (seed, guard, crowding, [closed, own, foreseen]) = rest;
        // Only one thread that takes messages in can be held up.
        let (intake, handlers) = if closed { ("closed", 1) } else { ("open", 1 + seed % 16) };
        let clock = if own { "own" } else { "shared" };
        let foresight = if foreseen { "repetitions = 2, wait_max = \"500us\"" } else { "repetitions = 0" };
        // Clients talk to nodes, or to servers through relays or not; each machine has few messages under way, or any number.
        let (relays, slots) = if nodes == 0 { (seed % 3, seed / 3 % 5) } else { (0, seed % 5) };
        let mut text = format!(
            "
            seed = {}
            limit = \"1h\"
            network = {{ transmission = \"{transmission}\" }}
            clients = {{ slots = {slots} }}
            relays = {{ count = {relays} }}
            foresight = {{ {foresight} }}
            [ionodes]
            count = {nodes}
            dispatchers = {dispatchers}
            scheduler = {{ policy = \"{above}\", cpu = \"{cpu}\", guard = {guard}, window = \"0.5ms\", clock = \"{clock}\", sw_window = \"2ms\" }}
            [servers]
            count = {servers}
            workers = {workers}
            stripe = \"16KiB\"
            intake = \"{intake}\"
            handlers = {handlers}
            crowding = \"{crowding}us\"
            scheduler = {{ policy = \"{below}\", cpu = \"{cpu}\", guard = {guard} }}
            ",
            seed >> 1
        );
        for ((processes, depth, steps), (files, pattern), op, (request, count), (burst, think)) in apps {
            text += &format!(
                "
                [[app]]
                processes = {processes}
                depth = {depth}
                steps = {steps}
                files = \"{files}\"
                pattern = \"{pattern}\"
                op = \"{op}\"
                request = {request}
                bytes = {}
                burst = {burst}
                think = \"{think}ms\"
                ",
                request * count
            );
        }
        (text, servers)
    })
}

fn logged(scenario: &Scenario, servers: u32) -> (Report, Vec<common::Log>) {
    let (devices, logs) = Logged::all(servers);
    let report = Simulation::new(scenario).with_devices(devices).run();
    (report.unwrap_or_else(|e| panic!("{e}")), logs)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// It ends, every request is answered, and every byte that was asked for is served exactly once in each time step.
    #[test]
    fn every_byte_that_is_asked_for_is_served_once((text, servers) in any_scenario()) {
        let mut scenario = scenario(&text);
        scenario.apps.iter_mut().for_each(|app| app.steps = 1);
        let (report, logs) = logged(&scenario, servers);
        let asked: u64 = scenario.apps.iter()
            .map(|app| app.requests() * app.request.0 * u64::from(app.processes)).sum();
        prop_assert_eq!(report.bytes(), asked);
        prop_assert_eq!(report.devices.bytes.iter().sum::<u64>(), asked);
        let mut bytes = 0;
        for log in &logs {
            let covered = covered(log).map_err(TestCaseError::fail)?;
            bytes += covered.iter().map(|(start, end)| end - start).sum::<u64>();
        }
        prop_assert_eq!(bytes, asked);
    }

    #[test]
    fn the_same_seed_gives_the_same_run((text, servers) in any_scenario()) {
        let scenario = scenario(&text);
        let (first, first_logs) = logged(&scenario, servers);
        let (second, second_logs) = logged(&scenario, servers);
        prop_assert_eq!(first, second);
        for (a, b) in first_logs.iter().zip(&second_logs) {
            prop_assert_eq!(&*a.lock().unwrap(), &*b.lock().unwrap());
        }
    }

    /// Batches have at least a request each: whoever aggregates gives the devices fewer operations, never more.
    #[test]
    fn aggregation_never_increases_the_operations_of_the_devices((text, servers) in any_scenario()) {
        let scenario = scenario(&text);
        let mut without = scenario.clone();
        without.ionodes.scheduler.policy = presagio_sim::PolicyChoice::None;
        without.servers.scheduler.policy = presagio_sim::PolicyChoice::None;
        let operations = |scenario: &Scenario| logged(scenario, servers).0.devices.operations;
        let (with, without) = (operations(&scenario), operations(&without));
        for op in Op::ALL {
            prop_assert!(with[op.index()] <= without[op.index()], "{with:?} {without:?}");
        }
    }

    #[test]
    fn nothing_is_faster_than_its_devices((text, servers) in any_scenario()) {
        let scenario = scenario(&text);
        let (report, logs) = logged(&scenario, servers);
        for log in &logs {
            let log = log.lock().unwrap();
            let least: u64 = log.iter().map(|(_, r)| Logged::PER_OPERATION.0 + r.len()).sum();
            prop_assert!(report.makespan.0 >= least);
        }
    }
}
