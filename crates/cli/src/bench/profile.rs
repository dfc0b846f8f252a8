//! `presagio bench profile`: the fast way beside the full one, on emulated devices and this machine's disk.
//!
//! Emulated devices run in virtual time, with the file of 1200 MB of the thesis: their minutes and hours are those that a
//! real one would take. On the disk of the temporary directory (`TMPDIR`) time is real, about a quarter of an hour, with
//! the thesis's file of 400 MB. There the two ways are minutes apart, and other tenants come and go; to be fair to both,
//! the fast way runs before and after, three times in all, and the one with the median error counts, but the longest time.
//!
//! The bar is the thesis's measure: the median error of sequential to random ratios, over all sizes. Errors of times are in the
//! table: a disk that is slower by a tenth while one of both ways runs has them, and the same ratios. So is the noise
//! of what errors are measured against: how sure the full way is of its own ratios.

use super::{Bar, Effort, Report, Scope};
use crate::profile::{Source, emulated, real, watched};
use crate::size::Size;
use crate::table::{Cell, Table};
use presagio_core::Nanos;
use presagio_device::profile::{Interval, Point, Test};
use presagio_device::{Model, Profile};
use presagio_profile::compare::Comparison;
use presagio_profile::{Target, fast, full};

const DISK: &str = "this machine's disk";

/// Median errors may be so large, in percent.
const ERROR_MOST: f64 = 5.0;

/// Bytes of the files, by effort: virtual, real.
fn sizes(effort: Effort) -> (u64, u64) {
    match effort {
        Effort::Full => (1200 << 20, 400 << 20),
        Effort::Quick => (200 << 20, 160 << 20),
        Effort::Tiny => (40 << 20, 8 << 20),
    }
}

/// The published sizes; or fewer of them, where only the bench itself is tried.
fn intervals(effort: Effort) -> Vec<Interval> {
    const KIB: u64 = 1 << 10;
    let coarse = |least, most, step| Interval::new(least * KIB, most * KIB, step * KIB);
    let few = match effort {
        Effort::Full => None,
        Effort::Quick => coarse(8, 64, 8).zip(coarse(64, 4096, 252)),
        Effort::Tiny => coarse(8, 64, 56).zip(coarse(64, 512, 448)),
    };
    few.map_or_else(Interval::published, |(small, large)| vec![small, large])
}

/// No round of the fast way begins after that.
fn budget(effort: Effort) -> Nanos {
    match effort {
        Effort::Full => fast::Plan::default().budget,
        Effort::Quick => Nanos::from_secs(30),
        Effort::Tiny => Nanos::from_millis(200),
    }
}

/// Minutes that the fast way may take; none for devices without a bar.
fn minutes_most(name: &str) -> Option<f64> {
    match name {
        "hdd" | DISK => Some(3.0),
        "ssd" => Some(1.0),
        _ => None,
    }
}

pub fn run(scope: &Scope) -> anyhow::Result<Report> {
    let mut report = Report {
        tables: Vec::new(),
        notes: vec![NOTE.to_owned()],
        bars: Vec::new(),
    };
    let mut rows = Vec::new();
    let (bytes, disk_bytes) = sizes(scope.effort);
    for name in Model::NAMES.into_iter().filter(|name| scope.has(name)) {
        let found = measured(emulated(name, bytes)?, scope.effort, 1)?;
        rows.push(row(name, &found));
        report.bars.extend(bars(name, &found));
    }
    if scope.has(DISK) {
        let source = real(&std::env::temp_dir(), Size(disk_bytes), 1)?;
        let notes = source.notes.iter();
        let notes = notes.map(|note| format!("{DISK}: {note}."));
        report.notes.extend(notes);
        let found = measured(source, scope.effort, 3)?;
        rows.push(row(DISK, &found));
        report.bars.extend(bars(DISK, &found));
    }
    report.tables.push((
        "devices",
        Table {
            title: "median errors of the fast way, in percent of the full one; minutes of both"
                .to_owned(),
            columns: COLUMNS.to_vec(),
            rows,
        },
    ));
    Ok(report)
}

const NOTE: &str = "errors are medians over all sizes; ratio: sequential to random throughput (the thesis: 5 % at 1/168 of \
                    the time); full ±: how sure the full way is of its own ratios, at 90 % confidence, the median again; again: \
                    how far two runs of the fast way are apart; time: of a request, the worst of the four tests; emulated \
                    devices: virtual time";

