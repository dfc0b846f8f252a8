//! Replies on their way out.

use crate::buffer::Buffer;
use presagio_ninep::reply::read_head;
use presagio_ninep::{Errno, Tag};

/// A reply, encoded.
pub enum Out {
    /// A short one.
    Short([u8; 11]),
    /// One that was encoded into memory of its own.
    Encoded(Vec<u8>),
    /// Data, with its header before it.
    Data(Buffer),
    /// Data in several places, the first with the header before it.
    Parts(Vec<Buffer>),
}

impl Out {
    /// To `Tread`.
    pub fn read(tag: Tag, mut data: Buffer) -> Out {
        data.prepend(&read_head(tag, data.len() as u32));
        Out::Data(data)
    }

    /// To `Tread`, with data from several places.
    pub fn read_parts(tag: Tag, mut parts: Vec<Buffer>) -> Out {
        let bytes: usize = parts.iter().map(Buffer::len).sum();
        parts[0].prepend(&read_head(tag, bytes as u32));
        Out::Parts(parts)
    }

    /// To `Twrite`.
    pub fn written(tag: Tag, count: u32) -> Out {
        Out::Short(short(119, tag, count))
    }

    /// To whatever failed.
    pub fn failed(tag: Tag, error: Errno) -> Out {
        Out::Short(short(7, tag, error.0))
    }
}

/// A message of one number.
fn short(kind: u8, tag: Tag, number: u32) -> [u8; 11] {
    let mut bytes = [11, 0, 0, 0, kind, 0, 0, 0, 0, 0, 0];
    bytes[5..7].copy_from_slice(&tag.0.to_le_bytes());
    bytes[7..].copy_from_slice(&number.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffers;
    use presagio_ninep::Reply;

    fn encoded(reply: Reply<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        reply.encode(Tag(300), &mut out);
        out
    }

    #[test]
    fn short_replies_are_those_of_the_codec() {
        let Out::Short(bytes) = Out::written(Tag(300), 70_000) else {
            unreachable!()
        };
        assert_eq!(bytes[..], encoded(Reply::Write { count: 70_000 }));
        let Out::Short(bytes) = Out::failed(Tag(300), Errno::NOSPC) else {
            unreachable!()
        };
        assert_eq!(
            bytes[..],
            encoded(Reply::Error {
                errno: Errno::NOSPC
            })
        );
    }

    #[test]
    fn data_follows_its_header() {
        let buffers = Buffers::new(1 << 20, 1 << 20);
        let mut buffer = buffers.take(5);
        buffer.bytes_mut().copy_from_slice(b"bytes");
        let Out::Data(buffer) = Out::read(Tag(300), buffer) else {
            unreachable!()
        };
        let data = presagio_ninep::Data::new(b"bytes").unwrap();
        assert_eq!(buffer.bytes(), encoded(Reply::Read { data }));
    }
}
