//! The first messages of a connection: both sides agree on a dialect and on the size of frames.

use super::Stream;
use super::error::Lost;
use crate::Dialect;
use crate::frame::Frames;
use crate::ids::Tag;
use crate::reply::Reply;
use crate::request::Request;
use crate::version::{self, Agreed, Next};
use std::io::{self, IoSlice};
use std::time::{Duration, Instant};

/// Makes the offer, and a plain one if that is refused.
pub(super) fn agree(
    stream: &dyn Stream,
    frames: &mut Frames,
    mut offer: Agreed,
    deadline: Instant,
) -> Result<Agreed, Lost> {
    // At most two offers: after a plain one there is nothing to fall back to.
    loop {
        send_offer(stream, offer, deadline)?;
        let (next, said) = hear(stream, frames, offer, deadline)?;
        match next {
            Next::Speak(agreed) => {
                frames.set_msize(agreed.msize);
                return Ok(agreed);
            }
            Next::OfferPlain => offer.dialect = Dialect::Linux,
            Next::Leave => return Err(Lost::NoCommonVersion(said)),
        }
    }
}

fn left(deadline: Instant) -> Result<Duration, Lost> {
    let left = deadline.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(Lost::Silent),
        false => Ok(left),
    }
}

fn send_offer(stream: &dyn Stream, offer: Agreed, deadline: Instant) -> Result<(), Lost> {
    let mut frame = Vec::new();
    let (msize, version) = (offer.msize, offer.dialect.version());
    Request::Version { msize, version }.encode(Tag::NONE, &mut frame);
    let mut rest = &frame[..];
    while !rest.is_empty() {
        match stream.send(&[IoSlice::new(rest)]) {
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                stream.wait(false, left(deadline)?)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn hear(
    stream: &dyn Stream,
    frames: &mut Frames,
    offer: Agreed,
    deadline: Instant,
) -> Result<(Next, String), Lost> {
    loop {
        if let Some(frame) = frames.next()? {
            let reply = Reply::parse(frame, Dialect::Linux)?;
            let due = matches!(reply, Reply::Version { .. } | Reply::Error { .. });
            return match due && frame.tag == Tag::NONE {
                true => Ok((version::after(offer, reply), format!("it says {reply:?}"))),
                false => Err(Lost::NotAsked {
                    kind: frame.kind,
                    tag: frame.tag,
                }),
            };
        }
        match stream.recv(frames.space(), left(deadline)?) {
            Ok(0) => return Err(Lost::Closed),
            Ok(count) => frames.received(count),
            Err(error) if super::incoming::is_patience(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
