//! `presagio run --report`: the page is written when all that it shows is known, by whoever has the summary.
//!
//! A report needs a trace. Where none was asked for, there is one for as long as the run takes, beside the page that is to
//! be written: there is room there, and whoever may write the page may write the trace.

use crate::failure::{failure, one_line};
use crate::report;
use presagio_advise::manager::Summary;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

/// A report that is to be written.
#[derive(Debug)]
pub struct Reported {
    pub to: PathBuf,
    pub trace: PathBuf,
    /// Whether nobody else wants the trace.
    pub is_trace_ours: bool,
}

impl Reported {
    /// Checks that the report can be written, and makes a place for the trace if there is none.
    pub fn plan(to: &Path, trace: Option<&Path>) -> anyhow::Result<Reported> {
        let explain = |error: std::io::Error| {
            let what = format!("cannot write the report {}", to.display());
            failure(what, error, "choose a place that you may write to")
        };
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false);
        options.open(to).map_err(explain)?;
        let ours = || -> std::io::Result<PathBuf> {
            let directory = to.parent().filter(|p| !p.as_os_str().is_empty());
            let mut builder = tempfile::Builder::new();
            let builder = builder.prefix(".presagio-").suffix(".ptrace");
            let file = builder.tempfile_in(directory.unwrap_or(Path::new(".")))?;
            Ok(file.keep()?.1)
        };
        Ok(Reported {
            to: to.to_owned(),
            is_trace_ours: trace.is_none(),
            trace: match trace {
                Some(trace) => trace.to_owned(),
                None => ours().map_err(explain)?,
            },
        })
    }

    /// Writes the report; a note in the summary says where it is, or why it is not.
    pub fn write(self, summary: &mut Summary) {
        if self.is_trace_ours {
            summary.trace = None;
        }
        let name = summary.programs.first().map(|program| program.name.clone());
        let name = name.unwrap_or_else(|| "run".to_owned());
        let written = report::write_of_run(&self.to, &self.trace, summary.json(), name);
        summary.notes.push(match written {
            Ok(()) => format!("the report is in {}", self.to.display()),
            Err(error) => one_line(&error),
        });
        self.give_up();
    }

    /// There will be no report.
    pub fn give_up(&self) {
        if self.is_trace_ours {
            let _ = fs::remove_file(&self.trace);
        }
    }
}
