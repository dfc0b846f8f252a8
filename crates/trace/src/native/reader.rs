//! Reads the native format, chunk by chunk.

use super::format::{
    self, CHUNK_HEADER_BYTES, CHUNK_MAGIC, ChunkHeader, HEADER_BYTES, Unreadable, VERSION,
};
use super::record::{self, Expect};
use crate::input::Window;
use crate::{Format, Reason, Record, Source, TraceError};
use memchr::memmem;
use std::collections::{BTreeSet, VecDeque};
use std::io::Read;
use std::path::Path;

/// Reads a native trace; its memory is that of one chunk.
///
/// A trace that ends without its last chunk is read as far as its chunks are complete; [`Source::cut_short`] then
/// says so. A damaged chunk is an error, unless [`Reader::salvage`] was asked for.
#[derive(Debug)]
pub struct Reader<R> {
    window: Window<R>,
    chunk: Chunk,
    salvage: Option<Salvage>,
    cut: Option<TraceError>,
    done: bool,
}

/// The chunk that is being read.
#[derive(Debug, Default)]
struct Chunk {
    /// Where it begins in the file.
    begin: u64,
    /// Its records, decompressed; `at` is where the next one begins.
    raw: Vec<u8>,
    at: usize,
    records_left: u32,
    last: bool,
    expect: Expect,
}

/// What is kept in order to say what a damaged chunk concerns.
#[derive(Debug, Default)]
struct Salvage {
    processes: BTreeSet<u32>,
    gaps: VecDeque<Record>,
    bytes: u64,
    /// Records of chunks whose checksum is right: nobody damaged them, they were written like that.
    records: u64,
}

/// More processes than this are not told of a gap.
const PROCESSES_MAX: usize = 1 << 20;

impl<R: Read> Reader<R> {
    /// Begins to read `from`; `path` is for messages.
    pub fn new(from: R, path: &Path) -> Result<Reader<R>, TraceError> {
        let mut window = Window::new(from, path);
        let available = window.fill(HEADER_BYTES)?;
        let Some(header) = available.first_chunk() else {
            let problem = format!(
                "{} bytes are no trace: its header alone has {HEADER_BYTES}",
                available.len()
            );
            return Err(window.error(0, problem));
        };
        if let Err(unreadable) = format::check_file_header(header) {
            return Err(window.error(0, reason(&unreadable)));
        }
        window.consume(HEADER_BYTES);
        Ok(Reader {
            window,
            chunk: Chunk::default(),
            salvage: None,
            cut: None,
            done: false,
        })
    }

    /// Goes on behind damaged chunks instead of ending with an error. Each is replaced by a [`Record::Gap`] for
    /// every process met so far. Definitions that were in one are lost.
    pub fn salvage(mut self) -> Reader<R> {
        self.salvage = Some(Salvage::default());
        self
    }

    fn record(&mut self) -> Result<Option<Record>, TraceError> {
        loop {
            if let Some(gap) = self.salvage.as_mut().and_then(|s| s.gaps.pop_front()) {
                return Ok(Some(gap));
            }
            if self.chunk.records_left > 0 {
                match self.decode() {
                    Ok(record) => return Ok(Some(record)),
                    Err(error) => self.give_up_chunk(error)?,
                }
            } else {
                match self.load() {
                    Ok(true) => {}
                    Ok(false) => return Ok(None),
                    Err(error) => self.pass_over(error)?,
                }
            }
        }
    }

    fn decode(&mut self) -> Result<Record, TraceError> {
        let chunk = &mut self.chunk;
        let record = record::decode(&chunk.raw, &mut chunk.at, &mut chunk.expect);
        let is_whole = chunk.records_left > 1 || chunk.at == chunk.raw.len();
        match record {
            Ok(_) if !is_whole => Err(self.bad_chunk("it has more bytes than its records")),
            Ok(record) => {
                chunk.records_left -= 1;
                self.note(&record);
                Ok(record)
            }
            Err(problem) => Err(self.bad_chunk(problem)),
        }
    }

    fn bad_chunk(&self, problem: &str) -> TraceError {
        let (at, begin) = (self.chunk.at, self.chunk.begin);
        let problem = format!("bad chunk, {at} bytes into its records: {problem}");
        self.window.error(begin, problem)
    }

    fn note(&mut self, record: &Record) {
        let Some(salvage) = &mut self.salvage else {
            return;
        };
        let process = match record {
            Record::Event(event) => event.process,
            Record::Process(process) => process.id,
            _ => return,
        };
        if salvage.processes.len() < PROCESSES_MAX {
            salvage.processes.insert(process);
        }
    }

    /// Makes the next chunk the current one, if there is one.
    fn load(&mut self) -> Result<bool, TraceError> {
        let begin = self.window.position();
        if self.chunk.last {
            return self.check_end();
        }
        let available = self.window.fill(CHUNK_HEADER_BYTES)?;
        let Some(header) = available.first_chunk() else {
            return Ok(self.end_early(begin));
        };
        let header = match ChunkHeader::decode(header) {
            Ok(header) => header,
            Err(problem) => return Err(self.window.error(begin, problem.to_owned())),
        };
        let bytes = CHUNK_HEADER_BYTES + header.stored as usize;
        if self.window.fill(bytes)?.len() < bytes {
            return Ok(self.end_early(begin));
        }
        self.unpack(begin, &header)?;
        self.window.consume(bytes);
        Ok(true)
    }

