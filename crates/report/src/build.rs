//! From counts to figures: one [`Run`] out of what was collected of its trace, its summary, or both.

use crate::census::Kind;
use crate::collect::{Collected, Group, Lane as Counted, Series};
use crate::doc::*;
use crate::findings;
use crate::habits::{Habit, Step as Lies};
use crate::loops::{self, Step as Unfolded};
use crate::phases::{self, rounded};
use crate::readable;
use presagio_core::{Action, Histogram, Layer};
use presagio_predict::score::Judged;
use presagio_trace::{Format, Frame, Process};
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Files and accesses that are listed.
const FILES_MAX: usize = 60;
const ACCESSES_MAX: usize = 60;
/// Call stacks that are listed, beside those that others refer to.
const SITES_MAX: usize = 60;
/// Frames that are shown of each.
const FRAMES_MAX: usize = 16;
/// Phases that are listed.
const PHASES_MAX: usize = 500;
/// Processes whose loops are shown.
const PROGRAMS_MAX: usize = 6;

/// Says where in a program's source a frame of a call stack is.
pub trait Names {
    /// The place, as far as it is known.
    fn place(&mut self, frame: &Frame) -> Place;

    /// What one should know about these places: a program that is gone, or was built anew since.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Knows what the trace says and nothing else.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nameless;

impl Names for Nameless {
    fn place(&mut self, frame: &Frame) -> Place {
        Place {
            module: readable::name(frame.module.as_bytes()),
            offset: frame.offset,
            function: frame
                .symbol
                .as_ref()
                .map(|symbol| readable::name(symbol.as_bytes())),
            ..Place::default()
        }
    }
}

/// What a run is made of.
#[derive(Debug, Default)]
pub struct Input {
    /// What it is called.
    pub name: String,
    /// The trace's name and what was collected of it.
    pub trace: Option<(String, Collected)>,
    /// The summary's name and what it says.
    pub summary: Option<(String, Value)>,
}

/// The figures of a run.
pub fn run(input: Input, names: &mut impl Names) -> Run {
    let summary = input.summary.as_ref().map(|(_, value)| value);
    let mut run = match input.trace {
        Some((path, collected)) => {
            let mut run = Builder::new(&collected, names).build();
            run.source.trace = Some(path);
            run.phases = phasing(&mut run, collected);
            run
        }
        None => nothing(),
    };
    if let Some(value) = summary {
        add_summary(&mut run, value);
    }
    run.source.summary = input.summary.as_ref().map(|(path, _)| path.clone());
    run.name = readable::name(input.name.as_bytes());
    run.summary = input.summary.map(|(_, value)| value);
    run.not_seen_count = run.not_seen.len();
    run.findings = findings::of_run(&run);
    run
}

/// A run of which nothing is known.
fn nothing() -> Run {
    Run {
        name: String::new(),
        source: Origin::default(),
        totals: Totals::default(),
        timeline: None,
        files: Vec::new(),
        files_left_out: LeftOut::default(),
        accesses: Vec::new(),
        sites: Vec::new(),
        sizes: Vec::new(),
        latencies: Vec::new(),
        slowest: Vec::new(),
        sequentiality: Vec::new(),
        phases: Phasing {
            pause_ns: 0,
            count: 0,
            phases: Vec::new(),
            period: None,
        },
        loops: Vec::new(),
        prediction: None,
        prefetch: None,
        decided: Vec::new(),
        not_seen: Vec::new(),
        not_seen_count: 0,
        notes: Vec::new(),
        findings: Vec::new(),
        summary: None,
    }
}

/// A part of a whole, from 0 to 1.
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        _ => rounded(part as f64 / whole as f64),
    }
}

fn maybe_share(part: f64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| rounded(part / whole as f64))
}

/// Files by their name without numbers, call stack and action.
type FamilyKey = (String, Option<u32>, u8);

/// What was done to such files.
#[derive(Default)]
struct Family {
    files: u64,
    /// The file, if it is the only one.
    only: Option<u32>,
    habit: Habit,
}

/// What makes the figures of one trace.
struct Builder<'a, N> {
    of: &'a Collected,
    names: &'a mut N,
    all: Habit,
    by_file: HashMap<u32, BTreeMap<u8, Habit>>,
    by_context: HashMap<u32, Habit>,
    /// The place of each file in the list.
    listed: HashMap<u32, usize>,
    sites: Vec<Site>,
    site_of: HashMap<u32, usize>,
    is_one_program: bool,
}

