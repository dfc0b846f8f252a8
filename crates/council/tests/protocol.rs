//! What a council does with those who come: each for itself, whatever they send.

#[path = "../../core/tests/common/skips.rs"]
mod skips;

use presagio_core::{Nanos, Op};
use presagio_council::wire::{Announcement, FRAME_MAX, Hello, MAGIC, Message};
use presagio_council::{
    Client, ClientConfig, DoorConfig, Hall, HallConfig, Proof, Server, log, store,
};
use presagio_door::{Address, TcpProof};
use presagio_ninep::Frames;
use presagio_tune::{
    Arm, Arrived, CouncilSettings, Detector, Features, Observation, Tuner, TunerSettings,
};
use skips::skipped;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longer than anything that works takes on a machine that is busy with other things.
const LONG: Duration = Duration::from_secs(60);

const WELCOME: Message = Message::Welcome {
    kept: 0,
    patterns: false,
};

struct Place {
    _dir: tempfile::TempDir,
    socket: PathBuf,
    store: PathBuf,
    server: Option<Server>,
}

fn hall(store: &Path) -> Hall {
    hall_of(store, false)
}

fn hall_of(store: &Path, patterns: bool) -> Hall {
    hall_with(store, patterns, Duration::from_millis(200))
}

fn hall_with(store: &Path, patterns: bool, period: Duration) -> Hall {
    Hall::open(HallConfig {
        council: CouncilSettings {
            period: Nanos::from(period),
            ..CouncilSettings::default()
        },
        tuner: TunerSettings::default(),
        warm: None,
        detector: Detector::shipped(),
        patterns,
        store: store.to_owned(),
        log_max: 1 << 20,
        late_wait: Duration::from_millis(50),
    })
    .expect("it opens")
}

impl Place {
    fn new() -> Place {
        Place::with(DoorConfig::default())
    }

    fn with(door: DoorConfig) -> Place {
        let dir = tempfile::tempdir().unwrap();
        let mut place = Place {
            socket: dir.path().join("council.sock"),
            store: dir.path().join("store"),
            _dir: dir,
            server: None,
        };
        place.start(door);
        place
    }

    fn start(&mut self, door: DoorConfig) {
        self.start_with(hall(&self.store), door);
    }

    fn start_with(&mut self, hall: Hall, door: DoorConfig) {
        let address = Address::Unix(self.socket.clone());
        let server = Server::start(hall, &[address], door);
        self.server = Some(server.expect("it listens"));
    }

    fn connect(&self) -> Line {
        Line::new(UnixStream::connect(&self.socket).expect("it listens"))
    }

    /// A node that is heard, however long this thread was held up before it said who it is.
    fn node(&self, name: &str) -> Line {
        let mut line = None;
        until("it is heard", || {
            let mut new = self.connect();
            let mut hello = Vec::new();
            Line::hello(name, 1).write(&mut hello);
            let is_said = new.stream.write_all(&hello).is_ok();
            let is_heard = is_said && matches!(new.hear(), Some(Message::Welcome { .. }));
            line = Some(new).filter(|_| is_heard);
            line.is_some()
        });
        line.expect("it is heard")
    }

    fn status(&self) -> serde_json::Value {
        self.server.as_ref().expect("it runs").hall().status()
    }
}

/// The other end of a node's line.
struct Line {
    stream: UnixStream,
    frames: Frames,
}

impl Line {
    fn new(stream: UnixStream) -> Line {
        stream.set_read_timeout(Some(LONG)).unwrap();
        Line {
            stream,
            frames: Frames::new(FRAME_MAX),
        }
    }

    fn say(&mut self, message: &Message) {
        let mut bytes = Vec::new();
        message.write(&mut bytes);
        self.stream.write_all(&bytes).expect("it is taken");
    }

