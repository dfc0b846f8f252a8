//! Memory and descriptors are bounded, whatever clients do. These tests look at the whole process, so they are done one
//! at a time.

mod common;

use common::raw::{Raw, encoded, frame};
use common::{Exported, opened, options, pattern, read_all, rw_file};
use presagio_ninep::client::{Client, Options};
use presagio_ninep::session::{File, Session};
use presagio_ninep::{
    Dialect, Fid, GetAttr, Kind, List, LockFlags, LockStatus, LockType, OpenFlags, Reply, Request,
    Step, Text,
};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory that this process has, in bytes.
fn memory() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages = statm.split_ascii_whitespace().nth(1).unwrap();
    pages.parse::<usize>().unwrap() * 4096
}

/// A client that gives up early.
fn impatient() -> Options {
    Options {
        timeout: Duration::from_secs(10),
        ..options()
    }
}

/// Lets every loop go round a few times.
fn turn(node: &Exported) {
    let all: Vec<_> = (0..4).map(|_| node.connect_with(&impatient())).collect();
    for _ in 0..20 {
        for (_session, root) in &all {
            root.getattr(GetAttr::BASIC).expect("others are served");
        }
    }
}

fn get_attr(fid: u32) -> Request<'static> {
    let (fid, mask) = (Fid(fid), GetAttr::BASIC);
    Request::GetAttr { fid, mask }
}

#[test]
fn frames_that_were_only_announced_take_no_memory() {
    let _alone = alone();
    let node = Exported::start();
    let mut all: Vec<Raw> = (0..64)
        .map(|_| Raw::attached(&node.socket(), 4 << 20))
        .collect();
    turn(&node);
    let before = memory();
    for piece in [&[118, 1, 0][..], &[0; 4], &[0; 4]] {
        for raw in &mut all {
            if piece.len() == 3 {
                raw.send(&(4u32 << 20).to_le_bytes()).unwrap();
            }
            raw.send(piece).unwrap();
        }
        turn(&node);
    }
    let grown = memory().saturating_sub(before);
    assert!(grown < 64 << 20, "{} MiB for a few bytes", grown >> 20);
}

#[test]
fn replies_that_nobody_reads_do_not_pile_up() {
    let _alone = alone();
    let node = Exported::start();
    let raw = Raw::attached(&node.socket(), 65536);
    turn(&node);
    let before = memory();
    let mut stream = raw.stream.try_clone().unwrap();
    stream.set_nonblocking(true).unwrap();
    let requests = (0..60_000).flat_map(|tag| encoded(tag, &get_attr(0)));
    let requests: Vec<u8> = requests.collect();
    let (mut sent, mut full) = (0, 0);
    // As much as the node takes; a good node stops taking.
    while sent < 8 << 20 && full < 1000 {
        match stream.write(&requests[sent % requests.len()..]) {
            Ok(count) => sent += count,
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                turn_once(&node);
                full += 1;
            }
        }
    }
    let grown = memory().saturating_sub(before);
    assert!(
        grown < 48 << 20,
        "{} MiB of replies for {} MiB of requests",
        grown >> 20,
        sent >> 20
    );
}

/// A client that has the root open, to list it.
fn lister(node: &Exported) -> Raw {
    let mut raw = Raw::attached(&node.socket(), 4 << 20);
    let walk = Request::Walk {
        fid: Fid(0),
        new_fid: Fid(1),
        steps: List::new(&[]).unwrap(),
    };
    assert_eq!(raw.call(1, &walk).error(), None);
    let open = Request::Open {
        fid: Fid(1),
        flags: OpenFlags::DIRECTORY,
    };
    assert_eq!(raw.call(1, &open).error(), None);
    raw
}

#[test]
fn lists_that_nobody_reads_do_not_pile_up() {
    let _alone = alone();
    let node = Exported::with(|config| config.memory_max = 32 << 20);
    // Half a megabyte of entries.
    for number in 0..2000 {
        fs::write(node.path(format!("{number:0200}")), "").unwrap();
    }
    let mut all = [0; 4].map(|_| lister(&node));
    turn(&node);
    let before = memory();
    let list = Request::ReadDir {
        fid: Fid(1),
        offset: 0,
        count: 4 << 20,
    };
    let lists: Vec<u8> = (0..256).flat_map(|tag| encoded(tag, &list)).collect();
    for raw in &mut all {
        raw.send(&lists).unwrap();
    }
    let mut grown = 0;
    for _ in 0..5 {
        turn(&node);
        grown = grown.max(memory().saturating_sub(before));
    }
    assert!(grown < 64 << 20, "{} MiB of lists", grown >> 20);
}

