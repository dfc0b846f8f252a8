//! The grammar as it lies in memory: rules, their symbols, and the index of digrams.
//!
//! A symbol is 24 bytes and named by a 32-bit number. It stands in two lists: its rule's body, whose ends lead
//! to the rule itself, and the list of all symbols of its value, which is how every place is found where a
//! terminal, or an instance of a rule, stands. Nothing here decides anything: see [`crate::grammar`].

use crate::grammar::{GAP, Mode};
use crate::runs::Runs;
use crate::table::{NODES_MAX, Table, spread};
use presagio_core::IdHashMap;

/// The name of nothing.
pub(crate) const NONE: u32 = u32::MAX;

/// A value with this bit is a rule; so is a link, which then leads out of the rule's body.
pub(crate) const RULE: u32 = 1 << 31;

/// The rule that stands for the whole input.
pub(crate) const START: u32 = 0;

/// Symbols below this are their own values. The others, which few inputs have, are numbered from here on.
const FAR: u32 = 1 << 30;

/// The value of a gap.
pub(crate) const GAP_VALUE: u32 = RULE - 1;

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
    /// How often it stands here; when folding 1, or two more than the number of its [`Runs`]. In the top bit
    /// whether it is in the start rule.
    count: u32,
    pub prev: u32,
    pub next: u32,
    /// The list of equal values, the newest first.
    older: u32,
    newer: u32,
}

/// Of a count: the node is in the start rule.
const IN_START: u32 = 1 << 31;

/// Counts stop here.
pub(crate) const COUNT_MAX: u32 = IN_START - 1;

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

/// See the module's header.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pub nodes: Vec<Node>,
    free_nodes: u32,
    pub rules: Vec<Rule>,
    free_rules: u32,
    /// The newest node of each terminal that occurs.
    heads: Table,
    /// All digrams but the one at `tail`.
    digrams: Table,
    /// Where the digram is that was last entered at the end of the start rule. It changes with most symbols, so it
    /// comes into the table only when another one takes its place here.
    tail: u32,
    /// Symbols that are not their own values; see [`FAR`].
    far: Far,
    /// Of nodes that have ever been repeated, when folding.
    runs: Vec<Runs>,
    free_runs: Vec<u32>,
    /// How many of them have learned an order; see [`Store::may_learn`].
    learned: usize,
    mode: Mode,
    frozen: bool,
    len: usize,
}

/// The symbols that are too large to be their own values.
#[derive(Clone, Debug, Default)]
struct Far {
    symbols: Vec<u32>,
    free: Vec<u32>,
    numbers: IdHashMap<u32, u32>,
}

impl Far {
    fn memory(&self) -> usize {
        (self.symbols.capacity() + self.free.capacity()) * size_of::<u32>()
            + self.numbers.capacity() * (size_of::<(u32, u32)>() + 1)
    }

    fn number(&mut self, symbol: u32) -> u32 {
        *self
            .numbers
            .entry(symbol)
            .or_insert_with(|| match self.free.pop() {
                Some(number) => {
                    self.symbols[number as usize] = symbol;
                    number
                }
                None => {
                    self.symbols.push(symbol);
                    self.symbols.len() as u32 - 1
                }
            })
    }

    fn forget(&mut self, number: u32) {
        self.numbers.remove(&self.symbols[number as usize]);
        self.free.push(number);
    }
}

