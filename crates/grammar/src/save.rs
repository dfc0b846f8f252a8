//! Grammars and series as bytes, to be kept between runs.
//!
//! Everything is a number or a fraction, see [`crate::bytes`]. There is no checksum: that is for the file that it is
//! kept in. What is read is checked all the same, so that any bytes give a grammar whose constraints hold, or an error.
//!
//! ```text
//! grammar    version 2, mode (0 Sequitur, 1 exact, 2 folding), limit of symbols, limit of followers,
//!            whether its trip counts vary (0 or 1), of how many symbols on that is asked,
//!            number of rules, rules (the start rule first), reach, fresh (0 or 1),
//!            number of followers, followers, place of the glide
//! rule       number of symbols, symbols
//! symbol     2 × terminal or 2 × rule + 1,
//!            exact: its count; Sequitur: 1 if its digram is indexed, else 0; folding: 0, or 1 and its runs,
//!            how far back, in the order of all symbols here, the next older of its value is (zigzag; 0: none)
//! follower   weight (fraction), place
//! place      number of frames, frames: symbol (by its number here), from, to, pass
//! runs       current, least, most, passes, 0 or 1 and a series
//! series     tries, hits, 0 (empty) | 1, value, times | 2, number of values, (value, times)…, grammar, spread
//!            | 3, spread, usual, score, pause, next pause, whether it may be tried again (0 or 1)
//! spread     count, mean (fraction), squares (fraction), least, greatest, last
//! ```

use crate::bytes::{LoadError, Loaded, Reader, Writer};
use crate::followers::{Follower, Followers, Frame};
use crate::glide::Glide;
use crate::grammar::{Grammar, Limits, Mode, SYMBOLS_MAX};
use crate::runs::Runs;
use crate::series::{
    DISTINCT_MAX, Few, Many, PAUSE_MAX, REPEATS_MAX, SCORE_MAX, Series, Spread, State,
};
use crate::store::{NONE, RULE, START, Store, is_rule, rule_of_value};

const VERSION: u64 = 2;

/// Rules may be nested so deep. To get there an input needs more than a hundred million symbols of the oddest kind.
const DEPTH_MAX: u32 = 1 << 14;

const MODES: [Mode; 3] = [Mode::Sequitur, Mode::Exact, Mode::Folding];

impl Grammar {
    /// The grammar as bytes, see [`Grammar::load`].
    pub fn save(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.grammar(self);
        out.0
    }

    /// A grammar that was saved; it goes on exactly as it would have.
    pub fn load(bytes: &[u8]) -> Result<Grammar, LoadError> {
        let mut reader = Reader::new(bytes, 0);
        let grammar = reader.grammar()?;
        reader.end()?;
        Ok(grammar)
    }
}

impl Series {
    /// The series as bytes, see [`Series::load`].
    pub fn save(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.series(self);
        out.0
    }

    /// A series that was saved.
    pub fn load(bytes: &[u8]) -> Result<Series, LoadError> {
        let mut reader = Reader::new(bytes, 0);
        let series = reader.series()?;
        reader.end()?;
        Ok(series)
    }
}

impl Writer {
    fn grammar(&mut self, grammar: &Grammar) {
        let store = &grammar.store;
        let mode = MODES.iter().position(|m| *m == grammar.mode);
        self.number(VERSION);
        self.number(mode.unwrap_or_default() as u64);
        self.number(grammar.limits.symbols as u64);
        self.number(grammar.limits.followers as u64);
        self.number(grammar.varies.into());
        self.number(grammar.trial_at as u64);
        let rules: Vec<u32> = store.live_rules().collect();
        let names = Names::new(store, &rules);
        self.number(rules.len() as u64);
        for &rule in &rules {
            self.number(store.body(rule).count() as u64);
            store
                .body(rule)
                .for_each(|node| self.symbol(grammar, &names, node));
        }
        self.followers(&grammar.followers, &names);
        self.place(grammar.glide.place(), &names);
    }

