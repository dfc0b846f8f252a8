//! The first part of the demo: one program, plain and as `presagio run` of it, by turns on a cold file.
//!
//! The program is the ROOT-like reader of `bench run` ([`crate::bench::run::load`]), which knows nothing of Presagio. The
//! first guided run knows nothing of the program either; the ones after it have what that one learned.

use super::Args;
use crate::bench::run::load::{Kind, file_size, make_file};
use crate::failure::failure;
use crate::progress::progress;
use crate::table::{Cell, Table};
use crate::terminal::prose;
use anyhow::{Context, ensure};
use presagio_advise::hints::residency;
use presagio_core::Range;
use presagio_page::readable;
use rustix::fs::{Advice, fadvise, statvfs};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long rounds may take, after the first: with the run that is recorded and the I/O node, a demo ends within two minutes also on a
/// disk where a run takes twenty seconds.
const ROUNDS_TIME: Duration = Duration::from_secs(60);

/// What the models, the report and the I/O nodes need besides the file.
const BESIDES: u64 = 64 << 20;

/// How the program is run.
#[derive(Clone, Copy)]
enum Way<'a> {
    Plain,
    Guided,
    /// Guided, with a page about it.
    Recorded(&'a Path),
}

impl Way<'_> {
    const fn name(self) -> &'static str {
        match self {
            Way::Plain => "plain",
            Way::Guided => "guided",
            Way::Recorded(_) => "guided and recorded",
        }
    }
}

/// One run of the program.
struct Ran {
    /// What it read, in short.
    sum: String,
    seconds: f64,
    said: String,
}

/// Runs it in `dir`, and writes a page about the last run to `report`.
pub fn show(args: &Args, dir: &Path, report: &Path) -> anyhow::Result<()> {
    let path = dir.join("data");
    let bytes = file_size(Kind::Root, args.size, args.reads);
    ensure_room(dir, bytes)?;
    let began = Instant::now();
    let steps = progress(2 + 2 * args.rounds as u64);
    steps.set_message("making the file");
    make_file(&path, bytes).with_context(|| path.display().to_string())?;
    let mut rows = Vec::new();
    let mut warm = Warm::Bytes(0);
    for round in 0..args.rounds {
        let mut ran = Vec::new();
        for way in [Way::Plain, Way::Guided] {
            steps.inc(1);
            steps.set_message(way.name());
            warm = warm.and(forget(&path)?);
            ran.push(once(args, &path, way)?);
        }
        ensure!(
            ran[0].sum == ran[1].sum,
            "other bytes were read with Presagio than without"
        );
        rows.push(row(round, &ran));
        if !is_time_for_more(began.elapsed(), rows.len()) {
            break;
        }
    }
    let recorded = Way::Recorded(report);
    steps.inc(1);
    steps.set_message(recorded.name());
    forget(&path)?;
    let said = once(args, &path, recorded)?.said;
    steps.finish_and_clear();
    print(args, bytes, warm, rows, &said)
}

/// Whether a file of so many bytes fits, with what else is made: better said before a gigabyte was written.
fn ensure_room(dir: &Path, bytes: u64) -> anyhow::Result<()> {
    let there = statvfs(dir).map_or(u64::MAX, |fs| fs.f_bavail.saturating_mul(fs.f_frsize));
    let needed = bytes + BESIDES;
    if there >= needed {
        return Ok(());
    }
    let what = format!("the demo needs {}", readable::bytes(needed));
    let cause = format!("{} are free there", readable::bytes(there));
    let advice = "name a directory with more room, or let it read less (--reads)";
    Err(failure(what, cause, advice))
}

/// Whether another round like those before would end early enough. The file was made before the first, so it counts as one of them.
fn is_time_for_more(elapsed: Duration, rounds: usize) -> bool {
    let each = elapsed / u32::try_from(rounds).unwrap_or(u32::MAX).max(1);
    elapsed + each <= ROUNDS_TIME
}

/// What of the file was in memory when runs began, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Warm {
    /// So many bytes.
    Bytes(u64),
    /// The system does not say.
    Unknown,
}

impl Warm {
    fn and(self, other: Warm) -> Warm {
        match (self, other) {
            (Warm::Bytes(a), Warm::Bytes(b)) => Warm::Bytes(a.max(b)),
            _ => Warm::Unknown,
        }
    }

