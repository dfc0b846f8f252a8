//! Which job this is, and how its ranks on one node find their one manager.
//!
//! Ranks know each other by what their launcher says in the environment. The first one takes a lock in a directory of
//! the user's own, finds nobody behind the job's socket there, and starts a manager that listens on it; the others,
//! who waited for the lock, find it.

use super::manager::Door;
use presagio_advise::manager::desk::Ticket;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where a standing advisor listens.
pub const ADVISOR: &str = "advisor.sock";

/// How long a manager may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long whoever has the lock is waited for, a bit longer than it waits itself, and between two tries to get it.
const LOCK_PATIENCE: Duration = Duration::from_secs(15);
const LOCK_RETRY: Duration = Duration::from_millis(1);

/// A job whose ranks share a manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// What sets it apart from others.
    key: String,
    /// Ranks on this node, 0 if nobody knows.
    pub ranks: u32,
}

/// Launchers: the variables that together name a job, and those that say how many ranks it has on this node, of which the
/// first that does counts. All of the former must be there; the last of them is there for each rank only, not for the batch
/// script around them.
const LAUNCHERS: [(&[&str], &[&str]); 6] = [
    (&["PRESAGIO_JOB"], &["PRESAGIO_RANKS"]),
    // A library that many launchers speak through: what else is there depends on which it is.
    (
        &["PMIX_NAMESPACE", "PMIX_RANK"],
        &[
            "OMPI_COMM_WORLD_LOCAL_SIZE",
            "PALS_LOCAL_SIZE",
            "SLURM_STEP_TASKS_PER_NODE",
            "MPI_LOCALNRANKS",
        ],
    ),
    (
        &["OMPI_MCA_ess_base_jobid", "OMPI_COMM_WORLD_RANK"],
        &["OMPI_COMM_WORLD_LOCAL_SIZE"],
    ),
    (&["FLUX_JOB_ID", "FLUX_TASK_RANK"], &[]),
    (&["PALS_APID", "PALS_RANKID"], &["PALS_LOCAL_SIZE"]),
    (
        &["SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID"],
        &["SLURM_STEP_TASKS_PER_NODE"],
    ),
];

/// Launchers that say which rank this is and nothing else: their ranks have one parent.
const NAMELESS: [&str; 2] = ["PMI_RANK", "MPI_LOCALRANKID"];

/// Where batch systems say which job it is.
const NAMES: [&str; 6] = [
    "SLURM_JOB_ID",
    "PBS_JOBID",
    "LSB_JOBID",
    "FLUX_JOB_ID",
    "PALS_APID",
    "PRESAGIO_JOB",
];

/// What the batch system calls this job.
pub fn name() -> Option<String> {
    let value = |name: &&str| std::env::var(name).ok().filter(|v| !v.is_empty());
    NAMES.iter().find_map(value)
}

impl Job {
    /// The job that this process is a rank of, if it is one.
    pub fn of_environment() -> Option<Job> {
        Job::find(
            |name| std::env::var(name).ok(),
            std::os::unix::process::parent_id(),
        )
    }

    fn find(value: impl Fn(&str) -> Option<String>, parent: u32) -> Option<Job> {
        let value = |name: &str| value(name).filter(|v| !v.is_empty());
        let named = LAUNCHERS.iter().find_map(|(names, sizes)| {
            let all: Option<Vec<String>> = names.iter().map(|n| value(n)).collect();
            let mut all = all?;
            // The last one is the rank, where there are several.
            all.truncate((names.len() - 1).max(1));
            let node = value("SLURM_NODEID").and_then(|n| n.parse().ok());
            let size = |n: String| n.parse().ok().or_else(|| listed(&n, node?));
            let ranks = sizes.iter().find_map(|name| size(value(name)?));
            Some(Job {
                key: format!("{}={}", names[0], all.join(".")),
                ranks: ranks.unwrap_or(0),
            })
        });
        named.or_else(|| {
            NAMELESS.iter().find_map(|name| value(name))?;
            Some(Job {
                key: format!("parent={parent}.{}", start_of(parent)),
                ranks: value("MPI_LOCALNRANKS")
                    .and_then(|n| n.parse().ok())
                    .unwrap_or(0),
            })
        })
    }

