//! What holds between requests: versions, tags, fids, cancelling.

mod common;

use common::gate::{Gate, Gated};
use common::raw::{Raw, encoded};
use common::{Exported, errno, opened, options, pattern, rw_file, wait_until};
use presagio_ninep::client::Options;
use presagio_ninep::session::File;
use presagio_ninep::{
    Dialect, Errno, Fid, GetAttr, Kind, List, LockStatus, LockType, MSIZE_MAX, OpenFlags, Reply,
    Request, Step, Tag, Text,
};
use std::fs;
use std::sync::Arc;

const VERSION: u16 = u16::MAX;

fn version(msize: u32, version: &str) -> Request<'_> {
    let version = Text::new(version).unwrap();
    Request::Version { msize, version }
}

fn get_attr(fid: u32) -> Request<'static> {
    let (fid, mask) = (Fid(fid), GetAttr::BASIC);
    Request::GetAttr { fid, mask }
}

fn read(fid: u32, count: u32) -> Request<'static> {
    let (fid, offset) = (Fid(fid), 0);
    Request::Read { fid, offset, count }
}

/// Lets fid 1 stand for an open file.
fn open_file(raw: &mut Raw, name: &str) {
    let steps = [Step::new(name).unwrap()];
    let (fid, new_fid) = (Fid(0), Fid(1));
    let steps = List::new(&steps).unwrap();
    let walk = Request::Walk {
        fid,
        new_fid,
        steps,
    };
    assert_eq!(raw.call(2, &walk).kind, Kind(111));
    let flags = OpenFlags::RDWR;
    let open = Request::Open {
        fid: new_fid,
        flags,
    };
    assert_eq!(raw.call(2, &open).kind, Kind(13));
}

/// A node whose reads wait, and a client that has a file open there as fid 1.
fn waiting(change: impl FnOnce(&mut presagio_ionode::Config)) -> (Exported, Arc<Gate>, Raw) {
    let gate = Arc::new(Gate::default());
    let node = Exported::on(Arc::new(Gated(gate.clone())), change);
    fs::write(node.path("file"), pattern(1, 1000)).unwrap();
    let mut raw = Raw::attached(&node.socket(), 8192);
    open_file(&mut raw, "file");
    gate.shut_reads();
    (node, gate, raw)
}

#[test]
fn both_sides_agree_on_what_both_can() {
    let node = Exported::with(|config| config.msize = 1 << 20);
    let (session, _root) = node.connect_with(&Options {
        msize: MSIZE_MAX,
        ..options()
    });
    let agreed = session.client().agreed();
    assert_eq!((agreed.dialect, agreed.msize), (Dialect::Presagio, 1 << 20));
    let mut raw = Raw::silent(&node.socket());
    for (offer, answer) in [
        ("9P2000.L", "9P2000.L"),
        ("9P2000.L.other", "9P2000.L"),
        ("9P2000.u", "unknown"),
        ("", "unknown"),
    ] {
        let taken = raw.call(VERSION, &version(8192, offer));
        let Reply::Version { version, .. } = taken.reply() else {
            panic!("a version");
        };
        assert_eq!(version.bytes(), answer.as_bytes(), "{offer}");
    }
    let small = raw.call(VERSION, &version(100, "9P2000.L"));
    let Reply::Version { version, .. } = small.reply() else {
        panic!("a version");
    };
    assert_eq!(version.bytes(), b"unknown", "frames too small to be useful");
}

#[test]
fn a_version_in_the_middle_begins_anew() {
    let node = Exported::start();
    fs::write(node.path("file"), pattern(1, 1000)).unwrap();
    let mut raw = Raw::attached(&node.socket(), 8192);
    open_file(&mut raw, "file");
    raw.version(16384);
    for fid in [0, 1] {
        let error = raw.call(3, &get_attr(fid)).error();
        assert_eq!(error, Some(Errno::BADF), "fids are forgotten");
    }
    raw.attach(Fid(0));
    open_file(&mut raw, "file");
    assert_eq!(raw.call(3, &read(1, 1000)).kind, Kind(117));
}

