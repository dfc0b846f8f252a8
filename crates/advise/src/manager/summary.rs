//! What was seen, predicted, done and gained: for a person at the end of a run, and for machines as JSON.
//!
//! Names of files and programs are kept as they are, and so machines get them. They could be anything; in the text for a
//! person every line is made harmless as it is written.

use super::Judged;
use crate::plan::Reason;
use crate::strategy::{Followed, TOO_FEW};
use presagio_core::{Action, Nanos};
use presagio_page::readable;
use serde_json::{Value, json};
use std::fmt::Write;

/// What was done to a file, or by a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Operations, by [`Action`].
    pub operations: [u64; Action::ALL.len()],
    /// How long they took, in nanoseconds.
    pub time_ns: [u64; Action::ALL.len()],
    /// Bytes that were read.
    pub read: u64,
    /// Bytes that were written.
    pub written: u64,
    /// Operations that failed.
    pub failed: u64,
}

impl Totals {
    /// Counts an operation that took so long; its result is the bytes that it moved, or a negated error number.
    pub fn count(&mut self, action: Action, duration_ns: u64, result: i64) {
        let at = action as usize;
        self.operations[at] += 1;
        self.time_ns[at] = self.time_ns[at].saturating_add(duration_ns);
        let moved = u64::try_from(result);
        self.failed += u64::from(moved.is_err());
        match action {
            Action::Read => self.read += moved.unwrap_or(0),
            Action::Write => self.written += moved.unwrap_or(0),
            _ => {}
        }
    }

    /// Adds others.
    pub fn add(&mut self, other: &Totals) {
        for at in 0..Action::ALL.len() {
            self.operations[at] += other.operations[at];
            self.time_ns[at] = self.time_ns[at].saturating_add(other.time_ns[at]);
        }
        self.read += other.read;
        self.written += other.written;
        self.failed += other.failed;
    }

    /// All operations.
    pub fn all(&self) -> u64 {
        self.operations.iter().sum()
    }

    /// The time in all operations.
    pub fn time(&self) -> Nanos {
        Nanos(self.time_ns.iter().fold(0, |sum, t| sum.saturating_add(*t)))
    }

    fn of(&self, action: Action) -> (u64, Nanos) {
        (
            self.operations[action as usize],
            Nanos(self.time_ns[action as usize]),
        )
    }

    fn json(&self) -> Value {
        let actions = Action::ALL.into_iter().filter(|a| self.of(*a).0 > 0);
        let actions = actions.map(|action| {
            let (operations, time) = self.of(action);
            let value = json!({ "operations": operations, "time_ns": time.0 });
            (action.name().to_owned(), value)
        });
        json!({
            "operations": self.all(),
            "bytes_read": self.read,
            "bytes_written": self.written,
            "time_ns": self.time().0,
            "failed": self.failed,
            "actions": Value::Object(actions.collect()),
        })
    }
}

/// What hints of one reason did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loads {
    /// How many.
    pub hints: u64,
    /// Bytes that were asked for.
    pub asked: u64,
    /// Bytes of them that were in memory before.
    pub already: u64,
    /// Bytes that came into memory.
    pub loaded: u64,
}

/// What was foretold to I/O nodes of the files that they serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Foretold {
    /// Files that were forwarded.
    pub files: u64,
    /// Requests that were foretold.
    pub requests: u64,
    /// Those of them that came.
    pub came: u64,
    /// How often it was given up for a while, because too little came.
    pub given_up: u64,
}

/// A file or program and what was done.
#[derive(Clone, Debug)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// Processes, of a program.
    pub processes: u64,
    /// What was done.
    pub totals: Totals,
}

/// What a read of a file waited, on average, where both were measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waited {
    /// The file.
    pub name: String,
    /// What was done for it.
    pub method: String,
    /// With that, in nanoseconds.
    pub with_ns: u64,
    /// With nothing.
    pub without_ns: u64,
    /// Reads that the first figure comes from.
    pub with_reads: u64,
    /// And the second.
    pub without_reads: u64,
}