    /// Registers with the job's manager, or has it started with a door for the others. The settings of the rank that
    /// came first hold. All should have the same, as text; `say` is called where that is not so.
    pub fn join_or_start(
        &self,
        settings: &str,
        say: impl FnOnce(),
        start: impl FnOnce(Option<Door>) -> anyhow::Result<io::Result<Ticket>>,
    ) -> anyhow::Result<io::Result<Ticket>> {
        // Without a place to meet, each has its own.
        let Ok((_lock, directory)) = lock() else {
            return start(None);
        };
        let path = directory.join(format!("{:016x}.sock", hash(&self.key)));
        let agreed = settings_beside(&path);
        if let Ok(ticket) = connect(&path, self.ranks) {
            if fs::read_to_string(&agreed).is_ok_and(|first| first != settings) {
                say();
            }
            return Ok(Ok(ticket));
        }
        let _ = fs::remove_file(&path);
        let _ = fs::write(&agreed, settings);
        let listener = UnixListener::bind(&path).ok();
        start(listener.map(|listener| Door { listener, path }))
    }
}

/// Where those who come later find the settings that hold.
fn settings_beside(socket: &Path) -> PathBuf {
    socket.with_extension("settings")
}

/// The ranks on a node where Slurm lists those of all nodes: `2(x3),1` are three nodes with two, then one with one.
fn listed(list: &str, node: u32) -> Option<u32> {
    let mut before = 0u32;
    list.split(',').find_map(|part| {
        let (ranks, nodes) = part.split_once("(x").unwrap_or((part, "1"));
        before = before.saturating_add(nodes.trim_end_matches(')').parse().ok()?);
        (node < before).then(|| ranks.parse().ok())?
    })
}

/// A standing advisor of this user, if there is one.
pub fn standing_advisor() -> Option<Ticket> {
    connect(&directory().ok()?.join(ADVISOR), 0).ok()
}

fn connect(path: &Path, ranks: u32) -> io::Result<Ticket> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ticket::get(stream, ranks)
}

/// Takes the name of a socket away, unless another manager has it by now.
pub fn close_door(path: &Path) {
    let Ok((_lock, _)) = lock() else {
        return;
    };
    // Somebody listens: it is not ours, which is closed.
    if UnixStream::connect(path).is_err() {
        let _ = fs::remove_file(path);
        let _ = fs::remove_file(settings_beside(path));
    }
}

/// The user's lock, and the directory it lies in. It is held for as long as the file is open.
pub fn lock() -> io::Result<(File, PathBuf)> {
    let directory = directory()?;
    Ok((lock_in(&directory, LOCK_PATIENCE)?, directory))
}

/// Whoever has the lock may open files on storage that hangs: nobody else has to hang with it.
fn lock_in(directory: &Path, patience: Duration) -> io::Result<File> {
    let mut options = File::options();
    let file = options
        .create(true)
        .append(true)
        .open(directory.join("lock"))?;
    let until = Instant::now() + patience;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(LOCK_RETRY),
            Err(error) => return Err(error.into()),
        }
    }
}

/// A directory that belongs to this user alone.
fn directory() -> io::Result<PathBuf> {
    let user = rustix::process::getuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let directory = match runtime.filter(|r| r.is_absolute() && r.is_dir()) {
        Some(runtime) => runtime.join("presagio"),
        None => PathBuf::from(format!("/tmp/presagio-{user}")),
    };
    let made = DirBuilder::new().mode(0o700).create(&directory);
    if let Err(error) = made
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(error);
    }
    // Not a link, not somebody else's, not open to others.
    let metadata = fs::symlink_metadata(&directory)?;
    let is_ours = metadata.is_dir() && metadata.uid() == user && metadata.mode() & 0o077 == 0;
    match is_ours {
        true => Ok(directory),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// When a process began, so that its number cannot be mistaken for another's.
fn start_of(pid: u32) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name, which may have anything in it.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    fields
        .split_whitespace()
        .nth(19)
        .unwrap_or_default()
        .to_owned()
}

