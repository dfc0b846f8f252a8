//! How many connections a user may have, who may reach a socket, and that each refusal is counted and audited once.

mod auth;
mod common;

use auth::munged::Munged;
use auth::{Guarded, audited, open_to_all};
use common::users::{To, command_as, kind_and_errno, talk_as};
use common::{errno, is_root, options, own_uid, refused, rw_file, wait_until};
use presagio_ionode::{Address, Config, Node, TcpProof};
use presagio_ninep::client::Client;
use presagio_ninep::extension::{Resumed, Wrapped};
use presagio_ninep::session::Session;
use presagio_ninep::{Errno, Fid, Name, OpenFlags, Reply, Request, Text, UnlinkFlags};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

/// Set in a process that is a node, not a test: the directory of that node.
const AS_NODE: &str = "PRESAGIO_TEST_NODE";

fn unix(node: &Guarded) -> Option<Client> {
    Client::unix(&node.socket(), &options()).ok()
}

#[test]
fn a_user_has_only_so_many_connections() {
    let node = Guarded::with(|config| config.connections_per_user_max = 3);
    let mut held: Vec<Client> = (0..3).map(|_| unix(&node).expect("allowed")).collect();
    assert!(unix(&node).is_none());
    assert_eq!(node.refused(), 1);
    let text = format!("uid {} has 3 connections", own_uid());
    assert_eq!(audited(&text).len(), 1);
    if is_root("other users") {
        let attach = attach(64_001);
        let replies = talk_as(64_001, 64_001, &To::Unix(&node.socket()), &[attach]);
        assert_eq!(kind_and_errno(&replies[0]).1, None);
    }
    held.pop();
    wait_until("one has left", || node.connections() == 2);
    held.push(unix(&node).expect("there is room again"));
    // Over TCP, the kernel says that it is the same user.
    assert!(Client::tcp(node.tcp(), &options()).is_err());
    assert_eq!(node.refused(), 2);
    rw_file(
        &Session::new(held.remove(0))
            .attach("", "/", own_uid())
            .unwrap(),
        "file",
    );
}

#[test]
fn all_users_together_have_only_so_many_connections() {
    let node = Guarded::with(|config| config.connections_max = 2);
    let _held: Vec<Client> = (0..2).map(|_| unix(&node).expect("allowed")).collect();
    assert!(unix(&node).is_none());
    assert_eq!(node.refused(), 1);
    assert_eq!(audited("there are 2 connections").len(), 1);
}

#[test]
fn who_is_known_by_a_credential_has_only_so_many_connections() {
    let munged = Munged::start();
    let node = Guarded::with(|config| {
        config.connections_per_user_max = 2;
        config.allow_root = true;
        config.tcp = TcpProof::Munge {
            socket: Some(munged.socket()),
        };
    });
    let attach = || {
        let client = Client::tcp(node.tcp(), &options()).expect("the node listens");
        let session = Session::new(client);
        let root = session.attach_with("", "/", own_uid(), || Ok(munged.own()));
        (session, root)
    };
    let (first, root) = attach();
    root.expect("the first");
    // The same connection again is the same connection.
    let again = first.attach_with("", "/", own_uid(), || Ok(munged.own()));
    again.expect("counted already");
    let (_second, root) = attach();
    root.expect("the second");
    let (third, root) = attach();
    refused(root, errno(libc::EUSERS));
    assert_eq!(node.refused(), 1);
    drop(third);
    drop(first);
    wait_until("it was counted out", || {
        let (_session, root) = attach();
        root.is_ok()
    });
}

fn attach(uid: u32) -> Request<'static> {
    Request::Attach {
        fid: Fid(0),
        auth_fid: Fid::NONE,
        user: Text::new("").unwrap(),
        export: Text::new("/").unwrap(),
        uid,
    }
}

#[test]
fn attaching_as_another_is_audited_once() {
    if !is_root("other users") {
        return;
    }
    let node = Guarded::with(|_| {});
    for to in [To::Unix(&node.socket()), To::Tcp(node.tcp())] {
        let before = node.refused();
        let requests = [attach(64_011), attach(64_010)];
        let replies = talk_as(64_010, 64_010, &to, &requests);
        assert_eq!(kind_and_errno(&replies[0]).1, Some(Errno::PERM.0));
        assert_eq!(kind_and_errno(&replies[1]).1, None);
        assert_eq!(node.refused(), before + 1);
    }
    let lines = audited("uid 64010 refused: attach");
    assert_eq!(lines.len(), 2, "{lines:?}");
}

#[test]
fn every_attempt_to_change_a_read_only_export_is_audited_once() {
    let node = Guarded::with(|config| config.read_only = true);
    std::fs::write(node.path("file"), "content").unwrap();
    let client = unix(&node).unwrap();
    client.call(hello([0x47; 16], [0; 16])).unwrap();
    let session = Session::new(client);
    let root = session.attach("", "/", own_uid()).unwrap();
    let file = || root.walk("file").unwrap();
    refused(root.create("new", OpenFlags::RDWR, 0o600), Errno::ROFS);
    refused(root.unlink("file", UnlinkFlags(0)), Errno::ROFS);
    refused(file().open(OpenFlags::WRONLY), Errno::ROFS);
    let make = Request::Mkdir {
        dir: root.fid(),
        name: Name::new("new").unwrap(),
        mode: 0o700,
        gid: u32::MAX,
    };
    let once = Request::Once {
        sequence: 1,
        settled: 0,
        request: Wrapped::new(&make).unwrap(),
    };
    refused(session.client().call(once), Errno::ROFS);
    file().open(OpenFlags::RDONLY).unwrap();
    assert_eq!(node.refused(), 4);
    assert_eq!(audited("what is exported to be read only").len(), 4);
}

