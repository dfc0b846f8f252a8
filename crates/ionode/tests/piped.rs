//! Large reads of what the page cache has are sent without a copy. Whoever reads gets the bytes of the file, however slowly,
//! and whatever becomes of the file or of other clients meanwhile.

mod common;

use common::raw::{Raw, encoded};
use common::{Exported, opened, pattern};
use presagio_ninep::{Fid, List, OpenFlags, Reply, Request, Step};
use std::fs;
use std::io::Write;

const SIZE: usize = 8 << 20;

/// A node with a file of random bytes.
fn node() -> (Exported, Vec<u8>) {
    let node = Exported::start();
    let bytes = pattern(7, SIZE);
    fs::write(node.path("data"), &bytes).unwrap();
    (node, bytes)
}

fn piped(node: &Exported) -> u64 {
    let metrics = node.node().metrics();
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix("presagio_ionode_piped_reads_total "));
    line.expect("a counter").trim().parse().unwrap()
}

/// Has the file open as fid 1.
fn raw(node: &Exported, msize: u32) -> Raw {
    let mut raw = Raw::attached(&node.socket(), msize);
    let steps = [Step::new("data").unwrap()];
    let walk = Request::Walk {
        fid: Fid(0),
        new_fid: Fid(1),
        steps: List::new(&steps).unwrap(),
    };
    assert!(raw.call(1, &walk).error().is_none());
    let open = Request::Open {
        fid: Fid(1),
        flags: OpenFlags::RDONLY,
    };
    assert!(raw.call(1, &open).error().is_none());
    raw
}

fn read(offset: u64, count: u32) -> Request<'static> {
    let fid = Fid(1);
    Request::Read { fid, offset, count }
}

#[test]
fn large_reads_of_any_offset_are_the_files_bytes() {
    let (node, bytes) = node();
    for (_session, root) in [node.connect(), node.connect_tcp()] {
        let file = opened(&root, "data", OpenFlags::RDONLY);
        // The pipes of a node that is not root's end at 1 MiB: these fit in any.
        let inside = (0..16).map(|at| (at * 400_001, 500_000));
        let ends = [(0, SIZE), (SIZE - 100_000, 200_000)];
        for (offset, len) in inside.chain(ends) {
            let mut got = vec![0; len];
            let count = file.read_at(offset as u64, &mut got).unwrap();
            let end = SIZE.min(offset + len);
            assert_eq!(count, end - offset);
            assert!(got[..count] == bytes[offset..end], "from {offset}");
        }
    }
    assert!(piped(&node) > 10, "nothing was piped");
}

#[test]
fn who_reads_slowly_gets_all_and_holds_up_nobody() {
    let (node, bytes) = node();
    let len = 300_000;
    let mut slow = raw(&node, 1 << 20);
    let offsets: Vec<u64> = (0..20).map(|at| at * 311_111).collect();
    for (tag, &offset) in offsets.iter().enumerate() {
        let request = encoded(tag as u16, &read(offset, len));
        slow.stream.write_all(&request).unwrap();
    }
    let (_session, root) = node.connect();
    node.serves_others(&root, 3);
    for _ in &offsets {
        let taken = slow.take().expect("a reply");
        let offset = offsets[usize::from(taken.tag)] as usize;
        let Reply::Read { data } = taken.reply() else {
            panic!("not a read");
        };
        assert!(*data.bytes() == bytes[offset..offset + len as usize]);
    }
    assert!(piped(&node) > 0, "nothing was piped");
}

#[test]
fn who_leaves_in_the_middle_of_a_reply_harms_nobody() {
    let (node, bytes) = node();
    for _ in 0..80 {
        let mut gone = raw(&node, 4 << 20);
        for tag in 0..4 {
            let request = encoded(tag, &read(u64::from(tag) << 20, 1 << 20));
            gone.stream.write_all(&request).unwrap();
        }
    }
    let (_session, root) = node.connect();
    let file = opened(&root, "data", OpenFlags::RDONLY);
    let mut got = vec![0; SIZE];
    assert_eq!(file.read_at(0, &mut got).unwrap(), SIZE);
    assert!(got == bytes);
}

#[test]
fn a_file_that_is_cut_or_removed_under_a_reply_gives_its_old_bytes_or_its_new_ones() {
    let (node, bytes) = node();
    let mut slow = raw(&node, 4 << 20);
    for tag in 0..4 {
        let request = encoded(tag, &read(u64::from(tag) << 20, 1 << 20));
        slow.stream.write_all(&request).unwrap();
    }
    // The first reply began: the others are on their way, or will be when the file is shorter.
    let first = slow.take().expect("a reply");
    assert!(matches!(first.reply(), Reply::Read { .. }));
    let (_session, root) = node.connect();
    let file = opened(&root, "data", OpenFlags::RDWR);
    file.write_at(1 << 20, &vec![0; 4096]).unwrap();
    fs::OpenOptions::new()
        .write(true)
        .open(node.path("data"))
        .unwrap()
        .set_len((1 << 20) + 4096)
        .unwrap();
    fs::remove_file(node.path("data")).unwrap();
    for _ in 1..4 {
        let taken = slow.take().expect("a reply");
        let start = usize::from(taken.tag) << 20;
        let Reply::Read { data } = taken.reply() else {
            panic!("not a read");
        };
        let is_known = |(at, byte): (usize, &u8)| *byte == 0 || *byte == bytes[start + at];
        assert!(data.bytes().iter().enumerate().all(is_known));
    }
}
