//! The second part of the demo: an I/O node in front of an emulated disk, which 32 clients load; first under NOOP, then
//! learning by itself what suits them.
//!
//! What it chose is read from its own log of decisions, as `presagio council explain` does.

use crate::bench::council::live::{ARMS, CLIENTS, Load, Phase};
use crate::bench::ionode::server::Server;
use crate::progress::progress;
use crate::table::drawn;
use crate::terminal::prose;
use serde_json::Value;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

const PERIOD: Duration = Duration::from_millis(500);

/// How long NOOP is measured.
const PLAIN: Duration = Duration::from_secs(3);

/// Bars are as long as this for so many times NOOP.
const WIDTH: usize = 10;
const TIMES: f64 = 10.0;

/// Shows so many periods; the nodes live in `dir`.
pub fn show(periods: usize, dir: &Path) -> anyhow::Result<()> {
    let text = format!(
        "{CLIENTS} clients read one file through a node, taking turns of 32 KiB. Behind the node is an emulated disk, \
         which seeks and turns as a real one does. NOOP passes requests on as they come. The other node is not told \
         what suits its clients: every half second it chooses among {}, and learns from what comes of it.",
        ARMS.join(", ")
    );
    writeln!(io::stdout(), "{}\n", prose(&text))?;
    let plain = plain(&dir.join("plain"))?;
    let heading = "period  served by   MB/s              and then";
    writeln!(
        io::stdout(),
        "{heading}\n{}",
        line("", "NOOP alone", plain, plain, "")
    )?;
    let served = learn(&dir.join("learns"), periods, plain)?;
    conclude(plain, &served)
}

/// Megabytes a second with NOOP.
fn plain(dir: &Path) -> anyhow::Result<f64> {
    let bar = progress(1);
    bar.set_message("NOOP");
    std::fs::create_dir_all(dir)?;
    let server = Server::presagio(
        dir,
        &["--emulate", "hdd", "--depth", "1", "--policy", "NOOP"],
    )?;
    let speed = Load::new(&server)?.run(Phase::Strided, PLAIN)?;
    bar.finish_and_clear();
    Ok(speed)
}

/// What served each period, and how fast.
fn learn(dir: &Path, periods: usize, plain: f64) -> anyhow::Result<Vec<(String, f64)>> {
    std::fs::create_dir_all(dir)?;
    let learned = dir.join("learned.redb");
    let (period, arms) = (PERIOD.as_secs_f64().to_string(), ARMS.join(","));
    let learned_text = learned.to_string_lossy();
    let server = Server::presagio(
        dir,
        &[
            "--emulate",
            "hdd",
            "--depth",
            "1",
            "--policy",
            "adaptive",
            "--period",
            &period,
            "--arms",
            &arms,
            "--learned",
            &learned_text,
        ],
    )?;
    let load = Load::new(&server)?;
    let mut log = Log::new(learned.with_file_name("learned.redb.decisions.jsonl"));
    let long = PERIOD * periods as u32;
    std::thread::scope(|scope| {
        let load = scope.spawn(|| load.run(Phase::Strided, long));
        let mut served = Vec::new();
        loop {
            let is_over = load.is_finished();
            for decision in log.new_lines() {
                served.extend(tell(served.len() + 1, &decision, plain)?);
            }
            if is_over {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        load.join().expect("clients do not panic")?;
        Ok(served)
    })
}

/// Says what came of a period and what is done next. What served it, and how fast; none for a period in which the choice
/// changed, or hardly anything was served.
fn tell(number: usize, decision: &Value, plain: f64) -> anyhow::Result<Option<(String, f64)>> {
    let evidence = &decision["evidence"];
    let (Some(arm), Some(speed)) = (
        evidence["in_force"].as_str(),
        evidence["bytes_per_busy_s"].as_f64(),
    ) else {
        return Ok(None);
    };
    let next = match &decision["chosen"] {
        chosen if chosen == arm => "stays".to_owned(),
        chosen => format!(
            "{}: {}",
            chosen.as_str().unwrap_or_default(),
            decision["why"].as_str().unwrap_or_default()
        ),
    };
    let speed = speed / 1e6;
    let number = number.to_string();
    writeln!(io::stdout(), "{}", line(&number, arm, speed, plain, &next))?;
    Ok(Some((arm.to_owned(), speed)))
}

fn line(number: &str, arm: &str, speed: f64, plain: f64, next: &str) -> String {
    let bar = drawn((speed / plain / TIMES).min(1.0), WIDTH);
    let line = format!("{number:>6}  {arm:<10}  {speed:>4.0}  {bar:<WIDTH$}  {next}");
    line.trim_end().to_owned()
}

/// The last quarter is what it ends with.
fn conclude(plain: f64, served: &[(String, f64)]) -> anyhow::Result<()> {
    let last = &served[served.len() - served.len().div_ceil(4)..];
    if last.is_empty() {
        return Ok(writeln!(
            io::stdout(),
            "\nToo short: it has decided nothing yet."
        )?);
    }
    let mean = last.iter().map(|(_, speed)| speed).sum::<f64>() / last.len() as f64;
    let text = format!(
        "In its last {} periods the node that learns served {mean:.0} MB/s, {:.1} times as much as NOOP; what it tried on \
         the way is in that. It remembers: a node that is started again with the same --learned file begins with it. \
         `presagio council explain` shows each decision with all that was known.",
        last.len(),
        mean / plain,
    );
    Ok(writeln!(io::stdout(), "\n{}", prose(&text))?)
}

/// A node's log of decisions, while it is written.
struct Log {
    path: PathBuf,
    /// Lines that were read already.
    read: usize,
}

impl Log {
    fn new(path: PathBuf) -> Log {
        Log { path, read: 0 }
    }

    /// The decisions since the last look. A line that is not complete yet is left for the next one.
    fn new_lines(&mut self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let new: Vec<Value> = whole
            .lines()
            .skip(self.read)
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        self.read += new.len();
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read_line_by_line_as_it_grows() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = Log::new(path.clone());
        assert!(log.new_lines().is_empty());
        std::fs::write(&path, "{\"a\":1}\n{\"a\":").unwrap();
        assert_eq!(log.new_lines(), [serde_json::json!({"a": 1})]);
        std::fs::write(&path, "{\"a\":1}\n{\"a\":2}\n").unwrap();
        assert_eq!(log.new_lines(), [serde_json::json!({"a": 2})]);
    }

    #[test]
    fn a_line_of_the_table_fits_a_terminal() {
        let next = "TWINS:1ms: the best of what was tried here";
        let longest = line("24", "TWINS:1ms", 1234.5, 10.0, next);
        assert!(longest.chars().count() <= 80, "{longest}");
        assert_eq!(
            line("", "NOOP alone", 20.0, 20.0, ""),
            "        NOOP alone    20  █"
        );
    }
}
