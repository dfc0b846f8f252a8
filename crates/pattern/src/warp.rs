//! Distances of series, in as little time as the decision allows.
//!
//! A decision needs the exact distance of two patterns only if it may be a new maximum, or if they may match better than
//! what was found so far. Bounds that need no warping tell: from extremes and ends in constant time, from an envelope
//! (LB_Keogh) or along the middle of the band in one pass. What they leave open is warped, and given up as soon as no
//! path can be short enough.
//!
//! All of it is arithmetic of whole numbers, so a bound is a bound to the last bit, and decisions are those of
//! [`crate::plain`].

use crate::Pattern;
use crate::settings::Distance;

/// More than any distance, and far enough from the end that nothing overflows.
const INFINITE: u64 = 1 << 62;

/// Rows between two looks whether a path can still be short enough.
const ROWS_UNSEEN: usize = 16;

/// The distance of two series by a definition.
pub fn distance(a: &[u32], b: &[u32], by: Distance) -> u64 {
    Warper::new(by).distance(a, b)
}

/// What a distance is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stake {
    /// A distance above this would be a new maximum.
    pub maximum: u64,
    /// A distance of this or more is no better match.
    pub cutoff: u64,
}

/// Compares series. It keeps its memory between comparisons.
#[derive(Clone, Debug)]
pub struct Warper {
    by: Distance,
    line: Vec<u64>,
    /// The least and greatest point of the query within the band around each of its points.
    envelope: Vec<(u32, u32)>,
    pyramid: Pyramid,
}

impl Warper {
    /// For distances of this definition.
    pub fn new(by: Distance) -> Warper {
        Warper {
            by,
            line: Vec::new(),
            envelope: Vec::new(),
            pyramid: Pyramid::default(),
        }
    }

    /// The distance of two series.
    pub fn distance(&mut self, a: &[u32], b: &[u32]) -> u64 {
        match (a.len(), b.len()) {
            (0, 0) => 0,
            (0, _) | (_, 0) => u64::MAX,
            _ => self.warp(a, b, u64::MAX).unwrap_or(u64::MAX),
        }
    }

    /// Gets ready for comparisons of this pattern with others.
    pub(crate) fn prepare(&mut self, query: &Pattern) {
        self.envelope.clear();
        if let Distance::Band { radius } = self.by {
            let (points, radius) = (&query.points, radius as usize);
            self.envelope.extend((0..points.len()).map(|at| {
                let last = (at + radius).min(points.len() - 1);
                let near = &points[at.saturating_sub(radius)..=last];
                near.iter().fold((u32::MAX, 0), |(least, greatest), &x| {
                    (least.min(x), greatest.max(x))
                })
            }));
        }
    }

    /// The distance of the query and another pattern; `None` if it matters neither for the maximum nor for the match.
    pub(crate) fn compare(
        &mut self,
        query: &Pattern,
        other: &Pattern,
        stake: Stake,
    ) -> Option<u64> {
        if self.may_be_maximum(query, other, stake.maximum) {
            return Some(self.distance(&query.points, &other.points));
        }
        if lower_bound(query, other) >= stake.cutoff
            || self.envelope_bound(query, other) >= stake.cutoff
        {
            return None;
        }
        self.warp(&query.points, &other.points, stake.cutoff)
    }

    /// Whether the distance can be above `maximum`.
    fn may_be_maximum(&self, query: &Pattern, other: &Pattern, maximum: u64) -> bool {
        let high = query.greatest.saturating_sub(other.least);
        let low = other.greatest.saturating_sub(query.least);
        let (a, b) = (&*query.points, &*other.points);
        let pairs = match self.by {
            Distance::FastDtw { .. } => a.len() + b.len() - 1,
            Distance::Band { .. } => a.len().max(b.len()),
        };
        if u64::from(high.max(low)).saturating_mul(pairs as u64) <= maximum {
            return false;
        }
        match self.by {
            Distance::FastDtw { .. } => true,
            Distance::Band { .. } => along_the_middle(a, b) > maximum,
        }
    }

