//! A grammar that was saved and loaded goes on as if nothing had happened; a second run is predicted from its first
//! symbol on.

mod shared;

use presagio_grammar::{DISTINCT_MAX, Grammar, Limits, Mode, Series};
use proptest::collection::vec;
use proptest::prelude::*;
use shared::{Noise, canonical};

const MODES: [Mode; 3] = [Mode::Sequitur, Mode::Exact, Mode::Folding];

fn again(grammar: &Grammar) -> Grammar {
    let loaded = Grammar::load(&grammar.save()).expect("what was saved");
    loaded.verify().expect("constraints");
    loaded
}

/// Symbols, some of which are large; loops make up half of it.
fn input() -> impl Strategy<Value = Vec<u32>> {
    let symbol = prop_oneof![4 => 0..4u32, 1 => u32::MAX - 4..u32::MAX];
    let loops = (vec((symbol.clone(), 1..6usize), 1..6), 1..6usize).prop_map(|(body, times)| {
        let once: Vec<u32> = body.iter().flat_map(|(s, n)| vec![*s; *n]).collect();
        once.repeat(times)
    });
    let random = vec(symbol, 0..60);
    vec(prop_oneof![loops, random], 0..4).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn a_loaded_grammar_goes_on_as_the_saved_one_would(
        before in input(), after in input(), cap in 8usize..200,
    ) {
        for mode in MODES {
            let mut kept = Grammar::with_limits(mode, Limits { symbols: cap, followers: 32 });
            before.iter().for_each(|s| kept.append(*s));
            let mut loaded = again(&kept);
            prop_assert_eq!(kept.save(), loaded.save());
            for &symbol in &after {
                prop_assert_eq!(kept.predictions(), loaded.predictions());
                kept.append(symbol);
                loaded.append(symbol);
            }
            prop_assert_eq!(canonical(&kept), canonical(&loaded));
            prop_assert_eq!(kept.trip_counts_vary(), loaded.trip_counts_vary());
        }
    }

    #[test]
    fn a_loaded_series_goes_on_as_the_saved_one_would(
        before in vec(0..30u64, 0..60), after in vec(0..30u64, 0..20),
    ) {
        let mut kept = Series::default();
        before.iter().for_each(|v| kept.observe(*v));
        let mut loaded = Series::load(&kept.save()).unwrap();
        for value in after {
            prop_assert_eq!((kept.predict(), kept.confidence()), (loaded.predict(), loaded.confidence()));
            kept.observe(value);
            loaded.observe(value);
        }
    }

    #[test]
    fn any_bytes_are_refused_or_give_a_grammar_that_works(bytes in vec(any::<u8>(), 0..200)) {
        let versioned = [&[2, 2, 100, 8, 0, 32][..], &bytes].concat();
        for bytes in [bytes, versioned] {
            if let Ok(mut grammar) = Grammar::load(&bytes) {
                grammar.verify().unwrap();
                grammar.append(1);
                grammar.verify().unwrap();
            }
            drop(Series::load(&bytes));
        }
    }
}

#[test]
fn a_second_run_is_predicted_from_its_first_symbol() {
    let run: Vec<u32> = (0..40).flat_map(|s| vec![s; 1 + s as usize % 4]).collect();
    for mode in MODES {
        let mut grammar = Grammar::new(mode);
        for _ in 0..3 {
            run.iter().for_each(|s| grammar.append(*s));
            grammar = again(&grammar);
            grammar.rewind();
            let ahead: Vec<u32> = grammar
                .best()
                .expect("a beginning")
                .take(run.len())
                .collect();
            assert_eq!(ahead, run, "{mode:?}");
        }
    }
}

#[test]
fn a_rewound_grammar_without_input_expects_nothing() {
    let mut grammar = Grammar::new(Mode::Folding);
    grammar.rewind();
    assert!(grammar.best().is_none());
    grammar.append(1);
    grammar.verify().unwrap();
}

#[test]
fn trip_counts_and_their_order_are_kept() {
    let mut noise = Noise(3);
    let mut grammar = Grammar::new(Mode::Folding);
    let iterate = |grammar: &mut Grammar, trips: u32| {
        grammar.append(1);
        (0..trips).for_each(|_| grammar.append(2));
        grammar.append(3);
    };
    [3, 7, 5, 9]
        .repeat(10)
        .into_iter()
        .for_each(|n| iterate(&mut grammar, n));
    let mut grammar = again(&grammar);
    iterate(&mut grammar, 3);
    grammar.append(1);
    let ahead: Vec<u32> = grammar.best().unwrap().take(8).collect();
    assert_eq!(ahead, [2, 2, 2, 2, 2, 2, 2, 3]);
    // So many different ones that they are statistics.
    (0..4 * DISTINCT_MAX).for_each(|_| iterate(&mut grammar, 90 + noise.below(60)));
    assert_eq!(grammar.save(), again(&grammar).save());
}

