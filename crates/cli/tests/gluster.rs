//! What one I/O node shows of what another did: on ext4, one directory under both; on GlusterFS, a volume that each has
//! mounted for itself. The table in docs/ionode.md says the same in words.
//!
//! Needs root and namespaces; GlusterFS's daemons run in those.

mod common;

use common::apart::{apart, run};
use common::nodes::{Mounted, Node, Running, pattern, until};
use rustix::fs::{FlockOperation, fcntl_lock};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const BOUND: Duration = Duration::from_secs(240);
/// An address that only these namespaces have.
const HOST: &str = "10.78.0.1";

/// When something is seen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// The first time that somebody looks.
    AtOnce,
    /// Some time later.
    Later,
}

/// Two nodes on the same files; clients of the first (two of them) and of the second.
struct World {
    one: Mounted,
    beside: Mounted,
    other: Mounted,
    // They end after the mounts.
    _nodes: [Node; 2],
    /// When what one node did is seen through the other.
    seen: When,
    /// Whether both nodes have the files from the same mount.
    one_mount: bool,
}

impl World {
    fn new(dir: &Path, exports: [&Path; 2], more: &[&str], seen: When) -> World {
        let [first, second] = [("first", exports[0]), ("second", exports[1])]
            .map(|(name, export)| Node::unix(dir, name, export, more));
        let mount = |node: &Node, name| Mounted::start(&[&node.at], &dir.join(name), None, &[]);
        World {
            one: mount(&first, "one"),
            beside: mount(&first, "beside"),
            other: mount(&second, "other"),
            _nodes: [first, second],
            seen,
            one_mount: exports[0] == exports[1],
        }
    }

    fn check(&self) {
        self.through_one_node();
        self.written_and_closed();
        self.written_and_synced();
        self.written_only();
        self.truncated();
        self.names();
        self.replaced_while_open();
        self.removed_while_open();
        println!("appends");
        self.appended();
        println!("exclusive creation");
        self.made_by_one();
        println!("locks");
        self.locked();
        // Where bytes are seen later, a lock does not help.
        if self.seen == When::AtOnce {
            println!("a counter under a lock");
            self.counted();
        }
    }

    /// How often something is tried: less often where each time takes a second.
    fn rounds(&self) -> u64 {
        match self.seen {
            When::AtOnce => 15,
            When::Later => 3,
        }
    }

    fn see(&self, when: When, what: &str, mut is_so: impl FnMut() -> bool) {
        let start = Instant::now();
        let mut looks = 0;
        until(what, || {
            looks += 1;
            is_so()
        });
        if looks > 1 {
            println!("{what}: after {:?}", start.elapsed());
        }
        assert!(when == When::Later || looks == 1, "{what}: at once");
    }

    /// Opens what the other node may not know yet.
    fn open_at_other(&self, name: &str) -> File {
        let mut opened = None;
        self.see(self.seen, &format!("{name} is there"), || {
            let mut options = OpenOptions::new();
            opened = options
                .read(true)
                .write(true)
                .open(self.other.path(name))
                .ok();
            opened.is_some()
        });
        opened.expect("it was opened")
    }

    /// Whatever one client wrote, another of the same node reads, by whatever descriptor.
    fn through_one_node(&self) {
        let file = new(&self.one, "shared");
        let before = File::open(self.beside.path("shared")).unwrap();
        for round in 0..20 {
            let bytes = pattern(round, 10_000);
            file.write_all_at(&bytes, 5000 * round).unwrap();
            let after = File::open(self.beside.path("shared")).unwrap();
            for reader in [&file, &before, &after] {
                let mut read = vec![0; bytes.len()];
                reader.read_exact_at(&mut read, 5000 * round).unwrap();
                assert!(read == bytes, "what was written is read");
                assert_eq!(reader.metadata().unwrap().len(), 5000 * round + 10_000);
            }
        }
        file.set_len(7).unwrap();
        assert_eq!(before.metadata().unwrap().len(), 7);
    }

    fn written_and_closed(&self) {
        for round in 0..self.rounds() {
            let bytes = pattern(round, 30_000 + round as usize);
            // Over what was there, and what the other one has read.
            fs::write(self.one.path("closed"), &bytes).unwrap();
            self.see(self.seen, "closed, then opened", || {
                fs::read(self.other.path("closed")).is_ok_and(|read| read == bytes)
            });
        }
    }

