//! Memory that direct requests accept.

use crate::Random;

/// Direct requests want memory, offsets and lengths in multiples of the device's block: 4 KiB suits all.
const ALIGNMENT: usize = 4096;

/// Bytes that begin at a multiple of [`ALIGNMENT`], and stay where they are.
pub struct Memory {
    all: Vec<u8>,
    start: usize,
    len: usize,
}

impl Memory {
    pub fn new(len: usize) -> Memory {
        // Never grown, so it stays where it is and the start stays aligned.
        let all = vec![0; len + ALIGNMENT];
        let start = all.as_ptr().align_offset(ALIGNMENT);
        Memory { all, start, len }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.all[self.start..self.start + self.len]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.all[self.start..self.start + self.len]
    }

    /// Fills it with what cannot be compressed.
    pub fn scramble(&mut self, random: &mut Random) {
        for word in self.bytes_mut().chunks_mut(8) {
            word.copy_from_slice(&random.number().to_le_bytes()[..word.len()]);
        }
    }
}
