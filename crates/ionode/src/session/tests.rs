//! What a session still does when its connection is gone already.

use super::*;
use crate::config::Config;
use crate::locks::{Client, Locks, Owner, Wanted};
use crate::node::Node;
use crate::peer::Proof;
use presagio_door::Origin;
use presagio_ninep::{HEADER, LockFlags, LockStatus, LockType, OpenFlags, Text};
use presagio_storage::{Access, Bytes, Directory, Size, Storage};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::Barrier;
use std::time::Duration;

const INSTANCE: [u8; 16] = [1; 16];

/// A node without an address, and the export that ends with it.
fn node() -> (Node, tempfile::TempDir) {
    node_with(Duration::from_secs(3600))
}

/// The same, which waits so long for clients that were lost.
fn node_with(grace: Duration) -> (Node, tempfile::TempDir) {
    node_on(Arc::new(Directory), grace)
}

fn node_on(storage: Arc<dyn Storage>, grace: Duration) -> (Node, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), "bytes").unwrap();
    let mut config = Config::new(directory.path());
    config.loops = 1;
    config.grace = grace;
    let node = Node::start(config, storage, &[], false).unwrap();
    (node, directory)
}

/// A session of this process's user, and the socket that it is on.
fn session(node: &Node) -> (Session, [Arc<OwnedFd>; 2]) {
    let sockets = UnixStream::pair().unwrap();
    let sockets = [sockets.0, sockets.1].map(|socket| Arc::new(OwnedFd::from(socket)));
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    let peer = Peer {
        number: 1,
        from: Origin::Unix { pid: 1 },
        proof: Proof::User {
            uid: uid.as_raw(),
            gid: gid.as_raw(),
        },
    };
    let agreed = Agreed {
        msize: 65536,
        dialect: Dialect::Presagio,
    };
    let session = Session::new(node.shared().clone(), Arc::new(peer), agreed, &sockets[0]);
    (session, sockets)
}

/// Does a request that is not refused.
#[track_caller]
fn does(session: &Session, request: Request<'_>) {
    let mut answer = Vec::new();
    let done = session.answer(request, &mut Answer::new(&mut answer, Tag(1)));
    done.expect("it is not refused");
}

fn nothing() -> Text<'static> {
    Text::new("").unwrap()
}

fn attach(session: &Session) {
    let request = Request::Attach {
        fid: Fid(0),
        auth_fid: Fid::NONE,
        user: nothing(),
        export: nothing(),
        uid: rustix::process::getuid().as_raw(),
    };
    does(session, request);
}

fn hello(session: &Session) {
    hello_with(session, [0; 16]);
}

/// Says which client it is; returns what to come back with.
fn hello_with(session: &Session, resume: [u8; 16]) -> [u8; 16] {
    let request = Request::Hello {
        instance: INSTANCE,
        resume,
        client: nothing(),
        job: nothing(),
        rank: 0,
        program: nothing(),
    };
    does(session, request);
    session.greeting.get().expect("it was set").once.token()
}

#[test]
fn who_comes_when_its_connection_is_gone_is_not_remembered_as_being_here() {
    let (node, _directory) = node();
    let (session, _sockets) = session(&node);
    attach(&session);
    session.end();
    hello(&session);
    assert!(node.shared().fences.is_empty());
}

/// Lets fid 1 stand for the file, open.
fn open(session: &Session) {
    let steps = [presagio_ninep::Step::new("file").unwrap()];
    let walk = Request::Walk {
        fid: Fid(0),
        new_fid: Fid(1),
        steps: presagio_ninep::List::new(&steps).unwrap(),
    };
    does(session, walk);
    let open = Request::Open {
        fid: Fid(1),
        flags: OpenFlags::RDWR,
    };
    does(session, open);
}

/// Locks some of what fid 1 has open.
fn lock() -> Request<'static> {
    lock_as(LockType::Write)
}

fn lock_as(lock_type: LockType) -> Request<'static> {
    Request::Lock {
        fid: Fid(1),
        lock_type,
        flags: LockFlags(0),
        start: 0,
        length: 10,
        process: 1,
        client: nothing(),
    }
}

#[test]
fn a_lock_ends_when_its_fid_goes_elsewhere() {
    let (node, _directory) = node();
    let (session, _sockets) = session(&node);
    attach(&session);
    open(&session);
    does(&session, lock());
    assert_eq!(node.shared().locks.len(), 1);
    let walk = Request::Walk {
        fid: Fid(1),
        new_fid: Fid(1),
        steps: presagio_ninep::List::new(&[]).unwrap(),
    };
    does(&session, walk);
    assert_eq!(node.shared().locks.len(), 0, "nobody could give it back");
}