    fn symbol(&mut self, grammar: &Grammar, names: &Names, node: u32) {
        let store = &grammar.store;
        let value = store.value(node);
        self.number(match is_rule(value) {
            true => u64::from(names.rule(value)) * 2 + 1,
            false => u64::from(store.symbol(value)) * 2,
        });
        match grammar.mode {
            Mode::Exact => self.number(store.node(node).count().into()),
            Mode::Sequitur => self.number(store.is_indexed(node).into()),
            Mode::Folding => self.runs(store.runs(node)),
        }
        let back = store
            .older(node)
            .map(|older| names.node(node) - names.node(older));
        self.number(zigzag(back.unwrap_or(0)));
    }

    fn followers(&mut self, followers: &Followers, names: &Names) {
        self.number(followers.reach as u64);
        self.number(followers.fresh.into());
        self.number(followers.list.len() as u64);
        for follower in &followers.list {
            self.fraction(follower.weight);
            self.place(&follower.frames, names);
        }
    }

    fn place(&mut self, frames: &[Frame], names: &Names) {
        self.number(frames.len() as u64);
        for frame in frames {
            self.number(names.node(frame.node) as u64);
            self.numbers([frame.lo, frame.hi, frame.pass]);
        }
    }

    fn runs(&mut self, runs: Option<&Runs>) {
        self.number(runs.is_some().into());
        let Some(runs) = runs else { return };
        self.numbers([runs.current, runs.least, runs.most, runs.passes]);
        self.number(runs.counts.is_some().into());
        if let Some(counts) = &runs.counts {
            self.series(counts);
        }
    }

    fn series(&mut self, series: &Series) {
        self.numbers([series.tries, series.hits]);
        match &series.state {
            State::Empty => self.number(0),
            State::One { value, times } => {
                self.numbers([1, *value, u64::from(*times)]);
            }
            State::Few(few) => {
                self.number(2);
                self.number(few.values.len() as u64);
                for (value, times) in &few.values {
                    self.number(*value);
                    self.number((*times).into());
                }
                self.grammar(&few.grammar);
                self.spread(&few.spread);
            }
            State::Many(many) => {
                self.number(3);
                self.spread(&many.spread);
                self.number(many.usual);
                self.numbers([many.score, many.pause, many.pause_next]);
                self.number(many.may_try.into());
            }
        }
    }

    fn spread(&mut self, spread: &Spread) {
        self.number(spread.count);
        self.fraction(spread.mean);
        self.fraction(spread.squares);
        self.numbers([spread.least, spread.greatest, spread.last]);
    }
}

fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// Rules and nodes by the order in which they are written.
struct Names {
    rules: Vec<u32>,
    nodes: Vec<u32>,
}

impl Names {
    fn new(store: &Store, live: &[u32]) -> Names {
        let mut names = Names {
            rules: vec![NONE; store.rules.len()],
            nodes: vec![NONE; store.nodes.len()],
        };
        let mut next = 0;
        for (number, &rule) in live.iter().enumerate() {
            names.rules[rule as usize] = number as u32;
            for node in store.body(rule) {
                names.nodes[node as usize] = next;
                next += 1;
            }
        }
        names
    }

    fn rule(&self, value: u32) -> u32 {
        self.rules[rule_of_value(value) as usize]
    }

    fn node(&self, node: u32) -> i64 {
        self.nodes[node as usize].into()
    }
}

