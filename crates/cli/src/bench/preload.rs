//! `presagio bench preload`: what it costs a program to be watched.
//!
//! The programs ([`calls`]) run under `presagio run`, with the library and the manager that any program gets. Each makes the
//! same call bare and through the library by turns, so that whatever else the machine does, it does to both. The manager
//! is another matter: while it works, it works beside both. So the mean of calls in a loop is that of whole loops, of one
//! kind and of the other by turns: what a program waits for in all, including for a core that the manager has.
//!
//! - **A call**: not followed; observed, in a loop, 0.3 ms apart, in 64 threads, in two ranks on two cores.
//! - **A context**: the call stack's name alone ([`context`]).
//! - **A process** that touches nothing that is followed.
//! - **The manager**: how many records it takes in, with a trace and without.

pub mod calls;
mod clock;
mod context;
mod costs;

use super::{Bar, Effort, Report, Scope};
use crate::failure::failure;
use crate::progress::progress;
use crate::table::{Cell, Table};
use anyhow::{Context, ensure};
use costs::Cost;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Ranks, for two cores.
const RANKS: u32 = 2;

/// Frames more on the stack when contexts are named.
const DEPTHS: [usize; 4] = [0, 6, 14, 30];

/// Launchers of MPI programs, the first that is there is taken.
const LAUNCHERS: [&[&str]; 4] = [
    &["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"],
    &["mpirun.mpich", "-launcher", "fork"],
    &["mpiexec.hydra", "-launcher", "fork"],
    &["mpirun"],
];

/// The runs of which no call may go unreported. Two ranks in loops, which come last, leave no core to a manager that steps back for
/// them.
const LOST: [&str; 3] = ["one thread", "64 threads", "2 ranks, 0.3 ms apart"];

/// A setting and what calls cost in it.
struct Setting {
    name: &'static str,
    cost: Cost,
    /// Whether the mean is that of whole loops.
    loops: bool,
}

/// How the manager took in a stream of records.
struct Stream {
    name: &'static str,
    records: u64,
    seconds: f64,
    /// Those that the manager did not count.
    lost: u64,
    /// The manager's own time for each, in ns.
    cpu_ns: f64,
    /// The share that models saw.
    learned: f64,
}

/// All that was found out.
struct Found {
    ignored: Cost,
    settings: Vec<Setting>,
    /// Of the calls of one thread, of 64, of two ranks far apart and of two in loops, the share that found their ring full, and so
    /// were not reported.
    lost: [f64; 4],
    stream: Cost,
    start: Cost,
    contexts: Vec<(u64, f64)>,
    streams: Vec<Stream>,
    launcher: Option<String>,
}

pub fn run(scope: &Scope) -> anyhow::Result<Report> {
    let effort = scope.effort;
    let bench = Bench::new(effort)?;
    let progress = progress(7);
    let step = |name: &'static str| {
        progress.set_message(name);
        progress.inc(1);
    };
    step("one thread");
    let alone = bench.watched(&["--no-model"], "one", None)?;
    let one = alone.results.first().context("nothing was measured")?;
    step("64 threads");
    let threads = bench.watched(&["--no-model"], "threads", None)?;
    step("two ranks");
    let launcher = Launcher::find();
    let ranks = bench.ranks("rank", &launcher)?;
    step("two ranks, calls far apart");
    let apart = bench.ranks("rank-apart", &launcher)?;
    step("records, with a trace");
    let traced = bench.records("flood", "with a trace", true)?;
    step("records, a million a second");
    let paced = bench.records("paced", "1 M/s, no trace", false)?;
    step("contexts");
    let rounds = if effort == Effort::Full { 31 } else { 3 };
    let contexts = DEPTHS.map(|extra| context::warm(rounds, extra)).to_vec();
    progress.finish_and_clear();
    let cost = |all: &[Value], key: &str| {
        Cost::joined(
            &all.iter()
                .map(|v| Cost::from_json(&v[key]))
                .collect::<Vec<_>>(),
        )
    };
    let of_one = |key: &str| Cost::from_json(&one[key]);
    let setting = |name, cost, loops| Setting { name, cost, loops };
    Ok(report(&Found {
        ignored: of_one("ignored"),
        settings: vec![
            setting("in a loop", of_one("hot"), true),
            setting("0.3 ms apart", of_one("apart"), false),
            setting("64 threads", cost(&threads.results, "hot"), true),
            setting("2 ranks", cost(&ranks.results, "hot"), true),
            setting(
                "2 ranks, 0.3 ms apart",
                cost(&apart.results, "apart"),
                false,
            ),
        ],
        lost: [&alone, &threads, &apart, &ranks].map(Watched::lost),
        stream: of_one("stream"),
        start: of_one("start"),
        contexts,
        streams: vec![traced, paced],
        launcher: launcher.0.map(|words| words[0].to_owned()),
    }))
}

