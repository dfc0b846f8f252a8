//! Every parser against a few thousand damaged inputs, the same in each run: no panic, no end that does not come. The
//! fuzzers in `fuzz/` try the same for as long as one likes.

use presagio_storage::fuzzing::{TARGETS, Target};
use std::fs;
use std::path::Path;

/// Inputs for each parser.
const INPUTS: usize = 20_000;

#[test]
fn configured_layouts_of_any_kind_are_taken_or_refused() {
    fuzz("configured");
}

#[test]
fn anything_that_glusterfs_may_say_is_a_layout_or_an_error() {
    fuzz("gluster");
}

#[test]
fn anything_that_lustre_may_say_is_a_layout_or_an_error() {
    fuzz("lustre");
}

#[test]
fn anything_that_cephfs_may_say_is_a_layout_or_an_error() {
    fuzz("ceph");
}

#[test]
fn anything_in_a_file_of_a_striped_set_is_a_record_or_not() {
    fuzz("record");
    fuzz("set");
}

fn fuzz(name: &str) {
    let target = TARGETS.iter().find(|(target, _)| *target == name);
    let target = target.expect("a target of that name").1;
    let seeds = seeds(name);
    for (path, seed) in &seeds {
        assert!(
            run(target, seed) > 0,
            "{path}: a seed with nothing in it leads nowhere"
        );
    }
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for _ in 0..INPUTS {
        let mut input = seeds[random.below(seeds.len())].1.clone();
        for _ in 0..=random.below(4) {
            let other = &seeds[random.below(seeds.len())].1;
            mutate(&mut input, other, &mut random);
        }
        run(target, &input);
    }
}

fn seeds(name: &str) -> Vec<(String, Vec<u8>)> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(name);
    let entries = fs::read_dir(&corpus).expect("a corpus");
    let mut seeds: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .map(|path| (path.display().to_string(), fs::read(&path).expect("a seed")))
        .collect();
    seeds.sort();
    assert!(!seeds.is_empty(), "{} has no seeds", corpus.display());
    seeds
}

/// Names the input should the parser panic.
fn run(target: Target, input: &[u8]) -> usize {
    let result = std::panic::catch_unwind(|| target(input));
    result.unwrap_or_else(|_| panic!("panic with the input\n{}", input.escape_ascii()))
}

fn mutate(input: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    if input.is_empty() {
        return input.extend_from_slice(other);
    }
    let at = random.below(input.len());
    match random.below(7) {
        0 => input[at] ^= 1 << random.below(8),
        1 => input[at] = [0, 1, 0x7F, 0x80, 0xFF, b'>', b')'][random.below(7)],
        2 => input.truncate(at),
        3 => drop(input.drain(at..at + random.below((input.len() - at).min(16) + 1))),
        4 => {
            let from = random.below(other.len() + 1);
            let piece = &other[from..from + random.below(other.len() - from + 1)];
            input.splice(at..at, piece.iter().copied());
        }
        5 => input.extend_from_slice(other),
        _ => edit_length(input, at, random),
    }
    input.truncate(100_000);
}

/// Overwrites what may be a length.
fn edit_length(input: &mut [u8], at: usize, random: &mut Random) {
    let near = [0, 1, 0xFF, 0xFFFF, 0x7FFF_FFFF, 0xFFFF_FFFF, u64::MAX];
    let value = match random.below(2) {
        0 => near[random.below(near.len())],
        _ => random.below(2 * input.len()) as u64,
    };
    let width = [1, 2, 4, 8][random.below(4)];
    for (to, from) in input[at..].iter_mut().zip(&value.to_le_bytes()[..width]) {
        *to = *from;
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }
}
