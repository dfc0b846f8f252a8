//! Every trap that a library in other people's processes can fall into, with a small program for each (`tests/c`).

#![cfg(target_arch = "x86_64")]

mod common;

use common::*;
use presagio_arena::{
    Advice, Arena, ArenaOptions, Counter, Message, Mode, Note, PathFilter, Record,
};
use presagio_core::Action;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

/// Compiles a program and runs it twice, in directories of its own: alone, and watched. It must not make a difference.
fn run(source: &str, args: &[&str]) -> (Dir, String, Report) {
    run_built(source, &[], args)
}

/// The same for a program that is built in a special way.
fn run_built(source: &str, flags: &[&str], args: &[&str]) -> (Dir, String, Report) {
    let bin = Dir::new();
    let program = compile(&bin, source, flags);
    let plain = Dir::new();
    let alone = succeed(&mut command(&plain, &program, args));
    let (dir, printed, report) = run_watched(&program, args);
    assert_eq!(String::from_utf8_lossy(&alone.stdout), printed);
    assert!(plain.contents() == dir.contents(), "{source}: other files");
    (dir, printed, report)
}

/// Only watched, for a program that does something else each time.
fn run_varying(source: &str, args: &[&str]) -> (Dir, String, Report) {
    let bin = Dir::new();
    run_watched(&compile(&bin, source, &[]), args)
}

fn run_watched(program: &Path, args: &[&str]) -> (Dir, String, Report) {
    let dir = Dir::new();
    let (output, report) = watch(command(&dir, program, args));
    let printed = String::from_utf8(output.stdout).unwrap();
    (dir, printed, report)
}

/// Compiles a program, runs it under strace, and demands that not a byte is told wrongly.
fn run_exactly(source: &str, args: &[&str], least: u64) -> Report {
    let bin = Dir::new();
    let program = compile(&bin, source, &[]);
    let dir = Dir::new();
    let (agreement, report) = compare_with_strace(&dir, &command(&dir, program, args));
    check_sane(&report);
    agreement.check_exact(least);
    report
}

fn text(dir: &Dir, name: &str) -> String {
    String::from_utf8(std::fs::read(dir.file(name)).unwrap()).unwrap()
}

/// The bytes that were written to files of this name.
fn written(report: &Report, name: &str) -> i64 {
    report
        .places(name, Action::Write)
        .iter()
        .map(|place| place.1)
        .sum()
}

fn shared_library(dir: &Dir, source: &str) -> String {
    compile(dir, source, &["-shared", "-fPIC"])
        .display()
        .to_string()
}

#[test]
fn a_library_that_starts_before_ours_and_stands_in_front_of_the_same_function_works_on_either_side()
{
    let bin = Dir::new();
    let (early, plain) = (
        shared_library(&bin, "early.c"),
        compile(&bin, "plain.c", &[]),
    );
    let ours = library().display().to_string();
    let run = |preload: &str| {
        let dir = Dir::new();
        let manager = Manager::start();
        let mut command = command(&dir, &plain, &[]);
        manager.preload(&mut command);
        let output = succeed(command.env("LD_PRELOAD", preload));
        (output.stdout, dir.contents(), manager.finish())
    };
    let without = run(&early);
    for preload in [format!("{early}:{ours}"), format!("{ours}:{early}")] {
        let with = run(&preload);
        assert!(without.0 == with.0 && without.1 == with.1, "{preload}");
        check_sane(&with.2);
        assert_eq!(written(&with.2, "/work"), 18_890);
    }
}

#[test]
fn an_allocator_that_does_io_is_not_entered_from_inside() {
    let bin = Dir::new();
    let (allocator, plain) = (
        shared_library(&bin, "allocator.c"),
        compile(&bin, "plain.c", &[]),
    );
    let ours = library().display().to_string();
    let run = |preload: &str| {
        let dir = Dir::new();
        let manager = Manager::start();
        let mut command = command(&dir, &plain, &[]);
        manager.preload(&mut command);
        let output = succeed(command.env("LD_PRELOAD", preload));
        (output.stdout, dir.contents(), manager.finish())
    };
    let without = run(&allocator);
    for preload in [format!("{allocator}:{ours}"), format!("{ours}:{allocator}")] {
        let with = run(&preload);
        assert_eq!(without.0, with.0);
        // The allocations of the program itself, not one more.
        assert!(without.1 == with.1, "{preload}");
        check_sane(&with.2);
    }
}

#[test]
fn signal_handlers_may_write_in_the_middle_of_anything() {
    for mode in ["own", "alt"] {
        let (_dir, printed, report) = run_varying("signals.c", &[mode]);
        let (handled, size) = printed.trim().split_once(' ').unwrap();
        let handled: i64 = handled.parse().unwrap();
        assert_eq!(size.parse::<i64>().unwrap(), handled * 8);
        check_sane(&report);
        // Those that interrupted the writing of a record are counted, and not one place is wrong.
        let missed = report.counter(Counter::Interrupted) as i64;
        let places = report.places("/handled", Action::Write);
        assert!(places.len() as i64 <= handled);
        assert!(
            places.len() as i64 >= handled - missed,
            "{mode}: {} of {handled}, {missed} missed",
            places.len()
        );
        assert!(places.is_sorted_by(|a, b| a.0 < b.0));
        assert!(places.iter().all(|place| place.0 % 8 == 0));
    }
}

#[test]
fn a_signal_handler_may_jump_out_of_anything() {
    let (_dir, printed, report) = run_varying("signals.c", &["jump"]);
    let handled: usize = printed.split(' ').next().unwrap().parse().unwrap();
    // Watching goes on after a jump out of our own code.
    assert!(report.of("/main", Action::Write).count() >= 10_000);
    assert!(report.of("/handled", Action::Write).count() >= handled / 2);
}

