//! A configuration from a recording: what MERCURY's users found out by a preliminary run and wrote by hand.
//!
//! One pass over the trace, with memory that is bounded for each file however long the trace is. A file is seen
//! as a row of at most 256 *cells*, whose size doubles when the file turns out to be longer. Each read is compared
//! with the one before it of the same thread and counted in the cell where it begins: it *continues* that one, or is
//! *near* it (within 8 MiB, before or behind), or *far*. At the end:
//!
//! - Cells where at least 9 of 10 reads continue become a `Sequential` region: the kernel's read-ahead does it well.
//! - Cells where at least 3 of 4 reads continue or are near move through the file as a window does. Neighbours are
//!   joined; where at least an eighth of their bytes is read, they become a `WillNeed` region: reading the gaps too
//!   costs less than many small requests. (How much less depends on the device: the manager, which can measure it,
//!   decides anew when it runs.)
//! - The rest becomes a `Random` region.
//! - `BlockSize` is eight strides, from 128 KiB to 4 MiB, so that a block serves several reads; `ReadAheadSize` is 4;
//!   `CacheSize` also holds what the furthest jump back goes back to.
//! - A file from which less than 1 MiB was read gets no entry: there is nothing to gain.

use super::{Advice, Config, Entry, Kind, Mode, round_up};
use presagio_core::{Action, Event, FileId, Layer, Range};
use presagio_trace::{Record, Source, TraceError};
use std::collections::BTreeMap;
use std::sync::Arc;

const CELLS_MAX: usize = 256;
const CELL_MIN: u64 = 1 << 20;
/// More threads that read one file at the same time are told apart no longer.
const STREAMS_MAX: usize = 64;
/// A jump within this is part of a moving window (§IV-B: backward seeks).
const NEAR: u64 = 8 << 20;
const WORTHWHILE: u64 = 1 << 20;
const PAGE: u64 = 4096;

/// What a recording gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// The configuration; its files are in the order of their names.
    pub config: Config,
    /// How many files were read from.
    pub files_read: usize,
    /// How many of them are not in the configuration because too little was read.
    pub files_small: usize,
    /// How many of them are not in it because their name is no full path, or not UTF-8.
    pub files_unnamed: usize,
}

/// Writes a configuration from what a recording shows: see the module's header for the rules.
pub fn from_recording<S: Source + ?Sized>(source: &mut S) -> Result<Recorded, TraceError> {
    let mut files = Files::default();
    for record in source {
        match record? {
            Record::File { id, name } => files.name(id, name),
            // What MPI-IO was asked for is seen again below it.
            Record::Event(e)
                if e.action == Action::Read && e.layer != Layer::MpiIo && e.moved() > 0 =>
            {
                files.read(&e)
            }
            _ => {}
        }
    }
    Ok(files.collect())
}

/// The files of a trace. A merged one can give one file two numbers.
#[derive(Default)]
struct Files {
    by_number: BTreeMap<FileId, usize>,
    by_name: BTreeMap<Arc<[u8]>, usize>,
    reads: Vec<Reads>,
}

impl Files {
    fn name(&mut self, number: FileId, name: Arc<[u8]>) {
        let new = self.reads.len();
        let index = *self.by_name.entry(name).or_insert(new);
        if index == new {
            self.reads.push(Reads::default());
        }
        self.by_number.insert(number, index);
    }

    fn read(&mut self, event: &Event) {
        if !self.by_number.contains_key(&event.file) {
            self.name(event.file, Arc::default());
        }
        let index = self.by_number[&event.file];
        self.reads[index].add(event);
    }

    fn collect(self) -> Recorded {
        let mut recorded = Recorded::default();
        for (name, index) in &self.by_name {
            let reads = &self.reads[*index];
            if reads.bytes > 0 {
                recorded.add(name, reads);
            }
        }
        recorded
    }
}

impl Recorded {
    fn add(&mut self, name: &[u8], reads: &Reads) {
        self.files_read += 1;
        let path = std::str::from_utf8(name).ok();
        match path.filter(|p| p.starts_with('/') && !p.ends_with('/')) {
            None => self.files_unnamed += 1,
            Some(_) if reads.bytes < WORTHWHILE => self.files_small += 1,
            Some(path) => self.config.entries.push(Entry {
                kind: Kind::File,
                path: path.into(),
                line: 0,
                advice: reads.advice(),
            }),
        }
    }
}

