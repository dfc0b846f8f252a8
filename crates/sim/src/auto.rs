//! `policy = "auto"`: in every period each scheduler gets the policy that suits what arrived. The code that decides is that of
//! `presagio ionode` (`presagio-tune`); here it sits on the seam for whoever steers.

use crate::report::{Decided, Verdict};
use crate::scenario::{PolicyChoice, Scenario, Scheduling};
use crate::steering::{Change, Place, Seen, Steering};
use crate::{Failed, ScenarioError};
use presagio_core::{Nanos, Request};
use presagio_sched::PolicyKind;
use presagio_tune::{Chooser, Decision, Drive, Lookout, Selector, Trees};

/// How often is decided where the scenario does not say it: runs are shorter than the days of an I/O node.
const PERIOD: Nanos = Nanos::from_millis(100);

/// See the module's header.
pub(crate) struct Auto<'a> {
    ionodes: Chosen,
    servers: Chosen,
    queues: u32,
    period: Nanos,
    /// What to begin with.
    first: Option<Decision>,
    watching: Option<&'a mut dyn Steering>,
    decisions: Vec<Decided>,
}

/// Those of a level.
struct Chosen {
    scheduling: Scheduling,
    /// One for each scheduler; none where the policy is given.
    selectors: Vec<(Selector, Option<PolicyKind>)>,
}

impl<'a> Auto<'a> {
    /// None where every policy is given.
    pub(crate) fn new(
        scenario: &Scenario,
        trees: Option<Trees>,
    ) -> Result<Option<Auto<'a>>, Failed> {
        let (ionodes, servers) = (&scenario.ionodes, &scenario.servers);
        let is_auto = |s: &Scheduling| s.policy == PolicyChoice::Auto;
        if !is_auto(&ionodes.scheduler) && !is_auto(&servers.scheduler) {
            return Ok(None);
        }
        let drive = Drive::new(servers.device.model().map_err(Failed::Device)?);
        let trees = trees.unwrap_or_else(Trees::shipped);
        let mut chooser = Chooser::new(trees, Some(drive));
        let first = chooser.begin();
        let policy = first.as_ref().and_then(|decision| decision.policy);
        let selector = Selector::new(chooser, servers.stripe.0);
        let chosen = |scheduling: &Scheduling, count: u32| Chosen {
            scheduling: scheduling.clone(),
            selectors: match is_auto(scheduling) {
                true => vec![(selector.clone(), policy); count as usize],
                false => Vec::new(),
            },
        };
        Ok(Some(Auto {
            ionodes: chosen(&ionodes.scheduler, ionodes.count),
            servers: chosen(&servers.scheduler, servers.count),
            queues: servers.count.max(scenario.apps.len() as u32),
            period: scenario.period_of(PolicyChoice::Auto).unwrap_or(PERIOD),
            first,
            watching: None,
            decisions: Vec::new(),
        }))
    }

    /// What schedulers begin with, before anything has arrived.
    pub(crate) fn begin(&mut self) -> Vec<Change> {
        let Some(first) = self.first.take() else {
            return Vec::new();
        };
        let nodes = (0..).zip(&self.ionodes.selectors);
        let nodes = nodes.map(|(number, _)| Place::IoNode(number));
        let servers = (0..).zip(&self.servers.selectors);
        let servers = servers.map(|(number, _)| Place::Server(number));
        let places: Vec<Place> = nodes.chain(servers).collect();
        let decided = places.iter().map(|place| Decided {
            at: Nanos::ZERO,
            place: *place,
            verdict: Verdict::Trees(first.clone()),
        });
        self.decisions.extend(decided);
        let change = |place: &Place| self.change(*place, first.policy, Nanos::ZERO);
        places.iter().map(change).collect()
    }

    /// Lets someone look on, who must not want to decide too.
    pub(crate) fn watched_by(&mut self, who: Option<&'a mut dyn Steering>) -> Result<(), Failed> {
        if who.as_ref().is_some_and(|who| who.period() < Nanos::MAX) {
            return Err(Failed::Scenario(ScenarioError {
                line: None,
                field: Some("scheduler.policy".to_owned()),
                reason: "it is auto, and someone else steers the run: only one can".to_owned(),
            }));
        }
        self.watching = who;
        Ok(())
    }

    pub(crate) fn decisions(self) -> Vec<Decided> {
        self.decisions
    }

    fn selector(&mut self, place: Place) -> Option<&mut (Selector, Option<PolicyKind>)> {
        match place {
            Place::IoNode(number) => self.ionodes.selectors.get_mut(number as usize),
            Place::Server(number) => self.servers.selectors.get_mut(number as usize),
        }
    }

    fn change(&self, place: Place, policy: Option<PolicyKind>, at: Nanos) -> Change {
        let (chosen, number) = match place {
            Place::IoNode(number) => (&self.ionodes, number),
            Place::Server(number) => (&self.servers, number),
        };
        let settings = |kind| chosen.scheduling.settings_of(kind, self.queues, number);
        Change {
            place,
            settings: policy.map(settings),
            at,
        }
    }
}

impl Steering for Auto<'_> {
    /// Decisions are due in parts of a period, too.
    fn period(&self) -> Nanos {
        Nanos(self.period.0.div_ceil(Lookout::PARTS.into()))
    }

    fn arrived(&mut self, place: Place, request: &Request, now: Nanos) {
        if let Some((selector, _)) = self.selector(place) {
            selector.arrived(request, now);
        }
        if let Some(watching) = &mut self.watching {
            watching.arrived(place, request, now);
        }
    }

    fn decide(&mut self, now: Nanos, seen: &[Seen], changes: &mut Vec<Change>) {
        for Seen { place, .. } in seen {
            let Some((selector, current)) = self.selector(*place) else {
                continue;
            };
            let Some(decision) = selector.part_over() else {
                continue;
            };
            if decision.policy == *current {
                continue;
            }
            *current = decision.policy;
            changes.push(self.change(*place, decision.policy, now));
            self.decisions.push(Decided {
                at: now,
                place: *place,
                verdict: Verdict::Trees(decision),
            });
        }
    }
}
