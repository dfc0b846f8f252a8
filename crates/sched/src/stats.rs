//! What a scheduler has seen and done, readable from any thread at any time.
//!
//! There is one cell per combination of file, operation, queue id and policy that occurred; a view by any of
//! these is the merge of its cells. Only the scheduler writes, with plain loads and stores of atomics, so
//! that counting costs the same whether anybody reads or not.

use crate::settings::PolicyKind;
use presagio_core::{FileId, Histogram, IdHashMap, Nanos, Op, QueueId};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
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
    cells: RwLock<Vec<(CellKey, Arc<Cell>)>>,
}

impl Statistics {
    /// The figures of every cell, sorted by key.
    pub fn cells(&self) -> Vec<(CellKey, Figures)> {
        let cells = self.cells.read().unwrap_or_else(|e| e.into_inner());
        let mut all: Vec<_> = cells.iter().map(|(k, c)| (*k, c.figures())).collect();
        all.sort_by_key(|cell| cell.0);
        all
    }

    /// The merged figures of the cells that `wanted` picks, for example all of one file.
    pub fn view(&self, wanted: impl Fn(&CellKey) -> bool) -> Figures {
        let cells = self.cells.read().unwrap_or_else(|e| e.into_inner());
        let mut merged = Figures::default();
        for (_, cell) in cells.iter().filter(|(key, _)| wanted(key)) {
            merged.merge(&cell.figures());
        }
        merged
    }

    /// The figures of everything together.
    pub fn total(&self) -> Figures {
        self.view(|_| true)
    }
}

/// The scheduler's side: finds and writes cells.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    shared: Arc<Statistics>,
    cells: Vec<(CellKey, Arc<Cell>)>,
    numbers: IdHashMap<CellKey, u32>,
}

impl Counters {
    pub(crate) fn shared(&self) -> Arc<Statistics> {
        self.shared.clone()
    }

    /// The number of the cell for `key`; `last` is a guess (any number, or NONE).
    pub(crate) fn number(&mut self, key: CellKey, last: u32) -> u32 {
        match self.cells.get(last as usize) {
            Some((k, _)) if *k == key => last,
            _ => self.look_up(key),
        }
    }

    fn look_up(&mut self, mut key: CellKey) -> u32 {
        if let Some(&number) = self.numbers.get(&key) {
            return number;
        }
        if self.cells.len() >= CELLS_MAX && key.file.is_some() {
            key.file = None;
            return self.look_up(key);
        }
        let number = self.cells.len() as u32;
        let cell = Arc::new(Cell::default());
        self.cells.push((key, cell.clone()));
        self.numbers.insert(key, number);
        let mut shared = self.shared.cells.write().unwrap_or_else(|e| e.into_inner());
        shared.push((key, cell));
        number
    }

    pub(crate) fn arrived(&self, cell: u32, size: u64, distance: u64) {
        let cell = &self.cells[cell as usize].1;
        cell.sizes.record(size);
        cell.distances.record(distance);
    }

    pub(crate) fn dispatched_batch(&self, cell: u32, requests: u64, bytes: u64) {
        let service = self.cells[cell as usize].1.service();
        service.batch_requests.record(requests);
        service.batch_bytes.record(bytes);
    }

    pub(crate) fn dispatched(&self, cell: u32, waited: Nanos) {
        let service = self.cells[cell as usize].1.service();
        service.time_in_queue.record(waited.0);
    }

    pub(crate) fn finished(&self, cell: u32, took: Nanos) {
        let service = self.cells[cell as usize].1.service();
        service.time_in_service.record(took.0);
    }

    pub(crate) fn cancelled(&self, cell: u32) {
        add(&self.cells[cell as usize].1.cancelled, 1);
    }
}

#[derive(Debug, Default)]
struct Cell {
    sizes: Counted,
    distances: Counted,
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

impl Cell {
    fn service(&self) -> &ServiceCell {
        self.service.get_or_init(Box::default)
    }

    fn figures(&self) -> Figures {
        let empty = ServiceCell::default();
        let service = self.service.get().map_or(&empty, |s| s);
        Figures {
            sizes: self.sizes.read(),
            distances: self.distances.read(),
            batch_requests: service.batch_requests.read(),
            batch_bytes: service.batch_bytes.read(),
            time_in_queue: service.time_in_queue.read(),
            time_in_service: service.time_in_service.read(),
            cancelled: self.cancelled.load(Relaxed),
        }
    }
}

/// A histogram with one writer and any number of readers.
#[derive(Debug)]
struct Counted {
    sum: AtomicU64,
    min: AtomicU64,
    max: AtomicU64,
    buckets: [AtomicU64; Histogram::BUCKETS],
}

impl Default for Counted {
    fn default() -> Self {
        Counted {
            sum: AtomicU64::new(0),
            min: AtomicU64::new(u64::MAX),
            max: AtomicU64::new(0),
            buckets: [const { AtomicU64::new(0) }; Histogram::BUCKETS],
        }
    }
}

impl Counted {
    #[inline]
    fn record(&self, value: u64) {
        add(&self.sum, value);
        if value < self.min.load(Relaxed) {
            self.min.store(value, Relaxed);
        }
        if value > self.max.load(Relaxed) {
            self.max.store(value, Relaxed);
        }
        add(&self.buckets[Histogram::bucket_of(value)], 1);
    }

    fn read(&self) -> Histogram {
        let buckets = std::array::from_fn(|i| self.buckets[i].load(Relaxed));
        Histogram::from_parts(
            buckets,
            self.sum.load(Relaxed),
            self.min.load(Relaxed),
            self.max.load(Relaxed),
        )
    }
}

/// Adds without a locked instruction: there is only one writer.
#[inline]
fn add(counter: &AtomicU64, value: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(value), Relaxed);
}
