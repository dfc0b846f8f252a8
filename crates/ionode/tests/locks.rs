//! Locks, as several clients and several nodes have them: whose they are, when they end, and what a node remembers.

mod common;

use common::{Exported, options, own_uid, start, wait_until};
use presagio_ionode::{Address, Config, Node};
use presagio_ninep::client::Client;
use presagio_ninep::extension::SHARED_OWNER;
use presagio_ninep::session::{File, Session};
use presagio_ninep::{Errno, LockFlags, LockStatus, LockType, OpenFlags, Reply, Request, Text};
use presagio_storage::Directory;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A client that has a file open: `locked`, if nothing else is said.
struct Locker {
    session: Session,
    file: File,
    /// What it comes back with.
    resume: [u8; 16],
}

impl Locker {
    /// One that says who it is.
    fn new(socket: &Path, instance: [u8; 16]) -> Locker {
        Locker::again(socket, instance, [0; 16])
    }

    fn again(socket: &Path, instance: [u8; 16], resume: [u8; 16]) -> Locker {
        let client = Client::unix(socket, &options()).unwrap();
        let resume = hello(&client, instance, resume).unwrap();
        Locker::opened(client, resume, "locked")
    }

    /// One that does not.
    fn plain(socket: &Path) -> Locker {
        Locker::opened(Client::unix(socket, &options()).unwrap(), [0; 16], "locked")
    }

    fn opened(client: Client, resume: [u8; 16], name: &str) -> Locker {
        Locker::opened_as(client, resume, name, own_uid())
    }

    fn opened_as(client: Client, resume: [u8; 16], name: &str, uid: u32) -> Locker {
        let session = Session::new(client);
        let root = session.attach("", "/", uid).unwrap();
        let file = common::opened(&root, name, OpenFlags::RDWR);
        Locker {
            session,
            file,
            resume,
        }
    }

    fn lock(&self, kind: LockType, owner: &str, flags: LockFlags) -> LockStatus {
        let answer = self.session.client().call(Request::Lock {
            fid: self.file.fid(),
            lock_type: kind,
            flags,
            start: 0,
            length: 0,
            process: 77,
            client: Text::new(owner).unwrap(),
        });
        match answer.unwrap().reply() {
            Reply::Lock { status } => status,
            other => panic!("{other:?}"),
        }
    }

    /// Its connection breaks; nothing is closed before.
    fn breaks_off(self) {
        self.session.client().close();
    }

    fn takes(&self, owner: &str) -> LockStatus {
        self.lock(LockType::Write, owner, LockFlags(0))
    }

    fn gives_back(&self, owner: &str) {
        let status = self.lock(LockType::Unlock, owner, LockFlags(0));
        assert_eq!(status, LockStatus::Success);
    }

    fn claims(&self, owner: &str) -> LockStatus {
        self.lock(LockType::Write, owner, LockFlags::RECLAIM)
    }
}

fn hello(client: &Client, instance: [u8; 16], resume: [u8; 16]) -> Option<[u8; 16]> {
    let nothing = Text::new("").unwrap();
    let answer = client.call(Request::Hello {
        instance,
        resume,
        client: nothing,
        job: nothing,
        rank: u32::MAX,
        program: nothing,
    });
    match answer.ok()?.reply() {
        Reply::Hello { resume, .. } => Some(resume),
        other => panic!("{other:?}"),
    }
}

fn node(grace: Duration) -> Exported {
    let node = Exported::with(|config| config.grace = grace);
    std::fs::write(node.path("locked"), "").unwrap();
    node
}

#[test]
fn a_lock_that_others_had_meanwhile_breaks_off() {
    let node = node(Duration::ZERO);
    let mine = Locker::new(&node.socket(), [1; 16]);
    assert_eq!(mine.takes("me"), LockStatus::Success);
    let resume = mine.resume;
    mine.breaks_off();
    let other = Locker::new(&node.socket(), [2; 16]);
    wait_until("the lock is free", || {
        other.takes("other") == LockStatus::Success
    });
    other.gives_back("other");
    let mine = Locker::again(&node.socket(), [1; 16], resume);
    assert_eq!(mine.claims("me"), LockStatus::Error);
    assert_eq!(mine.takes("me"), LockStatus::Success, "it is free, and new");
}

