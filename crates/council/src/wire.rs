//! What I/O nodes and the council say to each other.
//!
//! Frames are those of 9P, which both sides know how to put together: `size[4] kind[1] tag[2]`, then the body; the tag is
//! always 0. Numbers are little endian; a text is `length[2]` and UTF-8. A frame has at most 8 KiB.
//!
//! | kind | from | body |
//! |---|---|---|
//! | 1 hello | node | `magic[4] version[2] epoch[8] name[s] credential[s]` |
//! | 2 welcome | council | `version[2] kept[8] flags[1]` |
//! | 3 refusal | council | `why[s]`; then the connection ends |
//! | 4 announcement | node | `sequence[8] flags[1] arm[s] period[8] busy[8] served[8] servers[4] clients[4] processes[4]` and, if bit 0 of the flags is set, `op[1] requests[8] handles[8] size_max[8] size_min[8] size_mean[8] distance[8] stride[8]`; if bit 3 is, `files[4] reads[4] writes[4] count[2]` and so many `point[4]` |
//! | 5 decision | council | `sequence[8] kept[8] flags[1] arm[s] context[s] why[s]` |
//! | 6 figures | node | see `figures.rs`: what a node does at the moment, for people |
//!
//! Bit 1 of an announcement's flags says that the arm was in force for the whole period, so that it can be learned from;
//! bit 2 that it is announced again, for a council that may have missed it: it is learned from and not answered; bit 3 that the
//! period's pattern comes with it. Bit 0 of a decision's flags says that the arm is tried, not believed to be the best; bit 0 of
//! a welcome's, that the council matches patterns and wants them.
//!
//! *Invariants.* Parsing allocates no more than the frame has, and what was parsed can be: lengths fit, texts are texts,
//! arms are arms, figures are finite. What is left over at the end of a body is an error, too.

use crate::figures::Figures;
use presagio_core::{Nanos, Op};
use presagio_ninep::HEADER;
use presagio_pattern::Pattern;
use presagio_tune::{Arm, Arrived, Features, Observation};

/// What a hello begins with.
pub const MAGIC: u32 = u32::from_le_bytes(*b"PCNL");

/// The version that is spoken here. A body that changes makes another one.
pub const VERSION: u16 = 3;

/// The largest frame.
pub const FRAME_MAX: u32 = 8 << 10;

/// The longest name of a node.
pub const NAME_MAX: usize = 255;

/// The longest credential: MUNGE's have some 150 bytes.
pub const CREDENTIAL_MAX: usize = 4096;

/// The longest pattern: longer ones are not sent. Those that nodes make have two dozen points.
pub const POINTS_MAX: usize = 1024;

/// The longest reason; longer ones are cut.
pub const WHY_MAX: usize = 1024;

/// What a node says first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Which life of the node it is: another number each time that it starts.
    pub epoch: u64,
    /// What it is called.
    pub name: String,
    /// What proves who it is, where that is asked for.
    pub credential: Vec<u8>,
}

/// What a node saw in a period.
#[derive(Clone, Debug, PartialEq)]
pub struct Announcement {
    /// Its number: they count from 1.
    pub sequence: u64,
    /// What is in force.
    pub arm: Arm,
    /// Whether it was for the whole period.
    pub settled: bool,
    /// Whether it is said for the second time, and is not answered.
    pub again: bool,
    /// What was seen.
    pub observation: Observation,
    /// Its pattern, for a council that wants it.
    pub pattern: Option<Pattern>,
}

/// What a node is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The announcement that it answers.
    pub sequence: u64,
    /// The last announcement of this node that was learned from and will not be forgotten.
    pub kept: u64,
    /// What is to be in force.
    pub arm: Arm,
    /// Whether it is tried, rather than believed to be best.
    pub explores: bool,
    /// What the council takes the node's situation for, in words; empty if it cannot tell.
    pub context: String,
    /// Why, in words.
    pub why: String,
}

/// A message.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// See [`Hello`].
    Hello(Hello),
    /// The council listens.
    Welcome {
        /// The last announcement of this life of the node that will not be forgotten.
        kept: u64,
        /// Whether it wants patterns.
        patterns: bool,
    },
    /// The council does not.
    Refusal {
        /// Why.
        why: String,
    },
    /// See [`Announcement`].
    Announcement(Announcement),
    /// See [`Decision`].
    Decision(Decision),
    /// See [`Figures`].
    Figures(Figures),
}