    /// What comes next; none if the connection has ended.
    fn hear(&mut self) -> Option<Message> {
        loop {
            if let Some(frame) = self.frames.next().expect("a frame") {
                return Some(Message::read(frame.kind.0, frame.body).expect("a message"));
            }
            match self.stream.read(self.frames.space()) {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.frames.received(count),
            }
        }
    }

    fn greet(&mut self, name: &str) -> Option<Message> {
        self.greet_as(name, 1)
    }

    fn greet_as(&mut self, name: &str, epoch: u64) -> Option<Message> {
        self.say(&Line::hello(name, epoch));
        self.hear()
    }

    fn hello(name: &str, epoch: u64) -> Message {
        Message::Hello(Hello {
            epoch,
            name: name.to_owned(),
            credential: Vec::new(),
        })
    }

    fn announce(&mut self, sequence: u64) -> Option<Message> {
        self.say(&Message::Announcement(announcement(sequence)));
        self.hear()
    }
}

fn announcement(sequence: u64) -> Announcement {
    Announcement {
        sequence,
        arm: "NOOP".parse().unwrap(),
        settled: true,
        again: false,
        observation: Observation {
            period: Nanos::from_secs(1),
            busy: Nanos::from_secs(1),
            served: 100 << 20,
            servers: 4,
            clients: 8,
            processes: 32,
            arrived: Some(Arrived {
                op: Op::Write,
                requests: 3200,
                features: Features {
                    handles: 32,
                    size_max: 32 << 10,
                    size_min: 32 << 10,
                    size_mean: 32768.0,
                    distance: 0.0,
                    stride: 0.0,
                },
            }),
        },
        pattern: None,
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let late = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < late, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn who_announces_is_told_what_to_do_and_why() {
    let place = Place::new();
    let mut node = place.connect();
    assert_eq!(node.greet("io1"), Some(WELCOME));
    let Some(Message::Decision(decision)) = node.announce(1) else {
        panic!("no decision");
    };
    assert_eq!(decision.sequence, 1);
    assert!(decision.context.contains("write"), "{}", decision.context);
    assert!(!decision.why.is_empty());
    let status = place.status();
    assert_eq!(
        status["nodes"]["io1"]["last"]["chosen"],
        decision.arm.to_string()
    );
    let mut explained = Vec::new();
    until("it is explained", || {
        explained.clear();
        let read = log::read(
            &log::beside(&place.store),
            &log::Wanted::default(),
            |entry| {
                explained.push(entry);
            },
        );
        read.is_ok() && !explained.is_empty()
    });
    assert_eq!(explained[0]["node"], "io1");
    assert_eq!(explained[0]["chosen"], decision.arm.to_string());
    assert_eq!(explained[0]["why"], decision.why);
    assert!(
        explained[0]["candidates"]
            .as_array()
            .is_some_and(|all| all.len() > 5)
    );
}

/// The log is a pipe that nobody reads: it takes some lines, and then no more.
#[test]
fn a_log_that_stands_still_holds_no_answer_up_and_has_all_of_them_in_the_end() {
    const DECISIONS: u64 = 100;
    let mut place = Place::new();
    place.server = None;
    let path = log::beside(&place.store);
    std::fs::remove_file(&path).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).unwrap();
    place.start(DoorConfig::default());
    let mut node = place.connect();
    node.greet("io1");
    for sequence in 1..=DECISIONS {
        assert!(
            matches!(node.announce(sequence), Some(Message::Decision(_))),
            "decision {sequence}"
        );
    }
    let mut pipe = std::fs::File::open(&path).unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        pipe.read_to_string(&mut text).unwrap();
        text
    });
    assert_eq!(place.status()["explanations_lost"], 0);
    place.server = None;
    let text = reader.join().unwrap();
    let line = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON");
    let sequences: Vec<u64> = text
        .lines()
        .map(|it| line(it)["sequence"].as_u64().unwrap())
        .collect();
    assert_eq!(sequences, (1..=DECISIONS).collect::<Vec<_>>());
}

