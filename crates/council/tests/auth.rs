//! Over TCP, a certificate or a MUNGE credential says whose a node is, and nothing else does.

#[path = "../../ionode/tests/auth/certificates.rs"]
#[allow(dead_code, reason = "the tests of the I/O node use more of it")]
mod certificates;
#[path = "../../core/tests/common/skips.rs"]
mod skips;

use certificates::Authority;
use presagio_council::{
    Client, ClientConfig, DoorConfig, Hall, HallConfig, LATE_WAIT, Proof, Server,
};
use presagio_door::{Address, TcpProof};
use presagio_tune::{CouncilSettings, Detector, TunerSettings};
use skips::skipped;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let late = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < late, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn council(dir: &Path, tcp: TcpProof, users: Vec<u32>) -> Server {
    let hall = Hall::open(HallConfig {
        council: CouncilSettings::default(),
        tuner: TunerSettings::default(),
        warm: None,
        detector: Detector::shipped(),
        patterns: false,
        store: dir.join(format!("store-{users:?}")),
        log_max: 1 << 20,
        late_wait: LATE_WAIT,
    });
    let door = DoorConfig {
        tcp,
        users,
        ..DoorConfig::default()
    };
    let any = Address::Tcp("127.0.0.1:0".to_owned());
    Server::start(hall.expect("a store"), &[any], door).expect("it listens")
}

fn node(server: &Server, proof: Proof) -> Client {
    Client::start(ClientConfig {
        council: server.addresses()[0].clone(),
        name: "io1".to_owned(),
        epoch: 1,
        proof,
    })
    .expect("threads")
}

fn is_heard(server: &Server, proof: Proof) {
    let client = node(server, proof);
    until("it is heard", || client.state().connected);
}

/// Says why not.
fn is_refused(server: &Server, proof: Proof) -> String {
    let before = server.hall().status()["refused"].as_u64();
    let client = node(server, proof);
    until("it is refused", || client.state().trouble.is_some());
    assert!(!client.state().connected);
    until("it is counted", || {
        server.hall().status()["refused"].as_u64() > before
    });
    client.state().trouble.unwrap_or_default()
}

#[test]
fn a_certificate_says_whose_a_node_is() {
    let dir = tempfile::tempdir().unwrap();
    let servers = Authority::new(dir.path(), "servers");
    let clients = Authority::new(dir.path(), "clients");
    let strangers = Authority::new(dir.path(), "strangers");
    let tls = TcpProof::Tls(servers.node(&clients));
    let server = council(dir.path(), tls, vec![4242]);
    let of = |authority: &Authority, file: &str, name: &str| {
        Proof::Tls(authority.user(file, &[name], &servers))
    };
    is_heard(&server, of(&clients, "good", "presagio:uid:4242"));
    let why = is_refused(&server, of(&clients, "other", "presagio:uid:4243"));
    assert!(why.contains("uid 4243 has no I/O nodes here"), "{why}");
    is_refused(&server, of(&clients, "nobody", "presagio:user:anna"));
    is_refused(&server, of(&strangers, "stranger", "presagio:uid:4242"));
}

/// Debian's daemon, with a key and a socket that nobody else uses.
struct Munged(Child, PathBuf);

impl Munged {
    fn start(dir: &Path) -> Option<Munged> {
        let path = |name: &str| dir.join(name);
        let mode = std::fs::Permissions::from_mode;
        std::fs::set_permissions(dir, mode(0o755)).unwrap();
        std::fs::write(path("key"), vec![dir.as_os_str().len() as u8 ^ 0x5a; 1024]).unwrap();
        std::fs::set_permissions(path("key"), mode(0o600)).unwrap();
        let child = Command::new("/usr/sbin/munged")
            .args(["--foreground", "--force", "--socket"])
            .arg(path("munge.socket.2"))
            .arg("--key-file")
            .arg(path("key"))
            .arg("--pid-file")
            .arg(path("pid"))
            .arg("--log-file")
            .arg(path("log"))
            .arg("--seed-file")
            .arg(path("seed"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let munged = Munged(child, path("munge.socket.2"));
        until("munged listens", || UnixStream::connect(&munged.1).is_ok());
        Some(munged)
    }
}

impl Drop for Munged {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_credential_says_whose_a_node_is() {
    let dir = tempfile::tempdir().unwrap();
    let Some(munged) = Munged::start(dir.path()) else {
        return skipped("there is no munged here");
    };
    let socket = Some(munged.1.clone());
    let server = council(
        dir.path(),
        TcpProof::Munge {
            socket: socket.clone(),
        },
        Vec::new(),
    );
    is_heard(&server, Proof::Munge(socket));
    let why = is_refused(&server, Proof::Kernel);
    assert!(why.contains("no MUNGE credential"), "{why}");
}
