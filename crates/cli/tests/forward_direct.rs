//! `presagio run --forward-direct`: what goes around the nodes does not hang with the local directory, and is as it would be
//! through them. And what a node reads from a mount that caches nothing.

mod common;

use common::apart::apart;
use common::forwarded::{Busy, FAR, forwarded, succeeds};
use common::nodes::{Mounted, Node, beside, pattern, until};
use common::{TempDir, library, program};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Another place that is forwarded, to a node that is well.
const WELL: &str = "/presagio-is-well";

/// The longest that one test may take.
const BOUND: Duration = Duration::from_secs(240);

/// A node, and a local mount of its export that can hang, by way of another node.
struct Hanging {
    node: Node,
    local: Mounted,
    other: Node,
}

impl Hanging {
    fn new(dir: &Path) -> Hanging {
        let export = dir.join("export");
        fs::create_dir(&export).unwrap();
        fs::write(export.join("file"), "content").unwrap();
        let node = Node::unix(dir, "node", &export, &[]);
        let other = Node::unix(dir, "other", &export, &[]);
        let local = Mounted::start(&[&other.at], &dir.join("local"), None, &[]);
        Hanging { node, local, other }
    }

    /// Runs a script, and waits until it is over. When it has made the file `begun`, the node is killed and the local mount
    /// hangs, and there is a file `hangs`.
    fn run(&mut self, dir: &Path, more: &[&str], script: &str) {
        self.run_while(dir, more, script, |_| {});
    }

    /// The same, after something has happened to the local mount.
    fn run_while(
        &mut self,
        dir: &Path,
        more: &[&str],
        script: &str,
        happens: impl FnOnce(&Hanging),
    ) {
        let direct = format!("{FAR}={}", self.local.path("").display());
        let mut options = vec!["--forward-direct", &direct];
        options.extend(["--timeout", "2", "--patience", "4"]);
        options.extend(more);
        let mut command = forwarded(&self.node.at.text(), None, &options, dir);
        command.args(["bash", "-euc", script]);
        let ended = std::thread::scope(|scope| {
            let runs = scope.spawn(|| succeeds(&mut command));
            until("it has begun", || {
                dir.join("begun").exists() || runs.is_finished()
            });
            self.node.kill();
            happens(self);
            self.local.freeze();
            fs::write(dir.join("hangs"), "").unwrap();
            runs.join()
        });
        self.other.thaw();
        self.local.thaw();
        ended.expect("it ends well");
    }
}

/// What the kernel has asked of a mount, and has no answer to yet.
struct Waiting(PathBuf);

impl Waiting {
    fn of(mount: &Mounted) -> Waiting {
        let connections = Path::new("/sys/fs/fuse/connections");
        // Seen by this test's own namespace only.
        let mut show = Command::new("mount");
        show.args(["-t", "fusectl", "none"]).arg(connections);
        assert!(show.status().unwrap().success());
        let number = rustix::fs::minor(fs::metadata(mount.path("")).unwrap().dev());
        Waiting(connections.join(number.to_string()).join("waiting"))
    }

    fn is_any(&self) -> bool {
        fs::read_to_string(&self.0).unwrap().trim() != "0"
    }
}

#[test]
fn a_directory_that_hangs_when_it_is_needed_hangs_nobody_else() {
    let name = "a_directory_that_hangs_when_it_is_needed_hangs_nobody_else";
    apart(name, BOUND, |dir| {
        let mut hanging = Hanging::new(dir);
        let export = dir.join("well");
        fs::create_dir(&export).unwrap();
        fs::write(export.join("file"), "well").unwrap();
        let node = Node::unix(dir, "socket", &export, &[]);
        let well = format!("{WELL}={}", node.at.text());
        let script = format!(
            r#"
            [ "$(cat "$FAR/file")" = content ]
            touch "$OUTSIDE/begun"
            until [ -e "$OUTSIDE/hangs" ]; do sleep 0.01; done
            # More than a switchboard answers at once.
            for i in $(seq 80); do
                cat "$FAR/file" 2> /dev/null && touch "$OUTSIDE/answered" &
            done
            wait
            [ ! -e "$OUTSIDE/answered" ]
            for i in $(seq 10); do [ "$(cat {WELL}/file)" = well ]; done
            "#
        );
        hanging.run(dir, &["--forward", &well], &script);
    });
}

