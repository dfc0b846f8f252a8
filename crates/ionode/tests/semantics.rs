//! What one does to files through a node, seen from both sides: bytes and attributes.

mod common;

use common::{
    Exported, PATIENCE, errno, opened, options, own_uid, pattern, read_all, refused, rw_file,
};
use presagio_ninep::client::{Ask, Options};
use presagio_ninep::{
    Data, Errno, GetAttr, MSIZE_MAX, OpenFlags, Reply, Request, SetAttr, SetMask, Time, XattrFlags,
};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::time::SystemTime;

#[test]
fn what_is_written_is_in_the_file_and_can_be_read() {
    let node = Exported::start();
    let (session, root) = node.connect_with(&Options {
        msize: 64 << 10,
        ..options()
    });
    let file = rw_file(&root, "data");
    // More than all pieces that are under way at once.
    let bytes = pattern(1, 20 * session.client().io_max() as usize + 12_345);
    assert_eq!(file.write_at(0, &bytes).unwrap(), bytes.len());
    file.fsync(true).unwrap();
    file.fsync(false).unwrap();
    assert!(fs::read(node.path("data")).unwrap() == bytes);
    let mut read = vec![0; bytes.len() + 100];
    assert_eq!(file.read_at(0, &mut read).unwrap(), bytes.len());
    assert!(read[..bytes.len()] == bytes);
    let mut few = [0; 33];
    assert_eq!(file.read_at(1001, &mut few).unwrap(), 33);
    assert_eq!(few[..], bytes[1001..1034]);
}

#[test]
fn frames_of_four_mebibytes_carry_their_bytes() {
    let node = Exported::start();
    let (session, root) = node.connect_with(&Options {
        msize: MSIZE_MAX,
        ..options()
    });
    assert_eq!(session.client().agreed().msize, MSIZE_MAX);
    let file = rw_file(&root, "large");
    let bytes = pattern(2, session.client().io_max() as usize);
    assert_eq!(file.write_at(77, &bytes).unwrap(), bytes.len());
    assert!(fs::read(node.path("large")).unwrap()[77..] == bytes);
    let mut read = vec![0; bytes.len()];
    let got = session.client().read(file.fid(), 77, &mut read).unwrap();
    assert_eq!(got, bytes.len(), "in one frame");
    assert!(read == bytes);
}

#[test]
fn what_the_host_writes_is_read_and_what_clients_write_is_seen_by_all() {
    let node = Exported::start();
    let (_one, first) = node.connect();
    let (_two, second) = node.connect();
    fs::write(node.path("shared"), pattern(3, 10_000)).unwrap();
    let mine = opened(&first, "shared", OpenFlags::RDWR);
    let theirs = opened(&second, "shared", OpenFlags::RDWR);
    assert!(read_all(&mine) == pattern(3, 10_000));
    for round in 0..50 {
        let bytes = pattern(round, 5000);
        let (writer, reader) = match round % 2 {
            0 => (&mine, &theirs),
            _ => (&theirs, &mine),
        };
        writer.write_at(round * 100, &bytes).unwrap();
        let mut read = vec![0; 5000];
        assert_eq!(reader.read_at(round * 100, &mut read).unwrap(), 5000);
        assert!(read == bytes, "round {round}");
    }
}

#[test]
fn attributes_are_those_of_the_file() {
    let node = Exported::start();
    let (_session, root) = node.connect();
    let file = rw_file(&root, "attributes");
    file.write_at(0, b"twelve bytes").unwrap();
    let attr = file.getattr(GetAttr::ALL).unwrap();
    let stat = fs::metadata(node.path("attributes")).unwrap();
    assert!(attr.valid.contains(GetAttr::BASIC));
    assert_eq!((attr.size, attr.qid.path), (12, stat.ino()));
    assert_eq!(
        (attr.mode, attr.uid, attr.gid),
        (stat.mode(), stat.uid(), stat.gid())
    );
    assert_eq!(
        (attr.nlink, attr.blksize, attr.blocks),
        (1, stat.blksize(), stat.blocks())
    );
    assert_eq!(
        (attr.mtime.sec, attr.mtime.nsec),
        (stat.mtime() as u64, stat.mtime_nsec() as u64)
    );
    assert_eq!(attr.ctime.nsec, stat.ctime_nsec() as u64);
}

