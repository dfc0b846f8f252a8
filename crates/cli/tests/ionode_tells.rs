//! What a node says of what it does: by job in its metrics, and line by line in its log.

mod common;

use common::apart::apart;
use common::nodes::{Mounted, Node, Running, pattern, until};
use common::{TempDir, library, presagio, presagio_ok, program};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const BOUND: Duration = Duration::from_secs(120);

/// Where programs find what is forwarded. There is no such directory on this machine.
const FAR: &str = "/presagio-far-away";

/// What the clients of job 42 have written.
fn written(node: &Node) -> u64 {
    let control = format!("{}.control", node.at.text());
    let status = presagio_ok(&["ionode", "status", &control]).json();
    status["jobs"]["42"]["written_bytes"].as_u64().unwrap_or(0)
}

fn export(dir: &Path) -> Node {
    let export = dir.join("export");
    fs::create_dir(&export).unwrap();
    Node::unix(dir, "socket", &export, &[])
}

#[test]
fn what_a_job_writes_without_a_mount_is_counted_as_its_own() {
    let dir = TempDir::new("tells-run");
    let dir = Path::new(dir.path());
    let node = export(dir);
    fs::write(dir.join("in"), pattern(1, 300_000)).unwrap();
    let forward = format!("{FAR}={}", node.at.text());
    let copy = "cp in $FAR/out && cat in >> $FAR/out";
    let mut run = Command::new(program());
    run.args([
        "run",
        "--quiet",
        "--forward",
        &forward,
        "--",
        "bash",
        "-c",
        copy,
    ]);
    run.env("PRESAGIO_LIB", library()).env("SLURM_JOB_ID", "42");
    let status = run.env("FAR", FAR).current_dir(dir).status().unwrap();
    assert!(status.success());
    assert_eq!(fs::metadata(dir.join("export/out")).unwrap().len(), 600_000);
    assert_eq!(written(&node), 600_000, "appends too");
}

#[test]
fn what_a_job_writes_through_a_mount_is_counted_as_its_own() {
    apart(
        "what_a_job_writes_through_a_mount_is_counted_as_its_own",
        BOUND,
        |dir| {
            let node = export(dir);
            let mount = Mounted::start_with(
                &[("SLURM_JOB_ID", "42")],
                &[&node.at],
                &dir.join("mnt"),
                None,
                &[],
            );
            fs::write(mount.path("out"), pattern(2, 300_000)).unwrap();
            assert_eq!(written(&node), 300_000);
        },
    );
}

/// Says what no node takes; then the node is told to end.
#[test]
fn with_log_json_each_line_is_json() {
    let dir = TempDir::new("tells-json");
    let dir = Path::new(dir.path());
    fs::create_dir(dir.join("export")).unwrap();
    let (socket, log) = (dir.join("socket"), dir.join("log"));
    let mut node = Command::new(program());
    node.args(["ionode", "--log-json", "--log", "debug", "--export"]);
    node.arg(dir.join("export")).arg("--listen");
    node.arg(format!("unix:{}", socket.display()));
    let mut node = node
        .stdin(Stdio::null())
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    until("the node listens", || UnixStream::connect(&socket).is_ok());
    refused(&socket);
    let said = || fs::read_to_string(&log).unwrap();
    // The node says that it listens after it does: the refusal may be told first.
    until("both are told", || {
        said().contains("\"audit\"") && said().contains("on unix:")
    });
    node.kill().unwrap();
    node.wait().unwrap();
    let lines: Vec<Value> = said()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let is_audit = |line: &Value| line["target"] == "audit" && line["level"] == "WARN";
    let message = |line: &Value| line["fields"]["message"].as_str().map(str::to_owned);
    let starts = lines.iter().filter_map(message);
    let listens = format!("on unix:{}", socket.display());
    assert!(starts.into_iter().any(|line| line.ends_with(&listens)));
    let audit: Vec<_> = lines.iter().filter(|line| is_audit(line)).collect();
    assert_eq!(audit.len(), 1, "{lines:?}");
    let said = audit[0]["fields"]["message"].as_str().unwrap();
    assert!(said.contains("fid 7 was not made by Tauth"), "{said}");
}

