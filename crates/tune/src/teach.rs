//! Makes the weights of a [`Network`] as paper 001 did (V-A): Yeo-Johnson with the exponent of the greatest likelihood, scale,
//! centre; then RMSProp with momentum on categorical cross-entropy, in batches.
//!
//! It is our own because it is 48 weights and a page of arithmetic, and because the same seed has to give the same text on every
//! machine: the frameworks that could do it bring hundreds of crates, and kernels whose sums depend on the processor.

use crate::Random;
use crate::context::Access;
use crate::network::{HIDDEN, Network, Transform, power};
use crate::watch::{Features, Figure};

/// One observation, and what it is of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lesson {
    /// What was seen.
    pub features: Features,
    /// What it was.
    pub access: Access,
}

/// How to teach. The defaults are the paper's, but for what is looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Teaching {
    /// What the network looks at.
    pub figures: [Figure; 5],
    /// Passes over all lessons.
    pub epochs: u32,
    /// Lessons between two changes of the weights.
    pub batch: usize,
    /// How far a change goes.
    pub rate: f64,
    /// How much of the last change is repeated.
    pub momentum: f64,
    /// Where the first weights and the order of lessons come from.
    pub seed: u64,
}

impl Default for Teaching {
    fn default() -> Teaching {
        Teaching {
            figures: Figure::OURS,
            epochs: 50,
            batch: 32,
            rate: 0.001,
            momentum: 0.9,
            seed: 1,
        }
    }
}

/// Weights of the network: five units of a bias and five weights each, then three.
const WEIGHTS: usize = HIDDEN * 6 + 3 * 6;

/// Of squared gradients RMSProp remembers this share.
const REMEMBERED: f64 = 0.9;

/// A network that has had these lessons. None are needed for all weights to be numbers, some for them to mean anything.
pub fn teach(lessons: &[Lesson], teaching: &Teaching) -> Network {
    let blank = Network {
        figures: teaching.figures,
        transforms: fit(lessons, &teaching.figures),
        ..Network::zero()
    };
    let prepared: Vec<([f64; 5], usize)> = lessons
        .iter()
        .map(|lesson| (blank.prepared(&lesson.features), lesson.access as usize))
        .collect();
    let mut random = Random::new(teaching.seed);
    let mut weights = first_weights(&mut random);
    let (mut squares, mut changes) = ([0.0; WEIGHTS], [0.0; WEIGHTS]);
    let mut order: Vec<usize> = (0..prepared.len()).collect();
    for _ in 0..teaching.epochs {
        random.shuffle(&mut order);
        for batch in order.chunks(teaching.batch.max(1)) {
            let gradient = mean_gradient(&weights, batch.iter().map(|at| &prepared[*at]));
            for at in 0..WEIGHTS {
                let slope: f64 = gradient[at];
                squares[at] = REMEMBERED * squares[at] + (1.0 - REMEMBERED) * slope * slope;
                let step = teaching.rate * slope / (squares[at].sqrt() + 1e-7);
                changes[at] = teaching.momentum * changes[at] + step;
                weights[at] -= changes[at];
            }
        }
    }
    network(&blank, &weights)
}

/// The best of so many networks that began with other weights: the one with the least loss over lessons that none of them had.
pub fn teach_best(
    lessons: &[Lesson],
    others: &[Lesson],
    teaching: &Teaching,
    starts: u64,
) -> Network {
    let one = |start: u64| {
        let seed = teaching.seed.wrapping_mul(STARTS_MAX).wrapping_add(start);
        teach(lessons, &Teaching { seed, ..*teaching })
    };
    let all = (0..starts.clamp(1, STARTS_MAX)).map(one);
    let judged = all.map(|network| (loss(&network, others), network));
    let best = judged.min_by(|a, b| a.0.total_cmp(&b.0));
    best.map_or_else(Network::zero, |(_, network)| network)
}

/// Beginnings that a seed stands for.
const STARTS_MAX: u64 = 1000;

/// Categorical cross-entropy of a network over some lessons.
pub fn loss(network: &Network, lessons: &[Lesson]) -> f64 {
    let of = |lesson: &Lesson| {
        let chances = network.probabilities(&lesson.features);
        -libm::log(chances[lesson.access as usize].max(1e-12))
    };
    lessons.iter().map(of).sum::<f64>() / lessons.len().max(1) as f64
}

// ── Transforms ───────────────────────────────────────────────────────────────────────────────────────────────────────

fn fit(lessons: &[Lesson], figures: &[Figure; 5]) -> [Transform; 5] {
    figures.map(|figure| {
        let column = lessons.iter().map(|lesson| lesson.features.value(figure));
        fit_one(&column.collect::<Vec<_>>())
    })
}

