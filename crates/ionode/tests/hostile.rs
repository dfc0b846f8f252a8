//! What one client sends can end that client's connection, and nobody else's.

mod auth;
mod common;

use common::gate::{Gate, Gated};
use common::raw::{Raw, encoded, frame};
use common::{Exported, Random, opened, pattern, read_all, wait_until};
use presagio_core::{Nanos, Op, Range};
use presagio_ninep::extension::{Foreseen, ForeseenFile, ReopenFlags, Wrapped};
use presagio_ninep::{
    Data, Errno, Fid, GetAttr, Handle, Kind, List, Name, OpenFlags, Request, SetAttr, SetMask,
    Step, Tag, Text, Time, UnlinkFlags, XattrFlags,
};
use std::fs;
use std::path::Path;
use std::sync::Arc;

const FID: &[u8] = &[0, 0, 0, 0];
const U32: &[u8] = &[1, 0, 0, 0];
const U64: &[u8] = &[1, 0, 0, 0, 0, 0, 0, 0];

fn get_attr(fid: u32) -> Request<'static> {
    let (fid, mask) = (Fid(fid), GetAttr::BASIC);
    Request::GetAttr { fid, mask }
}

/// Lets fid 1 stand for a file, open for all.
fn open_file(raw: &mut Raw, name: &str) {
    let steps = [Step::new(name).unwrap()];
    let walk = Request::Walk {
        fid: Fid(0),
        new_fid: Fid(1),
        steps: List::new(&steps).unwrap(),
    };
    assert_eq!(raw.call(2, &walk).kind, Kind(111));
    let open = Request::Open {
        fid: Fid(1),
        flags: OpenFlags::RDWR,
    };
    assert_eq!(raw.call(2, &open).kind, Kind(13));
}

/// Frames that no client may send, once it has a session, and what the log says of each.
fn malformed() -> Vec<(&'static str, Vec<u8>)> {
    let mkdir = |name: &[u8]| frame(72, 1, &[FID, name, U32, U32]);
    let mut all = vec![
        ("says 6 bytes, which is less", vec![6, 0, 0, 0, 24, 1, 0]),
        ("says 0 bytes, which is less", vec![0, 0, 0, 0, 24, 1, 0]),
        (
            "needs 4 bytes, but the frame has 3 more",
            frame(120, 1, &[&[1, 2, 3]]),
        ),
        (
            "needs 4 bytes, but the frame has 0 more",
            frame(116, 1, &[]),
        ),
        ("is followed by 3 bytes", frame(120, 1, &[FID, b"xyz"])),
        ("contains a slash", mkdir(b"\x03\x00a/b")),
        ("is '.' or '..'", mkdir(b"\x02\x00..")),
        ("contains a NUL", mkdir(b"\x03\x00a\0b")),
        ("is empty", mkdir(b"\x00\x00")),
        ("needs 65535 bytes", frame(72, 1, &[FID, b"\xff\xffabc"])),
        (
            "has 17 elements, and 16 are allowed",
            frame(110, 1, &[FID, U32, &[17, 0], &b"\x01\x00a".repeat(17)]),
        ),
        (
            "but the frame has 0 more",
            frame(110, 1, &[FID, U32, &[5, 0], b"\x01\x00a"]),
        ),
        (
            "is 9, which means nothing here",
            frame(52, 1, &[FID, &[9], U32, U64, U64, U32, b"\x00\x00"]),
        ),
        ("goes the other way", frame(121, 1, &[])),
        ("goes the other way", frame(7, 1, &[U32])),
        ("was not negotiated", frame(206, 1, &[FID])),
        (
            "is followed by 1 bytes",
            frame(118, 1, &[FID, U64, &[1, 0, 0, 0], b"ab"]),
        ),
        (
            "needs 9 bytes, but the frame has 2 more",
            frame(118, 1, &[FID, U64, &[9, 0, 0, 0], b"ab"]),
        ),
    ];
    for (reason, size) in [
        ("says 8193 bytes, and the two sides agreed on 8192", 8193u32),
        ("says 16777216 bytes", 1 << 24),
        ("says 4294967295 bytes", u32::MAX),
    ] {
        let head = [&size.to_le_bytes()[..], &[118, 1, 0]].concat();
        all.push((reason, head));
    }
    let unknown = (0..=255u8).filter(|kind| kind % 2 == 0 && !KNOWN.contains(kind));
    all.extend(unknown.map(|kind| {
        let ours = (200..=210).contains(&kind);
        let reason = if ours {
            "was not negotiated"
        } else {
            "is no message of 9P2000.L"
        };
        (reason, frame(kind, 1, &[FID]))
    }));
    all
}

