//! Storage that gives a file only so many bytes, as with a user's quota: clients hear how much was written before that, and then
//! why there is no more, whichever way they write.

mod common;

use common::{Exported, opened, pattern, refused, rw_file};
use presagio_core::Range;
use presagio_ninep::{Errno, OpenFlags};
use presagio_storage::{Access, Bytes, Directory, Durable, Now, Piece, Pieces, Size, Storage};
use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

const QUOTA: u64 = 10_000;
const EDQUOT: Errno = Errno(122);
/// Requests are split there, as at the borders of stripes.
const BORDER: u64 = 4096;

/// A directory whose files have a quota each.
struct Limited;

impl Storage for Limited {
    fn servers(&self) -> u32 {
        1
    }

    fn open(&self, opened: OwnedFd, access: Access) -> io::Result<Arc<dyn Bytes>> {
        Ok(Arc::new(LimitedBytes(Directory.open(opened, access)?)))
    }

    fn created(&self, opened: BorrowedFd<'_>) -> io::Result<()> {
        Directory.created(opened)
    }

    fn size(&self, name: BorrowedFd<'_>) -> io::Result<Option<Size>> {
        Directory.size(name)
    }

    fn removed(&self, name: BorrowedFd<'_>) -> io::Result<()> {
        Directory.removed(name)
    }
}

struct LimitedBytes(Arc<dyn Bytes>);

/// How much of so many bytes fits at a place: not nothing.
fn fits(offset: u64, len: usize) -> io::Result<usize> {
    match QUOTA.saturating_sub(offset).min(len as u64) {
        0 if len > 0 => Err(io::Error::from_raw_os_error(EDQUOT.0 as i32)),
        fits => Ok(fits as usize),
    }
}

impl Bytes for LimitedBytes {
    fn pieces(&self, range: Range) -> Pieces {
        let whole = self.0.pieces(range)[0];
        let mut start = range.start();
        let mut pieces = Pieces::new();
        while start < range.end() {
            let end = range.end().min((start / BORDER + 1) * BORDER);
            let range = Range::at(start, end - start);
            pieces.push(Piece { range, ..whole });
            start = end;
        }
        pieces
    }

    fn read_now(&self, object: u16, offset: u64, to: &mut [IoSliceMut<'_>]) -> io::Result<Now> {
        self.0.read_now(object, offset, to)
    }

    fn read(&self, object: u16, offset: u64, to: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0.read(object, offset, to)
    }

    fn write(&self, object: u16, offset: u64, from: &[IoSlice<'_>]) -> io::Result<usize> {
        let all = from.iter().flat_map(|part| part.iter().copied());
        let all: Vec<u8> = all.collect();
        let fits = fits(offset, all.len())?;
        self.0.write(object, offset, &[IoSlice::new(&all[..fits])])
    }

    fn append(&self, from: &[u8]) -> io::Result<usize> {
        let end = rustix::fs::fstat(self.0.name())?.st_size as u64;
        self.0.append(&from[..fits(end, from.len())?])
    }

    fn size(&self) -> io::Result<Option<Size>> {
        self.0.size()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    fn sync(&self, how: Durable) -> io::Result<()> {
        self.0.sync(how)
    }

    fn descriptor(&self, object: u16) -> Option<BorrowedFd<'_>> {
        self.0.descriptor(object)
    }

    fn name(&self) -> BorrowedFd<'_> {
        self.0.name()
    }
}

#[test]
fn who_is_over_quota_hears_how_much_was_written_and_then_why_no_more() {
    let node = Exported::on(Arc::new(Limited), |_| {});
    let (_session, root) = node.connect();
    let bytes = pattern(1, 3 * BORDER as usize);
    let file = rw_file(&root, "whole");
    // Within one piece, over a border up to the quota, and across both.
    assert_eq!(file.write_at(0, &bytes[..100]).unwrap(), 100);
    assert_eq!(file.write_at(0, &bytes).unwrap(), QUOTA as usize);
    refused(file.write_at(QUOTA, b"more"), EDQUOT);
    refused(file.write_at(3 * BORDER, b"more"), EDQUOT);
    assert_eq!(file.write_at(QUOTA - 1, b"more").unwrap(), 1);
    let there = fs::read(node.path("whole")).unwrap();
    assert_eq!(there.len(), QUOTA as usize);
    assert!(there[..QUOTA as usize - 1] == bytes[..QUOTA as usize - 1]);
}

#[test]
fn appends_hear_of_a_quota_too() {
    let node = Exported::on(Arc::new(Limited), |_| {});
    let (_session, root) = node.connect();
    rw_file(&root, "log");
    let file = opened(&root, "log", OpenFlags::WRONLY | OpenFlags::APPEND);
    let bytes = pattern(2, 6000);
    assert_eq!(file.write_at(0, &bytes).unwrap(), 6000);
    assert_eq!(file.write_at(0, &bytes).unwrap(), 4000);
    refused(file.write_at(0, &bytes), EDQUOT);
    let there = fs::read(node.path("log")).unwrap();
    assert!(there[..6000] == bytes[..] && there[6000..] == bytes[..4000]);
}
