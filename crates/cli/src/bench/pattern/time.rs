//! The time of comparisons and of decisions.

use crate::bench::{Bar, Effort, Report};
use crate::table::{Cell, Table};
use presagio_pattern::{Distance, KnowledgeBase, Pattern, Settings, Warper, plain};
use std::hint::black_box;
use std::time::{Duration, Instant};

const FAST_DTW: Distance = Distance::FastDtw { radius: 1 };
const BAND: Distance = Distance::Band { radius: 5 };

/// What the paper says of a comparison (VI-E): points, microseconds.
const PUBLISHED: [(usize, f64); 2] = [(1_000, 479.0), (100_000, 46_300.0)];

/// Our absolute limits at those lengths, in microseconds.
const LIMITS: [f64; 2] = [50.0, 5_000.0];

/// How many times faster the band must be than a straightforward FastDTW.
const TIMES_LEAST: f64 = 10.0;

/// Patterns of the knowledge base that a decision is measured with, and what it may take.
const KNOWN: usize = 1_000;
const DECISION_MS_MOST: f64 = 5.0;

struct Plan {
    lengths: &'static [usize],
    rounds: usize,
    known: usize,
    decisions: usize,
    /// Points of long patterns, if they are tried: a knowledge base of them takes half a minute to fill.
    long: Option<usize>,
}

impl Plan {
    fn new(effort: Effort) -> Plan {
        let (lengths, rounds, known, decisions): (&[usize], _, _, _) = match effort {
            Effort::Full => (&[10, 100, 1_000, 10_000, 100_000], 21, KNOWN, 101),
            Effort::Quick => (&[100, 1_000, 100_000], 5, KNOWN, 21),
            Effort::Tiny => (&[10, 100], 1, 20, 3),
        };
        Plan {
            lengths,
            rounds,
            known,
            decisions,
            long: match effort {
                Effort::Full => Some(1_000),
                Effort::Quick => None,
                Effort::Tiny => Some(100),
            },
        }
    }
}

/// A comparison of two series of a length: medians, in microseconds.
struct Compared {
    points: usize,
    plain: f64,
    fast_dtw: f64,
    band: f64,
}

pub fn measure(effort: Effort, report: &mut Report) {
    let plan = Plan::new(effort);
    let compared: Vec<Compared> = plan
        .lengths
        .iter()
        .map(|n| compare(*n, plan.rounds))
        .collect();
    report.tables.push(("comparisons", comparisons(&compared)));
    for ((points, _), limit_us) in PUBLISHED.into_iter().zip(LIMITS) {
        report.bars.extend(bars(points, limit_us, &compared));
    }
    let decided = [
        ("ours", Settings::ours()),
        ("published", Settings::published_servers()),
    ]
    .map(|(name, settings)| (name, decide(&settings, &plan)));
    let published = Settings::published_servers();
    let banded = (
        "published, band",
        decide_with(published.banded(), 100, &plan),
    );
    let judged = || decided.iter().chain([&banded]);
    let long = plan
        .long
        .map_or_else(Vec::new, |points| long(points, &plan));
    report
        .tables
        .push(("decisions", decisions(judged().chain(&long))));
    let slowest = judged().map(|(_, d)| d.most_ms).fold(0.0, f64::max);
    let bar = Bar::at_most(
        format!("a decision among {KNOWN} patterns"),
        slowest,
        "ms",
        DECISION_MS_MOST,
    );
    report.bars.push(match plan.known {
        KNOWN => bar,
        _ => bar.not_measured("too few patterns were tried"),
    });
    report.notes.push(format!(
        "Comparisons: medians of {}, in turns. plain is a FastDTW as one would write it down (radius 1), FastDTW ours of the \
         same result, band exact warping within 5 points.",
        plan.rounds
    ));
    report.notes.push(format!(
        "Decisions: {} patterns are known, of the same counts, so that none is left out by them; {} more come. The slowest \
         counts; the bar is for series as the settings make them, with up to 100 points.",
        plan.known, plan.decisions
    ));
}

/// A small generator with a known seed: the bench is the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(bound)) as u32
    }

    /// Long contiguous stretches and jumps, as offset distances are.
    fn series(&mut self, points: usize) -> Vec<u32> {
        let mut level = 0;
        let mut next = |_| {
            if self.below(16) == 0 {
                level = self.below(1 << 30);
            }
            level + self.below(1 << 16)
        };
        (0..points).map(&mut next).collect()
    }
}

fn compare(points: usize, rounds: usize) -> Compared {
    let mut random = Random(points as u64);
    let (a, b) = (random.series(points), random.series(points));
    let (mut fast, mut band) = (Warper::new(FAST_DTW), Warper::new(BAND));
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..rounds {
        times[0].push(timed(|| plain::fast_dtw(black_box(&a), black_box(&b), 1)));
        times[1].push(timed(|| fast.distance(black_box(&a), black_box(&b))));
        times[2].push(timed(|| band.distance(black_box(&a), black_box(&b))));
    }
    let [plain, fast_dtw, band] = times.map(|t| median(t).as_secs_f64() * 1e6);
    Compared {
        points,
        plain,
        fast_dtw,
        band,
    }
}

