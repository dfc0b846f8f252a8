//! Disks side by side: RAID 0, stripes dealt to each in turn.
//!
//! What one request has on a disk lies there in one piece, since stripes of a disk follow each other. The disks work at
//! the same time, each in its own position, and a request is done when its last disk is: a large one waits for the
//! slowest of them.

use crate::error::{ModelError, require};
use crate::{Device, Hdd, HddParameters, dealt_below};
use presagio_core::{Nanos, Op, Range};

/// What an array is like. The default is two disks of the usual kind with stripes of 64 KiB behind a controller with a write
/// cache: without one, writes in sequence come too late for the next stripe and lose a turn each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaidParameters {
    /// Each of the disks.
    pub disk: HddParameters,
    /// How many there are.
    pub disks: u32,
    /// How many bytes in a row lie on one disk.
    pub stripe: u64,
}

impl Default for RaidParameters {
    fn default() -> RaidParameters {
        RaidParameters {
            disk: HddParameters {
                write_cache: 16 << 20,
                read_command: Nanos::from_micros(50),
                write_command: Nanos::from_micros(50),
                ..HddParameters::default()
            },
            disks: 2,
            stripe: 64 << 10,
        }
    }
}

/// An array at work.
#[derive(Clone, Debug)]
pub struct Raid0 {
    disks: Vec<Hdd>,
    stripe: u64,
}

impl Raid0 {
    /// An array at rest.
    pub fn new(parameters: RaidParameters) -> Result<Raid0, ModelError> {
        let few = (1..=4096).contains(&parameters.disks);
        require(few, "disks", "from 1 to 4096")?;
        let small = (1..=1 << 40).contains(&parameters.stripe);
        require(small, "stripe", "from 1 byte to 1 TiB")?;
        let disk = Hdd::new(parameters.disk)?;
        Ok(Raid0 {
            disks: vec![disk; parameters.disks as usize],
            stripe: parameters.stripe,
        })
    }
}

impl Device for Raid0 {
    fn serve(&mut self, op: Op, at: Range, now: Nanos) -> Nanos {
        let (stripe, disks) = (self.stripe, self.disks.len() as u64);
        let mut done = now;
        for (number, disk) in (0..).zip(&mut self.disks) {
            let below = |address| dealt_below(number, address, stripe, disks);
            let start = below(at.start());
            let piece = Range::at(start, below(at.end()) - start);
            if !piece.is_empty() {
                done = done.max(disk.serve(op, piece, now));
            }
        }
        done
    }

    fn flush(&mut self, now: Nanos) -> Nanos {
        let flushed = self.disks.iter_mut().map(|disk| disk.flush(now));
        flushed.max().unwrap_or(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn array(disks: u32) -> Raid0 {
        let parameters = RaidParameters {
            disks,
            ..RaidParameters::default()
        };
        Raid0::new(parameters).expect("parameters that hold")
    }

    fn sequential(device: &mut dyn Device, bytes: u64) -> Nanos {
        let mut now = device.serve(Op::Read, Range::at(0, bytes), Nanos::ZERO);
        let begin = now;
        for i in 1..=100 {
            now = device.serve(Op::Read, Range::at(i * bytes, bytes), now);
        }
        Nanos((now - begin).0 / 100)
    }

    #[test]
    fn two_disks_read_twice_as_fast_in_sequence_and_never_seek_less_at_random() {
        let one = sequential(&mut array(1), 4 * MIB).as_secs_f64();
        let two = sequential(&mut array(2), 4 * MIB).as_secs_f64();
        assert!((1.9..2.1).contains(&(one / two)), "{one} {two}");
        let far = Range::at(1 << 40, 8192);
        let (mut one, mut two) = (array(1), array(2));
        let alone = one.serve(Op::Read, far, Nanos::ZERO);
        assert!(two.serve(Op::Read, far, Nanos::ZERO).0 > alone.0 / 3);
    }

    #[test]
    fn an_array_of_one_is_its_disk() {
        let (mut one, mut disk) = (
            array(1),
            Hdd::new(RaidParameters::default().disk).expect("a preset"),
        );
        let mut now = Nanos::ZERO;
        for place in [0, 1 << 30, 7 << 20, 1 << 39] {
            let at = Range::at(place, MIB);
            let done = one.serve(Op::Write, at, now);
            assert_eq!(done, disk.serve(Op::Write, at, now));
            now = done;
        }
    }

    #[test]
    fn parameters_of_no_array_are_refused_by_name() {
        let usual = RaidParameters::default;
        let disk = HddParameters {
            rpm: 0,
            ..HddParameters::default()
        };
        let wrong = [
            (
                "disks",
                RaidParameters {
                    disks: 0,
                    ..usual()
                },
            ),
            (
                "stripe",
                RaidParameters {
                    stripe: 0,
                    ..usual()
                },
            ),
            ("rpm", RaidParameters { disk, ..usual() }),
        ];
        for (name, parameters) in wrong {
            let error = Raid0::new(parameters).expect_err(name).to_string();
            assert!(error.contains(name), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_array_is_faster_than_its_platters(
            asked in prop::collection::vec((any::<bool>(), 0_u64..1 << 42, 1_u64..4 * MIB), 1..40),
        ) {
            let (mut array, mut now, mut bytes) = (array(3), Nanos::ZERO, 0);
            for (write, start, len) in asked {
                let op = if write { Op::Write } else { Op::Read };
                let done = array.serve(op, Range::at(start, len), now);
                prop_assert!(done >= now);
                (now, bytes) = (done, bytes + len);
            }
            let now = array.flush(now);
            prop_assert!(now >= transfer(bytes, 3 * HddParameters::default().bytes_per_s));
        }

        #[test]
        fn no_address_is_too_large(start in any::<u64>(), len in any::<u64>(), now in any::<u64>()) {
            let done = array(3).serve(Op::Write, Range::at(start, len), Nanos(now));
            prop_assert!(done >= Nanos(now));
        }
    }
}