#[test]
fn attributes_are_changed_all_at_once() {
    let node = Exported::start();
    let (_session, root) = node.connect();
    rw_file(&root, "changed")
        .write_at(0, b"twelve bytes")
        .unwrap();
    let file = root.walk("changed").unwrap();
    let change = SetAttr {
        valid: SetMask::MODE
            | SetMask::SIZE
            | SetMask::MTIME
            | SetMask::MTIME_SET
            | SetMask::ATIME
            | SetMask::ATIME_SET,
        mode: 0o604,
        size: 5,
        mtime: Time {
            sec: 1_000_000,
            nsec: 7_000,
        },
        atime: Time {
            sec: 2_000_000,
            nsec: 999_999_999,
        },
        ..SetAttr::default()
    };
    file.setattr(change).unwrap();
    let stat = fs::metadata(node.path("changed")).unwrap();
    assert_eq!((stat.mode() & 0o7777, stat.size()), (0o604, 5));
    assert_eq!((stat.mtime(), stat.mtime_nsec()), (1_000_000, 7_000));
    assert_eq!((stat.atime(), stat.atime_nsec()), (2_000_000, 999_999_999));
}

#[test]
fn times_without_a_value_are_now() {
    let node = Exported::start();
    let (_session, root) = node.connect();
    fs::write(node.path("old"), "x").unwrap();
    let past = SystemTime::UNIX_EPOCH;
    fs::File::options()
        .write(true)
        .open(node.path("old"))
        .and_then(|file| file.set_modified(past))
        .unwrap();
    let before = fs::metadata(node.path("old")).unwrap();
    let touched = SetAttr {
        valid: SetMask::MTIME,
        ..SetAttr::default()
    };
    root.walk("old").unwrap().setattr(touched).unwrap();
    let after = fs::metadata(node.path("old")).unwrap();
    assert!(after.modified().unwrap() > past);
    assert_eq!(after.accessed().unwrap(), before.accessed().unwrap());
}

#[test]
fn a_setattr_that_names_nothing_changes_nothing() {
    let node = Exported::start();
    let (_session, root) = node.connect();
    fs::write(node.path("same"), "content").unwrap();
    let before = fs::metadata(node.path("same")).unwrap();
    let zeros = SetAttr::default();
    root.walk("same").unwrap().setattr(zeros).unwrap();
    let after = fs::metadata(node.path("same")).unwrap();
    assert_eq!(
        (after.mode(), after.size(), after.mtime_nsec()),
        (before.mode(), before.size(), before.mtime_nsec())
    );
}

#[test]
fn the_file_system_says_the_same_as_on_the_host() {
    let node = Exported::start();
    let (_session, root) = node.connect();
    let got = root.statfs().unwrap();
    let host = rustix::fs::statvfs(node.export()).unwrap();
    assert_eq!(
        (u64::from(got.bsize), got.blocks),
        (host.f_bsize, host.f_blocks)
    );
    assert_eq!(u64::from(got.namelen), host.f_namemax);
    let raw = rustix::fs::statfs(node.export()).unwrap();
    assert_eq!(got.fstype, raw.f_type as u32);
}

#[test]
fn files_are_cut_and_extended_with_zeros() {
    let node = Exported::start();
    let (_session, root) = node.connect();
    let file = rw_file(&root, "cut");
    file.write_at(0, &pattern(4, 9000)).unwrap();
    let resize = |size| {
        file.setattr(SetAttr {
            valid: SetMask::SIZE,
            size,
            ..SetAttr::default()
        })
    };
    resize(100).unwrap();
    assert!(read_all(&file) == pattern(4, 100));
    resize(5000).unwrap();
    let all = read_all(&file);
    assert!(all.len() == 5000 && all[..100] == pattern(4, 100));
    assert!(all[100..].iter().all(|byte| *byte == 0));
    // Not only through the fid that has it open, and not through one that may not write.
    let closed = root.walk("cut").unwrap();
    let to_seven = SetAttr {
        valid: SetMask::SIZE,
        size: 7,
        ..SetAttr::default()
    };
    closed.setattr(to_seven).unwrap();
    assert_eq!(fs::metadata(node.path("cut")).unwrap().len(), 7);
    refused(root.setattr(to_seven), Errno::ISDIR);
    refused(resize(u64::MAX), errno(libc::EFBIG));
}

