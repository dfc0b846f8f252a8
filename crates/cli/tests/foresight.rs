//! Two programs read one file by turns, through an I/O node in front of a slow disk. Without foresight each always misses
//! the other, and every read is served alone. When their manager, or the mount, foretells what they will read, the node
//! waits for the other half of a pair, and serves both at once. What is foretold wrongly changes nothing.

mod common;

use common::nodes::{Mounted, Node, until};
use common::{TempDir, library, presagio, presagio_ok, program};
use presagio_core::{Nanos, Op, Range};
use presagio_forward::{Address, Foreseen, Options, Remote};
use presagio_ninep::OpenFlags;
use serde_json::Value;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Of each megabyte, one program reads the first 64 KiB and the other the next. They begin each phase together.
const READER: &str = r#"
import os, sys, time
path, who, gate, block = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
mine, other = [os.open(gate + str(w), os.O_RDWR) for w in (who, 1 - who)]
file = os.open(path, os.O_RDONLY)
for phase in range(8):
    os.write(other, b'x')
    os.read(mine, 1)
    for step in range(32):
        place = (step << 20) + who * block
        data = os.pread(file, block, place)
        assert data == bytes([place // 65536 % 251]) * block, (step, len(data))
        time.sleep(0.0003)
"#;
const BLOCK: u64 = 64 << 10;
/// What both read together.
const READS: u64 = 2 * 8 * 32;
/// A machine that is busy with other things may be late.
const TRIES: usize = 5;
/// One test at a time: what they measure is who comes when.
static TURN: Mutex<()> = Mutex::new(());

/// A node in front of an emulated disk that does one thing at a time, with a file of 32 MiB.
struct Place {
    dir: TempDir,
    node: Node,
}

impl Place {
    fn new(name: &str) -> Place {
        let dir = TempDir::new(name);
        let root = Path::new(dir.path());
        std::fs::create_dir_all(root.join("export")).unwrap();
        std::fs::write(root.join("export/data"), content()).unwrap();
        Place::on(dir, &[])
    }

    /// On a striped set, whose stripes are as long as what one program reads and the other.
    fn striped(name: &str) -> Place {
        let dir = TempDir::new(name);
        let root = Path::new(dir.path());
        let path = |name: &str| root.join(name).to_str().unwrap().to_owned();
        let (first, second) = (path("server0"), path("server1"));
        for made in [path("export"), first.clone(), second.clone()] {
            std::fs::create_dir_all(made).unwrap();
        }
        let set = [
            "--server", &first, "--server", &second, "--stripe", "512KiB",
        ];
        let filler = Node::unix(root, "filler", &root.join("export"), &set);
        let remote = Remote::new(Options::new(vec![filler.at.text().parse().unwrap()])).unwrap();
        let root = remote.root(rustix::process::geteuid().as_raw()).unwrap();
        let file = root.create("data", OpenFlags::RDWR, 0o644, 0).unwrap();
        for (at, part) in (0..).zip(content().chunks(1 << 20)) {
            assert_eq!(file.write_at(at << 20, part).unwrap(), part.len());
        }
        drop((file, root, remote, filler));
        Place::on(dir, &set)
    }

    fn on(dir: TempDir, more: &[&str]) -> Place {
        let root = Path::new(dir.path());
        std::fs::write(root.join("reader.py"), READER).unwrap();
        let slow = ["--policy", "TO-agg", "--depth", "1", "--emulate", "hdd"];
        let arguments = [&slow[..], more].concat();
        let node = Node::unix(root, "socket", &root.join("export"), &arguments);
        let place = Place { dir, node };
        until("the node takes orders", || {
            UnixStream::connect(place.at("socket.control")).is_ok()
        });
        place
    }

    fn at(&self, name: &str) -> String {
        format!("{}/{name}", self.dir.path())
    }

    fn control(&self) -> String {
        format!("unix:{}", self.at("socket.control"))
    }

    /// What runs both programs, each on its name of the file.
    fn script(&self, paths: [&str; 2], block: u64) -> String {
        let (gate, reader) = (self.at("gate"), self.at("reader.py"));
        let [first, second] = paths;
        format!(
            "rm -f {gate}0 {gate}1; mkfifo {gate}0 {gate}1
             timeout 120 python3 {reader} {first} 0 {gate} {block} & first=$!
             timeout 120 python3 {reader} {second} 1 {gate} {block} || exit 1; wait $first"
        )
    }

    /// Both programs read, under one manager; its summary.
    fn read(&self, block: u64, how: &[&str]) -> Value {
        let (json, script) = (self.at("run.json"), self.script(["/far/data"; 2], block));
        let forward = format!("/far=unix:{}", self.at("socket"));
        let mut run = Command::new(program());
        run.args(["run", "--no-model", "--quiet", "--json", &json])
            .args(["--forward", &forward])
            .args(how)
            .args(["--", "sh", "-c", &script])
            .env("PRESAGIO_LIB", library())
            .env("XDG_RUNTIME_DIR", self.dir.path())
            .env_remove("LD_PRELOAD")
            .env_remove("PRESAGIO_ARENA");
        let read = run.status().unwrap();
        assert!(read.success(), "{read}");
        serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap()
    }

    /// Each program reads through a mount of its own.
    fn read_mounted(&self, how: &[&str]) {
        let mounts = ["first", "second"].map(|name| {
            let dir = Path::new(self.dir.path()).join(name);
            Mounted::start(&[&self.node.at], &dir, None, how)
        });
        let paths = mounts.each_ref().map(|mount| mount.path("data"));
        let names = paths.each_ref().map(|path| path.to_str().unwrap());
        let script = self.script(names, BLOCK);
        let read = Command::new("sh").args(["-c", &script]).status().unwrap();
        assert!(read.success(), "{read}");
    }

    fn status(&self) -> Value {
        presagio_ok(&["ionode", "status", &self.control()]).json()
    }

    /// Reads so far, and batches that served them.
    fn batches(&self) -> (f64, f64) {
        let status = self.status();
        let reads = &status["operations"]["read"];
        let requests = number(&reads["requests"]) as f64;
        let each = reads["requests_per_batch"].as_f64().unwrap_or(1.0);
        (requests, requests / each)
    }

    /// Reads that one batch served, on average.
    fn reads_in_a_batch(&self) -> f64 {
        let status = self.status();
        let reads = &status["operations"]["read"];
        assert!(number(&reads["requests"]) >= READS, "{status:#}");
        reads["requests_per_batch"].as_f64().unwrap()
    }
}

/// 32 MiB, of which each 64 KiB differ from the next.
fn content() -> Vec<u8> {
    let blocks = (0u64..512).flat_map(|block| vec![(block % 251) as u8; BLOCK as usize]);
    blocks.collect()
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn what_a_manager_foretells_is_served_together_and_else_it_is_not() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let plain = Place::new("foresight-plain");
    let summary = plain.read(BLOCK, &["--observe"]);
    assert_eq!(number(&summary["forwarded"]["files"]), 1);
    assert_eq!(number(&summary["forwarded"]["foretold"]), 0);
    let alone = plain.reads_in_a_batch();
    assert!(
        alone < 1.2,
        "{alone} reads in a batch, though nobody foretold any"
    );

    assert_together(foretold, alone);
}

/// That at least half of the reads were served with another, in one of a few tries.
fn assert_together(read: impl Fn() -> f64, alone: f64) {
    let mut tries = Vec::new();
    while tries.len() < TRIES && tries.iter().all(|reads| *reads < 1.5) {
        tries.push(read());
    }
    println!("{tries:?} reads in a batch");
    let is_together = tries.iter().any(|reads| *reads >= 1.5);
    assert!(is_together, "{tries:?} reads in a batch, and {alone} else");
}

/// Both read, and their manager foretells what; reads that one batch served.
fn foretold() -> f64 {
    let place = Place::new("foresight-told");
    let summary = place.read(BLOCK, &[]);
    let forwarded = &summary["forwarded"];
    assert!(number(&forwarded["foretold"]) > READS / 2, "{forwarded}");
    assert!(number(&forwarded["came"]) > READS / 2, "{forwarded}");
    assert_eq!(number(&summary["prefetch"]["bytes_useful"]), 0);
    place.reads_in_a_batch()
}

#[test]
fn mounts_foretell_unless_they_are_told_not_to() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let read = |how: &[&str]| {
        let place = Place::new("foresight-mounts");
        place.read_mounted(how);
        place.reads_in_a_batch()
    };
    let alone = read(&["--no-foresight"]);
    assert!(
        alone < 1.2,
        "{alone} reads in a batch, though nobody foretold any"
    );
    assert_together(|| read(&[]), alone);
}

/// Whatever clients foretell then, and nothing else: what a trace foresees still counts.
#[test]
fn a_node_can_be_told_to_hear_clients_no_more_and_to_hear_them_again() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Place::new("foresight-deaf");
    let tell =
        |how: &str| presagio_ok(&["ionode", "foresight", &place.control(), "--clients", how]);
    let announced = || number(&place.status()["foresight"]["announced"]);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| lie(&place, &over));
        let _end = AtEnd(&over);
        until("it hears", || announced() > 0);
        assert!(tell("off").out.contains("not heard"));
        assert_eq!(place.status()["foresight"]["hears_clients"], false);
        // One may have been on its way.
        until("it hears no more", || {
            let before = announced();
            std::thread::sleep(Duration::from_millis(50));
            announced() == before
        });
        let before = announced();
        place.read(BLOCK, &[]);
        assert_eq!(announced(), before, "neither from the manager");
        let alone = place.reads_in_a_batch();
        assert!(alone < 1.2, "{alone} reads in a batch");
        tell("on");
        until("it hears again", || announced() > before);
    });
    assert_ne!(
        presagio(&["ionode", "foresight", &place.control(), "--clients", "x"]).code,
        Some(0)
    );
}

