//! What a knowledge base knows, as keys and values: for whoever keeps it. All numbers are little endian.
//!
//! ```text
//! key                        value
//! 1  0                       1  version  8 8  greatest distances of reads and of writes  4  next name  4  decisions
//! 1  1  4  a pattern's name  4  occurrences  4  last seen  4 × (4  successor  4  times)  4  workload
//!                            4  files  4 4  reads, writes, and its points, each 4
//! ```

use crate::Pattern;
use crate::base::{KnowledgeBase, Known, PatternId, SUCCESSORS};
use crate::settings::Settings;

const VERSION: u8 = 2;

/// The keys of what holds for all patterns, and of one pattern.
const ALL: u8 = 0;
const ONE: u8 = 1;

/// A key, and its value; none is to be removed.
pub type Changed = (Vec<u8>, Option<Vec<u8>>);

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
    /// What changed since this was last asked, of a knowledge base that [`KnowledgeBase::restore`] gave.
    pub fn changed(&mut self) -> Vec<Changed> {
        let mut changed: Vec<Changed> = Vec::new();
        let gone = self.gone.iter_mut().flat_map(std::mem::take);
        changed.extend(gone.map(|id| (key(id), None)));
        for known in self.known.iter_mut().filter(|known| known.is_changed) {
            known.is_changed = false;
            changed.push((key(known.id), Some(value(known))));
        }
        let head = self.head();
        if head != self.head_kept {
            changed.push((vec![ALL], Some(head.clone())));
            self.head_kept = head;
        }
        changed
    }

    /// All that there is to keep, as if nothing was kept yet.
    pub fn everything(&mut self) -> Vec<Changed> {
        self.known
            .iter_mut()
            .for_each(|known| known.is_changed = true);
        self.head_kept.clear();
        self.changed()
    }

    fn head(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        let greatest = self.distance_max.iter();
        out.extend(greatest.flat_map(|distance| distance.to_le_bytes()));
        put(&mut out, &[self.next_id, self.decisions]);
        out
    }

    /// What [`KnowledgeBase::changed`] gave, in any order; with what is wrong with those that were left out. What comes
    /// next does not follow what came last then.
    pub fn restore<'a>(
        settings: Settings,
        kept: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    ) -> (KnowledgeBase, Vec<Corrupt>) {
        let mut base = KnowledgeBase::new(settings);
        base.gone = Some(Vec::new());
        let mut wrong = Vec::new();
        for (key, value) in kept {
            if let Err(corrupt) = base.take_back(key, value) {
                wrong.push(corrupt);
            }
        }
        base.known.sort_by_key(|known| known.id);
        base.known.dedup_by_key(|known| known.id);
        // Names are never used again, whatever the head says.
        let named = base.known.iter().map(|known| known.id.max(known.workload));
        let used = named.max().map_or(0, |id| id.0.saturating_add(1));
        base.next_id = base.next_id.max(used);
        base.head_kept = base.head();
        base.recompare_all();
        (base, wrong)
    }

    fn take_back(&mut self, key: &[u8], value: &[u8]) -> Result<(), Corrupt> {
        let mut left = Reader(value);
        match key {
            [ALL] => {
                if left.take::<1>()? != [VERSION] {
                    return Err(Corrupt("its version is unknown"));
                }
                let greatest = [left.take()?, left.take()?].map(u64::from_le_bytes);
                let numbers = (left.number()?, left.number()?);
                left.ended()?;
                (self.distance_max, (self.next_id, self.decisions)) = (greatest, numbers);
            }
            [ONE, name @ ..] => {
                let name = name.try_into().map_err(|_| Corrupt("a name is too long"))?;
                let id = u32::from_le_bytes(name);
                if id == u32::MAX {
                    return Err(Corrupt("no pattern has that name"));
                }
                let known = left.known(PatternId(id))?;
                if !self.settings().can_be(&known.pattern) {
                    return Err(Corrupt("a pattern is of another kind"));
                }
                self.known.push(known);
            }
            _ => return Err(Corrupt("a key is of nothing that there is")),
        }
        Ok(())
    }
}

fn key(id: PatternId) -> Vec<u8> {
    [&[ONE], &id.0.to_le_bytes()[..]].concat()
}

fn put(out: &mut Vec<u8>, numbers: &[u32]) {
    out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
}

