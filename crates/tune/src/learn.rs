//! Makes trees from cases: binary and multiway splits by Gini's index, pruned by cost and size (CART, Breiman et al. 1984).
//!
//! A case may say what each answer would cost (how much longer a program takes than with the best policy). Then a case
//! counts as much as a wrong answer would cost, an answer is the one that costs least over the cases that end there, and
//! pruning weighs costs. Without costs a wrong answer costs 1.
//!
//! How much to prune is found by cross-validation: cases are dealt to folds at random, and each fold judges trees that were made
//! from the others. The same cases and seed give the same tree on every machine: nothing but sums, products and quotients is
//! computed.

use crate::random::Random;
use crate::tree::{Kind, Node, Schema, Tree};

/// What is known of a case, and what the right answer is.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// By feature.
    pub values: Vec<f64>,
    /// The right answer.
    pub class: usize,
    /// What each answer costs, the right one nothing; empty if all wrong ones cost 1.
    pub costs: Vec<f64>,
}

impl Case {
    fn cost(&self, class: usize) -> f64 {
        match self.costs.get(class) {
            Some(cost) => *cost,
            None => f64::from(u8::from(class != self.class)),
        }
    }

    /// How much it matters. One answer that is out of all proportion is not more than wrong.
    fn weight(&self) -> f64 {
        match self.costs.len() {
            0 => 1.0,
            many => self.costs.iter().map(|c| c.min(1.0)).sum::<f64>() / many as f64 + 1e-6,
        }
    }
}

/// How a tree is made.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Fewer cases than this are not told apart.
    pub leaf_min: usize,
    /// No more questions than this for one answer.
    pub depth_max: usize,
    /// Parts that the cases are dealt to.
    pub folds: usize,
    /// Who gets which.
    pub seed: u64,
    /// By case, the group that it belongs to: what comes from one run is alike, and goes to one fold, or a fold would be
    /// judged by trees that have seen it. Empty if each case is its own.
    pub groups: Vec<usize>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            leaf_min: 2,
            depth_max: 24,
            folds: 10,
            seed: 1,
            groups: Vec::new(),
        }
    }
}

/// A tree for these cases, and what a question has to save to be worth asking.
pub fn train(name: &str, schema: &Schema, cases: &[Case], options: &Options) -> (Tree, f64) {
    let all: Vec<usize> = (0..cases.len()).collect();
    let grown = grow(schema, cases, all, options);
    let prices = prices(&grown);
    let mut costs = vec![0.0; prices.len()];
    for (inside, outside) in folds(cases.len(), options) {
        let grown = grow(schema, cases, inside, options);
        for (price, cost) in prices.iter().zip(&mut costs) {
            let tree = tree(name, schema, pruned(&grown, *price).0);
            let of = |at: &usize| cases[*at].cost(tree.classify(&cases[*at].values));
            *cost += outside.iter().map(of).sum::<f64>();
        }
    }
    // The smallest of the trees that did best.
    let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
    let best = costs.iter().rposition(|cost| *cost <= least).unwrap_or(0);
    let price = prices[best];
    (tree(name, schema, pruned(&grown, price).0), price)
}

/// What trees answer that were made without the case: one answer for each.
pub fn cross_validate(
    schema: &Schema,
    cases: &[Case],
    price: f64,
    options: &Options,
) -> Vec<usize> {
    let mut answers = vec![0; cases.len()];
    for (inside, outside) in folds(cases.len(), options) {
        let tree = tree(
            "",
            schema,
            pruned(&grow(schema, cases, inside, options), price).0,
        );
        for at in outside {
            answers[at] = tree.classify(&cases[at].values);
        }
    }
    answers
}

fn tree(name: &str, schema: &Schema, root: Node) -> Tree {
    Tree {
        name: name.to_owned(),
        schema: schema.clone(),
        root,
    }
}

/// For each fold, the cases that are not in it and those that are.
fn folds(count: usize, options: &Options) -> Vec<(Vec<usize>, Vec<usize>)> {
    let group = |at: usize| options.groups.get(at).copied().unwrap_or(at);
    let groups = (0..count).map(|at| group(at) + 1).max().unwrap_or(0);
    let mut dealt: Vec<usize> = (0..groups).map(|at| at % options.folds.max(2)).collect();
    Random::new(options.seed).shuffle(&mut dealt);
    let of = |fold: usize| (0..count).partition(|at| dealt[group(*at)] != fold);
    (0..options.folds.max(2)).map(of).collect()
}

