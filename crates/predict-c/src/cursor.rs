//! A cursor as C holds it.
//!
//! A cursor of the Rust model borrows it, which C cannot promise. This one notes which way it is and how far it
//! has been read, and reads blocks of predictions from the model. The Rust cursor lives only while a block is
//! read, so what was read before is read again: with blocks that go four times as far each time, that costs a
//! third more than reading once.

use crate::fault::{Answer, Fault};
use crate::model::{Model, lock};
use crate::words;
use presagio_core::Nanos;
use presagio_predict::Predicted;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// How far the first block goes. Most cursors are read no further than a few operations.
const FIRST: usize = 4;

/// How far each block goes, in relation to the one before.
const GROWTH: usize = 4;

/// How far a cursor can be read, PRESAGIO_HORIZON: this bounds its memory.
const HORIZON: usize = 1 << 16;

/// Which way to read on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Choice {
    Best,
    Nth(usize),
}

/// `presagio_cursor`. See the module's header.
#[derive(Clone, Debug)]
pub struct Cursor {
    model: Weak<Mutex<presagio_predict::Model>>,
    changes: Arc<AtomicU64>,
    /// The model's changes when this was made: after more of them it is stale.
    made_after: u64,
    choice: Choice,
    /// Predictions that were read from the model, and not from here yet.
    block: VecDeque<Predicted>,
    /// Predictions that were read from the model.
    fetched: usize,
    /// When the last operation read from here begins.
    before: Nanos,
}

impl Cursor {
    pub(crate) fn new(model: &Model, choice: Choice) -> Cursor {
        Cursor {
            model: Arc::downgrade(&model.model),
            changes: Arc::clone(&model.changes),
            made_after: model.changes.load(Ordering::Relaxed),
            choice,
            block: VecDeque::new(),
            fetched: 0,
            before: Nanos::ZERO,
        }
    }

    /// The next operation on this way.
    pub(crate) fn next(&mut self) -> Answer<words::Predicted> {
        if self.changes.load(Ordering::Relaxed) != self.made_after {
            return Err(Fault::Stale);
        }
        if self.block.is_empty() {
            self.fetch()?;
        }
        let predicted = self.block.pop_front().ok_or(Fault::Nothing)?;
        let before = std::mem::replace(&mut self.before, predicted.after);
        Ok(words::Predicted::new(predicted, before))
    }

    /// Reads the next block from the model, nothing at the horizon.
    fn fetch(&mut self) -> Answer<()> {
        if self.fetched == HORIZON {
            return Ok(());
        }
        let model = self.model.upgrade().ok_or(Fault::Stale)?;
        let model = lock(&model)?;
        let way = match self.choice {
            Choice::Best => model.best(),
            Choice::Nth(nth) => model.predictions().nth(nth).map(|p| p.0),
        };
        let end = (self.fetched * GROWTH).clamp(FIRST, HORIZON);
        let all = way.into_iter().flatten();
        self.block.extend(all.take(end).skip(self.fetched));
        self.fetched = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use presagio_core::{Action, ContextId, Event, FileId, Layer};

    /// A model of a program that writes blocks of 1 to 7 bytes, one after the other.
    fn model() -> Model {
        let model = Model::new(presagio_predict::Model::new());
        let mut offset = 0;
        for step in 0..70 {
            let len = step % 7 + 1;
            let event = event(step, offset, len);
            model.change(|model| model.observe(&event)).unwrap();
            offset += len;
        }
        model
    }

    fn event(step: u64, offset: u64, len: u64) -> Event {
        Event {
            time: Nanos(step * 100),
            duration: Nanos(10),
            process: 0,
            thread: 0,
            file: FileId(1),
            action: Action::Write,
            layer: Layer::Posix,
            context: ContextId(len as u32),
            offset,
            len,
            result: len as i64,
        }
    }

    /// All that the Rust cursor says of a way, up to the horizon.
    fn expected(model: &Model, choice: Choice) -> Vec<Predicted> {
        let read = |model: &presagio_predict::Model| match choice {
            Choice::Best => model.best().unwrap().take(HORIZON).collect(),
            Choice::Nth(nth) => {
                let way = model.predictions().nth(nth).unwrap().0;
                way.take(HORIZON).collect()
            }
        };
        model.read(read).unwrap()
    }

    #[test]
    fn blocks_give_what_the_rust_cursor_gives_up_to_the_horizon() {
        let model = model();
        for choice in [Choice::Best, Choice::Nth(0)] {
            let mut cursor = Cursor::new(&model, choice);
            let mut before = Nanos::ZERO;
            for predicted in expected(&model, choice) {
                let expected = words::Predicted::new(predicted, before);
                assert_eq!(cursor.next().unwrap(), expected);
                before = predicted.after;
            }
            assert!(matches!(cursor.next(), Err(Fault::Nothing)));
            assert!(matches!(cursor.next(), Err(Fault::Nothing)));
        }
    }

    #[test]
    fn a_copy_goes_on_from_the_same_place_on_its_own() {
        let model = model();
        let mut cursor = Cursor::new(&model, Choice::Best);
        for _ in 0..3 {
            cursor.next().unwrap();
        }
        let mut copy = cursor.clone();
        let ahead: Vec<_> = (0..20).map(|_| cursor.next().unwrap()).collect();
        let again: Vec<_> = (0..20).map(|_| copy.next().unwrap()).collect();
        assert_eq!(ahead, again);
    }

    #[test]
    fn every_change_makes_cursors_stale_and_so_does_freeing_the_model() {
        let model = model();
        let mut cursor = Cursor::new(&model, Choice::Best);
        cursor.next().unwrap();
        model.change(|model| model.lose_track()).unwrap();
        assert!(matches!(cursor.next(), Err(Fault::Stale)));

        let mut fresh = Cursor::new(&model, Choice::Best);
        let weak = fresh.model.clone();
        drop(model);
        assert!(matches!(fresh.next(), Err(Fault::Stale)));
        assert!(weak.upgrade().is_none(), "a cursor kept the model alive");
    }

    #[test]
    fn a_model_that_panicked_is_not_used_again() {
        let model = model();
        let mut cursor = Cursor::new(&model, Choice::Best);
        let status = crate::guarded("test", || model.change(|_| panic!("on purpose")));
        assert_eq!(status, crate::Status::Broken);
        assert!(matches!(
            model.read(|model| model.observed()),
            Err(Fault::Broken)
        ));
        assert!(matches!(cursor.next(), Err(Fault::Stale)));
    }
}
