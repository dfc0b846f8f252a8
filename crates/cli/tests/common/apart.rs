//! A test in namespaces of its own, for processes, mounts and network.
//!
//! So it meets nobody else on this machine, and whatever happens nothing is left of it: the test is started once more as
//! the first process of these namespaces, and everything that it started ends with it, mounts and networks too.

use super::TempDir;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Where the one inside finds the directory that it may use.
const INSIDE: &str = "PRESAGIO_TEST_APART";
/// What the one inside leaves when it got to its end: else a test that was never found would have passed.
const PASSED: &str = "passed";
/// How to get there.
const UNSHARE: [&str; 6] = [
    "--mount",
    "--net",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
];

/// Runs the body of the test called `test` apart, with a directory to use, for no longer than `bound`: what hangs, fails.
pub fn apart(test: &str, bound: Duration, body: impl FnOnce(&Path)) {
    if let Some(dir) = std::env::var_os(INSIDE).map(PathBuf::from) {
        isolate();
        body(&dir);
        return fs::write(dir.join(PASSED), "").expect("a mark");
    }
    if let Some(missing) = missing() {
        return super::skips::skipped(&format!("{test} needs {missing}"));
    }
    let place = TempDir::new(test);
    let dir = Path::new(place.path());
    let said = dir.join("said");
    let output = File::create(&said).expect("a file");
    let mut inside = Command::new("unshare");
    inside
        .args(UNSHARE)
        .arg(std::env::current_exe().expect("this test"))
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, dir)
        .stdin(Stdio::null())
        .stdout(output.try_clone().expect("a descriptor"))
        .stderr(output);
    let mut inside = inside.spawn().expect("unshare");
    let late = Instant::now() + bound;
    let ended = loop {
        if let Some(status) = inside.try_wait().expect("a child") {
            break Some(status);
        }
        if Instant::now() > late {
            // Those inside end with it.
            let _ = inside.kill();
            let _ = inside.wait();
            break None;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let said = String::from_utf8_lossy(&fs::read(said).unwrap_or_default()).into_owned();
    let ended =
        ended.unwrap_or_else(|| panic!("not done after {bound:?}: something hangs\n{said}"));
    assert!(ended.success() && dir.join(PASSED).exists(), "{said}");
    println!("{said}");
}

/// What there is not here and must be.
fn missing() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("root");
    }
    if !Path::new("/dev/fuse").exists() {
        return Some("/dev/fuse");
    }
    let mut unshare = Command::new("unshare");
    let can = unshare.args(UNSHARE).arg("true").stderr(Stdio::null());
    let can = can.status().is_ok_and(|status| status.success());
    (!can).then_some("namespaces (unshare --mount --net --pid)")
}

/// A network of its own, and empty directories where daemons keep their state.
fn isolate() {
    run("ip", &["link", "set", "lo", "up"]);
    run("mount", &["-t", "tmpfs", "none", "/run"]);
}

/// Runs a command that must succeed, and soon.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new("timeout")
        .args(["-k", "5", "120", program])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("timeout");
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}\n{out}{err}",
        output.status
    );
    out
}