/// Where it is measured, and how thoroughly.
struct Bench {
    effort: Effort,
    dir: tempfile::TempDir,
    presagio: PathBuf,
}

/// What a run under `presagio run` left.
struct Watched {
    /// What each process measured.
    results: Vec<Value>,
    /// The manager's summary.
    summary: Value,
}

impl Watched {
    /// The share of operations that the manager says it lost.
    fn lost(&self) -> f64 {
        let notes = self.summary["not_seen"].as_array().into_iter().flatten();
        let lost = notes.filter_map(|note| {
            let (count, what) = note.as_str()?.split_once(' ')?;
            what.contains("lost").then(|| count.parse::<u64>().ok())?
        });
        let lost = lost.sum::<u64>() as f64;
        let counted = self.summary["totals"]["operations"].as_f64();
        lost / (lost + counted.unwrap_or(0.0)).max(1.0)
    }
}

impl Bench {
    fn new(effort: Effort) -> anyhow::Result<Bench> {
        let dir = tempfile::Builder::new()
            .prefix("presagio-bench-")
            .tempdir_in(".");
        let dir = dir.map_err(|cause| {
            let advice = "go to a directory that you may write to, not one of the system's";
            failure("cannot make a directory here", cause, advice)
        })?;
        std::fs::write(dir.path().join("data"), vec![7; 1 << 20])?;
        let presagio = std::env::current_exe().context("this program's own file is not known")?;
        Ok(Bench {
            effort,
            dir,
            presagio,
        })
    }

    fn per_mille(&self) -> &'static str {
        match self.effort {
            Effort::Full => "1000",
            Effort::Quick => "150",
            Effort::Tiny => "1",
        }
    }

    /// Runs calls of a kind under `presagio run`, with these settings; one process, or ranks by a launcher.
    fn watched(
        &self,
        settings: &[&str],
        kind: &str,
        ranks: Option<&Launcher>,
    ) -> anyhow::Result<Watched> {
        let dir = tempfile::tempdir_in(self.dir.path())?;
        let dir = dir.path().canonicalize()?;
        std::fs::copy(self.dir.path().join("data"), dir.join("data"))?;
        let json = dir.join("summary.json");
        let mut arguments: Vec<String> = vec!["run".into(), "--quiet".into(), "--json".into()];
        arguments.push(json.display().to_string());
        arguments.extend(settings.iter().map(|s| (*s).to_owned()));
        let me = self.presagio.display().to_string();
        let count = ranks.map_or(1, |_| RANKS).to_string();
        let calls = ["--", &me, "bench-calls", kind, &dir.display().to_string()].map(str::to_owned);
        arguments.extend(calls);
        arguments.extend(["--effort", self.per_mille(), "--ranks", &count].map(str::to_owned));
        match ranks {
            None => finish(vec![self.command(&arguments)])?,
            Some(launcher) => launcher.run(&self.presagio, &arguments)?,
        }
        Ok(Watched {
            results: results(&dir)?,
            summary: serde_json::from_slice(&std::fs::read(json)?)?,
        })
    }

    fn command(&self, arguments: &[String]) -> Command {
        let mut command = Command::new(&self.presagio);
        command.args(arguments);
        command
    }

    /// Two ranks that make calls of a kind.
    fn ranks(&self, kind: &str, launcher: &Launcher) -> anyhow::Result<Watched> {
        let ranks = self.watched(&["--no-model"], kind, Some(launcher))?;
        let is_whole = ranks.results.len() == RANKS as usize;
        ensure!(is_whole, "a rank left no result");
        Ok(ranks)
    }

    /// A stream of records, to a manager that has one core.
    fn records(&self, kind: &str, name: &'static str, trace: bool) -> anyhow::Result<Stream> {
        let path = self.dir.path().join(kind).with_extension("ptrace");
        let path = path.display().to_string();
        let mut settings = vec!["--no-model", "--pin", "1"];
        if trace {
            settings.extend(["--trace", &path]);
        }
        let watched = self.watched(&settings, kind, None)?;
        let made = watched.results.first().context("nothing was made")?;
        let (records, seconds) = (made["records"].as_u64(), made["seconds"].as_f64());
        let records = records.context("nothing was made")?;
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        // By the name of the file, since the programs write others, too.
        let files = watched.summary["busiest_files"].as_array();
        let data = files.into_iter().flatten().find(|f| {
            let name = f["name"].as_str().unwrap_or_default();
            name.ends_with("/data")
        });
        let counted = data.map_or(0, |f| {
            f["totals"]["actions"]["read"]["operations"]
                .as_u64()
                .unwrap_or(0)
        });
        Ok(Stream {
            name,
            records,
            seconds: seconds.unwrap_or(f64::NAN),
            lost: records.saturating_sub(counted),
            cpu_ns: number(&watched.summary["manager_cpu_ns"]) / records as f64,
            learned: number(&watched.summary["prediction"]["operations"])
                / number(&watched.summary["totals"]["operations"]),
        })
    }
}