/// A place in a tree that can still be an answer or a question.
struct Grown {
    class: usize,
    cases: u64,
    /// What it costs as an answer.
    cost: f64,
    question: Option<(Question, Vec<Grown>)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Question {
    Number { feature: usize, threshold: f64 },
    OneOf { feature: usize },
}

fn grow(schema: &Schema, cases: &[Case], all: Vec<usize>, options: &Options) -> Grown {
    let mut root = answer(schema, cases, &all, 0);
    split(&mut root, schema, cases, all, options, options.depth_max);
    root
}

fn split(
    node: &mut Grown,
    schema: &Schema,
    cases: &[Case],
    mut all: Vec<usize>,
    options: &Options,
    depth: usize,
) {
    if depth == 0 || all.len() < 2 * options.leaf_min || node.cost <= 0.0 {
        return;
    }
    let Some(question) = best_question(schema, cases, &mut all, options) else {
        return;
    };
    let mut ways = vec![Vec::new(); ways(schema, question)];
    for at in all {
        let way = way(question, &cases[at].values, ways.len());
        ways[way].push(at);
    }
    let grow = |cases_of_way: Vec<usize>| {
        let mut below = answer(schema, cases, &cases_of_way, node.class);
        split(&mut below, schema, cases, cases_of_way, options, depth - 1);
        below
    };
    let below = ways.into_iter().map(grow).collect();
    node.question = Some((question, below));
}

fn ways(schema: &Schema, question: Question) -> usize {
    match question {
        Question::Number { .. } => 2,
        Question::OneOf { feature } => match &schema.features[feature].kind {
            Kind::OneOf(values) => values.len(),
            Kind::Number => 1,
        },
    }
}

fn way(question: Question, values: &[f64], ways: usize) -> usize {
    match question {
        Question::Number { feature, threshold } => usize::from(values[feature] > threshold),
        Question::OneOf { feature } => (values[feature] as usize).min(ways - 1),
    }
}

/// The answer that costs least. Where there is no case, that of the place above.
fn answer(schema: &Schema, cases: &[Case], all: &[usize], above: usize) -> Grown {
    let cost = |class: usize| all.iter().map(|at| cases[*at].cost(class)).sum::<f64>();
    let costs: Vec<f64> = (0..schema.classes.len()).map(cost).collect();
    let mut class = above;
    if !all.is_empty() {
        let better = |best, at| if costs[at] < costs[best] { at } else { best };
        class = (0..costs.len()).reduce(better).unwrap_or(above);
    }
    Grown {
        class,
        cases: all.len() as u64,
        cost: costs.get(class).copied().unwrap_or(0.0),
        question: None,
    }
}

/// The question that leaves least doubt; none if none leaves less than there is.
fn best_question(
    schema: &Schema,
    cases: &[Case],
    all: &mut [usize],
    options: &Options,
) -> Option<Question> {
    let classes = schema.classes.len();
    let mut total = Doubt::new(classes);
    all.iter().for_each(|at| total.add(&cases[*at]));
    let mut best = (total.doubt() * (1.0 - 1e-9) - 1e-12, None);
    for (feature, Kinded { ways }) in schema.features.iter().map(Kinded::of).enumerate() {
        let found = match ways {
            0 => best_threshold(cases, all, feature, &total, options.leaf_min),
            ways => one_of(cases, all, feature, ways, classes),
        };
        if let Some((doubt, question)) = found
            && doubt < best.0
        {
            best = (doubt, Some(question));
        }
    }
    best.1
}

/// How many ways a feature has; a number has none to be listed.
struct Kinded {
    ways: usize,
}

impl Kinded {
    fn of(feature: &crate::tree::Feature) -> Kinded {
        Kinded {
            ways: match &feature.kind {
                Kind::Number => 0,
                Kind::OneOf(values) => values.len(),
            },
        }
    }
}

fn best_threshold(
    cases: &[Case],
    all: &mut [usize],
    feature: usize,
    total: &Doubt,
    leaf_min: usize,
) -> Option<(f64, Question)> {
    let value = |at: usize| cases[at].values[feature];
    // By case where values are equal, so that sums are added in one order.
    all.sort_unstable_by(|a, b| value(*a).total_cmp(&value(*b)).then(a.cmp(b)));
    let (mut below, mut above) = (Doubt::new(total.weights.len()), total.clone());
    let mut best: Option<(f64, Question)> = None;
    for (count, two) in all.windows(2).enumerate() {
        below.add(&cases[two[0]]);
        above.take(&cases[two[0]]);
        let (low, high) = (value(two[0]), value(two[1]));
        let enough = count + 1 >= leaf_min && all.len() - count > leaf_min;
        if low >= high || !enough {
            continue;
        }
        let doubt = below.doubt() + above.doubt();
        if best.is_none_or(|(least, _)| doubt < least) {
            let middle = low + (high - low) / 2.0;
            // Between neighbours there may be nothing.
            let threshold = if middle < high { middle } else { low };
            best = Some((doubt, Question::Number { feature, threshold }));
        }
    }
    best
}

fn one_of(
    cases: &[Case],
    all: &[usize],
    feature: usize,
    ways: usize,
    classes: usize,
) -> Option<(f64, Question)> {
    let mut each = vec![Doubt::new(classes); ways];
    for at in all {
        let way = (cases[*at].values[feature] as usize).min(ways - 1);
        each[way].add(&cases[*at]);
    }
    let used = each.iter().filter(|doubt| doubt.sum > 0.0).count();
    let doubt = each.iter().map(Doubt::doubt).sum();
    (used > 1).then_some((doubt, Question::OneOf { feature }))
}

/// Gini's index of some cases, times their weight.
#[derive(Clone)]
struct Doubt {
    weights: Vec<f64>,
    sum: f64,
}

impl Doubt {
    fn new(classes: usize) -> Doubt {
        Doubt {
            weights: vec![0.0; classes],
            sum: 0.0,
        }
    }

