//! What the rounds of a comparison add up to: one result per policy, and a conclusion that leaves chance out.
//!
//! Storage is never equally fast twice. A policy counts with its median round, and the rounds' distance from
//! each other is its spread. Only where the slowest round of one is clearly faster than the fastest round of the
//! other is there a difference to speak of.

use super::Policy;
use super::serve::Served;
use presagio_sched::PolicyKind;
use std::time::Duration;

/// Gains below this are not worth a sentence, however steady.
const WORTH_NAMING: f64 = 1.1;

/// What came of one policy over all rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried {
    pub policy: Policy,
    /// Every round's time, in the order of the rounds.
    pub rounds: Vec<Duration>,
    /// The median round's time.
    pub seconds: f64,
    /// Half the distance between the fastest and the slowest round, as a share of the median; one round has none.
    pub spread: Option<f64>,
    /// Requests of a round.
    pub requests: u64,
    /// Operations of the median round.
    pub operations: u64,
}

impl Tried {
    /// `None` where nothing was served.
    pub fn new(policy: Policy, rounds: &[Served]) -> Option<Tried> {
        let mut sorted = rounds.to_vec();
        sorted.sort_by_key(|served| served.took);
        let (fastest, slowest) = (sorted.first()?, sorted.last()?);
        // The two in the middle, which are one and the same where the number is odd.
        let (below, above) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        let seconds = (below.took + above.took).as_secs_f64() / 2.0;
        let spread = (slowest.took - fastest.took).as_secs_f64() / 2.0 / seconds;
        Some(Tried {
            policy,
            rounds: rounds.iter().map(|served| served.took).collect(),
            seconds,
            spread: (rounds.len() > 1).then_some(spread),
            requests: below.requests,
            operations: below.operations.midpoint(above.operations),
        })
    }

    /// How many times faster than `noop`.
    pub fn gain(&self, noop: &Tried) -> f64 {
        noop.seconds / self.seconds
    }

    /// Even the slowest round is faster than any of the other's, and by enough to matter: with a few rounds, those
    /// of policies that do the same lie apart by chance often enough, but not that far.
    fn is_clearly_faster(&self, other: &Tried) -> bool {
        let slowest = self.rounds.iter().max();
        let fastest = other.rounds.iter().min();
        slowest.zip(fastest).is_some_and(|(slowest, fastest)| {
            slowest.as_secs_f64() * WORTH_NAMING <= fastest.as_secs_f64()
        })
    }
}

/// NOOP always runs; were it missing, nothing would be compared with anything.
pub fn noop(results: &[Tried]) -> Option<&Tried> {
    results
        .iter()
        .find(|tried| tried.policy == PolicyKind::Noop.into())
}

/// The comparison in a sentence or two.
pub fn conclusion(results: &[Tried]) -> String {
    let Some(noop) = noop(results) else {
        return String::new();
    };
    if noop.spread.is_none() {
        return "One round does not tell a difference from NOOP from chance: use --rounds 3 or more."
            .to_owned();
    }
    let slower = results.iter().filter(|tried| noop.is_clearly_faster(tried));
    let slower: Vec<&Tried> = slower.collect();
    let sentences = [
        praise(&leaders(results, noop), noop).unwrap_or_else(|| regret(results, noop)),
        warning(&slower, noop),
    ];
    sentences.join(" ").trim_end().to_owned()
}

/// The fastest policy, where it is clearly faster than NOOP, and those that it is not clearly faster than; the
/// fastest first.
fn leaders<'a>(results: &'a [Tried], noop: &Tried) -> Vec<&'a Tried> {
    let faster = results.iter().filter(|tried| tried.is_clearly_faster(noop));
    let mut faster: Vec<&Tried> = faster.collect();
    faster.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    if let Some(best) = faster.first().copied() {
        faster.retain(|tried| !best.is_clearly_faster(tried));
    }
    faster
}

fn praise(leaders: &[&Tried], noop: &Tried) -> Option<String> {
    let requests = leaders.first()?.requests;
    let operations = leaders.iter().map(|tried| tried.operations as f64);
    Some(format!(
        "{} served {requests} requests with {} operations: {} × faster than NOOP.",
        names(leaders),
        span(operations, 0),
        span(leaders.iter().map(|tried| tried.gain(noop)), 1),
    ))
}

/// What to say where nobody leads: was there nothing to gain, or could it not be told?
fn regret(results: &[Tried], noop: &Tried) -> String {
    let promising = |tried: &Tried| tried.gain(noop) >= WORTH_NAMING;
    let why = if results.iter().any(promising) {
        "the rounds lie too far apart to tell; try a larger --size or more --rounds."
    } else {
        "this storage does not mind these requests as they come."
    };
    format!("No policy was clearly faster than NOOP: {why}")
}

fn warning(slower: &[&Tried], noop: &Tried) -> String {
    if slower.is_empty() {
        return String::new();
    }
    let times = slower.iter().map(|tried| tried.seconds / noop.seconds);
    let (names, times) = (names(slower), span(times, 1));
    format!("{names} took {times} × as long as NOOP.")
}

