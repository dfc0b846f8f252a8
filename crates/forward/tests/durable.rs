//! What is durable when a node's machine was booted anew: what was synced before, and nobody says more.

use presagio_forward::mount::{self, Mounted};
use presagio_forward::{Address, File, Options, Remote, Spread};
use presagio_ionode::{Config, Node};
use presagio_ninep::{Errno, OpenFlags, SetAttr, SetMask};
use presagio_storage::Directory;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// A node on a machine that was booted then.
fn node(dir: &Path, epoch: u64) -> Node {
    node_at(dir, "socket", epoch)
}

/// The same, at this socket.
fn node_at(dir: &Path, socket: &str, epoch: u64) -> Node {
    let mut config = Config::new(dir.join("export"));
    config.epoch = Some(epoch);
    let address = Address::Unix(dir.join(socket));
    Node::start(config, Arc::new(Directory), &[address], false).unwrap()
}

fn file(root: &File, name: &str) -> File {
    let flags = OpenFlags::RDWR | OpenFlags::APPEND;
    root.create(name, flags, 0o644, 0).unwrap()
}

#[test]
fn a_sync_fails_once_if_what_was_written_may_have_been_lost_with_the_machine() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("export")).unwrap();
    let first = node(dir.path(), 1);
    let options = Options::new(vec![Address::Unix(dir.path().join("socket"))]);
    let remote = Remote::new(options).unwrap();
    let root = remote.root(rustix::process::geteuid().as_raw()).unwrap();
    let [synced, written, appended, untouched] =
        ["synced", "written", "appended", "untouched"].map(|name| file(&root, name));
    assert_eq!(synced.write_at(0, b"bytes").unwrap(), 5);
    synced.fsync(false).unwrap();
    assert_eq!(written.write_at(0, b"bytes").unwrap(), 5);
    assert_eq!(appended.append(b"bytes").unwrap(), 5);
    // The node alone was started anew.
    drop(first);
    let again = node(dir.path(), 1);
    assert_eq!(synced.write_at(0, b"more").unwrap(), 4);
    synced.fsync(true).unwrap();
    // Its machine was.
    drop(again);
    let _rebooted = node(dir.path(), 2);
    assert_eq!(written.write_at(5, b"more").unwrap(), 4);
    for lost in [&written, &appended] {
        assert_eq!(lost.fsync(false).unwrap_err(), Errno::IO);
        lost.fsync(false).unwrap();
    }
    synced.fsync(false).unwrap();
    untouched.fsync(false).unwrap();
    assert_eq!(synced.write_at(0, b"and more").unwrap(), 8);
    synced.fsync(false).unwrap();
}

/// A directory with an export, a node in it on a machine that was booted first, and a client.
struct Site {
    node: Option<Node>,
    root: File,
    _remote: Remote,
    dir: tempfile::TempDir,
}

impl Site {
    fn new() -> Site {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("export")).unwrap();
        let node = Some(node(dir.path(), 1));
        let options = Options::new(vec![Address::Unix(dir.path().join("socket"))]);
        let remote = Remote::new(options).unwrap();
        let root = remote.root(rustix::process::geteuid().as_raw()).unwrap();
        Site {
            node,
            root,
            _remote: remote,
            dir,
        }
    }

    /// The node is started anew, on a machine that was booted then.
    fn starts_again(&mut self, epoch: u64) {
        self.node = None;
        self.node = Some(node(self.dir.path(), epoch));
    }

    fn open(&self, name: &str, flags: OpenFlags) -> File {
        self.root.walk(name).unwrap().open(flags).unwrap()
    }
}

fn fails_once(file: &File, what: &str) {
    assert_eq!(file.fsync(false), Err(Errno::IO), "{what}");
    assert_eq!(file.fsync(false), Ok(()), "{what}: once");
}

#[test]
fn names_that_may_have_been_lost_with_the_machine_are_said_to_whoever_syncs_their_directory() {
    let mut site = Site::new();
    type Change = fn(&File, &File);
    let changes: [(&str, Change); 7] = [
        ("a file is made", |dir, _| drop(file(dir, "new"))),
        ("a directory is made", |dir, _| {
            dir.mkdir("new", 0o755, 0).map(drop).unwrap();
        }),
        ("a symbolic link is made", |dir, _| {
            dir.symlink("new", b"old", 0).map(drop).unwrap();
        }),
        ("a name is removed", |dir, _| dir.unlink("old").unwrap()),
        ("a name is given", |dir, _| {
            dir.link(&dir.walk("old").unwrap(), "new").unwrap();
        }),
        ("a name is moved away", |dir, other| {
            dir.rename("old", other, "moved").unwrap();
        }),
        ("a name is moved here", |dir, other| {
            other.rename("theirs", dir, "mine").unwrap();
        }),
    ];
    for (number, (what, change)) in (0u64..).zip(changes) {
        let names = [format!("one{number}"), format!("other{number}")];
        for name in &names {
            site.root.mkdir(name, 0o755, 0).unwrap();
        }
        let [dir, other] = names.each_ref().map(|name| site.root.walk(name).unwrap());
        drop((file(&dir, "old"), file(&other, "theirs")));
        let open = site.open(&names[0], OpenFlags::DIRECTORY);
        open.fsync(false).unwrap();
        change(&dir, &other);
        site.starts_again(number + 2);
        fails_once(&open, what);
        // What is not lost is not said to be.
        file(&dir, "another");
        site.starts_again(number + 2);
        assert_eq!(open.fsync(false), Ok(()), "{what}: the node alone");
    }
}

