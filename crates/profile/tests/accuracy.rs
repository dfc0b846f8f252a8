//! The promise of the fast way: within 5 % of the full one (median over all sizes), in minutes.
//!
//! Devices are emulated, so that minutes and hours are virtual, and the same in every run.

use presagio_device::Model;
use presagio_profile::compare::Comparison;
use presagio_profile::{Emulated, fast, full};

const MINUTE: f64 = 60.0;

fn compared(name: &str) -> Comparison {
    let model = Model::named(name).expect(name);
    let target = || Emulated::new(&model, 1200 << 20).expect(name);
    let plan = fast::Plan::default();
    let slow = full::Plan {
        intervals: plan.intervals.clone(),
        depth: 1,
        seed: 7,
    };
    let fast = fast::measure(&mut target(), &plan, &mut |_| {}).expect("a profile");
    let full = full::measure(&mut target(), &slow, &mut |_| {}).expect("a profile");
    let comparison = Comparison::of(&fast, &full);
    println!("{name}: {comparison:?}, notes {:?}", fast.about().notes);
    comparison
}

/// Ratios by the median of all, as the thesis judges.
fn holds(name: &str, minutes: f64) -> Comparison {
    let comparison = compared(name);
    assert!(comparison.all_ratios.median <= 0.05, "{comparison:?}");
    assert!(comparison.fast_s <= minutes * MINUTE, "{comparison:?}");
    assert!(comparison.speed_up() > 100.0, "{comparison:?}");
    comparison
}

/// The times of each test too.
fn times_hold(comparison: &Comparison) {
    let times = comparison.times.map(|errors| errors.median);
    assert!(times.iter().all(|median| *median <= 0.05), "{times:?}");
}

#[test]
fn a_disk_takes_three_minutes() {
    times_hold(&holds("hdd", 3.0));
}

#[test]
fn an_ssd_takes_one_minute() {
    times_hold(&holds("ssd", 1.0));
}

#[test]
fn a_disk_with_a_write_cache_takes_three_minutes() {
    times_hold(&holds("pastel", 3.0));
}

/// Of an array's random writes the times are no straight line: the more of them a cache holds, the better it orders them.
/// The thesis found the same (Table 5.3: 16 %).
#[test]
fn disks_side_by_side_take_three_minutes() {
    holds("raid0", 3.0);
}