#[test]
fn a_long_list_is_given_in_parts_and_whole() {
    let _alone = alone();
    let node = Exported::start();
    let names: Vec<String> = (0..1000).map(|number| format!("{number:0200}")).collect();
    names
        .iter()
        .for_each(|name| fs::write(node.path(name), "").unwrap());
    let (_session, root) = node.connect();
    assert_eq!(common::names(&root), names);
}

fn turn_once(node: &Exported) {
    let (_session, root) = node.connect_with(&impatient());
    root.getattr(GetAttr::BASIC).expect("others are served");
}

#[test]
fn one_client_cannot_take_all_descriptors() {
    let _alone = alone();
    let limits = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let few = rustix::process::Rlimit {
        current: Some(2000),
        ..limits
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, few).unwrap();
    let _restored = Restored(limits);
    let node = Exported::start();
    let bytes = pattern(1, 1000);
    fs::write(node.path("file"), &bytes).unwrap();
    let (_session, other) = node.connect();
    let mut raw = Raw::attached(&node.socket(), 65536);
    let steps = [Step::new("file").unwrap()];
    for new in 1..3000 {
        let walk = Request::Walk {
            fid: Fid(0),
            new_fid: Fid(new),
            steps: List::new(&steps).unwrap(),
        };
        if raw.call(1, &walk).kind == Kind::LERROR {
            break;
        }
    }
    let mut file = other.walk("file").expect("others walk");
    file.open(OpenFlags::RDONLY).expect("others open");
    assert!(read_all(&file) == bytes);
    let (_session, new) = node.connect_with(&impatient());
    assert!(read_all(&opened(&new, "file", OpenFlags::RDONLY)) == bytes);
}

#[test]
fn one_client_cannot_take_all_descriptors_of_a_striped_set() {
    const SERVERS: usize = 16;
    const STRIPE: usize = 4096;
    let _alone = alone();
    let limits = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let few = rustix::process::Rlimit {
        current: Some(1000),
        ..limits
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, few).unwrap();
    let _restored = Restored(limits);
    let node = Exported::striped(SERVERS, STRIPE as u64);
    let (_session, other) = node.connect();
    let bytes = pattern(1, SERVERS * STRIPE);
    let (_greedy, root) = node.connect();
    // Each has an object on every server.
    let mut files = Vec::new();
    while files.len() < 1000
        && let Ok(file) = root.create(format!("file{}", files.len()), OpenFlags::RDWR, 0o600)
        && file.write_at(0, &bytes).is_ok()
    {
        files.push(file);
    }
    assert!(files.len() > 4, "it has some");
    let mine = rw_file(&other, "other");
    assert_eq!(mine.write_at(0, &bytes).expect("others write"), bytes.len());
    assert!(read_all(&mine) == bytes);
    let (_session, new) = node.connect_with(&impatient());
    assert!(read_all(&opened(&new, "file0", OpenFlags::RDONLY)) == bytes);
}

#[test]
fn one_client_that_comes_under_many_names_takes_no_descriptors() {
    let _alone = alone();
    let limits = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let few = rustix::process::Rlimit {
        current: Some(1000),
        ..limits
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, few).unwrap();
    let _restored = Restored(limits);
    let node = Exported::start();
    let (_session, other) = node.connect();
    let nothing = Text::new("").unwrap();
    let mut raw = Raw::silent(&node.socket());
    for number in 1..1500u128 {
        let version = Dialect::Presagio.version();
        let msize = 65536;
        raw.call(u16::MAX, &Request::Version { msize, version });
        let hello = Request::Hello {
            instance: number.to_le_bytes(),
            resume: [0; 16],
            client: nothing,
            job: nothing,
            rank: 0,
            program: nothing,
        };
        if raw.call(1, &hello).kind == Kind::LERROR {
            break;
        }
    }
    other.walk("").expect("others walk");
    rw_file(&other, "file")
        .write_at(0, b"x")
        .expect("others write");
    node.connect_with(&impatient());
}

/// A client that says who it is, with some files open.
struct Holder {
    session: Session,
    _root: File,
    files: Vec<File>,
}

