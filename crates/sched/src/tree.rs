//! The ordered index under everything here: a B+ tree over 128-bit keys, in arenas.
//!
//! Keys are packed (group, offset, name) triples, see [`key`]. A [`Measure`] may be attached to the entries;
//! inner nodes know the join of the measures below them, so that "the first entry with an end beyond x" is
//! found in one descent.
//!
//! All operations are O(log n). One [`Tree::seek`] yields a position from which neighbours can be read
//! and an entry inserted, removed or changed without a second descent.

use crate::arena::{Arena, NONE};

/// Entries per leaf, children per inner node.
const WIDTH: usize = 32;

/// More levels than 2^32 entries can need.
const HEIGHT_MAX: usize = 12;

/// Packs a key that sorts by `group`, then `offset`, then `name`.
#[inline]
pub(crate) const fn key(group: u32, offset: u64, name: u32) -> u128 {
    ((group as u128) << 96) | ((offset as u128) << 32) | name as u128
}

/// The name in a key.
#[inline]
pub(crate) const fn name_of(key: u128) -> u32 {
    key as u32
}

/// The offset in a key.
#[inline]
pub(crate) const fn offset_of(key: u128) -> u64 {
    (key >> 32) as u64
}

/// The group in a key.
#[inline]
pub(crate) const fn group_of(key: u128) -> u32 {
    (key >> 96) as u32
}

/// What is summed up along the tree.
pub(crate) trait Measure: Default {
    /// A measure of one entry or of a subtree.
    type Value: Copy + PartialEq + std::fmt::Debug;
    /// The measure of no entry.
    const EMPTY: Self::Value;
    /// The measure of two parts together.
    fn join(a: Self::Value, b: Self::Value) -> Self::Value;
}

/// No measure: a plain ordered set.
#[derive(Debug, Default)]
pub(crate) struct NoMeasure;

impl Measure for NoMeasure {
    type Value = ();
    const EMPTY: () = ();
    fn join((): (), (): ()) {}
}

/// The largest value below: for finding intervals that reach beyond an offset.
#[derive(Debug, Default)]
pub(crate) struct MaxEnd;

impl Measure for MaxEnd {
    type Value = u64;
    const EMPTY: u64 = 0;
    fn join(a: u64, b: u64) -> u64 {
        a.max(b)
    }
}

#[derive(Clone, Debug)]
struct Leaf<V> {
    keys: [u128; WIDTH],
    values: [V; WIDTH],
    len: u32,
    prev: u32,
    next: u32,
}

/// `keys[i]` is at most every key below `children[i]`, and above every key below `children[i - 1]`.
/// `keys[0]` is not used: the first child takes everything below `keys[1]`.
#[derive(Clone, Debug)]
struct Inner<V> {
    keys: [u128; WIDTH],
    measures: [V; WIDTH],
    children: [u32; WIDTH],
    len: u32,
}

/// A place in a leaf: of an entry, or between entries. Valid until the tree changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    leaf: u32,
    at: u32,
}

/// The tree; see the module's header.
#[derive(Debug)]
pub(crate) struct Tree<M: Measure> {
    leaves: Arena<Leaf<M::Value>, 64>,
    inners: Arena<Inner<M::Value>, 64>,
    /// A leaf if `height` is 0, else an inner node.
    root: u32,
    height: usize,
    len: usize,
    /// The inner nodes and child numbers that the last `seek` went through, root first.
    path: [(u32, u32); HEIGHT_MAX],
}

impl<M: Measure> Default for Tree<M> {
    fn default() -> Self {
        let mut leaves = Arena::default();
        let root = leaves.insert(Leaf {
            keys: [0; WIDTH],
            values: [M::EMPTY; WIDTH],
            len: 0,
            prev: NONE,
            next: NONE,
        });
        Tree {
            leaves,
            inners: Arena::default(),
            root,
            height: 0,
            len: 0,
            path: [(NONE, 0); HEIGHT_MAX],
        }
    }
}