#[test]
fn forks_of_a_program_with_threads_are_processes_of_their_own() {
    let (dir, _, report) = run_varying("forks.c", &[]);
    for child in 0..40 {
        let name = format!("/child{child}");
        assert_eq!(text(&dir, &name[1..]).len(), 1003);
        assert_eq!(written(&report, &name), 1003, "{name}");
        let pids: std::collections::HashSet<u32> = report
            .of(&name, Action::Write)
            .map(|seen| seen.origin.pid)
            .collect();
        assert_eq!(pids.len(), 1);
    }
    for thread in 0..4 {
        let name = format!("/thread{thread}");
        assert_eq!(written(&report, &name), text(&dir, &name[1..]).len() as i64);
    }
    // The first ones may come before any thread has opened its file.
    assert!((1..=40).contains(&report.counter(Counter::Forks)));
}

#[test]
fn positions_that_processes_share_are_right_in_each() {
    let report = run_exactly("shared.c", &[], 20 * 19);
    assert_eq!(report.counter(Counter::Spawns), 20);
}

#[test]
fn children_of_vfork_change_nothing_for_their_parent() {
    let (dir, _, report) = run("vforks.c", &[]);
    assert_eq!(text(&dir, "a"), "aaaa".repeat(20));
    assert_eq!(text(&dir, "b"), "bb".repeat(20));
    assert_eq!(text(&dir, "child"), "more\n".repeat(10));
    let every = |len: u64| (0..20).map(|i| (i * len, len as i64)).collect::<Vec<_>>();
    assert_eq!(report.places("/a", Action::Write), every(4));
    assert_eq!(report.places("/b", Action::Write), every(2));
    assert_eq!(written(&report, "/child"), 50);
    check_sane(&report);
}

#[test]
fn children_that_share_memory_by_clone_change_nothing_for_their_parent() {
    let (_dir, _, report) = run("guests.c", &[]);
    let every = |len: u64| (0..20).map(|i| (i * len, len as i64)).collect::<Vec<_>>();
    assert_eq!(report.places("/a", Action::Write), every(4));
    assert_eq!(report.places("/b", Action::Write), every(2));
    check_sane(&report);
}

#[test]
fn children_that_share_memory_by_clone3_change_nothing_for_their_parent() {
    let (_dir, _, report) = run("clone3.c", &[]);
    let every = |len: u64| (0..20).map(|i| (i * len, len as i64)).collect::<Vec<_>>();
    assert_eq!(report.places("/a", Action::Write), every(4));
    assert_eq!(report.places("/b", Action::Write), every(2));
    check_sane(&report);
}

#[test]
fn descriptors_that_change_hands_by_raw_calls_are_told_as_what_they_are() {
    let (_dir, _, report) = run("rawfds.c", &[]);
    let places = |name| report.places(name, Action::Write);
    assert_eq!(places("/a"), [(0, 4)]);
    assert_eq!(places("/e"), [(0, 5), (5, 2)]);
    assert_eq!(places("/c"), [(0, 1)]);
    assert_eq!(places("/d"), [(0, 3)]);
    let pairs: Vec<(u64, i64)> = (0..7).map(|i| (2 * i, 2)).collect();
    assert_eq!(places("/b"), pairs);
}

#[test]
fn files_below_a_directory_that_was_renamed_are_told_by_their_new_path() {
    let (dir, _, report) = run("renames.c", &[]);
    // All were made in the first place.
    let twice = ["a/sub/one1", "a/sub/two2"];
    let once = ["a/sub/tri3", "b/sub/tri3", "c/sub/for4", "d/sub/fiv5"];
    for (names, times) in [(&twice[..], 2), (&once[..], 1)] {
        for name in names.iter().map(|name| dir.file(name)) {
            let places = report.places(name.to_str().unwrap(), Action::Write);
            assert_eq!(places, vec![(0, 4); times], "{}", name.display());
        }
    }
    check_sane(&report);
}

/// A manager with room for so many files, and little in the rings: who opens and closes files waits until they were heard of.
fn with_room_for(files: u32) -> Manager {
    Manager::with(&ArenaOptions {
        files,
        records: 1024,
        mode: complete(),
        ..ArenaOptions::default()
    })
}

#[test]
fn files_that_stay_open_leave_room_for_those_that_come_and_go() {
    let (bin, dir) = (Dir::new(), Dir::new());
    let manager = with_room_for(4096);
    let mut command = command(&dir, compile(&bin, "many.c", &[]), &[]);
    manager.preload(&mut command);
    succeed(&mut command);
    let report = manager.finish();
    check_sane(&report);
    assert_eq!(report.counter(Counter::LostFiles), 0);
    assert_eq!(report.of("/a", Action::Open).count(), 1000);
    assert_eq!(report.of("/b", Action::Close).count(), 20_000);
}

#[test]
fn a_descriptor_that_two_threads_look_at_has_one_entry() {
    let (bin, dir) = (Dir::new(), Dir::new());
    // One more for each, as long as it takes to find out who was first.
    let manager = with_room_for(902);
    let mut command = command(&dir, compile(&bin, "looks.c", &[]), &[]);
    manager.preload(&mut command);
    succeed(&mut command);
    let report = manager.finish();
    check_sane(&report);
    assert_eq!(report.counter(Counter::LostFiles), 0);
    assert_eq!(report.of("/a", Action::Read).count(), 1800);
}