    fn written_and_synced(&self) {
        let file = new(&self.one, "synced");
        file.sync_all().unwrap();
        let before = self.open_at_other("synced");
        for round in 0..self.rounds() {
            let bytes = pattern(round, 30_000);
            file.write_all_at(&bytes, 0).unwrap();
            file.sync_all().unwrap();
            self.see(self.seen, "synced, then opened", || {
                fs::read(self.other.path("synced")).is_ok_and(|read| read == bytes)
            });
            self.see(self.seen, "synced, and open before", || {
                has(&before, &bytes)
            });
        }
    }

    fn written_only(&self) {
        let file = new(&self.one, "written");
        let before = self.open_at_other("written");
        for round in 0..self.rounds() {
            let bytes = pattern(round, 20_000 + 100 * round as usize);
            file.write_all_at(&bytes, 0).unwrap();
            self.see(self.seen, "written, and open before", || {
                has(&before, &bytes)
            });
            self.see(self.seen, "written, and its size", || {
                before.metadata().unwrap().len() == bytes.len() as u64
            });
        }
    }

    fn truncated(&self) {
        fs::write(self.one.path("cut"), pattern(1, 50_000)).unwrap();
        let before = self.open_at_other("cut");
        self.see(self.seen, "all of it", || has(&before, &pattern(1, 50_000)));
        let file = OpenOptions::new().write(true).open(self.one.path("cut"));
        file.unwrap().set_len(100).unwrap();
        self.see(self.seen, "cut", || {
            before.metadata().unwrap().len() == 100 && read(&before) == pattern(1, 50_000)[..100]
        });
    }

    fn names(&self) {
        fs::create_dir(self.one.path("dir")).unwrap();
        fs::write(self.one.path("dir/file"), "content").unwrap();
        self.see(self.seen, "made", || self.other.path("dir/file").exists());
        fs::rename(self.one.path("dir/file"), self.one.path("dir/renamed")).unwrap();
        self.see(self.seen, "renamed", || {
            let (old, new) = ("dir/file", "dir/renamed");
            !self.other.path(old).exists() && self.other.path(new).exists()
        });
        fs::remove_file(self.one.path("dir/renamed")).unwrap();
        self.see(self.seen, "removed", || {
            !self.other.path("dir/renamed").exists()
        });
        fs::remove_dir(self.one.path("dir")).unwrap();
        self.see(self.seen, "directory removed", || {
            !self.other.path("dir").exists()
        });
    }

    fn replaced_while_open(&self) {
        fs::write(self.one.path("head"), "old").unwrap();
        let open = self.open_at_other("head");
        self.see(self.seen, "the old one", || has(&open, b"old"));
        fs::write(self.one.path("next"), "new one").unwrap();
        fs::rename(self.one.path("next"), self.one.path("head")).unwrap();
        self.stays(&open, b"old");
        self.see(self.seen, "replaced", || {
            fs::read(self.other.path("head")).is_ok_and(|read| read == b"new one")
        });
    }

    fn removed_while_open(&self) {
        fs::write(self.one.path("removed"), "content").unwrap();
        let open = self.open_at_other("removed");
        self.see(self.seen, "all of what is removed", || {
            has(&open, b"content")
        });
        fs::remove_file(self.one.path("removed")).unwrap();
        self.see(self.seen, "its name is gone", || {
            !self.other.path("removed").exists()
        });
        self.stays(&open, b"content");
    }

    /// What is open stays what it was. GlusterFS may not have opened it yet (open-behind): then it is gone, which is said.
    fn stays(&self, open: &File, bytes: &[u8]) {
        let mut buffer = vec![0; 100];
        match open.read_at(&mut buffer, 0) {
            Ok(got) => assert_eq!(&buffer[..got], bytes, "what is open stays what it was"),
            Err(error) => {
                let gone = [rustix::io::Errno::NOENT, rustix::io::Errno::STALE];
                let gone = gone.map(|errno| Some(errno.raw_os_error()));
                let said = gone.contains(&error.raw_os_error());
                println!("gone while it was open: {error}");
                assert!(said && self.seen == When::Later, "{error}");
            }
        }
    }

