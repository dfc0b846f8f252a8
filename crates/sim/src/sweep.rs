//! Many runs from one scenario: every case, with every combination of the parameters that have several values.

use crate::forge;
use crate::read::{ScenarioError, explain};
use crate::scenario::Scenario;
use serde::Deserialize;
use toml::{Table, Value};

/// A scenario with parameters that vary.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The scenario without what varies.
    base: Table,
    /// Sets of parameters, each with the name of the case.
    cases: Vec<Table>,
    /// Parameters and their values.
    axes: Vec<(String, Vec<Value>)>,
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
        Sweep::from_toml(&forge::to_toml(text)?).map_err(|e| ScenarioError { line: None, ..e })
    }

    /// Reads a scenario with `[sweep]` and `[[case]]`, either of which may be missing.
    pub fn from_toml(text: &str) -> Result<Sweep, ScenarioError> {
        // Read as a whole first: that knows lines.
        let scenario = Scenario::from_toml(text)?;
        let mut base: Table = toml::from_str(text).map_err(|e| explain(text, &e))?;
        base.remove("case");
        base.remove("sweep");
        let mut sweep = Sweep {
            base,
            cases: scenario.cases,
            axes: Vec::new(),
        };
        for (name, values) in scenario.sweep {
            let Value::Array(values) = values else {
                return Err(wrong(
                    &format!("sweep.{name}"),
                    "it must be a list of values",
                ));
            };
            sweep.vary(&name, values)?;
        }
        Ok(sweep)
    }

    /// Sets a parameter to one value, in every run.
    pub fn set(&mut self, name: &str, value: Value) -> Result<(), ScenarioError> {
        self.axes.retain(|(axis, _)| axis != name);
        self.cases
            .iter_mut()
            .for_each(|case| drop(case.remove(name)));
        put(&mut self.base, name, value)
    }

    /// Lets a parameter have each of these values.
    pub fn vary(&mut self, name: &str, values: Vec<Value>) -> Result<(), ScenarioError> {
        if values.is_empty() {
            return Err(wrong(&format!("sweep.{name}"), "it has no values"));
        }
        self.axes.retain(|(axis, _)| axis != name);
        self.axes.push((name.to_owned(), values));
        Ok(())
    }

    /// All runs, each checked: the last parameter varies fastest.
    pub fn runs(&self) -> Result<Vec<Run>, ScenarioError> {
        let combinations = self.axes.iter().map(|(_, values)| values.len());
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
        for case in cases {
            for number in 0..count / cases.len() {
                runs.push(self.run(case, number)?);
            }
        }
        Ok(runs)
    }

    fn run(&self, case: &Table, mut number: usize) -> Result<Run, ScenarioError> {
        let mut table = self.base.clone();
        let mut varied = Vec::new();
        for (name, value) in case {
            match name.as_str() {
                "name" => varied.push(("case".to_owned(), text(value))),
                _ => put(&mut table, name, value.clone())?,
            }
        }
        if !case.is_empty() && !case.contains_key("name") {
            let all: Vec<String> = case.iter().map(|(_, value)| text(value)).collect();
            varied.push(("case".to_owned(), all.join(" ")));
        }
        let mut chosen = Vec::new();
        for (name, values) in self.axes.iter().rev() {
            chosen.push((name, &values[number % values.len()]));
            number /= values.len();
        }
        for (name, value) in chosen.into_iter().rev() {
            put(&mut table, name, value.clone())?;
            varied.push((name.clone(), text(value)));
        }
        let of = |e: &str| {
            let all: Vec<String> = varied.iter().map(|(n, v)| format!("{n} = {v}")).collect();
            wrong(&all.join(", "), e)
        };
        let scenario = Scenario::deserialize(Value::Table(table)).map_err(|e| of(e.message()))?;
        scenario.checked().map_err(|e| of(&e.to_string()))?;
        Ok(Run { varied, scenario })
    }
}

/// Sets the parameter of a dotted name. `app.op` is that of every application, `app.0.op` of the first.
fn put(table: &mut Table, name: &str, value: Value) -> Result<(), ScenarioError> {
    put_in(table, name, value).map_err(|reason| wrong(name, &reason))
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
