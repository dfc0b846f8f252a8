//! The policies. Each is a passive queue with an opinion about order and time.
//!
//! A policy reads like its paper's paragraph: state, push, next. It owns the order of the requests that were
//! pushed to it; the requests themselves are in the [`Book`], the ordering guard and the starvation bound are
//! the [`Scheduler`](crate::Scheduler)'s.

mod aioli;
mod hbrr;
mod mlf;
mod quanta;
mod sjf;
mod sw;
mod time_order;
mod to_agg;
mod turns;
mod twins;
mod waits;
mod wfq;

use crate::book::{Arrival, Book, Slot};
use crate::offsets::Offsets;
use crate::settings::{PolicyKind, Settings};
use presagio_core::Nanos;
use std::fmt::Debug;

/// What a policy wants now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Dispatch the requests it has put into `out`.
    Dispatch,
    /// Nothing before this moment, unless a request arrives or finishes.
    WaitUntil(Nanos),
    /// Nothing until a request arrives or finishes.
    Idle,
}

/// A scheduling policy. `out` is always empty when passed in, and receives slots in offset order.
pub(crate) trait Policy: Debug + Send {
    /// Takes a request that is free to go; whether it has entered it in its index by offset.
    fn push(&mut self, book: &mut Book, arrival: &Arrival, now: Nanos) -> bool;

    /// Chooses what to dispatch, and removes it from its queues.
    fn next(&mut self, book: &mut Book, now: Nanos, out: &mut Vec<Slot>) -> Choice;

    /// Gives out a certain request that has waited too long, with what can be batched with it.
    fn take(&mut self, book: &mut Book, slot: Slot, now: Nanos, out: &mut Vec<Slot>);

    /// Removes a cancelled request.
    fn remove(&mut self, book: &mut Book, slot: Slot);

    /// All parts of a batch from this policy are finished.
    fn served(&mut self) {}

    /// Whether it dispatches nothing until a batch is finished.
    fn is_busy(&self) -> bool {
        false
    }

    /// Takes over changed parameters; queued requests stay.
    fn configure(&mut self, book: &Book, settings: &Settings);

    /// The numbers of this file were another's before: forget what was learned of that one.
    fn forget(&mut self, _home: u32) {}

    /// Its index by offset, if it has one, for the guard to look into.
    fn offsets(&self) -> Option<&Offsets> {
        None
    }

    /// How many requests it has.
    fn len(&self) -> usize;
}

/// A fresh policy of the kind that `settings` name.
pub(crate) fn build(settings: &Settings) -> Box<dyn Policy> {
    match settings.policy {
        PolicyKind::Noop | PolicyKind::To => Box::new(time_order::TimeOrder::default()),
        PolicyKind::ToAgg => Box::new(to_agg::ToAgg::new(settings)),
        PolicyKind::Sjf => Box::new(sjf::Sjf::new(settings)),
        PolicyKind::Mlf => Box::new(mlf::Mlf::new(settings)),
        PolicyKind::Aioli => Box::new(aioli::Aioli::new(settings)),
        PolicyKind::Sw => Box::new(sw::Sw::new(settings)),
        PolicyKind::Twins => Box::new(twins::Twins::new(settings)),
        PolicyKind::Wfq => Box::new(wfq::Wfq::new(settings)),
        PolicyKind::Hbrr => Box::new(hbrr::Hbrr::new(settings)),
    }
}

/// Quanta and credits count no more bytes than this (1 TiB) for one request or batch: an absurd length must
/// not take an absurd number of steps, of which there are 2⁶⁴.
const BYTES_COUNTED_MAX: u64 = 1 << 40;

/// The element `index` of a list that grows on demand.
fn at_mut<T: Default>(list: &mut Vec<T>, index: u32) -> &mut T {
    let index = index as usize;
    if index >= list.len() {
        list.resize_with(index + 1, T::default);
    }
    &mut list[index]
}
