//! Frames, and how they are put together again from a stream of bytes.
//!
//! [`Frames`] does no I/O. Whoever does, by `recv`, epoll or io_uring, receives into [`space`](Frames::space), says how
//! much it was, and takes out what is complete:
//!
//! ```
//! # use presagio_ninep::{Frames, MSIZE_MAX};
//! # let stream: &[u8] = &[7, 0, 0, 0, 109, 1, 0];
//! # use std::io::Read;
//! # let mut stream = stream;
//! let mut frames = Frames::new(MSIZE_MAX);
//! let received = stream.read(frames.space())?;
//! frames.received(received);
//! while let Some(frame) = frames.next()? {
//!     println!("{} with {}", frame.kind, frame.tag);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::error::{Fault, Reason, WireError};
use crate::field::HEADER;
use crate::ids::{Kind, Tag};

/// A whole message, its fields not parsed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Its type.
    pub kind: Kind,
    /// Its tag.
    pub tag: Tag,
    /// Its fields.
    pub body: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Takes bytes for one whole frame, no byte less or more.
    pub fn new(bytes: &'a [u8]) -> Result<Frame<'a>, WireError> {
        let length = bytes.len().min(u32::MAX as usize) as u32;
        let Some(head) = Head::peek(bytes) else {
            return Err(size_error(Kind(0), Tag::NONE, Reason::TooSmall(length)));
        };
        let (kind, tag) = (head.kind, head.tag);
        match head.size {
            size if size == length => Ok(Frame {
                kind,
                tag,
                body: &bytes[HEADER..],
            }),
            size if size > length => {
                let (needs, has) = (size, length);
                Err(size_error(kind, tag, Reason::Short { needs, has }))
            }
            size => Err(size_error(kind, tag, Reason::Trailing(length - size))),
        }
    }
}

/// The first bytes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Bytes of the frame, these included.
    pub size: u32,
    /// Its type.
    pub kind: Kind,
    /// Its tag.
    pub tag: Tag,
}

impl Head {
    fn peek(bytes: &[u8]) -> Option<Head> {
        let &[a, b, c, d, kind, low, high] = bytes.first_chunk::<HEADER>()?;
        Some(Head {
            size: u32::from_le_bytes([a, b, c, d]),
            kind: Kind(kind),
            tag: Tag(u16::from_le_bytes([low, high])),
        })
    }

    fn check(self, msize: u32) -> Result<Head, WireError> {
        let Head { size, kind, tag } = self;
        if size < HEADER as u32 {
            return Err(size_error(kind, tag, Reason::TooSmall(size)));
        }
        match size > msize {
            true => Err(size_error(kind, tag, Reason::TooLarge { size, msize })),
            false => Ok(self),
        }
    }
}

#[cold]
fn size_error(kind: Kind, tag: Tag, reason: Reason) -> WireError {
    let (field, at) = ("size", 0);
    Fault { field, at, reason }.within(kind, tag)
}

/// What was received and not yet taken out.
///
/// It holds [`Frames::ROOM`] bytes, or one frame if that is larger; a frame larger than agreed on is refused by its first
/// bytes. A byte is moved only when the frame that it belongs to does not fit behind it: at most once for each time that
/// the room was filled.
#[derive(Debug)]
pub struct Frames {
    room: Vec<u8>,
    /// What is in use of the room.
    start: usize,
    end: usize,
    msize: u32,
}

impl Frames {
    /// Room for many small frames, and the part of a large one that is copied when its payload goes elsewhere.
    pub const ROOM: usize = 16 << 10;

    /// Takes frames of up to `msize` bytes. Nothing is allocated yet.
    pub fn new(msize: u32) -> Frames {
        Frames {
            room: Vec::new(),
            start: 0,
            end: 0,
            msize,
        }
    }

    /// Another limit, from the next frame on: what was agreed on.
    pub fn set_msize(&mut self, msize: u32) {
        self.msize = msize;
    }

    /// Where to receive. Never empty, and large enough for the frame that has begun.
    pub fn space(&mut self) -> &mut [u8] {
        let wanted = match self.head() {
            Ok(Some(head)) => head.size as usize,
            _ => HEADER,
        };
        self.space_for(wanted)
    }

    /// Where to receive, with room for `wanted` bytes from the start of the next frame: for a frame whose payload goes
    /// elsewhere, its header.
    pub fn space_for(&mut self, wanted: usize) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.start + wanted > self.room.len() || self.end == self.room.len() {
            self.room.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            let needed = wanted.max(self.end + 1).max(Frames::ROOM);
            if needed > self.room.len() {
                self.room.resize(needed, 0);
            }
        }
        &mut self.room[self.end..]
    }

    /// That many bytes were received into [`space`](Self::space).
    ///
    /// # Panics
    /// If there was not so much space.
    pub fn received(&mut self, count: usize) {
        assert!(
            count <= self.room.len() - self.end,
            "more than there is space for"
        );
        self.end += count;
    }

    /// The beginning of the next frame, as soon as it is there.
    pub fn head(&self) -> Result<Option<Head>, WireError> {
        match Head::peek(self.bytes()) {
            Some(head) => head.check(self.msize).map(Some),
            None => Ok(None),
        }
    }

    /// What is there: the next frame, complete or not, and what follows it.
    pub fn bytes(&self) -> &[u8] {
        &self.room[self.start..self.end]
    }

    /// Takes the next frame out if it is complete.
    #[allow(clippy::should_implement_trait, reason = "it lends what it returns")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Frame<'_>>, WireError> {
        let Some(Head { size, kind, tag }) = self.head()? else {
            return Ok(None);
        };
        let size = size as usize;
        if self.end - self.start < size {
            return Ok(None);
        }
        let body = &self.room[self.start + HEADER..self.start + size];
        self.start += size;
        Ok(Some(Frame { kind, tag, body }))
    }

    /// Moves what is there to `to`, as far as it fits, and returns how many bytes that were. For a payload that is
    /// received to another place: what is missing then has to be received there, not here.
    pub fn take(&mut self, to: &mut [u8]) -> usize {
        let count = to.len().min(self.end - self.start);
        to[..count].copy_from_slice(&self.bytes()[..count]);
        self.start += count;
        count
    }

    /// Drops up to `count` of the bytes that are there, and returns how many.
    pub fn skip(&mut self, count: usize) -> usize {
        let count = count.min(self.end - self.start);
        self.start += count;
        count
    }

    /// Gives the memory back, if nothing is in it: for connections that are idle.
    pub fn release(&mut self) {
        if self.start == self.end {
            (self.room, self.start, self.end) = (Vec::new(), 0, 0);
        }
    }

    /// Bytes of memory that it holds.
    pub fn memory(&self) -> usize {
        self.room.capacity()
    }
}
