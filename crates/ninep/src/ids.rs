//! The protocol's identifiers, each a type of its own so that none is taken for another.

use std::fmt;

/// Names a request while it is under way; its reply carries the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u16);

impl Tag {
    /// The tag of a version message, which belongs to no session yet.
    pub const NONE: Tag = Tag(u16::MAX);
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Tag::NONE => f.write_str("no tag"),
            Tag(tag) => write!(f, "tag {tag}"),
        }
    }
}

/// A file, directory or attribute that the client holds at the server. The client chooses the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fid(pub u32);

impl Fid {
    /// No fid: an attach without authentication, a foreseen request that names a path.
    pub const NONE: Fid = Fid(u32::MAX);
}

impl fmt::Display for Fid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Fid::NONE => f.write_str("no fid"),
            Fid(fid) => write!(f, "fid {fid}"),
        }
    }
}

/// The type byte of a message, known or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(pub u8);

impl Kind {
    /// The reply that says an errno, to whatever request.
    pub const LERROR: Kind = Kind(7);

    /// Requests are even, replies odd, and a reply is its request plus one.
    pub const fn is_request(self) -> bool {
        self.0 & 1 == 0
    }

    /// The type of the reply that this request gets when it succeeds.
    pub const fn reply(self) -> Kind {
        Kind(self.0 | 1)
    }

    /// Whether it is one of Presagio's own.
    pub const fn is_extension(self) -> bool {
        self.0 >= 200 && self.0 < 212
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match crate::kind_name(*self) {
            Some(name) => f.write_str(name),
            None => write!(f, "message type {}", self.0),
        }
    }
}

/// A Linux error number, as Rlerror carries it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub u32);

impl Errno {
    /// Not permitted.
    pub const PERM: Errno = Errno(1);
    /// No such file.
    pub const NOENT: Errno = Errno(2);
    /// The device or the connection failed, or nobody can tell what happened.
    pub const IO: Errno = Errno(5);
    /// A fid that does not stand for an open file.
    pub const BADF: Errno = Errno(9);
    /// Try again.
    pub const AGAIN: Errno = Errno(11);
    /// No access.
    pub const ACCES: Errno = Errno(13);
    /// It is there already.
    pub const EXIST: Errno = Errno(17);
    /// Not a directory.
    pub const NOTDIR: Errno = Errno(20);
    /// A directory.
    pub const ISDIR: Errno = Errno(21);
    /// An argument that makes no sense.
    pub const INVAL: Errno = Errno(22);
    /// No space left.
    pub const NOSPC: Errno = Errno(28);
    /// A read-only file system.
    pub const ROFS: Errno = Errno(30);
    /// A name that is too long.
    pub const NAMETOOLONG: Errno = Errno(36);
    /// A directory that is not empty.
    pub const NOTEMPTY: Errno = Errno(39);
    /// No such attribute.
    pub const NODATA: Errno = Errno(61);
    /// Not what the protocol demands.
    pub const PROTO: Errno = Errno(71);
    /// Not supported.
    pub const OPNOTSUPP: Errno = Errno(95);
    /// A file handle whose file is gone.
    pub const STALE: Errno = Errno(116);
}

impl From<Errno> for std::io::Error {
    fn from(errno: Errno) -> std::io::Error {
        std::io::Error::from_raw_os_error(i32::try_from(errno.0).unwrap_or(5))
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::io::Error::from(*self).fmt(f)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Errno({self})")
    }
}
