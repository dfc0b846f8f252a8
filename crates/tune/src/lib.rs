//! Which policy for which application and which device? (Thesis, 4.3 and chapter 6.)
//!
//! One decision, from requests to a policy:
//!
//! 1. [`Metrics`] sees every request that arrives at a scheduler and keeps a few sums for each file.
//! 2. At the end of a period, and sooner when something begins ([`Lookout`]), a tree says of each file whether the application's
//!    accesses are contiguous and whether its requests are large: its [`Class`]. The majority of the files stands for all.
//! 3. Another tree takes that, the operation, the number of files and the device's sequential to random throughput ratio,
//!    and names a policy. The way through the tree is the reason that a person is given.
//!
//! Before anything has arrived, the device alone says what to begin with ([`Chooser::begin`]). [`Selector`] does all of it. The
//! trees are a text ([`Trees`]); [`Trees::shipped`] are those that `presagio train` made from simulated campaigns.
//! [`train`](learn::train) makes trees, [`evaluate`] says how good they are.
//!
//! Where nothing was learned beforehand, it is learned while it works (paper 001): a node watches what arrives ([`Watch`]), a
//! network says how files are accessed ([`Detector`]), that and a few counts are a [`Context`], each of which has a [`Bandit`] over
//! [`Arms`], policies and windows. [`Tuner`] has all of them and what is to be kept, [`Alone`] is a node by itself, [`Council`] many
//! together; [`Pulse`] says when a node decides, and which periods count.
//!
//! *Invariants.* Nothing here does I/O, reads a clock or draws a random number that is not from a seed. A request costs the
//! same whatever came before it, and memory is bounded.

#![forbid(unsafe_code)]

mod alone;
mod arm;
mod bandit;
mod context;
mod council;
pub mod evaluate;
mod finder;
pub mod learn;
mod lookout;
mod metrics;
mod network;
mod pulse;
mod random;
mod select;
pub mod teach;
mod text;
mod tree;
mod tuner;
mod watch;

pub use alone::Alone;
pub use arm::{Arm, ArmError, Arms};
pub use bandit::{ArmState, Bandit, Reason, Strategy, UnknownStrategy};
pub use context::{Access, Context, Load, Magnitude, Situation};
pub use council::{
    Announcement, Consensus, Council, CouncilSettings, Decision as CouncilDecision, Evidence,
    LateWords, NodeId, Refused, SILENT_ROUNDS_MAX,
};
pub use lookout::Lookout;
pub use metrics::{FileMetrics, Metrics, Period};
pub use network::{Detector, HIDDEN, Network, Transform, power};
pub use pulse::{Due, Ended, Pulse, Worth};
pub use random::Random;
pub use select::{
    Chooser, Class, DETECTION, Decision, Drive, Selection, Selector, Trees, TreesError, majority_of,
};
pub use text::TextError;
pub use tree::{Feature, Kind, Node, Schema, Tree};
pub use tuner::{Candidate, Changed, Choice, Corrupt, Tuner, TunerSettings, WarmStart, Why};
pub use watch::{
    Arrived, Features, Figure, Glance, Look, Nonsense, Observation, REQUESTS_MIN, Watch,
};
