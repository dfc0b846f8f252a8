//! `presagio demo DIR`: what Presagio does, shown on a storage in about a minute.
//!
//! *Bounds*: rounds of the program end after a minute, and no other begins that would end later; the I/O node learns for so many
//! periods. What has no bound is the storage: the file is made, and the program run three times, however slow that is.
//!
//! [`program`] is an unmodified program, plain and guided; [`node`] an I/O node that learns in front of an emulated disk.
//! At the end a page about the first is there, and what to try next is said.

mod node;
mod program;

use crate::failure::failure;
use crate::terminal::prose;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What the page is called.
const REPORT: &str = "presagio-demo.html";

/// Show what Presagio does: a program plain and guided, an I/O node that learns, a report
///
/// Makes a file of 1.1 GB in a directory of its own below DIR, which is removed at the end, and lets a program read half of
/// it: plain and with `presagio run` before it, by turns, with nothing of the file in memory. The bytes it got are compared.
/// The program is our own, written after the description of the ROOT reader in the MERCURY paper (see the README's references).
/// It takes about a minute; where the storage is slow there are fewer rounds, one at least.
///
/// Then 32 clients load an I/O node in front of an emulated disk, under NOOP and under --policy adaptive, whose choices are
/// shown as it makes them. A report of the last guided run stays in DIR.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  presagio demo /scratch               on that storage
  presagio demo . --size 65536         smaller reads
  presagio demo . --periods 0          without the I/O node")]
pub struct Args {
    /// Where: a directory on the storage to be tried
    dir: PathBuf,
    /// Bytes of a read, on average
    #[arg(long, default_value_t = 256_000)]
    size: u64,
    /// How many reads a run has
    #[arg(long, default_value_t = 2000)]
    reads: u64,
    /// How many times each way, if there is time
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How many periods of half a second the I/O node learns
    #[arg(long, default_value_t = 24)]
    periods: usize,
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
    let report = args.dir.join(REPORT);
    headline("presagio run: an unmodified program waits less for its I/O")?;
    program::show(args, dir.path(), &report)?;
    if args.periods > 0 {
        headline("presagio ionode: it learns what suits the disk behind it")?;
        node::show(args.periods, dir.path())?;
    }
    headline("What to try next")?;
    next(&report)?;
    Ok(ExitCode::SUCCESS)
}

fn headline(text: &str) -> io::Result<()> {
    let rule = "─".repeat(text.chars().count());
    writeln!(io::stdout(), "\n{text}\n{rule}\n")
}

/// What a person may want to do now, with this program as they called it.
fn next(report: &Path) -> io::Result<()> {
    let called = std::env::args_os().next();
    let called = called.unwrap_or_else(|| OsString::from("presagio"));
    let presagio = called.to_string_lossy();
    let report = std::path::absolute(report)?;
    let out = &mut io::stdout().lock();
    writeln!(out, "Open the report of the recorded run in a browser:")?;
    writeln!(out, "  {}\n", report.display())?;
    for (command, why) in [
        ("run -- PROGRAM ...", "a program of yours"),
        (
            "run --report page.html -- PROGRAM ...",
            "and a page about it",
        ),
        (
            "sched compare DIR",
            "all ten policies on the storage of DIR",
        ),
        ("profile DIR", "what is that storage like? (two minutes)"),
        ("sim 001-fig2a", "policies on a whole cluster, simulated"),
    ] {
        writeln!(out, "  {presagio} {command}\n      {why}")?;
    }
    writeln!(out, "\n{}", prose(&guides(&presagio)))
}

/// Where there is more to read: in a checkout its documents, elsewhere the command itself.
fn guides(presagio: &str) -> String {
    match Path::new(SUMMARY).is_file() {
        true => format!(
            "{SUMMARY} leads to a guide for users, administrators, developers and researchers."
        ),
        false => format!(
            "`{presagio} help` lists all commands, and `{presagio} help run` explains one of them, with examples."
        ),
    }
}

/// Where a checkout has the contents of the book.
const SUMMARY: &str = "docs/SUMMARY.md";
