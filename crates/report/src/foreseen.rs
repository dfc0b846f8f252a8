//! What a model would have foreseen, process by process and over time; and the grammars that it learned.
//!
//! Each of the busiest processes has a model that knows nothing at first, as under `presagio run`. Before it sees an
//! operation it says what will come, and that is counted in the bin of the time at which the operation came.

use crate::axis::Axis;
use presagio_core::{Action, Event, IdHashMap};
use presagio_grammar::Limits;
use presagio_predict::score::Judged;
use presagio_predict::{Model, Settings};
use std::collections::HashMap;

/// Processes that have a model.
pub(crate) const STREAMS_MAX: usize = 64;
/// All models together take no more memory than this; the largest is given up first.
const MODELS_BYTES_MAX: usize = 320 << 20;
/// So many operations go by between two looks at that.
const LOOK_EVERY: u64 = 1 << 17;
/// After so many operations a model must have foreseen at least this part of them, or it is given up: a stream without order
/// costs twenty times as much to learn as one with, and there is nothing to show for it.
const MUST_FORESEE: [(u64, f64); 2] = [(1 << 13, 0.1), (1 << 16, 0.5)];
/// Symbols of which more than their number is known.
const SYMBOLS_MAX: usize = 1 << 15;

/// What is known of a symbol of a grammar.
#[derive(Clone, Debug)]
pub(crate) struct SymbolUse {
    pub context: u32,
    pub action: Action,
    pub operations: u64,
    pub bytes: u64,
    pub busy: u64,
    /// The bytes asked for, if always the same.
    pub len: Option<u64>,
    /// The file, if always the same.
    pub file: Option<u32>,
    pub failed: bool,
}

impl SymbolUse {
    fn new(event: &Event, file: u32) -> SymbolUse {
        SymbolUse {
            context: event.context.0,
            action: event.action,
            operations: 0,
            bytes: 0,
            busy: 0,
            len: Some(event.len),
            file: Some(file),
            failed: event.result < 0,
        }
    }

    fn add(&mut self, event: &Event, file: u32) {
        self.operations += 1;
        self.bytes = self.bytes.saturating_add(event.moved());
        self.busy = self.busy.saturating_add(event.duration.0);
        self.len = self.len.filter(|len| *len == event.len);
        self.file = self.file.filter(|known| *known == file);
    }
}

/// One process.
#[derive(Debug)]
pub(crate) struct Stream {
    pub process: u32,
    pub judged: Judged,
    /// Nothing once it was given up.
    pub model: Option<Model>,
    pub symbols: Vec<SymbolUse>,
    files: IdHashMap<u32, ()>,
    observed: u64,
    /// The operation before which all that came later was foreseen.
    last_wrong: u64,
}

impl Stream {
    fn new(process: u32) -> Stream {
        let settings = Settings {
            limits: Limits {
                symbols: 1 << 16,
                ..Settings::default().limits
            },
            transitions: 1 << 13,
            ..Settings::default()
        };
        Stream {
            process,
            judged: Judged::default(),
            model: Some(Model::with_settings(settings)),
            symbols: Vec::new(),
            files: IdHashMap::default(),
            observed: 0,
            last_wrong: 0,
        }
    }

    fn observe(&mut self, event: &Event, file: u32, bin: &mut Judged) {
        let Some(model) = &mut self.model else { return };
        let knows_file = self.files.insert(file, ()).is_some();
        let mut one = Judged::default();
        one.observe(model, event, knows_file);
        let symbol = model.last_symbol();
        self.observed += 1;
        if one.right == 0 {
            self.last_wrong = self.observed;
        }
        self.judged.add(&one);
        bin.add(&one);
        if let Some(symbol) = symbol {
            self.count(symbol as usize, event, file);
        }
    }

    fn count(&mut self, symbol: usize, event: &Event, file: u32) {
        if symbol == self.symbols.len() && symbol < SYMBOLS_MAX {
            self.symbols.push(SymbolUse::new(event, file));
        }
        if let Some(known) = self.symbols.get_mut(symbol) {
            known.add(event, file);
        }
    }

    /// Whether it is time to give up, because too little is foreseen.
    fn is_hopeless(&self) -> bool {
        let due = |(after, share): &(u64, f64)| {
            self.observed == *after && (self.judged.right as f64) < share * self.observed as f64
        };
        MUST_FORESEE.iter().any(due)
    }

    /// After how many operations all that came later was foreseen exactly. Of a process whose model was given up nobody knows
    /// what came later.
    pub fn perfect_after(&self) -> Option<u64> {
        let is_known = self.model.is_some() && self.last_wrong < self.observed;
        is_known.then_some(self.last_wrong)
    }
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Foreseen {
    streams: Vec<Stream>,
    of_process: HashMap<u32, usize>,
    pub axis: Axis,
    pub bins: Vec<Judged>,
    /// Operations that nobody judged: of processes without a model, or whose model was given up by then.
    pub operations_without: u64,
    pub given_up: u64,
    seen: u64,
}

impl Foreseen {
    /// Models for these processes.
    pub fn new(axis: Axis, processes: &[u32]) -> Foreseen {
        let numbered = processes.iter().enumerate();
        Foreseen {
            streams: processes.iter().map(|p| Stream::new(*p)).collect(),
            of_process: numbered.map(|(n, process)| (*process, n)).collect(),
            bins: vec![Judged::default(); axis.bins],
            axis,
            operations_without: 0,
            given_up: 0,
            seen: 0,
        }
    }

    pub fn observe(&mut self, event: &Event, file: u32) {
        let Some(at) = self.of_process.get(&event.process) else {
            self.operations_without += 1;
            return;
        };
        let bin = &mut self.bins[self.axis.bin(event.time.0)];
        let stream = &mut self.streams[*at];
        match stream.model.is_some() {
            true => stream.observe(event, file, bin),
            false => self.operations_without += 1,
        }
        if stream.model.is_some() && stream.is_hopeless() {
            stream.model = None;
            self.given_up += 1;
        }
        self.seen += 1;
        if self.seen.is_multiple_of(LOOK_EVERY) {
            self.keep_small();
        }
    }

    /// Records of a process were lost here.
    pub fn lose_track(&mut self, process: u32) {
        if let Some(at) = self.of_process.get(&process)
            && let Some(model) = &mut self.streams[*at].model
        {
            model.lose_track();
        }
    }

    fn keep_small(&mut self) {
        let memory = |stream: &Stream| stream.model.as_ref().map_or(0, Model::memory);
        while self.streams.iter().map(memory).sum::<usize>() > MODELS_BYTES_MAX {
            let Some(largest) = self.streams.iter_mut().max_by_key(|s| memory(s)) else {
                return;
            };
            largest.model = None;
            self.given_up += 1;
        }
    }

    /// All together.
    pub fn judged(&self) -> Judged {
        let mut all = Judged::default();
        self.bins.iter().for_each(|bin| all.add(bin));
        all
    }

    /// The processes, the busiest first.
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }
}
