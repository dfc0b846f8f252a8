//! What the namespace's own file of a striped file says: where its bytes are.
//!
//! ```text
//! presagio-striped 1
//! object 5f0c2b7de91a44d3a8f00c3e6b1d9a72
//! stripe 1048576
//! servers 2 3 0 1
//! check 9c1e77aa02b4d5f3
//! ```
//!
//! The object id is random. Object *i* of the file lies on the *i*-th of `servers`, in the file `5f/5f0c2b…` of its
//! directory. `check` is a hash of all lines before.
//!
//! A crash may leave a record that was never finished: none at all, the beginning of one, or zeros where a file system
//! had made it longer before its bytes came. Such a file *is empty*: its record was never synced, so nothing in it was.
//! The next write gives it a record. Anything else that is no record is damage, and not ours to overwrite.

use super::geometry::Geometry;
use crate::text::{self, Lines};
use rustix::rand::{GetRandomFlags, getrandom};
use std::fmt::Write;
use std::io;

/// A record is shorter.
pub const LONGEST: usize = 16 << 10;

/// The most servers of a set.
pub const SERVERS_MAX: usize = 1024;

const MAGIC: &str = "presagio-striped 1";

/// Where the bytes of a file are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What its objects are called.
    pub object: ObjectId,
    /// Bytes of a stripe.
    pub stripe: u64,
    /// The server of each object.
    pub servers: Vec<u16>,
}

/// What a namespace's file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Where the bytes are.
    Whole(Record),
    /// Nothing yet.
    Unfinished,
    /// Something that we did not write.
    Damaged,
}

/// The name of a file's objects: no other file ever has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectId(pub u128);

impl ObjectId {
    pub fn random() -> io::Result<ObjectId> {
        let mut bytes = [0; 16];
        getrandom(&mut bytes, GetRandomFlags::empty())?;
        Ok(ObjectId(u128::from_le_bytes(bytes)))
    }

    /// The directory of its objects within a server's.
    pub fn directory(self) -> u8 {
        (self.0 >> 120) as u8
    }

    /// Where its objects lie within a server's directory.
    pub fn path(self) -> String {
        format!("{:02x}/{:032x}", self.directory(), self.0)
    }
}

impl Record {
    /// Of a new file: the first stripe lies on a server that the id says, so that small files spread.
    pub fn new(object: ObjectId, stripe: u64, servers: u16) -> Record {
        let first = (object.0 % u128::from(servers)) as u16;
        let servers =
            (0..servers).map(|i| ((u32::from(first) + u32::from(i)) % u32::from(servers)) as u16);
        let servers = servers.collect();
        Record {
            object,
            stripe,
            servers,
        }
    }

    pub fn geometry(&self) -> Geometry {
        Geometry {
            stripe: self.stripe,
            // SERVERS_MAX at most.
            objects: self.servers.len() as u16,
        }
    }

    pub fn encode(&self) -> String {
        let (object, stripe) = (self.object.0, self.stripe);
        let mut text = format!("{MAGIC}\nobject {object:032x}\nstripe {stripe}\nservers");
        for server in &self.servers {
            // Writing to a String does not fail.
            let _ = write!(text, " {server}");
        }
        text.push('\n');
        text::seal(text)
    }

    fn parse(text: &str) -> Option<Record> {
        let mut lines = Lines::sealed(text)?;
        lines.exactly(MAGIC)?;
        let object = ObjectId(lines.hex("object")?);
        let stripe = lines.number("stripe")?;
        let servers = lines.field("servers")?.split(' ');
        let servers: Vec<u16> = servers
            .map(|word| word.parse().ok())
            .collect::<Option<_>>()?;
        let sound = stripe > 0 && !servers.is_empty() && servers.len() <= SERVERS_MAX;
        (sound && lines.end()).then_some(Record {
            object,
            stripe,
            servers,
        })
    }
}

/// What these bytes of a namespace's file say.
pub fn read(bytes: &[u8]) -> Content {
    let record = std::str::from_utf8(bytes).ok().and_then(Record::parse);
    match record {
        Some(record) => Content::Whole(record),
        None if is_unfinished(bytes) => Content::Unfinished,
        None => Content::Damaged,
    }
}

/// Whether it is the beginning of a record, up to zeros or the end.
fn is_unfinished(bytes: &[u8]) -> bool {
    let written = bytes.iter().position(|byte| *byte == 0);
    let (written, zeros) = bytes.split_at(written.unwrap_or(bytes.len()));
    let Ok(written) = std::str::from_utf8(written) else {
        return false;
    };
    let lines: Vec<&str> = written.split('\n').collect();
    // The last one is not complete.
    let last = lines.len() - 1;
    let mut begun = lines.iter().enumerate();
    lines.len() <= NAMES.len()
        && begun.all(|(i, line)| begins(line, NAMES[i], i == last))
        && zeros.iter().all(|byte| *byte == 0)
}

/// What lines begin with.
const NAMES: [&str; 5] = [MAGIC, "object ", "stripe ", "servers ", "check "];

/// Whether it is a line of that name, or the beginning of one.
fn begins(line: &str, name: &str, last: bool) -> bool {
    match line.strip_prefix(name) {
        Some(value) => value.chars().all(|c| c.is_ascii_hexdigit() || c == ' '),
        None => last && name.starts_with(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record::new(ObjectId(0x5f << 120 | 77), 1 << 20, 4)
    }

    #[test]
    fn a_record_reads_as_it_was_written() {
        let record = record();
        let text = record.encode();
        assert_eq!(read(text.as_bytes()), Content::Whole(record));
    }

    #[test]
    fn a_record_that_was_never_finished_is_an_empty_file() {
        let text = record().encode().into_bytes();
        for len in 0..text.len() {
            let mut bytes = text[..len].to_vec();
            assert_eq!(read(&bytes), Content::Unfinished, "{len} bytes");
            bytes.resize(text.len(), 0);
            assert_eq!(read(&bytes), Content::Unfinished, "{len} bytes, then zeros");
        }
    }

    #[test]
    fn what_we_did_not_write_is_damage() {
        let mut text = record().encode().into_bytes();
        for at in 0..text.len() {
            for bit in 0..8 {
                text[at] ^= 1 << bit;
                let content = read(&text);
                assert_eq!(content, Content::Damaged, "byte {at}, bit {bit}");
                text[at] ^= 1 << bit;
            }
        }
        assert_eq!(read(b"somebody's file"), Content::Damaged);
        text.push(b'x');
        assert_eq!(read(&text), Content::Damaged);
    }

    #[test]
    fn first_stripes_spread_over_the_servers() {
        let firsts = (0..4).map(|id| Record::new(ObjectId(id), 4096, 4).servers[0]);
        assert_eq!(firsts.collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(Record::new(ObjectId(2), 4096, 4).servers, [2, 3, 0, 1]);
    }
}
