//! One function per parser that takes any bytes as its input: what the fuzzers in `fuzz/` call, and
//! `tests/fuzz_short.rs` with inputs of its own. No part of the interface.

use crate::client::{Ask, Client, Options, Stream};
use crate::field::HEADER;
use crate::{
    Dialect, Entries, Fid, Frame, Frames, GetAttr, Kind, MSIZE_MAX, Reply, Request, Tag, version,
};
use std::io::{self, IoSlice};
use std::sync::Mutex;
use std::time::Duration;

/// A parser under test. It returns how many messages it took.
pub type Target = fn(&[u8]) -> usize;

/// All of them by name; `fuzz/corpus` has a directory for each.
pub const TARGETS: [(&str, Target); 4] = [
    ("request", request),
    ("reply", reply),
    ("stream", stream),
    ("client", client),
];

/// Type and tag of a frame, then its fields: its size is always right.
fn frame(bytes: &[u8]) -> Option<Frame<'_>> {
    let [kind, low, high, body @ ..] = bytes else {
        return None;
    };
    Some(Frame {
        kind: Kind(*kind),
        tag: Tag(u16::from_le_bytes([*low, *high])),
        body,
    })
}

/// What a server gets. What it takes, it would send just so itself.
pub fn request(bytes: &[u8]) -> usize {
    let Some(frame) = frame(bytes) else {
        return 0;
    };
    let plain = Request::parse(frame, Dialect::Linux);
    let Ok(request) = Request::parse(frame, Dialect::Presagio) else {
        assert!(plain.is_err());
        return 0;
    };
    assert_eq!(plain.is_err(), frame.kind.is_extension());
    let mut again = Vec::new();
    request.encode(frame.tag, &mut again);
    // Its last field has several forms.
    if !matches!(request, Request::Fsync { .. }) {
        assert_eq!(&again[HEADER..], frame.body);
    }
    format!("{request:?}").len().min(1)
}

/// What a client gets, the entries of directories too.
pub fn reply(bytes: &[u8]) -> usize {
    let Some(frame) = frame(bytes) else {
        return 0;
    };
    let Ok(reply) = Reply::parse(frame, Dialect::Presagio) else {
        return 0;
    };
    let mut again = Vec::new();
    reply.encode(frame.tag, &mut again);
    assert_eq!(&again[HEADER..], frame.body);
    match reply {
        Reply::ReadDir { entries } => 1 + Entries::new(entries).filter(Result::is_ok).count(),
        other => format!("{other:?}").len().min(1),
    }
}

/// A stream that comes in pieces, whose size the first byte says.
pub fn stream(bytes: &[u8]) -> usize {
    let Some((piece, stream)) = bytes.split_first() else {
        return 0;
    };
    let (mut frames, mut found, mut taken) = (Frames::new(64 << 10), 0, 0);
    for piece in stream.chunks(usize::from(*piece) + 1) {
        let mut rest = piece;
        while !rest.is_empty() {
            let space = frames.space();
            let count = rest.len().min(space.len());
            space[..count].copy_from_slice(&rest[..count]);
            frames.received(count);
            rest = &rest[count..];
            loop {
                match frames.next() {
                    Ok(Some(frame)) => taken += HEADER + frame.body.len(),
                    Ok(None) => break,
                    Err(_) => return found,
                }
                found += 1;
            }
        }
    }
    assert!(frames.memory() <= 2 * (64 << 10));
    assert_eq!(taken + frames.bytes().len(), stream.len(), "a byte is lost");
    found
}

/// A server that sends these bytes, whatever it is asked.
pub fn client(bytes: &[u8]) -> usize {
    let options = Options {
        timeout: Duration::from_secs(5),
        ..Options::default()
    };
    let Ok(client) = Client::connect(Script::new(bytes), &options) else {
        unreachable!("the script begins with an agreement");
    };
    let (fid, offset) = (Fid(1), 0);
    let mask = GetAttr::ALL;
    let listing = Request::ReadDir {
        fid,
        offset,
        count: 30_000,
    };
    let asks = [
        Ask::read(fid, offset, vec![0; 100]),
        Ask::read(fid, offset, vec![0; 40_000]),
        Ask::new(Request::GetAttr { fid, mask }),
        Ask::new(listing),
    ];
    let tickets = client.submit_all(asks).unwrap_or_default().into_iter();
    let mut place = [0; 60];
    let read = client.read(fid, offset, &mut place).is_ok();
    let answered = tickets.filter_map(|ticket| ticket.wait().ok());
    answered.count() + usize::from(read)
}

/// The server's side of such a connection: an agreement, the bytes in two pieces and an end.
struct Script {
    left: Mutex<Vec<Vec<u8>>>,
}

impl Script {
    fn new(bytes: &[u8]) -> Script {
        let agreed = version::answer(MSIZE_MAX, Dialect::Presagio.version(), MSIZE_MAX);
        let mut agreement = Vec::new();
        if let Some(agreed) = agreed {
            agreed.reply().encode(Tag::NONE, &mut agreement);
        }
        let (first, second) = bytes.split_at(bytes.len() / 3);
        Script {
            left: Mutex::new(vec![second.to_vec(), first.to_vec(), agreement]),
        }
    }
}

impl Stream for Script {
    fn recv(&self, to: &mut [u8], _: Duration) -> io::Result<usize> {
        let mut left = self.left.lock().map_err(|_| io::ErrorKind::Other)?;
        while let Some(piece) = left.last_mut() {
            let count = piece.len().min(to.len());
            if count > 0 {
                to[..count].copy_from_slice(&piece[..count]);
                piece.drain(..count);
                return Ok(count);
            }
            left.pop();
        }
        Ok(0)
    }

    fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(parts.iter().map(|part| part.len()).sum())
    }

    fn wait(&self, _: bool, _: Duration) -> io::Result<()> {
        Ok(())
    }

    fn close(&self) {}
}