impl<'a, N: Names> Builder<'a, N> {
    fn new(of: &'a Collected, names: &'a mut N) -> Builder<'a, N> {
        let (mut all, mut by_file, mut by_context) =
            (Habit::default(), HashMap::new(), HashMap::new());
        // The same in every run: sums of rare sizes depend on the order.
        let mut groups: Vec<(&Group, &Habit)> = of.groups.iter().collect();
        groups.sort_unstable_by_key(|(group, _)| **group);
        for ((file, context, action), habit) in groups {
            all.merge(habit);
            if let Some(file) = file {
                let actions: &mut BTreeMap<u8, Habit> = by_file.entry(*file).or_default();
                actions.entry(*action).or_default().merge(habit);
            }
            if let Some(context) = context {
                let known: &mut Habit = by_context.entry(*context).or_default();
                known.merge(habit);
            }
        }
        let programs: BTreeSet<_> = of.known.processes.values().map(program).collect();
        Builder {
            is_one_program: programs.len() < 2,
            of,
            names,
            all,
            by_file,
            by_context,
            listed: HashMap::new(),
            sites: Vec::new(),
            site_of: HashMap::new(),
        }
    }

    fn build(mut self) -> Run {
        let (files, files_left_out) = self.files();
        let accesses = self.accesses();
        self.busiest_sites();
        let slowest = self.slowest();
        let loops = self.loops();
        let not_seen = self.not_seen();
        let mut notes = self.of.warnings.clone();
        notes.extend(self.names.notes());
        Run {
            source: self.origin(),
            totals: self.totals(),
            timeline: Some(self.timeline()),
            files,
            files_left_out,
            accesses,
            sizes: self.sizes(),
            latencies: self.latencies(),
            slowest,
            sequentiality: self.sequentiality(),
            loops,
            prediction: self.prediction(),
            not_seen_count: not_seen.len(),
            not_seen,
            notes: notes.iter().map(|n| readable::name(n.as_bytes())).collect(),
            sites: self.sites,
            ..nothing()
        }
    }

    fn origin(&self) -> Origin {
        let processes = self.of.known.processes.values();
        let mut commands: Vec<String> = Vec::new();
        let mut hosts = BTreeSet::new();
        for process in processes.clone() {
            let command = process.command.as_deref().unwrap_or_default();
            let command = readable::name(command.as_bytes());
            if !command.is_empty() && !commands.contains(&command) && commands.len() < 20 {
                commands.push(command);
            }
            hosts.extend(
                process
                    .host
                    .as_deref()
                    .map(|h| readable::name(h.as_bytes())),
            );
        }
        let began = processes.filter_map(|p| p.start).min();
        Origin {
            format: self.of.format.map(Format::name),
            commands,
            hosts: hosts.into_iter().take(20).collect(),
            began_s: began.map(|start| start.0 / 1_000_000_000),
            layer: Some(self.of.layer.name()),
            layers: self.layers(),
            ..Origin::default()
        }
    }

    fn layers(&self) -> Vec<LayerUse> {
        let layers = Layer::ALL.into_iter().zip(&self.of.census.layers);
        let used = layers.filter(|(_, counts)| counts.events > 0);
        used.map(|(layer, counts)| LayerUse {
            layer: layer.name(),
            operations: counts.events,
            bytes: counts.bytes,
            time_ns: counts.busy,
        })
        .collect()
    }

    fn totals(&self) -> Totals {
        let of = self.of;
        let kind_ns = |kind: Kind| of.latencies[kind as usize].busy.iter().sum();
        let (duration, time) = (of.end - of.begin, self.all.busy);
        let processes = of.counts().processes.len() as u64;
        let actions = self.actions();
        let bytes = |action: Action| {
            let used = actions.iter().find(|a| a.action == action.name());
            used.map_or(0, |a| a.bytes)
        };
        let lives = duration.saturating_mul(processes);
        Totals {
            duration_ns: duration,
            operations: self.all.operations,
            failed: self.all.failed,
            bytes_read: bytes(Action::Read),
            bytes_written: bytes(Action::Write),
            time_ns: time,
            read_ns: kind_ns(Kind::Read),
            write_ns: kind_ns(Kind::Write),
            other_ns: kind_ns(Kind::Other),
            other_share: share(kind_ns(Kind::Other), time),
            time_share: share(time, lives),
            processes,
            threads: of.threads.len() as u64,
            files: of.counts().files.len() as u64,
            contexts: self.by_context.keys().filter(|c| **c != 0).count() as u64,
            errors: self.errors(),
            actions,
            ..Totals::default()
        }
    }

    fn errors(&self) -> Vec<ErrorUse> {
        let errors = self.of.errors.iter();
        let mut errors: Vec<ErrorUse> = errors
            .map(|(error, times)| ErrorUse {
                error: *error,
                times: *times,
            })
            .collect();
        errors.sort_by_key(|error| Reverse(error.times));
        errors.truncate(12);
        errors
    }

    fn actions(&self) -> Vec<ActionUse> {
        let mut sums = vec![Habit::default(); Action::ALL.len()];
        for ((_, _, action), habit) in &self.of.groups {
            sums[*action as usize].merge(habit);
        }
        let used = Action::ALL.into_iter().zip(sums);
        let used = used.filter(|(_, sum)| sum.operations > 0);
        used.map(|(action, sum)| ActionUse {
            action: action.name(),
            operations: sum.operations,
            failed: sum.failed,
            bytes: sum.bytes,
            time_ns: sum.busy,
            time_share: share(sum.busy, self.all.busy),
        })
        .collect()
    }

    fn timeline(&self) -> Timeline {
        let used = self
            .of
            .lanes
            .iter()
            .filter(|lane| lane.total.operations > 0);
        let lanes: Vec<Lane> = used.map(|lane| self.lane(lane)).collect();
        Timeline {
            all: activity(&self.of.all),
            lane_median_ns: median_time(&lanes),
            lane_most_times: most_times(&lanes),
            lanes_own: lanes.iter().filter(|lane| lane.processes == 1).count() as u64,
            lanes,
        }
    }

    fn lane(&self, lane: &Counted) -> Lane {
        let unknown = Process::default();
        let id = lane.process.unwrap_or_default();
        let known = lane.process.and_then(|p| self.of.known.processes.get(&p));
        let process = known.unwrap_or(&unknown);
        let text = |text: &Option<String>| text.as_ref().map(|t| readable::name(t.as_bytes()));
        Lane {
            label: match lane.process {
                Some(_) => self.process(id),
                None => readable::counted(lane.processes, "other", "others"),
            },
            command: text(&process.command),
            pid: process.pid,
            rank: process.rank,
            host: text(&process.host),
            processes: lane.processes,
            operations: lane.total.operations,
            bytes_read: lane.read,
            bytes_written: lane.written,
            time_ns: lane.total.busy,
            activity: activity(&lane.series),
        }
    }

    /// What a process is called.
    fn process(&self, id: u32) -> String {
        let known = self.of.known.processes.get(&id);
        let program = known.and_then(program);
        let number = match known.map(|p| (p.rank, p.pid)) {
            Some((Some(rank), _)) => format!("rank {rank}"),
            Some((None, Some(pid))) => format!("pid {pid}"),
            _ => format!("process {id}"),
        };
        match program {
            Some(program) if !self.is_one_program => format!("{program} · {number}"),
            _ => number,
        }
    }

    fn name(&self, file: u32) -> String {
        let known = self.of.census.files.names.get(file as usize);
        match known.and_then(Option::as_ref) {
            Some(name) => readable::name(name),
            None => format!("file {file}, whose name is not known"),
        }
    }

    fn files(&mut self) -> (Vec<FileUse>, LeftOut) {
        let sum = |actions: &BTreeMap<u8, Habit>| {
            let mut sum = Habit::default();
            actions.values().for_each(|habit| sum.merge(habit));
            sum
        };
        let mut all: Vec<(u32, Habit)> = self.by_file.iter().map(|(f, a)| (*f, sum(a))).collect();
        all.sort_unstable_by_key(|(file, sum)| {
            (Reverse((sum.busy, sum.bytes, sum.operations)), *file)
        });
        // Whoever has a map is listed.
        let (mut shown, rest): (Vec<_>, Vec<_>) = all
            .into_iter()
            .enumerate()
            .partition(|(at, (file, _))| *at < FILES_MAX || self.of.heats.contains_key(file));
        let mut left = LeftOut {
            files: (self.of.counts().files.len() as u64).saturating_sub(shown.len() as u64),
            ..LeftOut::default()
        };
        let others = self
            .of
            .groups
            .iter()
            .filter(|((file, _, _), _)| file.is_none());
        for habit in rest
            .iter()
            .map(|(_, (_, sum))| sum)
            .chain(others.map(|o| o.1))
        {
            left.operations += habit.operations;
            left.bytes += habit.bytes;
            left.time_ns += habit.busy;
        }
        let numbered = shown.iter().enumerate();
        self.listed = numbered.map(|(at, (_, (file, _)))| (*file, at)).collect();
        let sharers = self.of.positions.sharers();
        let files = shown.drain(..).map(|(_, (file, sum))| {
            let processes = sharers.get(&file).copied().unwrap_or(0);
            self.file(file, &sum, processes)
        });
        (files.collect(), left)
    }

    fn file(&self, file: u32, sum: &Habit, processes: u64) -> FileUse {
        let name = self.name(file);
        let actions = &self.by_file[&file];
        let of = |action: Action| actions.get(&(action as u8));
        let reach = self.of.counts().files.get(&file).map_or(0, |f| f.reach);
        let bytes_read = of(Action::Read).map_or(0, |h| h.bytes);
        FileUse {
            short: readable::last_part(&name).to_owned(),
            name,
            operations: sum.operations,
            failed: sum.failed,
            bytes_read,
            bytes_written: of(Action::Write).map_or(0, |h| h.bytes),
            time_ns: sum.busy,
            time_share: share(sum.busy, self.all.busy),
            reach,
            read_times: maybe_share(bytes_read as f64, reach),
            processes,
            reads: of(Action::Read).map(way),
            writes: of(Action::Write).map(way),
            heat: self.heat(file),
        }
    }

    fn heat(&self, file: u32) -> Option<Heat> {
        let heat = self.of.heats.get(&file)?;
        let cells = heat.cells();
        let width = crate::axis::Axis::new(self.of.begin, self.of.end, crate::heat::COLUMNS).width;
        (!cells.is_empty()).then(|| Heat {
            column_ns: width,
            row_bytes: heat.row_bytes,
            columns: heat.columns(),
            rows: heat.rows,
            cells,
        })
    }

    fn accesses(&mut self) -> Vec<Access> {
        let mut families = self.families();
        families.sort_by_key(|(key, family)| {
            let habit = &family.habit;
            (
                Reverse((habit.busy, habit.bytes, habit.operations)),
                key.clone(),
            )
        });
        families.truncate(ACCESSES_MAX);
        let access = |((name, context, action), family): (FamilyKey, Family)| Access {
            file: family.only.and_then(|file| self.listed.get(&file).copied()),
            name: family.only.map_or(name, |file| self.name(file)),
            files: family.files,
            site: context.and_then(|context| self.site(context)),
            action: Action::from_number(action).map_or("", Action::name),
            way: way(&family.habit),
            failed: family.habit.failed,
            time_share: share(family.habit.busy, self.all.busy),
        };
        families.into_iter().map(access).collect()
    }

    /// What was done, with files that are only numbered differently taken together.
    fn families(&self) -> Vec<(FamilyKey, Family)> {
        let mut groups: Vec<(&Group, &Habit)> = self.of.groups.iter().collect();
        groups.sort_unstable_by_key(|(group, _)| **group);
        let mut names: HashMap<u32, String> = HashMap::new();
        let mut families: HashMap<FamilyKey, Family> = HashMap::new();
        for ((file, context, action), habit) in groups {
            let name = match file {
                Some(file) => names
                    .entry(*file)
                    .or_insert_with(|| readable::family(&self.name(*file)))
                    .clone(),
                None => "other files".to_owned(),
            };
            let family = families.entry((name, *context, *action)).or_default();
            family.files += 1;
            family.only = file.filter(|_| family.files == 1);
            family.habit.merge(habit);
        }
        families.into_iter().collect()
    }

    fn busiest_sites(&mut self) {
        let mut all: Vec<(u32, u64)> = self.by_context.iter().map(|(c, h)| (*c, h.busy)).collect();
        all.sort_unstable_by_key(|(context, busy)| (Reverse(*busy), *context));
        for (context, _) in all.into_iter().take(SITES_MAX) {
            self.site(context);
        }
    }

    /// The place of a call stack in the list, where it is put if it is new; nothing if it is not known.
    fn site(&mut self, context: u32) -> Option<usize> {
        if let Some(at) = self.site_of.get(&context) {
            return Some(*at);
        }
        let frames = self.of.known.contexts.get(&context)?.clone();
        let places = frames.iter().take(FRAMES_MAX);
        let frames: Vec<Place> = places.map(|frame| self.names.place(frame)).collect();
        let nothing = Habit::default();
        let sum = self.by_context.get(&context).unwrap_or(&nothing);
        self.sites.push(Site {
            context,
            label: label(&frames),
            frames,
            operations: sum.operations,
            bytes: sum.bytes,
            time_ns: sum.busy,
        });
        self.site_of.insert(context, self.sites.len() - 1);
        Some(self.sites.len() - 1)
    }

    fn slowest(&mut self) -> Vec<Operation> {
        let slow = self.of.slowest().into_iter();
        slow.map(|slow| Operation {
            begin_ns: slow.event.time.0 - self.of.begin,
            duration_ns: slow.event.duration.0,
            process: self.process(slow.event.process),
            action: slow.event.action.name(),
            name: self.name(slow.file),
            offset: slow.event.offset,
            len: slow.event.len,
            result: slow.event.result,
            site: self.site(slow.event.context.0),
        })
        .collect()
    }

    fn sizes(&self) -> Vec<Distribution> {
        let of = ["read", "write"].into_iter().zip(&self.of.sizes);
        of.filter_map(|(of, histogram)| distribution(of, histogram, &[]))
            .collect()
    }

    fn latencies(&self) -> Vec<Distribution> {
        let of = ["read", "write", "other"]
            .into_iter()
            .zip(&self.of.latencies);
        of.filter_map(|(of, latency)| distribution(of, &latency.histogram, &latency.busy))
            .collect()
    }

    fn sequentiality(&self) -> Vec<Sequentiality> {
        let of = |action: Action| {
            let mut sum = Habit::default();
            let groups = self
                .of
                .groups
                .iter()
                .filter(|(key, _)| key.2 == action as u8);
            groups.for_each(|(_, habit)| sum.merge(habit));
            let at = |step: Lies| sum.steps[step as usize];
            let with_one_before = sum.steps.iter().sum::<u64>() - at(Lies::First);
            let onward = at(Lies::Consecutive) + at(Lies::Strided) + at(Lies::Forward);
            (sum.operations > 0).then(|| Sequentiality {
                of: action.name(),
                steps: sum.steps,
                consecutive_share: share(at(Lies::Consecutive), with_one_before),
                onward_share: share(onward, with_one_before),
                back_share: share(with_one_before - onward, with_one_before),
            })
        };
        [Action::Read, Action::Write]
            .into_iter()
            .filter_map(of)
            .collect()
    }

    fn loops(&mut self) -> Vec<Program> {
        let of = self.of;
        let streams = of.foreseen.streams().iter();
        let with_model = streams.filter_map(|s| Some((s, s.model.as_ref()?)));
        let mut programs = Vec::new();
        for (stream, model) in with_model
            .filter(|(s, _)| s.judged.operations > 0)
            .take(PROGRAMS_MAX)
        {
            let nested = loops::nested(model.grammar());
            let steps = nested.steps.iter().map(|s| self.step(s, &stream.symbols));
            let steps = steps.collect();
            programs.push(Program {
                process: self.process(stream.process),
                steps,
                operations: nested.operations,
                symbols: model.grammar().len(),
                depth: nested.depth,
                varies: model.grammar().mode() == presagio_grammar::Mode::Folding,
            });
        }
        programs
    }

    fn step(&mut self, step: &Unfolded, symbols: &[crate::foreseen::SymbolUse]) -> Step {
        match step {
            Unfolded::Lost => Step::Lost {},
            Unfolded::More { steps, operations } => Step::More {
                steps: *steps,
                operations: *operations,
            },
            Unfolded::Again {
                times,
                number,
                operations,
            } => Step::Again {
                times: *times,
                letter: letter(*number),
                operations: *operations,
            },
            Unfolded::Loop {
                times,
                number,
                operations,
                body,
            } => Step::Loop {
                times: *times,
                letter: number.map(letter),
                operations: *operations,
                body: body.iter().map(|s| self.step(s, symbols)).collect(),
            },
            Unfolded::Call { symbol, times } => match symbols.get(*symbol as usize) {
                Some(known) => self.call(known, *times),
                None => Step::More {
                    steps: 1,
                    operations: *times,
                },
            },
        }
    }

    fn call(&mut self, known: &crate::foreseen::SymbolUse, times: u64) -> Step {
        Step::Call {
            times,
            action: known.action.name(),
            failed: known.failed,
            len: known.len.filter(|_| known.action.is_transfer()),
            name: known.file.map(|file| self.name(file)),
            site: self.site(known.context),
            operations: known.operations,
            time_ns: known.busy,
            bytes: known.bytes,
        }
    }

    fn prediction(&self) -> Option<Prediction> {
        let foreseen = &self.of.foreseen;
        let judged = foreseen.judged();
        let streams = foreseen.streams().iter();
        let processes = streams
            .filter(|s| s.judged.operations > 0)
            .map(|s| ForeseenProcess {
                process: self.process(s.process),
                all: foresight(&s.judged),
                perfect_after: s.perfect_after(),
                symbols: s.model.as_ref().map(|m| m.grammar().len()),
                memory: s.model.as_ref().map(|m| m.memory()),
            });
        (judged.operations > 0).then(|| Prediction {
            from: "trace",
            all: foresight(&judged),
            bin_ns: foreseen.axis.width,
            bins: foreseen.bins.iter().map(foresight).collect(),
            processes: processes.collect(),
            operations_without: foreseen.operations_without,
        })
    }

    /// What this trace cannot tell.
    fn not_seen(&mut self) -> Vec<String> {
        let of = self.of;
        let mut missing = Vec::new();
        if let Some(why) = &of.cut_short {
            missing.push(format!(
                "The end: {}. What came later is not in this report.",
                readable::name(why.as_bytes())
            ));
        }
        match of.gaps {
            (0, _) => {}
            (gaps, 0) => missing.push(format!(
                "Operations that were lost while recording, in {}; nobody knows how many.",
                readable::counted(gaps, "place", "places")
            )),
            (gaps, lost) => missing.push(format!(
                "{} that were lost while recording, in {}.",
                readable::counted(lost, "operation", "operations"),
                readable::counted(gaps, "place", "places")
            )),
        }
        missing.extend(of.format.into_iter().flat_map(blind).map(str::to_owned));
        if self.by_context.keys().all(|context| *context == 0) && self.all.operations > 0 {
            let what = "Call stacks: the recording has none, so that operations are told apart by what they did, and no place in the program can be named.";
            missing.push(what.to_owned());
        }
        if of.counts().is_full {
            let what =
                "More than a million files or processes: what the rest did is in the totals only.";
            missing.push(what.to_owned());
        }
        if of.foreseen.given_up > 0 {
            missing.push(format!(
                "How predictable all of it is: the models of {} were given up on the way, since they foresaw too little or became too large.",
                readable::counted(of.foreseen.given_up, "process", "processes")
            ));
        }
        missing
    }
}

