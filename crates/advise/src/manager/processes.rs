//! The processes that are watched: who they are, what each did, and the model of each.

use super::Judged;
use super::models::{Identity, Models};
use super::summary::Totals;
use presagio_arena::{Arena, Origin, ProcessEntry};
use presagio_core::{ContextId, Event, IdHashMap, Nanos};
use presagio_predict::Model;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Programs that the summary tells apart.
const PROGRAMS_MAX: usize = 64;
/// Files that one process is known to have used; only what is new matters, so forgetting does little harm.
const FILES_MAX: usize = 1 << 16;
/// To hold a prediction against what came costs as much as to learn from it. A prime, which no program's rhythm is.
const JUDGE_EVERY: u64 = 7;
/// Before a process has done so many operations, or moved so many bytes, it is not known who it is: to find out takes longer than
/// a compiler's helper needs for all that it reads and writes, and slows the helper down when it ends.
const STRANGE_OPERATIONS: usize = 32;
const STRANGE_BYTES: u64 = 1 << 20;
/// Where launchers say which rank a process is.
const RANKS: [&str; 6] = [
    "OMPI_COMM_WORLD_RANK=",
    "PMIX_RANK=",
    "PMI_RANK=",
    "SLURM_PROCID=",
    "FLUX_TASK_RANK=",
    "PALS_RANKID=",
];

/// Where launchers say how many ranks there are, and how many of them on this node; or on how many nodes they are.
const SIZES: [(&str, &str); 3] = [
    ("OMPI_COMM_WORLD_SIZE=", "OMPI_COMM_WORLD_LOCAL_SIZE="),
    ("PMI_SIZE=", "MPI_LOCALNRANKS="),
    ("PALS_SIZE=", "PALS_LOCAL_SIZE="),
];
const NODES: [&str; 2] = ["SLURM_STEP_NUM_NODES=", "FLUX_JOB_NNODES="];

/// A process, or rather one program that it ran: an exec makes another one.
pub(super) struct Process {
    origin: Origin,
    pub command: String,
    pub program: String,
    /// Who it is, once that is worth knowing; until then what its model has to see waits.
    identity: Option<Identity>,
    waiting: Vec<(Event, u64)>,
    waiting_bytes: u64,
    pub model: Model,
    pub judged: Judged,
    pub totals: Totals,
    /// Operations that the model has seen in this run.
    pub learned: u64,
    /// When the last operation ended that the model has seen.
    pub last_end: Nanos,
    /// Whether the model has seen anything since it was last asked.
    pub is_touched: bool,
    /// Operations were left out, and the model was not told yet.
    pub is_behind: bool,
    /// Whether it has an entry in the arena, which tells when it is gone. Else we look ourselves: and it was not there.
    has_entry: bool,
    was_missing: bool,
    /// Whether its job has ranks on other nodes.
    is_elsewhere_too: bool,
    /// Contexts whose meaning the model was told.
    named: Vec<bool>,
    files: IdHashMap<u64, ()>,
}

impl Process {
    pub fn pid(&self) -> u32 {
        self.origin.pid
    }

    /// The rank that a launcher gave it.
    pub fn rank(&self) -> Option<u32> {
        rank_in(&environment_of(self.pid()))
    }

    /// Keeps an operation of a stranger; whether it is time to find out who that is.
    fn keep(&mut self, event: &Event, stack: u64) -> bool {
        self.waiting.push((*event, stack));
        self.waiting_bytes = self.waiting_bytes.saturating_add(event.moved());
        self.waiting.len() >= STRANGE_OPERATIONS || self.waiting_bytes >= STRANGE_BYTES
    }

    /// Finds out who it is, and begins with what is known of its program.
    fn get_acquainted(&mut self, arena: &Arena, models: &mut Models) {
        let entry = arena.process_of(&self.origin);
        let command = entry.as_ref().map_or(&[][..], |entry| &entry.command);
        let arguments = arguments_of(command);
        // One that has become another program is found by its name.
        let linked = entry.as_ref().filter(|entry| !entry.is_over);
        let image = image_of(linked.map(|_| self.pid()), arguments[0]);
        let environment = environment_of(self.pid());
        self.is_elsewhere_too = is_elsewhere_too(&environment);
        let identity = Identity::new(&image, &arguments, rank_in(&environment));
        self.model = models.begin(&identity);
        self.identity = Some(identity);
    }

