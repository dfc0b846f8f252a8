//! Councils and I/O nodes as processes: killed, frozen, started again, and asked why.

mod common;

use common::nodes::{At, Node, Running, pattern, until};
use common::skips::is_root;
use common::{TempDir, presagio, presagio_ok, program};
use presagio_core::{Nanos, Op};
use presagio_council::wire::Announcement;
use presagio_council::{Client, ClientConfig, Proof, STORE, store};
use presagio_device::Model;
use presagio_ninep::Address;
use presagio_ninep::OpenFlags;
use presagio_ninep::client::{Client as NinepClient, Options};
use presagio_ninep::session::Session;
use presagio_tune::{
    Arrived, Detector, Drive, Features, Observation, Selector, Trees, Tuner, TunerSettings,
    WarmStart,
};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

/// A council that can be started again.
struct Council {
    socket: PathBuf,
    store: PathBuf,
    context: &'static str,
    process: Running,
}

impl Council {
    fn start(dir: &Path) -> Council {
        Council::by(dir, "parameters")
    }

    /// With contexts of this kind.
    fn by(dir: &Path, context: &'static str) -> Council {
        let (socket, store) = (dir.join("council.sock"), dir.join("store"));
        let arguments = Council::arguments(&socket, &store, context);
        let process = Running::presagio(None, &arguments);
        let mut council = Council {
            socket,
            store,
            context,
            process,
        };
        council.listens();
        council
    }

    fn arguments(socket: &Path, store: &Path, context: &str) -> Vec<String> {
        let listen = format!("unix:{}", socket.display());
        let store = store.to_str().expect("UTF-8").to_owned();
        [
            "council",
            "--listen",
            &listen,
            "--store",
            &store,
            "--period",
            "0.05",
            "--seed",
            "1",
            "--context",
            context,
        ]
        .map(str::to_owned)
        .to_vec()
    }

    fn listens(&mut self) {
        until("the council listens", || {
            At::Unix(self.socket.clone()).answers()
        });
    }

    fn kill(&mut self) {
        self.process.kill();
    }

    fn start_again(&mut self) {
        let arguments = Council::arguments(&self.socket, &self.store, self.context);
        self.process = Running::presagio(None, &arguments);
        self.listens();
    }

    fn address(&self) -> String {
        format!("unix:{}", self.socket.display())
    }

    fn status(&self) -> Value {
        answer(&["council", "status", &format!("{}.control", self.address())])
    }
}

fn observation() -> Observation {
    Observation {
        period: Nanos::from_millis(60),
        busy: Nanos::from_millis(60),
        served: 10 << 20,
        servers: 4,
        clients: 8,
        processes: 32,
        arrived: Some(Arrived {
            op: Op::Write,
            requests: 320,
            features: Features {
                handles: 32,
                size_max: 32 << 10,
                size_min: 32 << 10,
                size_mean: 32768.0,
                distance: 0.0,
                stride: 0.0,
            },
        }),
    }
}

fn announcement(sequence: u64, settled: bool) -> Announcement {
    Announcement {
        sequence,
        arm: "NOOP".parse().expect("an arm"),
        settled,
        again: false,
        observation: observation(),
        pattern: None,
    }
}

/// How often something was tried, as the store has it.
fn steps(path: &Path) -> u64 {
    let (_keeper, kept) = store::open(&path.join(STORE)).expect("nobody else has it");
    assert!(kept.set_aside.is_none(), "a kill leaves the store whole");
    let mut tuner = Tuner::new(TunerSettings::default());
    presagio_council::restore(&mut tuner, &kept);
    let all = tuner
        .contexts()
        .map(|(_, bandit)| u64::from(bandit.steps()));
    all.sum()
}