/// The exponent under which values are most like a normal distribution, then what makes their deviation 1 and mean 0.
fn fit_one(values: &[f64]) -> Transform {
    let lambda = most_likely(values);
    let changed: Vec<f64> = values.iter().map(|value| power(*value, lambda)).collect();
    let (mean, variance) = moments(&changed);
    let scale = if variance > 1e-18 {
        variance.sqrt()
    } else {
        1.0
    };
    Transform {
        lambda,
        scale,
        centre: mean / scale,
    }
}

fn moments(values: &[f64]) -> (f64, f64) {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares = values.iter().map(|value| (value - mean) * (value - mean));
    (mean, squares.sum::<f64>() / count)
}

/// The logarithm of the likelihood of an exponent (Yeo and Johnson 2000, Eq. 3.1), for values that are not negative.
fn likelihood(values: &[f64], lambda: f64) -> f64 {
    let changed: Vec<f64> = values.iter().map(|value| power(*value, lambda)).collect();
    let variance = moments(&changed).1.max(1e-300);
    let logs: f64 = values.iter().map(|value| libm::log1p(*value)).sum();
    -0.5 * values.len() as f64 * libm::log(variance) + (lambda - 1.0) * logs
}

/// Golden-section search between -2 and 2, as far as figures in a text go.
fn most_likely(values: &[f64]) -> f64 {
    let golden = (5.0_f64.sqrt() - 1.0) / 2.0;
    let (mut low, mut high) = (-2.0, 2.0);
    for _ in 0..40 {
        let (a, b) = (high - golden * (high - low), low + golden * (high - low));
        match likelihood(values, a) > likelihood(values, b) {
            true => high = b,
            false => low = a,
        }
    }
    (low + high) / 2.0
}

// ── Weights ──────────────────────────────────────────────────────────────────────────────────────────────────────────

/// Normally distributed weights and no bias.
fn first_weights(random: &mut Random) -> [f64; WEIGHTS] {
    let mut normal = || {
        let uniform = (0..12).map(|_| (random.number() >> 11) as f64 / (1_u64 << 53) as f64);
        uniform.sum::<f64>() - 6.0
    };
    // Wide enough for no unit to be dead, narrow enough for none to be sure.
    std::array::from_fn(|at| if at % 6 == 0 { 0.0 } else { 0.5 * normal() })
}

fn network(blank: &Network, weights: &[f64; WEIGHTS]) -> Network {
    let unit = |at: usize| {
        let unit = &weights[6 * at..6 * at + 6];
        (unit[0], std::array::from_fn(|weight| unit[weight + 1]))
    };
    Network {
        hidden: std::array::from_fn(unit),
        output: std::array::from_fn(|at| unit(HIDDEN + at)),
        ..blank.clone()
    }
}

fn mean_gradient<'a>(
    weights: &[f64; WEIGHTS],
    batch: impl Iterator<Item = &'a ([f64; 5], usize)>,
) -> [f64; WEIGHTS] {
    let (mut sum, mut count) = ([0.0; WEIGHTS], 0.0);
    for (inputs, class) in batch {
        add_gradient(weights, inputs, *class, &mut sum);
        count += 1.0;
    }
    sum.map(|slope| slope / f64::max(count, 1.0))
}

/// Back-propagation for one lesson.
fn add_gradient(
    weights: &[f64; WEIGHTS],
    inputs: &[f64; 5],
    class: usize,
    sum: &mut [f64; WEIGHTS],
) {
    let net = network(&Network::zero(), weights);
    let before = net.hidden.map(|(bias, unit)| bias + dot(&unit, inputs));
    let hidden = before.map(|value| value.max(0.0));
    let chances = net.chances(&hidden);
    let mut back = [0.0; HIDDEN];
    for (unit, chance) in chances.iter().enumerate() {
        let error = chance - f64::from(u8::from(unit == class));
        let at = 6 * (HIDDEN + unit);
        sum[at] += error;
        for from in 0..HIDDEN {
            sum[at + 1 + from] += error * hidden[from];
            back[from] += error * net.output[unit].1[from];
        }
    }
    for unit in (0..HIDDEN).filter(|unit| before[*unit] > 0.0) {
        sum[6 * unit] += back[unit];
        for (from, input) in inputs.iter().enumerate() {
            sum[6 * unit + 1 + from] += back[unit] * input;
        }
    }
}

