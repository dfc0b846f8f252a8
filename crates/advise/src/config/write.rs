//! A [`Config`] as MERCURY's JSON.

use super::json::quote;
use super::{Advice, Config, Entry, Kind, Mode};
use presagio_core::Range;
use std::fmt;

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sections = [("File", Kind::File), ("Directory", Kind::Directory)];
        let mut written = Vec::new();
        for (name, kind) in sections {
            let entries: Vec<&Entry> = self.entries.iter().filter(|e| e.kind == kind).collect();
            if !entries.is_empty() {
                let entries: Vec<String> = entries.into_iter().map(entry).collect();
                written.push(format!("    \"{name}\": [\n{}\n    ]", entries.join(",\n")));
            }
        }
        if written.is_empty() {
            return f.write_str("{}\n");
        }
        write!(f, "{{\n{}\n}}\n", written.join(",\n"))
    }
}

fn entry(entry: &Entry) -> String {
    let advice = &entry.advice;
    let mut fields = vec![format!("            \"Path\": {}", quote(&entry.path))];
    let default = Advice::default();
    for (name, number, default) in [
        ("BlockSize", advice.block_size, default.block_size),
        (
            "CacheSize",
            advice.cache_size.into(),
            default.cache_size.into(),
        ),
        (
            "ReadAheadSize",
            advice.read_ahead_size.into(),
            default.read_ahead_size.into(),
        ),
    ] {
        // Sizes matter where blocks are loaded; elsewhere the default goes without saying.
        if number != default || !advice.will_need.is_empty() {
            fields.push(format!("            \"{name}\": {number}"));
        }
    }
    for (name, regions) in lists(advice) {
        if !regions.is_empty() {
            let regions: Vec<String> = regions.into_iter().map(region).collect();
            fields.push(format!(
                "            \"{name}\": [\n{}\n            ]",
                regions.join(",\n")
            ));
        }
    }
    format!("        {{\n{}\n        }}", fields.join(",\n"))
}

fn lists(advice: &Advice) -> [(&'static str, Vec<Range>); 5] {
    let of = |mode| {
        let regions = advice.modes.iter().filter(move |(_, m)| *m == mode);
        regions.map(|(region, _)| *region).collect()
    };
    [
        ("WillNeed", advice.will_need.clone()),
        ("Random", of(Mode::Random)),
        ("Sequential", of(Mode::Sequential)),
        ("Normal", of(Mode::Normal)),
        ("DontNeed", advice.dont_need.clone()),
    ]
}

fn region(region: Range) -> String {
    let length = if region.end() == u64::MAX {
        0
    } else {
        region.len()
    };
    format!(
        "                {{ \"Offset\": {}, \"Length\": {length} }}",
        region.start()
    )
}

#[cfg(test)]
mod tests {
    use super::super::read::merged;
    use super::*;
    use proptest::prelude::*;

    fn regions() -> impl Strategy<Value = Vec<Range>> {
        let region = (any::<u32>(), 1..1_000_000_u64, prop::bool::weighted(0.1));
        prop::collection::vec(region, 0..4).prop_map(|regions| {
            let ranges = regions.into_iter().map(|(start, len, to_end)| {
                Range::at(start.into(), if to_end { u64::MAX } else { len })
            });
            merged(ranges.collect())
        })
    }

    fn advice() -> impl Strategy<Value = Advice> {
        let mode = prop::sample::select(vec![Mode::Normal, Mode::Random, Mode::Sequential]);
        let sizes = (1..1024_u64, 1..100_u32, 0..100_u32);
        (sizes, regions(), regions(), mode, any::<bool>()).prop_map(
            |(sizes, needed, moded, mode, keep)| {
                let (mut will_need, mut dont_need) = (needed, Vec::new());
                if !keep {
                    std::mem::swap(&mut will_need, &mut dont_need);
                }
                let mut advice = Advice {
                    block_size: sizes.0 * 4096,
                    cache_size: sizes.1,
                    read_ahead_size: sizes.2,
                    will_need,
                    dont_need,
                    modes: moded.into_iter().map(|r| (r, mode)).collect(),
                };
                advice.settle();
                advice
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back_as_the_same(
            entries in prop::collection::vec((any::<bool>(), "[^/\0].*[^/]", advice()), 0..5)
        ) {
            let entries = entries.into_iter().enumerate().map(|(i, (file, path, mut advice))| {
                if advice.read_ahead_size == 0 {
                    advice.cache_size = 1; // elsewhere, 0 in a file means the default
                }
                let kind = if file { Kind::File } else { Kind::Directory };
                Entry { kind, path: format!("/{i}{path}"), line: 0, advice }
            });
            let config = Config { entries: entries.collect() };
            let mut again: Config = config.to_string().parse().unwrap();
            again.entries.iter_mut().for_each(|e| e.line = 0);
            let mut expected = config.entries;
            expected.sort_by_key(|e| e.kind == Kind::Directory);
            prop_assert_eq!(again.entries, expected);
        }
    }
}
