//! Work that waits for the threads of `workers`, in a lane for each device: what one of them does not answer holds up
//! nothing on others.
//!
//! A thread that a device does not answer is gone for as long as that takes. So there is a limit to how many one device
//! can have, threads are added while work of another one waits, and what is queued for a device does not take the place of
//! what is queued for others.

use std::collections::{BTreeMap, VecDeque};

/// Pieces of work on one device that are done at the same time.
const BUSY_MAX: usize = 4;
/// Threads: three devices that hang leave enough for the others.
const THREADS_MAX: usize = 16;
/// Pieces of work on one device that wait.
const QUEUE_MAX: usize = 512;

/// What is to be done on one device.
#[derive(Debug)]
struct Lane<W> {
    waiting: VecDeque<W>,
    busy: usize,
}

impl<W> Lane<W> {
    const fn new() -> Lane<W> {
        Lane {
            waiting: VecDeque::new(),
            busy: 0,
        }
    }

    /// How many pieces could be begun now.
    fn ready(&self) -> usize {
        self.waiting.len().min(BUSY_MAX.saturating_sub(self.busy))
    }
}

/// See the module's header.
#[derive(Debug)]
pub(super) struct Pool<W> {
    lanes: BTreeMap<u64, Lane<W>>,
    /// Threads that there are, and those of them that wait for work.
    pub threads: usize,
    pub idle: usize,
    /// Threads end when nothing is left to do.
    pub is_over: bool,
}

impl<W> Default for Pool<W> {
    fn default() -> Pool<W> {
        Pool {
            lanes: BTreeMap::new(),
            threads: 0,
            idle: 0,
            is_over: false,
        }
    }
}

impl<W> Pool<W> {
    /// Whether there is room for a piece of work that may be left undone.
    pub fn has_room(&self, device: u64) -> bool {
        let waiting = self.lanes.get(&device).map_or(0, |l| l.waiting.len());
        !self.is_over && waiting < QUEUE_MAX
    }

    pub fn push(&mut self, device: u64, work: W) {
        let lane = self.lanes.entry(device).or_insert_with(Lane::new);
        lane.waiting.push_back(work);
    }

    /// The same for what is done before all that waits on this device.
    pub fn push_first(&mut self, device: u64, work: W) {
        let lane = self.lanes.entry(device).or_insert_with(Lane::new);
        lane.waiting.push_front(work);
    }

    /// What to do next: of the device for which least is being done. It is then to be told with [`Pool::done`].
    pub fn take(&mut self) -> Option<(u64, W)> {
        let ready = self.lanes.iter_mut().filter(|(_, lane)| lane.ready() > 0);
        let (device, lane) = ready.min_by_key(|(_, lane)| lane.busy)?;
        let work = lane.waiting.pop_front()?;
        lane.busy += 1;
        Some((*device, work))
    }

    /// A piece of work on a device is done.
    pub fn done(&mut self, device: u64) {
        if let Some(lane) = self.lanes.get_mut(&device) {
            lane.busy -= 1;
            if lane.busy == 0 && lane.waiting.is_empty() {
                self.lanes.remove(&device);
            }
        }
    }

    /// Whether something could be done now that no thread is there for.
    pub fn wants_thread(&self) -> bool {
        let ready: usize = self.lanes.values().map(Lane::ready).sum();
        ready > self.idle && self.threads < THREADS_MAX
    }

    /// Leaves undone all but this.
    pub fn keep_only(&mut self, which: impl Fn(&W) -> bool) {
        let lanes = self.lanes.values_mut();
        lanes.for_each(|lane| lane.waiting.retain(&which));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_hangs_leaves_threads_and_room_to_others() {
        let mut pool = Pool::default();
        for n in 0..QUEUE_MAX {
            assert!(pool.has_room(1));
            pool.push(1, n);
        }
        let mut begun = 0;
        while pool.wants_thread() {
            pool.threads += 1;
            begun += usize::from(pool.take().is_some());
        }
        assert_eq!(begun, BUSY_MAX, "they hang");
        assert!(pool.take().is_none() && pool.has_room(2));
        pool.push(2, 7);
        assert!(pool.wants_thread());
        assert_eq!(pool.take(), Some((2, 7)));
    }

    #[test]
    fn work_on_a_device_is_begun_in_its_order_and_none_is_lost() {
        let mut pool = Pool::default();
        (0..20).for_each(|n| pool.push(n % 2, n));
        let mut begun = [Vec::new(), Vec::new()];
        let mut under_way = Vec::new();
        while begun.iter().map(Vec::len).sum::<usize>() < 20 {
            while let Some((device, n)) = pool.take() {
                begun[device as usize].push(n);
                under_way.push(device);
            }
            pool.done(under_way.swap_remove(0));
        }
        assert!(begun.iter().all(|b| b.is_sorted() && b.len() == 10));
        under_way.into_iter().for_each(|device| pool.done(device));
        assert!(pool.lanes.is_empty(), "devices come and go");
    }

    #[test]
    fn there_are_no_more_threads_than_can_work() {
        let mut pool = Pool::default();
        assert!(!pool.wants_thread());
        pool.push(1, ());
        assert!(pool.wants_thread());
        pool.idle = 1;
        assert!(!pool.wants_thread(), "one waits for it");
        pool.idle = 0;
        (0..100).for_each(|device| pool.push(device, ()));
        pool.threads = THREADS_MAX;
        assert!(!pool.wants_thread());
    }
}