#[test]
fn a_descriptor_that_had_the_last_entry_stays_followed_whoever_else_looked_at_it() {
    let (bin, dir) = (Dir::new(), Dir::new());
    let manager = with_room_for(1);
    let mut command = command(&dir, compile(&bin, "last.c", &[]), &[]);
    manager.preload(&mut command);
    succeed(&mut command);
    let report = manager.finish();
    let offsets: std::collections::HashSet<u64> = report
        .of("/a", Action::Read)
        .map(|seen| seen.operation.offset)
        .collect();
    assert!(!offsets.is_empty());
    // The second read of a round is at an odd place.
    for first in offsets.iter().filter(|offset| offset.is_multiple_of(2)) {
        assert!(offsets.contains(&(first + 1)), "round {}", first / 2);
    }
}

#[test]
fn closing_everything_closes_nothing_of_ours() {
    let (_dir, _, report) = run("closeall.c", &[]);
    for name in ["/one1", "/two2", "/tri3", "/for4"] {
        assert_eq!(report.places(name, Action::Write), [(0, 4)], "{name}");
        assert_eq!(report.places(name, Action::Read), [(0, 4)], "{name}");
        assert_eq!(report.of(name, Action::Close).count(), 1, "{name}");
    }
    assert_eq!(report.places("/fiv5", Action::Write), [(0, 4), (4, 4)]);
    check_sane(&report);
}

#[test]
fn duplicates_share_their_position() {
    run_exactly("dups.c", &[], 60);
}

#[test]
fn appended_bytes_are_where_the_kernel_put_them() {
    run_exactly("append.c", &[], 30_000);
}

#[test]
fn errno_is_the_real_calls() {
    let (_dir, _, report) = run("errnos.c", &[]);
    check_sane(&report);
    // Failures are told with their reason.
    assert!(
        report
            .of("/a", Action::Read)
            .any(|seen| seen.operation.result == -14)
    );
}

#[test]
fn cancelled_threads_leave_nothing_locked() {
    let (dir, _, report) = run_varying("cancels.c", &[]);
    // Of each of the twenty that were cancelled inside a write, that one may be missing.
    let (seen, real) = (
        written(&report, "/stream"),
        text(&dir, "stream").len() as i64,
    );
    assert!(seen <= real && seen >= real - 20 * 4096, "{seen} of {real}");
    assert!(report.of("/file", Action::Write).count() >= 60);
}

#[test]
fn the_smallest_of_stacks_is_enough() {
    let (_dir, _, report) = run("tiny.c", &[]);
    for thread in 0..10 {
        assert_eq!(written(&report, &format!("/tiny{thread}")), 500);
    }
    check_sane(&report);
}

#[test]
fn sixty_four_threads_lose_nothing() {
    let (_dir, _, report) = run_varying("threads.c", &[]);
    check_sane(&report);
    let mut places = report.places("/common", Action::Write);
    places.sort_unstable();
    let all: Vec<(u64, i64)> = (0..64 * 200).map(|i| (i * 100, 100)).collect();
    assert!(places == all);
    for thread in 0..64 {
        assert_eq!(written(&report, &format!("/own{thread}")), 20_000);
    }
    assert_eq!(report.of("/common", Action::Read).count(), 64 * 200 + 300);
}

#[test]
fn a_chain_of_programs_is_followed_from_one_to_the_next() {
    let report = run_exactly("execs.c", &[], 150);
    let images: std::collections::HashSet<u32> =
        report.seen.iter().map(|s| s.origin.image).collect();
    assert_eq!(images.len(), 11);
}

#[test]
fn a_killed_program_leaves_all_that_it_did() {
    let bin = Dir::new();
    let program = compile(&bin, "killed.c", &[]);
    let dir = Dir::new();
    let manager = Manager::start();
    let mut command = command(&dir, program, &[]);
    manager.preload(&mut command);
    let status = command.status().unwrap();
    assert_eq!(status.signal(), Some(9));
    let report = manager.finish();
    assert_eq!(written(&report, "/written"), 10_000);
    assert_eq!(written(&report, "/stream"), 0);
}

#[test]
fn streams_of_all_kinds_work_and_those_without_a_file_are_left_alone() {
    let bin = Dir::new();
    let program = compile(&bin, "streams.c", &[]);
    let plain = Dir::new();
    let printed = succeed(&mut command(&plain, &program, &[])).stdout;
    let dir = Dir::new();
    let (output, report) = watch(command(&dir, &program, &[]));
    assert_eq!(output.stdout, printed);
    assert_eq!(dir.contents(), plain.contents());
    for (name, bytes) in dir.contents() {
        let name = format!("/{}", name.display());
        assert_eq!(written(&report, &name), bytes.len() as i64, "{name}");
    }
    check_sane(&report);
    let dir = Dir::new();
    let (agreement, _) = compare_with_strace(&dir, &command(&dir, &program, &[]));
    agreement.check_exact(8000);
}

#[test]
fn what_streams_hold_when_a_program_ends_is_told() {
    let report = run_exactly("atexits.c", &[], 8000);
    assert!(
        report
            .of("/f", Action::Write)
            .any(|s| s.operation.flags & Record::AT_EXIT != 0)
    );
    // The same for standard output, where that is a file.
    let bin = Dir::new();
    let program = compile(&bin, "atexits.c", &[]);
    let dir = Dir::new();
    let (_, report) = watch(script(&dir, &format!("{} > out", program.display())));
    assert_eq!(report.places("/out", Action::Write), [(0, 19)]);
}

