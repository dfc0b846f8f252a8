//! Where the tables lie in memory: what belongs to one set of each of them side by side, and the sets that are used first at
//! the end. What a program with few contexts touches is then a few pages in a row, together with what comes behind.

use crate::layout::LayoutSet;
use crate::names::NameSet;
use crate::room::{FIRST, SETS};
use crate::steps::StepSet;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// One set of each table.
#[repr(C)]
pub(crate) struct Set {
    pub(crate) layouts: LayoutSet,
    pub(crate) names: NameSet,
    pub(crate) steps: StepSet,
}

/// All of them.
#[repr(C)]
pub(crate) struct Sets {
    sets: [Set; SETS],
    turn: AtomicUsize,
}

impl Sets {
    /// The bytes before those that are used first.
    pub(crate) const UNUSED: usize = (SETS - FIRST) * size_of::<Set>();

    #[inline(always)]
    pub(crate) fn get(&self, number: usize) -> &Set {
        &self.sets[SETS - 1 - number % SETS]
    }

    /// Whose turn it is to be overwritten where all are in use.
    pub(crate) fn turn(&self) -> usize {
        self.turn.fetch_add(1, Relaxed)
    }
}
