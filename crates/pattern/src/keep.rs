//! What a knowledge base knows, as bytes: for whoever keeps it. All numbers are little endian.
//!
//! ```text
//! 1  version     8 8  greatest distances of reads and of writes     4  next name     4  decisions     4  patterns, each:
//!    4  name  4  occurrences  4  last seen  4 × (4  successor  4  times)  4  files  4 4  reads, writes  4  points, each 4
//! ```

use crate::Pattern;
use crate::base::{KnowledgeBase, Known, PatternId, SUCCESSORS};
use crate::settings::Settings;

const VERSION: u8 = 1;

/// Bytes are not what a knowledge base gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt(pub &'static str);

impl std::fmt::Display for Corrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "what was kept of known patterns cannot be read: {}",
            self.0
        )
    }
}

impl std::error::Error for Corrupt {}

impl KnowledgeBase {
    /// All that it knows.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        self.distance_max
            .iter()
            .for_each(|it| out.extend(it.to_le_bytes()));
        let mut put = |numbers: &[u32]| {
            let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
            out.extend(bytes);
        };
        put(&[self.next_id, self.decisions, self.known.len() as u32]);
        for known in &self.known {
            put(&[known.id.0, known.occurrences, known.last_seen]);
            for (successor, times) in known.successors {
                put(&[successor.0, times]);
            }
            let Pattern {
                points,
                files,
                requests: [reads, writes],
                ..
            } = &known.pattern;
            put(&[*files, *reads, *writes, points.len() as u32]);
            put(points);
        }
        out
    }

    /// What [`KnowledgeBase::to_bytes`] gave. What comes next does not follow what came last then.
    pub fn from_bytes(settings: Settings, bytes: &[u8]) -> Result<KnowledgeBase, Corrupt> {
        let mut left = Reader(bytes);
        if left.take::<1>()? != [VERSION] {
            return Err(Corrupt("its version is unknown"));
        }
        let greatest = [left.take()?, left.take()?].map(u64::from_le_bytes);
        let mut base = KnowledgeBase::new(settings).with_distance_max(greatest);
        (base.next_id, base.decisions) = (left.number()?, left.number()?);
        for _ in 0..left.number()? {
            let known = left.known()?;
            let before = base.known.last().map(|known| known.id);
            if before >= Some(known.id) || known.id.0 >= base.next_id {
                return Err(Corrupt("names are out of order"));
            }
            base.known.push(known);
        }
        match left.0.is_empty() {
            true => Ok(base),
            false => Err(Corrupt("it is longer than it says")),
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Corrupt> {
        let (taken, left) = self.0.split_first_chunk().ok_or(Corrupt("it ends early"))?;
        self.0 = left;
        Ok(*taken)
    }

    fn number(&mut self) -> Result<u32, Corrupt> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    fn known(&mut self) -> Result<Known, Corrupt> {
        let (id, occurrences, last_seen) =
            (PatternId(self.number()?), self.number()?, self.number()?);
        let mut successors = [(id, 0); SUCCESSORS];
        for successor in &mut successors {
            *successor = (PatternId(self.number()?), self.number()?);
        }
        let (files, reads, writes) = (self.number()?, self.number()?, self.number()?);
        let points = self.number()? as usize;
        if points == 0 || points > self.0.len() / 4 {
            return Err(Corrupt("it ends early"));
        }
        let points: Vec<u32> = (0..points)
            .map(|_| self.number())
            .collect::<Result<_, _>>()?;
        Ok(Known {
            pattern: Pattern::new(points, files, reads, writes),
            id,
            occurrences,
            last_seen,
            successors,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn patterns() -> impl Strategy<Value = Vec<Pattern>> {
        let pattern = (
            prop::collection::vec(0_u32..1000, 1..12),
            1_u32..4,
            0_u32..50,
            0_u32..50,
        );
        let pattern = pattern
            .prop_map(|(points, files, reads, writes)| Pattern::new(points, files, reads, writes));
        prop::collection::vec(pattern, 1..40)
    }

    proptest! {
        #[test]
        fn what_was_kept_decides_as_before(before in patterns(), after in patterns()) {
            let mut first = KnowledgeBase::new(Settings::ours());
            for pattern in before { first.decide(pattern); }
            let kept = KnowledgeBase::from_bytes(Settings::ours(), &first.to_bytes());
            let mut second = kept.expect("good");
            first.lose_track();
            for pattern in after {
                prop_assert_eq!(first.decide(pattern.clone()), second.decide(pattern));
                prop_assert_eq!(first.next(), second.next());
            }
        }

        #[test]
        fn damage_is_an_error_or_harmless(
            all in patterns(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>(),
        ) {
            let mut base = KnowledgeBase::new(Settings::ours());
            for pattern in &all { base.decide(pattern.clone()); }
            let mut bytes = base.to_bytes();
            let at = at.index(bytes.len());
            if cut { bytes.truncate(at) } else { bytes[at] = byte }
            if let Ok(mut base) = KnowledgeBase::from_bytes(Settings::ours(), &bytes) {
                base.decide(all[0].clone());
            }
        }
    }
}