/// See the module's header.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// From the start of the manager to its end.
    pub elapsed: Nanos,
    /// The job, where there is one.
    pub job: Option<String>,
    /// Processes that were seen.
    pub processes: u64,
    /// Those that still ran at the end.
    pub still_running: u64,
    /// Files that were used.
    pub files: u64,
    /// Call stacks that were told apart.
    pub contexts: u64,
    /// What was done in all.
    pub totals: Totals,
    /// By program, the busiest first.
    pub programs: Vec<Named>,
    /// The busiest files.
    pub busiest: Vec<Named>,
    /// How well it was foreseen.
    pub judged: Judged,
    /// What recordings of earlier reads told of those that came.
    pub followed: Followed,
    /// Processes that began with a model of an earlier run.
    pub models_begun: u64,
    /// Models that were written.
    pub models_saved: u64,
    /// Whether hints were given at all.
    pub advised: bool,
    /// What hints did, by reason.
    pub loads: Vec<(Reason, Loads)>,
    /// What reads of files waited with what was done for them, and without it.
    pub waits: Vec<Waited>,
    /// Prefetched bytes that were then read, and that were not.
    pub useful: u64,
    /// See there.
    pub wasted: u64,
    /// What the back-ends did, a line each.
    pub backends: Vec<String>,
    /// What was foretold to I/O nodes.
    pub foretold: Foretold,
    /// What was decided and why.
    pub decided: Vec<String>,
    /// What was not seen.
    pub unseen: Vec<String>,
    /// What else one should know.
    pub notes: Vec<String>,
    /// The trace, and how many records it has.
    pub trace: Option<(String, u64)>,
    /// Processor time that the manager took.
    pub manager_time: Nanos,
}

/// How a reason is called.
pub(super) fn reason_name(reason: Reason) -> &'static str {
    match reason {
        Reason::Exact => "exact",
        Reason::Sieving => "sieving",
        Reason::Configured => "configured",
        Reason::Random => "random",
        Reason::Written => "written",
    }
}

/// Files and programs that are shown to a person.
const SHOWN: usize = 3;
/// Decisions that are shown to a person.
const DECIDED_SHOWN: usize = 6;

impl Summary {
    /// For a person.
    pub fn text(&self) -> String {
        let mut out = String::new();
        self.write_head(&mut out);
        self.write_totals(&mut out);
        self.write_prediction(&mut out);
        self.write_loads(&mut out);
        self.write_foretold(&mut out);
        self.write_decided(&mut out);
        self.unseen
            .iter()
            .for_each(|line| row(&mut out, "not seen", line));
        self.notes
            .iter()
            .for_each(|line| row(&mut out, "note", line));
        if let Some((path, records)) = &self.trace {
            let line = format!("{path}, {}", counted(*records, "record"));
            row(&mut out, "trace", &line);
        }
        out
    }

    /// Files that were hardly read are many and say nothing: they are counted.
    fn write_decided(&self, out: &mut String) {
        let (few, told): (Vec<&String>, Vec<&String>) =
            self.decided.iter().partition(|line| line.contains(TOO_FEW));
        let told = told.into_iter().take(DECIDED_SHOWN);
        told.for_each(|line| row(out, "decided", line));
        if !few.is_empty() {
            let line = format!("{TOO_FEW}, for {}", counted(few.len() as u64, "file"));
            row(out, "decided", &line);
        }
    }

    fn write_head(&self, out: &mut String) {
        let job = self.job.as_ref().map(|job| readable::sentence(job));
        let job = job.map(|job| format!("job {job}, "));
        let _ = writeln!(
            out,
            "presagio: {}{}, {}, {} on {}",
            job.unwrap_or_default(),
            self.elapsed,
            counted_es(self.processes, "process"),
            counted(self.totals.all(), "operation"),
            counted(self.files, "file"),
        );
    }

    fn write_totals(&self, out: &mut String) {
        let totals = &self.totals;
        let moved = [
            ("read", Action::Read, totals.read),
            ("written", Action::Write, totals.written),
        ];
        for (name, action, moved) in moved {
            let (operations, time) = totals.of(action);
            if operations > 0 {
                let line = format!(
                    "{} in {}, {time}",
                    bytes(moved),
                    counted(operations, "operation")
                );
                row(out, name, &line);
            }
        }
        if totals.all() > 0 {
            let moving = totals.of(Action::Read).1 + totals.of(Action::Write).1;
            let line = format!(
                "{} in all, {} of it not reading or writing",
                totals.time(),
                totals.time() - moving
            );
            row(out, "I/O time", &line);
        }
        for (title, list) in [("programs", &self.programs), ("files", &self.busiest)] {
            for (number, named) in list.iter().take(SHOWN).enumerate() {
                row(out, if number == 0 { title } else { "" }, &brief(named));
            }
        }
    }

