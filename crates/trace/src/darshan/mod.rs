//! Darshan's extended traces (DXT): every read and write that Darshan saw, at the POSIX and the MPI-IO level.
//!
//! [`LogReader`] reads the `.darshan` logs themselves, [`TextReader`] what `darshan-dxt-parser` prints of them.
//! Both give events in the log's order, which is by file and process and not by time.
//!
//! Two things are not in every log: MPI-IO events of Darshan before 3.1.7 have no offsets (we say 0), and only
//! logs since late 2025 tell the threads of a process apart (we say thread 0).

mod header;
mod log;
mod region;
mod text;

pub use log::{Info, LogReader};
pub use text::TextReader;

use crate::names::Budget;
use crate::{Process, Reason, Record};
use presagio_core::{FileId, Nanos};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// The advice for whoever has Darshan but no DXT.
const HOW_TO_RECORD: &str = "Darshan records single operations only when asked to: run the program again with \
     DXT_ENABLE_IO_TRACE=1 in its environment, or with MOD_ENABLE DXT_POSIX,DXT_MPIIO in the file that \
     DARSHAN_CONFIG_PATH names";

/// What to know of MPI-IO in old logs.
const NO_OFFSETS: &str = "this version of Darshan did not record the offsets of mpiio operations";

/// What the events so far refer to, and the records that have to come before the next one.
#[derive(Default)]
struct Definitions {
    due: VecDeque<Record>,
    /// The program and its arguments, and when it began.
    command: Option<String>,
    start: Option<Nanos>,
    budget: Budget,
    files: HashSet<FileId>,
    ranks: HashSet<u32>,
    threads: HashMap<(u32, u64), u32>,
    threads_of: HashMap<u32, u32>,
}

impl Definitions {
    fn file(&mut self, id: FileId, name: impl FnOnce() -> Arc<[u8]>) -> Result<(), Reason> {
        if self.files.insert(id) {
            self.budget.take(0)?;
            let name = name();
            self.due.push_back(Record::File { id, name });
        }
        Ok(())
    }

    fn process(&mut self, rank: u32, host: &[u8]) -> Result<(), Reason> {
        if self.ranks.insert(rank) {
            self.budget.take(0)?;
            self.due.push_back(Record::Process(Process {
                id: rank,
                pid: None,
                rank: Some(rank),
                host: (!host.is_empty()).then(|| String::from_utf8_lossy(host).into_owned()),
                command: self.command.clone(),
                start: self.start,
            }));
        }
        Ok(())
    }

    /// The number, within its process, of the thread that the system called `id`.
    fn thread(&mut self, rank: u32, id: u64) -> Result<u32, Reason> {
        if let Some(&thread) = self.threads.get(&(rank, id)) {
            return Ok(thread);
        }
        self.budget.take(0)?;
        let next = self.threads_of.entry(rank).or_default();
        let thread = *next;
        *next += 1;
        self.threads.insert((rank, id), thread);
        Ok(thread)
    }
}

/// A moment that Darshan gives in seconds since the program began. Clocks of other nodes can be a little behind.
fn moment(seconds: f64) -> Result<Nanos, Reason> {
    const LONGEST: f64 = 1e9;
    if !seconds.is_finite() || seconds.abs() > LONGEST {
        return Err(Reason::Malformed(format!(
            "{seconds} seconds is no time of an operation"
        )));
    }
    Ok(Nanos((seconds.max(0.0) * 1e9).round() as u64))
}

/// A length or an offset, where −1 stands for one that Darshan did not record.
fn size(what: &str, value: i64) -> Result<u64, Reason> {
    match value {
        -1 => Ok(0),
        _ => u64::try_from(value)
            .map_err(|_| Reason::Malformed(format!("the {what} {value} is negative"))),
    }
}

/// The rank of a process.
fn rank(value: i64) -> Result<u32, Reason> {
    u32::try_from(value)
        .map_err(|_| Reason::Malformed(format!("{value} is not the rank of a process")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_do_not_take_memory_without_end() {
        let small = || Definitions {
            budget: Budget::of(1000),
            ..Definitions::default()
        };
        let mut all = [small(), small(), small()];
        let files = (0..100).take_while(|&n| all[0].file(FileId(n), || [].into()).is_ok());
        assert_eq!(files.count(), 10);
        let ranks = (0..100).take_while(|&n| all[1].process(n, b"").is_ok());
        assert_eq!(ranks.count(), 10);
        let threads = (0..100).take_while(|&n| all[2].thread(0, n).is_ok());
        assert_eq!(threads.count(), 10);
    }
}
