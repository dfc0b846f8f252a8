//! What the tests of storages share.

#![allow(dead_code)] // Each test takes what it needs.

#[path = "../../../core/tests/common/skips.rs"]
mod skips;

use presagio_core::Range;
use presagio_storage::{Access, Bytes, Storage};
use std::fs::{File, OpenOptions};
use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::Arc;

#[allow(unused_imports, reason = "each test takes what it needs")]
pub use skips::skipped;

/// Reads and writes.
pub const BOTH: Access = Access {
    read: true,
    write: true,
};

/// Creates a file as a node does.
pub fn create(storage: &dyn Storage, path: &Path) -> Arc<dyn Bytes> {
    use std::os::fd::AsFd;
    let options = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .clone();
    let file = options.open(path).expect("a new file");
    storage.created(file.as_fd()).expect("a record");
    storage.open(file.into(), BOTH).expect("bytes")
}

/// Opens a file for both.
pub fn open(storage: &dyn Storage, path: &Path) -> Arc<dyn Bytes> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    storage
        .open(file.expect("a file").into(), BOTH)
        .expect("bytes")
}

/// An `O_PATH` descriptor.
pub fn name(path: &Path) -> std::os::fd::OwnedFd {
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
    rustix::fs::open(path, flags, rustix::fs::Mode::empty()).expect("a name")
}

/// Writes all of it, piece by piece, the last piece first: nobody promised an order.
pub fn write(file: &dyn Bytes, offset: u64, from: &[u8]) {
    let mut end = from.len();
    for piece in file
        .pieces(Range::at(offset, from.len() as u64))
        .iter()
        .rev()
    {
        let start = end - piece.range.len() as usize;
        let mut done = start;
        while done < end {
            let at = piece.range.start() + (done - start) as u64;
            let part = [IoSlice::new(&from[done..end])];
            done += file.write(piece.object, at, &part).expect("write");
        }
        end = start;
    }
}

/// Reads a range piece by piece; after a piece that is short there must be nothing.
pub fn read(file: &dyn Bytes, range: Range) -> Vec<u8> {
    let (mut all, mut ended) = (Vec::new(), false);
    for piece in file.pieces(range) {
        let mut part = vec![0xEE; piece.range.len() as usize];
        // In two parts, as requests of two clients would be.
        let (first, second) = part.split_at_mut(piece.range.len() as usize / 3);
        let to = &mut [IoSliceMut::new(first), IoSliceMut::new(second)];
        let got = file
            .read(piece.object, piece.range.start(), to)
            .expect("read");
        assert!(!ended || got == 0, "bytes behind the end");
        ended = got < part.len();
        all.extend_from_slice(&part[..got]);
    }
    all
}

/// How long the file says it is.
pub fn size(file: &dyn Bytes) -> u64 {
    let size = file.size().expect("a size");
    size.map_or_else(|| plain_size(file), |size| size.bytes)
}

fn plain_size(file: &dyn Bytes) -> u64 {
    let name = file.name().try_clone_to_owned().expect("a descriptor");
    File::from(name).metadata().expect("a size").len()
}

/// Bytes that tell one write from another.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8 | 1
    };
    (0..len).map(|_| next()).collect()
}
