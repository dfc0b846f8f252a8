//! Call stacks: numbers for them, and their frames for the trace.
//!
//! Programs name a call stack by 64 bits that are the same in every run. A trace and its events have small numbers, so
//! each gets one here, for all processes alike.

use presagio_arena::{self as arena, Origin};
use presagio_core::{ContextId, IdHashMap};
use presagio_trace::{Frame, Record};
use std::sync::Arc;

/// More call stacks than these are not told apart: a program gone mad must not fill our memory.
const CONTEXTS_MAX: usize = 1 << 20;
/// The same for the modules of one process.
const MODULES_MAX: u32 = 4096;

/// See the module's header.
#[derive(Debug, Default)]
pub(super) struct Contexts {
    numbers: IdHashMap<u64, u32>,
    /// Names of modules, by process id, image and number.
    modules: IdHashMap<(u32, u32, u32), Arc<str>>,
    /// Definitions that are not in the trace yet.
    fresh: Vec<Record>,
    /// Whether there is a trace, and frames are wanted.
    traced: bool,
}

impl Contexts {
    pub fn new(traced: bool) -> Contexts {
        Contexts {
            traced,
            ..Contexts::default()
        }
    }

    /// The number of a call stack, 0 if it is not known.
    pub fn number(&mut self, stack: u64) -> ContextId {
        if stack == 0 {
            return ContextId::UNKNOWN;
        }
        if let Some(number) = self.numbers.get(&stack) {
            return ContextId(*number);
        }
        if self.numbers.len() >= CONTEXTS_MAX {
            return ContextId::UNKNOWN;
        }
        let number = self.numbers.len() as u32 + 1;
        self.numbers.insert(stack, number);
        ContextId(number)
    }

    /// How many call stacks there were.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// A process says what one of its modules is called.
    pub fn module(&mut self, origin: &Origin, index: u32, name: &[u8]) {
        if self.traced && index < MODULES_MAX {
            let key = (origin.pid, origin.image, index);
            let name = String::from_utf8_lossy(name);
            self.modules.insert(key, name.into());
        }
    }

    /// A process says what a call stack consists of. Others may have said it before.
    pub fn frames(&mut self, origin: &Origin, stack: u64, frames: &[arena::Frame]) {
        if !self.traced || self.numbers.contains_key(&stack) {
            return;
        }
        let id = self.number(stack);
        if id == ContextId::UNKNOWN {
            return;
        }
        let frames = frames.iter().map(|frame| self.frame(origin, frame));
        let frames = frames.collect();
        self.fresh.push(Record::Context { id, frames });
    }

    fn frame(&self, origin: &Origin, frame: &arena::Frame) -> Frame {
        let module = self
            .modules
            .get(&(origin.pid, origin.image, frame.module))
            .cloned();
        Frame {
            module: module.unwrap_or_else(|| "?".into()),
            offset: frame.offset,
            symbol: None,
        }
    }

    /// Definitions to be written before what comes next.
    pub fn take_fresh(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.fresh)
    }

    /// A process is gone: nobody refers to its modules any more.
    pub fn forget(&mut self, pid: u32) {
        if self.traced {
            self.modules.retain(|key, _| key.0 != pid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_has_one_number_and_is_defined_once() {
        let mut contexts = Contexts::new(true);
        let origin = Origin {
            pid: 7,
            ..Origin::default()
        };
        contexts.module(&origin, 3, b"/bin/app");
        let frame = arena::Frame {
            module: 3,
            offset: 16,
        };
        contexts.frames(&origin, 0xabc, &[frame]);
        contexts.frames(&origin, 0xabc, &[frame]);
        let fresh = contexts.take_fresh();
        assert_eq!(fresh.len(), 1);
        assert!(
            matches!(&fresh[0], Record::Context { id, frames } if *id == contexts.number(0xabc)
                && &*frames[0].module == "/bin/app" && frames[0].offset == 16)
        );
        assert_eq!(contexts.number(0), ContextId::UNKNOWN);
        assert_ne!(contexts.number(0xabd), contexts.number(0xabc));
    }
}
