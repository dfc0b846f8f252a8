//! The switchboard: what it hands over works, and nobody else gets anything, and nobody waits for ever.

mod common;

/// Whether clients may have threads of their own.
pub const THREADS: bool = true;

use common::Server;
use presagio_forward::switchboard::{Forwarded, Line, Switchboard};
use presagio_forward::{
    Address, Connected, Credential, File, Instance, LastResort, Options, Owner, Remote, Resort,
    Span,
};
use presagio_ionode::{Config, Node};
use presagio_ninep::{LockStatus, LockType, OpenFlags};
use presagio_storage::Directory;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect,
    listen, recv, send, socket_with,
};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn forwarded(server: &Server) -> Forwarded {
    Forwarded {
        prefix: b"/far".to_vec(),
        options: server.options(),
    }
}

fn seqpacket() -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
}

fn abstract_name(name: &str) -> SocketAddrUnix {
    SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()
}

#[test]
fn what_is_forwarded_is_told_and_a_descriptor_that_is_handed_over_works() {
    let server = Server::start();
    let switchboard = Switchboard::open(vec![forwarded(&server)]).unwrap();
    let name = switchboard.name().to_owned();
    let _serving = switchboard.serve().unwrap();
    let all = Line::call(&name).unwrap().exports().unwrap();
    let [one] = &all[..] else {
        panic!("{all:?}");
    };
    assert_eq!(one.prefix, b"/far");
    assert_eq!(one.options.export, server.options().export);
    assert!(one.options.dial.is_some() && !one.options.threads);
    let mut options = one.options.clone();
    // It is not by this that nodes are reached.
    options.nodes = presagio_forward::Address::list("unix:/nowhere").unwrap();
    let remote = Remote::new(options).unwrap();
    let root = remote.root(rustix::process::geteuid().as_raw()).unwrap();
    let file = root.create("file", OpenFlags::RDWR, 0o644, 0).unwrap();
    assert_eq!(file.write_at(0, b"forwarded").unwrap(), 9);
    let path = server.export().join("file");
    assert_eq!(std::fs::read(path).unwrap(), b"forwarded");
}

#[test]
fn programs_come_back_to_a_node_that_was_killed_through_it() {
    let mut server = Server::start();
    let switchboard = Switchboard::open(vec![forwarded(&server)]).unwrap();
    let name = switchboard.name().to_owned();
    let _serving = switchboard.serve().unwrap();
    let mut all = Line::call(&name).unwrap().exports().unwrap();
    let remote = Remote::new(all.remove(0).options).unwrap();
    let root = remote.root(rustix::process::geteuid().as_raw()).unwrap();
    let file = root.create("file", OpenFlags::RDWR, 0o644, 0).unwrap();
    server.kill();
    server.start_again();
    assert_eq!(file.write_at(0, b"again").unwrap(), 5);
    assert!(remote.status().connections > 1);
}

/// Its node is killed, and is back before the next program begins.
#[test]
fn who_begins_later_begins_where_others_of_the_run_went() {
    let directory = tempfile::tempdir().unwrap();
    let (one, first) = patient_node(directory.path(), "one");
    let (two, second) = patient_node(directory.path(), "two");
    let mut options = Options::new(vec![first, second]);
    options.owners = Some(Instance([7; 16]));
    let prefix = b"/far".to_vec();
    let switchboard = Switchboard::open(vec![Forwarded { prefix, options }]).unwrap();
    let name = switchboard.name().to_owned();
    let _serving = switchboard.serve().unwrap();
    let begin = || {
        let mut all = Line::call(&name).unwrap().exports().unwrap();
        let remote = Remote::new(all.remove(0).options).unwrap();
        let root = remote.root(rustix::process::geteuid().as_raw()).unwrap();
        (remote, root)
    };
    let at = |remote: &Remote| remote.status().node.expect("a node");
    let (earlier, root) = begin();
    let before = at(&earlier);
    assert_eq!(at(&begin().0), before, "all begin at the same");
    let (lost, socket, other) = match before.contains("/one") {
        true => (one, "one", two),
        false => (two, "two", one),
    };
    drop(lost);
    root.getattr().unwrap();
    assert_ne!(at(&earlier), before, "it has lost its node");
    let back = patient_node(directory.path(), socket);
    let (later, root) = begin();
    assert_eq!(at(&later), at(&earlier));
    // And if that one is lost too, back again.
    drop(other);
    root.getattr().unwrap();
    assert_eq!(at(&later), before);
    assert_eq!(at(&begin().0), before);
    drop(back);
}

