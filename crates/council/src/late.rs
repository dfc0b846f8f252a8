//! What nodes announce again after the council was away: learned as if it had been heard in time.
//!
//! Nodes come back within some seconds of each other, each with what it saw meanwhile. The k-th word from the end of one
//! stands beside the k-th from the end of the others, as in one round; of each such row the median is learned.

use crate::store::Heard;
use presagio_tune::{Arm, Context, Tuner};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long others have to say theirs.
const WAIT: Duration = Duration::from_secs(3);

/// What is waited for at most, with all nodes together.
const MAX: usize = 1 << 17;

/// So many nodes that say the same are believed, and what is so many times off from what is known is not, by fewer.
const AGREE: usize = 3;
const FAR_OFF: f64 = 4.0;

/// Words about an arm in a context, by node.
type Words = BTreeMap<String, Vec<f64>>;

/// See the module's header.
#[derive(Debug, Default)]
pub struct Late {
    words: BTreeMap<(Context, Arm), Words>,
    heard: BTreeMap<String, Heard>,
    count: usize,
    since: Option<Instant>,
}

impl Late {
    /// A node saw this while nobody heard it.
    pub fn add(&mut self, node: &str, heard: Heard, about: (Context, Arm), reward: f64) {
        if self.count >= MAX {
            return;
        }
        self.count += 1;
        self.since.get_or_insert_with(Instant::now);
        self.heard.insert(node.to_owned(), heard);
        let words = self.words.entry(about).or_default();
        words.entry(node.to_owned()).or_default().push(reward);
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// When all had time: learns, and says from whom up to which word.
    pub fn learn(&mut self, now: Instant, tuner: &mut Tuner) -> Option<BTreeMap<String, Heard>> {
        let since = self.since?;
        if now.saturating_duration_since(since) < WAIT && self.count < MAX {
            return None;
        }
        let all = std::mem::take(self);
        for ((context, arm), words) in all.words {
            for reward in rows(&words) {
                // Alone against what is known, nobody is believed that much.
                if words.len() >= AGREE || !is_far_off(tuner, &context, arm, reward) {
                    tuner.learn(&context, arm, reward);
                }
            }
        }
        Some(all.heard)
    }
}

/// Whether a reward is far from what is known of an arm.
fn is_far_off(tuner: &Tuner, context: &Context, arm: Arm, reward: f64) -> bool {
    let place = tuner.settings().arms.place(arm);
    let known = place.and_then(|place| {
        let bandit = tuner.bandit(context)?;
        Some(bandit.value(place)? * bandit.best())
    });
    known.is_some_and(|known| reward > FAR_OFF * known || reward * FAR_OFF < known)
}

/// The median of each row, the oldest first.
fn rows(words: &Words) -> Vec<f64> {
    let longest = words.values().map(Vec::len).max().unwrap_or(0);
    let row = |from_end: usize| {
        let said = words
            .values()
            .filter_map(|of| of.iter().rev().nth(from_end));
        let mut said: Vec<f64> = said.copied().collect();
        said.sort_by(f64::total_cmp);
        said[said.len() / 2] // The longest has one in every row.
    };
    (0..longest).rev().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use presagio_tune::TunerSettings;

    #[test]
    fn what_came_late_is_learned_as_in_rounds() {
        let of = |values: &[f64]| values.to_vec();
        let words: Words = [
            ("a".to_owned(), of(&[9.0, 1.0, 2.0])),
            ("b".to_owned(), of(&[1.1, 2.1])),
            ("liar".to_owned(), of(&[1e9, 1e9])),
        ]
        .into();
        assert_eq!(rows(&words), [9.0, 1.1, 2.1]);
    }

    #[test]
    fn others_have_time_to_say_theirs() {
        let mut late = Late::default();
        let mut tuner = Tuner::new(TunerSettings::default());
        let now = Instant::now();
        assert!(late.learn(now, &mut tuner).is_none());
        let about = (Context::Pattern(1), "SJF".parse().unwrap());
        let heard = Heard {
            epoch: 1,
            sequence: 4,
            at_ms: 0,
        };
        late.add("a", heard, about, 5.0);
        assert!(late.learn(now, &mut tuner).is_none());
        let heard = late
            .learn(now + 2 * WAIT, &mut tuner)
            .expect("time is over");
        assert_eq!(heard["a"].sequence, 4);
        assert_eq!(tuner.bandit(&about.0).map(|it| it.steps()), Some(1));
        assert!(late.learn(now + 3 * WAIT, &mut tuner).is_none());
    }

    #[test]
    fn one_node_is_not_believed_what_is_far_off_from_what_is_known() {
        let mut tuner = Tuner::new(TunerSettings::default());
        let about = (Context::Pattern(1), "SJF".parse().unwrap());
        (0..10).for_each(|_| assert!(tuner.learn(&about.0, about.1, 100.0)));
        let steps = |tuner: &Tuner| tuner.bandit(&about.0).map_or(0, |it| it.steps());
        let later = Instant::now() + 2 * WAIT;
        let say = |late: &mut Late, node: &str, reward| {
            late.add(node, Heard::default(), about, reward);
        };
        let mut late = Late::default();
        say(&mut late, "liar", 1e9);
        say(&mut late, "liar", 90.0);
        late.learn(later, &mut tuner).expect("time is over");
        assert_eq!(steps(&tuner), 11);
        for node in ["a", "b", "c"] {
            say(&mut late, node, 1.0);
        }
        late.learn(later, &mut tuner).expect("time is over");
        assert_eq!(steps(&tuner), 12, "three nodes are");
    }
}
