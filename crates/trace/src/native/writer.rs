//! Writes the native format.

use super::format::{self, CHUNK_BYTES, CHUNK_HEADER_BYTES, ChunkHeader, RECORD_BYTES_MAX};
use super::record::{self, Expect};
use crate::{Record, Sink};
use std::io::{self, Write};

/// Writes records in chunks. What was flushed survives the death of the program; a trace that was not
/// [finished](Writer::finish) reads as one that is cut short.
///
/// A chunk goes out with one `write`, and when that fails nothing more is written: the file then ends within a
/// chunk, which a reader notices.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    /// The records of the chunk that is being collected, and how many they are.
    raw: Vec<u8>,
    records: u32,
    expect: Expect,
    /// The chunk as it goes out, kept for its memory.
    chunk: Vec<u8>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Failed,
    Finished,
}

impl<W: Write> Writer<W> {
    /// Begins a trace on `out`, which needs no buffer of its own.
    pub fn new(mut out: W) -> io::Result<Writer<W>> {
        out.write_all(&format::file_header())?;
        Ok(Writer {
            out,
            raw: Vec::with_capacity(CHUNK_BYTES + 1024),
            records: 0,
            expect: Expect::default(),
            chunk: Vec::new(),
            state: State::Open,
        })
    }

    /// Adds a record. An error that the record is too large concerns this one only; after any other, the trace
    /// is given up.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        self.check_open()?;
        let before = self.raw.len();
        record::encode(record, &mut self.expect, &mut self.raw);
        if self.raw.len() - before > RECORD_BYTES_MAX {
            self.raw.truncate(before);
            let reason =
                format!("a record of more than {RECORD_BYTES_MAX} bytes: names are shorter");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        self.records += 1;
        match self.raw.len() >= CHUNK_BYTES {
            true => self.complete(false),
            false => Ok(()),
        }
    }

    /// Completes the chunk that is being collected, so that all records up to here can be read.
    pub fn flush(&mut self) -> io::Result<()> {
        self.check_open()?;
        if self.records > 0 {
            self.complete(false)?;
        }
        self.out.flush()
    }

    /// Completes the trace. Only the first call does something.
    pub fn finish(&mut self) -> io::Result<()> {
        if self.state == State::Finished {
            return Ok(());
        }
        self.check_open()?;
        self.complete(true)?;
        self.state = State::Finished;
        self.out.flush()
    }

    /// What was written to.
    pub fn into_inner(self) -> W {
        self.out
    }

    fn check_open(&self) -> io::Result<()> {
        match self.state {
            State::Open => Ok(()),
            State::Failed => Err(io::Error::other(
                "the trace was given up when an earlier write failed",
            )),
            State::Finished => Err(io::Error::other("the trace is already finished")),
        }
    }

    fn complete(&mut self, last: bool) -> io::Result<()> {
        self.build(last);
        let written = self.out.write_all(&self.chunk);
        if written.is_err() {
            self.state = State::Failed;
        }
        self.raw.clear();
        self.records = 0;
        self.expect.reset();
        written
    }

    /// Makes the chunk of the records collected, compressed if that helps.
    fn build(&mut self, last: bool) {
        let room = lz4_flex::block::get_maximum_output_size(self.raw.len());
        self.chunk.clear();
        self.chunk.resize(CHUNK_HEADER_BYTES + room, 0);
        let payload = &mut self.chunk[CHUNK_HEADER_BYTES..];
        let compressed = lz4_flex::block::compress_into(&self.raw, payload)
            .ok()
            .filter(|bytes| *bytes < self.raw.len());
        let stored = compressed.unwrap_or(self.raw.len());
        if compressed.is_none() {
            payload[..stored].copy_from_slice(&self.raw);
        }
        let header = ChunkHeader {
            stored: stored as u32,
            raw: self.raw.len() as u32,
            records: self.records,
            lz4: compressed.is_some(),
            last,
            payload_crc: crc32fast::hash(&payload[..stored]),
        };
        self.chunk.truncate(CHUNK_HEADER_BYTES + stored);
        self.chunk[..CHUNK_HEADER_BYTES].copy_from_slice(&header.encode());
    }
}

impl<W: Write> Sink for Writer<W> {
    fn write(&mut self, record: &Record) -> io::Result<()> {
        Writer::write(self, record)
    }

    fn finish(&mut self) -> io::Result<()> {
        Writer::finish(self)
    }
}
