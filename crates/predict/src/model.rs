//! The model of one stream of operations: what has been learned, and where we are.

use crate::calibration::Calibration;
use crate::contexts::{Relation, Symbols};
use crate::cursor::{Cursor, Predicted, PredictedFile};
use crate::files::Files;
use crate::transition::{Gap, Seen, Transition};
use presagio_core::{Action, ContextId, Event, FileId, IdHashMap, Nanos};
use presagio_grammar::{Grammar, Limits, Mode, Series};

/// How a model learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What its grammar keeps.
    pub mode: Mode,
    /// How large its grammar may get.
    pub limits: Limits,
    /// Transitions that are remembered.
    pub transitions: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            mode: Mode::Folding,
            limits: Limits {
                symbols: 1 << 18,
                followers: 16,
            },
            transitions: 1 << 16,
        }
    }
}

/// What is learned of a symbol.
#[derive(Clone, Debug, Default)]
pub(crate) struct Context {
    pub sizes: Series,
    pub duration: Gap,
    /// Where it was last, and in which file.
    pub last: Option<(FileId, u64)>,
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
    settings: Settings,
    pub(crate) symbols: Symbols,
    pub(crate) grammar: Grammar,
    pub(crate) contexts: Vec<Context>,
    pub(crate) transitions: IdHashMap<(u32, u32), Transition>,
    pub(crate) files: Files,
    pub(crate) last: Option<Last>,
    pub(crate) calibration: Calibration,
    observed: u64,
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
            transitions: IdHashMap::default(),
            files: Files::default(),
            last: None,
            calibration: Calibration::default(),
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
        self.judge(event);
        let files = &self.files;
        let symbol = self.symbols.symbol(event, || relation(files, event));
        if symbol as usize == self.contexts.len() {
            self.contexts.push(Context::default());
        }
        if let Some(last) = self.last {
            self.learn_transition(last, symbol, event);
        }
        self.learn_context(symbol, event);
        self.grammar.append(symbol);
        let end = event.end();
        self.last = Some(Last { symbol, end });
        self.observed += 1;
    }

    /// Operations were missed: what comes next is not a continuation of what came last.
    pub fn lose_track(&mut self) {
        self.grammar.lose_track();
        self.last = None;
    }

    /// What may come next: ways to read on with their probabilities, the likeliest first.
    pub fn predictions(&self) -> impl Iterator<Item = (Cursor<'_>, f64)> {
        let total: f64 = self.grammar.cursors().map(|c| c.1).sum();
        let cursors = self.grammar.cursors();
        cursors.map(move |(cursor, weight)| {
            let share = weight / total;
            (Cursor::new(self, cursor, share), share)
        })
    }

    /// The likeliest way to read on.
    pub fn best(&self) -> Option<Cursor<'_>> {
        self.predictions().next().map(|p| p.0)
    }

    /// Symbols that may come next with their probabilities, for those who judge the grammar alone.
    pub fn next_symbols(&self) -> Vec<(u32, f64)> {
        let mut next = self.grammar.predictions();
        let total: f64 = next.iter().map(|n| n.1).sum();
        next.iter_mut().for_each(|n| n.1 /= total);
        next
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
        let transitions: usize = self.transitions.values().map(Transition::memory).sum();
        let entry = size_of::<(u32, u32)>() + size_of::<Transition>() + 1;
        self.grammar.memory()
            + contexts
            + self.contexts.capacity() * size_of::<Context>()
            + transitions
            + self.transitions.capacity() * entry
    }

    /// Whether the likeliest prediction came true, for calibration.
    fn judge(&mut self, event: &Event) {
        let Some(mut cursor) = self.best() else {
            return;
        };
        if let Some(predicted) = cursor.next() {
            let raw = cursor.raw();
            let came_true = comes_true(&predicted, event, &self.files);
            self.calibration.observe(raw, came_true);
        }
    }

    fn learn_transition(&mut self, last: Last, symbol: u32, event: &Event) {
        if self.transitions.len() >= self.settings.transitions
            && !self.transitions.contains_key(&(last.symbol, symbol))
        {
            // Bounded: a program with so many has no structure that more of them would show.
            self.transitions.clear();
        }
        let context = &self.contexts[symbol as usize];
        let seen = Seen {
            position: self.files.position(event.file),
            last: context.last.map_or(0, |l| l.1),
        };
        let own = context.last.is_some_and(|l| l.0 == event.file);
        let transition = self.transitions.entry((last.symbol, symbol)).or_default();
        transition.observe_file(self.files.rank(event.file), own);
        if has_offset(event.action) {
            transition.observe_offset(event.offset, seen);
        }
        transition.gap.observe(event.time.since(last.end));
    }

    fn learn_context(&mut self, symbol: u32, event: &Event) {
        let context = &mut self.contexts[symbol as usize];
        if event.action.is_transfer() {
            context.sizes.observe(event.len);
        }
        context.duration.observe(event.duration);
        context.last = Some((event.file, event.offset));
        let position = position_after(event.action, event.offset, event.moved(), || {
            self.files.position(event.file)
        });
        self.files.used(event.file, position);
    }
}

/// Where the next access to a file is consecutive.
pub(crate) fn position_after(
    action: Action,
    offset: u64,
    moved: u64,
    before: impl FnOnce() -> u64,
) -> u64 {
    match action {
        Action::Read | Action::Write => offset.saturating_add(moved),
        Action::Seek => offset,
        Action::Open | Action::Close | Action::Remove => 0,
        _ => before(),
    }
}

/// Whether an action is at a place in its file.
pub(crate) fn has_offset(action: Action) -> bool {
    !matches!(
        action,
        Action::Open | Action::Close | Action::Sync | Action::Remove
    )
}

/// Whether a prediction is what happened, as far as that can be known before: a file that is opened for the
/// first time is right if it was expected to be new.
pub(crate) fn comes_true(predicted: &Predicted, event: &Event, files: &Files) -> bool {
    let file = match predicted.file {
        PredictedFile::Known(file) => file == event.file,
        PredictedFile::New(_) => !files.knows(event.file),
    };
    let place = !has_offset(event.action) || predicted.offset == event.offset;
    let size = !event.action.is_transfer() || predicted.len == event.len;
    file && place && size && predicted.action == event.action
}

fn relation(files: &Files, event: &Event) -> Relation {
    if !files.knows(event.file) {
        return Relation::NewFile;
    }
    if files.at(0) != Some(event.file) {
        return Relation::OtherFile;
    }
    match event.offset.cmp(&files.position(event.file)) {
        _ if !has_offset(event.action) => Relation::Consecutive,
        std::cmp::Ordering::Equal => Relation::Consecutive,
        std::cmp::Ordering::Greater => Relation::Forward,
        std::cmp::Ordering::Less => Relation::Backward,
    }
}
