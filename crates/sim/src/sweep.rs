//! Many runs from one scenario: every case, with every combination of the parameters that have several values.
//!
//! What is wrong with a run is said as of any scenario, with line, field and reason: the line is that of the case or the list
//! of values that the field comes from; what comes from an option names it.

use crate::forge;
use crate::read::{ScenarioError, as_in_files, explain, line_of_field};
use crate::scenario::Scenario;
use serde::Deserialize;
use toml::{Table, Value};

/// A scenario with parameters that vary.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// What was read.
    text: String,
    /// The scenario without what varies.
    base: Table,
    /// Names of parameters that were set to one value.
    set: Vec<String>,
    /// Sets of parameters, each with the name of the case.
    cases: Vec<Table>,
    /// Parameters and their values.
    axes: Vec<Axis>,
}

/// A parameter that varies.
#[derive(Clone, Debug)]
struct Axis {
    name: String,
    values: Vec<Value>,
    /// Whether the scenario says so; else an option does.
    is_of_file: bool,
}

/// Where the parameter of a run comes from.
#[derive(Clone, Debug)]
struct Given {
    /// The parameter.
    name: String,
    /// Where it was given, as an error names that.
    place: String,
    line: Option<usize>,
}

impl Given {
    /// Whether a field is this parameter, is in it, or is around it. `app.op` is that of every application.
    fn has(&self, field: &str) -> bool {
        let (name, field) = (parts(&self.name), parts(field));
        let is_alike = |(a, b): (&&str, &&str)| a == b;
        name.iter().zip(&field).all(is_alike)
    }

    fn wrong(&self, reason: &str) -> ScenarioError {
        ScenarioError {
            line: self.line,
            ..wrong(&self.place, reason)
        }
    }
}

/// The parts of a dotted name, without numbers.
fn parts(name: &str) -> Vec<&str> {
    let all = name.split(['.', '[', ']']);
    let is_name = |part: &&str| !part.is_empty() && part.parse::<usize>().is_err();
    all.filter(is_name).collect()
}

/// One of the runs of a sweep.
#[derive(Clone, Debug)]
pub struct Run {
    /// What it differs in: names and values, as a person reads them.
    pub varied: Vec<(String, String)>,
    /// What to run.
    pub scenario: Scenario,
}

/// More runs than this are a mistake.
const RUNS_MAX: usize = 100_000;

impl Sweep {
    /// Reads a scenario of ours, or a configuration of FORGE, which is JSON.
    pub fn read(text: &str) -> Result<Sweep, ScenarioError> {
        if !text.trim_start().starts_with('{') {
            return Sweep::from_toml(text);
        }
        // Lines of what we made of it mean nothing to anybody.
        let read = Sweep::from_toml(&forge::to_toml(text)?);
        let mut sweep = read.map_err(|e| ScenarioError { line: None, ..e })?;
        sweep.text.clear();
        Ok(sweep)
    }

    /// Reads a scenario with `[sweep]` and `[[case]]`, either of which may be missing.
    pub fn from_toml(text: &str) -> Result<Sweep, ScenarioError> {
        // Read as a whole first: that knows lines.
        let scenario = Scenario::from_toml(text)?;
        let mut base: Table = toml::from_str(text).map_err(|e| explain(text, &e))?;
        base.remove("case");
        base.remove("sweep");
        let mut sweep = Sweep {
            text: text.to_owned(),
            base,
            set: Vec::new(),
            cases: scenario.cases,
            axes: Vec::new(),
        };
        for (name, values) in scenario.sweep {
            let given = sweep.of_axis(&name, true);
            let Value::Array(values) = values else {
                return Err(given.wrong("it must be a list of values"));
            };
            sweep.add(given, values, true)?;
        }
        Ok(sweep)
    }

    /// Sets a parameter to one value, in every run.
    pub fn set(&mut self, name: &str, value: Value) -> Result<(), ScenarioError> {
        self.axes.retain(|axis| axis.name != name);
        self.cases
            .iter_mut()
            .for_each(|case| drop(case.remove(name)));
        let given = Given::by_option("--set", name);
        put(&mut self.base, &given, value)?;
        self.set.push(name.to_owned());
        Ok(())
    }

    /// Lets a parameter have each of these values.
    pub fn vary(&mut self, name: &str, values: Vec<Value>) -> Result<(), ScenarioError> {
        self.add(self.of_axis(name, false), values, false)
    }

