//! Loops whose trip counts change, when folding: the grammar does not grow, and what happens within the loop
//! is predicted as if nothing had changed.

mod shared;

use presagio_grammar::{Grammar, Mode};
use shared::Noise;

/// How many of the symbols from `from` on were the likeliest prediction, and how large the grammar was at most.
fn follow(input: &[u32], from: usize) -> (usize, usize) {
    let mut grammar = Grammar::new(Mode::Folding);
    let (mut right, mut largest) = (0, 0);
    for (number, &symbol) in input.iter().enumerate() {
        let expected = grammar.predictions().first().map(|p| p.0);
        if number >= from && expected == Some(symbol) {
            right += 1;
        }
        grammar.append(symbol);
        grammar.verify().unwrap();
        largest = largest.max(grammar.len());
    }
    (right, largest)
}

/// 1 2ⁿ 3 again and again, with the n that are given.
fn iterations(counts: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let one = |n: u32| [vec![1], vec![2; n as usize], vec![3]].concat();
    counts.into_iter().flat_map(one).collect()
}

#[test]
fn a_trip_count_that_changes_every_time_costs_one_miss_and_no_symbol() {
    let mut noise = Noise(7);
    let counts: Vec<u32> = (0..300).map(|_| 90 + noise.below(21)).collect();
    let input = iterations(counts.iter().copied());
    let first = counts[0] as usize + 2;
    let (right, largest) = follow(&input, first);
    assert!(largest <= 8, "{largest} symbols");
    let missed = input.len() - first - right;
    assert!(
        missed <= 2 * counts.len(),
        "{missed} missed of {}",
        input.len()
    );
}

#[test]
fn trip_counts_that_repeat_in_their_own_order_are_predicted() {
    let counts = [3, 7, 5, 9].repeat(50);
    let input = iterations(counts);
    let learned = iterations([3, 7, 5, 9].repeat(2)).len();
    let (right, largest) = follow(&input, learned);
    assert!(largest <= 8, "{largest} symbols");
    assert!(
        input.len() - learned - right <= 2,
        "{right} of {}",
        input.len() - learned
    );
}

#[test]
fn loops_of_rules_fold_too() {
    let mut noise = Noise(9);
    let mut input = Vec::new();
    for _ in 0..200 {
        input.push(1);
        for _ in 0..20 + noise.below(10) {
            input.extend([2, 3, 4]);
        }
        input.extend([5, 6]);
    }
    let (right, largest) = follow(&input, 100);
    assert!(largest <= 14, "{largest} symbols");
    let missed = input.len() - 100 - right;
    assert!(missed <= 2 * 200, "{missed} missed of {}", input.len());
}

#[test]
fn loops_in_loops_fold_at_every_level() {
    let mut noise = Noise(11);
    let mut input = Vec::new();
    for _ in 0..100 {
        input.push(1);
        for _ in 0..5 + noise.below(5) {
            input.push(2);
            input.extend(vec![3; 5 + noise.below(5) as usize]);
            input.push(4);
        }
        input.push(5);
    }
    let (_, largest) = follow(&input, 0);
    assert!(largest <= 16, "{largest} symbols");
}

#[test]
fn an_exact_grammar_grows_where_a_folding_one_does_not() {
    let mut noise = Noise(7);
    let input = iterations((0..300).map(|_| 90 + noise.below(21)));
    let mut exact = Grammar::new(Mode::Exact);
    input.iter().for_each(|s| exact.append(*s));
    assert_eq!(exact.expand(), input);
    assert!(exact.len() > 100, "{}", exact.len());
}

