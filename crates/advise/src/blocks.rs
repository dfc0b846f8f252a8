//! The block cache of a file (§III-B): what to load and what to release as a program reads.
//!
//! A file is divided into blocks of `BlockSize`. A read *touches* blocks; those and the next `ReadAheadSize` blocks
//! are wanted in memory, as far as they lie in a `WillNeed` region (where one region ends, read-ahead goes on in the
//! next). What is wanted and not there is loaded; when more than `CacheSize` blocks are there, those that were wanted
//! longest ago are released. A block that the read covers entirely is not loaded, since the program does that itself.
//!
//! All processes that read a file share one cache ([`Caches`]), so that nothing is loaded twice. Nothing here does
//! I/O: [`crate::hints`] carries out the [`Plan`]s.

use crate::config::{Advice, Mode, region_from};
use presagio_core::Range;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Which file it is, under whatever name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileKey {
    /// The device, as `st_dev` has it.
    pub device: u64,
    /// The inode.
    pub inode: u64,
}

/// What to do after a read. Ranges are in order and do not touch; the last one may end behind the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// To be brought into memory.
    pub load: Vec<Range>,
    /// To be given back to the kernel.
    pub release: Vec<Range>,
}

/// The block caches of all files that are being read.
#[derive(Debug, Default)]
pub struct Caches {
    files: BTreeMap<FileKey, Shared>,
}

#[derive(Debug)]
struct Shared {
    cache: BlockCache,
    users: u32,
}

impl Caches {
    /// Someone opened a file. If it is open already, its cache goes on as it is.
    pub fn open(&mut self, file: FileKey, advice: &Arc<Advice>) {
        let shared = self.files.entry(file).or_insert_with(|| Shared {
            cache: BlockCache::new(advice.clone()),
            users: 0,
        });
        shared.users += 1;
    }

    /// The cache of an open file.
    pub fn get(&mut self, file: FileKey) -> Option<&mut BlockCache> {
        self.files.get_mut(&file).map(|shared| &mut shared.cache)
    }

    /// Someone closed a file. The last one gets its cache, and can release what is in it.
    pub fn close(&mut self, file: FileKey) -> Option<BlockCache> {
        let shared = self.files.get_mut(&file)?;
        shared.users -= 1;
        if shared.users > 0 {
            return None;
        }
        self.files.remove(&file).map(|shared| shared.cache)
    }
}

/// The blocks of one file that are in memory on our behalf.
#[derive(Debug)]
pub struct BlockCache {
    advice: Arc<Advice>,
    /// As advised, but at least 1, and fewer blocks ahead than in all.
    block_size: u64,
    blocks_max: usize,
    ahead_max: usize,
    /// When each block was last wanted, and the other way round.
    wanted: BTreeMap<u64, u64>,
    order: BTreeMap<u64, u64>,
    clock: u64,
    /// Blocks that came only partly, and may be asked for no more until they were released.
    partial: BTreeSet<u64>,
    /// What was read in a `DontNeed` region and not released yet: the block that is being read.
    passing: Range,
}

impl BlockCache {
    /// An empty one.
    pub fn new(advice: Arc<Advice>) -> BlockCache {
        let blocks_max = advice.cache_size.max(1) as usize;
        BlockCache {
            block_size: advice.block_size.max(1),
            blocks_max,
            ahead_max: (advice.read_ahead_size as usize).min(blocks_max - 1),
            advice,
            wanted: BTreeMap::new(),
            order: BTreeMap::new(),
            clock: 0,
            partial: BTreeSet::new(),
            passing: Range::default(),
        }
    }

    /// What was advised for the file.
    pub fn advice(&self) -> &Arc<Advice> {
        &self.advice
    }

    /// A program has read `read` of a file of `file_size` bytes.
    pub fn read(&mut self, read: Range, file_size: u64) -> Plan {
        let window = self.window(read, file_size.max(read.end()));
        // All that are there first: none of them must go to make room for another of the window.
        let missing: Vec<u64> = window
            .iter()
            .copied()
            .filter(|b| !self.wanted.contains_key(b))
            .collect();
        window.iter().for_each(|block| self.want(*block));
        let load = missing
            .into_iter()
            .map(|b| self.range(b))
            .filter(|range| !read.covers(*range));
        let mut plan = Plan {
            load: joined(load.collect()),
            release: Vec::new(),
        };
        while self.order.len() > self.blocks_max {
            let Some((_, block)) = self.order.pop_first() else {
                break;
            };
            self.wanted.remove(&block);
            self.partial.remove(&block);
            plan.release.push(self.range(block));
        }
        self.pass(read, file_size, &mut plan.release);
        plan.release = joined(plan.release);
        plan
    }

