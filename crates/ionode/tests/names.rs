//! What one does to names through a node: directories, links, renames, removals, and what is no file.

mod common;

use common::{Exported, errno, names, opened, options, pattern, read_all, refused, rw_file};
use presagio_ninep::client::Options;
use presagio_ninep::{
    Entries, Errno, Fid, GetAttr, OpenFlags, QidKind, Reply, Request, UnlinkFlags,
};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::atomic::{AtomicBool, Ordering};

const FILE: UnlinkFlags = UnlinkFlags(0);

#[test]
fn directories_of_thousands_of_entries_are_listed_completely() {
    let node = Exported::start();
    let (_session, root) = node.connect_with(&Options {
        msize: 4096,
        ..options()
    });
    let made = root.mkdir("many", 0o755).unwrap();
    assert!(made.kind.contains(QidKind::DIR));
    let expected: BTreeSet<Vec<u8>> = (0..4000)
        .map(|i| format!("entry-{i:05}").into_bytes())
        .collect();
    for name in &expected {
        let name = str::from_utf8(name).unwrap();
        fs::write(node.path("many").join(name), "").unwrap();
    }
    let listed = root.walk("many").unwrap().read_dir().unwrap();
    assert_eq!(listed.len(), expected.len(), "each once");
    let listed: BTreeSet<Vec<u8>> = listed.into_iter().map(|entry| entry.name).collect();
    assert!(listed == expected);
}

#[test]
fn a_listing_goes_on_behind_any_entry() {
    let node = Exported::start();
    for i in 0..100 {
        fs::write(node.path(format!("file-{i}")), "").unwrap();
    }
    let (session, root) = node.connect();
    let mut dir = root.walk("").unwrap();
    dir.open(OpenFlags::DIRECTORY).unwrap();
    let list = |offset, count| {
        let fid = dir.fid();
        let answer = session
            .client()
            .call(Request::ReadDir { fid, offset, count });
        let answer = answer.unwrap();
        let Reply::ReadDir { entries } = answer.reply() else {
            panic!("a listing");
        };
        let entries = Entries::new(entries).map(Result::unwrap);
        entries
            .map(|entry| (entry.name.bytes().to_vec(), entry.offset))
            .collect::<Vec<_>>()
    };
    let all = list(0, 60_000);
    assert_eq!(all.len(), 102, "and both dots");
    // From any place, in any order, in small pieces.
    for at in (0..all.len()).rev().step_by(7) {
        assert_eq!(list(all[at].1, 60_000), all[at + 1..], "behind {at}");
        let few = list(all[at].1, 100);
        assert!(few.len() < 5 && all[at + 1..].starts_with(&few));
    }
}

#[test]
fn entries_say_what_they_are() {
    let node = Exported::start();
    let (_session, root) = node.connect();
    fs::create_dir(node.path("dir")).unwrap();
    fs::write(node.path("file"), "").unwrap();
    std::os::unix::fs::symlink("file", node.path("link")).unwrap();
    root.mknod("pipe", 0o010_600, (0, 0)).unwrap();
    for entry in root.read_dir().unwrap() {
        let name = String::from_utf8(entry.name).unwrap();
        let (d_type, kind) = match name.as_str() {
            "dir" => (4, QidKind::DIR),
            "file" => (8, QidKind::FILE),
            "link" => (10, QidKind::SYMLINK),
            _ => (1, QidKind::FILE),
        };
        assert_eq!((entry.file_type, entry.qid.kind), (d_type, kind), "{name}");
        let inode = fs::symlink_metadata(node.path(&name)).unwrap().ino();
        assert_eq!(entry.qid.path, inode);
        assert_eq!(root.walk(&name).unwrap().qid().path, inode);
    }
}

