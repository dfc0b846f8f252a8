//! What a process does next: the requests of a pattern, computed from their number, or those of a recording.

use crate::Scenario;
use crate::random::{Random, Shuffled};
use crate::scenario::{App, Files, Pattern};
use presagio_core::{Nanos, Op};

/// A request of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub file: u32,
    pub op: Op,
    pub offset: u64,
    pub len: u64,
}

/// One operation of a recorded process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What passed between the end of the operation before and this one.
    pub think: Nanos,
    /// The file, as a number below [`Replay::files`].
    pub file: u32,
    /// Read or write.
    pub op: Op,
    /// Where.
    pub offset: u64,
    /// How much; operations of 0 bytes are left out.
    pub len: u64,
}

/// A recording, by process. It is replayed as it was: each process waits for its answers, and thinks as long as it did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// How many files there are.
    pub files: u32,
    /// The operations of each process.
    pub processes: Vec<Vec<Step>>,
}

impl Scenario {
    /// What each process of each application does, for whoever does it for real; none where a recording is to be
    /// replayed, which has it already.
    pub fn operations(&self) -> Vec<Option<Replay>> {
        let works = Work::all(self, Vec::new());
        let listed = works.iter().zip(&self.apps).map(|(work, app)| {
            let is_recorded = app.trace.is_some();
            (!is_recorded).then(|| work.listed())
        });
        listed.collect()
    }
}

/// An application, ready to be asked for the requests of its processes.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub processes: u32,
    pub depth: u32,
    pub start: u64,
    /// The application that has to be done first.
    pub after: Option<usize>,
    /// How many of its processes are not done.
    pub running: u32,
    pub stonewall: u64,
    requests: u64,
    steps: u64,
    burst: u64,
    think: u64,
    first_file: u32,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Pattern {
        files: Files,
        pattern: Pattern,
        op: Op,
        request: u64,
        order: Shuffled,
    },
    Replay(Replay),
}

impl Work {
    /// The work of every application, their files numbered one after the other.
    pub(crate) fn all(scenario: &Scenario, mut replays: Vec<Option<Replay>>) -> Vec<Work> {
        replays.resize(scenario.apps.len(), None);
        let mut first_file = 0;
        let mut works = Vec::new();
        for (app, replay) in scenario.apps.iter().zip(replays) {
            let mut work = Work::new(app, replay, first_file, scenario.seed);
            let named = |name: &String| scenario.apps.iter().position(|app| app.name == *name);
            work.after = app.after.as_ref().and_then(named);
            first_file += work.files();
            works.push(work);
        }
        works
    }

    fn new(app: &App, replay: Option<Replay>, first_file: u32, seed: u64) -> Work {
        let requests = app.requests();
        let shared = requests * u64::from(app.processes);
        let order = Random::new(seed, 2 + u64::from(first_file)).next();
        let processes = match &replay {
            Some(replay) => replay.processes.len() as u32,
            None => app.processes,
        };
        Work {
            processes,
            running: processes,
            after: None,
            depth: if replay.is_some() { 1 } else { app.depth },
            start: app.start.0,
            stonewall: app.stonewall.0,
            requests,
            steps: u64::from(app.steps),
            burst: app.burst,
            think: app.think.0,
            first_file,
            kind: match replay {
                Some(replay) => Kind::Replay(replay),
                None => Kind::Pattern {
                    files: app.files,
                    pattern: app.pattern,
                    op: app.op,
                    request: app.request.0,
                    order: Shuffled::new(shared, order),
                },
            },
        }
    }

    /// How many files it has.
    pub(crate) fn files(&self) -> u32 {
        match &self.kind {
            Kind::Pattern {
                files: Files::Shared,
                ..
            } => 1,
            Kind::Pattern { .. } => self.processes,
            Kind::Replay(replay) => replay.files,
        }
    }

    /// The files that a process may touch.
    pub(crate) fn files_of(&self, rank: u32) -> std::ops::Range<u32> {
        match &self.kind {
            Kind::Pattern {
                files: Files::PerProcess,
                ..
            } => self.first_file + rank..self.first_file + rank + 1,
            _ => self.first_file..self.first_file + self.files(),
        }
    }

    /// How many requests a process makes in all.
    pub(crate) fn total(&self, rank: u32) -> u64 {
        match &self.kind {
            Kind::Pattern { .. } => self.requests * self.steps,
            Kind::Replay(replay) => replay.processes[rank as usize].len() as u64,
        }
    }

    /// How long a process thinks before its request of that number.
    #[inline]
    pub(crate) fn think(&self, rank: u32, number: u64) -> u64 {
        match &self.kind {
            Kind::Pattern { .. } if self.think == 0 || number == 0 => 0,
            Kind::Pattern { .. } => {
                let in_step = number % self.requests;
                let rests = in_step == 0 || (self.burst > 0 && in_step.is_multiple_of(self.burst));
                if rests { self.think } else { 0 }
            }
            Kind::Replay(replay) => replay.processes[rank as usize][number as usize].think.0,
        }
    }

