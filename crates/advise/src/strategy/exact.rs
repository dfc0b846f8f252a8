//! Exact loading: from the ranges that are known to come, the loads that are best for the device.
//!
//! Reading a gap between two ranges costs its bytes, skipping it costs one more operation. So gaps below the break-even
//! of the device ([`Fit::break_even`]) are read: at 150 operations a second this becomes sieving by itself, at
//! 110 MB/s it hardly ever happens. Where nobody knows the break-even, or sieving gains, small gaps are read all the same
//! (`File::gap`): operations that turn out to be few are worse than bytes that turn out to be.

use super::speed::Fit;
use presagio_core::Range;

/// No load becomes larger: MERCURY's block.
pub const LOAD_MAX: u64 = 4 << 20;

/// Joins ranges whose gap is at most `gap`, up to `load_max` bytes a load. The loads come in the order in which they are
/// needed: in that of their offsets, the next read might have to wait for all.
pub fn merge(ranges: Vec<Range>, gap: u64, load_max: u64) -> Vec<Range> {
    let mut loads: Vec<(usize, Range)> = ranges.into_iter().enumerate().collect();
    loads.retain(|(_, range)| !range.is_empty());
    loads.sort_by_key(|(_, range)| range.start());
    loads.dedup_by(|(next_order, next), (order, whole)| {
        let end = whole.end().max(next.end());
        let joins = next.start() <= whole.end().saturating_add(gap)
            && (end - whole.start() <= load_max || next.end() <= whole.end());
        if joins {
            *whole = Range::at(whole.start(), end - whole.start());
            *order = (*order).min(*next_order);
        }
        joins
    });
    loads.sort_by_key(|(order, _)| *order);
    loads.into_iter().map(|(_, range)| range).collect()
}

/// The time that the device needs for these loads, when no operation is larger than `operation_max`.
pub fn time(loads: &[Range], fit: &Fit, operation_max: u64) -> f64 {
    loads
        .iter()
        .map(|load| {
            let operations = load.len().div_ceil(operation_max.max(1));
            fit.time(operations as f64, load.len() as f64)
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_gaps_are_read_large_ones_are_not_and_what_is_needed_first_comes_first() {
        let ranges = vec![Range::at(500, 100), Range::at(0, 100), Range::at(150, 50)];
        assert_eq!(
            merge(ranges.clone(), 50, LOAD_MAX),
            [Range::at(500, 100), Range::at(0, 200)]
        );
        assert_eq!(merge(ranges, 300, LOAD_MAX), [Range::at(0, 600)]);
    }

    proptest! {
        #[test]
        fn all_that_is_asked_for_is_loaded_and_little_else(
            ranges in prop::collection::vec((0u64..1 << 24, 1u64..1 << 16), 1..64),
            gap in 0u64..1 << 20,
        ) {
            let ranges: Vec<Range> = ranges.into_iter().map(|(s, l)| Range::at(s, l)).collect();
            let loads = merge(ranges.clone(), gap, LOAD_MAX);
            let inside = |at: u64| loads.iter().any(|l| l.start() <= at && at < l.end());
            for range in &ranges {
                prop_assert!(inside(range.start()) && inside(range.end() - 1));
            }
            let asked: u64 = ranges.iter().map(|r| r.len()).sum();
            let loaded: u64 = loads.iter().map(|l| l.len()).sum();
            prop_assert!(loaded <= asked + ranges.len() as u64 * gap);
            prop_assert!(loads.iter().all(|l| l.len() <= LOAD_MAX));
        }
    }
}