    fn add(
        &mut self,
        given: Given,
        values: Vec<Value>,
        is_of_file: bool,
    ) -> Result<(), ScenarioError> {
        if values.is_empty() {
            return Err(given.wrong("it has no values"));
        }
        self.axes.retain(|axis| axis.name != given.name);
        self.axes.push(Axis {
            name: given.name,
            values,
            is_of_file,
        });
        Ok(())
    }

    /// Where the values of a parameter come from.
    fn of_axis(&self, name: &str, is_of_file: bool) -> Given {
        match is_of_file {
            false => Given::by_option("--sweep", name),
            true => Given {
                name: name.to_owned(),
                place: format!("sweep.{name}"),
                line: line_of_field(&self.text, &["sweep", name]),
            },
        }
    }

    /// Where a parameter of a case comes from.
    fn of_case(&self, number: usize, name: &str) -> Given {
        Given {
            name: name.to_owned(),
            place: format!("case[{number}].{name}"),
            line: line_of_field(&self.text, &["case", &number.to_string(), name]),
        }
    }

    /// All runs, each checked: the last parameter varies fastest.
    pub fn runs(&self) -> Result<Vec<Run>, ScenarioError> {
        let combinations = self.axes.iter().map(|axis| axis.values.len());
        let count = combinations.fold(self.cases.len().max(1), usize::saturating_mul);
        if count > RUNS_MAX {
            return Err(wrong(
                "sweep",
                &format!("{count} runs are more than {RUNS_MAX}"),
            ));
        }
        let plain = [Table::new()];
        let cases = if self.cases.is_empty() {
            &plain[..]
        } else {
            &self.cases
        };
        let mut runs = Vec::with_capacity(count);
        for (at, case) in cases.iter().enumerate() {
            for number in 0..count / cases.len() {
                runs.push(self.run((at, case), number)?);
            }
        }
        Ok(runs)
    }

    fn run(&self, (at, case): (usize, &Table), number: usize) -> Result<Run, ScenarioError> {
        let mut table = self.base.clone();
        let mut varied = Vec::new();
        let by_set = self.set.iter().map(|name| Given::by_option("--set", name));
        let mut all: Vec<Given> = by_set.collect();
        for (name, value) in case {
            match name.as_str() {
                "name" => varied.push(("case".to_owned(), text(value))),
                _ => {
                    let given = self.of_case(at, name);
                    put(&mut table, &given, value.clone())?;
                    all.push(given);
                }
            }
        }
        if !case.is_empty() && !case.contains_key("name") {
            let all: Vec<String> = case.iter().map(|(_, value)| text(value)).collect();
            varied.push(("case".to_owned(), all.join(" ")));
        }
        for (axis, value) in self.chosen(number) {
            let given = self.of_axis(&axis.name, axis.is_of_file);
            put(&mut table, &given, value.clone())?;
            varied.push((axis.name.clone(), text(value)));
            all.push(given);
        }
        match scenario(&table) {
            Ok(scenario) => Ok(Run { varied, scenario }),
            Err(error) => Err(self.located(error, &all, &varied)),
        }
    }

    /// The values of the combination of that number.
    fn chosen(&self, mut number: usize) -> Vec<(&Axis, &Value)> {
        let mut chosen = Vec::with_capacity(self.axes.len());
        for axis in self.axes.iter().rev() {
            chosen.push((axis, &axis.values[number % axis.values.len()]));
            number /= axis.values.len();
        }
        chosen.reverse();
        chosen
    }

    /// What is wrong with a run is wrong with what was given last of that field, or with what the scenario says for all runs.
    fn located(
        &self,
        error: ScenarioError,
        all: &[Given],
        varied: &[(String, String)],
    ) -> ScenarioError {
        let field = error.field.unwrap_or_default();
        let given = all.iter().rev().find(|given| given.has(&field));
        let mut located = match given {
            _ if field.is_empty() => ScenarioError {
                line: None,
                field: None,
                reason: error.reason,
            },
            Some(given) if parts(&given.name) == parts(&field) => given.wrong(&error.reason),
            Some(given) => given.wrong(&format!("{field}: {}", error.reason)),
            None => {
                let dotted = as_in_files(&field);
                let path: Vec<&str> = dotted.split('.').collect();
                ScenarioError {
                    line: line_of_field(&self.text, &path),
                    ..wrong(&field, &error.reason)
                }
            }
        };
        if !varied.is_empty() {
            let values = varied
                .iter()
                .map(|(name, value)| format!("{name} = {value}"));
            let values: Vec<String> = values.collect();
            located.reason += &format!(" (where {})", values.join(", "));
        }
        located
    }
}

