//! File systems that fail: full, read-only. What the client is told is true.

mod common;

use common::mounts::Mounted;
use common::{Exported, is_root, names, opened, pattern, read_all, refused, rw_file};
use presagio_ninep::client::{Ask, Error};
use presagio_ninep::session::File;
use presagio_ninep::{
    Data, Errno, Fid, GetAttr, OpenFlags, Reply, Request, SetAttr, SetMask, UnlinkFlags, XattrFlags,
};
use presagio_storage::Directory;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::sync::Arc;

/// A node on a file system of its own. The fields are dropped in this order.
struct OnMount {
    node: Exported,
    mounted: Mounted,
}

fn on_mount(mount: impl FnOnce(&tempfile::TempDir) -> Option<Mounted>) -> Option<OnMount> {
    if !is_root("a file system of the test's own") {
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let export = directory.path().join("export");
    fs::create_dir(&export).unwrap();
    let mounted = mount(&directory)?;
    let node = Exported::of(directory, &export, Arc::new(Directory), |_| {});
    Some(OnMount { node, mounted })
}

fn small_tmpfs(options: &str) -> Option<OnMount> {
    on_mount(|directory| Mounted::tmpfs(options, &directory.path().join("export")))
}

fn small_ext4() -> Option<OnMount> {
    on_mount(|directory| {
        let at = directory.path();
        Mounted::ext4(8, &at.join("image"), &at.join("export"))
    })
}

#[test]
fn a_full_disk_is_told_and_what_was_acknowledged_is_there() {
    for full in [small_tmpfs("size=2m"), small_ext4()].into_iter().flatten() {
        let (_session, root) = full.node.connect();
        let file = rw_file(&root, "file");
        let acknowledged = fill(&file, 50_000);
        assert!(acknowledged > 1 << 20, "only {acknowledged}");
        let on_disk = fs::read(full.node.path("file")).unwrap();
        assert!(on_disk.len() >= acknowledged);
        assert!(on_disk[..acknowledged] == pattern(1, 16 << 20)[..acknowledged]);
        assert!(read_all(&file)[..acknowledged] == on_disk[..acknowledged]);
    }
}

/// Writes until there is no room; returns how much was acknowledged.
fn fill(file: &File, piece: usize) -> usize {
    let bytes = pattern(1, 16 << 20);
    let mut done = 0;
    while done < bytes.len() {
        match file.write_at(done as u64, &bytes[done..done + piece]) {
            Ok(count) => done += count,
            Err(error) => {
                refused::<()>(Err(error), Errno::NOSPC);
                return done;
            }
        }
    }
    panic!("no end of room");
}

/// What a file system keeps for root is kept by the capability that lets root go beyond a quota too.
#[test]
fn a_user_does_not_get_what_is_kept_for_root() {
    if !is_root("acting as other users") {
        return;
    }
    let Some(full) = small_ext4() else { return };
    let anybody = fs::Permissions::from_mode(0o777);
    fs::set_permissions(full.node.export(), anybody).unwrap();
    let (_session, root) = full.node.connect_as(4242);
    let file = rw_file(&root, "file");
    let acknowledged = fill(&file, 4096);
    assert!(acknowledged > 1 << 20, "only {acknowledged}");
    // Appends go another way.
    let appended = opened(&root, "file", OpenFlags::WRONLY | OpenFlags::APPEND);
    refused(appended.write_at(0, &[1; 8192]), Errno::NOSPC);
    let left = rustix::fs::statvfs(full.node.export()).unwrap();
    let (for_all, for_root) = (left.f_bavail, left.f_bfree);
    assert!(
        for_all < 16 && for_root > for_all + 50,
        "{for_all} blocks, {for_root} for root"
    );
    fs::write(full.node.path("by-root"), [1; 100_000]).expect("there is room for root");
}

#[test]
fn of_many_writes_to_a_full_disk_each_is_told_its_own_fate() {
    let Some(full) = small_tmpfs("size=2m") else {
        return;
    };
    let (session, root) = full.node.connect();
    let file = rw_file(&root, "file");
    let fid = file.fid();
    let blocks: Vec<Vec<u8>> = (0..100).map(|block| pattern(block, 40_000)).collect();
    let writes = blocks.iter().zip(0u64..).map(|(block, at)| {
        let (offset, data) = (at * 40_000, Data::new(block).unwrap());
        Ask::new(Request::Write { fid, offset, data })
    });
    let tickets = session.client().submit_all(writes).unwrap();
    let on_disk = fs::File::open(full.node.path("file")).unwrap();
    let (mut kept, mut failed) = (0, 0);
    for (at, (ticket, block)) in tickets.into_iter().zip(&blocks).enumerate() {
        let count = match ticket.wait() {
            Ok(answer) => match answer.reply() {
                Reply::Write { count } => count as usize,
                other => panic!("{other:?}"),
            },
            Err(error) => {
                refused::<()>(Err(error), Errno::NOSPC);
                failed += 1;
                continue;
            }
        };
        let mut there = vec![0; count];
        on_disk
            .read_exact_at(&mut there, at as u64 * 40_000)
            .unwrap();
        assert!(there == block[..count], "block {at}");
        kept += count;
    }
    assert!(
        kept > 1 << 20 && failed > 0,
        "{kept} bytes, {failed} failed"
    );
}

#[test]
fn appends_to_a_full_disk_are_told_too() {
    let Some(full) = small_tmpfs("size=1m") else {
        return;
    };
    let (_session, root) = full.node.connect();
    rw_file(&root, "log");
    let log = opened(&root, "log", OpenFlags::WRONLY | OpenFlags::APPEND);
    let record = pattern(2, 30_000);
    let mut expected = Vec::new();
    let error = loop {
        match log.write_at(0, &record) {
            Ok(count) => expected.extend_from_slice(&record[..count]),
            Err(error) => break error,
        }
    };
    refused::<()>(Err(error), Errno::NOSPC);
    assert!(fs::read(full.node.path("log")).unwrap() == expected);
}

#[test]
fn a_disk_that_has_room_again_is_used_again() {
    let Some(full) = small_tmpfs("size=1m") else {
        return;
    };
    let (_session, root) = full.node.connect();
    let file = rw_file(&root, "file");
    fill(&file, 60_000);
    let other = rw_file(&root, "other");
    refused(other.write_at(0, b"bytes"), Errno::NOSPC);
    let nothing = SetAttr {
        valid: SetMask::SIZE,
        ..SetAttr::default()
    };
    file.setattr(nothing).unwrap();
    let bytes = pattern(3, 500_000);
    assert_eq!(other.write_at(0, &bytes).unwrap(), bytes.len());
    other.fsync(false).unwrap();
    assert!(fs::read(full.node.path("other")).unwrap() == bytes);
}

#[test]
fn no_room_for_names_is_told() {
    let Some(full) = small_tmpfs("size=1m,nr_inodes=16") else {
        return;
    };
    let (_session, root) = full.node.connect();
    let error = (0..100).find_map(|i| root.mkdir(format!("dir-{i}"), 0o700).err());
    refused::<()>(Err(error.unwrap()), Errno::NOSPC);
    refused(root.create("x", OpenFlags::RDWR, 0o600), Errno::NOSPC);
    refused(root.symlink("x", "y"), Errno::NOSPC);
    assert!(!names(&root).contains(&"x".to_owned()));
}

/// Every way to change something, each with a name.
fn changes(root: &File) -> Vec<(&'static str, Result<(), Error>)> {
    let file = || root.walk("file").unwrap();
    let open = |flags| file().open(flags);
    let set = |valid| {
        file().setattr(SetAttr {
            valid,
            ..SetAttr::default()
        })
    };
    let create = root.create("new", OpenFlags::RDWR, 0o600);
    vec![
        ("create", create.map(drop)),
        ("mkdir", root.mkdir("new", 0o700).map(drop)),
        ("symlink", root.symlink("new", "x").map(drop)),
        ("mknod", root.mknod("new", 0o010_600, (0, 0)).map(drop)),
        ("link", root.link(&file(), "new")),
        ("rename", file().rename(root, "new")),
        ("rename_at", root.rename_at("file", root, "new")),
        ("unlink", root.unlink("file", UnlinkFlags(0))),
        ("rmdir", root.unlink("dir", UnlinkFlags::REMOVEDIR)),
        ("remove", file().remove()),
        ("mode", set(SetMask::MODE)),
        ("size", set(SetMask::SIZE)),
        ("owner", set(SetMask::UID)),
        ("group", set(SetMask::GID)),
        ("times", set(SetMask::MTIME)),
        ("open to write", open(OpenFlags::WRONLY)),
        ("open to read and write", open(OpenFlags::RDWR)),
        ("cut", open(OpenFlags::RDONLY | OpenFlags::TRUNC)),
        ("attribute", file().set_xattr("user.x", b"x", XattrFlags(0))),
    ]
}

#[test]
fn nothing_is_changed_through_a_read_only_export() {
    let node = Exported::with(|config| config.read_only = true);
    fs::write(node.path("file"), "content").unwrap();
    fs::create_dir(node.path("dir")).unwrap();
    let before = fs::metadata(node.path("file")).unwrap();
    let (_session, root) = node.connect();
    for (what, result) in changes(&root) {
        match result {
            Err(Error::Server(errno)) => assert_eq!(errno, Errno::ROFS, "{what}"),
            other => panic!("{what}: {other:?}"),
        }
    }
    let after = fs::metadata(node.path("file")).unwrap();
    assert_eq!(after.modified().unwrap(), before.modified().unwrap());
    let file = opened(&root, "file", OpenFlags::RDONLY);
    assert_eq!(read_all(&file), b"content");
    assert_eq!(names(&root), ["dir", "file"]);
    assert_eq!(fs::read_dir(node.export()).unwrap().count(), 2);
}

#[test]
fn a_file_found_again_through_a_read_only_export_is_not_written() {
    let node = Exported::with(|config| config.read_only = true);
    fs::write(node.path("file"), "content").unwrap();
    let (session, root) = node.connect();
    let fid = root.walk("file").unwrap();
    let answer = session.client().call(Request::Handle { fid: fid.fid() });
    let answer = answer.unwrap();
    let Reply::Handle { handle } = answer.reply() else {
        panic!("a handle");
    };
    for flags in [OpenFlags::WRONLY, OpenFlags::RDWR] {
        let request = Request::Reopen {
            root: root.fid(),
            fid: Fid(5000),
            flags: presagio_ninep::extension::ReopenFlags::new(flags),
            handle,
        };
        refused(session.client().call(request), Errno::ROFS);
    }
}

#[test]
fn a_file_system_that_becomes_read_only_is_still_read() {
    let Some(full) = small_tmpfs("size=1m") else {
        return;
    };
    fs::write(full.node.path("file"), "content").unwrap();
    fs::create_dir(full.node.path("dir")).unwrap();
    let (_session, root) = full.node.connect();
    full.mounted.make_read_only();
    for (what, result) in changes(&root) {
        match result {
            Err(Error::Server(errno)) => assert_eq!(errno, Errno::ROFS, "{what}"),
            other => panic!("{what}: {other:?}"),
        }
    }
    let file = opened(&root, "file", OpenFlags::RDONLY);
    assert_eq!(read_all(&file), b"content");
    file.getattr(GetAttr::ALL).unwrap();
}

#[test]
fn a_node_starts_on_a_file_system_that_cannot_be_written_to() {
    let mount = |directory: &tempfile::TempDir| {
        let mounted = Mounted::tmpfs("size=1m", &directory.path().join("export"))?;
        fs::write(directory.path().join("export/file"), "content").unwrap();
        mounted.make_read_only();
        Some(mounted)
    };
    let Some(on) = on_mount(mount) else { return };
    let (_session, root) = on.node.connect();
    let file = opened(&root, "file", OpenFlags::RDONLY);
    assert_eq!(read_all(&file), b"content");
}
