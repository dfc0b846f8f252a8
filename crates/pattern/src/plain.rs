//! The same distances and decisions as one would write them down: nothing is skipped, nothing is abandoned.
//!
//! For tests and benches, which hold the fast way against it.

use crate::settings::{Distance, OpSettings};
use crate::{Pattern, Settings};
use presagio_core::Op;

/// The distance of two series by a definition.
pub fn distance(a: &[u32], b: &[u32], by: Distance) -> u64 {
    match by {
        Distance::FastDtw { radius } => fast_dtw(a, b, radius as usize),
        Distance::Band { radius } => band(a, b, radius as usize),
    }
}

/// FastDTW: warps both series at half their resolution, projects the path, and warps along it.
pub fn fast_dtw(a: &[u32], b: &[u32], radius: usize) -> u64 {
    match (a.len(), b.len()) {
        (0, 0) => 0,
        (0, _) | (_, 0) => u64::MAX,
        _ => path(a, b, radius).0,
    }
}

/// Exact warping in the band that [`Distance::Band`] defines.
pub fn band(a: &[u32], b: &[u32], radius: usize) -> u64 {
    let (long, short) = if a.len() >= b.len() { (a, b) } else { (b, a) };
    match short.len() {
        0 if long.is_empty() => 0,
        0 => u64::MAX,
        _ => {
            let within = |row: usize| {
                let centre = row * short.len() / long.len();
                let first = centre.saturating_sub(radius);
                (first, (centre + radius).min(short.len() - 1))
            };
            warp(
                long,
                short,
                &(0..long.len()).map(within).collect::<Vec<_>>(),
            )
            .0
        }
    }
}

type Path = Vec<(usize, usize)>;

fn path(a: &[u32], b: &[u32], radius: usize) -> (u64, Path) {
    if a.len() <= radius + 2 || b.len() <= radius + 2 {
        let everything = vec![(0, b.len() - 1); a.len()];
        return warp(a, b, &everything);
    }
    let (_, coarse) = path(&halved(a), &halved(b), radius);
    let window = projected(&coarse, a.len(), b.len(), radius);
    warp(a, b, &window)
}

/// Means of neighbours; a last one without a neighbour stays.
fn halved(series: &[u32]) -> Vec<u32> {
    let mean = |pair: &[u32]| match *pair {
        [x, y] => ((u64::from(x) + u64::from(y)) / 2) as u32,
        _ => pair[0],
    };
    series.chunks(2).map(mean).collect()
}

/// The columns of each row that lie within `radius` of the path at twice its resolution.
fn projected(path: &Path, rows: usize, columns: usize, radius: usize) -> Vec<(usize, usize)> {
    let mut window = vec![(usize::MAX, 0); rows];
    for &(row, column) in path {
        let first = (2 * row).saturating_sub(radius);
        let last = (2 * row + 1 + radius).min(rows - 1);
        for (from, to) in &mut window[first..=last] {
            *from = (*from).min((2 * column).saturating_sub(radius));
            *to = (*to).max((2 * column + 1 + radius).min(columns - 1));
        }
    }
    window
}

/// Warps within a window: the least sum of differences along a path from the first pair to the last, and the path.
fn warp(a: &[u32], b: &[u32], window: &[(usize, usize)]) -> (u64, Path) {
    let mut costs: Vec<Vec<u64>> = Vec::with_capacity(a.len());
    for (row, &(first, last)) in window.iter().enumerate() {
        let mut line = Vec::with_capacity(last + 1 - first);
        for (column, y) in (first..).zip(&b[first..=last]) {
            let before = [
                row.checked_sub(1).zip(column.checked_sub(1)),
                row.checked_sub(1).map(|row| (row, column)),
            ];
            let above = before.into_iter().flatten();
            let above = above.filter_map(|(r, c)| at(&costs[r], window[r], c));
            let left = line.last().copied();
            let least = above.chain(left).min();
            let difference = u64::from(a[row].abs_diff(*y));
            let first_pair = row == 0 && column == 0;
            line.push(match least {
                _ if first_pair => difference,
                Some(least) => least.saturating_add(difference),
                None => u64::MAX,
            });
        }
        costs.push(line);
    }
    let distance = costs[a.len() - 1][b.len() - 1 - window[a.len() - 1].0];
    (distance, back(&costs, window, b.len()))
}

fn at(line: &[u64], (first, _): (usize, usize), column: usize) -> Option<u64> {
    line.get(column.checked_sub(first)?).copied()
}

