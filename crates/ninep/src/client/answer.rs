//! A reply that has left its frame.

use crate::Dialect;
use crate::frame::Frame;
use crate::ids::{Kind, Tag};
use crate::reply::Reply;
use crate::text::Data;
use smallvec::SmallVec;

/// What the reader leaves for the waiter.
#[derive(Debug)]
pub(super) enum Delivery {
    /// The fields of a reply without a payload; they were parsed once.
    Fields(Kind, SmallVec<[u8; 32]>),
    /// A payload in a buffer.
    Payload(Kind, Vec<u8>),
    /// So many bytes of payload, which are in the waiter's own memory already.
    InPlace(usize),
    /// A payload that the waiter's memory could not take.
    Refused,
}

/// The reply to a request. Never an error: that is [`Error::Server`](super::Error::Server).
#[derive(Debug)]
pub struct Answer(pub(super) Delivery);

impl Answer {
    /// The reply, as the codec has it.
    pub fn reply(&self) -> Reply<'_> {
        match &self.0 {
            Delivery::Payload(Kind(117), bytes) => Reply::Read { data: data(bytes) },
            Delivery::Payload(_, bytes) => Reply::ReadDir {
                entries: data(bytes),
            },
            Delivery::InPlace(_) | Delivery::Refused => Reply::Read { data: data(&[]) },
            Delivery::Fields(kind, body) => {
                let frame = Frame {
                    kind: *kind,
                    tag: Tag::NONE,
                    body,
                };
                // It was parsed when it came, and not kept if that failed.
                Reply::parse(frame, Dialect::Presagio).expect("a checked reply")
            }
        }
    }

    /// The payload, in the buffer that was given for it if there was one.
    pub fn into_data(self) -> Vec<u8> {
        match self.0 {
            Delivery::Payload(_, bytes) => bytes,
            Delivery::Fields(..) | Delivery::InPlace(_) | Delivery::Refused => Vec::new(),
        }
    }
}

fn data(bytes: &[u8]) -> Data<'_> {
    Data::new(bytes).expect("what came in a frame fits into one")
}
