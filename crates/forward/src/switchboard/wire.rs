//! The bytes of questions and answers. Numbers are little-endian; a text has its length before it, in four bytes.
//!
//! ```text
//! question: version[1] op[1] export[4] node[4] instance[16]; `node` is milliseconds where the last resort is asked for
//! answer:   0[1], then what was asked for; or 1[1] errno[4] text
//! exports:  count[4], then count times
//!           prefix count[4] node... export client job program rank[4] spread[1] credential[1] direct[1] went[4] owners[16]
//!           msize[4] files_max[8] timeout_us[8] connect_timeout_us[8] patience_us[8]
//! ```

use super::Forwarded;
use crate::options::{Identity, Instance, Options, Spread};
use std::io;
use std::time::Duration;

const VERSION: u8 = 3;

/// The longest answer.
pub(super) const ANSWER_MAX: usize = 128 << 10;

/// What a program asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    Exports,
    Dial {
        export: u32,
        node: u32,
    },
    Credential {
        export: u32,
    },
    /// This client is of the process that asks: tell the nodes when that has ended.
    Witness {
        export: u32,
        instance: Instance,
    },
    /// A connection to the last resort, for who has found no node for so long.
    Direct {
        export: u32,
        without: Duration,
    },
    /// The process that asks went to this node, since it had lost another: those that begin later are to be told.
    Went {
        export: u32,
        node: u32,
    },
}

/// Of an export of which no process went anywhere.
pub(super) const NOWHERE: u32 = u32::MAX;

impl Question {
    pub(super) const SIZE: usize = 26;

    pub(super) fn bytes(self) -> [u8; Question::SIZE] {
        let none = Instance([0; 16]);
        let (op, export, node, instance) = match self {
            Question::Exports => (1, 0, 0, none),
            Question::Dial { export, node } => (2, export, node, none),
            Question::Credential { export } => (3, export, 0, none),
            Question::Witness { export, instance } => (4, export, 0, instance),
            Question::Direct { export, without } => {
                let ms = u32::try_from(without.as_millis()).unwrap_or(u32::MAX);
                (5, export, ms, none)
            }
            Question::Went { export, node } => (6, export, node, none),
        };
        let mut bytes = [0; Question::SIZE];
        bytes[..2].copy_from_slice(&[VERSION, op]);
        bytes[2..6].copy_from_slice(&u32::to_le_bytes(export));
        bytes[6..10].copy_from_slice(&u32::to_le_bytes(node));
        bytes[10..].copy_from_slice(&instance.0);
        bytes
    }

    /// `None` if it is none of ours.
    pub(super) fn read(bytes: &[u8]) -> Option<Question> {
        let mut from = Reader(bytes);
        let (version, op) = (from.byte()?, from.byte()?);
        let (export, node) = (from.u32()?, from.u32()?);
        let instance = Instance(*from.take(16)?.first_chunk()?);
        match (version, op, from.0) {
            (VERSION, 1, []) => Some(Question::Exports),
            (VERSION, 2, []) => Some(Question::Dial { export, node }),
            (VERSION, 3, []) => Some(Question::Credential { export }),
            (VERSION, 4, []) => Some(Question::Witness { export, instance }),
            (VERSION, 5, []) => Some(Question::Direct {
                export,
                without: Duration::from_millis(node.into()),
            }),
            (VERSION, 6, []) => Some(Question::Went { export, node }),
            _ => None,
        }
    }
}

/// An answer as it is sent.
pub(super) fn answer(result: &io::Result<Vec<u8>>) -> Vec<u8> {
    match result {
        Ok(bytes) => [&[0], &bytes[..]].concat(),
        Err(error) => {
            let mut out = Writer(vec![1]);
            out.u32(error.raw_os_error().unwrap_or(5) as u32);
            out.text(error.to_string().as_bytes());
            out.0
        }
    }
}

/// What an answer says.
pub(super) fn read_answer(bytes: &[u8]) -> io::Result<&[u8]> {
    match bytes {
        [0, rest @ ..] => Ok(rest),
        [1, rest @ ..] => Err(refusal(rest).unwrap_or_else(garbage)),
        _ => Err(garbage()),
    }
}

/// With the errno where the other side had one, else in its words.
fn refusal(bytes: &[u8]) -> Option<io::Error> {
    let mut from = Reader(bytes);
    let errno = from.u32()? as i32;
    let text = String::from_utf8_lossy(from.text()?).into_owned();
    let plain = io::Error::from_raw_os_error(errno);
    Some(match text == plain.to_string() {
        true => plain,
        false => io::Error::new(plain.kind(), text),
    })
}

pub(super) fn garbage() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "whoever answers is no switchboard of this version",
    )
}

/// All that a program has to know of what is forwarded, and to which nodes others went.
pub(super) fn exports(all: &[Forwarded], went: impl Fn(usize) -> u32) -> Vec<u8> {
    let mut out = Writer(Vec::new());
    out.u32(all.len() as u32);
    for (index, one) in all.iter().enumerate() {
        out.forwarded(one, went(index));
    }
    out.0
}

/// What else there is to ask the switchboard for, for one export, and what it knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Through {
    pub(super) credential: bool,
    pub(super) direct: bool,
    /// Where a process went that had lost its node.
    pub(super) went: Option<u32>,
}

/// The other way round; the options say nothing yet of how to dial.
pub(super) fn read_exports(bytes: &[u8]) -> io::Result<Vec<(Forwarded, Through)>> {
    let mut from = Reader(bytes);
    let count = from.u32().ok_or_else(garbage)?;
    let all: Option<Vec<_>> = (0..count).map(|_| from.forwarded()).collect();
    all.filter(|_| from.0.is_empty()).ok_or_else(garbage)
}

