//! Connections that break at the worst moments: what was asked once is done once, or EIO says that nobody can tell.

use crate::common::node::{Memory, When};
use crate::common::tree::{Node, ROOT, Tree};
use crate::common::{Mount, Random, pattern};
use presagio_core::{Nanos, Op, Range};
use presagio_forward::mount;
use presagio_forward::{
    Address, Connected, Dial, File, Foreseen, LastResort, Options, Owner, Remote, Span, Spread,
};
use presagio_ninep::{Errno, LockStatus, LockType, OpenFlags, SetAttr, SetMask};
use proptest::prelude::*;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const EXCLUSIVE: OpenFlags = OpenFlags(OpenFlags::RDWR.0 | OpenFlags::EXCL.0);

// The types of requests.
const OPEN: u8 = 12;
const CREATE: u8 = 14;
const RENAME_AT: u8 = 74;
const UNLINK_AT: u8 = 76;
const MKDIR: u8 = 72;
const READ: u8 = 116;
const WRITE: u8 = 118;
const GETATTR: u8 = 24;
const LOCK: u8 = 52;
const HELLO: u8 = 200;

fn root(node: &Memory) -> File {
    connect(node.options())
}

fn connect(options: Options) -> File {
    Remote::new(options)
        .expect("a client")
        .root(0)
        .expect("a node")
}

fn content(node: &Memory, name: &str) -> Vec<u8> {
    let mut world = node.world();
    let number = world
        .tree
        .lookup(ROOT, name.as_bytes())
        .expect("it is there");
    world.tree.bytes(number).expect("a file").clone()
}

#[test]
fn what_must_be_done_once_is_done_once_wherever_the_connection_breaks() {
    for when in [When::Before, When::After] {
        let node = Memory::start();
        let root = root(&node);
        for kind in [CREATE, WRITE, MKDIR, RENAME_AT, UNLINK_AT] {
            node.world().planned.push_back((kind, when));
        }
        let file = root
            .create("log", EXCLUSIVE | OpenFlags::APPEND, 0o644, 0)
            .unwrap();
        assert_eq!(file.append(b"one").unwrap(), 3);
        assert_eq!(file.append(b"two").unwrap(), 3);
        root.mkdir("dir", 0o755, 0).unwrap();
        root.rename("log", &root.walk("dir").unwrap(), "moved")
            .unwrap();
        root.walk("dir").unwrap().unlink("moved").unwrap();
        // It is open, and lives.
        assert_eq!(file.append(b"three").unwrap(), 5);
        let mut read = [0; 20];
        assert_eq!(file.read_at(0, &mut read).unwrap(), 11);
        assert_eq!(&read[..11], b"onetwothree");
        let world = node.world();
        assert_eq!((world.breaks, world.planned.len()), (5, 0), "{when:?}");
        assert!(
            world.done.values().all(|times| *times == 1),
            "{:?}",
            world.done
        );
    }
}

#[test]
fn a_lost_answer_to_the_first_hello_locks_nobody_out() {
    let node = Memory::start();
    node.world().strict = true;
    node.world().planned.push_back((HELLO, When::After));
    let root = root(&node);
    root.mkdir("dir", 0o755, 0).unwrap();
    node.world()
        .planned
        .extend([(MKDIR, When::After), (HELLO, When::After)]);
    root.mkdir("other", 0o755, 0).unwrap();
    assert_eq!(node.world().breaks, 3);
}

#[test]
fn a_truncating_open_is_not_repeated_after_others_have_written() {
    let node = Memory::start();
    let root = root(&node);
    let file = root.create("file", OpenFlags::RDWR, 0o644, 0).unwrap();
    file.write_at(0, b"old").unwrap();
    node.world().planned.push_back((OPEN, When::After));
    let opened = root
        .walk("file")
        .unwrap()
        .open(OpenFlags::RDWR | OpenFlags::TRUNC)
        .unwrap();
    assert_eq!(content(&node, "file"), b"");
    opened.write_at(0, b"new content").unwrap();
    node.break_off();
    let mut read = [0; 20];
    assert_eq!(opened.read_at(0, &mut read).unwrap(), 11);
    let size = SetAttr {
        valid: SetMask::SIZE,
        size: 3,
        ..SetAttr::default()
    };
    opened.setattr(size).unwrap();
    assert_eq!(content(&node, "file"), b"new");
}

