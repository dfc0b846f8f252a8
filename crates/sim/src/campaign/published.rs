//! What the thesis found best in each situation: Table 3.8, whose cells are lost in the text, by the summaries that end
//! 3.2.3.2 to 3.2.3.5.

use super::Situation;
use crate::scenario::{Files, PolicyChoice};
use presagio_core::Op;
use presagio_sched::PolicyKind;

const NONE: PolicyChoice = PolicyChoice::None;
const TO: PolicyChoice = PolicyChoice::Policy(PolicyKind::To);
const TO_AGG: PolicyChoice = PolicyChoice::Policy(PolicyKind::ToAgg);
const SJF: PolicyChoice = PolicyChoice::Policy(PolicyKind::Sjf);
const MLF: PolicyChoice = PolicyChoice::Policy(PolicyKind::Mlf);
const AIOLI: PolicyChoice = PolicyChoice::Policy(PolicyKind::Aioli);

impl Situation {
    /// What the thesis names as the best choices; where it prefers one of several, that is the first.
    pub fn published(&self) -> &'static [PolicyChoice] {
        match (self.apps, self.files) {
            (1, Files::Shared) => self.one_shared(),
            (_, Files::Shared) => self.four_shared(),
            (1, Files::PerProcess) => self.one_with_own_files(),
            (_, Files::PerProcess) => self.four_with_own_files(),
        }
    }

    /// Whether the thesis names aIOLi, before others or alone.
    pub fn is_aiolis(&self) -> bool {
        self.published().first() == Some(&AIOLI)
    }

    /// 3.2.3.2.
    fn one_shared(&self) -> &'static [PolicyChoice] {
        let large = self.class.is_large();
        match (self.platform.device, self.op) {
            ("edel", _) if large => &[AIOLI],
            ("edel", _) => &[SJF],
            (_, Op::Write) if large => &[AIOLI],
            ("suno", _) => &[SJF, TO_AGG],
            ("graphene", Op::Write) => &[SJF],
            // It says to avoid AGIOS, whose TO cost something.
            _ => &[NONE, TO],
        }
    }

    /// 3.2.3.3.
    fn four_shared(&self) -> &'static [PolicyChoice] {
        let (large, contiguous) = (self.class.is_large(), self.class.is_contiguous());
        match (self.platform.device, self.op) {
            ("pastel", _) => &[AIOLI, MLF],
            ("graphene", Op::Read) if contiguous && !large => &[NONE],
            ("graphene", _) => &[MLF],
            ("suno", _) => &[SJF, TO_AGG, MLF, AIOLI],
            (_, Op::Read) if large => &[AIOLI],
            (_, Op::Read) => &[TO_AGG],
            (_, Op::Write) => &[SJF, NONE],
        }
    }

    /// 3.2.3.4.
    fn one_with_own_files(&self) -> &'static [PolicyChoice] {
        match self.platform.device {
            "pastel" => &[AIOLI, MLF, SJF, TO_AGG],
            "edel" => &[TO_AGG],
            _ => &[SJF],
        }
    }

    /// 3.2.3.5.
    fn four_with_own_files(&self) -> &'static [PolicyChoice] {
        match (self.platform.device, self.op) {
            ("pastel", _) => &[AIOLI],
            ("edel", Op::Read) if self.processes <= 16 => &[AIOLI],
            ("edel", Op::Read) => &[TO_AGG],
            _ => &[SJF],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Situation;
    use crate::Cpu;

    /// Two and two for large writes of one application, eight of four that share, four and four with files of their own.
    #[test]
    fn aioli_is_named_in_twenty_cells_of_the_two_clusters_with_disks() {
        let all = Situation::all(&[8], 1 << 20, Cpu::Agios);
        let cells = |device: &str| {
            let here = all.iter().filter(|s| s.platform.device == device);
            here.filter(|s| s.is_aiolis()).count()
        };
        assert_eq!((cells("pastel"), cells("graphene")), (18, 2));
        assert!(all.iter().all(|s| !s.published().is_empty()));
    }
}