/// The requests of 9P2000.L.
const KNOWN: [u8; 28] = [
    8, 12, 14, 16, 18, 20, 22, 24, 26, 30, 32, 40, 50, 52, 54, 70, 72, 74, 76, 100, 102, 104, 108,
    110, 116, 118, 120, 122,
];

#[test]
fn a_malformed_frame_ends_its_own_connection_only_and_the_log_says_why() {
    auth::listen_to_audit();
    let node = Exported::start();
    let (_session, other) = node.connect();
    for (number, (reason, bytes)) in malformed().into_iter().enumerate() {
        let mut raw = Raw::attached(&node.socket(), 8192);
        let before = auth::warned(reason).len();
        raw.send(&bytes)
            .unwrap_or_else(|error| panic!("{reason}: {error}"));
        raw.is_ended();
        let said = || auth::warned(reason).len() > before;
        wait_until(
            &format!("the log says of frame {number} that it {reason}"),
            said,
        );
        if number % 8 == 0 {
            node.serves_others(&other, number as u64);
        }
    }
    wait_until("all of them are gone", || node.node().connections() == 1);
}

#[test]
fn what_was_asked_before_a_malformed_frame_was_done() {
    let node = Exported::start();
    fs::write(node.path("file"), "").unwrap();
    let mut raw = Raw::attached(&node.socket(), 8192);
    open_file(&mut raw, "file");
    let data = Data::new(b"written").unwrap();
    let write = Request::Write {
        fid: Fid(1),
        offset: 0,
        data,
    };
    let mut bytes = encoded(3, &write);
    bytes.extend_from_slice(&frame(99, 1, &[]));
    raw.send(&bytes).unwrap();
    raw.is_ended();
    wait_until("it is written", || {
        fs::read(node.path("file")).unwrap() == b"written"
    });
}

#[test]
fn a_write_whose_count_lies_writes_nothing() {
    let node = Exported::start();
    let (_session, other) = node.connect();
    let before = pattern(1, 5000);
    fs::write(node.path("file"), &before).unwrap();
    for (size, count) in [
        (30_000u32, 60_000u32),
        (30_000, 29_000),
        (30_000, 0),
        (30_000, u32::MAX),
        (100, 200),
        (100, 10),
    ] {
        let mut raw = Raw::attached(&node.socket(), 1 << 20);
        open_file(&mut raw, "file");
        let data = vec![0; size as usize];
        let fields: [&[u8]; 4] = [&[1, 0, 0, 0], &[0; 8], &count.to_le_bytes(), &data];
        let lie = frame(118, 3, &fields);
        // First the header, so that its data is waited for. It may be ended before all is sent.
        let (head, rest) = lie.split_at(23);
        raw.send(head).unwrap();
        let _ = raw.send(rest);
        raw.is_ended();
    }
    assert!(fs::read(node.path("file")).unwrap() == before);
    node.serves_others(&other, 1);
}

#[test]
fn half_a_frame_and_then_nothing_disturbs_nobody() {
    let node = Exported::start();
    let (_session, other) = node.connect();
    fs::write(node.path("file"), "").unwrap();
    let bytes = pattern(1, 100_000);
    let write = Request::Write {
        fid: Fid(1),
        offset: 0,
        data: Data::new(&bytes).unwrap(),
    };
    let whole = encoded(3, &write);
    let mut halves: Vec<(Raw, usize)> = Vec::new();
    for sent in [1, 4, 6, 7, 8, 22, 23, 24, 10_000, whole.len() - 1] {
        let mut raw = Raw::attached(&node.socket(), 1 << 20);
        open_file(&mut raw, "file");
        raw.send(&whole[..sent]).unwrap();
        halves.push((raw, sent));
    }
    node.serves_others(&other, 1);
    // Half of them go on after all, the others leave.
    for (number, (mut raw, sent)) in halves.into_iter().enumerate() {
        if number % 2 == 0 {
            raw.send(&whole[sent..]).unwrap();
            assert_eq!(raw.take().unwrap().kind, Kind(119));
        }
    }
    assert!(fs::read(node.path("file")).unwrap() == bytes);
    node.serves_others(&other, 2);
    wait_until("they are gone", || node.node().connections() == 1);
}

