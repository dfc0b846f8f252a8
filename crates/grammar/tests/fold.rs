//! Folding a grammar that was exact: when it is worth it, what it costs, and what is left of the input.

mod shared;

use presagio_grammar::{Grammar, Mode};
use proptest::collection::vec;
use proptest::prelude::*;
use shared::{Noise, tower};

fn exact(input: impl IntoIterator<Item = u32>) -> Grammar {
    let mut grammar = Grammar::new(Mode::Exact);
    input.into_iter().for_each(|s| grammar.append(s));
    grammar
}

/// What a second run is expected to begin with.
fn beginning(grammar: &Grammar, symbols: usize) -> Vec<u32> {
    let mut again = grammar.clone();
    again.rewind();
    let first = again.best().expect("a beginning");
    first.take(symbols).collect()
}

#[test]
fn the_work_is_that_of_the_grammar_however_long_its_input() {
    // 2³¹ to the power of 60 symbols.
    let folded = Grammar::load(&tower(60, (1 << 31) - 1)).unwrap().fold();
    folded.verify().unwrap();
    assert_eq!(folded.mode(), Mode::Folding);
    assert!(folded.len() < 200, "{}", folded.len());
    assert_eq!(beginning(&folded, 3), [500; 3]);
}

#[test]
fn a_long_loop_and_what_came_before_it_are_kept() {
    let around = ([7, 8, 9, 7, 5], [4, 6]);
    let input = [&around.0[..], &[1, 2, 3].repeat(100_000), &around.1].concat();
    let folded = exact(input.iter().copied()).fold();
    folded.verify().unwrap();
    assert!(folded.expand() == input);
    assert!(beginning(&folded, 400_000)[..input.len()] == input);
}

/// 1 2ⁿ 3 4 again and again, with counts that differ.
fn particles(noise: &mut Noise, iterations: usize) -> Vec<u32> {
    let mut input = Vec::new();
    for _ in 0..iterations {
        input.push(1);
        input.extend(vec![2; 500 + noise.below(50) as usize]);
        input.extend([3, 4]);
    }
    input
}

#[test]
fn loops_with_changing_trip_counts_are_worth_it() {
    let mut noise = Noise(5);
    assert!(exact(particles(&mut noise, 40)).trip_counts_vary());
    // Two such loops, with much between them.
    let mut grammar = Grammar::new(Mode::Exact);
    for _ in 0..100 {
        (10..30).for_each(|s| grammar.append(s));
        for _ in 0..2 + noise.below(20) {
            grammar.append(1);
            grammar.append(2);
        }
        (30..50).for_each(|s| grammar.append(s));
        (0..1 + noise.below(9)).for_each(|_| grammar.append(3));
    }
    assert!(grammar.trip_counts_vary());
    let folded = grammar.fold();
    assert!(
        folded.len() * 3 < grammar.len(),
        "{} of {}",
        folded.len(),
        grammar.len()
    );
}

#[test]
fn runs_by_chance_are_not() {
    let mut noise = Noise(6);
    for symbols in [20, 100] {
        let mut grammar = Grammar::new(Mode::Exact);
        for _ in 0..10_000 {
            let symbol = noise.below(symbols);
            // One symbol in four is repeated, each time with the same chance of one more.
            let mut more = noise.below(4) == 0;
            grammar.append(symbol);
            while more {
                grammar.append(symbol);
                more = noise.below(4) < 3;
            }
            assert!(
                !grammar.trip_counts_vary(),
                "{} symbols, folded {}, of {symbols} kinds",
                grammar.len(),
                grammar.fold().len()
            );
        }
    }
}

#[test]
fn what_was_folded_predicts_as_if_it_had_always_been() {
    let mut noise = Noise(8);
    let (learned, rest) = (particles(&mut noise, 12), particles(&mut noise, 20));
    let mut always = Grammar::new(Mode::Folding);
    learned.iter().for_each(|s| always.append(*s));
    let mut folded = exact(learned).fold();
    // The loop may begin elsewhere: 1 (2ⁿ 3 4 1)ⁿ 2ⁿ 3 4.
    assert!(folded.len() <= 9 && always.len() <= 9);
    let missed = |grammar: &mut Grammar| {
        let mut missed = 0;
        for &symbol in &rest {
            missed += usize::from(grammar.best_symbol().map(|b| b.0) != Some(symbol));
            grammar.append(symbol);
        }
        missed
    };
    let (folded, always) = (missed(&mut folded), missed(&mut always));
    assert!(folded <= always + 2, "{folded} missed, not {always}");
}

#[test]
fn a_count_that_was_the_same_many_times_is_expected_again() {
    // 1 2⁵ 3 is a rule that was passed often; once there were 9.
    let once = |n: usize| [vec![1], vec![2; n], vec![3, 4]].concat();
    let input = [once(5).repeat(20), once(9)].concat();
    let mut folded = exact(input).fold();
    folded.append(1);
    let next: Vec<u32> = folded.best().unwrap().take(7).collect();
    assert_eq!(next, [2, 2, 2, 2, 2, 3, 4]);
}

/// Symbols, gaps, and repetitions of some of them.
fn input() -> impl Strategy<Value = Vec<Option<u32>>> {
    let piece = (
        vec(proptest::option::weighted(0.97, 0..5u32), 1..6),
        1..7usize,
    );
    let pieces = vec(piece, 0..25);
    pieces.prop_map(|pieces| {
        let parts = pieces.into_iter().map(|(piece, times)| piece.repeat(times));
        parts.collect::<Vec<_>>().concat()
    })
}

fn take(grammar: &mut Grammar, input: &[Option<u32>]) {
    for symbol in input {
        match symbol {
            Some(symbol) => grammar.append(*symbol),
            None => grammar.lose_track(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn any_grammar_folds_to_one_that_keeps_the_constraints_and_goes_on(
        before in input(), after in input(),
    ) {
        for mode in [Mode::Sequitur, Mode::Exact, Mode::Folding] {
            let mut grammar = Grammar::new(mode);
            take(&mut grammar, &before);
            let mut folded = grammar.fold();
            prop_assert_eq!(folded.mode(), Mode::Folding);
            prop_assert_eq!(folded.verify(), Ok(()));
            if let Some(Some(first)) = before.first() {
                prop_assert_eq!(folded.expand()[0], *first);
            }
            for symbol in &after {
                take(&mut folded, &[*symbol]);
                prop_assert_eq!(folded.verify(), Ok(()));
            }
        }
    }
}

#[test]
fn an_empty_grammar_that_was_folded_follows_what_comes() {
    let mut folded = Grammar::new(Mode::Exact).fold();
    for symbol in [1, 2, 3, 1, 2] {
        folded.append(symbol);
    }
    assert_eq!(folded.best_symbol().map(|best| best.0), Some(3));
}
