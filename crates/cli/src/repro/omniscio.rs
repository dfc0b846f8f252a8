//! Omnisc'IO (paper 003): how well the I/O of its programs is predicted. The programs are replicas.

use super::finding::{Figure, Finding, Row, Wanted};
use presagio_core::Event;
use presagio_grammar::{Grammar, Mode, Symbol};
use presagio_predict::score::{Curve, Options, Score};
use presagio_predict::{Model, apps};
use std::hint::black_box;
use std::time::Instant;

/// A program of the paper, and what it published about it.
struct Published {
    name: &'static str,
    /// Percent of accesses that are contiguous, and of offsets that were predicted (Table 7).
    offsets: [f64; 2],
    /// Percent (Table 8).
    hit_ratio: f64,
    /// By how many milliseconds times are off, and those of who expects the next operation at once (Table 9).
    times: [f64; 2],
    /// Microseconds an operation (Table 10).
    overhead: f64,
    events: fn() -> Vec<Event>,
}

const PUBLISHED: [Published; 6] = [
    Published {
        name: "CM1 (POSIX)",
        offsets: [47.4, 92.4],
        hit_ratio: 84.7,
        times: [197.0, 735.0],
        overhead: 20.51,
        events: || apps::cm1_posix(8),
    },
    Published {
        name: "CM1 (Gzip)",
        offsets: [53.2, 82.7],
        hit_ratio: 79.3,
        times: [199.0, 791.0],
        overhead: 20.20,
        events: || apps::cm1_gzip(8),
    },
    Published {
        name: "CM1 (MPI-I/O)",
        offsets: [72.7, 98.2],
        hit_ratio: 96.3,
        times: [60.0, 406.0],
        overhead: 19.95,
        events: || apps::cm1_mpiio(40),
    },
    Published {
        name: "Nek5000",
        offsets: [99.4, 99.8],
        hit_ratio: 99.4,
        times: [11.0, 49.0],
        overhead: 23.44,
        events: || apps::nek5000(60),
    },
    Published {
        name: "GTC",
        offsets: [99.9, 100.0],
        hit_ratio: 100.0,
        times: [1.0, 6.0],
        overhead: 19.03,
        events: || apps::gtc(8, 13_000),
    },
    Published {
        name: "LAMMPS",
        offsets: [99.9, 100.0],
        hit_ratio: 99.4,
        times: [0.0, 3.0],
        overhead: 22.10,
        events: || apps::lammps(100),
    },
];

/// The input of Table 2 as the text means it: (ab)^8.
const PERIODS: usize = 8;

pub fn table2() -> anyhow::Result<Finding> {
    let shown = |mode| {
        let mut grammar = Grammar::new(mode);
        (0..PERIODS)
            .flat_map(|_| [0, 1])
            .for_each(|s| grammar.append(s));
        rules(&grammar)
    };
    let row = |name: &str, published: &str, mode| {
        Row::new(
            name,
            Figure::text(published),
            Figure::text(shown(mode)),
            Wanted::Same,
        )
    };
    Ok(Finding {
        rows: vec![
            row("Sequitur", "S → AA, A → BB, B → CC, C → ab", Mode::Sequitur),
            row("StarSequitur", "S → A^8, A → ab", Mode::Exact),
        ],
        notes: vec![
            "The input is (ab)^8; the table's caption has one period less than its grammars have."
                .to_owned(),
        ],
    })
}

/// `S → A^8, A → ab`, rules named in the order in which they are met.
fn rules(grammar: &Grammar) -> String {
    let rules = grammar.rules();
    let mut order: Vec<u32> = rules.first().map(|(start, _)| *start).into_iter().collect();
    let mut at = 0;
    while let Some(rule) = order.get(at).copied() {
        for symbol in body(&rules, rule) {
            if let Symbol::Rule(next) = symbol.0
                && !order.contains(&next)
            {
                order.push(next);
            }
        }
        at += 1;
    }
    let name = |rule: u32| match order.iter().position(|r| *r == rule) {
        None | Some(0) => 'S',
        // No table of the paper has more rules than letters.
        Some(n) => char::from(b'A' + (n as u8 - 1) % 18),
    };
    let part = |(symbol, count): &(Symbol, u32)| {
        let letter = match symbol {
            Symbol::Terminal(t) => char::from(b'a' + (*t % 26) as u8),
            Symbol::Rule(rule) => name(*rule),
        };
        match count {
            1 => letter.to_string(),
            n => format!("{letter}^{n}"),
        }
    };
    let line = |rule: &u32| {
        let parts: String = body(&rules, *rule).iter().map(part).collect();
        format!("{} → {parts}", name(*rule))
    };
    order.iter().map(line).collect::<Vec<_>>().join(", ")
}

