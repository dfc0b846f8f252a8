//! The strategy in a virtual machine room: guided time over plain time, where the issue sets its bars.
//! `cargo test -p presagio-advise --test sim -- --nocapture table` prints the figures.

mod programs;
mod room;

use presagio_advise::strategy::{Account, Adaptive, Followed, Options, Tapes, Wait};
use programs::{hostile, instances, root_like, sequential, time_steps, twice};
use room::{Disk, Outcome, Program, run, run_hot};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A disk whose `read_ahead_kb` is unusually large.
const FAST: Disk = Disk {
    name: "fast",
    latency_ns: 80_000,
    byte_ns: 1.0 / 1.5,
    interval_ns: 0,
    operation_max: 1280 * KIB,
    read_ahead: 8 * MIB,
    blocking: false,
    in_slice: (0, 0),
};
const FUSE: Disk = Disk {
    name: "FUSE",
    latency_ns: 0,
    byte_ns: 0.0,
    interval_ns: 150_000,
    operation_max: 128 * KIB,
    read_ahead: 128 * KIB,
    blocking: true,
    in_slice: (0, 0),
};
const LOOP: Disk = Disk {
    name: "loop",
    read_ahead: 128 * KIB,
    latency_ns: 100_000,
    ..FAST
};
const IOPS_150: Disk = Disk {
    name: "150 IOPS",
    interval_ns: 6_666_667,
    ..LOOP
};
const IOPS_800: Disk = Disk {
    name: "800 IOPS, 110 MB/s",
    interval_ns: 1_250_000,
    byte_ns: 1e3 / 110.0,
    ..LOOP
};
/// The same limits as the kernel keeps them: what they let pass in 100 ms passes at once.
const SLICES_150: Disk = Disk {
    name: "150 IOPS in slices",
    in_slice: (15, 0),
    ..LOOP
};
const SLICES_800: Disk = Disk {
    name: "800 IOPS, 110 MB/s in slices",
    in_slice: (80, 11_000_000),
    ..LOOP
};
/// Enough bytes for what a program reads, but not for whole blocks: these make somebody wait in each slice.
const SLICES_BYTES: Disk = Disk {
    name: "110 MB/s in slices",
    in_slice: (0, 11_000_000),
    ..LOOP
};
const DISKS: [Disk; 7] = [FAST, FUSE, LOOP, IOPS_150, IOPS_800, SLICES_150, SLICES_800];

/// A program run plainly, then guided, then guided with the tapes of the run before.
struct Runs {
    plain: Outcome,
    guided: [Outcome; 2],
    told: [String; 2],
    waits: [Option<Wait>; 2],
    accounts: [Account; 2],
    followed: [Followed; 2],
}

impl Runs {
    fn of(disk: Disk, program: &Program) -> Runs {
        let mut tapes = Tapes::default();
        let mut runs = Runs {
            plain: run(disk, program, None),
            guided: [Outcome::default(); 2],
            told: Default::default(),
            waits: [None; 2],
            accounts: [Account::default(); 2],
            followed: [Followed::default(); 2],
        };
        for i in 0..2 {
            let mut strategy = Adaptive::new(Options::default(), tapes);
            runs.guided[i] = run(disk, program, Some(&mut strategy));
            let told = strategy.explain().pop();
            runs.told[i] = told.map(|(_, sentence)| sentence).unwrap_or_default();
            runs.waits[i] = strategy.waits().pop().map(|(_, wait)| wait);
            runs.accounts[i] = strategy.account();
            runs.followed[i] = strategy.followed();
            tapes = Tapes::load(&strategy.save()).unwrap();
        }
        runs
    }

    fn ratios(&self) -> [f64; 2] {
        self.guided
            .map(|g| g.time_ns as f64 / self.plain.time_ns as f64)
    }
}

fn root(kib: u64, seed: u64) -> Program {
    root_like(256 * MIB, kib * KIB, 300, seed)
}

/// The worst of a few seeds, for the first run and the second.
fn worst(disk: Disk, program: impl Fn(u64) -> Program) -> [f64; 2] {
    let all = [42, 7, 1234].map(|seed| Runs::of(disk, &program(seed)).ratios());
    [0, 1].map(|i| all.iter().map(|r| r[i]).fold(0.0, f64::max))
}

