//! A table of nodes, found by what they are: the keys are in the nodes, a slot is four bytes.
//!
//! Open and probed in line, those far from home first (Robin Hood). The top bits of a slot say how far: a node, which
//! is somewhere else in memory, is looked at only if it can be the one, and never when others move up. The table
//! is at most four fifths full, grows by two fifths once it is not small, and shrinks: memory matters.

use crate::store::NONE;

/// Bits of a slot that name the node; those above say how far it is from home.
const NODE_BITS: u32 = 26;

/// No node has this number or a greater one.
pub(crate) const NODES_MAX: u32 = (1 << NODE_BITS) - 1;

/// So far from home, or farther.
const FAR: u32 = 63;

/// See the module's header.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    slots: Vec<u32>,
    len: usize,
}

/// Spreads a key over all bits.
#[inline]
pub(crate) fn spread(key: u64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mixed = key.wrapping_mul(ODD);
    (mixed ^ (mixed >> 32)).wrapping_mul(ODD)
}

#[inline]
fn slot_of(node: u32, way: usize) -> u32 {
    (way.min(FAR as usize) as u32) << NODE_BITS | node
}

#[inline]
fn node_of(slot: u32) -> u32 {
    slot & NODES_MAX
}

#[inline]
fn way_of(slot: u32) -> u32 {
    slot >> NODE_BITS
}

impl Table {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<u32>()
    }

    /// The node with this hash that is the same as what is looked for.
    #[inline]
    pub(crate) fn find(&self, hash: u64, same: impl Fn(u32) -> bool) -> Option<u32> {
        self.position(hash, same).map(|at| node_of(self.slots[at]))
    }

    /// Puts a node in the place of one that is the same; gives that, if there is one.
    #[inline]
    pub(crate) fn exchange(
        &mut self,
        hash: u64,
        same: impl Fn(u32) -> bool,
        new: u32,
    ) -> Option<u32> {
        let at = self.position(hash, same)?;
        let old = node_of(self.slots[at]);
        self.slots[at] = self.slots[at] & !NODES_MAX | new;
        Some(old)
    }

    /// Adds a node that is not there.
    pub(crate) fn insert(&mut self, hash: u64, node: u32, hash_of: impl Fn(u32) -> u64) {
        if (self.len + 1) * 5 > self.slots.len() * 4 {
            let more = match self.slots.len() {
                few if few < 256 => few * 2,
                many => many * 7 / 5,
            };
            self.resize(more.max(8), &hash_of);
        }
        self.place(hash, node, &hash_of);
        self.len += 1;
    }

    /// Takes a node out if it is there, and closes the gap.
    pub(crate) fn remove(&mut self, hash: u64, node: u32, hash_of: impl Fn(u32) -> u64) {
        let Some(gap) = self.position(hash, |other| other == node) else {
            return;
        };
        self.len -= 1;
        self.close(gap, &hash_of);
        if self.slots.len() > 64 && self.len * 4 < self.slots.len() {
            self.resize(self.len * 2, &hash_of);
        }
    }

    /// Moves those up that are behind a slot only because it was taken.
    fn close(&mut self, mut gap: usize, hash_of: &impl Fn(u32) -> u64) {
        loop {
            let at = self.behind(gap);
            let slot = self.slots[at];
            if slot == NONE || way_of(slot) == 0 {
                break;
            }
            let node = node_of(slot);
            let way = self.whole_way(at, hash_of) - 1;
            self.slots[gap] = slot_of(node, way);
            gap = at;
        }
        self.slots[gap] = NONE;
    }

    #[inline]
    fn position(&self, hash: u64, same: impl Fn(u32) -> bool) -> Option<usize> {
        if self.len == 0 {
            return None;
        }
        let (mut at, mut way) = (self.home(hash), 0);
        loop {
            let slot = self.slots[at];
            // One that is nearer to its home would have made room.
            if slot == NONE || way_of(slot) < way {
                return None;
            }
            if way_of(slot) == way && same(node_of(slot)) {
                return Some(at);
            }
            at = self.behind(at);
            way = FAR.min(way + 1);
        }
    }

    fn place(&mut self, hash: u64, mut node: u32, hash_of: &impl Fn(u32) -> u64) {
        let (mut at, mut way) = (self.home(hash), 0);
        while self.slots[at] != NONE {
            let slot = self.slots[at];
            // Most are near, which shows without a look at the node.
            if (way_of(slot) as usize) < way {
                let other = self.whole_way(at, hash_of);
                if other < way {
                    self.slots[at] = slot_of(node, way);
                    (node, way) = (node_of(slot), other);
                }
            }
            at = self.behind(at);
            way += 1;
        }
        self.slots[at] = slot_of(node, way);
    }

    fn resize(&mut self, size: usize, hash_of: &impl Fn(u32) -> u64) {
        let old = std::mem::replace(&mut self.slots, vec![NONE; size]);
        for slot in old.into_iter().filter(|s| *s != NONE) {
            let node = node_of(slot);
            self.place(hash_of(node), node, hash_of);
        }
    }

    /// How far the node in a slot is from its home.
    fn whole_way(&self, at: usize, hash_of: &impl Fn(u32) -> u64) -> usize {
        match way_of(self.slots[at]) {
            FAR => self.way(self.home(hash_of(node_of(self.slots[at]))), at),
            near => near as usize,
        }
    }

    /// Where a hash belongs: its upper half, as a share of the table.
    #[inline]
    fn home(&self, hash: u64) -> usize {
        (((hash >> 32) * self.slots.len() as u64) >> 32) as usize
    }

    #[inline]
    fn behind(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() {
            0
        } else {
            at + 1
        }
    }

    /// How far it is from one slot on to another.
    #[inline]
    fn way(&self, from: usize, to: usize) -> usize {
        if to >= from {
            to - from
        } else {
            to + self.slots.len() - from
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn what_is_in_the_table_is_found_and_nothing_else(
            steps in vec((any::<bool>(), 0u32..400), 0..1500),
            bits in 1u32..64,
        ) {
            // Few bits make many equal hashes.
            let hash = |node: u32| spread(node.into()) << (64 - bits) >> (bits % 8);
            let (mut table, mut model) = (Table::default(), BTreeSet::new());
            for (add, node) in steps {
                match add {
                    true if model.insert(node) => table.insert(hash(node), node, hash),
                    true => {}
                    false => {
                        model.remove(&node);
                        table.remove(hash(node), node, hash);
                    }
                }
                prop_assert_eq!(table.len(), model.len());
            }
            for node in 0..400 {
                let found = table.find(hash(node), |other| other == node);
                prop_assert_eq!(found.is_some(), model.contains(&node));
            }
        }
    }
}