#[test]
fn a_credential_where_none_is_asked_for_is_refused_and_audited() {
    let node = Guarded::with(|_| {});
    let client = unix(&node).unwrap();
    let attach = Request::Attach {
        fid: Fid(0),
        auth_fid: Fid(64_020),
        user: Text::new("").unwrap(),
        export: Text::new("/").unwrap(),
        uid: own_uid(),
    };
    refused(client.call(attach), Errno::BADF);
    assert_eq!(node.refused(), 1);
    assert_eq!(audited("fid 64020 was not made by Tauth").len(), 1);
}

fn hello(instance: [u8; 16], resume: [u8; 16]) -> Request<'static> {
    Request::Hello {
        instance,
        resume,
        client: Text::new("host").unwrap(),
        job: Text::new("").unwrap(),
        rank: 0,
        program: Text::new("").unwrap(),
    }
}

fn mkdir() -> Request<'static> {
    Request::Mkdir {
        dir: Fid(0),
        name: Name::new("dir").unwrap(),
        mode: 0o755,
        gid: u32::MAX,
    }
}

#[test]
fn what_was_answered_to_an_instance_is_for_who_has_its_token() {
    let node = Guarded::with(|_| {});
    let token = |client: &Client, resume| {
        let answer = client.call(hello([0x64; 16], resume)).expect("hello");
        match answer.reply() {
            Reply::Hello {
                resume, resumed, ..
            } => (resume, resumed),
            other => panic!("{other:?}"),
        }
    };
    let mkdir = mkdir();
    let once = Request::Once {
        sequence: 1,
        settled: 0,
        request: Wrapped::new(&mkdir).unwrap(),
    };
    let come = |resume| {
        let client = unix(&node).unwrap();
        let (token, resumed) = token(&client, resume);
        client.call(attach(own_uid())).expect("itself");
        (client, token, resumed)
    };
    let (one, its, resumed) = come([0; 16]);
    assert_eq!(resumed, Resumed::No);
    one.call(once).expect("something that is remembered");
    for guessed in [[0; 16], [1; 16]] {
        let (other, new, resumed) = come(guessed);
        assert!(resumed == Resumed::No && new != its && new != guessed);
        refused(other.call(once), Errno::EXIST);
    }
    let (again, same, resumed) = come(its);
    assert!(resumed == Resumed::Yes && same == its);
    again.call(once).expect("the answer of then");
    // Those who say nothing of themselves have such numbers.
    let client = unix(&node).unwrap();
    let plain = 7u128.to_be_bytes();
    refused(client.call(hello(plain, [0; 16])), Errno::INVAL);
}

#[test]
fn who_has_not_attached_leaves_nothing_in_the_export() {
    let node = Guarded::with(|_| {});
    let mkdir = mkdir();
    let once = Request::Once {
        sequence: 1,
        settled: 0,
        request: Wrapped::new(&mkdir).unwrap(),
    };
    let client = unix(&node).unwrap();
    client
        .call(hello([0x65; 16], [0; 16]))
        .expect("anybody may say hello");
    refused(client.call(once), Errno::BADF);
    let kept = |name| std::fs::read_dir(node.path(name)).unwrap().count();
    assert_eq!(kept(".presagio/once"), 0);
    let own = "as it was: once, unlinked, secret, the node's name";
    assert_eq!(kept(".presagio"), 4, "{own}");
    client.call(attach(own_uid())).expect("itself");
    client.call(once).expect("now it may");
    assert_eq!((kept(".presagio/once"), kept(".presagio")), (1, 5));
}

fn mode(path: &Path) -> u32 {
    let stat = std::fs::metadata(path).expect("a socket");
    stat.permissions().mode() & 0o777
}

#[test]
fn all_may_reach_the_socket_of_a_node_that_acts_for_all() {
    if !is_root("acting for all") {
        return;
    }
    let node = Guarded::with(|_| {});
    assert_eq!(mode(&node.socket()), 0o666);
}

#[test]
fn others_may_reach_the_socket_of_a_users_node_only_if_it_acts_for_them() {
    if !is_root("starting a node as another user") {
        return;
    }
    for (squash, wanted) in [("no", 0o600), ("yes", 0o666)] {
        let directory = tempfile::tempdir().unwrap();
        open_to_all(directory.path());
        let this = std::env::current_exe().unwrap();
        // The program itself may lie where only root can look.
        let copy = directory.path().join("node");
        std::fs::copy(this, &copy).unwrap();
        let mut command = command_as(64_030, 64_030, copy.to_str().unwrap());
        command.args(["--exact", "a_node_that_is_started", "--include-ignored"]);
        command.env(AS_NODE, directory.path()).env("SQUASH", squash);
        let piped = command.stdin(std::process::Stdio::piped());
        let mut child = piped.stdout(std::process::Stdio::null()).spawn().unwrap();
        let ready = directory.path().join("ready");
        wait_until("the node listens", || ready.exists());
        assert_eq!(mode(&directory.path().join("socket")), wanted);
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
}

/// No test: a node that another test starts as another user. It ends with its input.
#[test]
fn a_node_that_is_started() {
    let Some(directory) = std::env::var_os(AS_NODE) else {
        return;
    };
    let directory = Path::new(&directory);
    std::fs::create_dir(directory.join("export")).unwrap();
    let mut config = Config::new(directory.join("export"));
    config.squash = std::env::var_os("SQUASH").is_some_and(|squash| squash == "yes");
    let address = Address::Unix(directory.join("socket"));
    let storage = Arc::new(presagio_storage::Directory);
    let node = Node::start(config, storage, &[address], false).unwrap();
    std::fs::write(directory.join("ready"), "").unwrap();
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
    drop(node);
}
