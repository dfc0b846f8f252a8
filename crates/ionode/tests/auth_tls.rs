//! Over TLS, a certificate says who somebody is, and nothing else does.

mod auth;
mod common;

#[path = "auth/certificates.rs"]
mod certificates;

use auth::{Guarded, audited};
use certificates::Authority;
use common::{
    PATIENCE, is_root, options, own_uid, pattern, read_all, refused, rw_file, wait_until,
};
use presagio_ionode::{Address, Config, Node, TcpProof, TlsFiles};
use presagio_ninep::client::{Client, Options, TlsIdentity};
use presagio_ninep::session::{File, Session};
use presagio_ninep::{Errno, OpenFlags};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// Two authorities, a node, and where the files of all are.
struct Site {
    servers: Authority,
    users: Authority,
    node: Guarded,
    directory: tempfile::TempDir,
}

impl Site {
    fn new() -> Site {
        Site::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Config)) -> Site {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let servers = Authority::new(directory.path(), "servers");
        let users = Authority::new(directory.path(), "users");
        let node = Guarded::with(|config| {
            config.tcp = TcpProof::Tls(servers.node(&users));
            config.allow_root = true;
            change(config);
        });
        Site {
            servers,
            users,
            node,
            directory,
        }
    }

    fn user(&self, uid: u32) -> TlsIdentity {
        let name = format!("presagio:uid:{uid}");
        self.users.user(&uid.to_string(), &[&name], &self.servers)
    }

    fn connect_with(&self, identity: &TlsIdentity, options: &Options) -> Option<Client> {
        Client::tls(self.node.tcp(), identity, options).ok()
    }

    fn connect(&self, identity: &TlsIdentity) -> Option<Client> {
        self.connect_with(identity, &options())
    }

    fn attach(&self, uid: u32) -> (Session, File) {
        let client = self.connect(&self.user(uid)).expect("a user");
        let session = Session::new(client);
        let root = session.attach("", "/", uid).expect("itself");
        (session, root)
    }

    /// That a client does not come in, which is counted and audited once with these words.
    #[track_caller]
    fn lets_nobody_in(&self, identity: &TlsIdentity, why: &str) {
        let before = audited(why).len();
        assert!(self.connect(identity).is_none());
        wait_until("it is refused", || self.node.refused() == 1);
        assert_eq!(audited(why).len(), before + 1);
        wait_until("it has left", || self.node.connections() == 0);
    }
}

#[test]
fn bytes_are_right_over_tls() {
    let site = Site::new();
    for (number, size) in [0, 1, 4096, 16_384, 70_000, 3_000_000]
        .into_iter()
        .enumerate()
    {
        for msize in [8192, 1 << 20, 4 << 20] {
            let options = Options { msize, ..options() };
            let client = site.connect_with(&site.user(own_uid()), &options);
            let session = Session::new(client.expect("our own user"));
            let root = session.attach("", "/", own_uid()).expect("itself");
            let bytes = pattern(number as u64, size);
            let name = format!("file-{size}-{msize}");
            let file = rw_file(&root, &name);
            assert_eq!(file.write_at(0, &bytes).unwrap(), bytes.len());
            assert!(read_all(&file) == bytes, "{size} bytes, {msize} a frame");
            assert!(std::fs::read(site.node.path(&name)).unwrap() == bytes);
        }
    }
    assert_eq!((site.node.refused(), site.node.ended()), (0, 0));
}

#[test]
fn many_threads_share_a_connection_and_get_their_own_bytes() {
    let site = Site::new();
    let (_session, root) = site.attach(own_uid());
    std::thread::scope(|scope| {
        for number in 0..6 {
            let root = &root;
            scope.spawn(move || {
                let file = rw_file(root, &format!("file-{number}"));
                for round in 0..8 {
                    let bytes = pattern(number * 100 + round, 400_000);
                    assert_eq!(file.write_at(0, &bytes).unwrap(), bytes.len());
                    assert!(read_all(&file) == bytes);
                }
            });
        }
    });
}

