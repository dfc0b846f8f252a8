//! From JSON to a [`Config`], or to an error that names line, column, field and reason.

use super::json::{Member, Node, Place, Value, join};
use super::{Advice, BLOCKS_MAX, Config, ConfigError, Entry, Kind, Mode};
use presagio_core::Range;

const SECTIONS: [&str; 2] = ["File", "Directory"];
const FIELDS: [&str; 9] = [
    "Path",
    "BlockSize",
    "CacheSize",
    "ReadAheadSize",
    "WillNeed",
    "Random",
    "Sequential",
    "Normal",
    "DontNeed",
];
const REGION_FIELDS: [&str; 2] = ["Offset", "Length"];

pub(super) fn config(text: &str) -> Result<Config, ConfigError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let root = super::json::parse(text)?;
    let mut entries: Vec<Entry> = Vec::new();
    for section in Spot::root(&root).fields(&SECTIONS)? {
        let kind = if section.is("File") {
            Kind::File
        } else {
            Kind::Directory
        };
        for item in section.items()? {
            let (entry, path) = entry(kind, &item)?;
            if let Some(first) = entries
                .iter()
                .find(|e| e.kind == kind && e.path == entry.path)
            {
                let twice = format!("{:?} was already given in line {}", entry.path, first.line);
                return Err(path.error(twice));
            }
            entries.push(entry);
        }
    }
    Ok(Config { entries })
}

/// A value, and the way that led to it.
struct Spot<'a> {
    node: &'a Node,
    field: Vec<String>,
}

impl<'a> Spot<'a> {
    fn root(node: &'a Node) -> Spot<'a> {
        Spot {
            node,
            field: Vec::new(),
        }
    }

    fn below(&self, part: String, node: &'a Node) -> Spot<'a> {
        let mut field = self.field.clone();
        field.push(part);
        Spot { node, field }
    }

    fn is(&self, name: &str) -> bool {
        self.field.last().is_some_and(|last| last == name)
    }

    fn error_at(&self, at: Place, reason: String) -> ConfigError {
        at.error(&self.field, reason)
    }

    fn error(&self, reason: String) -> ConfigError {
        self.error_at(self.node.at, reason)
    }

    fn wrong_type(&self, expected: &str) -> ConfigError {
        self.error(format!(
            "must be {expected}, not {}",
            self.node.value.kind()
        ))
    }

    /// The fields of an object, each known and given once.
    fn fields(&self, known: &[&str]) -> Result<Vec<Spot<'a>>, ConfigError> {
        let Value::Object(members) = &self.node.value else {
            return Err(self.wrong_type("an object in braces"));
        };
        let mut fields: Vec<Spot<'a>> = Vec::new();
        for Member { at, key, value } in members {
            let field = self.below(key.clone(), value);
            if !known.contains(&key.as_str()) {
                return Err(field.error_at(*at, unknown(key, known)));
            }
            if fields.iter().any(|f| f.is(key)) {
                return Err(field.error_at(*at, "given twice".into()));
            }
            fields.push(field);
        }
        Ok(fields)
    }

    fn items(&self) -> Result<Vec<Spot<'a>>, ConfigError> {
        let Value::Array(items) = &self.node.value else {
            return Err(self.wrong_type("an array in brackets"));
        };
        let spots = items.iter().enumerate();
        Ok(spots
            .map(|(i, node)| self.below(format!("[{i}]"), node))
            .collect())
    }