/// What came is no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// No frame.
    #[error("a frame's size is wrong")]
    Frame,
    /// No kind of message that there is.
    #[error("messages of kind {0} do not exist")]
    Kind(u8),
    /// It ends too early.
    #[error("{0} is cut off")]
    Short(&'static str),
    /// It does not end.
    #[error("{0} bytes follow the message")]
    Trailing(usize),
    /// No such value.
    #[error("{0} cannot be that")]
    Value(&'static str),
    /// It speaks another protocol.
    #[error("it does not speak the protocol of councils")]
    Magic,
    /// It speaks another version.
    #[error("it speaks version {0}, and this is version {VERSION}: update the older side")]
    Version(u16),
}

const HAS_ARRIVED: u8 = 1;
const IS_SETTLED: u8 = 2;
const IS_AGAIN: u8 = 4;
const HAS_PATTERN: u8 = 8;
const EXPLORES: u8 = 1;
const WANTS_PATTERNS: u8 = 1;

impl Message {
    /// Adds its frame to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend([0; HEADER]);
        let kind = match self {
            Message::Hello(hello) => {
                out.extend(MAGIC.to_le_bytes());
                out.extend(VERSION.to_le_bytes());
                out.extend(hello.epoch.to_le_bytes());
                put_bytes(out, hello.name.as_bytes());
                put_bytes(out, &hello.credential);
                1
            }
            Message::Welcome { kept, patterns } => {
                out.extend(VERSION.to_le_bytes());
                out.extend(kept.to_le_bytes());
                out.push(flag(*patterns, WANTS_PATTERNS));
                2
            }
            Message::Refusal { why } => {
                put_text(out, why);
                3
            }
            Message::Announcement(announcement) => {
                announcement.write(out);
                4
            }
            Message::Decision(decision) => {
                decision.write(out);
                5
            }
            Message::Figures(figures) => {
                figures.write(out);
                6
            }
        };
        let size = (out.len() - start) as u32; // At most FRAME_MAX: all texts are bounded.
        out[start..start + 4].copy_from_slice(&size.to_le_bytes());
        out[start + 4] = kind;
    }

    /// The message of a frame.
    pub fn read(kind: u8, body: &[u8]) -> Result<Message, Malformed> {
        let mut rest = Rest(body);
        let message = match kind {
            1 => Message::Hello(hello(&mut rest)?),
            2 => {
                version(&mut rest)?;
                let kept = rest.u64("welcome")?;
                let flags = rest.flags(WANTS_PATTERNS)?;
                Message::Welcome {
                    kept,
                    patterns: flags & WANTS_PATTERNS != 0,
                }
            }
            3 => Message::Refusal {
                why: rest.text("refusal", WHY_MAX)?.to_owned(),
            },
            4 => Message::Announcement(announcement(&mut rest)?),
            5 => Message::Decision(decision(&mut rest)?),
            6 => Message::Figures(Figures::read(&mut rest)?),
            kind => return Err(Malformed::Kind(kind)),
        };
        match rest.0.len() {
            0 => Ok(message),
            left => Err(Malformed::Trailing(left)),
        }
    }
}

impl Announcement {
    fn write(&self, out: &mut Vec<u8>) {
        let Observation {
            period,
            busy,
            served,
            servers,
            clients,
            processes,
            arrived,
        } = &self.observation;
        let pattern = self.pattern.as_ref();
        let pattern = pattern.filter(|pattern| pattern.points().len() <= POINTS_MAX);
        let flags = flag(arrived.is_some(), HAS_ARRIVED)
            | flag(self.settled, IS_SETTLED)
            | flag(self.again, IS_AGAIN)
            | flag(pattern.is_some(), HAS_PATTERN);
        out.extend(self.sequence.to_le_bytes());
        out.push(flags);
        put_text(out, &self.arm.to_string());
        for number in [period.0, busy.0, *served] {
            out.extend(number.to_le_bytes());
        }
        for number in [servers, clients, processes] {
            out.extend(number.to_le_bytes());
        }
        if let Some(arrived) = arrived {
            write_arrived(arrived, out);
        }
        if let Some(pattern) = pattern {
            write_pattern(pattern, out);
        }
    }
}