#[test]
fn half_a_write_is_not_written() {
    let node = Exported::start();
    fs::write(node.path("file"), "before").unwrap();
    let bytes = pattern(1, 100_000);
    let write = Request::Write {
        fid: Fid(1),
        offset: 0,
        data: Data::new(&bytes).unwrap(),
    };
    for sent in [23, 50, 20_000, 100_000] {
        let mut raw = Raw::attached(&node.socket(), 1 << 20);
        open_file(&mut raw, "file");
        raw.send(&encoded(3, &write)[..sent]).unwrap();
    }
    wait_until("they are gone", || node.node().connections() == 0);
    assert_eq!(fs::read(node.path("file")).unwrap(), b"before");
}

#[test]
fn a_tag_that_is_in_use_ends_the_connection() {
    let gate = Arc::new(Gate::default());
    let node = Exported::on(Arc::new(Gated(gate.clone())), |_| {});
    let (_session, other) = node.connect();
    fs::write(node.path("file"), pattern(1, 100)).unwrap();
    for again in [
        encoded(9, &get_attr(0)),
        encoded(
            9,
            &Request::Read {
                fid: Fid(1),
                offset: 0,
                count: 10,
            },
        ),
        frame(118, 9, &[U32, U64, &50_000u32.to_le_bytes()]),
    ] {
        let mut raw = Raw::attached(&node.socket(), 1 << 20);
        open_file(&mut raw, "file");
        gate.shut_reads();
        let read = Request::Read {
            fid: Fid(1),
            offset: 0,
            count: 10,
        };
        raw.ask(9, &read);
        gate.wait_for(1);
        let mut again = again;
        if again[4] == 118 {
            let size = (again.len() as u32 + 50_000).to_le_bytes();
            again[..4].copy_from_slice(&size);
        }
        raw.send(&again).unwrap();
        raw.is_ended();
        gate.open();
        node.serves_others(&other, 1);
    }
}

#[test]
fn whoever_speaks_before_a_version_is_left() {
    let node = Exported::start();
    let (_session, other) = node.connect();
    for kind in KNOWN {
        if kind == 100 {
            continue;
        }
        let mut raw = Raw::silent(&node.socket());
        raw.send(&frame(kind, 1, &[FID, U64, U64])).unwrap();
        assert!(raw.take().is_none(), "type {kind} was answered");
    }
    let mut raw = Raw::silent(&node.socket());
    raw.send(b"GET / HTTP/1.1\r\nHost: node\r\n\r\n").unwrap();
    raw.is_ended();
    node.serves_others(&other, 1);
}

#[test]
fn fids_out_of_nowhere_are_refused_in_every_message() {
    let node = Exported::start();
    let mut raw = Raw::attached(&node.socket(), 8192);
    let (none, name) = (Fid(4711), Name::new("x").unwrap());
    let text = Text::new("user.x").unwrap();
    let data = Data::new(b"x").unwrap();
    let (offset, count, mode, gid) = (0, 10, 0o600, 0);
    let flags = OpenFlags::RDWR;
    let steps = List::new(&[]).unwrap();
    let requests = [
        Request::StatFs { fid: none },
        Request::Open { fid: none, flags },
        Request::Create {
            fid: none,
            name,
            flags,
            mode,
            gid,
        },
        Request::Symlink {
            dir: none,
            name,
            target: text,
            gid,
        },
        Request::Mknod {
            dir: none,
            name,
            mode,
            major: 0,
            minor: 0,
            gid,
        },
        Request::Rename {
            fid: none,
            dir: Fid(0),
            name,
        },
        Request::ReadLink { fid: none },
        get_attr(4711),
        Request::SetAttr {
            fid: none,
            attr: SetAttr::default(),
        },
        Request::XattrWalk {
            fid: none,
            new_fid: Fid(2),
            name: text,
        },
        Request::XattrCreate {
            fid: none,
            name: text,
            size: 1,
            flags: XattrFlags(0),
        },
        Request::ReadDir {
            fid: none,
            offset,
            count,
        },
        Request::Link {
            dir: Fid(0),
            fid: none,
            name,
        },
        Request::Link {
            dir: none,
            fid: Fid(0),
            name,
        },
        Request::Mkdir {
            dir: none,
            name,
            mode,
            gid,
        },
        Request::RenameAt {
            old_dir: none,
            old_name: name,
            new_dir: Fid(0),
            new_name: name,
        },
        Request::RenameAt {
            old_dir: Fid(0),
            old_name: name,
            new_dir: none,
            new_name: name,
        },
        Request::UnlinkAt {
            dir: none,
            name,
            flags: UnlinkFlags(0),
        },
        Request::Walk {
            fid: none,
            new_fid: Fid(2),
            steps,
        },
        Request::Read {
            fid: none,
            offset,
            count,
        },
        Request::Write {
            fid: none,
            offset,
            data,
        },
        Request::Clunk { fid: none },
        Request::Remove { fid: none },
    ];
    for request in requests {
        let error = raw.call(3, &request).error();
        assert_eq!(error, Some(Errno::BADF), "{request:?}");
    }
    assert_eq!(raw.call(3, &get_attr(0)).kind, Kind(25), "it lives on");
}

