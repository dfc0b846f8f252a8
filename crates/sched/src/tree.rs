//! The ordered index under everything here: B+ trees over (offset, name) keys, in shared arenas.
//!
//! A [`Forest`] has one tree per queue, so that a request's place is searched among its queue's only. Every
//! entry also has an *end*; inner nodes know the greatest end below them, so that the first entry that
//! reaches beyond an offset is found in one descent: that makes it an index of intervals.
//!
//! A tree with one entry has it in its own record and no node: with many files, most queues are that short.
//!
//! All operations are O(log n) in the tree they touch. One [`Forest::seek`] yields a place from which
//! neighbours can be read and an entry inserted without a second descent.

use crate::arena::{Arena, NONE, Table};

/// Entries per leaf.
const WIDTH: usize = 32;

/// Children per inner node. More than entries per leaf, because inner nodes are searched often and seldom
/// change.
const FAN: usize = 64;

/// More levels than 2^32 entries can need.
const HEIGHT_MAX: usize = 12;

/// Entries sort by offset, then name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub offset: u64,
    pub name: u32,
}

impl Key {
    #[inline]
    pub(crate) const fn new(offset: u64, name: u32) -> Key {
        Key { offset, name }
    }

    /// Before every entry at `offset`.
    #[inline]
    pub(crate) const fn from(offset: u64) -> Key {
        Key { offset, name: 0 }
    }

    /// The least key behind this one.
    pub(crate) const fn next(self) -> Key {
        Key {
            offset: self.offset + (self.name == NONE) as u64,
            name: self.name.wrapping_add(1),
        }
    }
}

/// An entry: its key and its end.
pub(crate) type Interval = (Key, u64);

/// What stands behind an entry that was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behind {
    /// Nothing: it is the tree's only entry.
    Alone,
    /// Nothing: it is the last.
    Nothing,
    /// An entry with this offset.
    Offset(u64),
}

/// Three arrays, so that a search touches only offsets; the first of them share a cache line with the length.
#[derive(Clone, Debug)]
#[repr(C)]
struct Leaf {
    len: u32,
    prev: u32,
    next: u32,
    names: [u32; WIDTH],
    offsets: [u64; WIDTH],
    ends: [u64; WIDTH],
}

/// The key at `i` is at most every key below `children[i]`, and above every key below `children[i - 1]`.
/// The first is not used: the first child takes everything below the second key.
#[derive(Clone, Debug)]
struct Inner {
    offsets: [u64; FAN],
    /// The greatest end below each child.
    ends: [u64; FAN],
    names: [u32; FAN],
    children: [u32; FAN],
    len: u32,
}

/// A place in a leaf: of an entry, or between entries. Valid until the forest changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// NONE if the tree is empty, SOLE if its only entry is in its record.
    leaf: u32,
    at: u32,
    tree: u32,
}

/// A tree. If its height is SOLE it is one entry, of the name `root`, or nothing if that is NONE; if its height
/// is 0 the root is a leaf, else an inner node.
#[derive(Clone, Copy, Debug)]
struct Tree {
    root: u32,
    height: u32,
    /// No entry has a greater offset. What is appended goes to the end without a search.
    bound: u64,
    /// The end of the only entry.
    end: u64,
}

/// In the place of a height, or of a leaf: there is one entry, in the tree's record.
const SOLE: u32 = NONE - 1;

impl Tree {
    fn sole(key: Key, end: u64) -> Tree {
        Tree {
            root: key.name,
            height: SOLE,
            bound: key.offset,
            end,
        }
    }

    /// The only entry of a tree that has one.
    fn only(&self) -> Interval {
        (Key::new(self.bound, self.root), self.end)
    }
}

impl Default for Tree {
    fn default() -> Self {
        Tree {
            root: NONE,
            height: SOLE,
            bound: 0,
            end: 0,
        }
    }
}

/// See the module's header. Trees are named by small numbers and exist from the start, empty.
#[derive(Debug, Default)]
pub(crate) struct Forest {
    trees: Table<Tree>,
    leaves: Arena<Leaf, 64>,
    inners: Arena<Inner, 32>,
    len: usize,
    /// The inner nodes and child numbers that the last `seek` went through, root first.
    path: [(u32, u32); HEIGHT_MAX],
}

