//! A disk: one head, platters that turn, and a buffer.
//!
//! A request waits until the head is free, seeks, waits for its first byte to turn up under the head, and transfers.
//!
//! *Seek.* The time grows with the square root of a short distance (the arm accelerates all the way) and linearly with a
//! long one (it coasts), as Ruemmler and Wilkes measured ("An introduction to disk drive modeling", IEEE Computer 27(3),
//! 1994). Here the two meet at a third of the stroke, which is the mean distance between two random places and therefore
//! what data sheets call the average seek.
//!
//! *Rotation.* All tracks have the same length, the bytes that pass in one turn, and each begins where the one before
//! ended (perfect skew). So the angle of an address is its place within a track, the angle of the platters follows from
//! the time, and whoever goes on where the head is, in time, waits for nothing.
//!
//! *Buffer.* After a read the disk reads on into its buffer until there is something else to do: a sequential reader who
//! is a little late pays no whole turn. A write cache, where there is one, answers at once while it has room. It is
//! emptied upwards from where the head is, then from the lowest address again, which makes seeks short. Reads go before
//! what is cached.
//!
//! *Command.* What every request takes on its way through driver, bus and controller comes on top, while the head can
//! already do something else: it is what small sequential requests are bounded by.
//!
//! Left out: zones (outer tracks are faster), reordering of reads, bad sectors.

use crate::error::{ModelError, require};
use crate::{Device, transfer};
use presagio_core::{Nanos, Op, Range};
use std::collections::BTreeMap;

/// What a disk is like. The default is a usual one of 7200 rpm and 4 TB.
///
/// Its figures are those of data sheets of nearline disks: 8.5 ms average seek, 4.17 ms average rotation (half a turn
/// of 8.33 ms), about 150 MB/s averaged over the zones, below 1 ms from track to track, about twice the average for the
/// full stroke. The write cache is off, as it is in servers that must not lose what they acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HddParameters {
    /// Bytes of the whole disk, the stroke of the arm. Addresses behind it are as far as the full stroke.
    pub capacity: u64,
    /// Turns a minute.
    pub rpm: u32,
    /// Bytes a second that pass under the head.
    pub bytes_per_s: u64,
    /// To settle on a track that is next to this one.
    pub seek_least: Nanos,
    /// Over a third of the stroke.
    pub seek_average: Nanos,
    /// Over all of it.
    pub seek_most: Nanos,
    /// How many bytes it reads on after a read; 0 for none.
    pub read_ahead: u64,
    /// How many bytes of writes it answers before they are on the platters; 0 for none.
    pub write_cache: u64,
    /// How many writes the cache has room for, however small they are.
    pub write_slots: u32,
    /// What a read costs besides, on its way through driver, bus and controller.
    pub read_command: Nanos,
    /// What a write costs besides.
    pub write_command: Nanos,
}

impl Default for HddParameters {
    fn default() -> HddParameters {
        HddParameters {
            capacity: 4_000_000_000_000,
            rpm: 7200,
            bytes_per_s: 150_000_000,
            seek_least: Nanos::from_micros(800),
            seek_average: Nanos::from_micros(8_500),
            seek_most: Nanos::from_micros(17_000),
            read_ahead: 1 << 20,
            write_cache: 0,
            write_slots: 256,
            read_command: Nanos::ZERO,
            write_command: Nanos::ZERO,
        }
    }
}

impl HddParameters {
    pub(crate) fn check(&self) -> Result<(), ModelError> {
        require(self.capacity > 0, "capacity", "more than 0 bytes")?;
        require(
            (60..=1_000_000).contains(&self.rpm),
            "rpm",
            "from 60 to 1000000",
        )?;
        require(self.track() > 0, "bytes_per_s", "at least a byte a turn")?;
        let rising = self.seek_least <= self.seek_average && self.seek_average <= self.seek_most;
        require(
            rising,
            "seek_average",
            "between seek_least and seek_most, which is the greatest",
        )?;
        let fits = self.seek_most <= Nanos::from_secs(3600);
        require(fits, "seek_most", "an hour at most")?;
        require(self.write_slots > 0, "write_slots", "at least 1")
    }

