//! A server by hand, for what no good server does.

use presagio_ninep::client::{Client, Lost, Options, Socket};
use presagio_ninep::{Data, Dialect, Fid, Frame, Frames, MSIZE_MAX, Reply, Request, Tag, version};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

/// The server's end of a connection.
pub struct Peer {
    pub stream: UnixStream,
    frames: Frames,
}

/// A request as it came.
pub struct Taken {
    pub tag: Tag,
    bytes: Vec<u8>,
}

impl Taken {
    pub fn request(&self) -> Request<'_> {
        let frame = Frame::new(&self.bytes).expect("the client sends whole frames");
        Request::parse(frame, Dialect::Presagio).expect("the client sends good requests")
    }
}

/// The byte of every file at an offset.
pub fn byte_at(offset: u64) -> u8 {
    (offset ^ (offset >> 8) ^ (offset >> 16)) as u8
}

/// What a read of such a file gives.
pub fn content(offset: u64, count: u32) -> Vec<u8> {
    (offset..offset + u64::from(count)).map(byte_at).collect()
}

impl Peer {
    pub fn new(stream: UnixStream) -> Peer {
        Peer {
            stream,
            frames: Frames::new(MSIZE_MAX),
        }
    }

    /// The next request; `None` when the client has left.
    pub fn take(&mut self) -> Option<Taken> {
        loop {
            if let Some(frame) = self.frames.next().expect("the client sends good frames") {
                let mut bytes = (frame.body.len() as u32 + 7).to_le_bytes().to_vec();
                bytes.push(frame.kind.0);
                bytes.extend_from_slice(&frame.tag.0.to_le_bytes());
                bytes.extend_from_slice(frame.body);
                let tag = frame.tag;
                return Some(Taken { tag, bytes });
            }
            let received = self.stream.read(self.frames.space()).unwrap_or(0);
            if received == 0 {
                return None;
            }
            self.frames.received(received);
        }
    }

    /// The next requests, so many.
    #[allow(dead_code, reason = "not every test takes many")]
    pub fn take_many(&mut self, count: usize) -> Vec<Taken> {
        let taken = (0..count).map(|_| self.take());
        taken.map(|taken| taken.expect("a request")).collect()
    }

    pub fn reply(&mut self, tag: Tag, reply: &Reply<'_>) {
        self.send(&encoded(tag, reply));
    }

    /// The client may have left.
    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Answers as a server of such files would.
    pub fn serve(&mut self, taken: &Taken) {
        let bytes = answer(taken);
        self.send(&bytes);
    }

    /// Agrees to whatever the client offers.
    pub fn agree(&mut self) {
        let taken = self.take().expect("an offer");
        let Request::Version { msize, version } = taken.request() else {
            panic!("{:?}", taken.request());
        };
        let agreed = version::answer(msize, version, MSIZE_MAX).expect("an offer of ours");
        self.reply(taken.tag, &agreed.reply());
    }
}

pub fn encoded(tag: Tag, reply: &Reply<'_>) -> Vec<u8> {
    let mut frame = Vec::new();
    reply.encode(tag, &mut frame);
    frame
}

/// The right answer to a request, of the few kinds that the tests use.
pub fn answer(taken: &Taken) -> Vec<u8> {
    let tag = taken.tag;
    match taken.request() {
        Request::Read { offset, count, .. } => {
            let bytes = content(offset, count);
            let data = Data::new(&bytes).expect("it fits");
            encoded(tag, &Reply::Read { data })
        }
        Request::Write { data, .. } => {
            let count = data.bytes().len() as u32;
            encoded(tag, &Reply::Write { count })
        }
        Request::Clunk { .. } => encoded(tag, &Reply::Clunk),
        Request::Flush { .. } => encoded(tag, &Reply::Flush),
        other => panic!("{other:?}"),
    }
}

/// A client, and a thread that plays its server.
pub fn pair<T: Send + 'static>(
    options: &Options,
    serve: impl FnOnce(Peer) -> T + Send + 'static,
) -> (Client, JoinHandle<T>) {
    let (client, server) = connect(options, |mut peer| {
        peer.agree();
        serve(peer)
    });
    (client.expect("an agreement"), server)
}

/// The same, where they do not have to agree.
pub fn connect<T: Send + 'static>(
    options: &Options,
    serve: impl FnOnce(Peer) -> T + Send + 'static,
) -> (Result<Client, Lost>, JoinHandle<T>) {
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    let server = std::thread::spawn(move || serve(Peer::new(theirs)));
    let socket = Socket::new(ours).expect("a socket");
    (Client::connect(socket, options), server)
}

pub fn read(offset: u64, count: u32) -> Request<'static> {
    let fid = Fid(1);
    Request::Read { fid, offset, count }
}