fn value(known: &Known) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, &[known.occurrences, known.last_seen]);
    for (successor, times) in known.successors {
        put(&mut out, &[successor.0, times]);
    }
    let Pattern {
        points,
        files,
        requests: [reads, writes],
        ..
    } = &known.pattern;
    put(&mut out, &[known.workload.0, *files, *reads, *writes]);
    put(&mut out, points);
    out
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

    fn ended(&self) -> Result<(), Corrupt> {
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(Corrupt("it is longer than it says")),
        }
    }

    fn known(&mut self, id: PatternId) -> Result<Known, Corrupt> {
        let (occurrences, last_seen) = (self.number()?, self.number()?);
        let mut successors = [(id, 0); SUCCESSORS];
        for successor in &mut successors {
            *successor = (PatternId(self.number()?), self.number()?);
        }
        let workload = PatternId(self.number()?);
        let (files, reads, writes) = (self.number()?, self.number()?, self.number()?);
        let mut points = Vec::with_capacity(self.0.len() / 4);
        while !self.0.is_empty() {
            points.push(self.number()?);
        }
        if points.is_empty() {
            return Err(Corrupt("it ends early"));
        }
        Ok(Known {
            pattern: Pattern::new(points, files, reads, writes),
            id,
            occurrences,
            last_seen,
            successors,
            workload,
            is_changed: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Patterns of the published representation: any points can be one.
    fn patterns() -> impl Strategy<Value = Vec<Pattern>> {
        let pattern = (
            prop::collection::vec(0_u32..1000, 1..12),
            1_u32..4,
            2_u32..50,
            2_u32..50,
        );
        let pattern = pattern
            .prop_map(|(points, files, reads, writes)| Pattern::new(points, files, reads, writes));
        prop::collection::vec(pattern, 1..40)
    }

    fn settings() -> Settings {
        Settings {
            patterns_max: 12,
            ..Settings::published_servers()
        }
    }

    type Store = BTreeMap<Vec<u8>, Vec<u8>>;

    fn keep(store: &mut Store, changed: Vec<Changed>) {
        for (key, value) in changed {
            match value {
                Some(value) => store.insert(key, value),
                None => store.remove(&key),
            };
        }
    }

    fn restore(store: &Store) -> (KnowledgeBase, Vec<Corrupt>) {
        let kept = store.iter().map(|(key, value)| (&**key, &**value));
        KnowledgeBase::restore(settings(), kept)
    }

    proptest! {
        /// Kept a little at a time, through what is forgotten and what is joined.
        #[test]
        fn what_was_kept_decides_as_before(
            before in patterns(), after in patterns(), often in 1_usize..9, joins in any::<bool>(),
        ) {
            let mut store = Store::new();
            let (mut first, _) = restore(&store);
            for (count, pattern) in before.into_iter().enumerate() {
                first.decide(pattern);
                if joins { first.recompare(3); }
                if joins && count % 5 == 4 {
                    let (a, b) = (first.ids().next(), first.ids().last());
                    let of = |id: Option<PatternId>| id.and_then(|id| first.workload(id)).expect("known");
                    let (gone, into) = (of(b), of(a));
                    first.join_workloads(gone, into);
                }
                if count % often == 0 { keep(&mut store, first.changed()); }
            }
            keep(&mut store, first.changed());
            let (mut second, wrong) = restore(&store);
            prop_assert!(wrong.is_empty());
            prop_assert!(second.changed().is_empty(), "what was restored is kept already");
            let mut whole = Store::new();
            keep(&mut whole, first.everything());
            prop_assert_eq!(whole, store);
            first.lose_track();
            for id in first.ids() { prop_assert_eq!(first.workload(id), second.workload(id)); }
            for pattern in after {
                prop_assert_eq!(first.decide(pattern.clone()), second.decide(pattern));
                prop_assert_eq!(first.next(), second.next());
            }
        }

        #[test]
        fn damage_is_left_out_or_harmless(
            all in patterns(), which in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(),
            byte in any::<u8>(), cut in any::<bool>(), in_key in any::<bool>(),
        ) {
            let mut store = Store::new();
            let (mut base, _) = restore(&store);
            for pattern in &all { base.decide(pattern.clone()); }
            keep(&mut store, base.changed());
            let (mut key, mut value) = {
                let (key, value) = store.iter().nth(which.index(store.len())).expect("one");
                (key.clone(), value.clone())
            };
            store.remove(&key);
            let bytes = if in_key { &mut key } else { &mut value };
            let at = at.index(bytes.len());
            if cut { bytes.truncate(at) } else { bytes[at] = byte }
            store.insert(key, value);
            let (mut base, _) = restore(&store);
            for pattern in all { base.decide(pattern); }
        }
    }
}
