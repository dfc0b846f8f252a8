//! A file system that hangs, really: an ext4 that is frozen, mounted inside of an export. Who needs it gets an error in
//! bounded time, and nobody else notices.

mod common;

use common::apart::apart;
use common::forwarded::{forwarded, succeeds};
use common::nodes::{Mounted, Node, pattern, until};
use common::skips::{is_root, skipped};
use common::{TempDir, presagio_ok};
use presagio_forward::{Options, Remote};
use presagio_ninep::OpenFlags;
use rustix::fs::{FlockOperation, fcntl_lock};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// An ext4 of its own. What hangs on it goes on, and it is unmounted, when this is dropped.
struct Freezable(PathBuf);

impl Freezable {
    /// `None`, and a printed reason, if that cannot be had here.
    fn new(image: &Path, at: &Path) -> Option<Freezable> {
        if !is_root("freezing a file system") {
            return None;
        }
        let file = File::create(image).expect("an image");
        file.set_len(64 << 20).expect("a sparse file");
        fs::create_dir(at).expect("a directory");
        let made = does(Command::new("mkfs.ext4").arg("-q").arg(image))
            && does(
                Command::new("mount")
                    .args(["-o", "loop"])
                    .arg(image)
                    .arg(at),
            );
        if !made {
            skipped("no ext4 can be mounted here");
            return None;
        }
        Some(Freezable(at.to_owned()))
    }

    fn freeze(&self) {
        assert!(does(Command::new("fsfreeze").arg("-f").arg(&self.0)));
    }

    fn thaw(&self) -> bool {
        does(Command::new("fsfreeze").arg("-u").arg(&self.0))
    }
}

impl Drop for Freezable {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.thaw();
        }
        // Lazily: a node that has just been killed may still be closing files.
        does(Command::new("umount").arg("-l").arg(&self.0));
    }
}

fn does(command: &mut Command) -> bool {
    command.status().is_ok_and(|status| status.success())
}

/// Writes, reads, renames and removes, for as long as it is told to; how often.
fn work(dir: &Path, number: u64, goes_on: &AtomicBool) -> u64 {
    let mut rounds = 0;
    while goes_on.load(Ordering::Relaxed) {
        round(dir, number, rounds);
        rounds += 1;
    }
    rounds
}

fn round(dir: &Path, number: u64, round: u64) {
    let (one, other) = (
        dir.join(format!("a{number}")),
        dir.join(format!("b{number}")),
    );
    let bytes = pattern(number + round, 100_000);
    fs::write(&one, &bytes).expect("others write");
    fs::rename(&one, &other).expect("others rename");
    assert!(fs::read(&other).expect("others read") == bytes);
    fs::remove_file(&other).expect("others remove");
}

#[test]
fn a_file_system_that_hangs_is_an_error_for_those_who_need_it_and_nothing_to_others() {
    let directory = TempDir::new("hangs");
    let dir = Path::new(directory.path());
    let export = dir.join("export");
    fs::create_dir_all(export.join("well")).expect("an export");
    let Some(frozen) = Freezable::new(&dir.join("image"), &export.join("frozen")) else {
        return;
    };
    let node = Node::unix(dir, "socket", &export, &["--log", "error"]);
    let bounds = ["--timeout", "2", "--patience", "5"];
    let mount = |name: &str| Mounted::start(&[&node.at], &dir.join(name), None, &bounds);
    let (one, other) = (mount("one"), mount("other"));
    let open = |number: usize| File::create(one.path(&format!("frozen/{number}")));
    let files: Vec<File> = (0..3).map(|number| open(number).expect("a file")).collect();
    files
        .iter()
        .for_each(|file| file.sync_all().expect("synced"));

    frozen.freeze();
    let goes_on = AtomicBool::new(true);
    let (failed, rounds) = std::thread::scope(|scope| {
        let beside = scope.spawn(|| work(&one.path("well"), 1_000, &goes_on));
        let elsewhere = scope.spawn(|| work(&other.path("well"), 2_000, &goes_on));
        let hung: Vec<_> = files
            .iter()
            .map(|file| scope.spawn(|| (Instant::now(), file.write_all_at(&[7; 5000], 0))))
            .collect();
        let failed: Vec<_> = hung
            .into_iter()
            .map(|it| it.join().expect("it ends"))
            .collect();
        goes_on.store(false, Ordering::Relaxed);
        let rounds = [beside, elsewhere].map(|it| it.join().expect("others are served"));
        (failed, rounds)
    });
    let thawed = frozen.thaw();
    assert!(thawed, "it goes on");
    for (since, result) in failed {
        let error = result.expect_err("what hangs was not written");
        assert!(since.elapsed() < Duration::from_secs(60), "{error}");
    }
    assert!(rounds.iter().all(|rounds| *rounds > 5), "{rounds:?}");

    // It goes on as if nothing had been, through the same files too.
    for (number, file) in files.iter().enumerate() {
        file.write_all_at(&[9; 5000], 0).expect("written again");
        let path = one.path(&format!("frozen/{number}"));
        assert!(fs::read(path).expect("read") == [9; 5000]);
    }
    drop((files, one, other, node, frozen));
}

