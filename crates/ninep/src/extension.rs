//! What Presagio adds to 9P2000.L, once client and server have agreed on `9P2000.L.presagio1` ([`crate::version`]).
//!
//! The messages take numbers from 200, which no dialect of 9P uses: 9P2000 and .u end at 127, .L lies below 80, 9P2000.e
//! has 150 to 155, gVisor's are 124 to 143 and 250. Their bytes are in the tables of [`crate::request`] and
//! [`crate::reply`].
//!
//! **Thello** comes before the first attach. `instance` is a number that this client drew when it started and keeps over
//! all its connections: the reply cache is kept under it. `resume` is what the last `Rhello` handed out, zero at first: it
//! proves that an instance is its own. `client`, `job`, `rank` and `program` are for the scheduler and the metrics, and
//! give no right to anything. `Rhello`'s `epoch` changes when the node starts anew, `resumed` says whether the node still
//! knows the instance, `replies` how many unsettled replies it keeps for it, `grace_ms` how long it still waits for
//! locks to be reclaimed, and `node` is its name.
//!
//! **Tonce** carries a request that must not be done twice: an append, an exclusive creation, a rename. The client counts
//! them with `sequence` from 1 and repeats one under its old number. A node that did it already answers what it answered
//! then, and its fid stands for what it stood for then; one that cannot tell answers EIO. Replies up to and including `settled` were received and need not be kept; up to 256
//! numbers beyond it may be in use. The
//! reply is that of the request inside: there is no Ronce.
//!
//! ```text
//! request[m]: type[1], then the fields of that message
//! ```
//!
//! **Thandle** gives the name by which a node, or another one of the same export, finds a file again; **Treopen** lets a
//! fid stand for it, as the user of `root`, a fid that was attached. Its `flags` never make, cut or exclude; with
//! [`OpenFlags::PATH`] the fid is not opened.
//!
//! **Locks** need no message: `Tlock` has a bit for reclaims ([`LockFlags::RECLAIM`](crate::LockFlags::RECLAIM)).
//!
//! **Tforesee** announces requests that a model predicts: those that one program will make, in their order, each when the
//! one before it has been answered. A message whose first request was announced before, and has not come yet, goes on
//! from there. A node may take as many of them as it likes, and need not believe them.
//!
//! ```text
//! requests[f]: count[2], then count times fid[4] path[s] op[1] offset[8] length[8] after_ns[8]
//! ```
//!
//! Either `fid` is [`Fid::NONE`] and `path`, from the root of the export, is not empty, or the other way round. `op` is 0
//! to read and 1 to write; `after_ns` of the first request counts from when the message arrives, that of each other one from
//! when the request before it in the message is answered.

use crate::Dialect;
use crate::error::{Fault, Reason};
use crate::field::{Field, Fields};
use crate::ids::{Fid, Kind};
use crate::request::Request;
use crate::text::Text;
use crate::values::{OpenFlags, choices};
use presagio_core::{Nanos, Op, Range};
use std::fmt;

choices! {
    /// Whether a node knows an instance from before.
    Resumed {
        /// It is new to it, or was forgotten: what is repeated with `Tonce` may answer EIO.
        No = 0;
        /// The replies of earlier connections are at hand.
        Yes = 1;
    }
}

/// A request that is about to come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Foreseen<'a> {
    /// Of which file.
    pub file: ForeseenFile<'a>,
    /// Read or write.
    pub op: Op,
    /// Which bytes.
    pub range: Range,
    /// How long after the one before it in the announcement was answered; of the first, after the announcement.
    pub after: Nanos,
}

/// The file of a foreseen request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ForeseenFile<'a> {
    /// One that the client has a fid of.
    Fid(Fid),
    /// One that it will open: its path from the root of the export.
    Path(Text<'a>),
}

