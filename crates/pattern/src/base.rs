//! The patterns that are known: Algorithm 1, and what is remembered of each.
//!
//! A new pattern is compared with all that are known and are similar enough in their counts. The distance is held against
//! the greatest one ever seen (of the same majority operation, because series of different compression have different
//! distances), which is learned. When it grows, patterns that were too different may turn out to be the same:
//! [`KnowledgeBase::recompare`] joins them, a few at a time, whenever there is time for it.
//!
//! How often each pattern came decides which is forgotten when there are too many; what followed it says what comes next.

use crate::Pattern;
use crate::plain::score;
use crate::settings::{OpSettings, Settings};
use crate::warp::{Stake, Warper};
use presagio_core::Op;

/// Names a pattern for as long as it is known. Names are never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PatternId(pub u32);

/// What followed a pattern is kept for so many different successors.
pub(crate) const SUCCESSORS: usize = 4;

/// Memory for patterns grows by so many at once.
const GROWTH: usize = 64;

/// A pattern and what is remembered of it.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) pattern: Pattern,
    pub(crate) id: PatternId,
    pub(crate) occurrences: u32,
    /// The number of the decision that it was last seen in.
    pub(crate) last_seen: u32,
    /// What came after it, and how often; 0 is none.
    pub(crate) successors: [(PatternId, u32); SUCCESSORS],
    /// The workload that it is of: its own name, unless it was joined with others.
    pub(crate) workload: PatternId,
    /// Whether whoever keeps what is known does not know this yet.
    pub(crate) is_changed: bool,
}

/// Bytes that a pattern takes in a knowledge base.
#[cfg(test)]
pub(crate) fn bytes(pattern: &Pattern) -> usize {
    size_of::<Known>() - size_of::<Pattern>() + pattern.bytes()
}

/// What was decided about a period.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The pattern that it matches, or the one that it became.
    pub id: PatternId,
    /// The score of the match; none where it is a new pattern.
    pub score: Option<f64>,
    /// Known patterns that were similar enough in their counts to be compared.
    pub compared: u32,
    /// What was forgotten to make room.
    pub evicted: Option<Evicted>,
}

impl Decision {
    /// Whether it matches a known pattern.
    pub fn is_match(&self) -> bool {
        self.score.is_some()
    }
}

/// A pattern that was forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// Which one.
    pub id: PatternId,
    /// How often it had come.
    pub occurrences: u32,
    /// The workload that it was of.
    pub workload: PatternId,
}

/// A pattern that turned out to be another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merged {
    /// The one that is gone.
    pub id: PatternId,
    /// The one that it is now.
    pub into: PatternId,
}

/// What probably comes next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Next {
    /// The pattern.
    pub id: PatternId,
    /// How often it came after the current one, of all that came.
    pub probability: f64,
}

/// See the module's header.
#[derive(Clone, Debug)]
pub struct KnowledgeBase {
    settings: Settings,
    /// In the order of their names.
    pub(crate) known: Vec<Known>,
    /// The greatest distance between patterns that mostly read, and between those that mostly write.
    pub(crate) distance_max: [u64; 2],
    /// The first pattern that was not compared with the others since the maximum changed.
    to_recompare: [Option<PatternId>; 2],
    pub(crate) next_id: u32,
    pub(crate) decisions: u32,
    last: Option<PatternId>,
    warper: Warper,
    /// What was forgotten, for whoever keeps what is known; none where nobody does.
    pub(crate) gone: Option<Vec<PatternId>>,
    /// What holds for all patterns, as it was kept last.
    pub(crate) head_kept: Vec<u8>,
}

impl KnowledgeBase {
    /// Knows nothing yet.
    pub fn new(settings: Settings) -> KnowledgeBase {
        KnowledgeBase {
            warper: Warper::new(settings.distance),
            settings,
            known: Vec::new(),
            distance_max: [0; 2],
            to_recompare: [None; 2],
            next_id: 0,
            decisions: 0,
            last: None,
            gone: None,
            head_kept: Vec::new(),
        }
    }

