//! Random operations on the mount, on a plain directory and in memory: all three must always say the same.

use crate::common::steps::{agree, open_files_agree};
use crate::common::{Mount, Server, against, pattern};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

fn run(server: &Server, seed: u64, steps: u64) {
    let mount = Mount::of(server);
    let plain = tempfile::tempdir().unwrap();
    agree(mount.path(), plain.path(), seed, steps);
    crate::common::shell(
        "diff -r --no-dereference $1 $2",
        &[mount.path(), plain.path()],
    );
    // A node of ours keeps what it must remember in the export.
    crate::common::shell(
        "diff -r --no-dereference -x .presagio $1 $2",
        &[&server.export(), plain.path()],
    );
}

#[test]
fn the_mount_a_plain_directory_and_the_model_agree() {
    for seed in [1, 2, 3] {
        against(|server| run(server, seed, 700));
    }
}

#[test]
fn open_files_are_the_same_whatever_becomes_of_their_names() {
    against(|server| {
        let mount = Mount::of(server);
        let plain = tempfile::tempdir().unwrap();
        open_files_agree(mount.path(), plain.path());
        crate::common::shell("diff -r $1 $2", &[mount.path(), plain.path()]);
    });
}

#[test]
fn a_server_that_is_killed_and_started_again_interrupts_nobody() {
    let mut server = Server::start();
    let mount = Mount::of(&server);
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(mount.join("file"))
        .unwrap();
    fs::create_dir(mount.join("dir")).unwrap();
    let written = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for block in 0..300u64 {
                file.write_all_at(&pattern(block, 4096), block * 4096)
                    .unwrap();
                let mut read = vec![0; 4096];
                file.read_exact_at(&mut read, block * 4096).unwrap();
                assert!(read == pattern(block, 4096));
                assert!(fs::metadata(mount.join("dir")).unwrap().is_dir());
                written.store(block + 1, Relaxed);
            }
        });
        while !writer.is_finished() {
            std::thread::sleep(Duration::from_millis(30));
            // However busy the machine is, each server gets something done.
            let before = written.load(Relaxed);
            while written.load(Relaxed) == before && !writer.is_finished() {
                std::thread::yield_now();
            }
            server.kill();
            std::thread::sleep(Duration::from_millis(10));
            server.start_again();
        }
    });
    let written = fs::read(server.export().join("file")).unwrap();
    assert!(
        written
            .chunks(4096)
            .zip(0..)
            .all(|(bytes, block)| bytes == pattern(block, 4096))
    );
    assert!(mount.remote().status().connections > 1);
}

/// Does something that must be done once. Only a node that was killed in the middle of it may say that it cannot tell; then
/// `is_done` looks, and it is done if it was not. How often that was so is counted.
fn surely<T>(unsure: &mut u64, act: impl Fn() -> io::Result<T>, is_done: impl Fn() -> bool) {
    loop {
        match act() {
            Ok(_) => return,
            Err(error) => assert_eq!(error.raw_os_error(), Some(5), "{error}"),
        }
        *unsure += 1;
        if is_done() {
            return;
        }
    }
}

/// How often it is killed at least.
const KILLS: u64 = 6;

/// What a thread does while the node is killed again and again, in a directory with a log; how many rounds, which it also says as it
/// does them, and how often nobody could tell.
fn work_through_kills(dir: &Path, stop: &AtomicBool, done: &AtomicU64) -> (u64, u64) {
    let (log, old, sub) = (dir.join("log"), dir.join("old"), dir.join("dir"));
    let open = File::options().append(true).open(&log).unwrap();
    let (mut round, mut unsure) = (0, 0);
    while !stop.load(Relaxed) {
        let line = format!("line {round}\n");
        let append = || (&open).write_all(line.as_bytes());
        surely(&mut unsure, append, || {
            fs::read_to_string(&log).unwrap().ends_with(&line)
        });
        let new = dir.join(format!("new{round}"));
        let create = || File::options().write(true).create_new(true).open(&new);
        surely(&mut unsure, create, || new.exists());
        let made = File::options().write(true).open(&new).unwrap();
        made.write_all_at(b"content", 0).unwrap();
        surely(&mut unsure, || fs::rename(&new, &old), || !new.exists());
        made.write_all_at(b"renamed", 3).unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), "conrenamed");
        surely(&mut unsure, || fs::remove_file(&old), || !old.exists());
        made.write_all_at(b"removed", 0).unwrap();
        surely(&mut unsure, || fs::create_dir(&sub), || sub.exists());
        surely(&mut unsure, || fs::remove_dir(&sub), || !sub.exists());
        round += 1;
        done.store(round, Relaxed);
    }
    (round, unsure)
}

#[test]
fn a_node_of_ours_that_is_killed_again_and_again_does_everything_once() {
    let mut server = Server::start();
    let mount = Mount::of(&server);
    let dirs: Vec<PathBuf> = (0..4)
        .map(|thread| mount.join(&format!("thread{thread}")))
        .collect();
    // Before any node is killed, which could not tell either whether it made a log.
    for dir in &dirs {
        fs::create_dir(dir).unwrap();
        fs::write(dir.join("log"), b"").unwrap();
    }
    let (stop, until) = (
        AtomicBool::new(false),
        Instant::now() + Duration::from_secs(5),
    );
    let done: Vec<AtomicU64> = dirs.iter().map(|_| AtomicU64::new(0)).collect();
    let rounds: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let threads = dirs
            .iter()
            .zip(&done)
            .map(|(dir, done)| scope.spawn(|| work_through_kills(dir, &stop, done)));
        let threads: Vec<_> = threads.collect();
        let mut kills = 0;
        while kills < KILLS || Instant::now() < until {
            let before: Vec<u64> = done.iter().map(|done| done.load(Relaxed)).collect();
            std::thread::sleep(Duration::from_millis(150));
            // However busy the machine is, each node gets something done for everybody.
            let all = threads.iter().zip(&done).zip(&before);
            for ((thread, done), before) in all {
                while done.load(Relaxed) == *before && !thread.is_finished() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            server.kill();
            server.start_again();
            kills += 1;
        }
        stop.store(true, Relaxed);
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let connections = mount.remote().status().connections;
    for (dir, (rounds, unsure)) in dirs.iter().zip(rounds) {
        let log = fs::read_to_string(dir.join("log")).unwrap();
        let expected: String = (0..rounds).map(|round| format!("line {round}\n")).collect();
        assert!(
            rounds > 0 && log == expected,
            "{} after {rounds} rounds",
            dir.display()
        );
        assert_eq!(fs::read_dir(dir).unwrap().count(), 1);
        // A kill meets a thread in the middle of one operation at most.
        assert!(
            unsure <= connections,
            "{unsure} times in {connections} connections"
        );
    }
    assert!(connections > KILLS);
}