impl Store {
    pub(crate) fn new(mode: Mode) -> Store {
        let mut store = Store {
            nodes: Vec::new(),
            free_nodes: NONE,
            rules: Vec::new(),
            free_rules: NONE,
            heads: Table::default(),
            digrams: Table::default(),
            tail: NONE,
            far: Far::default(),
            runs: Vec::new(),
            free_runs: Vec::new(),
            learned: 0,
            mode,
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
        let series: usize = self.runs.iter().map(Runs::memory).sum();
        self.nodes.capacity() * size_of::<Node>()
            + self.rules.capacity() * size_of::<Rule>()
            + self.heads.memory()
            + self.digrams.memory()
            + self.far.memory()
            + self.runs.capacity() * size_of::<Runs>()
            + self.free_runs.capacity() * size_of::<u32>()
            + series
    }

    /// The value of a symbol of the input. It is good until nodes are freed, unless one has it.
    #[inline]
    pub(crate) fn terminal(&mut self, symbol: u32) -> u32 {
        match symbol {
            GAP => GAP_VALUE,
            near if near < FAR => near,
            far => FAR + self.far.number(far),
        }
    }

    /// The value of a symbol, if it may occur.
    pub(crate) fn known_terminal(&self, symbol: u32) -> Option<u32> {
        match symbol < FAR {
            true => Some(symbol),
            false => self.far.numbers.get(&symbol).map(|number| FAR + number),
        }
    }

    /// What a terminal stands for.
    #[inline]
    pub(crate) fn symbol(&self, terminal: u32) -> u32 {
        match terminal {
            near if near < FAR => near,
            GAP_VALUE => GAP,
            far => self.far.symbols[(far - FAR) as usize],
        }
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
    /// Each step there takes one of `steps`; nothing if they do not suffice.
    pub(crate) fn rule_of(&self, node: u32, steps: &mut usize) -> Option<u32> {
        if self.node(node).is_in_start() {
            return Some(START);
        }
        let (mut before, mut behind) = (node, node);
        while *steps > 0 {
            *steps -= 1;
            (before, behind) = (self.node(before).prev, self.node(behind).next);
            if Store::is_end(before) {
                return Some(rule_of_value(before));
            }
            if Store::is_end(behind) {
                return Some(rule_of_value(behind));
            }
        }
        None
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

    /// The next older node of the same value.
    pub(crate) fn older(&self, node: u32) -> Option<u32> {
        let older = self.node(node).older;
        (older != NONE).then_some(older)
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
        let rule = match self.free_rules {
            NONE => {
                let (first, last, head) = (0, 0, NONE);
                grow(&mut self.rules);
                self.rules.push(Rule { first, last, head });
                self.rules.len() as u32 - 1
            }
            free => {
                self.free_rules = self.rule(free).last;
                free
            }
        };
        let (first, last, head) = (RULE | rule, RULE | rule, NONE);
        self.rules[rule as usize] = Rule { first, last, head };
        rule
    }

    /// Forgets a rule that has no body and no instances any more.
    pub(crate) fn free_rule(&mut self, rule: u32) {
        let (first, last, head) = (RULE | rule, self.free_rules, NONE);
        self.rules[rule as usize] = Rule { first, last, head };
        self.free_rules = rule;
    }

    /// Whether a rule is in use.
    pub(crate) fn rule_is_live(&self, rule: u32) -> bool {
        rule == START || self.rule(rule).head != NONE
    }

    /// The rules that are in use, the start rule first.
    pub(crate) fn live_rules(&self) -> impl Iterator<Item = u32> {
        (0..self.rules.len() as u32).filter(|r| self.rule_is_live(*r))
    }

    /// Puts a new node between two that are neighbours, or a rule's end.
    pub(crate) fn insert(&mut self, prev: u32, next: u32, value: u32, in_start: bool) -> u32 {
        let node = self.insert_unlisted(prev, next, value, in_start);
        self.enlist(node);
        node
    }

    /// The same, but it is not in the list of its value yet.
    pub(crate) fn insert_unlisted(
        &mut self,
        prev: u32,
        next: u32,
        value: u32,
        in_start: bool,
    ) -> u32 {
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
        node.count = count.min(COUNT_MAX) | node.count & IN_START;
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
        self.take_runs(node);
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

    /// Where the history of a node is that has been repeated, when folding.
    #[inline]
    fn runs_at(&self, node: u32) -> Option<usize> {
        let at = self.node(node).count().checked_sub(2)?;
        (self.mode == Mode::Folding).then_some(at as usize)
    }

    /// The history of a node that has been repeated, when folding.
    #[inline]
    pub(crate) fn runs(&self, node: u32) -> Option<&Runs> {
        self.runs_at(node).map(|at| &self.runs[at])
    }

    /// The same, made if there is none.
    fn runs_mut(&mut self, node: u32) -> &mut Runs {
        let at = self.runs_at(node).unwrap_or_else(|| {
            let at = self.free_runs.pop().unwrap_or_else(|| {
                grow(&mut self.runs);
                self.runs.push(Runs::default());
                self.runs.len() as u32 - 1
            });
            self.set_count(node, at + 2);
            at as usize
        });
        &mut self.runs[at]
    }

    /// Takes the history of a node away.
    fn take_runs(&mut self, node: u32) -> Option<Runs> {
        let at = self.runs_at(node)?;
        self.free_runs.push(at as u32);
        self.set_count(node, 1);
        let runs = std::mem::take(&mut self.runs[at]);
        self.learned -= usize::from(runs.learns());
        Some(runs)
    }

    /// Gives a node, which has none, a history.
    pub(crate) fn set_runs(&mut self, node: u32, runs: Runs) {
        self.learned += usize::from(runs.learns());
        *self.runs_mut(node) = runs;
    }

    /// Whether one more order of trip counts may be learned. That takes a kilobyte or two, where a symbol takes
    /// forty bytes: in an input without loops, where chance makes some, it would be most of the memory.
    fn may_learn(&self) -> bool {
        self.learned < 16 + self.len / 512
    }

    /// Whether trip counts of places in rules are left as they are: they have been counted already.
    pub(crate) fn freeze(&mut self, frozen: bool) {
        self.frozen = frozen;
    }

    /// Counts that another run of a node, which has been repeated before, has come to `count`.
    pub(crate) fn begin_run(&mut self, node: u32, count: u32) {
        let may_learn = self.may_learn();
        if let Some(at) = self.runs_at(node) {
            let runs = &mut self.runs[at];
            let learned = usize::from(runs.learns());
            runs.begin(count, may_learn);
            self.learned = self.learned + usize::from(runs.learns()) - learned;
        }
    }

    /// Counts that the last occurrence of a node goes on with `more`.
    pub(crate) fn prolong(&mut self, node: u32, more: u32) {
        if self.frozen && !self.node(node).is_in_start() {
            return;
        }
        self.runs_mut(node).prolong(more);
    }

    /// A node, which is about to go, stood where another one stands from now on: adds its last run, if either has
    /// ever been repeated.
    pub(crate) fn inherit(&mut self, node: u32, from: u32) {
        let count = self.take_runs(from).map_or(1, |runs| runs.current());
        if !self.frozen && (count > 1 || self.node(node).count() > 1) {
            self.runs_mut(node);
            self.begin_run(node, count);
        }
    }

    /// What a node stands for is itself repeated, as `inner` is: it stands for that from now on.
    pub(crate) fn inherit_within(&mut self, node: u32, inner: u32) {
        let times = self.current(inner);
        if times > 1 {
            self.runs_mut(node).multiply(times);
        }
    }

    /// How many repetitions the last occurrence of a node has had so far.
    pub(crate) fn current(&self, node: u32) -> u32 {
        self.runs(node).map_or(1, Runs::current)
    }

    /// The node where the digram at `node` is indexed, which may be itself.
    pub(crate) fn find_digram(&self, node: u32) -> Option<u32> {
        let key = self.digram(node);
        if self.tail != NONE && self.digram(self.tail) == key {
            return Some(self.tail);
        }
        self.digrams
            .find(key.hash(), |other| self.digram(other) == key)
    }

    /// Enters the digram at `node`, which must not be there.
    pub(crate) fn enter_digram(&mut self, node: u32) {
        let at_the_end = self.rule(START).last == self.node(node).next;
        let settled = match at_the_end {
            true => std::mem::replace(&mut self.tail, node),
            false => node,
        };
        if settled != NONE {
            self.settle_digram(settled);
        }
    }

    /// Enters a digram into the table.
    fn settle_digram(&mut self, node: u32) {
        let hash = self.digram(node).hash();
        let nodes = &self.nodes;
        let exact = self.mode == Mode::Exact;
        self.digrams
            .insert(hash, node, |other| digram(nodes, other, exact).hash());
    }

    /// Takes out the digram at a link, if there is one and it is the one that is indexed.
    pub(crate) fn forget_digram(&mut self, link: u32) {
        if Store::is_end(link) || Store::is_end(self.node(link).next) {
            return;
        }
        if link == self.tail {
            self.tail = NONE;
            return;
        }
        let hash = self.digram(link).hash();
        let nodes = &self.nodes;
        let exact = self.mode == Mode::Exact;
        self.digrams
            .remove(hash, link, |other| digram(nodes, other, exact).hash());
    }

    /// Whether the digram at `node` is indexed there.
    pub(crate) fn is_indexed(&self, node: u32) -> bool {
        !Store::is_end(self.node(node).next) && self.find_digram(node) == Some(node)
    }

    /// Enters the digram at `node`, if there is one; false if it is there already.
    pub(crate) fn index_if_new(&mut self, node: u32) -> bool {
        if Store::is_end(self.node(node).next) {
            return true;
        }
        let is_new = self.find_digram(node).is_none();
        if is_new {
            self.enter_digram(node);
        }
        is_new
    }

    /// How many digrams are indexed.
    pub(crate) fn digrams(&self) -> usize {
        self.digrams.len() + usize::from(self.tail != NONE)
    }

    fn digram(&self, node: u32) -> Digram {
        digram(&self.nodes, node, self.mode == Mode::Exact)
    }

    fn allocate(&mut self) -> u32 {
        if self.free_nodes != NONE {
            let node = self.free_nodes;
            self.free_nodes = self.node(node).next;
            return node;
        }
        let node = self.nodes.len() as u32;
        assert!(node < NODES_MAX, "too many symbols: 2^26");
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
        if is_rule(value) {
            return self.rule(rule_of_value(value)).head;
        }
        let found = self
            .heads
            .find(spread(value.into()), |node| self.value(node) == value);
        found.unwrap_or(NONE)
    }

    /// The newest node of a value, which was `old`, goes; the next older one is `new`, or none.
    fn set_head(&mut self, value: u32, old: u32, new: u32) {
        if is_rule(value) {
            self.rules[rule_of_value(value) as usize].head = new;
            return;
        }
        let hash = spread(value.into());
        let nodes = &self.nodes;
        let hash_of = |node: u32| spread(nodes[node as usize].value.into());
        if new != NONE {
            self.heads.exchange(hash, |other| other == old, new);
            return;
        }
        self.heads.remove(hash, old, hash_of);
        if (FAR..GAP_VALUE).contains(&value) {
            self.far.forget(value - FAR);
        }
    }

    /// Puts a node into the list of its value, as the newest.
    pub(crate) fn enlist(&mut self, node: u32) {
        let value = self.value(node);
        let head = self.take_lead(value, node);
        if head != NONE {
            self.nodes[head as usize].newer = node;
        }
        let listed = &mut self.nodes[node as usize];
        (listed.older, listed.newer) = (head, NONE);
    }

    /// Makes a node the newest of its value; gives the one that was.
    fn take_lead(&mut self, value: u32, node: u32) -> u32 {
        if is_rule(value) {
            return std::mem::replace(&mut self.rules[rule_of_value(value) as usize].head, node);
        }
        let hash = spread(value.into());
        let nodes = &self.nodes;
        let same = |other: u32| nodes[other as usize].value == value;
        if let Some(old) = self.heads.exchange(hash, same, node) {
            return old;
        }
        let hash_of = |other: u32| spread(nodes[other as usize].value.into());
        self.heads.insert(hash, node, hash_of);
        NONE
    }

    fn delist(&mut self, node: u32) {
        let Node {
            value,
            older,
            newer,
            ..
        } = *self.node(node);
        if newer == NONE {
            self.set_head(value, node, older);
        } else {
            self.nodes[newer as usize].older = older;
        }
        if older != NONE {
            self.nodes[older as usize].newer = newer;
        }
    }
}

/// Makes room for one more by a sixteenth, not by doubling: these lists are most of what a grammar takes.
fn grow<T>(list: &mut Vec<T>) {
    if list.len() == list.capacity() {
        list.reserve_exact(list.len() / 16 + 12);
    }
}

/// Two neighbours, as far as they make a digram.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Digram {
    values: (u32, u32),
    counts: (u32, u32),
}

#[inline]
fn digram(nodes: &[Node], node: u32, exact: bool) -> Digram {
    let a = &nodes[node as usize];
    let b = &nodes[a.next as usize];
    let counts = if exact {
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
        let values = u64::from(self.values.0) << 32 | u64::from(self.values.1);
        let counts = u64::from(self.counts.0) << 32 | u64::from(self.counts.1);
        spread(values ^ counts.rotate_left(17).wrapping_mul(0xff51_afd7_ed55_8ccd))
    }
}