#[test]
fn a_run_ends_also_when_the_directory_hangs_that_it_has_used() {
    let name = "a_run_ends_also_when_the_directory_hangs_that_it_has_used";
    apart(name, BOUND, |dir| {
        let mut hanging = Hanging::new(dir);
        hanging.node.kill();
        let script = r#"
            [ "$(cat "$FAR/file")" = content ]
            touch "$OUTSIDE/begun"
            until [ -e "$OUTSIDE/hangs" ]; do sleep 0.01; done
            ! echo more > "$FAR/new"
            "#;
        hanging.run(dir, &[], script);
    });
}

/// Who waits for what a FUSE process has taken and does not answer cannot be killed.
#[test]
fn a_run_ends_also_when_the_directory_hangs_with_what_it_was_asked_for() {
    let name = "a_run_ends_also_when_the_directory_hangs_with_what_it_was_asked_for";
    apart(name, BOUND, |dir| {
        let mut hanging = Hanging::new(dir);
        hanging.node.kill();
        let waiting = Waiting::of(&hanging.local);
        let script = r#"
            [ "$(cat "$FAR/file")" = content ]
            touch "$OUTSIDE/begun"
            until [ -e "$OUTSIDE/stalls" ]; do sleep 0.01; done
            ! cat "$FAR/file"
            "#;
        hanging.run_while(dir, &[], script, |hanging| {
            // The mount takes what it is asked, and can give no answer.
            hanging.other.freeze();
            fs::write(dir.join("stalls"), "").unwrap();
            let mut seen = 0;
            until("the mount is asked", || {
                seen = if waiting.is_any() { seen + 1 } else { 0 };
                seen >= 20
            });
        });
    });
}

#[test]
fn programs_do_not_see_that_the_process_is_killed_which_serves_them_directly() {
    let dir = TempDir::new("direct-killed");
    let path = |name: &str| Path::new(dir.path()).join(name);
    fs::create_dir(path("export")).unwrap();
    let (outside, export) = (path(""), path("export"));
    let busy = Busy { outside, export };
    let direct = format!("{FAR}={}", busy.export.display());
    let none = format!("unix:{}", path("none").display());
    let options = ["--forward-direct", &direct];
    let command = forwarded(&none, None, &options, &busy.outside);
    let said = std::thread::scope(|scope| {
        let runs = scope.spawn(|| busy.run(command, FAR));
        let stops = busy.stops();
        busy.goes_on();
        for _ in 0..6 {
            let process = beside(&busy.export).expect("a process");
            kill_process(process, Signal::KILL).unwrap();
            busy.goes_on();
        }
        drop(stops);
        runs.join().unwrap()
    });
    busy.judge(&said);
    until("nothing is left", || beside(&busy.export).is_none());
}

