//! `policy = "adaptive"`: each scheduler learns while it runs which arm suits what arrives; with `council = true` the schedulers
//! of a level decide together. The code that learns is that of `presagio ionode` and `presagio council` (`presagio-tune`); here
//! it sits on the seam for whoever steers.
//!
//! What was learned outlives a run in a [`Memory`], as it outlives a job on a real node.

use crate::report::{Decided, Verdict};
use crate::scenario::{Level, PolicyChoice, Scenario, Scheduling};
use crate::steering::{Change, Place, Seen, Steering};
use crate::{Failed, ScenarioError};
use presagio_core::{Nanos, Request};
use presagio_pattern::{KnowledgeBase, Pattern, Recorder, Settings};
use presagio_tune::{
    Alone, Announcement, Arm, Council, CouncilSettings, Detector, NodeId, Observation, Tuner,
    TunerSettings, Watch,
};
use std::collections::{BTreeMap, BTreeSet};

/// How often is decided where the scenario does not say it.
const PERIOD: Nanos = Nanos::from_millis(100);

/// An arm that came into force in this share of a period counts for all of it.
const LATE: u64 = 20;

/// What schedulers have learned, from one run to the next.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    alone: BTreeMap<Place, Alone>,
    councils: BTreeMap<Level, Council>,
    /// When the next run begins, for councils, whose rounds go on.
    begin: Nanos,
}

impl Memory {
    /// The tuners: one of each scheduler, or one of each council.
    pub fn tuners(&self) -> impl Iterator<Item = &Tuner> {
        let councils = self.councils.values().map(Council::tuner);
        councils.chain(self.alone.values().map(Alone::tuner))
    }
}

/// See the module's header.
pub(crate) struct Adaptive<'a, 'm> {
    scenario: &'a Scenario,
    desks: BTreeMap<Place, DeskState>,
    memory: &'m mut Memory,
    begin: Nanos,
    period: Nanos,
    queues: u32,
    watching: Option<&'a mut dyn Steering>,
    decisions: Vec<Decided>,
}

/// What is known of a scheduler.
struct DeskState {
    watch: Watch,
    /// Makes patterns, where those are contexts.
    recorder: Option<Recorder>,
    /// Applications that asked for something in the period.
    apps: BTreeSet<u32>,
    in_force: Arm,
    /// What was in force in the whole period, if it was one.
    realised: Option<Arm>,
}

impl<'a, 'm> Adaptive<'a, 'm> {
    /// None where no policy is adaptive.
    pub(crate) fn new(
        scenario: &'a Scenario,
        detector: &Detector,
        memory: &'m mut Memory,
    ) -> Result<Option<Adaptive<'a, 'm>>, Failed> {
        let levels = [
            (
                Level::IoNodes,
                &scenario.ionodes.scheduler,
                scenario.ionodes.count,
            ),
            (
                Level::Servers,
                &scenario.servers.scheduler,
                scenario.servers.count,
            ),
        ];
        let adaptive = levels
            .into_iter()
            .filter(|(_, scheduling, _)| scheduling.policy == PolicyChoice::Adaptive);
        let adaptive: Vec<_> = adaptive.collect();
        if adaptive.is_empty() {
            return Ok(None);
        }
        let period = scenario.period_of(PolicyChoice::Adaptive).unwrap_or(PERIOD);
        let begin = memory.begin;
        let mut desks = BTreeMap::new();
        for (level, scheduling, count) in adaptive {
            for place in (0..count).map(|number| place(level, number)) {
                memory.prepare(place, scheduling, detector, period);
                desks.insert(place, DeskState::new(scheduling));
            }
        }
        Ok(Some(Adaptive {
            scenario,
            desks,
            memory,
            begin,
            period,
            queues: scenario.servers.count.max(scenario.apps.len() as u32),
            watching: None,
            decisions: Vec::new(),
        }))
    }

    /// Lets someone look on, who must not want to decide too.
    pub(crate) fn watched_by(&mut self, who: Option<&'a mut dyn Steering>) -> Result<(), Failed> {
        if who.as_ref().is_some_and(|who| who.period() < Nanos::MAX) {
            return Err(Failed::Scenario(ScenarioError {
                line: None,
                field: Some("scheduler.policy".to_owned()),
                reason: "it is adaptive, and someone else steers the run: only one can".to_owned(),
            }));
        }
        self.watching = who;
        Ok(())
    }

    /// What was decided; the next run with this memory begins after this one.
    pub(crate) fn end(self, makespan: Nanos) -> Vec<Decided> {
        self.memory.begin = self.begin + makespan + self.period;
        self.decisions
    }

