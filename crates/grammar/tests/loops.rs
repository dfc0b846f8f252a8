//! Loops whose trip counts change, when folding: the grammar does not grow, and what happens within the loop
//! is predicted as if nothing had changed.

use presagio_grammar::{Grammar, Mode};

/// A stream of numbers without pattern, the same in every run.
struct Noise(u64);

impl Noise {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as u32 % limit
    }
}

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
    assert!(missed <= 2 * counts.len(), "{missed} missed of {}", input.len());
}

#[test]
fn trip_counts_that_repeat_in_their_own_order_are_predicted() {
    let counts = [3, 7, 5, 9].repeat(50);
    let input = iterations(counts);
    let learned = iterations([3, 7, 5, 9].repeat(2)).len();
    let (right, largest) = follow(&input, learned);
    assert!(largest <= 8, "{largest} symbols");
    assert!(input.len() - learned - right <= 2, "{right} of {}", input.len() - learned);
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
    let once: Vec<u32> = (0..40).flat_map(|s| vec![s; 1 + s as usize % 3 * 4]).collect();
    let input = once.repeat(6);
    for mode in [Mode::Exact, Mode::Folding] {
        let mut grammar = Grammar::new(mode);
        for (number, &symbol) in input.iter().enumerate() {
            grammar.append(symbol);
            if number > once.len() {
                let ahead: Vec<u32> = grammar.best().unwrap().take(input.len() - number - 1).collect();
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
