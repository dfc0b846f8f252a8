//! What is the workload now? Access patterns at a server, recognised without training.
//!
//! A server sees requests, not applications. Every period its requests become a [`Pattern`]: a time series of offset
//! distances and a few counts ([`Recorder`]). A [`KnowledgeBase`] compares it with the patterns that it knows, by dynamic
//! time warping, and answers with the one that it matches, or takes it in as a new one. What it has seen in which order
//! says what probably comes next.
//!
//! The published way (paper 000: Boito et al., HPCS 2019) and ours differ in [`Settings`] only: how a period is represented
//! ([`Representation`]), and what the distance of two series is ([`Distance`]).
//!
//! ```
//! use presagio_core::{FileId, Op, Range};
//! use presagio_pattern::{KnowledgeBase, Recorder, Settings};
//!
//! let settings = Settings::published_servers();
//! let mut recorder = Recorder::new(&settings);
//! let mut known = KnowledgeBase::new(settings);
//! let mut names = Vec::new();
//! for stride in [1, 9, 1] {
//!     for i in 0..1000 {
//!         recorder.observe(FileId(1), Op::Read, Range::at(i * stride * 65_536, 65_536));
//!     }
//!     let pattern = recorder.end().expect("there were requests");
//!     names.push(known.decide(pattern).id);
//! }
//! assert_eq!(names[0], names[2], "the third period is like the first");
//! assert_ne!(names[0], names[1]);
//! ```
//!
//! Where things are: `series` makes patterns, `warp` compares them in as little time as the decision allows, [`plain`] does
//! the same as one would write it down (tests and benches hold `warp` against it), `base` is Algorithm 1 and all that is
//! remembered, `keep` the same as keys and values, `judge` counts how often it was right.
//!
//! *Invariants.* No I/O, threads, clock or randomness. Distances are whole numbers, so no order of summation and no
//! shortcut can change a decision.

#![forbid(unsafe_code)]

mod base;
mod extents;
mod judge;
mod keep;
pub mod plain;
mod series;
mod settings;
mod warp;

pub use base::{Decision, Evicted, KnowledgeBase, Merged, Next, PatternId};
pub use judge::{Judge, Tally, Verdict};
pub use keep::{Changed, Corrupt};
pub use series::{Pattern, Recorder};
pub use settings::{Distance, OpSettings, Representation, Settings};
pub use warp::{Warper, distance};
