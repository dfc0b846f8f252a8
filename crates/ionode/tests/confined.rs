//! No way out of the export: whatever is walked, linked, moved or made, nothing outside is seen or touched, nor is what
//! the node keeps for itself.

mod auth;
mod common;

use common::mounts::Mounted;
use common::raw::Raw;
use common::{Exported, errno, is_root, names, refusal, refused, rw_file, wait_until};
use presagio_ninep::client::Error;
use presagio_ninep::session::File;
use presagio_ninep::{Errno, Fid, GetAttr, Kind, OpenFlags, Request, UnlinkFlags};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

const SECRET: &str = "secret";

const OWN_TRIED: &str = "what the node keeps for itself";
const DEVICE_TRIED: &str = "a device, a pipe or a socket";

/// That something is audited so often, at least: other tests of this file may be at it too.
#[track_caller]
fn is_audited(what: &str, times: usize, tried: impl FnOnce()) {
    auth::listen_to_audit();
    let before = auth::audited(what).len();
    tried();
    let now = || auth::audited(what).len();
    wait_until("it is audited", || now() >= before + times);
}

/// A node with something beside its export that nobody may see.
fn with_secret() -> Exported {
    let node = Exported::start();
    fs::write(node.outside().join(SECRET), "what nobody may see").unwrap();
    node
}

fn inode(path: impl AsRef<std::path::Path>) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

#[test]
fn above_the_root_is_the_root() {
    let node = with_secret();
    let (_session, root) = node.connect();
    fs::create_dir_all(node.path("a/b")).unwrap();
    for path in [
        "..",
        "../..",
        "../../../../..",
        "a/..",
        "a/../..",
        "a/b/../../../../..",
    ] {
        let at = root.walk(path).unwrap();
        assert_eq!(at.qid().path, inode(node.export()), "{path}");
        assert_eq!(names(&at), ["a"]);
    }
    refused(root.walk(format!("../{SECRET}")), Errno::NOENT);
    refused(root.walk("../export"), Errno::NOENT);
    refused(root.walk(format!("a/b/../../../{SECRET}")), Errno::NOENT);
}

#[test]
fn the_root_itself_cannot_be_moved_or_removed() {
    let node = with_secret();
    let (_session, root) = node.connect();
    fs::create_dir(node.path("dir")).unwrap();
    let dir = root.walk("dir").unwrap();
    refusal(root.walk("").unwrap().remove());
    refusal(root.walk("").unwrap().rename(&dir, "root"));
    refusal(root.walk("..").unwrap().rename(&dir, "root"));
    assert!(node.path("dir").is_dir());
    assert_eq!(names(&root), ["dir"]);
}

#[test]
fn links_are_the_clients_to_follow_and_lead_nowhere_here() {
    let node = with_secret();
    let (_session, root) = node.connect();
    for (name, target) in [
        ("to-root", "/"),
        ("to-above", "../.."),
        ("to-beside", ".."),
        ("to-secret", "../secret"),
        ("to-proc", "/proc/self/root"),
    ] {
        symlink(target, node.path(name)).unwrap();
        let mut link = root.walk(name).unwrap();
        assert_eq!(link.qid().path, inode(node.path(name)));
        assert_eq!(link.readlink().unwrap(), target.as_bytes());
        refused(root.walk(format!("{name}/{SECRET}")), Errno::NOENT);
        refused(link.walk("etc"), Errno::NOTDIR);
        refused(link.walk(".."), Errno::NOTDIR);
        refused(link.open(OpenFlags::RDONLY), errno(libc::ELOOP));
        refused(link.mkdir("dir", 0o700), Errno::NOTDIR);
        let create = root.create(name, OpenFlags::RDWR | OpenFlags::TRUNC, 0o600);
        refused(create, errno(libc::ELOOP));
    }
    let dir = root.walk("to-beside").unwrap();
    refused(root.rename_at("to-above", &dir, "moved"), Errno::NOTDIR);
    refused(dir.unlink(SECRET, UnlinkFlags(0)), Errno::NOTDIR);
    let mode = presagio_ninep::SetAttr {
        valid: presagio_ninep::SetMask::MODE,
        mode: 0o777,
        ..Default::default()
    };
    let secret = node.outside().join(SECRET);
    let before = fs::metadata(&secret).unwrap().mode();
    let _ = root.walk("to-secret").unwrap().setattr(mode);
    let _ = root.walk("to-secret").unwrap().xattr("");
    assert_eq!(fs::metadata(&secret).unwrap().mode(), before);
    assert_eq!(fs::read(&secret).unwrap(), b"what nobody may see");
}

