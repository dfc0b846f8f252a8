//! The reader of `.darshan` logs: header, names, then one module's region after the other, record by record.

use super::header::{Header, Module, Order};
use super::region::{Codec, Region};
use super::{Definitions, HOW_TO_RECORD, NO_OFFSETS, moment, rank, size};
use crate::{Format, Place, Reason, Record, Source, TraceError};
use presagio_core::{Action, ContextId, Event, FileId, Layer, Nanos};
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A DXT record before its segments: file, rank, a flag, 64 bytes of host name, and two counts.
const RECORD: usize = 104;
const HOST_AT: usize = 24;
const HOST_END: usize = 88;

/// How many decompressed bytes are held in memory, about.
const PIECE: usize = 64 * 1024;

// What a damaged log may claim, and what we believe of it at most.
const JOB_MAX: usize = 64 * 1024;
const NAME_MAX: usize = 64 * 1024;
const NAMES_MAX: usize = 4 << 20;
const NAME_BYTES_MAX: usize = 256 << 20;

/// What a log says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// The version of the log's format.
    pub version: String,
    /// The program and its arguments, if Darshan recorded them.
    pub command: Option<String>,
    /// How many processes there were.
    pub processes: u64,
    /// When the program began, since 1970, if known.
    pub start: Option<Nanos>,
    /// Darshan ran out of memory, so that the last operations of some files are missing.
    pub partial: bool,
    /// What one should know about this log before trusting it.
    pub warnings: Vec<String>,
}

/// A reader of a `.darshan` log. It needs memory for the names in the log, not for its operations.
pub struct LogReader {
    path: PathBuf,
    file: Arc<File>,
    order: Order,
    codec: Codec,
    info: Info,
    names: HashMap<u64, Arc<[u8]>>,
    waiting: VecDeque<(Layer, Module)>,
    current: Option<ModuleReader>,
    definitions: Definitions,
    done: u64,
    total: u64,
}

/// A module's region, and where we are in it.
struct ModuleReader {
    region: Region,
    layer: Layer,
    format: SegmentFormat,
    record: RecordHead,
    piece: Vec<u8>,
    used: usize,
}

/// The record whose segments are being read: its writes come first, then its reads.
#[derive(Clone, Copy, Default)]
struct RecordHead {
    file: FileId,
    rank: u32,
    writes: u64,
    reads: u64,
}

/// How a module's version lays out its segments.
#[derive(Clone, Copy)]
struct SegmentFormat {
    size: usize,
    offsets: bool,
}

impl SegmentFormat {
    /// Version 1 of MPI-IO had no offsets; since 2 of POSIX and 3 of MPI-IO the thread is there.
    fn of(layer: Layer, version: u32) -> Result<SegmentFormat, Reason> {
        let newest = if layer == Layer::Posix { 2 } else { 3 };
        if version == 0 || version > newest {
            return Err(Reason::Unsupported(format!(
                "version {version} of Darshan's DXT records for {layer}; versions 1 to {newest} can be read"
            )));
        }
        Ok(SegmentFormat {
            size: if version == newest { 40 } else { 32 },
            offsets: layer == Layer::Posix || version > 1,
        })
    }
}

impl LogReader {
    /// Opens a log and reads its names. A log without DXT is [`Reason::Unsupported`].
    pub fn open(path: impl AsRef<Path>) -> Result<LogReader, TraceError> {
        let path = path.as_ref();
        let at_start = |reason: Reason| TraceError::new(path, Place::Byte(0), reason);
        let file = File::open(path).map_err(|e| at_start(e.into()))?;
        let len = file.metadata().map_err(|e| at_start(e.into()))?.len();
        let header = Header::read(&file, len).map_err(at_start)?;
        let waiting = modules(&header).map_err(at_start)?;
        let mut reader = LogReader::new(path, file, &header, waiting);
        reader.read_job(&header)?;
        reader.read_names(&header)?;
        Ok(reader)
    }