#[test]
fn what_was_decided_is_explained_when_the_server_has_ended() {
    let mut place = Place::new();
    let server = place.server.take().expect("it runs");
    // Somebody still looks at it.
    let _hall = server.hall().clone();
    let mut node = place.connect();
    node.greet("io1");
    for sequence in 1..=50 {
        node.announce(sequence);
    }
    drop(server);
    let mut count = 0;
    let read = log::read(&log::beside(&place.store), &log::Wanted::default(), |_| {
        count += 1;
    });
    read.unwrap();
    assert_eq!(count, 50);
}

/// How willingly each thread of this process with that name gives way.
fn niceness(name: &str) -> Vec<i64> {
    let nice = |task: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(task.ok()?.path().join("stat")).ok()?;
        let (head, rest) = stat.rsplit_once(')')?;
        let of_name = head.ends_with(&format!("({name}"));
        let nice = rest.split_whitespace().nth(16)?.parse().ok();
        nice.filter(|_| of_name)
    };
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks.filter_map(nice).collect()
}

#[test]
fn threads_that_write_give_way_to_the_one_that_answers() {
    let place = Place::new();
    let answers = || niceness("presagio-counci").into_iter().min();
    for writer in ["presagio-keeper", "presagio-scribe"] {
        until(writer, || {
            let all = niceness(writer);
            let gives_way = |nice: &i64| answers().is_some_and(|it| *nice > it || it == 19);
            !all.is_empty() && all.iter().all(gives_way)
        });
    }
    drop(place);
}

#[test]
fn a_node_with_another_period_is_heard_and_shown_as_such() {
    let place = Place::new();
    let mut node = place.connect();
    node.greet("io1");
    // The council's is 200 ms, the node's a second.
    for sequence in 1..=4 {
        assert!(matches!(
            node.announce(sequence),
            Some(Message::Decision(_))
        ));
    }
    let shown = &place.status()["nodes"]["io1"];
    assert_eq!(shown["period_s"], 1.0);
    assert_eq!(shown["other_period"], true);
}

#[test]
fn what_is_no_message_ends_that_connection_only() {
    let place = Place::new();
    let mut good = place.connect();
    good.greet("good");
    let mut frame = Vec::new();
    Message::Announcement(announcement(1)).write(&mut frame);
    let huge = [&u32::MAX.to_le_bytes()[..], &[4, 0, 0]].concat();
    let tiny = [&1_u32.to_le_bytes()[..], &[4, 0, 0]].concat();
    let kind = [&7_u32.to_le_bytes()[..], &[99, 0, 0]].concat();
    let mut version = Vec::new();
    Message::Hello(Hello {
        epoch: 1,
        name: "x".to_owned(),
        credential: Vec::new(),
    })
    .write(&mut version);
    version[7 + 4] = 200;
    assert_eq!(version[7..11], MAGIC.to_le_bytes());
    let noise: Vec<u8> = (0..5000_u32)
        .map(|at| at.wrapping_mul(2_654_435_761) as u8)
        .collect();
    for bad in [huge, tiny, kind, version, noise, frame] {
        let mut line = place.connect();
        line.stream.write_all(&bad).unwrap();
        // It is told why, or not, and then it is over.
        while let Some(message) = line.hear() {
            assert!(matches!(message, Message::Refusal { .. }), "{message:?}");
        }
    }
    assert!(matches!(good.announce(1), Some(Message::Decision(_))));
    assert_eq!(place.status()["nodes_here"], 1);
}

#[test]
fn what_is_malformed_after_the_hello_ends_it_too() {
    let place = Place::new();
    let mut line = place.connect();
    line.greet("bad");
    let mut frame = Vec::new();
    Message::Announcement(announcement(1)).write(&mut frame);
    frame[7 + 8] = 0xff; // The flags.
    line.stream.write_all(&frame).unwrap();
    assert!(matches!(line.hear(), Some(Message::Refusal { .. })));
    assert_eq!(line.hear(), None);
    until("it is gone", || place.status()["nodes_here"] == 0);
}