/// Nobody gives up while these hang.
const PATIENT: [&str; 2] = ["--timeout", "600"];

/// Writes to twenty files that hang, each from a thread of its own, and meanwhile to one that does not.
const FORWARDED: &str = r#"
import os, threading
far, outside = os.environ["FAR"], os.environ["OUTSIDE"]
hung = [os.open(f"{far}/frozen/p{i}", os.O_RDWR) for i in range(20)]
threads = [threading.Thread(target=os.pwrite, args=(fd, b"x" * 5000, 0)) for fd in hung]
for thread in threads:
    thread.start()
for i in range(6):
    with open(f"{far}/well/p", "wb") as file:
        file.write(bytes([i]) * 100000)
    os.rename(f"{far}/well/p", f"{far}/well/q")
    assert open(f"{far}/well/q", "rb").read() == bytes([i]) * 100000
open(f"{outside}/done", "w").close()
for thread in threads:
    thread.join()
assert all(os.fstat(fd).st_size == 5000 for fd in hung)
"#;

/// More hang than the node, or the mount, has threads for.
#[test]
fn however_many_hang_others_are_served_and_those_go_on_when_the_storage_does() {
    let directory = TempDir::new("hang-many");
    let dir = Path::new(directory.path());
    let export = dir.join("export");
    fs::create_dir_all(export.join("well")).expect("an export");
    let Some(frozen) = Freezable::new(&dir.join("image"), &export.join("frozen")) else {
        return;
    };
    for number in 0..20 {
        fs::write(export.join(format!("frozen/p{number}")), "").expect("a file");
    }
    let node = Node::unix(dir, "socket", &export, &["--log", "error"]);
    let mount = Mounted::start(&[&node.at], &dir.join("mnt"), None, &PATIENT);
    let open = |number: usize| File::create(mount.path(&format!("frozen/{number}")));
    let files: Vec<File> = (0..20)
        .map(|number| open(number).expect("a file"))
        .collect();
    let mut options = Options::new(vec![node.at.text().parse().expect("an address")]);
    options.timeout = Duration::from_secs(600);
    let remote = Remote::new(options).expect("a client");
    let root = remote.root(0).expect("the root");
    let far = root.walk("frozen").expect("a directory");
    let make = |number: usize| far.create(format!("r{number}"), OpenFlags::RDWR, 0o644, 0);
    let straight: Vec<_> = (0..80)
        .map(|number| make(number).expect("a file"))
        .collect();

    frozen.freeze();
    let thaws = Thaws(&frozen);
    std::thread::scope(|scope| {
        let through = files
            .iter()
            .map(|file| scope.spawn(|| file.write_all_at(&[7; 5000], 0).is_ok()));
        let straight = straight
            .iter()
            .map(|file| scope.spawn(|| file.write_at(0, &[8; 5000]) == Ok(5000)));
        let hung: Vec<_> = through.chain(straight).collect();
        until("all of them hang", || in_flight(&node) >= hung.len());
        let well = mount.path("well");
        let rounds = scope.spawn(move || (0..6).for_each(|number| round(&well, 0, number)));
        let mut run = forwarded(&node.at.text(), None, &PATIENT, dir);
        run.args(["python3", "-c", FORWARDED]);
        let program = scope.spawn(move || succeeds(&mut run));
        until("others are served without a mount", || {
            assert!(!program.is_finished(), "it ended before its time");
            dir.join("done").exists()
        });
        until("others are served through the mount", || {
            rounds.is_finished()
        });
        assert!(hung.iter().all(|it| !it.is_finished()), "they still hang");
        drop(thaws);
        assert!(hung.into_iter().all(|it| it.join().expect("it ends")));
        program.join().expect("it goes on");
        rounds.join().expect("others are served");
    });
    drop((straight, far, root, remote, files, mount, node, frozen));
}