/// The path, from its end. Of equal ways the diagonal one counts, then the one along the rows.
fn back(costs: &[Vec<u64>], window: &[(usize, usize)], columns: usize) -> Path {
    let (mut row, mut column) = (costs.len() - 1, columns - 1);
    let mut path = vec![(row, column)];
    while (row, column) != (0, 0) {
        let diagonal = row.checked_sub(1).zip(column.checked_sub(1));
        let up = row.checked_sub(1).map(|row| (row, column));
        let left = column.checked_sub(1).map(|column| (row, column));
        let ways = [diagonal, up, left].into_iter().flatten();
        let known = ways.filter_map(|(r, c)| Some((at(&costs[r], window[r], c)?, (r, c))));
        // `min_by_key` takes the first of equal ones. Windows are connected, so there is always one.
        let Some((_, best)) = known.min_by_key(|(cost, _)| *cost) else {
            break;
        };
        (row, column) = best;
        path.push(best);
    }
    path.reverse();
    path
}

/// What Algorithm 1 found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// The place of the match, if there is one, and its score.
    pub best: Option<(usize, f64)>,
    /// The greatest distance now.
    pub distance_max: u64,
}

/// Algorithm 1, up to where a pattern without a match is taken in. `distance_max` is the greatest distance so far.
pub fn find<'a>(
    pattern: &Pattern,
    known: impl Iterator<Item = &'a Pattern>,
    settings: &Settings,
    mut distance_max: u64,
) -> Found {
    let OpSettings {
        difference_max,
        threshold,
        ..
    } = *settings.of(pattern.majority());
    let majority: Op = pattern.majority();
    let mut best = None;
    for (place, other) in known.enumerate() {
        if other.majority() != majority || settings.difference(pattern, other) >= difference_max {
            continue;
        }
        let apart = distance(&pattern.points, &other.points, settings.distance);
        distance_max = distance_max.max(apart);
        let score = score(apart, distance_max);
        if score > threshold && best.is_none_or(|(_, before)| score > before) {
            best = Some((place, score));
        }
    }
    Found { best, distance_max }
}

/// 1 − distance/greatest; 0/0 is 0, so that the first score of equal patterns is 1.
pub fn score(distance: u64, greatest: u64) -> f64 {
    match distance {
        0 => 1.0,
        _ => 1.0 - distance as f64 / greatest as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Warping over everything, by recursion over prefixes.
    fn dtw(a: &[u32], b: &[u32]) -> u64 {
        let mut costs = vec![vec![u64::MAX; b.len() + 1]; a.len() + 1];
        costs[0][0] = 0;
        for i in 1..=a.len() {
            for j in 1..=b.len() {
                let least = costs[i - 1][j - 1]
                    .min(costs[i - 1][j])
                    .min(costs[i][j - 1]);
                costs[i][j] = least.saturating_add(a[i - 1].abs_diff(b[j - 1]).into());
            }
        }
        costs[a.len()][b.len()]
    }

    #[test]
    fn halving_averages_neighbours_and_keeps_the_last() {
        assert_eq!(halved(&[1, 3, 10, 20, 7]), [2, 15, 7]);
    }

    #[test]
    fn a_shift_costs_only_the_ends() {
        let wave = |shift: usize| -> Vec<u32> {
            let value = |i: usize| if (i + shift) % 16 < 8 { 1000 } else { 0 };
            (0..64).map(value).collect()
        };
        let straight: u64 = wave(0)
            .iter()
            .zip(&wave(2))
            .map(|(x, y)| u64::from(x.abs_diff(*y)))
            .sum();
        assert_eq!(straight, 16_000);
        assert_eq!(band(&wave(0), &wave(2), 5), 2000);
        assert_eq!(fast_dtw(&wave(0), &wave(2), 1), 2000);
    }

    proptest! {
        #[test]
        fn fast_dtw_and_band_are_never_below_warping_over_everything(
            a in proptest::collection::vec(0_u32..1000, 1..60),
            b in proptest::collection::vec(0_u32..1000, 1..60),
            radius in 0_usize..8,
        ) {
            let exact = dtw(&a, &b);
            prop_assert!(fast_dtw(&a, &b, radius) >= exact);
            prop_assert!(band(&a, &b, radius) >= exact);
            prop_assert_eq!(band(&a, &b, 60), exact);
            prop_assert_eq!(fast_dtw(&a, &b, 60), exact);
            prop_assert_eq!(band(&a, &b, radius), band(&b, &a, radius));
            prop_assert!(fast_dtw(&a, &b, radius) < u64::MAX && band(&a, &b, radius) < u64::MAX);
            prop_assert_eq!(fast_dtw(&a, &a, radius), 0);
        }
    }
}
