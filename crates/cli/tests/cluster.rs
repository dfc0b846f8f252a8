//! Several machines: four clients and two I/O nodes, each in a network of its own behind one bridge, and a striped set of
//! four directories, or a volume of GlusterFS that each node has mounted for itself. While the ranks of a job write and read what they can check, nodes are killed, frozen, cut off,
//! drained and replaced: no acknowledged byte is lost, and nothing hangs.
//!
//! Needs root and namespaces.

mod common;

use common::apart::{apart, run};
use common::forwarded::{Busy, FAR, forwarded, succeeds};
use common::gluster::{CACHES, Gluster, UNCACHED};
use common::nodes::{At, Mounted, Node, pattern, until};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const RANKS: usize = 4;
/// No multiple of a stripe, so that most requests are for several servers.
const BLOCK: usize = 24 * 1024;
const BLOCKS: usize = 6;
/// What a test may take: much longer than it does.
const BOUND: Duration = Duration::from_secs(240);
/// Seconds that a mount waits for a reply, and for a node.
const TIMEOUT: u64 = 2;
const PATIENCE: u64 = 40;
/// Longer than it takes a client to give a silent node up: a reply that does not come, nor one to the question whether it
/// lives, nor one to the attempt to come back.
const SILENCE: Duration = Duration::from_secs(14);
/// No call may take longer; with room for a machine that is busy.
const CALL_MAX: Duration = Duration::from_secs(3 * (PATIENCE + TIMEOUT));

/// Where the bridge, and the test, are in the networks.
const HUB: &str = "10.77.0.1";

/// What the nodes forward.
struct Storage {
    /// As each node has it.
    exports: [PathBuf; 2],
    /// The nodes' arguments.
    more: Vec<String>,
    _gluster: Option<Gluster>,
}

impl Storage {
    /// A striped set of four directories.
    fn striped(place: &Path) -> Storage {
        let export = place.join("names");
        let servers: Vec<_> = (0..4).map(|i| place.join(format!("server{i}"))).collect();
        for made in servers.iter().chain([&export]) {
            std::fs::create_dir(made).unwrap();
        }
        let servers = servers
            .iter()
            .flat_map(|path| ["--server".into(), text(path)]);
        let stripe = ["--stripe".into(), "16KiB".into()];
        Storage {
            exports: [export.clone(), export],
            more: servers.chain(stripe).collect(),
            _gluster: None,
        }
    }

    /// A volume of GlusterFS, without its caches, mounted once for each node. The kernel keeps pages of it in spite of
    /// all that is said at the mount, so the nodes go past those.
    fn gluster(place: &Path) -> Storage {
        let gluster = Gluster::start(place, HUB);
        let mounts = gluster.volume(place, "shared", &CACHES, UNCACHED);
        let exports = mounts.map(|mount| mount.join("export"));
        std::fs::create_dir(&exports[0]).unwrap();
        until("the other mount shows it", || exports[1].exists());
        Storage {
            exports,
            more: ["--direct", "--layout", "gluster servers=3"]
                .map(str::to_owned)
                .into(),
            _gluster: Some(gluster),
        }
    }
}

fn text(path: &Path) -> String {
    path.to_str().expect("a path in UTF-8").to_owned()
}

/// Two nodes and four mounts.
struct Cluster {
    // Unmounted before the nodes end.
    mounts: Vec<Mounted>,
    nodes: Vec<Node>,
    _storage: Storage,
}

impl Cluster {
    fn start(dir: &Path, storage: fn(&Path) -> Storage) -> Cluster {
        let (storage, nodes) = nodes(dir, storage);
        let mount = |i: usize| {
            let all: Vec<&At> = nodes.iter().map(|node| &node.at).collect();
            let (timeout, patience) = (TIMEOUT.to_string(), PATIENCE.to_string());
            let more = ["--timeout", &timeout, "--patience", &patience];
            let network = format!("client{i}");
            Mounted::start(&all, &dir.join(&network), Some(&network), &more)
        };
        let mounts = (0..RANKS).map(mount).collect();
        Cluster {
            mounts,
            nodes,
            _storage: storage,
        }
    }
}