#[test]
fn a_thousand_connections_at_once_are_served() {
    let node = Exported::start();
    fs::write(node.path("file"), pattern(1, 5000)).unwrap();
    let mut all: Vec<Raw> = (0..1000).map(|_| Raw::silent(&node.socket())).collect();
    for raw in &mut all {
        raw.version(8192);
        raw.attach(Fid(0));
        open_file(raw, "file");
    }
    assert_eq!(node.node().connections(), 1000);
    let read = Request::Read {
        fid: Fid(1),
        offset: 0,
        count: 5000,
    };
    all.iter_mut().for_each(|raw| raw.ask(3, &read));
    for raw in &mut all {
        let taken = raw.take().unwrap();
        let presagio_ninep::Reply::Read { data } = taken.reply() else {
            panic!("no data");
        };
        assert!(data.bytes() == pattern(1, 5000));
    }
    drop(all);
    wait_until("they are gone", || node.node().connections() == 0);
}

#[test]
fn no_more_connections_than_allowed() {
    let node = Exported::with(|config| config.connections_max = 5);
    let mut kept: Vec<Raw> = (0..5)
        .map(|_| Raw::attached(&node.socket(), 8192))
        .collect();
    let mut more = Raw::silent(&node.socket());
    more.is_ended();
    for raw in &mut kept {
        assert_eq!(raw.call(3, &get_attr(0)).kind, Kind(25));
    }
    kept.pop();
    wait_until("one has left", || node.node().connections() == 4);
    Raw::attached(&node.socket(), 8192);
}

#[test]
fn a_client_that_dies_with_requests_under_way_leaves_nothing_behind() {
    let gate = Arc::new(Gate::default());
    let node = Exported::on(Arc::new(Gated(gate.clone())), |_| {});
    let (_session, other) = node.connect();
    fs::write(node.path("file"), pattern(1, 100_000)).unwrap();
    let file = opened(&other, "file", OpenFlags::RDONLY);
    for round in 0..5 {
        gate.shut_reads();
        for _ in 0..4 {
            let mut raw = Raw::attached(&node.socket(), 1 << 20);
            open_file(&mut raw, "file");
            for tag in 10..20 {
                let read = Request::Read {
                    fid: Fid(1),
                    offset: u64::from(tag) * 1000,
                    count: 1000,
                };
                raw.ask(tag, &read);
            }
            gate.wait_for(1);
        }
        gate.open();
        assert!(read_all(&file) == pattern(1, 100_000));
        node.serves_others(&other, round);
    }
    wait_until("they are gone", || node.node().connections() == 1);
}

