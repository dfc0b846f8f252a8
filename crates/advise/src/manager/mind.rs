//! What decides: a [`Strategy`] that can also say why it did what it did, and keep what it learned.

use super::summary::Waited;
use crate::plan::Strategy;
use crate::strategy::{Adaptive, Followed};

/// A strategy as the manager runs it.
pub trait Mind: Strategy {
    /// What was decided and why, a plain sentence each, the most important first.
    fn explain(&self) -> Vec<String> {
        Vec::new()
    }

    /// What reads waited with what was done and without it, where both were measured, in the same order.
    fn waits(&self) -> Vec<Waited> {
        Vec::new()
    }

    /// What recordings of earlier reads told of those that came.
    fn followed(&self) -> Followed {
        Followed::default()
    }

    /// What should be known in the next run of the same command.
    fn remember(&mut self) -> Option<Vec<u8>> {
        None
    }
}

/// Makes a mind out of what it remembered of an earlier run, if it did.
pub type MakeMind = dyn FnOnce(Option<&[u8]>) -> Box<dyn Mind>;

impl Mind for Adaptive {
    /// The last files first: who looks at a summary remembers those.
    fn explain(&self) -> Vec<String> {
        let told = Adaptive::explain(self).into_iter().rev();
        told.map(|(path, sentence)| format!("{}: {sentence}", path.display()))
            .collect()
    }

    fn waits(&self) -> Vec<Waited> {
        let waits = Adaptive::waits(self).into_iter().rev();
        let waited = waits.map(|(path, wait)| Waited {
            name: path.display().to_string(),
            method: wait.method.to_owned(),
            with_ns: wait.with_ns,
            without_ns: wait.without_ns,
            with_reads: wait.with_reads,
            without_reads: wait.without_reads,
        });
        waited.collect()
    }

    fn followed(&self) -> Followed {
        Adaptive::followed(self)
    }

    fn remember(&mut self) -> Option<Vec<u8>> {
        Some(self.save())
    }
}