impl<M: Measure> Tree<M> {
    /// Whether there is no entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Finds the place of the first entry whose key is at least `key`.
    #[inline]
    pub(crate) fn seek(&mut self, key: u128) -> Place {
        let mut node = self.root;
        for level in 0..self.height {
            let inner = &self.inners[node];
            let child = inner.keys[1..inner.len as usize].partition_point(|k| *k <= key);
            self.path[level] = (node, child as u32);
            node = inner.children[child];
        }
        let leaf = &self.leaves[node];
        let at = leaf.keys[..leaf.len as usize].partition_point(|k| *k < key);
        Place {
            leaf: node,
            at: at as u32,
        }
    }

    /// The entry at or behind `place`.
    #[inline]
    pub(crate) fn at(&self, place: Place) -> Option<(u128, M::Value)> {
        let leaf = &self.leaves[place.leaf];
        if place.at < leaf.len {
            return Some(leaf.entry(place.at));
        }
        (leaf.next != NONE).then(|| self.leaves[leaf.next].entry(0))
    }

    /// The entry before `place`.
    #[inline]
    pub(crate) fn before(&self, place: Place) -> Option<(u128, M::Value)> {
        let leaf = &self.leaves[place.leaf];
        if place.at > 0 {
            return Some(leaf.entry(place.at - 1));
        }
        let prev = leaf.prev;
        (prev != NONE).then(|| self.leaves[prev].entry(self.leaves[prev].len - 1))
    }

    /// The place one entry behind `place`.
    pub(crate) fn forward(&self, place: Place) -> Place {
        let leaf = &self.leaves[place.leaf];
        if place.at < leaf.len || leaf.next == NONE {
            let at = (place.at + 1).min(leaf.len);
            return Place { at, ..place };
        }
        Place {
            leaf: leaf.next,
            at: 1,
        }
    }

    /// The place one entry before `place`, or `place` itself at the very start.
    pub(crate) fn backward(&self, place: Place) -> Place {
        if place.at > 0 {
            return Place {
                at: place.at - 1,
                ..place
            };
        }
        match self.leaves[place.leaf].prev {
            NONE => place,
            prev => Place {
                leaf: prev,
                at: self.leaves[prev].len - 1,
            },
        }
    }

    /// The first entry whose key is at least `key`.
    pub(crate) fn first_from(&mut self, key: u128) -> Option<(u128, M::Value)> {
        let place = self.seek(key);
        self.at(place)
    }

    /// Adds an entry. The key must not be there yet.
    pub(crate) fn insert(&mut self, key: u128, value: M::Value) {
        let place = self.seek(key);
        self.insert_at(place, key, value);
    }

    /// Adds an entry at the place that `seek(key)` has just returned.
    #[inline]
    pub(crate) fn insert_at(&mut self, place: Place, key: u128, value: M::Value) {
        self.len += 1;
        let leaf = &mut self.leaves[place.leaf];
        debug_assert!(place.at >= leaf.len || leaf.keys[place.at as usize] > key);
        if (leaf.len as usize) < WIDTH {
            leaf.insert(place.at as usize, key, value);
            for &(node, child) in &self.path[..self.height] {
                let measure = &mut self.inners[node].measures[child as usize];
                *measure = M::join(*measure, value);
            }
        } else {
            self.split_leaf(place, key, value);
        }
    }

    /// Removes the entry with exactly this key; whether it was there.
    pub(crate) fn remove(&mut self, key: u128) -> bool {
        self.take(key).is_some()
    }

    /// Removes the entry with exactly this key and returns its measure.
    pub(crate) fn take(&mut self, key: u128) -> Option<M::Value> {
        let place = self.seek(key);
        let leaf = &self.leaves[place.leaf];
        if place.at >= leaf.len || leaf.keys[place.at as usize] != key {
            return None;
        }
        let value = leaf.values[place.at as usize];
        self.remove_at(place);
        Some(value)
    }