#[test]
fn opening_with_trunc_leaves_nothing() {
    let node = Exported::start();
    let (_session, root) = node.connect();
    fs::write(node.path("full"), pattern(5, 5000)).unwrap();
    let file = opened(&root, "full", OpenFlags::WRONLY | OpenFlags::TRUNC);
    assert_eq!(fs::metadata(node.path("full")).unwrap().len(), 0);
    file.write_at(0, b"new").unwrap();
    assert_eq!(fs::read(node.path("full")).unwrap(), b"new");
    let again = root
        .create("full", OpenFlags::RDWR | OpenFlags::TRUNC, 0o600)
        .unwrap();
    assert_eq!(fs::metadata(node.path("full")).unwrap().len(), 0);
    again.write_at(0, b"newer").unwrap();
    opened(&root, "full", OpenFlags::RDWR);
    assert_eq!(fs::read(node.path("full")).unwrap(), b"newer");
}

#[test]
fn creating_with_excl_succeeds_for_one_only() {
    let node = Exported::start();
    let exclusive = OpenFlags::RDWR | OpenFlags::EXCL;
    for round in 0..20 {
        let name = format!("only-{round}");
        let made: usize = std::thread::scope(|scope| {
            let tries: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let (_session, root) = node.connect();
                        match root.create(&name, exclusive, 0o600) {
                            Ok(_) => 1,
                            Err(error) => {
                                refused::<()>(Err(error), Errno::EXIST);
                                0
                            }
                        }
                    })
                })
                .collect();
            tries.into_iter().map(|one| one.join().unwrap()).sum()
        });
        assert_eq!(made, 1, "{name}");
    }
}

#[test]
fn creating_what_is_there_opens_it_as_it_is() {
    let node = Exported::start();
    let (_session, root) = node.connect();
    fs::write(node.path("there"), "content").unwrap();
    let private = fs::Permissions::from_mode(0o600);
    fs::set_permissions(node.path("there"), private).unwrap();
    let file = root.create("there", OpenFlags::RDWR, 0o666).unwrap();
    assert_eq!(read_all(&file), b"content");
    let stat = fs::metadata(node.path("there")).unwrap();
    assert_eq!(stat.mode() & 0o777, 0o600);
    fs::create_dir(node.path("dir")).unwrap();
    refused(root.create("dir", OpenFlags::RDWR, 0o600), Errno::ISDIR);
}

#[test]
fn appends_of_many_connections_are_whole_and_none_is_lost() {
    const WRITERS: u8 = 6;
    const RECORDS: u32 = 120;
    let node = Exported::start();
    let (_session, root) = node.connect();
    rw_file(&root, "log");
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let node = &node;
            scope.spawn(move || append_records(node, writer, RECORDS));
        }
    });
    let all = fs::read(node.path("log")).unwrap();
    let mut next: BTreeMap<u8, u32> = BTreeMap::new();
    let mut rest = &all[..];
    while let [writer, tail @ ..] = rest {
        let number = u32::from_le_bytes(tail[..4].try_into().unwrap());
        let record = record(*writer, number);
        assert!(rest.starts_with(&record), "a record is torn");
        assert_eq!(*next.entry(*writer).or_default(), number, "in order");
        next.insert(*writer, number + 1);
        rest = &rest[record.len()..];
    }
    assert!(next.len() == usize::from(WRITERS) && next.values().all(|n| *n == RECORDS));
}

/// Records of different lengths, some large enough to come in pieces.
fn record(writer: u8, number: u32) -> Vec<u8> {
    let length = [10, 300, 5000, 40_000][number as usize % 4] + usize::from(writer);
    let mut bytes = vec![writer];
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.resize(length, writer ^ number as u8);
    bytes
}

fn append_records(node: &Exported, writer: u8, records: u32) {
    let (_session, root) = node.connect();
    let log = opened(&root, "log", OpenFlags::WRONLY | OpenFlags::APPEND);
    for number in 0..records {
        let record = record(writer, number);
        // Where it is said to go does not matter.
        let offset = u64::from(number) * 7;
        assert_eq!(log.write_at(offset, &record).unwrap(), record.len());
    }
}

