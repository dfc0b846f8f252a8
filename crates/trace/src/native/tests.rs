//! What the native format promises, for any records and any damage.

use super::format::{CHUNK_HEADER_BYTES, ChunkHeader, HEADER_BYTES};
use super::{Reader, Writer};
use crate::strategies::{event, records};
use crate::{Record, Source, TraceError};
use presagio_core::{Event, Nanos};
use proptest::prelude::*;
use std::cell::Cell;
use std::io::{self, Write};
use std::path::Path;
use std::rc::Rc;

/// A trace with a chunk for every so many records.
fn written(records: &[Record], per_chunk: usize) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).unwrap();
    for chunk in records.chunks(per_chunk.max(1)) {
        chunk.iter().for_each(|r| writer.write(r).unwrap());
        writer.flush().unwrap();
    }
    writer.finish().unwrap();
    writer.into_inner()
}

struct Outcome {
    records: Vec<Record>,
    error: Option<TraceError>,
    cut: bool,
}

fn read_all(mut reader: Reader<&[u8]>) -> Outcome {
    let (mut records, mut error) = (Vec::new(), None);
    for record in &mut reader {
        match record {
            Ok(record) => records.push(record),
            Err(e) => error = Some(e),
        }
    }
    let cut = reader.cut_short().is_some();
    Outcome {
        records,
        error,
        cut,
    }
}

fn read(bytes: &[u8]) -> Outcome {
    match Reader::new(bytes, Path::new("t.ptrace")) {
        Ok(reader) => read_all(reader),
        Err(error) => Outcome {
            records: Vec::new(),
            error: Some(error),
            cut: false,
        },
    }
}

fn events(count: u64) -> Vec<Record> {
    let at = |i| Event {
        time: Nanos(i * 1000),
        offset: i * 4096,
        ..event()
    };
    (0..count).map(|i| Record::Event(at(i))).collect()
}

proptest! {
    #[test]
    fn any_records_come_back(records in records(), per_chunk in 1usize..50) {
        let outcome = read(&written(&records, per_chunk));
        prop_assert!(outcome.error.is_none() && !outcome.cut);
        prop_assert_eq!(outcome.records, records);
    }

    #[test]
    fn a_flipped_bit_is_an_error_after_a_part_of_the_trace(
        records in records(), per_chunk in 1usize..50, at: prop::sample::Index, bit in 0..8
    ) {
        let mut bytes = written(&records, per_chunk);
        let at = at.index(bytes.len());
        bytes[at] ^= 1u8 << bit;
        let outcome = read(&bytes);
        prop_assert!(outcome.error.is_some());
        prop_assert!(records.starts_with(&outcome.records));
    }

    #[test]
    fn a_cut_trace_is_read_up_to_its_last_whole_chunk(
        records in records(), per_chunk in 1usize..50, at: prop::sample::Index
    ) {
        let bytes = written(&records, per_chunk);
        let cut = HEADER_BYTES + at.index(bytes.len() - HEADER_BYTES);
        let outcome = read(&bytes[..cut]);
        prop_assert!(outcome.cut && outcome.error.is_none());
        prop_assert!(records.starts_with(&outcome.records));
        prop_assert_eq!(outcome.records.len(), records_before(&bytes, cut));
    }

    #[test]
    fn any_bytes_are_a_trace_or_an_error(bytes: Vec<u8>, records in records()) {
        read(&bytes);
        let mut spliced = written(&records, 10);
        spliced.truncate(spliced.len() / 2);
        spliced.extend(&bytes);
        read(&spliced);
    }
}

/// How many records the chunks have that end at or before `cut`: by walking the headers, not by reading.
fn records_before(bytes: &[u8], cut: usize) -> usize {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let (mut at, mut records) = (HEADER_BYTES, 0);
    while at < bytes.len() {
        let end = at + CHUNK_HEADER_BYTES + word(at + 4);
        if end <= cut {
            records += word(at + 12);
        }
        at = end;
    }
    records
}

#[test]
fn chunks_complete_themselves_so_that_a_killed_recorder_loses_little() {
    let mut writer = Writer::new(Vec::new()).unwrap();
    let all = events(100_000);
    all.iter().for_each(|r| writer.write(r).unwrap());
    let outcome = read(&writer.into_inner());
    assert!(outcome.cut && outcome.error.is_none());
    assert!(outcome.records.len() > 90_000);
    assert!(all.starts_with(&outcome.records));
}

