//! What was found, in tables: the sums of each layer, the busiest processes, and the others together.

use super::stream::Stream;
use crate::table::{Cell, Table};
use crate::terminal::prose;
use presagio_core::{Layer, Nanos};
use presagio_predict::score::Tally;
use presagio_predict::score::far::Trial;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::io::{self, Write};

/// So many processes of a layer have a line of their own.
const TOP: usize = 4;

/// A line of the tables: one stream, or several together.
struct Line {
    name: String,
    layer: Layer,
    streams: usize,
    tally: Tally,
    trials: Vec<Trial>,
    /// Streams that were known to their end from some operation on, and the operation if it is one stream.
    perfect: (usize, Option<u64>),
    contexts: usize,
    grammar: usize,
    others: Option<(usize, usize)>,
    memory: usize,
    /// Sums over operations whose cost was measured.
    cost: (u64, f64, f64),
}

impl Line {
    fn new(name: String, layer: Layer) -> Line {
        Line {
            name,
            layer,
            streams: 0,
            tally: Tally::default(),
            trials: Vec::new(),
            perfect: (0, None),
            contexts: 0,
            grammar: 0,
            others: None,
            memory: 0,
            cost: (0, 0.0, 0.0),
        }
    }

    /// What several streams have together; sizes are those of the largest.
    fn of<'a>(name: String, layer: Layer, streams: impl IntoIterator<Item = &'a Stream>) -> Line {
        let mut line = Line::new(name, layer);
        streams.into_iter().for_each(|stream| line.add(stream));
        line
    }

    fn add(&mut self, stream: &Stream) {
        let (score, reach) = (&stream.score, stream.score.reach());
        let operations = score.tally().operations;
        self.streams += 1;
        self.tally.merge(score.tally());
        let perfect = reach.perfect_from();
        self.perfect = (self.perfect.0 + usize::from(perfect.is_some()), perfect);
        self.trials.extend(reach.trials);
        self.contexts = self.contexts.max(score.model().symbols());
        let (grammar, others) = score.grammars();
        self.grammar = self.grammar.max(grammar);
        let largest = |(a, b): (usize, usize)| {
            let (c, d) = self.others.unwrap_or_default();
            (a.max(c), b.max(d))
        };
        self.others = others.map(largest).or(self.others);
        self.memory += score.model().memory();
        if let Some((observe, read)) = stream.costs() {
            let times = operations as f64;
            self.cost.0 += operations;
            self.cost.1 += observe.0 as f64 * times;
            self.cost.2 += read.0 as f64 * times;
        }
    }

    fn median(&self) -> u64 {
        let mut rights: Vec<u64> = self.trials.iter().map(|t| t.right).collect();
        rights.sort_unstable();
        rights.get(rights.len() / 2).copied().unwrap_or(0)
    }

    fn perfect(&self) -> Cell {
        match (self.streams, self.perfect.1) {
            (1, Some(operation)) => Cell::Count(operation),
            (1, None) => Cell::Missing,
            (streams, _) => Cell::Text(format!("{} of {streams}", self.perfect.0)),
        }
    }

    fn costs(&self) -> [Cell; 2] {
        match self.cost.0 {
            0 => [Cell::Missing, Cell::Missing],
            n => [self.cost.1, self.cost.2].map(|sum| Cell::Span(Nanos((sum / n as f64) as u64))),
        }
    }
}

pub fn show(out: &mut impl Write, streams: &[Stream], json: bool) -> io::Result<()> {
    if json {
        return writeln!(out, "{:#}", document(streams));
    }
    let lines = lines(streams, TOP);
    for (n, (_, about, table)) in tables(&lines).into_iter().enumerate() {
        if n > 0 {
            writeln!(out)?;
        }
        table.write(out)?;
        writeln!(out, "{}", prose(about))?;
    }
    Ok(())
}

fn document(streams: &[Stream]) -> Value {
    let lines = lines(streams, usize::MAX);
    let tables = tables(&lines).into_iter();
    let tables: Map<String, Value> = tables
        .map(|(key, _, t)| (key.to_owned(), t.json()))
        .collect();
    json!({ "streams": streams.len(), "tables": tables })
}