    /// Begins with greatest distances that were learned before, for reads and for writes.
    pub fn with_distance_max(self, distance_max: [u64; 2]) -> KnowledgeBase {
        KnowledgeBase {
            distance_max,
            ..self
        }
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// From now on a match of patterns of this majority operation has to exceed another score.
    pub fn set_threshold(&mut self, op: Op, threshold: f64) {
        self.settings.ops[op.index()].threshold = threshold;
    }

    /// The greatest distance seen so far between patterns of this majority operation.
    pub fn distance_max(&self, op: Op) -> u64 {
        self.distance_max[op.index()]
    }

    /// How many patterns are known.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether none is known.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The names of all known patterns, the oldest first.
    pub fn ids(&self) -> impl Iterator<Item = PatternId> + '_ {
        self.known.iter().map(|known| known.id)
    }

    /// A known pattern.
    pub fn pattern(&self, id: PatternId) -> Option<&Pattern> {
        self.place(id).map(|place| &self.known[place].pattern)
    }

    /// How often a known pattern came.
    pub fn occurrences(&self, id: PatternId) -> Option<u32> {
        self.place(id).map(|place| self.known[place].occurrences)
    }

    /// Bytes of memory for patterns.
    pub fn bytes(&self) -> usize {
        let points = |known: &Known| size_of_val(&*known.pattern.points);
        self.known.capacity() * size_of::<Known>() + self.known.iter().map(points).sum::<usize>()
    }

    /// A period is over: which pattern is it? (Algorithm 1)
    pub fn decide(&mut self, pattern: Pattern) -> Decision {
        let op = pattern.majority();
        let (decision, distance) = self.decide_after(pattern, self.last);
        self.stretch(op, distance);
        self.last = Some(decision.id);
        decision
    }

    /// The same for one of several that feed this knowledge base: what it did before is for the caller to know, and so is
    /// whether the greatest distance that was found is to count ([`KnowledgeBase::stretch`]).
    pub fn decide_after(&mut self, pattern: Pattern, before: Option<PatternId>) -> (Decision, u64) {
        let found = self.find(&pattern, usize::MAX);
        self.decisions = self.decisions.saturating_add(1);
        let (id, score, evicted) = match found.best {
            Some((place, score)) => (self.seen_again(place), Some(score), None),
            None => {
                let evicted = self.make_room();
                (self.add(pattern), None, evicted)
            }
        };
        self.follow(before, id);
        let decision = Decision {
            id,
            score,
            compared: found.compared,
            evicted,
        };
        (decision, found.distance_max)
    }

    /// Which known pattern is it? Nothing is learned.
    pub fn recognise(&mut self, pattern: &Pattern) -> Option<PatternId> {
        let (place, _) = self.find(pattern, usize::MAX).best?;
        Some(self.known[place].id)
    }

    /// Patterns of this majority operation can be so far from each other: if that is new, known ones may match.
    pub fn stretch(&mut self, op: Op, distance: u64) {
        let op = op.index();
        if distance > self.distance_max[op] {
            self.distance_max[op] = distance;
            self.to_recompare[op] = self.known.first().map(|known| known.id);
        }
    }

    /// The loop of Algorithm 1, over the first so many patterns.
    fn find(&mut self, pattern: &Pattern, first: usize) -> Found {
        let majority = pattern.majority();
        let OpSettings {
            difference_max,
            threshold,
            ..
        } = *self.settings.of(majority);
        let mut found = Found {
            best: None,
            distance_max: self.distance_max[majority.index()],
            compared: 0,
        };
        let mut bar = Bar::new(threshold, found.distance_max);
        self.warper.prepare(pattern);
        for (place, known) in self.known.iter().take(first).enumerate() {
            let other = &known.pattern;
            if other.majority() != majority
                || self.settings.difference(pattern, other) >= difference_max
            {
                continue;
            }
            found.compared += 1;
            let Some(distance) = self.warper.compare(pattern, other, bar.stake) else {
                continue;
            };
            let greatest = found.distance_max.max(distance);
            let score = score(distance, greatest);
            if score > bar.score {
                found.best = Some((place, score));
            }
            if score > bar.score || greatest > found.distance_max {
                found.distance_max = greatest;
                bar = Bar::new(bar.score.max(score), greatest);
            }
        }
        found
    }

