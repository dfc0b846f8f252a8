//! The seam between the manager, which sees operations and issues hints, and the [`Strategy`], which decides.
//!
//! The manager tells a strategy what happened (files that were opened, reads that ended, hints that were carried
//! out) and what its models expect; now and then it asks what to do. A strategy is pure: time comes in as an
//! argument, and all it has done is in the hints it gave.

use crate::hints::Device;
use presagio_core::{Nanos, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file as the manager names it: one number per device and inode, never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileNumber(pub u32);

/// An open file of a program, as the manager names it, never used again: what the kernel's modes of reading ahead
/// belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpenNumber(pub u64);

/// Who uses a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The process, as the manager counts them.
    pub process: u32,
    /// Through which of its open files.
    pub open: OpenNumber,
}

/// A file that a program has opened, or that was opened ahead for it.
#[derive(Clone, Debug)]
pub struct Opened<'a> {
    /// Its number.
    pub file: FileNumber,
    /// Who opened it; none if it was opened ahead.
    pub by: Option<Holder>,
    /// Its path.
    pub path: &'a Path,
    /// Its size in bytes.
    pub size: u64,
    /// Whether the program can write to it through this descriptor.
    pub writes: bool,
    /// The device that it lies on.
    pub device: &'a Arc<Device>,
    /// When.
    pub time: Nanos,
}

/// A read or write that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The file.
    pub file: FileNumber,
    /// Who did it.
    pub by: Holder,
    /// When it began.
    pub time: Nanos,
    /// How long it took.
    pub duration: Nanos,
    /// The bytes that were moved.
    pub range: Range,
    /// Whether they were written.
    pub write: bool,
}

/// A read that a model expects.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// The file.
    pub file: FileNumber,
    /// Where.
    pub range: Range,
    /// When it will begin.
    pub time: Nanos,
    /// How likely it is exactly this, from 0 to 1.
    pub confidence: f64,
}

/// Why a hint is given: what the summary counts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A model, or the same file's past, says that exactly this will be read.
    Exact,
    /// Reads cover the neighbourhood densely.
    Sieving,
    /// A configuration says so.
    Configured,
    /// Reads are random: reading ahead wastes the device.
    Random,
    /// Written, and not to be read again.
    Written,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Load this range.
    Load {
        /// The file.
        file: FileNumber,
        /// What of it.
        range: Range,
        /// Why.
        reason: Reason,
    },
    /// Give these pages back.
    Release {
        /// The file.
        file: FileNumber,
        /// What of it.
        range: Range,
        /// Why.
        reason: Reason,
    },
    /// Have one open file of a program read ahead in this way.
    Mode {
        /// The file.
        file: FileNumber,
        /// Which of those who have it open.
        open: OpenNumber,
        /// The way.
        mode: crate::config::Mode,
        /// Why.
        reason: Reason,
    },
    /// Open this file ahead: [`Strategy::opened`] will say what was found.
    OpenAhead {
        /// Its path.
        path: PathBuf,
    },
}

/// What became of [`Hint::Load`].
#[derive(Clone, Copy, Debug)]
pub struct LoadDone {
    /// The file.
    pub file: FileNumber,
    /// What was asked for.
    pub range: Range,
    /// Why it was.
    pub reason: Reason,
    /// When the hint was taken up.
    pub started: Nanos,
    /// When it returned.
    pub ended: Nanos,
    /// Bytes that were in memory before, if that is known.
    pub already: Option<u64>,
    /// Bytes that are in memory now or on their way, as far as that can be known, in whole pages.
    pub there: u64,
}

/// How much memory there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Bytes that programs can still use.
    pub left: u64,
    /// Whether that is little.
    pub is_short: bool,
}

/// See the module's header.
pub trait Strategy {
    /// A file was opened.
    fn opened(&mut self, opened: &Opened<'_>);

    /// A process has closed a file, or ended.
    fn closed(&mut self, file: FileNumber, by: Holder, now: Nanos);

    /// Bytes were read or written.
    fn accessed(&mut self, access: &Access);

    /// What the model of a process expects of its coming reads, the next first.
    fn expected(&mut self, process: u32, expected: &[Expected]);

    /// A hint was carried out.
    fn loaded(&mut self, done: &LoadDone);

    /// How much memory there is: said at the beginning, and about once a second from then on.
    fn memory(&mut self, memory: Memory, now: Nanos);

    /// What to do now: appends to `hints`.
    fn plan(&mut self, now: Nanos, hints: &mut Vec<Hint>);
}