/// The program that a process runs.
fn program(process: &Process) -> Option<String> {
    let command = process.command.as_deref()?;
    let first = command.split_whitespace().next()?;
    Some(readable::name(readable::last_part(first).as_bytes()))
}

/// What recordings of this format never have.
fn blind(format: Format) -> Option<&'static str> {
    match format {
        Format::Darshan | Format::DarshanText => Some(
            "Whatever is not a read or a write: Darshan's extended traces have no opens, closes, seeks or syncs, and only those files that were traced.",
        ),
        Format::Strace => Some(
            "What mapped files are read for by page faults, and io_uring: strace sees system calls only.",
        ),
        Format::Agios => Some("How long requests took: AGIOS notes when they arrive."),
        Format::Native | Format::Csv => None,
    }
}

/// Phases and their rhythm.
fn phasing(run: &mut Run, of: Collected) -> Phasing {
    let (mut phases, pause_ns) = of.phases.finish(of.begin);
    let period = run.timeline.as_ref().map(|timeline| {
        let all = &timeline.all;
        let mean_of = |kind: Kind, values: &[u64]| {
            let operations: u64 = of.all.operations[kind as usize].iter().sum();
            values.iter().map(|v| *v as f64).sum::<f64>() / operations.max(1) as f64
        };
        let activity = |values, unit| phases::Activity { values, unit };
        let series = [
            activity(&all.read[..], mean_of(Kind::Read, &all.read)),
            activity(&all.written, mean_of(Kind::Write, &all.written)),
            activity(&all.operations, 1.0),
        ];
        phases::period(&phases, &series, all.bin_ns, run.totals.duration_ns)
    });
    // The list is cut; what is said of all is of all.
    let count = phases.len();
    phases.truncate(PHASES_MAX);
    Phasing {
        pause_ns,
        count,
        phases,
        period,
    }
}

