//! A real file: without a name, past the page cache where that is possible, through io_uring where there is one.
//!
//! The file is made here (`O_TMPFILE`, or created and unlinked at once where a file system does not know that), so that no
//! data of anybody else is ever touched, and the kernel frees it when the process is gone, by whatever way. It is filled
//! with bytes that no device can compress before anything is measured.
//!
//! Without `O_DIRECT` the page cache is in the way: it is dropped before each run of reads, and the time of a run of
//! writes goes on until they are on the device.

mod memory;
mod plain;
mod ring;

use crate::Random;
use crate::target::{Run, Target};
use memory::Memory;
use plain::Plain;
use presagio_core::{Nanos, Op};
use presagio_device::profile::Pattern;
use ring::Ring;
use rustix::fs::{Advice, Mode, OFlags, fadvise};
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Filling goes through pieces of this size.
const PIECE: usize = 4 << 20;

/// So much stays free, or a hundredth of the file system if that is more: others want to write too.
const SPARE: u64 = 64 << 20;

/// Why there is no file to measure with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScratchError {
    /// A path that is neither a directory nor a file of one.
    #[error("{0} is neither a directory nor a regular file")]
    Kind(PathBuf),
    /// Not enough room.
    #[error("{free} bytes are free there, {needed} are needed so that some stay free")]
    Space {
        /// What is free.
        free: u64,
        /// What it takes.
        needed: u64,
    },
    /// What the system says.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// How requests reach the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// As many as wanted at a time.
    Ring,
    /// One system call each, one at a time: io_uring is switched off here.
    Plain,
}

/// A file without a name, to be measured with.
pub struct Scratch {
    file: File,
    bytes: u64,
    is_direct: bool,
    origin: Instant,
    path: Way,
}

enum Way {
    Ring(Box<Ring>),
    Plain(Plain),
}

impl Scratch {
    /// A file of `bytes` in a directory, or beside a file, on the storage in question; filled.
    ///
    /// `progress` is told how many bytes are filled.
    pub fn new(
        place: &Path,
        bytes: u64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Scratch, ScratchError> {
        let directory = directory(place)?;
        let (file, is_direct) = nameless(&directory)?;
        ensure_room(&file, bytes)?;
        fill(&file, bytes, progress)?;
        let path = match Ring::new() {
            Ok(ring) => Way::Ring(Box::new(ring)),
            Err(_) => Way::Plain(Plain::default()),
        };
        let origin = Instant::now();
        Ok(Scratch {
            file,
            bytes,
            is_direct,
            origin,
            path,
        })
    }

    /// Whether requests go past the page cache.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// How requests reach the kernel.
    pub fn engine(&self) -> Engine {
        match self.path {
            Way::Ring(_) => Engine::Ring,
            Way::Plain(_) => Engine::Plain,
        }
    }

    /// The file itself.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Makes the next reads come from the device, and lets the kernel read ahead only where it would for a program.
    fn forget(&self, pattern: Pattern) -> io::Result<()> {
        let advice = match pattern {
            Pattern::Sequential => Advice::Sequential,
            Pattern::Random => Advice::Random,
        };
        fadvise(&self.file, 0, None::<NonZeroU64>, Advice::DontNeed)?;
        Ok(fadvise(&self.file, 0, None::<NonZeroU64>, advice)?)
    }
}

impl Target for Scratch {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn run(&mut self, run: &Run<'_>) -> io::Result<Vec<Nanos>> {
        if !self.is_direct {
            self.forget(run.pattern)?;
        }
        match &mut self.path {
            Way::Ring(ring) => ring.prepare(run),
            Way::Plain(plain) => {
                plain.prepare(run);
            }
        }
        let begin = Instant::now();
        let mut done = match &mut self.path {
            Way::Ring(ring) => ring.run(&self.file, run, begin)?,
            Way::Plain(plain) => plain.run(&self.file, run, begin)?,
        };
        if !self.is_direct && run.op == Op::Write {
            self.file.sync_data()?;
            done.push(begin.elapsed().into());
        }
        Ok(done)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn now(&self) -> Nanos {
        self.origin.elapsed().into()
    }
}

/// The directory itself, or that of a file, which is not touched.
fn directory(place: &Path) -> Result<PathBuf, ScratchError> {
    let kind = std::fs::metadata(place)?;
    if kind.is_dir() {
        return Ok(place.to_owned());
    }
    if !kind.is_file() {
        return Err(ScratchError::Kind(place.to_owned()));
    }
    let resolved = std::fs::canonicalize(place)?;
    let parent = resolved.parent().map(Path::to_owned);
    parent.ok_or_else(|| ScratchError::Kind(place.to_owned()))
}

/// A new file without a name, and whether it is open past the page cache.
fn nameless(directory: &Path) -> io::Result<(File, bool)> {
    if let Ok(file) = made(directory, OFlags::DIRECT)
        && works_directly(&file)
    {
        return Ok((file, true));
    }
    Ok((made(directory, OFlags::empty())?, false))
}

fn made(directory: &Path, more: OFlags) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | more;
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::open(directory, flags | OFlags::TMPFILE, mode) {
        Ok(file) => Ok(file.into()),
        Err(_) => unlinked(directory, flags, mode),
    }
}

/// For file systems without nameless files: the name is there for a moment only.
fn unlinked(directory: &Path, flags: OFlags, mode: Mode) -> io::Result<File> {
    let mut number = [0; 8];
    rustix::rand::getrandom(&mut number, rustix::rand::GetRandomFlags::empty())?;
    let name = format!(".presagio-profile-{:016x}", u64::from_ne_bytes(number));
    let path = directory.join(name);
    let opened = rustix::fs::open(&path, flags | OFlags::CREATE | OFlags::EXCL, mode);
    // A file system that refuses a flag may have made the file all the same. Nobody else has a name of this kind.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    Ok(opened?.into())
}

/// Some file systems take the flag and refuse the requests.
fn works_directly(file: &File) -> bool {
    let memory = Memory::new(4096);
    file.write_all_at(memory.bytes(), 0).is_ok()
}

fn ensure_room(file: &File, bytes: u64) -> Result<(), ScratchError> {
    let system = rustix::fs::fstatvfs(file).map_err(io::Error::from)?;
    let free = system.f_bavail.saturating_mul(system.f_frsize);
    let all = system.f_blocks.saturating_mul(system.f_frsize);
    let needed = bytes.saturating_add(SPARE.max(all / 100));
    if free < needed {
        return Err(ScratchError::Space { free, needed });
    }
    Ok(())
}

/// Bytes that are different everywhere: a device that compresses or finds equal blocks gains nothing.
fn fill(file: &File, bytes: u64, progress: &mut dyn FnMut(u64)) -> io::Result<()> {
    let mut memory = Memory::new(PIECE);
    let mut random = Random::new(bytes);
    for offset in (0..bytes).step_by(PIECE) {
        memory.scramble(&mut random);
        let len = (bytes - offset).min(PIECE as u64) as usize;
        // Past the page cache, lengths are multiples of a block; the file may be a little longer than was asked for.
        let len = len.next_multiple_of(4096);
        file.write_all_at(&memory.bytes()[..len], offset)?;
        progress(offset + len as u64);
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn scratch(directory: &Path) -> Scratch {
        Scratch::new(directory, 1 << 20, &mut |_| {}).expect("a file")
    }

    fn run<'a>(op: Op, offsets: &'a [u64], depth: u32) -> Run<'a> {
        Run {
            op,
            pattern: Pattern::Random,
            size: 8192,
            offsets,
            depth,
        }
    }

