//! What a file lies on: memory, another machine, or a device with a cache behind it.

use rustix::fs::{fstat, fstatfs, major, minor};
use std::fs::{File, read_to_string};
use std::path::{Path, PathBuf};

/// File systems that are memory: tmpfs, ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58F6];

/// File systems of other machines, with caches there: NFS, CIFS and SMB2, 9P, FUSE, Ceph, Lustre.
const FAR: [u64; 7] = [
    0x6969,
    0xFF53_4D42,
    0xFE53_4D42,
    0x0102_1997,
    0x6573_5546,
    0x00C3_6400,
    0x0BD0_0BD0,
];

/// Notes on what stands between a file and a device.
pub fn around(file: &File) -> Vec<String> {
    let kind = fstatfs(file).map_or(0, |system| system.f_type as u64 & 0xFFFF_FFFF);
    let mut notes = Vec::new();
    if IN_MEMORY.contains(&kind) {
        notes.push("this file system is memory: the figures are not of a device".to_owned());
    }
    if FAR.contains(&kind) {
        let note = "this file system is served by somebody else, whose cache may hold the whole file: take a file that \
                    is larger than that memory";
        notes.push(note.to_owned());
    }
    notes.extend(device(file).and_then(|device| behind(&device)));
    notes
}

/// The directory in which the kernel describes the whole device that a file is on.
pub(super) fn device(file: &File) -> Option<PathBuf> {
    let number = fstat(file).ok()?.st_dev;
    let name = format!("/sys/dev/block/{}:{}", major(number), minor(number));
    let found = std::fs::canonicalize(name).ok()?;
    // A partition lies within its device.
    match found.join("partition").exists() {
        true => found.parent().map(Path::to_owned),
        false => Some(found),
    }
}

fn behind(device: &Path) -> Option<String> {
    let name = device.file_name()?.to_string_lossy().into_owned();
    let uncached = read_to_string(device.join("loop/dio")).ok();
    if uncached.is_some_and(|dio| dio.trim() == "0") {
        return Some(format!(
            "{name} is a file that goes through the page cache below: the figures are partly of memory"
        ));
    }
    if name.starts_with("zram") || name.starts_with("ram") {
        return Some(format!("{name} is memory: the figures are not of a device"));
    }
    let virtual_disk = name.starts_with("vd") || name.starts_with("xvd");
    virtual_disk.then(|| {
        format!("{name} is a virtual disk: what its host caches or throttles is in the figures")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_recognised() {
        let Ok(file) = tempfile::tempfile_in("/dev/shm") else {
            return;
        };
        assert!(around(&file).iter().any(|note| note.contains("memory")));
    }

    #[test]
    fn a_loop_device_through_the_page_cache_is_named() {
        let directory = tempfile::tempdir().expect("a directory");
        let device = directory.path().join("loop7");
        std::fs::create_dir_all(device.join("loop")).expect("made");
        for (dio, said) in [("0\n", true), ("1\n", false)] {
            std::fs::write(device.join("loop/dio"), dio).expect("written");
            assert_eq!(behind(&device).is_some(), said, "{dio}");
        }
        assert_eq!(behind(Path::new("/sys/devices/nvme0n1")), None);
        assert!(behind(Path::new("/sys/devices/zram0")).is_some());
    }
}
