//! Reading directories.
//!
//! A client says where to go on by the offset that came with the last entry it took. The kernel's own offsets are good
//! for that, so nothing is kept between two reads of a directory.

use super::place::{Place, qid};
use super::{FileKey, OWN};
use crate::error::{OrErrno, Result};
use presagio_ninep::{Entry, EntryName, Errno};
use rustix::fs::{FileType, RawDir, SeekFrom};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

/// Room for what the kernel gives at once.
const ROOM: usize = 32 << 10;

/// Appends the entries of the directory `open` from `offset` on to `out`, which may become `limit` bytes long.
/// `dir` is its place, `root` that of the export's root.
pub fn list(
    open: BorrowedFd<'_>,
    dir: &Place,
    root: FileKey,
    offset: u64,
    out: &mut Vec<u8>,
    limit: usize,
) -> Result<()> {
    let start = out.len();
    rustix::fs::seek(open, SeekFrom::Start(offset)).or_errno()?;
    let mut room = [MaybeUninit::uninit(); ROOM];
    let mut entries = RawDir::new(open, &mut room);
    while let Some(entry) = entries.next() {
        let entry = entry.or_errno()?;
        let name = entry.file_name().to_bytes();
        if name == OWN && dir.key() == root {
            continue;
        }
        let key = FileKey {
            inode: entry.ino(),
            ..dir.key()
        };
        let Ok(name) = EntryName::new(name) else {
            continue;
        };
        let entry = Entry {
            qid: qid(key, entry.file_type(), 0, root),
            offset: entry.next_entry_cookie(),
            file_type: d_type(entry.file_type()),
            name,
        };
        if !entry.append(out, limit) {
            // Nothing at all would say that there are no more.
            return if out.len() > start {
                Ok(())
            } else {
                Err(Errno::INVAL)
            };
        }
    }
    Ok(())
}

/// Linux's `d_type`.
fn d_type(kind: FileType) -> u8 {
    match kind {
        FileType::Fifo => 1,
        FileType::CharacterDevice => 2,
        FileType::Directory => 4,
        FileType::BlockDevice => 6,
        FileType::RegularFile => 8,
        FileType::Symlink => 10,
        FileType::Socket => 12,
        FileType::Unknown => 0,
    }
}