#[test]
fn second_runs_hold_the_bars_of_the_issue_and_first_runs_never_lose() {
    // Storage, size of a read in KiB, bars for a program's first run and its second. The issue has one for both. Those of first runs
    // differ in two rows: on FUSE with large reads, where sieving, which is all that can be done without a tape, moves twice the
    // bytes; and at the limit of bytes, where there is nothing to gain without one. The fast disk's 0.60 is the test after the next.
    let bars = [
        (FAST, 64, 0.95, 0.95),
        (FAST, 16, 1.02, 1.02),
        (FUSE, 250, 0.97, 0.60),
        (FUSE, 64, 0.75, 0.75),
        (FUSE, 16, 0.90, 0.90),
        (LOOP, 250, 0.65, 0.65),
        (IOPS_150, 64, 0.40, 0.40),
        (IOPS_150, 16, 0.60, 0.60),
        (IOPS_800, 250, 1.03, 0.85),
    ];
    let mut failed = Vec::new();
    for (disk, kib, first, second) in bars {
        let ratios = worst(disk, |seed| root(kib, seed));
        let taught = ratios[1] - ratios[0];
        if ratios[0] > first || ratios[1] > second || taught > 0.05 {
            failed.push(format!("{} {kib} KiB: {ratios:.2?}", disk.name));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn a_limit_that_lets_bursts_pass_is_not_mistaken_for_a_fast_device() {
    // What a first run of so few reads measures is by chance: in some all of them pass at once, in some sieving is what has to wait
    // for those before it, and in some the device seems to have nothing but a bandwidth.
    let seeds = [42, 7, 1234, 1, 2, 6, 8, 10, 11, 12, 13, 14];
    for (kib, bar) in [(64, 0.40), (16, 0.60)] {
        for seed in seeds {
            let few = root_like(800 * kib * KIB, kib * KIB, 300, seed);
            let ratios = Runs::of(SLICES_150, &few).ratios();
            let told = format!("{kib} KiB, seed {seed}: {ratios:?}");
            assert!(ratios.iter().all(|r| *r <= bar), "{told}");
            assert!(ratios[1] <= ratios[0] + 0.05, "{told}");
        }
    }
}

#[test]
fn a_limit_of_bytes_that_lets_bursts_pass_is_found_out_for_a_few_mebibytes() {
    // As long as the bench's: in so short a time each mebibyte that is read in vain is two thirds of a per cent.
    let seeds = [42, 7, 1234, 5, 6];
    let vain = seeds.map(|seed| {
        let runs = Runs::of(SLICES_800, &root_like(300 * MIB, 250 * KIB, 300, seed));
        (runs.guided[0].device_bytes - runs.plain.device_bytes) / KIB
    });
    let mean = vain.iter().sum::<u64>() / seeds.len() as u64;
    assert!(mean <= 7 * KIB, "{vain:?} KiB");
}

#[test]
fn where_bytes_are_limited_a_second_run_takes_hardly_longer_than_its_bytes() {
    for seed in [42, 7, 1234] {
        let program = root(250, seed);
        let runs = Runs::of(IOPS_800, &program);
        let bytes = runs.plain.device_bytes.min(runs.guided[1].device_bytes);
        let floor = bytes as f64 * IOPS_800.byte_ns / runs.plain.time_ns as f64;
        let ratios = runs.ratios();
        assert!(
            ratios[1] <= floor + 0.02,
            "{ratios:?}, at the limit {floor}"
        );
    }
}

#[test]
fn a_fast_disk_is_hidden_almost_entirely() {
    // Its kernel reads 8 MiB ahead where two reads happen to touch: how much there is to gain depends on the seed.
    for seed in [42, 7, 1234] {
        let program = root(250, seed);
        let runs = Runs::of(FAST, &program);
        let hot = run_hot(FAST, &program, None).time_ns as f64 / runs.plain.time_ns as f64;
        let ratios = runs.ratios();
        assert!(ratios[0] <= hot + 0.06, "{ratios:?}, hot {hot}");
        assert!(ratios[1] <= hot + 0.04, "{ratios:?}, hot {hot}");
    }
}

#[test]
fn irregular_offsets_that_repeat_in_many_files_are_exact_in_the_second_run() {
    let steps = || time_steps(32, 32 * MIB, 40, 64 * KIB, 100);
    let runs = Runs::of(LOOP, &steps());
    assert!(runs.ratios()[1] <= 0.6, "{:?}", runs.ratios());
    assert!(runs.accounts[1].wasted < 8 * MIB, "{:?}", runs.accounts);
    // And in the first, since each file is read like the one before.
    assert!(runs.ratios()[0] <= 0.7, "{:?}", runs.ratios());
}

#[test]
fn a_sparse_recording_is_followed_to_its_end() {
    // Gaps that nobody knows to be worth it would use up the credit of what is loaded.
    for disk in [FAST, FUSE, LOOP] {
        let program = programs::strided(64 * KIB, 4 * KIB, 8000, 100);
        let runs = Runs::of(disk, &program);
        let read: u64 = program.reads.iter().map(|(_, range)| range.len()).sum();
        let told = format!("{}: {:?} {:?}", disk.name, runs.ratios(), runs.accounts[1]);
        assert!(runs.accounts[1].useful > read / 10 * 9, "{told}");
        assert!(runs.ratios()[1] <= 0.65, "{told}");
    }
}

#[test]
fn a_second_pass_in_one_run_follows_the_first() {
    let irregular = || programs::random(512 * MIB, 64 * KIB, 1000, 100);
    let once = Runs::of(LOOP, &irregular()).ratios()[0];
    let mut strategy = Adaptive::new(Options::default(), Tapes::default());
    let program = twice(irregular());
    run(LOOP, &program, Some(&mut strategy));
    let exact = strategy.account();
    assert!(once <= 1.02);
    assert!(
        exact.useful > 30 * MIB && exact.wasted < 8 * MIB,
        "{exact:?}"
    );
    // No earlier run or file has told of it.
    assert_eq!(strategy.followed().told, 0);
}

#[test]
fn nothing_gets_worse() {
    let programs = [
        sequential(256 * MIB, 64 * KIB, 0),
        sequential(256 * MIB, 64 * KIB, 300),
        sequential(256 * MIB, MIB, 100),
        programs::random(512 * MIB, 4 * KIB, 3000, 50),
        programs::random(1024 * MIB, 64 * KIB, 3000, 50),
        programs::backward(256 * MIB, 64 * KIB, 300, 42),
        hostile(512 * MIB, 64 * KIB, 300),
        time_steps(32, 32 * MIB, 40, 64 * KIB, 100),
    ];
    for disk in DISKS {
        for (i, program) in programs.iter().enumerate() {
            let ratios = Runs::of(disk, program).ratios();
            let told = format!("{} program {i}: {ratios:?}", disk.name);
            assert!(ratios.iter().all(|r| *r <= 1.03), "{told}");
        }
    }
    for seed in [42, 7, 1234] {
        let thin = programs::thin(256 * MIB, 16 * KIB, 300, seed);
        let ratios = Runs::of(SLICES_BYTES, &thin).ratios();
        assert!(ratios.iter().all(|r| *r <= 1.03), "thin: {ratios:?}");
    }
}

#[test]
fn reads_of_one_size_tell_less_about_the_device_and_still_gain() {
    for (disk, bar) in [(FUSE, 0.75), (LOOP, 0.75), (IOPS_150, 0.3), (IOPS_800, 0.8)] {
        let one_size = |seed| programs::one_size(256 * MIB, 64 * KIB, 300, seed);
        let ratios = worst(disk, one_size);
        assert!(ratios[1] <= bar, "{}: {ratios:?}", disk.name);
    }
}

#[test]
fn a_hot_cache_gets_no_hints_to_speak_of() {
    for program in [root(64, 1), sequential(64 * MIB, 4 * KIB, 10)] {
        let mut strategy = Adaptive::new(Options::default(), Tapes::default());
        run(FAST, &program, Some(&mut strategy)); // a tape, and figures that promise a gain
        let tapes = Tapes::load(&strategy.save()).unwrap();
        let mut strategy = Adaptive::new(Options::default(), tapes);
        let outcome = run_hot(FAST, &program, Some(&mut strategy));
        assert_eq!(outcome.device_bytes, 0);
        assert!(outcome.hints <= 100, "{outcome:?}");
    }
}

/// A run of a hostile program, after one that went on as it began.
fn taught_otherwise(disk: Disk, program: &Program) -> Outcome {
    let mut teacher = Adaptive::new(Options::default(), Tapes::default());
    let straight = root_like(1024 * MIB, 64 * KIB, 300, 5);
    run(disk, &straight, Some(&mut teacher));
    let tapes = Tapes::load(&teacher.save()).unwrap();
    let mut strategy = Adaptive::new(Options::default(), tapes);
    run(disk, program, Some(&mut strategy))
}

#[test]
fn prefetching_stops_within_64_mib_when_the_pattern_turns_hostile() {
    for disk in DISKS {
        let program = hostile(1024 * MIB, 64 * KIB, 300);
        let runs = Runs::of(disk, &program);
        let read: u64 = program.reads[program.reads.len() / 2..]
            .iter()
            .map(|(_, range)| range.len())
            .sum();
        let plain = runs.plain.device_bytes - runs.plain.half_bytes;
        let [first, second] = runs.guided;
        let guided = [first, second, taught_otherwise(disk, &program)];
        for (i, guided) in guided.iter().enumerate() {
            let after = guided.device_bytes - guided.half_bytes;
            let told = format!(
                "{}, run {i}: {after} after, {plain} plain, {read} read",
                disk.name
            );
            // Who knows what comes may read gaps on purpose, if that pays: a small part of what is read.
            let pays = i == 1 && runs.ratios()[1] <= 0.6;
            let gaps = if pays { read / 8 } else { 0 };
            assert!(after < plain.max(read) + 64 * MIB + gaps, "{told}");
        }
    }
}

#[test]
fn random_reads_have_the_kernels_reading_ahead_switched_off_once() {
    let program = programs::random(1024 * MIB, 16 * KIB, 3000, 50);
    let runs = Runs::of(FAST, &program);
    assert_eq!((runs.guided[0].modes, runs.guided[0].hints), (1, 1));
}

#[test]
fn instances_on_one_file_load_it_once() {
    for count in [2, 4, 8] {
        let program = instances(root_like(128 * MIB, 250 * KIB, 300, 3), count);
        let runs = Runs::of(LOOP, &program);
        let told = format!("{count}: {:?} {:?}", runs.ratios(), runs.guided);
        assert!(runs.guided[0].device_bytes <= 130 * MIB, "{told}");
        assert!(runs.ratios().iter().all(|r| *r <= 1.0), "{told}");
    }
}

#[test]
fn the_same_run_gives_the_same_hints() {
    let outcome = || {
        run(
            LOOP,
            &root(64, 9),
            Some(&mut Adaptive::new(Options::default(), Tapes::default())),
        )
    };
    assert_eq!(outcome(), outcome());
}

#[test]
fn little_memory_is_respected() {
    let options = Options {
        memory_max: 2 * MIB,
        ..Options::default()
    };
    let mut strategy = Adaptive::new(options, Tapes::default());
    let outcome = run(LOOP, &root(64, 9), Some(&mut strategy));
    let account = strategy.account();
    assert!(
        outcome.hints > 0 && account.unread <= 2 * MIB,
        "{account:?}"
    );
}

#[test]
fn each_choice_is_explained() {
    let told = Runs::of(IOPS_800, &root(250, 42)).told;
    assert!(told[0].starts_with("nothing: reads cover "), "{told:?}");
    assert!(
        told[1].starts_with("exact loads: the reads follow"),
        "{told:?}"
    );
    let told = Runs::of(IOPS_150, &root(16, 42)).told;
    assert!(told[0].starts_with("sieving: reads cover "), "{told:?}");
    let told = Runs::of(SLICES_800, &root_like(300 * MIB, 250 * KIB, 300, 42)).told;
    let put_off = "sieving is put off, since a read waited ";
    assert!(told[0].contains(put_off), "{told:?}");
}

#[test]
fn who_may_do_nothing_teaches_the_next_run_all_the_same() {
    let program = root(16, 42);
    let reads = program.reads.len() as u64;
    let options = Options {
        advises: false,
        ..Options::default()
    };
    let mut tapes = Tapes::default();
    let plain = run(IOPS_150, &program, None);
    // Also where what an earlier run has taught would call for something.
    for told in [0, reads - 1] {
        let mut watching = Adaptive::new(options, tapes);
        let watched = run(IOPS_150, &program, Some(&mut watching));
        assert_eq!(watched, plain);
        assert!(watching.followed().told >= told);
        tapes = Tapes::load(&watching.save()).unwrap();
    }
    let mut guiding = Adaptive::new(Options::default(), tapes);
    let guided = run(IOPS_150, &program, Some(&mut guiding));
    assert!(guiding.followed().told >= reads - 1);
    assert!(5 * guided.time_ns < plain.time_ns, "{guided:?} {plain:?}");
}

#[test]
fn what_exact_loads_were_measured_to_do_is_kept_by_a_run_that_may_do_nothing() {
    let program = programs::strided(64 * KIB, 4 * KIB, 4000, 100);
    let mut tapes = Tapes::default();
    // The last one measures nothing of it, and tells what it knows.
    for (advises, knows) in [(true, false), (true, true), (false, true), (false, true)] {
        let options = Options {
            advises,
            ..Options::default()
        };
        let mut strategy = Adaptive::new(options, tapes);
        run(LOOP, &program, Some(&mut strategy));
        let (_, told) = strategy.explain().pop().unwrap();
        assert_eq!(told.contains(" ms with exact loads"), knows, "{told}");
        tapes = Tapes::load(&strategy.save()).unwrap();
    }
}

#[test]
fn what_a_recording_told_is_counted() {
    let program = root(64, 42);
    let [first, second] = Runs::of(LOOP, &program).followed;
    let reads = program.reads.len() as u64;
    assert_eq!((first.reads, first.told), (reads, 0));
    assert_eq!(second.told, second.right);
    assert!(second.told >= reads - 1, "{second:?}");
}

#[test]
fn what_a_choice_hides_is_told_in_figures() {
    let program = root(16, 42);
    let runs = Runs::of(IOPS_150, &program);
    let wait = runs.waits[0].expect("both were measured");
    assert_eq!(wait.method, "sieving");
    assert!(wait.with_ns < wait.without_ns, "{wait:?}");
    let reads = program.reads.len() as u64;
    assert!(wait.with_reads + wait.without_reads <= reads, "{wait:?}");
    assert!(
        runs.told[0].contains(" ms with nothing"),
        "{}",
        runs.told[0]
    );
}

#[test]
fn what_was_measured_in_an_earlier_run_is_not_told_as_if_it_were_in_this_one() {
    let runs = Runs::of(IOPS_800, &root(250, 42));
    // It begins with what the first run has taught, and has no use for another control group.
    assert!(runs.told[1].contains("exact loads"), "{}", runs.told[1]);
    assert!(
        runs.told[1].contains(" ms with nothing"),
        "{}",
        runs.told[1]
    );
    assert_eq!(runs.waits[1], None);
}

/// Not a promise, but the figures behind them.
#[test]
fn table() {
    for disk in DISKS {
        for kib in [250, 64, 16] {
            let runs = Runs::of(disk, &root(kib, 42));
            let [first, second] = runs.ratios();
            let plain_s = runs.plain.time_ns as f64 / 1e9;
            println!(
                "{:18} {kib:3} KiB: plain {plain_s:5.2} s {:4} ops, first {first:.2} {:4} ops, second {second:.2} {:4} ops",
                disk.name,
                runs.plain.device_operations,
                runs.guided[0].device_operations,
                runs.guided[1].device_operations,
            );
            println!("    1 {}\n    2 {}", runs.told[0], runs.told[1]);
            // What a limit makes wait at all waits for the next slice.
            let slice_s = if disk.in_slice == (0, 0) { 0.0 } else { 0.1 };
            assert!(first.max(second) <= 1.05 + slice_s / plain_s);
        }
    }
}