#[test]
fn a_version_in_the_middle_forgets_what_is_under_way() {
    let (node, gate, mut raw) = waiting(|_| {});
    for tag in 10..20 {
        raw.ask(tag, &read(1, 500));
    }
    gate.wait_for(1);
    raw.version(8192);
    raw.attach(Fid(0));
    // The same tags are free, and no reply of before comes in between.
    for tag in 10..20 {
        assert_eq!(raw.call(tag, &get_attr(0)).kind, Kind(25));
    }
    gate.open();
    for tag in 10..20 {
        assert_eq!(raw.call(tag, &get_attr(0)).kind, Kind(25));
    }
    drop(raw);
    wait_until("the connection is gone", || node.node().connections() == 0);
}

#[test]
fn a_flush_is_answered_after_what_it_flushes_is_settled() {
    let (_node, gate, mut raw) = waiting(|_| {});
    raw.ask(10, &read(1, 500));
    gate.wait_for(1);
    let old_tag = Tag(10);
    raw.ask(11, &Request::Flush { old_tag });
    raw.ask(12, &Request::Flush { old_tag });
    // Others overtake it.
    let mut seen = vec![raw.call(13, &get_attr(0)).tag];
    gate.open();
    while !(seen.contains(&11) && seen.contains(&12)) {
        seen.push(raw.take().expect("replies").tag);
    }
    // Whether it was answered or not, now it will not be: its tag is free.
    let reply = raw.call(10, &get_attr(0));
    assert_eq!(reply.kind, Kind(25));
}

#[test]
fn a_flush_of_what_is_not_there_is_answered() {
    let node = Exported::start();
    let mut raw = Raw::attached(&node.socket(), 8192);
    for old in [0, 5, 77, u16::MAX] {
        let old_tag = Tag(old);
        let taken = raw.call(5, &Request::Flush { old_tag });
        assert_eq!(taken.kind, Kind(109), "flush of {old} with tag 5");
    }
}

#[test]
fn a_client_may_cancel_and_gets_the_answer_or_none() {
    let gate = Arc::new(Gate::default());
    let node = Exported::on(Arc::new(Gated(gate.clone())), |_| {});
    fs::write(node.path("file"), pattern(1, 1000)).unwrap();
    let (session, root) = node.connect();
    let file = opened(&root, "file", OpenFlags::RDONLY);
    gate.shut_reads();
    let request = Request::Read {
        fid: file.fid(),
        offset: 0,
        count: 1000,
    };
    let ticket = session.client().submit(request).unwrap();
    gate.wait_for(1);
    std::thread::scope(|scope| {
        let cancelling = scope.spawn(|| ticket.cancel());
        root.getattr(GetAttr::BASIC).unwrap();
        gate.open();
        if let Some(answer) = cancelling.join().unwrap().unwrap() {
            assert!(answer.into_data() == pattern(1, 1000));
        }
    });
    assert!(session.client().outstanding().is_empty());
}

#[test]
fn replies_come_in_any_order_each_with_its_tag() {
    let (_node, gate, mut raw) = waiting(|_| {});
    raw.ask(500, &read(1, 100));
    gate.wait_for(1);
    for tag in [3, 2, 1, 0, 65534] {
        assert_eq!(raw.call(tag, &get_attr(0)).kind, Kind(25));
    }
    gate.open();
    let last = raw.take().unwrap();
    assert_eq!((last.tag, last.kind), (500, Kind(117)));
}

#[test]
fn more_requests_than_one_may_have_under_way_wait_and_are_answered() {
    let (_node, gate, mut raw) = waiting(|config| config.requests_max = 8);
    for tag in 0..200 {
        raw.ask(tag, &read(1, 100));
    }
    gate.wait_for(1);
    gate.open();
    let mut seen: Vec<u16> = (0..200).map(|_| raw.take().unwrap().tag).collect();
    seen.sort_unstable();
    assert!(seen == (0..200).collect::<Vec<u16>>());
}

