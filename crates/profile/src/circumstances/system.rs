//! What a file lies on: memory, another machine, or a device with a cache behind it.
//!
//! A file system on one device has that device's number. One that may have several, or lies on another one (btrfs, overlayfs), has a
//! number of its own; which device it is mounted from, or in which directory its files are, is in `/proc/self/mountinfo`.

use rustix::fs::{fstat, fstatfs, major, minor};
use std::fs::{File, read_to_string};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// File systems that are memory: tmpfs, ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58F6];

/// File systems of other machines, with caches there: NFS, CIFS and SMB2, 9P, FUSE, Ceph, Lustre, GPFS, BeeGFS, OrangeFS.
const FAR: [u64; 10] = [
    0x6969,
    0xFF53_4D42,
    0xFE53_4D42,
    0x0102_1997,
    0x6573_5546,
    0x00C3_6400,
    0x0BD0_0BD0,
    0x4750_4653,
    0x1983_0326,
    0x2003_0528,
];

/// A file system may lie on another one, and that on a third.
const LAYERS_MAX: u32 = 4;

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
    match device(file) {
        Some(device) => notes.extend(behind(&device)),
        None if notes.is_empty() => notes.push(
            "which device this file system is on cannot be told: whether it is throttled, virtual, or a file itself could \
             not be looked for"
                .to_owned(),
        ),
        None => {}
    }
    notes
}

/// The directory in which the kernel describes the whole device that a file is on.
pub(super) fn device(file: &File) -> Option<PathBuf> {
    device_below(file, LAYERS_MAX)
}

fn device_below(file: &File, layers: u32) -> Option<PathBuf> {
    let number = fstat(file).ok()?.st_dev;
    described(number).or_else(|| match below(&mount(file)?) {
        Below::Device(path) => described(rustix::fs::stat(path).ok()?.st_rdev),
        Below::Directory(path) => {
            let layers = layers.checked_sub(1)?;
            device_below(&File::open(path).ok()?, layers)
        }
        Below::Unknown => None,
    })
}

/// What a file system lies on.
#[derive(Debug, PartialEq, Eq)]
enum Below {
    Device(PathBuf),
    Directory(PathBuf),
    Unknown,
}

/// The line of `/proc/self/mountinfo` of the mount that a file was opened through.
fn mount(file: &File) -> Option<String> {
    let about = read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    let id = about
        .lines()
        .find_map(|line| line.strip_prefix("mnt_id:"))?;
    let mounts = read_to_string("/proc/self/mountinfo").ok()?;
    let is_it = |line: &&str| line.split(' ').next() == Some(id.trim());
    mounts.lines().find(is_it).map(str::to_owned)
}

/// What is said of that: after a dash the kind, the source, and options, of which one may be the directory that is written to.
fn below(mount: &str) -> Below {
    let Some((_, about)) = mount.split_once(" - ") else {
        return Below::Unknown;
    };
    let mut fields = about.split(' ');
    let (kind, source) = (fields.next(), fields.next().unwrap_or_default());
    let options = fields.next().unwrap_or_default();
    if kind == Some("overlay") {
        let upper = options
            .split(',')
            .find_map(|it| it.strip_prefix("upperdir="));
        return upper.map_or(Below::Unknown, |upper| Below::Directory(unescaped(upper)));
    }
    match source.starts_with("/dev/") {
        true => Below::Device(unescaped(source)),
        false => Below::Unknown,
    }
}

/// Spaces and the like are octal numbers there.
fn unescaped(text: &str) -> PathBuf {
    let codes = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    let plain = |text: String, (code, plain): (&str, &str)| text.replace(code, plain);
    PathBuf::from(codes.into_iter().fold(text.to_owned(), plain))
}

/// The directory in which the kernel describes the whole device of a number, if it is one's.
fn described(number: u64) -> Option<PathBuf> {
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
    fn what_a_file_system_lies_on_is_found_where_its_number_says_nothing() {
        for (mount, expected) in [
            (
                "36 35 0:41 /@home /home rw,relatime shared:1 - btrfs /dev/nvme0n1p2 rw,ssd,subvol=/@home",
                Below::Device("/dev/nvme0n1p2".into()),
            ),
            (
                "90 80 0:60 / / rw - overlay overlay rw,lowerdir=/l/1:/l/2,upperdir=/var/my\\040own/upper,workdir=/w",
                Below::Directory("/var/my own/upper".into()),
            ),
            (
                "90 80 0:60 / / ro - overlay overlay ro,lowerdir=/l/1:/l/2",
                Below::Unknown,
            ),
            ("22 27 0:21 / /proc rw - proc proc rw", Below::Unknown),
            ("no mount", Below::Unknown),
        ] {
            assert_eq!(below(mount), expected, "{mount}");
        }
        let file = File::open("/proc/self/status").expect("there is one");
        assert!(mount(&file).is_some_and(|it| it.contains(" - proc ")));
        let said = around(&file);
        assert!(said.iter().any(|it| it.contains("could not be looked for")));
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
