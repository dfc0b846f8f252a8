//! Reading by force: where hints are ignored, a real read fills the cache just as well.

use super::Target;
use super::residency::{Method, resident};
use presagio_core::Range;
use std::cell::RefCell;
use std::io;
use std::os::unix::fs::FileExt;

/// Read at once.
const PIECE: u64 = 1 << 20;

thread_local! {
    /// What is read ends here, and nobody looks at it. One for each thread that gives hints, made when needed.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// What came of reading, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Read {
    /// What is there now.
    pub there: u64,
    /// What was read for that.
    pub forced: u64,
    /// What was there before, if we may look.
    pub already: Option<u64>,
}

/// Reads what of whole pages is not in memory.
pub(super) fn read(target: &Target, pages: Range) -> io::Result<Read> {
    let method = Method::of(target.device.storage);
    let page = rustix::param::page_size() as u64;
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.resize(PIECE as usize, 0);
        let (mut there, mut forced, mut already) = (0, 0, Some(0));
        let mut start = pages.start();
        while start < pages.end() {
            let piece = Range::at(start, PIECE.min(pages.end() - start));
            let before = resident(&target.file, piece, method).ok();
            already = already.zip(before).map(|(sum, bytes)| sum + bytes);
            if before == Some(piece.len()) {
                there += piece.len();
            } else {
                let read = read_piece(target, piece, scratch)?;
                forced += read;
                there += read.next_multiple_of(page).min(piece.len());
                if read < piece.len() {
                    break; // the end of the file
                }
            }
            start = piece.end();
        }
        Ok(Read {
            there,
            forced,
            already,
        })
    })
}

fn read_piece(target: &Target, piece: Range, scratch: &mut [u8]) -> io::Result<u64> {
    let mut done = 0;
    while done < piece.len() {
        let buffer = &mut scratch[..(piece.len() - done) as usize];
        match target.file.read_at(buffer, piece.start() + done) {
            Ok(0) => break,
            Ok(n) => done += n as u64,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hints::testing::{at_last, cold_file};
    use crate::hints::{Storage, residency};

    #[test]
    fn what_is_missing_is_read_and_the_rest_is_not() {
        let all = Range::at(0, (5 << 20) + 4096);
        assert!(at_last(|| {
            let target = cold_file((5 << 20) + 100);
            if target.device.storage == Storage::Memory {
                println!("skipped: temporary files lie in memory here");
                return true;
            }
            let first = read(&target, all).unwrap();
            let there = residency(&target.file, all).unwrap();
            let again = read(&target, all).unwrap();
            let wanted = |forced, already| Read {
                there: all.len(),
                forced,
                already: Some(already),
            };
            there == all.len()
                && first == wanted((5 << 20) + 100, 0)
                && again == wanted(0, all.len())
        }));
    }
}
