//! The exported tree: every call that names something in it, confined to it.
//!
//! A client never gives a path, only one name at a time, and each is looked up relative to a place that was reached
//! before. Symbolic links are never followed here (clients follow them, by walking), nor are the kernel's magic links;
//! `..` goes up only as far as the root. So whatever links and renames a client makes, no name leads out of the export.
//!
//! All of this is done by a thread that acts as the client's user ([`crate::identity`]): whether it is allowed is for the
//! kernel to say.
//!
//! The node's own directory in the root, [`OWN`], is not there for clients.

mod directory;
mod place;

pub use directory::list;
pub use place::{FileKey, Place, attr_of, stat_of};

use place::{Reached, qid_of};

use crate::error::{OrErrno, Result};
use presagio_ninep::{Errno, Name, OpenFlags, Qid, SetAttr, SetMask, StatFs, Step, Text};
use presagio_storage::Storage;
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Statx, Timespec, Timestamps, Uid,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// Where the node keeps what it must not forget, in the root of the export.
pub const OWN: &[u8] = b".presagio";

/// How far up a directory's way to the root may be: deeper trees cannot be walked up.
const DEPTH_MAX: usize = 4096;

/// An exported tree.
pub struct Export {
    root: Place,
    /// The root, open: what files are found by their handles from.
    mount: OwnedFd,
    /// `/proc/self/fd`, through which a place is opened.
    descriptors: OwnedFd,
    read_only: bool,
    storage: Arc<dyn Storage>,
}