impl Reader<'_> {
    fn grammar(&mut self) -> Loaded<Grammar> {
        let version = self.number()?;
        self.require(version == VERSION, "a version that is not known")?;
        let Some(&mode) = MODES.get(self.size()?) else {
            return self.wrong("no such mode");
        };
        let limits = Limits {
            symbols: self.size()?,
            followers: self.size()?,
        };
        let mut grammar = Grammar::with_limits(mode, limits);
        grammar.varies = self.flag()?;
        grammar.trial_at = self.size()?;
        self.rules(&mut grammar)?;
        self.followers(&mut grammar.followers, &grammar.store)?;
        grammar.glide = Glide::at(self.place(&grammar.store)?);
        self.require(
            grammar.verify().is_ok(),
            "the constraints of a grammar do not hold",
        )?;
        Ok(grammar)
    }

    fn rules(&mut self, grammar: &mut Grammar) -> Loaded<()> {
        let (store, mode) = (&mut grammar.store, grammar.mode);
        let rules = self.count()?;
        self.require(rules > 0, "there is no start rule")?;
        for _ in 1..rules {
            store.add_rule();
        }
        let (mut older, mut indexed) = (Vec::new(), Vec::new());
        for rule in 0..rules as u32 {
            for _ in 0..self.count()? {
                let (back, is_indexed) = self.symbol(store, mode, rule)?;
                older.push(back);
                indexed.push(is_indexed);
            }
        }
        self.require(
            store.nodes.len() <= grammar.limits.symbols.max(1),
            "more symbols than allowed",
        )?;
        self.enlist(store, &older)?;
        self.require(
            depth(store).is_some_and(|d| d <= DEPTH_MAX),
            "rules in a circle, or too deep",
        )?;
        for (node, _) in indexed.iter().enumerate().filter(|(_, i)| **i) {
            self.require(store.index_if_new(node as u32), "two digrams are the same")?;
        }
        Ok(())
    }

    /// Adds a symbol to the end of a rule; gives the next older one of its value, and whether its digram is indexed.
    fn symbol(&mut self, store: &mut Store, mode: Mode, rule: u32) -> Loaded<(Option<i64>, bool)> {
        let code = self.number()?;
        let named = u32::try_from(code >> 1).ok();
        let value = match (named, code & 1) {
            (Some(symbol), 0) => store.terminal(symbol),
            (Some(inner), _) if inner != START && (inner as usize) < store.rules.len() => {
                RULE | inner
            }
            _ => return self.wrong("no such symbol or rule"),
        };
        self.require(store.nodes.len() < SYMBOLS_MAX, "too many symbols")?;
        let node = store.insert_unlisted(store.rule(rule).last, RULE | rule, value, rule == START);
        let mut indexed = true;
        match mode {
            Mode::Sequitur => indexed = self.flag()?,
            Mode::Exact => {
                let count = self.small()?;
                self.require(0 < count && count < RULE, "an impossible count")?;
                store.set_count(node, count);
            }
            Mode::Folding if self.flag()? => store.set_runs(node, self.runs()?),
            Mode::Folding => {}
        }
        let back = unzigzag(self.number()?);
        let older = (back != 0).then(|| i64::from(node).saturating_sub(back));
        Ok((older, indexed))
    }

    /// Makes the lists of equal values, each from its oldest on.
    fn enlist(&self, store: &mut Store, older: &[Option<i64>]) -> Loaded<()> {
        let mut newer = vec![NONE; older.len()];
        for (node, before) in older.iter().enumerate() {
            let Some(before) = before else { continue };
            match usize::try_from(*before).ok().and_then(|b| newer.get_mut(b)) {
                Some(free) if *free == NONE => *free = node as u32,
                _ => return self.wrong("a list of equal symbols is broken"),
            }
        }
        let mut listed = 0;
        for oldest in (0..older.len()).filter(|n| older[*n].is_none()) {
            let mut at = oldest as u32;
            let value = store.value(at);
            self.require(store.newest(value).is_none(), "two lists of equal symbols")?;
            while at != NONE {
                self.require(store.value(at) == value, "a list of unequal symbols")?;
                store.enlist(at);
                listed += 1;
                at = newer[at as usize];
            }
        }
        self.require(listed == older.len(), "a list of equal symbols is a circle")
    }

    fn followers(&mut self, followers: &mut Followers, store: &Store) -> Loaded<()> {
        followers.reach = self.size()?.min(followers.max);
        followers.fresh = self.flag()?;
        for _ in 0..self.count()? {
            let weight = self.fraction()?;
            self.require(weight > 0.0, "a place without weight")?;
            let frames = self.place(store)?.into();
            followers.list.push(Follower { frames, weight });
        }
        Ok(())
    }

    fn place(&mut self, store: &Store) -> Loaded<Vec<Frame>> {
        let mut frames = Vec::new();
        for _ in 0..self.count()? {
            let node = self.small()?;
            self.require((node as usize) < store.nodes.len(), "no such symbol")?;
            let (lo, hi, pass) = (self.small()?, self.small()?, self.small()?);
            frames.push(Frame { node, lo, hi, pass });
        }
        Ok(frames)
    }

    fn runs(&mut self) -> Loaded<Runs> {
        let mut runs = Runs {
            current: self.small()?,
            least: self.small()?,
            most: self.small()?,
            passes: self.small()?,
            counts: None,
        };
        let ordered = runs.passes == 0 || runs.least <= runs.most;
        self.require(ordered && runs.current > 0, "impossible trip counts")?;
        if self.flag()? {
            runs.counts = Some(Box::new(self.series()?));
        }
        Ok(runs)
    }

    fn series(&mut self) -> Loaded<Series> {
        let (tries, hits) = (self.small()?, self.small()?);
        self.require(
            hits <= tries && tries <= u32::MAX / 2,
            "more hits than tries",
        )?;
        let state = match self.number()? {
            0 => State::Empty,
            1 => State::One {
                value: self.number()?,
                times: self.small()?,
            },
            2 => State::Few(Box::new(self.few()?)),
            3 => State::Many(Box::new(self.many()?)),
            _ => return self.wrong("no such kind of series"),
        };
        Ok(Series { state, tries, hits })
    }

    fn many(&mut self) -> Loaded<Many> {
        let many = Many {
            spread: self.spread()?,
            usual: self.number()?,
            score: self.small()?,
            pause: self.small()?,
            pause_next: self.small()?,
            may_try: self.number()? == 1,
            trial: None,
        };
        let sound = many.score <= SCORE_MAX && many.pause.max(many.pause_next) <= PAUSE_MAX;
        self.require(sound, "a series is out of range")?;
        Ok(many)
    }

    fn few(&mut self) -> Loaded<Few> {
        let count = self.count()?;
        self.require(count <= DISTINCT_MAX, "too many values")?;
        let mut values = Vec::new();
        for _ in 0..count {
            values.push((self.number()?, self.small()?));
        }
        // Looked at before it is read: the grammar of a series has no series in it.
        let nested = self.rest().starts_with(&[VERSION as u8, 1]);
        self.require(nested, "not the grammar of a series")?;
        let grammar = self.grammar()?;
        let symbols = grammar
            .store
            .nodes
            .iter()
            .map(|n| n.value)
            .filter(|v| !is_rule(*v));
        let known = symbols
            .map(|v| grammar.store.symbol(v))
            .all(|s| (s as usize) < values.len());
        self.require(
            known && grammar.limits == Few::LIMITS,
            "not the grammar of a series",
        )?;
        // When a value comes back they are appended one by one.
        let few = values.iter().all(|(_, times)| *times <= REPEATS_MAX);
        self.require(few || !grammar.is_empty(), "a value came back too often")?;
        let spread = self.spread()?;
        Ok(Few {
            values,
            grammar,
            spread,
        })
    }

    fn spread(&mut self) -> Loaded<Spread> {
        Ok(Spread {
            count: self.number()?,
            mean: self.fraction()?,
            squares: self.fraction()?,
            least: self.number()?,
            greatest: self.number()?,
            last: self.number()?,
        })
    }
}

