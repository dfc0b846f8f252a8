//! The names that were given out before: whoever asks first learns that a context is fresh.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

const FAR: usize = 1 << 16;

/// Places that are all that most programs touch: a few of them are looked at first.
const NEAR: usize = 128;
const PROBES_NEAR: usize = 8;

/// Places that are looked at for one name.
const PROBES: usize = 128 + PROBES_NEAR;

/// What became of a name that was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Never shown before.
    First,
    /// Shown before.
    Again,
    /// There was no room to remember it.
    Unknown,
}

/// All names given out so far, as far as there was room: here first, and then there. Nothing is ever taken out.
pub(crate) type Near = [AtomicU64; NEAR];
pub(crate) type Far = [AtomicU64; FAR];

/// Shows a name; of all threads that show it, exactly one is told that it was the first.
pub(crate) fn show(near: &Near, far: &Far, id: u64) -> Seen {
    for probe in 0..PROBES {
        let at = (id as usize).wrapping_add(probe);
        let place = match probe < PROBES_NEAR {
            true => &near[at % NEAR],
            false => &far[at % FAR],
        };
        match place.compare_exchange(0, id, Relaxed, Relaxed) {
            Ok(_) => return Seen::First,
            Err(held) if held == id => return Seen::Again,
            Err(_) => {}
        }
    }
    Seen::Unknown
}