fn write_arrived(arrived: &Arrived, out: &mut Vec<u8>) {
    let features = &arrived.features;
    out.push(arrived.op.index() as u8);
    for number in [
        arrived.requests,
        features.handles,
        features.size_max,
        features.size_min,
    ] {
        out.extend(number.to_le_bytes());
    }
    for number in [features.size_mean, features.distance, features.stride] {
        out.extend(number.to_le_bytes());
    }
}

fn write_pattern(pattern: &Pattern, out: &mut Vec<u8>) {
    let [reads, writes] = Op::ALL.map(|op| pattern.requests(op));
    for number in [pattern.files(), reads, writes] {
        out.extend(number.to_le_bytes());
    }
    out.extend((pattern.points().len() as u16).to_le_bytes()); // At most POINTS_MAX.
    for point in pattern.points() {
        out.extend(point.to_le_bytes());
    }
}

fn flag(is_set: bool, bit: u8) -> u8 {
    if is_set { bit } else { 0 }
}

impl Decision {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.sequence.to_le_bytes());
        out.extend(self.kept.to_le_bytes());
        out.push(flag(self.explores, EXPLORES));
        put_text(out, &self.arm.to_string());
        put_text(out, &self.context);
        put_text(out, &self.why);
    }
}

fn version(rest: &mut Rest<'_>) -> Result<(), Malformed> {
    match rest.u16("version")? {
        VERSION => Ok(()),
        other => Err(Malformed::Version(other)),
    }
}

fn hello(rest: &mut Rest<'_>) -> Result<Hello, Malformed> {
    if rest.u32("hello")? != MAGIC {
        return Err(Malformed::Magic);
    }
    version(rest)?;
    let epoch = rest.u64("epoch")?;
    let name = rest.text("name", NAME_MAX)?;
    // It stands in logs and in metrics.
    let is_plain = !name.is_empty() && name.chars().all(|it| !it.is_control());
    if !is_plain {
        return Err(Malformed::Value("the name"));
    }
    Ok(Hello {
        epoch,
        name: name.to_owned(),
        credential: rest.bytes("credential", CREDENTIAL_MAX)?.to_vec(),
    })
}

fn announcement(rest: &mut Rest<'_>) -> Result<Announcement, Malformed> {
    let sequence = rest.u64("sequence")?;
    let flags = rest.flags(HAS_ARRIVED | IS_SETTLED | IS_AGAIN | HAS_PATTERN)?;
    let arm = rest.arm()?;
    let observation = Observation {
        period: Nanos(rest.u64("period")?),
        busy: Nanos(rest.u64("busy time")?),
        served: rest.u64("bytes served")?,
        servers: rest.u32("servers")?,
        clients: rest.u32("clients")?,
        processes: rest.u32("processes")?,
        arrived: match flags & HAS_ARRIVED {
            0 => None,
            _ => Some(arrived(rest)?),
        },
    };
    observation
        .check()
        .map_err(|nonsense| Malformed::Value(nonsense.what))?;
    Ok(Announcement {
        sequence,
        arm,
        settled: flags & IS_SETTLED != 0,
        again: flags & IS_AGAIN != 0,
        observation,
        pattern: match flags & HAS_PATTERN {
            0 => None,
            _ => Some(pattern(rest)?),
        },
    })
}

fn arrived(rest: &mut Rest<'_>) -> Result<Arrived, Malformed> {
    let op = usize::from(rest.u8("operation")?);
    let op: Op = *Op::ALL.get(op).ok_or(Malformed::Value("the operation"))?;
    Ok(Arrived {
        op,
        requests: rest.u64("requests")?,
        features: Features {
            handles: rest.u64("handles")?,
            size_max: rest.u64("sizes")?,
            size_min: rest.u64("sizes")?,
            size_mean: rest.f64("sizes")?,
            distance: rest.f64("distance")?,
            stride: rest.f64("stride")?,
        },
    })
}

fn pattern(rest: &mut Rest<'_>) -> Result<Pattern, Malformed> {
    let [files, reads, writes] = [
        rest.u32("pattern")?,
        rest.u32("pattern")?,
        rest.u32("pattern")?,
    ];
    let count = usize::from(rest.u16("pattern")?);
    if !(1..=POINTS_MAX).contains(&count) {
        return Err(Malformed::Value("the pattern"));
    }
    let (points, _) = rest.take(4 * count, "pattern")?.as_chunks();
    let points = points.iter().map(|point| u32::from_le_bytes(*point));
    Ok(Pattern::new(points.collect(), files, reads, writes))
}

