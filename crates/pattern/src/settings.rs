//! What can be chosen, and what the paper chose.

use crate::Pattern;
use presagio_core::{Nanos, Op};

/// How patterns are made and compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The bound of an offset distance in bytes, and the distance between two files (`inf` of Eq. 1).
    pub infinite: u64,
    /// How long a period is. Whoever feeds a recorder ends it then.
    pub period: Nanos,
    /// What holds for patterns that mostly read, and for those that mostly write.
    pub ops: [OpSettings; 2],
    /// What a period is represented by.
    pub representation: Representation,
    /// What the distance of two series is.
    pub distance: Distance,
    /// How many patterns are kept. Beyond that the rarest is forgotten.
    pub patterns_max: usize,
}

/// What holds for the patterns of a majority operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OpSettings {
    /// How many requests are one point of the series: the mean of their offset distances.
    pub compression: u32,
    /// The greatest difference (Eq. 2, as a share) with which two patterns are compared (`maxdiff`).
    pub difference_max: f64,
    /// The score that a match has to exceed (`thres`).
    pub threshold: f64,
}

/// What a period is represented by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Representation {
    /// Offset distances in the order of arrival (Eq. 1).
    Distances,
    /// Distributions of the lengths of runs, gaps and requests, whatever the order (`extents.rs` says why).
    Extents,
}

/// What the distance of two series is. These are different definitions: their values cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// FastDTW (Salvador and Chan, 2007) of this radius; the paper's is 1. It approximates the distance of warping over
    /// the whole length.
    FastDtw {
        /// Cells around the projected path that are looked at.
        radius: u32,
    },
    /// The exact distance of warping within a band: a point is never matched with one that is farther than this from its
    /// own relative place.
    Band {
        /// Points to either side.
        radius: u32,
    },
}

/// The band of ours: nearly all of a series of a dozen points, the usual length after compression.
const BAND: Distance = Distance::Band { radius: 5 };

const PUBLISHED: Distance = Distance::FastDtw { radius: 1 };

/// As many patterns as can be compared within a few milliseconds.
const PATTERNS_MAX: usize = 1000;

impl Settings {
    /// What the paper used for `nodes` I/O nodes (VI-B: Fig. 1, Table VI).
    pub fn published_ionodes(nodes: u32) -> Settings {
        let op = |compression| OpSettings {
            compression,
            difference_max: 0.40,
            threshold: if nodes == 2 { 0.98 } else { 0.99 },
        };
        // With four nodes a second of reads is too short for the compression that suits fewer.
        let read = if nodes >= 4 { 10 } else { 100 };
        Settings::published([op(read), op(10)])
    }

    /// What the paper used for data servers (VI-B: Fig. 2).
    pub fn published_servers() -> Settings {
        Settings::published(
            [OpSettings {
                compression: 100,
                difference_max: 0.25,
                threshold: 0.95,
            }; 2],
        )
    }

    fn published(ops: [OpSettings; 2]) -> Settings {
        Settings {
            infinite: 10_000_000_000,
            period: Nanos::from_secs(1),
            ops,
            representation: Representation::Distances,
            distance: PUBLISHED,
            patterns_max: PATTERNS_MAX,
        }
    }

    /// Ours: what a period touched, whatever the order, compared exactly.
    pub fn ours() -> Settings {
        Settings {
            representation: Representation::Extents,
            distance: Distance::Band { radius: 1 },
            ops: [OpSettings {
                compression: 1,
                difference_max: 0.25,
                threshold: 0.97,
            }; 2],
            ..Settings::published_servers()
        }
    }

    /// The same with exact warping in a band.
    pub fn banded(self) -> Settings {
        Settings {
            distance: BAND,
            ..self
        }
    }

    /// Whether a pattern that somebody else made can be one of these settings.
    pub fn can_be(&self, pattern: &Pattern) -> bool {
        let requests: u64 = pattern.requests.map(u64::from).iter().sum();
        let points_can_be = match self.representation {
            Representation::Extents => crate::extents::can_be(pattern.points()),
            Representation::Distances => {
                let greatest = self.infinite / self.unit();
                let mut points = pattern.points().iter();
                points.all(|point| u64::from(*point) <= greatest)
            }
        };
        points_can_be && (1..=requests).contains(&u64::from(pattern.files))
    }

    /// What holds for patterns of that majority operation.
    pub fn of(&self, op: Op) -> &OpSettings {
        &self.ops[op.index()]
    }

    /// How different two patterns are without their series.
    pub(crate) fn difference(&self, a: &Pattern, b: &Pattern) -> f64 {
        a.difference(b, self.representation)
    }

    /// Bytes that are one unit of a point, so that the infinite distance fits into a point.
    pub(crate) fn unit(&self) -> u64 {
        self.infinite.div_ceil(u64::from(u32::MAX)).max(1)
    }
}