#[test]
fn a_lock_ends_when_its_fid_was_removed_before() {
    let (node, directory) = node();
    let remove = |session: &Session| {
        let request = Request::Remove { fid: Fid(1) };
        let request = presagio_ninep::extension::Wrapped::new(&request).unwrap();
        let (sequence, settled) = (1, 0);
        does(
            session,
            Request::Once {
                sequence,
                settled,
                request,
            },
        );
    };
    let (first, _sockets) = session(&node);
    attach(&first);
    let resume = hello_with(&first, [0; 16]);
    open(&first);
    remove(&first);
    first.end();
    std::fs::write(directory.path().join("file"), "another").unwrap();
    let (again, _sockets) = session(&node);
    attach(&again);
    hello_with(&again, resume);
    open(&again);
    does(&again, lock());
    remove(&again);
    assert!(directory.path().join("file").exists(), "it was done before");
    assert_eq!(node.shared().locks.len(), 0, "nobody could give it back");
}

/// Takes the lock of a whole file for process 7 of some user, which hangs between `hangs` and `goes_on`.
fn hang(locks: &Locks, held: &Held, hangs: &Barrier, goes_on: &Barrier) {
    let client = Client::Session(u64::MAX);
    let wanted = Wanted {
        owner: Owner {
            uid: 7,
            client: Some(client),
            name: b"other"[..].into(),
            process: 7,
        },
        client,
        through: u64::MAX,
        kind: LockType::Write,
        start: 100,
        end: 200,
        reclaim: false,
    };
    let open = || {
        hangs.wait();
        goes_on.wait();
        Ok(tempfile::tempfile()?.into())
    };
    let status = locks.set(held.place.key(), &wanted, None, || true, open);
    assert_eq!(status, LockStatus::Success);
}

#[test]
fn a_lock_whose_turn_comes_when_the_connection_is_gone_is_not_given() {
    let (node, _directory) = node();
    let (session, _sockets) = session(&node);
    attach(&session);
    hello(&session);
    open(&session);
    let held = session.held(Fid(1)).unwrap();
    let locks = &node.shared().locks;
    let (hangs, goes_on) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| hang(locks, &held, &hangs, &goes_on));
        hangs.wait();
        let before = Arc::strong_count(&held);
        let asked = scope.spawn(|| does(&session, lock()));
        // It has found the file, and waits for it.
        while Arc::strong_count(&held) == before {
            std::thread::yield_now();
        }
        drop(session.fids().clear());
        goes_on.wait();
        asked.join().unwrap();
    });
    assert_eq!(locks.len(), 1, "its client repeats it, or does not want it");
}

