//! The grammar as it lies in memory: rules, their symbols, and the index of digrams.
//!
//! A symbol is 24 bytes and named by a 32-bit number. It stands in two lists: its rule's body, whose ends lead
//! to the rule itself, and the list of all symbols of its value, which is how every place is found where a
//! terminal, or an instance of a rule, stands. Nothing here decides anything: see [`crate::grammar`].

use crate::runs::Runs;
use presagio_core::IdHashMap;

/// The name of nothing.
pub(crate) const NONE: u32 = u32::MAX;

/// A value with this bit is a rule; so is a link, which then leads out of the rule's body.
pub(crate) const RULE: u32 = 1 << 31;

/// The rule that stands for the whole input.
pub(crate) const START: u32 = 0;

pub(crate) fn is_rule(value: u32) -> bool {
    value & RULE != 0
}

pub(crate) fn rule_of_value(value: u32) -> u32 {
    value & !RULE
}

/// A symbol in the body of a rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    /// A terminal, or a rule; NONE if the node is free.
    pub value: u32,
    /// How often it stands here, and in the top bit whether that is in the start rule.
    count: u32,
    pub prev: u32,
    pub next: u32,
    /// The list of equal values, the newest first.
    older: u32,
    newer: u32,
}

/// Of a count: the node is in the start rule.
const IN_START: u32 = 1 << 31;

impl Node {
    /// How often it stands here; when folding, [`Runs`] has more to say if it is not 1.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        self.count & !IN_START
    }

    #[inline]
    pub(crate) fn is_in_start(&self) -> bool {
        self.count & IN_START != 0
    }
}

/// Where a rule's body and the list of its instances begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub first: u32,
    pub last: u32,
    /// The newest instance.
    head: u32,
}

/// A terminal: what it stands for, and where it occurs.
#[derive(Clone, Copy, Debug)]
struct Terminal {
    symbol: u32,
    head: u32,
}

/// See the module's header.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pub nodes: Vec<Node>,
    free_nodes: u32,
    pub rules: Vec<Rule>,
    free_rules: Vec<u32>,
    terminals: Vec<Terminal>,
    numbers: IdHashMap<u32, u32>,
    /// Of nodes that have ever been repeated, when folding.
    runs: IdHashMap<u32, Runs>,
    digrams: Digrams,
    /// Whether counts make a difference between digrams.
    counts_matter: bool,
    frozen: bool,
    len: usize,
}

impl Store {
    pub(crate) fn new(counts_matter: bool) -> Store {
        let mut store = Store {
            nodes: Vec::new(),
            free_nodes: NONE,
            rules: Vec::new(),
            free_rules: Vec::new(),
            terminals: Vec::new(),
            numbers: IdHashMap::default(),
            runs: IdHashMap::default(),
            digrams: Digrams::default(),
            counts_matter,
            frozen: false,
            len: 0,
        };
        let start = store.add_rule();
        debug_assert_eq!(start, START);
        store
    }

    /// How many symbols all rules have together.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory, all in.
    pub(crate) fn memory(&self) -> usize {
        let runs: usize = self.runs.values().map(Runs::memory).sum();
        self.nodes.capacity() * size_of::<Node>()
            + self.rules.capacity() * size_of::<Rule>()
            + self.free_rules.capacity() * size_of::<u32>()
            + self.terminals.capacity() * size_of::<Terminal>()
            + self.numbers.capacity() * (size_of::<(u32, u32)>() + 1)
            + self.runs.capacity() * (size_of::<(u32, Runs)>() + 1)
            + runs
            + self.digrams.memory()
    }

    /// The number of a terminal, a new one if it was never seen.
    pub(crate) fn terminal(&mut self, symbol: u32) -> u32 {
        let fresh = self.terminals.len() as u32;
        let number = *self.numbers.entry(symbol).or_insert(fresh);
        if number == fresh {
            assert!(fresh < RULE, "too many different symbols: 2^31");
            let head = NONE;
            self.terminals.push(Terminal { symbol, head });
        }
        number
    }

    /// The number of a terminal, if it was ever seen.
    pub(crate) fn known_terminal(&self, symbol: u32) -> Option<u32> {
        self.numbers.get(&symbol).copied()
    }

    /// What a terminal stands for.
    pub(crate) fn symbol(&self, terminal: u32) -> u32 {
        self.terminals[terminal as usize].symbol
    }

    #[inline]
    pub(crate) fn node(&self, node: u32) -> &Node {
        &self.nodes[node as usize]
    }

    #[inline]
    pub(crate) fn value(&self, node: u32) -> u32 {
        self.nodes[node as usize].value
    }