    fn new(
        path: &Path,
        file: File,
        header: &Header,
        waiting: VecDeque<(Layer, Module)>,
    ) -> LogReader {
        let regions: u64 = waiting.iter().map(|(_, m)| m.extent.len).sum();
        LogReader {
            path: path.to_path_buf(),
            file: Arc::new(file),
            order: header.order,
            codec: header.codec,
            info: info(header, &waiting),
            names: HashMap::new(),
            waiting,
            current: None,
            definitions: Definitions::default(),
            done: 0,
            total: regions + header.names.len,
        }
    }

    /// What the log says about itself.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// The job record: numbers, 1 KiB of metadata, then the command in a line of its own.
    fn read_job(&mut self, header: &Header) -> Result<(), TraceError> {
        let mut region = Region::new(self.file.clone(), header.job, self.codec);
        let mut bytes = vec![0; JOB_MAX];
        let filled = region.fill(&mut bytes);
        let n = filled.map_err(|reason| self.error(region.place(), reason))?;
        let numbers = header.layout.job_numbers;
        if n < numbers * 8 {
            let reason = Reason::Malformed("the job record is too short".into());
            return Err(self.error(region.place(), reason));
        }
        self.info.start = start(self.order, &bytes, numbers);
        self.definitions.start = self.info.start;
        self.info.processes = self.order.u64(&bytes, (numbers - 2) * 8);
        let text = bytes[..n].get(numbers * 8 + 1024..).unwrap_or_default();
        let line = text.split(|&b| b == b'\n' || b == 0).next();
        self.info.command = line
            .filter(|line| !line.is_empty())
            .map(|line| String::from_utf8_lossy(line).into_owned());
        self.definitions.command.clone_from(&self.info.command);
        Ok(())
    }

    /// The name region: an identifier and a text that ends with a zero, again and again.
    fn read_names(&mut self, header: &Header) -> Result<(), TraceError> {
        let mut region = Region::new(self.file.clone(), header.names, self.codec);
        let mut bytes = vec![0; PIECE + NAME_MAX];
        let (mut kept, mut total) = (0, 0);
        loop {
            let filled = region.fill(&mut bytes[kept..]);
            let n = filled.map_err(|reason| self.error(region.place(), reason))?;
            let have = kept + n;
            let used = self.take_names(&bytes[..have]);
            total += used;
            let last = have < bytes.len();
            kept = have - used;
            let too_much = total > NAME_BYTES_MAX || self.names.len() > NAMES_MAX;
            if too_much || kept > NAME_MAX + 8 || last && kept > 0 {
                let reason = Reason::Malformed(names_complaint(too_much, last));
                return Err(self.error(region.place(), reason));
            }
            if last {
                break;
            }
            bytes.copy_within(used..have, 0);
        }
        self.done = header.names.len;
        Ok(())
    }

    /// Keeps the complete names in `bytes`; how many bytes they took.
    fn take_names(&mut self, bytes: &[u8]) -> usize {
        let mut used = 0;
        while let Some(rest) = bytes.get(used + 8..)
            && let Some(len) = rest.iter().position(|&b| b == 0)
        {
            let id = self.order.u64(bytes, used);
            self.names.entry(id).or_insert_with(|| rest[..len].into());
            used += 8 + len + 1;
        }
        used
    }

    /// The next record, whatever kind; `None` at the end of the log.
    fn advance(&mut self) -> Result<Option<Record>, TraceError> {
        loop {
            if let Some(record) = self.definitions.due.pop_front() {
                return Ok(Some(record));
            }
            if self.current.is_none() && !self.begin_module()? {
                return Ok(None);
            }
            if let Some(event) = self.step()? {
                return Ok(Some(Record::Event(event)));
            }
        }
    }