/// What was read of one file.
#[derive(Debug)]
struct Reads {
    cell_size: u64,
    cells: Vec<Cell>,
    /// The last read of each thread, the latest last.
    streams: Vec<((u32, u32), Range)>,
    bytes: u64,
}

impl Default for Reads {
    fn default() -> Reads {
        Reads {
            cell_size: CELL_MIN,
            cells: Vec::new(),
            streams: Vec::new(),
            bytes: 0,
        }
    }
}

/// What was read of one part of a file.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// Its bytes that were read, some perhaps twice.
    bytes: u64,
    /// From the first byte that was read to the last.
    touched: Option<Range>,
    /// Reads that begin here, of threads that had read before.
    moves: u64,
    continued: u64,
    near: u64,
    /// How far ahead near reads were of the one before, in all.
    strides: u64,
    forward: u64,
    back_max: u64,
}

impl Cell {
    fn add(&mut self, other: &Cell) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.moves += other.moves;
        self.continued += other.continued;
        self.near += other.near;
        self.strides = self.strides.saturating_add(other.strides);
        self.forward += other.forward;
        self.back_max = self.back_max.max(other.back_max);
        self.touched = match (self.touched, other.touched) {
            (Some(a), Some(b)) => Some(hull(a, b)),
            (a, b) => a.or(b),
        };
    }

    /// `None` where no read tells.
    fn pattern(&self) -> Option<Pattern> {
        if self.moves == 0 {
            return None;
        }
        Some(if self.continued * 10 >= self.moves * 9 {
            Pattern::Sequential
        } else if (self.continued + self.near) * 4 >= self.moves * 3 {
            Pattern::Window
        } else {
            Pattern::Far
        })
    }
}

/// How reads move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    Sequential,
    Window,
    Far,
}

fn hull(a: Range, b: Range) -> Range {
    let start = a.start().min(b.start());
    Range::at(start, a.end().max(b.end()) - start)
}

impl Reads {
    fn add(&mut self, event: &Event) {
        let read = Range::at(event.offset, event.moved());
        self.bytes = self.bytes.saturating_add(read.len());
        self.make_room(read.end());
        self.spread(read);
        if let Some(last) = self.follow((event.process, event.thread), read) {
            let cell = &mut self.cells[(read.start() / self.cell_size) as usize];
            count_move(cell, last, read);
        }
    }

    /// Makes cells up to `end`, larger ones if there would be too many.
    fn make_room(&mut self, end: u64) {
        while end.div_ceil(self.cell_size) > CELLS_MAX as u64 {
            self.cell_size *= 2;
            let pairs = self.cells.chunks(2).map(|pair| {
                let mut whole = pair[0];
                pair[1..].iter().for_each(|other| whole.add(other));
                whole
            });
            self.cells = pairs.collect();
        }
        let needed = end.div_ceil(self.cell_size) as usize;
        if self.cells.len() < needed {
            self.cells.resize(needed, Cell::default());
        }
    }

    /// Gives each cell its share of the bytes.
    fn spread(&mut self, read: Range) {
        let mut start = read.start();
        while start < read.end() {
            let index = start / self.cell_size;
            let end = read.end().min((index + 1).saturating_mul(self.cell_size));
            self.cells[index as usize].add(&Cell {
                bytes: end - start,
                touched: Some(Range::at(start, end - start)),
                ..Cell::default()
            });
            start = end;
        }
    }

    /// The read of this thread before this one.
    fn follow(&mut self, thread: (u32, u32), read: Range) -> Option<Range> {
        let known = self.streams.iter().rposition(|(t, _)| *t == thread);
        let last = known.map(|at| self.streams.remove(at).1);
        if self.streams.len() == STREAMS_MAX {
            self.streams.remove(0);
        }
        self.streams.push((thread, read));
        last
    }

    fn advice(&self) -> Advice {
        let mut advice = Advice::default();
        let mut windows = Cell::default();
        for (pattern, cell) in self.regions() {
            let Some(region) = cell.touched.map(whole_pages) else {
                continue;
            };
            match pattern {
                Pattern::Sequential => advice.modes.push((region, Mode::Sequential)),
                Pattern::Window if cell.bytes >= region.len() / 8 => {
                    windows.add(&cell);
                    advice.will_need.push(region);
                }
                _ => advice.modes.push((region, Mode::Random)),
            }
        }
        if !advice.will_need.is_empty() {
            size(&mut advice, &windows);
        }
        advice
    }

