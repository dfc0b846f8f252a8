//! A record of the ring: what a thread saw, in eight words.
//!
//! ```text
//! word 0  kind 1, flags 1, nothing 2, file's entry 4
//!      1  context 8
//!      2  start 8, ns on CLOCK_MONOTONIC, or ticks of the processor's counter (a flag)
//!      3  duration 8, in the same
//!      4  offset 8
//!      5  length asked for 8
//!      6  result 8
//!      7  file's generation 4, records of payload behind this one 4
//! ```

use presagio_core::Action;

/// The most records of payload that a message has.
pub const PAYLOAD_MAX: usize = 64;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An operation on a file.
    Operation(Action),
    /// The frames of a context that was not seen before: payload, two words a frame.
    Context,
    /// The name of a module that frames refer to: payload, `len` bytes.
    Module,
    /// `len` records were dropped here.
    Gap,
    /// From here on another thread writes: `file` is its process's entry, `generation` its image, `context` its
    /// process << 32 | thread.
    Begin,
}

impl Kind {
    const CONTEXT: u8 = 64;
    const MODULE: u8 = 65;
    const GAP: u8 = 66;
    const BEGIN: u8 = 67;

    /// Operations are most of what is written: of them nothing is looked up.
    #[inline(always)]
    fn number(self) -> u8 {
        match self {
            Kind::Operation(action) => action as u8,
            _ => self.other_number(),
        }
    }

    #[cold]
    #[inline(never)]
    #[unsafe(link_section = ".presagio.start")]
    fn other_number(self) -> u8 {
        match self {
            Kind::Operation(action) => action as u8,
            Kind::Context => Kind::CONTEXT,
            Kind::Module => Kind::MODULE,
            Kind::Gap => Kind::GAP,
            Kind::Begin => Kind::BEGIN,
        }
    }

    fn from_number(number: u8) -> Option<Kind> {
        match number {
            Kind::CONTEXT => Some(Kind::Context),
            Kind::MODULE => Some(Kind::Module),
            Kind::GAP => Some(Kind::Gap),
            Kind::BEGIN => Some(Kind::Begin),
            _ => Action::from_number(number).map(Kind::Operation),
        }
    }
}

/// A record as a program writes it. Fields that its kind does not use are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// What it is.
    pub kind: Kind,
    /// [`Record::AT_EXIT`] and the like.
    pub flags: u8,
    /// The entry of its file.
    pub file: u32,
    /// The generation of that entry.
    pub generation: u32,
    /// The call stack, as a number that is stable between runs; 0 if not known. A module's number.
    pub context: u64,
    /// When it began: ns on CLOCK_MONOTONIC, or ticks ([`Record::TICKS`]).
    pub start: u64,
    /// How long it took, in the same.
    pub duration: u64,
    /// See [`Action`].
    pub offset: u64,
    /// The bytes asked for.
    pub len: u64,
    /// The bytes moved, or the negated error number.
    pub result: i64,
}

impl Record {
    /// The operation has not happened yet: the C library will write these bytes when the program exits.
    pub const AT_EXIT: u8 = 1;
    /// The operation was handed to another thread; its result is what was asked for.
    pub const ASYNC: u8 = 2;
    /// Its times are ticks of the processor's counter. The manager gets none of these to see.
    pub const TICKS: u8 = 4;

    /// A record of this kind with nothing in it.
    pub fn new(kind: Kind) -> Record {
        Record {
            kind,
            flags: 0,
            file: 0,
            generation: 0,
            context: 0,
            start: 0,
            duration: 0,
            offset: 0,
            len: 0,
            result: 0,
        }
    }

    #[inline]
    pub(crate) fn to_words(self, payload: usize) -> [u64; 8] {
        [
            u64::from(self.kind.number()) | u64::from(self.flags) << 8 | u64::from(self.file) << 32,
            self.context,
            self.start,
            self.duration,
            self.offset,
            self.len,
            self.result as u64,
            u64::from(self.generation) | (payload as u64) << 32,
        ]
    }