/// How deep rules are nested; nothing if some are in a circle, or not part of the start rule.
fn depth(store: &Store) -> Option<u32> {
    let inner = |rule: u32| {
        let values = store.body(rule).map(|node| store.value(node));
        values.filter(|v| is_rule(*v)).map(rule_of_value)
    };
    let mut uses = vec![0usize; store.rules.len()];
    for rule in 0..store.rules.len() as u32 {
        inner(rule).for_each(|r| uses[r as usize] += 1);
    }
    let mut depths = vec![0u32; store.rules.len()];
    let (mut todo, mut done) = (vec![START], 0);
    while let Some(rule) = todo.pop() {
        done += 1;
        for r in inner(rule) {
            depths[r as usize] = depths[r as usize].max(depths[rule as usize] + 1);
            uses[r as usize] -= 1;
            if uses[r as usize] == 0 {
                todo.push(r);
            }
        }
    }
    (done == store.rules.len()).then(|| depths.into_iter().max().unwrap_or(0))
}

/// What fuzzers and their short run in the tests call.
#[doc(hidden)]
pub mod fuzzing {
    use super::{Grammar, Limits, MODES, Series};

    /// So many symbols of a stream are looked at.
    const STREAM_MAX: usize = 256;

    /// Appends the bytes to a grammar of each mode, under a cap that the first byte gives; 255 is a gap. Checks every
    /// constraint after each, and that what was saved on the way goes on to the same end.
    pub fn stream(bytes: &[u8]) {
        let (cap, symbols) = bytes.split_first().unwrap_or((&0, &[]));
        // All constraints are checked after each: longer ones would take longer and longer, and find no more.
        let symbols = &symbols[..symbols.len().min(STREAM_MAX)];
        for mode in MODES {
            let limits = Limits {
                symbols: usize::from(*cap),
                followers: 8,
            };
            let mut grammar = Grammar::with_limits(mode, limits);
            let (first, second) = symbols.split_at(symbols.len() / 2);
            take(&mut grammar, first);
            let mut loaded = Grammar::load(&grammar.save()).expect("what was saved");
            take(&mut grammar, second);
            take(&mut loaded, second);
            assert_eq!(grammar.predictions(), loaded.predictions());
            let folded = grammar.fold();
            folded.verify().expect("so it does when it is folded");
        }
    }