    fn seen_again(&mut self, place: usize) -> PatternId {
        let known = &mut self.known[place];
        known.occurrences = known.occurrences.saturating_add(1);
        known.last_seen = self.decisions;
        known.is_changed = true;
        known.id
    }

    fn add(&mut self, pattern: Pattern) -> PatternId {
        let id = PatternId(self.next_id);
        self.next_id = self.next_id.saturating_add(1);
        if self.known.len() == self.known.capacity() {
            self.known.reserve_exact(GROWTH);
        }
        self.known.push(Known {
            pattern,
            id,
            occurrences: 1,
            last_seen: self.decisions,
            successors: [(id, 0); SUCCESSORS],
            workload: id,
            is_changed: true,
        });
        id
    }

    /// Forgets the rarest pattern if there is no room for another: of equally rare ones that which was not seen for the
    /// longest time.
    fn make_room(&mut self) -> Option<Evicted> {
        if self.known.len() < self.settings.patterns_max.max(1) {
            return None;
        }
        let rarity = |place: &usize| (self.known[*place].occurrences, self.known[*place].last_seen);
        let place = (0..self.known.len()).min_by_key(rarity)?;
        let Known {
            id,
            occurrences,
            workload,
            ..
        } = self.known.remove(place);
        self.note_gone(id);
        self.rename_successor(id, None);
        Some(Evicted {
            id,
            occurrences,
            workload,
        })
    }

    fn note_gone(&mut self, id: PatternId) {
        if let Some(gone) = &mut self.gone {
            gone.push(id);
        }
    }

    fn place(&self, id: PatternId) -> Option<usize> {
        self.known.binary_search_by_key(&id, |known| known.id).ok()
    }

    // ── Workloads ────────────────────────────────────────────────────────────────────────────────────────────────────

    /// The workload of a pattern, by the name of one of its patterns, which may be forgotten meanwhile. Each is one by itself
    /// until somebody knows better.
    pub fn workload(&self, id: PatternId) -> Option<PatternId> {
        self.place(id).map(|place| self.known[place].workload)
    }

    /// Whether a pattern of this workload is known.
    pub fn has_workload(&self, workload: PatternId) -> bool {
        self.known.iter().any(|known| known.workload == workload)
    }

    /// A workload turned out to be another one.
    pub fn join_workloads(&mut self, gone: PatternId, into: PatternId) {
        let theirs = self.known.iter_mut();
        for known in theirs.filter(|known| known.workload == gone) {
            (known.workload, known.is_changed) = (into, true);
        }
    }

    // ── What comes next ──────────────────────────────────────────────────────────────────────────────────────────────

    /// The next period's pattern, by what came after the current one until now: a Markov chain over known patterns.
    pub fn next(&self) -> Option<Next> {
        self.after(self.last?)
    }

    /// What most often came after this pattern; of equally frequent ones the oldest.
    pub fn after(&self, id: PatternId) -> Option<Next> {
        let successors = &self.known[self.place(id)?].successors;
        let all: u64 = successors.iter().map(|(_, times)| u64::from(*times)).sum();
        let (id, times) = successors
            .iter()
            .max_by_key(|(id, times)| (*times, std::cmp::Reverse(*id)))?;
        (*times > 0).then(|| Next {
            id: *id,
            probability: f64::from(*times) / all as f64,
        })
    }

