//! The model of one stream of operations: what has been learned, and where we are.

use crate::calibration::Calibration;
use crate::contexts::{NO_SYMBOL, Relation, Symbols};
use crate::cursor::{Cursor, Predicted, next_operation};
use crate::files::{Files, Known, NEW, PredictedFile};
use crate::transition::{Gap, Seen, Transition};
use presagio_core::{Action, ContextId, Event, FileId, IdHashMap, Nanos};
use presagio_grammar::{Grammar, Limits, Mode, Series, Spread};
use smallvec::SmallVec;

/// How a model learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What its grammar keeps.
    pub mode: Mode,
    /// Whether an exact grammar is folded once a loop has been seen to run with many different trip counts.
    pub adapts: bool,
    /// How large its grammar may get.
    pub limits: Limits,
    /// Transitions that are remembered.
    pub transitions: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            mode: Mode::Exact,
            adapts: true,
            limits: Limits {
                symbols: 1 << 18,
                followers: 8,
            },
            transitions: 1 << 14,
        }
    }
}

/// A symbol with more than this share needs no vote.
const SURE: f64 = 0.8;

/// How likely it is that the last operation goes on, if nothing else is known.
const GOES_ON: f64 = 0.5;

/// Ways that have a vote.
const VOTERS: usize = 8;

/// Where an operation is expected.
#[derive(Clone, Copy, PartialEq)]
struct Place {
    action: Action,
    file: PredictedFile,
    offset: u64,
}

impl Place {
    fn of(predicted: Predicted) -> Place {
        Place {
            action: predicted.action,
            file: predicted.file,
            offset: predicted.offset,
        }
    }
}

/// To see what became of a prediction costs more than all the rest. So many are looked at from the first on,
/// then one in so many.
const JUDGE_ALL: u64 = 32;
const JUDGE_EVERY: u64 = 8;

/// Whether the operation of this number is one of those that are looked at: in no rhythm that a program may have.
fn is_drawn(number: u64) -> bool {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40 & (JUDGE_EVERY - 1) == 0
}

/// Before a symbol has come behind another.
const NO_SUCCESSOR: (u32, u32) = (NO_SYMBOL, u32::MAX);

/// Predictions so far ahead are looked at too, with some of those before them.
const FAR_AHEAD: u64 = 16;
const FAR_FIRST: u64 = 9;

/// To read so far costs as much as many operations: it is done once in so many.
const FAR_EVERY: u64 = 65;

/// Predictions whose time has not come.
#[derive(Clone, Debug, Default)]
struct Far {
    /// How many operations will have been observed before the first of them.
    due: u64,
    /// How many files had come up when they were made.
    files: u64,
    /// What was computed for each, and what was predicted.
    predicted: Vec<(f64, Predicted)>,
}

/// How likely a prediction comes true: of the next operation, and of one that is [`FAR_AHEAD`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Likelihood {
    near: f64,
    far: f64,
}

impl Likelihood {
    /// The same of a prediction so many steps ahead, 1 or more.
    #[inline]
    pub(crate) fn after(self, steps: u32) -> f64 {
        let Likelihood { near, far } = self;
        let farthest = FAR_AHEAD.ilog2();
        let share = f64::from(steps.ilog2().min(farthest)) / f64::from(farthest);
        near + (far - near) * share
    }
}

/// What is learned of a symbol.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub sizes: Series,
    pub duration: Gap,
    /// Where it was last, and in which file.
    pub last: Option<(FileId, u64)>,
    /// The symbol that came behind it last, and the number of that transition.
    pub successor: (u32, u32),
}

impl Default for Context {
    fn default() -> Self {
        Context {
            sizes: Series::default(),
            duration: Gap::default(),
            last: None,
            successor: NO_SUCCESSOR,
        }
    }
}

/// The last operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Last {
    pub symbol: u32,
    pub end: Nanos,
}

/// See the module's header.
#[derive(Clone, Debug)]
pub struct Model {
    pub(crate) settings: Settings,
    pub(crate) symbols: Symbols,
    pub(crate) grammar: Grammar,
    pub(crate) contexts: Vec<Context>,
    pub(crate) transitions: Vec<Transition>,
    pub(crate) transition_numbers: IdHashMap<(u32, u32), u32>,
    pub(crate) files: Files,
    pub(crate) last: Option<Last>,
    /// Of the next operation, and of one that is [`FAR_AHEAD`].
    pub(crate) calibration: Calibration,
    pub(crate) far_calibration: Calibration,
    far: Far,
    pub(crate) observed: u64,
}