/// Layer by layer: the sum, if it is one of several, the busiest, the others.
fn lines(streams: &[Stream], top: usize) -> Vec<Line> {
    let layers: BTreeSet<Layer> = streams.iter().map(|s| s.layer).collect();
    layers
        .into_iter()
        .flat_map(|layer| of_layer(streams, layer, top))
        .collect()
}

fn of_layer(streams: &[Stream], layer: Layer, top: usize) -> Vec<Line> {
    let of: Vec<&Stream> = streams.iter().filter(|s| s.layer == layer).collect();
    let (first, rest) = of.split_at(of.len().min(top));
    let mut lines = Vec::new();
    if of.len() > 1 {
        lines.push(Line::of(
            format!("all {}", of.len()),
            layer,
            of.iter().copied(),
        ));
    }
    lines.extend(first.iter().map(|s| Line::of(s.name.clone(), layer, [*s])));
    if !rest.is_empty() {
        let name = format!("{} others", rest.len());
        lines.push(Line::of(name, layer, rest.iter().copied()));
    }
    lines
}

/// Each table with its JSON key and a sentence about it.
fn tables(lines: &[Line]) -> Vec<(&'static str, &'static str, Table)> {
    vec![
        (
            "where",
            "Before each operation: is it the right one (context), of the right file, at the right offset? \
             Contig. is who always expects the next read or write where the last ended. Hits: the \
             common part of the bytes expected and accessed; size off: by how much sizes were wrong, each at most \
             5 times.",
            places(lines),
        ),
        (
            "ahead",
            "Known: how many operations ahead are right, in the middle of all trials. To end: after how many \
             operations all the rest was known, or of how many processes. Ahead: whether an operation some way ahead (--ahead) \
             is exactly as predicted. Off by: expected times between operations, and the same for who expects \
             the next one at once.",
            ahead(lines),
        ),
        (
            "count",
            "How many operations come within the window (--window), and until the I/O phase ends, that is a pause \
             16 times as long as usual: how often it was tried, how often the number was exactly right, and by how much it was off, in \
             percent of what came.",
            counts(lines),
        ),
        (
            "model",
            "Symbols of the grammar: ours, of StarSequitur as published (exact), and of plain Sequitur (--sequitur); of several \
             processes the largest. Memory of the models, and time to observe an operation, without and with \
             reading ahead.",
            models(lines),
        ),
        (
            "confidence",
            "What was said with this confidence, and how much of it came true: for the next operation, and for \
             that some way ahead (--ahead).",
            confidences(lines),
        ),
    ]
}

fn percent(share: f64) -> Cell {
    Cell::Number(100.0 * share, 1)
}

/// A percentage of something that occurred; a dash where nothing did.
fn percent_of(share: f64, tries: u64) -> Cell {
    match tries {
        0 => Cell::Missing,
        _ => percent(share),
    }
}

/// What every table begins with.
fn head(line: &Line) -> Vec<Cell> {
    vec![
        Cell::Text(line.layer.name().to_owned()),
        Cell::Text(line.name.clone()),
    ]
}

type Columns = Vec<(&'static str, &'static str)>;

fn table(title: &str, columns: &[(&'static str, &'static str)], rows: Vec<Vec<Cell>>) -> Table {
    let first = [("layer", "layer"), ("process", "process")];
    let columns: Columns = first.into_iter().chain(columns.iter().copied()).collect();
    Table {
        title: title.to_owned(),
        columns,
        rows,
    }
}

fn rows(lines: &[Line], cells: impl Fn(&Line) -> Vec<Cell>) -> Vec<Vec<Cell>> {
    let row = |line: &Line| head(line).into_iter().chain(cells(line)).collect();
    lines.iter().map(row).collect()
}

fn places(lines: &[Line]) -> Table {
    let columns = [
        ("operations", "ops"),
        ("context_percent", "context"),
        ("file_percent", "file"),
        ("offset_percent", "offset"),
        ("contiguous_percent", "contig."),
        ("hit_percent", "hits"),
        ("size_error_percent", "size off"),
    ];
    let cells = |line: &Line| {
        let tally = &line.tally;
        vec![
            Cell::Count(tally.operations),
            percent(tally.contexts()),
            percent(tally.files()),
            percent_of(tally.offsets(), tally.transfers),
            percent_of(tally.contiguous_share(), tally.transfers),
            percent(tally.hit_ratio()),
            percent_of(tally.mean_size_error(), tally.transfers),
        ]
    };
    table(
        "What comes next, and where (%)",
        &columns,
        rows(lines, cells),
    )
}