fn timed<T>(work: impl FnOnce() -> T) -> Duration {
    let begin = Instant::now();
    black_box(work());
    begin.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn comparisons(compared: &[Compared]) -> Table {
    let row = |c: &Compared| {
        let published = PUBLISHED.iter().find(|(points, _)| *points == c.points);
        vec![
            Cell::Count(c.points as u64),
            Cell::maybe(published.map(|(_, us)| *us), 0),
            Cell::Number(c.plain, 1),
            Cell::Number(c.fast_dtw, 1),
            Cell::Number(c.band, 1),
            Cell::Number(c.plain / c.band, 1),
            Cell::Number(c.band * 1e3 / c.points as f64, 1),
        ]
    };
    Table {
        title: "Comparing two series, in microseconds".into(),
        columns: vec![
            ("points", "points"),
            ("paper_us", "paper"),
            ("plain_us", "plain"),
            ("fastdtw_us", "FastDTW"),
            ("band_us", "band"),
            ("times", "plain/band"),
            ("band_ns_point", "band ns/point"),
        ],
        rows: compared.iter().map(row).collect(),
    }
}

fn bars(points: usize, limit_us: f64, compared: &[Compared]) -> [Bar; 2] {
    let faster = format!("plain FastDTW / band, {points} points");
    let absolute = format!("band, {points} points");
    match compared.iter().find(|c| c.points == points) {
        Some(c) => [
            Bar::at_least(faster, c.plain / c.band, "", TIMES_LEAST),
            Bar::at_most(absolute, c.band, "µs", limit_us),
        ],
        None => [
            Bar::at_least(faster, 0.0, "", TIMES_LEAST),
            Bar::at_most(absolute, 0.0, "µs", limit_us),
        ]
        .map(|bar| bar.not_measured("this length was not tried")),
    }
}

/// What deciding took.
#[derive(Clone, Copy)]
struct Decided {
    points: usize,
    median_ms: f64,
    most_ms: f64,
    bytes: usize,
}

/// Decisions with series as long as these settings make of a thousand requests.
fn decide(settings: &Settings, plan: &Plan) -> Decided {
    let points = match settings.representation {
        presagio_pattern::Representation::Extents => 24,
        presagio_pattern::Representation::Distances => 1_000 / settings.ops[0].compression as usize,
    };
    decide_with(settings.clone(), points, plan)
}

/// Decisions with ten times as many points as a thousand requests make at a compression of 10. What that costs is to be known, and not
/// promised.
fn long(points: usize, plan: &Plan) -> Vec<(&'static str, Decided)> {
    let published = Settings::published_servers;
    vec![
        ("long, FastDTW", decide_with(published(), points, plan)),
        (
            "long, band",
            decide_with(published().banded(), points, plan),
        ),
    ]
}

/// All patterns have the same counts, so all are compared. A threshold that nothing exceeds lets all be taken in.
fn decide_with(mut settings: Settings, points: usize, plan: &Plan) -> Decided {
    let mut random = Random(points as u64);
    let threshold = settings.ops[0].threshold;
    settings.ops[0].threshold = 1.0;
    settings.patterns_max = plan.known;
    let mut known = KnowledgeBase::new(settings.clone());
    let mut pattern = || Pattern::new(random.series(points), 4, 1_000, 0);
    for _ in 0..plan.known {
        known.decide(pattern());
    }
    known.set_threshold(presagio_core::Op::Read, threshold);
    let bytes = known.bytes() / plan.known;
    let more: Vec<Pattern> = (0..plan.decisions).map(|_| pattern()).collect();
    let mut times: Vec<Duration> = more
        .into_iter()
        .map(|p| timed(|| known.decide(p)))
        .collect();
    times.sort_unstable();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    Decided {
        points,
        median_ms: ms(times[times.len() / 2]),
        most_ms: ms(times[times.len() - 1]),
        bytes,
    }
}

fn decisions<'a>(decided: impl Iterator<Item = &'a (&'static str, Decided)>) -> Table {
    let row = |(name, d): &(&'static str, Decided)| {
        vec![
            Cell::Text((*name).to_owned()),
            Cell::Count(d.points as u64),
            Cell::Number(d.median_ms, 3),
            Cell::Number(d.most_ms, 3),
            Cell::Count(d.bytes as u64),
        ]
    };
    Table {
        title: "Deciding with a full knowledge base".into(),
        columns: vec![
            ("settings", "settings"),
            ("points", "points"),
            ("median_ms", "median ms"),
            ("most_ms", "most ms"),
            ("bytes_pattern", "bytes a pattern"),
        ],
        rows: decided.map(row).collect(),
    }
}
