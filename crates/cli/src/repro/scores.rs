//! Scores of patterns beside each other (paper 000, Tables II to V): whether there is a threshold that tells them apart.

use super::finding::{Figure, Finding, Row, Wanted};
use crate::bench::scores::{Scored, scores};
use presagio_core::Op;
use presagio_pattern::Settings;

/// Which pairs a line of a table is about.
type Pairs = (&'static str, fn(&Scored) -> bool);

const OTHERS: Pairs = ("no match", |pair| !pair.is_alike);
const ALIKE: Pairs = ("match", |pair| pair.is_alike);
const READS: Pairs = ("match, reads", |pair| pair.is_alike && pair.op == Op::Read);
const WRITES: Pairs = ("match, writes", |pair| {
    pair.is_alike && pair.op == Op::Write
});
const CONTIGUOUS: Pairs = ("match, shared file, contiguous", |pair| {
    pair.is_alike && pair.label.starts_with("Shared Contiguous")
});
const STRIDED: Pairs = ("match, shared file, 1-D strided", |pair| {
    pair.is_alike && pair.label.starts_with("Shared Strided")
});
const OWN_FILES: Pairs = ("match, file per process", |pair| {
    pair.is_alike && pair.label.starts_with("PerProcess")
});

/// What is compared with what: the name of a part of a table, its settings, and its lines with first quartile and median.
struct Part {
    name: &'static str,
    seen_from: &'static str,
    compression: u32,
    /// The bound of an offset distance, in bytes.
    infinite: u64,
    op: Option<Op>,
    lines: &'static [(Pairs, [f64; 2])],
}

/// As most tables have it.
const INFINITE: u64 = 10_000_000_000;

impl Part {
    fn settings(&self) -> Settings {
        let mut settings = Settings::published_servers();
        settings.infinite = self.infinite;
        settings
            .ops
            .iter_mut()
            .for_each(|op| op.compression = self.compression);
        settings
    }

    fn rows(&self) -> anyhow::Result<Vec<Row>> {
        let all = scores(self.seen_from, &self.settings(), self.op)?;
        let rows = self.lines.iter().flat_map(|((pairs, has), figures)| {
            let mut here: Vec<f64> = all.iter().filter(|it| has(it)).map(|it| it.score).collect();
            here.sort_by(f64::total_cmp);
            let at = |share: usize| here.get(share * here.len() / 4).copied();
            let row = |what: &str, figure, ours: Option<f64>| {
                let what = format!("{}{pairs}: {what}", self.name);
                let ours = Figure::Number(ours.unwrap_or(f64::NAN), 4, "");
                Row::new(
                    what,
                    Figure::Number(figure, 4, ""),
                    ours,
                    Wanted::Within(0.05),
                )
            };
            [
                row("first quartile", figures[0], at(1)),
                row("median", figures[1], at(2)),
            ]
        });
        Ok(rows.collect())
    }
}

fn finding(parts: &[Part], note: &str) -> anyhow::Result<Finding> {
    let rows = parts.iter().map(Part::rows);
    let rows: Vec<Vec<Row>> = rows.collect::<anyhow::Result<_>>()?;
    Ok(Finding {
        rows: rows.into_iter().flatten().collect(),
        notes: vec![format!(
            "20 000 random pairs of patterns of the same benchmark and as many of others, in place of all with all; a score is one minus the \
             distance by the greatest of them. Within 5 % counts as agreement. {note}"
        )],
    })
}

pub fn table2() -> anyhow::Result<Finding> {
    let part = Part {
        name: "",
        seen_from: "1 I/O node",
        compression: 1,
        infinite: INFINITE,
        op: None,
        lines: &[(OTHERS, [0.9029, 0.9290]), (ALIKE, [0.9995, 1.0])],
    };
    finding(&[part], APART)
}

/// Why ours may be elsewhere.
const APART: &str = "Where patterns of different benchmarks lie depends on the one pair that is farthest apart, by which all are divided: on how \
                     fast the cluster was, and the longest pattern. What matters is how far they are below those that match.";

pub fn table3() -> anyhow::Result<Finding> {
    let part = |name, compression, lines| Part {
        name,
        seen_from: "1 I/O node",
        compression,
        infinite: INFINITE,
        op: Some(Op::Read),
        lines,
    };
    let parts = [
        part(
            "no compression, ",
            1,
            &[
                (OTHERS, [0.4061, 0.8543]),
                (CONTIGUOUS, [0.9173, 0.9390]),
                (STRIDED, [0.9970, 0.9981]),
            ],
        ),
        part(
            "compression of 10, ",
            10,
            &[
                (OTHERS, [0.5846, 0.9091]),
                (CONTIGUOUS, [0.9856, 0.9898]),
                (STRIDED, [0.9991, 0.9994]),
            ],
        ),
        part(
            "compression of 100, ",
            100,
            &[
                (OTHERS, [0.5895, 0.8992]),
                (CONTIGUOUS, [0.9955, 0.9969]),
                (STRIDED, [0.9990, 0.9995]),
            ],
        ),
    ];
    finding(&parts, APART)
}

pub fn table4() -> anyhow::Result<Finding> {
    let part = |name, compression, lines| Part {
        name,
        seen_from: "servers",
        compression,
        infinite: INFINITE,
        op: None,
        lines,
    };
    let parts = [
        part(
            "no compression, ",
            1,
            &[
                (OTHERS, [0.9673, 0.9771]),
                (READS, [0.9647, 0.9953]),
                (WRITES, [0.9835, 1.0]),
            ],
        ),
        part(
            "compression of 10, ",
            10,
            &[
                (OTHERS, [0.8900, 0.9683]),
                (READS, [0.9848, 0.9987]),
                (WRITES, [0.9936, 0.9999]),
            ],
        ),
    ];
    finding(&parts, APART)
}

pub fn table5() -> anyhow::Result<Finding> {
    let part = |name, infinite, lines| Part {
        name,
        seen_from: "servers",
        compression: 100,
        infinite,
        op: Some(Op::Read),
        lines,
    };
    let parts = [
        part(
            "infinite = 512 MB, ",
            512_000_000,
            &[
                (OTHERS, [0.6928, 0.9608]),
                (CONTIGUOUS, [0.9924, 0.9962]),
                (STRIDED, [0.9150, 0.9742]),
                (OWN_FILES, [0.9986, 0.9999]),
            ],
        ),
        part(
            "infinite = 10 GB, ",
            INFINITE,
            &[
                (OTHERS, [0.9287, 0.9558]),
                (CONTIGUOUS, [0.9848, 0.9975]),
                (STRIDED, [0.9659, 0.9969]),
                (OWN_FILES, [0.9987, 0.9999]),
            ],
        ),
        part(
            "infinite = 100 GB, ",
            100_000_000_000,
            &[
                (OTHERS, [0.9281, 0.9641]),
                (CONTIGUOUS, [0.9839, 0.9997]),
                (STRIDED, [0.9659, 0.9997]),
                (OWN_FILES, [0.9987, 0.9999]),
            ],
        ),
    ];
    finding(&parts, APART)
}
