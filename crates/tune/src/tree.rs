//! Decision trees: what they ask, and what they answer.

use std::fmt::Write;

/// What a tree is asked about and what it may answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    /// What is known of a case, in the order of its values.
    pub features: Vec<Feature>,
    /// The answers.
    pub classes: Vec<String>,
}

/// Something that is known of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct Feature {
    /// Its name.
    pub name: String,
    /// What its values are.
    pub kind: Kind,
}

/// What the values of a feature are.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Numbers.
    Number,
    /// One of these; the value is its place, as a number.
    OneOf(Vec<String>),
}

impl Feature {
    /// A feature whose values are numbers.
    pub fn number(name: &str) -> Feature {
        Feature {
            name: name.to_owned(),
            kind: Kind::Number,
        }
    }

    /// A feature with few values.
    pub fn one_of(name: &str, values: &[&str]) -> Feature {
        Feature {
            name: name.to_owned(),
            kind: Kind::OneOf(values.iter().map(|&value| value.to_owned()).collect()),
        }
    }
}

/// A place in a tree.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// An answer, and how many of the cases that the tree was made from ended here.
    Leaf {
        /// Its place among the classes.
        class: usize,
        /// How many.
        cases: u64,
    },
    /// Is a number at most the threshold?
    Number {
        /// Which.
        feature: usize,
        /// The most that goes `below`.
        threshold: f64,
        /// Where it goes on if it is.
        below: Box<Node>,
        /// If it is not.
        above: Box<Node>,
    },
    /// One way on for each value of a feature that has few.
    OneOf {
        /// Which.
        feature: usize,
        /// By value.
        ways: Vec<Node>,
    },
}

impl Node {
    /// Answers below here.
    pub fn leaves(&self) -> usize {
        match self {
            Node::Leaf { .. } => 1,
            Node::Number { below, above, .. } => below.leaves() + above.leaves(),
            Node::OneOf { ways, .. } => ways.iter().map(Node::leaves).sum(),
        }
    }

    /// Places from here on, answers included.
    pub fn nodes(&self) -> usize {
        match self {
            Node::Leaf { .. } => 1,
            Node::Number { below, above, .. } => 1 + below.nodes() + above.nodes(),
            Node::OneOf { ways, .. } => 1 + ways.iter().map(Node::nodes).sum::<usize>(),
        }
    }

    /// Adds up the cases of all answers that there are from here on.
    fn vote(&self, values: &[Option<f64>], votes: &mut [u64]) {
        let ways: Vec<&Node> = match self {
            Node::Leaf { class, cases } => {
                votes[*class] += cases;
                return;
            }
            Node::Number {
                feature,
                threshold,
                below,
                above,
            } => match values[*feature] {
                Some(value) if value <= *threshold => vec![below],
                Some(_) => vec![above],
                None => vec![below, above],
            },
            Node::OneOf { feature, ways } => match values[*feature] {
                Some(value) => ways
                    .get(value as usize)
                    .or(ways.last())
                    .into_iter()
                    .collect(),
                None => ways.iter().collect(),
            },
        };
        ways.into_iter().for_each(|way| way.vote(values, votes));
    }

    /// Where a case goes on from here; none at an answer.
    fn step(&self, values: &[f64]) -> Option<&Node> {
        match self {
            Node::Leaf { .. } => None,
            Node::Number {
                feature,
                threshold,
                below,
                above,
            } => Some(match values[*feature] <= *threshold {
                true => below,
                false => above,
            }),
            // A value that there is not goes the last way.
            Node::OneOf { feature, ways } => {
                ways.get(values[*feature] as usize).or_else(|| ways.last())
            }
        }
    }
}

/// A decision tree.
#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    /// Its name.
    pub name: String,
    /// What it asks and answers.
    pub schema: Schema,
    /// Where it begins.
    pub root: Node,
}

