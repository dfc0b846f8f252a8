//! The scratch file that policies are compared on: opened, unlinked, filled with known bytes.
//!
//! It has a name only while it is being opened. After that the kernel frees it when the process ends,
//! whether by itself, by Ctrl-C or by the power button.
//!
//! Each eight bytes say where they are and which version they belong to, so that stale or misplaced data
//! is noticed; each run of writes makes a new version.

use crate::failure::failure;
use crate::size::Size;
use rustix::fs::{Advice, OFlags, fadvise};
use std::fs::{File, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Direct I/O wants memory, offsets and lengths in multiples of the device's block: 4 KiB suits all.
const ALIGNMENT: usize = 4096;

/// Filling and verifying go through pieces of at most this size.
const PIECE: u64 = 4 << 20;

/// A file without a name, full of bytes that are known.
pub struct Scratch {
    file: File,
    bytes: u64,
    direct: bool,
    in_memory: bool,
    version: u64,
}

impl Scratch {
    /// A file of `bytes` bytes in `dir`, to be read and written in requests of `request` bytes.
    pub fn create(dir: &Path, bytes: u64, request: u64) -> anyhow::Result<Scratch> {
        let explain = |cause: io::Error| {
            let (size, place) = (Size(bytes), dir.display());
            let what = format!("cannot make a scratch file of {size} in {place}");
            // Where the directory is there, what was not found is a way to make files in it.
            if cause.kind() == io::ErrorKind::NotFound && dir.is_dir() {
                let advice = "name a directory on the storage in question";
                return failure(what, "its file system does not take files", advice);
            }
            let advice = advice(&cause);
            failure(what, cause, advice)
        };
        let aligned = request.is_multiple_of(ALIGNMENT as u64);
        let (file, direct) = open_nameless(dir, aligned).map_err(explain)?;
        ensure_room(&file, bytes).map_err(explain)?;
        let in_memory = is_in_memory(&file).map_err(explain)?;
        let scratch = Scratch {
            file,
            bytes,
            direct,
            in_memory,
            version: 0,
        };
        scratch.fill().map_err(explain)?;
        Ok(scratch)
    }

    /// The file itself: reads and writes go past the page cache where that is possible.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The version of the bytes that are in the file now.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// How the storage is reached, in words.
    pub fn path(&self) -> &'static str {
        if self.in_memory {
            "tmpfs: memory, not storage"
        } else if self.direct {
            "O_DIRECT, past the page cache"
        } else {
            "page cache, dropped before each policy"
        }
    }

    /// From now on the file is expected to hold the next version: writers are about to write it.
    pub fn expect_next_version(&mut self) {
        self.version += 1;
    }

    /// Makes what was written durable.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Makes the next reads come from the device: nothing to do past the page cache. Read-ahead is switched
    /// off, because it would aggregate behind the scheduler's back.
    pub fn drop_cache(&self) -> io::Result<()> {
        if self.direct {
            return Ok(());
        }
        self.file.sync_data()?;
        fadvise(&self.file, 0, None::<NonZeroU64>, Advice::Random)?;
        fadvise(&self.file, 0, None::<NonZeroU64>, Advice::DontNeed)?;
        Ok(())
    }

    /// Reads the whole file and returns the offset of the first wrong piece, if there is one.
    pub fn first_wrong(&self) -> io::Result<Option<u64>> {
        let mut buffer = Buffer::new(PIECE as usize);
        for (offset, len) in self.pieces() {
            let piece = &mut buffer.bytes_mut()[..len];
            self.file.read_exact_at(piece, offset)?;
            if !is_version(piece, offset, self.version) {
                return Ok(Some(offset));
            }
        }
        Ok(None)
    }

    fn fill(&self) -> io::Result<()> {
        let mut buffer = Buffer::new(PIECE as usize);
        for (offset, len) in self.pieces() {
            let piece = &mut buffer.bytes_mut()[..len];
            write_version(piece, offset, self.version);
            self.file.write_all_at(piece, offset)?;
        }
        self.sync()
    }

    fn pieces(&self) -> impl Iterator<Item = (u64, usize)> {
        let bytes = self.bytes;
        let offsets = (0..bytes).step_by(PIECE as usize);
        offsets.map(move |offset| (offset, (bytes - offset).min(PIECE) as usize))
    }
}

/// A new file in `dir`, already without a name, and whether it is open for direct I/O.
fn open_nameless(dir: &Path, aligned: bool) -> io::Result<(File, bool)> {
    let direct = || {
        open_unlinked(dir, OFlags::DIRECT)
            .ok()
            .filter(works_directly)
    };
    if let Some(file) = aligned.then(direct).flatten() {
        return Ok((file, true));
    }
    Ok((open_unlinked(dir, OFlags::empty())?, false))
}

fn open_unlinked(dir: &Path, flags: OFlags) -> io::Result<File> {
    let path = dir.join(format!(".presagio-compare-{}", std::process::id()));
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    options.custom_flags(flags.bits() as i32);
    let opened = options.open(&path);
    // A file system that refuses a flag may have made the file all the same; one that was there before us,
    // left by a process of the same number that was killed at the wrong moment, is not ours to remove.
    match &opened {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        _ => std::fs::remove_file(&path).or_else(absent_is_fine)?,
    }
    opened
}

fn absent_is_fine(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(()),
        _ => Err(error),
    }
}

