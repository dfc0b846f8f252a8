//! What is said at the end, or while the run goes on: the summary out of all that was counted.

use super::foretell::Foretelling;
use super::processes::Sums;
use super::summary::{self, Foretold, Named, Summary};
use super::{Manager, skim};
use presagio_arena::{Counter, ProcessEntry};
use presagio_core::Nanos;

impl Manager {
    /// Adds up what a process counted.
    pub(super) fn count(&mut self, entry: &ProcessEntry) {
        for counter in Counter::ALL {
            let sum = &mut self.counters[counter as usize];
            *sum = sum.saturating_add(entry.counter(counter));
        }
        self.turned_off += u64::from(entry.counter(Counter::TurnedOff) > 0);
    }

    /// What is known while the run goes on.
    pub(super) fn glimpse(&mut self) -> Summary {
        let ended = (self.counters, self.turned_off);
        let live: Vec<ProcessEntry> = self.arena.processes().collect();
        live.iter().for_each(|entry| self.count(entry));
        let trace = self.recorder.as_mut().map(|(name, recorder)| {
            recorder.settle();
            (name.clone(), recorder.records())
        });
        let summary = self.summary(0, trace, self.models.notes.clone());
        (self.counters, self.turned_off) = ended;
        summary
    }

    /// The run is over.
    pub(super) fn finish(&mut self) -> Summary {
        self.sweep();
        if self.advise {
            // What programs left that were killed with their files open.
            self.plan();
        }
        let left: Vec<ProcessEntry> = self.arena.processes().collect();
        // Exiting ones are as good as gone; and so is the one that we are in.
        let myself = std::process::id();
        let running = left
            .iter()
            .filter(|entry| !entry.exiting && entry.pid != myself);
        let running = running.count() as u64;
        left.iter().for_each(|entry| self.count(entry));
        self.hear_workers();
        self.processes.end_all(&mut self.models);
        self.models.save();
        self.keep_mind();
        self.models.tidy();
        let mut notes = std::mem::take(&mut self.models.notes);
        let trace = self.end_trace(&mut notes);
        let summary = self.summary(running, trace, notes);
        self.workers.stop();
        // Programs that go on without us have the kernel read ahead as usually again.
        self.arena.leave();
        summary
    }

    fn keep_mind(&mut self) {
        if self.processes.count() == 0 {
            return;
        }
        if let (Some(identity), Some(bytes)) = (&self.identity, self.mind.remember()) {
            self.models.write(identity, "mind", &bytes);
        }
    }

    fn summary(
        &self,
        still_running: u64,
        trace: Option<(String, u64)>,
        mut notes: Vec<String>,
    ) -> Summary {
        let sums = self.processes.sums();
        self.note_overload(&sums, &mut notes);
        if let Some(trouble) = self.foretelling.as_ref().and_then(Foretelling::trouble) {
            notes.push(format!("I/O nodes could not be told what comes: {trouble}"));
        }
        if still_running > 0 {
            let count = summary::counted_es(still_running, "process");
            notes.push(format!(
                "{count} still ran when the command ended: what came later is not counted"
            ));
        }
        notes.extend(self.note_passed_by());
        if sums.is_elsewhere_too && !self.is_of_ranks {
            let note = "ranks of this job ran on other nodes too, and nothing is known of them: put `presagio run` behind the launcher, as in `mpirun presagio run -- app`, for a summary of each node";
            notes.push(note.into());
        }
        let mut gain = self.files.forgotten_gain.clone();
        self.files.iter().for_each(|(_, file)| gain.add(&file.gain));
        Summary {
            elapsed: self.now(),
            job: self.job.clone(),
            processes: self.processes.count(),
            still_running,
            files: self.files.count_all(),
            contexts: self.contexts.len() as u64,
            totals: sums.totals,
            programs: programs(&sums),
            busiest: self.busiest(),
            judged: sums.judged,
            followed: self.mind.followed(),
            models_begun: self.models.begun,
            models_saved: self.models.saved,
            advised: self.advise,
            loads: self.loads.iter().map(|(r, l)| (*r, *l)).collect(),
            waits: self.mind.waits(),
            useful: gain.useful,
            wasted: gain.wasted(),
            backends: self.workers.summary(),
            foretold: self.foretold(),
            decided: match self.advise {
                true => self.mind.explain(),
                false => Vec::new(),
            },
            unseen: self.unseen(),
            notes,
            trace,
            manager_time: Nanos::ZERO,
        }
    }

    /// Why nothing was done for files that programs use past the page cache.
    fn note_passed_by(&self) -> Option<String> {
        let files = self.files.iter().filter(|_| self.advise);
        let mut passed_by = files.filter(|(_, file)| file.passed_by);
        let (_, first) = passed_by.next()?;
        let others = match passed_by.count() {
            0 => String::new(),
            more => format!(" and {}", summary::counted(more as u64, "other file")),
        };
        Some(format!(
            "nothing was loaded ahead for {}{others}: opened with O_DIRECT, so that reads pass by the page cache, where it would lie",
            first.path().display()
        ))
    }

