//! What can be chosen: a policy and, for TWINS, how long its window is.
//!
//! An arm is written as its policy's name, TWINS with its window: `SJF`, `TWINS:0.5ms`. What was learned is kept by these
//! names, so a list that changes keeps what was learned of the arms that stay.

use presagio_core::Nanos;
use presagio_sched::{PolicyKind, Settings, UnknownPolicy};
use std::fmt;
use std::str::FromStr;

/// A policy and, for TWINS, its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arm {
    /// The policy. NOOP is what no scheduler is.
    pub policy: PolicyKind,
    /// How long TWINS serves one data server; other policies have none.
    pub window: Option<Nanos>,
}

impl Arm {
    /// A policy; TWINS with its default window.
    pub fn of(policy: PolicyKind) -> Arm {
        let window = Settings::new(policy).twins_window;
        Arm {
            policy,
            window: (policy == PolicyKind::Twins).then_some(window),
        }
    }

    /// TWINS with this window.
    pub const fn twins(window: Nanos) -> Arm {
        Arm {
            policy: PolicyKind::Twins,
            window: Some(window),
        }
    }

    /// What is in force under these settings.
    pub fn in_force(settings: &Settings) -> Arm {
        match settings.policy {
            PolicyKind::Twins => Arm::twins(settings.twins_window),
            policy => Arm::of(policy),
        }
    }

    /// The same settings with this arm in force.
    pub fn applied_to(self, settings: &Settings) -> Settings {
        let mut settings = settings.clone();
        settings.policy = self.policy;
        if let Some(window) = self.window {
            settings.twins_window = window;
        }
        settings
    }
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(window) = self.window else {
            return f.pad(self.policy.name());
        };
        let (whole, rest) = (window.0 / 1_000_000, window.0 % 1_000_000);
        let digits = format!("{whole}.{rest:06}");
        let digits = digits.trim_end_matches('0').trim_end_matches('.');
        f.pad(&format!("{}:{digits}ms", self.policy))
    }
}

/// A text is no arm.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArmError {
    /// No such policy.
    #[error(transparent)]
    Policy(#[from] UnknownPolicy),
    /// A window where none belongs.
    #[error("\"{0}\" has a window: only TWINS has one, as in TWINS:0.5ms")]
    NoWindow(String),
    /// The window is none.
    #[error("\"{0}\" is no window: write it as in TWINS:0.5ms or TWINS:125us, up to a second")]
    Window(String),
    /// The list cannot be used.
    #[error("{0}")]
    List(&'static str),
}

impl FromStr for Arm {
    type Err = ArmError;

    fn from_str(text: &str) -> Result<Arm, ArmError> {
        let Some((name, window)) = text.split_once(':') else {
            return Ok(Arm::of(text.parse()?));
        };
        match name.parse()? {
            PolicyKind::Twins => parse_window(window)
                .map(Arm::twins)
                .ok_or_else(|| ArmError::Window(window.to_owned())),
            _ => Err(ArmError::NoWindow(text.to_owned())),
        }
    }
}

/// The longest window that is not a typing error.
const WINDOW_MAX_NS: f64 = 1e9;

fn parse_window(text: &str) -> Option<Nanos> {
    let (number, unit_ns) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e6),
        None => (text.strip_suffix("us")?, 1e3),
    };
    let window_ns = number.trim().parse::<f64>().ok()? * unit_ns;
    let is_one = (1.0..=WINDOW_MAX_NS).contains(&window_ns);
    is_one.then(|| Nanos(window_ns.round() as u64))
}

/// The arms that are offered, and the one that is safe where nothing is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arms {
    list: Vec<Arm>,
    safe: usize,
}

impl Arms {
    /// Most arms of a list: each has to be tried.
    pub const MAX: usize = 64;

    /// The windows of paper 001, in microseconds: 0.125 to 8 ms.
    pub const WINDOWS_US: [u64; 7] = [125, 250, 500, 1000, 2000, 4000, 8000];