    /// Lets the model see an operation, and holds it against what was expected; in a hurry, one in so many only.
    fn learn(&mut self, event: &Event, stack: u64, is_hurried: bool) {
        self.name(event.context, stack);
        if std::mem::take(&mut self.is_behind) {
            self.model.lose_track();
        }
        if self.files.len() >= FILES_MAX {
            self.files.clear();
        }
        let knows_file = self.files.insert(event.file.0, ()).is_some();
        match is_hurried && !self.learned.is_multiple_of(JUDGE_EVERY) {
            true => self.model.observe(event),
            false => self.judged.observe(&mut self.model, event, knows_file),
        }
        self.learned += 1;
        self.last_end = event.end();
        self.is_touched = true;
    }

    fn name(&mut self, context: ContextId, stack: u64) {
        let at = context.0 as usize;
        if at == 0 || self.named.get(at) == Some(&true) {
            return;
        }
        if self.named.len() <= at {
            self.named.resize(at + 1, false);
        }
        self.named[at] = true;
        self.model.name_context(context, stack);
    }
}

/// What all processes of one program did.
#[derive(Clone, Debug, Default)]
pub(super) struct Program {
    pub processes: u64,
    pub totals: Totals,
}

/// See the module's header.
#[derive(Default)]
pub(super) struct Processes {
    live: BTreeMap<u32, Process>,
    /// By process id and image.
    numbers: IdHashMap<(u32, u32), u32>,
    next: u32,
    /// The number from which on processes are asked next: see [`Processes::touched`].
    turn: u32,
    /// What those did that have ended.
    ended: Sums,
}

/// What processes did together.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    pub programs: BTreeMap<String, Program>,
    pub judged: Judged,
    pub totals: Totals,
    /// Whether there were ranks on other nodes.
    pub is_elsewhere_too: bool,
}

impl Sums {
    fn add(&mut self, process: &Process) {
        self.is_elsewhere_too |= process.is_elsewhere_too;
        self.judged.add(&process.judged);
        self.totals.add(&process.totals);
        let known = self.programs.contains_key(&process.program);
        let name = match known || self.programs.len() < PROGRAMS_MAX {
            true => process.program.as_str(),
            false => "others",
        };
        let program = self.programs.entry(name.to_owned()).or_default();
        program.processes += 1;
        program.totals.add(&process.totals);
    }
}

impl Processes {
    /// The process that wrote something, and whether it is new.
    pub fn find(&mut self, origin: &Origin, arena: &Arena) -> (u32, bool) {
        if let Some(number) = self.numbers.get(&(origin.pid, origin.image)) {
            return (*number, false);
        }
        let entry = arena.process_of(origin);
        let number = self.next;
        self.next += 1;
        self.numbers.insert((origin.pid, origin.image), number);
        let process = begin(origin, entry.as_ref());
        self.live.insert(number, process);
        (number, true)
    }

    /// Lets the model of a process see an operation; in a hurry not all of it.
    pub fn learn(
        &mut self,
        event: &Event,
        stack: u64,
        is_hurried: bool,
        (arena, models): (&Arena, &mut Models),
    ) {
        let Some(process) = self.live.get_mut(&event.process) else {
            return;
        };
        if process.identity.is_some() {
            return process.learn(event, stack, is_hurried);
        }
        if process.keep(event, stack) {
            process.get_acquainted(arena, models);
            for (event, stack) in std::mem::take(&mut process.waiting) {
                process.learn(&event, stack, is_hurried);
            }
        }
    }

    /// Whether it is not known who wrote something.
    pub fn is_stranger(&self, origin: &Origin) -> bool {
        let number = self.numbers.get(&(origin.pid, origin.image));
        let process = number.and_then(|number| self.live.get(number));
        process.is_none_or(|process| process.identity.is_none())
    }

    pub fn get_mut(&mut self, number: u32) -> Option<&mut Process> {
        self.live.get_mut(&number)
    }

    /// Some of those that did something since they were here last, `max` at most. They take turns: where many are busy all
    /// the time, each is here again and again.
    pub fn touched(&mut self, max: usize) -> Vec<u32> {
        let later = self.live.range(self.turn..);
        let in_turn = later.chain(self.live.range(..self.turn));
        let touched = in_turn.filter(|(_, process)| process.is_touched);
        let touched: Vec<u32> = touched.map(|(number, _)| *number).take(max).collect();
        for number in &touched {
            self.turn = number + 1;
            if let Some(process) = self.live.get_mut(number) {
                process.is_touched = false;
            }
        }
        touched
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.next.into()
    }