    /// Blocks that could not be loaded are not in memory: the next read that wants them loads them again.
    pub fn forget(&mut self, range: Range) {
        if range.is_empty() {
            return;
        }
        let (first, last) = self.blocks_of(range);
        let gone: Vec<(u64, u64)> = self
            .wanted
            .range(first..=last)
            .map(|(b, w)| (*b, *w))
            .collect();
        for (block, when) in gone {
            self.wanted.remove(&block);
            self.order.remove(&when);
        }
    }

    /// Blocks that came only partly are loaded again like these, but once: where memory is short they would never be complete, and
    /// be loaded for each read.
    pub fn forget_once(&mut self, range: Range) {
        if range.is_empty() {
            return;
        }
        if self.partial.len() > 2 * self.blocks_max {
            self.partial.clear();
        }
        let (first, last) = self.blocks_of(range);
        let blocks = self.wanted.range(first..=last).map(|(block, _)| *block);
        for block in blocks.collect::<Vec<_>>() {
            if self.partial.insert(block) {
                self.forget(self.range(block));
            }
        }
    }

    /// What was read in a `DontNeed` region and is still to be released: nobody reads on.
    pub fn passing(&self) -> Range {
        self.passing
    }

    /// What is in memory on our behalf.
    pub fn held(&self) -> Vec<Range> {
        joined(self.wanted.keys().map(|block| self.range(*block)).collect())
    }

    /// The blocks that should be in memory after a read, never more than the cache holds.
    fn window(&self, read: Range, end: u64) -> Vec<u64> {
        if !self
            .advice
            .will_need
            .iter()
            .any(|region| region.overlaps(read))
        {
            return Vec::new();
        }
        let (first, last) = self.blocks_of(read);
        let touched_max = (self.blocks_max - self.ahead_max) as u64;
        let first = first.max((last + 1).saturating_sub(touched_max));
        let touched = (first..=last).filter(|block| self.needed_from(*block) == Some(*block));
        touched.chain(self.ahead(last, end)).collect()
    }

    /// The next blocks behind `last` that are needed and begin before the end of the file.
    fn ahead(&self, last: u64, end: u64) -> impl Iterator<Item = u64> {
        let next = move |block: &u64| {
            self.needed_from(*block + 1)
                .filter(|b| self.range(*b).start() < end)
        };
        let blocks = std::iter::successors(next(&last), next);
        blocks.take(self.ahead_max)
    }

    /// The first block from this one on that lies in a `WillNeed` region, at least partly.
    fn needed_from(&self, block: u64) -> Option<u64> {
        let start = block.checked_mul(self.block_size)?;
        let region = region_from(&self.advice.will_need, start)?;
        Some(block.max(region.start() / self.block_size))
    }

    fn want(&mut self, block: u64) {
        self.clock += 1;
        if let Some(before) = self.wanted.insert(block, self.clock) {
            self.order.remove(&before);
        }
        self.order.insert(self.clock, block);
    }

    /// Releases what was read in a `DontNeed` region, block by block as the reader leaves them: a reader of small
    /// pieces would otherwise load each block again for its next piece. The last block, of the region or of the file, is left
    /// where that ends.
    fn pass(&mut self, read: Range, file_size: u64, release: &mut Vec<Range>) {
        let Some(region) = region_from(&self.advice.dont_need, read.start()) else {
            return;
        };
        if !region.overlaps(read) {
            return;
        }
        let start = read.start().max(region.start());
        let end = region.end().min(file_size.max(read.end()));
        let read = Range::at(start, read.end().min(end) - start);
        let goes_on = self.passing.end() == read.start() && !self.passing.is_empty();
        if !goes_on {
            release.push(self.passing);
            self.passing = Range::at(read.start(), 0);
        }
        let boundary = match read.end() == end {
            true => end,
            false => read.end() / self.block_size * self.block_size,
        };
        let left = boundary.clamp(self.passing.start(), read.end());
        release.push(Range::at(self.passing.start(), left - self.passing.start()));
        self.passing = Range::at(left, read.end() - left);
    }

