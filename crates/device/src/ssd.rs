//! A solid-state drive: channels that work in parallel, each on its share of the addresses.
//!
//! Addresses are dealt to the channels in turn, so a large request keeps all of them busy and small ones at random places
//! meet on the same channel now and then. A channel serves its share of a request after those it has: some time for the
//! command, then the transfer.
//!
//! Left out: erasing, wear, garbage collection, a cache of its own.

use crate::error::{ModelError, require};
use crate::{Device, transfer};
use presagio_core::{Nanos, Op, Range};

/// What a drive is like. The default is a usual SATA one.
///
/// Its data sheets say about 550 MB/s and 90 000 reads of 4 KiB a second with many in flight, and one read alone takes
/// about 0.1 ms: eight channels of 70 MB/s with 35 µs for a command give 560 MB/s, 86 000 a second and 94 µs; units of
/// 8 KiB give 32 KiB alone about 200 MB/s. A write is done when the drive's capacitor-backed memory has it, so its
/// command is shorter.
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
}

impl Default for SsdParameters {
    fn default() -> SsdParameters {
        SsdParameters {
            channels: 8,
            unit: 8 << 10,
            bytes_per_s: 70_000_000,
            read_overhead: Nanos::from_micros(35),
            write_overhead: Nanos::from_micros(15),
        }
    }
}

impl SsdParameters {
    fn check(&self) -> Result<(), ModelError> {
        let few = (1..=4096).contains(&self.channels);
        require(few, "channels", "from 1 to 4096")?;
        let small = (1..=1 << 40).contains(&self.unit);
        require(small, "unit", "from 1 byte to 1 TiB")?;
        require(self.bytes_per_s > 0, "bytes_per_s", "more than 0")
    }

    /// How many of the addresses below `end` are on a channel.
    fn below(&self, channel: u64, end: u64) -> u64 {
        let row = self.unit * u64::from(self.channels);
        let rest = (end % row).saturating_sub(channel * self.unit);
        end / row * self.unit + rest.min(self.unit)
    }

    fn overhead(&self, op: Op) -> Nanos {
        match op {
            Op::Read => self.read_overhead,
            Op::Write => self.write_overhead,
        }
    }
}

/// A drive at work.
#[derive(Clone, Debug)]
pub struct Ssd {
    parameters: SsdParameters,
    /// When each channel has done all that was asked for.
    free: Vec<Nanos>,
}

impl Ssd {
    /// A drive at rest.
    pub fn new(parameters: SsdParameters) -> Result<Ssd, ModelError> {
        parameters.check()?;
        let free = vec![Nanos::ZERO; parameters.channels as usize];
        Ok(Ssd { parameters, free })
    }
}

impl Device for Ssd {
    fn serve(&mut self, op: Op, at: Range, now: Nanos) -> Nanos {
        let mut done = now;
        for (channel, free) in (0..).zip(&mut self.free) {
            let bytes = self.parameters.below(channel, at.end())
                - self.parameters.below(channel, at.start());
            if bytes > 0 {
                let takes =
                    self.parameters.overhead(op) + transfer(bytes, self.parameters.bytes_per_s);
                *free = now.max(*free) + takes;
                done = done.max(*free);
            }
        }
        done
    }

    /// What it has answered survives.
    fn flush(&mut self, now: Nanos) -> Nanos {
        now
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
