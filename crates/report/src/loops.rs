//! A grammar as nested loops, the way one would write the program down.
//!
//! The start rule is the whole stream. A rule is shown where it first occurs, with a letter if it occurs again; later
//! occurrences refer to that. So the text is never longer than the grammar, which may stand for millions of operations.

use presagio_grammar::{GAP, Grammar, Symbol};
use std::collections::{BTreeMap, HashMap};

/// Steps that are shown of a stream, and of one rule: from its beginning and its end.
const STEPS_MAX: usize = 300;
const BODY: (usize, usize) = (28, 8);
/// Deeper nesting is not unfolded.
const DEPTH_MAX: usize = 12;

/// A step of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A symbol, so many times in a row.
    Call { symbol: u32, times: u64 },
    /// A rule, so many times in a row. One that occurs again has a number.
    Loop {
        times: u64,
        number: Option<u32>,
        /// Operations of one time.
        operations: u64,
        body: Vec<Step>,
    },
    /// A rule that was shown before.
    Again {
        times: u64,
        number: u32,
        operations: u64,
    },
    /// Records were lost here.
    Lost,
    /// So many steps are not shown, with so many operations.
    More { steps: u64, operations: u64 },
}

/// What a grammar looks like.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nested {
    pub steps: Vec<Step>,
    /// How many operations it stands for.
    pub operations: u64,
    /// How deep loops are nested.
    pub depth: usize,
}

/// The nested loops of a grammar.
pub(crate) fn nested(grammar: &Grammar) -> Nested {
    // A repetition that is under way is written down only when something else comes.
    let mut landed = grammar.clone();
    landed.set_gliding(false);
    let rules: BTreeMap<u32, Body> = landed.rules().into_iter().collect();
    let mut unfolding = Unfolding::new(&rules);
    let Some(start) = rules.get(&0) else {
        return Nested::default();
    };
    let steps = unfolding.body(start, 0);
    let depth = steps.iter().map(depth).max().unwrap_or(0);
    Nested {
        operations: unfolding.length(0, 0),
        steps,
        depth,
    }
}

fn depth(step: &Step) -> usize {
    match step {
        Step::Loop { times, body, .. } => {
            usize::from(*times > 1) + body.iter().map(depth).max().unwrap_or(0)
        }
        _ => 0,
    }
}

type Body = Vec<(Symbol, u32)>;

struct Unfolding<'a> {
    rules: &'a BTreeMap<u32, Body>,
    uses: HashMap<u32, u64>,
    lengths: HashMap<u32, u64>,
    numbers: HashMap<u32, u32>,
    left: usize,
}

