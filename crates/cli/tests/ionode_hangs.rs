//! A file system that hangs, really: an ext4 that is frozen, mounted inside of an export. Who needs it gets an error in
//! bounded time, and nobody else notices.

mod common;

use common::TempDir;
use common::nodes::{Mounted, Node, pattern, say};
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
        if !rustix::process::geteuid().is_root() {
            say("skipped: only root can freeze a file system");
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
            say("skipped: no ext4 can be mounted here");
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
        let (one, other) = (
            dir.join(format!("a{number}")),
            dir.join(format!("b{number}")),
        );
        let bytes = pattern(number + rounds, 100_000);
        fs::write(&one, &bytes).expect("others write");
        fs::rename(&one, &other).expect("others rename");
        assert!(fs::read(&other).expect("others read") == bytes);
        fs::remove_file(&other).expect("others remove");
        rounds += 1;
    }
    rounds
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