    fn begin_module(&mut self) -> Result<bool, TraceError> {
        let Some((layer, module)) = self.waiting.pop_front() else {
            return Ok(false);
        };
        let format = SegmentFormat::of(layer, module.version)
            .map_err(|reason| self.error(Place::Byte(module.extent.offset), reason))?;
        self.current = Some(ModuleReader {
            region: Region::new(self.file.clone(), module.extent, self.codec),
            layer,
            format,
            record: RecordHead::default(),
            piece: Vec::new(),
            used: 0,
        });
        Ok(true)
    }

    /// One step in the current module: a segment, the beginning of a record, or the end of the module.
    fn step(&mut self) -> Result<Option<Event>, TraceError> {
        // Taken out so that the record's definitions can be noted while it is read; put back unless it is over.
        let Some(mut module) = self.current.take() else {
            return Ok(None);
        };
        let result = if module.record.writes + module.record.reads > 0 {
            self.segment(&mut module).map(Some)
        } else {
            match self.begin_record(&mut module) {
                Ok(false) => {
                    self.done += module.region.progress();
                    return Ok(None);
                }
                Ok(true) => Ok(None),
                Err(reason) => Err(reason),
            }
        };
        let place = module.region.place();
        self.current = Some(module);
        result.map_err(|reason| self.error(place, reason))
    }

    /// Reads the head of the next record and notes what it defines; false at the end of the region.
    fn begin_record(&mut self, module: &mut ModuleReader) -> Result<bool, Reason> {
        let mut head = [0; RECORD];
        match module.region.fill(&mut head)? {
            0 => return Ok(false),
            RECORD => {}
            _ => return Err(Reason::Malformed("the module ends within a record".into())),
        }
        let file = FileId(self.order.u64(&head, 0));
        let rank = rank(self.order.i64(&head, 8))?;
        module.record = RecordHead {
            file,
            rank,
            writes: count("writes", self.order.i64(&head, HOST_END))?,
            reads: count("reads", self.order.i64(&head, HOST_END + 8))?,
        };
        self.define(file, rank, &head[HOST_AT..HOST_END])?;
        Ok(true)
    }

    fn define(&mut self, file: FileId, rank: u32, host: &[u8]) -> Result<(), Reason> {
        let names = &self.names;
        let unnamed = || file.to_string().into_bytes().into();
        let name = || names.get(&file.0).cloned().unwrap_or_else(unnamed);
        self.definitions.file(file, name)?;
        let host = host.split(|&b| b == 0).next().unwrap_or_default();
        self.definitions.process(rank, host)
    }

    fn segment(&mut self, module: &mut ModuleReader) -> Result<Event, Reason> {
        let order = self.order;
        let format = module.format;
        let at = module.next_segment()?;
        let bytes = &module.piece[at..at + format.size];
        let offset = if format.offsets {
            size("offset", order.i64(bytes, 0))?
        } else {
            0
        };
        let len = size("length", order.i64(bytes, 8))?;
        let time = moment(order.f64(bytes, 16))?;
        let duration = moment(order.f64(bytes, 24))?.since(time);
        let thread = match format.size {
            40 => self
                .definitions
                .thread(module.record.rank, order.u64(bytes, 32))?,
            _ => 0,
        };
        Ok(module.event(time, duration, thread, offset, len))
    }

    fn error(&self, place: Place, reason: Reason) -> TraceError {
        TraceError::new(&self.path, place, reason)
    }
}

impl ModuleReader {
    /// Makes sure that the next segment is in `piece`; where it begins there.
    fn next_segment(&mut self) -> Result<usize, Reason> {
        if self.used == self.piece.len() {
            let left = self.record.writes + self.record.reads;
            let fit = (PIECE / self.format.size) as u64;
            let want = left.min(fit) as usize * self.format.size;
            self.piece.resize(want, 0);
            self.used = 0;
            let n = self.region.fill(&mut self.piece)?;
            // A log that is cut short still gives the whole segments that it has.
            self.piece.truncate(n - n % self.format.size);
            if self.piece.is_empty() {
                return Err(Reason::Malformed(format!(
                    "the module ends within a record: {left} of its segments are missing"
                )));
            }
        }
        let at = self.used;
        self.used += self.format.size;
        Ok(at)
    }

