//! The same seed gives the same figures on every machine: on every device model, under every policy, to the nanosecond.
//!
//! Whoever changes one of these hashes changes what a seed means: say so in the changelog.

use presagio_sched::PolicyKind;
use presagio_sim::{Report, Scenario, Simulation};

/// By device, all figures of all its runs.
const GOLDEN: [(&str, u64); 7] = [
    ("hdd", 0xbf0a_9378_2bda_f8bb),
    ("raid0", 0x6bca_f39e_d4ef_1ec7),
    ("ssd", 0xd11e_8b0d_7e2f_8eb3),
    ("pastel", 0x7213_3d3a_3b3d_0984),
    ("graphene", 0x3dd2_8dd6_f45c_525f),
    ("suno", 0xefd7_1af8_8517_76a4),
    ("edel", 0xc050_6bf0_84b8_f6ec),
];

fn scenario(device: &str, policy: &str) -> Scenario {
    let text = format!(
        "
        seed = 7
        clients = {{ machines = 3 }}
        network = {{ transmission = \"8KiB\" }}
        ionodes = {{ count = 2, dispatchers = 3, scheduler = {{ policy = \"{policy}\", window = \"1ms\" }} }}
        servers = {{ count = 2, stripe = \"32KiB\", device = \"{device}\", scheduler = {{ policy = \"{policy}\" }} }}
        [[app]]
        processes = 6
        pattern = \"strided\"
        request = \"16KiB\"
        bytes = \"256KiB\"
        [[app]]
        processes = 2
        files = \"per-process\"
        pattern = \"random\"
        op = \"write\"
        request = \"10000\"
        bytes = \"200000\"
        depth = 2
        "
    );
    Scenario::from_toml(&text).expect("a scenario")
}

/// FNV-1a over whole numbers: nothing in it depends on a machine, or on how something is printed.
fn add(hash: &mut u64, figures: &[u64]) {
    for byte in figures.iter().flat_map(|figure| figure.to_le_bytes()) {
        *hash = (*hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
}

fn add_report(hash: &mut u64, report: &Report) {
    let devices = &report.devices;
    add(hash, &[report.makespan.0, report.events, devices.busy.0]);
    add(hash, &devices.operations);
    add(hash, &devices.bytes);
    for level in report.ionodes.iter().chain([&report.servers]) {
        add(hash, &[level.requests, level.batches, level.cpu.0]);
    }
    for app in &report.apps {
        add(
            hash,
            &[
                app.begin.0,
                app.end.0,
                app.first_done.0,
                app.operations,
                app.bytes,
            ],
        );
    }
}

#[test]
fn every_device_and_policy_gives_the_figures_that_it_always_gave() {
    let policies = PolicyKind::ALL.map(PolicyKind::name).into_iter();
    let policies: Vec<&str> = policies.chain(["none"]).collect();
    let found = GOLDEN.map(|(device, _)| {
        let mut hash = 0xcbf2_9ce4_8422_2325;
        for policy in &policies {
            let scenario = scenario(device, policy);
            let report = Simulation::new(&scenario).run().expect("it runs");
            add_report(&mut hash, &report);
        }
        (device, hash)
    });
    assert_eq!(found, GOLDEN);
}
