//! One function per reader that takes any bytes as its input and reads them to the end: what the fuzzers in `fuzz/`
//! call, and `tests/fuzz_short.rs` with inputs of its own. No part of the interface.

use crate::info::Summary;
use crate::native::format::{self, ChunkHeader};
use crate::{Source, TraceError, agios, csv, darshan, native, strace};
use std::io::{BufReader, Cursor, Write};
use std::path::Path;

/// A reader under test. It returns how many records it read.
pub type Target = fn(&[u8]) -> usize;

/// All readers by name; `fuzz/corpus` has a directory for each.
pub const TARGETS: [(&str, Target); 7] = [
    ("native", native_file),
    ("native_payload", native_payload),
    ("csv", csv_text),
    ("agios", agios_text),
    ("darshan_log", darshan_log),
    ("darshan_text", darshan_text),
    ("strace", strace_text),
];

const PATH: &str = "fuzzed";

/// A native trace. What salvage keeps of it begins with what is read without.
pub fn native_file(bytes: &[u8]) -> usize {
    let open = || native::Reader::new(bytes, Path::new(PATH));
    let records = run(open(), bytes.len());
    let salvaged = run(open().map(native::Reader::salvage), bytes.len());
    assert!(salvaged >= records);
    records
}

/// The records of a native chunk, behind headers whose checksums are right: else few inputs would get so far.
/// The first byte says whether they are compressed, the next four how large they are and how many.
pub fn native_payload(bytes: &[u8]) -> usize {
    let [
        lz4,
        size_low,
        size_high,
        records_low,
        records_high,
        payload @ ..,
    ] = bytes
    else {
        return 0;
    };
    let lz4 = lz4 & 1 == 1;
    let raw = u32::from_le_bytes([*size_low, *size_high, 0, 0]);
    let header = ChunkHeader {
        stored: payload.len() as u32,
        raw: if lz4 { raw } else { payload.len() as u32 },
        records: u32::from_le_bytes([*records_low, *records_high, 0, 0]),
        lz4,
        last: true,
        payload_crc: crc32fast::hash(payload),
    };
    let file = [&format::file_header()[..], &header.encode(), payload].concat();
    run(native::Reader::new(&file[..], Path::new(PATH)), file.len())
}

/// Comma-separated values.
pub fn csv_text(bytes: &[u8]) -> usize {
    run(
        Ok(csv::Reader::new(text(bytes), Path::new(PATH))),
        bytes.len(),
    )
}

/// A trace of AGIOS.
pub fn agios_text(bytes: &[u8]) -> usize {
    run(
        Ok(agios::Reader::new(text(bytes), Path::new(PATH))),
        bytes.len(),
    )
}

/// A `.darshan` log.
pub fn darshan_log(bytes: &[u8]) -> usize {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(bytes).expect("room for a temporary file");
    run(darshan::LogReader::open(file.path()), bytes.len())
}

/// What `darshan-dxt-parser` prints.
pub fn darshan_text(bytes: &[u8]) -> usize {
    run(
        Ok(darshan::TextReader::new(text(bytes), Path::new(PATH))),
        bytes.len(),
    )
}

/// What strace prints.
pub fn strace_text(bytes: &[u8]) -> usize {
    run(
        Ok(strace::Reader::new(text(bytes), Path::new(PATH))),
        bytes.len(),
    )
}

/// With a small buffer, so that lines lie across its ends.
fn text(bytes: &[u8]) -> Box<BufReader<Cursor<Vec<u8>>>> {
    Box::new(BufReader::with_capacity(64, Cursor::new(bytes.to_vec())))
}

/// Reads to the end, and counts what it reads.
fn run(source: Result<impl Source, TraceError>, len: usize) -> usize {
    let Ok(mut source) = source else {
        return 0;
    };
    // The densest input are zeros that some format compresses a thousandfold.
    let records_max = 10_000 + len * 1_000;
    let (mut records, mut summary) = (0, Summary::default());
    for record in &mut source {
        let Ok(record) = record else { break };
        summary.add(&record);
        records += 1;
        assert!(records <= records_max, "a reader that does not end");
    }
    assert!(
        source.next().is_none(),
        "a reader that goes on behind its end"
    );
    let (position, total) = source.progress();
    assert!(
        total.is_none_or(|total| position <= total),
        "more read than there is"
    );
    records
}