#[test]
fn a_node_that_knows_nothing_of_it_makes_it_an_error_and_not_a_second_time() {
    let node = Memory::start();
    let root = root(&node);
    let file = root
        .create("log", OpenFlags::WRONLY | OpenFlags::APPEND, 0o644, 0)
        .unwrap();
    let forget = |kind| {
        node.world().planned.push_back((kind, When::After));
        // As soon as the connection breaks the node forgets us: its reply cache is lost.
        let world = node.world.clone();
        let breaks = node.world().breaks;
        node.world().closed = true;
        std::thread::spawn(move || {
            while world.lock().unwrap().breaks == breaks {
                std::thread::sleep(Duration::from_millis(1));
            }
            let mut world = world.lock().unwrap();
            world.forget();
            world.closed = false;
        })
    };
    let forgetting = forget(WRITE);
    assert_eq!(file.append(b"once").unwrap_err(), Errno::IO);
    forgetting.join().unwrap();
    assert_eq!(content(&node, "log"), b"once");
    let forgetting = forget(MKDIR);
    assert_eq!(root.mkdir("dir", 0o755, 0).unwrap_err(), Errno::IO);
    forgetting.join().unwrap();
    let forgetting = forget(CREATE);
    let first = root.create("first", OpenFlags::RDWR | OpenFlags::EXCL, 0o644, 0);
    assert_eq!(first.map(drop).unwrap_err(), Errno::IO);
    forgetting.join().unwrap();
    // A file that others may have made is made, or is there.
    let forgetting = forget(CREATE);
    let made = root.create("made", OpenFlags::RDWR, 0o644, 0).unwrap();
    forgetting.join().unwrap();
    assert_eq!(made.write_at(0, b"there").unwrap(), 5);
    assert_eq!(content(&node, "made"), b"there");
    // What comes later is as always, and what was not sent is not an error.
    assert_eq!(file.append(b" more").unwrap(), 5);
    node.world().planned.push_back((MKDIR, When::Before));
    assert_eq!(root.mkdir("dir", 0o755, 0).unwrap_err(), Errno::EXIST);
    assert_eq!(content(&node, "log"), b"once more");
}

#[test]
fn a_plain_server_makes_it_an_error_when_the_request_had_left() {
    let node = Memory::start();
    node.world().plain = true;
    let root = root(&node);
    let file = root
        .create("log", OpenFlags::RDWR | OpenFlags::APPEND, 0o644, 0)
        .unwrap();
    node.world().planned.push_back((WRITE, When::After));
    assert_eq!(file.append(b"once").unwrap_err(), Errno::IO);
    assert_eq!(content(&node, "log"), b"once");
    node.world().planned.push_back((READ, When::After));
    let mut read = [0; 9];
    assert_eq!(file.read_at(0, &mut read).unwrap(), 4);
    // An offset write is simply repeated.
    let other = root.create("other", OpenFlags::RDWR, 0o644, 0).unwrap();
    node.world().planned.push_back((WRITE, When::After));
    assert_eq!(other.write_at(3, b"written").unwrap(), 7);
    // A path that leads elsewhere now is not followed.
    root.rename("other", &root, "renamed").unwrap();
    let replaced = root.walk("log").unwrap();
    root.unlink("log").unwrap();
    root.mkdir("log", 0o755, 0).unwrap();
    node.break_off();
    assert_eq!(replaced.getattr().unwrap_err(), Errno::STALE);
    assert_eq!(file.append(b"lost").unwrap_err(), Errno::STALE);
    // What was renamed by us is found under its new name.
    assert_eq!(other.read_at(0, &mut read).unwrap(), 9);
}

#[test]
fn large_writes_survive_a_break_in_their_middle() {
    let node = Memory::start();
    let root = root(&node);
    let file = root.create("large", OpenFlags::RDWR, 0o644, 0).unwrap();
    let bytes = pattern(1, 3_000_000);
    for when in [When::Before, When::After, When::After, When::Before] {
        node.world().planned.push_back((WRITE, when));
        node.world().planned.push_back((READ, when));
        assert_eq!(file.write_at(0, &bytes).unwrap(), bytes.len());
        assert!(content(&node, "large") == bytes);
        let mut read = vec![0; bytes.len() + 10];
        assert_eq!(file.read_at(0, &mut read).unwrap(), bytes.len());
        assert!(read[..bytes.len()] == bytes);
    }
    assert_eq!(node.world().breaks, 8);
}

#[test]
fn a_lock_that_is_being_given_back_is_not_claimed() {
    let node = Memory::start();
    let file = root(&node)
        .create("locked", OpenFlags::RDWR, 0o644, 0)
        .unwrap();
    let me = Owner { process: 1, key: 1 };
    for when in [When::Before, When::After] {
        file.lock(me, LockType::Write, Span::ALL).unwrap();
        let mut world = node.world();
        world.planned.push_back((LOCK, when));
        // Whoever claims one hears that it is lost.
        world.steal_locks = true;
        drop(world);
        let given_back = file.lock(me, LockType::Unlock, Span::ALL);
        assert_eq!(given_back, Ok(LockStatus::Success), "{when:?}");
        assert!(node.world().locks.is_empty() && node.world().planned.is_empty());
        node.world().steal_locks = false;
    }
    file.write_at(0, b"unlocked").unwrap();
}

