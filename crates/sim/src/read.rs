//! Scenarios from files: TOML, with the line, the field and the reason of whatever is wrong in it.

use crate::check::Wrong;
use crate::scenario::Scenario;
use std::fmt;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What is wrong with a scenario, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    /// The line, from 1, where it is known.
    pub line: Option<usize>,
    /// The dotted name of the field, where it is known.
    pub field: Option<String>,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if let Some(field) = &self.field {
            write!(f, "{field}: ")?;
        }
        f.write_str(&self.reason)
    }
}

impl std::error::Error for ScenarioError {}

impl Scenario {
    /// Reads a scenario, and checks it.
    pub fn from_toml(text: &str) -> Result<Scenario, ScenarioError> {
        let scenario: Scenario = toml::from_str(text).map_err(|e| explain(text, &e))?;
        let wrong = scenario.check().err();
        wrong.map_or(Ok(scenario), |wrong| Err(locate(text, wrong)))
    }

    /// An error unless the scenario can be run.
    pub(crate) fn checked(&self) -> Result<(), ScenarioError> {
        self.check().map_err(|wrong| ScenarioError {
            line: None,
            field: Some(shown(&wrong.field)),
            reason: wrong.reason,
        })
    }
}

/// An error of the TOML reader: which field is at its place?
pub(crate) fn explain(text: &str, error: &toml::de::Error) -> ScenarioError {
    let span = error.span();
    let table = DeTable::parse(text).ok();
    let field = span
        .as_ref()
        .and_then(|span| field_at(table.as_ref()?.get_ref(), span));
    ScenarioError {
        line: span.map(|span| line_of(text, span.start)),
        field,
        reason: error.message().to_owned(),
    }
}

/// A parameter that cannot be: on which line is it?
fn locate(text: &str, wrong: Wrong) -> ScenarioError {
    let table = DeTable::parse(text).ok();
    let place = table.and_then(|table| place_of(table.get_ref(), &wrong.field));
    ScenarioError {
        line: place.map(|at| line_of(text, at)),
        field: Some(shown(&wrong.field)),
        reason: wrong.reason,
    }
}

/// `app.0.depth` as a person writes it: `app[0].depth`.
fn shown(field: &str) -> String {
    let mut shown = String::new();
    for part in field.split('.') {
        match part.parse::<usize>() {
            Ok(number) => shown += &format!("[{number}]"),
            Err(_) if shown.is_empty() => shown += part,
            Err(_) => shown += &format!(".{part}"),
        }
    }
    shown
}

/// `app[0].depth` with dots alone, as places are looked for.
pub(crate) fn as_in_files(field: &str) -> String {
    field.replace('[', ".").replace(']', "")
}

/// On which line a field is, or the innermost table around it that is there. Parts of the path may have dots in them.
pub(crate) fn line_of_field(text: &str, path: &[&str]) -> Option<usize> {
    let table = DeTable::parse(text).ok()?;
    let at = place_in(table.get_ref(), path)?;
    Some(line_of(text, at))
}

fn line_of(text: &str, at: usize) -> usize {
    let before = text.get(..at).unwrap_or(text);
    before.matches('\n').count() + 1
}

/// Where the field of a dotted name is, or the innermost table around it that is there.
fn place_of(table: &DeTable<'_>, field: &str) -> Option<usize> {
    let path: Vec<&str> = field.split('.').collect();
    place_in(table, &path)
}

fn place_in(table: &DeTable<'_>, path: &[&str]) -> Option<usize> {
    let (name, rest) = path.split_first()?;
    let (key, value) = table.iter().find(|(key, _)| key.get_ref() == name)?;
    let inner = match value.get_ref() {
        DeValue::Table(inner) => place_in(inner, rest),
        DeValue::Array(items) => place_in_items(items, rest),
        _ => None,
    };
    inner.or(Some(key.span().start))
}

