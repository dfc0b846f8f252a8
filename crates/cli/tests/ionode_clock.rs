//! A clock that jumps, by more than a year and back, under a node and a mount: nobody notices.

mod common;

use common::TempDir;
use common::nodes::{Running, pattern, until};
use common::skips::skipped;
use rustix::fs::FlockOperation;
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Adds to the time of day what is in a file, and to no other clock.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static volatile long long *shift;
__attribute__((constructor)) static void start(void) {
    const char *path = getenv("CLOCK_SHIFT");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *at = fd < 0 ? MAP_FAILED : mmap(0, 8, PROT_READ, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED) shift = at;
}
int clock_gettime(clockid_t clock, struct timespec *time) {
    int failed = syscall(SYS_clock_gettime, clock, time);
    if (!failed && shift && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        time->tv_sec += *shift;
    return failed;
}
time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
int gettimeofday(struct timeval *out, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    (void)zone;
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}
"#;

const DAY: i64 = 24 * 3600;

/// A time of day that can be set for what is started with it.
struct Clock {
    library: PathBuf,
    shift: PathBuf,
}

impl Clock {
    /// `None`, and a printed reason, where nothing can be compiled.
    fn new(dir: &Path) -> Option<Clock> {
        let (source, library) = (dir.join("shim.c"), dir.join("shim.so"));
        fs::write(&source, SHIM).expect("a source");
        let mut compile = Command::new("gcc");
        compile
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(&library)
            .arg(&source);
        if !compile.status().is_ok_and(|status| status.success()) {
            skipped("no gcc here");
            return None;
        }
        let clock = Clock {
            library,
            shift: dir.join("shift"),
        };
        fs::write(&clock.shift, [0; 8]).expect("a shift");
        Some(clock)
    }

    /// Sets it so many seconds apart from the true time.
    fn set(&self, seconds: i64) {
        let file = File::options()
            .write(true)
            .open(&self.shift)
            .expect("the shift");
        file.write_all_at(&seconds.to_ne_bytes(), 0)
            .expect("it is set");
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", &self.library);
        command.env("CLOCK_SHIFT", &self.shift);
        command
    }
}

/// A mount whose process was killed stays: not when the test fails.
struct Cleared(PathBuf);

impl Drop for Cleared {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }
}

fn start_node(clock: &Clock, export: &Path, socket: &Path) -> Running {
    let mut command = clock.command(common::program());
    command
        .args(["ionode", "--log", "error", "--grace", "3", "--export"])
        .arg(export);
    command
        .arg("--listen")
        .arg(format!("unix:{}", socket.display()));
    let node = Running::start(command);
    until("the node listens", || UnixStream::connect(socket).is_ok());
    node
}

#[test]
fn a_clock_that_jumps_changes_nothing() {
    if !Path::new("/dev/fuse").exists() {
        return skipped("no FUSE here");
    }
    let directory = TempDir::new("clock");
    let dir = Path::new(directory.path());
    let (export, socket, point) = (dir.join("export"), dir.join("socket"), dir.join("mnt"));
    fs::create_dir(&export).expect("an export");
    fs::create_dir(&point).expect("a mount point");
    let Some(clock) = Clock::new(dir) else {
        return;
    };
    clock.set(400 * DAY);
    let seen = clock.command("date").arg("+%s").output().expect("date");
    let seen = String::from_utf8_lossy(&seen.stdout)
        .trim()
        .parse::<i64>()
        .expect("seconds");
    let true_now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let apart = seen - true_now.expect("after 1970").as_secs() as i64;
    assert!(
        (apart - 400 * DAY).abs() < DAY,
        "programs see the clock that is set here"
    );
    clock.set(0);
    let mut node = start_node(&clock, &export, &socket);
    let mut command = clock.command(common::program());
    command
        .arg("mount")
        .arg(format!("unix:{}", socket.display()))
        .arg(&point);
    command.args(["--timeout", "5", "--patience", "20"]);
    let before = fs::metadata(&point).expect("a directory").dev();
    let _cleared = Cleared(point.clone());
    let mut mount = Running::start(command);
    until("it is mounted", || {
        fs::metadata(&point).is_ok_and(|now| now.dev() != before)
    });

    let open = |name: &str| {
        let mut options = File::options();
        let options = options.read(true).append(true).create(true);
        options.open(point.join(name)).expect("a file")
    };
    let (mut file, nameless) = (open("file"), open("nameless"));
    // Not of a file that this process opens again: to close that would give the lock back.
    let locked = open("locked");
    rustix::fs::fcntl_lock(&locked, FlockOperation::NonBlockingLockExclusive).expect("a lock");
    (&nameless).write_all(b"still here").expect("written");
    fs::remove_file(point.join("nameless")).expect("removed");
    let mut expected = Vec::new();
    for (round, shift) in [0, 400 * DAY, -400 * DAY, 3600, 5000 * DAY]
        .into_iter()
        .enumerate()
    {
        clock.set(shift);
        // Long enough for all that looks at a clock once a second.
        std::thread::sleep(Duration::from_millis(2_100));
        let bytes = pattern(round as u64, 10_000);
        file.write_all(&bytes).expect("appended");
        expected.extend(bytes);
        fs::write(point.join(format!("{round}")), "new").expect("another file");
        if round % 2 == 1 {
            node.kill();
            node = start_node(&clock, &export, &socket);
        }
        assert!(
            fs::read(point.join("file")).expect("read") == expected,
            "round {round}"
        );
        let mut back = [0; 10];
        nameless
            .read_exact_at(&mut back, 0)
            .expect("without a name");
        assert_eq!(&back, b"still here");
    }
    // The lock is still held, for everybody else.
    let take =
        "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)";
    let mut taken = Command::new("python3");
    let taken = taken.args(["-c", take]).arg(point.join("locked")).output();
    let said = String::from_utf8_lossy(&taken.expect("python3").stderr).into_owned();
    assert!(
        said.contains("BlockingIOError"),
        "the lock was lost: {said}"
    );
    drop((file, locked, nameless));
    mount.signal(Signal::TERM);
    assert_eq!(mount.ended("the mount ends"), Some(0));
    drop(node);
}