    fn string(&self) -> Result<&'a str, ConfigError> {
        match &self.node.value {
            Value::String(text) => Ok(text),
            _ => Err(self.wrong_type("a string")),
        }
    }

    /// MERCURY read numbers as floating point: `4e6` is one.
    fn number(&self) -> Result<u64, ConfigError> {
        let Value::Number(written) = &self.node.value else {
            return Err(self.wrong_type("a number"));
        };
        if let Ok(number) = written.parse() {
            return Ok(number);
        }
        let number: f64 = written.parse().unwrap_or(f64::INFINITY);
        if number < 0.0 {
            return Err(self.error(format!("must not be negative, but is {written}")));
        }
        if number.fract() != 0.0 {
            return Err(self.error(format!("must be a whole number, but is {written}")));
        }
        if number >= u64::MAX as f64 {
            return Err(self.error(format!("{written} is too large")));
        }
        Ok(number as u64)
    }

    /// A number of blocks, with MERCURY's rule for 0.
    fn blocks(&self, default: u32) -> Result<u32, ConfigError> {
        match self.number()? {
            0 => Ok(default),
            n if n > BLOCKS_MAX.into() => {
                Err(self.error(format!("must be at most {BLOCKS_MAX} blocks, but is {n}")))
            }
            n => Ok(n as u32),
        }
    }

    fn region(&self) -> Result<Range, ConfigError> {
        let (mut offset, mut length) = (0, 0);
        for field in self.fields(&REGION_FIELDS)? {
            let number = field.number()?;
            *(if field.is("Offset") {
                &mut offset
            } else {
                &mut length
            }) = number;
        }
        if length == 0 {
            return Ok(Range::at(offset, u64::MAX));
        }
        Range::new(offset, length).ok_or_else(|| {
            self.error(format!(
                "ends behind 2^64: offset {offset}, length {length}"
            ))
        })
    }
}

/// One entry, and where its path stands.
fn entry<'a>(kind: Kind, spot: &Spot<'a>) -> Result<(Entry, Spot<'a>), ConfigError> {
    let mut advice = Advice::default();
    let mut path = None;
    let mut claims = Vec::new();
    for field in spot.fields(&FIELDS)? {
        match field.field.last().map_or("", String::as_str) {
            "Path" => path = Some(field),
            "BlockSize" => match field.number()? {
                0 => {}
                bytes => advice.block_size = bytes,
            },
            "CacheSize" => advice.cache_size = field.blocks(advice.cache_size)?,
            "ReadAheadSize" => advice.read_ahead_size = field.blocks(advice.read_ahead_size)?,
            name => {
                let what = What::named(name);
                for item in field.items()? {
                    claim(&mut claims, what, item)?;
                }
            }
        }
    }
    let Some(path) = path else {
        return Err(spot.error("has no \"Path\"; say which file or directory it is for".into()));
    };
    settle(&mut advice, &claims);
    let entry = Entry {
        kind,
        path: clean(&path)?,
        line: spot.node.at.line,
        advice,
    };
    Ok((entry, path))
}

/// The path without slashes at its end.
fn clean(path: &Spot<'_>) -> Result<String, ConfigError> {
    let written = path.string()?;
    match written.trim_end_matches('/') {
        "" if written.is_empty() => Err(path.error("is empty".into())),
        "" => Ok("/".into()),
        clean => Ok(clean.into()),
    }
}

/// What is said of a region.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    WillNeed,
    DontNeed,
    Mode(Mode),
}

impl What {
    /// `name` is one of [`FIELDS`].
    fn named(name: &str) -> What {
        match name {
            "WillNeed" => What::WillNeed,
            "DontNeed" => What::DontNeed,
            "Random" => What::Mode(Mode::Random),
            "Sequential" => What::Mode(Mode::Sequential),
            _ => What::Mode(Mode::Normal),
        }
    }

    /// Two modes cannot hold at once, nor can load and release.
    fn contradicts(self, other: What) -> bool {
        let both_modes = matches!((self, other), (What::Mode(_), What::Mode(_)));
        let neither_mode = !matches!(self, What::Mode(_)) && !matches!(other, What::Mode(_));
        self != other && (both_modes || neither_mode)
    }
}

struct Claim {
    what: What,
    range: Range,
    field: String,
    line: usize,
}

fn claim(claims: &mut Vec<Claim>, what: What, spot: Spot<'_>) -> Result<(), ConfigError> {
    let range = spot.region()?;
    let clash = claims
        .iter()
        .find(|c| c.what.contradicts(what) && c.range.overlaps(range));
    if let Some(other) = clash {
        let reason = format!(
            "overlaps {} in line {}, which says something else; give each byte to one of them",
            other.field, other.line
        );
        return Err(spot.error(reason));
    }
    let own = spot.field.len().saturating_sub(2); // `WillNeed[0]`, without the entry
    claims.push(Claim {
        what,
        range,
        field: join(&spot.field[own..]),
        line: spot.node.at.line,
    });
    Ok(())
}

