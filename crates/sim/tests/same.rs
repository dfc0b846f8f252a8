//! Same seed, same result, on every machine and in every version until somebody means to change it.

mod common;

use common::run;
use presagio_sim::{PRESETS, Report, Sweep};

/// What came of the last run of each preset, in small, with foresight from one run where the preset has any.
const RESULTS: &[(&str, u64)] = &[
    ("first", 0xca18f551d57898b0),
    ("001-fig2a", 0x83dad70e214eb1c1),
    ("001-fig2b", 0x34a3bf98d63c3ea3),
    ("001-campaign", 0xf226d381c93dcc07),
    ("000-servers", 0x3d01003f90eae702),
    ("000-ionodes", 0x90475af25bd0dc7e),
    ("thesis-3.2-shared", 0x22650c765a77946a),
    ("thesis-3.2-shared-x4", 0x0358545b5b1227f3),
    ("thesis-3.2-files", 0x3a0f35be7c39c560),
    ("thesis-3.2-files-x4", 0x2e4e1b56bab176a1),
    ("thesis-4.1", 0x87722e35fc6eda5b),
    ("thesis-4.1-disk", 0xe88ab15c4e465633),
    ("live", 0xe622cab96298b3dd),
    ("large", 0xa8061d695c7b8a6d),
];

/// FNV-1a over all that a report counts.
fn digest(report: &Report) -> u64 {
    let mut counts = vec![report.makespan.0, report.events, report.servers.requests];
    counts.extend([
        report.servers.batches,
        report.servers.cpu.0,
        report.devices.busy.0,
    ]);
    counts.extend(
        report
            .devices
            .operations
            .iter()
            .chain(&report.devices.bytes),
    );
    for app in &report.apps {
        counts.extend([
            app.begin.0,
            app.end.0,
            app.first_done.0,
            app.operations,
            app.bytes,
        ]);
    }
    if let Some(nodes) = &report.ionodes {
        counts.extend([nodes.requests, nodes.batches, nodes.cpu.0]);
    }
    let bytes = counts.into_iter().flat_map(u64::to_le_bytes);
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[test]
fn every_preset_gives_what_it_always_gave() {
    let found: Vec<(&str, u64)> = PRESETS
        .iter()
        .map(|preset| {
            let sweep = Sweep::read(preset.toml).expect(preset.name);
            let runs = sweep.runs().expect(preset.name);
            let mut small = runs[runs.len() - 1].scenario.clone();
            for app in &mut small.apps {
                app.processes = app.processes.min(8);
                app.total.0 = 0;
                app.bytes.0 = app.request.0 * 4;
            }
            small.foresight.repetitions = small.foresight.repetitions.min(1);
            (preset.name, digest(&run(&small)))
        })
        .collect();
    let shown: Vec<String> = found
        .iter()
        .map(|(name, hash)| format!("(\"{name}\", {hash:#018x}),"))
        .collect();
    assert_eq!(found, RESULTS, "\n{}", shown.join("\n"));
}