    fn scheduling(&self, place: Place) -> &'a Scheduling {
        match place.level() {
            Level::IoNodes => &self.scenario.ionodes.scheduler,
            Level::Servers => &self.scenario.servers.scheduler,
        }
    }

    /// From the node's announcement to the decision received.
    fn delay(&self) -> Nanos {
        let network = &self.scenario.network;
        Nanos(2 * network.latency.0 + network.jitter.0)
    }

    fn observe(&mut self, seen: &Seen) -> Option<Observation> {
        let scenario = self.scenario;
        let desk = self.desks.get_mut(&seen.place)?;
        let apps = std::mem::take(&mut desk.apps);
        let all = apps
            .iter()
            .filter_map(|app| scenario.apps.get(*app as usize));
        let processes: u32 = all.map(|app| app.processes).sum();
        // Each I/O node has its share of the clients, whichever of them came in this period: that depends on what was in
        // force. A server has all.
        let nodes = match seen.place.level() {
            Level::IoNodes => scenario.ionodes.count.max(1),
            Level::Servers => 1,
        };
        let machines = match scenario.clients.machines {
            0 => processes,
            machines => machines.min(processes),
        };
        Some(Observation {
            period: self.period,
            busy: seen.busy,
            served: seen.served.iter().sum(),
            servers: scenario.servers.count,
            clients: machines.div_ceil(nodes),
            processes: processes.div_ceil(nodes),
            arrived: desk.watch.end_period(),
        })
    }

    /// What a scheduler should do, and why.
    fn verdict(&mut self, place: Place, seen: Observation, now: Nanos) -> Option<Verdict> {
        let desk = self.desks.get_mut(&place)?;
        let (realised, in_force) = (desk.realised, desk.in_force);
        let pattern: Option<Pattern> = desk.recorder.as_mut().and_then(Recorder::end);
        if let Some(council) = self.memory.councils.get_mut(&place.level()) {
            let said = Announcement {
                node: NodeId(number(place).into()),
                in_force,
                realised,
                seen,
            };
            let decision = council
                .announce_with(&said, pattern, self.begin + now)
                .ok()?;
            return Some(Verdict::Council(Box::new(decision)));
        }
        let alone = self.memory.alone.get_mut(&place)?;
        let (context, choice) = alone.decide_with(&seen, pattern, realised, in_force);
        Some(Verdict::Alone { context, choice })
    }

    /// Brings an arm into force; what is realised follows from when.
    fn carry_out(&mut self, place: Place, arm: Arm, now: Nanos) -> Option<Change> {
        let scheduling = self.scheduling(place);
        let delay = if scheduling.council {
            self.delay()
        } else {
            Nanos::ZERO
        };
        let is_late = delay.0 * LATE > self.period.0;
        let desk = self.desks.get_mut(&place)?;
        let was = std::mem::replace(&mut desk.in_force, arm);
        desk.realised = (was == arm || !is_late).then_some(arm);
        (was != arm).then(|| Change {
            place,
            settings: Some(scheduling.settings_with(arm, self.queues, number(place))),
            at: now + delay,
        })
    }
}

impl DeskState {
    fn new(scheduling: &Scheduling) -> DeskState {
        let arm = scheduling.arms().safe();
        let recorder = || Recorder::new(&Settings::ours());
        DeskState {
            watch: Watch::new(),
            recorder: scheduling.patterns.then(recorder),
            apps: BTreeSet::new(),
            in_force: arm,
            realised: Some(arm),
        }
    }
}

impl Memory {
    /// Makes sure that there is someone to decide for a scheduler.
    fn prepare(
        &mut self,
        place: Place,
        scheduling: &Scheduling,
        detector: &Detector,
        period: Nanos,
    ) {
        let tuner = |seed: u32| {
            Tuner::new(TunerSettings {
                arms: scheduling.arms(),
                strategy: scheduling.strategy.map(|it| it.0).unwrap_or_default(),
                seed: u64::from(seed) + 1,
                ..TunerSettings::default()
            })
        };
        if scheduling.council {
            let settings = CouncilSettings {
                period,
                consensus: scheduling.consensus.map(|it| it.0).unwrap_or_default(),
                ..CouncilSettings::default()
            };
            let council = || {
                let council = Council::new(settings, tuner(0), detector.clone());
                match scheduling.patterns {
                    true => council.matching(KnowledgeBase::new(Settings::ours())),
                    false => council,
                }
            };
            self.councils.entry(place.level()).or_insert_with(council);
        } else {
            let alone = || {
                let alone = Alone::new(tuner(number(place)), detector.clone());
                match scheduling.patterns {
                    true => alone.matching(KnowledgeBase::new(Settings::ours())),
                    false => alone,
                }
            };
            self.alone.entry(place).or_insert_with(alone);
        }
    }
}

fn place(level: Level, number: u32) -> Place {
    match level {
        Level::IoNodes => Place::IoNode(number),
        Level::Servers => Place::Server(number),
    }
}

fn number(place: Place) -> u32 {
    let (Place::IoNode(number) | Place::Server(number)) = place;
    number
}

impl Steering for Adaptive<'_, '_> {
    fn period(&self) -> Nanos {
        self.period
    }

    fn arrived(&mut self, place: Place, request: &Request, now: Nanos) {
        if let Some(desk) = self.desks.get_mut(&place) {
            desk.watch.arrived(request);
            if let Some(recorder) = &mut desk.recorder {
                recorder.observe(request.file, request.op, request.range);
            }
            desk.apps.insert(request.app.0);
        }
        if let Some(watching) = &mut self.watching {
            watching.arrived(place, request, now);
        }
    }

    fn departed(&mut self, place: Place, request: &Request) {
        if let Some(desk) = self.desks.get_mut(&place) {
            desk.watch.departed(request);
        }
        if let Some(watching) = &mut self.watching {
            watching.departed(place, request);
        }
    }

    fn decide(&mut self, now: Nanos, seen: &[Seen], changes: &mut Vec<Change>) {
        for seen in seen {
            let Some(observation) = self.observe(seen) else {
                continue;
            };
            let Some(verdict) = self.verdict(seen.place, observation, now) else {
                continue;
            };
            let change = self.carry_out(seen.place, verdict.arm(), now);
            if change.is_some() {
                self.decisions.push(Decided {
                    at: now,
                    place: seen.place,
                    verdict,
                });
            }
            changes.extend(change);
        }
    }
}