impl Tree {
    /// The answer for a case: the place of the class.
    ///
    /// # Panics
    ///
    /// If there are fewer values than features.
    pub fn classify(&self, values: &[f64]) -> usize {
        let mut node = &self.root;
        while let Some(next) = node.step(values) {
            node = next;
        }
        match node {
            Node::Leaf { class, .. } => *class,
            _ => 0, // A question always has a way on.
        }
    }

    /// Of the cases that the tree was made from, how many it answers so, by the place of the class, among those that a case may be
    /// of which not everything is known.
    ///
    /// # Panics
    ///
    /// If there are fewer values than features.
    pub fn votes(&self, values: &[Option<f64>]) -> Vec<u64> {
        let mut votes = vec![0; self.schema.classes.len()];
        self.root.vote(values, &mut votes);
        votes
    }

    /// The name of the answer for a case.
    pub fn answer(&self, values: &[f64]) -> &str {
        &self.schema.classes[self.classify(values)]
    }

    /// Why that is the answer: what was asked on the way, in words.
    pub fn reason(&self, values: &[f64]) -> String {
        let (mut node, mut said) = (&self.root, String::new());
        loop {
            let separator = if said.is_empty() { "" } else { ", " };
            match node {
                Node::Leaf { cases, .. } => {
                    if said.is_empty() {
                        said.push_str("whatever it is");
                    }
                    // Writing to a string cannot fail.
                    let _ = write!(said, " ({cases} cases)");
                    return said;
                }
                Node::Number {
                    feature, threshold, ..
                } => {
                    let (name, value) = (&self.schema.features[*feature].name, values[*feature]);
                    let sign = if value <= *threshold { "≤" } else { ">" };
                    let (value, threshold) = (rounded(value), rounded(*threshold));
                    let _ = write!(said, "{separator}{name} {value} {sign} {threshold}");
                }
                Node::OneOf { feature, .. } => {
                    let Feature { name, kind } = &self.schema.features[*feature];
                    let value = match kind {
                        Kind::OneOf(names) => names.get(values[*feature] as usize),
                        Kind::Number => None,
                    };
                    let value = value.map_or("unknown", String::as_str);
                    let _ = write!(said, "{separator}{name} {value}");
                }
            }
            match node.step(values) {
                Some(next) => node = next,
                None => return said,
            }
        }
    }
}

/// With the digits that a person wants to see.
fn rounded(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        _ => {
            let text = format!("{value:.2}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(class: usize) -> Node {
        Node::Leaf { class, cases: 3 }
    }

    #[test]
    fn a_case_finds_its_answer_and_the_reason_in_words() {
        let tree = Tree {
            name: "small".to_owned(),
            schema: Schema {
                features: vec![
                    Feature::number("ratio"),
                    Feature::one_of("operation", &["read", "write"]),
                ],
                classes: vec!["none".to_owned(), "SJF".to_owned(), "aIOLi".to_owned()],
            },
            root: Node::Number {
                feature: 0,
                threshold: 2.5,
                below: Box::new(leaf(0)),
                above: Box::new(Node::OneOf {
                    feature: 1,
                    ways: vec![leaf(1), leaf(2)],
                }),
            },
        };
        assert_eq!(tree.answer(&[2.5, 1.0]), "none");
        assert_eq!(tree.answer(&[7.126, 1.0]), "aIOLi");
        let reason = tree.reason(&[7.126, 1.0]);
        assert_eq!(reason, "ratio 7.13 > 2.5, operation write (3 cases)");
        // What is not known may be anything.
        assert_eq!(tree.votes(&[None, Some(0.0)]), [3, 3, 0]);
        assert_eq!(tree.votes(&[Some(7.0), None]), [0, 3, 3]);
        assert_eq!(tree.votes(&[Some(2.0), None]), [3, 0, 0]);
        // What cannot be has an answer all the same.
        assert_eq!(tree.answer(&[f64::NAN, 9.0]), "aIOLi");
        assert_eq!((tree.root.leaves(), tree.root.nodes()), (3, 5));
    }
}