#[test]
fn a_node_that_comes_anew_takes_its_own_place() {
    let place = Place::new();
    let mut old = place.connect();
    old.greet("io1");
    let mut new = place.connect();
    assert!(matches!(new.greet("io1"), Some(Message::Welcome { .. })));
    assert_eq!(old.hear(), None, "the old connection has ended");
    assert!(matches!(new.announce(1), Some(Message::Decision(_))));
}

#[test]
fn two_nodes_of_one_name_do_not_throw_each_other_out() {
    let mut place = Place::new();
    place.server = None;
    // Longer than anything that holds this thread up: the first is silent for no three of them.
    let hall = hall_with(&place.store, false, LONG);
    place.start_with(hall, DoorConfig::default());
    let mut first = place.connect();
    first.greet_as("io1", 1);
    assert!(matches!(first.announce(1), Some(Message::Decision(_))));
    for epoch in 2..6 {
        assert!(matches!(first.announce(epoch), Some(Message::Decision(_))));
        let mut other = place.connect();
        let Some(Message::Refusal { why }) = other.greet_as("io1", epoch) else {
            panic!("it took the place of one that announces");
        };
        assert!(why.contains("another node is called io1"), "{why}");
        assert!(why.contains("--council-name"), "{why}");
        assert_eq!(other.hear(), None);
    }
    // When the first has left there is nothing in the way.
    drop(first);
    until("the name is free", || {
        let mut other = place.connect();
        matches!(other.greet_as("io1", 9), Some(Message::Welcome { .. }))
    });
}

#[test]
fn a_node_whose_machine_was_lost_has_its_name_again_after_some_periods() {
    let place = Place::new();
    // Nobody ends this connection, and nobody says anything on it.
    let mut lost = place.connect();
    lost.greet_as("io1", 1);
    until("the name is free", || {
        let mut new = place.connect();
        matches!(new.greet_as("io1", 2), Some(Message::Welcome { .. }))
    });
    assert_eq!(lost.hear(), None);
}

#[test]
fn connections_that_say_nothing_keep_no_node_out() {
    let place = Place::with(DoorConfig {
        connections_max: 8,
        patience: LONG,
        ..DoorConfig::default()
    });
    let mut first = place.connect();
    first.greet("first");
    let mut silent: Vec<Line> = (0..40).map(|_| place.connect()).collect();
    let mut second = place.connect();
    assert_eq!(second.greet("second"), Some(WELCOME));
    assert!(matches!(second.announce(1), Some(Message::Decision(_))));
    assert!(matches!(first.announce(1), Some(Message::Decision(_))));
    assert_eq!(silent[0].hear(), None, "the oldest made room");
}

/// On a network that is trusted nobody says which user it is: machines are counted.
#[test]
fn one_machine_cannot_take_all_places() {
    let dir = tempfile::tempdir().unwrap();
    let door = DoorConfig {
        trusted: true,
        nodes_per_user_max: 3,
        ..DoorConfig::default()
    };
    let any = Address::Tcp("0.0.0.0:0".to_owned());
    let server = Server::start(hall(&dir.path().join("store")), &[any], door).unwrap();
    let Address::Tcp(address) = &server.addresses()[0] else {
        unreachable!()
    };
    let port = address.rsplit_once(':').expect("a port").1;
    let client = |number: u64| {
        let config = ClientConfig {
            council: Address::Tcp(format!("127.0.0.1:{port}")),
            name: format!("io{number}"),
            epoch: number,
            proof: Proof::Kernel,
        };
        Client::start(config).unwrap()
    };
    let mut heard: Vec<Client> = (0..3).map(client).collect();
    for client in &heard {
        until("it is heard", || client.state().connected);
    }
    let fourth = client(3);
    until("it is refused", || {
        let trouble = fourth.state().trouble;
        trouble.is_some_and(|why| why.contains("127.0.0.1 has 3 nodes here already"))
    });
    heard.pop();
    until("there is a place", || fourth.state().connected);
}