#[test]
fn more_is_sent_than_may_be_under_way_and_nothing_is_lost() {
    // Frames lie in what TLS has received while the connection is held back.
    let site = Site::with(|config| config.requests_max = 2);
    let (session, root) = site.attach(own_uid());
    let file = rw_file(&root, "file");
    let bytes = pattern(1, 256 * 512);
    file.write_at(0, &bytes).unwrap();
    for _ in 0..20 {
        let asks = (0..256).map(|block| {
            let into = vec![0; 512];
            presagio_ninep::client::Ask::read(file.fid(), block * 512, into)
        });
        let tickets = session.client().submit_all(asks).unwrap();
        let read: Vec<u8> = tickets
            .into_iter()
            .flat_map(|ticket| ticket.wait().unwrap().into_data())
            .collect();
        assert!(read == bytes);
    }
}

#[test]
fn a_certificate_is_of_one_user() {
    if !is_root("acting as others") {
        return;
    }
    let site = Site::with(|config| config.allow_root = false);
    let (session, root) = site.attach(63_001);
    rw_file(&root, "hers");
    let stat = std::fs::metadata(site.node.path("hers")).unwrap();
    assert_eq!(stat.uid(), 63_001);
    refused(session.attach("", "/", 63_002), Errno::PERM);
    refused(session.attach("", "/", 0), Errno::PERM);
    assert_eq!(site.node.refused(), 2);
    let lines = audited("uid 63001 refused: attach");
    assert_eq!(lines.len(), 2, "{lines:?}");
    let (_other, root) = site.attach(63_003);
    let mut hers = root.walk("hers").unwrap();
    refused(hers.open(OpenFlags::RDWR), Errno::ACCES);
    // Root of another machine is nobody.
    let (_other, root) = site.attach(0);
    rw_file(&root, "nobodys");
    let stat = std::fs::metadata(site.node.path("nobodys")).unwrap();
    assert_eq!(stat.uid(), 65_534);
}

#[test]
fn a_certificate_of_another_authority_is_none() {
    let site = Site::new();
    let other = Authority::new(site.directory.path(), "others");
    let name = format!("presagio:uid:{}", own_uid());
    let identity = other.user("user", &[&name], &site.servers);
    site.lets_nobody_in(&identity, "UnknownIssuer");
}

#[test]
fn a_certificate_that_is_too_old_is_none() {
    let site = Site::new();
    let name = format!("presagio:uid:{}", own_uid());
    let identity = site.users.expired("expired", &[&name], &site.servers);
    site.lets_nobody_in(&identity, "expired");
}

#[test]
fn nobody_comes_in_without_a_certificate() {
    let site = Site::new();
    let identity = TlsIdentity::anonymous(&site.servers.certificate()).unwrap();
    site.lets_nobody_in(&identity, "it showed no certificate");
}

#[test]
fn a_certificate_that_does_not_name_one_user_lets_nobody_in() {
    let wrong: [&[&str]; 7] = [
        &[],
        &["https://example.org/anna"],
        &["presagio:uid:"],
        &["presagio:uid:-1"],
        &["presagio:uid:4294967295"],
        &["presagio:uid:+63001"],
        &["presagio:uid:63001", "presagio:uid:63002"],
    ];
    for (number, names) in wrong.into_iter().enumerate() {
        let site = Site::new();
        let file = number.to_string();
        let identity = site.users.user(&file, names, &site.servers);
        assert!(site.connect(&identity).is_none(), "{names:?}");
        wait_until("it is refused", || site.node.refused() == 1);
    }
}

#[test]
fn a_client_does_not_believe_a_server_of_another_authority() {
    let site = Site::new();
    let name = format!("presagio:uid:{}", own_uid());
    let identity = site.users.user("wary", &[&name], &site.users);
    assert!(site.connect(&identity).is_none());
    wait_until("it has left", || site.node.connections() == 0);
}

/// Sends this, and returns what comes until the other end closes.
fn hears(address: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("the node listens");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).expect("it takes them");
    let mut heard = Vec::new();
    // A reset is an end too.
    if let Err(error) = stream.read_to_end(&mut heard) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    heard
}

#[test]
fn plain_bytes_where_tls_is_spoken_end_that_connection_alone() {
    let site = Site::new();
    let (_session, root) = site.attach(own_uid());
    let version = common::users::session(&[]);
    let heard = hears(site.node.tcp(), &version);
    assert!(heard.len() < 64, "an alert at most: {heard:?}");
    hears(site.node.tcp(), &[0x16, 3, 1, 0xff, 0xff, 0, 0, 0]);
    hears(site.node.tcp(), &vec![0xff; 100_000]);
    assert_eq!(site.node.ended(), 3);
    rw_file(&root, "still-there");
    wait_until("they have left", || site.node.connections() == 1);
}

