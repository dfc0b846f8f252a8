//! `presagio bench sim --only live`: does the simulator put policies into the order in which a live node does?
//!
//! The preset `live` is run twice: by the simulator, and by a `presagio ionode --emulate` of its own process, to which as
//! many clients as the scenario has processes connect, each doing what the scenario says of it. Device models and
//! schedulers are the same code on both sides; threads, sockets, the kernel and the machine's two cores are only on one.

use super::rank::{self, Measured};
use crate::bench::ionode::server::{MSIZE, Server};
use crate::bench::{Bar, Effort, Report};
use crate::failure::failure;
use crate::progress::progress;
use crate::table::{Cell, Table};
use presagio_core::Op;
use presagio_ninep::OpenFlags;
use presagio_ninep::session::{File, Session};
use presagio_sched::PolicyKind;
use presagio_sim::{PolicyChoice, Run, Scenario, Simulation, Step, Sweep, preset};
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// What `--only` finds it by.
pub const NAME: &str = "live node";

/// A rank correlation below this is no agreement.
const CORRELATION: f64 = 0.8;

/// How often each is run, and how much of a process's work is done.
struct Plan {
    rounds: u64,
    /// Of the scenario's bytes, one part in so many.
    part: u64,
    /// Of the policies, each so-manieth.
    every: usize,
}

impl Plan {
    fn new(effort: Effort) -> Plan {
        let (rounds, part, every) = match effort {
            Effort::Full => (3, 1, 1),
            Effort::Quick => (1, 2, 1),
            Effort::Tiny => (1, 8, 4),
        };
        Plan {
            rounds,
            part,
            every,
        }
    }
}

/// A policy in a scenario, both ways, in seconds.
struct Row {
    policy: &'static str,
    simulated: Measured,
    live: Measured,
}

/// A scenario under all policies.
struct Case {
    name: String,
    rows: Vec<Row>,
}

impl Case {
    /// Simulated ranks, and live ones.
    fn ranks(&self) -> (Vec<f64>, Vec<f64>) {
        let of = |measured: fn(&Row) -> &Measured| {
            let all: Vec<Measured> = self.rows.iter().map(|row| measured(row).clone()).collect();
            rank::ranks(&all)
        };
        (of(|row| &row.simulated), of(|row| &row.live))
    }

    fn correlation(&self) -> Option<f64> {
        let (simulated, live) = self.ranks();
        rank::correlation(&simulated, &live)
    }
}