    /// Changes the measure of the entry with exactly this key, which must be there.
    pub(crate) fn set(&mut self, key: u128, value: M::Value) {
        let place = self.seek(key);
        let leaf = &mut self.leaves[place.leaf];
        debug_assert_eq!(leaf.keys[place.at as usize], key);
        leaf.values[place.at as usize] = value;
        let measure = leaf.measure::<M>();
        self.set_measure_upwards(self.height, measure);
    }

    /// Removes the entry at the place that `seek` of its key has just returned.
    fn remove_at(&mut self, place: Place) {
        self.len -= 1;
        let leaf = &mut self.leaves[place.leaf];
        leaf.remove(place.at as usize);
        if leaf.len == 0 && self.height > 0 {
            let (prev, next) = (leaf.prev, leaf.next);
            self.unlink_leaf(prev, next);
            self.leaves.free(place.leaf);
            return self.remove_child(self.height - 1);
        }
        let measure = leaf.measure::<M>();
        self.set_measure_upwards(self.height, measure);
        if self.height > 0 && (self.leaves[place.leaf].len as usize) < WIDTH / 4 {
            self.merge_leaf();
        }
    }

    /// The first entry in `from..to` (keys) whose measure is wanted, where `wanted` of a joined measure
    /// is true if it is true of one part (`> end` of a maximum is).
    pub(crate) fn find_first(
        &self,
        from: u128,
        to: u128,
        wanted: impl Fn(M::Value) -> bool + Copy,
    ) -> Option<(u128, M::Value)> {
        self.find_below(self.root, self.height, from, to, wanted)
    }

    fn find_below(
        &self,
        node: u32,
        height: usize,
        from: u128,
        to: u128,
        wanted: impl Fn(M::Value) -> bool + Copy,
    ) -> Option<(u128, M::Value)> {
        if height == 0 {
            let leaf = &self.leaves[node];
            let keys = &leaf.keys[..leaf.len as usize];
            let start = keys.partition_point(|k| *k < from);
            return (start..keys.len())
                .take_while(|&i| keys[i] < to)
                .find(|&i| wanted(leaf.values[i]))
                .map(|i| leaf.entry(i as u32));
        }
        let inner = &self.inners[node];
        let keys = &inner.keys[..inner.len as usize];
        let start = keys[1..].partition_point(|k| *k <= from);
        (start..keys.len())
            .take_while(|&i| i == start || keys[i] < to)
            .filter(|&i| wanted(inner.measures[i]))
            .find_map(|i| self.find_below(inner.children[i], height - 1, from, to, wanted))
    }

    /// Splits the full leaf at `place` and adds the entry to the half where it belongs. A leaf that is
    /// full because entries are appended keeps what it has: the new one starts a leaf of its own.
    #[cold]
    fn split_leaf(&mut self, place: Place, key: u128, value: M::Value) {
        let old = place.leaf;
        let at = place.at as usize;
        let cut = if at == WIDTH { WIDTH } else { WIDTH / 2 };
        let left = &mut self.leaves[old];
        let mut right = left.split_off(cut, M::EMPTY);
        if at < cut || (at == cut && cut < WIDTH) {
            left.insert(at, key, value);
        } else {
            right.insert(at - cut, key, value);
        }
        let (left_measure, right_measure) = (left.measure::<M>(), right.measure::<M>());
        let (bound, after) = (right.keys[0], right.next);
        right.prev = old;
        let new = self.leaves.insert(right);
        self.leaves[old].next = new;
        if after != NONE {
            self.leaves[after].prev = new;
        }
        self.add_child(self.height, left_measure, bound, new, right_measure);
    }

