//! Hints: how pages come into memory and leave it, in the way each storage really understands.
//!
//! [`reopen`] gives the manager a descriptor of its own for a file that a program has open. [`Hints::open`] asks
//! `statfs` where the file lies and hands out a [`HintedFile`] with the back-end for it:
//!
//! - [`posix`]: `posix_fadvise`, split to what one call really loads, and checked; where it loads nothing, the bytes
//!   are read by force.
//! - [`lustre`]: reads by force, since its client ignores `WILLNEED`; `ladvise` tells the servers beforehand.
//! - [`gpfs`]: `gpfs_fcntl` of the site's own libgpfs.
//!
//! Each back-end counts what it did and what came of it ([`Hints::summary`]). Hints may block for as long as the
//! device takes: issue them from threads that nobody waits for.

mod device;
mod forced;
pub mod gpfs;
pub mod lustre;
pub mod posix;
mod reopen;
mod residency;

pub use device::{Device, Storage};
pub use reopen::{ReopenError, open_regular, reopen};
pub use residency::residency;
pub(crate) use residency::whole_pages;

use crate::blocks::FileKey;
use crate::config::Mode;
use gpfs::Gpfs;
use lustre::Lustre;
use posix::Posix;
use presagio_core::Range;
use residency::Method;
use rustix::fs::{Advice, fadvise};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// After so many reads by force in a row that left nothing in memory, we believe it.
const IN_VAIN_MAX: u32 = 3;
/// So many are then spared before there is another one.
const SPARED_MAX: u32 = 256;

/// A way to give hints. Ranges may reach behind the end of the file.
pub trait HintBackend: Send + Sync {
    /// What it is called in the summary.
    fn name(&self) -> &'static str;

    /// Brings the range into memory.
    fn will_need(&self, file: &Target, range: Range) -> Loaded;

    /// Lets the range go. What is dirty stays.
    fn dont_need(&self, file: &Target, range: Range);

    /// Sets how the kernel reads ahead. It holds for this open file alone: to change it for a program, it must be done
    /// on the program's own descriptor.
    fn set_mode(&self, file: &Target, mode: Mode) {
        let advice = match mode {
            Mode::Normal => Advice::Normal,
            Mode::Random => Advice::Random,
            Mode::Sequential => Advice::Sequential,
        };
        self.counts().modes.fetch_add(1, Relaxed);
        if fadvise(&file.file, 0, None, advice).is_err() {
            self.counts().errors.fetch_add(1, Relaxed);
        }
    }

    /// No more hints come for this file.
    fn closed(&self, _file: &Target) {}

    /// What was done so far.
    fn counts(&self) -> &Counts;
}

/// What came of a hint, in bytes of the whole pages that it asked for, as far as the file has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// What was asked for.
    pub asked: u64,
    /// How many of them are in memory now or on their way; where that cannot be looked at, all that were handed on. None of
    /// them where the file's pages are not kept at all. If some are not there, forget their blocks, so that they are asked
    /// for again when wanted.
    pub there: u64,
    /// How many of them were there before, if that is known: these cost nothing, and gained nothing.
    pub already: Option<u64>,
}

/// A file that hints are given for.
#[derive(Debug)]
pub struct Target {
    /// A descriptor of our own.
    pub file: File,
    /// Which file it is.
    pub key: FileKey,
    /// Where it lies.
    pub device: Arc<Device>,
    /// Reads by force in a row that left nothing in memory, and those that were spared since.
    in_vain: AtomicU32,
    spared: AtomicU32,
}

impl Target {
    /// Takes over a descriptor of our own, not one that a program reads with: the kernel's read-ahead is switched off for
    /// it, so that what we read by force loads just what was asked for.
    fn new(file: File, device: Arc<Device>) -> io::Result<Target> {
        let key = key_of(&file)?;
        _ = fadvise(&file, 0, None, Advice::Random); // failing is harmless
        Ok(Target {
            file,
            key,
            device,
            in_vain: AtomicU32::new(0),
            spared: AtomicU32::new(0),
        })
    }