#[test]
fn a_lock_that_may_not_be_made_weaker_is_claimed_as_it_is() {
    let node = Memory::start();
    let file = root(&node)
        .create("locked", OpenFlags::WRONLY, 0o644, 0)
        .unwrap();
    let me = Owner { process: 1, key: 1 };
    file.lock(me, LockType::Write, Span::ALL).unwrap();
    node.world().refuse_locks = Some(Errno::BADF);
    for weaker in [LockType::Read, LockType::Unlock] {
        assert_eq!(file.lock(me, weaker, Span::ALL), Err(Errno::BADF));
        assert_eq!(file.locks_of(me), [(LockType::Write, Span::ALL)]);
    }
    node.world().locks.clear();
    node.break_off();
    file.write_at(0, b"mine").unwrap();
    let kinds: Vec<LockType> = node.world().locks.iter().map(|lock| lock.2).collect();
    assert_eq!(kinds, [LockType::Write]);
}

#[test]
fn one_that_could_not_be_given_back_is_gone_and_the_others_are_not() {
    let node = Memory::start();
    let mut options = node.options();
    options.patience = Duration::from_secs(2);
    let file = connect(options)
        .create("locked", OpenFlags::RDWR, 0o644, 0)
        .unwrap();
    let me = Owner { process: 1, key: 1 };
    let span = |start, end| Span { start, end };
    for span in [span(0, 10), span(20, 30)] {
        file.lock(me, LockType::Write, span).unwrap();
    }
    node.world().closed = true;
    node.break_off();
    file.lock(me, LockType::Unlock, span(0, 10)).unwrap_err();
    assert_eq!(file.lock_owners(), [me], "of the other");
    node.world().locks.clear();
    node.world().closed = false;
    let mut tries = 0;
    while file.write_at(0, b"locked").is_err() {
        tries += 1;
        assert!(tries < 10_000, "it does not come back");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(node.world().locks.len(), 1, "claimed");
    file.lock(me, LockType::Unlock, span(20, 30)).unwrap();
    assert!(file.lock_owners().is_empty());
}

#[test]
fn locks_are_claimed_again_and_a_lost_one_is_not_silent() {
    let node = Memory::start();
    let root = root(&node);
    let file = root.create("locked", OpenFlags::RDWR, 0o644, 0).unwrap();
    let other = root.walk("locked").unwrap().open(OpenFlags::RDWR).unwrap();
    let (me, you) = (Owner { process: 1, key: 1 }, Owner { process: 2, key: 2 });
    assert_eq!(
        file.lock(me, LockType::Write, Span::ALL),
        Ok(LockStatus::Success)
    );
    assert_eq!(
        other.lock(you, LockType::Write, Span::ALL),
        Ok(LockStatus::Blocked)
    );
    node.world().locks.clear();
    node.break_off();
    file.write_at(0, b"mine").unwrap();
    assert_eq!(node.world().locks.len(), 1, "claimed before anything else");
    assert_eq!(
        other.lock(you, LockType::Write, Span::ALL),
        Ok(LockStatus::Blocked)
    );
    node.world().steal_locks = true;
    node.break_off();
    assert_eq!(file.write_at(0, b"lost").unwrap_err(), Errno::IO);
    assert_eq!(file.read_at(0, &mut [0; 4]).unwrap_err(), Errno::IO);
    // Others, and the file opened anew, are not concerned.
    assert_eq!(other.write_at(4, b"others").unwrap(), 6);
    assert_eq!(content(&node, "locked"), b"mineothers");
}

#[test]
fn another_node_of_the_list_takes_over_and_the_open_files_come_along() {
    let one = Memory::start();
    let two = Memory::sharing(one.world.clone());
    let mut options = one.options();
    options.nodes.push(Address::Unix(two.socket()));
    let remote = Remote::new(options).unwrap();
    let root = remote.root(0).unwrap();
    let file = root
        .create("file", OpenFlags::RDWR | OpenFlags::APPEND, 0o644, 0)
        .unwrap();
    let first = remote.status().node.unwrap();
    let gone = match first.contains(one.socket().to_str().unwrap()) {
        true => one.socket(),
        false => two.socket(),
    };
    std::fs::remove_file(gone).unwrap();
    one.world().planned.push_back((WRITE, When::After));
    assert_eq!(file.append(b"on either node").unwrap(), 14);
    assert_ne!(remote.status().node.unwrap(), first);
    assert_eq!(content(&one, "file"), b"on either node");
    assert_eq!(root.lookup("file").unwrap().1.size, 14);
}

#[test]
fn files_are_spread_over_the_nodes_by_their_number() {
    let one = Memory::start();
    let two = Memory::sharing(one.world.clone());
    let mut options = one.options();
    options.nodes.push(Address::Unix(two.socket()));
    options.spread = Spread::Files;
    // Another client opens each at the same node.
    let (root, other) = (connect(options.clone()), connect(options));
    for i in 0..20 {
        let name = format!("file{i}");
        root.create(&name, OpenFlags::RDWR, 0o644, 0)
            .unwrap()
            .write_at(0, name.as_bytes())
            .unwrap();
        let open = |root: &File| {
            let file = root.walk(&name).unwrap();
            file.open(OpenFlags::RDWR | OpenFlags::APPEND).unwrap()
        };
        let file = open(&root);
        let of_node = [&one, &two].map(|node| node.opened().contains(&file.qid().path));
        assert!(of_node[0] != of_node[1], "{name} is opened at one node");
        open(&other);
        let now = [&one, &two].map(|node| node.opened().contains(&file.qid().path));
        assert_eq!(now, of_node, "{name} has one node for all");
        one.world().planned.push_back((WRITE, When::After));
        assert_eq!(file.append(b"!").unwrap(), 1);
        assert_eq!(content(&one, &name), format!("{name}!").into_bytes());
    }
    for node in [&one, &two] {
        assert!(!node.opened().is_empty(), "each node has some");
    }
}

/// The numbers of fids begin anew at each node.
#[test]
fn a_name_is_given_to_the_file_that_was_meant_whichever_node_has_it() {
    let one = Memory::start();
    let two = Memory::sharing(one.world.clone());
    let mut options = one.options();
    options.nodes.push(Address::Unix(two.socket()));
    options.spread = Spread::Files;
    let root = connect(options);
    let (mut files, names) = (Vec::new(), (0..20).map(|i| format!("file{i}")));
    for name in names {
        let file = root.create(&name, OpenFlags::RDWR, 0o644, 0).unwrap();
        file.write_at(0, name.as_bytes()).unwrap();
        files.push((name, file));
    }
    for (name, file) in &files {
        let new = format!("{name} again");
        root.link(file, &new).unwrap();
        assert_eq!(content(&one, &new), name.as_bytes());
    }
    let elsewhere = [&one, &two].map(|node| node.opened().len());
    assert!(elsewhere.iter().sum::<usize>() > 0, "not all are at home");
}

#[test]
fn a_node_that_cannot_give_the_files_back_is_passed_over() {
    let one = Memory::start();
    let two = Memory::sharing(one.world.clone());
    let mut options = one.options();
    options.connect_timeout = Duration::from_secs(1);
    options.nodes.push(Address::Unix(two.socket()));
    let remote = Remote::new(options).unwrap();
    let root = remote.root(0).unwrap();
    let file = root.create("file", OpenFlags::RDWR, 0o644, 0).unwrap();
    let first = remote.status().node.unwrap();
    let stuck = match first.contains(one.socket().to_str().unwrap()) {
        true => &one,
        false => &two,
    };
    stuck.refuse_reopen();
    one.break_off();
    assert_eq!(file.write_at(0, b"elsewhere").unwrap(), 9);
    assert_ne!(remote.status().node.unwrap(), first);
}

#[test]
fn the_last_resort_serves_until_a_node_is_back() {
    if !crate::THREADS {
        return; // it needs one that watches for the node
    }
    let node = Memory::start();
    let mut options = node.options();
    // A quarter of it passes before the last resort is tried.
    options.patience = Duration::from_secs(8);
    let local = node.world.clone();
    options.last_resort = Some(LastResort(Arc::new(
        move |_: Duration| -> std::io::Result<Connected> {
            let (ours, theirs) = UnixStream::pair()?;
            crate::common::node::serve(theirs, local.clone());
            Ok(Box::new(ours))
        },
    )));
    let remote = Remote::new(options).unwrap();
    let root = remote.root(0).unwrap();
    let file = root
        .create("file", OpenFlags::RDWR | OpenFlags::APPEND, 0o644, 0)
        .unwrap();
    node.world().closed = true;
    node.world().planned.push_back((WRITE, When::After));
    assert_eq!(file.append(b"at home").unwrap(), 7);
    assert!(remote.status().node.unwrap().contains("last resort"));
    node.world().closed = false;
    let late = Instant::now() + Duration::from_secs(60);
    while remote
        .status()
        .node
        .is_none_or(|node| node.contains("last resort"))
    {
        assert!(Instant::now() < late, "it goes back");
        root.getattr().unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(file.append(b" and back").unwrap(), 9);
    assert_eq!(content(&node, "file"), b"at home and back");
}

#[test]
fn calls_fail_in_time_when_there_is_no_node_and_work_again_when_there_is() {
    let node = Memory::start();
    let mut options = node.options();
    let patience = Duration::from_secs(2);
    options.patience = patience;
    let root = connect(options);
    let file = root.create("file", OpenFlags::RDWR, 0o644, 0).unwrap();
    node.world().closed = true;
    node.break_off();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(file.read_at(0, &mut [0; 8]).unwrap_err(), Errno::IO));
        }
    });
    // Nobody waits any more: each of these would take the patience if it did.
    let start = Instant::now();
    for _ in 0..100 {
        assert_eq!(root.getattr().unwrap_err(), Errno::IO);
    }
    assert!(start.elapsed() < patience * 100);
    node.world().closed = false;
    let late = Instant::now() + Duration::from_secs(60);
    while root.getattr().is_err() {
        assert!(Instant::now() < late, "it comes back by itself");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(file.write_at(0, b"again").unwrap(), 5);
}

