//! A solid-state drive: channels that work in parallel, each on its share of the addresses.
//!
//! Addresses are dealt to the channels in turn, so a large request keeps all of them busy and small ones at random places
//! meet on the same channel now and then. A channel serves its share of a request after those it has: some time for the
//! command, then the transfer.
//!
//! *Reading ahead.* Whoever goes on where the last read ended finds the next bytes in the drive's memory, or on their
//! way there.
//!
//! *Write cache.* Where there is one, a write is answered when the memory has room for it; the channels empty it. That
//! makes small random writes faster than sequential ones where a unit is larger than a write: they meet on different
//! channels, while those in sequence queue for the same one.
//!
//! *Write amplification.* A drive that is in use has no empty blocks left. A write that does not go on where the last one
//! ended leaves holes in blocks, and to get whole blocks back the drive copies what is around them. Holes come with the
//! ends of a write, so that a large one leaves no more of them than a row of units over all channels.
//!
//! *Command and link.* Every request takes some time on its way through driver, bus and controller, and all bytes pass
//! one link.
//!
//! Left out: when the drive cleans up (it does so steadily), wear, memory of other kinds in front of the flash.

use crate::error::{ModelError, require};
use crate::{Device, dealt_below, transfer};
use presagio_core::{Nanos, Op, Range};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// What a drive is like. The default is a usual SATA one.
///
/// Its data sheets say about 550 MB/s and 90 000 reads of 4 KiB a second with many in flight, and one read alone takes
/// about 0.1 ms: eight channels of 70 MB/s with 35 µs for a command give 560 MB/s, 86 000 a second and 94 µs; units of
/// 8 KiB give 32 KiB alone about 200 MB/s. A write is done when the drive's capacitor-backed memory has it, so its
/// command is shorter. In steady use data sheets say a third as many random writes as a fresh drive takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SsdParameters {
    /// How many requests, or parts of large ones, it can work on at once.
    pub channels: u32,
    /// How many bytes in a row lie on one channel.
    pub unit: u64,
    /// Bytes a second of one channel.
    pub bytes_per_s: u64,
    /// What a read costs besides its transfer.
    pub read_overhead: Nanos,
    /// What a write costs besides its transfer.
    pub write_overhead: Nanos,
    /// How many bytes it reads on while a reader goes on; 0 for none.
    pub read_ahead: u64,
    /// How many bytes of writes it answers before the channels have them; 0 for none.
    pub write_cache: u64,
    /// How many bytes the drive writes for 100 bytes of small random writes; 100 for a drive without holes.
    pub write_amplification_percent: u32,
    /// Bytes a second of the link to the drive.
    pub link_bytes_per_s: u64,
    /// What a read costs besides, on its way through driver, bus and controller.
    pub read_command: Nanos,
    /// What a write costs besides.
    pub write_command: Nanos,
}

impl Default for SsdParameters {
    fn default() -> SsdParameters {
        SsdParameters {
            channels: 8,
            unit: 8 << 10,
            bytes_per_s: 70_000_000,
            read_overhead: Nanos::from_micros(35),
            write_overhead: Nanos::from_micros(15),
            read_ahead: 0,
            write_cache: 0,
            write_amplification_percent: 300,
            link_bytes_per_s: 600_000_000,
            read_command: Nanos::ZERO,
            write_command: Nanos::ZERO,
        }
    }
}

impl SsdParameters {
    fn check(&self) -> Result<(), ModelError> {
        let few = (1..=4096).contains(&self.channels);
        require(few, "channels", "from 1 to 4096")?;
        let small = (1..=1 << 40).contains(&self.unit);
        require(small, "unit", "from 1 byte to 1 TiB")?;
        require(self.bytes_per_s > 0, "bytes_per_s", "more than 0")?;
        let linked = self.link_bytes_per_s > 0;
        require(linked, "link_bytes_per_s", "more than 0")?;
        let percent = (100..=10_000).contains(&self.write_amplification_percent);
        require(
            percent,
            "write_amplification_percent",
            "from 100 (none) to 10000",
        )
    }

    /// How many of the addresses below `end` are on a channel.
    fn below(&self, channel: u64, end: u64) -> u64 {
        dealt_below(channel, end, self.unit, u64::from(self.channels))
    }

    fn overhead(&self, op: Op) -> Nanos {
        match op {
            Op::Read => self.read_overhead,
            Op::Write => self.write_overhead,
        }
    }

    fn command(&self, op: Op) -> Nanos {
        match op {
            Op::Read => self.read_command,
            Op::Write => self.write_command,
        }
    }