    /// The whole pages that a range of the file lies in, `None` if it lies behind the end.
    fn pages(&self, range: Range) -> Option<Range> {
        let size = self.file.metadata().ok()?.len();
        let pages = residency::whole_pages(range, size);
        (!pages.is_empty()).then_some(pages)
    }

    /// Lets a range go, and counts it. Pages that lie in it only partly stay: the rest of them may be in use.
    fn release(&self, range: Range, counts: &Counts) {
        let Some(pages) = self.pages(range) else {
            return;
        };
        let len = range.end().min(pages.end()) - range.start();
        match fadvise(
            &self.file,
            range.start(),
            NonZeroU64::new(len),
            Advice::DontNeed,
        ) {
            Ok(()) => counts.released.fetch_add(len, Relaxed),
            Err(_) => counts.errors.fetch_add(1, Relaxed),
        };
    }

    /// Reads what is not in memory, and counts it.
    fn force(&self, pages: Range, counts: &Counts) -> Loaded {
        let asked = pages.len();
        if !self.is_worth_reading() {
            return Loaded {
                asked,
                ..Loaded::default()
            };
        }
        let read = forced::read(self, pages);
        if read.is_err() {
            counts.errors.fetch_add(1, Relaxed);
        }
        let forced::Read {
            there,
            forced,
            already,
        } = read.unwrap_or_default();
        counts.forced.fetch_add(forced, Relaxed);
        let there = match forced {
            0 => there,
            _ => self.kept(pages, there),
        };
        Loaded {
            asked,
            there,
            already: already.map(|already| already.min(there)),
        }
    }

    /// How many bytes of whole pages are in memory after they were read, if we may look: some files never have any there, as
    /// those of FUSE with `direct_io`.
    fn kept(&self, pages: Range, read: u64) -> u64 {
        let storage = self.device.storage;
        if matches!(storage, Storage::Lustre | Storage::Gpfs) {
            return read; // their clients keep them in their own way
        }
        let looked = residency::resident(&self.file, pages, Method::of(storage));
        let kept = looked.unwrap_or(read);
        if kept == 0 {
            self.in_vain.fetch_add(1, Relaxed);
        } else {
            self.in_vain.store(0, Relaxed);
        }
        kept
    }

    /// Whether to read by force: also now and then where nothing stays of it, since memory may only have been short.
    fn is_worth_reading(&self) -> bool {
        self.in_vain.load(Relaxed) < IN_VAIN_MAX
            || self.spared.fetch_add(1, Relaxed) % SPARED_MAX == SPARED_MAX - 1
    }
}

/// A file with the back-end that serves it. One for each file, however many processes read it: when it is dropped, GPFS
/// releases what it holds of the file.
pub struct HintedFile {
    target: Target,
    backend: Arc<dyn HintBackend>,
}

impl HintedFile {
    /// See [`HintBackend::will_need`].
    pub fn will_need(&self, range: Range) -> Loaded {
        self.backend.will_need(&self.target, range)
    }

    /// See [`HintBackend::dont_need`].
    pub fn dont_need(&self, range: Range) {
        self.backend.dont_need(&self.target, range);
    }

    /// See [`HintBackend::set_mode`].
    pub fn set_mode(&self, mode: Mode) {
        self.backend.set_mode(&self.target, mode);
    }

    /// The file, and where it lies.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The back-end's name.
    pub fn backend(&self) -> &'static str {
        self.backend.name()
    }
}

impl Drop for HintedFile {
    fn drop(&mut self) {
        self.backend.closed(&self.target);
    }
}

impl fmt::Debug for HintedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("HintedFile");
        shown
            .field("target", &self.target)
            .field("backend", &self.backend())
            .finish()
    }
}

fn key_of(file: &File) -> io::Result<FileKey> {
    let metadata = file.metadata()?;
    Ok(FileKey {
        device: metadata.dev(),
        inode: metadata.ino(),
    })
}