    /// How many have not ended.
    pub fn live(&self) -> usize {
        self.live.len()
    }

    /// All that a process id was has ended; the numbers.
    pub fn end(&mut self, pid: u32, models: &mut Models) -> Vec<u32> {
        let ended = self.numbers.extract_if(|key, _| key.0 == pid);
        let ended: Vec<u32> = ended.map(|(_, number)| number).collect();
        for number in &ended {
            if let Some(process) = self.live.remove(number) {
                self.ended.add(&process);
                if let Some(identity) = &process.identity {
                    models.end(identity, &process.model, process.learned);
                }
            }
        }
        ended
    }

    /// Processes without an entry that do not live any more, for the second time that we look: what they had written before is
    /// read by then.
    pub fn gone_unseen(&mut self, lives: impl Fn(u32, u32) -> bool) -> Vec<u32> {
        let unseen = self.live.values_mut().filter(|p| !p.has_entry);
        let missing = unseen.filter(|p| !lives(p.pid(), p.pid()));
        let twice = missing.filter_map(|p| {
            let before = std::mem::replace(&mut p.was_missing, true);
            before.then_some(p.pid())
        });
        twice.collect()
    }

    /// The run is over: all have ended, for us.
    pub fn end_all(&mut self, models: &mut Models) {
        let pids: Vec<u32> = self.numbers.keys().map(|key| key.0).collect();
        for pid in pids {
            self.end(pid, models);
        }
    }

    /// What all of them did up to now.
    pub fn sums(&self) -> Sums {
        let mut sums = self.ended.clone();
        self.live.values().for_each(|process| sums.add(process));
        sums
    }
}

/// The program and its arguments; at least one, if only an empty one.
fn arguments_of(command: &[u8]) -> Vec<&[u8]> {
    let command = command.strip_suffix(b"\0").unwrap_or(command);
    command.split(|b| *b == 0).collect()
}

fn begin(origin: &Origin, entry: Option<&ProcessEntry>) -> Process {
    let arguments = arguments_of(entry.map_or(&[][..], |entry| &entry.command));
    let text: Vec<_> = arguments
        .iter()
        .map(|a| String::from_utf8_lossy(a))
        .collect();
    let program = text[0].rsplit('/').next().filter(|name| !name.is_empty());
    Process {
        origin: *origin,
        program: program.unwrap_or("(unknown)").to_owned(),
        command: text.join(" "),
        identity: None,
        waiting: Vec::new(),
        waiting_bytes: 0,
        model: Model::new(),
        judged: Judged::default(),
        totals: Totals::default(),
        learned: 0,
        last_end: Nanos::ZERO,
        is_touched: false,
        is_behind: false,
        has_entry: entry.is_some(),
        was_missing: false,
        is_elsewhere_too: false,
        named: Vec::new(),
        files: IdHashMap::default(),
    }
}

/// Where a shell looks for programs. Asked for once, at the beginning: inside a program the environment is the program's,
/// which may change it at any time.
pub(super) fn places() -> &'static OsStr {
    static PLACES: OnceLock<OsString> = OnceLock::new();
    PLACES.get_or_init(|| std::env::var_os("PATH").unwrap_or_default())
}

/// The file of the program. A short process may be gone before we look at it: then it is found by its name, as a shell
/// would find it, so that it is the same program each time.
fn image_of(pid: Option<u32>, name: &[u8]) -> PathBuf {
    let linked = pid.and_then(|pid| std::fs::read_link(format!("/proc/{pid}/exe")).ok());
    let name = Path::new(OsStr::from_bytes(name));
    let found = || match name.components().count() {
        1 => std::env::split_paths(places())
            .map(|place| place.join(name))
            .find(|path| path.is_file()),
        _ => Some(name.to_owned()),
    };
    let path = linked.filter(|path| path.is_file()).or_else(found);
    let path = path.unwrap_or_else(|| name.to_owned());
    path.canonicalize().unwrap_or(path)
}

/// Whether a process is a rank.
pub(super) fn is_rank(pid: u32) -> bool {
    rank_in(&environment_of(pid)).is_some()
}

