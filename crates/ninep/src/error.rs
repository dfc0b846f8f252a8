//! What can be wrong with a frame: every refusal names the message, its tag, the field, where it starts and why.

use crate::ids::{Kind, Tag};

/// A frame that is not what the protocol demands. Whoever sent it is not to be trusted with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} with {tag}: {field}, at byte {at} of the frame, {reason}")]
pub struct WireError {
    /// The message's type.
    pub kind: Kind,
    /// Its tag, so that a server can still answer it.
    pub tag: Tag,
    /// The field, as the byte tables name it.
    pub field: &'static str,
    /// Where the field starts, counted from the first byte of the frame.
    pub at: u32,
    /// What is wrong with it.
    pub reason: Reason,
}

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The frame ends within the field.
    #[error("needs {needs} bytes, but the frame has {has} more")]
    Short {
        /// How many the field takes.
        needs: u32,
        /// How many are left.
        has: u32,
    },
    /// The message is complete and the frame is not at its end.
    #[error("is followed by {0} bytes that belong to nothing")]
    Trailing(u32),
    /// The size is smaller than the smallest message.
    #[error("says {0} bytes, which is less than a header")]
    TooSmall(u32),
    /// The size is larger than both sides agreed on.
    #[error("says {size} bytes, and the two sides agreed on {msize} at most")]
    TooLarge {
        /// What the frame says.
        size: u32,
        /// What was agreed.
        msize: u32,
    },
    /// A name of no characters.
    #[error("is empty")]
    Empty,
    /// A NUL within a text.
    #[error("contains a NUL")]
    Nul,
    /// A name that would be a path.
    #[error("contains a slash: a name is one component of a path")]
    Slash,
    /// A name that stands for a directory's own place.
    #[error("is '.' or '..', which name nothing new")]
    Dots,
    /// A text or a payload that no frame can carry.
    #[error("is {0} bytes long, more than a frame can carry")]
    TooLong(u64),
    /// More elements than the protocol allows.
    #[error("has {count} elements, and {max} are allowed")]
    TooMany {
        /// How many the frame says.
        count: u32,
        /// How many there may be.
        max: u32,
    },
    /// A number that stands for nothing.
    #[error("is {0}, which means nothing here")]
    Value(u64),
    /// A type that 9P2000.L does not have.
    #[error("is no message of 9P2000.L")]
    UnknownKind,
    /// A reply where a request should be, or the other way round.
    #[error("goes the other way: requests have even types, replies odd ones")]
    Direction,
    /// One of our own messages, and the two sides agreed on plain 9P2000.L.
    #[error("is an extension that was not negotiated")]
    NotNegotiated,
    /// A message that cannot be wrapped.
    #[error("is a message that needs no numbering, and may not be wrapped")]
    NotWrappable,
}

/// A reason with its place inside a message, before the message is known.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub(crate) field: &'static str,
    pub(crate) at: u32,
    pub(crate) reason: Reason,
}

impl Fault {
    pub(crate) fn within(self, kind: Kind, tag: Tag) -> WireError {
        let Fault { field, at, reason } = self;
        WireError {
            kind,
            tag,
            field,
            at,
            reason,
        }
    }
}
