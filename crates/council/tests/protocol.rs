//! What a council does with those who come: each for itself, whatever they send.

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
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longer than anything that works takes on a machine that is busy with other things.
const LONG: Duration = Duration::from_secs(60);

struct Place {
    _dir: tempfile::TempDir,
    socket: PathBuf,
    store: PathBuf,
    server: Option<Server>,
}

fn hall(store: &Path) -> Hall {
    Hall::open(HallConfig {
        council: CouncilSettings {
            period: Nanos::from_millis(200),
            ..CouncilSettings::default()
        },
        tuner: TunerSettings::default(),
        warm: None,
        detector: Detector::shipped(),
        store: store.to_owned(),
        log_max: 1 << 20,
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
        let address = Address::Unix(self.socket.clone());
        let server = Server::start(hall(&self.store), &[address], door);
        self.server = Some(server.expect("it listens"));
    }

    fn connect(&self) -> Line {
        Line::new(UnixStream::connect(&self.socket).expect("it listens"))
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
        self.say(&Message::Hello(Hello {
            epoch: 1,
            name: name.to_owned(),
            credential: Vec::new(),
        }));
        self.hear()
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
                },
            }),
        },
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
    assert_eq!(node.greet("io1"), Some(Message::Welcome { kept: 0 }));
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
fn who_says_nothing_or_does_not_read_goes_and_nobody_waits_for_it() {
    let place = Place::with(DoorConfig {
        patience: Duration::from_millis(300),
        ..DoorConfig::default()
    });
    let mut silent = place.connect();
    let mut deaf = place.connect();
    deaf.greet("deaf");
    let mut good = place.connect();
    good.greet("good");
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

/// Announces through a client while councils come and go: all of it is learned, once.
#[test]
fn what_a_node_announced_is_learned_exactly_once() {
    let mut place = Place::new();
    let client = Client::start(ClientConfig {
        council: Address::Unix(place.socket.clone()),
        name: "io1".to_owned(),
        epoch: 9,
        proof: Proof::Kernel,
    })
    .unwrap();
    let total = 60;
    let mut arm = announcement(0).arm;
    for sequence in 1..=total {
        client.announce(Announcement {
            arm,
            ..announcement(sequence)
        });
        arm = answered(&client, sequence).unwrap_or(arm);
        if sequence % 20 == 0 {
            place.server = None;
            place.start(DoorConfig::default());
        }
    }
    // What ends the last round teaches nothing itself.
    let mut sequence = total;
    until("all of it is kept", || {
        sequence += 1;
        client.announce(Announcement {
            settled: false,
            ..announcement(sequence)
        });
        answered(&client, sequence);
        client.state().unkept == 0
    });
    drop(client);
    place.server = None;
    assert_eq!(u64::from(steps(&place.store)), total);
}

/// Waits until the council has answered or is away, and longer than a round, in which a node counts once.
fn answered(client: &Client, sequence: u64) -> Option<Arm> {
    let mut told = None;
    until("it is answered", || {
        let decision = client.take().filter(|it| it.sequence == sequence);
        told = decision.map(|it| it.arm);
        told.is_some() || !client.state().connected
    });
    std::thread::sleep(Duration::from_millis(25));
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
