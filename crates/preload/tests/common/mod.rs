//! What the tests share: a small manager that keeps all it is told, programs compiled from C, and the comparison with what
//! strace saw in the same run. With PRESAGIO_TEST_SHOW set, every file is shown about which they disagree.

#![allow(dead_code, reason = "each test program uses a part of it")]

use presagio_arena::{
    Arena, ArenaOptions, Counter, FileEntry, Losses, Message, Mode, Origin, ProcessEntry,
};
use presagio_core::{Action, Event};
use presagio_trace::Record;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// An operation as the manager got it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub origin: Origin,
    pub operation: presagio_arena::Operation,
    pub path: String,
}

/// All that the manager was told.
#[derive(Debug, Default)]
pub struct Report {
    pub seen: Vec<Seen>,
    /// Operations whose file could not be named.
    pub nameless: usize,
    pub gaps: u64,
    pub contexts: HashMap<u64, Vec<String>>,
    pub processes: Vec<ProcessEntry>,
    pub losses: Losses,
    modules: HashMap<(u32, u32, u32), String>,
    files: HashMap<(u32, u32), FileEntry>,
}

impl Report {
    /// Operations of one kind on files of this name, in the order of each thread.
    pub fn of<'a>(&'a self, name: &'a str, action: Action) -> impl Iterator<Item = &'a Seen> {
        self.seen
            .iter()
            .filter(move |seen| seen.operation.action == action && seen.path.ends_with(name))
    }

    /// (offset, bytes) of the transfers of one kind on files of this name.
    pub fn places(&self, name: &str, action: Action) -> Vec<(u64, i64)> {
        self.of(name, action)
            .map(|seen| (seen.operation.offset, seen.operation.result))
            .collect()
    }

    /// The sum of a counter over all processes.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.processes
            .iter()
            .map(|process| process.counter(counter))
            .sum()
    }

    fn take(&mut self, arena: &mut Arena) {
        let mut fresh = Vec::new();
        arena.drain(|origin, message| self.message(origin, message, &mut fresh));
        for (origin, operation) in fresh {
            let key = (operation.file, operation.generation);
            if let Some(file) = arena.file(key.0, key.1) {
                self.files.insert(key, file);
            }
            let Some(file) = self.files.get(&key) else {
                self.nameless += 1;
                continue;
            };
            let path = String::from_utf8_lossy(&file.path).into_owned();
            self.seen.push(Seen {
                origin,
                operation,
                path,
            });
        }
    }

    fn message(
        &mut self,
        origin: &Origin,
        message: Message<'_>,
        fresh: &mut Vec<(Origin, presagio_arena::Operation)>,
    ) {
        match message {
            Message::Operation(operation) => fresh.push((*origin, operation)),
            Message::Gap { lost } => self.gaps += lost,
            Message::Module { index, name } => {
                let name = String::from_utf8_lossy(name).into_owned();
                self.modules.insert((origin.pid, origin.image, index), name);
            }
            Message::Context { id, frames } => {
                let name = |module| {
                    let key = (origin.pid, origin.image, module);
                    self.modules.get(&key).map_or("?", String::as_str)
                };
                let frames = frames
                    .iter()
                    .map(|f| format!("{}+{:#x}", name(f.module), f.offset));
                self.contexts.insert(id, frames.collect());
            }
        }
    }
}

/// A manager that keeps everything.
pub struct Manager {
    pub address: String,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Report>,
}

impl Manager {
    /// Programs wait for room in their rings: tests run on busy machines, and want every record.
    pub fn start() -> Manager {
        Manager::with(&ArenaOptions {
            slots: 512,
            mode: complete(),
            ..ArenaOptions::default()
        })
    }