#[test]
fn writes_of_a_client_that_dies_are_whole_or_not_there() {
    let node = Exported::start();
    fs::write(node.path("file"), vec![0; 40 * 10_000]).unwrap();
    for round in 1..6u8 {
        let mut raw = Raw::attached(&node.socket(), 1 << 20);
        open_file(&mut raw, "file");
        for at in 0..40 {
            let bytes = [round; 10_000];
            let write = Request::Write {
                fid: Fid(1),
                offset: u64::from(at) * 10_000,
                data: Data::new(&bytes).unwrap(),
            };
            raw.ask(at, &write);
        }
    }
    wait_until("they are gone", || node.node().connections() == 0);
    let all = fs::read(node.path("file")).unwrap();
    assert_eq!(all.len(), 40 * 10_000);
    for block in all.chunks(10_000) {
        assert!(block.iter().all(|byte| *byte == block[0]), "a torn write");
    }
}

#[test]
fn who_does_not_read_keeps_no_memory_from_others() {
    let node = Exported::with(|config| {
        config.memory_max = 8 << 20;
        config.bytes_max = 2 << 20;
    });
    fs::write(node.path("file"), pattern(1, 1 << 20)).unwrap();
    let (_session, root) = node.connect();
    let file = opened(&root, "file", OpenFlags::RDONLY);
    let mut raw = Raw::attached(&node.socket(), 1 << 20);
    open_file(&mut raw, "file");
    for tag in 10..110 {
        let read = Request::Read {
            fid: Fid(1),
            offset: 0,
            count: 500_000,
        };
        raw.ask(tag, &read);
    }
    let mut first = [0];
    // A ring of the node, which is in this process, may interrupt it.
    let peek = || rustix::net::recv(&raw.stream, &mut first, rustix::net::RecvFlags::PEEK);
    rustix::io::retry_on_intr(peek).expect("the first reply has come");
    for _ in 0..50 {
        assert!(read_all(&file) == pattern(1, 1 << 20), "others are served");
    }
}

#[test]
fn who_does_not_read_is_left_after_a_while() {
    let node = Exported::with(|config| {
        config.stall_max = std::time::Duration::from_millis(200);
    });
    let (_session, other) = node.connect();
    fs::write(node.path("file"), pattern(1, 1 << 20)).unwrap();
    let mut raw = Raw::attached(&node.socket(), 1 << 20);
    open_file(&mut raw, "file");
    for tag in 10..60 {
        let read = Request::Read {
            fid: Fid(1),
            offset: 0,
            count: 500_000,
        };
        // It may be left before it has asked for all.
        if raw.send(&encoded(tag, &read)).is_err() {
            break;
        }
    }
    wait_until("it is left", || node.node().connections() == 1);
    node.serves_others(&other, 1);
}

#[test]
fn who_does_not_send_what_it_began_is_left_after_a_while() {
    let node = Exported::with(|config| {
        config.stall_max = std::time::Duration::from_millis(200);
    });
    let (_session, other) = node.connect();
    let whole = encoded(3, &get_attr(0));
    let halves = [2, 7, whole.len() - 1].map(|sent| {
        let mut raw = Raw::attached(&node.socket(), 1 << 20);
        raw.send(&whole[..sent]).unwrap();
        raw
    });
    // Who has sent all of it is not waited for.
    let mut idle = Raw::attached(&node.socket(), 1 << 20);
    wait_until("they are left", || node.node().connections() == 2);
    drop(halves);
    assert_eq!(idle.call(3, &get_attr(0)).kind, Kind(25));
    node.serves_others(&other, 1);
}

#[test]
fn only_what_carries_data_may_be_large() {
    let node = Exported::start();
    for kind in KNOWN.into_iter().filter(|kind| !matches!(kind, 100 | 118)) {
        let mut raw = Raw::attached(&node.socket(), 4 << 20);
        let head = [&(1u32 << 20).to_le_bytes()[..], &[kind, 1, 0]].concat();
        raw.send(&head).unwrap();
        raw.is_ended();
    }
}