fn place_in_items(items: &[Spanned<DeValue<'_>>], path: &[&str]) -> Option<usize> {
    let (number, rest) = path.split_first()?;
    let item = items.get(number.parse::<usize>().ok()?)?;
    let inside = match item.get_ref() {
        DeValue::Table(inner) => place_in(inner, rest),
        _ => None,
    };
    inside.or(Some(item.span().start))
}

/// The name of the innermost field whose key or value has these bytes of the text.
fn field_at(table: &DeTable<'_>, span: &Range<usize>) -> Option<String> {
    table.iter().find_map(|(key, value)| {
        let name = key.get_ref().to_string();
        if within(&key.span(), span) {
            return Some(name);
        }
        inside(value, span)
            .map(|inner| format!("{name}{inner}"))
            .or_else(|| within(&value.span(), span).then_some(name))
    })
}

fn inside(value: &Spanned<DeValue<'_>>, span: &Range<usize>) -> Option<String> {
    match value.get_ref() {
        DeValue::Table(table) => field_at(table, span).map(|inner| format!(".{inner}")),
        DeValue::Array(items) => items.iter().enumerate().find_map(|(number, item)| {
            inside(item, span).map(|inner| format!("[{number}]{inner}"))
        }),
        _ => None,
    }
}

fn within(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
seed = 3
[network]
transmission = \"8KiB\"
[servers]
count = 4
device = { model = \"hdd\", rpm = 10500 }
[ionodes]
count = 2
scheduler = { policy = \"TWINS\", window = \"1ms\", cpu = \"agios\" }
[[app]]
processes = 8
request = \"32KiB\"
total = \"16MiB\"
[[app]]
op = \"write\"
bytes = \"1MiB\"
";

    #[test]
    fn a_scenario_is_read_with_defaults_for_what_it_does_not_say() {
        let scenario = Scenario::from_toml(GOOD).expect("a good one");
        assert_eq!((scenario.seed, scenario.servers.count), (3, 4));
        assert_eq!(scenario.apps[0].requests(), 64);
        assert_eq!(scenario.servers.stripe.0, 64 << 10);
        assert_eq!(scenario.servers.device.name(), "hdd*");
    }

    #[test]
    fn what_is_wrong_is_said_with_line_field_and_reason() {
        let cases = [
            (
                "count = 4",
                "count = \"four\"",
                5,
                "servers.count",
                "string",
            ),
            (
                "count = 4",
                "cuont = 4",
                5,
                "servers.cuont",
                "unknown field",
            ),
            ("count = 4", "count = 0", 5, "servers.count", "from 1 to"),
            ("rpm = 10500", "rpm = 1", 6, "servers.device.rpm", "rpm"),
            ("rpm = 10500", "rmp = 1", 6, "servers.device.rmp", "rmp"),
            (
                "\"TWINS\"",
                "\"TWIN\"",
                9,
                "ionodes.scheduler.policy",
                "TWINS",
            ),
            ("\"1ms\"", "\"1\"", 9, "ionodes.scheduler.window", "125us"),
            ("\"1ms\"", "\"0\"", 9, "ionodes.scheduler", "twins_window"),
            ("\"8KiB\"", "\"8KX\"", 3, "network.transmission", "32KiB"),
            (
                "processes = 8",
                "processes = 0",
                11,
                "app[0].processes",
                "at least 1",
            ),
            (
                "op = \"write\"",
                "op = \"append\"",
                15,
                "app[1].op",
                "read or write",
            ),
            (
                "bytes = \"1MiB\"",
                "depth = 2",
                14,
                "app[1].bytes",
                "missing",
            ),
            ("count = 2", "count = 2 2", 8, "", ""),
        ];
        for (good, bad, line, field, reason) in cases {
            let text = GOOD.replacen(good, bad, 1);
            let error = Scenario::from_toml(&text).expect_err(bad);
            assert_eq!(error.line, Some(line), "{bad}: {error}");
            assert_eq!(
                error.field.as_deref().unwrap_or(""),
                field,
                "{bad}: {error}"
            );
            assert!(error.to_string().contains(reason), "{bad}: {error}");
        }
    }

    fn with_device(device: &str) -> Result<Scenario, ScenarioError> {
        let app = "[[app]]\nbytes = \"1MiB\"";
        Scenario::from_toml(&format!("[servers]\ndevice = {{ {device} }}\n{app}"))
    }

    #[test]
    fn every_parameter_of_a_device_is_heeded() {
        let disk = "capacity = \"1TB\", rpm = 5400, bytes_per_s = \"50MB\", seek_least = \"1ms\", seek_average = \"9ms\", \
             seek_most = \"19ms\", read_ahead = 0, write_cache = \"1MiB\", write_slots = 7, read_command = \"11us\", \
             write_command = \"12us\"";
        let array = format!("{disk}, disks = 3, stripe = \"128KiB\"");
        let ssd = "channels = 3, unit = \"4KiB\", bytes_per_s = \"50MB\", read_overhead = \"1us\", write_overhead = \"2us\", \
             read_ahead = \"64KiB\", write_cache = \"1MiB\", write_amplification_percent = 150, \
             link_bytes_per_s = \"300MB\", read_command = \"11us\", write_command = \"12us\"";
        for (model, given) in [
            ("hdd", disk),
            ("pastel", disk),
            ("raid0", &array),
            ("suno", &array),
            ("ssd", ssd),
            ("edel", ssd),
        ] {
            let model_of = |text: &str| {
                let device = with_device(text).expect(text).servers.device;
                device.model().expect(text)
            };
            let named = format!("model = \"{model}\"");
            let plain = model_of(&named);
            for one in given.split(", ") {
                assert_ne!(
                    model_of(&format!("{named}, {one}")),
                    plain,
                    "{model}: {one}"
                );
            }
            model_of(&format!("{named}, {given}"));
        }
    }

    #[test]
    fn a_parameter_of_another_device_is_refused_by_name() {
        for (device, field, reason) in [
            ("model = \"ssd\", rpm = 10500", "rpm", "ssd is an SSD"),
            ("channels = 4", "channels", "hdd is a disk"),
            ("model = \"pastel\", disks = 2", "disks", "pastel is a disk"),
            (
                "model = \"suno\", unit = 512",
                "unit",
                "suno is an array of disks",
            ),
            ("model = \"raid0\", disks = 0", "disks", "from 1 to 4096"),
            ("profile = \"a.json\", rpm = 1", "rpm", "says all of it"),
            ("profile = \"a.json\", model = \"ssd\"", "model", "says all"),
        ] {
            let error = with_device(device).expect_err(device);
            assert_eq!(error.line, Some(2), "{device}: {error}");
            let field = format!("servers.device.{field}");
            assert_eq!(error.field, Some(field), "{device}: {error}");
            assert!(error.reason.contains(reason), "{device}: {error}");
        }
    }

    #[test]
    fn a_scenario_in_which_nothing_runs_says_so() {
        let error = Scenario::from_toml("seed = 1").expect_err("nothing runs");
        assert!(error.to_string().contains("[[app]]"), "{error}");
    }
}