/// Requests that are at the storage, as the node says.
fn in_flight(node: &Node) -> usize {
    let control = format!("{}.control", node.at.text());
    let status = presagio_ok(&["ionode", "status", &control]).json();
    status["in_flight"].as_u64().unwrap_or(0) as usize
}

/// Lets what hangs go on, also where the test has failed: else nobody would hear of it.
struct Thaws<'a>(&'a Freezable);

impl Drop for Thaws<'_> {
    fn drop(&mut self) {
        let thawed = self.0.thaw();
        assert!(thawed || std::thread::panicking(), "it goes on");
    }
}

/// A directory of the export is a mount, of another node, whose process is frozen: there, locks hang too.
#[test]
fn who_waits_for_a_lock_where_the_storage_hangs_keeps_nobody_from_another_lock() {
    let name = "who_waits_for_a_lock_where_the_storage_hangs_keeps_nobody_from_another_lock";
    apart(name, Duration::from_secs(200), |dir| {
        let (export, below) = (dir.join("export"), dir.join("below"));
        fs::create_dir_all(export.join("well")).expect("an export");
        fs::create_dir(&below).expect("another");
        let behind = Node::unix(dir, "behind", &below, &[]);
        let hangs = Mounted::start(&[&behind.at], &export.join("hangs"), None, &PATIENT);
        let node = Node::unix(dir, "socket", &export, &["--log", "error"]);
        let mount = Mounted::start(&[&node.at], &dir.join("mnt"), None, &PATIENT);
        let open = |path: PathBuf| File::create(path).expect("a file");
        // Each is held by somebody who is not a client of the mount.
        let rivals = ["hangs/file", "well/file"].map(|name| open(export.join(name)));
        // Not with flock: on a file system of this machine the node's locks know nothing of those.
        let set = |file: &File, how| fcntl_lock(file, how).expect("a lock");
        let exclusively = FlockOperation::NonBlockingLockExclusive;
        rivals.iter().for_each(|file| set(file, exclusively));
        let [hung, healthy] = ["hangs/file", "well/file"].map(|name| open(mount.path(name)));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| hung.lock().expect("in the end"));
            let control = format!("{}.control", node.at.text());
            // It is not the first attempt that hangs, or nobody would wait.
            until("it waits", || {
                let page = presagio_ok(&["ionode", "status", &control, "--metrics"]).out;
                let locks = page.lines().find(|line| line.contains("{type=\"Tlock\"}"));
                let count = locks.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
                count.is_some_and(|count| count > 3)
            });
            hangs.freeze();
            let other = scope.spawn(|| healthy.lock().expect("soon"));
            std::thread::sleep(Duration::from_millis(300));
            set(&rivals[1], FlockOperation::Unlock);
            let late = Instant::now() + Duration::from_secs(60);
            while !other.is_finished() && Instant::now() < late {
                std::thread::sleep(Duration::from_millis(5));
            }
            let is_served = other.is_finished();
            hangs.thaw();
            set(&rivals[0], FlockOperation::Unlock);
            assert!(is_served, "the other lock was to be had");
            waits.join().expect("it gets it");
            other.join().expect("it has it");
        });
        drop((hung, healthy, rivals, mount, node, hangs, behind));
    });
}