impl Given {
    /// On the command line.
    fn by_option(option: &str, name: &str) -> Given {
        Given {
            name: name.to_owned(),
            place: format!("{option} {name}"),
            line: None,
        }
    }
}

/// The scenario of a run, checked. What the reader does not like is named by its field only where it reads text.
fn scenario(table: &Table) -> Result<Scenario, ScenarioError> {
    let read = Scenario::deserialize(Value::Table(table.clone()));
    let scenario = read.map_err(|error| {
        let text = toml::to_string(table).unwrap_or_default();
        match toml::from_str::<Scenario>(&text) {
            Err(error) => explain(&text, &error),
            Ok(_) => ScenarioError {
                line: None,
                field: None,
                reason: error.message().to_owned(),
            },
        }
    })?;
    scenario.checked()?;
    Ok(scenario)
}

/// Sets the parameter of a dotted name. `app.op` is that of every application, `app.0.op` of the first.
fn put(table: &mut Table, given: &Given, value: Value) -> Result<(), ScenarioError> {
    put_in(table, &given.name, value).map_err(|reason| given.wrong(&reason))
}

fn put_in(table: &mut Table, name: &str, value: Value) -> Result<(), String> {
    let Some((outer, inner)) = name.split_once('.') else {
        table.insert(name.to_owned(), value);
        return Ok(());
    };
    let entry = table
        .entry(outer)
        .or_insert_with(|| Value::Table(Table::new()));
    match entry {
        Value::Table(table) => put_in(table, inner, value),
        Value::Array(items) => put_in_items(items, inner, &value),
        // A name stands for a table with that name: `device = "hdd"` is `device.model = "hdd"`.
        Value::String(model) if outer == "device" => {
            let mut table = Table::new();
            table.insert("model".to_owned(), Value::String(model.clone()));
            put_in(&mut table, inner, value)?;
            *entry = Value::Table(table);
            Ok(())
        }
        _ => Err(format!("{outer} is a value, not a table")),
    }
}

fn put_in_items(items: &mut [Value], name: &str, value: &Value) -> Result<(), String> {
    let number = name.split_once('.').and_then(|(number, rest)| {
        let number: usize = number.parse().ok()?;
        Some((number, rest))
    });
    let count = items.len();
    let chosen: Vec<&mut Value> = match number {
        Some((number, _)) => items.get_mut(number).into_iter().collect(),
        None => items.iter_mut().collect(),
    };
    if chosen.is_empty() {
        return Err(format!("there are {count}, numbered from 0"));
    }
    let name = number.map_or(name, |(_, rest)| rest);
    for item in chosen {
        if let Value::Table(table) = item {
            put_in(table, name, value.clone())?;
        }
    }
    Ok(())
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Table(table) => table.get("model").map_or_else(|| "…".to_owned(), text),
        other => other.to_string(),
    }
}