/// Two nodes, each in a network of its own.
fn nodes(dir: &Path, storage: fn(&Path) -> Storage) -> (Storage, Vec<Node>) {
    networks();
    // In memory: a disk that is busy with other tests must not look like a node that is gone.
    let place = dir.join("storage");
    std::fs::create_dir(&place).unwrap();
    run("mount", &["-t", "tmpfs", "none", &text(&place)]);
    let storage = storage(&place);
    let mut more = vec!["--trust-network", "--allow-root"];
    more.extend(storage.more.iter().map(String::as_str));
    let node = |i: usize| {
        let at = At::Tcp(format!("10.77.0.{}:5640", 10 + i).parse().unwrap());
        let id = i.to_string();
        let ids = ["--node-id", id.as_str(), "--nodes", "2"];
        Node::start(
            &storage.exports[i],
            at,
            Some(&format!("node{i}")),
            &[&more[..], &ids].concat(),
        )
    };
    let nodes = (0..2).map(node).collect();
    (storage, nodes)
}

/// A bridge, to which we have access too, and a network for each node and client.
fn networks() {
    run("ip", &["link", "add", "name", "hub", "type", "bridge"]);
    run(
        "ip",
        &["address", "add", &format!("{HUB}/24"), "dev", "hub"],
    );
    run("ip", &["link", "set", "hub", "up"]);
    let nodes = (0..2).map(|i| (format!("node{i}"), 10 + i));
    let clients = (0..RANKS).map(|i| (format!("client{i}"), 20 + i));
    for (name, host) in nodes.chain(clients) {
        run("ip", &["netns", "add", &name]);
        let inside = ["peer", "name", "eth0", "netns", &name];
        run(
            "ip",
            &[&["link", "add", "name", &name, "type", "veth"], &inside[..]].concat(),
        );
        run("ip", &["link", "set", &name, "master", "hub", "up"]);
        let address = format!("10.77.0.{host}/24");
        run(
            "ip",
            &["-n", &name, "address", "add", &address, "dev", "eth0"],
        );
        run("ip", &["-n", &name, "link", "set", "eth0", "up"]);
        run("ip", &["-n", &name, "link", "set", "lo", "up"]);
    }
}

/// What the ranks of a job do with their files, as IOR does it.
#[derive(Clone, Copy)]
enum Layout {
    /// One file, blocks by turns.
    Strided,
    /// One file, each its part.
    Segmented,
    /// Each its file.
    Own,
}

impl Layout {
    const ALL: [Layout; 3] = [Layout::Strided, Layout::Segmented, Layout::Own];

    fn file(self, rank: usize) -> String {
        match self {
            Layout::Strided => "strided".into(),
            Layout::Segmented => "segmented".into(),
            Layout::Own => format!("own{rank}"),
        }
    }

    fn offset(self, rank: usize, block: usize) -> u64 {
        let number = match self {
            Layout::Strided => block * RANKS + rank,
            Layout::Segmented => rank * BLOCKS + block,
            Layout::Own => block,
        };
        (number * BLOCK) as u64
    }

    /// What a rank writes there in a round.
    fn bytes(self, rank: usize, block: usize, round: u64) -> Vec<u8> {
        let place = (self as u64 * 8 + rank as u64) * 64 + block as u64;
        pattern(place << 32 | round, BLOCK)
    }
}

/// A rank, whose files stay open in whatever happens.
struct Rank {
    number: usize,
    mine: Vec<File>,
    next: Vec<File>,
}

impl Rank {
    fn all(mounts: &[Mounted]) -> Vec<Rank> {
        let open = |number: usize, of: usize| {
            let open = |layout: Layout| {
                let mut options = OpenOptions::new();
                options.read(true).write(true).create(true).truncate(false);
                options.open(mounts[number].path(&layout.file(of))).unwrap()
            };
            Layout::ALL.map(open).into()
        };
        let rank = |number| Rank {
            number,
            mine: open(number, number),
            next: open(number, (number + 1) % RANKS),
        };
        (0..RANKS).map(rank).collect()
    }

    /// Writes its blocks, and reads them back.
    fn write(&self, round: u64) {
        for (layout, file) in Layout::ALL.into_iter().zip(&self.mine) {
            for block in 0..BLOCKS {
                let bytes = layout.bytes(self.number, block, round);
                let at = layout.offset(self.number, block);
                in_time(|| file.write_all_at(&bytes, at).expect("it is written"));
            }
            in_time(|| file.sync_all().expect("it is safe"));
        }
        self.check(&self.mine, self.number, round);
    }

    /// Reads what the next one wrote.
    fn check_next(&self, round: u64) {
        self.check(&self.next, (self.number + 1) % RANKS, round);
    }

