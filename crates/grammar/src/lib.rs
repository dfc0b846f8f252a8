//! StarSequitur: a grammar that grows with a stream of symbols and predicts the next ones.
//!
//! The algorithm is that of Omnisc'IO (Dorier et al., RR-8725, §3.1): [`Grammar`] learns it, and follows it at
//! the same time; [`Grammar::predictions`] says what may come next, and a [`Cursor`] reads on from there as far
//! as one likes. [`Series`] predicts values that belong to one place. [`Grammar::save`] keeps what was learned for
//! the next run, which [`Grammar::rewind`] begins. All of it is deterministic, does no I/O and
//! knows nothing of what the symbols mean.
//!
//! ```
//! use presagio_grammar::{Grammar, Mode};
//!
//! let mut grammar = Grammar::new(Mode::Folding);
//! for symbol in [1, 2, 2, 2, 3, 1, 2, 2] {
//!     grammar.append(symbol);
//! }
//! let next: Vec<u32> = grammar.best().unwrap().take(6).collect();
//! assert_eq!(next, [2, 3, 1, 2, 2, 2]);
//! ```

#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod bytes;
mod fold;
mod followers;
mod glide;
mod grammar;
mod runs;
mod save;
mod series;
mod store;
mod table;

pub use bytes::LoadError;
pub use followers::Cursor;
pub use grammar::{GAP, Grammar, Limits, Mode, Symbol};
#[doc(hidden)]
pub use save::fuzzing;
pub use series::{DISTINCT_MAX, Series, SeriesAhead, Spread};
