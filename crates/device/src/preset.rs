//! Devices that the thesis measured, so that a simulation of its experiments has the same storage.
//!
//! Table 5.2 names the drives; capacity, speed of rotation and cache are from their data sheets, and so is the order of
//! magnitude of everything else. The rest was searched for, so that the sequential to random throughput ratios are the
//! published ones: those for requests of 8 KiB (Table 3.4, whose caption says 8 MB), and the averages over all sizes
//! (Table 5.6), both for files of 1200 MB. Such a file is a small part of a disk, so it is the short seeks that were fitted:
//! the average seek is what gives them, not what a data sheet calls so. `tests/published.rs` holds the presets against
//! both tables.

use crate::{HddParameters, RaidParameters, SsdParameters};
use presagio_core::Nanos;

/// The disk of Pastel in Toulouse: Hitachi Deskstar 7K250, 250 GB, 7200 rpm, 8 MiB of cache.
pub fn pastel() -> HddParameters {
    HddParameters {
        capacity: 250_000_000_000,
        rpm: 7200,
        bytes_per_s: 58_700_000,
        seek_least: Nanos::from_micros(1_770),
        seek_average: Nanos::from_micros(13_400),
        seek_most: Nanos::from_micros(25_500),
        read_ahead: 1 << 20,
        write_cache: 8 << 20,
        write_slots: 120,
        read_command: Nanos::from_micros(180),
        write_command: Nanos::from_micros(280),
    }
}

/// The disk of Graphene in Nancy: Hitachi Deskstar 7K1000.C, 320 GB, 7200 rpm, 16 MiB of cache.
pub fn graphene() -> HddParameters {
    HddParameters {
        capacity: 320_000_000_000,
        rpm: 7200,
        bytes_per_s: 99_000_000,
        seek_least: Nanos::from_micros(220),
        seek_average: Nanos::from_micros(13_500),
        seek_most: Nanos::from_micros(25_700),
        read_ahead: 1 << 20,
        write_cache: 16 << 20,
        write_slots: 420,
        read_command: Nanos::from_micros(132),
        write_command: Nanos::from_micros(272),
    }
}

/// The storage of Suno in Sophia: two Seagate Savvio 15K.3 of 300 GB, 15000 rpm, 64 MiB of cache, as RAID 0.
pub fn suno() -> RaidParameters {
    let disk = HddParameters {
        capacity: 300_000_000_000,
        rpm: 15_000,
        bytes_per_s: 105_000_000,
        seek_least: Nanos::from_micros(800),
        seek_average: Nanos::from_micros(11_700),
        seek_most: Nanos::from_micros(22_200),
        read_ahead: 1 << 20,
        write_cache: 64 << 20,
        write_slots: 160,
        read_command: Nanos::from_micros(134),
        write_command: Nanos::from_micros(172),
    };
    RaidParameters {
        disk,
        disks: 2,
        stripe: 64 << 10,
    }
}

/// The drive of Edel in Grenoble: Micron C400, 64 GB, behind a link of 1.5 Gb/s.
///
/// Its write cache is small, so that small writes in sequence, which queue for one channel, are slower than random ones.
pub fn edel() -> SsdParameters {
    SsdParameters {
        channels: 8,
        unit: 48 << 10,
        bytes_per_s: 70_700_000,
        read_overhead: Nanos::from_micros(123),
        write_overhead: Nanos::from_micros(126),
        read_ahead: 256 << 10,
        write_cache: 12 << 10,
        write_amplification_percent: 100,
        link_bytes_per_s: 145_000_000,
        read_command: Nanos::from_micros(76),
        write_command: Nanos::from_micros(4),
    }
}