    #[inline]
    pub(crate) fn rule(&self, rule: u32) -> &Rule {
        &self.rules[rule as usize]
    }

    /// Whether a link leads to no node, because the body of the rule ends there.
    #[inline]
    pub(crate) fn is_end(link: u32) -> bool {
        is_rule(link)
    }

    /// The rule in whose body a node stands, found at the nearer end of it; the start rule, which is long, at once.
    pub(crate) fn rule_of(&self, node: u32) -> u32 {
        if self.node(node).is_in_start() {
            return START;
        }
        let (mut before, mut behind) = (node, node);
        loop {
            (before, behind) = (self.node(before).prev, self.node(behind).next);
            if Store::is_end(before) {
                return rule_of_value(before);
            }
            if Store::is_end(behind) {
                return rule_of_value(behind);
            }
        }
    }

    /// The symbols of a rule, in order.
    pub(crate) fn body(&self, rule: u32) -> impl Iterator<Item = u32> {
        let mut at = self.rule(rule).first;
        std::iter::from_fn(move || {
            let node = (!Store::is_end(at)).then_some(at)?;
            at = self.node(node).next;
            Some(node)
        })
    }

    /// All nodes of a value, the newest first.
    pub(crate) fn all_of(&self, value: u32) -> impl Iterator<Item = u32> {
        let mut at = self.head(value);
        std::iter::from_fn(move || {
            let node = (at != NONE).then_some(at)?;
            at = self.node(node).older;
            Some(node)
        })
    }

    /// The newest node of a value.
    pub(crate) fn newest(&self, value: u32) -> Option<u32> {
        let head = self.head(value);
        (head != NONE).then_some(head)
    }

    /// The only instance of a rule, if there is one node of it.
    pub(crate) fn sole_instance(&self, rule: u32) -> Option<u32> {
        let head = self.rule(rule).head;
        (head != NONE && self.node(head).older == NONE).then_some(head)
    }

    /// Whether a rule has no instance.
    pub(crate) fn is_unused(&self, rule: u32) -> bool {
        self.rule(rule).head == NONE
    }

    /// The rule whose whole body is the digram at `node`.
    pub(crate) fn whole(&self, node: u32) -> Option<u32> {
        let Node { prev, next, .. } = *self.node(node);
        let whole = Store::is_end(prev) && Store::is_end(self.node(next).next);
        let rule = rule_of_value(prev);
        (whole && rule != START).then_some(rule)
    }

    /// Makes a rule without a body.
    pub(crate) fn add_rule(&mut self) -> u32 {
        let rule = self.free_rules.pop().unwrap_or_else(|| {
            let rule = self.rules.len() as u32;
            assert!(rule < RULE - 1, "too many rules: 2^31");
            let (first, last, head) = (0, 0, NONE);
            grow(&mut self.rules);
            self.rules.push(Rule { first, last, head });
            rule
        });
        let (first, last, head) = (RULE | rule, RULE | rule, NONE);
        self.rules[rule as usize] = Rule { first, last, head };
        rule
    }

    /// Forgets a rule that has no body and no instances any more.
    pub(crate) fn free_rule(&mut self, rule: u32) {
        let (first, last, head) = (RULE | rule, RULE | rule, NONE);
        self.rules[rule as usize] = Rule { first, last, head };
        self.free_rules.push(rule);
    }

    /// Whether a rule is in use.
    pub(crate) fn rule_is_live(&self, rule: u32) -> bool {
        rule == START || self.rule(rule).head != NONE
    }

    /// Puts a new node between two that are neighbours, or a rule's end.
    pub(crate) fn insert(&mut self, prev: u32, next: u32, value: u32, in_start: bool) -> u32 {
        let node = self.allocate();
        self.nodes[node as usize] = Node {
            value,
            count: 1 | if in_start { IN_START } else { 0 },
            prev,
            next,
            older: NONE,
            newer: NONE,
        };
        self.link(prev, node);
        self.link(node, next);
        self.enlist(node);
        self.len += 1;
        node
    }

    /// Moves two neighbours, cut out of where they were, into the empty body of a new rule.
    pub(crate) fn fill_rule(&mut self, rule: u32, first: u32, last: u32) {
        for node in [first, last] {
            self.nodes[node as usize].count &= !IN_START;
        }
        self.link(RULE | rule, first);
        self.link(last, RULE | rule);
    }

    /// Says that the body of a rule is in the start rule from now on.
    pub(crate) fn move_to_start(&mut self, rule: u32) {
        let mut at = self.rule(rule).first;
        while !Store::is_end(at) {
            let node = &mut self.nodes[at as usize];
            node.count |= IN_START;
            at = node.next;
        }
    }