#[test]
fn extended_attributes_are_written_as_they_were_announced() {
    let node = Exported::start();
    fs::write(node.path("file"), "").unwrap();
    let steps = [Step::new("file").unwrap()];
    let mut raw = Raw::attached(&node.socket(), 8192);
    for (new, writes) in [
        (10, vec![(0u64, 5usize)]),
        (11, vec![(0, 11)]),
        (12, vec![(1, 3)]),
        (13, vec![(0, 5), (3, 5)]),
        (14, vec![(u64::MAX, 3)]),
    ] {
        let new_fid = Fid(new);
        let walk = Request::Walk {
            fid: Fid(0),
            new_fid,
            steps: List::new(&steps).unwrap(),
        };
        raw.call(1, &walk);
        let create = Request::XattrCreate {
            fid: new_fid,
            name: Text::new("user.x").unwrap(),
            size: 10,
            flags: XattrFlags(0),
        };
        assert_eq!(raw.call(1, &create).kind, Kind(33));
        for (offset, length) in writes {
            let bytes = vec![1; length];
            let write = Request::Write {
                fid: new_fid,
                offset,
                data: Data::new(&bytes).unwrap(),
            };
            raw.call(1, &write);
        }
        let clunk = raw.call(1, &Request::Clunk { fid: new_fid }).error();
        assert_eq!(clunk, Some(Errno::INVAL), "fid {new}: not all, or more");
    }
    let names = rustix::fs::listxattr(node.path("file"), &mut [0u8; 100]);
    assert_eq!(names, Ok(0), "nothing was set");
}

#[test]
fn a_few_thousand_damaged_frames_leave_others_alone() {
    damaged(&seeds(), Raw::attached);
}

#[test]
fn a_few_thousand_damaged_frames_of_our_own_leave_others_alone() {
    let mut all = seeds();
    all.extend(extensions());
    all.extend(corpus());
    damaged(&all, Raw::extended);
}

/// Sends damaged frames, through connections that `connect` makes.
fn damaged(seeds: &[Vec<u8>], connect: fn(&Path, u32) -> Raw) {
    let node = Exported::start();
    let (_session, other) = node.connect();
    let mut random = Random::new(77);
    let mut raw = connect(&node.socket(), 65536);
    // Nobody reads the replies but to see whether the connection is there: it does not have to be.
    for round in 0..6000u64 {
        let mut bytes = seeds[random.below(seeds.len())].clone();
        for _ in 0..random.below(3) {
            let donor = seeds[random.below(seeds.len())].clone();
            mutate(&mut bytes, &donor, &mut random);
        }
        if raw.send(&bytes).is_err() || round % 16 == 15 {
            raw = connect(&node.socket(), 65536);
        }
        if round % 500 == 0 {
            node.serves_others(&other, round);
        }
    }
    drop(raw);
    node.serves_others(&other, 1);
    wait_until("they are gone", || node.node().connections() == 1);
}

/// Good frames of what only our clients say.
fn extensions() -> Vec<Vec<u8>> {
    let (name, text) = (Name::new("once").unwrap(), Text::new("fuzzed").unwrap());
    let (dir, fid, mode, gid) = (Fid(0), Fid(1), 0o700, 0);
    let mkdir = Request::Mkdir {
        dir,
        name,
        mode,
        gid,
    };
    let create = Request::Create {
        fid,
        name,
        flags: OpenFlags::RDWR | OpenFlags::EXCL,
        mode,
        gid,
    };
    let unlink = Request::UnlinkAt {
        dir,
        name,
        flags: UnlinkFlags(0),
    };
    let data = Data::new(&[7; 100]).unwrap();
    let append = Request::Write {
        fid,
        offset: 0,
        data,
    };
    let once = [&mkdir, &create, &unlink, &append].map(|request| Wrapped::new(request).unwrap());
    let once = once
        .into_iter()
        .zip(1..)
        .map(|(request, sequence)| Request::Once {
            sequence,
            settled: 0,
            request,
        });
    let foreseen = [ForeseenFile::Fid(fid), ForeseenFile::Path(text)].map(|file| Foreseen {
        file,
        op: Op::Read,
        range: Range::at(0, 1000),
        after: Nanos(1000),
    });
    let mut all = vec![
        Request::Hello {
            instance: [1; 16],
            resume: [0; 16],
            client: text,
            job: text,
            rank: 1,
            program: text,
        },
        Request::Handle { fid },
        Request::Handle { fid: dir },
        Request::Reopen {
            root: dir,
            fid,
            flags: ReopenFlags::new(OpenFlags::RDWR),
            handle: Handle::new(&[3; 40]).unwrap(),
        },
        Request::Foresee {
            requests: List::new(&foreseen).unwrap(),
        },
    ];
    all.extend(once);
    let tags = all.iter().zip(100..);
    tags.map(|(request, tag)| encoded(tag, request)).collect()
}

