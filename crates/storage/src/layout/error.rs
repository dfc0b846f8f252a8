//! Why a layout cannot be understood.

use thiserror::Error;

/// What is wrong with the text or the bytes of a layout, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("layout, at byte {at}: {what}")]
pub struct LayoutError {
    /// How many bytes are before it.
    pub at: usize,
    /// What is wrong, and what would be right.
    pub what: String,
}

impl LayoutError {
    pub(crate) fn new(at: usize, what: impl Into<String>) -> LayoutError {
        let what = what.into();
        LayoutError { at, what }
    }
}