#[test]
fn names_are_forgotten_in_the_end_the_oldest_first() {
    let mut place = Place::new();
    place.server = None;
    let path = place.store.join(presagio_council::STORE);
    let name = |number: u64| format!("gone-{:05}", (number * 7919) % 100_000);
    let heard = |number: u64| store::Heard {
        epoch: 1,
        sequence: 1,
        at_ms: number,
    };
    let (keeper, _) = store::open(&path).unwrap();
    let all = 0..20_000;
    keeper.keep(store::Changes {
        nodes: all.map(|it| (name(it), Some(heard(it)))).collect(),
        ..store::Changes::default()
    });
    drop(keeper);
    place.start(DoorConfig::default());
    let mut new = place.connect();
    assert_eq!(new.greet("new"), Some(WELCOME));
    assert!(matches!(new.announce(1), Some(Message::Decision(_))));
    drop(new);
    place.server = None;
    let (_keeper, kept) = store::open(&path).unwrap();
    assert!(kept.nodes.len() <= 16_384, "{}", kept.nodes.len());
    assert!(kept.nodes.contains_key(&name(19_999)));
    assert!(!kept.nodes.contains_key(&name(0)));
}

/// A daemon that takes questions and never answers.
struct Mute(std::os::unix::net::UnixListener, PathBuf);

#[test]
fn the_loop_rests_while_a_credential_is_checked() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("munge.socket");
    let mute = Mute(
        std::os::unix::net::UnixListener::bind(&socket).unwrap(),
        socket.clone(),
    );
    let door = DoorConfig {
        tcp: TcpProof::Munge {
            socket: Some(mute.1.clone()),
        },
        patience: LONG,
        ..DoorConfig::default()
    };
    let any = Address::Tcp("127.0.0.1:0".to_owned());
    let Ok(server) = Server::start(hall(&dir.path().join("store")), &[any], door) else {
        return skipped("there is no libmunge here");
    };
    let Address::Tcp(address) = &server.addresses()[0] else {
        unreachable!()
    };
    let mut bytes = Vec::new();
    Message::Hello(Hello {
        epoch: 1,
        name: "io1".to_owned(),
        credential: b"MUNGE:AwQDAAB=:".to_vec(),
    })
    .write(&mut bytes);
    Message::Announcement(announcement(1)).write(&mut bytes);
    // One that has said more than can be heard now, and one that has gone.
    let mut talks = std::net::TcpStream::connect(address).unwrap();
    talks.write_all(&bytes).unwrap();
    let mut leaves = std::net::TcpStream::connect(address).unwrap();
    leaves.write_all(&bytes).unwrap();
    drop(leaves);
    let asked = mute.0.accept().unwrap();
    let figure = |name: &str| server.hall().status()[name].as_u64().unwrap();
    let (turns, looks) = (figure("loop_turns"), figure("loop_looks"));
    // It looks once a second who is held up, and has nothing else to do.
    until("it has looked", || figure("loop_looks") >= looks + 2);
    let turned = figure("loop_turns") - turns;
    assert!(turned < 100, "{turned} turns for nothing");
    drop((asked, mute, talks));
}

/// What a period in which files were read in pieces of that size looks like.
fn pattern(size: u64) -> presagio_pattern::Pattern {
    let mut recorder = presagio_pattern::Recorder::new(&presagio_pattern::Settings::ours());
    for at in 0..200 {
        let range = presagio_core::Range::at(at * 3 * size, size);
        recorder.observe(presagio_core::FileId(1), Op::Write, range);
    }
    recorder.end().expect("there were requests")
}

