//! Reading ahead by the kernel: switched off where the governor says so, where all runs of reads are known and loaded, and
//! where reads are small, far apart and follow nothing; switched on again when that has changed. What follows nothing is believed
//! to do so a little longer than it takes to believe it first: a mode that comes and goes helps nobody.

use super::file::File;
use super::governor::Method;
use super::reader::Reader;
use crate::config::Mode;
use crate::plan::{FileNumber, Hint, Reason};

/// So many reads without a pattern are enough to believe that there is none.
const READS_MIN: u64 = 64;
/// A read that is smaller than the kernel's window by this factor is one that reading ahead multiplies.
const READ_AHEAD_RATIO: f64 = 4.0;
/// Reads that cover more of their neighbourhood than this may profit from reading ahead.
const DENSITY_MAX: f64 = 1.0 / 16.0;
/// By how much either may be exceeded before reading ahead is switched on again.
const PATIENCE: f64 = 2.0;

/// The changes of mode that the last reads of a process call for: of its own open files, since others may read differently.
pub(super) fn modes(file: &mut File, number: FileNumber, process: u32) -> Vec<Hint> {
    let mode = file.readers.get(&process).map(|r| mode(file, r));
    let (Some(mode), Some(reader)) = (mode, file.readers.get_mut(&process)) else {
        return Vec::new();
    };
    reader.mode = mode;
    let others = reader.opens.iter_mut().filter(|open| open.1 != mode);
    let hints = others.map(|open| {
        open.1 = mode;
        Hint::Mode {
            file: number,
            open: open.0,
            mode,
            reason: Reason::Random,
        }
    });
    hints.collect()
}

/// How the kernel should read ahead for a process from now on.
fn mode(file: &File, reader: &Reader) -> Mode {
    let is_random = match reader.mode {
        Mode::Random => is_still_random(file, reader),
        _ => is_random(file, reader),
    };
    match is_random || is_bare(file, reader) {
        true => Mode::Random,
        false => Mode::Normal,
    }
}

fn is_bare(file: &File, reader: &Reader) -> bool {
    match file.governor.method() {
        Method::Bare => true,
        Method::Exact => reader.cursor.is_sure() && reader.has_runs(),
        Method::Nothing | Method::Sieving => false,
    }
}

fn is_random(file: &File, reader: &Reader) -> bool {
    file.governor.method() == Method::Nothing
        && file.governor.waits()
        && !reader.cursor.is_sure()
        && reader.reads >= READS_MIN
        && reader.window.adjacent() == 0
        && is_scattered(file, reader, 1.0)
}

/// Whether what was random still is.
fn is_still_random(file: &File, reader: &Reader) -> bool {
    4 * reader.window.adjacent() < reader.window.len() && is_scattered(file, reader, PATIENCE)
}

/// Whether reads are small and far apart.
fn is_scattered(file: &File, reader: &Reader, patience: f64) -> bool {
    let window = file.device.read_ahead_kb;
    let window = window.map_or(0.0, |kb| f64::from(kb) * 1024.0);
    let is_thin = |density: f64| density < DENSITY_MAX * patience;
    reader.shape.is_none_or(|shape| is_thin(shape.density))
        && READ_AHEAD_RATIO / patience * reader.window.read_len() <= window
}