#[test]
fn any_mixture_of_calls_on_streams_is_told_byte_by_byte() {
    let bin = Dir::new();
    let program = compile(&bin, "mixes.c", &[]);
    for seed in ["1", "2", "3"] {
        let plain = Dir::new();
        succeed(&mut command(&plain, &program, &[seed]));
        let dir = Dir::new();
        let (agreement, report) = compare_with_strace(&dir, &command(&dir, &program, &[seed]));
        assert!(dir.contents() == plain.contents());
        check_sane(&report);
        agreement.check(1 << 20);
    }
}

#[test]
fn libraries_that_come_and_go_are_followed() {
    let bin = Dir::new();
    let (loaded, program) = (
        shared_library(&bin, "loaded.c"),
        compile(&bin, "dlopens.c", &[]),
    );
    let dir = Dir::new();
    let (_, report) = watch(command(&dir, program, &[&loaded]));
    assert_eq!(written(&report, "/loaded"), 140);
    assert_eq!(written(&report, "/worked"), 140);
    check_sane(&report);
}

#[test]
fn a_program_that_forbids_itself_system_calls_is_let_go() {
    let (dir, _, report) = run("sandboxed.c", &[]);
    assert_eq!(text(&dir, "sandboxed"), "beforafter");
    assert_eq!(written(&report, "/sandboxed"), 6);
    assert_eq!(report.counter(Counter::TurnedOff), 1);
}

#[test]
fn what_a_child_in_our_memory_forbids_itself_does_not_turn_its_parent_off() {
    let bin = Dir::new();
    let fixed = compile(&bin, "quiet.c", &["-static"]);
    for way in ["vfork", "clone"] {
        let (_dir, _, report) = run("sandboxes.c", &[way, fixed.to_str().unwrap()]);
        assert_eq!(report.counter(Counter::TurnedOff), 0, "{way}");
        // A thread that has its block in common with such a child, and cannot be told from it, is let go. Others see where it moved
        // to, and what it has put in a file's place.
        let is_seen = way == "vfork";
        assert_eq!(written(&report, "/after"), if is_seen { 5 } else { 0 });
        let mut later = report.places("/later", Action::Write);
        later.sort_unstable();
        let first: Vec<(u64, i64)> = (0..10).map(|i| (5 * i, 5)).collect();
        assert_eq!(later[..10], first, "{way}");
        assert_eq!(later.contains(&(50, 6)), is_seen, "{way}");
        assert_eq!(later.last(), Some(&(56, 4)), "{way}");
        assert_eq!(report.places("/other", Action::Write), [(0, 5)], "{way}");
        assert_eq!(report.places("/file", Action::Write), [(0, 6)], "{way}");
        // What the child must not do, its parent may, if they can be told apart.
        let told = report.counter(Counter::StaticPrograms);
        assert_eq!(told, u64::from(is_seen), "{way}");
        check_sane(&report);
    }
}

#[test]
fn a_program_that_only_asks_what_it_could_forbid_itself_is_followed() {
    let (_dir, _, report) = run("asks.c", &[]);
    assert_eq!(written(&report, "/file"), 11);
    assert_eq!(report.counter(Counter::TurnedOff), 0);
}

#[test]
fn a_look_at_a_program_takes_no_lock_away() {
    let (bin, statics) = (Dir::new(), Dir::new());
    let locker = compile(&bin, "locks.c", &[]);
    let fixed = compile(&statics, "quiet.c", &["-static"]);
    for way in ["spawn", "exec"] {
        let (_, printed, _) = run_watched(&locker, &[way, fixed.to_str().unwrap()]);
        assert_eq!(printed, "locked: 1\n", "{way}");
    }
}

#[test]
fn a_fortified_program_is_followed_under_the_names_that_it_calls() {
    let flags = ["-O2", "-D_FORTIFY_SOURCE=2"];
    let (_dir, _, report) = run_built("fortified.c", &flags, &[]);
    check_sane(&report);
    // __read_chk, __pread_chk; then a stream, 512 bytes at a time.
    let reads = report.places("/data", Action::Read);
    assert_eq!(reads[..3], [(0, 100), (1000, 100), (0, 512)]);
    // __open_2, __openat_2, and those that are not fortified.
    assert_eq!(report.of("/data", Action::Open).count(), 4);
    let (bin, dir) = (Dir::new(), Dir::new());
    let program = compile(&bin, "fortified.c", &flags);
    let (agreement, _) = compare_with_strace(&dir, &command(&dir, program, &[]));
    agreement.check_exact(4096);
}

#[test]
fn io_in_the_destructors_of_a_thread_is_told_after_ours_has_run() {
    let (dir, _, report) = run("tlsdtor.c", &[]);
    check_sane(&report);
    let mut all = 0;
    for name in ["/end0", "/end1", "/end2", "/work"] {
        let bytes = text(&dir, &name[1..]).len() as i64;
        assert_eq!(written(&report, name), bytes, "{name}");
        all += bytes;
    }
    assert!(all > 500, "{all}");
}

/// Runs programs with an allocator of a package, preloaded before us and behind us.
fn gets_on_with(allocator: &str, package: &str) {
    let place = format!("/usr/lib/x86_64-linux-gnu/{allocator}");
    assert!(
        Path::new(&place).exists(),
        "{place} is missing: please install the Debian package {package} (make test does so)"
    );
    let bin = Dir::new();
    let programs = ["plain.c", "threads.c", "tlsdtor.c"].map(|source| compile(&bin, source, &[]));
    let ours = library().display().to_string();
    for program in programs {
        for preload in [format!("{place}:{ours}"), format!("{ours}:{place}")] {
            let dir = Dir::new();
            let manager = Manager::start();
            let mut command = command(&dir, &program, &[]);
            manager.preload(&mut command);
            succeed(command.env("LD_PRELOAD", &preload));
            let report = manager.finish();
            check_sane(&report);
            for (name, bytes) in dir.contents() {
                let name = format!("/{}", name.display());
                if name != "/common" {
                    assert_eq!(written(&report, &name), bytes.len() as i64, "{name}");
                }
            }
        }
    }
}

