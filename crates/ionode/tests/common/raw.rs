//! A client by hand, for what no good client does.

use super::PATIENCE;
use presagio_ninep::{Dialect, Fid, Frame, Frames, Kind, MSIZE_MAX, Reply, Request, Tag, Text};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The client's end of a connection.
pub struct Raw {
    pub stream: UnixStream,
    frames: Frames,
}

/// A reply as it came.
pub struct Taken {
    pub tag: u16,
    pub kind: Kind,
    body: Vec<u8>,
}

impl Taken {
    pub fn reply(&self) -> Reply<'_> {
        let frame = Frame {
            kind: self.kind,
            tag: Tag(self.tag),
            body: &self.body,
        };
        Reply::parse(frame, Dialect::Presagio).expect("the node sends good replies")
    }

    /// The errno, if it is one.
    pub fn error(&self) -> Option<presagio_ninep::Errno> {
        match self.reply() {
            Reply::Error { errno } => Some(errno),
            _ => None,
        }
    }
}

impl Raw {
    /// Connects, and says nothing.
    pub fn silent(socket: &Path) -> Raw {
        let stream = UnixStream::connect(socket).expect("the node listens");
        let patience = Some(PATIENCE);
        stream.set_read_timeout(patience).expect("a socket");
        stream.set_write_timeout(patience).expect("a socket");
        let frames = Frames::new(MSIZE_MAX);
        Raw { stream, frames }
    }

    /// Connects, agrees on `msize`, and attaches fid 0 to the root.
    pub fn attached(socket: &Path, msize: u32) -> Raw {
        let mut raw = Raw::silent(socket);
        raw.version(msize);
        raw.attach(Fid(0));
        raw
    }

    /// The same, with our extensions.
    pub fn extended(socket: &Path, msize: u32) -> Raw {
        let mut raw = Raw::silent(socket);
        raw.speak(Dialect::Presagio, msize);
        raw.attach(Fid(0));
        raw
    }

    /// Agrees on plain 9P2000.L.
    #[track_caller]
    pub fn version(&mut self, msize: u32) {
        self.speak(Dialect::Linux, msize);
    }

    #[track_caller]
    fn speak(&mut self, dialect: Dialect, msize: u32) {
        let version = dialect.version();
        let reply = self.call(u16::MAX, &Request::Version { msize, version });
        assert!(matches!(reply.reply(), Reply::Version { msize: got, .. } if got == msize));
    }

    #[track_caller]
    pub fn attach(&mut self, fid: Fid) {
        let request = attach_as(fid, super::own_uid());
        let reply = self.call(1, &request);
        assert_eq!(reply.kind, Kind(105));
    }

    /// Sends bytes; the node may have left.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends a request.
    #[track_caller]
    pub fn ask(&mut self, tag: u16, request: &Request<'_>) {
        self.send(&encoded(tag, request)).expect("the node listens");
    }

    /// Sends a request, and takes the next reply, which has to be the one to it.
    #[track_caller]
    pub fn call(&mut self, tag: u16, request: &Request<'_>) -> Taken {
        self.ask(tag, request);
        let taken = self.take().expect("a reply");
        assert_eq!(taken.tag, tag);
        taken
    }

    /// The next reply; `None` when the node has closed the connection.
    pub fn take(&mut self) -> Option<Taken> {
        loop {
            if let Some(frame) = self.frames.next().expect("the node sends good frames") {
                return Some(Taken {
                    tag: frame.tag.0,
                    kind: frame.kind,
                    body: frame.body.to_vec(),
                });
            }
            match self.stream.read(self.frames.space()) {
                Ok(0) => return None,
                Ok(count) => self.frames.received(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no reply and no end: {error}"),
            }
        }
    }

    /// That the node ends this connection, whatever it still says before.
    #[track_caller]
    pub fn is_ended(&mut self) {
        while self.take().is_some() {}
    }
}

/// A whole frame.
pub fn encoded(tag: u16, request: &Request<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    request.encode(Tag(tag), &mut bytes);
    bytes
}

/// A frame of any type with any fields; its size is right.
pub fn frame(kind: u8, tag: u16, fields: &[&[u8]]) -> Vec<u8> {
    let body = fields.concat();
    let size = (body.len() as u32 + 7).to_le_bytes();
    [&size[..], &[kind], &tag.to_le_bytes(), &body].concat()
}

/// Lets `fid` stand for the root, as `uid`.
pub fn attach_as(fid: Fid, uid: u32) -> Request<'static> {
    let nothing = Text::new("").expect("a text");
    Request::Attach {
        fid,
        auth_fid: Fid::NONE,
        user: nothing,
        export: nothing,
        uid,
    }
}