    /// After a node at `level` was split: notes the left half's measure and adds the right half to the parent.
    fn add_child(
        &mut self,
        level: usize,
        left_measure: M::Value,
        bound: u128,
        new: u32,
        new_measure: M::Value,
    ) {
        if level == 0 {
            return self.grow_root(left_measure, bound, new, new_measure);
        }
        let (node, child) = self.path[level - 1];
        let inner = &mut self.inners[node];
        inner.measures[child as usize] = left_measure;
        let at = child as usize + 1;
        if (inner.len as usize) < WIDTH {
            inner.insert(at, bound, new, new_measure);
            let measure = inner.measure::<M>();
            return self.set_measure_upwards(level - 1, measure);
        }
        let cut = if at == WIDTH { WIDTH - 1 } else { WIDTH / 2 };
        let mut right = inner.split_off(cut, M::EMPTY);
        let right_bound = right.keys[0];
        if at <= cut {
            inner.insert(at, bound, new, new_measure);
        } else {
            right.insert(at - cut, bound, new, new_measure);
        }
        let (left_measure, right_measure) = (inner.measure::<M>(), right.measure::<M>());
        let right = self.inners.insert(right);
        self.add_child(level - 1, left_measure, right_bound, right, right_measure);
    }

    fn grow_root(&mut self, left_measure: M::Value, bound: u128, new: u32, new_measure: M::Value) {
        let mut inner = Inner {
            keys: [0; WIDTH],
            measures: [M::EMPTY; WIDTH],
            children: [NONE; WIDTH],
            len: 2,
        };
        (inner.keys[1], inner.children[0], inner.children[1]) = (bound, self.root, new);
        (inner.measures[0], inner.measures[1]) = (left_measure, new_measure);
        self.root = self.inners.insert(inner);
        self.height += 1;
        assert!(self.height < HEIGHT_MAX);
    }

    /// Notes along the last seek's path that the node at `level` measures `measure`; stops where
    /// nothing changes.
    #[inline]
    fn set_measure_upwards(&mut self, level: usize, mut measure: M::Value) {
        for &(node, child) in self.path[..level].iter().rev() {
            let inner = &mut self.inners[node];
            if inner.measures[child as usize] == measure {
                return;
            }
            inner.measures[child as usize] = measure;
            measure = inner.measure::<M>();
        }
    }

    fn unlink_leaf(&mut self, prev: u32, next: u32) {
        if prev != NONE {
            self.leaves[prev].next = next;
        }
        if next != NONE {
            self.leaves[next].prev = prev;
        }
    }

    /// Removes the child that the last seek took at `level`, which is empty; and its ancestors that
    /// become so.
    fn remove_child(&mut self, level: usize) {
        let (node, child) = self.path[level];
        let inner = &mut self.inners[node];
        inner.remove(child as usize);
        if inner.len == 0 {
            // Only below the root: a root with one child is replaced by it, see `shrink_root`.
            self.inners.free(node);
            return self.remove_child(level - 1);
        }
        let measure = inner.measure::<M>();
        self.set_measure_upwards(level, measure);
        self.shrink_root();
    }

    fn shrink_root(&mut self) {
        while self.height > 0 && self.inners[self.root].len == 1 {
            let old = self.root;
            self.root = self.inners[old].children[0];
            self.inners.free(old);
            self.height -= 1;
        }
    }

    /// Joins the thin leaf of the last seek with its right or left neighbour under the same parent if
    /// the two fill at most half a leaf.
    fn merge_leaf(&mut self) {
        let (node, child) = self.path[self.height - 1];
        let inner = &self.inners[node];
        let left = if child + 1 < inner.len {
            child as usize
        } else if child > 0 {
            child as usize - 1
        } else {
            return;
        };
        let (a, b) = (inner.children[left], inner.children[left + 1]);
        if self.leaves[a].len + self.leaves[b].len > WIDTH as u32 / 2 {
            return;
        }
        let gone = self.leaves[b].clone();
        for i in 0..gone.len {
            let (key, value) = gone.entry(i);
            let leaf = &mut self.leaves[a];
            leaf.insert(leaf.len as usize, key, value);
        }
        self.leaves[a].next = gone.next;
        if gone.next != NONE {
            self.leaves[gone.next].prev = a;
        }
        self.leaves.free(b);
        let measure = self.leaves[a].measure::<M>();
        let inner = &mut self.inners[node];
        inner.remove(left + 1);
        inner.measures[left] = measure;
        // The parent's own measure is unchanged: the same entries are below it.
        self.shrink_root();
    }
}

