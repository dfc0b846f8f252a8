//! Everything that can be set about a scheduler, with its defaults and checks.
//!
//! One flat set for all policies: switching the policy keeps the others' parameters, and any of them can
//! change while requests are queued.

use presagio_core::Nanos;
use std::fmt;
use std::str::FromStr;

/// The ten policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyKind {
    /// Arrival order, nothing kept back: the measure of what scheduling costs.
    Noop,
    /// Time order: first come, first served.
    To,
    /// Time order, with aggregation.
    ToAgg,
    /// Shortest job first: from the file whose queue holds the fewest bytes.
    Sjf,
    /// Multilevel feedback: quanta that grow while waiting, files in turn.
    Mlf,
    /// Quanta like MLF, first come first served between files, one batch at a time.
    Aioli,
    /// Server-side windows: by arrival window, inside one by application.
    Sw,
    /// Time windows: one data server at a time.
    Twins,
    /// Weighted fair queueing between queue ids.
    Wfq,
    /// Handle-based round robin: some batches per file and turn.
    Hbrr,
}

impl PolicyKind {
    /// All of them, in the order in which tables list them.
    pub const ALL: [PolicyKind; 10] = [
        PolicyKind::Noop,
        PolicyKind::To,
        PolicyKind::ToAgg,
        PolicyKind::Sjf,
        PolicyKind::Mlf,
        PolicyKind::Aioli,
        PolicyKind::Sw,
        PolicyKind::Twins,
        PolicyKind::Wfq,
        PolicyKind::Hbrr,
    ];

    /// The name that papers, configuration files and tables use.
    pub const fn name(self) -> &'static str {
        match self {
            PolicyKind::Noop => "NOOP",
            PolicyKind::To => "TO",
            PolicyKind::ToAgg => "TO-agg",
            PolicyKind::Sjf => "SJF",
            PolicyKind::Mlf => "MLF",
            PolicyKind::Aioli => "aIOLi",
            PolicyKind::Sw => "SW",
            PolicyKind::Twins => "TWINS",
            PolicyKind::Wfq => "WFQ",
            PolicyKind::Hbrr => "HBRR",
        }
    }

    /// Whether touching requests leave as one batch.
    pub const fn aggregates(self) -> bool {
        !matches!(self, PolicyKind::Noop | PolicyKind::To | PolicyKind::Twins)
    }

    /// Whether it can hold requests back because foresight says that more are about to come.
    pub const fn uses_foresight(self) -> bool {
        matches!(
            self,
            PolicyKind::Aioli | PolicyKind::Mlf | PolicyKind::Sjf | PolicyKind::ToAgg
        )
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The name is none of the ten policies'.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown policy \"{0}\": use one of NOOP, TO, TO-agg, SJF, MLF, aIOLi, SW, TWINS, WFQ, HBRR"
)]
pub struct UnknownPolicy(pub String);

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;
    fn from_str(s: &str) -> Result<PolicyKind, UnknownPolicy> {
        PolicyKind::ALL
            .into_iter()
            .find(|p| p.name().eq_ignore_ascii_case(s))
            .ok_or_else(|| UnknownPolicy(s.to_owned()))
    }
}

/// The parameters of a scheduler. `Settings::new(policy)` has the defaults; change fields as needed.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The policy.
    pub policy: PolicyKind,
    /// Most requests in a batch: at most 1024, what one vectored system call takes.
    pub batch_requests_max: u32,
    /// Most bytes in a batch of several requests (one request alone may be larger).
    pub batch_bytes_max: u64,
    /// Whether overlapping requests of a file keep their order where one of them writes.
    pub guard: bool,
    /// No request waits longer than this while the device is free; `None` is the published behaviour.
    pub starvation_bound: Option<Nanos>,
    /// How many queue ids there are (data servers, weight classes): valid ones are `0..queues`.
    pub queues: u32,
    /// How long aIOLi and MLF hold a queue back when a shift or a better aggregation is suspected.
    pub wait: Nanos,
    /// aIOLi: bytes by which a queue's quanta grow at first.
    pub aioli_quantum: u64,
    /// aIOLi: wait for each batch to be served before choosing the next, as published.
    pub aioli_synchronous: bool,
    /// MLF: bytes by which a queue's quanta grow at first.
    pub mlf_quantum: u64,
    /// SW: length of an arrival window.
    pub sw_window: Nanos,
    /// TWINS: how long one data server is served.
    pub twins_window: Nanos,
    /// TWINS: the number of this I/O node, so that nodes are on different servers.
    pub twins_node: u32,
    /// TWINS: what a clock that all nodes share shows when this one's shows 0. An engine sets it, by the time of day.
    pub twins_origin: Nanos,
    /// TWINS: whether windows are those of that clock. Else, as published, a node's next one begins when it finds the last one over,
    /// and nodes drift apart.
    pub twins_shared_clock: bool,
    /// WFQ: bytes of credit per turn, by queue id; queues beyond the list get `wfq_weight`.
    pub wfq_weights: Vec<u64>,
    /// WFQ: bytes of credit per turn for queues without a weight of their own.
    pub wfq_weight: u64,
    /// HBRR: batches taken from a file before turning to the next.
    pub hbrr_quantum: u32,
    /// Foresight: how far, relative to the predicted time, an arrival may be off and still match.
    pub foresight_tolerance: f64,
    /// Foresight: an arrival off by at most this much always matches.
    pub foresight_slack: Nanos,
    /// Foresight: no batch waits longer than this for predicted requests, and aggregations are predicted as published, however
    /// far apart their requests come where others are served meanwhile. `None`: a batch waits as long as pays even if nobody is.
    pub foresight_wait_max: Option<Nanos>,
}