#[test]
fn nobody_gives_back_the_locks_of_a_client_that_has_no_name() {
    let node = node(Duration::from_secs(60));
    let victim = Locker::plain(&node.socket());
    assert_eq!(victim.takes("host"), LockStatus::Success);
    for number in 0..64u64 {
        let mut instance = [0; 16];
        instance[8..].copy_from_slice(&number.to_le_bytes());
        let client = Client::unix(&node.socket(), &options()).unwrap();
        // It may not even be let in under such a number.
        if let Some(resume) = hello(&client, instance, [0; 16]) {
            Locker::opened(client, resume, "locked").gives_back("host");
        }
    }
    let other = Locker::plain(&node.socket());
    other.gives_back("host");
    assert_eq!(other.takes("host"), LockStatus::Blocked);
}

#[test]
fn clients_that_share_an_owner_do_not_wait_for_each_other() {
    let node = node(Duration::from_secs(60));
    let name = format!("{SHARED_OWNER}family");
    let (parent, child) = (
        Locker::new(&node.socket(), [1; 16]),
        Locker::new(&node.socket(), [2; 16]),
    );
    let others = Locker::plain(&node.socket());
    assert_eq!(parent.takes(&name), LockStatus::Success);
    assert_eq!(child.takes(&name), LockStatus::Success);
    assert_eq!(others.takes(&name), LockStatus::Blocked);
    assert_eq!(child.takes("child"), LockStatus::Blocked);
    parent.file.close().unwrap();
    assert_eq!(others.takes(&name), LockStatus::Blocked, "the child has it");
    child.gives_back(&name);
    assert_eq!(others.takes(&name), LockStatus::Success);
}

#[test]
fn the_locks_of_the_dead_are_free_at_once() {
    let node = node(Duration::from_secs(3600));
    let mine = Locker::new(&node.socket(), [1; 16]);
    assert_eq!(mine.takes("me"), LockStatus::Success);
    mine.breaks_off();
    let other = Locker::new(&node.socket(), [2; 16]);
    assert_eq!(other.takes("other"), LockStatus::Blocked);
    let died = |session: &Session| {
        let instance = [1; 16];
        session.client().call(Request::Died { instance }).map(drop)
    };
    let stranger = Session::new(Client::unix(&node.socket(), &options()).unwrap());
    common::refused(died(&stranger), Errno::BADF);
    died(&other.session).unwrap();
    assert_eq!(other.takes("other"), LockStatus::Success);
}

/// What a node keeps about its clients and their locks.
fn markers(export: &Path) -> BTreeSet<String> {
    let names = std::fs::read_dir(export.join(".presagio")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| name.starts_with("locks.") || name.starts_with("clients."))
        .collect()
}

#[test]
fn nodes_of_one_host_remember_their_own_clients_and_locks() {
    let node = node(Duration::from_secs(60));
    let mine = Locker::new(&node.socket(), [1; 16]);
    assert_eq!(mine.takes("me"), LockStatus::Success);
    let before = markers(&node.export());
    assert_eq!(before.len(), 2, "{before:?}");
    let socket = node.outside().join("other");
    let mut config = Config::new(node.export());
    config.loops = 1;
    let address = Address::Unix(socket.clone());
    let second = start(config, Arc::new(Directory), &[address]);
    std::fs::write(node.path("other"), "").unwrap();
    let client = Client::unix(&socket, &options()).unwrap();
    let resume = hello(&client, [2; 16], [0; 16]).unwrap();
    let theirs = Locker::opened(client, resume, "other");
    assert_eq!(theirs.takes("other"), LockStatus::Success);
    assert_eq!(markers(&node.export()).len(), 4);
    theirs.gives_back("other");
    drop(theirs);
    drop(second);
    let after = markers(&node.export());
    assert!(after.is_superset(&before), "{before:?}, then {after:?}");
}

