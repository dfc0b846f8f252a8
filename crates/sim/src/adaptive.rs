//! `policy = "adaptive"`: each scheduler learns while it runs which arm suits what arrives; with `council = true` the schedulers
//! of a level decide together. The code that learns is that of `presagio ionode` and `presagio council` (`presagio-tune`); here
//! it sits on the seam for whoever steers.
//!
//! When a scheduler decides, and which of its periods count, is [`Pulse`]'s to say, as on a node.
//!
//! What was learned outlives a run in a [`Memory`], as it outlives a job on a real node.

use crate::report::{Decided, Verdict};
use crate::scenario::{Level, PolicyChoice, Scenario, Scheduling};
use crate::steering::{Change, Place, Seen, Steering};
use crate::{Failed, ScenarioError};
use presagio_core::{Nanos, Request};
use presagio_pattern::{KnowledgeBase, Pattern, Recorder, Settings};
use presagio_tune::{
    Alone, Announcement, Arm, Arrived, Choice, Council, CouncilSettings, Detector, Due, Ended,
    Look, NodeId, Observation, Pulse, Tuner, TunerSettings, Watch, Why, Worth,
};
use std::collections::{BTreeMap, BTreeSet};

/// How often is decided where the scenario does not say it.
const PERIOD: Nanos = Nanos::from_millis(100);

/// How often in a period one looks whether something is due: as often as a node glances at what arrives. When something else begins to
/// arrive that is done at once.
const TICKS: u64 = 8;

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
    /// Whether something else arrives at one of them than before.
    is_due: bool,
    decisions: Vec<Decided>,
}

/// What is known of a scheduler.
struct DeskState {
    watch: Watch,
    /// Makes patterns, where those are contexts.
    recorder: Option<Recorder>,
    pulse: Pulse,
    /// Since the period is measured: what was served, for how long there was something to do, and which applications asked for something.
    served: u64,
    busy: Nanos,
    apps: BTreeSet<u32>,
    in_force: Arm,
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
                desks.insert(place, DeskState::new(scheduling, period));
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
            is_due: false,
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

    /// What is due at a scheduler.
    fn beat(&mut self, seen: &Seen, now: Nanos) -> Option<(Verdict, Change)> {
        let desk = self.desks.get_mut(&seen.place)?;
        desk.served += seen.served.iter().sum::<u64>();
        desk.busy += seen.busy;
        let mut done = None;
        match desk.pulse.due(now) {
            Due::Ended => done = self.end_period(seen, now),
            Due::Settled => {
                desk.pulse.begin(desk.watch.glance(), now);
                desk.begin();
            }
            Due::Nothing => {}
        }
        let desk = self.desks.get_mut(&seen.place)?;
        let other = desk.pulse.glance(desk.watch.glance(), now);
        other
            .and_then(|look| self.resume(seen.place, look, now))
            .or(done)
    }

    /// A period is over, unless it goes on.
    fn end_period(&mut self, seen: &Seen, now: Nanos) -> Option<(Verdict, Change)> {
        let observation = self.observe(seen.place, now)?;
        let desk = self.desks.get_mut(&seen.place)?;
        let ended = Ended {
            reward: observation.reward(),
            glance: desk.watch.glance(),
            is_waiting: seen.present > 0,
            is_unchanged: true,
        };
        let worth = desk.pulse.end(ended, now)?;
        let (arrived, pattern) = desk.begin();
        let observation = Observation {
            arrived,
            ..observation
        };
        let verdict = self.verdict(seen.place, (observation, pattern), worth, now)?;
        let change = self.carry_out(seen.place, verdict.arm(), now)?;
        let desk = self.desks.get_mut(&seen.place)?;
        desk.pulse.switched(change.at);
        Some((verdict, change))
    }

    /// Something else arrives now.
    fn resume(&mut self, place: Place, look: Look, now: Nanos) -> Option<(Verdict, Change)> {
        self.desks.get_mut(&place)?.begin();
        let arm = self.memory.alone.get_mut(&place)?.begins(look)?;
        self.desks.get_mut(&place)?.pulse.switched(now);
        let change = self.carry_out(place, arm, now)?;
        let choice = Choice {
            arm,
            why: Why::Returns,
            candidates: Vec::new(),
        };
        let context = None;
        Some((Verdict::Alone { context, choice }, change))
    }