pub fn run(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let plan = Plan::new(effort);
    let toml = preset("live").map_or("", |preset| preset.toml);
    let runs = Sweep::read(toml)?.runs()?;
    let runs: Vec<Run> = runs.into_iter().step_by(plan.every).collect();
    let dir = tempfile::tempdir()?;
    let bar = progress(runs.len() as u64);
    let mut cases: Vec<Case> = Vec::new();
    for (number, mut run) in runs.into_iter().enumerate() {
        let name = case_of(&run);
        let policy = run.scenario.ionodes.scheduler.policy;
        bar.set_message(format!("{name}: {}", policy.name()));
        shorten(&mut run.scenario, plan.part);
        unlimited_noop(&mut run.scenario);
        let below = dir.path().join(number.to_string());
        std::fs::create_dir(&below)?;
        let row = Row {
            policy: policy.name(),
            simulated: simulated(&run.scenario, plan.rounds)?,
            live: live(&run.scenario, &below, plan.rounds)?,
        };
        match cases.last_mut().filter(|case| case.name == name) {
            Some(case) => case.rows.push(row),
            None => cases.push(Case {
                name,
                rows: vec![row],
            }),
        }
        std::fs::remove_dir_all(&below)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    report.tables.push(("live", makespans_table(&cases)));
    report.tables.push(("live_ranks", ranks_table(&cases)));
    report.bars.push(overall(&cases));
    report.notes.push(note(&plan));
    Ok(())
}

fn case_of(run: &Run) -> String {
    let case = run.varied.iter().find(|(name, _)| name == "case");
    case.map_or_else(String::new, |(_, value)| value.clone())
}

/// Whole requests are left, at least one.
fn shorten(scenario: &mut Scenario, part: u64) {
    for app in &mut scenario.apps {
        let requests = (app.requests() / part).max(1);
        app.bytes.0 = requests * app.request.0;
    }
}

/// Under NOOP a node passes everything on at once, whatever --depth says: as much as it has threads for.
fn unlimited_noop(scenario: &mut Scenario) {
    if scenario.ionodes.scheduler.policy == PolicyChoice::Policy(PolicyKind::Noop) {
        scenario.ionodes.dispatchers = NODE_THREADS;
    }
}

/// The default of --threads.
const NODE_THREADS: u32 = 64;

/// Makespans with as many seeds.
fn simulated(scenario: &Scenario, rounds: u64) -> anyhow::Result<Measured> {
    let mut scenario = scenario.clone();
    let mut times = Vec::new();
    for seed in 1..=rounds {
        scenario.seed = seed;
        let report = Simulation::new(&scenario).run()?;
        times.push(report.makespan.as_secs_f64());
    }
    Ok(Measured::of(times))
}

/// Makespans on a live node.
fn live(scenario: &Scenario, below: &Path, rounds: u64) -> anyhow::Result<Measured> {
    let arguments = arguments(scenario, below)?;
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let server = Server::presagio(below, &arguments)?;
    let work = Work::of(scenario)?;
    work.fill(&server)?;
    let times = (0..rounds).map(|_| Ok(work.run(&server)?.as_secs_f64()));
    Ok(Measured::of(times.collect::<anyhow::Result<_>>()?))
}

/// The node that a scenario describes.
pub(in crate::bench) fn arguments(
    scenario: &Scenario,
    below: &Path,
) -> anyhow::Result<Vec<String>> {
    let node = &scenario.ionodes;
    let PolicyChoice::Policy(policy) = node.scheduler.policy else {
        return Err(cannot("its node has no policy"));
    };
    let mut arguments = vec![
        "--policy".to_owned(),
        policy.name().to_owned(),
        "--depth".to_owned(),
        node.dispatchers.to_string(),
        "--emulate".to_owned(),
        scenario.servers.device.name(),
    ];
    if let Some(window) = node.scheduler.window {
        arguments.extend(["--window".to_owned(), (window.0 / 1000).to_string()]);
    }
    if scenario.servers.count > 1 {
        for server in 0..scenario.servers.count {
            let at = below.join(format!("server{server}"));
            std::fs::create_dir(&at)?;
            arguments.extend(["--server".to_owned(), at.display().to_string()]);
        }
        let stripe = scenario.servers.stripe.0.to_string();
        arguments.extend(["--stripe".to_owned(), stripe]);
    }
    Ok(arguments)
}

fn cannot(why: &str) -> anyhow::Error {
    failure("a scenario cannot be done for real", why, "mend the preset")
}

/// What the processes of a scenario do.
pub(in crate::bench) struct Work {
    /// By file, its bytes.
    files: Vec<u64>,
    processes: Vec<Vec<Step>>,
}

impl Work {
    pub(in crate::bench) fn of(scenario: &Scenario) -> anyhow::Result<Work> {
        let mut all = Work {
            files: Vec::new(),
            processes: Vec::new(),
        };
        for (app, listed) in scenario.apps.iter().zip(scenario.operations()) {
            let listed = listed.ok_or_else(|| cannot("it replays a recording"))?;
            let is_plain =
                app.depth == 1 && app.after.is_none() && app.start.0 == 0 && app.stonewall.0 == 0;
            if !is_plain || scenario.ionodes.count != 1 {
                return Err(cannot(
                    "it is not one node and processes that begin together, one request at a time",
                ));
            }
            let first = all.files.len() as u32;
            all.files.resize(all.files.len() + listed.files as usize, 0);
            for mut process in listed.processes {
                process.iter_mut().for_each(|step| step.file += first);
                all.processes.push(process);
            }
        }
        for step in all.processes.iter().flatten() {
            let size = &mut all.files[step.file as usize];
            *size = (*size).max(step.offset + step.len);
        }
        Ok(all)
    }

    /// Makes the files through a connection. Their places on the device are their order.
    pub(in crate::bench) fn fill(&self, server: &Server) -> anyhow::Result<()> {
        let (_session, root) = server.connect()?;
        for (number, bytes) in self.files.iter().enumerate() {
            let file = root.create(format!("file{number}"), OpenFlags::RDWR, 0o600)?;
            // The last byte gives it its size, and with that its place.
            file.write_at(bytes - 1, &[0])?;
        }
        Ok(())
    }

    /// Lets all processes begin at once: how long until the last is done.
    pub(in crate::bench) fn run(&self, server: &Server) -> anyhow::Result<Duration> {
        let barrier = Arc::new(Barrier::new(self.processes.len() + 1));
        let mut clients = Vec::new();
        for process in &self.processes {
            clients.push((Client::new(server, process)?, barrier.clone()));
        }
        std::thread::scope(|threads| {
            let begun: Vec<_> = clients
                .into_iter()
                .zip(&self.processes)
                .map(|((client, barrier), process)| {
                    threads.spawn(move || {
                        barrier.wait();
                        let begin = Instant::now();
                        client.run(process).map(|()| (begin, Instant::now()))
                    })
                })
                .collect();
            barrier.wait();
            let mut spans = Vec::new();
            for client in begun {
                spans.push(client.join().expect("a client does not panic")?);
            }
            let begin = spans.iter().map(|span| span.0).min();
            let end = spans.iter().map(|span| span.1).max();
            Ok(end
                .zip(begin)
                .map_or(Duration::ZERO, |(end, begin)| end - begin))
        })
    }
}

/// Bytes of a message besides data, and more.
const FRAME: u32 = 4096;

/// A process: a connection of its own, and the files that it needs.
struct Client {
    files: Vec<(u32, File)>,
    _session: Session,
}

impl Client {
    fn new(server: &Server, process: &[Step]) -> anyhow::Result<Client> {
        let longest = process.iter().map(|step| step.len).max().unwrap_or(0);
        let msize = MSIZE.max(longest as u32 + FRAME);
        let (session, root) = server.connect_with(msize)?;
        let mut files: Vec<(u32, File)> = Vec::new();
        for step in process {
            if files.iter().all(|(number, _)| *number != step.file) {
                let mut file = root.walk(format!("file{}", step.file))?;
                file.open(OpenFlags::RDWR)?;
                files.push((step.file, file));
            }
        }
        Ok(Client {
            files,
            _session: session,
        })
    }

    fn run(&self, process: &[Step]) -> anyhow::Result<()> {
        let longest = process.iter().map(|step| step.len).max().unwrap_or(0);
        let mut buffer = vec![7; longest as usize];
        for step in process {
            std::thread::sleep(step.think.into());
            let file = self.files.iter().find(|(number, _)| *number == step.file);
            let (_, file) = file.expect("each was opened");
            let bytes = &mut buffer[..step.len as usize];
            let done = match step.op {
                Op::Read => file.read_at(step.offset, bytes)?,
                Op::Write => file.write_at(step.offset, bytes)?,
            };
            anyhow::ensure!(done as u64 == step.len, "a short {}", step.op);
        }
        Ok(())
    }
}

/// Over all scenarios: the ranks within each, put together.
fn overall(cases: &[Case]) -> Bar {
    let (mut simulated, mut live) = (Vec::new(), Vec::new());
    for (one, other) in cases.iter().map(Case::ranks) {
        simulated.extend(one);
        live.extend(other);
    }
    let found = rank::correlation(&simulated, &live);
    let name = "rank correlation of policies, simulated and live";
    let bar = Bar::at_least(name, found.unwrap_or(f64::NAN), "", CORRELATION);
    match found {
        Some(_) => bar,
        None => bar.not_measured("policies do not differ"),
    }
}

fn makespans_table(cases: &[Case]) -> Table {
    let mut rows = Vec::new();
    for case in cases {
        let (simulated, live) = case.ranks();
        for ((row, simulated), live) in case.rows.iter().zip(simulated).zip(live) {
            rows.push(vec![
                Cell::Text(case.name.clone()),
                Cell::Text(row.policy.to_owned()),
                Cell::Number(1e3 * row.simulated.median(), 1),
                Cell::Number(1e3 * row.live.median(), 1),
                Cell::Number(row.live.median() / row.simulated.median(), 2),
                Cell::Number(100.0 * row.simulated.spread(), 1),
                Cell::Number(100.0 * row.live.spread(), 1),
                Cell::Number(simulated, 1),
                Cell::Number(live, 1),
            ]);
        }
    }
    Table {
        title: "Makespans, simulated and on a live node with the same emulated device".to_owned(),
        columns: vec![
            ("scenario", "scenario"),
            ("policy", "policy"),
            ("simulated_ms", "simulated ms"),
            ("live_ms", "live ms"),
            ("ratio", "ratio"),
            ("simulated_spread_percent", "spread %"),
            ("live_spread_percent", "live's"),
            ("simulated_rank", "rank"),
            ("live_rank", "live's"),
        ],
        rows,
    }
}

fn ranks_table(cases: &[Case]) -> Table {
    let row = |case: &Case| {
        let each = case.rows.iter();
        let mut ratios: Vec<f64> = each
            .map(|row| row.live.median() / row.simulated.median())
            .collect();
        ratios.sort_by(f64::total_cmp);
        vec![
            Cell::Text(case.name.clone()),
            Cell::maybe(case.correlation(), 2),
            Cell::Number(ratios[ratios.len() / 2], 2),
            Cell::Number(ratios[0], 2),
            Cell::Number(ratios[ratios.len() - 1], 2),
        ]
    };
    Table {
        title: "Do both rank policies alike? (a dash: policies do not differ)".to_owned(),
        columns: vec![
            ("scenario", "scenario"),
            ("correlation", "rank correlation"),
            ("ratio_median", "live / simulated"),
            ("ratio_least", "least"),
            ("ratio_most", "most"),
        ],
        rows: cases.iter().map(row).collect(),
    }
}

fn note(plan: &Plan) -> String {
    format!(
        "Live: {} runs of each, a node of its own process on the emulated device, a connection for each process. Policies whose \
         ranges overlap, or whose medians differ by less than {:.0} %, share their ranks. The bar is over all scenarios: the \
         ranks within each, put together.",
        plan.rounds,
        100.0 * rank::ALIKE
    )
}
