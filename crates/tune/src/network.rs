//! Who shares files, and how? The neural network of paper 001 (V), and a tree as the alternative.
//!
//! Five features ([`Figure::PUBLISHED`] or, by default, [`Figure::OURS`]) are transformed (Yeo-Johnson, scale, centre) and go through a layer of five units with ReLU
//! and one of three with softmax: one unit for each [`Access`]. `presagio train --network` makes the weights; here they are
//! only used. They are a text:
//!
//! ```text
//! presagio network 1
//! feature NAME lambda L scale S centre C        five times: a name of `Figure`
//! hidden BIAS WEIGHT WEIGHT WEIGHT WEIGHT WEIGHT       five times
//! output CLASS BIAS WEIGHT WEIGHT WEIGHT WEIGHT WEIGHT three times, in the order of `Access::ALL`
//! end
//! ```

use crate::context::Access;
use crate::text::{self, TextError};
use crate::tree::{Feature, Schema, Tree};
use crate::watch::{Features, Figure};
use std::fmt::Write;

/// Units of the hidden layer, and features.
pub const HIDDEN: usize = 5;

/// How a feature is prepared: Yeo-Johnson with this exponent, by this scale, less this centre.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transform {
    /// The exponent λ.
    pub lambda: f64,
    /// The standard deviation of what was trained on.
    pub scale: f64,
    /// Its mean, after scaling.
    pub centre: f64,
}

impl Transform {
    /// What is made of a feature, none of which is negative. What lies far beyond all that was learned from counts as its border.
    pub fn apply(&self, value: f64) -> f64 {
        let prepared = power(value, self.lambda) / self.scale - self.centre;
        prepared.clamp(-FAR, FAR)
    }
}

/// Standard deviations beyond which a feature tells no more.
const FAR: f64 = 4.0;

/// Yeo-Johnson's power transform of a number that is not negative.
pub fn power(value: f64, lambda: f64) -> f64 {
    let log = libm::log1p(value.max(0.0));
    match lambda.abs() < 1e-9 {
        true => log,
        false => libm::expm1(lambda * log) / lambda,
    }
}

/// The network. See the module's header.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// What it looks at.
    pub figures: [Figure; 5],
    /// One for each of them.
    pub transforms: [Transform; 5],
    /// Of each hidden unit: bias, and a weight for each feature.
    pub hidden: [(f64, [f64; 5]); HIDDEN],
    /// Of each class: bias, and a weight for each hidden unit.
    pub output: [(f64, [f64; HIDDEN]); 3],
}

impl Network {
    /// The network that comes with Presagio, as `presagio train --network` made it.
    pub fn shipped() -> Network {
        // A test reads it, too.
        Network::from_text(include_str!("../networks/default.txt"))
            .expect("the text is part of this crate")
    }

    /// How likely each class is, in the order of [`Access::ALL`].
    pub fn probabilities(&self, features: &Features) -> [f64; 3] {
        let inputs = self.prepared(features);
        let hidden = self.hidden.map(|unit| weighted(&unit, &inputs).max(0.0));
        self.chances(&hidden)
    }

    /// What it looks at, transformed.
    pub(crate) fn prepared(&self, features: &Features) -> [f64; 5] {
        std::array::from_fn(|at| self.transforms[at].apply(features.value(self.figures[at])))
    }

    /// The last layer.
    pub(crate) fn chances(&self, hidden: &[f64; HIDDEN]) -> [f64; 3] {
        softmax(self.output.map(|unit| weighted(&unit, hidden)))
    }

    /// The most likely class.
    pub fn access(&self, features: &Features) -> Access {
        let chances = self.probabilities(features);
        let more = |best, at| {
            if chances[at] > chances[best] {
                at
            } else {
                best
            }
        };
        Access::ALL[(1..3).fold(0, more)]
    }

    /// The text, with some lines for people at its head.
    pub fn to_text(&self, about: &str) -> String {
        let mut out = format!("{HEAD}\n");
        about
            .lines()
            .for_each(|line| out.push_str(&format!("# {line}\n")));
        for (figure, it) in self.figures.iter().zip(&self.transforms) {
            let name = figure.name();
            let Transform {
                lambda,
                scale,
                centre,
            } = it;
            let _ = writeln!(
                out,
                "feature {name} lambda {lambda} scale {scale} centre {centre}"
            );
        }
        for (bias, weights) in &self.hidden {
            let _ = writeln!(out, "hidden {bias} {}", joined(weights));
        }
        for (access, (bias, weights)) in Access::ALL.iter().zip(&self.output) {
            let _ = writeln!(out, "output {access} {bias} {}", joined(weights));
        }
        out + "end\n"
    }