#[test]
fn salvage_goes_on_behind_a_damaged_chunk_and_tells_of_the_gap() {
    let all = events(30);
    let mut bytes = written(&all, 10);
    let chunk = (bytes.len() - HEADER_BYTES - CHUNK_HEADER_BYTES) / 3;
    bytes[HEADER_BYTES + chunk + chunk / 2] ^= 1;
    assert!(read(&bytes).error.is_some());
    let mut reader = Reader::new(&bytes[..], Path::new("t")).unwrap().salvage();
    let kept: Vec<Record> = reader.by_ref().map(Result::unwrap).collect();
    let process = event().process;
    assert_eq!(kept[..10], all[..10]);
    assert_eq!(kept[10], Record::Gap { process, lost: 0 });
    assert_eq!(kept[11..], all[20..]);
    assert!(reader.cut_short().is_none());
    let warnings = reader.warnings();
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains("bytes were damaged"), "{warnings:?}");
}

#[test]
fn salvage_tells_of_records_that_are_wrong_behind_a_right_checksum() {
    let payload = [&[0x0A, 1, 1, b'x'][..], &[0x0F, 0, 0]].concat();
    let header = ChunkHeader {
        stored: payload.len() as u32,
        raw: payload.len() as u32,
        records: 3,
        lz4: false,
        last: false,
        payload_crc: crc32fast::hash(&payload),
    };
    let whole = written(&events(5), 10);
    let (begin, rest) = whole.split_at(HEADER_BYTES);
    let bytes = [begin, &header.encode(), &payload, rest].concat();
    let error = read(&bytes).error.unwrap().to_string();
    assert!(error.contains("a record of unknown kind"), "{error}");
    let mut reader = Reader::new(&bytes[..], Path::new("t")).unwrap().salvage();
    let kept: Vec<Record> = reader.by_ref().map(Result::unwrap).collect();
    assert_eq!(kept[1..], events(5));
    let warnings = reader.warnings();
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].starts_with("2 records were left out"),
        "{warnings:?}"
    );
}

#[test]
fn an_error_names_the_file_and_the_byte() {
    let mut bytes = written(&events(10), 5);
    let at = HEADER_BYTES + CHUNK_HEADER_BYTES;
    bytes[at] ^= 1;
    let error = read(&bytes).error.unwrap().to_string();
    assert!(
        error.starts_with("t.ptrace: byte 16: the chunk is damaged"),
        "{error}"
    );
    assert!(read(b"").error.is_some());
    bytes = written(&events(1), 1);
    bytes.push(0);
    let error = read(&bytes).error.unwrap().to_string();
    assert!(error.contains("the file goes on"), "{error}");
}

/// A disk with so much room.
struct Disk {
    bytes: Vec<u8>,
    room: Rc<Cell<usize>>,
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fits = bytes.len().min(self.room.get() - self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..fits]);
        match fits {
            0 => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(fits),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_reported_and_leaves_what_was_written_before() {
    let room = Rc::new(Cell::new(1000));
    let disk = Disk {
        bytes: Vec::new(),
        room: room.clone(),
    };
    let mut writer = Writer::new(disk).unwrap();
    let all = events(10_000);
    let mut chunks = all.chunks(20).map(|chunk| {
        chunk.iter().try_for_each(|r| writer.write(r))?;
        writer.flush()
    });
    let error = chunks.by_ref().find_map(Result::err).unwrap();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    drop(chunks);
    // Room again, but a chunk behind a half one could not be found.
    room.set(1 << 20);
    assert!(writer.write(&all[0]).is_err() && writer.flush().is_err() && writer.finish().is_err());
    let outcome = read(&writer.into_inner().bytes);
    assert!(outcome.cut && outcome.error.is_none());
    assert!(!outcome.records.is_empty() && all.starts_with(&outcome.records));
}

#[test]
fn a_name_beyond_all_measure_is_refused_and_the_trace_goes_on() {
    let mut writer = Writer::new(Vec::new()).unwrap();
    let id = presagio_core::FileId(1);
    let huge = Record::File {
        id,
        name: vec![b'x'; 2 << 20].into(),
    };
    let good = Record::File {
        id,
        name: vec![b'x'; 1000 << 10].into(),
    };
    assert!(writer.write(&huge).is_err());
    writer.write(&good).unwrap();
    writer.finish().unwrap();
    assert_eq!(read(&writer.into_inner()).records, [good]);
}