    fn command(&self, op: Op) -> Nanos {
        match op {
            Op::Read => self.read_command,
            Op::Write => self.write_command,
        }
    }

    /// A turn.
    fn turn(&self) -> Nanos {
        Nanos(60_000_000_000 / u64::from(self.rpm))
    }

    /// Bytes that pass in a turn.
    fn track(&self) -> u64 {
        let bytes = u128::from(self.bytes_per_s) * u128::from(self.turn().0) / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// How long the arm takes for so many bytes of distance.
    fn seek(&self, distance: u64) -> Nanos {
        if distance < self.track() {
            return Nanos::ZERO;
        }
        let stroke = (distance as f64 / self.capacity as f64).min(1.0);
        let (least, average, most) = (
            self.seek_least.0 as f64,
            self.seek_average.0 as f64,
            self.seek_most.0 as f64,
        );
        let ns = if stroke < 1.0 / 3.0 {
            least + (average - least) * (3.0 * stroke).sqrt()
        } else {
            average + (most - average) * (3.0 * stroke - 1.0) / 2.0
        };
        Nanos(ns as u64)
    }

    /// How long until an address turns up under the head.
    fn rotation(&self, address: u64, now: Nanos) -> Nanos {
        let (turn, track) = (u128::from(self.turn().0), u128::from(self.track()));
        let wanted = u128::from(address) % track * turn / track;
        let there = u128::from(now.0) % turn;
        // Below a turn, which fits.
        Nanos(((wanted + turn - there) % turn) as u64)
    }
}

/// A disk at work.
#[derive(Clone, Debug)]
pub struct Hdd {
    parameters: HddParameters,
    /// Behind the last byte that was asked for.
    head: u64,
    /// When the head has done all that was asked for.
    free: Nanos,
    /// Whether it reads on from there.
    reads_on: bool,
    /// Writes that were answered and are not on the platters, by their first byte.
    cached: BTreeMap<u64, Cached>,
    cached_bytes: u64,
    /// When the last that left the cache is on the platters.
    drained: Nanos,
}

/// A write in the cache.
#[derive(Clone, Copy, Debug)]
struct Cached {
    bytes: u64,
    came: Nanos,
}

impl Hdd {
    /// A disk at rest, its head at address 0.
    pub fn new(parameters: HddParameters) -> Result<Hdd, ModelError> {
        parameters.check()?;
        Ok(Hdd {
            parameters,
            head: 0,
            free: Nanos::ZERO,
            reads_on: false,
            cached: BTreeMap::new(),
            cached_bytes: 0,
            drained: Nanos::ZERO,
        })
    }

    /// Moves the head over these bytes, and says when it has.
    fn pass(&mut self, op: Op, at: Range, now: Nanos) -> Nanos {
        let done = match self.read_on_to(op, at, now) {
            Some(done) => done,
            None => self.reach(at.start(), now) + self.transfer(at.len()),
        };
        self.head = at.end();
        self.free = done;
        self.reads_on = op == Op::Read && self.parameters.read_ahead > 0;
        done
    }

    /// When the head is over that address, ready to go on.
    fn reach(&self, address: u64, now: Nanos) -> Nanos {
        if address == self.head && now <= self.free {
            return self.free;
        }
        let begin = now.max(self.free);
        let there = begin + self.parameters.seek(address.abs_diff(self.head));
        there + self.parameters.rotation(address, there)
    }