    /// Sets how often a node stands there.
    pub(crate) fn set_count(&mut self, node: u32, count: u32) {
        let node = &mut self.nodes[node as usize];
        node.count = count.min(IN_START - 1) | node.count & IN_START;
    }

    /// Makes two links neighbours.
    #[inline]
    pub(crate) fn link(&mut self, a: u32, b: u32) {
        if Store::is_end(a) {
            self.rules[rule_of_value(a) as usize].first = b;
        } else {
            self.nodes[a as usize].next = b;
        }
        if Store::is_end(b) {
            self.rules[rule_of_value(b) as usize].last = a;
        } else {
            self.nodes[b as usize].prev = a;
        }
    }

    /// Frees a node that no body has any more.
    pub(crate) fn free(&mut self, node: u32) {
        self.delist(node);
        self.runs.remove(&node);
        let freed = &mut self.nodes[node as usize];
        freed.value = NONE;
        freed.next = self.free_nodes;
        self.free_nodes = node;
        self.len -= 1;
    }

    /// Whether a node is in use.
    pub(crate) fn is_live(&self, node: u32) -> bool {
        self.value(node) != NONE
    }

    /// Gives a node another value.
    pub(crate) fn set_value(&mut self, node: u32, value: u32) {
        self.delist(node);
        self.nodes[node as usize].value = value;
        self.enlist(node);
    }

    /// The history of a node that has been repeated.
    #[inline]
    pub(crate) fn runs(&self, node: u32) -> Option<&Runs> {
        // A look at the node is cheaper than one into the map.
        (self.node(node).count() > 1).then(|| self.runs.get(&node))?
    }

    /// Whether trip counts of places in rules are left as they are: they have been counted already.
    pub(crate) fn freeze(&mut self, frozen: bool) {
        self.frozen = frozen;
    }

    /// Counts that another run of a node, which has been repeated before, has come to `count`.
    pub(crate) fn begin_run(&mut self, node: u32, count: u32) {
        if let Some(runs) = self.runs.get_mut(&node) {
            runs.begin(count);
        }
    }

    /// Counts that the last occurrence of a node goes on with `more`.
    pub(crate) fn prolong(&mut self, node: u32, more: u32) {
        if self.frozen && !self.node(node).is_in_start() {
            return;
        }
        self.set_count(node, 2);
        let runs = self.runs.entry(node).or_default();
        runs.prolong(more);
    }

    /// A node, which is about to go, stood where another one stands from now on: adds its last run, if either has
    /// ever been repeated.
    pub(crate) fn inherit(&mut self, node: u32, from: u32) {
        let count = self.runs.remove(&from).map_or(1, |runs| runs.current());
        if !self.frozen && (count > 1 || self.node(node).count() > 1) {
            self.set_count(node, 2);
            self.runs.entry(node).or_default().begin(count);
        }
    }

    /// What a node stands for is itself repeated, as `inner` is: it stands for that from now on.
    pub(crate) fn inherit_within(&mut self, node: u32, inner: u32) {
        let times = self.current(inner);
        if times > 1 {
            self.set_count(node, 2);
            self.runs.entry(node).or_default().multiply(times);
        }
    }

    /// How many repetitions the last occurrence of a node has had so far.
    pub(crate) fn current(&self, node: u32) -> u32 {
        self.runs(node).map_or(1, Runs::current)
    }

    /// The node where the digram at `node` is indexed, which may be itself.
    pub(crate) fn find_digram(&self, node: u32) -> Option<u32> {
        let key = self.digram(node);
        self.digrams.find(key.hash(), |other| self.digram(other) == key)
    }

    /// Enters the digram at `node`, which must not be there.
    pub(crate) fn enter_digram(&mut self, node: u32) {
        let hash = self.digram(node).hash();
        let nodes = &self.nodes;
        let counts_matter = self.counts_matter;
        self.digrams
            .insert(hash, node, |other| digram(nodes, other, counts_matter).hash());
    }

    /// Takes out the digram at a link, if there is one and it is the one that is indexed.
    pub(crate) fn forget_digram(&mut self, link: u32) {
        if Store::is_end(link) || Store::is_end(self.node(link).next) {
            return;
        }
        let hash = self.digram(link).hash();
        let nodes = &self.nodes;
        let counts_matter = self.counts_matter;
        self.digrams
            .remove(hash, link, |other| digram(nodes, other, counts_matter).hash());
    }

    /// How many digrams are indexed.
    pub(crate) fn digrams(&self) -> usize {
        self.digrams.len
    }

    fn digram(&self, node: u32) -> Digram {
        digram(&self.nodes, node, self.counts_matter)
    }