    /// The request of that number.
    #[inline]
    pub(crate) fn operation(&self, rank: u32, number: u64) -> Operation {
        match &self.kind {
            Kind::Pattern {
                files,
                pattern,
                op,
                request,
                order,
            } => {
                let in_step = match self.steps {
                    1 => number,
                    _ => number % self.requests,
                };
                let before = u64::from(rank) * self.requests;
                let shared = *files == Files::Shared;
                let block = match pattern {
                    Pattern::Contiguous if shared => before + in_step,
                    Pattern::Strided => in_step * u64::from(self.processes) + u64::from(rank),
                    Pattern::Random if shared => order.at(before + in_step),
                    Pattern::Contiguous => in_step,
                    Pattern::Random => Shuffled::new(self.requests, u64::from(rank)).at(in_step),
                };
                Operation {
                    file: self.first_file + if shared { 0 } else { rank },
                    op: *op,
                    offset: block * request,
                    len: *request,
                }
            }
            Kind::Replay(replay) => {
                let step = replay.processes[rank as usize][number as usize];
                Operation {
                    file: self.first_file + step.file,
                    op: step.op,
                    offset: step.offset,
                    len: step.len,
                }
            }
        }
    }

    /// All of it as a list, its files numbered from 0.
    fn listed(&self) -> Replay {
        let step = |rank: u32, number: u64| {
            let operation = self.operation(rank, number);
            Step {
                think: Nanos(self.think(rank, number)),
                file: operation.file - self.first_file,
                op: operation.op,
                offset: operation.offset,
                len: operation.len,
            }
        };
        let process = |rank: u32| {
            (0..self.total(rank))
                .map(|number| step(rank, number))
                .collect()
        };
        Replay {
            files: self.files(),
            processes: (0..self.processes).map(process).collect(),
        }
    }

    /// Enters how large each of its files becomes.
    pub(crate) fn sizes(&self, sizes: &mut [u64]) {
        match &self.kind {
            Kind::Pattern { files, request, .. } => {
                let sharers = match files {
                    Files::Shared => u64::from(self.processes),
                    Files::PerProcess => 1,
                };
                let from = self.first_file as usize;
                sizes[from..from + self.files() as usize].fill(self.requests * request * sharers);
            }
            Kind::Replay(replay) => {
                for step in replay.processes.iter().flatten() {
                    let size = &mut sizes[(self.first_file + step.file) as usize];
                    *size = (*size).max(step.offset.saturating_add(step.len));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bytes;
    use std::collections::HashSet;

    fn app(files: Files, pattern: Pattern) -> App {
        App {
            processes: 6,
            files,
            pattern,
            request: Bytes(10),
            bytes: Bytes(70),
            ..App::default()
        }
    }

    #[test]
    fn every_pattern_touches_every_place_once_in_each_time_step() {
        for files in [Files::Shared, Files::PerProcess] {
            for pattern in [Pattern::Contiguous, Pattern::Strided, Pattern::Random] {
                if files == Files::PerProcess && pattern == Pattern::Strided {
                    continue;
                }
                let work = Work::new(&app(files, pattern), None, 3, 1);
                let all = (0..6).flat_map(|rank| (0..7).map(move |number| (rank, number)));
                let places: HashSet<(u32, u64)> = all
                    .map(|(rank, number)| work.operation(rank, number))
                    .map(|o| (o.file, o.offset))
                    .collect();
                assert_eq!(places.len(), 42, "{files:?} {pattern:?}");
                let most = if files == Files::Shared { 420 } else { 70 };
                assert!(places.iter().all(|(file, at)| *file >= 3 && *at < most));
            }
        }
    }

    #[test]
    fn a_listed_workload_replays_as_the_pattern_it_lists() {
        use crate::{Bytes, Files, Pattern, Simulation};
        for pattern in [Pattern::Contiguous, Pattern::Strided, Pattern::Random] {
            let mut scenario = Scenario {
                apps: vec![
                    app(Files::Shared, pattern),
                    app(Files::PerProcess, Pattern::Random),
                ],
                ..Scenario::default()
            };
            scenario.apps[0].request = Bytes(4096);
            scenario.apps[0].bytes = Bytes(40960);
            scenario.apps[0].burst = 3;
            scenario.apps[0].think = crate::Span(1000);
            let plain = Simulation::new(&scenario).run().expect("it runs");
            let mut listed = Simulation::new(&scenario);
            for (app, replay) in scenario.operations().into_iter().enumerate() {
                listed = listed.replaying(app, replay.expect("a pattern"));
            }
            assert_eq!(listed.run().expect("it runs").makespan, plain.makespan);
        }
    }

    #[test]
    fn strided_processes_take_turns() {
        let work = Work::new(&app(Files::Shared, Pattern::Strided), None, 0, 1);
        assert_eq!(work.operation(2, 0).offset, 20);
        assert_eq!(work.operation(2, 1).offset, 80);
    }

    #[test]
    fn a_process_thinks_between_bursts_and_time_steps() {
        let bursts = App {
            burst: 3,
            think: crate::Span(5),
            steps: 2,
            ..app(Files::Shared, Pattern::Contiguous)
        };
        let work = Work::new(&bursts, None, 0, 1);
        let rests: Vec<u64> = (0..work.total(0))
            .filter(|n| work.think(0, *n) > 0)
            .collect();
        assert_eq!(rests, [3, 6, 7, 10, 13]);
    }
}
