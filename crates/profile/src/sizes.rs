//! Which sizes to measure: SeRRa's first step.

use crate::Random;
use presagio_device::profile::Interval;

/// `points` sizes of an interval, drawn at random without repetition; its ends are always among them. Rising.
pub fn drawn(interval: Interval, points: usize, random: &mut Random) -> Vec<u64> {
    let mut within: Vec<u64> = interval.sizes().collect();
    let (least, most) = (within.remove(0), within.pop());
    random.shuffle(&mut within);
    within.truncate(points.saturating_sub(2));
    within.push(least);
    within.extend(most);
    within.sort_unstable();
    within
}

/// Those of all intervals, rising, each once.
pub fn drawn_from_all(intervals: &[Interval], points: usize, random: &mut Random) -> Vec<u64> {
    let each = intervals.iter();
    let mut sizes: Vec<u64> = each.flat_map(|i| drawn(*i, points, random)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn two_points_are_the_ends_and_intervals_that_touch_share_one() {
        let mut random = Random::new(3);
        let sizes = drawn_from_all(&Interval::published(), 2, &mut random);
        assert_eq!(sizes, [8 << 10, 64 << 10, 4 << 20]);
    }

    proptest! {
        #[test]
        fn as_many_as_were_asked_for_of_the_intervals_own_sizes(
            seed in any::<u64>(), least in 1_u64..100, step in 1_u64..50, steps in 1_u64..60, points in 0_usize..80,
        ) {
            let interval = Interval::new(least, least + step * steps, step).expect("whole steps");
            let sizes = drawn(interval, points, &mut Random::new(seed));
            prop_assert_eq!(sizes.len(), points.clamp(2, steps as usize + 1));
            prop_assert!(sizes.is_sorted_by(|a, b| a < b));
            prop_assert_eq!((sizes[0], sizes[sizes.len() - 1]), (interval.least(), interval.most()));
            prop_assert!(sizes.iter().all(|size| (size - least).is_multiple_of(step)));
        }
    }
}
