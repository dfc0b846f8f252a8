//! `presagio demo DIR`: the main job, shown: one program, plain and as `presagio run` of it, by turns on a cold file.
//!
//! The program is the ROOT-like reader of `bench run` ([`crate::bench::run::load`]), which knows nothing of Presagio. The
//! first guided run knows nothing of the program either; the ones after it have what that one learned.

use crate::bench::run::load::{Kind, file_size, make_file};
use crate::failure::failure;
use crate::progress::progress;
use crate::table::{Cell, Table};
use crate::terminal::prose;
use anyhow::{Context, ensure};
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Show what `presagio run` gains: a program that reads a file, plain and guided
///
/// Makes a file in a directory of its own below DIR, which is removed at the end, and lets a program read half of it:
/// plain and with `presagio run` before it, by turns, with nothing of the file in memory. The bytes it got are compared.
/// Then the summary of the last guided run.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  presagio demo /scratch               on that storage
  presagio demo . --size 65536         smaller reads")]
pub struct Args {
    /// Where: a directory on the storage to be tried
    dir: PathBuf,
    /// Bytes of a read, on average
    #[arg(long, default_value_t = 256_000)]
    size: u64,
    /// How many reads a run has
    #[arg(long, default_value_t = 2000)]
    reads: u64,
    /// How many times each way
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// One run of the program.
struct Ran {
    /// What it read, in short.
    sum: String,
    seconds: f64,
    said: String,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let dir = tempfile::Builder::new()
        .prefix("presagio-demo-")
        .tempdir_in(&args.dir)
        .map_err(|cause| {
            failure(
                format!("cannot make a directory in {}", args.dir.display()),
                cause,
                "name one where you may write",
            )
        })?;
    let path = dir.path().join("data");
    let bytes = file_size(Kind::Root, args.size, args.reads);
    let steps = progress(1 + 2 * args.rounds as u64);
    steps.set_message("making the file");
    make_file(&path, bytes).with_context(|| path.display().to_string())?;
    let mut rows = Vec::new();
    let mut said = String::new();
    for round in 0..args.rounds {
        let mut ran = Vec::new();
        for models in [None, Some(dir.path())] {
            steps.inc(1);
            steps.set_message(if models.is_some() { "guided" } else { "plain" });
            forget(&path)?;
            ran.push(once(args, &path, models)?);
        }
        ensure!(
            ran[0].sum == ran[1].sum,
            "other bytes were read with Presagio than without"
        );
        rows.push(row(round, &ran));
        said = ran.remove(1).said;
    }
    steps.finish_and_clear();
    show(args, bytes, rows, &said)?;
    Ok(ExitCode::SUCCESS)
}

/// Puts a file out of the page cache; it is on the disk already.
fn forget(path: &Path) -> anyhow::Result<()> {
    let file = File::open(path)?;
    fadvise(&file, 0, None, Advice::DontNeed).context("the file stays in memory")
}

fn once(args: &Args, path: &Path, models: Option<&Path>) -> anyhow::Result<Ran> {
    let presagio = std::env::current_exe().context("this program's own file is not known")?;
    let mut command = Command::new(&presagio);
    if let Some(models) = models {
        command.args(["run", "--model-dir"]).arg(models).arg("--");
        command.arg(&presagio);
    }
    command.args(["bench-load", "root"]).arg(path);
    command.args(["--size", &args.size.to_string()]);
    command.args(["--reads", &args.reads.to_string()]);
    let output = command.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.success(),
        "the program failed: {}",
        said.trim()
    );
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut words = text.split_whitespace();
    let (Some(sum), Some(ns)) = (words.next(), words.nth(1)) else {
        anyhow::bail!("the program said nothing");
    };
    Ok(Ran {
        sum: sum.to_owned(),
        seconds: ns.parse::<f64>()? / 1e9,
        said,
    })
}

fn row(round: usize, ran: &[Ran]) -> Vec<Cell> {
    let ratio = ran[1].seconds / ran[0].seconds;
    let known = if round == 0 {
        "nothing"
    } else {
        "from the run before"
    };
    vec![
        Cell::Number(ran[0].seconds, 2),
        Cell::Number(ran[1].seconds, 2),
        Cell::Number(ratio, 2),
        Cell::Text(bar(ratio)),
        Cell::Text(known.to_owned()),
    ]
}

/// The guided run's time beside the plain one's, which is the whole width.
fn bar(ratio: f64) -> String {
    const WIDTH: f64 = 20.0;
    let full = (ratio.min(1.0) * WIDTH).round() as usize;
    "█".repeat(full) + &"░".repeat(WIDTH as usize - full)
}

fn show(args: &Args, bytes: u64, rows: Vec<Vec<Cell>>, said: &str) -> anyhow::Result<()> {
    let out = &mut io::stdout().lock();
    let text = format!(
        "A program reads {} pieces of {} KiB on average, about half of a file of {} MiB: onwards with gaps, now and \
         then one further back; after each it computes for 0.3 ms ({} s in all). Nothing of the file is in memory \
         when it begins. The same bytes were read in every run.",
        args.reads,
        args.size >> 10,
        bytes >> 20,
        args.reads as f64 * 0.0003,
    );
    writeln!(out, "{}\n", prose(&text))?;
    let table = Table {
        title: String::new(),
        columns: vec![
            ("plain", "plain s"),
            ("guided", "presagio run s"),
            ("ratio", "ratio"),
            ("bar", ""),
            ("known", "what was known"),
        ],
        rows,
    };
    table.write(out)?;
    writeln!(out, "\nWhat the last guided run says about itself:\n")?;
    write!(out, "{said}")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_never_longer_than_its_frame() {
        for ratio in [0.0, 0.5, 1.0, 7.0] {
            assert_eq!(bar(ratio).chars().count(), 20);
        }
        assert!(bar(0.5).starts_with(&"█".repeat(10)) && bar(0.5).ends_with(&"░".repeat(10)));
    }
}