    fn write_prediction(&self, out: &mut String) {
        let judged = &self.judged;
        let percent = |part: u64, whole: u64| share(part as f64, whole);
        let mut lines = Vec::new();
        if self.followed.told > 0 {
            let Followed { reads, told, right } = self.followed;
            lines.push(format!(
                "{} of the reads, after those of an earlier run or file, and {} of those came exactly so",
                percent(told, reads),
                percent(right, told),
            ));
        }
        if judged.operations > 0 {
            lines.push(format!(
                "{} of the operations, by the model, and {} of those came exactly so (offset {}, size {}, hit ratio {})",
                percent(judged.confident, judged.operations),
                percent(judged.confident_right, judged.confident),
                percent(judged.offset_right, judged.transfers),
                percent(judged.size_right, judged.transfers),
                share(judged.hit, judged.transfers),
            ));
        }
        if self.models_begun > 0 {
            lines.push(format!(
                "{} began with what earlier runs taught",
                counted_es(self.models_begun, "process")
            ));
        }
        for (number, line) in lines.iter().enumerate() {
            row(out, if number == 0 { "predicted" } else { "" }, line);
        }
    }

    fn write_loads(&self, out: &mut String) {
        if !self.advised {
            return;
        }
        let loaded = self.useful + self.wasted;
        let line = match loaded {
            0 => "nothing".to_owned(),
            _ => format!(
                "{}: {} ({}) were then read, {} were not",
                bytes(loaded),
                bytes(self.useful),
                share(self.useful as f64, loaded),
                bytes(self.wasted)
            ),
        };
        row(out, "prefetched", &line);
        self.backends.iter().for_each(|line| row(out, "", line));
    }

    fn write_foretold(&self, out: &mut String) {
        let Foretold {
            files,
            requests,
            came,
            given_up,
        } = self.foretold;
        if files == 0 {
            return;
        }
        let told = match requests {
            0 => "nothing was foretold to them".to_owned(),
            _ => format!(
                "{} foretold to them, {} of these came",
                counted(requests, "request"),
                share(came as f64, requests)
            ),
        };
        let given_up = match given_up {
            0 => String::new(),
            _ => format!(", given up {} for a while", counted(given_up, "time")),
        };
        let line = format!("{} at I/O nodes; {told}{given_up}", counted(files, "file"));
        row(out, "forwarded", &line);
    }

    /// For machines.
    pub fn json(&self) -> Value {
        let named = |list: &[Named]| -> Vec<Value> {
            let value = |n: &Named| json!({ "name": n.name, "processes": n.processes, "totals": n.totals.json() });
            list.iter().map(value).collect()
        };
        let waited = |w: &Waited| {
            json!({
                "name": w.name, "method": w.method,
                "with_ns": w.with_ns, "without_ns": w.without_ns,
                "with_reads": w.with_reads, "without_reads": w.without_reads,
            })
        };
        let waits: Vec<Value> = self.waits.iter().map(waited).collect();
        let judged = &self.judged;
        let loads = self.loads.iter().map(|(reason, loads)| {
            let value = json!({
                "hints": loads.hints, "bytes_asked": loads.asked,
                "bytes_already": loads.already, "bytes_loaded": loads.loaded,
            });
            (reason_name(*reason).to_owned(), value)
        });
        json!({
            "elapsed_ns": self.elapsed.0,
            "job": self.job,
            "processes": self.processes,
            "still_running": self.still_running,
            "files": self.files,
            "contexts": self.contexts,
            "totals": self.totals.json(),
            "programs": named(&self.programs),
            "busiest_files": named(&self.busiest),
            "prediction": {
                "operations": judged.operations,
                "confident": judged.confident,
                "confident_right": judged.confident_right,
                "right": judged.right,
                "context_right": judged.context_right,
                "transfers": judged.transfers,
                "offset_right": judged.offset_right,
                "size_right": judged.size_right,
                "hit_ratio": ratio(judged.hit, judged.transfers),
                "models_begun": self.models_begun,
                "models_saved": self.models_saved,
                "recorded": {
                    "reads": self.followed.reads,
                    "told": self.followed.told,
                    "right": self.followed.right,
                },
            },
            "prefetch": {
                "advised": self.advised,
                "bytes_useful": self.useful,
                "bytes_wasted": self.wasted,
                "by_reason": Value::Object(loads.collect()),
                "waits": waits,
                "backends": self.backends,
            },
            "forwarded": {
                "files": self.foretold.files,
                "foretold": self.foretold.requests,
                "came": self.foretold.came,
                "given_up": self.foretold.given_up,
            },
            "decided": self.decided,
            "not_seen": self.unseen,
            "notes": self.notes,
            "trace": self.trace.as_ref().map(|(path, records)| json!({ "path": path, "records": records })),
            "manager_cpu_ns": self.manager_time.0,
        })
    }
}

fn row(out: &mut String, title: &str, line: &str) {
    let line = readable::sentence(line);
    let _ = writeln!(out, "  {title:<10}  {line}");
}

