//! Measures a storage device in minutes: SeRRa's steps (thesis, chapter 5), on a real file or an emulated device.
//!
//! 1. [`sizes`]: request sizes are drawn at random from intervals, their ends always among them.
//! 2. [`fast`]: at each of them the four tests (sequential and random reads and writes) run until the confidence interval
//!    is narrow. Runs are short and tests take turns, so that what drifts meets all of them.
//! 3. [`presagio_device::profile`] fits a line per test and interval,
//! 4. and has ratios, averages and extremes for every size.
//!
//! [`full`] measures every size by the rule of 5.2.2 instead, which takes hours where the fast way takes minutes;
//! [`compare`] says how far the fast way is from it.
//!
//! What is measured is a [`Target`]: [`Emulated`] runs in virtual time, [`Scratch`] is a file without a name, through
//! io_uring and past the page cache. [`circumstances`] says what would make the figures of a real one meaningless.
//!
//! ```
//! use presagio_device::{Model, profile::Test};
//! use presagio_profile::{Emulated, fast};
//!
//! let mut disk = Emulated::new(&Model::named("hdd")?, 1 << 30)?;
//! let profile = fast::measure(&mut disk, &fast::Plan::default(), &mut |_| {})?;
//! assert!(profile.ratio(presagio_core::Op::Read, 8192) > 50.0, "a disk has to seek");
//! assert!(profile.about().seconds < 180.0, "and it took three virtual minutes at most");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! *Invariants.* Nothing is written but to a file that was made here and has no name, so that it is gone when the process
//! is, however it ends. With the same seed an emulated device has the same profile in every run.

pub mod circumstances;
pub mod compare;
mod emulated;
pub mod fast;
mod file;
pub mod full;
mod random;
pub mod sizes;
mod statistics;
mod target;

pub use emulated::Emulated;
pub use file::{Engine, Scratch, ScratchError};
pub use random::Random;
pub use statistics::{CONFIDENCE_PERCENT, Sample};
pub use target::{Places, Progress, Run, Target};