fn activity(series: &Series) -> Activity {
    let busy = |kind: Kind| series.busy[kind as usize].values(&series.axis);
    let [reads, writes, others] = &series.operations;
    let sums = reads.iter().zip(writes).zip(others);
    Activity {
        bin_ns: series.axis.width,
        operations: sums.map(|((r, w), o)| r + w + o).collect(),
        read: series.read.values(),
        written: series.written.values(),
        read_ns: busy(Kind::Read),
        write_ns: busy(Kind::Write),
        other_ns: busy(Kind::Other),
    }
}

fn way(habit: &Habit) -> Way {
    let strides = habit.strides.commonest().into_iter();
    Way {
        word: habit.word(),
        operations: habit.operations,
        bytes: habit.bytes,
        time_ns: habit.busy,
        steps: habit.steps,
        sizes: habit.sizes.commonest(),
        strides: strides
            .map(|(stride, times)| (stride as i64, times))
            .collect(),
        is_exact: habit.sizes.is_exact() && habit.strides.is_exact(),
    }
}

fn distribution(of: &'static str, histogram: &Histogram, busy: &[u64]) -> Option<Distribution> {
    let (min, max) = (histogram.min()?, histogram.max()?);
    let quantile = |q| histogram.quantile(q).unwrap_or(0);
    let counts = histogram.buckets().iter().enumerate();
    let buckets = counts.map(|(at, count)| {
        let from = if at == 0 { 0 } else { 1 << (at - 1) };
        let to = match at {
            0 => 0,
            _ if at == Histogram::BUCKETS - 1 => max.max(from),
            _ => (1 << at) - 1,
        };
        (from, to, *count, busy.get(at).copied().unwrap_or(0))
    });
    let used = |at: &usize| histogram.buckets()[*at] > 0;
    let first = (0..Histogram::BUCKETS).find(used).unwrap_or(0);
    let last = (0..Histogram::BUCKETS).rfind(used).unwrap_or(0);
    let buckets: Vec<_> = buckets.skip(first).take(last - first + 1).collect();
    let is_of_sizes = busy.is_empty();
    Some(Distribution {
        of,
        small_share: is_of_sizes.then(|| small_share(&buckets)),
        tail: if is_of_sizes { None } else { tail(&buckets) },
        count: histogram.count(),
        min,
        median: quantile(0.5),
        p90: quantile(0.9),
        p99: quantile(0.99),
        max,
        mean: histogram.mean().map_or(0.0, rounded),
        buckets,
    })
}