#[test]
fn patterns_are_contexts_that_all_nodes_share_and_that_are_kept() {
    let mut place = Place::new();
    place.server = None;
    let address = Address::Unix(place.socket.clone());
    let start = |place: &mut Place| {
        let hall = hall_of(&place.store, true);
        let server = Server::start(hall, std::slice::from_ref(&address), DoorConfig::default());
        place.server = Some(server.expect("it listens"));
    };
    let decided = |line: &mut Line, sequence: u64, size: u64| {
        line.say(&Message::Announcement(Announcement {
            pattern: Some(pattern(size)),
            ..announcement(sequence)
        }));
        match line.hear() {
            Some(Message::Decision(decision)) => decision,
            other => panic!("{other:?}"),
        }
    };
    let seen = |line: &mut Line, sequence: u64, size: u64| decided(line, sequence, size).context;
    start(&mut place);
    let mut one = place.connect();
    let wants = Message::Welcome {
        kept: 0,
        patterns: true,
    };
    assert_eq!(one.greet("io1"), Some(wants.clone()));
    let mut other = place.connect();
    assert_eq!(other.greet("io2"), Some(wants));
    let mut sequence = 0;
    let mut names = Vec::new();
    for _ in 0..3 {
        for size in [4 << 10, 4 << 20] {
            sequence += 1;
            let name = seen(&mut one, sequence, size);
            assert_eq!(seen(&mut other, sequence, size), name, "one base for all");
            names.push(name);
        }
    }
    assert_eq!(names[..2], names[4..], "what comes again is known again");
    assert_ne!(names[0], names[1]);
    let known = place.server.as_ref().expect("it runs").hall().patterns();
    let next = |known: &serde_json::Value| known[0]["next"][0]["pattern"].clone();
    assert_eq!(next(&known), known[1]["pattern"], "{known}");
    assert_eq!(
        place.status()["nodes"]["io1"]["pattern"],
        known[1]["pattern"]
    );
    assert_eq!(
        place.status()["nodes"]["io1"]["next"]["pattern"],
        known[0]["pattern"]
    );
    // When the round ends it is written.
    let all = sequence;
    until("it is kept", || {
        sequence += 1;
        decided(&mut one, sequence, 4 << 10).kept >= all
    });
    drop((one, other));
    place.server = None;
    start(&mut place);
    let again = place.server.as_ref().expect("it runs").hall().patterns();
    assert_eq!(again.as_array().map(Vec::len), Some(2));
    assert_eq!(next(&again), next(&known));
    let mut third = place.connect();
    third.greet("io3");
    assert_eq!(seen(&mut third, 1, 4 << 20), names[1]);
    // One that lies about what it saw is told so, and nothing is decided by it.
    let made_up = presagio_pattern::Pattern::new(vec![u32::MAX; 24], 1, 0, 100);
    third.say(&Message::Announcement(Announcement {
        pattern: Some(made_up),
        ..announcement(2)
    }));
    assert_eq!(seen(&mut third, 3, 4 << 20), names[1]);
}

#[test]
fn who_says_nothing_or_does_not_read_goes_and_nobody_waits_for_it() {
    let place = Place::with(DoorConfig {
        patience: Duration::from_millis(300),
        ..DoorConfig::default()
    });
    let mut silent = place.connect();
    let mut deaf = place.node("deaf");
    let mut good = place.node("good");
    // More answers than a socket has room for.
    let mut frames = Vec::new();
    for sequence in 1..1000 {
        Message::Announcement(announcement(sequence)).write(&mut frames);
    }
    deaf.stream.set_nonblocking(true).unwrap();
    let _ = deaf.stream.write(&frames);
    for sequence in 1..20 {
        assert!(matches!(
            good.announce(sequence),
            Some(Message::Decision(_))
        ));
    }
    assert_eq!(silent.hear(), None);
    assert!(matches!(good.announce(20), Some(Message::Decision(_))));
}

#[test]
fn a_flood_ends_the_flooder() {
    let place = Place::new();
    let mut good = place.connect();
    good.greet("good");
    let mut flood = place.connect();
    flood.greet("flood");
    let mut frame = Vec::new();
    for _ in 0..100 {
        Message::Announcement(Announcement {
            again: true,
            ..announcement(1)
        })
        .write(&mut frame);
    }
    // Until it is refused: what it sends after that is not taken.
    until("it is ended", || flood.stream.write_all(&frame).is_err());
    assert!(matches!(good.announce(1), Some(Message::Decision(_))));
    until("it is gone", || place.status()["nodes_here"] == 1);
}

