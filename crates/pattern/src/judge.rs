//! Precision and recall, as the paper estimates them (V-B): a match with a pattern that came from the same benchmark is
//! right, any other is wrong, and not to match although such a pattern is known is a miss.

use crate::base::{Decision, Merged, PatternId};
use std::collections::BTreeMap;

/// How often decisions were right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Matches with a pattern of the same label.
    pub true_positives: u64,
    /// Matches with a pattern of another label.
    pub false_positives: u64,
    /// New patterns although one of the label was known.
    pub false_negatives: u64,
    /// New patterns of labels that were not known.
    pub true_negatives: u64,
}

/// Whether a decision was right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It matched the right one.
    TruePositive,
    /// It matched a wrong one.
    FalsePositive,
    /// It should have matched.
    FalseNegative,
    /// There was nothing to match.
    TrueNegative,
}

impl Tally {
    /// Counts one more.
    pub fn count(&mut self, verdict: Verdict) {
        *match verdict {
            Verdict::TruePositive => &mut self.true_positives,
            Verdict::FalsePositive => &mut self.false_positives,
            Verdict::FalseNegative => &mut self.false_negatives,
            Verdict::TrueNegative => &mut self.true_negatives,
        } += 1;
    }

    /// Adds another count.
    pub fn add(&mut self, other: Tally) {
        self.true_positives += other.true_positives;
        self.false_positives += other.false_positives;
        self.false_negatives += other.false_negatives;
        self.true_negatives += other.true_negatives;
    }

    /// How many matches were right; none where there was no match.
    pub fn precision(&self) -> Option<f64> {
        share(self.true_positives, self.false_positives)
    }

    /// How many of those that could match rightly did; none where none could.
    pub fn recall(&self) -> Option<f64> {
        share(self.true_positives, self.false_negatives)
    }
}

fn share(good: u64, bad: u64) -> Option<f64> {
    match good + bad {
        0 => None,
        all => Some(good as f64 / all as f64),
    }
}

/// Judges the decisions of one knowledge base. Labels are whatever names benchmarks.
#[derive(Clone, Debug, Default)]
pub struct Judge<L> {
    labels: BTreeMap<PatternId, L>,
}

impl<L: Clone + Eq> Judge<L> {
    /// Has seen nothing.
    pub fn new() -> Judge<L> {
        Judge {
            labels: BTreeMap::new(),
        }
    }

    /// The label that a known pattern came with.
    pub fn label(&self, id: PatternId) -> Option<&L> {
        self.labels.get(&id)
    }

    /// Whether what was decided about a period of this label was right.
    pub fn judge(&mut self, decision: &Decision, label: &L) -> Verdict {
        let is_known = self.labels.values().any(|known| known == label);
        if let Some(evicted) = decision.evicted {
            self.labels.remove(&evicted.id);
        }
        match (decision.is_match(), is_known) {
            (true, _) if self.labels.get(&decision.id) == Some(label) => Verdict::TruePositive,
            (true, _) => Verdict::FalsePositive,
            (false, known) => {
                self.labels.insert(decision.id, label.clone());
                match known {
                    true => Verdict::FalseNegative,
                    false => Verdict::TrueNegative,
                }
            }
        }
    }

    /// Patterns were joined: the label of the one that stays counts.
    pub fn merge(&mut self, merged: &[Merged]) {
        for gone in merged {
            self.labels.remove(&gone.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(id: u32, score: Option<f64>) -> Decision {
        Decision {
            id: PatternId(id),
            score,
            compared: 0,
            evicted: None,
        }
    }

    #[test]
    fn verdicts_follow_the_labels_of_what_is_known() {
        let mut judge = Judge::new();
        let mut tally = Tally::default();
        let steps = [
            (decision(0, None), "a", Verdict::TrueNegative),
            (decision(0, Some(1.0)), "a", Verdict::TruePositive),
            (decision(0, Some(0.99)), "b", Verdict::FalsePositive),
            (decision(1, None), "a", Verdict::FalseNegative),
            (decision(2, None), "b", Verdict::TrueNegative),
            (decision(1, Some(1.0)), "a", Verdict::TruePositive),
        ];
        for (decision, label, expected) in steps {
            let verdict = judge.judge(&decision, &label);
            assert_eq!(verdict, expected);
            tally.count(verdict);
        }
        assert_eq!(tally.precision(), Some(2.0 / 3.0));
        assert_eq!(tally.recall(), Some(2.0 / 3.0));
        assert_eq!(Tally::default().precision(), None);
    }

    #[test]
    fn a_forgotten_pattern_cannot_be_missed() {
        let mut judge = Judge::new();
        judge.judge(&decision(0, None), &"a");
        let evicted = Some(crate::Evicted {
            id: PatternId(0),
            occurrences: 1,
            workload: PatternId(0),
        });
        judge.judge(
            &Decision {
                evicted,
                ..decision(1, None)
            },
            &"b",
        );
        assert_eq!(judge.judge(&decision(2, None), &"a"), Verdict::TrueNegative);
    }
}