    /// A list without repetitions, of which `safe` is one.
    pub fn new(list: Vec<Arm>, safe: Arm) -> Result<Arms, ArmError> {
        if list.is_empty() || list.len() > Arms::MAX {
            return Err(ArmError::List("arms to choose from: give 1 to 64"));
        }
        if (1..list.len()).any(|at| list[..at].contains(&list[at])) {
            return Err(ArmError::List("an arm is in the list twice"));
        }
        let place = list.iter().position(|arm| *arm == safe);
        let safe = place.ok_or(ArmError::List("the safe arm is not in the list"))?;
        Ok(Arms { list, safe })
    }

    /// The seven windows of paper 001; 1 ms, which harms least (paper 000, VI-D), is safe.
    pub fn windows() -> Arms {
        let window = |us: &u64| Arm::twins(Nanos::from_micros(*us));
        Arms {
            list: Arms::WINDOWS_US.iter().map(window).collect(),
            safe: 3,
        }
    }

    /// The arms of a text with commas between them; the first is the safe one.
    pub fn parse(text: &str) -> Result<Arms, ArmError> {
        let arms = text.split(',').map(|arm| arm.trim().parse());
        let list: Vec<Arm> = arms.collect::<Result<_, _>>()?;
        let safe = list[0]; // A text has at least one part.
        Arms::new(list, safe)
    }

    /// All of them, in order.
    pub fn list(&self) -> &[Arm] {
        &self.list
    }

    /// The one for where nothing is known.
    pub fn safe(&self) -> Arm {
        self.list[self.safe]
    }

    /// How many there are: at least one.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// The place of an arm in the list.
    pub fn place(&self, arm: Arm) -> Option<usize> {
        self.list.iter().position(|other| *other == arm)
    }
}

/// The windows of paper 001 and all other policies but WFQ, which is about fairness, and SW, whose windows are seconds.
/// NOOP, which does nothing, is safe.
impl Default for Arms {
    fn default() -> Arms {
        let mut list = vec![Arm::of(PolicyKind::Noop)];
        list.extend(Arms::windows().list);
        let others = [
            PolicyKind::To,
            PolicyKind::ToAgg,
            PolicyKind::Sjf,
            PolicyKind::Mlf,
            PolicyKind::Aioli,
            PolicyKind::Hbrr,
        ];
        list.extend(others.map(Arm::of));
        Arms { list, safe: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_arm_is_written_as_it_is_read() {
        for text in [
            "NOOP",
            "SJF",
            "aIOLi",
            "TWINS:0.125ms",
            "TWINS:8ms",
            "TWINS:0.000001ms",
        ] {
            assert_eq!(text.parse::<Arm>().unwrap().to_string(), text);
        }
        assert_eq!("twins:125us".parse::<Arm>(), Ok(Arm::twins(Nanos(125_000))));
        assert_eq!("TWINS".parse::<Arm>(), Ok(Arm::of(PolicyKind::Twins)));
    }

    #[test]
    fn what_is_no_arm_is_said_to_be_none() {
        for (text, said) in [
            ("LIFO", "unknown policy"),
            ("SJF:1ms", "only TWINS has one"),
            ("TWINS:1", "is no window"),
            ("TWINS:0ms", "is no window"),
            ("TWINS:-1ms", "is no window"),
            ("TWINS:NaNms", "is no window"),
            ("TWINS:2000ms", "up to a second"),
        ] {
            let error = text.parse::<Arm>().expect_err(text).to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
        assert!(Arms::parse("SJF,SJF").is_err());
        assert!(Arms::parse("").is_err());
    }

    #[test]
    fn the_lists_that_come_with_it_can_be_used() {
        for arms in [Arms::default(), Arms::windows()] {
            assert_eq!(Arms::new(arms.list.clone(), arms.safe()), Ok(arms));
        }
        assert_eq!(Arms::windows().safe().to_string(), "TWINS:1ms");
    }

    #[test]
    fn an_arm_in_force_is_seen_in_the_settings() {
        for arm in Arms::default().list() {
            let settings = arm.applied_to(&Settings::new(PolicyKind::To));
            assert_eq!((Arm::in_force(&settings), settings.check()), (*arm, Ok(())));
        }
    }

    proptest! {
        #[test]
        fn every_window_is_read_back(ns in 1_u64..=1_000_000_000) {
            let arm = Arm::twins(Nanos(ns));
            prop_assert_eq!(arm.to_string().parse::<Arm>(), Ok(arm));
        }
    }
}