#[test]
fn holes_read_as_zeros_and_beyond_the_end_is_nothing() {
    let node = Exported::start();
    let (_session, root) = node.connect();
    let file = rw_file(&root, "sparse");
    let far = 5 << 30;
    file.write_at(far, b"far").unwrap();
    let mut hole = vec![1; 100_000];
    assert_eq!(file.read_at(1 << 30, &mut hole).unwrap(), hole.len());
    assert!(hole.iter().all(|byte| *byte == 0));
    let mut end = [0; 100];
    assert_eq!(file.read_at(far - 2, &mut end).unwrap(), 5);
    assert_eq!(end[..5], *b"\0\0far");
    assert_eq!(file.read_at(far + 3, &mut end).unwrap(), 0);
    assert_eq!(file.read_at(far << 10, &mut end).unwrap(), 0);
    let stat = fs::metadata(node.path("sparse")).unwrap();
    assert!(stat.blocks() < 2048, "a hole takes no room");
}

#[test]
fn reads_and_writes_of_nothing_do_nothing() {
    let node = Exported::start();
    let (session, root) = node.connect();
    let file = rw_file(&root, "still");
    file.write_at(0, b"content").unwrap();
    let fid = file.fid();
    let data = Data::new(b"").unwrap();
    for offset in [0, 3, 7, 1 << 40] {
        let read = Request::Read {
            fid,
            offset,
            count: 0,
        };
        let answer = session.client().call(read).unwrap();
        assert!(matches!(answer.reply(), Reply::Read { data } if data.bytes().is_empty()));
        let write = Request::Write { fid, offset, data };
        let answer = session.client().call(write).unwrap();
        assert!(matches!(answer.reply(), Reply::Write { count: 0 }));
    }
    assert_eq!(fs::read(node.path("still")).unwrap(), b"content");
}

#[test]
fn offsets_that_no_file_has_are_refused_and_nothing_else_happens() {
    let node = Exported::start();
    let (session, root) = node.connect();
    let file = rw_file(&root, "huge");
    let fid = file.fid();
    let data = Data::new(b"bytes").unwrap();
    for offset in [
        i64::MAX as u64,
        i64::MAX as u64 - 2,
        i64::MAX as u64 + 1,
        u64::MAX - 5,
        u64::MAX,
    ] {
        let count = 100;
        let read = Request::Read { fid, offset, count };
        refused(session.client().call(read), Errno::INVAL);
        let write = Request::Write { fid, offset, data };
        refused(session.client().call(write), errno(libc::EFBIG));
    }
    assert_eq!(fs::metadata(node.path("huge")).unwrap().len(), 0);
    file.write_at(0, b"fine").unwrap();
    assert_eq!(read_all(&file), b"fine");
}

#[test]
fn a_read_of_more_than_a_frame_gets_what_fits() {
    let node = Exported::start();
    let mut raw = common::raw::Raw::attached(&node.socket(), 8192);
    fs::write(node.path("file"), pattern(6, 100_000)).unwrap();
    let steps = [presagio_ninep::Step::new("file").unwrap()];
    let (fid, new_fid) = (presagio_ninep::Fid(0), presagio_ninep::Fid(1));
    let steps = presagio_ninep::List::new(&steps).unwrap();
    raw.call(
        2,
        &Request::Walk {
            fid,
            new_fid,
            steps,
        },
    );
    let flags = OpenFlags::RDONLY;
    raw.call(
        2,
        &Request::Open {
            fid: new_fid,
            flags,
        },
    );
    for count in [8192, 100_000, u32::MAX] {
        let read = Request::Read {
            fid: new_fid,
            offset: 10,
            count,
        };
        let taken = raw.call(2, &read);
        let Reply::Read { data } = taken.reply() else {
            panic!("no data");
        };
        let got = data.bytes().len();
        assert!((8000..=8192 - 11).contains(&got), "{got} of {count}");
        assert!(data.bytes() == &pattern(6, 100_000)[10..10 + got]);
    }
}

