//! The situations that nodes are in, and which followed which: of those that were seen last, so many as a person looks at.

use std::collections::BTreeMap;

/// Situations that are remembered.
const SITUATIONS_MAX: usize = 48;

/// When a situation was last seen, and what was chosen in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Milliseconds since 1970.
    pub last_ms: u64,
    /// What was chosen.
    pub choice: String,
    /// Why.
    pub why: String,
}

/// See the module's header. `S` is what a service takes for a situation.
#[derive(Clone, Debug)]
pub struct Situations<S> {
    seen: BTreeMap<S, Seen>,
    links: BTreeMap<(S, S), u64>,
    nodes: BTreeMap<String, S>,
}

impl<S: Ord + Copy> Default for Situations<S> {
    fn default() -> Self {
        Situations {
            seen: BTreeMap::new(),
            links: BTreeMap::new(),
            nodes: BTreeMap::new(),
        }
    }
}

impl<S: Ord + Copy> Situations<S> {
    /// A node is in a situation now.
    pub fn enter(&mut self, node: &str, now: S, seen: Seen) {
        let before = self.nodes.insert(node.to_owned(), now);
        if !self.seen.contains_key(&now) && self.seen.len() >= SITUATIONS_MAX {
            self.forget_oldest();
        }
        self.seen.insert(now, seen);
        if let Some(before) = before.filter(|before| self.seen.contains_key(before)) {
            *self.links.entry((before, now)).or_default() += 1;
        }
    }

    fn forget_oldest(&mut self) {
        let oldest = self.seen.iter().min_by_key(|(_, seen)| seen.last_ms);
        let Some(oldest) = oldest.map(|(situation, _)| *situation) else {
            return;
        };
        self.seen.remove(&oldest);
        self.links
            .retain(|(from, to), _| *from != oldest && *to != oldest);
    }

    /// A node has left: what comes next does not follow what it did.
    pub fn leave(&mut self, node: &str) {
        self.nodes.remove(node);
    }

    /// The last seen first.
    pub fn list(&self) -> Vec<(S, Seen)> {
        let mut all: Vec<(S, Seen)> = self.seen.iter().map(|(s, it)| (*s, it.clone())).collect();
        all.sort_by_key(|(_, seen)| std::cmp::Reverse(seen.last_ms));
        all
    }

    /// Nodes that are in it.
    pub fn nodes_in(&self, situation: S) -> impl Iterator<Item = &str> {
        let nodes = self.nodes.iter();
        nodes.filter_map(move |(node, it)| (*it == situation).then_some(&**node))
    }

    /// How often the second followed the first.
    pub fn links(&self) -> impl Iterator<Item = (S, S, u64)> + '_ {
        self.links
            .iter()
            .map(|((from, to), times)| (*from, *to, *times))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(last_ms: u64) -> Seen {
        Seen {
            last_ms,
            ..Seen::default()
        }
    }

    #[test]
    fn what_follows_what_is_counted_for_each_node_apart() {
        let mut all = Situations::default();
        for (time, node, situation) in [
            (1, "a", 1),
            (2, "b", 2),
            (3, "a", 2),
            (4, "b", 2),
            (5, "a", 1),
        ] {
            all.enter(node, situation, at(time));
        }
        assert_eq!(
            all.links().collect::<Vec<_>>(),
            [(1, 2, 1), (2, 1, 1), (2, 2, 1)]
        );
        all.leave("a");
        all.enter("a", 2, at(6));
        assert_eq!(
            all.links().count(),
            3,
            "a node that comes anew follows nothing"
        );
        assert_eq!(all.nodes_in(2).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(all.list()[0].0, 2);
    }

    #[test]
    fn the_oldest_is_forgotten_with_its_links() {
        let mut all = Situations::default();
        for time in 0..1000 {
            all.enter("a", time, at(time));
        }
        assert_eq!(all.list().len(), SITUATIONS_MAX);
        assert!(all.links().count() < SITUATIONS_MAX);
        assert_eq!(all.list()[0].0, 999);
    }
}