impl Default for Model {
    fn default() -> Self {
        Model::new()
    }
}

impl Model {
    /// A model that knows nothing, with the usual settings.
    pub fn new() -> Model {
        Model::with_settings(Settings::default())
    }

    /// A model that knows nothing.
    pub fn with_settings(settings: Settings) -> Model {
        Model {
            settings,
            symbols: Symbols::default(),
            grammar: Grammar::with_limits(settings.mode, settings.limits),
            contexts: Vec::new(),
            transitions: Vec::new(),
            transition_numbers: IdHashMap::default(),
            files: Files::default(),
            last: None,
            calibration: Calibration::default(),
            far_calibration: Calibration::default(),
            far: Far::default(),
            observed: 0,
        }
    }

    /// Says which call stack a recording means by a context: a number that is the same in every run of the
    /// program, for example a hash of its frames. Needed only for models that are kept from run to run.
    pub fn name_context(&mut self, context: ContextId, stack: u64) {
        self.symbols.name_context(context, stack);
    }

    /// Learns from an operation, which has just ended.
    pub fn observe(&mut self, event: &Event) {
        if self.observed < JUDGE_ALL || is_drawn(self.observed) {
            self.judge(event);
        }
        self.judge_far(event);
        let file = self.files.look_up(event.file);
        let symbol = self.symbol(event, file);
        if symbol as usize == self.contexts.len() {
            self.contexts.push(Context::default());
        }
        if let Some(last) = self.last {
            self.learn_transition(last, symbol, event, file);
        }
        self.learn_context(symbol, event, file);
        self.grammar.append(symbol);
        if self.settings.adapts
            && let Some(folded) = self.grammar.take_folded()
        {
            self.grammar = *folded;
        }
        let end = event.end();
        self.last = Some(Last { symbol, end });
        self.observed += 1;
    }

    /// Operations were missed: what comes next is not a continuation of what came last.
    pub fn lose_track(&mut self) {
        self.grammar.lose_track();
        self.last = None;
        // What was expected to come so many operations later may come at any time.
        self.far = Far::default();
    }

    /// What may come next: ways to read on with their probabilities, the likeliest first. If nothing like the
    /// last operations has been seen before, the one way is that the last one goes on.
    pub fn predictions(&self) -> impl Iterator<Item = (Cursor<'_>, f64)> {
        let total: f64 = self.grammar.cursors().map(|c| c.1).sum();
        let known = self.grammar.cursors().map(move |(cursor, weight)| {
            let share = weight / total;
            (Cursor::new(self, Some(cursor), share), share)
        });
        let unknown = (total == 0.0 && self.last.is_some()).then(|| (self.goes_on(), 1.0));
        known.chain(unknown)
    }