#[test]
fn jemalloc_gets_on_with_it_on_either_side() {
    gets_on_with("libjemalloc.so.2", "libjemalloc-dev");
}

#[test]
fn tcmalloc_gets_on_with_it_on_either_side() {
    gets_on_with("libtcmalloc.so.4", "google-perftools");
    gets_on_with("libtcmalloc_minimal.so.4", "google-perftools");
}

/// Runs a program that starts another one; how many of those are said to be linked statically, privileged, and bare.
fn started(starter: &Path, way: &str, program: &Path) -> [u64; 3] {
    let (_, _, report) = run_watched(starter, &[way, program.to_str().unwrap()]);
    [
        Counter::StaticPrograms,
        Counter::PrivilegedPrograms,
        Counter::BarePrograms,
    ]
    .map(|counter| report.counter(counter))
}

#[test]
fn programs_that_cannot_be_watched_are_counted_before_they_begin() {
    let (bin, statics) = (Dir::new(), Dir::new());
    let starter = compile(&bin, "starts.c", &[]);
    let dynamic = compile(&bin, "quiet.c", &[]);
    let fixed = compile(&statics, "quiet.c", &["-static"]);
    let starts = |way, program| started(&starter, way, program);
    for way in ["fork", "vfork", "spawn"] {
        assert_eq!(starts(way, &fixed), [1, 0, 0], "{way}");
        assert_eq!(starts(way, &dynamic), [0, 0, 0], "{way}");
        assert_eq!(starts(way, Path::new("/bin/true")), [0, 0, 0], "{way}");
    }
    for way in ["same", "made-near", "made-far", "made-mixed"] {
        assert_eq!(starts(way, &dynamic), [0, 0, 0], "{way}");
    }
    for way in [
        "bare",
        "bare-vfork",
        "bare-spawn",
        "bare-places",
        "bare-made-near",
        "bare-made-far",
        "bare-made-mixed",
        "overwritten",
        "null",
        "clear",
    ] {
        assert_eq!(starts(way, &dynamic), [0, 0, 1], "{way}");
    }
    assert_eq!(starts("bad", &dynamic), [0, 0, 0], "as without us");
    let stranger = statics.file("stranger");
    std::fs::copy(&dynamic, &stranger).unwrap();
    if std::os::unix::fs::chown(&stranger, Some(65534), None).is_ok() {
        let mode = std::fs::Permissions::from_mode(0o4755);
        std::fs::set_permissions(&stranger, mode).unwrap();
        assert_eq!(starts("fork", &stranger), [0, 1, 0]);
    }
}

/// The parent of a vfork waits meanwhile.
#[test]
fn a_program_that_passes_its_environment_on_is_looked_at_with_few_calls() {
    let (bin, dir) = (Dir::new(), Dir::new());
    let starter = compile(&bin, "starts.c", &[]);
    let arena = Arena::create(&ArenaOptions::default()).unwrap();
    let log = dir.file("log");
    let mut command = under_strace("rt_sigprocmask", &log, &arena);
    command.env_clear().env("PATH", "/usr/bin:/bin");
    for i in 0..50 {
        command.env(format!("SOME_{i}"), "thing");
    }
    succeed(command.args([starter.as_os_str(), "same".as_ref(), "/bin/true".as_ref()]));
    let log = std::fs::read_to_string(log).unwrap();
    // The list and the one string, each of which may lie on two pages.
    let asked = log.matches("= -1 EINVAL").count();
    assert!((2..=4).contains(&asked), "{log}");
}

/// Whoever started a program may have forbidden it calls that it does not make itself.
#[test]
fn a_program_that_was_forbidden_to_read_the_memory_of_others_is_watched() {
    for action in ["kill", "trap", "refuse"] {
        let (_dir, _, report) = run("filtered.c", &[action]);
        assert_eq!(report.counter(Counter::BarePrograms), 1, "{action}");
        // What a stream still held at the end.
        let pending = report.of("/pending", Action::Write);
        let at: Vec<_> = pending.map(|seen| seen.operation.result).collect();
        assert_eq!(at, [7], "{action}");
        check_sane(&report);
    }
}

#[test]
fn what_cannot_be_seen_is_counted_and_does_not_lead_astray() {
    let (_dir, _, report) = run("rawcalls.c", &[]);
    assert_eq!(report.places("/raw", Action::Write), [(0, 10), (110, 10)]);
    assert_eq!(report.counter(Counter::RawCalls), 1);
    assert_eq!(report.counter(Counter::IoUring), 1);
}

#[test]
fn vectored_flagged_asynchronous_and_copying_calls_are_told() {
    let bin = Dir::new();
    let program = compile(&bin, "vectors.c", &[]);
    let dir = Dir::new();
    let (agreement, report) = compare_with_strace(&dir, &command(&dir, program, &[]));
    check_sane(&report);
    // The reader of strace's output does not know of RWF_APPEND, which wrote 3000 bytes.
    assert_eq!(
        (agreement.ours, agreement.both + 3000),
        (agreement.strace, agreement.strace)
    );
    let places = |name, action| report.places(name, action);
    assert_eq!(
        places("/vectors", Action::Write),
        [
            (0, 3500),
            (10_000, 3500),
            (3500, 3500),
            (13_500, 3000),
            (20_000, 700)
        ]
    );
    assert_eq!(report.of("/vectors", Action::Allocate).count(), 1);
    assert_eq!(report.of("/vectors", Action::Sync).count(), 3);
    assert_eq!(
        report
            .of("/vectors", Action::Truncate)
            .next()
            .unwrap()
            .operation
            .offset,
        39_000
    );
    assert_eq!(report.counter(Counter::MappedBytes), 8192);
}

