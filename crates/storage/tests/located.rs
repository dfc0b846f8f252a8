//! What a directory promises whose servers are known, and a device in front of each of them.

mod common;

use common::{create, open, pattern, read, size, write};
use presagio_core::{Op, Range};
use presagio_device::{Device, Model};
use presagio_storage::{Bytes, Counters, Emulated, Located, Storage, Striped, StripedSet};
use proptest::prelude::*;
use std::fs;
use std::path::Path;
use std::sync::Arc;

fn located(text: &str) -> Located {
    Located::new(text.parse().expect("a source"))
}

fn ssd(_: u32) -> Box<dyn Device> {
    let model = Model::named("ssd").expect("a preset");
    model.device().expect("a device")
}

fn striped(place: &Path, servers: usize) -> Striped {
    let make = |name: String| {
        let path = place.join(name);
        fs::create_dir(&path).expect("a directory");
        path
    };
    let set = StripedSet {
        namespace: make("names".into()),
        servers: (0..servers).map(|i| make(format!("server{i}"))).collect(),
        stripe: 4096,
    };
    Striped::start(&set).expect("a set")
}

/// Operations and bytes of one kind at each device.
fn counted(counters: &[Counters], op: Op) -> Vec<(u64, u64)> {
    let of = |counter: &Counters| match op {
        Op::Read => (counter.reads, counter.read_bytes),
        Op::Write => (counter.writes, counter.written_bytes),
    };
    counters.iter().map(of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn pieces_of_a_configured_layout_are_the_file(
        writes in prop::collection::vec((0_u64..50_000, 0_usize..30_000), 1..10),
        servers in 1_u32..6,
    ) {
        let place = tempfile::tempdir().expect("a directory");
        let storage = located(&format!("stripe=4096 servers={servers}"));
        let path = place.path().join("f");
        let file = create(&storage, &path);
        let mut model = Vec::new();
        for (seed, (at, len)) in (0..).zip(writes) {
            let bytes = pattern(seed, len);
            let end = at as usize + len;
            if len > 0 {
                model.resize(model.len().max(end), 0);
                model[at as usize..end].copy_from_slice(&bytes);
            }
            write(&*file, at, &bytes);
            prop_assert_eq!(size(&*file), model.len() as u64);
        }
        prop_assert_eq!(read(&*file, Range::at(0, 100_000)), &model[..]);
        prop_assert_eq!(fs::read(&path).expect("the file itself"), &model[..]);
        let queues = file.pieces(Range::at(0, 100_000));
        prop_assert!(queues.iter().all(|piece| piece.queue.0 < storage.servers()));
    }
}

#[test]
fn a_file_system_that_says_nothing_is_a_plain_directory_and_the_reason_is_told() {
    let place = tempfile::tempdir().expect("a directory");
    for text in ["gluster servers=4", "lustre servers=4", "ceph servers=4"] {
        let storage = located(text);
        let file = create(&storage, &place.path().join(text));
        write(&*file, 0, b"bytes");
        assert_eq!(read(&*file, Range::at(0, 100)), b"bytes");
        assert_eq!(file.pieces(Range::at(0, 1 << 40)).len(), 1);
        let problems = storage.problems();
        assert_eq!(problems.opens, 1);
        let last = problems.last.expect("a reason");
        assert!(last.contains("does not say"), "{last}");
    }
}

#[test]
fn each_server_of_a_striped_set_has_a_device() {
    let place = tempfile::tempdir().expect("a directory");
    let storage = Emulated::new(Arc::new(striped(place.path(), 4)), ssd);
    let path = place.path().join("names/f");
    let file = create(&storage, &path);
    write(&*file, 0, &pattern(1, 8 * 4096));
    assert_eq!(counted(&storage.counters(), Op::Write), [(2, 8192); 4]);
    let again = open(&storage, &path);
    assert_eq!(read(&*again, Range::at(0, 8 * 4096)), pattern(1, 8 * 4096));
    assert_eq!(counted(&storage.counters(), Op::Read), [(2, 8192); 4]);
    assert_eq!(again.append(&[1; 4096]).expect("append"), 4096);
    let written = storage
        .counters()
        .iter()
        .map(|counter| counter.written_bytes)
        .sum::<u64>();
    assert_eq!(written, 9 * 4096);
}

#[test]
fn a_call_that_spans_servers_is_shared_by_their_devices() {
    let place = tempfile::tempdir().expect("a directory");
    let storage = Emulated::new(Arc::new(located("stripe=4096 servers=4 first=0")), ssd);
    let file = create(&storage, &place.path().join("f"));
    let bytes = pattern(1, 6 * 4096);
    let wrote = file.write(0, 0, &[std::io::IoSlice::new(&bytes)]);
    assert_eq!(wrote.expect("write"), bytes.len());
    let written = counted(&storage.counters(), Op::Write);
    let total = written.iter().map(|server| server.1).collect::<Vec<_>>();
    assert_eq!(total, [8192, 8192, 4096, 4096]);
}

#[test]
fn a_storage_can_be_shared_between_threads() {
    fn shared<T: Send + Sync + ?Sized>() {}
    shared::<dyn Storage>();
    shared::<dyn Bytes>();
    shared::<Located>();
    shared::<Emulated>();
    shared::<Striped>();
}
