//! Which byte of a file is which byte of which object. Pure arithmetic.
//!
//! ```text
//!   file    | stripe 0 | stripe 1 | stripe 2 | stripe 3 | stripe 4 | …        three objects
//!   object 0: stripe 0, stripe 3, …    object 1: stripe 1, stripe 4, …    object 2: stripe 2, …
//! ```

use presagio_core::Range;

/// How a file is striped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a stripe, not 0.
    pub stripe: u64,
    /// How many objects take turns, not 0.
    pub objects: u16,
}

impl Geometry {
    /// The parts of a range of the file in the order of its bytes: which object, and where in it. At least one.
    pub fn split(self, range: Range) -> impl Iterator<Item = (u16, Range)> {
        let mut next = Some(range.start());
        std::iter::from_fn(move || {
            let start = next?;
            let left = self.stripe - start % self.stripe;
            let part = Range::at(start, left.min(range.end() - start));
            next = (part.end() < range.end()).then_some(part.end());
            let (object, offset) = self.object_of(start);
            Some((object, Range::at(offset, part.len())))
        })
    }

    /// Which object has this byte of the file, and where.
    fn object_of(self, offset: u64) -> (u16, u64) {
        let (number, rest) = (offset / self.stripe, offset % self.stripe);
        let objects = u64::from(self.objects);
        // Below `objects`, which is a u16.
        let object = (number % objects) as u16;
        (object, number / objects * self.stripe + rest)
    }

    /// How long an object is when the file is full of bytes up to `size`.
    pub fn object_len(self, object: u16, size: u64) -> u64 {
        let (rows, rest) = self.rows(size);
        let before = u128::from(object) * u128::from(self.stripe);
        let last = rest.saturating_sub(before).min(u128::from(self.stripe));
        // Never more than `size`.
        rows * self.stripe + last as u64
    }

    /// How many full rows there are up to `size`, and how many bytes behind them.
    fn rows(self, size: u64) -> (u64, u128) {
        let row = u128::from(self.stripe) * u128::from(self.objects);
        let size = u128::from(size);
        // At most `size`.
        ((size / row) as u64, size % row)
    }

    /// Where the file ends if the last byte of this object is its last.
    pub fn file_len(self, object: u16, object_len: u64) -> u64 {
        let Some(last) = object_len.checked_sub(1) else {
            return 0;
        };
        let (row, rest) = (last / self.stripe, last % self.stripe);
        let number = u128::from(row) * u128::from(self.objects) + u128::from(object);
        let end = number * u128::from(self.stripe) + u128::from(rest) + 1;
        u64::try_from(end).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_byte_has_one_place_and_no_two_share_one(
            stripe in 1_u64..9, objects in 1_u16..6, size in 1_u64..200,
        ) {
            let geometry = Geometry { stripe, objects };
            let places: Vec<_> = (0..size).map(|byte| geometry.object_of(byte)).collect();
            for object in 0..objects {
                let mut offsets: Vec<_> =
                    places.iter().filter(|place| place.0 == object).map(|place| place.1).collect();
                prop_assert_eq!(offsets.len() as u64, geometry.object_len(object, size));
                prop_assert!(offsets.is_sorted());
                offsets.dedup();
                prop_assert!(offsets.iter().zip(0..).all(|(offset, next)| *offset == next));
            }
            let (object, offset) = geometry.object_of(size - 1);
            prop_assert_eq!(geometry.file_len(object, offset + 1), size);
        }

        #[test]
        fn a_range_is_split_at_stripes_and_nothing_is_lost(
            stripe in 1_u64..9, objects in 1_u16..6, start in 0_u64..100, len in 0_u64..100,
        ) {
            let geometry = Geometry { stripe, objects };
            let mut byte = start;
            for (object, range) in geometry.split(Range::at(start, len)) {
                prop_assert!(range.len() <= stripe);
                for offset in range.start()..range.end() {
                    prop_assert_eq!(geometry.object_of(byte), (object, offset));
                    byte += 1;
                }
            }
            prop_assert_eq!(byte, start + len);
        }

        #[test]
        fn no_length_is_too_large(stripe in 1..=u64::MAX, objects in 1..=u16::MAX, size in any::<u64>()) {
            let geometry = Geometry { stripe, objects };
            for object in [0, objects - 1] {
                let len = geometry.object_len(object, size);
                prop_assert!(len <= size);
                prop_assert!(geometry.file_len(object, len) <= size);
            }
        }
    }
}
