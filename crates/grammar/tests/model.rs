//! Predictions compared with a slow and obvious implementation of §3.1.3–3.1.4.
//!
//! In exact mode a chain of predictors from the start rule down to a terminal is a place in the input. So the
//! model keeps a set of places: those where the input has the symbol that has just come go on by one; if there
//! are none left, all places behind an occurrence of the last symbol of the start rule are taken, found by
//! expanding the grammar. A symbol's weight is the number of places that expect it.

use presagio_grammar::{Grammar, Limits, Mode, Symbol};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

type Rules = BTreeMap<u32, Vec<(Symbol, u32)>>;

#[derive(Default)]
struct Model {
    input: Vec<u32>,
    places: BTreeSet<usize>,
}

impl Model {
    fn observe(&mut self, symbol: u32) {
        let right = self.places.iter().filter(|p| self.input[**p] == symbol);
        // Before the symbol is appended: nothing has followed the end of the input yet.
        let end = self.input.len();
        self.places = right.map(|p| p + 1).filter(|p| *p < end).collect();
        self.input.push(symbol);
    }

    fn discover(&mut self, grammar: &Grammar) {
        if !self.places.is_empty() {
            return;
        }
        let rules: Rules = grammar.rules().into_iter().collect();
        let Some(&(wanted, _)) = rules[&0].last() else {
            return;
        };
        let (mut at, mut ends) = (0, Vec::new());
        expand(&rules, 0, wanted, &mut at, &mut ends);
        self.places = ends.into_iter().filter(|e| *e < self.input.len()).collect();
    }

    fn predictions(&self) -> BTreeMap<u32, f64> {
        let mut weights = BTreeMap::new();
        for place in &self.places {
            *weights.entry(self.input[*place]).or_default() += 1.0;
        }
        weights
    }
}

/// Goes through the expansion of a rule and notes where occurrences of a symbol end.
fn expand(rules: &Rules, rule: u32, wanted: Symbol, at: &mut usize, ends: &mut Vec<usize>) {
    for &(symbol, count) in &rules[&rule] {
        for _ in 0..count {
            match symbol {
                Symbol::Terminal(_) => *at += 1,
                Symbol::Rule(inner) => expand(rules, inner, wanted, at, ends),
            }
            if symbol == wanted {
                ends.push(*at);
            }
        }
    }
}

fn compare(mode: Mode, input: &[u32]) -> Result<(), TestCaseError> {
    let limits = Limits {
        symbols: 1 << 20,
        followers: 1 << 20,
    };
    let mut grammar = Grammar::with_limits(mode, limits);
    let mut model = Model::default();
    for (number, &symbol) in input.iter().enumerate() {
        grammar.append(symbol);
        model.observe(symbol);
        model.discover(&grammar);
        let predicted: BTreeMap<u32, f64> = grammar.predictions().into_iter().collect();
        let near = |a: &BTreeMap<u32, f64>, b: &BTreeMap<u32, f64>| {
            a.len() == b.len()
                && a.iter()
                    .all(|(s, w)| b.get(s).is_some_and(|v| (v - w).abs() < 1e-6))
        };
        prop_assert!(
            near(&predicted, &model.predictions()),
            "{mode:?} after {number}: {predicted:?}, not {:?}, of {:?}",
            model.predictions(),
            grammar.rules()
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn predictions_are_those_of_the_model_on_random_input(input in vec(0..4u32, 0..150)) {
        compare(Mode::Exact, &input)?;
        compare(Mode::Sequitur, &input)?;
    }

    #[test]
    fn predictions_are_those_of_the_model_on_loops(
        body in vec((0..4u32, 1..5usize), 1..6),
        times in 1..8usize,
        noise in vec(0..4u32, 0..10),
        rest in 1..8usize,
    ) {
        let once: Vec<u32> = body.iter().flat_map(|(s, n)| vec![*s; *n]).collect();
        let input = [once.repeat(times), noise, once.repeat(rest)].concat();
        compare(Mode::Exact, &input)?;
        compare(Mode::Sequitur, &input)?;
    }
}
