//! A straight line through measured points: SeRRa's third step.

use super::Point;

/// The time of a request as a straight line over its size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// Where it meets size 0, in nanoseconds; it may be below zero.
    pub at_zero_ns: f64,
    /// How it rises.
    pub ns_per_byte: f64,
}

impl Line {
    /// The line of least squares; level through a single point, or points of one size.
    pub fn through(points: &[Point]) -> Line {
        let count = points.len().max(1) as f64;
        let mean = |of: fn(&Point) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (size, ns) = (mean(|point| point.size as f64), mean(|point| point.ns));
        let (mut above, mut below) = (0.0, 0.0);
        for point in points {
            let aside = point.size as f64 - size;
            above += aside * (point.ns - ns);
            below += aside * aside;
        }
        let ns_per_byte = if below > 0.0 { above / below } else { 0.0 };
        Line {
            at_zero_ns: ns - ns_per_byte * size,
            ns_per_byte,
        }
    }

    /// What it says about a size.
    pub fn at(self, size: u64) -> f64 {
        self.at_zero_ns + self.ns_per_byte * size as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(of: &[(u64, f64)]) -> Vec<Point> {
        let point = |(size, ns): &(u64, f64)| Point {
            size: *size,
            ns: *ns,
            plus_minus_ns: 0.0,
            runs: 1,
            requests: 1,
        };
        of.iter().map(point).collect()
    }

    #[test]
    fn two_points_are_met_exactly() {
        let line = Line::through(&points(&[(8192, 100.0), (65536, 800.0)]));
        assert!((line.at(8192) - 100.0).abs() < 1e-9 && (line.at(65536) - 800.0).abs() < 1e-9);
    }

    #[test]
    fn more_points_are_missed_as_little_as_a_line_can() {
        // By hand: the mean is (2, 2), the slope (1·1 + 1·2) / 2.
        let line = Line::through(&points(&[(1, 1.0), (2, 1.0), (3, 4.0)]));
        assert!((line.ns_per_byte - 1.5).abs() < 1e-12, "{line:?}");
        assert!((line.at_zero_ns + 1.0).abs() < 1e-12, "{line:?}");
    }

    #[test]
    fn one_size_gives_a_level_line() {
        let line = Line::through(&points(&[(5, 3.0), (5, 5.0)]));
        assert_eq!((line.at(1), line.at(9)), (4.0, 4.0));
    }
}