#[test]
fn a_council_that_is_killed_again_and_again_forgets_nothing() {
    let dir = TempDir::new("council-killed");
    let dir = Path::new(dir.path());
    let mut council = Council::start(dir);
    let client = Client::start(ClientConfig {
        council: Address::Unix(council.socket.clone()),
        name: "io1".to_owned(),
        epoch: 7,
        proof: Proof::Kernel,
    })
    .expect("threads");
    let mut sequence = 0;
    let mut arm = announcement(0, true).arm;
    let mut announce = |settled: bool| {
        sequence += 1;
        // What came after a while away: a node does at once as it is told.
        arm = client.take().map_or(arm, |it| it.arm);
        client.announce(Announcement {
            arm,
            ..announcement(sequence, settled)
        });
        // Until it is answered or the council is away, and longer than a round, in which a node counts once.
        until("it is answered", || {
            let decision = client.take().filter(|it| it.sequence == sequence);
            arm = decision.as_ref().map_or(arm, |it| it.arm);
            decision.is_some() || !client.state().connected
        });
        sleep(Duration::from_millis(60));
    };
    let mut settled = 0;
    for round in 0..8_u64 {
        let begin = settled;
        (0..6).for_each(|_| announce(true));
        settled += 6;
        // What a council hears first nobody heard in time: it writes nothing until others had time to say theirs. Some live so
        // long, and the next one finds what they have written; some do not.
        if round % 3 == 2 {
            until("some of this life is kept", || {
                announce(true);
                settled += 1;
                settled - client.state().unkept as u64 > begin
            });
        }
        sleep(Duration::from_millis(13 * round));
        council.kill();
        (0..2).for_each(|_| announce(true));
        settled += 2;
        council.start_again();
    }
    // What ends the last round teaches nothing itself.
    until("all of it is kept", || {
        announce(false);
        client.state().unkept == 0
    });
    drop(client);
    council.kill();
    assert_eq!(steps(&council.store), settled);
}

/// What a service is told of storage it says in the situations that it has never seen: what the selection trees choose.
#[test]
fn a_situation_never_seen_begins_as_the_selection_tree_says_where_the_storage_is_known() {
    let dir = TempDir::new("council-warm");
    let dir = Path::new(dir.path());
    let (socket, store) = (dir.join("council.sock"), dir.join("store"));
    let mut arguments = Council::arguments(&socket, &store, "parameters");
    arguments.extend(["--profile", "hdd", "--consensus", "context"].map(str::to_owned));
    let council = Running::presagio(None, &arguments);
    until("the council listens", || At::Unix(socket.clone()).answers());
    let client = Client::start(ClientConfig {
        council: Address::Unix(socket),
        name: "io1".to_owned(),
        epoch: 7,
        proof: Proof::Kernel,
    })
    .expect("threads");
    client.announce(announcement(1, true));
    until("it is answered", || client.state().decisions > 0);
    let decision = client.take().expect("it came");
    let arm = expected(&observation());
    assert_eq!(decision.arm.to_string(), arm, "{}", decision.why);
    assert!(
        decision.why.contains("as the selection tree says"),
        "{}",
        decision.why
    );
    drop((client, council));
    // A node alone, in whatever situation its load is taken for.
    let learned = dir.join("node.redb");
    let learned = learned.to_str().expect("UTF-8");
    let arguments = ["--profile", "hdd", "--learned", learned];
    let node = node(dir, "node.sock", &arguments);
    under_load(&node, || {
        until("it begins as the tree says", || {
            let said = presagio(&["council", "explain", "--store", learned, "--json"]);
            said.out.contains("as the selection tree says")
        });
    });
}

/// What the selection trees say of a situation, on that storage.
fn expected(seen: &Observation) -> String {
    let drive = Drive::new(Model::named("hdd").expect("a preset"));
    let mut warm = WarmStart::new(Trees::shipped(), Some(drive), Selector::STRIPE);
    let context = seen.context(&Detector::shipped(), 1).expect("it tells");
    let (arm, _) = warm.policy(&context).expect("it tells enough");
    assert_ne!(arm.to_string(), "NOOP", "that is what is safe anyway");
    arm.to_string()
}