    /// Clients append: every record is there once, whole. Nodes on different mounts do not know of each other's.
    fn appended(&self) {
        const RECORDS: u64 = 150;
        let writers = match self.one_mount {
            true => vec![&self.one, &self.beside, &self.other],
            false => vec![&self.one, &self.beside],
        };
        fs::write(self.one.path("log"), "").unwrap();
        drop(self.open_at_other("log"));
        std::thread::scope(|scope| {
            for (who, mount) in (0..).zip(&writers) {
                scope.spawn(move || {
                    let mut log = OpenOptions::new()
                        .append(true)
                        .open(mount.path("log"))
                        .unwrap();
                    for which in 0..RECORDS {
                        log.write_all(&pattern(who << 32 | which, 100)).unwrap();
                    }
                });
            }
        });
        let all = (0..writers.len() as u64)
            .flat_map(|who| (0..RECORDS).map(move |which| who << 32 | which));
        let mut all: Vec<Vec<u8>> = all.map(|seed| pattern(seed, 100)).collect();
        all.sort_unstable();
        self.see(self.seen, "all that was appended", || {
            let log = fs::read(self.one.path("log")).unwrap();
            let mut found: Vec<&[u8]> = log.chunks(100).collect();
            found.sort_unstable();
            found == all
        });
    }

    /// Of those who would make a file one does.
    fn made_by_one(&self) {
        for round in 0..30 {
            let name = format!("made{round}");
            let make = |mount: &Mounted| {
                let mut options = OpenOptions::new();
                let made = options.write(true).create_new(true).open(mount.path(&name));
                u32::from(made.is_ok())
            };
            let makers = std::thread::scope(|scope| {
                let all = [&self.one, &self.beside, &self.other];
                let all = all.map(|mount| scope.spawn(move || make(mount)));
                all.map(|maker| maker.join().unwrap()).iter().sum::<u32>()
            });
            assert_eq!(makers, 1, "{name}");
        }
    }

    /// Who has a lock has it for all.
    fn locked(&self) {
        fs::write(self.one.path("locked"), "").unwrap();
        let other = self.open_at_other("locked");
        let open = |mount: &Mounted| {
            OpenOptions::new()
                .write(true)
                .open(mount.path("locked"))
                .unwrap()
        };
        let all = [open(&self.one), open(&self.beside), other];
        let take = |file: &File| fcntl_lock(file, FlockOperation::NonBlockingLockExclusive).is_ok();
        for (holder, has) in all.iter().enumerate() {
            assert!(take(has), "a lock that nobody has");
            let got: Vec<bool> = all.iter().map(take).collect();
            let expected: Vec<bool> = (0..all.len()).map(|one| one == holder).collect();
            assert_eq!(got, expected, "one has the lock");
            fcntl_lock(has, FlockOperation::Unlock).unwrap();
        }
    }

    /// A counter under a lock, through both nodes.
    fn counted(&self) {
        const TIMES: u64 = 40;
        fs::write(self.one.path("counter"), 0u64.to_le_bytes()).unwrap();
        let count = |file: &File| {
            fcntl_lock(file, FlockOperation::LockExclusive).unwrap();
            let mut now = [0; 8];
            file.read_exact_at(&mut now, 0).unwrap();
            let next = u64::from_le_bytes(now) + 1;
            file.write_all_at(&next.to_le_bytes(), 0).unwrap();
            fcntl_lock(file, FlockOperation::Unlock).unwrap();
        };
        std::thread::scope(|scope| {
            // One of each: locks of one process on one mount do not exclude each other.
            for mount in [&self.one, &self.beside, &self.other] {
                scope.spawn(move || {
                    let mut options = OpenOptions::new();
                    let file = options.read(true).write(true).open(mount.path("counter"));
                    let file = file.unwrap();
                    (0..TIMES).for_each(|_| count(&file));
                });
            }
        });
        let counter = fs::read(self.one.path("counter")).unwrap();
        assert_eq!(counter, (3 * TIMES).to_le_bytes());
    }
}

