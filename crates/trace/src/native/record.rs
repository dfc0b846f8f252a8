//! The records of a chunk, as bytes.
//!
//! Numbers are varints: seven bits a byte, lowest first, the top bit set on all but the last; signed ones are
//! folded first (0, −1, 1, −2 … become 0, 1, 2, 3 …). A record begins with a byte whose low half tells what it
//! is. An event then has what its flags do not already say. What is expected next is learned within a chunk and
//! forgotten at its end, so that each chunk can be read alone.
//!
//! ```text
//! event    action + flags, [process, thread, layer], [file], context, ±time since the previous event,
//!          duration, [±offset from the expected one], length, [±result]
//!          flags: 10 process, thread and layer as in the previous event   40 offset as expected
//!                 20 file as in the previous event                        80 result as expected
//! file     0A, number, name
//! process  0B, number, has, [pid], [rank], [host], [command], [start]
//! context  0C, number, frames, frames × (module, offset, symbol: 0, or 1 and the name)
//! gap      0D, process, lost
//! ```
//!
//! Names are a length and their bytes. A transfer is expected where the last one of that process on that file
//! ended, or where a seek went, and to move all its bytes; other actions at offset 0 with result 0. That is known of
//! up to 4096 pairs of process and file at a time: all are forgotten before another one is added.

use super::format::RECORD_BYTES_MAX;
use crate::{Frame, Process, Record};
use presagio_core::{Action, ContextId, Event, FileId, IdHashMap, Layer, Nanos};
use std::sync::Arc;

const KIND: u8 = 0x0F;
const SAME_STREAM: u8 = 0x10;
const SAME_FILE: u8 = 0x20;
const OFFSET_EXPECTED: u8 = 0x40;
const RESULT_EXPECTED: u8 = 0x80;

const FILE: u8 = 0x0A;
const PROCESS: u8 = 0x0B;
const CONTEXT: u8 = 0x0C;
const GAP: u8 = 0x0D;

const HAS_PID: u8 = 1;
const HAS_RANK: u8 = 2;
const HAS_HOST: u8 = 4;
const HAS_COMMAND: u8 = 8;
const HAS_START: u8 = 16;

/// So many positions are known at a time.
const POSITIONS_MAX: usize = 4096;

/// What reading and writing expect of the next event; both learn it alike.
#[derive(Debug, Default)]
pub(super) struct Expect {
    previous: Previous,
    position: IdHashMap<(u64, u32), u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Previous {
    time: u64,
    process: u32,
    thread: u32,
    layer: Layer,
    file: u64,
}

impl Expect {
    /// Forgets everything: a chunk begins.
    pub fn reset(&mut self) {
        self.previous = Previous::default();
        self.position.clear();
    }

    fn offset(&self, file: u64, process: u32, action: Action) -> u64 {
        if !is_placed(action) {
            return 0;
        }
        self.position.get(&(file, process)).copied().unwrap_or(0)
    }

    /// What of an event is as expected.
    fn flags(&self, event: &Event) -> u8 {
        let (previous, action) = (self.previous, event.action);
        let stream = (event.process, event.thread, event.layer);
        let is_same_stream = stream == (previous.process, previous.thread, previous.layer);
        let offset = self.offset(event.file.0, event.process, action);
        flag(is_same_stream, SAME_STREAM)
            | flag(event.file.0 == previous.file, SAME_FILE)
            | flag(event.offset == offset, OFFSET_EXPECTED)
            | flag(
                event.result == expected_result(action, event.len),
                RESULT_EXPECTED,
            )
    }