fn wrong(field: &str, reason: &str) -> ScenarioError {
    ScenarioError {
        line: None,
        field: Some(field.to_owned()),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
[[app]]
bytes = \"1MiB\"
[[app]]
bytes = \"1MiB\"
[sweep]
\"servers.count\" = [1, 2]
seed = [1, 2, 3]
[[case]]
name = \"alone\"
[[case]]
name = \"forwarded\"
\"ionodes.count\" = 2
\"app.op\" = \"write\"
";

    #[test]
    fn every_combination_is_a_run_and_knows_what_is_special_about_it() {
        let runs = Sweep::from_toml(TEXT).and_then(|s| s.runs()).expect("good");
        assert_eq!(runs.len(), 12);
        let last = &runs[11];
        assert_eq!(last.scenario.ionodes.count, 2);
        assert_eq!((last.scenario.servers.count, last.scenario.seed), (2, 3));
        assert!(
            last.scenario
                .apps
                .iter()
                .all(|a| a.op == presagio_core::Op::Write)
        );
        let varied = ["case=forwarded", "servers.count=2", "seed=3"];
        let named: Vec<String> = last
            .varied
            .iter()
            .map(|(n, v)| format!("{n}={v}"))
            .collect();
        assert_eq!(named, varied);
    }

    #[test]
    fn a_parameter_that_is_set_varies_no_more() {
        let mut sweep = Sweep::from_toml(TEXT).expect("good");
        sweep.set("seed", Value::Integer(9)).expect("a seed");
        sweep
            .set("servers.device.rpm", Value::Integer(5400))
            .expect("a parameter");
        let runs = sweep.runs().expect("good");
        assert_eq!(runs.len(), 4);
        assert!(runs.iter().all(|run| run.scenario.seed == 9));
    }

    #[test]
    fn what_is_wrong_in_a_run_is_said_with_line_field_and_reason() {
        let rows = [
            ("[1, 2]", "[1, 0]", 6, "sweep.servers.count", "from 1"),
            ("[1, 2]", "[1, \"two\"]", 6, "sweep.servers.count", "string"),
            ("[1, 2]", "3", 6, "sweep.servers.count", "a list"),
            ("[1, 2]", "[]", 6, "sweep.servers.count", "no values"),
            (
                "\"ionodes.count\" = 2",
                "\"ionodes.cuont\" = 2",
                12,
                "case[1].ionodes.cuont",
                "unknown field",
            ),
            (
                "\"write\"",
                "\"append\"",
                13,
                "case[1].app.op",
                "read or write",
            ),
            (
                "\"app.op\" = \"write\"",
                "\"app.5.op\" = \"write\"",
                13,
                "case[1].app.5.op",
                "there are 2",
            ),
            (
                "\"app.op\" = \"write\"",
                "\"relays.count\" = 2",
                13,
                "case[1].relays.count",
                "I/O nodes",
            ),
            (
                "\"app.op\" = \"write\"",
                "\"app.total\" = \"1MiB\"",
                13,
                "case[1].app.total",
                "not both",
            ),
        ];
        for (good, bad, line, field, reason) in rows {
            let text = TEXT.replacen(good, bad, 1);
            let runs = Sweep::from_toml(&text).and_then(|sweep| sweep.runs());
            let error = runs.expect_err(bad);
            assert_eq!(error.line, Some(line), "{bad}: {error}");
            assert_eq!(error.field.as_deref(), Some(field), "{bad}: {error}");
            assert!(error.reason.contains(reason), "{bad}: {error}");
        }
        // What the scenario says for all runs cannot be with what a case says.
        let text = TEXT.replacen("[sweep]", "[relays]\ncount = 2\n[sweep]", 1);
        let error = Sweep::from_toml(&text).and_then(|sweep| sweep.runs());
        let error = error.expect_err("nodes and relays");
        let field = error.field.as_deref();
        assert_eq!(
            (error.line, field),
            (Some(6), Some("relays.count")),
            "{error}"
        );
        assert!(error.reason.contains("case = forwarded"), "{error}");
    }

    #[test]
    fn what_an_option_makes_wrong_names_the_option() {
        for (name, value, reason) in [
            ("servers.count", Value::Integer(0), "from 1"),
            ("servers.cuont", Value::Integer(1), "unknown field"),
            ("app.9.op", "read".into(), "there are 2"),
            ("app.0.bytes.of", Value::Integer(1), "not a table"),
        ] {
            let mut sweep = Sweep::from_toml(TEXT).expect("good");
            let set = sweep.set(name, value.clone());
            let error = set.and_then(|()| sweep.runs()).expect_err(name);
            assert_eq!(error.field, Some(format!("--set {name}")), "{error}");
            assert!(error.reason.contains(reason), "{error}");
            let mut sweep = Sweep::from_toml(TEXT).expect("good");
            let vary = sweep.vary(name, vec![value]);
            let error = vary.and_then(|()| sweep.runs()).expect_err(name);
            assert_eq!(error.field, Some(format!("--sweep {name}")), "{error}");
        }
    }

    #[test]
    fn a_run_that_cannot_be_names_the_values_that_make_it_so() {
        let mut sweep = Sweep::from_toml(TEXT).expect("good");
        sweep
            .vary("servers.count", vec![Value::Integer(0)])
            .expect("values");
        let error = sweep.runs().expect_err("no servers").to_string();
        assert!(
            error.contains("servers.count = 0") && error.contains("from 1"),
            "{error}"
        );
        sweep
            .vary("servers.colour", vec![Value::Integer(0)])
            .expect("values");
        sweep
            .set("servers.count", Value::Integer(1))
            .expect("a value");
        let error = sweep.runs().expect_err("no colours").to_string();
        assert!(error.contains("colour"), "{error}");
    }
}