#[test]
fn a_saved_grammar_is_small() {
    let mut noise = Noise(3);
    let mut grammar = Grammar::new(Mode::Folding);
    (0..20_000).for_each(|_| grammar.append(noise.below(100)));
    let bytes = grammar.save().len();
    assert!(bytes < 8 * grammar.len(), "{bytes} for {}", grammar.len());
}

#[test]
fn that_trip_counts_vary_is_kept() {
    let mut noise = Noise(4);
    let mut grammar = Grammar::new(Mode::Exact);
    while !grammar.trip_counts_vary() {
        assert!(grammar.len() < 1000, "they do");
        grammar.append(1);
        (0..20 + noise.below(20)).for_each(|_| grammar.append(2));
        [3, 4].into_iter().for_each(|s| grammar.append(s));
        assert_eq!(
            again(&grammar).trip_counts_vary(),
            grammar.trip_counts_vary()
        );
    }
}

#[test]
fn no_more_is_followed_than_can_be_however_much_a_file_asks_for() {
    let limits = Limits {
        symbols: 100,
        followers: usize::MAX,
    };
    let followers = Grammar::with_limits(Mode::Exact, limits).limits().followers;
    assert!(followers <= 1 << 12, "{followers}");
    // A limit of 2³⁵ − 1, of an empty grammar, and as many are looked for.
    let many = [0xff, 0xff, 0xff, 0xff, 0x7f];
    let bytes = [&[2, 1, 100][..], &many, &[0, 32, 1, 0], &many, &[0, 0, 0]].concat();
    assert_eq!(Grammar::load(&bytes).unwrap().limits().followers, followers);
}

#[test]
fn a_place_has_a_weight() {
    // S → 1 2, and 2 is expected, with this weight.
    let load = |weight: f64| {
        let rules = [1, 2, /* 1 */ 2, 1, 0, /* 2 */ 4, 1, 0];
        let place = [/* frames */ 1, /* symbol */ 1, 1, 1, 0];
        let head = [&[2, 1, 100, 8, 0, 32][..], &rules, &[8, 0, 1]].concat();
        Grammar::load(&[&head[..], &weight.to_le_bytes(), &place, &[0]].concat())
    };
    assert_eq!(load(1.0).unwrap().best_symbol(), Some((2, 1.0)));
    for weight in [0.0, -0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(load(weight).is_err(), "{weight}");
    }
}

#[test]
fn a_value_that_came_very_often_is_not_appended_as_often() {
    // Two values, and no grammar yet: the next of them would be appended behind all that came before.
    let load = |times: &[u8]| {
        let values = [&[0, 0, 2, 2, /* 7 */ 7][..], times, &[/* 9 */ 9, 1]].concat();
        let limits = [0x80, 2, 8];
        let grammar = [&[2, 1][..], &limits, &[0, 32, 1, 0, 8, 0, 0, 0]].concat();
        let spread = [&[2][..], &[0; 16], &[7, 9, 9]].concat();
        Series::load(&[values, grammar, spread].concat())
    };
    let mut series = load(&[8]).unwrap();
    series.observe(7);
    assert_eq!(series.predict(), Some(7));
    for times in [&[9][..], &[0xff, 0xff, 0xff, 0xff, 0x0f]] {
        let refused = load(times).unwrap_err();
        assert!(refused.what.contains("too often"), "{refused}");
    }
}

#[test]
fn a_rule_of_a_hundred_thousand_symbols_is_loaded_and_followed() {
    // S → A x A; a walk from each symbol to the ends of its rule would take minutes.
    let once: Vec<u32> = (0..200_000).collect();
    let mut grammar = Grammar::new(Mode::Exact);
    once.iter().for_each(|s| grammar.append(*s));
    grammar.append(1 << 20);
    once.iter().for_each(|s| grammar.append(*s));
    assert_eq!(grammar.len(), 200_003);
    let mut loaded = again(&grammar);
    loaded.lose_track();
    loaded.append(199_000);
    assert_eq!(loaded.best_symbol().map(|b| b.0), Some(199_001));
}

#[test]
fn what_is_not_a_grammar_is_refused_with_a_reason() {
    let mut grammar = Grammar::new(Mode::Exact);
    [1, 2, 1, 2].into_iter().for_each(|s| grammar.append(s));
    let bytes = grammar.save();
    let reason = |bytes: &[u8]| Grammar::load(bytes).unwrap_err().to_string();
    assert!(reason(&[]).contains("end too early"));
    assert!(reason(&bytes[..bytes.len() - 1]).contains("end too early"));
    assert!(reason(&[&bytes[..], &[0]].concat()).contains("more than a model"));
    assert!(reason(&[&[9], &bytes[1..]].concat()).contains("version"));
    // A rule that is part of itself: S → A A x, A → A a.
    let start = [
        3, /* A */ 3, 1, 0, /* A */ 3, 1, 2, /* x */ 8, 1, 0,
    ];
    let inner = [2, /* A */ 3, 1, 4, /* a */ 2, 1, 0];
    let circle = [&[2, 0, 100, 8, 0, 32, 2][..], &start, &inner, &[8, 0, 0, 0]].concat();
    assert!(reason(&circle).contains("circle"), "{}", reason(&circle));
}