    /// The cells with something in them, neighbours of one pattern joined.
    fn regions(&self) -> Vec<(Pattern, Cell)> {
        let mut regions: Vec<(Pattern, Cell)> = Vec::new();
        let first = self.cells.iter().find_map(Cell::pattern);
        // Where no read begins or tells, the one before goes on.
        let mut pattern = first.unwrap_or(Pattern::Sequential);
        for cell in self.cells.iter().filter(|c| c.bytes > 0) {
            pattern = cell.pattern().unwrap_or(pattern);
            match regions.last_mut() {
                Some((last, whole)) if *last == pattern && self.close(whole, cell) => {
                    whole.add(cell)
                }
                _ => regions.push((pattern, *cell)),
            }
        }
        regions
    }

    fn close(&self, a: &Cell, b: &Cell) -> bool {
        let reach = NEAR.max(2 * self.cell_size);
        matches!((a.touched, b.touched), (Some(a), Some(b)) if b.start().saturating_sub(a.end()) <= reach)
    }
}

fn count_move(cell: &mut Cell, last: Range, read: Range) {
    cell.moves += 1;
    // The kernel sees pages: a read that goes on in the page where the last one ended continues it.
    if read.start() >= last.end() && read.start() < last.end().saturating_add(PAGE) {
        cell.continued += 1;
    } else if read.start().abs_diff(last.end()) > NEAR {
        return;
    } else {
        cell.near += 1;
    }
    if read.start() > last.start() {
        cell.forward += 1;
        cell.strides = cell.strides.saturating_add(read.start() - last.start());
    } else {
        cell.back_max = cell.back_max.max(last.end() - read.start());
    }
}

fn whole_pages(region: Range) -> Range {
    let start = region.start() / PAGE * PAGE;
    Range::at(start, round_up(region.end(), PAGE) - start)
}

