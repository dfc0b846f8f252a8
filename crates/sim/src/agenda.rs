//! What is going to happen, by time: a heap of small events.
//!
//! An event is one 128-bit number: its moment, the order in which it was entered, and what happens. Comparing two is
//! comparing numbers, and events of the same moment come out in the order in which they went in, so that a run can be
//! repeated exactly. The heap has four children a node: half the levels, and siblings that share a cache line.

/// What happens, in 32 bits: a kind and the number of whom it happens to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct What(pub u32);

/// Bits of the number; the rest is the kind.
const NUMBER_BITS: u32 = 28;

impl What {
    /// How many of a kind can be told apart.
    pub(crate) const NUMBERS: u32 = 1 << NUMBER_BITS;

    /// What happens to one whose number is too large: it would be taken for another kind.
    pub(crate) const TOO_MANY: What = What(u32::MAX);

    #[inline]
    pub(crate) fn new(kind: u32, number: u32) -> What {
        debug_assert!(kind < 15);
        match number < What::NUMBERS {
            true => What(kind << NUMBER_BITS | number),
            false => What::TOO_MANY,
        }
    }

    #[inline]
    pub(crate) fn kind(self) -> u32 {
        self.0 >> NUMBER_BITS
    }

    #[inline]
    pub(crate) fn number(self) -> u32 {
        self.0 & (What::NUMBERS - 1)
    }
}

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    heap: Vec<u128>,
    entered: u32,
}

const CHILDREN: usize = 4;

impl Agenda {
    /// Enters an event.
    #[inline]
    pub(crate) fn add(&mut self, moment: u64, what: What) {
        let order = self.entered;
        self.entered = order.wrapping_add(1);
        let event = u128::from(moment) << 64 | u128::from(order) << 32 | u128::from(what.0);
        let mut at = self.heap.len();
        self.heap.push(event);
        while at > 0 {
            let parent = (at - 1) / CHILDREN;
            if self.heap[parent] <= event {
                break;
            }
            self.heap[at] = self.heap[parent];
            at = parent;
        }
        self.heap[at] = event;
    }

    /// Takes out the next event: its moment and what happens.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<(u64, What)> {
        let last = self.heap.pop()?;
        let first = match self.heap.first() {
            None => last,
            Some(&first) => {
                self.sink(last);
                first
            }
        };
        Some(((first >> 64) as u64, What(first as u32)))
    }

    /// Puts an event where the first was and moves it down to its place.
    #[inline]
    fn sink(&mut self, event: u128) {
        let heap = &mut self.heap[..];
        let mut at = 0;
        loop {
            let from = at * CHILDREN + 1;
            let Some(children) = heap.get(from..(from + CHILDREN).min(heap.len())) else {
                break;
            };
            let mut least = event;
            let mut place = at;
            for (i, &child) in children.iter().enumerate() {
                if child < least {
                    (least, place) = (child, from + i);
                }
            }
            if place == at {
                break;
            }
            heap[at] = least;
            at = place;
        }
        heap[at] = event;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever goes in and out: always the earliest, and of equals the one that was entered first.
        #[test]
        fn events_come_by_time_and_then_by_entry(moments in prop::collection::vec((0_u64..50, any::<bool>()), 1..300)) {
            let mut agenda = Agenda::default();
            let mut model: Vec<(u64, u32)> = Vec::new();
            for (number, (moment, take)) in moments.into_iter().enumerate() {
                agenda.add(moment, What::new(3, number as u32));
                model.push((moment, number as u32));
                if take {
                    let least = *model.iter().min().expect("one was just added");
                    model.retain(|e| *e != least);
                    prop_assert_eq!(agenda.next(), Some((least.0, What::new(3, least.1))));
                }
            }
            model.sort_unstable();
            for (moment, number) in model {
                prop_assert_eq!(agenda.next(), Some((moment, What::new(3, number))));
            }
            prop_assert_eq!(agenda.next(), None);
        }
    }

    #[test]
    fn kind_and_number_are_kept_apart() {
        let what = What::new(14, What::NUMBERS - 1);
        assert_eq!((what.kind(), what.number()), (14, What::NUMBERS - 1));
    }

    #[test]
    fn a_number_that_is_too_large_is_taken_for_nobody_elses() {
        for number in [What::NUMBERS, What::NUMBERS + 1, u32::MAX] {
            let what = What::new(3, number);
            assert_eq!(what, What::TOO_MANY);
            assert_eq!(what.kind(), 15, "which is no kind of event");
        }
    }
}
