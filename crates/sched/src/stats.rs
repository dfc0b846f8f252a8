//! What a scheduler has seen and done, readable from any thread at any time.
//!
//! There is one cell per combination of file, operation, queue id and policy that occurred; a view by any of
//! these is the merge of its cells. Only the scheduler writes, with plain loads and stores of atomics, and
//! readers take no lock that it needs to count.

use crate::settings::PolicyKind;
use presagio_core::{FileId, Histogram, IdHashMap, Nanos, Op, QueueId};
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};
use std::sync::{Arc, OnceLock, RwLock};

/// What a cell counts. `file` is `None` in the cells that gather all files beyond the number kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CellKey {
    /// The file.
    pub file: Option<FileId>,
    /// The operation.
    pub op: Op,
    /// The queue id.
    pub queue: QueueId,
    /// The policy: for what counts arrivals the one in force, for the rest the one that dispatched.
    pub policy: PolicyKind,
}

/// The figures of one cell, or of several merged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Sizes of the requests that arrived, in bytes: their count is the number of requests.
    pub sizes: Histogram,
    /// From the end of a file's last request of the same operation to the start of the next, in bytes,
    /// whichever way.
    pub distances: Histogram,
    /// Requests per dispatched batch.
    pub batch_requests: Histogram,
    /// Bytes per dispatched batch.
    pub batch_bytes: Histogram,
    /// Nanoseconds from arrival to dispatch, per request.
    pub time_in_queue: Histogram,
    /// Nanoseconds from dispatch to completion, per request.
    pub time_in_service: Histogram,
    /// Requests that were cancelled.
    pub cancelled: u64,
}

impl Figures {
    /// Adds what `other` counted.
    pub fn merge(&mut self, other: &Figures) {
        self.sizes.merge(&other.sizes);
        self.distances.merge(&other.distances);
        self.batch_requests.merge(&other.batch_requests);
        self.batch_bytes.merge(&other.batch_bytes);
        self.time_in_queue.merge(&other.time_in_queue);
        self.time_in_service.merge(&other.time_in_service);
        self.cancelled += other.cancelled;
    }
}

/// Cells for files of their own; beyond this number, further files share one per operation, queue and policy.
const CELLS_MAX: usize = 1 << 14;

/// The statistics of a scheduler. Shared: clone the `Arc`.
#[derive(Debug, Default)]
pub struct Statistics {
    cells: RwLock<Vec<(CellKey, Cell)>>,
}

impl Statistics {
    /// The figures of every cell, sorted by key.
    pub fn cells(&self) -> Vec<(CellKey, Figures)> {
        let mut all: Vec<_> = self.list().iter().map(|(k, c)| (*k, c.figures())).collect();
        all.sort_by_key(|cell| cell.0);
        all
    }

    /// The merged figures of the cells that `wanted` picks, for example all of one file.
    pub fn view(&self, wanted: impl Fn(&CellKey) -> bool) -> Figures {
        let mut merged = Figures::default();
        for (_, cell) in self.list().iter().filter(|(key, _)| wanted(key)) {
            merged.merge(&cell.figures());
        }
        merged
    }

    /// The times of all requests, in the queue and in service: of all figures what somebody may want every second.
    pub fn times(&self) -> (Histogram, Histogram) {
        let (mut in_queue, mut in_service) = (Histogram::default(), Histogram::default());
        for (_, cell) in self.list() {
            let cold = &cell.block.cold[cell.at as usize];
            if let Some(service) = cold.service.get() {
                in_queue.merge(&service.time_in_queue.read());
                in_service.merge(&service.time_in_service.read());
            }
        }
        (in_queue, in_service)
    }

    /// The cells there are now. The lock is held only to copy the list: a scheduler that adds a cell does
    /// not wait for figures to be computed.
    fn list(&self) -> Vec<(CellKey, Cell)> {
        self.cells.read().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// The figures of everything together.
    pub fn total(&self) -> Figures {
        self.view(|_| true)
    }
}

/// The scheduler's side: finds the cells that it then writes.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    shared: Arc<Statistics>,
    cells: IdHashMap<CellKey, Cell>,
    /// Cells of the last block that are taken.
    taken: usize,
    last: Option<Arc<Block>>,
}