/// How several ranks are started: by a launcher, or without one, as ranks of a job that has a name.
struct Launcher(Option<&'static [&'static str]>);

impl Launcher {
    fn find() -> Launcher {
        let places = std::env::var_os("PATH").unwrap_or_default();
        let is_there = |name: &str| std::env::split_paths(&places).any(|p| p.join(name).is_file());
        Launcher(LAUNCHERS.into_iter().find(|words| is_there(words[0])))
    }

    fn run(&self, presagio: &Path, arguments: &[String]) -> anyhow::Result<()> {
        let Some(words) = self.0 else {
            let rank = |_| {
                let mut command = Command::new(presagio);
                let job = format!("bench-{}", std::process::id());
                command.args(arguments).env("PRESAGIO_JOB", job);
                command.env("PRESAGIO_RANKS", RANKS.to_string());
                command
            };
            return finish((0..RANKS).map(rank).collect());
        };
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args(["-n", &RANKS.to_string()]);
        command.arg(presagio).args(arguments);
        finish(vec![command])
    }
}

/// Runs programs at the same time, all of which must succeed.
fn finish(commands: Vec<Command>) -> anyhow::Result<()> {
    let start = |mut command: Command| {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(Stdio::piped()).spawn();
        child.context("what is to be measured cannot be run")
    };
    let running = commands
        .into_iter()
        .map(start)
        .collect::<Result<Vec<_>, _>>()?;
    for child in running {
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "what was to be measured failed: {}",
            said.trim()
        );
    }
    Ok(())
}

/// What processes left in a directory.
fn results(dir: &Path) -> anyhow::Result<Vec<Value>> {
    let entries = std::fs::read_dir(dir)?.filter_map(|entry| entry.ok().map(|e| e.path()));
    let results = entries.filter(|path| path.extension().is_some_and(|e| e == "result"));
    results
        .map(|path| Ok(serde_json::from_slice(&std::fs::read(path)?)?))
        .collect()
}

fn report(found: &Found) -> Report {
    Report {
        tables: vec![
            ("calls", calls_table(found)),
            ("contexts", contexts_table(found)),
            ("manager", manager_table(found)),
        ],
        notes: notes(found),
        bars: bars(found),
    }
}

fn calls_table(found: &Found) -> Table {
    let number = |value: f64| Cell::maybe(Some(value).filter(|v| v.is_finite()), 0);
    let row = |name: &str, cost: &Cost| {
        let all = [cost.whole, cost.mean, cost.p99];
        let mut cells = vec![Cell::Text(name.to_owned())];
        cells.extend(all.iter().flat_map(|pair| [number(pair.0), number(pair.1)]));
        cells
    };
    let settings = found.settings.iter().map(|s| row(s.name, &s.cost));
    Table {
        title: "A call in ns, bare, and how much more it takes when it is watched".to_owned(),
        columns: vec![
            ("call", "pread 4 KiB"),
            ("loop_bare", "in loops"),
            ("loop_more", "more"),
            ("mean_bare", "one by one"),
            ("mean_more", "more"),
            ("p99_bare", "p99"),
            ("p99_more", "more"),
        ],
        rows: settings
            .chain([
                row("read, not followed", &found.ignored),
                row("fwrite 8 bytes", &found.stream),
                row("start of `true`", &found.start),
            ])
            .collect(),
    }
}

