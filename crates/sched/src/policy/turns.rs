//! Taking turns without walking past those that cannot use theirs.
//!
//! Numbered queues are visited round robin, cycle after cycle, in the order of their numbers. A queue needs
//! some number of visits before it can be served (its quantum or credit grows at each); the next one to be
//! served is the least by (cycle, number), which a heap finds without visiting the others.

use crate::heap::KeyedHeap;

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Queues by the cycle in which they can be served; the heap breaks ties by number.
    due: KeyedHeap<u64>,
    cycle: u64,
    /// The queue visited last, in this cycle.
    position: Option<u32>,
}

impl Turns {
    /// The last cycle in which the queue was visited, or would have been.
    pub(crate) fn last_visit(&self, queue: u32) -> u64 {
        // Cycles count from 1, so that there is one before the first.
        let visited = self.position.is_some_and(|position| queue <= position);
        self.cycle + u64::from(visited)
    }

    /// The queue can be served at its `visits`-th visit from now (1: the next one).
    pub(crate) fn serve_after(&mut self, queue: u32, visits: u64) {
        let cycle = self.last_visit(queue).saturating_add(visits);
        self.due.set(queue, cycle);
    }

    /// The queue takes no part.
    pub(crate) fn leave(&mut self, queue: u32) {
        self.due.remove(queue);
    }

    /// Goes on to the next queue that can be served.
    pub(crate) fn advance(&mut self) -> Option<u32> {
        let (cycle, queue) = self.due.peek()?;
        self.cycle = cycle - 1;
        self.position = Some(queue);
        Some(queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_take_turns_in_the_order_of_their_numbers() {
        let mut turns = Turns::default();
        (0..3).for_each(|q| turns.serve_after(q, 1));
        let order: Vec<u32> = (0..6)
            .map(|_| {
                let queue = turns.advance().unwrap();
                turns.serve_after(queue, 1);
                queue
            })
            .collect();
        assert_eq!(order, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn a_queue_that_needs_three_visits_is_served_every_third_cycle() {
        let mut turns = Turns::default();
        turns.serve_after(0, 1);
        turns.serve_after(1, 3);
        let order: Vec<u32> = (0..8)
            .map(|_| {
                let queue = turns.advance().unwrap();
                turns.serve_after(queue, if queue == 0 { 1 } else { 3 });
                queue
            })
            .collect();
        assert_eq!(order, [0, 0, 0, 1, 0, 0, 0, 1]);
    }

    #[test]
    fn a_newcomer_behind_the_position_waits_for_the_next_cycle() {
        let mut turns = Turns::default();
        turns.serve_after(1, 1);
        turns.serve_after(2, 1);
        assert_eq!(turns.advance(), Some(1));
        turns.serve_after(1, 1);
        turns.serve_after(0, 1);
        assert_eq!(turns.advance(), Some(2));
        turns.leave(2);
        assert_eq!(turns.advance(), Some(0));
    }
}