/// See the module's header.
fn size(advice: &mut Advice, windows: &Cell) {
    if let Some(stride) = windows.strides.checked_div(windows.forward) {
        let several = stride.clamp(1, 1 << 20) * 8;
        advice.block_size = several.next_power_of_two().clamp(128 << 10, 4 << 20);
    }
    advice.read_ahead_size = 4;
    let back = windows.back_max.div_ceil(advice.block_size) as u32;
    advice.cache_size = (advice.read_ahead_size + 2 + back).clamp(8, 64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use presagio_core::{ContextId, Nanos};
    use proptest::prelude::*;

    struct Trace(std::vec::IntoIter<Record>);

    impl Iterator for Trace {
        type Item = Result<Record, TraceError>;
        fn next(&mut self) -> Option<Self::Item> {
            self.0.next().map(Ok)
        }
    }

    impl Source for Trace {
        fn progress(&self) -> (u64, Option<u64>) {
            (0, None)
        }
    }

    fn file(id: u64, name: &[u8]) -> Record {
        let name = name.into();
        Record::File {
            id: FileId(id),
            name,
        }
    }

    fn read(thread: u32, offset: u64, len: u64) -> Record {
        Record::Event(Event {
            time: Nanos::ZERO,
            duration: Nanos::ZERO,
            process: 1,
            thread,
            file: FileId(1),
            action: Action::Read,
            layer: Layer::Posix,
            context: ContextId::UNKNOWN,
            offset,
            len,
            result: len as i64,
        })
    }

    fn record(reads: impl IntoIterator<Item = Record>) -> Recorded {
        let records: Vec<Record> = [file(1, b"/data/f")].into_iter().chain(reads).collect();
        from_recording(&mut Trace(records.into_iter())).unwrap()
    }

    fn advice(reads: impl IntoIterator<Item = Record>) -> Advice {
        record(reads).config.entries.remove(0).advice
    }

    /// A generator for places that look random.
    fn scattered(i: u64) -> u64 {
        (i * 2_654_435_761) % (1 << 32) / PAGE * PAGE
    }

    #[test]
    fn the_root_like_reader_gets_the_papers_configuration() {
        // §IV-B: 250 KiB reads over half of the file, every few dozen one of them some MiB back
        let reads = (0..2000_u64).map(|i| {
            let back = if i % 32 == 31 { 5 << 20 } else { 0 };
            read(1, (i * (500 << 10) + (8 << 20)) - back, 250 << 10)
        });
        let advice = advice(reads);
        assert_eq!(advice.block_size, 4 << 20);
        assert_eq!((advice.cache_size, advice.read_ahead_size), (8, 4));
        let all = Range::at(8 << 20, 1999 * (500 << 10) + (250 << 10));
        assert_eq!(advice.will_need, [whole_pages(all)]);
        assert!(advice.modes.is_empty());
    }

    #[test]
    fn small_strides_get_small_blocks() {
        let advice = advice((0..4000_u64).map(|i| read(1, i * (32 << 10), 16 << 10)));
        assert_eq!(advice.block_size, 256 << 10);
        assert_eq!(advice.will_need.len(), 1);
    }

    #[test]
    fn a_sequential_reader_gets_sequential() {
        let advice = advice((0..1000_u64).map(|i| read(1, i * 65_536, 65_536)));
        assert_eq!(advice.modes, [(Range::at(0, 65_536_000), Mode::Sequential)]);
        assert!(advice.will_need.is_empty());
    }

    #[test]
    fn interleaved_threads_are_told_apart() {
        let reads = (0..1000_u64).flat_map(|i| {
            (0..4).map(move |t| read(t, u64::from(t) * (1 << 30) + i * 65_536, 65_536))
        });
        let advice = advice(reads);
        assert_eq!(advice.modes.len(), 4);
        assert!(
            advice
                .modes
                .iter()
                .all(|(_, mode)| *mode == Mode::Sequential)
        );
    }

    #[test]
    fn a_random_reader_gets_random() {
        let advice = advice((0..2000_u64).map(|i| read(1, scattered(i), PAGE)));
        assert_eq!(advice.modes.len(), 1);
        assert_eq!(advice.modes[0].1, Mode::Random);
    }

    #[test]
    fn a_few_bytes_of_each_region_are_no_window() {
        let advice = advice((0..2000_u64).map(|i| read(1, i * (4 << 20), PAGE)));
        assert_eq!(advice.modes[0].1, Mode::Random);
        assert!(advice.will_need.is_empty());
    }

    #[test]
    fn a_file_read_in_two_ways_gets_two_regions() {
        let half = 1 << 30;
        let first = (0..(half >> 18)).map(|i| read(1, i << 18, 1 << 18));
        let second = (0..2000_u64).map(|i| read(1, half + scattered(i) % half, PAGE));
        let advice = advice(first.chain(second));
        let modes: Vec<Mode> = advice.modes.iter().map(|m| m.1).collect();
        assert_eq!(modes, [Mode::Sequential, Mode::Random]);
        assert!(
            advice.modes[0].0.end().abs_diff(half) <= 32 << 20,
            "{:?}",
            advice.modes
        );
    }

    #[test]
    fn what_cannot_be_configured_is_counted() {
        let mut records = vec![
            file(1, b"/data/f"),
            file(2, b"relative"),
            file(3, b"/not\xffutf8"),
        ];
        for id in 1..=4 {
            let Record::Event(mut e) = read(1, 0, 100) else {
                panic!()
            };
            e.file = FileId(id);
            records.push(Record::Event(e));
        }
        let recorded = from_recording(&mut Trace(records.into_iter())).unwrap();
        assert_eq!(
            (
                recorded.files_read,
                recorded.files_small,
                recorded.files_unnamed
            ),
            (4, 1, 3)
        );
        assert!(recorded.config.entries().is_empty());
    }

    #[test]
    fn one_name_with_two_numbers_is_one_file() {
        let mut second = read(1, 1 << 20, 1 << 20);
        if let Record::Event(e) = &mut second {
            e.file = FileId(2);
        }
        let recorded = record([file(2, b"/data/f"), read(1, 0, 1 << 20), second]);
        assert_eq!(recorded.config.entries().len(), 1);
    }

    proptest! {
        #[test]
        fn any_recording_gives_a_configuration_that_reads_back_and_has_every_read(
            reads in prop::collection::vec((0..3_u32, any::<u64>(), 0..63_u32, prop_oneof![9 => 1..(64_u64 << 20), 1 => 1..=i64::MAX as u64]), 1..200)
        ) {
            let reads: Vec<_> = reads.into_iter().map(|(t, o, shift, len)| (t, o >> shift >> 1, len)).collect();
            let recorded = record(reads.iter().map(|&(t, o, len)| read(t, o, len)));
            let again: Config = recorded.config.to_string().parse().unwrap();
            for entry in again.entries() {
                let advice = &entry.advice;
                prop_assert!(advice.will_need.len() + advice.modes.len() <= CELLS_MAX);
                for &(_, offset, _) in &reads {
                    let needed = super::super::region_from(&advice.will_need, offset);
                    let needed = needed.is_some_and(|r| r.start() <= offset);
                    prop_assert!(needed || advice.mode_at(offset).is_some());
                }
            }
        }
    }
}