#[test]
fn a_fid_does_only_what_it_was_opened_for() {
    let node = Exported::start();
    let (_session, root) = node.connect();
    fs::write(node.path("file"), "content").unwrap();
    let mut place = [0; 10];
    let reader = opened(&root, "file", OpenFlags::RDONLY);
    refused(reader.write_at(0, b"x"), Errno::BADF);
    refused(reader.write_at(0, &[1; 50_000]), Errno::BADF);
    let writer = opened(&root, "file", OpenFlags::WRONLY);
    refused(writer.read_at(0, &mut place), Errno::BADF);
    let closed = root.walk("file").unwrap();
    refused(closed.read_at(0, &mut place), Errno::BADF);
    refused(closed.write_at(0, b"x"), Errno::BADF);
    refused(closed.fsync(false), Errno::BADF);
    let mut dir = root.walk("").unwrap();
    dir.open(OpenFlags::DIRECTORY).unwrap();
    refused(dir.read_at(0, &mut place), Errno::ISDIR);
    let mut writable = root.walk("").unwrap();
    refused(writable.open(OpenFlags::RDWR), Errno::ISDIR);
    let mut twice = opened(&root, "file", OpenFlags::RDONLY);
    refused(twice.open(OpenFlags::RDWR), Errno::BADF);
    let mut no_dir = root.walk("file").unwrap();
    refused(no_dir.open(OpenFlags::DIRECTORY), Errno::NOTDIR);
    assert_eq!(fs::read(node.path("file")).unwrap(), b"content");
}

#[test]
fn durable_opens_and_syncs_succeed_on_files_and_directories() {
    let node = Exported::start();
    let (_session, root) = node.connect();
    for (name, flags) in [("dsync", OpenFlags::DSYNC), ("sync", OpenFlags::SYNC)] {
        let file = root.create(name, OpenFlags::RDWR | flags, 0o600).unwrap();
        let bytes = pattern(7, 20_000);
        assert_eq!(file.write_at(3, &bytes).unwrap(), bytes.len());
        assert!(fs::read(node.path(name)).unwrap()[3..] == bytes);
        file.fsync(true).unwrap();
    }
    let mut dir = root.walk("").unwrap();
    dir.open(OpenFlags::DIRECTORY).unwrap();
    dir.fsync(false).unwrap();
}

#[test]
fn extended_attributes_are_set_listed_read_and_replaced() {
    let node = Exported::start();
    let (_session, root) = node.connect();
    let file = rw_file(&root, "tagged");
    file.set_xattr("user.colour", b"dark blue", XattrFlags(0))
        .unwrap();
    assert_eq!(file.xattr("user.colour").unwrap(), b"dark blue");
    let names = file.xattr("").unwrap();
    let mut names = names.split(|byte| *byte == 0);
    assert!(names.any(|name| name == b"user.colour"));
    let created = file.set_xattr("user.colour", b"red", XattrFlags::CREATE);
    refused(created, Errno::EXIST);
    let replaced = file.set_xattr("user.shape", b"round", XattrFlags::REPLACE);
    refused(replaced, Errno::NODATA);
    refused(file.xattr("user.shape"), Errno::NODATA);
    file.set_xattr("user.colour", b"red", XattrFlags::REPLACE)
        .unwrap();
    let mut value = [0; 100];
    let path = node.path("tagged");
    let size = rustix::fs::getxattr(&path, "user.colour", &mut value).unwrap();
    assert_eq!(value[..size], *b"red", "on the host too");
    refused(
        file.set_xattr("user.big", &[1; 70_000], XattrFlags(0)),
        errno(libc::E2BIG),
    );
}

#[test]
fn sixteen_threads_share_one_connection_and_each_gets_its_own_bytes() {
    let node = Exported::start();
    let (_session, root) = node.connect();
    let root = &root;
    std::thread::scope(|scope| {
        for thread in 0..16u64 {
            scope.spawn(move || {
                let file = rw_file(root, &format!("of-{thread}"));
                for round in 0..20u64 {
                    let bytes = pattern(thread * 1000 + round, 3000 + thread as usize);
                    file.write_at(round * 3000, &bytes).unwrap();
                    let mut read = vec![0; bytes.len()];
                    file.read_at(round * 3000, &mut read).unwrap();
                    assert!(read == bytes, "thread {thread}, round {round}");
                }
            });
        }
    });
}