struct Writer(Vec<u8>);

impl Writer {
    fn u32(&mut self, number: u32) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn u64(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn text(&mut self, text: &[u8]) {
        self.u32(text.len() as u32);
        self.0.extend_from_slice(text);
    }

    fn duration(&mut self, duration: Duration) {
        self.u64(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
    }

    fn forwarded(&mut self, one: &Forwarded, went: u32) {
        let options = &one.options;
        self.text(&one.prefix);
        self.u32(options.nodes.len() as u32);
        for node in &options.nodes {
            self.text(node.to_string().as_bytes());
        }
        let identity = &options.identity;
        for text in [
            &options.export,
            &identity.client,
            &identity.job,
            &identity.program,
        ] {
            self.text(text.as_bytes());
        }
        self.u32(identity.rank);
        self.0.push((options.spread == Spread::Files).into());
        self.0.push(options.credential.is_some().into());
        self.0.push(options.last_resort.is_some().into());
        self.u32(went);
        let owners = options.owners.unwrap_or(Instance([0; 16]));
        self.0.extend_from_slice(&owners.0);
        self.u32(options.msize);
        self.u64(options.files_max as u64);
        self.duration(options.timeout);
        self.duration(options.connect_timeout);
        self.duration(options.patience);
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|byte| byte[0])
    }

    fn u32(&mut self) -> Option<u32> {
        let bytes = self.take(4)?.first_chunk()?;
        Some(u32::from_le_bytes(*bytes))
    }

    fn u64(&mut self) -> Option<u64> {
        let bytes = self.take(8)?.first_chunk()?;
        Some(u64::from_le_bytes(*bytes))
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    fn string(&mut self) -> Option<String> {
        String::from_utf8(self.text()?.to_vec()).ok()
    }

    fn duration(&mut self) -> Option<Duration> {
        self.u64().map(Duration::from_micros)
    }

    fn forwarded(&mut self) -> Option<(Forwarded, Through)> {
        let prefix = self.text()?.to_vec();
        let count = self.u32()?;
        let nodes = (0..count).map(|_| self.string()?.parse().ok());
        let mut options = Options::new(nodes.collect::<Option<Vec<_>>>()?);
        options.export = self.string()?;
        options.identity = Identity {
            client: self.string()?,
            job: self.string()?,
            program: self.string()?,
            rank: self.u32()?,
        };
        options.spread = match self.byte()? {
            0 => Spread::Clients,
            _ => Spread::Files,
        };
        let through = Through {
            credential: self.byte()? != 0,
            direct: self.byte()? != 0,
            went: Some(self.u32()?).filter(|node| *node != NOWHERE),
        };
        let owners = Instance(*self.take(16)?.first_chunk()?);
        options.owners = (owners.0 != [0; 16]).then_some(owners);
        options.msize = self.u32()?;
        options.files_max = usize::try_from(self.u64()?).ok()?;
        options.timeout = self.duration()?;
        options.connect_timeout = self.duration()?;
        options.patience = self.duration()?;
        Some((Forwarded { prefix, options }, through))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Forwarded {
        let nodes = presagio_ninep::Address::list("unix:/a b,tcp:n:1").unwrap();
        let mut options = Options::new(nodes);
        options.export = "/scratch".into();
        options.spread = Spread::Files;
        options.identity.rank = 7;
        options.owners = Some(Instance([3; 16]));
        options.patience = Duration::from_millis(1500);
        Forwarded {
            prefix: b"/far/\xff".to_vec(),
            options,
        }
    }

    #[test]
    fn what_is_forwarded_arrives_as_it_was() {
        let all = [sample(), sample()];
        let went = |index| [1, NOWHERE][index];
        let read = read_exports(&exports(&all, went)).unwrap();
        assert_eq!(read.len(), 2);
        assert_eq!((read[0].1.went, read[1].1.went), (Some(1), None));
        for (one, through) in read {
            let expected = Forwarded {
                options: all[0].options.clone(),
                ..one.clone()
            };
            assert_eq!(format!("{one:?}"), format!("{expected:?}"));
            assert_eq!(one.prefix, all[0].prefix);
            assert!(!through.credential && !through.direct);
        }
    }

    #[test]
    fn an_error_arrives_with_its_number_or_its_words() {
        let plain = Err(io::Error::from_raw_os_error(111));
        let error = read_answer(&answer(&plain)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(111));
        let said = Err(io::Error::other("munged is gone"));
        let error = read_answer(&answer(&said)).unwrap_err();
        assert_eq!(error.to_string(), "munged is gone");
    }

    #[test]
    fn questions_are_read_as_they_were_asked() {
        for question in [
            Question::Exports,
            Question::Dial {
                export: 1,
                node: 70_000,
            },
            Question::Credential { export: 2 },
            Question::Witness {
                export: 3,
                instance: Instance([9; 16]),
            },
            Question::Direct {
                export: 3,
                without: Duration::from_millis(7500),
            },
            Question::Went { export: 1, node: 2 },
        ] {
            assert_eq!(Question::read(&question.bytes()), Some(question));
        }
    }

    proptest! {
        #[test]
        fn garbage_is_refused_and_nothing_worse(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0usize..300) {
            let _ = (Question::read(&bytes), read_answer(&bytes).is_ok());
            let _ = read_exports(&bytes);
            let whole = exports(&[sample()], |_| NOWHERE);
            let cut = cut % whole.len();
            prop_assert!(read_exports(&whole[..cut]).is_err());
        }
    }
}
