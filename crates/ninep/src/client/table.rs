//! The requests that are under way, by tag: what each waits for, what became of it, and who is to be woken.
//!
//! ```text
//!            reply                collected
//! Waiting ──────────▶ Answered ──────────────▶ free
//!    │ ticket dropped            reply
//!    ├─────────────▶ Forgotten ──────────────▶ free
//!    │ timed out or cancelled           Rflush
//!    └─────────────▶ Flushing (± its reply) ─▶ free, or the canceller's to take
//! ```
//!
//! A tag is not used again before its reply, or the `Rflush` of its cancellation, has come.

use super::answer::Delivery;
use super::error::Lost;
use crate::ids::{Kind, Tag};
use std::sync::Arc;
use std::thread::Thread;
use std::time::Instant;

/// What is known of a request.
#[derive(Debug)]
pub(super) struct Slot {
    state: State,
    /// Its type, for those who ask what is under way.
    pub(super) kind: Kind,
    /// The type of the reply that it gets if it succeeds.
    expects: Kind,
    /// Bytes of data that the reply may carry.
    limit: u32,
    /// Where they go, if the caller gave a buffer away.
    into: Option<Vec<u8>>,
    /// The request that this one cancels.
    cancels: Option<Tag>,
    /// Whether all of it was handed to the socket, or might have been.
    sent: bool,
    pub(super) since: Instant,
}

#[derive(Debug)]
enum State {
    Free,
    Waiting,
    Answered(Delivery),
    Forgotten,
    Flushing {
        reply: Option<Delivery>,
        /// Somebody waits for the end of the cancellation and frees the slot.
        owned: bool,
    },
}

/// A request to be registered.
pub(super) struct Entry {
    pub(super) kind: Kind,
    pub(super) expects: Kind,
    pub(super) limit: u32,
    pub(super) into: Option<Vec<u8>>,
}

/// Somebody who sleeps until its reply has come, or until it is its turn to read.
struct Sleeper {
    tag: Option<Tag>,
    thread: Thread,
}

pub(super) struct Table {
    slots: Vec<Slot>,
    free: Vec<u16>,
    in_flight_max: usize,
    sleepers: Vec<Sleeper>,
    /// Cancellations to be sent, by the tag of their own.
    pub(super) flushes: Vec<(Tag, Tag)>,
    /// Somebody reads.
    pub(super) reading: bool,
    pub(super) dead: Option<Arc<Lost>>,
}

impl Table {
    pub(super) fn new(in_flight_max: usize) -> Table {
        Table {
            slots: Vec::new(),
            free: Vec::new(),
            in_flight_max: in_flight_max.clamp(1, usize::from(Tag::NONE.0)),
            sleepers: Vec::new(),
            flushes: Vec::new(),
            reading: false,
            dead: None,
        }
    }

    pub(super) fn in_flight_max(&self) -> usize {
        self.in_flight_max
    }

    /// Whether `count` more requests may begin.
    pub(super) fn has_room(&self, count: usize) -> bool {
        self.free.len() + (self.in_flight_max - self.slots.len()) >= count
    }

    /// Begins a request, if there is room for it.
    pub(super) fn begin(&mut self, entry: Entry, now: Instant) -> Option<Tag> {
        let slot = Slot {
            state: State::Waiting,
            kind: entry.kind,
            expects: entry.expects,
            limit: entry.limit,
            into: entry.into,
            cancels: None,
            sent: true,
            since: now,
        };
        if let Some(tag) = self.free.pop() {
            self.slots[usize::from(tag)] = slot;
            return Some(Tag(tag));
        }
        if self.slots.len() == self.in_flight_max {
            return None;
        }
        self.slots.push(slot);
        Some(Tag((self.slots.len() - 1) as u16))
    }

    fn slot(&mut self, tag: Tag) -> &mut Slot {
        &mut self.slots[usize::from(tag.0)]
    }

    /// Lets a tag be used again.
    fn release(&mut self, tag: Tag) {
        let slot = self.slot(tag);
        (slot.state, slot.into, slot.cancels) = (State::Free, None, None);
        self.free.push(tag.0);
        self.wake(None);
    }

    /// A request that was begun and did not leave the machine.
    pub(super) fn withdraw(&mut self, tag: Tag) {
        self.release(tag);
    }

    /// A request that was begun, and of which the connection broke before all was sent.
    pub(super) fn mark_unsent(&mut self, tag: Tag) {
        self.slot(tag).sent = false;
    }

    pub(super) fn was_sent(&self, tag: Tag) -> bool {
        self.slots[usize::from(tag.0)].sent
    }

    /// Takes the reply, if it has come, and frees the tag.
    pub(super) fn collect(&mut self, tag: Tag) -> Option<Delivery> {
        let slot = self.slot(tag);
        if !matches!(slot.state, State::Answered(_)) {
            return None;
        }
        let State::Answered(delivery) = std::mem::replace(&mut slot.state, State::Free) else {
            return None;
        };
        self.release(tag);
        Some(delivery)
    }

    pub(super) fn is_answered(&self, tag: Tag) -> bool {
        matches!(self.slots[usize::from(tag.0)].state, State::Answered(_))
    }

    /// Nobody will collect the reply.
    pub(super) fn forget(&mut self, tag: Tag) {
        let slot = self.slot(tag);
        slot.into = None;
        match slot.state {
            State::Waiting => slot.state = State::Forgotten,
            State::Flushing { ref mut owned, .. } => *owned = false,
            State::Answered(_) => self.release(tag),
            State::Free | State::Forgotten => {}
        }
    }