impl<'a> Unfolding<'a> {
    fn new(rules: &'a BTreeMap<u32, Body>) -> Unfolding<'a> {
        let mut uses = HashMap::new();
        for (symbol, _) in rules.values().flatten() {
            if let Symbol::Rule(rule) = symbol {
                *uses.entry(*rule).or_default() += 1;
            }
        }
        Unfolding {
            rules,
            uses,
            lengths: HashMap::new(),
            numbers: HashMap::new(),
            left: STEPS_MAX,
        }
    }

    fn body(&mut self, body: &[(Symbol, u32)], depth: usize) -> Vec<Step> {
        let mut steps = Vec::new();
        let skipped = match body.len() > BODY.0 + BODY.1 + 1 {
            true => BODY.0..body.len() - BODY.1,
            false => 0..0,
        };
        for (at, (symbol, times)) in body.iter().enumerate() {
            let is_skipped = skipped.contains(&at) || self.left == 0;
            match steps.last_mut() {
                Some(Step::More { steps, operations }) if is_skipped => {
                    *steps += 1;
                    *operations += self.operations(*symbol, *times, depth);
                }
                _ if is_skipped => steps.push(Step::More {
                    steps: 1,
                    operations: self.operations(*symbol, *times, depth),
                }),
                _ => steps.push(self.step(*symbol, (*times).into(), depth)),
            }
        }
        steps
    }

    fn step(&mut self, symbol: Symbol, times: u64, depth: usize) -> Step {
        self.left = self.left.saturating_sub(1);
        let rule = match symbol {
            Symbol::Terminal(GAP) => return Step::Lost,
            Symbol::Terminal(symbol) => return Step::Call { symbol, times },
            Symbol::Rule(rule) => rule,
        };
        let operations = self.length(rule, depth);
        if let Some(number) = self.numbers.get(&rule) {
            return Step::Again {
                times,
                number: *number,
                operations,
            };
        }
        if depth >= DEPTH_MAX {
            let operations = operations.saturating_mul(times);
            return Step::More {
                steps: 1,
                operations,
            };
        }
        let number = self.uses.get(&rule).is_some_and(|uses| *uses > 1);
        let number = number.then(|| {
            let number = self.numbers.len() as u32;
            self.numbers.insert(rule, number);
            number
        });
        let body = self.rules.get(&rule).map_or(&[][..], Vec::as_slice);
        Step::Loop {
            times,
            number,
            operations,
            body: self.body(body, depth + 1),
        }
    }

    fn operations(&mut self, symbol: Symbol, times: u32, depth: usize) -> u64 {
        let one = match symbol {
            Symbol::Terminal(GAP) => 0,
            Symbol::Terminal(_) => 1,
            Symbol::Rule(rule) => self.length(rule, depth),
        };
        one.saturating_mul(times.into())
    }

    /// How many operations a rule stands for. Rules nest as deep as the logarithm of their length, in practice; the bound
    /// is for grammars that were made to be deep.
    fn length(&mut self, rule: u32, depth: usize) -> u64 {
        if let Some(known) = self.lengths.get(&rule) {
            return *known;
        }
        if depth > 512 {
            return 0;
        }
        let rules = self.rules;
        let body = rules.get(&rule).map_or(&[][..], Vec::as_slice);
        let parts = body
            .iter()
            .map(|(s, times)| self.operations(*s, *times, depth + 1));
        let length = parts.fold(0u64, u64::saturating_add);
        self.lengths.insert(rule, length);
        length
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use presagio_grammar::Mode;

    fn of(symbols: &[u32]) -> Nested {
        let mut grammar = Grammar::new(Mode::Exact);
        symbols.iter().for_each(|s| grammar.append(*s));
        nested(&grammar)
    }

    /// What the steps stand for, where nothing is left out.
    fn expand(steps: &[Step], known: &mut HashMap<u32, Vec<u32>>) -> Vec<u32> {
        let mut out = Vec::new();
        for step in steps {
            match step {
                Step::Call { symbol, times } => out.extend(vec![*symbol; *times as usize]),
                Step::Loop {
                    times,
                    number,
                    body,
                    ..
                } => {
                    let one = expand(body, known);
                    number
                        .iter()
                        .for_each(|n| drop(known.insert(*n, one.clone())));
                    (0..*times).for_each(|_| out.extend(&one));
                }
                Step::Again { times, number, .. } => {
                    (0..*times).for_each(|_| out.extend(&known[number]));
                }
                Step::Lost | Step::More { .. } => {}
            }
        }
        out
    }

    #[test]
    fn loops_in_loops_are_shown_as_such() {
        // 50 times: open, 40 writes, a header, close.
        let one = [vec![1], vec![2; 40], vec![3, 4]].concat();
        let nested = of(&one.repeat(50));
        assert_eq!((nested.operations, nested.depth), (50 * 43, 1));
        assert_eq!(expand(&nested.steps, &mut HashMap::new()), one.repeat(50));
        let loops = nested
            .steps
            .iter()
            .filter(|s| matches!(s, Step::Loop { .. }));
        assert!(loops.count() >= 1, "{:?}", nested.steps);
    }

    #[test]
    fn what_is_shown_is_what_happened_whatever_it_is() {
        let streams: [Vec<u32>; 3] = [vec![], vec![5], (0..60u32).map(|n| n * n % 7).collect()];
        for stream in streams {
            let nested = of(&stream);
            assert_eq!(nested.operations, stream.len() as u64);
            assert_eq!(expand(&nested.steps, &mut HashMap::new()), stream);
        }
    }

    #[test]
    fn a_stream_without_order_is_cut_and_says_how_much_is_missing() {
        let nested = of(&(0..5000).collect::<Vec<u32>>());
        assert_eq!(nested.steps.len(), BODY.0 + BODY.1 + 1);
        let more = nested.steps.iter().find_map(|s| match s {
            Step::More { operations, .. } => Some(*operations),
            _ => None,
        });
        assert_eq!(more, Some(5000 - (BODY.0 + BODY.1) as u64));
    }
}
