//! Predicts the next I/O operations of a program: which file, where, how much, when.
//!
//! The model is that of Omnisc'IO (Dorier et al., RR-8725, §3). A program's operations are symbols, one for each
//! call stack ([`contexts`]); a grammar over them says which come next. What an operation looks like follows from
//! its symbol, or from the transition between two: sizes per symbol, offsets, files and times per transition. So
//! [`Model::observe`] learns from one operation, and a [`Cursor`] reads the coming ones, as far as one likes.
//!
//! Everything here is deterministic and does no I/O; time comes with the events.
//!
//! ```
//! use presagio_core::{Action, ContextId, Event, FileId, Layer, Nanos};
//! use presagio_predict::{Model, PredictedFile};
//!
//! // A program writes a header of 100 bytes and then four blocks, again and again, to the same file.
//! let mut model = Model::new();
//! let (mut offset, mut time) = (0, 0);
//! for step in 0..12u64 {
//!     let (context, len) = if step % 5 == 0 { (1, 100) } else { (2, 4096) };
//!     model.observe(&Event {
//!         time: Nanos(time),
//!         duration: Nanos(1000),
//!         process: 0,
//!         thread: 0,
//!         file: FileId(7),
//!         action: Action::Write,
//!         layer: Layer::Posix,
//!         context: ContextId(context),
//!         offset,
//!         len,
//!         result: len as i64,
//!     });
//!     (offset, time) = (offset + len, time + 5000);
//! }
//! let next: Vec<_> = model.best().unwrap().take(4).collect();
//! assert_eq!(next[0].file, PredictedFile::Known(FileId(7)));
//! assert_eq!(next.iter().map(|p| p.len).collect::<Vec<_>>(), [4096, 4096, 4096, 100]);
//! assert_eq!(next[3].offset, offset + 3 * 4096);
//! assert_eq!(next[0].after, Nanos(4000));
//! ```

#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod apps;
mod calibration;
pub mod contexts;
mod cursor;
mod files;
mod model;
mod save;
pub mod score;
mod transition;

pub use calibration::Calibration;
pub use cursor::{Cursor, Predicted};
pub use files::PredictedFile;
pub use model::{Model, Settings};
pub use save::LoadError;
