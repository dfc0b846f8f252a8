//! Where a file lies, and how much one `WILLNEED` call loads there.
//!
//! The kernel cuts a call silently to the larger of the device's `read_ahead_kb` and `max_sectors_kb`; where there is
//! no block device, to the larger of its *bdi*'s `read_ahead_kb` and 128 KiB. We split accordingly. Where nothing
//! can be found out beforehand we begin with 128 KiB and try more as long as it works; where less became resident
//! than was asked for, that is what one call loads from then on.

use rustix::fs::{fstatfs, major, minor};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// What the kernel assumes where nobody says otherwise.
const STEP_DEFAULT: u64 = 128 << 10;
/// A step that was not known beforehand is not tried larger than this.
const STEP_TRIED_MAX: u64 = 8 << 20;
/// Less than this per call is memory pressure, no property of the device.
const STEP_MIN: u64 = 16 << 10;
/// After this many hints in a row that did nothing at all, we believe it.
const STRIKES_MAX: u32 = 3;
/// So many hints are then not given before one is tried again.
const SPARED_MAX: u32 = 256;
/// After this many hints that worked, we believe that too.
const CONFIRMED_MIN: u32 = 8;

/// What kind of storage a file lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// A file system of this machine.
    Local,
    /// Memory: there is nothing to load.
    Memory,
    /// An overlay, whose pages belong to the files below.
    Overlay,
    /// FUSE.
    Fuse,
    /// NFS, CephFS, BeeGFS and others whose client uses the page cache.
    Network,
    /// Lustre.
    Lustre,
    /// GPFS (Storage Scale).
    Gpfs,
}

impl Storage {
    /// By the magic number that statfs returns.
    fn of_magic(magic: u32) -> Storage {
        match magic {
            0x0BD0_0BD0 => Storage::Lustre,
            0x4750_4653 => Storage::Gpfs,
            0x6573_5546 => Storage::Fuse,
            0x794c_7630 => Storage::Overlay,
            0x0102_1994 | 0x8584_58f6 | 0x9584_58f6 => Storage::Memory, // tmpfs, ramfs, hugetlbfs
            // NFS, SMB 1 and 2, Ceph, 9P, AFS (two), BeeGFS, OrangeFS
            0x6969 | 0xFF53_4D42 | 0xFE53_4D42 | 0x00C3_6400 | 0x0102_1997 | 0x5346_414F
            | 0x6B41_4653 | 0x1983_0326 | 0x2003_0528 => Storage::Network,
            _ => Storage::Local,
        }
    }

    /// The storage of a file.
    pub fn of(file: &File) -> io::Result<Storage> {
        Ok(Storage::of_magic(fstatfs(file)?.f_type as u32))
    }

    /// Whether its bytes come over a network.
    pub const fn is_network(self) -> bool {
        matches!(self, Storage::Network | Storage::Lustre | Storage::Gpfs)
    }
}

/// The device of a file, as far as it is known, and what was learned about it.
#[derive(Debug)]
pub struct Device {
    /// As in `/sys/block`, or the kind of storage and its numbers, as `fuse 0:39`.
    pub name: String,
    /// What kind of storage it is.
    pub storage: Storage,
    /// How far the kernel reads ahead there.
    pub read_ahead_kb: Option<u32>,
    /// The largest request, for block devices.
    pub max_sectors_kb: Option<u32>,
    /// Whether it has to seek, for block devices.
    pub rotational: Option<bool>,
    step: AtomicU64,
    /// Whether the step is more than a guess.
    sure: AtomicBool,
    /// The last cut that was seen, not yet believed.
    suspected: AtomicU64,
    /// Hints in a row that did nothing, and those not given since.
    strikes: AtomicU32,
    spared: AtomicU32,
    /// How many hints were found to have worked.
    confirmed: AtomicU32,
}

impl Device {
    /// The device of a file.
    pub fn of(file: &File) -> io::Result<Device> {
        let id = file.metadata()?.dev();
        Ok(Device::read(Path::new("/sys"), id, Storage::of(file)?))
    }

