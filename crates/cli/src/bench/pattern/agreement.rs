//! How often do the two definitions of distance agree: FastDTW, which is published, and exact warping in a band?
//!
//! Pairs of patterns of the same operation are compared by both, each with its own greatest distance and the same threshold:
//! do both say that they match, or both that they do not? The same for a pattern and itself, shifted by a twentieth of its
//! length, as when a period begins a little later.

use super::accuracy::{Run, distance_max};
use crate::table::{Cell, Table};
use presagio_pattern::{Pattern, Settings, Warper, plain};
use presagio_tune::Random;

/// Pairs that are looked at, at most.
const PAIRS: usize = 20_000;

struct Way {
    settings: Settings,
    warper: Warper,
    greatest: [u64; 2],
}

impl Way {
    fn new(settings: Settings, runs: &[Run]) -> Way {
        Way {
            warper: Warper::new(settings.distance),
            greatest: distance_max(&settings, runs),
            settings,
        }
    }

    fn matches(&mut self, a: &[u32], b: &[u32], of: &Pattern) -> bool {
        let op = of.majority();
        let distance = self.warper.distance(a, b);
        let greatest = self.greatest[op.index()].max(distance);
        plain::score(distance, greatest) > self.settings.of(op).threshold
    }
}

/// Percent of pairs, and of shifted patterns, that both ways say the same of.
pub fn row(name: &str, published: &Settings, runs: &[Run]) -> Vec<Cell> {
    let patterns: Vec<&Pattern> = runs
        .iter()
        .flat_map(|run| run.places.iter().flatten())
        .collect();
    let mut fast = Way::new(published.clone(), runs);
    let mut band = Way::new(published.clone().banded(), runs);
    let mut random = Random::new(1);
    let (mut pairs, mut shifted) = ((0_u64, 0_u64), (0_u64, 0_u64));
    for _ in 0..PAIRS.min(patterns.len() * patterns.len()) {
        let mut any = || patterns[random.below(patterns.len() as u64) as usize];
        let (a, b) = (any(), any());
        if a.majority() == b.majority() {
            let same =
                fast.matches(a.points(), b.points(), a) == band.matches(a.points(), b.points(), a);
            pairs = (pairs.0 + u64::from(same), pairs.1 + 1);
        }
        let moved = shift(a.points());
        let same = fast.matches(a.points(), &moved, a) == band.matches(a.points(), &moved, a);
        shifted = (shifted.0 + u64::from(same), shifted.1 + 1);
    }
    let percent =
        |(same, all): (u64, u64)| Cell::Number(100.0 * same as f64 / all.max(1) as f64, 2);
    vec![
        Cell::Text(name.to_owned()),
        Cell::Count(pairs.1),
        percent(pairs),
        percent(shifted),
    ]
}

fn shift(points: &[u32]) -> Vec<u32> {
    let mut moved = points.to_vec();
    let by = points.len().div_ceil(20).min(points.len());
    moved.rotate_left(by);
    moved
}

pub fn table(rows: Vec<Vec<Cell>>) -> Table {
    Table {
        title: "FastDTW and the band say the same, in percent".into(),
        columns: vec![
            ("seen_from", "seen from"),
            ("pairs", "pairs"),
            ("pairs_percent", "of pairs"),
            ("shifted_percent", "of shifted patterns"),
        ],
        rows,
    }
}
