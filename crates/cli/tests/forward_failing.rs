//! Programs whose files are forwarded without a mount, while nodes are killed, replaced by others of the list, and frozen:
//! no acknowledged byte is lost, and nothing hangs.

mod common;

use common::TempDir;
use common::forwarded::{Busy, FAR, forwarded, succeeds};
use common::nodes::{Node, killed_while, until};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// An export and its nodes.
struct Site {
    nodes: Vec<Node>,
    dir: TempDir,
}

impl Site {
    fn new(name: &str, count: usize) -> Site {
        let dir = TempDir::new(&format!("failing-{name}"));
        let path = Path::new(dir.path());
        fs::create_dir(path.join("export")).unwrap();
        // Locks can be had again soon after the node was killed.
        let node = |i| {
            Node::unix(
                path,
                &format!("n{i}"),
                &path.join("export"),
                &["--grace", "0.5"],
            )
        };
        let nodes = (0..count).map(node).collect();
        Site { nodes, dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new(self.dir.path()).join(name)
    }

    /// Runs a program of the tests, and kills the node meanwhile, again and again, until `seconds` are over.
    fn survives(&mut self, seconds: u64, command: &str) {
        let dir = self.path("");
        let node = &mut self.nodes[0];
        let mut run = forwarded(&node.at.text(), None, &[], &dir);
        run.args(["bash", "-euc", command]);
        let said = killed_while(node, &dir, seconds, || succeeds(&mut run));
        println!("{}", said.trim());
    }

    /// Keeps a program busy while something happens to the nodes, and holds what it did against what is there.
    fn stays_busy(&mut self, more: &[&str], happens: impl FnOnce(&mut [Node], &Busy)) {
        let (outside, export) = (self.path(""), self.path("export"));
        let busy = Busy { outside, export };
        let all: Vec<String> = self.nodes.iter().map(|node| node.at.text()).collect();
        let command = forwarded(&all.join(","), None, more, &busy.outside);
        let said = std::thread::scope(|scope| {
            let runs = scope.spawn(|| busy.run(command, FAR));
            let stops = busy.stops();
            busy.goes_on();
            happens(&mut self.nodes, &busy);
            drop(stops);
            runs.join().unwrap()
        });
        busy.judge(&said);
    }
}

#[test]
fn sqlite_loses_nothing_that_it_has_committed() {
    let mut site = Site::new("sqlite", 1);
    site.survives(10, r#"exec bash "$PROGRAMS/killed-sqlite.sh""#);
}

#[test]
fn git_repositories_stay_whole() {
    let mut site = Site::new("git", 1);
    site.survives(10, r#"exec bash "$PROGRAMS/killed-git.sh""#);
}

#[test]
fn a_python_program_that_forks_does_not_see_that_the_node_is_killed() {
    let mut site = Site::new("python", 1);
    site.survives(
        8,
        r#"exec python3 "$PROGRAMS/forking.py" "$FAR" "$OUTSIDE/stop""#,
    );
}

#[test]
fn threads_and_children_do_not_see_that_the_node_is_killed_again_and_again() {
    let mut site = Site::new("killed", 1);
    site.stays_busy(&[], |nodes, busy| {
        for pause in [0, 30, 60, 90, 120, 150] {
            nodes[0].kill();
            std::thread::sleep(std::time::Duration::from_millis(pause));
            nodes[0].start_again();
            busy.goes_on();
        }
    });
}

#[test]
fn another_node_of_the_list_takes_the_place_of_one_that_is_killed_or_drained() {
    let mut site = Site::new("replaced", 2);
    site.stays_busy(&[], |nodes, busy| {
        nodes[0].kill();
        busy.goes_on();
        nodes[0].start_again();
        nodes[1].kill();
        busy.goes_on();
        nodes[1].start_again();
        nodes[0].drain();
        busy.goes_on();
    });
}

#[test]
fn another_node_of_the_list_takes_the_place_of_one_that_is_frozen() {
    let mut site = Site::new("frozen", 2);
    site.stays_busy(&["--timeout", "1"], |nodes, busy| {
        for node in nodes {
            node.freeze();
            busy.goes_on();
            node.thaw();
            busy.goes_on();
        }
    });
}

/// The program programs/locker.py on a forwarded file.
struct Locker {
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
    pid: Pid,
}

impl Locker {
    fn start(site: &Site, name: &str) -> Locker {
        let mut run = forwarded(&site.nodes[0].at.text(), None, &[], &site.path(""));
        // Not the command itself: `presagio run` stops with that.
        let command = r#"python3 "$PROGRAMS/locker.py" "$0"; exit"#;
        run.args(["bash", "-euc", command]);
        run.arg(format!("{FAR}/{name}"));
        run.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = run.spawn().unwrap();
        let ask = child.stdin.take().unwrap();
        let mut answers = BufReader::new(child.stdout.take().unwrap());
        let pid = answer(&mut answers).parse().expect("a process id");
        let pid = Pid::from_raw(pid).expect("a process id");
        Locker {
            child,
            ask,
            answers,
            pid,
        }
    }

    fn says(&mut self, what: &str) -> String {
        writeln!(self.ask, "{what}").unwrap();
        answer(&mut self.answers)
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).unwrap();
    }

    fn ends(mut self) {
        drop(self.ask);
        assert!(self.child.wait().unwrap().success());
    }
}

fn answer(answers: &mut impl BufRead) -> String {
    let mut line = String::new();
    answers.read_line(&mut line).unwrap();
    line.trim().to_owned()
}

#[test]
fn a_lock_is_kept_when_the_node_is_killed() {
    let mut site = Site::new("kept", 1);
    let (mut holder, mut rival) = (Locker::start(&site, "file"), Locker::start(&site, "file"));
    let mut other = Locker::start(&site, "other");
    assert_eq!(holder.says("lock"), "ok");
    for _ in 0..2 {
        assert_eq!(rival.says("lock"), "EAGAIN");
        site.nodes[0].kill();
        site.nodes[0].start_again();
        assert_eq!(holder.says("write"), "ok");
        assert_eq!(rival.says("lock"), "EAGAIN");
        // Locks that nobody had can be taken when those who had one have had their time.
        until("locks can be had", || other.says("lock") == "ok");
        assert_eq!(other.says("unlock"), "ok");
        assert_eq!(rival.says("lock"), "EAGAIN");
        assert_eq!(holder.says("write"), "ok");
    }
    assert_eq!(holder.says("unlock"), "ok");
    assert_eq!(rival.says("lock"), "ok");
    [holder, rival, other].into_iter().for_each(Locker::ends);
}

#[test]
fn a_lock_that_another_one_got_meanwhile_is_lost_and_that_is_said() {
    let mut site = Site::new("lost", 1);
    let (mut holder, mut rival) = (Locker::start(&site, "file"), Locker::start(&site, "file"));
    assert_eq!(holder.says("lock"), "ok");
    assert_eq!(holder.says("append"), "ok");
    holder.signal(Signal::STOP);
    site.nodes[0].kill();
    site.nodes[0].start_again();
    until("the rival gets it", || rival.says("lock") == "ok");
    assert_eq!(rival.says("write"), "ok");
    holder.signal(Signal::CONT);
    // The node has the file twice, to append and not, and only the first knows of the lock.
    let before = fs::metadata(site.path("export/file")).unwrap().len();
    assert_eq!(holder.says("append"), "EIO");
    assert_eq!(holder.says("write"), "EIO");
    assert_eq!(holder.says("append"), "EIO");
    let after = fs::metadata(site.path("export/file")).unwrap().len();
    assert_eq!(before, after, "nothing was appended without the lock");
    assert_eq!(holder.says("lock"), "EIO");
    // Who opens it again knows that it has nothing.
    assert_eq!(holder.says("close"), "ok");
    assert_eq!(holder.says("open"), "ok");
    assert_eq!(holder.says("write"), "ok");
    assert_eq!(holder.says("lock"), "EAGAIN");
    assert_eq!(rival.says("unlock"), "ok");
    assert_eq!(holder.says("lock"), "ok");
    [holder, rival].into_iter().for_each(Locker::ends);
}