    fn range(&self, block: u64) -> Range {
        Range::at(block.saturating_mul(self.block_size), self.block_size)
    }

    /// The first and the last block of a range that is not empty.
    fn blocks_of(&self, range: Range) -> (u64, u64) {
        let size = self.block_size;
        (range.start() / size, (range.end() - 1) / size)
    }
}

/// In order, and neighbours made one.
fn joined(ranges: Vec<Range>) -> Vec<Range> {
    let mut ranges: Vec<Range> = ranges.into_iter().filter(|r| !r.is_empty()).collect();
    ranges.sort_by_key(|r| r.start());
    ranges.dedup_by(|next, whole| {
        let touch = next.start() <= whole.end();
        if touch {
            *whole = Range::at(whole.start(), whole.end().max(next.end()) - whole.start());
        }
        touch
    });
    ranges
}

/// Which mode an open file is in. The kernel's modes hold for the whole open file, so the mode is changed when a
/// read comes to a region of another one (§III-B).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModeFollower {
    current: Mode,
}

impl ModeFollower {
    /// The mode to set before reading on, if it is another one than before. Where none is given, a `WillNeed` region
    /// is `Random`, as in MERCURY: there we read ahead, and the kernel need not; the rest is `Normal`.
    pub fn follow(&mut self, advice: &Advice, offset: u64) -> Option<Mode> {
        let needed = region_from(&advice.will_need, offset).is_some_and(|r| r.start() <= offset);
        let default = if needed { Mode::Random } else { Mode::Normal };
        let mode = advice.mode_at(offset).unwrap_or(default);
        let changed = mode != self.current;
        self.current = mode;
        changed.then_some(mode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: FileKey = FileKey {
        device: 1,
        inode: 2,
    };

    fn advice(block_size: u64, cache_size: u32, read_ahead_size: u32) -> Advice {
        Advice {
            block_size,
            cache_size,
            read_ahead_size,
            will_need: vec![Range::at(0, u64::MAX)],
            ..Advice::default()
        }
    }

    fn cache(block_size: u64, cache_size: u32, read_ahead_size: u32) -> BlockCache {
        BlockCache::new(Arc::new(advice(block_size, cache_size, read_ahead_size)))
    }

    #[test]
    fn the_block_touched_and_those_ahead_are_loaded_once() {
        let mut cache = cache(100, 8, 4);
        assert_eq!(
            cache.read(Range::at(10, 5), 10_000).load,
            [Range::at(0, 500)]
        );
        assert_eq!(cache.read(Range::at(30, 5), 10_000), Plan::default());
        assert_eq!(
            cache.read(Range::at(110, 5), 10_000).load,
            [Range::at(500, 100)]
        );
    }

    #[test]
    fn the_oldest_blocks_are_released_when_the_cache_is_full() {
        let mut cache = cache(100, 3, 1);
        cache.read(Range::at(0, 1), 10_000); // 0 1
        cache.read(Range::at(500, 1), 10_000); // 0 1 5 6: 0 goes
        assert_eq!(cache.held(), [Range::at(100, 100), Range::at(500, 200)]);
        let plan = cache.read(Range::at(100, 1), 10_000); // 1 is there, 2 is loaded, 5 goes
        assert_eq!(plan.load, [Range::at(200, 100)]);
        assert_eq!(plan.release, [Range::at(500, 100)]);
    }

    #[test]
    fn nothing_is_loaded_behind_the_end() {
        let mut cache = cache(100, 8, 4);
        assert_eq!(
            cache.read(Range::at(150, 5), 250).load,
            [Range::at(100, 200)]
        );
        assert_eq!(
            cache.read(Range::at(290, 20), 250).load,
            [Range::at(300, 100)],
            "the file has grown"
        );
    }

    #[test]
    fn what_the_read_brings_itself_is_not_loaded() {
        let mut cache = cache(100, 8, 1);
        assert_eq!(
            cache.read(Range::at(50, 250), 10_000).load,
            [Range::at(0, 100), Range::at(300, 100)]
        );
        assert_eq!(cache.held(), [Range::at(0, 400)]);
    }

    #[test]
    fn a_huge_read_wants_no_more_than_the_cache_holds() {
        let mut cache = cache(4096, 8, 4);
        cache.read(Range::at(0, u64::MAX), u64::MAX);
        assert_eq!(cache.wanted.len(), 4);
        cache.read(Range::at(u64::MAX - 1, 1), u64::MAX);
        assert_eq!(cache.read(Range::at(77, 0), 1000), Plan::default());
    }

    #[test]
    fn read_ahead_goes_on_in_the_next_region() {
        let mut advice = advice(100, 8, 3);
        advice.will_need = vec![Range::at(0, 200), Range::at(950, 100), Range::at(5000, 1)];
        let mut cache = BlockCache::new(Arc::new(advice));
        let plan = cache.read(Range::at(0, 10), 10_000);
        assert_eq!(plan.load, [Range::at(0, 200), Range::at(900, 200)]);
        assert_eq!(
            cache.read(Range::at(300, 10), 10_000),
            Plan::default(),
            "not advised here"
        );
    }

    #[test]
    fn processes_that_read_one_file_load_it_once() {
        let mut caches = Caches::default();
        let advice = Arc::new(advice(100, 8, 4));
        caches.open(KEY, &advice);
        caches.open(KEY, &advice);
        assert_eq!(
            caches
                .get(KEY)
                .unwrap()
                .read(Range::at(0, 1), 10_000)
                .load
                .len(),
            1
        );
        assert_eq!(
            caches.get(KEY).unwrap().read(Range::at(50, 1), 10_000),
            Plan::default()
        );
        assert!(caches.close(KEY).is_none());
        assert_eq!(caches.close(KEY).unwrap().held(), [Range::at(0, 500)]);
        assert!(caches.get(KEY).is_none() && caches.close(KEY).is_none());
    }

    #[test]
    fn what_could_not_be_loaded_is_loaded_when_wanted_again() {
        let mut cache = cache(100, 8, 2);
        cache.read(Range::at(0, 1), 10_000);
        cache.forget(Range::at(150, 10));
        assert_eq!(
            cache.read(Range::at(0, 1), 10_000).load,
            [Range::at(100, 100)]
        );
    }

    #[test]
    fn what_came_only_partly_is_loaded_once_more_each_time_that_it_is_there() {
        let mut cache = cache(100, 2, 1);
        let asks = |cache: &mut BlockCache, at: u64| {
            let load = cache.read(Range::at(at, 1), 10_000).load;
            cache.forget_once(Range::at(at, 1));
            !load.is_empty()
        };
        assert_eq!(
            [0; 4].map(|at| asks(&mut cache, at)),
            [true, true, false, false]
        );
        cache.read(Range::at(5000, 1), 10_000); // 0 goes
        assert_eq!([0; 3].map(|at| asks(&mut cache, at)), [true, true, false]);
    }

    #[test]
    fn a_dont_need_region_is_released_block_by_block_as_it_is_left() {
        let advice = Advice {
            block_size: 100,
            dont_need: vec![Range::at(0, 1000)],
            ..Advice::default()
        };
        let mut cache = BlockCache::new(Arc::new(advice));
        let mut released = |offset, len| cache.read(Range::at(offset, len), 10_000).release;
        assert_eq!(released(0, 60), []);
        assert_eq!(released(60, 60), [Range::at(0, 100)]);
        assert_eq!(released(120, 30), []);
        assert_eq!(released(500, 10), [Range::at(100, 50)]);
        assert_eq!(released(980, 100), [Range::at(500, 10), Range::at(980, 20)]);
        assert_eq!(released(2000, 100), []);
    }

    #[test]
    fn the_end_of_a_file_or_region_is_released_though_its_block_goes_on() {
        let advice = Advice {
            block_size: 1000,
            dont_need: vec![Range::at(0, 150), Range::at(200, u64::MAX - 200)],
            ..Advice::default()
        };
        let mut cache = BlockCache::new(Arc::new(advice));
        let mut released = |offset, len| cache.read(Range::at(offset, len), 250).release;
        assert_eq!(released(0, 100), []);
        assert_eq!(released(100, 80), [Range::at(0, 150)]);
        assert_eq!(released(200, 40), []);
        assert_eq!(released(240, 10), [Range::at(200, 50)]);
        assert_eq!(released(250, 10), [Range::at(250, 10)], "it has grown");
        assert_eq!(released(200, 20), []);
        assert_eq!(cache.passing(), Range::at(200, 20));
    }

    #[test]
    fn the_mode_follows_the_region_that_is_read() {
        let mut advice = advice(100, 8, 4);
        advice.will_need = vec![Range::at(300, 100)];
        advice.modes = vec![
            (Range::at(0, 100), Mode::Sequential),
            (Range::at(350, 10), Mode::Normal),
        ];
        let mut follower = ModeFollower::default();
        let said: Vec<_> = [0, 50, 99, 100, 300, 350, 360, 400]
            .map(|at| follower.follow(&advice, at))
            .into();
        let (normal, random) = (Some(Mode::Normal), Some(Mode::Random));
        assert_eq!(
            said,
            [
                Some(Mode::Sequential),
                None,
                None,
                normal,
                random,
                normal,
                random,
                normal
            ]
        );
    }

    /// The same, as slow and obvious as can be: a list of blocks, the one wanted longest ago first.
    #[derive(Default)]
    struct Model(Vec<u64>);

    impl Model {
        fn read(&mut self, advice: &Advice, read: Range, size: u64) -> (Vec<u64>, Vec<u64>) {
            let range = |b: u64| Range::at(b * advice.block_size, advice.block_size);
            let needed = |b: u64| advice.will_need.iter().any(|r| r.overlaps(range(b)));
            if !advice.will_need.iter().any(|r| r.overlaps(read)) {
                return Default::default();
            }
            let blocks = size.max(read.end()).div_ceil(advice.block_size);
            let touched: Vec<u64> = (0..blocks).filter(|b| range(*b).overlaps(read)).collect();
            let last = *touched.last().unwrap();
            let most = (advice.cache_size - advice.read_ahead_size) as usize;
            let mut window: Vec<u64> = touched
                .into_iter()
                .rev()
                .take(most)
                .rev()
                .filter(|b| needed(*b))
                .collect();
            let ahead = (last + 1..blocks).filter(|b| needed(*b));
            window.extend(ahead.take(advice.read_ahead_size as usize));
            let missing: Vec<u64> = window
                .iter()
                .copied()
                .filter(|b| !self.0.contains(b))
                .collect();
            self.0.retain(|b| !window.contains(b));
            self.0.extend(&window);
            let over = self.0.len().saturating_sub(advice.cache_size as usize);
            let released = self.0.drain(..over).collect();
            (
                missing
                    .into_iter()
                    .filter(|b| !read.covers(range(*b)))
                    .collect(),
                released,
            )
        }
    }

    fn blocks(ranges: &[Range], size: u64) -> Vec<u64> {
        assert!(
            ranges.windows(2).all(|w| w[0].end() < w[1].start()),
            "{ranges:?}"
        );
        ranges
            .iter()
            .flat_map(|r| r.start() / size..r.end() / size)
            .collect()
    }

    fn regions() -> impl Strategy<Value = Vec<Range>> {
        let gaps = prop::collection::vec((1..400_u64, 1..400_u64), 1..6);
        gaps.prop_map(|gaps| {
            let mut end = 0;
            let region = |(gap, len): (u64, u64)| {
                let range = Range::at(end + gap - 1, len);
                end = range.end() + 1;
                range
            };
            gaps.into_iter().map(region).collect()
        })
    }

    proptest! {
        #[test]
        fn does_what_the_slow_and_obvious_model_does(
            (block_size, cache_size, ahead) in (1..50_u64, 1..12_u32, 0..12_u32),
            will_need in regions(),
            reads in prop::collection::vec((0..1500_u64, 1..200_u64, prop::bool::weighted(0.1)), 1..80),
            size in 500..2000_u64,
        ) {
            let mut advice = advice(block_size, cache_size, ahead.min(cache_size - 1));
            advice.will_need = will_need;
            let mut cache = BlockCache::new(Arc::new(advice.clone()));
            let mut model = Model::default();
            for (offset, len, forget) in reads {
                let read = Range::at(offset, len);
                let plan = cache.read(read, size);
                let (mut load, mut release) = model.read(&advice, read, size);
                load.sort();
                release.sort();
                prop_assert_eq!(blocks(&plan.load, block_size), load);
                prop_assert_eq!(blocks(&plan.release, block_size), release);
                prop_assert!(cache.wanted.len() <= cache_size as usize && cache.wanted.len() == cache.order.len());
                if forget {
                    cache.forget(read);
                    model.0.retain(|b| !Range::at(b * block_size, block_size).overlaps(read));
                }
            }
        }
    }
}
