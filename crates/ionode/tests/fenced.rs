//! What a client that was lost had still asked for is not done after it has gone on elsewhere.

mod common;

use common::gate::{Gate, Gated};
use common::{Exported, opened, options, pattern, read_all, rw_file, start, wait_until};
use presagio_ionode::{Address, Config, Node};
use presagio_ninep::client::{Ask, Client};
use presagio_ninep::session::{File, Session};
use presagio_ninep::{Data, Errno, Fid, GetAttr, OpenFlags, Reply, Request, Text, UnlinkFlags};
use presagio_storage::Directory;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

/// Says who it is; returns what to come back with.
fn hello(session: &Session, instance: u8, resume: [u8; 16]) -> [u8; 16] {
    let nothing = Text::new("").unwrap();
    let answer = session.client().call(Request::Hello {
        instance: [instance; 16],
        resume,
        client: nothing,
        job: nothing,
        rank: 0,
        program: nothing,
    });
    match answer.expect("hello").reply() {
        Reply::Hello { resume, .. } => resume,
        other => panic!("{other:?}"),
    }
}

/// A node that does one write at a time, behind a gate, which a write of another client has shut; and that client.
fn plugged() -> (Exported, Arc<Gate>, impl Drop) {
    let gate = Arc::new(Gate::default());
    let node = Exported::on(Arc::new(Gated(gate.clone())), |config| {
        config.depth = Some(1);
    });
    fs::write(node.path("file"), pattern(1, 1000)).unwrap();
    let (session, root) = node.connect();
    let plug = rw_file(&root, "plug");
    gate.shut_writes();
    let write = write(plug.fid(), b"plug");
    let ticket = session.client().submit(write).unwrap();
    gate.wait_for(1);
    (node, gate, Kept((session, root, plug, ticket)))
}

struct Kept<T>(#[allow(dead_code, reason = "it is there to be dropped")] T);

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {}
}

fn write(fid: Fid, bytes: &[u8]) -> Ask<'_> {
    let data = Data::new(bytes).unwrap();
    Ask::new(Request::Write {
        fid,
        offset: 0,
        data,
    })
}

/// Nothing is under way any more.
fn wait_until_idle(node: &Exported) {
    wait_until("the node has nothing to do", || {
        let engine = node.node().engine();
        engine.queued() + engine.in_flight() == 0
    });
}

#[test]
fn what_was_repeated_at_another_node_is_not_done_later() {
    let (slow, gate, _plug) = plugged();
    let (session, root) = slow.connect();
    let resume = hello(&session, 1, [0; 16]);
    let file = opened(&root, "file", OpenFlags::RDWR);
    let old = session.client().submit(write(file.fid(), b"old")).unwrap();
    wait_until("it waits in the node", || slow.node().engine().queued() > 0);
    // The client gives up, and goes to the other node.
    drop((old, file, root, session));
    let directory = tempfile::tempdir().unwrap();
    let address = Address::Unix(directory.path().join("socket"));
    let config = Config::new(slow.export());
    let other = start(config, Arc::new(Directory), std::slice::from_ref(&address));
    let client = Client::unix(&directory.path().join("socket"), &options()).unwrap();
    let session = Session::new(client);
    hello(&session, 1, resume);
    let root = session.attach("", "/", common::own_uid()).unwrap();
    let file = opened(&root, "file", OpenFlags::RDWR);
    assert_eq!(file.write_at(0, b"new").unwrap(), 3);
    gate.open();
    wait_until_idle(&slow);
    assert_eq!(&fs::read(slow.path("file")).unwrap()[..3], b"new");
    drop(other);
}

#[test]
fn who_comes_again_ends_what_it_had_asked_before() {
    let (node, gate, _plug) = plugged();
    let (first, root) = node.connect();
    let resume = hello(&first, 2, [0; 16]);
    let file = opened(&root, "file", OpenFlags::RDWR);
    let old = first.client().submit(write(file.fid(), b"old")).unwrap();
    wait_until("it waits in the node", || node.node().engine().queued() > 0);
    // The old connection is still there: a client that lost it may not know that.
    let (second, _) = node.connect();
    hello(&second, 2, resume);
    gate.open();
    common::refused(old.wait(), Errno::IO);
    let bytes = fs::read(node.path("file")).unwrap();
    assert!(bytes == pattern(1, 1000), "nothing was written");
    common::refused(root.walk("file"), Errno::IO);
}

#[test]
fn instances_that_differ_leave_each_other_alone() {
    let (node, gate, _plug) = plugged();
    let (first, root) = node.connect();
    hello(&first, 3, [0; 16]);
    let file = opened(&root, "file", OpenFlags::RDWR);
    let asked = first.client().submit(write(file.fid(), b"new")).unwrap();
    let (second, _) = node.connect();
    hello(&second, 4, [0; 16]);
    gate.open();
    asked.wait().expect("nothing has happened to it");
    assert_eq!(&fs::read(node.path("file")).unwrap()[..3], b"new");
}

/// A node on a directory that is there already; it may be started again.
/// Whoever comes back at once is in time, also on a machine that is busy; and a test can wait for its end.
const GRACE: Duration = Duration::from_secs(10);

fn node_on(directory: &tempfile::TempDir, grace: Duration) -> Node {
    let mut config = Config::new(directory.path().join("export"));
    config.grace = grace;
    let address = Address::Unix(directory.path().join("socket"));
    start(config, Arc::new(Directory), &[address])
}

fn connect(directory: &tempfile::TempDir) -> (Session, File) {
    let client = Client::unix(&directory.path().join("socket"), &options()).unwrap();
    let session = Session::new(client);
    let root = session.attach("", "/", common::own_uid()).unwrap();
    (session, root)
}