fn settle(advice: &mut Advice, claims: &[Claim]) {
    let of = |what: What| {
        let regions = claims.iter().filter(move |c| c.what == what);
        merged(regions.map(|c| c.range).collect())
    };
    advice.will_need = of(What::WillNeed);
    advice.dont_need = of(What::DontNeed);
    for mode in [Mode::Normal, Mode::Random, Mode::Sequential] {
        let regions = of(What::Mode(mode));
        advice.modes.extend(regions.into_iter().map(|r| (r, mode)));
    }
    advice.modes.sort_by_key(|(region, _)| region.start());
    advice.settle();
}

/// In order, and those that touch made one.
pub(super) fn merged(mut regions: Vec<Range>) -> Vec<Range> {
    regions.sort_by_key(|r| r.start());
    let mut whole: Vec<Range> = Vec::new();
    for region in regions {
        match whole.last_mut() {
            Some(last) if region.start() <= last.end() => {
                let end = last.end().max(region.end());
                *last = Range::at(last.start(), end - last.start());
            }
            _ => whole.push(region),
        }
    }
    whole
}

fn unknown(key: &str, known: &[&str]) -> String {
    let near = known.iter().map(|k| (distance(key, k), k)).min();
    match near {
        Some((distance, name)) if distance <= 3 && distance < name.len() => {
            format!("unknown field; did you mean {name:?}?")
        }
        _ => format!("unknown field; known here: {}", known.join(", ")),
    }
}