    /// The likeliest way to read on: of those that begin with the operation that most speak for.
    pub fn best(&self) -> Option<Cursor<'_>> {
        let Some((symbol, share)) = self.likeliest() else {
            return self.last.map(|_| self.goes_on());
        };
        let way = self.grammar.best_through(symbol);
        Some(Cursor::new(self, way, share))
    }

    /// The symbol with which the likeliest way begins, and how likely that is.
    fn likeliest(&self) -> Option<(u32, f64)> {
        let best = self.grammar.best_symbol()?;
        match best.1 > SURE {
            true => Some(best),
            false => self.most_spoken_for(),
        }
    }

    /// The way on which the last operation is done again, where it ended.
    fn goes_on(&self) -> Cursor<'_> {
        Cursor::new(self, None, GOES_ON)
    }

    /// Several symbols can mean the same operation at the same place: what counts is the sum of their shares.
    fn most_spoken_for(&self) -> Option<(u32, f64)> {
        let ways = self.grammar.ways();
        let total: f64 = ways.clone().map(|way| way.1).sum();
        // For each place the likeliest symbol that means it.
        let mut places: SmallVec<[(Place, u32, f64); VOTERS]> = SmallVec::new();
        for (symbol, weight) in ways.take(VOTERS) {
            let share = weight / total;
            let known = places.iter().position(|p| p.1 == symbol);
            let place = match known {
                Some(at) => places[at].0,
                None => Place::of(next_operation(self, symbol).0),
            };
            match places.iter_mut().find(|p| p.0 == place) {
                Some(known) => known.2 += share,
                None => places.push((place, symbol, share)),
            }
        }
        // Of equal ones the first, which is the likeliest itself.
        let best = places
            .into_iter()
            .reduce(|best, next| if next.2 > best.2 { next } else { best });
        best.map(|(_, symbol, share)| (symbol, share))
    }

    /// Symbols that may come next with their probabilities, for those who judge the grammar alone.
    pub fn next_symbols(&self) -> Vec<(u32, f64)> {
        let mut next = self.grammar.predictions();
        let total: f64 = next.iter().map(|n| n.1).sum();
        next.iter_mut().for_each(|n| n.1 /= total);
        next
    }

    /// The times between operations of one symbol and the next of another, in nanoseconds.
    pub fn times_between(&self, from: u32, to: u32) -> Option<&Spread> {
        let known = (from as usize) < self.contexts.len();
        let transition = known.then(|| self.transition(from, to))?;
        transition.map(|t| &t.gap.spread)
    }

    /// The symbol of the last operation.
    pub fn last_symbol(&self) -> Option<u32> {
        self.last.map(|l| l.symbol)
    }

    /// The grammar.
    pub fn grammar(&self) -> &Grammar {
        &self.grammar
    }

    /// How many operations were observed.
    pub fn observed(&self) -> u64 {
        self.observed
    }

    /// How many different symbols were seen.
    pub fn symbols(&self) -> usize {
        self.symbols.len()
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        let contexts: usize = self.contexts.iter().map(|c| c.sizes.memory()).sum();
        let transitions: usize = self.transitions.iter().map(Transition::memory).sum();
        let entry = size_of::<((u32, u32), u32)>() + 1;
        let far = self.far.predicted.capacity() * size_of::<(f64, Predicted)>();
        self.grammar.memory()
            + self.files.memory()
            + self.symbols.memory()
            + far
            + contexts
            + self.contexts.capacity() * size_of::<Context>()
            + transitions
            + self.transitions.capacity() * size_of::<Transition>()
            + self.transition_numbers.capacity() * entry
    }

    /// Sees what became of the likeliest prediction, for calibration.
    fn judge(&mut self, event: &Event) {
        if let Some((raw, came_true)) = self.judged(event) {
            self.calibration.observe(raw, came_true);
        }
    }

    /// Sees what became of a prediction of long ago, and remembers others now and then.
    fn judge_far(&mut self, event: &Event) {
        let Some(since) = self.observed.checked_sub(self.far.due) else {
            return;
        };
        if let Some((raw, predicted)) = self.far.predicted.get(since as usize) {
            let came_true = comes_true(predicted, self.far.files, event, &self.files);
            self.far_calibration.observe(*raw, came_true);
        } else if since + FAR_FIRST > FAR_EVERY || self.far.predicted.is_empty() {
            self.look_far();
        }
    }

    fn look_far(&mut self) {
        let mut far = std::mem::take(&mut self.far);
        far.predicted.clear();
        far.due = self.observed + FAR_FIRST - 1;
        far.files = self.files.came_up();
        if let Some(mut cursor) = self.best() {
            for step in 1..=FAR_AHEAD {
                let Some(predicted) = cursor.next() else {
                    break;
                };
                if step >= FAR_FIRST {
                    far.predicted.push((cursor.raw(), predicted));
                }
            }
        }
        self.far = far;
    }

    /// How likely predictions come true for which `raw` was computed.
    pub(crate) fn likelihood(&self, raw: f64) -> Likelihood {
        Likelihood {
            near: self.calibration.say(raw),
            far: self.far_calibration.say_from(raw, self.far_guess(raw)),
        }
    }

    /// What to say of a prediction [`FAR_AHEAD`] as long as none like it has been judged. At its beginning a program
    /// does what it will not go on with, and nothing has shown yet how far it can be known: there each doubling of
    /// the distance is as unsure as a step.
    fn far_guess(&self, raw: f64) -> f64 {
        let beginning = FAR_EVERY as f64 / (self.observed + FAR_EVERY) as f64;
        raw + (raw.powi(FAR_AHEAD.ilog2() as i32) - raw) * beginning
    }

    /// What was computed for the likeliest prediction, and whether it came true.
    fn judged(&self, event: &Event) -> Option<(f64, bool)> {
        let again = || self.last.map(|last| (last.symbol, GOES_ON));
        let (symbol, share) = self.likeliest().or_else(again)?;
        let (predicted, sure) = next_operation(self, symbol);
        let files = self.files.came_up();
        let came_true = comes_true(&predicted, files, event, &self.files);
        Some((sure * share, came_true))
    }

    /// The symbol of an operation, a new one if it is new.
    fn symbol(&mut self, event: &Event, file: Known) -> u32 {
        let successor = |last: Last| self.contexts[last.symbol as usize].successor.0;
        let expected = self.last.map_or(NO_SYMBOL, successor);
        self.symbols
            .symbol(event, expected, || relation(file, event))
    }

    fn learn_transition(&mut self, last: Last, symbol: u32, event: &Event, file: Known) {
        let number = self.transition_number(last.symbol, symbol);
        let context = &self.contexts[symbol as usize];
        let seen = Seen {
            extent: file.extent,
            last: context.last.map_or(0, |l| l.1),
        };
        let own = context.last.is_some_and(|l| l.0 == event.file);
        let transition = &mut self.transitions[number as usize];
        transition.observe_file(file.rank, own);
        if has_offset(event.action) {
            transition.observe_offset(event.offset, seen);
        }
        transition.gap.observe(event.time.since(last.end));
    }

    /// What is known of a transition.
    #[inline]
    pub(crate) fn transition(&self, from: u32, to: u32) -> Option<&Transition> {
        let (last, number) = self.contexts[from as usize].successor;
        let number = match last == to {
            true => Some(number),
            false => self.transition_numbers.get(&(from, to)).copied(),
        };
        // Before the first transition the number means nothing.
        self.transitions.get(number? as usize)
    }

    /// The number of a transition, a new one if it is new.
    fn transition_number(&mut self, from: u32, to: u32) -> u32 {
        let (last, number) = self.contexts[from as usize].successor;
        if last == to {
            return number;
        }
        if self.transitions.len() >= self.settings.transitions
            && !self.transition_numbers.contains_key(&(from, to))
        {
            // Bounded: a program with so many has no structure that more of them would show.
            self.forget_transitions();
        }
        let fresh = self.transitions.len() as u32;
        let number = *self.transition_numbers.entry((from, to)).or_insert(fresh);
        if number == fresh {
            self.transitions.push(Transition::default());
        }
        self.contexts[from as usize].successor = (to, number);
        number
    }

    /// Forgets those that came only once; if that is too few of them, all.
    fn forget_transitions(&mut self) {
        let kept = |t: &Transition| t.gap.spread.count > 1;
        let many =
            self.transitions.iter().filter(|t| kept(t)).count() > self.settings.transitions / 2;
        let old = std::mem::take(&mut self.transitions);
        let mut numbers = Vec::with_capacity(old.len());
        for transition in old {
            let keep = !many && kept(&transition);
            numbers.push(keep.then_some(self.transitions.len() as u32));
            self.transitions.extend(keep.then_some(transition));
        }
        self.transition_numbers.retain(|_, number| {
            let new = numbers[*number as usize];
            *number = new.unwrap_or(0);
            new.is_some()
        });
        for context in &mut self.contexts {
            context.successor = NO_SUCCESSOR;
        }
    }

    fn learn_context(&mut self, symbol: u32, event: &Event, file: Known) {
        let context = &mut self.contexts[symbol as usize];
        if event.action.is_transfer() {
            context.sizes.observe(event.len);
        }
        context.duration.observe(event.duration);
        context.last = Some((event.file, event.offset));
        let extent = match event.result < 0 {
            true => file.extent,
            false => file.extent.after(event.action, event.offset, event.moved()),
        };
        self.files.used(event.file, file.rank, extent);
    }
}

