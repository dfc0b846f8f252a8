//! `presagio run --report`: the page is written when all that it shows is known, by whoever has the summary.
//!
//! A report needs a trace. Where none was asked for, there is one for as long as the run takes, on the disk of the page that is to
//! be written: there is room there, and whoever may write the page may write the trace. It has no name, so that nothing is left
//! whatever ends the run. Where the manager is inside the command, and has to find it by its name, it lies in a directory that goes
//! with the run, or with the next one that writes a report beside it.

use super::place::Place;
use crate::failure::{failure, one_line};
use crate::report;
use presagio_advise::manager::Summary;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};

/// A report that is to be written.
pub struct Reported {
    to: PathBuf,
    trace: PathBuf,
    ours: Option<Ours>,
}

/// A trace that nobody else wants.
enum Ours {
    /// Without a name; the path is that of the descriptor.
    Nameless(File),
    /// In a place of its own, which goes with it.
    Named { _place: Place },
}

/// How the places of traces with a name are called, and what says that one is in use.
const PREFIX: &str = ".presagio-report-";
const IN_USE: &str = "in-use";
const TRACE: &str = "run.ptrace";

impl Reported {
    /// Checks that the report can be written, and makes a place for the trace if there is none.
    pub fn plan(to: &Path, trace: Option<&Path>) -> anyhow::Result<Reported> {
        let explain = |error| cannot_write(to, error);
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false);
        options.open(to).map_err(explain)?;
        let to = to.to_owned();
        if let Some(trace) = trace {
            return Ok(Reported {
                trace: trace.to_owned(),
                ours: None,
                to,
            });
        }
        let file = tempfile::tempfile_in(beside(&to)).map_err(explain)?;
        Ok(Reported {
            trace: format!("/proc/self/fd/{}", file.as_raw_fd()).into(),
            ours: Some(Ours::Nameless(file)),
            to,
        })
    }

    /// The trace to write, and what it is called, if nobody else wants it.
    pub fn trace(&self) -> io::Result<Option<(PathBuf, File)>> {
        match &self.ours {
            Some(Ours::Nameless(file)) => Ok(Some((self.trace.clone(), file.try_clone()?))),
            Some(Ours::Named { .. }) | None => Ok(None),
        }
    }

    /// What must stay open until the report is written.
    pub fn descriptor(&self) -> Option<RawFd> {
        match &self.ours {
            Some(Ours::Nameless(file)) => Some(file.as_raw_fd()),
            Some(Ours::Named { .. }) | None => None,
        }
    }

    /// Names files so that another process finds them, wherever it goes; the trace, if nobody else wants it.
    pub fn make_absolute(&mut self) -> anyhow::Result<Option<PathBuf>> {
        self.to = std::path::absolute(&self.to)?;
        if self.ours.is_none() {
            self.trace = std::path::absolute(&self.trace)?;
            return Ok(None);
        }
        let explain = |error| cannot_write(&self.to, error);
        let place =
            Place::make_in(beside(&self.to), PREFIX, IN_USE, b"by a run").map_err(explain)?;
        self.trace = place.path().join(TRACE);
        File::create_new(&self.trace).map_err(explain)?;
        self.ours = Some(Ours::Named { _place: place });
        Ok(Some(self.trace.clone()))
    }

    /// Writes the report; a note in the summary says where it is, or why it is not.
    pub fn write(self, summary: &mut Summary) {
        if self.ours.is_some() {
            summary.trace = None;
        }
        let name = summary.programs.first().map(|program| program.name.clone());
        let name = name.unwrap_or_else(|| "run".to_owned());
        let written = report::write_of_run(&self.to, &self.trace, summary.json(), name);
        summary.notes.push(match written {
            Ok(()) => format!("the report is in {}", self.to.display()),
            Err(error) => one_line(&error),
        });
    }
}

/// The directory that a page is written to.
fn beside(page: &Path) -> &Path {
    let directory = page.parent().filter(|p| !p.as_os_str().is_empty());
    directory.unwrap_or(Path::new("."))
}

fn cannot_write(to: &Path, error: io::Error) -> anyhow::Error {
    let what = format!("cannot write the report {}", to.display());
    failure(what, error, "choose a place that you may write to")
}
