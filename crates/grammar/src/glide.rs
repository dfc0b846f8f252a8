//! Gliding: a loop that repeats once more changes nothing.
//!
//! When the start rule ends with a repeated rule and what comes is that rule again, symbol by symbol, there is
//! nothing to learn but the counts. Building it up from its symbols, only to find at its end that it is one more
//! repetition, would be most of the cost of a periodic stream. So the symbols are put aside as long as the one
//! follower that is left is right; a whole repetition is one count more. At the first surprise they are
//! appended like any others.

use crate::followers::{Frame, Frames, begins_repetition};
use crate::store::Store;

/// More symbols than this are not put aside.
const ASIDE_MAX: usize = 1 << 16;

/// A repetition in the making.
#[derive(Clone, Debug, Default)]
pub(crate) struct Glide {
    /// Its symbols so far: terminals and how often.
    aside: Vec<(u32, u32)>,
    /// Where the last of them is in the rule.
    place: Frames,
}

impl Glide {
    pub(crate) fn memory(&self) -> usize {
        self.aside.capacity() * size_of::<(u32, u32)>()
    }

    /// Whether no repetition is in the making.
    pub(crate) fn is_over(&self) -> bool {
        self.aside.is_empty()
    }

    /// The symbols so far, in order.
    pub(crate) fn aside(&self) -> impl Iterator<Item = u32> {
        let times = |&(terminal, count): &(u32, u32)| std::iter::repeat_n(terminal, count as usize);
        self.aside.iter().flat_map(times)
    }

    /// Whether a terminal at `place` can be put aside: it must begin a repetition, or go on with one.
    pub(crate) fn takes(&self, store: &Store, place: &Frames) -> bool {
        match self.is_over() {
            true => begins_repetition(store, place),
            false => self.aside.len() < ASIDE_MAX,
        }
    }

    /// Puts a terminal aside that has come at `place`. Counts the runs that ended before it, and the repetition
    /// itself if that is over.
    pub(crate) fn take(&mut self, store: &mut Store, terminal: u32, place: &Frames) {
        if !self.is_over() {
            self.count_ended(store, place);
            if self.place[0] != place[0] {
                store.prolong(place[0].node, 1);
                self.aside.clear();
            }
        }
        match self.aside.last_mut() {
            Some((last, count)) if *last == terminal => *count += 1,
            _ => self.aside.push((terminal, 1)),
        }
        self.place.clone_from(place);
    }

    /// Ends the glide: gives back what was put aside, after having counted the runs that have not ended.
    pub(crate) fn end(&mut self, store: &mut Store) -> Vec<(u32, u32)> {
        if !self.is_over() {
            count_runs(store, &self.place[1..]);
        }
        std::mem::take(&mut self.aside)
    }

    /// Counts the runs that were not over at the last place and are at this one.
    fn count_ended(&self, store: &mut Store, place: &Frames) {
        let pairs = self.place.iter().zip(place);
        let same = pairs.take_while(|(was, is)| was == is).count();
        // A node that is repeated once more goes on; what is within it begins again.
        let goes_on = matches!((self.place.get(same), place.get(same)), (Some(a), Some(b)) if a.node == b.node);
        count_runs(store, &self.place[same + usize::from(goes_on)..]);
    }
}

fn count_runs(store: &mut Store, ended: &[Frame]) {
    for frame in ended {
        store.begin_run(frame.node, frame.lo);
    }
}