fn contexts_table(found: &Found) -> Table {
    let row = |(frames, ns): &(u64, f64)| vec![Cell::Count(*frames), Cell::Number(*ns, 1)];
    Table {
        title: "Naming a call stack that was seen before".to_owned(),
        columns: vec![("frames", "frames"), ("ns", "ns")],
        rows: found.contexts.iter().map(row).collect(),
    }
}

fn manager_table(found: &Found) -> Table {
    let row = |s: &Stream| {
        vec![
            Cell::Text(s.name.to_owned()),
            Cell::Count(s.records),
            Cell::Number(s.records as f64 / s.seconds, 0),
            Cell::Count(s.lost),
            Cell::Number(s.cpu_ns, 0),
            Cell::Number(100.0 * s.learned, 1),
        ]
    };
    Table {
        title: "The manager on one core".to_owned(),
        columns: vec![
            ("stream", "records"),
            ("records", "number"),
            ("per_second", "1/s"),
            ("lost", "lost"),
            ("cpu_ns", "ns each"),
            ("learned_percent", "% learned"),
        ],
        rows: found.streams.iter().map(row).collect(),
    }
}

fn notes(found: &Found) -> Vec<String> {
    let ranks = match &found.launcher {
        Some(name) => format!("Ranks: two processes started by {name}, which wait for each other in shared memory."),
        None => "Ranks: two processes of one job, which wait for each other in shared memory; there is no MPI here.".to_owned(),
    };
    let unheard = format!(
        "Two ranks in loops make more calls than anybody could listen to on their two cores, and the manager steps back for \
         them: {:.0} % of the calls found their ring full and were only counted.",
        100.0 * found.lost[3]
    );
    vec![
        "One by one: bare and watched calls alternate, each timed by the processor's counter, whose own time is taken \
         off; p99 is the difference of both at the slowest of a hundred. In loops: 20 000 calls of one kind, then of the \
         other, with the manager at work beside them; the middle of the rounds. Between calls that are 0.3 ms apart the \
         program goes through 256 KiB of its own memory."
            .to_owned(),
        ranks,
        unheard,
        "The manager is kept on one core; its time is that of all its threads, for taking in, ordering, counting, \
         learning, and with a trace for writing that. When it has too much to do it learns from a part only, and what comes \
         faster than any hint could help it only counts."
            .to_owned(),
    ]
}

fn bars(found: &Found) -> Vec<Bar> {
    let mut bars = vec![Bar::at_most(
        "not followed: more",
        found.ignored.whole.1,
        "ns",
        30.0,
    )];
    for setting in &found.settings {
        let cost = &setting.cost;
        let mean = if setting.loops {
            cost.whole.1
        } else {
            cost.mean.1
        };
        bars.push(Bar::at_most(
            format!("{}: more, mean", setting.name),
            mean,
            "ns",
            250.0,
        ));
        bars.push(Bar::at_most(
            format!("{}: more, p99", setting.name),
            cost.p99.1,
            "ns",
            2_000.0,
        ));
    }
    for (name, lost) in LOST.into_iter().zip(found.lost) {
        let name = format!("{name}: calls that were reported");
        bars.push(Bar::at_least(name, 100.0 * (1.0 - lost), "%", 99.9));
    }
    bars.push(Bar::at_most(
        "fwrite of 8 bytes: more",
        found.stream.whole.1,
        "ns",
        20.0,
    ));
    let start_ms = found.start.whole.1 / 1e6;
    bars.push(Bar::at_most(
        "start of a process: more",
        start_ms,
        "ms",
        1.0,
    ));
    for (frames, ns) in &found.contexts {
        bars.push(Bar::at_most(
            format!("context of {frames} frames, warm"),
            *ns,
            "ns",
            100.0,
        ));
    }
    for stream in &found.streams {
        let rate = stream.records as f64 / stream.seconds;
        let name = format!("manager, {}: records/s", stream.name);
        bars.push(Bar::at_least(name, rate, "1/s", 1e6));
        let name = format!("manager, {}: records lost", stream.name);
        bars.push(Bar::at_most(name, stream.lost as f64, "", 0.0));
    }
    bars
}
