//! A priority queue whose members can change their key or leave.

use crate::arena::NONE;

/// Four children per node: fewer levels than two, and siblings share a cache line.
const ARITY: usize = 4;

/// Members are small integers (queue numbers); each is in the heap at most once.
#[derive(Debug)]
pub(crate) struct KeyedHeap<K> {
    nodes: Vec<(K, u32)>,
    /// Where each member stands in `nodes`, or NONE.
    places: Vec<u32>,
}

impl<K> Default for KeyedHeap<K> {
    fn default() -> Self {
        KeyedHeap {
            nodes: Vec::new(),
            places: Vec::new(),
        }
    }
}

impl<K: Ord + Copy> KeyedHeap<K> {
    /// The member with the smallest key; among equal keys the smallest member.
    pub(crate) fn peek(&self) -> Option<(K, u32)> {
        self.nodes.first().copied()
    }

    /// Whether `member` is in the heap.
    #[inline]
    pub(crate) fn contains(&self, member: u32) -> bool {
        // An empty heap need not be looked into: with many members, that is a cache miss.
        let place = || self.places.get(member as usize);
        !self.nodes.is_empty() && place().is_some_and(|p| *p != NONE)
    }

    /// Adds `member`, or changes its key.
    #[inline(always)]
    pub(crate) fn set(&mut self, member: u32, key: K) {
        match self.places.get(member as usize) {
            None => {
                self.places.resize(member as usize + 1, NONE);
                self.add(member, key);
            }
            Some(&NONE) => self.add(member, key),
            Some(&place) => self.change(place as usize, key),
        }
    }

    /// Removes `member`; whether it was there.
    pub(crate) fn remove(&mut self, member: u32) -> bool {
        if !self.contains(member) {
            return false;
        }
        let place = self.places[member as usize] as usize;
        self.places[member as usize] = NONE;
        let last = self.nodes.pop().expect("contains a member");
        if place < self.nodes.len() {
            self.nodes[place] = last;
            self.resift(place);
        }
        true
    }

    #[inline(always)]
    fn add(&mut self, member: u32, key: K) {
        self.nodes.push((key, member));
        self.sift_up(self.nodes.len() - 1);
    }

    fn change(&mut self, place: usize, key: K) {
        let old = std::mem::replace(&mut self.nodes[place].0, key);
        if self.nodes.len() > 1 && key != old {
            self.resift(place);
        }
    }

    fn resift(&mut self, place: usize) {
        if self.sift_up(place) == place {
            self.sift_down(place);
        }
    }

    #[inline(always)]
    fn sift_up(&mut self, mut place: usize) -> usize {
        // As slices, which nothing else can change meanwhile: their lengths are looked up once.
        let (nodes, places) = (&mut self.nodes[..], &mut self.places[..]);
        let node = nodes[place];
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if nodes[parent] <= node {
                break;
            }
            nodes[place] = nodes[parent];
            places[nodes[place].1 as usize] = place as u32;
            place = parent;
        }
        nodes[place] = node;
        places[node.1 as usize] = place as u32;
        place
    }

    fn sift_down(&mut self, mut place: usize) {
        let node = self.nodes[place];
        loop {
            let first = place * ARITY + 1;
            let children = first..(first + ARITY).min(self.nodes.len());
            let Some(least) = children.min_by_key(|&c| self.nodes[c]) else {
                break;
            };
            if node <= self.nodes[least] {
                break;
            }
            self.put(place, self.nodes[least]);
            place = least;
        }
        self.put(place, node);
    }

    fn put(&mut self, place: usize, node: (K, u32)) {
        self.nodes[place] = node;
        self.places[node.1 as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn the_least_is_always_on_top(steps in proptest::collection::vec((0u32..40, proptest::option::of(0u64..50)), 0..400)) {
            let (mut heap, mut model) = (KeyedHeap::default(), BTreeMap::new());
            for (member, key) in steps {
                match key {
                    Some(key) => {
                        heap.set(member, key);
                        model.insert(member, key);
                    }
                    None => prop_assert_eq!(heap.remove(member), model.remove(&member).is_some()),
                }
                prop_assert_eq!(heap.peek(), model.iter().map(|(m, k)| (*k, *m)).min());
                prop_assert_eq!(heap.contains(member), model.contains_key(&member));
            }
        }
    }
}
