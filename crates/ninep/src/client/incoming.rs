//! Receiving: turns bytes into replies and gives each to its slot. One thread at a time does this, whoever waits.
//!
//! Small replies are received many at a time. A payload goes to where it belongs: what was received with its header is
//! copied, the rest is received in place, into the caller's own memory if it is the caller who reads. Should that memory not be
//! there, it is the caller's error and nobody else's: the payload is received all the same, and goes nowhere.

use super::answer::Delivery;
use super::error::{Lost, is_fault};
use super::table::Table;
use super::{Fill, Stream};
use crate::Dialect;
use crate::error::Reason;
use crate::frame::{Frames, Head};
use crate::ids::{Kind, Tag};
use crate::reply::{READ_HEAD, Reply};
use std::io;
use std::time::Duration;

/// Memory of the reading thread for the data of one of its own requests.
#[derive(Debug)]
pub(super) struct Mine<'b> {
    pub(super) tag: Tag,
    pub(super) to: &'b mut [u8],
}

/// A payload of which not all has come.
#[derive(Debug)]
struct Payload {
    tag: Tag,
    kind: Kind,
    count: usize,
    got: usize,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Nowhere,
    /// The caller's memory cannot be written.
    Refused,
    Buffer(Vec<u8>),
    /// The reading thread's own memory, by its index.
    Mine(usize),
}

#[derive(Debug)]
pub(super) struct Incoming {
    frames: Frames,
    payload: Option<Payload>,
    dialect: Dialect,
    fill: Fill,
}

/// What is left of a payload is received in place if it is more than this: a system call costs as much as copying less.
const IN_PLACE_MIN: usize = 8 << 10;

/// What is received with the header of a large payload, and then copied.
const WITH_HEADER: usize = 4 << 10;

impl Incoming {
    pub(super) fn new(frames: Frames, dialect: Dialect, fill: Fill) -> Incoming {
        Incoming {
            frames,
            payload: None,
            dialect,
            fill,
        }
    }

    /// Receives once. `Ok(false)` if nothing came in time.
    pub(super) fn receive(
        &mut self,
        stream: &dyn Stream,
        patience: Duration,
        mine: &mut [Mine<'_>],
    ) -> Result<bool, Lost> {
        let received = match self.in_place(mine) {
            Some(rest) => stream.recv(rest, patience).map(|count| (count, true)),
            None => {
                let large = mine.iter().any(|mine| mine.to.len() > Frames::ROOM);
                let space = self.space();
                let most = if large { WITH_HEADER } else { space.len() };
                let most = most.min(space.len());
                stream
                    .recv(&mut space[..most], patience)
                    .map(|count| (count, false))
            }
        };
        match received {
            Ok((0, _)) => Err(Lost::Closed),
            Ok((count, in_place)) => {
                self.count(count, in_place);
                Ok(true)
            }
            Err(error) if is_patience(&error) => Ok(false),
            Err(error) if is_fault(&error) && self.refuse() => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// The caller's memory cannot be written: `false` if it was not the caller's.
    fn refuse(&mut self) -> bool {
        match &mut self.payload {
            Some(payload) if matches!(payload.place, Place::Mine(_)) => {
                payload.place = Place::Refused;
                true
            }
            _ => false,
        }
    }

    /// Where the rest of the current payload goes, if it is worth a system call of its own.
    fn in_place<'m>(&'m mut self, mine: &'m mut [Mine<'_>]) -> Option<&'m mut [u8]> {
        let Payload {
            count, got, place, ..
        } = self.payload.as_mut()?;
        if *count - *got < IN_PLACE_MIN {
            return None;
        }
        match place {
            Place::Nowhere | Place::Refused => None,
            Place::Buffer(buffer) => Some(&mut buffer[*got..]),
            Place::Mine(index) => Some(&mut mine[*index].to[*got..*count]),
        }
    }

    /// Where headers and small replies go.
    fn space(&mut self) -> &mut [u8] {
        match self.frames.head() {
            Ok(Some(head)) if self.payload.is_none() && !carries_payload(head.kind) => {
                self.frames.space()
            }
            _ => self.frames.space_for(READ_HEAD),
        }
    }

    fn count(&mut self, received: usize, in_place: bool) {
        match &mut self.payload {
            Some(payload) if in_place => payload.got += received,
            _ => self.frames.received(received),
        }
    }