    fn check_end(&mut self) -> Result<bool, TraceError> {
        if self.window.fill(1)?.is_empty() {
            return Ok(false);
        }
        let problem = "the trace has ended, but the file goes on: was something appended to it?";
        let position = self.window.position();
        Err(self.window.error(position, problem.to_owned()))
    }

    /// There is no next chunk, and the last one was not the last of the trace.
    fn end_early(&mut self, begin: u64) -> bool {
        let problem = "the trace ends early: its recorder was killed or is still writing; what comes before is whole";
        self.cut = Some(self.window.error(begin, problem.to_owned()));
        false
    }

    /// Checks and decompresses the chunk at the front of the window.
    fn unpack(&mut self, begin: u64, header: &ChunkHeader) -> Result<(), TraceError> {
        let end = CHUNK_HEADER_BYTES + header.stored as usize;
        let payload = &self.window.fill(end)?[CHUNK_HEADER_BYTES..end];
        let chunk = &mut self.chunk;
        let unpacked = match crc32fast::hash(payload) == header.payload_crc {
            true => unpack(payload, header, &mut chunk.raw),
            false => Err("the chunk is damaged: its checksum differs"),
        };
        if let Err(problem) = unpacked {
            return Err(self.window.error(begin, problem.to_owned()));
        }
        chunk.begin = begin;
        chunk.at = 0;
        chunk.records_left = header.records;
        chunk.last = header.last;
        chunk.expect.reset();
        Ok(())
    }

    /// Leaves the rest of a chunk whose checksum is right and whose records are not.
    fn give_up_chunk(&mut self, error: TraceError) -> Result<(), TraceError> {
        let left = std::mem::take(&mut self.chunk.records_left);
        self.note_damage(error)?;
        let salvage = self.salvage.iter_mut();
        salvage.for_each(|salvage| salvage.records += u64::from(left));
        Ok(())
    }

    /// Leaves what should have been a chunk. Bytes behind the last one are not damage.
    fn pass_over(&mut self, error: TraceError) -> Result<(), TraceError> {
        if self.chunk.last {
            return Err(error);
        }
        self.note_damage(error)?;
        self.seek_chunk()
    }

    /// Prepares the gaps, if damage is to be passed over and the error is one.
    fn note_damage(&mut self, error: TraceError) -> Result<(), TraceError> {
        let is_damage = matches!(error.reason, Reason::Malformed(_));
        let Some(salvage) = self.salvage.as_mut().filter(|_| is_damage) else {
            return Err(error);
        };
        let lost = |&process| Record::Gap { process, lost: 0 };
        salvage.gaps = salvage.processes.iter().map(lost).collect();
        Ok(())
    }

    /// Moves on to the next place where a chunk may begin, or to the end.
    fn seek_chunk(&mut self) -> Result<(), TraceError> {
        let begin = self.window.position();
        self.window.consume(1);
        loop {
            let bytes = self.window.fill(CHUNK_HEADER_BYTES)?;
            let found = memmem::find(bytes, &CHUNK_MAGIC);
            let is_end = bytes.len() < CHUNK_HEADER_BYTES;
            let behind = bytes.len() - bytes.len().min(CHUNK_MAGIC.len() - 1);
            self.window.consume(found.unwrap_or(behind));
            if found.is_some() || is_end {
                break;
            }
        }
        let skipped = self.window.position() - begin;
        self.salvage.iter_mut().for_each(|s| s.bytes += skipped);
        Ok(())
    }
}

fn unpack(payload: &[u8], header: &ChunkHeader, raw: &mut Vec<u8>) -> Result<(), &'static str> {
    raw.clear();
    if !header.lz4 {
        raw.extend_from_slice(payload);
        return Ok(());
    }
    raw.resize(header.raw as usize, 0);
    match lz4_flex::block::decompress_into(payload, raw) {
        Ok(bytes) if bytes == raw.len() => Ok(()),
        _ => Err("the chunk cannot be decompressed to the size it states"),
    }
}

fn reason(unreadable: &Unreadable) -> Reason {
    match unreadable {
        Unreadable::OtherFormat => Reason::Malformed("this is no native trace".to_owned()),
        Unreadable::Damaged => {
            Reason::Malformed("the header is damaged: its checksum differs".to_owned())
        }
        Unreadable::Version(version) => Reason::Unsupported(format!(
            "version {version} of the format; this program reads version {VERSION}: use a newer one"
        )),
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.record().transpose();
        self.done = !matches!(next, Some(Ok(_)));
        next
    }
}

impl<R: Read> Source for Reader<R> {
    fn progress(&self) -> (u64, Option<u64>) {
        (self.window.position(), self.window.total())
    }

    fn cut_short(&self) -> Option<&TraceError> {
        self.cut.as_ref()
    }

    fn format(&self) -> Option<Format> {
        Some(Format::Native)
    }

    fn warnings(&self) -> Vec<String> {
        let damaged = |bytes: u64| format!("{bytes} bytes were damaged and left out");
        let wrong = |records: u64| {
            format!("{records} records were left out: their recorder wrote them wrong, or is newer")
        };
        let Some(salvage) = &self.salvage else {
            return Vec::new();
        };
        let mut warnings = Vec::new();
        warnings.extend((salvage.bytes > 0).then(|| damaged(salvage.bytes)));
        warnings.extend((salvage.records > 0).then(|| wrong(salvage.records)));
        warnings
    }
}