#[test]
fn plain_tcp_is_for_this_machine_where_the_kernel_says_whose_a_connection_is() {
    let dir = tempfile::tempdir().unwrap();
    let door = DoorConfig {
        tcp: TcpProof::Kernel,
        ..DoorConfig::default()
    };
    let any = Address::Tcp("127.0.0.1:0".to_owned());
    let server = Server::start(hall(&dir.path().join("store")), &[any], door).unwrap();
    let client = Client::start(ClientConfig {
        council: server.addresses()[0].clone(),
        name: "io1".to_owned(),
        epoch: 5,
        proof: Proof::Kernel,
    })
    .unwrap();
    until("it is heard", || client.state().connected);
    let open = Address::Tcp("0.0.0.0:0".to_owned());
    let refused = Server::start(
        hall(&dir.path().join("other")),
        &[open],
        DoorConfig::default(),
    );
    let error = refused.err().expect("nobody would be known").to_string();
    assert!(error.contains("proves nobody's identity"), "{error}");
}

/// A round, in which a node counts once.
const ROUND: Duration = Duration::from_millis(20);

/// Announces through a client while councils come and go, each with some of it in its store: all of it is learned, once.
#[test]
fn what_a_node_announced_is_learned_exactly_once() {
    let mut place = Place::new();
    let start = |place: &mut Place| {
        place.server = None;
        let hall = hall_with(&place.store, false, ROUND);
        place.start_with(hall, DoorConfig::default());
    };
    start(&mut place);
    let client = Client::start(ClientConfig {
        council: Address::Unix(place.socket.clone()),
        name: "io1".to_owned(),
        epoch: 9,
        proof: Proof::Kernel,
    })
    .unwrap();
    let mut arm = announcement(0).arm;
    let mut announce = |sequence: u64, settled: bool| {
        // What came after a while away: a node does at once as it is told.
        arm = client.take().map_or(arm, |it| it.arm);
        client.announce(Announcement {
            arm,
            settled,
            ..announcement(sequence)
        });
        arm = answered(&client, sequence).unwrap_or(arm);
    };
    let mut sequence = 0;
    for life in 0..4 {
        let begin = sequence;
        // The last life hears all that others did not keep; what the one before it kept is not among that.
        until("some of this life is kept", || {
            sequence += 1;
            announce(sequence, true);
            let kept = sequence - client.state().unkept as u64;
            sequence >= begin + 15 && kept > begin
        });
        if life < 3 {
            start(&mut place);
        }
    }
    let total = sequence;
    // What ends the last round teaches nothing itself.
    until("all of it is kept", || {
        sequence += 1;
        announce(sequence, false);
        client.state().unkept == 0
    });
    drop(client);
    place.server = None;
    assert_eq!(u64::from(steps(&place.store)), total);
}

/// Waits until the council has answered or is away, and then longer than a round.
fn answered(client: &Client, sequence: u64) -> Option<Arm> {
    let mut told = None;
    until("it is answered", || {
        let decision = client.take().filter(|it| it.sequence == sequence);
        told = decision.map(|it| it.arm);
        told.is_some() || !client.state().connected
    });
    std::thread::sleep(ROUND.mul_f64(1.25));
    told
}

/// How often something was tried, over all contexts of a store.
fn steps(path: &Path) -> u32 {
    let (_keeper, kept) = store::open(&path.join(presagio_council::STORE)).unwrap();
    let mut tuner = Tuner::new(TunerSettings::default());
    presagio_council::restore(&mut tuner, &kept);
    let all = tuner.contexts();
    all.map(|(_, bandit)| bandit.steps()).sum()
}
