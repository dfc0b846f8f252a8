//! Reading ahead: what the coming operations will be, one after the other.

use crate::files::{Ahead, Name};
use crate::model::{Model, has_offset};
use crate::transition::{Guess, Seen, TransitionAhead, Which};
use presagio_core::{Action, FileId, IdHashMap, Nanos};
use presagio_grammar::SeriesAhead;
use smallvec::SmallVec;
use std::hash::Hash;

/// The file of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PredictedFile {
    /// One that has been used.
    Known(FileId),
    /// One that will be opened for the first time: the n-th of these that the cursor came upon.
    New(u32),
}

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
    transitions: Recall<(u32, u32), TransitionAhead<'a>>,
    seen: Recall<u32, SymbolAhead<'a>>,
    after: Nanos,
    /// The least sure of what the predictions so far depend on. Not the product: if one is right the others tend
    /// to be.
    weakest: f64,
    /// What was computed for the last prediction, before it was calibrated.
    raw: f64,
    steps: u32,
}

/// What a cursor knows of a symbol.
#[derive(Clone, Debug)]
struct SymbolAhead<'a> {
    /// Where it was last.
    last: Option<(Name, u64)>,
    sizes: SeriesAhead<'a>,
}

/// What was made for a key, to be found again. Few are searched from the last, which is where it will be if it came
/// lately; many have an index.
#[derive(Clone, Debug)]
struct Recall<K, V> {
    list: SmallVec<[(K, V); 4]>,
    index: IdHashMap<K, usize>,
}

/// So many are searched.
const SEARCHED: usize = 32;

impl<K: Copy + Eq + Hash, V> Recall<K, V> {
    fn new() -> Recall<K, V> {
        Recall {
            list: SmallVec::new(),
            index: IdHashMap::default(),
        }
    }

    /// The place of a key; if it is new, of what `make` gives for it.
    fn place_of(&mut self, key: K, make: impl FnOnce() -> V) -> usize {
        let last = self.list.len().saturating_sub(SEARCHED);
        let near = self.list[last..].iter().rposition(|l| l.0 == key);
        let known = near.map(|at| last + at);
        if let Some(at) = known.or_else(|| self.index.get(&key).copied()) {
            return at;
        }
        let at = self.list.len();
        self.list.push((key, make()));
        if at >= SEARCHED {
            // Those that are no longer near.
            let (far, place) = (self.list[at - SEARCHED].0, at - SEARCHED);
            self.index.insert(far, place);
        }
        at
    }

    fn at(&mut self, place: usize) -> &mut V {
        &mut self.list[place].1
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
            raw: 0.0,
            steps: 0,
        }
    }

    /// The same way, of another likelihood.
    pub(crate) fn with_share(self, share: f64) -> Cursor<'a> {
        Cursor { share, ..self }
    }

    /// The symbol of the operation that comes next, if it follows from the grammar.
    pub fn peek_symbol(&self) -> Option<u32> {
        self.symbols.as_ref().map(|symbols| symbols.peek())
    }

    /// What was computed for the last prediction, before it was calibrated.
    pub(crate) fn raw(&self) -> f64 {
        self.raw
    }

    /// Which file comes next, and how sure that is.
    fn file(&mut self, which: Guess<Which>, own: Option<(Name, u64)>) -> Guess<Name> {
        let sure = which.sure;
        let known = match which.value {
            Which::New => Some(self.ahead.fresh()),
            Which::Own => own.map(|own| own.0),
            Which::Rank(rank) => self.ahead.at(&self.model.files, rank),
        };
        match known {
            Some(value) => Guess { value, sure },
            None => Guess {
                value: self.ahead.fresh(),
                sure: 0.0,
            },
        }
    }

    fn predict(&mut self, symbol: u32) -> Predicted {
        let model = self.model;
        let context = &model.contexts[symbol as usize];
        let action = model.symbols.action(symbol);
        let from = self.last.replace(symbol);
        let transition = from.and_then(|from| model.transition(from, symbol));
        let place = from.zip(transition).map(|(from, transition)| {
            self.transitions
                .place_of((from, symbol), || transition.ahead())
        });
        let seen = self.seen.place_of(symbol, || SymbolAhead {
            last: context.last.map(|(file, at)| (Name::Known(file), at)),
            sizes: context.sizes.ahead(),
        });
        let own = self.seen.at(seen).last;
        let which = match place {
            Some(place) => self.transitions.at(place).file(),
            None => nothing(Which::Own),
        };
        let file = self.file(which, own);
        let views = Seen {
            extent: self.ahead.extent(&model.files, file.value),
            last: own.map_or(0, |own| own.1),
        };
        let offset = match place {
            Some(place) if has_offset(action) => self.transitions.at(place).offset(views),
            Some(_) => certain(0),
            None => nothing(views.extent.position),
        };
        let known = self.seen.at(seen);
        let size = match action.is_transfer() {
            true => Guess {
                value: known.sizes.next().unwrap_or(0),
                sure: context.sizes.confidence(),
            },
            false => certain(0),
        };
        known.last = Some((file.value, offset.value));
        let gap = transition.map_or(Nanos::ZERO, |t| t.gap.expected());
        let after = self.after + gap;
        self.after = after + context.duration.expected();
        let sure = file.sure.min(offset.sure).min(size.sure);
        self.weakest = self.weakest.min(sure);
        let extent = views.extent.after(action, offset.value, size.value);
        self.ahead.use_file(file.value, extent);
        Predicted {
            action,
            file: match file.value {
                Name::Known(file) => PredictedFile::Known(file),
                Name::New(number) => PredictedFile::New(number),
            },
            offset: offset.value,
            len: size.value,
            after,
            confidence: 0.0,
        }
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
        self.raw = self.weakest * self.share * way;
        if let Some(symbols) = &mut self.symbols {
            symbols.next();
        }
        self.steps = self.steps.saturating_add(1);
        predicted.confidence = self.model.confidence(self.raw, self.steps);
        Some(predicted)
    }
}