#[test]
fn an_error_of_the_dialling_arrives() {
    let mut server = Server::start();
    let switchboard = Switchboard::open(vec![forwarded(&server)]).unwrap();
    let name = switchboard.name().to_owned();
    let _serving = switchboard.serve().unwrap();
    server.kill();
    let all = Line::call(&name).unwrap().exports().unwrap();
    let dial = all[0].options.dial.clone().unwrap();
    let error = (dial.0)(0, Duration::from_secs(20)).err().unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    let error = (dial.0)(7, Duration::from_secs(20)).err().unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}

#[test]
fn a_credential_is_made_by_who_runs_the_command() {
    let server = Server::start();
    let mut one = forwarded(&server);
    one.options.credential = Some(Credential(Arc::new(|| Ok(b"MUNGE:x:".to_vec()))));
    let switchboard = Switchboard::open(vec![one]).unwrap();
    let name = switchboard.name().to_owned();
    let _serving = switchboard.serve().unwrap();
    let all = Line::call(&name).unwrap().exports().unwrap();
    let credential = all[0].options.credential.clone().unwrap();
    assert_eq!((credential.0)().unwrap(), b"MUNGE:x:");
}

/// A way around the nodes that everybody is to use.
struct Around(std::path::PathBuf);

impl Resort for Around {
    fn connect(self: Arc<Self>, _: Duration) -> std::io::Result<Connected> {
        Ok(Box::new(UnixStream::connect(&self.0)?))
    }

    fn is_used(&self) -> bool {
        true
    }
}

#[test]
fn the_last_resort_is_handed_over_and_while_it_is_used_no_node_is() {
    let server = Server::start();
    let mut one = forwarded(&server);
    let presagio_forward::Address::Unix(socket) = &one.options.nodes[0] else {
        panic!("{one:?}");
    };
    one.options.last_resort = Some(LastResort(Arc::new(Around(socket.clone()))));
    let switchboard = Switchboard::open(vec![one, forwarded(&server)]).unwrap();
    let name = switchboard.name().to_owned();
    let _serving = switchboard.serve().unwrap();
    let all = Line::call(&name).unwrap().exports().unwrap();
    assert!(all[1].options.last_resort.is_none());
    let dial = all[0].options.dial.clone().unwrap();
    let error = (dial.0)(0, Duration::from_secs(20)).err().unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    let remote = Remote::new(all[0].options.clone()).unwrap();
    let root = remote.root(rustix::process::geteuid().as_raw()).unwrap();
    root.create("file", OpenFlags::RDWR, 0o644, 0).unwrap();
    assert!(server.export().join("file").exists());
    let node = remote.status().node.unwrap();
    assert!(node.contains("last resort"), "{node}");
}

#[test]
fn garbage_gets_no_answer_and_does_no_harm() {
    let server = Server::start();
    let switchboard = Switchboard::open(vec![forwarded(&server)]).unwrap();
    let name = switchboard.name().to_owned();
    let _serving = switchboard.serve().unwrap();
    for garbage in [
        &b"x"[..],
        b"\x03\x09aaaabbbb",
        b"\x01\x01\0\0\0\0\0\0\0\0",
        &[1; 4000],
    ] {
        let socket = seqpacket();
        connect(&socket, &abstract_name(&name)).unwrap();
        send(&socket, garbage, SendFlags::NOSIGNAL).unwrap();
        let mut answer = [0; 100];
        let (count, _) = recv(&socket, &mut answer, RecvFlags::empty()).unwrap_or((0, 0));
        assert_eq!(count, 0, "{garbage:?}");
    }
    assert_eq!(Line::call(&name).unwrap().exports().unwrap().len(), 1);
}

#[test]
fn a_switchboard_that_is_gone_is_an_error_at_once() {
    let server = Server::start();
    let switchboard = Switchboard::open(vec![forwarded(&server)]).unwrap();
    let name = switchboard.name().to_owned();
    let serving = switchboard.serve().unwrap();
    let all = Line::call(&name).unwrap().exports().unwrap();
    drop(serving);
    let error = Line::call(&name).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    let mut options = all[0].options.clone();
    options.patience = Duration::from_millis(200);
    let remote = Remote::new(options).unwrap();
    assert_eq!(remote.root(0).unwrap_err(), presagio_ninep::Errno::IO);
}

