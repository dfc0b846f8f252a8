//! That a repetition which changes nothing is passed over makes no difference but in cost.
//!
//! Hardly any, to be exact. Built up anew, part of a repetition can be taken for part of something else that looks
//! alike, and a loop that went on is then cut in two: gliding does not do that (shapes). A run within the loop is
//! counted when it is over, not from its first repetition on, so that the count that is expected of the next run
//! can differ meanwhile (predictions); and one that is over stays counted even if the rest of the iteration does
//! not come (counts).

mod shared;

use presagio_grammar::{Grammar, Mode};
use proptest::collection::vec;
use proptest::prelude::*;
use shared::{Noise, canonical, shape};

/// What comes: a symbol, or a gap.
type Input = Vec<Option<u32>>;

fn pair() -> [Grammar; 2] {
    [true, false].map(|may_glide| {
        let mut grammar = Grammar::new(Mode::Folding);
        grammar.set_gliding(may_glide);
        grammar
    })
}

fn take(grammar: &mut Grammar, symbol: Option<u32>) {
    match symbol {
        Some(symbol) => grammar.append(symbol),
        None => grammar.lose_track(),
    }
}

#[derive(Debug, Default)]
struct Difference {
    symbols: usize,
    predictions: usize,
    shapes: usize,
    counts: usize,
}

/// How two grammars, one of which glides, differ on an input.
fn compare(input: &Input, total: &mut Difference) {
    let [mut glides, mut walks] = pair();
    for &symbol in input {
        let best = |g: &Grammar| g.predictions().first().map(|p| p.0);
        total.symbols += 1;
        total.predictions += usize::from(best(&glides) != best(&walks));
        take(&mut glides, symbol);
        take(&mut walks, symbol);
        glides.verify().unwrap();
    }
    glides.lose_track();
    walks.lose_track();
    glides.verify().unwrap();
    total.shapes += usize::from(shape(&glides) != shape(&walks));
    total.counts += usize::from(canonical(&glides) != canonical(&walks));
}

/// Phases of loops in loops: how often and how long varies, the last iteration is cut, and there may be gaps.
fn phases(noise: &mut Noise, fixed: bool, gaps: bool) -> Input {
    let mut input = Vec::new();
    for _ in 0..1 + noise.below(4) {
        let first = noise.below(4) * 5;
        let (prefix, inner, suffix) = (noise.below(3), 1 + noise.below(3), 1 + noise.below(3));
        let trips = 2 + noise.below(4);
        for _ in 0..2 + noise.below(8) {
            let trips = if fixed { trips } else { 1 + noise.below(4) };
            input.extend((first..first + prefix).map(Some));
            for _ in 0..trips {
                input.extend((first + 10..first + 10 + inner).map(Some));
            }
            input.extend((first + 20..first + 20 + suffix).map(Some));
        }
        let cut = noise.below(6) as usize;
        input.truncate(input.len() - cut.min(input.len()));
        if gaps && noise.below(2) == 0 {
            input.push(None);
        }
    }
    input
}

fn differences(fixed: bool) -> Difference {
    let (mut noise, mut total) = (Noise(5), Difference::default());
    for number in 0..1000 {
        let input = phases(&mut noise, fixed, number % 2 == 0);
        compare(&input, &mut total);
    }
    total
}

#[test]
fn loops_glide_to_where_they_would_have_come_anyway() {
    let total = differences(true);
    assert!(total.predictions * 1000 < total.symbols, "{total:?}");
    assert!(total.shapes <= 5 && total.counts <= 20, "{total:?}");
}

#[test]
fn loops_with_changing_trip_counts_do_so_too() {
    let total = differences(false);
    assert!(total.predictions * 100 < total.symbols, "{total:?}");
    assert!(total.shapes <= 5 && total.counts <= 40, "{total:?}");
}

#[test]
fn a_glide_that_is_interrupted_is_in_the_expansion() {
    let mut grammar = Grammar::new(Mode::Folding);
    let input: Vec<u32> = (0..7).cycle().take(7 * 5 + 3).collect();
    input.iter().for_each(|s| grammar.append(*s));
    assert_eq!(grammar.expand(), input);
    grammar.lose_track();
    assert_eq!(grammar.expand()[..input.len()], input);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn constraints_hold_while_gliding_through_anything(
        input in vec(proptest::option::weighted(0.98, 0..4u32), 0..200),
    ) {
        compare(&input, &mut Difference::default());
    }
}