fn handle(session: &Session, file: &File) -> Vec<u8> {
    let answer = session.client().call(Request::Handle { fid: file.fid() });
    match answer.unwrap().reply() {
        Reply::Handle { handle } => handle.bytes().to_vec(),
        other => panic!("{other:?}"),
    }
}

/// What is in the file of a handle, opened again.
fn reopened(
    session: &Session,
    root: &File,
    fid: Fid,
    handle: &[u8],
) -> Result<Vec<u8>, presagio_ninep::client::Error> {
    session.client().call(Request::Reopen {
        root: root.fid(),
        fid,
        flags: presagio_ninep::extension::ReopenFlags::new(OpenFlags::RDONLY),
        handle: presagio_ninep::Handle::new(handle).unwrap(),
    })?;
    let mut bytes = vec![0; 100];
    let count = session.client().read(fid, 0, &mut bytes)?;
    bytes.truncate(count);
    Ok(bytes)
}

#[test]
fn a_file_that_is_removed_or_replaced_while_a_connection_is_down_is_still_there() {
    let directory = tempfile::tempdir().unwrap();
    let export = directory.path().join("export");
    fs::create_dir(&export).unwrap();
    for name in ["removed", "replaced", "new"] {
        fs::write(export.join(name), name).unwrap();
    }
    let node = node_on(&directory, GRACE);
    let (session, root) = connect(&directory);
    let resume = hello(&session, 6, [0; 16]);
    let files = ["removed", "replaced"].map(|name| opened(&root, name, OpenFlags::RDONLY));
    let handles = files.each_ref().map(|file| handle(&session, file));
    // The connection is lost, and nobody says goodbye.
    session.client().close();
    wait_until("the node knows that", || node.connections() == 0);
    let (_other, theirs) = connect(&directory);
    theirs.unlink("removed", UnlinkFlags(0)).unwrap();
    theirs.rename_at("new", &theirs, "replaced").unwrap();
    let (session, root) = connect(&directory);
    hello(&session, 6, resume);
    for (at, (name, handle)) in ["removed", "replaced"].iter().zip(&handles).enumerate() {
        let bytes = reopened(&session, &root, Fid(7000 + at as u32), handle);
        assert_eq!(bytes.expect(name), name.as_bytes());
    }
    // What it has back is let go with it, and so is all in the end.
    drop((session, root));
    let kept = export.join(".presagio/unlinked");
    wait_until("what nobody has open is let go", || {
        fs::read_dir(&kept).unwrap().count() == 0
    });
    assert_eq!(fs::read(export.join("replaced")).unwrap(), b"new");
}

#[test]
fn a_file_without_a_name_may_be_passed_on_before_it_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let export = directory.path().join("export");
    fs::create_dir(&export).unwrap();
    let _node = node_on(&directory, GRACE);
    let (parent, root) = connect(&directory);
    hello(&parent, 7, [0; 16]);
    let file = rw_file(&root, "file");
    file.write_at(0, b"passed on").unwrap();
    root.unlink("file", UnlinkFlags(0)).unwrap();
    let handle = handle(&parent, &file);
    let fid = file.fid();
    parent.client().call(Request::Clunk { fid }).unwrap();
    let (child, theirs) = connect(&directory);
    hello(&child, 8, [0; 16]);
    let bytes = reopened(&child, &theirs, Fid(7000), &handle);
    assert_eq!(bytes.expect("it has the handle"), b"passed on");
    let kept = export.join(".presagio/unlinked");
    assert_eq!(fs::read_dir(&kept).unwrap().count(), 1);
    drop((child, theirs));
    wait_until("what nobody has open is let go", || {
        fs::read_dir(&kept).unwrap().count() == 0
    });
}

#[test]
fn a_file_that_loses_its_name_before_its_client_is_back_is_still_there_for_it() {
    if !common::is_root("finding files by their handles") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let export = directory.path().join("export");
    fs::create_dir(&export).unwrap();
    for name in ["removed", "replaced", "new", "gone"] {
        fs::write(export.join(name), name).unwrap();
    }
    let first = node_on(&directory, Duration::from_secs(60));
    let (session, root) = connect(&directory);
    let resume = hello(&session, 5, [0; 16]);
    let files = ["removed", "replaced"].map(|name| opened(&root, name, OpenFlags::RDONLY));
    let handles = files.each_ref().map(|file| handle(&session, file));
    drop(first);
    let second = node_on(&directory, GRACE);
    // Another is faster.
    let (_other, theirs) = connect(&directory);
    theirs.unlink("removed", UnlinkFlags(0)).unwrap();
    theirs.unlink("gone", UnlinkFlags(0)).unwrap();
    theirs.rename_at("new", &theirs, "replaced").unwrap();
    let (session, root) = connect(&directory);
    hello(&session, 5, resume);
    for (at, (name, handle)) in ["removed", "replaced"].iter().zip(&handles).enumerate() {
        let fid = Fid(7000 + at as u32);
        let bytes = reopened(&session, &root, fid, handle);
        assert_eq!(bytes.expect(name), name.as_bytes());
        let mask = GetAttr::BASIC;
        let attr = session
            .client()
            .call(Request::GetAttr { fid, mask })
            .unwrap();
        assert!(matches!(attr.reply(), Reply::GetAttr { attr } if attr.nlink == 0));
    }
    // In the end nothing is kept that nobody has open.
    drop((session, root));
    let kept = export.join(".presagio/unlinked");
    wait_until("what nobody has open is let go", || {
        fs::read_dir(&kept).unwrap().count() == 0
    });
    assert_eq!(fs::read(export.join("replaced")).unwrap(), b"new");
    let file = opened(&theirs, "replaced", OpenFlags::RDONLY);
    assert_eq!(read_all(&file), b"new");
    drop(second);
}