/// Whether an action is at a place in its file.
pub(crate) fn has_offset(action: Action) -> bool {
    !matches!(
        action,
        Action::Open | Action::Close | Action::Sync | Action::Remove
    )
}

/// Whether a prediction, made when so many files had come up, is what happened: a file that was to be new is right
/// if it came up in that order.
pub(crate) fn comes_true(
    predicted: &Predicted,
    came_up: u64,
    event: &Event,
    files: &Files,
) -> bool {
    let file = match predicted.file {
        PredictedFile::Known(file) => file == event.file,
        PredictedFile::New(n) => files.number(event.file) == Some(came_up + u64::from(n)),
    };
    let place = !has_offset(event.action) || predicted.offset == event.offset;
    let size = !event.action.is_transfer() || predicted.len == event.len;
    file && place && size && predicted.action == event.action
}

fn relation(file: Known, event: &Event) -> Relation {
    match file.rank {
        0 => {}
        NEW => return Relation::NewFile,
        _ => return Relation::OtherFile,
    }
    match event.offset.cmp(&file.extent.position) {
        _ if !has_offset(event.action) => Relation::Consecutive,
        std::cmp::Ordering::Equal => Relation::Consecutive,
        std::cmp::Ordering::Greater => Relation::Forward,
        std::cmp::Ordering::Less => Relation::Backward,
    }
}