/// A way to nodes that uses up all the time that it is given, and notes how much that was; but the last that is ever tried of
/// so many can be reached.
fn black_holes(node: &Memory, reachable: usize, given: &Arc<Mutex<Vec<Duration>>>) -> Dial {
    let (socket, given, tried) = (node.socket(), given.clone(), Mutex::new(Vec::new()));
    Dial(Arc::new(move |node, left| {
        let mut tried = tried.lock().unwrap();
        if !tried.contains(&node) {
            tried.push(node);
        }
        if tried.iter().position(|other| *other == node) == Some(reachable) {
            return Ok(Box::new(UnixStream::connect(&socket)?));
        }
        drop(tried);
        given.lock().unwrap().push(left);
        std::thread::sleep(left);
        Err(std::io::ErrorKind::TimedOut.into())
    }))
}

#[test]
fn nodes_that_swallow_everything_take_no_more_than_the_patience() {
    if crate::THREADS {
        return; // a thread connects, and nobody waits for it
    }
    let node = Memory::start();
    let given = Arc::default();
    let mut options = node.options();
    options.nodes = vec![options.nodes[0].clone(); 50];
    options.dial = Some(black_holes(&node, 50, &given));
    (options.patience, options.connect_timeout) =
        (Duration::from_millis(600), Duration::from_millis(300));
    let most = options.patience + options.connect_timeout;
    let root = Remote::new(options).unwrap().root(0);
    assert_eq!(root.and_then(|root| root.getattr()).unwrap_err(), Errno::IO);
    let all: Duration = given.lock().unwrap().iter().sum();
    assert!(!all.is_zero() && all <= most, "{all:?} of {most:?}");
}