fn decision(rest: &mut Rest<'_>) -> Result<Decision, Malformed> {
    let (sequence, kept) = (rest.u64("sequence")?, rest.u64("kept")?);
    let flags = rest.flags(EXPLORES)?;
    Ok(Decision {
        sequence,
        kept,
        explores: flags & EXPLORES != 0,
        arm: rest.arm()?,
        context: rest.text("context", WHY_MAX)?.to_owned(),
        why: rest.text("reason", WHY_MAX)?.to_owned(),
    })
}

/// What was not read yet.
pub(crate) struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self
            .0
            .split_at_checked(count)
            .ok_or(Malformed::Short(what))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed::Short(what))?;
        self.0 = rest;
        Ok(*taken)
    }

    pub fn u8(&mut self, what: &'static str) -> Result<u8, Malformed> {
        self.array(what).map(|[byte]| byte)
    }

    /// Flags, of which only these may be set.
    fn flags(&mut self, known: u8) -> Result<u8, Malformed> {
        match self.u8("flags")? {
            flags if flags & !known == 0 => Ok(flags),
            _ => Err(Malformed::Value("the flags")),
        }
    }

    fn u16(&mut self, what: &'static str) -> Result<u16, Malformed> {
        self.array(what).map(u16::from_le_bytes)
    }

    pub fn u32(&mut self, what: &'static str) -> Result<u32, Malformed> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub fn u64(&mut self, what: &'static str) -> Result<u64, Malformed> {
        self.array(what).map(u64::from_le_bytes)
    }

    fn f64(&mut self, what: &'static str) -> Result<f64, Malformed> {
        let number = self.array(what).map(f64::from_le_bytes)?;
        match number.is_finite() {
            true => Ok(number),
            false => Err(Malformed::Value(what)),
        }
    }

    fn bytes(&mut self, what: &'static str, max: usize) -> Result<&'a [u8], Malformed> {
        let length = usize::from(self.u16(what)?);
        match length > max {
            true => Err(Malformed::Value(what)),
            false => self.take(length, what),
        }
    }

    fn text(&mut self, what: &'static str, max: usize) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes(what, max)?).map_err(|_| Malformed::Value(what))
    }

    pub fn arm(&mut self) -> Result<Arm, Malformed> {
        let text = self.text("arm", 64)?;
        text.parse().map_err(|_| Malformed::Value("the arm"))
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(CREDENTIAL_MAX)];
    out.extend((bytes.len() as u16).to_le_bytes());
    out.extend(bytes);
}

pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, cut(text, WHY_MAX).as_bytes());
}