    /// Every point of the other pattern is matched with one of the query that is near its place (LB_Keogh) or, where the
    /// query is the longer one, with any: what lies outside of their range is a part of the distance.
    fn envelope_bound(&self, query: &Pattern, other: &Pattern) -> u64 {
        let (short, long) = (query.points.len(), other.points.len());
        let outside = |x: u32, least: u32, greatest: u32| -> u64 {
            u64::from(x.saturating_sub(greatest).max(least.saturating_sub(x)))
        };
        if self.envelope.is_empty() || short > long {
            let points = query.points.iter();
            return points
                .map(|x| outside(*x, other.least, other.greatest))
                .sum();
        }
        let near = Centres::new(short, long).map(|centre| self.envelope[centre]);
        let pairs = other.points.iter().zip(near);
        pairs
            .map(|(x, (least, greatest))| outside(*x, least, greatest))
            .sum()
    }

    /// The distance, or `None` once it is sure to be `cutoff` or more.
    fn warp(&mut self, a: &[u32], b: &[u32], cutoff: u64) -> Option<u64> {
        let found = match self.by {
            Distance::Band { radius } => band(a, b, radius as usize, cutoff, &mut self.line),
            Distance::FastDtw { radius } => {
                self.pyramid
                    .distance(a, b, radius as usize, cutoff, &mut self.line)
            }
        };
        found.filter(|distance| *distance < cutoff)
    }
}

/// Below this no warping of the two can be: from extremes, and from first and last points, which are always matched.
fn lower_bound(a: &Pattern, b: &Pattern) -> u64 {
    let above = a.least.saturating_sub(b.greatest);
    let below = b.least.saturating_sub(a.greatest);
    let longer = a.points.len().max(b.points.len());
    let gap = u64::from(above.max(below)).saturating_mul(longer as u64);
    let apart = |x: Option<&u32>, y: Option<&u32>| match (x, y) {
        (Some(x), Some(y)) => u64::from(x.abs_diff(*y)),
        _ => 0,
    };
    let first = apart(a.points.first(), b.points.first());
    let last = apart(a.points.last(), b.points.last());
    let ends = if longer > 1 { first + last } else { first };
    gap.max(ends)
}

/// The place in a shorter series that belongs to each place in a longer one: `place × short / long`, without division.
#[derive(Clone, Debug)]
struct Centres {
    short: usize,
    long: usize,
    place: usize,
    remainder: usize,
    left: usize,
}

impl Centres {
    fn new(short: usize, long: usize) -> Centres {
        Centres {
            short,
            long,
            place: 0,
            remainder: 0,
            left: long,
        }
    }
}

impl Iterator for Centres {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let place = self.place;
        self.remainder += self.short;
        if self.remainder >= self.long {
            self.remainder -= self.long;
            self.place += 1;
        }
        Some(place)
    }
}

/// The cost of the path along the middle of the band, above which the distance cannot be.
fn along_the_middle(a: &[u32], b: &[u32]) -> u64 {
    let (long, short) = if a.len() >= b.len() { (a, b) } else { (b, a) };
    if long.len() == short.len() {
        let pairs = a.iter().zip(b);
        return pairs.map(|(x, y)| u64::from(x.abs_diff(*y))).sum();
    }
    let centres = Centres::new(short.len(), long.len());
    let pairs = long.iter().zip(centres);
    pairs
        .map(|(x, centre)| u64::from(x.abs_diff(short[centre])))
        .sum()
}

