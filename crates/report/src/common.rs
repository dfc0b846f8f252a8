//! The commonest values of a stream, in a few words of memory.

/// Values that are kept.
const KEPT: usize = 8;

/// The space-saving sketch: as long as there are no more than [`KEPT`] different values it counts exactly; after that a
/// new value takes the place of the rarest, and inherits its count. Whatever is common stays.
#[derive(Clone, Debug, Default)]
pub(crate) struct Common {
    values: [(u64, u64); KEPT],
    used: u8,
    replaced: bool,
}

impl Common {
    /// Counts a value.
    #[inline]
    pub fn add(&mut self, value: u64) {
        self.add_times(value, 1);
    }

    fn add_times(&mut self, value: u64, times: u64) {
        let used = self.used as usize;
        if let Some(known) = self.values[..used].iter_mut().find(|v| v.0 == value) {
            known.1 += times;
        } else if used < KEPT {
            self.values[used] = (value, times);
            self.used += 1;
        } else {
            self.replaced = true;
            if let Some(rarest) = self.values.iter_mut().min_by_key(|v| v.1) {
                *rarest = (value, rarest.1 + times);
            }
        }
    }

    /// Adds what another one counted.
    pub fn merge(&mut self, other: &Common) {
        self.replaced |= other.replaced;
        for (value, times) in &other.values[..other.used as usize] {
            self.add_times(*value, *times);
        }
    }

    /// Values and how often they came, the commonest first.
    pub fn commonest(&self) -> Vec<(u64, u64)> {
        let mut all = self.values[..self.used as usize].to_vec();
        all.sort_by_key(|(value, times)| (std::cmp::Reverse(*times), *value));
        all
    }

    /// Whether the counts are exact.
    pub fn is_exact(&self) -> bool {
        !self.replaced
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_values_are_counted_exactly() {
        let mut common = Common::default();
        [7, 4096, 4096, 7, 4096].iter().for_each(|v| common.add(*v));
        assert_eq!(common.commonest(), [(4096, 3), (7, 2)]);
        assert!(common.is_exact());
    }

    #[test]
    fn what_is_common_survives_any_number_of_others() {
        let mut common = Common::default();
        for n in 0..10_000 {
            common.add(if n % 3 == 0 { 4096 } else { n });
        }
        assert_eq!(common.commonest()[0].0, 4096);
        assert!(!common.is_exact());
    }

    #[test]
    fn two_counts_add_up() {
        let (mut a, mut b) = (Common::default(), Common::default());
        a.add(1);
        b.add(1);
        b.add(2);
        a.merge(&b);
        assert_eq!(a.commonest(), [(1, 2), (2, 1)]);
    }
}
