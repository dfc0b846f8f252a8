//! Reading ahead: what the coming operations will be, one after the other.

use crate::contexts::NO_SYMBOL;
use crate::files::{Ahead, Extent, Files, PredictedFile};
use crate::model::{Likelihood, Model, has_offset};
use crate::transition::{Guess, Seen, Transition, TransitionAhead, Which};
use presagio_core::{Action, IdHashMap, Nanos};
use presagio_grammar::{Series, SeriesAhead};
use smallvec::SmallVec;
use std::hash::Hash;

/// An operation that is expected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predicted {
    /// What will be done.
    pub action: Action,
    /// To which file.
    pub file: PredictedFile,
    /// Where in it.
    pub offset: u64,
    /// How many bytes.
    pub len: u64,
    /// When it begins, after the end of the last operation that was observed.
    pub after: Nanos,
    /// How likely it is exactly this, as often as that has come true so far.
    pub confidence: f64,
}

/// A way to read on from the last operation that was observed. Once there was one, it never ends.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    model: &'a Model,
    /// None: the last symbol comes again and again.
    symbols: Option<presagio_grammar::Cursor<'a>>,
    /// How likely this way is.
    share: f64,
    last: Option<u32>,
    ahead: Ahead,
    /// What is expected of the transitions and symbols that have come on this way, from here on.
    transitions: Recall<(u32, u32), Arrival<'a>>,
    seen: Recall<u32, SymbolAhead<'a>>,
    after: Nanos,
    /// The least sure of what the predictions so far depend on. Not the product: if one is right the others tend
    /// to be.
    weakest: f64,
    /// What was computed for the last prediction, before it was calibrated. Before the first, not a number.
    raw: f64,
    /// What that means: most predictions of a way have the same.
    likelihood: Likelihood,
    steps: u32,
}

/// What a cursor knows of the transition from one symbol to another.
#[derive(Clone, Debug)]
struct Arrival<'a> {
    /// None if it has not come yet.
    transition: Option<TransitionAhead<'a>>,
    /// The place of the other symbol among those seen.
    symbol: usize,
}

/// What a cursor knows of a symbol.
#[derive(Clone, Debug)]
struct SymbolAhead<'a> {
    action: Action,
    /// Where it was last.
    last: Option<(PredictedFile, u64)>,
    sizes: SeriesAhead<'a>,
    sizes_sure: f64,
    duration: Nanos,
}

/// What was made for a key, to be found again: most often it is what came behind the last one before. Else few are
/// searched from the last, which is where it will be if it came lately; many have an index.
#[derive(Clone, Debug)]
struct Recall<K, V> {
    list: SmallVec<[Recalled<K, V>; 4]>,
    index: IdHashMap<K, usize>,
    /// The place that was asked for last.
    last: usize,
}

#[derive(Clone, Debug)]
struct Recalled<K, V> {
    key: K,
    value: V,
    /// The place that was asked for after this one.
    next: usize,
}

/// So many are searched.
const SEARCHED: usize = 32;

impl<K: Copy + Eq + Hash, V> Recall<K, V> {
    fn new() -> Recall<K, V> {
        Recall {
            list: SmallVec::new(),
            index: IdHashMap::default(),
            last: 0,
        }
    }

    /// The place of a key; if it is new, of what `make` gives for it.
    #[inline]
    fn place_of(&mut self, key: K, make: impl FnOnce() -> V) -> usize {
        let next = self.list.get(self.last).map_or(0, |last| last.next);
        self.last = match self.list.get(next) {
            Some(expected) if expected.key == key => next,
            _ => self.search(key, make),
        };
        self.last
    }

    fn search(&mut self, key: K, make: impl FnOnce() -> V) -> usize {
        let first = self.list.len().saturating_sub(SEARCHED);
        let near = self.list[first..].iter().rposition(|r| r.key == key);
        let known = near.map(|at| first + at);
        let place = known
            .or_else(|| self.index.get(&key).copied())
            .unwrap_or_else(|| self.add(key, make()));
        self.list[self.last].next = place;
        place
    }

    fn add(&mut self, key: K, value: V) -> usize {
        let (at, next) = (self.list.len(), 0);
        self.list.push(Recalled { key, value, next });
        if at >= SEARCHED {
            // Those that are no longer near.
            let (far, place) = (self.list[at - SEARCHED].key, at - SEARCHED);
            self.index.insert(far, place);
        }
        at
    }

    #[inline]
    fn at(&mut self, place: usize) -> &mut V {
        &mut self.list[place].value
    }
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(
        model: &'a Model,
        symbols: Option<presagio_grammar::Cursor<'a>>,
        share: f64,
    ) -> Cursor<'a> {
        Cursor {
            model,
            symbols,
            share,
            last: model.last.map(|l| l.symbol),
            ahead: Ahead::default(),
            transitions: Recall::new(),
            seen: Recall::new(),
            after: Nanos::ZERO,
            weakest: 1.0,
            raw: f64::NAN,
            likelihood: Likelihood::default(),
            steps: 0,
        }
    }

    /// The symbol of the operation that comes next, if it follows from the grammar.
    pub fn peek_symbol(&self) -> Option<u32> {
        self.symbols.as_ref().map(|symbols| symbols.peek())
    }

    /// When the operation that was predicted last will have ended, after the end of the last one that was observed.
    pub fn end(&self) -> Nanos {
        self.after
    }

    /// What was computed for the last prediction, before it was calibrated.
    pub(crate) fn raw(&self) -> f64 {
        self.raw
    }

    #[inline]
    fn predict(&mut self, symbol: u32) -> Predicted {
        let (model, seen) = (self.model, &mut self.seen);
        let from = self.last.replace(symbol);
        let key = (from.unwrap_or(NO_SYMBOL), symbol);
        let place = self.transitions.place_of(key, || Arrival {
            transition: transition(model, from, symbol).map(Transition::ahead),
            symbol: seen.place_of(symbol, || SymbolAhead::new(model, symbol, Series::ahead)),
        });
        let Arrival { transition, symbol } = self.transitions.at(place);
        let known = self.seen.at(*symbol);
        let mut expected = expect(&model.files, transition.as_mut(), known, &mut self.ahead);
        let predicted = &mut expected.predicted;
        known.last = Some((predicted.file, predicted.offset));
        self.ahead.use_file(predicted.file, expected.extent);
        predicted.after = self.after + predicted.after;
        self.after = predicted.after + known.duration;
        self.weakest = lesser(self.weakest, expected.sure);
        expected.predicted
    }

    /// How likely the last prediction comes true.
    #[inline]
    fn confidence(&mut self, raw: f64) -> f64 {
        if raw != self.raw {
            self.raw = raw;
            self.likelihood = self.model.likelihood(raw);
        }
        self.likelihood.after(self.steps)
    }
}

