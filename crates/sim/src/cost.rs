//! What scheduling itself costs: processor time for each request that is included and for each selection.
//!
//! It is why "no scheduler at all" wins some cells of the thesis's tables. [`Cpu::Agios`] is its Table 3.2: costs that grow
//! with the requests in a queue (N) and with the files (M). [`Cpu::Presagio`] is ours, measured, which grows with neither.

use crate::Span;
use presagio_sched::PolicyKind;
use serde::Deserialize;

/// Whose scheduler it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cpu {
    /// Nothing: decisions are free.
    None,
    /// AGIOS: Table 3.2 of the thesis with the times of a step as measured on its second version.
    Agios,
    /// Ours, as measured by `presagio bench sched`.
    #[default]
    Presagio,
    /// Table 3.2 with these times.
    #[serde(untagged)]
    Given(Times),
}

/// The times of Table 3.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Times {
    /// To include a request, whatever is queued.
    pub include: Span,
    /// To select what is dispatched next, whatever is queued.
    pub select: Span,
    /// For each request or file that is passed on the way.
    pub step: Span,
}

/// About 1 µs to include a request and 11 µs for the hand-over between its threads; 10 ns for each step along a list.
const AGIOS: Times = Times {
    include: Span(1_000),
    select: Span(11_000),
    step: Span(10),
};

impl Cpu {
    /// To include a request where so many are queued, of so many files.
    pub(crate) fn include(&self, policy: PolicyKind, queued: u64, files: u64) -> u64 {
        match self {
            Cpu::None => 0,
            Cpu::Presagio => measured(policy) / 3,
            Cpu::Agios => AGIOS.include(policy, queued, files),
            Cpu::Given(times) => times.include(policy, queued, files),
        }
    }

    /// To select the next batch where requests of so many files were seen.
    pub(crate) fn select(&self, policy: PolicyKind, files: u64) -> u64 {
        match self {
            Cpu::None => 0,
            Cpu::Presagio => measured(policy) * 2 / 3,
            Cpu::Agios => AGIOS.select(policy, files),
            Cpu::Given(times) => times.select(policy, files),
        }
    }
}

impl Times {
    fn include(&self, policy: PolicyKind, queued: u64, files: u64) -> u64 {
        let steps = match policy {
            // N_queue + M. Requests are taken to be spread evenly over the files.
            PolicyKind::Aioli | PolicyKind::Mlf | PolicyKind::Sjf => queued / files.max(1) + files,
            PolicyKind::ToAgg | PolicyKind::Sw => queued,
            _ => 0,
        };
        self.include.0 + self.step.0 * steps
    }

    fn select(&self, policy: PolicyKind, files: u64) -> u64 {
        let steps = match policy {
            PolicyKind::Aioli | PolicyKind::Sjf => 2 * files,
            _ => 0,
        };
        self.select.0 + self.step.0 * steps
    }
}

/// Nanoseconds a request from `submit` to `finish`: `presagio bench sched`, 1 and 64 files, 1000 queued, sequential and
/// random; on the machine that this was written on.
fn measured(policy: PolicyKind) -> u64 {
    match policy {
        PolicyKind::Noop | PolicyKind::To | PolicyKind::Twins => 181,
        PolicyKind::ToAgg | PolicyKind::Sjf | PolicyKind::Hbrr => 224,
        PolicyKind::Sw | PolicyKind::Wfq => 240,
        PolicyKind::Mlf | PolicyKind::Aioli => 258,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_3_2_grows_with_what_it_says() {
        let cpu = Cpu::Agios;
        let grows = |policy| cpu.include(policy, 1000, 1) - cpu.include(policy, 0, 1);
        assert_eq!(grows(PolicyKind::To), 0);
        assert_eq!(grows(PolicyKind::Aioli), 10_000);
        assert_eq!(grows(PolicyKind::ToAgg), 10_000);
        let files = |policy| cpu.select(policy, 100) - cpu.select(policy, 0);
        assert_eq!(files(PolicyKind::Mlf), 0, "MLF selects in O(1)");
        assert_eq!(files(PolicyKind::Aioli), 2_000, "aIOLi looks at 2 M queues");
    }

    #[test]
    fn ours_does_not_grow_and_nothing_costs_nothing() {
        for policy in PolicyKind::ALL {
            let ours = Cpu::Presagio;
            assert_eq!(
                ours.include(policy, 0, 1),
                ours.include(policy, 1 << 20, 99)
            );
            assert_eq!(
                Cpu::None.include(policy, 9, 9) + Cpu::None.select(policy, 9),
                0
            );
            assert!(ours.select(policy, 1) < Cpu::Agios.select(policy, 1));
        }
    }
}