    /// From the tree of facts at `sys`, which is `/sys` unless a test has its own.
    pub(super) fn read(sys: &Path, id: u64, storage: Storage) -> Device {
        let numbers = format!("{}:{}", major(id), minor(id));
        let disk = disk(&sys.join("dev/block").join(&numbers));
        let queue = disk.as_ref().map(|d| d.join("queue"));
        let bdi = sys.join("class/bdi").join(&numbers);
        let in_queue = |what: &str| number(&queue.as_ref()?.join(what));
        let read_ahead_kb =
            in_queue("read_ahead_kb").or_else(|| number(&bdi.join("read_ahead_kb")));
        let max_sectors_kb = in_queue("max_sectors_kb");
        let known = read_ahead_kb.max(max_sectors_kb);
        let at_least = if queue.is_some() { 0 } else { STEP_DEFAULT };
        let name = disk.and_then(|d| Some(d.file_name()?.to_string_lossy().into_owned()));
        let step = known.map_or(STEP_DEFAULT, |kb| u64::from(kb) << 10);
        Device {
            name: name.unwrap_or_else(|| format!("{storage:?} {numbers}").to_lowercase()),
            storage,
            read_ahead_kb,
            max_sectors_kb,
            rotational: in_queue("rotational").map(|r| r != 0),
            step: AtomicU64::new(step.max(at_least).max(STEP_MIN)),
            sure: AtomicBool::new(known.is_some()),
            suspected: AtomicU64::new(0),
            strikes: AtomicU32::new(0),
            spared: AtomicU32::new(0),
            confirmed: AtomicU32::new(0),
        }
    }

    /// How many bytes one `WILLNEED` call loads, as far as we know.
    pub fn step(&self) -> u64 {
        self.step.load(Relaxed)
    }

    /// Whether `WILLNEED` does nothing here.
    pub fn ignores_hints(&self) -> bool {
        self.strikes.load(Relaxed) >= STRIKES_MAX
    }

    /// Whether hints have worked so often that looking again is not worth a wait.
    pub(super) fn is_trusted(&self) -> bool {
        self.confirmed.load(Relaxed) >= CONFIRMED_MIN && self.sure.load(Relaxed)
    }

    /// Whether to give a hint: also now and then where hints do nothing, since memory may only have been short.
    pub(super) fn worth_a_hint(&self) -> bool {
        !self.ignores_hints() || self.spared.fetch_add(1, Relaxed) % SPARED_MAX == SPARED_MAX - 1
    }

    /// A hint of this size loaded all that was asked for.
    pub(super) fn worked(&self, bytes: u64) {
        self.strikes.store(0, Relaxed);
        self.confirmed.fetch_add(1, Relaxed);
        let step = self.step();
        if bytes >= step && !self.sure.load(Relaxed) {
            self.step.store((step * 2).min(STEP_TRIED_MAX), Relaxed);
            self.sure.store(step == STEP_TRIED_MAX, Relaxed);
        }
    }

    /// One call loaded just this much, and the next one went on from there. Believed when seen twice: where memory is
    /// short, pages go missing too, but not in the same place.
    pub(super) fn cut_at(&self, bytes: u64) {
        self.strikes.store(0, Relaxed);
        if self.suspected.swap(bytes, Relaxed) == bytes {
            self.sure.store(true, Relaxed);
            self.step.fetch_min(bytes.max(STEP_MIN), Relaxed);
        }
    }

    /// A hint loaded nothing at all.
    pub(super) fn did_nothing(&self) {
        self.strikes.fetch_add(1, Relaxed);
    }
}

/// The disk of a block device: itself, or the one it is a partition of.
fn disk(block: &Path) -> Option<PathBuf> {
    let path = fs::canonicalize(block).ok()?;
    let is_partition = path.join("partition").exists();
    let disk = if is_partition {
        path.parent()?.to_owned()
    } else {
        path
    };
    disk.join("queue").exists().then_some(disk)
}

