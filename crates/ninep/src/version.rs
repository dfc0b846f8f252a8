//! Which protocol the two sides speak.
//!
//! A client offers `9P2000.L.presagio1`, the way 9P names extensions: a server that does not know what follows a dot may
//! answer the part before it. Not all do. diod compares the whole text with `9P2000.L` and answers Rlerror, QEMU answers
//! `unknown`; a client then offers `9P2000.L` on the same connection ([`after`]). Linux's client offers `9P2000.L` and
//! would take any answer that begins so; it gets exactly that ([`answer`]).
//!
//! Should there be a `presagio2`, a server that knows only the first answers `presagio1`.

use crate::reply::Reply;
use crate::text::Text;
use crate::{MSIZE_MAX, MSIZE_MIN};

/// What a session speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// 9P2000.L as diod and Linux have it.
    #[default]
    Linux,
    /// The same, and [`crate::extension`].
    Presagio,
}

const LINUX: &[u8] = b"9P2000.L";
const PRESAGIO: &[u8] = b"9P2000.L.presagio1";
const FAMILY: &[u8] = b"9P2000.L.presagio";

impl Dialect {
    /// Its name in version messages.
    pub fn version(self) -> Text<'static> {
        let name = match self {
            Dialect::Linux => LINUX,
            Dialect::Presagio => PRESAGIO,
        };
        Text::new(name).expect("a text without NUL")
    }
}

/// What both sides agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The protocol.
    pub dialect: Dialect,
    /// The size of the largest frame.
    pub msize: u32,
}

/// What a server that takes frames of up to `msize` bytes makes of an offer; `None` if it is no offer that can be
/// taken, which [`refusal`] says to the client.
pub fn answer(offered_msize: u32, offered: Text<'_>, msize: u32) -> Option<Agreed> {
    let dialect = dialect_for(offered.bytes())?;
    let msize = offered_msize.min(msize).min(MSIZE_MAX);
    (msize >= MSIZE_MIN).then_some(Agreed { dialect, msize })
}

fn dialect_for(offered: &[u8]) -> Option<Dialect> {
    if let Some(number) = offered.strip_prefix(FAMILY) {
        let known =
            !number.is_empty() && number[0] != b'0' && number.iter().all(u8::is_ascii_digit);
        return Some(if known {
            Dialect::Presagio
        } else {
            Dialect::Linux
        });
    }
    match offered.strip_prefix(LINUX) {
        Some([] | [b'.', ..]) => Some(Dialect::Linux),
        _ => None,
    }
}

impl Agreed {
    /// The reply that says so.
    pub fn reply(self) -> Reply<'static> {
        Reply::Version {
            msize: self.msize,
            version: self.dialect.version(),
        }
    }
}

/// The reply to an offer that cannot be taken; the client may make another.
pub fn refusal(msize: u32) -> Reply<'static> {
    let version = Text::new(b"unknown").expect("a text without NUL");
    Reply::Version { msize, version }
}

/// What a client does after a reply to its offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Begin.
    Speak(Agreed),
    /// Offer plain `9P2000.L`.
    OfferPlain,
    /// Leave: the server does not speak 9P2000.L, or not with frames of a useful size.
    Leave,
}

/// What a client that offered `offered` does after `reply`.
pub fn after(offered: Agreed, reply: Reply<'_>) -> Next {
    let plain = match offered.dialect {
        Dialect::Presagio => Next::OfferPlain,
        Dialect::Linux => Next::Leave,
    };
    let Reply::Version { msize, version } = reply else {
        return plain;
    };
    let dialect = match version.bytes() {
        PRESAGIO if offered.dialect == Dialect::Presagio => Dialect::Presagio,
        LINUX => Dialect::Linux,
        _ => return plain,
    };
    // A server that answers more than was offered is held to the offer.
    let msize = msize.min(offered.msize);
    match msize >= MSIZE_MIN {
        true => Next::Speak(Agreed { dialect, msize }),
        false => Next::Leave,
    }
}
