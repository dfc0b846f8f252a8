//! The examples of the paper (RR-8725): tables 1 to 4 and the iterator of §3.1.5. (The
//! weights of §3.1.4 are tested where followers can be set by hand.)
//!
//! Table 2's input is (ab)⁸, and Table 4's rule also predicts b: see where the text and its own rule differ.

use presagio_grammar::{Grammar, Mode, Symbol};

/// The letters of a text, one symbol each.
fn grammar(mode: Mode, text: &str) -> Grammar {
    let mut grammar = Grammar::new(mode);
    text.bytes()
        .for_each(|letter| grammar.append(letter.into()));
    grammar
}

/// The rules as the paper writes them, the start rule first; other rules named in the order in which they are met.
fn written(grammar: &Grammar) -> Vec<String> {
    let rules: std::collections::BTreeMap<_, _> = grammar.rules().into_iter().collect();
    let mut names = vec![0];
    let mut out = Vec::new();
    while out.len() < names.len() {
        let mut line = String::new();
        for (symbol, count) in &rules[&names[out.len()]] {
            match symbol {
                Symbol::Terminal(letter) => line.push(char::from(*letter as u8)),
                Symbol::Rule(rule) => {
                    let known = names.iter().position(|n| n == rule);
                    let number = known.unwrap_or_else(|| {
                        names.push(*rule);
                        names.len() - 1
                    });
                    line.push(char::from(b'A' + number as u8 - 1));
                }
            }
            if *count > 1 {
                line.push_str(&format!("^{count}"));
            }
        }
        out.push(line);
    }
    out
}

fn predicted(grammar: &Grammar) -> Vec<(char, f64)> {
    let mut all: Vec<_> = grammar
        .predictions()
        .into_iter()
        .map(|(s, w)| (char::from(s as u8), w))
        .collect();
    all.sort_by_key(|p| p.0);
    all
}

#[test]
fn table_1_digrams_are_unique_and_rules_are_used_twice() {
    assert_eq!(
        written(&grammar(Mode::Sequitur, "abcdcde")),
        ["abAAe", "cd"]
    );
    // The counterexamples are never left standing: a rule used once, a digram twice.
    assert_eq!(written(&grammar(Mode::Sequitur, "abcde")), ["abcde"]);
    assert_eq!(
        written(&grammar(Mode::Sequitur, "ababcdcde")),
        ["AABBe", "ab", "cd"]
    );
}

#[test]
fn table_2_counts_replace_a_tower_of_rules() {
    let text = "ab".repeat(8);
    assert_eq!(
        written(&grammar(Mode::Sequitur, &text)),
        ["AA", "BB", "CC", "ab"]
    );
    assert_eq!(written(&grammar(Mode::Exact, &text)), ["A^8", "ab"]);
}

#[test]
fn table_3_predictors_go_on_while_they_are_right() {
    // After c, d is expected within A, whose last symbol it is; after d comes what follows that A: e.
    let mut grammar = grammar(Mode::Exact, "aecdbcdeaecdbc");
    assert_eq!(predicted(&grammar), [('d', 1.0)]);
    grammar.append(b'd'.into());
    assert_eq!(predicted(&grammar), [('e', 1.0)]);
}

#[test]
fn table_4_new_predictors_are_found_wherever_the_last_symbol_occurs() {
    // S → aeAbAeb, A → cdb, without counts as there. Behind b: A (c), b (behind the first A), e (the second).
    let grammar = grammar(Mode::Sequitur, "aecdbbcdbeb");
    assert_eq!(written(&grammar), ["aeAbAeb", "cdb"]);
    assert_eq!(predicted(&grammar), [('b', 1.0), ('c', 1.0), ('e', 1.0)]);
}

#[test]
fn an_iterator_reads_on_through_the_ends_of_rules() {
    // S → aeAbAec…: after c, [d, A, S]; then e, then c, as in §3.1.5.
    let grammar = grammar(Mode::Exact, "aecdbcdecxaecdbc");
    let cursor = grammar.best().unwrap();
    let next: String = cursor.take(3).map(|s| char::from(s as u8)).collect();
    assert_eq!(next, "dec");
}
