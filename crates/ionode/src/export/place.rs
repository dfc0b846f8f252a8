//! A place in the exported tree: what a fid stands for.
//!
//! A place is a descriptor that was opened with `O_PATH`, so it stands for the file itself: renaming it, or a directory
//! above, changes nothing. It remembers the directory and the name by which it was reached, for the two messages that
//! remove or rename a fid instead of a name.

use crate::error::{OrErrno, Result};
use presagio_ninep::{Attr, GetAttr, Qid, QidKind, Time};
use rustix::fs::{AtFlags, FileType, Statx, StatxFlags, StatxTimestamp};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Which file it is, on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileKey {
    /// The file system.
    pub device: u64,
    /// The file.
    pub inode: u64,
}

/// A file, a directory or anything else in the tree.
#[derive(Clone, Debug)]
pub struct Place {
    fd: Arc<OwnedFd>,
    key: FileKey,
    kind: FileType,
    reached: Option<Reached>,
}

/// How a place was reached.
#[derive(Clone, Debug)]
pub struct Reached {
    /// The directory.
    pub dir: Arc<OwnedFd>,
    /// The name in it.
    pub name: Box<[u8]>,
}

impl Place {
    /// What `fd` is open on.
    pub fn of(fd: OwnedFd, reached: Option<Reached>) -> Result<(Place, Statx)> {
        let stat = stat_of(fd.as_fd())?;
        let place = Place {
            fd: Arc::new(fd),
            key: key_of(&stat),
            kind: kind_of(&stat),
            reached,
        };
        Ok((place, stat))
    }

    /// A place that is open already.
    pub fn again(fd: &Arc<OwnedFd>) -> Result<Place> {
        let stat = stat_of(fd.as_fd())?;
        Ok(Place {
            fd: fd.clone(),
            key: key_of(&stat),
            kind: kind_of(&stat),
            reached: None,
        })
    }

    /// The same, now to be found under another name.
    pub fn moved(&self, dir: &Place, name: &[u8]) -> Place {
        Place {
            reached: Some(Reached {
                dir: dir.shared_fd().clone(),
                name: name.into(),
            }),
            ..self.clone()
        }
    }

    /// The descriptor, mostly good for its place only.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The descriptor, to keep.
    pub fn shared_fd(&self) -> &Arc<OwnedFd> {
        &self.fd
    }

    /// Which file it is.
    pub fn key(&self) -> FileKey {
        self.key
    }

    /// What it is.
    pub fn kind(&self) -> FileType {
        self.kind
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == FileType::Directory
    }

    /// The directory and the name that it was found under; the root has none.
    pub fn reached(&self) -> Option<&Reached> {
        self.reached.as_ref()
    }

    /// What the kernel says of it now.
    pub fn stat(&self) -> Result<Statx> {
        stat_of(self.fd())
    }
}

/// What the kernel says of an open file, or of a place.
pub fn stat_of(fd: BorrowedFd<'_>) -> Result<Statx> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, wanted).or_errno()
}

/// Which file it is.
pub fn key_of(stat: &Statx) -> FileKey {
    FileKey {
        device: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
        inode: stat.stx_ino,
    }
}

fn kind_of(stat: &Statx) -> FileType {
    FileType::from_raw_mode(stat.stx_mode.into())
}

/// The protocol's name for a file. Its path is the inode number; in another file system within the export the numbers
/// of both are mixed, since the same inode number may be in use in each.
pub fn qid(key: FileKey, kind: FileType, version: u32, root: FileKey) -> Qid {
    let path = match key.device == root.device {
        true => key.inode,
        false => (key.device.wrapping_mul(0x9e37_79b9_7f4a_7c15)).rotate_left(31) ^ key.inode,
    };
    let kind = match kind {
        FileType::Directory => QidKind::DIR,
        FileType::Symlink => QidKind::SYMLINK,
        _ => QidKind::FILE,
    };
    Qid {
        kind,
        version,
        path,
    }
}

/// The qid of what `stat` is of. Its version changes with the file's content.
pub fn qid_of(stat: &Statx, root: FileKey) -> Qid {
    let changed = stat.stx_mtime;
    let version = changed.tv_sec as u32 ^ changed.tv_nsec.rotate_left(8) ^ stat.stx_size as u32;
    qid(key_of(stat), kind_of(stat), version.max(1), root)
}

/// What `stat` says, in the protocol's words.
pub fn attr_of(stat: &Statx, root: FileKey) -> Attr {
    Attr {
        valid: GetAttr::BASIC | GetAttr::BTIME,
        qid: qid_of(stat, root),
        mode: stat.stx_mode.into(),
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        nlink: stat.stx_nlink.into(),
        rdev: rustix::fs::makedev(stat.stx_rdev_major, stat.stx_rdev_minor),
        size: stat.stx_size,
        blksize: stat.stx_blksize.into(),
        blocks: stat.stx_blocks,
        atime: time_of(stat.stx_atime),
        mtime: time_of(stat.stx_mtime),
        ctime: time_of(stat.stx_ctime),
        btime: time_of(stat.stx_btime),
        generation: 0,
        data_version: 0,
    }
}

/// Moments before 1970 wrap around, as Linux's client expects them to.
fn time_of(time: StatxTimestamp) -> Time {
    Time {
        sec: time.tv_sec as u64,
        nsec: time.tv_nsec.into(),
    }
}
