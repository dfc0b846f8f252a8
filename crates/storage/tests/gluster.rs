//! A real GlusterFS volume: the brick that a file's layout names is the one that has the file.
//!
//! The daemons run in namespaces of their own for processes, mounts and network. So they meet no others on this
//! machine, their state is gone when the test is, and so are they, whatever happens: they end with the first process of their
//! namespace, which is this test, started once more.

mod common;

use common::{open, read, write};
use presagio_core::Range;
use presagio_storage::{LayoutSource, Located};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Where the one inside finds the directory that it may use.
const PLACE: &str = "PRESAGIO_TEST_GLUSTER";
/// An address that only these namespaces have.
const HOST: &str = "10.78.0.1";

#[test]
fn the_brick_that_glusterfs_names_has_the_file() {
    let place = tempfile::tempdir().expect("a directory");
    let apart = [
        "--mount",
        "--net",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ];
    let output = Command::new("unshare")
        .args(apart)
        .arg(std::env::current_exe().expect("this test"))
        .args(["--exact", "inside", "--ignored", "--nocapture"])
        .env(PLACE, place.path())
        .output()
        .expect("unshare");
    let said = String::from_utf8_lossy(&output.stderr);
    let log = fs::read_to_string(place.path().join("glusterd.log")).unwrap_or_default();
    assert!(
        output.status.success(),
        "needs root, glusterfs-server and glusterfs-client\n{log}\n{said}"
    );
}

#[test]
#[ignore = "is started by the other one, in namespaces"]
fn inside() {
    let place = PathBuf::from(std::env::var_os(PLACE).expect("a place"));
    isolate();
    let _daemon = Daemon::start(&place);
    let distributed = volume(&place, "dist", 4, &[]);
    files_are_where_the_layout_says(&distributed, 4);
    let replicated = volume(&place, "repl", 4, &["replica", "2"]);
    files_are_where_the_layout_says(&replicated, 2);
    for mounted in [distributed, replicated] {
        run("umount", [mounted]);
    }
}

/// A network, and empty directories where GlusterFS keeps its state.
fn isolate() {
    run("ip", ["link", "set", "lo", "up"]);
    run("ip", ["address", "add", &format!("{HOST}/32"), "dev", "lo"]);
    for path in ["/run", "/var/lib/glusterd", "/var/log/glusterfs"] {
        run("mount", ["-t", "tmpfs", "none", path]);
    }
    fs::create_dir("/run/gluster").expect("a directory");
}

/// The daemon that starts the others.
struct Daemon(Child);

impl Daemon {
    fn start(place: &Path) -> Daemon {
        let log = place.join("glusterd.log");
        let mut daemon = Command::new("glusterd");
        daemon.args([OsStr::new("-N"), OsStr::new("-l"), log.as_os_str()]);
        let started = daemon.stdin(Stdio::null()).spawn().expect("glusterd");
        let daemon = Daemon(started);
        for _ in 0..300 {
            let mut ask = Command::new("gluster");
            let asked = ask.args(["--mode=script", "pool", "list"]).output();
            if asked.is_ok_and(|asked| asked.status.success()) {
                return daemon;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("glusterd does not answer");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Its children end with the namespace.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Makes a volume of so many bricks, and mounts it.
fn volume(place: &Path, name: &str, bricks: usize, kind: &[&str]) -> PathBuf {
    let brick = |i| format!("{HOST}:{}/{name}-brick{i}", place.display());
    let bricks: Vec<String> = (0..bricks).map(brick).collect();
    let mut create = vec!["volume", "create", name];
    create.extend(kind);
    create.extend(bricks.iter().map(String::as_str));
    create.push("force");
    gluster(&create);
    gluster(&["volume", "start", name]);
    let mounted = place.join(format!("{name}-mounted"));
    fs::create_dir(&mounted).expect("a directory");
    let source = format!("{HOST}:/{name}");
    run(
        "mount",
        [
            OsStr::new("-t"),
            "glusterfs".as_ref(),
            source.as_ref(),
            mounted.as_ref(),
        ],
    );
    mounted
}

fn files_are_where_the_layout_says(mounted: &Path, groups: usize) {
    let source: LayoutSource = "gluster servers=4".parse().expect("a source");
    let located = Located::new(source);
    let odd = [
        "a directory/b>) <POSIX(/q):h:/q/z>)",
        "a directory/(:)",
        "> ",
    ];
    let names = (0..40)
        .map(|i| format!("file{i}"))
        .chain(odd.map(String::from));
    for name in names {
        let path = mounted.join(&name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(&path, b"").expect("a file");
        let file = open(&located, &path);
        write(&*file, 0, name.as_bytes());
        assert_eq!(read(&*file, Range::at(0, 1000)), name.as_bytes());
        let pieces = file.pieces(Range::at(0, 1 << 30));
        assert_eq!(pieces.len(), 1, "a file is on one brick");
        let server = &located.names()[pieces[0].queue.0 as usize];
        let (host, brick) = server.split_once(':').expect("host:directory");
        assert_eq!(
            host,
            this_host(),
            "a brick names its host as the host names itself"
        );
        let there = Path::new(brick).join(&name);
        let stored = fs::metadata(&there).expect("the file is on that brick");
        assert!(stored.is_file() && stored.len() == name.len() as u64);
    }
    assert_eq!(located.problems(), Default::default());
    assert_eq!(
        located.names().len(),
        groups,
        "every brick, or pair of them, is seen"
    );
}

fn this_host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname");
    name.expect("a name").trim().to_owned()
}

fn gluster(arguments: &[&str]) {
    run(
        "gluster",
        std::iter::once(&"--mode=script").chain(arguments),
    );
}

fn run(program: &str, arguments: impl IntoIterator<Item: AsRef<OsStr>>) {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {said}");
}