    pub fn with(options: &ArenaOptions) -> Manager {
        let mut arena = Arena::create(options).unwrap();
        let address = arena.address();
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut report = Report::default();
            let mut polls = 0u32;
            while !told.load(Ordering::Acquire) {
                report.take(&mut arena);
                polls += 1;
                if polls.is_multiple_of(64) {
                    arena.sweep(|process| report.processes.push(process.clone()));
                }
                std::thread::sleep(Duration::from_micros(200));
            }
            report.take(&mut arena);
            report.processes.extend(arena.processes());
            report.losses = arena.losses();
            report
        });
        Manager {
            address,
            stop,
            thread,
        }
    }

    /// Puts the library into a command's environment.
    pub fn preload(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", library())
            .env(presagio_arena::VARIABLE, &self.address);
    }

    pub fn finish(self) -> Report {
        self.stop.store(true, Ordering::Release);
        self.thread.join().unwrap()
    }
}

/// Nothing may be lost.
pub fn complete() -> Mode {
    Mode {
        complete: true,
        ..Mode::default()
    }
}

/// The library that was built for this test: it lies beside it.
pub fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().join("libpresagio.so");
    assert!(library.is_file(), "no {}", library.display());
    library
}

/// A directory that goes away with the test.
pub struct Dir(tempfile::TempDir);

impl Dir {
    pub fn new() -> Dir {
        Dir(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
    }

    pub fn path(&self) -> PathBuf {
        self.0.path().canonicalize().unwrap()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// A file of bytes that compress badly and repeat nowhere.
    pub fn noise(&self, name: &str, len: usize) -> PathBuf {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .take(len)
        .collect();
        std::fs::write(self.file(name), bytes).unwrap();
        self.file(name)
    }

    /// Everything in it: paths and contents.
    pub fn contents(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut all = Vec::new();
        let mut left = vec![self.path()];
        while let Some(directory) = left.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    left.push(path);
                } else if let Ok(bytes) = std::fs::read(&path) {
                    all.push((path.strip_prefix(self.path()).unwrap().to_owned(), bytes));
                }
            }
        }
        all.sort();
        all
    }
}

/// Compiles a C or C++ program of `tests/c` into the directory.
pub fn compile(dir: &Dir, source: &str, more: &[&str]) -> PathBuf {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/c")
        .join(source);
    let program = dir.file(source.split('.').next().unwrap());
    let compiler = if source.ends_with(".cc") {
        "g++"
    } else {
        "gcc"
    };
    let output = Command::new(compiler)
        .args(["-O1", "-Wall", "-Werror", "-D_GNU_SOURCE", "-pthread", "-o"])
        .arg(&program)
        .arg(file)
        .args(more)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    program
}

/// Programs of `presagio run`'s own tests, which these run too.
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/tests/programs");

/// Builds the program that writes HDF5 files, for a library: `serial`, `openmpi` or `mpich`.
pub fn checkpoint(dir: &Dir, library: &str) -> String {
    let program = dir.file("checkpoint");
    let mut build = Command::new(format!("{PROGRAMS}/build-checkpoint.sh"));
    succeed(build.arg(library).arg(&program));
    program.to_str().unwrap().to_owned()
}

/// How two ranks of an MPI program are started.
pub fn two_ranks(library: &str) -> &'static str {
    match library {
        "openmpi" => {
            need("mpirun.openmpi", "openmpi-bin");
            "mpirun.openmpi --oversubscribe -n 2"
        }
        _ => {
            need("mpirun.mpich", "mpich");
            "mpirun.mpich -launcher fork -n 2"
        }
    }
}

/// LAMMPS with dumps and restarts, of 4 side³ atoms.
pub fn lammps_command(side: u32, steps: u32) -> String {
    need("lmp", "lammps");
    format!("lmp -screen none -log none -var side {side} -var steps {steps} -in {PROGRAMS}/melt.in")
}

/// Fails with the package's name where a program is missing.
pub fn need(program: &str, package: &str) {
    let places = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&places).any(|place| place.join(program).is_file());
    assert!(
        found,
        "{program} is missing: please install the Debian package {package} (make test does so)"
    );
}

/// A command that runs in the directory, with nothing on its standard input.
pub fn command(dir: &Dir, program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(args)
        .current_dir(dir.path())
        .env_remove("LD_PRELOAD")
        .env("HOME", dir.path())
        .env("LC_ALL", "C")
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .stdin(Stdio::null());
    command
}