/// All back-ends, and what is known of the devices.
#[derive(Default)]
pub struct Hints {
    posix: Arc<Posix>,
    lustre: Arc<Lustre>,
    /// Looked for when the first file on GPFS comes.
    gpfs: OnceLock<Option<Arc<Gpfs>>>,
    devices: Mutex<BTreeMap<u64, Arc<Device>>>,
}

impl Hints {
    /// Chooses the back-end for a file, by where it lies. The descriptor must be our own ([`reopen`]): the kernel's
    /// read-ahead is switched off for it.
    pub fn open(&self, file: File) -> io::Result<HintedFile> {
        let device = self.device(&file)?;
        let backend = self.backend(device.storage);
        let target = Target::new(file, device)?;
        Ok(HintedFile { target, backend })
    }

    fn device(&self, file: &File) -> io::Result<Arc<Device>> {
        let id = key_of(file)?.device;
        let devices = || self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = devices().get(&id).cloned() {
            return Ok(known);
        }
        // Before the lock: storage that does not answer must not keep files of others from being opened.
        let device = Arc::new(Device::of(file)?);
        Ok(devices().entry(id).or_insert(device).clone())
    }

    fn backend(&self, storage: Storage) -> Arc<dyn HintBackend> {
        match storage {
            Storage::Lustre => self.lustre.clone(),
            Storage::Gpfs => match self.gpfs.get_or_init(|| Gpfs::find().map(Arc::new)) {
                Some(gpfs) => gpfs.clone(),
                None => self.posix.clone(),
            },
            _ => self.posix.clone(),
        }
    }

    /// One line for each back-end that did something.
    pub fn summary(&self) -> Vec<String> {
        let mut backends: Vec<&dyn HintBackend> = vec![&*self.posix, &*self.lustre];
        if let Some(Some(gpfs)) = self.gpfs.get() {
            backends.push(&**gpfs);
        }
        let lines = backends.into_iter().map(|b| (b.name(), b.counts().done()));
        lines
            .filter(|(_, done)| *done != Done::default())
            .map(|(name, done)| format!("{name}: {done}"))
            .collect()
    }
}

/// What a back-end did, counted as it goes on.
#[derive(Debug, Default)]
pub struct Counts {
    hints: AtomicU64,
    calls: AtomicU64,
    asked: AtomicU64,
    already: AtomicU64,
    resident: AtomicU64,
    forced: AtomicU64,
    released: AtomicU64,
    modes: AtomicU64,
    refused: AtomicU64,
    errors: AtomicU64,
}

impl Counts {
    /// What was counted until now.
    pub fn done(&self) -> Done {
        Done {
            hints: self.hints.load(Relaxed),
            calls: self.calls.load(Relaxed),
            bytes_asked: self.asked.load(Relaxed),
            bytes_already: self.already.load(Relaxed),
            bytes_resident: self.resident.load(Relaxed),
            bytes_forced: self.forced.load(Relaxed),
            bytes_released: self.released.load(Relaxed),
            modes: self.modes.load(Relaxed),
            refused: self.refused.load(Relaxed),
            errors: self.errors.load(Relaxed),
        }
    }

    fn add(&self, loaded: Loaded) -> Loaded {
        self.hints.fetch_add(1, Relaxed);
        self.asked.fetch_add(loaded.asked, Relaxed);
        let already = loaded.already.unwrap_or(0);
        self.already.fetch_add(already, Relaxed);
        self.resident.fetch_add(loaded.there, Relaxed);
        loaded
    }
}