#[test]
fn the_process_that_serves_directly_has_nothing_of_the_command_and_ends_with_the_run() {
    let dir = TempDir::new("direct-beside");
    let path = |name: &str| Path::new(dir.path()).join(name);
    fs::create_dir(path("export")).unwrap();
    fs::write(path("export/file"), "content").unwrap();
    let direct = format!("{FAR}={}", path("export").display());
    let none = format!("unix:{}", path("none").display());
    let options = ["--forward-direct", &direct];
    let inner = forwarded(&none, None, &options, &path(""));
    // Not through `timeout`: the run is to be killed alone.
    let inner: Vec<_> = inner.get_args().skip(3).map(ToOwned::to_owned).collect();
    let mut command = Command::new("bash");
    let hold = r#"exec 9> "$OUTSIDE/held"; exec "$@""#;
    command.args(["-euc", hold, "bash"]).args(inner);
    let script = r#"
        cat "$FAR/file" > "$OUTSIDE/was"
        touch "$OUTSIDE/begun"
        exec sleep 600
        "#;
    command.args(["bash", "-euc", script]);
    command.env("PRESAGIO_LIB", library()).env("FAR", FAR);
    command.env("OUTSIDE", path("")).stdin(Stdio::null());
    let mut run = command.spawn().unwrap();
    until("it has begun", || path("begun").exists());
    let process = beside(&path("export")).expect("a process");
    let of = |what: &str| format!("/proc/{}/{what}", process.as_raw_nonzero());
    let open = fs::read_dir(of("fd")).unwrap().flatten();
    let open: Vec<PathBuf> = open.flat_map(|fd| fs::read_link(fd.path())).collect();
    assert!(!open.contains(&path("held")), "{open:?}");
    let nowhere = open.iter().filter(|fd| fd.as_path() == "/dev/null");
    assert!(nowhere.count() >= 3, "{open:?}");
    let environment = fs::read(of("environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment);
    for ours in ["LD_PRELOAD=", "PRESAGIO_"] {
        assert!(!environment.contains(ours), "{environment}");
    }
    let session = rustix::process::getsid(Some(process)).unwrap();
    assert_eq!(session, process, "a session of its own");
    run.kill().unwrap();
    run.wait().unwrap();
    until("it has ended", || beside(&path("export")).is_none());
}

#[test]
fn a_run_begins_also_when_the_directory_hangs_already() {
    let name = "a_run_begins_also_when_the_directory_hangs_already";
    apart(name, BOUND, |dir| {
        let hanging = Hanging::new(dir);
        hanging.local.freeze();
        let direct = format!("{FAR}={}", hanging.local.path("").display());
        let options = ["--forward-direct", &direct];
        let mut command = forwarded(&hanging.node.at.text(), None, &options, dir);
        command.arg("cat").arg(format!("{FAR}/file"));
        let said = std::thread::spawn(move || succeeds(&mut command)).join();
        hanging.local.thaw();
        assert_eq!(said.expect("it ends well"), "content");
    });
}

/// To try them all takes most of a program's patience.
#[test]
fn many_nodes_that_are_silent_do_not_keep_a_program_from_the_direct_way() {
    let dir = TempDir::new("direct-silent");
    let path = |name: &str| Path::new(dir.path()).join(name);
    fs::create_dir(path("export")).unwrap();
    fs::write(path("export/file"), "content").unwrap();
    let export = path("export");
    let node = |i| Node::unix(Path::new(dir.path()), &format!("node{i}"), &export, &[]);
    let nodes: Vec<Node> = (0..5).map(node).collect();
    let all: Vec<String> = nodes.iter().map(|node| node.at.text()).collect();
    let direct = format!("{FAR}={}", export.display());
    let mut options = vec!["--forward-direct", &direct];
    options.extend(["--timeout", "2", "--patience", "18"]);
    let mut command = forwarded(&all.join(","), None, &options, &path(""));
    let script = r#"
        touch "$OUTSIDE/begun"
        until [ -e "$OUTSIDE/silent" ]; do sleep 0.01; done
        cat "$FAR/file"
        "#;
    command.args(["bash", "-euc", script]);
    let said = std::thread::scope(|scope| {
        let runs = scope.spawn(|| succeeds(&mut command));
        until("it has begun", || {
            path("begun").exists() || runs.is_finished()
        });
        nodes.iter().for_each(Node::freeze);
        fs::write(path("silent"), "").unwrap();
        runs.join().unwrap()
    });
    assert_eq!(said, "content");
}

/// Through io_uring, Linux 6.18 reads the last bytes of such a file over and over again.
#[test]
fn a_node_on_a_mount_that_caches_nothing_reads_every_byte_once() {
    let name = "a_node_on_a_mount_that_caches_nothing_reads_every_byte_once";
    apart(name, BOUND, |dir| {
        let hanging = Hanging::new(dir);
        let node = Node::unix(dir, "above", &hanging.local.path(""), &[]);
        for (seed, size) in [7, 5000, 200_000, 3_000_001].into_iter().enumerate() {
            let bytes = pattern(seed as u64, size);
            fs::write(dir.join("export/read"), &bytes).unwrap();
            let mut command = forwarded(&node.at.text(), None, &[], dir);
            command.args(["sh", "-c", r#"cat "$FAR/read" > "$OUTSIDE/was""#]);
            succeeds(&mut command);
            let was = fs::read(dir.join("was")).unwrap();
            assert!(was == bytes, "{} bytes of {size}", was.len());
        }
    });
}

/// Makes what it may with all permissions, and says with which.
const MAKE: &str = r"
import os, sys
os.umask(0)
os.close(os.open(sys.argv[1] + '/file', os.O_CREAT | os.O_WRONLY, 0o666))
os.mkdir(sys.argv[1] + '/dir', 0o777)
os.umask(0o027)
os.close(os.open(sys.argv[1] + '/less', os.O_CREAT | os.O_WRONLY, 0o666))
";

#[test]
fn the_umask_of_the_program_counts_and_not_that_of_the_run() {
    let dir = TempDir::new("direct-umask");
    let path = |name: &str| Path::new(dir.path()).join(name);
    fs::create_dir(path("export")).unwrap();
    let mut command = Command::new("sh");
    command.args(["-euc", r#"umask 077; exec timeout -k 5 180 "$@""#, "sh"]);
    command.args([program(), "run", "--quiet", "--trace"]);
    command.arg(path("trace")).arg("--forward");
    command.arg(format!("{FAR}=unix:{}", path("none").display()));
    command.arg("--forward-direct");
    command.arg(format!("{FAR}={}", path("export").display()));
    command.args(["--", "python3", "-c", MAKE, FAR]);
    succeeds(command.env("PRESAGIO_LIB", library()));
    let mode = |name: &str| fs::metadata(path(name)).unwrap().mode() & 0o777;
    let made = ["export/file", "export/dir", "export/less"].map(mode);
    assert_eq!(made, [0o666, 0o777, 0o640], "{made:?}");
    assert_eq!(mode("trace"), 0o600, "what the run itself makes");
}

#[test]
fn when_the_command_is_stopped_its_children_are_still_served() {
    let dir = TempDir::new("direct-stopped");
    let path = |name: &str| Path::new(dir.path()).join(name);
    fs::create_dir(path("export")).unwrap();
    fs::write(path("export/file"), "content").unwrap();
    let node = Node::unix(Path::new(dir.path()), "socket", &path("export"), &[]);
    let mut command = forwarded(&node.at.text(), None, &[], &path(""));
    let script = r#"
        while [ ! -e "$OUTSIDE/stop" ]; do cat "$FAR/file" >> "$OUTSIDE/seen"; done &
        echo $$ > "$OUTSIDE/new"
        mv "$OUTSIDE/new" "$OUTSIDE/pid"
        wait
        "#;
    command.args(["bash", "-euc", script]);
    std::thread::scope(|scope| {
        let runs = scope.spawn(|| succeeds(&mut command));
        let goes_on = |what: &str| {
            let seen = || fs::metadata(path("seen")).map_or(0, |seen| seen.len());
            let before = seen();
            until(what, || seen() > before + 50 * 7 || runs.is_finished());
        };
        until("it has begun", || {
            path("pid").exists() || runs.is_finished()
        });
        let pid = fs::read_to_string(path("pid")).unwrap();
        let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
        goes_on("a child is served");
        kill_process(pid, Signal::STOP).unwrap();
        goes_on("a child is served while the command stands still");
        kill_process(pid, Signal::CONT).unwrap();
        fs::write(path("stop"), "").unwrap();
        runs.join().unwrap();
    });
}