impl Forest {
    /// Whether no tree has an entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether this tree has no entry.
    pub(crate) fn is_bare(&self, tree: u32) -> bool {
        self.tree(tree).root == NONE
    }

    /// Finds the place of the first entry of `tree` whose key is at least `key`.
    #[inline]
    pub(crate) fn seek(&mut self, tree: u32, key: Key) -> Place {
        let Tree {
            root,
            height,
            bound,
            end: _,
        } = self.tree(tree);
        if height == SOLE {
            let leaf = if root == NONE { NONE } else { SOLE };
            let at = (root != NONE && Key::new(bound, root) < key) as u32;
            return Place { leaf, at, tree };
        }
        let behind_all = key.offset > bound;
        let mut node = root;
        for step in &mut self.path[..height as usize] {
            let inner = &self.inners[node];
            let child = if behind_all {
                inner.len as usize - 1
            } else {
                inner.child(key)
            };
            *step = (node, child as u32);
            node = inner.children[child];
        }
        let leaf = &self.leaves[node];
        let at = if behind_all {
            leaf.len
        } else {
            leaf.rank(key) as u32
        };
        let leaf = node;
        Place { leaf, at, tree }
    }

    /// The only entry, if there is one in the tree's record and it is at number `at`.
    fn only(&self, place: Place, at: u32) -> Option<Interval> {
        (place.leaf == SOLE && place.at == at).then(|| self.trees[place.tree].only())
    }

    /// The entry at or behind `place`.
    #[inline]
    pub(crate) fn at(&self, place: Place) -> Option<Interval> {
        if place.leaf >= SOLE {
            return self.only(place, 0);
        }
        let leaf = &self.leaves[place.leaf];
        if place.at < leaf.len {
            return Some(leaf.entry(place.at));
        }
        (leaf.next != NONE).then(|| self.leaves[leaf.next].entry(0))
    }

    /// The entry before `place`.
    #[inline]
    pub(crate) fn before(&self, place: Place) -> Option<Interval> {
        if place.leaf >= SOLE {
            return self.only(place, 1);
        }
        let leaf = &self.leaves[place.leaf];
        if place.at > 0 {
            return Some(leaf.entry(place.at - 1));
        }
        let prev = leaf.prev;
        (prev != NONE).then(|| self.leaves[prev].entry(self.leaves[prev].len - 1))
    }