    /// What was served and by whom; what arrived is told when the period is over.
    fn observe(&self, place: Place, now: Nanos) -> Option<Observation> {
        let scenario = self.scenario;
        let desk = self.desks.get(&place)?;
        let all = desk
            .apps
            .iter()
            .filter_map(|app| scenario.apps.get(*app as usize));
        let processes: u32 = all.map(|app| app.processes).sum();
        // Each I/O node has its share of the clients, whichever of them came in this period: that depends on what was in
        // force. A server has all.
        let nodes = match place.level() {
            Level::IoNodes => scenario.ionodes.count.max(1),
            Level::Servers => 1,
        };
        let machines = match scenario.clients.machines {
            0 => processes,
            machines => machines.min(processes),
        };
        Some(Observation {
            period: desk.pulse.measured(now),
            busy: desk.busy,
            served: desk.served,
            servers: scenario.servers.count,
            clients: machines.div_ceil(nodes),
            processes: processes.div_ceil(nodes),
            arrived: None,
        })
    }

    /// What a scheduler should do, and why.
    fn verdict(
        &mut self,
        place: Place,
        (seen, pattern): (Observation, Option<Pattern>),
        worth: Worth,
        now: Nanos,
    ) -> Option<Verdict> {
        let desk = self.desks.get_mut(&place)?;
        let in_force = desk.in_force;
        let realised = (worth.is_whole && worth.is_telling).then_some(in_force);
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
        let (context, _) = alone.hear(&seen, pattern, realised);
        let choice = match worth.may_choose {
            true => alone.choose(context.as_ref(), desk.pulse.look(), in_force),
            false => alone.stay(context.as_ref(), in_force),
        };
        Some(Verdict::Alone { context, choice })
    }

    /// Brings an arm into force, if it is not.
    fn carry_out(&mut self, place: Place, arm: Arm, now: Nanos) -> Option<Change> {
        let scheduling = self.scheduling(place);
        let delay = if scheduling.council {
            self.delay()
        } else {
            Nanos::ZERO
        };
        let desk = self.desks.get_mut(&place)?;
        let was = std::mem::replace(&mut desk.in_force, arm);
        (was != arm).then(|| Change {
            place,
            settings: Some(scheduling.settings_with(arm, self.queues, number(place))),
            at: now + delay,
        })
    }
}

impl DeskState {
    fn new(scheduling: &Scheduling, period: Nanos) -> DeskState {
        let recorder = || Recorder::new(&Settings::ours());
        DeskState {
            watch: Watch::new(),
            recorder: scheduling.patterns.then(recorder),
            pulse: Pulse::new(period, Nanos::ZERO),
            served: 0,
            busy: Nanos::ZERO,
            apps: BTreeSet::new(),
            in_force: scheduling.arms().safe(),
        }
    }

    /// From now on it counts; what came before.
    fn begin(&mut self) -> (Option<Arrived>, Option<Pattern>) {
        (self.served, self.busy) = (0, Nanos::ZERO);
        self.apps.clear();
        let pattern = self.recorder.as_mut().and_then(Recorder::end);
        (self.watch.end_period(), pattern)
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
        Nanos(self.period.0.div_ceil(TICKS))
    }

    fn arrived(&mut self, place: Place, request: &Request, now: Nanos) {
        if let Some(desk) = self.desks.get_mut(&place) {
            let is_other = desk.watch.arrived(request);
            self.is_due |= is_other && desk.pulse.may_cut();
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

    fn is_due(&mut self) -> bool {
        std::mem::take(&mut self.is_due)
    }

    fn decide(&mut self, now: Nanos, seen: &[Seen], changes: &mut Vec<Change>) {
        for seen in seen {
            if let Some((verdict, change)) = self.beat(seen, now) {
                self.decisions.push(Decided {
                    at: now,
                    place: seen.place,
                    verdict,
                });
                changes.push(change);
            }
        }
    }
}
