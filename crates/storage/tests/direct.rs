//! What a directory promises whose files are had past the page cache: the same as one whose files are not.

mod common;

use common::{create, open, pattern, read, size, skipped};
use presagio_core::Range;
use presagio_storage::{Bytes, Direct, Directory, Durable, Located, Now, Storage};
use proptest::prelude::*;
use rustix::io::ReadWriteFlags;
use std::fs::{self, File};
use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::Arc;

/// Whatever a file system wants, two pages are a multiple of it.
const BLOCK: usize = 8192;

/// A directory, and a storage on it; `None`, and a printed reason, where the file system cannot.
fn start() -> Option<(tempfile::TempDir, Direct)> {
    let place = tempfile::tempdir().expect("a directory");
    match Direct::is_possible(place.path()) {
        Ok(true) => Some((place, Direct::new(Arc::new(Directory)))),
        other => {
            skipped(&format!("no O_DIRECT here: {other:?}"));
            None
        }
    }
}

/// Bytes at an address that every file system likes, or just behind it.
struct Memory(Vec<u8>, usize);

impl Memory {
    fn new(bytes: &[u8], shift: usize) -> Memory {
        let mut memory = vec![0; bytes.len() + 2 * BLOCK];
        let at = memory.as_ptr() as usize;
        let start = at.next_multiple_of(BLOCK) - at + shift;
        memory[start..start + bytes.len()].copy_from_slice(bytes);
        memory.truncate(start + bytes.len());
        Memory(memory, start)
    }

    fn bytes(&self) -> &[u8] {
        &self.0[self.1..]
    }
}

fn write_all(file: &dyn Bytes, offset: u64, from: &[u8]) {
    let mut done = 0;
    while done < from.len() {
        let part = [IoSlice::new(&from[done..])];
        done += file.write(0, offset + done as u64, &part).expect("write");
    }
}

/// Whether the page cache has any of the first bytes of a file.
fn is_cached(path: &Path) -> bool {
    let file = File::open(path).expect("a file");
    let mut bytes = [0; 4096];
    let mut to = [IoSliceMut::new(&mut bytes)];
    rustix::io::preadv2(&file, &mut to, 0, ReadWriteFlags::NOWAIT).is_ok()
}

#[derive(Clone, Debug)]
enum Step {
    Write { at: u64, len: usize, shift: usize },
    Append(usize),
    Cut(u64),
    Read { at: u64, len: usize },
}

fn at() -> impl Strategy<Value = u64> {
    let block = BLOCK as u64;
    prop_oneof![0..4 * block, (0..5u64).prop_map(move |at| at * block)]
}

fn len() -> impl Strategy<Value = usize> {
    prop_oneof![1..3 * BLOCK, (1..4usize).prop_map(|blocks| blocks * BLOCK)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (at(), len(), prop_oneof![Just(0), 1..600usize])
            .prop_map(|(at, len, shift)| Step::Write { at, len, shift }),
        1 => len().prop_map(Step::Append),
        1 => at().prop_map(Step::Cut),
        3 => (at(), len()).prop_map(|(at, len)| Step::Read { at, len }),
    ]
}

fn put(model: &mut Vec<u8>, at: u64, bytes: &[u8]) {
    let at = at as usize;
    model.resize(model.len().max(at + bytes.len()), 0);
    model[at..at + bytes.len()].copy_from_slice(bytes);
}