impl Counters {
    pub(crate) fn shared(&self) -> Arc<Statistics> {
        self.shared.clone()
    }

    /// The cell for `key`.
    pub(crate) fn cell(&mut self, mut key: CellKey) -> Cell {
        if let Some(cell) = self.cells.get(&key) {
            return cell.clone();
        }
        if self.cells.len() >= CELLS_MAX && key.file.is_some() {
            key.file = None;
            return self.cell(key);
        }
        let cell = self.new_cell();
        self.cells.insert(key, cell.clone());
        let mut shared = self.shared.cells.write().unwrap_or_else(|e| e.into_inner());
        shared.push((key, cell.clone()));
        cell
    }

    fn new_cell(&mut self) -> Cell {
        let room = self.last.take().filter(|_| self.taken < BLOCK);
        if room.is_none() {
            self.taken = 0;
        }
        let block = room.unwrap_or_default();
        self.last = Some(block.clone());
        self.taken += 1;
        let at = self.taken as u8 - 1;
        Cell { block, at }
    }
}

/// Cells per block.
const BLOCK: usize = 32;

/// One cell, in a block that it shares with others.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub block: Arc<Block>,
    pub at: u8,
}

/// Cells side by side: what most arrivals touch is one cache line per cell, next to its neighbours'.
#[derive(Debug)]
pub(crate) struct Block {
    hot: [HotCell; BLOCK],
    cold: Box<[ColdCell]>,
}

impl Default for Block {
    /// The cold cells are made on the heap, one by one: all are too large for a small stack.
    fn default() -> Self {
        Block {
            hot: std::array::from_fn(|_| HotCell::default()),
            cold: (0..BLOCK).map(|_| ColdCell::default()).collect(),
        }
    }
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct HotCell {
    sizes: Recent,
    distances: Recent,
}

#[derive(Debug, Default)]
struct ColdCell {
    size_buckets: Buckets,
    distance_buckets: Buckets,
    cancelled: AtomicU64,
    /// Apart, because many cells of a long queue have had nothing dispatched yet.
    service: OnceLock<Box<ServiceCell>>,
}

#[derive(Debug, Default)]
struct ServiceCell {
    batch_requests: Counted,
    batch_bytes: Counted,
    time_in_queue: Counted,
    time_in_service: Counted,
}

impl Block {
    #[inline]
    pub(crate) fn arrived(&self, at: u8, size: u64, distance: u64) {
        let at = at as usize % BLOCK;
        let (hot, cold) = (&self.hot[at], || &self.cold[at]);
        hot.sizes.record(size, || &cold().size_buckets);
        hot.distances.record(distance, || &cold().distance_buckets);
    }

    pub(crate) fn dispatched_batch(&self, at: u8, requests: u64, bytes: u64) {
        let service = self.service(at);
        service.batch_requests.record(requests);
        service.batch_bytes.record(bytes);
    }

    pub(crate) fn dispatched(&self, at: u8, waited: Nanos) {
        self.service(at).time_in_queue.record(waited.0);
    }

    pub(crate) fn finished(&self, at: u8, took: Nanos) {
        self.service(at).time_in_service.record(took.0);
    }

    pub(crate) fn cancelled(&self, at: u8) {
        add(&self.cold[at as usize % BLOCK].cancelled, 1);
    }

    fn service(&self, at: u8) -> &ServiceCell {
        let cell = &self.cold[at as usize % BLOCK];
        cell.service.get_or_init(Box::default)
    }
}

impl Cell {
    fn figures(&self) -> Figures {
        let at = self.at as usize;
        let (hot, cold) = (&self.block.hot[at], &self.block.cold[at]);
        let empty = ServiceCell::default();
        let service = cold.service.get().map_or(&empty, |s| s);
        Figures {
            sizes: hot.sizes.read(&cold.size_buckets),
            distances: hot.distances.read(&cold.distance_buckets),
            batch_requests: service.batch_requests.read(),
            batch_bytes: service.batch_bytes.read(),
            time_in_queue: service.time_in_queue.read(),
            time_in_service: service.time_in_service.read(),
            cancelled: cold.cancelled.load(Relaxed),
        }
    }
}

/// A histogram with one writer and any number of readers.
#[derive(Debug, Default)]
struct Counted {
    extent: Extent,
    buckets: Buckets,
}

impl Counted {
    fn record(&self, value: u64) {
        self.extent.record(value);
        self.buckets.record(value);
    }