#[test]
fn a_store_that_is_corrupt_is_set_aside_with_a_message() {
    let dir = TempDir::new("council-corrupt");
    let dir = Path::new(dir.path());
    let store = dir.join("store");
    fs::create_dir(&store).expect("a directory");
    fs::write(store.join(STORE), vec![3; 20_000]).expect("a file");
    let socket = dir.join("council.sock");
    let mut command = Command::new(program());
    command.args(Council::arguments(&socket, &store, "parameters"));
    let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
    until("the council listens", || At::Unix(socket.clone()).answers());
    child.kill().expect("it runs");
    let mut said = String::new();
    let mut stderr = child.stderr.take().expect("a pipe");
    stderr.read_to_string(&mut said).expect("text");
    child.wait().expect("it has ended");
    assert!(said.contains("learned.redb.corrupt-1"), "{said}");
    assert!(store.join("learned.redb.corrupt-1").exists());
}

#[test]
fn two_councils_do_not_share_a_store() {
    let dir = TempDir::new("council-two");
    let dir = Path::new(dir.path());
    let council = Council::start(dir);
    let other = dir.join("other.sock");
    let arguments = Council::arguments(&other, &council.store, "parameters");
    let arguments: Vec<&str> = arguments.iter().map(|it| &**it).collect();
    let said = presagio(&arguments);
    assert_eq!(said.code, Some(2));
    assert!(
        said.err.contains("in use by another process"),
        "{}",
        said.err
    );
}

/// A node on a directory, with arguments for learning.
fn node(dir: &Path, name: &str, more: &[&str]) -> Node {
    let export = dir.join("export");
    fs::create_dir_all(&export).expect("a directory");
    let mut arguments = vec!["--policy", "adaptive", "--period", "0.05", "--seed", "3"];
    arguments.extend(more);
    Node::unix(dir, name, &export, &arguments)
}

fn node_status(node: &Node) -> Value {
    let control = format!("{}.control", node.at.text());
    answer(&["ionode", "status", &control])
}

/// What a service says, as soon as it answers: it serves a moment before it does.
fn answer(question: &[&str]) -> Value {
    let mut said = None;
    until("it answers", || {
        let asked = presagio(question);
        said = (asked.code == Some(0)).then(|| asked.json());
        said.is_some()
    });
    said.expect("it answered")
}

/// Writes and reads through a node until somebody says stop; how many blocks, all of them good.
fn load(node: &Node, stop: &AtomicBool) -> u64 {
    let At::Unix(socket) = &node.at else {
        unreachable!()
    };
    let client = NinepClient::unix(socket, &Options::default()).expect("it listens");
    let session = Session::new(client);
    let uid = rustix::process::getuid().as_raw();
    let root = session.attach("", "/", uid).expect("attached");
    let flags = OpenFlags::RDWR;
    let file = root.create("load", flags, 0o600).expect("created");
    let block = pattern(9, 32 << 10);
    let mut back = vec![0; block.len()];
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        let at = count % 64 * block.len() as u64;
        assert_eq!(file.write_at(at, &block).expect("written"), block.len());
        assert_eq!(file.read_at(at, &mut back).expect("read"), block.len());
        assert_eq!(back, block);
        count += 1;
    }
    count
}

/// While there is load on a node, does something.
fn under_load<T>(node: &Node, work: impl FnOnce() -> T) -> (u64, T) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| load(node, &stop));
        // Also where the work panics: or the load would go on for ever.
        let stopping = Stopping(&stop);
        let done = work();
        drop(stopping);
        (load.join().expect("no data was lost"), done)
    })
}

/// Says stop when it is dropped.
struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_council_that_comes_and_goes_under_load_touches_no_data_and_its_nodes_go_on_alone() {
    let dir = TempDir::new("council-load");
    let dir = Path::new(dir.path());
    let mut council = Council::start(dir);
    let address = council.address();
    let node = node(
        dir,
        "node.sock",
        &["--council", &address, "--council-name", "io1"],
    );
    let last_by = || node_status(&node)["adaptive"]["last"]["by"].clone();
    let (blocks, ()) = under_load(&node, || {
        until("the council decides", || last_by() == "council");
        council.kill();
        until("the node decides alone", || last_by() == "node");
        council.start_again();
        until("the council decides again", || last_by() == "council");
        // One that hangs is as good as none.
        council.process.signal(Signal::STOP);
        until("the node decides alone again", || last_by() == "node");
        council.process.signal(Signal::CONT);
        until("the council decides once more", || last_by() == "council");
        let announced = council.status()["nodes"]["io1"]["announcements"].as_u64();
        assert!(announced.is_some_and(|count| count > 0));
    });
    assert!(blocks > 0);
    let status = node_status(&node);
    assert_eq!(status["adaptive"]["council"]["connected"], true);
    assert!(
        status["adaptive"]["changes"].as_u64() > Some(0),
        "it tries arms"
    );
}

