//! Nodes that ask who one is, over TCP: a credential of MUNGE is made where one is asked for, a certificate says it where
//! TLS is spoken; for `presagio mount` and `presagio run --forward` alike.
//!
//! Needs Debian's munge and openssl.

mod common;

use common::nodes::{At, Mounted, Node, pattern, until};
use common::skips::skipped;
use common::{Said, TempDir, presagio};
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What is forwarded; there is no such directory on this machine.
const FAR: &str = "/presagio-far-away";

/// A munged of our own, with a key that nobody else has.
struct Munged {
    child: Child,
    socket: PathBuf,
}

impl Munged {
    fn start(dir: &Path) -> Munged {
        let dir = dir.join("munge");
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        let key = dir.join("key");
        fs::write(&key, pattern(std::process::id().into(), 1024)).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let mut command = Command::new("/usr/sbin/munged");
        command.args(["--foreground", "--force"]);
        for (option, name) in [
            ("--socket", "socket"),
            ("--key-file", "key"),
            ("--pid-file", "pid"),
            ("--log-file", "log"),
            ("--seed-file", "seed"),
        ] {
            command.arg(option).arg(dir.join(name));
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let munged = Munged {
            child: command.spawn().expect("Debian's package munge"),
            socket: dir.join("socket"),
        };
        until("munged listens", || {
            UnixStream::connect(&munged.socket).is_ok()
        });
        munged
    }

    fn socket(&self) -> &str {
        self.socket.to_str().expect("a path in UTF-8")
    }
}

impl Drop for Munged {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address that nobody listens at, at least a moment ago.
fn free() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address")
}

struct Site {
    dir: TempDir,
    node: Node,
}

impl Site {
    /// A node on TCP that is started with these options.
    fn new(dir: TempDir, options: &[&str]) -> Site {
        let export = Path::new(dir.path()).join("export");
        fs::create_dir(&export).unwrap();
        let node = Node::start(&export, At::Tcp(free()), None, options);
        Site { dir, node }
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new(self.dir.path()).join(name)
    }

    fn run(&self, options: &[&str], script: &str) -> Said {
        let forward = format!("{FAR}={}", self.node.at.text());
        let mut arguments = vec!["run", "--quiet", "--forward", &forward];
        arguments.extend(options);
        arguments.extend(["--", "sh", "-euc", script]);
        presagio(&arguments)
    }

