//! One region of a `.darshan` log, decompressed piece by piece.
//!
//! Every process that wrote appended a stream of its own, so a region is a sequence of streams, and a record can
//! begin in one and end in the next.

use super::header::Extent;
use crate::{Place, Reason};
use flate2::{FlushDecompress, Status};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// How many compressed bytes are held in memory.
const INPUT: usize = 64 * 1024;

/// zlib cannot do better than 1032 bytes out of one, bzip2 can, but not with what programs do.
const EXPANSION_MAX: u64 = 2000;
/// As many bytes may come out of anything.
const MADE_FREE: u64 = 64 << 20;

/// How the regions of a log are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codec {
    Zlib,
    Bzip2,
    None,
}

impl Codec {
    pub(super) fn from_number(number: u8) -> Result<Codec, Reason> {
        match number {
            0 => Ok(Codec::Zlib),
            1 => Ok(Codec::Bzip2),
            2 => Ok(Codec::None),
            _ => Err(Reason::Malformed(format!(
                "compression number {number} is none of zlib (0), bzip2 (1) and none (2)"
            ))),
        }
    }
}

enum Decoder {
    Zlib(flate2::Decompress),
    Bzip2(bzip2::Decompress),
    None,
}

impl Decoder {
    fn new(codec: Codec) -> Decoder {
        match codec {
            Codec::Zlib => Decoder::Zlib(flate2::Decompress::new(true)),
            Codec::Bzip2 => Decoder::Bzip2(bzip2::Decompress::new(false)),
            Codec::None => Decoder::None,
        }
    }

    /// Decodes what it can: how many bytes went in and came out, and whether a stream ended.
    fn step(&mut self, input: &[u8], out: &mut [u8]) -> Result<(usize, usize, bool), String> {
        match self {
            Decoder::Zlib(zlib) => {
                let (before_in, before_out) = (zlib.total_in(), zlib.total_out());
                let status = zlib
                    .decompress(input, out, FlushDecompress::None)
                    .map_err(|e| e.to_string())?;
                let moved = (zlib.total_in() - before_in, zlib.total_out() - before_out);
                let ended = status == Status::StreamEnd;
                if ended {
                    zlib.reset(true);
                }
                Ok((moved.0 as usize, moved.1 as usize, ended))
            }
            Decoder::Bzip2(bzip2) => {
                let (before_in, before_out) = (bzip2.total_in(), bzip2.total_out());
                let status = bzip2.decompress(input, out).map_err(|e| e.to_string())?;
                let moved = (bzip2.total_in() - before_in, bzip2.total_out() - before_out);
                let ended = status == bzip2::Status::StreamEnd;
                if ended {
                    *bzip2 = bzip2::Decompress::new(false);
                }
                Ok((moved.0 as usize, moved.1 as usize, ended))
            }
            Decoder::None => {
                let n = input.len().min(out.len());
                out[..n].copy_from_slice(&input[..n]);
                Ok((n, n, true))
            }
        }
    }
}

/// A region that is being read.
pub(super) struct Region {
    file: Arc<File>,
    extent: Extent,
    /// Where the next compressed byte is to be read from.
    next: u64,
    input: Vec<u8>,
    used: usize,
    decoder: Decoder,
    within_stream: bool,
    made: u64,
}

impl Region {
    pub(super) fn new(file: Arc<File>, extent: Extent, codec: Codec) -> Region {
        Region {
            file,
            extent,
            next: extent.offset,
            input: Vec::new(),
            used: 0,
            decoder: Decoder::new(codec),
            within_stream: false,
            made: 0,
        }
    }

    /// The byte of the log up to which it has been decoded.
    pub(super) fn place(&self) -> Place {
        Place::Byte(self.next - (self.input.len() - self.used) as u64)
    }

    /// How many compressed bytes have been decoded.
    pub(super) fn progress(&self) -> u64 {
        self.next - (self.input.len() - self.used) as u64 - self.extent.offset
    }

    /// Fills `out`, or as much of it as the region still has.
    pub(super) fn fill(&mut self, out: &mut [u8]) -> Result<usize, Reason> {
        let mut filled = 0;
        while filled < out.len() {
            let (made, advanced) = self.decode(&mut out[filled..])?;
            filled += made;
            // A decoder without input can still hold output; only then is more input needed.
            if !advanced && !self.load()? {
                break;
            }
        }
        Ok(filled)
    }

    /// Fetches more compressed bytes; false at the end of the region.
    fn load(&mut self) -> Result<bool, Reason> {
        let want = (self.extent.end() - self.next).min(INPUT as u64) as usize;
        if want == 0 {
            return match self.within_stream {
                true => Err(Reason::Malformed(
                    "the compressed data stop in the middle of a stream".into(),
                )),
                false => Ok(false),
            };
        }
        self.input.resize(want, 0);
        self.used = 0;
        self.file.read_exact_at(&mut self.input, self.next)?;
        self.next += want as u64;
        Ok(true)
    }

    /// Decodes what is at hand: how many bytes came out, and whether anything moved at all.
    fn decode(&mut self, out: &mut [u8]) -> Result<(usize, bool), Reason> {
        let input = &self.input[self.used..];
        if input.is_empty() && !self.within_stream {
            return Ok((0, false));
        }
        let (used, made, ended) = self
            .decoder
            .step(input, out)
            .map_err(|e| Reason::Malformed(format!("the compressed data are damaged: {e}")))?;
        let advanced = used > 0 || made > 0;
        if !advanced && !input.is_empty() {
            return Err(Reason::Malformed(
                "the compressed data are damaged: the decoder makes no progress".into(),
            ));
        }
        self.used += used;
        self.within_stream = !ended;
        self.made += made as u64;
        if self.made > MADE_FREE + EXPANSION_MAX.saturating_mul(self.progress()) {
            return Err(Reason::Malformed(format!(
                "{} compressed bytes became {}: nobody recorded that",
                self.progress(),
                self.made
            )));
        }
        Ok((made, advanced))
    }
}
