//! I/O nodes that are killed (-9) every few hundred milliseconds, for a minute, under programs that know what must come of
//! what they do.
//!
//! Each client is a process of its own, through a mount or through the forwarding client. It works in a directory of its
//! own, against a model in memory ([`model`]), and with the others in a shared one ([`shared`]): appends, exclusive
//! creation, replacing by rename, a counter under a lock. In the end everybody's history is put together: what was
//! acknowledged was done once, what failed with EIO was done once or not at all, nothing else ever failed.
//!
//! Needs root and /dev/fuse.

#[path = "../common/mod.rs"]
mod common;
mod model;
mod shared;
mod way;

use common::apart::apart;
use common::nodes::{At, Mounted, Node, Random, Running, until};
use model::Model;
use shared::{History, Shared};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};
use way::{Files, Plain, Through};

/// How a worker is told what to do.
const WORK: &str = "PRESAGIO_TEST_HISTORY";
const SHARED: &str = "shared";

/// A worker's orders, as they are in its environment.
struct Orders {
    /// `mount:DIR` or `client:NODE,NODE`.
    way: String,
    number: u64,
    /// Where the stop mark and the histories are.
    outside: PathBuf,
    /// What the nodes export.
    export: PathBuf,
}

impl Orders {
    fn text(&self) -> String {
        let (outside, export) = (self.outside.display(), self.export.display());
        format!("{}\n{}\n{outside}\n{export}", self.way, self.number)
    }

    fn read(text: &str) -> Orders {
        let lines: Vec<&str> = text.lines().collect();
        Orders {
            way: lines[0].into(),
            number: lines[1].parse().expect("a number"),
            outside: lines[2].into(),
            export: lines[3].into(),
        }
    }

    fn files(&self) -> Box<dyn Files> {
        match self.way.split_once(':').expect("a way") {
            ("mount", dir) => Box::new(Plain::new(dir)),
            (_, nodes) => Box::new(Through::new(nodes)),
        }
    }

    fn start(&self) -> Running {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["--exact", "worker", "--ignored", "--nocapture", "--quiet"]);
        command.env(WORK, self.text());
        Running::start(command)
    }
}

#[test]
#[ignore = "is started by the others, as a process of its own"]
fn worker() {
    let orders = Orders::read(&std::env::var(WORK).expect("orders"));
    let files = orders.files();
    let mine = format!("worker{}", orders.number);
    let mut model = Model::new(&*files, &mine, orders.number);
    let mut shared = Shared::new(&*files, SHARED, orders.number, &orders.outside);
    while !orders.outside.join("stop").exists() {
        (0..8).for_each(|_| model.step());
        shared.step();
    }
    model.check_all();
    model.check_against(&orders.export.join(&mine));
    let (steps, unknown) = (model.steps, model.unknown + shared.history.unknown);
    println!("{mine} ({}): {steps} steps, {unknown} unknown", orders.way);
    let history = shared.history.text(steps, unknown);
    let written = orders.outside.join(format!("{mine}.history"));
    fs::write(written, history).expect("a history");
    if orders.number == 0 {
        // Nobody may get what it holds while others still try.
        until("the others are done", || {
            orders.outside.join("done").exists()
        });
    }
}

/// Lets workers work while `trouble` is made again and again, for so long. Returns how often it was made.
fn work(dir: &Path, ways: &[String], lasts: Duration, mut trouble: impl FnMut(&mut Random)) -> u64 {
    let export = dir.join("export");
    let orders = |(number, way): (usize, &String)| Orders {
        way: way.clone(),
        number: number as u64,
        outside: dir.into(),
        export: export.clone(),
    };
    let all: Vec<Orders> = ways.iter().enumerate().map(orders).collect();
    for number in 0..ways.len() {
        fs::create_dir(export.join(format!("worker{number}"))).expect("a directory");
    }
    let mut workers: Vec<Running> = all.iter().map(Orders::start).collect();
    let (end, mut made, mut random) = (Instant::now() + lasts, 0, Random(20_260_101));
    while Instant::now() < end {
        trouble(&mut random);
        made += 1;
    }
    fs::write(dir.join("stop"), "").expect("a mark");
    for (number, worker) in workers.iter_mut().enumerate().rev() {
        if number == 0 {
            fs::write(dir.join("done"), "").expect("a mark");
        }
        let code = worker.ended(&format!("worker {number} ends"));
        assert_eq!(code, Some(0), "worker {number}");
    }
    made
}

