//! A curve of bounded size, however many values it gets: neighbours are averaged when there are too many.

/// Points of a curve at most.
const POINTS_MAX: usize = 1000;

/// See the module's header.
#[derive(Clone, Debug)]
pub struct Curve {
    points: Vec<f64>,
    /// Values that make one point.
    each: u64,
    sum: f64,
    summed: u64,
}

impl Default for Curve {
    fn default() -> Self {
        Curve {
            points: Vec::new(),
            each: 1,
            sum: 0.0,
            summed: 0,
        }
    }
}

impl Curve {
    /// Takes the next value.
    pub fn push(&mut self, value: f64) {
        self.sum += value;
        self.summed += 1;
        if self.summed < self.each {
            return;
        }
        self.points.push(self.sum / self.summed as f64);
        (self.sum, self.summed) = (0.0, 0);
        if self.points.len() == POINTS_MAX {
            let halves = self.points.chunks(2);
            self.points = halves
                .map(|c| c.iter().sum::<f64>() / c.len() as f64)
                .collect();
            self.each *= 2;
        }
    }

    /// Where each point stands, by the number of values up to it, and its value.
    pub fn points(&self) -> impl Iterator<Item = (u64, f64)> {
        let each = self.each;
        let whole = self.points.iter().enumerate();
        let whole = whole.map(move |(n, value)| ((n as u64 + 1) * each, *value));
        let end = self.points.len() as u64 * each + self.summed;
        let rest = (self.summed > 0).then(|| (end, self.sum / self.summed as f64));
        whole.chain(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_keeps_its_shape_and_its_size() {
        let mut curve = Curve::default();
        (0..123_456).for_each(|n| curve.push(f64::from(n)));
        let points: Vec<(u64, f64)> = curve.points().collect();
        assert!(points.len() <= POINTS_MAX && points.len() > POINTS_MAX / 3);
        assert_eq!(points.last().unwrap().0, 123_456);
        let each = points[0].0 as f64;
        for (at, value) in points {
            assert!((at as f64 - value).abs() <= each, "{value} at {at}");
        }
    }
}