#[test]
fn a_size_or_an_attribute_that_may_have_been_lost_is_said_to_whoever_syncs_the_file() {
    let mut site = Site::new();
    let changed = |mask: SetMask| SetAttr {
        valid: mask,
        size: 3,
        mode: 0o600,
        ..SetAttr::default()
    };
    for (number, mask) in [SetMask::SIZE, SetMask::MODE].into_iter().enumerate() {
        let number = number as u64;
        let flags = OpenFlags::RDWR;
        let [open, by_path] = ["open", "path"].map(|name| format!("{name}{number}"));
        let files = [&open, &by_path].map(|name| site.root.create(name, flags, 0o644, 0).unwrap());
        files.iter().for_each(|file| file.fsync(false).unwrap());
        files[0].setattr(changed(mask)).unwrap();
        let walked = site.root.walk(&by_path).unwrap();
        walked.setattr(changed(mask)).unwrap();
        site.starts_again(number + 2);
        fails_once(&files[0], "of an open file");
        fails_once(&files[1], "by its path");
    }
}

/// Files are spread over two nodes; what is asked by path is asked at one of them, the client's home.
#[test]
fn what_was_changed_through_another_node_is_said_to_whoever_syncs_the_file() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("export")).unwrap();
    let sockets = ["one", "two"];
    let mut nodes = [(sockets[0], 10), (sockets[1], 20)]
        .map(|(socket, epoch)| Some(node_at(dir.path(), socket, epoch)));
    let addresses = sockets.map(|socket| Address::Unix(dir.path().join(socket)));
    let mut options = Options::new(addresses.to_vec());
    options.spread = Spread::Files;
    let remote = Remote::new(options).unwrap();
    let root = remote.root(rustix::process::geteuid().as_raw()).unwrap();
    let files = (0..16).map(|number| {
        let name = format!("file{number}");
        let flags = OpenFlags::RDWR | OpenFlags::TRUNC;
        let file = root.create(&name, flags, 0o644, 0).unwrap();
        (name, file)
    });
    let files: Vec<(String, File)> = files.collect();
    let cut = |name: &str| {
        let size = SetAttr {
            valid: SetMask::SIZE,
            size: 3,
            ..SetAttr::default()
        };
        root.walk(name).unwrap().setattr(size).unwrap();
    };
    for (name, file) in &files {
        assert_eq!(file.fsync(false), Ok(()), "{name}: as it was made");
        cut(name);
        assert_eq!(file.fsync(false), Ok(()), "{name}: its node goes on");
        cut(name);
    }
    let home = remote.status().node.unwrap();
    let is_home = |socket: &&str| home.contains(dir.path().join(socket).to_str().unwrap());
    let home = sockets.iter().position(is_home).unwrap();
    nodes[home] = None;
    nodes[home] = Some(node_at(dir.path(), sockets[home], 30));
    for (name, file) in &files {
        fails_once(file, name);
    }
}

#[test]
fn what_was_written_and_closed_is_said_to_whoever_opens_and_syncs_it() {
    let mut site = Site::new();
    let written = file(&site.root, "written");
    assert_eq!(written.write_at(0, b"bytes").unwrap(), 5);
    let cut = file(&site.root, "cut");
    cut.fsync(false).unwrap();
    drop((written, cut));
    site.open("cut", OpenFlags::RDWR | OpenFlags::TRUNC);
    site.starts_again(2);
    for name in ["written", "cut"] {
        fails_once(&site.open(name, OpenFlags::RDWR), name);
    }
}

/// As a program's checkpointer does for all its writers, which never sync.
#[test]
fn what_was_written_is_said_to_whoever_syncs_the_file_through_another_descriptor() {
    let mut site = Site::new();
    let writer = file(&site.root, "file");
    let syncs = site.open("file", OpenFlags::RDWR);
    for epoch in 2..4 {
        assert_eq!(writer.write_at(0, b"durable").unwrap(), 7);
        syncs.fsync(false).unwrap();
        assert_eq!(writer.write_at(0, b"perhaps").unwrap(), 7);
        site.starts_again(epoch);
        fails_once(&syncs, "through another");
        fails_once(&writer, "and through its own");
    }
    let appender = site.open("file", OpenFlags::WRONLY | OpenFlags::APPEND);
    assert_eq!(appender.append(b"more").unwrap(), 4);
    site.starts_again(4);
    fails_once(&syncs, "appended");
    // The node alone was started anew.
    assert_eq!(writer.write_at(0, b"durable").unwrap(), 7);
    site.starts_again(4);
    assert_eq!(syncs.fsync(false), Ok(()));
}

/// The kernel has one open file, and the node two: one to append and one not.
#[test]
fn a_program_that_began_to_append_is_told_of_what_was_lost_through_a_mount() {
    let mut site = Site::new();
    let point = tempfile::tempdir().unwrap();
    let options = Options::new(vec![Address::Unix(site.dir.path().join("socket"))]);
    let mounted = Mounted::start(mount::Options::new(options), point.path());
    let mounted = mounted.expect("a mount (needs /dev/fuse)");
    let mut file = std::fs::File::create(point.path().join("file")).unwrap();
    let flags = fcntl_getfl(&file).unwrap();
    fcntl_setfl(&file, flags | OFlags::APPEND).unwrap();
    file.write_all(b"appended").unwrap();
    fcntl_setfl(&file, flags).unwrap();
    file.sync_all().unwrap();
    fcntl_setfl(&file, flags | OFlags::APPEND).unwrap();
    file.write_all(b"and lost").unwrap();
    fcntl_setfl(&file, flags).unwrap();
    site.starts_again(2);
    assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(5));
    file.sync_all().unwrap();
    let dir = std::fs::File::open(point.path()).unwrap();
    dir.sync_all().unwrap_err();
    dir.sync_all().unwrap();
    drop((file, dir));
    mounted.unmount().unwrap();
}