    /// The record and how many of payload follow; `None` if it is nonsense.
    pub(crate) fn from_words(words: [u64; 8]) -> Option<(Record, usize)> {
        let payload = (words[7] >> 32) as usize;
        if payload > PAYLOAD_MAX {
            return None;
        }
        let record = Record {
            kind: Kind::from_number(words[0] as u8)?,
            flags: (words[0] >> 8) as u8,
            file: (words[0] >> 32) as u32,
            generation: words[7] as u32,
            context: words[1],
            start: words[2],
            duration: words[3],
            offset: words[4],
            len: words[5],
            result: words[6] as i64,
        };
        Some((record, payload))
    }
}

/// A frame of a context: a return address in a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The number that the process gave the module.
    pub module: u32,
    /// From where the module begins.
    pub offset: u64,
}

/// An operation on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// What was done.
    pub action: Action,
    /// [`Record::AT_EXIT`] and the like.
    pub flags: u8,
    /// The entry of its file, to ask [`Arena::file`](crate::Arena::file) about.
    pub file: u32,
    /// The generation of that entry.
    pub generation: u32,
    /// The call stack, as a number that is stable between runs; 0 if not known.
    pub context: u64,
    /// When it began, in ns on CLOCK_MONOTONIC.
    pub start: u64,
    /// How long it took, in ns.
    pub duration: u64,
    /// See [`Action`].
    pub offset: u64,
    /// The bytes asked for.
    pub len: u64,
    /// The bytes moved, or the negated error number.
    pub result: i64,
}

/// What the manager gets out of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// An operation on a file.
    Operation(Operation),
    /// A context that this process has not used before.
    Context {
        /// The number that operations have.
        id: u64,
        /// Its frames, innermost first.
        frames: &'a [Frame],
    },
    /// A module that frames of this process refer to.
    Module {
        /// The number that frames have.
        index: u32,
        /// The path of its file.
        name: &'a [u8],
    },
    /// Records were lost here.
    Gap {
        /// How many.
        lost: u64,
    },
}

/// Collects the payload of a message for the manager. Kept between messages so that its memory is, too.
#[derive(Debug, Default)]
pub(crate) struct Payload {
    pub words: Vec<u64>,
    bytes: Vec<u8>,
    frames: Vec<Frame>,
}

impl Payload {
    /// The message that a record and the payload collected make.
    pub fn message(&mut self, record: Record) -> Message<'_> {
        match record.kind {
            Kind::Operation(action) => Message::Operation(Operation {
                action,
                flags: record.flags,
                file: record.file,
                generation: record.generation,
                context: record.context,
                start: record.start,
                duration: record.duration,
                offset: record.offset,
                len: record.len,
                result: record.result,
            }),
            Kind::Context => Message::Context {
                id: record.context,
                frames: self.frames(record.len),
            },
            Kind::Module => Message::Module {
                index: record.context as u32,
                name: self.bytes(record.len),
            },
            Kind::Gap | Kind::Begin => Message::Gap { lost: record.len },
        }
    }

    fn frames(&mut self, len: u64) -> &[Frame] {
        self.frames.clear();
        let pairs = self.words.chunks_exact(2).map(|pair| Frame {
            module: pair[0] as u32,
            offset: pair[1],
        });
        self.frames.extend(pairs);
        self.frames
            .truncate(usize::try_from(len).unwrap_or(usize::MAX));
        &self.frames
    }

    fn bytes(&mut self, len: u64) -> &[u8] {
        self.bytes.clear();
        self.bytes
            .extend(self.words.iter().flat_map(|word| word.to_le_bytes()));
        self.bytes
            .truncate(usize::try_from(len).unwrap_or(usize::MAX));
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_record_survives_its_words(fields in any::<[u64; 6]>(), file: u32, generation: u32, flags: u8, number in 0u8..10, payload in 0..=PAYLOAD_MAX) {
            let record = Record {
                kind: Kind::from_number(number).unwrap(),
                flags, file, generation,
                context: fields[0], start: fields[1], duration: fields[2],
                offset: fields[3], len: fields[4], result: fields[5] as i64,
            };
            prop_assert_eq!(Record::from_words(record.to_words(payload)), Some((record, payload)));
        }

        #[test]
        fn nonsense_is_told_apart_or_read_without_harm(words in any::<[u64; 8]>(), more in proptest::collection::vec(any::<u64>(), 0..64)) {
            if let Some((record, _)) = Record::from_words(words) {
                let mut payload = Payload { words: more, ..Payload::default() };
                let _ = payload.message(record);
            }
        }
    }
}
