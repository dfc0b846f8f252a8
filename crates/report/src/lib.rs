//! Reports: what a program did to its files, as one page that explains itself.
//!
//! [`collect`] reads a trace once and counts, in memory that does not grow with the length of the trace; [`run`] makes the
//! figures of one run out of that, of the summary of `presagio run`, or of both; [`document`] puts runs together and
//! compares them. The [`doc::Document`] is what `presagio report --json` prints, and [`page()`] draws nothing else: the
//! same document is inside the page.
//!
//! Who knows more about call stacks than the trace says it through [`Names`]: reading debug information is I/O, which is
//! not done here.

#![forbid(unsafe_code)]

mod axis;
mod build;
mod census;
mod collect;
mod common;
mod compare;
pub mod doc;
mod findings;
mod foreseen;
mod habits;
mod heat;
mod loops;
mod page;
mod phases;
pub use presagio_page::readable;

pub use build::{Input, Nameless, Names, run};
pub use collect::{Collected, Options, collect};
pub use compare::document;
pub use doc::Run;
pub use findings::{Evidence, Finding, Weight};
pub use page::page;
pub use phases::{Period, Phase};