    fn event(&mut self, time: Nanos, duration: Nanos, thread: u32, offset: u64, len: u64) -> Event {
        let action = if self.record.writes > 0 {
            self.record.writes -= 1;
            Action::Write
        } else {
            self.record.reads -= 1;
            Action::Read
        };
        Event {
            time,
            duration,
            process: self.record.rank,
            thread,
            file: self.record.file,
            action,
            layer: self.layer,
            context: ContextId::UNKNOWN,
            offset,
            len,
            result: len as i64,
        }
    }
}

impl Iterator for LogReader {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let result = self.advance();
        if result.is_err() {
            // Nothing after an error can be trusted.
            self.current = None;
            self.waiting.clear();
            self.definitions.due.clear();
        }
        result.transpose()
    }
}

impl Source for LogReader {
    fn progress(&self) -> (u64, Option<u64>) {
        let current = self.current.as_ref().map_or(0, |m| m.region.progress());
        (self.done + current, Some(self.total))
    }

    fn format(&self) -> Option<Format> {
        Some(Format::Darshan)
    }

    fn warnings(&self) -> Vec<String> {
        self.info.warnings.clone()
    }
}

/// The regions that have DXT records.
fn modules(header: &Header) -> Result<VecDeque<(Layer, Module)>, Reason> {
    let present: VecDeque<_> = [(Layer::Posix, header.posix), (Layer::MpiIo, header.mpiio)]
        .into_iter()
        .filter(|(_, module)| module.extent.len > 0)
        .collect();
    if present.is_empty() {
        return Err(Reason::Unsupported(format!(
            "this Darshan log has counters at most, but no DXT trace. {HOW_TO_RECORD}"
        )));
    }
    Ok(present)
}

fn info(header: &Header, modules: &VecDeque<(Layer, Module)>) -> Info {
    let mut warnings = Vec::new();
    for (layer, module) in modules {
        if module.partial {
            warnings.push(format!(
                "Darshan ran out of memory: the last {layer} operations of some files are missing \
                 (DARSHAN_MODMEM, or MODMEM in its configuration, gives it more)"
            ));
        }
        if *layer == Layer::MpiIo && module.version == 1 {
            warnings.push(NO_OFFSETS.to_owned());
        }
    }
    Info {
        version: header.version.clone(),
        command: None,
        processes: 0,
        start: None,
        partial: modules.iter().any(|(_, module)| module.partial),
        warnings,
    }
}

/// When the job began: since 3.41 the job record has nanoseconds beside the seconds.
fn start(order: Order, job: &[u8], numbers: usize) -> Option<Nanos> {
    let seconds = u64::try_from(order.i64(job, 8)).ok().filter(|&s| s > 0)?;
    let nanos = if numbers > 5 { order.u64(job, 16) } else { 0 };
    let start = seconds.checked_mul(1_000_000_000)?.checked_add(nanos)?;
    (nanos < 1_000_000_000).then_some(Nanos(start))
}

fn count(what: &str, value: i64) -> Result<u64, Reason> {
    // Twice this still fits; no log has that many.
    u64::try_from(value)
        .ok()
        .filter(|&n| n <= 1 << 40)
        .ok_or_else(|| Reason::Malformed(format!("a record claims {value} {what}")))
}

fn names_complaint(too_much: bool, last: bool) -> String {
    if too_much {
        format!(
            "more than {NAMES_MAX} names or {} MiB of them",
            NAME_BYTES_MAX >> 20
        )
    } else if last {
        "the name region ends within a name".into()
    } else {
        format!("a name is longer than {NAME_MAX} bytes")
    }
}