fn body(rules: &[(u32, Vec<(Symbol, u32)>)], rule: u32) -> &[(Symbol, u32)] {
    let found = rules.iter().find(|(number, _)| *number == rule);
    found.map_or(&[], |(_, body)| body)
}

/// How many symbols the grammar of a program's call stacks has in the end.
fn grammar_len(name: &str, mode: Mode) -> f64 {
    let program = PUBLISHED.iter().find(|program| program.name == name);
    let events = program.map_or_else(Vec::new, |program| (program.events)());
    let mut grammar = Grammar::new(mode);
    events
        .iter()
        .for_each(|event| grammar.append(event.context.0));
    grammar.len() as f64
}

pub fn fig4() -> anyhow::Result<Finding> {
    let symbols = |value| Figure::Number(value, 0, "");
    let smaller = |name| {
        let [before, after] = [Mode::Sequitur, Mode::Exact].map(|mode| grammar_len(name, mode));
        100.0 * (1.0 - after / before)
    };
    let percent = |value| Figure::Number(value, 0, "%");
    Ok(Finding {
        rows: vec![
            Row::new(
                "GTC, Sequitur: symbols in the end",
                symbols(450.0),
                symbols(grammar_len("GTC", Mode::Sequitur)),
                Wanted::Within(0.5),
            ),
            Row::new(
                "GTC, StarSequitur",
                symbols(27.0),
                symbols(grammar_len("GTC", Mode::Exact)),
                Wanted::Within(0.5),
            ),
            Row::new(
                "CM1 (POSIX), StarSequitur",
                symbols(250.0),
                symbols(grammar_len("CM1 (POSIX)", Mode::Exact)),
                Wanted::Within(0.5),
            ),
            Row::new(
                "Nek5000, StarSequitur smaller than Sequitur by",
                percent(31.0),
                percent(smaller("Nek5000")),
                Wanted::AtLeast,
            ),
        ],
        notes: vec![
            "The curves are lost in the text; these are the figures that it names (for CM1 25 KB, at 100 bytes a symbol). How large a grammar gets is a \
             matter of how often a program's loops run with other counts and how many branches they have, which replicas do not share with it."
                .to_owned(),
        ],
    })
}

fn scored(program: &Published) -> Score {
    let events = (program.events)();
    let mut score = Score::new(Options {
        operations: Some(events.len() as u64),
        ..Options::default()
    });
    events.iter().for_each(|event| score.observe(event));
    score
}

fn percent(share: f64) -> Figure {
    Figure::Number(100.0 * share, 1, "%")
}

fn published_percent(value: f64) -> Figure {
    Figure::Number(value, 1, "%")
}

/// What a curve is on average in the second half of a run, when what can be learned is.
fn in_second_half(curve: &Curve) -> f64 {
    let end = curve.points().last().map_or(0, |(at, _)| at);
    let late: Vec<f64> = curve
        .points()
        .filter(|(at, _)| *at > end / 2)
        .map(|(_, value)| value)
        .collect();
    late.iter().sum::<f64>() / late.len() as f64
}

/// The programs of which the paper's text says what its figures show.
fn all_but_nek5000() -> impl Iterator<Item = &'static Published> {
    PUBLISHED.iter().filter(|it| it.name != "Nek5000")
}

pub fn fig2() -> anyhow::Result<Finding> {
    let row = |program: &Published| {
        Row::new(
            program.name,
            published_percent(100.0),
            percent(in_second_half(&scored(program).curves().contexts)),
            Wanted::AtLeast,
        )
    };
    let nek5000 = PUBLISHED.iter().find(|it| it.name == "Nek5000");
    let nek5000 = nek5000.map_or(f64::NAN, |program| {
        100.0 * in_second_half(&scored(program).curves().contexts)
    });
    Ok(Finding {
        rows: all_but_nek5000().map(row).collect(),
        notes: vec![format!(
            "Right contexts among the last ten, on average over the second half of the run. The curves are lost in the text, which says that \
             they are at a steady 100 % after the first iteration, but for Nek5000, whose code writes the same from several branches; its replica \
             is at {nek5000:.1} %. That of LAMMPS ends with output by code that did not run before."
        )],
    })
}