/// A script for bash.
pub fn script(dir: &Dir, text: &str) -> Command {
    command(dir, "bash", &["-euo", "pipefail", "-c", text])
}

/// Runs a command that must succeed.
pub fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Runs a command with the library; what it printed and what was seen.
pub fn watch(mut command: Command) -> (Output, Report) {
    let manager = Manager::start();
    manager.preload(&mut command);
    let output = succeed(&mut command);
    (output, manager.finish())
}

/// Runs the same script without and with the library, in directories of the same content, and compares all it printed
/// and made.
pub fn compare_outputs(prepare: impl Fn(&Dir), text: &str) {
    let run = |library: bool| {
        let dir = Dir::new();
        prepare(&dir);
        let manager = library.then(Manager::start);
        let mut command = script(&dir, text);
        if let Some(manager) = &manager {
            manager.preload(&mut command);
        }
        let output = succeed(&mut command);
        if let Some(manager) = manager {
            check_sane(&manager.finish());
        }
        let place = dir.path().display().to_string();
        let printed = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(&place, "DIR");
        let mut contents = dir.contents();
        for (_, bytes) in &mut contents {
            if let Ok(text) = std::str::from_utf8(bytes) {
                *bytes = text.replace(&place, "DIR").into_bytes();
            }
        }
        (printed(&output.stdout), printed(&output.stderr), contents)
    };
    let (plain, watched) = (run(false), run(true));
    assert_eq!(plain.0, watched.0, "standard output");
    assert_eq!(plain.1, watched.1, "standard error");
    let names = |run: &Vec<(PathBuf, Vec<u8>)>| run.iter().map(|f| f.0.clone()).collect::<Vec<_>>();
    assert_eq!(names(&plain.2), names(&watched.2));
    for (a, b) in plain.2.iter().zip(&watched.2) {
        assert!(a.1 == b.1, "{} differs", a.0.display());
    }
}

/// Nothing was lost, and every file has a name.
pub fn check_sane(report: &Report) {
    assert_eq!(report.losses, Losses::default());
    assert_eq!(report.nameless, 0);
    assert_eq!(report.gaps, 0);
}

/// The bytes that strace saw, that we saw, and that both saw at the same place of the same file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Agreement {
    pub strace: u64,
    pub ours: u64,
    pub both: u64,
}

impl Agreement {
    /// At least 99 % of what strace saw was seen, and no more than 1 % invented.
    pub fn check(&self, least: u64) {
        assert!(self.strace >= least, "strace saw too little: {self:?}");
        assert!(self.both as f64 >= 0.99 * self.strace as f64, "{self:?}");
        assert!(self.ours as f64 <= 1.01 * self.strace as f64, "{self:?}");
    }

    /// Not a byte more or less.
    pub fn check_exact(&self, least: u64) {
        assert!(self.strace >= least, "strace saw too little: {self:?}");
        assert_eq!(
            (self.ours, self.both),
            (self.strace, self.strace),
            "{self:?}"
        );
    }
}

/// How often each byte was read and written: changes of the count by place.
type Counts = HashMap<(String, Action), std::collections::BTreeMap<u64, i64>>;

fn add(counts: &mut Counts, path: &str, action: Action, offset: u64, moved: u64) {
    if moved > 0 {
        let file = counts.entry((path.to_owned(), action)).or_default();
        *file.entry(offset).or_default() += 1;
        *file.entry(offset + moved).or_default() -= 1;
    }
}

/// Runs a command under strace with the library, and compares what both saw of the files in the directory.
pub fn compare_with_strace(dir: &Dir, inner: &Command) -> (Agreement, Report) {
    let log = tempfile::NamedTempFile::new().unwrap();
    let manager = Manager::start();
    let mut command = Command::new("strace");
    command
        .args([
            "-f",
            "-ttt",
            "-T",
            "-y",
            "-s",
            "0",
            "--seccomp-bpf",
            "-qq",
            "-e",
        ])
        .arg("trace=%file,%desc,%process,close_range,sendfile,copy_file_range,splice")
        .arg("-o")
        .arg(log.path())
        .arg("-E")
        .arg(format!("LD_PRELOAD={}", library().display()))
        .arg("-E")
        .arg(format!("{}={}", presagio_arena::VARIABLE, manager.address))
        .arg(inner.get_program())
        .args(inner.get_args())
        .current_dir(dir.path())
        .stdin(Stdio::null());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    succeed(&mut command);
    let report = manager.finish();
    (agreement(&dir.path(), log.path(), &report), report)
}