/// A bucket of a distribution: from, to, how many, and their time.
type Bucket = (u64, u64, u64, u64);

fn small_share(buckets: &[Bucket]) -> f64 {
    let small = buckets.iter().filter(|bucket| bucket.1 < SMALL);
    let all = buckets.iter().map(|bucket| bucket.2).sum();
    share(small.map(|bucket| bucket.2).sum(), all)
}

/// The slowest, if these are few and took most of the time.
fn tail(buckets: &[Bucket]) -> Option<Tail> {
    const FEW: f64 = 0.02;
    const MUCH: f64 = 0.5;
    const LEAST: u64 = 200;
    let all: u64 = buckets.iter().map(|bucket| bucket.2).sum();
    let time: u64 = buckets.iter().map(|bucket| bucket.3).sum();
    if all < LEAST {
        return None;
    }
    let (mut count, mut busy) = (0, 0);
    let tails = buckets.iter().rev().map(|bucket| {
        (count, busy) = (count + bucket.2, busy + bucket.3);
        Tail {
            from_ns: bucket.0,
            count_share: share(count, all),
            time_share: share(busy, time),
        }
    });
    let mut few = tails.take_while(|tail| tail.count_share <= FEW);
    few.find(|tail| tail.time_share >= MUCH)
}

/// The time of the process in the middle.
fn median_time(lanes: &[Lane]) -> Option<u64> {
    let own = lanes.iter().filter(|lane| lane.processes == 1);
    let mut times: Vec<u64> = own.map(|lane| lane.time_ns).collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

/// How many times as much time the busiest process takes as the one in the middle.
fn most_times(lanes: &[Lane]) -> Option<f64> {
    let own = lanes.iter().filter(|lane| lane.processes == 1);
    let most = own.map(|lane| lane.time_ns).max()?;
    maybe_share(most as f64, median_time(lanes)?.max(1))
}

fn foresight(judged: &Judged) -> Foresight {
    Foresight {
        operations: judged.operations,
        right: judged.right,
        confident: judged.confident,
        confident_right: judged.confident_right,
        context_right: judged.context_right,
        transfers: judged.transfers,
        offset_right: judged.offset_right,
        right_share: maybe_share(judged.right as f64, judged.operations),
        context_share: maybe_share(judged.context_right as f64, judged.operations),
        offset_share: maybe_share(judged.offset_right as f64, judged.transfers),
        hit_ratio: maybe_share(judged.hit, judged.transfers),
    }
}

/// A, B, … Z, AA, AB, …
fn letter(number: u32) -> String {
    let mut letters = Vec::new();
    let mut rest = number + 1;
    while rest > 0 {
        letters.push(char::from(b'A' + ((rest - 1) % 26) as u8));
        rest = (rest - 1) / 26;
    }
    letters.iter().rev().collect()
}

/// Where a call stack is, in a few words: its innermost place in the program itself, or in what can be named at all.
fn label(frames: &[Place]) -> String {
    let is_ours = |place: &&Place| !is_runtime(&place.module);
    let with_line = |place: &&Place| place.line.is_some();
    let with_function = |place: &&Place| place.function.is_some();
    let ours = || frames.iter().filter(is_ours);
    let best = ours().find(with_line);
    let best = best.or_else(|| ours().find(with_function));
    let best = best.or_else(|| ours().next()).or(frames.first());
    best.map_or_else(|| "not known".to_owned(), Place::text)
}

/// What programs call to do I/O, rather than programs.
fn is_runtime(module: &str) -> bool {
    let name = readable::last_part(module);
    [
        "libc.so",
        "libc-",
        "libpthread",
        "ld-linux",
        "libpresagio",
        "libstdc++",
        "[vdso]",
        "?",
    ]
    .iter()
    .any(|begin| name.starts_with(begin))
}

impl Place {
    /// In a few words.
    fn text(&self) -> String {
        let module = readable::last_part(&self.module);
        match (&self.function, &self.file, self.line) {
            (Some(function), Some(file), Some(line)) => {
                format!("{function} ({}:{line})", readable::last_part(file))
            }
            (None, Some(file), Some(line)) => format!("{}:{line}", readable::last_part(file)),
            (Some(function), _, _) => format!("{function} in {module}"),
            _ => format!("{module}+{:#x}", self.offset),
        }
    }
}

/// What the summary of `presagio run` says, where the trace does not say it better.
fn add_summary(run: &mut Run, summary: &Value) {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let texts = |value: &Value| -> Vec<String> {
        let list = value.as_array().into_iter().flatten();
        list.filter_map(|t| t.as_str().map(readable::sentence))
            .collect()
    };
    run.totals.elapsed_ns = summary["elapsed_ns"].as_u64();
    run.decided = texts(&summary["decided"]);
    run.notes.extend(texts(&summary["notes"]));
    // The run knows better than the format what could not be seen.
    run.not_seen.splice(0..0, texts(&summary["not_seen"]));
    if run.timeline.is_none() {
        summary_totals(run, summary);
    }
    run.prefetch = summary["prefetch"].is_object().then(|| {
        let prefetch = &summary["prefetch"];
        let (useful, wasted) = (
            number(&prefetch["bytes_useful"]),
            number(&prefetch["bytes_wasted"]),
        );
        let all = useful.saturating_add(wasted);
        Prefetch {
            advised: prefetch["advised"].as_bool().unwrap_or(false),
            bytes_loaded: all,
            bytes_useful: useful,
            bytes_wasted: wasted,
            useful_share: maybe_share(useful as f64, all),
            read_share: maybe_share(useful as f64, run.totals.bytes_read).map(|s| s.min(1.0)),
            reasons: reasons(&prefetch["by_reason"]),
            waits: waits(&prefetch["waits"]),
        }
    });
}

/// What reads waited, as the run measured it.
fn waits(list: &Value) -> Vec<Wait> {
    let list = list.as_array().into_iter().flatten();
    let mut waits: Vec<Wait> = list.filter_map(wait).collect();
    waits.sort_by_key(|wait| std::cmp::Reverse(wait.without_ns.saturating_sub(wait.with_ns)));
    waits
}

fn wait(one: &Value) -> Option<Wait> {
    let text = |key: &str| Some(readable::name(one[key].as_str()?.as_bytes()));
    let (with_ns, without_ns) = (one["with_ns"].as_u64()?, one["without_ns"].as_u64()?);
    let wait = Wait {
        name: text("name")?,
        method: text("method")?,
        with_ns,
        without_ns,
        with_reads: one["with_reads"].as_u64(),
        without_reads: one["without_reads"].as_u64(),
        hidden_share: share(without_ns.saturating_sub(with_ns), without_ns),
    };
    (without_ns > 0).then_some(wait)
}

fn reasons(by_reason: &Value) -> Vec<PrefetchReason> {
    let reasons = by_reason.as_object().into_iter().flatten();
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    reasons
        .map(|(reason, loads)| PrefetchReason {
            reason: readable::name(reason.as_bytes()),
            hints: number(&loads["hints"]),
            bytes_asked: number(&loads["bytes_asked"]),
            bytes_already: number(&loads["bytes_already"]),
            bytes_loaded: number(&loads["bytes_loaded"]),
        })
        .collect()
}

/// The figures of a run that left no trace.
fn summary_totals(run: &mut Run, summary: &Value) {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let totals = &summary["totals"];
    let time = number(&totals["time_ns"]);
    let of = |action: Action| number(&totals["actions"][action.name()]["time_ns"]);
    let (read_ns, write_ns) = (of(Action::Read), of(Action::Write));
    let other_ns = time.saturating_sub(read_ns).saturating_sub(write_ns);
    run.not_seen.insert(
        0,
        "When and where operations were done: the run left no trace (--trace).".to_owned(),
    );
    run.totals = Totals {
        duration_ns: number(&summary["elapsed_ns"]),
        elapsed_ns: summary["elapsed_ns"].as_u64(),
        operations: number(&totals["operations"]),
        failed: number(&totals["failed"]),
        bytes_read: number(&totals["bytes_read"]),
        bytes_written: number(&totals["bytes_written"]),
        time_ns: time,
        read_ns,
        write_ns,
        other_ns,
        other_share: share(other_ns, time),
        time_share: 0.0,
        processes: number(&summary["processes"]),
        files: number(&summary["files"]),
        contexts: number(&summary["contexts"]),
        ..Totals::default()
    };
    run.totals.actions = summary_actions(totals, time);
    run.files = summary_files(&summary["busiest_files"], time);
    run.source.commands = names(&summary["programs"]);
    run.prediction = summary_prediction(&summary["prediction"]);
}

fn names(list: &Value) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(|one| one["name"].as_str().map(|n| readable::name(n.as_bytes())))
        .collect()
}