#[test]
fn names_are_made_moved_and_removed() {
    let node = Exported::start();
    let (_session, root) = node.connect();
    rw_file(&root, "first").write_at(0, b"content").unwrap();
    root.mkdir("dir", 0o700).unwrap();
    let dir = root.walk("dir").unwrap();
    root.rename_at("first", &dir, "second").unwrap();
    refused(root.walk("first"), Errno::NOENT);
    let second = root.walk("dir/second").unwrap();
    root.link(&second, "hard").unwrap();
    assert_eq!(second.getattr(GetAttr::BASIC).unwrap().nlink, 2);
    second.rename(&root, "third").unwrap();
    assert_eq!(fs::read(node.path("third")).unwrap(), b"content");
    root.symlink("soft", "dir/no such thing").unwrap();
    let soft = root.walk("soft").unwrap();
    assert_eq!(soft.readlink().unwrap(), b"dir/no such thing");
    let target = fs::read_link(node.path("soft")).unwrap();
    assert_eq!(target.to_str(), Some("dir/no such thing"));
    refused(root.mkdir("dir", 0o700), Errno::EXIST);
    refused(root.unlink("dir", FILE), Errno::ISDIR);
    refused(root.unlink("third", UnlinkFlags::REMOVEDIR), Errno::NOTDIR);
    root.unlink("dir", UnlinkFlags::REMOVEDIR).unwrap();
    root.unlink("soft", FILE).unwrap();
    root.walk("hard").unwrap().remove().unwrap();
    refused(root.unlink("hard", FILE), Errno::NOENT);
    assert_eq!(names(&root), ["third"]);
}

#[test]
fn directories_that_are_not_empty_stay() {
    let node = Exported::start();
    let (_session, root) = node.connect();
    fs::create_dir_all(node.path("full/inner")).unwrap();
    fs::create_dir(node.path("other")).unwrap();
    let removed = root.unlink("full", UnlinkFlags::REMOVEDIR);
    refused(removed, Errno::NOTEMPTY);
    refused(root.walk("full").unwrap().remove(), Errno::NOTEMPTY);
    refused(root.rename_at("other", &root, "full"), Errno::NOTEMPTY);
    let inner = root.walk("full/inner").unwrap();
    refused(root.rename_at("full", &inner, "itself"), Errno::INVAL);
    root.rename_at("full", &root, "other").unwrap();
    assert!(node.path("other/inner").is_dir() && !node.path("full").exists());
}

#[test]
fn walks_go_deeper_than_one_message_can_say() {
    let node = Exported::start();
    let (_session, root) = node.connect();
    let path: Vec<String> = (0..40).map(|i| format!("level{i}")).collect();
    let path = path.join("/");
    fs::create_dir_all(node.path(&path)).unwrap();
    let deepest = root.walk(&path).unwrap();
    let inode = fs::metadata(node.path(&path)).unwrap().ino();
    assert_eq!(deepest.qid().path, inode);
    refused(root.walk(format!("{path}/nothing")), Errno::NOENT);
    let up = deepest.walk("../".repeat(40)).unwrap();
    assert_eq!(up.qid().path, root.qid().path);
}

#[test]
fn walking_through_a_file_ends_there() {
    let node = Exported::start();
    let (_session, root) = node.connect();
    fs::write(node.path("file"), "").unwrap();
    let file = root.walk("file").unwrap();
    refused(file.walk("below"), Errno::NOTDIR);
    refused(file.walk(".."), Errno::NOTDIR);
    refused(file.mkdir("below", 0o700), Errno::NOTDIR);
    refused(file.create("below", OpenFlags::RDWR, 0o600), Errno::NOTDIR);
    let mut dots = common::raw::Raw::attached(&node.socket(), 8192);
    let steps = ["file", "."].map(|step| presagio_ninep::Step::new(step).unwrap());
    let walk = Request::Walk {
        fid: Fid(0),
        new_fid: Fid(1),
        steps: presagio_ninep::List::new(&steps).unwrap(),
    };
    let taken = dots.call(1, &walk);
    assert!(matches!(taken.reply(), Reply::Walk { qids } if qids.len() == 1));
    let clunk = dots.call(1, &Request::Clunk { fid: Fid(1) });
    assert_eq!(clunk.error(), Some(Errno::BADF), "the fid is not taken");
}