/// One that takes questions and never answers: opened, and not served.
#[test]
fn a_switchboard_that_does_not_answer_is_not_waited_for_for_ever() {
    let server = Server::start();
    let switchboard = Switchboard::open(vec![forwarded(&server)]).unwrap();
    let line = Line::call(switchboard.name()).unwrap();
    let start = Instant::now();
    line.exports().unwrap_err();
    // It says 5 seconds; a machine under load may add some.
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[test]
fn what_a_stranger_runs_under_the_name_is_not_believed() {
    if !common::is_root("being somebody else") {
        return;
    }
    let name = format!("presagio-test-{}", std::process::id());
    // The listener's credentials are of when it listens; so another process, of another user, does.
    let script = "import socket,sys,time\n\
        s=socket.socket(socket.AF_UNIX,socket.SOCK_SEQPACKET)\n\
        s.bind('\\0'+sys.argv[1]); s.listen(8); print('ready',flush=True); time.sleep(60)";
    let mut stranger = Command::new("python3")
        .args(["-c", script, &name])
        .uid(65_534)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = [0; 5];
    let output = stranger.stdout.as_mut().unwrap();
    std::io::Read::read_exact(output, &mut ready).unwrap();
    let called = Line::call(&name);
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    let error = called.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
}

#[test]
fn another_user_gets_nothing() {
    if !common::is_root("being somebody else") {
        return;
    }
    let server = Server::start();
    let switchboard = Switchboard::open(vec![forwarded(&server)]).unwrap();
    let name = switchboard.name().to_owned();
    let _serving = switchboard.serve().unwrap();
    let script = "import socket,sys\n\
        s=socket.socket(socket.AF_UNIX,socket.SOCK_SEQPACKET)\n\
        s.connect('\\0'+sys.argv[1])\n\
        try:\n s.send(bytes([3,1]+[0]*24)); print(len(s.recv(100000)))\n\
        except OSError: print(0)";
    let ask = |uid: u32| {
        let mut python = Command::new("python3");
        let output = python
            .args(["-c", script, &name])
            .uid(uid)
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    assert_eq!(ask(65_534), "0");
    assert_ne!(ask(0), "0");
}

#[test]
fn an_abstract_name_that_nobody_serves_is_no_switchboard() {
    let socket = seqpacket();
    let name = format!("presagio-none-{}", std::process::id());
    bind(&socket, &abstract_name(&name)).unwrap();
    Line::call(&name).unwrap_err();
    listen(&socket, 1).unwrap();
    Line::call(&name).unwrap();
}

const AS_PROGRAM: &str = "PRESAGIO_TEST_SWITCHBOARD";

fn taken(file: &File, owner: u64) -> LockStatus {
    let (process, key) = (owner as u32, owner);
    let status = file.lock(Owner { process, key }, LockType::Write, Span::ALL);
    status.unwrap()
}

/// No test: a program that another test starts and kills, with a lock.
#[test]
fn a_program_that_has_a_lock() {
    let Some(name) = std::env::var_os(AS_PROGRAM) else {
        return;
    };
    let line = Line::call(name.to_str().unwrap()).unwrap();
    let remote = Remote::new(line.exports().unwrap().remove(0).options).unwrap();
    let root = remote.root(rustix::process::geteuid().as_raw()).unwrap();
    let file = root.walk("locked").unwrap().open(OpenFlags::RDWR).unwrap();
    assert_eq!(taken(&file, 1), LockStatus::Success);
    println!("locked");
    std::io::stdin().read_exact(&mut [0]).unwrap_err();
}

/// Starts it, and waits until it has the lock.
fn program_with_lock(switchboard: &str) -> std::process::Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_program_that_has_a_lock", "--nocapture"]);
    command.env(AS_PROGRAM, switchboard);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = piped.spawn().unwrap();
    let (output, mut said) = (program.stdout.as_mut().unwrap(), String::new());
    let mut byte = [0];
    while !said.contains("locked\n") {
        output.read_exact(&mut byte).expect("it has the lock");
        said.push(byte[0].into());
    }
    program
}

/// A node that would keep the locks of who is lost for an hour.
fn patient_node(export: &Path, socket: &str) -> (Node, Address) {
    let mut config = Config::new(export);
    config.grace = Duration::from_secs(3600);
    let address = Address::Unix(export.join(socket));
    let addresses = std::slice::from_ref(&address);
    let node = Node::start(config, Arc::new(Directory), addresses, false).unwrap();
    (node, address)
}

/// A file of a client of its own, at this node.
fn opened(node: &Address, name: &str) -> File {
    let remote = Remote::new(Options::new(vec![node.clone()])).unwrap();
    let root = remote.root(rustix::process::geteuid().as_raw()).unwrap();
    root.walk(name).unwrap().open(OpenFlags::RDWR).unwrap()
}

fn wait_for_lock(file: &File, why: &str) {
    let late = Instant::now() + Duration::from_secs(60);
    while taken(file, 2) != LockStatus::Success {
        assert!(Instant::now() < late, "the dead have it: {why}");
        std::thread::sleep(Duration::from_millis(2));
    }
    let owner = Owner { process: 2, key: 2 };
    file.lock(owner, LockType::Unlock, Span::ALL).unwrap();
}

#[test]
fn the_locks_of_a_program_that_is_killed_end_with_it() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("locked"), "").unwrap();
    let (_node, address) = patient_node(directory.path(), "socket");
    let at_node = Forwarded {
        prefix: b"/far".to_vec(),
        options: Options::new(vec![address.clone()]),
    };
    let mut around = at_node.clone();
    around.options.nodes = Address::list("unix:/nowhere").unwrap();
    let socket = directory.path().join("socket");
    around.options.last_resort = Some(LastResort(Arc::new(Around(socket))));
    let file = opened(&address, "locked");
    // While the switchboard serves; and one that is killed just before that ends; and where there is no node.
    for (one, ends_first, why) in [
        (&at_node, false, "it serves"),
        (&at_node, true, "it ends"),
        (&around, false, "no node"),
    ] {
        let switchboard = Switchboard::open(vec![one.clone()]).unwrap();
        let name = switchboard.name().to_owned();
        let serving = switchboard.serve().unwrap();
        let mut program = program_with_lock(&name);
        assert_eq!(taken(&file, 2), LockStatus::Blocked);
        program.kill().unwrap();
        program.wait().unwrap();
        let serving = (!ends_first).then_some(serving);
        wait_for_lock(&file, why);
        drop(serving);
    }
}