pub fn fig3() -> anyhow::Result<Finding> {
    let row = |program: &Published| {
        let reach = scored(program).reach();
        let from = |from: u64| percent(from as f64 / reach.operations as f64);
        Row::new(
            format!("{}: operations before all to come is known", program.name),
            Figure::Number(50.0, 1, "%"),
            reach.perfect_from().map_or(Figure::text("never"), from),
            Wanted::AtMost,
        )
    };
    Ok(Finding {
        rows: all_but_nek5000().map(row).collect(),
        notes: vec![
            "The text has no figure: \"very quickly\", after one phase of writing, the symbols up to the end of the run are known. Half of the run is \
             taken for that, of eight phases and more."
                .to_owned(),
            "The replica of GTC writes another number of particles in each phase, and that of LAMMPS ends with output by code that did not run before: \
             nobody can know them to the end."
                .to_owned(),
        ],
    })
}

pub fn fig5() -> anyhow::Result<Finding> {
    let row = |program: &Published| {
        Row::new(
            program.name,
            Figure::Span(0.0, 1.0, 1, "%"),
            percent(in_second_half(&scored(program).curves().size_error)),
            Wanted::AtMost,
        )
    };
    Ok(Finding {
        rows: all_but_nek5000().map(row).collect(),
        notes: vec![
            "By how much sizes are off, on average over the second half of the run. The curves are lost in the text, which says that they go to 0 or \
             close to 0, but for Nek5000; up to 1 % is taken for that."
                .to_owned(),
        ],
    })
}

pub fn table7() -> anyhow::Result<Finding> {
    let rows = PUBLISHED.iter().flat_map(|program| {
        let score = scored(program);
        let name = program.name;
        [
            Row::new(
                format!("{name}: contiguous"),
                published_percent(program.offsets[0]),
                percent(score.tally().contiguous_share()),
                Wanted::Within(0.1),
            ),
            Row::new(
                format!("{name}: predicted"),
                published_percent(program.offsets[1]),
                percent(score.tally().offsets()),
                Wanted::AtLeast,
            ),
        ]
    });
    Ok(Finding {
        rows: rows.collect(),
        notes: vec![
            "The share of contiguous accesses says how much a replica is like its program; predictions are of the whole \
             run, learning included. That of CM1 over MPI-I/O is less contiguous than the program was, hence no easier to \
             predict."
                .to_owned(),
        ],
    })
}

pub fn table8() -> anyhow::Result<Finding> {
    let row = |program: &Published| {
        Row::new(
            program.name,
            published_percent(program.hit_ratio),
            percent(scored(program).tally().hit_ratio()),
            Wanted::AtLeast,
        )
    };
    Ok(Finding {
        rows: PUBLISHED.iter().map(row).collect(),
        notes: Vec::new(),
    })
}

pub fn table9() -> anyhow::Result<Finding> {
    let row = |program: &Published| {
        let tally = scored(program);
        let tally = tally.tally();
        let error = tally.gap_error().as_secs_f64() / tally.gap_mean().as_secs_f64().max(1e-12);
        let [published, at_once] = program.times;
        Row::new(
            program.name,
            Figure::Number((100.0 * published / at_once).round(), 0, "%"),
            Figure::Number(100.0 * error, 0, "%"),
            Wanted::AtMost,
        )
    };
    Ok(Finding {
        rows: PUBLISHED.iter().map(row).collect(),
        notes: vec![
            "By how much the time to the next operation is off, in percent of the error of who expects it at once: seconds \
             of replicas would say nothing, since how long they compute is made up. The replicas' computing \
             varies by 2 %, which nobody can predict; LAMMPS, published as below a microsecond, cannot be closer here."
                .to_owned(),
        ],
    })
}

/// The fastest counts: what disturbs only ever adds.
const ROUNDS: u32 = 3;

pub fn table10() -> anyhow::Result<Finding> {
    let row = |program: &Published| {
        let events = (program.events)();
        let once = || {
            let begin = Instant::now();
            let mut model = Model::new();
            events.iter().for_each(|event| model.observe(event));
            black_box(&model);
            begin.elapsed().as_secs_f64() * 1e6 / events.len() as f64
        };
        let fastest = (0..ROUNDS).map(|_| once()).fold(f64::INFINITY, f64::min);
        Row::new(
            program.name,
            Figure::Number(program.overhead, 2, "µs"),
            Figure::Number(fastest, 2, "µs"),
            Wanted::AtMost,
        )
    };
    Ok(Finding {
        rows: PUBLISHED.iter().map(row).collect(),
        notes: vec![
            "Ours is what the manager spends on an operation, outside of the program; in the program an operation costs \
             what `presagio bench preload` measures. The paper's includes the unwinding of the call stack, on a machine of \
             2015."
                .to_owned(),
        ],
    })
}