#[test]
fn names_of_any_bytes_and_of_any_length_that_the_host_takes() {
    let node = Exported::start();
    let (_session, root) = node.connect();
    let longest = "x".repeat(255);
    let odd: [&[u8]; 6] = [
        b"\xff\xfe",
        b" ",
        b"...",
        b"a\nb",
        b"-rf *",
        longest.as_bytes(),
    ];
    for (number, name) in odd.iter().enumerate() {
        let file = root.create(name, OpenFlags::RDWR, 0o600).unwrap();
        let bytes = pattern(number as u64, 100);
        file.write_at(0, &bytes).unwrap();
        let mut again = root.walk(name).unwrap();
        again.open(OpenFlags::RDONLY).unwrap();
        assert_eq!(read_all(&again), bytes);
    }
    let listed = root.read_dir().unwrap();
    let listed: BTreeSet<Vec<u8>> = listed.into_iter().map(|entry| entry.name).collect();
    assert_eq!(listed, odd.iter().map(|name| name.to_vec()).collect());
    let longer = "x".repeat(256);
    let made = root.create(&longer, OpenFlags::RDWR, 0o600);
    refused(made, Errno::NAMETOOLONG);
    refused(root.mkdir("x".repeat(60_000), 0o700), Errno::NAMETOOLONG);
    refused(root.walk(&longer), Errno::NAMETOOLONG);
}

#[test]
fn a_file_that_is_renamed_over_lives_on_for_who_has_it_open() {
    let node = Exported::start();
    let (_one, root) = node.connect();
    let (_two, other) = node.connect();
    let old = rw_file(&root, "target");
    old.write_at(0, b"old").unwrap();
    rw_file(&other, "source").write_at(0, b"new").unwrap();
    other.rename_at("source", &other, "target").unwrap();
    assert_eq!(read_all(&old), b"old");
    old.write_at(3, b"er").unwrap();
    assert_eq!(read_all(&old), b"older");
    assert_eq!(old.getattr(GetAttr::BASIC).unwrap().nlink, 0);
    assert_eq!(fs::read(node.path("target")).unwrap(), b"new");
    let new = opened(&root, "target", OpenFlags::RDONLY);
    assert_eq!(read_all(&new), b"new");
    refused(root.walk("source"), Errno::NOENT);
}

#[test]
fn a_file_that_is_removed_lives_on_for_who_has_it_open() {
    let node = Exported::start();
    let (_one, root) = node.connect();
    let (_two, other) = node.connect();
    let file = rw_file(&root, "gone");
    let bytes = pattern(1, 100_000);
    file.write_at(0, &bytes).unwrap();
    other.unlink("gone", FILE).unwrap();
    refused(root.walk("gone"), Errno::NOENT);
    assert!(read_all(&file) == bytes);
    file.write_at(50_000, &pattern(2, 1000)).unwrap();
    assert!(read_all(&file)[50_000..51_000] == pattern(2, 1000));
    assert_eq!(file.getattr(GetAttr::BASIC).unwrap().nlink, 0);
    file.fsync(false).unwrap();
    // The name is free for another file, which is another.
    let again = rw_file(&other, "gone");
    again.write_at(0, b"another").unwrap();
    assert_eq!(read_all(&file).len(), bytes.len());
    assert_ne!(again.qid().path, file.qid().path);
    refused(file.remove(), errno(libc::ESTALE));
    assert_eq!(fs::read(node.path("gone")).unwrap(), b"another");
}

#[test]
fn fids_follow_their_files_through_renames() {
    let node = Exported::start();
    let (_one, root) = node.connect();
    fs::create_dir_all(node.path("a/b")).unwrap();
    let deep = root.walk("a/b").unwrap();
    let file = rw_file(&deep, "file");
    file.write_at(0, b"content").unwrap();
    fs::rename(node.path("a"), node.path("moved")).unwrap();
    assert_eq!(read_all(&file), b"content");
    rw_file(&deep, "more");
    assert!(node.path("moved/b/more").exists());
    assert_eq!(names(&deep), ["file", "more"]);
    let up = deep.walk("..").unwrap();
    let inode = fs::metadata(node.path("moved")).unwrap().ino();
    assert_eq!(up.qid().path, inode);
}

#[test]
fn hard_links_are_one_file() {
    let node = Exported::start();
    let (_session, root) = node.connect();
    let file = rw_file(&root, "one");
    root.link(&file, "two").unwrap();
    refused(root.link(&file, "two"), Errno::EXIST);
    let two = opened(&root, "two", OpenFlags::RDWR);
    two.write_at(0, b"shared").unwrap();
    assert_eq!(read_all(&file), b"shared");
    assert_eq!(two.qid().path, file.qid().path);
    root.unlink("one", FILE).unwrap();
    assert_eq!(two.getattr(GetAttr::BASIC).unwrap().nlink, 1);
    assert_eq!(fs::read(node.path("two")).unwrap(), b"shared");
    fs::create_dir(node.path("dir")).unwrap();
    let dir = root.walk("dir").unwrap();
    refused(root.link(&dir, "loop"), Errno::PERM);
}