    /// When the end of a read is in the buffer, if its beginning is or is just being read.
    fn read_on_to(&self, op: Op, at: Range, now: Nanos) -> Option<Nanos> {
        let ahead = self.head.saturating_add(self.parameters.read_ahead);
        if op == Op::Write || !self.reads_on || now < self.free || at.start() < self.head {
            return None;
        }
        let passed = |address: u64| self.free + self.transfer(address - self.head);
        if at.end() <= ahead || now <= passed(ahead) {
            // What is not read yet is waited for only if it is nearer than by seeking.
            (at.start() <= ahead && passed(at.start()) <= now + self.parameters.turn())
                .then(|| now.max(passed(at.end())))
        } else {
            None
        }
    }

    fn transfer(&self, bytes: u64) -> Nanos {
        transfer(bytes, self.parameters.bytes_per_s)
    }

    /// Takes a write into the cache, and says when there was room for it.
    fn cache(&mut self, at: Range, now: Nanos) -> Nanos {
        if at.len() > self.parameters.write_cache {
            return self.pass_through(at, now);
        }
        // What is written again before it is on the platters is written once; of a longer write before, the rest still is to be.
        let before = self.cached.get(&at.start());
        let before = before.map_or(0, |cached| cached.bytes);
        let bytes = before.max(at.len());
        let entry = Cached { bytes, came: now };
        self.cached.insert(at.start(), entry);
        self.cached_bytes = (self.cached_bytes - before).saturating_add(bytes);
        let mut room = now;
        while self.is_overfull()
            && let Some((start, cached)) = self.nearest()
        {
            room = room.max(self.drain(start, cached));
        }
        room
    }

    fn is_overfull(&self) -> bool {
        self.cached_bytes > self.parameters.write_cache
            || self.cached.len() > self.parameters.write_slots as usize
    }

    /// Writes what is larger than the cache: answered when the rest of it has found room.
    fn pass_through(&mut self, at: Range, now: Nanos) -> Nanos {
        self.drained = self.pass(Op::Write, at, now);
        let rest = self.transfer(self.parameters.write_cache);
        now.max(self.drained - rest)
    }

    /// Lets the head do what it began before `now`.
    fn settle(&mut self, now: Nanos) {
        while self.free < now
            && let Some((start, cached)) = self.nearest()
            && cached.came < now
        {
            self.drain(start, cached);
        }
    }

    /// Brings a cached write onto the platters, and says when it is there.
    fn drain(&mut self, start: u64, cached: Cached) -> Nanos {
        self.cached.remove(&start);
        self.cached_bytes -= cached.bytes;
        let begin = self.free.max(cached.came);
        self.drained = self.pass(Op::Write, Range::at(start, cached.bytes), begin);
        self.drained
    }

    /// The next cached write from the head upwards, or from the lowest address.
    fn nearest(&self) -> Option<(u64, Cached)> {
        let above = self.cached.range(self.head..).next();
        let next = above.or_else(|| self.cached.first_key_value());
        next.map(|(start, cached)| (*start, *cached))
    }

    /// Whether all of a read was written a moment ago and still is in the cache.
    fn is_cached(&self, at: Range) -> bool {
        let last = self.cached.range(..=at.start()).next_back();
        last.is_some_and(|(start, cached)| Range::at(*start, cached.bytes).end() >= at.end())
    }
}

impl Device for Hdd {
    fn serve(&mut self, op: Op, at: Range, now: Nanos) -> Nanos {
        if at.is_empty() {
            return now;
        }
        self.settle(now);
        let done = match op {
            Op::Read if self.is_cached(at) => now,
            Op::Write if self.parameters.write_cache > 0 => self.cache(at, now),
            _ => self.pass(op, at, now),
        };
        done + self.parameters.command(op)
    }