/// Filling a file system to the brim would hurt others: better to know before.
fn ensure_room(file: &File, bytes: u64) -> io::Result<()> {
    let system = rustix::fs::fstatvfs(file)?;
    let free = system.f_bavail.saturating_mul(system.f_frsize);
    if bytes < free {
        return Ok(());
    }
    let cause = format!("only {} are free there", Size(free));
    Err(io::Error::new(io::ErrorKind::StorageFull, cause))
}

/// Whether the file is on tmpfs, which accepts direct I/O and has no device.
fn is_in_memory(file: &File) -> io::Result<bool> {
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    Ok(rustix::fs::fstatfs(file)?.f_type as u64 == TMPFS_MAGIC)
}

/// Some file systems accept the flag and then refuse the I/O.
fn works_directly(file: &File) -> bool {
    let buffer = Buffer::new(ALIGNMENT);
    file.write_all_at(buffer.bytes(), 0).is_ok()
}

/// What to do about an error of the storage.
pub fn advice(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::NotFound => "create the directory first, or name another one",
        io::ErrorKind::NotADirectory => "name a directory",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "name a directory that you may write to"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            "free some space, or use a smaller --size"
        }
        _ => "check the storage, or name another directory",
    }
}

/// Memory that direct I/O accepts.
pub struct Buffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// `len` bytes, all zero.
    pub fn new(len: usize) -> Buffer {
        // Never grown, so it stays where it is and the start stays aligned.
        let memory = vec![0; len + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        Buffer { memory, start, len }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

/// The eight bytes that belong at `offset`, a multiple of 8. Every offset has its own, and another version
/// differs in each single byte, so that even a torn word is noticed.
fn word(offset: u64, version: u64) -> [u8; 8] {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    const EACH_BYTE: u64 = 0x0101_0101_0101_0101;
    (offset.wrapping_mul(ODD) ^ (version & 0xFF).wrapping_mul(EACH_BYTE)).to_le_bytes()
}

/// How many of `len` bytes from `offset` on belong to a word that began before.
fn head(offset: u64, len: usize) -> usize {
    (offset.wrapping_neg() as usize % 8).min(len)
}

/// `len` bytes from `offset` on, all of one word; what follows them is of no use.
fn within_word(offset: u64, len: usize, version: u64) -> [u8; 8] {
    let mut bytes = word(offset & !7, version);
    let start = offset as usize % 8;
    bytes.copy_within(start..start + len, 0);
    bytes
}

/// Fills `piece`, which belongs at `offset`, with a version's bytes.
pub fn write_version(piece: &mut [u8], offset: u64, version: u64) {
    let (first, rest) = piece.split_at_mut(head(offset, piece.len()));
    first.copy_from_slice(&within_word(offset, first.len(), version)[..first.len()]);
    let offset = offset + first.len() as u64;
    for (i, bytes) in rest.chunks_mut(8).enumerate() {
        bytes.copy_from_slice(&word(offset + 8 * i as u64, version)[..bytes.len()]);
    }
}

/// Whether `piece`, which was found at `offset`, holds a version's bytes.
pub fn is_version(piece: &[u8], offset: u64, version: u64) -> bool {
    let (first, rest) = piece.split_at(head(offset, piece.len()));
    let first_right = *first == within_word(offset, first.len(), version)[..first.len()];
    let offset = offset + first.len() as u64;
    let (words, tail) = rest.as_chunks::<8>();
    let right = |(i, bytes): (usize, &[u8; 8])| *bytes == word(offset + 8 * i as u64, version);
    let end = word(offset + 8 * words.len() as u64, version);
    first_right && words.iter().enumerate().all(right) && *tail == end[..tail.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_byte_is_noticed_wherever_it_is() {
        let mut piece = vec![0; 61];
        write_version(&mut piece, 4091, 3);
        assert!(is_version(&piece, 4091, 3));
        assert!(!is_version(&piece, 8187, 3), "right bytes, wrong place");
        assert!(!is_version(&piece, 4091, 4), "bytes of an earlier version");
        for at in 0..piece.len() {
            piece[at] ^= 1;
            assert!(!is_version(&piece, 4091, 3), "byte {at}");
            piece[at] ^= 1;
        }
    }

    #[test]
    fn pieces_fit_together_wherever_the_file_is_cut() {
        let mut whole = vec![0; 64];
        write_version(&mut whole, 0, 1);
        for start in 0..24 {
            for end in start..64 {
                let mut piece = vec![0; end - start];
                write_version(&mut piece, start as u64, 1);
                assert_eq!(piece, whole[start..end], "{start} to {end}");
                assert!(is_version(&piece, start as u64, 1), "{start} to {end}");
            }
        }
    }

    #[test]
    fn buffers_are_where_direct_io_wants_them() {
        let mut buffer = Buffer::new(5000);
        assert_eq!(buffer.bytes_mut().as_ptr() as usize % ALIGNMENT, 0);
        assert_eq!(buffer.bytes().len(), 5000);
    }

    #[test]
    fn the_file_has_no_name_and_holds_what_is_expected() {
        let dir = std::env::temp_dir().join(format!("presagio-scratch-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        for request in [4096, 1000] {
            let mut scratch = Scratch::create(&dir, 3 * request, request).unwrap();
            assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
            assert_eq!(scratch.first_wrong().unwrap(), None);
            scratch.expect_next_version();
            assert_eq!(scratch.first_wrong().unwrap(), Some(0));
        }
        std::fs::remove_dir(&dir).unwrap();
    }
}