fn ahead(lines: &[Line]) -> Table {
    let columns = [
        ("known_ahead", "known"),
        ("perfect_from", "to end"),
        ("right_ahead_percent", "ahead %"),
        ("time_error_ns", "off by"),
        ("at_once_error_ns", "at once"),
    ];
    let cells = |line: &Line| {
        let tally = &line.tally;
        vec![
            Cell::Count(line.median()),
            line.perfect(),
            percent_of(tally.ahead.true_share(), tally.ahead.tries()),
            Cell::Span(tally.gap_error()),
            Cell::Span(tally.gap_mean()),
        ]
    };
    table("How far ahead, and when", &columns, rows(lines, cells))
}

fn counts(lines: &[Line]) -> Table {
    let columns = [
        ("within_tries", "window"),
        ("within_right_percent", "right %"),
        ("within_off_percent", "off %"),
        ("phase_tries", "phase"),
        ("phase_right_percent", "right %"),
        ("phase_off_percent", "off %"),
    ];
    let cells = |line: &Line| {
        let of = |c: &presagio_predict::score::Counts| {
            [
                Cell::Count(c.tries),
                percent_of(c.right_share(), c.tries),
                percent_of(c.error_share(), c.came),
            ]
        };
        [of(&line.tally.within), of(&line.tally.phase)].concat()
    };
    table("How many", &columns, rows(lines, cells))
}

fn models(lines: &[Line]) -> Table {
    let columns = [
        ("contexts", "contexts"),
        ("grammar", "grammar"),
        ("grammar_exact", "exact"),
        ("grammar_sequitur", "plain"),
        ("memory_bytes", "memory"),
        ("observe_ns", "observe"),
        ("observe_and_read_ns", "and read"),
    ];
    let count = |n: usize| Cell::Count(n as u64);
    let cells = |line: &Line| {
        let [observe, read] = line.costs();
        vec![
            count(line.contexts),
            count(line.grammar),
            line.others.map_or(Cell::Missing, |o| count(o.0)),
            line.others.map_or(Cell::Missing, |o| count(o.1)),
            Cell::Bytes(line.memory as u64),
            observe,
            read,
        ]
    };
    table("The model, and what it costs", &columns, rows(lines, cells))
}

/// Of all streams together.
fn confidences(lines: &[Line]) -> Table {
    let mut all = Tally::default();
    let sums = lines.iter().filter(|l| l.streams == 1 || is_rest(l));
    sums.for_each(|line| all.merge(&line.tally));
    let mut from = 0.0;
    let pairs = all.next.bins().zip(all.ahead.bins());
    let rows = pairs.map(|((to, next), (_, ahead))| {
        let said = Cell::Text(format!("{:.0}–{:.0}", 100.0 * from, 100.0 * to));
        from = to;
        let of = |bin: presagio_predict::score::Bin| {
            let tries = bin.tries.max(1) as f64;
            [
                Cell::Count(bin.tries),
                percent_of(bin.said / tries, bin.tries),
                percent_of(bin.came_true as f64 / tries, bin.tries),
            ]
        };
        [vec![said], of(next).to_vec(), of(ahead).to_vec()].concat()
    });
    Table {
        title: "What confidences mean (%)".to_owned(),
        columns: vec![
            ("confidence_percent", "confidence"),
            ("next_times", "next: times"),
            ("next_said_percent", "said"),
            ("next_true_percent", "true"),
            ("ahead_times", "ahead: times"),
            ("ahead_said_percent", "said"),
            ("ahead_true_percent", "true"),
        ],
        rows: rows.collect(),
    }
}

/// Whether a line is of those that have none of their own, so that nothing is counted twice.
fn is_rest(line: &Line) -> bool {
    line.name.ends_with(" others")
}