    fn flush(&mut self, now: Nanos) -> Nanos {
        while let Some((start, cached)) = self.nearest() {
            self.drain(start, cached);
        }
        self.drained.max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn plain() -> HddParameters {
        HddParameters {
            read_ahead: 0,
            ..HddParameters::default()
        }
    }

    fn disk(parameters: HddParameters) -> Hdd {
        Hdd::new(parameters).expect("parameters that hold")
    }

    #[test]
    fn a_sequential_stream_that_comes_in_time_runs_at_the_transfer_rate() {
        let mut disk = disk(plain());
        let begin = disk.serve(Op::Read, Range::at(0, MIB), Nanos::ZERO);
        let mut now = begin;
        for i in 1..=100 {
            now = disk.serve(Op::Read, Range::at(i * MIB, MIB), now);
        }
        let ideal = transfer(100 * MIB, disk.parameters.bytes_per_s);
        assert!((now - begin) - ideal < Nanos::from_micros(1));
    }

    #[test]
    fn who_comes_late_without_a_buffer_waits_for_a_turn() {
        let mut disk = disk(plain());
        let late = disk.serve(Op::Read, Range::at(0, MIB), Nanos::ZERO) + Nanos::from_micros(50);
        let took = disk.serve(Op::Read, Range::at(MIB, MIB), late) - late;
        let turn = disk.parameters.turn();
        let ideal = turn - Nanos::from_micros(50) + disk.transfer(MIB);
        assert!(took.0.abs_diff(ideal.0) < 1_000, "{took} is not {ideal}");
    }

    #[test]
    fn who_comes_late_with_a_buffer_waits_for_nothing() {
        let mut disk = disk(HddParameters::default());
        let mut now = disk.serve(Op::Read, Range::at(0, MIB), Nanos::ZERO);
        let begin = now;
        for i in 1..=100 {
            let late = now + Nanos::from_micros(50);
            now = disk.serve(Op::Read, Range::at(i * MIB, MIB), late);
        }
        let ideal = disk.transfer(100 * MIB);
        assert!((now - begin) - ideal < Nanos::from_micros(100));
    }

    #[test]
    fn what_the_buffer_does_not_reach_is_sought() {
        let mut disk = disk(HddParameters::default());
        let done = disk.serve(Op::Read, Range::at(0, MIB), Nanos::ZERO);
        let far = disk.serve(Op::Read, Range::at(1 << 40, 4096), done) - done;
        assert!(far > disk.parameters.seek_least);
        let late = done + Nanos::from_secs(1);
        let long_after = disk.serve(Op::Read, Range::at(0, MIB), late) - late;
        assert!(long_after >= disk.parameters.seek_least);
    }

    #[test]
    fn random_reads_take_the_mean_of_the_data_sheet() {
        let mut disk = disk(plain());
        let (mut now, mut place) = (Nanos::ZERO, 1_u64);
        let count = 20_000;
        for _ in 0..count {
            place = place
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let address = (place >> 20) % (disk.parameters.capacity / 4096) * 4096;
            now = disk.serve(Op::Read, Range::at(address, 4096), now);
        }
        let mean_ms = now.as_secs_f64() * 1e3 / f64::from(count);
        // 8.5 + 4.17 ms; a square root's mean is a little below that of the mean distance.
        assert!((11.5..13.0).contains(&mean_ms), "{mean_ms} ms");
    }

    #[test]
    fn a_farther_seek_never_takes_less_and_the_curve_meets_the_data_sheet() {
        let hdd = plain();
        let stroke = |share: f64| hdd.seek((hdd.capacity as f64 * share) as u64);
        let mut last = Nanos::ZERO;
        for step in 0..=1000 {
            let next = stroke(f64::from(step) / 1000.0);
            assert!(next >= last);
            last = next;
        }
        assert!(stroke(1.0 / 3.0).0.abs_diff(hdd.seek_average.0) < 1_000);
        assert_eq!(stroke(1.0), hdd.seek_most);
        assert_eq!(hdd.seek(u64::MAX), hdd.seek_most);
    }

    #[test]
    fn a_write_cache_answers_at_once_until_it_is_full_and_a_flush_waits_for_it() {
        let mut disk = disk(HddParameters {
            write_cache: 4 * MIB,
            ..plain()
        });
        let now = Nanos::from_secs(1);
        for i in 0..4 {
            let place = Range::at(i << 38, MIB);
            assert_eq!(disk.serve(Op::Write, place, now), now);
        }
        let full = disk.serve(Op::Write, Range::at(9 << 38, MIB), now);
        assert!(full > now, "there was no room");
        let flushed = disk.flush(now);
        assert!(flushed > full && flushed == disk.free);
        assert_eq!(disk.flush(flushed), flushed, "nothing is left");
    }

    /// Random writes of 8 KiB to a gigabyte: how long each takes once the cache is full.
    fn random_writes(parameters: HddParameters) -> Nanos {
        let mut disk = disk(parameters);
        let (mut now, mut place, mut full) = (Nanos::ZERO, 1_u64, Nanos::ZERO);
        for i in 0..4_000 {
            place = place
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let address = (place >> 20) % (1 << 17) * 8192;
            now = disk.serve(Op::Write, Range::at(address, 8192), now);
            full = if i == 1_999 { now } else { full };
        }
        Nanos((now - full).0 / 2_000)
    }

    #[test]
    fn a_cache_makes_the_seeks_of_random_writes_shorter_the_larger_it_is() {
        let took = [(0, 1), (8 * MIB, 16), (8 * MIB, 1024)].map(|(write_cache, write_slots)| {
            random_writes(HddParameters {
                write_cache,
                write_slots,
                ..plain()
            })
        });
        assert!(took[2] < took[1] && took[1] < took[0], "{took:?}");
    }

    #[test]
    fn a_cached_write_is_on_the_platters_by_itself_after_a_while_and_a_read_finds_it_before() {
        let mut disk = disk(HddParameters {
            write_cache: 4 * MIB,
            ..plain()
        });
        let (written, now) = (Range::at(1 << 40, MIB), Nanos::from_secs(1));
        assert_eq!(disk.serve(Op::Write, written, now), now);
        assert_eq!(disk.serve(Op::Read, Range::at(1 << 40, 4096), now), now);
        let later = now + Nanos::from_secs(1);
        disk.serve(Op::Write, Range::at(0, 4096), later);
        assert!(disk.drained < later, "the head had a second");
        assert!(disk.flush(later) > later, "but the other is still to come");
    }

    #[test]
    fn small_sequential_requests_are_bounded_by_their_command_and_large_ones_are_not() {
        let command = Nanos::from_micros(300);
        let parameters = HddParameters {
            read_command: command,
            ..HddParameters::default()
        };
        for (bytes, each) in [
            (8 << 10, command),
            (MIB, transfer(MIB, parameters.bytes_per_s)),
        ] {
            let mut disk = disk(parameters.clone());
            let mut now = disk.serve(Op::Read, Range::at(0, bytes), Nanos::ZERO);
            let begin = now;
            for i in 1..=50 {
                now = disk.serve(Op::Read, Range::at(i * bytes, bytes), now);
            }
            let took = (now - begin).0 / 50;
            assert!(took.abs_diff(each.0) < 20_000, "{took} ns, not {each}");
        }
    }

    #[test]
    fn writes_that_no_cache_could_hold_wait_for_the_platters_and_stream() {
        let mut disk = disk(HddParameters {
            write_cache: MIB,
            write_command: Nanos::from_micros(100),
            ..plain()
        });
        let begin = disk.serve(Op::Write, Range::at(0, 4 * MIB), Nanos::ZERO);
        assert!(begin >= disk.transfer(3 * MIB));
        let mut now = begin;
        for i in 1..=10 {
            now = disk.serve(Op::Write, Range::at(i * 4 * MIB, 4 * MIB), now);
        }
        let ideal = disk.transfer(40 * MIB);
        assert!((now - begin).0.abs_diff(ideal.0) < 2_000_000, "{now}");
        assert!(disk.flush(now) > now, "the last of it is in the cache");
    }

    #[test]
    fn parameters_of_no_disk_are_refused_by_name() {
        let wrong = [
            (
                "capacity",
                HddParameters {
                    capacity: 0,
                    ..plain()
                },
            ),
            ("rpm", HddParameters { rpm: 0, ..plain() }),
            (
                "bytes_per_s",
                HddParameters {
                    bytes_per_s: 0,
                    ..plain()
                },
            ),
            (
                "seek_average",
                HddParameters {
                    seek_average: Nanos::ZERO,
                    ..plain()
                },
            ),
            (
                "seek_most",
                HddParameters {
                    seek_most: Nanos::MAX,
                    ..plain()
                },
            ),
        ];
        for (name, parameters) in wrong {
            let error = Hdd::new(parameters).expect_err(name).to_string();
            assert!(error.contains(name), "{error}");
        }
    }

    proptest! {
        /// Whatever is asked: nothing is done before its time, a disk moves no more bytes than pass under its head, and the
        /// same calls have the same answers.
        #[test]
        fn no_disk_is_faster_than_its_platters(
            asked in prop::collection::vec((any::<bool>(), 0_u64..1 << 42, 1_u64..4 * MIB, 0_u64..20_000_000), 1..60),
            read_ahead in prop::sample::select(vec![0, 4096, MIB]),
        ) {
            let parameters = HddParameters { read_ahead, ..plain() };
            let (mut disk, mut twin) = (disk(parameters.clone()), disk(parameters));
            let (mut now, mut bytes, mut last) = (Nanos::ZERO, 0, Nanos::ZERO);
            for (write, start, len, gap) in asked {
                now += Nanos(gap);
                let op = if write { Op::Write } else { Op::Read };
                let done = disk.serve(op, Range::at(start, len), now);
                prop_assert!(done >= now && done >= last);
                prop_assert_eq!(done, twin.serve(op, Range::at(start, len), now));
                bytes += len;
                last = done;
            }
            let least = transfer(bytes, disk.parameters.bytes_per_s);
            prop_assert!(last >= least);
        }

        /// Places that are written again and again, now more of them, now less: what was cached and is in no other write is there
        /// until it is on the platters.
        #[test]
        fn nothing_that_was_cached_is_lost_by_writing_its_place_again(
            asked in prop::collection::vec((0_u64..6, 1_u64..256), 1..80),
            small in any::<bool>(),
        ) {
            const PAGE: u64 = 4096;
            let write_cache = if small { MIB } else { 1 << 40 };
            let mut disk = disk(HddParameters { write_cache, write_slots: 512, ..plain() });
            let mut written = std::collections::BTreeSet::new();
            for (place, pages) in asked {
                let start = place * 64;
                disk.serve(Op::Write, Range::at(start * PAGE, pages * PAGE), Nanos::ZERO);
                written.extend(start..start + pages);
                let sum: u64 = disk.cached.values().map(|it| it.bytes).sum();
                prop_assert_eq!(sum, disk.cached_bytes);
                prop_assert!(sum <= write_cache);
            }
            if !small {
                let pages = |(start, it): (&u64, &Cached)| start / PAGE..(start + it.bytes) / PAGE;
                let cached = disk.cached.iter().flat_map(pages).collect();
                prop_assert_eq!(&written, &cached);
            }
            let bytes = written.len() as u64 * PAGE;
            prop_assert!(disk.flush(Nanos::ZERO) >= disk.transfer(bytes));
            prop_assert_eq!((disk.cached.len(), disk.cached_bytes), (0, 0));
        }

        #[test]
        fn no_address_and_no_time_is_too_large(
            start in any::<u64>(), len in any::<u64>(), now in any::<u64>(), write in any::<bool>(),
        ) {
            let mut disk = disk(HddParameters { write_cache: MIB, ..HddParameters::default() });
            let op = if write { Op::Write } else { Op::Read };
            for _ in 0..3 {
                let done = disk.serve(op, Range::at(start, len), Nanos(now));
                prop_assert!(done >= Nanos(now));
            }
        }
    }
}