    /// What came after this pattern, and how often.
    pub fn successors(&self, id: PatternId) -> impl Iterator<Item = (PatternId, u32)> + '_ {
        let place = self.place(id).into_iter();
        let all = place.flat_map(|place| self.known[place].successors);
        all.filter(|(_, times)| *times > 0)
    }

    /// There is a gap: what comes now does not follow what came before.
    pub fn lose_track(&mut self) {
        self.last = None;
    }

    /// Goes one step in the chain. A successor that is new takes the place of the rarest where all are taken.
    fn follow(&mut self, before: Option<PatternId>, id: PatternId) {
        let Some(place) = before.and_then(|before| self.place(before)) else {
            return;
        };
        self.known[place].is_changed = true;
        let successors = &mut self.known[place].successors;
        let same = successors
            .iter()
            .position(|(s, times)| *s == id && *times > 0);
        let rarest = (0..SUCCESSORS)
            .min_by_key(|at| successors[*at].1)
            .unwrap_or(0);
        match same {
            Some(at) => successors[at].1 = successors[at].1.saturating_add(1),
            None => successors[rarest] = (id, 1),
        }
    }

    /// A pattern is gone, or has become another one: so do those that follow others.
    fn rename_successor(&mut self, gone: PatternId, into: Option<PatternId>) {
        if self.last == Some(gone) {
            self.last = into;
        }
        for known in &mut self.known {
            let own = known.id;
            let Some(at) = (0..SUCCESSORS)
                .find(|at| known.successors[*at].0 == gone && known.successors[*at].1 > 0)
            else {
                continue;
            };
            known.is_changed = true;
            let times = std::mem::replace(&mut known.successors[at], (own, 0)).1;
            if let Some(into) = into {
                add_successor(&mut known.successors, into, times);
            }
        }
    }

    // ── When the greatest distance has changed ───────────────────────────────────────────────────────────────────────

    /// Whether a greatest distance has changed since all patterns were compared with one another.
    pub fn may_recompare(&self) -> bool {
        self.to_recompare.iter().any(Option::is_some)
    }

    /// All patterns are to be compared with one another, whatever was done before.
    pub(crate) fn recompare_all(&mut self) {
        self.to_recompare = [self.known.first().map(|known| known.id); 2];
    }

    /// Compares up to `most` known patterns with those before them, as if each had just come, and joins those that match
    /// by what is now the greatest distance. To be called whenever there is time, while [`KnowledgeBase::may_recompare`].
    pub fn recompare(&mut self, most: usize) -> Vec<Merged> {
        let mut merged = Vec::new();
        for _ in 0..most {
            let Some(op) = (0..2).find(|op| self.to_recompare[*op].is_some()) else {
                break;
            };
            merged.extend(self.recompare_one(op));
        }
        merged
    }

    fn recompare_one(&mut self, op: usize) -> Option<Merged> {
        let from = self.to_recompare[op]?;
        let of_op = |known: &Known| known.pattern.majority().index() == op;
        let start = self.known.partition_point(|known| known.id < from);
        let Some(place) = (start..self.known.len()).find(|at| of_op(&self.known[*at])) else {
            self.to_recompare[op] = None;
            return None;
        };
        self.to_recompare[op] = Some(PatternId(self.known[place].id.0 + 1));
        let mut known = self.known.remove(place);
        let found = self.find(&known.pattern, place);
        if found.distance_max > self.distance_max[op] {
            // Grown again: once more from the beginning. It grows a bounded number of times, because it is one of the
            // distances of these patterns.
            self.distance_max[op] = found.distance_max;
            self.to_recompare[op] = Some(PatternId(0));
            self.known.insert(place, known);
            return None;
        }
        let Some((into, _)) = found.best else {
            self.known.insert(place, known);
            return None;
        };
        let kept = &mut self.known[into];
        kept.occurrences = kept.occurrences.saturating_add(known.occurrences);
        kept.last_seen = kept.last_seen.max(known.last_seen);
        kept.is_changed = true;
        let into = kept.id;
        known
            .successors
            .sort_by_key(|(_, times)| std::cmp::Reverse(*times));
        for (successor, times) in known.successors.into_iter().filter(|(_, times)| *times > 0) {
            add_successor(&mut kept.successors, successor, times);
        }
        self.note_gone(known.id);
        self.rename_successor(known.id, Some(into));
        Some(Merged { id: known.id, into })
    }
}

