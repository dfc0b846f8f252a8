//! What cannot be: every parameter that would make a run meaningless, with its name and why.

use crate::agenda::What;
use crate::scenario::{App, Files, Intake, Pattern, PolicyChoice, Scenario, Scheduling};
use presagio_sched::PolicyKind;

/// A parameter that cannot be, by its dotted name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub field: String,
    pub reason: String,
}

fn require(holds: bool, field: impl Into<String>, reason: impl Into<String>) -> Result<(), Wrong> {
    match holds {
        true => Ok(()),
        false => Err(Wrong {
            field: field.into(),
            reason: reason.into(),
        }),
    }
}

/// Machines of a kind: something is kept for each.
const MACHINES_MAX: u32 = 1 << 20;

impl Scenario {
    /// The first parameter that cannot be, if there is one.
    pub(crate) fn check(&self) -> Result<(), Wrong> {
        self.check_servers()?;
        let nodes = &self.ionodes;
        require(
            nodes.count <= MACHINES_MAX,
            "ionodes.count",
            "it must be at most 1048576",
        )?;
        require(
            nodes.dispatchers > 0,
            "ionodes.dispatchers",
            "it must be at least 1: nothing would be passed on",
        )?;
        require(
            nodes.handlers > 0,
            "ionodes.handlers",
            "it must be at least 1: nothing would be taken in",
        )?;
        check_scheduler(&nodes.scheduler, "ionodes.scheduler")?;
        self.check_periods()?;
        self.check_relays()?;
        require(
            self.network.bandwidth.0 >= 1000,
            "network.bandwidth",
            "it must be at least 1000 bytes a second",
        )?;
        require(
            self.clients.machines <= MACHINES_MAX,
            "clients.machines",
            "it must be at most 1048576",
        )?;
        require(self.limit.0 > 0, "limit", "it must be more than 0")?;
        let few = self.foresight.repetitions <= 1000;
        require(
            few,
            "foresight.repetitions",
            "it must be from 0 (none) to 1000",
        )?;
        self.check_apps()
    }

    fn check_periods(&self) -> Result<(), Wrong> {
        let (nodes, servers) = (&self.ionodes.scheduler, &self.servers.scheduler);
        let both_decide = self.ionodes.count > 0
            && nodes.policy == servers.policy
            && matches!(nodes.policy, PolicyChoice::Auto | PolicyChoice::Adaptive);
        let periods = nodes.period.zip(servers.period);
        let is_one = periods.is_none_or(|(nodes, servers)| nodes.0 == servers.0);
        require(
            !both_decide || is_one,
            "servers.scheduler.period",
            "it must be that of the I/O nodes: both levels decide at the same moments",
        )
    }

    fn check_relays(&self) -> Result<(), Wrong> {
        let relays = &self.relays;
        let few = relays.count <= MACHINES_MAX;
        require(few, "relays.count", "it must be at most 1048576")?;
        require(
            relays.handlers > 0,
            "relays.handlers",
            "it must be at least 1: nothing would be taken in",
        )?;
        require(
            relays.count == 0 || self.ionodes.count == 0,
            "relays.count",
            "it must be 0 where there are I/O nodes: clients talk to one or the other",
        )
    }

    fn check_servers(&self) -> Result<(), Wrong> {
        let servers = &self.servers;
        let count = (1..=1 << 16).contains(&servers.count);
        require(count, "servers.count", "it must be from 1 to 65536")?;
        let stripe = (512..=1 << 30).contains(&servers.stripe.0);
        require(
            stripe,
            "servers.stripe",
            "it must be from 512 bytes to 1 GiB",
        )?;
        require(
            servers.workers > 0,
            "servers.workers",
            "it must be at least 1: nothing would be served",
        )?;
        require(
            servers.handlers > 0,
            "servers.handlers",
            "it must be at least 1: nothing would be taken in",
        )?;
        require(
            servers.intake == Intake::Open || servers.handlers == 1,
            "servers.intake",
            "closed needs `servers.handlers = 1`: one thread takes messages in, and waits",
        )?;
        check_scheduler(&servers.scheduler, "servers.scheduler")?;
        match servers.device.reason_against() {
            None => Ok(()),
            Some(against) => Err(Wrong {
                field: match against.field {
                    Some(field) => format!("servers.device.{field}"),
                    None => "servers.device".to_owned(),
                },
                reason: against.reason,
            }),
        }
    }

    fn check_apps(&self) -> Result<(), Wrong> {
        require(
            !self.apps.is_empty(),
            "app",
            "there is none: add an [[app]] table, or nothing runs",
        )?;
        for (number, app) in self.apps.iter().enumerate() {
            app.check(&format!("app.{number}"))?;
            let before = &self.apps[..number];
            let known = |name: &String| before.iter().any(|app| app.name == *name);
            let follows = app.after.as_ref().is_none_or(known);
            require(
                follows,
                format!("app.{number}.after"),
                "there is no application of that name before this one",
            )?;
        }
        let processes: u64 = self.apps.iter().map(|app| u64::from(app.processes)).sum();
        let most = u64::from(What::NUMBERS) / 4;
        require(
            processes < most,
            "app.0.processes",
            "all applications together have too many",
        )
    }
}

impl App {
    fn check(&self, field: &str) -> Result<(), Wrong> {
        let of = |name: &str| format!("{field}.{name}");
        require(self.processes > 0, of("processes"), "it must be at least 1")?;
        require(
            self.depth > 0,
            of("depth"),
            "it must be at least 1: 1 is synchronous",
        )?;
        require(self.steps > 0, of("steps"), "it must be at least 1")?;
        if self.trace.is_some() {
            return Ok(());
        }
        let request = (1..=1 << 30).contains(&self.request.0);
        require(request, of("request"), "it must be from 1 byte to 1 GiB")?;
        let one = self.bytes.0 == 0 || self.total.0 == 0;
        require(
            one,
            of("total"),
            "give `bytes` (of a process) or `total`, not both",
        )?;
        let some = self.bytes.0 > 0 || self.total.0 > 0;
        require(
            some,
            of("bytes"),
            "it is missing: give `bytes` (of a process) or `total`",
        )?;
        let which = if self.bytes.0 > 0 { "bytes" } else { "total" };
        require(
            self.requests() > 0,
            of(which),
            "it is less than one request of each process",
        )?;
        let fits =
            u128::from(self.requests()) * u128::from(self.request.0) * u128::from(self.processes);
        require(
            fits < 1 << 60,
            of(which),
            "it must be less than 1 EiB in all",
        )?;
        let usual = self.files == Files::Shared || self.pattern != Pattern::Strided;
        require(
            usual,
            of("pattern"),
            "strided needs a shared file: in a file of its own a process has no one to take turns with",
        )
    }
}

fn check_scheduler(scheduling: &Scheduling, field: &str) -> Result<(), Wrong> {
    require(
        scheduling.period.is_none_or(|period| period.0 > 0),
        format!("{field}.period"),
        "it must be more than 0",
    )?;
    let settings = match scheduling.policy {
        // Any of them may come.
        PolicyChoice::Auto | PolicyChoice::Adaptive => {
            scheduling.settings_of(PolicyKind::Aioli, 1, 0)
        }
        _ => match scheduling.settings(1, 0) {
            Some(settings) => settings,
            None => return Ok(()),
        },
    };
    settings.check().map_err(|error| Wrong {
        field: field.to_owned(),
        reason: error.to_string(),
    })
}