/// Exact warping in a band. One line is kept: cell `k + 1` is that of the column `k − radius` behind the row's centre,
/// with an infinite one at either end.
fn band(a: &[u32], b: &[u32], radius: usize, cutoff: u64, line: &mut Vec<u64>) -> Option<u64> {
    let (long, short) = if a.len() >= b.len() { (a, b) } else { (b, a) };
    let radius = radius.min(short.len());
    line.clear();
    line.resize(2 * radius + 3, INFINITE);
    // The row before the first has its centre at −1: the first pair is reached from there.
    line[radius + 1] = 0;
    let mut before = None;
    for (row, (x, centre)) in long
        .iter()
        .zip(Centres::new(short.len(), long.len()))
        .enumerate()
    {
        let first = centre.saturating_sub(radius);
        let last = (centre + radius).min(short.len() - 1);
        let from = first + radius - centre;
        let columns = &short[first..=last];
        let cells = &mut line[from..from + columns.len() + 2];
        match before == Some(centre) {
            true => same_centre(cells, columns, *x),
            false => next_centre(cells, columns, *x),
        }
        before = Some(centre);
        if row % ROWS_UNSEEN == ROWS_UNSEEN - 1 && cutoff < INFINITE {
            let reached = &line[from + 1..from + columns.len() + 1];
            if reached.iter().all(|cost| *cost >= cutoff) {
                return None;
            }
        }
    }
    // The centre of the last row is the last column.
    Some(line[radius + 1])
}

/// A row whose centre is one column further than that of the row before: what was above is one cell to the right.
#[inline]
fn next_centre(cells: &mut [u64], columns: &[u32], x: u32) {
    // The width of the usual band, known to the compiler, is worth a third of the time.
    if let (Ok(columns), Ok(cells)) = (
        <&[u32; 11]>::try_from(columns),
        <&mut [u64; 13]>::try_from(&mut *cells),
    ) {
        let mut left = cells[0];
        for at in 0..11 {
            let least = cells[at + 2].min(cells[at + 1]).min(left);
            left = least + u64::from(x.abs_diff(columns[at]));
            cells[at + 1] = left;
        }
        return;
    }
    let mut left = cells[0];
    for (at, y) in columns.iter().enumerate() {
        let least = cells[at + 2].min(cells[at + 1]).min(left);
        left = least + u64::from(x.abs_diff(*y));
        cells[at + 1] = left;
    }
}

/// A row with the same centre as the row before.
#[inline]
fn same_centre(cells: &mut [u64], columns: &[u32], x: u32) {
    let mut left = cells[0];
    let mut diagonal = cells[0];
    for (at, y) in columns.iter().enumerate() {
        let above = cells[at + 1];
        let least = above.min(diagonal).min(left);
        left = least + u64::from(x.abs_diff(*y));
        (diagonal, cells[at + 1]) = (above, left);
    }
}

/// FastDTW: both series at falling resolutions, and the path at one of them.
#[derive(Clone, Debug, Default)]
struct Pyramid {
    /// Half the resolution, a quarter, …; of both series.
    levels: Vec<[Vec<u32>; 2]>,
    window: Vec<(u32, u32)>,
    path: Vec<(u32, u32)>,
    costs: Vec<u64>,
    starts: Vec<usize>,
}

impl Pyramid {
    fn distance(
        &mut self,
        a: &[u32],
        b: &[u32],
        radius: usize,
        cutoff: u64,
        line: &mut Vec<u64>,
    ) -> Option<u64> {
        let levels = self.build(a, b, radius);
        let (rows, columns) = match levels {
            0 => (a.len(), b.len()),
            _ => (
                self.levels[levels - 1][0].len(),
                self.levels[levels - 1][1].len(),
            ),
        };
        self.window.clear();
        self.window.resize(rows, (0, columns as u32 - 1));
        for level in (0..levels).rev() {
            let [a_here, b_here] = std::mem::take(&mut self.levels[level]);
            self.find_path(&a_here, &b_here);
            self.levels[level] = [a_here, b_here];
            let (rows, columns) = match level {
                0 => (a.len(), b.len()),
                _ => (
                    self.levels[level - 1][0].len(),
                    self.levels[level - 1][1].len(),
                ),
            };
            self.project(rows, columns, radius);
        }
        last_level(a, b, &self.window, cutoff, line)
    }