fn summary_actions(totals: &Value, time: u64) -> Vec<ActionUse> {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let used = Action::ALL
        .into_iter()
        .filter(|a| totals["actions"][a.name()].is_object());
    used.map(|action| {
        let one = &totals["actions"][action.name()];
        ActionUse {
            action: action.name(),
            operations: number(&one["operations"]),
            failed: 0,
            bytes: match action {
                Action::Read => number(&totals["bytes_read"]),
                Action::Write => number(&totals["bytes_written"]),
                _ => 0,
            },
            time_ns: number(&one["time_ns"]),
            time_share: share(number(&one["time_ns"]), time),
        }
    })
    .collect()
}

fn summary_files(list: &Value, time: u64) -> Vec<FileUse> {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let list = list.as_array().into_iter().flatten();
    list.map(|one| {
        let name = readable::name(one["name"].as_str().unwrap_or_default().as_bytes());
        let totals = &one["totals"];
        FileUse {
            short: readable::last_part(&name).to_owned(),
            name,
            operations: number(&totals["operations"]),
            failed: number(&totals["failed"]),
            bytes_read: number(&totals["bytes_read"]),
            bytes_written: number(&totals["bytes_written"]),
            time_ns: number(&totals["time_ns"]),
            time_share: share(number(&totals["time_ns"]), time),
            reach: 0,
            read_times: None,
            processes: 0,
            reads: None,
            writes: None,
            heat: None,
        }
    })
    .collect()
}