#[test]
fn a_link_to_a_symbolic_link_is_that_link() {
    let node = Exported::start();
    let (_session, root) = node.connect();
    root.symlink("soft", "nowhere").unwrap();
    let soft = root.walk("soft").unwrap();
    root.link(&soft, "hard").unwrap();
    let target = fs::read_link(node.path("hard")).unwrap();
    assert_eq!(target.to_str(), Some("nowhere"));
}

#[test]
fn symbolic_links_are_read_and_never_opened() {
    let node = Exported::start();
    let (_session, root) = node.connect();
    fs::write(node.path("file"), "content").unwrap();
    std::os::unix::fs::symlink("file", node.path("soft")).unwrap();
    let mut soft = root.walk("soft").unwrap();
    assert!(soft.qid().kind.contains(QidKind::SYMLINK));
    refused(soft.open(OpenFlags::RDONLY), errno(libc::ELOOP));
    let created = root.create("soft", OpenFlags::RDWR, 0o600);
    refused(created, errno(libc::ELOOP));
    refused(soft.walk("x"), Errno::NOTDIR);
    let attr = soft.getattr(GetAttr::BASIC).unwrap();
    assert_eq!((attr.mode & 0o170_000, attr.size), (0o120_000, 4));
    let long = "x/".repeat(2000);
    root.symlink("long", &long).unwrap();
    let read = root.walk("long").unwrap().readlink().unwrap();
    assert_eq!(read, long.as_bytes());
}

#[test]
fn special_files_are_made_and_seen() {
    let node = Exported::start();
    let (_session, root) = node.connect();
    root.mknod("pipe", 0o010_600, (0, 0)).unwrap();
    root.mknod("socket", 0o140_600, (0, 0)).unwrap();
    root.mknod("plain", 0o100_600, (0, 0)).unwrap();
    let kind = |name: &str| fs::metadata(node.path(name)).unwrap().file_type();
    assert!(kind("pipe").is_fifo() && kind("socket").is_socket() && kind("plain").is_file());
    opened(&root, "plain", OpenFlags::RDWR)
        .write_at(0, b"bytes")
        .unwrap();
    if rustix::process::geteuid().is_root() {
        root.mknod("device", 0o020_600, (1, 3)).unwrap();
        let attr = root.walk("device").unwrap();
        let attr = attr.getattr(GetAttr::BASIC).unwrap();
        assert_eq!(attr.rdev, rustix::fs::makedev(1, 3));
    }
    // Types that cannot be made so, or that there are none of.
    for kind in 0..16u32 {
        if ![0, 1, 2, 6, 8, 12].contains(&kind) {
            let made = root.mknod("none", kind << 12 | 0o600, (0, 0));
            assert!(made.is_err(), "type {kind}");
        }
    }
    assert!(!node.path("none").exists());
}

#[test]
fn a_name_is_always_there_while_another_file_is_renamed_over_it() {
    let node = Exported::start();
    let (_one, root) = node.connect();
    let (_two, other) = node.connect();
    rw_file(&root, "name").write_at(0, b"content").unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut looks = 0;
            while !done.load(Ordering::Relaxed) {
                let file = opened(&other, "name", OpenFlags::RDONLY);
                assert_eq!(read_all(&file), b"content");
                looks += 1;
            }
            looks
        });
        for round in 0..300 {
            let name = format!("new-{round}");
            rw_file(&root, &name).write_at(0, b"content").unwrap();
            root.rename_at(&name, &root, "name").unwrap();
        }
        done.store(true, Ordering::Relaxed);
        assert!(looking.join().unwrap() > 0);
    });
}

#[test]
fn a_file_renamed_to_its_own_name_keeps_it() {
    let node = Exported::start();
    let (_session, root) = node.connect();
    let file = rw_file(&root, "same");
    file.write_at(0, b"content").unwrap();
    root.rename_at("same", &root, "same").unwrap();
    assert_eq!(read_all(&file), b"content");
    assert_eq!(file.getattr(GetAttr::BASIC).unwrap().nlink, 1);
}