fn new(mount: &Mounted, name: &str) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    options.open(mount.path(name)).unwrap()
}

fn read(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 17];
    let got = file.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(got);
    bytes
}

fn has(file: &File, bytes: &[u8]) -> bool {
    read(file) == bytes
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

#[test]
fn two_nodes_on_one_ext4_directory_are_as_one() {
    apart("two_nodes_on_one_ext4_directory_are_as_one", BOUND, |dir| {
        let (image, mounted) = (dir.join("image"), dir.join("ext4"));
        fs::create_dir(&mounted).unwrap();
        File::create(&image).unwrap().set_len(128 << 20).unwrap();
        run("mkfs.ext4", &["-q", text(&image)]);
        run("mount", &["-o", "loop", text(&image), text(&mounted)]);
        let export = mounted.join("export");
        fs::create_dir(&export).unwrap();
        World::new(dir, [&export, &export], &[], When::AtOnce).check();
    });
}

#[test]
fn two_nodes_on_a_glusterfs_volume_show_what_glusterfs_shows() {
    apart(
        "two_nodes_on_a_glusterfs_volume_show_what_glusterfs_shows",
        BOUND,
        |dir| {
            let _daemon = gluster_daemon(dir);
            on_glusterfs(dir, "cached", &[], "log-level=WARNING", When::Later);
            // As docs/ionode.md advises: nothing is kept by the clients of the volume.
            let caches = [
                "quick-read",
                "io-cache",
                "stat-prefetch",
                "read-ahead",
                "write-behind",
                "open-behind",
            ];
            let mount = "attribute-timeout=0,entry-timeout=0,direct-io-mode=enable";
            on_glusterfs(dir, "plain", &caches, mount, When::AtOnce);
        },
    );
}

/// The same on a volume of which so many things are turned off, mounted with these options.
fn on_glusterfs(dir: &Path, name: &str, off: &[&str], options: &str, seen: When) {
    let dir = dir.join(name);
    fs::create_dir(&dir).unwrap();
    let mounts = volume(&dir, name, off, options);
    let exports = mounts.each_ref().map(|mount| mount.join("export"));
    fs::create_dir(&exports[0]).unwrap();
    until("the other mount shows it", || exports[1].exists());
    let more = ["--layout", "gluster servers=3"];
    World::new(&dir, [&exports[0], &exports[1]], &more, seen).check();
}

/// Starts the daemon that starts the others, with a state of its own.
fn gluster_daemon(dir: &Path) -> Running {
    run(
        "ip",
        &["address", "add", &format!("{HOST}/32"), "dev", "lo"],
    );
    for path in ["/var/lib/glusterd", "/var/log/glusterfs"] {
        run("mount", &["-t", "tmpfs", "none", path]);
    }
    fs::create_dir("/run/gluster").unwrap();
    let mut daemon = Command::new("glusterd");
    daemon.arg("-N").arg("-l").arg(dir.join("glusterd.log"));
    let daemon = Running::start(daemon);
    until("glusterd answers", || {
        let mut ask = Command::new("gluster");
        let asked = ask.args(["--mode=script", "pool", "list"]).output();
        asked.is_ok_and(|asked| asked.status.success())
    });
    daemon
}

/// Makes a volume of three bricks, and mounts it twice.
fn volume(dir: &Path, name: &str, off: &[&str], options: &str) -> [PathBuf; 2] {
    let brick = |i| format!("{HOST}:{}/brick{i}", dir.display());
    let bricks: Vec<String> = (0..3).map(brick).collect();
    let mut create = vec!["create", name];
    create.extend(bricks.iter().map(String::as_str));
    create.push("force");
    gluster(&create);
    for cache in off {
        gluster(&["set", name, &format!("performance.{cache}"), "off"]);
    }
    gluster(&["start", name]);
    ["volume1", "volume2"].map(|point| {
        let point = dir.join(point);
        fs::create_dir(&point).unwrap();
        let source = format!("{HOST}:/{name}");
        run(
            "mount",
            &["-t", "glusterfs", "-o", options, &source, text(&point)],
        );
        point
    })
}

fn gluster(arguments: &[&str]) {
    run(
        "gluster",
        &[&["--mode=script", "volume"], arguments].concat(),
    );
}