fn summary_prediction(value: &Value) -> Option<Prediction> {
    let of = |key: &str| value[key].as_u64().unwrap_or(0);
    (of("operations") > 0).then(|| Prediction {
        from: "summary",
        all: Foresight {
            operations: of("operations"),
            right: of("right"),
            confident: of("confident"),
            confident_right: of("confident_right"),
            context_right: of("context_right"),
            transfers: of("transfers"),
            offset_right: of("offset_right"),
            right_share: maybe_share(of("right") as f64, of("operations")),
            context_share: maybe_share(of("context_right") as f64, of("operations")),
            offset_share: maybe_share(of("offset_right") as f64, of("transfers")),
            hit_ratio: value["hit_ratio"].as_f64().map(rounded),
        },
        ..Prediction::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_hidden_is_what_the_run_measured_and_most_comes_first() {
        let wait = |name: &str, with_ns: u64, without_ns: u64| json!({ "name": name, "method": "sieving", "with_ns": with_ns, "without_ns": without_ns });
        let list = json!([
            wait("/d/a: b", 500_000, 2_000_000),
            wait("/d/c\n", 900_000, 9_000_000),
            wait("/d/never-waited", 0, 0),
            { "name": "/d/not-measured", "method": "sieving", "with_ns": 5 },
        ]);
        let waits = waits(&list);
        let waits: Vec<_> = waits
            .iter()
            .map(|w| (w.name.as_str(), w.with_ns, w.without_ns, w.hidden_share))
            .collect();
        let wanted = [
            (r"/d/c\n", 900_000, 9_000_000, 0.9),
            ("/d/a: b", 500_000, 2_000_000, 0.75),
        ];
        assert_eq!(waits, wanted);
        assert!(self::waits(&Value::Null).is_empty());
    }

    #[test]
    fn a_sentence_of_a_run_is_made_harmless_and_not_shortened() {
        let long = format!("/d/\u{202e}x: {}", "because ".repeat(100));
        let mut run = nothing();
        add_summary(&mut run, &json!({ "decided": [long], "prefetch": {} }));
        let wanted = format!(r"/d/\u{{202e}}x: {}", "because ".repeat(100));
        assert_eq!(run.decided, [wanted]);
    }
}