/// How often this process has a file open.
fn times_open(path: &Path) -> usize {
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = all.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links.filter(|link| link == path).count()
}

/// A node that waits for its name, since another has it, and may change what is kept under it.
#[test]
fn what_is_kept_under_a_name_is_read_by_whoever_has_it() {
    let mut node = node(Duration::from_secs(3600));
    let socket = node.outside().join("again");
    let begin = || {
        let mut config = Config::new(node.export());
        (config.loops, config.grace) = (1, Duration::from_secs(3600));
        Node::start(
            config,
            Arc::new(Directory),
            &[Address::Unix(socket.clone())],
            false,
        )
    };
    let first = begin().unwrap();
    let mine = Locker::new(&socket, [1; 16]);
    assert_eq!(mine.takes("me"), LockStatus::Success);
    drop(first);
    let own = node.export().join(".presagio");
    let kept = markers(&node.export());
    let locks = kept.iter().find(|name| name.starts_with("locks.")).unwrap();
    let (locks, name) = (
        own.join(locks),
        own.join(locks.replacen("locks", "node", 1)),
    );
    let bytes = std::fs::read(&locks).unwrap();
    let second = loop {
        let other = std::fs::File::open(&name).unwrap();
        other.lock().unwrap();
        std::fs::write(&locks, &bytes).unwrap();
        let started = std::thread::scope(|scope| {
            let started = scope.spawn(begin);
            wait_until("the second waits for its name", || {
                times_open(&name) > 1 || started.is_finished()
            });
            let _ = std::fs::remove_file(&locks);
            other.unlock().unwrap();
            started.join().unwrap()
        });
        // It gives up after two seconds, which may pass anywhere on a busy machine.
        match started {
            Ok(node) => break node,
            Err(error) => assert!(error.to_string().contains("another node"), "{error}"),
        }
    };
    let other = Locker::new(&socket, [2; 16]);
    assert_eq!(other.takes("other"), LockStatus::Success, "nobody held any");
    drop(second);
    node.stop();
}

/// A user that is not who runs this.
const THIEF: u32 = 12_345;

/// A connection of another user: it is whoever the thread that made it was.
fn connected_as(uid: u32, socket: &Path) -> Client {
    std::thread::scope(|scope| {
        let made = scope.spawn(|| {
            let uid = rustix::process::Uid::from_raw(uid);
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            Client::unix(socket, &options()).unwrap()
        });
        made.join().unwrap()
    })
}

/// A node that was killed or ended while somebody held a lock, and the next one.
#[test]
fn who_says_the_number_of_another_users_client_claims_nothing_after_a_restart() {
    if !common::is_root("being several users") {
        return;
    }
    let node = node(Duration::from_secs(3600));
    let socket = node.outside().join("again");
    let begin = || {
        let mut config = Config::new(node.export());
        (config.loops, config.grace) = (1, Duration::from_secs(3600));
        start(
            config,
            Arc::new(Directory),
            &[Address::Unix(socket.clone())],
        )
    };
    let anybody = std::fs::Permissions::from_mode(0o666);
    std::fs::set_permissions(node.path("locked"), anybody).unwrap();
    let first = begin();
    let mine = Locker::new(&socket, [1; 16]);
    assert_eq!(mine.takes("me"), LockStatus::Success);
    drop(first);
    let _second = begin();
    let client = connected_as(THIEF, &socket);
    hello(&client, [1; 16], [0; 16]).unwrap();
    let thief = Locker::opened_as(client, [0; 16], "locked", THIEF);
    assert_eq!(thief.claims("me"), LockStatus::Error);
    // What it asks for besides does not end the time of the other.
    thief.file.getattr(presagio_ninep::GetAttr::BASIC).unwrap();
    assert_eq!(thief.takes("thief"), LockStatus::Grace);
    // That one is back, and asks for something new: it is waited for no more.
    let _mine = Locker::new(&socket, [1; 16]);
    assert_eq!(thief.takes("thief"), LockStatus::Success);
}