    /// Both ways to the node, with the options that let us in.
    fn both_work(&mut self, options: &[&str]) {
        let bytes = pattern(3, 700_000);
        fs::write(self.path("bytes"), &bytes).unwrap();
        let bytes_at = self.path("bytes");
        let script = format!(
            "cp {} {FAR}/copied; cmp {FAR}/copied {}; id -u",
            bytes_at.display(),
            bytes_at.display()
        );
        let said = self.run(options, &script);
        assert_eq!(said.code, Some(0), "{}", said.err);
        assert!(fs::read(self.path("export/copied")).unwrap() == bytes);
        let uid = fs::metadata(self.path("export/copied")).unwrap().uid();
        assert_eq!(uid.to_string(), said.out.trim());
        if !Path::new("/dev/fuse").exists() || uid != 0 {
            return skipped("mounting needs root and /dev/fuse");
        }
        let mount = Mounted::start(&[&self.node.at], &self.path("mnt"), None, options);
        assert!(fs::read(mount.path("copied")).unwrap() == bytes);
        fs::write(mount.path("mounted"), &bytes).unwrap();
        assert!(fs::read(self.path("export/mounted")).unwrap() == bytes);
        // Who comes back proves it again.
        self.node.kill();
        self.node.start_again();
        assert!(fs::read(mount.path("mounted")).unwrap() == bytes);
    }
}

#[test]
fn a_credential_is_made_where_one_is_asked_for() {
    let dir = TempDir::new("forward-munge");
    let munged = Munged::start(Path::new(dir.path()));
    let socket = munged.socket().to_owned();
    let node = ["--auth", "munge", "--munge-socket", &socket, "--allow-root"];
    let mut site = Site::new(dir, &node);
    site.both_work(&["--munge-socket", &socket]);
}

#[test]
fn a_credential_of_nobody_lets_nobody_in_and_that_is_explained() {
    let dir = TempDir::new("forward-no-munge");
    let munged = Munged::start(Path::new(dir.path()));
    let socket = munged.socket().to_owned();
    let node = ["--auth", "munge", "--munge-socket", &socket, "--allow-root"];
    let site = Site::new(dir, &node);
    let said = site.run(&["--munge-socket", "/no/such/munge"], "true");
    assert_eq!(said.code, Some(125), "{}", said.err);
    assert!(said.err.contains("no credential"), "{}", said.err);
}

/// Runs openssl in a directory.
fn openssl(dir: &Path, arguments: &[&str]) {
    let mut command = Command::new("openssl");
    let output = command
        .args(arguments)
        .current_dir(dir)
        .output()
        .expect("openssl");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

/// An authority NAME.pem, and a certificate FILE.pem by it with that name in it, with their keys.
fn certificates(dir: &Path, authority: &str, file: &str, name: &str) {
    let key = [
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
    ];
    let (ca, ca_key) = (format!("{authority}.pem"), format!("{authority}.key"));
    let mut arguments = vec!["req", "-x509", "-days", "2", "-subj", "/CN=authority"];
    arguments.extend(key);
    arguments.extend(["-keyout", &ca_key, "-out", &ca]);
    openssl(dir, &arguments);
    let (own, own_key) = (format!("{file}.pem"), format!("{file}.key"));
    let names = format!("subjectAltName={name}");
    let mut arguments = vec!["req", "-x509", "-days", "2", "-subj", "/CN=one"];
    arguments.extend(key);
    arguments.extend(["-CA", &ca, "-CAkey", &ca_key, "-addext", &names]);
    arguments.extend(["-addext", "basicConstraints=critical,CA:FALSE"]);
    arguments.extend(["-keyout", &own_key, "-out", &own]);
    openssl(dir, &arguments);
}

#[test]
fn a_certificate_says_who_one_is_where_tls_is_spoken() {
    let dir = TempDir::new("forward-tls");
    let path = Path::new(dir.path()).to_owned();
    let uid = rustix::process::geteuid().as_raw();
    certificates(&path, "nodes", "node", "IP:127.0.0.1");
    certificates(&path, "users", "me", &format!("URI:presagio:uid:{uid}"));
    let text = |name: &str| {
        path.join(name)
            .to_str()
            .expect("a path in UTF-8")
            .to_owned()
    };
    let tls = format!(
        "{},{},{}",
        text("node.pem"),
        text("node.key"),
        text("users.pem")
    );
    let mut site = Site::new(dir, &["--tls", &tls, "--allow-root"]);
    let (ca, certificate, key) = (text("nodes.pem"), text("me.pem"), text("me.key"));
    let mine = [
        "--tls-ca",
        &ca,
        "--tls-cert",
        &certificate,
        "--tls-key",
        &key,
    ];
    site.both_work(&mine);
    // Who says nothing, or believes another authority, stays outside.
    for wrong in [
        &[][..],
        &[
            "--tls-ca",
            &text("users.pem"),
            "--tls-cert",
            &certificate,
            "--tls-key",
            &key,
        ],
    ] {
        let said = site.run(wrong, "true");
        assert_eq!(said.code, Some(125), "{}", said.err);
        assert!(said.err.contains("cannot forward"), "{}", said.err);
    }
    let said = site.run(&["--tls-ca", &ca], "true");
    assert_eq!(said.code, Some(2), "{}", said.err);
    assert!(said.err.contains("--tls-cert"), "{}", said.err);
}