/// Adds to what is counted already, or takes the place of a rarer one.
fn add_successor(successors: &mut [(PatternId, u32); SUCCESSORS], id: PatternId, times: u32) {
    if let Some(same) = successors.iter_mut().find(|(s, n)| *s == id && *n > 0) {
        same.1 = same.1.saturating_add(times);
    } else if let Some(rarest) = successors.iter_mut().min_by_key(|(_, n)| *n)
        && rarest.1 < times
    {
        *rarest = (id, times);
    }
}

struct Found {
    best: Option<(usize, f64)>,
    distance_max: u64,
    compared: u32,
}

/// What a further match has to exceed, as a score and as a distance.
struct Bar {
    score: f64,
    stake: Stake,
}

impl Bar {
    /// The cutoff is the least distance whose score is not above `score`: the score falls with the distance, rounded or
    /// not, so bisection finds it exactly.
    fn new(bar: f64, distance_max: u64) -> Bar {
        let is_enough = |distance: u64| score(distance, distance_max.max(distance)) > bar;
        let (mut least, mut greatest) = (0, distance_max.saturating_add(1));
        while least < greatest {
            let middle = least + (greatest - least) / 2;
            match is_enough(middle) {
                true => least = middle + 1,
                false => greatest = middle,
            }
        }
        Bar {
            score: bar,
            stake: Stake {
                maximum: distance_max,
                cutoff: least,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plain;
    use crate::settings::Distance;
    use proptest::prelude::*;

    fn settings(by: Distance, threshold: f64) -> Settings {
        let op = OpSettings {
            compression: 1,
            difference_max: 0.5,
            threshold,
        };
        Settings {
            ops: [op; 2],
            distance: by,
            ..Settings::published_servers()
        }
    }

    const BAND: Distance = Distance::Band { radius: 5 };

    fn flat(value: u32) -> Pattern {
        Pattern::new(vec![value; 20], 1, 20, 0)
    }

    fn base(threshold: f64) -> KnowledgeBase {
        KnowledgeBase::new(settings(BAND, threshold))
    }

    #[test]
    fn the_first_score_of_equal_patterns_is_1_and_that_of_others_0() {
        let mut known = base(0.9);
        assert!(!known.decide(flat(5)).is_match());
        assert_eq!(known.decide(flat(5)).score, Some(1.0));
        assert!(
            !known.decide(flat(6)).is_match(),
            "the greatest distance is its own"
        );
        assert_eq!(known.distance_max(Op::Read), 20);
        assert_eq!(known.distance_max(Op::Write), 0);
    }

    #[test]
    fn the_greatest_distance_is_learned_and_makes_patterns_match() {
        let mut known = base(0.9);
        let first = known.decide(flat(0)).id;
        let second = known.decide(flat(1)).id;
        assert_ne!(first, second);
        known.decide(flat(1000));
        assert!(known.may_recompare());
        let merged = known.recompare(100);
        let expected = Merged {
            id: second,
            into: first,
        };
        assert_eq!(merged, [expected]);
        assert!(!known.may_recompare());
        assert_eq!(known.occurrences(first), Some(2));
        assert_eq!(known.decide(flat(1)).id, first);
    }

    #[test]
    fn patterns_that_differ_in_counts_are_not_compared() {
        let mut known = base(0.9);
        known.decide(Pattern::new(vec![1; 20], 1, 20, 0));
        let other = known.decide(Pattern::new(vec![1; 20], 2, 20, 0));
        assert_eq!((other.compared, other.is_match()), (0, false));
        let other = known.decide(Pattern::new(vec![1; 20], 1, 0, 20));
        assert_eq!((other.compared, other.is_match()), (0, false));
    }

    #[test]
    fn the_rarest_is_forgotten_when_there_is_no_room() {
        let mut known = KnowledgeBase::new(Settings {
            patterns_max: 3,
            ..settings(BAND, 0.99)
        });
        let ids: Vec<_> = [0, 500, 1000].map(|v| known.decide(flat(v)).id).into();
        known.decide(flat(0));
        known.decide(flat(1000));
        let decision = known.decide(flat(300));
        let evicted = decision.evicted.unwrap();
        assert_eq!((evicted.id, evicted.occurrences), (ids[1], 1));
        assert_eq!(known.len(), 3);
        assert!(known.pattern(ids[1]).is_none());
        assert!(known.pattern(decision.id).is_some());
    }

    #[test]
    fn what_usually_follows_is_predicted() {
        let mut known = base(0.99);
        for value in [0, 500, 0, 500, 0, 900, 0, 500] {
            known.decide(flat(value));
        }
        let last = known.decide(flat(0)).id;
        let next = known.next().unwrap();
        assert_eq!(known.pattern(next.id).unwrap().points()[0], 500);
        assert_eq!(next.probability, 0.75);
        assert_eq!(known.after(last), Some(next));
        known.lose_track();
        assert_eq!(known.next(), None);
    }

    #[test]
    fn a_forgotten_pattern_is_no_longer_predicted() {
        let mut known = KnowledgeBase::new(Settings {
            patterns_max: 2,
            ..settings(BAND, 0.99)
        });
        let first = known.decide(flat(0)).id;
        let second = known.decide(flat(500)).id;
        assert_eq!(known.after(first).unwrap().id, second);
        known.decide(flat(0));
        known.decide(flat(1000));
        assert!(known.pattern(second).is_none());
        assert!(known.after(first).is_none_or(|next| next.id != second));
    }

    fn pattern() -> impl Strategy<Value = Pattern> {
        let points = (
            0_u32..6,
            proptest::collection::vec(0_u32..40, 8..24),
            0_u32..4,
        );
        points.prop_map(|(level, mut points, noise)| {
            for point in &mut points {
                *point = level * 1000 + *point * noise;
            }
            let requests = points.len() as u32;
            let reads = if level == 5 { 0 } else { requests };
            Pattern::new(points, 1 + level % 2, reads, requests - reads)
        })
    }

    proptest! {
        #[test]
        fn decisions_are_those_of_the_plain_algorithm(
            patterns in proptest::collection::vec(pattern(), 1..40),
            fast in any::<bool>(),
            threshold in prop_oneof![Just(0.95), Just(0.5), 0.0_f64..1.0],
        ) {
            let by = if fast { Distance::FastDtw { radius: 1 } } else { BAND };
            let settings = settings(by, threshold);
            let mut known = KnowledgeBase::new(settings.clone());
            let (mut plain_known, mut maximum): (Vec<Pattern>, _) = (Vec::new(), [0; 2]);
            for pattern in patterns {
                let op = pattern.majority().index();
                let found = plain::find(&pattern, plain_known.iter(), &settings, maximum[op]);
                maximum[op] = found.distance_max;
                let decision = known.decide(pattern.clone());
                match found.best {
                    Some((place, score)) => {
                        prop_assert_eq!((decision.id.0 as usize, decision.score), (place, Some(score)));
                    }
                    None => {
                        prop_assert_eq!((decision.id.0 as usize, decision.score), (plain_known.len(), None));
                        plain_known.push(pattern);
                    }
                }
                prop_assert_eq!(known.distance_max, maximum);
            }
        }

        #[test]
        fn recomparison_ends_and_leaves_patterns_that_do_not_match(
            patterns in proptest::collection::vec(pattern(), 1..30),
            threshold in 0.5_f64..1.0,
        ) {
            let mut known = KnowledgeBase::new(settings(BAND, threshold));
            for pattern in patterns.clone() {
                known.decide(pattern);
            }
            let mut rounds = 0;
            while known.may_recompare() {
                known.recompare(1);
                rounds += 1;
                prop_assert!(rounds < 100_000);
            }
            let occurrences: u32 = known.ids().filter_map(|id| known.occurrences(id)).sum();
            prop_assert_eq!(occurrences as usize, patterns.len());
        }
    }
}