    fn add(&mut self, case: &Case) {
        let weight = case.weight();
        self.weights[case.class] += weight;
        self.sum += weight;
    }

    fn take(&mut self, case: &Case) {
        let weight = case.weight();
        self.weights[case.class] -= weight;
        self.sum -= weight;
    }

    fn doubt(&self) -> f64 {
        if self.sum <= 0.0 {
            return 0.0;
        }
        let squares: f64 = self.weights.iter().map(|weight| weight * weight).sum();
        self.sum - squares / self.sum
    }
}

/// The tree in which no question saves less than `price` an answer, and what it costs with that.
fn pruned(grown: &Grown, price: f64) -> (Node, f64) {
    let leaf = Node::Leaf {
        class: grown.class,
        cases: grown.cases,
    };
    let alone = grown.cost + price;
    let Some((question, below)) = &grown.question else {
        return (leaf, alone);
    };
    let mut ways: Vec<(Node, f64)> = below.iter().map(|way| pruned(way, price)).collect();
    let together: f64 = ways.iter().map(|way| way.1).sum();
    if alone <= together + 1e-9 {
        return (leaf, alone);
    }
    let node = match *question {
        Question::OneOf { feature } => Node::OneOf {
            feature,
            ways: ways.into_iter().map(|way| way.0).collect(),
        },
        Question::Number { feature, threshold } => {
            let above = Box::new(ways.remove(1).0);
            let below = Box::new(ways.remove(0).0);
            Node::Number {
                feature,
                threshold,
                below,
                above,
            }
        }
    };
    (node, together)
}

/// Prices to try: what the questions of a tree save, from nothing on. Many are thinned out.
fn prices(grown: &Grown) -> Vec<f64> {
    let mut all = vec![0.0];
    saved(grown, &mut all);
    all.sort_unstable_by(f64::total_cmp);
    all.dedup_by(|a, b| *a <= *b * (1.0 + 1e-9));
    let step = all.len().div_ceil(40).max(1);
    all.into_iter().step_by(step).collect()
}

/// What each question saves an answer; what it costs with all questions below, and how many answers there are.
fn saved(grown: &Grown, all: &mut Vec<f64>) -> (f64, usize) {
    let Some((_, below)) = &grown.question else {
        return (grown.cost, 1);
    };
    let each = below.iter().map(|way| saved(way, all));
    let (cost, leaves) = each.fold((0.0, 0), |sum, way| (sum.0 + way.0, sum.1 + way.1));
    if leaves > 1 {
        all.push(((grown.cost - cost) / (leaves - 1) as f64).max(0.0));
    }
    (cost, leaves)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Feature;
    use proptest::prelude::*;

    fn schema() -> Schema {
        Schema {
            features: vec![
                Feature::number("x"),
                Feature::one_of("kind", &["a", "b"]),
                Feature::number("noise"),
            ],
            classes: vec!["low".to_owned(), "high".to_owned()],
        }
    }

    /// High where x is above 10 and kind is b; some are wrong.
    fn cases(count: u64, wrong_in: u64, seed: u64) -> Vec<Case> {
        let mut random = Random::new(seed);
        let mut case = |_| {
            let (x, kind) = (random.below(20) as f64, random.below(2) as f64);
            let noise = random.below(1000) as f64;
            let high = usize::from(x > 10.0 && kind == 1.0);
            let wrong = wrong_in > 0 && random.below(wrong_in) == 0;
            Case {
                values: vec![x, kind, noise],
                class: high ^ usize::from(wrong),
                costs: Vec::new(),
            }
        };
        (0..count).map(&mut case).collect()
    }

    #[test]
    fn what_can_be_told_apart_is() {
        let cases = cases(400, 0, 7);
        let (tree, price) = train("t", &schema(), &cases, &Options::default());
        assert!(
            cases
                .iter()
                .all(|case| tree.classify(&case.values) == case.class)
        );
        assert_eq!(tree.root.leaves(), 3, "{:?}", tree.root);
        let answers = cross_validate(&schema(), &cases, price, &Options::default());
        let right = answers.iter().zip(&cases).filter(|(a, c)| **a == c.class);
        assert!(right.count() >= 396);
    }

    #[test]
    fn noise_is_pruned_away() {
        let (train_on, judge_by) = (cases(600, 10, 1), cases(600, 0, 2));
        let (tree, _) = train("t", &schema(), &train_on, &Options::default());
        assert!(tree.root.leaves() <= 6, "{} leaves", tree.root.leaves());
        let right = judge_by
            .iter()
            .filter(|c| tree.classify(&c.values) == c.class);
        assert!(right.count() >= 570);
    }

    #[test]
    fn an_answer_is_the_one_that_costs_least_not_the_most_frequent() {
        let case = |class: usize, costs: [f64; 2]| Case {
            values: vec![0.0, 0.0, 0.0],
            class,
            costs: costs.to_vec(),
        };
        let mut cases = vec![case(0, [0.0, 0.01]); 9];
        cases.push(case(1, [3.0, 0.0]));
        let (tree, _) = train("t", &schema(), &cases, &Options::default());
        assert_eq!(tree.answer(&[0.0, 0.0, 0.0]), "high");
    }

    #[test]
    fn a_group_is_never_on_both_sides_of_a_fold() {
        let groups: Vec<usize> = (0..200).map(|at| at / 7).collect();
        let options = Options {
            groups: groups.clone(),
            ..Options::default()
        };
        let mut judged = 0;
        for (inside, outside) in folds(200, &options) {
            let of = |all: &[usize]| all.iter().map(|at| groups[*at]).collect::<Vec<_>>();
            let taught = of(&inside);
            assert!(of(&outside).iter().all(|group| !taught.contains(group)));
            judged += outside.len();
        }
        assert_eq!(judged, 200);
    }

    #[test]
    fn a_tree_of_nothing_answers_all_the_same() {
        let (tree, _) = train("t", &schema(), &[], &Options::default());
        assert_eq!(tree.classify(&[1.0, 0.0, 0.0]), 0);
    }

    proptest! {
        #[test]
        fn the_same_cases_and_seed_give_the_same_tree(seed in any::<u64>(), wrong in 2_u64..20) {
            let cases = cases(60, wrong, seed);
            let options = Options { seed, ..Options::default() };
            let (first, price) = train("t", &schema(), &cases, &options);
            prop_assert_eq!(&train("t", &schema(), &cases, &options).0, &first);
            let text = crate::text::write("", std::slice::from_ref(&first));
            prop_assert_eq!(crate::text::read(&text), Ok(vec![first]));
            prop_assert!(price >= 0.0);
        }
    }
}