#[test]
fn every_node_is_told_of_a_client_that_is_dead() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("locked"), "").unwrap();
    std::fs::write(directory.path().join("other"), "").unwrap();
    let (_one, first) = patient_node(directory.path(), "one");
    let (_two, second) = patient_node(directory.path(), "two");
    let places = [(&first, "locked"), (&second, "other")];
    let dead = places.map(|(node, name)| {
        let file = opened(node, name);
        assert_eq!(taken(&file, 1), LockStatus::Success);
        file
    });
    let clients: Vec<Instance> = dead.iter().map(File::client).collect();
    let nowhere = Address::Unix(directory.path().join("nowhere"));
    let all = vec![first.clone(), nowhere, second.clone()];
    let remote = Remote::new(Options::new(all)).unwrap();
    let uid = rustix::process::geteuid().as_raw();
    // It talks to one of them, and has to find the other.
    let _root = remote.root(uid).unwrap();
    remote.died(uid, &clients);
    for (node, name) in places {
        assert_eq!(taken(&opened(node, name), 2), LockStatus::Success, "{name}");
    }
    assert_eq!(remote.status().connections, 1, "its own goes on");
}

/// Whoever connects there is not even seen.
#[test]
fn many_nodes_that_are_silent_keep_who_tells_them_no_longer_than_one() {
    let directory = tempfile::tempdir().unwrap();
    let (_node, well) = patient_node(directory.path(), "well");
    let silent: Vec<_> = (0..40)
        .map(|i| directory.path().join(format!("silent{i}")))
        .collect();
    let _listeners: Vec<_> = silent
        .iter()
        .map(|path| std::os::unix::net::UnixListener::bind(path).unwrap())
        .collect();
    let mut all: Vec<Address> = silent.into_iter().map(Address::Unix).collect();
    all.insert(20, well.clone());
    let uid = rustix::process::geteuid().as_raw();
    for (threads, name) in [(true, "one"), (false, "other")] {
        std::fs::write(directory.path().join(name), "").unwrap();
        let dead = opened(&well, name);
        assert_eq!(taken(&dead, 1), LockStatus::Success);
        let mut options = Options::new(all.clone());
        options.threads = threads;
        let remote = Remote::new(options).unwrap();
        let began = Instant::now();
        remote.died(uid, &[dead.client()]);
        // One after the other they would take 80 s.
        assert!(began.elapsed() < Duration::from_secs(40));
        if threads {
            assert_eq!(taken(&opened(&well, name), 2), LockStatus::Success);
        }
    }
}