#[test]
fn a_client_that_foretells_what_never_comes_changes_nothing() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Place::new("foresight-wrong");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| lie(&place, &over));
        let _end = AtEnd(&over);
        until("lies arrive", || {
            number(&place.status()["foresight"]["announced"]) > 1000
        });
        place.read(BLOCK, &["--observe"]);
    });
    let alone = place.reads_in_a_batch();
    let foresight = &place.status()["foresight"];
    assert!(alone < 1.2, "{alone} reads in a batch");
    assert_eq!(number(&foresight["came"]), 0, "{foresight}");
    assert_eq!(number(&foresight["waits"]), 0, "{foresight}");
}

/// Says that it is over, also where the test has failed.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Foretells, all the time, what lies beside all that is read, and is never read.
fn lie(place: &Place, over: &AtomicBool) {
    let node: Address = format!("unix:{}", place.at("socket")).parse().unwrap();
    let remote = Remote::new(Options::new(vec![node])).unwrap();
    let _root = remote.root(rustix::process::geteuid().as_raw()).unwrap();
    while !over.load(Ordering::Relaxed) {
        let lies: Vec<Foreseen<'_>> = (0..32)
            .map(|step| Foreseen {
                file: Err(b"data"),
                op: Op::Read,
                range: Range::at((step << 20) + 2 * BLOCK, BLOCK),
                after: Nanos::from_micros(200),
            })
            .collect();
        remote.foresee(&lies);
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_trace_of_another_run_changes_nothing() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Place::new("foresight-trace");
    let trace = place.at("other.ptrace");
    presagio_ok(&["ionode", "record", &place.control(), &trace]);
    place.read(BLOCK / 2, &["--observe"]);
    presagio_ok(&["ionode", "record", &place.control()]);
    let said = presagio(&["ionode", "foresight", &place.control(), &trace]);
    assert!(
        said.out.contains("requests are foreseen"),
        "{}{}",
        said.out,
        said.err
    );
    place.read(BLOCK, &["--observe"]);
    let alone = place.reads_in_a_batch();
    assert!(alone < 1.2, "{alone} reads in a batch");
}

/// Two clients read by the clock: of each megabyte the first 64 KiB, and a moment later the next. Reads that one batch
/// served meanwhile.
fn read_by_the_clock(place: &Place) -> f64 {
    const STEPS: u64 = 32;
    let before = place.batches();
    let start = Instant::now() + Duration::from_millis(200);
    std::thread::scope(|scope| {
        for who in 0..2 {
            scope.spawn(move || {
                let node = format!("unix:{}", place.at("socket")).parse().unwrap();
                let remote = Remote::new(Options::new(vec![node])).unwrap();
                let root = remote.root(rustix::process::geteuid().as_raw()).unwrap();
                let file = root.walk("data").unwrap().open(OpenFlags::RDONLY).unwrap();
                for step in 0..STEPS {
                    let due = start + Duration::from_millis(50 * step + who);
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    // Here and there, so that the disk has to seek.
                    let at = ((step * 13 % STEPS) << 20) + who * BLOCK;
                    let mut read = vec![0; BLOCK as usize];
                    assert_eq!(file.read_at(at, &mut read).unwrap(), read.len());
                    assert!(read == vec![(at / BLOCK % 251) as u8; BLOCK as usize]);
                }
            });
        }
    });
    let after = place.batches();
    assert_eq!(after.0 - before.0, 2.0 * STEPS as f64);
    (after.0 - before.0) / (after.1 - before.1)
}

#[test]
fn what_a_trace_has_is_served_together_also_on_a_striped_set() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for place in [Place::new, Place::striped] {
        let read = || {
            let place = place("foresight-again");
            let trace = place.at("run.ptrace");
            presagio_ok(&["ionode", "record", &place.control(), &trace]);
            let alone = read_by_the_clock(&place);
            presagio_ok(&["ionode", "record", &place.control()]);
            assert!(alone < 1.2, "{alone} reads in a batch without the trace");
            let said = presagio_ok(&["ionode", "foresight", &place.control(), &trace]);
            assert!(said.out.contains("requests are foreseen"), "{}", said.out);
            let together = read_by_the_clock(&place);
            // What is not foreseen any more is not waited for.
            let said = presagio_ok(&["ionode", "foresight", &place.control(), &trace]);
            assert!(said.out.contains("requests are foreseen"), "{}", said.out);
            presagio_ok(&["ionode", "foresight", &place.control()]);
            let alone = read_by_the_clock(&place);
            assert!(alone < 1.2, "{alone} reads in a batch after it was stopped");
            together
        };
        assert_together(read, 1.0);
    }
}

/// The same with nodes that are told when they start.
#[test]
fn a_node_that_is_started_with_a_trace_serves_what_it_has_together() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let read = || {
        let dir = TempDir::new("foresight-start");
        let root = Path::new(dir.path());
        std::fs::create_dir_all(root.join("export")).unwrap();
        std::fs::write(root.join("export/data"), content()).unwrap();
        let trace = format!("{}/run.ptrace", dir.path());
        let mut place = Place::on(dir, &["--record", &trace]);
        let alone = read_by_the_clock(&place);
        assert!(alone < 1.2, "{alone} reads in a batch without the trace");
        assert_eq!(place.status()["recording"], *trace);
        // Whoever ends it has a whole trace.
        place.node.drain();
        drop(place.node);
        let place = Place::on(place.dir, &["--foresight", &trace]);
        read_by_the_clock(&place)
    };
    assert_together(read, 1.0);
}