    #[test]
    fn the_file_has_no_name_and_is_full() {
        let directory = tempfile::tempdir().expect("a directory");
        let scratch = scratch(directory.path());
        let left = std::fs::read_dir(directory.path()).expect("a list");
        assert_eq!(left.count(), 0);
        let meta = scratch.file().metadata().expect("its size");
        assert_eq!((meta.len(), meta.nlink()), (1 << 20, 0));
    }

    #[test]
    fn a_file_that_is_named_is_not_touched() {
        let directory = tempfile::tempdir().expect("a directory");
        let named = directory.path().join("data");
        std::fs::write(&named, "precious").expect("written");
        let mut scratch = scratch(&named);
        scratch
            .run(&run(Op::Write, &[0, 8192], 1))
            .expect("two writes");
        assert_eq!(std::fs::read(&named).expect("read"), b"precious");
        let left = std::fs::read_dir(directory.path()).expect("a list");
        assert_eq!(left.count(), 1);
    }

    #[test]
    fn no_device_file_is_opened() {
        let error = Scratch::new(Path::new("/dev/null"), 1 << 20, &mut |_| {});
        assert!(matches!(error, Err(ScratchError::Kind(_))));
    }

    #[test]
    fn a_file_system_is_not_filled_to_the_brim() {
        let directory = tempfile::tempdir().expect("a directory");
        let error = Scratch::new(directory.path(), u64::MAX / 2, &mut |_| {});
        assert!(matches!(error, Err(ScratchError::Space { .. })));
    }

    #[test]
    fn every_request_is_done_however_many_at_a_time_and_by_whichever_way() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut scratch = scratch(directory.path());
        let offsets: Vec<u64> = (0..128).map(|i| i * 37 % 128 * 8192).collect();
        for plain in [false, true] {
            if plain {
                scratch.path = Way::Plain(Plain::default());
            }
            for (op, depth) in [
                (Op::Read, 1),
                (Op::Write, 1),
                (Op::Read, 16),
                (Op::Write, 16),
            ] {
                let done = scratch.run(&run(op, &offsets, depth)).expect("done");
                assert!(done.len() >= 128 && done.is_sorted(), "{op} {depth}");
            }
        }
    }

    #[test]
    fn writes_are_where_they_should_be() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut scratch = scratch(directory.path());
        let read = |scratch: &Scratch, offset| {
            let mut memory = Memory::new(8192);
            let read = scratch.file.read_exact_at(memory.bytes_mut(), offset);
            read.expect("read");
            memory.bytes().to_vec()
        };
        let before = [0, 8192, 16_384].map(|offset| read(&scratch, offset));
        scratch.run(&run(Op::Write, &[8192], 4)).expect("written");
        let after = [0, 8192, 16_384].map(|offset| read(&scratch, offset));
        assert!(before[0] == after[0] && before[1] != after[1] && before[2] == after[2]);
    }

    #[test]
    fn a_read_beyond_the_end_is_an_error() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut scratch = scratch(directory.path());
        for plain in [false, true] {
            if plain {
                scratch.path = Way::Plain(Plain::default());
            }
            let read = scratch.run(&run(Op::Read, &[1 << 30], 1));
            assert!(read.is_err(), "plain: {plain}");
        }
    }

    #[test]
    fn without_direct_requests_writes_count_until_they_are_on_the_device() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut scratch = scratch(directory.path());
        scratch.file = made(directory.path(), OFlags::empty()).expect("a file");
        fill(&scratch.file, 1 << 20, &mut |_| {}).expect("filled");
        scratch.is_direct = false;
        let wrote = scratch.run(&run(Op::Write, &[0, 8192], 1)).expect("done");
        assert_eq!(wrote.len(), 3, "the third is the sync");
        let read = scratch.run(&run(Op::Read, &[0, 8192], 1)).expect("done");
        assert_eq!(read.len(), 2);
    }
}