#[test]
fn fids_are_free_when_they_are_clunked_and_not_before() {
    let node = Exported::with(|config| config.fids_max = 4);
    let mut raw = Raw::attached(&node.socket(), 8192);
    let walk = |new: u32| Request::Walk {
        fid: Fid(0),
        new_fid: Fid(new),
        steps: List::new(&[]).unwrap(),
    };
    for new in 1..4 {
        assert_eq!(raw.call(1, &walk(new)).kind, Kind(111));
    }
    assert_eq!(raw.call(1, &walk(3)).error(), Some(Errno::BADF), "in use");
    let many = raw.call(1, &walk(4)).error();
    assert_eq!(many, Some(errno(libc::EMFILE)));
    let none = raw.call(1, &walk(u32::MAX)).error();
    assert!(none.is_some(), "that number stands for no fid");
    assert_eq!(raw.call(1, &Request::Clunk { fid: Fid(3) }).kind, Kind(121));
    let again = raw.call(1, &Request::Clunk { fid: Fid(3) }).error();
    assert_eq!(again, Some(Errno::BADF));
    assert_eq!(raw.call(1, &walk(4)).kind, Kind(111));
}

#[test]
fn requests_sent_together_are_all_answered() {
    let node = Exported::start();
    fs::write(node.path("file"), pattern(1, 1000)).unwrap();
    let mut raw = Raw::attached(&node.socket(), 8192);
    open_file(&mut raw, "file");
    let frames: Vec<u8> = (0..1000)
        .flat_map(|tag| match tag % 2 {
            0 => encoded(tag, &get_attr(0)),
            _ => encoded(tag, &read(1, 10)),
        })
        .collect();
    std::thread::scope(|scope| {
        let mut stream = raw.stream.try_clone().unwrap();
        scope.spawn(move || {
            // In pieces that end anywhere.
            for piece in frames.chunks(997) {
                std::io::Write::write_all(&mut stream, piece).unwrap();
            }
        });
        let mut seen: Vec<u16> = (0..1000).map(|_| raw.take().unwrap().tag).collect();
        seen.sort_unstable();
        assert!(seen == (0..1000).collect::<Vec<u16>>());
    });
}

#[test]
fn locks_keep_others_out_until_they_are_given_back() {
    let node = Exported::start();
    let (_one, root) = node.connect();
    let mine = rw_file(&root, "locked");
    let (_two, other) = node.connect();
    let theirs = opened(&other, "locked", OpenFlags::RDWR);
    let (whole, me, you) = ((0, 0), ("one", 1), ("two", 2));
    let lock = |file: &File, kind, who| file.lock(kind, whole, who).unwrap();
    let in_the_way = || theirs.getlock(LockType::Write, whole, you).unwrap();
    assert_eq!(lock(&mine, LockType::Write, me), LockStatus::Success);
    assert_eq!(lock(&theirs, LockType::Write, you), LockStatus::Blocked);
    assert_eq!(in_the_way(), LockType::Write);
    assert_eq!(lock(&mine, LockType::Unlock, me), LockStatus::Success);
    assert_eq!(in_the_way(), LockType::Unlock);
    assert_eq!(lock(&theirs, LockType::Write, you), LockStatus::Success);
}

#[test]
fn locks_of_a_client_that_left_are_free() {
    let node = Exported::start();
    let (one, root) = node.connect();
    let mine = rw_file(&root, "locked");
    let (_two, other) = node.connect();
    let theirs = opened(&other, "locked", OpenFlags::RDWR);
    let whole = (0, 0);
    let held = mine.lock(LockType::Write, whole, ("one", 1)).unwrap();
    assert_eq!(held, LockStatus::Success);
    one.client().close();
    wait_until("the lock is free", || {
        let mine = theirs.lock(LockType::Write, whole, ("two", 2));
        mine.unwrap() == LockStatus::Success
    });
}