impl Export {
    /// Exports `directory`, whose files' bytes are in `storage`.
    pub fn new(directory: &Path, storage: Arc<dyn Storage>, read_only: bool) -> io::Result<Export> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(directory, flags, Mode::empty())?;
        let descriptors = rustix::fs::open("/proc/self/fd", flags, Mode::empty())?;
        let mount = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mount = rustix::fs::openat(&root, c".", mount, Mode::empty())?;
        let (root, _) = Place::of(root, None)?;
        Ok(Export {
            root,
            mount,
            descriptors,
            read_only,
            storage,
        })
    }

    /// The root.
    pub fn root(&self) -> &Place {
        &self.root
    }

    /// An open file of the file system that the root is in.
    pub fn mount(&self) -> BorrowedFd<'_> {
        self.mount.as_fd()
    }

    /// Where the bytes are.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// Fails if nothing may be changed.
    pub fn writable(&self) -> Result<()> {
        match self.read_only {
            true => Err(Errno::ROFS),
            false => Ok(()),
        }
    }

    /// The protocol's name for what `stat` is of.
    pub fn qid(&self, stat: &Statx) -> Qid {
        qid_of(stat, self.root.key())
    }

    /// One step from `from`.
    pub fn step(&self, from: &Place, step: Step<'_>) -> Result<(Place, Statx)> {
        if !from.is_dir() {
            return Err(Errno::NOTDIR);
        }
        match step.bytes() {
            b"." => Ok((from.clone(), from.stat()?)),
            b".." => self.up(from),
            name => self.look_up(from, name),
        }
    }

    /// What a path from the root leads to.
    pub fn walk(&self, path: &[u8]) -> Result<Place> {
        let mut at = self.root.clone();
        for name in path
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty())
        {
            let step = Step::new(name).map_err(|_| Errno::NOENT)?;
            at = self.step(&at, step)?.0;
        }
        Ok(at)
    }

    /// The file of a path, given from the root of the machine or from that of the export.
    pub fn find_path(&self, path: &[u8]) -> Result<Place> {
        let root = self.whole_path(&self.root);
        let below = path
            .strip_prefix(&*root)
            .filter(|rest| rest.first() == Some(&b'/'));
        self.walk(below.unwrap_or(path))
    }

    fn look_up(&self, dir: &Place, name: &[u8]) -> Result<(Place, Statx)> {
        self.visible(dir, name)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = open_in(dir, name, flags, Mode::empty())?;
        Place::of(fd, Some(reached(dir, name)))
    }

    /// The directory above, if the root is still above that, or is it.
    fn up(&self, from: &Place) -> Result<(Place, Statx)> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if from.key() == self.root.key() {
            return Ok((self.root.clone(), self.root.stat()?));
        }
        let above = rustix::fs::openat(from.fd(), c"..", flags, Mode::empty()).or_errno()?;
        let (above, stat) = Place::of(above, None)?;
        let mut at = above.clone();
        for _ in 0..DEPTH_MAX {
            if at.key() == self.root.key() {
                return Ok((above, stat));
            }
            let next = rustix::fs::openat(at.fd(), c"..", flags, Mode::empty()).or_errno()?;
            let (next, _) = Place::of(next, None)?;
            if next.key() == at.key() {
                break;
            }
            at = next;
        }
        // It was moved out of the export, behind our back.
        Err(Errno::NOENT)
    }

    /// Whether `name` in `dir` is what the node keeps for itself.
    pub fn is_own(&self, dir: &Place, name: &[u8]) -> bool {
        name == OWN && dir.key() == self.root.key()
    }

    /// Whether clients may know of `name` in `dir`.
    fn visible(&self, dir: &Place, name: &[u8]) -> Result<()> {
        match self.is_own(dir, name) {
            true => Err(Errno::NOENT),
            false => Ok(()),
        }
    }

    /// Whether clients may make, change or remove `name` in `dir`.
    fn changeable(&self, dir: &Place, name: Name<'_>) -> Result<()> {
        self.writable()?;
        match self.visible(dir, name.bytes()) {
            Ok(()) => Ok(()),
            Err(_) => Err(Errno::PERM),
        }
    }

    /// Opens a place. Only files and directories: what a device or a pipe means is for the client's machine to say.
    pub fn open(&self, place: &Place, flags: OFlags) -> Result<OwnedFd> {
        match place.kind() {
            FileType::RegularFile | FileType::Directory => {}
            FileType::Symlink => return Err(Errno(libc::ELOOP as u32)),
            _ => return Err(Errno(libc::ENXIO as u32)),
        }
        self.reopen(place.fd(), flags | OFlags::CLOEXEC)
    }

    fn reopen(&self, fd: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd> {
        let number = Number::of(fd);
        rustix::fs::openat(&self.descriptors, number.name(), flags, Mode::empty()).or_errno()
    }

    /// Makes and opens a regular file. Says whether it was there before.
    pub fn create(
        &self,
        dir: &Place,
        name: Name<'_>,
        flags: OFlags,
        mode: u32,
    ) -> Result<(Place, Statx, bool)> {
        self.changeable(dir, name)?;
        let exclusive = flags | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(mode & 0o7777);
        match open_in(dir, name.bytes(), exclusive, mode) {
            Err(Errno::EXIST) if !flags.contains(OFlags::EXCL) => {}
            made => {
                let (place, stat) = Place::of(made?, Some(reached(dir, name.bytes())))?;
                return Ok((place, stat, true));
            }
        }
        // What is there is looked at before it is opened: to open a pipe would wait, to open a device may do anything.
        let (place, stat) = self.look_up(dir, name.bytes())?;
        match place.kind() {
            FileType::RegularFile => {
                let opened = self.reopen(place.fd(), flags | OFlags::CLOEXEC)?;
                Ok((
                    Place::of(opened, Some(reached(dir, name.bytes())))?.0,
                    stat,
                    false,
                ))
            }
            FileType::Directory => Err(Errno::ISDIR),
            FileType::Symlink => Err(Errno(libc::ELOOP as u32)),
            _ => Err(Errno(libc::ENXIO as u32)),
        }
    }

    /// Makes a directory.
    pub fn make_dir(&self, dir: &Place, name: Name<'_>, mode: u32) -> Result<Qid> {
        self.changeable(dir, name)?;
        let mode = Mode::from_raw_mode(mode & 0o7777);
        rustix::fs::mkdirat(dir.fd(), name.bytes(), mode).or_errno()?;
        self.qid_in(dir, name)
    }

    /// Makes a symbolic link.
    pub fn make_link(&self, dir: &Place, name: Name<'_>, target: Text<'_>) -> Result<Qid> {
        self.changeable(dir, name)?;
        rustix::fs::symlinkat(target.bytes(), dir.fd(), name.bytes()).or_errno()?;
        self.qid_in(dir, name)
    }

    /// Makes a node: an empty file, a pipe, a socket, a device.
    pub fn make_node(
        &self,
        dir: &Place,
        name: Name<'_>,
        mode: u32,
        device: (u32, u32),
    ) -> Result<Qid> {
        self.changeable(dir, name)?;
        let kind = FileType::from_raw_mode(mode);
        let device = rustix::fs::makedev(device.0, device.1);
        let permissions = Mode::from_raw_mode(mode & 0o7777);
        if kind == FileType::RegularFile {
            let flags = OFlags::RDWR | OFlags::EXCL;
            let (_, stat, _) = self.create(dir, name, flags, mode)?;
            return Ok(self.qid(&stat));
        }
        rustix::fs::mknodat(dir.fd(), name.bytes(), kind, permissions, device).or_errno()?;
        self.qid_in(dir, name)
    }

    fn qid_in(&self, dir: &Place, name: Name<'_>) -> Result<Qid> {
        let (_, stat) = self.look_up(dir, name.bytes())?;
        Ok(self.qid(&stat))
    }

    /// Gives `place` another name.
    pub fn link(&self, place: &Place, dir: &Place, name: Name<'_>) -> Result<()> {
        self.changeable(dir, name)?;
        let number = Number::of(place.fd());
        let follow = AtFlags::SYMLINK_FOLLOW;
        let from = &self.descriptors;
        rustix::fs::linkat(from, number.name(), dir.fd(), name.bytes(), follow).or_errno()
    }

    /// Renames.
    pub fn rename(
        &self,
        old_dir: &Place,
        old: Name<'_>,
        new_dir: &Place,
        new: Name<'_>,
    ) -> Result<()> {
        self.changeable(old_dir, old)?;
        self.changeable(new_dir, new)?;
        let (old, new) = (old.bytes(), new.bytes());
        rustix::fs::renameat(old_dir.fd(), old, new_dir.fd(), new).or_errno()
    }

    /// Removes a name.
    pub fn unlink(&self, dir: &Place, name: Name<'_>, is_dir: bool) -> Result<()> {
        self.changeable(dir, name)?;
        let flags = if is_dir {
            AtFlags::REMOVEDIR
        } else {
            AtFlags::empty()
        };
        rustix::fs::unlinkat(dir.fd(), name.bytes(), flags).or_errno()
    }

    /// What `name` in `dir` is now.
    pub fn find(&self, dir: &Place, name: Name<'_>) -> Result<Place> {
        Ok(self.look_up(dir, name.bytes())?.0)
    }

    /// Where a symbolic link points.
    pub fn read_link(&self, place: &Place) -> Result<Vec<u8>> {
        if place.kind() != FileType::Symlink {
            return Err(Errno::INVAL);
        }
        let target = rustix::fs::readlinkat(place.fd(), c"", Vec::new()).or_errno()?;
        Ok(target.into_bytes())
    }

    /// Changes all that `attr` says, but not the size.
    pub fn set_attr(&self, place: &Place, attr: &SetAttr) -> Result<()> {
        self.writable()?;
        let empty = AtFlags::EMPTY_PATH;
        if attr.valid.intersects(SetMask::UID | SetMask::GID) {
            let given = |bit, id| (attr.valid.contains(bit) && id != u32::MAX).then_some(id);
            let uid = given(SetMask::UID, attr.uid).map(Uid::from_raw);
            let gid = given(SetMask::GID, attr.gid).map(Gid::from_raw);
            rustix::fs::chownat(place.fd(), c"", uid, gid, empty).or_errno()?;
        }
        if attr.valid.contains(SetMask::MODE) {
            self.set_mode(place, attr.mode)?;
        }
        if attr.valid.intersects(SetMask::ATIME | SetMask::MTIME) {
            let times = Timestamps {
                last_access: moment(attr, SetMask::ATIME, SetMask::ATIME_SET, attr.atime),
                last_modification: moment(attr, SetMask::MTIME, SetMask::MTIME_SET, attr.mtime),
            };
            rustix::fs::utimensat(place.fd(), c"", &times, empty).or_errno()?;
        }
        Ok(())
    }

    /// Changes the permissions.
    pub fn set_mode(&self, place: &Place, mode: u32) -> Result<()> {
        if place.kind() == FileType::Symlink {
            return Err(Errno::OPNOTSUPP);
        }
        let (number, mode) = (Number::of(place.fd()), Mode::from_raw_mode(mode & 0o7777));
        rustix::fs::chmodat(&self.descriptors, number.name(), mode, AtFlags::empty()).or_errno()
    }

    /// What the file system says of itself.
    pub fn stat_fs(&self, place: &Place) -> Result<StatFs> {
        let raw = rustix::fs::fstatfs(place.fd()).or_errno()?;
        let all = rustix::fs::fstatvfs(place.fd()).or_errno()?;
        Ok(StatFs {
            fstype: raw.f_type as u32,
            bsize: all.f_bsize as u32,
            blocks: all.f_blocks,
            bfree: all.f_bfree,
            bavail: all.f_bavail,
            files: all.f_files,
            ffree: all.f_ffree,
            fsid: all.f_fsid,
            namelen: all.f_namemax as u32,
        })
    }

    /// Where a place is now, from the root of the machine, as far as the kernel can say.
    pub fn whole_path(&self, place: &Place) -> Vec<u8> {
        let number = Number::of(place.fd());
        let path = rustix::fs::readlinkat(&self.descriptors, number.name(), Vec::new());
        path.map(std::ffi::CString::into_bytes).unwrap_or_default()
    }

    /// The path by which the kernel finds a place, for calls that take no descriptor like it.
    pub fn path_of(&self, place: &Place) -> Result<String> {
        match place.kind() {
            FileType::Symlink => Err(Errno::OPNOTSUPP),
            _ => Ok(format!(
                "/proc/self/fd/{}",
                std::os::fd::AsRawFd::as_raw_fd(&place.fd())
            )),
        }
    }
}

