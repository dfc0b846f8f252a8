//! Attributes as the protocol has them, and as the kernel does.

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use presagio_ninep::{Attr, Errno, SetAttr, SetMask, Time};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The bits of a mode that say what kind of file it is.
const KIND: u32 = 0o170_000;

pub(super) fn kernel_errno(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(i32::try_from(errno.0).unwrap_or(5))
}

pub(super) fn kernel_attr(number: INodeNo, attr: &Attr) -> FileAttr {
    FileAttr {
        ino: number,
        size: attr.size,
        blocks: attr.blocks,
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: system_time(attr.btime),
        kind: kind_of_mode(attr.mode),
        perm: (attr.mode & 0o7777) as u16,
        nlink: u32::try_from(attr.nlink).unwrap_or(u32::MAX),
        uid: attr.uid,
        gid: attr.gid,
        rdev: kernel_device(attr.rdev),
        blksize: u32::try_from(attr.blksize).unwrap_or(4096),
        flags: 0,
    }
}

fn kind_of_mode(mode: u32) -> FileType {
    match mode & KIND {
        0o010_000 => FileType::NamedPipe,
        0o020_000 => FileType::CharDevice,
        0o040_000 => FileType::Directory,
        0o060_000 => FileType::BlockDevice,
        0o120_000 => FileType::Symlink,
        0o140_000 => FileType::Socket,
        _ => FileType::RegularFile,
    }
}

/// Of `d_type`, which is a mode without its lower bits.
pub(super) fn kind_of_entry(file_type: u8) -> FileType {
    kind_of_mode(u32::from(file_type) << 12)
}

/// Times before 1970 are sent as the two's complement of their seconds.
fn system_time(time: Time) -> SystemTime {
    let nanos = Duration::from_nanos(time.nsec.min(999_999_999));
    let seconds = time.sec as i64;
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let moment = match seconds < 0 {
        true => UNIX_EPOCH.checked_sub(whole),
        false => UNIX_EPOCH.checked_add(whole),
    };
    moment
        .and_then(|moment| moment.checked_add(nanos))
        .unwrap_or(UNIX_EPOCH)
}

/// A moment that the kernel gave. Before 1970 fuser subtracts the nanoseconds where it should add them (0.18, marked as
/// to be done there): taken back here, and watched by a test with a real file.
fn protocol_time(time: SystemTime) -> Time {
    let (since, is_before) = match time.duration_since(UNIX_EPOCH) {
        Ok(since) => (since, false),
        Err(before) => (before.duration(), true),
    };
    let seconds = since.as_secs();
    Time {
        sec: if is_before {
            seconds.wrapping_neg()
        } else {
            seconds
        },
        nsec: since.subsec_nanos().into(),
    }
}

/// A change that the kernel asks for.
pub(super) fn change(
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    size: Option<u64>,
    (atime, mtime): (Option<TimeOrNow>, Option<TimeOrNow>),
) -> SetAttr {
    let mut attr = SetAttr {
        mode: mode.unwrap_or(0) & 0o7777,
        uid: uid.unwrap_or(0),
        gid: gid.unwrap_or(0),
        size: size.unwrap_or(0),
        ..SetAttr::default()
    };
    let mut mark = |is: bool, bit: SetMask| {
        if is {
            attr.valid = attr.valid | bit;
        }
    };
    mark(mode.is_some(), SetMask::MODE);
    mark(uid.is_some(), SetMask::UID);
    mark(gid.is_some(), SetMask::GID);
    mark(size.is_some(), SetMask::SIZE);
    mark(atime.is_some(), SetMask::ATIME);
    mark(mtime.is_some(), SetMask::MTIME);
    if let Some(TimeOrNow::SpecificTime(time)) = atime {
        attr.valid = attr.valid | SetMask::ATIME_SET;
        attr.atime = protocol_time(time);
    }
    if let Some(TimeOrNow::SpecificTime(time)) = mtime {
        attr.valid = attr.valid | SetMask::MTIME_SET;
        attr.mtime = protocol_time(time);
    }
    attr
}

/// A device number as FUSE carries it.
fn kernel_device(device: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// The other way round: major and minor.
pub(super) fn device(kernel: u32) -> (u32, u32) {
    (
        (kernel >> 8) & 0xfff,
        (kernel & 0xff) | ((kernel >> 12) & 0xf_ff00),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_survive_the_way_there_and_back() {
        for (major, minor) in [(1, 3), (8, 300), (0xfff, 0xf_ffff)] {
            assert_eq!(
                device(kernel_device(rustix::fs::makedev(major, minor))),
                (major, minor)
            );
        }
    }
}