/// With a certificate that lets it in, and an older version of the protocol.
#[test]
fn who_offers_no_more_than_tls_1_2_does_not_come_in_and_nobody_else_notices() {
    let site = Site::new();
    let (_session, root) = site.attach(own_uid());
    let name = format!("presagio:uid:{}", own_uid());
    let (certificate, key) = site.users.user_files("older", &[&name]);
    let connect = |version: &str| {
        let mut openssl = Command::new("openssl");
        openssl
            .args(["s_client", version, "-connect", site.node.tcp(), "-CAfile"])
            .arg(site.servers.certificate())
            .arg("-cert")
            .arg(&certificate)
            .arg("-key")
            .arg(&key)
            .stdin(Stdio::null());
        let said = openssl.output().expect("openssl");
        let text = [said.stdout, said.stderr].concat();
        (
            said.status.success(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    };
    let (comes_in, said) = connect("-tls1_3");
    assert!(comes_in && said.contains("TLSv1.3"), "{said}");
    wait_until("it has left", || site.node.connections() == 1);
    let before = site.node.ended();
    let (comes_in, said) = connect("-tls1_2");
    assert!(!comes_in, "{said}");
    assert!(said.contains("protocol version"), "{said}");
    wait_until("it is ended", || site.node.ended() == before + 1);
    wait_until("it has left", || site.node.connections() == 1);
    rw_file(&root, "still-there");
}

#[test]
fn tls_where_plain_bytes_are_spoken_ends_that_connection_alone() {
    let site = Site::new();
    let plain = Guarded::with(|_| {});
    let identity = site.user(own_uid());
    assert!(Client::tls(plain.tcp(), &identity, &options()).is_err());
    wait_until("it was ended", || plain.ended() == 1);
    let client = Client::tcp(plain.tcp(), &options()).unwrap();
    Session::new(client).attach("", "/", own_uid()).unwrap();
}

#[test]
fn who_says_nothing_is_left_after_a_while() {
    let site = Site::new();
    let heard = hears(site.node.tcp(), &[0x16, 3, 1, 0, 200]);
    assert!(heard.is_empty(), "{heard:?}");
    assert_eq!(site.node.ended(), 1);
}

#[test]
fn a_client_waits_for_a_silent_server_only_so_long() {
    let site = Site::new();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let options = Options {
        connect_timeout: Duration::from_millis(200),
        ..options()
    };
    assert!(Client::tls(&address, &site.user(1), &options).is_err());
}

#[test]
fn files_that_are_of_no_use_are_named_at_the_start() {
    let site = Site::new();
    let missing = site.directory.path().join("missing.pem");
    let good = site.servers.node(&site.users);
    let wrong = [
        TlsFiles {
            certificate: missing.clone(),
            ..good.clone()
        },
        TlsFiles {
            key: missing.clone(),
            ..good.clone()
        },
        TlsFiles {
            client_ca: missing,
            ..good
        },
    ];
    for files in wrong {
        let mut config = Config::new(site.directory.path());
        config.tcp = TcpProof::Tls(files);
        let address = Address::Tcp("127.0.0.1:0".to_owned());
        let storage = Arc::new(presagio_storage::Directory);
        let error = Node::start(config, storage, &[address], false).err();
        let error = error.expect("no node").to_string();
        assert!(error.contains("missing.pem"), "{error}");
    }
}

#[test]
fn a_user_has_only_so_many_connections_over_tls() {
    let site = Site::with(|config| config.connections_per_user_max = 2);
    let identity = site.user(63_040);
    let first = site.connect(&identity).expect("the first");
    let _second = site.connect(&identity).expect("the second");
    assert!(site.connect(&identity).is_none());
    wait_until("it is refused", || site.node.refused() == 1);
    assert_eq!(audited("uid 63040 has 2 connections").len(), 1);
    site.connect(&site.user(63_041)).expect("another user");
    drop(first);
    wait_until("it has left", || site.node.connections() == 1);
    site.connect(&identity).expect("there is room again");
}