    /// Delivers what has come.
    pub(super) fn deliver(&mut self, table: &mut Table, mine: &mut [Mine<'_>]) -> Result<(), Lost> {
        loop {
            if self.payload.is_some() {
                if !self.fill(table, mine)? {
                    return Ok(());
                }
                continue;
            }
            let Some(head) = self.frames.head()? else {
                return Ok(());
            };
            let begun = match carries_payload(head.kind) {
                true => self.begin_payload(head, table, mine)?,
                false => self.deliver_small(table)?,
            };
            if !begun {
                return Ok(());
            }
        }
    }

    /// A reply without a payload, if all of it is there.
    fn deliver_small(&mut self, table: &mut Table) -> Result<bool, Lost> {
        let Some(frame) = self.frames.next()? else {
            return Ok(false);
        };
        Reply::parse(frame, self.dialect)?;
        let delivery = Delivery::Fields(frame.kind, frame.body.into());
        table.deliver(frame.tag, frame.kind, delivery)?;
        Ok(true)
    }

    /// A reply with a payload, if its header is there.
    fn begin_payload(
        &mut self,
        head: Head,
        table: &mut Table,
        mine: &[Mine<'_>],
    ) -> Result<bool, Lost> {
        let Head { size, kind, tag } = head;
        if (size as usize) < READ_HEAD {
            // Too short for its own header: parsing it says so.
            return self.deliver_small(table);
        }
        let Some(&[.., a, b, c, d]) = self.frames.bytes().first_chunk::<READ_HEAD>() else {
            return Ok(false);
        };
        let count = u32::from_le_bytes([a, b, c, d]);
        check_size(head, count)?;
        let wanted = table.admit(tag, kind, count)?;
        let place = match mine.iter().position(|mine| mine.tag == tag) {
            _ if !wanted => Place::Nowhere,
            Some(index) => Place::Mine(index),
            None => Place::Buffer(table.buffer(tag, count as usize)),
        };
        self.frames.skip(READ_HEAD);
        self.payload = Some(Payload {
            tag,
            kind,
            count: count as usize,
            got: 0,
            place,
        });
        Ok(true)
    }

    /// Moves what there is of the current payload to its place, and delivers it when it is complete.
    fn fill(&mut self, table: &mut Table, mine: &mut [Mine<'_>]) -> Result<bool, Lost> {
        let Some(payload) = &mut self.payload else {
            return Ok(true);
        };
        let Payload { count, got, .. } = *payload;
        payload.got += match &mut payload.place {
            Place::Nowhere | Place::Refused => self.frames.skip(count - got),
            Place::Buffer(buffer) => self.frames.take(&mut buffer[got..]),
            Place::Mine(index) => {
                let there = self.frames.bytes();
                let there = &there[..there.len().min(count - got)];
                let to = &mut mine[*index].to[got..got + there.len()];
                if !there.is_empty() && !(self.fill)(to, there) {
                    payload.place = Place::Refused;
                }
                self.frames.skip(count - got)
            }
        };
        if payload.got < count {
            return Ok(false);
        }
        let Some(Payload {
            tag, kind, place, ..
        }) = self.payload.take()
        else {
            return Ok(true);
        };
        let delivery = match place {
            Place::Buffer(buffer) => Delivery::Payload(kind, buffer),
            Place::Refused => Delivery::Refused,
            Place::Nowhere | Place::Mine(_) => Delivery::InPlace(count),
        };
        table.deliver(tag, kind, delivery)?;
        Ok(true)
    }

    /// The reading thread leaves, and its memory with it: what came of a payload moves to a buffer.
    pub(super) fn leave(&mut self, mine: &[Mine<'_>]) {
        let Some(Payload {
            count, got, place, ..
        }) = &mut self.payload
        else {
            return;
        };
        if let Place::Mine(index) = place {
            let mut buffer = vec![0; *count];
            buffer[..*got].copy_from_slice(&mine[*index].to[..*got]);
            *place = Place::Buffer(buffer);
        }
    }
}

fn carries_payload(kind: Kind) -> bool {
    matches!(kind.0, 41 | 117)
}

fn check_size(head: Head, count: u32) -> Result<(), Lost> {
    let Head { size, kind, tag } = head;
    let has = size - READ_HEAD as u32;
    let reason = match count {
        count if count == has => return Ok(()),
        count if count > has => Reason::Short { needs: count, has },
        count => Reason::Trailing(has - count),
    };
    let (field, at) = ("count", 7);
    Err(crate::error::Fault { field, at, reason }
        .within(kind, tag)
        .into())
}

pub(super) fn is_patience(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}