fn get(model: &[u8], at: u64, len: usize) -> &[u8] {
    let at = model.len().min(at as usize);
    &model[at..model.len().min(at + len)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_aligned_or_not_two_see_the_same_file(
        steps in prop::collection::vec((any::<bool>(), step()), 1..40),
    ) {
        let Some((place, storage)) = start() else { return Ok(()) };
        let path = place.path().join("file");
        let files = [create(&storage, &path), open(&storage, &path)];
        let mut model = Vec::new();
        for (seed, (who, step)) in (1..).zip(steps) {
            let file = &*files[usize::from(who)];
            match step {
                Step::Write { at, len, shift } => {
                    let memory = Memory::new(&pattern(seed, len), shift);
                    write_all(file, at, memory.bytes());
                    put(&mut model, at, memory.bytes());
                }
                Step::Append(len) => {
                    let bytes = pattern(seed, len);
                    prop_assert_eq!(file.append(&bytes).expect("append"), len);
                    model.extend(bytes);
                }
                Step::Cut(len) => {
                    file.set_len(len).expect("cut");
                    model.resize(len as usize, 0);
                }
                Step::Read { at, len } => {
                    let got = read(file, Range::at(at, len as u64));
                    prop_assert!(got == get(&model, at, len), "{at}, {len}");
                }
            }
            prop_assert_eq!(size(file), model.len() as u64);
        }
        files[0].sync(Durable::All).expect("sync");
        prop_assert!(fs::read(&path).expect("the file") == model);
    }
}

#[test]
fn whole_blocks_leave_nothing_in_the_page_cache() {
    let Some((place, storage)) = start() else {
        return;
    };
    let path = place.path().join("file");
    let file = create(&storage, &path);
    let memory = Memory::new(&pattern(1, 4 * BLOCK), 0);
    write_all(&*file, 0, memory.bytes());
    // Reads need not be aligned for that.
    assert_eq!(
        read(&*file, Range::at(100, 5000)),
        memory.bytes()[100..5100]
    );
    assert_eq!(read(&*file, Range::at(0, 4 * BLOCK as u64)), memory.bytes());
    assert!(!is_cached(&path), "its bytes are in the page cache");
    let mut byte = [0];
    let now: Result<Now, _> = file.read_now(0, 0, &mut [IoSliceMut::new(&mut byte)]);
    assert!(now.is_err(), "a device makes one wait");
    write_all(&*file, 100, b"through the cache");
    assert!(is_cached(&path), "this test would see it");
}

#[test]
fn writers_that_share_blocks_lose_nothing() {
    let Some((place, storage)) = start() else {
        return;
    };
    let path = place.path().join("file");
    create(&storage, &path)
        .set_len(4 * BLOCK as u64)
        .expect("room");
    // One writes whole blocks, the others parts of the blocks beside them and across their borders; each its own bytes.
    const ROUNDS: u64 = 200;
    let ranges = [
        (0, BLOCK),
        (BLOCK, 700),
        (BLOCK + 700, BLOCK),
        (3 * BLOCK, BLOCK),
    ];
    std::thread::scope(|scope| {
        for (who, (at, len)) in (1..).zip(ranges) {
            let file = open(&storage, &path);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let memory = Memory::new(&pattern(who * 1000 + round, len), 0);
                    write_all(&*file, at as u64, memory.bytes());
                    let got = read(&*file, Range::at(at as u64, len as u64));
                    assert!(got == memory.bytes(), "writer {who}, round {round}");
                }
            });
        }
    });
    let all = fs::read(&path).expect("the file");
    for (who, (at, len)) in (1..).zip(ranges) {
        let expected = pattern(who * 1000 + ROUNDS - 1, len);
        assert!(all[at..at + len] == expected, "writer {who}");
    }
}

#[test]
fn servers_are_still_told_apart() {
    let Some((place, _)) = start() else {
        return;
    };
    let layout = "stripe=8192 servers=3".parse().expect("a layout");
    let storage = Direct::new(Arc::new(Located::new(layout)));
    assert_eq!(storage.servers(), 3);
    let file = create(&storage, &place.path().join("file"));
    assert_eq!(file.pieces(Range::at(0, 3 * 8192)).len(), 3);
    let memory = Memory::new(&pattern(1, 2 * BLOCK), 0);
    write_all(&*file, 0, memory.bytes());
    assert_eq!(read(&*file, Range::at(0, 2 * BLOCK as u64)), memory.bytes());
}

#[test]
fn where_it_cannot_be_it_goes_through_the_page_cache() {
    let place = Path::new("/proc/self");
    assert!(!Direct::is_possible(place).unwrap_or(false));
    let storage = Direct::new(Arc::new(Directory));
    let file = File::open(place.join("status")).expect("a file of a kind that has no blocks");
    let access = presagio_storage::Access {
        read: true,
        write: false,
    };
    let file = storage.open(file.into(), access).expect("bytes");
    assert!(read(&*file, Range::at(0, 5)) == b"Name:");
}
