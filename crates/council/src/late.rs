//! What nodes announce again after the council was away: learned as if it had been heard in time.
//!
//! Nodes come back within some seconds of each other, each with what it saw meanwhile. The k-th word from the end of one
//! stands beside the k-th from the end of the others, as in one round; of each such row the median is learned. What few nodes
//! are believed is for `tune`'s council to say.

use crate::store::Heard;
use presagio_tune::{Arm, Context, Council, LateWords, NodeId};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What is waited for at most, with all nodes together.
const MAX: usize = 1 << 17;

/// How many rounds others have to say theirs: at least, after which it is known how many nodes there are; and at most, because
/// nodes keep what they said for 256 periods and no longer.
const ROUNDS: (u32, u32) = (2, 64);

/// Words about an arm in a context, by node.
type Words = BTreeMap<NodeId, Vec<f64>>;

/// See the module's header.
#[derive(Debug)]
pub struct Late {
    wait: Duration,
    words: BTreeMap<(Context, Arm), Words>,
    heard: BTreeMap<String, Heard>,
    count: usize,
    since: Option<Instant>,
}

impl Late {
    /// Others have so long to say theirs, if that is a reasonable number of rounds.
    pub fn new(wait: Duration, round: Duration) -> Late {
        Late {
            wait: wait.min(ROUNDS.1 * round).max(ROUNDS.0 * round),
            words: BTreeMap::new(),
            heard: BTreeMap::new(),
            count: 0,
            since: None,
        }
    }

    /// A node saw this while nobody heard it.
    pub fn add(
        &mut self,
        (name, id): (&str, NodeId),
        heard: Heard,
        about: (Context, Arm),
        reward: f64,
    ) {
        if self.count >= MAX {
            return;
        }
        self.count += 1;
        self.since.get_or_insert_with(Instant::now);
        self.heard.insert(name.to_owned(), heard);
        let words = self.words.entry(about).or_default();
        words.entry(id).or_default().push(reward);
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many words wait.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.count
    }

    /// When there is something to learn, from now.
    pub fn due(&self, now: Instant) -> Option<Duration> {
        let passed = now.saturating_duration_since(self.since?);
        match self.count < MAX {
            true => Some(self.wait.saturating_sub(passed)),
            false => Some(Duration::ZERO),
        }
    }

    /// When all had time: learns, and says from whom up to which word.
    pub fn learn(
        &mut self,
        now: Instant,
        council: &mut Council,
    ) -> Option<BTreeMap<String, Heard>> {
        self.due(now).filter(Duration::is_zero)?;
        let words = std::mem::take(&mut self.words).into_iter();
        council.learn_late(words.map(|(about, words)| LateWords {
            about,
            rewards: rows(&words),
            speakers: words.into_keys().collect(),
        }));
        (self.count, self.since) = (0, None);
        Some(std::mem::take(&mut self.heard))
    }
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
    use presagio_tune::{CouncilSettings, Detector, Tuner, TunerSettings};

    const WAIT: Duration = Duration::from_secs(3);

    fn late() -> Late {
        Late::new(WAIT, Duration::from_secs(1))
    }

    fn council() -> Council {
        let tuner = Tuner::new(TunerSettings::default());
        Council::new(CouncilSettings::default(), tuner, Detector::shipped())
    }

    #[test]
    fn what_came_late_is_learned_as_in_rounds() {
        let of = |values: &[f64]| values.to_vec();
        let words: Words = [
            (NodeId(1), of(&[9.0, 1.0, 2.0])),
            (NodeId(2), of(&[1.1, 2.1])),
            (NodeId(3), of(&[1e9, 1e9])),
        ]
        .into();
        assert_eq!(rows(&words), [9.0, 1.1, 2.1]);
    }

    #[test]
    fn others_have_time_to_say_theirs() {
        let (mut late, mut council) = (late(), council());
        let now = Instant::now();
        assert!(late.learn(now, &mut council).is_none());
        let about = (Context::Pattern(1), "SJF".parse().unwrap());
        let heard = Heard {
            epoch: 1,
            sequence: 4,
            at_ms: 0,
        };
        late.add(("a", NodeId(1)), heard, about, 5.0);
        assert!(late.learn(now, &mut council).is_none());
        let heard = late
            .learn(now + 2 * WAIT, &mut council)
            .expect("time is over");
        assert_eq!(heard["a"].sequence, 4);
        let steps = council.tuner().bandit(&about.0).map(|it| it.steps());
        assert_eq!(steps, Some(1));
        assert!(late.learn(now + 3 * WAIT, &mut council).is_none());
    }

    #[test]
    fn they_have_it_before_nodes_give_up_what_they_said() {
        for (round_ms, wait_ms) in [(1, 64), (20, 1280), (1000, 3000), (10_000, 20_000)] {
            let late = Late::new(WAIT, Duration::from_millis(round_ms));
            assert_eq!(late.wait, Duration::from_millis(wait_ms), "{round_ms} ms");
        }
    }

    #[test]
    fn one_node_is_not_believed_what_is_far_off_from_what_is_known() {
        let mut council = council();
        let about = (Context::Pattern(1), "SJF".parse().unwrap());
        let learn = |council: &mut Council| council.tuner_mut().learn(&about.0, about.1, 100.0);
        (0..10).for_each(|_| assert!(learn(&mut council)));
        let steps = |council: &Council| council.tuner().bandit(&about.0).map_or(0, |it| it.steps());
        let later = Instant::now() + 2 * WAIT;
        let say = |late: &mut Late, node: u64, reward| {
            late.add(("x", NodeId(node)), Heard::default(), about, reward);
        };
        let mut late = late();
        say(&mut late, 9, 1e9);
        say(&mut late, 9, 90.0);
        late.learn(later, &mut council).expect("time is over");
        assert_eq!(steps(&council), 11);
        for node in 1..4 {
            say(&mut late, node, 1.0);
        }
        late.learn(later, &mut council).expect("time is over");
        assert_eq!(steps(&council), 12, "three nodes are");
    }
}