    fn allocate(&mut self) -> u32 {
        if self.free_nodes != NONE {
            let node = self.free_nodes;
            self.free_nodes = self.node(node).next;
            return node;
        }
        let node = self.nodes.len() as u32;
        assert!(node < RULE - 1, "too many symbols: 2^31");
        grow(&mut self.nodes);
        self.nodes.push(Node {
            value: NONE,
            count: 0,
            prev: NONE,
            next: NONE,
            older: NONE,
            newer: NONE,
        });
        node
    }

    fn head(&self, value: u32) -> u32 {
        match is_rule(value) {
            true => self.rule(rule_of_value(value)).head,
            false => self.terminals[value as usize].head,
        }
    }

    fn set_head(&mut self, value: u32, head: u32) {
        match is_rule(value) {
            true => self.rules[rule_of_value(value) as usize].head = head,
            false => self.terminals[value as usize].head = head,
        }
    }

    fn enlist(&mut self, node: u32) {
        let value = self.value(node);
        let head = self.head(value);
        if head != NONE {
            self.nodes[head as usize].newer = node;
        }
        let listed = &mut self.nodes[node as usize];
        (listed.older, listed.newer) = (head, NONE);
        self.set_head(value, node);
    }

    fn delist(&mut self, node: u32) {
        let Node {
            value,
            older,
            newer,
            ..
        } = *self.node(node);
        if newer == NONE {
            self.set_head(value, older);
        } else {
            self.nodes[newer as usize].older = older;
        }
        if older != NONE {
            self.nodes[older as usize].newer = newer;
        }
    }
}

/// Makes room for one more by an eighth, not by doubling: these lists are most of what a grammar takes.
fn grow<T>(list: &mut Vec<T>) {
    if list.len() == list.capacity() {
        list.reserve_exact(list.len() / 8 + 16);
    }
}

/// Two neighbours, as far as they make a digram.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Digram {
    values: (u32, u32),
    counts: (u32, u32),
}

#[inline]
fn digram(nodes: &[Node], node: u32, counts_matter: bool) -> Digram {
    let a = &nodes[node as usize];
    let b = &nodes[a.next as usize];
    let counts = if counts_matter {
        (a.count(), b.count())
    } else {
        (1, 1)
    };
    Digram {
        values: (a.value, b.value),
        counts,
    }
}

impl Digram {
    #[inline]
    fn hash(self) -> u64 {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let values = u64::from(self.values.0) << 32 | u64::from(self.values.1);
        let counts = u64::from(self.counts.0) << 32 | u64::from(self.counts.1);
        let mixed = (values.wrapping_mul(ODD) ^ counts).wrapping_mul(ODD);
        mixed ^ (mixed >> 32)
    }
}

/// A table of nodes, open and probed in line: the keys are in the nodes.
#[derive(Clone, Debug, Default)]
struct Digrams {
    slots: Vec<u32>,
    len: usize,
}

impl Digrams {
    fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<u32>()
    }

    #[inline]
    fn find(&self, hash: u64, same: impl Fn(u32) -> bool) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            match self.slots[at] {
                NONE => return None,
                node if same(node) => return Some(node),
                _ => at = (at + 1) & mask,
            }
        }
    }

    fn insert(&mut self, hash: u64, node: u32, hash_of: impl Fn(u32) -> u64) {
        if (self.len + 1) * 8 > self.slots.len() * 7 {
            self.double(hash_of);
        }
        self.place(hash, node);
        self.len += 1;
    }

    fn place(&mut self, hash: u64, node: u32) {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        while self.slots[at] != NONE {
            at = (at + 1) & mask;
        }
        self.slots[at] = node;
    }

    fn double(&mut self, hash_of: impl Fn(u32) -> u64) {
        let size = (self.slots.len() * 2).max(16);
        let old = std::mem::replace(&mut self.slots, vec![NONE; size]);
        for node in old.into_iter().filter(|n| *n != NONE) {
            self.place(hash_of(node), node);
        }
    }

    /// Takes `node` out if it is there, and closes the gap.
    fn remove(&mut self, hash: u64, node: u32, hash_of: impl Fn(u32) -> u64) {
        if self.len == 0 {
            return;
        }
        let mask = self.slots.len() - 1;
        let mut gap = hash as usize & mask;
        while self.slots[gap] != node {
            if self.slots[gap] == NONE {
                return;
            }
            gap = (gap + 1) & mask;
        }
        self.len -= 1;
        let mut at = (gap + 1) & mask;
        while self.slots[at] != NONE {
            let home = hash_of(self.slots[at]) as usize & mask;
            // Whether the gap lies on the way from its home to where it is.
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(gap) & mask) {
                self.slots[gap] = self.slots[at];
                gap = at;
            }
            at = (at + 1) & mask;
        }
        self.slots[gap] = NONE;
    }
}
