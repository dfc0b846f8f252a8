//! Which policy for which application and which device? (Thesis, 4.3 and chapter 6.)
//!
//! One decision, from requests to a policy:
//!
//! 1. [`Metrics`] sees every request that arrives at a scheduler and keeps a few sums for each file.
//! 2. At the end of a period, a tree says of each file whether the application's accesses are contiguous and whether its
//!    requests are large: its [`Class`]. The majority of the files stands for all.
//! 3. Another tree takes that, the operation, the number of files and the device's sequential to random throughput ratio,
//!    and names a policy. The way through the tree is the reason that a person is given.
//!
//! [`Selector`] does all of it. The trees are a text ([`Trees`]); [`Trees::shipped`] are those that `presagio train` made from
//! simulated campaigns. [`train`](learn::train) makes trees, [`evaluate`] says how good they are.
//!
//! *Invariants.* Nothing here does I/O, reads a clock or draws a random number that is not from a seed. A request costs the
//! same whatever came before it, and memory is bounded.

#![forbid(unsafe_code)]

pub mod evaluate;
pub mod learn;
mod metrics;
mod random;
mod select;
mod text;
mod tree;

pub use metrics::{FileMetrics, Metrics, Period};
pub use random::Random;
pub use select::{
    Chooser, Class, DETECTION, Decision, Drive, Selection, Selector, Trees, TreesError,
};
pub use text::TextError;
pub use tree::{Feature, Kind, Node, Schema, Tree};