#[test]
fn the_last_node_is_reached_behind_those_that_swallow_everything() {
    if crate::THREADS {
        return; // each has a time-out of its own there
    }
    let node = Memory::start();
    let mut options = node.options();
    options.nodes = vec![options.nodes[0].clone(); 4];
    options.dial = Some(black_holes(&node, 3, &Arc::default()));
    (options.patience, options.connect_timeout) = (Duration::ZERO, Duration::from_millis(800));
    let remote = Remote::new(options).unwrap();
    let late = Instant::now() + Duration::from_secs(60);
    while remote.root(0).and_then(|root| root.getattr()).is_err() {
        assert!(Instant::now() < late, "it is reached");
    }
}

#[test]
fn a_frozen_node_is_left_and_a_slow_back_end_is_an_error_in_time() {
    let node = Memory::start();
    let mut options = node.options();
    (options.timeout, options.connect_timeout) = (Duration::from_secs(2), Duration::from_secs(2));
    options.patience = Duration::from_secs(5);
    let root = connect(options);
    node.world().mute = Some(GETATTR);
    // It answers other things, so it lives: waiting longer is of no use.
    assert_eq!(root.getattr().unwrap_err(), presagio_forward::TIMED_OUT);
    node.world().mute = None;
    root.getattr().unwrap();
    node.world().frozen = true;
    assert_eq!(root.getattr().unwrap_err(), Errno::IO);
    node.world().frozen = false;
    let late = Instant::now() + Duration::from_secs(60);
    while root.getattr().is_err() {
        assert!(Instant::now() < late, "it thaws");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn foresight_arrives_and_nobody_waits_for_it() {
    let node = Memory::start();
    let remote = Remote::new(node.options()).unwrap();
    let root = remote.root(0).unwrap();
    let file = root.create("file", OpenFlags::RDWR, 0o644, 0).unwrap();
    let soon = |file| Foreseen {
        file,
        op: Op::Read,
        range: Range::at(0, 4096),
        after: Nanos::from_millis(5),
    };
    remote.foresee(&[soon(Ok(&file)), soon(Err(b"dir/later"))]);
    root.getattr().unwrap();
    assert_eq!(node.world().foreseen, 2);
}

#[test]
fn every_fid_is_given_back() {
    let node = Memory::start();
    let remote = Remote::new(node.options()).unwrap();
    let root = remote.root(0).unwrap();
    node.world().per_mille = 30;
    for i in 0..300 {
        let file = root
            .create(format!("file{i}"), OpenFlags::RDWR, 0o644, 0)
            .unwrap();
        file.write_at(0, b"x").unwrap();
        root.lookup(format!("file{i}")).unwrap();
        assert_eq!(root.lookup("nothing").unwrap_err(), Errno::NOENT);
    }
    assert_eq!(remote.status().files, 1, "the root");
}

/// One operation on a few names in one directory, at a node and in the model alike.
#[derive(Clone, Debug)]
enum Step {
    Create(u8, bool),
    Append(u8, u8),
    Write(u8, u16, u8),
    Truncate(u8, u16),
    OpenTruncate(u8),
    Mkdir(u8),
    Symlink(u8),
    Link(u8, u8),
    Rename(u8, u8),
    Unlink(u8),
    Rmdir(u8),
    Read(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let name = || 0u8..6;
    prop_oneof![
        (name(), any::<bool>()).prop_map(|(n, e)| Step::Create(n, e)),
        (name(), 1u8..50).prop_map(|(n, l)| Step::Append(n, l)),
        (name(), 1u8..50).prop_map(|(n, l)| Step::Append(n, l)),
        (name(), 0u16..500, 1u8..50).prop_map(|(n, o, l)| Step::Write(n, o, l)),
        (name(), 0u16..500).prop_map(|(n, s)| Step::Truncate(n, s)),
        name().prop_map(Step::OpenTruncate),
        name().prop_map(Step::Mkdir),
        name().prop_map(Step::Symlink),
        (name(), name()).prop_map(|(a, b)| Step::Link(a, b)),
        (name(), name()).prop_map(|(a, b)| Step::Rename(a, b)),
        name().prop_map(Step::Unlink),
        name().prop_map(Step::Rmdir),
        name().prop_map(Step::Read),
    ]
}

fn name(number: u8) -> Vec<u8> {
    format!("name{number}").into_bytes()
}

fn cut(size: u64) -> SetAttr {
    SetAttr {
        valid: SetMask::SIZE,
        size,
        ..SetAttr::default()
    }
}

/// Does a step at the node, in a directory; what was read, if it was that.
fn remotely(dir: &File, step: &Step, bytes: &[u8]) -> Result<Vec<u8>, Errno> {
    let open = |number: &u8, flags| dir.walk(name(*number))?.open(flags);
    match step {
        Step::Create(n, exclusive) => {
            let flags = if *exclusive {
                EXCLUSIVE
            } else {
                OpenFlags::RDWR
            };
            dir.create(name(*n), flags, 0o644, 0)?;
        }
        Step::Append(n, length) => {
            let file = open(n, OpenFlags::WRONLY | OpenFlags::APPEND)?;
            assert_eq!(
                file.append(&bytes[..usize::from(*length)])?,
                usize::from(*length)
            );
        }
        Step::Write(n, offset, length) => {
            let file = open(n, OpenFlags::WRONLY)?;
            file.write_at((*offset).into(), &bytes[..usize::from(*length)])?;
        }
        Step::Truncate(n, size) => dir.walk(name(*n))?.setattr(cut((*size).into()))?,
        Step::OpenTruncate(n) => drop(open(n, OpenFlags::WRONLY | OpenFlags::TRUNC)?),
        Step::Mkdir(n) => drop(dir.mkdir(name(*n), 0o755, 0)?),
        Step::Symlink(n) => drop(dir.symlink(name(*n), b"target", 0)?),
        Step::Link(a, b) => dir.link(&dir.walk(name(*a))?, name(*b))?,
        Step::Rename(a, b) => dir.rename(name(*a), dir, name(*b))?,
        Step::Unlink(n) => dir.unlink(name(*n))?,
        Step::Rmdir(n) => dir.rmdir(name(*n))?,
        Step::Read(n) => {
            let mut read = vec![0; 2000];
            let got = open(n, OpenFlags::RDONLY)?.read_at(0, &mut read)?;
            read.truncate(got);
            return Ok(read);
        }
    }
    Ok(Vec::new())
}

/// The same in memory.
fn locally(tree: &mut Tree, dir: u64, step: &Step, bytes: &[u8]) -> Result<Vec<u8>, Errno> {
    match step {
        Step::Create(n, exclusive) => drop(tree.create(dir, &name(*n), *exclusive)?),
        Step::Append(n, length) => {
            let number = tree.lookup(dir, &name(*n))?;
            tree.bytes(number)?
                .extend_from_slice(&bytes[..usize::from(*length)]);
        }
        Step::Write(n, offset, length) => {
            let number = tree.lookup(dir, &name(*n))?;
            tree.write(number, (*offset).into(), &bytes[..usize::from(*length)])?;
        }
        Step::Truncate(n, size) => {
            let number = tree.lookup(dir, &name(*n))?;
            tree.bytes(number)?.resize((*size).into(), 0);
        }
        Step::OpenTruncate(n) => {
            let number = tree.lookup(dir, &name(*n))?;
            tree.bytes(number)?.clear();
        }
        Step::Mkdir(n) => drop(tree.make(dir, &name(*n), Node::Dir(Default::default()))?),
        Step::Symlink(n) => drop(tree.make(dir, &name(*n), Node::Link(b"target".to_vec()))?),
        Step::Link(a, b) => {
            let number = tree.lookup(dir, &name(*a))?;
            tree.link(dir, &name(*b), number)?;
        }
        Step::Rename(a, b) => tree.rename(dir, &name(*a), dir, &name(*b))?,
        Step::Unlink(n) => tree.unlink(dir, &name(*n), false)?,
        Step::Rmdir(n) => tree.unlink(dir, &name(*n), true)?,
        Step::Read(n) => {
            let number = tree.lookup(dir, &name(*n))?;
            return Ok(tree.bytes(number)?.clone());
        }
    }
    Ok(Vec::new())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_history_with_breaks_is_the_history_without(
        steps in prop::collection::vec(step(), 1..80), seed: u64
    ) {
        let node = Memory::start();
        let root = root(&node);
        (node.world().per_mille, node.world().random) = (60, seed);
        let mut model = Tree::default();
        for (index, step) in steps.iter().enumerate() {
            let bytes = pattern(seed ^ index as u64, 64);
            let expected = locally(&mut model, ROOT, step, &bytes);
            prop_assert_eq!(remotely(&root, step, &bytes), expected, "step {}: {:?}", index, step);
            prop_assert_eq!(node.world().tree.dump(), model.dump(), "step {}: {:?}", index, step);
        }
        prop_assert!(node.world().done.values().all(|times| *times == 1));
    }

    #[test]
    fn with_a_node_that_forgets_each_step_is_done_once_or_not_at_all_and_says_so(
        steps in prop::collection::vec(step(), 1..60), seed: u64
    ) {
        let node = Memory::start();
        let root = root(&node);
        (node.world().per_mille, node.world().random) = (80, seed);
        node.world().forgetful = true;
        let mut model = Tree::default();
        for (index, step) in steps.iter().enumerate() {
            let bytes = pattern(seed ^ index as u64, 64);
            let before = model.clone();
            let expected = locally(&mut model, ROOT, step, &bytes);
            let got = remotely(&root, step, &bytes);
            let now = node.world().tree.dump();
            if got == Err(Errno::IO) {
                if now == before.dump() {
                    model = before;
                }
                prop_assert_eq!(now, model.dump(), "step {}: {:?}", index, step);
            } else {
                prop_assert_eq!(got, expected, "step {}: {:?}", index, step);
                prop_assert_eq!(now, model.dump(), "step {}: {:?}", index, step);
            }
        }
    }
}

#[test]
fn programs_on_a_mount_do_not_see_that_its_connection_breaks_all_the_time() {
    use std::fs::{self, OpenOptions};
    use std::io::Write;
    let node = Memory::start();
    let mount = Mount::with(mount::Options::new(node.options()));
    (node.world().per_mille, node.world().random) = (15, 3);
    let mut log = OpenOptions::new()
        .create_new(true)
        .append(true)
        .open(mount.join("log"))
        .unwrap();
    fs::create_dir(mount.join("dir")).unwrap();
    for round in 0..100 {
        let (new, old) = (mount.join("dir/new"), mount.join("dir/old"));
        writeln!(log, "line {round}").unwrap();
        let mut file = OpenOptions::new()
            .create_new(true)
            .write(true)
            .open(&new)
            .unwrap();
        write!(file, "content {round}").unwrap();
        fs::rename(&new, &old).unwrap();
        assert_eq!(
            fs::read_to_string(&old).unwrap(),
            format!("content {round}")
        );
        fs::hard_link(&old, &new).unwrap();
        fs::remove_file(&old).unwrap();
        file.set_len(3).unwrap();
        assert_eq!(fs::metadata(&new).unwrap().len(), 3);
        fs::remove_file(&new).unwrap();
        assert_eq!(fs::read_dir(mount.join("dir")).unwrap().count(), 0);
    }
    let expected: String = (0..100).map(|round| format!("line {round}\n")).collect();
    assert_eq!(content(&node, "log"), expected.into_bytes());
    let world = node.world();
    assert!(world.breaks > 20 && world.done.values().all(|times| *times == 1));
    drop(world);
    node.world().per_mille = 0;
}

#[test]
fn many_threads_over_a_connection_that_breaks_all_the_time() {
    let node = Memory::start();
    let root = root(&node);
    for thread in 0..8 {
        root.mkdir(format!("dir{thread}"), 0o755, 0).unwrap();
    }
    (node.world().per_mille, node.world().random) = (20, 7);
    let models: Vec<Tree> = std::thread::scope(|scope| {
        let work = |thread: u64| {
            let dir = root.walk(format!("dir{thread}")).unwrap();
            let mut random = Random(thread);
            let mut model = Tree::default();
            for index in 0..150 {
                let (a, b) = (random.below(6) as u8, random.below(6) as u8);
                let step = match random.below(8) {
                    0 => Step::Create(a, true),
                    1 => Step::Rename(a, b),
                    2 => Step::Unlink(a),
                    3 => Step::Link(a, b),
                    4 => Step::Read(a),
                    5 => Step::Write(a, 30 * u16::from(b), 40),
                    _ => Step::Append(a, 10 + b),
                };
                let bytes = pattern(thread * 1000 + index, 64);
                let expected = locally(&mut model, ROOT, &step, &bytes);
                assert_eq!(
                    remotely(&dir, &step, &bytes),
                    expected,
                    "{thread} {index} {step:?}"
                );
            }
            model
        };
        let threads: Vec<_> = (0..8)
            .map(|thread| scope.spawn(move || work(thread)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let world = node.world();
    for (thread, model) in models.iter().enumerate() {
        let prefix = format!("/dir{thread}/");
        let mine =
            world.tree.dump().into_iter().filter_map(|(path, node)| {
                Some((format!("/{}", path.strip_prefix(&prefix)?), node))
            });
        assert_eq!(mine.collect::<Vec<_>>(), model.dump(), "thread {thread}");
    }
    assert!(world.done.values().all(|times| *times == 1));
    assert!(
        world.breaks > 20 && world.settled_max > 100,
        "{} {}",
        world.breaks,
        world.settled_max
    );
}

#[test]
fn a_walk_goes_as_far_as_there_are_names() {
    let node = Memory::start();
    let root = root(&node);
    let mut dir = root.walk("").unwrap();
    // More names than fit into one message.
    let names: Vec<Vec<u8>> = (0..20).map(|i| format!("d{i}").into_bytes()).collect();
    for name in &names {
        dir.mkdir(name, 0o755, 0).unwrap();
        dir = dir.walk(name).unwrap();
    }
    let mut path: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    let far = root.walk_far(&path).unwrap();
    assert_eq!(far.qids.len(), 20);
    assert_eq!(far.file.unwrap().qid(), dir.qid());
    for missing in [3, 18] {
        let there = std::mem::replace(&mut path[missing], b"missing");
        let far = root.walk_far(&path).unwrap();
        assert_eq!((far.qids.len(), far.file.is_none()), (missing, true));
        path[missing] = there;
    }
    assert!(root.walk_far(&[]).unwrap().file.is_some());
    drop((dir, root));
}

#[test]
fn what_lies_far_is_opened_and_made_at_once_or_has_to_be_looked_for() {
    for when in [None, Some(When::Before), Some(When::After)] {
        let node = Memory::start();
        let root = root(&node);
        root.mkdir("dir", 0o755, 0).unwrap();
        for kind in [CREATE, OPEN] {
            node.world().planned.extend(when.map(|when| (kind, when)));
        }
        let dir: [&[u8]; 1] = [b"dir"];
        let made = root.create_far(&dir, b"file", EXCLUSIVE, 0o644, 0);
        let made = made.unwrap().expect("its directory is there");
        assert_eq!(made.write_at(0, b"content").unwrap(), 7);
        assert_eq!(made.path(), b"dir/file");
        let again = root.create_far(&dir, b"file", EXCLUSIVE, 0o644, 0);
        assert_eq!(again.unwrap_err(), Errno::EXIST);
        let file: [&[u8]; 2] = [b"dir", b"file"];
        let open = root.open_far(&file, OpenFlags::RDWR | OpenFlags::TRUNC);
        let open = open.unwrap().expect("it is there");
        assert!(
            open.has_handle() && content_of(&open).is_empty(),
            "{when:?}"
        );
        for missing in [&[&b"dir"[..], b"none"][..], &[b"none", b"file"]] {
            assert!(root.open_far(missing, OpenFlags::RDWR).unwrap().is_none());
        }
        let nowhere = root.create_far(&[b"none"], b"file", EXCLUSIVE, 0o644, 0);
        assert!(nowhere.unwrap().is_none());
        assert!(node.world().done.values().all(|times| *times == 1));
    }
}

fn content_of(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; 100];
    let got = file.read_at(0, &mut bytes).unwrap();
    bytes.truncate(got);
    bytes
}

#[test]
fn what_another_process_has_opened_is_opened_again_by_its_handle_or_its_path() {
    for plain in [false, true] {
        let node = Memory::start();
        node.world().plain = plain;
        let flags = OpenFlags::RDWR | OpenFlags::TRUNC;
        let file = root(&node).create("file", flags, 0o644, 0).unwrap();
        file.write_at(0, b"content").unwrap();
        assert_eq!(file.handle().is_none(), plain);
        let other = Remote::new(node.options()).unwrap();
        let reopen = || other.reopen(0, flags, file.qid(), &file.path(), file.handle().as_deref());
        // It is not cut a second time.
        assert_eq!(content_of(&reopen().unwrap()), b"content");
        let root = root(&node);
        root.rename("file", &root, "moved").unwrap();
        match plain {
            true => assert_eq!(reopen().unwrap_err(), Errno::STALE),
            false => assert_eq!(content_of(&reopen().unwrap()), b"content"),
        }
    }
}

#[test]
fn a_thousand_open_files_and_their_locks_come_back_together() {
    let node = Memory::start();
    let root = root(&node);
    let owner = Owner { process: 1, key: 2 };
    let files: Vec<File> = (0..1000)
        .map(|i| {
            root.create(format!("f{i}"), OpenFlags::RDWR, 0o644, 0)
                .unwrap()
        })
        .collect();
    for file in files.iter().step_by(3) {
        let locked = file.lock(owner, LockType::Write, Span::ALL).unwrap();
        assert_eq!(locked, LockStatus::Success);
    }
    node.break_off();
    for (index, file) in files.iter().enumerate() {
        assert_eq!(file.write_at(0, &index.to_le_bytes()).unwrap(), 8);
    }
    assert_eq!(content(&node, "f999"), 999usize.to_le_bytes());
    let locks = files.iter().filter(|file| !file.lock_owners().is_empty());
    assert_eq!(locks.count(), 334);
}