/// What a request for a lock is answered.
#[track_caller]
fn asks(session: &Session, request: Request<'_>) -> LockStatus {
    let mut answer = Vec::new();
    let done = session.answer(request, &mut Answer::new(&mut answer, Tag(1)));
    done.expect("it is answered");
    let frame = presagio_ninep::Frame {
        kind: presagio_ninep::Kind(answer[4]),
        tag: Tag(1),
        body: &answer[HEADER..],
    };
    match Reply::parse(frame, Dialect::Presagio) {
        Ok(Reply::Lock { status }) => status,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_an_earlier_session_had_asked_for_changes_no_lock_of_a_later_one() {
    let (node, _directory) = node_with(Duration::ZERO);
    let [(first, _first), (again, _again), (other, _other)] = [(); 3].map(|()| session(&node));
    attach(&first);
    let resume = hello_with(&first, [0; 16]);
    open(&first);
    attach(&again);
    hello_with(&again, resume);
    open(&again);
    assert_eq!(asks(&again, lock()), LockStatus::Success);
    // These were let in before, and waited for the file.
    let give_back = lock_as(LockType::Unlock);
    assert_eq!(asks(&first, give_back), LockStatus::Error);
    assert_eq!(asks(&first, lock()), LockStatus::Error);
    first.end();
    attach(&other);
    open(&other);
    assert_eq!(asks(&other, lock()), LockStatus::Blocked);
    assert_eq!(asks(&again, give_back), LockStatus::Success);
    assert_eq!(asks(&other, lock()), LockStatus::Success);
}

/// A directory in which a file that is made has its name for a while before it is ready: between `begins` and `goes_on`.
struct Slow {
    begins: Barrier,
    goes_on: Barrier,
}

impl Storage for Slow {
    fn servers(&self) -> u32 {
        1
    }

    fn open(&self, opened: OwnedFd, access: Access) -> io::Result<Arc<dyn Bytes>> {
        Directory.open(opened, access)
    }

    fn created(&self, opened: BorrowedFd<'_>) -> io::Result<()> {
        self.begins.wait();
        self.goes_on.wait();
        Directory.created(opened)
    }

    fn size(&self, name: BorrowedFd<'_>) -> io::Result<Option<Size>> {
        Directory.size(name)
    }

    fn removed(&self, name: BorrowedFd<'_>) -> io::Result<()> {
        Directory.removed(name)
    }
}

fn slow_node() -> (Arc<Slow>, Node, tempfile::TempDir) {
    let slow = Arc::new(Slow {
        begins: Barrier::new(2),
        goes_on: Barrier::new(2),
    });
    let (node, directory) = node_on(slow.clone(), Duration::from_secs(3600));
    (slow, node, directory)
}

/// A session of a client whose fid 1 stands for the root, too.
fn client(node: &Node, resume: [u8; 16]) -> (Session, [Arc<OwnedFd>; 2], [u8; 16]) {
    let (session, sockets) = session(node);
    attach(&session);
    let resume = hello_with(&session, resume);
    let walk = Request::Walk {
        fid: Fid(0),
        new_fid: Fid(1),
        steps: presagio_ninep::List::new(&[]).unwrap(),
    };
    does(&session, walk);
    (session, sockets, resume)
}

/// Asks as the client's first numbered request, and says what it is answered.
fn once(session: &Session, request: &Request<'_>) -> std::result::Result<(), Errno> {
    let request = Request::Once {
        sequence: 1,
        settled: 0,
        request: presagio_ninep::extension::Wrapped::new(request).unwrap(),
    };
    let mut answer = Vec::new();
    session.perform(request, Tag(1), &mut answer);
    let frame = presagio_ninep::Frame {
        kind: presagio_ninep::Kind(answer[4]),
        tag: Tag(1),
        body: &answer[HEADER..],
    };
    match Reply::parse(frame, Dialect::Presagio).unwrap() {
        Reply::Error { errno } => Err(errno),
        _ => Ok(()),
    }
}

fn create() -> Request<'static> {
    Request::Create {
        fid: Fid(1),
        name: Name::new("new").unwrap(),
        flags: OpenFlags::RDWR | OpenFlags::EXCL,
        mode: 0o644,
        gid: u32::MAX,
    }
}

#[test]
fn a_file_that_was_being_made_when_the_connection_was_lost_is_there_for_who_asks_again() {
    let (slow, node, _directory) = slow_node();
    let (first, _sockets, resume) = client(&node, [0; 16]);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let _inside = first.enter().expect("the client is there");
            once(&first, &create())
        });
        slow.begins.wait();
        let ended = scope.spawn(|| first.end_within(Duration::from_secs(3600)));
        while first.enter().is_some() {
            std::thread::yield_now();
        }
        assert!(!ended.is_finished(), "it waits for the request");
        slow.goes_on.wait();
        assert_eq!(asked.join().unwrap(), Ok(()));
    });
    let (again, _sockets, _) = client(&node, resume);
    assert_eq!(once(&again, &create()), Ok(()));
    assert!(again.held(Fid(1)).unwrap().file().is_ok(), "and it is open");
}

#[test]
fn that_fids_were_gone_with_the_connection_is_no_answer_for_who_asks_again() {
    let (slow, node, directory) = slow_node();
    let (first, _sockets, resume) = client(&node, [0; 16]);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| once(&first, &create()));
        slow.begins.wait();
        first.end_now();
        slow.goes_on.wait();
        assert_eq!(asked.join().unwrap(), Err(Errno::IO));
    });
    assert!(directory.path().join("new").exists(), "it was made");
    let (again, _sockets, _) = client(&node, resume);
    assert_eq!(once(&again, &create()), Err(Errno::IO), "nobody can tell");
}

#[test]
fn what_was_not_done_because_fids_were_gone_is_not_said_to_be_done() {
    let (node, directory) = node();
    let (first, _sockets, resume) = client(&node, [0; 16]);
    let unlink = Request::UnlinkAt {
        dir: Fid(1),
        name: Name::new("file").unwrap(),
        flags: presagio_ninep::UnlinkFlags(0),
    };
    first.end_now();
    assert_eq!(once(&first, &unlink), Err(Errno::IO));
    assert!(directory.path().join("file").exists());
    let (again, _sockets, _) = client(&node, resume);
    assert_eq!(once(&again, &unlink), Err(Errno::IO));
}

/// A client that is lost while its request waits to begin.
#[test]
fn a_numbered_request_is_not_done_when_its_client_has_hung_up_before_it_began() {
    let (node, directory) = node();
    let (first, sockets, resume) = client(&node, [0; 16]);
    let _inside = first.enter().expect("the client is there");
    rustix::net::shutdown(&sockets[1], rustix::net::Shutdown::Both).unwrap();
    let unlink = Request::UnlinkAt {
        dir: Fid(1),
        name: Name::new("file").unwrap(),
        flags: presagio_ninep::UnlinkFlags(0),
    };
    assert_eq!(once(&first, &unlink), Err(Errno::IO));
    assert!(directory.path().join("file").exists());
    let (again, _sockets, _) = client(&node, resume);
    assert_eq!(once(&again, &unlink), Err(Errno::IO), "nobody can tell");
}
