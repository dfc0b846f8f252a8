//! What several tests need.
#![allow(dead_code)]

use presagio_grammar::{Grammar, Symbol};
use std::collections::BTreeMap;

/// A stream of numbers without pattern, the same in every run.
pub struct Noise(pub u64);

impl Noise {
    pub fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as u32 % limit
    }
}

/// The rules, numbered in the order in which they are met: the same for grammars that differ in names only.
pub fn canonical(grammar: &Grammar) -> Vec<Vec<(Symbol, u32)>> {
    let rules: BTreeMap<_, _> = grammar.rules().into_iter().collect();
    let mut names = vec![0];
    let mut out: Vec<Vec<(Symbol, u32)>> = Vec::new();
    while out.len() < names.len() {
        let mut named = rules[&names[out.len()]].clone();
        for (symbol, _) in &mut named {
            if let Symbol::Rule(rule) = symbol {
                let known = names.iter().position(|n| n == rule);
                *rule = known.unwrap_or_else(|| {
                    names.push(*rule);
                    names.len() - 1
                }) as u32;
            }
        }
        out.push(named);
    }
    out
}

/// The same without counts.
pub fn shape(grammar: &Grammar) -> Vec<Vec<Symbol>> {
    let bare = |rule: Vec<(Symbol, u32)>| rule.into_iter().map(|s| s.0).collect();
    canonical(grammar).into_iter().map(bare).collect()
}

/// S → A¹ⁿ x₀, A₁ → A₂ⁿ x₁ …: `levels` rules, each repeated `count` times in the one above it, as bytes.
pub fn tower(levels: u64, count: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let mut number = |mut n: u64| {
        while n >= 0x80 {
            out.push(n as u8 | 0x80);
            n >>= 7;
        }
        out.push(n as u8);
    };
    [2, 1, 1000, 32, 0, 32, levels]
        .into_iter()
        .for_each(&mut number);
    for level in 0..levels {
        let inner = if level + 1 < levels {
            (level + 1) * 2 + 1
        } else {
            1000
        };
        [2, inner, count, 0, level * 2, 1, 0]
            .into_iter()
            .for_each(&mut number);
    }
    [32, 0, 0, 0].into_iter().for_each(&mut number);
    out
}
