//! Hash maps over identifiers that behave the same in every run.
//!
//! The standard map seeds its hasher at random, which would make iteration order, and with it decisions,
//! differ from run to run. Identifiers are single integers, so one multiplication mixes them well enough.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};

/// A hash map keyed by identifiers, or small tuples of integers.
pub type IdHashMap<K, V> = HashMap<K, V, IdBuildHasher>;

/// Builds hashers that are seeded alike in every run.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdBuildHasher;

impl BuildHasher for IdBuildHasher {
    type Hasher = IdHasher;
    fn build_hasher(&self) -> IdHasher {
        IdHasher(0)
    }
}

/// Folds each integer in with a 128-bit multiplication whose halves are combined, so that high and low
/// bits of the key reach all bits of the hash.
#[derive(Clone, Copy, Debug)]
pub struct IdHasher(u64);

/// 2⁶⁴ divided by the golden ratio, made odd.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

impl IdHasher {
    fn fold(&mut self, word: u64) {
        let mixed = u128::from(self.0 ^ word ^ (MULTIPLIER >> 7)) * u128::from(MULTIPLIER);
        self.0 = (mixed as u64) ^ ((mixed >> 64) as u64);
    }
}

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.fold(u64::from_le_bytes(word));
        }
        self.fold(bytes.len() as u64);
    }

    fn write_u8(&mut self, n: u8) {
        self.fold(u64::from(n));
    }

    fn write_u32(&mut self, n: u32) {
        self.fold(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        self.fold(n);
    }

    fn write_usize(&mut self, n: usize) {
        self.fold(n as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Offsets are multiples of block sizes and identifiers are small integers: neither may collide in
    /// the bits that a hash map looks at (the low ones for the bucket, the top seven for the tag).
    #[test]
    fn regular_keys_spread_over_buckets() {
        for shift in [0, 4, 12, 20, 32] {
            let low: HashSet<u64> = (0..4096u64)
                .map(|k| IdBuildHasher.hash_one(k << shift) & 0xFFFF)
                .collect();
            assert!(low.len() > 3500, "shift {shift}: {} buckets", low.len());
        }
    }

    #[test]
    fn the_same_key_hashes_alike_in_every_run() {
        assert_eq!(IdBuildHasher.hash_one(42u64), IdBuildHasher.hash_one(42u64));
        assert_ne!(IdBuildHasher.hash_one("ab"), IdBuildHasher.hash_one("ab\0"));
    }
}
