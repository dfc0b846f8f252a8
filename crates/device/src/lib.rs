//! What a storage device would take: models that answer when a read or a write would be done.
//!
//! A [`Device`] is a state machine in virtual time. Whoever drives it (the simulator, or the emulated storage of an
//! I/O node) says what is asked for, at which address and when; the answer is the moment at which a real device would
//! be done. The same calls give the same answers in every run.
//!
//! * [`Hdd`]: one head that seeks, platters that turn.
//! * [`Raid0`]: several of them, side by side.
//! * [`Ssd`]: channels that work in parallel.
//! * [`Fitted`]: as fast as a [`Profile`] says, which `presagio profile` measures on a real one.
//!
//! [`Model`] is any of them with its parameters, and knows the presets by name.
//!
//! ```
//! use presagio_core::{Nanos, Op, Range};
//! use presagio_device::Model;
//!
//! let mut disk = Model::named("hdd")?.device()?;
//! let first = disk.serve(Op::Read, Range::at(0, 1 << 20), Nanos::ZERO);
//! let next = disk.serve(Op::Read, Range::at(1 << 20, 1 << 20), first);
//! let far = disk.serve(Op::Read, Range::at(1 << 40, 1 << 20), next);
//! assert!(far - next > next - first, "a seek costs more than going on");
//! # Ok::<(), presagio_device::ModelError>(())
//! ```
//!
//! *Invariants.* Nothing here does I/O, reads a clock or draws a random number. A request is never done before it was
//! asked for, and no parameters that [`Model::device`] accepts make an answer overflow: it saturates.

#![forbid(unsafe_code)]

mod error;
mod fitted;
mod hdd;
mod model;
mod preset;
pub mod profile;
mod raid;
mod ssd;

pub use error::ModelError;
pub use fitted::Fitted;
pub use hdd::{Hdd, HddParameters};
pub use model::Model;
pub use profile::{Profile, ProfileError};
pub use raid::{Raid0, RaidParameters};
pub use ssd::{Ssd, SsdParameters};

use presagio_core::{Nanos, Op, Range};

/// What takes its time over reads and writes. It serves them in the order of the calls.
pub trait Device: Send {
    /// A request for the bytes `at` these addresses of the device comes `now`: when is it done?
    ///
    /// `now` may lie before that of an earlier call (threads that race): what is served first was called first.
    fn serve(&mut self, op: Op, at: Range, now: Nanos) -> Nanos;

    /// When is all that was written and answered by `now` on the medium, and no longer in a cache that forgets?
    fn flush(&mut self, now: Nanos) -> Nanos;
}

/// How long so many bytes take at so many a second, rounded up.
fn transfer(bytes: u64, bytes_per_s: u64) -> Nanos {
    let ns = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(bytes_per_s));
    Nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

/// Where addresses are dealt out in pieces of `unit`, how many of those below `end` are a member's.
fn dealt_below(member: u64, end: u64, unit: u64, members: u64) -> u64 {
    let row = unit * members;
    let rest = (end % row).saturating_sub(member * unit);
    end / row * unit + rest.min(unit)
}