    fn learn(&mut self, event: &Event) {
        self.previous = Previous {
            time: event.time.0,
            process: event.process,
            thread: event.thread,
            layer: event.layer,
            file: event.file.0,
        };
        if is_placed(event.action) {
            let end = match event.action.is_transfer() {
                true => event.offset.wrapping_add(event.len),
                false => event.offset,
            };
            let key = (event.file.0, event.process);
            // The bound is on time too: keys that were picked to collide cannot make us slow.
            if self.position.len() >= POSITIONS_MAX && !self.position.contains_key(&key) {
                self.position.clear();
            }
            self.position.insert(key, end);
        }
    }
}

fn is_placed(action: Action) -> bool {
    use Action::{Allocate, Map, Read, Seek, Truncate, Write};
    matches!(action, Read | Write | Seek | Truncate | Allocate | Map)
}

fn expected_result(action: Action, len: u64) -> i64 {
    if action.is_transfer() { len as i64 } else { 0 }
}

/// Adds the bytes of a record.
pub(super) fn encode(record: &Record, expect: &mut Expect, out: &mut Vec<u8>) {
    match record {
        Record::Event(event) => encode_event(event, expect, out),
        Record::File { id, name } => {
            out.push(FILE);
            put(out, id.0);
            put_bytes(out, name);
        }
        Record::Process(process) => encode_process(process, out),
        Record::Context { id, frames } => encode_context(*id, frames, out),
        Record::Gap { process, lost } => {
            out.push(GAP);
            put(out, (*process).into());
            put(out, *lost);
        }
    }
}

fn encode_event(event: &Event, expect: &mut Expect, out: &mut Vec<u8>) {
    let (previous, flags) = (expect.previous, expect.flags(event));
    out.push(event.action as u8 | flags);
    if flags & SAME_STREAM == 0 {
        put(out, event.process.into());
        put(out, event.thread.into());
        out.push(event.layer as u8);
    }
    if flags & SAME_FILE == 0 {
        put(out, event.file.0);
    }
    put(out, event.context.0.into());
    put_signed(out, event.time.0.wrapping_sub(previous.time) as i64);
    put(out, event.duration.0);
    if flags & OFFSET_EXPECTED == 0 {
        let expected = expect.offset(event.file.0, event.process, event.action);
        put_signed(out, event.offset.wrapping_sub(expected) as i64);
    }
    put(out, event.len);
    if flags & RESULT_EXPECTED == 0 {
        put_signed(out, event.result);
    }
    expect.learn(event);
}

fn flag(on: bool, bit: u8) -> u8 {
    if on { bit } else { 0 }
}

fn encode_process(process: &Process, out: &mut Vec<u8>) {
    let Process {
        id,
        pid,
        rank,
        host,
        command,
        start,
    } = process;
    out.push(PROCESS);
    put(out, (*id).into());
    out.push(
        flag(pid.is_some(), HAS_PID)
            | flag(rank.is_some(), HAS_RANK)
            | flag(host.is_some(), HAS_HOST)
            | flag(command.is_some(), HAS_COMMAND)
            | flag(start.is_some(), HAS_START),
    );
    for number in [pid, rank].into_iter().flatten() {
        put(out, (*number).into());
    }
    for text in [host, command].into_iter().flatten() {
        put_bytes(out, text.as_bytes());
    }
    if let Some(start) = start {
        put(out, start.0);
    }
}

fn encode_context(id: ContextId, frames: &[Frame], out: &mut Vec<u8>) {
    out.push(CONTEXT);
    put(out, id.0.into());
    put(out, frames.len() as u64);
    for frame in frames {
        put_bytes(out, frame.module.as_bytes());
        put(out, frame.offset);
        match &frame.symbol {
            None => out.push(0),
            Some(symbol) => {
                out.push(1);
                put_bytes(out, symbol.as_bytes());
            }
        }
    }
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_signed(out: &mut Vec<u8>, number: i64) {
    put(out, ((number << 1) ^ (number >> 63)) as u64);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// What is wrong with the bytes of a record.
pub(super) type Problem = &'static str;

const SHORT: Problem = "the chunk ends within a record";

/// Reads the record at `*at` and moves `*at` behind it.
pub(super) fn decode(bytes: &[u8], at: &mut usize, expect: &mut Expect) -> Result<Record, Problem> {
    let mut bytes = Bytes { bytes, at };
    let first = bytes.byte()?;
    match first & KIND {
        FILE => Ok(Record::File {
            id: FileId(bytes.number()?),
            name: bytes.slice()?.into(),
        }),
        PROCESS => decode_process(&mut bytes),
        CONTEXT => decode_context(&mut bytes),
        GAP => Ok(Record::Gap {
            process: bytes.small()?,
            lost: bytes.number()?,
        }),
        action => {
            let action = Action::from_number(action).ok_or("a record of unknown kind")?;
            decode_event(first, action, &mut bytes, expect).map(Record::Event)
        }
    }
}

fn decode_event(
    flags: u8,
    action: Action,
    bytes: &mut Bytes,
    expect: &mut Expect,
) -> Result<Event, Problem> {
    let previous = expect.previous;
    let (process, thread, layer) = match flags & SAME_STREAM {
        0 => (bytes.small()?, bytes.small()?, bytes.layer()?),
        _ => (previous.process, previous.thread, previous.layer),
    };
    let file = match flags & SAME_FILE {
        0 => bytes.number()?,
        _ => previous.file,
    };
    let context = ContextId(bytes.small()?);
    let time = previous.time.wrapping_add(bytes.signed()? as u64);
    let duration = Nanos(bytes.number()?);
    let moved = match flags & OFFSET_EXPECTED {
        0 => bytes.signed()? as u64,
        _ => 0,
    };
    let len = bytes.number()?;
    let result = match flags & RESULT_EXPECTED {
        0 => bytes.signed()?,
        _ => expected_result(action, len),
    };
    let event = Event {
        time: Nanos(time),
        duration,
        process,
        thread,
        file: FileId(file),
        action,
        layer,
        context,
        offset: expect.offset(file, process, action).wrapping_add(moved),
        len,
        result,
    };
    expect.learn(&event);
    Ok(event)
}

fn decode_process(bytes: &mut Bytes) -> Result<Record, Problem> {
    let id = bytes.small()?;
    let has = bytes.byte()?;
    if has > 2 * HAS_START - 1 {
        return Err("a process of which this version does not know what is known");
    }
    let small = |bytes: &mut Bytes, bit| (has & bit != 0).then(|| bytes.small()).transpose();
    let text = |bytes: &mut Bytes, bit| {
        (has & bit != 0)
            .then(|| bytes.text().map(str::to_owned))
            .transpose()
    };
    Ok(Record::Process(Process {
        id,
        pid: small(bytes, HAS_PID)?,
        rank: small(bytes, HAS_RANK)?,
        host: text(bytes, HAS_HOST)?,
        command: text(bytes, HAS_COMMAND)?,
        start: match has & HAS_START {
            0 => None,
            _ => Some(Nanos(bytes.number()?)),
        },
    }))
}

fn decode_context(bytes: &mut Bytes) -> Result<Record, Problem> {
    let id = ContextId(bytes.small()?);
    let count = bytes.number()?;
    // Not reserved by the count, which may be anything: each frame has bytes of its own.
    let mut frames = Vec::new();
    for _ in 0..count {
        frames.push(decode_frame(bytes)?);
    }
    let frames = frames.into();
    Ok(Record::Context { id, frames })
}

fn decode_frame(bytes: &mut Bytes) -> Result<Frame, Problem> {
    let module = Arc::from(bytes.text()?);
    let offset = bytes.number()?;
    let symbol = match bytes.byte()? {
        0 => None,
        1 => Some(Arc::from(bytes.text()?)),
        _ => return Err("a frame's symbol is neither there nor missing"),
    };
    Ok(Frame {
        module,
        offset,
        symbol,
    })
}

/// Bytes that are read from front to back.
struct Bytes<'a> {
    bytes: &'a [u8],
    at: &'a mut usize,
}

impl<'a> Bytes<'a> {
    fn byte(&mut self) -> Result<u8, Problem> {
        let byte = *self.bytes.get(*self.at).ok_or(SHORT)?;
        *self.at += 1;
        Ok(byte)
    }

    fn number(&mut self) -> Result<u64, Problem> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7F);
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err("a number has more than 64 bits")
    }