impl<V: Copy> Leaf<V> {
    #[inline]
    fn entry(&self, at: u32) -> (u128, V) {
        (self.keys[at as usize], self.values[at as usize])
    }

    #[inline]
    fn insert(&mut self, at: usize, key: u128, value: V) {
        let len = self.len as usize;
        self.keys.copy_within(at..len, at + 1);
        self.values.copy_within(at..len, at + 1);
        self.keys[at] = key;
        self.values[at] = value;
        self.len += 1;
    }

    #[inline]
    fn remove(&mut self, at: usize) {
        let len = self.len as usize;
        self.keys.copy_within(at + 1..len, at);
        self.values.copy_within(at + 1..len, at);
        self.len -= 1;
    }

    fn split_off(&mut self, cut: usize, empty: V) -> Leaf<V> {
        let mut right = Leaf {
            keys: [0; WIDTH],
            values: [empty; WIDTH],
            len: self.len - cut as u32,
            prev: NONE,
            next: self.next,
        };
        let len = self.len as usize;
        right.keys[..len - cut].copy_from_slice(&self.keys[cut..len]);
        right.values[..len - cut].copy_from_slice(&self.values[cut..len]);
        self.len = cut as u32;
        right
    }

    #[inline]
    fn measure<M: Measure<Value = V>>(&self) -> V {
        let values = &self.values[..self.len as usize];
        values.iter().fold(M::EMPTY, |a, &b| M::join(a, b))
    }
}

impl<V: Copy> Inner<V> {
    fn insert(&mut self, at: usize, bound: u128, child: u32, measure: V) {
        let len = self.len as usize;
        self.keys.copy_within(at..len, at + 1);
        self.measures.copy_within(at..len, at + 1);
        self.children.copy_within(at..len, at + 1);
        self.keys[at] = bound;
        self.measures[at] = measure;
        self.children[at] = child;
        self.len += 1;
    }

    fn remove(&mut self, at: usize) {
        let len = self.len as usize;
        self.keys.copy_within(at + 1..len, at);
        self.measures.copy_within(at + 1..len, at);
        self.children.copy_within(at + 1..len, at);
        self.len -= 1;
    }

    fn split_off(&mut self, cut: usize, empty: V) -> Inner<V> {
        let mut right = Inner {
            keys: [0; WIDTH],
            measures: [empty; WIDTH],
            children: [NONE; WIDTH],
            len: self.len - cut as u32,
        };
        let len = self.len as usize;
        right.keys[..len - cut].copy_from_slice(&self.keys[cut..len]);
        right.measures[..len - cut].copy_from_slice(&self.measures[cut..len]);
        right.children[..len - cut].copy_from_slice(&self.children[cut..len]);
        self.len = cut as u32;
        right
    }