const COLUMNS: [(&str, &str); 9] = [
    ("device", "device"),
    ("ratio_error_percent", "ratio %"),
    ("read_ratio_error_percent", "of reads"),
    ("write_ratio_error_percent", "of writes"),
    ("full_noise_percent", "full ±"),
    ("fast_again_percent", "again"),
    ("time_error_percent", "time %"),
    ("minutes", "minutes"),
    ("full_over_fast", "full / fast"),
];

/// What came of a device.
struct Found {
    /// The fast way beside the full one, sorted by error.
    compared: Vec<Comparison>,
    /// Half the confidence interval of the full way's ratios, as a share: the median over all sizes.
    full_noise: f64,
    /// The median difference of ratios between the first and the last run of the fast way, if there were several.
    fast_again: Option<f64>,
}

impl Found {
    /// The one in the middle.
    fn middle(&self) -> &Comparison {
        &self.compared[self.compared.len() / 2]
    }
}

/// The fast way, the full way, and the fast way again, `times` in all.
fn measured(mut source: Source, effort: Effort, times: u64) -> anyhow::Result<Found> {
    let target = source.target.as_mut();
    let fast = |target: &mut dyn Target, seed: u64| {
        let plan = fast::Plan {
            intervals: intervals(effort),
            budget: budget(effort),
            seed,
            ..fast::Plan::default()
        };
        watched(|step| fast::measure(target, &plan, step))
    };
    let plan = full::Plan {
        intervals: intervals(effort),
        depth: 1,
        seed: 1,
    };
    let mut profiles = vec![fast(target, 1)?];
    let full = watched(|step| full::measure(target, &plan, step))?;
    for seed in 2..=times {
        profiles.push(fast(target, seed)?);
    }
    let each = profiles.iter().map(|fast| Comparison::of(fast, &full));
    let mut compared: Vec<Comparison> = each.collect();
    compared.sort_by(|a, b| a.all_ratios.median.total_cmp(&b.all_ratios.median));
    let again = match &profiles[..] {
        [first, .., last] => Some(Comparison::of(last, first).all_ratios.median),
        _ => None,
    };
    Ok(Found {
        compared,
        full_noise: noise(&full),
        fast_again: again,
    })
}

/// How sure a full profile is of its ratios: a quotient's interval, from those of both times.
fn noise(full: &Profile) -> f64 {
    let relative = |point: &Point| point.plus_minus_ns / point.ns;
    let ratios = [
        (Test::SequentialRead, Test::RandomRead),
        (Test::SequentialWrite, Test::RandomWrite),
    ];
    let each = ratios.into_iter().flat_map(|(sequential, random)| {
        let both = full.points(sequential).iter().zip(full.points(random));
        both.map(|(a, b)| relative(a).hypot(relative(b)))
    });
    let mut each: Vec<f64> = each.collect();
    each.sort_by(f64::total_cmp);
    each.get(each.len() / 2).copied().unwrap_or(f64::NAN)
}

fn time_error(comparison: &Comparison) -> f64 {
    let worst = comparison.times.iter().map(|errors| errors.median);
    100.0 * worst.fold(0.0, f64::max)
}

fn row(name: &str, found: &Found) -> Vec<Cell> {
    let comparison = found.middle();
    let [reads, writes] = comparison.ratios.map(|errors| 100.0 * errors.median);
    vec![
        Cell::Text(name.to_owned()),
        Cell::Number(100.0 * comparison.all_ratios.median, 2),
        Cell::Number(reads, 2),
        Cell::Number(writes, 2),
        Cell::Number(100.0 * found.full_noise, 2),
        Cell::maybe(found.fast_again.map(|share| 100.0 * share), 2),
        Cell::Number(time_error(comparison), 2),
        Cell::Number(comparison.fast_s / 60.0, 2),
        Cell::Number(comparison.speed_up(), 0),
    ]
}

fn bars(name: &str, found: &Found) -> Vec<Bar> {
    let Some(minutes) = minutes_most(name) else {
        return Vec::new();
    };
    let comparison = found.middle();
    let each = found.compared.iter().map(|it| it.fast_s);
    let longest = each.fold(0.0, f64::max);
    let times = comparison.speed_up();
    let bar = |what: &str, value: f64, unit, limit| {
        Bar::at_most(format!("{name}: {what}"), value, unit, limit)
    };
    vec![
        bar(
            "median error of ratios",
            100.0 * comparison.all_ratios.median,
            "%",
            ERROR_MOST,
        ),
        bar(
            &format!("time (the full way: {times:.0} times as long)"),
            longest / 60.0,
            "min",
            minutes,
        ),
    ]
}