#[test]
fn wide_characters_without_locks_and_lists_of_transfers_are_told() {
    let bin = Dir::new();
    let program = compile(&bin, "wide.c", &[]);
    let dir = Dir::new();
    let (agreement, report) = compare_with_strace(&dir, &command(&dir, program, &[]));
    check_sane(&report);
    agreement.check_exact(2 * 2000 * 28 + 8000);
    for action in [Action::Write, Action::Read] {
        assert_eq!(
            report.places("/listed", action),
            [(0, 1000), (20_000, 3000)]
        );
    }
}

/// At the end of a program the C library's streams are closed, those too that led to a file and were never used.
#[test]
fn a_program_that_uses_no_file_stays_unknown_whatever_its_streams_lead_to() {
    let dir = Dir::new();
    let said = std::fs::File::create(dir.file("said")).unwrap();
    // It closes stdout and stderr before it exits.
    let mut quiet = command(&dir, "/bin/true", &["ignored"]);
    quiet.stderr(said.try_clone().unwrap()).stdout(said);
    let manager = Manager::start();
    manager.preload(&mut quiet);
    assert!(quiet.status().unwrap().success());
    let report = manager.finish();
    assert!(report.seen.is_empty() && report.processes.is_empty());
}

/// A descriptor of any number has its place.
#[test]
fn descriptors_of_large_numbers_are_followed_like_others() {
    let dir = Dir::new();
    std::fs::write(dir.file("data"), "0123456789").unwrap();
    let numbers = "3 23 24 25 200 1023 1024 1025 5000";
    let text = format!(
        "ulimit -n 6000; for n in {numbers}; do eval \"exec $n<data\"; done; \
         for n in {numbers}; do head -c 4 <&$n > /dev/null; read -r -u $n line || true; done"
    );
    let (_, report) = watch(script(&dir, &text));
    check_sane(&report);
    assert!(report.of("/data", Action::Read).count() >= 9);
}

#[test]
fn a_static_program_runs_and_nothing_is_seen() {
    let bin = Dir::new();
    let program = compile(&bin, "plain.c", &["-static"]);
    let dir = Dir::new();
    let (output, report) = watch(command(&dir, program, &[]));
    assert_eq!(output.stdout, b"18890\n");
    assert!(report.seen.is_empty() && report.processes.is_empty());
}

#[test]
fn call_stacks_tell_calls_apart_and_have_frames() {
    let (_dir, _, report) = run("calls.c", &[]);
    let contexts: Vec<u64> = report
        .of("/calls", Action::Write)
        .map(|s| s.operation.context)
        .collect();
    assert_eq!(contexts.len(), 30);
    // Left and right have the same frame but two calls; the third call is from another line.
    assert_ne!(contexts[0], contexts[1]);
    assert_ne!(contexts[0], contexts[2]);
    for (i, context) in contexts.iter().enumerate() {
        assert_eq!(*context, contexts[i % 3]);
        let frames = &report.contexts[context];
        assert!(frames.len() >= 3, "{frames:?}");
        assert!(frames[0].contains("/calls+"), "{frames:?}");
    }
}

#[test]
fn a_full_arena_costs_records_and_nothing_else() {
    for slots in [1, 4] {
        let bin = Dir::new();
        let program = compile(&bin, "threads.c", &[]);
        let dir = Dir::new();
        // Nobody reads it.
        let arena = Arena::create(&ArenaOptions {
            slots,
            records: 128,
            files: 16,
            processes: 1,
            ..ArenaOptions::default()
        })
        .unwrap();
        let mut command = command(&dir, program, &[]);
        command
            .env("LD_PRELOAD", library())
            .env(presagio_arena::VARIABLE, arena.address());
        succeed(&mut command);
        assert_eq!(dir.contents().len(), 65);
        let losses = arena.losses();
        assert!(losses.no_slot > 0 && losses.no_file > 0, "{losses:?}");
        // The one slot is the first thread's, which does little.
        assert_eq!(losses.dropped > 0, slots > 1, "{losses:?}");
    }
}

#[test]
fn a_dead_manager_is_not_missed() {
    let bin = Dir::new();
    let program = compile(&bin, "plain.c", &[]);
    let addresses = [
        "/proc/1/fd/987",
        "/proc/self/fd/0",
        "/nonexistent",
        "",
        &"x".repeat(5000),
    ];
    for address in addresses {
        let dir = Dir::new();
        let mut command = command(&dir, &program, &[]);
        command
            .env("LD_PRELOAD", library())
            .env(presagio_arena::VARIABLE, address);
        assert_eq!(succeed(&mut command).stdout, b"18890\n");
    }
    // One that dies while the program runs, although a complete trace was wanted.
    let program = compile(&bin, "slow.c", &[]);
    let dir = Dir::new();
    let arena = Arena::create(&ArenaOptions {
        records: 128,
        mode: complete(),
        ..ArenaOptions::default()
    })
    .unwrap();
    let mut command = command(&dir, program, &[]);
    command
        .env("LD_PRELOAD", library())
        .env(presagio_arena::VARIABLE, arena.address());
    let mut child = command.spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(50));
    drop(arena);
    std::fs::write(dir.file("go"), "").unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_switch_turns_everything_off() {
    let bin = Dir::new();
    let program = compile(&bin, "plain.c", &[]);
    let dir = Dir::new();
    let mut command = command(&dir, program, &[]);
    command.env(presagio_arena::SWITCH, "off");
    let (output, report) = watch(command);
    assert_eq!(output.stdout, b"18890\n");
    assert!(report.seen.is_empty() && report.processes.is_empty());
}