    /// How many bytes are written for each that was asked for, by a random write of so many.
    fn amplification(&self, bytes: u64) -> f64 {
        let holes = bytes.min(self.unit * u64::from(self.channels));
        let more = f64::from(self.write_amplification_percent - 100) / 100.0;
        1.0 + more * holes as f64 / bytes as f64
    }
}

/// A drive at work.
#[derive(Clone, Debug)]
pub struct Ssd {
    parameters: SsdParameters,
    /// When each channel has done all that was asked for.
    free: Vec<Nanos>,
    /// When the link has carried all that was asked for.
    link_free: Nanos,
    ahead: Ahead,
    /// Behind the last byte that was written.
    written: u64,
    cache: Cache,
}

impl Ssd {
    /// A drive at rest.
    pub fn new(parameters: SsdParameters) -> Result<Ssd, ModelError> {
        parameters.check()?;
        let free = vec![Nanos::ZERO; parameters.channels as usize];
        Ok(Ssd {
            parameters,
            free,
            link_free: Nanos::ZERO,
            ahead: Ahead::default(),
            written: 0,
            cache: Cache::default(),
        })
    }

    /// Gives the channels their shares, of `times` as many bytes, and says when the last of them is done.
    fn work(&mut self, op: Op, at: Range, times: f64, now: Nanos) -> Nanos {
        let mut done = now;
        for (channel, free) in (0..).zip(&mut self.free) {
            let bytes = self.parameters.below(channel, at.end())
                - self.parameters.below(channel, at.start());
            if bytes > 0 {
                let moved = (bytes as f64 * times) as u64;
                let takes =
                    self.parameters.overhead(op) + transfer(moved, self.parameters.bytes_per_s);
                *free = now.max(*free) + takes;
                done = done.max(*free);
            }
        }
        done
    }

    fn read(&mut self, at: Range, now: Nanos) -> Nanos {
        let goes_on = at.start() == self.ahead.next && self.parameters.read_ahead > 0;
        if !goes_on {
            self.ahead = Ahead::from(at.end());
            return self.work(Op::Read, at, 1.0, now);
        }
        let enough = self.load_to(at.end(), now);
        self.load_to(at.end().saturating_add(self.parameters.read_ahead), now);
        self.ahead.next = at.end();
        enough
    }

    /// Reads on up to an address, and says when its bytes are in memory.
    fn load_to(&mut self, end: u64, now: Nanos) -> Nanos {
        if self.ahead.end < end {
            let rest = Range::at(self.ahead.end, end - self.ahead.end);
            let loaded = self.work(Op::Read, rest, 1.0, now);
            self.ahead.loaded.push_back((end, loaded));
            self.ahead.end = end;
        }
        self.ahead.loaded_by(end).max(now)
    }

    fn write(&mut self, at: Range, now: Nanos) -> Nanos {
        let times = if at.start() == self.written {
            1.0
        } else {
            self.parameters.amplification(at.len())
        };
        self.written = at.end();
        let done = self.work(Op::Write, at, times, now);
        if at.len() > self.parameters.write_cache {
            return done;
        }
        self.cache
            .room(at.len(), done, self.parameters.write_cache, now)
    }

    /// When the link has carried so many bytes.
    fn carried(&mut self, bytes: u64, now: Nanos) -> Nanos {
        let takes = transfer(bytes, self.parameters.link_bytes_per_s);
        self.link_free = now.max(self.link_free) + takes;
        self.link_free
    }
}

/// What the drive has read on.
#[derive(Clone, Debug, Default)]
struct Ahead {
    /// Where a reader would go on.
    next: u64,
    /// Up to where it was read on.
    end: u64,
    /// Up to where, by when.
    loaded: VecDeque<(u64, Nanos)>,
}

impl Ahead {
    fn from(end: u64) -> Ahead {
        Ahead {
            next: end,
            end,
            loaded: VecDeque::new(),
        }
    }

    /// When everything below an address is in memory. What lies before it is not asked for again.
    fn loaded_by(&mut self, end: u64) -> Nanos {
        while let Some((to, _)) = self.loaded.front()
            && *to < self.next
        {
            self.loaded.pop_front();
        }
        let pieces = self.loaded.iter();
        let covers = pieces.take_while(|(to, _)| *to < end).count();
        let pieces = self.loaded.iter().take(covers + 1);
        pieces.map(|(_, by)| *by).max().unwrap_or(Nanos::ZERO)
    }
}

/// Writes that were answered before the channels had them.
#[derive(Clone, Debug, Default)]
struct Cache {
    /// When each is on its channels, and its bytes.
    held: BinaryHeap<Reverse<(Nanos, u64)>>,
    bytes: u64,
    /// When the last is.
    last: Nanos,
}