    fn read(&self) -> Histogram {
        self.buckets.read(&self.extent)
    }
}

/// The head of a histogram, and the count of the bucket that was used last: as long as values fall into the
/// same bucket, as those of one file tend to, the buckets themselves are not touched.
#[derive(Debug, Default)]
struct Recent {
    extent: Extent,
    /// The bucket's number in the top byte, how many values it got since below.
    run: AtomicU64,
}

const RUN_BITS: u32 = 56;

impl Recent {
    #[inline]
    fn record<'a>(&self, value: u64, buckets: impl Fn() -> &'a Buckets) {
        self.extent.record(value);
        let bucket = Histogram::bucket_of(value) as u64;
        let run = self.run.load(Relaxed);
        if run >> RUN_BITS == bucket {
            self.run.store(run + 1, Relaxed);
        } else {
            buckets().add(run);
            self.run.store(bucket << RUN_BITS | 1, Release);
        }
    }

    fn read(&self, buckets: &Buckets) -> Histogram {
        let read = || {
            let run = self.run.load(Acquire);
            let histogram = buckets.read_with(&self.extent, run);
            fence(Acquire);
            // If the run was moved to the buckets meanwhile, it may have been counted twice.
            let same = self.run.load(Relaxed) >> RUN_BITS == run >> RUN_BITS;
            (histogram, same)
        };
        // A writer that is always faster than us gets away with a slight error.
        let mut tries = (0..8).map(|_| read());
        tries.find(|(_, same)| *same).unwrap_or_else(read).0
    }
}

/// The sum, least and greatest of the values of a histogram.
#[derive(Debug)]
struct Extent {
    sum: AtomicU64,
    min: AtomicU64,
    max: AtomicU64,
}

impl Default for Extent {
    fn default() -> Self {
        Extent {
            sum: AtomicU64::new(0),
            min: AtomicU64::new(u64::MAX),
            max: AtomicU64::new(0),
        }
    }
}

impl Extent {
    #[inline]
    fn record(&self, value: u64) {
        add(&self.sum, value);
        if value < self.min.load(Relaxed) {
            self.min.store(value, Relaxed);
        }
        if value > self.max.load(Relaxed) {
            self.max.store(value, Relaxed);
        }
    }
}

/// The counts of a histogram.
#[derive(Debug)]
struct Buckets([AtomicU64; Histogram::BUCKETS]);

impl Default for Buckets {
    fn default() -> Self {
        Buckets([const { AtomicU64::new(0) }; Histogram::BUCKETS])
    }
}

impl Buckets {
    #[inline]
    fn record(&self, value: u64) {
        add(&self.0[Histogram::bucket_of(value)], 1);
    }

    /// Adds the values of a [`Recent`] run.
    fn add(&self, run: u64) {
        let count = run & ((1 << RUN_BITS) - 1);
        add(&self.0[(run >> RUN_BITS) as usize], count);
    }

    fn read(&self, extent: &Extent) -> Histogram {
        self.read_with(extent, 0)
    }

    fn read_with(&self, extent: &Extent, run: u64) -> Histogram {
        let mut buckets = std::array::from_fn(|i| self.0[i].load(Relaxed));
        buckets[(run >> RUN_BITS) as usize] += run & ((1 << RUN_BITS) - 1);
        Histogram::from_parts(
            buckets,
            extent.sum.load(Relaxed),
            extent.min.load(Relaxed),
            extent.max.load(Relaxed),
        )
    }
}

/// Adds without a locked instruction: there is only one writer.
#[inline]
fn add(counter: &AtomicU64, value: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(value), Relaxed);
}