/// Where a command sees another /etc than everybody else: the arguments of `unshare` for that.
fn apart() -> &'static [&'static str] {
    let ways: [&[&str]; 2] = [&["--mount"], &["--mount", "--map-root-user"]];
    let works = |way: &&&[&str]| {
        let tried = Command::new("unshare").args(**way).arg("true").output();
        tried.is_ok_and(|output| output.status.success())
    };
    ways.iter().find(works).expect(
        "`unshare --mount` is not allowed here, and another /etc is needed: run this test as root, or where users may have namespaces",
    )
}

#[test]
fn the_sites_file_turns_everything_off_for_everyone() {
    let bin = Dir::new();
    let program = compile(&bin, "plain.c", &[]);
    for is_off in [false, true] {
        let (dir, etc) = (Dir::new(), Dir::new());
        if is_off {
            std::fs::create_dir(etc.file("presagio")).unwrap();
            std::fs::write(etc.file("presagio/off"), "").unwrap();
        }
        let mut command = command(&dir, "unshare", apart());
        let script = r#"mount --bind "$0" /etc && exec "$1""#;
        command
            .args(["sh", "-c", script])
            .arg(etc.path())
            .arg(&program);
        let (output, report) = watch(command);
        assert_eq!(output.stdout, b"18890\n");
        assert_eq!(report.seen.is_empty(), is_off, "{:?}", report.processes);
        assert_eq!(report.processes.is_empty(), is_off);
    }
}

#[test]
fn only_files_that_the_globs_allow_are_followed() {
    let dir = Dir::new();
    let filter = PathFilter::new([b"*.keep".as_slice()], [b"*/not.keep".as_slice()]).unwrap();
    let manager = Manager::with(&ArenaOptions {
        filter,
        ..ArenaOptions::default()
    });
    let mut command = script(&dir, "echo x > a.keep; echo y > not.keep; echo z > other");
    manager.preload(&mut command);
    succeed(&mut command);
    let report = manager.finish();
    assert!(!report.seen.is_empty());
    assert!(
        report
            .seen
            .iter()
            .all(|seen| seen.path.ends_with("/a.keep"))
    );
}

#[test]
fn files_that_are_opened_by_the_names_of_descriptors_are_seen_as_what_they_are() {
    let bin = Dir::new();
    let program = compile(&bin, "aliases.c", &[]);
    let dir = Dir::new();
    let mut command = command(&dir, &program, &[]);
    let input = std::fs::File::open(dir.noise("input", 4096)).unwrap();
    let output = std::fs::File::create(dir.file("output")).unwrap();
    let (_, report) = watch({
        command.stdin(input).stdout(output);
        command
    });
    check_sane(&report);
    let reads = report.places("/input", Action::Read);
    let parts: Vec<(u64, i64)> = reads.iter().filter(|r| r.0 > 0).copied().collect();
    assert_eq!((reads[0], parts), ((0, 1000), vec![(3000, 100)]));
    let begun: i64 = reads.iter().filter(|r| r.0 == 0).map(|r| r.1).sum();
    assert_eq!(begun, 1010, "{reads:?}");
    assert_eq!(report.places("/output", Action::Write), [(0, 500)]);
    let others = report.seen.iter().filter(|s| s.path.starts_with("/dev/"));
    assert_eq!(others.count(), 0);
}

/// An arena whose notes programs look for.
fn advising() -> Arena {
    let mode = Mode {
        advise: true,
        ..Mode::default()
    };
    Arena::create(&ArenaOptions {
        mode,
        ..ArenaOptions::default()
    })
    .unwrap()
}

const AT_RANDOM: Note = Note {
    advice: Advice::Random,
    region: 0,
    serial: 1,
};

/// A command whose program reports to the arena while these calls of it are written down.
fn under_strace(calls: &str, log: &Path, arena: &Arena) -> Command {
    let mut command = Command::new("strace");
    command
        .args(["-f", "-q", "-e", &format!("trace={calls}"), "-o"])
        .arg(log)
        .arg("-E")
        .arg(format!("LD_PRELOAD={}", library().display()))
        .arg("-E")
        .arg(format!("{}={}", presagio_arena::VARIABLE, arena.address()));
    command
}

