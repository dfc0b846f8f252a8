//! The bytes around the records: the file's header and the header of each chunk. All numbers little-endian.
//!
//! ```text
//! file  = header chunk*
//!
//! header, 16 bytes                      chunk header, 28 bytes, then `stored` bytes of payload
//!  0  8  magic  89 'PTRACE' 0A           0  4  magic  D7 'PTC'
//!  8  2  version                         4  4  stored: bytes of the payload in the file
//! 10  2  0                               8  4  raw: bytes of the payload once decompressed
//! 12  4  CRC-32 of bytes 0 to 11        12  4  records in the payload
//!                                       16  4  flags: 1 LZ4 block, 2 last chunk
//!                                       20  4  CRC-32 of the payload as stored
//!                                       24  4  CRC-32 of bytes 0 to 23
//! ```
//!
//! A chunk's header has a checksum of its own, so that a damaged length is told from a file that was cut.

/// How a file begins.
pub const MAGIC: [u8; 8] = *b"\x89PTRACE\n";
/// The version that is written, and the only one that is read.
pub const VERSION: u16 = 1;
/// Bytes of the file's header.
pub const HEADER_BYTES: usize = 16;
/// How a chunk begins.
pub const CHUNK_MAGIC: [u8; 4] = *b"\xD7PTC";
/// Bytes of a chunk's header.
pub const CHUNK_HEADER_BYTES: usize = 28;
/// A chunk with so many bytes of records is complete.
pub const CHUNK_BYTES: usize = 64 << 10;
/// A record that is larger is refused.
pub const RECORD_BYTES_MAX: usize = 1 << 20;
/// No chunk is larger than this: it was not yet complete when its last record was added.
pub const CHUNK_BYTES_MAX: usize = CHUNK_BYTES + RECORD_BYTES_MAX;

const LZ4: u32 = 1;
const LAST: u32 = 2;

/// The header of a file.
pub(crate) fn file_header() -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    header[8..10].copy_from_slice(&VERSION.to_le_bytes());
    seal(&mut header);
    header
}

/// What is wrong with the header of a file, if anything.
pub(super) fn check_file_header(header: &[u8; HEADER_BYTES]) -> Result<(), Unreadable> {
    if header[..8] != MAGIC {
        return Err(Unreadable::OtherFormat);
    }
    if !is_sealed(header) {
        return Err(Unreadable::Damaged);
    }
    match u16::from_le_bytes([header[8], header[9]]) {
        VERSION => Ok(()),
        other => Err(Unreadable::Version(other)),
    }
}

/// Why a file cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    OtherFormat,
    Damaged,
    Version(u16),
}

/// What the header of a chunk says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkHeader {
    pub stored: u32,
    pub raw: u32,
    pub records: u32,
    pub lz4: bool,
    pub last: bool,
    pub payload_crc: u32,
}

impl ChunkHeader {
    pub fn encode(&self) -> [u8; CHUNK_HEADER_BYTES] {
        let flags = u32::from(self.lz4) * LZ4 + u32::from(self.last) * LAST;
        let words = [self.stored, self.raw, self.records, flags, self.payload_crc];
        let mut header = [0; CHUNK_HEADER_BYTES];
        header[..4].copy_from_slice(&CHUNK_MAGIC);
        for (at, word) in words.into_iter().enumerate() {
            header[4 + 4 * at..8 + 4 * at].copy_from_slice(&word.to_le_bytes());
        }
        seal(&mut header);
        header
    }

    /// `Err` says what is wrong: the bytes were damaged, or were never a chunk.
    pub fn decode(header: &[u8; CHUNK_HEADER_BYTES]) -> Result<ChunkHeader, &'static str> {
        if header[..4] != CHUNK_MAGIC {
            return Err("no chunk begins here");
        }
        if !is_sealed(header) {
            return Err("the chunk's header is damaged: its checksum differs");
        }
        let word = |at: usize| u32_at(header, at);
        let chunk = ChunkHeader {
            stored: word(4),
            raw: word(8),
            records: word(12),
            lz4: word(16) & LZ4 != 0,
            last: word(16) & LAST != 0,
            payload_crc: word(20),
        };
        match word(16) & !(LZ4 | LAST) {
            0 => chunk.checked(),
            _ => Err("the chunk has flags that this version does not know"),
        }
    }

    /// Memory is reserved by these numbers, so they are not believed blindly.
    fn checked(self) -> Result<ChunkHeader, &'static str> {
        let fits = self.raw as usize <= CHUNK_BYTES_MAX
            && self.stored <= self.raw
            && self.records <= self.raw
            && (self.records > 0) == (self.raw > 0)
            && (self.lz4 || self.stored == self.raw);
        fits.then_some(self)
            .ok_or("the chunk's header has impossible sizes")
    }
}

/// Writes the checksum of all but the last four bytes into these.
fn seal(header: &mut [u8]) {
    let (body, crc) = header.split_at_mut(header.len() - 4);
    crc.copy_from_slice(&crc32fast::hash(body).to_le_bytes());
}

fn is_sealed(header: &[u8]) -> bool {
    let body = header.len() - 4;
    crc32fast::hash(&header[..body]) == u32_at(header, body)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: ChunkHeader = ChunkHeader {
        stored: 10,
        raw: 20,
        records: 3,
        lz4: true,
        last: true,
        payload_crc: 0xDEAD_BEEF,
    };

    #[test]
    fn headers_lead_back_to_what_they_say() {
        assert_eq!(ChunkHeader::decode(&CHUNK.encode()), Ok(CHUNK));
        assert_eq!(check_file_header(&file_header()), Ok(()));
    }

    #[test]
    fn no_flipped_bit_of_a_header_goes_unnoticed() {
        for bit in 0..CHUNK_HEADER_BYTES * 8 {
            let mut header = CHUNK.encode();
            header[bit / 8] ^= 1 << (bit % 8);
            assert!(ChunkHeader::decode(&header).is_err(), "bit {bit}");
        }
        for bit in 0..HEADER_BYTES * 8 {
            let mut header = file_header();
            header[bit / 8] ^= 1 << (bit % 8);
            assert!(check_file_header(&header).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn another_version_is_named() {
        let mut header = file_header();
        header[8] = 2;
        seal(&mut header);
        assert_eq!(check_file_header(&header), Err(Unreadable::Version(2)));
    }

    #[test]
    fn sizes_that_would_reserve_much_memory_are_refused() {
        for (stored, raw, records) in [(10, u32::MAX, 3), (21, 20, 3), (10, 20, 21), (10, 20, 0)] {
            let header = ChunkHeader {
                stored,
                raw,
                records,
                ..CHUNK
            };
            assert!(ChunkHeader::decode(&header.encode()).is_err());
        }
    }
}
