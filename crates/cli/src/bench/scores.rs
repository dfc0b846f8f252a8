//! Scores of patterns beside each other (paper 000, VI-A): those of one benchmark should score more than others.

use super::Effort;
use super::pattern::accuracy::{Run, simulate, studies};
use crate::failure::failure;
use presagio_core::Op;
use presagio_pattern::{Pattern, Settings, Warper, plain};
use presagio_tune::Random;

/// Two patterns of the same benchmark, or of different ones.
pub struct Scored {
    pub is_alike: bool,
    /// The operation of the first, and how files are accessed.
    pub op: Op,
    pub label: String,
    pub score: f64,
}

/// Pairs of each of both that are compared: the paper compares all with all.
const PAIRS: usize = 20_000;

/// Repetitions that patterns are taken from: as the paper's first few.
const REPETITIONS: u64 = 3;

/// Scores of random pairs, by the greatest distance among them. Only patterns that mostly do `op`, if that is given.
pub fn scores(study: &str, settings: &Settings, op: Option<Op>) -> anyhow::Result<Vec<Scored>> {
    let mut studies = studies(Effort::Full).into_iter();
    let mut study = studies.find(|it| it.name == study).ok_or_else(|| {
        let advice = "this is a mistake of ours: please report it";
        failure(
            format!("no study \"{study}\""),
            "the bench has changed",
            advice,
        )
    })?;
    study.repetitions = REPETITIONS;
    let runs = simulate(&study, settings)?;
    let seen: Vec<(&Run, &Pattern)> = runs
        .iter()
        .flat_map(|run| run.places.iter().flatten().map(move |it| (run, it)))
        .filter(|(_, pattern)| op.is_none_or(|op| pattern.majority() == op))
        .collect();
    Ok(compared(&seen, settings))
}

fn compared(seen: &[(&Run, &Pattern)], settings: &Settings) -> Vec<Scored> {
    let mut random = Random::new(1);
    let mut warper = Warper::new(settings.distance);
    let mut left = [PAIRS; 2];
    let mut pairs = Vec::new();
    // Pairs of the same benchmark are rare: others are left out once there are enough of them.
    for _ in 0..100 * PAIRS {
        let mut any = || seen[random.below(seen.len() as u64) as usize];
        let ((run, a), (other, b)) = (any(), any());
        let is_alike = run.labels[1] == other.labels[1];
        if left[usize::from(is_alike)] > 0 {
            left[usize::from(is_alike)] -= 1;
            pairs.push((is_alike, run, a, warper.distance(a.points(), b.points())));
        }
        if left == [0; 2] {
            break;
        }
    }
    let greatest = pairs.iter().map(|pair| pair.3).max().unwrap_or(0);
    let scored = pairs
        .into_iter()
        .map(|(is_alike, run, a, distance)| Scored {
            is_alike,
            op: a.majority(),
            label: run.labels[1].clone(),
            score: plain::score(distance, greatest),
        });
    scored.collect()
}