    fn check(&self, files: &[File], of: usize, round: u64) {
        for (layout, file) in Layout::ALL.into_iter().zip(files) {
            for block in 0..BLOCKS {
                let (at, mut read) = (layout.offset(of, block), vec![0; BLOCK]);
                in_time(|| file.read_exact_at(&mut read, at).expect("it is read"));
                let same = read == layout.bytes(of, block, round);
                let name = layout.file(of);
                assert!(same, "rank {}: {name} at {at}, round {round}", self.number);
            }
        }
    }
}

/// Does something that may take as long as a call may.
fn in_time(what: impl FnOnce()) {
    let start = Instant::now();
    what();
    let took = start.elapsed();
    assert!(took < CALL_MAX, "a call took {took:?}");
}

/// A job of four ranks, round by round.
struct Job {
    ranks: Vec<Rank>,
    round: u64,
}

impl Job {
    fn round(&mut self) {
        self.round += 1;
        let round = self.round;
        let together = |work: &(dyn Fn(&Rank) + Sync)| {
            std::thread::scope(|scope| {
                self.ranks.iter().for_each(|rank| {
                    scope.spawn(move || work(rank));
                })
            });
        };
        together(&|rank| rank.write(round));
        together(&|rank| rank.check_next(round));
    }

    /// Goes on while something happens to the nodes, and some rounds more.
    fn while_(&mut self, happens: impl FnOnce() + Send) {
        std::thread::scope(|scope| {
            let happens = scope.spawn(happens);
            while !happens.is_finished() {
                self.round();
            }
            happens.join().unwrap();
        });
        (0..3).for_each(|_| self.round());
    }
}

/// A cluster and a job on it; then `happens` to each node in turn; then a client that comes new reads what is there.
fn cluster(dir: &Path, storage: fn(&Path) -> Storage, happens: impl Fn(usize, &mut Node) + Sync) {
    let mut cluster = Cluster::start(dir, storage);
    let ranks = Rank::all(&cluster.mounts);
    let mut job = Job { ranks, round: 0 };
    (0..3).for_each(|_| job.round());
    for (index, node) in cluster.nodes.iter_mut().enumerate() {
        job.while_(|| {
            happens(index, node);
            sleep(Duration::from_millis(500));
        });
    }
    let round = job.round;
    println!("{round} rounds");
    drop(job);
    cluster.mounts.clear();
    for (i, node) in cluster.nodes.iter().enumerate() {
        let mount = Mounted::start(&[&node.at], &dir.join(format!("fresh{i}")), None, &[]);
        let mounts: Vec<Mounted> = vec![mount];
        let read = |of: usize| {
            let open = |layout: Layout| File::open(mounts[0].path(&layout.file(of))).unwrap();
            Rank {
                number: of,
                mine: Layout::ALL.map(open).into(),
                next: Vec::new(),
            }
        };
        (0..RANKS).for_each(|of| {
            let rank = read(of);
            rank.check(&rank.mine, of, round);
        });
    }
}

#[test]
fn nodes_that_are_killed_or_drained_lose_nothing() {
    apart(
        "nodes_that_are_killed_or_drained_lose_nothing",
        BOUND,
        |dir| {
            cluster(dir, Storage::striped, |_, node| killed_and_drained(node));
        },
    );
}

fn killed_and_drained(node: &mut Node) {
    for pause in [0, 300, 700] {
        node.kill();
        sleep(Duration::from_millis(pause));
        node.start_again();
        sleep(Duration::from_millis(700));
    }
    node.drain();
    sleep(Duration::from_millis(500));
    node.start_again();
}

#[test]
fn nodes_on_a_glusterfs_volume_that_are_killed_or_drained_lose_nothing() {
    apart(
        "nodes_on_a_glusterfs_volume_that_are_killed_or_drained_lose_nothing",
        BOUND,
        |dir| {
            cluster(dir, Storage::gluster, |_, node| killed_and_drained(node));
        },
    );
}

#[test]
fn nodes_that_are_frozen_for_a_while_lose_nothing() {
    apart(
        "nodes_that_are_frozen_for_a_while_lose_nothing",
        BOUND,
        |dir| {
            cluster(dir, Storage::striped, |_, node| {
                node.freeze();
                sleep(SILENCE);
                node.thaw();
            });
        },
    );
}