    /// Cancels a request. Returns the tag of the cancellation, which the caller has to collect if it `waits` and which
    /// is among the `flushes` to be sent; none if there is no room for one, and then the request is merely forgotten.
    pub(super) fn cancel(&mut self, tag: Tag, waits: bool, now: Instant) -> Option<Tag> {
        let entry = Entry {
            kind: Kind(108),
            expects: Kind(109),
            limit: 0,
            into: None,
        };
        let Some(flush) = self.begin(entry, now) else {
            self.forget(tag);
            return None;
        };
        self.slot(flush).cancels = Some(tag);
        if !waits {
            self.slot(flush).state = State::Forgotten;
        }
        self.slot(tag).state = State::Flushing {
            reply: None,
            owned: waits,
        };
        self.flushes.push((flush, tag));
        Some(flush)
    }

    /// The canceller takes what came before its `Rflush`, and frees the tag.
    pub(super) fn collect_cancelled(&mut self, tag: Tag) -> Option<Delivery> {
        let state = std::mem::replace(&mut self.slot(tag).state, State::Free);
        self.release(tag);
        match state {
            State::Flushing { reply, .. } => reply,
            State::Answered(reply) => Some(reply),
            _ => None,
        }
    }

    /// Checks that a reply of this type is due.
    fn due(&mut self, tag: Tag, kind: Kind) -> Result<&mut Slot, Lost> {
        let slot = self.slots.get_mut(usize::from(tag.0));
        let Some(slot) = slot.filter(|slot| slot.is_due()) else {
            return Err(Lost::NotAsked { kind, tag });
        };
        match kind == slot.expects || kind == Kind::LERROR {
            true => Ok(slot),
            false => Err(Lost::OtherKind {
                tag,
                got: kind,
                wanted: slot.expects,
            }),
        }
    }

    /// Checks that a reply with `count` bytes of data is due, and says whether anybody wants them.
    pub(super) fn admit(&mut self, tag: Tag, kind: Kind, count: u32) -> Result<bool, Lost> {
        let slot = self.due(tag, kind)?;
        if count > slot.limit {
            let (got, limit) = (count, slot.limit);
            return Err(Lost::TooMuch { tag, got, limit });
        }
        Ok(match slot.state {
            State::Forgotten => false,
            State::Flushing { owned, .. } => owned,
            _ => true,
        })
    }

    /// The buffer that the data of a reply goes to: the one that the caller gave away, or a new one.
    pub(super) fn buffer(&mut self, tag: Tag, count: usize) -> Vec<u8> {
        let Some(mut buffer) = self.slot(tag).into.take() else {
            return vec![0; count];
        };
        buffer.resize(count, 0);
        buffer
    }

    /// A reply has come: keeps it, and wakes who waits for it.
    pub(super) fn deliver(&mut self, tag: Tag, kind: Kind, delivery: Delivery) -> Result<(), Lost> {
        let slot = self.due(tag, kind)?;
        let cancelled = slot.cancels.take();
        match &mut slot.state {
            State::Flushing { reply, .. } => *reply = Some(delivery),
            State::Forgotten => self.release(tag),
            _ => {
                slot.state = State::Answered(delivery);
                self.wake(Some(tag));
            }
        }
        if let Some(cancelled) = cancelled {
            self.flushed(cancelled);
        }
        Ok(())
    }

    fn flushed(&mut self, tag: Tag) {
        if let State::Flushing { owned: false, .. } = self.slot(tag).state {
            self.release(tag);
        }
    }

    /// The connection is gone: wakes everybody.
    pub(super) fn die(&mut self, why: Lost) {
        self.dead.get_or_insert_with(|| Arc::new(why));
        for sleeper in self.sleepers.drain(..) {
            sleeper.thread.unpark();
        }
    }

    /// The calling thread is about to sleep, for a reply or for room.
    pub(super) fn sleep(&mut self, tag: Option<Tag>) {
        let thread = std::thread::current();
        self.sleepers.push(Sleeper { tag, thread });
    }

    /// The calling thread is awake again.
    pub(super) fn awake(&mut self) {
        let me = std::thread::current().id();
        self.sleepers.retain(|sleeper| sleeper.thread.id() != me);
    }

    /// Wakes who waits for a tag, or for room.
    fn wake(&mut self, tag: Option<Tag>) {
        let found = self.sleepers.iter().position(|sleeper| sleeper.tag == tag);
        if let Some(at) = found {
            self.sleepers.swap_remove(at).thread.unpark();
        }
    }

    /// Wakes one sleeper to read on, if nobody does.
    pub(super) fn pass_on(&mut self) {
        if !self.reading && !self.sleepers.is_empty() {
            self.sleepers.swap_remove(0).thread.unpark();
        }
    }

    /// The requests that have no answer yet.
    pub(super) fn outstanding(&self) -> impl Iterator<Item = (Tag, &Slot)> {
        let slots = self.slots.iter().enumerate();
        slots
            .filter(|(_, slot)| slot.is_due())
            .map(|(tag, slot)| (Tag(tag as u16), slot))
    }
}

impl Slot {
    /// Whether a reply may come.
    fn is_due(&self) -> bool {
        matches!(
            self.state,
            State::Waiting | State::Forgotten | State::Flushing { reply: None, .. }
        )
    }
}