    #[inline]
    fn measure<M: Measure<Value = V>>(&self) -> V {
        let measures = &self.measures[..self.len as usize];
        measures.iter().fold(M::EMPTY, |a, &b| M::join(a, b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    impl<M: Measure> Tree<M> {
        /// Walks everything and checks order, links, bounds and measures.
        fn check(&self) {
            let (mut keys, mut leaves) = (Vec::new(), Vec::new());
            self.check_below(self.root, self.height, 0, u128::MAX, &mut keys, &mut leaves);
            assert!(keys.is_sorted());
            assert_eq!(keys.len(), self.len);
            for pair in leaves.windows(2) {
                assert_eq!(self.leaves[pair[0]].next, pair[1]);
                assert_eq!(self.leaves[pair[1]].prev, pair[0]);
            }
            assert_eq!(self.leaves[leaves[0]].prev, NONE);
            assert_eq!(self.leaves[*leaves.last().unwrap()].next, NONE);
        }

        fn check_below(
            &self,
            node: u32,
            height: usize,
            low: u128,
            high: u128,
            keys: &mut Vec<u128>,
            leaves: &mut Vec<u32>,
        ) -> M::Value {
            if height == 0 {
                let leaf = &self.leaves[node];
                let mine = &leaf.keys[..leaf.len as usize];
                assert!(mine.iter().all(|k| (low..high).contains(k)));
                assert!(!mine.is_empty() || self.height == 0);
                keys.extend(mine);
                leaves.push(node);
                return leaf.measure::<M>();
            }
            let inner = &self.inners[node];
            let len = inner.len as usize;
            assert!(len > 0 && (height < self.height || len > 1));
            for i in 0..len {
                let from = if i == 0 { low } else { inner.keys[i] };
                let to = if i + 1 == len {
                    high
                } else {
                    inner.keys[i + 1]
                };
                let below = self.check_below(inner.children[i], height - 1, from, to, keys, leaves);
                assert_eq!(below, inner.measures[i]);
            }
            inner.measure::<M>()
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u16, u64),
        Remove(u16),
        Set(u16, u64),
        Find(u16, u16, u64),
        Neighbours(u16),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u16..600, 0u64..100).prop_map(|(k, v)| Step::Insert(k, v)),
            3 => (0u16..600).prop_map(Step::Remove),
            1 => (0u16..600, 0u64..100).prop_map(|(k, v)| Step::Set(k, v)),
            1 => (0u16..600, 0u16..600, 0u64..100).prop_map(|(a, b, v)| Step::Find(a, b, v)),
            1 => (0u16..600).prop_map(Step::Neighbours),
        ]
    }

    fn run_model<M: Measure<Value = u64>>(steps: Vec<Step>, wanted: fn(u64, u64) -> bool) {
        let (mut tree, mut model) = (Tree::<M>::default(), BTreeMap::<u128, u64>::new());
        for s in steps {
            match s {
                Step::Insert(k, v) => {
                    if !model.contains_key(&k.into()) {
                        tree.insert(k.into(), v);
                        model.insert(k.into(), v);
                    }
                }
                Step::Remove(k) => {
                    assert_eq!(tree.remove(k.into()), model.remove(&k.into()).is_some());
                }
                Step::Set(k, v) => {
                    if let Some(value) = model.get_mut(&k.into()) {
                        *value = v;
                        tree.set(k.into(), v);
                    }
                }
                Step::Find(a, b, v) => {
                    let (from, to) = (u128::from(a.min(b)), u128::from(a.max(b)));
                    let within = || model.range(from..to).map(|(k, v)| (*k, *v));
                    assert_eq!(
                        tree.find_first(from, to, |m| wanted(m, v)),
                        within().find(|e| wanted(e.1, v))
                    );
                }
                Step::Neighbours(k) => {
                    let k = u128::from(k);
                    let place = tree.seek(k);
                    let next = model.range(k..).map(|(k, v)| (*k, *v)).next();
                    let prev = model.range(..k).map(|(k, v)| (*k, *v)).next_back();
                    assert_eq!(tree.at(place), next);
                    assert_eq!(tree.before(place), prev);
                    let second = model.range(k..).map(|(k, v)| (*k, *v)).nth(1);
                    assert_eq!(tree.at(tree.forward(place)), second);
                    if prev.is_some() {
                        assert_eq!(tree.at(tree.backward(place)), prev);
                    }
                }
            }
        }
        tree.check();
        // Emptied in order, it must come apart cleanly too.
        while let Some((k, _)) = model.pop_first() {
            assert!(tree.remove(k));
        }
        tree.check();
        assert!(tree.is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn behaves_like_an_ordered_map_with_maxima(steps in proptest::collection::vec(step(), 0..1500)) {
            run_model::<MaxEnd>(steps, |m, v| m > v);
        }
    }

    #[test]
    fn appending_fills_leaves() {
        let mut tree = Tree::<NoMeasure>::default();
        (0..100_000u128).for_each(|k| tree.insert(k, ()));
        tree.check();
        assert!(tree.leaves.capacity_used() as usize <= 100_000 / WIDTH + 1);
    }
}