fn agreement(dir: &Path, log: &Path, report: &Report) -> Agreement {
    let inside = format!("{}/", dir.display());
    let mut theirs = Counts::new();
    for (path, event) in strace_events(log) {
        if path.starts_with(&inside) && event.action.is_transfer() {
            add(
                &mut theirs,
                &path,
                event.action,
                event.offset,
                event.moved(),
            );
        }
    }
    let mut ours = Counts::new();
    for Seen {
        path, operation, ..
    } in &report.seen
    {
        if path.starts_with(&inside) && operation.action.is_transfer() {
            let moved = operation.result.max(0) as u64;
            add(&mut ours, path, operation.action, operation.offset, moved);
        }
    }
    let agreement = overlap(&theirs, &ours);
    if std::env::var_os("PRESAGIO_TEST_SHOW").is_some() {
        let mut files: Vec<_> = theirs.keys().chain(ours.keys()).collect();
        files.sort();
        files.dedup();
        for key in files {
            let one = |all: &Counts| {
                all.get(key)
                    .cloned()
                    .map(|f| (key.clone(), f))
                    .into_iter()
                    .collect()
            };
            let part = overlap(&one(&theirs), &one(&ours));
            if part.both != part.strace || part.both != part.ours {
                eprintln!("differs: {key:?} {part:?}");
                for (_, e) in strace_events(log)
                    .iter()
                    .filter(|e| e.0 == key.0)
                    .take(4000)
                {
                    eprintln!(
                        "  theirs {:?} {}+{} = {}",
                        e.action, e.offset, e.len, e.result
                    );
                }
                let ops = report.seen.iter().filter(|s| s.path == key.0);
                for Seen {
                    operation: o,
                    origin,
                    ..
                } in ops.take(4000)
                {
                    eprintln!(
                        "  ours {} {:?} {}+{} = {}",
                        origin.pid, o.action, o.offset, o.len, o.result
                    );
                }
            }
        }
        eprintln!(
            "{agreement:?} {:.3} %",
            100.0 * agreement.both as f64 / agreement.strace as f64
        );
    }
    agreement
}

fn strace_events(log: &Path) -> Vec<(String, Event)> {
    let mut names = HashMap::new();
    let mut events = Vec::new();
    let text = std::io::BufReader::new(std::fs::File::open(log).unwrap());
    for record in presagio_trace::strace::Reader::new(Box::new(text), log) {
        match record.unwrap() {
            Record::File { id, name } => {
                names.insert(id, String::from_utf8_lossy(&name).into_owned());
            }
            Record::Event(event) => {
                let name = names.get(&event.file).cloned().unwrap_or_default();
                events.push((name, event));
            }
            _ => {}
        }
    }
    events
}

fn overlap(theirs: &Counts, ours: &Counts) -> Agreement {
    let mut agreement = Agreement::default();
    let nothing = std::collections::BTreeMap::new();
    for key in theirs
        .keys()
        .chain(ours.keys().filter(|key| !theirs.contains_key(*key)))
    {
        let a = theirs.get(key).unwrap_or(&nothing);
        let b = ours.get(key).unwrap_or(&nothing);
        let places: std::collections::BTreeSet<u64> = a.keys().chain(b.keys()).copied().collect();
        let (mut last, mut in_a, mut in_b) = (0, 0i64, 0i64);
        for place in places {
            let len = place - last;
            agreement.strace += in_a as u64 * len;
            agreement.ours += in_b as u64 * len;
            agreement.both += in_a.min(in_b) as u64 * len;
            in_a += a.get(&place).copied().unwrap_or(0);
            in_b += b.get(&place).copied().unwrap_or(0);
            last = place;
        }
    }
    agreement
}