    /// What was forwarded, and foretold of it.
    fn foretold(&self) -> Foretold {
        let forwarded = self.files.iter().filter(|(_, f)| f.forwarded.is_some());
        let told = self.foretelling.as_ref();
        Foretold {
            files: forwarded.count() as u64,
            requests: told.map_or(0, |told| told.told),
            came: told.map_or(0, |told| told.came),
            given_up: told.map_or(0, |told| told.given_up),
        }
    }

    fn end_trace(&mut self, notes: &mut Vec<String>) -> Option<(String, u64)> {
        let (name, recorder) = self.recorder.take()?;
        match recorder.finish() {
            Ok(records) => Some((name, records)),
            Err(error) => {
                notes.push(format!(
                    "the trace {name} is cut short: {error}; choose another place for it"
                ));
                None
            }
        }
    }

    fn note_overload(&self, sums: &Sums, notes: &mut Vec<String>) {
        if self.unlearned > 0 {
            let (all, unlearned) = (sums.totals.all(), self.unlearned);
            notes.push(format!(
                "more was reported than the manager could think about: models saw {} of {all} operations, counts and trace have all",
                all.saturating_sub(unlearned + self.skimmed)
            ));
        }
        if self.skimmed > 0 {
            let (count, apart) = (self.skimmed, Nanos(skim::CLOSE_NS));
            notes.push(format!(
                "not modelled: {count} operations that came less than {apart} apart, faster than any hint could help"
            ));
        }
        let refused = self.workers.refused;
        if refused > 0 {
            let note = format!("{refused} hints were not given because too many waited");
            notes.push(note);
        }
    }

    /// What the library could not see, as far as it noticed.
    fn unseen(&self) -> Vec<String> {
        let of = |counter: Counter| self.counters[counter as usize];
        let losses = self.arena.losses();
        let mapped = of(Counter::MappedBytes);
        let lost = losses.dropped.max(self.lost);
        let cases = [
            (
                of(Counter::IoUring),
                "calls of io_uring: what went through it",
            ),
            (
                self.rings.io_uring,
                "processes that have rings of io_uring: what went through them",
            ),
            (
                self.rings.aio,
                "processes that use the kernel's asynchronous I/O (libaio, io_submit): what went through it",
            ),
            (
                of(Counter::RawCalls),
                "reads and writes that the program made as raw system calls",
            ),
            (of(Counter::Interrupted), "operations of signal handlers"),
            (
                lost,
                "operations that were lost because the manager was too slow (--trace makes programs wait for it)",
            ),
            (
                of(Counter::LostOperations),
                "operations of threads that found no place to report to",
            ),
            (
                of(Counter::LostFiles),
                "files that were open beyond what can be followed at a time",
            ),
            (
                losses.no_process,
                "processes beyond what can be told apart at a time",
            ),
            (
                losses.elsewhere,
                "processes in another PID namespace (a container): what they did",
            ),
            (
                losses.nonsense,
                "records that made no sense: a program overwrote them",
            ),
            (
                self.turned_off,
                "processes in which the library turned itself off, because they forbid themselves system calls",
            ),
            (
                of(Counter::StaticPrograms),
                "programs that are linked statically, so that no library can be preloaded: what they did",
            ),
            (
                of(Counter::PrivilegedPrograms),
                "programs that run as another user (set-user-ID), for whom no library is preloaded: what they did",
            ),
            (
                of(Counter::BarePrograms),
                "programs that were started without the variables of presagio in their environment (env -i): what they did",
            ),
        ];
        let seen = cases.into_iter().filter(|(count, _)| *count > 0);
        let seen = seen.map(|(count, what)| format!("{count} {what}"));
        let mapped = (mapped > 0).then(|| summary::bytes(mapped));
        let mapped = mapped.map(|bytes| {
            format!("{bytes} of files that were mapped into memory: page faults do their I/O")
        });
        seen.chain(mapped).collect()
    }

    fn busiest(&self) -> Vec<Named> {
        let files = self.files.iter().map(|(_, file)| Named {
            name: file.path().display().to_string(),
            processes: 0,
            totals: file.totals,
        });
        let mut files = busiest_first(files.collect());
        files.truncate(10);
        files
    }
}

fn programs(sums: &Sums) -> Vec<Named> {
    let programs = sums.programs.iter().map(|(name, p)| Named {
        name: name.clone(),
        processes: p.processes,
        totals: p.totals,
    });
    busiest_first(programs.collect())
}

pub(super) fn busiest_first(mut list: Vec<Named>) -> Vec<Named> {
    list.sort_by_key(|n| std::cmp::Reverse((n.totals.time(), n.totals.read + n.totals.written)));
    list
}