    /// The place one entry behind `place`.
    pub(crate) fn forward(&self, place: Place) -> Place {
        if place.leaf >= SOLE {
            let at = (place.leaf == SOLE) as u32;
            return Place { at, ..place };
        }
        let leaf = &self.leaves[place.leaf];
        if place.at < leaf.len || leaf.next == NONE {
            let at = (place.at + 1).min(leaf.len);
            return Place { at, ..place };
        }
        Place {
            leaf: leaf.next,
            at: 1,
            ..place
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
        if place.leaf >= SOLE {
            return place;
        }
        match self.leaves[place.leaf].prev {
            NONE => place,
            prev => Place {
                leaf: prev,
                at: self.leaves[prev].len - 1,
                ..place
            },
        }
    }

    /// The first entry of `tree`.
    pub(crate) fn first(&mut self, tree: u32) -> Option<Interval> {
        let place = self.seek(tree, Key::default());
        self.at(place)
    }

    /// Adds an entry and returns the offset of the one behind it. The key must not be there yet.
    #[inline(always)]
    pub(crate) fn insert(&mut self, tree: u32, key: Key, end: u64) -> Behind {
        let planted = self.trees.at_mut(tree);
        if planted.root == NONE {
            *planted = Tree::sole(key, end);
            self.len += 1;
            return Behind::Alone;
        }
        self.insert_among(tree, key, end)
    }

    fn insert_among(&mut self, tree: u32, key: Key, end: u64) -> Behind {
        let place = self.seek(tree, key);
        let next = self.at(place);
        self.insert_at(tree, place, key, end);
        next.map_or(Behind::Nothing, |(key, _)| Behind::Offset(key.offset))
    }

    /// Adds an entry at the place that `seek(tree, key)` has just returned.
    #[inline]
    pub(crate) fn insert_at(&mut self, tree: u32, place: Place, key: Key, end: u64) {
        self.len += 1;
        if place.leaf == NONE {
            *self.trees.at_mut(tree) = Tree::sole(key, end);
            return;
        }
        if place.leaf == SOLE {
            return self.plant(tree, place.at, key, end);
        }
        let planted = &mut self.trees[tree];
        planted.bound = planted.bound.max(key.offset);
        let height = planted.height as usize;
        let leaf = &mut self.leaves[place.leaf];
        debug_assert!(place.at >= leaf.len || leaf.entry(place.at).0 > key);
        if leaf.len as usize == WIDTH {
            return self.split_leaf(tree, place, key, end);
        }
        leaf.insert(place.at as usize, key, end);
        for &(node, child) in &self.path[..height] {
            let greatest = &mut self.inners[node].ends[child as usize];
            *greatest = end.max(*greatest);
        }
    }

    /// Removes the entry with exactly this key; whether it was there.
    pub(crate) fn remove(&mut self, tree: u32, key: Key) -> bool {
        self.take(tree, key).is_some()
    }

    /// Removes the entry with exactly this key and returns its end.
    pub(crate) fn take(&mut self, tree: u32, key: Key) -> Option<u64> {
        let place = self.seek(tree, key);
        if place.leaf >= SOLE {
            return self.take_only(place, key);
        }
        let leaf = &self.leaves[place.leaf];
        if place.at >= leaf.len || leaf.entry(place.at).0 != key {
            return None;
        }
        let end = leaf.ends[place.at as usize];
        self.remove_at(tree, place);
        Some(end)
    }

    fn take_only(&mut self, place: Place, key: Key) -> Option<u64> {
        let (_, end) = self.only(place, 0).filter(|(found, _)| *found == key)?;
        self.trees[place.tree] = Tree::default();
        self.len -= 1;
        Some(end)
    }

    /// Changes the end of the entry with exactly this key, which must be there.
    pub(crate) fn set(&mut self, tree: u32, key: Key, end: u64) {
        let place = self.seek(tree, key);
        if place.leaf == SOLE {
            self.trees[tree].end = end;
            return;
        }
        let leaf = &mut self.leaves[place.leaf];
        debug_assert_eq!(leaf.entry(place.at).0, key);
        leaf.ends[place.at as usize] = end;
        let greatest = leaf.greatest();
        self.note_greatest(self.height(tree), greatest);
    }

    /// The first entry of `tree` from key `from` on that starts before `before` and ends beyond `beyond`.
    pub(crate) fn find_first(
        &self,
        tree: u32,
        from: Key,
        before: u64,
        beyond: u64,
    ) -> Option<Interval> {
        let found = self.tree(tree);
        let Tree { root, height, .. } = found;
        if root == NONE {
            return None;
        }
        if height == SOLE {
            let (key, end) = found.only();
            let wanted = key >= from && key.offset < before && end > beyond;
            return wanted.then_some((key, end));
        }
        self.find_below(root, height, from, before, beyond)
    }

    fn find_below(
        &self,
        node: u32,
        height: u32,
        from: Key,
        before: u64,
        beyond: u64,
    ) -> Option<Interval> {
        if height == 0 {
            let leaf = &self.leaves[node];
            return (leaf.rank(from)..leaf.len as usize)
                .take_while(|&i| leaf.offsets[i] < before)
                .find(|&i| leaf.ends[i] > beyond)
                .map(|i| leaf.entry(i as u32));
        }
        let inner = &self.inners[node];
        let first = inner.child(from);
        (first..inner.len as usize)
            .take_while(|&i| i == first || inner.offsets[i] < before)
            .filter(|&i| inner.ends[i] > beyond)
            .find_map(|i| self.find_below(inner.children[i], height - 1, from, before, beyond))
    }

    #[inline]
    fn tree(&self, tree: u32) -> Tree {
        self.trees.get(tree).copied().unwrap_or_default()
    }

    fn height(&self, tree: u32) -> usize {
        self.trees[tree].height as usize
    }

    /// Makes the first leaf, of the only entry and another one at number `at`.
    fn plant(&mut self, tree: u32, at: u32, key: Key, end: u64) {
        let leaf = match self.leaves.reuse() {
            // A used leaf need not be wiped: what counts is its length.
            Some(leaf) => leaf,
            None => self.leaves.insert(Leaf::empty()),
        };
        let planted = &mut self.trees[tree];
        let (only, only_end) = planted.only();
        let fresh = &mut self.leaves[leaf];
        (fresh.len, fresh.prev, fresh.next) = (0, NONE, NONE);
        fresh.insert(0, only, only_end);
        fresh.insert(at as usize, key, end);
        planted.bound = planted.bound.max(key.offset);
        (planted.root, planted.height) = (leaf, 0);
    }

    /// Removes the entry at the place that `seek` of its key has just returned.
    fn remove_at(&mut self, tree: u32, place: Place) {
        self.len -= 1;
        let height = self.height(tree);
        let leaf = &mut self.leaves[place.leaf];
        leaf.remove(place.at as usize);
        if leaf.len == 0 {
            let (prev, next) = (leaf.prev, leaf.next);
            self.unlink_leaf(prev, next);
            self.leaves.free(place.leaf);
            return self.remove_child(tree, height);
        }
        if height == 0 {
            if leaf.len == 1 {
                let (key, end) = leaf.entry(0);
                self.trees[tree] = Tree::sole(key, end);
                self.leaves.free(place.leaf);
            }
            return;
        }
        let greatest = leaf.greatest();
        let thin = (leaf.len as usize) < WIDTH / 4;
        self.note_greatest(height, greatest);
        if thin {
            self.merge_leaf(tree);
        }
    }

    /// Splits the full leaf at `place` and adds the entry to the half where it belongs. A leaf that is
    /// full because entries are appended keeps what it has: the new one starts a leaf of its own.
    #[cold]
    fn split_leaf(&mut self, tree: u32, place: Place, key: Key, end: u64) {
        let old = place.leaf;
        let at = place.at as usize;
        let cut = if at == WIDTH { WIDTH } else { WIDTH / 2 };
        let left = &mut self.leaves[old];
        let mut right = left.split_off(cut);
        if at < cut || (at == cut && cut < WIDTH) {
            left.insert(at, key, end);
        } else {
            right.insert(at - cut, key, end);
        }
        let (left_greatest, right_greatest) = (left.greatest(), right.greatest());
        let (bound, after) = (right.entry(0).0, right.next);
        right.prev = old;
        let new = self.leaves.insert(right);
        self.leaves[old].next = new;
        if after != NONE {
            self.leaves[after].prev = new;
        }
        let height = self.height(tree);
        self.add_child(tree, height, left_greatest, bound, new, right_greatest);
    }

    /// After a node at `level` was split: notes the left half's greatest end and adds the right half to the
    /// parent.
    fn add_child(
        &mut self,
        tree: u32,
        level: usize,
        left_greatest: u64,
        bound: Key,
        new: u32,
        new_greatest: u64,
    ) {
        if level == 0 {
            return self.grow_root(tree, left_greatest, bound, new, new_greatest);
        }
        let (node, child) = self.path[level - 1];
        let inner = &mut self.inners[node];
        inner.ends[child as usize] = left_greatest;
        let at = child as usize + 1;
        if (inner.len as usize) < FAN {
            inner.insert(at, bound, new, new_greatest);
            let greatest = inner.greatest();
            return self.note_greatest(level - 1, greatest);
        }
        let cut = if at == FAN { FAN - 1 } else { FAN / 2 };
        let mut right = inner.split_off(cut);
        let right_bound = right.key(0);
        if at <= cut {
            inner.insert(at, bound, new, new_greatest);
        } else {
            right.insert(at - cut, bound, new, new_greatest);
        }
        let (left_greatest, right_greatest) = (inner.greatest(), right.greatest());
        let right = self.inners.insert(right);
        self.add_child(
            tree,
            level - 1,
            left_greatest,
            right_bound,
            right,
            right_greatest,
        );
    }

    fn grow_root(
        &mut self,
        tree: u32,
        left_greatest: u64,
        bound: Key,
        new: u32,
        new_greatest: u64,
    ) {
        let tree = &mut self.trees[tree];
        let mut inner = Inner::empty();
        inner.insert(0, Key::default(), tree.root, left_greatest);
        inner.insert(1, bound, new, new_greatest);
        tree.root = self.inners.insert(inner);
        tree.height += 1;
        assert!((tree.height as usize) < HEIGHT_MAX);
    }

    /// Notes along the last seek's path that the greatest end of the node at `level` is this; stops where
    /// nothing changes.
    #[inline]
    fn note_greatest(&mut self, level: usize, mut greatest: u64) {
        for &(node, child) in self.path[..level].iter().rev() {
            let inner = &mut self.inners[node];
            if inner.ends[child as usize] == greatest {
                return;
            }
            inner.ends[child as usize] = greatest;
            greatest = inner.greatest();
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

    /// Removes the node at `level` of the last seek's path, which is empty; and its ancestors that become
    /// so.
    fn remove_child(&mut self, tree: u32, level: usize) {
        if level == 0 {
            self.trees[tree] = Tree::default();
            return;
        }
        let (node, child) = self.path[level - 1];
        let inner = &mut self.inners[node];
        inner.remove(child as usize);
        if inner.len == 0 {
            self.inners.free(node);
            return self.remove_child(tree, level - 1);
        }
        let greatest = inner.greatest();
        self.note_greatest(level - 1, greatest);
        self.shrink_root(tree);
    }

    fn shrink_root(&mut self, tree: u32) {
        let tree = &mut self.trees[tree];
        while tree.height > 0 && self.inners[tree.root].len == 1 {
            let old = tree.root;
            tree.root = self.inners[old].children[0];
            self.inners.free(old);
            tree.height -= 1;
        }
    }

    /// Joins the thin leaf of the last seek with its right or left neighbour under the same parent if
    /// the two fill at most half a leaf.
    fn merge_leaf(&mut self, tree: u32) {
        let (node, child) = self.path[self.height(tree) - 1];
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
        for i in 0..self.leaves[b].len {
            let (key, end) = self.leaves[b].entry(i);
            let leaf = &mut self.leaves[a];
            leaf.insert(leaf.len as usize, key, end);
        }
        let next = self.leaves[b].next;
        self.leaves[a].next = next;
        if next != NONE {
            self.leaves[next].prev = a;
        }
        self.leaves.free(b);
        let greatest = self.leaves[a].greatest();
        let inner = &mut self.inners[node];
        inner.remove(left + 1);
        inner.ends[left] = greatest;
        // The parent's own greatest end is unchanged: the same entries are below it.
        self.shrink_root(tree);
    }
}

impl Leaf {
    fn empty() -> Leaf {
        Leaf {
            len: 0,
            prev: NONE,
            next: NONE,
            names: [0; WIDTH],
            offsets: [0; WIDTH],
            ends: [0; WIDTH],
        }
    }

    #[inline]
    fn entry(&self, at: u32) -> Interval {
        let at = at as usize;
        (Key::new(self.offsets[at], self.names[at]), self.ends[at])
    }

    /// How many entries are below `key`.
    #[inline]
    fn rank(&self, key: Key) -> usize {
        let len = (self.len as usize).min(WIDTH);
        let offsets = &self.offsets[..len];
        let mut at = offsets.partition_point(|o| *o < key.offset);
        while at < len && offsets[at] == key.offset && self.names[at] < key.name {
            at += 1;
        }
        at
    }

    #[inline]
    fn insert(&mut self, at: usize, key: Key, end: u64) {
        let len = self.len as usize;
        if at < len {
            self.offsets.copy_within(at..len, at + 1);
            self.ends.copy_within(at..len, at + 1);
            self.names.copy_within(at..len, at + 1);
        }
        (self.offsets[at], self.names[at], self.ends[at]) = (key.offset, key.name, end);
        self.len += 1;
    }

    #[inline]
    fn remove(&mut self, at: usize) {
        let len = self.len as usize;
        if at + 1 < len {
            self.offsets.copy_within(at + 1..len, at);
            self.ends.copy_within(at + 1..len, at);
            self.names.copy_within(at + 1..len, at);
        }
        self.len -= 1;
    }

    fn split_off(&mut self, cut: usize) -> Leaf {
        let len = self.len as usize;
        let mut right = Leaf::empty();
        right.offsets[..len - cut].copy_from_slice(&self.offsets[cut..len]);
        right.ends[..len - cut].copy_from_slice(&self.ends[cut..len]);
        right.names[..len - cut].copy_from_slice(&self.names[cut..len]);
        right.len = (len - cut) as u32;
        right.next = self.next;
        self.len = cut as u32;
        right
    }

    #[inline]
    fn greatest(&self) -> u64 {
        let ends = &self.ends[..self.len as usize];
        ends.iter().fold(0, |a, &b| a.max(b))
    }
}

impl Inner {
    fn empty() -> Inner {
        Inner {
            offsets: [0; FAN],
            ends: [0; FAN],
            names: [0; FAN],
            children: [NONE; FAN],
            len: 0,
        }
    }

    fn key(&self, at: usize) -> Key {
        Key::new(self.offsets[at], self.names[at])
    }

    /// The child that has, or would have, `key`.
    #[inline]
    fn child(&self, key: Key) -> usize {
        let len = (self.len as usize).clamp(1, FAN);
        let (offsets, names) = (&self.offsets[1..len], &self.names[1..len]);
        let at = offsets.partition_point(|o| *o < key.offset);
        let ties = offsets[at..].iter().zip(&names[at..]);
        at + ties
            .take_while(|(o, n)| **o == key.offset && **n <= key.name)
            .count()
    }

    fn insert(&mut self, at: usize, bound: Key, child: u32, greatest: u64) {
        let len = self.len as usize;
        self.offsets.copy_within(at..len, at + 1);
        self.ends.copy_within(at..len, at + 1);
        self.names.copy_within(at..len, at + 1);
        self.children.copy_within(at..len, at + 1);
        (self.offsets[at], self.names[at]) = (bound.offset, bound.name);
        (self.ends[at], self.children[at]) = (greatest, child);
        self.len += 1;
    }

    fn remove(&mut self, at: usize) {
        let len = self.len as usize;
        self.offsets.copy_within(at + 1..len, at);
        self.ends.copy_within(at + 1..len, at);
        self.names.copy_within(at + 1..len, at);
        self.children.copy_within(at + 1..len, at);
        self.len -= 1;
    }

    fn split_off(&mut self, cut: usize) -> Inner {
        let len = self.len as usize;
        let mut right = Inner::empty();
        right.offsets[..len - cut].copy_from_slice(&self.offsets[cut..len]);
        right.ends[..len - cut].copy_from_slice(&self.ends[cut..len]);
        right.names[..len - cut].copy_from_slice(&self.names[cut..len]);
        right.children[..len - cut].copy_from_slice(&self.children[cut..len]);
        right.len = (len - cut) as u32;
        self.len = cut as u32;
        right
    }

    #[inline]
    fn greatest(&self) -> u64 {
        let ends = &self.ends[..self.len as usize];
        ends.iter().fold(0, |a, &b| a.max(b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    impl Forest {
        /// Walks a tree and checks order, links, bounds and ends; returns the number of its entries.
        fn check(&self, tree: u32) -> usize {
            let Tree { root, height, .. } = self.tree(tree);
            if root == NONE {
                return 0;
            }
            if height == SOLE {
                return 1;
            }
            let (mut keys, mut leaves) = (Vec::new(), Vec::new());
            let all = (Key::default(), Key::new(u64::MAX, NONE));
            self.check_below(root, height, all, height, &mut keys, &mut leaves);
            assert!(keys.is_sorted());
            for pair in leaves.windows(2) {
                assert_eq!(self.leaves[pair[0]].next, pair[1]);
                assert_eq!(self.leaves[pair[1]].prev, pair[0]);
            }
            assert_eq!(self.leaves[leaves[0]].prev, NONE);
            assert_eq!(self.leaves[*leaves.last().unwrap()].next, NONE);
            keys.len()
        }

        fn check_below(
            &self,
            node: u32,
            height: u32,
            bounds: (Key, Key),
            top: u32,
            keys: &mut Vec<Key>,
            leaves: &mut Vec<u32>,
        ) -> u64 {
            if height == 0 {
                let leaf = &self.leaves[node];
                assert!(leaf.len > 0);
                let mine = (0..leaf.len).map(|i| leaf.entry(i).0);
                assert!(mine.clone().all(|k| bounds.0 <= k && k < bounds.1));
                keys.extend(mine);
                leaves.push(node);
                return leaf.greatest();
            }
            let inner = &self.inners[node];
            let len = inner.len as usize;
            assert!(len > 0 && (height < top || len > 1));
            for i in 0..len {
                let from = if i == 0 { bounds.0 } else { inner.key(i) };
                let to = if i + 1 == len {
                    bounds.1
                } else {
                    inner.key(i + 1)
                };
                let child = inner.children[i];
                let below = self.check_below(child, height - 1, (from, to), top, keys, leaves);
                assert_eq!(below, inner.ends[i]);
            }
            inner.greatest()
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u32, Key, u64),
        Remove(u32, Key),
        Set(u32, Key, u64),
        Find(u32, Key, u64, u64),
        Neighbours(u32, Key),
    }

    fn step() -> impl Strategy<Value = Step> {
        // Few offsets with several names each: ties matter. The last tree has at most four entries.
        let key = || (0u64..120, 0u32..5).prop_map(|(o, n)| Key::new(o, n));
        let few = |tree, key: Key| match tree {
            2 => Key::new(key.offset % 2, key.name % 2),
            _ => key,
        };
        let at = || (0u32..3, key()).prop_map(move |(t, k)| (t, few(t, k)));
        prop_oneof![
            4 => (at(), 0u64..100).prop_map(|((t, k), v)| Step::Insert(t, k, v)),
            3 => at().prop_map(|(t, k)| Step::Remove(t, k)),
            1 => (at(), 0u64..100).prop_map(|((t, k), v)| Step::Set(t, k, v)),
            1 => (at(), 0u64..130, 0u64..100).prop_map(|((t, k), b, v)| Step::Find(t, k, b, v)),
            1 => at().prop_map(|(t, k)| Step::Neighbours(t, k)),
        ]
    }

    fn apply(forest: &mut Forest, models: &mut [BTreeMap<Key, u64>; 3], step: Step) {
        let entry = |(k, v): (&Key, &u64)| (*k, *v);
        match step {
            Step::Insert(t, k, v) => {
                if !models[t as usize].contains_key(&k) {
                    forest.insert(t, k, v);
                    models[t as usize].insert(k, v);
                }
            }
            Step::Remove(t, k) => {
                assert_eq!(forest.take(t, k), models[t as usize].remove(&k));
            }
            Step::Set(t, k, v) => {
                if let Some(value) = models[t as usize].get_mut(&k) {
                    *value = v;
                    forest.set(t, k, v);
                }
            }
            Step::Find(t, from, before, beyond) => {
                let mut wanted = models[t as usize].range(from..).map(entry);
                let wanted = wanted.find(|(k, end)| k.offset < before && *end > beyond);
                assert_eq!(forest.find_first(t, from, before, beyond), wanted);
            }
            Step::Neighbours(t, k) => {
                let model = &models[t as usize];
                let place = forest.seek(t, k);
                let prev = model.range(..k).map(entry).next_back();
                assert_eq!(forest.at(place), model.range(k..).map(entry).next());
                assert_eq!(forest.before(place), prev);
                let second = model.range(k..).map(entry).nth(1);
                assert_eq!(forest.at(forest.forward(place)), second);
                if prev.is_some() {
                    assert_eq!(forest.at(forest.backward(place)), prev);
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn behaves_like_ordered_maps(steps in proptest::collection::vec(step(), 0..3000)) {
            let mut forest = Forest::default();
            let mut models = [const { BTreeMap::new() }; 3];
            for step in steps {
                apply(&mut forest, &mut models, step);
            }
            for (tree, model) in models.iter_mut().enumerate() {
                prop_assert_eq!(forest.check(tree as u32), model.len());
                // Emptied in order, it must come apart cleanly too.
                while let Some((k, _)) = model.pop_first() {
                    prop_assert!(forest.remove(tree as u32, k));
                }
                prop_assert_eq!(forest.check(tree as u32), 0);
            }
            prop_assert!(forest.is_empty());
        }
    }

    #[test]
    fn appending_fills_leaves() {
        let mut forest = Forest::default();
        for k in 0..100_000 {
            forest.insert(0, Key::from(k), k);
        }
        assert_eq!(forest.check(0), 100_000);
        assert!(forest.leaves.capacity_used() as usize <= 100_000 / WIDTH + 1);
    }
}