/// An operation of a symbol, as it is expected.
struct Expected {
    /// Its time is that from the end of the operation before it, and how likely it is has not been said.
    predicted: Predicted,
    sure: f64,
    /// How far the file will have been used then.
    extent: Extent,
}

/// What the next operation will be if it has this symbol, and how sure that is: the same as a cursor says, without
/// its way on.
pub(crate) fn next_operation(model: &Model, symbol: u32) -> (Predicted, f64) {
    let from = model.last.map(|last| last.symbol);
    let mut place = transition(model, from, symbol).map(Transition::once);
    let known = &mut SymbolAhead::new(model, symbol, Series::once);
    let ahead = &mut Ahead::default();
    let expected = expect(&model.files, place.as_mut(), known, ahead);
    (expected.predicted, expected.sure)
}

fn transition(model: &Model, from: Option<u32>, to: u32) -> Option<&Transition> {
    model.transition(from?, to)
}

impl<'a> SymbolAhead<'a> {
    fn new(
        model: &'a Model,
        symbol: u32,
        ahead: impl Fn(&'a Series) -> SeriesAhead<'a>,
    ) -> SymbolAhead<'a> {
        let context = &model.contexts[symbol as usize];
        let known = |(file, at)| (PredictedFile::Known(file), at);
        SymbolAhead {
            action: model.symbols.action(symbol),
            last: context.last.map(known),
            sizes: ahead(&context.sizes),
            sizes_sure: context.sizes.confidence(),
            duration: context.duration.expected(),
        }
    }

    /// How many bytes the next operation moves.
    #[inline]
    fn size(&mut self) -> Guess<u64> {
        match self.action.is_transfer() {
            true => Guess {
                value: self.sizes.next().unwrap_or(0),
                sure: self.sizes_sure,
            },
            false => certain(0),
        }
    }
}

/// What an operation of a symbol will be, by what is expected of the transition to it and of itself.
#[inline]
fn expect(
    files: &Files,
    mut transition: Option<&mut TransitionAhead<'_>>,
    known: &mut SymbolAhead<'_>,
    ahead: &mut Ahead,
) -> Expected {
    let action = known.action;
    let which = match &mut transition {
        Some(transition) => transition.file(),
        None => nothing(Which::Own),
    };
    let file = which_file(files, which, known.last, ahead);
    let views = Seen {
        extent: ahead.extent(files, file.value),
        last: known.last.map_or(0, |own| own.1),
    };
    let after = transition.as_ref().map_or(Nanos::ZERO, |t| t.gap);
    let offset = match transition {
        Some(transition) if has_offset(action) => transition.offset(views),
        Some(_) => certain(0),
        None => nothing(views.extent.position),
    };
    let size = known.size();
    Expected {
        predicted: Predicted {
            action,
            file: file.value,
            offset: offset.value,
            len: size.value,
            after,
            confidence: 0.0,
        },
        sure: lesser(lesser(file.sure, offset.sure), size.sure),
        extent: views.extent.after(action, offset.value, size.value),
    }
}

/// The lesser of two numbers, neither of which is NaN: sooner than a function that has to ask.
#[inline]
fn lesser(a: f64, b: f64) -> f64 {
    if a < b { a } else { b }
}

/// Which file comes next, and how sure that is.
#[inline]
fn which_file(
    files: &Files,
    which: Guess<Which>,
    own: Option<(PredictedFile, u64)>,
    ahead: &mut Ahead,
) -> Guess<PredictedFile> {
    let sure = which.sure;
    let known = match which.value {
        Which::New => Some(ahead.fresh()),
        Which::Own => own.map(|own| own.0),
        Which::Rank(rank) => ahead.at(files, rank),
    };
    match known {
        Some(value) => Guess { value, sure },
        None => Guess {
            value: ahead.fresh(),
            sure: 0.0,
        },
    }
}

fn certain<T>(value: T) -> Guess<T> {
    let sure = 1.0;
    Guess { value, sure }
}

fn nothing<T>(value: T) -> Guess<T> {
    let sure = 0.5;
    Guess { value, sure }
}

impl Iterator for Cursor<'_> {
    type Item = Predicted;

    fn next(&mut self) -> Option<Predicted> {
        let symbol = self.peek_symbol().or(self.last)?;
        let mut predicted = self.predict(symbol);
        // How likely this one is follows from the way up to it, not from where that goes on.
        let way = self.symbols.as_ref().map_or(1.0, |s| s.confidence());
        if let Some(symbols) = &mut self.symbols {
            symbols.next();
        }
        self.steps = self.steps.saturating_add(1);
        predicted.confidence = self.confidence(self.weakest * self.share * way);
        Some(predicted)
    }
}