fn number(path: &Path) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::makedev;
    use std::os::unix::fs::symlink;

    /// A small /sys with a disk 8:0, its partition 8:1, and a network mount 0:51.
    fn sys() -> tempfile::TempDir {
        let sys = tempfile::tempdir().unwrap();
        let put = |path: &str, content: &str| {
            let path = sys.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        put("devices/sda/queue/read_ahead_kb", "128\n");
        put("devices/sda/queue/max_sectors_kb", "1280\n");
        put("devices/sda/queue/rotational", "1\n");
        put("devices/sda/sda1/partition", "1\n");
        put("class/bdi/0:51/read_ahead_kb", "4096\n");
        put("class/bdi/0:52/read_ahead_kb", "64\n");
        fs::create_dir_all(sys.path().join("dev/block")).unwrap();
        symlink("../../devices/sda", sys.path().join("dev/block/8:0")).unwrap();
        symlink("../../devices/sda/sda1", sys.path().join("dev/block/8:1")).unwrap();
        sys
    }

    #[test]
    fn a_partition_has_the_facts_of_its_disk() {
        let sys = sys();
        for minor in [0, 1] {
            let device = Device::read(sys.path(), makedev(8, minor), Storage::Local);
            assert_eq!(device.name, "sda");
            assert_eq!(
                (device.read_ahead_kb, device.max_sectors_kb),
                (Some(128), Some(1280))
            );
            assert_eq!(device.rotational, Some(true));
            assert_eq!(device.step(), 1280 << 10);
        }
    }

    #[test]
    fn a_mount_without_a_disk_has_those_of_its_bdi() {
        let sys = sys();
        let device = Device::read(sys.path(), makedev(0, 51), Storage::Network);
        assert_eq!(
            (device.name.as_str(), device.step()),
            ("network 0:51", 4 << 20)
        );
        let device = Device::read(sys.path(), makedev(0, 52), Storage::Fuse);
        assert_eq!(
            device.step(),
            128 << 10,
            "never less than this without a block device"
        );
    }

    #[test]
    fn an_unknown_step_grows_while_it_works_and_is_learned_when_it_does_not() {
        let sys = sys();
        let device = Device::read(sys.path(), makedev(0, 99), Storage::Local);
        assert_eq!(device.step(), 128 << 10);
        device.worked(4096);
        assert_eq!(device.step(), 128 << 10, "a small hint proves nothing");
        device.worked(1 << 20);
        assert_eq!(device.step(), 256 << 10);
        device.cut_at(100 << 10);
        device.cut_at(200 << 10);
        assert_eq!(device.step(), 256 << 10, "once may be chance");
        device.cut_at(200 << 10);
        device.worked(1 << 20);
        assert_eq!(device.step(), 200 << 10);
    }

    #[test]
    fn hints_that_do_nothing_are_given_up_only_after_several() {
        let sys = sys();
        let device = Device::read(sys.path(), makedev(8, 0), Storage::Local);
        device.did_nothing();
        device.did_nothing();
        device.worked(4096);
        device.did_nothing();
        device.did_nothing();
        assert!(!device.ignores_hints());
        device.did_nothing();
        assert!(device.ignores_hints());
        let tried = (0..2 * SPARED_MAX).filter(|_| device.worth_a_hint());
        assert_eq!(tried.count(), 2, "but tried again now and then");
        device.worked(4096);
        assert!(device.worth_a_hint());
    }

    #[test]
    fn file_systems_are_known_by_their_number() {
        assert_eq!(Storage::of_magic(0x0BD0_0BD0), Storage::Lustre);
        assert_eq!(Storage::of_magic(0x4750_4653), Storage::Gpfs);
        assert_eq!(Storage::of_magic(0xEF53), Storage::Local);
        assert!(Storage::of_magic(0x6969).is_network() && !Storage::Fuse.is_network());
    }
}