    fn take(grammar: &mut Grammar, symbols: &[u8]) {
        for symbol in symbols {
            match symbol {
                255 => grammar.lose_track(),
                _ => grammar.append((*symbol).into()),
            }
            grammar.verify().expect("the constraints of a grammar");
        }
    }

    /// Loads a series if the first byte is odd, else a grammar, and uses it; whether it could be loaded.
    pub fn model(bytes: &[u8]) -> bool {
        match bytes.split_first() {
            Some((kind, bytes)) if kind % 2 == 1 => Series::load(bytes).is_ok_and(use_series),
            Some((_, bytes)) => Grammar::load(bytes).is_ok_and(use_grammar),
            None => false,
        }
    }

    fn use_series(mut series: Series) -> bool {
        for value in [3, 5, 3, 5, 1 << 40] {
            series.observe(value);
            let _ = (
                series.predict(),
                series.nth_after(3, 2),
                series.confidence(),
            );
        }
        Series::load(&series.save()).is_ok()
    }

    fn use_grammar(mut grammar: Grammar) -> bool {
        grammar
            .verify()
            .expect("what was loaded keeps the constraints");
        for round in 0..3 {
            for symbol in [1, 2, 3, 3, 4, 5, u32::MAX - 3, 1] {
                let ahead = grammar.best().map(|cursor| cursor.take(20).count());
                assert!(ahead.is_none_or(|n| n == 20));
                grammar.append(symbol);
            }
            match round {
                0 => grammar.rewind(),
                _ => grammar.lose_track(),
            }
            grammar.verify().expect("so it does when it goes on");
        }
        Grammar::load(&grammar.save()).is_ok()
    }
}