impl Holder {
    fn new(node: &Exported, number: usize, names: &[String]) -> Holder {
        let client = Client::unix(&node.socket(), &impatient()).unwrap();
        let nothing = Text::new("").unwrap();
        let hello = client.call(Request::Hello {
            instance: (number as u128 + 1).to_le_bytes(),
            resume: [0; 16],
            client: nothing,
            job: nothing,
            rank: 0,
            program: nothing,
        });
        hello.unwrap();
        let (session, root) = common::attach(client, common::own_uid());
        let open = |name: &String| opened(&root, name, OpenFlags::RDWR);
        Holder {
            session,
            files: names.iter().map(open).collect(),
            _root: root,
        }
    }

    fn locks(&self, flags: LockFlags) -> Vec<LockStatus> {
        let ask = |file: &File| {
            let answer = self.session.client().call(Request::Lock {
                fid: file.fid(),
                lock_type: LockType::Write,
                flags,
                start: 0,
                length: 0,
                process: 1,
                client: Text::new("me").unwrap(),
            });
            match answer.unwrap().reply() {
                Reply::Lock { status } => status,
                other => panic!("{other:?}"),
            }
        };
        self.files.iter().map(ask).collect()
    }
}

/// How many descriptors this process has of files in a directory.
fn open_in(directory: &Path) -> usize {
    let all = fs::read_dir("/proc/self/fd").unwrap();
    let links = all.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links
        .filter(|link| link.parent() == Some(directory))
        .count()
}

#[test]
fn the_locks_of_lost_clients_take_not_all_descriptors() {
    const ROUNDS: usize = 50;
    const EACH: usize = 12;
    let _alone = alone();
    let limits = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let few = rustix::process::Rlimit {
        current: Some(500),
        ..limits
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, few).unwrap();
    let _restored = Restored(limits);
    let node = Exported::with(|config| config.grace = Duration::from_secs(3600));
    let (_session, other) = node.connect();
    let names =
        |round: usize| -> Vec<String> { (0..EACH).map(|at| format!("{round}/{at}")).collect() };
    for round in 0..ROUNDS {
        let directory = node.path(round.to_string());
        fs::create_dir(&directory).unwrap();
        let names = names(round);
        names
            .iter()
            .for_each(|name| fs::write(node.path(name), "").unwrap());
        let holder = Holder::new(&node, round, &names);
        assert_eq!(holder.locks(LockFlags(0)), [LockStatus::Success; EACH]);
        holder.session.client().close();
        drop(holder);
        // What holds the locks in the file system is left.
        common::wait_until("it is gone", || open_in(&directory) <= EACH);
    }
    rw_file(&other, "file")
        .write_at(0, b"x")
        .expect("others write");
    let last = Holder::new(&node, ROUNDS - 1, &names(ROUNDS - 1));
    assert_eq!(last.locks(LockFlags::RECLAIM), [LockStatus::Success; EACH]);
    let first = Holder::new(&node, 0, &names(0));
    assert_eq!(first.locks(LockFlags::RECLAIM), [LockStatus::Error; EACH]);
    assert_eq!(first.locks(LockFlags(0)), [LockStatus::Success; EACH]);
}

struct Restored(rustix::process::Rlimit);

impl Drop for Restored {
    fn drop(&mut self) {
        let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, self.0);
    }
}

#[test]
fn flushes_without_end_take_no_memory() {
    let _alone = alone();
    let node = Exported::start();
    let mut raw = Raw::attached(&node.socket(), 65536);
    turn(&node);
    let before = memory();
    let flush = frame(108, 5, &[&[9, 0]]);
    let many: Vec<u8> = flush.repeat(1000);
    for _ in 0..300 {
        raw.send(&many).unwrap();
        for _ in 0..1000 {
            assert_eq!(raw.take().unwrap().kind, Kind(109));
        }
    }
    let grown = memory().saturating_sub(before);
    assert!(grown < 32 << 20, "{} MiB", grown >> 20);
}

#[test]
fn connections_that_come_and_go_leave_nothing_behind() {
    let _alone = alone();
    let node = Exported::start();
    fs::write(node.path("file"), pattern(1, 100_000)).unwrap();
    let come_and_go = || {
        for _ in 0..300 {
            let (_session, root) = node.connect();
            let file = opened(&root, "file", OpenFlags::RDONLY);
            assert_eq!(read_all(&file).len(), 100_000);
        }
        common::wait_until("all are gone", || node.node().connections() == 0);
    };
    come_and_go();
    let open = || fs::read_dir("/proc/self/fd").unwrap().count();
    let (memory_before, before) = (memory(), open());
    (0..3).for_each(|_| come_and_go());
    common::wait_until("all descriptors are closed", || open() <= before + 2);
    let grown = memory().saturating_sub(memory_before);
    assert!(grown < 32 << 20, "{} MiB", grown >> 20);
}
