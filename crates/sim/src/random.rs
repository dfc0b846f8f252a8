//! Random numbers that are the same in every run and on every machine.

/// A generator that is fully known by its seed (SplitMix64, after Steele, Lea and Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The generator of this seed and of this use of it: uses of one seed do not repeat each other.
    pub(crate) fn new(seed: u64, usage: u64) -> Random {
        Random(mix(seed ^ mix(usage.wrapping_add(1))))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// Below `bound`, all alike; 0 where `bound` is 0.
    #[inline]
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        // The high half of a product: no division, and a bias of less than bound / 2⁶⁴.
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The numbers below `count` in an order that looks random: each comes exactly once, none is stored.
///
/// Four rounds of a Feistel network over the next power of four; what falls behind `count` is sent through again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shuffled {
    count: u64,
    half_bits: u32,
    seed: u64,
}

impl Shuffled {
    pub(crate) fn new(count: u64, seed: u64) -> Shuffled {
        let bits = 64 - count.saturating_sub(1).leading_zeros();
        Shuffled {
            count,
            half_bits: bits.div_ceil(2).max(1),
            seed,
        }
    }

    /// The number at this place of the order.
    pub(crate) fn at(&self, place: u64) -> u64 {
        let mut number = place;
        loop {
            number = self.permute(number);
            if number < self.count {
                return number;
            }
        }
    }

    fn permute(&self, number: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (number >> self.half_bits, number & mask);
        for round in 0..4 {
            let turned = mix(self.seed ^ (right << 3 | round)) & mask;
            (left, right) = (right, left ^ turned);
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_on_every_machine() {
        let mut random = Random::new(1, 0);
        let numbers = [random.next(), random.next(), random.below(1000)];
        let mut again = Random::new(1, 0);
        assert_eq!(numbers, [again.next(), again.next(), again.below(1000)]);
        assert_ne!(Random::new(1, 1).next(), numbers[0]);
        assert_ne!(Random::new(2, 0).next(), numbers[0]);
    }

    proptest! {
        #[test]
        fn a_shuffled_order_has_every_number_once(count in 1_u64..2000, seed in any::<u64>()) {
            let order = Shuffled::new(count, seed);
            let mut seen: Vec<u64> = (0..count).map(|place| order.at(place)).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..count).collect::<Vec<_>>());
        }

        #[test]
        fn numbers_stay_below_their_bound(seed in any::<u64>(), bound in 1_u64..) {
            prop_assert!(Random::new(seed, 0).below(bound) < bound);
        }
    }
}