#[test]
fn a_note_of_the_manager_is_carried_out_once() {
    let bin = Dir::new();
    let program = compile(&bin, "slow.c", &[]);
    let dir = Dir::new();
    let mut arena = advising();
    let log = dir.file("log");
    let mut command = under_strace("fadvise64", &log, &arena);
    let mut child = command
        .arg(program)
        .current_dir(dir.path())
        .spawn()
        .unwrap();
    let mut noted = 0;
    while child.try_wait().unwrap().is_none() {
        let mut opened = Vec::new();
        arena.drain(|_, message| {
            if let Message::Operation(operation) = message
                && operation.action == Action::Open
            {
                opened.push((operation.file, operation.generation));
            }
        });
        for (file, generation) in opened {
            noted += i32::from(arena.leave_note(file, generation, AT_RANDOM));
        }
        // It goes on until then, however late we are.
        if noted > 0 {
            std::fs::write(dir.file("go"), "").unwrap();
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!(noted, 1);
    let log = std::fs::read_to_string(log).unwrap();
    assert_eq!(log.matches("POSIX_FADV_RANDOM) = 0").count(), 1, "{log}");
}

/// What the loader has to look up takes time of each process that starts.
#[test]
fn the_loader_looks_up_nothing_for_the_library_that_the_library_has_itself() {
    let library = library();
    let name = library.to_str().unwrap();
    let mut command = Command::new("true");
    let command = command
        .env("LD_PRELOAD", &library)
        .env("LD_DEBUG", "bindings");
    let said = succeed(command).stderr;
    let said = String::from_utf8_lossy(&said);
    let ours = format!("binding file {name} [0] to ");
    let found: Vec<&str> = said
        .lines()
        .filter_map(|line| line.split_once(&ours).map(|(_, rest)| rest))
        .collect();
    assert!(
        found.iter().any(|line| line.contains("`clock_gettime'")),
        "{said}"
    );
    let ours = [
        "memcpy", "memmove", "memset", "bcmp", "strlen", "malloc", "free", "getenv",
    ];
    let is_ours = |line: &str| ours.iter().any(|name| line.contains(&format!("`{name}'")));
    let needless: Vec<&&str> = found
        .iter()
        .filter(|line| line.starts_with(name) || is_ours(line))
        .collect();
    assert!(needless.is_empty(), "{needless:#?}");
}

/// Each place of the library that a process visits, and each page that is written to, takes a page fault of it.
#[test]
fn what_each_process_needs_of_the_library_lies_together() {
    let mut readelf = Command::new("readelf");
    let said = succeed(readelf.args(["-W", "-S", "-d"]).arg(library())).stdout;
    let said = String::from_utf8_lossy(&said);
    let of = |name: &str| {
        let after = |line: &str| Some(line.split_once(name)?.1.to_owned());
        let line = said.lines().find_map(after).unwrap();
        let mut words = line.split_whitespace().skip(1);
        let mut number = || u64::from_str_radix(words.next().unwrap(), 16).unwrap();
        let (start, _, len) = (number(), number(), number());
        start..start + len
    };
    // Where mappings of the file end that one fault makes, and pages.
    let near = |place: u64| place >> 16;
    let page = |place: u64| place >> 12;
    assert_eq!(near(of("] .presagio.start ").start), 0, "{said}");
    assert!(of("] .presagio.start ").end <= of("] .rodata ").start);
    assert_eq!(page(of("] .dynamic ").start), page(of("] .bss ").start));
    assert!(said.contains("INIT_ARRAYSZ)       8 (bytes)"), "{said}");
}

/// Runs `modes.c` while a manager wants its file read at random; the mode advice and the starts of processes that strace saw. What
/// the program does in its middle it does when `is_time` holds for that and the number of its reads since the note.
fn with_a_mode(
    way: &str,
    mut is_time: impl FnMut(&str, usize, &mut Option<Arena>) -> bool,
) -> String {
    let bin = Dir::new();
    let program = compile(&bin, "modes.c", &[]);
    let dir = Dir::new();
    let data = dir.noise("data", 1 << 18);
    let mut arena = Some(advising());
    let log = bin.file("log");
    let calls = "fadvise64,clone,clone3,fork,vfork,execve,dup";
    let mut command = under_strace(calls, &log, arena.as_ref().unwrap());
    let mut child = command
        .arg(program)
        .arg(way)
        .current_dir(dir.path())
        .stdin(std::fs::File::open(data).unwrap())
        .spawn()
        .unwrap();
    let text = || std::fs::read_to_string(&log).unwrap_or_default();
    let (mut is_noted, mut reads) = (false, 0);
    while child.try_wait().unwrap().is_none() {
        let mut found = Vec::new();
        if let Some(arena) = &mut arena {
            arena.drain(|_, message| {
                if let Message::Operation(operation) = message {
                    found.push((operation.file, operation.generation));
                }
            });
            reads += if is_noted { found.len() } else { 0 };
            let mut places = found.iter();
            is_noted = is_noted || places.any(|at| arena.leave_note(at.0, at.1, AT_RANDOM));
        }
        if is_time(&text(), reads, &mut arena) {
            std::fs::write(dir.file("go"), "").unwrap();
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(child.wait().unwrap().success());
    assert!(is_noted);
    text()
}

#[test]
fn a_mode_is_taken_back_before_others_get_the_open_file() {
    for (way, call) in [
        ("fork", "clone"),
        ("vfork", "vfork("),
        ("spawn", "clone"),
        // Within the process, right after is soon enough.
        ("dup", "exited"),
        ("exec", "execve(\"/bin/true\""),
    ] {
        let log = with_a_mode(way, |log, _, _| log.contains("FADV_RANDOM"));
        let (random, normal) = (log.find("FADV_RANDOM"), log.find("FADV_NORMAL"));
        assert!(random.is_some() && random < normal, "{way}: {log}");
        let rest = log.get(random.unwrap()..).unwrap();
        let before = rest.find("FADV_NORMAL") < rest.find(call);
        assert!(before && rest.contains(call), "{way}: {log}");
        assert_eq!(log.matches("fadvise64").count(), 2, "{way}: {log}");
    }
}

#[test]
fn open_files_that_others_have_or_that_the_program_has_wishes_for_are_left_as_they_are() {
    for way in ["inherited", "own"] {
        let log = with_a_mode(way, |_, reads, _| reads > 50);
        assert!(!log.contains("FADV_RANDOM"), "{way}: {log}");
    }
}

#[test]
fn a_mode_ends_with_the_manager_that_wanted_it() {
    // Some managers say that they leave, and some cannot any more: here it is this process, which lives.
    let log = with_a_mode("alone", |log, _, arena| {
        if log.contains("FADV_RANDOM") {
            *arena = None;
        }
        log.contains("FADV_NORMAL")
    });
    assert_eq!(log.matches("fadvise64").count(), 2, "{log}");
}