/// Puts the histories together. Returns how many open files were gone when others had replaced them.
fn judge(dir: &Path, workers: usize, troubles: u64) -> u64 {
    let read = |number| fs::read_to_string(dir.join(format!("worker{number}.history")));
    let read = |number| History::read(&read(number).expect("a history"));
    let histories: Vec<History> = (0..workers).map(read).collect();
    shared::judge(&dir.join("export").join(SHARED), &histories);
    for (number, history) in histories.iter().enumerate() {
        let (steps, unknown) = (history.steps, history.unknown);
        // Each does one thing at a time: trouble can come in the middle of one only, and take a lock.
        assert!(
            unknown <= 2 * troubles,
            "worker {number}: {unknown} unknown"
        );
        assert!(steps > troubles, "worker {number} did only {steps} steps");
    }
    let stale: u64 = histories.iter().map(|history| history.stale).sum();
    println!("{troubles} kills, {stale} open files gone");
    stale
}

fn begin(dir: &Path) -> PathBuf {
    let export = dir.join("export");
    fs::create_dir_all(export.join(SHARED)).expect("an export");
    export
}

fn through_mount(dir: &Path) -> String {
    format!("mount:{}", dir.display())
}

fn through_client(nodes: &[&At]) -> String {
    let nodes: Vec<String> = nodes.iter().map(|at| at.text()).collect();
    format!("client:{}", nodes.join(","))
}

fn pause(random: &mut Random) {
    sleep(Duration::from_millis(150 + random.below(350)));
}

#[test]
fn a_node_that_is_killed_for_a_minute_does_everything_once() {
    let bound = Duration::from_secs(240);
    apart(
        "a_node_that_is_killed_for_a_minute_does_everything_once",
        bound,
        |dir| {
            let export = begin(dir);
            let mut node = Node::unix(dir, "socket", &export, &[]);
            let at = node.at.clone();
            let (one, two) = (dir.join("one"), dir.join("two"));
            let _mounts = [&one, &two].map(|point| Mounted::start(&[&at], point, None, &[]));
            let client = through_client(&[&at]);
            let ways = [
                through_mount(&one),
                through_mount(&one),
                through_mount(&two),
                client.clone(),
                client,
            ];
            let kills = work(dir, &ways, Duration::from_secs(60), |random| {
                pause(random);
                node.kill();
                node.start_again();
            });
            let gone = judge(dir, ways.len(), kills);
            // What is open stays, whoever removes it.
            assert_eq!(gone, 0, "open files gone");
        },
    );
}

#[test]
fn two_nodes_that_are_killed_by_turns_do_everything_once() {
    let bound = Duration::from_secs(240);
    apart(
        "two_nodes_that_are_killed_by_turns_do_everything_once",
        bound,
        |dir| {
            let export = begin(dir);
            let mut nodes = ["first", "second"].map(|name| Node::unix(dir, name, &export, &[]));
            let at = [nodes[0].at.clone(), nodes[1].at.clone()];
            let (one, two) = (dir.join("one"), dir.join("two"));
            let _mounts = [&one, &two]
                .map(|point| Mounted::start(&[&at[0], &at[1]], point, None, &["--patience", "40"]));
            let client = through_client(&[&at[0], &at[1]]);
            let ways = [
                through_mount(&one),
                through_mount(&two),
                client.clone(),
                client,
            ];
            let mut turn = 0;
            let kills = work(dir, &ways, Duration::from_secs(40), |random| {
                turn += 1;
                let node = &mut nodes[turn % 2];
                node.kill();
                pause(random);
                node.start_again();
            });
            // What clients of the other node have open, a node does not know: it may be gone.
            judge(dir, ways.len(), kills);
        },
    );
}