#[test]
fn owners_and_times_of_links_are_the_links_own() {
    let node = with_secret();
    let (_session, root) = node.connect();
    let secret = node.outside().join(SECRET);
    symlink("../secret", node.path("link")).unwrap();
    let before = fs::metadata(&secret).unwrap();
    let change = presagio_ninep::SetAttr {
        valid: presagio_ninep::SetMask::MTIME
            | presagio_ninep::SetMask::MTIME_SET
            | presagio_ninep::SetMask::GID,
        gid: common::own_uid(),
        mtime: presagio_ninep::Time { sec: 77, nsec: 0 },
        ..Default::default()
    };
    root.walk("link").unwrap().setattr(change).unwrap();
    let after = fs::metadata(&secret).unwrap();
    assert_eq!(after.mtime(), before.mtime());
    assert_eq!(after.ctime_nsec(), before.ctime_nsec());
    let link = fs::symlink_metadata(node.path("link")).unwrap();
    assert_eq!(link.mtime(), 77);
}

#[test]
fn walking_while_directories_are_moved_shows_nothing_outside() {
    let node = with_secret();
    fs::create_dir_all(node.path("a/b/c")).unwrap();
    fs::create_dir(node.path("z")).unwrap();
    let outside = [inode(node.outside()), inode("/"), inode("/tmp")];
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                fs::rename(node.path("a/b"), node.path("z/b")).unwrap();
                fs::rename(node.path("z/b"), node.path("a/b")).unwrap();
            }
        });
        let walkers: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| walk_about(&node, &outside)))
            .collect();
        let arrived: usize = walkers.into_iter().map(|one| one.join().unwrap()).sum();
        done.store(true, Ordering::Relaxed);
        assert!(arrived > 0, "some walks succeed");
    });
}

/// Walks up and down; how many walks came to an end.
fn walk_about(node: &Exported, outside: &[u64]) -> usize {
    let (_session, root) = node.connect();
    let mut arrived = 0;
    for round in 0..400 {
        let paths = [
            "a/b/c/../../..",
            "z/b/c/../../..",
            "a/b/c/../../../../..",
            "a/b/../../..",
        ];
        let path = paths[round % paths.len()];
        if let Ok(at) = root.walk(path) {
            assert!(!outside.contains(&at.qid().path), "{path} led outside");
            arrived += 1;
        }
        refusal_or_gone(root.walk(format!("{path}/{SECRET}")));
    }
    arrived
}

#[track_caller]
fn refusal_or_gone(result: Result<File, Error>) {
    assert!(matches!(
        refusal(result),
        Errno::NOENT | Errno::NOTDIR | Errno::STALE
    ));
}

#[test]
fn a_directory_that_the_host_moves_out_leads_no_further_up() {
    let node = with_secret();
    fs::create_dir_all(node.path("dir/inner")).unwrap();
    let (_session, root) = node.connect();
    let dir = root.walk("dir").unwrap();
    let inner = root.walk("dir/inner").unwrap();
    let new_place = node.outside().join("moved");
    fs::rename(node.path("dir"), &new_place).unwrap();
    refused(dir.walk(".."), Errno::NOENT);
    refused(dir.walk(format!("../{SECRET}")), Errno::NOENT);
    refused(inner.walk("../.."), Errno::NOENT);
    refused(inner.walk(format!("../../{SECRET}")), Errno::NOENT);
    // When it is back, so is the way.
    fs::rename(&new_place, node.path("dir")).unwrap();
    let up = inner.walk("../..").unwrap();
    assert_eq!(up.qid().path, root.qid().path);
}

#[test]
fn hard_links_do_not_reach_outside() {
    let node = with_secret();
    let (_session, root) = node.connect();
    symlink("../secret", node.path("soft")).unwrap();
    let soft = root.walk("soft").unwrap();
    root.link(&soft, "hard").unwrap();
    let made = fs::symlink_metadata(node.path("hard")).unwrap();
    assert!(made.is_symlink(), "the link, not what it leads to");
    let secret = fs::metadata(node.outside().join(SECRET)).unwrap();
    assert_eq!(secret.nlink(), 1);
}

#[test]
fn what_the_node_keeps_for_itself_is_not_there() {
    let node = Exported::start();
    fs::create_dir_all(node.path(".presagio/inner")).unwrap();
    fs::write(node.path(".presagio/state"), "state").unwrap();
    fs::write(node.path("file"), "").unwrap();
    fs::create_dir(node.path("dir")).unwrap();
    let (_session, root) = node.connect();
    assert_eq!(names(&root), ["dir", "file"]);
    for path in [
        ".presagio",
        ".presagio/state",
        "dir/../.presagio",
        "dir/../.presagio/state",
        "../.presagio",
    ] {
        refused(root.walk(path), Errno::NOENT);
    }
    let own = ".presagio";
    refusal(root.rename_at(own, &root, "mine"));
    let file = root.walk("file").unwrap();
    is_audited(OWN_TRIED, 5, || {
        refusal(root.unlink(own, UnlinkFlags::REMOVEDIR));
        refusal(root.unlink(own, UnlinkFlags(0)));
        refusal(root.rename_at("file", &root, own));
        refusal(root.walk("dir").unwrap().rename(&root, own));
        refusal(root.link(&file, own));
    });
    assert_eq!(fs::read(node.path(".presagio/state")).unwrap(), b"state");
}