#[test]
fn what_was_decided_is_explained() {
    let dir = TempDir::new("council-explain");
    let dir = Path::new(dir.path());
    let council = Council::start(dir);
    let address = council.address();
    let node = node(
        dir,
        "node.sock",
        &["--council", &address, "--council-name", "io1"],
    );
    under_load(&node, || {
        until("something is decided", || {
            node_status(&node)["adaptive"]["last"]["context"]
                .as_str()
                .is_some_and(|context| context.contains("write") || context.contains("read"))
        });
    });
    let store = council.store.to_str().expect("UTF-8");
    let explained = || -> Vec<Value> {
        let all = presagio_ok(&[
            "council", "explain", "--store", store, "--json", "--since", "1h",
        ]);
        let lines = all.out.lines();
        lines
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    };
    // A decision is explained a moment after it was made.
    let has_context = |lines: &[Value]| lines.iter().any(|line| line["context"].is_string());
    until("it is explained", || has_context(&explained()));
    let lines = explained();
    assert!(lines.iter().all(|line| line["node"] == "io1"));
    let telling = lines.iter().find(|line| line["context"].is_string());
    let telling = telling.expect("a decision with a context");
    for field in ["at", "evidence", "candidates", "own", "chosen", "why"] {
        assert!(!telling[field].is_null(), "{field} is missing in {telling}");
    }
    let words = presagio_ok(&["council", "explain", "--store", store, "--node", "io1"]);
    assert!(words.out.contains("because"), "{}", words.out);
    let none = presagio_ok(&["council", "explain", "--store", store, "--node", "other"]);
    assert_eq!(none.out, "");
    let nowhere = presagio(&["council", "explain", "--store", "/nowhere"]);
    assert_eq!(nowhere.code, Some(2));
    let metrics = presagio_ok(&[
        "council",
        "status",
        &format!("{address}.control"),
        "--metrics",
    ]);
    assert!(metrics.out.contains("presagio_council_decisions_total"));
}

#[test]
fn a_node_alone_learns_keeps_it_and_obeys_who_names_a_policy() {
    let dir = TempDir::new("adaptive-alone");
    let dir = Path::new(dir.path());
    // Nobody has made the directory.
    let learned = dir.join("new/place/learned.redb");
    let learned = learned.to_str().expect("UTF-8");
    let arguments = ["--learned", learned, "--arms", "NOOP,SJF,TWINS:0.25ms"];
    let mut node = node(dir, "node.sock", &arguments);
    let control = format!("{}.control", node.at.text());
    under_load(&node, || {
        until("all arms were tried", || {
            let said = presagio(&["council", "explain", "--store", learned, "--json"]);
            ["NOOP", "SJF", "TWINS:0.25ms"]
                .iter()
                .all(|arm| said.out.contains(&format!("\"chosen\":\"{arm}\"")))
        });
        presagio_ok(&["ionode", "policy", "TWINS:2ms", &control]);
        let before = node_status(&node)["adaptive"]["changes"].clone();
        assert_eq!(node_status(&node)["policy"], "TWINS");
        assert_eq!(node_status(&node)["window_us"], 2000.0);
        sleep(Duration::from_millis(300));
        assert_eq!(node_status(&node)["window_us"], 2000.0, "nobody changes it");
        assert_eq!(node_status(&node)["adaptive"]["changes"], before);
        assert_eq!(node_status(&node)["adaptive"]["on"], false);
        presagio_ok(&["ionode", "policy", "adaptive", &control]);
        until("it is learned again", || {
            node_status(&node)["window_us"] != 2000.0
        });
    });
    let contexts = node_status(&node)["adaptive"]["contexts"].as_u64();
    assert!(contexts > Some(0));
    node.kill();
    node.start_again();
    let contexts = node_status(&node)["adaptive"]["contexts"].as_u64();
    assert!(contexts > Some(0), "it is kept");
}