impl Cache {
    /// When a write that is on its channels at `done` has found room.
    fn room(&mut self, bytes: u64, done: Nanos, most: u64, now: Nanos) -> Nanos {
        self.held.push(Reverse((done, bytes)));
        self.bytes = self.bytes.saturating_add(bytes);
        self.last = self.last.max(done);
        let mut room = now;
        while let Some(Reverse((first, bytes))) = self.held.peek().copied()
            && (self.bytes > most || first <= now)
        {
            room = room.max(first);
            self.bytes -= bytes;
            self.held.pop();
        }
        room
    }
}

impl Device for Ssd {
    fn serve(&mut self, op: Op, at: Range, now: Nanos) -> Nanos {
        if at.is_empty() {
            return now;
        }
        let done = match op {
            Op::Read => self.read(at, now),
            Op::Write => self.write(at, now),
        };
        done.max(self.carried(at.len(), now)) + self.parameters.command(op)
    }

    /// Without a cache, what it has answered survives.
    fn flush(&mut self, now: Nanos) -> Nanos {
        self.cache.last.max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn drive() -> Ssd {
        Ssd::new(SsdParameters::default()).expect("a preset")
    }

    fn small(unit: u64) -> Range {
        Range::at(unit * SsdParameters::default().unit, 4096)
    }

    #[test]
    fn channels_work_at_the_same_time() {
        let mut drive = drive();
        let alone = drive.serve(Op::Read, small(0), Nanos::ZERO);
        for channel in 1..8 {
            assert_eq!(drive.serve(Op::Read, small(channel), Nanos::ZERO), alone);
        }
        let behind = drive.serve(Op::Read, small(8), Nanos::ZERO);
        assert_eq!(behind, alone + alone, "a channel has one at a time");
    }

    #[test]
    fn the_preset_is_as_fast_as_its_data_sheet() {
        let mut drive = drive();
        let alone = drive.serve(Op::Read, small(0), Nanos::ZERO);
        assert!((Nanos::from_micros(85)..Nanos::from_micros(105)).contains(&alone));
        let mut drive = self::drive();
        let large = drive.serve(Op::Read, Range::at(0, 512 << 20), Nanos::ZERO);
        let mb_per_s = f64::from(512 << 20) / 1e6 / large.as_secs_f64();
        assert!((540.0..565.0).contains(&mb_per_s), "{mb_per_s} MB/s");
    }

    #[test]
    fn order_of_places_does_not_matter() {
        let places = [5_u64, 1, 7, 3, 0, 2, 6, 4];
        let run = |places: &[u64]| {
            let mut drive = drive();
            let done = places
                .iter()
                .map(|place| drive.serve(Op::Write, small(*place), Nanos::ZERO));
            done.max()
        };
        let mut sorted = places;
        sorted.sort_unstable();
        assert_eq!(run(&places), run(&sorted));
    }

    #[test]
    fn parameters_of_no_drive_are_refused_by_name() {
        let usual = SsdParameters::default;
        let wrong = [
            (
                "channels",
                SsdParameters {
                    channels: 0,
                    ..usual()
                },
            ),
            ("unit", SsdParameters { unit: 0, ..usual() }),
            (
                "bytes_per_s",
                SsdParameters {
                    bytes_per_s: 0,
                    ..usual()
                },
            ),
        ];
        for (name, parameters) in wrong {
            let error = Ssd::new(parameters).expect_err(name).to_string();
            assert!(error.contains(name), "{error}");
        }
    }

    proptest! {
        #[test]
        fn every_byte_is_on_one_channel(
            start in any::<u64>(), len in any::<u64>(), channels in 1_u32..20, unit in 1_u64..1 << 20,
        ) {
            let parameters = SsdParameters { channels, unit, ..SsdParameters::default() };
            let at = Range::at(start, len);
            let shares = (0..u64::from(channels))
                .map(|channel| parameters.below(channel, at.end()) - parameters.below(channel, at.start()));
            prop_assert_eq!(shares.sum::<u64>(), at.len());
        }

        #[test]
        fn no_drive_is_faster_than_its_channels(
            asked in prop::collection::vec((0_u64..1 << 40, 1_u64..4 << 20, 0_u64..2_000_000), 1..60),
        ) {
            let (mut drive, mut now, mut bytes, mut last) = (drive(), Nanos::ZERO, 0, Nanos::ZERO);
            for (start, len, gap) in asked {
                now += Nanos(gap);
                let done = drive.serve(Op::Read, Range::at(start, len), now);
                prop_assert!(done >= now + drive.parameters.read_overhead);
                bytes += len;
                last = last.max(done);
            }
            prop_assert!(last >= transfer(bytes, 8 * drive.parameters.bytes_per_s));
        }
    }
}
