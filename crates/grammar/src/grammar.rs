//! StarSequitur: the grammar of a stream of symbols, kept small while it grows (§3.1.1–3.1.2).
//!
//! Each symbol is appended to the start rule; then the constraints are restored, and what restoring one breaks
//! is looked at in turn:
//!
//! - **Digram uniqueness**: no two neighbours occur twice. If they do, a rule takes their place.
//! - **Rule utility**: every rule occurs twice. If one does not, its body takes the place of its only instance.
//! - **Twins removal**: no two equal symbols are neighbours. They become one, with a count.
//!
//! Work that remains to be looked at is in lists, not in the call stack: what has been changed meanwhile is
//! recognised when its turn comes, and to look at a symbol once too often does no harm.

use crate::fold::TRIAL_MIN;
use crate::followers::{Cursor, Followers, ends_repetition};
use crate::glide::Glide;
use crate::store::{GAP_VALUE, NONE, RULE, START, Store, is_rule, rule_of_value};

/// So many rules deep a symbol is looked for at the end of another one, lest it take for ever in odd grammars.
const DEPTH_MAX: usize = 64;

/// However many are asked for, no grammar gets more symbols than this.
pub(crate) const SYMBOLS_MAX: usize = 1 << 25;

/// However many are asked for, no more places are followed: each costs at every symbol.
pub(crate) const FOLLOWERS_MAX: usize = 1 << 12;

/// Stands where part of the input is missing, see [`Grammar::lose_track`]. It is never predicted.
pub const GAP: u32 = u32::MAX;

/// What a grammar keeps of its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Plain Sequitur: no counts. Periodic input makes it grow with the logarithm of its length. For comparison.
    Sequitur,
    /// StarSequitur as published: counts are exact, and expanding the grammar gives the input back. A loop whose
    /// trip count changes makes it grow with every change.
    Exact,
    /// Symbols and their repetitions are one, however many they are: a loop is one symbol whatever its trip
    /// count, and the counts are a series of their own. The grammar of a program with loops stays small; the
    /// input cannot be had back from it. A loop that may not run at all is two ways through what is around it: if
    /// several such loops are nested, or stand in one another's neighbourhood, each combination that comes is learned,
    /// and the grammar grows with their number.
    Folding,
}

/// How large a grammar may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Symbols in all rules. Beyond, the oldest part of the input is forgotten.
    pub symbols: usize,
    /// Places in the grammar that are followed at once.
    pub followers: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            symbols: 1 << 20,
            followers: 32,
        }
    }
}

/// See the module's header.
#[derive(Clone, Debug)]
pub struct Grammar {
    pub(crate) mode: Mode,
    pub(crate) limits: Limits,
    pub(crate) store: Store,
    pub(crate) followers: Followers,
    pub(crate) glide: Glide,
    may_glide: bool,
    /// See [`Grammar::trip_counts_vary`].
    pub(crate) varies: bool,
    /// Of how many symbols on that is asked, and whether a trial is to answer it.
    pub(crate) trial_at: usize,
    pub(crate) trial_is_due: bool,
    /// What the trial gave, until the next symbol comes.
    pub(crate) folded: Option<Box<Grammar>>,
    /// Nodes whose digram is to be looked at.
    todo: Vec<u32>,
    /// Rules that may be left with one instance.
    underused: Vec<u32>,
    /// Rules that may be left with one symbol.
    units: Vec<u32>,
}

/// A symbol of a rule, for those who want to look at a grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symbol {
    /// A symbol of the input.
    Terminal(u32),
    /// A rule, by its number.
    Rule(u32),
}

impl Grammar {
    /// An empty grammar with the usual limits.
    pub fn new(mode: Mode) -> Grammar {
        Grammar::with_limits(mode, Limits::default())
    }