fn hash(key: &str) -> u64 {
    key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(variables: &[(&str, &str)], parent: u32) -> Option<Job> {
        let find = |name: &str| {
            let found = variables.iter().find(|v| v.0 == name);
            found.map(|v| v.1.to_owned())
        };
        Job::find(find, parent)
    }

    #[test]
    fn ranks_of_one_step_are_one_job_and_those_of_another_are_not() {
        let rank = |step: &str, rank: &str| {
            let slurm = [
                ("SLURM_JOB_ID", "7"),
                ("SLURM_STEP_ID", step),
                ("SLURM_PROCID", rank),
            ];
            job(&slurm, 1).unwrap()
        };
        assert_eq!(rank("0", "0"), rank("0", "1"));
        assert_ne!(rank("0", "0"), rank("1", "0"));
    }

    #[test]
    fn slurm_says_how_many_ranks_a_node_has() {
        let on = |list: &str, node: &str| {
            let slurm = [
                ("SLURM_JOB_ID", "7"),
                ("SLURM_STEP_ID", "0"),
                ("SLURM_PROCID", "0"),
                ("SLURM_NODEID", node),
                ("SLURM_STEP_TASKS_PER_NODE", list),
            ];
            job(&slurm, 1).unwrap().ranks
        };
        assert_eq!(on("4", "0"), 4);
        assert_eq!([on("2(x3),1", "2"), on("2(x3),1", "3")], [2, 1]);
        assert_eq!([on("2(x3),1", "4"), on("x", "0")], [0, 0], "nobody knows");
    }

    #[test]
    fn where_slurm_speaks_through_pmix_it_says_how_many_ranks_a_node_has() {
        let slurm = [
            ("PMIX_NAMESPACE", "slurm.pmix.7.0"),
            ("PMIX_RANK", "5"),
            ("SLURM_JOB_ID", "7"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_PROCID", "5"),
            ("SLURM_NODEID", "1"),
            ("SLURM_STEP_TASKS_PER_NODE", "4,2"),
        ];
        assert_eq!(job(&slurm, 1).unwrap().ranks, 2);
        let both = [&slurm[..], &[("OMPI_COMM_WORLD_LOCAL_SIZE", "3")]].concat();
        assert_eq!(job(&both, 1).unwrap().ranks, 3, "the launcher's own counts");
    }

    #[test]
    fn a_batch_script_is_no_rank() {
        assert_eq!(
            job(&[("SLURM_JOB_ID", "7"), ("SLURM_PROCID", "0")], 1),
            None
        );
        assert_eq!(job(&[("PBS_JOBID", "7")], 1), None);
        assert_eq!(job(&[], 1), None);
    }

    #[test]
    fn ranks_without_a_job_have_a_parent() {
        let ranks = |parent| job(&[("PMI_RANK", "0"), ("MPI_LOCALNRANKS", "4")], parent).unwrap();
        assert_eq!(ranks(1), ranks(1));
        assert_eq!(ranks(1).ranks, 4);
        assert_ne!(ranks(1), ranks(std::process::id()));
    }

    #[test]
    fn a_lock_that_is_never_given_back_is_not_waited_for_for_ever() {
        let directory = tempfile::tempdir().unwrap();
        let lock = |patience| lock_in(directory.path(), patience);
        let first = lock(Duration::ZERO).unwrap();
        let second = lock(Duration::from_millis(5)).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::WouldBlock);
        drop(first);
        lock(Duration::ZERO).unwrap();
    }

    #[test]
    fn a_name_that_a_person_gave_is_enough() {
        let one = job(&[("PRESAGIO_JOB", "x"), ("PRESAGIO_RANKS", "2")], 1).unwrap();
        assert_eq!(one.ranks, 2);
        assert_ne!(one.key, job(&[("PRESAGIO_JOB", "y")], 1).unwrap().key);
    }
}