#[test]
fn a_node_alone_recognises_patterns_and_knows_them_after_a_kill() {
    let dir = TempDir::new("adaptive-patterns");
    let dir = Path::new(dir.path());
    let learned = dir.join("learned.redb");
    let learned = learned.to_str().expect("UTF-8");
    let arguments = [
        "--learned",
        learned,
        "--context",
        "pattern",
        "--arms",
        "NOOP,SJF",
    ];
    let mut node = node(dir, "node.sock", &arguments);
    let control = format!("{}.control", node.at.text());
    under_load(&node, || {
        until("arms are tried for a pattern that came before", || {
            let said = presagio(&["council", "explain", "--store", learned, "--json"]);
            let lines = said.out.lines().filter(|line| line.contains("pattern "));
            let best = lines.filter(|line| line.contains("the best of what was tried"));
            best.count() > 2
        });
    });
    let status = node_status(&node);
    assert!(status["adaptive"]["patterns"]["known"].as_u64() > Some(0));
    let known = || presagio_ok(&["ionode", "status", &control, "--patterns"]).json();
    let before = known();
    // Reads and writes take turns: which of them more came of in a period is chance.
    let mut all = before.as_array().expect("a list").iter();
    let came_again = |it: &Value| it["occurrences"].as_u64() > Some(1) && it["best"].is_string();
    assert!(all.any(came_again), "{before}");
    node.kill();
    node.start_again();
    until("it serves", || node_status(&node)["adaptive"].is_object());
    let after = known();
    let names = |known: &Value| -> Vec<u64> {
        let all = known.as_array().expect("a list").iter();
        all.filter_map(|it| it["pattern"].as_u64()).collect()
    };
    let is_known = |it: &u64| names(&before).contains(it);
    assert!(names(&after).iter().any(is_known), "{after}");
}

/// The council says that it matches patterns: a node need not be told.
#[test]
fn nodes_of_a_council_share_its_patterns() {
    let dir = TempDir::new("council-patterns");
    let dir = Path::new(dir.path());
    let mut council = Council::by(dir, "pattern");
    let address = council.address();
    let start = |name: &str| {
        let own = dir.join(name);
        fs::create_dir(&own).expect("a directory");
        let arguments = ["--council", &address, "--council-name", name];
        node(&own, "node.sock", &arguments)
    };
    let (one, other) = (start("io1"), start("io2"));
    let context = |name: &str| council.status()["nodes"][name]["last"]["context"].clone();
    let is_pattern = |name: &str| {
        let context = context(name);
        context
            .as_str()
            .is_some_and(|it| it.starts_with("pattern "))
    };
    under_load(&one, || {
        under_load(&other, || {
            until("both have a pattern", || {
                is_pattern("io1") && is_pattern("io2")
            });
            until("it is kept", || {
                let metrics = presagio_ok(&[
                    "council",
                    "status",
                    &format!("{address}.control"),
                    "--metrics",
                ]);
                let mut lines = metrics.out.lines();
                lines.any(|line| {
                    let figure = line.strip_prefix("presagio_council_contexts_written_total ");
                    figure.is_some_and(|it| it.parse::<u64>().is_ok_and(|it| it > 0))
                })
            });
        });
    });
    let known = |council: &Council| {
        let control = format!("{}.control", council.address());
        answer(&["council", "status", &control, "--patterns"])
    };
    assert!(!known(&council).as_array().expect("a list").is_empty());
    drop((one, other));
    council.kill();
    council.start_again();
    assert!(!known(&council).as_array().expect("a list").is_empty());
    assert_eq!(council.status()["contexts_are"], "patterns");
}