    /// Reads a text.
    pub fn from_text(text: &str) -> Result<Network, TextError> {
        let lines = text
            .lines()
            .enumerate()
            .map(|(at, line)| (at + 1, line.trim()));
        let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let mut next = |expected: &str| match lines.next() {
            Some((number, line)) => line
                .strip_prefix(expected)
                .map(|rest| (number, rest.split_whitespace().collect::<Vec<_>>()))
                .ok_or_else(|| wrong(number, format!("\"{line}\" where \"{expected}\" should be"))),
            None => Err(wrong(
                text.lines().count().max(1),
                format!("no line \"{expected}\""),
            )),
        };
        next(HEAD)?;
        let mut network = Network::zero();
        let both = network.figures.iter_mut().zip(&mut network.transforms);
        for (figure, transform) in both {
            let (line, words) = next("feature")?;
            (*figure, *transform) = feature_of(&words).map_err(|reason| wrong(line, reason))?;
        }
        for unit in &mut network.hidden {
            let (line, words) = next("hidden")?;
            *unit = unit_of(&words).map_err(|reason| wrong(line, reason))?;
        }
        for (access, unit) in Access::ALL.iter().zip(&mut network.output) {
            let (line, words) = next(&format!("output {access}"))?;
            *unit = unit_of(&words).map_err(|reason| wrong(line, reason))?;
        }
        next("end").map(|_| network)
    }

    /// All weights zero.
    pub fn zero() -> Network {
        let transform = Transform {
            lambda: 0.0,
            scale: 1.0,
            centre: 0.0,
        };
        Network {
            figures: Figure::OURS,
            transforms: [transform; 5],
            hidden: [(0.0, [0.0; 5]); HIDDEN],
            output: [(0.0, [0.0; HIDDEN]); 3],
        }
    }
}

const HEAD: &str = "presagio network 1";

fn weighted<const N: usize>((bias, weights): &(f64, [f64; N]), inputs: &[f64; N]) -> f64 {
    let pairs = weights.iter().zip(inputs);
    pairs.fold(*bias, |sum, (weight, input)| sum + weight * input)
}

fn softmax(values: [f64; 3]) -> [f64; 3] {
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers = values.map(|value| libm::exp(value - most));
    let sum: f64 = powers.iter().sum();
    powers.map(|power| power / sum)
}

fn joined(weights: &[f64]) -> String {
    let words: Vec<String> = weights.iter().map(f64::to_string).collect();
    words.join(" ")
}

fn wrong(line: usize, reason: impl Into<String>) -> TextError {
    TextError {
        line,
        reason: reason.into(),
    }
}

fn number(word: &str) -> Result<f64, String> {
    let parsed = word.parse().ok();
    parsed
        .filter(|number: &f64| number.is_finite() && number.abs() < 1e12)
        .ok_or_else(|| format!("\"{word}\" is no number that can be used"))
}

fn feature_of(words: &[&str]) -> Result<(Figure, Transform), String> {
    let [name, "lambda", lambda, "scale", scale, "centre", centre] = words else {
        return Err("a feature is written as NAME lambda L scale S centre C".to_owned());
    };
    let figure = Figure::named(name).ok_or_else(|| format!("there is no feature \"{name}\""))?;
    let transform = Transform {
        lambda: number(lambda)?,
        scale: number(scale)?,
        centre: number(centre)?,
    };
    match transform.scale > 0.0 && transform.lambda.abs() <= 5.0 {
        true => Ok((figure, transform)),
        false => Err("a scale is above 0, and lambda between -5 and 5".to_owned()),
    }
}

fn unit_of(words: &[&str]) -> Result<(f64, [f64; 5]), String> {
    let numbers: Vec<f64> = words
        .iter()
        .map(|word| number(word))
        .collect::<Result<_, _>>()?;
    match numbers[..] {
        [bias, a, b, c, d, e] => Ok((bias, [a, b, c, d, e])),
        _ => Err(format!(
            "{} numbers where a bias and 5 weights belong",
            numbers.len()
        )),
    }
}

/// What tells accesses apart.
#[derive(Clone, Debug, PartialEq)]
pub enum Detector {
    /// The network of paper 001.
    Network(Box<Network>),
    /// A tree, as thesis 4.3 has one, and what it looks at.
    Tree(Tree, Vec<Figure>),
}

impl Detector {
    /// The network that comes with Presagio.
    pub fn shipped() -> Detector {
        Detector::Network(Box::new(Network::shipped()))
    }

    /// What a tree for this asks and answers.
    pub fn schema(figures: &[Figure]) -> Schema {
        let features = figures.iter().map(|figure| Feature::number(figure.name()));
        Schema {
            features: features.collect(),
            classes: Access::ALL.map(|access| access.name().to_owned()).to_vec(),
        }
    }

    /// The name of a tree for this.
    pub const TREE: &str = "access";