/// A text of at most so many bytes.
pub(crate) fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use presagio_ninep::Frames;
    use proptest::prelude::*;

    pub(crate) fn observation() -> Observation {
        Observation {
            period: Nanos::from_secs(1),
            busy: Nanos::from_millis(900),
            served: 100 << 20,
            servers: 4,
            clients: 8,
            processes: 32,
            arrived: Some(Arrived {
                op: Op::Write,
                requests: 3200,
                features: Features {
                    handles: 32,
                    size_max: 32 << 10,
                    size_min: 32 << 10,
                    size_mean: 32768.0,
                    distance: 0.0,
                    stride: 0.0,
                },
            }),
        }
    }

    /// Two sides that take a body for another would both be wrong in silence: whoever changes one changes the version, and this.
    #[test]
    fn a_version_stands_for_what_bodies_look_like() {
        let mut announced = Vec::new();
        write_arrived(&observation().arrived.unwrap(), &mut announced);
        assert_eq!((VERSION, announced.len()), (3, 57));
    }

    fn messages() -> Vec<Message> {
        let announcement = Announcement {
            sequence: 7,
            arm: "TWINS:0.125ms".parse().unwrap(),
            settled: true,
            again: false,
            observation: observation(),
            pattern: Some(Pattern::new(vec![1, 2, 3], 4, 5, 6)),
        };
        let idle = Announcement {
            settled: false,
            again: true,
            observation: Observation {
                arrived: None,
                ..observation()
            },
            pattern: None,
            ..announcement.clone()
        };
        vec![
            Message::Hello(Hello {
                epoch: u64::MAX,
                name: "io-1.cluster".to_owned(),
                credential: b"MUNGE:abc:".to_vec(),
            }),
            Message::Welcome {
                kept: 3,
                patterns: true,
            },
            Message::Refusal {
                why: "no".to_owned(),
            },
            Message::Announcement(announcement),
            Message::Announcement(idle),
            Message::Figures(crate::figures::tests::figures()),
            Message::Decision(Decision {
                sequence: 7,
                kept: 5,
                arm: "SJF".parse().unwrap(),
                explores: true,
                context: "own-files write".to_owned(),
                why: "tried for the first time".to_owned(),
            }),
        ]
    }

    fn frame(message: &Message) -> Vec<u8> {
        let mut out = Vec::new();
        message.write(&mut out);
        out
    }

    #[test]
    fn what_is_written_is_read() {
        let mut frames = Frames::new(FRAME_MAX);
        for message in messages() {
            let bytes = frame(&message);
            frames.space_for(bytes.len())[..bytes.len()].copy_from_slice(&bytes);
            frames.received(bytes.len());
            let frame = frames.next().unwrap().expect("whole");
            assert_eq!(Message::read(frame.kind.0, frame.body), Ok(message));
        }
    }

    #[test]
    fn a_reason_without_end_is_cut_and_the_frame_stays_small() {
        let why = "é".repeat(10_000);
        let bytes = frame(&Message::Refusal { why });
        assert!(bytes.len() <= HEADER + 2 + WHY_MAX);
        assert!(Message::read(bytes[4], &bytes[HEADER..]).is_ok());
    }

    #[test]
    fn a_pattern_that_is_too_long_is_left_out() {
        let Message::Announcement(good) = &messages()[3] else {
            unreachable!()
        };
        let with = |points: usize| {
            let pattern = Some(Pattern::new(vec![1; points], 1, 1, 1));
            let bytes = frame(&Message::Announcement(Announcement {
                pattern,
                ..good.clone()
            }));
            assert!(bytes.len() <= FRAME_MAX as usize);
            match Message::read(bytes[4], &bytes[HEADER..]) {
                Ok(Message::Announcement(read)) => read.pattern.is_some(),
                other => panic!("{other:?}"),
            }
        };
        assert!(with(POINTS_MAX));
        assert!(!with(POINTS_MAX + 1));
    }

    #[test]
    fn another_version_is_told_apart_from_another_protocol() {
        let mut bytes = frame(&messages()[0]);
        bytes[HEADER + 4] = 9;
        assert_eq!(
            Message::read(1, &bytes[HEADER..]),
            Err(Malformed::Version(9))
        );
        bytes[HEADER] = b'X';
        assert_eq!(Message::read(1, &bytes[HEADER..]), Err(Malformed::Magic));
        assert_eq!(Message::read(7, &[]), Err(Malformed::Kind(7)));
    }

    #[test]
    fn what_cannot_be_is_not_believed() {
        let Message::Announcement(good) = &messages()[3] else {
            unreachable!()
        };
        let mut lie = good.clone();
        lie.observation.busy = Nanos(u64::MAX);
        let bytes = frame(&Message::Announcement(lie));
        let read = Message::read(bytes[4], &bytes[HEADER..]);
        assert!(matches!(read, Err(Malformed::Value(_))), "{read:?}");
    }

    proptest! {
        /// Whatever is cut off or added, it is noticed.
        #[test]
        fn no_part_of_a_message_is_a_message(which in 0_usize..7, at in any::<prop::sample::Index>()) {
            let bytes = frame(&messages()[which]);
            let body = &bytes[HEADER..];
            let short = &body[..at.index(body.len())];
            prop_assert!(Message::read(bytes[4], short).is_err());
            let long = [body, &[0]].concat();
            prop_assert!(Message::read(bytes[4], &long).is_err());
        }

        /// Any bytes: an error or a message, which is the same when it is written and read again.
        #[test]
        fn any_bytes_are_a_message_or_an_error(
            kind in 0_u8..8,
            which in 0_usize..7,
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
            noise in prop::option::of(prop::collection::vec(any::<u8>(), 0..300)),
        ) {
            let (mut body, kind) = match noise {
                Some(noise) => (noise, kind),
                None => {
                    let bytes = frame(&messages()[which]);
                    (bytes[HEADER..].to_vec(), bytes[4])
                }
            };
            for (at, value) in flips {
                if !body.is_empty() {
                    let at = at.index(body.len());
                    body[at] = value;
                }
            }
            if let Ok(message) = Message::read(kind, &body) {
                let again = frame(&message);
                prop_assert_eq!(Message::read(again[4], &again[HEADER..]), Ok(message));
            }
        }
    }
}
