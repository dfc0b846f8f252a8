//! What programs read: patterns after MERCURY §IV-B and the issue, from a seed.

use super::room::{Dice, Program};
use presagio_core::Range;
use std::path::PathBuf;

fn one_file(size: u64, reads: Vec<Range>, think_us: u64) -> Program {
    Program {
        files: vec![(PathBuf::from("/data/big.root"), size)],
        reads: reads.into_iter().map(|range| (0, range)).collect(),
        think_ns: think_us * 1000,
        processes: 1,
        drop_at: None,
    }
}

/// Reads of `mean` bytes over about half of the file, with gaps; every 32 reads or so one lies 1–8 MiB back.
pub fn root_like(size: u64, mean: u64, think_us: u64, seed: u64) -> Program {
    with_gaps(size, mean, 2 * mean, think_us, seed)
}

/// The same over 30 % of the file: sieving is possible, and moves more than three times what is read.
pub fn thin(size: u64, mean: u64, think_us: u64, seed: u64) -> Program {
    with_gaps(size, mean, 14 * mean / 3, think_us, seed)
}

fn with_gaps(size: u64, mean: u64, gap_max: u64, think_us: u64, seed: u64) -> Program {
    let mut dice = Dice(seed);
    let (mut reads, mut at) = (Vec::new(), 0);
    while at + 2 * mean < size {
        let len = mean / 2 + dice.below(mean);
        let back = (1 << 20) + dice.below(7 << 20);
        if dice.below(32) == 0 && at > back {
            reads.push(Range::at(at - back, len));
            continue;
        }
        reads.push(Range::at(at, len));
        at += len + dice.below(gap_max);
    }
    one_file(size, reads, think_us)
}

/// The same with reads of one size.
pub fn one_size(size: u64, len: u64, think_us: u64, seed: u64) -> Program {
    let mut program = root_like(size, len, think_us, seed);
    for (_, range) in &mut program.reads {
        *range = Range::at(range.start(), len);
    }
    program
}

/// The same from the end to the beginning.
pub fn backward(size: u64, mean: u64, think_us: u64, seed: u64) -> Program {
    let mut program = root_like(size, mean, think_us, seed);
    for (_, range) in &mut program.reads {
        *range = Range::at(size - range.end(), range.len());
    }
    program
}

/// Small reads far apart, in order.
pub fn strided(stride: u64, len: u64, count: u64, think_us: u64) -> Program {
    let reads = (0..count).map(|i| Range::at(i * stride, len)).collect();
    one_file(count * stride, reads, think_us)
}

/// One read after the other.
pub fn sequential(size: u64, len: u64, think_us: u64) -> Program {
    let reads = (0..size / len).map(|i| Range::at(i * len, len)).collect();
    one_file(size, reads, think_us)
}

/// Anywhere.
pub fn random(size: u64, len: u64, count: u64, think_us: u64) -> Program {
    let mut dice = Dice(7);
    let reads = (0..count).map(|_| Range::at(dice.below((size - len) / 4096) * 4096, len));
    one_file(size, reads.collect(), think_us)
}

/// Dense and moving, and from the middle on anywhere in the second half.
pub fn hostile(size: u64, mean: u64, think_us: u64) -> Program {
    let mut program = root_like(size / 2, mean, think_us, 5);
    let mut dice = Dice(11);
    program.files[0].1 = size;
    for _ in 0..program.reads.len() {
        let start = size / 2 + dice.below(size / 2 - mean);
        program.reads.push((0, Range::at(start, mean)));
    }
    program
}

/// Steps in a file each, with offsets that follow no rule but are the same in each file.
pub fn time_steps(files: usize, size: u64, reads: u64, len: u64, think_us: u64) -> Program {
    let mut dice = Dice(3);
    let pieces: Vec<Range> = (0..reads)
        .map(|_| Range::at(dice.below((size - len) / 512) * 512, len))
        .collect();
    let names = (0..files).map(|i| (PathBuf::from(format!("/data/step_{i:04}.dat")), size));
    Program {
        files: names.collect(),
        reads: (0..files)
            .flat_map(|f| pieces.iter().map(move |p| (f, *p)))
            .collect(),
        think_ns: think_us * 1000,
        processes: 1,
        drop_at: None,
    }
}

/// The same reads by several processes, one after the other.
pub fn instances(mut program: Program, count: u32) -> Program {
    let reads = program.reads.into_iter();
    program.reads = reads
        .flat_map(|read| (0..count).map(move |_| read))
        .collect();
    program.processes = count;
    program
}

/// The same reads again, without opening the file again, but from a cache that has lost it.
pub fn twice(mut program: Program) -> Program {
    program.drop_at = Some(program.reads.len());
    program.reads.extend_from_within(..);
    program
}
