//! What the manager leaves for `presagio run`: a file with its summary, in the directory of the run.
//!
//! A run can have several managers, one after another where a program execs, so each takes the next number. The file is
//! replaced as a whole, so that whoever reads it, or kills us, finds a complete one.

use presagio_advise::manager::Summary;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// More managers than a run ever has.
const NUMBERS: std::ops::Range<u32> = 1..100_000;

/// How far a manager has come.
#[derive(Clone, Copy)]
pub enum End {
    /// It works; if its process is gone, it was killed.
    Working,
    /// It works, and its process is about to exec.
    Exec,
    /// All is done.
    Done,
}

/// See the module's header.
pub struct Account {
    directory: PathBuf,
    /// Which manager of the run this is, from 1.
    pub number: u32,
}

impl Account {
    /// Takes the next number.
    pub fn open(directory: &Path) -> io::Result<Account> {
        for number in NUMBERS {
            match File::create_new(directory.join(number.to_string())) {
                Ok(_) => {
                    let directory = directory.to_owned();
                    return Ok(Account { directory, number });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Says what is known so far.
    pub fn write(&self, end: End, summary: &Summary) {
        let end = match end {
            End::Working => "working",
            End::Exec => "exec",
            End::Done => "done",
        };
        self.replace(&json!({ "end": end, "pid": std::process::id(), "summary": summary.json() }));
    }

    /// Says why there is no manager.
    pub fn fail(&self, error: &io::Error) {
        self.replace(&json!({ "error": error.to_string() }));
    }

    /// Without a place to write to there is no summary, and the mode goes on.
    fn replace(&self, value: &Value) {
        let path = self.directory.join(self.number.to_string());
        let new = path.with_extension("new");
        let written =
            File::create(&new).and_then(|mut file| file.write_all(value.to_string().as_bytes()));
        let _ = written.and_then(|()| fs::rename(&new, &path));
    }
}