#[test]
fn a_network_that_is_cut_and_healed_loses_nothing() {
    apart(
        "a_network_that_is_cut_and_healed_loses_nothing",
        BOUND,
        |dir| {
            cluster(dir, Storage::striped, |index, _| {
                let name = format!("node{index}");
                run("ip", &["link", "set", &name, "down"]);
                sleep(SILENCE);
                run("ip", &["link", "set", &name, "up"]);
            });
        },
    );
}

/// Two clients without a mount, whose programs are always busy, while `happens`.
fn without_a_mount(dir: &Path, happens: impl FnOnce(&[Busy])) {
    let cluster = Cluster::start(dir, Storage::striped);
    let all: Vec<String> = cluster.nodes.iter().map(|node| node.at.text()).collect();
    let (timeout, patience) = (TIMEOUT.to_string(), PATIENCE.to_string());
    let more = ["--timeout", &timeout, "--patience", &patience];
    let busy = |i: usize| Busy {
        outside: dir.join(format!("said{i}")),
        export: cluster.mounts[0].path(&i.to_string()),
    };
    let busy: Vec<Busy> = (0..2).map(busy).collect();
    let said: Vec<String> = std::thread::scope(|scope| {
        let mut running = Vec::new();
        for (i, busy) in busy.iter().enumerate() {
            std::fs::create_dir(&busy.outside).unwrap();
            let (network, far) = (format!("client{i}"), format!("{FAR}/{i}"));
            let run = || forwarded(&all.join(","), Some(&network), &more, &busy.outside);
            succeeds(run().args(["mkdir", &far]));
            let command = run();
            running.push(scope.spawn(move || busy.run(command, &far)));
        }
        let stops: Vec<_> = busy.iter().map(Busy::stops).collect();
        busy.iter().for_each(Busy::goes_on);
        happens(&busy);
        drop(stops);
        running.into_iter().map(|it| it.join().unwrap()).collect()
    });
    busy.iter()
        .zip(said)
        .for_each(|(busy, said)| busy.judge(&said));
}

#[test]
fn programs_without_a_mount_go_on_when_a_network_is_cut() {
    apart(
        "programs_without_a_mount_go_on_when_a_network_is_cut",
        BOUND,
        |dir| {
            without_a_mount(dir, |busy| {
                for node in ["node0", "node1"] {
                    run("ip", &["link", "set", node, "down"]);
                    busy.iter().for_each(Busy::goes_on);
                    run("ip", &["link", "set", node, "up"]);
                    busy.iter().for_each(Busy::goes_on);
                }
            });
        },
    );
}

/// A user of a mount, who was let in where the mount is: it has a file open, and changes names when it is told to.
const USER: &str = r#"
import os, sys
place = os.open(sys.argv[1], os.O_PATH | os.O_DIRECTORY)
os.setgroups([]); os.setresgid(64001, 64001, 64001); os.setresuid(64001, 64001, 64001)
mine = os.open("mine", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644, dir_fd=place)
for line in sys.stdin:
    name = line.strip()
    os.mkdir(name, dir_fd=place)
    os.rename(name, f"{name} renamed", src_dir_fd=place, dst_dir_fd=place)
    assert os.write(mine, line.encode()) == len(line)
    print(name, flush=True)
"#;

#[test]
fn each_user_of_a_mount_goes_on_at_the_next_node() {
    apart(
        "each_user_of_a_mount_goes_on_at_the_next_node",
        BOUND,
        users_go_on,
    );
}

fn users_go_on(dir: &Path) {
    let mut cluster = Cluster::start(dir, Storage::striped);
    let place = cluster.mounts[0].path("shared");
    std::fs::create_dir(&place).unwrap();
    let all = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o777);
    std::fs::set_permissions(&place, all).unwrap();
    let mut user = Command::new("python3")
        .args(["-c", USER, &text(&place)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ask = user.stdin.take().unwrap();
    let mut answers = BufReader::new(user.stdout.take().unwrap()).lines();
    for round in 0..4 {
        let name = format!("round {round}");
        writeln!(ask, "{name}").unwrap();
        assert_eq!(answers.next().unwrap().unwrap(), name);
        std::fs::create_dir(place.join(format!("of root {round}"))).unwrap();
        cluster.nodes.iter_mut().for_each(Node::kill);
        cluster.nodes.iter_mut().for_each(Node::start_again);
    }
    drop(ask);
    assert!(user.wait().unwrap().success());
    let mine = std::fs::read_to_string(place.join("mine")).unwrap();
    assert_eq!(mine, "round 0\nround 1\nround 2\nround 3\n");
}
