//! The switchboard: what it hands over works, and nobody else gets anything, and nobody waits for ever.

mod common;

/// Whether clients may have threads of their own.
pub const THREADS: bool = true;

use common::Server;
use presagio_forward::switchboard::{Forwarded, Line, Switchboard};
use presagio_forward::{Credential, Remote};
use presagio_ninep::OpenFlags;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect,
    listen, recv, send, socket_with,
};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn forwarded(server: &Server) -> Forwarded {
    Forwarded {
        prefix: b"/far".to_vec(),
        shadow: "/run/shadow".into(),
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

#[test]
fn an_error_of_the_dialling_arrives() {
    let mut server = Server::start();
    let switchboard = Switchboard::open(vec![forwarded(&server)]).unwrap();
    let name = switchboard.name().to_owned();
    let _serving = switchboard.serve().unwrap();
    server.kill();
    let all = Line::call(&name).unwrap().exports().unwrap();
    let dial = all[0].options.dial.clone().unwrap();
    let error = (dial.0)(0).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    let error = (dial.0)(7).unwrap_err();
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

#[test]
fn garbage_gets_no_answer_and_does_no_harm() {
    let server = Server::start();
    let switchboard = Switchboard::open(vec![forwarded(&server)]).unwrap();
    let name = switchboard.name().to_owned();
    let _serving = switchboard.serve().unwrap();
    for garbage in [
        &b"x"[..],
        b"\x01\x09aaaabbbb",
        b"\x02\x01\0\0\0\0\0\0\0\0",
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
    if !rustix::process::geteuid().is_root() {
        return; // only root can be somebody else
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
    if !rustix::process::geteuid().is_root() {
        return; // only root can be somebody else
    }
    let server = Server::start();
    let switchboard = Switchboard::open(vec![forwarded(&server)]).unwrap();
    let name = switchboard.name().to_owned();
    let _serving = switchboard.serve().unwrap();
    let script = "import socket,sys\n\
        s=socket.socket(socket.AF_UNIX,socket.SOCK_SEQPACKET)\n\
        s.connect('\\0'+sys.argv[1])\n\
        try:\n s.send(bytes([1,1]+[0]*8)); print(len(s.recv(100000)))\n\
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