    /// An empty grammar.
    pub fn with_limits(mode: Mode, mut limits: Limits) -> Grammar {
        limits.symbols = limits.symbols.min(SYMBOLS_MAX);
        limits.followers = limits.followers.min(FOLLOWERS_MAX);
        Grammar {
            mode,
            limits,
            store: Store::new(mode),
            followers: Followers::new(mode, limits.followers),
            glide: Glide::default(),
            may_glide: true,
            varies: false,
            trial_at: TRIAL_MIN,
            trial_is_due: false,
            folded: None,
            todo: Vec::new(),
            underused: Vec::new(),
            units: Vec::new(),
        }
    }

    /// Takes the next symbol of the input: learns from it, and follows it. All but [`GAP`] are allowed.
    pub fn append(&mut self, symbol: u32) {
        assert_ne!(symbol, GAP, "this symbol has a meaning of its own");
        if self.varies {
            self.folded = None;
        }
        let terminal = self.store.terminal(symbol);
        if self.glides(terminal) {
            return self.followers.observe(&self.store, terminal);
        }
        self.land();
        let terminal = self.store.terminal(symbol);
        self.followers.observe(&self.store, terminal);
        self.extend(terminal, 1);
        self.settle();
        self.forget_surplus();
        self.find_lost();
        if self.trial_is_due {
            self.try_folding();
        }
    }

    /// If nothing is followed, looks for what may be.
    pub(crate) fn find_lost(&mut self) {
        if self.followers.are_lost() {
            self.followers.discover(&self.store);
        }
    }

    /// Something was missed: follows nothing until the next symbol shows where we are. What was learned stays,
    /// and what comes next is not taken for a neighbour of what came last.
    pub fn lose_track(&mut self) {
        self.land();
        let last = self.store.rule(START).last;
        if !Store::is_end(last) && !self.ends_with_gap(last) {
            self.extend(GAP_VALUE, 1);
            self.settle();
        }
        self.forget_surplus();
        self.followers.clear();
        if self.trial_is_due {
            self.try_folding();
        }
    }

    /// The input begins anew, as when a program is run a second time: follows what is remembered from its very
    /// beginning. What comes next is not taken for a neighbour of what came last.
    pub fn rewind(&mut self) {
        self.lose_track();
        self.followers.begin(&self.store);
    }

    /// Whether a loop has been seen to run with many different trip counts, and these are what makes the grammar
    /// large: an exact one grows with each of them, and one that folds does not. See [`Grammar::fold`].
    pub fn trip_counts_vary(&self) -> bool {
        self.varies
    }

    /// Whether a repetition that changes nothing is passed over, see the module `glide`: for tests.
    #[doc(hidden)]
    pub fn set_gliding(&mut self, may_glide: bool) {
        self.land();
        self.may_glide = may_glide;
    }

    fn ends_with_gap(&self, last: u32) -> bool {
        self.store.value(last) == GAP_VALUE || self.at_the_end_of(last, GAP_VALUE).is_some()
    }

    /// Keeps to the limit.
    #[inline]
    fn forget_surplus(&mut self) {
        while self.store.len() > self.limits.symbols {
            self.forget_oldest();
        }
    }

    /// What it keeps of its input.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// How large it may get.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// How many symbols all rules have together.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Whether nothing was appended.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory, all in.
    pub fn memory(&self) -> usize {
        let work = [&self.todo, &self.underused, &self.units];
        let work: usize = work.iter().map(|w| w.capacity() * size_of::<u32>()).sum();
        let folded = self.folded.as_ref().map_or(0, |folded| folded.memory());
        self.store.memory() + self.followers.memory() + self.glide.memory() + work + folded
    }

    /// What may come next, with weights: in exact mode the number of places in the input that speak for it.
    pub fn predictions(&self) -> Vec<(u32, f64)> {
        self.followers.predictions(&self.store)
    }

    /// Ways to read on from where we are, with their weights, the weightiest first.
    pub fn cursors(&self) -> impl Iterator<Item = (Cursor<'_>, f64)> {
        self.followers.cursors(&self.store)
    }