#[test]
fn what_the_node_keeps_for_itself_cannot_be_made() {
    let node = Exported::start();
    let (_session, root) = node.connect();
    fs::write(node.path("file"), "").unwrap();
    let own = ".presagio";
    is_audited(OWN_TRIED, 6, || {
        refusal(root.mkdir(own, 0o700));
        refusal(root.create(own, OpenFlags::RDWR, 0o600));
        refusal(root.symlink(own, "file"));
        refusal(root.mknod(own, 0o010_600, (0, 0)));
        refusal(root.mknod(own, 0o100_600, (0, 0)));
        refusal(root.rename_at("file", &root, own));
    });
    let there = fs::symlink_metadata(node.path(own));
    assert!(there.is_err() || there.unwrap().is_dir(), "the node's own");
    // Elsewhere it is a name like any other.
    root.mkdir("dir", 0o700).unwrap();
    let dir = root.walk("dir").unwrap();
    rw_file(&dir, own).write_at(0, b"x").unwrap();
    assert_eq!(names(&dir), [own]);
}

#[test]
fn magic_links_of_proc_are_no_way_out() {
    if !is_root("a mount of proc within the export") {
        return;
    }
    let node = with_secret();
    fs::create_dir(node.path("proc")).unwrap();
    let proc = std::path::Path::new("proc");
    let Some(_mounted) = Mounted::new(&["-t", "proc"], proc, &node.path("proc")) else {
        return;
    };
    let (_session, root) = node.connect();
    let me = std::process::id();
    for (name, below) in [("root", "etc"), ("cwd", "Cargo.toml"), ("exe", "x")] {
        let path = format!("proc/{me}/{name}");
        if let Ok(mut link) = root.walk(&path) {
            refused(link.open(OpenFlags::RDONLY), errno(libc::ELOOP));
            refused(link.walk(below), Errno::NOTDIR);
        }
        refusal(root.walk(format!("{path}/{below}")));
    }
    let secret = fs::File::open(node.outside().join(SECRET)).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&secret);
    let path = format!("proc/{me}/fd/{number}");
    if let Ok(mut link) = root.walk(&path) {
        refused(link.open(OpenFlags::RDONLY), errno(libc::ELOOP));
        let in_dir = root.walk(format!("proc/{me}/fd")).unwrap();
        refusal(in_dir.create(number.to_string(), OpenFlags::RDWR, 0o600));
    }
}

#[test]
fn devices_pipes_and_sockets_are_not_opened() {
    let node = Exported::start();
    let (_session, root) = node.connect();
    root.mknod("pipe", 0o010_666, (0, 0)).unwrap();
    root.mknod("socket", 0o140_666, (0, 0)).unwrap();
    let mut all = vec!["pipe", "socket"];
    if rustix::process::geteuid().is_root() {
        root.mknod("null", 0o020_666, (1, 3)).unwrap();
        root.mknod("disk", 0o060_666, (7, 200)).unwrap();
        all.extend(["null", "disk"]);
    }
    for name in all {
        for flags in [
            OpenFlags::RDONLY,
            OpenFlags::WRONLY,
            OpenFlags::RDWR,
            OpenFlags::WRONLY | OpenFlags::NONBLOCK,
            OpenFlags::RDONLY | OpenFlags::TRUNC,
        ] {
            let mut file = root.walk(name).unwrap();
            is_audited(DEVICE_TRIED, 1, || {
                refused(file.open(flags), errno(libc::ENXIO));
            });
        }
        let size = presagio_ninep::SetAttr {
            valid: presagio_ninep::SetMask::SIZE,
            ..Default::default()
        };
        refused(root.walk(name).unwrap().setattr(size), Errno::INVAL);
        root.walk(name).unwrap().getattr(GetAttr::BASIC).unwrap();
    }
}

#[test]
fn a_name_is_never_a_path() {
    let node = with_secret();
    let bad: [&[u8]; 5] = [b"../secret", b"/etc", b"a/b", b".", b".."];
    for name in bad {
        let length = (name.len() as u16).to_le_bytes();
        let fid = 0u32.to_le_bytes();
        let mkdir = common::raw::frame(72, 3, &[&fid, &length, name, &[0; 8]]);
        let unlink = common::raw::frame(76, 3, &[&fid, &length, name, &[0; 4]]);
        let create = common::raw::frame(14, 3, &[&fid, &length, name, &[0; 12]]);
        let why = if name.contains(&b'/') {
            "contains a slash"
        } else {
            "is '.' or '..'"
        };
        for frame in [mkdir, unlink, create] {
            let mut raw = Raw::attached(&node.socket(), 8192);
            is_audited(why, 1, || {
                raw.send(&frame).unwrap();
                raw.is_ended();
            });
        }
    }
    let mut raw = Raw::attached(&node.socket(), 8192);
    let clunk = raw.call(1, &Request::Clunk { fid: Fid(0) });
    assert_eq!(clunk.kind, Kind(121));
    assert!(node.outside().join(SECRET).exists());
}
