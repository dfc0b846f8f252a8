//! Requests that are sent together: their headers in one piece of memory, their payloads where they are.

use super::error::Error;
use crate::IO_HEADER;
use crate::ids::Tag;
use crate::request::Request;
use smallvec::SmallVec;
use std::io::IoSlice;

/// Frames to be sent with one system call.
#[derive(Debug, Default)]
pub(super) struct Batch<'r> {
    heads: Vec<u8>,
    frames: SmallVec<[Prepared<'r>; 1]>,
}

#[derive(Debug)]
struct Prepared<'r> {
    /// Where its header begins and ends.
    start: usize,
    end: usize,
    payload: &'r [u8],
}

/// What a `writev` takes.
pub(super) type Parts<'p> = SmallVec<[IoSlice<'p>; 4]>;

impl<'r> Batch<'r> {
    /// Adds a request; its tag comes later.
    pub(super) fn add(&mut self, request: &'r Request<'r>, msize: u32) -> Result<(), Error> {
        let start = self.heads.len();
        if self.heads.capacity() == 0 {
            self.heads.reserve(64);
        }
        let payload = request.encode_head(Tag::NONE, &mut self.heads);
        let end = self.heads.len();
        let size = (end - start + payload.len()).max(reply_size(request));
        if size > msize as usize {
            self.heads.truncate(start);
            return Err(Error::TooLarge { size, msize });
        }
        self.frames.push(Prepared {
            start,
            end,
            payload,
        });
        Ok(())
    }

    pub(super) fn set_tag(&mut self, index: usize, tag: Tag) {
        let at = self.frames[index].start + 5;
        self.heads[at..at + 2].copy_from_slice(&tag.0.to_le_bytes());
    }

    /// The bytes in the order in which they are sent.
    pub(super) fn parts(&self) -> Parts<'_> {
        let (mut parts, mut from) = (Parts::new(), 0);
        for frame in &self.frames {
            if !frame.payload.is_empty() {
                parts.push(IoSlice::new(&self.heads[from..frame.end]));
                parts.push(IoSlice::new(frame.payload));
                from = frame.end;
            }
        }
        if from < self.heads.len() {
            parts.push(IoSlice::new(&self.heads[from..]));
        }
        parts
    }

    /// How many frames are whole when so many bytes were sent.
    pub(super) fn whole(&self, sent: usize) -> usize {
        let sizes = self.frames.iter();
        let sizes = sizes.map(|frame| frame.end - frame.start + frame.payload.len());
        let ends = sizes.scan(0, |end, size| {
            *end += size;
            Some(*end)
        });
        ends.take_while(|end| *end <= sent).count()
    }
}

/// How long the reply may become.
fn reply_size(request: &Request<'_>) -> usize {
    match request {
        Request::Read { count, .. } | Request::ReadDir { count, .. } => {
            (*count as usize).saturating_add(IO_HEADER as usize)
        }
        _ => 0,
    }
}