/// How many characters one has to insert, delete or replace to get from one name to the other, in any case.
fn distance(a: &str, b: &str) -> usize {
    let b = b.to_lowercase();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    // A name this much longer is far from all, however long it is.
    for (i, a) in a.to_lowercase().chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in b.chars().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn error(text: &str) -> String {
        config(text).unwrap_err().to_string()
    }

    fn advice(fields: &str) -> Advice {
        let text = format!(r#"{{"File": [{{"Path": "/f" {fields}}}]}}"#);
        config(&text).unwrap().entries.remove(0).advice
    }

    #[test]
    fn the_papers_example_works_with_its_braces() {
        let text = r#"{
            "File": [ {
                "Path": "/path/to/target/file",
                "BlockSize": 4194304, "CacheSize": 8, "ReadAheadSize": 4,
                "WillNeed": [ { "Offset": 0, "Length": 0 } ]
            } ],
            "Directory": [ {
                "Path": "/path/to/target/dir",
                "Random": [ { "Offset": 0, "Length": 0 } ]
            } ]
        }"#;
        let config = config(text).unwrap();
        let whole = Range::at(0, u64::MAX);
        let (file, directory) = (&config.entries[0], &config.entries[1]);
        assert_eq!(
            (
                file.advice.block_size,
                file.advice.cache_size,
                file.advice.read_ahead_size
            ),
            (4 << 20, 8, 4)
        );
        assert_eq!(file.advice.will_need, [whole]);
        assert_eq!((directory.kind, directory.line), (Kind::Directory, 7));
        assert_eq!(directory.advice.modes, [(whole, Mode::Random)]);
    }

    #[test]
    fn zero_and_absent_mean_the_default() {
        let zeros = advice(r#", "BlockSize": 0, "CacheSize": 0, "ReadAheadSize": 0"#);
        assert_eq!(zeros, Advice::default());
        assert_eq!(
            (zeros.block_size, zeros.cache_size, zeros.read_ahead_size),
            (4 << 20, 16, 3)
        );
        assert_eq!(advice(""), Advice::default());
        let region = advice(r#", "WillNeed": [ {} ]"#).will_need[0];
        assert_eq!(region, Range::at(0, u64::MAX));
    }

    #[test]
    fn sizes_are_brought_within_what_holds_for_them() {
        assert_eq!(
            advice(r#", "CacheSize": 2, "ReadAheadSize": 9"#).read_ahead_size,
            1
        );
        assert_eq!(advice(r#", "CacheSize": 1"#).read_ahead_size, 0);
        assert_eq!(advice(r#", "BlockSize": 5000"#).block_size, 8192);
        assert_eq!(
            advice(r#", "BlockSize": 18446744073709551615"#).block_size % 4096,
            0
        );
    }

    #[test]
    fn numbers_in_floating_point_are_read_as_mercury_did() {
        assert_eq!(advice(r#", "BlockSize": 1.048576e6"#).block_size, 1 << 20);
        assert_eq!(
            advice(r#", "WillNeed": [{"Offset": 4096.0, "Length": -0}]"#).will_need[0].start(),
            4096
        );
    }

    #[test]
    fn empty_is_valid() {
        for text in ["{}", r#"{"File": []}"#, r#"{"File": [], "Directory": []}"#] {
            assert!(config(text).unwrap().entries.is_empty());
        }
        assert_eq!(
            advice(r#", "WillNeed": [], "Random": []"#),
            Advice::default()
        );
    }

    #[test]
    fn regions_are_sorted_and_joined() {
        let advice = advice(
            r#", "WillNeed": [{"Offset": 50, "Length": 10}, {"Offset": 0, "Length": 10}, {"Offset": 10, "Length": 5}],
               "Sequential": [{"Offset": 20, "Length": 5}], "Random": [{"Offset": 0, "Length": 20}]"#,
        );
        assert_eq!(advice.will_need, [Range::at(0, 15), Range::at(50, 10)]);
        assert_eq!(advice.mode_at(19), Some(Mode::Random));
        assert_eq!(advice.mode_at(20), Some(Mode::Sequential));
        assert_eq!(advice.mode_at(25), None);
    }

    #[test]
    fn an_error_says_line_column_field_and_reason() {
        let cases = [
            // the listing as the paper prints it
            (
                "\"File\": [",
                "line 1, column 7: ':' after the end of the configuration",
            ),
            (
                "{\"File\": [\n \"Path\": \"/f\"",
                "line 2, column 8: File: expected ',' or ']', found ':'",
            ),
            (
                "{\"File\": [\n  {\"Path\": \"/f\" \"BlockSize\": 1}]}",
                "line 2, column 17: File[0]: expected ',' or '}', found '\"'",
            ),
            (
                "{\"File\": [{\"Path\": \"/f\",}]}",
                "line 1, column 25: File[0]: expected the name of a field in quotes, found '}'",
            ),
            (
                "{\"File\": [{\"Path\": \"/f",
                "line 1, column 20: File[0].Path: this string does not end",
            ),
            (
                "",
                "line 1, column 1: expected a value, but the text ends here",
            ),
            (
                "[]",
                "line 1, column 1: must be an object in braces, not an array",
            ),
            (
                "{\"Files\": []}",
                "line 1, column 2: Files: unknown field; did you mean \"File\"?",
            ),
            (
                "{\"File\": {\"Path\": \"/f\"}}",
                "line 1, column 10: File: must be an array in brackets, not an object",
            ),
            (
                "{\"File\": [{}]}",
                "line 1, column 11: File[0]: has no \"Path\"; say which file or directory it is for",
            ),
            (
                "{\"File\": [{\"Path\": \"\"}]}",
                "line 1, column 20: File[0].Path: is empty",
            ),
            (
                "{\"File\": [{\"Path\": 3}]}",
                "line 1, column 20: File[0].Path: must be a string, not a number",
            ),
            (
                "{\"File\": [{\"Path\": \"/f\", \"Path\": \"/g\"}]}",
                "line 1, column 26: File[0].Path: given twice",
            ),
            (
                "{\"File\": [{\"Path\": \"/f\"},\n {\"Path\": \"/f/\"}]}",
                "line 2, column 11: File[1].Path: \"/f\" was already given in line 1",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(error(text), expected, "{text}");
        }
    }

    #[test]
    fn an_error_in_an_entry_says_where_and_what_too() {
        let cases = [
            (
                r#""BlockSize": "4M""#,
                "File[0].BlockSize: must be a number, not a string",
            ),
            (
                r#""BlockSize": -1"#,
                "File[0].BlockSize: must not be negative, but is -1",
            ),
            (
                r#""BlockSize": 1.5"#,
                "File[0].BlockSize: must be a whole number, but is 1.5",
            ),
            (
                r#""BlockSize": 1e40"#,
                "File[0].BlockSize: 1e40 is too large",
            ),
            (
                r#""CacheSize": 65537"#,
                "File[0].CacheSize: must be at most 65536 blocks, but is 65537",
            ),
            (
                r#""readAheadsize": 1"#,
                "File[0].readAheadsize: unknown field; did you mean \"ReadAheadSize\"?",
            ),
            (r#""Colour": 1"#, "known here: Path, BlockSize"),
            (
                r#""WillNeed": {"Offset": 0}"#,
                "File[0].WillNeed: must be an array in brackets, not an object",
            ),
            (
                r#""WillNeed": [{}, {"Offset": -5}]"#,
                "File[0].WillNeed[1].Offset: must not be negative, but is -5",
            ),
            (
                r#""WillNeed": [{"Ofset": 5}]"#,
                "File[0].WillNeed[0].Ofset: unknown field; did you mean \"Offset\"?",
            ),
            (
                r#""WillNeed": [3]"#,
                "File[0].WillNeed[0]: must be an object in braces, not a number",
            ),
            (
                r#""Random": [{"Offset": 18446744073709551615, "Length": 2}]"#,
                "File[0].Random[0]: ends behind 2^64",
            ),
            (
                r#""Random": [{"Length": 9}], "Normal": [{"Offset": 8}]"#,
                "File[0].Normal[0]: overlaps Random[0] in line 1",
            ),
            (
                r#""DontNeed": [{}], "WillNeed": [{}]"#,
                "File[0].WillNeed[0]: overlaps DontNeed[0] in line 1",
            ),
        ];
        for (field, expected) in cases {
            let said = error(&format!("{{\"File\": [{{\"Path\": \"/f\", {field}}}]}}"));
            assert!(said.contains(expected), "{field}: {said}");
            assert!(said.starts_with("line 1, column "), "{said}");
        }
    }

    #[test]
    fn advice_that_does_not_contradict_may_overlap() {
        let both = advice(r#", "WillNeed": [{}], "Random": [{}]"#);
        assert_eq!((both.will_need.len(), both.modes.len()), (1, 1));
        assert_eq!(advice(r#", "Random": [{}, {"Offset": 3}]"#).modes.len(), 1);
    }

    /// A valid configuration with a few of its bytes changed.
    fn damaged() -> impl Strategy<Value = String> {
        let valid = r#"{"File": [{"Path": "/f*", "BlockSize": 4096, "CacheSize": 8, "ReadAheadSize": 4,
            "WillNeed": [{"Offset": 0, "Length": 9}], "Random": [{"Offset": 10, "Length": 0}], "DontNeed": [{"Offset": 9}]}],
            "Directory": [{"Path": "/d", "Sequential": [{}], "Normal": []}]}"#;
        let change = (
            any::<prop::sample::Index>(),
            prop::char::range('\0', '\u{ff}'),
            0..3_usize,
        );
        prop::collection::vec(change, 0..6).prop_map(move |changes| {
            let mut text: Vec<char> = valid.chars().collect();
            for (at, c, cut) in changes {
                let at = at.index(text.len());
                let end = (at + cut).min(text.len());
                text.splice(at..end, [c]);
            }
            text.into_iter().collect()
        })
    }

    proptest! {
        #[test]
        fn a_damaged_configuration_is_read_or_refused_with_a_place_in_it(text in damaged()) {
            match config(&text) {
                Ok(config) => {
                    _ = config.lookup(std::path::Path::new("/d/e/f"));
                    let again: Config = config.to_string().parse().unwrap();
                    prop_assert_eq!(again.entries.len(), config.entries.len());
                }
                Err(error) => {
                    let line = text.split('\n').nth(error.line - 1);
                    prop_assert!(line.is_some_and(|l| error.column <= l.chars().count() + 1), "{}", error);
                }
            }
        }

        #[test]
        fn names_are_as_far_apart_as_they_differ(name in "[a-zA-Z]{0,12}", at in any::<prop::sample::Index>()) {
            prop_assert_eq!(distance(&name, &name), 0);
            let mut other = name.clone();
            other.insert(at.index(name.len() + 1), '-');
            prop_assert_eq!(distance(&name, &other), 1);
            prop_assert_eq!(distance(&other, &name), 1);
        }
    }
}