    /// Reads the text of a network, or of trees of which one is called `access`.
    pub fn from_text(content: &str) -> Result<Detector, TextError> {
        if content.trim_start().starts_with(HEAD) {
            return Ok(Detector::Network(Box::new(Network::from_text(content)?)));
        }
        let mut trees = text::read(content)?.into_iter();
        let tree = trees.find(|tree| tree.name == Detector::TREE);
        let tree = tree.ok_or_else(|| wrong(1, "there is no tree access in it"))?;
        Detector::of_tree(tree)
            .ok_or_else(|| wrong(1, "the tree access asks or answers something else"))
    }

    /// A tree that serves; none if it asks or answers something else.
    pub fn of_tree(tree: Tree) -> Option<Detector> {
        let names = tree.schema.features.iter().map(|feature| &feature.name);
        let figures: Vec<Figure> = names
            .map(|name| Figure::named(name))
            .collect::<Option<_>>()?;
        let is_right = tree.schema == Detector::schema(&figures);
        is_right.then_some(Detector::Tree(tree, figures))
    }

    /// The text, with some lines for people at its head.
    pub fn to_text(&self, about: &str) -> String {
        match self {
            Detector::Network(network) => network.to_text(about),
            Detector::Tree(tree, _) => text::write(about, std::slice::from_ref(tree)),
        }
    }

    /// What these requests are taken for.
    pub fn access(&self, features: &Features) -> Access {
        match self {
            Detector::Network(network) => network.access(features),
            Detector::Tree(tree, figures) => {
                let values = figures.iter().map(|figure| features.value(*figure));
                Access::ALL[tree.classify(&values.collect::<Vec<_>>())]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_network_that_comes_with_it_can_be_read_and_tells_the_plain_cases() {
        let network = Network::shipped();
        let kib = 1024;
        let features = |handles, distance, stride| Features {
            handles,
            size_max: 32 * kib,
            size_min: 32 * kib,
            size_mean: (32 * kib) as f64,
            distance,
            stride,
        };
        assert_eq!(network.access(&features(128, 0.0, 0.0)), Access::OwnFiles);
        assert_eq!(
            network.access(&features(1, 1.5e9, 0.0)),
            Access::SharedContiguous
        );
        assert_eq!(
            network.access(&features(1, 2e6, 4e6)),
            Access::SharedStrided
        );
    }

    #[test]
    fn a_tree_serves_as_well_and_nothing_else_does() {
        let tree = Detector::of_tree(Tree {
            name: Detector::TREE.to_owned(),
            schema: Detector::schema(&Figure::OURS),
            root: crate::tree::Node::Leaf { class: 2, cases: 1 },
        });
        let tree = tree.expect("it asks what there is");
        let text = tree.to_text("for people");
        assert_eq!(Detector::from_text(&text), Ok(tree));
        for wrong in [
            text.replace("access", "excess"),
            text.replace("handles", "hands"),
        ] {
            assert!(Detector::from_text(&wrong).is_err());
        }
        let network = Detector::shipped();
        assert_eq!(Detector::from_text(&network.to_text("")), Ok(network));
    }

    #[test]
    fn yeo_johnson_is_a_logarithm_at_0_and_the_identity_at_1() {
        for value in [0.0, 1.0, 1e3, 1e9] {
            assert!((power(value, 1.0) - value).abs() <= 1e-9 * value);
            assert_eq!(power(value, 0.0), libm::log1p(value));
        }
        assert!((power(8.0, 0.5) - 4.0).abs() < 1e-12);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let text = Network::zero().to_text("for people");
        for (from, to, said) in [
            ("network 1", "network 2", "line 1"),
            ("handles", "hands", "line 3: there is no feature"),
            ("scale 1", "scale 0", "a scale is above 0"),
            ("hidden 0 0", "hidden 0 NaN", "is no number"),
            ("hidden 0 0", "hidden 0", "5 numbers where"),
            ("end", "", "no line \"end\""),
        ] {
            let error = Network::from_text(&text.replacen(from, to, 1));
            let error = error.expect_err(to).to_string();
            assert!(error.contains(said), "{to}: {error}");
        }
    }

    fn units() -> impl Strategy<Value = (f64, [f64; 5])> {
        (-9.0..9.0, prop::array::uniform5(-9.0..9.0))
    }

    proptest! {
        #[test]
        fn every_network_is_read_back_and_its_chances_add_up(
            hidden in prop::array::uniform5(units()),
            output in prop::array::uniform3(units()),
            figures in prop::array::uniform5(prop::sample::select(Figure::ALL.as_slice())),
            handles in 1_u64..1000, size in 1_u64..1 << 40, distance in 0.0..1e12, stride in 0.0..1e12,
        ) {
            let network = Network { figures, hidden, output, ..Network::zero() };
            prop_assert_eq!(Network::from_text(&network.to_text("two\nlines")), Ok(network.clone()));
            let features = Features {
                handles, size_max: size, size_min: size, size_mean: size as f64, distance, stride,
            };
            let sum: f64 = network.probabilities(&features).iter().sum();
            prop_assert!((sum - 1.0).abs() < 1e-9);
        }
    }
}