fn reached(dir: &Place, name: &[u8]) -> Reached {
    Reached {
        dir: dir.shared_fd().clone(),
        name: name.into(),
    }
}

/// Opens one name in a directory: neither links nor `..` can lead elsewhere.
fn open_in(dir: &Place, name: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    let mut confined = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    if !flags.contains(OFlags::PATH) {
        confined |= ResolveFlags::NO_SYMLINKS;
    }
    rustix::fs::openat2(dir.fd(), name, flags, mode, confined).or_errno()
}

fn moment(attr: &SetAttr, bit: SetMask, set: SetMask, time: presagio_ninep::Time) -> Timespec {
    let tv_nsec = match (attr.valid.contains(bit), attr.valid.contains(set)) {
        (false, _) => libc::UTIME_OMIT,
        (true, false) => libc::UTIME_NOW,
        (true, true) => time.nsec.min(999_999_999) as i64,
    };
    Timespec {
        tv_sec: time.sec as i64,
        tv_nsec,
    }
}

/// The flags with which a client may have a file opened: not those that only mean something on its own machine, nor
/// those that the node sees to itself (appending, cutting, durability).
pub fn open_flags(flags: OpenFlags) -> Result<OFlags> {
    let access = match flags.0 & OpenFlags::ACCESS.0 {
        0 => OFlags::RDONLY,
        1 => OFlags::WRONLY,
        2 => OFlags::RDWR,
        _ => return Err(Errno::INVAL),
    };
    let passed = [
        (OpenFlags::EXCL, OFlags::EXCL),
        (OpenFlags::DIRECTORY, OFlags::DIRECTORY),
        (OpenFlags::NOATIME, OFlags::NOATIME),
    ];
    let passed = passed
        .into_iter()
        .filter(|(theirs, _)| flags.contains(*theirs));
    Ok(passed.fold(access, |all, (_, ours)| all | ours))
}

/// The number of a descriptor, as a file name.
struct Number([u8; 12]);

impl Number {
    fn of(fd: BorrowedFd<'_>) -> Number {
        let mut text = [0; 12];
        let mut number = std::os::fd::AsRawFd::as_raw_fd(&fd) as u32;
        let digits = number.checked_ilog10().unwrap_or(0) as usize + 1;
        for place in (0..digits).rev() {
            text[place] = b'0' + (number % 10) as u8;
            number /= 10;
        }
        Number(text)
    }

    fn name(&self) -> &std::ffi::CStr {
        std::ffi::CStr::from_bytes_until_nul(&self.0).expect("digits and a NUL")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_descriptors_are_their_names() {
        let file = tempfile::tempfile().unwrap();
        let raw = std::os::fd::AsRawFd::as_raw_fd(&file);
        assert_eq!(
            Number::of(file.as_fd()).name().to_str().unwrap(),
            raw.to_string()
        );
    }
}