/// Whether a process is a rank, and there are others on other nodes.
pub(super) fn has_ranks_elsewhere(pid: u32) -> bool {
    is_elsewhere_too(&environment_of(pid))
}

fn environment_of(pid: u32) -> Vec<u8> {
    std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default()
}

fn rank_in(environment: &[u8]) -> Option<u32> {
    RANKS.iter().find_map(|name| number_in(environment, name))
}

/// Whether a launcher says that there are ranks on other nodes.
fn is_elsewhere_too(environment: &[u8]) -> bool {
    let number = |name: &str| number_in(environment, name);
    let more =
        |(all, here): &(&str, &str)| number(all).zip(number(here)).is_some_and(|(a, h)| a > h);
    let nodes = NODES.iter().any(|name| number(name) > Some(1));
    rank_in(environment).is_some() && (SIZES.iter().any(more) || nodes)
}

fn number_in(environment: &[u8], name: &str) -> Option<u32> {
    let text = environment
        .split(|b| *b == 0)
        .find_map(|variable| variable.strip_prefix(name.as_bytes()))?;
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_the_same_one_when_its_process_is_gone() {
        let mut sleeper = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = sleeper.id();
        // Until it has become another program it is still this one.
        let image = loop {
            let image = image_of(Some(pid), b"sleep");
            if image != std::env::current_exe().unwrap() {
                break image;
            }
        };
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert_eq!(image_of(Some(pid), b"sleep"), image);
        assert!(image.is_absolute());
    }

    #[test]
    fn where_many_are_busy_each_has_its_turn() {
        let mut processes = Processes::default();
        for number in 0..5 {
            let process = begin(&Origin::default(), None);
            processes.live.insert(number, process);
        }
        let mut asked = Vec::new();
        for _ in 0..5 {
            let all = processes.live.values_mut();
            all.for_each(|process| process.is_touched = true);
            asked.extend(processes.touched(2));
        }
        assert_eq!(asked, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
        let all = processes.live.iter_mut();
        all.for_each(|(number, process)| process.is_touched = *number == 3);
        assert_eq!(processes.touched(2), [3]);
        assert!(processes.touched(2).is_empty());
    }

    #[test]
    fn a_process_that_found_no_entry_ends_when_it_is_gone() {
        let mut processes = Processes::default();
        let mut models = Models::new(None);
        for (number, pid) in [(0, 70), (1, 71)] {
            processes.numbers.insert((pid, 0), number);
            let origin = Origin {
                pid,
                ..Origin::default()
            };
            let process = begin(&origin, None);
            processes.live.insert(number, process);
        }
        let lives = |pid: u32, _: u32| pid == 71;
        assert!(processes.gone_unseen(lives).is_empty(), "may be unread");
        assert_eq!(processes.gone_unseen(lives), [70]);
        assert_eq!(processes.end(70, &mut models), [0]);
        assert!(processes.gone_unseen(lives).is_empty());
        assert_eq!(processes.live(), 1);
    }

    #[test]
    fn a_launchers_rank_is_found() {
        assert_eq!(rank_in(b"A=1\0PMI_RANK=12\0B=2\0"), Some(12));
        assert_eq!(
            rank_in(b"SLURM_PROCID=3\0OMPI_COMM_WORLD_RANK=4\0"),
            Some(4)
        );
        assert_eq!(rank_in(b"XPMI_RANK=12\0PMI_RANK=x\0"), None);
    }

    #[test]
    fn ranks_on_other_nodes_are_noticed() {
        let open_mpi = |all: &str, here: &str| {
            is_elsewhere_too(
                format!("OMPI_COMM_WORLD_RANK=0\0OMPI_COMM_WORLD_SIZE={all}\0OMPI_COMM_WORLD_LOCAL_SIZE={here}\0")
                    .as_bytes(),
            )
        };
        assert!(open_mpi("4", "2") && !open_mpi("2", "2") && !open_mpi("", "2"));
        assert!(is_elsewhere_too(b"SLURM_PROCID=1\0SLURM_STEP_NUM_NODES=2"));
        assert!(!is_elsewhere_too(b"SLURM_PROCID=1\0SLURM_STEP_NUM_NODES=1"));
        assert!(!is_elsewhere_too(b"SLURM_STEP_NUM_NODES=2"), "no rank");
    }
}