/// `SJF`, `SJF and MLF`, `SJF, MLF and HBRR`.
fn names(list: &[&Tried]) -> String {
    let names: Vec<&str> = list.iter().map(|tried| tried.policy.name()).collect();
    match names.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

/// `4.7 to 5.2`, or `4.7` where that is all there is.
fn span(values: impl Iterator<Item = f64> + Clone, digits: usize) -> String {
    let least = values.clone().fold(f64::INFINITY, f64::min);
    let most = values.fold(f64::NEG_INFINITY, f64::max);
    let (least, most) = (format!("{least:.digits$}"), format!("{most:.digits$}"));
    if least == most {
        least
    } else {
        format!("{least} to {most}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(policy: PolicyKind, ms: &[u64], operations: u64) -> Tried {
        let served = |ms: &u64| Served {
            took: Duration::from_millis(*ms),
            requests: 8192,
            operations,
        };
        Tried::new(policy.into(), &ms.iter().map(served).collect::<Vec<_>>()).unwrap()
    }

    fn noop() -> Tried {
        tried(PolicyKind::Noop, &[1060, 1000, 1100], 8192)
    }

    #[test]
    fn the_median_round_counts_and_half_the_range_is_the_spread() {
        let odd = tried(PolicyKind::Sjf, &[300, 100, 200], 7);
        assert_eq!((odd.seconds, odd.spread), (0.2, Some(0.5)));
        let even = tried(PolicyKind::Sjf, &[100, 200, 300, 900], 7);
        assert_eq!(even.seconds, 0.25);
        assert_eq!(tried(PolicyKind::Sjf, &[300], 7).spread, None);
        assert_eq!(Tried::new(PolicyKind::Sjf.into(), &[]), None);
    }

    #[test]
    fn the_conclusion_names_the_fastest_policy_and_its_gain() {
        let aioli = tried(PolicyKind::Aioli, &[200, 190, 210], 151);
        let to_agg = tried(PolicyKind::ToAgg, &[300, 290, 310], 668);
        let expected = "aIOLi served 8192 requests with 151 operations: 5.3 × faster than NOOP.";
        assert_eq!(conclusion(&[noop(), to_agg, aioli]), expected);
    }

    #[test]
    fn policies_within_each_others_spread_share_the_first_place() {
        let results = [
            noop(),
            tried(PolicyKind::Sjf, &[210, 190, 212], 174),
            tried(PolicyKind::Mlf, &[220, 205, 221], 151),
            tried(PolicyKind::Hbrr, &[200, 190, 210], 160),
        ];
        let expected = "HBRR, SJF and MLF served 8192 requests with 151 to 174 operations: \
                        4.8 to 5.3 × faster than NOOP.";
        assert_eq!(conclusion(&results), expected);
    }

    #[test]
    fn a_gain_within_the_spread_is_not_announced() {
        let to = tried(PolicyKind::To, &[620, 1050, 900], 8192);
        assert!(to.gain(&noop()) > WORTH_NAMING);
        let said = conclusion(&[noop(), to]);
        assert!(said.starts_with("No policy was clearly faster"), "{said}");
        assert!(said.contains("too far apart"), "{said}");
    }

    #[test]
    fn rounds_that_barely_miss_each_other_are_no_difference() {
        let to = tried(PolicyKind::To, &[1110, 1250, 1300], 8192);
        assert!(conclusion(&[noop(), to]).ends_with("as they come."));
    }

    #[test]
    fn a_slow_round_of_noop_does_not_hide_a_gain() {
        let hiccup = tried(PolicyKind::Noop, &[1000, 1000, 9000], 8192);
        let sjf = tried(PolicyKind::Sjf, &[500, 500, 500], 151);
        assert!(conclusion(&[hiccup, sjf]).ends_with("2.0 × faster than NOOP."));
    }

    #[test]
    fn a_steady_but_tiny_gain_is_not_announced() {
        let steady = tried(PolicyKind::Noop, &[1000, 1000, 1000], 8192);
        let to = tried(PolicyKind::To, &[950, 950, 950], 8192);
        assert!(conclusion(&[steady, to]).ends_with("as they come."));
    }

    #[test]
    fn a_policy_that_is_clearly_slower_is_mentioned() {
        let sw = tried(PolicyKind::Sw, &[2100, 2120, 2150], 8192);
        let said = conclusion(&[noop(), sw]);
        assert!(said.starts_with("No policy"), "{said}");
        assert!(said.ends_with(". SW took 2.0 × as long as NOOP."), "{said}");
    }

    #[test]
    fn one_round_concludes_nothing() {
        let results = [
            tried(PolicyKind::Noop, &[1000], 8192),
            tried(PolicyKind::To, &[500], 8192),
        ];
        assert!(conclusion(&results).contains("--rounds 3"));
    }
}