fn dot(a: &[f64; 5], b: &[f64; 5]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lessons that a person could tell apart.
    fn lessons(seed: u64, count: usize) -> Vec<Lesson> {
        let mut random = Random::new(seed);
        let mut lesson = |at: usize| {
            let access = Access::ALL[at % 3];
            let size = 1_u64 << (12 + random.below(8));
            let (handles, distance) = match access {
                Access::OwnFiles => (8 + random.below(500), random.below(size)),
                Access::SharedContiguous => (1, (1 << 29) + random.below(1 << 31)),
                Access::SharedStrided => (1, size * (4 + random.below(200))),
            };
            let stride = match access {
                Access::SharedStrided => size * (4 + random.below(200)),
                _ => random.below(size),
            };
            let features = Features {
                handles,
                size_max: size,
                size_min: size,
                size_mean: size as f64,
                distance: distance as f64,
                stride: stride as f64,
            };
            Lesson { features, access }
        };
        (0..count).map(&mut lesson).collect()
    }

    #[test]
    fn what_can_be_told_apart_is_learned() {
        let other = lessons(2, 1000);
        for figures in [Figure::PUBLISHED, Figure::OURS] {
            let teaching = Teaching {
                figures,
                ..Teaching::default()
            };
            let network = teach(&lessons(1, 3000), &teaching);
            let right = other
                .iter()
                .filter(|it| network.access(&it.features) == it.access)
                .count();
            assert!(right >= 990, "{right} of 1000");
            assert!(loss(&network, &other) < 0.1);
        }
    }

    #[test]
    fn of_several_beginnings_the_best_is_taken() {
        let teaching = Teaching {
            epochs: 2,
            ..Teaching::default()
        };
        let (learned, others) = (lessons(1, 300), lessons(2, 300));
        let of = |starts| loss(&teach_best(&learned, &others, &teaching, starts), &others);
        let losses = [1, 4, 16].map(of);
        assert!(losses.is_sorted_by(|a, b| a >= b), "{losses:?}");
        assert!(losses[2] < losses[0], "{losses:?}");
    }

    #[test]
    fn the_same_seed_gives_the_same_text() {
        let text = |seed| {
            let teaching = Teaching {
                epochs: 2,
                seed,
                ..Teaching::default()
            };
            teach(&lessons(1, 300), &teaching).to_text("")
        };
        assert_eq!(text(1), text(1));
        assert_ne!(text(1), text(2));
    }

    #[test]
    fn the_gradient_is_the_slope_of_the_loss() {
        let mut random = Random::new(5);
        let weights = first_weights(&mut random).map(|weight| weight + 0.01);
        let inputs = [0.3, -1.2, 0.7, 2.0, -0.4];
        let loss = |weights: &[f64; WEIGHTS]| {
            let net = network(&Network::zero(), weights);
            let hidden = net
                .hidden
                .map(|(bias, unit)| (bias + dot(&unit, &inputs)).max(0.0));
            -net.chances(&hidden)[1].ln()
        };
        let mut gradient = [0.0; WEIGHTS];
        add_gradient(&weights, &inputs, 1, &mut gradient);
        for at in 0..WEIGHTS {
            let (mut up, mut down) = (weights, weights);
            up[at] += 1e-6;
            down[at] -= 1e-6;
            let slope = (loss(&up) - loss(&down)) / 2e-6;
            assert!(
                (slope - gradient[at]).abs() < 1e-5,
                "{at}: {slope} {}",
                gradient[at]
            );
        }
    }

    #[test]
    fn without_lessons_there_is_a_network_all_the_same() {
        let network = teach(&[], &Teaching::default());
        assert_eq!(Network::from_text(&network.to_text("")), Ok(network));
    }

    #[test]
    fn the_exponent_makes_a_lognormal_normal() {
        let mut random = Random::new(3);
        let mut value = || {
            let uniform = (0..12).map(|_| random.below(1 << 20) as f64 / f64::from(1 << 20));
            libm::exp(2.0 * (uniform.sum::<f64>() - 6.0) + 8.0)
        };
        let values: Vec<f64> = (0..2000).map(|_| value()).collect();
        assert!(
            most_likely(&values).abs() < 0.05,
            "{}",
            most_likely(&values)
        );
        let Transform {
            lambda,
            scale,
            centre,
        } = fit_one(&values);
        // Without the border beyond which values tell no more.
        let prepared = |value: &f64| power(*value, lambda) / scale - centre;
        let changed: Vec<f64> = values.iter().map(prepared).collect();
        let (mean, variance) = moments(&changed);
        assert!(mean.abs() < 1e-9 && (variance - 1.0).abs() < 1e-9);
    }
}