    fn signed(&mut self) -> Result<i64, Problem> {
        let folded = self.number()?;
        Ok((folded >> 1) as i64 ^ -((folded & 1) as i64))
    }

    fn small(&mut self) -> Result<u32, Problem> {
        u32::try_from(self.number()?).map_err(|_| "a number has more than 32 bits")
    }

    fn layer(&mut self) -> Result<Layer, Problem> {
        Layer::from_number(self.byte()?).ok_or("an event of unknown layer")
    }

    fn slice(&mut self) -> Result<&'a [u8], Problem> {
        let len = self.number()?;
        let len = usize::try_from(len)
            .ok()
            .filter(|len| *len <= RECORD_BYTES_MAX);
        let end = *self.at + len.ok_or(SHORT)?;
        let slice = self.bytes.get(*self.at..end).ok_or(SHORT)?;
        *self.at = end;
        Ok(slice)
    }

    fn text(&mut self) -> Result<&'a str, Problem> {
        std::str::from_utf8(self.slice()?).map_err(|_| "a text is not UTF-8")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(bytes: &[u8]) -> Result<u64, Problem> {
        Bytes { bytes, at: &mut 0 }.number()
    }

    #[test]
    fn numbers_of_all_sizes_survive() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> shift] {
                let mut out = Vec::new();
                put(&mut out, value);
                assert_eq!(number(&out), Ok(value));
                let (mut out, value) = (Vec::new(), value as i64);
                put_signed(&mut out, value);
                put_signed(&mut out, value.wrapping_neg());
                let mut bytes = Bytes {
                    bytes: &out,
                    at: &mut 0,
                };
                assert_eq!(bytes.signed(), Ok(value));
                assert_eq!(bytes.signed(), Ok(value.wrapping_neg()));
            }
        }
    }

    #[test]
    fn a_number_that_does_not_end_is_refused() {
        assert!(number(&[0xFF; 11]).is_err());
        assert!(number(&[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2]).is_err());
        assert_eq!(number(&[0x80]), Err(SHORT));
    }

    #[test]
    fn the_next_block_of_a_file_takes_few_bytes() {
        let (mut expect, mut out) = (Expect::default(), Vec::new());
        for block in 0..2u64 {
            out.clear();
            let event = Event {
                time: Nanos(1_000_000 + block * 20_000),
                duration: Nanos(5_000),
                process: 3,
                thread: 1,
                file: FileId(7),
                action: Action::Write,
                layer: Layer::Posix,
                context: ContextId(9),
                offset: block << 20,
                len: 1 << 20,
                result: 1 << 20,
            };
            encode(&Record::Event(event), &mut expect, &mut out);
        }
        assert_eq!(out.len(), 1 + 1 + 3 + 2 + 3);
    }
}