    /// The symbols with which the ways to read on begin, with the weight of each way, the weightiest first.
    pub fn ways(&self) -> impl ExactSizeIterator<Item = (u32, f64)> + Clone {
        self.followers.ways(&self.store).into_iter()
    }

    /// The symbol that is expected most, and its share of all weights.
    pub fn best_symbol(&self) -> Option<(u32, f64)> {
        self.followers.best_symbol(&self.store)
    }

    /// The weightiest way to read on of those on which the symbol comes next that is expected most.
    pub fn best(&self) -> Option<Cursor<'_>> {
        self.followers.best(&self.store)
    }

    /// The weightiest way to read on among those on which `symbol` comes next.
    pub fn best_through(&self, symbol: u32) -> Option<Cursor<'_>> {
        let terminal = self.store.known_terminal(symbol)?;
        self.followers.best_through(&self.store, terminal)
    }

    /// All rules with their symbols and counts, by number; rule 0 is the start rule.
    pub fn rules(&self) -> Vec<(u32, Vec<(Symbol, u32)>)> {
        let live = self.store.live_rules();
        live.map(|rule| (rule, self.body(rule))).collect()
    }

    fn body(&self, rule: u32) -> Vec<(Symbol, u32)> {
        let symbol = |value| match is_rule(value) {
            true => Symbol::Rule(rule_of_value(value)),
            false => Symbol::Terminal(self.store.symbol(value)),
        };
        let count = |node| match self.mode {
            Mode::Folding => self.store.current(node),
            _ => self.store.node(node).count(),
        };
        let body = self.store.body(rule);
        body.map(|n| (symbol(self.store.value(n)), count(n)))
            .collect()
    }

    /// The input, or what is remembered of it; when folding, with each repetition as it was last.
    pub fn expand(&self) -> Vec<u32> {
        if !self.glide.is_over() {
            let mut landed = self.clone();
            landed.land();
            return landed.expand();
        }
        let rules: std::collections::BTreeMap<_, _> = self.rules().into_iter().collect();
        let mut out = Vec::new();
        let mut stack = vec![(START, 0usize, 0u32)];
        while let Some((rule, at, done)) = stack.pop() {
            let Some(&(symbol, count)) = rules[&rule].get(at) else {
                continue;
            };
            if done == count {
                stack.push((rule, at + 1, 0));
                continue;
            }
            stack.push((rule, at, done + 1));
            match symbol {
                Symbol::Terminal(terminal) => out.push(terminal),
                Symbol::Rule(inner) => stack.push((inner, 0, 0)),
            }
        }
        out
    }

    /// Whether a terminal is part of one more repetition of what the start rule ends with; see [`crate::glide`].
    fn glides(&mut self, terminal: u32) -> bool {
        let last = self.store.rule(START).last;
        if Store::is_end(last) || !self.may_glide {
            return false;
        }
        let node = self.store.node(last);
        if node.count() == 1 || !is_rule(node.value) {
            return false;
        }
        let place = self.followers.only_place(&self.store, terminal);
        let Some(place) = place.filter(|p| p[0].node == last && p.len() > 1) else {
            return false;
        };
        let takes = self.glide.takes(&self.store, place)
            && (!self.glide.is_over() || self.at_the_end_of(last, terminal).is_none());
        if !takes {
            return false;
        }
        if self.mode == Mode::Exact && ends_repetition(&self.store, place) {
            // Only a grammar that folds has to wait for what comes next to know that.
            self.glide = Glide::default();
            self.repeat(last, 1);
            self.settle();
        } else {
            self.glide.take(&mut self.store, place);
        }
        true
    }

    /// Appends what has been passed of a repetition that will not be one.
    #[inline]
    pub(crate) fn land(&mut self) {
        if !self.glide.is_over() {
            self.append_passed();
        }
    }

    fn append_passed(&mut self) {
        let passed = match self.mode {
            Mode::Folding => self.glide.end(&mut self.store),
            _ => self.glide.end_exact(&self.store),
        };
        self.store.freeze(true);
        for (value, count) in passed {
            debug_assert!(!is_rule(value) || self.store.rule_is_live(rule_of_value(value)));
            self.extend(value, count);
            self.settle();
        }
        self.store.freeze(false);
    }

    /// Puts a value behind the start rule, `count` times: more than once only if counts are kept.
    fn extend(&mut self, value: u32, count: u32) {
        let last = self.store.rule(START).last;
        if !Store::is_end(last) && self.mode != Mode::Sequitur {
            if self.store.value(last) == value {
                return self.repeat(last, count);
            }
            if self.mode == Mode::Folding
                && let Some(deep) = self.at_the_end_of(last, value)
            {
                return self.store.prolong(deep, count);
            }
        }
        self.look_for_variation(last);
        let node = self.store.insert(last, RULE | START, value, true);
        if count > 1 {
            match self.mode {
                Mode::Folding => self.store.prolong(node, count - 1),
                _ => self.store.set_count(node, count),
            }
        }
        self.look_at(last);
    }

    fn repeat(&mut self, node: u32, more: u32) {
        if self.mode == Mode::Folding {
            return self.store.prolong(node, more);
        }
        let prev = self.store.node(node).prev;
        self.store.forget_digram(prev);
        let count = self.store.node(node).count();
        self.store.set_count(node, count.saturating_add(more));
        self.look_at(prev);
    }

    /// The last symbol comes so many times more: counts that, without following it.
    pub(crate) fn repeat_last(&mut self, symbol: u32, more: u32) {
        let terminal = self.store.terminal(symbol);
        self.extend(terminal, more);
        self.settle();
        self.followers.clear();
    }

    /// The node of this value with which what `node` stands for ends.
    fn at_the_end_of(&self, mut node: u32, value: u32) -> Option<u32> {
        for _ in 0..DEPTH_MAX {
            if !is_rule(self.store.value(node)) {
                break;
            }
            node = self.store.rule(rule_of_value(self.store.value(node))).last;
            if self.store.value(node) == value {
                return Some(node);
            }
        }
        None
    }

    /// The nodes with which what `node` stands for ends, from without.
    pub(crate) fn ends_of(&self, mut node: u32, mut each: impl FnMut(u32)) {
        for _ in 0..DEPTH_MAX {
            if !is_rule(self.store.value(node)) {
                break;
            }
            node = self.store.rule(rule_of_value(self.store.value(node))).last;
            each(node);
        }
    }

    /// Notes that the digram at a link, if there is one, may break a constraint.
    fn look_at(&mut self, link: u32) {
        if !Store::is_end(link) {
            self.todo.push(link);
        }
    }

    /// Restores the constraints.
    fn settle(&mut self) {
        loop {
            if let Some(rule) = self.units.pop() {
                self.dissolve(rule);
            } else if let Some(node) = self.todo.pop() {
                self.check(node);
            } else if let Some(rule) = self.underused.pop() {
                self.check_use(rule);
            } else {
                return;
            }
        }
    }

    fn check(&mut self, node: u32) {
        if !self.store.is_live(node) || Store::is_end(self.store.node(node).next) {
            return;
        }
        let next = self.store.node(node).next;
        if self.mode != Mode::Sequitur && self.store.value(node) == self.store.value(next) {
            return self.join(node, next);
        }
        if self.mode == Mode::Folding
            && let Some(deep) = self.at_the_end_of(node, self.store.value(next))
        {
            return self.absorb(node, next, deep);
        }
        match self.store.find_digram(node) {
            None => self.store.enter_digram(node),
            Some(other) if other == node => {}
            // Three in a row overlap: only without counts.
            Some(other) if self.store.node(other).next == node || next == other => {}
            Some(other) => self.unify(other, node),
        }
    }

    /// The digrams at `old` and `new` are the same: one rule takes the place of both.
    fn unify(&mut self, old: u32, new: u32) {
        match (self.store.whole(old), self.store.whole(new)) {
            (Some(rule), Some(other)) => self.fuse(rule, other),
            (Some(rule), None) => self.replace(new, rule),
            (None, Some(rule)) => {
                self.store.forget_digram(old);
                self.store.enter_digram(new);
                self.replace(old, rule);
            }
            (None, None) => {
                let rule = self.wrap(old);
                self.replace(new, rule);
            }
        }
    }

    /// Moves a digram into a new rule; an instance of it takes its place.
    fn wrap(&mut self, first: u32) -> u32 {
        let last = self.store.node(first).next;
        let (prev, next) = self.cut(first, last);
        let in_start = self.store.node(first).is_in_start();
        let rule = self.store.add_rule();
        let instance = self.store.insert(prev, next, RULE | rule, in_start);
        self.store.fill_rule(rule, first, last);
        self.followers.wrapped(&self.store, first, last, instance);
        self.look_at(instance);
        self.look_at(prev);
        rule
    }

    /// Puts an instance of a rule of two symbols in the place of a digram that is the same.
    fn replace(&mut self, first: u32, rule: u32) {
        let last = self.store.node(first).next;
        self.store.forget_digram(first);
        let (prev, next) = self.cut(first, last);
        let in_start = self.store.node(first).is_in_start();
        let instance = self.store.insert(prev, next, RULE | rule, in_start);
        let body = *self.store.rule(rule);
        let followed = self.followers.wrapped(&self.store, first, last, instance);
        for (gone, stays) in [(first, body.first), (last, body.last)] {
            if followed {
                self.followers.renamed(gone, stays);
            }
            self.take_over(gone, stays);
        }
        self.look_at(instance);
        self.look_at(prev);
    }

    /// A node stands for another of the same value from now on, which goes.
    fn take_over(&mut self, gone: u32, stays: u32) {
        if self.mode == Mode::Folding {
            self.store.inherit(stays, gone);
        }
        self.free(gone);
    }

    /// Takes the digrams to both sides of some neighbours out of the index; returns the links to both sides.
    fn cut(&mut self, first: u32, last: u32) -> (u32, u32) {
        let (prev, next) = (self.store.node(first).prev, self.store.node(last).next);
        self.forget(prev);
        self.forget(last);
        (prev, next)
    }

    /// Takes the digram at a link out of the index.
    fn forget(&mut self, link: u32) {
        self.store.forget_digram(link);
        if self.mode == Mode::Sequitur && !Store::is_end(link) {
            // Of three equal ones in a row only one pair is indexed: now it is the other's turn.
            let node = self.store.node(link);
            let (prev, next) = (node.prev, node.next);
            self.look_at(prev);
            self.look_at(next);
        }
    }

    /// Frees a node and notes that its rule may be underused.
    fn free(&mut self, node: u32) {
        let value = self.store.value(node);
        self.store.free(node);
        if is_rule(value) {
            self.underused.push(rule_of_value(value));
        }
    }

    /// Two equal neighbours become one.
    fn join(&mut self, node: u32, twin: u32) {
        self.forget(node);
        let (prev, next) = self.cut(node, twin);
        match self.mode {
            Mode::Folding => {
                let count = self.store.current(node);
                self.followers.joined(&self.store, node, twin, count);
                self.store.prolong(node, self.store.current(twin));
            }
            _ => {
                let count = self.store.node(node).count();
                self.followers.joined(&self.store, node, twin, count);
                let more = self.store.node(twin).count();
                self.store.set_count(node, count.saturating_add(more));
            }
        }
        self.store.link(node, next);
        self.free(twin);
        if Store::is_end(prev) && Store::is_end(next) && rule_of_value(prev) != START {
            self.units.push(rule_of_value(prev));
        }
        self.look_at(node);
        self.look_at(prev);
    }

    /// A node continues a repetition, `deep`, with which the one before it ends: it becomes part of that.
    fn absorb(&mut self, node: u32, more: u32, deep: u32) {
        self.forget(node);
        let next = self.store.node(more).next;
        self.forget(more);
        let way = self.way_to(node, deep);
        let count = self.store.current(deep);
        self.followers.absorbed(&self.store, more, &way, count);
        self.store.prolong(deep, self.store.current(more));
        self.store.link(node, next);
        self.free(more);
        let prev = self.store.node(node).prev;
        if Store::is_end(prev) && Store::is_end(next) && rule_of_value(prev) != START {
            self.units.push(rule_of_value(prev));
        }
        self.look_at(node);
    }

    /// The nodes from `node` down to `deep`, which is at its end.
    fn way_to(&self, mut node: u32, deep: u32) -> Vec<u32> {
        let mut way = vec![node];
        while node != deep {
            node = self.store.rule(rule_of_value(self.store.value(node))).last;
            way.push(node);
        }
        way
    }

    /// If a rule has one instance that is not repeated, its body takes the place of that.
    fn check_use(&mut self, rule: u32) {
        let Some(instance) = self.store.sole_instance(rule) else {
            if rule != START && self.store.is_unused(rule) {
                self.drop_body(rule);
            }
            return;
        };
        if self.store.node(instance).count() > 1 {
            return;
        }
        self.forget(instance);
        let (prev, next) = self.cut(instance, instance);
        let body = *self.store.rule(rule);
        if self.store.node(instance).is_in_start() {
            self.store.move_to_start(rule);
        }
        self.store.link(prev, body.first);
        self.store.link(body.last, next);
        self.followers.inlined(&self.store, instance);
        self.store.free(instance);
        self.store.free_rule(rule);
        self.look_at(body.last);
        self.look_at(prev);
    }

    /// Two rules have the same two symbols: all instances of `other` become instances of `rule`.
    fn fuse(&mut self, rule: u32, other: u32) {
        while let Some(instance) = self.store.newest(RULE | other) {
            self.forget(instance);
            let (prev, _) = self.cut(instance, instance);
            self.store.set_value(instance, RULE | rule);
            self.look_at(instance);
            self.look_at(prev);
        }
        let (gone, stays) = (*self.store.rule(other), *self.store.rule(rule));
        self.store.forget_digram(gone.first);
        for (gone, stays) in [(gone.first, stays.first), (gone.last, stays.last)] {
            self.followers.renamed(gone, stays);
            self.take_over(gone, stays);
        }
        self.store.free_rule(other);
    }

    /// A rule is left with one symbol: that takes the place of its instances, as often as both say.
    fn dissolve(&mut self, rule: u32) {
        let only = self.store.rule(rule).first;
        let is_unit = !Store::is_end(only) && Store::is_end(self.store.node(only).next);
        if !self.store.rule_is_live(rule) || !is_unit {
            return;
        }
        let value = self.store.value(only);
        while let Some(instance) = self.store.newest(RULE | rule) {
            self.forget(instance);
            let (prev, _) = self.cut(instance, instance);
            let inner = self.store.node(only).count();
            self.followers.dissolved(instance, only, inner);
            match self.mode {
                Mode::Folding => self.store.inherit_within(instance, only),
                _ => {
                    let count = self.store.node(instance).count().saturating_mul(inner);
                    self.store.set_count(instance, count);
                }
            }
            self.store.set_value(instance, value);
            self.look_at(instance);
            self.look_at(prev);
        }
        self.followers.gone(only);
        self.free(only);
        self.store.free_rule(rule);
    }

    /// Forgets the oldest symbol of the start rule, and what nothing else needs.
    fn forget_oldest(&mut self) {
        let oldest = self.store.rule(START).first;
        let next = self.store.node(oldest).next;
        self.forget(oldest);
        self.store.link(RULE | START, next);
        self.followers.gone(oldest);
        self.free(oldest);
        self.settle();
    }

    /// Frees the body of a rule that has no instance any more.
    fn drop_body(&mut self, rule: u32) {
        let body: Vec<u32> = self.store.body(rule).collect();
        if body.is_empty() {
            return;
        }
        for &node in &body {
            self.store.forget_digram(node);
        }
        for node in body {
            self.followers.gone(node);
            self.free(node);
        }
        self.store.free_rule(rule);
    }

    /// Checks everything that must hold after every symbol; says what does not.
    pub fn verify(&self) -> Result<(), String> {
        let mut digrams = std::collections::BTreeMap::new();
        let mut symbols = 0;
        let mut homes = vec![NONE; self.store.nodes.len()];
        for rule in self.store.live_rules() {
            let body: Vec<u32> = self.store.body(rule).collect();
            symbols += body.len();
            self.verify_rule(rule, &body)?;
            body.iter().for_each(|node| homes[*node as usize] = rule);
            let indexed = body.windows(2).filter(|pair| !self.overlaps(pair));
            for pair in indexed {
                let of = |n: u32| (self.store.value(n), self.counted(n));
                if let Some(other) = digrams.insert((of(pair[0]), of(pair[1])), pair[0]) {
                    return Err(format!("the digram at {} is that at {other}", pair[0]));
                }
                if self.store.find_digram(pair[0]) != Some(pair[0]) {
                    return Err(format!("the digram at {} is not indexed", pair[0]));
                }
            }
        }
        if (symbols, digrams.len()) != (self.store.len(), self.store.digrams()) {
            return Err("symbols or digrams are lost".to_owned());
        }
        self.verify_glide(&homes)?;
        self.followers.verify(&self.store, &homes)
    }

    /// Whether the repetition in the making, if there is one, is one of what the start rule ends with.
    fn verify_glide(&self, homes: &[u32]) -> Result<(), String> {
        let place = self.glide.place();
        let Some(first) = place.first() else {
            return Ok(());
        };
        let repeated = self.store.node(first.node).count() > 1;
        if !repeated || first.node != self.store.rule(START).last || place.len() < 2 {
            return Err(format!("{place:?} is no repetition in the making"));
        }
        self.followers.verify_chain(&self.store, homes, place)
    }

    fn verify_rule(&self, rule: u32, body: &[u32]) -> Result<(), String> {
        let twins = body
            .windows(2)
            .any(|p| self.store.value(p[0]) == self.store.value(p[1]));
        if twins && self.mode != Mode::Sequitur {
            return Err(format!("rule {rule} has twins"));
        }
        let mut prev = RULE | rule;
        for &node in body {
            let known = self.store.node(node);
            if known.prev != prev || known.is_in_start() != (rule == START) {
                return Err(format!("{node} does not know that it is in rule {rule}"));
            }
            prev = node;
        }
        if self.store.rule(rule).last != prev {
            return Err(format!("rule {rule} does not know its end"));
        }
        let sole = self.store.sole_instance(rule);
        if rule != START && sole.is_some_and(|s| self.store.node(s).count() == 1) {
            return Err(format!("rule {rule} is used once"));
        }
        if rule != START && body.len() < 2 {
            return Err(format!("rule {rule} has fewer than two symbols"));
        }
        Ok(())
    }

    /// Whether a pair is the second of three equal ones in a row, which are indexed once.
    fn overlaps(&self, pair: &[u32]) -> bool {
        let indexed = self.store.find_digram(pair[0]);
        self.store.value(pair[0]) == self.store.value(pair[1])
            && indexed.is_some_and(|other| {
                other == self.store.node(pair[0]).prev || other == self.store.node(pair[0]).next
            })
    }

    fn counted(&self, node: u32) -> u32 {
        match self.mode {
            Mode::Exact => self.store.node(node).count(),
            _ => 1,
        }
    }
}