#[test]
fn two_hundred_requests_of_one_thread_are_answered_each_with_its_own() {
    let node = Exported::start();
    let (session, root) = node.connect();
    let file = rw_file(&root, "blocks");
    let blocks: Vec<Vec<u8>> = (0..200).map(|block| pattern(block, 4096)).collect();
    let fid = file.fid();
    let writes = blocks.iter().zip(0u64..).map(|(block, at)| {
        let (offset, data) = (at * 4096, Data::new(block).unwrap());
        Ask::new(Request::Write { fid, offset, data })
    });
    for ticket in session.client().submit_all(writes).unwrap() {
        ticket.wait().unwrap();
    }
    let reads = (0..200).map(|block| Ask::read(fid, block * 4096, vec![0; 4096]));
    let tickets = session.client().submit_all(reads).unwrap();
    for (ticket, block) in tickets.into_iter().zip(&blocks).rev() {
        assert!(ticket.wait().unwrap().into_data() == *block);
    }
    assert!(session.client().outstanding().is_empty());
}

#[test]
fn overlapping_writes_of_one_connection_take_effect_in_their_order() {
    let node = Exported::start();
    let (session, root) = node.connect();
    let file = rw_file(&root, "overlap");
    let fid = file.fid();
    for round in 0..31 {
        let versions: Vec<Vec<u8>> = (0..8).map(|i| vec![round * 8 + i; 1000]).collect();
        let writes = versions.iter().map(|bytes| {
            let (offset, data) = (500, Data::new(bytes).unwrap());
            Ask::new(Request::Write { fid, offset, data })
        });
        for ticket in session.client().submit_all(writes).unwrap() {
            ticket.wait().unwrap();
        }
        let mut byte = [0];
        fs::File::open(node.path("overlap"))
            .unwrap()
            .read_exact_at(&mut byte, 700)
            .unwrap();
        assert_eq!(byte[0], round * 8 + 7, "the last one sent counts");
    }
}

#[test]
fn the_same_over_tcp() {
    let node = Exported::start();
    let (_session, root) = node.connect_tcp();
    let file = rw_file(&root, "over-tcp");
    let bytes = pattern(8, 3_000_000);
    assert_eq!(file.write_at(0, &bytes).unwrap(), bytes.len());
    let mut read = vec![0; bytes.len()];
    assert_eq!(file.read_at(0, &mut read).unwrap(), bytes.len());
    assert!(read == bytes && fs::read(node.path("over-tcp")).unwrap() == bytes);
    let owner = fs::metadata(node.path("over-tcp")).unwrap().uid();
    assert_eq!(owner, own_uid(), "the kernel says who is at the other end");
}

#[test]
fn a_node_that_ends_is_an_error_for_everybody_and_leaves_what_it_acknowledged() {
    let mut node = Exported::start();
    let (session, root) = node.connect();
    let file = rw_file(&root, "kept");
    let bytes = pattern(9, 200_000);
    file.write_at(0, &bytes).unwrap();
    node.stop();
    let mut place = [0; 10];
    let lost = file.read_at(0, &mut place);
    assert!(matches!(
        lost,
        Err(presagio_ninep::client::Error::Lost { .. })
    ));
    assert!(session.client().lost().is_some() && PATIENCE.as_secs() > 0);
    assert!(fs::read(node.path("kept")).unwrap() == bytes);
    assert!(!node.socket().exists(), "its socket is gone with it");
}

#[test]
fn what_is_made_has_the_mode_that_the_client_asked_for() {
    let node = Exported::start();
    let (_session, root) = node.connect();
    // The client has applied the user's umask; the node's own means nothing.
    root.create("file", OpenFlags::RDWR, 0o666).unwrap();
    root.mkdir("dir", 0o777).unwrap();
    root.mknod("pipe", 0o010_662, (0, 0)).unwrap();
    for (name, mode) in [("file", 0o666), ("dir", 0o777), ("pipe", 0o662)] {
        let stat = fs::metadata(node.path(name)).unwrap();
        assert_eq!(stat.mode() & 0o7777, mode, "{name}");
    }
}