    /// Of a file of so many bytes, as a sentence.
    fn said(self, bytes: u64) -> String {
        match self {
            Warm::Bytes(0) => "Nothing of the file is in memory when it begins.".to_owned(),
            Warm::Bytes(there) => format!(
                "The system keeps {} of the file in memory ({}): nothing can be gained for that. Another directory, on a disk, shows more.",
                readable::percent(there as f64 / bytes.max(1) as f64),
                readable::bytes(there)
            ),
            Warm::Unknown => "The system was asked to put the file out of memory; it does not say whether it did.".to_owned(),
        }
    }
}

/// Puts a file out of the page cache; it is on the disk already. A file system that has no disk (tmpfs) says that it did, and does not:
/// what is still there is told.
fn forget(path: &Path) -> anyhow::Result<Warm> {
    let file = File::open(path)?;
    fadvise(&file, 0, None, Advice::DontNeed).context("the file stays in memory")?;
    let whole = Range::at(0, file.metadata()?.len());
    Ok(residency(&file, whole).map_or(Warm::Unknown, Warm::Bytes))
}

fn once(args: &Args, path: &Path, way: Way) -> anyhow::Result<Ran> {
    let presagio = std::env::current_exe().context("this program's own file is not known")?;
    let mut command = Command::new(&presagio);
    if !matches!(way, Way::Plain) {
        command.args(["run", "--model-dir"]);
        command.arg(path.with_file_name("models"));
        if let Way::Recorded(report) = way {
            command.arg("--report").arg(report);
        }
        command.arg("--").arg(&presagio);
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

/// Rounds that there was no time for.
fn left_out(rounds: usize) -> String {
    match rounds {
        0 => String::new(),
        _ => format!(
            " {} left out: this storage is slow.",
            readable::counted(rounds as u64, "round was", "rounds were")
        ),
    }
}

fn print(
    args: &Args,
    bytes: u64,
    warm: Warm,
    rows: Vec<Vec<Cell>>,
    said: &str,
) -> anyhow::Result<()> {
    let out = &mut io::stdout().lock();
    let text = format!(
        "A program reads {} pieces of {} KiB on average, about half of a file of {} MiB: onwards with gaps, now and \
         then one further back; after each it computes for 0.3 ms ({} s in all). It is our own, written after what the \
         MERCURY paper says of ROOT's reader. {} The same bytes were read in every run.{}",
        args.reads,
        args.size >> 10,
        bytes >> 20,
        args.reads as f64 * 0.0003,
        warm.said(bytes),
        left_out(args.rounds.saturating_sub(rows.len())),
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
    writeln!(
        out,
        "\nWhat one more guided run, which was recorded, says about itself:\n"
    )?;
    write!(out, "{said}")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_in_memory_is_said() {
        let one_page = Warm::Bytes(4096);
        assert_eq!(Warm::Bytes(0).and(one_page), one_page);
        assert_eq!(one_page.and(Warm::Unknown), Warm::Unknown);
        assert!(Warm::Bytes(0).said(8192).starts_with("Nothing"));
        assert!(
            one_page
                .said(8192)
                .contains("50 % of the file in memory (4 KiB)")
        );
    }

    #[test]
    fn a_file_that_does_not_fit_is_not_begun() {
        let dir = tempfile::tempdir().unwrap();
        assert!(ensure_room(dir.path(), 1).is_ok());
        let error = ensure_room(dir.path(), u64::MAX - BESIDES).unwrap_err();
        let said = error.to_string();
        assert!(said.starts_with("the demo needs 16 EiB; "), "{said}");
        assert!(
            said.contains("free there") && said.contains("--reads"),
            "{said}"
        );
    }

    #[test]
    fn on_a_slow_storage_there_are_fewer_rounds() {
        let more = |seconds, rounds| is_time_for_more(Duration::from_secs(seconds), rounds);
        assert!(more(6, 1) && more(12, 2) && more(40, 2));
        assert!(!more(45, 1) && !more(50, 2) && !more(200, 1));
        assert_eq!(left_out(0), "");
        assert!(left_out(2).contains("2 rounds were left out"));
    }

    #[test]
    fn a_file_without_a_disk_is_not_said_to_be_out_of_memory() {
        let in_memory = Path::new("/dev/shm");
        let Ok(file) = tempfile::NamedTempFile::new_in(in_memory) else {
            return; // a machine without tmpfs
        };
        std::fs::write(file.path(), [7; 8192]).unwrap();
        assert_ne!(forget(file.path()).unwrap(), Warm::Bytes(0));
    }

    #[test]
    fn a_bar_is_never_longer_than_its_frame() {
        for ratio in [0.0, 0.5, 1.0, 7.0] {
            assert_eq!(bar(ratio).chars().count(), 20);
        }
        assert!(bar(0.5).starts_with(&"█".repeat(10)) && bar(0.5).ends_with(&"░".repeat(10)));
    }
}