fn brief(named: &Named) -> String {
    let processes = match named.processes {
        0 | 1 => String::new(),
        n => format!(" ({n} processes)"),
    };
    let totals = &named.totals;
    let name = &named.name;
    let (read, written) = (bytes(totals.read), bytes(totals.written));
    format!(
        "{name}{processes}: {read} read, {written} written, {}",
        totals.time()
    )
}

fn ratio(part: f64, whole: u64) -> f64 {
    part / whole.max(1) as f64
}

fn share(part: f64, whole: u64) -> String {
    match whole {
        0 => "-".into(),
        _ => format!("{:.1} %", 100.0 * ratio(part, whole)),
    }
}

/// Bytes with the unit that a person would pick.
pub(super) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = None;
    for name in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = Some(name);
    }
    match unit {
        None => counted(bytes, "byte"),
        Some(unit) => format!("{value:.1} {unit}"),
    }
}

/// `1 file`, `64 files`.
pub(super) fn counted(count: u64, thing: &str) -> String {
    match count {
        1 => format!("1 {thing}"),
        _ => format!("{count} {thing}s"),
    }
}

/// `1 process`, `64 processes`.
pub(super) fn counted_es(count: u64, thing: &str) -> String {
    match count {
        1 => format!("1 {thing}"),
        _ => format!("{count} {thing}es"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Summary {
        let mut totals = Totals::default();
        totals.operations[Action::Read as usize] = 10;
        totals.time_ns[Action::Read as usize] = 5_000_000;
        totals.read = 3 << 20;
        Summary {
            elapsed: Nanos::from_millis(1500),
            processes: 1,
            files: 2,
            totals,
            judged: Judged {
                operations: 10,
                confident: 8,
                confident_right: 6,
                transfers: 10,
                ..Judged::default()
            },
            followed: Followed {
                reads: 10,
                told: 9,
                right: 8,
            },
            advised: true,
            useful: 1 << 20,
            wasted: 1 << 20,
            unseen: vec!["io_uring".into()],
            ..Summary::default()
        }
    }

    #[test]
    fn a_person_reads_what_was_seen_foreseen_and_gained() {
        let text = example().text();
        for part in [
            "1.5 s, 1 process, 10 operations on 2 files",
            "3.0 MiB in 10 operations, 5.0 ms",
            "predicted   90.0 % of the reads, after those of an earlier run or file, and 88.9 % of those came exactly so",
            "80.0 % of the operations, by the model, and 75.0 % of those",
            "2.0 MiB: 1.0 MiB (50.0 %) were then read, 1.0 MiB were not",
            "not seen    io_uring",
        ] {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
    }

    #[test]
    fn files_that_were_hardly_read_are_counted_in_one_line() {
        let few = |name: &str| format!("{name}: {TOO_FEW}.");
        let summary = Summary {
            decided: vec![few("/a"), "/b: exact loads".into(), few("/c")],
            ..example()
        };
        let text = summary.text();
        assert!(text.contains("decided     /b: exact loads\n"), "{text}");
        assert!(
            text.contains("too few reads to tell, for 2 files\n"),
            "{text}"
        );
        assert!(!text.contains("/a"), "{text}");
    }

    #[test]
    fn no_name_tells_a_terminal_anything() {
        let name = "a\u{1b}[2J\n\u{202e}b";
        let named = Named {
            name: name.into(),
            processes: 1,
            totals: Totals::default(),
        };
        let summary = Summary {
            job: Some(name.into()),
            programs: vec![named.clone()],
            busiest: vec![named],
            decided: vec![format!("{name}: {}", "long ".repeat(200))],
            notes: vec![name.into()],
            trace: Some((name.into(), 1)),
            ..example()
        };
        let text = summary.text();
        let harmless = |c: char| c == '\n' || !c.is_control() && c != '\u{202e}';
        assert!(text.chars().all(harmless), "{text:?}");
        let shown = r"a\u{1b}[2J\n\u{202e}b";
        assert_eq!(text.matches(shown).count(), 6, "{text}");
        assert!(text.contains(&"long ".repeat(200)), "{text}");
        assert_eq!(summary.json()["notes"][0], name);
    }

    #[test]
    fn machines_read_the_same_numbers() {
        let json = example().json();
        assert_eq!(json["totals"]["bytes_read"], 3 << 20);
        assert_eq!(json["totals"]["actions"]["read"]["operations"], 10);
        assert_eq!(json["prefetch"]["bytes_useful"], 1 << 20);
        assert_eq!(json["not_seen"][0], "io_uring");
    }

    #[test]
    fn bytes_have_the_unit_that_a_person_would_pick() {
        let shown = [1, 1023, 1024, 3 << 30].map(bytes);
        assert_eq!(shown, ["1 byte", "1023 bytes", "1.0 KiB", "3.0 GiB"]);
    }
}
