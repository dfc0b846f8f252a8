//! What a grammar promises, on any input: see also `model.rs`, which compares its predictions with a slow and
//! obvious implementation.

use presagio_grammar::{Grammar, Limits, Mode};
use proptest::collection::vec;
use proptest::prelude::*;

const MODES: [Mode; 3] = [Mode::Sequitur, Mode::Exact, Mode::Folding];

fn grammar_of(mode: Mode, input: &[u32]) -> Grammar {
    let mut grammar = Grammar::new(mode);
    for &symbol in input {
        grammar.append(symbol);
    }
    grammar
}

/// Inputs with structure: random ones, repetitions, and loops in loops.
fn input() -> impl Strategy<Value = Vec<u32>> {
    let random = |symbols: u32| vec(0..symbols, 0..120);
    let words = (
        vec(vec(0..4u32, 1..5), 1..5),
        vec((0..5usize, 1..5usize), 0..40),
    )
        .prop_map(|(words, order)| {
            let word = |at: usize| words[at % words.len()].clone();
            let parts = order.into_iter().map(|(at, times)| word(at).repeat(times));
            parts.collect::<Vec<_>>().concat()
        });
    prop_oneof![random(2), random(4), random(12), words]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn expanding_the_grammar_gives_the_input_back(input in input()) {
        for mode in [Mode::Sequitur, Mode::Exact] {
            prop_assert_eq!(&grammar_of(mode, &input).expand(), &input);
        }
    }

    #[test]
    fn all_constraints_hold_after_every_symbol(input in input()) {
        for mode in MODES {
            let mut grammar = Grammar::new(mode);
            for &symbol in &input {
                grammar.append(symbol);
                if let Err(broken) = grammar.verify() {
                    return Err(TestCaseError::fail(format!("{mode:?}: {broken}\n{:?}", grammar.rules())));
                }
            }
        }
    }

    #[test]
    fn folding_loses_nothing_but_counts(input in input()) {
        let mut once = grammar_of(Mode::Folding, &input).expand();
        let mut wanted = input;
        once.dedup();
        wanted.dedup();
        // Of loops in loops the last trip counts are kept, hence not always all turns; but the symbols are.
        let sorted = |mut symbols: Vec<u32>| { symbols.sort_unstable(); symbols.dedup(); symbols };
        prop_assert_eq!(sorted(once), sorted(wanted));
    }

    #[test]
    fn a_cap_is_kept_and_the_newest_input_remembered(input in input(), cap in 4usize..40) {
        for mode in MODES {
            let limits = Limits { symbols: cap, followers: 8 };
            let mut grammar = Grammar::with_limits(mode, limits);
            for &symbol in &input {
                grammar.append(symbol);
                prop_assert!(grammar.len() <= cap);
                if let Err(broken) = grammar.verify() {
                    return Err(TestCaseError::fail(format!("{mode:?}: {broken}\n{:?}", grammar.rules())));
                }
            }
            if mode != Mode::Folding {
                prop_assert!(input.ends_with(&grammar.expand()));
            }
        }
    }
}