impl<'a> Field<'a> for Foreseen<'a> {
    const WIRE: &'static str = "[f]";

    fn get(from: &mut Fields<'a>, _: &'static str) -> Result<Self, Fault> {
        let at = from.at();
        let fid = Fid::get(from, "fid")?;
        let path = Text::get(from, "path")?;
        let file = match (fid, path.bytes().is_empty()) {
            (Fid::NONE, false) => ForeseenFile::Path(path),
            (Fid::NONE, true) => return Err(from.fault("path", at, Reason::Empty)),
            (fid, true) => ForeseenFile::Fid(fid),
            (fid, false) => return Err(from.fault("fid", at, Reason::Value(fid.0.into()))),
        };
        Ok(Foreseen {
            file,
            op: op(from)?,
            range: range(from)?,
            after: Nanos(u64::get(from, "after_ns")?),
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self.file {
            ForeseenFile::Fid(fid) => {
                fid.put(out);
                0u16.put(out);
            }
            ForeseenFile::Path(path) => {
                Fid::NONE.put(out);
                path.put(out);
            }
        }
        (self.op.index() as u8).put(out);
        self.range.start().put(out);
        self.range.len().put(out);
        self.after.0.put(out);
    }

    #[cfg(test)]
    fn sample(from: &mut crate::sample::Source<'a>) -> Self {
        let path = from.text();
        Foreseen {
            file: match path.is_empty() {
                true => ForeseenFile::Fid(Fid(from.number() as u32 & 0xffff)),
                false => ForeseenFile::Path(Text::new(path).expect("a sample of a text")),
            },
            op: Op::ALL[from.number() as usize % 2],
            range: Range::at(from.number(), from.number()),
            after: Nanos(from.number()),
        }
    }
}

fn op(from: &mut Fields<'_>) -> Result<Op, Fault> {
    let at = from.at();
    let op = u8::get(from, "op")?;
    let known = Op::ALL.get(usize::from(op)).copied();
    known.ok_or_else(|| from.fault("op", at, Reason::Value(op.into())))
}

fn range(from: &mut Fields<'_>) -> Result<Range, Fault> {
    let offset = u64::get(from, "offset")?;
    let at = from.at();
    let length = u64::get(from, "length")?;
    Range::new(offset, length).ok_or_else(|| from.fault("length", at, Reason::Value(length)))
}

/// How a file is opened again: as it was, but neither made nor cut a second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReopenFlags(OpenFlags);

impl ReopenFlags {
    const ONCE: OpenFlags = OpenFlags(OpenFlags::CREAT.0 | OpenFlags::EXCL.0 | OpenFlags::TRUNC.0);

    /// What is left of the flags that a file was opened with.
    pub const fn new(flags: OpenFlags) -> ReopenFlags {
        ReopenFlags(flags.without(ReopenFlags::ONCE))
    }

    /// The flags.
    pub const fn flags(self) -> OpenFlags {
        self.0
    }
}

impl<'a> Field<'a> for ReopenFlags {
    const WIRE: &'static str = OpenFlags::WIRE;

    fn get(from: &mut Fields<'a>, name: &'static str) -> Result<Self, Fault> {
        let at = from.at();
        let flags = OpenFlags::get(from, name)?;
        match flags.intersects(ReopenFlags::ONCE) {
            true => Err(from.fault(name, at, Reason::Value(flags.0.into()))),
            false => Ok(ReopenFlags(flags)),
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }

    #[cfg(test)]
    fn sample(from: &mut crate::sample::Source<'a>) -> Self {
        ReopenFlags::new(OpenFlags::sample(from))
    }
}

/// The request inside a `Tonce`: one of those that change something and would not do so twice alike. Parsed, it lies in
/// the frame.
#[derive(Clone, Copy)]
pub struct Wrapped<'a>(Inside<'a>);

#[derive(Clone, Copy)]
enum Inside<'a> {
    Frame { kind: Kind, fields: &'a [u8] },
    Value(&'a Request<'a>),
}

impl<'a> Wrapped<'a> {
    /// Wraps a request, if it is one that needs it.
    pub fn new(request: &'a Request<'a>) -> Result<Wrapped<'a>, Reason> {
        match wrappable(request.kind()) {
            true => Ok(Wrapped(Inside::Value(request))),
            false => Err(Reason::NotWrappable),
        }
    }

    /// The type of the request inside.
    pub fn kind(&self) -> Kind {
        match self.0 {
            Inside::Frame { kind, .. } => kind,
            Inside::Value(request) => request.kind(),
        }
    }

    /// The request inside.
    pub fn request(&self) -> Request<'a> {
        match self.0 {
            Inside::Value(request) => *request,
            Inside::Frame { kind, fields } => {
                let mut from = Fields::new(fields, 0);
                // It was parsed once, when the message around it was.
                Request::from_fields(kind, &mut from, Dialect::Linux).expect("a checked request")
            }
        }
    }
}

/// Which requests may be wrapped: those whose repetition would fail, or do more than the first.
pub const fn wrappable(kind: Kind) -> bool {
    matches!(
        kind.0,
        12 | 14 | 16 | 18 | 20 | 26 | 70 | 72 | 74 | 76 | 118 | 122
    )
}

impl<'a> Field<'a> for Wrapped<'a> {
    const WIRE: &'static str = "[m]";

    fn get(from: &mut Fields<'a>, name: &'static str) -> Result<Self, Fault> {
        let at = from.at();
        let kind = Kind(u8::get(from, name)?);
        if !wrappable(kind) {
            return Err(from.fault(name, at, Reason::NotWrappable));
        }
        let fields = from.rest();
        Request::from_fields(kind, from, Dialect::Linux)?;
        Ok(Wrapped(Inside::Frame { kind, fields }))
    }

    fn put(&self, out: &mut Vec<u8>) {
        self.kind().0.put(out);
        match &self.0 {
            Inside::Value(request) => {
                request.put(out);
            }
            Inside::Frame { fields, .. } => {
                let head = fields.len() - self.tail().len();
                out.extend_from_slice(&fields[..head]);
            }
        }
    }

    fn tail(&self) -> &[u8] {
        match self.request() {
            Request::Write { data, .. } => data.bytes(),
            _ => &[],
        }
    }

    #[cfg(test)]
    fn sample(from: &mut crate::sample::Source<'a>) -> Self {
        let data = crate::text::Data::sample(from);
        let write = Request::Write {
            fid: Fid::sample(from),
            offset: from.number(),
            data,
        };
        let mkdir = Request::Mkdir {
            dir: Fid::sample(from),
            name: crate::text::Name::sample(from),
            mode: 0o755,
            gid: 0,
        };
        let request = if from.number() & 1 == 0 { write } else { mkdir };
        Wrapped(Inside::Value(Box::leak(Box::new(request))))
    }
}

impl PartialEq for Wrapped<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.request() == other.request()
    }
}

impl fmt::Debug for Wrapped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.request().fmt(f)
    }
}