impl Settings {
    /// The largest `batch_requests_max`: Linux's limit for one `preadv` or `pwritev` (IOV_MAX).
    pub const BATCH_REQUESTS_MAX: u32 = 1024;

    /// The largest `queues`: something is kept for each.
    pub const QUEUES_MAX: u32 = 1 << 20;

    /// The defaults for `policy`: guard on, no starvation bound, aIOLi synchronous as published.
    pub fn new(policy: PolicyKind) -> Settings {
        Settings {
            policy,
            batch_requests_max: Settings::BATCH_REQUESTS_MAX,
            batch_bytes_max: 16 << 20,
            guard: true,
            starvation_bound: None,
            queues: 1,
            wait: Nanos::from_micros(900),
            aioli_quantum: 64 << 10,
            aioli_synchronous: true,
            mlf_quantum: 8 << 10,
            sw_window: Nanos::from_millis(1000),
            twins_window: Nanos::from_micros(2000),
            twins_node: 0,
            twins_origin: Nanos::ZERO,
            twins_shared_clock: true,
            wfq_weights: Vec::new(),
            wfq_weight: 64 << 10,
            hbrr_quantum: 8,
            foresight_tolerance: 0.1,
            foresight_slack: Nanos::from_millis(1),
            foresight_wait_max: None,
        }
    }

    /// Checks that every parameter makes sense.
    pub fn check(&self) -> Result<(), SettingsError> {
        let nonzero = |name, value: u64| match value {
            0 => Err(SettingsError::Zero { name }),
            _ => Ok(()),
        };
        if !(1..=Settings::BATCH_REQUESTS_MAX).contains(&self.batch_requests_max) {
            return Err(SettingsError::BatchRequests(self.batch_requests_max));
        }
        nonzero("batch_bytes_max", self.batch_bytes_max)?;
        if !(1..=Settings::QUEUES_MAX).contains(&self.queues) {
            return Err(SettingsError::Queues(self.queues));
        }
        nonzero("aioli_quantum", self.aioli_quantum)?;
        nonzero("mlf_quantum", self.mlf_quantum)?;
        nonzero("sw_window", self.sw_window.0)?;
        nonzero("twins_window", self.twins_window.0)?;
        nonzero("wfq_weight", self.wfq_weight)?;
        nonzero("hbrr_quantum", self.hbrr_quantum.into())?;
        if let Some(queue) = self.wfq_weights.iter().position(|w| *w == 0) {
            return Err(SettingsError::ZeroWeight { queue });
        }
        if !(0.0..=1e6).contains(&self.foresight_tolerance) {
            return Err(SettingsError::Tolerance(self.foresight_tolerance));
        }
        Ok(())
    }
}

/// A parameter that cannot be used, and why.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A parameter is zero that must not be.
    #[error("{name} is 0: it must be at least 1")]
    Zero {
        /// The parameter.
        name: &'static str,
    },
    /// A batch must hold at least one request and no more than a vectored call takes.
    #[error("batch_requests_max is {0}: it must be from 1 to 1024 (what one vectored call takes)")]
    BatchRequests(u32),
    /// There must be a queue, and not more than can be kept.
    #[error("queues is {0}: it must be from 1 to 1048576")]
    Queues(u32),
    /// A queue of weight zero would never be served.
    #[error("the weight of queue {queue} is 0: it must be at least 1")]
    ZeroWeight {
        /// The queue id.
        queue: usize,
    },
    /// The tolerance is negative, not a number, or absurd.
    #[error("foresight_tolerance is {0}: it must be from 0 (exact) to 1000000; 0.1 is 10 %")]
    Tolerance(f64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_found_by_its_name() {
        for policy in PolicyKind::ALL {
            assert_eq!(policy.name().parse(), Ok(policy));
            assert_eq!(policy.name().to_lowercase().parse(), Ok(policy));
            assert_eq!(Settings::new(policy).check(), Ok(()));
        }
        let error = "CFQ".parse::<PolicyKind>().unwrap_err().to_string();
        assert!(error.contains("CFQ") && error.contains("aIOLi"));
    }

    #[test]
    fn absurd_settings_say_which_parameter_and_why() {
        let base = Settings::new(PolicyKind::Wfq);
        let errors = [
            Settings {
                batch_requests_max: 1025,
                ..base.clone()
            },
            Settings {
                wfq_weights: vec![5, 0],
                ..base.clone()
            },
            Settings {
                twins_window: Nanos(0),
                ..base.clone()
            },
            Settings {
                foresight_tolerance: f64::NAN,
                ..base.clone()
            },
        ]
        .map(|s| s.check().unwrap_err().to_string());
        assert!(errors[0].contains("1025") && errors[1].contains("queue 1"));
        assert!(errors[2].contains("twins_window") && errors[3].contains("NaN"));
    }
}