#[test]
fn another_user_is_refused_with_a_line_in_the_audit() {
    if !is_root("being somebody else") {
        return;
    }
    let dir = TempDir::new("council-user");
    let dir = Path::new(dir.path());
    let (socket, store) = (
        PathBuf::from("/tmp").join(format!("council-{}.sock", std::process::id())),
        dir.join("store"),
    );
    let mut command = Command::new(program());
    command.args(Council::arguments(&socket, &store, "parameters"));
    let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
    until("the council listens", || At::Unix(socket.clone()).answers());
    // A hello by hand, as a user that is not allowed.
    let hello = presagio_council::wire::Message::Hello(presagio_council::wire::Hello {
        epoch: 1,
        name: "stranger".to_owned(),
        credential: Vec::new(),
    });
    let mut bytes = Vec::new();
    hello.write(&mut bytes);
    let script = "import socket,sys,os\nos.setuid(65534)\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\ns.sendall(bytes.fromhex(sys.argv[2]))\nd=b''\nwhile True:\n  x=s.recv(4096)\n  if not x: break\n  d+=x\nsys.stdout.write(d.decode('latin1'))";
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let said = Command::new("python3")
        .args(["-c", script, socket.to_str().expect("UTF-8"), &hex])
        .output()
        .expect("python3");
    let _ = child.kill();
    let mut audit = String::new();
    let mut stderr = child.stderr.take().expect("a pipe");
    stderr.read_to_string(&mut audit).expect("text");
    let _ = child.wait();
    let _ = fs::remove_file(&socket);
    let told = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(told.contains("uid 65534 has no I/O nodes here"), "{told}");
    let line = audit.lines().find(|line| line.contains("audit"));
    assert!(
        line.is_some_and(|line| line.contains("uid 65534")),
        "{audit}"
    );
}

#[test]
fn a_council_whose_log_stands_still_ends_when_it_is_told_to() {
    let dir = TempDir::new("council-still");
    let dir = Path::new(dir.path());
    let store = dir.join("store");
    fs::create_dir(&store).expect("a directory");
    // A pipe that is full and that nobody reads is a disk that hangs.
    let log = store.join("decisions.jsonl");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &log, mode).expect("a pipe");
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NONBLOCK;
    let pipe = rustix::fs::open(&log, flags, mode).expect("a pipe");
    while rustix::io::write(&pipe, &[b' '; 4096]).is_ok() {}
    let mut council = Council::start(dir);
    let client = Client::start(ClientConfig {
        council: Address::Unix(council.socket.clone()),
        name: "io1".to_owned(),
        epoch: 7,
        proof: Proof::Kernel,
    })
    .expect("threads");
    client.announce(announcement(1, true));
    until("it is answered", || client.take().is_some());
    council.process.signal(Signal::TERM);
    let code = council.process.ended("it ends without its log");
    assert_eq!(code, Some(0));
}

/// A tree that takes everything for the same.
const ALWAYS_STRIDED: &str = "\
presagio trees 1
tree access
feature handles: number
class own-files
class shared-contiguous
class shared-strided
choose shared-strided (1)
end
";

#[test]
fn accesses_are_told_apart_by_the_network_that_was_given() {
    let dir = TempDir::new("council-network");
    let dir = Path::new(dir.path());
    let network = dir.join("network.txt");
    fs::write(&network, ALWAYS_STRIDED).expect("written");
    let network = network.to_str().expect("UTF-8");
    let node = node(dir, "node.sock", &["--network", network]);
    under_load(&node, || {
        until("its situation is what the tree says", || {
            node_status(&node)["adaptive"]["last"]["context"]
                .as_str()
                .is_some_and(|context| context.starts_with("shared-strided"))
        });
    });
    let (socket, store) = (dir.join("council.sock"), dir.join("store"));
    let mut arguments = Council::arguments(&socket, &store, "parameters");
    arguments.extend(["--network", "/nowhere"].map(str::to_owned));
    let arguments: Vec<&str> = arguments.iter().map(|it| &**it).collect();
    let said = presagio(&arguments);
    assert_eq!(said.code, Some(2));
    let advice = "presagio train --network -o FILE";
    assert!(said.err.contains(advice), "{}", said.err);
}
