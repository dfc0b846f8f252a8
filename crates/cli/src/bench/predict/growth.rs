//! Time and memory of the grammar as its input grows.

use super::{Bar, Plan};
use crate::table::{Cell, Table};
use indicatif::ProgressBar;
use presagio_core::IdHashMap;
use presagio_grammar::{Grammar, Limits, Mode};
use presagio_predict::apps::Random;
use std::hint::black_box;
use std::time::Instant;

/// Kinds of input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    /// The same 200 symbols again and again.
    Periodic,
    /// Two loops, one in the other, whose trip counts vary.
    Loops,
    /// Any of 256 symbols.
    Random,
}

impl Input {
    const ALL: [Input; 3] = [Input::Periodic, Input::Loops, Input::Random];

    const fn name(self) -> &'static str {
        match self {
            Input::Periodic => "periodic",
            Input::Loops => "loops",
            Input::Random => "random",
        }
    }

    fn symbols(self, length: usize) -> Vec<u32> {
        let mut random = Random(17);
        match self {
            Input::Periodic => (0..length as u32).map(|n| n % 200).collect(),
            Input::Random => (0..length).map(|_| random.below(256) as u32).collect(),
            Input::Loops => {
                let mut symbols = Vec::new();
                while symbols.len() < length {
                    outer_loop(&mut symbols, &mut random);
                }
                symbols.truncate(length);
                symbols
            }
        }
    }
}

fn outer_loop(symbols: &mut Vec<u32>, random: &mut Random) {
    symbols.extend([0, 1, 2]);
    for _ in 0..3 + random.below(3) {
        symbols.push(3);
        for _ in 0..20 + random.below(10) {
            symbols.extend([4, 5]);
        }
        symbols.push(6);
    }
    symbols.extend([7, 8]);
}

const MODES: [Mode; 3] = [Mode::Sequitur, Mode::Exact, Mode::Folding];

/// A grammar of one length.
pub struct Grown {
    input: Input,
    mode: Mode,
    length: usize,
    ns: f64,
    map_ns: f64,
    symbols: usize,
    bytes: usize,
}

pub fn steps(plan: &Plan) -> u64 {
    (Input::ALL.len() * plan.lengths.len()) as u64
}

pub fn measure(plan: &Plan, bar: &ProgressBar) -> Vec<Grown> {
    let mut grown = Vec::new();
    for input in Input::ALL {
        for length in plan.lengths {
            bar.set_message(format!("{}: {length} symbols", input.name()));
            let symbols = input.symbols(*length);
            let map_ns = fastest(plan, *length, || inserts(&symbols));
            let of = |mode| of_mode(plan, (input, mode), &symbols, map_ns);
            grown.extend(MODES.map(of));
            bar.inc(1);
        }
    }
    grown
}

fn of_mode(plan: &Plan, what: (Input, Mode), symbols: &[u32], map_ns: f64) -> Grown {
    let mut sizes = (0, 0);
    let ns = fastest(plan, symbols.len(), || {
        let grammar = learn(what.1, symbols);
        sizes = (grammar.len(), grammar.memory());
    });
    Grown {
        input: what.0,
        mode: what.1,
        length: symbols.len(),
        ns,
        map_ns,
        symbols: sizes.0,
        bytes: sizes.1,
    }
}

fn learn(mode: Mode, symbols: &[u32]) -> Grammar {
    // Nothing may be forgotten here, or it would look cheaper than it is.
    let limits = Limits {
        symbols: usize::MAX,
        ..Limits::default()
    };
    let mut grammar = Grammar::with_limits(mode, limits);
    symbols.iter().for_each(|symbol| grammar.append(*symbol));
    grammar
}

/// What any index of neighbours has to do at least: as many different keys as there are symbols.
fn inserts(symbols: &[u32]) {
    let mut map = IdHashMap::default();
    for (n, symbol) in symbols.iter().enumerate() {
        map.insert((*symbol, n as u32), n as u32);
    }
    black_box(&map);
}

/// Nanoseconds a symbol.
fn fastest(plan: &Plan, length: usize, mut work: impl FnMut()) -> f64 {
    let mut once = || {
        let begin = Instant::now();
        work();
        begin.elapsed().as_nanos() as f64 / length as f64
    };
    (0..plan.rounds)
        .map(|_| once())
        .fold(f64::INFINITY, f64::min)
}

pub fn table(grown: &[Grown]) -> Table {
    let row = |g: &Grown| {
        vec![
            Cell::Text(g.input.name().to_owned()),
            Cell::Text(format!("{:?}", g.mode)),
            Cell::Count(g.length as u64),
            Cell::Number(g.ns, 0),
            Cell::Number(g.ns / g.map_ns, 1),
            Cell::Count(g.symbols as u64),
            Cell::Bytes(g.bytes as u64),
            Cell::Number(g.bytes as f64 / g.symbols.max(1) as f64, 1),
        ]
    };
    Table {
        title: "The grammar as its input grows".to_owned(),
        columns: vec![
            ("input", "input"),
            ("mode", "mode"),
            ("length", "length"),
            ("ns_per_symbol", "ns/symbol"),
            ("times_map", "× map"),
            ("grammar_symbols", "grammar"),
            ("bytes", "memory"),
            ("bytes_per_grammar_symbol", "B each"),
        ],
        rows: grown.iter().map(row).collect(),
    }
}

pub fn bars(plan: &Plan, grown: &[Grown]) -> Vec<Bar> {
    let of = |input, length: usize| {
        let is_it = |g: &&Grown| (g.input, g.mode, g.length) == (input, Mode::Folding, length);
        grown.iter().find(is_it)
    };
    let [.., before, last] = plan.lengths else {
        return Vec::new();
    };
    let pair = |input| of(input, *before).zip(of(input, *last));
    let mut bars = Vec::new();
    if let Some((before, last)) = pair(Input::Periodic) {
        bars.push(Bar::at_most("periodic: a symbol", last.ns, "ns", 300.0));
        let growth = last.bytes as f64 / before.bytes as f64;
        bars.push(Bar::at_most("periodic: growth of memory", growth, "", 1.01));
    }
    if let Some((before, last)) = pair(Input::Random) {
        let slower = last.ns / before.ns;
        bars.push(Bar::at_most(
            "random: a symbol, twice the length",
            slower,
            "",
            1.8,
        ));
        let megabytes = last.bytes as f64 / 1e6;
        bars.push(Bar::at_most("random: memory", megabytes, "MB", 100.0));
        let each = last.bytes as f64 / last.symbols as f64;
        bars.push(Bar::at_most(
            "random: a grammar symbol",
            each,
            "bytes",
            40.0,
        ));
    }
    bars
}
