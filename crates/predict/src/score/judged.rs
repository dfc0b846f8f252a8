//! How well a model foresaw what then happened: sums that can be added up over processes. Only its likeliest
//! prediction counts, so that this costs little more than to observe: for live runs, and for traces of any length.

use crate::{Model, Predicted, PredictedFile};
use presagio_core::{Action, Event};

/// A prediction that is at least so likely counts as one.
const CONFIDENT: f64 = 0.5;

/// See the module's header.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Judged {
    /// Operations that were held against a prediction, or the lack of one.
    pub operations: u64,
    /// Those that a model was confident about.
    pub confident: u64,
    /// Those of them that were exactly as predicted: what, file, offset and length.
    pub confident_right: u64,
    /// Those that came from the predicted call stack.
    pub context_right: u64,
    /// Those that were exactly as predicted, confidently or not.
    pub right: u64,
    /// Reads and writes among them.
    pub transfers: u64,
    /// Those whose file and offset were right.
    pub offset_right: u64,
    /// Those whose length was right.
    pub size_right: u64,
    /// Sum of hit ratios of transfers, from 0 to 1 each (Omnisc'IO, Eq. 3).
    pub hit: f64,
}

impl Judged {
    /// Asks the model what comes next, lets it see what came, and counts.
    pub fn observe(&mut self, model: &mut Model, event: &Event, knows_file: bool) {
        let next = model.best().and_then(|mut cursor| {
            let symbol = cursor.peek_symbol();
            Some((symbol, cursor.next()?))
        });
        model.observe(event);
        self.operations += 1;
        self.transfers += u64::from(event.action.is_transfer());
        let Some((symbol, predicted)) = next else {
            return;
        };
        let context_right = symbol.is_some() && symbol == model.last_symbol();
        self.context_right += u64::from(context_right);
        self.hold(&predicted, event, knows_file);
    }

    fn hold(&mut self, predicted: &Predicted, event: &Event, knows_file: bool) {
        let file = match predicted.file {
            PredictedFile::Known(file) => file == event.file,
            PredictedFile::New(_) => !knows_file,
        };
        let same = predicted.action == event.action;
        let place = file && (!has_offset(event.action) || predicted.offset == event.offset);
        let size = !event.action.is_transfer() || predicted.len == event.len;
        let right = same && place && size;
        self.right += u64::from(right);
        if predicted.confidence >= CONFIDENT {
            self.confident += 1;
            self.confident_right += u64::from(right);
        }
        if event.action.is_transfer() {
            self.offset_right += u64::from(same && place);
            self.size_right += u64::from(same && size);
            self.hit += hit_ratio(predicted, event, file);
        }
    }

    /// Adds another sum.
    pub fn add(&mut self, other: &Judged) {
        self.operations += other.operations;
        self.confident += other.confident;
        self.confident_right += other.confident_right;
        self.context_right += other.context_right;
        self.right += other.right;
        self.transfers += other.transfers;
        self.offset_right += other.offset_right;
        self.size_right += other.size_right;
        self.hit += other.hit;
    }
}

fn has_offset(action: Action) -> bool {
    use Action::{Close, Open, Remove, Sync};
    !matches!(action, Open | Close | Sync | Remove)
}

/// The common part of both ranges in the span from the first to the last byte of either.
fn hit_ratio(predicted: &Predicted, event: &Event, is_file: bool) -> f64 {
    if !is_file || !predicted.action.is_transfer() || predicted.len == 0 || event.len == 0 {
        return 0.0;
    }
    let ends = [
        predicted.offset.saturating_add(predicted.len),
        event.offset.saturating_add(event.len),
    ];
    let begin = predicted.offset.max(event.offset);
    let common = ends[0].min(ends[1]).saturating_sub(begin);
    let span = ends[0].max(ends[1]) - predicted.offset.min(event.offset);
    common as f64 / span as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use presagio_core::{ContextId, FileId, Layer, Nanos};

    fn read(step: u64) -> Event {
        Event {
            time: Nanos(step * 1000),
            duration: Nanos(100),
            process: 0,
            thread: 0,
            file: FileId(1),
            action: Action::Read,
            layer: Layer::Posix,
            context: ContextId(1),
            offset: step * 4096,
            len: 4096,
            result: 4096,
        }
    }

    #[test]
    fn a_regular_reader_is_foreseen_and_a_jump_is_not() {
        let (mut judged, mut model) = (Judged::default(), Model::new());
        (0..100).for_each(|step| judged.observe(&mut model, &read(step), step > 0));
        assert_eq!((judged.operations, judged.transfers), (100, 100));
        assert!(judged.right >= 95, "{judged:?}");
        assert!(judged.confident_right >= 90, "{judged:?}");
        let before = judged;
        judged.observe(&mut model, &read(1_000_000), true);
        assert_eq!(judged.right, before.right);
        assert_eq!(judged.size_right, before.size_right + 1);
    }
}