/// What the fuzzers of the parser begin with: frames of every kind, without their sizes.
fn corpus() -> Vec<Vec<u8>> {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../ninep/fuzz/corpus/request");
    let entries = fs::read_dir(corpus).expect("a corpus");
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let framed = |path| {
        let bytes = fs::read(path).unwrap();
        [&(bytes.len() as u32 + 4).to_le_bytes()[..], &bytes].concat()
    };
    paths.into_iter().map(framed).collect()
}

/// Good frames of every kind, about fids that are mostly there.
fn seeds() -> Vec<Vec<u8>> {
    let name = Name::new("fuzzed").unwrap();
    let other = Name::new("other").unwrap();
    let text = Text::new("user.fuzzed").unwrap();
    let steps = [Step::new("fuzzed").unwrap(), Step::new("..").unwrap()];
    let (fid, one, dir) = (Fid(0), Fid(1), Fid(0));
    let (mode, gid) = (0o700, 0);
    let attr = SetAttr {
        valid: SetMask::MODE | SetMask::SIZE | SetMask::MTIME,
        mode,
        size: 100,
        mtime: Time { sec: 1, nsec: 1 },
        ..SetAttr::default()
    };
    let payload = pattern(5, 20_000);
    let data = Data::new(&payload).unwrap();
    let all = [
        Request::StatFs { fid },
        Request::Walk {
            fid,
            new_fid: one,
            steps: List::new(&steps[..1]).unwrap(),
        },
        Request::Walk {
            fid,
            new_fid: one,
            steps: List::new(&steps).unwrap(),
        },
        Request::Open {
            fid: one,
            flags: OpenFlags::RDWR,
        },
        Request::Create {
            fid: one,
            name,
            flags: OpenFlags::RDWR,
            mode,
            gid,
        },
        Request::Write {
            fid: one,
            offset: 5,
            data,
        },
        Request::Read {
            fid: one,
            offset: 0,
            count: 30_000,
        },
        Request::ReadDir {
            fid: one,
            offset: 0,
            count: 30_000,
        },
        Request::SetAttr { fid: one, attr },
        get_attr(1),
        Request::XattrWalk {
            fid: one,
            new_fid: Fid(2),
            name: text,
        },
        Request::XattrCreate {
            fid: one,
            name: text,
            size: 100,
            flags: XattrFlags(0),
        },
        Request::Mkdir {
            dir,
            name,
            mode,
            gid,
        },
        Request::Symlink {
            dir,
            name: other,
            target: text,
            gid,
        },
        Request::Link {
            dir,
            fid: one,
            name: other,
        },
        Request::RenameAt {
            old_dir: dir,
            old_name: name,
            new_dir: dir,
            new_name: other,
        },
        Request::Rename {
            fid: one,
            dir,
            name: other,
        },
        Request::UnlinkAt {
            dir,
            name: other,
            flags: UnlinkFlags(0),
        },
        Request::ReadLink { fid: one },
        Request::Flush { old_tag: Tag(3) },
        Request::Clunk { fid: one },
        Request::Remove { fid: one },
    ];
    let tags = all.iter().zip(3..);
    tags.map(|(request, tag)| encoded(tag, request)).collect()
}

fn mutate(bytes: &mut Vec<u8>, donor: &[u8], random: &mut Random) {
    if bytes.is_empty() {
        return bytes.extend_from_slice(donor);
    }
    let at = random.below(bytes.len());
    match random.below(6) {
        // Behind the size, so that the frame is still one.
        0 | 1 => {
            let at = (4 + random.below(24)).min(bytes.len() - 1);
            let values = [0, 1, 0x7F, 0x80, 0xFF, b'/', b'.', random.next() as u8];
            bytes[at] = values[random.below(values.len())];
        }
        2 => bytes[at] ^= 1 << random.below(8),
        3 => bytes.truncate(at),
        4 => bytes.extend_from_slice(donor),
        _ => {
            let near = [0u32, 1, 6, 7, 0xFF, 0xFFFF, 0x7FFF_FFFF, u32::MAX];
            let value = near[random.below(near.len())].to_le_bytes();
            let end = bytes.len().min(at + 4);
            bytes[at..end].copy_from_slice(&value[..end - at]);
        }
    }
    bytes.truncate(100_000);
}