#[test]
fn after_one_iteration_everything_is_known() {
    // Symbols 0..40, some of them repeated; the end of the input cannot be known.
    let once: Vec<u32> = (0..40)
        .flat_map(|s| vec![s; 1 + s as usize % 3 * 4])
        .collect();
    let input = once.repeat(6);
    for mode in [Mode::Exact, Mode::Folding] {
        let mut grammar = Grammar::new(mode);
        for (number, &symbol) in input.iter().enumerate() {
            grammar.append(symbol);
            if number > once.len() {
                let ahead: Vec<u32> = grammar
                    .best()
                    .unwrap()
                    .take(input.len() - number - 1)
                    .collect();
                let right = ahead == input[number + 1..];
                assert!(right, "{mode:?} after {number}");
            }
        }
    }
}

#[test]
fn a_gap_is_forgotten_within_one_iteration() {
    let once: Vec<u32> = (0..30).flat_map(|s| vec![s; 1 + s as usize % 3]).collect();
    let mut grammar = Grammar::new(Mode::Folding);
    once.repeat(5).iter().for_each(|s| grammar.append(*s));
    grammar.lose_track();
    once[17..].iter().for_each(|s| grammar.append(*s));
    for (number, &symbol) in once.iter().enumerate() {
        assert_eq!(grammar.predictions()[0].0, symbol, "at {number}");
        grammar.append(symbol);
    }
}

/// Symbols, and whether each can be known: what chance decides cannot.
type Known = Vec<(u32, bool)>;

/// The share of symbols that could be known and were, of those behind the first tenth; and how large the grammar got.
fn known(input: &Known) -> (f64, usize) {
    let mut grammar = Grammar::new(Mode::Folding);
    let (mut right, mut all) = (0, 0);
    for (number, &(symbol, could_be_known)) in input.iter().enumerate() {
        if could_be_known && number > input.len() / 10 {
            let expected = grammar.predictions().first().map(|p| p.0);
            right += usize::from(expected == Some(symbol));
            all += 1;
        }
        grammar.append(symbol);
    }
    (right as f64 / all as f64, grammar.len())
}

#[test]
fn what_follows_a_branch_is_known_whichever_way_it_went() {
    let mut noise = Noise(77);
    for common in [5, 20, 100] {
        let mut input = Known::new();
        for _ in 0..20_000 / common {
            input.extend((100..100 + common).map(|s| (s, true)));
            input.push((noise.below(3), false));
        }
        let (right, symbols) = known(&input);
        assert!(right == 1.0, "{right} right with {common} in common");
        // What is learned of chance itself is no more than there is of it.
        let bound = common as usize + 20_000 / common as usize / 4 + 60;
        assert!(symbols < bound, "{symbols} symbols, {common} in common");
    }
}

#[test]
fn loops_that_may_not_run_at_all_cost_little() {
    let mut noise = Noise(78);
    let mut input = Known::new();
    for _ in 0..2000 {
        let trips = noise.below(5);
        input.push((1, true));
        input.extend((0..trips).map(|_| (2, false)));
        input.extend([(3, trips == 4), (4, true)]);
    }
    let (right, symbols) = known(&input);
    assert!(
        right > 0.99 && symbols < 60,
        "{right} right, {symbols} symbols"
    );
}

#[test]
fn a_phase_that_comes_back_is_known_from_its_second_symbol_on() {
    let phases: [Vec<u32>; 2] = [(0..30).collect(), (20..60).rev().collect()];
    let mut grammar = Grammar::new(Mode::Folding);
    for number in 0..12 {
        let once = &phases[number % 2];
        let mut missed = 0;
        for (at, &symbol) in once.repeat(5 + number * 3).iter().enumerate() {
            let expected = grammar.predictions().first().map(|p| p.0);
            missed += usize::from(expected != Some(symbol));
            grammar.append(symbol);
            assert!(
                number < 2 || at != once.len() || missed <= 2,
                "{missed} in phase {number}"
            );
        }
        // That it goes on for longer than last time is one more surprise.
        assert!(
            number < 2 || missed <= 3,
            "{missed} missed in phase {number}"
        );
    }
    assert!(grammar.len() < 100, "{}", grammar.len());
}