/// Names a credential where none was asked for.
fn refused(socket: &Path) {
    use presagio_ninep::client::{Client, Options};
    use presagio_ninep::{Fid, Request, Text};
    let client = Client::unix(socket, &Options::default()).unwrap();
    let nothing = Text::new("").unwrap();
    let attach = Request::Attach {
        fid: Fid(0),
        auth_fid: Fid(7),
        user: nothing,
        export: nothing,
        uid: 0,
    };
    assert!(client.call(attach).is_err());
}

/// What a node says to a request over HTTP: the status, and what is below the head.
fn http(at: &str, method: &str, target: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(at).unwrap();
    write!(stream, "{method} {target} HTTP/1.0\r\nHost: node\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

/// Whoever can reach the machine can reach a TCP address: it tells, and takes no orders.
#[test]
fn where_prometheus_reads_no_orders_are_taken() {
    let dir = TempDir::new("tells-metrics");
    let dir = Path::new(dir.path());
    fs::create_dir(dir.join("export")).unwrap();
    fs::write(dir.join("trace"), "").unwrap();
    let (listen, log) = (
        format!("unix:{}", dir.join("socket").display()),
        dir.join("log"),
    );
    let mut node = Command::new(program());
    node.args(["ionode", "--policy", "SJF", "--metrics", "tcp:127.0.0.1:0"])
        .args(["--listen", &listen, "--export"])
        .arg(dir.join("export"))
        .stderr(fs::File::create(&log).unwrap());
    let node = Running::start(node);
    // It says which port it got.
    let mut at = None;
    until("Prometheus can read", || {
        let said = fs::read_to_string(&log).unwrap();
        let port = said.split_once("status on tcp:");
        let port = port.and_then(|(_, rest)| rest.split_once('\n'));
        at = port.map(|(port, _)| port.to_owned());
        at.is_some()
    });
    let at = at.unwrap();
    let metrics = format!("tcp:{at}");
    let (status, page) = http(&at, "GET", "/metrics");
    assert_eq!(status, 200);
    assert!(page.contains("\npresagio_ionode_connections "), "{page}");
    let status = || presagio_ok(&["ionode", "status", &metrics]).json();
    let before = status();
    assert_eq!(before["policy"], "SJF");
    let (record, trace) = (dir.join("made").display().to_string(), dir.join("trace"));
    for (method, target) in [
        ("POST", "/policy?name=NOOP".to_owned()),
        ("POST", format!("/record?file={record}")),
        ("DELETE", "/record".to_owned()),
        ("POST", format!("/foresight?file={}", trace.display())),
        ("POST", "/foresight?clients=off".to_owned()),
        ("DELETE", "/foresight".to_owned()),
        ("PUT", "/policy?name=NOOP".to_owned()),
    ] {
        let (status, why) = http(&at, method, &target);
        assert_eq!(status, 403, "{method} {target}: {why}");
        assert!(why.contains("Unix socket"), "{why}");
    }
    assert!(!Path::new(&record).exists(), "no file is made");
    let after = status();
    assert_eq!(after["policy"], "SJF");
    assert_eq!(after["recording"], Value::Null);
    assert_eq!(after["foresight"]["hears_clients"], true);
    assert_eq!(http(&at, "GET", "/policy?name=NOOP").0, 404);
    drop(node);
}

#[test]
fn a_node_that_does_not_answer_is_not_waited_for_for_ever() {
    let dir = TempDir::new("tells-frozen");
    let node = export(Path::new(dir.path()));
    let control = format!("{}.control", node.at.text());
    let answers = || presagio(&["ionode", "status", &control]).code == Some(0);
    until("it answers", answers);
    node.freeze();
    let mut status = Command::new("timeout");
    status.args(["60", program(), "ionode", "status", &control]);
    let said = status.output().unwrap();
    node.thaw();
    let err = String::from_utf8_lossy(&said.stderr);
    assert_eq!(said.status.code(), Some(2), "{err}");
    assert!(err.contains("no answer within"), "{err}");
}

/// What foresight weighs waits by is what the storage takes, as its profile says; without one it is what was seen or, before
/// that, supposed.
#[test]
fn a_node_that_is_given_a_profile_knows_what_its_storage_takes() {
    let dir = TempDir::new("tells-profile");
    let dir = Path::new(dir.path());
    fs::create_dir(dir.join("export")).unwrap();
    let profile = dir.join("disk.json");
    let profile = profile.to_str().unwrap();
    presagio_ok(&["profile", "--emulated", "hdd", "-o", profile]);
    let took = |name: &str, more: &[&str]| {
        let node = Node::unix(dir, name, &dir.join("export"), more);
        until("the node takes orders", || {
            UnixStream::connect(dir.join(format!("{name}.control"))).is_ok()
        });
        let control = format!("{}.control", node.at.text());
        let status = presagio_ok(&["ionode", "status", &control]).json();
        let times = &status["foresight"]["request_64kib_us"];
        ["read", "write"].map(|op| times[op].as_f64().unwrap())
    };
    assert!(took("plain", &[]).iter().all(|us| *us < 1000.0));
    for (name, given) in [("file", profile), ("model", "hdd")] {
        // Half a turn of the platters and a short seek.
        let times = took(name, &["--profile", given]);
        assert!(
            times.iter().all(|us| (3000.0..30_000.0).contains(us)),
            "{given}: {times:?}"
        );
    }
}

#[test]
fn what_a_node_or_mount_cannot_do_is_said_with_what_to_do() {
    let dir = TempDir::new("tells-wrong");
    let path = |name: &str| format!("{}/{name}", dir.path());
    fs::create_dir(path("export")).unwrap();
    fs::write(path("file"), "").unwrap();
    let (export, socket) = (path("export"), format!("unix:{}", path("socket")));
    let node = ["ionode", "--export", &export, "--listen"];
    let cases: &[(&[&str], &[&str])] = &[
        (
            &["tcp:0.0.0.0:0"],
            &["other machines", "--auth munge or --tls", "--trust-network"],
        ),
        (&["unix:/no/such/socket"], &["a directory that is there"]),
        (&[&socket, "--depth", "0"], &["--depth"]),
        (&[&socket, "--window", "0"], &["--window"]),
        (&[&socket, "--control", "tcp:127.0.0.1:0"], &["unix:PATH"]),
        (
            &[&socket, "--profile", "/no/such/profile"],
            &["/no/such/profile", "presagio profile -o"],
        ),
        (
            &[&socket, "--foresight", "/no/such/trace"],
            &["/no/such/trace", "name a trace"],
        ),
    ];
    let refused = |arguments: &[&str], words: &[&str]| {
        let said = presagio(arguments);
        assert_eq!(said.code, Some(2), "{arguments:?}: {}", said.err);
        for word in words {
            assert!(said.err.contains(word), "{arguments:?}: {}", said.err);
        }
    };
    for (arguments, words) in cases {
        refused(&[&node, *arguments].concat(), words);
    }
    refused(
        &["ionode", "--export", "/no/such/place", "--listen", &socket],
        &["a directory that is there"],
    );
    let mount = ["mount", &socket, "--patience", "0.1"];
    let waits = ["no node answers yet", &socket, "waiting for 0.1 s"];
    refused(&[&mount[..], &[&export]].concat(), &waits);
    refused(
        &[&mount[..], &[&path("file")]].concat(),
        &["not a directory"],
    );
    refused(
        &[&mount[..], &[&export, "--direct", "/no/such/place"]].concat(),
        &["/no/such/place is no directory yet"],
    );
}
