//! One function per parser that takes any bytes as its input: what the fuzzers in `fuzz/` call, and
//! `tests/fuzz_short.rs` with inputs of its own. No part of the interface.

use crate::layout::{Layout, LayoutError, Placement, ceph, gluster, lustre};
use crate::striped::fuzzing::{read_record, read_set};
use crate::{Configured, LayoutSource};
use presagio_core::Range;

/// A parser under test. It returns 1 if it understood.
pub type Target = fn(&[u8]) -> usize;

/// All of them by name; `fuzz/corpus` has a directory for each.
pub const TARGETS: [(&str, Target); 6] = [
    ("configured", configured),
    ("gluster", gluster),
    ("lustre", lustre),
    ("ceph", ceph),
    ("record", record),
    ("set", set),
];

/// What a person writes.
pub fn configured(bytes: &[u8]) -> usize {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return 0;
    };
    let source: Result<LayoutSource, LayoutError> = text.parse();
    if let Ok(LayoutSource::Configured(configured)) = source {
        assert_eq!(text.parse::<Configured>(), Ok(configured));
        check(configured.layout(1), configured.servers());
    }
    usize::from(source.is_ok())
}

/// What GlusterFS says.
pub fn gluster(bytes: &[u8]) -> usize {
    named(gluster::parse(bytes))
}

/// What Lustre says.
pub fn lustre(bytes: &[u8]) -> usize {
    named(lustre::parse(bytes))
}

/// What CephFS says.
pub fn ceph(bytes: &[u8]) -> usize {
    named(ceph::parse(bytes))
}

/// What the namespace of a striped set says about a file.
pub fn record(bytes: &[u8]) -> usize {
    usize::from(read_record(bytes))
}

/// What a directory of a striped set says about it.
pub fn set(bytes: &[u8]) -> usize {
    usize::from(read_set(bytes))
}

fn named(layout: Result<Layout<String>, LayoutError>) -> usize {
    let Ok(layout) = layout else {
        return 0;
    };
    check(layout.rename(|name| name.len() as u32), 7);
    1
}

/// Whatever was understood, every byte is somewhere.
fn check(layout: Layout<u32>, servers: u32) {
    let placement = Placement::new(layout, 1, servers);
    for start in [0, 65_000, 1 << 30, u64::MAX - 10_000] {
        let range = Range::at(start, 100_000);
        let mut at = start;
        for piece in placement.pieces(range) {
            assert!(piece.range.start() == at && piece.queue.0 < servers);
            at = piece.range.end();
        }
        assert_eq!(at, range.end());
        let placed = placement.places(range);
        let placed: u64 = placed.iter().map(|piece| piece.range.len()).sum();
        assert_eq!(placed, range.len());
    }
}
