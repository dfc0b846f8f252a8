//! What once went wrong, or would have: odd grammars, huge counts, long histories.

mod shared;

use presagio_grammar::{Grammar, Limits, Mode};
use shared::{Noise, tower};

const MODES: [Mode; 3] = [Mode::Sequitur, Mode::Exact, Mode::Folding];

fn grammar_of(mode: Mode, input: impl IntoIterator<Item = u32>) -> Grammar {
    let mut grammar = Grammar::new(mode);
    input.into_iter().for_each(|s| grammar.append(s));
    grammar
}

#[test]
fn rules_nested_hundreds_deep_are_followed_and_expanded() {
    // 1 2, 1 2 3, 1 2 3 4, …: each rule is the one before it and one more symbol; backwards, one symbol and the
    // rule before it.
    let forth: Vec<u32> = (2..200).flat_map(|n| 1..=n).collect();
    let back: Vec<u32> = (2..200).flat_map(|n| (1..=n).rev()).collect();
    for input in [forth, back] {
        for mode in MODES {
            let mut grammar = grammar_of(mode, input.iter().copied());
            grammar.verify().unwrap();
            if mode != Mode::Folding {
                assert_eq!(grammar.expand(), input);
            }
            grammar.lose_track();
            grammar.append(7);
            assert!(grammar.best().is_some());
            let mut loaded = Grammar::load(&grammar.save()).unwrap();
            loaded.append(8);
            loaded.verify().unwrap();
        }
    }
}

#[test]
fn weights_stay_finite_whatever_the_counts() {
    let mut grammar = Grammar::load(&tower(60, (1 << 31) - 1)).unwrap();
    for symbol in [59, 500, 500, 59, 58] {
        grammar.append(symbol);
        grammar.verify().unwrap();
        assert!(
            grammar
                .predictions()
                .iter()
                .all(|p| p.1.is_finite() && p.1 > 0.0)
        );
    }
}

#[test]
fn a_count_that_cannot_grow_any_more_stays() {
    // S → a^(2³¹−1) x₀ in which a comes again and again.
    let mut grammar = Grammar::load(&tower(1, (1 << 31) - 1)).unwrap();
    for symbol in [500; 5].into_iter().chain([0; 3]).chain([500; 3]) {
        grammar.append(symbol);
        grammar.verify().unwrap();
    }
    assert!(Grammar::load(&grammar.save()).is_ok());
}

#[test]
fn a_loop_that_was_passed_as_often_as_can_be_counted_is_followed() {
    // S → a⁺ b, folded: the greatest number of runs that can be saved.
    let runs = [2, 2, 2, 0xff, 0xff, 0xff, 0xff, 0x0f, 0];
    let bytes = [
        &[2, 2, 100, 8, 0, 32, 1, 2, 2, 1][..],
        &runs,
        &[0, 4, 0, 0, 8, 0, 0, 0],
    ]
    .concat();
    let mut grammar = Grammar::load(&bytes).unwrap();
    for symbol in [1, 1, 2, 1, 1, 2] {
        grammar.append(symbol);
        grammar.verify().unwrap();
        assert!(grammar.predictions().iter().all(|p| p.1.is_finite()));
    }
}

#[test]
fn a_gap_keeps_to_the_cap_too() {
    for mode in MODES {
        for cap in 0..6 {
            let limits = Limits {
                symbols: cap,
                followers: 4,
            };
            let mut grammar = Grammar::with_limits(mode, limits);
            for symbol in [1, 2, 1, 3, 1, 2, 4, 1, 2].repeat(3) {
                grammar.append(symbol);
                grammar.lose_track();
                grammar.lose_track();
                assert!(grammar.len() <= cap, "{mode:?}: {} of {cap}", grammar.len());
                grammar.verify().unwrap();
            }
        }
    }
}

#[test]
fn ever_new_symbols_do_not_take_ever_more_memory() {
    let limits = Limits {
        symbols: 500,
        followers: 8,
    };
    for mode in MODES {
        for first in [0, 1 << 31] {
            let mut grammar = Grammar::with_limits(mode, limits);
            (first..first + 5_000).for_each(|s| grammar.append(s));
            let early = grammar.memory();
            (first + 5_000..first + 50_000).for_each(|s| grammar.append(s));
            assert!(
                grammar.memory() <= 2 * early,
                "{early}, {}",
                grammar.memory()
            );
            grammar.verify().unwrap();
        }
    }
}

#[test]
fn a_symbol_takes_forty_bytes_at_most() {
    let mut noise = Noise(3);
    let random: Vec<u32> = (0..100_000).map(|_| noise.below(100)).collect();
    let wide: Vec<u32> = (0..100_000).map(|_| noise.below(10_000)).collect();
    let periods =
        [1_000, 3_000, 5_000, 7_000, 20_000].map(|p| (0..60_000).map(|n| n % p).collect());
    for input in [random, wide].into_iter().chain(periods) {
        for mode in MODES {
            let grammar = grammar_of(mode, input.iter().copied());
            let bytes = grammar.memory() as f64 / grammar.len() as f64;
            assert!(
                bytes <= 40.0,
                "{mode:?}: {bytes} bytes a symbol, {} symbols",
                grammar.len()
            );
        }
    }
}
