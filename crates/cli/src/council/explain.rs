//! `presagio council explain`: why was that decided?

use super::span;
use crate::failure::failure;
use presagio_council::log::{self, Wanted, beside};
use presagio_council::unix_ms;
use serde_json::Value;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Why was that decided? What was seen, what there was to choose from, what was chosen
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  presagio council explain --store /var/lib/presagio/council
  presagio council explain --store /var/lib/presagio/node.redb --last 1
  presagio council explain --store /var/lib/presagio/council \\
      --since 10m --json | jq .why")]
pub struct Args {
    /// The council's --store, or the --learned of a node that decides alone
    #[arg(long, value_name = "PATH")]
    store: PathBuf,
    /// Decisions for this node
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Decisions of the last 90s, 10m, 2h, 1d
    #[arg(long, value_name = "TIME", value_parser = span)]
    since: Option<Duration>,
    /// Decisions in situations whose description has this in it, for example write
    #[arg(long, value_name = "TEXT")]
    context: Option<String>,
    /// The last so many [default: 10, or all with --since or --json]
    #[arg(long, value_name = "N")]
    last: Option<usize>,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

impl Args {
    fn wanted(&self) -> Wanted {
        let all = self.json || self.since.is_some();
        let since = self.since.map(|span| span.as_millis() as u64);
        Wanted {
            node: self.node.clone(),
            context: self.context.clone(),
            since: since.map_or(0, |span| unix_ms().saturating_sub(span)),
            last: self.last.or((!all).then_some(10)),
        }
    }

    /// What to say of a log that does not have all that was asked for.
    fn shortfall(&self, wanted: &Wanted, log: &Path) -> Option<String> {
        // Whether there is a log at all is said by who reads it.
        let oldest = log::reaches_back_to(log).ok()??;
        (self.since.is_some() && oldest > wanted.since).then(|| {
            format!(
                "presagio: the log of {} reaches back {} s: what was decided before is not in it",
                self.store.display(),
                unix_ms().saturating_sub(oldest) / 1000
            )
        })
    }

    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let mut out = io::stdout().lock();
        let mut written = Ok(());
        let (log, wanted) = (beside(&self.store), self.wanted());
        if let Some(shortfall) = self.shortfall(&wanted, &log) {
            eprintln!("{shortfall}");
        }
        let read = log::read(&log, &wanted, |entry| {
            if written.is_ok() {
                written = match self.json {
                    true => writeln!(out, "{entry}"),
                    false => out.write_all(in_words(&entry).as_bytes()),
                };
            }
        });
        written?;
        match read {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(failure(
                format!("no decisions at {}", self.store.display()),
                "there is no log of any",
                "name the directory that the council was given as --store",
            )),
            Err(error) => Err(failure(
                format!("cannot read the log of {}", self.store.display()),
                error,
                "you need the permissions of the council's user",
            )),
        }
    }
}

/// A decision for a person.
fn in_words(entry: &Value) -> String {
    let text = |key: &str| entry[key].as_str().unwrap_or("-").to_owned();
    let seen = &entry["evidence"];
    let rate = seen["bytes_per_busy_s"].as_f64().map_or_else(
        || "nothing that counts".to_owned(),
        |rate| format!("{:.1} MB per busy second", rate / 1e6),
    );
    let age_s = unix_ms().saturating_sub(entry["at"].as_u64().unwrap_or(0)) / 1000;
    let mut words = format!(
        "{} s ago, node {}: {}{}\n    in {}\n    because {}\n",
        age_s,
        text("node"),
        text("chosen"),
        if entry["explores"] == true {
            " (tried)"
        } else {
            ""
        },
        text("context"),
        text("why"),
    );
    // A node that goes back at once to what was best before has seen nothing yet.
    if seen.is_object() {
        let in_force = seen["in_force"].as_str().unwrap_or("a switch");
        words += &format!("    it had {in_force} and served {rate}");
        if let Some(learned) = seen["learned"].as_str() {
            words += &format!("; that {learned}");
        }
        words.push('\n');
    }
    let tried = candidates(entry);
    if !tried.is_empty() {
        words += &format!("    known: {tried}\n");
    }
    words
}

/// What was tried, the best first.
fn candidates(entry: &Value) -> String {
    let mut tried: Vec<(f64, String)> = entry["candidates"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|it| {
            let value = it[1].as_f64()?;
            let barred = if it[3].is_string() { ", barred" } else { "" };
            let name = it[0].as_str()?;
            Some((
                value,
                format!("{name} {:.0} % ({}{barred})", value * 100.0, it[2]),
            ))
        })
        .collect();
    tried.sort_by(|a, b| b.0.total_cmp(&a.0));
    let all: Vec<String> = tried.into_iter().map(|(_, text)| text).collect();
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn since(store: &Path, span: Option<u64>) -> Args {
        Args {
            store: store.to_owned(),
            node: None,
            since: span.map(Duration::from_secs),
            context: None,
            last: None,
            json: true,
        }
    }

    #[test]
    fn a_log_that_begins_later_than_asked_for_is_said_to() {
        let dir = tempfile::tempdir().expect("a place");
        let log = beside(dir.path());
        let shortfall = |span| {
            let args = since(dir.path(), span);
            args.shortfall(&args.wanted(), &log)
        };
        assert_eq!(shortfall(Some(3600)), None, "there is no log");
        let entry = json!({ "at": unix_ms() - 100_000, "node": "io1" });
        std::fs::write(&log, format!("{entry}\n")).expect("room");
        let said = shortfall(Some(3600)).expect("it begins later");
        assert!(
            said.contains("reaches back 100 s") || said.contains("reaches back 101 s"),
            "{said}"
        );
        assert_eq!(shortfall(Some(60)), None, "all of that is there");
        assert_eq!(shortfall(None), None, "nobody asked");
    }

    #[test]
    fn a_decision_is_said_in_words() {
        let entry = json!({
            "at": unix_ms(), "node": "io3", "context": "own-files write of 32768 B", "chosen": "SJF", "explores": true,
            "why": "not tried here yet",
            "evidence": { "in_force": "NOOP", "bytes_per_busy_s": 12.5e6, "learned": "counts" },
            "candidates": [["NOOP", 0.5, 3], ["SJF", null, 0], ["TO", 1.0, 2, "barred"]],
        });
        let words = in_words(&entry);
        for part in [
            "node io3: SJF (tried)",
            "in own-files write",
            "because not tried here yet",
            "it had NOOP and served 12.5 MB per busy second; that counts",
            "known: TO 100 % (2, barred), NOOP 50 % (3)",
        ] {
            assert!(words.contains(part), "{part} is not in {words}");
        }
    }
}
