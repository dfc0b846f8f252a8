//! The bytes that a replay writes: each is a function of its file and its offset and of nothing else.
//!
//! So whoever writes a byte, however often and in whatever order, the file ends up the same, a read can be checked
//! without remembering what was written, and a file can be made longer by writing any byte of it.

use presagio_core::FileId;

/// What a check of read bytes found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Bytes that are what they should be.
    pub(super) right: u64,
    /// Zeros: never written.
    pub(super) holes: u64,
    /// Anything else.
    pub(super) wrong: u64,
}

/// Fills `bytes` with what belongs at `offset` of `file`.
pub(super) fn fill(bytes: &mut [u8], file: FileId, offset: u64) {
    let skip = (offset % 8) as usize;
    let mut word = offset / 8;
    let (head, rest) = bytes.split_at_mut(((8 - skip) % 8).min(bytes.len()));
    if !head.is_empty() {
        head.copy_from_slice(&word_at(file, word)[skip..skip + head.len()]);
        word += 1;
    }
    for chunk in rest.chunks_mut(8) {
        chunk.copy_from_slice(&word_at(file, word)[..chunk.len()]);
        word = word.wrapping_add(1);
    }
}

/// Checks bytes that were read; `expected` is room for as many.
pub(super) fn check(bytes: &[u8], expected: &mut [u8], file: FileId, offset: u64) -> Verdict {
    fill(expected, file, offset);
    if bytes == expected {
        let right = bytes.len() as u64;
        return Verdict {
            right,
            ..Verdict::default()
        };
    }
    let mut verdict = Verdict::default();
    for (got, expected) in bytes.iter().zip(expected) {
        match *got {
            b if b == *expected => verdict.right += 1,
            0 => verdict.holes += 1,
            _ => verdict.wrong += 1,
        }
    }
    verdict
}

/// One bit of each byte, so that what was written never looks like a hole.
const NEVER_ZERO: u64 = 0x0101_0101_0101_0101;

/// Eight bytes that look random: the finaliser of SplitMix64.
fn word_at(file: FileId, word: u64) -> [u8; 8] {
    let mut z = file.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ word;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31) | NEVER_ZERO).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_depends_on_its_place_alone() {
        let mut whole = [0; 100];
        fill(&mut whole, FileId(7), 1000);
        for begin in 0..100 {
            for end in begin..100 {
                let mut part = vec![0; end - begin];
                fill(&mut part, FileId(7), 1000 + begin as u64);
                assert_eq!(part, whole[begin..end]);
            }
        }
        let mut other = [0; 100];
        fill(&mut other, FileId(8), 1000);
        assert_ne!(whole, other);
    }

    #[test]
    fn a_check_tells_holes_and_damage_apart() {
        let (mut bytes, mut room) = ([0; 64], [0; 64]);
        fill(&mut bytes, FileId(7), 3);
        assert_eq!(check(&bytes, &mut room, FileId(7), 3).right, 64);
        bytes[10] = 0;
        bytes[63] ^= 0x80;
        let verdict = check(&bytes, &mut room, FileId(7), 3);
        assert_eq!((verdict.holes, verdict.wrong, verdict.right), (1, 1, 62));
    }
}