    /// Halves until one is short enough to be warped whole; how often that was.
    fn build(&mut self, a: &[u32], b: &[u32], radius: usize) -> usize {
        let (mut rows, mut columns, mut level) = (a.len(), b.len(), 0);
        while rows > radius + 2 && columns > radius + 2 {
            if self.levels.len() == level {
                self.levels.push(Default::default());
            }
            let (finer, coarser) = self.levels.split_at_mut(level);
            let (from_a, from_b) = match finer.last() {
                None => (a, b),
                Some([a, b]) => (&a[..], &b[..]),
            };
            halve(from_a, &mut coarser[0][0]);
            halve(from_b, &mut coarser[0][1]);
            (rows, columns) = (coarser[0][0].len(), coarser[0][1].len());
            level += 1;
        }
        level
    }

    /// Warps within the window and keeps the path.
    fn find_path(&mut self, a: &[u32], b: &[u32]) {
        self.costs.clear();
        self.starts.clear();
        for (row, x) in a.iter().enumerate() {
            let (first, last) = self.window[row];
            self.starts.push(self.costs.len());
            let mut left = INFINITE;
            for column in first..=last {
                let diagonal = match (row, column) {
                    (0, 0) => 0,
                    _ => self.cost(row.wrapping_sub(1), column.wrapping_sub(1)),
                };
                let above = self.cost(row.wrapping_sub(1), column);
                left = diagonal.min(above).min(left) + u64::from(x.abs_diff(b[column as usize]));
                self.costs.push(left);
            }
        }
        self.walk_back(a.len() - 1, b.len() as u32 - 1);
    }

    #[inline]
    fn cost(&self, row: usize, column: u32) -> u64 {
        match self.window.get(row) {
            Some(&(first, last)) if (first..=last).contains(&column) => {
                self.costs[self.starts[row] + (column - first) as usize]
            }
            _ => INFINITE,
        }
    }

    /// From the last pair to the first. Of equal ways the diagonal one counts, then the one along the rows.
    fn walk_back(&mut self, mut row: usize, mut column: u32) {
        self.path.clear();
        self.path.push((row as u32, column));
        while (row, column) != (0, 0) {
            let up = row.wrapping_sub(1);
            let left = column.wrapping_sub(1);
            let ways = [(up, left), (up, column), (row, left)];
            let costs = ways.map(|(row, column)| self.cost(row, column));
            let mut best = 0;
            for way in 1..3 {
                if costs[way] < costs[best] {
                    best = way;
                }
            }
            (row, column) = ways[best];
            self.path.push((row as u32, column));
        }
    }

    /// The window at twice the resolution of the path, and `radius` around it.
    fn project(&mut self, rows: usize, columns: usize, radius: usize) {
        self.window.clear();
        self.window.resize(rows, (u32::MAX, 0));
        let (radius, columns) = (radius as u32, columns as u32);
        for &(row, column) in &self.path {
            let first = (2 * row).saturating_sub(radius) as usize;
            let last = ((2 * row + 1 + radius) as usize).min(rows - 1);
            let from = (2 * column).saturating_sub(radius);
            let to = (2 * column + 1 + radius).min(columns - 1);
            for place in &mut self.window[first..=last] {
                *place = (place.0.min(from), place.1.max(to));
            }
        }
    }
}

fn halve(series: &[u32], into: &mut Vec<u32>) {
    into.clear();
    into.extend(series.chunks(2).map(|pair| match *pair {
        [x, y] => ((u64::from(x) + u64::from(y)) / 2) as u32,
        _ => pair[0],
    }));
}

