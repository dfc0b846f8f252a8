//! What ran in each recording, if somebody knows it.

use crate::failure::failure;
use std::path::{Path, PathBuf};

/// A label for each recording, in order.
pub struct Labels(Vec<Option<String>>);

impl Labels {
    /// From a CSV file, from the recordings' names (`names`), or none.
    pub fn read(from: Option<&Path>, traces: &[PathBuf]) -> anyhow::Result<Labels> {
        let labels = match from {
            None => vec![None; traces.len()],
            Some(names) if names.as_os_str() == "names" => {
                traces.iter().map(|trace| Some(of_name(trace))).collect()
            }
            Some(file) => of_file(file, traces)?,
        };
        Ok(Labels(labels))
    }

    /// The label of the recording of that number.
    pub fn of(&self, number: usize) -> Option<&str> {
        self.0.get(number)?.as_deref()
    }
}

/// `ior@3.ptrace` and `ior.ptrace` are `ior`.
fn of_name(trace: &Path) -> String {
    let name = trace.file_name().unwrap_or_default().to_string_lossy();
    match (name.split_once('@'), name.rsplit_once('.')) {
        (Some((label, _)), _) | (None, Some((label, _))) => label.to_owned(),
        (None, None) => name.into_owned(),
    }
}

/// Lines of `trace,label`; a trace is named as on the command line, or by its file name alone.
fn of_file(file: &Path, traces: &[PathBuf]) -> anyhow::Result<Vec<Option<String>>> {
    let what = || format!("cannot read the labels {}", file.display());
    let advice = "give a CSV file with lines of trace,label, or `--labels names`";
    let text = std::fs::read_to_string(file).map_err(|cause| failure(what(), cause, advice))?;
    let mut known = Vec::new();
    for (number, line) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        let (trace, label) = line.rsplit_once(',').ok_or_else(|| {
            let cause = format!("line {} has no comma", number + 1);
            failure(what(), cause, advice)
        })?;
        known.push((trace.trim(), label.trim()));
    }
    let label = |trace: &PathBuf| {
        let is_it = |name: &str| {
            Path::new(name) == trace.as_path() || trace.file_name().is_some_and(|file| file == name)
        };
        let found = known.iter().find(|(name, _)| is_it(name));
        found.map(|(_, label)| (*label).to_owned())
    };
    Ok(traces.iter().map(label).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_labels_up_to_the_repetition_or_the_format() {
        let labels = ["a/ior@1.ptrace", "ior.x.csv", "plain"].map(|name| of_name(Path::new(name)));
        assert_eq!(labels, ["ior", "ior.x", "plain"]);
    }
}
