//! SW: server-side windows (Song et al. 2011; thesis 7.1.1).
//!
//! Time is cut into windows of a configured length. Requests are served window by window, in the order of
//! their arrival windows, so that nobody starves; inside a window application by application, so that all
//! servers favour the same one at the same time; inside an application in arrival order. What touches the
//! selected request and belongs to the same window and application leaves with it.

use super::{Choice, Policy};
use crate::arena::Arena;
use crate::book::{Arrival, Book, Fifo, Slot};
use crate::offsets::{Limits, Offsets};
use crate::settings::Settings;
use presagio_core::{AppId, Nanos};
use std::collections::BTreeMap;

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Sw {
    /// The requests of an application in a window; entries' tags name them.
    groups: Arena<Fifo, 256>,
    /// The groups that have requests, by the window's start and the application.
    order: BTreeMap<(Nanos, AppId), u32>,
    offsets: Offsets,
    window: Nanos,
    /// The start of the latest window, and of the latest one before the length was last changed: what
    /// arrives from then on is not in an earlier one.
    latest: Nanos,
    floor: Nanos,
    limits: Limits,
    len: usize,
}

impl Sw {
    pub(crate) fn new(settings: &Settings) -> Sw {
        Sw {
            groups: Arena::default(),
            order: BTreeMap::new(),
            offsets: Offsets::default(),
            window: settings.sw_window,
            latest: Nanos::ZERO,
            floor: Nanos::ZERO,
            limits: Limits::of(settings),
            len: 0,
        }
    }

    fn remove_all(&mut self, book: &mut Book, slots: &[Slot]) {
        for &slot in slots {
            self.offsets.remove_if_there(book, slot);
            let group = book.entries[slot].tag;
            self.groups[group].remove(book, slot);
            self.len -= 1;
        }
    }

    /// The first group in order, after forgetting those that have become empty.
    fn first_group(&mut self) -> Option<u32> {
        while let Some(entry) = self.order.first_entry() {
            let group = *entry.get();
            if !self.groups[group].is_empty() {
                return Some(group);
            }
            entry.remove();
            self.groups.free(group);
        }
        None
    }

    fn collect(&mut self, book: &mut Book, slot: Slot, out: &mut Vec<Slot>) {
        let (home, group) = (book.entries[slot].home, book.entries[slot].tag);
        let together = |other: Slot| book.entries[other].tag == group;
        self.offsets
            .run_around(book, home, slot, self.limits, together, out);
        self.remove_all(book, out);
    }
}

impl Policy for Sw {
    fn push(&mut self, book: &mut Book, arrival: &Arrival, _now: Nanos) -> bool {
        let slot = arrival.slot;
        let request = &book.entries[slot].request;
        let mut window = Nanos(request.arrival.0 / self.window.0 * self.window.0);
        if request.arrival >= self.floor {
            window = window.max(self.floor);
        }
        self.latest = self.latest.max(window);
        let groups = &mut self.groups;
        let group = *self
            .order
            .entry((window, request.app))
            .or_insert_with(|| groups.insert(Fifo::default()));
        book.entries[slot].tag = group;
        self.groups[group].push(book, slot);
        self.len += 1;
        // Alone it leaves anyway: no need to know its neighbours.
        let indexed = self.limits.requests > 1;
        if indexed {
            self.offsets.insert(arrival);
        }
        indexed
    }

    fn next(&mut self, book: &mut Book, _now: Nanos, out: &mut Vec<Slot>) -> Choice {
        let Some(group) = self.first_group() else {
            return Choice::Idle;
        };
        let head = self.groups[group].head().expect("the group is not empty");
        self.collect(book, head, out);
        Choice::Dispatch
    }

    fn take(&mut self, book: &mut Book, slot: Slot, _now: Nanos, out: &mut Vec<Slot>) {
        self.collect(book, slot, out);
    }

    fn remove(&mut self, book: &mut Book, slot: Slot) {
        self.remove_all(book, &[slot]);
    }

    fn configure(&mut self, _book: &Book, settings: &Settings) {
        if settings.sw_window != self.window {
            self.window = settings.sw_window;
            self.floor = self.latest;
        }
        self.limits = Limits::of(settings);
    }

    fn offsets(&self) -> Option<&Offsets> {
        Some(&self.offsets)
    }

    fn len(&self) -> usize {
        self.len
    }
}
