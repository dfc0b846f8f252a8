//! How good trees are: confusion matrices (Tables 4.5 to 4.7) and makespans beside the oracle's (Tables 6.2 to 6.8).

/// How often each class was taken for which.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confusion {
    /// By class, then by what it was taken for.
    pub cells: Vec<Vec<u64>>,
}

impl Confusion {
    /// Nothing was judged yet.
    pub fn new(classes: usize) -> Confusion {
        Confusion {
            cells: vec![vec![0; classes]; classes],
        }
    }

    /// One of this class was taken for that.
    pub fn add(&mut self, class: usize, taken_for: usize) {
        self.cells[class][taken_for] += 1;
    }

    /// How many were judged.
    pub fn count(&self) -> u64 {
        self.cells.iter().flatten().sum()
    }

    /// The share that was right; 1 if there were none.
    pub fn right(&self) -> f64 {
        let right = (0..self.cells.len()).map(|class| self.cells[class][class]);
        share(right.sum(), self.count())
    }

    /// Of those that were taken for the class, the share that was of it.
    pub fn precision(&self, class: usize) -> f64 {
        let taken = self.cells.iter().map(|row| row[class]).sum();
        share(self.cells[class][class], taken)
    }

    /// Of those that were of the class, the share that was taken for it.
    pub fn recall(&self, class: usize) -> f64 {
        share(self.cells[class][class], self.cells[class].iter().sum())
    }
}

fn share(part: u64, of: u64) -> f64 {
    match of {
        0 => 1.0,
        of => part as f64 / of as f64,
    }
}

/// A difference that counts (chapter 6): 10 %.
pub const SIGNIFICANT: f64 = 0.1;

/// What choices come to.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The share of situations in which no other choice would have been faster.
    pub right: f64,
    /// How much longer than the oracle's the makespans are, on average.
    pub over_oracle: f64,
    /// And at most.
    pub over_oracle_most: f64,
    /// Situations that are faster than with the base by a difference that counts, and the median of how much.
    pub increased: (u64, f64),
    /// Those that are slower.
    pub decreased: (u64, f64),
}

/// Judges choices. `makespans` are by situation, then by what can be chosen; the oracle knows them all. `base` is what
/// performance is compared with.
pub fn judge(makespans: &[Vec<f64>], choices: &[usize], base: usize) -> Verdict {
    let (mut right, mut over, mut most) = (0, 0.0, 0.0_f64);
    let (mut faster, mut slower) = (Vec::new(), Vec::new());
    for (each, choice) in makespans.iter().zip(choices) {
        let (took, oracle) = (each[*choice], each[oracle(each)]);
        right += u64::from(took <= oracle);
        over += took / oracle - 1.0;
        most = most.max(took / oracle - 1.0);
        let gain = 1.0 - took / each[base];
        match gain {
            gain if gain > SIGNIFICANT => faster.push(gain),
            gain if -gain > SIGNIFICANT => slower.push(-gain),
            _ => {}
        }
    }
    let count = makespans.len().max(1);
    Verdict {
        right: right as f64 / count as f64,
        over_oracle: over / count as f64,
        over_oracle_most: most,
        increased: (faster.len() as u64, median(faster)),
        decreased: (slower.len() as u64, median(slower)),
    }
}

/// The shortest, the first of them.
pub fn oracle(makespans: &[f64]) -> usize {
    let shorter = |best, at| {
        if makespans[at] < makespans[best] {
            at
        } else {
            best
        }
    };
    (0..makespans.len()).reduce(shorter).unwrap_or(0)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let (below, above) = (values.len().saturating_sub(1) / 2, values.len() / 2);
    match values.is_empty() {
        true => 0.0,
        false => (values[below] + values[above]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confusion_matrix_says_what_was_right_and_what_was_found() {
        let mut confusion = Confusion::new(2);
        for (class, taken_for, times) in [(0, 0, 8), (0, 1, 2), (1, 1, 3), (1, 0, 1)] {
            (0..times).for_each(|_| confusion.add(class, taken_for));
        }
        assert_eq!((confusion.count(), confusion.right()), (14, 11.0 / 14.0));
        assert_eq!(confusion.precision(0), 8.0 / 9.0);
        assert_eq!(confusion.recall(1), 0.75);
    }

    #[test]
    fn choices_are_held_against_the_oracle_and_the_base() {
        let makespans = [vec![10.0, 5.0], vec![10.0, 20.0], vec![10.0, 10.5]];
        let verdict = judge(&makespans, &[1, 1, 1], 0);
        assert_eq!(verdict.right, 1.0 / 3.0);
        assert_eq!(verdict.increased, (1, 0.5));
        assert_eq!(verdict.decreased, (1, 1.0));
        assert!((verdict.over_oracle - 1.05 / 3.0).abs() < 1e-12);
        assert_eq!(verdict.over_oracle_most, 1.0);
        assert_eq!(judge(&makespans, &[1, 0, 0], 0).over_oracle, 0.0);
    }
}