/// What a back-end has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Ranges that were to be brought into memory.
    pub hints: u64,
    /// Calls of the system that this took.
    pub calls: u64,
    /// The bytes of those ranges.
    pub bytes_asked: u64,
    /// How many of them were in memory before.
    pub bytes_already: u64,
    /// How many of them were then found in memory, or on their way. (Where that cannot be looked at: were taken over.)
    pub bytes_resident: u64,
    /// How many had to be read by force.
    pub bytes_forced: u64,
    /// The bytes that were let go.
    pub bytes_released: u64,
    /// Changes of the mode.
    pub modes: u64,
    /// Ranges that the file system did not take.
    pub refused: u64,
    /// Calls that failed.
    pub errors: u64,
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let (asked, already) = (mib(self.bytes_asked), mib(self.bytes_already));
        write!(f, "{} hints in {} calls", self.hints, self.calls)?;
        write!(
            f,
            ", {asked:.1} MiB asked, {already:.1} MiB in memory before, "
        )?;
        write!(f, "{:.1} MiB then", mib(self.bytes_resident))?;
        if self.bytes_forced > 0 {
            write!(f, " ({:.1} MiB read by force)", mib(self.bytes_forced))?;
        }
        write!(f, ", {:.1} MiB released", mib(self.bytes_released))?;
        for (number, what) in [
            (self.modes, "changes of mode"),
            (self.refused, "refused"),
            (self.errors, "errors"),
        ] {
            if number > 0 {
                write!(f, ", {number} {what}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// Whether it holds at last. The kernel may take any page away at any moment (some machines reclaim idle pages all
    /// the time), so what is in memory is no promise; but it does not happen always.
    pub(crate) fn at_last(mut holds: impl FnMut() -> bool) -> bool {
        (0..50).any(|_| holds())
    }

    /// A file of this size in a temporary directory, written out, none of it in memory.
    pub(crate) fn cold_file(size: usize) -> Target {
        use std::io::Write;
        let mut file = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..size).map(|i| (i / 4096 + i) as u8).collect();
        file.write_all(&content).unwrap();
        file.sync_all().unwrap();
        let device = Arc::new(Device::of(&file).unwrap());
        let target = Target::new(file, device).unwrap();
        target.release(Range::at(0, size as u64), &Counts::default());
        target
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn the_summary_has_a_line_for_each_back_end_that_did_something() {
        let hints = Hints::default();
        assert!(hints.summary().is_empty());
        let file = hints.open(testing::cold_file(1 << 20).file).unwrap();
        file.will_need(Range::at(0, 10 << 20));
        file.dont_need(Range::at(0, 1 << 20));
        file.set_mode(Mode::Sequential);
        let summary = hints.summary();
        assert_eq!(summary.len(), 1, "{summary:?}");
        assert!(
            summary[0].starts_with("posix_fadvise: 1 hints in "),
            "{summary:?}"
        );
        assert!(summary[0].contains("1.0 MiB asked"), "{summary:?}");
        assert!(
            summary[0].ends_with("1.0 MiB released, 1 changes of mode"),
            "{summary:?}"
        );
    }

    #[test]
    fn a_page_that_is_released_only_partly_stays() {
        let target = testing::cold_file(4 * 4096);
        if target.device.storage == Storage::Memory {
            println!("skipped: temporary files lie in memory here");
            return;
        }
        let all = Range::at(0, 4 * 4096);
        let there = |range| residency(&target.file, range).unwrap();
        assert!(testing::at_last(|| {
            target.file.read_exact_at(&mut [0; 4 * 4096], 0).unwrap();
            target.release(Range::at(100, 2 * 4096), &Counts::default());
            there(Range::at(4096, 4096)) == 0 && there(all) == 3 * 4096
        }));
        assert!(testing::at_last(|| {
            target.release(Range::at(0, u64::MAX), &Counts::default());
            there(all) == 0
        }));
    }

    #[test]
    fn the_back_end_follows_from_the_storage() {
        let hints = Hints::default();
        assert_eq!(hints.backend(Storage::Local).name(), "posix_fadvise");
        assert_eq!(hints.backend(Storage::Fuse).name(), "posix_fadvise");
        assert_eq!(hints.backend(Storage::Lustre).name(), "lustre");
        let libgpfs = Gpfs::find().is_some();
        assert_eq!(hints.backend(Storage::Gpfs).name() == "gpfs", libgpfs);
    }
}