/// At full resolution no path is needed: one line is enough, a cell for each column. Windows only move on, so what is right
/// of the row before was never written; what is left of it is of rows before that, and must not be looked at.
fn last_level(
    a: &[u32],
    b: &[u32],
    window: &[(u32, u32)],
    cutoff: u64,
    line: &mut Vec<u64>,
) -> Option<u64> {
    line.clear();
    line.resize(b.len(), INFINITE);
    let mut first_before = usize::MAX;
    for (row, (x, &(first, last))) in a.iter().zip(window).enumerate() {
        let (first, last) = (first as usize, last as usize);
        let mut diagonal = match first.checked_sub(1) {
            _ if row == 0 => 0,
            Some(column) if column >= first_before => line[column],
            _ => INFINITE,
        };
        first_before = first;
        let mut left = INFINITE;
        let mut least_reached = INFINITE;
        for (y, cell) in b[first..=last].iter().zip(&mut line[first..=last]) {
            let above = *cell;
            left = above.min(diagonal).min(left) + u64::from(x.abs_diff(*y));
            (diagonal, *cell) = (above, left);
            least_reached = least_reached.min(left);
        }
        if least_reached >= cutoff {
            return None;
        }
    }
    Some(line[b.len() - 1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plain;
    use proptest::prelude::*;

    fn series() -> impl Strategy<Value = Vec<u32>> {
        let wild = proptest::collection::vec(any::<u32>(), 1..120);
        let tame = proptest::collection::vec(0_u32..50, 1..120);
        let flat = (1_usize..200, 0_u32..5).prop_map(|(len, value)| vec![value; len]);
        prop_oneof![wild, tame, flat]
    }

    fn definition() -> impl Strategy<Value = Distance> {
        let radius = prop_oneof![Just(1_u32), Just(5), 0_u32..12];
        (any::<bool>(), radius).prop_map(|(fast, radius)| match fast {
            true => Distance::FastDtw { radius },
            false => Distance::Band { radius },
        })
    }

    proptest! {
        #[test]
        fn distances_are_those_of_the_plain_way(a in series(), b in series(), by in definition()) {
            prop_assert_eq!(distance(&a, &b, by), plain::distance(&a, &b, by));
        }

        #[test]
        fn what_is_not_compared_matters_neither_for_the_maximum_nor_for_the_match(
            a in series(),
            b in series(),
            by in definition(),
            maximum in 0_u64..200,
            cutoff in 0_u64..200,
        ) {
            let exact = plain::distance(&a, &b, by);
            // From nothing to twice the distance, whatever its size.
            let scaled = |percent: u64| (u128::from(exact) * u128::from(percent) / 100) as u64;
            let (maximum, cutoff) = (scaled(maximum), scaled(cutoff).min(scaled(maximum)));
            let (a, b) = (Pattern::new(a, 1, 1, 0), Pattern::new(b, 1, 1, 0));
            let mut warper = Warper::new(by);
            warper.prepare(&a);
            match warper.compare(&a, &b, Stake { maximum, cutoff }) {
                Some(distance) => prop_assert_eq!(distance, exact),
                None => prop_assert!(exact <= maximum && exact >= cutoff),
            }
        }

        #[test]
        fn a_warper_can_be_used_again(pairs in proptest::collection::vec((series(), series()), 1..6), by in definition()) {
            let mut warper = Warper::new(by);
            for (a, b) in &pairs {
                prop_assert_eq!(warper.distance(a, b), plain::distance(a, b, by));
            }
        }
    }

    #[test]
    fn bounds_and_abandoning_spare_work() {
        let by = Distance::Band { radius: 5 };
        let low = Pattern::new(vec![0; 100], 1, 1, 0);
        let high = Pattern::new(vec![1000; 100], 1, 1, 0);
        let mut warper = Warper::new(by);
        warper.prepare(&low);
        let stake = Stake {
            maximum: 100_000,
            cutoff: 1000,
        };
        assert_eq!(warper.compare(&low, &high, stake), None);
        let at_stake = Stake {
            maximum: 99_999,
            ..stake
        };
        assert_eq!(warper.compare(&low, &high, at_stake), Some(100_000));
    }
}
